//! Questions to subnet administration: only the adapter's own programs ask, each gets its answer, and what is no question is dropped
//! and counted.

use vnic_engine::rdma::{
    Incoming, Payload, QUESTIONS_MAX, QUESTIONS_PER_SECOND, QpNumber, Question, SEGMENTS_MAX, SendOp,
    TRANSFERS_MAX, TRANSFERS_PER_QP, UdDestination, rmpp,
};
use vnic_wire::mad::{self, GSI_QKEY, GSI_QP};
use vnic_wire::pkey::PkeyTable;
use vnic_wire::sa::{Rmpp, RmppType, SaMad, attribute, method, rmpp_status, status};
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::congestion::deliver;
use super::harness::{Packet, Pair, Side, datagram_qp_with, datagrams, send};

const QUESTION: SaMad = SaMad::new(method::GET, attribute::CLASS_PORT_INFO, 0x1234);

/// What the first side's queue pair sends to its own queue pair 1.
fn sent(pair: &mut Pair, bytes: &[u8]) -> Packet {
    let gid = pair.sides[0].gid;
    let near = pair.destination(gid, GSI_QKEY, false);
    let side = &mut pair.sides[0];
    side.fill(0, bytes);
    let from = [side.sge(0, bytes.len() as u32)];
    let mut wr = send(1, SendOp::Send, &from);
    wr.ud = Some(UdDestination {
        qp: QpNumber(GSI_QP),
        ..near
    });
    side.device.post_send(side.qp, wr).unwrap();
    let mut out = Vec::new();
    pair.send(|_, packet| {
        out.push(packet.clone());
        false
    });
    // (The harness addresses all of the peer's.)
    let mac = pair.sides[0].mac;
    let mut packet = out.pop().expect("it was sent");
    packet.path.eth.destination = mac;
    packet
}

fn ask(side: &mut Side, packet: &Packet) -> Option<Question> {
    let incoming = Incoming {
        path: packet.path,
        headers: packet.headers,
        payload: Payload::Bytes(&packet.payload),
        telemetry: None,
    };
    side.device.ask(Instant(0), &incoming)
}

/// What the first side sends now.
fn transmitted(pair: &mut Pair) -> Vec<Packet> {
    let mut out = Vec::new();
    pair.send(|from, packet| {
        out.extend((from == 0).then(|| packet.clone()));
        false
    });
    out
}

/// The datagrams of packets to a queue pair.
fn mads(packets: &[Packet], qp: QpNumber) -> Vec<SaMad> {
    assert!(packets.iter().all(|p| p.headers.bth.destination_qp == qp.0));
    packets
        .iter()
        .map(|p| SaMad::parse(&p.payload).unwrap())
        .collect()
}

const TABLE: SaMad = SaMad::new(method::GET_TABLE, attribute::PATH_RECORD, 0x77);

/// A table of so many records.
fn table(question: &SaMad, count: u16) -> Vec<SaMad> {
    let records: Vec<_> = (0..count)
        .map(|n| {
            let mut record = [n as u8; 64];
            record[0] = (n >> 8) as u8;
            record
        })
        .collect();
    question.response(status::OK).segments(&records)
}

/// Asks, and is answered by a table of so many records.
fn ask_for(pair: &mut Pair, question: &SaMad, count: u16) {
    let packet = sent(pair, &question.emit());
    let side = &mut pair.sides[0];
    let number = ask(side, &packet).expect("a question").number;
    side.device.answer(number, &table(question, count));
}

/// What Linux sends as an acknowledgement of a segment: its headers, with the question's method.
fn ack(segment: &SaMad, last: u32, window: u32) -> SaMad {
    let mut ack = *segment;
    ack.method ^= method::RESPONSE;
    ack.rmpp = Rmpp::ack(last, window);
    ack
}

/// Acknowledges; there is nothing to answer.
fn say(pair: &mut Pair, mad: &SaMad) {
    let packet = sent(pair, &mad.emit());
    assert_eq!(ask(&mut pair.sides[0], &packet), None);
}

/// A pair of which each queue pair has the key of queue pair 1.
fn pair() -> Pair {
    let mut pair = datagrams();
    let side = &mut pair.sides[0];
    side.qp = datagram_qp_with(side, GSI_QKEY);
    pair
}

#[test]
fn a_question_is_given_out_and_its_answer_comes_to_who_asked() {
    let mut pair = pair();
    let packet = sent(&mut pair, &QUESTION.emit());
    let question = ask(&mut pair.sides[0], &packet).expect("a question");
    assert_eq!((*question.mad, question.sgid_index), (QUESTION, 0));
    let side = &mut pair.sides[0];
    assert!(!side.device.wants_transmit());
    let into = [side.sge(4096, 40 + mad::LEN as u32)];
    side.post_recv(9, &into);
    let answer = QUESTION.response(status::NO_RECORDS);
    side.device.answer(question.number, &[answer]);
    // Once.
    side.device.answer(question.number, &[answer]);
    let mut out = Vec::new();
    pair.send(|_, packet| {
        out.push(packet.clone());
        false
    });
    let [packet] = &out[..] else { panic!("{out:?}") };
    let side = &mut pair.sides[0];
    assert_eq!(packet.headers.bth.destination_qp, side.qp.0);
    assert_eq!(
        (packet.path.eth.destination, packet.path.eth.source),
        (side.mac, side.mac)
    );
    deliver(side, Instant(0), packet);
    let came: Vec<_> = side
        .completions()
        .iter()
        .map(|c| c.wr_id)
        .filter(|id| *id == 9)
        .collect();
    assert_eq!(came, [9]);
    let bytes = side.bytes(4096 + 40, mad::LEN);
    assert_eq!(SaMad::parse(&bytes), Ok(answer));
    let counters = side.device.counters();
    assert_eq!((counters.sa_questions, counters.sa_dropped), (1, 0));
}

#[test]
fn a_limited_member_hears_its_answer() {
    let mut pair = pair();
    pair.sides[0].device.set_pkeys(PkeyTable::new(&[0x0001]).unwrap());
    let packet = sent(&mut pair, &QUESTION.emit());
    assert_eq!(packet.headers.bth.pkey, 0x0001);
    let side = &mut pair.sides[0];
    let question = ask(side, &packet).expect("a question");
    let into = [side.sge(4096, 296)];
    side.post_recv(9, &into);
    side.device
        .answer(question.number, &[QUESTION.response(status::OK)]);
    let mut out = Vec::new();
    pair.send(|_, packet| {
        out.push(packet.clone());
        false
    });
    let side = &mut pair.sides[0];
    deliver(side, Instant(0), &out[0]);
    assert!(side.completions().iter().any(|c| c.wr_id == 9));
    assert_eq!(side.device.counters().drop_pkey_mismatch, 0);
}

#[test]
fn what_is_no_question_is_dropped_and_counted() {
    let mut pair = pair();
    let good = sent(&mut pair, &QUESTION.emit());
    let side = &mut pair.sides[0];
    let mut malformed = 0;
    for len in [0, 1, 24, 56, 255, 257] {
        let mut packet = good.clone();
        packet.payload.resize(len, 0);
        assert_eq!(ask(side, &packet), None);
        malformed += 1;
        assert_eq!(side.device.counters().drop_malformed, malformed, "{len} bytes");
    }
    // Another base version, another class.
    for at in [0, 1] {
        let mut packet = good.clone();
        packet.payload[at] ^= 8;
        assert_eq!(ask(side, &packet), None);
        malformed += 1;
        assert_eq!(side.device.counters().drop_malformed, malformed);
    }
    let mut packet = good.clone();
    let Extended::Deth(deth) = &mut packet.headers.extended else {
        panic!("{packet:?}")
    };
    deth.qkey = 0x1111;
    assert_eq!(ask(side, &packet), None);
    assert_eq!(side.device.counters().drop_qkey_violation, 1);
    // An acknowledgement of an answer: no question, and nothing wrong.
    let mut packet = good.clone();
    packet.payload[3] |= method::RESPONSE;
    assert_eq!(ask(side, &packet), None);
    let counters = side.device.counters();
    assert_eq!((counters.sa_questions, counters.drop_malformed), (0, malformed));
    assert!(!side.device.wants_transmit());
}

/// What comes from others is not for subnet administration, whatever it says of its sender.
#[test]
fn nobody_asks_for_others() {
    let mut pair = pair();
    let packet = sent(&mut pair, &QUESTION.emit());
    let side = &mut pair.sides[0];
    deliver(side, Instant(0), &packet);
    let mut from_management = packet;
    let Extended::Deth(deth) = &mut from_management.headers.extended else {
        panic!("{from_management:?}")
    };
    deth.source_qp = GSI_QP;
    deliver(side, Instant(0), &from_management);
    let counters = side.device.counters();
    assert_eq!((counters.drop_malformed, counters.cm_malformed), (1, 1));
    assert_eq!(counters.sa_questions, 0);
    assert!(!side.device.wants_transmit());
}

#[test]
fn only_so_many_questions_wait_and_one_that_nobody_answers_makes_room() {
    let mut pair = pair();
    let packet = sent(&mut pair, &QUESTION.emit());
    let side = &mut pair.sides[0];
    let asked: Vec<_> = (0..QUESTIONS_MAX)
        .map(|_| ask(side, &packet).expect("there is room").number)
        .collect();
    assert_eq!(ask(side, &packet), None);
    let counters = side.device.counters();
    assert_eq!(
        (counters.sa_questions, counters.sa_dropped),
        (QUESTIONS_MAX as u64 + 1, 1)
    );
    side.device.answer(asked[3], &[]);
    assert_eq!(side.device.counters().sa_dropped, 2);
    let again = ask(side, &packet).expect("there is room again").number;
    assert!(!asked.contains(&again));
}

#[test]
fn only_so_many_come_in_a_second() {
    let mut pair = pair();
    let packet = sent(&mut pair, &QUESTION.emit());
    let side = &mut pair.sides[0];
    let mut ask_at = |now: u64| {
        let incoming = Incoming {
            path: packet.path,
            headers: packet.headers,
            payload: Payload::Bytes(&packet.payload),
            telemetry: None,
        };
        let question = side.device.ask(Instant(now), &incoming);
        if let Some(question) = &question {
            side.device
                .answer(question.number, &[QUESTION.response(status::OK)]);
        }
        question.is_some()
    };
    let second = 1_000_000_000;
    let heard = (0..2 * QUESTIONS_PER_SECOND)
        .filter(|_| ask_at(5 * second))
        .count();
    assert_eq!(heard, QUESTIONS_PER_SECOND as usize);
    assert!(!ask_at(6 * second - 1) && ask_at(6 * second));
}

#[test]
fn a_long_table_comes_segment_by_segment() {
    let mut pair = pair();
    ask_for(&mut pair, &TABLE, 40);
    let qp = pair.sides[0].qp;
    let (mut payload, mut expected) = (Vec::new(), 1);
    let (mut window, mut rounds) = (1, 0);
    let segments = loop {
        rounds += 1;
        let packets = transmitted(&mut pair);
        let came = mads(&packets, qp);
        let Some(last) = came.last() else {
            panic!("nothing came behind {expected}")
        };
        // They come to the program's queue pair, as any datagram.
        let side = &mut pair.sides[0];
        for (packet, mad) in packets.iter().zip(&came) {
            let into = [side.sge(4096, 40 + mad::LEN as u32)];
            side.post_recv(9, &into);
            deliver(side, Instant(0), packet);
            assert!(side.completions().iter().any(|c| c.wr_id == 9));
            assert_eq!(SaMad::parse(&side.bytes(4096 + 40, mad::LEN)), Ok(*mad));
            // One segment is lost on its way.
            if rounds != 2 || mad.rmpp.segment < 3 {
                assert_eq!(mad.rmpp.segment, expected);
                payload.extend(mad.payload());
                expected += 1;
            }
            assert!(mad.rmpp.segment <= window);
        }
        if last.rmpp.flags & Rmpp::LAST != 0 {
            say(&mut pair, &ack(last, expected - 1, window));
            break expected - 1;
        }
        if rounds == 2 {
            say(&mut pair, &ack(last, 2, window));
            assert!(transmitted(&mut pair).is_empty());
            let due = pair.sides[0].device.next_timeout().expect("a deadline");
            pair.sides[0].device.handle_timeout(due);
            continue;
        }
        window = last.rmpp.segment + 3;
        say(&mut pair, &ack(last, last.rmpp.segment, window));
    };
    assert_eq!(segments, 13);
    let answer = table(&TABLE, 40);
    let records: Vec<_> = answer[0].records::<64>(&payload).copied().collect();
    assert_eq!(records.len(), 40);
    assert!(records.iter().enumerate().all(|(n, record)| record[1] == n as u8));
    // It is over.
    assert!(transmitted(&mut pair).is_empty());
    let counters = pair.sides[0].device.counters();
    assert_eq!((counters.sa_questions, counters.sa_dropped), (1, 0));
    while let Some(due) = pair.sides[0].device.next_timeout() {
        pair.sides[0].device.handle_timeout(due);
        assert!(transmitted(&mut pair).is_empty());
    }
}

#[test]
fn a_question_that_comes_again_while_it_is_answered_begins_no_other_transfer() {
    let mut pair = pair();
    let question = sent(&mut pair, &TABLE.emit());
    // Twice before the answer, once after it.
    let side = &mut pair.sides[0];
    let numbers = [(); 2].map(|()| ask(side, &question).expect("a question").number);
    for number in numbers {
        side.device.answer(number, &table(&TABLE, 9));
    }
    assert_eq!(ask(side, &question), None);
    assert_eq!(transmitted(&mut pair).len(), 1);
    let counters = pair.sides[0].device.counters();
    assert_eq!((counters.sa_questions, counters.sa_dropped), (3, 2));
    // Another transaction is another question; when the first is over, so is its.
    let other = SaMad {
        transaction: 0x78,
        ..TABLE
    };
    ask_for(&mut pair, &other, 9);
    let qp = pair.sides[0].qp;
    assert_eq!(mads(&transmitted(&mut pair), qp)[0].transaction, 0x78);
    let stop = SaMad {
        rmpp: Rmpp::control(RmppType::STOP, rmpp_status::NO_ROOM),
        ..TABLE
    };
    say(&mut pair, &stop);
    ask_for(&mut pair, &TABLE, 9);
    assert_eq!(mads(&transmitted(&mut pair), qp)[0].transaction, 0x77);
}

#[test]
fn who_does_not_acknowledge_is_given_up() {
    let mut pair = pair();
    let qp = pair.sides[0].qp;
    ask_for(&mut pair, &TABLE, 9);
    let mut came = mads(&transmitted(&mut pair), qp);
    while let Some(due) = pair.sides[0].device.next_timeout() {
        pair.now = due;
        pair.sides[0].device.handle_timeout(due);
        came.extend(mads(&transmitted(&mut pair), qp));
    }
    let [first @ .., abort] = &came[..] else {
        panic!("{came:?}")
    };
    assert_eq!(first.len(), rmpp::TRIES.into());
    assert!(first.iter().all(|mad| *mad == table(&TABLE, 9)[0]));
    assert_eq!(
        abort.rmpp,
        Rmpp::control(RmppType::ABORT, rmpp_status::TOO_MANY_RETRIES)
    );
    assert_eq!((abort.method, abort.transaction), (0x92, 0x77));
    let counters = pair.sides[0].device.counters();
    assert_eq!((counters.sa_questions, counters.sa_dropped), (1, 1));
}

#[test]
fn a_wrong_acknowledgement_is_answered_by_an_abort() {
    let mut pair = pair();
    let qp = pair.sides[0].qp;
    ask_for(&mut pair, &TABLE, 9);
    let [first] = mads(&transmitted(&mut pair), qp)[..] else {
        panic!("not one segment")
    };
    // Of another transaction: of no transfer.
    let mut other = ack(&first, 9, 9);
    other.transaction += 1;
    say(&mut pair, &other);
    assert!(transmitted(&mut pair).is_empty());
    say(&mut pair, &ack(&first, 2, 9));
    let came = mads(&transmitted(&mut pair), qp);
    let wanted = Rmpp::control(RmppType::ABORT, rmpp_status::SEGMENT_TOO_BIG);
    assert_eq!(came.iter().map(|mad| mad.rmpp).collect::<Vec<_>>(), [wanted]);
    // Nobody answers the answer to that.
    say(&mut pair, &ack(&first, 1, 9));
    assert!(transmitted(&mut pair).is_empty());
}

#[test]
fn only_so_many_transfers_go_on_and_only_so_long_ones() {
    let mut pair = pair();
    let mut transaction = 0;
    let mut begin = |pair: &mut Pair, count| {
        transaction += 1;
        let question = SaMad { transaction, ..TABLE };
        ask_for(pair, &question, count);
        let qp = pair.sides[0].qp;
        let [only] = mads(&transmitted(pair), qp)[..] else {
            panic!("not one datagram")
        };
        assert_eq!(only.transaction, transaction);
        only
    };
    let longest = (SEGMENTS_MAX * 200 / 64) as u16;
    let refused = begin(&mut pair, longest + 1);
    assert_eq!((refused.status, refused.rmpp), (status::NO_RESOURCES, Rmpp::NONE));
    assert_eq!(begin(&mut pair, longest).status, status::OK);
    for _ in 1..TRANSFERS_PER_QP {
        assert_eq!(begin(&mut pair, 4).status, status::OK);
    }
    assert_eq!(begin(&mut pair, 4).status, status::NO_RESOURCES);
    // A short table is none.
    assert_eq!(begin(&mut pair, 3).status, status::OK);
    for transfers in TRANSFERS_PER_QP..=TRANSFERS_MAX {
        if transfers % TRANSFERS_PER_QP == 0 {
            let side = &mut pair.sides[0];
            side.qp = datagram_qp_with(side, GSI_QKEY);
        }
        let wanted = match transfers {
            TRANSFERS_MAX => status::NO_RESOURCES,
            _ => status::OK,
        };
        assert_eq!(begin(&mut pair, 4).status, wanted, "{transfers}");
    }
}
