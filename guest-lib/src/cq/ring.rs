//! The driver's half of a completion ring.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use vnic_device::queue::CompletionEntry;
use vnic_device::ring::{completion_ring_len, phase};

use super::WorkCompletion;
use crate::shared::Memory;

/// Words of an entry.
const WORDS: usize = size_of::<CompletionEntry>() / 8;

pub(super) struct Ring {
    memory: Memory,
    entries: u32,
    consumer: u32,
}

impl Ring {
    /// A ring in memory of zeros.
    pub fn new(memory: Memory, entries: u32) -> Ring {
        let len = completion_ring_len(entries) as usize;
        Ring {
            memory: memory.part(0, len),
            entries,
            consumer: 0,
        }
    }

    pub fn memory(&self) -> Memory {
        self.memory.clone()
    }

    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Completions taken so far.
    pub fn consumer(&self) -> u32 {
        self.consumer
    }

    /// The entry with an index, if the device has written it.
    #[inline]
    fn entry(&self, index: u32) -> Option<WorkCompletion> {
        let words = self.memory.words(self.entries as usize * WORDS * 8);
        let entries = words.as_chunks::<WORDS>().0;
        let words = entries.get((index & (self.entries - 1)) as usize)?;
        let last = words[WORDS - 1].load(Acquire);
        if CompletionEntry::phase(last) != phase(index, self.entries) {
            return None;
        }
        let mut entry = [last; WORDS];
        for (value, word) in entry[..WORDS - 1].iter_mut().zip(words) {
            *value = word.load(Relaxed);
        }
        Some(WorkCompletion(CompletionEntry::from_words(entry)))
    }

    /// Takes the next completion, if the device has written it.
    #[inline]
    pub fn take(&mut self) -> Option<WorkCompletion> {
        let entry = self.entry(self.consumer)?;
        self.consumer = self.consumer.wrapping_add(1);
        Some(entry)
    }

    /// Whether the device has written the entry with an index.
    fn is_there(&self, index: u32) -> bool {
        let last = (index & (self.entries - 1)) as usize * WORDS + WORDS - 1;
        let words = self.memory.words(self.entries as usize * WORDS * 8);
        CompletionEntry::phase(words[last].load(Acquire)) == phase(index, self.entries)
    }

    /// The index behind the last completion that the device has written, taken or not.
    pub fn seen(&self) -> u32 {
        // Completions that were not taken lie side by side from the consumer's index on.
        let (mut there, mut end) = (0, self.entries);
        if !self.is_there(self.consumer) {
            return self.consumer;
        }
        while end - there > 1 {
            let middle = there + (end - there) / 2;
            if self.is_there(self.consumer.wrapping_add(middle)) {
                there = middle;
            } else {
                end = middle;
            }
        }
        self.consumer.wrapping_add(there + 1)
    }

    /// Tells the device up to where completions were taken.
    #[inline]
    pub fn publish(&self) {
        let tail = self.entries as usize * WORDS * 8;
        self.memory.u32(tail).store(self.consumer, Release);
    }

    /// Completions that were not taken yet.
    pub fn waiting(&self) -> u32 {
        self.seen().wrapping_sub(self.consumer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::memory;

    const ENTRIES: u32 = 16;

    fn ring() -> Ring {
        Ring::new(memory(completion_ring_len(ENTRIES) as usize), ENTRIES)
    }

    fn put(ring: &Ring, index: u32, mut entry: CompletionEntry) {
        entry.phase = if phase(index, ring.entries) { 0x80 } else { 0 };
        let at = (index % ring.entries) as usize * 64;
        for (i, word) in entry.to_words().iter().enumerate() {
            ring.memory.u64(at + 8 * i).store(*word, Release);
        }
    }

    /// The completion of section 13.
    #[test]
    fn the_example_is_read() {
        let mut ring = ring();
        ring.consumer = 4;
        let bytes = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x02, 0x01, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0xca, 0x9a, 0x3b, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
            0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 1, 0, 0x80u8,
        ];
        ring.memory.write(4 * 64, &bytes);
        let wc = ring.take().expect("it is there");
        assert_eq!(wc.id(), 0x1122_3344_5566_7788);
        assert_eq!(wc.qp(), 0x102);
        assert_eq!(wc.time().as_secs(), 1);
        assert!(wc.is_success() && !wc.is_receive());
        assert_eq!(wc.0.consumed, 6);
        assert!(ring.take().is_none());
        ring.publish();
        assert_eq!(ring.memory.u32(ENTRIES as usize * 64).load(Relaxed), 5);
    }

    #[test]
    fn laps_are_told_apart() {
        let mut ring = ring();
        let entry = |wr_id| CompletionEntry {
            wr_id,
            ..CompletionEntry::default()
        };
        let mut next = 0;
        for lap in 0..40 {
            let count = 1 + lap % ENTRIES;
            for i in 0..count {
                put(&ring, next + i, entry(u64::from(next + i)));
            }
            assert_eq!(ring.waiting(), count);
            assert_eq!(ring.seen(), next + count);
            for i in 0..count {
                assert_eq!(ring.take().map(|wc| wc.id()), Some(u64::from(next + i)));
            }
            assert!(ring.take().is_none());
            next += count;
            assert_eq!(ring.seen(), next);
        }
    }

    #[test]
    fn a_full_ring_has_no_more_than_it_holds() {
        let ring = ring();
        for i in 0..ENTRIES {
            put(&ring, i, CompletionEntry::default());
        }
        assert_eq!(ring.waiting(), ENTRIES);
        assert_eq!(ring.seen(), ENTRIES);
    }
}
