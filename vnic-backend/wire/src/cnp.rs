//! What follows the BTH of a congestion notification packet: 16 reserved bytes (IBTA vol 1 annex A17.9).

use crate::Error;

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;

/// The reserved bytes: sent as 0, ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header;

impl Header {
    /// Sees that the bytes are there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let _: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header)
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        [0; HEADER_LEN]
    }
}
