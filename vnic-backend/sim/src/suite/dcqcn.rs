//! DCQCN and DCQCN+: D1 to D10, P1 to P4.

mod breakdown;
mod dctcp;
mod incast;
mod plus;
mod testbed;
mod thresholds;

use vnic_engine::congestion::dcqcn::{Dcqcn, Parameters};

use super::{Check, Trial, check, kb, percent};
use crate::network::measures::{fairness, throughputs};
use crate::network::scenario::Topology;
use crate::network::scenario::{Control, Record};
use crate::network::topology::{GBIT, MS, US};
use crate::network::traffic::{Starts, incast};
use crate::network::{Outcome, Scenario};

/// Them.
pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![incast::D1, incast::D2];
    trials.extend([breakdown::D3, breakdown::D4, breakdown::D5, thresholds::D6]);
    trials.extend([testbed::D7, testbed::D8, incast::D9, testbed::D10]);
    trials.extend([plus::P1, plus::P2, plus::P3, plus::P4]);
    trials
}

/// Bytes of a frame with a full packet: Ethernet, IPv4, UDP, BTH, 1024 bytes, ICRC, FCS.
const FRAME: f64 = (14 + 20 + 8 + 12 + 1024 + 4 + 4) as f64;

/// Bytes of it on the wire: preamble and gap.
const WIRE: f64 = FRAME + 20.0;

/// DCQCN with these parameters.
fn dcqcn(parameters: Parameters) -> Control {
    Control::notified(Dcqcn { parameters })
}

/// DCQCN as in the paper, with another step of additive increase in Mbit/s.
fn paper(ai_mbit: u64) -> Control {
    dcqcn(Parameters {
        ai_rate: ai_mbit * 1_000_000,
        ..Parameters::PAPER
    })
}

/// Many to one, at one switch.
#[derive(Debug, Clone, Copy)]
struct Incast {
    /// Hosts that send; one more receives.
    senders: usize,
    /// Flows without end, from the senders in turn.
    flows: usize,
    /// Gbit/s of all links.
    gbit: u64,
    /// Flows start at any time before, in ns.
    starts: u64,
    /// How long it is, in ns. The last 40 % are measured.
    duration: u64,
}

impl Incast {
    fn scenario(&self, name: String, control: Control) -> Scenario {
        let topology = Topology::star(self.senders + 1, self.gbit * GBIT, US);
        let senders: Vec<usize> = (0..self.senders).collect();
        let starts = Starts::Within(0, self.starts.max(1));
        // Enough lines for a picture that can be read.
        let shown = self.flows.min(8);
        Scenario {
            duration: self.duration,
            control,
            flows: incast(&senders, self.senders, self.flows, None, starts, 1),
            record: Record {
                from: self.duration / 10 * 6,
                interval: self.duration / 500,
                queues: topology.queue_to(self.senders).into_iter().collect(),
                flows: (0..shown).collect(),
            },
            ..Scenario::new(name, topology)
        }
    }
}

/// Mean of the recorded queue, in bytes.
fn mean_queue(outcome: &Outcome) -> f64 {
    outcome.queues.first().map_or(0.0, |q| q.mean)
}

/// So many percent of the time the recorded queue was not longer, in bytes.
fn queue_percentile(outcome: &Outcome, percent: f64) -> f64 {
    outcome
        .queues
        .first()
        .map_or(0.0, |q| q.percentile(percent) as f64)
}

/// Utilization of the recorded queue's link, 0..=1.
fn utilization(outcome: &Outcome) -> f64 {
    outcome.queues.first().map_or(0.0, |q| q.utilization())
}

/// Jain's index.
fn jain(scenario: &Scenario, outcome: &Outcome) -> f64 {
    fairness(scenario, outcome).unwrap_or(1.0)
}

/// Gbit/s of payload of all flows of a group.
fn group_rates(scenario: &Scenario, outcome: &Outcome, group: u16) -> Vec<f64> {
    let rates = throughputs(scenario, outcome);
    let of_group = scenario.flows.iter().zip(rates);
    let rates = of_group.filter(|(flow, _)| flow.group == group);
    rates.map(|(_, rate)| rate / 1e9).collect()
}

/// The middle one.
fn median(list: &[f64]) -> f64 {
    let mut list = list.to_vec();
    list.sort_unstable_by(f64::total_cmp);
    crate::network::measures::percentile(&list, 50.0)
}
