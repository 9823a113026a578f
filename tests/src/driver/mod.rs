//! A guest without a machine: its memory, its virtio-net driver and its VMM's half of vhost-user, in this process.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use vnic_tests::driver::{Guest, NetHdr, Options};
//!
//! let mut guest = Guest::attach("/run/vnic/vf0-eth.sock", Options::default())?;
//! guest.send(0, &[0xff; 60], NetHdr::default());
//! if let Some((hdr, num_buffers, frame)) = guest.recv(0, Instant::now() + Duration::from_secs(1)) {
//!     println!("{} bytes in {num_buffers} buffers, {hdr:?}", frame.len());
//! }
//! guest.detach()?;
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! The driver checks what the device does to it: a used entry that was never available, was used before, or is
//! out of order is a panic.

pub mod attacks;
mod guest;
pub mod host;
mod memory;
mod migration;
mod packed;
pub mod packets;
pub mod pair;
mod queue;
pub mod rdma;
pub mod rig;
mod ring;
pub mod veth;
mod wire;

pub use guest::Guest;
pub use memory::GuestMem;
pub use migration::Log;
pub use packed::Packed;
pub use queue::Queue;
pub use ring::{Desc, INDIRECT, NEXT, Ring, WRITE};
pub use vnic_engine::virtio_net::{NetHdr, feature};
pub use wire::Wire;

/// How a frame and its virtio header lie in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Both in one descriptor.
    Same,
    /// The header has a descriptor of its own, as old drivers do.
    Separate,
    /// Over at most so many descriptors (at least 3), the first two cutting the header into pieces.
    Split(u16),
}

impl Layout {
    /// Descriptors a buffer needs at most.
    pub fn most(self) -> u16 {
        match self {
            Layout::Same => 1,
            Layout::Separate => 2,
            Layout::Split(n) => n.max(3),
        }
    }
}

/// What kind of guest it is.
#[derive(Debug, Clone)]
pub struct Options {
    /// Feature bits the driver accepts; attaching fails when one is not offered.
    pub features: u64,
    /// Queue pairs to enable.
    pub pairs: u16,
    /// Entries of each ring.
    pub queue_size: u16,
    /// Bytes of a receive buffer, virtio header included.
    pub rx_buffer: u32,
    /// Bytes of a transmit buffer, virtio header included: the longest frame it can send.
    pub tx_buffer: u32,
    /// How receive buffers are laid out.
    pub rx_layout: Layout,
    /// How frames are laid out.
    pub tx_layout: Layout,
    /// Use indirect tables (accept the feature too).
    pub indirect: bool,
    /// Receive buffers to post for each queue when attaching; as many as fit when more.
    pub post: u16,
    /// Post a receive buffer again as soon as its frame was read.
    pub repost: bool,
    /// Ask for interrupts.
    pub calls: bool,
    /// Begin with ring indices here instead of 0 (as if the rings had been in use before).
    pub start_at: u16,
}

/// What a modern driver without offloads accepts.
pub const PLAIN: u64 = feature::VERSION_1 | feature::MRG_RXBUF | feature::PROTOCOL_FEATURES;
/// Everything about checksums and segmentation.
pub const OFFLOADS: u64 = feature::CSUM
    | feature::GUEST_CSUM
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::GUEST_TSO4
    | feature::GUEST_TSO6
    | feature::GUEST_ECN
    | feature::HOST_USO
    | feature::GUEST_USO4
    | feature::GUEST_USO6;

impl Default for Options {
    fn default() -> Self {
        Options {
            features: PLAIN,
            pairs: 1,
            queue_size: 256,
            rx_buffer: 2048,
            tx_buffer: 2048,
            rx_layout: Layout::Same,
            tx_layout: Layout::Same,
            indirect: false,
            post: u16::MAX,
            repost: true,
            calls: false,
            start_at: 0,
        }
    }
}

impl Options {
    /// Accepts these feature bits too.
    pub fn with(mut self, features: u64) -> Self {
        self.features |= features;
        self
    }

    /// Does not accept these feature bits.
    pub fn without(mut self, features: u64) -> Self {
        self.features &= !features;
        self
    }

    /// Bytes of the virtio header.
    pub fn hdr_len(&self) -> usize {
        if self.features & feature::HASH_REPORT != 0 {
            return NetHdr::LEN_HASH;
        }
        let long = self.features & (feature::VERSION_1 | feature::MRG_RXBUF) != 0;
        if long { NetHdr::LEN } else { NetHdr::LEN_LEGACY }
    }
}
