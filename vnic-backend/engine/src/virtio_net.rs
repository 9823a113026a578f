//! The virtio network device as the guest sees it (virtio 1.3 section 5.1): feature bits, the frame header, the
//! configuration space, and what a driver's control queue decides.

pub mod config;
pub mod control;
pub mod filter;
pub mod steering;

/// Feature bits (virtio 1.3 sections 5.1.3 and 6, and the vhost-user document).
pub mod feature {
    /// Device finishes partial checksums.
    pub const CSUM: u64 = 1 << 0;
    /// Driver accepts frames with partial checksums.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// Driver turns its offloads on and off.
    pub const CTRL_GUEST_OFFLOADS: u64 = 1 << 2;
    /// Device reports its MTU.
    pub const MTU: u64 = 1 << 3;
    /// Device has a MAC address.
    pub const MAC: u64 = 1 << 5;
    /// Driver accepts TSOv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// Driver accepts TSOv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// Driver accepts TSO with ECN.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// Device accepts TSOv4.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// Device accepts TSOv6.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// Device accepts TSO with ECN.
    pub const HOST_ECN: u64 = 1 << 13;
    /// Driver merges receive buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// Link status in the configuration space.
    pub const STATUS: u64 = 1 << 16;
    /// Control queue.
    pub const CTRL_VQ: u64 = 1 << 17;
    /// Receive modes and tables of addresses.
    pub const CTRL_RX: u64 = 1 << 18;
    /// Driver tells its VLANs.
    pub const CTRL_VLAN: u64 = 1 << 19;
    /// Further receive modes.
    pub const CTRL_RX_EXTRA: u64 = 1 << 20;
    /// Driver can announce itself.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Several queue pairs.
    pub const MQ: u64 = 1 << 22;
    /// Driver sets its address.
    pub const CTRL_MAC_ADDR: u64 = 1 << 23;
    /// Dirty logging (vhost).
    pub const LOG_ALL: u64 = 1 << 26;
    /// Any descriptor layout.
    pub const ANY_LAYOUT: u64 = 1 << 27;
    /// Indirect descriptors.
    pub const RING_INDIRECT_DESC: u64 = 1 << 28;
    /// used_event and avail_event.
    pub const RING_EVENT_IDX: u64 = 1 << 29;
    /// vhost-user protocol features.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    /// virtio 1.0 and later.
    pub const VERSION_1: u64 = 1 << 32;
    /// Packed rings.
    pub const RING_PACKED: u64 = 1 << 34;
    /// Buffers are used in the order in which they were made available.
    pub const IN_ORDER: u64 = 1 << 35;
    /// Statistics by queue.
    pub const DEVICE_STATS: u64 = 1 << 50;
    /// Hashes over the packets in tunnels.
    pub const HASH_TUNNEL: u64 = 1 << 51;
    /// Coalescing of notifications by queue.
    pub const VQ_NOTF_COAL: u64 = 1 << 52;
    /// Coalescing of notifications.
    pub const NOTF_COAL: u64 = 1 << 53;
    /// Driver accepts UDP segmentation over IPv4.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// Driver accepts UDP segmentation over IPv6.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// Device accepts UDP segmentation.
    pub const HOST_USO: u64 = 1 << 56;

    /// Each frame comes with its hash.
    pub const HASH_REPORT: u64 = 1 << 57;
    /// Receive-side scaling.
    pub const RSS: u64 = 1 << 60;
    /// Coalesced frames come with the number of their segments.
    pub const RSC_EXT: u64 = 1 << 61;
    /// Speed and duplex in the configuration space.
    pub const SPEED_DUPLEX: u64 = 1 << 63;

    /// Bits and their names in the standard, in lower case.
    const NAMES: [(u64, &str); 39] = [
        (CSUM, "csum"),
        (GUEST_CSUM, "guest_csum"),
        (CTRL_GUEST_OFFLOADS, "ctrl_guest_offloads"),
        (MTU, "mtu"),
        (MAC, "mac"),
        (GUEST_TSO4, "guest_tso4"),
        (GUEST_TSO6, "guest_tso6"),
        (GUEST_ECN, "guest_ecn"),
        (HOST_TSO4, "host_tso4"),
        (HOST_TSO6, "host_tso6"),
        (HOST_ECN, "host_ecn"),
        (MRG_RXBUF, "mrg_rxbuf"),
        (STATUS, "status"),
        (CTRL_VQ, "ctrl_vq"),
        (CTRL_RX, "ctrl_rx"),
        (CTRL_VLAN, "ctrl_vlan"),
        (CTRL_RX_EXTRA, "ctrl_rx_extra"),
        (GUEST_ANNOUNCE, "guest_announce"),
        (MQ, "mq"),
        (CTRL_MAC_ADDR, "ctrl_mac_addr"),
        (LOG_ALL, "log_all"),
        (ANY_LAYOUT, "any_layout"),
        (RING_INDIRECT_DESC, "indirect_desc"),
        (RING_EVENT_IDX, "event_idx"),
        (PROTOCOL_FEATURES, "protocol_features"),
        (VERSION_1, "version_1"),
        (RING_PACKED, "packed"),
        (IN_ORDER, "in_order"),
        (DEVICE_STATS, "device_stats"),
        (HASH_TUNNEL, "hash_tunnel"),
        (VQ_NOTF_COAL, "vq_notf_coal"),
        (NOTF_COAL, "notf_coal"),
        (GUEST_USO4, "guest_uso4"),
        (GUEST_USO6, "guest_uso6"),
        (HOST_USO, "host_uso"),
        (HASH_REPORT, "hash_report"),
        (RSS, "rss"),
        (RSC_EXT, "rsc_ext"),
        (SPEED_DUPLEX, "speed_duplex"),
    ];

    /// The names of the bits that are set, for people; bits that are not in this file are left out.
    pub fn names(features: u64) -> impl Iterator<Item = &'static str> {
        NAMES
            .iter()
            .filter(move |(bit, _)| features & bit != 0)
            .map(|(_, name)| *name)
    }
}

/// The frame header (virtio 1.3 section 5.1.6) without `num_buffers`; 10 bytes on the ring, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NetHdr {
    /// [`NetHdr::NEEDS_CSUM`], [`NetHdr::DATA_VALID`].
    pub flags: u8,
    /// [`NetHdr::GSO_NONE`], …
    pub gso_type: u8,
    /// Hint: bytes of all headers.
    pub hdr_len: u16,
    /// Bytes of payload per segment.
    pub gso_size: u16,
    /// Offset at which the checksum starts.
    pub csum_start: u16,
    /// Offset of the checksum, after `csum_start`.
    pub csum_offset: u16,
}

impl NetHdr {
    /// The checksum is partial.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum was verified.
    pub const DATA_VALID: u8 = 2;
    /// The frame was coalesced from several segments. A driver with RSC_EXT finds their number in `csum_start`, and that of
    /// duplicate acknowledgments in `csum_offset`; inside the NIC the flag stands beside a segmentation request.
    pub const RSC_INFO: u8 = 4;
    /// Beside [`NetHdr::TUNNEL`]: segments have a checksum in the tunnel's UDP header, too.
    pub const UDP_TUNNEL_CSUM: u8 = 8;
    /// Inside the NIC: the request is about the packet in a UDP tunnel.
    pub const TUNNEL: u8 = 0x80;
    /// Flags that only the NIC says.
    pub const OURS: u8 = NetHdr::RSC_INFO | NetHdr::UDP_TUNNEL_CSUM | NetHdr::TUNNEL;
    /// No segmentation.
    pub const GSO_NONE: u8 = 0;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP over IPv4 or IPv6: datagrams, not fragments.
    pub const GSO_UDP_L4: u8 = 5;
    /// Flag beside the type: TCP with ECN.
    pub const GSO_ECN: u8 = 0x80;

    /// Bytes on the ring without `num_buffers`.
    pub const LEN_LEGACY: usize = 10;
    /// Bytes on the ring with `num_buffers` (VERSION_1 or MRG_RXBUF).
    pub const LEN: usize = 12;
    /// Bytes on the ring with a hash behind `num_buffers` (HASH_REPORT): value, type, two bytes of padding.
    pub const LEN_HASH: usize = 20;

    /// Whether the header asks for nothing.
    #[inline(always)]
    pub fn is_plain(&self) -> bool {
        self.flags | self.gso_type == 0
    }

    /// Reads the header from its ring layout.
    #[inline]
    pub fn parse(b: &[u8; 10]) -> NetHdr {
        NetHdr {
            flags: b[0],
            gso_type: b[1],
            hdr_len: u16::from_le_bytes([b[2], b[3]]),
            gso_size: u16::from_le_bytes([b[4], b[5]]),
            csum_start: u16::from_le_bytes([b[6], b[7]]),
            csum_offset: u16::from_le_bytes([b[8], b[9]]),
        }
    }

    /// Writes the ring layout, `num_buffers` last.
    #[inline]
    pub fn emit(&self, num_buffers: u16) -> [u8; 12] {
        // Put together in registers: a load of words of what was stored in bytes waits for all stores before it.
        let fields = u64::from(self.flags)
            | u64::from(self.gso_type) << 8
            | u64::from(self.hdr_len) << 16
            | u64::from(self.gso_size) << 32
            | u64::from(self.csum_start) << 48;
        let rest = u32::from(self.csum_offset) | u32::from(num_buffers) << 16;
        let mut out = [0; NetHdr::LEN];
        out[..8].copy_from_slice(&fields.to_le_bytes());
        out[8..].copy_from_slice(&rest.to_le_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn layout_of_the_frame_header() {
        let h = NetHdr {
            flags: NetHdr::NEEDS_CSUM,
            gso_type: NetHdr::GSO_TCPV6 | NetHdr::GSO_ECN,
            hdr_len: 0x0102,
            gso_size: 0x0304,
            csum_start: 0x0506,
            csum_offset: 0x0708,
        };
        assert_eq!(h.emit(0x090a), [1, 0x84, 2, 1, 4, 3, 6, 5, 8, 7, 0x0a, 9]);
        assert_eq!(NetHdr::default().emit(1), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn names_of_features() {
        let f = feature::CSUM | feature::MRG_RXBUF | feature::IN_ORDER | 1 << 62;
        assert!(feature::names(f).eq(["csum", "mrg_rxbuf", "in_order"]));
        assert_eq!(feature::names(u64::MAX).count(), 39);
        assert_eq!(feature::names(0).count(), 0);
    }

    proptest! {
        #[test]
        fn parse_undoes_emit(ring: [u8; 10], n: u16) {
            let out = NetHdr::parse(&ring).emit(n);
            prop_assert_eq!(&out[..10], &ring);
            prop_assert_eq!(&out[10..], n.to_le_bytes());
        }
    }
}
