//! Handles: a table of objects in which an old handle never finds a newer object.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::types::{Object, VerbsError};

/// End of the list of freed slots.
const NONE: u32 = u32::MAX;

/// Freed slots that rest before the one that was freed first is used again: an adapter that creates and destroys one
/// object over and over goes through `REST` times the generations before a handle comes back.
const REST: u32 = 64;

/// A number in which each bit of `x` turns half of the bits (the finaliser of MurmurHash3, as SplitMix64 has it).
pub(super) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// A place for an object.
#[derive(Debug)]
struct Slot<T> {
    /// How often the slot was freed; the low bits are part of the handle.
    uses: u32,
    /// The slot that was freed after this one, while both are free.
    next: u32,
    /// Boxed: free slots stay small, and nothing is moved when the table grows.
    object: Option<Box<T>>,
}

/// Objects of one kind by handle. A handle is an index and, in the bits above it, the generation of the slot, which starts
/// at 0, or anywhere ([`scattered`](Table::scattered)), counts how often the slot was freed, and wraps.
#[derive(Debug)]
pub struct Table<T> {
    slots: Vec<Slot<T>>,
    free_head: u32,
    free_tail: u32,
    free: u32,
    len: u32,
    /// Index of the first slot.
    first: u32,
    /// Seed of the slots' first generations; 0: all begin with 0.
    seed: u64,
    /// Whether each slot begins with a generation of its own.
    each: bool,
    limit: u32,
    index_bits: u32,
    generation_mask: u32,
    /// Bits of the generation that count; those above them are [`prefix`](Table::with_prefix).
    counted: u32,
    prefix: u32,
    object: Object,
}

impl<T> Table<T> {
    /// An empty table of at most `limit` objects. Handles have `total_bits` bits, at most 32, of which the low
    /// `index_bits` are the index. A limit that the index cannot hold is lowered to what it can.
    pub fn new(object: Object, limit: u32, index_bits: u32, total_bits: u32) -> Table<T> {
        let total_bits = total_bits.clamp(1, 32);
        let index_bits = index_bits.clamp(1, total_bits).min(31);
        Table {
            slots: Vec::new(),
            free_head: NONE,
            free_tail: NONE,
            free: 0,
            len: 0,
            first: 0,
            seed: 0,
            each: false,
            limit: limit.min(1 << index_bits),
            index_bits,
            // `index_bits` is at least 1, so the shift is below 32.
            generation_mask: (1 << (total_bits - index_bits)) - 1,
            counted: (1 << (total_bits - index_bits)) - 1,
            prefix: 0,
            object,
        }
    }

    /// As [`new`](Table::new), but the upper `bits` bits of all handles are `prefix`: tables with other prefixes have other
    /// handles. Only for a table that is still empty.
    #[must_use]
    pub fn with_prefix(mut self, bits: u32, prefix: u32) -> Table<T> {
        self.counted = self.generation_mask >> bits;
        self.prefix = prefix << self.counted.count_ones() & self.generation_mask;
        self
    }

    /// As [`new`](Table::new), but indices below `first` are never given out, in any generation. Only for a table that is
    /// still empty.
    #[must_use]
    pub fn with_first_index(mut self, first: u32) -> Table<T> {
        let room = (1u32 << self.index_bits).saturating_sub(first);
        self.limit = self.limit.min(room);
        self.first = first;
        self
    }

    /// Makes numbers that peers know begin anywhere, so that nobody else guesses them. `seed` decides on the first index,
    /// of those that leave room for all objects and for one more, and on the first generation. `each`: every slot has a
    /// first generation of its own; otherwise all have the same, so that numbers go up in a row. With seed 0 they begin
    /// with the least. Only for a table that is still empty.
    #[must_use]
    pub fn scattered(mut self, seed: u64, each: bool) -> Table<T> {
        let rest = (1u32 << self.index_bits).saturating_sub(self.first + self.limit + 1);
        if seed != 0 {
            self.first += ((u64::from(rest) * (mix(seed) >> 32)) >> 32) as u32;
        }
        self.seed = seed;
        self.each = each;
        self
    }

    /// The generation that a slot begins with.
    fn begin(&self, at: u32) -> u32 {
        let begin = match self.seed {
            0 => 0,
            seed if self.each => mix(seed ^ mix(at.into())) as u32,
            seed => mix(seed) as u32,
        };
        begin & !(self.generation_mask ^ self.counted) | self.prefix
    }

    /// What follows `uses` when a slot is freed: its bits that count go up, and carry over those of the prefix.
    fn after(&self, uses: u32) -> u32 {
        let counted = uses.wrapping_add(1) & self.counted;
        let carry = if counted == 0 { self.generation_mask + 1 } else { 0 };
        (uses & !self.counted | counted).wrapping_add(carry)
    }

    /// Takes an object and returns its handle.
    pub fn insert(&mut self, object: T) -> Result<u32, VerbsError> {
        if self.len >= self.limit {
            return Err(VerbsError::LimitReached {
                object: self.object,
                limit: self.limit,
            });
        }
        let can_grow = (self.slots.len() as u32) < self.limit;
        let at = if self.free < REST && can_grow {
            let at = self.slots.len() as u32;
            self.slots.push(Slot {
                uses: self.begin(at),
                next: NONE,
                object: None,
            });
            at
        } else {
            self.take_free()
        };
        let handle = self.handle(at);
        let slot = &mut self.slots[at as usize];
        slot.object = Some(Box::new(object));
        self.len += 1;
        Ok(handle)
    }

    /// The slot that was freed first. There is one: `len < limit <= slots`.
    fn take_free(&mut self) -> u32 {
        let at = self.free_head;
        self.free_head = self.slots[at as usize].next;
        if self.free_head == NONE {
            self.free_tail = NONE;
        }
        self.free -= 1;
        at
    }

    /// The handle of a slot as it is now.
    fn handle(&self, at: u32) -> u32 {
        let generation = self.slots[at as usize].uses & self.generation_mask;
        generation << self.index_bits | (self.first + at)
    }

    /// The slot of a handle, if its object is still there.
    #[inline]
    fn slot(&self, handle: u32) -> Option<usize> {
        // A number below the first index becomes an index beyond all slots.
        let at = self.index(handle).wrapping_sub(self.first as usize);
        let generation = self.slots.get(at)?.uses & self.generation_mask;
        (generation == handle >> self.index_bits).then_some(at)
    }

    /// The object of a handle.
    #[inline]
    pub fn get(&self, handle: u32) -> Option<&T> {
        self.slots[self.slot(handle)?].object.as_deref()
    }

    /// The object of a handle, to change it.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Option<&mut T> {
        let at = self.slot(handle)?;
        self.slots[at].object.as_deref_mut()
    }

    /// Takes an object out; its handle is void from now on.
    pub fn remove(&mut self, handle: u32) -> Option<T> {
        let at = self.slot(handle)?;
        let after = self.after(self.slots[at].uses);
        let slot = &mut self.slots[at];
        let object = slot.object.take()?;
        slot.uses = after;
        slot.next = NONE;
        let at = at as u32;
        match self.free_tail {
            NONE => self.free_head = at,
            tail => self.slots[tail as usize].next = at,
        }
        self.free_tail = at;
        self.free += 1;
        self.len -= 1;
        Some(*object)
    }

    /// How often all generations of the slot of a handle were used up, counted from anywhere.
    pub(super) fn rounds(&self, handle: u32) -> u32 {
        let uses = self.slot(handle).map_or(0, |at| self.slots[at].uses);
        uses.checked_shr(self.generation_mask.count_ones()).unwrap_or(0)
    }

    /// Number of objects.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Most objects.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The index in a handle, for arrays beside the table. Says nothing about whether the object is there.
    #[inline]
    pub fn index(&self, handle: u32) -> usize {
        (handle & ((1 << self.index_bits) - 1)) as usize
    }

    /// The object at a place, with its handle; `Some(None)` for an empty place. There are as many places as there ever
    /// were objects at once.
    pub fn place(&mut self, at: usize) -> Option<Option<(u32, &mut T)>> {
        let handle = self.slots.get(at).map(|_| self.handle(at as u32))?;
        let slot = self.slots.get_mut(at)?;
        Some(slot.object.as_deref_mut().map(|object| (handle, object)))
    }

    /// All handles and objects, by index, to change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let (first, index_bits) = (self.first, self.index_bits);
        let mask = self.generation_mask;
        self.slots.iter_mut().enumerate().filter_map(move |(at, slot)| {
            let handle = (slot.uses & mask) << index_bits | (first + at as u32);
            Some((handle, slot.object.as_deref_mut()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn scattered_numbers_leave_room_for_all_objects() {
        for (limit, bits, seed) in [(1 << 17, 18, 7), ((1 << 18) - 3, 18, 8), (100, 20, u64::MAX)] {
            let fresh = || Table::new(Object::Qp, limit, bits, 24).with_first_index(2);
            let mut table = fresh().scattered(seed, true);
            let handles: Vec<u32> = (0..limit).map(|_| table.insert(()).expect("room")).collect();
            assert!(table.insert(()).is_err());
            assert!(
                handles
                    .iter()
                    .all(|&h| table.get(h).is_some() && table.index(h) >= 2)
            );
            assert!(
                handles.iter().all(|&h| table.index(h) + 1 < 1 << bits),
                "the last index"
            );
            let generations: BTreeSet<u32> = handles.iter().map(|h| h >> bits).collect();
            assert!(generations.len() > 1, "all generations are the same");
            // The same number again by the same seed, another by another, and the least by none.
            assert_eq!(fresh().scattered(seed, true).insert(()), Ok(handles[0]));
            assert_ne!(fresh().scattered(seed ^ 1, true).insert(()), Ok(handles[0]));
            assert_eq!(fresh().scattered(0, true).insert(()), Ok(2));
            let mut table = fresh().scattered(seed, false);
            let first = table.insert(()).expect("room");
            assert!((1..limit).all(|n| table.insert(()) == Ok(first + n)), "in a row");
        }
    }

    #[test]
    fn slots_are_small() {
        assert_eq!(size_of::<Slot<[u64; 100]>>(), 16);
        let table = Table::<[u64; 100]>::new(Object::Qp, 1 << 17, 18, 24);
        assert_eq!(table.slots.capacity(), 0);
    }

    #[test]
    fn a_handle_comes_back_only_when_all_others_were_used() {
        // 2 bits of generation, and 64 slots that rest: 256 handles.
        let mut table = Table::new(Object::Ah, 1 << 10, 10, 12);
        let mut seen = BTreeSet::new();
        for n in 0..256 {
            let handle = table.insert(n).expect("there is room");
            assert!(seen.insert(handle), "{handle:#x} came back");
            assert_eq!(table.remove(handle), Some(n));
        }
        assert!(seen.contains(&table.insert(0).expect("there is room")));
    }

    #[test]
    fn a_full_table_says_so() {
        let mut table = Table::new(Object::Cq, 3, 10, 32);
        let handles: Vec<u32> = (0..3).map(|n| table.insert(n).expect("there is room")).collect();
        let full = VerbsError::LimitReached {
            object: Object::Cq,
            limit: 3,
        };
        assert_eq!(table.insert(9), Err(full));
        assert_eq!(table.remove(handles[1]), Some(1));
        let again = table.insert(4).expect("there is room");
        assert_ne!(again, handles[1]);
        assert_eq!(table.index(again), table.index(handles[1]));
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn some_indices_are_never_given() {
        // All 8 indices, but not the first two.
        let mut table = Table::new(Object::Qp, 100, 3, 4).with_first_index(2);
        assert_eq!(table.limit(), 6);
        for n in 0..6 {
            assert_eq!(table.insert(n), Ok(n + 2));
        }
        assert!(table.insert(0).is_err());
        assert_eq!((table.get(0), table.get(1), table.get(7)), (None, None, Some(&5)));
        assert_eq!(table.remove(7), Some(5));
        // The generation is above the index, and wraps.
        assert_eq!(table.insert(8), Ok(15));
        assert_eq!(table.get(7), None);
        assert_eq!(table.remove(15), Some(8));
        assert_eq!(table.insert(9), Ok(7));
    }

    #[test]
    fn tables_with_other_prefixes_have_other_handles() {
        // 3 bits of index, 2 of generation, 3 of the prefix.
        let table = |prefix| Table::new(Object::Qp, 8, 3, 8).with_prefix(3, prefix);
        for seed in 0..50 {
            let mut seen = BTreeMap::new();
            for prefix in 0..8 {
                let mut table = table(prefix).scattered(seed, true);
                let (mut here, mut rounds) = (BTreeSet::new(), BTreeSet::new());
                for n in 0..100 {
                    let handle = table.insert(n).expect("room");
                    assert_eq!((handle >> 5, handle >> 8), (prefix, 0));
                    assert_eq!(table.get(handle), Some(&n));
                    rounds.insert(table.rounds(handle));
                    here.insert(handle);
                    assert_eq!(table.remove(handle), Some(n));
                }
                assert_eq!(here.len(), 32, "all generations of all places");
                assert!(rounds.len() >= 3, "{rounds:?}");
                assert!(
                    here.into_iter()
                        .all(|handle| seen.insert(handle, prefix).is_none())
                );
            }
            assert_eq!(seen.len(), 256);
        }
    }

    #[test]
    fn bits_beyond_a_handle_count() {
        let mut table = Table::new(Object::Qp, 100, 18, 24);
        let handle = table.insert(()).expect("there is room");
        assert_eq!(table.get(handle | 1 << 24), None);
        assert_eq!(table.get(handle | 1 << 31), None);
    }

    proptest! {
        #[test]
        fn as_a_map_of_handles(
            ops in vec((any::<bool>(), any::<prop::sample::Index>()), 0..400),
            limit in 1u32..100,
            first in 0u32..4,
        ) {
            let mut table = Table::new(Object::Mr, limit, 8, 32).with_first_index(first);
            let mut map = BTreeMap::new();
            let mut all = Vec::new();
            for (number, (insert, which)) in (0u32..).zip(ops) {
                if insert {
                    match table.insert(number) {
                        Ok(handle) => {
                            prop_assert!((map.len() as u32) < limit);
                            prop_assert!(!all.contains(&handle));
                            prop_assert!(table.index(handle) as u32 >= first);
                            all.push(handle);
                            map.insert(handle, number);
                        }
                        Err(_) => prop_assert_eq!(map.len() as u32, limit),
                    }
                } else if !all.is_empty() {
                    let handle = *which.get(&all);
                    prop_assert_eq!(table.remove(handle), map.remove(&handle));
                }
                prop_assert_eq!(table.len() as usize, map.len());
                for handle in &all {
                    prop_assert_eq!(table.get(*handle), map.get(handle));
                    prop_assert_eq!(table.get_mut(*handle).copied(), map.get(handle).copied());
                }
            }
            let mut listed: Vec<(u32, u32)> = table.iter_mut().map(|(h, n)| (h, *n)).collect();
            listed.sort_unstable();
            prop_assert_eq!(listed, map.into_iter().collect::<Vec<_>>());
        }
    }
}
