//! What is odd about a daemon, and what to do: the rules by which `vnicctl status` judges.

use serde::Serialize;

use super::advice;
use super::state::{Core, Counted, Status};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Somebody is not served.
    Error,
    /// Someone should look.
    Warning,
}

/// Something odd.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub level: Level,
    /// For programs, such as `port_down`.
    pub kind: &'static str,
    /// Name of what it is about; empty: the daemon.
    pub about: String,
    /// For people.
    pub what: String,
    /// What to do.
    pub advice: String,
    /// The command that shows more, or mends it.
    pub command: String,
}

impl Finding {
    fn new(level: Level, kind: &'static str, about: &str, what: String, to_do: (&str, &str)) -> Finding {
        Finding {
            level,
            kind,
            about: about.to_owned(),
            what,
            advice: to_do.0.to_owned(),
            command: command(to_do.1, about),
        }
    }
}

/// A command about an adapter, port or team; without one it loses the words that need it.
fn command(template: &str, about: &str) -> String {
    let name = match about.contains(|c: char| !c.is_ascii_alphanumeric() && !"-_".contains(c)) {
        true => format!("'{}'", about.replace('\'', "'\\''")),
        false => about.to_owned(),
    };
    let words = template
        .split(' ')
        .filter(|word| *word != "NAME" || !about.is_empty());
    let words: Vec<&str> = words
        .map(|word| if word == "NAME" { &name } else { word })
        .collect();
    words.join(" ")
}

/// All findings, those that matter most first.
pub fn of(status: &Status) -> Vec<Finding> {
    let mut all = Vec::new();
    daemon(status, &mut all);
    cores(status, &mut all);
    adapters(status, &mut all);
    ports(status, &mut all);
    teams(status, &mut all);
    traffic(status, &mut all);
    events(status, &mut all);
    settings(status, &mut all);
    all.sort_by_key(|f| f.level);
    all
}

/// Adds a finding: the level, the kind, and what it is about; what is odd; what to do, and the command.
macro_rules! find {
    ($all:ident, $level:ident, $kind:literal, $about:expr; $what:literal $(, $arg:expr)*; $to_do:expr) => {
        $all.push(Finding::new(Level::$level, $kind, $about, format!($what $(, $arg)*), $to_do))
    };
}

fn daemon(status: &Status, all: &mut Vec<Finding>) {
    const ERRORS: &str = "vnicctl event list --min-severity error --last 10";
    if !status.daemon.responsive {
        find! { all, Error, "not_responsive", "";
        "a data core does not answer, or a thread has ended by a panic";
        ("see which, report it, and restart the daemon: guests reconnect", ERRORS) }
    }
    if !status.daemon.serving {
        find! { all, Error, "not_serving", "";
        "the daemon says that it is not ready";
        ("not all sockets listen, or a thread has ended: see the log and its last errors", ERRORS) }
    }
}

/// Rounds a second below which the share of busy ones says nothing: the core sleeps.
const ROUNDS_MIN: u64 = 10_000;
/// Busy rounds in per cent from which on a core is busy.
const BUSY_PERCENT: u64 = 95;

fn is_busy(core: &Core) -> bool {
    core.busy_percent >= BUSY_PERCENT && core.rounds_per_second >= ROUNDS_MIN && core.sleeps_per_second == 0
}

fn cores(status: &Status, all: &mut Vec<Finding>) {
    for core in &status.cores {
        let (cpu, name) = (core.cpu, format!("cores/{}", core.cpu));
        if core.panics > 0 {
            find! { all, Error, "bug_caught", &name;
            "data core {cpu} caught {} bugs since the daemon started; adapters were taken down", core.panics;
            ("report the line of the log; adapters that failed come back by adapter restart", "vnicctl event list --kind panic") }
        }
        if is_busy(core) {
            find! { all, Warning, "core_busy", &name;
            "data core {cpu} has work in {} % of its rounds", core.busy_percent;
            ("see whose traffic it is; give the daemon more cores, or adapters another core", "vnicctl top") }
        }
        if core.learn_refused > 0 {
            find! { all, Warning, "addresses_refused", &name;
            "data core {cpu} does not learn addresses: there is no room";
            ("see which port brings so many; frames for addresses that are not known are flooded", "vnicctl switch fdb") }
        }
    }
}

fn adapters(status: &Status, all: &mut Vec<Finding>) {
    for a in &status.adapters {
        let to_do = (
            "a bug took it down: report the event, then bring it back",
            RESTART,
        );
        if a.state == "failed" {
            find! { all, Error, "adapter_failed", &a.name; "adapter {} has failed", a.name; to_do }
        }
        if a.rdma == "failed" {
            find! { all, Error, "rdma_failed", &a.name; "the RDMA function of adapter {} has failed", a.name; to_do }
        }
    }
}

/// Command that lets pending settings act, and brings a failed adapter back.
const RESTART: &str = "vnicctl adapter restart NAME";

fn ports(status: &Status, all: &mut Vec<Finding>) {
    const SHOW: &str = "vnicctl port show NAME";
    for p in &status.ports {
        if !p.up {
            let problem = if p.problem.is_empty() { "" } else { ": " };
            find! { all, Error, "port_down", &p.name;
            "the link of port {} is down{problem}{}", p.name, p.problem;
            ("see whether its device is there and up (ip link), and its cable or peer", SHOW) }
        }
        if p.up && !p.lldp_problem.is_empty() {
            find! { all, Warning, "pfc_differs", &p.name;
            "port {}: {}", p.name, p.lldp_problem;
            ("RoCE loses packets where one end does not pause: set the same priorities at both ends (vnicctl qos set)", "vnicctl port neighbors NAME") }
        }
        if p.up && !p.peers_missing.is_empty() {
            find! { all, Warning, "mesh_peer_missing", &p.name;
            "port {} does not reach {}", p.name, p.peers_missing.join(", ");
            ("see why: the daemon there, the network between, certificates", SHOW) }
        }
    }
}

fn teams(status: &Status, all: &mut Vec<Finding>) {
    const VIEW: &str = "vnicctl team view NAME";
    for t in &status.teams {
        if !t.up && t.members > 0 {
            find! { all, Error, "team_down", &t.name;
            "team {} carries no frames: no member can", t.name;
            ("see links of its members, and with LACP their partner", VIEW) }
        }
        if !t.missing.is_empty() {
            find! { all, Warning, "team_member_missing", &t.name;
            "members of team {} do not exist: {}", t.name, t.missing.join(", ");
            ("make the port again, or detach it from the team", VIEW) }
        }
        if !t.down.is_empty() {
            find! { all, Warning, "team_member_down", &t.name;
            "members of team {} are down: {}", t.name, t.down.join(", ");
            ("see their links, and with LACP their partner", VIEW) }
        }
        if !t.problem.is_empty() && t.up {
            find! { all, Warning, "team_problem", &t.name;
            "team {}: {}", t.name, t.problem;
            ("see its members and their partners", VIEW) }
        }
    }
}

fn traffic(status: &Status, all: &mut Vec<Finding>) {
    let grows = |c: &Counted| format!("{} a second, {} in all", c.per_second, c.total);
    for c in status.drops.iter().filter(|c| c.grew > 0) {
        if let Some(to_do) = advice::of_drop(&c.what) {
            find! { all, Warning, "drops", &c.owner; "frames of {} are dropped: {} ({})", c.owner, c.what, grows(c); to_do }
        }
    }
    for c in status.rdma_errors.iter().filter(|c| c.grew > 0) {
        if let Some(to_do) = advice::of_rdma(&c.what) {
            find! { all, Warning, "rdma_errors", &c.owner; "RDMA errors of {}: {} ({})", c.owner, c.what, grows(c); to_do }
        }
    }
    for (adapter, n) in &status.queue_pairs_in_error {
        find! { all, Warning, "queue_pairs_in_error", adapter;
        "{n} queue pairs of {adapter} are in an error state";
        ("their programs have to reset or destroy them: see who they belong to, and their errors",
         "vnicctl qp list NAME --state err --state sqe") }
    }
}

fn events(status: &Status, all: &mut Vec<Finding>) {
    for e in &status.events {
        let Some(to_do) = advice::of_event(&e.kind) else {
            continue;
        };
        let level = match e.severity {
            "error" => Level::Error,
            _ => Level::Warning,
        };
        let times = if e.count == 1 {
            String::new()
        } else {
            format!(", {} times", e.count)
        };
        let of = if e.owner.is_empty() { "" } else { " of " };
        let what = format!("event {}{of}{}{times}: {}", e.kind, e.owner, e.last_message);
        all.push(Finding::new(level, "event", &e.owner, what, to_do));
    }
}

fn settings(status: &Status, all: &mut Vec<Finding>) {
    let mut adapters: Vec<&str> = status.pending.iter().map(|p| p.adapter.as_str()).collect();
    adapters.dedup();
    for adapter in adapters {
        let keys = status.pending.iter().filter(|p| p.adapter == adapter);
        let keys: Vec<&str> = keys.map(|p| p.key.as_str()).collect();
        find! { all, Warning, "settings_pending", adapter;
        "settings of {adapter} wait for its restart: {}", keys.join(", ");
        ("let them act; the guest's link goes down for a moment", RESTART) }
    }
    if !status.nv_pending.is_empty() {
        let names: Vec<&str> = status.nv_pending.iter().map(|p| p.name.as_str()).collect();
        find! { all, Warning, "nv_pending", "";
        "NV parameters wait for a reset of the device: {}", names.join(", ");
        ("let them act; links of guests go down for a moment", "vnicctl nvconfig device-reset") }
    }
    for f in status.faults.iter().filter(|f| !f.spent) {
        find! { all, Warning, "fault_live", &f.name;
        "fault rule {} is live: {} ({} hit)", f.name, f.action, f.injected;
        ("frames suffer on purpose; end it when the test is over", "vnicctl fault remove NAME") }
    }
    for f in status.verbs_faults.iter().filter(|f| f.is_live()) {
        find! { all, Warning, "verbs_fault_live", &f.name;
        "fault rule {} of verbs of {} is {}: {} ({} hit)", f.name, f.adapter, f.state, f.action, f.injected;
        ("its programs are told what is not so, on purpose; end it when the test is over", "vnicctl fault verbs remove NAME") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::state::{Adapter, Daemon, Events, Fault, NvPending, Pending, Port, Team, VerbsFault};
    use super::*;

    /// A daemon with nothing odd.
    fn well() -> Status {
        Status {
            daemon: Daemon {
                serving: true,
                responsive: true,
                ..Daemon::default()
            },
            cores: vec![Core {
                cpu: 1,
                busy_percent: 100,
                rounds_per_second: 3,
                ..Core::default()
            }],
            adapters: vec![Adapter {
                name: "vf0".to_owned(),
                state: "up",
                rdma: "detached",
            }],
            ports: vec![Port {
                name: "p0".to_owned(),
                up: true,
                ..Port::default()
            }],
            teams: vec![Team {
                name: "Team 0".to_owned(),
                up: true,
                members: 1,
                ..Team::default()
            }],
            drops: vec![
                Counted {
                    what: "spoofed_source".to_owned(),
                    total: 7,
                    ..Counted::default()
                },
                Counted {
                    what: "no_destination".to_owned(),
                    grew: 7,
                    ..Counted::default()
                },
            ],
            faults: vec![Fault {
                spent: true,
                ..Fault::default()
            }],
            verbs_faults: vec![VerbsFault {
                state: "over",
                ..VerbsFault::default()
            }],
            ..Status::default()
        }
    }

    fn counted(what: &str) -> Counted {
        Counted {
            owner: "vf0".to_owned(),
            what: what.to_owned(),
            total: 30,
            grew: 2,
            per_second: 2,
        }
    }

    #[test]
    fn a_daemon_that_is_well_has_no_findings() {
        let all = of(&well());
        assert!(all.is_empty(), "{all:?}");
    }

    /// How a daemon that is well is spoilt, and what is found: the kind, and the command.
    type Case = (fn(&mut Status), Level, &'static str, &'static str);

    const CASES: &[Case] = &[
        (
            |s| s.daemon.responsive = false,
            Level::Error,
            "not_responsive",
            "vnicctl event list --min-severity error --last 10",
        ),
        (
            |s| s.daemon.serving = false,
            Level::Error,
            "not_serving",
            "vnicctl event list --min-severity error --last 10",
        ),
        (
            |s| s.cores[0].panics = 1,
            Level::Error,
            "bug_caught",
            "vnicctl event list --kind panic",
        ),
        (
            |s| s.cores[0].rounds_per_second = 1_000_000,
            Level::Warning,
            "core_busy",
            "vnicctl top",
        ),
        (
            |s| s.cores[0].learn_refused = 1,
            Level::Warning,
            "addresses_refused",
            "vnicctl switch fdb",
        ),
        (
            |s| s.adapters[0].state = "failed",
            Level::Error,
            "adapter_failed",
            "vnicctl adapter restart vf0",
        ),
        (
            |s| s.adapters[0].rdma = "failed",
            Level::Error,
            "rdma_failed",
            "vnicctl adapter restart vf0",
        ),
        (
            |s| s.ports[0].up = false,
            Level::Error,
            "port_down",
            "vnicctl port show p0",
        ),
        (
            |s| {
                s.ports[0].lldp_problem =
                    "port et-0/0/1 of tor-1 has flow control for priority 3, this port for no priority"
                        .to_owned()
            },
            Level::Warning,
            "pfc_differs",
            "vnicctl port neighbors p0",
        ),
        (
            |s| s.ports[0].peers_missing.push("b:4790".to_owned()),
            Level::Warning,
            "mesh_peer_missing",
            "vnicctl port show p0",
        ),
        (
            |s| s.teams[0].up = false,
            Level::Error,
            "team_down",
            "vnicctl team view 'Team 0'",
        ),
        (
            |s| s.teams[0].missing.push("p1".to_owned()),
            Level::Warning,
            "team_member_missing",
            "vnicctl team view 'Team 0'",
        ),
        (
            |s| s.teams[0].down.push("p1".to_owned()),
            Level::Warning,
            "team_member_down",
            "vnicctl team view 'Team 0'",
        ),
        (
            |s| s.teams[0].problem = "no partner".to_owned(),
            Level::Warning,
            "team_problem",
            "vnicctl team view 'Team 0'",
        ),
        (
            |s| s.drops.push(counted("no_rx_buffer")),
            Level::Warning,
            "drops",
            "vnicctl counter show vf0 --nonzero",
        ),
        (
            |s| s.rdma_errors.push(counted("resp_rnr_nak")),
            Level::Warning,
            "rdma_errors",
            "vnicctl qp list vf0",
        ),
        (
            |s| {
                s.queue_pairs_in_error.insert("vf0".to_owned(), 2);
            },
            Level::Warning,
            "queue_pairs_in_error",
            "vnicctl qp list vf0 --state err --state sqe",
        ),
        (
            |s| {
                s.events.push(Events {
                    kind: "panic".to_owned(),
                    severity: "error",
                    count: 1,
                    ..Events::default()
                });
            },
            Level::Error,
            "event",
            "vnicctl event list --kind panic",
        ),
        (
            |s| {
                s.pending.push(Pending {
                    adapter: "vf0".to_owned(),
                    key: "VlanID".to_owned(),
                    ..Pending::default()
                });
            },
            Level::Warning,
            "settings_pending",
            "vnicctl adapter restart vf0",
        ),
        (
            |s| s.nv_pending.push(NvPending::default()),
            Level::Warning,
            "nv_pending",
            "vnicctl nvconfig device-reset",
        ),
        (
            |s| {
                s.faults[0] = Fault {
                    name: "lossy".to_owned(),
                    ..Fault::default()
                }
            },
            Level::Warning,
            "fault_live",
            "vnicctl fault remove lossy",
        ),
        (
            |s| {
                s.verbs_faults[0] = VerbsFault {
                    name: "liar".to_owned(),
                    state: "waiting",
                    ..VerbsFault::default()
                }
            },
            Level::Warning,
            "verbs_fault_live",
            "vnicctl fault verbs remove liar",
        ),
    ];

    #[test]
    fn each_thing_that_is_odd_is_found_with_its_level_and_command() {
        use clap::Parser as _;
        for (spoil, level, kind, command) in CASES {
            let mut status = well();
            spoil(&mut status);
            let all = of(&status);
            let [found] = all.as_slice() else {
                panic!("{kind}: {all:?}")
            };
            assert_eq!(
                (found.level, found.kind, found.command.as_str()),
                (*level, *kind, *command)
            );
            assert!(!found.what.is_empty() && !found.advice.is_empty(), "{kind}");
            // What is quoted is one word.
            let words: Vec<&str> = command.split(' ').filter(|w| *w != "0'").collect();
            let parsed = crate::cli::args::Args::try_parse_from(&words);
            assert!(parsed.is_ok(), "{command}");
        }
    }

    #[test]
    fn errors_come_first() {
        let mut status = well();
        status.faults[0].spent = false;
        status.ports[0].up = false;
        let kinds: Vec<_> = of(&status).iter().map(|f| f.kind).collect();
        assert_eq!(kinds, ["port_down", "fault_live"]);
    }

    #[test]
    fn words_of_commands() {
        assert_eq!(command("vnicctl qp list NAME", "vf0"), "vnicctl qp list vf0");
        assert_eq!(command("vnicctl qp list NAME", ""), "vnicctl qp list");
        assert_eq!(
            command("vnicctl team view NAME", "it's"),
            r"vnicctl team view 'it'\''s'"
        );
    }
}
