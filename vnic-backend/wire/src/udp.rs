//! UDP header (RFC 768).

use crate::{Error, be16};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 6;

/// A UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes of header and payload, 8 or more.
    pub len: u16,
    /// Checksum; 0: none.
    pub checksum: u16,
}

impl Header {
    /// Reads the header from the front of a datagram.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let len = be16(b, 4);
        if usize::from(len) < HEADER_LEN {
            return Err(Error::Length);
        }
        Ok(Header {
            source_port: be16(b, 0),
            destination_port: be16(b, 2),
            len,
            checksum: be16(b, 6),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let (s, d, l, c) = (
            self.source_port.to_be_bytes(),
            self.destination_port.to_be_bytes(),
            self.len.to_be_bytes(),
            self.checksum.to_be_bytes(),
        );
        [s[0], s[1], d[0], d[1], l[0], l[1], c[0], c[1]]
    }
}
