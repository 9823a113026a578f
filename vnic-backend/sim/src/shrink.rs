//! Makes a failing run smaller: leaves out connections and actions while the same rule is broken.

use crate::oracle::Violation;
use crate::runner::run_quietly;
use crate::verbs::{Cut, Plan, Profile};

/// A smaller cut of this run that breaks the same rule, and how; none if it does not fail.
pub fn shrink(seed: u64, profile: Option<Profile>, from: Cut) -> Option<(Cut, Violation)> {
    let plan = Plan::new(seed, profile);
    let mut best = from;
    let mut violation = run_quietly(seed, profile, &best).violation?;
    let rule = violation.rule;
    loop {
        let before = best.clone();
        for pair in 0..plan.pairs.len() {
            let mut smaller = best.clone();
            if smaller.pairs.insert(pair)
                && let Some(v) = still(seed, profile, &smaller, rule)
            {
                (best, violation) = (smaller, v);
            }
        }
        let mut size = plan.actions.len().div_ceil(2).max(1);
        loop {
            for from in (0..plan.actions.len()).step_by(size) {
                let mut smaller = best.clone();
                smaller
                    .actions
                    .extend(from..(from + size).min(plan.actions.len()));
                if smaller != best
                    && let Some(v) = still(seed, profile, &smaller, rule)
                {
                    (best, violation) = (smaller, v);
                }
            }
            if size == 1 {
                break;
            }
            size = size.div_ceil(2);
        }
        if best == before {
            return Some((best, violation));
        }
    }
}

fn still(seed: u64, profile: Option<Profile>, cut: &Cut, rule: crate::oracle::Rule) -> Option<Violation> {
    run_quietly(seed, profile, cut)
        .violation
        .filter(|v| v.rule == rule)
}
