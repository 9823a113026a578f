//! Immediate data (IBTA vol 1 section 9.3).

use crate::Error;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;

/// Immediate data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The four bytes as a number, first byte on top. (Verbs calls them opaque and hands them on in network order.)
    pub data: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            data: u32::from_be_bytes(*b),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        self.data.to_be_bytes()
    }
}
