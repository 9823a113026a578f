//! What is printed at the end: figures of the house, seconds by step, what was skipped, and what that makes of the run.

use std::collections::BTreeSet;
use std::{fs, io};

use crate::step::Suite;
use crate::times;

/// Cases that may be skipped in CI.
const ALLOWED: &str = "tests/skips.txt";

/// Prints the end of the run. Says whether nothing failed.
pub fn end(suite: &mut Suite, record: bool) -> io::Result<bool> {
    let count = |suite: &Suite, what| suite.outcomes.iter().filter(|o| o.passed == Some(what)).count();
    let (passed, mut failed) = (count(suite, true), count(suite, false));
    println!();
    let house = suite.log_of("tests house_rules").text();
    let figures: Vec<&str> = house
        .lines()
        .filter_map(|line| line.strip_prefix("figure: "))
        .collect();
    if !figures.is_empty() {
        figures.iter().for_each(|line| println!("{line}"));
        println!();
    }
    suite
        .outcomes
        .iter()
        .for_each(|outcome| println!("{}", outcome.line()));
    let cpu: f64 = suite.outcomes.iter().map(|o| o.cpu).sum();
    println!(
        "{:<8} {:<30} {:>6.1} s {cpu:>7.1} s of CPU",
        "",
        "together",
        suite.elapsed().as_secs_f64()
    );

    let (speed, grown) = times::judge(&times::read(times::FILE.as_ref())?, &suite.outcomes);
    if let Some(speed) = speed {
        println!(
            "\nof the seconds of {} this machine takes {:.0} %",
            times::FILE,
            100.0 * speed
        );
    }
    if record && failed == 0 {
        times::record(times::FILE.as_ref(), &suite.outcomes)?;
        println!("recorded in {}", times::FILE);
    } else {
        // (Threads that poll take more of a machine that others use as well.)
        let judged = std::env::var("VNIC_TIMES").is_ok_and(|on| on == "1");
        failed += if judged { grown.len() } else { 0 };
        let what = if judged { ", which is a failure" } else { "" };
        grown.iter().for_each(|line| println!("grown{what}: {line}"));
    }

    let skipped = skips(suite, &mut failed)?;
    println!();
    // Once more: whoever sees the last lines only wants to know which, and why.
    for outcome in suite.outcomes.iter().filter(|o| o.passed == Some(false)) {
        println!("{}", outcome.line());
        let reasons = suite.log_of(&outcome.name).reasons();
        reasons.iter().for_each(|reason| println!("         {reason}"));
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

/// Prints what was skipped. In CI it counts as failed, unless the list allows it.
fn skips(suite: &Suite, failed: &mut usize) -> io::Result<usize> {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    let allowed = fs::read_to_string(ALLOWED)?;
    let text = fs::read_to_string(&suite.skip_log)?;
    let lines: BTreeSet<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() {
        println!();
    }
    let mut skipped = 0;
    for line in lines {
        if !ci {
            println!("skipped: {line}");
        } else if may_be_skipped(&allowed, line) {
            println!("skipped, as {ALLOWED} allows: {line}");
        } else {
            println!("skipped, which is a failure in CI: {line}");
            *failed += 1;
            continue;
        }
        skipped += 1;
    }
    Ok(skipped)
}

/// Does the list (a name, then why that is all right) have the name that a line begins with?
fn may_be_skipped(allowed: &str, line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let rest = |row: &str| {
        row.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    };
    allowed.lines().any(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_names_may_be_skipped() {
        let list = "# names\nsandbox   a reason\n";
        assert!(may_be_skipped(list, "sandbox: no Landlock"));
        assert!(!may_be_skipped(list, "sand: no Landlock"));
        assert!(!may_be_skipped(list, "vm-two: no KVM"));
    }
}
