//! The data path of the RDMA function, driven by a driver that is written out by hand: `proto/device/SPEC.md`, sections
//! 6 to 9.

use anyhow::Result;
use vnic_device::queue::{CompletionKind, Operation, completion_flags as c, send_flags};
use vnic_device::verbs::QpType;
use vnic_tests::driver::rdma::{Side, World, Wr, fill};

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
