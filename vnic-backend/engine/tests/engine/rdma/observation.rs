//! Observation of queue pairs: what passes is counted while somebody looks, and nothing changes by that.

use std::time::Duration;

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::counters::TimeHistogram;
use vnic_engine::rdma::{
    Cause, Congestion, Mtu, OBSERVED_MAX, Object, Passed, QpNumber, QpObservation, QpType, SendOp, VerbsError,
};
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::roce::Ecn;
use vnic_wire::time::Instant;
use vnic_wire::transport::Headers;

use super::harness::{Connection, Packet, Pair, datagrams};
use super::runs::turn;

/// Time of a packet on the wire, in ns.
const DELAY: u64 = 10_000;
/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// A look of a side at its queue pair, which begins an observation or continues it.
fn look(pair: &mut Pair, side: usize) -> QpObservation {
    let (now, side) = (pair.now, &mut pair.sides[side]);
    let seen = side.device.observe_qp(side.qp, Some(LONG), now);
    seen.unwrap().expect("an observation")
}

/// What is known without a look.
fn known(pair: &mut Pair, side: usize) -> Option<QpObservation> {
    let (now, side) = (pair.now, &mut pair.sides[side]);
    side.device.observe_qp(side.qp, None, now).unwrap()
}

/// Runs until nothing moves and no queue pair waits, on a wire that takes [`DELAY`]; observations go on.
fn run(pair: &mut Pair, mut keep: impl FnMut(usize, &Packet) -> bool) {
    let end = Instant(pair.now.0 + 1_000_000_000);
    loop {
        pair.send(&mut keep);
        if pair.wire.iter().any(|w| !w.is_empty()) {
            pair.now = Instant(pair.now.0 + DELAY);
            pair.deliver();
        } else if !pair.sides.iter().any(|s| s.device.wants_transmit()) {
            let next = pair.sides.iter().filter_map(|s| s.device.next_timeout()).min();
            let Some(next) = next.filter(|next| *next < end) else {
                return;
            };
            pair.now = next.max(pair.now);
        }
        let now = pair.now;
        for side in &mut pair.sides {
            if side.device.next_timeout().is_some_and(|at| at <= now) {
                side.device.handle_timeout(now);
            }
        }
    }
}

fn write(pair: &mut Pair, id: u64, len: u32) {
    let (rkey, a) = (pair.sides[1].keys.rkey, &mut pair.sides[0]);
    let addr = a.va(0);
    a.post(id, SendOp::Write { addr, rkey }, &[a.sge(0, len)]);
}

fn read(pair: &mut Pair, id: u64, len: u32) {
    let (rkey, a) = (pair.sides[1].keys.rkey, &mut pair.sides[0]);
    let addr = a.va(0);
    a.post(id, SendOp::Read { addr, rkey }, &[a.sge(0, len)]);
}

/// Loses the n-th request, or the n-th response, that passes.
fn lose(from: usize, n: u32) -> impl FnMut(usize, &Packet) -> bool {
    let mut count = 0;
    move |sender, _| {
        count += u32::from(sender == from);
        sender != from || count != n
    }
}

/// Without zero touch RoCE: timers and windows are those of the connection.
fn plain(pair: &mut Pair, zero_touch: ZeroTouch) {
    let now = pair.now;
    for side in &mut pair.sides {
        let congestion = Congestion {
            zero_touch,
            ..Congestion::default()
        };
        side.device.set_congestion(congestion, now);
    }
}

/// Causes that were seen, with how often and how many packets.
fn repeats(seen: &QpObservation) -> Vec<(Cause, u64, u64)> {
    let all = Cause::ALL.iter().zip(&seen.repeats);
    let seen = all.filter(|(_, r)| r.times > 0 || r.packets > 0);
    seen.map(|(cause, r)| (*cause, r.times, r.packets)).collect()
}

#[test]
fn round_trips_are_in_the_buckets_of_their_times() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    plain(&mut pair, ZeroTouch::OFF);
    look(&mut pair, 0);
    // Each of these takes as long as is said: of one packet, and of four with an acknowledge for the last one.
    let trips = [(100, 100), (1000, 20_000), (1, 1_000_000), (700, 129)];
    for (id, (len, ns)) in (0..).zip(trips) {
        match id % 2 {
            0 => write(&mut pair, id, len),
            _ => read(&mut pair, id, len),
        }
        pair.send(|_, _| true);
        pair.deliver();
        pair.now = Instant(pair.now.0 + ns);
        pair.send(|_, _| true);
        pair.deliver();
        assert_eq!(pair.sides[0].completions().len(), 1);
        let newest = look(&mut pair, 0).trips.newest;
        assert_eq!(newest, Some(Duration::from_nanos(ns)), "request {id}");
        pair.now = Instant(pair.now.0 + 5_000_000);
    }
    let seen = look(&mut pair, 0);
    let bounds: Vec<u64> = TimeHistogram::bounds().collect();
    assert_eq!(seen.trips.values.buckets.len(), bounds.len() + 1);
    let mut expected = vec![0; bounds.len() + 1];
    for (_, ns) in trips {
        expected[bounds.partition_point(|bound| *bound < ns)] += 1;
    }
    assert_eq!(seen.trips.values.buckets, expected);
    assert_eq!(seen.trips.values.sum, trips.iter().map(|(_, ns)| ns).sum());
    assert_eq!(seen.trips.least, Some(Duration::from_nanos(100)));
    assert!(seen.trips.smoothed.is_some());
    assert_eq!(seen.span, Duration::from_nanos(pair.now.0));
    // The adaptive timer is off, and knows nothing of them.
    let (now, a) = (pair.now, &mut pair.sides[0]);
    assert_eq!(a.device.qp_status(a.qp, now).unwrap().sends.timers.smoothed, None);
}

#[test]
fn packets_are_counted_by_kind_at_both_ends() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 0);
    look(&mut pair, 1);
    write(&mut pair, 1, 1000);
    read(&mut pair, 2, 600);
    run(&mut pair, |_, _| true);
    let counted = |from: usize, response: bool| {
        let mut passed = Passed::default();
        for (_, p) in pair.log.iter().filter(|(side, _)| *side == from) {
            if p.headers.bth.opcode.operation().unwrap().is_response() == response {
                passed.packets += 1;
                passed.bytes += p.path.frame_len(&p.headers, p.payload.len()) as u64;
            }
        }
        passed
    };
    let (requests, responses) = (counted(0, false), counted(1, true));
    // (The first response to the READ acknowledges the WRITE as well.)
    assert_eq!((requests.packets, responses.packets), (5, 3));
    let [a, b] = [look(&mut pair, 0), look(&mut pair, 1)];
    assert_eq!([a.requests_sent, b.requests_received], [requests; 2]);
    assert_eq!([b.responses_sent, a.responses_received], [responses; 2]);
    assert_eq!(
        [a.responses_sent, a.requests_received, b.requests_sent],
        [Passed::default(); 3]
    );
    assert_eq!((a.sent_again, repeats(&a)), (0, vec![]));
}

#[test]
fn runs_are_counted_at_both_ends() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 0);
    look(&mut pair, 1);
    write(&mut pair, 1, 100_000);
    let mut taken = 0;
    for _ in 0..100 {
        taken += turn(&mut pair, 16, 100);
    }
    assert_eq!(pair.sides[0].completions().len(), 1);
    let [a, b] = [look(&mut pair, 0), look(&mut pair, 1)];
    let sent = pair.sides[0].device.counters();
    let all = Passed {
        packets: sent.tx_vport_rdma_unicast_packets,
        bytes: sent.tx_vport_rdma_unicast_bytes,
    };
    assert_eq!((all.packets, taken > 300), (391, true), "{taken}");
    assert_eq!([a.requests_sent, b.requests_received], [all; 2]);
    assert_eq!(a.responses_received, b.responses_sent);
    assert!(a.trips.values.count() > 0);
}

#[test]
fn packets_that_are_sent_again_have_a_cause() {
    let adaptive = ZeroTouch {
        adaptive: true,
        floor: Duration::from_micros(1),
        ..ZeroTouch::OFF
    };
    type Post = fn(&mut Pair, u64, u32);
    type Case = (Cause, ZeroTouch, Post, u32, (usize, u32), u64);
    let selective = ZeroTouch {
        selective: true,
        ..ZeroTouch::OFF
    };
    let cases: [Case; 6] = [
        // The second of four, which the third tells.
        (Cause::SequenceNak, ZeroTouch::OFF, write, 1000, (0, 2), 3),
        // The last of four; the others were acknowledged.
        (Cause::Timeout, ZeroTouch::OFF, write, 1000, (0, 4), 1),
        (Cause::EarlyTimeout, adaptive, write, 1000, (0, 4), 1),
        // The second response of four: the rest is asked for by one packet.
        (Cause::ImpliedNak, ZeroTouch::OFF, read, 1000, (1, 2), 1),
        // One by one: the second of twenty, and the last one, whose acknowledge proves that it came; a part of a READ.
        (Cause::SequenceNak, selective, write, 5000, (0, 2), 2),
        (Cause::ImpliedNak, selective, read, 5000, (1, 2), 1),
    ];
    for (cause, zero_touch, post, len, (from, n), packets) in cases {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        plain(&mut pair, zero_touch);
        look(&mut pair, 0);
        // The adaptive timer has to know the round trip.
        write(&mut pair, 1, 1);
        run(&mut pair, |_, _| true);
        post(&mut pair, 2, len);
        run(&mut pair, lose(from, n));
        assert_eq!(pair.sides[0].completions().len(), 2, "{cause:?}");
        let seen = look(&mut pair, 0);
        assert_eq!(repeats(&seen), [(cause, 1, packets)], "{cause:?}");
        assert_eq!(seen.sent_again, packets, "{cause:?}");
    }
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 0);
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 10)]);
    pair.send(|_, _| true);
    pair.deliver();
    pair.send(|_, _| true);
    pair.deliver();
    let b = &mut pair.sides[1];
    b.post_recv(7, &[b.sge(0, 10)]);
    run(&mut pair, |_, _| true);
    assert_eq!(repeats(&look(&mut pair, 0)), [(Cause::ReceiverNotReady, 1, 1)]);
}

#[test]
fn what_is_sent_again_is_not_measured() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    plain(&mut pair, ZeroTouch::OFF);
    look(&mut pair, 0);
    write(&mut pair, 1, 100);
    run(&mut pair, lose(0, 1));
    assert_eq!(pair.sides[0].completions().len(), 1);
    let seen = look(&mut pair, 0);
    assert_eq!((seen.sent_again, seen.trips.values.count()), (1, 0));
    write(&mut pair, 2, 100);
    run(&mut pair, |_, _| true);
    let seen = look(&mut pair, 0);
    assert_eq!(
        (seen.trips.values.count(), seen.trips.newest),
        (1, Some(Duration::from_nanos(2 * DELAY)))
    );
}

#[test]
fn an_observation_ends_when_nobody_looks_any_more() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    // Nobody has looked: there is nothing, and no time to wait for.
    assert_eq!(known(&mut pair, 0), None);
    let timeouts = |pair: &Pair| pair.sides[0].device.next_timeout();
    assert_eq!(timeouts(&pair), None);
    let second = Duration::from_secs(1);
    let look_for = |pair: &mut Pair, keep| {
        let (now, a) = (pair.now, &mut pair.sides[0]);
        a.device.observe_qp(a.qp, Some(keep), now).unwrap()
    };
    assert!(look_for(&mut pair, 2 * second).is_some());
    write(&mut pair, 1, 100);
    run(&mut pair, |_, _| true);
    assert_eq!(look_for(&mut pair, second).unwrap().requests_sent.packets, 1);
    // The longer look counts.
    pair.now = Instant(1_999_999_999);
    pair.sides[0].device.handle_timeout(pair.now);
    assert!(known(&mut pair, 0).is_some());
    assert!(look_for(&mut pair, second).is_some());
    pair.now = Instant(2_000_000_000);
    pair.sides[0].device.handle_timeout(pair.now);
    assert!(known(&mut pair, 0).is_some());
    assert_eq!(timeouts(&pair), Some(Instant(2_999_999_999)));
    // A look that prolongs nothing.
    assert_eq!(known(&mut pair, 0).unwrap().requests_sent.packets, 1);
    pair.now = Instant(2_999_999_999);
    pair.sides[0].device.handle_timeout(pair.now);
    assert_eq!((known(&mut pair, 0), timeouts(&pair)), (None, None));
    // The next one begins anew.
    let anew = look_for(&mut pair, second).unwrap();
    assert_eq!(
        (anew.span, anew.requests_sent),
        (Duration::ZERO, Passed::default())
    );
}

#[test]
fn an_observation_ends_with_its_queue_pair() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 0);
    let (now, a) = (pair.now, &mut pair.sides[0]);
    a.device.destroy_qp(a.qp).unwrap();
    assert_eq!(a.device.next_timeout(), None);
    assert_eq!(
        a.device.observe_qp(a.qp, Some(LONG), now),
        Err(VerbsError::NoSuch(Object::Qp))
    );
    // One that has its place is another one.
    let other = a.device.create_qp(&a.init).unwrap();
    assert_eq!(a.device.observe_qp(other, None, now), Ok(None));
}

#[test]
fn a_queue_pair_that_is_connected_anew_sends_nothing_again() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 0);
    write(&mut pair, 1, 2000);
    run(&mut pair, |_, _| true);
    assert_eq!(look(&mut pair, 0).requests_sent.packets, 8);
    let now = pair.now;
    for side in &mut pair.sides {
        let reset = vnic_engine::rdma::QpAttributes::default();
        let mask = vnic_engine::rdma::AttributeMask::STATE;
        side.device.modify_qp(side.qp, &reset, mask, now).unwrap();
    }
    // Lower PSNs, and larger packets.
    pair.connect(Connection {
        psn: 0x00ff_ff00,
        mtu: Mtu::Mtu1024,
        ..Connection::default()
    });
    read(&mut pair, 2, 2048);
    write(&mut pair, 3, 1);
    run(&mut pair, |_, _| true);
    let seen = look(&mut pair, 0);
    assert_eq!((seen.requests_sent.packets, seen.sent_again), (10, 0));
}

#[test]
fn so_many_are_observed_at_a_time() {
    let mut pair = datagrams();
    let (now, a) = (pair.now, &mut pair.sides[0]);
    let more: Vec<QpNumber> = (0..=OBSERVED_MAX)
        .map(|_| a.device.create_qp(&a.init).unwrap())
        .collect();
    for qp in &more[..OBSERVED_MAX] {
        assert!(a.device.observe_qp(*qp, Some(LONG), now).unwrap().is_some());
    }
    assert_eq!(a.device.observe_qp(more[OBSERVED_MAX], Some(LONG), now), Ok(None));
    // Those that are observed are looked at again.
    assert!(a.device.observe_qp(more[0], Some(LONG), now).unwrap().is_some());
    a.device.destroy_qp(more[0]).unwrap();
    let seen = a.device.observe_qp(more[OBSERVED_MAX], Some(LONG), now);
    assert!(seen.unwrap().is_some());
}

#[test]
fn marks_and_notifications_are_counted() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let now = pair.now;
    for side in &mut pair.sides {
        let congestion = Congestion {
            notification: 0xff,
            reaction: 0xff,
            ..Congestion::default()
        };
        side.device.set_congestion(congestion, now);
    }
    look(&mut pair, 0);
    look(&mut pair, 1);
    write(&mut pair, 1, 600);
    pair.send(|_, _| true);
    // The network marks two of three.
    for packet in pair.wire[0].iter_mut().take(2) {
        let class = packet.path.network.traffic_class();
        packet.path.network.set_traffic_class(class | Ecn::Ce as u8);
    }
    pair.deliver();
    pair.send(|_, _| true);
    for packet in &mut pair.wire[1] {
        packet.headers.bth.becn |= packet.headers.bth.opcode.transport() == Transport::Rc;
    }
    pair.deliver();
    let [a, b] = [look(&mut pair, 0), look(&mut pair, 1)];
    let marks = |of: &QpObservation| (of.marked, of.echoed, of.cnps_sent, of.cnps_received);
    assert_eq!((marks(&a), marks(&b)), ((0, 1, 0, 1), (2, 0, 1, 0)));
}

#[test]
fn strangers_count_for_nobody() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    look(&mut pair, 1);
    write(&mut pair, 1, 1);
    pair.send(|_, _| true);
    let mut stranger = pair.wire[0][0].clone();
    stranger.path.eth.source.0[5] ^= 1;
    stranger.path.network = vnic_wire::roce::Network::v2(
        vnic_wire::gid::Gid::from_ipv4([10, 0, 0, 77]),
        stranger.path.network.destination(),
    );
    pair.wire[0].push_front(stranger.clone());
    // A forged notification as well.
    stranger.headers = Headers::cnp(pair.sides[1].qp.0);
    pair.wire[0].push_front(stranger);
    pair.deliver();
    let seen = look(&mut pair, 1);
    assert_eq!((seen.requests_received.packets, seen.cnps_received), (1, 0));
}

#[test]
fn a_look_changes_nothing() {
    // The same with and without looks: what is sent when, and what completes.
    let story = |looks: bool| {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let mut taken = 0;
        for id in 0..30 {
            if looks {
                look(&mut pair, 0);
                look(&mut pair, 1);
            }
            match id % 3 {
                0 => read(&mut pair, id, 3000),
                _ => write(&mut pair, id, 5000),
            }
            let mut n = 0;
            run(&mut pair, |_, _| {
                n += 1;
                n % 17 != 0
            });
            // And in runs between neighbours.
            write(&mut pair, 100 + id, 2000);
            for _ in 0..40 {
                taken += turn(&mut pair, 16, 100);
            }
        }
        let log: Vec<_> = pair.log.iter().map(|(from, p)| (*from, p.headers)).collect();
        let seen = looks.then(|| look(&mut pair, 0));
        (log, pair.sides[0].completions(), pair.now, taken, seen)
    };
    let (with, without) = (story(true), story(false));
    assert_eq!(with.0, without.0);
    assert_eq!((&with.1, with.2), (&without.1, without.2));
    // Runs stay runs.
    assert_eq!((with.3, with.3 > 100), (without.3, true));
    let seen = with.4.unwrap();
    assert!(seen.sent_again > 0, "{seen:?}");
    let singles = with.0.iter().filter(|(from, headers)| {
        let operation = headers.bth.opcode.operation();
        *from == 0 && operation.is_some_and(Operation::is_request)
    });
    assert_eq!(seen.requests_sent.packets, singles.count() as u64 + with.3);
}
