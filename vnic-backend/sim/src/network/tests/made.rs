//! An outcome that nobody simulated, for tests of what is shown of outcomes.

use super::outcome::{FlowOutcome, Outcome, QueueOutcome, Series, Totals};
use super::scenario::{Flow, Scenario, Topology};
use super::topology::{GBIT, US};
use super::traffic::{Starts, incast};

/// Half of `flows` without end, as many with one, of rates that come together and a queue that settles.
pub(crate) fn made_up(flows: usize) -> (Scenario, Outcome) {
    let mut scenario = Scenario::new("made up", Topology::star(flows + 1, 40 * GBIT, US));
    let senders: Vec<usize> = (0..flows).collect();
    scenario.flows = incast(&senders, flows, flows, None, Starts::At(0), 1);
    let finite = |n: usize| Flow::new(n, flows, 1_000, Some(10_u64.pow(2 + n as u32 % 6)));
    scenario.flows.extend((0..flows).map(finite));
    scenario.record.from = 2_000_000;
    scenario.record.interval = 10_000;
    scenario.record.flows = (0..flows).collect();
    scenario.record.queues = scenario.topology.queue_to(flows).into_iter().collect();
    let fair = 40 * GBIT / flows as u64;
    let samples = 1_000_u64;
    let settle = |n: u64, seed: u64| {
        let swing = ((n * (3 + seed)) as f64 / 17.0).sin() * 0.5f64.powf(n as f64 / 150.0);
        (fair as f64 * (1.0 + 0.9 * swing)) as u64
    };
    let rates: Vec<Vec<u64>> = (0..flows as u64)
        .map(|f| (0..samples).map(|n| settle(n, f)).collect())
        .collect();
    let queue: Vec<u64> = (0..samples)
        .map(|n| 40_000 + 400_000 / (1 + n / 10) + n * 7919 % 9_001)
        .collect();
    let mut sorted = queue.clone();
    sorted.sort_unstable();
    let series = Series {
        time: (0..samples).map(|n| n * 10_000).collect(),
        queues: vec![queue.clone()],
        delivered: rates.clone(),
        rates,
        pauses: (0..samples).map(|n| u64::from(n < 50)).collect(),
        cnps: (0..samples).map(|n| n % 3).collect(),
        marks: (0..samples).map(|n| n % 7).collect(),
        drops: vec![0; samples as usize],
    };
    let flow = |(n, flow): (usize, &Flow)| FlowOutcome {
        start: flow.start,
        end: flow.bytes.map(|b| flow.start + 5_000 + b * (2 + n as u64)),
        delivered: 1_000_000,
        measured: 900_000,
        ideal: 4_000 + flow.bytes.unwrap_or(0),
        rtt_count: 10,
        rtt_sum: 10 * (8_000 + n as u64),
        rtt_max: 20_000,
        retransmitted: 0,
        notifications: 3,
    };
    let outcome = Outcome {
        flows: scenario.flows.iter().enumerate().map(flow).collect(),
        queues: vec![QueueOutcome {
            mean: queue.iter().sum::<u64>() as f64 / samples as f64,
            max: sorted[sorted.len() - 1],
            permille: (0..=1000)
                .map(|n| sorted[(n * (sorted.len() - 1)) / 1000])
                .collect(),
            sent: 39_000_000,
            time: 8_000_000,
            rate: 40 * GBIT,
        }],
        series,
        totals: Totals {
            data_packets: 40_000,
            packet_hops: 160_000,
            events: 200_000,
            pauses: 50,
            last_pause: 490_000,
            pauses_measured: 0,
            cnps: 999,
            marks: 2_997,
            drops: 0,
            first_mark: Some(0),
            first_pause: Some(0),
        },
        end: 10_000_000,
        hash: 0x0123_4567_89ab_cdef,
    };
    (scenario, outcome)
}
