//! Metrics with node_exporter's names, for its dashboards: RDMA functions, and devices of ports. The device of an RDMA
//! function is the adapter, its port is 1. Values that are not counted have no line.

use std::fmt::Display;

use vnic_backend::counters::names::{self, Family, Reading, SETS, Source};
use vnic_backend::{AttachState, PortStatus};

use super::Snapshot;
use super::page::Page;
use super::render::speed_mbps;

/// State of an InfiniBand port (IBTA volume 1, 14.2.5.6, PortState): Down, Active.
const STATE: [u8; 2] = [1, 4];
/// PortPhysicalState of an InfiniBand port (IBTA volume 1, 14.2.5.6): Polling, LinkUp.
const PHYSICAL_STATE: [u8; 2] = [2, 5];

fn device<T: Display>(adapter: &T) -> [(&'static str, &dyn Display); 2] {
    [("device", adapter), ("port", &1)]
}

/// Counters of `/sys/class/net/*/statistics`, with node_exporter's names (collector netdev). Others are left out: their
/// names depend on the driver.
const NETDEV: [(&str, &str); 17] = [
    ("rx_bytes", "receive_bytes"),
    ("rx_packets", "receive_packets"),
    ("rx_errors", "receive_errs"),
    ("rx_dropped", "receive_drop"),
    ("rx_fifo_errors", "receive_fifo"),
    ("rx_frame_errors", "receive_frame"),
    ("rx_compressed", "receive_compressed"),
    ("multicast", "receive_multicast"),
    ("rx_nohandler", "receive_nohandler"),
    ("tx_bytes", "transmit_bytes"),
    ("tx_packets", "transmit_packets"),
    ("tx_errors", "transmit_errs"),
    ("tx_dropped", "transmit_drop"),
    ("tx_fifo_errors", "transmit_fifo"),
    ("collisions", "transmit_colls"),
    ("tx_carrier_errors", "transmit_carrier"),
    ("tx_compressed", "transmit_compressed"),
];

/// Metrics of the network devices of uplink ports.
fn netdev(page: &mut Page, ports: &[PortStatus]) {
    let known = || ports.iter().filter_map(|p| Some((p, p.device.as_ref()?)));
    page.gauge("node_network_up", "1 when the link of the port's device is up.");
    for (port, _) in known() {
        page.value(&[("device", &port.spec.kind.ifname())], u8::from(port.up));
    }
    page.gauge("node_network_mtu_bytes", "MTU of the port's device.");
    for (port, device) in known() {
        page.value(&[("device", &port.spec.kind.ifname())], device.mtu);
    }
    page.gauge(
        "node_network_speed_bytes",
        "Speed of the port in bytes a second: what is set for it, otherwise what its device says.",
    );
    for (port, _) in known() {
        if let Some(mbps) = speed_mbps(port) {
            page.value(&[("device", &port.spec.kind.ifname())], u64::from(mbps) * 125_000);
        }
    }
    for (kernel, name) in NETDEV {
        let help = format!("The kernel's counter {kernel} of the port's device.");
        page.counter(&format!("node_network_{name}_total"), &help);
        for (port, device) in known() {
            let value = device.statistics.iter().find(|(n, _)| n == kernel);
            if let Some((_, value)) = value {
                page.value(&[("device", &port.spec.kind.ifname())], value);
            }
        }
    }
}

/// Page of a snapshot.
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
            let Source::Is(_) = def.source else { continue };
            page.counter(def.name, &format!("In {}: {}.", def.unit, def.text));
            for (adapter, named) in &values {
                if let Some(Reading::Value(value)) = named.get(i).map(|n| n.reading) {
                    page.value(&device(adapter), value);
                }
            }
        }
    }
    netdev(&mut page, &snapshot.ports);
    page.finish()
}
