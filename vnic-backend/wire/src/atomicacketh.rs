//! Atomic ACK extended transport header (IBTA vol 1 section 9.3).

use crate::{Error, be64};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// The answer to an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The 8 bytes of memory before the operation.
    pub original: u64,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header { original: be64(b, 0) })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        self.original.to_be_bytes()
    }
}
