//! Management datagrams: the common header (IBTA vol 1 section 13.4.3). In RoCE they are UD packets between queue pairs 1
//! (the general services interface), 256 bytes each.

use crate::{Error, be16, be32, be64};

/// Bytes of the header.
pub const HEADER_LEN: usize = 24;
/// Bytes of a datagram.
pub const LEN: usize = 256;
/// The queue pair of general services.
pub const GSI_QP: u32 = 1;
/// The queue key of queue pair 1 (section 10.2.5).
pub const GSI_QKEY: u32 = 0x8001_0000;

/// The common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Version of the format; 1.
    pub base_version: u8,
    /// Management class.
    pub class: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Method; its top bit says that the datagram is a response.
    pub method: u8,
    /// Status of the operation.
    pub status: u16,
    /// What the class makes of it.
    pub class_specific: u16,
    /// Transaction.
    pub transaction: u64,
    /// Attribute: which of the class's messages it is.
    pub attribute: u16,
    /// Modifier of the attribute.
    pub modifier: u32,
}

impl Header {
    /// Reads the header from the front of `bytes`; its reserved bytes are ignored.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            base_version: b[0],
            class: b[1],
            class_version: b[2],
            method: b[3],
            status: be16(b, 4),
            class_specific: be16(b, 6),
            transaction: be64(b, 8),
            attribute: be16(b, 16),
            modifier: be32(b, 20),
        })
    }

    /// The header's bytes.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..4].copy_from_slice(&[self.base_version, self.class, self.class_version, self.method]);
        b[4..6].copy_from_slice(&self.status.to_be_bytes());
        b[6..8].copy_from_slice(&self.class_specific.to_be_bytes());
        b[8..16].copy_from_slice(&self.transaction.to_be_bytes());
        b[16..18].copy_from_slice(&self.attribute.to_be_bytes());
        b[20..].copy_from_slice(&self.modifier.to_be_bytes());
        b
    }
}
