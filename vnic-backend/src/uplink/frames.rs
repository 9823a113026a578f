//! Types that pass between a data core and the halves of an uplink device, and the wait for any of a device's queues.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use vnic_engine::virtio_net::NetHdr;

use crate::mem::Lasting;

/// Largest number of frames that a device gets at once.
pub const SEND_BURST: usize = 64;

/// A frame from the wire, until the next one is taken.
pub struct Arrived<'a> {
    /// Bytes of the frame, which the core may change.
    pub bytes: &'a mut [u8],
    /// Offload request of its sender.
    pub hdr: NetHdr,
    /// Whether the frame stays where it is until [`RxHalf::release`](super::device::RxHalf::release).
    pub lasts: Option<Lasting>,
    /// When the frame came to the kernel, or to hardware that says so, in ns since 1970; 0: unknown.
    pub stamp: u64,
}

/// Result of frames that a device got.
pub enum Sent {
    /// The device has taken this many of them, one or more.
    Some(usize),
    /// The device refuses the first one.
    Refused,
    /// The device takes none now.
    Full,
}

/// An epoll set that is ready when any of several queues is; one queue needs none.
pub fn any_of(queues: impl ExactSizeIterator<Item = impl AsFd>) -> io::Result<Option<OwnedFd>> {
    if queues.len() <= 1 {
        return Ok(None);
    }
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    for queue in queues {
        epoll::add(&set, queue, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(Some(set))
}
