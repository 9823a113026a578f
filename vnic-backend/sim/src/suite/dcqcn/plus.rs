//! DCQCN+: P1, P2, P3; and DCQCN with firmware's parameters: P4.

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::congestion::dcqcn_plus::DcqcnPlus;
use vnic_engine::congestion::notification;

use super::*;
use crate::network::scenario::SwitchSettings;

/// DCQCN+, and its notification point.
fn plus() -> Control {
    Control {
        algorithm: Arc::new(DcqcnPlus::default()),
        point: Some(notification::Settings::dcqcn_plus()),
    }
}

/// A run of so many flows from eight hosts, all of which start in 100 ms.
fn run(name: &str, gbit: u64, flows: usize, control: Control, switch: SwitchSettings) -> Scenario {
    let incast = Incast {
        senders: 8,
        flows,
        gbit,
        starts: 100 * MS,
        duration: if gbit > 10 { 350 * MS } else { 500 * MS },
    };
    Scenario {
        switch,
        ..incast.scenario(format!("{name}, {gbit} Gb/s, N = {flows}"), control)
    }
}

fn with_plus(gbit: u64, flows: usize) -> Scenario {
    run("DCQCN+", gbit, flows, plus(), SwitchSettings::dcqcn_plus())
}

fn with_dcqcn(gbit: u64, flows: usize) -> Scenario {
    run("DCQCN", gbit, flows, paper(gbit), SwitchSettings::paper())
}

const P1_FLOWS: [usize; 6] = [80, 160, 320, 720, 1200, 2000];
const P1_FAST: [usize; 2] = [800, 2000];

pub(super) const P1: Trial = Trial {
    id: "P1",
    scenarios: || {
        let mut runs: Vec<Scenario> = P1_FLOWS.map(|n| with_plus(10, n)).into();
        runs.extend(P1_FLOWS[1..].iter().map(|n| with_dcqcn(10, *n)));
        runs.extend(P1_FAST.map(|n| with_plus(40, n)));
        runs
    },
    judge: |scenarios, outcomes| {
        let (plus, rest) = outcomes.split_at(P1_FLOWS.len());
        let (dcqcn, fast) = rest.split_at(P1_FLOWS.len() - 1);
        let mut checks = Vec::new();
        let mut hold = |gbit: u64, n: usize, scenario: &Scenario, outcome: &Outcome| {
            let mean = mean_queue(outcome);
            checks.push(check(
                format!("{gbit} Gb/s, N = {n}: mean queue"),
                "about 200 KB or less",
                "<= 200 KB",
                kb(mean),
                mean <= 200e3,
            ));
            let p99 = queue_percentile(outcome, 99.0);
            checks.push(check(
                format!("{gbit} Gb/s, N = {n}: queue p99"),
                "-",
                "<= 1.1 MB",
                kb(p99),
                p99 <= 1.1e6,
            ));
            let last = scenario.flows.iter().map(|f| f.start).max().unwrap_or(0);
            let after = outcome.totals.last_pause.saturating_sub(last) as f64 / 1e6;
            checks.push(check(
                format!("{gbit} Gb/s, N = {n}: last PAUSE after the last start"),
                "within about 100 ms",
                "<= 200 ms",
                format!("{after:.0} ms ({} PAUSE)", outcome.totals.pauses),
                after <= 200.0,
            ));
        };
        for (i, n) in P1_FLOWS.into_iter().enumerate() {
            hold(10, n, &scenarios[i], &plus[i]);
        }
        let offset = outcomes.len() - fast.len();
        for (i, n) in P1_FAST.into_iter().enumerate() {
            hold(40, n, &scenarios[offset + i], &fast[i]);
        }
        for (i, n) in P1_FLOWS[1..].iter().enumerate() {
            let (theirs, ours) = (mean_queue(&dcqcn[i]), mean_queue(&plus[i + 1]));
            let ratio = theirs / ours.max(1.0);
            checks.push(check(
                format!("10 Gb/s, N = {n}: mean queue of DCQCN to that of DCQCN+"),
                "4.9 MB to 200 KB: about 20",
                ">= 20",
                format!("{} to {}: {ratio:.0}", kb(theirs), kb(ours)),
                ratio >= 20.0,
            ));
        }
        checks
    },
};

const P2_FLOWS: [usize; 4] = [80, 320, 1200, 2000];

/// Hosts that receive in the large network, and senders to each of them.
const RECEIVERS: usize = 10;
const SENDERS: usize = 240;

/// 2440 hosts at 61 leaves, of which 2410 do something.
fn large() -> Scenario {
    let topology = Topology::leaf_spine(61, 20, 40, 40 * GBIT, 80 * GBIT, US);
    // Receivers at ten leaves; everybody else sends to one of them.
    let receivers: Vec<usize> = (0..RECEIVERS).map(|n| n * 6 * 40).collect();
    let others = (0..topology.hosts).filter(|h| !receivers.contains(h));
    let senders: Vec<usize> = others.take(RECEIVERS * SENDERS).collect();
    let mut flows = Vec::new();
    for (n, receiver) in receivers.iter().enumerate() {
        let of_this: Vec<usize> = senders.iter().skip(n).step_by(RECEIVERS).copied().collect();
        let starts = Starts::Within(0, 100 * MS);
        flows.extend(incast(&of_this, *receiver, SENDERS, None, starts, n as u64));
    }
    Scenario {
        duration: 200 * MS,
        control: plus(),
        switch: SwitchSettings::dcqcn_plus(),
        record: Record {
            from: 150 * MS,
            interval: MS,
            queues: receivers.iter().filter_map(|r| topology.queue_to(*r)).collect(),
            flows: Vec::new(),
        },
        flows,
        ..Scenario::new("DCQCN+, 2410 hosts, 10 receivers", topology)
    }
}

pub(super) const P2: Trial = Trial {
    id: "P2",
    scenarios: || {
        let mut runs: Vec<Scenario> = P2_FLOWS.map(|n| with_plus(10, n)).into();
        runs.push(large());
        runs
    },
    judge: |_, outcomes| {
        let mut checks = Vec::new();
        for (outcome, n) in outcomes.iter().zip(P2_FLOWS) {
            let used = utilization(outcome);
            checks.push(check(
                format!("10 Gb/s, N = {n}: utilization"),
                "95 % (at 2410 hosts); lost for less than 0.1 s",
                ">= 85 %",
                percent(used),
                used >= 0.85,
            ));
        }
        if let Some(clos) = outcomes.get(P2_FLOWS.len()) {
            let sum: f64 = clos.queues.iter().map(|q| q.utilization() * 40.0).sum();
            let most = clos.queues.iter().map(|q| q.mean).fold(0.0, f64::max);
            checks.push(check(
                "2410 hosts, 10 receivers: sum",
                "converges to 400 Gb/s; 95 % on average",
                ">= 380 Gb/s",
                format!("{sum:.0} Gb/s"),
                sum >= 380.0,
            ));
            checks.push(check(
                "2410 hosts, 10 receivers: longest mean queue",
                "below 200 KB",
                "<= 200 KB",
                kb(most),
                most <= 200e3,
            ));
        }
        checks
    },
};

/// Gbit/s, and how much less DCQCN+ may use.
const P3_RUNS: [(u64, &str, f64); 2] = [(10, "about 4 % less", 0.06), (40, "as much", 0.04)];

pub(super) const P3: Trial = Trial {
    id: "P3",
    scenarios: || {
        let mut runs = Vec::new();
        for (gbit, ..) in P3_RUNS {
            let incast = Incast {
                senders: 3,
                flows: 3,
                gbit,
                starts: 20 * MS,
                duration: 400 * MS,
            };
            runs.push(incast.scenario(format!("P3, DCQCN, {gbit} Gb/s"), paper(gbit)));
            runs.push(Scenario {
                switch: SwitchSettings::dcqcn_plus(),
                ..incast.scenario(format!("P3, DCQCN+, {gbit} Gb/s"), plus())
            });
        }
        runs
    },
    judge: |_, outcomes| {
        let pairs = outcomes.chunks(2).zip(P3_RUNS);
        pairs
            .map(|(pair, (gbit, published, most))| {
                let used: Vec<f64> = pair.iter().map(utilization).collect();
                let gap = used[0] - used[1];
                check(
                    format!("{gbit} Gb/s: utilization less than DCQCN's"),
                    published,
                    format!("<= {}", percent(most)),
                    format!("{} of {}: {}", percent(used[1]), percent(used[0]), percent(gap)),
                    gap <= most,
                )
            })
            .collect()
    },
};

const P4_FLOWS: [usize; 3] = [120, 240, 560];

pub(super) const P4: Trial = Trial {
    id: "P4",
    scenarios: || {
        let control = Control {
            // Each marked packet is notified: min_time_between_cnps is 0 on ConnectX-4.
            point: Some(notification::Settings {
                spacing: Duration::ZERO,
                ..notification::Settings::default()
            }),
            ..dcqcn(Parameters::MLX_FW)
        };
        let each = |n| run("P4, mlx-fw", 10, n, control.clone(), SwitchSettings::paper());
        P4_FLOWS.map(each).into()
    },
    judge: |_, outcomes| {
        let runs = outcomes.iter().zip(P4_FLOWS);
        runs.map(|(outcome, n)| {
            check(
                format!("mean queue, N = {n}"),
                "fails at 480 to 560 flows: 4 MB at most, 2000 us on average",
                "informative",
                format!(
                    "{}, {} PAUSE while measured",
                    kb(mean_queue(outcome)),
                    outcome.totals.pauses_measured
                ),
                true,
            )
        })
        .collect()
    },
};
