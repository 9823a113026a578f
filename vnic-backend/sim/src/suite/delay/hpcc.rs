//! H1 to H5: HPCC against the figures of its paper.

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::congestion::CongestionControl;
use vnic_engine::congestion::dcqcn::{self, Dcqcn};
use vnic_engine::congestion::hpcc::{Hpcc, Parameters, Reaction};
use vnic_engine::congestion::notification::Settings;
use vnic_engine::congestion::timely::{self, Timely};

use super::super::{Check, Trial, check, kb, percent};
use super::from;
use super::windowed::Windowed;
use crate::network::measures::percentile;
use crate::network::scenario::{Control, Flow, HostSettings, Record, SwitchSettings, Topology};
use crate::network::topology::{GBIT, MS, Tree, US};
use crate::network::traffic::{self, Poisson, Sizes, Starts};
use crate::network::{Outcome, Scenario};

pub const TRIALS: &[Trial] = &[
    Trial::new("H1", h1, judge_h1),
    Trial::new("H2", h2, judge_h2),
    Trial::new("H3", h3, judge_h3),
    Trial::new("H4", h4, judge_h4),
    Trial::new("H5", h5, judge_h5),
];

/// Round trip of a full packet at the star of H1 and H2 when nothing waits: four cables, two data and two acknowledge
/// packets, 4.2 us; the paper says 4 us.
const STAR_RTT: Duration = Duration::from_nanos(4_200);

fn hpcc(parameters: Parameters) -> Control {
    Control::unnotified(Hpcc { parameters })
}

/// DCQCN with the defaults of firmware, the paper's "vendor default".
fn dcqcn() -> Dcqcn {
    Dcqcn {
        parameters: dcqcn::Parameters::MLX_FW,
    }
}

/// Marked packets are answered at most each 4 us, as that firmware does.
fn firmware(algorithm: impl CongestionControl + 'static) -> Control {
    Control {
        point: Some(Settings {
            spacing: Duration::from_micros(4),
            ..Settings::default()
        }),
        ..Control::unnotified(algorithm)
    }
}

/// 16 hosts send to one, all from the beginning.
fn sixteen_to_one(name: String, parameters: Parameters) -> Scenario {
    let senders: Vec<usize> = (0..16).collect();
    Scenario {
        duration: 3 * MS,
        switch: SwitchSettings::hpcc(),
        control: hpcc(parameters),
        flows: traffic::incast(&senders, 16, 16, None, Starts::At(0), 1),
        record: from(MS),
        ..Scenario::new(name, Topology::star(17, 100 * GBIT, US))
    }
}

const STEPS: [f64; 4] = [25.0, 80.0, 150.0, 300.0];

fn h1() -> Vec<Scenario> {
    let of = |w_ai: f64| {
        let parameters = Parameters {
            w_ai,
            base_rtt: STAR_RTT,
            ..Parameters::SIM
        };
        sixteen_to_one(format!("W_AI {w_ai} B"), parameters)
    };
    STEPS.map(of).to_vec()
}

fn judge_h1(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let mut checks = Vec::new();
    for (w_ai, outcome) in STEPS.iter().zip(outcomes) {
        let queue = &outcome.queues[0];
        let p95 = queue.percentile(95.0) as f64;
        let (published, accepted, pass) = match *w_ai > 150.0 {
            true => ("13 KB", "8 to 20 KB", (8e3..=20e3).contains(&p95)),
            false => ("at most 4 KB", "at most 5 KB", p95 <= 5e3),
        };
        let what = format!("95th percentile of the queue, W_AI {w_ai} B");
        checks.push(check(what, published, accepted, kb(p95), pass));
        let used = queue.utilization();
        let what = format!("utilization, W_AI {w_ai} B");
        // Where rates stay, W = W eta / U + W_AI of each flow: together they add their steps to eta (section 3.3).
        let window = 100e9 / 8.0 * STAR_RTT.as_secs_f64();
        let steady = (0.95 + 16.0 * w_ai / window).min(1.0);
        let (least, most) = (steady - 0.03, steady);
        checks.push(check(
            what,
            format!("eta and 16 steps of W_AI: {}", percent(steady)),
            format!("{} to {}", percent(least), percent(most)),
            percent(used),
            (least..=most).contains(&used),
        ));
    }
    checks
}

fn h2() -> Vec<Scenario> {
    let of = |reaction| {
        let parameters = Parameters {
            reaction,
            base_rtt: STAR_RTT,
            ..Parameters::SIM
        };
        Scenario {
            duration: 500 * US,
            record: Record {
                from: 0,
                interval: 2 * US,
                flows: (0..16).collect(),
                ..Record::default()
            },
            ..sixteen_to_one(format!("{reaction:?}"), parameters)
        }
    };
    [Reaction::Reference, Reaction::PerAck, Reaction::PerRtt]
        .map(of)
        .to_vec()
}

/// The last time that a queue was as long as its link's round trip, in us.
fn drained(outcome: &Outcome) -> f64 {
    let long = 100 * GBIT * STAR_RTT.as_nanos() as u64 / 8_000_000_000;
    let queue = &outcome.series.queues[0];
    let last = queue.iter().rposition(|q| *q >= long);
    last.map_or(0.0, |i| outcome.series.time[i] as f64 / 1e3)
}

/// Least throughput of all recorded flows over 10 us in a time in us, in Gbit/s.
fn least(outcome: &Outcome, (begin, end): (u64, u64)) -> f64 {
    let series = &outcome.series;
    let sum = |i: usize| series.delivered.iter().map(|f| f[i]).sum::<u64>() as f64 / 1e9;
    let within: Vec<f64> = (0..series.time.len())
        .filter(|i| (begin * US..=end * US).contains(&series.time[*i]))
        .map(sum)
        .collect();
    let windows = within.windows(5).map(|w| w.iter().sum::<f64>() / 5.0);
    windows.fold(f64::INFINITY, f64::min)
}

fn judge_h2(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let [reference, per_ack, per_rtt] = outcomes else {
        return Vec::new();
    };
    let low = least(per_ack, (10, 110));
    let ours = least(reference, (10, 110));
    // All begin with a window: what the link needs for sixteen of them waits whatever anybody does.
    let windows = 16.0 * STAR_RTT.as_nanos() as f64 / 1e3 - STAR_RTT.as_nanos() as f64 / 1e3;
    let beyond = |outcome: &Outcome| drained(outcome) - windows;
    let (fast, slow) = (beyond(reference), beyond(per_rtt));
    vec![
        check(
            "least throughput within 100 us, per ACK",
            "to almost 0 (figure 6)",
            "below 20 Gbit/s",
            format!("{low:.1} Gbit/s (HPCC {ours:.1})"),
            low < 20.0,
        ),
        check(
            "time until the queue is below a round trip's worth, beyond that of the first windows, per RTT against HPCC",
            "per RTT: keeps a long queue",
            "more than twice HPCC's",
            format!("{slow:.0} us against {fast:.0} us"),
            slow > 2.0 * fast,
        ),
    ]
}

/// When the others come, in ns.
const JOIN: u64 = MS;
/// Round trip of the testbed.
const TESTBED_RTT: u64 = 9 * US;

fn h3() -> Vec<Scenario> {
    // Cables and switch take 4 us, hosts the rest: T is 9 us in the paper's testbed.
    let testbed = |name: &str, control: Control, duration: u64, flows: Vec<Flow>| Scenario {
        duration,
        switch: SwitchSettings::hpcc(),
        host: HostSettings {
            delay: 1_500,
            ..HostSettings::default()
        },
        control,
        flows,
        record: Record {
            from: JOIN,
            interval: 3 * US,
            flows: vec![0],
            ..Record::default()
        },
        ..Scenario::new(name, Topology::star(9, 25 * GBIT, US))
    };
    let long = Flow::new(0, 8, 0, None);
    // The seven send 4 MB each: 9 ms of the link, more than is looked at.
    let mut incast = vec![long.clone()];
    incast.extend((1..8).map(|from| Flow::new(from, 8, JOIN, Some(4_000_000))));
    let short = vec![long, Flow::new(1, 8, JOIN, Some(1_000_000))];
    vec![
        testbed("incast, HPCC", hpcc(Parameters::TESTBED), 3 * MS, incast.clone()),
        testbed("incast, DCQCN", firmware(dcqcn()), 3 * MS, incast),
        testbed(
            "long and short, HPCC",
            hpcc(Parameters::TESTBED),
            5 * MS,
            short.clone(),
        ),
        testbed("long and short, DCQCN", firmware(dcqcn()), 5 * MS, short),
    ]
}

/// Gbit/s that the first flow delivers in a time in ns.
fn first_flow(outcome: &Outcome, begin: u64, end: u64) -> f64 {
    let series = &outcome.series;
    let within = |i: &usize| (begin..=end).contains(&series.time[*i]);
    let samples: Vec<f64> = (0..series.time.len())
        .filter(within)
        .map(|i| series.delivered[0][i] as f64 / 1e9)
        .collect();
    crate::network::measures::mean(&samples)
}

fn judge_h3(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let [hpcc_incast, dcqcn_incast, hpcc_short, dcqcn_short] = outcomes else {
        return Vec::new();
    };
    let after = |o: &Outcome, time: u64| {
        let series = o.series.time.iter().zip(&o.series.queues[0]);
        let later = series.filter(|(t, _)| **t >= JOIN + time).map(|(_, q)| *q);
        later.max().unwrap_or(0) as f64
    };
    // Seven windows come at once, which take seven round trips of the link whatever anybody does.
    let ours = after(hpcc_incast, (7 + 5) * TESTBED_RTT);
    let dcqcn = after(dcqcn_incast, 0);
    let mut checks = vec![
        check(
            "longest queue from 5 round trips after the incast's first windows on, HPCC",
            "drains after 1 round trip",
            "below 50 KB",
            kb(ours),
            ours < 50e3,
        ),
        check(
            "longest queue of the incast, DCQCN",
            "550 KB",
            "275 KB to 1.1 MB",
            kb(dcqcn),
            (275e3..=1.1e6).contains(&dcqcn),
        ),
    ];
    // Payload of a full link: 1024 of 1106 bytes (with preamble and gap).
    let line = 25.0 * 1024.0 / 1106.0;
    if let Some(end) = hpcc_short.flows[1].end {
        let from = end + 10 * TESTBED_RTT;
        let rate = first_flow(hpcc_short, from, from + 20 * TESTBED_RTT);
        checks.push(check(
            "long flow 10 round trips after the short one's end, HPCC",
            "back at once",
            "at least 90 % of 0.95 of the line",
            percent(rate / line),
            rate >= 0.9 * 0.95 * line,
        ));
    }
    if let Some(end) = dcqcn_short.flows[1].end {
        let rate = first_flow(dcqcn_short, end + 2 * MS - 100 * US, end + 2 * MS);
        checks.push(check(
            "long flow 2 ms after the short one's end, DCQCN",
            "not back at the line rate",
            "below 90 % of the line",
            percent(rate / line),
            rate < 0.9 * line,
        ));
    }
    checks
}

/// HPCC's static window: the line rate times T of its simulation.
const WINDOW: u64 = 100 * GBIT / 8 * 13 / 1_000_000;

fn h4() -> Vec<Scenario> {
    let hosts: Vec<usize> = (0..320).collect();
    let poisson = |load| Poisson {
        hosts: &hosts,
        load,
        rate: 100 * GBIT,
        from: 0,
        until: 500 * US,
    };
    let mut flows = poisson(0.3).flows(&Sizes::hadoop(), 4);
    flows.extend(poisson(0.02).incasts(60, 500_000, 4));
    let timely = Timely {
        parameters: timely::Parameters::NS3,
    };
    let windowed = |inner: Arc<dyn CongestionControl>| Windowed {
        inner,
        window: WINDOW,
    };
    let controls = [
        ("HPCC", hpcc(Parameters::SIM)),
        ("DCQCN", firmware(dcqcn())),
        ("DCQCN+win", firmware(windowed(Arc::new(dcqcn())))),
        ("TIMELY", Control::unnotified(timely.clone())),
        ("TIMELY+win", Control::unnotified(windowed(Arc::new(timely)))),
    ];
    controls
        .map(|(name, control)| Scenario {
            duration: 1500 * US,
            switch: SwitchSettings::hpcc(),
            control,
            flows: flows.clone(),
            record: from(0),
            ..Scenario::new(name, Topology::fat_tree())
        })
        .to_vec()
}

fn judge_h4(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let [hpcc, dcqcn, dcqcn_win, timely, timely_win] = outcomes else {
        return Vec::new();
    };
    let pauses = |o: &Outcome| o.totals.pauses;
    let few = |o: &Outcome, of: &Outcome| (pauses(o) as f64) < 0.05 * pauses(of) as f64;
    let row = |what: &str, published: &str, accepted: &str, o: &Outcome, pass: bool| {
        check(
            format!("pause frames, {what}"),
            published,
            accepted,
            pauses(o).to_string(),
            pass,
        )
    };
    vec![
        row("HPCC", "0", "0", hpcc, pauses(hpcc) == 0),
        row("DCQCN", "many", "more than 0", dcqcn, pauses(dcqcn) > 0),
        row(
            "DCQCN+win",
            "about 0",
            "below 5 % of DCQCN's",
            dcqcn_win,
            few(dcqcn_win, dcqcn),
        ),
        row("TIMELY", "many", "more than 0", timely, pauses(timely) > 0),
        row(
            "TIMELY+win",
            "about 0",
            "below 5 % of TIMELY's",
            timely_win,
            few(timely_win, timely),
        ),
    ]
}

fn h5() -> Vec<Scenario> {
    // A quarter of the paper's tree, with its proportions: 80 hosts, as many links up as they can fill.
    let tree = Tree {
        pods: 5,
        tors: 2,
        aggs: 2,
        cores: 8,
        hosts_per_tor: 8,
    };
    let hosts: Vec<usize> = (0..80).collect();
    let poisson = Poisson {
        hosts: &hosts,
        load: 0.5,
        rate: 100 * GBIT,
        from: 0,
        until: 4 * MS,
    };
    let flows = poisson.flows(&Sizes::hadoop(), 5);
    let controls = [("HPCC", hpcc(Parameters::SIM)), ("DCQCN", firmware(dcqcn()))];
    controls
        .map(|(name, control)| Scenario {
            duration: 8 * MS,
            switch: SwitchSettings::hpcc(),
            control,
            flows: flows.clone(),
            record: from(0),
            ..Scenario::new(name, Topology::three_tier(&tree, 100 * GBIT, 400 * GBIT, US))
        })
        .to_vec()
}

fn judge_h5(scenarios: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let [hpcc, dcqcn] = outcomes else {
        return Vec::new();
    };
    let flows = &scenarios[0].flows;
    let of = |o: &Outcome,
              sizes: std::ops::Range<u64>,
              what: fn(&crate::network::FlowOutcome) -> Option<f64>,
              at: f64| {
        let mut list: Vec<f64> = flows
            .iter()
            .zip(&o.flows)
            .filter(|(f, _)| f.bytes.is_some_and(|b| sizes.contains(&b)))
            .filter_map(|(_, o)| what(o))
            .collect();
        list.sort_unstable_by(f64::total_cmp);
        percentile(&list, at)
    };
    let short = |o: &Outcome| of(o, 0..7_000, |f| f.completion().map(|t| t as f64 / 1e3), 95.0);
    let long = |o: &Outcome| of(o, 1_000_000..u64::MAX, |f| f.slowdown(), 95.0);
    let (ours, theirs) = (short(hpcc), short(dcqcn));
    let ratio = long(hpcc) / long(dcqcn);
    vec![
        check(
            "95th percentile of completion, flows below 7 KB, HPCC",
            "19.8 us, of 12 us without queues",
            "at most 22 us",
            format!("{ours:.1} us (DCQCN {theirs:.1} us)"),
            ours <= 22.0,
        ),
        check(
            "95th percentile of the slowdown of flows from 1 MB, HPCC against DCQCN",
            "44.6 / 36.1 = 1.24",
            "1.15 to 1.35",
            format!("{:.2} / {:.2} = {ratio:.2}", long(hpcc), long(dcqcn)),
            (1.15..=1.35).contains(&ratio),
        ),
    ]
}
