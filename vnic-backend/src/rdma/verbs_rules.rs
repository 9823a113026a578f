//! Faults of verbs: rules of an operator for what an RDMA function tells its driver.
//!
//! ```text
//!  engine ─▶ completion ─▶ rules ─┬▶ ready ─▶ the ring
//!                                 ├▶ held ─▶ (time, next completion, end of the rule) ─▶ ready
//!                                 └▶ lost
//! ```
//!
//! The rules judge a completion once, when the ring has room for it, in the order in which they were added. What is held back
//! never makes the driver's count of free entries go back: a completion that comes late says what the newest one said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use vnic_engine::rdma::{Completion, QpNumber, Status};
use vnic_fabric::Instant;
use vnic_fabric::fault::{Tally, hits};

use crate::types::{CompletionFault, VerbsFaultAction, VerbsFaultSpec};

/// Largest number of completions of a driver that are held back. Further ones are not hit by rules that hold back.
const HELD_MAX: usize = 4096;

/// A rule in force, shared by the functions of an adapter's processes, so that its counts are of all of them.
#[derive(Debug)]
pub struct VerbsRule {
    /// Number of the rule.
    pub id: u32,
    /// What it matches and does.
    pub spec: VerbsFaultSpec,
    /// What it matched and hit.
    pub tally: Tally,
}

impl VerbsRule {
    /// Counts a match. True: it is hit.
    pub fn hits(&self) -> bool {
        let spec = &self.spec;
        let before = self.tally.count_match();
        before >= spec.skip
            && hits(spec.seed.unwrap_or_default(), before, spec.probability)
            && self.tally.count_injection(spec.count)
    }

    /// What the rule does to completions like this one.
    fn concerns(&self, c: &Completion) -> Option<CompletionFault> {
        use CompletionFault as F;
        let VerbsFaultAction::Completion { qp, kinds, fault } = &self.spec.action else {
            return None;
        };
        let good = c.status == Status::Success;
        let fits = match fault {
            F::Lie(_) | F::Fail(_) | F::Length(_) => good,
            F::Immediate(_) => good && c.imm.is_some(),
            F::Lose | F::Double | F::Late(_) | F::Hang | F::Swap(_) => true,
        };
        let kind = kinds.is_empty() || good && kinds.contains(&c.op);
        (fits && kind && qp.is_none_or(|qp| qp == c.qp.0)).then_some(*fault)
    }
}

/// What ends the wait of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The time.
    Time(Instant),
    /// A completion of the queue that goes to the driver, or the time.
    Next(Instant),
    /// The end of the rule.
    Removal(u32),
}

/// A completion that is held back.
#[derive(Debug)]
pub struct Held {
    /// Its completion queue.
    pub cq: u32,
    /// What the driver will be told.
    pub completion: Completion,
    /// Its request in the journal of a recording.
    pub row: Option<u64>,
    /// How long it is held back.
    pub until: Until,
}

/// The rules of a function, and what they hold back.
#[derive(Debug, Default)]
pub struct VerbsFaults {
    /// The rules in the order of matching.
    pub rules: Vec<Arc<VerbsRule>>,
    /// What is held back, in the order in which it came.
    pub held: Vec<Held>,
    /// Completions for the rings, by completion queue.
    pub ready: BTreeMap<u32, VecDeque<Held>>,
    /// The newest index of free entries that was told, by queue pair and whether it is of receives.
    pub told: BTreeMap<(u32, bool), u32>,
    /// Queue pairs that a rule took to ERR.
    pub failed: BTreeSet<u32>,
}

fn is_receive(c: &Completion) -> bool {
    vnic_device::queue::CompletionKind::is_receive(c.op.number())
}

impl VerbsFaults {
    /// The same rules for other objects: nothing is held back.
    pub fn anew(&self) -> Option<Box<VerbsFaults>> {
        let rules = self.rules.clone();
        (!rules.is_empty()).then(|| {
            Box::new(VerbsFaults {
                rules,
                ..VerbsFaults::default()
            })
        })
    }

    /// Gives a completion to its ring.
    pub fn make_ready(&mut self, held: Held) {
        self.ready.entry(held.cq).or_default().push_back(held);
    }

    /// Ends the wait of those that are named, in the order in which they came.
    pub fn release(&mut self, ends: impl Fn(&Held) -> bool) {
        let out: Vec<Held> = self.held.extract_if(.., |held| ends(held)).collect();
        for held in out {
            self.make_ready(held);
        }
    }

    /// The next completion for a ring; its index of free entries never goes back.
    pub fn next(&mut self, cq: u32) -> Option<Held> {
        let mut next = self.ready.get_mut(&cq)?.pop_front()?;
        let c = &mut next.completion;
        let told = self.told.entry((c.qp.0, is_receive(c))).or_insert(c.tag);
        if c.tag.wrapping_sub(*told).cast_signed() > 0 {
            *told = c.tag;
        }
        c.tag = *told;
        Some(next)
    }

    /// Judges a completion of the engine, of a request with this `row` in a journal. Returns the queue pair that has to fail, if one
    /// has to.
    pub fn judge(&mut self, cq: u32, mut c: Completion, row: Option<u64>, now: Instant) -> Option<QpNumber> {
        use CompletionFault as F;
        // It ended before the rule failed its queue pair, but nothing succeeds behind a failure.
        if c.status == Status::Success && self.failed.contains(&c.qp.0) {
            c.status = Status::FlushError;
        }
        let (mut copies, mut until, mut fails) = (1, None, None);
        for rule in &self.rules {
            let Some(fault) = rule.concerns(&c) else { continue };
            let holds = matches!(fault, F::Late(_) | F::Hang | F::Swap(_));
            if holds && (until.is_some() || self.held.len() >= HELD_MAX) || !rule.hits() {
                continue;
            }
            match fault {
                F::Lie(status) => c.status = status,
                F::Fail(status) => {
                    c.status = status;
                    self.failed.insert(c.qp.0);
                    fails = Some(c.qp);
                }
                F::Lose => {
                    copies = 0;
                    break;
                }
                F::Double => copies = 2,
                F::Late(by) => until = Some(Until::Time(now + by)),
                F::Hang => until = Some(Until::Removal(rule.id)),
                F::Swap(at_most) => until = Some(Until::Next(now + at_most)),
                F::Length(len) => c.byte_len = len,
                F::Immediate(imm) => c.imm = Some(imm),
            }
        }
        for _ in 0..copies {
            let completion = Held {
                cq,
                completion: c,
                row,
                until: until.unwrap_or(Until::Time(now)),
            };
            match until {
                Some(_) => self.held.push(completion),
                None => self.make_ready(completion),
            }
        }
        if until.is_none() && copies > 0 {
            self.release(|held| held.cq == cq && matches!(held.until, Until::Next(_)));
        }
        fails
    }

    /// Whether the queue has completions for which no other event comes.
    pub fn waits(&self, cq: u32) -> bool {
        let timed = |held: &Held| held.cq == cq && !matches!(held.until, Until::Removal(_));
        self.ready.get(&cq).is_some_and(|ready| !ready.is_empty()) || self.held.iter().any(timed)
    }

    /// Whether there is neither a rule nor a completion.
    pub fn is_over(&self) -> bool {
        self.rules.is_empty() && self.held.is_empty() && self.ready.values().all(VecDeque::is_empty)
    }
}
