//! What people read off an outcome: fairness, slowdown by size, percentiles.

use serde::Serialize;

use super::outcome::{FlowOutcome, Outcome, QueueOutcome};
use super::scenario::Scenario;

/// How evenly something is shared: 1 if all have the same, 1/n if one has all (Jain, Chiu, Hawe 1984). Of nobody: 1.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The value that `percent` of `sorted` do not exceed (nearest rank); 0 of nothing.
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.clamp(1, sorted.len().max(1)) - 1)
        .copied()
        .unwrap_or(0.0)
}

impl FlowOutcome {
    /// Time from its begin to its last acknowledge, in ns; `None`: it did not end.
    pub fn completion(&self) -> Option<u64> {
        self.end.map(|end| end - self.start)
    }

    /// How many times as long as alone it took.
    pub fn slowdown(&self) -> Option<f64> {
        let time = self.completion()?;
        (self.ideal > 0).then(|| time as f64 / self.ideal as f64)
    }
}

impl QueueOutcome {
    /// Bytes that were not exceeded for so many percent of the time.
    pub fn percentile(&self, percent: f64) -> u64 {
        let place = (percent * 10.0).round() as usize;
        let last = self.permille.len().saturating_sub(1);
        self.permille.get(place.min(last)).copied().unwrap_or(0)
    }
}

/// bit/s of payload of each flow in the time that was measured.
pub fn throughputs(scenario: &Scenario, outcome: &Outcome) -> Vec<f64> {
    let time = outcome.end.saturating_sub(scenario.record.from).max(1) as f64;
    let rate = |f: &FlowOutcome| f.measured as f64 * 8e9 / time;
    outcome.flows.iter().map(rate).collect()
}

/// Fairness of the flows that ran all the time that was measured: those without end that began before and were not stopped.
/// `None`: there are not two.
pub fn fairness(scenario: &Scenario, outcome: &Outcome) -> Option<f64> {
    let rates = throughputs(scenario, outcome);
    let runs_on = |n: &usize| {
        let flow = &scenario.flows[*n];
        let stays = flow.stop.is_none_or(|stop| stop >= outcome.end);
        flow.bytes.is_none() && stays && flow.start <= scenario.record.from.max(1)
    };
    let shares: Vec<f64> = (0..rates.len().min(scenario.flows.len()))
        .filter(runs_on)
        .map(|n| rates[n])
        .collect();
    (shares.len() > 1).then(|| jain(&shares))
}

/// Flows of like size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bin {
    /// Bytes of the largest that belongs here; `None`: any.
    pub up_to: Option<u64>,
    /// How many there were.
    pub flows: usize,
    /// How many of them ended.
    pub finished: usize,
    /// Completion on average, in ns.
    pub mean: f64,
    /// Completion of 99 % of them, in ns.
    pub p99: f64,
    /// Slowdown: on average, and what 50, 95 and 99 % do not exceed.
    pub slowdown: Slowdown,
}

/// How many times as long as alone flows took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slowdown {
    /// On average.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
}

/// Upper ends of the bins, in bytes.
pub const BINS: [u64; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Finite flows by size; bins with nothing in them are left out. The last row is of all.
pub fn bins(scenario: &Scenario, outcome: &Outcome) -> Vec<Bin> {
    let flows: Vec<(u64, FlowOutcome)> = scenario
        .flows
        .iter()
        .zip(&outcome.flows)
        .filter_map(|(flow, outcome)| Some((flow.bytes?, *outcome)))
        .collect();
    let mut rows = Vec::new();
    let mut low = 0;
    for up_to in BINS.map(Some).into_iter().chain([None]) {
        let high = up_to.unwrap_or(u64::MAX);
        let inside = |(bytes, _): &&(u64, FlowOutcome)| *bytes > low && *bytes <= high;
        let list: Vec<FlowOutcome> = flows.iter().filter(inside).map(|(_, f)| *f).collect();
        if !list.is_empty() {
            rows.push(bin(up_to, &list));
        }
        low = high;
    }
    if !flows.is_empty() {
        let all: Vec<FlowOutcome> = flows.iter().map(|(_, f)| *f).collect();
        rows.push(bin(None, &all));
    }
    rows
}

fn bin(up_to: Option<u64>, flows: &[FlowOutcome]) -> Bin {
    let mut times: Vec<f64> = flows
        .iter()
        .filter_map(FlowOutcome::completion)
        .map(|t| t as f64)
        .collect();
    times.sort_unstable_by(f64::total_cmp);
    let slowdowns = slowdowns(flows);
    Bin {
        up_to,
        flows: flows.len(),
        finished: times.len(),
        mean: mean(&times),
        p99: percentile(&times, 99.0),
        slowdown: Slowdown {
            mean: mean(&slowdowns),
            p50: percentile(&slowdowns, 50.0),
            p95: percentile(&slowdowns, 95.0),
            p99: percentile(&slowdowns, 99.0),
        },
    }
}

/// Slowdowns of the flows that ended, from the least to the greatest.
pub fn slowdowns(flows: &[FlowOutcome]) -> Vec<f64> {
    let mut list: Vec<f64> = flows.iter().filter_map(FlowOutcome::slowdown).collect();
    list.sort_unstable_by(f64::total_cmp);
    list
}

/// On average; 0 of nothing.
pub fn mean(list: &[f64]) -> f64 {
    if list.is_empty() {
        return 0.0;
    }
    list.iter().sum::<f64>() / list.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::scenario::{Flow, Topology};
    use crate::network::topology::{GBIT, US};

    #[test]
    fn fairness_is_jains() {
        assert_eq!(jain(&[1.0, 1.0, 1.0, 1.0]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 1.0);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        assert!((jain(&[3.0, 1.0]) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let list = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(percentile(&list, 50.0), 2.0);
        assert_eq!(percentile(&list, 51.0), 3.0);
        assert_eq!(percentile(&list, 100.0), 4.0);
        assert_eq!(percentile(&list, 0.0), 1.0);
        assert_eq!(percentile(&[], 50.0), 0.0);
    }

    #[test]
    fn only_flows_that_run_all_the_time_count_for_fairness() {
        let mut scenario = Scenario::new("x", Topology::star(4, GBIT, US));
        scenario.record.from = 100;
        scenario.flows = vec![
            Flow::new(0, 3, 0, None),
            Flow::new(1, 3, 100, None),
            Flow::new(2, 3, 200, None),
            Flow::new(2, 3, 0, Some(5)),
        ];
        let measured = [3, 1, 9, 9].map(|measured| FlowOutcome {
            measured,
            ..FlowOutcome::default()
        });
        let outcome = Outcome {
            flows: measured.to_vec(),
            end: 1_000,
            ..Outcome::default()
        };
        let fair = fairness(&scenario, &outcome).expect("there are two");
        assert!((fair - 0.8).abs() < 1e-12);
    }

    #[test]
    fn flows_are_in_the_bin_of_their_size() {
        let mut scenario = Scenario::new("x", Topology::star(4, GBIT, US));
        let sizes = [1, 1_000, 1_001, 20_000_000];
        scenario.flows = sizes.map(|b| Flow::new(0, 1, 0, Some(b))).to_vec();
        let ends = [Some(20), Some(40), None, Some(1_000)];
        let outcome = Outcome {
            flows: ends
                .map(|end| FlowOutcome {
                    end,
                    ideal: 10,
                    ..FlowOutcome::default()
                })
                .to_vec(),
            ..Outcome::default()
        };
        let rows = bins(&scenario, &outcome);
        let seen: Vec<_> = rows.iter().map(|b| (b.up_to, b.flows, b.finished)).collect();
        assert_eq!(
            seen,
            [
                (Some(1_000), 2, 2),
                (Some(10_000), 1, 0),
                (None, 1, 1),
                (None, 4, 3)
            ]
        );
        assert_eq!(rows[0].slowdown.mean, 3.0);
        assert_eq!(rows[3].slowdown.p99, 100.0);
    }
}
