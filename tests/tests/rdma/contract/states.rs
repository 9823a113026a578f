//! MODIFY_QP: states and attributes (section 5.5).

use vnic_device::command::Opcode as O;
use vnic_device::command::qp::{AddressVector, ModifyQp, QpAttributes};
use vnic_device::queue::Operation;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpState, QpType, qp_mask as m};
use vnic_tests::driver::rdma::{Side, Wr, link};

use super::pairs::{NOBODY, handle, unknown};
use super::{fine, refused};

pub fn modify(s: &mut Side) {
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
                service_level: 16,
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
        (
            body(
                mask | m::UDP_SOURCE_PORT,
                QpAttributes {
                    udp_source_port: 49_151,
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
pub fn draining(s: &mut Side) {
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
