//! HPCC: links write behind the guest's packets, and acknowledges give it back.

use vnic_wire::int::{Hop, Sign, TRAILER_LEN};

use super::delay::{asking, by_delay, limits};
use super::*;
use crate::congestion::proxy::links::SILENT;

const LINK: u64 = 1_000_000_000;

/// What a link writes that was busy for all of the time, with so many bytes in its queue.
fn busy(now: u64, queue: u64) -> Telemetry {
    let mut telemetry = Telemetry::EMPTY;
    telemetry.push(1, Hop::new(now, now / 8, queue, LINK));
    telemetry
}

/// A packet as its receiver sees it: with telemetry behind it.
fn with(packet: &Packet, telemetry: &Telemetry) -> Seen {
    let mut frame = packet.frame();
    let end = frame.len();
    frame.extend_from_slice(&telemetry.emit_trailer());
    let mut seen = Seen::parse(&frame[..frame.len().min(SEEN)]).expect("RoCE");
    assert_eq!((seen.behind(end), seen.behind(frame.len())), (0, TRAILER_LEN));
    seen.read_behind(frame.last_chunk().expect("a trailer"));
    assert_eq!(seen.telemetry, Some(*telemetry));
    seen
}

/// Sends a request that asks, and lets it leave. Returns when, and whether it had a trailer.
fn leaves(p: &mut Proxy<u32>, now: u64, psn: u32) -> (u64, bool) {
    let seen = asking(psn).seen();
    let Fate::Waits(flow) = p.sending(Instant(now), PRIORITY, &seen, wire(&asking(psn))) else {
        panic!("{psn} has to wait for its turn");
    };
    let asks = p.trailer(Instant(now), Some(flow), &seen) == Some(Telemetry::EMPTY);
    p.hold(Instant(now), flow, &seen, wire(&asking(psn)), 1000, psn)
        .expect("room");
    match run(p, now, now + SECOND)[..] {
        [(at, number)] if number == psn => (at, asks),
        ref left => panic!("one leaves: {left:?}"),
    }
}

#[test]
fn hpcc_hears_the_links_of_a_guest() {
    let mut p = by_delay("hpcc", &[("base_rtt", "20us")]);
    let mut now = 1000;
    let mut queue = 0;
    for psn in 1..60 {
        let (at, asks) = leaves(&mut p, now, psn);
        assert!(asks, "{psn}");
        if psn == 1 {
            assert_eq!(limits(&mut p, now), Limits::NONE, "nothing is heard yet");
        }
        now = at + 20_000;
        queue += 100;
        p.received(Instant(now), PRIORITY, &with(&own_answer(psn), &busy(at, queue)));
    }
    let slow = limits(&mut p, now);
    assert!(slow.rate < LINK / 4, "{slow:?}");
    // The link is idle: more.
    let mut idle = busy(now, 0);
    for psn in 60..100 {
        let (at, _) = leaves(&mut p, now, psn);
        now = at + 20_000;
        idle.hops[0].timestamp = (at % vnic_wire::int::TIMESTAMP_WRAP) as u32;
        p.received(Instant(now), PRIORITY, &with(&own_answer(psn), &idle));
    }
    assert!(limits(&mut p, now).rate > 2 * slow.rate);
}

/// Nobody gives telemetry back: packets have no trailer any more, and pass.
#[test]
fn a_peer_without_telemetry_is_left_alone() {
    let mut p = by_delay("hpcc", &[]);
    let mut now = 1000;
    for psn in 1..=u32::from(SILENT) {
        let (at, asks) = leaves(&mut p, now, psn);
        assert_eq!((at, asks), (now, true), "nothing limits it");
        now = at + 10_000_000;
        receive(&mut p, now, &own_answer(psn));
    }
    for psn in 100..200 {
        assert!(send(&mut p, now, &asking(psn), psn));
    }
    assert_eq!(limits(&mut p, now), Limits::NONE);
    // Neither does one whose peer moved away.
    let mut p = by_delay("hpcc", &[]);
    for psn in 1..=u32::from(SILENT) + 3 {
        now = leaves(&mut p, now, psn).0 + 20_000;
        match psn {
            1..=3 => p.received(Instant(now), PRIORITY, &with(&own_answer(psn), &busy(now, 0))),
            _ => receive(&mut p, now, &own_answer(psn)),
        }
        let limited = limits(&mut p, now) != Limits::NONE;
        assert_eq!(limited, psn < u32::from(SILENT) + 3, "{psn}");
    }
    assert!(send(&mut p, now, &asking(200), 200));
}

/// Responses to the guest's READs carry what they gathered themselves.
#[test]
fn hpcc_hears_the_links_of_responses() {
    let mut p = by_delay("hpcc", &[("base_rtt", "20us")]);
    let (mut now, mut psn) = (1000, 1);
    for round in 0..30 {
        let seen = own_read(psn).seen();
        let Fate::Waits(flow) = p.sending(Instant(now), PRIORITY, &seen, 100) else {
            panic!("{psn} has to wait for its turn");
        };
        assert_eq!(p.trailer(Instant(now), Some(flow), &seen), Some(Telemetry::EMPTY));
        p.hold(Instant(now), flow, &seen, 100, 1000, psn).expect("room");
        now = run(&mut p, now, now + SECOND)[0].0;
        for response in responses(psn) {
            now += 20_000;
            p.received(Instant(now), PRIORITY, &with(&response, &busy(now, round * 1000)));
        }
        psn += 4;
    }
    let slow = limits(&mut p, now);
    assert!(slow.rate < LINK / 4, "{slow:?}");
}

/// The guest's responses to a peer that wants telemetry gather some.
#[test]
fn responses_of_a_guest_gather() {
    let mut p = proxy(1_000_000);
    let read = |psn, sign| {
        let mut seen = packet(PEER, GUEST, OWN, psn, Operation::ReadRequest).seen();
        seen.headers.bth.telemetry = sign;
        seen
    };
    let response = |psn| packet(GUEST, PEER, THEIRS, psn, Operation::ReadResponseOnly);
    let mut gathers = |seen: Seen| {
        let psn = seen.psn().value();
        p.received(Instant(10), PRIORITY, &seen);
        assert!(send(&mut p, 20, &response(psn), 0));
        p.trailer(Instant(20), None, &response(psn).seen())
    };
    assert_eq!(gathers(read(1, Sign::None)), None);
    assert_eq!(gathers(read(2, Sign::Known)), Some(Telemetry::EMPTY));
    let behind = packet(PEER, GUEST, OWN, 3, Operation::ReadRequest);
    assert_eq!(gathers(with(&behind, &busy(4000, 0))), Some(Telemetry::EMPTY));
    assert_eq!(gathers(read(4, Sign::None)), None, "not any more");
    // An acknowledge still gives back what came before.
    let given = p.trailer(Instant(30), None, &answer(4).seen());
    assert_eq!(given.map(|t| t.hops().len()), Some(1));
}

#[test]
fn an_acknowledge_gives_back_what_came() {
    let mut p = proxy(1_000_000);
    let telemetry = busy(5000, 80);
    // The queue pairs are told apart by their numbers: one exchange shows them.
    receive(&mut p, 0, &request(1));
    assert!(send(&mut p, 1, &answer(1), 0));
    assert_eq!(p.trailer(Instant(30), None, &answer(1).seen()), None);
    p.received(Instant(10), PRIORITY, &with(&request(2), &busy(4000, 0)));
    p.received(Instant(20), PRIORITY, &with(&request(3), &telemetry));
    assert!(send(&mut p, 30, &answer(3), 0));
    let stranger = Packet {
        qp: THEIRS + 1,
        ..answer(3)
    };
    assert_eq!(p.trailer(Instant(30), None, &stranger.seen()), None);
    assert_eq!(p.trailer(Instant(30), None, &own_request(3).seen()), None);
    let given = Telemetry {
        endpoint: 10,
        ..telemetry
    };
    assert_eq!(p.trailer(Instant(30), None, &answer(3).seen()), Some(given));
    assert_eq!(p.trailer(Instant(30), None, &answer(3).seen()), None, "once");
    // A queue pair of an RDMA function says that it wants telemetry, and sends none before an answer had some.
    let frame = |sign| {
        let mut seen = request(4).seen();
        seen.headers.bth.telemetry = sign;
        seen
    };
    for (sign, given) in [(Sign::None, None), (Sign::Known, Some(Telemetry::EMPTY))] {
        p.received(Instant(30), PRIORITY, &frame(sign));
        assert_eq!(p.trailer(Instant(30), None, &answer(4).seen()), given, "{sign:?}");
    }
    // Whoever only counts gives nothing back.
    p.received(Instant(40), PRIORITY, &with(&request(4), &telemetry));
    p.configure(Instant(50), congestion(1_000_000), false);
    assert_eq!(p.trailer(Instant(30), None, &answer(4).seen()), None);
}
