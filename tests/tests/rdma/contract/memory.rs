//! Commands about memory (section 11).

use anyhow::Result;
use vnic_device::command::memory::{
    AllocDm, AllocMw, CopyDm, MrReply, MwReply, RegisterDmMr, RegisterMr, RegisterOnDemandMr, ReregisterMr,
    SetPages,
};
use vnic_device::command::{NONE, Object, Opcode as O};
use vnic_device::event::{self, EventKind};
use vnic_device::queue::{Bind, Element, Operation};
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpType, access, pages, reregister};
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::rdma::{Driver, Side, World, Wr, extents, fill};

use super::{fine, refused};

const NOBODY: u32 = 0x00ff_0000;

fn object(bytes: &[u8]) -> u32 {
    Object::read_from_bytes(bytes).expect("an object").handle
}

fn handle(handle: u32) -> Object {
    Object { handle, reserved: 0 }
}

pub fn all(world: &mut World) -> Result<Driver> {
    let mut s = world.side("a")?;
    domains(&mut s.d);
    regions(&mut s);
    chunks(&mut s);
    windows(&mut s);
    device_memory(&mut s);
    null_regions(&mut s);
    on_demand(&mut s);
    Ok(s.d)
}

fn domains(d: &mut Driver) {
    let (pd, other) = (d.pd(), d.pd());
    assert_ne!(pd, other);
    let mr = d.mr(pd, 64, 0);
    refused(d, O::DeallocPd, &handle(pd), &[], S::InUse);
    refused(d, O::DeallocPd, &handle(NOBODY), &[], S::NoSuchObject);
    refused(d, O::DeallocPd, &handle(NONE), &[], S::NoSuchObject);
    fine(d, O::DeregisterMr, &handle(mr.handle), &[]);
    refused(d, O::DeregisterMr, &handle(mr.handle), &[], S::NoSuchObject);
    for pd in [pd, other] {
        fine(d, O::DeallocPd, &handle(pd), &[]);
        refused(d, O::DeallocPd, &handle(pd), &[], S::NoSuchObject);
    }
    // Handles are not given out again soon.
    assert!(![pd, other].contains(&d.pd()));

    let xrcd = d.xrcd();
    let cq = d.cq(16);
    let pd = d.pd();
    let srq = d.srq(pd, 4, 1, Some((xrcd, cq.handle)));
    refused(d, O::CloseXrcd, &handle(xrcd), &[], S::InUse);
    fine(d, O::DestroySrq, &handle(srq.handle), &[]);
    refused(d, O::CloseXrcd, &handle(NOBODY), &[], S::NoSuchObject);
    fine(d, O::CloseXrcd, &handle(xrcd), &[]);
    // All that there may be.
    let before = d.resources();
    let mut domains = Vec::new();
    let most = d.device().max_xrcd as usize;
    d.burst(
        (0..=most).map(|_| (O::OpenXrcd, Vec::new())),
        |reply| match reply.status {
            S::Ok => domains.push(object(&reply.bytes)),
            status => assert_eq!((status, domains.len()), (S::LimitReached, most)),
        },
    );
    let ends = domains
        .iter()
        .map(|x| (O::CloseXrcd, handle(*x).as_bytes().to_vec()));
    d.burst(ends, |reply| assert_eq!(reply.status, S::Ok));
    assert_eq!(d.resources(), before);
}

fn regions(s: &mut Side) {
    let (d, pd) = (&mut s.d, s.pd);
    let most = d.device().max_mr_extents;
    let area = d.area(8192);
    let list = area.extents.as_bytes().to_vec();
    let good = RegisterMr {
        pd,
        access: access::LOCAL_WRITE,
        iova: 0x1000,
        extents: extents(&area),
    };
    // (opcode, mr, change) for both ways to say where a region is.
    let mr = fine(d, O::RegisterMr, &good, &list);
    let mr = MrReply::read_from_bytes(&mr.bytes).expect("a region");
    let again = |change: u32, register: RegisterMr| ReregisterMr {
        mr: mr.mr,
        change,
        register,
    };
    let all = reregister::ALL;
    let both = |d: &mut Driver, body: RegisterMr, list: &[u8], status: S| {
        refused(d, O::RegisterMr, &body, list, status);
        refused(d, O::ReregisterMr, &again(all, body), list, status);
    };
    both(d, RegisterMr { pd: NOBODY, ..good }, &list, S::NoSuchObject);
    for rights in [access::REMOTE_WRITE, access::REMOTE_ATOMIC] {
        both(
            d,
            RegisterMr {
                access: rights,
                ..good
            },
            &list,
            S::Invalid,
        );
    }
    both(
        d,
        RegisterMr {
            iova: u64::MAX - 8190,
            ..good
        },
        &list,
        S::Invalid,
    );
    let elsewhere = [
        (0xdead_0000_0000, 64),
        (u64::MAX - 63, 64),
        (1 << 63, 64),
        (area.extents[0].gpa, 1 << 40),
        (area.extents[0].gpa, u64::MAX),
    ];
    for (gpa, len) in elsewhere {
        both(d, good, Extent { gpa, len }.as_bytes(), S::BadAddress);
    }
    let many = ExtentList {
        count: most + 1,
        chunks: 1,
    };
    both(
        d,
        RegisterMr {
            extents: many,
            ..good
        },
        &list,
        S::LimitReached,
    );
    refused(
        d,
        O::ReregisterMr,
        &ReregisterMr {
            mr: NOBODY,
            ..again(all, good)
        },
        &list,
        S::NoSuchObject,
    );
    refused(
        d,
        O::ReregisterMr,
        &again(reregister::PD, good),
        &list,
        S::Invalid,
    );

    // No change gives new keys.
    let (other, empty) = (d.pd(), RegisterMr::default());
    let changes = [
        (reregister::PD, RegisterMr { pd: other, ..empty }, &[][..]),
        (reregister::ACCESS, RegisterMr { access: 1, ..empty }, &[]),
        (reregister::TRANSLATION, RegisterMr { iova: 5, ..good }, &list),
        (0, empty, &[]),
        (all, good, &list),
    ];
    for (change, register, list) in changes {
        let made = fine(d, O::ReregisterMr, &again(change, register), list);
        let made = MrReply::read_from_bytes(&made.bytes).expect("a region");
        assert_eq!(made.mr, mr.mr);
        assert_eq!((made.lkey, made.rkey), (mr.lkey, mr.rkey));
        if change == reregister::PD {
            refused(d, O::DeallocPd, &handle(other), &[], S::InUse);
        }
    }
    fine(d, O::DeallocPd, &handle(other), &[]);
    // Pieces that begin and end anywhere; a region of nothing; the last address. Those in the middle are not too short.
    let pieces = d.area_in(&[1, 64, 99, 4000]);
    let short = d.area_in(&[4000, 63, 101]);
    let body = RegisterMr {
        extents: extents(&short),
        ..good
    };
    refused(d, O::RegisterMr, &body, short.extents.as_bytes(), S::Invalid);
    let odd = RegisterMr {
        extents: extents(&pieces),
        iova: u64::MAX - 4163,
        ..good
    };
    fine(d, O::RegisterMr, &odd, pieces.extents.as_bytes());
    fine(
        d,
        O::RegisterMr,
        &RegisterMr {
            extents: ExtentList::default(),
            ..good
        },
        &[],
    );
    fine(d, O::DeregisterMr, &handle(mr.mr), &[]);
}

/// Extents by way of chunks, in every command that has extents (section 6).
fn chunks(s: &mut Side) {
    let (d, pd) = (&mut s.d, s.pd);
    let pieces = d.area_in(&[64; 40]);
    let table = d.area_in(&[160, 480]);
    table.write(0, pieces.extents.as_bytes());
    let announce = |count, chunks| RegisterMr {
        pd,
        access: 1,
        iova: 0,
        extents: ExtentList { count, chunks },
    };
    let list = |e: &[Extent]| e.as_bytes().to_vec();
    fine(d, O::RegisterMr, &announce(40, 2), &list(&table.extents));
    let before = d.resources();
    let used = before.iter().find(|r| r.0 == "mr_extents").expect("a row").1;
    assert!(used >= 40, "{before:?}");
    let [one, two] = table.extents[..] else {
        unreachable!()
    };
    let wrong: [(&[Extent], u32); 5] = [
        (&[one, Extent { len: 464, ..two }], 40),
        (
            &[
                Extent {
                    gpa: one.gpa + 8,
                    ..one
                },
                two,
            ],
            39,
        ),
        (&[Extent { len: 152, ..one }, two], 39),
        (
            &[
                one,
                Extent {
                    gpa: 0xdead_0000_0000,
                    ..two
                },
            ],
            40,
        ),
        (
            &[Extent {
                gpa: u64::MAX - 15,
                len: 640,
            }],
            40,
        ),
    ];
    for (chunks, count) in wrong {
        let body = announce(count, chunks.len() as u32);
        refused(d, O::RegisterMr, &body, &list(chunks), S::BadAddress);
    }
    refused(
        d,
        O::RegisterMr,
        &announce(40, 3),
        &list(&table.extents),
        S::Malformed,
    );
    refused(
        d,
        O::RegisterMr,
        &announce(40, u32::MAX),
        &list(&table.extents),
        S::Malformed,
    );
    refused(
        d,
        O::RegisterMr,
        &announce(u32::MAX, 2),
        &list(&table.extents),
        S::LimitReached,
    );
    // More chunk than extents: the rest is not looked at.
    fine(d, O::RegisterMr, &announce(3, 2), &list(&table.extents));
}

fn windows(s: &mut Side) {
    let pd = s.pd;
    refused(
        &mut s.d,
        O::AllocMw,
        &AllocMw {
            pd: NOBODY,
            mw_type: 1,
        },
        &[],
        S::NoSuchObject,
    );
    refused(&mut s.d, O::DeallocMw, &handle(NOBODY), &[], S::NoSuchObject);
    let mw = fine(&mut s.d, O::AllocMw, &AllocMw { pd, mw_type: 1 }, &[]);
    let mw = MwReply::read_from_bytes(&mw.bytes).expect("a window");
    // Bound by a QP that is connected with itself.
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    s.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
    let bind = Bind {
        mw: mw.mw,
        mr: s.mr.handle,
        access: access::REMOTE_WRITE,
        addr: s.mr.iova,
        len: 64,
        rkey: 0,
    };
    s.done(&mut qp, &Wr::bind(1, bind));
    let d = &mut s.d;
    refused(d, O::DeregisterMr, &handle(s.mr.handle), &[], S::InUse);
    let area = d.area(64);
    let body = ReregisterMr {
        mr: s.mr.handle,
        change: reregister::TRANSLATION,
        register: RegisterMr {
            extents: extents(&area),
            ..RegisterMr::default()
        },
    };
    refused(d, O::ReregisterMr, &body, area.extents.as_bytes(), S::InUse);
    fine(d, O::DeallocMw, &handle(mw.mw), &[]);
    refused(d, O::DeallocMw, &handle(mw.mw), &[], S::NoSuchObject);
    fine(d, O::ReregisterMr, &body, area.extents.as_bytes());
}

fn device_memory(s: &mut Side) {
    let (d, pd) = (&mut s.d, s.pd);
    let all = d.device().max_dm_size;
    let alloc = |len, log_alignment| AllocDm {
        len,
        log_alignment,
        reserved: 0,
    };
    refused(d, O::AllocDm, &alloc(64, 13), &[], S::OutOfRange);
    for len in [all + 1, u64::MAX, u64::MAX - 7] {
        refused(d, O::AllocDm, &alloc(len, 0), &[], S::LimitReached);
    }
    let dm = object(&fine(d, O::AllocDm, &alloc(all, 12), &[]).bytes);
    refused(d, O::AllocDm, &alloc(1, 0), &[], S::LimitReached);
    refused(d, O::FreeDm, &handle(NOBODY), &[], S::NoSuchObject);
    fine(d, O::FreeDm, &handle(dm), &[]);
    refused(d, O::FreeDm, &handle(dm), &[], S::NoSuchObject);

    let dm = object(&fine(d, O::AllocDm, &alloc(4096, 0), &[]).bytes);
    let copy = |dm, offset, len| CopyDm { dm, offset, len };
    let zeros = fine(d, O::CopyFromDm, &copy(dm, 0, 4000), &[]).bytes;
    assert_eq!(zeros, [0; 4000], "it is zero in the beginning");
    let bytes = fill(9, 400);
    fine(d, O::CopyToDm, &copy(dm, 1000, 400), &bytes);
    assert_eq!(fine(d, O::CopyFromDm, &copy(dm, 1000, 400), &[]).bytes, bytes);
    assert!(fine(d, O::CopyFromDm, &copy(dm, 4096, 0), &[]).bytes.is_empty());
    for (dm, offset, len, status) in [
        (NOBODY, 0, 4, S::NoSuchObject),
        (dm, 2, 4, S::Invalid),
        (dm, 0, 6, S::Invalid),
        (dm, 4096, 4, S::OutOfRange),
        (dm, 4000, 100, S::OutOfRange),
        (dm, u64::MAX - 3, 4, S::OutOfRange),
    ] {
        refused(d, O::CopyFromDm, &copy(dm, offset, len), &[], status);
        refused(
            d,
            O::CopyToDm,
            &copy(dm, offset, len),
            &vec![1; len as usize],
            status,
        );
    }
    refused(d, O::CopyToDm, &copy(dm, 0, 8), &[1; 4], S::Malformed);
    refused(d, O::CopyFromDm, &copy(dm, 0, 8), &[1; 8], S::Malformed);

    let good = RegisterDmMr {
        pd,
        access: access::ZERO_BASED | 1 | access::REMOTE_READ,
        dm,
        reserved: 0,
        offset: 1000,
        len: 400,
    };
    for (body, status) in [
        (RegisterDmMr { pd: NOBODY, ..good }, S::NoSuchObject),
        (RegisterDmMr { dm: NOBODY, ..good }, S::NoSuchObject),
        (RegisterDmMr { access: 1, ..good }, S::Invalid),
        (
            RegisterDmMr {
                access: access::ZERO_BASED | access::REMOTE_WRITE,
                ..good
            },
            S::Invalid,
        ),
        (RegisterDmMr { offset: 1, ..good }, S::Invalid),
        (RegisterDmMr { len: 399, ..good }, S::Invalid),
        (RegisterDmMr { len: 4000, ..good }, S::OutOfRange),
        (
            RegisterDmMr {
                offset: u64::MAX - 3,
                ..good
            },
            S::OutOfRange,
        ),
    ] {
        refused(d, O::RegisterDmMr, &body, &[], status);
    }
    let mr = fine(d, O::RegisterDmMr, &good, &[]);
    let mr = MrReply::read_from_bytes(&mr.bytes).expect("a region");
    refused(d, O::FreeDm, &handle(dm), &[], S::InUse);
    // READ from there.
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    s.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
    let local = s.d.mr(pd, 4096, 0);
    let wr = Wr::new(2, Operation::Read, &[local.element(0, 396)]).remote(4, mr.rkey);
    s.done(&mut qp, &wr);
    assert_eq!(local.area.bytes(0, 396), bytes[4..]);
    fine(&mut s.d, O::DeregisterMr, &handle(mr.mr), &[]);
    fine(&mut s.d, O::FreeDm, &handle(dm), &[]);
}

/// A region of all addresses: it swallows what comes, and sends zeros.
fn null_regions(s: &mut Side) {
    let pd = s.pd;
    refused(&mut s.d, O::RegisterNullMr, &handle(NOBODY), &[], S::NoSuchObject);
    let null = fine(&mut s.d, O::RegisterNullMr, &handle(pd), &[]);
    let null = MrReply::read_from_bytes(&null.bytes).expect("a region");
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    s.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
    let mr = s.d.mr(pd, 8192, 0);
    mr.area.write(0, &[7; 8192]);
    let nowhere = Element {
        addr: u64::MAX - 10_000,
        len: 6000,
        lkey: null.lkey,
    };
    let wr = Wr::new(1, Operation::Read, &[nowhere]).remote(mr.iova, mr.rkey);
    s.done(&mut qp, &wr);
    assert_eq!(mr.area.bytes(0, 8192), [7; 8192]);
    let wr = Wr::new(2, Operation::Write, &[nowhere]).remote(mr.iova, mr.rkey);
    s.done(&mut qp, &wr);
    assert_eq!(mr.area.bytes(0, 6000), [0; 6000]);
    assert_eq!(mr.area.bytes(6000, 2192), [7; 2192]);
    refused(&mut s.d, O::DeallocPd, &handle(pd), &[], S::InUse);
    fine(&mut s.d, O::DeregisterMr, &handle(null.mr), &[]);
}

/// Regions whose pages come when they are asked for (section 11.6).
fn on_demand(s: &mut Side) {
    const VA: u64 = 0x7777_0000_0000;
    let pd = s.pd;
    let (word, memory) = (s.d.area(8), s.d.area(16384));
    let own_mr = s.d.mr(pd, 8192, 0x7f00_0000_0000);
    let good = RegisterOnDemandMr {
        pd,
        access: 0xf,
        iova: VA,
        len: 16384,
        hold: word.extents[0].gpa,
    };
    for (body, status) in [
        (RegisterOnDemandMr { pd: NOBODY, ..good }, S::NoSuchObject),
        (
            RegisterOnDemandMr {
                access: 1 << 7,
                ..good
            },
            S::NotSupported,
        ),
        (RegisterOnDemandMr { access: 2, ..good }, S::Invalid),
        (
            RegisterOnDemandMr {
                len: u64::MAX,
                ..good
            },
            S::Invalid,
        ),
        (
            RegisterOnDemandMr {
                hold: 1 << 50,
                ..good
            },
            S::BadAddress,
        ),
        (
            RegisterOnDemandMr {
                hold: good.hold + 4,
                ..good
            },
            S::BadAddress,
        ),
        (
            RegisterOnDemandMr {
                hold: 1 << 63,
                ..good
            },
            S::BadAddress,
        ),
    ] {
        refused(&mut s.d, O::RegisterOnDemandMr, &body, &[], status);
    }
    let made = fine(&mut s.d, O::RegisterOnDemandMr, &good, &[]);
    let made = MrReply::read_from_bytes(&made.bytes).expect("a region");
    let pages = |start: u64, len: u64, flags: u32, from: u64| {
        let extent = [Extent {
            gpa: memory.extents[0].gpa + from,
            len,
        }];
        let body = SetPages {
            mr: made.mr,
            flags,
            start,
            len,
            extents: ExtentList { count: 1, chunks: 0 },
        };
        (body, extent)
    };
    let nothing = |start: u64, len: u64, flags: u32| SetPages {
        extents: ExtentList::default(),
        ..pages(start, len, flags, 0).0
    };
    let (body, list) = pages(0, 4096, pages::WRITE, 0);
    let none = Extent {
        gpa: 1 << 50,
        len: 4096,
    };
    for (body, list, status) in [
        (
            SetPages {
                mr: own_mr.handle,
                ..body
            },
            list,
            S::Invalid,
        ),
        (SetPages { mr: NOBODY, ..body }, list, S::NoSuchObject),
        (SetPages { start: 16384, ..body }, list, S::Invalid),
        (
            SetPages {
                start: u64::MAX,
                ..body
            },
            list,
            S::Invalid,
        ),
        (SetPages { len: 4095, ..body }, list, S::Invalid),
        (SetPages { flags: 8, ..body }, list, S::NotSupported),
        (body, [none], S::BadAddress),
        (
            SetPages {
                extents: ExtentList {
                    count: u32::MAX,
                    chunks: 1,
                },
                ..body
            },
            list,
            S::LimitReached,
        ),
    ] {
        refused(&mut s.d, O::SetPages, &body, list.as_bytes(), status);
    }
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    s.d.up(&qp, &vnic_tests::driver::rdma::link(own, qp.number));
    let asked = |s: &mut Side| {
        let event = s.d.event(EventKind::PageFault);
        assert_eq!(event.object, made.mr);
        event::pages(event.detail)
    };
    // Bytes 5000 to 8999 are asked for as pages 1 and 2, to be written, by the responder.
    own_mr.area.write(0, &[9; 8192]);
    let wr = |id, element, at| Wr::new(id, Operation::Write, &[element]).remote(VA + at, made.rkey);
    s.post(&mut qp, &wr(1, own_mr.element(0, 4000), 5000));
    assert_eq!(asked(s), (1, 2, true));
    // Pages that may not be written are not what was asked for.
    let (body, list) = pages(4096, 8192, 0, 4096);
    fine(&mut s.d, O::SetPages, &body, list.as_bytes());
    assert_eq!(asked(s), (1, 2, true));
    let (body, list) = pages(4096, 8192, pages::WRITE, 4096);
    fine(&mut s.d, O::SetPages, &body, list.as_bytes());
    qp.sends().consumer = s.cq.good(1).consumed;
    assert_eq!(memory.bytes(5000, 4000), [9; 4000]);
    assert_eq!(memory.bytes(0, 5000), [0; 5000]);
    // Elsewhere from now on; the memory of before is left alone.
    let other = s.d.area(8192);
    let body = SetPages {
        extents: extents(&other),
        ..pages(4096, 8192, pages::WRITE, 0).0
    };
    fine(&mut s.d, O::SetPages, &body, other.extents.as_bytes());
    own_mr.area.write(0, &[8; 8192]);
    let write = wr(2, own_mr.element(0, 8192), 4096);
    s.done(&mut qp, &write);
    assert_eq!(
        (other.bytes(0, 8192), memory.bytes(5000, 4000)),
        (vec![8; 8192], vec![9; 4000])
    );
    // Taken: it is asked for again, now by the requester, to be read.
    fine(&mut s.d, O::SetPages, &nothing(0, 16384, 0), &[]);
    let element = |at: u64, len| Element {
        addr: VA + at,
        len,
        lkey: made.lkey,
    };
    let to = own_mr.iova;
    let out = |id, element, rkey| Wr::new(id, Operation::Write, &[element]).remote(to, rkey);
    s.post(&mut qp, &out(3, element(100, 50), own_mr.rkey));
    assert_eq!(asked(s), (0, 1, false));
    // Held back: nothing is used, nobody is asked.
    word.store(0, 1u64.to_le());
    let (body, list) = pages(0, 4096, 0, 8192);
    fine(&mut s.d, O::SetPages, &body, list.as_bytes());
    assert_eq!(s.d.count_events(EventKind::PageFault), 0);
    assert!(s.cq.peek().is_none(), "held back");
    word.store(0, 0u64);
    qp.sends().consumer = s.cq.good(3).consumed;
    // Refused: the request fails.
    let used = |d: &mut Driver| {
        d.resources()
            .into_iter()
            .find(|r| r.0.contains("extents"))
            .map(|r| r.1)
    };
    let before = used(&mut s.d);
    s.post(&mut qp, &out(4, element(9000, 50), own_mr.rkey));
    assert_eq!(asked(s), (2, 1, false));
    fine(&mut s.d, O::SetPages, &nothing(8192, 4096, pages::REFUSED), &[]);
    s.cq.expect(4, vnic_device::verbs::CompletionStatus::LocalProtectionError);
    fine(&mut s.d, O::SetPages, &nothing(0, 16384, 0), &[]);
    assert_ne!(used(&mut s.d), before);
    fine(&mut s.d, O::DeregisterMr, &handle(made.mr), &[]);
    refused(&mut s.d, O::SetPages, &nothing(0, 1, 0), &[], S::NoSuchObject);
}
