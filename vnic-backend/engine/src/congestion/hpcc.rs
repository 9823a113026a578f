//! HPCC: windows that hold the bytes in flight at a part of what each link takes, by telemetry of the links (Li et al., HPCC:
//! High Precision Congestion Control, SIGCOMM 2019, sections 3 and 4, algorithm 1).
//!
//! ```text
//!  of each link:   u = min(queue now, queue before) / (B T) + (bytes sent / time) / B
//!  U = (1 - tau/T) U + tau/T max(u)                              tau: time between the two samples, at most T
//!
//!  U >= eta, or max_stage increases   W = Wc / (U / eta) + W_AI
//!  otherwise                          W = Wc + W_AI
//! ```
//!
//! `Wc`, the reference window, becomes `W` once in a round trip: an acknowledge changes the window by its own telemetry, but
//! not twice for the same packets. [`Reaction`] has the paper's two alternatives that fail.
//!
//! Windows are in bytes on the wire inside, as links count; [`Limits`] has payload.

#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use core::time::Duration;

use vnic_wire::int::{self, Telemetry};
use vnic_wire::time::Instant;

use super::{Ack, Algorithm, CongestionControl, Limits, Needs, Start, State};

/// When a window follows the telemetry (section 3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// Each acknowledge changes the window, from the reference window (HPCC).
    Reference,
    /// Each acknowledge changes the window, from the window itself: it reacts many times to the same queue.
    PerAck,
    /// The window changes once in a round trip: it reacts late.
    PerRtt,
}

/// Parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    /// Part of a link that the algorithm aims at.
    pub eta: f64,
    /// Additive increases in a row before a multiplicative one. The paper's 5; the public ns-3 configuration has 0.
    pub max_stage: u32,
    /// W_AI: bytes of an additive increase. The paper's 80 is W_init (1 - eta) / N with 100 flows at 100 Gbit/s.
    pub w_ai: f64,
    /// T: a round trip without queues, of all flows. 9 us in the paper's testbed, 13 us in its simulation.
    pub base_rtt: Duration,
    /// When a window follows the telemetry.
    pub reaction: Reaction,
    /// U before the first sample; the paper does not say (ns-3: 1, htsim: eta).
    pub initial_u: f64,
    /// Least rate in bit/s; 0: none, as in the paper. The public ns-3 configuration has 100 Mbit/s to 1 Gbit/s.
    pub min_rate: u64,
}

impl Parameters {
    /// Names of presets, in the order in which they are shown.
    pub const PRESETS: [&'static str; 2] = ["sim", "testbed"];

    /// The paper's simulation.
    pub const SIM: Parameters = Parameters {
        eta: 0.95,
        max_stage: 5,
        w_ai: 80.0,
        base_rtt: Duration::from_micros(13),
        reaction: Reaction::Reference,
        initial_u: 1.0,
        min_rate: 0,
    };

    /// The paper's testbed.
    pub const TESTBED: Parameters = Parameters {
        base_rtt: Duration::from_micros(9),
        ..Parameters::SIM
    };

    /// A preset by its name.
    pub fn preset(name: &str) -> Option<Parameters> {
        match name {
            "sim" => Some(Parameters::SIM),
            "testbed" => Some(Parameters::TESTBED),
            _ => None,
        }
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters::SIM
    }
}

/// The algorithm with its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Hpcc {
    /// The parameters.
    pub parameters: Parameters,
}

impl CongestionControl for Hpcc {
    fn name(&self) -> &'static str {
        "hpcc"
    }

    fn needs(&self) -> Needs {
        Needs {
            from_start: true,
            ack_every: 1,
            telemetry: true,
            ..Needs::default()
        }
    }

    fn start(&self, now: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let p = &self.parameters;
        let base_rtt = (p.base_rtt.as_nanos() as f64).max(1.0);
        let per_rtt = |rate: u64| rate as f64 * base_rtt / 8e9;
        let most = per_rtt(flow.line_rate.max(1));
        let least = per_rtt(p.min_rate).min(most);
        let window = flow.rate.map_or(most, per_rtt).min(most).max(least);
        Box::new(Flow {
            parameters: p.clone(),
            base_rtt,
            payload: f64::from(flow.mtu) / f64::from(flow.wire.max(1)),
            more: u64::from(flow.mtu.max(1) - 1),
            most,
            least,
            window,
            reference: window,
            stage: 0,
            u: p.initial_u,
            update_after: 0,
            last: None,
            heard: now,
            cuts: 0,
        })
    }
}

/// One flow.
#[derive(Debug, Clone)]
struct Flow {
    parameters: Parameters,
    /// T in ns.
    base_rtt: f64,
    /// Bytes of payload in a byte on the wire.
    payload: f64,
    /// Bytes of payload of a packet, minus one.
    more: u64,
    /// Greatest window in bytes on the wire.
    most: f64,
    /// Least window in bytes on the wire.
    least: f64,
    /// W in bytes on the wire.
    window: f64,
    /// Wc in bytes on the wire.
    reference: f64,
    /// Additive increases since the last multiplicative one.
    stage: u32,
    /// U.
    u: f64,
    /// Bytes that have to be acknowledged before the reference window changes.
    update_after: u64,
    /// Telemetry of the last acknowledge.
    last: Option<Telemetry>,
    /// Time of the last acknowledge.
    heard: Instant,
    cuts: u64,
}

impl Flow {
    /// The bytes in flight on the fullest link, as a part of it, by two samples of the same path. `None`: the samples say
    /// nothing new.
    fn measure(&mut self, before: &Telemetry, after: &Telemetry) -> Option<f64> {
        let mut fullest: Option<(f64, f64)> = None;
        for (before, after) in before.hops().iter().zip(after.hops()) {
            let (time, Some(rate)) = (after.time_since(before), after.rate()) else {
                continue;
            };
            if time == 0 {
                continue;
            }
            // Bytes in a ns.
            let speed = rate as f64 / 8e9;
            let queue = before.queued().min(after.queued()) as f64;
            let sent = after.sent_since(before) as f64 / time as f64;
            let u = queue / (speed * self.base_rtt) + sent / speed;
            if fullest.is_none_or(|(most, _)| u > most) {
                fullest = Some((u, time as f64));
            }
        }
        let (u, time) = fullest?;
        let weight = time.min(self.base_rtt) / self.base_rtt;
        self.u = (1.0 - weight) * self.u + weight * u;
        Some(self.u)
    }

    /// Computes the window from U; with `update` it becomes the reference.
    fn window(&mut self, u: f64, update: bool) {
        let p = &self.parameters;
        let from = match p.reaction {
            Reaction::PerAck => self.window,
            Reaction::Reference | Reaction::PerRtt => self.reference,
        };
        let multiplicative = u >= p.eta || self.stage >= p.max_stage;
        let to = match multiplicative {
            // (A U of almost nothing makes a window of almost everything: the greatest.)
            true => from * (p.eta / u.max(1e-9)) + p.w_ai,
            false => from + p.w_ai,
        };
        let to = to.min(self.most).max(self.least);
        self.cuts += u64::from(update && to < self.reference);
        self.window = to;
        if update {
            self.stage = if multiplicative {
                0
            } else {
                self.stage.saturating_add(1)
            };
            self.reference = to;
        }
    }

    /// Whether a counter may have wrapped between two samples.
    fn too_old(&self, now: Instant, t: &Telemetry) -> bool {
        let elapsed = now.since(self.heard).as_nanos();
        let fastest = t.hops().iter().filter_map(|h| h.rate()).max().unwrap_or(1);
        // Acknowledges may come in at other distances than packets went out: half is left for that.
        let wrap = (int::SENT_WRAP as f64 * 8e9 / fastest as f64).min(int::TIMESTAMP_WRAP as f64);
        elapsed as f64 > wrap / 2.0
    }
}

/// The sample that the next one is compared with: of a link that says the same time as before (a port that sends many packets at
/// one look of its core) the older record, since which bytes are counted.
fn newest(before: &Telemetry, after: &Telemetry) -> Telemetry {
    let mut newest = *after;
    if (before.path, before.count) == (after.path, after.count) {
        for (hop, before) in newest.hops.iter_mut().zip(before.hops()) {
            if hop.time_since(before) == 0 {
                *hop = *before;
            }
        }
    }
    newest
}

impl Algorithm for Flow {
    fn on_ack(&mut self, now: Instant, ack: &Ack<'_>) {
        let Some(after) = ack.telemetry else {
            return;
        };
        let stale = self.too_old(now, after);
        self.heard = now;
        let before = self.last;
        self.last = Some(before.map_or(*after, |before| newest(&before, after)));
        let Some(before) = before else {
            self.update_after = ack.sent;
            return;
        };
        if before.path != after.path || before.count != after.count || stale {
            self.u = self.parameters.initial_u;
            self.stage = 0;
            self.update_after = ack.sent;
            return;
        }
        let Some(u) = self.measure(&before, after) else {
            return;
        };
        let update = ack.acked > self.update_after;
        if update || self.parameters.reaction != Reaction::PerRtt {
            self.window(u, update);
        }
        if update {
            self.update_after = ack.sent;
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            rate: ((self.window * 8e9 / self.base_rtt) as u64).max(1),
            // A packet goes while less than the window is in flight; `Limits` says when all of it fits.
            window: (self.window * self.payload) as u64 + self.more,
        }
    }

    fn state(&self) -> State {
        State {
            target: Some((self.reference * 8e9 / self.base_rtt) as u64),
            alpha: Some((self.u * 1024.0) as u32),
            stages: Some((self.stage, 0)),
            cuts: self.cuts,
        }
    }
}
