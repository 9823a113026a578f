//! The testbed of the DCQCN paper, a Clos network of four ToR, four leaf and two spine switches: D7, D8, D10.

use super::*;
use crate::network::measures::percentile;
use crate::network::scenario::Flow;
use crate::network::traffic::{Poisson, Sizes};

/// Hosts of a ToR switch.
const HOSTS: usize = 5;

/// Ways through the network are drawn anew so often; figures are the middle of these.
const DRAWS: u64 = 5;

fn clos() -> Topology {
    Topology::clos3(HOSTS, 40 * GBIT, US)
}

/// Flows between hosts by name, each in a group of its own or with others.
fn flows(topology: &Topology, pairs: &[(&str, &str, u16)]) -> Vec<Flow> {
    let node = |name: &str| topology.node(name).unwrap_or_default();
    // Not at the same nanosecond: as people start programs.
    let pairs = pairs.iter().enumerate();
    pairs
        .map(|(n, (from, to, group))| Flow::new(node(from), node(to), n as u64 * 50 * US, None).group(*group))
        .collect()
}

fn run(name: String, seed: u64, control: Control, pairs: &[(&str, &str, u16)], duration: u64) -> Scenario {
    let topology = clos();
    let flows = flows(&topology, pairs);
    Scenario {
        seed,
        duration,
        control,
        record: Record {
            from: duration / 5,
            interval: duration / 400,
            queues: topology.queue_to(flows[0].to).into_iter().collect(),
            flows: (0..flows.len()).collect(),
        },
        flows,
        ..Scenario::new(name, topology)
    }
}

/// Without congestion control, and with it.
fn controls() -> [(&'static str, Control); 2] {
    [("no control", Control::none()), ("DCQCN", paper(40))]
}

/// Three far senders, one beside the receiver.
const UNFAIR: [(&str, &str, u16); 4] = [
    ("H11", "H41", 0),
    ("H21", "H41", 0),
    ("H31", "H41", 0),
    ("H42", "H41", 1),
];

pub(super) const D7: Trial = Trial {
    id: "D7",
    scenarios: || {
        let runs = controls().into_iter().flat_map(|(name, control)| {
            (1..=DRAWS).map(move |seed| {
                run(
                    format!("D7, {name}, draw {seed}"),
                    seed,
                    control.clone(),
                    &UNFAIR,
                    300 * MS,
                )
            })
        });
        runs.collect()
    },
    judge: |scenarios, outcomes| {
        let half = outcomes.len() / 2;
        let each = |range: std::ops::Range<usize>, f: &dyn Fn(&[f64], f64) -> f64| -> Vec<f64> {
            range
                .map(|i| {
                    let far = group_rates(&scenarios[i], &outcomes[i], 0);
                    let near = group_rates(&scenarios[i], &outcomes[i], 1);
                    f(&far, near.first().copied().unwrap_or(0.0))
                })
                .collect()
        };
        let near = median(&each(0..half, &|_, near| near));
        let advantage = median(&each(0..half, &|far, near| {
            near / (far.iter().sum::<f64>() / far.len() as f64)
        }));
        let spread = median(&each(half..outcomes.len(), &|far, near| {
            let most = far.iter().copied().fold(near, f64::max);
            most / far.iter().copied().fold(near, f64::min)
        }));
        let sum = median(&each(half..outcomes.len(), &|far, near| {
            (far.iter().sum::<f64>() + near) * WIRE / 1024.0
        }));
        vec![
            check(
                "no control: H4 to the mean of the others",
                "well above the fair share of 10 Gb/s; 13 to 20 by counting ports",
                ">= 1.3",
                format!("{advantage:.2} ({near:.1} Gb/s)"),
                advantage >= 1.3,
            ),
            check(
                "DCQCN: greatest to least",
                "equal shares",
                "<= 1.2",
                format!("{spread:.3}"),
                spread <= 1.2,
            ),
            check(
                "DCQCN: sum, on the wire",
                "about 40 Gb/s",
                ">= 38 Gb/s",
                format!("{sum:.1} Gb/s"),
                sum >= 38.0,
            ),
        ]
    },
};

/// Senders under T3 that are added.
const ADDED: usize = 3;

/// Draws of ways of D8, without control and with it. Without it the victim's rate is decided by which of the others share its way:
/// the middle of five draws is anything from 3 to 10 Gb/s.
const VICTIM_DRAWS: [u64; 2] = [25, DRAWS];

pub(super) const D8: Trial = Trial {
    id: "D8",
    scenarios: || {
        let incast = ["H11", "H12", "H13", "H14", "H31", "H32"];
        let mut runs = Vec::new();
        for ((name, control), draws) in controls().into_iter().zip(VICTIM_DRAWS) {
            let duration = if draws == DRAWS { 150 * MS } else { 60 * MS };
            for added in 0..ADDED {
                for seed in 1..=draws {
                    let mut pairs = vec![("H15", "H21", 1)];
                    pairs.extend(incast[..4 + added].iter().map(|h| (*h, "H41", 0)));
                    runs.push(run(
                        format!("D8, {name}, {added} under T3, draw {seed}"),
                        seed,
                        control.clone(),
                        &pairs,
                        duration,
                    ));
                }
            }
        }
        runs
    },
    judge: |scenarios, outcomes| {
        // By control and number of senders under T3.
        let mut runs = scenarios.iter().zip(outcomes);
        let draws = VICTIM_DRAWS.iter().flat_map(|draws| [*draws as usize; ADDED]);
        let victims: Vec<f64> = draws
            .map(|draws| {
                let these = runs.by_ref().take(draws);
                median(&these.flat_map(|(s, o)| group_rates(s, o, 1)).collect::<Vec<_>>())
            })
            .collect();
        let [a, b, c, d, e, f] = victims[..] else {
            return Vec::new();
        };
        let change = (d.max(e).max(f) - d.min(e).min(f)) / d;
        let least = d.min(e).min(f);
        vec![
            check(
                "no control: VS, 0 to 2 senders under T3",
                "10 to 4.5 Gb/s",
                "falls by >= 40 %",
                format!("{a:.1}, {b:.1}, {c:.1} Gb/s: by {}", percent(1.0 - c / a)),
                c <= 0.6 * a,
            ),
            check(
                "DCQCN: VS, 0 to 2 senders under T3",
                "about 20 Gb/s, whatever T3 does",
                "changes by <= 10 %",
                format!("{d:.1}, {e:.1}, {f:.1} Gb/s: by {}", percent(change)),
                change <= 0.1,
            ),
            check(
                "DCQCN: VS at least",
                "about 20 Gb/s",
                ">= 18 Gb/s",
                format!("{least:.1} Gb/s"),
                least >= 18.0,
            ),
        ]
    },
};

/// Part of the hosts' links that user flows want.
const USER_LOAD: f64 = 0.2;

pub(super) const D10: Trial = Trial {
    id: "D10",
    scenarios: || {
        let topology = clos();
        let hosts: Vec<usize> = (0..topology.hosts).collect();
        let duration = 200 * MS;
        let runs = controls().into_iter().map(|(name, control)| {
            let receiver = topology.hosts - 1;
            // Every second of the others, so from all ToR switches.
            let senders: Vec<usize> = (0..receiver - 1).step_by(2).chain([1]).collect();
            let mut flows = incast(&senders, receiver, 10, None, Starts::Within(0, MS), 1);
            let users = Poisson {
                hosts: &hosts,
                load: USER_LOAD,
                rate: 40 * GBIT,
                from: 0,
                until: duration,
            };
            flows.extend(
                users
                    .flows(&Sizes::web_search(), 1)
                    .into_iter()
                    .map(|flow| flow.group(1)),
            );
            Scenario {
                duration,
                control,
                record: Record {
                    from: duration / 5,
                    interval: duration / 400,
                    queues: topology.queue_to(receiver).into_iter().collect(),
                    flows: (0..10).collect(),
                },
                flows,
                ..Scenario::new(format!("D10, {name}"), topology.clone())
            }
        });
        runs.collect()
    },
    judge: |scenarios, outcomes| {
        let p10 = |i: usize| {
            let mut rates = group_rates(&scenarios[i], &outcomes[i], 0);
            rates.sort_unstable_by(f64::total_cmp);
            percentile(&rates, 10.0)
        };
        let users = |i: usize| -> f64 { group_rates(&scenarios[i], &outcomes[i], 1).iter().sum() };
        let pauses = |i: usize| outcomes[i].totals.pauses_measured;
        let ratio = pauses(0) as f64 / pauses(1).max(1) as f64;
        vec![
            check(
                "no control: p10 of incast flows",
                "1.12 Gb/s (fair: 4)",
                "<= 2 Gb/s",
                format!("{:.2} Gb/s", p10(0)),
                p10(0) <= 2.0,
            ),
            check(
                "DCQCN: p10 of incast flows",
                "3.43 Gb/s (fair: 4)",
                ">= 3 Gb/s",
                format!("{:.2} Gb/s", p10(1)),
                p10(1) >= 3.0,
            ),
            check(
                "PAUSE frames, no control to DCQCN",
                "6e6 to 3e3 at the spines: 2000",
                ">= 100",
                format!("{} to {}: {ratio:.0}", pauses(0), pauses(1)),
                ratio >= 100.0,
            ),
            check(
                "user traffic, no control and DCQCN",
                "16 times as many user flows with DCQCN",
                "more with DCQCN",
                format!("{:.1} and {:.1} Gb/s", users(0), users(1)),
                users(1) > users(0),
            ),
        ]
    },
};
