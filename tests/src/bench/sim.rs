//! How fast the network simulator is: data packets and packet-hops a second of one core, on two networks that others have
//! published figures of. The others are not run here: their figures are of another run on a machine of this class, each data
//! packet acknowledged (reference/congestion-control, section 6).

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use vnic_engine::congestion::dcqcn::{Dcqcn, Parameters};
use vnic_engine::congestion::{Algorithm, CongestionControl, Needs, Start};
use vnic_sim::network::scenario::{Control, Flow, Scenario, SwitchSettings, Topology};
use vnic_sim::network::traffic::{self, Starts};
use vnic_sim::network::{self};

use super::exchange::pin;
use super::report::{Outcome, Summary};
use super::{Lab, Run};

/// Rounds that say enough: a run is long.
const ROUNDS: usize = 5;

/// DCQCN, with an acknowledge for each packet, as the simulators have it that this is compared with.
#[derive(Debug)]
struct EachAcknowledged(Dcqcn);

impl CongestionControl for EachAcknowledged {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn needs(&self) -> Needs {
        Needs {
            from_start: true,
            ack_every: 1,
            ..self.0.needs()
        }
    }

    fn start(&self, now: vnic_wire::time::Instant, flow: &Start) -> Box<dyn Algorithm> {
        self.0.start(now, flow)
    }
}

fn control() -> Control {
    Control {
        algorithm: Arc::new(EachAcknowledged(Dcqcn {
            parameters: Parameters::PAPER,
        })),
        ..Control::notified(Dcqcn {
            parameters: Parameters::PAPER,
        })
    }
}

/// Eight senders and one receiver at one switch, 40 Gbit/s.
fn star() -> Scenario {
    Scenario {
        flows: (0..8).map(|from| Flow::new(from, 8, 0, None)).collect(),
        duration: 50_000_000,
        control: control(),
        ..Scenario::new("star", Topology::star(9, 40_000_000_000, 1000))
    }
}

/// HPCC's fat tree of 320 hosts; each sends 2 MB to another.
fn tree() -> Scenario {
    let topology = Topology::fat_tree();
    let hosts: Vec<usize> = (0..topology.hosts).collect();
    Scenario {
        flows: traffic::permutation(&hosts, Some(2_000_000), Starts::At(0), 1),
        duration: 100_000_000,
        switch: SwitchSettings::hpcc(),
        control: control(),
        ..Scenario::new("fat tree", topology)
    }
}

/// `sim`.
pub fn run(lab: &Lab) -> Result<Run> {
    let measured = std::thread::scope(|s| s.spawn(|| measure(lab)).join());
    Ok(Run::Measured(measured.map_err(|_| {
        anyhow::anyhow!("the simulator's thread panicked")
    })??))
}

fn measure(lab: &Lab) -> Result<Vec<Outcome>> {
    pin(lab.cpus[0])?;
    type Make = fn() -> Scenario;
    let rows: [(&str, Make, &str); 2] = [
        (
            "sim-star",
            star,
            "8:1, 40 Gbit/s, DCQCN (paper), an acknowledge for each packet; not run here, of the reference: ns-3 (HPCC's) 215 \
             thousand data packets a second, htsim (roce, no congestion control, 3 tiers) 208",
        ),
        (
            "sim-fat-tree",
            tree,
            "320 hosts, 100 and 400 Gbit/s, permutation of 2 MB, DCQCN (paper), an acknowledge for each packet; not run here, of \
             the reference: ns-3 (HPCC's) 30.7 thousand, htsim (432 hosts, no congestion control) 52",
        ),
    ];
    rows.into_iter()
        .map(|(name, scenario, note)| one(lab, name, &scenario(), note))
        .collect()
}

fn one(lab: &Lab, name: &str, scenario: &Scenario, note: &str) -> Result<Outcome> {
    let rounds = lab.rounds.min(ROUNDS);
    let (mut rates, mut hops, mut hash) = (Vec::new(), Vec::new(), None);
    let mut events = 0.0;
    for _ in 0..rounds {
        anyhow::ensure!(!lab.interrupted(), "interrupted");
        let begin = Instant::now();
        let outcome = network::run(scenario, &mut |_| {})?;
        let seconds = begin.elapsed().as_secs_f64();
        anyhow::ensure!(
            *hash.get_or_insert(outcome.hash) == outcome.hash,
            "{name}: two runs of one seed differ"
        );
        let totals = outcome.totals;
        rates.push(totals.data_packets as f64 / seconds / 1e3);
        hops.push(totals.packet_hops as f64 / seconds / 1e6);
        events = totals.events as f64 / totals.data_packets.max(1) as f64;
    }
    let hops = Summary::of(&hops).context("a round")?;
    Ok(Outcome {
        name: name.into(),
        unit: "thousand data packets/s",
        value: Summary::of(&rates).context("a round")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds,
        details: vec![("million_hops_per_s", hops.median), ("events_per_packet", events)],
        notes: vec![note.into()],
    })
}
