//! Facts that a rule looks at.

use core::ops::Range;

use vnic_wire::roce::{self, Ecn};
use vnic_wire::{EtherType, bth, ethernet, grh, ipv4, ipv6, udp};

use crate::switch::PortId;

/// Facts of a RoCE packet.
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

/// Facts of one frame on one path, which rules look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Port that the frame entered by.
    pub from: PortId,
    /// Port that the frame is about to leave by.
    pub to: PortId,
    /// Bytes of the frame, without FCS.
    pub len: u32,
    /// EtherType behind the VLAN tags.
    pub ethertype: EtherType,
    /// Bytes in front of the payload: the addresses, the tags, the EtherType.
    pub header: u32,
    /// ECN field, if the frame has one.
    pub ecn: Option<Ecn>,
    /// Facts of a RoCE packet, v1 or v2.
    pub roce: Option<Roce>,
}

impl Facts {
    /// The facts of a frame.
    pub fn of(from: PortId, to: PortId, frame: &[u8]) -> Facts {
        Facts::of_head(from, to, frame, frame.len())
    }

    /// The facts of a frame of `len` bytes that begins with `head`. [`Facts::HEAD`] bytes are enough for
    /// all facts.
    pub fn of_head(from: PortId, to: PortId, head: &[u8], len: usize) -> Facts {
        let payload = ethernet::payload(head).unwrap_or(ethernet::Payload {
            offset: len.min(ethernet::HEADER_LEN),
            ethertype: EtherType(0),
        });
        let roce = packet(payload, head, len);
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Facts {
            from,
            to,
            len: number(len),
            ethertype: payload.ethertype,
            header: number(payload.offset),
            ecn: roce::ecn(head),
            roce,
        }
    }

    /// Bytes at the front of a frame that are enough for all facts, unless IP options or extension headers
    /// push the BTH further back: Ethernet, two tags, IPv6, UDP, BTH.
    pub const HEAD: usize = ethernet::HEADER_LEN + 8 + ipv6::HEADER_LEN + udp::HEADER_LEN + bth::HEADER_LEN;
}

fn packet(payload: ethernet::Payload, head: &[u8], len: usize) -> Option<Roce> {
    let at = payload.offset;
    let packet = head.get(at..)?;
    let (at_bth, end) = match payload.ethertype {
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
        EtherType::ROCE => {
            let grh = grh::Header::parse(packet).ok()?;
            if grh.next_header != grh::NEXT_HEADER_IBA {
                return None;
            }
            (grh::HEADER_LEN, grh::HEADER_LEN + usize::from(grh.payload_len))
        }
        _ => return None,
    };
    let bth = bth::Header::parse(packet.get(at_bth..)?).ok()?;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let first = number(at + at_bth);
    // The Ethernet padding of a short frame is no part of the packet.
    let last = number((at + end).min(len)).max(first + bth::HEADER_LEN as u32);
    Some(Roce {
        opcode: bth.opcode.0,
        destination_qp: bth.destination_qp,
        psn: bth.psn.value(),
        packet: first..last,
    })
}

/// Offset behind the UDP header, if its port is RoCE's.
fn over_udp(packet: &[u8], at: usize) -> Option<usize> {
    let udp = udp::Header::parse(packet.get(at..)?).ok()?;
    (udp.destination_port == roce::UDP_PORT).then_some(at + udp::HEADER_LEN)
}
