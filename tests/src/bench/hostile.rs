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

/// Adapters: of the pair whose latency is looked at, of the one whose rate is, of the neighbour, of the attacker. Connections that end
/// queue up at the sockets of an attacker of their own: who comes after them would wait for minutes.
const PINGERS: usize = 0;
const HONEST: usize = 2;
const NEIGHBOUR: usize = 4;
const ATTACKER: usize = 6;
const CROWD: usize = 8;
const ADAPTERS: usize = 10;
/// Minutes that it takes at most, if nothing else is said.
const MINUTES: u16 = 6;
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

/// Of both pairs.
type Both = [Left; 2];

/// Of a round.
#[derive(Debug, Default)]
struct Round {
    /// With nobody beside them.
    alone: Both,
    /// The worse of what is left by each of the neighbours.
    peer: Both,
    /// By attack.
    beside: BTreeMap<&'static str, Both>,
}

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
        places: [place(&product, ATTACKER)?, place(&product, CROWD)?],
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

fn place(product: &Product, first: usize) -> Result<Place> {
    let both = [first, first + 1];
    Ok(Place {
        eth: both.map(|i| product.socket(i)),
        rdma: both.map(|i| product.rdma_socket(i)),
        macs: [guest_mac(first).parse()?, guest_mac(first + 1).parse()?],
    })
}

struct Hostile<'a> {
    lab: &'a Lab,
    pingers: Pingers,
    honest: Lane,
    neighbour: Lane,
    /// Of attackers, and of those who only connect.
    places: [Place; 2],
}

impl Hostile<'_> {
    fn rounds(&mut self) -> Result<Vec<Outcome>> {
        let only = self.lab.only.as_deref();
        let wanted = ATTACKS
            .iter()
            .filter(|k| !k.apart && only.is_none_or(|o| o == k.name));
        let wanted: Vec<&'static Kind> = wanted.collect();
        ensure!(
            !wanted.is_empty(),
            "there is no such attack, or it is of torture alone"
        );
        let limit = Duration::from_secs(60 * u64::from(self.lab.minutes.unwrap_or(MINUTES)));
        let (begun, mut longest) = (Instant::now(), Duration::ZERO);
        let (mut rounds, mut exchanges) = (Vec::new(), Vec::new());
        // A round that would not end in time is not begun.
        while rounds.len() < self.lab.rounds && (rounds.is_empty() || begun.elapsed() + longest < limit) {
            self.lab.sleep(Duration::ZERO)?;
            let start = Instant::now();
            exchanges.push(self.lab.exchange()?);
            rounds.push(self.round(rounds.len(), &wanted)?);
            longest = longest.max(start.elapsed());
        }
        let exchange = Summary::of(&exchanges).map(|s| s.median);
        let mut outcomes = Vec::new();
        for kind in wanted {
            for (pair, (_, name)) in PAIRS.iter().enumerate() {
                outcomes.extend(figures(kind, name, pair, &rounds, exchange)?);
            }
        }
        Ok(outcomes)
    }

    fn round(&mut self, n: usize, wanted: &[&'static Kind]) -> Result<Round> {
        let tell = |beside: &str, [eth, rdma]: &Both| {
            eprintln!(
                "hostile round {} beside {beside}: frames {:.3} M/s, p99.9 {:.1} µs; WRITEs {:.3} M/s, p99.9 {:.1} µs",
                n + 1,
                eth.rate,
                eth.p99_9,
                rdma.rate,
                rdma.p99_9
            );
        };
        let mut round = Round::default();
        for at_the_end in [false, true] {
            if at_the_end {
                for kind in wanted {
                    let left = self.beside(kind).with_context(|| kind.name)?;
                    tell(kind.name, &left);
                    round.beside.insert(kind.name, left);
                }
            }
            // The neighbours come first, and in the next round last.
            if at_the_end == (n % 2 == 1) {
                round.alone = self.left(|_| Ok(()))?;
                tell("nobody", &round.alone);
                round.peer = self.beside_neighbours(tell)?;
            }
        }
        Ok(round)
    }

    /// Beside an attack.
    fn beside(&mut self, kind: &Kind) -> Result<Both> {
        let place = &self.places[usize::from(kind.name == "connects")];
        let mut attack: Attack = kind.open(place, Dice::new(1))?;
        self.left(|_| attack())
    }

    /// The worse of what is left by each of the neighbours.
    fn beside_neighbours(&mut self, tell: impl Fn(&str, &Both)) -> Result<Both> {
        let mut worst = None::<Both>;
        for load in NEIGHBOURS {
            self.neighbour.begin(load)?;
            let left = self.left(|neighbour| neighbour.pump(load))?;
            self.neighbour.end(load)?;
            tell(load.name(), &left);
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

    fn left(&mut self, mut beside: impl FnMut(&mut Lane) -> Result<()>) -> Result<Both> {
        let mut left = Both::default();
        for (i, (load, _)) in PAIRS.into_iter().enumerate() {
            let (lab, neighbour) = (self.lab, &mut self.neighbour);
            let mut beside = || {
                ensure!(!lab.interrupted(), "interrupted");
                beside(neighbour)
            };
            left[i].rate = rate(lab, &mut self.honest, load, &mut beside)?;
            let write = load == Load::SmallWrites;
            let times = times(lab, &mut self.pingers, write, &mut beside)?;
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
    bare_exchange: Option<f64>,
) -> Result<[Outcome; 2]> {
    let beside = |r: &Round| r.beside.get(kind.name).map_or(Left::default(), |b| b[pair]);
    let each = |of: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(of).collect() };
    let median = |of: &dyn Fn(&Round) -> f64| Summary::of(&each(of)).map_or(0.0, |s| s.median);
    let figure = |what: &str, unit, of: fn(&Left) -> f64, details| -> Result<Outcome> {
        let ratio = |r: &Round| of(&beside(r)) / of(&r.peer[pair]);
        Ok(Outcome {
            name: format!("hostile-{what}-{pair_name}-{}", kind.name),
            unit,
            value: Summary::of(&each(&|r| of(&beside(r)))).context("no rounds")?,
            peer: Some((
                "beside an honest neighbour",
                Summary::of(&each(&|r| of(&r.peer[pair]))).context("no rounds")?,
            )),
            ratio: Summary::of(&each(&ratio)),
            bare_exchange,
            rounds: rounds.len(),
            details,
            notes: vec![kind.what.into()],
        })
    };
    let tails = vec![
        ("p50", median(&|r| beside(r).p50)),
        ("p99", median(&|r| beside(r).p99)),
        ("neighbour_p50", median(&|r| r.peer[pair].p50)),
        ("neighbour_p99", median(&|r| r.peer[pair].p99)),
        ("alone_p50", median(&|r| r.alone[pair].p50)),
        ("alone_p99_9", median(&|r| r.alone[pair].p99_9)),
    ];
    let rates = vec![("alone", median(&|r| r.alone[pair].rate))];
    Ok([
        figure("rate", "M/s", |l| l.rate, rates)?,
        figure("tail", "µs one way, p99.9", |l| l.p99_9, tails)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_judged_beside_the_neighbour_of_its_round() {
        let left = |rate, p99_9| Left {
            rate,
            p99_9,
            ..Left::default()
        };
        let round = |eth: Left, peer: Left| Round {
            alone: [left(20.0, 1.0); 2],
            peer: [peer, left(9.0, 9.0)],
            beside: [("kicks", [eth, left(3.0, 3.0)])].into(),
        };
        // The machine was twice as slow in the second round.
        let rounds = [
            round(left(8.0, 10.0), left(4.0, 20.0)),
            round(left(4.0, 20.0), left(2.0, 40.0)),
        ];
        let kind = Kind::named("kicks").expect("an attack");
        let [rate, tail] = figures(kind, "eth", 0, &rounds, None).expect("figures");
        assert_eq!(rate.name, "hostile-rate-eth-kicks");
        assert_eq!(
            (rate.ratio.map(|r| (r.min, r.max)), rate.value.median),
            (Some((2.0, 2.0)), 6.0)
        );
        assert_eq!(tail.ratio.map(|r| r.median), Some(0.5));
        assert_eq!(rate.details, [("alone", 20.0)]);
        let [_, tail] = figures(kind, "rdma", 1, &rounds, None).expect("figures");
        assert_eq!(tail.ratio.map(|r| r.median), Some(3.0 / 9.0));
    }
}
