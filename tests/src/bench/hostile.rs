//! What is left of an honest pair beside each attack, and beside an honest neighbour that does all it can.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::exchange::pin;
use super::fairness::load::{Lane, Load, Pingers};
use super::fairness::{PATIENCE, times};
use super::machine::RealTime;
use super::product::{Product, Setup};
use super::report::{Outcome, Summary, percentile};
use super::testpmd::guest_mac;
use super::{Lab, Run, WARM_UP};
use crate::driver::attacks::{ATTACKS, Attack, Kind, Place};
use crate::driver::rig::Dice;

/// Adapters: of the pair whose latency is looked at, of the one whose rate is, of the neighbour, of the attacker.
const PINGERS: usize = 0;
const HONEST: usize = 2;
const NEIGHBOUR: usize = 4;
const ATTACKER: usize = 6;
const ADAPTERS: usize = 8;
/// Neighbours at full blast.
const NEIGHBOURS: [Load; 2] = [Load::Frames(60), Load::LargeWrites];
/// What honest pairs do, and its name.
const PAIRS: [(Load, &str); 2] = [(Load::Frames(60), "eth"), (Load::SmallWrites, "rdma")];

/// What an honest pair has: millions a second, and one way in µs.
#[derive(Debug, Clone, Copy, Default)]
struct Left {
    rate: f64,
    p50: f64,
    p99: f64,
    p99_9: f64,
}

/// Of a round: of both pairs.
type Round = [Left; 2];

/// `hostile`.
pub fn run(lab: &Lab) -> Result<Run> {
    let dir = lab.part()?;
    let product = Product::start(&Setup {
        mtu: 9000,
        ..lab.setup(dir.path(), ADAPTERS)
    })?;
    let mut bench = Hostile {
        lab,
        pingers: Pingers::open(&product, PINGERS, PINGERS + 1)?,
        honest: Lane::open(&product, HONEST, HONEST + 1)?,
        neighbour: Lane::open(&product, NEIGHBOUR, NEIGHBOUR + 1)?,
        place: place(&product)?,
    };
    product.wait_up(NEIGHBOUR + 2, PATIENCE)?;
    let figures = std::thread::scope(|s| {
        let all = || -> Result<Vec<Outcome>> {
            pin(lab.cpus[1])?;
            let _priority = lab
                .realtime
                .then(|| RealTime::raise(&[product.pid()]))
                .transpose()?;
            bench.rounds()
        };
        // (What attacks share never leaves that thread.)
        s.spawn(all).join()
    });
    let figures = figures.map_err(|_| anyhow!("the drivers' thread panicked"))?;
    Ok(Run::Measured(figures?))
}

fn place(product: &Product) -> Result<Place> {
    let both = [ATTACKER, ATTACKER + 1];
    Ok(Place {
        eth: both.map(|i| product.socket(i)),
        rdma: both.map(|i| product.rdma_socket(i)),
        macs: [guest_mac(ATTACKER).parse()?, guest_mac(ATTACKER + 1).parse()?],
    })
}

struct Hostile<'a> {
    lab: &'a Lab,
    pingers: Pingers,
    honest: Lane,
    neighbour: Lane,
    place: Place,
}

impl Hostile<'_> {
    fn rounds(&mut self) -> Result<Vec<Outcome>> {
        let only = self.lab.only.as_deref();
        let wanted = ATTACKS
            .iter()
            .filter(|k| !k.apart && only.is_none_or(|o| o == k.name));
        let wanted: Vec<&Kind> = wanted.collect();
        ensure!(
            !wanted.is_empty(),
            "there is no such attack, or it is of torture alone"
        );
        let (mut beside, mut peers, mut exchanges) =
            (BTreeMap::<_, Vec<Round>>::new(), Vec::new(), Vec::new());
        for round in 0..self.lab.rounds {
            self.lab.sleep(Duration::ZERO)?;
            exchanges.push(self.lab.exchange()?);
            // The neighbours come first, and in the next round last.
            if round % 2 == 0 {
                peers.push(self.beside_neighbours()?);
            }
            for kind in &wanted {
                self.lab.sleep(Duration::ZERO)?;
                let left = self.beside(kind).with_context(|| kind.name)?;
                eprintln!(
                    "hostile round {}/{} {}: frames {:.3} M/s, p99.9 {:.1} µs; WRITEs {:.3} M/s, p99.9 {:.1} µs",
                    round + 1,
                    self.lab.rounds,
                    kind.name,
                    left[0].rate,
                    left[0].p99_9,
                    left[1].rate,
                    left[1].p99_9
                );
                beside.entry(kind.name).or_default().push(left);
            }
            if round % 2 == 1 {
                peers.push(self.beside_neighbours()?);
            }
        }
        let exchange = Summary::of(&exchanges).map(|s| s.median);
        let mut outcomes = Vec::new();
        for kind in wanted {
            let rounds = &beside[kind.name];
            for (pair, (_, name)) in PAIRS.iter().enumerate() {
                outcomes.extend(figures(kind, name, pair, rounds, &peers, exchange)?);
            }
        }
        Ok(outcomes)
    }

    /// Beside an attack.
    fn beside(&mut self, kind: &Kind) -> Result<Round> {
        let mut attack: Attack = kind.open(&self.place, Dice::new(1))?;
        self.left(|_| attack())
    }

    /// The worse of what is left by each of the neighbours.
    fn beside_neighbours(&mut self) -> Result<Round> {
        let mut worst = None::<Round>;
        for load in NEIGHBOURS {
            self.neighbour.begin(load)?;
            let left = self.left(|neighbour| neighbour.pump(load))?;
            self.neighbour.end(load)?;
            eprintln!("hostile beside {}: {left:.3?}", load.name());
            let before = worst.unwrap_or(left);
            worst = Some([0, 1].map(|i| Left {
                rate: left[i].rate.min(before[i].rate),
                p50: left[i].p50.max(before[i].p50),
                p99: left[i].p99.max(before[i].p99),
                p99_9: left[i].p99_9.max(before[i].p99_9),
            }));
        }
        worst.context("no neighbours")
    }

    fn left(&mut self, mut beside: impl FnMut(&mut Lane) -> Result<()>) -> Result<Round> {
        let mut left = Round::default();
        for (i, (load, _)) in PAIRS.into_iter().enumerate() {
            let neighbour = &mut self.neighbour;
            let mut beside = || beside(neighbour);
            left[i].rate = rate(self.lab, &mut self.honest, load, &mut beside)?;
            let write = load == Load::SmallWrites;
            let times = times(self.lab, &mut self.pingers, write, &mut beside)?;
            [left[i].p50, left[i].p99, left[i].p99_9] =
                [0.5, 0.99, 0.999].map(|part| percentile(&times, part));
        }
        Ok(left)
    }
}

/// Millions a second of what the lane carries beside something else.
fn rate(lab: &Lab, lane: &mut Lane, load: Load, beside: &mut dyn FnMut() -> Result<()>) -> Result<f64> {
    lane.begin(load)?;
    let begin = Instant::now();
    let mut since = None;
    loop {
        lane.pump(load)?;
        beside()?;
        match since {
            None if begin.elapsed() > WARM_UP => since = Some((Instant::now(), lane.moved(load))),
            Some((start, before)) if start.elapsed() > lab.window => {
                let rate = (lane.moved(load) - before) as f64 / start.elapsed().as_secs_f64() / 1e6;
                // What is under way needs nobody's help to end.
                lane.end(load)?;
                return Ok(rate);
            }
            _ => {}
        }
    }
}

/// Rate and tail of a pair beside an attack.
fn figures(
    kind: &Kind,
    pair_name: &str,
    pair: usize,
    rounds: &[Round],
    peers: &[Round],
    bare_exchange: Option<f64>,
) -> Result<[Outcome; 2]> {
    let values = |of: fn(&Left) -> f64, rounds: &[Round]| -> Vec<f64> {
        rounds.iter().map(|r| of(&r[pair])).collect()
    };
    let median = |of: fn(&Left) -> f64, rounds| Summary::of(&values(of, rounds)).map_or(0.0, |s| s.median);
    let figure = |what: &str, unit, of: fn(&Left) -> f64, details| -> Result<Outcome> {
        let (ours, theirs) = (values(of, rounds), values(of, peers));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        Ok(Outcome {
            name: format!("hostile-{what}-{pair_name}-{}", kind.name),
            unit,
            value: Summary::of(&ours).context("no rounds")?,
            peer: Some((
                "beside an honest neighbour",
                Summary::of(&theirs).context("no rounds")?,
            )),
            ratio: Summary::of(&ratios),
            bare_exchange,
            rounds: rounds.len(),
            details,
            notes: vec![kind.what.into()],
        })
    };
    let tails = vec![
        ("p50", median(|l| l.p50, rounds)),
        ("p99", median(|l| l.p99, rounds)),
        ("neighbour_p50", median(|l| l.p50, peers)),
        ("neighbour_p99", median(|l| l.p99, peers)),
    ];
    Ok([
        figure("rate", "M/s", |l| l.rate, Vec::new())?,
        figure("tail", "µs one way, p99.9", |l| l.p99_9, tails)?,
    ])
}
