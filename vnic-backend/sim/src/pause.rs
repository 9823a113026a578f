//! Flow control at random: hosts and switches whose ports are made of [`vnic_fabric::qos`], on links of
//! [`vnic_fabric::Network`], in virtual time. A seed makes a [`Plan`]: a topology, flows, settings and trouble (receivers
//! that stand still, a peer that sends pause for ever, rings of switches that wait for each other); the `World` runs
//! it; the oracle knows what was sent and what may be lost, and why.
//!
//! ```text
//!  guest ─▶ host ─▶ link ─▶ switch ─▶ link ─▶ host ─▶ guest
//!            each port: Egress, Buffers by source, StallGuard, Lifetime; each link: PauseTx ─▶ PauseRx
//! ```

mod oracle;
mod plan;
mod port;
mod world;

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use vnic_fabric::Instant;

use crate::oracle::{Judgement, Rule, Violation};
use crate::runner::{Failure, each, note};

pub use plan::{Control, Kind, Plan};
use world::World;

vnic_wire::named! {
    /// What a run may show. All of them together are what the simulation is for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mark {
        /// Somebody was told to wait by priority, by a frame.
        PriorityPause => "priority pause sent",
        /// Somebody was told to wait by global pause.
        GlobalPause => "global pause sent",
        /// A guest was told to wait.
        GuestWaits => "guest told to wait",
        /// Told to go on again.
        Xon => "told to go on",
        /// Many to one without a loss.
        Incast => "many to one without a loss",
        /// A lossy priority dropped.
        LossyDrop => "lossy priority dropped",
        /// Switches waited for each other, and nothing ended it.
        Deadlock => "deadlock",
        /// They did, and storm prevention ended it.
        DeadlockEndedByGuard => "deadlock ended by storm prevention",
        /// They did, and the lifetime of frames ended it.
        DeadlockEndedByLifetime => "deadlock ended by lifetime",
        /// The minor watermark was reached.
        Minor => "minor watermark",
        /// The critical one.
        Critical => "critical watermark",
        /// Pause came back.
        Recovered => "recovered",
        /// A lossless priority lost a frame after storm prevention had acted.
        OverflowAfterCritical => "lossless loss after storm prevention",
        /// A frame waited too long.
        HeadOfQueue => "head of queue dropped",
        /// A pause frame was lost, and nothing else.
        LostPause => "pause frame lost",
        /// Its class was stalled.
        ClassStalled => "class stalled",
        /// A peer sent pause for ever, and the other priorities went on.
        EndlessPause => "endless pause survived",
        /// With global pause a flow suffered that had nothing to do with the trouble.
        VictimOfGlobalPause => "victim of global pause",
        /// With priority flow control it did not.
        NoVictimOfPriorities => "no victim of priority flow control",
    }
}

/// How often each was seen.
pub type Marks = [u64; Mark::ALL.len()];

/// What a run was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames sent by guests.
    pub sent: u64,
    /// Delivered to guests.
    pub delivered: u64,
    /// Dropped, whatever the reason.
    pub dropped: u64,
    /// Of those, of lossless priorities.
    pub lossless_dropped: u64,
    /// Pause frames.
    pub pauses: u64,
    /// When it ended.
    pub time: Instant,
    /// What was seen.
    pub marks: Marks,
    /// A sum over all that happened and when: the same for the same run.
    pub digest: u64,
    /// What was wrong.
    pub violation: Option<Violation>,
}

impl Outcome {
    fn mark(&mut self, mark: Mark) {
        self.marks[mark as usize] += 1;
    }
}

/// Runs a plan without the flows that are left out. Of a [`Kind::Victim`] both kinds of flow control are run and compared.
pub fn run(plan: &Plan, without: &BTreeSet<usize>, verbose: bool) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut outcome = World::new(plan, without, verbose).run();
        if plan.kind == Kind::Victim && outcome.violation.is_none() && without.is_empty() {
            compare(plan, &mut outcome, verbose);
        }
        outcome
    }));
    result.unwrap_or_else(|panic| Outcome {
        violation: Some(Violation::panic(&*panic)),
        ..Outcome::default()
    })
}

/// The same with global pause: the victim, which does not go to the slow receiver, is held up with the others.
fn compare(plan: &Plan, outcome: &mut Outcome, verbose: bool) {
    let global = Plan {
        control: Control::Global,
        ..plan.clone()
    };
    let mut runs = [plan, &global].map(|plan| {
        let mut world = World::new(plan, &BTreeSet::new(), verbose);
        let outcome = world.run();
        (outcome, world.done_at(1))
    });
    let start = plan.flows[1].start;
    let took = |end: Instant| end.since(start).as_secs_f64() * 1e3;
    let alone = took(plan.flows[1].alone());
    let times = [&runs[0], &runs[1]].map(|(_, done)| done.map_or(f64::INFINITY, took));
    if let Some(v) = runs[1].0.violation.take() {
        outcome.violation = Some(v);
    } else if times[0] > alone * 1.2 + 0.2 || times[1] < times[0] * 1.5 {
        let broken: Judgement = Rule::Progress.broken(format!(
            "the victim needs {:.2} ms alone, {:.2} with priority flow control, {:.2} with global pause",
            alone, times[0], times[1]
        ));
        outcome.violation = broken.err();
    } else {
        outcome.mark(Mark::NoVictimOfPriorities);
        outcome.mark(Mark::VictimOfGlobalPause);
    }
    for (i, n) in runs[1].0.marks.iter().enumerate() {
        outcome.marks[i] += n;
    }
}

/// What many runs were.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// All together; the digest, time and violation are of no use.
    pub sum: Outcome,
    /// The first failure.
    pub failure: Failure,
}

/// Runs many seeds; stops at the first that fails. Every eighth is run twice: it has to be the same run.
pub fn run_many(seeds: Range<u64>, jobs: usize, progress: &(dyn Fn() + Sync)) -> Report {
    let report = Mutex::new(Report::default());
    each(seeds, jobs, false, &|seed| {
        let plan = Plan::new(seed);
        let mut outcome = run(&plan, &BTreeSet::new(), false);
        if seed % 8 == 0 && outcome.violation.is_none() && run(&plan, &BTreeSet::new(), false) != outcome {
            let broken: Judgement = Rule::Counter.broken("the same seed gave another run");
            outcome.violation = broken.err();
        }
        progress();
        let failed = outcome.violation.is_some();
        if let Ok(mut report) = report.lock() {
            report.runs += 1;
            let sum = &mut report.sum;
            sum.sent += outcome.sent;
            sum.delivered += outcome.delivered;
            sum.dropped += outcome.dropped;
            sum.lossless_dropped += outcome.lossless_dropped;
            sum.pauses += outcome.pauses;
            for (i, n) in outcome.marks.iter().enumerate() {
                sum.marks[i] += n;
            }
            note(&mut report.failure, seed, outcome.violation);
        }
        failed
    });
    report.into_inner().unwrap_or_default()
}

/// Flows that a failing run does not need to break the same rule, and how it does; none if it does not fail.
pub fn shrink(seed: u64, from: BTreeSet<usize>) -> Option<(BTreeSet<usize>, Violation)> {
    let plan = Plan::new(seed);
    let mut best = from;
    let mut violation = run(&plan, &best, false).violation?;
    for flow in 0..plan.flows.len() {
        let mut fewer = best.clone();
        if !fewer.insert(flow) {
            continue;
        }
        if let Some(v) = run(&plan, &fewer, false).violation
            && v.rule == violation.rule
        {
            (best, violation) = (fewer, v);
        }
    }
    Some((best, violation))
}
