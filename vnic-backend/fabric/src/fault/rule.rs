//! Rules: which frames, how often, what happens to them.

use alloc::string::String;
use core::time::Duration;

use vnic_wire::EtherType;
use vnic_wire::roce::Ecn;

use super::Facts;
use crate::switch::PortId;

/// Probabilities are counted in millionths: this one is certainty.
pub const ALWAYS: u32 = 1_000_000;

/// The longest delay, and the longest that a frame is held back for being overtaken.
pub const HOLD_MAX: Duration = Duration::from_secs(60);
/// The most extra copies that one injection makes.
pub const COPIES_MAX: u32 = 16;
/// The most bits that one injection flips.
pub const BITS_MAX: u32 = 64;
/// The most frames that a frame can be held back for.
pub const REORDER_MAX: u32 = 65_536;
/// PSNs and QP numbers have 24 bits (IBTA volume 1, section 9.2).
pub const BITS24_MAX: u32 = 0xff_ffff;

/// Names a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A set of BTH opcodes (IBTA volume 1, table 35).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opcodes([u64; 4]);

impl Opcodes {
    /// Is it in the set?
    pub const fn contains(&self, opcode: u8) -> bool {
        self.0[(opcode >> 6) as usize] >> (opcode & 63) & 1 != 0
    }

    /// The members, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|o| self.contains(*o))
    }
}

impl FromIterator<u8> for Opcodes {
    fn from_iter<I: IntoIterator<Item = u8>>(opcodes: I) -> Self {
        let mut set = Opcodes::default();
        for o in opcodes {
            set.0[usize::from(o >> 6)] |= 1 << (o & 63);
        }
        set
    }
}

/// PSNs from `first` through `last`, 24 bits each. A range whose `last` is smaller than its `first` goes on
/// over the end of the number space: 0xfffffe through 1 are four PSNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PsnRange {
    /// The first that is meant.
    pub first: u32,
    /// The last that is meant.
    pub last: u32,
}

impl PsnRange {
    /// Is it in the range?
    pub const fn contains(&self, psn: u32) -> bool {
        if self.first <= self.last {
            self.first <= psn && psn <= self.last
        } else {
            self.first <= psn || psn <= self.last
        }
    }
}

/// Which frames a rule is about: those of which everything given here is true. The default is about all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// They entered here.
    pub from: Option<PortId>,
    /// They are about to leave here.
    pub to: Option<PortId>,
    /// They are RoCE packets, of either version. The three below imply it.
    pub roce: bool,
    /// They are for this QP, 24 bits.
    pub destination_qp: Option<u32>,
    /// They have one of these BTH opcodes.
    pub opcodes: Option<Opcodes>,
    /// Their PSN is in this range.
    pub psn: Option<PsnRange>,
    /// Behind their VLAN tags is this.
    pub ethertype: Option<EtherType>,
}

impl Match {
    /// Can a frame on this path be meant?
    #[inline]
    pub fn concerns(&self, from: PortId, to: PortId) -> bool {
        self.from.is_none_or(|p| p == from) && self.to.is_none_or(|p| p == to)
    }

    /// Is this frame meant?
    pub fn covers(&self, f: &Facts) -> bool {
        let wants_roce =
            self.roce || self.destination_qp.is_some() || self.opcodes.is_some() || self.psn.is_some();
        let roce = match &f.roce {
            Some(r) => {
                self.destination_qp.is_none_or(|q| q == r.destination_qp)
                    && self.opcodes.is_none_or(|o| o.contains(r.opcode))
                    && self.psn.is_none_or(|p| p.contains(r.psn))
            }
            None => !wants_roce,
        };
        roce && self.concerns(f.from, f.to) && self.ethertype.is_none_or(|e| e == f.ethertype)
    }
}

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It leaves later; others overtake it meanwhile.
    Delay {
        /// At least by this, at most [`HOLD_MAX`] with the jitter.
        by: Duration,
        /// And by up to this more, evenly spread.
        jitter: Duration,
    },
    /// It is held back until later frames of its path (those from the same port to the same port) have left:
    /// these it lets pass, untouched by this rule, so that a probability of 1 with `by` 1 swaps pairs.
    Reorder {
        /// So many frames, 1 to [`REORDER_MAX`].
        by: u32,
        /// It leaves after this time even if they have not come, at most [`HOLD_MAX`].
        at_most: Duration,
    },
    /// It leaves several times.
    Duplicate {
        /// So many times more, 1 to [`COPIES_MAX`].
        copies: u32,
    },
    /// Bits of it are flipped. Without an offset they are chosen where a receiver must notice: in a RoCE packet
    /// among the bits that the ICRC covers (IBTA volume 1, section 7.8.1; annex A17.3), in other frames
    /// anywhere behind the Ethernet header.
    Corrupt {
        /// So many different ones, 1 to [`BITS_MAX`], with an offset 1 to 8.
        bits: u32,
        /// In this byte of the frame. Shorter frames are not meant by the rule.
        offset: Option<u16>,
    },
    /// It gets the mark "congestion experienced". Frames that cannot carry it, or whose sender does not react to it
    /// (Not-ECT, RFC 3168 section 5), are not meant by the rule.
    MarkCe,
}

impl Action {
    /// One word for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Action::Drop => "drop",
            Action::Delay { .. } => "delay",
            Action::Reorder { .. } => "reorder",
            Action::Duplicate { .. } => "duplicate",
            Action::Corrupt { .. } => "corrupt",
            Action::MarkCe => "mark_ce",
        }
    }

    /// Can it be done to this frame?
    fn suits(&self, f: &Facts) -> bool {
        match self {
            Action::MarkCe => f.ecn.is_some_and(|e| e != Ecn::NotEct),
            Action::Corrupt { offset, .. } => offset.map_or(f.header < f.len, |at| u32::from(at) < f.len),
            _ => true,
        }
    }
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its number.
    pub id: RuleId,
    /// Its name for people; may be empty.
    pub name: String,
    /// Which frames.
    pub matches: Match,
    /// So many matching frames are let go before the rule begins.
    pub skip: u64,
    /// How probable it is that a matching frame is hit, in millionths, up to [`ALWAYS`].
    pub probability: u32,
    /// After so many injections the rule is spent; `None`: never.
    pub count: Option<u64>,
    /// Where its random numbers begin; `None`: at its number.
    pub seed: Option<u64>,
    /// What happens to frames that are hit.
    pub action: Action,
}

/// Why a rule makes no sense. The text names what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// See [`ALWAYS`].
    #[error("a probability of {0} millionths; allowed are 0 to {ALWAYS}")]
    Probability(u32),
    /// See [`BITS24_MAX`].
    #[error("QP {0}; allowed are 0 to {BITS24_MAX} (24 bits)")]
    Qp(u32),
    /// See [`BITS24_MAX`].
    #[error("PSN {0}; allowed are 0 to {BITS24_MAX} (24 bits)")]
    Psn(u32),
    /// An empty set matches nothing.
    #[error("no opcode at all; leave the set out to mean every opcode")]
    Opcodes,
    /// See [`HOLD_MAX`].
    #[error("a delay of {0:?}; allowed are 1 ns to 60 s, jitter included")]
    Delay(Duration),
    /// See [`REORDER_MAX`].
    #[error("held back for {0} frames; allowed are 1 to {REORDER_MAX}")]
    Reorder(u32),
    /// See [`HOLD_MAX`].
    #[error("held back for at most {0:?}; allowed are 1 ns to 60 s")]
    AtMost(Duration),
    /// See [`COPIES_MAX`].
    #[error("{0} copies; allowed are 1 to {COPIES_MAX}")]
    Copies(u32),
    /// See [`BITS_MAX`].
    #[error("{0} bits; allowed are 1 to {BITS_MAX}, in one given byte 1 to 8")]
    Bits(u32),
}

impl Rule {
    /// A rule that does this to every frame.
    pub fn new(id: RuleId, action: Action) -> Rule {
        Rule {
            id,
            name: String::new(),
            matches: Match::default(),
            skip: 0,
            probability: ALWAYS,
            count: None,
            seed: None,
            action,
        }
    }

    /// Is everything within its limits?
    pub fn check(&self) -> Result<(), RuleError> {
        if self.probability > ALWAYS {
            return Err(RuleError::Probability(self.probability));
        }
        let m = &self.matches;
        if let Some(qp) = m.destination_qp.filter(|q| *q > BITS24_MAX) {
            return Err(RuleError::Qp(qp));
        }
        if let Some(psn) = m.psn.map(|r| r.first.max(r.last)).filter(|p| *p > BITS24_MAX) {
            return Err(RuleError::Psn(psn));
        }
        if m.opcodes == Some(Opcodes::default()) {
            return Err(RuleError::Opcodes);
        }
        let held = |d: Duration| Duration::from_nanos(1) <= d && d <= HOLD_MAX;
        match self.action {
            Action::Drop | Action::MarkCe => Ok(()),
            Action::Delay { by, jitter } => {
                let longest = by.saturating_add(jitter);
                if held(longest) {
                    Ok(())
                } else {
                    Err(RuleError::Delay(longest))
                }
            }
            Action::Reorder { by, .. } if !(1..=REORDER_MAX).contains(&by) => Err(RuleError::Reorder(by)),
            Action::Reorder { at_most, .. } if !held(at_most) => Err(RuleError::AtMost(at_most)),
            Action::Reorder { .. } => Ok(()),
            Action::Duplicate { copies } if !(1..=COPIES_MAX).contains(&copies) => {
                Err(RuleError::Copies(copies))
            }
            Action::Duplicate { .. } => Ok(()),
            Action::Corrupt { bits, offset } => {
                let most = if offset.is_some() { 8 } else { BITS_MAX };
                if (1..=most).contains(&bits) {
                    Ok(())
                } else {
                    Err(RuleError::Bits(bits))
                }
            }
        }
    }

    /// Is this frame meant, and can the action be done to it?
    pub(super) fn covers(&self, f: &Facts) -> bool {
        self.matches.covers(f) && self.action.suits(f)
    }
}
