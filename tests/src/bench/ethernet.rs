//! Frames of 64 bytes through the NIC and through testpmd's vhost driver, from the same DPDK guest.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::hugepages::HugePages;
use super::machine::CpuTime;
use super::product::Product;
use super::report::{Outcome, Summary};
use super::testpmd::{self, MEMORY_BYTES, Testpmd};
use super::{Lab, Run};

/// Guests are up well before this.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bursts of 32 frames that each guest port of `eth-loop` puts into circulation: what a ring of 256 holds.
const LOOP_BURSTS: usize = 8;
/// Below this share of its CPU a polling thread was disturbed.
const SHARE_MIN: f64 = 0.9;

/// One measurement.
struct Measured {
    mpps: f64,
    receiver: f64,
    sender: f64,
}

/// What differs between the two benches.
struct Kind {
    name: &'static str,
    ports: usize,
    peer: &'static str,
    peer_mode: &'static str,
}

const DRAIN: Kind = Kind { name: "eth-drain", ports: 1, peer: "testpmd vhost rxonly", peer_mode: "rxonly" };
const LOOP: Kind = Kind { name: "eth-loop", ports: 2, peer: "testpmd vhost io", peer_mode: "io" };

/// `eth-drain`.
pub fn drain(lab: &Lab) -> Result<Run> {
    compare(lab, &DRAIN)
}

/// `eth-loop`.
pub fn turn(lab: &Lab) -> Result<Run> {
    compare(lab, &LOOP)
}

fn compare(lab: &Lab, kind: &Kind) -> Result<Run> {
    if !Testpmd::present(&lab.testpmd) {
        let program = lab.testpmd.display();
        return Ok(Run::Skipped(format!("{program} cannot be run (Debian: package dpdk-dev)")));
    }
    let _pages = HugePages::reserve(2 * MEMORY_BYTES)?;
    let (mut ours, mut theirs, mut ratios, mut exchanges) = (vec![], vec![], vec![], vec![]);
    let (mut receivers, mut senders) = (vec![], vec![]);
    for round in 0..lab.rounds {
        exchanges.push(lab.exchange()?);
        // Whoever goes first in one round goes second in the next.
        let (a, b) = if round % 2 == 0 {
            let a = product(lab, kind)?;
            (a, peer(lab, kind)?)
        } else {
            let b = peer(lab, kind)?;
            (product(lab, kind)?, b)
        };
        eprintln!(
            "{} round {}/{}: vnic {:.2} Mpps, {} {:.2} Mpps, ratio {:.2}, bare exchange {:.1} M/s",
            kind.name,
            round + 1,
            lab.rounds,
            a.mpps,
            kind.peer,
            b.mpps,
            a.mpps / b.mpps,
            exchanges[round] / 1e6
        );
        ratios.push(a.mpps / b.mpps);
        receivers.push(a.receiver.min(b.receiver));
        senders.push(a.sender.min(b.sender));
        ours.push(a.mpps);
        theirs.push(b.mpps);
    }
    let of = |v: &[f64]| Summary::of(v).ok_or_else(|| anyhow::anyhow!("no rounds"));
    let mut notes = Vec::new();
    for (who, shares) in [("receiving", of(&receivers)?), ("sending", of(&senders)?)] {
        if shares.min < SHARE_MIN {
            notes.push(format!(
                "other programs took CPU from the {who} thread: it got {:.0} % of its CPU (median; worst round \
                 {:.0} %). Measure on a quiet machine or with --realtime.",
                shares.median * 100.0,
                shares.min * 100.0
            ));
        }
    }
    let by = if lab.vnicd.is_some() { "vnicd" } else { "a NIC in the bench's process" };
    notes.push(format!("product: {by}"));
    Ok(Run::Measured(vec![Outcome {
        name: kind.name.into(),
        unit: "Mpps",
        value: of(&ours)?,
        peer: Some((kind.peer, of(&theirs)?)),
        ratio: Some(of(&ratios)?),
        bare_exchange: Some(of(&exchanges)?.median),
        rounds: lab.rounds,
        notes,
    }]))
}

fn product(lab: &Lab, kind: &Kind) -> Result<Measured> {
    let dir = lab.part()?;
    let looped = kind.ports > 1;
    let product = lab.product(dir.path(), kind.ports, !looped)?;
    let sockets: Vec<PathBuf> = (0..kind.ports).map(|i| product.socket(i)).collect();
    let mut guest = guest(lab, kind, dir.path(), &sockets)?;
    product.wait_up(kind.ports, PATIENCE)?;
    go(&mut guest, kind)?;
    let before = product.counters()?;
    let counter = if looped { "rx_frames" } else { "tx_frames" };
    let mut cpu = (CpuTime::default(), CpuTime::default());
    let mut reads = 0;
    let rate = lab.rate(&[product.pid(), guest.pid()], || {
        let now = (product.cpu_time(), guest.cpu_time());
        cpu = if reads == 0 { now } else { (now.0.since(cpu.0), now.1.since(cpu.1)) };
        reads += 1;
        Ok(product.counters()?.total(counter))
    })?;
    check(&product, &before, looped)?;
    guest.quit()?;
    Ok(Measured { mpps: rate / 1e6, receiver: cpu.0.share(), sender: cpu.1.share() })
}

/// The frames met the fate that the bench is about.
fn check(product: &Product, before: &super::product::Counters, looped: bool) -> Result<()> {
    let after = product.counters()?;
    let moved = |name: &str| after.total(name) - before.total(name);
    if looped {
        ensure!(moved("tx_forwarded") > 0, "no frame was forwarded: is anti-spoofing off?");
    } else {
        let dropped = after.drops("no_destination") - before.drops("no_destination");
        // The two counters are read while frames flow.
        let slack = 4096;
        ensure!(
            dropped + slack >= moved("tx_frames"),
            "{} frames were taken, but only {dropped} found no destination",
            moved("tx_frames")
        );
    }
    Ok(())
}

fn peer(lab: &Lab, kind: &Kind) -> Result<Measured> {
    let dir = lab.part()?;
    let sockets: Vec<PathBuf> = (0..kind.ports).map(|i| dir.path().join(format!("peer{i}.sock"))).collect();
    let vdevs = sockets.iter().enumerate().map(|(i, s)| testpmd::device(i, s, 1)).collect();
    let mode = format!("--forward-mode={}", kind.peer_mode);
    let mut device = Testpmd::start(
        dir.path(),
        &testpmd::Spec {
            program: lab.testpmd.clone(),
            cpu: lab.cpus[0],
            vdevs,
            args: vec![mode],
        },
    )?;
    device.go("")?;
    let mut guest = guest(lab, kind, dir.path(), &sockets)?;
    device.wait_until("see its guests", PATIENCE, |d| (0..kind.ports).all(|p| d.link_up(p)))?;
    go(&mut guest, kind)?;
    let mut cpu = (CpuTime::default(), CpuTime::default());
    let mut reads = 0;
    let rate = lab.rate(&[device.pid(), guest.pid()], || {
        let now = (device.cpu_time(), guest.cpu_time());
        cpu = if reads == 0 { now } else { (now.0.since(cpu.0), now.1.since(cpu.1)) };
        reads += 1;
        let mut sum = 0;
        for port in 0..kind.ports {
            let s = device.stats(port)?;
            sum += if kind.ports > 1 { s.sent } else { s.received };
        }
        Ok(sum)
    })?;
    ensure!(rate > 0.0, "no frame went through {}", kind.peer);
    guest.quit()?;
    device.quit()?;
    Ok(Measured { mpps: rate / 1e6, receiver: cpu.0.share(), sender: cpu.1.share() })
}

/// The DPDK guest that makes the traffic, on the sending side's CPU.
fn guest(lab: &Lab, kind: &Kind, dir: &Path, sockets: &[PathBuf]) -> Result<Testpmd> {
    let mode = if kind.ports > 1 { "io" } else { "txonly" };
    let mut args = vec![format!("--forward-mode={mode}"), "--txpkts=64".into()];
    if lab.unicast {
        for (port, other) in (0..kind.ports).map(|p| (p, kind.ports - 1 - p)) {
            args.push(format!("--eth-peer={port},{}", testpmd::guest_mac(other)));
        }
    }
    let vdevs = sockets.iter().enumerate().map(|(i, s)| testpmd::guest(i, s, 1)).collect();
    Testpmd::start(
        dir,
        &testpmd::Spec { program: lab.testpmd.clone(), cpu: lab.cpus[1], vdevs, args },
    )
}

fn go(guest: &mut Testpmd, kind: &Kind) -> Result<()> {
    if kind.ports > 1 { guest.go(&format!("start tx_first {LOOP_BURSTS}")) } else { guest.go("") }
}
