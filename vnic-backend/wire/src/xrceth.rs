//! XRC extended transport header (IBTA vol 1 annex A14): on every request of an extended reliable connection, right
//! behind the BTH.

use crate::Error;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;

/// The receive queue that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Shared receive queue at the responder, 24 bits.
    pub srq: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`; its reserved byte is ignored.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            srq: u32::from_be_bytes(*b) & 0xff_ffff,
        })
    }

    /// The header's bytes; excess bits of `srq` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        (self.srq & 0xff_ffff).to_be_bytes()
    }
}
