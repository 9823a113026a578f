//! Attributes of queue pairs.

use vnic_device::command::qp::CreateQp;
use vnic_device::verbs::QpState;

pub use vnic_device::command::qp::QpAttributes;
pub use vnic_device::verbs::QpMask;

use crate::{Access, AddressVector, Mtu};

/// What a queue pair needs to receive: where its peer is. Fields that its type does not have are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtrAttributes {
    /// The way to the peer.
    pub address: AddressVector,
    /// Largest packet.
    pub path_mtu: Mtu,
    /// The peer's queue pair.
    pub destination_qp: u32,
    /// Number of the first packet that the peer sends.
    pub rq_psn: u32,
    /// RC, XRC target: READs and atomics of the peer that may be outstanding.
    pub max_dest_rd_atomic: u8,
    /// RC, XRC target: code of the time that a peer waits when there is no receive, 0 … 31.
    pub min_rnr_timer: u8,
    /// UDP source port; `None`: derived from the flow label, or if that is 0 from the own number.
    pub udp_source_port: Option<u16>,
}

/// What a queue pair needs to send. Fields that its type does not have are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtsAttributes {
    /// Number of the first packet that the queue pair sends.
    pub sq_psn: u32,
    /// RC, XRC: ACK timeout 4.096 µs · 2^n; 0 waits for ever.
    pub timeout: u8,
    /// RC, XRC initiator: retries, 0 … 7.
    pub retry_count: u8,
    /// RC, XRC initiator: retries when the peer has no receive, 0 … 7; 7: without end.
    pub rnr_retry: u8,
    /// RC, XRC initiator: READs and atomics that may be outstanding.
    pub max_rd_atomic: u8,
}

/// How two ends are connected; the defaults suit most programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Index in the own GID table; the peer must have been told the same entry. Entry 1 is always there:
    /// RoCE v2, from the adapter's Ethernet address.
    pub gid_index: u16,
    /// Index in the P_Key table ([`PortAttributes::pkeys`](crate::PortAttributes::pkeys)): the partition of the queue pair. It is that of
    /// [`to_init`](crate::QueuePair::to_init), which is 0, where that came before.
    pub pkey_index: u16,
    /// Largest packet; `None`: what the port allows now.
    pub path_mtu: Option<Mtu>,
    /// What the peer may do.
    pub access: Access,
    /// READs and atomics that may be outstanding; `None`: as many as the device can have, at most 16.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics of the peer that may be outstanding; `None`: as many as the own.
    pub max_dest_rd_atomic: Option<u8>,
    /// ACK timeout 4.096 µs · 2^n.
    pub timeout: u8,
    /// Retries, 0 … 7.
    pub retry_count: u8,
    /// Retries when the peer has no receive, 0 … 7; 7: without end.
    pub rnr_retry: u8,
    /// Code of the time that a peer waits when there is no receive.
    pub min_rnr_timer: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, 0 … 15.
    pub service_level: u8,
    /// UDP source port; `None`: derived from the flow label, or if that is 0 from the own number.
    pub udp_source_port: Option<u16>,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            gid_index: 1,
            pkey_index: 0,
            path_mtu: None,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            max_rd_atomic: None,
            max_dest_rd_atomic: None,
            // 67 ms and 0.64 ms, as in the examples of libibverbs.
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            service_level: 0,
            udp_source_port: None,
        }
    }
}

/// The rate of a send queue (`ibv_qp_rate_limit_attr`; `SPEC.md`, section 5.5). By default it is not
/// limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RateLimit {
    /// Rate in kbit/s, with all that a packet takes on the wire; 0: not limited.
    /// [`DeviceAttributes::qp_rates`](crate::DeviceAttributes::qp_rates) has the allowed range.
    pub rate: u32,
    /// Bytes that may be sent at once after a pause; 0: the device chooses.
    pub max_burst: u32,
    /// Bytes of a usual packet, a hint; 0: unknown.
    pub typical_packet: u16,
}

impl RateLimit {
    /// A rate in kbit/s; the device chooses the burst.
    pub const fn kbps(rate: u32) -> RateLimit {
        RateLimit {
            rate,
            max_burst: 0,
            typical_packet: 0,
        }
    }
}

/// A queue pair as the device has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpQuery {
    /// Attributes. The PSNs are the current ones.
    pub attributes: QpAttributes,
    /// What the queue pair was made with.
    pub created: CreateQp,
}

impl QpQuery {
    /// State of the queue pair.
    pub fn state(&self) -> QpState {
        QpState::from_number(self.attributes.state).unwrap_or(QpState::Err)
    }

    /// What the peer may do.
    pub fn access(&self) -> Access {
        Access::from_bits_truncate(self.attributes.access)
    }

    /// The way to the peer, if it was set.
    pub fn address(&self) -> Option<AddressVector> {
        (self.attributes.has_address != 0).then(|| self.attributes.address.into())
    }
}
