//! DCQCN+'s state of one flow.
//!
//! ```text
//!  CNP (tau): RT := RC, RC cut by alpha, alpha raised, S := 0
//!  timer (max(tau, 2 packet/RC), or 55 us):  S < F: RC to RT · S < 4F: RT += AI step · else: RT += HI step;  S += 1
//!  alpha's timer (max(tau, packet/RC), or 55 us): alpha lowered
//! ```

use core::time::Duration;

use vnic_wire::time::Instant;

use super::{Bound, Parameters};
use crate::congestion::{Algorithm, Limits, Loss, Notification, Start, State, UNLIMITED};

/// Distance from the line rate at which the limiter is released, in bit/s, as in DCQCN.
const GRAIN: u64 = 1_000_000;

/// Alpha below this is 0.
const NOTHING: f64 = 1.0 / (1024.0 * 1024.0);

/// A flow's reaction point.
#[derive(Debug, Clone)]
pub(super) struct Reaction {
    p: Parameters,
    line: u64,
    least: u64,
    /// Bits of a full packet on the wire.
    packet: u64,
    /// Whether there is a limiter: all fields below count.
    limited: bool,
    current: u64,
    target: u64,
    /// Alpha, 0..=1.
    alpha: f64,
    /// Time between two notifications, by the last one.
    period: Duration,
    stage: u32,
    timer: Instant,
    alpha_timer: Instant,
    cuts: u64,
}

impl Reaction {
    pub(super) fn new(p: &Parameters, now: Instant, flow: &Start) -> Reaction {
        let line = flow.line_rate;
        let mut this = Reaction {
            p: p.clone(),
            line,
            least: (line / u64::from(p.min_rate_divisor.max(1))).max(1),
            packet: u64::from(flow.wire) * 8,
            limited: false,
            current: line,
            target: line,
            alpha: 0.0,
            period: p.period_floor,
            stage: 0,
            timer: now,
            alpha_timer: now,
            cuts: 0,
        };
        if let Some(rate) = flow.rate
            && this.least < line
        {
            this.limit();
            this.current = rate.clamp(this.least, line);
            this.target = this.current;
            this.restart(now);
            this.release_at_line_rate();
        }
        this
    }

    /// Allocates a limiter.
    fn limit(&mut self) {
        self.limited = true;
        self.current = self.line;
        self.target = self.line;
        self.alpha = f64::from(self.p.initial_alpha.min(1024)) / 1024.0;
    }

    fn release_at_line_rate(&mut self) {
        if self.current + GRAIN > self.line {
            self.limited = false;
            self.current = self.line;
            self.target = self.line;
            self.stage = 0;
        }
    }

    /// Time until a timer fires: that of `slack` packets, or the period if that is longer, or the base; at least 1 us.
    fn time(&self, slack: f64) -> Duration {
        let packet = if self.p.packet_time {
            self.packet * 1_000_000_000 / self.current.max(1)
        } else {
            0
        };
        let period = self.period.as_nanos() as u64;
        let time = if period.max(packet) > self.p.period_floor.as_nanos() as u64 {
            ((packet as f64 * slack) as u64).max(period)
        } else {
            self.p.base_timer.as_nanos() as u64
        };
        Duration::from_nanos(time.max(1000))
    }

    fn restart(&mut self, now: Instant) {
        self.stage = 0;
        self.timer = now + self.time(self.p.timer_slack);
        self.alpha_timer = now + self.time(self.p.alpha_slack);
    }

    fn sample(&mut self, congested: bool) {
        let g = f64::from(self.p.g.min(1024)) / 1024.0;
        self.alpha = self.alpha * (1.0 - g) + if congested { g } else { 0.0 };
        if self.alpha < NOTHING {
            self.alpha = 0.0;
        }
    }

    /// Step of the target, by the stage.
    fn step(&self) -> u64 {
        let p = &self.p;
        let part = |of: u64, divisor: u32| of / u64::from(divisor.max(1));
        let hyper = p.threshold.saturating_mul(p.hyper_after);
        if self.stage < p.threshold {
            0
        } else if self.stage < hyper {
            let (rate, line) = if self.alpha * 1024.0 > f64::from(p.steep_alpha) {
                (p.steep_rate_divisor, p.steep_line_divisor)
            } else {
                (p.flat_rate_divisor, p.flat_line_divisor)
            };
            part(self.current, rate).min(part(self.line, line))
        } else {
            let first = part(self.line, p.hyper_line_divisor);
            let times = self.stage - hyper;
            let bound = match p.hyper_bound {
                Bound::Linear => first.saturating_mul(u64::from(times) + 1),
                Bound::Exponential => first.saturating_mul(1 << times.min(62)),
            };
            self.target.min(bound)
        }
    }

    /// Raises the rate: the timer fired.
    fn increase(&mut self) {
        self.target = self.target.saturating_add(self.step()).min(self.line);
        self.current = self.target.midpoint(self.current).max(self.least);
        self.stage = self.stage.saturating_add(1);
        self.release_at_line_rate();
    }
}

impl Algorithm for Reaction {
    fn on_notification(&mut self, now: Instant, cnp: &Notification) {
        if self.least >= self.line {
            return;
        }
        self.advance(now, false);
        if !self.limited {
            self.limit();
        }
        self.period = cnp.period.unwrap_or_default();
        self.target = self.current;
        let left = (1.0 - self.alpha * self.p.cut).max(0.0);
        self.current = ((self.current as f64 * left) as u64).clamp(self.least, self.current);
        self.sample(true);
        self.cuts += 1;
        self.restart(now);
        self.release_at_line_rate();
    }

    /// Slow restart: a loss acts as a notification, with the period of the last one.
    fn on_loss(&mut self, now: Instant, _: Loss) {
        let period = Some(self.period);
        self.on_notification(now, &Notification { period });
    }

    fn advance(&mut self, now: Instant, paused: bool) {
        while self.limited && self.timer.min(self.alpha_timer) <= now {
            // If both are due at once, alpha's is first.
            if self.alpha_timer <= self.timer {
                self.sample(false);
                self.alpha_timer = self.alpha_timer + self.time(self.p.alpha_slack);
            } else {
                if !paused {
                    self.increase();
                }
                self.timer = self.timer + self.time(self.p.timer_slack);
            }
            if paused && (self.alpha == 0.0 || self.p.g == 0) {
                // Nothing changes while the flow is paused.
                self.timer = self.timer.max(now + self.time(self.p.timer_slack));
                self.alpha_timer = self.alpha_timer.max(now + self.time(self.p.alpha_slack));
            }
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: if self.limited { self.current } else { UNLIMITED },
            window: UNLIMITED,
        }
    }

    fn next_change(&self) -> Option<Instant> {
        self.limited.then_some(self.timer)
    }

    fn is_released(&self) -> bool {
        !self.limited
    }

    fn state(&self) -> State {
        State {
            target: self.limited.then_some(self.target),
            alpha: self.limited.then_some((self.alpha * 1024.0) as u32),
            stages: self.limited.then_some((self.stage, 0)),
            cuts: self.cuts,
        }
    }
}
