//! Memory that the guest does not share any more (proto/device, section 11.3).

use vnic_engine::rdma::{Access, MwBind, MwType, QpState, QpType, Reregister, SendOp, Span, Status};

use super::harness::{BASE, Connection, Pair};

fn done(side: &mut super::harness::Side) -> Vec<(u64, Status)> {
    side.completions().iter().map(|c| (c.wr_id, c.status)).collect()
}

/// Everything is there but one byte.
fn hole(at: u64) -> impl Fn(Span) -> bool {
    move |span| !(span.at..span.at + span.len).contains(&at)
}

#[test]
fn a_region_with_a_hole_is_lost_once_and_for_good() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let b = &mut pair.sides[1];
    let rights = Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND;
    let pages = |list: &[u64]| -> Vec<Span> {
        list.iter()
            .map(|i| Span {
                at: BASE + i * 8192,
                len: 4096,
            })
            .collect()
    };
    let near = b.device.register(b.pd, 0, rights, pages(&[1, 2, 3])).unwrap();
    let far = b.device.register(b.pd, 0, rights, pages(&[5, 6])).unwrap();
    let empty = b.device.register(b.pd, 0, rights, vec![]).unwrap();
    // The region under everything else covers the hole, too.
    let all = b.keys.mr;
    let lost = b.device.lose_memory(&hole(BASE + 2 * 8192 + 4095));
    assert_eq!(lost, [all, near.mr]);
    assert_eq!(b.device.lose_memory(&hole(BASE + 2 * 8192)), []);
    assert_eq!(b.device.lose_memory(&|_| true), []);
    // The others live.
    let (addr, rkey) = (0, far.rkey);
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Write { addr, rkey }, &[a.sge(0, 8000)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(1, Status::Success)]);
    for made in [near.mr, far.mr, empty.mr] {
        b.device.deregister(made).unwrap();
    }
    // Also the bytes that are still there are out of reach.
    let (addr, rkey) = (b.va(0), b.keys.rkey);
    a.post(2, SendOp::Write { addr, rkey }, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(2, Status::RemoteAccessError)]);
    assert_eq!(b.state(), QpState::Err);
    // Other rights bring nothing back, other memory does.
    let change = Reregister {
        access: Some(rights),
        ..Reregister::default()
    };
    let rkey = b.device.reregister(all, change).unwrap().rkey;
    assert_eq!(b.device.lose_memory(&hole(BASE)), []);
    let change = Reregister {
        translation: Some((0, pages(&[0]).into())),
        ..Reregister::default()
    };
    let again = b.device.reregister(all, change).unwrap().rkey;
    assert_ne!(rkey, again);
    assert_eq!(b.device.lose_memory(&hole(BASE)), [all]);
}

#[test]
fn own_work_on_lost_memory_fails() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let a = &mut pair.sides[0];
    a.post(1, SendOp::Send, &[a.sge(0, 8)]);
    assert_eq!(a.device.lose_memory(&hole(BASE + 100_000)), [a.keys.mr]);
    pair.run();
    assert_eq!(done(&mut pair.sides[0]), [(1, Status::LocalProtectionError)]);
}

#[test]
fn a_window_goes_with_its_region() {
    let mut pair = Pair::new(QpType::Rc, Connection::default());
    let b = &mut pair.sides[1];
    let (mw, key) = b.device.alloc_mw(b.pd, MwType::Type2).unwrap();
    let bind = MwBind {
        mw,
        rkey: key ^ 1,
        mr: b.keys.mr,
        addr: b.va(0),
        len: 4096,
        access: Access::REMOTE_READ,
    };
    b.post(1, SendOp::BindMw(bind), &[]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(b), [(1, Status::Success)]);
    let (addr, rkey) = (b.va(0), key ^ 1);
    a.post(1, SendOp::Read { addr, rkey }, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(1, Status::Success)]);
    assert_eq!(b.device.lose_memory(&hole(BASE + 50_000)), [b.keys.mr]);
    a.post(2, SendOp::Read { addr, rkey }, &[a.sge(0, 8)]);
    pair.run();
    let [a, b] = &mut pair.sides;
    assert_eq!(done(a), [(2, Status::RemoteAccessError)]);
    assert!(
        b.device.deregister(b.keys.mr).is_err(),
        "the window is still bound"
    );
    b.device.dealloc_mw(mw).unwrap();
    b.device.deregister(b.keys.mr).unwrap();
}
