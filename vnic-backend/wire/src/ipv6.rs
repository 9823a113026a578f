//! IPv6 header and the walk over its extension headers (RFC 8200 sections 3 and 4).

use crate::{Error, be16, be32};

/// Bytes of the header without extension headers.
pub const HEADER_LEN: usize = 40;

/// Next header values of the extension headers that are walked over (RFC 8200 section 4).
mod next {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const DESTINATION: u8 = 60;
}

/// Extension headers that a packet may have: RFC 8200 section 4.1 names seven.
const CHAIN_MAX: usize = 8;

/// An IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind this header, as the field says.
    pub payload_len: u16,
    /// What follows.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
}

/// The header behind the extension headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper {
    /// Next header value of the upper layer (or of an extension that hides it, such as ESP and AH).
    pub protocol: u8,
    /// Offset of the upper layer from the start of the IPv6 header.
    pub offset: usize,
    /// Whether there was a fragment header.
    pub fragment: bool,
    /// Offset of the destination for the pseudo header (RFC 8200 section 8.1), from the start of the IPv6
    /// header: in a routing header that still has addresses to visit, otherwise in the IPv6 header.
    pub destination_offset: usize,
}

/// Offset of the destination address in the header.
const DESTINATION: usize = 24;

impl Header {
    /// Reads the header from the front of a packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let word = be32(b, 0);
        if word >> 28 != 6 {
            return Err(Error::Kind);
        }
        let mut header = Header {
            traffic_class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            payload_len: be16(b, 4),
            next_header: b[6],
            hop_limit: b[7],
            source: [0; 16],
            destination: [0; 16],
        };
        header.source.copy_from_slice(&b[8..24]);
        header.destination.copy_from_slice(&b[24..40]);
        Ok(header)
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        b[..4].copy_from_slice(&word.to_be_bytes());
        b[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        b[6] = self.next_header;
        b[7] = self.hop_limit;
        b[8..24].copy_from_slice(&self.source);
        b[24..].copy_from_slice(&self.destination);
        b
    }

    /// Walks over the extension headers of the packet that begins with this header. Ends with an error when
    /// the chain is cut off or implausibly long.
    pub fn upper(&self, packet: &[u8]) -> Result<Upper, Error> {
        let mut upper = Upper {
            protocol: self.next_header,
            offset: HEADER_LEN,
            fragment: false,
            destination_offset: DESTINATION,
        };
        for _ in 0..CHAIN_MAX {
            let rest = packet.get(upper.offset..).unwrap_or(&[]);
            let len = match upper.protocol {
                next::HOP_BY_HOP | next::DESTINATION | next::ROUTING => {
                    8 + usize::from(*rest.get(1).ok_or(Error::Truncated)?) * 8
                }
                next::FRAGMENT => 8,
                _ => return Ok(upper),
            };
            let header = rest.get(..len).ok_or(Error::Truncated)?;
            match upper.protocol {
                next::FRAGMENT => upper.fragment = true,
                // Segments left. The last destination is the first address in the list of type 4
                // (RFC 8754 section 2) and the only one of type 2 (RFC 6275 section 6.4.1).
                next::ROUTING if header[3] != 0 => {
                    if !matches!(header[2], 2 | 4) || len < 24 {
                        return Err(Error::Kind);
                    }
                    upper.destination_offset = upper.offset + 8;
                }
                _ => {}
            }
            upper.protocol = header[0];
            upper.offset += len;
        }
        Err(Error::Length)
    }
}
