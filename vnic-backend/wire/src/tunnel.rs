//! What a tunnel's packet carries: VXLAN, GENEVE, GRE, NVGRE, IP in IP (RFC 2003, RFC 4213).

use crate::ipv4::{PROTOCOL_GRE, PROTOCOL_IPV4, PROTOCOL_IPV6, PROTOCOL_UDP};
use crate::{EtherType, ethernet, geneve, gre, udp, vxlan};

/// Kind of a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// GRE without options, or with a checksum (RFC 2784).
    Gre,
    /// GRE with a key or a sequence number (RFC 2890).
    GreKeyed,
    /// GRE with a key and an Ethernet frame (RFC 7637).
    Nvgre,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// GENEVE (RFC 8926).
    Geneve,
    /// IPv4 in IP.
    Ipv4,
    /// IPv6 in IP.
    Ipv6,
}

/// The packet in a tunnel's packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inner {
    /// Kind of the tunnel.
    pub kind: Kind,
    /// Type of the inner packet, behind the VLAN tags of the inner frame.
    pub ethertype: EtherType,
    /// Offset of the inner packet behind the outer IP headers.
    pub offset: usize,
}

/// Kind of the tunnel that UDP packets to this port are of.
#[inline]
pub const fn of_port(port: u16, vxlan_port: u16) -> Option<Kind> {
    match port {
        geneve::UDP_PORT => Some(Kind::Geneve),
        port if port == vxlan_port => Some(Kind::Vxlan),
        _ => None,
    }
}

/// Finds the inner packet. `protocol` is the outer packet's, `upper` what is behind its IP headers, `vxlan_port` the UDP port
/// of VXLAN. `None`: the packet is no tunnel's, or the inner packet's first byte is not there.
#[inline]
pub fn inner(protocol: u8, upper: &[u8], vxlan_port: u16) -> Option<Inner> {
    let (kind, ethertype, offset) = match protocol {
        PROTOCOL_IPV4 => (Kind::Ipv4, EtherType::IPV4, 0),
        PROTOCOL_IPV6 => (Kind::Ipv6, EtherType::IPV6, 0),
        PROTOCOL_GRE => {
            let header = gre::Header::parse(upper).ok()?;
            let kind = match (gre::options(upper), header.protocol) {
                (gre::KEY, EtherType::TRANSPARENT_ETHERNET) => Kind::Nvgre,
                (options, _) if options & (gre::KEY | gre::SEQUENCE) != 0 => Kind::GreKeyed,
                _ => Kind::Gre,
            };
            (kind, header.protocol, header.header_len)
        }
        PROTOCOL_UDP => {
            // The UDP length is not looked at: that of a segmentation request is as its driver likes.
            let [_, _, a, b, ..] = upper else { return None };
            let kind = of_port(u16::from_be_bytes([*a, *b]), vxlan_port)?;
            let payload = upper.get(udp::HEADER_LEN..)?;
            let (ethertype, len) = match kind {
                Kind::Geneve => {
                    let header = geneve::Header::parse(payload).ok().filter(|h| !h.control)?;
                    (header.protocol, header.header_len)
                }
                _ => {
                    vxlan::Header::parse(payload).ok()?;
                    (EtherType::TRANSPARENT_ETHERNET, vxlan::HEADER_LEN)
                }
            };
            (kind, ethertype, udp::HEADER_LEN + len)
        }
        _ => return None,
    };
    let bytes = upper.get(offset..)?;
    if ethertype == EtherType::TRANSPARENT_ETHERNET {
        let payload = ethernet::payload(bytes).ok()?;
        bytes.get(payload.offset)?;
        return Some(Inner {
            kind,
            ethertype: payload.ethertype,
            offset: offset + payload.offset,
        });
    }
    bytes.first()?;
    Some(Inner {
        kind,
        ethertype,
        offset,
    })
}

#[cfg(test)]
mod tests {
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const VXLAN: u16 = 8472;

    fn udp(port: u16, payload: &[&[u8]]) -> Vec<u8> {
        let mut out = vec![0x12, 0x34];
        out.extend(port.to_be_bytes());
        out.extend([0; 4]);
        out.extend(payload.concat());
        out
    }

    /// An Ethernet frame with a VLAN tag and the first byte of an IPv6 packet.
    fn frame() -> Vec<u8> {
        let mut out = vec![2; 12];
        out.extend([0x81, 0, 0, 5, 0x86, 0xdd, 0x60]);
        out
    }

    #[test]
    fn each_kind_and_where_its_packet_begins() {
        let frame = frame();
        let geneve = |protocol| geneve::Header {
            header_len: geneve::HEADER_LEN,
            control: false,
            critical: false,
            protocol,
            vni: 1,
        };
        let vxlan = vxlan::Header { vni: 1 }.emit();
        let mut optional = geneve(EtherType::IPV4).emit();
        optional[0] = 1;
        let in_v4 = [0x45];
        type Row = (&'static str, u8, Vec<u8>, Kind, EtherType, usize);
        let rows: [Row; 9] = [
            (
                "vxlan",
                PROTOCOL_UDP,
                udp(VXLAN, &[&vxlan, &frame]),
                Kind::Vxlan,
                EtherType::IPV6,
                34,
            ),
            (
                "geneve, ethernet",
                PROTOCOL_UDP,
                udp(
                    geneve::UDP_PORT,
                    &[&geneve(EtherType::TRANSPARENT_ETHERNET).emit(), &frame],
                ),
                Kind::Geneve,
                EtherType::IPV6,
                34,
            ),
            (
                "geneve, an option",
                PROTOCOL_UDP,
                udp(geneve::UDP_PORT, &[&optional, &[0; 4], &in_v4]),
                Kind::Geneve,
                EtherType::IPV4,
                20,
            ),
            (
                "nvgre",
                PROTOCOL_GRE,
                [&[0x20, 0, 0x65, 0x58, 0, 0, 5, 0], &frame[..]].concat(),
                Kind::Nvgre,
                EtherType::IPV6,
                26,
            ),
            (
                "gre",
                PROTOCOL_GRE,
                vec![0, 0, 8, 0, 0x45],
                Kind::Gre,
                EtherType::IPV4,
                4,
            ),
            (
                "gre, a checksum",
                PROTOCOL_GRE,
                [&[0x80, 0, 8, 0, 0, 0, 0, 0][..], &in_v4].concat(),
                Kind::Gre,
                EtherType::IPV4,
                8,
            ),
            (
                "gre, a sequence number",
                PROTOCOL_GRE,
                [&[0x10, 0, 8, 0, 0, 0, 0, 0][..], &in_v4].concat(),
                Kind::GreKeyed,
                EtherType::IPV4,
                8,
            ),
            (
                "ipv4",
                PROTOCOL_IPV4,
                in_v4.to_vec(),
                Kind::Ipv4,
                EtherType::IPV4,
                0,
            ),
            ("ipv6", PROTOCOL_IPV6, vec![0x60], Kind::Ipv6, EtherType::IPV6, 0),
        ];
        for (name, protocol, upper, kind, ethertype, offset) in rows {
            let found = Inner {
                kind,
                ethertype,
                offset,
            };
            assert_eq!(inner(protocol, &upper, VXLAN), Some(found), "{name}");
            // Without the first byte of the inner packet there is none.
            for n in 0..offset {
                assert_eq!(inner(protocol, &upper[..n], VXLAN), None, "{name}, {n} bytes");
            }
        }
    }

    #[test]
    fn what_is_no_tunnel() {
        let vxlan = vxlan::Header { vni: 1 }.emit();
        let mut control = geneve::Header {
            header_len: geneve::HEADER_LEN,
            control: true,
            critical: false,
            protocol: EtherType::IPV4,
            vni: 1,
        }
        .emit();
        let rows = [
            (
                "another port",
                PROTOCOL_UDP,
                udp(vxlan::UDP_PORT, &[&vxlan, &frame()]),
            ),
            ("no VNI", PROTOCOL_UDP, udp(VXLAN, &[&[0; 8], &frame()])),
            (
                "a control packet",
                PROTOCOL_UDP,
                udp(geneve::UDP_PORT, &[&control, &[0x45]]),
            ),
            ("TCP", crate::ipv4::PROTOCOL_TCP, udp(VXLAN, &[&vxlan, &frame()])),
        ];
        for (name, protocol, upper) in rows {
            assert_eq!(inner(protocol, &upper, VXLAN), None, "{name}");
        }
        control[1] = 0;
        assert!(inner(PROTOCOL_UDP, &udp(geneve::UDP_PORT, &[&control, &[0x45]]), VXLAN).is_some());
    }
}
