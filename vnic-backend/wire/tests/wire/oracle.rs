//! Every header against etherparse: what we emit it reads alike, what it writes we read alike, and no bytes
//! make a parser panic.

use etherparse as ep;
use proptest::prelude::*;
use vnic_wire::vlan::Tci;
use vnic_wire::{EtherType, MacAddr, arp, checksum, ethernet, ipv4, ipv6, tcp, udp, vlan};

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

proptest! {
    #[test]
    fn ethernet_and_vlan(destination in mac(), source in mac(), ethertype: u16, pcp in 0u8..8, dei: bool, vid in 0u16..4096) {
        let h = ethernet::Header { destination, source, ethertype: EtherType(ethertype) };
        let (o, _) = ep::Ethernet2Header::from_slice(&h.emit()).unwrap();
        prop_assert_eq!((o.destination, o.source, o.ether_type.0), (destination.0, source.0, ethertype));
        prop_assert_eq!(ethernet::Header::parse(&o.to_bytes()), Ok(h));

        let h = vlan::Header { tci: Tci::new(pcp, dei, vid), ethertype: EtherType(ethertype) };
        let (o, _) = ep::SingleVlanHeader::from_slice(&h.emit()).unwrap();
        prop_assert_eq!((o.pcp.value(), o.drop_eligible_indicator, o.vlan_id.value(), o.ether_type.0), (pcp, dei, vid, ethertype));
        prop_assert_eq!((h.tci.pcp(), h.tci.dei(), h.tci.vid()), (pcp, dei, vid));
        prop_assert_eq!(vlan::Header::parse(&o.to_bytes()), Ok(h));
    }

    #[test]
    fn ipv4_header(dscp_ecn: u8, total_len in 20u16.., id: u16, dont_fragment: bool, more_fragments: bool,
                   fragment_offset in 0u16..0x2000, ttl: u8, protocol: u8, source: [u8; 4], destination: [u8; 4]) {
        let h = ipv4::Header { header_len: 20, dscp_ecn, total_len, id, dont_fragment, more_fragments,
            fragment_offset, ttl, protocol, checksum: 0, source, destination };
        let bytes = h.emit();
        let (o, _) = ep::Ipv4Header::from_slice(&bytes).unwrap();
        prop_assert_eq!(o.calc_header_checksum(), o.header_checksum);
        prop_assert_eq!((o.dscp.value() << 2 | o.ecn.value(), o.total_len, o.identification, o.dont_fragment),
            (dscp_ecn, total_len, id, dont_fragment));
        prop_assert_eq!((o.more_fragments, o.fragment_offset.value(), o.time_to_live, o.protocol.0),
            (more_fragments, fragment_offset, ttl, protocol));
        prop_assert_eq!((o.source, o.destination), (source, destination));
        prop_assert_eq!(ipv4::Header::parse(&o.to_bytes()), Ok(ipv4::Header { checksum: o.header_checksum, ..h }));
        prop_assert_eq!(o.is_fragmenting_payload(), h.is_fragment());
    }

    #[test]
    fn ipv6_header(traffic_class: u8, flow_label in 0u32..1 << 20, payload_len: u16, next_header: u8, hop_limit: u8,
                   source: [u8; 16], destination: [u8; 16]) {
        let h = ipv6::Header { traffic_class, flow_label, payload_len, next_header, hop_limit, source, destination };
        let (o, _) = ep::Ipv6Header::from_slice(&h.emit()).unwrap();
        prop_assert_eq!((o.traffic_class, o.flow_label.value(), o.payload_length, o.next_header.0, o.hop_limit),
            (traffic_class, flow_label, payload_len, next_header, hop_limit));
        prop_assert_eq!((o.source, o.destination), (source, destination));
        prop_assert_eq!(ipv6::Header::parse(&o.to_bytes()), Ok(h));
    }

    #[test]
    fn tcp_header_and_checksums(source_port: u16, destination_port: u16, sequence: u32, acknowledgment: u32,
                                flags in 0u16..512, window: u16, urgent: u16, payload in prop::collection::vec(any::<u8>(), 0..100),
                                s4: [u8; 4], d4: [u8; 4], s6: [u8; 16], d6: [u8; 16]) {
        let h = tcp::Header { source_port, destination_port, sequence, acknowledgment, header_len: 20, flags, window, checksum: 0, urgent };
        let bytes = h.emit();
        let (o, _) = ep::TcpHeader::from_slice(&bytes).unwrap();
        prop_assert_eq!((o.source_port, o.destination_port, o.sequence_number, o.acknowledgment_number),
            (source_port, destination_port, sequence, acknowledgment));
        let f = [(o.fin, tcp::FIN), (o.syn, tcp::SYN), (o.rst, tcp::RST), (o.psh, tcp::PSH), (o.ack, tcp::ACK),
            (o.urg, tcp::URG), (o.ece, tcp::ECE), (o.cwr, tcp::CWR), (o.ns, 0x100)];
        prop_assert_eq!(f.iter().filter(|(set, _)| *set).fold(0, |a, (_, b)| a | b), flags);
        prop_assert_eq!((o.window_size, o.urgent_pointer), (window, urgent));
        prop_assert_eq!(tcp::Header::parse(&o.to_bytes()), Ok(h));

        let len = bytes.len() + payload.len();
        let data = checksum::sum(&bytes) + checksum::sum(&payload);
        let v4 = checksum::pseudo_v4(s4, d4, ipv4::PROTOCOL_TCP, len as u32);
        prop_assert_eq!(!checksum::fold(v4 + data), o.calc_checksum_ipv4_raw(s4, d4, &payload).unwrap());
        let v6 = checksum::pseudo_v6(&s6, &d6, ipv4::PROTOCOL_TCP, len as u32);
        prop_assert_eq!(!checksum::fold(v6 + data), o.calc_checksum_ipv6_raw(s6, d6, &payload).unwrap());
    }

    #[test]
    fn udp_header(source_port: u16, destination_port: u16, len in 8u16.., checksum: u16) {
        let h = udp::Header { source_port, destination_port, len, checksum };
        let (o, _) = ep::UdpHeader::from_slice(&h.emit()).unwrap();
        prop_assert_eq!((o.source_port, o.destination_port, o.length, o.checksum), (source_port, destination_port, len, checksum));
        prop_assert_eq!(udp::Header::parse(&o.to_bytes()), Ok(h));
    }

    #[test]
    fn arp_packet(operation: u16, sender_mac in mac(), sender_ip: [u8; 4], target_mac in mac(), target_ip: [u8; 4]) {
        let h = arp::Header { operation, sender_mac, sender_ip, target_mac, target_ip };
        let o = ep::ArpPacketSlice::from_slice(&h.emit()).unwrap().to_packet();
        let e = o.try_eth_ipv4().unwrap();
        prop_assert_eq!((e.operation.0, e.sender_mac, e.sender_ipv4, e.target_mac, e.target_ipv4),
            (operation, sender_mac.0, sender_ip, target_mac.0, target_ip));
        prop_assert_eq!(arp::Header::parse(&e.to_bytes()), Ok(h));
    }

    /// The walk over extension headers ends where etherparse's ends.
    #[test]
    fn ipv6_extension_headers(hop: bool, dest: bool, routing: Option<(u8, bool)>, words in 0usize..4, next in prop::sample::select(vec![6u8, 17, 59, 50])) {
        let mut kinds = vec![];
        if hop { kinds.push(0u8) }
        if dest { kinds.push(60) }
        if routing.is_some() { kinds.push(43) }
        kinds.push(next);
        let mut packet = ipv6::Header { traffic_class: 0, flow_label: 0, payload_len: 0, next_header: kinds[0], hop_limit: 1,
            source: [1; 16], destination: [2; 16] }.emit().to_vec();
        let mut expect = [2; 16];
        for w in kinds.windows(2) {
            let mut x = vec![0u8; 8 + 8 * words];
            x[0] = w[1];
            x[1] = words as u8;
            if let (43, Some((kind, left))) = (w[0], routing) {
                x[2] = 2 + kind % 2 * 2;
                x[3] = u8::from(left && words >= 2);
                if x[3] != 0 {
                    x[8..24].fill(7);
                    expect = [7; 16];
                }
            }
            packet.extend(x);
        }
        let len = packet.len();
        packet.extend([0; 20]);
        let u = ipv6::Header::parse(&packet).unwrap().upper(&packet).unwrap();
        prop_assert_eq!((u.protocol, u.offset, u.fragment, &packet[u.destination_offset..][..16]), (next, len, false, &expect[..]));
        let (_, p, rest) = ep::Ipv6Extensions::from_slice(ep::IpNumber(kinds[0]), &packet[40..]).unwrap();
        prop_assert_eq!((p.0, packet.len() - rest.len()), (next, len));
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v in any::<Option<u8>>()) {
        // Half of the time look like the right version, to get further.
        if let (Some(b), Some(v)) = (bytes.first_mut(), v) {
            *b = if v & 1 == 0 { 0x40 | *b & 0xf } else { 0x60 | *b & 0xf };
        }
        let _ = ethernet::Header::parse(&bytes);
        let _ = vlan::Header::parse(&bytes);
        let _ = arp::Header::parse(&bytes);
        let _ = udp::Header::parse(&bytes);
        if let Ok(p) = ethernet::payload(&bytes) {
            prop_assert!(p.offset <= bytes.len());
        }
        if let Ok(h) = ipv4::Header::parse(&bytes) {
            prop_assert!(h.header_len <= bytes.len() && h.header_len >= 20);
        }
        if let Ok(h) = tcp::Header::parse(&bytes) {
            prop_assert!(h.header_len <= bytes.len() && h.header_len >= 20);
        }
        if let Ok(h) = ipv6::Header::parse(&bytes)
            && let Ok(u) = h.upper(&bytes)
        {
            prop_assert!(u.offset <= bytes.len());
        }
    }

    /// Chains of extension headers of all kinds, cut anywhere.
    #[test]
    fn no_chain_hangs_the_walk(chain in prop::collection::vec((prop::sample::select(vec![0u8, 43, 44, 60, 6]), any::<u8>(), any::<[u8; 6]>()), 0..20), cut: prop::sample::Index) {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 1];
        packet.resize(40, 0);
        for (next, len, rest) in chain {
            packet.extend([next, len % 3]);
            packet.extend(rest);
        }
        packet.truncate(40 + cut.index(packet.len()));
        if let Ok(h) = ipv6::Header::parse(&packet) && let Ok(u) = h.upper(&packet) {
            prop_assert!(u.offset <= packet.len());
        }
    }
}

#[test]
fn payload_is_behind_two_tags_at_most() {
    let mut f = vec![0; 12];
    f.extend([0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0]);
    let p = ethernet::payload(&f).unwrap();
    assert_eq!((p.offset, p.ethertype), (22, EtherType::IPV4));
    f[20..].copy_from_slice(&[0x81, 0]);
    f.extend([0, 7, 0x08, 0]);
    let p = ethernet::payload(&f).unwrap();
    assert_eq!((p.offset, p.ethertype), (22, EtherType::VLAN));
    assert!(ethernet::payload(&f[..17]).is_err());
}

#[test]
fn announcement() {
    let mac: MacAddr = "52:54:00:12:34:56".parse().unwrap();
    let f = arp::rarp_announce(mac);
    let e = ethernet::Header::parse(&f).unwrap();
    assert_eq!(e.destination, MacAddr::BROADCAST);
    assert_eq!((e.source, e.ethertype), (mac, EtherType::RARP));
    let a = arp::Header::parse(&f[14..]).unwrap();
    assert_eq!(a.operation, arp::REVERSE_REQUEST);
    assert_eq!((a.sender_mac, a.target_mac), (mac, mac));
    assert_eq!((a.sender_ip, a.target_ip), ([0; 4], [0; 4]));
    assert!(f[42..].iter().all(|b| *b == 0));
}

#[test]
fn addresses_as_text_and_number() {
    let m: MacAddr = "02-00-5E-00-00-01".parse().unwrap();
    assert_eq!(m.to_string(), "02:00:5e:00:00:01");
    assert_eq!(m.to_u64(), 0x0200_5e00_0001);
    assert_eq!(MacAddr::from_u64(0xffff_0200_5e00_0001), m);
    for bad in [
        "",
        "02:00:5e:00:00",
        "02:00:5e:00:00:01:02",
        "02:00:5e:00:00:1",
        "02:00:5e:00:00:0g",
        "02:00-5e:00:00:01",
        "+2:00:5e:00:00:01",
    ] {
        assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
    }
}
