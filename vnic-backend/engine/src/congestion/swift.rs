//! Swift: windows that hold a delay at its target (Kumar et al., Swift: Delay is Simple and Effective for Congestion Control in the
//! Datacenter, SIGCOMM 2020, section 3 and algorithms 1 and 2).
//!
//! ```text
//!  target = base + hops * hop + max(0, min(a / sqrt(cwnd) + b, fs_range))     topology, and flow-based scaling
//!
//!  delay < target   cwnd += ai / cwnd a packet                              (below one packet: ai)
//!  otherwise        cwnd *= max(1 - beta (delay - target) / delay, 1 - max_mdf)      once in a round trip
//! ```
//!
//! There are two windows: one by the delay in the network, one by the delay in the receiver, which its acknowledges carry; the
//! smaller one counts. Below one packet a flow is paced: a packet each `rtt / cwnd`.
//!
//! The paper gives few numbers; the others are guesses, each marked so in [`Parameters`]. Its algorithm 1 says that the time of
//! the last decrease is set whenever the window did *not grow*. Read literally, acknowledges that come more often than once in
//! a round trip put each decrease off for ever; here it is set when the window shrank.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Start, State, UNLIMITED};

/// Parameters. Windows are in packets.
// Wide: the parameters of the algorithm as its paper names them, in one table.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Target of the network's delay without hops and flows. The paper's 50 Gbit/s testbed needs about 25 us (figure 16).
    pub base: Duration,
    /// Delay that a hop adds, with `hop_scaling`. Guess: the paper has no number.
    pub hop: Duration,
    /// Whether targets grow by the number of switches: far flows get as much as near ones (topology-based scaling).
    pub hop_scaling: bool,
    /// Whether targets grow as windows shrink: many flows queue more than few, and come to equal shares sooner (flow-based
    /// scaling).
    pub flow_scaling: bool,
    /// Most that flow-based scaling adds. Guess: five times the base.
    pub fs_range: Duration,
    /// Window at which flow-based scaling adds all of that. Guess.
    pub fs_min: f64,
    /// Window from which on flow-based scaling adds nothing. Guess.
    pub fs_max: f64,
    /// Packets that a window grows in a round trip. The paper has no number: this one agrees with most of its figures (S1 to S4 of
    /// docs/congestion-results.md). htsim has 1, with which delays are a fifth to a third above their targets.
    pub ai: f64,
    /// Factor of a decrease by the part of the delay above target, 0..=1. Guess.
    pub beta: f64,
    /// Largest decrease, 0..=1. Guess.
    pub max_mdf: f64,
    /// Whether windows may be below one packet: the flow is paced.
    pub below_one: bool,
    /// Least window, if they may; the paper's 0.001.
    pub min_cwnd: f64,
    /// Greatest window. Guess.
    pub max_cwnd: f64,
    /// Window at the start. Guess.
    pub initial_cwnd: f64,
    /// Whether the receiver's delay has a window of its own; otherwise the whole round trip counts as the network's (the
    /// paper's v0).
    pub split: bool,
    /// Target of the receiver's delay: 100 us in the paper's table 4.
    pub endpoint_target: Duration,
    /// Weight of a new sample in the moving average of the receiver's delay, 0..=1. Guess: the paper says only that there is
    /// one.
    pub endpoint_ewma: f64,
    /// Timeouts in a row after which the window is the least one. Guess.
    pub retransmit_reset: u32,
}

impl Parameters {
    /// The paper's numbers, and guesses where it has none.
    pub const PAPER: Parameters = Parameters {
        base: Duration::from_micros(25),
        hop: Duration::from_micros(2),
        hop_scaling: true,
        flow_scaling: true,
        fs_range: Duration::from_micros(125),
        fs_min: 0.1,
        fs_max: 100.0,
        ai: 0.05,
        beta: 0.8,
        max_mdf: 0.5,
        below_one: true,
        min_cwnd: 0.001,
        max_cwnd: 4096.0,
        initial_cwnd: 10.0,
        split: true,
        endpoint_target: Duration::from_micros(100),
        endpoint_ewma: 0.125,
        retransmit_reset: 4,
    };
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters::PAPER
    }
}

/// The algorithm with its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Swift {
    /// The parameters.
    pub parameters: Parameters,
}

impl CongestionControl for Swift {
    fn name(&self) -> &'static str {
        "swift"
    }

    fn needs(&self) -> Needs {
        Needs {
            from_start: true,
            ack_every: 1,
            endpoint: self.parameters.split,
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let p = &self.parameters;
        let base = p.base.as_nanos() as f64;
        let packet = f64::from(flow.wire.max(1)) * 8.0;
        let initial = match flow.rate {
            // As many packets as that rate sends in a round trip that is on target.
            Some(rate) => rate as f64 * base / 1e9 / packet,
            None => p.initial_cwnd,
        };
        let mut swift = Flow {
            parameters: p.clone(),
            mtu: flow.mtu.max(1),
            packet,
            line: flow.line_rate,
            fabric: Window::default(),
            endpoint: Window::default(),
            endpoint_delay: None,
            rtt: base.max(1.0),
            timeouts: 0,
            cuts: 0,
        };
        for window in [&mut swift.fabric, &mut swift.endpoint] {
            *window = Window {
                cwnd: p.clamp(initial),
                decreased: now,
            };
        }
        Box::new(swift)
    }
}

impl Parameters {
    fn clamp(&self, cwnd: f64) -> f64 {
        let least = if self.below_one {
            self.min_cwnd.max(f64::MIN_POSITIVE)
        } else {
            1.0
        };
        cwnd.min(self.max_cwnd).max(least)
    }

    /// Target of the network's delay in ns, for a window and a number of switches on the way.
    fn target(&self, cwnd: f64, hops: u8) -> f64 {
        let mut target = self.base.as_nanos() as f64;
        if self.hop_scaling {
            target += self.hop.as_nanos() as f64 * f64::from(hops);
        }
        if self.flow_scaling && self.fs_min > 0.0 && self.fs_min < self.fs_max {
            let range = self.fs_range.as_nanos() as f64;
            let far = 1.0 / libm::sqrt(self.fs_max);
            let a = range / (1.0 / libm::sqrt(self.fs_min) - far);
            target += (a / libm::sqrt(cwnd) - a * far).min(range).max(0.0);
        }
        target
    }
}

/// One of the two windows.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    /// Window in packets.
    cwnd: f64,
    /// Time of the last decrease.
    decreased: Instant,
}

impl Window {
    /// Whether the last decrease is a round trip ago.
    fn can_decrease(&self, now: Instant, rtt: f64) -> bool {
        now.since(self.decreased).as_nanos() as f64 >= rtt
    }

    /// Changes the window by an acknowledge of `packets` packets, and a delay in ns. True: it shrank.
    fn on_ack(
        &mut self,
        now: Instant,
        p: &Parameters,
        packets: f64,
        delay: f64,
        target: f64,
        rtt: f64,
    ) -> bool {
        let before = self.cwnd;
        if delay < target {
            self.cwnd += p.ai * packets / self.cwnd.max(1.0);
        } else if self.can_decrease(now, rtt) && delay > 0.0 {
            self.cwnd *= (1.0 - p.beta * (delay - target) / delay).max(1.0 - p.max_mdf);
        }
        self.clamp(now, p, before)
    }

    /// Changes the window by a loss. True: it shrank.
    fn on_loss(&mut self, now: Instant, p: &Parameters, rtt: f64, reset: bool) -> bool {
        let before = self.cwnd;
        if reset {
            self.cwnd = 0.0;
        } else if self.can_decrease(now, rtt) {
            self.cwnd *= 1.0 - p.max_mdf;
        }
        self.clamp(now, p, before)
    }

    fn clamp(&mut self, now: Instant, p: &Parameters, before: f64) -> bool {
        self.cwnd = p.clamp(self.cwnd);
        let shrank = self.cwnd < before;
        if shrank {
            self.decreased = now;
        }
        shrank
    }
}

/// One flow.
#[derive(Debug, Clone)]
struct Flow {
    parameters: Parameters,
    /// Bytes of payload of a packet.
    mtu: u32,
    /// Bits of a packet on the wire.
    packet: f64,
    /// Speed of the link in bit/s.
    line: u64,
    fabric: Window,
    endpoint: Window,
    /// Moving average of the receiver's delay, in ns.
    endpoint_delay: Option<f64>,
    /// Last round trip, in ns.
    rtt: f64,
    /// Timeouts in a row.
    timeouts: u32,
    cuts: u64,
}

impl Flow {
    fn cwnd(&self) -> f64 {
        match self.parameters.split {
            true => self.fabric.cwnd.min(self.endpoint.cwnd),
            false => self.fabric.cwnd,
        }
    }
}

impl Algorithm for Flow {
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        self.timeouts = 0;
        let Some(rtt) = ack.rtt else {
            return;
        };
        let p = &self.parameters;
        let rtt = (rtt.as_nanos() as f64).max(1.0);
        self.rtt = rtt;
        let packets = f64::from(ack.bytes) / f64::from(self.mtu);
        let at_endpoint = match ack.telemetry {
            Some(t) if p.split => f64::from(t.endpoint).min(rtt),
            _ => 0.0,
        };
        let target = p.target(self.fabric.cwnd, ack.hops);
        let mut shrank = self
            .fabric
            .on_ack(now, p, packets, rtt - at_endpoint, target, rtt);
        if p.split {
            let before = self.endpoint_delay.unwrap_or(at_endpoint);
            let delay = before + p.endpoint_ewma * (at_endpoint - before);
            self.endpoint_delay = Some(delay);
            let target = p.endpoint_target.as_nanos() as f64;
            shrank |= self.endpoint.on_ack(now, p, packets, delay, target, rtt);
        }
        self.cuts += u64::from(shrank);
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        let reset = match loss {
            Loss::Timeout => {
                self.timeouts = self.timeouts.saturating_add(1);
                self.timeouts >= self.parameters.retransmit_reset
            }
            Loss::OutOfSequence => {
                self.timeouts = 0;
                false
            }
            // The receiver has no buffers posted: that says nothing about the way to it.
            Loss::NotReady => return,
        };
        let (p, rtt) = (&self.parameters, self.rtt);
        let fabric = self.fabric.on_loss(now, p, rtt, reset);
        let endpoint = self.endpoint.on_loss(now, p, rtt, reset);
        self.cuts += u64::from(fabric | endpoint);
    }

    fn limits(&self) -> Limits {
        let cwnd = self.cwnd();
        if cwnd < 1.0 {
            let rate = self.packet * cwnd * 1e9 / self.rtt;
            return Limits {
                rate: (rate as u64).max(1).min(self.line.max(1)),
                window: u64::from(self.mtu),
            };
        }
        Limits {
            rate: UNLIMITED,
            window: (cwnd * f64::from(self.mtu)) as u64,
        }
    }

    fn state(&self) -> State {
        State {
            cuts: self.cuts,
            ..State::default()
        }
    }
}
