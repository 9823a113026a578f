//! The data path of the RDMA function, driven by a driver that is written out by hand: `proto/device/SPEC.md`, sections
//! 6 to 9.

use anyhow::Result;
use vnic_backend::{DropReason, NicEventKind, VlanMode};
use vnic_device::command::Opcode;
use vnic_device::command::device::GidRecord;
use vnic_device::command::memory::{AllocMw, MwReply};
use vnic_device::command::qp::{AddressVector, Multicast};
use vnic_device::command::queues::ModifySrq;
use vnic_device::event::EventKind;
use vnic_device::queue::{
    Bind, CompletionKind, Element, NetworkHeader, Operation, completion_flags as c, send_flags,
};
use vnic_device::verbs::{CompletionStatus as Status, QpState, QpType, access, srq_mask};
use vnic_tests::driver::rdma::{Driver, Link, QpSpec, Side, World, Wr, connect, fill, link};

/// Two adapters on one core, and on two; and one that talks to itself.
fn arrangements() -> [(&'static str, usize, [&'static str; 2]); 3] {
    [
        ("neighbours", 1, ["a", "b"]),
        ("two cores", 2, ["a", "b"]),
        ("two functions", 1, ["b", "a"]),
    ]
}

#[test]
fn reliable_connections_have_every_operation() -> Result<()> {
    for (what, cores, names) in arrangements() {
        println!("{what}");
        let world = World::new(cores, &["a", "b"])?;
        let (mut a, mut b) = (world.side(names[0])?, world.side(names[1])?);
        every_operation(&mut a, &mut b)?;
        world.finish()?;
    }
    Ok(())
}

fn every_operation(a: &mut Side, b: &mut Side) -> Result<()> {
    let (mut qa, mut qb) = a.pair(b, QpType::Rc);
    let bytes = fill(1, 5000);
    a.mr.area.write(0, &bytes);

    // SEND of three elements into two.
    b.receive(&mut qb, 100, &[b.at(0, 3000), b.at(8192, 4000)]);
    let elements = [a.at(0, 1000), a.at(1000, 3000), a.at(4000, 1000)];
    let e = a.done(&mut qa, &Wr::send(1, &elements));
    assert_eq!(
        (e.kind, e.qp, e.flags),
        (CompletionKind::Send.number(), qa.number, 0)
    );
    assert_eq!(e.consumed, 2, "a SEND of three elements takes two blocks");
    let e = b.cq.good(100);
    assert_eq!(
        (e.kind, e.qp, e.byte_len),
        (CompletionKind::Recv.number(), qb.number, 5000)
    );
    assert_eq!((e.consumed, e.flags, e.source_qp), (1, 0, 0));
    assert_eq!(b.mr.area.bytes(0, 3000), bytes[..3000]);
    assert_eq!(b.mr.area.bytes(8192, 2000), bytes[3000..]);

    // SEND_IMM, inline.
    b.receive(&mut qb, 101, &[b.at(0, 64)]);
    let wr = Wr::new(2, Operation::SendImm, &[])
        .inline(b"hello")
        .imm(0x0a0b_0c0d);
    a.done(&mut qa, &wr);
    let e = b.cq.good(101);
    assert_eq!(
        (e.byte_len, e.flags, e.imm, e.consumed),
        (5, c::IMM, 0x0a0b_0c0d, 2)
    );
    assert_eq!(b.mr.area.bytes(0, 5), b"hello");

    // WRITE, no completion at the peer.
    let wr = Wr::new(3, Operation::Write, &[a.at(0, 5000)]).remote(b.mr.iova + 16384, b.mr.rkey);
    let e = a.done(&mut qa, &wr);
    assert_eq!(e.kind, CompletionKind::Write.number());
    assert_eq!(b.mr.area.bytes(16384, 5000), bytes);
    // WRITE, inline over several blocks.
    let wr = Wr::new(4, Operation::Write, &[])
        .inline(&bytes[..128])
        .remote(b.mr.iova, b.mr.rkey);
    let before = qa.sends().producer;
    let e = a.done(&mut qa, &wr);
    assert_eq!(e.consumed - before, 3);
    assert_eq!(b.mr.area.bytes(0, 128), bytes[..128]);
    // WRITE_IMM takes a receive.
    b.receive(&mut qb, 102, &[]);
    let wr = Wr::new(5, Operation::WriteImm, &[a.at(0, 100)])
        .remote(b.mr.iova + 512, b.mr.rkey)
        .imm(77);
    let e = a.done(&mut qa, &wr);
    assert_eq!(e.kind, CompletionKind::Write.number());
    let e = b.cq.good(102);
    assert_eq!((e.kind, e.byte_len), (CompletionKind::RecvWriteImm.number(), 100));
    assert_eq!((e.flags, e.imm, e.consumed), (c::IMM, 77, 3));
    assert_eq!(b.mr.area.bytes(512, 100), bytes[..100]);

    // READ into two elements.
    let there = fill(2, 6000);
    b.mr.area.write(32768, &there);
    let wr = Wr::new(6, Operation::Read, &[a.at(40000, 1), a.at(50000, 5999)])
        .remote(b.mr.iova + 32768, b.mr.rkey);
    let e = a.done(&mut qa, &wr);
    assert_eq!((e.kind, e.byte_len), (CompletionKind::Read.number(), 6000));
    assert_eq!(a.mr.area.bytes(40000, 1), there[..1]);
    assert_eq!(a.mr.area.bytes(50000, 5999), there[1..]);

    // Atomics.
    b.mr.area.put(65536, &0x1111_u64);
    let atomic = |id, op, x, y| {
        Wr::new(id, op, &[a.mr.element(1024, 8)])
            .remote(b.mr.iova + 65536, b.mr.rkey)
            .operands(x, y)
    };
    let add = atomic(7, Operation::FetchAdd, 5, 0);
    let swap = atomic(8, Operation::CompareSwap, 0x1116, 0x2222);
    let not = atomic(9, Operation::CompareSwap, 0x1116, 0x3333);
    let rows = [
        (add, CompletionKind::FetchAdd, 0x1111, 0x1116),
        (swap, CompletionKind::CompareSwap, 0x1116, 0x2222),
        (not, CompletionKind::CompareSwap, 0x2222, 0x2222),
    ];
    for (wr, kind, old, new) in rows {
        let e = a.done(&mut qa, &wr);
        assert_eq!((e.kind, e.byte_len), (kind.number(), 8));
        assert_eq!(a.mr.area.get::<u64>(1024), old);
        assert_eq!(b.mr.area.get::<u64>(65536), new);
    }

    // SEND_INVALIDATE takes a key of the peer back.
    let area = b.d.area(4096);
    let victim = b.d.mr_of(b.pd, area, 0, 1 | 2 | 1 << 31);
    b.receive(&mut qb, 103, &[b.at(0, 64)]);
    let wr = Wr::new(10, Operation::SendInvalidate, &[a.at(0, 9)]).imm(victim.rkey);
    a.done(&mut qa, &wr);
    let e = b.cq.good(103);
    assert_eq!((e.flags, e.imm, e.byte_len), (c::INVALIDATED, victim.rkey, 9));

    // A message of nothing, and a fence behind a READ.
    b.receive(&mut qb, 104, &[]);
    a.done(&mut qa, &Wr::send(11, &[]).flags(send_flags::FENCE));
    assert_eq!(b.cq.good(104).byte_len, 0);
    assert!(a.cq.poll().is_none() && b.cq.poll().is_none());
    Ok(())
}

#[test]
fn an_adapter_talks_to_itself() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let mut s = world.side("a")?;
    let own = s.d.own_address();
    let (mut one, mut two) = (s.qp(QpType::Rc), s.qp(QpType::Rc));
    s.d.up(&one, &link(own, two.number));
    s.d.up(&two, &link(own, one.number));
    let bytes = fill(3, 10_000);
    s.mr.area.write(0, &bytes);
    s.receive(&mut two, 1, &[s.at(65536, 10_000)]);
    s.post(&mut one, &Wr::send(2, &[s.at(0, 10_000)]));
    let mut ends = [s.cq.wait(), s.cq.wait()];
    ends.sort_by_key(|e| e.wr_id);
    assert!(ends.iter().all(|e| e.status() == Status::Success), "{ends:?}");
    assert_eq!((ends[0].qp, ends[1].qp), (two.number, one.number));
    assert_eq!(s.mr.area.bytes(65536, 10_000), bytes);
    // And a QP with itself.
    let mut alone = s.qp(QpType::Rc);
    s.d.up(&alone, &link(own, alone.number));
    let wr = Wr::new(3, Operation::Write, &[s.at(0, 5000)]).remote(s.mr.iova + 100_000, s.mr.rkey);
    s.done(&mut alone, &wr);
    assert_eq!(s.mr.area.bytes(100_000, 5000), bytes[..5000]);
    world.finish()
}

#[test]
fn unreliable_connections() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Uc);
    let bytes = fill(4, 4000);
    a.mr.area.write(0, &bytes);
    b.receive(&mut qb, 1, &[b.at(0, 4000)]);
    b.receive(&mut qb, 2, &[b.at(4096, 100)]);
    b.receive(&mut qb, 3, &[]);
    b.bells.wait_taken();
    a.done(&mut qa, &Wr::send(11, &[a.at(0, 4000)]));
    a.done(
        &mut qa,
        &Wr::new(12, Operation::SendImm, &[]).inline(b"uc").imm(5),
    );
    let to = b.mr.iova + 8192;
    a.done(
        &mut qa,
        &Wr::new(13, Operation::Write, &[a.at(0, 4000)]).remote(to, b.mr.rkey),
    );
    let wr = Wr::new(14, Operation::WriteImm, &[a.at(0, 10)])
        .remote(to + 8192, b.mr.rkey)
        .imm(6);
    a.done(&mut qa, &wr);
    assert_eq!(b.cq.good(1).byte_len, 4000);
    assert_eq!(b.cq.good(2).imm, 5);
    let e = b.cq.good(3);
    assert_eq!(
        (e.kind, e.imm, e.byte_len),
        (CompletionKind::RecvWriteImm.number(), 6, 10)
    );
    assert_eq!(b.mr.area.bytes(0, 4000), bytes);
    assert_eq!(b.mr.area.bytes(8192, 4000), bytes);
    // Nobody is told when there is no receive.
    a.done(&mut qa, &Wr::send(15, &[a.at(0, 4)]));
    assert!(b.cq.poll().is_none());
    world.finish()
}

#[test]
fn datagrams() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    // A GID in a VLAN, the same for both but for its last byte.
    for (s, last) in [(&mut a, 1), (&mut b, 2)] {
        let mut record = GidRecord {
            index: 9,
            kind: 2,
            vlan: 5,
            ..GidRecord::default()
        };
        record.gid[..2].copy_from_slice(&[0xfd, 0]);
        record.gid[15] = last;
        s.d.ask::<_, [u8; 0]>(Opcode::SetGid, &record, &[])
            .expect("SET_GID");
    }
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Ud);
    let to_b = a.d.address_of(&mut b.d);
    let ah = a.d.ah(a.pd, to_b);
    let mac_a = a.d.gid().mac;
    b.receive(&mut qb, 1, &[b.at(0, 20), b.at(1000, 1044)]);
    b.bells.wait_taken();
    let bytes = fill(5, 1024);
    a.mr.area.write(0, &bytes);
    let e = a.done(&mut qa, &Wr::send(7, &[a.at(0, 1024)]).to(ah, qb.number));
    assert_eq!(e.kind, CompletionKind::Send.number());
    let e = b.cq.good(1);
    assert_eq!((e.byte_len, e.flags, e.source_qp), (1064, c::GRH, qa.number));
    assert_eq!(
        (e.source_mac, e.vlan, e.pkey_index, e.service_level, e.network),
        (mac_a, 0, 0, 0, NetworkHeader::Ipv6.number())
    );
    // The first 40 bytes are the GRH's.
    assert_eq!(b.mr.area.bytes(1020, 1024), bytes);

    // In the VLAN, with a service level, immediate data and the QP's own queue key.
    let dgid = b.d.gids().into_iter().find(|g| g.index == 9).expect("it was set");
    let tagged = AddressVector {
        sgid_index: 9,
        service_level: 13,
        ..a.d.address_to(&dgid)
    };
    let tagged = AddressVector {
        sgid_index: 9,
        ..tagged
    };
    let ah_vlan = a.d.ah(a.pd, tagged);
    b.receive(&mut qb, 2, &[b.at(0, 2000)]);
    b.bells.wait_taken();
    let mut wr = Wr::new(8, Operation::SendImm, &[])
        .inline(b"vlan")
        .imm(0xabcd)
        .to(ah_vlan, qb.number);
    wr.head.rkey = 0x8000_0000;
    a.done(&mut qa, &wr);
    let e = b.cq.good(2);
    assert_eq!(
        (e.byte_len, e.flags, e.imm),
        (44, c::GRH | c::IMM | c::VLAN, 0xabcd)
    );
    assert_eq!((e.vlan, e.service_level), (5, 13));
    assert_eq!(b.mr.area.bytes(40, 4), b"vlan");

    // Another queue key, an unknown QP and a receive too small are no matter of the sender's; the last is the receiver's.
    b.receive(&mut qb, 3, &[b.at(0, 2000)]);
    b.bells.wait_taken();
    let mut other = Wr::send(9, &[a.at(0, 4)]).to(ah, qb.number);
    other.head.rkey = 0x2222;
    a.done(&mut qa, &other);
    a.done(&mut qa, &Wr::send(10, &[a.at(0, 4)]).to(ah, 0xab_cdef));
    b.d.sync();
    assert!(b.cq.poll().is_none());
    a.done(&mut qa, &Wr::send(11, &[a.at(0, 4)]).to(ah, qb.number));
    assert_eq!(b.cq.good(3).byte_len, 44);

    // What is not in the MTU, and address handles that there are not: the send queue stops, the QP is in SQE.
    let rows = [
        (
            Wr::send(12, &[a.at(0, 1025)]).to(ah, qb.number),
            Status::LocalLengthError,
        ),
        (
            Wr::send(13, &[a.at(0, 4)]).to(0xff_0000, qb.number),
            Status::LocalQpOperationError,
        ),
    ];
    for (wr, status) in rows {
        a.fails(&mut qa, &wr, status);
        assert_eq!(a.d.state(&qa), QpState::Sqe);
        a.fails(&mut qa, &Wr::send(14, &[]).to(ah, qb.number), Status::FlushError);
        a.d.to(&qa, QpState::Rts);
    }
    // An address handle of another domain.
    let other = a.d.pd();
    let foreign = a.d.ah(other, to_b);
    a.fails(
        &mut qa,
        &Wr::send(15, &[]).to(foreign, qb.number),
        Status::LocalQpOperationError,
    );
    world.finish()
}

#[test]
fn what_was_posted_leaves_before_its_queue_pair_goes() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let own = b.d.own_address();
    let mut qb = b.qp(QpType::Ud);
    b.d.up(&qb, &link(own, 0));
    let address = a.d.address_of(&mut b.d);
    let ah = a.d.ah(a.pd, address);
    for round in 0..100 {
        b.receive(&mut qb, round, &[b.at(0, 100)]);
        b.bells.wait_taken();
        let mut qa = a.qp(QpType::Ud);
        let own = a.d.own_address();
        a.d.up(&qa, &link(own, 0));
        // As a program does that ends: nobody waits for the completion.
        a.post(
            &mut qa,
            &Wr::new(1, Operation::Send, &[]).inline(b"last").to(ah, qb.number),
        );
        a.d.end(Opcode::DestroyQp, qa.number)?;
        assert_eq!(b.cq.good(round).byte_len, 44);
        while a.cq.poll().is_some() {}
        a.d.release(a.mr.area.extents[0].gpa + (512 << 10));
    }
    world.finish()
}

#[test]
fn groups() -> Result<()> {
    let world = World::new(1, &["a", "b", "c"])?;
    let mut sides = [world.side("a")?, world.side("b")?, world.side("c")?];
    let group = *b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\x07";
    let mut qps = Vec::new();
    for (i, s) in sides.iter_mut().enumerate() {
        let mut qp = s.qp(QpType::Ud);
        let own = s.d.own_address();
        s.d.up(&qp, &link(own, 0));
        if i > 0 {
            let body = Multicast {
                qp: qp.number,
                reserved: 0,
                gid: group,
            };
            s.d.ask::<_, [u8; 0]>(Opcode::AttachMulticast, &body, &[])
                .expect("ATTACH");
        }
        s.receive(&mut qp, i as u64, &[s.at(0, 100)]);
        s.bells.wait_taken();
        qps.push(qp);
    }
    let a = &mut sides[0];
    let to = AddressVector {
        dgid: group,
        dmac: [0; 6],
        ..a.d.own_address()
    };
    let ah = a.d.ah(a.pd, to);
    a.done(&mut qps[0], &Wr::send(9, &[]).inline(b"to all").to(ah, 0xff_ffff));
    for (i, s) in sides.iter_mut().enumerate().skip(1) {
        assert_eq!(s.cq.good(i as u64).byte_len, 46);
        assert_eq!(s.mr.area.bytes(40, 6), b"to all");
    }
    assert!(sides[0].cq.poll().is_none());
    world.finish()
}

#[test]
fn extended_reliable_connections() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let xrcd = b.d.xrcd();
    let mut cqs = [b.d.cq(16), b.d.cq(16)];
    let mut srqs: Vec<_> = cqs
        .iter()
        .map(|cq| b.d.srq(b.pd, 16, 2, Some((xrcd, cq.handle))))
        .collect();
    let mut sender = a.qp(QpType::XrcInitiator);
    let spec = QpSpec {
        xrcd,
        ..b.spec(QpType::XrcTarget)
    };
    let target = b.d.qp(&spec);
    connect(&mut a.d, &sender, &mut b.d, &target);
    let bytes = fill(6, 3000);
    a.mr.area.write(0, &bytes);
    for (i, srq) in srqs.iter_mut().enumerate() {
        srq.receive(
            &mut b.bells,
            100 + i as u64,
            &[b.mr.element(8192 * i as u64, 3000)],
        );
    }
    for (i, srq) in srqs.iter().enumerate() {
        a.done(
            &mut sender,
            &Wr::send(i as u64, &[a.at(0, 3000)]).to_srq(srq.handle),
        );
        let e = cqs[i].good(100 + i as u64);
        assert_eq!((e.qp, e.byte_len, e.consumed), (target.number, 3000, 0));
        assert_eq!(b.mr.area.bytes(8192 * i as u64, 3000), bytes);
    }
    let to = b.mr.iova + 100_000;
    a.done(
        &mut sender,
        &Wr::new(5, Operation::Write, &[a.at(0, 3000)])
            .remote(to, b.mr.rkey)
            .to_srq(srqs[0].handle),
    );
    let wr = Wr::new(6, Operation::Read, &[a.at(50_000, 3000)])
        .remote(to, b.mr.rkey)
        .to_srq(srqs[0].handle);
    a.done(&mut sender, &wr);
    assert_eq!(a.mr.area.bytes(50_000, 3000), bytes);
    let wr = Wr::new(7, Operation::FetchAdd, &[a.at(0, 8)])
        .remote(to, b.mr.rkey)
        .to_srq(srqs[0].handle)
        .operands(1, 0);
    a.done(&mut sender, &wr);
    assert!(b.cq.poll().is_none() && cqs.iter_mut().all(|cq| cq.poll().is_none()));
    world.finish()
}

#[test]
fn shared_receive_queues() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let mut srq = b.d.srq(b.pd, 16, 2, None);
    let mut pairs = Vec::new();
    for _ in 0..2 {
        let qa = a.qp(QpType::Rc);
        let spec = b.spec(QpType::Rc).shared(&srq);
        let qb = b.d.qp(&spec);
        connect(&mut a.d, &qa, &mut b.d, &qb);
        pairs.push((qa, qb));
    }
    let mut wr_id = 0;
    // Several laps of the ring, taken by both QPs in the order of the ring.
    for round in 0..10u64 {
        for _ in 0..7 {
            srq.receive(&mut b.bells, wr_id, &[b.mr.element(256 * (wr_id % 64), 256)]);
            wr_id += 1;
        }
        b.bells.wait_taken();
        for i in 0..7 {
            let id = wr_id - 7 + i;
            let (qa, qb) = &mut pairs[((i + round) % 2) as usize];
            let bytes = fill(id, 200);
            a.mr.area.write(0, &bytes);
            a.done(qa, &Wr::send(id, &[a.mr.element(0, 200)]));
            let e = b.cq.good(id);
            assert_eq!((e.qp, e.consumed, e.byte_len), (qb.number, 0, 200));
            assert_eq!(b.mr.area.bytes(256 * (id % 64), 200), bytes);
        }
    }
    assert_eq!(srq.taken(), 70);
    // The limit, once.
    for i in 0..4 {
        srq.receive(&mut b.bells, 1000 + i, &[]);
    }
    let body = ModifySrq {
        srq: srq.handle,
        mask: srq_mask::LIMIT,
        limit: 3,
        max_wr: 0,
    };
    b.d.ask::<_, [u8; 0]>(Opcode::ModifySrq, &body, &[])
        .expect("MODIFY_SRQ");
    let (qa, qb) = &mut pairs[0];
    a.done(qa, &Wr::send(1, &[]));
    b.cq.good(1000);
    assert_eq!(b.d.count_events(EventKind::SrqLimitReached), 0, "three are left");
    a.done(qa, &Wr::send(2, &[]));
    assert_eq!(b.d.event(EventKind::SrqLimitReached).object, srq.handle);
    a.done(qa, &Wr::send(3, &[]));
    assert_eq!(b.d.count_events(EventKind::SrqLimitReached), 0, "it is told once");
    // A QP in error takes no more from it, and says so.
    b.d.to(qb, QpState::Err);
    assert_eq!(b.d.event(EventKind::LastWqeReached).object, qb.number);
    let (qa, qb) = &mut pairs[1];
    a.done(qa, &Wr::send(4, &[]));
    assert_eq!([b.cq.good(1001).kind, b.cq.good(1002).kind], [128; 2]);
    assert_eq!(b.cq.good(1003).qp, qb.number);
    world.finish()
}

#[test]
fn errors_have_their_status() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let area = b.d.area(4096);
    let read_only = b.d.mr_of(b.pd, area, 0, access::REMOTE_READ);
    let (iova, rkey) = (b.mr.iova, b.mr.rkey);
    let end = iova + (256 << 10);
    let local = a.at(0, 100);
    let bad_key = Element {
        lkey: a.mr.lkey ^ 0xffff_0000,
        ..local
    };
    let beyond = a.at((256 << 10) - 50, 100);
    let write = |id, e: &[Element], at, key| Wr::new(id, Operation::Write, e).remote(at, key);
    let read = |e: &[Element], at, key| Wr::new(1, Operation::Read, e).remote(at, key);
    let atomic = |at, key| {
        Wr::new(1, Operation::FetchAdd, &[local.len_8()])
            .remote(at, key)
            .operands(1, 0)
    };
    let rows = [
        (
            "unknown key",
            write(1, &[local], iova, 0xffff_0000),
            Status::RemoteAccessError,
        ),
        (
            "no right to write",
            write(1, &[local], 0, read_only.rkey),
            Status::RemoteAccessError,
        ),
        (
            "beyond the end",
            write(1, &[local], end - 99, rkey),
            Status::RemoteAccessError,
        ),
        (
            "before the begin",
            write(1, &[local], iova - 1, rkey),
            Status::RemoteAccessError,
        ),
        (
            "READ beyond",
            read(&[local], end - 99, rkey),
            Status::RemoteAccessError,
        ),
        (
            "atomic without the right",
            atomic(0, read_only.rkey),
            Status::RemoteAccessError,
        ),
        (
            "atomic of no 8 bytes",
            atomic(iova + 4, rkey),
            Status::RemoteInvalidRequestError,
        ),
        (
            "own key",
            write(1, &[bad_key], iova, rkey),
            Status::LocalProtectionError,
        ),
        (
            "own region",
            write(1, &[beyond], iova, rkey),
            Status::LocalProtectionError,
        ),
        (
            "READ into an own key",
            read(&[bad_key], iova, rkey),
            Status::LocalProtectionError,
        ),
        (
            "nothing to invalidate",
            Wr::invalidate(1, 0xffff_0000),
            Status::MwBindError,
        ),
    ];
    for (what, wr, status) in rows {
        let (mut qa, qb) = a.pair(&mut b, QpType::Rc);
        a.post(&mut qa, &wr);
        let e = a.cq.wait();
        // (Some say that a misaligned atomic is an access error: IBTA 9.7.5.2.4 has it so.)
        let also = what.contains("8 bytes") && e.status() == Status::RemoteAccessError;
        assert!(e.wr_id == 1 && (e.status() == status || also), "{what}: {e:?}");
        assert_eq!(e.kind & 0x80, 0);
        assert_eq!(a.d.state(&qa), QpState::Err, "{what}");
        a.fails(&mut qa, &write(2, &[local], iova, rkey), Status::FlushError);
        // The syndrome that ConnectX cards give.
        let remote = e.status() == Status::RemoteAccessError;
        assert_eq!(e.vendor_error, if remote { 0x88 } else { 0 }, "{what}");
        if remote {
            assert_eq!(b.d.event(EventKind::QpAccessError).object, qb.number, "{what}");
            assert_eq!(b.d.state(&qb), QpState::Err, "{what}");
        }
        b.d.count_events(EventKind::QpRequestError);
    }
    // A receive that is too small, or not writable.
    for (element, here, there) in [
        (
            b.at(0, 99),
            Status::RemoteInvalidRequestError,
            Status::LocalLengthError,
        ),
        (
            read_only.element(0, 100),
            Status::RemoteOperationError,
            Status::LocalProtectionError,
        ),
    ] {
        let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
        b.receive(&mut qb, 7, &[element]);
        b.receive(&mut qb, 8, &[element]);
        a.fails(&mut qa, &Wr::send(1, &[local]), here);
        let e = b.cq.expect(7, there);
        assert_eq!((e.kind & 0x80, e.consumed), (0x80, 1));
        assert_eq!(b.cq.expect(8, Status::FlushError).consumed, 2);
    }
    // No receive, and nobody there.
    let (mut qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    let (to_b, to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
    a.d.up(
        &qa,
        &Link {
            rnr_retry: 1,
            ..link(to_b, qb.number)
        },
    );
    b.d.up(&qb, &link(to_a, qa.number));
    a.fails(&mut qa, &Wr::send(1, &[local]), Status::RnrRetryExceeded);
    let mut qa = a.qp(QpType::Rc);
    a.d.up(
        &qa,
        &Link {
            retry: 1,
            timeout: 8,
            ..link(to_b, 0xab_cdef)
        },
    );
    a.post(&mut qa, &write(1, &[local], iova, rkey));
    a.post(&mut qa, &write(2, &[local], iova, rkey));
    a.cq.expect(1, Status::RetryExceeded);
    a.cq.expect(2, Status::FlushError);
    world.finish()
}

#[test]
fn requests_that_are_given_up_are_an_event_with_what_was_dropped() -> Result<()> {
    let mut world = World::new(1, &[])?;
    for (name, vlan) in [("a", 10), ("b", 20)] {
        world.add_with(name, |spec| spec.vlan = VlanMode::Access(vlan))?;
    }
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, qb) = (a.qp(QpType::Rc), b.qp(QpType::Rc));
    // It is in another VLAN: the switch has no port for what `a` sends.
    let to_b = a.d.address_of(&mut b.d);
    let up = Link {
        retry: 1,
        timeout: 8,
        ..link(to_b, qb.number)
    };
    a.d.up(&qa, &up);
    let local = a.at(0, 64);
    a.fails(&mut qa, &Wr::send(1, &[local]), Status::RetryExceeded);
    world.rig.wait_event("a", |kind| {
        matches!(kind, NicEventKind::RdmaGaveUp(report)
            if (report.unanswered, report.not_ready) == (1, 0)
                && report.drops.iter().any(|(reason, n)| *reason == DropReason::NoDestination && *n >= 2))
    })?;

    // Its own receiver that is never ready, and nothing that was dropped since.
    let to_a = a.d.own_address();
    let (mut qa, other) = (a.qp(QpType::Rc), a.qp(QpType::Rc));
    let up = Link {
        rnr_retry: 0,
        ..link(to_a, other.number)
    };
    a.d.up(&qa, &up);
    a.d.up(&other, &link(to_a, qa.number));
    a.fails(&mut qa, &Wr::send(1, &[local]), Status::RnrRetryExceeded);
    world.rig.wait_event("a", |kind| {
        matches!(kind, NicEventKind::RdmaGaveUp(report)
            if (report.unanswered, report.not_ready) == (0, 1) && report.drops.is_empty())
    })?;
    // The balance of frames, which [`World::finish`] checks, does not have the function's packets that the switch drops.
    Ok(())
}

trait Eight {
    fn len_8(self) -> Element;
}

impl Eight for Element {
    fn len_8(self) -> Element {
        Element { len: 8, ..self }
    }
}

#[test]
fn windows() -> Result<()> {
    let world = World::new(1, &["a", "b"])?;
    let (mut a, mut b) = (world.side("a")?, world.side("b")?);
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let local = a.at(0, 64);
    let write = |id, at, key| Wr::new(id, Operation::Write, &[local]).remote(at, key);
    let make = |d: &mut Driver, pd, mw_type| -> MwReply {
        d.ask(Opcode::AllocMw, &AllocMw { pd, mw_type }, &[])
            .expect("ALLOC_MW")
    };
    // Type 1: the key's low byte counts binds.
    let one = make(&mut b.d, b.pd, 1);
    let bind = Bind {
        mw: one.mw,
        rkey: 0,
        mr: b.mr.handle,
        access: access::REMOTE_WRITE,
        addr: b.mr.iova + 4096,
        len: 64,
    };
    let mut key = one.rkey;
    for i in 0..3 {
        let e = b.done(&mut qb, &Wr::bind(i, bind));
        assert_eq!(e.kind, CompletionKind::BindMw.number());
        key = key & !0xff | (key + 1) & 0xff;
        a.done(&mut qa, &write(i, b.mr.iova + 4096, key));
    }
    b.done(&mut qb, &Wr::bind(9, Bind { len: 0, ..bind }));
    a.fails(
        &mut qa,
        &write(10, b.mr.iova + 4096, key),
        Status::RemoteAccessError,
    );

    // Type 2: the driver chooses, and takes it back.
    let (mut qa, mut qb) = a.pair(&mut b, QpType::Rc);
    let two = make(&mut b.d, b.pd, 2);
    let key = two.rkey & !0xff | 0x5a;
    let bind = Bind {
        mw: two.mw,
        rkey: key,
        access: access::REMOTE_WRITE | access::REMOTE_READ,
        ..bind
    };
    b.done(&mut qb, &Wr::bind(1, bind));
    a.done(&mut qa, &write(2, b.mr.iova + 4096, key));
    let e = b.done(&mut qb, &Wr::invalidate(3, key));
    assert_eq!(e.kind, CompletionKind::LocalInvalidate.number());
    let key = key + 1;
    b.done(&mut qb, &Wr::bind(4, Bind { rkey: key, ..bind }));
    // Bound already.
    b.fails(
        &mut qb,
        &Wr::bind(
            5,
            Bind {
                rkey: key + 1,
                ..bind
            },
        ),
        Status::MwBindError,
    );
    assert_eq!(b.d.state(&qb), QpState::Err);

    // What cannot be bound.
    let small = b.d.mr(b.pd, 64, 0);
    let area = b.d.area(4096);
    let no_bind = b.d.mr_of(b.pd, area, 0, access::LOCAL_WRITE);
    let fresh = make(&mut b.d, b.pd, 1);
    let good = Bind {
        mw: fresh.mw,
        rkey: 0,
        ..bind
    };
    for (what, wrong) in [
        (
            "an unknown right",
            Bind {
                access: 1 << 7,
                ..good
            },
        ),
        (
            "an unknown window",
            Bind {
                mw: 0xff_0000,
                ..good
            },
        ),
        (
            "an unknown region",
            Bind {
                mr: 0xff_0000,
                ..good
            },
        ),
        (
            "beyond the region",
            Bind {
                mr: small.handle,
                addr: 60,
                len: 5,
                ..good
            },
        ),
        (
            "no right to bind",
            Bind {
                mr: no_bind.handle,
                addr: 0,
                len: 5,
                ..good
            },
        ),
    ] {
        let (_, mut qb) = a.pair(&mut b, QpType::Rc);
        b.post(&mut qb, &Wr::bind(1, wrong));
        let e = b.cq.wait();
        assert_eq!((e.wr_id, e.status()), (1, Status::MwBindError), "{what}");
    }
    world.finish()
}
