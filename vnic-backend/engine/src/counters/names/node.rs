//! `node_exporter`'s collector for InfiniBand and RoCE devices: its names, so that boards made for it work.
//!
//! What the collector reads from sysfs in words of four bytes, it shows in bytes. `roce_slow_restart_total` is the counter of
//! transitions, `roce_slow_restart_used_total` the plain one.

use super::Source::Is;
use super::reasons as r;
use super::terms::{self as t, is, rdma};
use super::{Family, Instance, Set, counter};

/// The device is the adapter, the port is 1.
pub static INFINIBAND: Set = Set {
    title: "node_exporter infiniband",
    family: Family::NodeExporter,
    instance: Instance::Adapter,
    names: &[
        counter(
            "node_infiniband_port_data_received_bytes_total",
            "bytes",
            Is(t::RDMA_RX_BYTES),
        ),
        counter(
            "node_infiniband_port_data_transmitted_bytes_total",
            "bytes",
            Is(t::RDMA_TX_BYTES),
        ),
        counter(
            "node_infiniband_port_packets_received_total",
            "packets",
            Is(t::RDMA_RX_PACKETS),
        ),
        counter(
            "node_infiniband_port_packets_transmitted_total",
            "packets",
            Is(t::RDMA_TX_PACKETS),
        ),
        counter(
            "node_infiniband_unicast_packets_received_total",
            "packets",
            is(&[rdma("rx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "node_infiniband_unicast_packets_transmitted_total",
            "packets",
            is(&[rdma("tx_vport_rdma_unicast_packets")]),
        ),
        counter(
            "node_infiniband_multicast_packets_received_total",
            "packets",
            is(&[rdma("rx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "node_infiniband_multicast_packets_transmitted_total",
            "packets",
            is(&[rdma("tx_vport_rdma_multicast_packets")]),
        ),
        counter(
            "node_infiniband_port_errors_received_total",
            "packets",
            is(&[rdma("rx_icrc_encapsulated"), rdma("drop_malformed")]),
        ),
        counter(
            "node_infiniband_port_constraint_errors_received_total",
            "packets",
            is(&[rdma("drop_pkey_mismatch")]),
        ),
        counter(
            "node_infiniband_port_constraint_errors_transmitted_total",
            "packets",
            r::NO_IB_LINK,
        ),
        counter(
            "node_infiniband_port_discards_received_total",
            "packets",
            r::RDMA_DROPS,
        ),
        counter(
            "node_infiniband_port_discards_transmitted_total",
            "packets",
            r::RDMA_DROPS,
        ),
        counter(
            "node_infiniband_port_receive_remote_physical_errors_total",
            "packets",
            r::NO_IB_LINK,
        ),
        counter(
            "node_infiniband_port_receive_switch_relay_errors_total",
            "packets",
            r::NO_IB_LINK,
        ),
        counter("node_infiniband_port_transmit_wait_total", "ticks", r::NO_IB_LINK),
        counter("node_infiniband_symbol_error_total", "errors", r::NO_PHY),
        counter("node_infiniband_link_downed_total", "events", r::LINK_EVENTS),
        counter(
            "node_infiniband_link_error_recovery_total",
            "events",
            r::NO_IB_LINK,
        ),
        counter(
            "node_infiniband_local_link_integrity_errors_total",
            "events",
            r::NO_IB_LINK,
        ),
        counter(
            "node_infiniband_excessive_buffer_overrun_errors_total",
            "events",
            r::NO_IB_LINK,
        ),
        counter("node_infiniband_vl15_dropped_total", "packets", r::NO_IB_LINK),
        counter("node_infiniband_np_cnp_packets_sent_total", "packets", r::DCQCN),
        counter(
            "node_infiniband_np_ecn_marked_roce_packets_received_total",
            "packets",
            is(&[rdma("np_ecn_marked_roce_packets")]),
        ),
        counter(
            "node_infiniband_rp_cnp_packets_handled_total",
            "packets",
            r::DCQCN,
        ),
        counter(
            "node_infiniband_rp_cnp_ignored_packets_received_total",
            "packets",
            is(&[rdma("rp_cnp_ignored")]),
        ),
        counter(
            "node_infiniband_out_of_buffer_drops_total",
            "packets",
            is(&[rdma("out_of_buffer")]),
        ),
        counter(
            "node_infiniband_out_of_sequence_packets_received_total",
            "packets",
            is(&[rdma("out_of_sequence")]),
        ),
        counter(
            "node_infiniband_packet_sequence_errors_total",
            "packets",
            is(&[rdma("packet_seq_err")]),
        ),
        counter(
            "node_infiniband_implied_nak_seq_errors_total",
            "events",
            is(&[rdma("implied_nak_seq_err")]),
        ),
        counter(
            "node_infiniband_local_ack_timeout_errors_total",
            "timeouts",
            is(&[rdma("local_ack_timeout_err")]),
        ),
        counter(
            "node_infiniband_rnr_nak_retry_packets_received_total",
            "packets",
            is(&[rdma("rnr_nak_retry_err")]),
        ),
        counter(
            "node_infiniband_duplicate_requests_packets_total",
            "packets",
            is(&[rdma("duplicate_request")]),
        ),
        counter(
            "node_infiniband_req_cqes_errors_total",
            "completions",
            is(&[rdma("req_cqe_error")]),
        ),
        counter(
            "node_infiniband_req_cqes_flush_errors_total",
            "completions",
            is(&[rdma("req_cqe_flush_error")]),
        ),
        counter(
            "node_infiniband_resp_cqes_errors_total",
            "completions",
            is(&[rdma("resp_cqe_error")]),
        ),
        counter(
            "node_infiniband_resp_cqes_flush_errors_total",
            "completions",
            is(&[rdma("resp_cqe_flush_error")]),
        ),
        counter(
            "node_infiniband_req_remote_access_errors_total",
            "errors",
            is(&[rdma("req_remote_access_errors")]),
        ),
        counter(
            "node_infiniband_req_remote_invalid_request_errors_total",
            "errors",
            is(&[rdma("req_remote_invalid_request")]),
        ),
        counter(
            "node_infiniband_resp_remote_access_errors_total",
            "errors",
            is(&[rdma("resp_remote_access_errors")]),
        ),
        counter(
            "node_infiniband_resp_local_length_errors_total",
            "errors",
            is(&[rdma("resp_local_length_error")]),
        ),
        counter(
            "node_infiniband_rx_write_requests_total",
            "requests",
            is(&[rdma("rx_write_requests")]),
        ),
        counter(
            "node_infiniband_rx_read_requests_total",
            "requests",
            is(&[rdma("rx_read_requests")]),
        ),
        counter(
            "node_infiniband_rx_atomic_requests_total",
            "requests",
            is(&[rdma("rx_atomic_requests")]),
        ),
        counter(
            "node_infiniband_rx_icrc_encapsulated_errors_total",
            "packets",
            is(&[rdma("rx_icrc_encapsulated")]),
        ),
        counter(
            "node_infiniband_rx_dct_connect_requests_total",
            "requests",
            r::NO_DC,
        ),
        counter("node_infiniband_roce_adp_retransmits_total", "events", r::ZTR),
        counter(
            "node_infiniband_roce_adp_retransmits_timeout_total",
            "timeouts",
            r::ZTR,
        ),
        counter("node_infiniband_roce_slow_restart_used_total", "events", r::ZTR),
        counter("node_infiniband_roce_slow_restart_cnps_total", "packets", r::ZTR),
        counter("node_infiniband_roce_slow_restart_total", "events", r::ZTR),
    ],
};
