//! The text that Prometheus reads. Each scrape fills a recorder of its own from what the data path counts: the
//! data path knows nothing of it, and what was removed is gone from the next scrape.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::PrometheusBuilder;
use vnic_backend::counters::{self, Scope};
use vnic_backend::{
    AdapterStatus, AttachState, DropReason, FdbEntry, PortKind, PortStatus, RdmaStatus, Sample,
};

use super::naming;
use crate::daemon::Context;

/// Everything one scrape shows.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Adapters.
    pub adapters: Vec<AdapterStatus>,
    /// RDMA functions, by name of the adapter.
    pub rdma: Vec<(String, RdmaStatus)>,
    /// Uplink ports.
    pub ports: Vec<PortStatus>,
    /// Counters of the data path.
    pub samples: Vec<Sample>,
    /// The switch's address table.
    pub fdb: Vec<FdbEntry>,
    /// CPUs with a poll loop.
    pub data_cores: usize,
    /// When the daemon started.
    pub started: Option<SystemTime>,
}

impl Snapshot {
    /// Reads everything. May block.
    pub fn take(context: &Context) -> Snapshot {
        let adapters = context.nic.adapters();
        let rdma = adapters.iter().map(|a| a.spec.name.clone());
        Snapshot {
            // One that has been removed meanwhile has none.
            rdma: rdma
                .filter_map(|name| Some((context.nic.rdma(&name).ok()??, name)))
                .map(|(status, name)| (name, status))
                .collect(),
            adapters,
            ports: context.nic.ports(),
            samples: context.nic.counters(),
            fdb: context.nic.fdb(),
            data_cores: context.settings.nic.data_cores.len(),
            started: Some(context.started.0),
        }
    }
}

const METADATA: Metadata<'static> = Metadata::new("vnic", Level::INFO, None);

/// Fills one recorder.
struct Page(metrics_exporter_prometheus::PrometheusRecorder);

impl Page {
    fn key(name: impl Into<SharedString>, labels: Vec<(&'static str, String)>) -> Key {
        let labels: Vec<Label> = labels.into_iter().map(|(k, v)| Label::new(k, v)).collect();
        Key::from_parts(KeyName::from(name.into()), labels)
    }

    fn counter(&self, sample: &Sample) {
        let key = Page::key(naming::metric(sample.def), naming::labels(sample));
        self.0.register_counter(&key, &METADATA).absolute(sample.value);
    }

    fn help(&self, name: &'static str, help: &'static str) {
        self.0
            .describe_gauge(KeyName::from(name), None, SharedString::const_str(help));
    }

    fn gauge(&self, name: &'static str, labels: Vec<(&'static str, String)>, value: f64) {
        self.0
            .register_gauge(&Page::key(name, labels), &METADATA)
            .set(value);
    }
}

// Counts and sizes are far below 2^53: exact.
#[allow(clippy::cast_precision_loss)]
fn number(n: u64) -> f64 {
    n as f64
}

fn count(n: usize) -> f64 {
    number(u64::try_from(n).unwrap_or(u64::MAX))
}

fn yes(b: bool) -> f64 {
    if b { 1.0 } else { 0.0 }
}

/// The text for a snapshot; `spent` tells how long it has taken so far.
pub fn render(snapshot: &Snapshot, spent: impl FnOnce() -> Duration) -> String {
    let page = Page(PrometheusBuilder::new().build_recorder());
    for def in counters::all() {
        page.0.describe_counter(
            KeyName::from(naming::metric(def)),
            None,
            SharedString::const_str(def.help),
        );
    }
    for sample in &snapshot.samples {
        page.counter(sample);
    }
    drops_that_never_happened(&page, snapshot);
    adapters(&page, &snapshot.adapters);
    rdma(&page, &snapshot.rdma);
    ports(&page, &snapshot.ports);

    page.help("vnic_build_info", "The build that runs: always 1.");
    page.gauge(
        "vnic_build_info",
        vec![
            ("version", crate::VERSION.to_owned()),
            ("revision", crate::GIT_REVISION.unwrap_or("unknown").to_owned()),
        ],
        1.0,
    );
    page.help("vnic_data_cores", "CPUs with a poll loop.");
    page.gauge("vnic_data_cores", vec![], count(snapshot.data_cores));
    page.help(
        "vnic_fdb_entries",
        "Entries of the switch's address table: static ones are adapters' own, learned ones age.",
    );
    let fixed = snapshot.fdb.iter().filter(|e| e.is_static).count();
    for (kind, n) in [("static", fixed), ("learned", snapshot.fdb.len() - fixed)] {
        page.gauge("vnic_fdb_entries", vec![("kind", kind.to_owned())], count(n));
    }
    if let Some(started) = snapshot.started {
        page.help(
            "vnic_start_time_seconds",
            "When the daemon started, in seconds since 1970.",
        );
        let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        page.gauge("vnic_start_time_seconds", vec![], since.as_secs_f64());
    }
    page.help(
        "vnic_scrape_duration_seconds",
        "Time it took to read the data path and to make this page up to here.",
    );
    page.gauge("vnic_scrape_duration_seconds", vec![], spent().as_secs_f64());
    page.0.handle().render()
}

/// The set of reasons is bounded: each shows from the start, so that rates and alerts have a zero to begin with.
fn drops_that_never_happened(page: &Page, snapshot: &Snapshot) {
    let seen: BTreeSet<(bool, &str, &str)> = snapshot
        .samples
        .iter()
        .filter_map(|s| Some((s.def.scope == Scope::AdapterDrop, s.owner.as_str(), s.reason?)))
        .collect();
    let adapters = snapshot
        .adapters
        .iter()
        .map(|a| (true, &a.spec.name, &counters::ADAPTER_DROP));
    let ports = snapshot
        .ports
        .iter()
        .map(|p| (false, &p.spec.name, &counters::PORT_DROP));
    for (is_adapter, owner, def) in adapters.chain(ports) {
        for reason in DropReason::ALL {
            if !seen.contains(&(is_adapter, owner.as_str(), reason.name())) {
                page.counter(&Sample {
                    def,
                    owner: owner.clone(),
                    queue: None,
                    reason: Some(reason.name()),
                    value: 0,
                });
            }
        }
    }
}

fn adapters(page: &Page, adapters: &[AdapterStatus]) {
    page.help("vnic_adapters", "Adapters by state.");
    for state in [
        AttachState::Detached,
        AttachState::Attached,
        AttachState::Up,
        AttachState::Failed,
    ] {
        let n = adapters.iter().filter(|a| a.state == state).count();
        page.gauge(
            "vnic_adapters",
            vec![("state", state.name().to_owned())],
            count(n),
        );
    }
    page.help(
        "vnic_adapter_up",
        "1 when the guest's driver runs and the link is up.",
    );
    page.help("vnic_adapter_info", "Settings of the adapter: always 1.");
    page.help(
        "vnic_adapter_queue_pairs_enabled",
        "Queue pairs that the guest has enabled.",
    );
    page.help(
        "vnic_adapter_guest_memory_bytes",
        "Guest memory that is mapped for the adapter.",
    );
    page.help(
        "vnic_adapter_state_change_time_seconds",
        "When the adapter's attach state last changed, in seconds since 1970.",
    );
    for adapter in adapters {
        let spec = &adapter.spec;
        let label = || vec![("adapter", spec.name.clone())];
        page.gauge("vnic_adapter_up", label(), yes(adapter.state == AttachState::Up));
        page.gauge(
            "vnic_adapter_queue_pairs_enabled",
            label(),
            f64::from(adapter.queue_pairs_enabled),
        );
        page.gauge(
            "vnic_adapter_guest_memory_bytes",
            label(),
            number(adapter.memory_bytes),
        );
        let since = adapter.since.duration_since(UNIX_EPOCH).unwrap_or_default();
        page.gauge(
            "vnic_adapter_state_change_time_seconds",
            label(),
            since.as_secs_f64(),
        );
        let mac = spec.macs.first().map(ToString::to_string).unwrap_or_default();
        let core = spec.data_core.map(|c| c.to_string()).unwrap_or_default();
        let mut info = label();
        info.extend([
            ("mac", mac),
            ("mtu", spec.mtu.to_string()),
            ("queue_pairs", spec.queue_pairs.to_string()),
            ("core", core),
        ]);
        page.gauge("vnic_adapter_info", info, 1.0);
    }
}

fn rdma(page: &Page, functions: &[(String, RdmaStatus)]) {
    page.help("vnic_rdma_up", "1 when a driver of the RDMA function runs.");
    page.help(
        "vnic_rdma_memory_bytes",
        "Memory of the driver that is mapped for the RDMA function.",
    );
    page.help(
        "vnic_rdma_objects",
        "Objects of the RDMA function in use, by type (as rdma resource); of type gid: filled entries of the table.",
    );
    page.help("vnic_rdma_objects_limit", "The most there can be, by type.");
    for (adapter, status) in functions {
        let label = || vec![("adapter", adapter.clone())];
        page.gauge("vnic_rdma_up", label(), yes(status.state == AttachState::Up));
        page.gauge("vnic_rdma_memory_bytes", label(), number(status.memory_bytes));
        for row in &status.resources {
            let label = || {
                let mut labels = label();
                labels.push(("type", row.name.to_owned()));
                labels
            };
            page.gauge("vnic_rdma_objects", label(), f64::from(row.used));
            page.gauge("vnic_rdma_objects_limit", label(), f64::from(row.limit));
        }
    }
}

fn ports(page: &Page, ports: &[PortStatus]) {
    page.help("vnic_port_up", "1 when the link of the uplink's device is up.");
    page.help("vnic_port_info", "Settings of the uplink port: always 1.");
    for port in ports {
        let spec = &port.spec;
        let label = || vec![("port", spec.name.clone())];
        page.gauge("vnic_port_up", label(), yes(port.up));
        let PortKind::Tap { ifname } = &spec.kind;
        let mut info = label();
        info.extend([
            ("type", "tap".to_owned()),
            ("ifname", ifname.clone()),
            ("mtu", spec.mtu.to_string()),
        ]);
        page.gauge("vnic_port_info", info, 1.0);
    }
}
