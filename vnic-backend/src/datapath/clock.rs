//! The time of the data cores: that of the machine or, in tests, one that passes by rounds.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use vnic_fabric::Instant;

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

/// Rounds in which time stands still before a test sees that it does: what had to be done at that time is done.
const SETTLED: u64 = 4;

/// Time that passes by rounds of a data core: each takes the same time, however long it really takes. For tests: what
/// depends on time comes out the same on any machine under any load, and nobody has to wait for it.
///
/// It stands still until [`VirtualClock::pass`] lets it go on, so that queues are made and sends posted at one and the same
/// time. The core goes on with its rounds meanwhile; it never sleeps.
#[derive(Debug)]
pub struct VirtualClock {
    /// Nanoseconds. One writer: the data core.
    now: AtomicU64,
    /// Nanoseconds a round.
    step: u64,
    until: AtomicU64,
    /// Rounds since it stands still. One writer: the data core.
    still: AtomicU64,
    /// Somebody waits for that.
    waiter: Mutex<()>,
    stands: Condvar,
}

impl VirtualClock {
    /// Stands still, and will pass by this time a round.
    pub fn new(round: Duration) -> Arc<VirtualClock> {
        Arc::new(VirtualClock {
            now: AtomicU64::new(0),
            step: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
            until: AtomicU64::new(0),
            still: AtomicU64::new(0),
            waiter: Mutex::new(()),
            stands: Condvar::new(),
        })
    }

    /// Time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now.load(Ordering::Acquire))
    }

    /// So much time passes. When this returns it stands still again, and the core has done all that it does at that time.
    pub fn pass(&self, time: Duration) {
        let mut guard = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        let until = self.until.load(Ordering::Relaxed);
        let until = until.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        self.until.store(until, Ordering::Release);
        while self.now.load(Ordering::Acquire) < until || self.still.load(Ordering::Acquire) < SETTLED {
            guard = self.stands.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    #[cold]
    fn advance(&self) {
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
            let _guard = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
            self.stands.notify_all();
        } else if still > SETTLED {
            // Others may need the CPU more.
            std::thread::yield_now();
        }
    }
}
