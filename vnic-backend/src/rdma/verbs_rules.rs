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
//!
//! A command that a rule makes slow waits in its virtqueue, and the driver's later ones behind it. A message that a rule keeps from its
//! receive is the engine's as if there were none.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use vnic_device::command::Opcode;
use vnic_device::queue::Operation;
use vnic_device::verbs::{Post, PostErrno};
use vnic_engine::rdma::{Completion, CompletionOp, Status};
use vnic_fabric::Instant;
use vnic_fabric::fault::{Tally, hits};

use super::request::{Failure, Outcome, fail};
use crate::types::{CompletionFault, ProcessMatch, VerbsFaultAction, VerbsFaultSpec};

/// Largest number of completions of a driver that are held back. Further ones are not hit by rules that hold back.
const HELD_MAX: usize = 4096;

/// A rule's first hit, for the event log: its number and name.
pub type FirstHit = (u32, String);

/// A driver's process, as far as it is known.
#[derive(Debug, Clone, Copy, Default)]
pub struct Who<'a> {
    /// Its number.
    pub pid: Option<i32>,
    /// The name that its program had when it came.
    pub program: Option<&'a str>,
}

/// A rule in force, shared by the functions of an adapter's processes, so that its counts are of all of them.
#[derive(Debug)]
pub struct VerbsRule {
    /// Number of the rule.
    pub id: u32,
    /// What it matches and does.
    pub spec: VerbsFaultSpec,
    /// When it was added, by the data core's clock.
    pub since: Instant,
    /// What it matched and hit.
    pub tally: Tally,
}

impl VerbsRule {
    /// Counts a match. True: it is hit; the first hit is put into `first`.
    pub fn hits(&self, first: &mut Vec<FirstHit>) -> bool {
        let spec = &self.spec;
        let before = self.tally.count_match();
        let hit = before >= spec.skip
            && hits(spec.seed.unwrap_or_default(), before, spec.probability)
            && self.tally.count_injection(spec.count);
        // The rule's adapter is on one data core.
        if hit && self.tally.injected() == 1 {
            first.push((self.id, spec.name.clone()));
        }
        hit
    }

    /// Whether the next match is hit.
    fn would_hit(&self) -> bool {
        let (spec, before) = (&self.spec, self.tally.matched());
        before >= spec.skip
            && hits(spec.seed.unwrap_or_default(), before, spec.probability)
            && spec.count.is_none_or(|count| self.tally.injected() < count)
    }

    /// Whether it is about this driver.
    fn is_of(&self, who: Who<'_>) -> bool {
        match &self.spec.process {
            None => true,
            Some(ProcessMatch::Pid(pid)) => who.pid == Some(*pid),
            Some(ProcessMatch::Program(name)) => who.program == Some(name),
        }
    }

    /// Whether its time is over, or its number of hits.
    fn has_ended(&self, now: Instant) -> bool {
        let (spec, begins) = (&self.spec, self.since + self.spec.after);
        let spent = spec.count.is_some_and(|count| self.tally.injected() >= count);
        spent || spec.lasts.is_some_and(|lasts| begins + lasts <= now)
    }

    /// Whether it is in force now, for this driver.
    fn acts(&self, who: Who<'_>, now: Instant) -> bool {
        let spec = &self.spec;
        let begins = self.since + spec.after;
        self.is_of(who) && begins <= now && spec.lasts.is_none_or(|lasts| now < begins + lasts)
    }

    /// Whether it is about so many bytes; `None`: they are not known.
    fn fits(&self, bytes: Option<u64>) -> bool {
        let (min, max) = (self.spec.min_bytes, self.spec.max_bytes);
        let within = |n| min.is_none_or(|min| min <= n) && max.is_none_or(|max| n <= max);
        bytes.map_or(!self.spec.is_sized(), within)
    }

    /// What the rule does to completions like this one; `srq`: that gave its receive.
    fn concerns(&self, c: &Completion, srq: Option<u32>) -> Option<CompletionFault> {
        use CompletionFault as F;
        let VerbsFaultAction::Completion { qp, kinds, fault } = &self.spec.action else {
            return None;
        };
        let good = c.status == Status::Success;
        let fits = match fault {
            F::Lie(_) | F::Fail(_) | F::Length(_) => good,
            F::Immediate(_) => good && c.imm.is_some(),
            F::SrqLimit => is_receive(c) && srq.is_some(),
            F::Lose | F::Double | F::Late(_) | F::Hang | F::Swap(_) | F::Overrun => true,
        };
        let kind = kinds.is_empty() || good && kinds.contains(&c.op);
        (fits && kind && self.fits(bytes(c)) && qp.is_none_or(|qp| qp == c.qp.0)).then_some(*fault)
    }
}

/// Bytes that a completion tells of.
fn bytes(c: &Completion) -> Option<u64> {
    use CompletionOp as O;
    let tells = matches!(
        c.op,
        O::Read | O::CompareSwap | O::FetchAdd | O::Recv | O::RecvWriteImm
    );
    (tells && c.status == Status::Success).then_some(c.byte_len.into())
}

/// A completion of the engine, with what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// Its completion queue.
    pub cq: u32,
    /// Its request in the journal of a recording.
    pub row: Option<u64>,
    /// The shared receive queue of its queue pair.
    pub srq: Option<u32>,
    /// The driver.
    pub who: Who<'a>,
    /// The time.
    pub now: Instant,
}

/// A work request that the driver is about to post.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// What is posted.
    pub post: Post,
    /// The queue pair; `None`: a receive of a shared queue.
    pub qp: Option<u32>,
    /// The operation of a send.
    pub operation: Option<Operation>,
    /// Bytes of its elements, or inline.
    pub bytes: u64,
}

/// What a completion does to its objects.
#[derive(Debug, Default)]
pub struct Judged {
    /// Its queue pair fails.
    pub fails: bool,
    /// Its completion queue overruns.
    pub overruns: bool,
    /// Its shared receive queue tells that its limit is reached.
    pub limit: bool,
}

/// A command that waits.
#[derive(Debug)]
pub struct Waiting {
    /// How long.
    pub until: Instant,
    /// The rule that makes it wait.
    pub rule: u32,
    /// Its answer, if it is refused.
    pub refusal: Option<Failure>,
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
    /// A command that a rule makes slow.
    pub command: Option<Waiting>,
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

    /// Judges a completion of the engine.
    pub fn judge(&mut self, mut c: Completion, told: Told<'_>, first: &mut Vec<FirstHit>) -> Judged {
        use CompletionFault as F;
        // It ended before the rule failed its queue pair, but nothing succeeds behind a failure.
        if c.status == Status::Success && self.failed.contains(&c.qp.0) {
            c.status = Status::FlushError;
        }
        let Told { cq, row, now, .. } = told;
        let (mut copies, mut until, mut judged) = (1, None, Judged::default());
        for rule in &self.rules {
            let Some(fault) = rule.concerns(&c, told.srq) else {
                continue;
            };
            let holds = matches!(fault, F::Late(_) | F::Hang | F::Swap(_));
            let full = holds && (until.is_some() || self.held.len() >= HELD_MAX);
            if full || !rule.acts(told.who, now) || !rule.hits(first) {
                continue;
            }
            match fault {
                F::Lie(status) => c.status = status,
                F::Fail(status) => {
                    c.status = status;
                    self.failed.insert(c.qp.0);
                    judged.fails = true;
                }
                F::Lose | F::Overrun => {
                    judged.overruns = fault == F::Overrun;
                    copies = 0;
                    break;
                }
                F::Double => copies = 2,
                F::Late(by) => until = Some(Until::Time(now + by)),
                F::Hang => until = Some(Until::Removal(rule.id)),
                F::Swap(at_most) => until = Some(Until::Next(now + at_most)),
                F::Length(len) => c.byte_len = len,
                F::Immediate(imm) => c.imm = Some(imm),
                F::SrqLimit => judged.limit = true,
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
        judged
    }

    /// Judges a command; `bytes`: of its region, when they are known. [`Failure::Unfinished`]: it waits.
    pub fn judge_command(
        &mut self,
        opcode: Opcode,
        bytes: Option<u64>,
        who: Who<'_>,
        now: Instant,
        first: &mut Vec<FirstHit>,
    ) -> Outcome {
        if let Some(waited) = self.command.take() {
            return waited.refusal.map_or(Ok(()), Err);
        }
        let mut waits: Option<(Instant, u32)> = None;
        let mut refusal = None;
        for rule in &self.rules {
            let VerbsFaultAction::Command {
                commands,
                status,
                delay,
            } = &rule.spec.action
            else {
                continue;
            };
            let is =
                commands.contains(&opcode) && rule.spec.is_sized() == bytes.is_some() && rule.fits(bytes);
            if !is || !rule.acts(who, now) || !rule.hits(first) {
                continue;
            }
            if let Some(by) = delay {
                let from = waits.map_or(now, |(until, _)| until);
                waits = Some((from + *by, rule.id));
            }
            if let Some(status) = status {
                let text = format!("the fault rule {} refuses it", rule.spec.name);
                refusal = fail::<()>(*status, text).err();
                break;
            }
        }
        let Some((until, rule)) = waits else {
            return refusal.map_or(Ok(()), Err);
        };
        self.command = Some(Waiting { until, rule, refusal });
        Err(Failure::Unfinished)
    }

    /// Kinds of posts, as a set, that rules of this driver may still concern.
    pub fn watched_posts(&self, who: Who<'_>, now: Instant) -> u32 {
        let rules = self
            .rules
            .iter()
            .filter(|rule| rule.is_of(who) && !rule.has_ended(now));
        let bits = rules.map(|rule| match &rule.spec.action {
            VerbsFaultAction::Post { post, .. } => post.bit(),
            _ => 0,
        });
        bits.fold(0, |all, bit| all | bit)
    }

    /// Judges a post: the error with which it fails, of the first rule that hits it.
    pub fn judge_post(
        &self,
        asked: &Asked,
        who: Who<'_>,
        now: Instant,
        first: &mut Vec<FirstHit>,
    ) -> Option<PostErrno> {
        self.rules.iter().find_map(|rule| {
            let VerbsFaultAction::Post {
                post,
                qp,
                operations,
                errno,
            } = &rule.spec.action
            else {
                return None;
            };
            let operation =
                operations.is_empty() || asked.operation.is_some_and(|of| operations.contains(&of));
            let is = *post == asked.post
                && (qp.is_none() || *qp == asked.qp)
                && operation
                && rule.fits(Some(asked.bytes));
            (is && rule.acts(who, now) && rule.hits(first)).then_some(*errno)
        })
    }

    /// Whether a message for a queue pair shall find no receive; `None`: no rule is about it.
    pub fn withholds(&self, qp: u32, who: Who<'_>, now: Instant) -> Option<bool> {
        let mut rules = self.not_ready(qp, who, now).peekable();
        rules.peek()?;
        Some(rules.any(|rule| rule.would_hit()))
    }

    /// Counts a message that needed a receive.
    pub fn count_message(&self, qp: u32, who: Who<'_>, now: Instant, first: &mut Vec<FirstHit>) {
        // The first rule that hits it ends the question.
        let _ = self.not_ready(qp, who, now).any(|rule| rule.hits(first));
    }

    fn not_ready(&self, qp: u32, who: Who<'_>, now: Instant) -> impl Iterator<Item = &VerbsRule> {
        let rules = self.rules.iter().map(Arc::as_ref);
        rules.filter(move |rule| {
            matches!(&rule.spec.action, VerbsFaultAction::NotReady { qp: of } if of.is_none_or(|of| of == qp))
                && rule.acts(who, now)
        })
    }

    /// Whether the queue has completions for which no other event comes.
    pub fn waits(&self, cq: u32) -> bool {
        let timed = |held: &Held| held.cq == cq && !matches!(held.until, Until::Removal(_));
        self.ready.get(&cq).is_some_and(|ready| !ready.is_empty()) || self.held.iter().any(timed)
    }

    /// When the command that waits goes on.
    pub fn command_waits(&self) -> Option<Instant> {
        self.command.as_ref().map(|waiting| waiting.until)
    }

    /// Whether there is neither a rule, nor a completion or a command that waits.
    pub fn is_over(&self) -> bool {
        let nothing = self.rules.is_empty() && self.held.is_empty() && self.command.is_none();
        nothing && self.ready.values().all(VecDeque::is_empty)
    }
}
