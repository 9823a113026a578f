//! What a shell with queues of its own uses: completions without searching, and how much is held.

use std::collections::HashSet;

use vnic_engine::rdma::{
    AttributeMask, CqHandle, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendData, SendFlags,
    SendOp, SendWr, SgList, SrqInit, Status,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, tag};

/// A QP in error, with a CQ of its own: what is posted there completes at once.
fn flushing(side: &mut Side) -> (QpNumber, CqHandle) {
    let cq = side.device.create_cq(16).unwrap();
    let init = QpInit {
        send_cq: Some(cq),
        recv_cq: Some(cq),
        ..side.init
    };
    let qp = side.device.create_qp(&init).unwrap();
    let error = QpAttributes {
        state: QpState::Err,
        ..QpAttributes::default()
    };
    side.device
        .modify_qp(qp, &error, AttributeMask::STATE, Instant(0))
        .unwrap();
    (qp, cq)
}

fn recv(id: u64) -> RecvWr {
    RecvWr {
        id,
        tag: tag(id),
        sges: SgList::new(),
    }
}

fn side() -> Side {
    let [side, _] = Pair::new(QpType::Rc, Connection::default()).sides;
    side
}

#[test]
fn queues_that_got_something_are_named_once() {
    let mut side = side();
    let made: Vec<_> = (0..3).map(|_| flushing(&mut side)).collect();
    let device = &mut side.device;
    assert_eq!(device.next_completed(), None);
    let order = [2, 0, 2, 2, 1, 0];
    for (id, which) in (0..).zip(order) {
        device.post_recv(made[which].0, recv(id)).unwrap();
    }
    let named: Vec<_> = std::iter::from_fn(|| device.next_completed()).collect();
    assert_eq!(named, [made[2].1, made[0].1, made[1].1]);
    assert_eq!(made.iter().map(|m| device.peek_len(m.1)).sum::<u32>(), 6);
    // What was left there does not bring it back, what is added does.
    let first = device.pop_completion(made[2].1).unwrap();
    assert_eq!(
        (first.wr_id, first.tag, first.status),
        (0, tag(0), Status::FlushError)
    );
    assert_eq!(device.next_completed(), None);
    device.post_recv(made[2].0, recv(6)).unwrap();
    assert_eq!(device.next_completed(), Some(made[2].1));
    assert_eq!(device.next_completed(), None);
    let rest: Vec<_> = std::iter::from_fn(|| device.pop_completion(made[2].1))
        .map(|c| c.wr_id)
        .collect();
    assert_eq!((rest, device.peek_len(made[2].1)), (vec![2, 3, 6], 0));
}

#[test]
fn a_queue_that_is_gone_is_not_named_nor_one_that_has_its_number() {
    let mut side = side();
    let mut seen = HashSet::new();
    let mut twice = 0;
    // Handles come back after 1024; the list is never read and must not grow for ever.
    for id in 0..10_000 {
        let (qp, cq) = flushing(&mut side);
        twice += u32::from(!seen.insert(cq));
        side.device.post_recv(qp, recv(id)).unwrap();
        side.device.destroy_qp(qp).unwrap();
        side.device.destroy_cq(cq).unwrap();
    }
    assert!(twice > 0);
    let (qp, cq) = flushing(&mut side);
    assert_eq!(side.device.next_completed(), None, "the new one has nothing");
    side.device.post_recv(qp, recv(0)).unwrap();
    assert_eq!(side.device.next_completed(), Some(cq));
    assert_eq!(side.device.next_completed(), None);
    assert_eq!(
        (
            side.device.pop_completion(CqHandle(0x00ff_ffff)),
            side.device.peek_len(CqHandle(0x00ff_ffff))
        ),
        (None, 0)
    );
}

#[test]
fn what_is_held_goes_up_and_down() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    assert_eq!((a.device.held(a.qp), a.device.held_in_all()), ((0, 0), 0));
    for id in 0..3 {
        a.post(id, SendOp::Send, &[a.sge(0, 600)]);
        a.post_recv(id, &[a.sge(0, 600)]);
    }
    b.post_recv(10, &[b.sge(0, 600)]);
    b.post_recv(11, &[b.sge(0, 600)]);
    let srq = SrqInit {
        pd: a.pd,
        xrcd: None,
        cq: None,
        max_wr: 8,
        max_sge: 2,
    };
    let srq = a.device.create_srq(srq).unwrap();
    for id in 0..5 {
        a.device.post_srq_recv(srq, recv(id)).unwrap();
    }
    assert_eq!((a.device.held(a.qp), a.device.srq_held(srq)), ((3, 3), 5));
    assert_eq!(a.device.held_in_all(), 11);
    // Of the first message one packet is there: its receive is in use, and held.
    let mut packets = 0;
    pair.send(|_, _| {
        packets += 1;
        packets == 1
    });
    pair.deliver();
    assert_eq!(pair.sides[1].device.held(pair.sides[1].qp), (0, 2));
    assert_eq!(pair.sides[1].device.held_in_all(), 2);
    pair.run_losing(30, |_, _| true);
    let [a, b] = &mut pair.sides;
    // The third found no receive until its retries were used up.
    assert_eq!(a.state(), QpState::Err);
    assert_eq!((a.device.held(a.qp), a.device.held_in_all()), ((0, 0), 5));
    assert_eq!((b.device.held(b.qp), b.device.held_in_all()), ((0, 0), 0));
    a.device.destroy_srq(srq).unwrap();
    assert_eq!((a.device.srq_held(srq), a.device.held_in_all()), (0, 0));
    assert_eq!(a.device.held(QpNumber(0x00ff_fffe)), (0, 0));
}

#[test]
fn a_receive_of_a_shared_queue_is_held_by_the_one_that_uses_it() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let [a, b] = &mut pair.sides;
    let srq = SrqInit {
        pd: b.pd,
        xrcd: None,
        cq: None,
        max_wr: 8,
        max_sge: 2,
    };
    let srq = b.device.create_srq(srq).unwrap();
    b.init.srq = Some(srq);
    for side in [a, b] {
        side.qp = side.device.create_qp(&side.init).unwrap();
    }
    pair.connect(Connection::default());
    let [a, b] = &mut pair.sides;
    for id in 0..2 {
        let sges = SgList::from_slice(&[b.sge(0, 600)]);
        b.device.post_srq_recv(srq, RecvWr { sges, ..recv(id) }).unwrap();
    }
    a.post(1, SendOp::Send, &[a.sge(0, 600)]);
    let mut packets = 0;
    pair.send(|_, _| {
        packets += 1;
        packets == 1
    });
    pair.deliver();
    let b = &pair.sides[1];
    assert_eq!((b.device.held(b.qp), b.device.srq_held(srq)), ((0, 1), 1));
    assert_eq!(b.device.held_in_all(), 2);
    pair.run();
    let b = &mut pair.sides[1];
    assert_eq!(b.completions().len(), 1);
    assert_eq!((b.device.held(b.qp), b.device.srq_held(srq)), ((0, 0), 1));
    assert_eq!(b.device.held_in_all(), 1);
}

#[test]
fn posting_many_is_posting_one_by_one() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for id in 0..2 {
        let [_, b] = &mut pair.sides;
        b.post_recv(10 + id, &[b.sge(0, 64)]);
    }
    let [a, _] = &mut pair.sides;
    let (qp, good) = (a.qp, a.sge(0, 8));
    let post = |a: &mut Side, most: u32, ids: &[u64]| {
        let mut ids = ids.iter();
        a.device.post_sends(qp, most, |wr| {
            let Some(id) = ids.next() else { return Ok(false) };
            if *id == 9 {
                return Err("nothing can be made of it");
            }
            *wr = SendWr {
                id: *id,
                tag: tag(*id),
                flags: SendFlags::SIGNALED,
                data: SendData::Sges([good].into_iter().collect()),
                ..SendWr::default()
            };
            // More than it may carry: what verbs refuse at once.
            if *id == 5 {
                wr.data = SendData::Inline([0; 4096].into_iter().collect());
            }
            Ok(true)
        })
    };
    assert_eq!(post(a, 1, &[0, 1]), Ok(1));
    assert_eq!(a.device.held(qp).0, 1);
    assert_eq!(post(a, 8, &[1, 5, 6]), Ok(3));
    assert_eq!(post(a, 8, &[7, 9, 8]), Err("nothing can be made of it"));
    assert_eq!(a.device.held(qp).0, 5);
    assert_eq!(
        a.device
            .post_sends(QpNumber(0x00ff_ffff), 8, |_| -> Result<bool, ()> {
                panic!("there is no such QP")
            }),
        Ok(0)
    );
    pair.run();
    let [a, _] = &mut pair.sides;
    assert_eq!(a.state(), QpState::Err, "the refused one failed in its turn");
    let done: Vec<_> = a
        .completions()
        .iter()
        .map(|c| (c.wr_id, c.tag, c.status))
        .collect();
    use Status::{FlushError, LocalQpOperationError, Success};
    assert_eq!(
        done,
        [
            (0, tag(0), Success),
            (1, tag(1), Success),
            (5, tag(5), LocalQpOperationError),
            (6, tag(6), FlushError),
            (7, tag(7), FlushError)
        ]
    );
    // In error what is posted is flushed at once.
    assert_eq!(post(a, 8, &[20, 21]), Ok(2));
    let done: Vec<_> = a.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(done, [(20, FlushError), (21, FlushError)]);
    assert_eq!(a.device.held_in_all(), 0);
}
