//! Commands about queue pairs, address handles and multicast.

use crate::ring::ExtentList;

/// Bits of [`CreateQp::flags`].
pub mod create_flags {
    /// All sends complete visibly.
    pub const SIGNAL_ALL: u32 = 1 << 0;
    /// Every flag there is.
    pub const ALL: u32 = SIGNAL_ALL;
}

layouts! {
    /// The way of packets to a peer.
    struct AddressVector: 32 {
        /// GID of the destination.
        0 dgid: [u8; 16],
        /// Ethernet address of the destination or of the next hop. Zeros: the device finds it out.
        16 dmac: [u8; 6],
        /// Index in the own GID table.
        22 sgid_index: u16,
        /// Flow label, 20 bits.
        24 flow_label: u32,
        /// Traffic class: DSCP and ECN of the IP header.
        28 traffic_class: u8,
        /// Hop limit.
        29 hop_limit: u8,
        /// Service level, 0..=15.
        30 service_level: u8,
        /// Zero.
        31 reserved: u8,
    }

    /// Body of [`Opcode::CreateAh`](super::Opcode::CreateAh).
    struct CreateAh: 40 {
        /// Protection domain.
        0 pd: u32,
        /// Zero.
        4 reserved: u32,
        /// The way to the destination.
        8 address: AddressVector,
    }

    /// Body of [`Opcode::CreateQp`](super::Opcode::CreateQp).
    struct CreateQp: 72 {
        /// [`QpType`](crate::verbs::QpType).
        0 qp_type: u32,
        /// [`create_flags`].
        4 flags: u32,
        /// Protection domain, or [`NONE`](super::NONE).
        8 pd: u32,
        /// Completion queue of sends, or [`NONE`](super::NONE).
        12 send_cq: u32,
        /// Completion queue of receives, or [`NONE`](super::NONE).
        16 recv_cq: u32,
        /// Shared receive queue, or [`NONE`](super::NONE).
        20 srq: u32,
        /// XRC domain, or [`NONE`](super::NONE).
        24 xrcd: u32,
        /// Blocks of the send ring: a power of two, or 0.
        28 send_blocks: u32,
        /// Most elements of a send.
        32 send_elements: u32,
        /// Most inline bytes of a send.
        36 max_inline: u32,
        /// Entries of the receive ring: a power of two, or 0.
        40 receive_entries: u32,
        /// Most elements of a receive.
        44 receive_elements: u32,
        /// The send ring.
        48 send_ring: ExtentList,
        /// The receive ring.
        56 receive_ring: ExtentList,
        /// Target of dynamic connections: the key that initiators have to know. Since 1.5.
        64 access_key: u64,
    }

    /// Attributes of a queue pair.
    struct QpAttributes: 72 {
        /// [`QpState`](crate::verbs::QpState).
        0 state: u8,
        /// State that the driver believes the queue pair to be in.
        1 current_state: u8,
        /// [`Mtu`](crate::verbs::Mtu).
        2 path_mtu: u8,
        /// 1: raise an event when the send queue has drained.
        3 drained_event: u8,
        /// READs and atomics that the QP may have outstanding.
        4 max_rd_atomic: u8,
        /// READs and atomics of the peer that the QP holds resources for.
        5 max_dest_rd_atomic: u8,
        /// Code of the RNR timer that the QP asks for, 0..=31.
        6 min_rnr_timer: u8,
        /// Port: 1.
        7 port: u8,
        /// ACK timeout: 4.096 µs · 2^n; 0 waits for ever. 0..=31.
        8 timeout: u8,
        /// Retries, 0..=7.
        9 retry_count: u8,
        /// RNR retries, 0..=7; 7: without end.
        10 rnr_retry: u8,
        /// In replies 1: `address` is set. In commands zero.
        11 has_address: u8,
        /// Index in the P_Key table.
        12 pkey_index: u16,
        /// UDP source port, 49152..=65535. In replies 0: it follows from the flow label, or without one from the QP number.
        14 udp_source_port: u16,
        /// Rights of peers: [`access`](crate::verbs::access).
        16 access: u32,
        /// Queue key.
        20 qkey: u32,
        /// PSN that the QP expects, 24 bits.
        24 rq_psn: u32,
        /// PSN that the QP sends, 24 bits.
        28 sq_psn: u32,
        /// The peer's QP.
        32 destination_qp: u32,
        /// Zero.
        36 reserved: u32,
        /// The way to the peer.
        40 address: AddressVector,
    }

    /// Body of [`Opcode::ModifyQp`](super::Opcode::ModifyQp).
    struct ModifyQp: 80 {
        /// The queue pair.
        0 qp: u32,
        /// Which attributes count: [`qp_mask`](crate::verbs::qp_mask).
        4 mask: u32,
        /// Values of these attributes; others are ignored.
        8 attributes: QpAttributes,
    }

    /// Body of [`Opcode::ModifyQpRate`](super::Opcode::ModifyQpRate), reply to
    /// [`Opcode::QueryQpRate`](super::Opcode::QueryQpRate): the rate of a send queue. Since 1.1.
    struct QpRate: 16 {
        /// The queue pair.
        0 qp: u32,
        /// Rate in kbit/s; 0: not limited.
        4 rate: u32,
        /// Bytes that may be sent at once after a pause; 0: the device chooses.
        8 max_burst: u32,
        /// Bytes of a usual packet, a hint; 0: unknown.
        12 typical_packet: u16,
        /// Zero.
        14 reserved: u16,
    }

    /// Reply to [`Opcode::QueryQp`](super::Opcode::QueryQp).
    struct QpReply: 144 {
        /// Attributes of the queue pair.
        0 attributes: QpAttributes,
        /// What the queue pair was made with; the extent lists are zeros.
        72 created: CreateQp,
    }

    /// Body of [`Opcode::AttachMulticast`](super::Opcode::AttachMulticast) and
    /// [`Opcode::DetachMulticast`](super::Opcode::DetachMulticast).
    struct Multicast: 24 {
        /// The queue pair.
        0 qp: u32,
        /// Zero.
        4 reserved: u32,
        /// The group.
        8 gid: [u8; 16],
    }
}

impl CreateQp {
    /// Bytes of the body in version 1.0.
    pub const LEN_1_0: usize = 64;
}

impl QpReply {
    /// Bytes of the reply in version 1.0.
    pub const LEN_1_0: usize = 136;
}
