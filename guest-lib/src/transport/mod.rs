//! How a driver reaches its device: the seam between verbs and the way memory, notifications and interrupts
//! travel.

pub mod host;
pub mod identity;
pub mod pci;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use vnic_device::config::Config;
use vnic_device::ring::Extent;

use crate::Error;

/// A way to a device. `SPEC.md`, sections 2 and 4.
pub trait Transport: Send + Sync {
    /// The configuration space, read when the transport was made and checked to be one of ours.
    fn config(&self) -> &Config;

    /// What the device is called in messages: a socket's path or a PCI address.
    fn name(&self) -> &str;

    /// Negotiates features, sets up all virtqueues (number `i` is `queues[i]`) and lets the device begin. Called
    /// once. Of the features of rings only `VIRTIO_F_VERSION_1` may be accepted: the driver half uses no others.
    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error>;

    /// Most entries that a virtqueue may have; a power of two. Called before [`start`](Transport::start).
    fn queue_size_max(&self, virtqueue: u16) -> u16;

    /// Ends what [`start`](Transport::start) began: when it returns, the device touches no memory any more.
    /// Called once, at the end, also when the device is gone.
    fn stop(&self);

    /// Notifies a virtqueue: of new buffers, or a kick.
    fn notify(&self, virtqueue: u16);

    /// Readable when the device has interrupted since the last [`acknowledge`](Transport::acknowledge). One for
    /// all virtqueues.
    fn interrupt(&self) -> BorrowedFd<'_>;

    /// Takes the interrupt back and lets the next one come. Never blocks.
    fn acknowledge(&self) -> Result<(), Error>;

    /// Why the device is gone, if it is.
    fn gone(&self) -> Option<Error>;

    /// Memory of zeros that the device sees, in whole pages.
    fn allocate(&self, len: usize) -> Result<SharedPages, Error>;

    /// Makes memory of the program's own known to the device, as it is, and keeps it where it is. `write`: the
    /// device may write there, so it must be memory that this process may write.
    ///
    /// # Safety
    /// The memory stays mapped until the result is dropped.
    unsafe fn pin(&self, start: NonNull<u8>, len: usize, write: bool) -> Result<Pinned, Error>;
}

/// A split virtqueue in memory that the device sees (virtio 1.3, section 2.7).
#[derive(Debug, Clone, Copy)]
pub struct Virtqueue {
    /// Entries.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Of the available ring.
    pub available: u64,
    /// Of the used ring.
    pub used: u64,
}

/// Pages that the device sees, for as long as this is there. Contiguous for the program; for the device in pieces.
pub struct SharedPages {
    /// First byte.
    pub start: NonNull<u8>,
    /// Bytes.
    pub len: usize,
    /// Where the device sees them, in order.
    pub extents: Vec<Extent>,
    /// Gives them back when dropped.
    pub owner: Box<dyn Send + Sync>,
}

// SAFETY: an address; whoever goes through it answers for that, and `owner` may be dropped anywhere.
unsafe impl Send for SharedPages {}
// SAFETY: as above.
unsafe impl Sync for SharedPages {}

/// Memory of the program that the device sees, for as long as this is there.
pub struct Pinned {
    /// Where the device sees it, in order.
    pub extents: Vec<Extent>,
    /// Lets it go when dropped.
    pub owner: Box<dyn Send + Sync>,
}
