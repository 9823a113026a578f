//! DC connect extended transport header: behind the [DCETH](crate::dceth) of a CONNECT, which opens a connection, and of a
//! DISCONNECT, which closes it. The layout is ours, as that of the DCETH.
//!
//! The PSN of a CONNECT is that of the first request of the connection; neither message takes a PSN.

use crate::{Error, be32, be64};

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;

/// A connection that is opened or closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Access key of the target.
    pub access_key: u64,
    /// Number of the connection: greater, by less than 2^31, than those that the initiator had before.
    pub connection: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            access_key: be64(b, 0),
            connection: be32(b, 8),
        })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.access_key.to_be_bytes());
        bytes[8..].copy_from_slice(&self.connection.to_be_bytes());
        bytes
    }
}
