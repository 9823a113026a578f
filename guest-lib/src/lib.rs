//! Verbs on vnic's RDMA function, for programs in a virtual machine or in a process of the host, without any
//! driver in a kernel.
//!
//! Names and meanings are those of the verbs (IBTA volume 1, chapters 10 and 11; libibverbs). The contract with
//! the device is `proto/device/SPEC.md`.
//!
//! ```no_run
//! use vnic_verbs::{Access, ConnectOptions, Device, Endpoint, Rc, SendWr, WorkCompletion};
//!
//! # fn exchange(_: &Endpoint) -> Endpoint { unimplemented!() }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open_default()?;
//! let pd = device.alloc_pd()?;
//! let region = pd.allocate(4096, Access::REMOTE_ALL)?;
//! let cq = device.create_cq(64)?;
//! let qp = pd.qp::<Rc>(&cq, &cq).max_send_wr(16).build()?;
//! let peer = exchange(&qp.endpoint(1)?);
//! qp.connect(&peer, &ConnectOptions::default())?;
//!
//! region.write_at(0, b"hello");
//! # let (addr, rkey) = (0, 0);
//! qp.post_send(&[SendWr::write(region.slice(..5), addr, rkey).id(1).signaled()])?;
//! let mut done = [WorkCompletion::default(); 16];
//! while cq.poll(&mut done)? == 0 {}
//! done[0].ok()?;
//! # Ok(())
//! # }
//! ```
//!
//! All objects may be used by several threads at once. Objects that are `Clone` are handles: clones are the
//! same object, which is destroyed when the last clone, and the last object that needs it, is dropped.
//!
//! A device belongs to the process that opened it. For a forked child the device is gone ([`Error::Gone`]),
//! whatever the child does to its copies of objects; the child may open another device, or `exec`.

pub mod attributes;
pub mod connection;
mod context;
pub mod cq;
mod device;
pub mod doctor;
mod driver;
pub mod error;
pub mod event;
mod extents;
pub mod flow;
mod free;
pub mod memory;
pub mod pages;
mod pd;
pub mod qp;
mod shared;
pub mod srq;
mod sync;
pub mod sysfs;
pub mod transport;
pub mod work_queue;
pub mod wr;

pub use attributes::{
    Access, AddressVector, Capabilities, Counter, DeviceAttributes, Gid, GidEntry, GidKind, MacAddress, Mtu,
    PortAttributes, PortState, Resource,
};
pub use connection::{ConnectionEvent, ConnectionMessage, Connections};
pub use context::Context;
pub use cq::{CompletionChannel, CompletionQueue, CqBuilder, WorkCompletion};
pub use device::{Device, DeviceAddress, PCI_VARIABLE, SOCKET_VARIABLE, now_at, present, sockets_in};
pub use driver::{NoFork, block_signals};
pub use error::{Error, PostError, PostReason};
pub use event::{AsyncEvent, Fault};
pub use flow::Flow;
pub use memory::{DeviceMemory, MemoryRegion, MemoryWindow, MwType, Reregister, Sge, SharedBuffer};
pub use pd::{AddressHandle, ProtectionDomain, XrcDomain};
pub use qp::{
    ConnectOptions, DcInitiator, DcTarget, Endpoint, QpAttributes, QpBuilder, QpKind, QpMask, QueuePair,
    RateLimit, RawPacket, Rc, RtrAttributes, RtsAttributes, Sending, Uc, Ud, XrcInitiator, XrcTarget,
};
pub use srq::{SharedReceiveQueue, SrqAttributes, SrqBuilder};
pub use vnic_device::queue::{CompletionKind, Operation};
pub use vnic_device::status::CommandStatus;
pub use vnic_device::verbs::{AtomicScope, CompletionStatus, QpState, QpType};
pub use work_queue::{HashQueuePair, HashRule, WorkQueue};
pub use wr::{Data, RecvWr, SendWr};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_from_thread_to_thread() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<Context>();
        shared::<ProtectionDomain>();
        shared::<MemoryRegion>();
        shared::<SharedBuffer>();
        shared::<MemoryWindow>();
        shared::<DeviceMemory>();
        shared::<CompletionQueue>();
        shared::<CompletionChannel>();
        shared::<SharedReceiveQueue>();
        shared::<AddressHandle>();
        shared::<XrcDomain>();
        shared::<QueuePair<Rc>>();
        shared::<QueuePair<XrcTarget>>();
        shared::<QpBuilder<Ud>>();
        shared::<SendWr<'static>>();
        shared::<Error>();
    }
}
