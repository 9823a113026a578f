//! What all rings have in common: extents, indices, phases, sizes.
//!
//! An index counts everything that was ever put into a ring, modulo 2^32; the entry is at `index % entries`. Entries are
//! powers of two, at most [`ENTRIES_MAX`], so that indices can be compared ([`advance`]).

use crate::doorbell::{DoorbellTail, ENTRY_LEN};
use crate::queue::{BLOCK_LEN, CompletionEntry, CompletionTail, SharedReceiveTail};

/// Most entries or blocks that any ring may have.
pub const ENTRIES_MAX: u32 = 1 << 24;
/// Most extents of one command's list.
pub const EXTENTS_MAX: u32 = 1 << 18;
/// Least bytes of a region's extents, except the first and the last.
pub const REGION_EXTENT_MIN: u64 = 64;
/// Addresses and lengths of a ring's extents are multiples of this: a cache line never straddles two extents.
pub const ALIGNMENT: u64 = 64;

layouts! {
    /// A piece of the memory that the guest shares.
    struct Extent: 16 {
        /// Guest-physical address.
        0 gpa: u64,
        /// Bytes.
        8 len: u64,
    }

    /// Where the extents of an object are listed.
    struct ExtentList: 8 {
        /// Extents.
        0 count: u32,
        /// 0: the extents follow the command's body. Otherwise so many extents follow, which hold the list.
        4 chunks: u32,
    }
}

impl ExtentList {
    /// Extents that follow the command's body.
    pub const fn following(&self) -> u32 {
        if self.chunks == 0 { self.count } else { self.chunks }
    }
}

/// Phase bit of the entry with an index: 1 in the first lap, over memory of zeros, and then alternating. `entries` is a power
/// of two.
#[inline]
pub const fn phase(index: u32, entries: u32) -> bool {
    index & entries == 0
}

/// The producer index that is known after a doorbell, of a ring whose index was `posted` and which was read up to `read`.
/// `None`: a fault, because more would be posted than the ring has entries.
#[inline]
pub const fn advance(index: u32, posted: u32, read: u32, entries: u32) -> Option<u32> {
    // Doorbells of several rings may overtake each other: an index behind the known one says nothing new.
    if index.wrapping_sub(posted) > 1 << 31 {
        return Some(posted);
    }
    if index.wrapping_sub(read) > entries {
        return None;
    }
    Some(index)
}

/// Bytes of a doorbell ring.
pub const fn doorbell_ring_len(entries: u32) -> u64 {
    entries as u64 * ENTRY_LEN as u64 + size_of::<DoorbellTail>() as u64
}

/// Bytes of a completion queue.
pub const fn completion_ring_len(entries: u32) -> u64 {
    entries as u64 * size_of::<CompletionEntry>() as u64 + size_of::<CompletionTail>() as u64
}

/// Bytes of a send queue.
pub const fn send_ring_len(blocks: u32) -> u64 {
    blocks as u64 * BLOCK_LEN as u64
}

/// Bytes of a receive queue whose entries have `stride` bytes.
pub const fn receive_ring_len(entries: u32, stride: u32) -> u64 {
    entries as u64 * stride as u64
}

/// Offset of the tail of a shared receive queue.
pub const fn shared_receive_tail(entries: u32, stride: u32) -> u64 {
    receive_ring_len(entries, stride).next_multiple_of(ALIGNMENT)
}

/// Bytes of a shared receive queue.
pub const fn shared_receive_ring_len(entries: u32, stride: u32) -> u64 {
    shared_receive_tail(entries, stride) + size_of::<SharedReceiveTail>() as u64
}

/// Whether an extent can be one of a ring whose entries have `stride` bytes. Its address is a multiple of [`ALIGNMENT`], its
/// length of that and (except for the last extent) of the stride, and it does not reach beyond 2^64.
pub fn is_sound(extent: &Extent, last: bool, stride: u32) -> bool {
    // Both are powers of two: the larger is a multiple of the smaller.
    let unit = ALIGNMENT.max(u64::from(stride));
    extent.len > 0
        && extent.gpa.is_multiple_of(ALIGNMENT)
        && extent.len.is_multiple_of(if last { ALIGNMENT } else { unit })
        && extent.gpa.checked_add(extent.len).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_alternate_from_one() {
        let phases: [bool; 12] = core::array::from_fn(|i| phase(i as u32, 4));
        assert_eq!(phases[..4], [true; 4]);
        assert_eq!(phases[4..8], [false; 4]);
        assert_eq!(phases[8..], [true; 4]);
        // Laps go on where indices wrap.
        assert_ne!(phase(u32::MAX, 4), phase(0, 4));
        assert_ne!(phase(u32::MAX, 1), phase(0, 1));
    }

    #[test]
    fn indices_are_new_old_or_wrong() {
        for read in [0, 5, u32::MAX - 2, 1 << 31] {
            let at = |d: u32| read.wrapping_add(d);
            let posted = at(3);
            let now = |index| advance(index, posted, read, 8);
            // New, up to a full ring.
            assert_eq!(
                [now(at(3)), now(at(4)), now(at(8))],
                [3, 4, 8].map(|d| Some(at(d)))
            );
            // Old, also from before what was read.
            assert_eq!(
                [now(at(2)), now(at(0)), now(at(u32::MAX)), now(at(1 << 31 | 4))],
                [Some(posted); 4]
            );
            // Wrong.
            assert_eq!([now(at(9)), now(at(1 << 31)), now(at((1 << 31) + 3))], [None; 3]);
        }
    }

    #[test]
    fn extents_must_be_sound() {
        let sound = |gpa, len, last, stride| is_sound(&Extent { gpa, len }, last, stride);
        assert!(sound(64, 128, true, 64) && sound(64, 128, false, 64));
        assert!(!sound(32, 128, true, 64));
        assert!(!sound(64, 0, false, 64) && !sound(64, 32, true, 64));
        assert!(!sound(64, u64::MAX - 63, true, 64));
        assert!(sound(1 << 63, (1 << 63) - 64, true, 64));
        // An entry of 128 bytes would straddle two extents.
        assert!(sound(512, 64, true, 128));
        assert!(!sound(512, 64, false, 128));
    }

    #[test]
    fn tails_stand_on_lines_of_their_own() {
        assert_eq!(doorbell_ring_len(16), 256);
        assert_eq!(completion_ring_len(1), 128);
        assert_eq!(shared_receive_tail(1, 32), 64);
        assert_eq!(shared_receive_ring_len(4, 64), 320);
    }
}
