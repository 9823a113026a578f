//! Commands about flows: which of the frames that come a raw packet queue pair has, and how several share them.

layouts! {
    /// Fields of a frame. Numbers are little-endian, as everywhere; addresses are bytes, the first byte first.
    struct FlowFields: 64 {
        /// Destination of the Ethernet header.
        0 destination_mac: [u8; 6],
        /// Source of the Ethernet header.
        6 source_mac: [u8; 6],
        /// EtherType, behind the VLAN tag if there is one.
        12 ethertype: u16,
        /// The VLAN tag: priority and VLAN; 0 without one.
        14 tag: u16,
        /// Source of the IP header; of IPv4 the first four bytes.
        16 source: [u8; 16],
        /// Destination of the IP header; of IPv4 the first four bytes.
        32 destination: [u8; 16],
        /// Flow label of IPv6, 20 bits.
        48 flow_label: u32,
        /// Source port of TCP or UDP.
        52 source_port: u16,
        /// Destination port of TCP or UDP.
        54 destination_port: u16,
        /// Network identifier of VXLAN, 24 bits.
        56 tunnel: u32,
        /// Protocol behind the IP header: that of IPv4, the first next header of IPv6.
        60 protocol: u8,
        /// TOS or traffic class.
        61 traffic_class: u8,
        /// TTL or hop limit.
        62 hop_limit: u8,
        /// Zero.
        63 reserved: u8,
    }

    /// Body of [`Opcode::CreateFlow`](super::Opcode::CreateFlow).
    struct CreateFlow: 272 {
        /// The raw packet queue pair, or since 1.8 a hash queue pair.
        0 qp: u32,
        /// [`FlowKind`](crate::verbs::FlowKind).
        4 kind: u32,
        /// Of several flows that would take a frame the one with the lowest number has it; at most 65535.
        8 priority: u32,
        /// Headers that the frame must have: [`flow_headers`](crate::verbs::flow_headers).
        12 headers: u32,
        /// Values of its fields.
        16 value: FlowFields,
        /// Bits of these that count.
        80 mask: FlowFields,
        /// Values of fields inside of the tunnel. Since 1.8.
        144 inner_value: FlowFields,
        /// Bits of these that count. Since 1.8.
        208 inner_mask: FlowFields,
    }

    /// Body of [`Opcode::CreateHashQp`](super::Opcode::CreateHashQp).
    struct CreateHashQp: 560 {
        /// What is hashed: [`hash_types`](crate::verbs::hash_types).
        0 hash_types: u32,
        /// Entries of the table: a power of two.
        4 entries: u32,
        /// Key of the Toeplitz hash.
        8 key: [u8; 40],
        /// Raw packet queue pairs, by the low bits of the hash; zeros behind the last entry.
        48 table: [u32; 128],
    }
}

impl CreateFlow {
    /// Bytes of the body in version 1.6.
    pub const LEN_1_6: usize = 144;
}

/// Bit of numbers of hash queue pairs, which are beyond those of others.
pub const HASH_QP: u32 = 1 << 24;
