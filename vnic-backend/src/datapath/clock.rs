//! Clock of the data cores: that of the machine or, in tests, one that advances by rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vnic_fabric::Instant;

/// Rounds between two visits of a data core to work that is not urgent: addresses and counters of its RDMA functions.
pub const HOUSEKEEPING: u32 = 256;

/// Clock of the data cores.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Time of the machine since this instant.
    Real(std::time::Instant),
    /// Time that a test lets pass.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    /// Starts a clock of the machine's time.
    pub fn start() -> Clock {
        Clock::Real(std::time::Instant::now())
    }

    /// Instant of the machine's time from which this counts; of a virtual clock, on which no core sleeps, any.
    pub fn start_time(&self) -> std::time::Instant {
        match self {
            Clock::Real(start) => *start,
            Clock::Virtual(_) => std::time::Instant::now(),
        }
    }

    /// Time since the start.
    #[inline]
    pub fn now(&self) -> Instant {
        match self {
            Clock::Real(start) => Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            Clock::Virtual(clock) => Instant(clock.now.load(Ordering::Relaxed)),
        }
    }

    /// Tells the clock that a round of the data core is over.
    #[inline]
    pub fn round_over(&self) {
        if let Clock::Virtual(clock) = self {
            clock.advance();
        }
    }

    /// Whether a core may sleep: with a virtual clock it would sleep for ever.
    pub fn sleeps(&self) -> bool {
        matches!(self, Clock::Real(_))
    }
}

/// Rounds without a change of time before a test regards it as standing still: all work that was due at that time is then
/// done and counted.
const SETTLED: u64 = 2 * HOUSEKEEPING as u64;

/// Time that advances by rounds of a data core: each round takes the same time, however long it really takes. For tests:
/// results that depend on time are the same on any machine under any load, and no test has to wait.
///
/// The time stands still until [`VirtualClock::pass`] lets it advance, so that queues are made and sends posted at the same
/// time. The core goes on with its rounds meanwhile; it never sleeps. [`VirtualClock::hold`] gives control of each round.
#[derive(Debug)]
pub struct VirtualClock {
    /// Time in nanoseconds. Only the data core writes it.
    now: AtomicU64,
    /// Nanoseconds per round.
    step: u64,
    until: AtomicU64,
    /// Rounds since the time stands still. Only the data core writes it.
    still: AtomicU64,
    /// Whether rounds begin only when they are allowed.
    held: AtomicBool,
    allowed: Mutex<Allowed>,
    /// Wakes threads that wait for time or core to stand still, and a core that waits for a round.
    changed: Condvar,
}

/// Rounds that a held core may do.
#[derive(Debug, Default)]
struct Allowed {
    /// Rounds that may still end.
    rounds: u64,
    /// Whether the core waits for more rounds.
    waits: bool,
}

/// A data core that does only the rounds it is told to; it obeys no command meanwhile. It runs freely again when this is
/// dropped.
#[derive(Debug)]
pub struct ClockGuard(Arc<VirtualClock>);

impl ClockGuard {
    /// Lets the core do `n` rounds, each of which takes the time of a round, and waits until it stands still again.
    pub fn rounds(&self, n: u64) {
        let mut allowed = self.0.allowed();
        (allowed.rounds, allowed.waits) = (n, n == 0);
        self.0.changed.notify_all();
        while !allowed.waits {
            allowed = self.0.wait(allowed);
        }
    }
}

impl Drop for ClockGuard {
    /// Waits until the core runs: so each time that it is held again costs a round.
    fn drop(&mut self) {
        let mut allowed = self.0.allowed();
        self.0.held.store(false, Ordering::Release);
        self.0.changed.notify_all();
        while allowed.waits {
            allowed = self.0.wait(allowed);
        }
    }
}

impl VirtualClock {
    /// A clock that stands still. A round will take this time.
    pub fn new(round: Duration) -> Arc<VirtualClock> {
        Arc::new(VirtualClock {
            now: AtomicU64::new(0),
            step: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
            until: AtomicU64::new(0),
            still: AtomicU64::new(0),
            held: AtomicBool::new(false),
            allowed: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Time since the start.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// Lets this much time pass, and waits until the core has done all that is due at the end of it.
    pub fn pass(&self, time: Duration) {
        let mut guard = self.allowed();
        let until = self.until.load(Ordering::Relaxed);
        let until = until.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.until.store(until, Ordering::Release);
        while self.now.load(Ordering::Acquire) < until || self.still.load(Ordering::Acquire) < SETTLED {
            guard = self.wait(guard);
        }
    }

    /// Stops the core between two rounds: the caller then decides how many rounds it does.
    pub fn hold(self: &Arc<Self>) -> ClockGuard {
        let mut allowed = self.allowed();
        *allowed = Allowed::default();
        self.held.store(true, Ordering::Release);
        while !allowed.waits {
            allowed = self.wait(allowed);
        }
        ClockGuard(self.clone())
    }

    fn allowed(&self) -> MutexGuard<'_, Allowed> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, Allowed>) -> MutexGuard<'a, Allowed> {
        self.changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a round of a held core and waits until the next one may begin.
    fn count(&self) {
        let now = self.now.load(Ordering::Relaxed).saturating_add(self.step);
        self.until.store(now, Ordering::Release);
        self.now.store(now, Ordering::Release);
        let mut allowed = self.allowed();
        allowed.rounds = allowed.rounds.saturating_sub(1);
        while allowed.rounds == 0 && self.held.load(Ordering::Acquire) {
            allowed.waits = true;
            self.changed.notify_all();
            allowed = self.wait(allowed);
        }
        if std::mem::take(&mut allowed.waits) {
            self.changed.notify_all();
        }
    }

    #[cold]
    fn advance(&self) {
        if self.held.load(Ordering::Acquire) {
            return self.count();
        }
        let (now, until) = (
            self.now.load(Ordering::Relaxed),
            self.until.load(Ordering::Acquire),
        );
        if now < until {
            self.still.store(0, Ordering::Release);
            self.now
                .store(now.saturating_add(self.step).min(until), Ordering::Release);
            return;
        }
        let still = self.still.load(Ordering::Relaxed) + 1;
        self.still.store(still, Ordering::Release);
        if still == SETTLED {
            let _guard = self.allowed();
            self.changed.notify_all();
        } else if still > SETTLED {
            // Other threads may need the CPU more.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core without work, which counts its rounds until it is told to end.
    fn core(clock: &Arc<VirtualClock>, rounds: &AtomicU64, end: &AtomicBool) {
        while !end.load(Ordering::Acquire) {
            rounds.fetch_add(1, Ordering::AcqRel);
            Clock::Virtual(clock.clone()).round_over();
        }
    }

    #[test]
    fn a_held_core_does_the_rounds_it_may_and_is_free_again() {
        let clock = VirtualClock::new(Duration::from_micros(1));
        let (rounds, end) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| core(&clock, &rounds, &end));
            clock.pass(Duration::from_micros(5));
            let held = clock.hold();
            let (before, time) = (rounds.load(Ordering::Acquire), clock.now());
            for n in [1, 0, 7, 100] {
                held.rounds(n);
            }
            assert_eq!(rounds.load(Ordering::Acquire), before + 108);
            assert_eq!(clock.now(), time + Duration::from_micros(108));
            drop(held);
            clock.pass(Duration::from_micros(3));
            assert_eq!(clock.now(), time + Duration::from_micros(111));
            assert!(rounds.load(Ordering::Acquire) > before + 110);
            end.store(true, Ordering::Release);
        });
    }

    #[test]
    fn a_core_that_is_held_again_has_done_a_round() {
        let clock = VirtualClock::new(Duration::from_micros(1));
        let (rounds, end) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|s| {
            s.spawn(|| core(&clock, &rounds, &end));
            let begin = clock.now();
            for n in 1..=1000 {
                drop(clock.hold());
                assert_eq!(clock.now() - begin, Duration::from_micros(n));
            }
            end.store(true, Ordering::Release);
        });
    }
}
