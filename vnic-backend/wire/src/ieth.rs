//! Invalidate extended transport header (IBTA vol 1 section 9.3).

use crate::Error;

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;

/// What a SEND with invalidate invalidates at the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Remote key.
    pub rkey: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            rkey: u32::from_be_bytes(*b),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        self.rkey.to_be_bytes()
    }
}
