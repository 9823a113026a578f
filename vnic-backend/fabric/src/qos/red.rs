//! The congestion point: which packets of a queue are marked (random early detection: Floyd and Jacobson 1993; DCQCN,
//! SIGCOMM 2015, section 3.1; registers CWTP and CWTPM, Linux, mlxsw `reg.h`).
//!
//! ```text
//!  probability
//!        1 ┤           ┌────
//!          │           │
//!     Pmax ┤        ╱──┘
//!          │     ╱
//!        0 ┼──────┬────┬──── bytes of the class that wait
//!               Kmin  Kmax
//! ```

use alloc::format;

use super::PRIORITIES;
use super::check::{BUFFER_RANGE, Checked, refuse};
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

/// The profile of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Red {
    /// Whether the profile is on.
    pub enable: bool,
    /// Bytes up to which no packet is picked.
    pub kmin: u32,
    /// Bytes beyond which every packet is picked.
    pub kmax: u32,
    /// Probability at `kmax`, in parts of a [`MILLION`].
    pub pmax: u32,
    /// When the queue's length is compared.
    pub at: MarkAt,
    /// What happens to packets that can be marked.
    pub capable: Capable,
    /// What happens to packets that cannot be marked.
    pub not_capable: NotCapable,
}

impl Red {
    /// Probability that a packet is picked with so many bytes waiting, in parts of a [`MILLION`].
    pub fn probability(&self, bytes: u64) -> u32 {
        if !self.enable || bytes <= self.kmin.into() {
            0
        } else if bytes > self.kmax.into() {
            MILLION
        } else {
            let span = u64::from(self.kmax - self.kmin).max(1);
            (u64::from(self.pmax) * (bytes - u64::from(self.kmin)) / span) as u32
        }
    }
}

/// Checks the profiles.
pub(super) fn check(profiles: &[Red; PRIORITIES]) -> Checked {
    let most = *BUFFER_RANGE.end();
    for (tc, red) in profiles.iter().enumerate() {
        let Red { kmin, kmax, pmax, .. } = *red;
        let problem = if kmin > kmax {
            format!("has min_bytes {kmin}; allowed: at most max_bytes ({kmax})")
        } else if kmax > most {
            format!("has max_bytes {kmax}; allowed: at most {most}")
        } else if pmax > MILLION {
            format!("has max_probability_ppm {pmax}; allowed: at most {MILLION}")
        } else if red.capable == Capable::Drop && red.not_capable == NotCapable::Pass {
            "drops packets that can be marked, but not those that cannot".into()
        } else {
            continue;
        };
        return refuse("ecn", format!("traffic class {tc} {problem}"));
    }
    Ok(())
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
    /// packet itself. `ecn`: its ECN field, the lower two bits of the traffic class.
    ///
    /// A number is drawn only if the verdict depends on it, so that classes that mark nothing do not change what others
    /// do.
    #[inline]
    pub fn judge(&mut self, red: &Red, at: MarkAt, bytes: u64, ecn: u8) -> Verdict {
        if !red.enable || at != red.at || bytes <= red.kmin.into() {
            return Verdict::Pass;
        }
        let picked = match (ecn & CE, red.capable, red.not_capable) {
            (NOT_ECT, _, NotCapable::Pass) | (CE, Capable::Mark, _) => return Verdict::Pass,
            (NOT_ECT, _, NotCapable::Drop) | (_, Capable::Drop, _) => Verdict::Drop,
            (_, Capable::Mark, _) => Verdict::Mark,
        };
        let probability = red.probability(bytes);
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
