//! The driver's half of a receive ring, of a queue pair's own or shared (`SPEC.md`, sections 8.2 and 8.3).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vnic_device::queue::{Element, ReceiveHead};
use vnic_device::zerocopy::transmute;

use crate::PostReason;
use crate::shared::Memory;
use crate::wr::{Place, RecvWr};

pub(crate) struct ReceiveRing {
    memory: Memory,
    entries: u32,
    stride: u32,
    elements: u32,
    producer: u32,
}

impl ReceiveRing {
    /// A ring in memory of zeros. A ring of no entries has no room.
    pub fn new(memory: Memory, entries: u32, stride: u32, elements: u32) -> ReceiveRing {
        ReceiveRing {
            memory,
            entries,
            stride,
            elements,
            producer: 0,
        }
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Index behind the last entry that was written.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// Takes back entries from `producer` on, which the device was not told of.
    pub fn take_back(&mut self, producer: u32) {
        self.producer = producer;
    }

    /// Ends the oldest receive from `consumed` on, for a device that is gone; answers its number.
    pub fn flush(&self, consumed: &AtomicU32) -> Option<u64> {
        let at = consumed.load(Relaxed);
        let left = self.producer.wrapping_sub(at);
        if left == 0 || left > self.entries {
            return None;
        }
        consumed.store(at.wrapping_add(1), Relaxed);
        let at = (at & (self.entries - 1)) as usize * self.stride as usize;
        // The number comes first in an entry.
        Some(self.memory.u64(at).load(Relaxed))
    }

    /// Forgets all entries.
    pub fn reset(&mut self) {
        self.producer = 0;
    }

    /// Whether the ring is full, if entries before `free` are free.
    #[inline]
    pub fn is_full(&self, free: u32) -> bool {
        self.producer.wrapping_sub(free) >= self.entries
    }

    /// Writes a receive, if it does not have too many elements and there is room.
    #[inline]
    pub fn write(&mut self, wr: &RecvWr<'_>, free: u32) -> Result<(), PostReason> {
        if let Place::Inline(_) | Place::Bind(_) | Place::Atomic(..) = wr.data.0 {
            return Err(PostReason::Malformed);
        }
        let elements = wr.data.elements();
        if elements.len() > self.elements as usize {
            return Err(PostReason::Length);
        }
        if self.is_full(free) {
            return Err(PostReason::Full);
        }
        let at = (self.producer & (self.entries - 1)) as usize * self.stride as usize;
        let head: [u64; 2] = transmute!(ReceiveHead {
            wr_id: wr.id,
            elements: elements.len() as u32,
            reserved: 0,
        });
        let words = &self.memory.words(self.entries as usize * self.stride as usize)[at / 8..];
        let mut words = words.iter();
        let mut put = |pair: [u64; 2]| {
            for (value, word) in pair.into_iter().zip(&mut words) {
                word.store(value, Relaxed);
            }
        };
        put(head);
        for sge in elements {
            put(transmute!(Element {
                addr: sge.addr,
                len: sge.len,
                lkey: sge.lkey,
            }));
        }
        self.producer = self.producer.wrapping_add(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Sge;
    use crate::shared::tests::memory;

    fn sge(addr: u64, len: u32, lkey: u32) -> Sge {
        Sge { addr, len, lkey }
    }

    /// The receive of section 13.
    #[test]
    fn a_receive_is_as_in_the_examples() {
        let mut ring = ReceiveRing::new(memory(4 * 32), 4, 32, 1);
        ring.producer = 5;
        let wr = RecvWr::new(sge(0x7f00_0000_1800, 256, 0x1200)).id(0x2a);
        assert_eq!(ring.write(&wr, 5), Ok(()));
        let mut bytes = [0; 32];
        ring.memory.read(32, &mut bytes);
        let expected = [
            0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, //
            0, 0x18, 0, 0, 0, 0x7f, 0, 0, 0, 1, 0, 0, 0, 0x12, 0, 0,
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_ring_holds_what_it_has_entries() {
        let mut ring = ReceiveRing::new(memory(4 * 64), 4, 64, 3);
        ring.producer = u32::MAX - 1;
        let free = ring.producer;
        let three = [sge(1, 2, 3), sge(4, 5, 6), sge(7, 8, 9)];
        for _ in 0..4 {
            assert_eq!(ring.write(&RecvWr::new(&three), free), Ok(()));
        }
        assert_eq!(ring.write(&RecvWr::new(&three), free), Err(PostReason::Full));
        assert_eq!(ring.write(&RecvWr::new(&three), free.wrapping_add(1)), Ok(()));
        assert_eq!(ring.producer(), 3);
        assert_eq!(
            ring.write(&RecvWr::new(&[sge(1, 2, 3); 4]), 3),
            Err(PostReason::Length)
        );
        assert_eq!(
            ring.write(&RecvWr::new(crate::Data::inline(b"x")), 3),
            Err(PostReason::Malformed)
        );
    }

    #[test]
    fn a_queue_without_entries_is_full() {
        let mut ring = ReceiveRing::new(Memory::none(), 0, 32, 0);
        assert_eq!(
            ring.write(&RecvWr::new(crate::Data::NONE), 0),
            Err(PostReason::Full)
        );
    }
}
