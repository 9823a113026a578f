//! Round trips of `ping` between two User-Mode-Linux guests: what programs in real kernels get, with all that these kernels
//! do for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::exchange::pin;
use super::hugepages::HugePages;
use super::product::{IDLE_SPIN, Product};
use super::report::{Outcome, Summary, percentile};
use super::testpmd::{MEMORY_BYTES, Testpmd, guest_mac};
use super::{Lab, Run, ethernet};
use crate::lab::{self, Guest, GuestSpec, Pair, Ping};

mod relay;

/// Of one measurement: enough for a thousandth to be more than one.
const PINGS: usize = 2000;
/// Payload of ICMP that makes a frame of 64 bytes with the FCS.
const PAYLOAD: usize = 18;
/// Rounds are long: the two kinds of pings to both devices take 15 s.
const ROUNDS_MAX: usize = 5;
/// What keeps a NIC awake from ping to ping, and is over soon after the last.
const AWAKE_SPIN: Duration = Duration::from_millis(20);
const PEER: &str = "testpmd vhost io";

/// How the pings follow each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// The next as soon as the last is answered.
    AtOnce,
    /// After a pause in which the NIC falls asleep.
    Paused,
}

impl Pace {
    fn arguments(self) -> &'static str {
        match self {
            Pace::AtOnce => "-A",
            Pace::Paused => "-i 0.003",
        }
    }

    /// In the figures' names.
    fn name(self) -> &'static str {
        match self {
            Pace::AtOnce => "uml-ping",
            Pace::Paused => "uml-ping-idle",
        }
    }
}

/// What stands between two guests.
enum Device {
    /// (Alive while its guests are.)
    Ours {
        _product: Product,
    },
    Theirs(Testpmd),
}

/// Two guests and what joins them.
struct Side {
    // First: guests end before their device.
    pair: Pair,
    device: Device,
}

/// `uml-ping`.
pub fn run(lab: &Lab) -> Result<Run> {
    if let Some(why) = missing() {
        return Ok(Run::Skipped(why));
    }
    // The thread that starts the guests is pinned, and they with it; what starts devices stays where it is.
    let figures = std::thread::scope(|s| s.spawn(|| measure(lab)).join());
    Ok(Run::Measured(
        figures.map_err(|_| anyhow::anyhow!("the guests' thread panicked"))??,
    ))
}

/// What a guest cannot be made without.
fn missing() -> Option<String> {
    let machine = Command::new("linux.uml")
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    if machine.is_err() {
        return Some("linux.uml cannot be run (Debian: package user-mode-linux)".into());
    }
    let build = lab::checkout().join("deploy/guest/build");
    (!build.is_file()).then(|| format!("{} makes the guests' image and is not there", build.display()))
}

fn measure(lab: &Lab) -> Result<Vec<Outcome>> {
    let guests = lab::Lab::of_guests("uml-ping")?;
    let dirs = [lab.part()?, lab.part()?, lab.part()?];
    let paces = [Pace::AtOnce, Pace::Paused];
    let with_peer = Testpmd::present(&lab.testpmd);
    let _pages = with_peer.then(|| HugePages::reserve(MEMORY_BYTES)).transpose()?;
    let mut devices = Vec::new();
    for (dir, spin) in dirs.iter().zip([AWAKE_SPIN, IDLE_SPIN]) {
        let product = Product::start_spinning(&lab.setup(dir.path(), 2), spin)?;
        let sockets = [product.socket(0), product.socket(1)];
        devices.push((Device::Ours { _product: product }, sockets));
    }
    if with_peer {
        let (peer, sockets) = peer(lab, dirs[2].path())?;
        devices.push((Device::Theirs(peer), sockets));
    }
    pin(lab.cpus[1])?;
    let mut sides = Vec::new();
    for (i, (device, sockets)) in devices.into_iter().enumerate() {
        let side = Side {
            pair: boot(&guests, i, &sockets)?,
            device,
        };
        side.pause()?;
        sides.push(side);
    }
    let (ours, theirs) = sides.split_at_mut(paces.len());
    let rounds = lab.rounds.min(ROUNDS_MAX);
    let mut found: [Found; 2] = Default::default();
    let mut exchanges = Vec::new();
    for round in 0..rounds {
        exchanges.push(lab.exchange()?);
        for ((&pace, side), found) in paces.iter().zip(ours.iter_mut()).zip(&mut found) {
            // Whoever goes first in one round goes second in the next.
            let mut order = [Some(side), theirs.first_mut()];
            order.rotate_left(round % 2);
            for side in order.into_iter().flatten() {
                lab.sleep(2 * AWAKE_SPIN)?;
                let times = side.ping(pace)?;
                found.add(matches!(side.device, Device::Ours { .. }), &times);
            }
            eprintln!("{} round {}/{rounds}: {}", pace.name(), round + 1, found.last());
        }
    }
    let exchange = Summary::of(&exchanges).map(|s| s.median);
    let figures = paces.iter().zip(&found).flat_map(|(&pace, found)| {
        [("p50", &found.middle), ("p999", &found.tail)]
            .map(|(part, values)| outcome(pace, part, values, exchange))
    });
    figures.collect()
}

/// The product's and the peer's, a value a round, in µs.
#[derive(Default)]
struct Found {
    middle: [Vec<f64>; 2],
    tail: [Vec<f64>; 2],
}

impl Found {
    fn add(&mut self, ours: bool, sorted: &[f64]) {
        let whose = usize::from(!ours);
        self.middle[whose].push(percentile(sorted, 0.5));
        self.tail[whose].push(percentile(sorted, 0.999));
    }

    fn last(&self) -> String {
        let one = |whose: usize| {
            let last = |values: &[Vec<f64>; 2]| values[whose].last().copied();
            let (middle, tail) = (last(&self.middle)?, last(&self.tail)?);
            Some(format!(
                "{} {middle:.0} µs (p99.9 {tail:.0})",
                ["vnic", PEER][whose]
            ))
        };
        (0..2).filter_map(one).collect::<Vec<_>>().join(", ")
    }
}

impl Side {
    /// Round-trip times in µs, sorted.
    fn ping(&mut self, pace: Pace) -> Result<Vec<f64>> {
        if let Device::Theirs(t) = &self.device {
            t.resume()?;
        }
        // Addresses are asked for, and what slept is awake.
        self.pair.one.ok("ping -q -c 50 -A 10.0.0.2")?;
        // Lines by the console only when all is measured.
        let command = format!(
            "ping -c {PINGS} -s {PAYLOAD} {} 10.0.0.2 >/tmp/pings; cat /tmp/pings",
            pace.arguments()
        );
        let ping = Ping::parse(&self.pair.one.ok(&command)?)?;
        self.pause()?;
        ensure!(
            ping.is_perfect() && ping.trips.len() == PINGS,
            "of {} pings {} were answered, {} with a time",
            ping.sent,
            ping.received,
            ping.trips.len()
        );
        let mut times: Vec<f64> = ping.trips.iter().map(|ms| ms * 1e3).collect();
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Our NIC needs no pause: it falls asleep.
    fn pause(&self) -> Result<()> {
        match &self.device {
            Device::Ours { .. } => Ok(()),
            Device::Theirs(t) => t.pause(),
        }
    }
}

/// Two guests on these sockets.
fn boot(guests: &lab::Lab, side: usize, sockets: &[PathBuf; 2]) -> Result<Pair> {
    let spec = |n: usize| {
        GuestSpec::new(
            &format!("vm{side}{n}"),
            &sockets[n],
            &guest_mac(n),
            &format!("10.0.0.{}/24", n + 1),
        )
    };
    Pair::start(guests, &[spec(0), spec(1)], Guest::uml)
}

/// testpmd, and where its guests connect.
fn peer(lab: &Lab, dir: &Path) -> Result<(Testpmd, [PathBuf; 2])> {
    let ports = [0, 1].map(|i| dir.join(format!("peer{i}.sock")));
    let guests = [0, 1].map(|i| dir.join(format!("guest{i}.sock")));
    let device = ethernet::peer_device(lab, dir, &ports, "io")?;
    for (guest, port) in guests.iter().zip(&ports) {
        relay::start(guest, port)?;
    }
    Ok((device, guests))
}

fn outcome(
    pace: Pace,
    part: &str,
    [ours, theirs]: &[Vec<f64>; 2],
    bare_exchange: Option<f64>,
) -> Result<Outcome> {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
    let mut notes = vec![match pace {
        Pace::AtOnce => "the NIC is awake; most of it is what two guest kernels do on one CPU".to_owned(),
        Pace::Paused => "the NIC sleeps before each ping; the peer never does".to_owned(),
    }];
    if theirs.is_empty() {
        notes.push("no peer: there is no testpmd".into());
    }
    Ok(Outcome {
        name: format!("{}-{part}", pace.name()),
        unit: "µs round trip",
        value: Summary::of(ours).context("no rounds")?,
        peer: Summary::of(theirs).map(|s| (PEER, s)),
        ratio: Summary::of(&ratios),
        bare_exchange,
        rounds: ours.len(),
        details: Vec::new(),
        notes,
    })
}
