//! Heads, lengths, chains, room (section 5.1), and what is reserved.

use anyhow::Result;
use vnic_device::command::connection::Listen;
use vnic_device::command::device::{DeviceReply, GidRecord, Hello, JudgePost, PortReply};
use vnic_device::command::flow::CreateFlow;
use vnic_device::command::memory::{
    AllocDm, AllocMw, CopyDm, RegisterDmMr, RegisterMr, ReregisterMr, SetPages,
};
use vnic_device::command::qp::{
    AddressVector, CreateAh, CreateQp, ModifyQp, Multicast, QpAttributes, QpRate, QpReply,
};
use vnic_device::command::queues::{CreateSrq, ModifySrq};
use vnic_device::command::{CommandHead, NONE, Object, Opcode as O, Range, ReplyHead};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::QpType;
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::feature;
use vnic_tests::driver::rdma::{Driver, Options, Pieces, Side, World, spec};

use super::{fine, refused};

/// Statuses that say that the framing was right.
fn understood(status: S) -> bool {
    !matches!(status, S::Malformed | S::NotSupported | S::NotReady | S::Internal)
}

pub fn all(world: &mut World) -> Result<Driver> {
    let options = Options {
        features: Options::default().features | feature::RING_INDIRECT_DESC | feature::RING_EVENT_IDX,
        ..Options::default()
    };
    let mut d = Driver::attach(world.socket("a"), options)?;
    not_ready(&mut d);
    versions(&mut d);
    lengths(&mut d);
    room(&mut d);
    chains(&mut d);
    no_command(&mut d);
    Ok(d)
}

fn not_ready(d: &mut Driver) {
    for opcode in O::ALL.into_iter().filter(|o| *o != O::Hello) {
        let body = vec![0; spec::shape(opcode).0];
        let reply = d.command(opcode, &body, &[]);
        assert_eq!(reply.status, S::NotReady, "{opcode:?} before HELLO: {reply}");
    }
}

fn versions(d: &mut Driver) {
    let hello = |abi_major, minor_min, minor_max| Hello {
        abi_major,
        minor_min,
        minor_max,
        features: u64::MAX,
        ..Hello::default()
    };
    for other in [hello(2, 0, 0), hello(0, 0, 0), hello(1, 10, 11), hello(1, 1, 0)] {
        let reply = d.command(O::Hello, other.as_bytes(), &[]);
        assert_eq!(reply.status, S::NotSupported, "{other:?}: {reply}");
        assert_eq!(d.status(O::QueryClock, &[0u8; 0], &[]), S::NotReady);
    }
    // Newer drivers that can speak 1.0, too; features that there are not are not agreed on.
    let reply = fine(d, O::Hello, &hello(1, 0, 10), &[]);
    assert_eq!((reply.bytes[0], &reply.bytes[1..]), (9, &[0; 15][..]));
    refused(d, O::Hello, &hello(1, 0, 0), &[], S::WrongState);
    // RESET ends the agreement.
    fine(d, O::Reset, &[0u8; 0], &[]);
    assert_eq!(d.status(O::Reset, &[0u8; 0], &[]), S::NotReady);
    let reply = fine(d, O::Hello, &hello(1, 0, 0), &[]);
    assert_eq!(reply.bytes, [0; 16]);
    version_0(d);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 2, 2), &[]);
    refused(d, O::JudgePost, &JudgePost::default(), &[], S::NotSupported);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 4, 4), &[]);
    version_4(d);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 5, 5), &[]);
    version_5(d);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 6, 6), &[]);
    version_6(d);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 7, 7), &[]);
    version_7(d);
    fine(d, O::Reset, &[0u8; 0], &[]);
    fine(d, O::Hello, &hello(1, 8, 8), &[]);
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    assert_eq!(reply.bytes.len(), size_of::<DeviceReply>());
    // A driver of version 1.8 hears no P_Keys.
    let reply = fine(d, O::QueryPort, &[0u8; 0], &[]);
    assert_eq!(reply.bytes.len(), PortReply::LEN_1_0);
}

/// A driver of version 1.7 has no hash queue pairs, and hears less of the device.
fn version_7(d: &mut Driver) {
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    let capabilities = u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes"));
    assert_eq!((capabilities, reply.bytes.len()), ((1 << 19) - 1, 184));
    refused(d, O::CreateHashQp, &[0u8; 560], &[], S::NotSupported);
    // Nor has it fields inside of tunnels.
    let mut flow = [0u8; 272];
    refused(d, O::CreateFlow, &flow, &[], S::NoSuchObject);
    flow[208] = 1;
    refused(d, O::CreateFlow, &flow, &[], S::NotSupported);
    refused(d, O::DestroyHashQp, &[0u8; 8], &[], S::NotSupported);
}

/// A driver of version 1.6 has no segments.
fn version_6(d: &mut Driver) {
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    let capabilities = u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(capabilities, (1 << 18) - 1);
}

/// A driver of version 1.5 has no raw packets.
fn version_5(d: &mut Driver) {
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    let capabilities = u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(capabilities, (1 << 17) - 1);
    let pd = d.pd();
    let cq = d.cq(4).handle;
    let raw = CreateQp {
        qp_type: QpType::RawPacket.number(),
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: NONE,
        xrcd: NONE,
        ..CreateQp::default()
    };
    refused(d, O::CreateQp, &raw, &[], S::NotSupported);
    refused(d, O::CreateFlow, &[0u8; 144], &[], S::NotSupported);
}

/// A driver of version 1.4 makes queue pairs with a shorter body, and hears less of them.
fn version_4(d: &mut Driver) {
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    let capabilities = u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(capabilities, (1 << 16) - 1);
    let pd = d.pd();
    let cq = d.cq(4).handle;
    let srq = d.srq(pd, 4, 1, None).handle;
    let target = CreateQp {
        qp_type: QpType::DcTarget.number(),
        pd,
        send_cq: NONE,
        recv_cq: cq,
        srq,
        xrcd: NONE,
        ..CreateQp::default()
    };
    refused(d, O::CreateQp, &target, &[], S::NotSupported);
    let plain = CreateQp {
        qp_type: QpType::Rc.number(),
        send_cq: cq,
        ..target
    };
    let reply = d.command(O::CreateQp, &plain.as_bytes()[..CreateQp::LEN_1_0], &[]);
    assert_eq!(reply.status, S::Ok, "{reply}");
    let qp = Object::read_from_bytes(&reply.bytes).expect("a handle");
    assert_eq!(fine(d, O::QueryQp, &qp, &[]).bytes.len(), QpReply::LEN_1_0);
    let reply = d.command(O::CreateQp, &plain.as_bytes()[..CreateQp::LEN_1_0 - 8], &[]);
    assert_eq!(reply.status, S::Malformed, "{reply}");
}

/// A driver of version 1.0 sees what there was in 1.0, however much room it has.
fn version_0(d: &mut Driver) {
    let reply = d.command_in(O::QueryDevice, &[], &[], 512);
    assert_eq!((reply.status, reply.bytes.len()), (S::Ok, 176));
    assert_eq!(reply.bytes[172..], [0; 4]);
    let capabilities = u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes"));
    assert_eq!(capabilities, (1 << 12) - 1);
    assert_eq!(d.command_in(O::QueryDevice, &[], &[], 176).status, S::Ok);
    let rate = QpRate {
        qp: 2,
        rate: 1000,
        ..QpRate::default()
    };
    refused(d, O::ModifyQpRate, &rate, &[], S::NotSupported);
    refused(d, O::QueryQpRate, &Object::default(), &[], S::NotSupported);
    fine(d, O::Reset, &[0u8; 0], &[]);
    let hello = Hello {
        abi_major: 1,
        minor_max: 1,
        ..Hello::default()
    };
    assert_eq!(fine(d, O::Hello, &hello, &[]).bytes[0], 1);
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    assert_eq!(
        u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes")),
        (1 << 13) - 1
    );
    refused(d, O::RegisterNullMr, &Object::default(), &[], S::NotSupported);
    fine(d, O::Reset, &[0u8; 0], &[]);
    let hello = Hello {
        minor_max: 2,
        ..hello
    };
    assert_eq!(fine(d, O::Hello, &hello, &[]).bytes[0], 2);
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    assert_eq!(
        u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes")),
        (1 << 14) - 1
    );
    refused(d, O::SetPages, &SetPages::default(), &[], S::NotSupported);
    fine(d, O::Reset, &[0u8; 0], &[]);
    let hello = Hello {
        minor_max: 3,
        ..hello
    };
    assert_eq!(fine(d, O::Hello, &hello, &[]).bytes[0], 3);
    let reply = fine(d, O::QueryDevice, &[0u8; 0], &[]);
    assert_eq!(
        u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes")),
        (1 << 15) - 1
    );
    refused(d, O::Listen, &Listen::default(), &[], S::NotSupported);
}

fn lengths(d: &mut Driver) {
    for opcode in O::ALL {
        let (len, list) = spec::shape(opcode);
        let mut expect = |what: &str, head: CommandHead, behind: &[u8], status: S| {
            let reply = d.command_with(head, behind, 64);
            assert_eq!(reply.status, status, "{opcode:?}, {what}: {reply}");
        };
        let head = |body: usize, all: usize| CommandHead {
            opcode: opcode.number(),
            body_len: body as u16,
            len: all as u32,
            cookie: 0xfeed_0000_0000_0000 | u64::from(opcode.number()),
        };
        let zeros = [0; 1024];
        expect(
            "len beyond the chain",
            head(len, len + 8),
            &zeros[..len],
            S::Malformed,
        );
        expect(
            "len beyond everything",
            head(len, u32::MAX as usize),
            &zeros[..len],
            S::Malformed,
        );
        expect("body beyond len", head(len + 8, len), &zeros[..len], S::Malformed);
        expect(
            "body of no 8 bytes",
            head(len + 4, len + 4),
            &zeros[..len + 4],
            S::Malformed,
        );
        if len > 0 {
            expect(
                "short body",
                head(len - 8, len - 8),
                &zeros[..len - 8],
                S::Malformed,
            );
            expect("no body", head(0, 0), &[], S::Malformed);
        }
        if !list {
            expect("a list", head(len, len + 16), &zeros[..len + 16], S::Malformed);
        }
        // (The device takes the body of the first version, too.)
        let all = match opcode {
            O::CreateFlow => size_of::<CreateFlow>(),
            _ => len,
        };
        let mut longer = vec![0; all + 8];
        longer[all + 7] = 1;
        expect("a later field", head(all + 8, all + 8), &longer, S::NotSupported);
        // (Nobody listens for a service twice.)
        if matches!(opcode, O::Hello | O::Reset | O::Listen) {
            continue;
        }
        // Fields of later versions that are zero, and bytes behind `len`, mean nothing.
        let mut body = vec![0; len + 16];
        if len > 0 {
            // A handle that there is not.
            body[2] = 0xff;
        }
        let plain = d.command_with(head(len, len), &body[..len], 4096).status;
        let longer = d.command_with(head(len + 16, len + 16), &body, 4096).status;
        let mut noisy = body[..len].to_vec();
        noisy.extend_from_slice(&[0xff; 40]);
        let noisy = d.command_with(head(len, len), &noisy, 4096).status;
        assert_eq!((plain, plain), (longer, noisy), "{opcode:?}");
    }
    // (These have made a few objects.)
    fine(d, O::Reset, &[0u8; 0], &[]);
    d.hello();
    // A list that is longer or shorter than its extents.
    let pd = d.pd();
    let area = d.area(4096);
    let body = RegisterMr {
        pd,
        access: 0,
        iova: 0,
        extents: vnic_tests::driver::rdma::extents(&area),
    };
    for wrong in [0, 15, 8, 17, 32] {
        let list = [area.extents.as_bytes(), &[0; 16]].concat();
        refused(d, O::RegisterMr, &body, &list[..wrong], S::Malformed);
    }
    fine(d, O::RegisterMr, &body, area.extents.as_bytes());
}

fn room(d: &mut Driver) {
    let most = d.device().max_command_len as usize;
    assert!(most >= 65536);
    // As long as may be, and longer.
    let piece = fine(
        d,
        O::AllocDm,
        &AllocDm {
            len: 65536,
            ..AllocDm::default()
        },
        &[],
    );
    let (piece, _) = Object::read_from_prefix(&piece.bytes).expect("an object");
    let copy = |len: usize| CopyDm {
        dm: piece.handle,
        len: len as u32,
        offset: 0,
    };
    refused(
        d,
        O::CopyToDm,
        &copy(most - 16),
        &vec![1; most - 16],
        S::OutOfRange,
    );
    refused(d, O::CopyToDm, &copy(most), &vec![1; most], S::LimitReached);
    fine(d, O::CopyToDm, &copy(65536), &vec![7; 65536]);
    // Replies that find no room.
    let rows: [(O, Vec<u8>, usize); 8] = [
        (O::QueryDevice, vec![], 192),
        (O::QueryPort, vec![], 72),
        (O::QueryClock, vec![], 8),
        (O::AllocPd, vec![], 8),
        (O::OpenXrcd, vec![], 8),
        (O::QueryGids, Range::default().as_bytes().to_vec(), 32),
        (O::QueryCounters, Range::default().as_bytes().to_vec(), 64),
        (O::CopyFromDm, copy(1000).as_bytes().to_vec(), 1000),
    ];
    for (opcode, body, need) in rows {
        let before = d.resources();
        for room in [0, 1, need - 1] {
            let reply = d.command_in(opcode, &body, &[], room);
            assert_eq!(
                reply.status,
                S::Malformed,
                "{opcode:?} with room for {room}: {reply}"
            );
        }
        assert_eq!(d.resources(), before, "{opcode:?}");
        assert_eq!(d.command_in(opcode, &body, &[], need).status, S::Ok, "{opcode:?}");
    }
    // Lists are cut to whole records, and go on where they were cut.
    let whole = d
        .command_in(O::QueryCounters, Range::default().as_bytes(), &[], 65536)
        .bytes;
    let mut parts = Vec::new();
    loop {
        let first = (parts.len() / 64) as u32;
        let range = Range { first, reserved: 0 };
        let part = d.command_in(O::QueryCounters, range.as_bytes(), &[], 3 * 64 + 63);
        parts.extend_from_slice(&part.bytes);
        if part.bytes.len() < 3 * 64 {
            break;
        }
    }
    let names = |bytes: &[u8]| bytes.chunks(64).map(|r| r[..56].to_vec()).collect::<Vec<_>>();
    assert_eq!(names(&parts), names(&whole));
    assert!(names(&whole).iter().all(|n| n[0].is_ascii_lowercase()));
    let behind = Range {
        first: u32::MAX,
        reserved: 0,
    };
    for opcode in [O::QueryCounters, O::QueryGids, O::QueryResources] {
        assert!(fine(d, opcode, &behind, &[]).bytes.is_empty(), "{opcode:?}");
    }
    // Texts are cut to the room.
    let pd = Object {
        handle: 0xffff_0000,
        reserved: 0,
    };
    let text = refused(d, O::DeallocPd, &pd, &[], S::NoSuchObject).bytes;
    for room in [0, 1, 7] {
        let reply = d.command_in(O::DeallocPd, pd.as_bytes(), &[], room);
        assert_eq!((reply.status, &reply.bytes[..]), (S::NoSuchObject, &text[..room]));
    }
}

fn chains(d: &mut Driver) {
    // Heads, bodies and replies in any pieces.
    let cuts: [(&[u32], &[u32]); 5] = [
        (&[1], &[7]),
        (&[16], &[16, 1000]),
        (&[3, 14, 5], &[1]),
        (&[15, 2], &[17]),
        (&[1000], &[5, 11]),
    ];
    for (indirect, (readable, writable)) in [false, true].into_iter().flat_map(|i| cuts.map(|c| (i, c))) {
        d.pieces = Pieces {
            readable: readable.to_vec(),
            writable: writable.to_vec(),
            indirect,
        };
        let room = if writable == [1] { 72 } else { 104 };
        let reply = d.command_in(O::QueryPort, &[], &[], room);
        assert_eq!((reply.status, reply.bytes.len()), (S::Ok, 72), "{:?}", d.pieces);
        let bad = d.command_in(O::DestroyCq, &[9; 4].repeat(2), &[], room);
        assert_eq!(bad.status, S::NotSupported, "{:?}: {bad}", d.pieces);
    }
    d.pieces = Pieces::default();
    // No room for a head: given back with nothing done.
    let before = d.resources();
    let head = d.head(O::AllocPd, 0, 0);
    for room in [0, 1, 15] {
        assert_eq!(d.raw(head.as_bytes(), room).0, 0, "room for {room}");
    }
    assert_eq!(d.resources(), before);
    // No head: there is nobody to answer to but the chain.
    for len in [0, 1, 15] {
        let (used, reply) = d.raw(&head.as_bytes()[..len], 64);
        let (reply, _) = ReplyHead::read_from_prefix(&reply).expect("room for a head");
        assert_eq!(reply.status, S::Malformed.number());
        assert_eq!(used, 16 + reply.len);
    }
    assert_eq!(d.resources(), before);
    // Many under way come back in order.
    let mut clocks = Vec::new();
    d.burst((0..1000).map(|_| (O::QueryClock, Vec::new())), |reply| {
        clocks.push(u64::from_le_bytes(reply.bytes[..8].try_into().expect("8 bytes")));
    });
    assert_eq!(clocks.len(), 1000);
    assert!(clocks.is_sorted(), "the clock is monotonic");
}

fn no_command(d: &mut Driver) {
    for opcode in (0..=u16::MAX).step_by(257).chain(0..70) {
        if O::from_number(opcode).is_some() {
            continue;
        }
        let head = CommandHead {
            opcode,
            body_len: 8,
            len: 8,
            cookie: 3,
        };
        let reply = d.command_with(head, &[0; 8], 100);
        assert_eq!(reply.status, S::NotSupported, "command {opcode}: {reply}");
    }
}

/// Reserved fields, unknown flags and numbers: one at a time, in commands that are right otherwise.
pub fn reserved(world: &mut World) -> Result<Driver> {
    let mut s = Side::new(
        Driver::attach(world.socket("a"), Options::default()).map(|mut d| {
            let hello = Hello {
                abi_major: 1,
                reserved: 1,
                ..Hello::default()
            };
            assert_eq!(d.status(O::Hello, &hello, &[]), S::NotSupported);
            d.hello();
            d
        })?,
    );
    let (pd, cq) = (s.pd, s.cq.handle);
    let own = s.d.own_address();
    let qp = s.qp(QpType::Ud);
    s.d.init(&qp);
    let srq = s.d.srq(pd, 4, 1, None);
    let ah = s.d.ah(pd, own);
    let xrcd = s.d.xrcd();
    let dm = fine(
        &mut s.d,
        O::AllocDm,
        &AllocDm {
            len: 64,
            ..AllocDm::default()
        },
        &[],
    );
    let dm = Object::read_from_bytes(&dm.bytes).expect("an object").handle;
    let mw = fine(&mut s.d, O::AllocMw, &AllocMw { pd, mw_type: 1 }, &[]);
    let mw = u32::from_le_bytes(mw.bytes[..4].try_into().expect("4 bytes"));
    let d = &mut s.d;
    let handles = [
        (O::DeallocPd, pd),
        (O::RegisterNullMr, pd),
        (O::DeregisterMr, s.mr.handle),
        (O::DeallocMw, mw),
        (O::FreeDm, dm),
        (O::DestroyCq, cq),
        (O::QuerySrq, srq.handle),
        (O::DestroySrq, srq.handle),
        (O::QueryAh, ah),
        (O::DestroyAh, ah),
        (O::CloseXrcd, xrcd),
        (O::QueryQp, qp.number),
        (O::QueryQpRate, qp.number),
        (O::DestroyQp, qp.number),
        (O::DestroyFlow, 1),
        (O::DestroyHashQp, 1),
        (O::DestroyDoorbells, s.bells.handle),
    ];
    for (opcode, handle) in handles {
        refused(d, opcode, &Object { handle, reserved: 1 }, &[], S::NotSupported);
    }
    for opcode in [O::QueryGids, O::QueryCounters, O::QueryResources] {
        let range = Range {
            first: 0,
            reserved: 1 << 31,
        };
        refused(d, opcode, &range, &[], S::NotSupported);
    }
    let gid = GidRecord {
        gid: *b"\xfd\x00\0\0\0\0\0\0\0\0\0\0\0\0\0\x05",
        index: 50,
        kind: 2,
        ..GidRecord::default()
    };
    for wrong in [
        GidRecord { reserved: 1, ..gid },
        GidRecord {
            reserved_kind: 1,
            ..gid
        },
        GidRecord { kind: 3, ..gid },
    ] {
        refused(d, O::SetGid, &wrong, &[], S::NotSupported);
    }
    let post = JudgePost {
        queue: qp.number,
        ..JudgePost::default()
    };
    for wrong in [
        JudgePost { reserved: 1, ..post },
        JudgePost { post: 3, ..post },
        JudgePost {
            operation: 10,
            ..post
        },
        JudgePost {
            operation: 256,
            ..post
        },
        JudgePost {
            post: 1,
            operation: 2,
            ..post
        },
    ] {
        refused(d, O::JudgePost, &wrong, &[], S::NotSupported);
    }
    let area = d.area(4096);
    let (announced, list) = (
        vnic_tests::driver::rdma::extents(&area),
        area.extents.as_bytes().to_vec(),
    );
    for access in [1 << 6, 1 << 19, 1 << 30] {
        let body = RegisterMr {
            pd,
            access,
            iova: 0,
            extents: announced,
        };
        refused(d, O::RegisterMr, &body, &list, S::NotSupported);
        let body = ReregisterMr {
            mr: s.mr.handle,
            change: 4,
            register: RegisterMr {
                access,
                ..RegisterMr::default()
            },
        };
        refused(d, O::ReregisterMr, &body, &[], S::NotSupported);
        let body = RegisterDmMr {
            pd,
            access: access | 0x20,
            dm,
            len: 64,
            ..RegisterDmMr::default()
        };
        refused(d, O::RegisterDmMr, &body, &[], S::NotSupported);
    }
    // Optional rights mean nothing.
    let body = RegisterMr {
        pd,
        access: 0x3ff0_0000,
        iova: 0,
        extents: announced,
    };
    fine(d, O::RegisterMr, &body, &list);
    let body = ReregisterMr {
        mr: s.mr.handle,
        change: 8,
        register: RegisterMr::default(),
    };
    refused(d, O::ReregisterMr, &body, &[], S::NotSupported);
    for mw_type in [0, 3, u32::MAX] {
        refused(d, O::AllocMw, &AllocMw { pd, mw_type }, &[], S::NotSupported);
    }
    refused(
        d,
        O::AllocDm,
        &AllocDm {
            len: 64,
            reserved: 1,
            ..AllocDm::default()
        },
        &[],
        S::NotSupported,
    );
    let body = RegisterDmMr {
        pd,
        access: 0x20,
        dm,
        len: 64,
        reserved: 1,
        ..RegisterDmMr::default()
    };
    refused(d, O::RegisterDmMr, &body, &[], S::NotSupported);
    let body = CreateSrq {
        pd,
        entries: 4,
        elements: 1,
        xrcd: NONE,
        cq: NONE,
        reserved: 1,
        ring: announced,
    };
    refused(d, O::CreateSrq, &body, &list, S::NotSupported);
    let body = ModifySrq {
        srq: srq.handle,
        mask: 4,
        ..ModifySrq::default()
    };
    refused(d, O::ModifySrq, &body, &[], S::NotSupported);
    for (reserved, inner) in [(1, 0), (0, 1)] {
        let address = AddressVector {
            reserved: inner,
            ..own
        };
        refused(
            d,
            O::CreateAh,
            &CreateAh {
                pd,
                reserved,
                address,
            },
            &[],
            S::NotSupported,
        );
    }
    let good = CreateQp {
        qp_type: QpType::Ud.number(),
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: NONE,
        xrcd: NONE,
        ..CreateQp::default()
    };
    fine(d, O::CreateQp, &good, &[]);
    for qp_type in [0, 1, 5, 7, 11] {
        refused(
            d,
            O::CreateQp,
            &CreateQp { qp_type, ..good },
            &[],
            S::NotSupported,
        );
    }
    refused(
        d,
        O::CreateQp,
        &CreateQp { flags: 2, ..good },
        &[],
        S::NotSupported,
    );
    let modify = |mask, attributes| ModifyQp {
        qp: qp.number,
        mask,
        attributes,
    };
    let plain = QpAttributes {
        state: 6,
        ..QpAttributes::default()
    };
    let wrong = [
        modify(1, QpAttributes { reserved: 1, ..plain }),
        modify(
            1,
            QpAttributes {
                has_address: 1,
                ..plain
            },
        ),
        modify(1, QpAttributes { state: 7, ..plain }),
        modify(
            3,
            QpAttributes {
                current_state: 7,
                ..plain
            },
        ),
        modify(1 | 1 << 14, plain),
        modify(
            1 | 1 << 3,
            QpAttributes {
                access: 1 << 6,
                ..plain
            },
        ),
    ];
    for body in wrong {
        refused(d, O::ModifyQp, &body, &[], S::NotSupported);
    }
    let mut gid = [0; 16];
    gid[0] = 0xff;
    let body = Multicast {
        qp: qp.number,
        reserved: 1,
        gid,
    };
    refused(d, O::AttachMulticast, &body, &[], S::NotSupported);
    refused(d, O::DetachMulticast, &body, &[], S::NotSupported);
    assert!(understood(d.status(
        O::DetachMulticast,
        &Multicast { reserved: 0, ..body },
        &[]
    )));
    Ok(s.d)
}
