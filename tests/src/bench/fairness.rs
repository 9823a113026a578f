//! What one adapter loses when others do all they can.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::exchange::pin;
use super::machine::RealTime;
use super::product::Product;
use super::report::{Outcome, Summary, percentile};
use super::{Lab, Run, WARM_UP};
use load::{LONG, Lane, Load, Pingers};

pub(super) mod load;

/// A message is there long before this, or never.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// What is done beside the one that is looked at.
const LOADS: [Load; 4] = [
    Load::Frames(60),
    Load::Frames(LONG),
    Load::LargeWrites,
    Load::SmallWrites,
];
/// Who shares the NIC with whom.
const SHARES: [[Load; 2]; 5] = [
    [Load::Frames(60), Load::Frames(60)],
    [Load::Frames(60), Load::Frames(LONG)],
    [Load::Frames(60), Load::LargeWrites],
    [Load::SmallWrites, Load::LargeWrites],
    [Load::SmallWrites, Load::Frames(60)],
];
/// Senders into one receiver.
const SENDERS: usize = 4;
/// Adapters of the lanes, those that are looked at, the receiver.
const PINGERS: [usize; 2] = [2 * SENDERS, 2 * SENDERS + 1];
const ADAPTERS: usize = 2 * SENDERS + 2;

/// `fairness`.
pub fn run(lab: &Lab) -> Result<Run> {
    let dir = lab.part()?;
    let product = Product::start(&super::product::Setup {
        mtu: 9000,
        ..lab.setup(dir.path(), ADAPTERS)
    })?;
    let mut lanes = (0..SENDERS)
        .map(|i| Lane::open(&product, 2 * i, 2 * i + 1))
        .collect::<Result<Vec<_>>>()?;
    let mut pingers = Pingers::open(&product, PINGERS[0], PINGERS[1])?;
    product.wait_up(ADAPTERS, PATIENCE)?;
    // Made before: what the NIC starts stays where it is.
    let figures = std::thread::scope(|s| {
        s.spawn(|| {
            pin(lab.cpus[1])?;
            let _priority = lab
                .realtime
                .then(|| RealTime::raise(&[product.pid()]))
                .transpose()?;
            let mut figures = Vec::new();
            for write in [false, true] {
                for load in LOADS {
                    figures.push(ping(lab, &mut pingers, &mut lanes[0], write, load)?);
                }
            }
            for loads in SHARES {
                figures.push(share(lab, &mut lanes, loads)?);
            }
            for load in [Load::Frames(60), Load::LargeWrites] {
                figures.push(equal(lab, &mut lanes, load)?);
            }
            Ok(figures)
        })
        .join()
    });
    let figures: Result<Vec<Outcome>> =
        figures.map_err(|_| anyhow::anyhow!("the drivers' thread panicked"))?;
    Ok(Run::Measured(figures?))
}

/// Times of one way, in µs, sorted; `beside` is called all the time.
pub(super) fn times(
    lab: &Lab,
    pingers: &mut Pingers,
    write: bool,
    beside: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<f64>> {
    let begin = Instant::now();
    let mut times = Vec::with_capacity(1 << 20);
    while begin.elapsed() < WARM_UP + lab.window {
        let (start, mut looks) = (Instant::now(), 0u32);
        let mut beside = || {
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 16) && start.elapsed() > PATIENCE {
                bail!("something was lost");
            }
            beside()
        };
        if write {
            pingers.write(&mut beside)?;
        } else {
            pingers.frame(&mut beside)?;
        }
        if begin.elapsed() > WARM_UP {
            times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    }
    ensure!(!times.is_empty(), "nothing was answered");
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Round trips of one pair of adapters, alone and beside a load of another pair.
fn ping(lab: &Lab, pingers: &mut Pingers, lane: &mut Lane, write: bool, load: Load) -> Result<Outcome> {
    let name = format!(
        "fairness-{}-beside-{}",
        if write { "write-lat" } else { "eth-latency" },
        load.name()
    );
    let (mut beside, mut alone, mut exchanges) = (Vec::new(), Vec::new(), Vec::new());
    let mut tails: [Vec<f64>; 4] = Default::default();
    for round in 0..lab.rounds {
        lab.sleep(Duration::ZERO)?;
        exchanges.push(lab.exchange()?);
        let mut order = [Some(load), None];
        order.rotate_left(round % 2);
        for load in order {
            let times = match load {
                Some(load) => {
                    lane.begin(load)?;
                    let times = times(lab, pingers, write, &mut || lane.pump(load))?;
                    lane.end(load)?;
                    times
                }
                None => times(lab, pingers, write, &mut || Ok(()))?,
            };
            let (middle, at) = if load.is_some() {
                (&mut beside, 0)
            } else {
                (&mut alone, 2)
            };
            middle.push(percentile(&times, 0.5));
            tails[at].push(percentile(&times, 0.99));
            tails[at + 1].push(percentile(&times, 0.999));
        }
        eprintln!(
            "{name} round {}/{}: {:.2} µs (p99.9 {:.2}), alone {:.2} µs (p99.9 {:.2})",
            round + 1,
            lab.rounds,
            beside[round],
            tails[1][round],
            alone[round],
            tails[3][round]
        );
    }
    let names = ["p99", "p99_9", "alone_p99", "alone_p99_9"];
    let median = |v: &Vec<f64>| Summary::of(v).map_or(0.0, |s| s.median);
    let details = names.into_iter().zip(tails.iter().map(median)).collect();
    let note = "one way, p50; one thread drives all drivers, and keeps the load's rings full meanwhile";
    outcome(
        &name,
        "µs one way",
        &beside,
        ("alone", &alone),
        &exchanges,
        details,
        note,
    )
}

/// Pumps loads for a while and says what each has moved a second, in millions.
fn together(lab: &Lab, lanes: &mut [Lane], loads: &[Load]) -> Result<Vec<f64>> {
    for (lane, &load) in lanes.iter_mut().zip(loads) {
        lane.begin(load)?;
    }
    let moved = |lanes: &[Lane]| -> Vec<u64> {
        let each = lanes.iter().zip(loads);
        each.map(|(lane, &load)| lane.moved(load)).collect()
    };
    let begin = Instant::now();
    let mut since: Option<(Instant, Vec<u64>)> = None;
    loop {
        for (lane, &load) in lanes.iter_mut().zip(loads) {
            lane.pump(load)?;
        }
        match &since {
            None if begin.elapsed() > WARM_UP => since = Some((Instant::now(), moved(lanes))),
            Some((start, first)) if start.elapsed() > lab.window => {
                let time = start.elapsed().as_secs_f64();
                let rates = moved(lanes)
                    .iter()
                    .zip(first)
                    .map(|(now, before)| (now - before) as f64 / time / 1e6)
                    .collect();
                for (lane, &load) in lanes.iter_mut().zip(loads) {
                    lane.end(load)?;
                }
                return Ok(rates);
            }
            _ => {}
        }
    }
}

/// What is left of a load when there is another: half, where the NIC's time is shared evenly.
fn share(lab: &Lab, lanes: &mut [Lane], loads: [Load; 2]) -> Result<Outcome> {
    let name = format!("fairness-share-{}-beside-{}", loads[0].name(), loads[1].name());
    let (mut beside, mut alone, mut exchanges, mut other) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..lab.rounds {
        lab.sleep(Duration::ZERO)?;
        exchanges.push(lab.exchange()?);
        let both = together(lab, &mut lanes[..2], &loads)?;
        let one = together(lab, &mut lanes[..1], &loads[..1])?;
        let second = together(lab, &mut lanes[1..2], &loads[1..])?;
        beside.push(both[0]);
        alone.push(one[0]);
        other.push(both[1] / second[0]);
        eprintln!(
            "{name} round {}/{}: {:.3} M/s of {:.3}, the other keeps {:.2}",
            round + 1,
            lab.rounds,
            both[0],
            one[0],
            both[1] / second[0]
        );
    }
    let kept = Summary::of(&other).map_or(0.0, |s| s.median);
    let note = "the ratio is what is left of it, beside_keeps what is left of the load beside it";
    let details = vec![("beside_keeps", kept)];
    outcome(
        &name,
        "M/s",
        &beside,
        ("alone", &alone),
        &exchanges,
        details,
        note,
    )
}

/// How evenly equal loads of several adapters are served: Jain's index.
fn equal(lab: &Lab, lanes: &mut [Lane], load: Load) -> Result<Outcome> {
    let name = format!("fairness-jain-{SENDERS}-{}", load.name());
    let (mut indices, mut sums) = (Vec::new(), Vec::new());
    for round in 0..lab.rounds {
        lab.sleep(Duration::ZERO)?;
        let rates = together(lab, lanes, &[load; SENDERS])?;
        indices.push(jain(&rates));
        sums.push(rates.iter().sum());
        eprintln!("{name} round {}/{}: {rates:.3?} M/s", round + 1, lab.rounds);
    }
    Ok(Outcome {
        name,
        unit: "Jain's index",
        value: Summary::of(&indices).context("no rounds")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds: lab.rounds,
        details: vec![("all_m_per_s", Summary::of(&sums).context("no rounds")?.median)],
        notes: vec![format!("{SENDERS} adapters send the same, each to another one")],
    })
}

/// 1: all have the same; 1/n: one has all.
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|r| r * r).sum();
    if squares == 0.0 {
        return 0.0;
    }
    sum * sum / (rates.len() as f64 * squares)
}

fn outcome(
    name: &str,
    unit: &'static str,
    values: &[f64],
    (peer, peers): (&'static str, &[f64]),
    exchanges: &[f64],
    details: Vec<(&'static str, f64)>,
    note: &str,
) -> Result<Outcome> {
    let ratios: Vec<f64> = values.iter().zip(peers).map(|(a, b)| a / b).collect();
    Ok(Outcome {
        name: name.into(),
        unit,
        value: Summary::of(values).context("no rounds")?,
        peer: Some((peer, Summary::of(peers).context("no rounds")?)),
        ratio: Summary::of(&ratios),
        bare_exchange: Summary::of(exchanges).map(|s| s.median),
        rounds: values.len(),
        details,
        notes: vec![note.into()],
    })
}

#[cfg(test)]
mod tests {
    use super::jain;

    #[test]
    fn jains_index_is_one_for_equals_and_a_part_for_one_who_takes_all() {
        assert!((jain(&[3.0; 4]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[0.0; 3]), 0.0);
    }
}
