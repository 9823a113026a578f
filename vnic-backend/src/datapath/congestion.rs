//! Congestion control of adapters on their data core.

use vnic_engine::rdma::Congestion;

/// Congestion control of an adapter, as the control plane sends it to the core that serves the adapter.
#[derive(Debug, Clone)]
pub struct CongestionChange {
    /// Congestion control of the adapter's queue pairs.
    pub congestion: Congestion,
    /// Whether congestion control also limits the guest's own RoCE over the Ethernet function.
    pub soft: bool,
    /// Whether all queue pairs send from one UDP port.
    pub pin_source_port: bool,
}
