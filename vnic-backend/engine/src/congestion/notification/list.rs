//! The list of congested flows of DCQCN+ (Gao et al., ICNP 2018, section IV; reconstructed from its prose).
//!
//! ```text
//!          one record each `told`
//!               ▼
//!   ┌──────┬──────┬──────┬──────┐   marked, and `spacing` since its last CNP: CNP, the mark is cleared
//!   │ flow │ flow │ flow │ flow │   not marked, and nothing heard for 200 us: forgotten
//!   └──────┴──────┴──────┴──────┘   both: to the end of the list
//!               └────────────── period that the CNP tells: length times `told`, at least 50 us
//! ```
//!
//! A point that is asked late makes the visits that it has missed, as of now.

use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{CAPACITY, Cnp, Key, Settings};

/// Least period in a notification.
const FLOOR: Duration = Duration::from_micros(50);

/// Time without a mark or CNP after which a flow does not count as congested any more.
const EXPIRY: Duration = Duration::from_micros(200);

/// Least and greatest time for one record, so that the work to catch up has a bound.
const EACH: (Duration, Duration) = (Duration::from_nanos(100), Duration::from_secs(1));

/// A congested flow.
#[derive(Debug)]
struct Record<T> {
    key: Key,
    /// What came with the last mark, if the flow was marked since its last CNP.
    marked: Option<T>,
    /// Time of the last CNP.
    notified: Option<Instant>,
    /// Time of the last mark or CNP.
    heard: Instant,
}

impl<T> Record<T> {
    /// When a visit would notify.
    fn ready(&self, settings: &Settings) -> Option<Instant> {
        self.marked.as_ref()?;
        Some(self.notified.map_or(Instant(0), |at| at + settings.spacing))
    }

    /// When a visit would notify or forget.
    fn changes(&self, settings: &Settings) -> Instant {
        self.ready(settings).unwrap_or(self.heard + EXPIRY)
    }
}

/// Congested flows, in the order of visits.
#[derive(Debug)]
pub(super) struct List<T> {
    each: Duration,
    records: VecDeque<Record<T>>,
    /// Number of each flow's record: the first record has `first`, and they are consecutive.
    numbers: BTreeMap<Key, u64>,
    first: u64,
    /// When the first record is visited.
    visit: Instant,
    /// Records that are marked.
    waiting: usize,
    /// While there are marked ones: no visit before this time notifies or forgets.
    next: Option<Instant>,
}

impl<T> List<T> {
    pub(super) fn new(each: Duration) -> List<T> {
        List {
            each: each.clamp(EACH.0, EACH.1),
            records: VecDeque::new(),
            numbers: BTreeMap::new(),
            first: 0,
            visit: Instant(0),
            waiting: 0,
            next: None,
        }
    }

    pub(super) fn marked(&mut self, now: Instant, key: Key, to: T, settings: &Settings) {
        self.catch_up(now, settings);
        let place = match self.numbers.get(&key) {
            Some(&number) => (number - self.first) as usize,
            None if self.records.len() < CAPACITY => {
                if self.records.is_empty() {
                    self.visit = self.visit.max(now);
                }
                let place = self.records.len();
                self.numbers.insert(key, self.first + place as u64);
                self.records.push_back(Record {
                    key,
                    marked: None,
                    notified: None,
                    heard: now,
                });
                place
            }
            None => return,
        };
        let record = &mut self.records[place];
        let window = record.notified.is_some_and(|at| now < at + settings.spacing);
        if window && !settings.trailing {
            return;
        }
        record.heard = now;
        if record.marked.replace(to).is_none() {
            self.waiting += 1;
            self.next = match self.next {
                Some(next) => Some(next.min(self.visit_of(place, settings))),
                None => self.find(settings),
            };
        }
    }

    /// The first visit of the record at this place that notifies or forgets, as the list is now.
    fn visit_of(&self, place: usize, settings: &Settings) -> Instant {
        let each = self.each.as_nanos() as u64;
        let visit = self.visit.0 + each * place as u64;
        let round = each * self.records.len() as u64;
        let wait = self.records[place].changes(settings).since(Instant(visit));
        let rounds = (wait.as_nanos() as u64).div_ceil(round);
        Instant(visit + rounds * round)
    }

    pub(super) fn due(&mut self, now: Instant, settings: &Settings) -> Option<Cnp<T>> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        self.catch_up(now, settings);
        let length = self.records.len() as u32;
        let front = self.records.front_mut()?;
        if self.visit > now || front.ready(settings).is_none_or(|r| r > self.visit) {
            self.next = self.find(settings);
            return None;
        }
        let to = front.marked.take()?;
        self.waiting -= 1;
        front.notified = Some(now);
        front.heard = now;
        self.turn();
        self.next = self.find(settings);
        Some(Cnp {
            to,
            period: Some((self.each * length).max(FLOOR)),
        })
    }

    /// Makes the visits up to now, as far as none of them notifies.
    fn catch_up(&mut self, now: Instant, settings: &Settings) {
        let mut forgot = false;
        let mut idle = 0;
        while self.visit <= now
            && let Some(front) = self.records.front()
        {
            if front.changes(settings) <= self.visit {
                if front.marked.is_some() {
                    break;
                }
                self.numbers.remove(&front.key);
                self.records.pop_front();
                self.first += 1;
                self.visit = self.visit + self.each;
                forgot = true;
                idle = 0;
                continue;
            }
            self.turn();
            idle += 1;
            if idle == self.records.len() {
                self.skip(now, settings);
                idle = 0;
            }
        }
        if forgot {
            self.next = self.find(settings);
        }
    }

    /// Moves the first record to the end.
    fn turn(&mut self) {
        let Some(record) = self.records.pop_front() else {
            return;
        };
        self.first += 1;
        let number = self.first + self.records.len() as u64;
        self.numbers.insert(record.key, number);
        self.records.push_back(record);
        self.visit = self.visit + self.each;
    }

    /// Skips rounds in which nothing happens to any record.
    fn skip(&mut self, now: Instant, settings: &Settings) {
        let Some(first) = self.records.iter().map(|r| r.changes(settings)).min() else {
            return;
        };
        let round = self.each.as_nanos() as u64 * self.records.len() as u64;
        let rounds = first.min(now).0.saturating_sub(self.visit.0) / round;
        self.visit = Instant(self.visit.0 + rounds * round);
    }

    /// Computes the next visit that notifies or forgets, if a record is marked.
    fn find(&self, settings: &Settings) -> Option<Instant> {
        if self.waiting == 0 {
            return None;
        }
        let mut best = Instant(u64::MAX);
        for place in 0..self.records.len() {
            let visit = Instant(self.visit.0 + self.each.as_nanos() as u64 * place as u64);
            if best < visit {
                break;
            }
            best = best.min(self.visit_of(place, settings));
        }
        Some(best)
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }
}
