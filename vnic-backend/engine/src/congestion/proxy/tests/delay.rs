//! Algorithms that hear acknowledges: the guest's packets leave at their rate, and round trips are those of packets that asked.

use super::*;
use crate::congestion::named::Named;
use crate::congestion::proxy::asked::{Asked, Heard, Request};

pub(super) fn by_delay(name: &str, parameters: &[(&str, &str)]) -> Proxy<u32> {
    let mut named = Named::by_name(name).expect("an algorithm");
    for (key, value) in parameters {
        named.set(key, value).expect("a parameter");
    }
    let congestion = Congestion {
        control: named.build(),
        line_rate: 1_000_000_000,
        ..congestion(1)
    };
    Proxy::new(congestion, true)
}

pub(super) fn asking(psn: u32) -> Packet {
    Packet {
        asks: true,
        ..own_request(psn)
    }
}

/// Requests with these numbers, each answered after so long. Returns when the last one left.
fn rounds(p: &mut Proxy<u32>, now: &mut u64, psns: core::ops::Range<u32>, rtt: u64) {
    for psn in psns {
        assert!(
            !send(p, *now, &asking(psn), psn),
            "{psn} has to wait for its turn"
        );
        let left = run(p, *now, *now + SECOND);
        let [(at, number)] = left[..] else {
            panic!("one leaves: {left:?}");
        };
        assert_eq!(number, psn);
        *now = at + rtt;
        receive(p, *now, &own_answer(psn));
    }
}

pub(super) fn limits(p: &mut Proxy<u32>, now: u64) -> Limits {
    let flows = p.flows(Instant(now));
    assert_eq!(flows.len(), 1);
    assert_eq!((flows[0].own, flows[0].peer, flows[0].qp), (GUEST, PEER, THEIRS));
    flows[0].limits
}

#[test]
fn timely_goes_by_round_trips() {
    let mut p = by_delay(
        "timely",
        &[("t_high", "500us"), ("min_rate", "1M"), ("start", "0.5")],
    );
    let mut now = 1000;
    rounds(&mut p, &mut now, 1..20, 20_000);
    let quick = limits(&mut p, now).rate;
    assert!(quick > 500_000_000, "{quick}");
    rounds(&mut p, &mut now, 20..60, 2_000_000);
    let slow = limits(&mut p, now).rate;
    assert!(slow < quick / 10, "{slow}");
    // Packets leave at that rate.
    for psn in 60..64 {
        send(&mut p, now, &asking(psn), psn);
    }
    let left = run(&mut p, now, now + SECOND);
    let apart = left[3].0 - left[2].0;
    let wanted = u64::from(wire(&asking(1))) * 8 * SECOND / slow;
    assert!(apart.abs_diff(wanted) <= 1, "{apart} {wanted}");
    assert_eq!(p.take_counts(), Counts::default());
}

/// Swift has a window. How much is under way is the guest's business: the flow is paced so that a window leaves in a round trip.
#[test]
fn swift_paces_its_window() {
    let mut p = by_delay("swift", &[("initial_cwnd", "4"), ("ai", "0")]);
    let mut now = 1000;
    rounds(&mut p, &mut now, 1..3, 20_000);
    assert_eq!(limits(&mut p, now).window, 4 * 1024);
    for psn in 3..7 {
        send(&mut p, now, &asking(psn), psn);
    }
    let left = run(&mut p, now, now + SECOND);
    let apart = left[3].0 - left[2].0;
    let wanted = u64::from(wire(&asking(1))) * 20_000 / 4096;
    assert!(apart.abs_diff(wanted) <= 1, "{apart} {wanted}");
    // Long round trips make it small.
    now = left[3].0 + 1_000_000;
    receive(&mut p, now, &own_answer(6));
    rounds(&mut p, &mut now, 7..20, 1_000_000);
    assert!(limits(&mut p, now).window < 2048);
}

/// What was sent twice, and what a stranger says, has no time.
#[test]
fn only_what_is_sure_is_heard() {
    let mut p = by_delay(
        "timely",
        &[("t_high", "500us"), ("start", "0.5"), ("once_per_rtt", "off")],
    );
    let mut now = 1000;
    rounds(&mut p, &mut now, 1..3, 20_000);
    let before = limits(&mut p, now).rate;
    // Sent again: its acknowledge says nothing.
    for _ in 0..2 {
        send(&mut p, now, &asking(3), 3);
        run(&mut p, now, now + SECOND);
    }
    now += 50 * SECOND;
    receive(&mut p, now, &own_answer(3));
    assert_eq!(limits(&mut p, now).rate, before);
    // Damaged.
    send(&mut p, now, &asking(4), 4);
    run(&mut p, now, now + 1_000_000);
    now += 2_000_000;
    let mut frame = own_answer(4).frame();
    *frame.last_mut().expect("an ICRC") ^= 1;
    p.received(Instant(now), PRIORITY, &Seen::parse(&frame).expect("RoCE"));
    assert_eq!(limits(&mut p, now).rate, before);
    // From another address.
    receive(
        &mut p,
        now,
        &Packet {
            from: Gid::from_ipv4([10, 0, 0, 3]),
            ..own_answer(4)
        },
    );
    assert_eq!(limits(&mut p, now).rate, before);
    receive(&mut p, now, &own_answer(4));
    assert!(limits(&mut p, now).rate < before);
}

fn sent(psn: u32, bytes: u32) -> Request {
    Request {
        psn: Psn::new(psn),
        bytes,
        asks: true,
        read: false,
    }
}

fn read(psn: u32, bytes: u32) -> Request {
    Request {
        read: true,
        asks: false,
        ..sent(psn, bytes)
    }
}

/// Responses to a READ are the acknowledges of its bytes, and the first one ends its round trip.
#[test]
fn responses_acknowledge_what_a_read_asked_for() {
    let mut asked = Asked::default();
    asked.left(Instant(100), sent(1, 10));
    asked.left(Instant(200), read(2, 2500));
    asked.left(Instant(300), sent(5, 20));
    asked.left(Instant(400), read(6, 100));
    let mut responded = |at, psn, bytes, last| asked.responded(Instant(at), Psn::new(psn), bytes, last);
    let heard = |rtt: u64, bytes| {
        Some(Heard {
            rtt: Some(Duration::from_nanos(rtt)),
            bytes,
        })
    };
    assert_eq!(responded(1000, 1, 9, false), None, "no READ");
    // What was sent before it has arrived, too.
    assert_eq!(responded(1200, 2, 1000, false), heard(1000, 1010));
    assert_eq!(responded(1300, 3, 1000, false), heard(1000, 1000));
    assert_eq!(responded(1400, 4, 500, true), heard(1000, 500));
    assert_eq!(responded(1500, 4, 500, true), None, "twice");
    let heard_later = asked.acknowledged(Instant(1600), Psn::new(5));
    assert_eq!(heard_later, heard(1300, 20));
    // More than it asked for is no more than it asked for.
    assert_eq!(
        asked.responded(Instant(1700), Psn::new(6), 5000, false),
        heard(1300, 100)
    );
    assert_eq!((asked.sent, asked.acked), (2630, 2630));
    // Sent again from its second response on: no round trip, and all of it arrives.
    asked.left(Instant(2000), read(7, 3000));
    asked.responded(Instant(2100), Psn::new(7), 1000, false);
    asked.responded(Instant(2200), Psn::new(9), 1000, true);
    asked.left(Instant(2300), read(8, 2000));
    assert_eq!((asked.sent, asked.acked), (5630, 5630));
    asked.left(Instant(2400), sent(10, 1));
    let after = asked.acknowledged(Instant(2500), Psn::new(10));
    assert_eq!(after, heard(100, 1));
    // One that is lost from its second response to its end asks for the rest as something new.
    asked.left(Instant(3000), read(11, 3000));
    asked.responded(Instant(3100), Psn::new(11), 1000, false);
    asked.left(Instant(3200), read(12, 2000));
    asked.responded(Instant(3300), Psn::new(12), 1000, false);
    asked.responded(Instant(3400), Psn::new(13), 1000, true);
    assert_eq!(asked.sent, asked.acked);
}

/// READs wait for their turn as if they had the length of what they ask for, and their responses tell how long the way is.
#[test]
fn timely_hears_responses() {
    let mut p = by_delay(
        "timely",
        &[("t_high", "500us"), ("min_rate", "1M"), ("start", "0.5")],
    );
    let mut now = 1000;
    let mut psn = 1;
    let mut rounds = |p: &mut Proxy<u32>, n: u32, rtt: u64| {
        for _ in 0..n {
            assert!(!send(p, now, &own_read(psn), psn), "{psn} waits for its turn");
            let left = run(p, now, now + SECOND);
            now = left[0].0 + rtt;
            for response in responses(psn) {
                receive(p, now, &response);
            }
            psn += 4;
        }
        limits(p, now).rate
    };
    let quick = rounds(&mut p, 20, 20_000);
    assert!(quick > 500_000_000, "{quick}");
    let slow = rounds(&mut p, 40, 2_000_000);
    assert!(slow < quick / 10, "{slow}");
    for psn in (1000..1016).step_by(4) {
        send(&mut p, now, &own_read(psn), psn);
    }
    let left = run(&mut p, now, now + SECOND);
    let apart = left[3].0 - left[2].0;
    let bytes = u64::from(wire(&own_read(1)) + 4096 + 4 * (PACKET.1 - PACKET.0));
    let wanted = bytes * 8 * SECOND / slow;
    assert!(apart.abs_diff(wanted) <= 1, "{apart} {wanted}");
    // The guest's timer runs out while a READ waits: its copy is not asked for twice.
    for _ in 0..3 {
        send(&mut p, now, &own_read(2000), 1);
        send(&mut p, now, &own_read(2004), 2);
    }
    let numbers: Vec<u32> = run(&mut p, now, now + SECOND).iter().map(|left| left.1).collect();
    assert_eq!(numbers, [1, 2]);
    // Notifications reach who answers: their algorithms do not limit who asks.
    let mut p = limited(1_000_000_000);
    let (read, first) = (own_read(101), wire(&own_read(101)));
    send(&mut p, 0, &read, 1);
    send(&mut p, 0, &own_read(105), 2);
    assert_eq!(run(&mut p, 0, SECOND), [(0, 1), (u64::from(first) * 8, 2)]);
}

/// Whoever never answers takes no more memory than the others.
#[test]
fn what_is_remembered_is_bounded() {
    let mut asked = Asked::default();
    for psn in 0..100_000 {
        asked.left(Instant(u64::from(psn)), sent(psn, 10));
    }
    let heard = asked.acknowledged(Instant(200_000), Psn::new(99_998));
    let heard = heard.expect("something new");
    assert_eq!(
        (heard.bytes, heard.rtt),
        (999_990, Some(Duration::from_nanos(100_002)))
    );
    assert_eq!(asked.acknowledged(Instant(200_000), Psn::new(5)), None);
}
