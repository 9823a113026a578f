//! The NIC's clock: how it starts, what it may be set to, how it is shown, and what has its time.

use std::time::{Duration, SystemTime};

use vnic_engine::clock::{FREQUENCY_MAX, NicClock};
use vnic_fabric::Instant;

use crate::datapath::Clock;
use crate::types::*;

/// What times are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The NIC's clock.
    pub clock: NicClock,
    /// Whether those of completions are of a counter instead, which nobody sets (NV parameter `REAL_TIME_CLOCK_ENABLE` 0).
    pub free_running: bool,
}

impl Times {
    /// What times of completions are of: ns. The counter is that of the data cores, which begins with the NIC.
    pub fn of_completions(&self) -> NicClock {
        match self.free_running {
            true => NicClock::new(0),
            false => self.clock,
        }
    }
}

/// The clock of a NIC that starts: it shows the system's time, or what a test's clock shows.
pub fn first(clock: &Clock) -> NicClock {
    let started = match clock {
        Clock::Real(_) => SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default(),
        Clock::Virtual(_) => Duration::ZERO,
    };
    let mut first = NicClock::default();
    first.set(clock.now(), u64::try_from(started.as_nanos()).unwrap_or(u64::MAX));
    first
}

/// The clock at an instant.
pub fn status(clock: &NicClock, now: Instant) -> ClockStatus {
    ClockStatus {
        time: Duration::from_nanos(clock.at(now)),
        system: SystemTime::now(),
        frequency: clock.frequency(),
    }
}

/// A time to be set, in ns.
pub fn time(time: Duration) -> Result<u64, NicError> {
    let Ok(ns) = i64::try_from(time.as_nanos()) else {
        let most = i64::MAX / 1_000_000_000;
        let problem = format!("{} s: at most {most} s are allowed", time.as_secs());
        return invalid("time", problem);
    };
    Ok(ns.unsigned_abs())
}

/// Refuses a frequency that is out of range.
pub fn check(by: &ClockAdjustment) -> Result<(), NicError> {
    match by.frequency {
        Some(ppb) if !(-FREQUENCY_MAX..=FREQUENCY_MAX).contains(&ppb) => {
            let problem = format!("{ppb}: -{FREQUENCY_MAX} to {FREQUENCY_MAX} are allowed");
            invalid("frequency_ppb", problem)
        }
        _ => Ok(()),
    }
}

/// Adjusts the clock.
pub fn adjust(clock: &mut NicClock, now: Instant, by: &ClockAdjustment) {
    clock.step(now, by.offset);
    if let Some(ppb) = by.frequency {
        clock.slew(now, ppb);
    }
}
