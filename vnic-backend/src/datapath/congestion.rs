//! Congestion control of adapters on their data core.

use std::sync::Arc;

use vnic_engine::rdma::{Congestion, FlowStatus};
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::worker::Worker;

/// What the control plane tells the core that serves an adapter.
#[derive(Debug, Clone)]
pub struct CongestionChange {
    /// What acts on its queue pairs.
    pub congestion: Congestion,
    /// RoCE of the guest's own, over the Ethernet function, is limited, too.
    pub soft: bool,
    /// All its queue pairs send from one UDP port.
    pub pin_source_port: bool,
}

impl Worker {
    /// Congestion control of an adapter is this from now on.
    pub(super) fn set_congestion(&mut self, id: PortId, change: Arc<CongestionChange>, now: Instant) {
        if let Some(function) = self.functions.get_mut(id) {
            function.set_congestion(change.congestion.clone(), now);
            function.pin_source_port(change.pin_source_port);
        }
        self.set_guest_roce(id, &change.congestion, change.soft);
    }

    /// Queue pairs of an adapter that are limited now; none without an RDMA function.
    pub(super) fn flows(&mut self, id: PortId, now: Instant) -> Option<Vec<FlowStatus>> {
        Some(self.functions.get_mut(id)?.flows(now))
    }
}
