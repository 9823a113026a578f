//! The driver's half of a split virtqueue (virtio 1.3, section 2.7), with no optional feature.

use vnic_device::ring::Extent;

use crate::Error;
use crate::extents::part_of;
use crate::shared::Memory;
use crate::sync::{Acquire, Relaxed, Release, SeqCst, fence};
use crate::transport::{Transport, Virtqueue};

/// Most entries: so many descriptors fill one page of 4096 bytes, and the two rings fit into another. A page is
/// the least that is contiguous for the device.
pub(crate) const SIZE_MAX: u16 = 256;

const DESCRIPTOR: usize = 16;
const PAGE: usize = 4096;
const NEXT: u64 = 1;
const WRITE: u64 = 2;
/// `VIRTQ_USED_F_NO_NOTIFY`: the device wants no notification.
const NO_NOTIFY: u16 = 1;

/// A piece of a descriptor chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Address and length.
    pub extent: Extent,
    /// Whether the device writes it.
    pub write: bool,
}

/// A chain that the device gave back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    /// First descriptor of the chain.
    pub head: u16,
    /// Bytes that the device wrote.
    pub len: u32,
}

/// A virtqueue, driven by one thread at a time.
pub(crate) struct Queue {
    memory: Memory,
    size: u16,
    layout: Virtqueue,
    available: u16,
    used: u16,
}

/// Offset of the available ring; the used ring follows it.
const AVAILABLE: usize = PAGE;

impl Queue {
    /// Makes a queue of at most `size` entries, in new memory.
    pub fn new(transport: &dyn Transport, size: u16) -> Result<Queue, Error> {
        if size == 0 || !size.is_power_of_two() {
            return Err(Error::Protocol(format!("a virtqueue of {size} entries")));
        }
        let size = size.min(SIZE_MAX);
        let (memory, extents) = Memory::allocate(transport, 2 * PAGE)?;
        let at = |offset: usize, len: usize| match part_of(&extents, offset as u64, len as u64)[..] {
            [Extent { gpa, len: have }] if have == len as u64 => Ok(gpa),
            _ => Err(Error::Protocol(
                "a page of the transport is not contiguous".into(),
            )),
        };
        let n = usize::from(size);
        let used_offset = used_offset(size);
        let layout = Virtqueue {
            size,
            descriptors: at(0, DESCRIPTOR * n)?,
            available: at(AVAILABLE, 6 + 2 * n)?,
            used: at(used_offset, 6 + 8 * n)?,
        };
        Ok(Queue {
            memory,
            size,
            layout,
            available: 0,
            used: 0,
        })
    }

    /// Addresses of the queue, for the transport.
    pub fn layout(&self) -> Virtqueue {
        self.layout
    }

    /// Entries of the queue.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The memory of the queue alone.
    pub fn into_memory(self) -> Memory {
        self.memory
    }

    /// Writes a chain into the descriptors from `first` on. The caller makes sure that they are free.
    pub fn describe(&mut self, first: u16, pieces: &[Piece]) {
        for (i, piece) in pieces.iter().enumerate() {
            let number = usize::from(first) + i;
            let last = i + 1 == pieces.len();
            let flags = if last { 0 } else { NEXT } | if piece.write { WRITE } else { 0 };
            let next = if last { 0 } else { number as u64 + 1 };
            let at = DESCRIPTOR * number;
            self.memory.u64(at).store(piece.extent.gpa, Relaxed);
            let word = (piece.extent.len & 0xffff_ffff) | (flags << 32) | (next << 48);
            self.memory.u64(at + 8).store(word, Relaxed);
        }
    }

    /// Makes a chain available. Returns whether the device wants a notification.
    pub fn offer(&mut self, head: u16) -> bool {
        let slot = AVAILABLE + 4 + 2 * usize::from(self.available % self.size);
        self.memory.u16(slot).store(head, Relaxed);
        self.available = self.available.wrapping_add(1);
        self.memory.u16(AVAILABLE + 2).store(self.available, Release);
        // The device looks at the index after it has asked for notifications (virtio 1.3, section 2.7.13.4.1).
        fence(SeqCst);
        self.memory.u16(used_offset(self.size)).load(Relaxed) & NO_NOTIFY == 0
    }

    /// Has the device given back a chain that was not taken yet?
    pub fn has_used(&self) -> bool {
        self.memory.u16(used_offset(self.size) + 2).load(Acquire) != self.used
    }

    /// Takes a chain that the device gave back.
    pub fn take(&mut self) -> Option<Used> {
        if !self.has_used() {
            return None;
        }
        let entry = used_offset(self.size) + 4 + 8 * usize::from(self.used % self.size);
        let head = self.memory.u32(entry).load(Relaxed) as u16;
        let len = self.memory.u32(entry + 4).load(Relaxed);
        self.used = self.used.wrapping_add(1);
        Some(Used { head, len })
    }
}

/// Offset of the used ring: the next multiple of 4 behind the available ring.
fn used_offset(size: u16) -> usize {
    (AVAILABLE + 6 + 2 * usize::from(size)).next_multiple_of(4)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::driver::tests::fake::Fake;

    #[test]
    fn chains_stand_as_virtio_says() {
        let fake = Fake::new(4096);
        let mut queue = Queue::new(&fake, 8).expect("a queue");
        let piece = |gpa, len, write| Piece {
            extent: Extent { gpa, len },
            write,
        };
        queue.describe(
            2,
            &[
                piece(0x1000, 24, false),
                piece(0x2000, 40, false),
                piece(0x3000, 64, true),
            ],
        );
        assert!(queue.offer(2));
        let layout = queue.layout();
        assert_eq!(layout.size, 8);
        let word = |gpa| fake.u64(gpa);
        assert_eq!(word(layout.descriptors + 32), 0x1000);
        assert_eq!(word(layout.descriptors + 40), 0x0003_0001_0000_0018);
        assert_eq!(word(layout.descriptors + 56), 0x0004_0001_0000_0028);
        assert_eq!(word(layout.descriptors + 72), 0x0000_0002_0000_0040);
        // flags 0, index 1, first entry 2.
        assert_eq!(word(layout.available) & 0xffff_ffff_ffff, 0x0002_0001_0000);
        assert_eq!(queue.take(), None);
        fake.set_u64(layout.used + 4, 16 << 32 | 2);
        fake.set_u16(layout.used + 2, 1);
        assert_eq!(queue.take(), Some(Used { head: 2, len: 16 }));
        assert_eq!(queue.take(), None);
        fake.set_u16(layout.used, 1);
        assert!(!queue.offer(2));
    }

    #[test]
    fn rings_are_aligned_and_within_a_page() {
        for size in [1, 2, 4, 16, 64, 128, 256] {
            assert_eq!(used_offset(size) % 4, 0);
            assert!(used_offset(size) + 6 + 8 * usize::from(size) <= 2 * PAGE);
        }
    }
}
