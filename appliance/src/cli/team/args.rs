//! Verbs and options of `vnicctl team`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::{Args, Subcommand};
use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_lacp::Mode;

use super::super::Failure;
use super::super::client::resource;
use super::super::vlan::VlanArgs;
use crate::check::{Checked, fault};
use crate::names::ADAPTERS;
use crate::same::same;
use crate::teams;

#[derive(Debug, Subcommand)]
pub enum TeamVerb {
    /// Make a team without members; it is stored, and lives until it is removed
    #[command(
        visible_alias = "add",
        after_help = "Examples:\n  vnicctl team create aggregate Team0\n  vnicctl team create aggregate Team0 --hash \
                      five-tuple --lacp active\n  vnicctl team create failover Team1 --no-failback\n\nThen: vnicctl team \
                      attach Team0 p0"
    )]
    Create {
        /// What its members do
        #[arg(value_name = "TYPE")]
        kind: Type,
        /// Name: 1 to 64 characters
        name: String,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
    },
    /// Take a port into a team
    #[command(
        after_help = "Examples:\n  vnicctl team attach Team0 p0\n  vnicctl team attach Team1 p0 --primary --set-team-mac"
    )]
    Attach {
        /// Name of the team
        name: String,
        /// Name of the port
        port: String,
        /// It carries the frames of a failover team if it can
        #[arg(long)]
        primary: bool,
        /// The team gets its address
        #[arg(long)]
        set_team_mac: bool,
    },
    /// Take a port out of its team
    #[command(after_help = "Example:\n  vnicctl team detach Team0 p1")]
    Detach {
        /// Name of the team
        name: String,
        /// Name of the port
        port: String,
    },
    /// Remove a team; its members are ports of the switch again
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl team remove Team0"
    )]
    Remove {
        /// Name of the team
        name: String,
    },
    /// Show one team in full, with its members, LACP and the last failover
    #[command(
        visible_alias = "show",
        after_help = "Examples:\n  vnicctl team query Team0\n  vnicctl -o json team query Team0 | jq '.members[] | \
                      select(.active) | .port'"
    )]
    Query {
        /// Name of the team
        name: String,
    },
    /// List teams, and ports that are in no team
    #[command(
        visible_alias = "list",
        after_help = "Example:\n  vnicctl -o json team showlist | jq -r '.free_ports[]'"
    )]
    Showlist,
    /// Change settings of a team
    #[command(
        after_help = "Examples:\n  vnicctl team set Team0 --hash layer3+4\n  vnicctl team set Team0 --lacp active\n  \
                      vnicctl team set Team0 --failback-delay 5s --quiet 2ms --patience never\n  vnicctl team set Team0 \
                      --vlan 100 --vlan-prio 3"
    )]
    Set {
        /// Name of the team
        name: String,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
    },
    /// Show which flow and queue pair is on which port, and how even they are spread
    #[command(
        after_help = "Examples:\n  vnicctl team view Team0\n  vnicctl team view Team0 --flows 0   (all of them)\n  vnicctl -o \
                      json team view Team0 | jq .by_queue_pairs.largest"
    )]
    View {
        /// Name of the team
        name: String,
        /// Show the N largest flows of each port; 0: all
        #[arg(long, value_name = "N", default_value_t = 10)]
        flows: usize,
    },
    /// Let queue pairs and flows go by a port of their own
    Affinity {
        /// Name of the team
        name: String,
        #[command(subcommand)]
        verb: AffinityVerb,
    },
}

#[derive(Debug, Subcommand)]
pub enum AffinityVerb {
    /// Let something go by this port
    #[command(
        after_help = "Examples:\n  vnicctl team affinity Team0 set p1 --qp vf0:17\n  vnicctl team affinity Team0 set p0 \
                      --udp-source-port 49152\n  vnicctl team affinity Team0 set p1 --flow \
                      tcp,10.0.0.1:40000,10.0.0.2:5201"
    )]
    Set {
        /// Name of the port
        port: String,
        #[command(flatten)]
        what: AffinityArgs,
    },
    /// Let it go as its hash says again
    #[command(
        visible_alias = "delete",
        after_help = "Example:\n  vnicctl team affinity Team0 remove --qp vf0:17"
    )]
    Remove {
        #[command(flatten)]
        what: AffinityArgs,
    },
}

/// What goes by a port of its own.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct AffinityArgs {
    /// A queue pair of an adapter: ADAPTER:NUMBER
    #[arg(long, value_name = "QP", value_parser = queue_pair)]
    qp: Option<v1::TeamQueuePair>,
    /// RoCEv2 with this UDP source port
    #[arg(long, value_name = "PORT")]
    udp_source_port: Option<u16>,
    /// A flow: PROTOCOL,SOURCE,DESTINATION with ADDRESS:PORT for tcp and udp
    #[arg(long, value_name = "FLOW", value_parser = flow)]
    flow: Option<v1::TeamFiveTuple>,
}

impl AffinityArgs {
    /// Message of the affinity.
    pub fn message(self, port: String) -> v1::TeamAffinity {
        let by_port = self.udp_source_port.map(|p| What::UdpSourcePort(p.into()));
        let what = self.qp.map(What::QueuePair).or(by_port);
        v1::TeamAffinity {
            what: what.or(self.flow.map(What::Flow)),
            port,
        }
    }
}

/// Types of teams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Type {
    /// All members carry frames
    Aggregate,
    /// One does, the others stand by
    Failover,
}

same! {
    /// Type as in messages.
    pub fn kind(Type) -> v1::team::Type { Aggregate, Failover }
}

/// Who speaks LACP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LacpMode {
    /// Nobody: static
    Off,
    /// Each member speaks
    Active,
    /// Each member answers
    Passive,
}

/// Value of `--patience`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Flows are never held.
    Never,
    /// Flows are held after this time.
    For(Duration),
}

/// Settings of a team.
#[derive(Debug, Default, Args)]
pub struct SettingsArgs {
    /// Which flow goes by which port: layer2, layer2+3, layer3+4, five-tuple [default: five-tuple]
    #[arg(long, value_name = "POLICY", value_parser = hash)]
    hash: Option<String>,
    /// Link aggregation control (802.1AX) [default: off]
    #[arg(long, value_name = "MODE")]
    lacp: Option<LacpMode>,
    /// The partner shall speak every 30 s, not every second
    #[arg(long, conflicts_with = "lacp_fast")]
    lacp_slow: bool,
    /// The partner shall speak every second
    #[arg(long)]
    lacp_fast: bool,
    /// Priority of the system in LACP, 1 to 65535, the lower the stronger [default: 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    lacp_priority: Option<u32>,
    /// Key of the ports in LACP, 1 to 65535 [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65535))]
    lacp_key: Option<u32>,
    /// The primary does not take over again when it comes back (NoFailBackToPrimary)
    #[arg(long, conflicts_with = "failback")]
    no_failback: bool,
    /// It does
    #[arg(long)]
    failback: bool,
    /// How long a port that comes back has to be up before it gets anything [default: 1s]
    #[arg(long, value_name = "SPAN", value_parser = fault::span)]
    failback_delay: Option<Duration>,
    /// How long after a frame has left a port it may still be under way [default: 1ms]
    #[arg(long, value_name = "SPAN", value_parser = fault::span)]
    quiet: Option<Duration>,
    /// How long a flow that moves back may go on without a pause before it is held for that; never: it is not [default:
    /// 100ms]
    #[arg(long, value_name = "SPAN", value_parser = patience)]
    patience: Option<Patience>,
    /// Flows that the view has room for, 1 to 65536 [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    view_flows: Option<u32>,
    /// VLAN of all that the team sends and takes (VlanID), 1 to 4094; 0: none [default: 0]
    #[arg(long, value_name = "VLAN")]
    vlan: Option<u32>,
    /// Priority in its tags (VlanPrio), 0 to 7 [default: 0]
    #[arg(long, value_name = "PRIO")]
    vlan_prio: Option<u32>,
    #[command(flatten)]
    membership: VlanArgs,
}

impl SettingsArgs {
    /// Message with the settings, and names of the given fields.
    pub fn message(&self) -> Result<(v1::Team, Vec<String>), Failure> {
        let (mut team, mut lacp) = (v1::Team::default(), v1::TeamLacp::default());
        let mut paths: Vec<&str> = Vec::new();
        let span = |d: Duration| prost_types::Duration::try_from(d).ok();
        /// Writes options that were given into their fields.
        macro_rules! put {
            ($($path:literal: $($field:ident).+ = |$value:pat_param| $of:expr => $new:expr;)+) => {
                $(if let Some($value) = $of {
                    $($field).+ = $new;
                    paths.push($path);
                })+
            };
        }
        // Of a switch and its opposite, whichever was given.
        let either = |on: bool, off: bool| (on || off).then_some(on);
        put! {
            "hash_policy": team.hash_policy = |hash| &self.hash => hash.clone();
            "lacp.mode": lacp.mode = |mode| self.lacp => lacp_mode(mode).into();
            "lacp.slow": lacp.slow = |slow| either(self.lacp_slow, self.lacp_fast) => slow;
            "lacp.system_priority": lacp.system_priority = |n| self.lacp_priority => n;
            "lacp.key": lacp.key = |n| self.lacp_key => n;
            "no_failback_to_primary": team.no_failback_to_primary = |no| either(self.no_failback, self.failback) => no;
            "failback_delay": team.failback_delay = |d| self.failback_delay => span(d);
            "quiet": team.quiet = |d| self.quiet => span(d);
        }
        match self.patience {
            None => {}
            Some(Patience::Never) => {
                team.never_hold = true;
                paths.push("never_hold");
            }
            Some(Patience::For(d)) => {
                team.patience = span(d);
                paths.extend(["patience", "never_hold"]);
            }
        }
        put! {
            "flows": team.flows = |n| self.view_flows => n;
            "vlan_id": team.vlan_id = |vlan| self.vlan => vlan;
            "vlan_prio": team.vlan_prio = |prio| self.vlan_prio => prio;
            "vlan": team.vlan = |vlan| self.membership.message()? => Some(vlan);
        }
        team.lacp = Some(lacp);
        Ok((team, paths.into_iter().map(str::to_owned).collect()))
    }
}

same! { fn lacp_mode(LacpMode) -> Mode { Off, Active, Passive } }

fn hash(text: &str) -> Checked<String> {
    teams::hash(text).map(|p| p.name().to_owned())
}

fn patience(text: &str) -> Checked<Patience> {
    if text == "never" {
        return Ok(Patience::Never);
    }
    fault::span(text).map(Patience::For)
}

fn queue_pair(text: &str) -> Checked<v1::TeamQueuePair> {
    let wrong = || format!("{text:?} is no queue pair: ADAPTER:NUMBER such as vf0:17 or vf0:0x11");
    let (adapter, qp) = text.rsplit_once(':').ok_or_else(wrong)?;
    let qp = fault::integer(qp).ok().and_then(|n| u32::try_from(n).ok());
    Ok(v1::TeamQueuePair {
        adapter: resource(ADAPTERS, adapter),
        qp: qp.filter(|_| !adapter.is_empty()).ok_or_else(wrong)?,
        mac: String::new(),
    })
}

fn flow(text: &str) -> Checked<v1::TeamFiveTuple> {
    let wrong = || {
        format!(
            "{text:?} is no flow: PROTOCOL,SOURCE,DESTINATION such as tcp,10.0.0.1:40000,10.0.0.2:5201 or \
             icmp,10.0.0.1,10.0.0.2"
        )
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let [protocol, from, to] = parts.as_slice() else {
        return Err(wrong());
    };
    let protocol = match protocol.to_ascii_lowercase().as_str() {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        "icmpv6" => 58,
        other => other.parse().map_err(|_| wrong())?,
    };
    let end = |text: &str| -> Checked<(IpAddr, Option<u32>)> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok((address, None));
        }
        let end: SocketAddr = text.parse().map_err(|_| wrong())?;
        Ok((end.ip(), Some(end.port().into())))
    };
    let ((source, source_port), (destination, destination_port)) = (end(from)?, end(to)?);
    Ok(v1::TeamFiveTuple {
        source: source.to_string(),
        destination: destination.to_string(),
        protocol,
        source_port,
        destination_port,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_pairs_and_flows() {
        let pair = queue_pair("vf0:0x11").expect("a queue pair");
        assert_eq!((pair.adapter.as_str(), pair.qp), ("adapters/vf0", 17));
        for bad in ["vf0", ":17", "vf0:x", "vf0:-1", ""] {
            assert!(queue_pair(bad).is_err(), "{bad}");
        }
        let tcp = flow("tcp,10.0.0.1:40000,10.0.0.2:5201").expect("a flow");
        assert_eq!((tcp.protocol, tcp.source.as_str()), (6, "10.0.0.1"));
        assert_eq!((tcp.source_port, tcp.destination_port), (Some(40000), Some(5201)));
        let v6 = flow("UDP,[2001:db8::1]:1, [2001:db8::2]:2").expect("a flow");
        assert_eq!((v6.protocol, v6.destination.as_str()), (17, "2001:db8::2"));
        let ping = flow("icmp,10.0.0.1,10.0.0.2").expect("a flow");
        assert_eq!((ping.protocol, ping.source_port), (1, None));
        for bad in [
            "",
            "tcp",
            "tcp,10.0.0.1:1",
            "x,10.0.0.1:1,10.0.0.2:2",
            "tcp,10.0.0:1,10.0.0.2:2",
        ] {
            assert!(flow(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_what_was_given_is_written() {
        let none = SettingsArgs::default().message().expect("a message");
        assert_eq!(none.1, Vec::<String>::new());
        let some = SettingsArgs {
            hash: Some("layer2".to_owned()),
            patience: Some(Patience::For(Duration::from_millis(5))),
            vlan: Some(0),
            ..SettingsArgs::default()
        };
        let (team, paths) = some.message().expect("a message");
        assert_eq!(paths, ["hash_policy", "patience", "never_hold", "vlan_id"]);
        assert!(!team.never_hold);
    }
}
