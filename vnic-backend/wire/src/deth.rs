//! Datagram extended transport header (IBTA vol 1 section 9.3).

use crate::{Error, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// The sender of a datagram, and the key that the receiving queue pair checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Queue key.
    pub qkey: u32,
    /// Source queue pair, 24 bits.
    pub source_qp: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`; its reserved byte is ignored.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            qkey: be32(b, 0),
            source_qp: be32(b, 4) & 0xff_ffff,
        })
    }

    /// The header's bytes; excess bits of `source_qp` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let (q, s) = (self.qkey.to_be_bytes(), self.source_qp.to_be_bytes());
        [q[0], q[1], q[2], q[3], 0, s[1], s[2], s[3]]
    }
}
