//! Headers of frames that the device cuts into segments (`IBV_WR_TSO`). The program gives them in memory that it may change as soon as the
//! request is posted; the device reads them later, from memory of our own.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vnic_verbs::{Access, MemoryRegion, ProtectionDomain, Sge};

use crate::errno::Errno;

/// Most bytes of headers (`SPEC.md`, section 8.7).
pub const HEADERS_MAX: u16 = 256;

/// Room for the headers of all requests that a queue pair can have.
pub struct Headers {
    region: MemoryRegion,
    each: usize,
    slots: u32,
    next: AtomicU32,
}

impl Headers {
    /// Room for headers of up to `each` bytes, for a send queue of so many blocks.
    pub fn new(pd: &ProtectionDomain, each: u16, blocks: u32) -> Result<Headers, Errno> {
        // A request takes a block at least. One slot more: the next one is free even when the queue is full.
        let slots = blocks + 1;
        let each = usize::from(each);
        Ok(Headers {
            region: pd.allocate(each * slots as usize, Access::empty())?,
            each,
            slots,
            next: AtomicU32::new(0),
        })
    }

    /// Most bytes of a request's headers.
    pub fn most(&self) -> usize {
        self.each
    }

    /// Copies the headers of a request that is about to be posted, of at most [`Headers::most`] bytes. The caller has the send queue's lock.
    pub fn put(&self, headers: &[u8]) -> Sge {
        let at = self.next.load(Relaxed) as usize * self.each;
        self.region.write_at(at, headers);
        self.region.slice(at..at + headers.len())
    }

    /// Takes back requests that were not posted after all: those since [`Headers::place`] gave this. The caller has the send queue's lock.
    pub fn take_back(&self, place: u32) {
        self.next.store(place, Relaxed);
    }

    /// Place of the next request's headers.
    pub fn place(&self) -> u32 {
        self.next.load(Relaxed)
    }

    /// The request was posted.
    pub fn posted(&self) {
        self.next
            .store((self.next.load(Relaxed) + 1) % self.slots, Relaxed);
    }
}
