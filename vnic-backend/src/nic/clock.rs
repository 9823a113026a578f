//! The NIC's clock: set by clients, read by the data cores.

use std::time::{Duration, SystemTime};

use vnic_engine::clock::{FREQUENCY_MAX, NicClock};
use vnic_fabric::Instant;

use super::Inner;
use super::state::State;
use crate::datapath::Clock;
use crate::rehearsal::acts;
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

/// The clock now.
pub fn get(nic: &Inner) -> ClockStatus {
    status(nic, &nic.lock())
}

/// Sets the clock's time; its frequency stays. On return all data cores have it.
pub fn set(nic: &Inner, time: Duration) -> Result<ClockStatus, NicError> {
    let Ok(ns) = i64::try_from(time.as_nanos()) else {
        let most = i64::MAX / 1_000_000_000;
        let problem = format!("{} s: at most {most} s are allowed", time.as_secs());
        return invalid("time", problem);
    };
    change(nic, |clock, now| clock.set(now, ns.unsigned_abs()))
}

/// Moves the clock's time, and changes its frequency. On return all data cores have it.
pub fn adjust(nic: &Inner, by: ClockAdjustment) -> Result<ClockStatus, NicError> {
    if let Some(ppb) = by.frequency
        && !(-FREQUENCY_MAX..=FREQUENCY_MAX).contains(&ppb)
    {
        let problem = format!("{ppb}: -{FREQUENCY_MAX} to {FREQUENCY_MAX} are allowed");
        return invalid("frequency_ppb", problem);
    }
    change(nic, |clock, now| {
        clock.step(now, by.offset);
        if let Some(ppb) = by.frequency {
            clock.slew(now, ppb);
        }
    })
}

fn status(nic: &Inner, state: &State) -> ClockStatus {
    ClockStatus {
        time: Duration::from_nanos(state.clock.at(nic.time.now())),
        system: SystemTime::now(),
        frequency: state.clock.frequency(),
    }
}

/// Changes the clock, under the lock, so that all cores get changes in the same order.
fn change(nic: &Inner, change: impl FnOnce(&mut NicClock, Instant)) -> Result<ClockStatus, NicError> {
    let mut state = nic.state()?;
    acts()?;
    change(&mut state.clock, nic.time.now());
    let clock = state.clock;
    nic.everywhere(move |w| w.set_clock(clock));
    Ok(status(nic, &state))
}
