//! What happens when: a calendar of near events, and a heap of far ones.
//!
//! Near ones lie in buckets of equal time, unsorted; a bucket is put in order when its time comes. A put and a take cost the
//! same however many events there are, as long as a bucket holds few: its width follows from how busy the network is.
//! Events of the same time come in the order of their words, so the order does not depend on how they are kept.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Buckets of the calendar; a multiple of 64.
const BUCKETS: u64 = 1 << 13;

/// A time in ps, and what happens then.
pub type Event = (u64, u64);

/// See the module.
pub struct Events {
    /// log2 of the ps of a bucket.
    shift: u32,
    buckets: Vec<Vec<Event>>,
    /// Buckets that hold something, a bit each.
    filled: Vec<u64>,
    /// Number of the bucket that is open: its events are in `open`, the next one last.
    at: u64,
    open: Vec<Event>,
    far: BinaryHeap<Reverse<Event>>,
    near: usize,
}

impl Events {
    /// None, with about so many to come in each us.
    pub fn new(per_us: f64) -> Events {
        // About four in a bucket.
        let width = (4.0 * 1e6 / per_us.max(1.0)).clamp(256.0, 131_072.0);
        Events {
            shift: (width as u64).ilog2(),
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            filled: vec![0; (BUCKETS / 64) as usize],
            at: 0,
            open: Vec::new(),
            far: BinaryHeap::new(),
            near: 0,
        }
    }

    /// Something happens at a time that is not over.
    #[inline]
    pub fn put(&mut self, time: u64, what: u64) {
        let bucket = time >> self.shift;
        if bucket <= self.at {
            let place = self.open.partition_point(|e| *e > (time, what));
            self.open.insert(place, (time, what));
        } else if bucket - self.at < BUCKETS {
            let slot = (bucket % BUCKETS) as usize;
            self.buckets[slot].push((time, what));
            self.filled[slot / 64] |= 1 << (slot % 64);
            self.near += 1;
        } else {
            self.far.push(Reverse((time, what)));
        }
    }

    /// Takes the next one.
    #[inline]
    pub fn take(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.open.pop() {
                return Some(event);
            }
            self.turn()?;
        }
    }

    /// Opens the next bucket that holds something.
    fn turn(&mut self) -> Option<()> {
        let far = self.far.peek().map(|Reverse((time, _))| time >> self.shift);
        let near = (self.near > 0).then(|| self.next_filled());
        let next = match (near, far) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        self.at = next;
        if near == Some(next) {
            let slot = (next % BUCKETS) as usize;
            std::mem::swap(&mut self.open, &mut self.buckets[slot]);
            self.filled[slot / 64] &= !(1 << (slot % 64));
            self.near -= self.open.len();
        }
        while let Some(Reverse(event)) = self.far.peek().copied()
            && event.0 >> self.shift <= next
        {
            self.far.pop();
            self.open.push(event);
        }
        self.open.sort_unstable_by(|a, b| b.cmp(a));
        Some(())
    }

    /// Number of the first bucket after the open one that holds something; one does.
    fn next_filled(&self) -> u64 {
        let first = self.at + 1;
        let slot = first % BUCKETS;
        let words = self.filled.len() as u64;
        let mut word = slot / 64;
        let mut bits = self.filled[word as usize] & (!0 << (slot % 64));
        let mut passed = 0;
        while bits == 0 && passed <= words {
            word = (word + 1) % words;
            passed += 1;
            bits = self.filled[word as usize];
        }
        let found = word * 64 + u64::from(bits.trailing_zeros());
        first + (found + BUCKETS - slot) % BUCKETS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_the_order_of_their_times_and_words() {
        for (seed, per_us) in [(1, 1.0), (2, 50.0), (3, 20_000.0)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut events = Events::new(per_us);
            let mut model = std::collections::BTreeSet::new();
            let mut now = 0;
            for word in 0..100_000u64 {
                let ahead = match rng.u32(0..4) {
                    0 => rng.u64(0..3),
                    1 => rng.u64(0..100_000),
                    2 => rng.u64(0..10_000_000),
                    _ => rng.u64(0..20_000_000_000),
                };
                events.put(now + ahead, word % 5 + 8 * word);
                model.insert((now + ahead, word % 5 + 8 * word));
                for _ in 0..rng.u32(0..3) {
                    let expected = model.pop_first();
                    assert_eq!(events.take(), expected, "seed {seed}");
                    now = expected.map_or(now, |e| e.0);
                }
            }
            while let Some(expected) = model.pop_first() {
                assert_eq!(events.take(), Some(expected));
            }
            assert_eq!(events.take(), None);
        }
    }
}
