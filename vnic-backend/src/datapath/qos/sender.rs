//! What an adapter may send: the priority of its frames, its limits, and pause that it obeys.

use std::sync::Arc;

use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::super::worker::Worker;
use super::QosChange;
use crate::types::QueueStatus;

/// The sending side of an adapter that has something configured, on the core that serves it; Ethernet queues and the RDMA
/// function share it.
pub struct Sender {
    /// What acts.
    pub change: Arc<QosChange>,
}

impl Sender {
    /// Priorities that may send now, a bit each: neither paused nor over a limit.
    pub fn open(&mut self, _now: Instant) -> u8 {
        0xff
    }

    /// A frame of this priority was sent: bytes without preamble, FCS and gap.
    pub fn sent(&mut self, _now: Instant, _priority: u8, _len: usize) {}

    /// When a priority opens that is closed by a limit.
    pub fn next_time(&self) -> Option<Instant> {
        None
    }
}

impl Worker {
    pub(super) fn set_sender(&mut self, _id: PortId, _change: &Arc<QosChange>) {}

    pub(super) fn forget_sender(&mut self, _id: PortId) {}

    pub(super) fn sender_status(&mut self, _id: PortId, _status: &mut QueueStatus) {}
}
