//! Configuration space, and the virtqueues.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First bytes of the configuration space of an RDMA function. The virtio device id does not decide what it is.
pub const MAGIC: [u8; 4] = *b"VROC";
/// Contracts with another major version cannot be spoken.
pub const ABI_MAJOR: u16 = 1;
/// Newest minor version here: only adds.
pub const ABI_MINOR: u16 = 0;
/// Virtio device id.
pub const VIRTIO_ID: u16 = 42;

/// Virtqueue of the commands.
pub const CONTROL_QUEUE: u16 = 0;
/// Virtqueue of the first event queue; those that carry only wake-ups follow the event queues.
pub const FIRST_EVENT_QUEUE: u16 = 1;

/// Configuration space: 64 bytes, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Config {
    /// [`MAGIC`].
    pub magic: [u8; 4],
    /// [`ABI_MAJOR`].
    pub abi_major: u16,
    /// Newest minor version the device speaks.
    pub abi_minor: u16,
    /// Bytes of this structure that mean something.
    pub config_len: u16,
    /// Event virtqueues.
    pub event_queues: u16,
    /// Wake-up virtqueues.
    pub wake_queues: u16,
    /// Ethernet address of the adapter.
    pub mac: [u8; 6],
    /// Zero.
    pub reserved: [u8; 44],
}

const _: () = assert!(size_of::<Config>() == 64);
