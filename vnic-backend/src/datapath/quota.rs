//! Share of a data core's time for questions of the control plane: a reader may ask without end, and some answers are long.
//! Settings do not wait: they act before any frame that comes later.

use std::collections::VecDeque;
use std::time::Duration;

use vnic_fabric::Instant;

use super::handle::Job;

/// Largest number of jobs between two rounds.
pub const COMMANDS: usize = 16;
/// No question is begun after questions have taken this long.
const TOGETHER: Duration = Duration::from_micros(50);
/// While guests keep the core busy, rounds get this many times the time of questions.
const ROUNDS: u32 = 3;

/// When questions are answered again, and the questions that wait until then.
#[derive(Default)]
pub struct Quota {
    from: Instant,
    /// Waiting questions, oldest first.
    pub waiting: VecDeque<Job>,
}

impl Quota {
    /// Whether questions may be answered before the next round.
    #[inline]
    pub fn open(&self, now: Instant) -> bool {
        self.from <= now
    }

    /// Counts the time of the questions since `begun`. True: another one may follow.
    pub fn spend(&mut self, begun: Instant, now: Instant) -> bool {
        let spent = now.since(begun);
        self.from = now + spent * ROUNDS;
        spent < TOGETHER
    }

    /// Allows questions at once, because a round found no work.
    #[inline]
    pub fn idle(&mut self) {
        self.from = Instant(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: Duration = Duration::from_micros(20);

    /// Times of commands and of rounds while there are always commands, each of which takes `command`.
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
