//! T1 and T2: TIMELY.

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::congestion::none;
use vnic_engine::congestion::timely::{Parameters, Timely};

use super::super::{Check, Trial, check, percent};
use super::from;
use super::wheel::Wheel;
use super::windowed::Windowed;
use crate::network::Outcome;
use crate::network::scenario::{Control, Scenario, SwitchSettings, Topology};
use crate::network::topology::{GBIT, MS, US};
use crate::network::traffic::{self, Starts};

pub const TRIALS: &[Trial] = &[Trial::new("T1", t1, judge_t1), Trial::new("T2", t2, judge_t2)];

const FLOWS: [usize; 4] = [800, 1200, 1600, 2000];

fn t1() -> Vec<Scenario> {
    let senders: Vec<usize> = (0..8).collect();
    let of = |flows: usize| Scenario {
        duration: 300 * MS,
        switch: SwitchSettings::dcqcn_plus(),
        control: Control::unnotified(Timely {
            parameters: Parameters {
                // As in all single-switch incasts of this list; the code's 100 Mbit/s times 100 flows fill the link.
                min_rate: 1_000_000,
                ..Parameters::NS3
            },
        }),
        flows: traffic::incast(&senders, 8, flows, None, Starts::Within(0, 100 * MS), 1),
        // What all flows began with is sent 0.1 s after the last start, as the paper has it of its own flows (figure 6).
        record: from(200 * MS),
        ..Scenario::new(format!("{flows} flows"), Topology::star(9, 10 * GBIT, US))
    };
    FLOWS.map(of).to_vec()
}

fn judge_t1(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let max: Vec<f64> = outcomes.iter().map(|o| o.queues[0].max as f64).collect();
    let pauses = outcomes[0].totals.pauses_measured;
    let used: Vec<String> = outcomes
        .iter()
        .map(|o| percent(o.queues[0].utilization()))
        .collect();
    let megabytes = |bytes: f64| format!("{:.2} MB", bytes / 1e6);
    vec![
        check(
            "longest queue, 800 flows",
            "bounded up to about 1200 flows",
            "at most 1 MB",
            format!("{} (utilization {})", megabytes(max[0]), used.join(", ")),
            max[0] <= 1e6,
        ),
        check(
            "longest queue, 2000 flows against 1200",
            "fails beyond 1200",
            "more than twice",
            format!("{} against {}", megabytes(max[3]), megabytes(max[1])),
            max[3] > 2.0 * max[1],
        ),
        check(
            "pause frames, 800 flows",
            "none",
            "0",
            pauses.to_string(),
            pauses == 0,
        ),
    ]
}

/// eRPC's code when the paper was written (erpc-io/eRPC at 1a6e1213, August 2018: `timely.h` and `timely_sweep_params.h`): not
/// patched, with the weights that its authors' sweep of parameters gave. Before May 2018 it was Patched TIMELY.
const ERPC: Parameters = Parameters {
    ewma: 0.46,
    beta: 0.26,
    min_rtt: Duration::from_micros(2),
    min_rate: 120_000_000,
    ..Parameters::ERPC
};

/// Credits of a session of eRPC, a packet each.
const CREDITS: u32 = 32;

const WAYS: [usize; 3] = [20, 50, 100];

fn t2() -> Vec<Scenario> {
    let with = Control::unnotified(Wheel {
        inner: Arc::new(Timely { parameters: ERPC }),
        credits: CREDITS,
    });
    let without = Control::unnotified(Windowed {
        inner: Arc::new(none::None),
        window: u64::from(CREDITS) * 1024,
    });
    let of = |name: &str, control: &Control, ways: usize| {
        let senders: Vec<usize> = (0..ways).collect();
        Scenario {
            duration: 60 * MS,
            switch: SwitchSettings::tail_drop(12_000_000),
            control: control.clone(),
            flows: traffic::incast(&senders, ways, ways, None, Starts::Within(0, 5 * MS), 1),
            record: from(20 * MS),
            ..Scenario::new(
                format!("{name}, {ways} flows"),
                Topology::star(ways + 1, 25 * GBIT, US),
            )
        }
    };
    let mut all: Vec<Scenario> = WAYS.map(|ways| of("credits", &without, ways)).to_vec();
    all.extend(WAYS.map(|ways| of("TIMELY", &with, ways)));
    all
}

fn judge_t2(_: &[Scenario], outcomes: &[Outcome]) -> Vec<Check> {
    let median = |i: usize| outcomes[i].queues[0].percentile(50.0) as f64 * 8.0 / 25e3;
    let used = |i: usize| outcomes[i].queues[0].utilization();
    let published = [
        ("39 us against 202 us", "21.8 of 25 Gbit/s"),
        ("34 us against 524 us", "18.4 of 25 Gbit/s"),
        ("349 us against 1056 us", "22.8 of 25 Gbit/s"),
    ];
    let mut checks = Vec::new();
    for (i, ways) in WAYS.into_iter().enumerate() {
        let with = WAYS.len() + i;
        let cut = median(i) / median(with).max(0.01);
        let least = match ways {
            50 => 5.0,
            100 => 2.5,
            _ => 0.0,
        };
        let accepted = match least > 0.0 {
            true => format!("{least} times less or better"),
            false => "informative".into(),
        };
        checks.push(check(
            format!("median time in the queue, {ways} flows, against credits alone"),
            published[i].0,
            &accepted,
            format!(
                "{:.0} us against {:.0} us: {cut:.1} times",
                median(with),
                median(i)
            ),
            cut >= least,
        ));
        checks.push(check(
            format!("utilization, {ways} flows"),
            published[i].1,
            if ways == 50 {
                "at least 70 %"
            } else {
                "informative"
            },
            percent(used(with)),
            ways != 50 || used(with) >= 0.7,
        ));
    }
    checks
}
