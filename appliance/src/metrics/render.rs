//! Page of Prometheus metrics. Each scrape renders it anew from the counters of the data path, so that removed resources
//! are gone from the next scrape.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vnic_backend::counters::{HistogramSample, Values};
use vnic_backend::{AdapterStatus, AttachState, Budget, FdbEntry, PortStatus, RdmaStatus, WORST};

use super::page::Page;
use super::process::{self, Process};
use super::teams::{self, TeamReading};
use super::{grpc, native};
use crate::access::{Meter, Reading};
use crate::control::{Control, clock_offset};
use crate::traces::{Sent, Tracer};
use crate::{logging, panics};

/// Values of one scrape.
// Wide: each field is a part of the page.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Adapters.
    pub adapters: Vec<AdapterStatus>,
    /// RDMA functions, with the adapter's name.
    pub rdma: Vec<(String, RdmaStatus)>,
    /// Uplink ports.
    pub ports: Vec<PortStatus>,
    /// Teams.
    pub teams: Vec<TeamReading>,
    /// Counters of the data path.
    pub counters: Values,
    /// Histograms of the data path.
    pub histograms: Vec<HistogramSample>,
    /// Address table of the switch.
    pub fdb: Vec<FdbEntry>,
    /// By how many ns the NIC's clock is ahead of the system's, and its frequency in parts per billion.
    pub clock: (i64, i32),
    /// Number of data cores.
    pub data_cores: usize,
    /// Start of the daemon.
    pub started: Option<SystemTime>,
    /// Revision of the registry.
    pub registry_revision: u64,
    /// Size of the state file in bytes.
    pub store_bytes: Option<u64>,
    /// Number of events since the start of the daemon, by severity.
    pub events: [(&'static str, u64); 3],
    /// Bugs of the daemon since its start.
    pub bugs: Bugs,
    /// Number of log lines that could not be written.
    pub log_lost: u64,
    /// Requests to the control interface.
    pub grpc: Vec<Reading>,
    /// Spans for the collector, if there is one.
    pub spans: Option<Sent>,
    /// What the process takes.
    pub process: Process,
}

/// Panics.
#[derive(Debug, Default)]
pub struct Bugs {
    /// Number of panics.
    pub panics: u64,
    /// Threads and tasks that the daemon needs and that ended by one.
    pub ended: BTreeSet<&'static str>,
}

impl Snapshot {
    /// Reads all values. May block.
    pub fn take(control: &Control, meter: &Meter) -> Snapshot {
        let clock = control.nic.clock();
        Snapshot {
            adapters: control.nic.adapters(),
            rdma: control.nic.rdma_functions(),
            ports: control.nic.ports(),
            teams: teams::take(control),
            counters: control.nic.counter_values(),
            histograms: control.nic.histograms(),
            fdb: control.nic.fdb(),
            clock: (clock_offset(&clock), clock.frequency),
            data_cores: control.settings.nic.data_cores.len(),
            started: Some(control.life.started.0),
            registry_revision: control.registry.revision(),
            store_bytes: std::fs::metadata(control.store.file()).ok().map(|m| m.len()),
            events: {
                let [info, warning, error] = control.hub.log.happened();
                [("info", info), ("warning", warning), ("error", error)]
            },
            bugs: Bugs {
                panics: panics::count(),
                ended: panics::ended(),
            },
            log_lost: logging::lost(),
            grpc: meter.read(),
            spans: meter.tracer().map(Tracer::sent),
            process: Process::take(),
        }
    }
}

/// Estimated bytes of the page for each adapter: a line has about 60 bytes.
const BYTES_AN_ADAPTER: usize = 16 << 10;

/// Page of a snapshot; `spent` returns the duration of the scrape so far.
pub fn render(snapshot: &Snapshot, spent: impl FnOnce() -> Duration) -> String {
    let mut page = Page::with_capacity((snapshot.adapters.len() + 2) * BYTES_AN_ADAPTER);
    native::counters(&mut page, &snapshot.counters);
    native::histograms(&mut page, &snapshot.histograms);
    states(&mut page, &snapshot.adapters, &snapshot.rdma);
    adapters(&mut page, &snapshot.adapters);
    rdma(&mut page, &snapshot.rdma);
    ports(&mut page, &snapshot.ports);
    teams::render(&mut page, &snapshot.teams);

    page.gauge("vnic_build_info", "The build that runs: always 1.");
    let revision = crate::GIT_REVISION.unwrap_or("unknown");
    page.value(&[("version", &crate::VERSION), ("revision", &revision)], 1);
    page.gauge(
        "vnic_clock_offset_seconds",
        "By how much the NIC's clock is ahead of the system's.",
    );
    page.value(&[], snapshot.clock.0 as f64 / 1e9);
    page.gauge(
        "vnic_clock_frequency_ratio",
        "How much faster the NIC's clock is than the machine's monotonic clock; 0: as fast.",
    );
    page.value(&[], f64::from(snapshot.clock.1) / 1e9);
    page.gauge("vnic_data_cores", "CPUs with a poll loop.");
    page.value(&[], snapshot.data_cores);
    page.gauge(
        "vnic_fdb_entries",
        "Entries of the switch's address table: static ones are adapters' own, learned ones age.",
    );
    let fixed = snapshot.fdb.iter().filter(|e| e.is_static).count();
    for (kind, n) in [("static", fixed), ("learned", snapshot.fdb.len() - fixed)] {
        page.value(&[("kind", &kind)], n);
    }
    if let Some(started) = snapshot.started {
        page.gauge(
            "vnic_start_time_seconds",
            "When the daemon started, in seconds since 1970.",
        );
        page.value(&[], since_1970(started));
    }
    page.gauge(
        "vnic_registry_revision",
        "Revision of the registry: each transaction that changes it adds 1.",
    );
    page.value(&[], snapshot.registry_revision);
    if let Some(bytes) = snapshot.store_bytes {
        page.gauge("vnic_store_size_bytes", "Size of the file of stored state.");
        page.value(&[], bytes);
    }
    page.counter(
        "vnic_events_total",
        "Events since the daemon started, by severity; those that the event log tells in sum count each.",
    );
    for (severity, n) in &snapshot.events {
        page.value(&[("severity", severity)], n);
    }
    bugs(&mut page, &snapshot.bugs);
    grpc::render(&mut page, &snapshot.grpc);
    if let Some(Sent { exported, lost }) = snapshot.spans {
        page.counter(
            "vnic_trace_spans_total",
            "Spans of traces: taken by the collector, or lost because it took none or too many waited.",
        );
        page.value(&[("outcome", &"exported")], exported);
        page.value(&[("outcome", &"lost")], lost);
    }
    process::render(&mut page, &snapshot.process, snapshot.started);
    page.counter(
        "vnic_log_lines_lost_total",
        "Log lines that could not be written: the reader of standard error is gone, or its disk is full.",
    );
    page.value(&[], snapshot.log_lost);
    page.gauge(
        "vnic_scrape_duration_seconds",
        "Time it took to read the data path and to make this page up to here.",
    );
    page.value(&[], spent().as_secs_f64());
    page.finish()
}

fn bugs(page: &mut Page, bugs: &Bugs) {
    page.counter(
        "vnic_panics_total",
        "Panics of the daemon's threads: each is a bug, and an event.",
    );
    page.value(&[], bugs.panics);
    page.gauge(
        "vnic_thread_up",
        "0 when a thread or task that the daemon needs has ended by a panic, otherwise 1.",
    );
    for thread in panics::NEEDED {
        page.value(&[("thread", &thread)], u8::from(!bugs.ended.contains(thread)));
    }
}

pub(super) fn since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Gauge with one value for each of `things`.
fn each<'a, T, V: Display>(
    page: &mut Page,
    (name, help): (&str, &str),
    things: impl IntoIterator<Item = &'a T>,
    label: impl Fn(&'a T) -> (&'static str, &'a str),
    value: impl Fn(&'a T) -> V,
) where
    T: 'a,
{
    page.gauge(name, help);
    for thing in things {
        let (key, text) = label(thing);
        page.value(&[(key, &text)], value(thing));
    }
}

/// Two gauges: used part and limit of a budget.
fn budget<'a, T: 'a>(
    page: &mut Page,
    (name, help): (&str, &str),
    things: &'a [T],
    label: impl Fn(&'a T) -> (&'static str, &'a str) + Copy,
    budget: impl Fn(&'a T) -> Budget + Copy,
) {
    each(page, (name, help), things, label, |thing| budget(thing).used);
    let (stem, unit) = match name.strip_suffix("_bytes") {
        Some(stem) => (stem, "_bytes"),
        None => (name, ""),
    };
    let limit = format!("{stem}_limit{unit}");
    let help = format!("The most there can be of {name}.");
    each(page, (&limit, &help), things, label, |thing| budget(thing).limit);
}

/// An adapter is as far as the further of its two functions, and has failed if one of them has.
fn states(page: &mut Page, adapters: &[AdapterStatus], functions: &[(String, RdmaStatus)]) {
    const ORDER: [AttachState; 4] = [
        AttachState::Detached,
        AttachState::Attached,
        AttachState::Up,
        AttachState::Failed,
    ];
    let rank = |state: AttachState| ORDER.iter().position(|s| *s == state);
    let rdma: HashMap<&str, AttachState> = functions.iter().map(|(name, f)| (&**name, f.state)).collect();
    let of = |a: &AdapterStatus| rank(a.state).max(rdma.get(&*a.spec.name).and_then(|s| rank(*s)));
    let reached: Vec<_> = adapters.iter().map(of).collect();
    page.gauge(
        "vnic_adapters",
        "Adapters by the state of their functions, Ethernet and RDMA: of the one that is further; failed if one has failed.",
    );
    for state in ORDER {
        let n = reached.iter().filter(|r| **r == rank(state)).count();
        page.value(&[("state", &state.name())], n);
    }
}

/// Gauges with one value for each of `things`.
macro_rules! gauges {
    ($page:ident, $things:ident, $label:ident, $thing:pat => $($name:literal, $help:literal: $value:expr;)+) => {
        $(each($page, ($name, $help), $things, $label, |$thing| $value);)+
    };
}

/// Budgets, as pairs of gauges.
macro_rules! budgets {
    ($page:ident, $things:ident, $label:ident, $thing:pat => $($name:literal, $help:literal: $value:expr;)+) => {
        $(budget($page, ($name, $help), $things, $label, |$thing| $value);)+
    };
}

fn adapters(page: &mut Page, adapters: &[AdapterStatus]) {
    fn label(a: &AdapterStatus) -> (&'static str, &str) {
        ("adapter", &a.spec.name)
    }
    gauges! { page, adapters, label, a =>
        "vnic_adapter_up", "1 when the guest's Ethernet driver runs and the link is up.": u8::from(a.state == AttachState::Up);
        "vnic_adapter_queue_pairs_enabled", "Queue pairs that the guest has enabled.": a.queue_pairs_enabled;
        "vnic_adapter_guest_memory_bytes", "Guest memory that is mapped for the adapter.": a.memory_bytes;
    }
    budgets! { page, adapters, label, a =>
        "vnic_adapter_regions", "Memory regions of the adapter's VMMs.": a.regions;
        "vnic_adapter_descriptors", "Descriptors that the daemon holds for the adapter's VMMs.": a.descriptors;
    }
    gauges! { page, adapters, label, a =>
        "vnic_adapter_state_change_time_seconds", "When the adapter's attach state last changed, in seconds since 1970.":
            since_1970(a.since);
        "vnic_adapter_dropless_mode", "1 while dropless mode is on.": u64::from(a.dropless.on);
        "vnic_adapter_dropless_waiting_frames",
            "Frames that wait in dropless mode for a receive buffer and hold up their senders.": a.dropless.waiting;
        "vnic_adapter_reserve_frames",
            "Frames that wait in the reserve for bursts (AsyncReceiveIndicate) for a receive buffer.": a.burst.frames;
        "vnic_adapter_reserve_frames_max", "The most frames that have waited in the reserve at a time.": a.burst.frames_max;
        "vnic_adapter_waiting_bytes", "Memory that frames take which wait for a receive buffer.": a.burst.bytes;
        "vnic_adapter_waiting_bytes_max", "The most memory that such frames have taken.": a.burst.bytes_max;
    }
    page.gauge("vnic_adapter_info", "Settings of the adapter: always 1.");
    for spec in adapters.iter().map(|a| &a.spec) {
        let mac = spec.macs.first().map(ToString::to_string).unwrap_or_default();
        let core = spec.data_core.map(|c| c.to_string()).unwrap_or_default();
        let labels: [(&str, &dyn Display); 5] = [
            ("adapter", &spec.name),
            ("mac", &mac),
            ("mtu", &spec.mtu),
            ("queue_pairs", &spec.queue_pairs),
            ("core", &core),
        ];
        page.value(&labels, 1);
    }
}

fn rdma(page: &mut Page, functions: &[(String, RdmaStatus)]) {
    fn label((adapter, _): &(String, RdmaStatus)) -> (&'static str, &str) {
        ("adapter", adapter)
    }
    gauges! { page, functions, label, (_, status) =>
        "vnic_rdma_up", "1 when a driver of the RDMA function runs.": u8::from(status.state == AttachState::Up);
        "vnic_rdma_memory_bytes", "Memory of the driver that is mapped for the RDMA function.": status.memory_bytes;
    }
    budgets! { page, functions, label, (_, status) =>
        "vnic_rdma_daemon_memory_bytes",
            "Memory of the daemon for what the driver of the RDMA function has made and posted, by the account from which its limits follow.":
            status.daemon_memory;
    }
    for (name, help, limits) in [
        (
            "vnic_rdma_objects",
            "Objects of the RDMA function in use, by type (as rdma resource); of type gid: filled entries of the table.",
            false,
        ),
        ("vnic_rdma_objects_limit", "The most there can be, by type.", true),
    ] {
        page.gauge(name, help);
        for (adapter, status) in functions {
            for row in &status.resources {
                let value = if limits { row.limit } else { row.used };
                page.value(&[("adapter", adapter), ("type", &row.name)], value);
            }
        }
    }
    queue_pair_errors(page, functions);
}

/// Errors of the queue pairs that have the most of them, of all adapters together: few, however many there are.
fn queue_pair_errors(page: &mut Page, functions: &[(String, RdmaStatus)]) {
    let of = |(adapter, status): &'_ (String, RdmaStatus)| {
        let worst = status.worst.iter();
        worst
            .map(|(qp, errors)| (adapter.clone(), *qp, *errors))
            .collect::<Vec<_>>()
    };
    let mut worst: Vec<_> = functions.iter().flat_map(of).collect();
    // (Stable: of those with equally many the adapter decides.)
    worst.sort_by_key(|(_, _, errors)| std::cmp::Reverse(errors.sum()));
    worst.truncate(WORST);
    page.counter(
        "vnic_rdma_queue_pair_errors_total",
        "Errors of the 10 queue pairs of all adapters that have the most, by the names of rdma statistic qp.",
    );
    for (adapter, qp, errors) in &worst {
        for (error, count) in errors.rows() {
            page.value(&[("adapter", adapter), ("qp", &qp.0), ("error", &error)], count);
        }
    }
}

/// Link speed of a port in Mbit/s.
pub fn speed_mbps(port: &PortStatus) -> Option<u32> {
    port.spec.speed_mbps.or(port.device.as_ref()?.speed_mbps)
}

fn ports(page: &mut Page, ports: &[PortStatus]) {
    each(
        page,
        ("vnic_port_up", "1 when the link of the uplink's device is up."),
        ports,
        |p| ("port", p.spec.name.as_str()),
        |p| u8::from(p.up),
    );
    page.gauge(
        "vnic_port_speed_bytes_per_second",
        "Speed of the uplink's link: what is set for it, otherwise what its device says.",
    );
    for (port, mbps) in ports.iter().filter_map(|p| Some((p, speed_mbps(p)?))) {
        page.value(&[("port", &port.spec.name)], u64::from(mbps) * 125_000);
    }
    page.gauge("vnic_port_info", "Settings of the uplink port: always 1.");
    for spec in ports.iter().map(|p| &p.spec) {
        let labels: [(&str, &dyn Display); 4] = [
            ("port", &spec.name),
            ("type", &spec.kind.name()),
            ("ifname", &spec.kind.ifname()),
            ("mtu", &spec.mtu),
        ];
        page.value(&labels, 1);
    }
}
