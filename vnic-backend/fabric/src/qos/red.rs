//! The congestion point: which packets of a queue are marked (random early detection: Floyd and Jacobson 1993; DCQCN,
//! SIGCOMM 2015, section 3.1; registers CWTP and CWTPM, Linux, mlxsw `reg.h`).
//!
//! ```text
//!  probability
//!        1 ┤           ┌────
//!          │           │
//!     Pmax ┤        ╱──┘
//!          │     ╱
//!        0 ┼──────┬────┬──── bytes of the class that wait, now or on average
//!               Kmin  Kmax
//! ```
//!
//! Each colour has a line of its own (weighted RED: RFC 2597 section 3).

use alloc::format;
use alloc::string::String;

use vnic_wire::qos::Colour;

use super::PRIORITIES;
use super::check::{BUFFER_RANGE, Checked, refuse};
use crate::Instant;
use crate::fault::SplitMix64;

/// Parts of a million.
pub const MILLION: u32 = 1_000_000;

/// When the queue's length is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum MarkAt {
    /// When the packet leaves.
    #[default]
    Dequeue,
    /// When the packet comes.
    Enqueue,
}

/// What happens to a picked packet whose ends speak ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Capable {
    /// The packet is marked.
    #[default]
    Mark,
    /// The packet is dropped like all others: WRED without ECN.
    Drop,
}

/// What happens to a picked packet whose ends do not speak ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum NotCapable {
    /// The packet goes as it is.
    #[default]
    Pass,
    /// The packet is dropped (WRED).
    Drop,
}

/// How likely a packet is picked by what waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Curve {
    /// Bytes up to which no packet is picked.
    pub kmin: u32,
    /// Bytes beyond which every packet is picked.
    pub kmax: u32,
    /// Probability at `kmax`, in parts of a [`MILLION`].
    pub pmax: u32,
}

impl Default for Curve {
    /// What cards have in register CWTP while nobody has written it: 0x40 and 0x38c0 cells of 128 bytes, 0 %.
    fn default() -> Self {
        Curve {
            kmin: 0x40 * 128,
            kmax: 0x38c0 * 128,
            pmax: 0,
        }
    }
}

impl Curve {
    /// Probability that a packet is picked with so many bytes waiting, in parts of a [`MILLION`].
    pub fn probability(&self, bytes: u64) -> u32 {
        if bytes <= self.kmin.into() {
            0
        } else if bytes > self.kmax.into() {
            MILLION
        } else {
            let span = u64::from(self.kmax - self.kmin).max(1);
            (u64::from(self.pmax) * (bytes - u64::from(self.kmin)) / span) as u32
        }
    }

    /// The curve in bytes, where its thresholds are per cent of a buffer of `size` bytes.
    fn of_buffer(self, size: u32) -> Curve {
        let bytes = |percent: u32| (u64::from(size) * u64::from(percent.min(100)) / 100) as u32;
        Curve {
            kmin: bytes(self.kmin),
            kmax: bytes(self.kmax),
            ..self
        }
    }
}

/// The profile of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Red {
    /// Whether the profile is on.
    pub enable: bool,
    /// Green packets.
    pub green: Curve,
    /// Yellow packets; `None`: as green ones.
    pub yellow: Option<Curve>,
    /// Red packets; `None`: as green ones.
    pub red: Option<Curve>,
    /// Whether thresholds are per cent of the port's buffer (CWTP, mode 1), not bytes.
    pub percent: bool,
    /// What the average length of the queue is compared: each packet counts for 1/2^n of it, 1..=15; 0: the length that the queue has.
    pub average: u8,
    /// When the queue's length is compared.
    pub at: MarkAt,
    /// What happens to packets that can be marked.
    pub capable: Capable,
    /// What happens to packets that cannot be marked.
    pub not_capable: NotCapable,
}

impl Red {
    /// Most of [`average`](Red::average).
    pub const AVERAGE_MAX: u8 = 15;

    /// The curve of a colour.
    #[inline]
    pub fn curve(&self, colour: Colour) -> Curve {
        match colour {
            Colour::Green => None,
            Colour::Yellow => self.yellow,
            Colour::Red => self.red,
        }
        .unwrap_or(self.green)
    }

    /// Whether the colour of a packet matters.
    pub fn has_colours(&self) -> bool {
        self.enable && (self.yellow.is_some() || self.red.is_some())
    }

    /// The profile with thresholds in bytes, at a port with a buffer of `size` bytes.
    #[must_use]
    pub fn in_bytes(self, size: u32) -> Red {
        if !self.percent {
            return self;
        }
        Red {
            green: self.green.of_buffer(size),
            yellow: self.yellow.map(|c| c.of_buffer(size)),
            red: self.red.map(|c| c.of_buffer(size)),
            percent: false,
            ..self
        }
    }
}

/// Checks the profiles.
pub(super) fn check(profiles: &[Red; PRIORITIES]) -> Checked {
    for (tc, red) in profiles.iter().enumerate() {
        let curves = [("", Some(red.green)), ("yellow.", red.yellow), ("red.", red.red)];
        let problem = curves
            .into_iter()
            .find_map(|(of, curve)| curve_problem(of, curve?, red.percent));
        let problem = match problem {
            Some(problem) => problem,
            None if red.average > Red::AVERAGE_MAX => format!(
                "has average_weight {}; allowed: at most {}",
                red.average,
                Red::AVERAGE_MAX
            ),
            None if red.capable == Capable::Drop && red.not_capable == NotCapable::Pass => {
                "drops packets that can be marked, but not those that cannot".into()
            }
            None => continue,
        };
        return refuse("ecn", format!("traffic class {tc} {problem}"));
    }
    Ok(())
}

/// What is wrong with a curve.
fn curve_problem(of: &str, curve: Curve, percent: bool) -> Option<String> {
    let Curve { kmin, kmax, pmax } = curve;
    let most = if percent { 100 } else { *BUFFER_RANGE.end() };
    Some(if kmin > kmax {
        format!("has {of}min_bytes {kmin}; allowed: at most max_bytes ({kmax})")
    } else if kmax > most {
        let unit = if percent { " per cent" } else { "" };
        format!("has {of}max_bytes {kmax}; allowed: at most {most}{unit}")
    } else if pmax > MILLION {
        format!("has {of}max_probability_ppm {pmax}; allowed: at most {MILLION}")
    } else {
        return None;
    })
}

/// The average length of a queue (Floyd and Jacobson 1993, section 4), at most 2^28 bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Average {
    /// Bytes, in 1/2^16.
    length: u64,
    last: Option<Instant>,
}

impl Average {
    /// A packet finds `bytes` bytes; returns the average, of which it counts for 1/2^`weight`. While nothing waited the average fell
    /// as if small packets had come all the time, one after the other at `rate` (bit/s; 0: as at 100 Gbit/s).
    pub fn sample(&mut self, now: Instant, bytes: u64, weight: u8, rate: u64) -> u64 {
        /// Bits of a small packet on the wire.
        const SMALL: u64 = 84 * 8;
        let weight = u32::from(weight.min(Red::AVERAGE_MAX));
        if bytes == 0 {
            let rate = if rate == 0 { 100_000_000_000 } else { rate };
            let idle = self.last.map_or(0, |last| now.0.saturating_sub(last.0));
            let packets = u128::from(idle) * u128::from(rate) / u128::from(SMALL * 1_000_000_000);
            self.length = faded(self.length, u64::try_from(packets).unwrap_or(u64::MAX), weight);
        } else {
            let length = bytes << 16;
            self.length = if length >= self.length {
                self.length + ((length - self.length) >> weight)
            } else {
                self.length - ((self.length - length) >> weight)
            };
        }
        self.last = Some(now);
        self.length >> 16
    }
}

/// A number times (1 - 1/2^`weight`)^`times`.
fn faded(number: u64, mut times: u64, weight: u32) -> u64 {
    /// Below this power nothing is left of a number of 44 bits.
    const NOTHING: u64 = 32;
    if times >> weight >= NOTHING {
        return 0;
    }
    let times_of = |a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 32) as u64;
    let (mut all, mut power) = (1u64 << 32, (1u64 << 32) - (1u64 << 32 >> weight));
    while times != 0 {
        if times & 1 == 1 {
            all = times_of(all, power);
        }
        power = times_of(power, power);
        times >>= 1;
    }
    times_of(number, all)
}

/// What happens to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The packet goes as it is.
    Pass,
    /// The packet is marked: congestion experienced.
    Mark,
    /// The packet is dropped.
    Drop,
}

/// ECN field of a packet whose ends do not speak ECN (RFC 3168 section 5).
pub const NOT_ECT: u8 = 0b00;
/// ECN field of a marked packet (RFC 3168 section 5). It stays so.
pub const CE: u8 = 0b11;

/// Judges the packets of a port, one after the other. The same seed and the same packets give the same verdicts.
#[derive(Debug, Clone)]
pub struct Marker {
    random: SplitMix64,
}

impl Marker {
    /// A marker with random numbers from this seed.
    pub fn new(seed: u64) -> Marker {
        Marker {
            random: SplitMix64::of(seed, 0xec4),
        }
    }

    /// The verdict on a packet of a class when it comes or leaves (`at`). `bytes`: what waits of the class, without the
    /// packet itself, or its average. `ecn`: its ECN field, the lower two bits of the traffic class.
    ///
    /// A number is drawn only if the verdict depends on it, so that classes that mark nothing do not change what others
    /// do.
    #[inline]
    pub fn judge(&mut self, red: &Red, at: MarkAt, bytes: u64, colour: Colour, ecn: u8) -> Verdict {
        if !red.enable || at != red.at {
            return Verdict::Pass;
        }
        let curve = red.curve(colour);
        if bytes <= curve.kmin.into() {
            return Verdict::Pass;
        }
        let picked = match (ecn & CE, red.capable, red.not_capable) {
            (NOT_ECT, _, NotCapable::Pass) | (CE, Capable::Mark, _) => return Verdict::Pass,
            (NOT_ECT, _, NotCapable::Drop) | (_, Capable::Drop, _) => Verdict::Drop,
            (_, Capable::Mark, _) => Verdict::Mark,
        };
        let probability = curve.probability(bytes);
        let hit = match probability {
            0 => false,
            MILLION.. => true,
            p => self.random.below(MILLION.into()) < p.into(),
        };
        if hit { picked } else { Verdict::Pass }
    }
}

#[cfg(test)]
mod tests;
