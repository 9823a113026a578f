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

use vnic_device::command::Opcode;
use vnic_engine::rdma::{Completion, CqHandle, QpNumber, Status};
use vnic_fabric::Instant;
use vnic_fabric::fault::{Tally, hits};

use super::function::Function;
use super::request::{Outcome, fail};
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
    fn hits(&self) -> bool {
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
enum Until {
    Time(Instant),
    /// A completion of the queue that goes to the driver, or the time.
    Next(Instant),
    /// The end of the rule.
    Removal(u32),
}

#[derive(Debug)]
struct Held {
    cq: u32,
    completion: Completion,
    until: Until,
}

/// The rules of a function, and what they hold back.
#[derive(Debug, Default)]
pub struct VerbsFaults {
    rules: Vec<Arc<VerbsRule>>,
    held: Vec<Held>,
    /// Completions for the rings, by completion queue.
    ready: BTreeMap<u32, VecDeque<Completion>>,
    /// The newest index of free entries that was told, by queue pair and whether it is of receives.
    told: BTreeMap<(u32, bool), u32>,
    /// Queue pairs that a rule took to ERR.
    failed: BTreeSet<u32>,
}

fn is_receive(c: &Completion) -> bool {
    vnic_device::queue::CompletionKind::is_receive(c.op.number())
}

impl VerbsFaults {
    fn make_ready(&mut self, held: Held) {
        self.ready.entry(held.cq).or_default().push_back(held.completion);
    }

    /// Ends the wait of those that are named, in the order in which they came.
    fn release(&mut self, ends: impl Fn(&Held) -> bool) {
        let out: Vec<Held> = self.held.extract_if(.., |held| ends(held)).collect();
        for held in out {
            self.make_ready(held);
        }
    }

    /// The next completion for a ring; its index of free entries never goes back.
    fn next(&mut self, cq: u32) -> Option<Completion> {
        let mut c = self.ready.get_mut(&cq)?.pop_front()?;
        let told = self.told.entry((c.qp.0, is_receive(&c))).or_insert(c.tag);
        if c.tag.wrapping_sub(*told).cast_signed() > 0 {
            *told = c.tag;
        }
        c.tag = *told;
        Some(c)
    }

    /// Judges a completion of the engine. Returns the queue pair that has to fail, if one has to.
    fn judge(&mut self, cq: u32, mut c: Completion, now: Instant) -> Option<QpNumber> {
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
    fn waits(&self, cq: u32) -> bool {
        let timed = |held: &Held| held.cq == cq && !matches!(held.until, Until::Removal(_));
        self.ready.get(&cq).is_some_and(|ready| !ready.is_empty()) || self.held.iter().any(timed)
    }

    fn is_over(&self) -> bool {
        self.rules.is_empty() && self.held.is_empty() && self.ready.values().all(VecDeque::is_empty)
    }
}

impl Function {
    /// Puts a rule behind the others.
    pub fn add_verbs_rule(&mut self, rule: Arc<VerbsRule>) {
        self.verbs_faults.get_or_insert_default().rules.push(rule);
    }

    /// Removes a rule. What it holds back goes to the driver in the next turn.
    pub fn remove_verbs_rule(&mut self, id: u32) {
        let Some(faults) = &mut self.verbs_faults else {
            return;
        };
        faults.rules.retain(|rule| rule.id != id);
        faults.release(|held| held.until == Until::Removal(id));
        for cq in faults.ready.keys() {
            if let Some(ring) = self.session.cqs.get_mut(*cq)
                && !std::mem::replace(&mut ring.waiting, true)
            {
                self.session.full.push_back(*cq);
            }
        }
        if faults.is_over() {
            self.verbs_faults = None;
        }
    }

    /// The rules for other objects: nothing is held back.
    pub(super) fn same_verbs_faults(&self) -> Option<Box<VerbsFaults>> {
        let rules = self.verbs_faults.as_ref()?.rules.clone();
        (!rules.is_empty()).then(|| {
            Box::new(VerbsFaults {
                rules,
                ..VerbsFaults::default()
            })
        })
    }

    /// Forgets what is held back of a queue pair that ended, or begins anew.
    pub(super) fn forget_withheld(&mut self, qp: u32) {
        let Some(faults) = &mut self.verbs_faults else {
            return;
        };
        faults.held.retain(|held| held.completion.qp.0 != qp);
        for ready in faults.ready.values_mut() {
            ready.retain(|c| c.qp.0 != qp);
        }
        faults.told.retain(|(number, _), _| *number != qp);
        faults.failed.remove(&qp);
    }

    /// Refuses a command if a rule says so.
    pub(super) fn refuse_by_rule(&self, opcode: u16) -> Outcome {
        for rule in self.verbs_faults.iter().flat_map(|faults| &faults.rules) {
            if let VerbsFaultAction::Command { commands, status } = &rule.spec.action
                && Opcode::from_number(opcode).is_some_and(|opcode| commands.contains(&opcode))
                && rule.hits()
            {
                return fail(*status, format!("the fault rule {} refuses it", rule.spec.name));
            }
        }
        Ok(())
    }

    /// Writes the completions of one queue, as many as there is room for, as the rules say. Returns how many it took or wrote.
    #[cold]
    pub(super) fn drain_faulty(&mut self, cq: CqHandle, now: Instant) -> usize {
        let (Some(faults), Some(ring)) = (&mut self.verbs_faults, self.session.cqs.get_mut(cq.0)) else {
            return 0;
        };
        if ring.lost {
            while self.device.pop_completion(cq).is_some() {}
            faults.ready.remove(&cq.0);
            faults.held.retain(|held| held.cq != cq.0);
            return 0;
        }
        faults.release(|held| {
            let due = matches!(held.until, Until::Time(at) | Until::Next(at) if at <= now);
            held.cq == cq.0 && due
        });
        let mut done = 0;
        loop {
            while ring.room() > 0
                && let Some(completion) = faults.next(cq.0)
            {
                if ring.write(&completion, now.0) {
                    ring.notify(cq.0, &mut self.session.events);
                }
                self.published.sample.look(&completion, now);
                done += 1;
            }
            if ring.room() == 0 {
                break;
            }
            let Some(completion) = self.device.pop_completion(cq) else {
                break;
            };
            done += 1;
            if let Some(qp) = faults.judge(cq.0, completion, now) {
                self.device.fail_qp(qp);
            }
        }
        if (self.device.peek_len(cq) > 0 || faults.waits(cq.0)) && !ring.waiting {
            ring.waiting = true;
            self.session.full.push_back(cq.0);
        }
        if faults.is_over() {
            self.verbs_faults = None;
        }
        done
    }
}
