//! `doctor`: what stands in the way of RDMA on this machine, and how to mend it.

use std::process::ExitCode;

use serde_json::{Value, json};
use vnic_verbs::doctor::{self, Verdict};

use crate::report::Report;
use crate::seat;

/// Looks, and prints the findings. Exit code 0 only if none is a problem.
pub fn run(json: bool) -> ExitCode {
    let findings = doctor::examine();
    let mut report = Report::new("doctor");
    let rows: Vec<Value> = findings
        .iter()
        .map(|f| {
            json!({
                "what": f.what, "verdict": f.verdict.to_string(), "detail": f.detail, "cure": f.cure,
            })
        })
        .collect();
    report.word("findings", rows);
    for finding in &findings {
        report.note(format!(
            "{:<8} {}: {}",
            finding.verdict, finding.what, finding.detail
        ));
        if let Some(cure) = &finding.cure {
            report.note(format!("{:<8} → {cure}", ""));
        }
    }
    let problems = findings.iter().filter(|f| f.verdict == Verdict::Problem).count();
    match problems {
        0 => {}
        1 => report.fail("1 problem"),
        n => report.fail(format!("{n} problems")),
    }
    seat::finish("doctor", json, Ok(report))
}
