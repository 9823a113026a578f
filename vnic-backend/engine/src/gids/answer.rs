//! Answers in the place of a guest without an Ethernet driver: who has this address?

use vnic_wire::gid::Gid;
use vnic_wire::vlan::Tci;
use vnic_wire::{EtherType, MacAddr, arp, ethernet, ipv6, nd, vlan};

use super::hear;

/// The longest answer: a neighbour advertisement behind a VLAN tag.
const LEN_MAX: usize =
    ethernet::HEADER_LEN + vlan::HEADER_LEN + ipv6::HEADER_LEN + nd::HEADER_LEN + nd::LINK_ADDRESS_LEN;

/// Multicast address of all nodes (RFC 4291 section 2.7.1), and its Ethernet address (RFC 2464 section 7).
const ALL_NODES: ([u8; 16], MacAddr) = (
    [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    MacAddr([0x33, 0x33, 0, 0, 0, 1]),
);
/// Flags of an advertisement that was asked for, and of one that is to replace what the receiver knows (RFC 4861 section 4.4).
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;

/// Whether a frame may ask for the Ethernet address of an IP address. Cheap, and true too often.
#[inline]
pub fn may_ask(head: &[u8]) -> bool {
    hear::telling(head)
}

/// Emits the answer to an ARP request (RFC 826) or a neighbour solicitation (RFC 4861 section 7.2.4) for an address that the
/// interface with this Ethernet address has, by `has` (address, VLAN). A question for another address, and any other frame, has
/// no answer.
pub fn answer(
    head: &[u8],
    mac: MacAddr,
    has: impl FnOnce(Gid, Option<u16>) -> bool,
    emit: &mut dyn FnMut(&[u8]),
) {
    let Some(frame) = hear::outer(head) else { return };
    if frame.source == mac {
        return;
    }
    match frame.ethertype {
        EtherType::ARP => {
            let Ok(asked) = arp::Header::parse(frame.payload) else {
                return;
            };
            if asked.operation != arp::REQUEST || !has(Gid::from_ipv4(asked.target_ip), frame.vlan) {
                return;
            }
            let reply = arp::Header {
                operation: arp::REPLY,
                sender_mac: mac,
                sender_ip: asked.target_ip,
                target_mac: asked.sender_mac,
                target_ip: asked.sender_ip,
            };
            send(
                frame.source,
                mac,
                frame.vlan,
                EtherType::ARP,
                &[&reply.emit()],
                emit,
            );
        }
        EtherType::IPV6 => {
            let Ok(packet) = ipv6::Header::parse(frame.payload) else {
                return;
            };
            let Ok(asked) = nd::Header::parse(&frame.payload[ipv6::HEADER_LEN..]) else {
                return;
            };
            if packet.next_header != nd::PROTOCOL_ICMPV6
                || packet.hop_limit != nd::HOP_LIMIT
                || asked.kind != nd::NEIGHBOUR_SOLICITATION
                || !has(Gid(asked.target), frame.vlan)
            {
                return;
            }
            // Who tests whether it may have the address has none to which the answer could go.
            let (destination, to, flags) = if packet.source == Gid::UNSPECIFIED.0 {
                (ALL_NODES.0, ALL_NODES.1, OVERRIDE)
            } else {
                (packet.source, frame.source, SOLICITED | OVERRIDE)
            };
            let message = nd::advertisement(&asked.target, &destination, flags, mac);
            let header = header(asked.target, destination, message.len());
            let parts: [&[u8]; 2] = [&header.emit(), &message];
            send(to, mac, frame.vlan, EtherType::IPV6, &parts, emit);
        }
        _ => {}
    }
}

/// IPv6 header of a message of neighbour discovery.
pub(super) fn header(source: [u8; 16], destination: [u8; 16], message_len: usize) -> ipv6::Header {
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_len: message_len as u16,
        next_header: nd::PROTOCOL_ICMPV6,
        hop_limit: nd::HOP_LIMIT,
        source,
        destination,
    }
}

/// Emits a frame of these parts, padded to the shortest length.
pub(super) fn send(
    destination: MacAddr,
    source: MacAddr,
    vlan: Option<u16>,
    ethertype: EtherType,
    parts: &[&[u8]],
    emit: &mut dyn FnMut(&[u8]),
) {
    let mut frame = [0; LEN_MAX];
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        if let Some(room) = frame.get_mut(at..at + bytes.len()) {
            room.copy_from_slice(bytes);
            at += bytes.len();
        }
    };
    let outer = vlan.map_or(ethertype, |_| EtherType::VLAN);
    put(&ethernet::Header {
        destination,
        source,
        ethertype: outer,
    }
    .emit());
    if let Some(id) = vlan {
        let tci = Tci::new(0, false, id);
        put(&vlan::Header { tci, ethertype }.emit());
    }
    for part in parts {
        put(part);
    }
    emit(&frame[..at.max(ethernet::FRAME_MIN)]);
}
