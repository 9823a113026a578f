//! The work whose instructions are counted: steps of guests, and the rounds in which the data core does what they ask for.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use vnic_backend::{ClockGuard, VirtualClock};
use vnic_verbs::{Data, SendWr, WorkCompletion};

use super::super::Lab;
use super::super::ethernet::configure;
use super::super::product::{Product, Setup};
use super::super::rdma::{BATCH, LARGE, PLACES, Pair, Side};
use super::super::testpmd::guest_mac;
use crate::driver::packets::{Flow, udp};
use crate::driver::{Guest, NetHdr, Options, feature};

/// Frames that a guest puts into its ring at once.
const BURST: usize = 32;
/// Bursts before counting, until rings have been all round and tables are filled; and bursts that are counted.
const WARM: usize = 24;
const COUNTED: usize = 64;
/// The most rounds that anything takes.
const ROUNDS_MAX: u64 = 1000;

/// A case.
pub struct Case {
    /// Its name in the file.
    pub name: &'static str,
    /// Instructions for what.
    pub unit: &'static str,
    /// What is in it.
    pub what: &'static str,
}

const FRAME: &str = "instructions per frame";
const REQUEST: &str = "instructions per work request";
const PACKET: &str = "instructions per packet";
const ROUND: &str = "instructions per round";

/// All cases.
pub const CASES: &[Case] = &[
    case(
        "eth-64",
        FRAME,
        "64 B from one adapter to another, looked up, bursts of 32, a round of the core for each",
    ),
    case(
        "eth-64-flood",
        FRAME,
        "the same to an unknown address, flooded to the one other adapter (eth-loop)",
    ),
    case(
        "eth-64-qos",
        FRAME,
        "eth-64 with trust DSCP, two ETS classes and two limits that hold nothing up (eth-qos)",
    ),
    case("eth-64-packed", FRAME, "eth-64 with packed rings at both ends"),
    case(
        "eth-64-rss",
        FRAME,
        "eth-64 of 32 flows to an adapter whose driver spreads them by RSS over four queues",
    ),
    case("eth-1514", FRAME, "eth-64 with frames of 1514 B"),
    case(
        "eth-drop",
        FRAME,
        "64 B whose destination the switch does not know, with anti-spoofing: dropped (eth-drain)",
    ),
    case(
        "idle-2",
        ROUND,
        "a round of a core with 2 adapters whose drivers run and are silent",
    ),
    case("idle-64", ROUND, "the same with 64 adapters"),
    case(
        "write-8",
        REQUEST,
        "8 B inline WRITE between two adapters, 4 batches of 32, one queue pair: doorbell to completion",
    ),
    case(
        "write-8-driver",
        REQUEST,
        "the driver of write-8: posting, and polling for the completion",
    ),
    case("read-8", REQUEST, "8 B READ, 4 batches of 32"),
    case(
        "send-64",
        REQUEST,
        "64 B SEND, batches of 32: receives taken, completions at both ends",
    ),
    case(
        "send-8-alone",
        REQUEST,
        "8 B inline SEND by itself, as in a ping-pong: the round that takes it and completes it at the receiver",
    ),
    case(
        "write-64k",
        PACKET,
        "64 KiB WRITE, 4 at a time, path MTU 4096: a packet of 16",
    ),
    case(
        "write-8-1024qp",
        REQUEST,
        "write-8 over 1024 queue pairs, a batch of 32 for each of them in turn",
    ),
    case(
        "wire-out",
        PACKET,
        "64 KiB WRITE to another NIC by a port of kind mesh, path MTU 4096, ICRC made: a packet, and its part of acknowledges",
    ),
    case(
        "wire-in",
        PACKET,
        "the NIC that gets them: ICRC checked, bytes placed, acknowledged",
    ),
];

const fn case(name: &'static str, unit: &'static str, what: &'static str) -> Case {
    Case { name, unit, what }
}

/// Callgrind writes what it has counted when this returns.
#[inline(never)]
fn boundary(part: &mut u32) {
    *black_box(part) += 1;
}

/// What a driver does.
type Work<'a> = &'a mut dyn FnMut() -> Result<usize>;

/// What the driver does in here is counted.
#[inline(never)]
fn driver_at_work(work: Work<'_>) -> Result<usize> {
    let n = work()?;
    Ok(black_box(n))
}

/// What it does in here is not.
fn uncounted(work: Work<'_>) -> Result<usize> {
    work()
}

/// Counts parts as callgrind does.
pub struct Meter {
    part: u32,
}

/// What was counted: in which part, and for how many units.
#[derive(Debug, Clone, Copy)]
struct Count {
    part: u32,
    units: usize,
}

impl Meter {
    /// Counts what is done in there so often; each time it answers how many units that was.
    fn count(&mut self, times: usize, mut work: impl FnMut(usize) -> Result<usize>) -> Result<Count> {
        for i in 0..WARM {
            work(i)?;
        }
        let mut units = 0;
        let part = self.part(|| {
            for i in 0..times {
                units += work(i)?;
            }
            Ok(())
        })?;
        Ok(Count { part, units })
    }

    /// Counts what is done in there; answers the part's number.
    pub fn part(&mut self, work: impl FnOnce() -> Result<()>) -> Result<u32> {
        boundary(&mut self.part);
        work()?;
        boundary(&mut self.part);
        Ok(self.part)
    }

    /// The same, for a case.
    fn case(&mut self, name: &str, work: impl FnMut(usize) -> Result<usize>) -> Result<()> {
        let count = self.count(COUNTED, work)?;
        println!("{name} {} {}", count.units, count.part);
        Ok(())
    }
}

/// Runs all cases; prints a line for each.
pub fn main(lab: &Lab) -> Result<()> {
    let mut meter = Meter { part: 0 };
    let plain = Ethernet {
        len: 60,
        known: true,
        qos: false,
        packed: false,
    };
    ethernet(lab, &mut meter, "eth-64", plain)?;
    ethernet(
        lab,
        &mut meter,
        "eth-64-flood",
        Ethernet {
            known: false,
            ..plain
        },
    )?;
    ethernet(lab, &mut meter, "eth-64-qos", Ethernet { qos: true, ..plain })?;
    ethernet(
        lab,
        &mut meter,
        "eth-64-packed",
        Ethernet {
            packed: true,
            ..plain
        },
    )?;
    ethernet(lab, &mut meter, "eth-1514", Ethernet { len: 1514, ..plain })?;
    spread(lab, &mut meter)?;
    dropped(lab, &mut meter)?;
    idle(lab, &mut meter, "idle-2", 2)?;
    idle(lab, &mut meter, "idle-64", 64)?;
    rdma(lab, &mut meter)?;
    many(lab, &mut meter)?;
    super::wire::run(lab, &mut meter)
}

/// Time passes slowly: so many rounds of these cases are far from any timer.
pub fn clock() -> Arc<VirtualClock> {
    VirtualClock::new(Duration::from_micros(1))
}

/// Guests with running drivers.
fn attach(product: &Product, n: usize, options: &Options) -> Result<Vec<Guest>> {
    let guests = (0..n).map(|i| Guest::attach(product.socket(i), options.clone()));
    let guests = guests.collect::<Result<Vec<_>>>()?;
    product.wait_up(n, Duration::from_secs(60))?;
    Ok(guests)
}

fn start(
    lab: &Lab,
    dir: &std::path::Path,
    adapters: usize,
    anti_spoofing: bool,
    clock: &Arc<VirtualClock>,
) -> Result<Product> {
    let setup = Setup {
        anti_spoofing,
        ..lab.setup(dir, adapters)
    };
    Product::start_virtual(&setup, clock.clone())
}

/// A UDP frame from one guest to another.
fn frame(from: usize, to: usize, len: usize, port: u16) -> Result<Vec<u8>> {
    let flow = Flow {
        to: guest_mac(to).parse()?,
        from: guest_mac(from).parse()?,
        v6: false,
        vlan: None,
        port,
    };
    // Ethernet, IPv4 and UDP headers.
    Ok(udp(&flow, &vec![0x5a; len - 42]))
}

/// Puts a burst of these frames into a guest's ring.
fn burst(guest: &mut Guest, frames: &[Vec<u8>]) -> Result<()> {
    for frame in frames.iter().cycle().take(BURST) {
        ensure!(guest.stage(0, frame, NetHdr::default()), "the ring is full");
    }
    guest.tx(0).ring.publish();
    Ok(())
}

#[derive(Debug, Clone, Copy)]
struct Ethernet {
    /// Bytes of a frame without FCS.
    len: usize,
    /// The switch knows where the destination is.
    known: bool,
    qos: bool,
    packed: bool,
}

fn ethernet(lab: &Lab, meter: &mut Meter, name: &str, what: Ethernet) -> Result<()> {
    let (dir, clock) = (lab.part()?, clock());
    let product = start(lab, dir.path(), 2, false, &clock)?;
    if what.qos {
        configure(&product, 2)?;
    }
    let options = match what.packed {
        true => Options::default().with(feature::RING_PACKED),
        false => Options::default(),
    };
    let mut guests = attach(&product, 2, &options)?;
    let [a, b] = &mut guests[..] else {
        unreachable!("two were made")
    };
    // A guest's own address is known from the beginning, one beyond them to nobody.
    let there = frame(0, if what.known { 1 } else { 9 }, what.len, 1000)?;
    let mut got = Vec::new();
    let held = clock.hold();
    meter.case(name, |_| {
        burst(a, std::slice::from_ref(&there))?;
        held.rounds(1);
        for _ in 0..BURST {
            ensure!(
                b.try_recv_into(0, &mut got).is_some(),
                "{name}: a round did not carry a burst"
            );
        }
        ensure!(got == there, "{name}: another frame arrived");
        ensure!(a.reclaim(0) == 0, "{name}: a round did not complete a burst");
        Ok(BURST)
    })
}

/// Queue pairs of the case with RSS.
const PAIRS: u16 = 4;

fn spread(lab: &Lab, meter: &mut Meter) -> Result<()> {
    let (dir, clock) = (lab.part()?, clock());
    let setup = Setup {
        anti_spoofing: false,
        control_queue: true,
        queue_pairs: PAIRS,
        ..lab.setup(dir.path(), 2)
    };
    let product = Product::start_virtual(&setup, clock.clone())?;
    let options = Options {
        pairs: PAIRS,
        ..Options::default().with(feature::CTRL_VQ | feature::MQ | feature::RSS)
    };
    let mut guests = attach(&product, 2, &options)?;
    let [a, b] = &mut guests[..] else {
        unreachable!("two were made")
    };
    let table: Vec<u16> = (0..128).map(|i| i % PAIRS).collect();
    let key = std::array::from_fn(|i| (7 * i + 13) as u8);
    ensure!(b.rss(&table, &key)? == [0], "RSS was refused");
    let frames = (0..BURST as u16).map(|i| frame(0, 1, 60, 1000 + i));
    let frames = frames.collect::<Result<Vec<_>>>()?;
    let (mut got, mut of_pair) = (Vec::new(), [0; PAIRS as usize]);
    let held = clock.hold();
    meter.case("eth-64-rss", |_| {
        burst(a, &frames)?;
        held.rounds(1);
        for pair in 0..PAIRS {
            while b.try_recv_into(pair, &mut got).is_some() {
                of_pair[usize::from(pair)] += 1;
            }
        }
        ensure!(a.reclaim(0) == 0, "a round did not complete a burst");
        Ok(BURST)
    })?;
    ensure!(
        of_pair.iter().sum::<usize>() == (WARM + COUNTED) * BURST && !of_pair.contains(&0),
        "frames of the queues: {of_pair:?}"
    );
    Ok(())
}

fn dropped(lab: &Lab, meter: &mut Meter) -> Result<()> {
    let (dir, clock) = (lab.part()?, clock());
    let product = start(lab, dir.path(), 1, true, &clock)?;
    let mut guests = attach(&product, 1, &Options::default())?;
    let nowhere = frame(0, 9, 60, 1000)?;
    let held = clock.hold();
    meter.case("eth-drop", |_| {
        burst(&mut guests[0], std::slice::from_ref(&nowhere))?;
        held.rounds(1);
        ensure!(guests[0].reclaim(0) == 0, "a round did not take a burst");
        Ok(BURST)
    })?;
    drop(held);
    let drops = product.counters()?.drops("no_destination");
    ensure!(
        drops == ((WARM + COUNTED) * BURST) as u64,
        "{drops} frames were dropped"
    );
    Ok(())
}

fn idle(lab: &Lab, meter: &mut Meter, name: &str, adapters: usize) -> Result<()> {
    let (dir, clock) = (lab.part()?, clock());
    let product = start(lab, dir.path(), adapters, true, &clock)?;
    let _guests = attach(&product, adapters, &Options::default())?;
    let held = clock.hold();
    meter.case(name, |_| {
        held.rounds(16);
        Ok(16)
    })
}

/// Takes what has completed, well, as far as a batch goes.
pub fn completions(side: &Side) -> Result<usize> {
    let mut done = [WorkCompletion::default(); BATCH];
    let n = side.cq.poll(&mut done)?;
    for c in &done[..n] {
        c.ok()?;
    }
    Ok(n)
}

/// Rounds until so many completions are taken at the first end. The driver looks once after each.
fn complete(
    pair: &Pair,
    held: &ClockGuard,
    mut left: usize,
    drive: fn(Work<'_>) -> Result<usize>,
) -> Result<()> {
    let mut done = [WorkCompletion::default(); 4 * BATCH];
    for _ in 0..ROUNDS_MAX {
        held.rounds(1);
        left -= drive(&mut || {
            let n = pair.sides[0].cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            Ok(n)
        })?;
        if left == 0 {
            return Ok(());
        }
    }
    anyhow::bail!("{left} work requests did not complete in {ROUNDS_MAX} rounds")
}

/// Batches of small writes, each to a queue pair.
fn writes(
    pair: &Pair,
    held: &ClockGuard,
    qps: impl Iterator<Item = usize>,
    drive: fn(Work<'_>) -> Result<usize>,
) -> Result<usize> {
    let far = &pair.sides[1].region;
    let bytes = [0x5au8; 8];
    let mut posted = 0;
    for qp in qps {
        posted += drive(&mut || {
            let batch: [SendWr<'_>; BATCH] = std::array::from_fn(|i| {
                SendWr::write(Data::inline(&bytes), far.addr() + 8 * i as u64, far.rkey()).signaled()
            });
            pair.qps[qp][0].post_send(&batch)?;
            Ok(BATCH)
        })?;
    }
    complete(pair, held, posted, drive)?;
    Ok(posted)
}

fn rdma(lab: &Lab, meter: &mut Meter) -> Result<()> {
    let clock = clock();
    let pair = Pair::of(lab, 1, |setup| Product::start_virtual(setup, clock.clone()))?;
    let held = clock.hold();
    let (near, far) = (&pair.sides[0].region, &pair.sides[1].region);
    let qp = &pair.qps[0][0];
    let batches = || [0; 4].into_iter();
    let core = meter.count(COUNTED, |_| writes(&pair, &held, batches(), uncounted))?;
    let both = meter.count(COUNTED, |_| writes(&pair, &held, batches(), driver_at_work))?;
    println!("write-8 {} {}", core.units, core.part);
    // Callgrind adds up what all threads do: the driver's part is the difference.
    println!("write-8-driver {} {} -{}", both.units, both.part, core.part);
    meter.case("read-8", |_| {
        for _ in 0..4 {
            let batch: [SendWr<'_>; BATCH] = std::array::from_fn(|i| {
                SendWr::read(
                    near.slice(8 * i..8 * i + 8),
                    far.addr() + 8 * i as u64,
                    far.rkey(),
                )
                .signaled()
            });
            qp.post_send(&batch)?;
        }
        complete(&pair, &held, 4 * BATCH, uncounted)?;
        Ok(4 * BATCH)
    })?;
    let mut done = [WorkCompletion::default(); BATCH];
    meter.case("send-64", |_| {
        (0..BATCH).try_for_each(|_| pair.receive())?;
        let batch: [SendWr<'_>; BATCH] =
            std::array::from_fn(|i| SendWr::send(near.slice(64 * i..64 * i + 64)).signaled());
        qp.post_send(&batch)?;
        complete(&pair, &held, BATCH, uncounted)?;
        ensure!(
            pair.sides[1].cq.poll(&mut done)? == BATCH,
            "a message did not arrive"
        );
        Ok(BATCH)
    })?;
    meter.case("send-8-alone", |_| {
        pair.receive()?;
        // Completions of these would be for the next round: there is room for all that are sent here.
        qp.post_send(&[SendWr::send(Data::inline(&[0x5a; 8]))])?;
        held.rounds(1);
        ensure!(
            pair.sides[1].cq.poll(&mut done)? == 1,
            "a round did not carry a message"
        );
        Ok(1)
    })?;
    meter.case("write-64k", |i| {
        for k in 4 * i..4 * i + 4 {
            let at = k % PLACES * LARGE;
            let from = near.slice(at..at + LARGE);
            qp.post_send(&[SendWr::write(from, far.addr() + at as u64, far.rkey()).signaled()])?;
        }
        complete(&pair, &held, 4, uncounted)?;
        Ok(4 * LARGE / 4096)
    })
}

fn many(lab: &Lab, meter: &mut Meter) -> Result<()> {
    const QPS: usize = 1024;
    let clock = clock();
    let pair = Pair::of(lab, QPS, |setup| Product::start_virtual(setup, clock.clone()))?;
    let held = clock.hold();
    meter.case("write-8-1024qp", |i| {
        // A large odd step, as the bench of rates has it.
        writes(&pair, &held, (4 * i..4 * i + 4).map(|k| k * 389 % QPS), uncounted)
    })
}
