//! Commands about connections: communication management of the device (IBTA volume 1, chapter 12).

use super::qp::{AddressVector, QpAttributes};

/// Most bytes of private data of a message, of any kind.
pub const PRIVATE_MAX: usize = 232;

numbers! {
    /// What connects: [`Message::transport`].
    enum Transport: u8 {
        /// Queue pairs of type RC.
        Rc = 0,
        /// Queue pairs of type UC.
        Uc = 1,
        /// Queue pairs of type UD: nothing is connected, the queue pair of a service is asked for (SIDR).
        Ud = 2,
        /// Queue pairs of the types XRC_INITIATOR and XRC_TARGET.
        Xrc = 3,
    }

    /// State of a connection, IBTA volume 1 section 12.9: [`ConnectionReply::state`].
    enum ConnectionState: u32 {
        /// Over.
        Idle = 0,
        /// Active: the REQ is sent.
        ReqSent = 1,
        /// Active: the peer has said that it answers later.
        MraReqReceived = 2,
        /// Active: the REP has come, and the driver has not answered.
        RepReceived = 3,
        /// Active: as before; the peer knows that the driver answers later.
        MraRepSent = 4,
        /// Passive: the REQ has come, and the driver has not answered.
        ReqReceived = 5,
        /// Passive: as before; the peer knows that the driver answers later.
        MraReqSent = 6,
        /// Passive: the REP is sent.
        RepSent = 7,
        /// Passive: the peer has said that it answers later.
        MraRepReceived = 8,
        /// Connected.
        Established = 9,
        /// The DREQ is sent.
        DreqSent = 10,
        /// The DREQ has come, and the driver has not answered.
        DreqReceived = 11,
        /// Over; packets may still be under way.
        Timewait = 12,
        /// The SIDR_REQ is sent.
        SidrReqSent = 13,
        /// The SIDR_REQ has come, and the driver has not answered.
        SidrReqReceived = 14,
    }

    /// What has happened to a connection: [`ConnectionEvent::kind`].
    enum ConnectionEventKind: u32 {
        /// A peer asks for a connection, or for the queue pair of a service.
        Request = 0,
        /// The peer has accepted: the driver accepts or rejects. For a question, this is the answer, and the end.
        Response = 1,
        /// The peer is ready.
        Established = 2,
        /// The peer has rejected it, or has forgotten it.
        Rejected = 3,
        /// The peer does not answer.
        Unreachable = 4,
        /// The connection ends. A driver that has not asked for that disconnects, too.
        Disconnected = 5,
        /// Nothing of it is under way any more: its queue pair may be used again.
        TimewaitExit = 6,
    }
}

bits! {
    /// What [`Message::flags`] say.
    message_flags MessageFlags: u8 {
        /// The sender's queue pair has end-to-end flow control.
        FLOW_CONTROL = 1 << 0,
        /// The sender's queue pair has a shared receive queue.
        SRQ = 1 << 1,
    }
}

layouts! {
    /// Body of [`Opcode::Listen`](super::Opcode::Listen) and [`Opcode::Unlisten`](super::Opcode::Unlisten).
    struct Listen: 16 {
        /// The service.
        0 service: u64,
        /// Requests that may wait for the driver's answer. UNLISTEN: zero.
        8 backlog: u32,
        /// Zero.
        12 reserved: u32,
    }

    /// What one side of a connection tells the other: body of CONNECT, ACCEPT, REJECT and DISCONNECT, and what an event brings.
    struct Message: 320 {
        /// The connection. CONNECT: zero.
        0 connection: u32,
        /// Queue pair of the sender.
        4 qp: u32,
        /// Service: what is asked for, or was.
        8 service: u64,
        /// PSN that the receiver's queue pair shall send first.
        16 psn: u32,
        /// Queue key of the sender's queue pair.
        20 qkey: u32,
        /// READs and atomics of the receiver that the sender holds resources for.
        24 responder_resources: u8,
        /// READs and atomics that the sender wants to have outstanding.
        25 initiator_depth: u8,
        /// Retries of the receiver's queue pair.
        26 retry_count: u8,
        /// RNR retries of the receiver's queue pair.
        27 rnr_retry: u8,
        /// Path MTU, as in verbs.
        28 path_mtu: u8,
        /// [`Transport`].
        29 transport: u8,
        /// [`message_flags`].
        30 flags: u8,
        /// Bytes of `private_data` that have a meaning. Events: of a message with private data always as many as it has room for.
        31 private_len: u8,
        /// ACK timeout of the path, 4.096 µs · 2^n. Events of a reply: target ACK delay.
        32 ack_timeout: u8,
        /// How long the receiver may take to answer, 4.096 µs · 2^n.
        33 response_timeout: u8,
        /// How often the request is sent.
        34 max_retries: u8,
        /// Zero.
        35 reserved: u8,
        /// P_Key.
        36 pkey: u16,
        /// Why it is rejected.
        38 reason: u16,
        /// Vendor of enhanced connection establishment, 24 bits; 0: none.
        40 ece_vendor: u32,
        /// Options of enhanced connection establishment.
        44 ece_options: u32,
        /// CONNECT: where to; zeros for `dmac`: the device finds it out. Events: where the peer is.
        48 address: AddressVector,
        /// What the programs tell each other.
        80 private_data: [u8; PRIVATE_MAX],
        /// Zero.
        312 reserved_end: u64,
    }

    /// Reply to [`Opcode::QueryConnection`](super::Opcode::QueryConnection).
    struct ConnectionReply: 96 {
        /// [`ConnectionState`].
        0 state: u32,
        /// Number that the peer calls it by; 0: not known yet.
        4 remote_id: u32,
        /// Vendor of enhanced connection establishment that both sides have; 0: none.
        8 ece_vendor: u32,
        /// Options that both sides have.
        12 ece_options: u32,
        /// [`qp_mask`](crate::verbs::qp_mask): which attributes are known.
        16 known: u32,
        /// Zero.
        20 reserved: u32,
        /// Attributes for the driver's queue pair, but `state`, `port`, `access`.
        24 attributes: QpAttributes,
    }

    /// A record of [`Opcode::TakeConnectionEvents`](super::Opcode::TakeConnectionEvents).
    struct ConnectionEvent: 328 {
        /// [`ConnectionEventKind`].
        0 kind: u32,
        /// Zero.
        4 reserved: u32,
        /// What the peer said; of it, always `connection`.
        8 message: Message,
    }
}
