//! Telemetry in frames: who says that it knows it, and which packets have a trailer.

use vnic_engine::congestion::Needs;
use vnic_engine::rdma::{QpType, SendOp};
use vnic_wire::int::{Hop, Sign, TRAILER_LEN, Telemetry};
use vnic_wire::opcode::Operation;
use vnic_wire::roce::{self, Frame};
use vnic_wire::time::Instant;

use super::super::harness::{Connection, Packet, Pair};
use super::*;

/// A packet as a frame, as the shell makes it.
fn frame(packet: &Packet) -> Vec<u8> {
    let mut frame = Vec::new();
    roce::build(&packet.path, &packet.headers, &packet.payload, &mut frame).unwrap();
    if packet.headers.bth.telemetry == Sign::Carried {
        let trailer = packet.telemetry.expect("telemetry").emit_trailer();
        let behind = frame.len() - 4 - usize::from(packet.headers.bth.pad);
        frame[behind - TRAILER_LEN..behind].copy_from_slice(&trailer);
        packet.path.finish(&mut frame).unwrap();
    }
    if packet.headers.bth.telemetry == Sign::Behind {
        let trailer = packet.telemetry.expect("telemetry").emit_trailer();
        *frame.last_chunk_mut().unwrap() = trailer;
    }
    frame
}

/// A frame comes to a side, as the shell hands it over.
fn receive(side: &mut Side, now: u64, frame: &[u8]) {
    let frame = Frame::parse(frame).unwrap();
    assert!(frame.icrc_ok());
    let gathered = frame.trailer.map_or(Telemetry::EMPTY, Telemetry::parse_trailer);
    let mut packet = Incoming::from(&frame);
    packet.telemetry = (frame.headers.bth.telemetry != Sign::None).then_some(&gathered);
    side.device.receive(Instant(now), &packet, &side.ram);
}

fn hop(n: u64) -> Hop {
    Hop::new(1000 * n, 128 * n, 80 * n, 40_000_000_000)
}

/// All that a side has to send goes to the other one, by a switch that writes what it can. Returns what packets said.
fn cross(pair: &mut Pair, from: usize, now: u64) -> Vec<(Operation, Sign)> {
    let sent = transmit(&mut pair.sides[from], Instant(now));
    let mut said = Vec::new();
    for packet in &sent {
        let bth = packet.headers.bth;
        said.push((bth.opcode.operation().unwrap(), bth.telemetry));
        let mut frame = frame(packet);
        assert_eq!(
            frame.len(),
            packet.path.frame_len(&packet.headers, packet.payload.len())
        );
        let gathers = roce::gathers(&frame, frame.len());
        assert_eq!(roce::stamp(&mut frame, 9, hop(now)), gathers);
        receive(&mut pair.sides[1 - from], now, &frame);
    }
    said
}

fn heard(control: &Scripted) -> Vec<Option<Telemetry>> {
    let of = |h| match h {
        Heard::Ack { telemetry, .. } => Some(telemetry),
        _ => None,
    };
    control.take().into_iter().filter_map(of).collect()
}

fn pair(control: &Scripted) -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    pair.sides[0]
        .device
        .set_congestion(control.congestion(), Instant(0));
    pair
}

fn control(needs: Needs) -> Scripted {
    Scripted::new(Needs {
        from_start: true,
        ack_every: 1,
        ..needs
    })
}

fn write(pair: &mut Pair, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(7, SendOp::Write { addr, rkey }, &[a.sge(0, len)]);
}

use Operation::{Acknowledge as Ack_, ReadRequest, ReadResponseOnly, WriteFirst, WriteLast, WriteOnly};

#[test]
fn packets_have_a_trailer_when_an_answer_had_one() {
    let control = control(Needs {
        telemetry: true,
        ..Needs::default()
    });
    let mut pair = pair(&control);
    write(&mut pair, 9);
    assert_eq!(cross(&mut pair, 0, 1), [(WriteOnly, Sign::Known)]);
    assert_eq!(cross(&mut pair, 1, 2), [(Ack_, Sign::Carried)]);
    let waited = Telemetry {
        endpoint: 1,
        ..Telemetry::EMPTY
    };
    assert_eq!(heard(&control), [Some(waited)]);
    write(&mut pair, 257);
    let both = [(WriteFirst, Sign::Carried), (WriteLast, Sign::Carried)];
    assert_eq!(cross(&mut pair, 0, 3), both);
    assert_eq!(cross(&mut pair, 1, 4), [(Ack_, Sign::Carried)]);
    let [Some(back)] = heard(&control)[..] else {
        panic!("one acknowledge");
    };
    assert_eq!((back.hops(), back.path), (&[hop(3)][..], 9));
    assert_eq!(pair.sides[0].completions().len(), 2);
    // Responses of READs gather themselves.
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(8, SendOp::Read { addr, rkey }, &[a.sge(512, 100)]);
    assert_eq!(cross(&mut pair, 0, 5), [(ReadRequest, Sign::Carried)]);
    assert_eq!(cross(&mut pair, 1, 6), [(ReadResponseOnly, Sign::Carried)]);
    assert_eq!(pair.sides[0].completions().len(), 1);
    // After a timeout the peer is asked anew: it may be another one.
    write(&mut pair, 9);
    let lost = transmit(&mut pair.sides[0], Instant(7));
    assert_eq!(lost.len(), 1);
    let later = time_out(&mut pair.sides[0], &control);
    assert_eq!(cross(&mut pair, 0, later.0), [(WriteOnly, Sign::Known)]);
    assert_eq!(cross(&mut pair, 1, later.0), [(Ack_, Sign::Carried)]);
    // And when nobody wants it any more, nobody says so.
    pair.sides[0].device.set_congestion(Congestion::default(), later);
    write(&mut pair, 9);
    assert_eq!(cross(&mut pair, 0, later.0), [(WriteOnly, Sign::None)]);
    assert_eq!(cross(&mut pair, 1, later.0), [(Ack_, Sign::None)]);
}

/// Payloads of all lengths arrive whole, with a trailer and without.
#[test]
fn payload_is_what_was_sent() {
    let control = control(Needs {
        telemetry: true,
        ..Needs::default()
    });
    let mut pair = pair(&control);
    for (now, len) in (1..)
        .step_by(2)
        .zip([0, 1, 2, 3, 4, 47, 48, 49, 255, 256, 257, 1000])
    {
        let bytes: Vec<u8> = (0..len).map(|i| (i + now as usize) as u8).collect();
        pair.sides[0].fill(0, &bytes);
        write(&mut pair, len as u32);
        cross(&mut pair, 0, now);
        cross(&mut pair, 1, now + 1);
        assert_eq!(pair.sides[0].completions().len(), 1, "{len}");
        assert_eq!(pair.sides[1].bytes(0, len), bytes);
    }
}

#[test]
fn acknowledges_say_how_long_a_packet_was_there() {
    let control = control(Needs {
        endpoint: true,
        ..Needs::default()
    });
    let mut pair = pair(&control);
    for (now, waits) in [(1000, 0), (2000, 700), (50_000, 12_345)] {
        write(&mut pair, 300);
        let both = [(WriteFirst, Sign::Known), (WriteLast, Sign::Known)];
        assert_eq!(cross(&mut pair, 0, now), both);
        assert_eq!(cross(&mut pair, 1, now + waits), [(Ack_, Sign::Carried)]);
        let [Some(back)] = heard(&control)[..] else {
            panic!("one acknowledge");
        };
        assert_eq!((u64::from(back.endpoint), back.count), (waits, 0));
    }
}

/// A peer that has never heard of it: another device, or one whose MTU leaves no room.
#[test]
fn who_does_not_know_it_gets_none() {
    let control = control(Needs {
        telemetry: true,
        ..Needs::default()
    });
    let mut pair = pair(&control);
    for now in [1, 3, 5] {
        write(&mut pair, 300);
        for packet in transmit(&mut pair.sides[0], Instant(now)) {
            assert_eq!(packet.headers.bth.telemetry, Sign::Known);
            let mut there = packet.clone();
            there.headers.bth.telemetry = Sign::None;
            there.telemetry = None;
            deliver(&mut pair.sides[1], Instant(now), &there);
        }
        assert_eq!(cross(&mut pair, 1, now + 1), [(Ack_, Sign::None)]);
        assert_eq!(heard(&control), [None]);
    }
    assert_eq!(pair.sides[0].completions().len(), 3);
}

/// What a guest's Soft-RoCE has of a packet: all headers, no telemetry.
fn soft(packet: &Packet) -> Packet {
    let mut packet = packet.clone();
    packet.headers.bth.telemetry = Sign::None;
    packet.telemetry = None;
    packet
}

/// Packets of a guest's Soft-RoCE, behind which its adapter has put a trailer: so has the answer.
#[test]
fn a_guests_adapter_hears_of_its_links_behind_packets() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for now in [10, 30] {
        write(&mut pair, 257);
        for packet in transmit(&mut pair.sides[0], Instant(now)) {
            let mut frame = [frame(&soft(&packet)), Telemetry::EMPTY.emit_trailer().to_vec()].concat();
            assert!(roce::stamp(&mut frame, 9, hop(now)));
            receive(&mut pair.sides[1], now, &frame);
        }
        let [ack] = &transmit(&mut pair.sides[1], Instant(now + 5))[..] else {
            panic!("one acknowledge");
        };
        let frame = frame(ack);
        let (packet, behind) = frame.split_at(frame.len() - TRAILER_LEN);
        let alone = Frame::parse(packet).unwrap();
        assert!(alone.icrc_ok() && alone.payload.is_empty() && alone.trailer.is_none());
        let back = Telemetry::read_behind(behind.try_into().unwrap()).expect("telemetry");
        assert_eq!((back.hops(), back.endpoint), (&[hop(now)][..], 5));
        deliver(&mut pair.sides[0], Instant(now + 6), &soft(ack));
    }
    assert_eq!(pair.sides[0].completions().len(), 2);
    // What it reads gathers some, behind the packet.
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(8, SendOp::Read { addr, rkey }, &[a.sge(512, 100)]);
    let read = &transmit(a, Instant(50))[0];
    let frame = [frame(&soft(read)), Telemetry::EMPTY.emit_trailer().to_vec()].concat();
    receive(&mut pair.sides[1], 50, &frame);
    let [response] = &transmit(&mut pair.sides[1], Instant(51))[..] else {
        panic!("one response");
    };
    let mut whole = self::frame(response);
    assert!(roce::stamp(&mut whole, 9, hop(51)));
    let (packet, behind) = whole.split_at(whole.len() - TRAILER_LEN);
    let alone = Frame::parse(packet).unwrap();
    assert!(alone.icrc_ok() && alone.payload.len() == 100 && alone.trailer.is_none());
    let gathered = Telemetry::read_behind(behind.try_into().unwrap()).expect("telemetry");
    assert_eq!(gathered.hops(), [hop(51)]);
    deliver(&mut pair.sides[0], Instant(52), &soft(response));
    assert_eq!(pair.sides[0].completions().len(), 1);
    // And who stops asking is answered without.
    write(&mut pair, 9);
    cross(&mut pair, 0, 60);
    assert_eq!(cross(&mut pair, 1, 61), [(Ack_, Sign::None)]);
}

/// The peer is a guest's Soft-RoCE, whose adapter gives telemetry back behind acknowledges: there the packets have theirs.
#[test]
fn a_guest_gets_packets_with_telemetry_behind_them() {
    let control = control(Needs {
        telemetry: true,
        ..Needs::default()
    });
    let mut pair = pair(&control);
    for (now, sign) in [(10, Sign::Known), (30, Sign::Behind), (50, Sign::Behind)] {
        let bytes: Vec<u8> = (0..257).map(|i| (i + now) as u8).collect();
        pair.sides[0].fill(0, &bytes);
        write(&mut pair, 257);
        let mut gathered = Telemetry::EMPTY;
        for packet in transmit(&mut pair.sides[0], Instant(now)) {
            assert_eq!(packet.headers.bth.telemetry, sign);
            let mut frame = frame(&packet);
            let gathers = roce::stamp(&mut frame, 9, hop(now));
            assert_eq!(gathers, sign == Sign::Behind);
            // The adapter takes the trailer off: the guest's packet is whole without.
            let len = frame.len() - sign.behind_len();
            if let Ok(trailer) = frame[len..].try_into() {
                gathered = Telemetry::read_behind(trailer).expect("telemetry");
            }
            let alone = Frame::parse(&frame[..len]).unwrap();
            assert!(alone.icrc_ok());
            assert_eq!(alone.headers.bth.telemetry, Sign::Known, "it is asked for");
            deliver(&mut pair.sides[1], Instant(now), &soft(&packet));
        }
        let [ack] = &transmit(&mut pair.sides[1], Instant(now + 5))[..] else {
            panic!("one acknowledge");
        };
        gathered.endpoint = 5;
        let back = [frame(&soft(ack)), gathered.emit_trailer().to_vec()].concat();
        receive(&mut pair.sides[0], now + 6, &back);
        assert_eq!(heard(&control), [Some(gathered)]);
        assert_eq!(pair.sides[0].completions().len(), 1);
        assert_eq!(pair.sides[1].bytes(0, 257), bytes);
    }
    // Its responses to READs have theirs behind them, too.
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(8, SendOp::Read { addr, rkey }, &[a.sge(512, 100)]);
    cross(&mut pair, 0, 60);
    let [response] = &transmit(&mut pair.sides[1], Instant(61))[..] else {
        panic!("one response");
    };
    let mut whole = [frame(&soft(response)), Telemetry::EMPTY.emit_trailer().to_vec()].concat();
    assert!(roce::stamp(&mut whole, 9, hop(62)));
    receive(&mut pair.sides[0], 63, &whole);
    let [Some(heard)] = heard(&control)[..] else {
        panic!("one answer");
    };
    assert_eq!(heard.hops(), [hop(62)]);
    assert_eq!(pair.sides[0].completions().len(), 1);
}
