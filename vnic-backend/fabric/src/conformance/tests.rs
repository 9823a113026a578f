use std::vec;
use std::vec::Vec;

use vnic_wire::opcode::Operation;
use vnic_wire::{aeth, ipv4, udp};

use super::*;

const QP: u32 = 0x11;
const NAK: Syndrome = Syndrome::Nak(NakCode::SequenceError);
const ACK: Syndrome = Syndrome::Ack { credits: 31 };

/// A RoCEv2 packet with a right ICRC.
fn frame(from: u8, to: u8, ecn: u8, qp: u32, opcode: Opcode, psn: u32, rest: &[u8]) -> Vec<u8> {
    let bth = bth::Header::new(opcode, qp, Psn::new(psn)).emit();
    let length = udp::HEADER_LEN + bth.len() + rest.len() + icrc::LEN;
    let ip = ipv4::Header {
        header_len: 20,
        dscp_ecn: ecn,
        total_len: (20 + length) as u16,
        id: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 17,
        checksum: 0,
        source: [10, 0, 0, from],
        destination: [10, 0, 0, to],
    };
    let udp = udp::Header {
        source_port: 0xc000,
        destination_port: 4791,
        len: length as u16,
        checksum: 0,
    };
    let packet = [&ip.emit()[..], &udp.emit(), &bth, rest].concat();
    let sum = icrc::compute(icrc::Kind::V4, &packet).expect("whole");
    [&[2; 12][..], &[8, 0], &packet, &sum].concat()
}

fn write(psn: u32, ecn: u8) -> Vec<u8> {
    let opcode = Opcode::new(Transport::Rc, Operation::WriteMiddle);
    frame(1, 2, ecn, QP, opcode, psn, &[7; 64])
}

fn answer(syndrome: Syndrome, psn: u32) -> Vec<u8> {
    let opcode = Opcode::new(Transport::Rc, Operation::Acknowledge);
    frame(
        2,
        1,
        2,
        0x99,
        opcode,
        psn,
        &aeth::Header { syndrome, msn: 0 }.emit(),
    )
}

/// Frames a microsecond apart.
fn check(frames: &[Vec<u8>]) -> (Vec<Flow>, Vec<Notifications>) {
    let mut checker = Checker::default();
    for (at, frame) in (0..).zip(frames) {
        assert!(checker.frame(at * 1000, frame, frame.len()));
    }
    checker.finish(true)
}

fn writes(psns: impl IntoIterator<Item = u32>) -> Vec<Vec<u8>> {
    psns.into_iter().map(|psn| write(psn, 2)).collect()
}

fn broken(frames: &[Vec<u8>]) -> Vec<(&'static str, u32)> {
    let (flows, _) = check(frames);
    let found = flows.iter().flat_map(|f| &f.findings);
    found.map(|f| (f.broken.name(), f.psn.value())).collect()
}

#[test]
fn a_packet_that_is_lost_is_told_once_and_sent_again_with_all_behind_it() {
    // 102 is lost; 103 to 105 are on their way meanwhile. Over the end of the number space, too.
    for first in [100, 0xff_fffe] {
        let psn = |i: u32| (first + i) & 0xff_ffff;
        let frames = [
            writes([0, 1, 3].map(psn)),
            vec![answer(NAK, psn(2))],
            writes([4, 5].map(psn)),
            writes((2..8).map(psn)),
            vec![answer(ACK, psn(7))],
        ]
        .concat();
        assert_eq!(broken(&frames), []);
        let (flows, notifications) = check(&frames);
        let [flow] = &flows[..] else {
            panic!("{flows:?}");
        };
        assert_eq!((flow.packets, flow.gaps, flow.naks, flow.timeouts), (11, 1, 1, 0));
        assert_eq!(flow.told_after, Spread(Some((1000, 1000))));
        assert_eq!(flow.back_after, Spread(Some((3000, 3000))));
        assert_eq!((flow.qp, notifications.len()), (QP, 0));
    }
}

#[test]
fn rules_that_are_broken_are_named() {
    let lost = writes([100, 101, 103]);
    let with = |rest: &[Vec<u8>]| [&lost[..], rest].concat();
    let nak = || answer(NAK, 102);
    // (A timer of the requester went off: there was no negative acknowledgement.)
    assert_eq!(broken(&with(&writes([102, 103]))), [("nak_missing", 102)]);
    assert_eq!(broken(&with(&[nak(), nak()])), [("nak_twice", 102)]);
    assert_eq!(broken(&with(&[answer(NAK, 103)])), [("nak_wrong", 103)]);
    assert_eq!(broken(&[write(5, 2), answer(NAK, 6)]), [("nak_wrong", 6)]);
    assert_eq!(broken(&with(&[answer(ACK, 103)])), [("ack_early", 103)]);
    let elsewhere = [vec![nak()], writes([100, 101, 102])].concat();
    assert_eq!(broken(&with(&elsewhere)), [("went_elsewhere", 100)]);
    // Selective repeat: the lost one, and then what is new. (Once, it may have been late.)
    let selective = [
        vec![nak()],
        writes([102, 104]),
        vec![answer(NAK, 103)],
        writes([103, 105]),
    ]
    .concat();
    assert_eq!(broken(&with(&selective)), [("not_go_back_n", 104)]);
    // The responder's word comes when the packet has come late; and it says nothing of one that was never missing.
    assert_eq!(broken(&with(&[write(102, 2), nak()])), []);
    assert_eq!(
        broken(&with(&[write(102, 2), answer(NAK, 101)])),
        [("nak_wrong", 101)]
    );
    // A packet that another one has overtaken, and all of them again.
    let swapped = [
        vec![nak()],
        writes([102, 104]),
        vec![answer(NAK, 103)],
        writes([102, 103, 104, 105]),
    ]
    .concat();
    assert_eq!(broken(&with(&swapped)), []);
}

#[test]
fn corruption_is_loss_and_a_timer_is_told_apart() {
    let mut frames = writes([1, 2]);
    let at = frames[1].len() - 20;
    frames[1][at] ^= 1;
    frames.extend(writes([3]));
    frames.push(answer(NAK, 2));
    frames.extend(writes([2, 3]));
    let (flows, _) = check(&frames);
    assert_eq!(flows[0].findings, []);
    assert_eq!((flows[0].corrupt, flows[0].gaps, flows[0].naks), (1, 1, 1));
    // The end of a message was acknowledged, the acknowledgement lost.
    let (flows, _) = check(&[writes([7, 8]), writes([7, 8]), writes([9])].concat());
    assert_eq!(
        (flows[0].timeouts, flows[0].again, &flows[0].findings[..]),
        (1, 2, &[][..])
    );
    // Only a part of each frame was captured: nobody can know.
    let mut checker = Checker::default();
    let frame = write(1, 2);
    assert!(checker.frame(0, &frame[..70], frame.len()));
    assert!(!checker.frame(0, &[2; 60], 60));
    assert_eq!(checker.finish(true).0[0].corrupt, 0);
}

#[test]
fn the_number_behind_a_read_is_believed() {
    let read = Opcode::new(Transport::Rc, Operation::ReadRequest);
    let read = |psn| frame(1, 2, 2, QP, read, psn, &[0; 16]);
    assert_eq!(broken(&[write(1, 2), read(2), write(18, 2), write(19, 2)]), []);
    let (flows, _) = check(&[write(1, 2), read(2), write(18, 2), write(20, 2)]);
    assert_eq!(flows[0].gaps, 1);
}

#[test]
fn marks_are_answered_by_notifications() {
    let cnp = frame(2, 1, 2, 0x99, Opcode::CNP, 0, &[0; 16]);
    let marked = write(1, 3);
    assert_eq!(broken(std::slice::from_ref(&marked)), [("no_notification", 2)]);
    let (flows, told) = check(&[marked, cnp.clone(), write(2, 2), cnp]);
    assert_eq!((flows[0].marked, flows[0].findings.len()), (1, 0));
    assert_eq!(
        (told[0].qp, told[0].count, told[0].interval),
        (0x99, 2, Spread(Some((2000, 2000))))
    );
    assert!(told[0].are_early(2001) && !told[0].are_early(2000));
}
