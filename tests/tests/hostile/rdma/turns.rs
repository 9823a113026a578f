//! What a driver may ask for in one turn of a data core has an end, and others have theirs between two turns. Counted in what can be
//! seen of a turn, round by round of a core that is held: no clock is read.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use vnic_backend::{ClockGuard, VirtualClock};
use vnic_device::command::memory::{MrReply, RegisterMr};
use vnic_device::command::{Opcode, ReplyHead};
use vnic_device::doorbell::Kind;
use vnic_device::event::EventKind;
use vnic_device::queue::Operation;
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus;
use vnic_device::verbs::{CompletionStatus, QpType};
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::attacks::dead_qp;
use vnic_tests::driver::rdma::{Bells, Cq, Driver, FULL, Options, Qp, Side, World, Wr, list_of};
use vnic_tests::driver::rig::Dice;

/// Work that a turn of a function has room for which shares its core, as much again for what it sends, and of one that has the core
/// for itself.
const SHARED: u32 = 64;
const ALONE: u32 = 256;
/// What a turn may do beyond: a command, or a window of requests that is flushed.
const BEYOND: u32 = 256;

fn world(adapters: &[&str]) -> Result<(std::sync::Arc<VirtualClock>, World)> {
    let clock = VirtualClock::new(Duration::from_micros(1));
    let world = World::with_clock(clock.clone(), adapters)?;
    Ok((clock, world))
}

/// A pair of honest adapters that always has a WRITE under way.
struct Honest {
    a: Side,
    qp: Qp,
    _b: Side,
    wr: Wr,
    /// Rounds since it was posted, and the most that one took.
    since: u32,
    most: u32,
    done: u32,
}

impl Honest {
    fn start(world: &World) -> Result<Honest> {
        let (mut a, mut b) = (world.side("a")?, world.side("b")?);
        let (mut qp, there) = a.pair(&mut b, QpType::Rc);
        let _ = there;
        let wr = Wr::new(1, Operation::Write, &[a.at(0, 100)]).remote(b.mr.iova, b.mr.rkey);
        a.post(&mut qp, &wr);
        Ok(Honest {
            a,
            qp,
            _b: b,
            wr,
            since: 0,
            most: 0,
            done: 0,
        })
    }

    /// A round has gone by.
    fn round(&mut self) -> Result<()> {
        self.since += 1;
        self.most = self.most.max(self.since);
        if let Some(e) = self.a.cq.poll() {
            ensure!(e.status() == CompletionStatus::Success, "{e:?}");
            self.qp.sends().consumer = e.consumed;
            self.a.post(&mut self.qp, &self.wr);
            (self.since, self.done) = (0, self.done + 1);
        }
        // It goes in one turn, its acknowledge in the next one of the other.
        ensure!(self.since <= 4, "a WRITE takes {} rounds", self.since);
        Ok(())
    }
}

/// Requests of a queue pair in ERR complete at once, so that no window fills.
#[test]
fn a_turn_has_an_end_whatever_is_posted() -> Result<()> {
    const BLOCKS: u32 = 4096;
    const BELLS: u32 = 16;
    let (clock, world) = world(&["evil"])?;
    let mut s = world.side("evil")?;
    let mut cq = s.d.cq(BLOCKS * BELLS);
    let qp = dead_qp(&mut s, &cq, BLOCKS);
    let held = clock.hold();
    let (mut all, mut most) = (0, 0);
    // To flush a request is twice as much work as to read it, and half of a turn is for what comes.
    for _ in 0..8 * BLOCKS * BELLS / ALONE {
        if all % BLOCKS == 0 && all < BLOCKS * BELLS {
            s.bells.ring(Kind::Send, qp.number, all + BLOCKS);
        }
        held.rounds(1);
        let shown = std::iter::from_fn(|| cq.poll()).count() as u32;
        (all, most) = (all + shown, most.max(shown));
    }
    println!("{most} requests in a turn at most");
    ensure!(most <= ALONE, "{most} requests in a turn");
    ensure!(all == BLOCKS * BELLS, "{all} requests");
    drop(held);
    world.finish()
}

/// A driver with a list of 2^18 extents, which cannot be joined, in memory of its own; where the list is, and where the extents are.
fn with_long_list(world: &World) -> Result<(Driver, Vec<u8>, Extent)> {
    const EXTENTS: usize = 1 << 18;
    let options = Options {
        memory: 8 << 20,
        ..Options::default()
    };
    let mut d = Driver::start(world.socket("evil"), options)?;
    let piece = Extent {
        len: 64,
        ..d.area(4096).extents[0]
    };
    let list = d.area(16 * EXTENTS as u64);
    list.write(0, &list_of(&vec![piece; EXTENTS]));
    let chunks = list_of(&list.extents);
    Ok((d, chunks, list.extents[0]))
}

/// Submits REGISTER_MR of such a list. Answers where its reply will be.
fn submit(d: &mut Driver, pd: u32, chunks: &[u8]) -> u64 {
    let body = RegisterMr {
        pd,
        access: FULL,
        iova: 0,
        extents: ExtentList {
            count: 1 << 18,
            chunks: 1,
        },
    };
    let head = d.head(Opcode::RegisterMr, body.as_bytes().len(), chunks.len());
    let bytes = [head.as_bytes(), body.as_bytes(), chunks].concat();
    d.submit(&bytes, 256)[0].0
}

/// Rounds until the command on its way is answered; its status.
fn answered(held: &ClockGuard, d: &mut Driver, at: u64, honest: &mut Honest) -> Result<(u32, CommandStatus)> {
    for rounds in 1..100_000 {
        held.rounds(1);
        honest.round()?;
        if d.control.take().is_some() {
            let mut head = ReplyHead::default();
            d.mem.read(at, head.as_mut_bytes())?;
            let status = CommandStatus::from_number(head.status).context("a status")?;
            return Ok((rounds, status));
        }
    }
    bail!("no answer")
}

#[test]
fn a_long_list_is_read_in_many_turns() -> Result<()> {
    // 32 of them take some 9.
    const LEAST: u32 = (1 << 18) / 32 * 9 / ALONE;
    let (clock, world) = world(&["a", "b", "evil"])?;
    let mut honest = Honest::start(&world)?;
    let (mut d, chunks, list) = with_long_list(&world)?;
    let pd = d.pd();
    let held = clock.hold();
    let at = submit(&mut d, pd, &chunks);
    let (rounds, status) = answered(&held, &mut d, at, &mut honest)?;
    println!(
        "{rounds} rounds, a WRITE of the neighbours takes {} at most",
        honest.most
    );
    ensure!(
        status == CommandStatus::Ok && rounds >= LEAST,
        "{status:?} after {rounds}"
    );
    let mut reply = [0; size_of::<ReplyHead>() + size_of::<MrReply>()];
    d.mem.read(at, &mut reply)?;
    let made = MrReply::read_from_prefix(&reply[size_of::<ReplyHead>()..]);
    ensure!(made.is_ok_and(|(made, _)| made.lkey != 0 && made.lkey == made.rkey));
    // What cannot be is refused before the list is read, and what is wrong at its end when that is reached.
    let at = submit(&mut d, pd + 1, &chunks);
    let (rounds, status) = answered(&held, &mut d, at, &mut honest)?;
    ensure!(
        status == CommandStatus::NoSuchObject && rounds <= 4,
        "{status:?} after {rounds}"
    );
    let nowhere = Extent {
        gpa: u64::MAX / 2,
        len: 64,
    };
    d.mem.write(list.gpa + list.len - 16, nowhere.as_bytes())?;
    let at = submit(&mut d, pd, &chunks);
    let (rounds, status) = answered(&held, &mut d, at, &mut honest)?;
    ensure!(
        status == CommandStatus::BadAddress && rounds >= LEAST,
        "{status:?} after {rounds}"
    );
    // A driver that goes in the middle of it leaves nothing.
    submit(&mut d, pd, &chunks);
    held.rounds(100);
    drop(held);
    d.hang_up();
    drop((honest, d));
    world.finish()
}

/// A region of so many pieces, when the VMM tells its memory anew: it waits for its answer, others do not.
#[test]
fn memory_that_is_told_anew_is_looked_at_in_many_turns() -> Result<()> {
    const LEAST: u32 = (1 << 18) / 4 / ALONE;
    let (clock, world) = world(&["a", "b", "evil"])?;
    let mut honest = Honest::start(&world)?;
    let (mut d, chunks, _) = with_long_list(&world)?;
    let pd = d.pd();
    let held = clock.hold();
    let at = submit(&mut d, pd, &chunks);
    let (_, status) = answered(&held, &mut d, at, &mut honest)?;
    ensure!(status == CommandStatus::Ok, "{status:?}");
    let rounds = std::thread::scope(|s| -> Result<u32> {
        let told = s.spawn(|| d.set_mem_table());
        for rounds in 0..100_000 {
            if told.is_finished() {
                told.join().expect("no panic")?;
                return Ok(rounds);
            }
            held.rounds(1);
            honest.round()?;
        }
        bail!("no answer")
    })?;
    println!("{rounds} rounds");
    ensure!(rounds >= LEAST, "{rounds} rounds");
    drop(held);
    // It is the same memory.
    assert_eq!(d.count_events(EventKind::MrLost), 0);
    drop((honest, d));
    world.finish()
}

/// An attacker, who does by the dice what takes most.
struct Attacker {
    s: Side,
    rings: Vec<Bells>,
    cqs: Vec<Cq>,
    dead: Vec<Qp>,
    live: Vec<(Qp, Wr)>,
    dice: Dice,
    /// Doorbells taken, completions, events and commands so far.
    seen: u32,
}

impl Attacker {
    fn start(world: &World, dice: Dice) -> Result<Attacker> {
        let options = Options {
            memory: 32 << 20,
            ..Options::default()
        };
        let mut s = Side::new(Driver::start(world.socket("evil"), options)?);
        let rings = (0..8).map(|_| s.d.bells(64)).collect();
        let mut cqs: Vec<Cq> = (0..4).map(|_| s.d.cq(4096)).collect();
        let dead = (0..8).map(|i| dead_qp(&mut s, &cqs[i % 2], 1024)).collect();
        // To itself, between regions of the least extents.
        let scattered = s.d.area_in(&[64; 256]);
        let mr = s.d.mr_of(s.pd, scattered, 0x1000, FULL);
        let mut live = Vec::new();
        for i in 0..8 {
            let spec = vnic_tests::driver::rdma::QpSpec {
                send_cq: cqs[2 + i % 2].handle,
                ..s.spec(QpType::Rc)
            };
            let qp = s.d.qp(&spec);
            let own = s.d.own_address();
            s.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
            let wr = Wr::new(1, Operation::Write, &[mr.element(0, 16 << 10)]).remote(mr.iova, mr.rkey);
            live.push((qp, wr));
        }
        cqs.push(s.d.cq(64));
        Ok(Attacker {
            s,
            rings,
            cqs,
            dead,
            live,
            dice,
            seen: 0,
        })
    }

    /// Asks for something more, as far as there is room.
    fn act(&mut self) {
        let dice = &mut self.dice;
        for _ in 0..1 + dice.below(64) {
            let ring = &mut self.rings[dice.below(8) as usize];
            if ring.written.wrapping_sub(ring.taken()) == ring.entries {
                continue;
            }
            let bell =
                |kind, number, index| vnic_device::doorbell::Doorbell { kind, number, index }.to_bits(false);
            match dice.below(6) {
                // All that there may be of a queue pair in ERR.
                0 | 1 => {
                    let qp = &mut self.dead[dice.below(8) as usize];
                    let producer = qp.sends().producer.wrapping_add(1024);
                    let read = qp.sends().consumer;
                    if producer.wrapping_sub(read) <= 1024 {
                        qp.sends().producer = producer;
                    }
                    let index = qp.sends().producer;
                    ring.write(bell(Kind::Send, qp.number, index));
                }
                2 => ring.write(bell(Kind::Receive, 0xff_fff0 - dice.below(64) as u32, 1)),
                3 => {
                    let cq = &self.cqs[dice.below(5) as usize];
                    ring.write(bell(Kind::ArmNext, cq.handle, dice.below(1 << 20) as u32));
                }
                _ => {
                    let (qp, wr) = &mut self.live[dice.below(8) as usize];
                    if qp.sends().free() >= 4 {
                        qp.sends().write(wr);
                        let (number, producer) = (qp.number, qp.sends().producer);
                        ring.write(bell(Kind::Send, number, producer));
                    }
                }
            }
        }
    }

    /// What has been done since the last call, as far as it can be seen.
    fn look(&mut self) -> u32 {
        let mut work = 0;
        for cq in &mut self.cqs {
            while let Some(e) = cq.poll() {
                work += 1;
                let all = self.dead.iter_mut().chain(self.live.iter_mut().map(|(qp, _)| qp));
                if let Some(qp) = all.into_iter().find(|qp| qp.number == e.qp) {
                    qp.sends().consumer = e.consumed;
                }
            }
        }
        self.s.d.poll_events();
        work += self.s.d.events.drain(..).count() as u32;
        let taken: u32 = self.rings.iter().map(Bells::taken).sum();
        work += taken.wrapping_sub(std::mem::replace(&mut self.seen, taken));
        work
    }
}

/// By the dice: no turn does more than it may, all of them together do no more than their parts, and the others have their turns.
#[test]
fn no_turn_costs_more_than_it_may_and_others_have_theirs() -> Result<()> {
    const ROUNDS: u32 = 4000;
    let dice = Dice::thrown();
    let (clock, world) = world(&["a", "b", "evil"])?;
    let mut honest = Honest::start(&world)?;
    let mut evil = Attacker::start(&world, dice)?;
    let held = clock.hold();
    evil.look();
    let (mut most, mut all) = (0, 0);
    for _ in 0..ROUNDS {
        evil.act();
        held.rounds(1);
        honest.round()?;
        let work = evil.look();
        (most, all) = (most.max(work), all + work);
        // (A ring says now and then only how far it was taken.)
        ensure!(work <= 2 * SHARED + BEYOND + 8 * 16, "{work} in one turn");
    }
    println!(
        "{most} in a turn at most, {all} in all of {ROUNDS}; {} WRITEs of the neighbours, of {} rounds at most",
        honest.done, honest.most
    );
    ensure!(all <= ROUNDS * 2 * SHARED + BEYOND, "{all} in {ROUNDS} turns");
    // (Its packets are not seen.)
    ensure!(all >= ROUNDS * SHARED / 16, "the attacker has its turns: {all}");
    drop(held);
    drop((evil, honest));
    world.finish()
}
