//! Shared receive queues, XRC, memory windows, the drained state, flushing.

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::rdma::{
    Access, AttributeMask as A, Congestion, Event, MwBind, MwType, QpAttributes, QpInit, QpState, QpType,
    RecvWr, SendFlags, SendOp, SgList, SrqHandle, SrqInit, Status,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, connect, send, tag};

/// A pair of which `b` has a QP made by `init`, connected.
fn pair_with(a_type: QpType, b_init: impl FnOnce(&mut super::harness::Side) -> QpInit) -> Pair {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    a.init.qp_type = a_type;
    if a_type == QpType::XrcInitiator {
        a.init.recv_cq = None;
    }
    a.qp = a.device.create_qp(&a.init).unwrap();
    let init = b_init(b);
    b.init = init;
    b.qp = b.device.create_qp(&init).unwrap();
    let (to_a, to_b) = ((a.qp, a.gid, a.mac), (b.qp, b.gid, b.mac));
    connect(a, to_b.0, to_b.1, to_b.2, Connection::default());
    connect(b, to_a.0, to_a.1, to_a.2, Connection::default());
    pair
}

fn srq_recv(side: &mut super::harness::Side, srq: SrqHandle, id: u64) {
    let wr = RecvWr {
        id,
        tag: tag(id),
        sges: SgList::from_slice(&[side.sge(1000 * id, 1000)]),
    };
    side.device.post_srq_recv(srq, wr).unwrap();
}

#[test]
fn a_shared_queue_serves_and_tells_when_it_runs_low() {
    let mut srq = None;
    let mut pair = pair_with(QpType::Rc, |b| {
        let made = b
            .device
            .create_srq(SrqInit {
                pd: b.pd,
                xrcd: None,
                cq: None,
                max_wr: 8,
                max_sge: 2,
            })
            .unwrap();
        srq = Some(made);
        QpInit {
            srq: Some(made),
            ..b.init
        }
    });
    let srq = srq.unwrap();
    let [a, b] = &mut pair.sides;
    b.device.modify_srq(srq, Some(2), None).unwrap();
    for id in 0..3 {
        srq_recv(b, srq, id);
    }
    a.post(1, SendOp::Send, &[a.sge(0, 10)]);
    a.post(2, SendOp::Send, &[a.sge(0, 10)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions().len(), 2);
    assert_eq!(
        b.completions().iter().map(|c| c.wr_id).collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(
        b.events()
            .iter()
            .filter(|e| **e == Event::SrqLimitReached(srq))
            .count(),
        1
    );
    // In error the QP leaves the rest to others, and says that it is through.
    let error = QpAttributes {
        state: QpState::Err,
        ..QpAttributes::default()
    };
    b.device.modify_qp(b.qp, &error, A::STATE, Instant(0)).unwrap();
    assert!(b.events().contains(&Event::LastWqeReached(b.qp)));
    assert!(b.completions().is_empty());
}

/// An XRC initiator, and a target with two queues.
fn xrc() -> (Pair, Vec<SrqHandle>) {
    let mut made = Vec::new();
    let pair = pair_with(QpType::XrcInitiator, |b| {
        let xrcd = b.device.open_xrcd().unwrap();
        for _ in 0..2 {
            let init = SrqInit {
                pd: b.pd,
                xrcd: Some(xrcd),
                cq: Some(b.cq),
                max_wr: 8,
                max_sge: 2,
            };
            made.push(b.device.create_srq(init).unwrap());
        }
        QpInit {
            qp_type: QpType::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            xrcd: Some(xrcd),
            ..b.init
        }
    });
    (pair, made)
}

#[test]
fn xrc_sends_lost_packets_again_one_by_one_and_takes_several_ways() {
    let (mut pair, made) = xrc();
    let congestion = Congestion {
        zero_touch: ZeroTouch {
            selective: true,
            multipath: 4,
            ..ZeroTouch::OFF
        },
        ..Congestion::default()
    };
    for side in &mut pair.sides {
        side.device.set_congestion(congestion.clone(), Instant(0));
    }
    let bytes: Vec<u8> = (0..60_000u32).map(|i| (i * 7 + i / 256) as u8).collect();
    pair.sides[0].fill(0, &bytes);
    let rkey = pair.sides[1].keys.rkey;
    for (id, len, lost) in [(1, 1, 0), (2, 200 * 256, 0), (3, 200 * 256, 1)] {
        let a = &mut pair.sides[0];
        let addr = a.va(100_000 * id);
        let mut wr = send(id, SendOp::Write { addr, rkey }, &[a.sge(0, len)]);
        wr.remote_srq = made[0].0;
        a.device.post_send(a.qp, wr).unwrap();
        let mut sent = 0;
        pair.run_losing(1, |from, _| {
            sent += usize::from(from == 0);
            from == 1 || lost == 0 || sent != 50
        });
        let [a, b] = &mut pair.sides;
        assert!(a.completions().iter().all(|c| c.status == Status::Success));
        assert_eq!(
            b.bytes(100_000 * id as usize, len as usize),
            bytes[..len as usize]
        );
        let counters = a.device.counters();
        assert_eq!(counters.local_ack_timeout_err, 0);
        assert_eq!(counters.roce_selective_repeats, lost);
        assert_eq!(counters.roce_multipath_packets > 100, id > 1);
    }
}

#[test]
fn xrc_delivers_into_the_queue_that_the_packet_names() {
    let (mut pair, made) = xrc();
    let [a, b] = &mut pair.sides;
    srq_recv(b, made[0], 10);
    srq_recv(b, made[1], 20);
    for (id, srq) in [(1, made[1]), (2, made[0])] {
        let mut wr = send(id, SendOp::Send, &[a.sge(0, 600)]);
        wr.remote_srq = srq.0;
        a.device.post_send(a.qp, wr).unwrap();
    }
    let (addr, rkey) = (b.va(500), b.keys.rkey);
    let mut read = send(3, SendOp::Read { addr, rkey }, &[a.sge(0, 600)]);
    read.remote_srq = made[0].0;
    a.device.post_send(a.qp, read).unwrap();
    pair.run();
    let [a, b] = &mut pair.sides;
    assert!(a.completions().iter().all(|c| c.status == Status::Success));
    assert_eq!(
        b.completions()
            .iter()
            .map(|c| (c.wr_id, c.byte_len))
            .collect::<Vec<_>>(),
        [(20, 600), (10, 600)]
    );
    // A queue that is not there.
    let mut wr = send(4, SendOp::Send, &[a.sge(0, 6)]);
    wr.remote_srq = made[1].0 + 100;
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    assert_eq!(
        pair.sides[0].completions()[0].status,
        Status::RemoteInvalidRequestError
    );
}

#[test]
fn a_window_opens_and_closes() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [_, b] = &mut pair.sides;
    let (mw, key) = b.device.alloc_mw(b.pd, MwType::Type2).unwrap();
    let rkey = (key & !0xff) | 0x42;
    let bind = MwBind {
        mw,
        rkey,
        mr: b.keys.mr,
        addr: b.va(4096),
        len: 100,
        access: Access::REMOTE_WRITE,
    };
    b.post(1, SendOp::BindMw(bind), &[]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(b.completions()[0].status, Status::Success);
    a.fill(0, &[9; 100]);
    let addr = b.va(4096);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 100)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(a.completions()[0].status, Status::Success);
    assert_eq!(b.bytes(4096, 100), [9; 100]);
    // The peer gives the key up, and has it no more.
    b.post_recv(5, &[]);
    a.post(2, SendOp::SendInvalidate(rkey), &[]);
    a.post(3, SendOp::Write { addr, rkey }, &[a.sge(0, 100)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    let got = b.completions();
    assert_eq!((got[0].wr_id, got[0].invalidated), (5, Some(rkey)));
    let done: Vec<_> = a.completions().iter().map(|c| c.status).collect();
    assert_eq!(done, [Status::Success, Status::RemoteAccessError]);
}

#[test]
fn sqd_finishes_what_was_begun_and_tells() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 3000)]);
    // All that was sent is lost: it has to be sent again while the queue drains.
    pair.send(|_, _| false);
    let [a, _] = &mut pair.sides;
    a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 10)]);
    let drain = QpAttributes {
        state: QpState::Sqd,
        drained_event: true,
        ..QpAttributes::default()
    };
    a.device
        .modify_qp(a.qp, &drain, A::STATE | A::DRAINED_EVENT, Instant(0))
        .unwrap();
    pair.run();
    let [a, _] = &mut pair.sides;
    assert_eq!(a.completions().iter().map(|c| c.wr_id).collect::<Vec<_>>(), [1]);
    assert!(a.events().contains(&Event::SendQueueDrained(a.qp)));
    let on = QpAttributes {
        state: QpState::Rts,
        ..QpAttributes::default()
    };
    a.device.modify_qp(a.qp, &on, A::STATE, Instant(0)).unwrap();
    pair.run();
    assert_eq!(pair.sides[0].completions()[0].wr_id, 2);
}

#[test]
fn a_fence_waits_for_the_read_before_it() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    b.fill(0, &[3; 8]);
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Read { addr, rkey }, &[a.sge(0, 8)]);
    let mut wr = send(2, SendOp::Write { addr: addr + 8, rkey }, &[a.sge(0, 8)]);
    wr.flags = SendFlags::FENCE;
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    assert_eq!(
        pair.sides[1].bytes(8, 8),
        [3; 8],
        "the WRITE carries what the READ brought"
    );
}

#[test]
fn destroying_flushes_first() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, _] = &mut pair.sides;
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    a.post_recv(2, &[a.sge(0, 8)]);
    a.device.destroy_qp(a.qp).unwrap();
    let done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(1, Status::FlushError), (2, Status::FlushError)]);
    assert!(a.device.destroy_qp(a.qp).is_err());
}
