//! The notification point: which marked packets are answered, and how.

use std::time::Duration;

use vnic_engine::congestion::notification::{CnpPriority, Scope, Settings};
use vnic_engine::rdma::{AttributeMask, Congestion, Marking, QpAttributes, QpState, QpType, SendOp};
use vnic_wire::qos::Trust;
use vnic_wire::roce::Network;
use vnic_wire::time::Instant;
use vnic_wire::vlan::{self, Tci};

use super::super::harness::{Connection, Pair, datagrams, send};
use super::*;

fn point() -> Congestion {
    Congestion {
        notification: 0xff,
        ..Congestion::default()
    }
}

/// Two connected sides that answer marks.
fn pair(congestion: &Congestion) -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for side in &mut pair.sides {
        side.device.set_congestion(congestion.clone(), Instant(0));
    }
    pair
}

fn post(pair: &mut Pair, op: impl Fn(u64, u32) -> SendOp, len: u32) {
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let op = op(a.va(0), rkey);
    a.post(1, op, &[a.sge(0, len)]);
}

/// CNPs that a side sends now, and the other packets.
fn answers(side: &mut Side, now: Instant) -> (Vec<Packet>, Vec<Packet>) {
    transmit(side, now).into_iter().partition(is_cnp)
}

#[test]
fn requests_responses_and_acknowledges_are_answered() {
    let read: fn(u64, u32) -> SendOp = |addr, rkey| SendOp::Read { addr, rkey };
    let write: fn(u64, u32) -> SendOp = |addr, rkey| SendOp::Write { addr, rkey };
    for op in [read, write] {
        let mut pair = pair(&point());
        post(&mut pair, op, 8);
        let mut now = Instant(0);
        // There and back, each packet marked: READ request and WRITE; READ response and ACK.
        for from in [0, 1] {
            let (none, sent) = answers(&mut pair.sides[from], now);
            assert_eq!((none.len(), sent.len()), (0, 1));
            let to = &mut pair.sides[1 - from];
            deliver(to, now, &mark(sent[0].clone()));
            assert!(to.device.wants_transmit() && to.device.ready_priorities() & 1 << 6 != 0);
            // The notification is first.
            let mut outlet = Outlet::new(0xff, 1);
            to.device.transmit(now, &to.ram, &mut outlet);
            let cnp = &outlet.packets[0];
            assert!(is_cnp(cnp));
            assert_eq!(cnp.headers.bth.destination_qp, pair.sides[from].qp.0);
            assert_eq!(cnp.headers, Headers::cnp(pair.sides[from].qp.0));
            assert_eq!(cnp.path.network.destination(), pair.sides[from].gid);
            assert_eq!(cnp.path.network.source(), pair.sides[1 - from].gid);
            assert_eq!(cnp.path.eth.destination, pair.sides[from].mac);
            assert_eq!(cnp.path.eth.source, pair.sides[1 - from].mac);
            assert_eq!((cnp.path.network.traffic_class(), cnp.priority), (48 << 2, 6));
            let counters = pair.sides[1 - from].device.counters();
            assert_eq!(
                (counters.np_cnp_sent, counters.np_ecn_marked_roce_packets),
                (1, 1)
            );
            // It comes in, and its peer's QP knows it for its own.
            deliver(&mut pair.sides[from], now, cnp);
            assert_eq!(pair.sides[from].device.counters().rp_cnp_ignored, 1);
            now = now + Duration::from_micros(1);
        }
    }
}

#[test]
fn datagrams_are_answered_to_the_queue_pair_that_sent_them() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    pair.sides[1].device.set_congestion(point(), Instant(0));
    let a = &mut pair.sides[0];
    let mut wr = send(1, SendOp::Send, &[a.sge(0, 8)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr).unwrap();
    let sent = mark(transmit(a, Instant(0)).remove(0));
    // Not with another key: who sends it has no right to an answer.
    let mut other = sent.clone();
    let Extended::Deth(deth) = &mut other.headers.extended else {
        panic!("{other:?}")
    };
    deth.qkey = 7;
    deliver(&mut pair.sides[1], Instant(0), &other);
    assert_eq!(transmit(&mut pair.sides[1], Instant(0)).len(), 0);
    deliver(&mut pair.sides[1], Instant(0), &sent);
    let cnps = transmit(&mut pair.sides[1], Instant(0));
    assert_eq!(cnps.len(), 1);
    assert_eq!(cnps[0].headers.bth.destination_qp, pair.sides[0].qp.0);
    // No receive was posted: dropped, and answered all the same.
    assert_eq!(pair.sides[1].device.counters().out_of_buffer, 1);
}

#[test]
fn some_marked_packets_are_not_answered() {
    let mut pair = pair(&point());
    post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
    let sent = mark(transmit(&mut pair.sides[0], Instant(0)).remove(0));
    let reset = {
        let b = &mut pair.sides[1];
        b.device.create_qp(&b.init).unwrap()
    };
    type Change = fn(&mut Packet);
    let variants: [(&str, Change); 5] = [
        ("not marked", |p| p.path.network.set_traffic_class(2)),
        ("another partition", |p| p.headers.bth.pkey = 0x1111),
        ("no such queue pair", |p| p.headers.bth.destination_qp += 5),
        ("not the peer", |p| {
            let other = vnic_wire::gid::Gid::from_ipv4([9, 9, 9, 9]);
            let class = p.path.network.traffic_class();
            p.path.network = Network::v2(other, p.path.network.destination());
            p.path.network.set_traffic_class(class);
        }),
        ("RoCEv1", |p| {
            let network = p.path.network;
            p.path.network = Network::v1(network.source(), network.destination());
            p.path.network.set_traffic_class(3);
        }),
    ];
    for (what, change) in variants {
        let mut packet = sent.clone();
        change(&mut packet);
        deliver(&mut pair.sides[1], Instant(0), &packet);
        let (cnps, _) = answers(&mut pair.sides[1], Instant(0));
        assert_eq!(cnps.len(), 0, "{what}");
    }
    let mut to_reset = sent.clone();
    to_reset.headers.bth.destination_qp = reset.0;
    deliver(&mut pair.sides[1], Instant(0), &to_reset);
    // A notification that was marked itself.
    let marked = mark(cnp(&pair, 1, pair.sides[1].qp.0, 0));
    deliver(&mut pair.sides[1], Instant(0), &marked);
    let (cnps, _) = answers(&mut pair.sides[1], Instant(0));
    assert_eq!(cnps.len(), 0);
}

#[test]
fn each_priority_is_enabled_by_itself() {
    for priority in 0..8u8 {
        for enabled in 0..8u8 {
            let congestion = Congestion {
                notification: 1 << enabled,
                ..Congestion::default()
            };
            let mut pair = pair(&congestion);
            pair.sides[1].device.set_marking(Marking {
                priorities: Trust::Dscp.into(),
                ..Marking::default()
            });
            post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
            let mut sent = transmit(&mut pair.sides[0], Instant(0)).remove(0);
            sent.path.network.set_traffic_class(priority << 5 | 3);
            deliver(&mut pair.sides[1], Instant(0), &sent);
            let (cnps, _) = answers(&mut pair.sides[1], Instant(0));
            assert_eq!(cnps.len(), usize::from(priority == enabled));
        }
    }
}

#[test]
fn a_notification_has_the_class_and_priority_that_were_set() {
    for (priority, dscp, ecn, wanted) in [
        (CnpPriority::Fixed(6), 48, 0, 6),
        (CnpPriority::Fixed(2), 10, 2, 2),
        (CnpPriority::Copied, 63, 1, 5),
    ] {
        for tagged in [false, true] {
            let congestion = Congestion {
                point: Settings {
                    priority,
                    dscp,
                    ecn,
                    ..Settings::default()
                },
                ..point()
            };
            let mut pair = pair(&congestion);
            pair.sides[1].device.set_marking(Marking {
                priorities: Trust::Dscp.into(),
                ..Marking::default()
            });
            post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
            let mut sent = transmit(&mut pair.sides[0], Instant(0)).remove(0);
            sent.path.network.set_traffic_class(5 << 5 | 3);
            if tagged {
                // (A VLAN id of 0: the packet only has a priority.)
                sent.path.vlan = Some(vlan::Header {
                    tci: Tci::new(1, false, 0),
                    ethertype: vnic_wire::EtherType::IPV4,
                });
            }
            deliver(&mut pair.sides[1], Instant(0), &sent);
            let (cnps, _) = answers(&mut pair.sides[1], Instant(0));
            let cnp = &cnps[0];
            assert_eq!(cnp.priority, wanted);
            assert_eq!(cnp.path.network.traffic_class(), dscp << 2 | ecn);
            assert_eq!(cnp.path.vlan.map(|tag| tag.tci.pcp()), tagged.then_some(wanted));
            assert_eq!(cnp.path.network.hop_limit(), 64);
        }
    }
}

#[test]
fn it_waits_for_its_own_priority_only() {
    let mut pair = pair(&point());
    post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
    let sent = mark(transmit(&mut pair.sides[0], Instant(0)).remove(0));
    let b = &mut pair.sides[1];
    deliver(b, Instant(0), &sent);
    let mut poll = |open| {
        let mut outlet = Outlet::new(open, 9);
        b.device.transmit(Instant(0), &b.ram, &mut outlet);
        outlet.packets.iter().map(|p| p.priority).collect::<Vec<_>>()
    };
    assert_eq!(poll(0b0011_1110), []);
    // The ACK, of priority 0, does not wait for it.
    assert_eq!(poll(0b0000_0001), [0]);
    assert_eq!(poll(0b0100_0000), [6]);
    assert_eq!(poll(0xff), []);
}

#[test]
fn notifications_are_spaced_by_scope() {
    for (scope, wanted) in [
        (Scope::Qp, 2),
        (Scope::IpPair, 1),
        (Scope::DestinationIp, 1),
        (Scope::Port, 1),
    ] {
        let congestion = Congestion {
            point: Settings {
                scope,
                ..Settings::default()
            },
            ..point()
        };
        let mut pair = pair(&congestion);
        // A second connection between the two.
        let first = [pair.sides[0].qp, pair.sides[1].qp];
        for side in &mut pair.sides {
            side.qp = side.device.create_qp(&side.init).unwrap();
        }
        pair.connect(Connection::default());
        let second = [pair.sides[0].qp, pair.sides[1].qp];
        for qp in [first[0], second[0]] {
            pair.sides[0].qp = qp;
            post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
        }
        let sent = transmit(&mut pair.sides[0], Instant(0));
        assert_eq!(sent.len(), 2);
        let b = &mut pair.sides[1];
        for packet in &sent {
            deliver(b, Instant(0), &mark(packet.clone()));
        }
        assert_eq!(answers(b, Instant(0)).0.len(), wanted, "{scope:?}");
        // Once more within the spacing: at its end, each scope answers once more.
        deliver(b, Instant(10), &mark(sent[0].clone()));
        assert_eq!(answers(b, Instant(10)).0.len(), 0);
        let at = b.device.next_timeout().unwrap();
        assert!(at <= Instant(50_000), "{at:?}");
        assert_eq!(answers(b, Instant(50_000)).0.len(), 1);
        assert_eq!(answers(b, Instant(99_999)).0.len(), 0);
    }
}

#[test]
fn a_queue_pair_may_go_while_its_notification_waits() {
    let mut pair = pair(&point());
    post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
    let sent = mark(transmit(&mut pair.sides[0], Instant(0)).remove(0));
    let b = &mut pair.sides[1];
    deliver(b, Instant(0), &sent);
    // One waits for its turn, another for the end of the spacing.
    deliver(b, Instant(1), &sent);
    let wanted = QpAttributes {
        state: QpState::Reset,
        ..Default::default()
    };
    b.device
        .modify_qp(b.qp, &wanted, AttributeMask::STATE, Instant(1))
        .unwrap();
    b.device.destroy_qp(b.qp).unwrap();
    let (cnps, rest) = answers(b, Instant(2));
    assert_eq!((cnps.len(), rest.len()), (1, 0));
    let (cnps, rest) = answers(b, Instant(60_000));
    assert_eq!((cnps.len(), rest.len()), (1, 0));
    // The same at the other end: its QP is gone, nothing happens.
    let a = &mut pair.sides[0];
    a.device.destroy_qp(a.qp).unwrap();
    deliver(&mut pair.sides[0], Instant(60_000), &cnps[0]);
    assert_eq!(pair.sides[0].device.counters().drop_no_qp, 1);
}

#[test]
fn what_waits_is_bounded() {
    let congestion = Congestion {
        point: Settings {
            spacing: Duration::ZERO,
            ..Settings::default()
        },
        ..point()
    };
    let mut pair = pair(&congestion);
    post(&mut pair, |addr, rkey| SendOp::Write { addr, rkey }, 8);
    let sent = mark(transmit(&mut pair.sides[0], Instant(0)).remove(0));
    let b = &mut pair.sides[1];
    for _ in 0..5000 {
        deliver(b, Instant(0), &sent);
    }
    let (cnps, _) = answers(b, Instant(0));
    assert_eq!(cnps.len(), 1024);
}
