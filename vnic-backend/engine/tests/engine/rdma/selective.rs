//! Selective repeat: lost packets of WRITEs and READs are sent again one by one.

use std::collections::BTreeMap;
use std::time::Duration;

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{Access, Congestion, Mark, Outgoing, QpState, QpType, SendOp, Sink, Status};
use vnic_wire::aeth::{NakCode, Syndrome};
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::sack;
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::harness::{Connection, Packet, Pair};

const MTU: u32 = 256;
/// Seeds of [`everything_at_once`].
const SEEDS: u64 = 600;

fn set(pair: &mut Pair, side: usize, selective: bool) {
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            selective,
            ..ZeroTouch::OFF
        },
        ..Congestion::default()
    };
    let now = pair.now;
    pair.sides[side].device.set_congestion(congestion, now);
}

fn pair() -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    set(&mut pair, 0, true);
    set(&mut pair, 1, true);
    let bytes: Vec<u8> = (0..400_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    for side in &pair.sides {
        side.fill(0, &bytes);
    }
    pair
}

/// Posts a WRITE of `len` bytes from `from` at the first side to `to` at the second.
fn write(pair: &mut Pair, id: u64, from: u64, to: u64, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(to);
    a.post(id, SendOp::Write { addr, rkey }, &[a.sge(from, len)]);
}

/// Posts a READ of `len` bytes from `from` at the second side to `to` at the first.
fn read(pair: &mut Pair, id: u64, from: u64, to: u64, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(from);
    a.post(id, SendOp::Read { addr, rkey }, &[a.sge(to, len)]);
}

fn number(packet: &Packet) -> i32 {
    packet
        .headers
        .bth
        .psn
        .distance(Psn::new(Connection::default().psn))
}

/// Loses the first transmission of packets of one side, by their number from the first PSN on.
fn losing(side: usize, lost: &[i32]) -> impl FnMut(usize, &Packet) -> bool {
    let mut lost = lost.to_vec();
    move |from, packet| {
        let is_answer = packet.headers.bth.opcode.operation() == Some(Operation::Acknowledge);
        if from != side || (side == 1 && is_answer) {
            return true;
        }
        let at = lost.iter().position(|n| *n == number(packet));
        at.map(|at| lost.remove(at)).is_none()
    }
}

/// Numbers that the first side sent, with how often, if more than once.
fn repeated(pair: &Pair, side: usize) -> BTreeMap<i32, usize> {
    let mut sent = BTreeMap::new();
    let data = |packet: &Packet| packet.headers.bth.opcode.operation() != Some(Operation::Acknowledge);
    for (_, packet) in pair
        .log
        .iter()
        .filter(|(from, packet)| *from == side && data(packet))
    {
        *sent.entry(number(packet)).or_insert(0) += 1;
    }
    sent.retain(|_, times| *times > 1);
    sent
}

fn statuses(pair: &mut Pair) -> Vec<(u64, Status)> {
    let all = pair.sides[0].completions();
    all.iter().map(|c| (c.wr_id, c.status)).collect()
}

/// The ACK timer has never run out.
fn no_timeouts(pair: &Pair) -> bool {
    pair.sides[0].device.counters().local_ack_timeout_err == 0
}

fn hits(pair: &Pair, side: usize, mark: Mark) -> u32 {
    pair.sides[side].device.marks().get(mark)
}

fn selective(pair: &Pair) -> u64 {
    pair.sides[0].device.counters().roce_selective_repeats
}

#[test]
fn one_lost_packet_of_a_write_is_sent_again_and_no_other() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 40 * MTU);
    pair.run_losing(1, losing(0, &[7]));
    assert!(no_timeouts(&pair));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(
        pair.sides[1].bytes(300_000, 40 * 256),
        pair.sides[0].bytes(0, 40 * 256)
    );
    // The missing packet, and the last one of the window.
    assert_eq!(repeated(&pair, 0), BTreeMap::from([(7, 2), (39, 2)]));
    assert_eq!(selective(&pair), 1);
    assert_eq!(pair.sides[0].device.counters().packet_seq_err, 1);
    assert_eq!(pair.sides[1].device.counters().rx_write_requests, 1);
    assert!(hits(&pair, 1, Mark::LandedAhead) > 0 && hits(&pair, 1, Mark::GapsClosed) == 1);
    // Nothing is left over.
    pair.log.clear();
    write(&mut pair, 2, 0, 300_000, 40 * MTU);
    pair.run_losing(1, |_, _| true);
    assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
    assert_eq!(repeated(&pair, 0), BTreeMap::new());
}

#[test]
fn a_loss_restarts_no_window() {
    let mut pair = pair();
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            selective: true,
            slow_restart: true,
            ..ZeroTouch::default()
        },
        ..Congestion::default()
    };
    let now = pair.now;
    pair.sides[0].device.set_congestion(congestion, now);
    write(&mut pair, 1, 0, 300_000, 40 * MTU);
    pair.run_losing(1, losing(0, &[7]));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(hits(&pair, 0, Mark::SlowRestarted), 0);
    assert_eq!(hits(&pair, 0, Mark::SelectiveNakReceived), 1);
}

#[test]
fn a_nak_says_what_has_come() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 12 * MTU);
    pair.run_losing(1, losing(0, &[3, 4, 8]));
    let naks: Vec<(i32, i32, Vec<u32>)> = pair
        .log
        .iter()
        .filter(|(from, packet)| *from == 1 && !packet.payload.is_empty())
        .map(|(_, packet)| {
            let Extended::Aeth(aeth) = packet.headers.extended else {
                panic!("{packet:?}")
            };
            assert_eq!(aeth.syndrome, Syndrome::Nak(NakCode::SequenceError));
            assert!(packet.headers.bth.selective);
            let sack = sack::Header::parse(&packet.payload).unwrap();
            let trigger = sack.trigger.distance(Psn::new(Connection::default().psn));
            let came = (0..sack::SPAN).filter(|i| sack.has(*i)).collect();
            (number(packet), trigger, came)
        })
        .collect();
    // All came at once, so there is one: the last packet asked for it.
    assert_eq!(naks[0], (3, 11, vec![2, 3, 4, 6, 7, 8]));
    assert_eq!(
        repeated(&pair, 0).keys().copied().collect::<Vec<_>>(),
        [3, 4, 8, 11]
    );
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
}

#[test]
fn what_is_lost_again_is_sent_again() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 30 * MTU);
    // The copy of 5 is lost, too; that of 9, which is sent behind it, says so.
    pair.run_losing(1, losing(0, &[5, 9, 5]));
    assert!(no_timeouts(&pair));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(repeated(&pair, 0)[&5], 3);
    assert_eq!(repeated(&pair, 0)[&9], 2);
    assert!(hits(&pair, 0, Mark::RepeatedOften) > 0);

    // A lone one: the last packet of the window, as a probe, says so.
    pair.log.clear();
    write(&mut pair, 2, 0, 300_000, 30 * MTU);
    pair.run_losing(1, losing(0, &[35, 35, 35]));
    assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
    assert_eq!(repeated(&pair, 0)[&35], 4);
    assert!(hits(&pair, 0, Mark::RepeatProved) > 0);
    // Each time is a retry, and there are three.
    pair.log.clear();
    write(&mut pair, 3, 0, 300_000, 30 * MTU);
    pair.run_losing(4, losing(0, &[65; 9]));
    assert_eq!(statuses(&mut pair), [(3, Status::RetryExceeded)]);
}

#[test]
fn a_lost_end_is_found_by_the_probe_or_by_the_timer() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 30 * MTU);
    pair.run_losing(1, losing(0, &[7, 29]));
    assert!(no_timeouts(&pair));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(repeated(&pair, 0), BTreeMap::from([(7, 2), (29, 2)]));
    // Nothing came behind it: it goes back, until the first answer.
    write(&mut pair, 2, 0, 300_000, 30 * MTU);
    pair.run_losing(2, losing(0, &[58, 59]));
    assert!(!no_timeouts(&pair));
    assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
    assert_eq!(
        pair.sides[1].bytes(300_000, 30 * 256),
        pair.sides[0].bytes(0, 30 * 256)
    );
}

#[test]
fn many_messages_and_many_losses() {
    let mut pair = pair();
    for i in 0..60u64 {
        // Of one packet and of several; the first packet of some is lost, so that the rest has no address.
        let len = if i % 3 == 0 { 5 * MTU } else { 100 };
        write(&mut pair, i, i * 1280, 300_000 + i * 1280, len);
    }
    let lost: Vec<i32> = (0..140).filter(|n| n % 5 == 0 || n % 7 == 0).collect();
    pair.run_losing(6, losing(0, &lost));
    assert_eq!(statuses(&mut pair).len(), 60);
    for i in 0..60usize {
        let len = if i % 3 == 0 { 5 * 256 } else { 100 };
        let (from, to) = (i * 1280, 300_000 + i * 1280);
        assert_eq!(
            pair.sides[1].bytes(to, len),
            pair.sides[0].bytes(from, len),
            "{i}"
        );
    }
    assert_eq!(pair.sides[1].device.counters().rx_write_requests, 60);
    assert!(hits(&pair, 1, Mark::NotAhead) > 0);
}

#[test]
fn a_later_write_stays_where_an_earlier_one_comes_again() {
    let mut pair = pair();
    // 0: lost; 1 and 2 land in the middle of it and beside it.
    write(&mut pair, 1, 0, 300_000, 200);
    write(&mut pair, 2, 1000, 300_050, 20);
    write(&mut pair, 3, 2000, 300_190, 40);
    write(&mut pair, 4, 3000, 300_060, 20);
    pair.run_losing(1, losing(0, &[0]));
    assert_eq!(statuses(&mut pair).len(), 4);
    let a = &pair.sides[0];
    let mut wanted = a.bytes(0, 200);
    wanted.resize(230, 0);
    for (from, to, len) in [(1000, 50, 20), (2000, 190, 40), (3000, 60, 20)] {
        wanted[to..to + len].copy_from_slice(&a.bytes(from, len));
    }
    assert_eq!(pair.sides[1].bytes(300_000, 230), wanted);
    assert_eq!(hits(&pair, 1, Mark::LandedUnder), 1);
}

#[test]
fn sends_are_dropped_before_their_turn() {
    let mut pair = pair();
    for i in 0..20 {
        let b = &mut pair.sides[1];
        b.post_recv(i, &[b.sge(300_000 + i * 256, 256)]);
    }
    for i in 0..20 {
        let a = &mut pair.sides[0];
        match i % 4 {
            3 => write(&mut pair, i, i * 256, 200_000 + i * 256, 256),
            _ => a.post(i, SendOp::Send, &[a.sge(i * 256, 256)]),
        }
    }
    pair.run_losing(2, losing(0, &[2, 5, 5, 11]));
    assert_eq!(statuses(&mut pair).len(), 20);
    let receives = pair.sides[1].completions();
    let ids: Vec<u64> = receives.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, (0..15).collect::<Vec<_>>());
    let sends: Vec<u64> = (0..20).filter(|i| i % 4 != 3).collect();
    for (slot, i) in sends.iter().enumerate() {
        let got = pair.sides[1].bytes(300_000 + slot * 256, 256);
        assert_eq!(got, pair.sides[0].bytes(*i as usize * 256, 256), "{i}");
    }
}

#[test]
fn a_key_is_refused_in_its_turn() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    let a = &mut pair.sides[0];
    let op = SendOp::Write {
        addr: a.va(300_000),
        rkey: 0x1234_5678,
    };
    a.post(2, op, &[a.sge(0, 2 * MTU)]);
    write(&mut pair, 3, 0, 310_000, 10);
    pair.run_losing(1, losing(0, &[4]));
    assert_eq!(
        statuses(&mut pair),
        [
            (1, Status::Success),
            (2, Status::RemoteAccessError),
            (3, Status::FlushError)
        ]
    );
    assert_eq!(pair.sides[1].bytes(300_000, 2560), pair.sides[0].bytes(0, 2560));
    assert_eq!(pair.sides[1].state(), QpState::Err);
}

#[test]
fn a_message_that_goes_on_behind_its_bytes_is_refused_in_its_turn() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 8 * MTU);
    // Its first packet says that there is no more than that.
    let short = |packet: &mut Packet| {
        if let Extended::Reth(reth) = &mut packet.headers.extended {
            reth.len = MTU;
        }
    };
    let mut lose = losing(0, &[1]);
    for _ in 0..2 {
        pair.send(&mut lose);
        pair.wire[0].iter_mut().for_each(short);
        pair.deliver();
    }
    assert_eq!(hits(&pair, 1, Mark::LandedAhead), 0);
    assert_eq!(hits(&pair, 1, Mark::NotAhead), 6);
    pair.run();
    assert_eq!(statuses(&mut pair), [(1, Status::RemoteInvalidRequestError)]);
}

#[test]
fn so_many_messages_are_known_before_their_turn() {
    let mut pair = pair();
    for side in &mut pair.sides {
        side.init.max_send_wr = 256;
        side.qp = side.device.create_qp(&side.init).unwrap();
    }
    pair.connect(Connection::default());
    for i in 0..101 {
        write(&mut pair, i, 0, 300_000 + i * 512, 2 * MTU);
    }
    let mut lose = losing(0, &[0]);
    while pair.wire[0].len() < 201 {
        pair.send(&mut lose);
    }
    pair.deliver();
    // Both packets of 64 of them; of the others neither.
    assert_eq!(hits(&pair, 1, Mark::LandedAhead), 2 * 64);
    pair.run();
    assert_eq!(statuses(&mut pair).len(), 101);
    for i in 0..101 {
        let to = 300_000 + i * 512;
        assert_eq!(pair.sides[1].bytes(to, 512), pair.sides[0].bytes(0, 512), "{i}");
    }
}

#[test]
fn rights_are_those_of_the_key() {
    // Without the right to be written nothing lands before its turn, and nothing in it.
    let mut pair = Pair::new(
        QpType::Rc,
        Connection {
            access: Access::LOCAL_WRITE | Access::REMOTE_READ,
            ..Connection::default()
        },
    );
    set(&mut pair, 0, true);
    set(&mut pair, 1, true);
    pair.sides[0].fill(0, &[7; 2560]);
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    pair.run_losing(1, losing(0, &[0]));
    assert_eq!(statuses(&mut pair), [(1, Status::RemoteAccessError)]);
    assert_eq!(pair.sides[1].bytes(300_000, 2560), [0; 2560]);
    assert_eq!(hits(&pair, 1, Mark::LandedAhead), 0);
}

#[test]
fn a_gap_in_a_read_is_asked_for_and_no_more() {
    let mut pair = pair();
    read(&mut pair, 1, 0, 300_000, 40 * MTU);
    pair.run_losing(1, losing(1, &[7, 8, 20]));
    assert!(no_timeouts(&pair));
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(
        pair.sides[0].bytes(300_000, 40 * 256),
        pair.sides[1].bytes(0, 40 * 256)
    );
    let responses = BTreeMap::from([(7, 2), (8, 2), (20, 2)]);
    assert_eq!(repeated(&pair, 1), responses);
    assert_eq!(selective(&pair), 2);
    assert_eq!(hits(&pair, 0, Mark::ReadGapAsked), 2);
}

/// What is asked for again comes 10 ms later, behind what else is in the network: who has seen that asks once.
#[test]
fn a_part_of_a_read_is_waited_for_as_long_as_others_took() {
    let mut pair = pair();
    let mut asked = Vec::new();
    for id in 1..=3 {
        read(&mut pair, id, 0, 300_000, 400 * MTU);
        pair.send(|_, _| true);
        pair.deliver();
        while pair.sides[1].device.wants_transmit() {
            pair.send(|_, _| true);
        }
        let mut due: Vec<_> = pair.wire[1].drain(..).enumerate().collect();
        due.remove(7);
        let start = pair.now;
        let mut due: Vec<_> = due
            .into_iter()
            .map(|(i, packet)| (start + Duration::from_micros(100 * i as u64), packet))
            .collect();
        pair.log.clear();
        while let Some(next) = (0..due.len()).min_by_key(|i| due[*i].0) {
            let (at, packet) = due.remove(next);
            pair.now = at;
            pair.wire[1].push_back(packet);
            pair.deliver();
            pair.send(|_, _| true);
            pair.deliver();
            pair.send(|_, _| true);
            let again = pair.wire[1].drain(..);
            due.extend(again.map(|packet| (at + Duration::from_millis(10), packet)));
        }
        assert_eq!(statuses(&mut pair), [(id, Status::Success)]);
        asked.push(pair.log.iter().filter(|(from, _)| *from == 0).count());
    }
    assert!(no_timeouts(&pair));
    assert!(asked[0] > 1 && asked[1..] == [1, 1], "{asked:?}");
}

/// A wire that is closed behind eight packets.
struct Few(Vec<Packet>);

impl Sink for Few {
    fn open(&mut self) -> u8 {
        if self.0.len() < 8 { 0xff } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).unwrap();
        self.0.push(Packet {
            path: *packet.path,
            headers: packet.headers,
            payload,
            priority: packet.priority,
            telemetry: None,
        });
    }
}

/// The first eight packets of one side.
fn few(pair: &mut Pair, from: usize) -> Vec<Packet> {
    let mut few = Few(Vec::new());
    let side = &mut pair.sides[from];
    side.device.transmit(pair.now, &side.ram, &mut few);
    few.0
}

/// It is switched off and on again while a READ is answered: what was asked for again as a whole is answered in part.
#[test]
fn a_part_of_a_read_ends_in_the_middle_also_where_nothing_is_known_of_parts() {
    let mut pair = pair();
    read(&mut pair, 1, 0, 500_000, 40 * MTU);
    pair.send(|_, _| true);
    pair.deliver();
    // The first of the first responses is lost.
    let answers = few(&mut pair, 1);
    assert_eq!(answers.len(), 8);
    pair.wire[1].extend(answers.into_iter().skip(1));
    set(&mut pair, 0, false);
    pair.deliver();
    set(&mut pair, 0, true);
    let again = few(&mut pair, 0);
    assert_eq!(again.len(), 1);
    pair.wire[0].extend(again);
    pair.deliver();
    pair.run_losing(1, |_, _| true);
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(
        pair.sides[0].bytes(500_000, 40 * 256),
        pair.sides[1].bytes(0, 40 * 256)
    );
}

/// A READ is asked for again as a whole while it is answered, and both sides are switched off: what was answered comes again, the rest
/// behind it, and nothing in the middle says that it is the end.
#[test]
fn a_read_that_is_asked_for_again_has_one_end() {
    let mut pair = pair();
    read(&mut pair, 1, 0, 500_000, 40 * MTU);
    pair.send(|_, _| true);
    pair.deliver();
    // All of the first responses are lost.
    assert_eq!(few(&mut pair, 1).len(), 8);
    let mut waited = 0;
    while hits(&pair, 0, Mark::AckTimeout) == 0 {
        pair.now = pair.sides[0].device.next_timeout().unwrap();
        let now = pair.now;
        pair.sides[0].device.handle_timeout(now);
        waited += 1;
        assert!(waited < 5);
    }
    let again = few(&mut pair, 0);
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [0]);
    pair.wire[0].extend(again);
    pair.deliver();
    set(&mut pair, 0, false);
    set(&mut pair, 1, false);
    pair.run_losing(1, |_, _| true);
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
    assert_eq!(
        pair.sides[0].bytes(500_000, 40 * 256),
        pair.sides[1].bytes(0, 40 * 256)
    );
}

/// What was asked for one by one comes when the requester has been switched off.
#[test]
fn a_part_of_a_read_ends_in_the_middle_also_where_it_is_switched_off() {
    let mut pair = pair();
    read(&mut pair, 1, 0, 500_000, 40 * MTU);
    pair.send(|_, _| true);
    pair.deliver();
    let answers = few(&mut pair, 1);
    let (first, rest) = answers.split_first().unwrap();
    pair.wire[1].extend(rest.iter().cloned());
    pair.deliver();
    let again = few(&mut pair, 0);
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [0]);
    // The first was late, not lost.
    pair.wire[1].push_back(first.clone());
    pair.deliver();
    set(&mut pair, 0, false);
    // What is asked for again is behind nothing else.
    let mut part = first.clone();
    part.headers.bth.psn = part.headers.bth.psn.add(8);
    part.headers.bth.opcode =
        vnic_wire::opcode::Opcode::new(part.headers.bth.opcode.transport(), Operation::ReadResponseOnly);
    part.payload = pair.sides[1].bytes(8 * 256, 256);
    pair.wire[1].push_back(part);
    pair.deliver();
    pair.run_losing(1, |_, _| true);
    assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
}

#[test]
fn reads_behind_each_other_and_writes_between_them() {
    let mut pair = pair();
    for i in 0..4 {
        read(&mut pair, 2 * i, i * 10_000, 300_000 + i * 10_000, 20 * MTU);
        write(&mut pair, 2 * i + 1, 0, 200_000 + i * 1000, 700);
    }
    // Responses over the end of a READ, and the last one of all.
    pair.run_losing(4, losing(1, &[3, 18, 19, 23, 24, 60, 88]));
    let all: Vec<(u64, Status)> = (0..8).map(|i| (i, Status::Success)).collect();
    assert_eq!(statuses(&mut pair), all);
    for i in 0..4usize {
        let got = pair.sides[0].bytes(300_000 + i * 10_000, 20 * 256);
        assert_eq!(got, pair.sides[1].bytes(i * 10_000, 20 * 256), "{i}");
    }
    let repeated = repeated(&pair, 1);
    assert!(
        repeated.keys().all(|n| [3, 18, 19, 23, 24, 60, 88].contains(n)),
        "{repeated:?}"
    );
}

/// Numbers of READ requests that were sent more than once, and of atomics.
fn asked_again(pair: &Pair) -> Vec<i32> {
    let fetches = |packet: &Packet| {
        let operation = packet.headers.bth.opcode.operation();
        operation == Some(Operation::ReadRequest) || operation == Some(Operation::FetchAdd)
    };
    let sent = pair.log.iter().filter(|(_, packet)| fetches(packet));
    let mut numbers: Vec<i32> = sent.map(|(_, packet)| number(packet)).collect();
    numbers.sort_unstable();
    let again = numbers.windows(2).filter(|pair| pair[0] == pair[1]);
    again.map(|pair| pair[0]).collect()
}

#[test]
fn reads_and_atomics_wait_for_their_turn() {
    let mut pair = pair();
    pair.sides[1].fill(310_000, &[0; 8]);
    let rkey = pair.sides[1].keys.rkey;
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    read(&mut pair, 2, 300_000, 500_000, 10 * MTU);
    let a = &mut pair.sides[0];
    let op = SendOp::FetchAdd {
        addr: a.va(310_000),
        rkey,
        add: 7,
    };
    a.post(3, op, &[a.sge(520_000, 8)]);
    read(&mut pair, 4, 310_000, 530_000, 8);
    pair.run_losing(1, losing(0, &[4]));
    assert!(no_timeouts(&pair));
    let all: Vec<(u64, Status)> = (1..=4).map(|id| (id, Status::Success)).collect();
    assert_eq!(statuses(&mut pair), all);
    // Each saw what was before it.
    let a = &pair.sides[0];
    assert_eq!(a.bytes(500_000, 2560), a.bytes(0, 2560));
    assert_eq!(a.bytes(520_000, 8), [0; 8]);
    assert_eq!(a.bytes(530_000, 8), 7u64.to_ne_bytes());
    assert_eq!(hits(&pair, 1, Mark::KeptAhead), 3);
    assert_eq!(hits(&pair, 1, Mark::KeptCarriedOut), 3);
    // (The last one is the probe behind what was sent again.)
    assert_eq!((selective(&pair), asked_again(&pair)), (1, vec![21]));
}

/// Many READs are answered while one is missing: the requester hears of that first, and sends that one again and no other.
#[test]
fn a_lost_read_request_is_sent_again_while_others_are_answered() {
    let mut pair = pair();
    for id in 0..4 {
        read(&mut pair, id, 0, 500_000 + id * 10_000, 30 * MTU);
    }
    pair.send(losing(0, &[60]));
    pair.deliver();
    let first = few(&mut pair, 1);
    let nak = |packet: &Packet| packet.headers.bth.opcode.operation() == Some(Operation::Acknowledge);
    assert!(nak(&first[0]), "{:?}", first[0]);
    assert!(!first[1..].iter().any(nak));
    let sack = sack::Header::parse(&first[0].payload).unwrap();
    assert!(sack.answers && sack.has(30) && !sack.has(0));
    pair.wire[1].extend(first);
    pair.deliver();
    let again = few(&mut pair, 0);
    // (And the last one, as a probe.)
    assert_eq!(again.iter().map(number).collect::<Vec<_>>(), [60, 90]);
    pair.wire[0].extend(again);
    pair.run_losing(1, |_, _| true);
    assert_eq!(statuses(&mut pair).len(), 4);
    assert_eq!(repeated(&pair, 1), BTreeMap::new());
    for id in 0..4 {
        let got = pair.sides[0].bytes(500_000 + id * 10_000, 30 * 256);
        assert_eq!(got, pair.sides[1].bytes(0, 30 * 256), "{id}");
    }
}

/// What was sent again is lost, too, and the last request is a READ: it is the probe.
#[test]
fn a_read_proves_what_was_sent_again() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    read(&mut pair, 2, 300_000, 500_000, 10 * MTU);
    pair.run_losing(1, losing(0, &[4, 4, 4]));
    assert!(no_timeouts(&pair));
    assert_eq!(statuses(&mut pair).len(), 2);
    assert!(hits(&pair, 0, Mark::RepeatProved) > 0);
}

/// A part that was asked for again and is lost once more is asked for when a later one comes, or, if none does, after the time that
/// others took.
#[test]
fn a_part_of_a_read_that_is_lost_again_waits_for_no_timeout() {
    for lost in [&[7, 7, 20][..], &[7, 7, 7]] {
        let mut pair = pair();
        read(&mut pair, 1, 0, 300_000, 40 * MTU);
        let start = pair.now;
        pair.run_losing(20, losing(1, lost));
        assert!(no_timeouts(&pair));
        assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
        assert_eq!(
            pair.sides[0].bytes(300_000, 40 * 256),
            pair.sides[1].bytes(0, 40 * 256)
        );
        assert_eq!(hits(&pair, 0, Mark::FetchedOvertaken), u32::from(lost[2] == 20));
        let waited = pair.now.since(start);
        assert!(waited < Duration::from_millis(4), "{waited:?}");
    }
}

/// Eight READs wait for parts of the first; the peer takes four at a time, and has answered these.
#[test]
fn reads_go_on_while_parts_are_missing() {
    let mut pair = pair();
    for id in 0..12 {
        read(&mut pair, id, 0, 400_000 + id * 1000, 3 * MTU);
    }
    let wire = |pair: &mut Pair, lost: &[i32]| {
        pair.send(losing(1, lost));
        let parts = |packet: &Packet| number(packet) == 1;
        pair.wire[0].retain(|packet| !parts(packet));
        pair.deliver();
    };
    for _ in 0..6 {
        wire(&mut pair, &[1]);
    }
    let asked = pair
        .log
        .iter()
        .filter(|(from, packet)| *from == 0 && number(packet) % 3 == 0);
    assert_eq!(asked.count(), 8);
    pair.run_losing(4, |_, _| true);
    let all: Vec<(u64, Status)> = (0..12).map(|id| (id, Status::Success)).collect();
    assert_eq!(statuses(&mut pair), all);
}

#[test]
fn atomics_lost_on_either_way() {
    let mut pair = pair();
    pair.sides[1].fill(300_000, &[0; 8]);
    let rkey = pair.sides[1].keys.rkey;
    for i in 0..4 {
        read(&mut pair, 10 + i, 0, 100_000, 4 * MTU);
        let a = &mut pair.sides[0];
        let op = SendOp::FetchAdd {
            addr: a.va(300_000),
            rkey,
            add: 1,
        };
        a.post(20 + i, op, &[a.sge(200_000 + 8 * i, 8)]);
    }
    // The answer to the first, and the request of the second.
    let (mut answers, mut requests) = (losing(1, &[4]), losing(0, &[9]));
    pair.run_losing(4, |from, packet| answers(from, packet) && requests(from, packet));
    assert_eq!(statuses(&mut pair).len(), 8);
    assert_eq!(pair.sides[1].bytes(300_000, 8), 4u64.to_ne_bytes());
    for i in 0..4usize {
        let got = pair.sides[0].bytes(200_000 + 8 * i, 8);
        assert_eq!(got, (i as u64).to_ne_bytes(), "{i}");
    }
}

#[test]
fn a_peer_that_does_not_know_it_goes_back() {
    for (mine, theirs) in [(true, false), (false, true)] {
        let mut pair = pair();
        set(&mut pair, 0, mine);
        set(&mut pair, 1, theirs);
        write(&mut pair, 1, 0, 300_000, 40 * MTU);
        pair.run_losing(1, losing(0, &[7]));
        assert_eq!(statuses(&mut pair), [(1, Status::Success)]);
        assert_eq!(repeated(&pair, 0).len(), 33);
        assert!(
            pair.log
                .iter()
                .all(|(from, packet)| *from == 0 || packet.payload.is_empty())
        );
        pair.log.clear();
        read(&mut pair, 2, 0, 300_000, 40 * MTU);
        pair.run_losing(1, losing(1, &[60]));
        assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
        assert!(repeated(&pair, 1).len() >= 19);
        assert_eq!(selective(&pair), 0);
        let packets = pair.log.iter();
        assert!(packets.clone().any(|(_, packet)| packet.headers.bth.selective));
    }
}

/// A responder that knows selective repeat says for each packet under way what is missing. It is one loss, also for a requester that
/// goes back, because it was switched off meanwhile.
#[test]
fn a_loss_is_one_retry_however_often_it_is_told() {
    let mut pair = pair();
    // From the first answer on each packet asks for one.
    write(&mut pair, 1, 0, 300_000, MTU);
    pair.run();
    write(&mut pair, 2, 0, 300_000, 30 * MTU);
    let mut lose = losing(0, &[8]);
    while pair.sides[0].device.wants_transmit() {
        pair.send(&mut lose);
    }
    set(&mut pair, 0, false);
    let mut told = Vec::new();
    for packet in std::mem::take(&mut pair.wire[0]) {
        pair.wire[0].push_back(packet);
        pair.deliver();
        pair.send(|_, _| true);
        told.extend(pair.wire[1].drain(..));
    }
    let nak = |packet: &&Packet| !packet.payload.is_empty();
    assert_eq!(told.iter().filter(nak).count(), 22);
    let mut again = Vec::new();
    for answer in told {
        pair.wire[1].push_back(answer);
        pair.deliver();
        // What is sent again is under way.
        pair.send(|_, _| true);
        again.extend(pair.wire[0].drain(..));
    }
    assert_eq!(again.len(), 23);
    pair.wire[0].extend(again);
    pair.run();
    assert_eq!(statuses(&mut pair), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(pair.sides[0].device.counters().packet_seq_err, 1);
    assert_eq!(hits(&pair, 0, Mark::SequenceNakRepeated), 21);
}

#[test]
fn a_receiver_that_is_not_ready_is_waited_for() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    let a = &mut pair.sides[0];
    a.post(2, SendOp::Send, &[a.sge(0, 100)]);
    write(&mut pair, 3, 0, 310_000, 10 * MTU);
    let mut lose = losing(0, &[4]);
    pair.send(&mut lose);
    pair.deliver();
    for _ in 0..4 {
        pair.send(&mut lose);
        pair.deliver();
    }
    assert_eq!(hits(&pair, 1, Mark::RnrNakSent), 1);
    let b = &mut pair.sides[1];
    b.post_recv(9, &[b.sge(320_000, 100)]);
    pair.run_losing(3, lose);
    let all: Vec<u64> = statuses(&mut pair).iter().map(|(id, _)| *id).collect();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!(pair.sides[1].bytes(310_000, 2560), pair.sides[0].bytes(0, 2560));
}

#[test]
fn nothing_is_kept_of_a_queue_pair_that_starts_anew() {
    let mut pair = pair();
    write(&mut pair, 1, 0, 300_000, 10 * MTU);
    let mut lose = losing(0, &[4]);
    pair.send(&mut lose);
    pair.deliver();
    for side in &mut pair.sides {
        let reset = vnic_engine::rdma::QpAttributes {
            state: QpState::Reset,
            ..Default::default()
        };
        let mask = vnic_engine::rdma::AttributeMask::STATE;
        side.device.modify_qp(side.qp, &reset, mask, Instant(0)).unwrap();
    }
    pair.wire.iter_mut().for_each(|wire| wire.clear());
    pair.connect(Connection::default());
    pair.log.clear();
    write(&mut pair, 2, 0, 300_000, 10 * MTU);
    pair.run();
    assert_eq!(statuses(&mut pair), [(2, Status::Success)]);
    assert_eq!(repeated(&pair, 0), BTreeMap::new());
}

/// Losses, duplicates and reordering from a seed, with everything at once.
#[test]
fn everything_at_once() {
    for seed in 1..SEEDS {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = move |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut pair = Pair::new(
            QpType::Rc,
            Connection {
                retry_count: 7,
                ..Connection::default()
            },
        );
        set(&mut pair, 0, true);
        set(&mut pair, 1, true);
        let bytes: Vec<u8> = (0..400_000).map(|_| below(256) as u8).collect();
        pair.sides[0].fill(0, &bytes);
        let mut theirs = pair.sides[1].bytes(0, 1 << 20);
        let (mut reads, mut sends) = (Vec::new(), Vec::new());
        let count = 40;
        for id in 0..count {
            let len = (below(8) * 200 + 1) as u32;
            let from = below(200_000);
            match below(4) {
                // Places that overlap.
                0 | 1 => {
                    let to = 500_000 + below(3000);
                    write(&mut pair, id, from, to, len);
                    let bytes = &bytes[from as usize..][..len as usize];
                    theirs[to as usize..][..len as usize].copy_from_slice(bytes);
                }
                2 => {
                    let to = 400_000 + id * 2000;
                    read(&mut pair, id, from, to, len);
                    reads.push((from as usize, to as usize, len as usize));
                }
                _ => {
                    let at = 700_000 + id * 2000;
                    let b = &mut pair.sides[1];
                    b.post_recv(id, &[b.sge(at, 2000)]);
                    let a = &mut pair.sides[0];
                    a.post(id, SendOp::Send, &[a.sge(from, len)]);
                    sends.push((from as usize, at as usize, len as usize));
                    let bytes = &bytes[from as usize..][..len as usize];
                    theirs[at as usize..][..len as usize].copy_from_slice(bytes);
                }
            }
        }
        let mut waited = 0;
        loop {
            pair.send(|_, _| below(100) >= 8);
            for wire in &mut pair.wire {
                if wire.len() > 1 && below(6) == 0 {
                    let last = wire.len() - 1;
                    let at = below(last as u64) as usize;
                    wire.swap(at, at + 1);
                }
                if !wire.is_empty() && below(9) == 0 {
                    let copy = wire[below(wire.len() as u64) as usize].clone();
                    wire.push_back(copy);
                }
            }
            if !pair.goes_on(&mut waited) {
                break;
            }
            assert!(waited <= 1000, "seed {seed}");
        }
        let all: Vec<(u64, Status)> = (0..count).map(|id| (id, Status::Success)).collect();
        assert_eq!(statuses(&mut pair), all, "seed {seed}");
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

#[test]
fn a_device_repairs_so_many_losses_at_a_time_and_goes_back_for_the_rest() {
    const QPS: usize = 600;
    let mut pair = pair();
    for side in &mut pair.sides {
        let cq = side.device.create_cq(4096).unwrap();
        (side.cq, side.init.send_cq, side.init.recv_cq) = (cq, Some(cq), Some(cq));
    }
    let mut numbers = Vec::new();
    for _ in 0..QPS {
        for side in &mut pair.sides {
            side.qp = side.device.create_qp(&side.init).unwrap();
        }
        pair.connect(Connection::default());
        numbers.push(pair.sides[0].qp);
    }
    for (i, qp) in numbers.iter().enumerate() {
        pair.sides[0].qp = *qp;
        write(&mut pair, i as u64, 0, 300_000, 4 * MTU);
    }
    // The first packet of each is lost, and nothing is answered before all of the others are there.
    let mut sent = Vec::new();
    while pair.sides[0].device.wants_transmit() {
        pair.send(|_, packet| number(packet) != 0);
        sent.extend(pair.wire[0].drain(..));
    }
    pair.wire[0].extend(sent);
    pair.deliver();
    pair.log.clear();
    pair.run();
    let naks = pair.log.iter().filter(|(from, packet)| {
        let Extended::Aeth(aeth) = packet.headers.extended else {
            return false;
        };
        *from == 1 && aeth.syndrome == Syndrome::Nak(NakCode::SequenceError)
    });
    let (told, plain): (Vec<_>, Vec<_>) = naks.partition(|(_, packet)| !packet.payload.is_empty());
    assert_eq!((told.len(), plain.len()), (512, QPS - 512));
    let all = statuses(&mut pair);
    assert_eq!(all.len(), QPS);
    assert!(all.iter().all(|(_, status)| *status == Status::Success));
    // All places are free again.
    pair.log.clear();
    write(&mut pair, 1, 0, 300_000, 4 * MTU);
    pair.send(|_, _| true);
    // (Behind the packet that has the address.)
    let lost = pair.wire[0].remove(1).map(|packet| number(&packet)).unwrap();
    pair.deliver();
    pair.run();
    assert_eq!(repeated(&pair, 0), BTreeMap::from([(lost, 2), (lost + 2, 2)]));
}
