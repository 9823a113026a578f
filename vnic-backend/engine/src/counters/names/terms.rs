//! What the values of several names are made from.

use super::Term::{Drop, Port, Priority, Queue};
use super::{Source, Sum, Term};
use crate::counters::PortCounter as P;
use crate::counters::PriorityCounter as C;
use crate::counters::QueueCounter as Q;
use crate::rdma;

/// The place of an RDMA counter; a name that there is not does not compile.
const fn place(name: &str) -> usize {
    let mut i = 0;
    while i < rdma::Counters::COUNT {
        if same(rdma::Counters::NAMES[i].as_bytes(), name.as_bytes()) {
            return i;
        }
        i += 1;
    }
    panic!("no RDMA counter has this name")
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// A counter of the RDMA function.
pub const fn rdma(name: &str) -> Term {
    Term::Rdma(place(name))
}

/// The sum of these.
pub const fn sum(plus: &'static [Term]) -> Sum {
    let minus = &[];
    Sum { plus, minus, per: 1 }
}

/// The sum of these as a value.
pub const fn is(plus: &'static [Term]) -> Source {
    Source::Is(sum(plus))
}

/// The growth of the sum of these.
pub const fn rate(plus: &'static [Term]) -> Source {
    Source::Rate(sum(plus))
}

impl Sum {
    /// Less these.
    const fn less(self, minus: &'static [Term]) -> Sum {
        Sum { minus, ..self }
    }

    /// In units of so many.
    pub const fn per(self, per: u64) -> Sum {
        Sum { per, ..self }
    }
}

// Ethernet and RDMA together: what a port of an adapter carries.
const RX_RDMA_PACKETS: [Term; 2] = [
    rdma("rx_vport_rdma_unicast_packets"),
    rdma("rx_vport_rdma_multicast_packets"),
];
const RX_RDMA_BYTES: [Term; 2] = [
    rdma("rx_vport_rdma_unicast_bytes"),
    rdma("rx_vport_rdma_multicast_bytes"),
];
const TX_RDMA_PACKETS: [Term; 2] = [
    rdma("tx_vport_rdma_unicast_packets"),
    rdma("tx_vport_rdma_multicast_packets"),
];
const TX_RDMA_BYTES: [Term; 2] = [
    rdma("tx_vport_rdma_unicast_bytes"),
    rdma("tx_vport_rdma_multicast_bytes"),
];

/// Packets received.
pub const RX_PACKETS: Sum = sum(&[Queue(Q::RxFrames), RX_RDMA_PACKETS[0], RX_RDMA_PACKETS[1]]);
/// Bytes of these.
pub const RX_BYTES: Sum = sum(&[Queue(Q::RxBytes), RX_RDMA_BYTES[0], RX_RDMA_BYTES[1]]);
/// Packets sent.
pub const TX_PACKETS: Sum = sum(&[Queue(Q::TxFrames), TX_RDMA_PACKETS[0], TX_RDMA_PACKETS[1]]);
/// Bytes of these.
pub const TX_BYTES: Sum = sum(&[Queue(Q::TxBytes), TX_RDMA_BYTES[0], TX_RDMA_BYTES[1]]);
/// Packets received and sent.
pub const PACKETS: Sum = sum(&[
    Queue(Q::RxFrames),
    Queue(Q::TxFrames),
    RX_RDMA_PACKETS[0],
    RX_RDMA_PACKETS[1],
    TX_RDMA_PACKETS[0],
    TX_RDMA_PACKETS[1],
]);
/// Bytes of these.
pub const BYTES: Sum = sum(&[
    Queue(Q::RxBytes),
    Queue(Q::TxBytes),
    RX_RDMA_BYTES[0],
    RX_RDMA_BYTES[1],
    TX_RDMA_BYTES[0],
    TX_RDMA_BYTES[1],
]);

// RDMA alone.
/// Packets the RDMA function received.
pub const RDMA_RX_PACKETS: Sum = sum(&RX_RDMA_PACKETS);
/// Bytes of these.
pub const RDMA_RX_BYTES: Sum = sum(&RX_RDMA_BYTES);
/// Packets the RDMA function sent.
pub const RDMA_TX_PACKETS: Sum = sum(&TX_RDMA_PACKETS);
/// Bytes of these.
pub const RDMA_TX_BYTES: Sum = sum(&TX_RDMA_BYTES);

// Ethernet alone, by kind of destination. The native counters of groups have broadcast among them.
/// Frames received for one receiver.
pub const RX_UNICAST: Sum = sum(&[Queue(Q::RxFrames)]).less(&[Queue(Q::RxMulticast)]);
/// Bytes of these.
pub const RX_UNICAST_BYTES: Sum = sum(&[Queue(Q::RxBytes)]).less(&[Queue(Q::RxMulticastBytes)]);
/// Frames received for a group.
pub const RX_MULTICAST: Sum = sum(&[Queue(Q::RxMulticast)]).less(&[Queue(Q::RxBroadcast)]);
/// Bytes of these.
pub const RX_MULTICAST_BYTES: Sum = sum(&[Queue(Q::RxMulticastBytes)]).less(&[Queue(Q::RxBroadcastBytes)]);
/// Frames received for all.
pub const RX_BROADCAST: Sum = sum(&[Queue(Q::RxBroadcast)]);
/// Bytes of these.
pub const RX_BROADCAST_BYTES: Sum = sum(&[Queue(Q::RxBroadcastBytes)]);
/// Frames sent to one receiver.
pub const TX_UNICAST: Sum = sum(&[Queue(Q::TxFrames)]).less(&[Queue(Q::TxMulticast)]);
/// Bytes of these.
pub const TX_UNICAST_BYTES: Sum = sum(&[Queue(Q::TxBytes)]).less(&[Queue(Q::TxMulticastBytes)]);
/// Frames sent to a group.
pub const TX_MULTICAST: Sum = sum(&[Queue(Q::TxMulticast)]).less(&[Queue(Q::TxBroadcast)]);
/// Bytes of these.
pub const TX_MULTICAST_BYTES: Sum = sum(&[Queue(Q::TxMulticastBytes)]).less(&[Queue(Q::TxBroadcastBytes)]);
/// Frames sent to all.
pub const TX_BROADCAST: Sum = sum(&[Queue(Q::TxBroadcast)]);
/// Bytes of these.
pub const TX_BROADCAST_BYTES: Sum = sum(&[Queue(Q::TxBroadcastBytes)]);

// Drops of an adapter. Each reason is in one of these four; the first two are of frames that its guest sent.
/// Nothing is wrong with the frame, it is just not wanted or not possible.
pub const OUTBOUND_DISCARDED: &[Term] = &[
    Drop("spoofed_source"),
    Drop("spoofed_address"),
    Drop("vlan_not_allowed"),
    Drop("hairpin"),
    Drop("no_destination"),
    Drop("receiver_down"),
    Drop("port_transmit"),
    Drop("core_exchange_full"),
    Drop("send_queue_full"),
    Drop("mac_control"),
];
/// The frame is wrong.
pub const OUTBOUND_ERRORS: &[Term] = &[
    Drop("runt"),
    Drop("mtu_exceeded"),
    Drop("malformed_offload"),
    Drop("invalid_source"),
];
/// The guest was not ready.
pub const INBOUND_DISCARDED: &[Term] = &[
    Drop("no_rx_buffer"),
    Drop("rx_ring_broken"),
    Drop("fault_injected"),
    Drop("egress_full"),
    Drop("lossless_overflow"),
    Drop("head_of_queue"),
    Drop("class_stalled"),
    Drop("congestion_hint"),
    Drop("wred"),
    Drop("port_receive"),
    Drop("bond_inactive"),
];
/// The frame does not fit.
pub const INBOUND_ERRORS: &[Term] = &[Drop("rx_buffer_too_small"), Drop("receiver_mtu")];

/// Batches of frames that a guest was given.
pub const RX_BATCHES: Sum = sum(&[Queue(Q::RxNotifications), Queue(Q::RxNotificationsSuppressed)]);

// Of a priority.
/// Bytes received.
pub const PRIORITY_RX_BYTES: Sum = sum(&[Priority(C::RxBytes)]);
/// Bytes sent.
pub const PRIORITY_TX_BYTES: Sum = sum(&[Priority(C::TxBytes)]);
/// Both.
pub const PRIORITY_BYTES: Sum = sum(&[Priority(C::RxBytes), Priority(C::TxBytes)]);
/// Frames received.
pub const PRIORITY_RX: Sum = sum(&[Priority(C::RxFrames)]);
/// Frames sent.
pub const PRIORITY_TX: Sum = sum(&[Priority(C::TxFrames)]);
/// Both.
pub const PRIORITY_FRAMES: Sum = sum(&[Priority(C::RxFrames), Priority(C::TxFrames)]);

// Of an uplink.
/// Frames from the wire.
pub const UPLINK_RX: Source = is(&[Port(P::RxFrames)]);
/// Bytes of these.
pub const UPLINK_RX_BYTES: Source = is(&[Port(P::RxBytes)]);
/// Frames to the wire.
pub const UPLINK_TX: Source = is(&[Port(P::TxFrames)]);
/// Bytes of these.
pub const UPLINK_TX_BYTES: Source = is(&[Port(P::TxBytes)]);

// Congestion control: of the RDMA function, and of the guest's own RoCE over Ethernet.
/// Packets received with a congestion mark.
pub const ECN_MARKED: Sum = sum(&[rdma("np_ecn_marked_roce_packets"), Queue(Q::RxRoceMarked)]);
/// Marked packets whose senders are notified, at once or together with others.
pub const ECN_HANDLED: Sum = sum(&[rdma("np_ecn_marked_roce_packets")]).less(&[rdma("np_ecn_ignored")]);
/// Notifications sent.
pub const CNP_SENT: Sum = sum(&[rdma("np_cnp_sent"), Queue(Q::TxCnpSent)]);
/// Notifications that slowed a flow down.
pub const CNP_HANDLED: Sum = sum(&[rdma("rp_cnp_handled"), Queue(Q::RxCnpHandled)]);
/// Notifications that changed nothing.
pub const CNP_IGNORED: Sum = sum(&[rdma("rp_cnp_ignored"), Queue(Q::RxCnpIgnored)]);
/// Notification packets received. (Slow restarts are among those that were handled.)
pub const CNP_RECEIVED: Sum = sum(&[
    rdma("rp_cnp_handled"),
    rdma("rp_cnp_ignored"),
    Queue(Q::RxCnpHandled),
    Queue(Q::RxCnpIgnored),
])
.less(&[rdma("roce_slow_restart_cnps")]);
/// Queue pairs that are limited.
pub const FLOWS: Sum = sum(&[rdma("rp_flows_started")]).less(&[rdma("rp_flows_ended")]);
