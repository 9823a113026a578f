//! The reaction point: when a queue pair is limited, and how.

use std::time::Duration;

use vnic_engine::congestion::{Limits, Needs, Notification, Start, UNLIMITED, none};
use vnic_engine::rdma::{AttributeMask, Congestion, QpAttributes, QpState, QpType, SendOp};
use vnic_wire::roce::Ecn;
use vnic_wire::time::Instant;

use super::super::harness::{Connection, Pair, connect, datagrams, send};
use super::*;

/// A UC queue pair, which nobody answers, with 64 messages of half a megabyte.
fn busy(control: &Scripted) -> Pair {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let a = &mut pair.sides[0];
    a.device.set_congestion(control.congestion(), Instant(0));
    for id in 0..64 {
        a.post(id, SendOp::Send, &[a.sge(0, 1 << 19)]);
    }
    pair
}

#[test]
fn the_first_notification_makes_a_limiter_and_release_frees_it() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = busy(&control);
    assert_eq!(control.alive(), 0);
    notify(&mut pair, Instant(5));
    assert_eq!(control.alive(), 1);
    let a = &mut pair.sides[0];
    let status = flows(&mut a.device, Instant(6));
    assert_eq!(
        (status.len(), status[0].qp, status[0].notifications),
        (1, a.qp, 1)
    );
    assert_eq!(status[0].limits.rate, 1_000_000_000);
    assert_eq!(a.device.counters().rp_cnp_handled, 1);
    assert_eq!(
        control.take()[..2],
        [
            Heard::Start(Start {
                line_rate: 100_000_000_000,
                mtu: 256,
                // Ethernet, IPv4, UDP, BTH, ICRC; preamble, FCS and gap.
                wire: 14 + 20 + 8 + 12 + 256 + 4 + 24,
                rate: None,
            }),
            Heard::Cnp(Notification { period: None }),
        ]
    );
    // It sends a little, is released, and the limiter is gone with the next packet.
    run(a, 6, 100_000);
    control.script.lock().unwrap().released = true;
    let before = a.device.counters().tx_vport_rdma_unicast_packets;
    let at = a.device.next_timeout().unwrap();
    transmit(a, at);
    assert_eq!((control.alive(), flows(&mut a.device, at).len()), (0, 0));
    assert_eq!(a.device.next_timeout(), None);
    assert!(a.device.counters().tx_vport_rdma_unicast_packets > before + 1000);
}

#[test]
fn a_rate_is_kept_to_the_byte() {
    // From 1 Mbit/s to 400 Gbit/s; the one that breaks nanoseconds in uneven pieces, too.
    for (rate, ns) in [
        (1_000_000, 100_000_000),
        (2_345_678_901, 1_000_000),
        (40_000_000_000, 100_000),
        (400_000_000_000, 10_000),
    ] {
        let control = Scripted::rate(rate);
        let mut pair = busy(&control);
        notify(&mut pair, Instant(1000));
        let got = run(&mut pair.sides[0], 1000, 1000 + ns);
        let wanted = u128::from(rate) * u128::from(ns) / 8_000_000_000;
        // The one that goes into debt, and the one after the last nanosecond.
        let packet = 338;
        assert!(
            (u128::from(got)).abs_diff(wanted) <= packet,
            "{rate}: {got}, not {wanted}"
        );
    }
}

#[test]
fn credit_of_an_idle_time_is_the_slack() {
    for (slack, packets) in [(Duration::from_nanos(1), 1), (Duration::from_micros(10), 38)] {
        let control = Scripted::rate(10_000_000_000);
        let mut pair = busy(&control);
        let a = &mut pair.sides[0];
        let congestion = Congestion {
            slack,
            ..control.congestion()
        };
        a.device.set_congestion(congestion, Instant(0));
        notify(&mut pair, Instant(0));
        // 10 us at 10 Gbit/s are 12500 bytes: 36.98 packets of 338, and the last of them goes into debt.
        let sent = transmit(&mut pair.sides[0], Instant(1_000_000)).len();
        assert!(sent.abs_diff(packets) <= 1, "{slack:?}: {sent}");
    }
}

#[test]
fn who_waits_speeds_up_when_its_rate_rises() {
    let control = Scripted::rate(1_000_000);
    let mut pair = busy(&control);
    notify(&mut pair, Instant(0));
    let a = &mut pair.sides[0];
    assert_eq!(transmit(a, Instant(0)).len(), 1);
    // 338 bytes at 1 Mbit/s are 2.7 ms, unless the limits change before.
    assert_eq!(a.device.next_timeout(), Some(Instant(2_704_000)));
    let fast = Limits {
        rate: 1_000_000_000,
        window: UNLIMITED,
    };
    control.script.lock().unwrap().later = Some((Instant(10_000), fast));
    // It waits again, and hears of the change: a notification makes it look.
    notify(&mut pair, Instant(1));
    let a = &mut pair.sides[0];
    assert_eq!(a.device.next_timeout(), Some(Instant(10_000)));
    assert_eq!(transmit(a, Instant(10_000)).len(), 0);
    // What is owed is 337 bytes and a bit, now at 1 Gbit/s: 2.694 us.
    assert_eq!(a.device.next_timeout(), Some(Instant(12_694)));
    // Credit counts at once when somebody else raises it.
    control.set(Limits {
        rate: 100_000_000_000,
        window: UNLIMITED,
    });
    notify(&mut pair, Instant(10_100));
    assert_eq!(pair.sides[0].device.next_timeout(), Some(Instant(10_126)));
}

#[test]
fn a_user_rate_and_a_ceiling_stay_limits_of_their_own() {
    for (user, ceiling, flow, wanted) in [
        (1_000_000, 0, 2_000_000_000, 1_000_000_000),
        (1_000_000, 0, 500_000_000, 500_000_000),
        (0, 300_000, 500_000_000, 300_000_000u64),
        (5_000_000, 4_000_000, UNLIMITED, 4_000_000_000),
    ] {
        let control = Scripted::rate(flow);
        let mut pair = busy(&control);
        notify(&mut pair, Instant(0));
        let a = &mut pair.sides[0];
        let limit = vnic_engine::rdma::RateLimit {
            rate: user,
            max_burst: if user > 0 { 400 } else { 0 },
            ..Default::default()
        };
        a.device.set_qp_rate(a.qp, limit, Instant(0)).unwrap();
        a.device.set_qp_ceiling(a.qp, ceiling, Instant(0)).unwrap();
        let ms = 1_000_000;
        run(a, 0, 5 * ms);
        let got = run(a, 5 * ms, 15 * ms);
        let wanted = wanted / 800;
        assert!(got.abs_diff(wanted) * 100 < wanted, "{got}, not {wanted}");
        // Both gone, the flow is still there; the flow gone, the others are.
        a.device
            .set_qp_rate(a.qp, Default::default(), Instant(15 * ms))
            .unwrap();
        a.device.set_qp_ceiling(a.qp, 0, Instant(15 * ms)).unwrap();
        assert_eq!(control.alive(), 1);
        a.device.set_qp_ceiling(a.qp, 77, Instant(15 * ms)).unwrap();
        a.device.set_congestion(Congestion::default(), Instant(15 * ms));
        assert_eq!((control.alive(), a.device.paced_qps().count()), (0, 1));
    }
}

#[test]
fn each_priority_is_enabled_by_itself() {
    for priority in 0..8u8 {
        for enabled in 0..8u8 {
            let control = Scripted::rate(1_000_000_000);
            let connection = Connection {
                service_level: priority,
                ..Connection::default()
            };
            let mut pair = Pair::new(QpType::Rc, connection);
            let congestion = Congestion {
                reaction: 1 << enabled,
                ..control.congestion()
            };
            pair.sides[0].device.set_congestion(congestion, Instant(0));
            notify(&mut pair, Instant(0));
            let a = &mut pair.sides[0];
            let on = usize::from(priority == enabled);
            assert_eq!(control.alive(), on, "{priority} {enabled}");
            let counters = a.device.counters();
            assert_eq!(
                (counters.rp_cnp_handled, counters.rp_cnp_ignored),
                (on as u64, 1 - on as u64)
            );
            // Its packets say whether they may be marked.
            a.post(1, SendOp::Send, &[a.sge(0, 8)]);
            let sent = transmit(a, Instant(0));
            let ecn = Ecn::of(sent[0].path.network.traffic_class());
            assert_eq!(ecn == Ecn::Ect0, on == 1, "{ecn:?}");
        }
    }
}

#[test]
fn packets_say_that_they_may_be_marked_unless_the_class_says_otherwise() {
    for (class, wanted) in [(0x20, 0x22), (0x21, 0x21), (0x23, 0x23)] {
        let connection = Connection {
            traffic_class: class,
            ..Connection::default()
        };
        let mut pair = Pair::new(QpType::Rc, connection);
        let a = &mut pair.sides[0];
        let control = Scripted::rate(1);
        let mut class = |congestion| {
            a.device.set_congestion(congestion, Instant(0));
            a.post(1, SendOp::Send, &[a.sge(0, 8)]);
            transmit(a, Instant(0))[0].path.network.traffic_class()
        };
        // QPs that are connected follow the switch, both ways.
        assert_eq!(class(control.congestion()), wanted);
        let before = connection.traffic_class;
        assert_eq!(class(Congestion::default()), before);
        assert_eq!(class(control.congestion()), wanted);
    }
    // So do address handles.
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    let a = &mut pair.sides[0];
    for (congestion, wanted) in [
        (Congestion::default(), 0x68),
        (Scripted::rate(1).congestion(), 0x6a),
    ] {
        a.device.set_congestion(congestion, Instant(0));
        let mut wr = send(1, SendOp::Send, &[a.sge(0, 8)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
        let sent = transmit(a, Instant(0));
        assert_eq!(sent[0].path.network.traffic_class(), wanted);
    }
}

#[test]
fn no_algorithm_ignores_notifications() {
    let control = Scripted::rate(1);
    let mut pair = busy(&control);
    for (control, reaction, ignored) in [
        (Arc::new(none::None) as Arc<dyn CongestionControl>, 0xff, 1),
        (Arc::new(control.clone()), 0, 2),
    ] {
        let congestion = Congestion {
            control,
            reaction,
            ..Congestion::default()
        };
        pair.sides[0].device.set_congestion(congestion, Instant(0));
        notify(&mut pair, Instant(0));
        let a = &mut pair.sides[0];
        let counters = a.device.counters();
        assert_eq!((counters.rp_cnp_handled, counters.rp_cnp_ignored), (0, ignored));
        assert_eq!(flows(&mut a.device, Instant(0)).len(), 0);
        assert_eq!(a.device.paced_qps().count(), 0);
    }
}

#[test]
fn settings_change_under_way() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = busy(&control);
    notify(&mut pair, Instant(0));
    let a = &mut pair.sides[0];
    run(a, 0, 10_000);
    control.take();
    // The same algorithm with another point: nothing happens to the flow.
    let again = Congestion {
        notification: 0xff,
        ..a.device.congestion().clone()
    };
    a.device.set_congestion(again, Instant(10_000));
    assert_eq!(control.take(), []);
    // Another: it begins with the rate that the flow has.
    let other = Scripted::rate(2_000_000_000);
    a.device.set_congestion(other.congestion(), Instant(20_000));
    let started = other.take();
    let [Heard::Start(start)] = started[..] else {
        panic!("{started:?}")
    };
    assert_eq!(start.rate, Some(1_000_000_000));
    assert_eq!((control.alive(), other.alive()), (0, 1));
    let got = run(a, 20_000, 1_020_000);
    assert!(got.abs_diff(250_000) < 700, "{got}");
    // Its priority does not react any more: it sends as fast as it can.
    let off = Congestion {
        reaction: 0xfe,
        ..other.congestion()
    };
    a.device.set_congestion(off, Instant(1_020_000));
    assert_eq!((other.alive(), a.device.next_timeout()), (0, None));
    assert!(a.device.wants_transmit());
    assert!(transmit(a, Instant(1_020_000)).len() > 10_000);
}

#[test]
fn an_algorithm_may_begin_with_the_queue_pair() {
    let needs = Needs {
        from_start: true,
        ..Needs::default()
    };
    for qp_type in [QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcInitiator] {
        let control = Scripted::new(needs);
        let mut pair = match qp_type {
            QpType::Ud => datagrams(),
            QpType::XrcInitiator => Pair::new(QpType::Rc, Connection::default()),
            _ => Pair::new(qp_type, Connection::default()),
        };
        let a = &mut pair.sides[0];
        // One that is ready already.
        let ready = 1 + usize::from(qp_type == QpType::Ud);
        a.device.set_congestion(control.congestion(), Instant(0));
        assert_eq!(control.alive(), ready, "{qp_type:?}");
        if qp_type == QpType::Ud {
            continue;
        }
        // One that becomes ready later.
        let mut init = a.init;
        init.qp_type = qp_type;
        if qp_type == QpType::XrcInitiator {
            init.recv_cq = None;
        }
        let (first, peer) = (a.qp, pair.sides[1].qp);
        let (gid, mac) = (pair.sides[1].gid, pair.sides[1].mac);
        let a = &mut pair.sides[0];
        a.init = init;
        a.qp = a.device.create_qp(&init).unwrap();
        assert_eq!(control.alive(), 1);
        connect(a, peer, gid, mac, Connection::default());
        assert_eq!(control.alive(), 2);
        // RESET, ERR and destruction end them.
        let mask = AttributeMask::STATE;
        for (qp, state) in [(first, QpState::Reset), (a.qp, QpState::Err)] {
            let wanted = QpAttributes {
                state,
                ..Default::default()
            };
            a.device.modify_qp(qp, &wanted, mask, Instant(1)).unwrap();
        }
        assert_eq!(control.alive(), 0);
        connect_again(a, first, peer, gid, mac);
        assert_eq!(control.alive(), 1);
        a.device.destroy_qp(first).unwrap();
        assert_eq!(control.alive(), 0);
    }
}

fn connect_again(
    side: &mut Side,
    qp: vnic_engine::rdma::QpNumber,
    peer: vnic_engine::rdma::QpNumber,
    gid: vnic_wire::gid::Gid,
    mac: vnic_wire::MacAddr,
) {
    let (mine, init) = (side.qp, side.init);
    side.qp = qp;
    side.init = side.device.query_qp_init(qp).unwrap();
    connect(side, peer, gid, mac, Connection::default());
    (side.qp, side.init) = (mine, init);
}

#[test]
fn the_window_counts_payload_that_is_not_acknowledged() {
    let needs = Needs {
        from_start: true,
        ..Needs::default()
    };
    let control = Scripted::new(needs);
    let limits = |window| Limits {
        rate: UNLIMITED,
        window,
    };
    control.set(limits(1024));
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let a = &mut pair.sides[0];
    a.device.set_congestion(control.congestion(), Instant(0));
    a.post(
        1,
        SendOp::Write {
            addr: 0x4000_0000,
            rkey: 0,
        },
        &[],
    );
    a.device.poll_cq(a.cq, &mut Vec::new(), 9).unwrap();
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 1 << 16)]);
    // Four packets of 256, beside the first without payload.
    let sent = transmit(a, Instant(0));
    assert_eq!(sent.len(), 5);
    let asks = |p: &Packet| p.headers.bth.ack_request;
    assert!(asks(&sent[4]) && !asks(&sent[2]), "the last one asks");
    for packet in &sent {
        deliver(&mut pair.sides[1], Instant(0), packet);
    }
    let acks = transmit(&mut pair.sides[1], Instant(0));
    assert_eq!(acks.len(), 1);
    // The window has become too small for a packet: one goes, and the next only when it has arrived.
    control.set(limits(100));
    for round in 0..3 {
        if round == 0 {
            deliver(&mut pair.sides[0], Instant(9), &acks[0]);
        }
        let sent = transmit(&mut pair.sides[0], Instant(9));
        assert_eq!((sent.len(), asks(&sent[0])), (1, true), "{round}");
        assert_eq!(transmit(&mut pair.sides[0], Instant(9)).len(), 0);
        deliver(&mut pair.sides[1], Instant(9), &sent[0]);
        let ack = transmit(&mut pair.sides[1], Instant(9));
        deliver(&mut pair.sides[0], Instant(9), &ack[0]);
    }
    // It becomes larger while nothing comes back, as the algorithm said before.
    transmit(&mut pair.sides[0], Instant(9));
    control.script.lock().unwrap().later = Some((Instant(50), limits(2048)));
    let a = &mut pair.sides[0];
    a.post(3, SendOp::Write { addr, rkey }, &[a.sge(0, 8)]);
    assert_eq!(transmit(a, Instant(10)).len(), 0);
    assert_eq!(a.device.next_timeout(), Some(Instant(50)));
    assert_eq!(transmit(a, Instant(50)).len(), 7);
    // Everything arrives in the end, however small it is.
    control.set(limits(1));
    pair.now = Instant(60);
    pair.run();
    let a = &mut pair.sides[0];
    assert_eq!(a.state(), QpState::Rts);
    assert_eq!(a.completions().len(), 3);
}

#[test]
fn a_window_that_shrinks_leaves_nobody_without_an_acknowledge() {
    // Packets went without asking; then the window is too small for any of them.
    let control = Scripted::rate(UNLIMITED);
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    a.device.set_congestion(control.congestion(), Instant(0));
    notify(&mut pair, Instant(0));
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 1 << 16)]);
    let mut outlet = Outlet::new(0xff, 10);
    a.device.transmit(Instant(0), &a.ram, &mut outlet);
    assert!(outlet.packets.iter().all(|p| !p.headers.bth.ack_request));
    control.set(Limits {
        rate: UNLIMITED,
        window: 300,
    });
    let next = transmit(a, Instant(1));
    assert_eq!((next.len(), next[0].headers.bth.ack_request), (1, true));
}

#[test]
fn read_responses_obey_the_rate() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    pair.sides[1]
        .device
        .set_congestion(control.congestion(), Instant(0));
    let rkey = pair.sides[1].keys.rkey;
    let a = &mut pair.sides[0];
    let addr = a.va(0);
    a.post(1, SendOp::Read { addr, rkey }, &[a.sge(0, 100_000)]);
    let request = transmit(a, Instant(0));
    let b = &mut pair.sides[1];
    deliver(b, Instant(0), &request[0]);
    let packet = cnp(&pair, 1, pair.sides[1].qp.0, 0);
    let b = &mut pair.sides[1];
    deliver(b, Instant(0), &packet);
    // A rate that the user sets is for requests only.
    let slow = vnic_engine::rdma::RateLimit {
        rate: 1,
        ..Default::default()
    };
    b.device.set_qp_rate(b.qp, slow, Instant(0)).unwrap();
    let got = run(b, 0, 100_000);
    assert!(got.abs_diff(12_500) < 400, "{got}");
    let heard = control.take();
    assert!(heard.contains(&Heard::Sent(256)), "{heard:?}");
    // All of it arrives.
    let got = run(b, 100_000, 2_000_000);
    assert!(got > 100_000 && b.device.next_timeout().is_none(), "{got}");
}

#[test]
fn datagrams_obey_the_rate_of_their_priority() {
    let control = Scripted::rate(1_000_000);
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    pair.sides[0]
        .device
        .set_congestion(control.congestion(), Instant(0));
    notify(&mut pair, Instant(0));
    assert_eq!(control.alive(), 1);
    let a = &mut pair.sides[0];
    for id in 0..20 {
        let mut wr = send(id, SendOp::Send, &[a.sge(0, 1000)]);
        wr.ud = Some(to);
        a.device.post_send(a.qp, wr).unwrap();
    }
    // 1000 bytes of payload are 1000 + 14 + 20 + 8 + 12 + 8 + 4 + 24 on the wire: 8.72 ms at 1 Mbit/s.
    let got = run(a, 0, 43_600_000);
    assert_eq!(got, 5 * 1090);
}

#[test]
fn an_algorithm_hears_of_a_pause() {
    let control = Scripted::rate(100_000_000_000);
    let mut pair = busy(&control);
    notify(&mut pair, Instant(0));
    let a = &mut pair.sides[0];
    let mut poll = |at, open, room| {
        let mut outlet = Outlet::new(open, room);
        a.device.handle_timeout(Instant(at));
        a.device.transmit(Instant(at), &a.ram, &mut outlet);
        let heard = control.take();
        heard.iter().filter(|h| matches!(h, Heard::Paused(_))).count()
    };
    assert_eq!(poll(1000, 0xff, 1), 0);
    // Full is not paused.
    assert_eq!(poll(2000, 0xff, 0), 0);
    assert_eq!(poll(3000, 0xff, 1), 0);
    // Its priority is closed; when it opens, the flow hears of it once.
    assert_eq!(poll(4000, 0xfe, 1), 0);
    assert!(poll(5000, 0xff, 1) > 0);
    assert_eq!(poll(6000, 0xff, 1), 0);
}

#[test]
fn bursts_leave_at_once_and_wait_together() {
    let control = Scripted::rate(1_000_000_000);
    let control = Scripted {
        needs: Needs {
            burst: 1024,
            ..Needs::default()
        },
        ..control
    };
    let mut pair = busy(&control);
    notify(&mut pair, Instant(0));
    let a = &mut pair.sides[0];
    for burst in 0..5u64 {
        // Four packets of 338 bytes at 1 Gbit/s.
        let at = Instant(burst * 4 * 338 * 8);
        assert_eq!(transmit(a, at).len(), 4);
        assert_eq!(a.device.next_timeout(), Some(Instant(at.0 + 4 * 338 * 8)));
    }
}

#[test]
fn hostile_notifications_change_nothing() {
    let control = Scripted::rate(1);
    let mut pair = busy(&control);
    let own = pair.sides[0].qp.0;
    // A QP that is not there.
    let packet = cnp(&pair, 0, own + 1000, 0);
    deliver(&mut pair.sides[0], Instant(0), &packet);
    assert_eq!(pair.sides[0].device.counters().drop_no_qp, 1);
    // From somebody else.
    let mut packet = cnp(&pair, 0, own, 0);
    packet.path.network = Network::v2(vnic_wire::gid::Gid::from_ipv4([10, 0, 0, 99]), pair.sides[0].gid);
    deliver(&mut pair.sides[0], Instant(0), &packet);
    // To QPs in RESET and ERR.
    let a = &mut pair.sides[0];
    let reset = a.device.create_qp(&a.init).unwrap();
    let packet = cnp(&pair, 0, reset.0, 0);
    deliver(&mut pair.sides[0], Instant(0), &packet);
    let a = &mut pair.sides[0];
    a.device.fail_qp(a.qp);
    let packet = cnp(&pair, 0, own, 0);
    deliver(&mut pair.sides[0], Instant(0), &packet);
    // Of another partition, of another version.
    let mut packet = cnp(&pair, 0, own, 0);
    packet.headers.bth.pkey = 0x1234;
    deliver(&mut pair.sides[0], Instant(0), &packet);
    packet = cnp(&pair, 0, own, 0);
    packet.headers.bth.version = 1;
    deliver(&mut pair.sides[0], Instant(0), &packet);
    let counters = pair.sides[0].device.counters();
    assert_eq!((counters.rp_cnp_handled, counters.rp_cnp_ignored), (0, 3));
    assert_eq!(control.alive(), 0);
}

#[test]
fn a_notification_tells_its_period() {
    let control = Scripted::rate(1_000_000_000);
    let mut pair = busy(&control);
    let packet = cnp(&pair, 0, pair.sides[0].qp.0, 75);
    deliver(&mut pair.sides[0], Instant(0), &packet);
    let told = Notification {
        period: Some(Duration::from_micros(75)),
    };
    assert!(control.take().contains(&Heard::Cnp(told)));
}
