//! Regions and windows, case by case.

use vnic_engine::rdma::region::Regions;
use vnic_engine::rdma::{
    Access, Limits, MwBind, MwType, Object, PdHandle, QpNumber, Reregister, Sge, Span, SpanList, Status,
    VerbsError,
};
use vnic_wire::aeth::NakCode;

const PD: PdHandle = PdHandle(7);
const QP: QpNumber = QpNumber(9);

fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND
}

#[test]
fn a_page_list_is_found_by_byte() {
    let mut regions = Regions::new(&Limits::default());
    // 1000 pages, every other one elsewhere.
    let page = |i: u64| Span {
        at: (i ^ 1) << 13,
        len: 4096,
    };
    let made = regions
        .register(PD, 0x1000_0123, all_rights(), (0..1000).map(page).collect())
        .unwrap();
    assert_eq!(regions.extent_usage().used, 1000);
    for (offset, len) in [
        (0, 1),
        (4095, 2),
        (4096, 4096),
        (5000, 100_000),
        (4_095_999, 1),
        (0, 4_096_000),
    ] {
        let mut out = SpanList::new();
        let addr = 0x1000_0123 + offset;
        regions
            .remote(PD, QP, made.rkey, addr, len, Access::REMOTE_READ, &mut out)
            .unwrap();
        assert_eq!(out.iter().map(|s| s.len).sum::<u64>(), len);
        assert_eq!(out.len() as u64, (offset + len - 1) / 4096 - offset / 4096 + 1);
        let first = page(offset / 4096);
        assert_eq!(out[0].at, first.at + offset % 4096);
        // What is collected is counted, but for the first.
        assert_eq!(regions.take_pieces(), out.len() as u32 - 1);
        // Whether it may be is asked without collecting.
        let allowed = |need| regions.allows(PD, QP, made.rkey, addr, len, need);
        assert_eq!(allowed(Access::REMOTE_READ), Ok(()));
        assert_eq!(regions.take_pieces(), 0);
    }
    let allowed = |len| regions.allows(PD, QP, made.rkey, 0x1000_0123, len, Access::REMOTE_WRITE);
    assert_eq!(
        (allowed(4_096_000), allowed(4_096_001)),
        (Ok(()), Err(NakCode::RemoteAccess))
    );
    let mut out = SpanList::new();
    let beyond = regions.remote(
        PD,
        QP,
        made.rkey,
        0x1000_0123,
        4_096_001,
        Access::REMOTE_READ,
        &mut out,
    );
    assert_eq!(beyond, Err(NakCode::RemoteAccess));
    regions.deregister(made.mr).unwrap();
    assert_eq!(regions.extent_usage().used, 0);
}

#[test]
fn neighbouring_pages_are_one_extent() {
    let mut regions = Regions::new(&Limits::default());
    let pages = (0..512).map(|i| Span {
        at: 0x20_0000 + i * 4096,
        len: 4096,
    });
    let made = regions.register(PD, 0, all_rights(), pages.collect()).unwrap();
    assert_eq!(regions.extent_usage().used, 1);
    let mut out = SpanList::new();
    regions
        .local(
            PD,
            &[Sge {
                addr: 5,
                len: 1 << 20,
                lkey: made.lkey,
            }],
            0,
            1 << 20,
            Access::empty(),
            &mut out,
        )
        .unwrap();
    assert_eq!(
        out.as_slice(),
        [Span {
            at: 0x20_0005,
            len: 1 << 20
        }]
    );
}

#[test]
fn the_translation_table_has_an_end() {
    let mut regions = Regions::new(&Limits {
        max_mr_extents: 10,
        ..Limits::default()
    });
    let scattered = |n: u64| {
        (0..n)
            .map(|i| Span {
                at: i * 8192,
                len: 4096,
            })
            .collect::<Vec<_>>()
    };
    let first = regions.register(PD, 0, all_rights(), scattered(6)).unwrap();
    assert_eq!(
        regions.register(PD, 0, all_rights(), scattered(5)),
        Err(VerbsError::OutOfRange {
            what: "extents of a region",
            value: 5,
            min: 0,
            max: 4
        })
    );
    let change = |n| Reregister {
        translation: Some((0, scattered(n).into())),
        ..Reregister::default()
    };
    assert!(regions.reregister(first.mr, change(11)).is_err());
    assert_eq!(regions.extent_usage().used, 6);
    // What it was is the caller's to free.
    let (_, before) = regions.reregister(first.mr, change(10)).unwrap();
    assert_eq!(before.map(|e| e.count()), Some(6));
    assert_eq!(regions.extent_usage().used, 10);
    let left = regions.deregister(first.mr).unwrap();
    assert_eq!(left.map(|e| e.count()), Some(10));
    assert_eq!(regions.extent_usage().used, 0);
}

#[test]
fn nothing_is_needed_for_no_bytes() {
    let regions = Regions::new(&Limits::default());
    let mut out = SpanList::new();
    let wrong = Sge {
        addr: 99,
        len: 0,
        lkey: 12345,
    };
    assert_eq!(
        regions.local(PD, &[wrong], 0, 0, Access::LOCAL_WRITE, &mut out),
        Ok(())
    );
    assert_eq!(
        regions.local(PD, &[], 5, 0, Access::LOCAL_WRITE, &mut out),
        Ok(())
    );
    assert_eq!(
        regions.local(PD, &[wrong], 0, 1, Access::empty(), &mut out),
        Err(Status::LocalLengthError)
    );
    assert_eq!(
        regions.remote(PD, QP, 12345, 99, 0, Access::REMOTE_WRITE, &mut out),
        Ok(())
    );
    assert!(out.is_empty());
}

#[test]
fn a_region_reaches_to_the_last_address() {
    let mut regions = Regions::new(&Limits::default());
    let top = vec![Span { at: 0, len: 16 }];
    assert!(
        regions
            .register(PD, u64::MAX - 14, all_rights(), top.clone())
            .is_err()
    );
    let made = regions.register(PD, u64::MAX - 15, all_rights(), top).unwrap();
    let mut out = SpanList::new();
    assert_eq!(
        regions.remote(PD, QP, made.rkey, u64::MAX, 1, Access::REMOTE_READ, &mut out),
        Ok(())
    );
    assert_eq!(out[0], Span { at: 15, len: 1 });
    for len in [2, u64::MAX] {
        let beyond = regions.remote(PD, QP, made.rkey, u64::MAX, len, Access::REMOTE_READ, &mut out);
        assert_eq!(beyond, Err(NakCode::RemoteAccess));
    }
}

#[test]
fn keys_of_one_slot_differ_four_thousand_times() {
    let mut regions = Regions::new(&Limits {
        max_mr: 1,
        max_mw: 0,
        ..Limits::default()
    });
    let mut keys = std::collections::HashSet::new();
    for _ in 0..4096 {
        let made = regions
            .register(PD, 0, all_rights(), vec![Span { at: 0, len: 8 }])
            .unwrap();
        assert!(keys.insert(made.rkey));
        regions.deregister(made.mr).unwrap();
    }
}

#[test]
fn a_type_2_window_ends_by_invalidation_only() {
    let mut regions = Regions::new(&Limits::default());
    let made = regions
        .register(PD, 0x1000, all_rights(), vec![Span { at: 0, len: 4096 }])
        .unwrap();
    let (mw, key) = regions.alloc_mw(PD, MwType::Type2).unwrap();
    let bind = MwBind {
        mw,
        rkey: key & !0xff | 0x5a,
        mr: made.mr,
        addr: 0x1100,
        len: 16,
        access: Access::REMOTE_READ,
    };
    let rkey = regions.bind(PD, QP, &bind).unwrap();
    assert_eq!(rkey, bind.rkey);
    assert_eq!(regions.bind(PD, QP, &bind), Err(Status::MwBindError));
    assert_eq!(
        regions.bind(PD, QP, &MwBind { len: 0, ..bind }),
        Err(Status::MwBindError)
    );
    let in_use = VerbsError::InUse {
        object: Object::Mr,
        users: 1,
    };
    assert_eq!(regions.deregister(made.mr), Err(in_use));
    assert_eq!(regions.reregister(made.mr, Reregister::default()), Err(in_use));
    // Another QP, another domain: not theirs.
    assert_eq!(
        regions.invalidate_remote(PD, QpNumber(10), rkey),
        Err(NakCode::RemoteAccess)
    );
    assert_eq!(
        regions.invalidate_remote(PdHandle(8), QP, rkey),
        Err(NakCode::RemoteAccess)
    );
    assert_eq!(
        regions.invalidate_local(PD, QpNumber(10), rkey),
        Err(Status::MwBindError)
    );
    // An ordinary region cannot be invalidated.
    assert_eq!(
        regions.invalidate_remote(PD, QP, made.rkey),
        Err(NakCode::RemoteAccess)
    );
    assert_eq!(
        regions.invalidate_local(PD, QP, made.lkey),
        Err(Status::MwBindError)
    );
    assert_eq!(regions.invalidate_remote(PD, QP, rkey), Ok(()));
    let mut out = SpanList::new();
    let gone = regions.remote(PD, QP, rkey, 0x1100, 1, Access::REMOTE_READ, &mut out);
    assert_eq!(gone, Err(NakCode::RemoteAccess));
    regions
        .bind(
            PD,
            QP,
            &MwBind {
                rkey: key & !0xff,
                ..bind
            },
        )
        .unwrap();
    regions.dealloc_mw(mw).unwrap();
    regions.deregister(made.mr).unwrap();
}

#[test]
fn a_window_gives_no_more_than_its_region() {
    let mut regions = Regions::new(&Limits::default());
    let span = || vec![Span { at: 0, len: 4096 }];
    let (mw, _) = regions.alloc_mw(PD, MwType::Type1).unwrap();
    let bind = |regions: &mut Regions, mr, access| {
        let request = MwBind {
            mw,
            rkey: 0,
            mr,
            addr: 0,
            len: 8,
            access,
        };
        regions.bind(PD, QP, &request).is_ok()
    };
    let read_only = regions.register(PD, 0, Access::MW_BIND, span()).unwrap().mr;
    assert!(bind(&mut regions, read_only, Access::REMOTE_READ));
    assert!(!bind(&mut regions, read_only, Access::REMOTE_WRITE));
    assert!(!bind(&mut regions, read_only, Access::REMOTE_ATOMIC));
    let no_windows = regions
        .register(PD, 0, Access::LOCAL_WRITE | Access::REMOTE, span())
        .unwrap()
        .mr;
    assert!(!bind(&mut regions, no_windows, Access::REMOTE_READ));
    let writable = regions
        .register(PD, 0, Access::LOCAL_WRITE | Access::MW_BIND, span())
        .unwrap()
        .mr;
    assert!(bind(&mut regions, writable, Access::REMOTE));
    // The window has moved on: the first region is free.
    assert!(regions.deregister(read_only).is_ok());
    assert!(regions.deregister(writable).is_err());
}

#[test]
fn an_invalidated_region_lives_again_after_registering_it_again() {
    let mut regions = Regions::new(&Limits::default());
    let access = all_rights() | Access::INVALIDATE;
    let made = regions
        .register(PD, 0, access, vec![Span { at: 64, len: 8 }])
        .unwrap();
    regions.invalidate_remote(PD, QP, made.rkey).unwrap();
    let read = |regions: &Regions, rkey| {
        let mut out = SpanList::new();
        regions.remote(PD, QP, rkey, 0, 8, Access::REMOTE_READ, &mut out)
    };
    assert_eq!(read(&regions, made.rkey), Err(NakCode::RemoteAccess));
    assert_eq!(
        regions.invalidate_remote(PD, QP, made.rkey),
        Err(NakCode::RemoteAccess)
    );
    assert_eq!(regions.invalidate_local(PD, QP, made.lkey), Ok(()));
    let (again, _) = regions.reregister(made.mr, Reregister::default()).unwrap();
    assert_ne!(again.rkey, made.rkey);
    assert_eq!(read(&regions, made.rkey), Err(NakCode::RemoteAccess));
    assert_eq!(read(&regions, again.rkey), Ok(()));
}
