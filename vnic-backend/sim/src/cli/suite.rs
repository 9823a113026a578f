//! `vnic-sim suite`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::network::bar;
use crate::network::{Scenario, output};
use crate::suite::report;
use crate::suite::runner::{self, Done, Verdict, Watcher};
use crate::suite::{Case, Size, cases};

pub(super) const EXAMPLES: &str = "\
Examples:
  vnic-sim suite                              all of them, on all cores
  vnic-sim suite --list                       what there is
  vnic-sim suite --case D1,H3                 two of them
  vnic-sim suite --switch-only --json s.json  those with one switch: minutes; result as JSON
  vnic-sim suite --report docs                writes congestion-results.md with plots

Exit code 0: every row passes, or differs for a reason that is known; 1: a row fails; 2: usage.";

#[derive(Debug, Args)]
pub(super) struct Suite {
    /// Only these cases.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    case: Vec<String>,
    /// Only cases of one switch.
    #[arg(long)]
    switch_only: bool,
    /// Threads [default: one a core].
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Result as JSON; `-`: to standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Writes congestion-results.md and its plots into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// A line for the report about the run: machine, duration.
    #[arg(long, value_name = "TEXT", requires = "report")]
    note: Option<String>,
    /// Lists the cases and runs none.
    #[arg(long)]
    list: bool,
}

/// Progress of all scenarios together.
struct Bar(ProgressBar);

impl Watcher for Bar {
    fn begins(&self, case: &Case, scenario: &Scenario) {
        self.0
            .set_message(format!("{}: {}", case.about.id, scenario.name));
    }

    fn advances(&self, permille: u64) {
        self.0.inc(permille);
    }
}

fn chosen(args: &Suite) -> Result<Vec<Case>> {
    let all = cases();
    let known = |id: &String| all.iter().any(|c| c.about.id.eq_ignore_ascii_case(id));
    if let Some(id) = args.case.iter().find(|id| !known(id)) {
        let ids: Vec<&str> = all.iter().map(|c| c.about.id.as_str()).collect();
        bail!("there is no case {id:?}: known are {}", ids.join(", "));
    }
    let wanted =
        |c: &Case| args.case.is_empty() || args.case.iter().any(|id| c.about.id.eq_ignore_ascii_case(id));
    let small = |c: &Case| !args.switch_only || c.about.size == Size::Switch;
    Ok(all.into_iter().filter(|c| wanted(c) && small(c)).collect())
}

/// `vnic-sim suite`.
pub(super) fn run(args: &Suite) -> Result<bool> {
    let cases = chosen(args)?;
    if args.list {
        return list(&cases);
    }
    let scenarios: usize = cases.iter().map(|c| (c.trial.scenarios)().len()).sum();
    let progress = Bar(bar(scenarios as u64 * 1000, true));
    let start = Instant::now();
    let done = runner::run(&cases, super::jobs(args.jobs), &progress);
    progress.0.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    let json_out = args.json.as_ref().is_some_and(|p| p.as_os_str() == "-");
    if !json_out {
        let mut text: String = done.iter().map(table).collect();
        text += &format!(
            "{} cases, {scenarios} scenarios in {seconds:.1} s: {}\n",
            done.len(),
            sums(&done)
        );
        std::io::stdout().write_all(text.as_bytes())?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&as_json(&done, seconds))? + "\n";
        output::save(path, text)?;
    }
    if let Some(folder) = &args.report {
        report::write(folder, &done, args.note.as_deref())?;
    }
    Ok(done.iter().all(Done::good))
}

fn list(cases: &[Case]) -> Result<bool> {
    let mut text = String::new();
    for case in cases {
        let size = match case.about.size {
            Size::Switch => "switch",
            Size::Fabric => "fabric",
        };
        let count = (case.trial.scenarios)().len();
        text += &format!(
            "{:<4} {size} {count:>3} scenarios  {}\n",
            case.about.id, case.about.title
        );
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(true)
}

fn sums(done: &[Done]) -> String {
    let of = |wanted: fn(&Verdict) -> bool| {
        let verdicts = done.iter().flat_map(|d| d.checks.iter().map(|(_, v)| v));
        verdicts.filter(|v| wanted(v)).count()
    };
    format!(
        "{} rows pass, {} differ for a known reason, {} fail",
        of(|v| *v == Verdict::Pass),
        of(|v| matches!(v, Verdict::Differs(_))),
        of(|v| *v == Verdict::Fail)
    )
}

/// A case for the terminal.
fn table(done: &Done) -> String {
    let mut text = format!(
        "{}  {}  [{}]\n",
        done.case.about.id,
        done.case.about.title,
        report::summary(done)
    );
    for (check, verdict) in &done.checks {
        let word = match verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Differs(_) => "FAIL (known)",
        };
        text += &format!(
            "  {word:<12} {}: {}\n               accepted {}; published {}\n",
            check.what, check.measured, check.accepted, check.published
        );
        if let Verdict::Differs(why) = verdict {
            text += &format!("               {why}\n");
        }
    }
    for what in &done.settled {
        text += &format!("  note: {what:?} was known to differ and does not any more\n");
    }
    text.push('\n');
    text
}

fn as_json(done: &[Done], seconds: f64) -> Value {
    let case = |done: &Done| {
        let checks: Vec<Value> = done
            .checks
            .iter()
            .map(|(c, v)| {
                let (verdict, why) = match v {
                    Verdict::Pass => ("pass", None),
                    Verdict::Fail => ("fail", None),
                    Verdict::Differs(why) => ("differs", Some(why)),
                };
                json!({
                    "what": c.what,
                    "published": c.published,
                    "accepted": c.accepted,
                    "measured": c.measured,
                    "verdict": verdict,
                    "why": why,
                })
            })
            .collect();
        let scenarios: Vec<Value> = done
            .scenarios
            .iter()
            .zip(&done.outcomes)
            .map(|(s, o)| {
                json!({
                    "name": s.name,
                    "flows": s.flows.len(),
                    "end_ns": o.end,
                    "hash": format!("{:016x}", o.hash),
                    "totals": o.totals,
                })
            })
            .collect();
        json!({
            "id": done.case.about.id,
            "title": done.case.about.title,
            "source": done.case.about.source,
            "good": done.good(),
            "checks": checks,
            "scenarios": scenarios,
        })
    };
    json!({
        "seconds": seconds,
        "good": done.iter().all(Done::good),
        "cases": done.iter().map(case).collect::<Vec<_>>(),
    })
}
