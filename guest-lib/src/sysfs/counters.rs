//! Counters of the port. What the device counts has the names of mlx5's `hw_counters`; the kernel's `counters` are made of it.

use super::{Now, put, value};
use crate::Counter;

/// Counters of a port (`counters`), and those of the device whose sum they are.
const PORT: &[(&str, &[&str])] = &[
    (
        "port_rcv_packets",
        &["rx_vport_rdma_unicast_packets", "rx_vport_rdma_multicast_packets"],
    ),
    (
        "port_xmit_packets",
        &["tx_vport_rdma_unicast_packets", "tx_vport_rdma_multicast_packets"],
    ),
    ("unicast_rcv_packets", &["rx_vport_rdma_unicast_packets"]),
    ("unicast_xmit_packets", &["tx_vport_rdma_unicast_packets"]),
    ("multicast_rcv_packets", &["rx_vport_rdma_multicast_packets"]),
    ("multicast_xmit_packets", &["tx_vport_rdma_multicast_packets"]),
    ("port_rcv_errors", &["rx_icrc_encapsulated", "drop_malformed"]),
    ("port_rcv_constraint_errors", &["drop_pkey_mismatch"]),
];
/// The same, in words of 32 bits.
const WORDS: &[(&str, &[&str])] = &[
    (
        "port_rcv_data",
        &["rx_vport_rdma_unicast_bytes", "rx_vport_rdma_multicast_bytes"],
    ),
    (
        "port_xmit_data",
        &["tx_vport_rdma_unicast_bytes", "tx_vport_rdma_multicast_bytes"],
    ),
];
/// What happens on links of InfiniBand and in the electronics of a port only: never. (`link_downed` and `port_xmit_discards` are missing:
/// the daemon counts them where the device's own counters are not.)
const NEVER: &[&str] = &[
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_wait",
    "symbol_error",
];

/// Counters of messages of communication management, by attribute: a folder each.
const MESSAGES: [&str; 4] = ["cm_rx_duplicates", "cm_rx_msgs", "cm_tx_msgs", "cm_tx_retries"];

/// Where the file of a counter of the port is, below the port.
fn file(name: &str) -> String {
    let of = |group: &str| {
        name.strip_prefix(group)?
            .strip_prefix('_')
            .map(|rest| format!("{group}/{rest}"))
    };
    let messages = MESSAGES.into_iter().find_map(of);
    messages.unwrap_or_else(|| format!("hw_counters/{name}"))
}

/// Names that are of the device as a whole, and of no port's `hw_counters`.
fn of_the_device(name: &str) -> bool {
    name.contains("_vport_")
}

pub(super) fn describe(port: &str, counters: &[Counter], now: &mut Now) {
    for counter in counters.iter().filter(|c| !of_the_device(&c.name)) {
        put(
            now,
            format!("{port}/{}", file(&counter.name)),
            &counter.value.to_string(),
        );
    }
    let sum = |names: &[&str]| -> u64 { names.iter().map(|name| value(counters, name)).sum() };
    let port_counters = PORT
        .iter()
        .map(|(name, of)| (*name, sum(of)))
        .chain(WORDS.iter().map(|(name, of)| (*name, sum(of) / 4)))
        .chain(NEVER.iter().map(|name| (*name, 0)));
    for (name, value) in port_counters {
        put(now, format!("{port}/counters/{name}"), &value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_communication_management_are_where_the_kernel_has_them() {
        assert_eq!(file("cm_tx_msgs_sidr_req"), "cm_tx_msgs/sidr_req");
        assert_eq!(file("cm_rx_duplicates_rep"), "cm_rx_duplicates/rep");
        for name in ["cm_malformed", "cm_tx_msgs", "out_of_buffer"] {
            assert_eq!(file(name), format!("hw_counters/{name}"));
        }
    }
}
