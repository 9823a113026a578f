//! What the port of an adapter says of itself.

pub use vnic_device::event::EventKind as RdmaEvent;

/// What operators make the port of an RDMA function say, and of an Ethernet function with a control queue; the default is what is
/// true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaPort {
    /// Whether it is down.
    pub down: bool,
    /// Code of the MTU that queue pairs may have (`ibv_mtu`: 1 is 256 bytes, 5 is 4096); `None`: the adapter's.
    pub mtu: Option<u8>,
    /// Speed in Mbit/s; `None`: that of the function.
    pub speed: Option<u32>,
}
