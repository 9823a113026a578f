//! How much of a data core's time the questions of the control plane may take: whoever may read may ask without end, and some
//! answers are long. What the control plane sets does not wait: it acts before a frame that comes later.

use std::collections::VecDeque;
use std::time::Duration;

use vnic_fabric::Instant;

use super::handle::Job;

/// Jobs that are done between two rounds, at most.
pub const COMMANDS: usize = 16;
/// No question is begun when those before it have taken so long.
const TOGETHER: Duration = Duration::from_micros(50);
/// While guests keep the core busy, rounds have so many times the time that questions have had.
const ROUNDS: u32 = 3;

/// When questions are answered again, and those that wait until then.
#[derive(Default)]
pub struct Quota {
    from: Instant,
    /// Oldest first.
    pub waiting: VecDeque<Job>,
}

impl Quota {
    /// May questions be answered before the next round?
    #[inline]
    pub fn open(&self, now: Instant) -> bool {
        self.from <= now
    }

    /// One was: those since `begun` have taken until now. May another one follow?
    pub fn spend(&mut self, begun: Instant, now: Instant) -> bool {
        let spent = now.since(begun);
        self.from = now + spent * ROUNDS;
        spent < TOGETHER
    }

    /// A round found nothing to do: there is nobody whose time it is.
    #[inline]
    pub fn idle(&mut self) {
        self.from = Instant(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_micros(20);

    /// Times of commands and of rounds while there are always commands that take so long.
    fn flooded(command: Duration, work: bool) -> (Duration, Duration) {
        let (mut quota, mut now) = (Quota::default(), Instant(1 << 40));
        let (mut commands, mut rounds) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..10_000 {
            let begun = now;
            if quota.open(now) {
                for _ in 0..COMMANDS {
                    now = now + command;
                    if !quota.spend(begun, now) {
                        break;
                    }
                }
            }
            assert!(now.since(begun) < TOGETHER + command, "one too many");
            commands += now.since(begun);
            now = now + ROUND;
            rounds += ROUND;
            if !work {
                quota.idle();
            }
        }
        (commands, rounds)
    }

    #[test]
    fn commands_without_end_leave_most_of_the_time_to_guests() {
        for micros in [1, 7, 49, 50, 600, 20_000] {
            let (commands, rounds) = flooded(Duration::from_micros(micros), true);
            assert!(
                rounds >= 3 * commands - Duration::from_millis(60),
                "{micros} us: {commands:?} {rounds:?}"
            );
            assert!(commands > Duration::ZERO);
        }
    }

    #[test]
    fn a_core_without_guests_obeys_at_once() {
        let (commands, rounds) = flooded(Duration::from_micros(100), false);
        assert_eq!(commands, 5 * rounds);
    }
}
