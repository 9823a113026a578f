//! What waits at a port for its guest or its wire.

use std::sync::Arc;

use vnic_fabric::switch::PortId;

use super::super::worker::Worker;
use super::QosChange;
use crate::types::QueueStatus;

/// The receiving side of a port that has something configured, on the core that serves it.
pub struct Receiver {
    /// What acts.
    pub change: Arc<QosChange>,
}

impl Worker {
    pub(super) fn set_receiver(&mut self, _id: PortId, _change: &Arc<QosChange>) {}

    pub(super) fn forget_receiver(&mut self, _id: PortId) {}

    pub(super) fn receiver_status(&mut self, _id: PortId, _status: &mut QueueStatus) {}
}
