//! Teams as `vnic.v1.Team`: conversion of settings, and the form in which requested teams are stored.

use std::net::IpAddr;
use std::time::Duration;

use prost::Message as _;
use vnic_backend::lag::{Affinity, Packet, Ports, Team, TeamMember, TeamType};
use vnic_backend::{LacpSpec, MacAddr};
use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_lacp::Mode as Speaks;

use super::values;
use crate::check::{Checked, Violations};
use crate::names::{self, PORTS, TEAMS};
use crate::teams::{Direction, Draft, TeamSettings, guid_of, guid_text, hash};

/// IP protocols with ports.
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

/// Fields without subfields: together all of the message, none twice.
pub fn whole() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().copied().filter(|f| !f.contains('.'))
}

/// Takes a field of a team from a message.
pub fn take(draft: &mut Draft, field: &str, team: &v1::Team, wrong: &mut Violations) {
    let path = format!("team.{field}");
    let (plain, plain_lacp) = (TeamSettings::default(), LacpSpec::default());
    let none = v1::TeamLacp::default();
    let lacp = team.lacp.as_ref().unwrap_or(&none);
    match field {
        "no_failback_to_primary" => draft.no_failback = team.no_failback_to_primary,
        "hash_policy" if team.hash_policy.is_empty() => draft.settings.hash = plain.hash,
        "hash_policy" => put(
            &mut draft.settings.hash,
            wrong.check(path, hash(&team.hash_policy)),
        ),
        "lacp" => {
            for part in ["lacp.mode", "lacp.slow", "lacp.system_priority", "lacp.key"] {
                take(draft, part, team, wrong);
            }
        }
        "lacp.mode" => match Speaks::try_from(lacp.mode) {
            Ok(Speaks::Unspecified | Speaks::Off) => draft.speaks = false,
            Ok(mode) => (draft.speaks, draft.lacp.active) = (true, mode == Speaks::Active),
            Err(_) => wrong.add(path, format!("{}; allowed: off, active, passive", lacp.mode)),
        },
        "lacp.slow" => draft.lacp.short_timeout = !lacp.slow,
        "lacp.system_priority" => {
            let priority = number(lacp.system_priority, plain_lacp.system_priority);
            put(&mut draft.lacp.system_priority, wrong.check(path, priority));
        }
        "lacp.key" => put(
            &mut draft.lacp.key,
            wrong.check(path, number(lacp.key, plain_lacp.key)),
        ),
        "failback_delay" => {
            let delay = span(path, team.failback_delay, plain.bond.failback_delay, wrong);
            put(&mut draft.settings.bond.failback_delay, delay);
        }
        "quiet" => {
            let quiet = span(path, team.quiet, plain.bond.quiet, wrong);
            put(&mut draft.settings.bond.quiet, quiet);
        }
        "patience" => {
            if let Some(d) = span(path, team.patience, plain.patience, wrong) {
                draft.settings.patience = d;
                draft.settings.bond.patience = draft.settings.bond.patience.and(Some(d));
            }
        }
        "never_hold" => {
            draft.settings.bond.patience = (!team.never_hold).then_some(draft.settings.patience);
        }
        "flows" => {
            draft.settings.bond.flows = match team.flows {
                0 => plain.bond.flows,
                n => usize::try_from(n).unwrap_or(usize::MAX),
            }
        }
        "vlan_id" => match u16::try_from(team.vlan_id).ok().filter(|v| *v <= 4094) {
            Some(id) => draft.vlan_id = id,
            None => wrong.add(path, format!("{}; allowed: 0 (none) to 4094", team.vlan_id)),
        },
        "vlan_prio" => match u8::try_from(team.vlan_prio).ok().filter(|v| *v <= 7) {
            Some(prio) => draft.vlan_prio = prio,
            None => wrong.add(path, format!("{}; allowed: 0 to 7", team.vlan_prio)),
        },
        "vlan" => {
            let vlan = values::vlan_mode(team.vlan.as_ref(), &path, wrong);
            put(&mut draft.settings.vlan, vlan);
        }
        other => wrong.add(
            "update_mask",
            format!("{other:?} is no field that can be written"),
        ),
    }
    draft.settings.lacp = draft.speaks.then_some(draft.lacp);
}

fn put<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
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
    match value.map(values::span) {
        None => Some(default),
        Some(Some(d)) => Some(d),
        Some(None) => {
            wrong.add(path, "must not be negative");
            None
        }
    }
}

/// Writes the settings into a message.
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
    team.failback_delay = Some(values::duration(bond.failback_delay));
    team.quiet = Some(values::duration(bond.quiet));
    team.patience = Some(values::duration(settings.patience));
    team.never_hold = bond.patience.is_none();
    team.flows = u32::try_from(bond.flows).unwrap_or(u32::MAX);
    team.vlan = Some(values::vlan(&settings.vlan));
}

/// Reads an affinity; `mac` gives the address of the adapter of a queue pair.
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
    let mut port =
        |field: &str, port: Option<u32>| wrong.optional(format!("affinity.flow.{field}"), port, port16);
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
        port: names::of(PORTS, port),
    }
}

pub fn five_tuple(packet: &Packet) -> v1::TeamFiveTuple {
    v1::TeamFiveTuple {
        source: packet.source.to_string(),
        destination: packet.destination.to_string(),
        protocol: u32::from(packet.protocol),
        source_port: packet.ports.map(|p| u32::from(p.source)),
        destination_port: packet.ports.map(|p| u32::from(p.destination)),
    }
}

/// A team as it was requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub team: Team,
    /// Name of its bond; may be empty.
    pub bond: String,
    pub settings: TeamSettings,
    /// Affinities: traffic that has a member of its own.
    pub affinities: Vec<Direction>,
}

/// Message of a requested team.
pub fn message(team: &Team, bond: &str, settings: &TeamSettings, affinities: &[Direction]) -> v1::Team {
    let mut message = v1::Team {
        name: names::of(TEAMS, &team.name),
        r#type: match team.kind {
            TeamType::Aggregate => v1::team::Type::Aggregate,
            TeamType::Failover => v1::team::Type::Failover,
        }
        .into(),
        no_failback_to_primary: team.no_failback,
        vlan_id: u32::from(team.vlan_id),
        vlan_prio: u32::from(team.vlan_prio),
        guid: guid_text(team.guid),
        mac: team.mac.map(|m| m.to_string()).unwrap_or_default(),
        bond: bond.to_owned(),
        ..v1::Team::default()
    };
    write(&mut message, settings);
    let member = |m: &TeamMember| v1::TeamMember {
        port: names::of(PORTS, &m.adapter),
        mac: m.mac.to_string(),
        primary: m.primary,
        ..v1::TeamMember::default()
    };
    message.members = team.members.iter().map(member).collect();
    let direction = |d: &Direction| affinity_message(d.what, d.adapter.as_deref(), &d.port);
    message.affinities = affinities.iter().map(direction).collect();
    message
}

/// A stored team, which may be unreadable.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(v1::Team);

impl Row {
    pub fn of(team: &Team, bond: &str, settings: &TeamSettings, affinities: &[Direction]) -> Row {
        Row(message(team, bond, settings, affinities))
    }

    pub fn name(&self) -> &str {
        let name = self.0.name.strip_prefix(TEAMS).and_then(|n| n.strip_prefix('/'));
        name.unwrap_or("")
    }

    /// Decodes the row.
    pub fn read(&self) -> Result<Asked, String> {
        let stored = &self.0;
        let guid = guid_of(&stored.guid).ok_or("it has no GUID")?;
        let address = |text: &str| {
            text.parse::<MacAddr>()
                .map_err(|_| format!("{text:?} is no address"))
        };
        let kind = match stored.r#type() {
            v1::team::Type::Failover => TeamType::Failover,
            _ => TeamType::Aggregate,
        };
        let mut wrong = Violations::default();
        let mut draft = Draft::new(kind, false, (0, 0), TeamSettings::default());
        for field in whole() {
            take(&mut draft, field, stored, &mut wrong);
        }
        let mut affinities = Vec::new();
        for one in &stored.affinities {
            let mac = |pair: &v1::TeamQueuePair| address(&pair.mac);
            if let Some((what, adapter)) = affinity(Some(one), mac, &mut wrong) {
                let port = names::last(&one.port).to_owned();
                affinities.push(Direction { what, adapter, port });
            }
        }
        let draft = wrong.finish(Some(draft)).map_err(|wrong| wrong.to_string())?;
        let members = stored.members.iter().map(|m| {
            Ok::<_, String>(TeamMember {
                adapter: names::id(PORTS, &m.port)
                    .ok_or("a member has no name")?
                    .to_owned(),
                mac: address(&m.mac)?,
                primary: m.primary,
            })
        });
        Ok(Asked {
            team: Team {
                name: self.name().to_owned(),
                guid,
                kind,
                no_failback: draft.no_failback,
                members: members.collect::<Result<_, _>>()?,
                mac: (!stored.mac.is_empty())
                    .then(|| address(&stored.mac))
                    .transpose()?,
                vlan_id: draft.vlan_id,
                vlan_prio: draft.vlan_prio,
            },
            bond: stored.bond.clone(),
            settings: draft.settings,
            affinities,
        })
    }
}

/// The form in which teams are stored: `vnic.v1.ListTeamsResponse`.
pub fn encode(teams: impl Iterator<Item = Row>) -> Vec<u8> {
    let teams = teams.map(|row| row.0).collect();
    let stored = v1::ListTeamsResponse {
        teams,
        ..v1::ListTeamsResponse::default()
    };
    stored.encode_to_vec()
}

/// Decodes the teams of the store.
pub fn decode(bytes: &[u8]) -> Result<Vec<Row>, String> {
    let stored = v1::ListTeamsResponse::decode(bytes).map_err(|e| e.to_string())?;
    Ok(stored.teams.into_iter().map(Row).collect())
}
