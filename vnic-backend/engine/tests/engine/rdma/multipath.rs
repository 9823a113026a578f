//! Multipath: packets of WRITEs and responses of READs take several ways, of which each keeps its order, and others overtake them.

use std::collections::{BTreeMap, VecDeque};

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{CompletionOp, Congestion, Mark, QpType, SendOp, Status};
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::transport::Extended;

use super::harness::{Connection, Packet, Pair};
use super::runs::turn;

const MTU: u32 = 256;
/// Seeds of [`everything_at_once`].
const SEEDS: u64 = 400;

fn set(pair: &mut Pair, side: usize, selective: bool, multipath: u32) {
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            selective,
            multipath,
            ..ZeroTouch::OFF
        },
        ..Congestion::default()
    };
    let now = pair.now;
    pair.sides[side].device.set_congestion(congestion, now);
}

fn pair(ways: u32) -> Pair {
    let connection = Connection {
        retry_count: 7,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    set(&mut pair, 0, true, ways);
    set(&mut pair, 1, true, 1);
    let bytes: Vec<u8> = (0..400_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    pair.sides[0].fill(0, &bytes);
    // The first answer says that the peer takes what comes by several ways.
    write(&mut pair, 99, 0, 0, 1);
    pair.run();
    assert_eq!(statuses(&mut pair), [(99, Status::Success)]);
    pair.log.clear();
    pair
}

/// Posts a WRITE of `len` bytes from `from` at the first side to `to` at the second.
fn write(pair: &mut Pair, id: u64, from: u64, to: u64, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(to);
    a.post(id, SendOp::Write { addr, rkey }, &[a.sge(from, len)]);
}

fn statuses(pair: &mut Pair) -> Vec<(u64, Status)> {
    let all = pair.sides[0].completions();
    all.iter().map(|c| (c.wr_id, c.status)).collect()
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    }
}

fn is_answer(packet: &Packet) -> bool {
    packet
        .headers
        .bth
        .opcode
        .operation()
        .is_none_or(Operation::is_response)
}

/// Runs until nothing moves. What the first side sends waits by source port, and a few packets of a port by chance come next;
/// `keep` says which stay. Time passes when only timers are left: so often at most.
fn run(pair: &mut Pair, seed: u64, patience: u32, keep: impl FnMut(usize, &Packet) -> bool) {
    run_of(pair, &[0], seed, patience, keep);
}

/// The same for what these sides send.
fn run_of(
    pair: &mut Pair,
    sides: &[usize],
    seed: u64,
    patience: u32,
    mut keep: impl FnMut(usize, &Packet) -> bool,
) {
    let mut below = random(seed);
    let mut all: [BTreeMap<u16, VecDeque<Packet>>; 2] = Default::default();
    let mut waited = 0;
    loop {
        pair.send(&mut keep);
        for side in sides {
            let ways = &mut all[*side];
            for packet in pair.wire[*side].drain(..) {
                ways.entry(packet.path.source_port).or_default().push_back(packet);
            }
            ways.retain(|_, way| !way.is_empty());
            if !ways.is_empty() {
                let chosen = below(ways.len() as u64) as usize;
                let way = ways.values_mut().nth(chosen).expect("there are so many");
                let count = (1 + below(8) as usize).min(way.len());
                pair.wire[*side].extend(way.drain(..count));
            }
        }
        if !pair.goes_on(&mut waited) {
            return;
        }
        assert!(waited <= patience, "seed {seed}: still waiting at {:?}", pair.now);
    }
}

/// Packets of a side by source port.
fn by_port(pair: &Pair, side: usize) -> BTreeMap<u16, usize> {
    let mut ports = BTreeMap::new();
    for (_, packet) in pair.log.iter().filter(|(from, _)| *from == side) {
        *ports.entry(packet.path.source_port).or_insert(0) += 1;
    }
    ports
}

/// PSNs that the first side sent more than once.
fn repeated(pair: &Pair) -> BTreeMap<u32, usize> {
    let mut sent = BTreeMap::new();
    for (_, packet) in pair.log.iter().filter(|(from, _)| *from == 0) {
        *sent.entry(packet.headers.bth.psn.value()).or_insert(0) += 1;
    }
    sent.retain(|_, times| *times > 1);
    sent
}

#[test]
fn a_write_spreads_lands_as_it_comes_and_nothing_is_sent_twice() {
    for seed in 1..50 {
        let mut pair = pair(4);
        write(&mut pair, 1, 0, 300_000, 700 * MTU);
        run(&mut pair, seed, 1, |_, _| true);
        assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
        assert!(pair.sides[1].bytes(300_000, 700 * 256) == pair.sides[0].bytes(0, 700 * 256));
        assert_eq!(repeated(&pair), BTreeMap::new(), "seed {seed}");
        let ports = by_port(&pair, 0);
        assert_eq!(ports.len(), 4);
        let counters = pair.sides[1].device.counters();
        // (One before it.)
        assert_eq!(counters.rx_write_requests, 2);
        // The responder hardly ever takes for lost what will come by a way that it has not seen.
        assert!(
            counters.out_of_sequence < 5,
            "seed {seed}: {}",
            counters.out_of_sequence
        );
        let others = pair.sides[0].device.counters().roce_multipath_packets;
        let own = ports.values().max().copied().expect("four");
        assert!(others >= 700 - own as u64 && own < 400, "{ports:?}");
        // Eight go together, but for the last one of a burst whose way is not the emptiest any more.
        let order = pair.log.iter().filter(|(from, _)| *from == 0);
        let order: Vec<u16> = order.map(|(_, packet)| packet.path.source_port).collect();
        let changes = order.windows(2).filter(|two| two[0] != two[1]).count();
        assert!(changes <= 700 / 8 + 4, "{changes}");
    }
}

/// Neighbours have one way, and hand over runs.
#[test]
fn neighbours_take_runs() {
    let mut pair = pair(4);
    for id in 1..=3 {
        write(&mut pair, id, 0, 300_000, 40 * MTU);
        let mut taken = 0;
        while pair.sides.iter().any(|side| side.device.wants_transmit()) {
            taken += turn(&mut pair, 16, 1000);
        }
        assert_eq!(taken, 40, "{id}");
        assert_eq!(statuses(&mut pair), [(id, Status::Success)]);
    }
    assert!(pair.sides[1].bytes(300_000, 40 * 256) == pair.sides[0].bytes(0, 40 * 256));
}

#[test]
fn what_is_lost_of_one_way_is_repeated_alone() {
    for seed in 1..50 {
        let mut pair = pair(4);
        let first = pair.sides[0].device.query_qp(pair.sides[0].qp).unwrap().sq_psn;
        let lost = [7u32, 100, 101, 350].map(|n| Psn::new(first.value()).add(n));
        let mut due = lost.to_vec();
        write(&mut pair, 1, 0, 300_000, 700 * MTU);
        run(&mut pair, seed, 1, |from, packet| {
            let at = due
                .iter()
                .position(|psn| from == 0 && *psn == packet.headers.bth.psn);
            at.map(|at| due.remove(at)).is_none()
        });
        assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
        assert!(pair.sides[1].bytes(300_000, 700 * 256) == pair.sides[0].bytes(0, 700 * 256));
        let repeated = repeated(&pair);
        let last = Psn::new(first.value()).add(699).value();
        assert!(lost.iter().all(|psn| repeated.contains_key(&psn.value())));
        assert!(
            repeated
                .keys()
                .all(|psn| *psn == last || lost.contains(&Psn::new(*psn))),
            "seed {seed}: {repeated:?}"
        );
        assert_eq!(pair.sides[0].device.counters().local_ack_timeout_err, 0);
    }
}

#[test]
fn a_dead_way_is_left_out() {
    for seed in 1..20 {
        let mut pair = pair(4);
        let dead = std::cell::Cell::new(None);
        let mut lost = 0;
        for id in 0..20 {
            write(&mut pair, id, 0, 300_000, 500 * MTU);
        }
        run(&mut pair, seed, 2, |from, packet| {
            let port = packet.path.source_port;
            // The second that is seen, which is not that of the queue pair itself.
            let second = from == 0 && packet.headers.bth.spread && dead.get().is_none();
            if second && port & 2 == 2 {
                dead.set(Some(port));
            }
            let dies = from == 0 && dead.get() == Some(port);
            lost += u64::from(dies);
            !dies
        });
        assert_eq!(statuses(&mut pair).len(), 20);
        assert!(pair.sides[1].bytes(300_000, 500 * 256) == pair.sides[0].bytes(0, 500 * 256));
        let counters = pair.sides[0].device.counters();
        assert!(counters.roce_multipath_rests > 0);
        assert!(hits(&pair, 0, Mark::WayRested) > 0);
        // No time passes here, so that it rests until the end. A quarter of the first window went by it.
        assert!(lost < 400 && lost > 0, "seed {seed}: {lost} of 10,000 packets");
    }
}

fn hits(pair: &Pair, side: usize, mark: Mark) -> u32 {
    pair.sides[side].device.marks().get(mark)
}

#[test]
fn what_comes_in_its_turn_waits_for_what_is_under_way() {
    for seed in 1..50 {
        let mut pair = pair(4);
        let rkey = pair.sides[1].keys.rkey;
        for id in 0..3 {
            let b = &mut pair.sides[1];
            b.post_recv(id, &[b.sge(600_000 + 300 * id, 300)]);
        }
        write(&mut pair, 1, 0, 300_000, 100 * MTU);
        let a = &mut pair.sides[0];
        a.post(2, SendOp::Send, &[a.sge(0, 300)]);
        let addr = a.va(400_000);
        let imm = SendOp::WriteImm { addr, rkey, imm: 7 };
        a.post(3, imm, &[a.sge(0, 100 * MTU + 1)]);
        let addr = a.va(300_000);
        a.post(4, SendOp::Read { addr, rkey }, &[a.sge(500_000, 100 * MTU)]);
        run(&mut pair, seed, 1, |_, _| true);
        let all = [1, 2, 3, 4].map(|id| (id, Status::Success));
        assert_eq!(statuses(&mut pair), all);
        assert_eq!(repeated(&pair), BTreeMap::new(), "seed {seed}");
        let received: Vec<_> = pair.sides[1].completions();
        let received: Vec<_> = received.iter().map(|c| (c.op, c.byte_len, c.imm)).collect();
        let expected = [
            (CompletionOp::Recv, 300, None),
            (CompletionOp::RecvWriteImm, 100 * MTU + 1, Some(7)),
        ];
        assert_eq!(received, expected);
        assert!(hits(&pair, 0, Mark::SpreadWaited) > 0);
        let sent = pair.sides[0].bytes(0, 100 * 256 + 1);
        assert!(pair.sides[1].bytes(400_000, 100 * 256 + 1) == sent);
        assert!(pair.sides[0].bytes(500_000, 100 * 256) == sent[..100 * 256]);
    }
}

#[test]
fn who_does_not_know_it_gets_one_way() {
    for (mine, theirs, ways) in [(true, false, 4), (false, true, 4), (true, true, 1)] {
        let mut pair = pair(1);
        set(&mut pair, 0, mine, ways);
        set(&mut pair, 1, theirs, 1);
        for id in 0..3 {
            write(&mut pair, id, 0, 300_000, 50 * MTU);
            pair.run();
        }
        assert_eq!(statuses(&mut pair).len(), 3);
        assert_eq!(by_port(&pair, 0).len(), 1, "{mine} {theirs} {ways}");
        let middles = pair
            .log
            .iter()
            .filter(|(_, packet)| packet.headers.bth.opcode.operation() == Some(Operation::WriteMiddle));
        for (_, packet) in middles {
            assert!(!packet.headers.bth.spread && packet.headers.extended == Extended::None);
        }
    }
}

#[test]
fn a_packet_without_its_first_lands_by_its_own_address_and_rights() {
    let mut pair = pair(4);
    write(&mut pair, 1, 0, 300_000, 8 * MTU);
    pair.send(|_, _| true);
    // Only the fourth comes.
    let fourth = pair.wire[0].remove(3).expect("eight");
    assert!(matches!(fourth.headers.extended, Extended::Reth(_)));
    let rest: Vec<Packet> = pair.wire[0].drain(..).collect();
    pair.wire[0].push_back(fourth.clone());
    pair.deliver();
    assert!(pair.sides[1].bytes(300_000 + 3 * 256, 256) == pair.sides[0].bytes(3 * 256, 256));
    assert_eq!(pair.sides[1].bytes(300_000, 256), vec![0; 256]);
    // One that goes where its key does not reach is dropped, and refused in its turn.
    let mut wrong = rest[4].clone();
    let Extended::Reth(reth) = &mut wrong.headers.extended else {
        panic!("it has an RETH");
    };
    reth.va += 1 << 30;
    pair.wire[0].push_back(wrong);
    pair.deliver();
    pair.wire[0].extend(rest);
    run(&mut pair, 1, 3, |_, _| true);
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert!(pair.sides[1].bytes(300_000, 8 * 256) == pair.sides[0].bytes(0, 8 * 256));
}

/// Losses, duplicates and ways of any delay, from a seed, with everything at once.
#[test]
fn everything_at_once() {
    for seed in 1..SEEDS {
        let mut below = random(seed);
        let mut pair = pair(2 + below(15) as u32);
        set(&mut pair, 1, true, 1 + below(16) as u32);
        let bytes: Vec<u8> = (0..400_000).map(|_| below(256) as u8).collect();
        pair.sides[0].fill(0, &bytes);
        let mut theirs = pair.sides[1].bytes(0, 1 << 20);
        let (mut reads, mut received) = (Vec::new(), Vec::new());
        let rkey = pair.sides[1].keys.rkey;
        let count = 40;
        for id in 0..count {
            let len = (below(8) * 200 + 1) as u32;
            let from = below(200_000);
            let mut changes = |to: u64| {
                let bytes = &bytes[from as usize..][..len as usize];
                theirs[to as usize..][..len as usize].copy_from_slice(bytes);
            };
            match below(6) {
                // Places that overlap.
                0..=2 => {
                    let to = 500_000 + below(3000);
                    changes(to);
                    write(&mut pair, id, from, to, len);
                }
                3 => {
                    let to = 400_000 + id * 2000;
                    let a = &mut pair.sides[0];
                    let addr = a.va(from);
                    a.post(id, SendOp::Read { addr, rkey }, &[a.sge(to, len)]);
                    reads.push((from as usize, to as usize, len as usize));
                }
                kind => {
                    let at = 700_000 + id * 2000;
                    let b = &mut pair.sides[1];
                    b.post_recv(id, &[b.sge(at, 2000)]);
                    let a = &mut pair.sides[0];
                    let addr = a.va(at);
                    let op = match kind {
                        4 => SendOp::Send,
                        _ => SendOp::WriteImm { addr, rkey, imm: 1 },
                    };
                    a.post(id, op, &[a.sge(from, len)]);
                    received.push((id, len));
                    changes(at);
                }
            }
        }
        let loss = [0, 1, 8][below(3) as usize];
        let mut chance = random(seed ^ 0x5555);
        run_of(&mut pair, &[0, 1], seed, 1000, |_, packet| {
            chance(100) >= loss || (is_answer(packet) && chance(2) == 0)
        });
        let all: Vec<(u64, Status)> = (0..count).map(|id| (id, Status::Success)).collect();
        assert_eq!(statuses(&mut pair), all, "seed {seed}");
        let got: Vec<_> = pair.sides[1].completions();
        let got: Vec<_> = got.iter().map(|c| (c.wr_id, c.byte_len)).collect();
        assert_eq!(got, received, "seed {seed}");
        assert!(
            pair.sides[1].bytes(0, 1 << 20) == theirs,
            "seed {seed}: memory of the peer"
        );
        for (from, to, len) in reads {
            // (Zeros, if nothing was there.)
            assert_eq!(
                pair.sides[0].bytes(to, len),
                theirs[from..from + len],
                "seed {seed}"
            );
        }
    }
}

/// A pair whose second side answers by so many ways.
fn answering(ways: u32) -> Pair {
    let mut pair = pair(1);
    set(&mut pair, 1, true, ways);
    let bytes: Vec<u8> = (0..400_000u32).map(|i| (i * 5 + i / 256) as u8).collect();
    pair.sides[1].fill(0, &bytes);
    pair
}

/// Posts a READ of `len` bytes from the start of the second side's memory.
fn read(pair: &mut Pair, id: u64, to: u64, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(id, SendOp::Read { addr, rkey }, &[a.sge(to, len)]);
}

/// PSNs of the READs that the first side asked for, each time.
fn asked(pair: &Pair) -> Vec<(Psn, u32)> {
    let requests = pair.log.iter().filter(|(from, _)| *from == 0);
    let reads = requests.filter_map(|(_, packet)| match packet.headers.extended {
        Extended::Reth(reth) => Some((packet.headers.bth.psn, reth.len)),
        _ => None,
    });
    reads.collect()
}

/// Responses, by PSN from a first one on.
fn responses(packet: &Packet, first: Psn) -> Option<i32> {
    let operation = packet.headers.bth.opcode.operation()?;
    let psn = packet.headers.bth.psn;
    operation.is_read_response().then(|| psn.distance(first))
}

#[test]
fn responses_spread_and_hardly_any_is_asked_for_twice() {
    let mut again = 0;
    for seed in 1..50 {
        let mut pair = answering(4);
        for id in 0..10 {
            read(&mut pair, id, 500_000, 140 * MTU);
        }
        run_of(&mut pair, &[1], seed, 3, |_, _| true);
        assert_eq!(statuses(&mut pair).len(), 10);
        assert!(pair.sides[0].bytes(500_000, 140 * 256) == pair.sides[1].bytes(0, 140 * 256));
        // (A way that is not seen for long is not known yet.)
        again += asked(&pair).len() - 10;
        let ports = by_port(&pair, 1);
        assert_eq!(ports.len(), 4);
        assert!(ports.values().all(|n| *n > 150), "seed {seed}: {ports:?}");
        assert!(hits(&pair, 0, Mark::ScatterAwaited) > 0 && hits(&pair, 1, Mark::ResponseScattered) > 0);
        assert!(pair.sides[1].device.counters().roce_multipath_packets > 500);
        // What people see of it: at the side that answers, with the ports of the packets.
        let side = &mut pair.sides[1];
        let status = side.device.qp_status(side.qp, Default::default()).unwrap();
        let mut seen: Vec<u16> = status
            .response_ways
            .iter()
            .flatten()
            .map(|way| way.source_port)
            .collect();
        seen.sort_unstable();
        assert!(seen.iter().eq(ports.keys()), "{:?}", status.response_ways);
        assert!(status.ways.iter().all(Option::is_none));
    }
    assert!(again < 60, "{again} of 490");
}

#[test]
fn a_lost_response_of_one_way_is_asked_for_alone() {
    let mut more = 0;
    for seed in 1..50 {
        let mut pair = answering(4);
        let first = pair.sides[0].device.query_qp(pair.sides[0].qp).unwrap().sq_psn;
        let first = Psn::new(first.value());
        let mut due = vec![7, 100, 101, 350, 800];
        for id in 0..10 {
            read(&mut pair, id, 500_000, 140 * MTU);
        }
        run_of(&mut pair, &[1], seed, 10, |from, packet| {
            let psn = (from == 1).then(|| responses(packet, first)).flatten();
            let at = due.iter().position(|due| Some(*due) == psn);
            at.map(|at| due.remove(at)).is_none()
        });
        assert_eq!(statuses(&mut pair).len(), 10);
        assert!(pair.sides[0].bytes(500_000, 140 * 256) == pair.sides[1].bytes(0, 140 * 256));
        let parts: Vec<std::ops::Range<i32>> = asked(&pair)
            .iter()
            .filter(|(_, len)| *len < 140 * MTU)
            .map(|(psn, len)| psn.distance(first)..psn.distance(first) + (*len / MTU) as i32)
            .collect();
        assert!(
            [7, 100, 101, 350, 800]
                .iter()
                .all(|psn| parts.iter().any(|part| part.contains(psn))),
            "seed {seed}: {parts:?}"
        );
        more += parts.len() - 4;
        assert_eq!(pair.sides[0].device.counters().local_ack_timeout_err, 0);
    }
    // (A way of which nothing comes while 512 others do is taken for dead.)
    assert!(more < 150, "{more}");
}

#[test]
fn a_dead_way_of_responses_is_left_out() {
    for seed in 1..20 {
        let mut pair = answering(4);
        let mut lost = 0;
        for id in 0..60 {
            read(&mut pair, id, 500_000, 100 * MTU);
        }
        let own = std::cell::Cell::new(None);
        run_of(&mut pair, &[1], seed, 400, |from, packet| {
            let port = packet.path.source_port;
            if from == 0 || !packet.headers.bth.scattered {
                return true;
            }
            own.set(own.get().or(Some(port)));
            let dies = own.get().is_some_and(|own| own ^ port == 4);
            lost += u64::from(dies);
            !dies
        });
        assert_eq!(statuses(&mut pair).len(), 60);
        assert!(pair.sides[0].bytes(500_000, 100 * 256) == pair.sides[1].bytes(0, 100 * 256));
        let counters = pair.sides[1].device.counters();
        assert!(counters.roce_multipath_rests > 0);
        assert!(hits(&pair, 1, Mark::WayRested) > 0);
        // (It is tried now and then, as time passes.)
        assert!(lost > 0 && lost < 600, "seed {seed}: {lost} of 6,000 packets");
    }
}

#[test]
fn a_refusal_that_overtakes_responses_is_heard_of_in_its_turn() {
    for seed in 1..50 {
        let mut pair = answering(4);
        read(&mut pair, 1, 500_000, 140 * MTU);
        let a = &mut pair.sides[0];
        let (addr, rkey) = (a.va(0), 0x1234_5678);
        a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 300)]);
        run_of(&mut pair, &[1], seed, 3, |_, _| true);
        let all = statuses(&mut pair);
        assert_eq!(
            all,
            [(1, Status::Success), (2, Status::RemoteAccessError)],
            "seed {seed}"
        );
        assert!(pair.sides[0].bytes(500_000, 140 * 256) == pair.sides[1].bytes(0, 140 * 256));
    }
}

#[test]
fn responses_take_one_way_where_one_side_wants_it() {
    for (mine, theirs, ways) in [(true, false, 4), (false, true, 4), (true, true, 1)] {
        let mut pair = answering(ways);
        set(&mut pair, 0, mine, 1);
        set(&mut pair, 1, theirs, ways);
        for id in 0..3 {
            read(&mut pair, id, 500_000, 50 * MTU);
            pair.run();
        }
        assert_eq!(statuses(&mut pair).len(), 3);
        assert_eq!(by_port(&pair, 1).len(), 1, "{mine} {theirs} {ways}");
        let mut responses = pair.log.iter().filter(|(from, _)| *from == 1);
        assert!(responses.all(|(_, packet)| !packet.headers.bth.scattered));
        let mut requests = pair.log.iter().filter(|(from, _)| *from == 0);
        assert!(requests.all(|(_, packet)| packet.payload.is_empty()));
    }
}
