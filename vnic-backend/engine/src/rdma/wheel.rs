//! Times at which queue pairs may send again: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987). With thousands of
//! limited queue pairs each packet of one arms and fires a timer; here that costs the same however many there are.
//!
//! A level has 64 slots, each of which is as long as the whole level below it; a slot of level 0 is a nanosecond. A time is
//! on the level of the highest six bits in which it differs from the time that the wheel has come to, so that all times on a
//! lower level are earlier. A slot of a higher level is distributed when its first time has come. Since each slot knows that
//! time, no call is in vain, except after a removal.

use alloc::vec::Vec;

use vnic_wire::time::Instant;

use super::types::QpNumber;

/// Bits of a time that choose the slot of a level.
const BITS: u32 = 6;
/// Slots of a level.
const SLOTS: usize = 1 << BITS;
/// Levels: as many as 64 bits need.
const LEVELS: usize = 64usize.div_ceil(BITS as usize);
/// No node.
const NONE: u32 = u32::MAX;

/// The place of a queue pair in a [`Wheel`], kept by the queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Default for Place {
    fn default() -> Self {
        Place(NONE)
    }
}

impl Place {
    /// Whether the queue pair is in the wheel.
    pub fn is_armed(&self) -> bool {
        self.0 != NONE
    }

    /// The queue pair was taken from the wheel.
    pub fn fired(&mut self) {
        self.0 = NONE;
    }
}

/// A queue pair that waits. The nodes of a slot are a ring in the order in which they came.
#[derive(Debug, Clone, Copy)]
struct Node {
    at: u64,
    qp: QpNumber,
    slot: u32,
    /// The next node of the ring, or of the free nodes.
    next: u32,
    previous: u32,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The node that came first, or [`NONE`].
    head: u32,
    /// Earliest time of its nodes, or an earlier one.
    first: u64,
}

/// The wheel. It takes memory when a time is armed for the first time.
#[derive(Debug)]
pub(super) struct Wheel {
    /// Time that the wheel has come to: no node is earlier, unless it was too late already.
    now: u64,
    nodes: Vec<Node>,
    free: u32,
    slots: Vec<Slot>,
    /// Slots that are not empty, by level, a bit each.
    filled: [u64; LEVELS],
    /// Levels that are not empty, a bit each.
    levels: u32,
}

impl Default for Wheel {
    fn default() -> Self {
        Wheel {
            now: 0,
            nodes: Vec::new(),
            free: NONE,
            slots: Vec::new(),
            filled: [0; LEVELS],
            levels: 0,
        }
    }
}

impl Wheel {
    /// Makes sure that `qp` is called at `at` or earlier.
    pub fn arm(&mut self, place: &mut Place, qp: QpNumber, at: Instant) {
        match self.nodes.get(place.0 as usize) {
            Some(node) if place.is_armed() => {
                if node.at <= at.0 {
                    return;
                }
                self.unlink(place.0);
            }
            _ => place.0 = self.take_node(),
        }
        if let Some(node) = self.nodes.get_mut(place.0 as usize) {
            (node.qp, node.at) = (qp, at.0);
        }
        self.link(place.0);
    }

    /// Removes a queue pair.
    pub fn disarm(&mut self, place: &mut Place) {
        if place.is_armed() {
            self.unlink(place.0);
            self.give_node(place.0);
            place.fired();
        }
    }

    /// When [`pop`](Wheel::pop) may have a queue pair; exactly then, unless one was disarmed.
    #[inline]
    pub fn next(&self) -> Option<Instant> {
        let slot = self.first_slot()?;
        Some(Instant(self.slots.get(slot)?.first))
    }

    /// Takes a queue pair whose time has come, the earliest first. The caller calls its [`fired`](Place::fired).
    pub fn pop(&mut self, now: Instant) -> Option<QpNumber> {
        loop {
            let slot = self.first_slot()?;
            let Slot { head, first } = *self.slots.get(slot)?;
            if first > now.0 {
                return None;
            }
            // The slot's time may be that of a node that is gone.
            let (earliest, at) = self.earliest(head)?;
            if at > now.0 {
                self.slots.get_mut(slot)?.first = at;
                return None;
            }
            self.now = self.now.max(at);
            if slot < SLOTS {
                let qp = self.nodes.get(earliest as usize)?.qp;
                self.unlink(earliest);
                self.give_node(earliest);
                return Some(qp);
            }
            self.take_apart(slot, head);
        }
    }

    /// The slot with the earliest times.
    fn first_slot(&self) -> Option<usize> {
        let level = self.levels.trailing_zeros() as usize;
        let filled = self.filled.get(level)?;
        Some(level * SLOTS + filled.trailing_zeros() as usize)
    }

    /// The earliest node of a ring, with its time.
    fn earliest(&self, head: u32) -> Option<(u32, u64)> {
        let mut best = (head, self.nodes.get(head as usize)?.at);
        let mut index = self.nodes.get(head as usize)?.next;
        while index != head {
            let node = self.nodes.get(index as usize)?;
            if node.at < best.1 {
                best = (index, node.at);
            }
            index = node.next;
        }
        Some(best)
    }

    /// Distributes the nodes of a slot to lower levels: its time has come.
    fn take_apart(&mut self, slot: usize, head: u32) {
        self.empty(slot);
        let mut index = head;
        while let Some(node) = self.nodes.get(index as usize) {
            let next = node.next;
            self.link(index);
            if next == head {
                break;
            }
            index = next;
        }
    }

    /// The slot of a time.
    fn slot_of(&self, at: u64) -> usize {
        let at = at.max(self.now);
        let level = match at ^ self.now {
            0 => 0,
            differs => differs.ilog2() / BITS,
        };
        let index = (at >> (level * BITS)) as usize % SLOTS;
        level as usize * SLOTS + index
    }

    /// Puts a node into the slot of its time, behind the others.
    fn link(&mut self, index: u32) {
        if self.slots.is_empty() {
            let empty = Slot { head: NONE, first: 0 };
            self.slots.resize(LEVELS * SLOTS, empty);
        }
        let Some(at) = self.nodes.get(index as usize).map(|node| node.at) else {
            return;
        };
        let number = self.slot_of(at);
        let slot = &mut self.slots[number];
        let head = slot.head;
        if head == NONE {
            *slot = Slot {
                head: index,
                first: at,
            };
            self.filled[number / SLOTS] |= 1 << (number % SLOTS);
            self.levels |= 1 << (number / SLOTS);
        } else {
            slot.first = slot.first.min(at);
        }
        let (next, previous) = match self.nodes.get(head as usize) {
            Some(first) => (head, first.previous),
            None => (index, index),
        };
        let node = &mut self.nodes[index as usize];
        (node.next, node.previous, node.slot) = (next, previous, number as u32);
        self.nodes[previous as usize].next = index;
        self.nodes[next as usize].previous = index;
    }

    /// Takes a node out of its slot.
    fn unlink(&mut self, index: u32) {
        let Some(&Node {
            slot, next, previous, ..
        }) = self.nodes.get(index as usize)
        else {
            return;
        };
        let number = slot as usize;
        if next == index {
            return self.empty(number);
        }
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        let slot = &mut self.slots[number];
        if slot.head == index {
            slot.head = next;
        }
    }

    /// Marks a slot as empty.
    fn empty(&mut self, number: usize) {
        self.slots[number].head = NONE;
        let level = number / SLOTS;
        self.filled[level] &= !(1 << (number % SLOTS));
        if self.filled[level] == 0 {
            self.levels &= !(1 << level);
        }
    }

    fn take_node(&mut self) -> u32 {
        match self.nodes.get(self.free as usize) {
            Some(node) => core::mem::replace(&mut self.free, node.next),
            None => {
                self.nodes.push(Node {
                    at: 0,
                    qp: QpNumber(0),
                    slot: 0,
                    next: NONE,
                    previous: NONE,
                });
                self.nodes.len() as u32 - 1
            }
        }
    }

    fn give_node(&mut self, index: u32) {
        if let Some(node) = self.nodes.get_mut(index as usize) {
            node.next = self.free;
            self.free = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use alloc::collections::BTreeSet;
    use alloc::vec;

    #[test]
    fn a_queue_pair_has_one_place_the_earliest() {
        let mut wheel = Wheel::default();
        let (mut a, mut b) = (Place::default(), Place::default());
        wheel.arm(&mut a, QpNumber(1), Instant(50));
        wheel.arm(&mut b, QpNumber(2), Instant(4_000_000_000));
        wheel.arm(&mut a, QpNumber(1), Instant(60));
        wheel.arm(&mut a, QpNumber(1), Instant(30));
        assert_eq!(wheel.next(), Some(Instant(30)));
        assert_eq!(
            (wheel.pop(Instant(29)), wheel.pop(Instant(35))),
            (None, Some(QpNumber(1)))
        );
        a.fired();
        assert_eq!((a.is_armed(), b.is_armed()), (false, true));
        assert_eq!(wheel.next(), Some(Instant(4_000_000_000)));
        wheel.disarm(&mut b);
        wheel.disarm(&mut b);
        wheel.arm(&mut a, QpNumber(1), Instant(u64::MAX));
        assert_eq!(wheel.next(), Some(Instant(u64::MAX)));
        wheel.disarm(&mut a);
        assert_eq!((wheel.next(), wheel.pop(Instant(u64::MAX))), (None, None));
        assert_eq!(wheel.nodes.len(), 2);
    }

    /// Against a sorted set: whoever is due comes, in the order of time, and nobody else; `next` is never late, and early
    /// only when something was taken out.
    #[test]
    fn it_is_a_sorted_set() {
        for seed in 1..=60u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut draw = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let mut wheel = Wheel::default();
            let mut set: BTreeSet<(u64, u32)> = BTreeSet::new();
            let mut at: Vec<Option<u64>> = vec![None; 40];
            let mut places = [Place::default(); 40];
            let (mut now, mut exact) = (draw(1 << 40), true);
            // How far ahead: nanoseconds in some seeds, seconds in others, days in a few.
            let ahead = [40, 5_000, 100_000, 1 << 34, 1 << 50][seed as usize % 5];
            for _ in 0..3000 {
                let qp = draw(40) as usize;
                match draw(8) {
                    0..=3 => {
                        // Some are late when they come.
                        let when = (now + draw(ahead)).saturating_sub(draw(20));
                        wheel.arm(&mut places[qp], QpNumber(qp as u32), Instant(when));
                        if at[qp].is_none_or(|there| when < there) {
                            if let Some(there) = at[qp].replace(when) {
                                set.remove(&(there, qp as u32));
                                exact = false;
                            }
                            set.insert((when, qp as u32));
                        }
                    }
                    4 => {
                        wheel.disarm(&mut places[qp]);
                        if let Some(there) = at[qp].take() {
                            set.remove(&(there, qp as u32));
                            exact = false;
                        }
                    }
                    _ => {
                        now += draw(ahead / 4 + 1);
                        let mut last = 0;
                        while let Some(QpNumber(qp)) = wheel.pop(Instant(now)) {
                            let due = at[qp as usize].take().expect("armed");
                            assert!(due <= now && places[qp as usize].is_armed());
                            assert!(set.remove(&(due, qp)));
                            places[qp as usize].fired();
                            // Those that came too late have no order among each other.
                            assert!(due >= last || last <= wheel.now, "{due} after {last}");
                            last = due;
                        }
                        assert!(set.first().is_none_or(|(due, _)| *due > now));
                        exact |= set.is_empty();
                    }
                }
                let (got, wanted) = (wheel.next(), set.first().map(|(due, _)| Instant(*due)));
                assert!(got <= wanted && got.is_some() == wanted.is_some());
                assert!(!exact || got == wanted, "{got:?} {wanted:?}");
                assert_eq!(places.iter().filter(|p| p.is_armed()).count(), set.len());
            }
            assert!(wheel.nodes.len() <= 40);
        }
    }
}
