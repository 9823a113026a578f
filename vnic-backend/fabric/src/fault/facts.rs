//! What a rule looks at.

use core::ops::Range;

use vnic_wire::{EtherType, ethernet, ipv4, ipv6, udp};

use crate::switch::PortId;

/// UDP port of RoCEv2 (IANA service `roce`; IBTA annex A17.4).
const ROCE_UDP_PORT: u16 = 4791;
/// EtherType of RoCEv1 (IBTA annex A16.2).
const ROCE_V1: EtherType = EtherType(0x8915);
/// Bytes of the base transport header (IBTA volume 1, section 9.2).
const BTH_LEN: usize = 12;
/// Bytes of a GRH (IBTA volume 1, section 8.3); laid out as an IPv6 header.
const GRH_LEN: usize = 40;

/// A RoCE packet's facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roce {
    /// BTH opcode, 8 bits: transport and operation.
    pub opcode: u8,
    /// Destination QP, 24 bits.
    pub destination_qp: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// Bytes of the frame from the BTH through the ICRC.
    pub packet: Range<u32>,
}

/// What a rule looks at: one frame on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Where it entered.
    pub from: PortId,
    /// Where it is about to leave.
    pub to: PortId,
    /// Bytes of the frame, without FCS.
    pub len: u32,
    /// Type of what is behind the VLAN tags.
    pub ethertype: EtherType,
    /// Bytes before what the EtherType names: the addresses, the tags, the EtherType.
    pub header: u32,
    /// RoCE, v1 or v2.
    pub roce: Option<Roce>,
}

impl Facts {
    /// The facts of a frame.
    pub fn of(from: PortId, to: PortId, frame: &[u8]) -> Facts {
        Facts::of_head(from, to, frame, frame.len())
    }

    /// The facts of a frame of `len` bytes of which `head` are the first. [`Facts::HEAD`] bytes show all.
    pub fn of_head(from: PortId, to: PortId, head: &[u8], len: usize) -> Facts {
        let payload = ethernet::payload(head).unwrap_or(ethernet::Payload {
            offset: len.min(ethernet::HEADER_LEN),
            ethertype: EtherType(0),
        });
        let roce = roce(payload, head, len);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Facts {
            from,
            to,
            len: number(len),
            ethertype: payload.ethertype,
            header: number(payload.offset),
            roce,
        }
    }

    /// Bytes at the front of a frame that are enough for all facts, unless IP options or extension headers
    /// push the BTH further back: Ethernet, two tags, IPv6, UDP, BTH.
    pub const HEAD: usize = ethernet::HEADER_LEN + 8 + ipv6::HEADER_LEN + udp::HEADER_LEN + BTH_LEN;

    /// Can it carry an ECN mark?
    pub fn is_ip(&self) -> bool {
        matches!(self.ethertype, EtherType::IPV4 | EtherType::IPV6)
    }
}

fn roce(payload: ethernet::Payload, head: &[u8], len: usize) -> Option<Roce> {
    let at = payload.offset;
    let packet = head.get(at..)?;
    let (bth, end) = match payload.ethertype {
        EtherType::IPV4 => {
            let ip = ipv4::Header::parse(packet).ok()?;
            if ip.protocol != ipv4::PROTOCOL_UDP || ip.is_fragment() {
                return None;
            }
            (over_udp(packet, ip.header_len)?, usize::from(ip.total_len))
        }
        EtherType::IPV6 => {
            let ip = ipv6::Header::parse(packet).ok()?;
            let upper = ip.upper(packet).ok()?;
            if upper.protocol != ipv4::PROTOCOL_UDP || upper.fragment {
                return None;
            }
            let end = ipv6::HEADER_LEN + usize::from(ip.payload_len);
            (over_udp(packet, upper.offset)?, end)
        }
        ROCE_V1 => {
            let grh = ipv6::Header::parse(packet).ok()?;
            (GRH_LEN, GRH_LEN + usize::from(grh.payload_len))
        }
        _ => return None,
    };
    let b: &[u8; BTH_LEN] = packet.get(bth..)?.first_chunk()?;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let first = number(at + bth);
    // The Ethernet padding of a short frame is no part of the packet.
    let last = number((at + end).min(len)).max(first + BTH_LEN as u32);
    Some(Roce {
        opcode: b[0],
        destination_qp: u32::from_be_bytes([0, b[5], b[6], b[7]]),
        psn: u32::from_be_bytes([0, b[9], b[10], b[11]]),
        packet: first..last,
    })
}

/// Where the UDP payload begins, if it is RoCE's.
fn over_udp(packet: &[u8], at: usize) -> Option<usize> {
    let udp = udp::Header::parse(packet.get(at..)?).ok()?;
    (udp.destination_port == ROCE_UDP_PORT).then_some(at + udp::HEADER_LEN)
}
