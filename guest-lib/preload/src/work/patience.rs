//! Polling without end, on machines with fewer CPUs than polling threads.
//!
//! A network card works while its driver burns a CPU. Our device is a program as well: on a machine with few CPUs (a
//! build container, for example) a thread that polls without end keeps the device, or its peer, from running, until its
//! time slice is over. So after many polls that find nothing, a thread offers the CPU now and then. How long an offer takes
//! says who had the CPU: if somebody who gave it back soon, as other pollers do, then the first offer comes sooner the next
//! time; if nobody, later; and if somebody who kept it, as late as ever, or each message would wait for a time slice of work
//! that has nothing to do with it.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Polls in a row that may find nothing before the thread offers the CPU: at most, and at first.
const FREE: u32 = 256;

/// The same among pollers that share a CPU. A program that polls two queues in turn mostly has its message before: it offers
/// the CPU by the queue that stays empty.
const LEAST: u32 = 64;

/// From then on the thread offers the CPU once in so many polls.
const EVERY: u32 = 16;

/// An offer that takes less was nobody's: two changes of threads take longer.
const TAKEN: Duration = Duration::from_micros(1);

/// Who keeps the CPU for longer does other work. Several pollers need less together, a time slice is longer.
const KEPT: Duration = Duration::from_micros(200);

/// Polls in a row that found nothing. Threads that poll at the same time may miscount: nothing depends on it.
#[derive(Debug)]
pub struct Patience {
    missed: AtomicU32,
    /// Polls that may find nothing before the first offer.
    free: AtomicU32,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            missed: AtomicU32::new(0),
            free: AtomicU32::new(FREE),
        }
    }
}

impl Patience {
    /// A poll found `count` completions.
    #[inline]
    pub fn found(&self, count: usize) {
        let missed = self.missed.load(Relaxed);
        if count > 0 {
            if missed > 0 {
                self.missed.store(0, Relaxed);
            }
        } else if missed < self.free.load(Relaxed) + EVERY - 1 {
            self.missed.store(missed + 1, Relaxed);
        } else {
            self.offer(|| {
                let begun = Instant::now();
                std::thread::yield_now();
                begun.elapsed()
            });
        }
    }

    /// Offers the CPU by a call that answers how long it was away.
    #[cold]
    fn offer(&self, away: impl FnOnce() -> Duration) {
        let free = match away() {
            took if took < TAKEN => (2 * self.free.load(Relaxed)).min(FREE),
            took if took < KEPT => LEAST,
            _ => FREE,
        };
        self.free.store(free, Relaxed);
        self.missed.store(free, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_after_a_while_and_begins_anew_with_success() {
        let patience = Patience::default();
        let missed = |n: u32| {
            (0..n).for_each(|_| patience.found(0));
            patience.missed.load(Relaxed)
        };
        assert_eq!(missed(FREE + EVERY - 1), FREE + EVERY - 1);
        let offered = missed(1);
        assert_eq!(offered, patience.free.load(Relaxed), "the CPU was offered");
        assert_eq!(missed(EVERY - 1), offered + EVERY - 1);
        patience.found(3);
        assert_eq!(missed(1), 1);
    }

    #[test]
    fn among_pollers_that_share_a_cpu_the_first_offer_comes_sooner() {
        let patience = Patience::default();
        let after = |micros: u64| {
            patience.offer(|| Duration::from_micros(micros));
            patience.free.load(Relaxed)
        };
        assert_eq!(after(0), FREE);
        assert_eq!(after(5), LEAST, "another poller");
        assert_eq!(after(150), LEAST, "several");
        assert_eq!([after(0), after(0), after(0)], [128, 256, 256], "nobody");
        assert_eq!(after(5), LEAST);
        assert_eq!(after(3000), FREE, "other work");
    }
}
