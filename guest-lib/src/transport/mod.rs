//! How a driver reaches its device: the seam between verbs and the way that memory, notifications and interrupts
//! travel.

#![expect(
    unsafe_code,
    reason = "the seam hands out addresses, and pins memory that its caller answers for"
)]

pub mod host;
pub mod identity;
pub mod pci;

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Weak;

use vnic_device::config::Config;
use vnic_device::ring::Extent;

use crate::Error;

/// A way to a device (`SPEC.md`, sections 2 and 4).
pub trait Transport: Send + Sync {
    /// The configuration space, which was read and checked when the transport was made.
    fn config(&self) -> &Config;

    /// What the device is called in messages: a socket's path or a PCI address.
    fn name(&self) -> &str;

    /// Negotiates features, sets up all virtqueues (number `i` is `queues[i]`) and starts the device. Called once.
    /// Of the features of rings only `VIRTIO_F_VERSION_1` may be accepted: the driver half uses no others.
    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error>;

    /// Most entries that a virtqueue may have; a power of two. Called before [`start`](Transport::start).
    fn queue_size_max(&self, virtqueue: u16) -> u16;

    /// Stops the device: when this returns, the device touches no memory any more. Called once, at the end, also
    /// when the device is gone.
    fn stop(&self);

    /// Notifies a virtqueue: of new buffers, or by a kick.
    fn notify(&self, virtqueue: u16);

    /// A descriptor that is readable when the device has interrupted since the last
    /// [`acknowledge`](Transport::acknowledge). There is one for all virtqueues.
    fn interrupt(&self) -> BorrowedFd<'_>;

    /// Clears the interrupt and lets the next one come. Never blocks.
    fn acknowledge(&self) -> Result<(), Error>;

    /// Why the device is gone, if it is.
    fn gone(&self) -> Option<Error>;

    /// Allocates memory of zeros that the device sees, in whole pages.
    fn allocate(&self, len: usize) -> Result<SharedPages, Error>;

    /// Makes memory of the program's own known to the device, and keeps it where it is. `write`: the device may
    /// write there, so it must be memory that this process may write.
    ///
    /// # Safety
    /// The memory stays mapped until the result is dropped.
    unsafe fn pin(&self, start: NonNull<u8>, len: usize, write: bool) -> Result<Pinned, Error>;

    /// Makes bytes of a file known to the device, all of which the file has. The device may write there.
    fn share(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Pinned, Error>;

    /// Whoever lends pages to the device on demand; the error says why nobody does.
    fn lender(&self) -> Result<&dyn Lender, Error> {
        Err(Error::os(
            "pages are given on demand in processes of the host only",
        )(rustix::io::Errno::OPNOTSUPP))
    }
}

/// Lends memory of the program's own to the device, which the program may unmap or move meanwhile.
pub trait Lender {
    /// Whether memory can be lent here.
    fn check(&self) -> Result<(), Error>;

    /// Has `listener` hear of what is unmapped or moved, and says where the device finds the word that is not 0 while listeners
    /// have not heard it all.
    fn begin(&self, listener: Weak<dyn Listener>) -> Result<u64, Error>;

    /// Makes memory known to the device. `write`: the device may write there, so it must be memory that this process may write.
    fn lend(&self, start: usize, len: usize, write: bool) -> Result<Pinned, Error>;
}

/// Hears of memory that is not what it was.
pub trait Listener: Send + Sync {
    /// Memory from `start` to before `end` was unmapped or moved.
    fn gone(&self, start: usize, end: usize);
}

/// A split virtqueue in memory that the device sees (virtio 1.3, section 2.7).
#[derive(Debug, Clone, Copy)]
pub struct Virtqueue {
    /// Entries of the queue.
    pub size: u16,
    /// Guest-physical address of the descriptor table.
    pub descriptors: u64,
    /// Guest-physical address of the available ring.
    pub available: u64,
    /// Guest-physical address of the used ring.
    pub used: u64,
}

/// Pages that the device sees, for as long as this value lives. They are contiguous for the program, and in pieces
/// for the device.
pub struct SharedPages {
    /// First byte.
    pub start: NonNull<u8>,
    /// Length in bytes.
    pub len: usize,
    /// Where the device sees the pages, in order.
    pub extents: Vec<Extent>,
    /// Gives the pages back when it is dropped.
    pub owner: Box<dyn Send + Sync>,
}

// SAFETY: an address; whoever goes through it answers for that, and `owner` may be dropped anywhere.
unsafe impl Send for SharedPages {}
// SAFETY: as above.
unsafe impl Sync for SharedPages {}

/// Memory of the program that the device sees, for as long as this value lives.
pub struct Pinned {
    /// Where the device sees the memory, in order.
    pub extents: Vec<Extent>,
    /// Ends the pin when it is dropped.
    pub owner: Box<dyn Send + Sync>,
}
