//! Frames of a guest, and a guest that answers.

use vnic_wire::gid::Gid;
use vnic_wire::vlan::Tci;
use vnic_wire::{EtherType, MacAddr, arp as wire_arp, dhcp as wire_dhcp, ethernet, nd, udp, vlan};
use vnic_wire::{ipv4 as wire_ipv4, ipv6 as wire_ipv6};

pub use wire_arp::{REPLY, REQUEST};

pub const MAC: MacAddr = MacAddr([2, 0, 0x5e, 0, 0, 1]);
pub const OTHER: MacAddr = MacAddr([2, 0, 0x5e, 0, 0, 2]);
pub const A: [u8; 4] = [10, 0, 0, 5];
pub const B: [u8; 4] = [10, 0, 0, 6];
pub const C: [u8; 4] = [192, 168, 1, 1];
pub const SIX: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];
pub const GATEWAY: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
pub const LINK: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

pub fn group(last: u8) -> [u8; 16] {
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]
}

pub fn loopback() -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
}

fn frame(destination: MacAddr, ethertype: EtherType, parts: &[&[u8]]) -> Vec<u8> {
    let header = ethernet::Header {
        destination,
        source: MAC,
        ethertype,
    };
    let mut f = header.emit().to_vec();
    parts.iter().for_each(|p| f.extend_from_slice(p));
    f
}

fn arp_frame(operation: u16, sender_mac: MacAddr, sender_ip: [u8; 4], target_ip: [u8; 4]) -> Vec<u8> {
    let packet = wire_arp::Header {
        operation,
        sender_mac,
        sender_ip,
        target_mac: MacAddr::default(),
        target_ip,
    };
    frame(MacAddr::BROADCAST, EtherType::ARP, &[&packet.emit()])
}

pub fn arp(operation: u16, sender_ip: [u8; 4], target_ip: [u8; 4]) -> Vec<u8> {
    arp_frame(operation, MAC, sender_ip, target_ip)
}

/// Somebody else's address in a frame of the guest.
pub fn arp_from(sender_mac: MacAddr, sender_ip: [u8; 4]) -> Vec<u8> {
    arp_frame(REQUEST, sender_mac, sender_ip, B)
}

/// Gratuitous.
pub fn arp_announcement(ip: [u8; 4]) -> Vec<u8> {
    arp(REQUEST, ip, ip)
}

fn ipv6_frame(source: [u8; 16], next_header: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let header = wire_ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit,
        source,
        destination: group(1),
    };
    frame(
        MacAddr([0x33, 0x33, 0, 0, 0, 1]),
        EtherType::IPV6,
        &[&header.emit(), payload],
    )
}

fn neighbour(kind: u8, source: [u8; 16], target: [u8; 16]) -> Vec<u8> {
    let header = nd::Header {
        kind,
        checksum: 0,
        flags: 0,
        target,
    };
    ipv6_frame(source, nd::PROTOCOL_ICMPV6, 255, &header.emit())
}

pub fn solicitation(source: [u8; 16], target: [u8; 16]) -> Vec<u8> {
    neighbour(nd::NEIGHBOUR_SOLICITATION, source, target)
}

pub fn advertisement(source: [u8; 16], target: [u8; 16]) -> Vec<u8> {
    neighbour(nd::NEIGHBOUR_ADVERTISEMENT, source, target)
}

pub fn router_solicitation(source: [u8; 16]) -> Vec<u8> {
    ipv6_frame(
        source,
        nd::PROTOCOL_ICMPV6,
        255,
        &[nd::ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0],
    )
}

pub fn with_hop_limit(mut f: Vec<u8>, hop_limit: u8) -> Vec<u8> {
    f[14 + 7] = hop_limit;
    f
}

pub fn with_source(mut f: Vec<u8>, source: MacAddr) -> Vec<u8> {
    f[6..12].copy_from_slice(&source.0);
    f
}

/// Ordinary traffic.
pub fn ipv6(source: [u8; 16]) -> Vec<u8> {
    ipv6_frame(source, 17, 64, &[0; 64])
}

fn ipv4_frame(source: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let header = wire_ipv4::Header {
        header_len: 20,
        dscp_ecn: 0,
        total_len: 20 + payload.len() as u16,
        id: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: wire_ipv4::PROTOCOL_UDP,
        checksum: 0,
        source,
        destination: [10, 0, 0, 99],
    };
    frame(OTHER, EtherType::IPV4, &[&header.emit(), payload])
}

/// Ordinary traffic.
pub fn ipv4(source: [u8; 4]) -> Vec<u8> {
    ipv4_frame(source, &[0; 64])
}

/// What a DHCP server sends, with a message type behind names of server and file.
pub fn dhcp(your_ip: [u8; 4], client_mac: MacAddr, message_type: Option<u8>) -> Vec<u8> {
    let header = wire_dhcp::Header {
        operation: wire_dhcp::REPLY,
        transaction: 1,
        client_ip: [0; 4],
        your_ip,
        client_mac,
    };
    let mut message = header.emit().to_vec();
    message.resize(236, 0);
    message.extend([0x63, 0x82, 0x53, 0x63]);
    message.extend(
        message_type
            .iter()
            .flat_map(|t| [1, 4, 255, 255, 255, 0, 53, 1, *t]),
    );
    message.push(255);
    let udp = udp::Header {
        source_port: 67,
        destination_port: 68,
        len: 8 + message.len() as u16,
        checksum: 0,
    };
    let mut datagram = udp.emit().to_vec();
    datagram.extend(message);
    ipv4_frame([10, 0, 0, 1], &datagram)
}

/// With a tag behind the addresses.
pub fn tagged(tpid: EtherType, id: u16, f: &[u8]) -> Vec<u8> {
    let ethertype = EtherType(u16::from_be_bytes([f[12], f[13]]));
    let tci = Tci::new(0, false, id);
    let mut out = f[..12].to_vec();
    out.extend(tpid.0.to_be_bytes());
    out.extend(vlan::Header { tci, ethertype }.emit());
    out.extend(&f[14..]);
    out
}

/// What the NIC asks, as another library reads it.
pub struct Question {
    pub destination: MacAddr,
    pub source: MacAddr,
    pub vlan: Option<u16>,
    pub gid: Gid,
}

pub fn question(f: &[u8]) -> Question {
    use etherparse::{NetSlice, SlicedPacket, TransportSlice};
    assert!(f.len() >= 60, "{} bytes", f.len());
    let packet = SlicedPacket::from_ethernet(f).expect("a packet");
    let ethernet = ethernet::Header::parse(f).expect("a header");
    let vlan = packet.vlan().map(|v| match v {
        etherparse::VlanSlice::SingleVlan(v) => v.vlan_identifier().value(),
        etherparse::VlanSlice::DoubleVlan(_) => panic!("two tags"),
    });
    let gid = match (&packet.net, &packet.transport) {
        (Some(NetSlice::Arp(arp)), _) => {
            assert_eq!(arp.operation(), etherparse::ArpOperation::REQUEST);
            assert_eq!(arp.sender_hw_addr(), &ethernet.source.0[..]);
            assert_eq!(arp.sender_protocol_addr(), &[0; 4][..]);
            assert_eq!(arp.target_hw_addr(), &[0; 6][..]);
            Gid::from_ipv4(arp.target_protocol_addr().try_into().expect("four bytes"))
        }
        (Some(NetSlice::Ipv6(ip)), Some(TransportSlice::Icmpv6(message))) => {
            let header = ip.header();
            assert_eq!(header.hop_limit(), 255);
            assert_eq!(header.source(), Gid::from_mac(ethernet.source).0);
            assert!(message.is_checksum_valid(header.source(), header.destination()));
            let b = message.slice();
            assert_eq!(b[0], nd::NEIGHBOUR_SOLICITATION);
            assert_eq!(b[24..26], [1, 1]);
            assert_eq!(b[26..32], ethernet.source.0);
            Gid(b[8..24].try_into().expect("16 bytes"))
        }
        _ => panic!("neither ARP nor a solicitation: {f:02x?}"),
    };
    Question {
        destination: ethernet.destination,
        source: ethernet.source,
        vlan,
        gid,
    }
}

/// What a guest with these addresses says to a question.
pub fn answer(f: &[u8], has: &[Gid]) -> Option<Vec<u8>> {
    let q = question(f);
    if !has.contains(&q.gid) {
        return None;
    }
    let mut f = match q.gid.to_ipv4() {
        Some(ip) => arp(REPLY, ip, [0; 4]),
        None => advertisement(q.gid.0, q.gid.0),
    };
    f[..6].copy_from_slice(&q.source.0);
    Some(match q.vlan {
        Some(id) => tagged(EtherType::VLAN, id, &f),
        None => f,
    })
}
