//! Work requests that a shell cannot express, and queues that it has to end.

use vnic_engine::rdma::{
    AttributeMask, Event, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendFlags, SendOp, SgList,
    SrqHandle, SrqInit, Status, VerbsError,
};
use vnic_wire::time::Instant;

use super::harness::{Connection, Pair, Side, datagrams, send, tag};

const GIVEN: Status = Status::LocalQpOperationError;

fn done(side: &mut Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|c| (c.wr_id, c.status)).collect()
}

fn go_to(side: &mut Side, state: QpState) {
    let wanted = QpAttributes {
        state,
        ..QpAttributes::default()
    };
    side.device
        .modify_qp(side.qp, &wanted, AttributeMask::STATE, Instant(0))
        .unwrap();
}

fn post_failed(side: &mut Side, id: u64) -> Result<(), VerbsError> {
    side.device.post_failed_send(side.qp, id, tag(id), GIVEN)
}

#[test]
fn a_failed_send_waits_for_its_turn_also_when_packets_are_lost() {
    for lost in 0..4 {
        let mut pair = Pair::new(QpType::Rc, Connection::default());
        let [a, b] = &mut pair.sides;
        a.fill(0, &[7; 600]);
        let (addr, rkey) = (b.va(0), b.keys.rkey);
        b.post_recv(9, &[b.sge(5000, 600)]);
        a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 600)]);
        a.post(2, SendOp::Read { addr, rkey }, &[a.sge(9000, 600)]);
        post_failed(a, 3).unwrap();
        a.post(4, SendOp::Send, &[a.sge(0, 600)]);
        a.post_recv(5, &[a.sge(0, 600)]);
        let mut packets = 0;
        pair.run_losing(10, |_, _| {
            packets += 1;
            packets - 1 != lost
        });
        let [a, b] = &mut pair.sides;
        assert_eq!(
            done(a),
            [
                (1, Status::Success),
                (2, Status::Success),
                (3, GIVEN),
                (4, Status::FlushError),
                (5, Status::FlushError)
            ],
            "packet {lost} was lost"
        );
        assert_eq!((a.bytes(9000, 600), a.state()), (vec![7; 600], QpState::Err));
        assert!(a.events().is_empty());
        assert!(done(b).is_empty(), "what is behind a failed request is not sent");
    }
}

#[test]
fn a_failed_send_completes_visibly_when_nothing_is_signaled() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    for side in &mut pair.sides {
        side.init.signal_all = false;
        side.qp = side.device.create_qp(&side.init).unwrap();
    }
    pair.connect(Connection::default());
    let [a, b] = &mut pair.sides;
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 600)]);
    a.device
        .post_failed_send(a.qp, 2, tag(2), Status::LocalProtectionError)
        .unwrap();
    pair.run();
    let a = &mut pair.sides[0];
    assert_eq!(done(a), [(2, Status::LocalProtectionError)]);
    let counters = a.device.counters();
    assert_eq!(
        (counters.req_local_protection_error, counters.req_cqe_error),
        (1, 1)
    );
}

#[test]
fn a_failed_datagram_stops_the_send_queue_only() {
    let mut pair = datagrams();
    let gid = pair.sides[1].gid;
    let to = pair.destination(gid, 0x1111, false);
    let [a, _] = &mut pair.sides;
    post_failed(a, 1).unwrap();
    let mut wr = send(2, SendOp::Send, &[a.sge(0, 10)]);
    wr.ud = Some(to);
    a.device.post_send(a.qp, wr.clone()).unwrap();
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(1, GIVEN), (2, Status::FlushError)]);
    assert_eq!(a.state(), QpState::Sqe);
    post_failed(a, 3).unwrap();
    assert_eq!(done(a), [(3, Status::FlushError)], "as any other in SQE");
    go_to(a, QpState::Rts);
    b.post_recv(9, &[b.sge(0, 100)]);
    a.device.post_send(a.qp, wr).unwrap();
    pair.run();
    assert_eq!(done(&mut pair.sides[0]), [(2, Status::Success)]);
    assert_eq!(done(&mut pair.sides[1]).len(), 1);
}

#[test]
fn a_failed_send_obeys_the_state_of_its_queue() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let a = &mut pair.sides[0];
    go_to(a, QpState::Sqd);
    post_failed(a, 1).unwrap();
    pair.run();
    let a = &mut pair.sides[0];
    assert_eq!(
        (done(a), a.state()),
        (vec![], QpState::Sqd),
        "nothing new is begun"
    );
    assert_eq!(a.device.held(a.qp), (1, 0));
    // The queue has drained: only then can it be modified in this state.
    go_to(a, QpState::Sqd);
    go_to(a, QpState::Rts);
    pair.run();
    let a = &mut pair.sides[0];
    assert_eq!((done(a), a.state()), (vec![(1, GIVEN)], QpState::Err));
    post_failed(a, 2).unwrap();
    assert_eq!(done(a), [(2, Status::FlushError)]);
    go_to(a, QpState::Reset);
    assert_eq!(post_failed(a, 3), Err(VerbsError::State(QpState::Reset)));

    let [a, _] = &mut Pair::new(QpType::Rc, Connection::default()).sides;
    for id in 0..64 {
        post_failed(a, id).unwrap();
    }
    assert_eq!(post_failed(a, 64), Err(VerbsError::QueueFull));
    let nobody = QpNumber(0x00ff_fffe);
    assert!(a.device.post_failed_send(nobody, 0, 0, GIVEN).is_err());
}

#[test]
fn a_faulty_send_completes_behind_what_it_flushes() {
    for kind in [QpType::Rc, QpType::Uc, QpType::Ud] {
        let mut pair = match kind {
            QpType::Ud => datagrams(),
            _ => Pair::new(kind, Connection::default()),
        };
        let gid = pair.sides[1].gid;
        let to = pair.destination(gid, 0x1111, false);
        let a = &mut pair.sides[0];
        for id in 1..3 {
            let mut wr = send(id, SendOp::Send, &[a.sge(0, 200)]);
            wr.flags = SendFlags::empty();
            wr.ud = Some(to);
            a.device.post_send(a.qp, wr).unwrap();
        }
        a.post_recv(3, &[a.sge(0, 600)]);
        a.device.fault_send(a.qp, 4, tag(4));
        let flushed = Status::FlushError;
        assert_eq!(
            done(a),
            [(1, flushed), (2, flushed), (3, flushed), (4, GIVEN)],
            "{kind:?}"
        );
        assert_eq!(a.state(), QpState::Err);
        // Another one of a queue in error.
        a.device.fault_send(a.qp, 5, tag(5));
        assert_eq!(done(a), [(5, GIVEN)]);
        assert!(a.events().is_empty(), "the shell tells of it");
        assert_eq!(a.device.counters().req_local_qp_operation_error, 2);
        assert_eq!(a.device.held_in_all(), 0);
        pair.run();
        assert!(pair.log.is_empty(), "nothing of it was sent");
    }
}

#[test]
fn a_faulty_receive_completes_behind_what_it_flushes() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    a.post_recv(2, &[a.sge(0, 8)]);
    a.device.fault_receive(a.qp, 3, tag(3));
    let flushed = Status::FlushError;
    let all = a.completions();
    let seen: Vec<_> = all.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(seen, [(1, flushed), (2, flushed), (3, GIVEN)]);
    assert_eq!(
        (a.state(), all[2].op),
        (QpState::Err, vnic_engine::rdma::CompletionOp::Recv)
    );
    a.post_recv(4, &[a.sge(0, 8)]);
    a.device.fault_receive(a.qp, 5, tag(5));
    assert_eq!(done(a), [(4, flushed), (5, GIVEN)]);
    assert_eq!(a.device.counters().resp_local_qp_operation_error, 2);
    assert!(a.events().is_empty());
}

#[test]
fn a_fault_does_nothing_where_nothing_can_be_posted() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let a = &mut pair.sides[0];
    a.qp = a.device.create_qp(&a.init).unwrap();
    let nobody = QpNumber(0x00ff_fffe);
    for qp in [a.qp, nobody] {
        a.device.fault_send(qp, 1, tag(1));
        a.device.fault_receive(qp, 2, tag(2));
        a.device.fail_qp(qp);
    }
    assert_eq!((done(a), a.state()), (vec![], QpState::Reset));
    let init = QpAttributes {
        state: QpState::Init,
        ..QpAttributes::default()
    };
    let mask = AttributeMask::STATE | AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::ACCESS;
    a.device.modify_qp(a.qp, &init, mask, Instant(0)).unwrap();
    a.device.fault_send(a.qp, 1, tag(1));
    assert_eq!((done(a), a.state()), (vec![], QpState::Init));
    // Receives are posted and read in INIT already.
    a.post_recv(2, &[a.sge(0, 8)]);
    a.device.fault_receive(a.qp, 3, tag(3));
    assert_eq!(done(a), [(2, Status::FlushError), (3, GIVEN)]);
    assert_eq!(a.state(), QpState::Err);
}

#[test]
fn a_queue_pair_that_is_failed_flushes_and_tells_nobody() {
    let mut pair = Pair::new(QpType::Uc, Connection::default());
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    a.post_recv(2, &[a.sge(0, 8)]);
    a.device.fail_qp(a.qp);
    a.device.fail_qp(a.qp);
    assert_eq!(done(a), [(1, Status::FlushError), (2, Status::FlushError)]);
    assert_eq!((a.state(), a.events()), (QpState::Err, vec![]));
    pair.run();
    assert!(pair.log.is_empty());
}

fn shared_queue(side: &mut Side) -> SrqHandle {
    let init = SrqInit {
        pd: side.pd,
        xrcd: None,
        cq: None,
        max_wr: 8,
        max_sge: 2,
    };
    side.device.create_srq(init).unwrap()
}

#[test]
fn a_shared_queue_that_is_failed_looks_empty() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let b = &mut pair.sides[1];
    let srq = shared_queue(b);
    let init = QpInit {
        srq: Some(srq),
        ..b.init
    };
    b.init = init;
    for side in &mut pair.sides {
        side.qp = side.device.create_qp(&side.init).unwrap();
    }
    pair.connect(Connection {
        rnr_retry: 1,
        ..Connection::default()
    });
    let [a, b] = &mut pair.sides;
    let recv = |side: &Side, id| RecvWr {
        id,
        tag: tag(id),
        sges: SgList::from_slice(&[side.sge(0, 600)]),
    };
    for id in 0..3 {
        let wr = recv(b, id);
        b.device.post_srq_recv(srq, wr).unwrap();
    }
    b.device.modify_srq(srq, Some(3), None).unwrap();
    a.post(1, SendOp::Send, &[a.sge(0, 600)]);
    // The first packet takes a receive; then the queue fails.
    let mut packets = 0;
    pair.send(|_, _| {
        packets += 1;
        packets == 1
    });
    pair.deliver();
    let b = &mut pair.sides[1];
    assert_eq!(b.events().pop(), Some(Event::SrqLimitReached(srq)));
    b.device.fail_srq(srq);
    b.device.fail_srq(srq);
    assert_eq!((b.device.srq_held(srq), b.device.held_in_all()), (0, 1));
    let wr = recv(b, 7);
    assert!(b.device.post_srq_recv(srq, wr).is_err());
    assert!(b.device.modify_srq(srq, Some(1), None).is_err());
    // What was taken before is used; the next message finds nothing.
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(b), [(0, Status::Success)]);
    assert_eq!(done(a), [(1, Status::Success)]);
    a.post(2, SendOp::Send, &[a.sge(0, 600)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(2, Status::RnrRetryExceeded)]);
    assert_eq!((b.state(), b.events()), (QpState::Rts, vec![]));
    b.device.destroy_qp(b.qp).unwrap();
    b.device.destroy_srq(srq).unwrap();
    b.device.fail_srq(srq);
    assert_eq!(b.device.held_in_all(), 0);
}
