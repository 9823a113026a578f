//! Global route header (IBTA vol 1 section 8.3): the network header of RoCEv1 (annex A16), an IPv6 header in form.

use crate::{Error, ipv6};

/// Bytes of the header.
pub const HEADER_LEN: usize = ipv6::HEADER_LEN;

/// Next header value of a transport packet of InfiniBand (IBTA vol 1 section 8.3).
pub const NEXT_HEADER_IBA: u8 = 0x1b;

/// A global route header. Its version is 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Traffic class: DSCP (upper six bits) and ECN (lower two).
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Bytes behind this header, ICRC included.
    pub payload_len: u16,
    /// What follows: [`NEXT_HEADER_IBA`].
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
}

impl Header {
    /// Reads the header from the front of a packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let h = ipv6::Header::parse(bytes)?;
        Ok(Header {
            traffic_class: h.traffic_class,
            flow_label: h.flow_label,
            payload_len: h.payload_len,
            next_header: h.next_header,
            hop_limit: h.hop_limit,
            source: h.source,
            destination: h.destination,
        })
    }

    /// The header's bytes; excess bits of `flow_label` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        ipv6::Header {
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            payload_len: self.payload_len,
            next_header: self.next_header,
            hop_limit: self.hop_limit,
            source: self.source,
            destination: self.destination,
        }
        .emit()
    }
}
