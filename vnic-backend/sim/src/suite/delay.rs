//! TIMELY, HPCC and Swift: T1 and T2, H1 to H5, S1 to S4.

mod hpcc;
mod swift;
mod timely;
mod wheel;
pub(super) mod windowed;

use crate::network::scenario::Record;
use crate::network::{Outcome, Scenario};

use super::Trial;

/// Them.
pub(super) fn trials() -> Vec<Trial> {
    [timely::TRIALS, hpcc::TRIALS, swift::TRIALS].concat()
}

/// Statistics from a time on in ns; nothing is sampled.
fn from(from: u64) -> Record {
    Record {
        from,
        ..Record::default()
    }
}

/// Mean round trip of the packets that were measured, in us.
fn mean_rtt(outcome: &Outcome) -> f64 {
    let (count, sum) = outcome
        .flows
        .iter()
        .fold((0, 0), |(count, sum), f| (count + f.rtt_count, sum + f.rtt_sum));
    sum as f64 / 1e3 / count.max(1) as f64
}

/// Payload that all flows delivered while it was measured, in Gbit/s.
fn goodput(scenario: &Scenario, outcome: &Outcome) -> f64 {
    let flows = crate::network::measures::throughputs(scenario, outcome);
    flows.iter().sum::<f64>() / 1e9
}

/// Dropped packets of all that were sent.
fn loss(outcome: &Outcome) -> f64 {
    let totals = &outcome.totals;
    totals.drops as f64 / (totals.data_packets + totals.drops).max(1) as f64
}
