//! The NIC's clock: how it starts, what it may be set to, and how it is shown.

use std::time::{Duration, SystemTime};

use vnic_engine::clock::{FREQUENCY_MAX, NicClock};
use vnic_fabric::Instant;

use crate::datapath::Clock;
use crate::types::*;

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
