//! What `vnicctl status` knows of a daemon: the document of `-o json`.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use vnic_control::v1;
use vnic_control::v1::counter::Scope;
use vnic_control::v1::event::Severity;

use super::super::look::{Grown, Growth, Look};
use super::super::{adapter, event, fault, qp, team, text, verbs_fault};
use super::advice;
use crate::{json, names};

/// What the daemon answered.
#[derive(Default)]
pub struct Answers {
    /// It says that it is healthy.
    pub serving: bool,
    pub info: v1::ServerInfo,
    pub teams: Vec<v1::Team>,
    /// Queue pairs in an error state.
    pub queue_pairs: Vec<v1::QueuePair>,
    pub entries: Vec<v1::RegistryEntry>,
    pub nv: Vec<v1::NvParameter>,
    pub faults: Vec<v1::Fault>,
    pub verbs_faults: Vec<v1::VerbsFault>,
    /// Warnings and errors of the time that was asked for.
    pub events: Vec<v1::Event>,
}

/// State of a daemon.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    pub daemon: Daemon,
    pub cores: Vec<Core>,
    pub adapters: Vec<Adapter>,
    pub ports: Vec<Port>,
    pub teams: Vec<Team>,
    /// Drops by owner and reason.
    pub drops: Vec<Counted>,
    /// Errors of RDMA functions by adapter and counter.
    pub rdma_errors: Vec<Counted>,
    /// Queue pairs in an error state, by adapter.
    pub queue_pairs_in_error: BTreeMap<String, usize>,
    pub events: Vec<Events>,
    /// Settings that wait for a restart of their adapter.
    pub pending: Vec<Pending>,
    /// NV parameters that wait for a reset of the device.
    pub nv_pending: Vec<NvPending>,
    pub faults: Vec<Fault>,
    pub verbs_faults: Vec<VerbsFault>,
    /// Time between the two looks.
    pub interval_ms: u64,
}

/// The daemon itself.
#[derive(Debug, Default, Serialize)]
pub struct Daemon {
    pub version: String,
    pub git_revision: String,
    pub pid: u32,
    pub start_time: String,
    pub uptime_seconds: i64,
    /// Health says SERVING.
    pub serving: bool,
    /// All data cores answer, and no thread that the daemon needs has ended.
    pub responsive: bool,
}

/// A data core.
#[derive(Debug, Default, Serialize)]
pub struct Core {
    pub cpu: u32,
    /// Rounds that found work, in per cent of all rounds between the looks.
    pub busy_percent: u64,
    pub rounds_per_second: u64,
    pub sleeps_per_second: u64,
    /// Bugs caught, since the daemon started.
    pub panics: u64,
    /// Addresses that were not learned between the looks, because there was no room.
    pub learn_refused: u64,
}

/// An adapter with its RDMA function.
#[derive(Debug, Default, Serialize)]
pub struct Adapter {
    pub name: String,
    pub state: &'static str,
    pub rdma: &'static str,
}

/// An uplink port.
#[derive(Debug, Default, Serialize)]
pub struct Port {
    pub name: String,
    pub up: bool,
    pub problem: String,
    /// What a neighbour says of priorities that contradicts it.
    pub lldp_problem: String,
    /// Daemons of its mesh that are not connected.
    pub peers_missing: Vec<String>,
}

/// A team.
#[derive(Debug, Default, Serialize)]
pub struct Team {
    pub name: String,
    pub up: bool,
    pub problem: String,
    pub members: usize,
    /// Members whose link is down.
    pub down: Vec<String>,
    /// Members that do not exist.
    pub missing: Vec<String>,
}

/// A counter of something that should not happen.
#[derive(Debug, Default, Serialize)]
pub struct Counted {
    /// Name of the adapter or port.
    pub owner: String,
    /// Drop reason, or name of the counter.
    pub what: String,
    /// Since the owner was made.
    pub total: u64,
    /// Between the looks.
    pub grew: u64,
    pub per_second: u64,
}

/// Warnings or errors of one kind about one object.
#[derive(Debug, Default, Serialize)]
pub struct Events {
    pub kind: String,
    pub severity: &'static str,
    /// Name of the adapter or port, or empty.
    pub owner: String,
    pub count: u64,
    pub last_time: String,
    pub last_message: String,
}

/// A setting that waits.
#[derive(Debug, Default, Serialize)]
pub struct Pending {
    pub adapter: String,
    pub key: String,
    pub effective: String,
    pub pending: String,
}

/// An NV parameter that waits.
#[derive(Debug, Default, Serialize)]
pub struct NvPending {
    pub name: String,
    pub current: u32,
    pub next: u32,
}

/// A fault rule.
#[derive(Debug, Default, Serialize)]
pub struct Fault {
    pub name: String,
    pub action: String,
    pub from: String,
    pub to: String,
    pub injected: u64,
    /// It has done all that it was to do.
    pub spent: bool,
}

/// A fault rule of verbs.
#[derive(Debug, Default, Serialize)]
pub struct VerbsFault {
    pub name: String,
    pub adapter: String,
    pub matches: String,
    pub action: String,
    pub injected: u64,
    /// `waiting`, `active`, `over` or `spent`.
    pub state: &'static str,
}

fn last(name: &str) -> String {
    names::last(name).to_owned()
}

impl Status {
    /// Makes the state of two looks and of what else the daemon answered.
    pub fn new(before: &Look, now: &Look, answers: &Answers) -> Status {
        let growth = Growth::new(before, now);
        Status {
            daemon: Daemon::new(answers),
            cores: cores(&growth, &answers.info.data_cores),
            adapters: now.adapters.iter().map(Adapter::new).collect(),
            ports: now.ports.iter().map(Port::new).collect(),
            teams: answers.teams.iter().map(Team::new).collect(),
            drops: drops(&growth),
            rdma_errors: rdma_errors(&growth),
            queue_pairs_in_error: queue_pairs(&answers.queue_pairs),
            events: events(&answers.events),
            pending: {
                let keys = answers.entries.iter().filter_map(pending);
                keys.chain(now.adapters.iter().flat_map(waiting)).collect()
            },
            nv_pending: answers.nv.iter().filter_map(nv_pending).collect(),
            faults: answers.faults.iter().map(Fault::new).collect(),
            verbs_faults: answers.verbs_faults.iter().map(VerbsFault::new).collect(),
            interval_ms: u64::try_from(growth.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl Daemon {
    fn new(answers: &Answers) -> Daemon {
        let info = &answers.info;
        Daemon {
            version: info.version.clone(),
            git_revision: info.git_revision.clone(),
            pid: info.pid,
            start_time: text::time(info.start_time),
            uptime_seconds: info.uptime.map_or(0, |up| up.seconds),
            serving: answers.serving,
            responsive: info.responsive,
        }
    }
}

fn cores(growth: &Growth<'_>, cpus: &[u32]) -> Vec<Core> {
    let panics = growth.of(Scope::Core).filter(|c| c.name == "panics");
    let panics: BTreeMap<&str, u64> = panics.map(|c| (c.owner, c.value)).collect();
    let core = |cpu: &u32| {
        let owner = names::of(names::CORES, &cpu.to_string());
        let grew = |name: &str| growth.sum(Scope::Core, &owner, &[name]);
        let (busy, idle) = (grew("busy_rounds"), grew("idle_rounds"));
        Core {
            cpu: *cpu,
            busy_percent: text::percent(busy, idle),
            rounds_per_second: growth.rate(busy.saturating_add(idle)),
            sleeps_per_second: growth.rate(grew("sleeps")),
            panics: panics.get(owner.as_str()).copied().unwrap_or(0),
            learn_refused: grew("learn_refused"),
        }
    };
    cpus.iter().map(core).collect()
}

impl Adapter {
    fn new(a: &v1::Adapter) -> Adapter {
        Adapter {
            name: last(&a.name),
            state: adapter::state(a),
            rdma: a.rdma.as_ref().map_or("none", adapter::rdma_word),
        }
    }
}

impl Port {
    fn new(p: &v1::Port) -> Port {
        let peers = match &p.uplink {
            Some(v1::port::Uplink::Mesh(mesh)) => mesh.connections.as_slice(),
            _ => &[],
        };
        let missing = peers.iter().filter(|c| !c.connected && !c.peer.is_empty());
        Port {
            name: last(&p.name),
            up: p.up,
            problem: p.problem.clone(),
            lldp_problem: p.lldp_problem.clone(),
            peers_missing: missing.map(|c| c.peer.clone()).collect(),
        }
    }
}

impl Team {
    fn new(t: &v1::Team) -> Team {
        let those = |which: fn(&v1::TeamMember) -> bool| {
            let members = t.members.iter().filter(|m| which(m));
            members.map(|m| last(&m.port)).collect()
        };
        Team {
            name: team::show::name(t).to_owned(),
            up: t.up,
            problem: t.problem.clone(),
            members: t.members.len(),
            down: those(|m| !m.up && !m.missing),
            missing: those(|m| m.missing),
        }
    }
}

fn drops(growth: &Growth<'_>) -> Vec<Counted> {
    let scopes = [Scope::AdapterDrop, Scope::PortDrop].into_iter();
    let all = scopes.flat_map(|scope| growth.of(scope));
    largest_first(all.map(|c| Counted::new(growth, &c, c.label)).collect())
}

fn rdma_errors(growth: &Growth<'_>) -> Vec<Counted> {
    let all = growth.of(Scope::Rdma).filter(|c| advice::is_rdma_error(c.name));
    largest_first(all.map(|c| Counted::new(growth, &c, c.name)).collect())
}

impl Counted {
    fn new(growth: &Growth<'_>, c: &Grown<'_>, what: &str) -> Counted {
        Counted {
            owner: last(c.owner),
            what: what.to_owned(),
            total: c.value,
            grew: c.grew,
            per_second: growth.rate(c.grew),
        }
    }
}

/// What grows most comes first, then what has the greatest total.
fn largest_first(mut all: Vec<Counted>) -> Vec<Counted> {
    all.sort_by_key(|c| Reverse((c.grew, c.total)));
    all
}

fn queue_pairs(all: &[v1::QueuePair]) -> BTreeMap<String, usize> {
    let mut by_adapter = BTreeMap::new();
    for pair in all.iter().filter(|p| ["ERR", "SQE"].contains(&qp::state(p))) {
        let (adapter, _) = names::queue_pair_parts(&pair.name).unwrap_or_default();
        *by_adapter.entry(adapter.to_owned()).or_default() += 1;
    }
    by_adapter
}

/// Events by severity, kind and object; errors first, then what happened last.
fn events(all: &[v1::Event]) -> Vec<Events> {
    let mut by_kind: BTreeMap<(Severity, &str, &str), Events> = BTreeMap::new();
    for e in all {
        let object = if e.adapter.is_empty() { &e.port } else { &e.adapter };
        let key = (e.severity(), e.kind.as_str(), object.as_str());
        let entry = by_kind.entry(key).or_default();
        *entry = Events {
            kind: e.kind.clone(),
            severity: event::severity(e.severity()),
            owner: last(object),
            count: entry.count.saturating_add(e.suppressed.max(1)),
            last_time: text::time(e.time),
            last_message: e.message.clone(),
        };
    }
    let mut sums: Vec<_> = by_kind.into_iter().collect();
    sums.sort_by(|(a, x), (b, y)| b.0.cmp(&a.0).then_with(|| y.last_time.cmp(&x.last_time)));
    sums.into_iter().map(|(_, sum)| sum).collect()
}

/// Settings of an adapter itself that wait.
fn waiting(adapter: &v1::Adapter) -> Vec<Pending> {
    let acting = match adapter.pending.as_slice() {
        [] => return Vec::new(),
        _ => json::of("Adapter", adapter).unwrap_or_default(),
    };
    let waits = |p: &v1::PendingField| Pending {
        adapter: names::last(&adapter.name).to_owned(),
        key: p.field.clone(),
        effective: acting[&p.field].to_string(),
        pending: p.value.clone(),
    };
    adapter.pending.iter().map(waits).collect()
}

fn pending(entry: &v1::RegistryEntry) -> Option<Pending> {
    Some(Pending {
        pending: entry.pending.clone()?,
        adapter: last(&entry.scope),
        key: entry.key.clone(),
        effective: entry.effective.clone().unwrap_or_default(),
    })
}

fn nv_pending(p: &v1::NvParameter) -> Option<NvPending> {
    let (current, next) = (p.current_value?, p.next_value?);
    (current != next).then(|| NvPending {
        name: p.name.clone(),
        current,
        next,
    })
}

impl Fault {
    fn new(f: &v1::Fault) -> Fault {
        let m = f.r#match.clone().unwrap_or_default();
        Fault {
            name: last(&f.name),
            action: fault::action(f),
            from: last(&m.from),
            to: last(&m.to),
            injected: f.injected,
            spent: f.spent,
        }
    }
}

impl VerbsFault {
    fn new(f: &v1::VerbsFault) -> VerbsFault {
        VerbsFault {
            name: last(&f.name),
            adapter: last(&f.adapter),
            matches: verbs_fault::matches(f),
            action: verbs_fault::action(f),
            injected: f.injected,
            state: verbs_fault::state(f),
        }
    }

    /// It acts, or will.
    pub fn is_live(&self) -> bool {
        matches!(self.state, "active" | "waiting")
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::look::tests::{counter, looks};
    use super::*;

    #[test]
    fn counters_become_shares_rates_and_what_grew() {
        let core = "cores/3";
        let drop = |reason, n| counter(Scope::AdapterDrop, "adapters/a", reason, reason, n);
        let [before, now] = looks(
            vec![
                counter(Scope::Core, core, "busy_rounds", "", 100),
                counter(Scope::Core, core, "panics", "", 1),
                drop("runt", 900),
                drop("wred", 1),
            ],
            vec![
                counter(Scope::Core, core, "busy_rounds", "", 130),
                counter(Scope::Core, core, "idle_rounds", "", 70),
                counter(Scope::Core, core, "sleeps", "", 8),
                counter(Scope::Core, core, "panics", "", 1),
                drop("runt", 900),
                drop("wred", 5),
                counter(Scope::Rdma, "adapters/a", "rx_write_requests", "", 9),
                counter(Scope::Rdma, "adapters/a", "out_of_sequence", "", 6),
            ],
        );
        let mut answers = Answers::default();
        answers.info.data_cores = vec![3];
        let status = Status::new(&before, &now, &answers);
        assert_eq!(status.interval_ms, 2000);
        let core = &status.cores[0];
        assert_eq!((core.cpu, core.busy_percent, core.sleeps_per_second), (3, 30, 4));
        assert_eq!((core.rounds_per_second, core.panics), (50, 1));
        let seen = |c: &Counted| (c.what.clone(), c.total, c.grew, c.per_second);
        let drops: Vec<_> = status.drops.iter().map(seen).collect();
        assert_eq!(
            drops,
            [("wred".to_owned(), 5, 4, 2), ("runt".to_owned(), 900, 0, 0)]
        );
        let rdma: Vec<_> = status.rdma_errors.iter().map(seen).collect();
        assert_eq!(rdma, [("out_of_sequence".to_owned(), 6, 6, 3)]);
    }

    #[test]
    fn events_are_summed_up_by_kind_and_object() {
        let event = |severity: Severity, kind: &str, adapter: &str, suppressed, seconds| v1::Event {
            severity: severity.into(),
            kind: kind.to_owned(),
            adapter: adapter.to_owned(),
            suppressed,
            time: Some(prost_types::Timestamp { seconds, nanos: 0 }),
            message: format!("at {seconds}"),
            ..v1::Event::default()
        };
        let sums = events(&[
            event(Severity::Warning, "ring_fault", "adapters/a", 0, 1),
            event(Severity::Error, "panic", "", 0, 2),
            event(Severity::Warning, "ring_fault", "adapters/a", 7, 3),
            event(Severity::Warning, "ring_fault", "adapters/b", 0, 4),
        ]);
        let seen = sums.iter().map(|e| {
            (
                e.kind.as_str(),
                e.owner.as_str(),
                e.count,
                e.last_message.as_str(),
            )
        });
        let wanted = [
            ("panic", "", 1, "at 2"),
            ("ring_fault", "b", 1, "at 4"),
            ("ring_fault", "a", 8, "at 3"),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), wanted);
    }
}
