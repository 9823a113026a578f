//! Linux: sysfs of an RDMA device.

use super::Source::{Is, NotModelled};
use super::reasons as r;
use super::terms::{self as t, is, rdma};
use super::{Family, Instance, Set, counter, gauge};

/// `Linux hw_counters (mlx5)`.
pub static HW_COUNTERS: Set = Set {
    title: "Linux hw_counters (mlx5)",
    family: Family::Mlx5,
    instance: Instance::Adapter,
    names: &[
        counter("rx_write_requests", "requests", is(&[rdma("rx_write_requests")])),
        counter("rx_read_requests", "requests", is(&[rdma("rx_read_requests")])),
        counter(
            "rx_atomic_requests",
            "requests",
            is(&[rdma("rx_atomic_requests")]),
        ),
        counter("rx_dct_connect", "requests", r::NO_DC),
        counter("out_of_buffer", "drops", is(&[rdma("out_of_buffer")])),
        counter("out_of_sequence", "packets", is(&[rdma("out_of_sequence")])),
        counter("duplicate_request", "packets", is(&[rdma("duplicate_request")])),
        counter("rnr_nak_retry_err", "NAKs", is(&[rdma("rnr_nak_retry_err")])),
        counter("packet_seq_err", "NAKs", is(&[rdma("packet_seq_err")])),
        counter(
            "implied_nak_seq_err",
            "events",
            is(&[rdma("implied_nak_seq_err")]),
        ),
        counter(
            "local_ack_timeout_err",
            "timeouts",
            is(&[rdma("local_ack_timeout_err")]),
        ),
        counter("rp_cnp_ignored", "packets", Is(t::CNP_IGNORED)),
        counter("rp_cnp_handled", "packets", Is(t::CNP_HANDLED)),
        counter("np_ecn_marked_roce_packets", "packets", Is(t::ECN_MARKED)),
        counter("np_cnp_sent", "packets", Is(t::CNP_SENT)),
        counter(
            "resp_local_length_error",
            "errors",
            is(&[rdma("resp_local_length_error")]),
        ),
        counter("resp_cqe_error", "CQEs", is(&[rdma("resp_cqe_error")])),
        counter("req_cqe_error", "CQEs", is(&[rdma("req_cqe_error")])),
        counter(
            "req_remote_invalid_request",
            "errors",
            is(&[rdma("req_remote_invalid_request")]),
        ),
        counter(
            "req_remote_access_errors",
            "errors",
            is(&[rdma("req_remote_access_errors")]),
        ),
        counter(
            "resp_remote_access_errors",
            "errors",
            is(&[rdma("resp_remote_access_errors")]),
        ),
        counter(
            "resp_cqe_flush_error",
            "CQEs",
            is(&[rdma("resp_cqe_flush_error")]),
        ),
        counter("req_cqe_flush_error", "CQEs", is(&[rdma("req_cqe_flush_error")])),
        counter(
            "req_transport_retries_exceeded",
            "errors",
            is(&[rdma("req_transport_retries_exceeded")]),
        ),
        counter(
            "req_rnr_retries_exceeded",
            "errors",
            is(&[rdma("req_rnr_retries_exceeded")]),
        ),
        counter("roce_adp_retrans", "events", r::ZTR),
        counter("roce_adp_retrans_to", "timeouts", r::ZTR),
        counter("roce_slow_restart", "events", is(&[rdma("roce_slow_restart")])),
        counter(
            "roce_slow_restart_cnps",
            "packets",
            is(&[rdma("roce_slow_restart_cnps")]),
        ),
        counter(
            "roce_slow_restart_trans",
            "events",
            is(&[rdma("roce_slow_restart_trans")]),
        ),
        counter(
            "rx_icrc_encapsulated",
            "packets",
            is(&[rdma("rx_icrc_encapsulated")]),
        ),
        gauge(
            "lifespan",
            "ms",
            NotModelled("every read sees the counters as they are: nothing is cached"),
        ),
    ],
};

/// `Linux hw_counters optional (rdma statistic)`.
pub static HW_COUNTERS_OPTIONAL: Set = Set {
    title: "Linux hw_counters optional (rdma statistic)",
    family: Family::Mlx5,
    instance: Instance::Adapter,
    names: &[
        counter("vport_* variants", "", r::NO_REPRESENTOR),
        counter("cc_rx_ce_pkts", "", Is(t::ECN_MARKED)),
        counter("cc_rx_cnp_pkts", "", Is(t::CNP_RECEIVED)),
        counter("cc_tx_cnp_pkts", "", Is(t::CNP_SENT)),
        counter("rdma_tx_packets", "", Is(t::RDMA_TX_PACKETS)),
        counter("rdma_rx_packets", "", Is(t::RDMA_RX_PACKETS)),
        counter("rdma_tx_bytes", "", Is(t::RDMA_TX_BYTES)),
        counter("rdma_rx_bytes", "", Is(t::RDMA_RX_BYTES)),
    ],
};

/// `Linux port counters (/sys/class/infiniband/<d>/ports/<p>/counters)`.
pub static PORT_COUNTERS: Set = Set {
    title: "Linux port counters (/sys/class/infiniband/<d>/ports/<p>/counters)",
    family: Family::Mlx5,
    instance: Instance::Adapter,
    names: &[
        counter("port_rcv_data", "32-bit words", Is(t::RDMA_RX_BYTES.per(4))),
        counter("port_xmit_data", "32-bit words", Is(t::RDMA_TX_BYTES.per(4))),
        counter("port_rcv_packets", "packets", Is(t::RDMA_RX_PACKETS)),
        counter("port_xmit_packets", "packets", Is(t::RDMA_TX_PACKETS)),
        counter(
            "unicast_rcv_packets",
            "packets",
            is(&[rdma("rx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "unicast_xmit_packets",
            "packets",
            is(&[rdma("tx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "multicast_rcv_packets",
            "packets",
            is(&[rdma("rx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "multicast_xmit_packets",
            "packets",
            is(&[rdma("tx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "port_rcv_errors",
            "packets",
            is(&[rdma("rx_icrc_encapsulated"), rdma("drop_malformed")]),
        ),
        counter(
            "port_rcv_constraint_errors",
            "packets",
            is(&[rdma("drop_pkey_mismatch")]),
        ),
        counter("port_xmit_constraint_errors", "packets", r::NO_IB_LINK),
        counter("port_rcv_remote_physical_errors", "packets", r::NO_IB_LINK),
        counter("port_rcv_switch_relay_errors", "packets", r::NO_IB_LINK),
        counter("port_xmit_discards", "packets", r::RDMA_DROPS),
        counter("port_xmit_wait", "ticks", r::NO_IB_LINK),
        counter("symbol_error", "errors", r::NO_PHY),
        counter("link_downed", "events", r::LINK_EVENTS),
        counter("link_error_recovery", "events", r::NO_IB_LINK),
        counter("local_link_integrity_errors", "events", r::NO_IB_LINK),
        counter("excessive_buffer_overrun_errors", "events", r::NO_IB_LINK),
        counter("VL15_dropped", "packets", r::NO_IB_LINK),
    ],
};
