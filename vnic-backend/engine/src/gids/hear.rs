//! What a frame says about the guest's addresses.

use vnic_wire::gid::Gid;
use vnic_wire::{EtherType, MacAddr, arp, dhcp, ethernet, ipv4, ipv6, nd, udp, vlan};

use super::GidSource;

/// Offset of the next header value in a frame without VLAN tag.
const NEXT_HEADER: usize = ethernet::HEADER_LEN + 6;
/// Offset of the destination port in a frame without VLAN tag or IPv4 options.
const DESTINATION_PORT: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + 2;

/// Whether a frame may show a new address. Cheap, and true too often.
#[inline]
pub(super) fn telling(head: &[u8]) -> bool {
    let Some(b) = head.first_chunk::<{ NEXT_HEADER + 1 }>() else {
        return false;
    };
    let telling = |ethertype: EtherType, next_header: u8| match ethertype {
        EtherType::ARP => true,
        EtherType::IPV6 => next_header == nd::PROTOCOL_ICMPV6,
        _ => false,
    };
    match EtherType(u16::from_be_bytes([b[12], b[13]])) {
        EtherType::VLAN => {
            let next = head.get(NEXT_HEADER + vlan::HEADER_LEN).copied().unwrap_or(0);
            telling(EtherType(u16::from_be_bytes([b[16], b[17]])), next)
        }
        ethertype => telling(ethertype, b[NEXT_HEADER]),
    }
}

/// Whether a frame may be an answer of a DHCP server. Cheap, and true too often.
#[inline]
pub(super) fn maybe_dhcp(head: &[u8]) -> bool {
    let port = |at: usize| head.get(at..at + 2) == Some(&dhcp::CLIENT_PORT.to_be_bytes());
    match head.get(12..14) {
        Some([0x08, 0x00]) => port(DESTINATION_PORT),
        Some([0x81, 0x00]) => port(DESTINATION_PORT + vlan::HEADER_LEN),
        _ => false,
    }
}

/// A frame up to its payload.
pub(super) struct Outer<'a> {
    pub destination: MacAddr,
    pub source: MacAddr,
    pub vlan: Option<u16>,
    /// Whether it is ARP or ICMPv6, which answer our questions.
    pub asked_for: bool,
    pub ethertype: EtherType,
    pub payload: &'a [u8],
}

/// The Ethernet header and one VLAN tag at most: an interface with more tags is not known.
pub(super) fn outer(head: &[u8]) -> Option<Outer<'_>> {
    let ethernet = ethernet::Header::parse(head).ok()?;
    let mut payload = head.get(ethernet::HEADER_LEN..)?;
    let (mut ethertype, mut vlan) = (ethernet.ethertype, None);
    if ethertype == EtherType::VLAN {
        let tag = vlan::Header::parse(payload).ok()?;
        payload = payload.get(vlan::HEADER_LEN..)?;
        ethertype = tag.ethertype;
        vlan = match tag.tci.vid() {
            // The tag names only a priority (IEEE 802.1Q clause 6.9).
            0 => None,
            0xfff => return None,
            id => Some(id),
        };
    }
    let asked_for = match ethertype {
        EtherType::ARP => true,
        EtherType::IPV6 => payload.get(6) == Some(&nd::PROTOCOL_ICMPV6),
        _ => false,
    };
    Some(Outer {
        destination: ethernet.destination,
        source: ethernet.source,
        vlan,
        asked_for,
        ethertype,
        payload,
    })
}

/// What a frame of the guest says.
pub(super) enum Heard {
    /// The guest has these addresses.
    Has(GidSource, [Option<Gid>; 2]),
    /// The guest tests whether it may have this address (RFC 4862 section 5.4).
    Tests(Gid),
    /// The frame comes from this address, whether it is the guest's own or only passes through.
    Uses(Gid),
    /// The frame says nothing.
    Nothing,
}

/// Listens to a frame of the guest with this Ethernet address.
pub(super) fn hear(frame: &Outer<'_>, mac: MacAddr) -> Heard {
    match frame.ethertype {
        EtherType::ARP => match arp::Header::parse(frame.payload) {
            // Requests, replies and announcements name the sender's address. A probe names none (RFC 5227
            // section 2.1.1): its sender is 0.0.0.0, which is no address.
            Ok(p) if matches!(p.operation, arp::REQUEST | arp::REPLY) && p.sender_mac == mac => {
                Heard::Has(GidSource::Arp, [Some(Gid::from_ipv4(p.sender_ip)), None])
            }
            _ => Heard::Nothing,
        },
        EtherType::IPV4 => match ipv4::Header::parse(frame.payload) {
            Ok(p) => Heard::Uses(Gid::from_ipv4(p.source)),
            Err(_) => Heard::Nothing,
        },
        EtherType::IPV6 => match ipv6::Header::parse(frame.payload) {
            Ok(p) if p.next_header == nd::PROTOCOL_ICMPV6 && p.hop_limit == nd::HOP_LIMIT => {
                neighbour(&p, &frame.payload[ipv6::HEADER_LEN..])
            }
            Ok(p) => Heard::Uses(unmapped(p.source).unwrap_or_default()),
            Err(_) => Heard::Nothing,
        },
        _ => Heard::Nothing,
    }
}

/// An ICMPv6 message that has passed no router.
fn neighbour(packet: &ipv6::Header, message: &[u8]) -> Heard {
    let source = unmapped(packet.source);
    let has = |more| Heard::Has(GidSource::Nd, [source, more]);
    match (message.first(), nd::Header::parse(message)) {
        (_, Ok(m)) if m.kind == nd::NEIGHBOUR_ADVERTISEMENT => has(unmapped(m.target)),
        (_, Ok(m)) if source == Some(Gid::UNSPECIFIED) => {
            unmapped(m.target).map_or(Heard::Nothing, Heard::Tests)
        }
        // The sender's address is there even when what follows is cut off.
        (Some(&(nd::ROUTER_SOLICITATION | nd::ROUTER_ADVERTISEMENT | nd::NEIGHBOUR_SOLICITATION)), _) => {
            has(None)
        }
        _ => Heard::Uses(source.unwrap_or_default()),
    }
}

/// An IPv6 address, unless it is a mapped one, which does not appear on a wire (RFC 4291 section
/// 2.5.5.2).
fn unmapped(address: [u8; 16]) -> Option<Gid> {
    Some(Gid(address)).filter(|g| g.to_ipv4().is_none())
}

/// The address that a DHCP server gives to the client with this Ethernet address, and its VLAN.
pub(super) fn given(head: &[u8], mac: MacAddr) -> Option<(Gid, Option<u16>)> {
    let frame = outer(head)?;
    let packet = ipv4::Header::parse(frame.payload).ok()?;
    if frame.ethertype != EtherType::IPV4
        || packet.protocol != ipv4::PROTOCOL_UDP
        || packet.fragment_offset != 0
    {
        return None;
    }
    let datagram = frame.payload.get(packet.header_len..)?;
    let header = udp::Header::parse(datagram).ok()?;
    let message = datagram.get(udp::HEADER_LEN..)?;
    if (header.source_port, header.destination_port) != (dhcp::SERVER_PORT, dhcp::CLIENT_PORT) {
        return None;
    }
    let m = dhcp::Header::parse(message).ok()?;
    if m.operation != dhcp::REPLY || m.client_mac != mac {
        return None;
    }
    // The type is often cut off. The guest is asked in any case.
    if dhcp::message_type(message).is_ok_and(|t| t != dhcp::ACK) {
        return None;
    }
    let gid = Gid::from_ipv4(m.your_ip);
    super::usable(gid).then_some((gid, frame.vlan))
}
