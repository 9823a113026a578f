//! Places for messages in registered memory.

use vnic_verbs::{MemoryRegion, Sge};

use crate::exchange::Area;
use crate::failure::{Failure, Result};
use crate::pattern::{self, Found};

/// Memory for all places of one kind.
const BUDGET: u64 = 16 << 20;
/// Places begin at cache lines.
const LINE: u64 = 64;
/// Bytes that are made or compared at a time.
const PIECE: usize = 4096;

/// Layout of places: for each queue pair `count`, `step` bytes apart. Message *i* has place *i* mod
/// `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Places of a queue pair.
    pub count: u64,
    /// Bytes from one place to the next.
    pub step: u64,
    /// Bytes from the places of a queue pair to those of the next.
    pub stride: u64,
}

impl Layout {
    /// At most `most` places for messages of `size` bytes; fewer, when the messages are long.
    pub fn new(qps: u32, size: u32, most: u32) -> Layout {
        let step = u64::from(size).max(1).next_multiple_of(LINE);
        let count = (BUDGET / u64::from(qps) / step).clamp(1, most.max(1).into());
        Layout {
            count,
            step,
            stride: count * step,
        }
    }

    /// Layout of the peer's places. Numbers that the peer does not give are as here.
    pub fn of_peer(area: &Area, qps: u32, size: u32) -> Option<Layout> {
        let stride = area.len / u64::from(qps);
        let step = area
            .step
            .unwrap_or_else(|| u64::from(size).max(1).next_multiple_of(LINE).min(stride));
        let room = if step < size.into() {
            None
        } else {
            stride.checked_div(step)
        };
        let count = area.slots.unwrap_or(room?.min(128));
        // A peer that announces more than it has would make us write elsewhere.
        (count > 0 && count <= room?).then_some(Layout { count, step, stride })
    }

    /// Bytes of the places of all queue pairs.
    pub fn bytes(&self, qps: u32) -> usize {
        usize::try_from(self.stride * u64::from(qps)).unwrap_or(usize::MAX)
    }

    /// Offset of message `i` of a queue pair in the memory.
    #[inline]
    pub fn offset(&self, queue: usize, i: u64) -> u64 {
        queue as u64 * self.stride + i % self.count * self.step
    }

    /// The last of `sent` messages with this place; `None` if it was never used.
    pub fn last_in(&self, place: u64, sent: u64) -> Option<u64> {
        let newest = sent.checked_sub(1)?;
        Some(place + newest.checked_sub(place)? / self.count * self.count)
    }
}

/// Places in memory of this side.
pub struct Slots<'a> {
    region: &'a MemoryRegion,
    /// Layout of the places.
    pub layout: Layout,
    size: u32,
    /// Bytes in front of a message.
    head: u32,
}

impl<'a> Slots<'a> {
    /// Places for messages of `size` bytes, each with `head` bytes in front.
    pub fn new(region: &'a MemoryRegion, layout: Layout, size: u32, head: u32) -> Slots<'a> {
        Slots {
            region,
            layout,
            size,
            head,
        }
    }

    #[inline]
    fn at(&self, queue: usize, i: u64) -> usize {
        self.layout.offset(queue, i) as usize
    }

    /// The element of message `i`, with the bytes in front of it.
    #[inline]
    pub fn sge(&self, queue: usize, i: u64) -> Sge {
        let at = self.at(queue, i);
        self.region.slice(at..at + (self.head + self.size) as usize)
    }

    /// Copies message `i` out.
    pub fn read(&self, queue: usize, i: u64, into: &mut [u8]) {
        self.region.read_at(self.at(queue, i) + self.head as usize, into);
    }

    /// Bytes of a message.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Makes the place of message `i` empty.
    pub fn wipe(&self, queue: usize, i: u64) {
        let at = self.at(queue, i);
        self.region.fill(at..at + (self.head + self.size) as usize, 0);
    }

    /// Writes message `i`.
    pub fn fill(&self, queue: usize, i: u64, seed: u64) {
        let at = self.at(queue, i) + self.head as usize;
        let mut bytes = [0; PIECE];
        for skip in (0..self.size as usize).step_by(PIECE) {
            let piece = &mut bytes[..PIECE.min(self.size as usize - skip)];
            pattern::fill(seed, skip, piece);
            self.region.write_at(at + skip, piece);
        }
    }

    /// The first byte of message `i` that is wrong.
    pub fn first_difference(&self, queue: usize, i: u64, seed: u64) -> Option<usize> {
        let at = self.at(queue, i) + self.head as usize;
        let mut bytes = [0; PIECE];
        for skip in (0..self.size as usize).step_by(PIECE) {
            let piece = &mut bytes[..PIECE.min(self.size as usize - skip)];
            self.region.read_at(at + skip, piece);
            if let Some(wrong) = pattern::first_difference(seed, skip, piece) {
                return Some(skip + wrong);
            }
        }
        None
    }

    /// An error that names the first byte of message `i` that is wrong, if one is.
    pub fn check(&self, queue: usize, i: u64, seed: u64, what: impl FnOnce() -> String) -> Result {
        match self.first_difference(queue, i, seed) {
            None => Ok(()),
            Some(at) => Err(Failure::Data(format!(
                "{} differs from byte {at} on (seed {seed})",
                what()
            ))),
        }
    }

    /// Content of the place of message `i`, into which earlier ones were written as well, perhaps in part.
    pub fn search(
        &self,
        queue: usize,
        i: u64,
        packet: usize,
        seeds: impl Iterator<Item = u64> + Clone,
    ) -> Found {
        let at = self.at(queue, i) + self.head as usize;
        pattern::search(&self.region.read_vec(at, self.size as usize), packet, seeds)
    }

    /// The last byte of message `i`.
    pub fn last_byte(&self, queue: usize, i: u64) -> usize {
        self.at(queue, i) + (self.head + self.size) as usize - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_keep_within_the_budget() {
        for (qps, size, most) in [
            (1, 0, 128),
            (1, 65536, 128),
            (1024, 65536, 128),
            (1, 8 << 20, 128),
            (3, 100, 7),
        ] {
            let layout = Layout::new(qps, size, most);
            assert!(layout.step >= u64::from(size) && layout.count >= 1 && layout.count <= u64::from(most));
            assert!(
                layout.count == 1 || layout.bytes(qps) as u64 <= BUDGET,
                "{qps} {size}: {layout:?}"
            );
            assert_eq!(layout.offset(1, 0), layout.stride);
            assert_eq!(
                layout.offset(0, layout.count + 1),
                layout.offset(0, 1 % layout.count)
            );
        }
    }

    #[test]
    fn the_last_message_of_a_place() {
        let layout = Layout::new(1, 64, 4);
        let last: Vec<_> = (0..4).map(|place| layout.last_in(place, 6)).collect();
        assert_eq!(last, [Some(4), Some(5), Some(2), Some(3)]);
        assert_eq!((layout.last_in(0, 0), layout.last_in(3, 3)), (None, None));
    }

    #[test]
    fn a_peer_is_not_believed_everything() {
        let area = |len, slots, step| Area {
            addr: 0,
            rkey: 0,
            len,
            slots,
            step,
        };
        let layout = Layout::of_peer(&area(4096, None, None), 1, 100).expect("a layout");
        assert_eq!((layout.count, layout.step), (32, 128));
        let layout = Layout::of_peer(&area(100, None, None), 1, 100).expect("a layout");
        assert_eq!((layout.count, layout.step), (1, 100));
        assert_eq!(Layout::of_peer(&area(4096, Some(65), Some(64)), 1, 64), None);
        assert_eq!(Layout::of_peer(&area(4096, Some(1), Some(64)), 1, 65), None);
        assert_eq!(Layout::of_peer(&area(64, None, None), 1, 65), None);
        assert_eq!(
            Layout::of_peer(&area(4096, Some(u64::MAX), Some(u64::MAX)), 1, 64),
            None
        );
        assert_eq!(Layout::of_peer(&area(4096, Some(1), Some(0)), 1, 0), None);
    }
}
