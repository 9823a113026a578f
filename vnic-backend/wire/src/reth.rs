//! RDMA extended transport header (IBTA vol 1 section 9.3).

use crate::{Error, be32, be64};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;

/// Where an RDMA WRITE goes or an RDMA READ comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Bytes of the whole message.
    pub len: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            va: be64(b, 0),
            rkey: be32(b, 8),
            len: be32(b, 12),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..8].copy_from_slice(&self.va.to_be_bytes());
        b[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        b[12..].copy_from_slice(&self.len.to_be_bytes());
        b
    }
}
