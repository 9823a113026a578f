//! One switch, few flows: D1, D2, D9.

use vnic_engine::congestion::dcqcn::Parameters;
use vnic_engine::congestion::notification;

use super::dctcp::Dctcp;
use super::*;
use crate::network::scenario::SwitchSettings;
use crate::suite::fluid::Fluid;

const D1_FLOWS: [usize; 3] = [2, 4, 8];

/// As many flows as senders.
fn each(flows: usize, duration: u64) -> Incast {
    Incast {
        senders: flows,
        flows,
        gbit: 40,
        starts: 20 * MS,
        duration,
    }
}

pub(super) const D1: Trial = Trial {
    id: "D1",
    scenarios: || {
        let run = |n| each(n, 400 * MS).scenario(format!("D1, N = {n}"), paper(40));
        D1_FLOWS.map(run).into()
    },
    judge: |scenarios, outcomes| {
        let mut checks = Vec::new();
        for ((scenario, outcome), n) in scenarios.iter().zip(outcomes).zip(D1_FLOWS) {
            let model = |wire: f64, payload| {
                let fluid = Fluid {
                    parameters: &Parameters::PAPER,
                    red: &scenario.switch.red,
                    rate: 40e9,
                    flows: n as f64,
                    spacing: 50e-6,
                    wire: wire * 8.0,
                    payload,
                };
                fluid.queue().unwrap_or(f64::INFINITY)
            };
            let (theirs, ours) = (model(1000.0, 1000.0), model(WIRE, 1024.0));
            let mean = mean_queue(outcome);
            checks.push(check(
                format!("mean queue, N = {n}"),
                format!("{} with 1000-byte packets", kb(theirs)),
                format!("{} (our packets) +- 20 %", kb(ours)),
                kb(mean),
                (mean / ours - 1.0).abs() <= 0.2,
            ));
            let used = utilization(outcome);
            checks.push(check(
                format!("utilization, N = {n}"),
                "full",
                ">= 99 %",
                percent(used),
                used >= 0.99,
            ));
            let jain = jain(scenario, outcome);
            checks.push(check(
                format!("Jain's index, N = {n}"),
                "equal rates",
                ">= 0.99",
                format!("{jain:.3}"),
                jain >= 0.99,
            ));
            let pauses = outcome.totals.pauses;
            checks.push(check(
                format!("PAUSE frames, N = {n}"),
                "none",
                "0",
                pauses.to_string(),
                pauses == 0,
            ));
        }
        checks
    },
};

/// Senders, and whether each notification clamps the target.
const D2_RUNS: [(usize, bool); 8] = [
    (1, true),
    (2, true),
    (4, true),
    (8, true),
    (12, true),
    (16, true),
    (20, true),
    (20, false),
];

pub(super) const D2: Trial = Trial {
    id: "D2",
    scenarios: || {
        let run = |(k, clamp_target)| {
            let control = dcqcn(Parameters {
                clamp_target,
                ..Parameters::PAPER
            });
            each(k, 100 * MS).scenario(format!("D2, K = {k}, clamp {}", u8::from(clamp_target)), control)
        };
        D2_RUNS.map(run).into()
    },
    judge: |_, outcomes| {
        let mut checks = Vec::new();
        for (outcome, (k, clamp)) in outcomes.iter().zip(D2_RUNS) {
            let least = match (k, clamp) {
                (..=8, _) => 0.97,
                (_, true) => 0.96,
                (_, false) => 0.99,
            };
            let used = utilization(outcome);
            let run = format!("K = {k}, clamp {}", u8::from(clamp));
            checks.push(check(
                format!("utilization, {run}"),
                "> 39 Gb/s of 40",
                format!(">= {}", percent(least)),
                percent(used),
                used >= least,
            ));
            let p99 = queue_percentile(outcome, 99.0);
            checks.push(check(
                format!("queue p99, {run}"),
                "about 100 KB",
                "<= 250 KB",
                kb(p99),
                p99 <= 250e3,
            ));
        }
        checks
    },
};

pub(super) const D9: Trial = Trial {
    id: "D9",
    scenarios: || {
        let mut step = SwitchSettings::step(160_000);
        step.xon_offset = SwitchSettings::paper().xon_offset;
        let dctcp = Control {
            algorithm: std::sync::Arc::new(Dctcp),
            // Each marked packet is told, as DCTCP's receivers do.
            point: Some(notification::Settings {
                spacing: std::time::Duration::ZERO,
                ..notification::Settings::default()
            }),
        };
        let dctcp = each(20, 100 * MS).scenario("D9, DCTCP, 160 KB".into(), dctcp);
        vec![
            each(20, 100 * MS).scenario("D9, DCQCN".into(), paper(40)),
            Scenario {
                switch: step,
                ..dctcp
            },
        ]
    },
    judge: |_, outcomes| {
        let [dcqcn, dctcp] = outcomes else {
            return Vec::new();
        };
        let (ours, theirs) = (queue_percentile(dcqcn, 90.0), queue_percentile(dctcp, 90.0));
        vec![
            check(
                "queue p90, DCQCN",
                "76.6 KB",
                "<= 120 KB",
                kb(ours),
                ours <= 120e3,
            ),
            check(
                "queue p90, DCQCN to DCTCP",
                format!("76.6 KB to 162.9 KB: {}", percent(76.6 / 162.9)),
                "< 50 %",
                format!("{} to {}: {}", kb(ours), kb(theirs), percent(ours / theirs)),
                ours < 0.5 * theirs,
            ),
        ]
    },
};
