//! Flows, and queue pairs that spread their frames: every end of their commands.

use vnic_device::command::device::capabilities;
use vnic_device::command::flow::{CreateFlow, CreateHashQp, HASH_QP};
use vnic_device::command::{Object, Opcode as O};
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::QpType;
use vnic_device::zerocopy::FromBytes;
use vnic_tests::driver::rdma::Side;

use super::pairs::{NOBODY, handle};
use super::{fine, refused};

pub fn all(s: &mut Side) {
    of_queue_pairs(s);
    hash_queue_pairs(s);
}

/// Flows of raw packet queue pairs.
fn of_queue_pairs(s: &mut Side) {
    assert_ne!(s.d.device().capabilities & capabilities::RAW_PACKET, 0);
    let (qp, ud) = (s.qp(QpType::RawPacket), s.qp(QpType::Ud));
    let d = &mut s.d;
    let plain = CreateFlow {
        qp: qp.number,
        ..CreateFlow::default()
    };
    let mut ports = plain;
    ports.mask.source_port = 1;
    let mut marked = plain;
    marked.value.reserved = 1;
    for (body, status) in [
        (CreateFlow { qp: NOBODY, ..plain }, S::NoSuchObject),
        (
            CreateFlow {
                qp: ud.number,
                ..plain
            },
            S::Invalid,
        ),
        (ports, S::Invalid),
        (marked, S::NotSupported),
        (CreateFlow { kind: 4, ..plain }, S::NotSupported),
        (
            CreateFlow {
                headers: 512,
                ..plain
            },
            S::NotSupported,
        ),
        (
            CreateFlow {
                priority: 1 << 16,
                ..plain
            },
            S::OutOfRange,
        ),
    ] {
        refused(d, O::CreateFlow, &body, &[], status);
    }
    let mut made = Vec::new();
    for priority in 0..16 {
        let reply = fine(d, O::CreateFlow, &CreateFlow { priority, ..plain }, &[]);
        made.push(Object::read_from_bytes(&reply.bytes).expect("an object"));
    }
    let one_more = CreateFlow {
        priority: 16,
        ..plain
    };
    refused(d, O::CreateFlow, &one_more, &[], S::LimitReached);
    refused(d, O::DestroyQp, &handle(qp.number), &[], S::InUse);
    refused(d, O::DestroyFlow, &handle(NOBODY), &[], S::NoSuchObject);
    for flow in made {
        fine(d, O::DestroyFlow, &flow, &[]);
        refused(d, O::DestroyFlow, &flow, &[], S::NoSuchObject);
    }
    for qp in [qp, ud] {
        fine(d, O::DestroyQp, &handle(qp.number), &[]);
    }
}

/// Queue pairs that spread the frames of flows over raw packet queue pairs.
fn hash_queue_pairs(s: &mut Side) {
    let device = s.d.device();
    assert_ne!(device.capabilities & capabilities::RSS, 0);
    assert_eq!((device.max_hash_qp, device.max_hash_entries), (64, 128));
    let (qp, ud) = (s.qp(QpType::RawPacket), s.qp(QpType::Ud));
    let d = &mut s.d;
    let mut plain = CreateHashQp {
        entries: 2,
        ..CreateHashQp::default()
    };
    plain.table[..2].fill(qp.number);
    let with = |change: &dyn Fn(&mut CreateHashQp)| {
        let mut body = plain;
        change(&mut body);
        body
    };
    for (body, status) in [
        (with(&|b| b.table[1] = NOBODY), S::NoSuchObject),
        (with(&|b| b.table[1] = qp.number | HASH_QP), S::NoSuchObject),
        (with(&|b| b.table[1] = ud.number), S::Invalid),
        (with(&|b| (b.entries, b.table[2]) = (3, qp.number)), S::Invalid),
        (with(&|b| b.entries = 1), S::Invalid),
        (with(&|b| b.entries = 0), S::OutOfRange),
        (
            with(&|b| {
                b.entries = 129;
                b.table.fill(qp.number);
            }),
            S::OutOfRange,
        ),
        (with(&|b| b.hash_types = 128), S::NotSupported),
    ] {
        refused(d, O::CreateHashQp, &body, &[], status);
    }
    let mut made = Vec::new();
    for _ in 0..64 {
        let reply = fine(d, O::CreateHashQp, &plain, &[]);
        made.push(Object::read_from_bytes(&reply.bytes).expect("an object"));
    }
    assert!(made.iter().all(|object| object.handle >> 24 == 1));
    refused(d, O::CreateHashQp, &plain, &[], S::LimitReached);
    refused(d, O::DestroyQp, &handle(qp.number), &[], S::InUse);
    let flow = |object: &Object| CreateFlow {
        qp: object.handle,
        ..CreateFlow::default()
    };
    let reply = fine(d, O::CreateFlow, &flow(&made[0]), &[]);
    refused(d, O::DestroyHashQp, &made[0], &[], S::InUse);
    fine(
        d,
        O::DestroyFlow,
        &Object::read_from_bytes(&reply.bytes).expect("an object"),
        &[],
    );
    for object in made {
        // It is nothing else.
        for opcode in [O::QueryQp, O::DestroyQp, O::DestroyFlow] {
            refused(d, opcode, &object, &[], S::NoSuchObject);
        }
        fine(d, O::DestroyHashQp, &object, &[]);
        refused(d, O::DestroyHashQp, &object, &[], S::NoSuchObject);
        refused(d, O::CreateFlow, &flow(&object), &[], S::NoSuchObject);
    }
    refused(d, O::DestroyHashQp, &handle(qp.number), &[], S::NoSuchObject);
    for qp in [qp, ud] {
        fine(d, O::DestroyQp, &handle(qp.number), &[]);
    }
}
