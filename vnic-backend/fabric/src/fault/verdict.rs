//! What happens to one frame.

use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use vnic_wire::roce;

use super::RuleId;

/// What one rule does to one frame, with everything random decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is lost. Always the last effect of a verdict.
    Drop,
    /// It leaves later by this.
    Delay(Duration),
    /// It leaves after so many later frames of its path, or after this time.
    Reorder {
        /// Frames that have to leave before it.
        by: u32,
        /// Longest time.
        at_most: Duration,
    },
    /// It leaves so many times more.
    Duplicate(u32),
    /// These bits of it are flipped: bit `n % 8` (0: least significant) of byte `n / 8` of the frame.
    Corrupt(Vec<u32>),
    /// It is marked "congestion experienced".
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

/// `1.2 ms` for what `Debug` shows as `1.2ms`.
fn spaced(d: Duration) -> alloc::string::String {
    let text = format!("{d:?}");
    match text.find(char::is_alphabetic) {
        Some(at) => format!("{} {}", &text[..at], &text[at..]),
        None => text,
    }
}

/// One rule hit a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Injection {
    /// The rule.
    pub rule: RuleId,
    /// What it did.
    pub effect: Effect,
}

/// What happens to a frame: the effects of every rule that hit it, in the order of the rules. Delays add up,
/// copies add up and share the fate of the frame, and a drop ends it all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// By rule.
    pub injections: Vec<Injection>,
}

/// How long a frame is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// At least so long.
    pub delay: Duration,
    /// Then until so many later frames of its path have left since it came; 0: it does not wait for any.
    pub by: u32,
    /// But no longer than this, counted from the end of the delay.
    pub at_most: Duration,
}

impl Verdict {
    /// No rule hit it.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.injections.is_empty()
    }

    /// The rule that drops it.
    pub fn dropped(&self) -> Option<RuleId> {
        self.injections
            .last()
            .filter(|i| i.effect == Effect::Drop)
            .map(|i| i.rule)
    }

    /// Whether and how long it is held back.
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

    /// How many times more it leaves.
    pub fn copies(&self) -> u32 {
        self.injections.iter().fold(0, |sum, i| match i.effect {
            Effect::Duplicate(n) => sum.saturating_add(n),
            _ => sum,
        })
    }

    /// The bits that are flipped, see [`Effect::Corrupt`].
    pub fn flips(&self) -> impl Iterator<Item = u32> + '_ {
        self.injections
            .iter()
            .flat_map(|i| match &i.effect {
                Effect::Corrupt(bits) => bits.as_slice(),
                _ => &[],
            })
            .copied()
    }

    /// Is it marked "congestion experienced"?
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
