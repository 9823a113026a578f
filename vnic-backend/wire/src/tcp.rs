//! TCP header (RFC 9293 section 3.1).

use crate::{Error, be16, be32};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 20;

/// Offset of the checksum in the header.
pub const CHECKSUM_OFFSET: usize = 16;

/// The sender's data end here.
pub const FIN: u16 = 0x001;
/// Synchronize sequence numbers.
pub const SYN: u16 = 0x002;
/// Reset.
pub const RST: u16 = 0x004;
/// Push.
pub const PSH: u16 = 0x008;
/// The acknowledgment number counts.
pub const ACK: u16 = 0x010;
/// The urgent pointer counts.
pub const URG: u16 = 0x020;
/// ECN echo (RFC 3168 section 6.1).
pub const ECE: u16 = 0x040;
/// Congestion window reduced (RFC 3168 section 6.1).
pub const CWR: u16 = 0x080;

/// A TCP header without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Bytes of the header with options, 20..=60.
    pub header_len: usize,
    /// [`FIN`], [`SYN`], …; 12 bits with the reserved ones.
    pub flags: u16,
    /// Receive window.
    pub window: u16,
    /// Checksum as found.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
}

impl Header {
    /// Reads the header from the front of a segment; all of it, options included, must be there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let word = be16(b, 12);
        let header_len = usize::from(word >> 12) * 4;
        if header_len < HEADER_LEN {
            return Err(Error::Length);
        }
        if bytes.len() < header_len {
            return Err(Error::Truncated);
        }
        Ok(Header {
            source_port: be16(b, 0),
            destination_port: be16(b, 2),
            sequence: be32(b, 4),
            acknowledgment: be32(b, 8),
            header_len,
            flags: word & 0x0fff,
            window: be16(b, 14),
            checksum: be16(b, 16),
            urgent: be16(b, 18),
        })
    }

    /// The header's bytes with data offset 5 (no options) and the checksum as given.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..2].copy_from_slice(&self.source_port.to_be_bytes());
        b[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        b[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        b[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        b[12..14].copy_from_slice(&(5 << 12 | self.flags & 0x0fff).to_be_bytes());
        b[14..16].copy_from_slice(&self.window.to_be_bytes());
        b[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        b[18..].copy_from_slice(&self.urgent.to_be_bytes());
        b
    }
}
