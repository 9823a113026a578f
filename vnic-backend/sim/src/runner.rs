//! Many seeds, on several threads.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vnic_engine::rdma::{Mark, Marks};

use crate::commands;
use crate::oracle::{Tally, Violation};
use crate::verbs::{Capture, Cut, Outcome, Plan, Profile, run};

/// Seed and rule of the first run that failed.
pub type Failure = Option<(u64, Violation)>;

/// Notes a failure, if it is one of an earlier seed.
pub(crate) fn note(failure: &mut Failure, seed: u64, violation: Option<Violation>) {
    if let Some(v) = violation
        && failure.as_ref().is_none_or(|(first, _)| seed < *first)
    {
        *failure = Some((seed, v));
    }
}

/// What many runs were.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Paths that the engine took.
    pub marks: Marks,
    /// Completions that came.
    pub tally: Tally,
    /// Packets sent.
    pub packets: u64,
    /// Requests posted.
    pub posted: u64,
    /// Bytes compared at the ends.
    pub bytes: u64,
    /// The first failure.
    pub failure: Failure,
}

impl Report {
    fn add(&mut self, seed: u64, outcome: &Outcome) {
        self.runs += 1;
        self.marks.add(&outcome.marks);
        self.tally.add(&outcome.tally);
        self.packets += outcome.packets;
        self.posted += outcome.finish.posted;
        self.bytes += outcome.finish.bytes;
        note(&mut self.failure, seed, outcome.violation.clone());
    }

    /// Marks that were never hit.
    pub fn unmarked(&self) -> Vec<Mark> {
        self.marks
            .iter()
            .filter(|(_, n)| *n == 0)
            .map(|(m, _)| m)
            .collect()
    }
}

/// Runs one seed without trace.
pub fn run_quietly(seed: u64, profile: Option<Profile>, cut: &Cut) -> Outcome {
    run(&Plan::new(seed, profile), cut, &mut Capture::default())
}

/// Calls `one` with every seed on several threads, until it says that it failed and the others need not go on.
pub(crate) fn each(seeds: Range<u64>, jobs: usize, go_on: bool, one: &(dyn Fn(u64) -> bool + Sync)) {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicBool::new(false);
    let work = || {
        while go_on || !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if one(seed) {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(work);
        }
    });
}

/// Runs many seeds; stops at the first that fails, unless it shall `go_on`. `progress` hears of every run.
pub fn run_many(
    seeds: Range<u64>,
    profile: Option<Profile>,
    jobs: usize,
    go_on: bool,
    progress: &(dyn Fn(u64, Option<&Violation>) + Sync),
) -> Report {
    let report = Mutex::new(Report::default());
    each(seeds, jobs, go_on, &|seed| {
        let outcome = run_quietly(seed, profile, &Cut::default());
        progress(seed, outcome.violation.as_ref());
        if let Ok(mut report) = report.lock() {
            report.add(seed, &outcome);
        }
        outcome.violation.is_some()
    });
    report.into_inner().unwrap_or_default()
}

/// Runs many seeds of random verbs: the first that fails.
pub fn run_commands(
    seeds: Range<u64>,
    jobs: usize,
    progress: &(dyn Fn(u64, Option<&Violation>) + Sync),
) -> Failure {
    let failure = Mutex::new(None);
    each(seeds, jobs, false, &|seed| {
        let violation = commands::run(seed, false);
        progress(seed, violation.as_ref());
        let failed = violation.is_some();
        if let Ok(mut first) = failure.lock() {
            note(&mut first, seed, violation);
        }
        failed
    });
    failure.into_inner().unwrap_or_default()
}
