//! Addresses that a frame of a guest claims, and whether the guest may: ARP (RFC 826, RFC 5227), neighbour discovery (RFC
//! 4861), sources of IPv4, IPv6 and RoCEv1, answers of DHCP servers (RFC 2131).

use alloc::boxed::Box;
use core::net::IpAddr;

use vnic_wire::gid::Gid;
use vnic_wire::prefix::Prefix;
use vnic_wire::{EtherType, MacAddr, arp, dhcp, ethernet, ipv4, ipv6, nd};

/// Most VLAN tags of a frame, and extension headers of an IPv6 packet, that are looked behind.
const DEPTH: usize = 4;
/// TPIDs of one more tag: IEEE 802.1Q table 9-1, and one from before that standard.
const TAGS: [[u8; 2]; 3] = [[0x81, 0x00], [0x88, 0xa8], [0x91, 0x00]];
/// LLC and SNAP headers of an EtherType behind a length (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
const UNSPECIFIED_IPV4: [u8; 4] = [0; 4];
const UDP: u8 = ipv4::PROTOCOL_UDP;

/// Addresses that a guest may claim, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedAddresses(Box<[Prefix]>);

/// A claim that a guest may not make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Claim {
    /// An address.
    Address(IpAddr),
    /// Being a DHCP server.
    DhcpServer,
    /// A claim that cannot be seen: too many headers are before it, or it is malformed.
    Hidden,
}

impl AllowedAddresses {
    /// A list of these prefixes; `None` if there are none: any address is allowed.
    pub fn new(prefixes: &[Prefix]) -> Option<AllowedAddresses> {
        (!prefixes.is_empty()).then(|| AllowedAddresses(prefixes.into()))
    }

    /// The claim of a frame that its sender may not make; `None`: there is none. `head` has all of a short frame, and of others
    /// 128 bytes or more. The link-local address that is made of the frame's Ethernet source is always allowed.
    pub fn refused(&self, head: &[u8]) -> Option<Claim> {
        self.look(head).err()
    }

    fn look(&self, head: &[u8]) -> Result<(), Claim> {
        let Ok(frame) = ethernet::Header::parse(head) else {
            return Ok(());
        };
        let own = Gid::from_mac(frame.source);
        let check = |gid: Gid| match gid == own || self.0.iter().any(|p| p.contains(gid)) {
            true => Ok(()),
            false => Err(Claim::Address(gid.to_ip())),
        };
        let (ethertype, packet) = payload(head)?;
        match ethertype {
            EtherType::ARP => {
                let p = arp::Header::parse(packet).map_err(|_| Claim::Hidden)?;
                // A probe claims the address that it asks for (RFC 5227 section 2.1.1).
                check(Gid::from_ipv4(match p.sender_ip {
                    UNSPECIFIED_IPV4 => p.target_ip,
                    sender => sender,
                }))
            }
            EtherType::IPV4 => {
                let b: &[u8; ipv4::HEADER_LEN] = packet.first_chunk().ok_or(Claim::Hidden)?;
                let source = [b[12], b[13], b[14], b[15]];
                let first = u16::from_be_bytes([b[6], b[7]]) & 0x1fff == 0;
                let from = usize::from(b[0] & 15) * 4;
                let ports = (b[9] == UDP && first)
                    .then(|| packet.get(from..from + 4))
                    .flatten();
                let ports = ports.map(|p| {
                    let port = |at| u16::from_be_bytes([p[at], p[at + 1]]);
                    (port(0), port(2))
                });
                match ports {
                    Some((dhcp::SERVER_PORT, _)) => Err(Claim::DhcpServer),
                    // A client without an address asks for one.
                    Some((_, dhcp::SERVER_PORT)) if source == UNSPECIFIED_IPV4 => Ok(()),
                    _ => check(Gid::from_ipv4(source)),
                }
            }
            EtherType::IPV6 => ipv6_packet(packet, check),
            // The network header of RoCEv1 is that of IPv6 (IBTA annex A16).
            EtherType::ROCE => check(source(packet)?),
            _ => Ok(()),
        }
    }
}

/// EtherType and bytes behind the tags.
fn payload(head: &[u8]) -> Result<(EtherType, &[u8]), Claim> {
    let mut at = 2 * MacAddr::default().0.len();
    for _ in 0..=DEPTH {
        let Some(&kind) = head.get(at..).and_then(|b| b.first_chunk::<2>()) else {
            return Ok((EtherType(0), &[]));
        };
        if TAGS.contains(&kind) {
            at += 4;
            continue;
        }
        let ethertype = EtherType(u16::from_be_bytes(kind));
        let packet = &head[at + 2..];
        return Ok(match packet.strip_prefix(&SNAP) {
            Some([a, b, packet @ ..]) if ethertype.0 < 0x600 => {
                (EtherType(u16::from_be_bytes([*a, *b])), packet)
            }
            _ => (ethertype, packet),
        });
    }
    Err(Claim::Hidden)
}

/// The source of an IPv6 header.
fn source(packet: &[u8]) -> Result<Gid, Claim> {
    let source = packet.get(8..24).and_then(|b| b.first_chunk());
    source.map(|s| Gid(*s)).ok_or(Claim::Hidden)
}

fn ipv6_packet(packet: &[u8], check: impl Fn(Gid) -> Result<(), Claim>) -> Result<(), Claim> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const OPTIONS: u8 = 60;
    let source = source(packet)?;
    if source != Gid::UNSPECIFIED {
        check(source)?;
    }
    let mut rest = packet.get(ipv6::HEADER_LEN..).ok_or(Claim::Hidden)?;
    let mut next = packet[6];
    for _ in 0..=DEPTH {
        let len = match next {
            HOP_BY_HOP | ROUTING | OPTIONS => 8 + 8 * usize::from(*rest.get(1).ok_or(Claim::Hidden)?),
            // Only the first fragment has what comes next.
            FRAGMENT => match rest.get(2..4) {
                Some([0, 0..8]) => 8,
                _ => return unspecified_is_refused(source),
            },
            nd::PROTOCOL_ICMPV6 => {
                // Other messages claim no more than their source.
                return match (rest.first(), nd::Header::parse(rest)) {
                    (Some(&nd::NEIGHBOUR_ADVERTISEMENT), Ok(m)) => check(Gid(m.target)),
                    // Duplicate address detection (RFC 4862 section 5.4).
                    (Some(&nd::NEIGHBOUR_SOLICITATION), Ok(m)) if source == Gid::UNSPECIFIED => {
                        check(Gid(m.target))
                    }
                    _ => Ok(()),
                };
            }
            _ => return unspecified_is_refused(source),
        };
        next = *rest.first().ok_or(Claim::Hidden)?;
        rest = rest.get(len..).ok_or(Claim::Hidden)?;
    }
    Err(Claim::Hidden)
}

/// Without an address a guest may use neighbour discovery and report multicast groups only, both by ICMPv6.
fn unspecified_is_refused(source: Gid) -> Result<(), Claim> {
    match source {
        Gid::UNSPECIFIED => Err(Claim::Address(source.to_ip())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
