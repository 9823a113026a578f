//! DCQCN's state of one flow.
//!
//! ```text
//!             CNP: cut, both stages 0
//!      ┌───────────────────────────────────────────┐
//!      ▼            max < F      max ≥ F            │  min ≥ F
//!  released ─CNP─▶ recovery ────▶ additive ────────┼─▶ hyper
//!      ▲           RC to RT      RT += ai           │   RT += hai (times how often)
//!      └── RC within 1 Mbit/s of the greatest rate ─┴──────┘
//!                  max and min of the stages, which timer (T) and byte counter (B) count
//! ```
//!
//! Nothing runs by itself: a look brings alpha and the timer up to date, by as many steps as were missed. Equal steps are
//! made at once, so that a look after an hour is bounded work.

use vnic_wire::time::Instant;

use super::{AlphaClock, Hyper, Order, Parameters};
use crate::congestion::{Algorithm, Limits, Loss, Notification, Start, State, UNLIMITED};

/// Distance from the greatest rate at which the limiter is released, in bit/s: the unit in which rates are configured.
const GRAIN: u64 = 1_000_000;

/// Alpha below this, in 1/1024, is 0: it would take less than a millionth from the rate.
const NOTHING: f64 = 1.0 / 1024.0;

/// A flow's reaction point.
#[derive(Debug, Clone)]
pub(super) struct Reaction {
    p: Parameters,
    /// Rate without a limiter, and least rate, in bit/s.
    greatest: u64,
    least: u64,
    /// Whether there is a limiter: all fields below count.
    limited: bool,
    /// RC in bit/s, and RT.
    current: u64,
    target: u64,
    /// Alpha in 1/1024; a whole number with `fixed_point`.
    alpha: f64,
    /// When alpha changes next.
    alpha_at: Option<Instant>,
    /// Whether a notification came in this alpha period.
    notified: bool,
    time_stage: u32,
    byte_stage: u32,
    /// When the timer fires.
    timer: Option<Instant>,
    /// Bytes since the byte counter's last stage.
    bytes: u64,
    last_cut: Option<Instant>,
    cuts: u64,
}

impl Reaction {
    pub(super) fn new(p: &Parameters, now: Instant, flow: &Start) -> Reaction {
        let greatest = match p.max_rate {
            0 => flow.line_rate,
            rate => rate.min(flow.line_rate),
        };
        let mut this = Reaction {
            p: p.clone(),
            greatest,
            least: p.min_rate.min(greatest),
            limited: false,
            current: greatest,
            target: greatest,
            alpha: 0.0,
            alpha_at: None,
            notified: false,
            time_stage: 0,
            byte_stage: 0,
            timer: None,
            bytes: 0,
            last_cut: None,
            cuts: 0,
        };
        if let Some(rate) = flow.rate
            && !this.disabled()
        {
            this.limit(now);
            this.set(rate);
            this.restart(now);
            this.release_at_greatest();
        }
        this
    }

    /// Whether the least rate is that of the link: there is nothing to limit.
    fn disabled(&self) -> bool {
        self.least >= self.greatest
    }

    /// Allocates a limiter.
    fn limit(&mut self, now: Instant) {
        self.limited = true;
        self.set(self.greatest);
        self.alpha = self.whole(f64::from(self.p.initial_alpha));
        self.notified = false;
        self.alpha_at = (!self.p.alpha_period.is_zero()).then(|| now + self.p.alpha_period);
        self.last_cut = None;
    }

    fn set(&mut self, rate: u64) {
        self.current = rate.clamp(self.least, self.greatest);
        self.target = self.current;
    }

    fn release_at_greatest(&mut self) {
        if self.current + GRAIN > self.greatest {
            self.limited = false;
            self.set(self.greatest);
            self.timer = None;
            self.alpha_at = None;
            (self.time_stage, self.byte_stage, self.bytes) = (0, 0, 0);
        }
    }

    /// Restarts both clocks of increase.
    fn restart(&mut self, now: Instant) {
        (self.time_stage, self.byte_stage, self.bytes) = (0, 0, 0);
        self.timer = (!self.p.time_reset.is_zero()).then(|| now + self.p.time_reset);
    }

    /// A possible alpha: at most 1, and whole if firmware's is.
    fn whole(&self, alpha: f64) -> f64 {
        if self.p.fixed_point {
            (alpha as u64).min(1023) as f64
        } else if alpha < NOTHING {
            0.0
        } else {
            alpha.min(1024.0)
        }
    }

    /// Takes one sample into alpha: 1 or 0.
    fn sample(&mut self, congested: bool) {
        let g = f64::from(self.p.g.min(1024));
        let new = if congested { g } else { 0.0 };
        self.alpha = self.whole(self.alpha * (1024.0 - g) / 1024.0 + new);
    }

    fn advance_alpha(&mut self, now: Instant) {
        let Some(mut at) = self.alpha_at else { return };
        let period = self.p.alpha_period;
        while at <= now {
            if !self.notified && (self.alpha == 0.0 || self.p.g == 0) {
                // Nothing changes any more.
                let period = (period.as_nanos() as u64).max(1);
                at = Instant(at.0 + (now.0 - at.0) / period * period + period);
                break;
            }
            let congested = core::mem::take(&mut self.notified);
            self.sample(congested);
            at = at + period;
        }
        self.alpha_at = Some(at);
    }

    /// Step of the target, by the stages.
    fn step(&self) -> u64 {
        let f = self.p.threshold.max(1);
        let least = self.time_stage.min(self.byte_stage);
        if self.time_stage.max(self.byte_stage) < f {
            0
        } else if least <= f {
            self.p.ai_rate
        } else {
            match self.p.hyper {
                Hyper::Growing => self.p.hai_rate.saturating_mul(u64::from(least - f)),
                Hyper::Constant => self.p.hai_rate,
            }
        }
    }

    /// Whether both clocks are beyond F.
    fn is_hyper(&self) -> bool {
        self.time_stage.min(self.byte_stage) > self.p.threshold.max(1)
    }

    /// Time to the next stage of the timer.
    fn time_period(&self) -> u64 {
        let ns = (self.p.time_reset.as_nanos() as u64).max(1);
        if self.p.qcn_relics && self.is_hyper() {
            (ns / 2).max(1)
        } else {
            ns
        }
    }

    /// Bytes to the next stage of the byte counter.
    fn byte_period(&self) -> u64 {
        if self.p.qcn_relics && self.is_hyper() {
            (self.p.byte_reset / 2).max(1)
        } else {
            self.p.byte_reset
        }
    }

    /// Raises the rate: a stage was counted.
    fn increase(&mut self) {
        let first = self.time_stage == 1 || self.byte_stage == 1;
        if self.p.qcn_relics && first && self.target > self.current.saturating_mul(10) {
            self.target /= 8;
        }
        self.target = self.target.saturating_add(self.step()).min(self.greatest);
        self.current = self.target.midpoint(self.current).max(self.least);
        self.release_at_greatest();
    }

    fn advance_timer(&mut self, now: Instant) {
        while let Some(at) = self.timer
            && at <= now
        {
            let gap = self.target - self.current.min(self.target);
            self.time_stage = self.time_stage.saturating_add(1);
            self.increase();
            if !self.limited {
                return;
            }
            let at = Instant(at.0 + self.time_period());
            self.timer = Some(at);
            if at <= now && gap == self.target - self.current.min(self.target) {
                self.leap(now, at);
            }
        }
    }

    /// Raises both rates by equal steps: all steps up to now, or to the greatest rate, at once.
    fn leap(&mut self, now: Instant, at: Instant) {
        let f = self.p.threshold.max(1);
        let grows = self.p.hyper == Hyper::Growing && self.time_stage < self.byte_stage;
        if self.time_stage <= f || (self.byte_stage > f && grows) {
            return;
        }
        let period = self.time_period();
        let missed = (now.0 - at.0) / period + 1;
        let step = self.step();
        let room = self.greatest.saturating_sub(self.target + GRAIN);
        let times = room.checked_div(step).map_or(missed, |n| n.min(missed));
        self.target += step * times;
        self.current += step * times;
        let times32 = u32::try_from(times).unwrap_or(u32::MAX);
        self.time_stage = self.time_stage.saturating_add(times32);
        self.timer = Some(Instant(at.0 + times * period));
    }

    fn cut(&mut self, now: Instant) {
        let p = &self.p;
        let increased = self.byte_stage != 0 || (p.clamp_target_after_time && self.time_stage != 0);
        if p.clamp_target || increased {
            self.target = self.current;
        }
        let part = self.alpha / (1u64 << p.alpha_to_rate_shift.min(63)) as f64;
        let by_alpha = (self.current as f64 * (1.0 - part.min(1.0))) as u64;
        let at_least = self.current * u64::from(p.min_decrease.min(100)) / 100;
        self.current = by_alpha.max(at_least).clamp(self.least, self.current);
        self.cuts += 1;
        self.last_cut = Some(now);
        self.restart(now);
    }
}

impl Algorithm for Reaction {
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        if !self.limited || self.p.byte_reset == 0 {
            return;
        }
        self.advance_timer(now);
        self.bytes += u64::from(bytes);
        while self.limited && self.bytes >= self.byte_period() {
            self.bytes -= self.byte_period();
            self.byte_stage = self.byte_stage.saturating_add(1);
            self.increase();
        }
    }

    fn on_notification(&mut self, now: Instant, _: &Notification) {
        if self.disabled() {
            return;
        }
        self.advance(now, false);
        let first = !self.limited;
        if first {
            self.limit(now);
        }
        self.notified = self.p.alpha_clock == AlphaClock::Period;
        if first && self.p.rate_on_first_cnp != 0 {
            self.set(self.p.rate_on_first_cnp);
            self.last_cut = Some(now);
            self.restart(now);
            self.release_at_greatest();
            return;
        }
        let by_notification = self.p.alpha_clock == AlphaClock::Notification;
        if by_notification && self.p.order == Order::AlphaFirst {
            self.sample(true);
        }
        if self.last_cut.is_none_or(|at| now.since(at) >= self.p.cut_period) {
            self.cut(now);
        }
        if by_notification {
            if self.p.order == Order::CutFirst {
                self.sample(true);
            }
            self.alpha_at = self.alpha_at.map(|_| now + self.p.alpha_period);
        }
        self.release_at_greatest();
    }

    /// Slow restart: a loss acts as a notification.
    fn on_loss(&mut self, now: Instant, _: Loss) {
        self.on_notification(now, &Notification::default());
    }

    fn advance(&mut self, now: Instant, _: bool) {
        if self.limited {
            self.advance_timer(now);
            self.advance_alpha(now);
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: if self.limited { self.current } else { UNLIMITED },
            window: UNLIMITED,
        }
    }

    fn next_change(&self) -> Option<Instant> {
        self.timer
    }

    fn is_released(&self) -> bool {
        !self.limited
    }

    fn state(&self) -> State {
        State {
            target: self.limited.then_some(self.target),
            alpha: self.limited.then_some(self.alpha as u32),
            stages: self.limited.then_some((self.time_stage, self.byte_stage)),
            cuts: self.cuts,
        }
    }
}
