use std::format;
use std::net::IpAddr;
use std::vec;
use std::vec::Vec;

use super::*;

const MAC: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);
const ALL_NODES: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
/// Made of `MAC`.
const OWN: &str = "fe80::5054:ff:fe00:1";

fn gid(text: &str) -> Gid {
    match text.parse().expect("an address") {
        IpAddr::V4(a) => Gid::from_ipv4(a.octets()),
        IpAddr::V6(a) => Gid(a.octets()),
    }
}

fn v4(text: &str) -> [u8; 4] {
    gid(text).to_ipv4().expect("an IPv4 address")
}

fn frame(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let ethertype = ethertype.0.to_be_bytes();
    [&ALL_NODES[..], &MAC.0, &ethertype, packet].concat()
}

fn arp(sender: &str, target: &str) -> Vec<u8> {
    let packet = arp::Header {
        operation: arp::REQUEST,
        sender_mac: MAC,
        sender_ip: v4(sender),
        target_mac: MacAddr::default(),
        target_ip: v4(target),
    };
    frame(EtherType::ARP, &packet.emit())
}

/// IPv4 with so many bytes of options; `offset` in units of 8 bytes.
fn udp4(source: &str, ports: [u16; 2], options: u8, offset: u16) -> Vec<u8> {
    let mut p = vec![0; 20 + usize::from(options)];
    p[0] = 0x45 + options / 4;
    p[6..8].copy_from_slice(&offset.to_be_bytes());
    p[9] = UDP;
    p[12..16].copy_from_slice(&v4(source));
    p.extend(ports.into_iter().flat_map(u16::to_be_bytes));
    frame(EtherType::IPV4, &p)
}

/// IPv6 with these extension headers, of 8 bytes each.
fn ip6(source: &str, extensions: &[u8], last: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0; 40];
    p[0] = 0x60;
    p[8..24].copy_from_slice(&gid(source).0);
    p[6] = extensions.first().copied().unwrap_or(last);
    for i in 0..extensions.len() {
        let next = extensions.get(i + 1).copied().unwrap_or(last);
        p.extend([next, 0, 0, 0, 0, 0, 0, 0]);
    }
    p.extend(payload);
    frame(EtherType::IPV6, &p)
}

fn nd(source: &str, extensions: &[u8], kind: u8, target: &str) -> Vec<u8> {
    let mut m = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    m.extend(gid(target).0);
    ip6(source, extensions, nd::PROTOCOL_ICMPV6, &m)
}

/// The frame behind tags with these TPIDs.
fn tagged(tpids: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = tpids
        .iter()
        .flat_map(|t| [(t >> 8) as u8, *t as u8, 0, 5])
        .collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

fn allowed() -> AllowedAddresses {
    let list = ["10.0.0.5", "10.0.1.0/24", "fd00::/64"];
    let prefixes = list.map(|p| p.parse().expect("a prefix"));
    AllowedAddresses::new(&prefixes).expect("there are some")
}

#[test]
fn an_empty_list_is_none() {
    assert_eq!(AllowedAddresses::new(&[]), None);
}

#[test]
fn a_frame_claims_what_its_sender_may_have() {
    use nd::{NEIGHBOUR_ADVERTISEMENT as NA, NEIGHBOUR_SOLICITATION as NS, ROUTER_SOLICITATION as RS};
    const TCP: u8 = 6;
    let no = |text: &str| Some(Claim::Address(text.parse().expect("an address")));
    let snap = |f: &[u8]| [&f[..12], &[0, 64, 0xaa, 0xaa, 3, 0, 0, 0], &f[12..]].concat();
    let other = "fe80::1234";
    let table: Vec<(&str, Vec<u8>, Option<Claim>)> = vec![
        ("ARP", arp("10.0.0.5", "10.0.0.1"), None),
        ("ARP of a prefix", arp("10.0.1.77", "10.0.0.1"), None),
        ("ARP of another", arp("10.0.0.6", "10.0.0.5"), no("10.0.0.6")),
        ("ARP probe", arp("0.0.0.0", "10.0.0.5"), None),
        ("ARP probe of another", arp("0.0.0.0", "10.0.0.6"), no("10.0.0.6")),
        (
            "half an ARP",
            frame(EtherType::ARP, &[0; 20]),
            Some(Claim::Hidden),
        ),
        ("IPv4", udp4("10.0.0.5", [9, 9], 0, 0), None),
        ("IPv4 of another", udp4("10.0.2.5", [9, 9], 0, 0), no("10.0.2.5")),
        ("IPv4 of none", udp4("0.0.0.0", [9, 9], 0, 0), no("0.0.0.0")),
        ("DHCP without address", udp4("0.0.0.0", [68, 67], 0, 0), None),
        ("DHCP with address", udp4("10.0.0.5", [68, 67], 0, 0), None),
        (
            "DHCP server",
            udp4("10.0.0.5", [67, 68], 0, 0),
            Some(Claim::DhcpServer),
        ),
        (
            "DHCP server with options",
            udp4("10.0.0.5", [67, 68], 40, 0),
            Some(Claim::DhcpServer),
        ),
        ("later fragment", udp4("10.0.0.5", [67, 68], 0, 1), None),
        (
            "half an IPv4 header",
            frame(EtherType::IPV4, &[0x45; 19]),
            Some(Claim::Hidden),
        ),
        ("IPv6", ip6("fd00::1", &[], TCP, &[]), None),
        ("IPv6 link-local", ip6(OWN, &[], TCP, &[]), None),
        ("IPv6 of another", ip6("fd01::1", &[], TCP, &[]), no("fd01::1")),
        ("IPv6 of none", ip6("::", &[], TCP, &[]), no("::")),
        (
            "half an IPv6 header",
            frame(EtherType::IPV6, &[0x60; 20]),
            Some(Claim::Hidden),
        ),
        ("NA", nd(OWN, &[], NA, "fd00::1"), None),
        ("NA of link-local", nd(OWN, &[], NA, OWN), None),
        ("NA of another", nd(OWN, &[], NA, other), no(other)),
        (
            "NA of another behind headers",
            nd(OWN, &[0, 60, 44], NA, other),
            no(other),
        ),
        ("NA from another", nd(other, &[], NA, "fd00::1"), no(other)),
        (
            "NA behind too much",
            nd(OWN, &[60; 5], NA, "fd00::1"),
            Some(Claim::Hidden),
        ),
        ("NS", nd("fd00::1", &[], NS, other), None),
        ("NS from another", nd(other, &[], NS, "fd00::1"), no(other)),
        ("DAD", nd("::", &[], NS, "fd00::1"), None),
        ("DAD of link-local", nd("::", &[], NS, OWN), None),
        ("DAD of another", nd("::", &[], NS, other), no(other)),
        ("RS", nd("fd00::1", &[], RS, "::"), None),
        ("RS of none", nd("::", &[], RS, "::"), None),
        ("RS from another", nd(other, &[], RS, "::"), no(other)),
        (
            "MLD of none",
            ip6("::", &[0], nd::PROTOCOL_ICMPV6, &[143, 0, 0, 0]),
            None,
        ),
        (
            "RoCEv1",
            frame(EtherType::ROCE, &ip6("fd00::1", &[], 27, &[])[14..]),
            None,
        ),
        (
            "RoCEv1 of another",
            frame(EtherType::ROCE, &ip6(other, &[], 27, &[])[14..]),
            no(other),
        ),
        ("SNAP", snap(&arp("10.0.0.6", "10.0.0.5")), no("10.0.0.6")),
        ("another protocol", frame(EtherType(0x88b5), &[1; 50]), None),
        ("no payload", frame(EtherType(0x88b5), &[]), None),
    ];
    let list = allowed();
    for (name, bytes, verdict) in table {
        assert_eq!(list.refused(&bytes), verdict, "{name}");
        for tpids in [
            &[0x8100][..],
            &[0x8100, 0x8100],
            &[0x8100, 0x88a8],
            &[0x88a8, 0x9100, 0x8100],
        ] {
            let name = format!("{name} behind {tpids:x?}");
            assert_eq!(list.refused(&tagged(tpids, &bytes)), verdict, "{name}");
        }
        let deep = tagged(&[0x8100; 5], &bytes);
        assert_eq!(list.refused(&deep), Some(Claim::Hidden), "{name}");
        // The look ends, wherever the frame does.
        for n in 0..bytes.len() {
            let _ = list.refused(&bytes[..n]);
        }
    }
}
