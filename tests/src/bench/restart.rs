//! How long guests are without a network when the daemon crashes and is started again.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::product::Product;
use super::report::{Outcome, Summary};
use super::testpmd::guest_mac;
use super::{Lab, Run};
use crate::driver::packets::{Number, numbered};
use crate::driver::{Guest, NetHdr, Options};

/// Frames that flow before the crash.
const BEFORE: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(20);

/// `restart`.
pub fn run(lab: &Lab) -> Result<Run> {
    if lab.vnicd.is_none() {
        return Ok(Run::Skipped(
            "it kills a daemon: none is beside this program, name one with --vnicd PATH".into(),
        ));
    }
    let mut gaps = Vec::with_capacity(lab.rounds);
    for round in 0..lab.rounds {
        let gap = gap(lab)?;
        eprintln!(
            "restart round {}/{}: {:.1} ms",
            round + 1,
            lab.rounds,
            gap.as_secs_f64() * 1e3
        );
        gaps.push(gap.as_secs_f64() * 1e3);
        lab.sleep(Duration::ZERO)?;
    }
    Ok(Run::Measured(vec![Outcome {
        name: "restart".into(),
        unit: "ms",
        value: Summary::of(&gaps).context("no rounds")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds: lab.rounds,
        details: Vec::new(),
        notes: vec!["kill -9, started again at once, guests reconnect; until the next frame arrives".into()],
    }]))
}

fn gap(lab: &Lab) -> Result<Duration> {
    let dir = lab.part()?;
    let mut product = lab.product(dir.path(), 2, true)?;
    let mut a = Guest::attach(product.socket(0), Options::default())?;
    let mut b = Guest::attach(product.socket(1), Options::default())?;
    product.wait_up(2, PATIENCE)?;
    let mut seq = 0;
    while seq < BEFORE {
        deliver(&mut a, &mut b, &mut seq, Instant::now() + PATIENCE)?;
    }
    let start = Instant::now();
    product.kill()?;
    let restarted: Product = lab.product(dir.path(), 2, true)?;
    for (i, guest) in [&mut a, &mut b].into_iter().enumerate() {
        guest.hang_up();
        guest.connect(restarted.socket(i))?;
    }
    deliver(&mut a, &mut b, &mut seq, start + PATIENCE)?;
    Ok(start.elapsed())
}

/// Sends until something arrives: right after an attach the other side may not be up yet.
fn deliver(a: &mut Guest, b: &mut Guest, seq: &mut u64, deadline: Instant) -> Result<()> {
    let (from, to) = (guest_mac(0).parse()?, guest_mac(1).parse()?);
    loop {
        let number = Number {
            sender: 0,
            stream: 0,
            seq: *seq,
        };
        *seq += 1;
        a.send_wait(0, &numbered(to, from, number, 60), NetHdr::default());
        if b.recv(0, Instant::now() + Duration::from_millis(2)).is_some() {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "no frame arrives");
    }
}
