//! Published results, run again: each with its scenario, what was published, what is accepted, and what we measure.
//!
//! A case says what it runs, and judges the outcomes; nothing in it is tuned to pass. Where ours differs, the case says why.

mod dcqcn;
mod delay;
pub mod fluid;
pub mod report;
pub mod runner;

use serde::Deserialize;

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

/// A row of the report.
fn check(
    what: impl Into<String>,
    published: impl Into<String>,
    accepted: impl Into<String>,
    measured: impl Into<String>,
    pass: bool,
) -> Check {
    Check {
        what: what.into(),
        published: published.into(),
        accepted: accepted.into(),
        measured: measured.into(),
        pass,
    }
}

/// KB as a person reads them.
fn kb(bytes: f64) -> String {
    format!("{:.1} KB", bytes / 1000.0)
}

/// Percent as a person reads them.
fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Where a case can run: the single-switch part has a time to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// One switch.
    Switch,
    /// More than one.
    Fabric,
}

/// What a picture shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Picture {
    /// What it shows.
    pub kind: Kind,
    /// Its title.
    pub title: String,
    /// Scenarios by their number in the case, each with its name in the legend. Rates of one scenario have a line for each
    /// flow; of several, one for the mean.
    pub of: Vec<(usize, String)>,
}

/// A check that fails for a reason that is known.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The check's `what`, or how it begins.
    pub what: String,
    /// Why ours differs: one sentence. It stays a failure in the report, with this beside it.
    pub why: String,
}

/// What a case is about: a row of `suite.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// `D1`.
    pub id: String,
    /// One line.
    pub title: String,
    /// Paper and figure, or seed.
    pub source: String,
    /// Where it can run.
    pub size: Size,
    /// Checks that are known to fail, and why.
    #[serde(default)]
    pub known: Vec<Known>,
    /// What a person would look at; usually one.
    #[serde(default)]
    pub pictures: Vec<Picture>,
    /// What there is to say: where sources differ, where ours does and why. Markdown.
    #[serde(default)]
    pub remarks: String,
}

/// How a case is run.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// That of the case.
    pub id: &'static str,
    /// Scenarios, in the order in which their outcomes are judged; they run on any thread.
    pub scenarios: fn() -> Vec<Scenario>,
    /// Rows, from the outcomes.
    pub judge: fn(&[Scenario], &[Outcome]) -> Vec<Check>,
}

impl Trial {
    const fn new(
        id: &'static str,
        scenarios: fn() -> Vec<Scenario>,
        judge: fn(&[Scenario], &[Outcome]) -> Vec<Check>,
    ) -> Trial {
        Trial { id, scenarios, judge }
    }
}

/// A published result.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it is about.
    pub about: About,
    /// How it is run.
    pub trial: Trial,
}

/// All cases, in the order of the report. A trial without a row, or the other way round, is a bug that a test finds.
pub fn cases() -> Vec<Case> {
    let trials = [dcqcn::trials(), delay::trials()].concat();
    let with_trial = |about: About| {
        let trial = *trials.iter().find(|trial| trial.id == about.id)?;
        Some(Case { about, trial })
    };
    rows(include_str!("../../suite.toml"))
        .into_iter()
        .filter_map(with_trial)
        .collect()
}

/// The rows of a table of cases.
fn rows(text: &str) -> Vec<About> {
    #[derive(Deserialize)]
    struct Table {
        case: Vec<About>,
    }
    let table: Table = toml::from_str(text).expect("a table of cases");
    table.case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trial_has_a_row_and_every_row_a_trial() {
        let trials = [dcqcn::trials(), delay::trials()].concat();
        let rows = rows(include_str!("../../suite.toml"));
        assert_eq!(cases().len(), trials.len());
        assert_eq!(cases().len(), rows.len());
    }
}
