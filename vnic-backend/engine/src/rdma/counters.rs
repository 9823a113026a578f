//! Counters of the RDMA function: declared once, in `counters.toml`.
//!
//! Names are those of the mlx5 driver's `hw_counters` (kernel, `drivers/infiniband/hw/mlx5/counters.c`) and vport
//! statistics where these count the same; [`crate::counters::names`] has the other names of the same numbers. What this
//! device cannot do has no counter.

use vnic_wire::roce::Path;
use vnic_wire::transport::Headers;

use super::cm;
use super::packet::Incoming;
use super::types::Status;
use crate::counters::RDMA_COUNTERS;

/// Packets and bytes that came, by priority. Of priority 0 nothing is counted: it is the rest.
pub type ReceivedByPriority = [[u64; 2]; 8];

macro_rules! counters {
    ($($field:ident: $help:literal;)*) => {
        /// The counters of one device: monotonic, from 0 when the device was made.
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        #[allow(missing_docs, reason = "the help text is the documentation")]
        pub struct Counters { $(#[doc = $help] pub $field: u64,)* }

        impl Counters {
            /// How many counters there are.
            pub const COUNT: usize = RDMA_COUNTERS.len();

            /// Names in the order of [`RDMA_COUNTERS`].
            pub const NAMES: [&'static str; Counters::COUNT] = [$(stringify!($field),)*];

            /// The values, in the order of [`RDMA_COUNTERS`].
            pub fn values(&self) -> [u64; Counters::COUNT] {
                [$(self.$field,)*]
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/rdma_counters.rs"));

/// Copies an array of numbers by attribute into counters.
macro_rules! by_attribute {
    ($to:ident, $from:expr, $($field:ident)*) => {
        [$(&mut $to.$field),*].into_iter().zip($from).for_each(|(counter, value)| *counter = value)
    };
}

impl Counters {
    /// Takes over what communication management has counted.
    pub(super) fn manage(&mut self, cm: &cm::Counters) {
        by_attribute!(self, cm.cm_tx_msgs, cm_tx_msgs_req cm_tx_msgs_mra cm_tx_msgs_rej cm_tx_msgs_rep cm_tx_msgs_rtu cm_tx_msgs_dreq cm_tx_msgs_drep cm_tx_msgs_sidr_req cm_tx_msgs_sidr_rep cm_tx_msgs_lap cm_tx_msgs_apr);
        by_attribute!(self, cm.cm_tx_retries, cm_tx_retries_req cm_tx_retries_mra cm_tx_retries_rej cm_tx_retries_rep cm_tx_retries_rtu cm_tx_retries_dreq cm_tx_retries_drep cm_tx_retries_sidr_req cm_tx_retries_sidr_rep cm_tx_retries_lap cm_tx_retries_apr);
        by_attribute!(self, cm.cm_rx_msgs, cm_rx_msgs_req cm_rx_msgs_mra cm_rx_msgs_rej cm_rx_msgs_rep cm_rx_msgs_rtu cm_rx_msgs_dreq cm_rx_msgs_drep cm_rx_msgs_sidr_req cm_rx_msgs_sidr_rep cm_rx_msgs_lap cm_rx_msgs_apr);
        by_attribute!(self, cm.cm_rx_duplicates, cm_rx_duplicates_req cm_rx_duplicates_mra cm_rx_duplicates_rej cm_rx_duplicates_rep cm_rx_duplicates_rtu cm_rx_duplicates_dreq cm_rx_duplicates_drep cm_rx_duplicates_sidr_req cm_rx_duplicates_sidr_rep cm_rx_duplicates_lap cm_rx_duplicates_apr);
        (self.cm_malformed, self.cm_over_rate, self.cm_unknown) = (cm.malformed, cm.over_rate, cm.unknown);
        (self.cm_accepted, self.cm_initiated, self.cm_failed) = (cm.accepted, cm.initiated, cm.failed);
        (self.cm_ended, self.cm_broken) = (cm.ended, cm.broken);
    }

    /// The values when the device is no more: its connections have ended.
    #[must_use]
    pub fn at_end(mut self) -> Counters {
        self.cm_ended = self.cm_accepted + self.cm_initiated;
        self
    }
}

impl Counters {
    /// Name, value and help text of each counter.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        RDMA_COUNTERS
            .iter()
            .zip(self.values())
            .map(|(row, value)| (row.name, value, row.help))
    }

    /// Bytes sent.
    #[inline]
    pub(super) fn bytes_sent(&self) -> u64 {
        self.tx_vport_rdma_unicast_bytes + self.tx_vport_rdma_multicast_bytes + self.raw_tx_bytes
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
