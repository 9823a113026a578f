//! What happens to one frame.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use vnic_wire::roce;

use super::RuleId;

/// What one rule does to one frame; nothing random is left open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The frame is lost. Always the last effect of a verdict.
    Drop,
    /// The frame leaves later by this time.
    Delay(Duration),
    /// The frame leaves after later frames of its path, or after a time.
    Reorder {
        /// Frames that have to leave before it.
        by: u32,
        /// Longest time that it waits for them.
        at_most: Duration,
    },
    /// The frame leaves so many times more.
    Duplicate(u32),
    /// These bits are flipped: bit `n % 8` (0: least significant) of byte `n / 8` of the frame.
    Corrupt(Vec<u32>),
    /// The frame is marked "congestion experienced".
    MarkCe,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Drop => f.write_str("drop"),
            Effect::Delay(by) => write!(f, "delay {}", spaced(*by)),
            Effect::Reorder { by, at_most } => {
                write!(f, "reorder by {by}, at most {}", spaced(*at_most))
            }
            Effect::Duplicate(n) => write!(f, "duplicate {n}"),
            Effect::Corrupt(bits) => {
                f.write_str("corrupt")?;
                for (i, b) in bits.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma} byte {} bit {}", b / 8, b % 8)?;
                }
                Ok(())
            }
            Effect::MarkCe => f.write_str("mark CE"),
        }
    }
}

/// Writes `1.2 ms` for what `Debug` shows as `1.2ms`.
fn spaced(d: Duration) -> alloc::string::String {
    let text = format!("{d:?}");
    match text.find(char::is_alphabetic) {
        Some(at) => format!("{} {}", &text[..at], &text[at..]),
        None => text,
    }
}

/// A hit of one rule on a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The rule.
    pub rule: RuleId,
    /// What the rule did.
    pub effect: Effect,
}

/// What happens to a frame: the effects of every rule that hit it, in the order of the rules. Delays add up,
/// copies add up and share the fate of the frame, and a drop ends it all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// The hits, in the order of the rules.
    pub injections: Vec<Injection>,
}

/// How long a frame is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// Least time.
    pub delay: Duration,
    /// Later frames of the path that have to leave before it, counted from its arrival; 0: it waits for
    /// none.
    pub by: u32,
    /// Longest time that it waits for them, counted from the end of the delay.
    pub at_most: Duration,
}

impl Verdict {
    /// Whether no rule hit the frame.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.injections.is_empty()
    }

    /// The rule that drops the frame.
    pub fn dropped(&self) -> Option<RuleId> {
        self.injections
            .last()
            .filter(|i| i.effect == Effect::Drop)
            .map(|i| i.rule)
    }

    /// Whether and how long the frame is held back.
    pub fn hold(&self) -> Option<Hold> {
        let mut hold = Hold {
            delay: Duration::ZERO,
            by: 0,
            at_most: Duration::ZERO,
        };
        let mut held = false;
        for i in &self.injections {
            match i.effect {
                Effect::Delay(by) => hold.delay = hold.delay.saturating_add(by),
                Effect::Reorder { by, at_most } => {
                    hold.by = hold.by.max(by);
                    hold.at_most = hold.at_most.max(at_most);
                }
                _ => continue,
            }
            held = true;
        }
        held.then_some(hold)
    }

    /// Number of extra copies of the frame.
    pub fn copies(&self) -> u32 {
        self.injections.iter().fold(0, |sum, i| match i.effect {
            Effect::Duplicate(n) => sum.saturating_add(n),
            _ => sum,
        })
    }

    /// Bits that are flipped, as in [`Effect::Corrupt`].
    pub fn flips(&self) -> impl Iterator<Item = u32> + '_ {
        self.injections
            .iter()
            .flat_map(|i| match &i.effect {
                Effect::Corrupt(bits) => bits.as_slice(),
                _ => &[],
            })
            .copied()
    }

    /// Whether the frame is marked "congestion experienced".
    pub fn marks_ce(&self) -> bool {
        self.injections.iter().any(|i| i.effect == Effect::MarkCe)
    }

    /// Changes the bytes of a frame as the verdict says: first the mark, then the bits.
    pub fn apply(&self, frame: &mut [u8]) {
        if self.marks_ce() {
            roce::set_ce(frame);
        }
        for bit in self.flips() {
            if let Some(byte) = frame.get_mut(bit as usize / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }
}
