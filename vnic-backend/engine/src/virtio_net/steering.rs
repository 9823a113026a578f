//! Choice of the receive queue: RSS by the Toeplitz hash, or the queue on which the guest sends the flow (virtio 1.3 sections
//! 5.1.6.5.5 and 5.1.6.5.7). Also the hash that a guest may have reported with each frame (section 5.1.6.4.3).

use alloc::boxed::Box;
use alloc::vec::Vec;

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

    /// Hash of a frame by its first bytes, a VLAN tag included or not.
    pub fn hash(&self, head: &[u8]) -> Hashed {
        let Some(flow) = Flow::of(head) else {
            return Hashed::default();
        };
        let (ip, tcp, udp) = match flow.addresses.len() {
            8 => (hash_type::IPV4, hash_type::TCPV4, hash_type::UDPV4),
            _ => (hash_type::IPV6, hash_type::TCPV6, hash_type::UDPV6),
        };
        let with_ports = match flow.protocol {
            TCP => tcp,
            UDP => udp,
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

const TCP: u8 = 6;
const UDP: u8 = 17;

/// What names a frame's flow.
struct Flow<'a> {
    /// Source, destination: 8 bytes of IPv4, 32 of IPv6.
    addresses: &'a [u8],
    protocol: u8,
    /// Ports of TCP or UDP, if the frame begins its datagram and they stand where they can be read.
    ports: Option<&'a [u8; 4]>,
}

impl Flow<'_> {
    #[inline]
    fn of(head: &[u8]) -> Option<Flow<'_>> {
        let at = match head.get(12..14)? {
            [0x81, 0x00] => 16,
            _ => 12,
        };
        let ip = head.get(at + 2..)?;
        let (addresses, protocol, ports_at) = match head.get(at..at + 2)? {
            [0x08, 0x00] => {
                let is_fragment = ip.get(6)? & 0x3f | ip.get(7)? != 0;
                let len = 4 * usize::from(ip[0] & 15);
                (ip.get(12..20)?, ip[9], (!is_fragment).then_some(len))
            }
            [0x86, 0xdd] => (ip.get(8..40)?, ip[6], Some(40)),
            _ => return None,
        };
        let has_ports = matches!(protocol, TCP | UDP);
        let ports = ports_at
            .filter(|_| has_ports)
            .and_then(|at| ip.get(at..)?.first_chunk());
        Some(Flow {
            addresses,
            protocol,
            ports,
        })
    }
}

/// Number of a flow, the same in both directions: addresses and ports, or the addresses of the stations.
#[inline]
pub fn flow_number(head: &[u8]) -> u32 {
    let (mut from, mut to) = (0, 0);
    match Flow::of(head) {
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
    pub fn queue(&self, head: &[u8]) -> u8 {
        match self.hash.hash(head) {
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
    pub fn sent(&mut self, head: &[u8], pair: u8) {
        self.pairs[flow_number(head) as usize % 256] = pair + 1;
    }

    /// Queue pair of a frame for the guest, if it is one of those that are `active`; a flow that the guest has not sent has one of them
    /// by its number. `None`: none is active.
    #[inline]
    pub fn queue(&self, head: &[u8], active: &[u8]) -> Option<u8> {
        let number = flow_number(head) as usize;
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
            assert_eq!(addresses.hash(&frame).value, by_address, "row {i}");
            assert_eq!(
                addresses.hash(&frame).report,
                if is_v6 { 4 } else { 1 },
                "row {i}"
            );
            assert_eq!(all.hash(&frame).value, by_port, "row {i}");
            assert_eq!(all.hash(&frame).report, if is_v6 { 5 } else { 2 }, "row {i}");
        }
    }

    #[test]
    fn a_hash_follows_the_chosen_types() {
        let frame = v4([10, 0, 0, 1], 1, [10, 0, 0, 2], 2, UDP);
        let report = |types| Toeplitz::new(types, &KEY).hash(&frame).report;
        assert_eq!(report(hash_type::ALL), 3);
        assert_eq!(report(hash_type::ALL & !hash_type::UDPV4), 1);
        assert_eq!(report(hash_type::TCPV4), 0);
        // A fragment has no ports, whatever it begins with.
        let mut fragment = frame.clone();
        fragment[20] = 0x20;
        let all = Toeplitz::new(hash_type::ALL, &KEY);
        assert_eq!(all.hash(&fragment).report, 1);
        // A tag changes nothing.
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0x00, 0x60, 0x05]);
        assert_eq!(all.hash(&tagged), all.hash(&frame));
        assert_eq!(all.hash(&[0; 60]), Hashed::default());
    }

    #[test]
    fn frames_without_a_hash_have_their_own_queue() {
        let rss = Rss::new(Toeplitz::new(hash_type::ALL, &KEY), vec![1, 2, 3, 1], 0).expect("four entries");
        assert_eq!(rss.queue(&[0; 60]), 0);
        let frame = v4([66, 9, 149, 187], 2794, [161, 142, 100, 80], 1766, TCP);
        assert_eq!(rss.queue(&frame), rss.table()[0x51cc_c178 % 4]);
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
        let before = steering.queue(&back, &[0, 1, 2, 3]).expect("a queue");
        let other = (before + 1) % 4;
        steering.sent(&there, other);
        assert_eq!(steering.queue(&back, &[0, 1, 2, 3]), Some(other));
        // A queue that does not run gets nothing.
        assert_ne!(steering.queue(&back, &[before]), Some(other));
        assert_eq!(steering.queue(&back, &[]), None);
        steering.forget();
        assert_eq!(steering.queue(&back, &[0, 1, 2, 3]), Some(before));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_hash_and_a_number(head: Vec<u8>, at in 0usize..64) {
            let all = Toeplitz::new(hash_type::ALL, &KEY);
            all.hash(&head);
            flow_number(&head);
            let frame = v6("fe80::1", 1, "fe80::2", 2, UDP);
            flow_number(&frame[..at]);
            all.hash(&frame[..at]);
        }

        #[test]
        fn both_directions_have_one_number(a: [u8; 4], b: [u8; 4], from: u16, to: u16) {
            prop_assert_eq!(flow_number(&v4(a, from, b, to, TCP)), flow_number(&v4(b, to, a, from, TCP)));
        }
    }
}
