//! Commands about the device as a whole.

bits! {
    /// What a device can do beyond RC (`SPEC.md`, section 5.4).
    capabilities Capabilities: u64 {
        /// UC queue pairs.
        UC = 1 << 0,
        /// UD queue pairs and address handles.
        UD = 1 << 1,
        /// XRC queue pairs, domains and receive queues.
        XRC = 1 << 2,
        /// Shared receive queues.
        SRQ = 1 << 3,
        /// Memory windows of type 1.
        MW_TYPE_1 = 1 << 4,
        /// Memory windows of type 2.
        MW_TYPE_2 = 1 << 5,
        /// Multicast groups.
        MULTICAST = 1 << 6,
        /// SEND with invalidate, LOCAL_INVALIDATE, regions with that right.
        INVALIDATE = 1 << 7,
        /// The driver may set GIDs.
        SET_GID = 1 << 8,
        /// Address vectors need no Ethernet address: the device finds it out.
        RESOLVE = 1 << 9,
        /// Completions carry their time.
        COMPLETION_TIME = 1 << 10,
        /// Device memory.
        DEVICE_MEMORY = 1 << 11,
        /// Queue pairs can have a rate limit. Since 1.1.
        RATE_LIMIT = 1 << 12,
        /// Null regions. Since 1.2.
        NULL_MR = 1 << 13,
        /// Regions on demand (1.3).
        ON_DEMAND = 1 << 14,
        /// Communication management (1.4).
        CONNECTIONS = 1 << 15,
        /// Queue pairs of the dynamically connected transport (1.5).
        DC = 1 << 16,
        /// Raw packet queue pairs and flows (1.6).
        RAW_PACKET = 1 << 17,
        /// Raw packets that the device cuts into segments (1.7).
        SEGMENTS = 1 << 18,
        /// Hash queue pairs (1.8).
        RSS = 1 << 19,
    } + {
        /// Bits of version 1.0.
        ALL_1_0 = (1 << 12) - 1,
        /// Bits of version 1.1.
        ALL_1_1 = (1 << 13) - 1,
        /// Bits of version 1.2.
        ALL_1_2 = (1 << 14) - 1,
        /// Bits of version 1.3.
        ALL_1_3 = (1 << 15) - 1,
        /// Bits of version 1.4.
        ALL_1_4 = (1 << 16) - 1,
        /// Bits of version 1.5.
        ALL_1_5 = (1 << 17) - 1,
        /// Bits of version 1.6.
        ALL_1_6 = (1 << 18) - 1,
        /// Bits of version 1.7.
        ALL_1_7 = (1 << 19) - 1,
    }
}

layouts! {
    /// Body of [`Opcode::Hello`](super::Opcode::Hello).
    struct Hello: 16 {
        /// Major version of the driver.
        0 abi_major: u16,
        /// Oldest minor version that the driver can speak.
        2 minor_min: u16,
        /// Newest minor version that the driver can speak.
        4 minor_max: u16,
        /// Zero.
        6 reserved: u16,
        /// Features that the driver can use: none yet.
        8 features: u64,
    }

    /// Reply to [`Opcode::Hello`](super::Opcode::Hello).
    struct HelloReply: 16 {
        /// Minor version that both sides speak from now on.
        0 minor: u16,
        /// Zero.
        2 reserved: [u16; 3],
        /// Features that are used from now on: a subset of those that the driver named.
        8 features: u64,
    }

    /// Reply to [`Opcode::QueryDevice`](super::Opcode::QueryDevice).
    struct DeviceReply: 192 {
        /// [`Capabilities`].
        0 capabilities: u64,
        /// Most bytes of a region.
        8 max_mr_size: u64,
        /// Bytes of device memory in all.
        16 max_dm_size: u64,
        /// GUID of the node, first byte first.
        24 node_guid: [u8; 8],
        /// Version of the device's program: UTF-8, filled up with zeros.
        32 firmware: [u8; 32],
        /// Vendor.
        64 vendor_id: u32,
        /// Part number of the vendor.
        68 vendor_part_id: u32,
        /// Version of the hardware.
        72 hardware_version: u32,
        /// [`AtomicScope`](crate::verbs::AtomicScope).
        76 atomic_scope: u32,
        /// Most bytes behind the head of a command.
        80 max_command_len: u32,
        /// Most queue pairs.
        84 max_qp: u32,
        /// Most work requests of a queue of a QP.
        88 max_qp_wr: u32,
        /// Most blocks of a send queue.
        92 max_send_blocks: u32,
        /// Most elements of a work request.
        96 max_sge: u32,
        /// Most inline bytes.
        100 max_inline: u32,
        /// Most completion queues.
        104 max_cq: u32,
        /// Most entries of a completion queue.
        108 max_cqe: u32,
        /// Most regions.
        112 max_mr: u32,
        /// Most extents of all regions and rings together.
        116 max_mr_extents: u32,
        /// Most windows.
        120 max_mw: u32,
        /// Most protection domains.
        124 max_pd: u32,
        /// Most shared receive queues.
        128 max_srq: u32,
        /// Most receives of a shared receive queue.
        132 max_srq_wr: u32,
        /// Most elements of such a receive.
        136 max_srq_sge: u32,
        /// Most address handles.
        140 max_ah: u32,
        /// Most XRC domains.
        144 max_xrcd: u32,
        /// Most multicast groups.
        148 max_mcast_groups: u32,
        /// Most QPs in a multicast group.
        152 max_mcast_qp_per_group: u32,
        /// Most READs and atomics that a QP may have outstanding, in either direction.
        156 max_rd_atomic: u32,
        /// Entries of the GID table.
        160 gid_table_len: u32,
        /// Most doorbell rings.
        164 max_doorbell_rings: u32,
        /// Code of the time until an acknowledge leaves: 4.096 µs · 2^n.
        168 local_ack_delay: u32,
        /// Lowest rate of a queue pair in kbit/s. Since 1.1.
        172 min_qp_rate: u32,
        /// Highest rate of a queue pair in kbit/s. Since 1.1.
        176 max_qp_rate: u32,
        /// Posts that the device wants to be asked about: a [`Post::bit`](crate::verbs::Post::bit) for each kind. Since 1.3.
        180 watched_posts: u32,
        /// Most hash queue pairs. Since 1.8.
        184 max_hash_qp: u32,
        /// Most entries of the table of one. Since 1.8.
        188 max_hash_entries: u32,
    }

    /// Reply to [`Opcode::QueryPort`](super::Opcode::QueryPort).
    struct PortReply: 72 {
        /// [`PortState`](crate::verbs::PortState).
        0 state: u8,
        /// Largest path MTU, [`Mtu`](crate::verbs::Mtu).
        1 max_mtu: u8,
        /// Path MTU that the link allows now, [`Mtu`](crate::verbs::Mtu).
        2 active_mtu: u8,
        /// Zero.
        3 reserved_mtu: u8,
        /// Speed in Mb/s.
        4 speed: u32,
        /// Most bytes of a message.
        8 max_message: u32,
        /// Entries of the GID table.
        12 gid_table_len: u16,
        /// Entries of the P_Key table.
        14 pkey_table_len: u16,
        /// Ethernet address.
        16 mac: [u8; 6],
        /// Zero.
        22 reserved: [u8; 10],
        /// The P_Key table, and zeros behind its last entry. Since 1.9.
        32 pkeys: [u16; 16],
        /// Packets that came with a P_Key that was not that of their queue pair, modulo 2^32. Since 1.9.
        64 bad_pkeys: u32,
        /// Zero.
        68 reserved_pkeys: u32,
    }

    /// An entry of the GID table.
    struct GidRecord: 32 {
        /// The GID.
        0 gid: [u8; 16],
        /// Index of the entry.
        16 index: u16,
        /// VLAN, or 0.
        18 vlan: u16,
        /// [`GidKind`](crate::verbs::GidKind).
        20 kind: u8,
        /// Zero.
        21 reserved_kind: u8,
        /// Ethernet address of the GID's interface. In [`Opcode::SetGid`](super::Opcode::SetGid) zeros stand for
        /// the adapter's.
        22 mac: [u8; 6],
        /// Zero.
        28 reserved: u32,
    }

    /// A counter.
    struct CounterRecord: 64 {
        /// Name of the counter: ASCII, filled up with zeros.
        0 name: [u8; 56],
        /// Value of the counter.
        56 value: u64,
    }

    /// A kind of objects.
    struct ResourceRecord: 32 {
        /// Name of the kind, as `rdma resource` has it: ASCII, filled up with zeros.
        0 name: [u8; 24],
        /// Objects in use.
        24 used: u32,
        /// Most objects there may be.
        28 limit: u32,
    }

    /// Reply to [`Opcode::QueryClock`](super::Opcode::QueryClock).
    struct ClockReply: 8 {
        /// The time now, in ns, of the same clock as
        /// [`CompletionEntry::time`](crate::queue::CompletionEntry::time).
        0 now: u64,
    }

    /// Body of [`Opcode::JudgePost`](super::Opcode::JudgePost): a work request that is about to be posted.
    struct JudgePost: 24 {
        /// [`Post`](crate::verbs::Post).
        0 post: u32,
        /// QP or SRQ.
        4 queue: u32,
        /// Bytes of its elements, or inline.
        8 bytes: u64,
        /// [`Operation`](crate::queue::Operation) of a send, or 0.
        16 operation: u32,
        /// Zero.
        20 reserved: u32,
    }

    /// Reply to [`Opcode::JudgePost`](super::Opcode::JudgePost).
    struct JudgePostReply: 8 {
        /// [`PostErrno`](crate::verbs::PostErrno) with which the post fails; 0: it goes on.
        0 errno: u32,
        /// Zero.
        4 reserved: u32,
    }
}

impl PortReply {
    /// Bytes of the reply in versions 1.0 to 1.8.
    pub const LEN_1_0: usize = 32;
}

impl DeviceReply {
    /// Bytes of the reply in version 1.0.
    pub const LEN_1_0: usize = 176;
    /// Bytes of the reply in versions 1.1 to 1.7.
    pub const LEN_1_1: usize = 184;
}
