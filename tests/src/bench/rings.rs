//! The rings of the RDMA function without RDMA: the peer of benches whose driver and device exchange work requests.
//!
//! A driver and a device share memory as `proto/device/SPEC.md` lays it out. The driver writes 64-byte work requests, rings a
//! doorbell and waits for 64-byte completions; the device copies each request and completes it. (Other layouts that were measured before
//! this one was frozen are in the history of this file: scanned producer indices, a phase bit in each request, requests inline in one
//! ring, `no_kick` in the line of the count of taken doorbells.)

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use vnic_device::doorbell::{Doorbell, Kind};

use super::exchange::pin;
use super::report::Summary;

/// Work requests that are under way at most when rates are measured; also the blocks of a send queue.
const WINDOW: u32 = 128;
/// Entries of the completion queue.
const CQ_ENTRIES: u32 = 2 * WINDOW;
/// Entries of the doorbell ring.
const RING_ENTRIES: u32 = 256;
/// Doorbells that the device takes before it looks elsewhere.
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
    /// `no_kick`.
    wake: Apart<AtomicU32>,
    /// Doorbells that the device has taken.
    taken: Apart<AtomicU32>,
    stop: AtomicBool,
}

impl Memory {
    fn new(qps: u32) -> Memory {
        Memory {
            sends: lines(qps * WINDOW),
            completions: lines(CQ_ENTRIES),
            consumer: Apart::default(),
            bells: (0..RING_ENTRIES).map(|_| AtomicU64::new(0)).collect(),
            wake: Apart(AtomicU32::new(1)),
            taken: Apart::default(),
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
    /// Doorbells rung, and how many of them are known to be taken.
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
    fn request(&mut self) -> [u64; 8] {
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
            0,
        ]
    }

    /// Writes `batch` requests into a QP's send queue.
    fn write(&mut self, qp: u32, batch: u32) -> u32 {
        let first = self.posted[qp as usize];
        for index in first..first + batch {
            let words = self.request();
            self.memory.block(qp, index).publish(words);
        }
        self.posted[qp as usize] = first + batch;
        first + batch
    }

    /// Posts a batch to one QP.
    fn post(&mut self, qp: u32, batch: u32) {
        let index = self.write(qp, batch);
        while self.rung - self.taken == RING_ENTRIES {
            self.taken = self.memory.taken.0.load(Ordering::Acquire);
        }
        let bell = Doorbell {
            kind: Kind::Send,
            number: qp,
            index,
        };
        let bits = bell.to_bits(phase(self.rung, RING_ENTRIES) != 0);
        self.memory.bells[(self.rung % RING_ENTRIES) as usize].store(bits, Ordering::Release);
        self.rung += 1;
        fence(Ordering::SeqCst);
        self.kicks += u64::from(self.memory.wake.0.load(Ordering::Relaxed) == 0);
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
    /// Requests taken from each send queue.
    done: Vec<u32>,
    /// Doorbells that were taken, and how many of them the driver was told.
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

    /// Looks for doorbells, and carries out what was posted.
    fn look(&mut self) {
        let mut found = 0;
        while found < BURST {
            let bits = self.memory.bells[(self.taken % RING_ENTRIES) as usize].load(Ordering::Acquire);
            if bits & PHASE != phase(self.taken, RING_ENTRIES) {
                break;
            }
            self.taken += 1;
            found += 1;
            if let Some(bell) = Doorbell::from_bits(bits) {
                self.carry_out(bell.number, bell.index);
            }
        }
        // The driver hears what was taken when there is nothing more to do, and before the ring is full.
        let untold = self.taken - self.told;
        if untold > 0 && (found == 0 || untold >= RING_ENTRIES / 4) {
            self.memory.taken.0.store(self.taken, Ordering::Release);
            self.told = self.taken;
        }
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

/// Drives the rings for about `time` and gives the median over the chunks.
fn drive(driver: &mut Driver<'_>, batch: u32, what: What, time: Duration) -> f64 {
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
            driver.post(qp, batch);
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

/// What is measured of the rings.
fn measure(cpus: [usize; 2], qps: u32, batch: u32, what: What, time: Duration) -> Result<f64> {
    let memory = Memory::new(qps);
    let mut device = Device::new(&memory, qps);
    let drive = || {
        let mut driver = Driver::new(&memory, qps);
        // Every send queue is in some cache before it counts.
        drive(&mut driver, 1, What::Rate, time / 8);
        let value = drive(&mut driver, batch, what, time);
        let expected = (0..driver.next_id).fold(0, u64::wrapping_add);
        ensure!(driver.sum == expected, "a completion was lost or came twice");
        ensure!(driver.kicks == 0, "a device that is awake asked for a kick");
        Ok(value)
    };
    sides(cpus, &memory.stop, || device.look(), drive)
}

/// Work requests a second through the rings as specified, without RDMA: what a device could do at most.
pub fn as_specified(cpus: [usize; 2], qps: usize, batch: usize, time: Duration) -> Result<f64> {
    measure(cpus, qps as u32, batch as u32, What::Rate, time).map(|m| m * 1e6)
}

/// From post to completion of one work request, in ns, the same way.
pub fn alone(cpus: [usize; 2], time: Duration) -> Result<f64> {
    measure(cpus, 1, 1, What::Latency, time)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread plays both sides: every request completes once, over several laps of every ring.
    #[test]
    fn every_request_completes_once() {
        for (qps, batch) in [(1, 1), (1, 32), (8, 1), (8, 32)] {
            let memory = Memory::new(qps);
            let (mut driver, mut device) = (Driver::new(&memory, qps), Device::new(&memory, qps));
            for _ in 0..RING_ENTRIES {
                for _ in 0..WINDOW / batch {
                    let qp = driver.turn();
                    driver.post(qp, batch);
                }
                let mut looks = 0;
                let mut under_way = WINDOW;
                while under_way > 0 {
                    device.look();
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
            let value = measure(cpus, 2, 32, what, time).expect("the CPUs exist");
            assert!(value > 0.0, "{value}");
        }
    }
}
