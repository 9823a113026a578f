//! Published results, run again: each with its scenario, what was published, what is accepted, and what we measure.
//!
//! A case says what it runs, and judges the outcomes; nothing in it is tuned to pass. Where ours differs, the case says why.

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

/// A published result.
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
    /// What there is to say: where sources differ, where ours does and why. Markdown.
    pub remarks: &'static str,
}
