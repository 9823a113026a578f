//! The page for boards that were made for node_exporter: RDMA functions by its names. The device is the adapter, its port
//! is 1. What is not counted is not there.

use std::fmt::Display;

use vnic_backend::AttachState;
use vnic_backend::counters::names::{self, Family, Reading, SETS, Source};

use super::Snapshot;
use super::page::Page;

/// State of an InfiniBand port (IBTA volume 1, 14.2.5.6, PortState): Down, Active.
const STATE: [u8; 2] = [1, 4];
/// PortPhysicalState: Polling, LinkUp.
const PHYSICAL_STATE: [u8; 2] = [2, 5];

fn device<T: Display>(adapter: &T) -> [(&'static str, &dyn Display); 2] {
    [("device", adapter), ("port", &1)]
}

/// The text for a snapshot.
pub fn render(snapshot: &Snapshot) -> String {
    let mut page = Page::with_capacity(snapshot.rdma.len() * 4096);
    page.gauge(
        "node_infiniband_info",
        "The adapter behind the device: always 1. The version is the daemon's.",
    );
    for (adapter, _) in &snapshot.rdma {
        let labels: [(&str, &dyn Display); 4] = [
            ("board_id", &"vnic"),
            ("device", adapter),
            ("firmware_version", &crate::VERSION),
            ("hca_type", &"vnic"),
        ];
        page.value(&labels, 1);
    }
    for (name, help, states) in [
        (
            "node_infiniband_state_id",
            "State of the port: 1 down, no driver runs; 4 active.",
            STATE,
        ),
        (
            "node_infiniband_physical_state_id",
            "Physical state of the port: 2 polling, no driver runs; 5 link up.",
            PHYSICAL_STATE,
        ),
    ] {
        page.gauge(name, help);
        for (adapter, status) in &snapshot.rdma {
            let up = usize::from(status.state == AttachState::Up);
            page.value(&device(adapter), states[up]);
        }
    }
    page.gauge(
        "node_infiniband_rate_bytes_per_second",
        "What the port says of its speed.",
    );
    for (adapter, _) in &snapshot.rdma {
        page.value(
            &device(adapter),
            u64::from(vnic_backend::RDMA_SPEED_MBPS) * 125_000,
        );
    }
    for set in SETS.iter().copied().filter(|s| s.family == Family::NodeExporter) {
        let values: Vec<_> = snapshot
            .counters
            .adapters
            .iter()
            .filter(|a| a.rdma.is_some())
            .map(|a| (&a.name, names::of_adapter(set, a)))
            .collect();
        for (i, def) in set.names.iter().enumerate() {
            let Source::Is(sum) = def.source else { continue };
            page.counter(def.name, &format!("In {}: {sum}.", def.unit));
            for (adapter, named) in &values {
                if let Some(Reading::Value(value)) = named.get(i).map(|n| n.reading) {
                    page.value(&device(adapter), value);
                }
            }
        }
    }
    page.finish()
}
