//! The NIC's clock: a line over the time of the data cores, whose place and slope an operator sets, as a PTP hardware clock's
//! (`clock_settime` and `clock_adjtime` of Linux on `/dev/ptpN`).

use vnic_wire::time::Instant;

/// Greatest deviation from the data cores' time, in parts per billion, either way.
pub const FREQUENCY_MAX: i32 = 100_000_000;

const BILLION: i128 = 1_000_000_000;

/// The NIC's clock, in ns since 1970 or whatever it is set to. It is read at an instant that the caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NicClock {
    /// The instant at which the clock was set or its frequency changed last.
    since: Instant,
    /// Its time at that instant.
    then: u64,
    /// Its frequency: how much faster it is than the data cores' time, in parts per billion.
    ppb: i32,
}

impl NicClock {
    /// A clock that shows `time`, in ns, at the origin of instants.
    pub const fn new(time: u64) -> NicClock {
        NicClock {
            since: Instant(0),
            then: time,
            ppb: 0,
        }
    }

    /// Its time at an instant, in ns. Before an instant at which it was set it shows what it would have shown with the same
    /// setting.
    #[inline]
    pub fn at(&self, now: Instant) -> u64 {
        let passed = now.0.wrapping_sub(self.since.0) as i64;
        let extra = match self.ppb {
            0 => 0,
            ppb => (i128::from(passed) * i128::from(ppb) / BILLION) as i64,
        };
        self.then.saturating_add_signed(passed.saturating_add(extra))
    }

    /// How much faster it is than the data cores' time, in parts per billion.
    pub const fn frequency(&self) -> i32 {
        self.ppb
    }

    /// Sets its time, in ns; the frequency stays.
    pub fn set(&mut self, now: Instant, time: u64) {
        (self.since, self.then) = (now, time);
    }

    /// Moves its time by `offset` ns, not below 0.
    pub fn step(&mut self, now: Instant, offset: i64) {
        self.set(now, self.at(now).saturating_add_signed(offset));
    }

    /// Sets its frequency, at most [`FREQUENCY_MAX`] either way (more is cut); its time goes on without a step.
    pub fn slew(&mut self, now: Instant, ppb: i32) {
        self.set(now, self.at(now));
        self.ppb = ppb.clamp(-FREQUENCY_MAX, FREQUENCY_MAX);
    }
}
