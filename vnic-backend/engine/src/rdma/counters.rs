//! Counters of the RDMA function: declared once, in this table.
//!
//! Names are those of the mlx5 driver's `hw_counters` (kernel, `drivers/infiniband/hw/mlx5/counters.c`) and vport
//! statistics where these count the same; [`crate::counters::names`] has the other names of the same numbers. What this
//! device cannot do (DC, adaptive retransmission) has no counter.

use vnic_wire::roce::Path;
use vnic_wire::transport::Headers;

use super::packet::Incoming;
use super::types::Status;

/// Packets and bytes that came, by priority. Of priority 0 nothing is counted: it is the rest.
pub type ReceivedByPriority = [[u64; 2]; 8];

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Definition {
    /// Name.
    pub name: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// One line for people.
    pub help: &'static str,
}

macro_rules! counters {
    ($($(#[$group:meta])* { $($field:ident: $unit:literal, $help:literal;)* })*) => {
        /// The counters of one device: monotonic, from 0 when the device was made.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[allow(missing_docs, reason = "the help text is the documentation")]
        pub struct Counters { $($(#[doc = $help] pub $field: u64,)*)* }

        impl Counters {
            /// The table, in the order of [`Counters::values`].
            pub const TABLE: &'static [Definition] = &[$($(
                Definition { name: stringify!($field), unit: $unit, help: $help },
            )*)*];

            /// How many counters there are.
            pub const COUNT: usize = Counters::TABLE.len();

            /// Names in the order of [`Counters::TABLE`].
            pub const NAMES: [&'static str; Counters::COUNT] = [$($(stringify!($field),)*)*];

            /// The values, in the order of [`Counters::TABLE`].
            pub fn values(&self) -> [u64; Counters::COUNT] {
                [$($(self.$field,)*)*]
            }
        }
    };
}

counters! {
    // Responder.
    {
        rx_write_requests: "requests", "RDMA WRITE requests received.";
        rx_read_requests: "requests", "RDMA READ requests received.";
        rx_atomic_requests: "requests", "Atomic requests received.";
        out_of_buffer: "packets", "Packets that found no receive posted.";
        out_of_sequence: "packets", "Requests received after a gap in the sequence.";
        duplicate_request: "packets", "Requests received again.";
        resp_rnr_nak: "packets", "RNR NAKs sent.";
        resp_local_length_error: "errors", "Messages longer than the receive that they met, and other lengths that do not fit.";
        resp_local_protection_error: "errors", "Receives whose own keys forbade the message.";
        resp_local_qp_operation_error: "errors", "Receives that failed for an error in the device's own handling.";
        resp_remote_access_errors: "errors", "Requests that the keys forbade.";
        resp_remote_invalid_request: "errors", "Requests that the protocol does not allow.";
        resp_cqe_error: "completions", "Receives completed with an error, flushed ones included.";
        resp_cqe_flush_error: "completions", "Receives flushed.";
    }
    // Requester.
    {
        rnr_nak_retry_err: "packets", "RNR NAKs received while there were retries left.";
        packet_seq_err: "packets", "Sequence error NAKs received while there were retries left.";
        implied_nak_seq_err: "events", "Responses whose sequence showed that a READ or atomic response is missing.";
        local_ack_timeout_err: "timeouts", "Acknowledge timers that ran out while there were retries left.";
        req_transport_retries_exceeded: "errors", "Requests given up after all retries.";
        req_rnr_retries_exceeded: "errors", "Requests given up because the receiver was not ready after all retries.";
        req_remote_invalid_request: "errors", "Requests that the peer refused as invalid.";
        req_remote_access_errors: "errors", "Requests that the peer's keys forbade.";
        req_remote_operation_errors: "errors", "Requests that the peer could not carry out.";
        req_local_length_error: "errors", "Requests of a length that does not fit.";
        req_local_protection_error: "errors", "Requests whose own keys forbade them.";
        req_local_qp_operation_error: "errors", "Requests that failed for an error in the device's own handling.";
        req_mw_bind_error: "errors", "Windows that could not be bound, keys that could not be invalidated.";
        req_bad_response: "errors", "Responses that the protocol does not allow.";
        req_cqe_error: "completions", "Requests completed with an error, flushed ones included.";
        req_cqe_flush_error: "completions", "Requests flushed.";
    }
    // Congestion.
    {
        np_ecn_marked_roce_packets: "packets", "RoCEv2 packets received with a congestion mark.";
        np_ecn_ignored: "packets", "Of these, those whose senders are not notified: the priority is off, the sender is not known, no version 2.";
        np_ecn_coalesced: "packets", "Of these, those that made no notification at once: one had just been sent.";
        np_cnp_sent: "packets", "Congestion notification packets sent.";
        rp_cnp_handled: "packets", "Congestion notifications that slowed a flow down; slow restarts included.";
        rp_cnp_ignored: "packets", "Congestion notification packets that changed nothing.";
        rp_flows_started: "flows", "Queue pairs that came under congestion control.";
        rp_flows_ended: "flows", "Queue pairs that it let go.";
        roce_slow_restart: "events", "Slow restarts: a loss or an idle time slowed a flow down.";
        roce_slow_restart_cnps: "packets", "Notifications that slow restarts made inside the adapter.";
        roce_slow_restart_trans: "events", "Flows that went into slow restart; one more before it is over is none.";
    }
    // Completion queues.
    {
        cq_overrun: "events", "Completion queues that overran.";
    }
    // Traffic. Bytes are those of whole frames without the FCS, also where no frame was built for a local peer.
    {
        rx_vport_rdma_unicast_packets: "packets", "RDMA packets received for one receiver.";
        rx_vport_rdma_unicast_bytes: "bytes", "Bytes of these.";
        rx_vport_rdma_multicast_packets: "packets", "RDMA packets received for a group.";
        rx_vport_rdma_multicast_bytes: "bytes", "Bytes of these.";
        tx_vport_rdma_unicast_packets: "packets", "RDMA packets sent to one receiver.";
        tx_vport_rdma_unicast_bytes: "bytes", "Bytes of these.";
        tx_vport_rdma_multicast_packets: "packets", "RDMA packets sent to a group.";
        tx_vport_rdma_multicast_bytes: "bytes", "Bytes of these.";
    }
    // Packets that were dropped silently, by reason. Those that found no receive are in `out_of_buffer`.
    {
        rx_icrc_encapsulated: "packets", "Packets with a wrong ICRC.";
        drop_malformed: "packets", "Packets whose headers contradict each other, or of a reserved opcode.";
        drop_bad_gid: "packets", "Packets to an address that is not this device's, or from another one than the QP's peer's.";
        drop_no_qp: "packets", "Packets to a QP that is not there, or to a group without members.";
        drop_wrong_transport: "packets", "Packets of another transport service than the QP's.";
        drop_wrong_state: "packets", "Packets that the QP does not take in its state.";
        drop_pkey_mismatch: "packets", "Packets with another partition key.";
        drop_qkey_violation: "packets", "Datagrams with another queue key.";
        drop_out_of_sequence: "packets", "Packets of an unreliable message that a gap had spoilt, and requests after a gap that was told to the peer already.";
        drop_access: "packets", "Packets of an unreliable WRITE that the keys forbade.";
        drop_stale_response: "packets", "Responses to nothing that is outstanding.";
    }
}

impl Counters {
    /// Name, value and help text of each counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        Counters::TABLE
            .iter()
            .zip(self.values())
            .map(|(row, value)| (row.name, value, row.help))
    }

    /// Bytes sent.
    #[inline]
    pub(super) fn bytes_sent(&self) -> u64 {
        self.tx_vport_rdma_unicast_bytes + self.tx_vport_rdma_multicast_bytes
    }

    /// Packets dropped silently, all reasons together.
    pub fn dropped(&self) -> u64 {
        self.iter()
            .filter(|(name, ..)| name.starts_with("drop_") || *name == "rx_icrc_encapsulated")
            .map(|(_, value, _)| value)
            .sum()
    }

    /// A packet was sent.
    #[inline]
    pub fn sent(&mut self, path: &Path, headers: &Headers, payload: usize) {
        let bytes = path.frame_len(headers, payload) as u64;
        if path.eth.destination.is_multicast() {
            self.tx_vport_rdma_multicast_packets += 1;
            self.tx_vport_rdma_multicast_bytes += bytes;
        } else {
            self.tx_vport_rdma_unicast_packets += 1;
            self.tx_vport_rdma_unicast_bytes += bytes;
        }
    }

    /// A packet came, whatever becomes of it.
    #[inline]
    pub fn received(&mut self, packet: &Incoming<'_>) {
        let bytes = packet.path.frame_len(&packet.headers, packet.payload.len()) as u64;
        if packet.path.eth.destination.is_multicast() {
            self.rx_vport_rdma_multicast_packets += 1;
            self.rx_vport_rdma_multicast_bytes += bytes;
        } else {
            self.rx_vport_rdma_unicast_packets += 1;
            self.rx_vport_rdma_unicast_bytes += bytes;
        }
    }

    /// A request completed; counts what went wrong.
    pub fn requester_error(&mut self, status: Status) {
        let cause = match status {
            Status::Success => return,
            Status::LocalLengthError => &mut self.req_local_length_error,
            Status::LocalQpOperationError | Status::LocalAccessError => {
                &mut self.req_local_qp_operation_error
            }
            Status::LocalProtectionError => &mut self.req_local_protection_error,
            Status::FlushError => &mut self.req_cqe_flush_error,
            Status::MwBindError => &mut self.req_mw_bind_error,
            Status::BadResponseError => &mut self.req_bad_response,
            Status::RemoteInvalidRequestError => &mut self.req_remote_invalid_request,
            Status::RemoteAccessError => &mut self.req_remote_access_errors,
            Status::RemoteOperationError | Status::RemoteAborted => &mut self.req_remote_operation_errors,
            Status::RetryExceeded => &mut self.req_transport_retries_exceeded,
            Status::RnrRetryExceeded => &mut self.req_rnr_retries_exceeded,
        };
        *cause += 1;
        self.req_cqe_error += 1;
    }

    /// A receive completed; counts what went wrong.
    pub fn responder_error(&mut self, status: Status) {
        let cause = match status {
            Status::Success => return,
            Status::LocalLengthError => &mut self.resp_local_length_error,
            Status::LocalProtectionError => &mut self.resp_local_protection_error,
            Status::FlushError => &mut self.resp_cqe_flush_error,
            Status::LocalAccessError | Status::RemoteAccessError => &mut self.resp_remote_access_errors,
            Status::RemoteInvalidRequestError => &mut self.resp_remote_invalid_request,
            _ => &mut self.resp_local_qp_operation_error,
        };
        *cause += 1;
        self.resp_cqe_error += 1;
    }
}
