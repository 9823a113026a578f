//! IPv4 header (RFC 791 section 3.1; RFC 2474 and RFC 3168 for the second byte).

use crate::{Error, be16, checksum};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;

/// IP protocol number of IPv4 in IP (RFC 2003; IANA).
pub const PROTOCOL_IPV4: u8 = 4;
/// IP protocol number of TCP (IANA).
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP (IANA).
pub const PROTOCOL_UDP: u8 = 17;
/// IP protocol number of IPv6 in IP (RFC 2473; IANA).
pub const PROTOCOL_IPV6: u8 = 41;
/// IP protocol number of GRE (RFC 2784; IANA).
pub const PROTOCOL_GRE: u8 = 47;

/// An IPv4 header without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the header with options, 20..=60.
    pub header_len: usize,
    /// DSCP (upper six bits) and ECN (lower two).
    pub dscp_ecn: u8,
    /// Bytes of the packet with this header, as the field says. They are not checked, because a sender
    /// that asks for segmentation may leave the field open.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Do not fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// Position of the fragment in units of 8 bytes, 13 bits.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// What follows.
    pub protocol: u8,
    /// Header checksum as found; [`Header::emit`] computes it.
    pub checksum: u16,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

impl Header {
    /// Reads the header from the front of a packet; all of it, options included, must be there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if b[0] >> 4 != 4 {
            return Err(Error::Kind);
        }
        let header_len = usize::from(b[0] & 0x0f) * 4;
        if header_len < HEADER_LEN {
            return Err(Error::Length);
        }
        if bytes.len() < header_len {
            return Err(Error::Truncated);
        }
        let fragment = be16(b, 6);
        Ok(Header {
            header_len,
            dscp_ecn: b[1],
            total_len: be16(b, 2),
            id: be16(b, 4),
            dont_fragment: fragment & 0x4000 != 0,
            more_fragments: fragment & 0x2000 != 0,
            fragment_offset: fragment & 0x1fff,
            ttl: b[8],
            protocol: b[9],
            checksum: be16(b, 10),
            source: [b[12], b[13], b[14], b[15]],
            destination: [b[16], b[17], b[18], b[19]],
        })
    }

    /// One fragment of several.
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        self.more_fragments || self.fragment_offset != 0
    }

    /// The header's bytes with IHL 5 (no options) and a right checksum.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[0] = 0x45;
        b[1] = self.dscp_ecn;
        b[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        b[4..6].copy_from_slice(&self.id.to_be_bytes());
        let fragment = u16::from(self.dont_fragment) << 14
            | u16::from(self.more_fragments) << 13
            | self.fragment_offset & 0x1fff;
        b[6..8].copy_from_slice(&fragment.to_be_bytes());
        b[8] = self.ttl;
        b[9] = self.protocol;
        b[12..16].copy_from_slice(&self.source);
        b[16..20].copy_from_slice(&self.destination);
        let sum = !checksum::fold(checksum::sum(&b));
        b[10..12].copy_from_slice(&sum.to_be_bytes());
        b
    }
}
