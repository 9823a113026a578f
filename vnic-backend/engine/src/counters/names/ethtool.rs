//! Linux: `ethtool -S`.

use super::Source::{Is, NotModelled};
use super::Term::{Drop, Link, Priority, Queue};
use super::reasons as r;
use super::terms::{self as t, is, rdma};
use super::{Family, Instance, Set, counter, gauge};
use crate::counters::{LinkCounter as L, PriorityCounter as C, QueueCounter as Q};

/// `Linux ethtool ring/netdev (mlx5)`.
pub static RING: Set = Set {
    title: "Linux ethtool ring/netdev (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Adapter,
    names: &[
        counter("rx_packets", "packets", is(&[Queue(Q::RxFrames)])),
        counter("rx_bytes", "bytes", is(&[Queue(Q::RxBytes)])),
        counter("tx_packets", "packets", is(&[Queue(Q::TxFrames)])),
        counter("tx_bytes", "bytes", is(&[Queue(Q::TxBytes)])),
        counter("rx_out_of_buffer", "events", is(&[Drop("no_rx_buffer")])),
        counter("rx[i]_packets", "packets", is(&[Queue(Q::RxFrames)])),
        counter("rx[i]_bytes", "bytes", is(&[Queue(Q::RxBytes)])),
        counter("tx[i]_packets", "packets", is(&[Queue(Q::TxFrames)])),
        counter("tx[i]_bytes", "bytes", is(&[Queue(Q::TxBytes)])),
        counter("tx[i]_recover", "events", r::MLX5_QUEUE),
        counter("tx[i]_cqes", "events", r::MLX5_QUEUE),
        counter("tx[i]_cqe_err", "errors", r::MLX5_QUEUE),
        counter("tx[i]_tso_packets / _bytes", "packets/bytes", r::OFFLOAD),
        counter("tx[i]_tso_inner_packets / _bytes", "packets/bytes", r::NO_TUNNEL),
        counter(
            "rx[i]_gro_packets / _bytes / _skbs / _large_hds",
            "packets",
            r::NO_RSC,
        ),
        counter("rx[i]_lro_packets / _bytes", "packets/bytes", r::NO_RSC),
        counter("rx[i]_ecn_mark", "packets", r::MARKED),
        counter(
            "rx_oversize_pkts_buffer",
            "packets",
            is(&[Drop("rx_buffer_too_small")]),
        ),
        counter("rx_oversize_pkts_sw_drop", "packets", is(&[Drop("receiver_mtu")])),
        counter(
            "rx[i]_csum_unnecessary[_inner] / _none / _complete[_tail[_slow]]",
            "packets",
            r::OFFLOAD,
        ),
        counter("tx[i]_csum_partial[_inner] / _none", "packets", r::OFFLOAD),
        counter("tx[i]_stopped / tx_queue_stopped", "events", r::DRIVER),
        counter("tx[i]_wake / tx_queue_wake", "events", r::DRIVER),
        counter("tx[i]_dropped / tx_queue_dropped", "packets", r::DRIVER),
        counter("tx[i]_nop", "WQEs", r::MLX5_QUEUE),
        counter("tx[i]_timestamps", "packets", r::DRIVER),
        counter("tx[i]_added_vlan_packets", "packets", r::TAGS),
        counter("rx[i]_removed_vlan_packets", "packets", r::TAGS),
        counter("rx[i]_wqe_err", "errors", r::MLX5_QUEUE),
        counter(
            "rx[i]_mpwqe_frag / _filler_cqes / _filler_strides",
            "events",
            r::MLX5_QUEUE,
        ),
        counter("tx[i]_mpwqe_blks / _pkts", "events", r::MLX5_QUEUE),
        counter("rx[i]_cqe_compress_blks / _pkts", "events", r::MLX5_QUEUE),
        counter(
            "rx[i]_arfs_add / _request_in / _request_out / _expired / _err",
            "rules",
            r::DRIVER,
        ),
        counter("rx[i]_recover", "events", r::MLX5_QUEUE),
        counter("tx[i]_xmit_more", "packets", r::DRIVER),
        counter(
            "ch[i]_poll / _arm / _aff_change / _events / _eq_rearm / _force_irq",
            "events",
            r::DRIVER,
        ),
        counter("rx[i]_congst_umr", "events", r::MLX5_QUEUE),
        counter("rx_pp_* (10)", "pages", r::DRIVER),
        counter("rx[i]_xdp_* / tx[i]_xdp_* / tx[i]_xsk_*", "packets", r::DRIVER),
        counter("tx_tls_* / rx_tls_* / [rt]x[i]_tls_*", "packets", r::DRIVER),
        counter(
            "ptp_cq[i]_abort / _abort_abs_diff_ns / _late_cqe / _lost_cqe",
            "events",
            r::DRIVER,
        ),
        counter("rx[i]_buff_alloc_err", "errors", r::DRIVER),
    ],
};

/// `Linux ethtool vport (mlx5)`.
pub static VPORT: Set = Set {
    title: "Linux ethtool vport (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Adapter,
    names: &[
        counter("rx_vport_unicast_packets", "packets", Is(t::RX_UNICAST)),
        counter("rx_vport_unicast_bytes", "bytes", Is(t::RX_UNICAST_BYTES)),
        counter("rx_vport_multicast_packets", "packets", Is(t::RX_MULTICAST)),
        counter("rx_vport_multicast_bytes", "bytes", Is(t::RX_MULTICAST_BYTES)),
        counter("rx_vport_broadcast_packets", "packets", Is(t::RX_BROADCAST)),
        counter("rx_vport_broadcast_bytes", "bytes", Is(t::RX_BROADCAST_BYTES)),
        counter(
            "rx_vport_rdma_unicast_packets",
            "packets",
            is(&[rdma("rx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "rx_vport_rdma_unicast_bytes",
            "bytes",
            is(&[rdma("rx_vport_rdma_unicast_bytes")]),
        ),
        counter(
            "rx_vport_rdma_multicast_packets",
            "packets",
            is(&[rdma("rx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "rx_vport_rdma_multicast_bytes",
            "bytes",
            is(&[rdma("rx_vport_rdma_multicast_bytes")]),
        ),
        counter("tx_vport_unicast_packets", "packets", Is(t::TX_UNICAST)),
        counter("tx_vport_unicast_bytes", "bytes", Is(t::TX_UNICAST_BYTES)),
        counter("tx_vport_multicast_packets", "packets", Is(t::TX_MULTICAST)),
        counter("tx_vport_multicast_bytes", "bytes", Is(t::TX_MULTICAST_BYTES)),
        counter("tx_vport_broadcast_packets", "packets", Is(t::TX_BROADCAST)),
        counter("tx_vport_broadcast_bytes", "bytes", Is(t::TX_BROADCAST_BYTES)),
        counter(
            "tx_vport_rdma_unicast_packets",
            "packets",
            is(&[rdma("tx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "tx_vport_rdma_unicast_bytes",
            "bytes",
            is(&[rdma("tx_vport_rdma_unicast_bytes")]),
        ),
        counter(
            "tx_vport_rdma_multicast_packets",
            "packets",
            is(&[rdma("tx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "tx_vport_rdma_multicast_bytes",
            "bytes",
            is(&[rdma("tx_vport_rdma_multicast_bytes")]),
        ),
        counter("vport_loopback_packets", "packets", r::LOCAL),
        counter("vport_loopback_bytes", "bytes", r::LOCAL),
        counter("rx_steer_missed_packets", "packets", is(&[rdma("drop_bad_gid")])),
        counter("dev_internal_queue_oob", "packets", r::NO_FIRMWARE),
        counter(
            "rx_packets / rx_bytes / tx_packets / tx_bytes (representor)",
            "",
            r::NO_REPRESENTOR,
        ),
    ],
};

/// `Linux ethtool physical port (mlx5)`.
pub static PHYSICAL_PORT: Set = Set {
    title: "Linux ethtool physical port (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Port,
    names: &[
        counter("rx_packets_phy", "packets", t::UPLINK_RX),
        counter("tx_packets_phy", "packets", t::UPLINK_TX),
        counter("rx_bytes_phy", "bytes", t::UPLINK_RX_BYTES),
        counter("tx_bytes_phy", "bytes", t::UPLINK_TX_BYTES),
        counter("rx_multicast_phy", "packets", r::NOT_AT_UPLINK),
        counter("tx_multicast_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_broadcast_phy", "packets", r::NOT_AT_UPLINK),
        counter("tx_broadcast_phy", "packets", r::NOT_AT_UPLINK),
        counter(
            "rx_crc_errors_phy",
            "packets",
            NotModelled("the uplink's device drops them, and counts them itself"),
        ),
        counter(
            "rx_in_range_len_errors_phy",
            "packets",
            NotModelled("the length field of IEEE 802.3 frames is not looked at"),
        ),
        counter(
            "rx_out_of_range_len_phy",
            "packets",
            NotModelled("the length field of IEEE 802.3 frames is not looked at"),
        ),
        counter("rx_oversize_pkts_phy", "packets", is(&[Drop("mtu_exceeded")])),
        counter("rx_symbol_err_phy", "packets", r::NO_PHY),
        counter("rx_mac_control_phy", "packets", is(&[Link(L::ControlFrames)])),
        counter("tx_mac_control_phy", "packets", r::SENT_CONTROL),
        counter("rx_pause_ctrl_phy", "packets", is(&[Link(L::RxPause)])),
        counter("tx_pause_ctrl_phy", "packets", is(&[Link(L::TxPause)])),
        counter("rx_unsupported_op_phy", "packets", r::OTHER_CONTROL),
        counter(
            "rx_discards_phy",
            "packets",
            is(&[Drop("core_exchange_full"), Drop("port_receive")]),
        ),
        counter("tx_discards_phy", "packets", is(&[Drop("port_transmit")])),
        counter("tx_errors_phy", "packets", is(&[Drop("receiver_mtu")])),
        counter("rx_undersize_pkts_phy", "packets", is(&[Drop("runt")])),
        counter(
            "rx_fragments_phy",
            "packets",
            NotModelled("the uplink's device drops them, and counts them itself"),
        ),
        counter(
            "rx_jabbers_phy",
            "packets",
            NotModelled("the uplink's device drops them, and counts them itself"),
        ),
        counter("rx_64_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_65_to_127_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_128_to_255_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_256_to_511_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_512_to_1023_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_1024_to_1518_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_1519_to_2047_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_2048_to_4095_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_4096_to_8191_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("rx_8192_to_10239_bytes_phy", "packets", r::NOT_AT_UPLINK),
        counter("link_down_events_phy", "events", r::LINK_EVENTS),
        counter("rx_out_of_buffer", "events", r::ADAPTERS_OWN),
        counter("module_bus_stuck", "events", r::NO_PHY),
        counter("module_high_temp", "events", r::NO_PHY),
        counter("module_bad_shorted", "events", r::NO_PHY),
        counter("module_unplug", "events", r::NO_PHY),
        counter("rx_buffer_passed_thres_phy", "events", r::NO_WIRE_BUFFER),
        counter(
            "tx_pause_storm_warning_events",
            "events",
            is(&[Link(L::PauseStormWarnings)]),
        ),
        counter(
            "tx_pause_storm_error_events",
            "events",
            is(&[Link(L::PauseStormErrors)]),
        ),
        counter("rx_bits_phy", "bits", r::NO_PHY),
        counter("rx_pcs_symbol_err_phy", "symbols", r::NO_PHY),
        counter("rx_corrected_bits_phy", "bits", r::NO_PHY),
        counter("rx_err_lane_[l]_phy", "errors", r::NO_PHY),
        counter("rx_global_pause", "packets", is(&[Link(L::RxPause)])),
        counter("rx_global_pause_duration", "us", is(&[Link(L::RxPauseUs)])),
        counter("tx_global_pause", "packets", is(&[Link(L::TxPause)])),
        counter("tx_global_pause_duration", "us", is(&[Link(L::TxPauseUs)])),
        counter(
            "rx_global_pause_transition",
            "events",
            is(&[Link(L::RxPauseTransitions)]),
        ),
        counter(
            "rx_if_down_packets",
            "packets",
            NotModelled(
                "frames for an adapter that is down are counted where they come from: see `receiver_down`",
            ),
        ),
    ],
};

/// `Linux ethtool flow control (mlx5)`: of a physical port's names those that an adapter's link has, too.
pub static FLOW_CONTROL: Set = Set {
    title: "Linux ethtool flow control (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Adapter,
    names: &[
        counter("rx_pause_ctrl_phy", "packets", is(&[Link(L::RxPause)])),
        counter("tx_pause_ctrl_phy", "packets", is(&[Link(L::TxPause)])),
        counter(
            "tx_pause_storm_warning_events",
            "events",
            is(&[Link(L::PauseStormWarnings)]),
        ),
        counter(
            "tx_pause_storm_error_events",
            "events",
            is(&[Link(L::PauseStormErrors)]),
        ),
        counter("rx_global_pause", "packets", is(&[Link(L::RxPause)])),
        counter("rx_global_pause_duration", "us", is(&[Link(L::RxPauseUs)])),
        counter("tx_global_pause", "packets", is(&[Link(L::TxPause)])),
        counter("tx_global_pause_duration", "us", is(&[Link(L::TxPauseUs)])),
        counter(
            "rx_global_pause_transition",
            "events",
            is(&[Link(L::RxPauseTransitions)]),
        ),
    ],
};

/// `Linux ethtool per priority (mlx5)`.
pub static PRIORITY: Set = Set {
    title: "Linux ethtool per priority (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Priority,
    names: &[
        counter("rx_prio[p]_bytes", "bytes", is(&[Priority(C::RxBytes)])),
        counter("rx_prio[p]_packets", "packets", is(&[Priority(C::RxFrames)])),
        counter("tx_prio[p]_bytes", "bytes", is(&[Priority(C::TxBytes)])),
        counter("tx_prio[p]_packets", "packets", is(&[Priority(C::TxFrames)])),
        counter("rx_prio[p]_pause", "packets", is(&[Priority(C::RxPause)])),
        counter("rx_prio[p]_pause_duration", "us", is(&[Priority(C::RxPauseUs)])),
        counter(
            "rx_prio[p]_pause_transition",
            "events",
            is(&[Priority(C::RxPauseTransitions)]),
        ),
        counter("tx_prio[p]_pause", "packets", is(&[Priority(C::TxPause)])),
        counter("tx_prio[p]_pause_duration", "us", is(&[Priority(C::TxPauseUs)])),
        counter("rx_prio[p]_buf_discard", "packets", r::NO_MULTI_HOST),
        counter(
            "rx_prio[p]_cong_discard",
            "packets",
            is(&[Priority(C::RxCongestionDiscards)]),
        ),
        counter("rx_prio[p]_marked", "packets", is(&[Priority(C::RxMarked)])),
        counter("rx_prio[p]_discards", "packets", is(&[Priority(C::RxDiscards)])),
    ],
};

/// `Linux ethtool device (mlx5)`.
pub static DEVICE: Set = Set {
    title: "Linux ethtool device (mlx5)",
    family: Family::Ethtool,
    instance: Instance::Adapter,
    names: &[
        counter("rx_pci_signal_integrity", "events", r::NO_PCIE),
        counter("tx_pci_signal_integrity", "events", r::NO_PCIE),
        counter("outbound_pci_buffer_overflow", "packets", r::NO_PCIE),
        gauge("outbound_pci_stalled_rd", "%", r::NO_PCIE),
        gauge("outbound_pci_stalled_wr", "%", r::NO_PCIE),
        counter("outbound_pci_stalled_rd_events", "seconds", r::NO_PCIE),
        counter("outbound_pci_stalled_wr_events", "seconds", r::NO_PCIE),
        counter("dev_out_of_buffer", "events", r::NO_FIRMWARE),
    ],
};
