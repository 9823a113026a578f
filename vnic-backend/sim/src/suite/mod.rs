//! Published results, run again: each with its scenario, what was published, what is accepted, and what we measure.
//!
//! A case says what it runs, and judges the outcomes; nothing in it is tuned to pass. Where ours differs, the case says why.

mod dcqcn;
mod delay;
pub mod fluid;
pub mod report;
pub mod runner;

use crate::network::{Outcome, Scenario};

/// One row of the report.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What is compared: `mean queue, N = 2`.
    pub what: String,
    /// As it was published, with its source.
    pub published: String,
    /// What is accepted, in words and numbers.
    pub accepted: String,
    /// What we measured.
    pub measured: String,
    /// Is it accepted?
    pub pass: bool,
}

/// Where a case can run: the single-switch part has a time to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// One switch.
    Switch,
    /// More than one.
    Fabric,
}

/// What a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Rates of the recorded flows over time.
    Rates,
    /// Throughput of the recorded flows over time.
    Throughput,
    /// Bytes in the first recorded queue over time.
    Queue,
    /// Distribution of the bytes in the first recorded queue.
    QueueDistribution,
    /// Distribution of the slowdown of finished flows.
    Slowdown,
    /// Pause frames, CNPs, marks and drops over time, of one scenario.
    Signals,
}

/// A picture of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picture {
    /// What it shows.
    pub kind: Kind,
    /// Its title.
    pub title: &'static str,
    /// Scenarios by their number in the case, each with its name in the legend. Rates of one scenario have a line for each
    /// flow; of several, one for the mean.
    pub of: &'static [(usize, &'static str)],
}

/// A check that fails for a reason that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The check's `what`, or how it begins.
    pub what: &'static str,
    /// Why ours differs: one sentence. It stays a failure in the report, with this beside it.
    pub why: &'static str,
}

/// A published result.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// `D1`.
    pub id: &'static str,
    /// One line.
    pub title: &'static str,
    /// Paper and figure, or seed.
    pub source: &'static str,
    /// Where it can run.
    pub size: Size,
    /// Scenarios, in the order in which their outcomes are judged; they run on any thread.
    pub scenarios: fn() -> Vec<Scenario>,
    /// Rows, from the outcomes.
    pub judge: fn(&[Scenario], &[Outcome]) -> Vec<Check>,
    /// Checks that are known to fail, and why.
    pub known: &'static [Known],
    /// What a person would look at; usually one.
    pub pictures: &'static [Picture],
    /// What there is to say: where sources differ, where ours does and why. Markdown.
    pub remarks: &'static str,
}

/// All cases, in the order of the report.
pub fn cases() -> Vec<Case> {
    [dcqcn::cases(), delay::cases()].concat()
}
