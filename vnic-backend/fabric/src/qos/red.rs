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

/// When the queue's length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum MarkAt {
    /// When the packet leaves.
    #[default]
    Dequeue,
    /// When it comes.
    Enqueue,
}

/// What happens to a packet that is picked and whose ends speak ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Capable {
    /// It is marked.
    #[default]
    Mark,
    /// It is dropped like all others: WRED without ECN.
    Drop,
}

/// What happens to a packet that is picked and whose ends do not speak ECN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum NotCapable {
    /// It goes as it is.
    #[default]
    Pass,
    /// It is dropped (WRED).
    Drop,
}

/// The profile of a traffic class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Red {
    /// On?
    pub enable: bool,
    /// Bytes up to which nothing is marked.
    pub kmin: u32,
    /// Bytes beyond which everything is.
    pub kmax: u32,
    /// Probability at `kmax`, in parts of a [`MILLION`].
    pub pmax: u32,
    /// When the length counts.
    pub at: MarkAt,
    /// Packets that can be marked.
    pub capable: Capable,
    /// Packets that cannot.
    pub not_capable: NotCapable,
}

impl Red {
    /// Probability of a mark with so many bytes waiting, in parts of a [`MILLION`].
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

/// What profiles must fulfil.
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
    /// It goes as it is.
    Pass,
    /// It is marked: congestion experienced.
    Mark,
    /// It is dropped.
    Drop,
}

/// ECN field of a packet whose ends do not speak it (RFC 3168 section 5).
pub const NOT_ECT: u8 = 0b00;
/// ECN field of a packet that is marked (RFC 3168 section 5). It stays so.
pub const CE: u8 = 0b11;

/// Judges the packets of a port, one after the other. The same seed and the same packets: the same verdicts.
#[derive(Debug, Clone)]
pub struct Marker {
    random: SplitMix64,
}

impl Marker {
    /// With random numbers from this seed.
    pub fn new(seed: u64) -> Marker {
        Marker {
            random: SplitMix64::of(seed, 0xec4),
        }
    }

    /// What happens to a packet of a class when it comes or leaves (`at`), with so many bytes of the class waiting: all
    /// without the packet itself. `ecn`: its ECN field, the lower two bits of the traffic class.
    ///
    /// A number is drawn only where the verdict hangs on it, so classes that mark nothing do not change what others do.
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
