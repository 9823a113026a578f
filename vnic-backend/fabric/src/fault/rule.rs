//! Rules: which frames, how often, what happens to them.

use alloc::string::String;
use core::time::Duration;

use vnic_wire::EtherType;
use vnic_wire::roce::Ecn;

use super::Facts;
use crate::switch::PortId;

/// Certainty: probabilities are counted in millionths.
pub const ALWAYS: u32 = 1_000_000;

/// The longest delay, and the longest time that a frame is held back for being overtaken.
pub const HOLD_MAX: Duration = Duration::from_secs(60);
/// The most extra copies that one injection makes.
pub const COPIES_MAX: u32 = 16;
/// The most bits that one injection flips.
pub const BITS_MAX: u32 = 64;
/// The most frames that a frame can be held back for.
pub const REORDER_MAX: u32 = 65_536;
/// Largest PSN or QP number, 24 bits (IBTA volume 1, section 9.2).
pub const BITS24_MAX: u32 = 0xff_ffff;

/// Number of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// A set of BTH opcodes (IBTA volume 1, table 35).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opcodes([u64; 4]);

impl Opcodes {
    /// Whether an opcode is in the set.
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

/// PSNs from `first` through `last`, 24 bits each. A range whose `last` is smaller than its `first` goes on over
/// the end of the number space: 0xfffffe through 1 are four PSNs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PsnRange {
    /// First PSN of the range.
    pub first: u32,
    /// Last PSN of the range.
    pub last: u32,
}

impl PsnRange {
    /// Whether a PSN is in the range.
    pub const fn contains(&self, psn: u32) -> bool {
        if self.first <= self.last {
            self.first <= psn && psn <= self.last
        } else {
            self.first <= psn || psn <= self.last
        }
    }
}

/// Frames that a rule is about: those that meet every condition given here. The default is all frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Match {
    /// They entered by this port.
    pub from: Option<PortId>,
    /// They are about to leave by this port.
    pub to: Option<PortId>,
    /// They are RoCE packets, of either version. The next three conditions imply it.
    pub roce: bool,
    /// They are for this QP, 24 bits.
    pub destination_qp: Option<u32>,
    /// They have one of these BTH opcodes.
    pub opcodes: Option<Opcodes>,
    /// Their PSN is in this range.
    pub psn: Option<PsnRange>,
    /// They have this EtherType behind their VLAN tags.
    pub ethertype: Option<EtherType>,
}

impl Match {
    /// Whether a frame on this path can match.
    #[inline]
    pub fn concerns(&self, from: PortId, to: PortId) -> bool {
        self.from.is_none_or(|p| p == from) && self.to.is_none_or(|p| p == to)
    }

    /// Whether a frame matches.
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
    /// The frame is lost.
    Drop,
    /// The frame leaves later; others overtake it meanwhile.
    Delay {
        /// Least delay, at most [`HOLD_MAX`] with the jitter.
        by: Duration,
        /// Random delay on top, evenly spread from 0 to this.
        jitter: Duration,
    },
    /// The frame is held back until later frames of its path (from the same port to the same port) have left. The
    /// rule lets those pass untouched, so that a probability of 1 with `by` 1 swaps pairs.
    Reorder {
        /// Number of these frames, 1 to [`REORDER_MAX`].
        by: u32,
        /// Time after which the frame leaves even if they have not come, at most [`HOLD_MAX`].
        at_most: Duration,
    },
    /// The frame leaves several times.
    Duplicate {
        /// Number of extra copies, 1 to [`COPIES_MAX`].
        copies: u32,
    },
    /// Bits of the frame are flipped. Without an offset they are chosen where a receiver must notice: in a RoCE
    /// packet among the bits that the ICRC covers (IBTA volume 1, section 7.8.1; annex A17.3), in other frames
    /// anywhere behind the Ethernet header.
    Corrupt {
        /// Number of different bits, 1 to [`BITS_MAX`]; with an offset 1 to 8.
        bits: u32,
        /// The byte of the frame that they are in. Shorter frames do not match.
        offset: Option<u16>,
    },
    /// The frame gets the mark "congestion experienced". Frames that cannot carry it, or whose sender does not
    /// react to it (Not-ECT, RFC 3168 section 5), do not match.
    MarkCe,
}

impl Action {
    /// Name of the action, one word.
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

    /// Whether the action can be done to a frame.
    fn suits(&self, f: &Facts) -> bool {
        match self {
            Action::MarkCe => f.ecn.is_some_and(|e| e != Ecn::NotEct),
            Action::Corrupt { offset, .. } => offset.map_or(f.header < f.len, |at| u32::from(at) < f.len),
            _ => true,
        }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Number of the rule.
    pub id: RuleId,
    /// Name for people; may be empty.
    pub name: String,
    /// Frames that the rule is about.
    pub matches: Match,
    /// Matching frames that the rule lets go before it begins.
    pub skip: u64,
    /// Probability that a matching frame is hit, in millionths, up to [`ALWAYS`].
    pub probability: u32,
    /// Injections after which the rule is spent; `None`: never.
    pub count: Option<u64>,
    /// Seed of the rule's random numbers; `None`: its number.
    pub seed: Option<u64>,
    /// What happens to frames that the rule hits.
    pub action: Action,
}

/// Why a rule is refused. The text names what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The probability is above [`ALWAYS`].
    #[error("a probability of {0} millionths; allowed are 0 to {ALWAYS}")]
    Probability(u32),
    /// The QP number is above [`BITS24_MAX`].
    #[error("QP {0}; allowed are 0 to {BITS24_MAX} (24 bits)")]
    Qp(u32),
    /// A PSN is above [`BITS24_MAX`].
    #[error("PSN {0}; allowed are 0 to {BITS24_MAX} (24 bits)")]
    Psn(u32),
    /// The set of opcodes is empty: it matches nothing.
    #[error("no opcode at all; leave the set out to mean every opcode")]
    Opcodes,
    /// The delay is above [`HOLD_MAX`].
    #[error("a delay of {0:?}; allowed are 1 ns to 60 s, jitter included")]
    Delay(Duration),
    /// The number of frames is not 1 to [`REORDER_MAX`].
    #[error("held back for {0} frames; allowed are 1 to {REORDER_MAX}")]
    Reorder(u32),
    /// The longest time is above [`HOLD_MAX`].
    #[error("held back for at most {0:?}; allowed are 1 ns to 60 s")]
    AtMost(Duration),
    /// The number of copies is not 1 to [`COPIES_MAX`].
    #[error("{0} copies; allowed are 1 to {COPIES_MAX}")]
    Copies(u32),
    /// The number of bits is not 1 to [`BITS_MAX`].
    #[error("{0} bits; allowed are 1 to {BITS_MAX}, in one given byte 1 to 8")]
    Bits(u32),
}

impl Rule {
    /// A rule that does `action` to every frame.
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

    /// Checks all limits.
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

    /// Whether a frame matches, and the action can be done to it.
    pub(super) fn covers(&self, f: &Facts) -> bool {
        self.matches.covers(f) && self.action.suits(f)
    }
}
