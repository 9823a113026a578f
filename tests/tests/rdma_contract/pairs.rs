//! Commands about queue pairs, address handles and groups (section 5.5).

use anyhow::Result;
use vnic_device::command::qp::{
    AddressVector, CreateAh, CreateQp, ModifyQp, Multicast, QpAttributes, QpReply,
};
use vnic_device::command::{NONE, Object, Opcode as O};
use vnic_device::queue::Operation;
use vnic_device::ring::{Extent, ExtentList};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpState, QpType, qp_mask as m};
use vnic_device::zerocopy::{FromBytes, IntoBytes};
use vnic_tests::driver::rdma::{Driver, Side, World, Wr, link};

use super::{fine, refused};

const NOBODY: u32 = 0x00ff_0000;

fn handle(handle: u32) -> Object {
    Object { handle, reserved: 0 }
}

pub fn all(world: &mut World) -> Result<Driver> {
    let mut s = world.side("a")?;
    addresses(&mut s);
    create(&mut s);
    modify(&mut s);
    draining(&mut s);
    groups(&mut s);
    Ok(s.d)
}

/// An address of nobody.
fn unknown(known: AddressVector) -> AddressVector {
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
                service_level: 8,
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
        service_level: 7,
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
        // Rings that it does not have.
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

fn modify(s: &mut Side) {
    let own = s.d.own_address();
    let qp = s.qp(QpType::Rc);
    let d = &mut s.d;
    let number = qp.number;
    let body = |mask, attributes| ModifyQp {
        qp: number,
        mask,
        attributes,
    };
    let state = |state: QpState| QpAttributes {
        state: state.number(),
        port: 1,
        ..QpAttributes::default()
    };
    let to_init = m::STATE | m::PKEY_INDEX | m::PORT | m::ACCESS;
    let init = state(QpState::Init);
    for (body, status) in [
        (
            ModifyQp {
                qp: NOBODY,
                ..body(to_init, init)
            },
            S::NoSuchObject,
        ),
        (body(m::STATE, state(QpState::Rts)), S::WrongState),
        (body(m::STATE, state(QpState::Sqe)), S::WrongState),
        (
            body(
                m::STATE | m::CURRENT_STATE,
                QpAttributes {
                    current_state: 3,
                    ..state(QpState::Err)
                },
            ),
            S::WrongState,
        ),
        (body(m::STATE, init), S::Invalid),
        (body(to_init | m::QKEY, init), S::Invalid),
        (body(to_init, QpAttributes { port: 2, ..init }), S::OutOfRange),
        (body(to_init, QpAttributes { port: 0, ..init }), S::OutOfRange),
        (
            body(
                to_init,
                QpAttributes {
                    pkey_index: 1,
                    ..init
                },
            ),
            S::OutOfRange,
        ),
    ] {
        refused(d, O::ModifyQp, &body, &[], status);
        assert_eq!(d.state(&qp), QpState::Reset);
    }
    d.init(&qp);
    // Without STATE it stays where it is.
    let access = QpAttributes {
        access: 2,
        ..QpAttributes::default()
    };
    d.modify(number, m::ACCESS, access).expect("INIT to INIT");
    let shown = d.query_qp(number).attributes;
    assert_eq!((shown.state, shown.access, shown.has_address), (1, 2, 0));

    let mask = m::STATE
        | m::ADDRESS
        | m::PATH_MTU
        | m::DESTINATION_QP
        | m::RQ_PSN
        | m::MAX_DEST_RD_ATOMIC
        | m::MIN_RNR_TIMER;
    let rtr = QpAttributes {
        path_mtu: 3,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 31,
        rq_psn: 0xff_ffff,
        destination_qp: number,
        address: own,
        ..state(QpState::Rtr)
    };
    let with = |address| body(mask, QpAttributes { address, ..rtr });
    for (body, status) in [
        (
            with(AddressVector {
                sgid_index: 99,
                ..own
            }),
            S::NoSuchObject,
        ),
        (with(unknown(own)), S::Unreachable),
        (
            with(AddressVector {
                dgid: [0xff; 16],
                ..own
            }),
            S::Invalid,
        ),
        (
            with(AddressVector {
                dmac: [0xff; 6],
                ..own
            }),
            S::Invalid,
        ),
        (
            with(AddressVector {
                flow_label: 1 << 20,
                ..own
            }),
            S::OutOfRange,
        ),
        (
            with(AddressVector {
                service_level: 8,
                ..own
            }),
            S::OutOfRange,
        ),
        (body(mask, QpAttributes { path_mtu: 0, ..rtr }), S::OutOfRange),
        (body(mask, QpAttributes { path_mtu: 4, ..rtr }), S::OutOfRange),
        (body(mask, QpAttributes { path_mtu: 6, ..rtr }), S::OutOfRange),
        (
            body(
                mask,
                QpAttributes {
                    max_dest_rd_atomic: 17,
                    ..rtr
                },
            ),
            S::OutOfRange,
        ),
        (
            body(
                mask,
                QpAttributes {
                    min_rnr_timer: 32,
                    ..rtr
                },
            ),
            S::OutOfRange,
        ),
        (
            body(
                mask,
                QpAttributes {
                    rq_psn: 1 << 24,
                    ..rtr
                },
            ),
            S::OutOfRange,
        ),
        (
            body(
                mask,
                QpAttributes {
                    destination_qp: 1 << 24,
                    ..rtr
                },
            ),
            S::OutOfRange,
        ),
        (
            body(
                mask | m::UDP_SOURCE_PORT,
                QpAttributes {
                    udp_source_port: 0,
                    ..rtr
                },
            ),
            S::OutOfRange,
        ),
        (body(mask & !m::RQ_PSN, rtr), S::Invalid),
        (body(mask | m::SQ_PSN, rtr), S::Invalid),
    ] {
        refused(d, O::ModifyQp, &body, &[], status);
        assert_eq!(d.query_qp(number).attributes, shown);
    }
    d.modify(
        number,
        mask | m::UDP_SOURCE_PORT,
        QpAttributes {
            udp_source_port: 50_000,
            ..rtr
        },
    )
    .expect("INIT to RTR");
    let mask = m::STATE | m::SQ_PSN | m::TIMEOUT | m::RETRY_COUNT | m::RNR_RETRY | m::MAX_RD_ATOMIC;
    let rts = QpAttributes {
        max_rd_atomic: 16,
        timeout: 31,
        retry_count: 7,
        rnr_retry: 7,
        sq_psn: 5,
        ..state(QpState::Rts)
    };
    for wrong in [
        QpAttributes {
            max_rd_atomic: 17,
            ..rts
        },
        QpAttributes { timeout: 32, ..rts },
        QpAttributes {
            retry_count: 8,
            ..rts
        },
        QpAttributes { rnr_retry: 8, ..rts },
        QpAttributes {
            sq_psn: 1 << 24,
            ..rts
        },
    ] {
        refused(d, O::ModifyQp, &body(mask, wrong), &[], S::OutOfRange);
    }
    d.modify(
        number,
        mask | m::CURRENT_STATE,
        QpAttributes {
            current_state: 2,
            ..rts
        },
    )
    .expect("RTR to RTS");
    let shown = d.query_qp(number).attributes;
    let set = QpAttributes {
        state: 3,
        current_state: 3,
        access: 2,
        udp_source_port: 50_000,
        has_address: 1,
        ..rtr
    };
    let set = QpAttributes {
        max_rd_atomic: 16,
        timeout: 31,
        retry_count: 7,
        rnr_retry: 7,
        sq_psn: 5,
        ..set
    };
    assert_eq!(shown, set);
    refused(
        d,
        O::ModifyQp,
        &body(
            m::STATE | m::DRAINED_EVENT,
            QpAttributes {
                drained_event: 2,
                ..state(QpState::Sqd)
            },
        ),
        &[],
        S::OutOfRange,
    );
    for state in [QpState::Err, QpState::Err, QpState::Reset, QpState::Reset] {
        d.to(&qp, state);
        assert_eq!(d.state(&qp), state);
    }
    fine(d, O::DestroyQp, &handle(number), &[]);
    refused(
        d,
        O::ModifyQp,
        &body(m::STATE, state(QpState::Err)),
        &[],
        S::NoSuchObject,
    );
}

/// In SQD nothing may change before it has drained.
fn draining(s: &mut Side) {
    let mut qp = s.qp(QpType::Rc);
    let own = s.d.own_address();
    // A peer that never answers, and a timeout that never ends.
    s.d.up(
        &qp,
        &vnic_tests::driver::rdma::Link {
            timeout: 0,
            ..link(own, 0xab_cdef)
        },
    );
    s.post(&mut qp, &Wr::new(1, Operation::Write, &[s.at(0, 8)]));
    s.bells.wait_taken();
    s.d.sync();
    s.d.to(&qp, QpState::Sqd);
    let attributes = QpAttributes {
        timeout: 9,
        ..QpAttributes::default()
    };
    let body = ModifyQp {
        qp: qp.number,
        mask: m::TIMEOUT,
        attributes,
    };
    refused(&mut s.d, O::ModifyQp, &body, &[], S::Invalid);
    s.d.to(&qp, QpState::Err);
    s.cq.expect(1, vnic_device::verbs::CompletionStatus::FlushError);
    s.d.to(&qp, QpState::Reset);
    qp.begin_anew();
    s.d.up(&qp, &link(own, qp.number));
    s.d.to(&qp, QpState::Sqd);
    fine(&mut s.d, O::ModifyQp, &body, &[]);
    assert_eq!(s.d.query_qp(qp.number).attributes.timeout, 9);
    fine(&mut s.d, O::DestroyQp, &handle(qp.number), &[]);
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
    let spec = vnic_tests::driver::rdma::QpSpec {
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
