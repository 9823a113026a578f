//! Settings of a team in messages.

use std::net::IpAddr;
use std::time::Duration;

use vnic_backend::lag::{Affinity, LagError, Packet, Ports, TeamType};
use vnic_backend::{LacpSpec, MacAddr};
use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_lacp::Mode as Speaks;

use super::super::convert;
use super::super::errors::Violations;
use crate::check::Checked;
use crate::names;
use crate::teams::{TeamSettings, hash};

/// Protocols with ports.
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Fields that an update mask may name.
pub const FIELDS: &[&str] = &[
    "no_failback_to_primary",
    "hash_policy",
    "lacp",
    "lacp.mode",
    "lacp.slow",
    "lacp.system_priority",
    "lacp.key",
    "failback_delay",
    "quiet",
    "patience",
    "never_hold",
    "flows",
    "vlan_id",
    "vlan_prio",
    "vlan",
];

/// All of them, none twice.
pub fn whole() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().copied().filter(|f| !f.contains('.'))
}

/// What can be written of a team.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Cannot be changed.
    pub kind: TeamType,
    pub no_failback: bool,
    pub vlan_id: u16,
    pub vlan_prio: u8,
    pub settings: TeamSettings,
    /// LACP that is off is not forgotten while parts of it are written.
    lacp: LacpSpec,
    speaks: bool,
}

impl Draft {
    pub fn new(kind: TeamType, no_failback: bool, vlan: (u16, u8), settings: TeamSettings) -> Draft {
        Draft {
            kind,
            no_failback,
            vlan_id: vlan.0,
            vlan_prio: vlan.1,
            lacp: settings.lacp.unwrap_or_default(),
            speaks: settings.lacp.is_some(),
            settings,
        }
    }

    /// Takes a field from a message.
    pub fn take(&mut self, field: &str, team: &v1::Team, wrong: &mut Violations) {
        let path = format!("team.{field}");
        let none = v1::TeamLacp::default();
        let lacp = team.lacp.as_ref().unwrap_or(&none);
        match field {
            "no_failback_to_primary" => self.no_failback = team.no_failback_to_primary,
            "hash_policy" => {
                if team.hash_policy.is_empty() {
                    self.settings.hash = TeamSettings::default().hash;
                } else if let Some(policy) = wrong.check(path, hash(&team.hash_policy)) {
                    self.settings.hash = policy;
                }
            }
            "lacp" => {
                for part in ["lacp.mode", "lacp.slow", "lacp.system_priority", "lacp.key"] {
                    self.take(part, team, wrong);
                }
            }
            "lacp.mode" => match Speaks::try_from(lacp.mode) {
                Ok(Speaks::Unspecified | Speaks::Off) => self.speaks = false,
                Ok(mode) => (self.speaks, self.lacp.active) = (true, mode == Speaks::Active),
                Err(_) => wrong.add(path, format!("{}; allowed: off, active, passive", lacp.mode)),
            },
            "lacp.slow" => self.lacp.short_timeout = !lacp.slow,
            "lacp.system_priority" => {
                let default = LacpSpec::default().system_priority;
                if let Some(v) = wrong.check(path, number(lacp.system_priority, default)) {
                    self.lacp.system_priority = v;
                }
            }
            "lacp.key" => {
                if let Some(v) = wrong.check(path, number(lacp.key, LacpSpec::default().key)) {
                    self.lacp.key = v;
                }
            }
            "failback_delay" => {
                let default = TeamSettings::default().bond.failback_delay;
                if let Some(d) = span(path, team.failback_delay, default, wrong) {
                    self.settings.bond.failback_delay = d;
                }
            }
            "quiet" => {
                let default = TeamSettings::default().bond.quiet;
                if let Some(d) = span(path, team.quiet, default, wrong) {
                    self.settings.bond.quiet = d;
                }
            }
            "patience" => {
                let default = TeamSettings::default().patience;
                if let Some(d) = span(path, team.patience, default, wrong) {
                    self.settings.patience = d;
                    self.settings.bond.patience = self.settings.bond.patience.and(Some(d));
                }
            }
            "never_hold" => {
                self.settings.bond.patience = (!team.never_hold).then_some(self.settings.patience);
            }
            "flows" => {
                self.settings.bond.flows = match team.flows {
                    0 => TeamSettings::default().bond.flows,
                    n => usize::try_from(n).unwrap_or(usize::MAX),
                }
            }
            "vlan_id" => match u16::try_from(team.vlan_id).ok().filter(|v| *v <= 4094) {
                Some(id) => self.vlan_id = id,
                None => wrong.add(path, format!("{}; allowed: 0 (none) to 4094", team.vlan_id)),
            },
            "vlan_prio" => match u8::try_from(team.vlan_prio).ok().filter(|v| *v <= 7) {
                Some(prio) => self.vlan_prio = prio,
                None => wrong.add(path, format!("{}; allowed: 0 to 7", team.vlan_prio)),
            },
            "vlan" => {
                if let Some(mode) = convert::vlan_mode(team.vlan.as_ref(), &path, wrong) {
                    self.settings.vlan = mode;
                }
            }
            other => wrong.add(
                "update_mask",
                format!("{other:?} is no field that can be written"),
            ),
        }
        self.settings.lacp = self.speaks.then_some(self.lacp);
    }

    /// What does not fit together.
    pub fn check(&self, wrong: &mut Violations) {
        if let Err((field, problem)) = self.settings.check(self.kind) {
            wrong.add(format!("team.{field}"), problem);
        }
    }
}

fn number(value: u32, default: u16) -> Checked<u16> {
    match value {
        0 => Ok(default),
        v => u16::try_from(v).map_err(|_| format!("{v}; allowed: 1 to 65535")),
    }
}

fn span(
    path: String,
    value: Option<prost_types::Duration>,
    default: Duration,
    wrong: &mut Violations,
) -> Option<Duration> {
    match value.map(Duration::try_from) {
        None => Some(default),
        Some(Ok(d)) => Some(d),
        Some(Err(_)) => {
            wrong.add(path, "must not be negative");
            None
        }
    }
}

/// Writes what can be written into a message.
pub fn write(team: &mut v1::Team, settings: &TeamSettings) {
    let bond = &settings.bond;
    let lacp = settings.lacp.unwrap_or_default();
    let mode = match settings.lacp {
        None => Speaks::Off,
        Some(l) if l.active => Speaks::Active,
        Some(_) => Speaks::Passive,
    };
    team.hash_policy = settings.hash.name().to_owned();
    team.lacp = Some(v1::TeamLacp {
        mode: mode.into(),
        slow: !lacp.short_timeout,
        system_priority: u32::from(lacp.system_priority),
        key: u32::from(lacp.key),
    });
    team.failback_delay = Some(convert::duration(bond.failback_delay));
    team.quiet = Some(convert::duration(bond.quiet));
    team.patience = Some(convert::duration(settings.patience));
    team.never_hold = bond.patience.is_none();
    team.flows = u32::try_from(bond.flows).unwrap_or(u32::MAX);
    team.vlan = Some(convert::vlan(&settings.vlan));
}

/// What an affinity is about; `mac` gives the address of an adapter of this resource name.
pub fn affinity(
    affinity: Option<&v1::TeamAffinity>,
    mac: impl Fn(&v1::TeamQueuePair) -> Checked<MacAddr>,
    wrong: &mut Violations,
) -> Option<(Affinity, Option<String>)> {
    let what = affinity.and_then(|a| a.what.as_ref());
    match what {
        None => {
            let problem = "required: what goes by a member of its own; queue_pair, flow or udp_source_port";
            wrong.add("affinity.what", problem);
            None
        }
        Some(What::QueuePair(pair)) => {
            let qp = match pair.qp {
                qp @ 0..=0xff_ffff => Some(qp),
                qp => {
                    wrong.add("affinity.queue_pair.qp", format!("{qp}; allowed: 0 to 16777215"));
                    None
                }
            };
            let source = wrong.check("affinity.queue_pair.adapter", mac(pair));
            let adapter = names::last(&pair.adapter).to_owned();
            Some((
                Affinity::Qp {
                    source: source?,
                    qp: qp?,
                },
                Some(adapter),
            ))
        }
        Some(What::UdpSourcePort(port)) => {
            let port = wrong.check("affinity.udp_source_port", port16(*port));
            Some((Affinity::UdpSourcePort(port?), None))
        }
        Some(What::Flow(flow)) => Some((Affinity::Flow(packet(flow, wrong)?), None)),
    }
}

fn port16(port: u32) -> Checked<u16> {
    u16::try_from(port).map_err(|_| format!("{port}; allowed: 0 to 65535"))
}

fn packet(flow: &v1::TeamFiveTuple, wrong: &mut Violations) -> Option<Packet> {
    let address = |field: &str, text: &str, wrong: &mut Violations| {
        let parsed: Checked<IpAddr> = text.parse().map_err(|_| format!("{text:?} is no IP address"));
        wrong.check(format!("affinity.flow.{field}"), parsed)
    };
    let source = address("source", &flow.source, wrong);
    let destination = address("destination", &flow.destination, wrong);
    let protocol = u8::try_from(flow.protocol)
        .map_err(|_| format!("{}; allowed: 0 to 255 (6: TCP, 17: UDP)", flow.protocol));
    let protocol = wrong.check("affinity.flow.protocol", protocol);
    let mut port = |field: &str, port: Option<u32>| match port {
        None => Some(None),
        Some(p) => wrong.check(format!("affinity.flow.{field}"), port16(p)).map(Some),
    };
    let from = port("source_port", flow.source_port);
    let to = port("destination_port", flow.destination_port);
    let (source, destination, protocol) = (source?, destination?, protocol?);
    if source.is_ipv4() != destination.is_ipv4() {
        let problem = format!("{destination} is of another kind than {source}");
        wrong.add("affinity.flow.destination", problem);
        return None;
    }
    let ports = match (from?, to?) {
        (None, None) => None,
        (Some(source), Some(destination)) if [TCP, UDP].contains(&protocol) => {
            Some(Ports { source, destination })
        }
        (Some(_), Some(_)) => {
            let problem = format!("protocol {protocol} has none; allowed: with 6 (TCP) and 17 (UDP)");
            wrong.add("affinity.flow.source_port", problem);
            return None;
        }
        (from, _) => {
            let missing = if from.is_none() {
                "source_port"
            } else {
                "destination_port"
            };
            wrong.add(
                format!("affinity.flow.{missing}"),
                "is missing; allowed: both ports, or none",
            );
            return None;
        }
    };
    Some(Packet {
        source,
        destination,
        protocol,
        ports,
    })
}

/// An affinity as a message.
pub fn affinity_message(what: Affinity, adapter: Option<&str>, port: &str) -> v1::TeamAffinity {
    let what = match what {
        Affinity::Qp { source, qp } => What::QueuePair(v1::TeamQueuePair {
            adapter: adapter.map_or_else(String::new, |a| names::of(names::ADAPTERS, a)),
            qp,
            mac: source.to_string(),
        }),
        Affinity::Flow(packet) => What::Flow(five_tuple(&packet)),
        Affinity::UdpSourcePort(port) => What::UdpSourcePort(u32::from(port)),
    };
    v1::TeamAffinity {
        what: Some(what),
        port: names::of(names::PORTS, port),
    }
}

/// A five-tuple as a message.
pub fn five_tuple(packet: &Packet) -> v1::TeamFiveTuple {
    v1::TeamFiveTuple {
        source: packet.source.to_string(),
        destination: packet.destination.to_string(),
        protocol: u32::from(packet.protocol),
        source_port: packet.ports.map(|p| u32::from(p.source)),
        destination_port: packet.ports.map(|p| u32::from(p.destination)),
    }
}

/// The path in a request of what link aggregation finds wrong with a team.
pub fn lag_field(error: &LagError) -> String {
    match error.field {
        "name" => "team_id".to_owned(),
        "adapter" => "port".to_owned(),
        "VlanID" => "team.vlan_id".to_owned(),
        "VlanPrio" => "team.vlan_prio".to_owned(),
        "members" | "primary" => error.field.to_owned(),
        other => format!("team.{other}"),
    }
}
