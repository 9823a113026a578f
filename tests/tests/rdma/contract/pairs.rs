//! Commands about queue pairs, address handles and groups (section 5.5).

use anyhow::Result;
use vnic_device::command::device::capabilities;
use vnic_device::command::qp::{AddressVector, CreateAh, CreateQp, Multicast, QpRate, QpReply};
use vnic_device::command::{NONE, Object, Opcode as O};
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpState, QpType};
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::rdma::{Driver, Qp, QpSpec, ReceiveRing, SendRing, Side, World, Wr, fill, link};

use super::{fine, flows, refused, states};

pub const NOBODY: u32 = 0x00ff_0000;

pub fn handle(handle: u32) -> Object {
    Object { handle, reserved: 0 }
}

pub fn all(world: &mut World) -> Result<Driver> {
    let mut s = world.side("a")?;
    addresses(&mut s);
    create(&mut s);
    by_chunks(&mut s);
    rates(&mut s);
    states::modify(&mut s);
    states::draining(&mut s);
    flows::all(&mut s);
    groups(&mut s);
    Ok(s.d)
}

/// An address of nobody.
pub fn unknown(known: AddressVector) -> AddressVector {
    AddressVector {
        dgid: *b"\xfd\x00\0\0\0\0\0\0\0\0\0\0\0\0\x99\x99",
        dmac: [0; 6],
        ..known
    }
}

fn addresses(s: &mut Side) {
    let (d, pd) = (&mut s.d, s.pd);
    let good = d.own_address();
    let make = |address| CreateAh {
        pd,
        reserved: 0,
        address,
    };
    for (address, status) in [
        (
            AddressVector {
                sgid_index: 200,
                ..good
            },
            S::NoSuchObject,
        ),
        (
            AddressVector {
                sgid_index: u16::MAX,
                ..good
            },
            S::OutOfRange,
        ),
        (
            AddressVector {
                dgid: [0; 16],
                ..good
            },
            S::Invalid,
        ),
        (
            AddressVector {
                flow_label: 1 << 20,
                ..good
            },
            S::OutOfRange,
        ),
        (
            AddressVector {
                service_level: 16,
                ..good
            },
            S::OutOfRange,
        ),
        (unknown(good), S::Unreachable),
    ] {
        refused(d, O::CreateAh, &make(address), &[], status);
    }
    refused(
        d,
        O::CreateAh,
        &CreateAh {
            pd: NOBODY,
            ..make(good)
        },
        &[],
        S::NoSuchObject,
    );
    let odd = AddressVector {
        flow_label: 0xf_ffff,
        traffic_class: 0xff,
        hop_limit: 255,
        service_level: 15,
        ..good
    };
    // The device finds its own adapters' addresses; groups have one by rule.
    let found = AddressVector { dmac: [0; 6], ..odd };
    let group = AddressVector {
        dgid: *b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\x07",
        dmac: [0; 6],
        ..odd
    };
    let by_rule = AddressVector {
        dmac: [0x33, 0x33, 0, 0, 0, 7],
        ..group
    };
    for (given, shown) in [(odd, odd), (found, odd), (group, by_rule)] {
        let ah = Object::read_from_bytes(&fine(d, O::CreateAh, &make(given), &[]).bytes).expect("an object");
        let reply = fine(d, O::QueryAh, &ah, &[]);
        assert_eq!(
            AddressVector::read_from_bytes(&reply.bytes).expect("an address"),
            shown
        );
        fine(d, O::DestroyAh, &ah, &[]);
        refused(d, O::QueryAh, &ah, &[], S::NoSuchObject);
        refused(d, O::DestroyAh, &ah, &[], S::NoSuchObject);
    }
}

fn create(s: &mut Side) {
    let (pd, cq) = (s.pd, s.cq.handle);
    let d = &mut s.d;
    let limits = d.device();
    let area = d.area(1 << 16);
    let at = area.extents[0].gpa;
    let pieces = [
        Extent { gpa: at, len: 4096 },
        Extent {
            gpa: at + 8192,
            len: 16 * 64,
        },
    ];
    let list = pieces.as_bytes();
    let one = ExtentList { count: 1, chunks: 0 };
    let rc = CreateQp {
        qp_type: QpType::Rc.number(),
        flags: 1,
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: NONE,
        xrcd: NONE,
        send_blocks: 64,
        send_elements: 4,
        max_inline: 200,
        receive_entries: 16,
        receive_elements: 3,
        send_ring: one,
        receive_ring: one,
        access_key: 0,
    };
    let xrcd = d.xrcd();
    let plain = d.srq(pd, 4, 1, None);
    let xrc_srq = d.srq(pd, 4, 1, Some((xrcd, cq)));
    let none = ExtentList::default();
    let no_receives = CreateQp {
        receive_entries: 0,
        receive_elements: 0,
        receive_ring: none,
        ..rc
    };
    let initiator = CreateQp {
        qp_type: QpType::XrcInitiator.number(),
        recv_cq: NONE,
        ..no_receives
    };
    let target = CreateQp {
        qp_type: QpType::XrcTarget.number(),
        pd: NONE,
        send_cq: NONE,
        recv_cq: NONE,
        srq: NONE,
        xrcd,
        ..CreateQp::default()
    };
    let shared = CreateQp {
        srq: plain.handle,
        ..no_receives
    };
    let dc_initiator = CreateQp {
        qp_type: QpType::DcInitiator.number(),
        ..initiator
    };
    let dc_target = CreateQp {
        qp_type: QpType::DcTarget.number(),
        pd,
        recv_cq: cq,
        srq: plain.handle,
        xrcd: NONE,
        access_key: 7,
        ..target
    };
    let (all, send) = (list, pieces[0].as_bytes());
    let receive = pieces[1].as_bytes();
    let rows = [
        // Objects that there are not.
        (CreateQp { pd: NOBODY, ..rc }, all, S::NoSuchObject),
        (
            CreateQp {
                send_cq: NOBODY,
                ..rc
            },
            all,
            S::NoSuchObject,
        ),
        (
            CreateQp {
                recv_cq: NOBODY,
                ..rc
            },
            all,
            S::NoSuchObject,
        ),
        (
            CreateQp {
                srq: NOBODY,
                ..no_receives
            },
            send,
            S::NoSuchObject,
        ),
        (
            CreateQp {
                xrcd: NOBODY,
                ..target
            },
            &[][..],
            S::NoSuchObject,
        ),
        // Fields that should be none, or should not be.
        (CreateQp { pd: NONE, ..rc }, all, S::Invalid),
        (CreateQp { send_cq: NONE, ..rc }, all, S::Invalid),
        (CreateQp { recv_cq: NONE, ..rc }, all, S::Invalid),
        (CreateQp { xrcd, ..rc }, all, S::Invalid),
        (
            CreateQp {
                recv_cq: cq,
                ..initiator
            },
            send,
            S::Invalid,
        ),
        (CreateQp { xrcd, ..initiator }, send, S::Invalid),
        (
            CreateQp {
                srq: plain.handle,
                ..initiator
            },
            send,
            S::Invalid,
        ),
        (CreateQp { pd, ..target }, &[], S::Invalid),
        (
            CreateQp {
                send_cq: cq,
                ..target
            },
            &[],
            S::Invalid,
        ),
        (CreateQp { xrcd: NONE, ..target }, &[], S::Invalid),
        (
            CreateQp {
                srq: plain.handle,
                ..target
            },
            &[],
            S::Invalid,
        ),
        (
            CreateQp {
                recv_cq: cq,
                ..dc_initiator
            },
            send,
            S::Invalid,
        ),
        (
            CreateQp {
                srq: plain.handle,
                ..dc_initiator
            },
            send,
            S::Invalid,
        ),
        (
            CreateQp {
                access_key: 1,
                ..dc_initiator
            },
            send,
            S::Invalid,
        ),
        (CreateQp { access_key: 1, ..rc }, all, S::Invalid),
        (
            CreateQp {
                srq: NONE,
                ..dc_target
            },
            &[],
            S::Invalid,
        ),
        (
            CreateQp {
                recv_cq: NONE,
                ..dc_target
            },
            &[],
            S::Invalid,
        ),
        (
            CreateQp {
                send_cq: cq,
                ..dc_target
            },
            &[],
            S::Invalid,
        ),
        // Rings that it does not have.
        (
            CreateQp {
                send_blocks: 64,
                send_ring: one,
                ..dc_target
            },
            send,
            S::Invalid,
        ),
        (
            CreateQp {
                send_blocks: 64,
                send_ring: one,
                ..target
            },
            send,
            S::Invalid,
        ),
        (
            CreateQp {
                send_elements: 1,
                ..target
            },
            &[],
            S::Invalid,
        ),
        (
            CreateQp {
                receive_entries: 16,
                receive_ring: one,
                ..target
            },
            receive,
            S::Invalid,
        ),
        (
            CreateQp {
                receive_entries: 16,
                receive_ring: one,
                ..initiator
            },
            all,
            S::Invalid,
        ),
        (
            CreateQp {
                receive_entries: 16,
                receive_ring: one,
                ..shared
            },
            all,
            S::Invalid,
        ),
        (
            CreateQp {
                send_blocks: 0,
                send_ring: none,
                max_inline: 0,
                ..rc
            },
            receive,
            S::Invalid,
        ),
        (
            CreateQp {
                send_blocks: 0,
                send_ring: none,
                send_elements: 0,
                ..rc
            },
            receive,
            S::Invalid,
        ),
        // Fewer blocks than the longest request takes: 32 + 200 bytes are four.
        (CreateQp { send_blocks: 2, ..rc }, all, S::Invalid),
        (
            CreateQp {
                send_blocks: 2,
                max_inline: 0,
                send_elements: 7,
                ..rc
            },
            all,
            S::Invalid,
        ),
        // No powers of two; an SRQ for XRC.
        (
            CreateQp {
                send_blocks: 48,
                ..rc
            },
            all,
            S::Invalid,
        ),
        (
            CreateQp {
                receive_entries: 15,
                ..rc
            },
            all,
            S::Invalid,
        ),
        (
            CreateQp {
                srq: xrc_srq.handle,
                ..shared
            },
            send,
            S::Invalid,
        ),
        // Beyond limits.
        (
            CreateQp {
                send_blocks: 2 * limits.max_send_blocks,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                receive_entries: 2 * limits.max_qp_wr.next_power_of_two(),
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                send_elements: limits.max_sge + 1,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                send_elements: u32::MAX,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                max_inline: limits.max_inline + 1,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                max_inline: u32::MAX,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                receive_elements: 256,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        (
            CreateQp {
                receive_elements: u32::MAX,
                ..rc
            },
            all,
            S::OutOfRange,
        ),
        // Rings too short, and lists.
        (
            CreateQp {
                send_blocks: 128,
                ..rc
            },
            all,
            S::BadAddress,
        ),
        (
            CreateQp {
                receive_entries: 32,
                ..rc
            },
            all,
            S::BadAddress,
        ),
        (
            CreateQp {
                receive_ring: none,
                ..rc
            },
            send,
            S::BadAddress,
        ),
        (rc, send, S::Malformed),
        (no_receives, all, S::Malformed),
        (
            CreateQp {
                send_ring: ExtentList {
                    count: limits.max_mr_extents + 1,
                    chunks: 1,
                },
                ..rc
            },
            all,
            S::LimitReached,
        ),
    ];
    for (body, list, status) in rows {
        refused(d, O::CreateQp, &body, list, status);
    }
    for (body, list) in [
        (rc, all),
        (no_receives, send),
        (initiator, send),
        (target, &[]),
        (shared, send),
    ] {
        let qp = Object::read_from_bytes(&fine(d, O::CreateQp, &body, list).bytes).expect("an object");
        assert!(qp.handle > 1 && qp.handle < 0xff_ffff);
        let reply = QpReply::read_from_bytes(&fine(d, O::QueryQp, &qp, &[]).bytes).expect("a reply");
        let shown = CreateQp {
            send_ring: none,
            receive_ring: none,
            ..body
        };
        assert_eq!(reply.created, shown);
        assert_eq!(reply.attributes.state, QpState::Reset.number());
        fine(d, O::DestroyQp, &qp, &[]);
        refused(d, O::QueryQp, &qp, &[], S::NoSuchObject);
        refused(d, O::DestroyQp, &qp, &[], S::NoSuchObject);
    }
}

/// Rates of send queues.
fn rates(s: &mut Side) {
    let device = s.d.device();
    assert_eq!((device.min_qp_rate, device.max_qp_rate), (1, 100_000_000));
    assert_ne!(device.capabilities & capabilities::RATE_LIMIT, 0);
    let own = s.d.own_address();
    let qp = s.qp(QpType::Rc);
    let number = qp.number;
    let domain = s.d.xrcd();
    let spec = QpSpec {
        xrcd: domain,
        ..s.spec(QpType::XrcTarget)
    };
    let d = &mut s.d;
    let target = d.qp(&spec).number;
    let rate = |rate, max_burst, typical_packet| QpRate {
        qp: number,
        rate,
        max_burst,
        typical_packet,
        reserved: 0,
    };
    let shown = |d: &mut Driver| {
        let reply = fine(d, O::QueryQpRate, &handle(number), &[]);
        QpRate::read_from_bytes(&reply.bytes).expect("a rate")
    };
    // In RESET, in RTS, and gone with RESET.
    assert_eq!(shown(d), rate(0, 0, 0));
    fine(d, O::ModifyQpRate, &rate(1, 0, 0), &[]);
    assert_eq!(shown(d), rate(1, 0, 0));
    d.up(&qp, &link(own, number));
    fine(d, O::ModifyQpRate, &rate(100_000_000, u32::MAX, u16::MAX), &[]);
    assert_eq!(shown(d), rate(100_000_000, u32::MAX, u16::MAX));
    let nobody = QpRate {
        qp: NOBODY,
        ..rate(1, 0, 0)
    };
    let of_target = QpRate {
        qp: target,
        ..rate(1, 0, 0)
    };
    let marked = QpRate {
        reserved: 1,
        ..rate(1, 0, 0)
    };
    for (body, status) in [
        (rate(100_000_001, 0, 0), S::OutOfRange),
        (rate(0, 1, 0), S::Invalid),
        (rate(0, 0, 1), S::Invalid),
        (nobody, S::NoSuchObject),
        (of_target, S::Invalid),
        (marked, S::NotSupported),
    ] {
        refused(d, O::ModifyQpRate, &body, &[], status);
    }
    refused(d, O::QueryQpRate, &handle(NOBODY), &[], S::NoSuchObject);
    assert_eq!(shown(d), rate(100_000_000, u32::MAX, u16::MAX));
    d.to(&qp, QpState::Reset);
    assert_eq!(shown(d), rate(0, 0, 0));
    for qp in [number, target] {
        fine(d, O::DestroyQp, &handle(qp), &[]);
    }
    fine(d, O::CloseXrcd, &handle(domain), &[]);
}

/// Both rings by chunks of extents, and work requests that lie in them.
fn by_chunks(s: &mut Side) {
    let (pd, cq) = (s.pd, s.cq.handle);
    let own = s.d.own_address();
    let send = s.d.area_in(&[64, 128, 64 * 13]);
    let receive = s.d.area_in(&[256, 128, 640]);
    let tables = [&send, &receive].map(|ring| {
        let table = s.d.area_in(&[16, 32]);
        table.write(0, ring.extents.as_bytes());
        table
    });
    let announced = ExtentList { count: 3, chunks: 2 };
    let body = CreateQp {
        qp_type: QpType::Rc.number(),
        pd,
        send_cq: cq,
        recv_cq: cq,
        srq: NONE,
        xrcd: NONE,
        send_blocks: 16,
        send_elements: 6,
        receive_entries: 8,
        receive_elements: 7,
        send_ring: announced,
        receive_ring: announced,
        ..CreateQp::default()
    };
    let list = tables.each_ref().map(|t| t.extents.as_bytes()).concat();
    refused(&mut s.d, O::CreateQp, &body, &list[..48], S::Malformed);
    let made = fine(&mut s.d, O::CreateQp, &body, &list);
    let number = Object::read_from_bytes(&made.bytes).expect("an object").handle;
    // The tables are read once.
    for table in &tables {
        table.write(0, &[0xff; 48]);
    }
    let (producer, consumer) = (0, 0);
    let mut qp = Qp {
        number,
        qp_type: QpType::Rc,
        send: Some(SendRing {
            area: send,
            blocks: 16,
            producer,
            consumer,
        }),
        receive: Some(ReceiveRing {
            area: receive,
            entries: 8,
            stride: 128,
            producer,
            consumer,
        }),
    };
    s.d.up(&qp, &link(own, number));
    for n in 0..50u64 {
        let bytes = fill(n, 600);
        s.mr.area.write(0, &bytes);
        let parts: Vec<_> = (0..6).map(|i| s.at(100 * i, 100)).collect();
        let into: Vec<_> = (0..7).map(|i| s.at(8192 + 100 * i, 100)).collect();
        s.receive(&mut qp, n, &into);
        s.post(&mut qp, &Wr::send(n, &parts));
        for _ in 0..2 {
            let e = s.cq.good(n);
            assert_eq!(e.consumed, (n as u32 + 1) * if e.kind == 0 { 2 } else { 1 });
        }
        assert_eq!(s.mr.area.bytes(8192, 600), bytes);
    }
    fine(&mut s.d, O::DestroyQp, &handle(number), &[]);
}

fn groups(s: &mut Side) {
    let group = |last| {
        let mut gid = *b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        gid[15] = last;
        gid
    };
    let most = s.d.device().max_mcast_qp_per_group;
    let (qp, rc) = (s.qp(QpType::Ud), s.qp(QpType::Rc));
    let d = &mut s.d;
    let join = |qp, gid| Multicast { qp, reserved: 0, gid };
    for opcode in [O::AttachMulticast, O::DetachMulticast] {
        refused(d, opcode, &join(NOBODY, group(1)), &[], S::NoSuchObject);
    }
    refused(d, O::AttachMulticast, &join(rc.number, group(1)), &[], S::Invalid);
    let mut unicast = group(1);
    unicast[0] = 0xfd;
    refused(d, O::AttachMulticast, &join(qp.number, unicast), &[], S::Invalid);
    fine(d, O::AttachMulticast, &join(qp.number, group(1)), &[]);
    refused(d, O::DestroyQp, &handle(qp.number), &[], S::InUse);
    refused(
        d,
        O::DetachMulticast,
        &join(qp.number, group(2)),
        &[],
        S::NoSuchObject,
    );
    fine(d, O::DetachMulticast, &join(qp.number, group(1)), &[]);
    refused(
        d,
        O::DetachMulticast,
        &join(qp.number, group(1)),
        &[],
        S::NoSuchObject,
    );
    fine(d, O::DestroyQp, &handle(qp.number), &[]);
    let spec = QpSpec {
        blocks: 0,
        elements: 0,
        inline: 0,
        ..s.spec(QpType::Ud).without_receives()
    };
    for _ in 0..most {
        let qp = s.d.qp(&spec);
        fine(&mut s.d, O::AttachMulticast, &join(qp.number, group(3)), &[]);
    }
    let qp = s.d.qp(&spec);
    refused(
        &mut s.d,
        O::AttachMulticast,
        &join(qp.number, group(3)),
        &[],
        S::LimitReached,
    );
    fine(&mut s.d, O::AttachMulticast, &join(qp.number, group(4)), &[]);
}
