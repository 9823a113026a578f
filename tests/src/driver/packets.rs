//! Frames for tests: numbered ones, and TCP and UDP whose checksums etherparse computes and checks.

use etherparse::{PacketBuilder, PacketBuilderStep, SlicedPacket, TransportSlice, VlanId, VlanSlice};
use vnic_backend::MacAddr;

use super::NetHdr;

/// The broadcast address.
pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
/// EtherType of numbered frames (IEEE 802 local experimental 1).
pub const NUMBERED: [u8; 2] = [0x88, 0xb5];

/// An Ethernet frame.
pub fn eth(to: MacAddr, from: MacAddr, ethertype: [u8; 2], payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0[..], &ethertype[..], payload].concat()
}

/// The same frame with a VLAN tag.
pub fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    [&frame[..12], &[0x81, 0x00], &tci.to_be_bytes(), &frame[12..]].concat()
}

/// What a numbered frame says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number {
    /// Who sent it.
    pub sender: u32,
    /// From which queue, or what else the test wants.
    pub stream: u32,
    /// Which frame of that stream.
    pub seq: u64,
}

/// Shortest numbered frame.
pub const NUMBERED_MIN: usize = 14 + 16;

/// A frame of `len` bytes that carries a number and, behind it, bytes that follow from the number.
pub fn numbered(to: MacAddr, from: MacAddr, n: Number, len: usize) -> Vec<u8> {
    let mut f = eth(to, from, NUMBERED, &[]);
    f.extend_from_slice(&n.sender.to_be_bytes());
    f.extend_from_slice(&n.stream.to_be_bytes());
    f.extend_from_slice(&n.seq.to_be_bytes());
    let base = filler(n);
    f.extend((f.len()..len.max(NUMBERED_MIN)).map(|i| base.wrapping_add(i as u8)));
    f
}

fn filler(n: Number) -> u8 {
    (n.sender as u8).wrapping_mul(31) ^ (n.stream as u8).wrapping_mul(17) ^ n.seq as u8
}

/// The number of a frame made by [`numbered`]; nothing for other frames.
///
/// # Panics
/// When the frame is numbered and any byte of it is not as it was made.
pub fn number_of(frame: &[u8]) -> Option<Number> {
    if frame.get(12..14)? != NUMBERED {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let n = Number {
        sender: word(14),
        stream: word(18),
        seq: u64::from(word(22)) << 32 | u64::from(word(26)),
    };
    let base = filler(n);
    for (i, b) in frame.iter().enumerate().skip(NUMBERED_MIN) {
        assert_eq!(
            *b,
            base.wrapping_add(i as u8),
            "byte {i} of {} of frame {n:?} is damaged",
            frame.len()
        );
    }
    Some(n)
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0])
        .collect()
}

/// Who talks to whom over IP.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    /// Destination.
    pub to: MacAddr,
    /// Source.
    pub from: MacAddr,
    /// IPv6, not IPv4.
    pub v6: bool,
    /// VLAN identifier of the tag, when there is one.
    pub vlan: Option<u16>,
    /// Source port; the destination port is 80.
    pub port: u16,
}

/// Sequence number of the first byte of a TCP frame made here.
pub const FIRST_SEQ: u32 = 0xffff_f000;

fn with_ip(flow: &Flow) -> PacketBuilderStep<etherparse::IpHeaders> {
    let b = PacketBuilder::ethernet2(flow.from.0, flow.to.0);
    let (a4, b4) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let (mut a6, mut b6) = ([0u8; 16], [0u8; 16]);
    (a6[0], a6[15], b6[0], b6[15]) = (0xfd, 1, 0xfd, 2);
    match (flow.vlan.and_then(|v| VlanId::try_new(v).ok()), flow.v6) {
        (None, false) => b.ipv4(a4, b4, 64),
        (None, true) => b.ipv6(a6, b6, 64),
        (Some(v), false) => b.single_vlan(v).ipv4(a4, b4, 64),
        (Some(v), true) => b.single_vlan(v).ipv6(a6, b6, 64),
    }
}

/// Offset of the IP header.
fn network(flow: &Flow) -> usize {
    14 + if flow.vlan.is_some() { 4 } else { 0 }
}

/// Offset of the TCP or UDP header.
fn transport(flow: &Flow) -> usize {
    network(flow) + if flow.v6 { 40 } else { 20 }
}

/// A finished UDP frame.
pub fn udp(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    with_ip(flow)
        .udp(flow.port, 80)
        .write(&mut out, payload)
        .expect("a Vec takes everything");
    out
}

/// A finished TCP frame with ACK, PSH and FIN set, and an option.
pub fn tcp(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let step = with_ip(flow)
        .tcp(flow.port, 80, FIRST_SEQ, 4096)
        .ack(77)
        .psh()
        .fin();
    let options = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let step = step.options_raw(&options).expect("12 bytes of options");
    step.write(&mut out, payload).expect("a Vec takes everything");
    out
}

/// A finished TCP frame of a stream: ACK, timestamps, these bytes from `at` on; PSH if it is the last.
pub fn segment(flow: &Flow, at: usize, payload: &[u8], last: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let sequence = FIRST_SEQ.wrapping_add(at as u32);
    let mut step = with_ip(flow).tcp(flow.port, 80, sequence, 4096).ack(77);
    if last {
        step = step.psh();
    }
    let options = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
    let step = step.options_raw(&options).expect("12 bytes of options");
    step.write(&mut out, payload).expect("a Vec takes everything");
    out
}

/// The same frame, its checksum left to the device.
pub fn partial(flow: &Flow, mut frame: Vec<u8>) -> (Vec<u8>, NetHdr) {
    make_partial(&mut frame, flow, 16, 6);
    let hdr = NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        csum_start: transport(flow) as u16,
        csum_offset: 16,
        ..NetHdr::default()
    };
    (frame, hdr)
}

/// Puts the sum of the pseudo header where the checksum belongs, as a stack does that leaves the rest to its
/// device.
fn make_partial(frame: &mut [u8], flow: &Flow, field: usize, protocol: u8) {
    let (ip, l4) = (network(flow), transport(flow));
    let addresses = if flow.v6 {
        &frame[ip + 8..ip + 40]
    } else {
        &frame[ip + 12..ip + 20]
    };
    let len = (frame.len() - l4) as u32;
    let words = addresses
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum::<u32>() + (len >> 16) + (len & 0xffff) + u32::from(protocol);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    frame[l4 + field..l4 + field + 2].copy_from_slice(&(sum as u16).to_be_bytes());
}

/// A UDP frame whose checksum the device is to finish.
pub fn udp_partial(flow: &Flow, payload: &[u8]) -> (Vec<u8>, NetHdr) {
    let mut f = udp(flow, payload);
    make_partial(&mut f, flow, 6, 17);
    let hdr = NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        csum_start: transport(flow) as u16,
        csum_offset: 6,
        ..NetHdr::default()
    };
    (f, hdr)
}

/// A TCP frame that the device is to cut into segments of `size` bytes of payload.
pub fn tso(flow: &Flow, payload: &[u8], size: u16) -> (Vec<u8>, NetHdr) {
    let mut f = tcp(flow, payload);
    make_partial(&mut f, flow, 16, 6);
    let hdr = NetHdr {
        flags: NetHdr::NEEDS_CSUM,
        gso_type: if flow.v6 {
            NetHdr::GSO_TCPV6
        } else {
            NetHdr::GSO_TCPV4
        },
        hdr_len: (f.len() - payload.len()) as u16,
        gso_size: size,
        csum_start: transport(flow) as u16,
        csum_offset: 16,
    };
    (f, hdr)
}

/// A UDP frame that the device is to cut into datagrams of `size` bytes of payload.
pub fn uso(flow: &Flow, payload: &[u8], size: u16) -> (Vec<u8>, NetHdr) {
    let (f, hdr) = udp_partial(flow, payload);
    let hdr = NetHdr {
        gso_type: NetHdr::GSO_UDP_L4,
        hdr_len: (f.len() - payload.len()) as u16,
        gso_size: size,
        ..hdr
    };
    (f, hdr)
}

/// A frame taken apart, with everything checked that can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// VLAN identifier of the tag.
    pub vlan: Option<u16>,
    /// TCP sequence number; 0 for UDP.
    pub seq: u32,
    /// FIN and PSH.
    pub fin_psh: (bool, bool),
    /// What TCP or UDP carries.
    pub payload: Vec<u8>,
}

/// Takes a finished TCP or UDP frame apart.
///
/// # Panics
/// When a length or a checksum is wrong.
pub fn parse(frame: &[u8]) -> Parsed {
    let p = SlicedPacket::from_ethernet(frame).expect("a frame that parses");
    let vlan = match p.vlan() {
        Some(VlanSlice::SingleVlan(v)) => Some(v.vlan_identifier().value()),
        Some(VlanSlice::DoubleVlan(_)) => panic!("two tags"),
        None => None,
    };
    let ip_at = 14 + if vlan.is_some() { 4 } else { 0 };
    let ip = &frame[ip_at..];
    match &p.net {
        Some(etherparse::NetSlice::Ipv4(v4)) => {
            let h = v4.header().to_header();
            assert_eq!(
                h.calc_header_checksum(),
                h.header_checksum,
                "IPv4 header checksum"
            );
            assert_eq!(usize::from(h.total_len), ip.len(), "IPv4 total length");
        }
        Some(etherparse::NetSlice::Ipv6(v6)) => {
            assert_eq!(
                usize::from(v6.header().payload_length()),
                ip.len() - 40,
                "IPv6 payload length"
            );
        }
        _ => panic!("no IP"),
    }
    match (&p.transport, &p.net) {
        (Some(TransportSlice::Tcp(t)), Some(net)) => {
            let h = t.to_header();
            let sum = match net {
                etherparse::NetSlice::Ipv4(v) => h.calc_checksum_ipv4(&v.header().to_header(), t.payload()),
                etherparse::NetSlice::Ipv6(v) => h.calc_checksum_ipv6(&v.header().to_header(), t.payload()),
                _ => panic!("no IP"),
            };
            assert_eq!(sum.expect("not too long"), h.checksum, "TCP checksum");
            let (seq, fin_psh) = (h.sequence_number, (h.fin, h.psh));
            Parsed {
                vlan,
                seq,
                fin_psh,
                payload: t.payload().to_vec(),
            }
        }
        (Some(TransportSlice::Udp(u)), Some(net)) => {
            let h = u.to_header();
            let sum = match net {
                etherparse::NetSlice::Ipv4(v) => h.calc_checksum_ipv4(&v.header().to_header(), u.payload()),
                etherparse::NetSlice::Ipv6(v) => h.calc_checksum_ipv6(&v.header().to_header(), u.payload()),
                _ => panic!("no IP"),
            };
            assert_eq!(sum.expect("not too long"), h.checksum, "UDP checksum");
            assert_eq!(usize::from(h.length), 8 + u.payload().len(), "UDP length");
            Parsed {
                vlan,
                seq: 0,
                fin_psh: (false, false),
                payload: u.payload().to_vec(),
            }
        }
        _ => panic!("neither TCP nor UDP"),
    }
}
