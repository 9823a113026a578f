//! Connections in the simulator: the rules hold, a seed is a run, and each kind of trouble is really there.

use vnic_sim::connections::{Mark, Plan, run, run_many};

#[test]
fn the_rules_hold_and_everything_is_seen() {
    let report = run_many(0..1000, 2, &|| {});
    assert_eq!(report.failure, None, "vnic-sim connections --seed … -v");
    assert_eq!(report.runs, 1000);
    for mark in Mark::ALL {
        assert!(report.sum.marks[mark as usize] > 0, "never seen: {}", mark.name());
    }
}

#[test]
fn a_seed_gives_the_same_run_each_time() {
    for seed in 0..20 {
        let plan = Plan::new(seed);
        assert_eq!(run(&plan, false), run(&Plan::new(seed), false));
    }
}
