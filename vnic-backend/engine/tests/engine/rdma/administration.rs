//! Questions to subnet administration: only the adapter's own programs ask, each gets its answer, and what is no question is dropped
//! and counted.

use vnic_engine::rdma::{
    Incoming, Payload, QUESTIONS_MAX, QUESTIONS_PER_SECOND, QpNumber, Question, SendOp, UdDestination,
};
use vnic_wire::mad::{self, GSI_QKEY, GSI_QP};
use vnic_wire::pkey::PkeyTable;
use vnic_wire::sa::{SaMad, attribute, method, status};
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
    side.device.answer(question.number, Some(&answer));
    // Once.
    side.device.answer(question.number, Some(&answer));
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
        .answer(question.number, Some(&QUESTION.response(status::OK)));
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
    side.device.answer(asked[3], None);
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
                .answer(question.number, Some(&QUESTION.response(status::OK)));
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
