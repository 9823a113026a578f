//! Atomic extended transport header (IBTA vol 1 section 9.3).

use crate::{Error, be32, be64};

/// Bytes of the header.
pub const HEADER_LEN: usize = 28;

/// A request for an atomic operation on 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Virtual address at the responder, a multiple of 8 (the responder checks it).
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// The new value of COMPARE_SWAP, or what FETCH_ADD adds.
    pub swap_or_add: u64,
    /// What COMPARE_SWAP compares with; without meaning for FETCH_ADD.
    pub compare: u64,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            va: be64(b, 0),
            rkey: be32(b, 8),
            swap_or_add: be64(b, 12),
            compare: be64(b, 20),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..20].copy_from_slice(&self.swap_or_add.to_be_bytes());
        b[20..].copy_from_slice(&self.compare.to_be_bytes());
        b
    }
}
