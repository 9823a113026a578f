//! GRE header (RFC 2784, with key and sequence number of RFC 2890; NVGRE, RFC 7637, is GRE with a key).
//!
//! ```text
//!  0  C, reserved, K, S, reserved, version (3 bits, 0)    4  with C: checksum, reserved
//!  2  EtherType of what follows                           .. with K: key    .. with S: sequence number
//! ```

use crate::{Error, EtherType, be16};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 4;

/// C: there is a checksum.
pub const CHECKSUM: u16 = 0x8000;
/// Bits that version 0 does not have any more: routing (RFC 1701), and the version.
const OTHER: u16 = 0x4007;
/// K: there is a key.
pub const KEY: u16 = 0x2000;
/// S: there is a sequence number.
pub const SEQUENCE: u16 = 0x1000;

/// A GRE header without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the header with options, 4..=16.
    pub header_len: usize,
    /// What follows.
    pub protocol: EtherType,
}

/// Flags of the options of a header: [`CHECKSUM`], [`KEY`], [`SEQUENCE`]; 0 for bytes that do not begin with one.
#[inline]
pub fn options(bytes: &[u8]) -> u16 {
    let flags = bytes.first_chunk().map_or(0, |b: &[u8; HEADER_LEN]| be16(b, 0));
    flags & (CHECKSUM | KEY | SEQUENCE)
}

impl Header {
    /// Reads the header from the front of an IP payload; all of it, options included, must be there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let flags = be16(b, 0);
        if flags & OTHER != 0 {
            return Err(Error::Kind);
        }
        let header_len = HEADER_LEN + 4 * options(bytes).count_ones() as usize;
        if bytes.len() < header_len {
            return Err(Error::Truncated);
        }
        Ok(Header {
            header_len,
            protocol: EtherType(be16(b, 2)),
        })
    }

    /// The header's bytes without options.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let p = self.protocol.0.to_be_bytes();
        [0, 0, p[0], p[1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bytes() {
        let header = Header {
            header_len: 4,
            protocol: EtherType::IPV4,
        };
        assert_eq!(header.emit(), [0, 0, 8, 0]);
        assert_eq!(Header::parse(&header.emit()), Ok(header));
        // NVGRE: a key, and an Ethernet frame.
        let nvgre = [0x20, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0x78];
        let header = Header {
            header_len: 8,
            protocol: EtherType::TRANSPARENT_ETHERNET,
        };
        assert_eq!(Header::parse(&nvgre), Ok(header));
        for len in 0..nvgre.len() {
            assert_eq!(Header::parse(&nvgre[..len]), Err(Error::Truncated));
        }
        let all = [0xb0, 0, 0x86, 0xdd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Header::parse(&all).map(|h| h.header_len), Ok(16));
    }

    #[test]
    fn other_versions_are_not_read() {
        // Routing of RFC 1701; PPTP (RFC 2637), which is version 1.
        for flags in [[0x40, 0], [0x30, 1]] {
            assert_eq!(Header::parse(&[flags[0], flags[1], 8, 0]), Err(Error::Kind));
        }
    }
}
