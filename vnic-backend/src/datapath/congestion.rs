//! Congestion control of adapters on their data core.

use vnic_engine::rdma::Congestion;

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
