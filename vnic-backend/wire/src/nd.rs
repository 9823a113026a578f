//! Neighbour discovery for IPv6 (RFC 4861 sections 4.1 to 4.4): solicitations and advertisements, from behind the IPv6
//! header, without their options.

use crate::{Error, be16, checksum};

/// Bytes of a neighbour solicitation or advertisement without options.
pub const HEADER_LEN: usize = 24;
/// Next header value of ICMPv6 (RFC 4443 section 1).
pub const PROTOCOL_ICMPV6: u8 = 58;
/// The required hop limit: the packet has passed no router (RFC 4861 section 7.1).
pub const HOP_LIMIT: u8 = 255;

/// ICMPv6 type of a router solicitation (RFC 4861 section 4.1).
pub const ROUTER_SOLICITATION: u8 = 133;
/// ICMPv6 type of a router advertisement (section 4.2).
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// ICMPv6 type of a neighbour solicitation: who has this address? (Section 4.3.)
pub const NEIGHBOUR_SOLICITATION: u8 = 135;
/// ICMPv6 type of a neighbour advertisement: I have (section 4.4).
pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// Bytes of the option with an Ethernet address (section 4.6.1).
pub const LINK_ADDRESS_LEN: usize = 8;
/// Type of that option for the sender of the packet, and for the target of an advertisement.
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

/// A neighbour solicitation or advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// [`NEIGHBOUR_SOLICITATION`] or [`NEIGHBOUR_ADVERTISEMENT`].
    pub kind: u8,
    /// Checksum as found.
    pub checksum: u16,
    /// Flags of an advertisement (router, solicited, override) in the highest bits; the word behind the checksum.
    pub flags: u32,
    /// The address that the message is about.
    pub target: [u8; 16],
}

impl Header {
    /// Reads the header from behind an IPv6 header.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if !matches!(b[0], NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT) || b[1] != 0 {
            return Err(Error::Kind);
        }
        let mut target = [0; 16];
        target.copy_from_slice(&b[8..]);
        Ok(Header {
            kind: b[0],
            checksum: be16(b, 2),
            flags: crate::be32(b, 4),
            target,
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0] = self.kind;
        b[2..4].copy_from_slice(&self.checksum.to_be_bytes());
        b[4..8].copy_from_slice(&self.flags.to_be_bytes());
        b[8..].copy_from_slice(&self.target);
        b
    }
}

/// A neighbour solicitation for `target` with the sender's Ethernet address as its option, checksum included.
pub fn solicitation(
    source: &[u8; 16],
    destination: &[u8; 16],
    target: [u8; 16],
    mac: crate::MacAddr,
) -> [u8; HEADER_LEN + LINK_ADDRESS_LEN] {
    let header = Header {
        kind: NEIGHBOUR_SOLICITATION,
        checksum: 0,
        flags: 0,
        target,
    };
    message(header, SOURCE_LINK_ADDRESS, mac, source, destination)
}

/// A neighbour advertisement of `target`, which is also its source, with these flags and the Ethernet address of the target as its
/// option, checksum included.
pub fn advertisement(
    target: &[u8; 16],
    destination: &[u8; 16],
    flags: u32,
    mac: crate::MacAddr,
) -> [u8; HEADER_LEN + LINK_ADDRESS_LEN] {
    let header = Header {
        kind: NEIGHBOUR_ADVERTISEMENT,
        checksum: 0,
        flags,
        target: *target,
    };
    message(header, TARGET_LINK_ADDRESS, mac, target, destination)
}

fn message(
    header: Header,
    option: u8,
    mac: crate::MacAddr,
    source: &[u8; 16],
    destination: &[u8; 16],
) -> [u8; HEADER_LEN + LINK_ADDRESS_LEN] {
    let mut b = [0; HEADER_LEN + LINK_ADDRESS_LEN];
    b[..HEADER_LEN].copy_from_slice(&header.emit());
    // Length in units of 8 bytes.
    b[HEADER_LEN..HEADER_LEN + 2].copy_from_slice(&[option, 1]);
    b[HEADER_LEN + 2..].copy_from_slice(&mac.0);
    let pseudo = checksum::pseudo_v6(source, destination, PROTOCOL_ICMPV6, b.len() as u32);
    let sum = !checksum::fold(pseudo + checksum::sum(&b));
    b[2..4].copy_from_slice(&sum.to_be_bytes());
    b
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_survive_the_wire(kind in 135u8..=136, checksum: u16, flags: u32, target: [u8; 16]) {
            let h = Header { kind, checksum, flags, target };
            prop_assert_eq!(Header::parse(&h.emit()), Ok(h));
            for len in 0..HEADER_LEN {
                prop_assert_eq!(Header::parse(&h.emit()[..len]), Err(Error::Truncated));
            }
        }

        #[test]
        fn messages_have_the_checksum_that_another_library_computes(
            source: [u8; 16], destination: [u8; 16], target: [u8; 16], mac: [u8; 6], flags in 0u32..8
        ) {
            let mac = crate::MacAddr(mac);
            for (b, source) in [
                (solicitation(&source, &destination, target, mac), source),
                (advertisement(&target, &destination, flags << 29, mac), target),
            ] {
                let (header, payload) = etherparse::Icmpv6Header::from_slice(&b).unwrap();
                let computed = header.icmp_type.calc_checksum(source, destination, payload).unwrap();
                prop_assert_eq!(computed, header.checksum);
                prop_assert_eq!(Header::parse(&b).unwrap().target, target);
            }
        }
    }

    #[test]
    fn other_messages_are_not_taken() {
        let mut b = [0; HEADER_LEN];
        for (kind, code) in [
            (128, 0),
            (ROUTER_SOLICITATION, 0),
            (137, 0),
            (NEIGHBOUR_SOLICITATION, 1),
        ] {
            b[..2].copy_from_slice(&[kind, code]);
            assert_eq!(Header::parse(&b), Err(Error::Kind));
        }
    }
}
