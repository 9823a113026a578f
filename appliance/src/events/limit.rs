//! Rate limit of events. Events beyond it are summed up, so that each is counted.

use std::collections::HashMap;

use super::{Owner, Record};

/// Greatest burst of events of one owner, kind and key that are recorded one by one, and their rate per second.
pub const RATE: u64 = 20;
/// Time over which further events are summed up, in nanoseconds.
pub const SUM_NS: u64 = 1_000_000_000;
/// Greatest number of buckets. Beyond that, a kind has one for all owners.
const BUCKETS_MAX: usize = 16_384;
/// Number of buckets up to which idle ones are not removed.
const BUCKETS_FEW: usize = 64;

const TOKEN_NS: u64 = SUM_NS / RATE;

type Key = (Owner, u32, u64);

/// A token bucket, and the events that came while it was empty.
struct Bucket {
    /// Time in nanoseconds at which the bucket is full if no further event comes.
    full_at: u64,
    held: Option<Held>,
}

/// Events that are summed up.
struct Held {
    /// Newest record.
    last: Record,
    /// Number of records.
    records: u64,
    /// Number of events for which the records stand.
    events: u64,
    /// Time at which the sum is recorded.
    due: u64,
}

impl Held {
    fn sum(self) -> Record {
        let mut record = self.last;
        if self.records > 1 {
            record.message = format!(
                "{} more such events; the last one: {}",
                self.events, record.message
            );
            record.suppressed = self.events;
        }
        record
    }
}

/// Limits events by their rate. Time is an argument: nanoseconds of a clock that never goes back.
#[derive(Default)]
pub struct Limiter {
    buckets: HashMap<Key, Bucket>,
    /// Lower bound of the times at which sums are due.
    next: Option<u64>,
    /// Number of buckets at which full ones are removed, which takes a pass over all.
    forget_at: usize,
    /// Earliest time of the next pass while there are `BUCKETS_MAX` buckets.
    look_at: u64,
}

impl Limiter {
    /// Returns the event if it is recorded now; else it is in a sum that [`Limiter::due`] returns later.
    pub fn admit(&mut self, record: Record, now: u64) -> Option<Record> {
        let mut key = (record.owner.clone(), record.kind.id, record.key);
        if self.buckets.len() >= self.forget_at.max(BUCKETS_FEW) && !self.buckets.contains_key(&key) {
            if self.buckets.len() < BUCKETS_MAX || self.look_at <= now {
                self.look_at = now + SUM_NS;
                self.buckets.retain(|_, b| b.held.is_some() || b.full_at > now);
                self.forget_at = (2 * self.buckets.len()).min(BUCKETS_MAX);
            }
            if self.buckets.len() >= BUCKETS_MAX {
                key = (Owner::Nic, record.kind.id, u64::MAX);
            }
        }
        let bucket = self.buckets.entry(key).or_insert(Bucket {
            full_at: now,
            held: None,
        });
        if let Some(held) = &mut bucket.held {
            held.records += 1;
            held.events = held.events.saturating_add(record.suppressed.max(1));
            held.last = record;
            return None;
        }
        let full_at = bucket.full_at.max(now) + TOKEN_NS;
        if full_at <= now + SUM_NS {
            bucket.full_at = full_at;
            return Some(record);
        }
        let due = now + SUM_NS;
        bucket.held = Some(Held {
            records: 1,
            events: record.suppressed.max(1),
            last: record,
            due,
        });
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
        None
    }

    /// Sums that are due.
    pub fn due(&mut self, now: u64) -> Vec<Record> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        self.take(|held| held.due <= now)
    }

    /// All sums, due or not, at the end of the log.
    pub fn finish(&mut self) -> Vec<Record> {
        self.take(|_| true)
    }

    /// Time at which the next sum is due.
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    fn take(&mut self, wanted: impl Fn(&Held) -> bool) -> Vec<Record> {
        let mut sums = Vec::new();
        self.next = None;
        for bucket in self.buckets.values_mut() {
            if bucket.held.as_ref().is_some_and(&wanted) {
                sums.extend(bucket.held.take().map(Held::sum));
            } else if let Some(held) = &bucket.held {
                self.next = Some(self.next.map_or(held.due, |next| next.min(held.due)));
            }
        }
        sums.sort_by_key(|r| r.monotonic_ns);
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::super::{kinds, told};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn record(owner: &str, key: u64, suppressed: u64) -> Record {
        let owner = Owner::Adapter(owner.to_owned());
        let mut record = Record::now(told(&kinds::FAULT_INJECTED, "hit"), owner);
        (record.key, record.suppressed) = (key, suppressed);
        record
    }

    fn events(records: &[Record]) -> u64 {
        records.iter().map(|r| r.suppressed.max(1)).sum()
    }

    #[test]
    fn what_is_beyond_the_rate_is_summed_up_and_all_is_counted() {
        let mut limiter = Limiter::default();
        let (mut told, mut now) = (Vec::new(), 5 * SECOND);
        // A thousand events per second for ten seconds.
        for _ in 0..10_000 {
            now += SECOND / 1000;
            told.extend(limiter.due(now));
            told.extend(limiter.admit(record("vf0", 1, 0), now));
        }
        assert!(told.len() <= 20 + 10 * 21, "{}", told.len());
        assert!(told.len() >= 200);
        told.extend(limiter.due(now + SECOND));
        assert_eq!(events(&told), 10_000);
        assert_eq!(limiter.next(), None);
        let sum = told.iter().find(|r| r.suppressed > 0).expect("a sum");
        let text = format!("{} more such events; the last one: hit", sum.suppressed);
        assert_eq!(sum.message, text);
    }

    #[test]
    fn a_slow_one_is_never_held_and_others_do_not_suffer() {
        let mut limiter = Limiter::default();
        for i in 0..1000 {
            assert!(limiter.admit(record("vf0", 1, 0), i * TOKEN_NS).is_some());
        }
        let now = 1000 * TOKEN_NS;
        let burst = (0..100)
            .filter_map(|_| limiter.admit(record("vf0", 2, 0), now))
            .count();
        assert_eq!(burst, 20);
        assert!(limiter.admit(record("vf0", 1, 0), now).is_some());
        assert!(limiter.admit(record("vf1", 2, 0), now).is_some());
        assert!(limiter.due(now + SECOND - 1).is_empty());
        assert_eq!(limiter.next(), Some(now + SECOND));
        assert_eq!(events(&limiter.due(now + SECOND)), 80);
    }

    #[test]
    fn sums_of_others_are_added_up_and_a_single_one_is_left_as_it_is() {
        let mut limiter = Limiter::default();
        for _ in 0..20 {
            assert!(limiter.admit(record("vf0", 1, 0), 0).is_some());
        }
        assert!(limiter.admit(record("vf0", 1, 7), 0).is_none());
        let one = limiter.due(SECOND);
        assert_eq!((one[0].suppressed, one[0].message.as_str()), (7, "hit"));
        for _ in 0..20 {
            assert!(limiter.admit(record("vf0", 1, 0), 3 * SECOND).is_some());
        }
        assert!(limiter.admit(record("vf0", 1, 7), 3 * SECOND).is_none());
        assert!(limiter.admit(record("vf0", 1, 0), 3 * SECOND).is_none());
        assert_eq!(events(&limiter.finish()), 8);
    }

    #[test]
    fn memory_is_bounded() {
        let mut limiter = Limiter::default();
        let most = u64::try_from(BUCKETS_MAX).expect("a number");
        let told = (0..2 * most)
            .filter_map(|key| limiter.admit(record("vf0", key, 0), 0))
            .count();
        assert_eq!(limiter.buckets.len(), BUCKETS_MAX + 1);
        assert_eq!(told, BUCKETS_MAX + 20);
        assert_eq!(events(&limiter.finish()), most - 20);
        // Idle buckets make room.
        assert!(limiter.admit(record("vf1", 0, 0), 9 * SECOND).is_some());
        assert!(limiter.buckets.len() < 10);
    }

    #[test]
    fn who_has_not_been_heard_of_for_long_is_forgotten() {
        let mut limiter = Limiter::default();
        for i in 0..10_000 {
            // A new adapter each second.
            let name = format!("vf{}", i / 10);
            assert!(limiter.admit(record(&name, 1, 0), i * SECOND / 10).is_some());
            assert!(limiter.buckets.len() <= BUCKETS_FEW, "{i}");
        }
    }
}
