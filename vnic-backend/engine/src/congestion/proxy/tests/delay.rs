//! Algorithms that hear acknowledges: the guest's packets leave at their rate, and round trips are those of packets that asked.

use super::*;
use crate::congestion::named::Named;
use crate::congestion::proxy::asked::Asked;

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

/// Whoever never answers takes no more memory than the others.
#[test]
fn what_is_remembered_is_bounded() {
    let mut asked = Asked::default();
    for psn in 0..100_000 {
        asked.left(Instant(u64::from(psn)), Psn::new(psn), 10, true);
    }
    let heard = asked.acknowledged(Instant(200_000), Psn::new(99_998));
    let heard = heard.expect("something new");
    assert_eq!(
        (heard.bytes, heard.rtt),
        (999_990, Some(Duration::from_nanos(100_002)))
    );
    assert_eq!(asked.acknowledged(Instant(200_000), Psn::new(5)), None);
}
