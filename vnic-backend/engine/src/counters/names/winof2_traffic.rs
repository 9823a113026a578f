//! Traffic by adapter.

use super::Source::{Is, NotModelled, Rate};
use super::Term::{Drop, Priority};
use super::reasons as r;
use super::terms::{self as t, is, rate, rdma};
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::PriorityCounter as C;

/// `WinOF-2 Port Traffic`.
pub static PORT_TRAFFIC: Set = Set {
    title: "WinOF-2 Port Traffic",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("BytesReceived", "bytes", Is(t::RX_BYTES)),
        counter("BytesSent", "bytes", Is(t::TX_BYTES)),
        counter("BytesTotal", "bytes", Is(t::BYTES)),
        gauge("KBytesReceivedPerSec", "KB/s", Rate(t::RX_BYTES.per(1000))),
        gauge("KBytesSentPerSec", "KB/s", Rate(t::TX_BYTES.per(1000))),
        gauge("KBytesTotalPerSec", "KB/s", Rate(t::BYTES.per(1000))),
        counter("PacketsReceived", "packets", Is(t::RX_PACKETS)),
        gauge("PacketsReceivedPerSec", "packets/s", Rate(t::RX_PACKETS)),
        counter("PacketsSent", "packets", Is(t::TX_PACKETS)),
        gauge("PacketsSentPerSec", "packets/s", Rate(t::TX_PACKETS)),
        counter("PacketsTotal", "packets", Is(t::PACKETS)),
        gauge("PacketsTotalPerSec", "packets/s", Rate(t::PACKETS)),
        counter("ControlPackets", "packets", r::NO_CONTROL),
        counter("PacketsOutboundDiscarded", "packets", is(t::OUTBOUND_DISCARDED)),
        counter("PacketsOutboundErrors", "packets", is(t::OUTBOUND_ERRORS)),
        counter("PacketsReceivedErrors", "packets", is(t::INBOUND_ERRORS)),
        counter("PacketsReceivedBadCRCError", "packets", r::NO_FCS),
        counter("PacketsReceivedSymbolError", "packets", r::NO_PHY),
        counter(
            "PacketsReceivedFrameLengthError",
            "packets",
            NotModelled("the length field of IEEE 802.3 frames is not looked at"),
        ),
        counter(
            "PacketsReceivedFrameTooLongError",
            "packets",
            is(&[Drop("receiver_mtu")]),
        ),
        counter(
            "PacketsReceivedFrameUndersizeError",
            "packets",
            NotModelled("frames between guests need no padding to 64 bytes"),
        ),
        counter("PacketsReceivedFragmentsError", "packets", r::NO_FCS),
        counter("PacketsReceivedJabbersError", "packets", r::NO_FCS),
        counter("PacketsReceivedUnsupportedOpcodeError", "packets", r::NO_CONTROL),
        counter(
            "PacketsReceivedDiscardedNoReceiveWQEs",
            "packets",
            is(&[Drop("no_rx_buffer")]),
        ),
        counter("RSCAborts", "events", r::NO_RSC),
        counter("RSCCoalescedEvents", "events", r::NO_RSC),
        counter("RSCCoalescedOctets", "bytes", r::NO_RSC),
        counter("RSCCoalescedPackets", "packets", r::NO_RSC),
        gauge("RSCAveragePacketSize", "bytes", r::NO_RSC),
    ],
};

/// `WinOF-2 Port QoS`.
pub static PORT_QOS: Set = Set {
    title: "WinOF-2 Port QoS",
    family: Family::WinOf2,
    instance: Instance::Priority,
    names: &[
        counter("BytesReceived", "bytes", Is(t::PRIORITY_RX_BYTES)),
        counter("BytesSent", "bytes", Is(t::PRIORITY_TX_BYTES)),
        counter("BytesTotal", "bytes", Is(t::PRIORITY_BYTES)),
        gauge(
            "KBytesReceivedPerSec",
            "KB/s",
            Rate(t::PRIORITY_RX_BYTES.per(1000)),
        ),
        gauge("KBytesSentPerSec", "KB/s", Rate(t::PRIORITY_TX_BYTES.per(1000))),
        gauge("KBytesTotalPerSec", "KB/s", Rate(t::PRIORITY_BYTES.per(1000))),
        counter("PacketsReceived", "packets", Is(t::PRIORITY_RX)),
        gauge("PacketsReceivedPerSec", "packets/s", Rate(t::PRIORITY_RX)),
        counter("PacketsSent", "packets", Is(t::PRIORITY_TX)),
        gauge("PacketsSentPerSec", "packets/s", Rate(t::PRIORITY_TX)),
        counter("PacketsTotal", "packets", Is(t::PRIORITY_FRAMES)),
        gauge("PacketsTotalPerSec", "packets/s", Rate(t::PRIORITY_FRAMES)),
        counter("RcvPauseFrames", "frames", is(&[Priority(C::RxPause)])),
        counter("RcvPauseDuration", "us", is(&[Priority(C::RxPauseUs)])),
        counter("SentPauseFrames", "frames", is(&[Priority(C::TxPause)])),
        counter("SentPauseDuration", "us", is(&[Priority(C::TxPauseUs)])),
    ],
};

/// `WinOF-2 VF Port Traffic`.
pub static VF_PORT_TRAFFIC: Set = Set {
    title: "WinOF-2 VF Port Traffic",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        gauge("BytesReceivedPerSec", "bytes/s", Rate(t::RX_BYTES)),
        gauge("BytesReceivedUnicastPerSec", "bytes/s", Rate(t::RX_UNICAST_BYTES)),
        gauge("PacketsReceivedUnicastPerSec", "packets/s", Rate(t::RX_UNICAST)),
        gauge(
            "BytesReceivedMulticastPerSec",
            "bytes/s",
            Rate(t::RX_MULTICAST_BYTES),
        ),
        gauge(
            "PacketsReceivedMulticastPerSec",
            "packets/s",
            Rate(t::RX_MULTICAST),
        ),
        gauge(
            "BytesReceivedBroadcastPerSec",
            "bytes/s",
            Rate(t::RX_BROADCAST_BYTES),
        ),
        gauge(
            "PacketsReceivedBroadcastPerSec",
            "packets/s",
            Rate(t::RX_BROADCAST),
        ),
        gauge(
            "RdmaBytesReceivedUnicastPerSec",
            "bytes/s",
            rate(&[rdma("rx_vport_rdma_unicast_bytes")]),
        ),
        gauge(
            "RdmaPacketsReceivedUnicastPerSec",
            "packets/s",
            rate(&[rdma("rx_vport_rdma_unicast_packets")]),
        ),
        gauge(
            "RdmaBytesReceivedMulticastPerSec",
            "bytes/s",
            rate(&[rdma("rx_vport_rdma_multicast_bytes")]),
        ),
        gauge(
            "RdmaPacketsReceivedMulticastPerSec",
            "packets/s",
            rate(&[rdma("rx_vport_rdma_multicast_packets")]),
        ),
        gauge("BytesSentPerSec", "bytes/s", Rate(t::TX_BYTES)),
        gauge("BytesSentUnicastPerSec", "bytes/s", Rate(t::TX_UNICAST_BYTES)),
        gauge("PacketsSentUnicastPerSec", "packets/s", Rate(t::TX_UNICAST)),
        gauge("BytesSentMulticastPerSec", "bytes/s", Rate(t::TX_MULTICAST_BYTES)),
        gauge("PacketsSentMulticastPerSec", "packets/s", Rate(t::TX_MULTICAST)),
        gauge("BytesSentBroadcastPerSec", "bytes/s", Rate(t::TX_BROADCAST_BYTES)),
        gauge("PacketsSentBroadcastPerSec", "packets/s", Rate(t::TX_BROADCAST)),
        gauge(
            "RdmaBytesSentUnicastPerSec",
            "bytes/s",
            rate(&[rdma("tx_vport_rdma_unicast_bytes")]),
        ),
        gauge(
            "RdmaPacketsSentUnicastPerSec",
            "packets/s",
            rate(&[rdma("tx_vport_rdma_unicast_packets")]),
        ),
        gauge(
            "RdmaBytesSentMulticastPerSec",
            "bytes/s",
            rate(&[rdma("tx_vport_rdma_multicast_bytes")]),
        ),
        gauge(
            "RdmaPacketsSentMulticastPerSec",
            "packets/s",
            rate(&[rdma("tx_vport_rdma_multicast_packets")]),
        ),
        counter("PacketsReceivedDiscarded", "packets", is(t::INBOUND_DISCARDED)),
        counter("PacketsReceivedErrors", "packets", is(t::INBOUND_ERRORS)),
        counter("PacketsOutboundDiscarded", "packets", is(t::OUTBOUND_DISCARDED)),
        counter("PacketsOutboundErrors", "packets", is(t::OUTBOUND_ERRORS)),
        counter("MacAntiSpoofingBytesDiscarded", "bytes", r::DROPPED_BYTES),
        counter(
            "MacAntiSpoofingPacketsDiscarded",
            "packets",
            is(&[Drop("spoofed_source")]),
        ),
        counter("VlanAntiSpoofingBytesDiscarded", "bytes", r::DROPPED_BYTES),
        counter(
            "VlanAntiSpoofingPacketsDiscarded",
            "packets",
            is(&[Drop("vlan_not_allowed")]),
        ),
        counter(
            "AllowedEthTypeAntiSpoofingBytesDiscarded",
            "bytes",
            NotModelled("there is no list of allowed EtherTypes"),
        ),
        counter(
            "AllowedEthTypeAntiSpoofingPacketsDiscarded",
            "packets",
            NotModelled("there is no list of allowed EtherTypes"),
        ),
        counter(
            "RoCE Restrict Packets Discarded",
            "packets",
            NotModelled("there is no RoCE restriction: an adapter has an RDMA function, or has none"),
        ),
        counter(
            "RoCE Restrict Bytes Discarded",
            "bytes",
            NotModelled("there is no RoCE restriction: an adapter has an RDMA function, or has none"),
        ),
    ],
};

/// `WinOF-2 VF Internal Traffic Counters`.
pub static VF_INTERNAL_TRAFFIC: Set = Set {
    title: "WinOF-2 VF Internal Traffic Counters",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("Rxoctets", "bytes", r::LOCAL),
        counter("Rxpackets", "packets", r::LOCAL),
        counter("Txoctets", "bytes", r::LOCAL),
        counter("Txpackets", "packets", r::LOCAL),
    ],
};

/// `WinOF-2 IB Port`.
pub static IB_PORT: Set = Set {
    title: "WinOF-2 IB Port",
    family: Family::WinOf2,
    instance: Instance::Adapter,
    names: &[
        counter("LinkDowned", "events", r::LINK_EVENTS),
        counter("LinkErrorRecoveryCounter", "events", r::NO_IB_LINK),
        counter("LocalLinkIntegrityErrors", "events", r::NO_IB_LINK),
        counter(
            "PortMultiCastReceivePackets",
            "packets",
            is(&[rdma("rx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "PortMultiCastXmitPackets",
            "packets",
            is(&[rdma("tx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "PortUnicastReceivePackets",
            "packets",
            is(&[rdma("rx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "PortUnicastXmitPackets",
            "packets",
            is(&[rdma("tx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "PortReceiveConstraintErrors",
            "packets",
            is(&[rdma("drop_pkey_mismatch")]),
        ),
        counter("PortXmitConstraintErrors", "packets", r::NO_IB_LINK),
        counter("PortReceiveData", "32-bit words", Is(t::RDMA_RX_BYTES.per(4))),
        counter("PortXmitData", "32-bit words", Is(t::RDMA_TX_BYTES.per(4))),
        counter(
            "PortReceiveErrors",
            "packets",
            is(&[rdma("rx_icrc_encapsulated"), rdma("drop_malformed")]),
        ),
        counter("PortReceivePackets", "packets", Is(t::RDMA_RX_PACKETS)),
        counter("PortXmitPackets", "packets", Is(t::RDMA_TX_PACKETS)),
        counter("PortReceiveRemotePhysicalErrors", "packets", r::NO_IB_LINK),
        counter("PortReceiveSwitchRelayErrors", "packets", r::NO_IB_LINK),
        counter("PortXmitDiscards", "packets", r::RDMA_DROPS),
        counter("PortXmitWait", "ticks", r::NO_IB_LINK),
        counter("SymbolError", "errors", r::NO_PHY),
        counter("VL15Dropped", "packets", r::NO_IB_LINK),
    ],
};
