//! Faults of rings, and memory that goes away (`proto/device/SPEC.md`, sections 8.4, 10.2 and 11.3), with a driver written
//! out by hand. After each, the neighbours work as before.

use anyhow::Result;
use vnic_device::command::queues::{ModifySrq, SrqReply};
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::Kind;
use vnic_device::event::{EventKind, FaultQueue as Q, FaultReason as R, fault, fault_detail};
use vnic_device::queue::{Operation, ReceiveHead, SendHead, send_flags};
use vnic_device::ring::{self, Extent};
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType};
use vnic_tests::driver::rdma::{Area, Link, Qp, QpSpec, Side, World, Wr, connect, fill, link};

/// Memory that can be taken away is here.
const MODULE: u64 = 1 << 40;
const MODULE_LEN: u64 = 1 << 20;

fn write(side: &Side, wr_id: u64, to: &Side) -> Wr {
    Wr::new(wr_id, Operation::Write, &[side.at(0, 8)]).remote(to.mr.iova, to.mr.rkey)
}

/// The event of a fault, and nothing else of its kind.
fn fault_of(s: &mut Side, object: u32, queue: Q, reason: R, index: Option<u32>) {
    let e = s.d.event(EventKind::QueueFault);
    assert_eq!(e.object, object);
    let (q, r, i) = fault(e.detail).expect("a fault of the contract");
    assert_eq!((q, r), (queue, reason), "{:#x}", e.detail);
    if let Some(index) = index {
        assert_eq!((i, e.detail), (index, fault_detail(queue, reason, index)));
    }
    assert_eq!(s.d.count_events(EventKind::QueueFault), 0, "a fault is told once");
}

/// A pair that works.
fn works(a: &mut Side, b: &mut Side) {
    let (mut qa, mut qb) = a.pair(b, QpType::Rc);
    let bytes = fill(a.cq.consumer.into(), 3000);
    a.mr.area.write(4096, &bytes);
    b.receive(&mut qb, 77, &[b.at(8192, 3000)]);
    a.done(&mut qa, &Wr::send(78, &[a.at(4096, 3000)]));
    assert_eq!(b.cq.good(77).byte_len, 3000);
    assert_eq!(b.mr.area.bytes(8192, 3000), bytes);
    for (s, qp) in [(a, qa), (b, qb)] {
        s.d.end(Opcode::DestroyQp, qp.number).expect("DESTROY_QP");
    }
}

#[test]
fn send_queues() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let element = a.at(0, 8);
    let op = |operation: u8, flags: u8, count: u16| {
        let mut wr = Wr::send(0xbad, &[element]);
        (wr.head.operation, wr.head.flags, wr.head.count) = (operation, flags, count);
        wr
    };
    let n = |o: Operation| o.number();
    let far = Wr {
        head: SendHead {
            remote: 1 << 56,
            ..op(2, 0, 1).head
        },
        ..op(2, 0, 1)
    };
    let (rc, uc, ud) = (QpType::Rc, QpType::Uc, QpType::Ud);
    let inline = send_flags::INLINE;
    let rows = [
        (rc, op(10, 0, 0), R::Operation),
        (rc, op(255, 0xff, 0xffff), R::Operation),
        (uc, op(n(Operation::Read), 0, 1), R::Operation),
        (uc, op(n(Operation::SendInvalidate), 0, 1), R::Operation),
        (ud, op(n(Operation::Write), 0, 1), R::Operation),
        (ud, op(n(Operation::BindMw), 0, 0), R::Operation),
        (rc, op(0, 16, 1), R::Reserved),
        (rc, op(0, 128, 1), R::Reserved),
        (rc, op(n(Operation::Read), inline, 8), R::Reserved),
        (rc, op(n(Operation::FetchAdd), inline, 1), R::Reserved),
        (rc, op(n(Operation::LocalInvalidate), inline, 0), R::Reserved),
        (ud, far, R::Reserved),
        (rc, op(0, 0, 7), R::Length),
        (rc, op(0, inline, 129), R::Length),
        (rc, op(0, inline, u16::MAX), R::Length),
        (rc, op(n(Operation::FetchAdd), 0, 0), R::Length),
        (rc, op(n(Operation::CompareSwap), 0, 2), R::Length),
        (rc, op(n(Operation::BindMw), 0, 1), R::Length),
        (rc, op(n(Operation::LocalInvalidate), 0, 1), R::Length),
    ];
    for (qp_type, bad, reason) in rows {
        let (mut qa, _qb) = a.pair(&mut b, qp_type);
        let to_b = a.d.address_of(&mut b.d);
        let ah = a.d.ah(a.pd, to_b);
        let (iova, rkey) = (b.mr.iova, b.mr.rkey);
        let good = |id| match qp_type {
            QpType::Ud => Wr::send(id, &[element]).to(ah, 0x99_9999),
            _ => Wr::new(id, Operation::Write, &[element]).remote(iova, rkey),
        };
        let wrs = [good(1), good(2), bad.clone(), good(3), good(4)];
        for wr in &wrs {
            qa.sends().write(wr);
        }
        qa.ring(&mut a.bells);
        for id in [1, 2] {
            let e = a.cq.wait();
            assert!(
                e.wr_id == id && [Status::Success, Status::FlushError].contains(&e.status()),
                "{e:?}"
            );
        }
        let e = a.cq.expect(0xbad, Status::LocalQpOperationError);
        assert_eq!((e.consumed, e.kind & 0x80), (qa.sends().producer, 0), "{bad:?}");
        fault_of(&mut a, qa.number, Q::Send, reason, Some(2));
        assert_eq!(a.d.state(&qa), QpState::Err);
        // Nothing more is read.
        a.post(&mut qa, &good(5));
        a.bells.wait_taken();
        a.d.sync();
        assert!(a.cq.poll().is_none(), "{bad:?}");
        // A reset mends it.
        a.d.to(&qa, QpState::Reset);
        qa.begin_anew();
        a.d.init(&qa);
        a.d.end(Opcode::DestroyQp, qa.number).expect("DESTROY_QP");
    }
    // More blocks than were posted.
    let (mut qa, _qb) = a.pair(&mut b, rc);
    let long = Wr::new(0xbad, Operation::Write, &[element; 6]);
    let index = qa.sends().write(&long);
    a.bells.ring(Kind::Send, qa.number, index - 1);
    assert_eq!(
        a.cq.expect(0xbad, Status::LocalQpOperationError).consumed,
        index - 1
    );
    fault_of(&mut a, qa.number, Q::Send, R::Length, Some(0));
    works(&mut a, &mut b);
    world.finish()
}

#[test]
fn receive_queues() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let rows = [
        (
            ReceiveHead {
                wr_id: 0xbad,
                elements: 1,
                reserved: 1,
            },
            R::Reserved,
        ),
        (
            ReceiveHead {
                wr_id: 0xbad,
                elements: 4,
                reserved: 0,
            },
            R::Length,
        ),
        (
            ReceiveHead {
                wr_id: 0xbad,
                elements: u32::MAX,
                reserved: 0,
            },
            R::Length,
        ),
    ];
    for (bad, reason) in rows {
        let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
        let element = b.at(0, 64);
        b.receive(&mut qb, 0, &[element]);
        a.done(&mut qa, &Wr::send(1, &[]));
        b.cq.good(0);
        for id in 1..3 {
            qb.receives().write(id, &[element]);
        }
        qb.receives().write_head(bad, &[element]);
        for id in 3..5 {
            qb.receives().write(id, &[element]);
        }
        let index = qb.receives().producer;
        b.bells.ring(Kind::Receive, qb.number, index);
        let ends: Vec<_> = (0..5).map(|_| b.cq.wait()).collect();
        let ids: Vec<_> = ends.iter().map(|e| (e.wr_id, e.status(), e.consumed)).collect();
        let f = Status::FlushError;
        let bad = Status::LocalQpOperationError;
        assert_eq!(ids, [(1, f, 2), (2, f, 3), (0xbad, bad, 4), (3, f, 5), (4, f, 6)]);
        assert!(ends.iter().all(|e| e.kind & 0x80 != 0));
        fault_of(&mut b, qb.number, Q::Receive, reason, Some(3));
        assert_eq!(b.d.state(&qb), QpState::Err);
        b.receive(&mut qb, 9, &[element]);
        b.cq.expect(9, f);
    }
    works(&mut b, &mut a);
    world.finish()
}

#[test]
fn shared_receive_queues() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let bad = ReceiveHead {
        wr_id: 0xbad,
        elements: 3,
        reserved: 0,
    };
    let rows = [
        (Some(bad), R::Length),
        (
            Some(ReceiveHead {
                elements: 1,
                reserved: 7,
                ..bad
            }),
            R::Reserved,
        ),
        (None, R::Index),
    ];
    for (bad, reason) in rows {
        let mut srq = b.d.srq(b.pd, 16, 2, None);
        let qa = a.qp(QpType::Rc);
        let spec = b.spec(QpType::Rc).shared(&srq);
        let qb = b.d.qp(&spec);
        let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        a.d.up(
            &qa,
            &Link {
                rnr_retry: 1,
                ..link(to_b, qb.number)
            },
        );
        b.d.up(&qb, &link(to_a, qa.number));
        let mut qa = qa;
        srq.receive(&mut b.bells, 1, &[]);
        a.done(&mut qa, &Wr::send(1, &[]));
        b.cq.good(1);
        let index = match bad {
            Some(head) => {
                srq.ring.write_head(head, &[]);
                srq.ring.write(2, &[])
            }
            None => srq.ring.producer + 17,
        };
        b.bells.ring(Kind::SharedReceive, srq.handle, index);
        fault_of(&mut b, srq.handle, Q::SharedReceive, reason, Some(1));
        // Its QPs find it empty, and are well.
        a.fails(&mut qa, &Wr::send(2, &[]), Status::RnrRetryExceeded);
        assert_eq!(b.d.state(&qb), QpState::Rts);
        srq.receive(&mut b.bells, 3, &[]);
        b.bells.wait_taken();
        let query = Object {
            handle: srq.handle,
            reserved: 0,
        };
        b.d.ask::<_, SrqReply>(Opcode::QuerySrq, &query, &[])
            .expect("QUERY_SRQ");
        let body = ModifySrq {
            srq: srq.handle,
            ..ModifySrq::default()
        };
        assert!(b.d.ask::<_, [u8; 0]>(Opcode::ModifySrq, &body, &[]).is_err());
        b.d.end(Opcode::DestroyQp, qb.number).expect("DESTROY_QP");
        b.d.end(Opcode::DestroySrq, srq.handle).expect("DESTROY_SRQ");
    }
    works(&mut a, &mut b);
    world.finish()
}

#[test]
fn producer_indices() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    for wild in [65u32, 1000, 1 << 31] {
        let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
        // What was posted before is flushed, or had ended.
        b.receive(&mut qb, 1, &[]);
        b.receive(&mut qb, 2, &[]);
        b.bells.ring(Kind::Receive, qb.number, 2 + wild);
        fault_of(&mut b, qb.number, Q::Receive, R::Index, Some(2));
        b.cq.expect(1, Status::FlushError);
        b.cq.expect(2, Status::FlushError);
        assert_eq!(b.d.state(&qb), QpState::Err);
        a.d.to(&qa, QpState::Sqd);
        a.post(&mut qa, &write(&a, 5, &b));
        a.bells.ring(Kind::Send, qa.number, 1 + wild);
        fault_of(&mut a, qa.number, Q::Send, R::Index, Some(1));
        a.cq.expect(5, Status::FlushError);
        assert_eq!(a.d.state(&qa), QpState::Err);
        // Old news are no fault.
        let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
        a.done(&mut qa, &write(&a, 6, &b));
        for old in [0, u32::MAX, 0x8000_0002] {
            a.bells.ring(Kind::Send, qa.number, old);
        }
        a.done(&mut qa, &write(&a, 7, &b));
        assert_eq!(a.d.count_events(EventKind::QueueFault), 0);
    }
    works(&mut a, &mut b);
    world.finish()
}

#[test]
fn doorbell_rings() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    for bad in [5 << 60, 6 << 60, 7 << 60, 1 << 56, 1 << 59, 0xf << 56] {
        let mut bells = a.d.bells(16);
        let index = qa.sends().write(&write(&a, 1, &b));
        bells.ring(Kind::Send, qa.number, index);
        a.cq.good(1);
        bells.ring_bits(bad | u64::from(qa.number) << 32 | 0x3f);
        fault_of(&mut a, bells.handle, Q::Doorbells, R::Reserved, Some(1));
        // It is read no more; other rings are.
        let index = qa.sends().write(&write(&a, 2, &b));
        bells.ring(Kind::Send, qa.number, index);
        a.d.sync();
        assert!(a.cq.poll().is_none());
        a.bells.ring(Kind::Send, qa.number, index);
        a.cq.good(2);
        a.d.end(Opcode::DestroyDoorbells, bells.handle)
            .expect("DESTROY_DOORBELLS");
    }
    works(&mut a, &mut b);
    world.finish()
}

/// A side with a module of memory.
fn with_module(s: &mut Side) -> Result<()> {
    s.d.plug(MODULE, MODULE_LEN)
}

/// Memory of the module.
fn in_module(s: &Side, at: u64, len: u64) -> Area {
    let area = Area::new(
        &s.d.mem,
        vec![Extent {
            gpa: MODULE + at,
            len,
        }],
    );
    area.write(0, &vec![0; len as usize]);
    area
}

#[test]
fn regions_whose_memory_goes_away() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    with_module(&mut b)?;
    // One wholly there, one with a piece there, one that is not touched.
    let whole = in_module(&b, 0, 8192);
    let whole = b.d.mr_of(b.pd, whole, 0x5000, 7);
    let piece = [b.d.area(4096).extents, in_module(&b, 65536, 4096).extents].concat();
    let piece = Area::new(&b.d.mem, piece);
    let piece = b.d.mr_of(b.pd, piece, 0, 7);
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    let local = a.at(0, 8);
    let to = |id, at, key| Wr::new(id, Operation::Write, &[local]).remote(at, key);
    let wrs = [
        to(1, 0x5000, whole.rkey),
        to(2, 0, piece.rkey),
        to(3, 4096, piece.rkey),
    ];
    for wr in &wrs {
        a.done(&mut qa, wr);
    }
    b.d.unplug(MODULE)?;
    let mut lost = [
        b.d.event(EventKind::MrLost).object,
        b.d.event(EventKind::MrLost).object,
    ];
    lost.sort_unstable();
    let mut expected = [whole.handle, piece.handle];
    expected.sort_unstable();
    assert_eq!(lost, expected);
    assert_eq!(b.d.count_events(EventKind::MrLost), 0);
    for wr in &wrs {
        let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
        a.fails(&mut qa, wr, Status::RemoteAccessError);
        let (mut qb, _qa) = b.pair(&mut a, QpType::Rc);
        let own = Wr::new(4, Operation::Write, &[piece.element(0, 8)]).remote(a.mr.iova, a.mr.rkey);
        b.fails(&mut qb, &own, Status::LocalProtectionError);
    }
    // The memory comes back; the keys do not.
    with_module(&mut b)?;
    let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
    a.fails(&mut qa, &wrs[0], Status::RemoteAccessError);
    for mr in expected {
        b.d.end(Opcode::DeregisterMr, mr).expect("DEREGISTER_MR");
    }
    works(&mut a, &mut b);
    world.finish()
}

/// Taken away in the middle of messages, again and again.
#[test]
fn memory_goes_away_under_traffic() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    for round in 0..20 {
        with_module(&mut b)?;
        let area = in_module(&b, 0, MODULE_LEN);
        let mr = b.d.mr_of(b.pd, area, 0, 7);
        let (mut qa, _qb) = a.pair(&mut b, QpType::Rc);
        for id in 0..8 {
            let read = (id + round) % 2 == 0;
            let operation = if read { Operation::Read } else { Operation::Write };
            let wr = Wr::new(id, operation, &[a.at(0, 256 << 10)]).remote(0, mr.rkey);
            a.post(&mut qa, &wr);
        }
        if round % 3 > 0 {
            a.cq.wait();
        }
        b.d.unplug(MODULE)?;
        let mut ends = u64::from(round % 3 > 0);
        while ends < 8 {
            let e = a.cq.wait();
            assert_eq!(e.wr_id, ends);
            ends += 1;
        }
        assert_eq!(b.d.event(EventKind::MrLost).object, mr.handle);
        b.d.end(Opcode::DeregisterMr, mr.handle).expect("DEREGISTER_MR");
    }
    works(&mut a, &mut b);
    world.finish()
}

#[test]
fn rings_whose_memory_goes_away() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let m = |s: &Side, i: u64, len: u64| in_module(s, i * 65536, len);

    // A send ring, and a receive ring.
    for send in [true, false] {
        with_module(&mut b)?;
        let mut qb = ring_in_module(&mut b, send)?;
        let qa = a.qp(QpType::Rc);
        connect(&mut a.d, &qa, &mut b.d, &qb);
        if send {
            b.done(&mut qb, &write(&b, 1, &a));
        } else {
            b.receive(&mut qb, 1, &[]);
            b.bells.wait_taken();
        }
        b.d.unplug(MODULE)?;
        let queue = if send { Q::Send } else { Q::Receive };
        fault_of(&mut b, qb.number, queue, R::Memory, Some(1));
        assert_eq!(b.d.state(&qb), QpState::Err);
        if !send {
            // It had been read before.
            b.cq.expect(1, Status::FlushError);
        }
        let (kind, index) = if send { (Kind::Send, 3) } else { (Kind::Receive, 3) };
        b.bells.ring(kind, qb.number, index);
        b.bells.wait_taken();
        b.d.sync();
        assert!(b.cq.poll().is_none(), "the rest never completes");
        // A reset brings no memory.
        b.d.to(&qb, QpState::Reset);
        qb.begin_anew();
        let again = a.qp(QpType::Rc);
        connect(&mut b.d, &qb, &mut a.d, &again);
        b.bells.ring(kind, qb.number, index);
        b.bells.wait_taken();
        b.d.sync();
        assert!(b.cq.poll().is_none(), "nothing is read");
        b.d.set_mem_table()?;
        assert_eq!(b.d.count_events(EventKind::QueueFault), 0, "a fault is told once");
        b.d.end(Opcode::DestroyQp, qb.number).expect("DESTROY_QP");
        works(&mut a, &mut b);
    }

    // A completion queue: as one that overran.
    with_module(&mut b)?;
    let area = m(&b, 0, ring::completion_ring_len(16));
    let cq = b.d.cq_in(16, area);
    let spec = QpSpec {
        send_cq: cq.handle,
        ..b.spec(QpType::Rc)
    };
    let mut qb = b.d.qp(&spec);
    let qa = a.qp(QpType::Rc);
    connect(&mut a.d, &qa, &mut b.d, &qb);
    b.post(&mut qb, &write(&b, 1, &a).silent());
    b.bells.wait_taken();
    b.d.sync();
    b.d.unplug(MODULE)?;
    fault_of(&mut b, cq.handle, Q::Completion, R::Memory, Some(0));
    assert_eq!(b.d.event(EventKind::QpFatal).object, qb.number);
    assert_eq!(b.d.state(&qb), QpState::Err);
    assert_eq!(b.d.count_events(EventKind::CqError), 0);
    b.d.end(Opcode::DestroyQp, qb.number).expect("DESTROY_QP");
    b.d.end(Opcode::DestroyCq, cq.handle).expect("DESTROY_CQ");
    works(&mut a, &mut b);

    // A shared receive queue: its QPs find it empty.
    with_module(&mut b)?;
    let area = m(&b, 0, ring::shared_receive_ring_len(16, 32));
    let (mut qa, qb, srq) = shared_in_module(&mut a, &mut b, area)?;
    a.done(&mut qa, &Wr::send(1, &[]));
    b.cq.good(1);
    b.d.unplug(MODULE)?;
    fault_of(&mut b, srq, Q::SharedReceive, R::Memory, Some(2));
    b.bells.ring(Kind::SharedReceive, srq, 5);
    a.fails(&mut qa, &Wr::send(2, &[]), Status::RnrRetryExceeded);
    b.d.end(Opcode::DestroyQp, qb.number).expect("DESTROY_QP");
    b.d.end(Opcode::DestroySrq, srq).expect("DESTROY_SRQ");
    works(&mut a, &mut b);

    // A doorbell ring.
    with_module(&mut b)?;
    let area = m(&b, 0, ring::doorbell_ring_len(16));
    let mut bells = b.d.bells_in(16, area);
    let (mut qb, _qa) = b.pair(&mut a, QpType::Rc);
    let index = qb.sends().write(&write(&b, 1, &a));
    bells.ring(Kind::Send, qb.number, index);
    b.cq.good(1);
    b.d.unplug(MODULE)?;
    fault_of(&mut b, bells.handle, Q::Doorbells, R::Memory, Some(1));
    b.d.set_mem_table()?;
    assert_eq!(b.d.count_events(EventKind::QueueFault), 0, "a fault is told once");
    b.d.end(Opcode::DestroyDoorbells, bells.handle)
        .expect("DESTROY_DOORBELLS");
    b.done(&mut qb, &write(&b, 2, &a));
    works(&mut a, &mut b);
    assert!(b.d.resources().iter().all(|r| r.0 != "doorbells" || r.1 == 1));
    world.finish()
}

/// Shared receive queues for XRC fail with the queue they complete in, whether it overran or its memory is gone.
#[test]
fn shared_receive_queues_whose_completion_queue_fails() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    for overrun in [true, false] {
        with_module(&mut b)?;
        let xrcd = b.d.xrcd();
        let area = in_module(&b, 0, ring::completion_ring_len(2));
        let cq = b.d.cq_in(2, area);
        let mut srq = b.d.srq(b.pd, 16, 1, Some((xrcd, cq.handle)));
        let mut sender = a.qp(QpType::XrcInitiator);
        let spec = QpSpec {
            xrcd,
            ..b.spec(QpType::XrcTarget)
        };
        let target = b.d.qp(&spec);
        let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
        a.d.up(
            &sender,
            &Link {
                rnr_retry: 1,
                ..link(to_b, target.number)
            },
        );
        b.d.up(&target, &link(to_a, sender.number));
        for i in 0..10 {
            srq.receive(&mut b.bells, i, &[]);
        }
        b.bells.wait_taken();
        if overrun {
            for i in 0..8 {
                a.post(&mut sender, &Wr::send(i, &[]).to_srq(srq.handle));
            }
            assert_eq!(b.d.event(EventKind::CqError).object, cq.handle);
            for i in 0..8 {
                assert_eq!(a.cq.wait().wr_id, i);
            }
        } else {
            b.d.unplug(MODULE)?;
            fault_of(&mut b, cq.handle, Q::Completion, R::Memory, Some(0));
            a.post(&mut sender, &Wr::send(1, &[]).to_srq(srq.handle));
            let e = a.cq.wait();
            assert!(e.wr_id == 1 && e.status() != Status::Success, "{e:?}");
        }
        assert_eq!(b.d.event(EventKind::SrqError).object, srq.handle);
        b.d.end(Opcode::DestroyQp, target.number).expect("DESTROY_QP");
        b.d.end(Opcode::DestroySrq, srq.handle).expect("DESTROY_SRQ");
        b.d.end(Opcode::DestroyCq, cq.handle).expect("DESTROY_CQ");
        if overrun {
            b.d.unplug(MODULE)?;
        }
        b.d.count_events(EventKind::QueueFault);
        works(&mut a, &mut b);
    }
    world.finish()
}

/// A QP with a shared receive queue in that memory; two receives are posted.
fn shared_in_module(a: &mut Side, b: &mut Side, area: Area) -> Result<(Qp, Qp, u32)> {
    use vnic_device::command::NONE;
    use vnic_device::command::queues::CreateSrq;
    use vnic_tests::driver::rdma::{ReceiveRing, Srq, extents, list_of};
    let body = CreateSrq {
        pd: b.pd,
        entries: 16,
        elements: 1,
        xrcd: NONE,
        cq: NONE,
        reserved: 0,
        ring: extents(&area),
    };
    let made: Object = b.d.ask(Opcode::CreateSrq, &body, &list_of(&area.extents))?;
    let ring = ReceiveRing {
        area,
        entries: 16,
        stride: 32,
        producer: 0,
        consumer: 0,
    };
    let mut srq = Srq {
        handle: made.handle,
        ring,
    };
    let spec = b.spec(QpType::Rc).shared(&srq);
    let (qa, qb) = (a.qp(QpType::Rc), b.d.qp(&spec));
    let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
    a.d.up(
        &qa,
        &Link {
            rnr_retry: 1,
            ..link(to_b, qb.number)
        },
    );
    b.d.up(&qb, &link(to_a, qa.number));
    for id in 1..3 {
        srq.receive(&mut b.bells, id, &[]);
    }
    b.bells.wait_taken();
    b.d.sync();
    Ok((qa, qb, srq.handle))
}

/// The memory of the virtqueues themselves: the driver is deaf and dumb, and nobody else notices.
#[test]
fn virtqueues_whose_memory_goes_away() -> Result<()> {
    let world = World::new(1, &["a", "b", "c"])?;
    let (mut a, mut c) = (world.side("a")?, world.side("c")?);
    for _ in 0..5 {
        let mut b = world.side("b")?;
        let (mut qb, _qa) = b.pair(&mut a, QpType::Rc);
        b.cq.arm(&mut b.bells, false);
        b.bells.wait_taken();
        b.d.unplug(vnic_tests::driver::rdma::RINGS_AT)?;
        b.d.control.kick();
        // Its rings work still.
        b.done(&mut qb, &write(&b, 1, &a));
        works(&mut a, &mut c);
        b.d.hang_up();
    }
    let mut b = world.side("b")?;
    works(&mut a, &mut b);
    world.finish()
}

/// A QP with one of its rings in the module, the other in memory that stays.
fn ring_in_module(s: &mut Side, send: bool) -> Result<Qp> {
    use vnic_device::command::NONE;
    use vnic_device::command::qp::CreateQp;
    use vnic_device::ring::ExtentList;
    use vnic_tests::driver::rdma::{ReceiveRing, SendRing, list_of};
    let (here, there) = (s.d.area(4096), in_module(s, 0, 4096));
    let (send_area, receive_area) = if send { (there, here) } else { (here, there) };
    let one = ExtentList { count: 1, chunks: 0 };
    let body = CreateQp {
        qp_type: QpType::Rc.number(),
        flags: 0,
        pd: s.pd,
        send_cq: s.cq.handle,
        recv_cq: s.cq.handle,
        srq: NONE,
        xrcd: NONE,
        send_blocks: 64,
        send_elements: 2,
        max_inline: 32,
        receive_entries: 64,
        receive_elements: 3,
        send_ring: one,
        receive_ring: one,
        access_key: 0,
    };
    let list = [list_of(&send_area.extents), list_of(&receive_area.extents)].concat();
    let made: Object = s.d.ask(Opcode::CreateQp, &body, &list)?;
    Ok(Qp {
        number: made.handle,
        qp_type: QpType::Rc,
        send: Some(SendRing {
            area: send_area,
            blocks: 64,
            producer: 0,
            consumer: 0,
        }),
        receive: Some(ReceiveRing {
            area: receive_area,
            entries: 64,
            stride: 64,
            producer: 0,
            consumer: 0,
        }),
    })
}

#[test]
fn memory_shared_anew_elsewhere_changes_nothing() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let mut srq = b.d.srq(b.pd, 16, 1, None);
    let spec = b.spec(QpType::Rc).shared(&srq);
    let (mut qa2, qb2) = (a.qp(QpType::Rc), b.d.qp(&spec));
    connect(&mut a.d, &qa2, &mut b.d, &qb2);
    for round in 0..30u64 {
        let bytes = fill(round, 60_000);
        a.mr.area.write(0, &bytes);
        b.receive(&mut qb, round, &[b.at(0, 60_000)]);
        a.post(&mut qa, &Wr::send(round, &[a.at(0, 60_000)]));
        if round.is_multiple_of(3) {
            b.d.set_mem_table()?;
        }
        a.cq.arm(&mut a.bells, false);
        if round % 3 == 1 {
            a.d.set_mem_table()?;
        }
        let e = a.cq.good(round);
        qa.sends().consumer = e.consumed;
        a.d.event(EventKind::Completion);
        b.cq.good(round);
        assert_eq!(b.mr.area.bytes(0, 60_000), bytes);
        srq.receive(&mut b.bells, 1000 + round, &[]);
        if round % 3 == 2 {
            b.d.set_mem_table()?;
        }
        a.done(&mut qa2, &Wr::send(round, &[]));
        b.cq.good(1000 + round);
        a.d.sync();
    }
    let lost = [EventKind::MrLost, EventKind::QueueFault];
    assert!(
        lost.iter()
            .all(|k| a.d.count_events(*k) == 0 && b.d.count_events(*k) == 0)
    );
    world.finish()
}
