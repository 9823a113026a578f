//! Regions on demand: whoever finds a page missing waits, and all goes on as if it had been there (proto/device, section 11.6).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use vnic_engine::rdma::{
    Access, Event, Given, Hold, MrHandle, PageFault, QpState, QpType, Registration, SendOp, Sge, Span,
    Status, VerbsError,
};

use super::harness::{BASE, Connection, Pair, Side, send};
use super::runs::{Dice, seen, turn};

/// Bytes of a region on demand, and where its addresses begin.
const LEN: u64 = 1 << 18;
const VA: u64 = 0x7000_0000;
const PAGE: u64 = 4096;

/// A region on demand over a side's memory, from its first byte on.
fn on_demand(side: &mut Side, held: &Arc<AtomicBool>) -> Registration {
    let held = Arc::clone(held);
    let hold = Hold::new(move || held.load(Relaxed));
    let access = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
    side.device
        .register_on_demand(side.pd, (VA, LEN), access, hold)
        .expect("registered")
}

fn memory(start: u64, len: u64, write: bool) -> Given {
    Given::Memory {
        memory: vec![Span {
            at: BASE + start,
            len,
        }]
        .into(),
        write,
        prefetched: false,
    }
}

fn give(side: &mut Side, mr: MrHandle, start: u64, len: u64, write: bool) {
    let given = memory(start, len, write);
    side.device.set_pages(mr, (start, len), given).expect("given");
}

/// The pages that an event is about.
fn fault(side: &mut Side, event: Event) -> Option<PageFault> {
    let Event::PageFault(mr) = event else { return None };
    let fault = side.device.page_fault().expect("it says for which pages");
    assert_eq!(fault.mr, mr);
    Some(fault)
}

/// What a driver does that gives what is asked for. Returns the questions: region, first page, pages, whether to write.
fn serve(side: &mut Side) -> Vec<(MrHandle, u64, u64, bool)> {
    let mut asked = Vec::new();
    for event in side.events() {
        let Some(fault) = fault(side, event) else {
            continue;
        };
        let PageFault {
            mr,
            first,
            pages,
            write,
        } = fault;
        asked.push((mr, first, pages, write));
        let start = first * PAGE;
        give(side, mr, start, (pages * PAGE).min(LEN - start), true);
    }
    asked
}

/// Runs both sides, with `turn` after each step, until nothing is to be done.
fn run(pair: &mut Pair, mut turn: impl FnMut(&mut Pair)) {
    for _ in 0..100_000 {
        pair.send(|_, _| true);
        pair.deliver();
        turn(pair);
        let busy =
            pair.wire.iter().any(|w| !w.is_empty()) || pair.sides.iter().any(|s| s.device.wants_transmit());
        if busy {
            continue;
        }
        let next = pair.sides.iter().filter_map(|s| s.device.next_timeout()).min();
        let Some(next) = next else { return };
        pair.now = next;
        for side in &mut pair.sides {
            side.device.handle_timeout(next);
        }
    }
    panic!("it never ends");
}

fn serving(pair: &mut Pair) {
    for side in &mut pair.sides {
        serve(side);
    }
}

fn sge(keys: &Registration, offset: u64, len: u32) -> Sge {
    Sge {
        addr: VA + offset,
        len,
        lkey: keys.lkey,
    }
}

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed))
        .collect()
}

fn statuses(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|c| (c.wr_id, c.status)).collect()
}

/// Two sides with a region on demand each, without pages.
fn both(connection: Connection) -> (Pair, [Registration; 2], [Arc<AtomicBool>; 2]) {
    let mut pair = Pair::new(QpType::Rc, connection);
    let held = [Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false))];
    let keys = [0, 1].map(|i| on_demand(&mut pair.sides[i], &held[i]));
    (pair, keys, held)
}

fn write(keys: &Registration, offset: u64) -> SendOp {
    SendOp::Write {
        addr: VA + offset,
        rkey: keys.rkey,
    }
}

fn read(keys: &Registration, offset: u64) -> SendOp {
    SendOp::Read {
        addr: VA + offset,
        rkey: keys.rkey,
    }
}

#[test]
fn every_operation_waits_for_its_pages_at_both_ends() {
    // Only one RNR retry: pages come within the time that a peer is told to wait.
    let connection = Connection {
        rnr_retry: 1,
        ..Connection::default()
    };
    let (mut pair, [mine, theirs], _) = both(connection);
    let data = pattern(1, 20_000);
    pair.sides[0].fill(100, &data);
    // WRITE.
    pair.sides[0].post(1, write(&theirs, 5000), &[sge(&mine, 100, 20_000)]);
    let mut asked: [Vec<_>; 2] = Default::default();
    run(&mut pair, |pair| {
        for (side, asked) in pair.sides.iter_mut().zip(&mut asked) {
            asked.extend(serve(side));
        }
    });
    assert_eq!(statuses(&mut pair.sides[0]), [(1, Status::Success)]);
    assert!(pair.sides[1].bytes(5000, 20_000) == data);
    // Each end asked once, for all that the message needs.
    assert_eq!(asked[0], [(mine.mr, 0, 5, false)]);
    assert_eq!(asked[1], [(theirs.mr, 1, 6, true)]);
    // SEND into a receive that is not there yet.
    pair.sides[1].post_recv(50, &[sge(&theirs, 100_000, 3000), sge(&theirs, 140_000, 3000)]);
    pair.sides[0].post(2, SendOp::Send, &[sge(&mine, 40_000, 5000)]);
    // READ: neither its source nor where it lands.
    pair.sides[1].fill(200_000, &data);
    pair.sides[0].post(3, read(&theirs, 200_000), &[sge(&mine, 60_000, 20_000)]);
    // Atomic.
    let add = SendOp::FetchAdd {
        addr: VA + 180_000,
        rkey: theirs.rkey,
        add: 7,
    };
    pair.sides[0].post(4, add, &[sge(&mine, 120_000, 8)]);
    run(&mut pair, serving);
    let all = [2, 3, 4].map(|id| (id, Status::Success));
    assert_eq!(statuses(&mut pair.sides[0]), all);
    assert_eq!(statuses(&mut pair.sides[1]), [(50, Status::Success)]);
    assert!(pair.sides[0].bytes(60_000, 20_000) == data);
    assert_eq!(pair.sides[1].bytes(180_000, 8), 7u64.to_ne_bytes());
    let counters = pair.sides[1].device.counters();
    assert_eq!(
        counters.page_faults, 5,
        "WRITE, two elements of a receive, READ, atomic"
    );
    assert_eq!(counters.out_of_buffer, 0);
    assert_eq!(counters.resp_rnr_nak, 5);
}

#[test]
fn pages_that_are_taken_are_asked_for_again() {
    let (mut pair, [mine, theirs], _) = both(Connection::default());
    for id in 0..4 {
        let data = pattern(id as u8, 30_000);
        pair.sides[0].fill(0, &data);
        pair.sides[1].fill(0, &vec![0; 30_000]);
        let op = if id % 2 == 0 {
            write(&theirs, 0)
        } else {
            read(&theirs, 0)
        };
        if id % 2 == 1 {
            pair.sides[1].fill(0, &data);
            pair.sides[0].fill(0, &vec![0; 30_000]);
        }
        pair.sides[0].post(id, op, &[sge(&mine, 0, 30_000)]);
        // Pages in the middle go again and again while the message is on its way.
        let mut rounds = 0;
        run(&mut pair, |pair| {
            rounds += 1;
            serving(pair);
            if rounds < 12 {
                for (side, mr) in pair.sides.iter_mut().zip([mine.mr, theirs.mr]) {
                    let taken = (PAGE * (rounds % 7), 2 * PAGE);
                    side.device.set_pages(mr, taken, Given::Taken).expect("taken");
                }
            }
        });
        assert_eq!(statuses(&mut pair.sides[0]), [(id, Status::Success)], "{id}");
        let to = usize::from(id % 2 == 0);
        assert!(pair.sides[to].bytes(0, 30_000) == data, "{id}");
    }
    assert!(pair.sides[0].device.counters().page_invalidations > 20);
}

#[test]
fn what_is_refused_fails_whoever_waits() {
    fn refuse(side: &mut Side) {
        for event in side.events() {
            if let Some(PageFault { mr, first, pages, .. }) = fault(side, event) {
                let range = (first * PAGE, pages * PAGE);
                side.device.set_pages(mr, range, Given::Refused).expect("refused");
            }
        }
    }
    // The requester's own pages; the peer's; those of the peer's receive.
    for (which, status) in [
        (0, Status::LocalProtectionError),
        (1, Status::RemoteAccessError),
        (2, Status::RemoteOperationError),
    ] {
        let (mut pair, [mine, theirs], _) = both(Connection::default());
        let op = match which {
            2 => SendOp::Send,
            _ => write(&theirs, 0),
        };
        pair.sides[1].post_recv(50, &[sge(&theirs, 0, 100)]);
        pair.sides[0].post(1, op, &[sge(&mine, 0, 100)]);
        run(&mut pair, |pair| {
            let [a, b] = &mut pair.sides;
            let (refuses, serves) = if which == 0 { (a, b) } else { (b, a) };
            refuse(refuses);
            serve(serves);
        });
        assert_eq!(statuses(&mut pair.sides[0]), [(1, status)]);
        if which == 2 {
            assert_eq!(statuses(&mut pair.sides[1]), [(50, Status::LocalProtectionError)]);
        }
        assert_ne!(pair.sides[0].state(), QpState::Rts);
        assert!(pair.sides[1].bytes(0, 100) == vec![0; 100]);
    }
}

#[test]
fn what_is_held_back_waits_without_a_question() {
    let (mut pair, [mine, theirs], held) = both(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    for (side, mr) in pair.sides.iter_mut().zip([mine.mr, theirs.mr]) {
        give(side, mr, 0, LEN, true);
    }
    for (end, id) in [(0, 1), (1, 2)] {
        held[end].store(true, Relaxed);
        pair.sides[0].post(id, write(&theirs, 0), &[sge(&mine, 0, 10_000)]);
        pair.sides[0].post(id + 10, read(&theirs, 0), &[sge(&mine, 20_000, 10_000)]);
        let mut rounds = 0;
        run(&mut pair, |pair| {
            rounds += 1;
            assert!(
                pair.sides.iter_mut().all(|s| s.events().is_empty()),
                "nobody is asked"
            );
            if rounds == 40 {
                assert!(pair.sides[0].completions().is_empty());
                held[end].store(false, Relaxed);
            }
        });
        assert!(rounds >= 40);
        let both = [(id, Status::Success), (id + 10, Status::Success)];
        assert_eq!(statuses(&mut pair.sides[0]), both);
    }
}

#[test]
fn a_question_that_was_lost_is_asked_again() {
    let (mut pair, [mine, theirs], _) = both(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    pair.sides[0].post(1, write(&theirs, 0), &[sge(&mine, 0, 10_000)]);
    let mut heard = [0; 2];
    run(&mut pair, |pair| {
        for (side, heard) in pair.sides.iter_mut().zip(&mut heard) {
            if *heard == 0 {
                *heard += side.events().len();
            } else {
                *heard += serve(side).len();
            }
        }
    });
    assert_eq!(statuses(&mut pair.sides[0]), [(1, Status::Success)]);
    assert_eq!(heard, [2, 2]);
    assert_eq!(pair.sides[1].device.counters().page_faults, 1);
}

#[test]
fn pages_that_may_only_be_read_are_asked_for_to_write() {
    let (mut pair, [mine, theirs], _) = both(Connection::default());
    for (side, mr) in pair.sides.iter_mut().zip([mine.mr, theirs.mr]) {
        give(side, mr, 0, LEN, false);
    }
    pair.sides[0].post(1, read(&theirs, 0), &[sge(&mine, 0, 100)]);
    let mut asked: [Vec<_>; 2] = Default::default();
    run(&mut pair, |pair| {
        for (side, asked) in pair.sides.iter_mut().zip(&mut asked) {
            asked.extend(serve(side));
        }
    });
    assert_eq!(statuses(&mut pair.sides[0]), [(1, Status::Success)]);
    assert_eq!(
        (asked[0].clone(), asked[1].len()),
        (vec![(mine.mr, 0, 1, true)], 0)
    );
}

#[test]
fn unreliable_services_have_no_pages_on_demand() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let held = Arc::new(AtomicBool::new(false));
    let [mine, theirs] = [0, 1].map(|i| on_demand(&mut pair.sides[i], &held));
    // The peer's page: dropped, as for any access that is not allowed.
    let from = pair.sides[0].sge(0, 100);
    pair.sides[0].post(1, write(&theirs, 0), &[from]);
    pair.run();
    assert_eq!(statuses(&mut pair.sides[0]), [(1, Status::Success)]);
    assert_eq!(pair.sides[1].device.counters().drop_access, 1);
    // The own one.
    pair.sides[0].post(2, write(&theirs, 0), &[sge(&mine, 0, 100)]);
    pair.run();
    assert_eq!(statuses(&mut pair.sides[0]), [(2, Status::LocalProtectionError)]);
    assert!(
        !pair.sides[0]
            .events()
            .iter()
            .chain(&pair.sides[1].events())
            .any(|e| matches!(e, Event::PageFault(_)))
    );
}

#[test]
fn pages_are_given_to_regions_on_demand_within_their_bounds() {
    let (mut pair, [mine, _], _) = both(Connection::default());
    let a = &mut pair.sides[0];
    let ordinary = a.keys.mr;
    let mut set = |mr, start, len| a.device.set_pages(mr, (start, len), memory(start, len, true));
    assert!(matches!(set(ordinary, 0, 1), Err(VerbsError::Invalid(_))));
    assert!(matches!(set(mine.mr, LEN - 1, 2), Err(VerbsError::Invalid(_))));
    assert!(matches!(
        set(MrHandle(0xff_fff0), 0, 1),
        Err(VerbsError::NoSuch(_))
    ));
    set(mine.mr, LEN - 1, 1).expect("the last byte");
    let used = |a: &Side| a.device.resources().mr_extents.used;
    assert_eq!(used(a), 2);
    a.device
        .set_pages(mine.mr, (0, LEN), Given::Taken)
        .expect("taken");
    assert_eq!(used(a), 1);
    // A region is in so many pieces at most.
    let pieces = |n: u64| {
        (0..n)
            .map(|i| Span {
                at: BASE + 2 * i,
                len: 1,
            })
            .collect::<Vec<_>>()
    };
    let given = |n| Given::Memory {
        memory: pieces(n).into(),
        write: true,
        prefetched: false,
    };
    let many = a.device.set_pages(mine.mr, (0, 1 << 16), given(1 << 16));
    assert!(matches!(many, Err(VerbsError::LimitReached { .. })));
    a.device
        .set_pages(mine.mr, (0, 60_000), given(60_000))
        .expect("so many there may be");
    a.device
        .set_pages(mine.mr, (0, LEN), Given::Taken)
        .expect("taken");
    give(a, mine.mr, 0, LEN, true);
    // Memory that the guest does not share any more is missing again, and the keys stay.
    let all = a
        .device
        .lose_memory(&|span| span.at + span.len <= BASE || span.at > BASE);
    assert_eq!(all, [ordinary]);
    assert_eq!(used(a), 1, "the ordinary region's");
    a.device.deregister(mine.mr).expect("ended");
}

/// All addresses in one region (`ibv_reg_mr` with address 0 and SIZE_MAX).
#[test]
fn a_region_of_all_addresses() {
    let (mut pair, [mine, _], _) = both(Connection::default());
    let b = &mut pair.sides[1];
    let access = Access::LOCAL_WRITE | Access::REMOTE;
    let hold = Hold::new(|| false);
    let all = b
        .device
        .register_on_demand(b.pd, (0, u64::MAX), access, hold)
        .expect("registered");
    let addr = 0x7fff_1234_5678;
    pair.sides[0].fill(0, &pattern(9, 9000));
    let op = SendOp::Write { addr, rkey: all.rkey };
    pair.sides[0].post(1, op, &[sge(&mine, 0, 9000)]);
    run(&mut pair, |pair| {
        serve(&mut pair.sides[0]);
        let b = &mut pair.sides[1];
        for event in b.events() {
            let Some(PageFault { mr, first, pages, .. }) = fault(b, event) else {
                continue;
            };
            assert_eq!((mr, first, pages), (all.mr, addr / PAGE, 3));
            let range = (first * PAGE, pages * PAGE);
            b.device
                .set_pages(mr, range, memory(0, pages * PAGE, true))
                .expect("given");
        }
    });
    assert_eq!(statuses(&mut pair.sides[0]), [(1, Status::Success)]);
    assert!(pair.sides[1].bytes((addr % PAGE) as usize, 9000) == pattern(9, 9000));
}

/// How many of 64 packets come in runs, from and to pages that are given in pieces of so many bytes.
fn in_runs(piece: u64, write: bool) -> u64 {
    let (mut pair, keys, _) = both(Connection::default());
    for (side, keys) in pair.sides.iter_mut().zip(&keys) {
        // The last piece first: none continues the one before.
        let pieces = (0..LEN / piece).rev().map(|i| Span {
            at: BASE + i * piece,
            len: piece,
        });
        let given = Given::Memory {
            memory: pieces.collect::<Vec<_>>().into(),
            write: true,
            prefetched: false,
        };
        side.device.set_pages(keys.mr, (0, LEN), given).expect("given");
    }
    let [mine, theirs] = keys;
    if !write {
        let end = &mut pair.sides[1];
        give(end, theirs.mr, 0, LEN, false);
    }
    pair.sides[0].post(1, self::write(&theirs, 0), &[sge(&mine, 0, 64 * 256)]);
    turn(&mut pair, 16, 64)
}

#[test]
fn pages_that_are_there_are_used_in_runs() {
    assert_eq!(in_runs(LEN, true), 64);
    assert_eq!(in_runs(PAGE, true), 64);
    // Each packet is in two pieces; what is to be written may only be read.
    assert_eq!(in_runs(128, true), 0);
    assert_eq!(in_runs(LEN, false), 0);
}

/// Goes through what a seed says, with runs of at most `room`: pages come, go and are held back between all turns. Gives what was
/// seen, step by step, the memories at the end, and how many packets came in runs.
fn story(seed: u64, room: usize) -> (Vec<Vec<String>>, [Vec<u8>; 2], u64) {
    let mut dice = Dice(seed);
    let (mut pair, keys, held) = both(Connection {
        rnr_retry: 7,
        ..Connection::default()
    });
    for side in &mut pair.sides {
        side.fill(0, &pattern(seed as u8 ^ side.mac.0[5], LEN as usize));
    }
    let (mut story, mut taken) = (Vec::new(), 0);
    for step in 0..60 {
        for _ in 0..dice.below(4) {
            let (from, to, len) = (
                dice.below(LEN / 2),
                dice.below(LEN / 2),
                dice.below(20_000) as u32,
            );
            let a = &mut pair.sides[0];
            let wr = send(step, write(&keys[1], to), &[sge(&keys[0], from, len)]);
            let _ = a.device.post_send(a.qp, wr);
        }
        for _ in 0..dice.below(6) {
            for ((side, keys), held) in pair.sides.iter_mut().zip(&keys).zip(&held) {
                held.store(dice.below(12) == 0, Relaxed);
                // Pages one by one, somewhere in memory, or a lot of them.
                let pages = if dice.below(2) == 0 { 1 } else { dice.below(32) + 1 };
                let (start, len) = (PAGE * dice.below(32), PAGE * pages);
                let given = match dice.below(8) {
                    0 => Given::Taken,
                    1 if step > 50 => Given::Refused,
                    2 => memory(start, len, false),
                    3 => memory(PAGE * dice.below(32), len, true),
                    _ => memory(start, len, true),
                };
                side.device
                    .set_pages(keys.mr, (start, len), given)
                    .expect("given");
            }
            taken += turn(&mut pair, room, dice.below(40) as usize);
        }
        pair.now = pair.now + Duration::from_millis(dice.below(3));
        for side in &mut pair.sides {
            side.device.handle_timeout(pair.now);
        }
        story.push(seen(&mut pair));
    }
    let memories = [0, 1].map(|i| pair.sides[i].bytes(0, LEN as usize));
    (story, memories, taken)
}

#[test]
fn pages_on_demand_are_used_in_runs_as_packet_by_packet() {
    let mut in_runs = 0;
    for seed in 0..200 {
        let (one_by_one, memories, none) = story(seed, 0);
        assert_eq!(none, 0);
        for room in [1, 5, 16] {
            let (story, memories_too, taken) = story(seed, room);
            for (step, (a, b)) in one_by_one.iter().zip(&story).enumerate() {
                assert_eq!(a, b, "seed {seed}, runs of {room}, step {step}");
            }
            assert!(memories == memories_too, "seed {seed}, runs of {room}");
            in_runs += taken;
        }
    }
    assert!(in_runs > 10_000, "only {in_runs} packets came in runs");
}

/// The driver may hold pages back at any time: no packet begins to use them after it was seen.
#[test]
fn what_is_held_back_in_the_middle_of_a_run_is_not_used() {
    for end in [0, 1] {
        for after in 1..20 {
            let mut pair = Pair::new(QpType::Rc, Connection::default());
            let asked = Arc::new(AtomicUsize::new(0));
            let keys = [0, 1].map(|i| {
                let (side, asked) = (&mut pair.sides[i], Arc::clone(&asked));
                let hold = Hold::new(move || i == end && asked.fetch_add(1, Relaxed) >= after);
                let access = Access::LOCAL_WRITE | Access::REMOTE;
                let region = side.device.register_on_demand(side.pd, (VA, LEN), access, hold);
                let keys = region.expect("registered");
                give(side, keys.mr, 0, LEN, true);
                keys
            });
            let data = pattern(5, 64 * 256);
            pair.sides[0].fill(0, &data);
            pair.sides[0].post(1, write(&keys[1], 0), &[sge(&keys[0], 0, 64 * 256)]);
            turn(&mut pair, 16, 64);
            let there = pair.sides[1].bytes(0, data.len());
            let used = there
                .iter()
                .zip(&data)
                .take_while(|(a, b)| a == b)
                .count()
                .div_ceil(256);
            assert!(
                used <= after,
                "{used} packets, and {after} looks that found nothing"
            );
            assert!(there[used * 256..].iter().all(|byte| *byte == 0));
        }
    }
}
