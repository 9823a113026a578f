//! Frames of 64 bytes through the NIC and through testpmd's vhost driver, from the same DPDK guest.
//!
//! Both devices and their guests live through the whole run; those whose turn it is not are stopped. So rounds are
//! short, and both sides meet the same machine.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vnic_backend::settings::Trust;
use vnic_backend::{QosSpec, Tsa};

use super::hugepages::HugePages;
use super::machine::{CpuTime, RealTime};
use super::product::Product;
use super::report::{Outcome, Summary};
use super::testpmd::{self, MEMORY_BYTES, Testpmd};
use super::{EXCHANGE_TIME, Lab, Run, WARM_UP};

/// Guests are up well before this.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Bursts of 32 frames that each guest port of `eth-loop` puts into circulation: with what a driver holds back they
/// always fit its rings of 256, so that none is ever lost.
const LOOP_BURSTS: usize = 6;
/// Below this share of its CPU a polling thread was disturbed.
const SHARE_MIN: f64 = 0.9;
/// Before and after a measurement: what two bare exchanges may differ by before the CPUs count as having moved.
const MOVED: f64 = 2.0;

/// What differs between the two benches.
pub(super) struct Kind {
    name: &'static str,
    ports: usize,
    peer: &'static str,
    peer_mode: &'static str,
    /// Classes and limits are configured, though none of them holds anything up.
    qos: bool,
    /// What the guests' rings are, as virtio_user wants to be told.
    rings: &'static str,
}

const DRAIN: Kind = Kind {
    name: "eth-drain",
    ports: 1,
    peer: "testpmd vhost rxonly",
    peer_mode: "rxonly",
    qos: false,
    rings: "",
};
pub(super) const LOOP: Kind = Kind {
    name: "eth-loop",
    ports: 2,
    peer: "testpmd vhost io",
    peer_mode: "io",
    qos: false,
    rings: "",
};
const QOS: Kind = Kind {
    name: "eth-qos",
    qos: true,
    ..LOOP
};
const PACKED: &str = ",packed_vq=1,in_order=0";
const PACKED_IN_ORDER: &str = ",packed_vq=1,in_order=1";
const DRAIN_PACKED: [Kind; 2] = [
    Kind {
        name: "eth-drain-packed",
        rings: PACKED,
        ..DRAIN
    },
    Kind {
        name: "eth-drain-packed-in-order",
        rings: PACKED_IN_ORDER,
        ..DRAIN
    },
];
const LOOP_PACKED: [Kind; 2] = [
    Kind {
        name: "eth-loop-packed",
        rings: PACKED,
        ..LOOP
    },
    Kind {
        name: "eth-loop-packed-in-order",
        rings: PACKED_IN_ORDER,
        ..LOOP
    },
];
/// Rate of the two limits of `eth-qos`, in bit/s: far above what one CPU can forward.
const LIMIT: u64 = 200_000_000_000;

impl Kind {
    fn looped(&self) -> bool {
        self.ports > 1
    }
}

/// `eth-drain`.
pub fn drain(lab: &Lab) -> Result<Run> {
    compare(lab, &DRAIN)
}

/// `eth-loop`.
pub fn turn(lab: &Lab) -> Result<Run> {
    compare(lab, &LOOP)
}

/// `eth-drain-packed`.
pub fn drain_packed(lab: &Lab) -> Result<Run> {
    each(lab, &DRAIN_PACKED)
}

/// `eth-loop-packed`.
pub fn turn_packed(lab: &Lab) -> Result<Run> {
    each(lab, &LOOP_PACKED)
}

fn each(lab: &Lab, kinds: &[Kind]) -> Result<Run> {
    let mut outcomes = Vec::new();
    for kind in kinds {
        match compare(lab, kind)? {
            Run::Measured(of) => outcomes.extend(of),
            skipped => return Ok(skipped),
        }
    }
    Ok(Run::Measured(outcomes))
}

/// `eth-qos`.
pub fn qos(lab: &Lab) -> Result<Run> {
    if lab.vnicd.is_some() {
        return Ok(Run::Skipped(
            "its NIC is in the bench's process: not with --vnicd".into(),
        ));
    }
    compare(lab, &QOS)
}

/// Trust DSCP, two ETS classes and a limit for each.
pub(super) fn configure(product: &Product, adapters: usize) -> Result<()> {
    let nic = product.nic().context("a NIC in this process")?;
    for i in 0..adapters {
        super::qos::trust(nic, i, |keys| keys.priorities.trust = Trust::Dscp)?;
        let mut classes = super::qos::classes();
        for class in [0, 3] {
            (classes.tsa[class], classes.share[class], classes.limit[class]) = (Tsa::Ets, 50, LIMIT);
        }
        let spec = QosSpec {
            classes,
            ..QosSpec::default()
        };
        nic.set_qos(&format!("vf{i}"), spec)?;
    }
    Ok(())
}

/// One measurement.
struct Measured {
    mpps: f64,
    exchange: f64,
    receiver: f64,
    sender: f64,
}

/// The device side.
enum Device {
    Ours(Product),
    Theirs(Testpmd),
}

/// A device and its guest, paused when it is not their turn.
struct Pair {
    device: Device,
    guest: Testpmd,
}

impl Pair {
    fn pids(&self) -> [u32; 2] {
        let device = match &self.device {
            Device::Ours(p) => p.pid(),
            Device::Theirs(t) => t.pid(),
        };
        [device, self.guest.pid()]
    }

    /// Frames that the device took (drain) or delivered (loop).
    fn frames(&mut self, kind: &Kind) -> Result<u64> {
        match &mut self.device {
            Device::Ours(p) => Ok(p
                .counters()?
                .total(if kind.looped() { "rx_frames" } else { "tx_frames" })),
            Device::Theirs(t) => {
                let mut sum = 0;
                for port in 0..kind.ports {
                    let s = t.stats(port)?;
                    sum += if kind.looped() { s.sent } else { s.received };
                }
                Ok(sum)
            }
        }
    }

    fn cpu(&self) -> (CpuTime, CpuTime) {
        let device = match &self.device {
            Device::Ours(p) => p.cpu_time(),
            Device::Theirs(t) => t.cpu_time(),
        };
        (device, self.guest.cpu_time())
    }

    /// Our NIC needs no pause: without a guest it sleeps.
    fn pause(&self) -> Result<()> {
        self.guest.pause()?;
        if let Device::Theirs(t) = &self.device {
            t.pause()
        } else {
            Ok(())
        }
    }

    fn resume(&self) -> Result<()> {
        if let Device::Theirs(t) = &self.device {
            t.resume()?;
        }
        self.guest.resume()
    }

    fn measure(&mut self, lab: &Lab, kind: &Kind) -> Result<Measured> {
        let exchange = lab.exchange()?;
        self.resume()?;
        lab.sleep(WARM_UP)?;
        let (start, first, cpu) = (Instant::now(), self.frames(kind)?, self.cpu());
        lab.sleep(lab.window)?;
        let (elapsed, last, cpu_end) = (start.elapsed(), self.frames(kind)?, self.cpu());
        self.pause()?;
        let mpps = last.saturating_sub(first) as f64 / elapsed.as_secs_f64() / 1e6;
        ensure!(mpps > 0.0, "no frame went through the {}", self.name());
        // The machine breathes, and Linux has no reason to throttle real-time threads.
        lab.sleep((WARM_UP + lab.window + EXCHANGE_TIME).mul_f64(0.06))?;
        let share = |end: CpuTime, start| end.since(start).share();
        Ok(Measured {
            mpps,
            exchange: exchange.min(lab.exchange()?),
            receiver: share(cpu_end.0, cpu.0),
            sender: share(cpu_end.1, cpu.1),
        })
    }

    /// Waits until frames flow, then pauses.
    fn settle(&mut self, lab: &Lab, kind: &Kind) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let first = self.frames(kind)?;
        while self.frames(kind)? < first + 100_000 {
            ensure!(
                Instant::now() < deadline,
                "no frames flow through the {}",
                self.name()
            );
            lab.sleep(Duration::from_millis(20))?;
        }
        self.pause()
    }

    fn name(&self) -> &'static str {
        match self.device {
            Device::Ours(_) => "product",
            Device::Theirs(_) => "peer",
        }
    }

    fn quit(self) -> Result<()> {
        self.resume()?;
        self.guest.quit()?;
        if let Device::Theirs(t) = self.device {
            t.quit()
        } else {
            Ok(())
        }
    }
}

fn compare(lab: &Lab, kind: &Kind) -> Result<Run> {
    if !Testpmd::present(&lab.testpmd) {
        let program = lab.testpmd.display();
        return Ok(Run::Skipped(format!(
            "{program} cannot be run (Debian: package dpdk-dev)"
        )));
    }
    let _pages = HugePages::reserve(3 * MEMORY_BYTES)?;
    let (our_dir, their_dir) = (lab.part()?, lab.part()?);
    let mut ours = product(lab, kind, our_dir.path())?;
    let mut theirs = peer(lab, kind, their_dir.path())?;
    let mut rounds = Vec::with_capacity(lab.rounds);
    {
        let pids = [ours.pids(), theirs.pids()].concat();
        let _priority = lab.realtime.then(|| RealTime::raise(&pids)).transpose()?;
        for round in 0..lab.rounds {
            // Whoever goes first in one round goes second in the next.
            let (a, b) = if round % 2 == 0 {
                let a = ours.measure(lab, kind)?;
                (a, theirs.measure(lab, kind)?)
            } else {
                let b = theirs.measure(lab, kind)?;
                (ours.measure(lab, kind)?, b)
            };
            eprintln!(
                "{} round {}/{}: vnic {:.2} Mpps, {} {:.2} Mpps, ratio {:.2}, bare exchange {:.0} and {:.0} M/s",
                kind.name,
                round + 1,
                lab.rounds,
                a.mpps,
                kind.peer,
                b.mpps,
                a.mpps / b.mpps,
                a.exchange / 1e6,
                b.exchange / 1e6
            );
            rounds.push((a, b));
        }
    }
    check(&ours, kind)?;
    ours.quit()?;
    theirs.quit()?;
    Ok(Run::Measured(vec![outcome(lab, kind, &rounds)?]))
}

fn outcome(lab: &Lab, kind: &Kind, rounds: &[(Measured, Measured)]) -> Result<Outcome> {
    let of = |f: fn(&(Measured, Measured)) -> f64| {
        let values: Vec<f64> = rounds.iter().map(f).collect();
        Summary::of(&values).context("no rounds")
    };
    let mut notes = Vec::new();
    let shares = [
        ("receiving", of(|(a, b)| a.receiver.min(b.receiver))?),
        ("sending", of(|(a, b)| a.sender.min(b.sender))?),
    ];
    for (who, share) in shares {
        if share.median < SHARE_MIN {
            notes.push(format!(
                "other programs took CPU from the {who} thread: it got {:.0} % of its CPU (median; least {:.0} %). \
                 Measure on a quiet machine or with --realtime.",
                share.median * 100.0,
                share.min * 100.0
            ));
        }
    }
    let moved = rounds
        .iter()
        .filter(|(a, b)| a.exchange.max(b.exchange) > MOVED * a.exchange.min(b.exchange));
    let moved = moved.count();
    if moved > 0 {
        notes.push(format!(
            "in {moved} rounds the two CPUs came nearer or went apart: their ratios say little"
        ));
    }
    let by = if lab.vnicd.is_some() {
        "vnicd"
    } else {
        "a NIC in the bench's process"
    };
    notes.push(format!("product: {by}"));
    Ok(Outcome {
        name: if kind.looped() && lab.unicast {
            format!("{}-unicast", kind.name)
        } else {
            kind.name.into()
        },
        unit: "Mpps",
        value: of(|(a, _)| a.mpps)?,
        peer: Some((kind.peer, of(|(_, b)| b.mpps)?)),
        ratio: Some(of(|(a, b)| a.mpps / b.mpps)?),
        bare_exchange: Some(of(|(a, b)| a.exchange.min(b.exchange))?.median),
        rounds: lab.rounds,
        details: Vec::new(),
        notes,
    })
}

/// The frames met the fate that the bench is about.
fn check(ours: &Pair, kind: &Kind) -> Result<()> {
    let Device::Ours(product) = &ours.device else {
        return Ok(());
    };
    let counters = product.counters()?;
    let (taken, forwarded) = (counters.total("tx_frames"), counters.total("tx_forwarded"));
    if kind.looped() {
        ensure!(
            forwarded == taken,
            "{taken} frames were taken, but only {forwarded} forwarded"
        );
    } else {
        let dropped = counters.drops("no_destination");
        ensure!(
            dropped == taken,
            "{taken} frames were taken, but only {dropped} found no destination"
        );
    }
    Ok(())
}

fn product(lab: &Lab, kind: &Kind, dir: &Path) -> Result<Pair> {
    let product = lab.product(dir, kind.ports, !kind.looped())?;
    if kind.qos {
        configure(&product, kind.ports)?;
    }
    let sockets: Vec<PathBuf> = (0..kind.ports).map(|i| product.socket(i)).collect();
    let mut guest = guest(lab, kind, dir, &sockets)?;
    product.wait_up(kind.ports, PATIENCE)?;
    go(&mut guest, kind)?;
    let mut pair = Pair {
        device: Device::Ours(product),
        guest,
    };
    pair.settle(lab, kind)?;
    Ok(pair)
}

fn peer(lab: &Lab, kind: &Kind, dir: &Path) -> Result<Pair> {
    let sockets: Vec<PathBuf> = (0..kind.ports)
        .map(|i| dir.join(format!("peer{i}.sock")))
        .collect();
    let mut device = peer_device(lab, dir, &sockets, kind.peer_mode)?;
    let mut guest = guest(lab, kind, dir, &sockets)?;
    device.wait_until("see its guests", PATIENCE, |d| {
        (0..kind.ports).all(|p| d.link_up(p))
    })?;
    go(&mut guest, kind)?;
    let mut pair = Pair {
        device: Device::Theirs(device),
        guest,
    };
    pair.settle(lab, kind)?;
    Ok(pair)
}

/// testpmd behind these sockets, on the receiving side's CPU.
pub(super) fn peer_device(lab: &Lab, dir: &Path, sockets: &[PathBuf], mode: &str) -> Result<Testpmd> {
    let vdevs = sockets
        .iter()
        .enumerate()
        .map(|(i, s)| testpmd::device(i, s, 1))
        .collect();
    let spec = testpmd::Spec {
        program: lab.testpmd.clone(),
        cpu: lab.cpus[0],
        vdevs,
        args: vec![format!("--forward-mode={mode}")],
    };
    let mut device = Testpmd::start(dir, &spec)?;
    device.go("")?;
    Ok(device)
}

/// The DPDK guest that makes the traffic, on the sending side's CPU.
pub(super) fn guest(lab: &Lab, kind: &Kind, dir: &Path, sockets: &[PathBuf]) -> Result<Testpmd> {
    let mode = if kind.looped() { "io" } else { "txonly" };
    let mut args = vec![format!("--forward-mode={mode}"), "--txpkts=64".into()];
    if lab.unicast {
        for (port, other) in (0..kind.ports).map(|p| (p, kind.ports - 1 - p)) {
            args.push(format!("--eth-peer={port},{}", testpmd::guest_mac(other)));
        }
    }
    let vdevs = sockets
        .iter()
        .enumerate()
        .map(|(i, s)| testpmd::guest(i, s, 1) + kind.rings)
        .collect();
    Testpmd::start(
        dir,
        &testpmd::Spec {
            program: lab.testpmd.clone(),
            cpu: lab.cpus[1],
            vdevs,
            args,
        },
    )
}

/// Starts the traffic.
pub(super) fn go(guest: &mut Testpmd, kind: &Kind) -> Result<()> {
    if kind.looped() {
        guest.go(&format!("start tx_first {LOOP_BURSTS}"))
    } else {
        guest.go("")
    }
}
