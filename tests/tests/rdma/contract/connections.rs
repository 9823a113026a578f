//! Commands about connections (section 5.7). The driver connects with itself.

use anyhow::Result;
use vnic_device::command::Opcode as O;
use vnic_device::command::connection::{
    ConnectionEventKind as Kind, ConnectionState as State, Listen, Message, Transport,
};
use vnic_device::command::qp::AddressVector;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::{QpType, qp_mask};
use vnic_tests::driver::rdma::{Driver, Side, World};

use super::pairs::{NOBODY, handle, unknown};
use super::{fine, refused};

/// RDMA_PS_TCP, port 20000.
const SERVICE: u64 = 0x0106_4e20;

pub fn all(world: &mut World) -> Result<Driver> {
    let mut s = world.side("a")?;
    let (a, b) = (s.qp(QpType::Rc), s.qp(QpType::Rc));
    let ud = s.qp(QpType::Ud);
    let (a, b, ud) = (a.number, b.number, ud.number);
    let ask = request(&mut s, a);
    listens(&mut s);
    refusals(&mut s, &ask);
    connects(&mut s, &ask, b);
    rejects(&mut s, &ask, b);
    datagrams(&mut s, &ask, ud);
    Ok(s.d)
}

fn request(s: &mut Side, qp: u32) -> Message {
    let mut private_data = [0; 232];
    private_data[..5].copy_from_slice(b"hello");
    Message {
        qp,
        service: SERVICE,
        psn: 0x00ab_cdef,
        responder_resources: 4,
        initiator_depth: 3,
        retry_count: 7,
        rnr_retry: 6,
        path_mtu: 3,
        ack_timeout: 14,
        response_timeout: 20,
        max_retries: 15,
        pkey: 0xffff,
        ece_vendor: 0x15b3,
        ece_options: 3,
        address: s.d.own_address(),
        private_len: 5,
        private_data,
        ..Message::default()
    }
}

fn service(service: u64, backlog: u32) -> Listen {
    Listen {
        service,
        backlog,
        reserved: 0,
    }
}

fn listens(s: &mut Side) {
    assert_eq!(s.d.listen(SERVICE), S::Ok);
    refused(&mut s.d, O::Listen, &service(SERVICE, 8), &[], S::InUse);
    let odd = Listen {
        reserved: 1,
        ..service(1, 8)
    };
    refused(&mut s.d, O::Listen, &odd, &[], S::NotSupported);
    refused(&mut s.d, O::Unlisten, &service(1, 0), &[], S::NoSuchObject);
    refused(&mut s.d, O::Unlisten, &service(SERVICE, 1), &[], S::NotSupported);
    fine(&mut s.d, O::Unlisten, &service(SERVICE, 0), &[]);
    fine(&mut s.d, O::Listen, &service(SERVICE, 8), &[]);
}

fn refusals(s: &mut Side, ask: &Message) {
    let d = &mut s.d;
    let group = AddressVector {
        dgid: *b"\xff\x0e\0\0\0\0\0\0\0\0\0\0\0\0\0\x07",
        ..ask.address
    };
    let cases = [
        (Message { qp: NOBODY, ..*ask }, S::NoSuchObject),
        (
            Message {
                address: AddressVector {
                    sgid_index: 200,
                    ..ask.address
                },
                ..*ask
            },
            S::NoSuchObject,
        ),
        (
            Message {
                address: unknown(ask.address),
                ..*ask
            },
            S::Unreachable,
        ),
        (
            Message {
                address: group,
                ..*ask
            },
            S::Invalid,
        ),
        (Message { pkey: 0x7fff, ..*ask }, S::Invalid),
        (Message { psn: 1 << 24, ..*ask }, S::OutOfRange),
        (Message { path_mtu: 0, ..*ask }, S::OutOfRange),
        (Message { path_mtu: 6, ..*ask }, S::OutOfRange),
        (
            Message {
                retry_count: 8,
                ..*ask
            },
            S::OutOfRange,
        ),
        (Message { rnr_retry: 8, ..*ask }, S::OutOfRange),
        (
            Message {
                max_retries: 16,
                ..*ask
            },
            S::OutOfRange,
        ),
        (
            Message {
                ack_timeout: 32,
                ..*ask
            },
            S::OutOfRange,
        ),
        (
            Message {
                response_timeout: 32,
                ..*ask
            },
            S::OutOfRange,
        ),
        (
            Message {
                ece_vendor: 1 << 24,
                ..*ask
            },
            S::OutOfRange,
        ),
        (
            Message {
                private_len: 93,
                ..*ask
            },
            S::OutOfRange,
        ),
        (
            Message {
                private_len: 233,
                ..*ask
            },
            S::OutOfRange,
        ),
        (Message { transport: 4, ..*ask }, S::NotSupported),
        (Message { flags: 4, ..*ask }, S::NotSupported),
        (
            Message {
                connection: 1,
                ..*ask
            },
            S::NotSupported,
        ),
        (Message { reserved: 1, ..*ask }, S::NotSupported),
        (
            Message {
                reserved_end: 1,
                ..*ask
            },
            S::NotSupported,
        ),
    ];
    for (body, status) in cases {
        refused(d, O::Connect, &body, &[], status);
    }
    let nobody = Message {
        connection: NOBODY,
        ..Message::default()
    };
    for opcode in [O::Accept, O::Reject, O::Disconnect] {
        refused(d, opcode, &nobody, &[], S::NoSuchObject);
        let long = Message {
            psn: 1 << 24,
            ..nobody
        };
        refused(d, opcode, &long, &[], S::OutOfRange);
    }
    for opcode in [O::DestroyConnection, O::QueryConnection] {
        refused(d, opcode, &handle(NOBODY), &[], S::NoSuchObject);
    }
}

fn connects(s: &mut Side, ask: &Message, b: u32) {
    let active = s.d.ask_for(ask);
    assert_eq!(s.d.query_connection(active).state, State::ReqSent.number());
    let heard = s.d.connection_event(Kind::Request);
    let passive = heard.connection;
    // Everything that was said.
    let wanted = Message {
        connection: passive,
        private_len: 92,
        address: AddressVector {
            hop_limit: heard.address.hop_limit,
            ..ask.address
        },
        ..*ask
    };
    assert_eq!(heard, wanted);
    let known = s.d.query_connection(passive);
    let all = qp_mask::ADDRESS | qp_mask::DESTINATION_QP | qp_mask::SQ_PSN | qp_mask::MAX_DEST_RD_ATOMIC;
    assert_eq!((known.known & all, known.known & qp_mask::RQ_PSN), (all, 0));
    let a = &known.attributes;
    assert_eq!((a.destination_qp, a.sq_psn, a.path_mtu), (ask.qp, ask.psn, 3));
    assert_eq!((a.max_dest_rd_atomic, a.max_rd_atomic), (3, 4));
    let reply = Message {
        connection: passive,
        qp: b,
        psn: 7,
        responder_resources: 3,
        initiator_depth: 4,
        rnr_retry: 5,
        ece_vendor: 0x15b3,
        ece_options: 6,
        private_len: 196,
        private_data: [9; 232],
        ..Message::default()
    };
    let d = &mut s.d;
    refused(
        d,
        O::Accept,
        &Message { qp: NOBODY, ..reply },
        &[],
        S::NoSuchObject,
    );
    refused(
        d,
        O::Accept,
        &Message {
            private_len: 197,
            ..reply
        },
        &[],
        S::OutOfRange,
    );
    let active_message = Message {
        connection: active,
        ..Message::default()
    };
    refused(d, O::Reject, &active_message, &[], S::WrongState);
    refused(d, O::Disconnect, &active_message, &[], S::WrongState);
    fine(d, O::Accept, &reply, &[]);
    refused(d, O::Accept, &reply, &[], S::WrongState);
    let answer = s.d.connection_event(Kind::Response);
    assert_eq!((answer.connection, answer.qp, answer.psn), (active, b, 7));
    assert_eq!(answer.private_data[..196], [9; 196]);
    let known = s.d.query_connection(active);
    assert_eq!(
        (known.remote_id, known.ece_vendor, known.ece_options),
        (passive, 0x15b3, 2)
    );
    let a = &known.attributes;
    assert_eq!((a.destination_qp, a.rq_psn, a.sq_psn), (b, ask.psn, 7));
    fine(&mut s.d, O::Accept, &active_message, &[]);
    assert_eq!(s.d.connection_event(Kind::Established).connection, passive);
    for connection in [active, passive] {
        assert_eq!(
            s.d.query_connection(connection).state,
            State::Established.number()
        );
    }
    fine(&mut s.d, O::Disconnect, &active_message, &[]);
    assert_eq!(s.d.connection_event(Kind::Disconnected).connection, passive);
    let agreed = Message {
        connection: passive,
        ..Message::default()
    };
    fine(&mut s.d, O::Disconnect, &agreed, &[]);
    let mut last: Vec<_> =
        s.d.connection_events(3)
            .iter()
            .map(|e| (e.kind, e.message.connection))
            .collect();
    last.sort_unstable();
    let exit = Kind::TimewaitExit.number();
    let mut wanted = vec![
        (Kind::Disconnected.number(), active),
        (exit, active),
        (exit, passive),
    ];
    wanted.sort_unstable();
    assert_eq!(last, wanted);
    let used = |d: &mut Driver| d.resources().into_iter().find(|r| r.0 == "cm_id").map(|r| r.1);
    assert_eq!(used(&mut s.d), Some(3), "two connections and a listener");
    for connection in [active, passive] {
        fine(&mut s.d, O::DestroyConnection, &handle(connection), &[]);
        refused(
            &mut s.d,
            O::DestroyConnection,
            &handle(connection),
            &[],
            S::NoSuchObject,
        );
    }
    assert_eq!(used(&mut s.d), Some(1));
}

fn rejects(s: &mut Side, ask: &Message, b: u32) {
    // A REJ of the driver's, with its reason and private data.
    let active = s.d.ask_for(ask);
    let passive = s.d.connection_event(Kind::Request).connection;
    let no = Message {
        connection: passive,
        reason: 28,
        private_len: 148,
        private_data: [8; 232],
        ..Message::default()
    };
    refused(
        &mut s.d,
        O::Reject,
        &Message {
            private_len: 149,
            ..no
        },
        &[],
        S::OutOfRange,
    );
    fine(&mut s.d, O::Reject, &no, &[]);
    let why = s.d.connection_event(Kind::Rejected);
    assert_eq!((why.connection, why.reason), (active, 28));
    assert_eq!(why.private_data[..148], [8; 148]);
    for connection in [active, passive] {
        fine(&mut s.d, O::DestroyConnection, &handle(connection), &[]);
    }
    // Nobody listens.
    let elsewhere = Message { service: 1, ..*ask };
    let active = s.d.ask_for(&elsewhere);
    assert_eq!(s.d.connection_event(Kind::Rejected).reason, 8);
    fine(&mut s.d, O::DestroyConnection, &handle(active), &[]);
    // The reply is rejected, and a connection that is destroyed says so to its peer.
    let active = s.d.ask_for(ask);
    let passive = s.d.connection_event(Kind::Request).connection;
    let reply = Message {
        connection: passive,
        qp: b,
        ..Message::default()
    };
    fine(&mut s.d, O::Accept, &reply, &[]);
    s.d.connection_event(Kind::Response);
    fine(&mut s.d, O::DestroyConnection, &handle(active), &[]);
    assert_eq!(s.d.connection_event(Kind::Rejected).connection, passive);
    fine(&mut s.d, O::DestroyConnection, &handle(passive), &[]);
}

fn datagrams(s: &mut Side, ask: &Message, ud: u32) {
    let ask = Message {
        transport: Transport::Ud.number(),
        private_len: 216,
        private_data: [7; 232],
        ..*ask
    };
    for accept in [true, false] {
        let active = s.d.ask_for(&ask);
        let heard = s.d.connection_event(Kind::Request);
        assert_eq!(
            (heard.transport, heard.service, heard.private_len),
            (2, SERVICE, 216)
        );
        assert_eq!(heard.private_data[..216], [7; 216]);
        let answer = Message {
            connection: heard.connection,
            qp: ud,
            qkey: 0x1234_5678,
            reason: if accept { 0 } else { 256 },
            private_len: 136,
            private_data: [6; 232],
            ..Message::default()
        };
        let d = &mut s.d;
        if accept {
            refused(
                d,
                O::Accept,
                &Message { qp: NOBODY, ..answer },
                &[],
                S::NoSuchObject,
            );
            refused(
                d,
                O::Accept,
                &Message {
                    private_len: 137,
                    ..answer
                },
                &[],
                S::OutOfRange,
            );
            fine(d, O::Accept, &answer, &[]);
            let told = s.d.connection_event(Kind::Response);
            assert_eq!((told.connection, told.qp, told.qkey), (active, ud, 0x1234_5678));
            assert_eq!(told.private_data[..136], [6; 136]);
        } else {
            refused(d, O::Reject, &answer, &[], S::OutOfRange);
            fine(d, O::Reject, &Message { reason: 3, ..answer }, &[]);
            assert_eq!(s.d.connection_event(Kind::Rejected).reason, 3);
        }
        for connection in [active, heard.connection] {
            fine(&mut s.d, O::DestroyConnection, &handle(connection), &[]);
        }
    }
}
