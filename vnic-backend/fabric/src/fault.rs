//! Faults put into the traffic on purpose: loss, delay, reordering, duplication, corruption, CE marks. Tests, the
//! simulator and the live NIC share this code.
//!
//! ```text
//!  frame ─▶ Facts ─▶ Faults::judge ─▶ Verdict ─┬▶ nothing: it leaves            ┐
//!                    (rules, seed)             ├▶ drop                          ├▶ Holding::passed
//!                                              └▶ apply, hold ─▶ Holding ─▶ pop ┘
//! ```
//!
//! The rules judge a frame once for each receiver, when it is about to leave, in the order in which they were
//! added. Each rule that matches the frame and hits it adds its effect, until one drops the frame: the rules
//! behind that one never see it. So rules are independent of each other, as in a chain of faulty wires.
//!
//! A rule hits a frame when it has let go the first `skip` frames that match, is not spent, and its random numbers
//! say so. Each rule has its own stream of random numbers, from its seed and the seed of [`Faults`]. It draws one
//! number for each frame that it could hit, and more for what it then does. Time has no part in that: the same
//! seeds and the same sequence of frames give the same verdicts. A rule more or less changes for the others only
//! which frames they see.

mod facts;
mod holding;
pub(crate) mod random;
mod rule;
#[cfg(test)]
mod tests;
mod verdict;

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

pub use facts::{Facts, Roce};
pub use holding::{Holding, Path};
pub(crate) use random::SplitMix64;
pub use rule::{
    ALWAYS, Action, BITS_MAX, BITS24_MAX, COPIES_MAX, HOLD_MAX, Match, Opcodes, PsnRange, REORDER_MAX, Rule,
    RuleError, RuleId,
};
pub use verdict::{Effect, Hold, Injection, Verdict};

use crate::switch::PortId;

/// Counters of a rule. Several [`Faults`] can share them (the data cores of a NIC do), so that `skip` and `count`
/// hold for all of them together.
#[derive(Debug, Default)]
pub struct Tally {
    matched: AtomicU64,
    injected: AtomicU64,
}

impl Tally {
    /// Frames that matched the rule.
    pub fn matched(&self) -> u64 {
        self.matched.load(Ordering::Relaxed)
    }

    /// Frames that the rule hit.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }

    /// Counts a frame that matches, and returns how many matched before.
    pub fn count_match(&self) -> u64 {
        self.matched.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a frame that is hit. False: the rule is spent.
    pub fn count_injection(&self, limit: Option<u64>) -> bool {
        let more = |n: u64| limit.is_none_or(|l| n < l).then(|| n + 1);
        self.injected
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }
}

/// Whether a rule of this seed and probability hits the `nth` of what it matches, by a draw of its own for each.
pub fn hits(seed: u64, nth: u64, probability: u32) -> bool {
    SplitMix64::of(seed, nth).below(u64::from(ALWAYS)) < u64::from(probability)
}

/// A rule with its state.
#[derive(Debug)]
struct Active {
    rule: Rule,
    tally: Arc<Tally>,
    random: SplitMix64,
    /// Paths with a frame that this rule holds back, and how many frames it still lets pass there.
    letting_pass: BTreeMap<Path, u32>,
}

/// The rules with their state.
#[derive(Debug)]
pub struct Faults {
    seed: u64,
    rules: Vec<Active>,
}

impl Faults {
    /// No rules. All instances with the same seed, rules and frames give the same verdicts.
    pub fn new(seed: u64) -> Faults {
        Faults {
            seed,
            rules: Vec::new(),
        }
    }

    /// Adds a rule behind the others, and returns its counters. A rule of the same number is removed first.
    pub fn add(&mut self, rule: Rule) -> Result<Arc<Tally>, RuleError> {
        let tally = Arc::new(Tally::default());
        self.add_shared(rule, tally.clone())?;
        Ok(tally)
    }

    /// Adds a rule that other instances have, too, with the counters that it has there.
    pub fn add_shared(&mut self, rule: Rule, tally: Arc<Tally>) -> Result<(), RuleError> {
        rule.check()?;
        self.remove(rule.id);
        let random = SplitMix64::of(self.seed, rule.seed.unwrap_or(u64::from(rule.id.0)));
        self.rules.push(Active {
            rule,
            tally,
            random,
            letting_pass: BTreeMap::new(),
        });
        Ok(())
    }

    /// Changes the ports of a rule; everything else goes on. False: there is no such rule.
    pub fn set_ports(&mut self, id: RuleId, from: Option<PortId>, to: Option<PortId>) -> bool {
        let Some(a) = self.rules.iter_mut().find(|a| a.rule.id == id) else {
            return false;
        };
        (a.rule.matches.from, a.rule.matches.to) = (from, to);
        a.letting_pass.clear();
        true
    }

    /// Removes a rule.
    pub fn remove(&mut self, id: RuleId) -> Option<Rule> {
        let at = self.rules.iter().position(|a| a.rule.id == id)?;
        Some(self.rules.remove(at).rule)
    }

    /// The rules with their counters, in the order in which they judge.
    pub fn list(&self) -> impl ExactSizeIterator<Item = (&Rule, &Tally)> {
        self.rules.iter().map(|a| (&a.rule, &*a.tally))
    }

    /// The rule with a number.
    pub fn rule(&self, id: RuleId) -> Option<&Rule> {
        self.list().map(|(rule, _)| rule).find(|r| r.id == id)
    }

    /// Whether there is no rule.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a frame on this path could be hit. Cheap: ask before making the facts.
    #[inline]
    pub fn concerns(&self, from: PortId, to: PortId) -> bool {
        self.rules.iter().any(|a| a.rule.matches.concerns(from, to))
    }

    /// Judges a frame.
    pub fn judge(&mut self, f: &Facts) -> Verdict {
        let mut verdict = Verdict::default();
        for a in &mut self.rules {
            if let Some(effect) = a.ask(f) {
                let dropped = effect == Effect::Drop;
                verdict.injections.push(Injection {
                    rule: a.rule.id,
                    effect,
                });
                if dropped {
                    break;
                }
            }
        }
        verdict
    }
}

impl Active {
    fn ask(&mut self, f: &Facts) -> Option<Effect> {
        if !self.rule.covers(f) || self.tally.count_match() < self.rule.skip {
            return None;
        }
        let path = (f.from, f.to);
        if let Some(left) = self.letting_pass.get_mut(&path) {
            *left -= 1;
            if *left == 0 {
                self.letting_pass.remove(&path);
            }
            return None;
        }
        let hit = self.random.below(u64::from(ALWAYS)) < u64::from(self.rule.probability);
        if !hit || !self.tally.count_injection(self.rule.count) {
            return None;
        }
        Some(match self.rule.action {
            Action::Drop => Effect::Drop,
            Action::Delay { by, jitter } => {
                let jitter = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX - 1);
                Effect::Delay(by + Duration::from_nanos(self.random.below(jitter + 1)))
            }
            Action::Reorder { by, at_most } => {
                self.letting_pass.insert(path, by);
                Effect::Reorder { by, at_most }
            }
            Action::Duplicate { copies } => Effect::Duplicate(copies),
            Action::Corrupt { bits, offset } => Effect::Corrupt(flips(&mut self.random, f, bits, offset)),
            Action::MarkCe => Effect::MarkCe,
        })
    }
}

/// The byte of the BTH that the ICRC does not cover.
const ICRC_LEAVES_OUT: u32 = vnic_wire::bth::CONGESTION_OFFSET as u32;

/// Chooses different bits of a frame.
fn flips(random: &mut SplitMix64, f: &Facts, bits: u32, offset: Option<u16>) -> Vec<u32> {
    // Bytes to choose from, of which one may be left out.
    let (bytes, without) = match (offset, &f.roce) {
        (Some(at), _) => (u32::from(at)..u32::from(at) + 1, None),
        (None, Some(r)) => (r.packet.clone(), Some(r.packet.start + ICRC_LEAVES_OUT)),
        (None, None) => (f.header..f.len, None),
    };
    let there = bytes.end.saturating_sub(bytes.start) - u32::from(without.is_some());
    let room = u64::from(there) * 8;
    let mut out: Vec<u32> = Vec::with_capacity(bits as usize);
    while out.len() < bits as usize && (out.len() as u64) < room {
        let n = random.below(room) as u32;
        let mut byte = bytes.start + n / 8;
        if without.is_some_and(|w| byte >= w) {
            byte += 1;
        }
        let bit = byte * 8 + n % 8;
        if !out.contains(&bit) {
            out.push(bit);
        }
    }
    out
}
