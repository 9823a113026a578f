//! Connections by the device's communication management: how fast they are made, how long one takes, and many at once.

mod end;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

use super::exchange::pin;
use super::product::Product;
use super::report::{Outcome, Summary, percentile};
use super::wire::Wires;
use super::{Lab, Run};
use end::{End, Many};

/// Rounds at most: each makes all connections anew.
const ROUNDS_MAX: usize = 5;
/// Connections of a round that are made one at a time.
const ALONE: usize = 1000;
/// MTU of devices and adapters.
const MTU: u16 = 1500;
/// What is under way arrives long before this, or never.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the two ends are.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Two adapters of one daemon.
    Neighbours,
    /// Two daemons, and a veth pair between them.
    Wire,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Place::Neighbours => "cm",
            Place::Wire => "cm-wire",
        }
    }
}

/// What the rounds of a place have found.
#[derive(Default)]
struct Found {
    /// Connections a second.
    rates: Vec<f64>,
    /// Median and 99th percentile of the time that one takes by itself, in µs.
    p50: Vec<f64>,
    p99: Vec<f64>,
    /// Seconds of the parts of a round: queue pairs, a WRITE each, the end.
    parts: [Vec<f64>; 3],
}

/// `cm`.
pub fn run(lab: &Lab) -> Result<Run> {
    let mut figures = Vec::new();
    let place = Place::Neighbours;
    let found = {
        let dir = lab.part()?;
        let product = lab.product(dir.path(), 2, true)?;
        measure(lab, place, [(&product, 0), (&product, 1)])?
    };
    figures.extend(outcomes(lab, place, &found)?);
    let place = Place::Wire;
    match Wires::new(MTU, 1)? {
        Err(why) => {
            eprintln!("cm: without two daemons: {why}");
        }
        Ok(wires) => {
            let dir = lab.part()?;
            let [left, right] = wires.products(lab, dir.path())?;
            let found = measure(lab, place, [(&left, 0), (&right, 0)])?;
            figures.extend(outcomes(lab, place, &found)?);
        }
    }
    Ok(Run::Measured(figures))
}

/// Measures in a thread of its own, which is pinned; what starts other threads stays where it is.
fn measure(lab: &Lab, place: Place, sides: [(&Product, usize); 2]) -> Result<Found> {
    std::thread::scope(|s| {
        let rounds = s.spawn(|| {
            if matches!(place, Place::Neighbours) {
                pin(lab.cpus[1])?;
            }
            all_rounds(lab, place, sides)
        });
        rounds
            .join()
            .map_err(|_| anyhow!("the drivers' thread panicked"))?
    })
}

fn all_rounds(lab: &Lab, place: Place, [active, passive]: [(&Product, usize); 2]) -> Result<Found> {
    let open =
        |(product, adapter): (&Product, usize)| End::open(&product.rdma_socket(adapter), lab.connections);
    let ends = [open(active)?, open(passive)?];
    let rounds = lab.rounds.min(ROUNDS_MAX);
    let mut found = Found::default();
    for round in 0..rounds {
        lab.sleep(Duration::ZERO)?;
        let before = resources(&ends)?;
        let mut alone = one_by_one(lab, &ends)?;
        alone.sort_by(f64::total_cmp);
        found.p50.push(percentile(&alone, 0.5));
        found.p99.push(percentile(&alone, 0.99));
        let [qps, connect, used, end] = at_once(lab, &ends)?;
        found.rates.push(lab.connections as f64 / connect);
        for (all, part) in found.parts.iter_mut().zip([qps, used, end]) {
            all.push(part);
        }
        nothing_left(&ends, &before)?;
        let last = |values: &[f64]| values.last().copied().unwrap_or_default();
        eprintln!(
            "{} round {}/{rounds}: {:.0} connections a second; one by itself {:.0} µs, p99 {:.0}",
            place.name(),
            round + 1,
            last(&found.rates),
            last(&found.p50),
            last(&found.p99),
        );
    }
    Ok(found)
}

/// Time from the call of who connects until both ends know that they are connected, in µs, of one connection after the other.
fn one_by_one(lab: &Lab, ends: &[End; 2]) -> Result<Vec<f64>> {
    let mut many = Many::new(ends, ALONE.min(lab.connections))?;
    let mut times = Vec::with_capacity(many.count());
    for _ in 0..many.count() {
        let begin = Instant::now();
        many.ask()?;
        while !many.all_asked_are_there() {
            many.events(PATIENCE)?;
        }
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    many.end(PATIENCE)?;
    Ok(times)
}

/// Makes all connections at once, uses each for a WRITE and ends them: seconds for the queue pairs, the connections, the WRITEs and the
/// end.
fn at_once(lab: &Lab, ends: &[End; 2]) -> Result<[f64; 4]> {
    let mut begin = Instant::now();
    let mut lap = || {
        std::mem::replace(&mut begin, Instant::now())
            .elapsed()
            .as_secs_f64()
    };
    let mut many = Many::new(ends, lab.connections)?;
    let qps = lap();
    many.connect_all(PATIENCE)?;
    let connect = lap();
    many.write_all(PATIENCE)?;
    let used = lap();
    many.end(PATIENCE)?;
    Ok([qps, connect, used, lap()])
}

fn resources(ends: &[End; 2]) -> Result<Vec<(String, u32)>> {
    let all = [ends[0].resources()?, ends[1].resources()?];
    Ok(all.concat())
}

/// Waits until the devices have what they had before: connections that are over stay for a while.
fn nothing_left(ends: &[End; 2], before: &[(String, u32)]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = resources(ends)?;
        if now == before {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "something is left: {before:?} before, {now:?} after"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn outcomes(lab: &Lab, place: Place, found: &Found) -> Result<Vec<Outcome>> {
    let (name, count) = (place.name(), lab.connections);
    let between = match place {
        Place::Neighbours => "between two adapters, one thread drives both",
        Place::Wire => "between two daemons over a veth pair, one thread drives both",
    };
    let median = |values: &[f64]| Summary::of(values).map_or(0.0, |s| s.median);
    let [qps, used, end] = &found.parts;
    let details = vec![
        ("queue_pairs_s", median(qps)),
        ("use_s", median(used)),
        ("end_s", median(end)),
    ];
    let outcome = |name: String, unit, values: &[f64], details, note| {
        anyhow::Ok(Outcome {
            name,
            unit,
            value: Summary::of(values).context("no rounds")?,
            peer: None,
            ratio: None,
            bare_exchange: None,
            rounds: values.len(),
            details,
            notes: vec![note],
        })
    };
    let many = format!(
        "{count} connections at once {between}; each used for a WRITE and ended, and nothing was left"
    );
    let alone = format!("from the call until both ends are connected, one after the other, {between}");
    Ok(vec![
        outcome(
            format!("{name}-rate"),
            "connections/s",
            &found.rates,
            details,
            many,
        )?,
        outcome(
            format!("{name}-time-p50"),
            "µs",
            &found.p50,
            Vec::new(),
            alone.clone(),
        )?,
        outcome(format!("{name}-time-p99"), "µs", &found.p99, Vec::new(), alone)?,
    ])
}
