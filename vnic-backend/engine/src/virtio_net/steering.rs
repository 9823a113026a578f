//! Choice of the receive queue: RSS by the Toeplitz hash, or the queue on which the guest sends the flow (virtio 1.3 sections
//! 5.1.6.5.5 and 5.1.6.5.7). Also the hash that a guest may have reported with each frame (section 5.1.6.4.3), and the packets in tunnels,
//! which may decide instead of those that carry them (section 5.1.6.4.4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use vnic_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_TCP, PROTOCOL_UDP};
use vnic_wire::tunnel::{self, Kind};
use vnic_wire::{EtherType, vxlan};

/// Bytes of the longest hash key (the same as of Microsoft's RSS).
pub const KEY_MAX: usize = 40;
/// Most entries of the indirection table.
pub const TABLE_MAX: usize = 128;

/// Types of hashes, a bit each (virtio 1.3 section 5.1.6.4.3.1). Those of IPv6 extension headers are not offered.
pub mod hash_type {
    /// Addresses of IPv4.
    pub const IPV4: u32 = 1 << 0;
    /// Addresses and ports of TCP over IPv4.
    pub const TCPV4: u32 = 1 << 1;
    /// Addresses and ports of UDP over IPv4.
    pub const UDPV4: u32 = 1 << 2;
    /// Addresses of IPv6.
    pub const IPV6: u32 = 1 << 3;
    /// Addresses and ports of TCP over IPv6.
    pub const TCPV6: u32 = 1 << 4;
    /// Addresses and ports of UDP over IPv6.
    pub const UDPV6: u32 = 1 << 5;
    /// Names, by bit.
    const NAMES: [&str; 6] = ["ipv4", "tcpv4", "udpv4", "ipv6", "tcpv6", "udpv6"];

    /// The names of types, for people.
    pub fn names(types: u32) -> impl Iterator<Item = &'static str> {
        let all = NAMES.iter().enumerate();
        all.filter(move |(bit, _)| types & 1 << bit != 0)
            .map(|(_, name)| *name)
    }

    /// All types that the device knows.
    pub const ALL: u32 = IPV4 | TCPV4 | UDPV4 | IPV6 | TCPV6 | UDPV6;
}

/// Types of tunnels, a bit each (virtio 1.3 section 5.1.6.4.4). GRE over or of IPv6 by RFC 7676, GRE in UDP and VXLAN-GPE are not offered.
pub mod tunnel_type {
    /// GRE (RFC 2784).
    pub const GRE: u32 = 1 << 0;
    /// GRE with a key or a sequence number (RFC 2890).
    pub const GRE_KEYED: u32 = 1 << 1;
    /// VXLAN (RFC 7348).
    pub const VXLAN: u32 = 1 << 4;
    /// GENEVE (RFC 8926).
    pub const GENEVE: u32 = 1 << 6;
    /// IPv4 in IP (RFC 2003).
    pub const IPIP: u32 = 1 << 7;
    /// NVGRE (RFC 7637).
    pub const NVGRE: u32 = 1 << 8;

    /// All types that the device knows.
    pub const ALL: u32 = GRE | GRE_KEYED | VXLAN | GENEVE | IPIP | NVGRE;
}

/// Tunnels whose inner packets decide about queues and hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnels {
    /// [`tunnel_type`]s.
    pub types: u32,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
}

impl Default for Tunnels {
    fn default() -> Tunnels {
        Tunnels::NONE
    }
}

impl Tunnels {
    /// Outer packets decide.
    pub const NONE: Tunnels = Tunnels {
        types: 0,
        vxlan_port: vxlan::UDP_PORT,
    };

    /// Bytes from the front of a tunnel's frame that may be looked at: headers with options, and those of the inner packet.
    pub const LOOKED_AT: usize = 256;

    /// Whether a tunnel of this kind is one of these.
    #[inline]
    pub fn has(&self, kind: Kind) -> bool {
        let kind = match kind {
            Kind::Gre => tunnel_type::GRE,
            Kind::GreKeyed => tunnel_type::GRE_KEYED,
            Kind::Nvgre => tunnel_type::NVGRE,
            Kind::Vxlan => tunnel_type::VXLAN,
            Kind::Geneve => tunnel_type::GENEVE,
            Kind::Ipv4 => tunnel_type::IPIP,
            Kind::Ipv6 => 0,
        };
        self.types & kind != 0
    }

    /// Whether a packet of this flow may be one of these tunnels'.
    #[inline]
    pub fn may_carry(&self, flow: &Flow<'_>) -> bool {
        if self.types == 0 {
            return false;
        }
        let kind = match (flow.protocol, flow.ports) {
            (PROTOCOL_UDP, Some([_, _, a, b])) => {
                tunnel::of_port(u16::from_be_bytes([*a, *b]), self.vxlan_port)
            }
            (PROTOCOL_IPV4, _) => Some(Kind::Ipv4),
            (PROTOCOL_GRE, _) => return true,
            _ => None,
        };
        kind.is_some_and(|kind| self.has(kind))
    }

    /// The flow that decides: the inner packet's in one of these tunnels. `None`: that packet is not IP.
    pub fn flow<'a>(&self, head: &'a [u8]) -> Option<Flow<'a>> {
        let outer = Flow::of(head)?;
        if !self.may_carry(&outer) {
            return Some(outer);
        }
        match tunnel::inner(outer.protocol, outer.upper, self.vxlan_port) {
            Some(inner) if self.has(inner.kind) => {
                Flow::of_packet(inner.ethertype, outer.upper.get(inner.offset..)?)
            }
            _ => Some(outer),
        }
    }
}

/// Hash of a frame: value, and number of its type as reported (virtio 1.3 section 5.1.6.4.3.4); type 0: the frame has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hashed {
    /// Value of the Toeplitz hash.
    pub value: u32,
    /// 1 + index of the bit of [`hash_type`]; 0: none.
    pub report: u16,
}

/// The Toeplitz hash with one key, for the types that a guest has chosen.
#[derive(Clone, PartialEq, Eq)]
pub struct Toeplitz {
    /// Chosen [`hash_type`]s.
    types: u32,
    /// What each value of each half byte of the input adds: 36 bytes of IPv6 addresses and ports.
    halves: Box<[[u32; 16]; 72]>,
}

impl core::fmt::Debug for Toeplitz {
    /// The key is the guest's secret: with it a peer could choose flows that collide.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Toeplitz(types {:#x})", self.types)
    }
}

impl Toeplitz {
    /// The hash with a key, which is padded with zeros.
    pub fn new(types: u32, key: &[u8]) -> Toeplitz {
        let mut padded = [0; KEY_MAX];
        let n = key.len().min(KEY_MAX);
        padded[..n].copy_from_slice(&key[..n]);
        // The 32 bits of the key that a set bit of the input adds begin at the bit's own index.
        let window = |bit: usize| {
            let byte = |i: usize| u64::from(padded.get(i).copied().unwrap_or(0));
            let five = (0..5).fold(0, |sum, i| sum << 8 | byte(bit / 8 + i));
            (five >> (8 - bit % 8)) as u32
        };
        let mut halves = Box::new([[0; 16]; 72]);
        for (at, half) in halves.iter_mut().enumerate() {
            for bit in 0..4 {
                half[8 >> bit] = window(4 * at + bit);
            }
            for value in 1..16 {
                // All bits but the lowest, and the lowest.
                let others = value & (value - 1);
                half[value] = half[others] ^ half[value ^ others];
            }
        }
        Toeplitz { types, halves }
    }

    /// Chosen [`hash_type`]s.
    pub fn types(&self) -> u32 {
        self.types
    }

    #[inline]
    fn over(&self, addresses: &[u8], ports: &[u8]) -> u32 {
        let (of_addresses, of_ports) = self.halves.as_chunks::<2>().0.split_at(addresses.len().min(32));
        let add = |sum, ([high, low], byte): (&[[u32; 16]; 2], &u8)| {
            sum ^ high[usize::from(byte >> 4)] ^ low[usize::from(byte & 15)]
        };
        let sum = of_addresses.iter().zip(addresses).fold(0, add);
        of_ports.iter().zip(ports).fold(sum, add)
    }

    /// Hash of a frame of this flow.
    pub fn hash(&self, flow: Option<&Flow<'_>>) -> Hashed {
        let Some(flow) = flow else {
            return Hashed::default();
        };
        let (ip, tcp, udp) = match flow.addresses.len() {
            8 => (hash_type::IPV4, hash_type::TCPV4, hash_type::UDPV4),
            _ => (hash_type::IPV6, hash_type::TCPV6, hash_type::UDPV6),
        };
        let with_ports = match flow.protocol {
            PROTOCOL_TCP => tcp,
            PROTOCOL_UDP => udp,
            _ => 0,
        };
        let (kind, ports) = match (self.types & with_ports, flow.ports) {
            (kind @ 1.., Some(ports)) => (kind, &ports[..]),
            _ => (self.types & ip, &[][..]),
        };
        if kind == 0 {
            return Hashed::default();
        }
        Hashed {
            value: self.over(flow.addresses, ports),
            report: kind.trailing_zeros() as u16 + 1,
        }
    }
}

/// What names the flow of an IP packet.
pub struct Flow<'a> {
    /// Source, destination: 8 bytes of IPv4, 32 of IPv6.
    addresses: &'a [u8],
    protocol: u8,
    /// Bytes behind the IP header; none of a fragment.
    upper: &'a [u8],
    /// Ports of TCP or UDP, if the frame begins its datagram and they stand where they can be read.
    ports: Option<&'a [u8; 4]>,
}

impl<'a> Flow<'a> {
    /// The flow of a frame by its first bytes, a VLAN tag included or not. `None`: it is not IP, or the bytes end too early.
    #[inline]
    pub fn of(head: &'a [u8]) -> Option<Flow<'a>> {
        let at = match head.get(12..14)? {
            [0x81, 0x00] => 16,
            _ => 12,
        };
        let ethertype = u16::from_be_bytes(*head.get(at..)?.first_chunk()?);
        Flow::of_packet(EtherType(ethertype), head.get(at + 2..)?)
    }

    #[inline]
    fn of_packet(ethertype: EtherType, ip: &'a [u8]) -> Option<Flow<'a>> {
        let (addresses, protocol, upper_at) = match ethertype {
            EtherType::IPV4 => {
                let addresses = ip.get(12..20)?;
                let is_fragment = ip[6] & 0x3f | ip[7] != 0;
                let len = 4 * usize::from(ip[0] & 15);
                (addresses, ip[9], (!is_fragment).then_some(len))
            }
            EtherType::IPV6 => (ip.get(8..40)?, ip[6], Some(40)),
            _ => return None,
        };
        let upper = upper_at.and_then(|at| ip.get(at..)).unwrap_or(&[]);
        let has_ports = matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP);
        Some(Flow {
            addresses,
            protocol,
            upper,
            ports: upper.first_chunk().filter(|_| has_ports),
        })
    }
}

/// Number of a frame's flow, the same in both directions: addresses and ports, or the addresses of the stations.
#[inline]
pub fn flow_number(head: &[u8], flow: Option<&Flow<'_>>) -> u32 {
    let (mut from, mut to) = (0, 0);
    match flow {
        Some(flow) => {
            let (a, b) = flow.addresses.split_at(flow.addresses.len() / 2);
            (from, to) = (tail(a), tail(b));
            if let Some([a, b, c, d]) = flow.ports {
                from ^= u64::from(u16::from_be_bytes([*a, *b])) << 40;
                to ^= u64::from(u16::from_be_bytes([*c, *d])) << 40;
            }
        }
        None => {
            if let Some(stations) = head.first_chunk::<12>() {
                (to, from) = (tail(&stations[..6]), tail(&stations[6..]));
            }
        }
    }
    let mix = |h: u64| {
        let h = h.wrapping_mul(0xff51_afd7_ed55_8ccd);
        h ^ h >> 32
    };
    let (low, high) = (from.min(to), from.max(to));
    (mix(mix(low ^ 0x9e37_79b9_7f4a_7c15) ^ high) >> 16) as u32
}

/// The last bytes of an address that differ between neighbours, up to eight.
#[inline]
fn tail(address: &[u8]) -> u64 {
    match (address.last_chunk::<8>(), address.first_chunk::<4>()) {
        (Some(last), _) => u64::from_be_bytes(*last),
        // An IPv4 address.
        (None, Some(all)) if address.len() == 4 => u32::from_be_bytes(*all).into(),
        _ => address.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}

/// RSS as a guest has set it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rss {
    /// Hash of a frame.
    pub hash: Toeplitz,
    /// Queue pairs by the hash's low bits; a power of two of entries.
    table: Vec<u8>,
    /// Queue pair of frames that have no hash.
    unclassified: u8,
}

impl Rss {
    /// RSS by this table; `None`: the table's length is no power of two up to [`TABLE_MAX`].
    pub fn new(hash: Toeplitz, table: Vec<u8>, unclassified: u8) -> Option<Rss> {
        let fits = table.len().is_power_of_two() && table.len() <= TABLE_MAX;
        fits.then_some(Rss {
            hash,
            table,
            unclassified,
        })
    }

    /// Queue pair of a frame.
    #[inline]
    pub fn queue(&self, flow: Option<&Flow<'_>>) -> u8 {
        match self.hash.hash(flow) {
            Hashed { report: 0, .. } => self.unclassified,
            Hashed { value, .. } => self.table[value as usize & (self.table.len() - 1)],
        }
    }

    /// Queue pairs by the hash's low bits.
    pub fn table(&self) -> &[u8] {
        &self.table
    }
}

/// Automatic receive steering: a flow comes in by the queue pair by which the guest last sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Automatic {
    /// 1 + queue pair by the low bits of [`flow_number`]; 0: the guest has sent nothing.
    pairs: [u8; 256],
}

impl Default for Automatic {
    fn default() -> Automatic {
        Automatic { pairs: [0; 256] }
    }
}

impl Automatic {
    /// The guest sent a frame by a queue pair.
    #[inline]
    pub fn sent(&mut self, head: &[u8], flow: Option<&Flow<'_>>, pair: u8) {
        self.pairs[flow_number(head, flow) as usize % 256] = pair + 1;
    }

    /// Queue pair of a frame for the guest, if it is one of those that are `active`; a flow that the guest has not sent has one of them
    /// by its number. `None`: none is active.
    #[inline]
    pub fn queue(&self, head: &[u8], flow: Option<&Flow<'_>>, active: &[u8]) -> Option<u8> {
        let number = flow_number(head, flow) as usize;
        let sent = self.pairs[number % 256].wrapping_sub(1);
        match active.contains(&sent) {
            true => Some(sent),
            false => active.get(number.checked_rem(active.len())?).copied(),
        }
    }

    /// Forgets all flows.
    pub fn forget(&mut self) {
        self.pairs.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use proptest::prelude::*;

    use super::*;

    const TCP: u8 = PROTOCOL_TCP;
    const UDP: u8 = PROTOCOL_UDP;
    const NONE: Tunnels = Tunnels::NONE;

    fn hash(by: &Toeplitz, frame: &[u8], tunnels: &Tunnels) -> Hashed {
        by.hash(tunnels.flow(frame).as_ref())
    }

    fn number(frame: &[u8], tunnels: &Tunnels) -> u32 {
        flow_number(frame, tunnels.flow(frame).as_ref())
    }

    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
        0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
        0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    fn v4(source: [u8; 4], from: u16, destination: [u8; 4], to: u16, protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; 54];
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = protocol;
        frame[26..30].copy_from_slice(&source);
        frame[30..34].copy_from_slice(&destination);
        frame[34..36].copy_from_slice(&from.to_be_bytes());
        frame[36..38].copy_from_slice(&to.to_be_bytes());
        frame
    }

    fn v6(source: &str, from: u16, destination: &str, to: u16, protocol: u8) -> Vec<u8> {
        let mut frame = vec![0; 74];
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[20] = protocol;
        let octets = |a: &str| a.parse::<core::net::Ipv6Addr>().expect("an address").octets();
        frame[22..38].copy_from_slice(&octets(source));
        frame[38..54].copy_from_slice(&octets(destination));
        frame[54..56].copy_from_slice(&from.to_be_bytes());
        frame[56..58].copy_from_slice(&to.to_be_bytes());
        frame
    }

    /// "Verifying the RSS Hash Calculation" of the NDIS documentation.
    #[test]
    fn published_values_of_the_hash() {
        let all = Toeplitz::new(hash_type::ALL, &KEY);
        let addresses = Toeplitz::new(hash_type::IPV4 | hash_type::IPV6, &KEY);
        let rows = [
            (
                v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, TCP),
                0x323e_8fc2,
                0x51cc_c178,
            ),
            (
                v4([199, 92, 111, 2], 14230, [65, 69, 140, 83], 4739, TCP),
                0xd718_262a,
                0xc626_b0ea,
            ),
            (
                v4([24, 19, 198, 95], 12898, [12, 22, 207, 184], 38024, TCP),
                0xd2d0_a5de,
                0x5c2b_394a,
            ),
            (
                v4([38, 27, 205, 30], 48228, [209, 142, 163, 6], 2217, TCP),
                0x8298_9176,
                0xafc7_327f,
            ),
            (
                v4([153, 39, 163, 191], 44251, [202, 188, 127, 2], 1303, TCP),
                0x5d18_09c5,
                0x10e8_28a2,
            ),
            (
                v6("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766, TCP),
                0x2cc1_8cd5,
                0x4020_7d3d,
            ),
            (
                v6("3ffe:501:8::260:97ff:fe40:efab", 14230, "ff02::1", 4739, TCP),
                0x0f0c_461c,
                0xdde5_1bbf,
            ),
            (
                v6(
                    "3ffe:1900:4545:3:200:f8ff:fe21:67cf",
                    44251,
                    "fe80::200:f8ff:fe21:67cf",
                    38024,
                    TCP,
                ),
                0x4b61_e985,
                0x02d1_feef,
            ),
        ];
        for (i, (frame, by_address, by_port)) in rows.into_iter().enumerate() {
            let is_v6 = frame[12] == 0x86;
            assert_eq!(hash(&addresses, &frame, &NONE).value, by_address, "row {i}");
            assert_eq!(
                hash(&addresses, &frame, &NONE).report,
                if is_v6 { 4 } else { 1 },
                "row {i}"
            );
            assert_eq!(hash(&all, &frame, &NONE).value, by_port, "row {i}");
            assert_eq!(
                hash(&all, &frame, &NONE).report,
                if is_v6 { 5 } else { 2 },
                "row {i}"
            );
        }
    }

    #[test]
    fn a_hash_follows_the_chosen_types() {
        let frame = v4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, UDP);
        let report = |types| hash(&Toeplitz::new(types, &KEY), &frame, &NONE).report;
        assert_eq!(report(hash_type::ALL), 3);
        assert_eq!(report(hash_type::ALL & !hash_type::UDPV4), 1);
        assert_eq!(report(hash_type::TCPV4), 0);
        // A fragment has no ports, whatever it begins with.
        let mut fragment = frame.clone();
        fragment[20] = 0x20;
        let all = Toeplitz::new(hash_type::ALL, &KEY);
        assert_eq!(hash(&all, &fragment, &NONE).report, 1);
        // A tag changes nothing.
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
        assert_eq!(hash(&all, &tagged, &NONE), hash(&all, &frame, &NONE));
        assert_eq!(hash(&all, &[0; 60], &NONE), Hashed::default());
    }

    #[test]
    fn frames_without_a_hash_have_their_own_queue() {
        let rss = Rss::new(Toeplitz::new(hash_type::ALL, &KEY), vec![1, 2, 3, 1], 0).expect("four entries");
        assert_eq!(rss.queue(None), 0);
        let frame = v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, TCP);
        assert_eq!(rss.queue(Flow::of(&frame).as_ref()), rss.table()[0x51cc_c178 % 4]);
        for wrong in [0, 3, 256] {
            assert_eq!(Rss::new(Toeplitz::new(0, &KEY), vec![0; wrong], 0), None);
        }
    }

    #[test]
    fn a_flow_comes_where_it_was_sent() {
        let (there, back) = (
            v4([10, 0, 0, 1], 1000, [10, 0, 0, 2], 80, TCP),
            v4([10, 0, 0, 2], 80, [10, 0, 0, 1], 1000, TCP),
        );
        let mut steering = Automatic::default();
        let before = steering
            .queue(&back, Flow::of(&back).as_ref(), &[0, 1, 2, 3])
            .expect("a queue");
        let other = (before + 1) % 4;
        steering.sent(&there, Flow::of(&there).as_ref(), other);
        assert_eq!(
            steering.queue(&back, Flow::of(&back).as_ref(), &[0, 1, 2, 3]),
            Some(other)
        );
        // A queue that does not run gets nothing.
        assert_ne!(
            steering.queue(&back, Flow::of(&back).as_ref(), &[before]),
            Some(other)
        );
        assert_eq!(steering.queue(&back, Flow::of(&back).as_ref(), &[]), None);
        steering.forget();
        assert_eq!(
            steering.queue(&back, Flow::of(&back).as_ref(), &[0, 1, 2, 3]),
            Some(before)
        );
    }

    /// A frame in a tunnel of each type: outer addresses and ports always the same.
    fn in_tunnels(inner: &[u8], port: u16) -> [(u32, Vec<u8>); 6] {
        let outer = |protocol| v4([192, 0, 2, 1], 0xdddd, [192, 0, 2, 2], 0, protocol);
        let udp = |port: u16, header: &[u8]| {
            let mut frame = outer(UDP);
            frame[36..38].copy_from_slice(&port.to_be_bytes());
            frame.truncate(42);
            [&frame, header, inner].concat()
        };
        let ip = |protocol, header: &[u8], inner: &[u8]| [&outer(protocol)[..34], header, inner].concat();
        let packet = &inner[14..];
        let kind = [inner[12], inner[13]];
        [
            (tunnel_type::VXLAN, udp(port, &[8, 0, 0, 0, 0, 0, 5, 0])),
            (tunnel_type::GENEVE, udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 5, 0])),
            (
                tunnel_type::NVGRE,
                ip(PROTOCOL_GRE, &[0x20, 0, 0x65, 0x58, 0, 0, 5, 0], inner),
            ),
            (
                tunnel_type::GRE,
                ip(PROTOCOL_GRE, &[0, 0, kind[0], kind[1]], packet),
            ),
            (
                tunnel_type::GRE_KEYED,
                ip(
                    PROTOCOL_GRE,
                    &[0x30, 0, kind[0], kind[1], 0, 0, 0, 1, 0, 0, 0, 2],
                    packet,
                ),
            ),
            (tunnel_type::IPIP, ip(PROTOCOL_IPV4, &[], packet)),
        ]
    }

    #[test]
    fn a_tunnel_hides_its_packet_unless_its_type_is_chosen() {
        let all = Toeplitz::new(hash_type::ALL, &KEY);
        let inner = v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, TCP);
        let (of_inner, of_flow) = (hash(&all, &inner, &NONE), number(&inner, &NONE));
        assert_eq!((of_inner.value, of_inner.report), (0x51cc_c178, 2));
        for (types, frame) in in_tunnels(&inner, 8472) {
            let only = Tunnels {
                types,
                vxlan_port: 8472,
            };
            let short = Flow::of(&frame[..64]).expect("IP");
            assert!(only.may_carry(&short), "{types:#x}");
            assert_eq!(hash(&all, &frame, &only), of_inner, "{types:#x}");
            assert_eq!(number(&frame, &only), of_flow, "{types:#x}");
            let others = Tunnels {
                types: tunnel_type::ALL & !types,
                ..only
            };
            assert_eq!(
                hash(&all, &frame, &others),
                hash(&all, &frame, &NONE),
                "{types:#x}"
            );
            assert_ne!(hash(&all, &frame, &others), of_inner, "{types:#x}");
        }
        // VXLAN of another port is UDP, and what is in no tunnel is what it is.
        let everything = Tunnels {
            types: tunnel_type::ALL,
            vxlan_port: 8472,
        };
        let [(_, vxlan), ..] = in_tunnels(&inner, 4789);
        assert_eq!(hash(&all, &vxlan, &everything), hash(&all, &vxlan, &NONE));
        assert_eq!(hash(&all, &inner, &everything), of_inner);
        let flow = |frame| Flow::of(frame).expect("IP");
        assert!(!everything.may_carry(&flow(&inner)) && !NONE.may_carry(&flow(&vxlan)));
    }

    #[test]
    fn a_packet_in_a_tunnel_without_ip_has_no_hash() {
        let all = Toeplitz::new(hash_type::ALL, &KEY);
        let tunnels = Tunnels {
            types: tunnel_type::ALL,
            ..NONE
        };
        let mut inner = vec![2; 60];
        inner[12..14].copy_from_slice(&[0x08, 0x06]);
        let [(_, vxlan), ..] = in_tunnels(&inner, 4789);
        assert_eq!(hash(&all, &vxlan, &tunnels), Hashed::default());
        // Bytes that are no VXLAN header carry nothing.
        let mut plain = vxlan.clone();
        plain[42] = 0;
        assert_eq!(hash(&all, &plain, &tunnels), hash(&all, &plain, &NONE));
    }

    proptest! {
        /// The hash of a frame in a tunnel is that of the frame, whatever it is; only one tunnel is looked into.
        #[test]
        fn frames_in_tunnels(a: [u8; 4], b: [u8; 4], from: u16, to: u16, udp: bool, chosen: u32) {
            let all = Toeplitz::new(hash_type::ALL, &KEY);
            let inner = v4(a, from, b, to, if udp { UDP } else { TCP });
            let tunnels = Tunnels { types: chosen & tunnel_type::ALL, ..NONE };
            for (types, frame) in in_tunnels(&inner, 4789) {
                let counts = if chosen & types != 0 { &inner } else { &frame };
                prop_assert_eq!(hash(&all, &frame, &tunnels), hash(&all, counts, &NONE));
                prop_assert_eq!(number(&frame, &tunnels), number(counts, &NONE));
            }
        }

        #[test]
        fn any_bytes_in_tunnels_have_a_hash(head: Vec<u8>, at in 0usize..120, types: u32, vxlan_port: u16) {
            let all = Toeplitz::new(hash_type::ALL, &KEY);
            let tunnels = Tunnels { types, vxlan_port };
            hash(&all, &head, &tunnels);
            for (_, frame) in in_tunnels(&[&[0; 14], &head[..]].concat(), vxlan_port) {
                hash(&all, &frame[..at.min(frame.len())], &tunnels);
                number(&frame, &tunnels);
            }
        }

        #[test]
        fn any_bytes_have_a_hash_and_a_number(head: Vec<u8>, at in 0usize..64) {
            let all = Toeplitz::new(hash_type::ALL, &KEY);
            hash(&all, &head, &NONE);
            number(&head, &NONE);
            let frame = v6("fe80::1", 1, "fe80::2", 2, UDP);
            number(&frame[..at], &NONE);
            hash(&all, &frame[..at], &NONE);
        }

        #[test]
        fn both_directions_have_one_number(a: [u8; 4], b: [u8; 4], from: u16, to: u16) {
            prop_assert_eq!(number(&v4(a, from, b, to, TCP), &NONE), number(&v4(b, to, a, from, TCP), &NONE));
        }
    }
}
