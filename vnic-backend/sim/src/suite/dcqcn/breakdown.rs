//! One switch, more flows than DCQCN can hold: D3, D4, D5.

use super::*;

/// What the buffer holds when all senders are stopped by flow control: so many senders each have as much as is free.
fn ceiling(scenario: &Scenario) -> f64 {
    let ports = scenario.topology.hosts as f64;
    let link = scenario.topology.rate_of(0) as f64;
    // Two packets, the cable both ways and a pause frame, for each port and the one priority that is used.
    let flight = 2.0 * FRAME + 64.0 + 2.0 * US as f64 * link / 8e9;
    let free = scenario.switch.buffer as f64 - ports * flight;
    let senders = ports - 1.0;
    free * senders / (senders + 1.0)
}

/// A run of so many flows from eight hosts, all of which start in 100 ms.
fn run(id: &str, gbit: u64, flows: usize, ai_mbit: u64) -> Scenario {
    let incast = Incast {
        senders: 8,
        flows,
        gbit,
        starts: 100 * MS,
        duration: if gbit > 10 { 300 * MS } else { 400 * MS },
    };
    incast.scenario(format!("{id}, N = {flows}"), paper(ai_mbit))
}

/// Rows of runs that DCQCN holds, and of those that it does not.
fn judge(scenarios: &[Scenario], outcomes: &[Outcome], fails: &str, holds: usize) -> Vec<Check> {
    let mut checks = Vec::new();
    for (scenario, outcome) in scenarios.iter().zip(outcomes) {
        let n = scenario.flows.len();
        let mean = mean_queue(outcome);
        let pauses = outcome.totals.pauses_measured;
        if n <= holds {
            checks.push(check(
                format!("mean queue, N = {n}"),
                format!("holds below about {fails}"),
                "<= 250 KB",
                kb(mean),
                mean <= 250e3,
            ));
            checks.push(check(
                format!("standing PFC, N = {n}"),
                format!("holds below about {fails}"),
                "no PAUSE while measured",
                format!("{pauses} PAUSE"),
                pauses == 0,
            ));
        } else {
            let most = ceiling(scenario);
            checks.push(check(
                format!("mean queue, N = {n}"),
                format!("fails at about {fails}"),
                format!(">= 90 % of what PFC lets in ({})", kb(most)),
                kb(mean),
                mean >= 0.9 * most,
            ));
            let last = outcome.totals.last_pause;
            checks.push(check(
                format!("standing PFC, N = {n}"),
                format!("fails at about {fails}"),
                "PAUSE until the end",
                format!(
                    "{pauses} PAUSE while measured, the last {:.1} ms before the end",
                    (outcome.end.saturating_sub(last)) as f64 / 1e6
                ),
                pauses > 0 && outcome.end.saturating_sub(last) < 5 * MS,
            ));
        }
    }
    checks
}

pub(super) const D3: Trial = Trial {
    id: "D3",
    scenarios: || [40, 120].map(|n| run("D3", 10, n, 40)).into(),
    judge: |scenarios, outcomes| judge(scenarios, outcomes, "80 flows", 40),
};

pub(super) const D4: Trial = Trial {
    id: "D4",
    scenarios: || [60, 120].map(|n| run("D4", 10, n, 10)).into(),
    judge: |scenarios, outcomes| judge(scenarios, outcomes, "80 flows", 60),
};

pub(super) const D5: Trial = Trial {
    id: "D5",
    scenarios: || [120, 320].map(|n| run("D5", 40, n, 40)).into(),
    judge: |scenarios, outcomes| judge(scenarios, outcomes, "160 flows", 120),
};
