//! Flow control in the simulator: the rules hold, a seed is a run, and each kind of trouble is really there.

use std::collections::BTreeSet;

use vnic_sim::pause::{Control, Kind, Mark, Plan, run, run_many};

#[test]
fn the_rules_hold() {
    let report = run_many(0..100, 2, &|| {});
    assert_eq!(report.failure, None);
    assert_eq!(report.runs, 100);
    let sum = &report.sum;
    assert!(sum.delivered > 0 && sum.pauses > 0 && sum.dropped < sum.delivered);
}

/// The first seeds that pass are run without trace; `what` says of which plans.
fn all(what: impl Fn(&Plan) -> bool, n: usize) -> Vec<(Plan, vnic_sim::pause::Outcome)> {
    let plans = (0..).map(Plan::new).filter(what).take(n);
    let run = |plan: Plan| {
        let outcome = run(&plan, &BTreeSet::new(), false);
        assert_eq!(outcome.violation, None, "{plan}");
        (plan, outcome)
    };
    plans.map(run).collect()
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for (plan, outcome) in all(|p| p.kind == Kind::Ring, 3) {
        assert_eq!(run(&Plan::new(plan.seed), &BTreeSet::new(), false), outcome);
    }
}

#[test]
fn flows_can_be_left_out() {
    let plan = Plan::new(1);
    let some = (1..plan.flows.len()).collect();
    let outcome = run(&plan, &some, false);
    assert!(outcome.sent <= u64::from(plan.flows[0].frames));
}

/// A ring of switches that wait for each other stands still for ever; with storm prevention or lifetimes it does not.
#[test]
fn a_ring_waits_for_itself_until_something_is_lost() {
    let ring = |p: &Plan| p.kind == Kind::Ring && matches!(p.control, Control::Priorities(_));
    let bare = all(
        |p| ring(p) && p.qos.guard.critical_ms == 0 && p.qos.lifetimes.enable == 0,
        12,
    );
    let stuck: Vec<_> = bare
        .iter()
        .filter(|(_, o)| o.marks[Mark::Deadlock as usize] != 0)
        .collect();
    assert!(stuck.len() >= 4, "{} of 12", stuck.len());
    for (plan, without) in stuck {
        assert_eq!(without.lossless_dropped, 0, "nothing ended it");
        // The same again, with an end to it.
        let mut guarded = plan.clone();
        guarded.qos.guard.critical_ms = 100;
        let outcome = run(&guarded, &BTreeSet::new(), false);
        assert_eq!(outcome.violation, None, "{guarded}");
        assert!(outcome.marks[Mark::DeadlockEndedByGuard as usize] != 0 && outcome.lossless_dropped > 0);
        assert!(outcome.delivered > without.delivered);
        let mut limited = plan.clone();
        (limited.qos.lifetimes.enable, limited.qos.lifetimes.limit) = (0xff, 12);
        let outcome = run(&limited, &BTreeSet::new(), false);
        assert_eq!(outcome.violation, None, "{limited}");
        assert!(outcome.marks[Mark::DeadlockEndedByLifetime as usize] != 0);
        assert_eq!(outcome.sent, outcome.delivered + outcome.dropped);
    }
}

/// Many to one with priority flow control, headroom as the formula says: no frame is lost of those that shall not be.
#[test]
fn incast_loses_nothing() {
    let runs = all(|p| p.kind == Kind::Incast && p.hosts > 8, 10);
    for (plan, outcome) in &runs {
        assert_eq!(outcome.lossless_dropped, 0, "{plan}");
    }
    let paused = runs.iter().filter(|(_, o)| o.pauses > 0);
    assert!(paused.count() >= 5, "those who have little to send need not wait");
}
