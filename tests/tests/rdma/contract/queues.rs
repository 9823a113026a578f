//! Commands about completion queues, shared receive queues and doorbell rings (section 5.6).

use anyhow::Result;
use vnic_device::command::device::JudgePost;
use vnic_device::command::queues::{
    CreateCq, CreateDoorbells, CreateSrq, ModifySrq, ResizeCq, ResizeCqReply, SrqReply,
};
use vnic_device::command::{NONE, Object, Opcode as O};
use vnic_device::doorbell::Kind;
use vnic_device::event::EventKind;
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpType, srq_mask};
use vnic_device::zerocopy::{FromBytes, Immutable, IntoBytes};
use vnic_tests::driver::rdma::{Area, Driver, Side, World, Wr, extents, link};

use super::{fine, refused};

const NOBODY: u32 = 0x00ff_0000;

fn handle(handle: u32) -> Object {
    Object { handle, reserved: 0 }
}

pub fn all(world: &mut World) -> Result<Driver> {
    let mut s = world.side("a")?;
    completion_queues(&mut s);
    resize(&mut s);
    shared(&mut s);
    doorbells(&mut s);
    Ok(s.d)
}

/// What a ring's memory may not be: `body` makes the command's body of an announcement, `need` is what the ring needs.
fn bad_memory<B: IntoBytes + Immutable>(
    d: &mut Driver,
    opcode: O,
    area: &Area,
    need: u64,
    stride: u64,
    body: impl Fn(ExtentList) -> B,
) {
    let at = area.extents[0].gpa;
    let e = |gpa: u64, len: u64| Extent { gpa, len };
    let most = d.device().max_mr_extents;
    let announce = |count, chunks| ExtentList { count, chunks };
    let mut lists = vec![
        vec![],
        vec![e(at, need - 64)],
        vec![e(at + 32, need)],
        vec![e(at, need + 32)],
        vec![e(at, 0), e(at, need)],
        vec![e(0xdead_0000_0000, need)],
        vec![e(u64::MAX - 63, need)],
        vec![e(at, need - 64), e(0xdead_0000_0000, 64)],
    ];
    if stride > 64 {
        // An entry would be divided.
        lists.push(vec![e(at, 64), e(at + 128, need)]);
    }
    for list in lists {
        let body = body(announce(list.len() as u32, 0));
        refused(d, opcode, &body, list.as_bytes(), S::BadAddress);
    }
    let long = body(announce(most + 1, 1));
    refused(d, opcode, &long, e(at, 64).as_bytes(), S::LimitReached);
}

fn completion_queues(s: &mut Side) {
    let d = &mut s.d;
    let most = d.device().max_cqe.next_power_of_two();
    let area = d.area(8192);
    let body = |entries, event_queue, ring| CreateCq {
        entries,
        event_queue,
        ring,
    };
    let list = area.extents.as_bytes();
    for (entries, queue, status) in [
        (0, 0, S::OutOfRange),
        (2 * most, 0, S::OutOfRange),
        (u32::MAX, 0, S::OutOfRange),
        (16, 1, S::OutOfRange),
        (16, u32::MAX, S::OutOfRange),
        (3, 0, S::Invalid),
        (most - 1, 0, S::Invalid),
        (most, 0, S::BadAddress),
        (128, 0, S::BadAddress),
    ] {
        refused(
            d,
            O::CreateCq,
            &body(entries, queue, extents(&area)),
            list,
            status,
        );
    }
    bad_memory(d, O::CreateCq, &area, 64 * 17, 64, |ring| body(16, 0, ring));
    let made = fine(d, O::CreateCq, &body(64, 0, extents(&area)), list);
    let cq = Object::read_from_bytes(&made.bytes).expect("an object");
    assert!(cq.handle < 1 << 24 && cq.reserved == 0);
    refused(d, O::DestroyCq, &handle(NOBODY), &[], S::NoSuchObject);
    fine(d, O::DestroyCq, &cq, &[]);
    refused(d, O::DestroyCq, &cq, &[], S::NoSuchObject);
    let own = s.cq.handle;
    let qp = s.qp(QpType::Ud);
    refused(&mut s.d, O::DestroyCq, &handle(own), &[], S::InUse);
    fine(&mut s.d, O::DestroyQp, &handle(qp.number), &[]);
    // Rings in pieces that hold whole entries.
    let pieces = s.d.area_in(&[64, 128, 64 * 14]);
    let cq = s.d.cq_in(16, pieces);
    fine(&mut s.d, O::DestroyCq, &handle(cq.handle), &[]);
}

fn resize(s: &mut Side) {
    let d = &mut s.d;
    let most = d.device().max_cqe.next_power_of_two();
    let mut cq = d.cq(4);
    let area = d.area(8192);
    let list = area.extents.as_bytes().to_vec();
    let body = |cq: u32, entries| ResizeCq {
        cq,
        entries,
        ring: extents(&area),
    };
    for (cq, entries, status) in [
        (NOBODY, 16, S::NoSuchObject),
        (cq.handle, 0, S::OutOfRange),
        (cq.handle, 2 * most, S::OutOfRange),
        (cq.handle, 12, S::Invalid),
        (cq.handle, 128, S::BadAddress),
    ] {
        refused(d, O::ResizeCq, &body(cq, entries), &list, status);
    }
    let number = cq.handle;
    bad_memory(d, O::ResizeCq, &area, 64 * 17, 64, |ring| ResizeCq {
        cq: number,
        entries: 16,
        ring,
    });
    let reply = fine(d, O::ResizeCq, &body(number, 64), &list);
    assert_eq!(
        ResizeCqReply::read_from_bytes(&reply.bytes)
            .expect("a reply")
            .produced,
        0
    );
    // A queue that overran cannot be resized: eight completions for a ring of two.
    (cq.area, cq.entries) = (d.area(64 * 3), 2);
    let small = ResizeCq {
        cq: number,
        entries: 2,
        ring: extents(&cq.area),
    };
    fine(d, O::ResizeCq, &small, cq.area.extents.as_bytes());
    let spec = vnic_tests::driver::rdma::QpSpec {
        send_cq: number,
        ..s.spec(QpType::Rc)
    };
    let mut qp = s.d.qp(&spec);
    let own = s.d.own_address();
    s.d.up(&qp, &link(own, qp.number));
    for i in 0..8 {
        s.post(
            &mut qp,
            &Wr::new(i, vnic_device::queue::Operation::Write, &[]).remote(s.mr.iova, s.mr.rkey),
        );
    }
    assert_eq!(s.d.event(EventKind::CqError).object, number);
    refused(&mut s.d, O::ResizeCq, &body(number, 64), &list, S::Invalid);
    // What was written before can still be taken.
    assert_eq!((cq.good(0).qp, cq.good(1).qp), (qp.number, qp.number));
    // Completions that the device held back may follow; not all of them.
    let held_back: Vec<u64> = std::iter::from_fn(|| cq.poll()).map(|e| e.wr_id).collect();
    assert!(
        held_back.len() < 6 && held_back.iter().copied().eq(2..2 + held_back.len() as u64),
        "{held_back:?}"
    );
    fine(&mut s.d, O::DestroyQp, &handle(qp.number), &[]);
    fine(&mut s.d, O::DestroyCq, &handle(number), &[]);
}

fn shared(s: &mut Side) {
    let (pd, cq) = (s.pd, s.cq.handle);
    let d = &mut s.d;
    let limits = d.device();
    let (most, sges) = (limits.max_srq_wr.next_power_of_two(), limits.max_srq_sge);
    let xrcd = d.xrcd();
    let area = d.area(1 << 15);
    let list = area.extents.as_bytes();
    let good = CreateSrq {
        pd,
        entries: 16,
        elements: 7,
        xrcd: NONE,
        cq: NONE,
        reserved: 0,
        ring: extents(&area),
    };
    for (body, status) in [
        (CreateSrq { pd: NOBODY, ..good }, S::NoSuchObject),
        (
            CreateSrq {
                xrcd: NOBODY,
                cq,
                ..good
            },
            S::NoSuchObject,
        ),
        (
            CreateSrq {
                xrcd,
                cq: NOBODY,
                ..good
            },
            S::NoSuchObject,
        ),
        (CreateSrq { xrcd, ..good }, S::Invalid),
        (CreateSrq { cq, ..good }, S::Invalid),
        (CreateSrq { entries: 12, ..good }, S::Invalid),
        (CreateSrq { entries: 0, ..good }, S::OutOfRange),
        (
            CreateSrq {
                entries: 2 * most,
                ..good
            },
            S::OutOfRange,
        ),
        (
            CreateSrq {
                elements: sges + 1,
                ..good
            },
            S::OutOfRange,
        ),
        (
            CreateSrq {
                elements: 256,
                ..good
            },
            S::OutOfRange,
        ),
        (
            CreateSrq {
                elements: u32::MAX,
                ..good
            },
            S::OutOfRange,
        ),
        (
            CreateSrq {
                entries: 1024,
                ..good
            },
            S::BadAddress,
        ),
    ] {
        refused(d, O::CreateSrq, &body, list, status);
    }
    bad_memory(d, O::CreateSrq, &area, 16 * 128 + 64, 128, |ring| CreateSrq {
        ring,
        ..good
    });
    let srq = fine(d, O::CreateSrq, &good, list);
    let srq = Object::read_from_bytes(&srq.bytes).expect("an object");
    let modify = |srq, mask, limit, max_wr| ModifySrq {
        srq,
        mask,
        limit,
        max_wr,
    };
    let (wr, limit) = (srq_mask::MAX_WR, srq_mask::LIMIT);
    for (body, status) in [
        (modify(NOBODY, 0, 0, 0), S::NoSuchObject),
        (modify(srq.handle, wr, 0, 17), S::OutOfRange),
        (modify(srq.handle, wr, 0, u32::MAX), S::OutOfRange),
        (modify(srq.handle, limit, 17, 0), S::OutOfRange),
        (modify(srq.handle, wr | limit, 9, 8), S::OutOfRange),
    ] {
        refused(d, O::ModifySrq, &body, &[], status);
    }
    let query = |d: &mut Driver| {
        let reply = fine(d, O::QuerySrq, &srq, &[]);
        SrqReply::read_from_bytes(&reply.bytes).expect("a reply")
    };
    assert_eq!(
        query(d),
        SrqReply {
            max_wr: 16,
            ..SrqReply::default()
        }
    );
    fine(d, O::ModifySrq, &modify(srq.handle, wr | limit, 8, 9), &[]);
    assert_eq!(
        query(d),
        SrqReply {
            max_wr: 9,
            limit: 8,
            ..SrqReply::default()
        }
    );
    fine(d, O::ModifySrq, &modify(srq.handle, limit, 0, 0), &[]);
    // Five wait; less room than that there cannot be.
    s.bells.ring(Kind::SharedReceive, srq.handle, 5);
    assert_eq!(
        query(d),
        SrqReply {
            waiting: 5,
            max_wr: 9,
            ..SrqReply::default()
        }
    );
    refused(d, O::ModifySrq, &modify(srq.handle, wr, 0, 4), &[], S::OutOfRange);
    fine(d, O::ModifySrq, &modify(srq.handle, wr, 0, 5), &[]);
    // In error it cannot be changed.
    s.bells.ring(Kind::SharedReceive, srq.handle, 1000);
    assert_eq!(s.d.event(EventKind::QueueFault).object, srq.handle);
    refused(
        &mut s.d,
        O::ModifySrq,
        &modify(srq.handle, wr, 0, 9),
        &[],
        S::Invalid,
    );
    // In use.
    let plain = s.d.srq(pd, 16, 1, None);
    let spec = s.spec(QpType::Rc).shared(&plain);
    let qp = s.d.qp(&spec);
    let d = &mut s.d;
    refused(d, O::DestroySrq, &handle(plain.handle), &[], S::InUse);
    fine(d, O::DestroyQp, &handle(qp.number), &[]);
    for (post, queue) in [(0, NOBODY), (1, NOBODY), (2, NOBODY)] {
        let post = JudgePost {
            post,
            queue,
            ..JudgePost::default()
        };
        refused(d, O::JudgePost, &post, &[], S::NoSuchObject);
    }
    let post = JudgePost {
        post: 2,
        queue: srq.handle,
        ..JudgePost::default()
    };
    assert_eq!(
        fine(d, O::JudgePost, &post, &[]).bytes,
        [0; 8],
        "there is no rule"
    );
    for opcode in [O::QuerySrq, O::DestroySrq] {
        refused(d, opcode, &handle(NOBODY), &[], S::NoSuchObject);
    }
    for srq in [plain.handle, srq.handle] {
        fine(d, O::DestroySrq, &handle(srq), &[]);
        refused(d, O::QuerySrq, &handle(srq), &[], S::NoSuchObject);
    }
}

fn doorbells(s: &mut Side) {
    let d = &mut s.d;
    let area = d.area(8 * 4096 + 128);
    let list = area.extents.as_bytes();
    let body = |entries, wake_queue| CreateDoorbells {
        entries,
        wake_queue,
        ring: extents(&area),
    };
    for (entries, wake, status) in [
        (8, 0, S::OutOfRange),
        (0, 0, S::OutOfRange),
        (8192, 0, S::OutOfRange),
        (24, 0, S::Invalid),
        (4095, 0, S::Invalid),
        (16, 1, S::OutOfRange),
        (16, u32::MAX, S::OutOfRange),
    ] {
        refused(d, O::CreateDoorbells, &body(entries, wake), list, status);
    }
    bad_memory(d, O::CreateDoorbells, &area, 8 * 16 + 128, 8, |ring| {
        CreateDoorbells { ring, ..body(16, 0) }
    });
    refused(d, O::DestroyDoorbells, &handle(NOBODY), &[], S::NoSuchObject);
    let most = d.device().max_doorbell_rings;
    let mut rings = Vec::new();
    for _ in 1..most {
        let made = fine(d, O::CreateDoorbells, &body(16, 0), list);
        rings.push(Object::read_from_bytes(&made.bytes).expect("an object"));
    }
    refused(d, O::CreateDoorbells, &body(16, 0), list, S::LimitReached);
    for ring in rings {
        fine(d, O::DestroyDoorbells, &ring, &[]);
        refused(d, O::DestroyDoorbells, &ring, &[], S::NoSuchObject);
    }
    fine(d, O::CreateDoorbells, &body(4096, 0), list);
}
