//! Communication management at random: two to four devices whose drivers connect, accept, reject, wait too long, go and begin anew,
//! on a network that loses, delays and repeats messages, in virtual time. A seed makes a [`Plan`]; the `World` runs it; the
//! oracle knows what each driver did, and so what each may be told and why. Nothing may be left at the end.

mod oracle;
mod plan;
mod world;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use vnic_wire::time::Instant;

use crate::oracle::{Rule, Violation};
use crate::runner::{Failure, each, note};

pub use plan::Plan;
use world::World;

vnic_wire::named! {
    /// What a run may show. All of them together are what the simulation is for.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Mark {
        /// A connection was made, as its passive side sees it.
        Established => "connections",
        /// Data came before the RTU.
        Data => "data came first",
        /// The queue pair of a service was found.
        Resolved => "services resolved",
        /// A driver rejected a request.
        RequestRejected => "requests rejected",
        /// A driver rejected a reply.
        ReplyRejected => "replies rejected",
        /// A peer gave up.
        Timeout => "told that the peer gave up",
        /// A peer began anew.
        Stale => "told that the peer forgot",
        /// A peer does not know the connection.
        Unknown => "told that there is no such connection",
        /// A backlog was full.
        Full => "no room",
        /// Nobody listens.
        NoService => "nobody listens",
        /// A peer did not answer.
        Unreachable => "peer unreachable",
        /// A connection ended.
        Disconnected => "disconnected",
        /// An active side that was connected to a peer that was not.
        Half => "one side only",
        /// A driver was slow, and the peer heard so.
        Receipt => "receipts (MRA)",
        /// A message came again.
        Duplicate => "duplicates",
        /// A message was sent again.
        Retry => "retries",
        /// A device began anew.
        Crash => "devices begun anew",
    }
}

/// How often each was seen.
pub type Marks = [u64; Mark::ALL.len()];

/// What a run was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Messages sent.
    pub sent: u64,
    /// Messages that arrived.
    pub arrived: u64,
    /// Messages lost.
    pub lost: u64,
    /// When it ended.
    pub time: Instant,
    /// What was seen.
    pub marks: Marks,
    /// What was wrong.
    pub violation: Option<Violation>,
}

impl Outcome {
    fn mark(&mut self, mark: Mark, n: u64) {
        self.marks[mark as usize] += n;
    }
}

/// Runs a plan.
pub fn run(plan: &Plan, verbose: bool) -> Outcome {
    let result = catch_unwind(AssertUnwindSafe(|| World::new(plan, verbose).run()));
    result.unwrap_or_else(|panic| Outcome {
        violation: Some(Violation::panic(&*panic)),
        ..Outcome::default()
    })
}

/// What many runs were.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// All together; time and violation are of no use.
    pub sum: Outcome,
    /// The first failure.
    pub failure: Failure,
}

/// Runs many seeds; stops at the first that fails. Every eighth is run twice: it has to be the same run.
pub fn run_many(seeds: Range<u64>, jobs: usize, progress: &(dyn Fn() + Sync)) -> Report {
    let report = Mutex::new(Report::default());
    each(seeds, jobs, false, &|seed| {
        let plan = Plan::new(seed);
        let mut outcome = run(&plan, false);
        if seed % 8 == 0 && outcome.violation.is_none() && run(&plan, false) != outcome {
            outcome.violation = Rule::Counter.broken::<()>("the same seed gave another run").err();
        }
        progress();
        let failed = outcome.violation.is_some();
        if let Ok(mut report) = report.lock() {
            report.runs += 1;
            let sum = &mut report.sum;
            sum.sent += outcome.sent;
            sum.arrived += outcome.arrived;
            sum.lost += outcome.lost;
            for (i, n) in outcome.marks.iter().enumerate() {
                sum.marks[i] += n;
            }
            note(&mut report.failure, seed, outcome.violation);
        }
        failed
    });
    report.into_inner().unwrap_or_default()
}
