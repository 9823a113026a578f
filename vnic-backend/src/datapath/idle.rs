//! How long a core without work polls before it sleeps.
//!
//! Polling costs nothing if the core has its CPU for itself, and saves senders the wake-up. If another thread needs that CPU,
//! say the guest that is to answer, the opposite holds: nothing comes until the core sleeps. The system has no cheap and
//! certain sign of this, so the core tries: in half of some idle times it sleeps almost at once, and if work then comes in
//! less than half the time of the other idle times, it keeps sleeping for a while. It tries the less often the less that
//! helps, and not at all while it mostly finds work. If work comes again and again soon after it has fallen asleep, which
//! points to the second case, it tries earlier.

use std::time::Duration;

use vnic_fabric::Instant;

/// Polling time of a core that sleeps almost at once: for work right behind the last. Shorter idle times do not count:
/// both ways are equal for them.
const BRIEF: Duration = Duration::from_micros(2);
/// Idle times after which the core decides whether to try.
const BEFORE: u32 = 16;
/// Idle times of a trial.
const TRIAL: u32 = 32;
/// Bits of the idle times of a trial in which the core sleeps: half of them, in the Thue-Morse sequence, which does not
/// correlate with anything of period two or four, such as turns of peers.
const TRIES: u32 = 0x9669_6996;
/// Idle times for which the core keeps sleeping at once.
const STAY: u32 = 1024;
/// Most idle times between two trials that do not help, and least ones if it seems that one would.
const SELDOM: u32 = 1 << 14;
const SOONER: u32 = 1 << 9;

/// What a core does in its idle times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The core polls for the configured time.
    Looks,
    /// The core polls for the configured time or for [`BRIEF`], in alternation, to find out which is better.
    Tries,
    /// The core polls for [`BRIEF`], because that is better.
    Sleeps,
}

/// Idle times of a core.
#[derive(Debug)]
pub struct Idle {
    /// Configured time of polling.
    spin: Duration,
    /// When the core began to poll.
    since: Instant,
    /// When the core ran out of work.
    begun: Option<Instant>,
    way: Way,
    /// Idle times until the next decision.
    left: u32,
    /// Idle times before the next trial, and since the last one.
    pause: u32,
    looks: u32,
    /// Idle times, of the last [`BEFORE`] at most, in which the core polled in vain, and those of them in which work came no
    /// longer after it slept than it had polled.
    in_vain: u32,
    narrowly: u32,
    /// Sums of a trial's idle times: of those in which the core polled, and of those in which it slept at once.
    looking: Duration,
    trying: Duration,
}

impl Idle {
    /// Idle times of a core that polls for `spin`.
    pub fn new(spin: Duration, now: Instant) -> Idle {
        Idle {
            spin,
            since: now,
            begun: None,
            way: Way::Looks,
            left: BEFORE,
            pause: BEFORE,
            looks: 0,
            in_vain: 0,
            narrowly: 0,
            looking: Duration::ZERO,
            trying: Duration::ZERO,
        }
    }

    /// The core has work.
    #[inline]
    pub fn worked(&mut self, now: Instant) {
        self.since = now;
        if let Some(begun) = self.begun.take() {
            let time = now.since(begun);
            if time > BRIEF {
                self.ended(time);
            }
        }
    }

    /// The core has slept until now; it may have no work.
    pub fn slept(&mut self, now: Instant) {
        self.since = now;
    }

    /// The core polled and found nothing. True: it should sleep.
    #[inline]
    pub fn looked(&mut self, now: Instant) -> bool {
        if self.begun.is_none() {
            self.begun = Some(now);
        }
        let spin = if self.is_brief() {
            self.spin.min(BRIEF)
        } else {
            self.spin
        };
        now.since(self.since) >= spin
    }

    /// Whether the core sleeps at once this time.
    #[inline]
    fn is_brief(&self) -> bool {
        match self.way {
            Way::Looks => false,
            Way::Tries => TRIES >> (TRIAL - self.left) & 1 == 1,
            Way::Sleeps => true,
        }
    }

    /// Counts an idle time that is over.
    fn ended(&mut self, time: Duration) {
        // One long idle time must not outweigh sixteen short ones.
        let long = 2 * self.spin;
        let time = time.min(long);
        match self.way {
            Way::Looks => {
                self.in_vain += u32::from(time >= self.spin);
                self.narrowly += u32::from(time >= self.spin && time < long);
            }
            Way::Tries if self.is_brief() => self.trying += time,
            Way::Tries => self.looking += time,
            Way::Sleeps => {}
        }
        self.left -= 1;
        if self.left == 0 {
            self.think();
        }
    }

    #[cold]
    fn think(&mut self) {
        (self.way, self.left) = match self.way {
            Way::Looks => {
                self.looks = self.looks.saturating_add(BEFORE);
                let worthwhile = match self.looks >= self.pause {
                    // A core that mostly finds work has nothing to gain.
                    true => self.in_vain >= BEFORE / 4,
                    false => self.looks >= SOONER && self.narrowly >= BEFORE / 2,
                };
                match worthwhile {
                    true => (Way::Tries, TRIAL),
                    false => (Way::Looks, BEFORE),
                }
            }
            Way::Sleeps => (Way::Tries, TRIAL),
            Way::Tries if self.trying * 2 < self.looking => {
                self.pause = BEFORE;
                (Way::Sleeps, STAY)
            }
            Way::Tries => {
                self.pause = (2 * self.pause).min(SELDOM);
                self.looks = 0;
                (Way::Looks, BEFORE)
            }
        };
        (self.in_vain, self.narrowly) = (0, 0);
        (self.looking, self.trying) = (Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIN: Duration = Duration::from_micros(50);
    const STEP: Duration = Duration::from_nanos(200);

    /// A core and its clock.
    struct Core {
        idle: Idle,
        now: Instant,
        slept: u32,
    }

    impl Core {
        fn new(spin: Duration) -> Core {
            let now = Instant(7_000_000);
            Core {
                idle: Idle::new(spin, now),
                now,
                slept: 0,
            }
        }

        /// An idle time: work is there after `in_sight_after`, or `asleep_for` after the core fell asleep.
        fn idle(&mut self, in_sight_after: Duration, asleep_for: Duration) {
            self.idle.worked(self.now);
            let begun = self.now;
            loop {
                self.now = self.now + STEP;
                if self.now.since(begun) >= in_sight_after {
                    return;
                }
                if self.idle.looked(self.now) {
                    self.slept += 1;
                    self.now = self.now + asleep_for;
                    return self.idle.slept(self.now);
                }
            }
        }

        /// `n` idle times: how often the core slept, and their mean.
        fn many(&mut self, n: u32, in_sight_after: Duration, asleep_for: Duration) -> (u32, Duration) {
            let (slept, begun) = (self.slept, self.now);
            (0..n).for_each(|_| self.idle(in_sight_after, asleep_for));
            (self.slept - slept, self.now.since(begun) / n)
        }
    }

    const NEVER: Duration = Duration::from_secs(1);
    const SOON: Duration = Duration::from_micros(5);
    const WAKE_UP: Duration = Duration::from_micros(40);

    #[test]
    fn where_work_comes_once_it_sleeps_it_sleeps_almost_at_once() {
        let mut core = Core::new(SPIN);
        let (slept, mean) = core.many(20_000, NEVER, SOON);
        assert_eq!(slept, 20_000);
        assert!(mean < BRIEF + SOON + 2 * STEP + SPIN / 40, "{mean:?}");
    }

    /// `2 * n` idle times, half of which wait for the core's CPU and half for another one: their mean.
    fn halves(core: &mut Core, n: u32) -> Duration {
        let begun = core.now;
        for _ in 0..n {
            core.idle(NEVER, SOON);
            // (From another CPU: in sight, or a kick a little later.)
            core.idle(SOON, SOON);
        }
        core.now.since(begun) / (2 * n)
    }

    /// `4 * n` idle times, none of which sleep makes shorter: in how many of those with work soon the core slept.
    fn without_gain(core: &mut Core, n: u32) -> u32 {
        let four = |_| {
            core.idle(NEVER, WAKE_UP);
            core.many(3, Duration::from_micros(40), WAKE_UP).0
        };
        (0..n).map(four).sum()
    }

    #[test]
    fn also_where_only_half_of_it_waits_for_the_cpu() {
        let mut core = Core::new(SPIN);
        let mean = halves(&mut core, 10_000);
        assert!(mean < BRIEF + SOON + 2 * STEP + SPIN / 40, "{mean:?}");
    }

    #[test]
    fn where_work_comes_soon_it_never_sleeps() {
        let mut core = Core::new(SPIN);
        assert_eq!(core.many(100_000, Duration::from_micros(10), WAKE_UP).0, 0);
    }

    #[test]
    fn also_for_months() {
        let mut core = Core::new(SPIN);
        core.idle.looks = u32::MAX - 1;
        assert_eq!(core.many(100, Duration::from_micros(10), WAKE_UP).0, 0);
    }

    #[test]
    fn rare_pauses_of_any_length_are_no_reason_to_try() {
        let mut core = Core::new(SPIN);
        for _ in 0..1000 {
            core.idle(NEVER, SOON);
            core.many(15, Duration::from_micros(30), WAKE_UP);
        }
        assert_eq!(core.slept, 1000);
    }

    #[test]
    fn traffic_that_begins_is_not_taken_for_a_gain() {
        // Pauses until traffic begins, then work soon each time.
        for pauses in 1..200 {
            let mut core = Core::new(SPIN);
            core.many(pauses, NEVER, NEVER);
            let (slept, _) = core.many(10_000, Duration::from_micros(5), WAKE_UP);
            assert!(slept <= TRIAL / 2, "{slept} after {pauses} pauses");
        }
    }

    #[test]
    fn where_sleep_only_costs_the_wake_up_it_is_hardly_ever_tried() {
        let mut core = Core::new(SPIN);
        without_gain(&mut core, 25_000);
        let slept = without_gain(&mut core, 25_000);
        assert!((1..=7 * TRIAL).contains(&slept), "{slept}");
    }

    #[test]
    fn where_the_cpu_is_wanted_after_all_that_is_soon_found_out() {
        let mut core = Core::new(SPIN);
        without_gain(&mut core, 25_000);
        // The peer has moved to the core's CPU.
        halves(&mut core, SOONER);
        let mean = halves(&mut core, 1000);
        assert!(mean < BRIEF + SOON + 2 * STEP + SPIN / 40, "{mean:?}");
    }

    #[test]
    fn a_quiet_core_is_told_nothing_by_its_pauses() {
        let mut core = Core::new(SPIN);
        let second = Duration::from_secs(1);
        core.many(100, NEVER, second);
        let mut looks = 0;
        for _ in 0..1000 {
            let begun = core.now;
            core.idle(NEVER, second);
            looks += u32::from(core.now.since(begun) >= second + SPIN);
        }
        assert!(looks > 900, "{looks}");
    }

    #[test]
    fn what_was_good_once_is_given_up_when_it_is_not_any_more() {
        let mut core = Core::new(SPIN);
        core.many(1000, NEVER, SOON);
        core.many(2 * STAY, Duration::from_micros(10), WAKE_UP);
        assert_eq!(core.many(10_000, Duration::from_micros(10), WAKE_UP).0, 0);
    }

    #[test]
    fn a_wake_up_without_work_does_not_end_an_idle_time() {
        let mut core = Core::new(SPIN);
        core.idle.worked(core.now);
        assert!(!core.idle.looked(core.now));
        let woken = core.now + SPIN;
        assert!(core.idle.looked(woken));
        core.idle.slept(woken);
        assert!(!core.idle.looked(woken), "it looks anew");
        assert_eq!(core.idle.left, BEFORE);
        core.idle.worked(woken);
        assert_eq!((core.idle.left, core.idle.in_vain), (BEFORE - 1, 1));
    }

    #[test]
    fn a_core_that_shall_not_look_never_does() {
        let mut core = Core::new(Duration::ZERO);
        assert_eq!(core.many(1000, NEVER, SOON), (1000, STEP + SOON));
    }
}
