//! `vnic-sim connections`.

use anyhow::Result;
use clap::Args;

use super::{Progress, Runs, quiet_panics};
use crate::connections::{self, Mark, Outcome, Plan};

#[derive(Debug, Args)]
pub(super) struct Connections {
    #[command(flatten)]
    runs: Runs,
    /// Every call, message and event of one run.
    #[arg(short, long)]
    verbose: bool,
    /// Many runs: it is a failure if something that a run can show was never seen.
    #[arg(long)]
    full_coverage: bool,
}

/// Runs one seed, or many.
pub(super) fn run(args: &Connections) -> Result<bool> {
    if let Some(seed) = args.runs.seed {
        let plan = Plan::new(seed);
        println!("{plan}");
        let outcome = connections::run(&plan, args.verbose);
        print(&outcome);
        println!("ended at {:.3} ms of virtual time", outcome.time.0 as f64 / 1e6);
        match &outcome.violation {
            None => println!("all rules held"),
            Some(v) => println!("FAILED {v}"),
        }
        return Ok(outcome.violation.is_none());
    }
    let range = args.runs.many()?;
    quiet_panics();
    let progress = Progress::new(range.end - range.start);
    let report = connections::run_many(range, args.runs.jobs(), &|| progress.one_more());
    let seconds = progress.start.elapsed().as_secs_f64();
    let rate = report.runs as f64 / seconds;
    println!("{} runs in {seconds:.1} s, {rate:.1} seeds/s", report.runs);
    print(&report.sum);
    if let Some((seed, v)) = &report.failure {
        println!("FAILED seed {seed}: {v}");
        println!("vnic-sim connections --seed {seed} -v");
        return Ok(false);
    }
    let never = Mark::ALL.iter().filter(|m| report.sum.marks[**m as usize] == 0);
    let never: Vec<_> = never.map(|m| m.name()).collect();
    if !never.is_empty() {
        println!("never seen: {}", never.join(", "));
    }
    Ok(!args.full_coverage || never.is_empty())
}

fn print(outcome: &Outcome) {
    println!(
        "{} messages sent, {} arrived, {} lost",
        outcome.sent, outcome.arrived, outcome.lost
    );
    for mark in Mark::ALL {
        println!("  {:>10} {}", outcome.marks[mark as usize], mark.name());
    }
}
