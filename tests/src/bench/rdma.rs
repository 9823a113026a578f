//! RDMA between two adapters, driven by one thread of a host process through the verbs library.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use vnic_verbs::{
    Access, CompletionQueue, ConnectOptions, Context, Data, Device, DeviceAddress, MemoryRegion, Mtu,
    ProtectionDomain, QueuePair, Rc, RecvWr, SendWr, WorkCompletion,
};

use super::exchange::pin;
use super::machine::RealTime;
use super::product::{Product, Setup};
use super::report::{Outcome, Summary};
use super::{Lab, Run, rings};

/// Bytes of a message of the bandwidth benches.
const LARGE: usize = 64 << 10;
/// Places in a region that they use in turn: together as much as a level 2 cache has.
const PLACES: usize = 16;
/// Messages under way.
const WINDOW: usize = 16;
/// Work requests of a batch, and under way, of the rate bench: as in `rings`.
const BATCH: usize = 32;
const RATE_WINDOW: usize = 128;
/// Ping-pongs of a round.
const PINGS: usize = 50_000;
/// A message is there long before this, or never.
const PATIENCE: Duration = Duration::from_secs(10);

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Write,
    Read,
    Send,
}

/// One adapter as this process uses it.
struct Side {
    /// Everything else holds it, too.
    _device: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    region: MemoryRegion,
}

/// Two adapters and connected queue pairs.
struct Pair {
    _product: Product,
    sides: [Side; 2],
    qps: Vec<[QueuePair<Rc>; 2]>,
    /// Receives posted: they use the places in turn, as WRITEs do.
    received: AtomicUsize,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(lab: &Lab, qps: usize) -> Result<Pair> {
        let dir = lab.part()?;
        let product = Product::start(&Setup {
            dir: dir.path(),
            cpu: lab.cpus[0],
            adapters: 2,
            queue_pairs: 1,
            anti_spoofing: true,
            // Jumbo frames: room for a path MTU of 4096.
            mtu: 9000,
            vnicd: lab.vnicd.as_deref(),
            first_guest: 0,
            uplinks: &[],
        })?;
        let side = |i: usize| -> Result<Side> {
            let device = Device::open(&DeviceAddress::Socket(product.rdma_socket(i)))?;
            let pd = device.alloc_pd()?;
            // Each queue pair has at most a window of its own under way.
            let cq = device.create_cq((2 * RATE_WINDOW.max(WINDOW)) as u32 + 2 * qps as u32)?;
            let region = pd.allocate(PLACES * LARGE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?;
            Ok(Side {
                _device: device,
                pd,
                cq,
                region,
            })
        };
        let sides = [side(0)?, side(1)?];
        let options = ConnectOptions {
            gid_index: 1,
            path_mtu: Some(Mtu::Mtu4096),
            ..ConnectOptions::default()
        };
        let qps = (0..qps)
            .map(|_| {
                let make = |s: &Side| {
                    let builder = s.pd.qp::<Rc>(&s.cq, &s.cq);
                    builder
                        .max_send_wr(RATE_WINDOW as u32)
                        .max_recv_wr(2 * WINDOW as u32)
                        .max_inline(32)
                        .build()
                };
                let ends = [make(&sides[0])?, make(&sides[1])?];
                ends[0].connect(&ends[1].endpoint(1)?, &options)?;
                ends[1].connect(&ends[0].endpoint(1)?, &options)?;
                Ok(ends)
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Pair {
            _product: product,
            sides,
            qps,
            received: AtomicUsize::new(0),
            _dir: dir,
        })
    }

    /// Bytes a second of one queue pair, windows of large messages.
    fn bandwidth(&self, verb: Verb, time: Duration) -> Result<f64> {
        let [from, _] = &self.qps[0];
        let [near, far] = &self.sides;
        let mut done = [WorkCompletion::default(); WINDOW];
        let (mut posted, mut completed) = (0usize, 0usize);
        let (mut since, mut counted) = (None, 0);
        let begin = Instant::now();
        loop {
            while posted - completed < WINDOW {
                let at = posted % PLACES * LARGE;
                let sge = near.region.slice(at..at + LARGE);
                let remote = far.region.addr() + at as u64;
                let wr = match verb {
                    Verb::Write => SendWr::write(sge, remote, far.region.rkey()),
                    Verb::Read => SendWr::read(sge, remote, far.region.rkey()),
                    Verb::Send => SendWr::send(sge),
                };
                from.post_send(&[wr.signaled()])?;
                posted += 1;
            }
            let n = near.cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            completed += n;
            if verb == Verb::Send {
                let n = far.cq.poll(&mut done)?;
                for c in &done[..n] {
                    c.ok()?;
                    self.receive()?;
                }
            }
            let now = Instant::now();
            match since {
                None if now - begin > super::WARM_UP => (since, counted) = (Some(now), completed),
                Some(t) if now - t > time => {
                    let rate = (completed - counted) as f64 * LARGE as f64 / (now - t).as_secs_f64();
                    self.drain(posted - completed)?;
                    return Ok(rate);
                }
                _ => ensure!(now - begin < time + PATIENCE, "the traffic has stopped"),
            }
        }
    }

    /// Posts a receive for a large message.
    fn receive(&self) -> Result<()> {
        let far = &self.sides[1].region;
        let at = self.received.fetch_add(1, Ordering::Relaxed) % PLACES * LARGE;
        self.qps[0][1].post_recv(&[RecvWr::new(far.slice(at..at + LARGE))])?;
        Ok(())
    }

    /// Small writes a second, in batches that go to the queue pairs in turn.
    fn rate(&self, time: Duration) -> Result<f64> {
        let [near, far] = &self.sides;
        let bytes = [0x5au8; 8];
        let batch: [SendWr<'_>; BATCH] = std::array::from_fn(|i| {
            let remote = far.region.addr() + 8 * i as u64;
            SendWr::write(Data::inline(&bytes), remote, far.region.rkey()).signaled()
        });
        let mut done = [WorkCompletion::default(); RATE_WINDOW];
        let (mut posted, mut completed) = (0usize, 0usize);
        let (mut since, mut counted) = (None, 0);
        let begin = Instant::now();
        for turn in 0usize.. {
            while posted - completed + BATCH <= RATE_WINDOW {
                // A large odd step: neighbouring queue pairs are not each other's neighbours in time.
                let qp = &self.qps[(posted / BATCH).wrapping_mul(389) % self.qps.len()][0];
                qp.post_send(&batch)?;
                posted += BATCH;
            }
            let n = near.cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            completed += n;
            if !turn.is_multiple_of(64) {
                continue;
            }
            let now = Instant::now();
            match since {
                None if now - begin > super::WARM_UP => (since, counted) = (Some(now), completed),
                Some(t) if now - t > time => {
                    let rate = (completed - counted) as f64 / (now - t).as_secs_f64();
                    self.drain(posted - completed)?;
                    return Ok(rate);
                }
                _ => ensure!(now - begin < time + PATIENCE, "the traffic has stopped"),
            }
        }
        bail!("unreachable: turns do not end")
    }

    /// Waits for what is under way.
    fn drain(&self, mut left: usize) -> Result<()> {
        let begin = Instant::now();
        let mut done = [WorkCompletion::default(); RATE_WINDOW];
        while left > 0 {
            let n = self.sides[0].cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            left -= n;
            ensure!(begin.elapsed() < PATIENCE, "{left} work requests do not complete");
        }
        // Receives that were used are posted again, so that a next round has as many.
        loop {
            match self.sides[1].cq.poll(&mut done)? {
                0 => return Ok(()),
                n => (0..n).try_for_each(|_| self.receive())?,
            }
        }
    }

    /// One way of an 8-byte write that the other end sees in its memory, in µs: median and 99th percentile.
    fn latency(&self, pings: usize) -> Result<[f64; 2]> {
        let mut times = Vec::with_capacity(pings);
        let mut done = [WorkCompletion::default(); 4];
        // Nothing of an earlier round is taken for an answer.
        self.sides[1].region.store(0, 0);
        self.sides[0].region.store(0, 0);
        for n in 1..=pings as u64 {
            let start = Instant::now();
            for (from, to) in [(0, 1), (1, 0)] {
                let target = &self.sides[to].region;
                let word = n.to_le_bytes();
                let write = SendWr::write(Data::inline(&word), target.addr(), target.rkey()).signaled();
                self.qps[0][from].post_send(&[write])?;
                let mut looks = 0u32;
                while target.load(0) != n {
                    spin_loop();
                    looks = looks.wrapping_add(1);
                    if looks.is_multiple_of(1 << 20) && start.elapsed() > PATIENCE {
                        bail!("a write was lost");
                    }
                }
            }
            times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
            for side in &self.sides {
                let got = side.cq.poll(&mut done)?;
                for c in &done[..got] {
                    c.ok()?;
                }
            }
        }
        self.drain_both()?;
        times.sort_by(f64::total_cmp);
        Ok([times[times.len() / 2], times[times.len() * 99 / 100]])
    }

    fn drain_both(&self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(2));
        let mut done = [WorkCompletion::default(); RATE_WINDOW];
        for side in &self.sides {
            while side.cq.poll(&mut done)? > 0 {}
        }
        Ok(())
    }
}

/// Bytes a second of memcpy between two buffers like the regions, place by place, on one CPU.
fn memcpy(cpu: usize, time: Duration) -> Result<f64> {
    let copied = std::thread::spawn(move || -> Result<f64> {
        pin(cpu)?;
        let from = vec![0x5au8; PLACES * LARGE];
        let mut to = vec![0u8; PLACES * LARGE];
        let (begin, mut bytes) = (Instant::now(), 0usize);
        loop {
            for at in (0..PLACES * LARGE).step_by(LARGE) {
                to[at..at + LARGE].copy_from_slice(black_box(&from[at..at + LARGE]));
                black_box(&mut to[at..at + LARGE]);
                bytes += LARGE;
            }
            if begin.elapsed() > time {
                return Ok(bytes as f64 / begin.elapsed().as_secs_f64());
            }
        }
    });
    copied
        .join()
        .map_err(|_| anyhow::anyhow!("memcpy's thread panicked"))?
}

/// A figure with its peer, each once a round, alternating.
pub(super) struct Figure {
    name: String,
    unit: &'static str,
    scale: f64,
    peer: &'static str,
    values: Vec<f64>,
    peers: Vec<f64>,
    exchanges: Vec<f64>,
    note: String,
}

impl Figure {
    pub(super) fn new(
        name: &str,
        unit: &'static str,
        scale: f64,
        peer: &'static str,
        note: String,
    ) -> Figure {
        Figure {
            name: name.into(),
            unit,
            scale,
            peer,
            values: Vec::new(),
            peers: Vec::new(),
            exchanges: Vec::new(),
            note,
        }
    }

    pub(super) fn round(
        &mut self,
        lab: &Lab,
        round: usize,
        mut ours: impl FnMut() -> Result<f64>,
        mut theirs: impl FnMut() -> Result<f64>,
    ) -> Result<()> {
        lab.sleep(Duration::ZERO)?;
        self.exchanges.push(lab.exchange()?);
        if round.is_multiple_of(2) {
            self.values.push(ours()? * self.scale);
            self.peers.push(theirs()? * self.scale);
        } else {
            self.peers.push(theirs()? * self.scale);
            self.values.push(ours()? * self.scale);
        }
        let last = |v: &[f64]| v.last().copied().unwrap_or_default();
        eprintln!(
            "{} round {}/{}: {:.2} {}, {} {:.2}",
            self.name,
            round + 1,
            lab.rounds,
            last(&self.values),
            self.unit,
            self.peer,
            last(&self.peers)
        );
        Ok(())
    }

    pub(super) fn outcome(&self) -> Result<Outcome> {
        let ratios: Vec<f64> = self.values.iter().zip(&self.peers).map(|(a, b)| a / b).collect();
        Ok(Outcome {
            name: self.name.clone(),
            unit: self.unit,
            value: Summary::of(&self.values).context("no rounds")?,
            peer: Some((self.peer, Summary::of(&self.peers).context("no rounds")?)),
            ratio: Summary::of(&ratios),
            bare_exchange: Summary::of(&self.exchanges).map(|s| s.median),
            rounds: self.values.len(),
            details: Vec::new(),
            notes: vec![self.note.clone()],
        })
    }
}

/// Runs a measurement on a thread that is pinned to the driver's CPU.
fn pinned(lab: &Lab, measure: impl FnOnce() -> Result<Vec<Outcome>> + Send) -> Result<Run> {
    let figures = std::thread::scope(|s| {
        s.spawn(|| {
            pin(lab.cpus[1])?;
            let _priority = lab
                .realtime
                .then(|| RealTime::raise(&[std::process::id()]))
                .transpose()?;
            measure()
        })
        .join()
    });
    Ok(Run::Measured(figures.map_err(|_| {
        anyhow::anyhow!("the driver's thread panicked")
    })??))
}

fn bandwidth(lab: &Lab, name: &str, verb: Verb) -> Result<Run> {
    // Made before the thread is pinned: what it starts stays where it is.
    let pair = Pair::new(lab, 1)?;
    if verb == Verb::Send {
        (0..2 * WINDOW).try_for_each(|_| pair.receive())?;
    }
    pinned(lab, || {
        let note = format!("64 KiB, one RC queue pair, {WINDOW} under way, path MTU 4096, 1 MiB at each end");
        let mut figure = Figure::new(name, "GB/s", 1e-9, "memcpy", note);
        for round in 0..lab.rounds {
            figure.round(
                lab,
                round,
                || pair.bandwidth(verb, lab.window),
                || memcpy(lab.cpus[0], lab.window),
            )?;
        }
        Ok(vec![figure.outcome()?])
    })
}

/// `rdma-write-bw`.
pub fn write_bw(lab: &Lab) -> Result<Run> {
    bandwidth(lab, "rdma-write-bw", Verb::Write)
}

/// `rdma-read-bw`.
pub fn read_bw(lab: &Lab) -> Result<Run> {
    bandwidth(lab, "rdma-read-bw", Verb::Read)
}

/// `rdma-send-bw`.
pub fn send_bw(lab: &Lab) -> Result<Run> {
    bandwidth(lab, "rdma-send-bw", Verb::Send)
}

/// `rdma-msg-rate`.
pub fn rate(lab: &Lab) -> Result<Run> {
    let mut all = Vec::new();
    for qps in [1, 1024] {
        let pair = Pair::new(lab, qps)?;
        let run = pinned(lab, || {
            let note = format!("8 B inline WRITE, batches of {BATCH}, {RATE_WINDOW} under way, all signaled");
            let name = format!("rdma-msg-rate-{qps}qp");
            let peer = "rings alone, no RDMA";
            let mut figure = Figure::new(&name, "M/s", 1e-6, peer, note);
            let time = lab.window.min(rings::MEASUREMENT_MAX);
            for round in 0..lab.rounds {
                figure.round(
                    lab,
                    round,
                    || pair.rate(lab.window),
                    || rings::as_specified(lab.cpus, qps, BATCH, time),
                )?;
            }
            Ok(vec![figure.outcome()?])
        })?;
        if let Run::Measured(figures) = run {
            all.extend(figures);
        }
    }
    Ok(Run::Measured(all))
}

/// `rdma-write-lat`.
pub fn write_lat(lab: &Lab) -> Result<Run> {
    let pair = Pair::new(lab, 1)?;
    pinned(lab, || {
        let note =
            "8 B inline WRITE, one thread drives both ends and polls memory; one way is half a ping-pong";
        let names = ["rdma-write-lat-p50", "rdma-write-lat-p99"];
        let peer = "post to completion, rings alone";
        let mut figures = names.map(|name| Figure::new(name, "µs one way", 1.0, peer, note.into()));
        let time = lab.window.min(rings::MEASUREMENT_MAX);
        for round in 0..lab.rounds {
            let ours = pair.latency(PINGS)?;
            let theirs = rings::alone(lab.cpus, time)? * 1e-3;
            for (figure, value) in figures.iter_mut().zip(ours) {
                figure.round(lab, round, || Ok(value), || Ok(theirs))?;
            }
        }
        figures.iter().map(Figure::outcome).collect()
    })
}
