//! The layout of the RDMA function's rings, tried before it was frozen: how a driver tells a device what it has posted.
//!
//! A driver and a device without RDMA share memory as `proto/device/SPEC.md` lays it out. The driver writes 64-byte work
//! requests and waits for 64-byte completions; the device copies each request and completes it. Only the way in which
//! the device learns of a post differs:
//!
//! * `doorbell`: as specified. 8-byte entries in one ring for all QPs, then a full fence and a look at `no_kick`.
//! * `doorbell-no-fence`: the same without fence and look: what kick suppression costs.
//! * `doorbell-one-line`: the same, with `no_kick` in the line in which the device counts what it has taken.
//! * `scanned`: a line for each QP holds its producer index, and the device looks at all of them.
//! * `phase`: a bit in each work request says that it is new, and the device looks at the head of each send queue.
//! * `inline`: all QPs post their work requests into one ring.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vnic_device::doorbell::{Doorbell, Kind};

use super::exchange::{self, pin};
use super::machine::RealTime;
use super::report::{Outcome, Summary};
use super::{EXCHANGE_TIME, Lab, Run};

/// Work requests that are under way at most when rates are measured; also the blocks of a send queue.
const WINDOW: u32 = 128;
/// Entries of the completion queue.
const CQ_ENTRIES: u32 = 2 * WINDOW;
/// Entries of the doorbell ring, and of the ring that carries work requests.
const RING_ENTRIES: u32 = 256;
/// Doorbells, or work requests, that the device takes before it looks elsewhere.
const BURST: usize = 32;
/// The longest a single measurement lasts: there are many.
pub const MEASUREMENT_MAX: Duration = Duration::from_millis(40);
/// Posts that are timed together: long enough for the clock, short enough to lie between two disturbances.
const CHUNK: u32 = 64;

const PHASE: u64 = 1 << 63;

/// A cache line of shared memory; two of them apart, so that the adjacent line's prefetcher joins nothing.
#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

/// 64 bytes of shared memory: a work request, a completion or a record.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; 8]);

impl Line {
    /// Writes all, the last word last: whoever sees that one sees all.
    fn publish(&self, words: [u64; 8]) {
        let [head @ .., tail] = &self.0;
        for (to, word) in head.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        tail.store(words[7], Ordering::Release);
    }

    fn copy(&self) -> [u64; 8] {
        std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed))
    }

    fn tail(&self) -> u64 {
        self.0[7].load(Ordering::Acquire)
    }
}

fn lines(n: u32) -> Box<[Line]> {
    (0..n).map(|_| Line::default()).collect()
}

/// Phase bit of lap after lap, beginning with 1.
fn phase(index: u32, entries: u32) -> u64 {
    if index & entries == 0 { PHASE } else { 0 }
}

/// What both sides see.
struct Memory {
    /// Send queues, one behind the other.
    sends: Box<[Line]>,
    completions: Box<[Line]>,
    /// Completions that the driver has taken.
    consumer: Apart<AtomicU32>,
    bells: Box<[AtomicU64]>,
    /// Line of `no_kick`; its second word counts doorbells in the layout that has both in one line.
    wake: Apart<[AtomicU32; 2]>,
    /// Doorbells or work requests that the device has taken.
    taken: Apart<AtomicU32>,
    /// Producer indices of the send queues.
    records: Box<[Line]>,
    /// The ring of all QPs' work requests.
    requests: Box<[Line]>,
    stop: AtomicBool,
}

impl Memory {
    fn new(qps: u32) -> Memory {
        Memory {
            sends: lines(qps * WINDOW),
            completions: lines(CQ_ENTRIES),
            consumer: Apart::default(),
            bells: (0..RING_ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            wake: Apart([AtomicU32::new(1), AtomicU32::new(0)]),
            taken: Apart::default(),
            records: lines(qps),
            requests: lines(RING_ENTRIES),
            stop: AtomicBool::new(false),
        }
    }

    fn block(&self, qp: u32, index: u32) -> &Line {
        &self.sends[(qp * WINDOW + index % WINDOW) as usize]
    }
}

/// The driver's own state.
struct Driver<'a> {
    memory: &'a Memory,
    qps: u32,
    /// Producer index of each send queue.
    posted: Vec<u32>,
    /// Entries written to the one ring, and how many of them are known to be taken.
    rung: u32,
    taken: u32,
    /// Completions taken.
    consumer: u32,
    next_id: u64,
    /// Sum of the ids that came back.
    sum: u64,
    /// The QP that posted last.
    qp: u32,
    kicks: u64,
}

impl<'a> Driver<'a> {
    fn new(memory: &'a Memory, qps: u32) -> Driver<'a> {
        Driver {
            memory,
            qps,
            posted: vec![0; qps as usize],
            rung: 0,
            taken: 0,
            consumer: 0,
            next_id: 0,
            sum: 0,
            qp: 0,
            kicks: 0,
        }
    }

    /// A QP that a prefetcher does not expect. Visits all of a power of two.
    fn turn(&mut self) -> u32 {
        self.qp = self.qp.wrapping_mul(261).wrapping_add(7) % self.qps;
        self.qp
    }

    /// A WRITE of 8 bytes: one element.
    fn request(&mut self, last: u64) -> [u64; 8] {
        let id = self.next_id;
        self.next_id += 1;
        [
            id,
            0x0001_0200,
            0x7f00_0000_1000,
            0x1200,
            0x7f00_0000_2000,
            0x0000_1300_0000_0008,
            0,
            last,
        ]
    }

    /// Writes `batch` requests into a QP's send queue.
    fn write(&mut self, qp: u32, batch: u32, last: impl Fn(u32) -> u64) -> u32 {
        let first = self.posted[qp as usize];
        for index in first..first + batch {
            let words = self.request(last(index));
            self.memory.block(qp, index).publish(words);
        }
        self.posted[qp as usize] = first + batch;
        first + batch
    }

    /// Waits until the one ring has room for `n` more entries.
    fn room(&mut self, n: u32, taken: &AtomicU32) {
        while self.rung - self.taken + n > RING_ENTRIES {
            self.taken = taken.load(Ordering::Acquire);
        }
    }

    /// Takes what has completed; says how many.
    fn poll(&mut self) -> u32 {
        let before = self.consumer;
        loop {
            let entry = &self.memory.completions[(self.consumer % CQ_ENTRIES) as usize];
            if entry.tail() & PHASE != phase(self.consumer, CQ_ENTRIES) {
                break;
            }
            self.sum = self.sum.wrapping_add(entry.0[0].load(Ordering::Relaxed));
            self.consumer += 1;
        }
        if self.consumer != before {
            self.memory.consumer.0.store(self.consumer, Ordering::Release);
        }
        self.consumer - before
    }
}

/// The device's own state.
struct Device<'a> {
    memory: &'a Memory,
    qps: u32,
    /// Requests taken from each send queue.
    done: Vec<u32>,
    /// Entries of the one ring that were taken, and how many of them the driver was told.
    taken: u32,
    told: u32,
    producer: u32,
    /// Completions that the driver is known to have taken.
    consumer: u32,
}

impl<'a> Device<'a> {
    fn new(memory: &'a Memory, qps: u32) -> Device<'a> {
        Device {
            memory,
            qps,
            done: vec![0; qps as usize],
            taken: 0,
            told: 0,
            producer: 0,
            consumer: 0,
        }
    }

    /// Carries out and completes a request; the queue's requests below `consumed` are done.
    fn complete(&mut self, qp: u32, request: [u64; 8], consumed: u32) {
        while self.producer - self.consumer == CQ_ENTRIES {
            self.consumer = self.memory.consumer.0.load(Ordering::Acquire);
        }
        let entry = &self.memory.completions[(self.producer % CQ_ENTRIES) as usize];
        let last = phase(self.producer, CQ_ENTRIES) | 1 << 40 | u64::from(consumed);
        entry.publish([request[0], u64::from(qp), 0, 0, 0, 0, 0, last]);
        self.producer += 1;
    }

    /// Takes the requests of a queue up to an index.
    fn carry_out(&mut self, qp: u32, up_to: u32) {
        let first = self.done[qp as usize];
        for index in first..up_to {
            let request = self.memory.block(qp, index).copy();
            self.complete(qp, request, index + 1);
        }
        self.done[qp as usize] = up_to;
    }

    /// Tells the driver what was taken: when there is nothing more to do, and before the ring is full.
    fn tell(&mut self, to: &AtomicU32, idle: bool) {
        let untold = self.taken - self.told;
        if untold > 0 && (idle || untold >= RING_ENTRIES / 4) {
            to.store(self.taken, Ordering::Release);
            self.told = self.taken;
        }
    }
}

/// A way to tell the device.
trait Layout {
    /// Posts a batch to one QP.
    fn post(driver: &mut Driver<'_>, qp: u32, batch: u32);
    /// Looks for posts, and carries out what it finds.
    fn look(device: &mut Device<'_>);
}

struct DoorbellRing<const KICK: bool, const ONE_LINE: bool>;

impl<const KICK: bool, const ONE_LINE: bool> DoorbellRing<KICK, ONE_LINE> {
    fn taken(memory: &Memory) -> &AtomicU32 {
        if ONE_LINE {
            &memory.wake.0[1]
        } else {
            &memory.taken.0
        }
    }
}

impl<const KICK: bool, const ONE_LINE: bool> Layout for DoorbellRing<KICK, ONE_LINE> {
    fn post(driver: &mut Driver<'_>, qp: u32, batch: u32) {
        let index = driver.write(qp, batch, |_| 0);
        driver.room(1, Self::taken(driver.memory));
        let bell = Doorbell {
            kind: Kind::Send,
            number: qp,
            index,
        };
        let bits = bell.to_bits(phase(driver.rung, RING_ENTRIES) != 0);
        driver.memory.bells[(driver.rung % RING_ENTRIES) as usize].store(bits, Ordering::Release);
        driver.rung += 1;
        if KICK {
            fence(Ordering::SeqCst);
            driver.kicks += u64::from(driver.memory.wake.0[0].load(Ordering::Relaxed) == 0);
        }
    }

    fn look(device: &mut Device<'_>) {
        let mut found = 0;
        while found < BURST {
            let bits = device.memory.bells[(device.taken % RING_ENTRIES) as usize].load(Ordering::Acquire);
            if bits & PHASE != phase(device.taken, RING_ENTRIES) {
                break;
            }
            device.taken += 1;
            found += 1;
            if let Some(bell) = Doorbell::from_bits(bits) {
                device.carry_out(bell.number, bell.index);
            }
        }
        device.tell(Self::taken(device.memory), found == 0);
    }
}

struct Scanned;

impl Layout for Scanned {
    fn post(driver: &mut Driver<'_>, qp: u32, batch: u32) {
        let index = driver.write(qp, batch, |_| 0);
        driver.memory.records[qp as usize].0[0].store(index.into(), Ordering::Release);
    }

    fn look(device: &mut Device<'_>) {
        for qp in 0..device.qps {
            let index = device.memory.records[qp as usize].0[0].load(Ordering::Acquire) as u32;
            if index != device.done[qp as usize] {
                device.carry_out(qp, index);
            }
        }
    }
}

struct PhaseBit;

impl Layout for PhaseBit {
    fn post(driver: &mut Driver<'_>, qp: u32, batch: u32) {
        driver.write(qp, batch, |index| phase(index, WINDOW));
    }

    fn look(device: &mut Device<'_>) {
        for qp in 0..device.qps {
            for _ in 0..BURST {
                let index = device.done[qp as usize];
                if device.memory.block(qp, index).tail() & PHASE != phase(index, WINDOW) {
                    break;
                }
                device.carry_out(qp, index + 1);
            }
        }
    }
}

struct Inline;

impl Layout for Inline {
    fn post(driver: &mut Driver<'_>, qp: u32, batch: u32) {
        let memory = driver.memory;
        driver.room(batch, &memory.taken.0);
        for _ in 0..batch {
            let words = driver.request(phase(driver.rung, RING_ENTRIES) | u64::from(qp));
            memory.requests[(driver.rung % RING_ENTRIES) as usize].publish(words);
            driver.rung += 1;
        }
        fence(Ordering::SeqCst);
        driver.kicks += u64::from(memory.wake.0[0].load(Ordering::Relaxed) == 0);
    }

    fn look(device: &mut Device<'_>) {
        let memory = device.memory;
        let mut found = 0;
        while found < BURST {
            let line = &memory.requests[(device.taken % RING_ENTRIES) as usize];
            let last = line.tail();
            if last & PHASE != phase(device.taken, RING_ENTRIES) {
                break;
            }
            device.taken += 1;
            found += 1;
            device.complete(last as u32, line.copy(), device.taken);
        }
        device.tell(&memory.taken.0, found == 0);
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// ns from before a batch is posted until its last completion is taken; nothing else is under way.
    Latency,
    /// Million work requests a second, with [`WINDOW`] under way.
    Rate,
}

/// Drives a layout for about `time` and gives the median over the chunks.
fn drive<L: Layout>(driver: &mut Driver<'_>, batch: u32, what: What, time: Duration) -> f64 {
    let ahead = match what {
        What::Latency => batch,
        What::Rate => WINDOW,
    };
    // A chunk of a rate is longer: what is under way at its ends must not count.
    let (posts, unit) = match what {
        What::Latency => (CHUNK, 1e9 / f64::from(CHUNK)),
        What::Rate => (CHUNK * WINDOW / batch, f64::from(CHUNK * WINDOW) / 1e6),
    };
    let mut chunks = Vec::new();
    let start = Instant::now();
    let (mut under_way, mut begin) = (0, start);
    loop {
        for _ in 0..posts {
            while under_way + batch > ahead {
                under_way -= driver.poll();
            }
            let qp = driver.turn();
            L::post(driver, qp, batch);
            under_way += batch;
            while what == What::Latency && under_way > 0 {
                under_way -= driver.poll();
            }
        }
        let end = Instant::now();
        let took = end.duration_since(begin).as_secs_f64();
        chunks.push(if what == What::Latency {
            took * unit
        } else {
            unit / took
        });
        begin = end;
        if end.duration_since(start) >= time {
            break;
        }
    }
    while under_way > 0 {
        under_way -= driver.poll();
    }
    Summary::of(&chunks).map_or(0.0, |s| s.median)
}

/// Runs the two sides on their CPUs, each pinned; the device's until `stop`.
fn sides<T: Send>(
    cpus: [usize; 2],
    stop: &AtomicBool,
    mut look: impl FnMut() + Send,
    drive: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    let ready = Barrier::new(2);
    let ready = &ready;
    std::thread::scope(|s| {
        let device = s.spawn(move || -> Result<()> {
            let pinned = pin(cpus[0]);
            ready.wait();
            pinned?;
            while !stop.load(Ordering::Relaxed) {
                look();
            }
            Ok(())
        });
        let driver = s.spawn(move || -> Result<T> {
            let pinned = pin(cpus[1]);
            ready.wait();
            let value = pinned.and_then(|()| drive());
            stop.store(true, Ordering::Relaxed);
            value
        });
        let value = driver
            .join()
            .map_err(|_| anyhow::anyhow!("the driver's thread panicked"))?;
        device
            .join()
            .map_err(|_| anyhow::anyhow!("the device's thread panicked"))??;
        value
    })
}

/// A layout's figure.
fn measure<L: Layout>(cpus: [usize; 2], qps: u32, batch: u32, what: What, time: Duration) -> Result<f64> {
    let memory = Memory::new(qps);
    let mut device = Device::new(&memory, qps);
    let drive = || {
        let mut driver = Driver::new(&memory, qps);
        // Every send queue and record is in some cache before it counts.
        drive::<L>(&mut driver, 1, What::Rate, time / 8);
        let value = drive::<L>(&mut driver, batch, what, time);
        let expected = (0..driver.next_id).fold(0, u64::wrapping_add);
        ensure!(driver.sum == expected, "a completion was lost or came twice");
        ensure!(driver.kicks == 0, "a device that is awake asked for a kick");
        Ok(value)
    };
    sides(cpus, &memory.stop, || L::look(&mut device), drive)
}

/// ns that a word takes to the other CPU and back: the least that any layout can do.
fn round_trip(cpus: [usize; 2], time: Duration) -> Result<f64> {
    let [there, back] = [Apart(AtomicU64::new(0)), Apart(AtomicU64::new(0))];
    let stop = AtomicBool::new(false);
    let echo = || back.0.store(there.0.load(Ordering::Acquire), Ordering::Release);
    let drive = || {
        let (mut chunks, mut word) = (Vec::new(), 0);
        let start = Instant::now();
        while start.elapsed() < time {
            let begin = Instant::now();
            for _ in 0..CHUNK {
                word += 1;
                there.0.store(word, Ordering::Release);
                while back.0.load(Ordering::Acquire) != word {}
            }
            chunks.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(CHUNK));
        }
        Summary::of(&chunks)
            .map(|s| s.median)
            .context("the time was too short")
    };
    sides(cpus, &stop, echo, drive)
}

type Measure = fn([usize; 2], u32, u32, What, Duration) -> Result<f64>;

const LAYOUTS: [(&str, Measure); 6] = [
    ("doorbell", measure::<DoorbellRing<true, false>>),
    ("doorbell-no-fence", measure::<DoorbellRing<false, false>>),
    ("doorbell-one-line", measure::<DoorbellRing<true, true>>),
    ("scanned", measure::<Scanned>),
    ("phase", measure::<PhaseBit>),
    ("inline", measure::<Inline>),
];
/// Queue pairs.
const QPS: [u32; 2] = [1, 1024];
/// Work requests that are posted together.
const BATCHES: [u32; 2] = [1, 32];

/// One figure in the making.
struct Figure {
    name: String,
    measure: Measure,
    qps: u32,
    batch: u32,
    what: What,
    rounds: Vec<Round>,
}

/// A measurement, and what the two CPUs could do just before it.
struct Round {
    value: f64,
    round_trip: f64,
    exchange: f64,
}

impl Figure {
    fn measure(&mut self, lab: &Lab, time: Duration) -> Result<()> {
        let round = Round {
            round_trip: round_trip(lab.cpus, EXCHANGE_TIME / 6)?,
            exchange: exchange::measure(lab.cpus, EXCHANGE_TIME / 6)?,
            value: (self.measure)(lab.cpus, self.qps, self.batch, self.what, time)?,
        };
        self.rounds.push(round);
        Ok(())
    }

    /// `near` is the shortest round trip of the run: CPUs are near each other within twice that.
    fn outcome(&self, near: f64) -> Result<Outcome> {
        let summary = |of: &dyn Fn(&Round) -> f64| {
            let values: Vec<f64> = self.rounds.iter().map(of).collect();
            Summary::of(&values).context("no rounds")
        };
        let latency = self.what == What::Latency;
        let peer = |r: &Round| if latency { r.round_trip } else { r.exchange / 1e6 };
        let share = |name: &str, wanted: bool| {
            let rounds = self
                .rounds
                .iter()
                .filter(|r| (r.round_trip < 2.0 * near) == wanted);
            let values: Vec<f64> = rounds.map(|r| r.value).collect();
            let median = Summary::of(&values)?.median;
            Some(format!(
                "CPUs {name} each other: {median:.1} ({} rounds)",
                values.len()
            ))
        };
        Ok(Outcome {
            name: self.name.clone(),
            unit: if latency {
                "ns, post to completion"
            } else {
                "M work requests/s"
            },
            value: summary(&|r| r.value)?,
            peer: Some((
                if latency {
                    "bare round trip"
                } else {
                    "bare ring exchange"
                },
                summary(&peer)?,
            )),
            ratio: Some(summary(&|r| r.value / peer(r))?),
            bare_exchange: Some(summary(&|r| r.exchange)?.median),
            rounds: self.rounds.len(),
            details: Vec::new(),
            notes: [share("near", true), share("far from", false)]
                .into_iter()
                .flatten()
                .collect(),
        })
    }
}

fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    for (what, kind) in [(What::Latency, "latency"), (What::Rate, "rate")] {
        for qps in QPS {
            for batch in BATCHES {
                figures.extend(LAYOUTS.iter().map(|(layout, measure)| Figure {
                    name: format!("rings-{kind}-{qps}qp-batch{batch}-{layout}"),
                    measure: *measure,
                    qps,
                    batch,
                    what,
                    rounds: Vec::new(),
                }));
            }
        }
    }
    figures
}

/// Work requests a second through the rings as specified, without RDMA: what a device could do at most.
pub fn as_specified(cpus: [usize; 2], qps: usize, batch: usize, time: Duration) -> Result<f64> {
    measure::<DoorbellRing<true, false>>(cpus, qps as u32, batch as u32, What::Rate, time).map(|m| m * 1e6)
}

/// From post to completion of one work request, in ns, the same way.
pub fn alone(cpus: [usize; 2], time: Duration) -> Result<f64> {
    measure::<DoorbellRing<true, false>>(cpus, 1, 1, What::Latency, time)
}

/// `rings`.
pub fn run(lab: &Lab) -> Result<Run> {
    let time = lab.window.min(MEASUREMENT_MAX);
    let mut figures = figures();
    let _priority = lab
        .realtime
        .then(|| RealTime::raise(&[std::process::id()]))
        .transpose()?;
    for round in 0..lab.rounds {
        // Layouts take turns within a round, and in the other order in the next.
        let mut order: Vec<usize> = (0..figures.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for i in order {
            lab.sleep(Duration::ZERO)?;
            figures[i].measure(lab, time)?;
        }
        eprintln!("rings round {}/{}", round + 1, lab.rounds);
    }
    let trips = figures.iter().flat_map(|f| &f.rounds).map(|r| r.round_trip);
    let near = trips.fold(f64::INFINITY, f64::min);
    Ok(Run::Measured(
        figures.iter().map(|f| f.outcome(near)).collect::<Result<_>>()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread plays both sides: every request completes once, over several laps of every ring.
    fn completes_all<L: Layout>() {
        for (qps, batch) in [(1, 1), (1, 32), (8, 1), (8, 32)] {
            let memory = Memory::new(qps);
            let (mut driver, mut device) = (Driver::new(&memory, qps), Device::new(&memory, qps));
            for _ in 0..RING_ENTRIES {
                for _ in 0..WINDOW / batch {
                    let qp = driver.turn();
                    L::post(&mut driver, qp, batch);
                }
                let mut looks = 0;
                let mut under_way = WINDOW;
                while under_way > 0 {
                    L::look(&mut device);
                    under_way -= driver.poll();
                    looks += 1;
                    assert!(
                        looks < 1000,
                        "{qps} QPs, batches of {batch}: {under_way} never complete"
                    );
                }
            }
            let expected = (0..driver.next_id).sum::<u64>();
            assert_eq!((driver.sum, driver.kicks), (expected, 0));
        }
    }

    #[test]
    fn every_layout_completes_every_request_once() {
        completes_all::<DoorbellRing<true, false>>();
        completes_all::<DoorbellRing<false, false>>();
        completes_all::<DoorbellRing<true, true>>();
        completes_all::<Scanned>();
        completes_all::<PhaseBit>();
        completes_all::<Inline>();
    }

    #[test]
    fn all_queue_pairs_have_a_turn() {
        let memory = Memory::new(1024);
        let mut driver = Driver::new(&memory, 1024);
        let mut seen: Vec<u32> = (0..1024).map(|_| driver.turn()).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 1024);
    }

    #[test]
    fn two_threads_measure_something() {
        let time = Duration::from_millis(5);
        let cpus = [
            0,
            usize::from(std::thread::available_parallelism().is_ok_and(|n| n.get() > 1)),
        ];
        for what in [What::Latency, What::Rate] {
            let value =
                measure::<DoorbellRing<true, false>>(cpus, 2, 32, what, time).expect("the CPUs exist");
            assert!(value > 0.0, "{value}");
        }
        assert!(round_trip(cpus, time).expect("the CPUs exist") > 0.0);
    }
}
