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
use super::report::{Outcome, Summary, percentile};
use super::{Lab, Run, rings};

/// Bytes of a message of the bandwidth benches.
pub(super) const LARGE: usize = 64 << 10;
/// Places in a region that they use in turn: together as much as a level 2 cache has.
pub(super) const PLACES: usize = 16;
/// Messages under way.
pub(super) const WINDOW: usize = 16;
/// Work requests of a batch, and under way, of the rate bench.
pub(super) const BATCH: usize = 32;
pub(super) const RATE_WINDOW: usize = 128;
/// Ping-pongs of a round.
const PINGS: usize = 50_000;
/// Writes of a round for each of which the NIC has to be woken: enough for a 99.9th percentile.
const WOKEN: usize = 1000;
/// A pause after which its poll loop sleeps for sure.
const PAUSE: Duration = Duration::from_millis(1);
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
pub(super) struct Side {
    /// Everything else holds it, too.
    _device: Context,
    pd: ProtectionDomain,
    pub(super) cq: CompletionQueue,
    pub(super) region: MemoryRegion,
}

impl Side {
    /// The driver of `vf<index>`, with room for the completions of so many queue pairs.
    pub(super) fn open(product: &Product, index: usize, qps: usize) -> Result<Side> {
        let device = Device::open(&DeviceAddress::Socket(product.rdma_socket(index)))?;
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
    }
}

/// A connected queue pair at each of two adapters.
pub(super) fn connect(one: &Side, other: &Side) -> Result<[QueuePair<Rc>; 2]> {
    let options = ConnectOptions {
        gid_index: 1,
        path_mtu: Some(Mtu::Mtu4096),
        ..ConnectOptions::default()
    };
    let make = |s: &Side| {
        let builder = s.pd.qp::<Rc>(&s.cq, &s.cq);
        builder
            .max_send_wr(RATE_WINDOW as u32)
            .max_recv_wr(2 * WINDOW as u32)
            .max_inline(32)
            .build()
    };
    let ends = [make(one)?, make(other)?];
    ends[0].connect(&ends[1].endpoint(1)?, &options)?;
    ends[1].connect(&ends[0].endpoint(1)?, &options)?;
    Ok(ends)
}

/// Two adapters and connected queue pairs.
pub(super) struct Pair {
    _product: Product,
    pub(super) sides: [Side; 2],
    pub(super) qps: Vec<[QueuePair<Rc>; 2]>,
    /// Receives posted: they use the places in turn, as WRITEs do.
    received: AtomicUsize,
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(lab: &Lab, qps: usize) -> Result<Pair> {
        Pair::of(lab, qps, Product::start)
    }

    /// The same on a product that is started otherwise.
    pub(super) fn of(
        lab: &Lab,
        qps: usize,
        start: impl FnOnce(&Setup<'_>) -> Result<Product>,
    ) -> Result<Pair> {
        let dir = lab.part()?;
        let product = start(&Setup {
            dir: dir.path(),
            cpu: lab.cpus[0],
            adapters: 2,
            queue_pairs: 1,
            control_queue: false,
            anti_spoofing: true,
            // Jumbo frames: room for a path MTU of 4096.
            mtu: 9000,
            vnicd: lab.vnicd.as_deref(),
            first_guest: 0,
            uplinks: &[],
        })?;
        let sides = [Side::open(&product, 0, qps)?, Side::open(&product, 1, qps)?];
        let qps = (0..qps)
            .map(|_| connect(&sides[0], &sides[1]))
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
    pub(super) fn receive(&self) -> Result<()> {
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

    /// Ping-pongs of 8-byte writes that the other end sees in its memory: one way in µs, p50, p99 and p99.9.
    fn latency(&self, pings: usize) -> Result<[f64; 3]> {
        let mut times = Vec::with_capacity(pings);
        self.forget();
        for n in 1..=pings as u64 {
            let start = Instant::now();
            self.one_way(0, n)?;
            self.one_way(1, n)?;
            times.push(start.elapsed().as_secs_f64() * 1e6 / 2.0);
            self.poll_both()?;
        }
        self.drain_both()?;
        Ok(quantiles(times))
    }

    /// The same, each write by itself after a pause in which the NIC has fallen asleep.
    fn woken(&self, lab: &Lab) -> Result<[f64; 3]> {
        let mut times = Vec::with_capacity(WOKEN);
        self.forget();
        for n in 1..=WOKEN as u64 {
            lab.sleep(PAUSE)?;
            let start = Instant::now();
            self.one_way((n % 2) as usize, n)?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
            self.poll_both()?;
        }
        self.drain_both()?;
        Ok(quantiles(times))
    }

    /// Nothing of an earlier round is taken for an answer.
    fn forget(&self) {
        self.sides[1].region.store(0, 0);
        self.sides[0].region.store(0, 0);
    }

    /// A write, until it is seen.
    #[inline]
    fn one_way(&self, from: usize, n: u64) -> Result<()> {
        let target = &self.sides[1 - from].region;
        let word = n.to_le_bytes();
        let write = SendWr::write(Data::inline(&word), target.addr(), target.rkey()).signaled();
        self.qps[0][from].post_send(&[write])?;
        let (mut looks, mut since) = (0u32, None);
        while target.load(0) != n {
            spin_loop();
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(1 << 20) {
                let since = since.get_or_insert_with(Instant::now);
                ensure!(since.elapsed() < PATIENCE, "a write was lost");
            }
        }
        Ok(())
    }

    fn poll_both(&self) -> Result<()> {
        let mut done = [WorkCompletion::default(); 4];
        for side in &self.sides {
            let got = side.cq.poll(&mut done)?;
            for c in &done[..got] {
                c.ok()?;
            }
        }
        Ok(())
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

fn quantiles(mut times: Vec<f64>) -> [f64; 3] {
    times.sort_by(f64::total_cmp);
    [0.5, 0.99, 0.999].map(|part| percentile(&times, part))
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
        let polled =
            "8 B inline WRITE, one thread drives both ends and polls memory; one way is half a ping-pong";
        let woken = "the NIC slept before each WRITE: with the driver's kick and the poll loop's wake-up";
        let peer = "post to completion, rings alone";
        let names = ["p50", "p99", "p99.9"];
        let figure = |kind: &str, name: &str, note: &str| {
            Figure::new(
                &format!("rdma-write-lat-{kind}{name}"),
                "µs one way",
                1.0,
                peer,
                note.into(),
            )
        };
        let mut figures: Vec<Figure> = names.iter().map(|n| figure("", n, polled)).collect();
        figures.extend(names.iter().map(|n| figure("woken-", n, woken)));
        let time = lab.window.min(rings::MEASUREMENT_MAX);
        for round in 0..lab.rounds {
            let ours = [pair.latency(PINGS)?, pair.woken(lab)?].concat();
            let theirs = rings::alone(lab.cpus, time)? * 1e-3;
            for (figure, value) in figures.iter_mut().zip(ours) {
                figure.round(lab, round, || Ok(value), || Ok(theirs))?;
            }
        }
        figures.iter().map(Figure::outcome).collect()
    })
}
