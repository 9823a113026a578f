//! The time of the data cores: that of the machine or, in tests, one that passes by rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vnic_fabric::Instant;

/// Rounds between two looks of a data core at what is not urgent: addresses and counters of its RDMA functions.
pub const HOUSEKEEPING: u32 = 256;

/// The time of the data cores.
#[derive(Debug, Clone)]
pub enum Clock {
    /// Since its beginning.
    Real(std::time::Instant),
    /// As far as a test lets it pass.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    /// Time begins.
    pub fn start() -> Clock {
        Clock::Real(std::time::Instant::now())
    }

    /// Since then.
    #[inline]
    pub fn now(&self) -> Instant {
        match self {
            Clock::Real(start) => Instant(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)),
            Clock::Virtual(clock) => Instant(clock.now.load(Ordering::Relaxed)),
        }
    }

    /// A round of the data core is over.
    #[inline]
    pub fn round_over(&self) {
        if let Clock::Virtual(clock) = self {
            clock.advance();
        }
    }

    /// May a core sleep? One whose time passes by rounds would sleep for ever.
    pub fn sleeps(&self) -> bool {
        matches!(self, Clock::Real(_))
    }
}

/// Rounds in which time stands still before a test sees that it does: what had to be done at that time is done, and counted
/// where anyone may read it.
const SETTLED: u64 = 2 * HOUSEKEEPING as u64;

/// Time that passes by rounds of a data core: each takes the same time, however long it really takes. For tests: what
/// depends on time comes out the same on any machine under any load, and nobody has to wait for it.
///
/// It stands still until [`VirtualClock::pass`] lets it go on, so that queues are made and sends posted at one and the same
/// time. The core goes on with its rounds meanwhile; it never sleeps. Who wants to know each round has [`VirtualClock::hold`].
#[derive(Debug)]
pub struct VirtualClock {
    /// Nanoseconds. One writer: the data core.
    now: AtomicU64,
    /// Nanoseconds a round.
    step: u64,
    until: AtomicU64,
    /// Rounds since it stands still. One writer: the data core.
    still: AtomicU64,
    /// Rounds begin only when they are allowed.
    held: AtomicBool,
    allowed: Mutex<Allowed>,
    /// Somebody waits for time, or the core, to stand still, or the core waits for a round.
    changed: Condvar,
}

/// What a core may do that is held.
#[derive(Debug, Default)]
struct Allowed {
    /// Rounds that may still end.
    rounds: u64,
    /// It waits for more.
    waits: bool,
}

/// A data core that does as many rounds as it is told to, and otherwise nothing: no command is obeyed meanwhile. It is free
/// again when this is dropped.
#[derive(Debug)]
pub struct ClockGuard(Arc<VirtualClock>);

impl ClockGuard {
    /// So many rounds, each of which takes the time of a round. When this returns the core stands between two rounds.
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
    fn drop(&mut self) {
        let _guard = self.0.allowed();
        self.0.held.store(false, Ordering::Release);
        self.0.changed.notify_all();
    }
}

impl VirtualClock {
    /// Stands still, and will pass by this time a round.
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

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// So much time passes. When this returns it stands still again, and the core has done all that it does at that time.
    pub fn pass(&self, time: Duration) {
        let mut guard = self.allowed();
        let until = self.until.load(Ordering::Relaxed);
        let until = until.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.until.store(until, Ordering::Release);
        while self.now.load(Ordering::Acquire) < until || self.still.load(Ordering::Acquire) < SETTLED {
            guard = self.wait(guard);
        }
    }

    /// Stops the core between two rounds: what it does from now on, and in how many rounds, is the caller's to say.
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

    /// A round of a held core is over: the next one begins when it may.
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
            // Others may need the CPU more.
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core without work: how many rounds it has done, until it shall end.
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
}
