use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use core::net::{Ipv4Addr, Ipv6Addr};

use expect_test::expect;
use proptest::prelude::*;
use vnic_wire::ipv4::{PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_TCP, PROTOCOL_UDP};
use vnic_wire::opcode::Opcode;
use vnic_wire::psn::Psn;
use vnic_wire::{EtherType, MacAddr, bth, ethernet, geneve, gre, grh, ipv4, ipv6, udp, vxlan};

use super::*;
use crate::lag::{Evenness, Ports};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xb2]);

/// A flow from 10.0.0.1 to 10.0.0.2.
pub(in crate::lag) fn udp(source: u16, destination: u16) -> Flow {
    Flow {
        destination: B,
        source: A,
        ethertype: EtherType::IPV4,
        packet: Some(Packet {
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
            protocol: PROTOCOL_UDP,
            ports: Some(Ports { source, destination }),
        }),
        inner: None,
        qp: None,
        local_qp: None,
    }
}

fn frame(ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let header = ethernet::Header {
        destination: B,
        source: A,
        ethertype,
    };
    [&header.emit(), payload].concat()
}

fn tagged(tpid: u16, ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let e = ethertype.0.to_be_bytes();
    frame(EtherType(tpid), &[&[0x20, 0x05, e[0], e[1]], payload].concat())
}

/// An IPv4 packet from `192.0.2.last` to 198.51.100.7.
fn v4(last: u8, protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        header_len: 20,
        dscp_ecn: 0,
        total_len: 20 + payload.len() as u16,
        id: 7,
        dont_fragment: false,
        more_fragments: fragment & 0x2000 != 0,
        fragment_offset: fragment & 0x1fff,
        ttl: 64,
        protocol,
        checksum: 0,
        source: [192, 0, 2, last],
        destination: [198, 51, 100, 7],
    };
    [&header.emit(), payload].concat()
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0x12345,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        source: "2001:db8::1:2".parse::<Ipv6Addr>().unwrap().octets(),
        destination: "2001:db8:5::9".parse::<Ipv6Addr>().unwrap().octets(),
    };
    [&header.emit(), payload].concat()
}

/// UDP and TCP are alike as far as ports go.
fn ports_of(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let header = udp::Header {
        source_port: source,
        destination_port: destination,
        len: 8 + payload.len() as u16,
        checksum: 0,
    };
    [&header.emit(), payload].concat()
}

fn to_qp(qp: u32) -> Vec<u8> {
    bth::Header::new(Opcode(4), qp, Psn::new(1)).emit().to_vec()
}

fn v4_udp(last: u8, source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    v4(last, PROTOCOL_UDP, 0, &ports_of(source, destination, payload))
}

fn in_vxlan(source: u16, inner: &[u8]) -> Vec<u8> {
    let payload = [&vxlan::Header { vni: 5 }.emit(), inner].concat();
    frame(EtherType::IPV4, &v4_udp(1, source, vxlan::UDP_PORT, &payload))
}

fn in_geneve(protocol: EtherType, control: bool, inner: &[u8]) -> Vec<u8> {
    let header = geneve::Header {
        header_len: 8,
        control,
        critical: false,
        protocol,
        vni: 5,
    };
    let payload = [&header.emit(), inner].concat();
    frame(EtherType::IPV4, &v4_udp(1, 0xc000, geneve::UDP_PORT, &payload))
}

fn examples() -> Vec<(&'static str, Vec<u8>)> {
    let (e4, e6) = (EtherType::IPV4, EtherType::IPV6);
    let roce = v4_udp(1, 0xc123, 4791, &to_qp(0x11));
    let tcp = v4(1, PROTOCOL_TCP, 0, &ports_of(0x9c40, 445, &[]));
    let inner = frame(e4, &v4_udp(77, 1000, 2000, &[]));
    let inner_roce = frame(e4, &v4_udp(77, 0xc123, 4791, &to_qp(0x22)));
    let nvgre = [&[0x20, 0, 0x65, 0x58, 0, 0, 5, 0], &inner[..]].concat();
    let gre_header = gre::Header {
        header_len: 4,
        protocol: e6,
    };
    let inner_v6 = v6(PROTOCOL_TCP, &ports_of(7, 8, &[]));
    let fragment_v6 = [&[PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 9], &ports_of(7, 8, &[])[..]].concat();
    let options_v6 = [&[PROTOCOL_UDP, 0, 0, 0, 0, 0, 0, 0], &ports_of(7, 8, &[])[..]].concat();
    let grh = grh::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: 16,
        next_header: grh::NEXT_HEADER_IBA,
        hop_limit: 1,
        source: [1; 16],
        destination: [2; 16],
    };
    let deep = in_vxlan(3, &in_vxlan(4, &in_vxlan(5, &inner)));
    vec![
        ("tcp", frame(e4, &tcp)),
        ("tcp, tagged", tagged(0x8100, e4, &tcp)),
        ("rocev2", frame(e4, &roce)),
        (
            "rocev1",
            frame(EtherType::ROCE, &[&grh.emit()[..], &to_qp(0x33)].concat()),
        ),
        ("arp", frame(EtherType::ARP, &[0; 28])),
        ("icmp", frame(e4, &v4(1, 1, 0, &[8, 0, 1, 2, 3, 4]))),
        (
            "udp, first fragment",
            frame(e4, &v4(1, PROTOCOL_UDP, 0x2000, &ports_of(7, 8, &[]))),
        ),
        (
            "udp, last fragment",
            frame(e4, &v4(1, PROTOCOL_UDP, 0x0004, &ports_of(7, 8, &[]))),
        ),
        (
            "udp over ipv6",
            frame(e6, &v6(PROTOCOL_UDP, &ports_of(7, 8, &[]))),
        ),
        ("udp over ipv6, options", frame(e6, &v6(60, &options_v6))),
        ("udp over ipv6, fragment", frame(e6, &v6(44, &fragment_v6))),
        ("ipv6, cut off in an extension", frame(e6, &v6(60, &[17]))),
        ("vxlan", in_vxlan(0xdddd, &inner)),
        ("vxlan, another outer port", in_vxlan(0xdddf, &inner)),
        ("vxlan, rocev2", in_vxlan(0xdddd, &inner_roce)),
        ("vxlan, arp", in_vxlan(0xdddd, &frame(EtherType::ARP, &[0; 28]))),
        ("vxlan three times", deep),
        (
            "geneve, ethernet",
            in_geneve(EtherType::TRANSPARENT_ETHERNET, false, &inner),
        ),
        ("geneve, ipv6", in_geneve(e6, false, &inner_v6)),
        ("geneve, control", in_geneve(e6, true, &inner_v6)),
        ("nvgre", frame(e4, &v4(1, PROTOCOL_GRE, 0, &nvgre))),
        (
            "gre",
            frame(
                e4,
                &v4(1, PROTOCOL_GRE, 0, &[&gre_header.emit()[..], &inner_v6].concat()),
            ),
        ),
        (
            "ip in ip",
            frame(e4, &v4(1, PROTOCOL_IPV4, 0, &v4_udp(77, 1000, 2000, &[]))),
        ),
        (
            "tunnel, fragment",
            frame(e4, &v4(1, PROTOCOL_IPV4, 0x2000, &v4_udp(77, 1, 2, &[]))),
        ),
        ("no header", vec![1; 13]),
        ("a tag cut off", tagged(0x8100, e4, &tcp)[..16].to_vec()),
    ]
}

/// What is read of each frame, and its hashes by layer2, layer2+3, layer3+4, five-tuple.
#[test]
fn a_table_of_examples() {
    let mut table = String::new();
    for (name, frame) in examples() {
        let text = match Flow::parse(&frame) {
            None => "nothing".to_string(),
            Some(flow) => {
                let h = Policy::ALL.map(|p| p.hash(&flow));
                format!("{flow}\n    {:08x} {:08x} {:08x} {:08x}", h[0], h[1], h[2], h[3])
            }
        };
        table += &format!("{name}: {text}\n");
    }
    expect![[r#"
        tcp: 192.0.2.1:40000 > 198.51.100.7:445 tcp
            00000813 06605b4e 5dee579a 5dee5799
        tcp, tagged: 192.0.2.1:40000 > 198.51.100.7:445 tcp
            00000813 06605b4e 5dee579a 5dee5799
        rocev2: 192.0.2.1:49443 > 198.51.100.7:4791 udp to QP 0x11
            00000813 06605b4e 58e2ea89 58e2ea81
        rocev1: 02:00:00:00:00:a1 > 02:00:00:00:00:b2 0x8915 to QP 0x33
            00008906 00008906 00008906 00008906
        arp: 02:00:00:00:00:a1 > 02:00:00:00:00:b2 0x0806
            00000815 00000815 00000815 00000815
        icmp: 192.0.2.1 > 198.51.100.7 protocol 1
            00000813 06605b4e 033029aa 033029aa
        udp, first fragment: 192.0.2.1 > 198.51.100.7 udp
            00000813 06605b4e 033029aa 033029a2
        udp, last fragment: 192.0.2.1 > 198.51.100.7 udp
            00000813 06605b4e 033029aa 033029a2
        udp over ipv6: [2001:db8::1:2]:7 > [2001:db8:5::9]:8 udp
            000086ce 0b0b8947 01818000 01818008
        udp over ipv6, options: [2001:db8::1:2]:7 > [2001:db8:5::9]:8 udp
            000086ce 0b0b8947 01818000 01818008
        udp over ipv6, fragment: 2001:db8::1:2 > 2001:db8:5::9 udp
            000086ce 0b0b8947 05858787 0585878f
        ipv6, cut off in an extension: 2001:db8::1:2 > 2001:db8:5::9 protocol 60
            000086ce 0b0b8947 05858787 05858799
        vxlan: 192.0.2.77:1000 > 198.51.100.7:2000 udp
            00000813 06605b4e 59e394f9 4d7d901a
        vxlan, another outer port: 192.0.2.77:1000 > 198.51.100.7:2000 udp
            00000813 06605b4e 59e395f8 4d7d901a
        vxlan, rocev2: 192.0.2.77:49443 > 198.51.100.7:4791 udp to QP 0x22
            00000813 06605b4e 59e394f9 7ec4cca7
        vxlan, arp: 192.0.2.1:56797 > 198.51.100.7:4789 udp
            00000813 06605b4e 59e394f9 59e394f1
        vxlan three times: 192.0.2.1:5 > 198.51.100.7:4789 udp
            00000813 06605b4e 59e3fbf8 59e3f8f3
        geneve, ethernet: 192.0.2.77:1000 > 198.51.100.7:2000 udp
            00000813 06605b4e 63db42a1 4d7d901a
        geneve, ipv6: [2001:db8::1:2]:7 > [2001:db8:5::9]:8 tcp
            00000813 06605b4e 63db42a1 01818003
        geneve, control: 192.0.2.1:49152 > 198.51.100.7:6081 udp
            00000813 06605b4e 63db42a1 63db42a9
        nvgre: 192.0.2.77:1000 > 198.51.100.7:2000 udp
            00000813 06605b4e 033029aa 4d7d901a
        gre: [2001:db8::1:2]:7 > [2001:db8:5::9]:8 tcp
            00000813 06605b4e 033029aa 01818003
        ip in ip: 192.0.2.77:1000 > 198.51.100.7:2000 udp
            00000813 06605b4e 033029aa 4d7d901a
        tunnel, fragment: 192.0.2.1 > 198.51.100.7 protocol 4
            00000813 06605b4e 033029aa 033029a8
        no header: nothing
        a tag cut off: 02:00:00:00:00:a1 > 02:00:00:00:00:b2 0x8100
            00008113 00008113 00008113 00008113
    "#]]
    .assert_eq(&table);
}

/// The message of Linux's commit that made layer2+3 keep its lowest bit (Suresh Kumar, 16 April 2022) shows two frames from
/// 192.168.122.30 to 192.168.122.1, whose hashes were 522133332 and 522133333 when the EtherType was still read as
/// little-endian (8). As a big-endian number, 0x800, it changes the upper bytes only.
#[test]
fn the_example_of_the_linux_driver() {
    for (mac, hash) in [(0xa0, 522_133_332), (0xa1, 522_133_333)] {
        let flow = Flow {
            destination: MacAddr([0, 0, 0, 0, 0, mac]),
            source: MacAddr([0, 0, 0, 0, 0, 0xe3]),
            packet: Some(Packet {
                source: Ipv4Addr::new(192, 168, 122, 30).into(),
                destination: Ipv4Addr::new(192, 168, 122, 1).into(),
                protocol: PROTOCOL_TCP,
                ports: None,
            }),
            ..udp(0, 0)
        };
        let old = Flow {
            ethertype: EtherType(8),
            ..flow
        };
        assert_eq!(Policy::Layer23.hash(&old), hash);
        assert_eq!(Policy::Layer23.hash(&flow) & 0xff, hash & 0xff);
    }
}

/// On paper: 10.0.0.1 and 10.0.0.2 leave 3 in the last byte; ports 0xc000 and 0x12b7 are bytes c0, 00, 12, b7. Folding is
/// c0^00^12^b7^3 = 66 in the lowest byte; half of that is 33, so of two members the second.
#[test]
fn by_hand() {
    let hash = Policy::Layer34.hash(&udp(0xc000, 0x12b7));
    assert_eq!((hash & 0x7f, hash % 2), (0x33, 1));
}

/// The documented formulas once more, byte by byte.
fn by_bytes(policy: Policy, flow: &Flow) -> u32 {
    let layer2 = [
        flow.source.0[5] ^ flow.destination.0[5] ^ flow.ethertype.0.to_be_bytes()[1],
        flow.ethertype.0.to_be_bytes()[0],
        0,
        0,
    ];
    let packet = if policy == Policy::FiveTuple {
        flow.inner.or(flow.packet)
    } else {
        flow.packet
    };
    let Some(packet) = packet.filter(|_| policy != Policy::Layer2) else {
        return u32::from_le_bytes(layer2);
    };
    let mut h = match (policy, packet.ports) {
        (Policy::Layer23, _) => layer2,
        (_, None) => [0; 4],
        (_, Some(p)) => {
            let (s, d) = (p.source.to_be_bytes(), p.destination.to_be_bytes());
            [s[0], s[1], d[0], d[1]]
        }
    };
    let octets = |a: IpAddr| match a {
        IpAddr::V4(a) => a.octets().to_vec(),
        IpAddr::V6(a) => a.octets().to_vec(),
    };
    for (i, byte) in octets(packet.source)
        .iter()
        .chain(&octets(packet.destination))
        .enumerate()
    {
        h[i % 4] ^= byte;
    }
    if policy == Policy::FiveTuple {
        h[0] ^= packet.protocol;
    }
    (h[0], h[1]) = (h[0] ^ h[2], h[1] ^ h[3]);
    (h[0], h[1], h[2]) = (h[0] ^ h[1], h[1] ^ h[2], h[2] ^ h[3]);
    let hash = u32::from_le_bytes(h);
    if policy == Policy::Layer23 {
        hash
    } else {
        hash >> 1
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let ports = prop::option::of(any::<(u16, u16)>());
    (address(), address(), any::<u8>(), ports).prop_map(|(source, destination, protocol, ports)| Packet {
        source,
        destination,
        protocol,
        ports: ports.map(|(source, destination)| Ports { source, destination }),
    })
}

proptest! {
    #[test]
    fn hashes_are_the_documented_ones(
        macs in any::<[[u8; 6]; 2]>(),
        ethertype in any::<u16>(),
        packet in prop::option::of(packet()),
        inner in prop::option::of(packet()),
    ) {
        let flow = Flow {
            destination: MacAddr(macs[0]),
            source: MacAddr(macs[1]),
            ethertype: EtherType(ethertype),
            packet,
            inner: inner.filter(|_| packet.is_some()),
            qp: None,
            local_qp: None,
        };
        for policy in Policy::ALL {
            prop_assert_eq!(policy.hash(&flow), by_bytes(policy, &flow), "{}", policy);
        }
    }

    #[test]
    fn remainders_are_right(number in any::<u32>(), divisor in 1u32..=256) {
        prop_assert_eq!(Modulo::new(divisor).of(number), number % divisor);
    }

    /// No bytes panic, and a frame that is longer behind its headers is of the same flow.
    #[test]
    fn any_bytes(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((0usize..160, any::<u8>()), 0..6),
        cut in 0usize..200,
    ) {
        let all = examples();
        let mut bytes = all[which.index(all.len())].1.clone();
        for (at, to) in changes {
            if let Some(b) = bytes.get_mut(at) {
                *b = to;
            }
        }
        let _ = Flow::parse(&bytes[..cut.min(bytes.len())]).map(|f| f.to_string());
    }
}

#[test]
fn remainders_at_the_edges() {
    for divisor in 0..=256u32 {
        for number in [
            0,
            1,
            divisor,
            divisor.wrapping_sub(1),
            u32::MAX,
            u32::MAX - 1,
            1 << 31,
        ] {
            assert_eq!(Modulo::new(divisor).of(number), number % divisor.max(1));
        }
    }
}

#[test]
fn policies_have_names() {
    for policy in Policy::ALL {
        assert_eq!(policy.to_string().parse(), Ok(policy));
    }
    let error = "layer4".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(
        error,
        "hash_policy: \"layer4\"; allowed: layer2, layer2+3, layer3+4, five-tuple"
    );
}

/// UDP source ports of queue pairs as three drivers give them: one after the other, by a multiplicative hash of the QP number,
/// and always the least that RoCEv2 may have (Linux, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`).
fn ports_by(driver: usize, qp: u32) -> u16 {
    match driver {
        0 => 0xc000 | qp as u16,
        1 => (qp.wrapping_mul(0x9e37_79b1) >> 16) as u16 | 0xc000,
        _ => 49152,
    }
}

fn shares(policy: Policy, members: u32, driver: usize, first: u32) -> Evenness {
    let mut loads = vec![0; members as usize];
    for qp in first..first + 64 {
        let flow = udp(ports_by(driver, qp), 4791);
        loads[(policy.hash(&flow) % members) as usize] += 1;
    }
    Evenness::of(loads.into_iter()).unwrap()
}

/// 64 queue pairs, each with its port: no member of two has more than 60 %. With one port for all of them: one has all.
#[test]
fn queue_pairs_spread_by_their_ports_and_only_by_them() {
    for first in (0..4096).step_by(64) {
        for policy in [Policy::Layer34, Policy::FiveTuple] {
            for driver in [0, 1] {
                let even = shares(policy, 2, driver, first);
                assert!(even.largest <= 0.6, "{policy} {driver} from {first}: {even}");
            }
            assert_eq!(shares(policy, 2, 2, first).largest, 1.0);
            assert!(shares(policy, 4, 0, first).largest <= 0.3);
        }
        for policy in [Policy::Layer2, Policy::Layer23] {
            assert_eq!(shares(policy, 2, 0, first).jain, 0.5, "{policy} sees no port");
        }
    }
}
