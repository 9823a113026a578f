//! Packet pacing: the rate of a send queue (`ibv_modify_qp_rate_limit`; MLNX_OFED Documentation, Programming: Packet Pacing).
//!
//! A queue pair with a rate has credit, in time: it grows while time passes, up to the burst, and each request packet takes
//! the time that it needs on a wire of that rate. While the credit is not below zero the queue pair may send; below, it is
//! off the list of ready ones, and a timer brings it back. A queue pair without a rate has a null pointer. Congestion control
//! is a third limit besides those of user and operator, with credit of its own: it also counts the READ responses that they
//! leave alone.

use vnic_wire::int::{Sign, Telemetry};
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

use super::flow::Flow;
use super::types::RateLimit;
use super::wheel::Place;

/// Lowest rate in kbit/s (as mlx5 reports it).
pub const RATE_MIN_KBPS: u32 = 1;
/// Highest rate in kbit/s: 100 Gbit/s, the speed of the port.
pub const RATE_MAX_KBPS: u32 = 100_000_000;

/// Bytes of a packet on the wire besides the frame: preamble, FCS and gap (IEEE 802.3).
pub(super) const OVERHEAD: u64 = 24;
/// Burst of a queue pair that names none, in ps of its rate: a core that polls a little late loses nothing.
const SLACK: i64 = 200_000_000;
/// The shortest burst, in ps: a clock of nanoseconds loses nothing by it.
const TICK: i64 = 1_000_000;
/// The longest burst, and the most that a queue pair can be behind, in ps: 40 days.
const LONGEST: i64 = i64::MAX / 4;

/// A request packet that is sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request {
    pub psn: Psn,
    /// PSN of the packet behind it.
    pub next: Psn,
    /// Bytes of payload.
    pub bytes: u32,
    /// Bytes that it asks for: of a READ.
    pub asked: u32,
    /// Whether it asks for an acknowledge in any case.
    pub asks: bool,
    /// Whether it was sent before.
    pub again: bool,
    /// Whether it will be acknowledged.
    pub reliable: bool,
}

/// The pacing of one queue pair.
#[derive(Debug)]
pub(super) struct Pace {
    /// Rate limit that the user has set.
    pub wanted: RateLimit,
    /// Highest rate that the operator allows, in kbit/s; 0: any.
    pub ceiling: u32,
    /// Flow under congestion control, while there is one.
    pub flow: Option<Flow>,
    /// Time that may be sent, in ps; below zero the queue pair waits.
    credit: i64,
    /// Time of `credit`.
    since: Instant,
    /// Bytes that the device had sent before the packet that is about to be sent.
    pub sent_before: u64,
    /// Payload of the packet that was just sent.
    pub payload: u32,
    /// Place among the timers.
    pub entry: Place,
}

impl Pace {
    /// No limit yet.
    pub fn new(now: Instant) -> Pace {
        Pace {
            wanted: RateLimit::default(),
            ceiling: 0,
            flow: None,
            credit: 0,
            since: now,
            sent_before: 0,
            payload: 0,
            entry: Place::default(),
        }
    }

    /// Rate that user and operator allow, in kbit/s; 0: any.
    pub fn rate(&self) -> u32 {
        match (self.wanted.rate, self.ceiling) {
            (0, rate) | (rate, 0) => rate,
            (wanted, ceiling) => wanted.min(ceiling),
        }
    }

    /// Time that bytes take at the rate, in ps.
    fn time(&self, bytes: u64) -> i64 {
        let rate = u64::from(self.rate().max(1));
        // (Of a packet in 64 bits: at most 2^16 bytes, 5·10^14.)
        match bytes.checked_mul(8_000_000_000) {
            Some(time) => (time / rate).min(LONGEST as u64) as i64,
            None => LONGEST,
        }
    }

    fn most(&self) -> i64 {
        match self.wanted.max_burst {
            0 => SLACK,
            bytes => self.time(bytes.into()).max(TICK),
        }
    }

    /// Changes the limits. Bytes that were sent already count by the new rate: a queue pair that waits long at a low rate
    /// does not when it gets a higher one.
    pub fn change(&mut self, now: Instant, wanted: RateLimit, ceiling: u32) {
        self.earn(now);
        let before = i128::from(self.rate().max(1));
        (self.wanted, self.ceiling) = (wanted, ceiling);
        let scaled = i128::from(self.credit) * before / i128::from(self.rate().max(1));
        let most = self.most();
        self.credit = i64::try_from(scaled).unwrap_or(-LONGEST).clamp(-LONGEST, most);
    }

    fn earn(&mut self, now: Instant) {
        let passed = now.0.saturating_sub(self.since.0).saturating_mul(1000);
        let passed = i64::try_from(passed).unwrap_or(LONGEST);
        self.since = now;
        self.credit = self.credit.saturating_add(passed).min(self.most());
    }

    /// When a packet may be sent, if not now.
    pub fn waits(&mut self, now: Instant) -> Option<Instant> {
        if self.since < now {
            self.earn(now);
        }
        // 1 ns is 1000 ps.
        (self.credit < 0).then(|| Instant(now.0.saturating_add(self.credit.unsigned_abs().div_ceil(1000))))
    }

    /// As [`waits`](Pace::waits), with the flow's rate, as far as that is known.
    pub fn waits_for(&mut self, now: Instant) -> Option<Instant> {
        let own = if self.rate() > 0 { self.waits(now) } else { None };
        // (None is the least.)
        self.flow.as_mut().and_then(|flow| flow.waits(now)).max(own)
    }

    /// A request packet goes. Returns whether it asks for an acknowledge, and the telemetry that it gathers on its way, with what the
    /// packet says about that.
    #[cold]
    #[inline(never)]
    pub fn request(&mut self, now: Instant, sent: &Request) -> (bool, Option<(&'static Telemetry, Sign)>) {
        self.payload = sent.bytes;
        match &mut self.flow {
            Some(flow) if sent.reliable => {
                let asks = sent.asks || flow.asks(sent.psn, sent.bytes);
                self.payload = flow.sent_numbered(now, sent, asks);
                (asks, flow.telemetry().map(|telemetry| (telemetry, flow.sign())))
            }
            _ => (sent.asks, None),
        }
    }

    /// A frame of `bytes` bytes was sent.
    pub fn sent(&mut self, bytes: u64) {
        let time = self.time(bytes + OVERHEAD);
        self.credit = self.credit.saturating_sub(time).max(-LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paced(rate: u32, max_burst: u32) -> Pace {
        let mut pace = Pace::new(Instant(0));
        let wanted = RateLimit {
            rate,
            max_burst,
            ..RateLimit::default()
        };
        pace.change(Instant(0), wanted, 0);
        pace
    }

    /// Sends as soon as it may, until then; gives bytes on the wire.
    fn run(pace: &mut Pace, from: u64, to: u64, packet: u64) -> u64 {
        let (mut now, mut bytes) = (from, 0);
        while now < to {
            match pace.waits(Instant(now)) {
                Some(at) => now = at.0,
                None => {
                    pace.sent(packet);
                    bytes += packet + OVERHEAD;
                }
            }
        }
        bytes
    }

    #[test]
    fn rates_are_exact() {
        for rate in [1_000, 64_123, 10_000_000, RATE_MAX_KBPS] {
            for packet in [64, 1082, 4154] {
                for burst in [0, 1, 4096] {
                    let mut pace = paced(rate, burst);
                    // A second, or what 100 Gbit/s do in ten milliseconds.
                    let ns = if rate > 1_000_000 {
                        10_000_000
                    } else {
                        1_000_000_000
                    };
                    let got = run(&mut pace, 0, ns, packet) as f64;
                    let wanted = f64::from(rate) * 125.0 * ns as f64 / 1e9;
                    let slack = 0.002 * wanted + 4096.0 + packet as f64;
                    assert!(
                        (got - wanted).abs() <= slack,
                        "{rate} {packet} {burst}: {got} {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_burst_is_what_was_named() {
        let mut pace = paced(1_000_000, 10_000);
        // Much later: ten thousand bytes at once, and the one that goes below zero.
        let mut sent = 0;
        while pace.waits(Instant(1 << 40)).is_none() {
            pace.sent(976);
            sent += 1000;
        }
        assert_eq!(sent, 11_000);
        // 1000 bytes at 1 Gbit/s are 8 us.
        assert_eq!(pace.waits(Instant(1 << 40)), Some(Instant((1 << 40) + 8000)));
    }

    #[test]
    fn a_debt_is_paid_at_the_new_rate() {
        let mut pace = paced(1, 0);
        pace.sent(4072);
        assert_eq!(pace.waits(Instant(0)), Some(Instant(4096 * 8 * 1_000_000)));
        let fast = RateLimit {
            rate: 1_000_000,
            ..RateLimit::default()
        };
        pace.change(Instant(0), fast, 0);
        assert_eq!(pace.waits(Instant(0)), Some(Instant(4096 * 8)));
        pace.change(Instant(0), fast, 1000);
        assert_eq!(
            (pace.rate(), pace.waits(Instant(0))),
            (1000, Some(Instant(4096 * 8 * 1000)))
        );
        pace.change(Instant(0), RateLimit::default(), 1000);
        assert_eq!(pace.rate(), 1000);
    }

    #[test]
    fn nothing_overflows() {
        let mut pace = paced(1, u32::MAX);
        for _ in 0..100_000 {
            pace.sent(u16::MAX.into());
        }
        assert!(pace.waits(Instant(1)).is_some());
        assert_eq!(pace.waits(Instant(u64::MAX)), None);
        pace.change(Instant(0), RateLimit::default(), 0);
        assert_eq!(pace.rate(), 0);
    }
}
