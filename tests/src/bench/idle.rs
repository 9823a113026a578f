//! What a NIC costs that has nothing to do: its guests run their drivers and are silent.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::report::{Outcome, Summary};
use super::{Lab, Run};
use crate::driver::{Guest, Options};

/// Sizes of the house.
const ADAPTERS: [usize; 2] = [2, 64];
/// Loops have long gone to sleep by then.
const SETTLE: Duration = Duration::from_millis(500);
/// The least time over which sleeping is judged: sleeping loops wake up once a second.
const WATCH_MIN: Duration = Duration::from_secs(2);
/// Rounds are long, and differ little.
const ROUNDS_MAX: usize = 3;

/// `eth-idle`.
pub fn run(lab: &Lab) -> Result<Run> {
    let rounds = lab.rounds.min(ROUNDS_MAX);
    let figures = ADAPTERS.iter().map(|&n| measure(lab, n, rounds));
    Ok(Run::Measured(figures.collect::<Result<_>>()?))
}

fn measure(lab: &Lab, adapters: usize, rounds: usize) -> Result<Outcome> {
    let dir = lab.part()?;
    let product = lab.product(dir.path(), adapters, true)?;
    let attach = |i| Guest::attach(product.socket(i), Options::default());
    let _guests = (0..adapters).map(attach).collect::<Result<Vec<_>>>()?;
    product.wait_up(adapters, Duration::from_secs(20))?;
    lab.sleep(SETTLE)?;
    let mut shares = Vec::with_capacity(rounds);
    for round in 0..rounds {
        let (start, before) = (Instant::now(), product.cpu_time());
        lab.sleep(lab.window.max(WATCH_MIN))?;
        let ran = Duration::from_nanos(product.cpu_time().since(before).ran);
        shares.push(ran.as_secs_f64() / start.elapsed().as_secs_f64() * 100.0);
        eprintln!(
            "eth-idle {adapters} adapters round {}/{rounds}: {:.4} % of a core",
            round + 1,
            shares[round]
        );
    }
    Ok(Outcome {
        name: format!("eth-idle-{adapters}"),
        unit: "% of a core",
        value: Summary::of(&shares).context("no rounds")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds,
        details: Vec::new(),
        notes: vec![format!(
            "{adapters} adapters, all with a running and silent driver"
        )],
    })
}
