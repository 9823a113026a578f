//! DC extended transport header: on every request of the dynamically connected transport, right behind the BTH. It says which
//! initiator a request comes from, for a target has many of them at one number.
//!
//! Adapters of one vendor have this transport, and its public sources (rdma-core's manual pages, the vendor's programming guide)
//! name the header, the access key and the messages that connect and disconnect; no public source has the layout. This one is ours: the
//! opcodes have the transport bits 110 that the vendor's have, and nothing more is the same.

use crate::{Error, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;

/// Which initiator sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The low bits of the [number of the connection](crate::dcceth::Header::connection) that the request belongs to.
    pub connection: u8,
    /// Queue pair of the initiator, 24 bits.
    pub initiator: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            connection: b[0],
            initiator: be32(b, 0) & 0xff_ffff,
        })
    }

    /// The header's bytes; excess bits of `initiator` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        (u32::from(self.connection) << 24 | self.initiator & 0xff_ffff).to_be_bytes()
    }
}
