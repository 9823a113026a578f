//! What would become of a frame.

use vnic_fabric::DropReason;

/// Answer of [`crate::Nic::trace`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    /// Decisions in their order: a name, and the grounds in words.
    pub steps: Vec<(&'static str, String)>,
    /// Reason of a drop before any receiver.
    pub dropped: Option<DropReason>,
    /// Receivers.
    pub receivers: Vec<TraceReceiver>,
}

/// A receiver of a traced frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceReceiver {
    /// Name of the adapter, port or bond.
    pub owner: String,
    /// Change of the frame's tag in words; empty: none.
    pub tag: String,
    /// Part of the receiver that takes the frame.
    pub function: TraceFunction,
    /// Reason of a drop at the receiver.
    pub dropped: Option<DropReason>,
    /// Fault rules of the path, by name, which may do something to the frame.
    pub fault_rules: Vec<String>,
}

vnic_wire::named! {
    /// Part of a receiver that takes a frame.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum TraceFunction {
        /// The wire behind a port.
        Wire => "wire",
        /// The guest's Ethernet driver.
        Ethernet => "ethernet",
        /// The adapter's RDMA function.
        Rdma => "rdma",
        /// Nobody: the guest has no driver for it.
        Nobody => "nobody",
    }
}
