//! S1 to S4: Swift against the figures of its paper.

use std::time::Duration;

use vnic_engine::congestion::swift::{Parameters, Swift};

use super::super::{Check, Trial, check, percent};
use super::{from, goodput, loss, mean_rtt};
use crate::network::measures::{fairness, throughputs};
use crate::network::scenario::{Control, HostSettings, Scenario, SwitchSettings, Topology};
use crate::network::topology::{GBIT, MS, US};
use crate::network::traffic::{self, Starts};
use crate::network::{Outcome, scenario::Flow};

pub const TRIALS: &[Trial] = &[
    Trial::new("S1", s1, judge_s1),
    Trial::new("S2", s2, judge_s2),
    Trial::new("S3", s3, judge_s3),
    Trial::new("S4", s4, judge_s4),
];

const LINE: u64 = 50 * GBIT;

fn swift(parameters: Parameters) -> Control {
    Control::unnotified(Swift { parameters })
}

/// Targets are what is set, and nothing more.
fn plain(base: u64) -> Parameters {
    Parameters {
        base: Duration::from_nanos(base),
        hop_scaling: false,
        flow_scaling: false,
        split: false,
        ..Parameters::PAPER
    }
}

/// Hosts whose software takes this long for a packet: an idle round trip of about 16 us.
fn host() -> HostSettings {
    HostSettings {
        delay: 4 * US,
        ..HostSettings::default()
    }
}

/// So many flows of all hosts but one to that one, at a switch, which start in so many ms.
fn incast(hosts: usize, flows: usize, ms: u64, name: &str, parameters: Parameters) -> Scenario {
    let senders: Vec<usize> = (0..hosts).collect();
    let starts = Starts::Within(0, ms * MS);
    Scenario {
        flows: traffic::incast(&senders, hosts, flows, None, starts, 1),
        ..run(name, Topology::star(hosts + 1, LINE, US), parameters)
    }
}

/// 20 ms without flows yet.
fn run(name: &str, topology: Topology, parameters: Parameters) -> Scenario {
    Scenario {
        duration: 20 * MS,
        mtu: 4096,
        switch: SwitchSettings::tail_drop(12_000_000),
        host: host(),
        control: swift(parameters),
        record: from(8 * MS),
        ..Scenario::new(name, topology)
    }
}

const TARGETS: [u64; 7] = [15, 20, 25, 30, 40, 50, 70];

fn s1() -> Vec<Scenario> {
    let of = |target| incast(10, 100, 1, &format!("target {target} us"), plain(target * US));
    TARGETS.map(of).to_vec()
}

fn judge_s1(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (target, outcome) in TARGETS.into_iter().zip(outcomes) {
        let (rtt, used) = (mean_rtt(outcome), outcome.queues[0].utilization());
        let saturated = used >= 0.95;
        let off = rtt / target as f64 - 1.0;
        checks.push(check(
            format!("mean round trip, target {target} us"),
            "follows the target",
            if saturated {
                "within 15 %"
            } else {
                "informative: the link is not full"
            },
            format!("{rtt:.1} us ({:+.0} %)", off * 100.0),
            !saturated || off.abs() <= 0.15,
        ));
        checks.push(check(
            format!("utilization, target {target} us"),
            "full from about 25 us",
            if target >= 30 {
                "at least 95 %"
            } else {
                "informative"
            },
            percent(used),
            target < 30 || saturated,
        ));
    }
    checks
}

/// 5000 flows of 50 hosts. A flow has 300 packets in a second: shares come together in a fifth of one, and are measured for two.
fn five_thousand(name: &str, parameters: Parameters) -> Scenario {
    Scenario {
        duration: 600 * MS,
        record: from(200 * MS),
        ..incast(50, 5000, 20, name, parameters)
    }
}

fn s2() -> Vec<Scenario> {
    let p = |below_one| Parameters {
        initial_cwnd: 1.0,
        below_one,
        ..Parameters::PAPER
    };
    vec![
        five_thousand("below one packet", p(true)),
        // A flow of one packet that is lost has nothing but its timer, which follows the round trip in Swift: here 4.2 ms, twice the
        // round trip of a full buffer. It is looked at before queue pairs have used up their retries.
        Scenario {
            duration: 40 * MS,
            record: from(25 * MS),
            host: HostSettings {
                timeout: 10,
                ..host()
            },
            ..five_thousand("one packet at least", p(false))
        },
    ]
}

fn judge_s2(scenarios: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let [below, whole] = outcomes else {
        return Vec::new();
    };
    let rates = [goodput(&scenarios[0], below), goodput(&scenarios[1], whole)];
    let (lost, lost_whole) = (loss(below), loss(whole));
    let (rtt, rtt_whole) = (mean_rtt(below), mean_rtt(whole));
    vec![
        check(
            "goodput",
            "49.5 Gbit/s; 8.7 without windows below one",
            "at least 47 Gbit/s on the wire",
            format!(
                "{:.1} Gbit/s on the wire, {:.1} of payload; {:.1} without",
                below.queues[0].utilization() * 50.0,
                rates[0],
                rates[1]
            ),
            below.queues[0].utilization() * 50.0 >= 47.0,
        ),
        check(
            "loss",
            "0.0003 %",
            "at most 0.01 %",
            format!("{:.4} %", lost * 100.0),
            lost <= 1e-4,
        ),
        check(
            "mean round trip",
            "110 us; 2027 us without",
            "at most 200 us",
            format!("{rtt:.0} us; {rtt_whole:.0} us without"),
            rtt <= 200.0,
        ),
        check(
            "loss without windows below one",
            "28.7 %",
            "at least 10 %",
            percent(lost_whole),
            lost_whole >= 0.1,
        ),
    ]
}

/// Two hosts beside the receiver, and two behind a spine.
fn two_paths(name: &str, parameters: Parameters) -> Scenario {
    let topology = Topology::leaf_spine(2, 1, 3, LINE, 2 * LINE, US);
    let flows = [0, 1, 3, 4]
        .iter()
        .flat_map(|from| (0..5).map(|n| Flow::new(*from, 2, n * 10 * US, None).group(u16::from(*from > 2))))
        .collect();
    Scenario {
        flows,
        ..run(name, topology, parameters)
    }
}

/// What a switch and its cable add to a round trip of the two paths: 2 us there and back, and a packet once more on a link of 50
/// or 100 Gbit/s.
const HOP: Duration = Duration::from_nanos(2_000 + (668 + 334) / 2 - 167);

fn s3() -> Vec<Scenario> {
    let p = |flow_scaling, hop_scaling| Parameters {
        initial_cwnd: 1.0,
        hop: HOP,
        flow_scaling,
        hop_scaling,
        ..Parameters::PAPER
    };
    vec![
        five_thousand("flow-based scaling", p(true, true)),
        five_thousand("none", p(false, true)),
        two_paths("two paths, topology-based scaling", p(true, true)),
        two_paths("two paths, none", p(true, false)),
    ]
}

fn judge_s3(scenarios: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let fair = |i: usize| fairness(&scenarios[i], &outcomes[i]).unwrap_or(0.0);
    let shares = |i: usize| {
        let rates = throughputs(&scenarios[i], &outcomes[i]);
        let of = |group: u16| {
            let flows = scenarios[i]
                .flows
                .iter()
                .zip(&rates)
                .filter(|(f, _)| f.group == group);
            flows.map(|(_, r)| r / 1e9).sum::<f64>()
        };
        (of(0), of(1))
    };
    let text = |(near, far): (f64, f64)| format!("{near:.2} / {far:.2} Gbit/s: {:.2}", near / far);
    let (with, without) = (fair(0), fair(1));
    let (scaled, plain) = (shares(2), shares(3));
    vec![
        check(
            "Jain's index of 5000 flows",
            "0.91; 0.78 without",
            "at least 0.85, and 0.08 above that without",
            format!("{with:.3}; {without:.3} without"),
            with >= 0.85 && with >= without + 0.08,
        ),
        check(
            "near against far flows, topology-based scaling",
            "24.88 / 24.66 Gbit/s",
            "0.95 to 1.05",
            text(scaled),
            (0.95..=1.05).contains(&(scaled.0 / scaled.1)),
        ),
        check(
            "near against far flows without it",
            "28.89 / 20.63 Gbit/s",
            "at least 1.2",
            text(plain),
            plain.0 / plain.1 >= 1.2,
        ),
    ]
}

fn s4() -> Vec<Scenario> {
    let of = |name: &str, parameters: Parameters| Scenario {
        host: HostSettings {
            receive_rate: 2 * LINE,
            receive_stall: (300 * US, 60 * US),
            ..host()
        },
        ..incast(10, 100, 1, name, parameters)
    };
    let apart = Parameters {
        split: true,
        endpoint_target: Duration::from_micros(100),
        ..plain(50 * US)
    };
    vec![of("apart", apart), of("together", plain(50 * US))]
}

fn judge_s4(scenarios: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let rate = |i: usize| goodput(&scenarios[i], &outcomes[i]);
    let (apart, together) = (rate(0), rate(1));
    vec![check(
        "goodput, apart against together",
        "48.7 Gbit/s at 129 us against 41.6 Gbit/s at 118 us",
        "at least 10 % more",
        format!(
            "{apart:.1} Gbit/s at {:.0} us against {together:.1} Gbit/s at {:.0} us",
            mean_rtt(&outcomes[0]),
            mean_rtt(&outcomes[1])
        ),
        apart >= 1.1 * together,
    )]
}
