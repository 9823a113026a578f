//! State of a completion queue's polling, with a clock for times of completions.

use std::time::{Duration, SystemTime};

use vnic_verbs::{CompletionQueue, Context, WorkCompletion};

use super::latch::Latch;
use super::patience::Patience;
use crate::errno::complain;

/// State of a completion queue's polling.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Patience of polls of either kind.
    pub patience: Patience,
    /// What the thread that has started to poll field by field owns until it ends.
    pub latch: Latch<State>,
}

/// The completion that is read, and the clock that says when it was.
#[derive(Debug, Default)]
pub struct State {
    pub completion: WorkCompletion,
    pub clock: Clock,
}

/// A time in nanoseconds.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts times of the device's clock to the wall clock. Asking the device is a command, so a measurement is used for
/// a while; correct clocks do not differ by much in that time.
#[derive(Debug, Default)]
pub struct Clock(Option<Measured>);

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Measured {
    device: Duration,
    wall: Duration,
}

/// Time for which a measurement is used.
const SERVES: Duration = Duration::from_secs(1);

/// Tries of a measurement; the one that took least time is the best.
const TRIES: usize = 3;

impl Clock {
    /// The time of a completion of `cq` by the wall clock, in ns since 1970; 0 if the device does not give times.
    pub fn wall(&mut self, time: Duration, cq: &CompletionQueue) -> u64 {
        self.convert(time, || measure(cq))
    }

    fn convert(&mut self, time: Duration, measure: impl FnOnce() -> Option<Measured>) -> u64 {
        if time.is_zero() {
            return 0;
        }
        let known = self.0.filter(|m| time.abs_diff(m.device) < SERVES);
        if known.is_none() {
            self.0 = measure().or(self.0);
        }
        let Some(Measured { device, wall }) = self.0 else {
            return 0;
        };
        nanos((wall + time).saturating_sub(device))
    }
}

/// Reads both clocks.
fn measure(cq: &CompletionQueue) -> Option<Measured> {
    let device = cq.device();
    (0..TRIES)
        .filter_map(|_| read_both(&device))
        .min_by_key(|(took, _)| *took)
        .map(|(_, measured)| measured)
}

fn read_both(device: &Context) -> Option<(Duration, Measured)> {
    let wall = || SystemTime::UNIX_EPOCH.elapsed().ok();
    let before = wall()?;
    let clock = device.clock().inspect_err(|e| complain(e)).ok()?;
    let took = wall()?.checked_sub(before)?;
    let measured = Measured {
        device: clock,
        wall: before + took / 2,
    };
    Some((took, measured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_follows_the_device_and_is_measured_now_and_then() {
        let mut clock = Clock::default();
        let mut measurements = 0;
        let mut at = |time: u64, device: u64, wall: u64| {
            clock.convert(Duration::from_millis(time), || {
                measurements += 1;
                Some(Measured {
                    device: Duration::from_millis(device),
                    wall: Duration::from_millis(wall),
                })
            }) / 1_000_000
        };
        // Without a time there is none.
        assert_eq!(at(0, 1, 1), 0);
        // A completion from before the measurement, then some from behind it.
        assert_eq!(at(4000, 4500, 9500), 9000);
        assert_eq!(at(4600, 0, 0), 9600);
        assert_eq!(at(5499, 0, 0), 10_499);
        // The wall's clock was set back meanwhile.
        assert_eq!(at(5500, 5600, 600), 500);
        assert_eq!(measurements, 2);
    }

    #[test]
    fn without_an_answer_the_last_one_serves_on() {
        let mut clock = Clock::default();
        assert_eq!(clock.convert(Duration::from_secs(5), || None), 0);
        let measured = Measured {
            device: Duration::from_secs(5),
            wall: Duration::from_secs(105),
        };
        assert_eq!(
            clock.convert(Duration::from_secs(5), || Some(measured)),
            105_000_000_000
        );
        assert_eq!(clock.convert(Duration::from_secs(9), || None), 109_000_000_000);
    }
}
