//! What people see of queue pairs: of one, of all by pages, and of those with the most errors.

use std::time::Duration;

use vnic_engine::rdma::{
    Object, QpErrors, QpNumber, QpState, QpStatus, QpType, RateLimit, SendOp, VerbsError,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Packet, Pair, Side, datagrams};

/// A PSN near the end of all, in [`Connection::default`].
const PSN: u32 = 0x00ff_fffe;

fn status(side: &mut Side, now: Instant) -> QpStatus {
    let status = side.device.qp_status(side.qp, now).unwrap();
    // A page says the same.
    let page = side.device.qp_page(None, 9, 9, now);
    assert!(page.rows.contains(&status));
    assert_eq!(status.pkey, Some(0xffff));
    status
}

/// What changes while a queue pair works: state, next PSN, oldest PSN, end, in flight, posted, receives.
fn seen(pair: &mut Pair, side: usize) -> (QpState, [u32; 3], u32, [u32; 2]) {
    let now = pair.now;
    let s = status(&mut pair.sides[side], now);
    (
        s.attributes.state,
        [s.attributes.sq_psn, s.sends.oldest, s.sends.end].map(|psn| psn.value()),
        s.sends.in_flight,
        [s.sends.posted, s.receives],
    )
}

fn errors(pair: &mut Pair, side: usize) -> QpErrors {
    let now = pair.now;
    status(&mut pair.sides[side], now).errors
}

#[test]
fn a_queue_pair_is_seen_at_work() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    assert_eq!(seen(&mut pair, 0), (QpState::Rts, [PSN; 3], 0, [0, 0]));
    let [a, b] = &mut pair.sides;
    b.post_recv(7, &[b.sge(0, 1000)]);
    a.post(1, SendOp::Send, &[a.sge(0, 1000)]);
    a.post(2, SendOp::Send, &[a.sge(0, 1)]);
    assert_eq!(seen(&mut pair, 0).3, [2, 0]);
    assert_eq!(seen(&mut pair, 1).3, [0, 1]);
    // Four packets of one and one of the other, none of them acknowledged; PSNs wrap.
    pair.send(|_, _| true);
    assert_eq!(seen(&mut pair, 0), (QpState::Rts, [3, PSN, 3], 5, [2, 0]));
    pair.deliver();
    let now = pair.now;
    let b = status(&mut pair.sides[1], now);
    assert_eq!((b.attributes.rq_psn.value(), b.receives), (2, 0));
    // The second one finds no receive.
    let late = QpErrors {
        out_of_buffer: 1,
        ..QpErrors::default()
    };
    assert_eq!(b.errors, late);
    pair.send(|_, _| true);
    pair.deliver();
    let a = status(&mut pair.sides[0], now);
    assert_eq!(
        (a.sends.posted, a.sends.oldest.value(), a.sends.in_flight),
        (1, 2, 0)
    );
    assert!(a.sends.waits_for_receiver);
    assert_eq!((a.sends.retries_left, a.sends.rnr_retries_left), (3, 2));
    assert_eq!(a.errors.rows().map(|(_, n)| n), [0, 0, 0, 0, 0, 0, 1]);
    let b = &mut pair.sides[1];
    b.post_recv(8, &[b.sge(0, 1000)]);
    pair.run();
    assert_eq!(seen(&mut pair, 0), (QpState::Rts, [3; 3], 0, [0, 0]));
    let now = pair.now;
    let a = status(&mut pair.sides[0], now);
    assert_eq!(a.number, pair.sides[0].qp);
    assert_eq!(a.attributes.destination_qp, pair.sides[1].qp);
    assert_eq!(a.attributes.address.unwrap().dgid, pair.sides[1].gid);
    assert_eq!((a.init, a.flow, a.ceiling), (pair.sides[0].init, None, 0));
    assert_eq!((a.sends.retries_left, a.sends.rnr_retries_left), (3, 3));
    assert!(!a.sends.waits_for_receiver);
}

#[test]
fn limits_are_seen() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let (now, a) = (pair.now, &mut pair.sides[0]);
    let rate = RateLimit {
        rate: 5000,
        ..RateLimit::default()
    };
    a.device.set_qp_rate(a.qp, rate, now).unwrap();
    a.device.set_qp_ceiling(a.qp, 4000, now).unwrap();
    let seen = status(a, now);
    assert_eq!((seen.rate, seen.ceiling), (rate, 4000));
}

#[test]
fn the_way_of_its_packets_is_seen() {
    let connection = Connection {
        traffic_class: 0x68,
        ..Connection::default()
    };
    let mut pair = Pair::new(QpType::Rc, connection);
    let now = pair.now;
    let path = status(&mut pair.sides[0], now).path.unwrap();
    let [a, b] = &pair.sides;
    assert_eq!((path.source, path.destination), (a.gid, b.gid));
    assert_eq!((path.source_mac, path.destination_mac), (a.mac, b.mac));
    assert_eq!((path.dscp, path.hop_limit, path.flow_label), (26, 64, 0));
    assert_eq!((path.v1, path.vlan), (false, None));
    let [a, _] = &mut pair.sides;
    a.post(1, SendOp::Send, &[a.sge(0, 1)]);
    pair.send(|_, _| true);
    assert_eq!(path.source_port, Some(pair.wire[0][0].path.source_port));
    let a = &mut pair.sides[0];
    let fresh = a.device.create_qp(&a.init).unwrap();
    assert_eq!(a.device.qp_status(fresh, now).unwrap().path, None);
}

#[test]
fn clocks_and_credits_are_seen() {
    let ns = Duration::from_nanos;
    let own = ns(4096 << 10);
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let seen = |pair: &mut Pair, at: u64| {
        pair.now = Instant(at);
        status(&mut pair.sides[0], Instant(at)).sends
    };
    let sends = seen(&mut pair, 0);
    assert_eq!(
        (sends.timers.timeout, sends.timers.ack_timer),
        (Some(own), Some(own))
    );
    assert_eq!(
        (sends.timers.ack_left, sends.timers.smoothed, sends.credits),
        (None, None, None)
    );
    let [a, b] = &mut pair.sides;
    b.post_recv(7, &[b.sge(0, 1)]);
    b.post_recv(8, &[b.sge(0, 1)]);
    b.post_recv(9, &[b.sge(0, 1)]);
    a.post(1, SendOp::Send, &[a.sge(0, 1)]);
    pair.send(|_, _| true);
    assert_eq!(seen(&mut pair, 1000).timers.ack_left, Some(own - ns(1000)));
    pair.deliver();
    pair.send(|_, _| true);
    pair.deliver();
    let sends = seen(&mut pair, 1000);
    assert_eq!(
        (sends.timers.ack_left, sends.timers.smoothed),
        (None, Some(ns(1000)))
    );
    // Two receives are left.
    assert_eq!(sends.credits, Some(2));
    for id in 2..=4 {
        let a = &mut pair.sides[0];
        a.post(id, SendOp::Send, &[a.sge(0, 1)]);
    }
    pair.send(|_, _| true);
    pair.deliver();
    assert_eq!(seen(&mut pair, 1000).credits, Some(0));
    // The third finds none, and is sent again after 10 us (timer 1).
    for _ in 0..3 {
        pair.send(|_, _| true);
        pair.deliver();
    }
    assert_eq!(seen(&mut pair, 3000).timers.rnr_left, Some(ns(8000)));
}

/// Loses the n-th packet with payload of the first side.
fn lose(n: u32) -> impl FnMut(usize, &Packet) -> bool {
    let mut count = 0;
    move |from, packet| {
        count += u32::from(from == 0 && !packet.payload.is_empty());
        from != 0 || count != n || packet.payload.is_empty()
    }
}

#[test]
fn errors_are_counted_for_the_queue_pair_as_for_the_device() {
    type Case = (&'static str, u32, [(usize, &'static str); 2]);
    let cases: [Case; 2] = [
        ("a gap: a NAK", 2, [(0, "packet_seq_err"), (1, "out_of_sequence")]),
        (
            "the last packet: time runs out",
            4,
            [(0, "local_ack_timeout_err"), (0, "local_ack_timeout_err")],
        ),
    ];
    for (case, lost, expected) in cases {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let [a, b] = &mut pair.sides;
        b.post_recv(7, &[b.sge(0, 1000)]);
        a.post(1, SendOp::Send, &[a.sge(0, 1000)]);
        pair.run_losing(1000, lose(lost));
        for (side, name) in expected {
            let rows = errors(&mut pair, side).rows();
            let found = rows.iter().find(|(row, _)| *row == name);
            assert!(found.is_some_and(|(_, n)| *n > 0), "{case}: {name} in {rows:?}");
        }
        for side in 0..2 {
            let own = errors(&mut pair, side);
            let device = &pair.sides[side].device;
            for (name, value) in own.rows() {
                let all = device.counters().iter().find(|(row, ..)| *row == name);
                assert_eq!(all.map(|(_, n, _)| n), Some(u64::from(value)), "{case}: {name}");
            }
            let worst = device.worst_qps();
            let known = (own.sum() > 0).then_some((pair.sides[side].qp, own));
            assert_eq!(worst, known.into_iter().collect::<Vec<_>>(), "{case}");
        }
    }
}

#[test]
fn a_datagram_without_a_receive_is_counted() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    let a = &mut pair.sides[0];
    let mut wr = super::harness::send(1, SendOp::Send, &[a.sge(0, 10)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    assert_eq!(errors(&mut pair, 1).out_of_buffer, 1);
    // A queue pair that is gone is not among the worst, and is unknown.
    let (now, b) = (pair.now, &mut pair.sides[1]);
    assert_eq!(b.device.worst_qps().len(), 1);
    b.device.destroy_qp(b.qp).unwrap();
    assert_eq!(b.device.worst_qps(), []);
    assert_eq!(b.device.qp_status(b.qp, now), Err(VerbsError::NoSuch(Object::Qp)));
}

#[test]
fn pages_have_every_queue_pair_once_whatever_comes_and_goes() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let (now, a) = (pair.now, &mut pair.sides[0]);
    let mut all = vec![a.qp];
    all.extend((0..99).map(|_| a.device.create_qp(&a.init).unwrap()));
    for (most, places) in [(1, 4096), (7, 4096), (100, 4096), (101, 4096), (100, 3), (8, 13)] {
        let (mut behind, mut seen) = (None, Vec::new());
        loop {
            let page = a.device.qp_page(behind, most, places, now);
            assert!(page.rows.len() <= most.min(places as usize));
            seen.extend(page.rows.iter().map(|s| s.number));
            let Some(next) = page.next else { break };
            behind = Some(next);
        }
        assert_eq!(seen, all, "{most} of {places}");
    }
    // The last one of a page goes, and the first one of the next; one that was seen goes as well.
    let page = a.device.qp_page(None, 10, 4096, now);
    for gone in [0, 9, 10] {
        a.device.destroy_qp(all[gone]).unwrap();
    }
    let rest = a.device.qp_page(page.next, 100, 4096, now);
    let numbers: Vec<QpNumber> = rest.rows.iter().map(|s| s.number).collect();
    assert_eq!(numbers, all[11..]);
    assert_eq!(a.device.qp_page(Some(u32::MAX), 10, 4096, now).rows, []);
}
