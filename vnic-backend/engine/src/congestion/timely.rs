//! TIMELY: rates that follow changes of the round trip (Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter,
//! SIGCOMM 2015).
//!
//! ```text
//!  rtt < t_low                rate += step
//!  rtt > t_high               rate *= 1 - beta (1 - t_high / rtt)
//!  round trip not growing     rate += step, or hyper * step after `hyper_after` such in a row
//!  round trip growing         rate *= 1 - beta gradient
//! ```
//!
//! The gradient is the moving average of differences of round trips, in `min_rtt`. The paper times segments; here that is the
//! last packet of a segment, which is the one that asks for an acknowledge: the time that a segment takes on the sender's
//! link is left out, as in the paper.
//!
//! Sources of parameters differ by much ([`Parameters::NS3`], [`Parameters::ERPC`], [`Parameters::ERPC_PATCHED`]). TIMELY has
//! no unique fixed point: flows stay at the shares that they happen to have (Zhu et al., ECN or Delay, CoNEXT 2016, section 4).

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{Ack, Algorithm, CongestionControl, Limits, Needs, Start, State, UNLIMITED};

/// How the packets of a segment leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pacing {
    /// They leave at the link's speed, and then comes a gap (the paper's hardware).
    Burst,
    /// Each packet leaves at its own time, at the flow's rate.
    Packet,
}

/// Events that count towards hyper increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HyperCounts {
    /// Increases in a row, of any kind (ns-3).
    Increases,
    /// Round trips in a row that were shorter than the one before (eRPC).
    Falls,
}

/// Parameters. Times are of round trips.
// Wide: the parameters of the algorithm as its paper and its simulations name them, in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Weight of a new difference in their moving average, 0..=1. The ns-3 line reads it as 0.875, the author's snippet as 0.02.
    pub ewma: f64,
    /// Factor of a decrease, 0..=1.
    pub beta: f64,
    /// Round trip below which rates grow whatever the gradient.
    pub t_low: Duration,
    /// Round trip above which rates fall whatever the gradient.
    pub t_high: Duration,
    /// Round trip that gradients are relative to.
    pub min_rtt: Duration,
    /// Additive increase, in bit/s.
    pub step: u64,
    /// Steps of one hyper increase.
    pub hyper: u32,
    /// Events in a row before hyper increase.
    pub hyper_after: u32,
    /// Events that count.
    pub hyper_counts: HyperCounts,
    /// Bytes of a segment: one round trip is measured for each.
    pub segment: u32,
    /// How a segment's packets leave.
    pub pacing: Pacing,
    /// Whether rates between `t_low` and `t_high` follow the round trip itself, the more the steeper it grows: Patched TIMELY
    /// (Zhu et al., ECN or Delay, CoNEXT 2016, algorithm 2). Without hyper increase.
    pub patched: bool,
    /// Whether rates change once in a round trip (ns-3); otherwise at each measurement.
    pub once_per_rtt: bool,
    /// Whether a change is made smaller in proportion if less than `min_rtt` has passed since the last one (eRPC).
    pub scaled: bool,
    /// Least part of the rate that one decrease leaves, 0..=1.
    pub least_left: f64,
    /// Least rate in bit/s.
    pub min_rate: u64,
    /// Part of the line rate that a flow begins with, above 0 to 1. The paper begins with 1 / (flows of this host + 1), which nobody
    /// here knows.
    pub start: f64,
}

impl Parameters {
    /// Names of presets, in the order in which they are shown.
    pub const PRESETS: [&'static str; 3] = ["ns3", "erpc", "erpc-patched"];

    /// The ns-3 code published with HPCC, which times each packet; its numbers are those of CoNEXT 2016, footnote 4.
    pub const NS3: Parameters = Parameters {
        ewma: 0.875,
        beta: 0.8,
        t_low: Duration::from_micros(50),
        t_high: Duration::from_micros(500),
        min_rtt: Duration::from_micros(20),
        step: 10_000_000,
        hyper: 5,
        hyper_after: 5,
        hyper_counts: HyperCounts::Increases,
        segment: 1,
        pacing: Pacing::Packet,
        patched: false,
        once_per_rtt: true,
        scaled: false,
        least_left: 0.0,
        min_rate: 100_000_000,
        start: 1.0,
    };

    /// The snippet of TIMELY's authors, as eRPC first used it (Kalia et al., eRPC, NSDI 2019): each packet is timed.
    pub const ERPC: Parameters = Parameters {
        ewma: 0.02,
        beta: 0.8,
        t_low: Duration::from_micros(50),
        t_high: Duration::from_micros(1000),
        min_rtt: Duration::from_micros(1),
        step: 40_000_000,
        hyper: 5,
        hyper_after: 5,
        hyper_counts: HyperCounts::Falls,
        segment: 1,
        pacing: Pacing::Packet,
        patched: false,
        once_per_rtt: false,
        scaled: true,
        least_left: 0.5,
        min_rate: 40_000_000,
        start: 1.0,
    };

    /// eRPC's code until May 2018: [`patched`](Parameters::patched), with other weights.
    pub const ERPC_PATCHED: Parameters = Parameters {
        ewma: 0.875,
        beta: 0.008,
        patched: true,
        ..Parameters::ERPC
    };

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Parameters> {
        match name {
            "ns3" => Some(Parameters::NS3),
            "erpc" => Some(Parameters::ERPC),
            "erpc-patched" => Some(Parameters::ERPC_PATCHED),
            _ => None,
        }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters::NS3
    }
}

/// The algorithm with its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timely {
    /// The parameters.
    pub parameters: Parameters,
}

impl CongestionControl for Timely {
    fn name(&self) -> &'static str {
        "timely"
    }

    fn needs(&self) -> Needs {
        Needs {
            from_start: true,
            ack_every: self.parameters.segment.max(1),
            burst: match self.parameters.pacing {
                Pacing::Burst => self.parameters.segment,
                Pacing::Packet => 0,
            },
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let line = flow.line_rate as f64;
        let start = match flow.rate {
            Some(rate) => rate as f64,
            None => line * self.parameters.start,
        };
        let mut timely = Flow {
            parameters: self.parameters.clone(),
            line,
            rate: 0.0,
            previous: None,
            average: 0.0,
            row: 0,
            updated: now,
            update_after: 0,
            cuts: 0,
        };
        timely.set(start);
        Box::new(timely)
    }
}

/// One flow.
#[derive(Debug, Clone)]
struct Flow {
    parameters: Parameters,
    /// Speed of the link in bit/s.
    line: f64,
    /// Rate in bit/s.
    rate: f64,
    /// Previous round trip, in ns.
    previous: Option<f64>,
    /// Moving average of differences, in ns.
    average: f64,
    /// Events in a row that count towards hyper increase.
    row: u32,
    /// Time of the last change of the rate.
    updated: Instant,
    /// Bytes that have to be acknowledged before the next change.
    update_after: u64,
    cuts: u64,
}

impl Flow {
    fn set(&mut self, rate: f64) {
        let least = (self.parameters.min_rate as f64).min(self.line);
        self.rate = rate.max(least).min(self.line);
    }

    fn increase(&mut self, steps: u32, scale: f64) {
        self.set(self.rate + self.parameters.step as f64 * f64::from(steps) * scale);
    }

    fn decrease(&mut self, part: f64) {
        let before = self.rate;
        self.set(before * (1.0 - part).max(self.parameters.least_left).max(0.0));
        self.cuts += u64::from(self.rate < before);
    }

    /// Changes the rate by a round trip in ns. `difference`: to the previous one.
    fn update(&mut self, now: Instant, rtt: f64, difference: f64) {
        let p = &self.parameters;
        let (low, high) = (p.t_low.as_nanos() as f64, p.t_high.as_nanos() as f64);
        let unit = (p.min_rtt.as_nanos() as f64).max(1.0);
        let (beta, counts) = (p.beta, p.hyper_counts);
        let scale = match p.scaled {
            true => (now.since(self.updated).as_nanos() as f64 / unit).min(1.0),
            false => 1.0,
        };
        let gradient = self.average / unit;
        if counts == HyperCounts::Falls {
            self.row = if difference < 0.0 {
                self.row.saturating_add(1)
            } else {
                0
            };
        }
        if rtt < low {
            self.increase(1, scale);
        } else if rtt > high {
            self.decrease(scale * beta * (1.0 - high / rtt));
        } else if self.parameters.patched {
            // Weight of the decrease in the answer: none below a gradient of -1/4, all above 1/4.
            let weight = (2.0 * gradient + 0.5).clamp(0.0, 1.0);
            let off = (rtt - low) / low.max(1.0);
            let step = self.parameters.step as f64 * scale * (1.0 - weight);
            self.decrease(scale * beta * weight * off);
            self.set(self.rate + step);
        } else if gradient <= 0.0 {
            let hyper = self.row >= self.parameters.hyper_after;
            self.increase(if hyper { self.parameters.hyper } else { 1 }, scale);
        } else {
            self.decrease(scale * beta * gradient);
        }
        if counts == HyperCounts::Increases {
            let grew = rtt < low || rtt <= high && gradient <= 0.0;
            self.row = if grew { self.row.saturating_add(1) } else { 0 };
        }
        self.updated = now;
    }
}

impl Algorithm for Flow {
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        let Some(rtt) = ack.rtt else {
            return;
        };
        if self.parameters.once_per_rtt && ack.acked <= self.update_after {
            return;
        }
        self.update_after = ack.sent;
        let rtt = rtt.as_nanos() as f64;
        // The first round trip has none before it: there is no gradient yet.
        let difference = match self.previous.replace(rtt) {
            Some(previous) => rtt - previous,
            None => {
                self.updated = now;
                return;
            }
        };
        let weight = self.parameters.ewma;
        self.average = (1.0 - weight) * self.average + weight * difference;
        self.update(now, rtt, difference);
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: self.rate as u64,
            window: UNLIMITED,
        }
    }

    fn state(&self) -> State {
        State {
            stages: Some((self.row, 0)),
            cuts: self.cuts,
            ..State::default()
        }
    }
}
