//! GENEVE header (RFC 8926 section 3.4).
//!
//! ```text
//!  0  version (2 bits, 0), length of options (6 bits, in units of 4 bytes)    4  VNI, 24 bits
//!  1  O: control packet, C: critical options, 6 bits reserved                 7  reserved
//!  2  EtherType of what follows                                               8  options
//! ```

use crate::{Error, EtherType, be16, be32};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 8;

/// UDP destination port (IANA).
pub const UDP_PORT: u16 = 6081;

/// A GENEVE header without its options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the header with options, 8..=260.
    pub header_len: usize,
    /// O: the packet is no tenant's, but for the other end of the tunnel.
    pub control: bool,
    /// C: a receiver that does not know all options must drop the packet.
    pub critical: bool,
    /// What follows.
    pub protocol: EtherType,
    /// Virtual network identifier, 24 bits.
    pub vni: u32,
}

impl Header {
    /// Reads the header from the front of a UDP payload; all of it, options included, must be there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if b[0] >> 6 != 0 {
            return Err(Error::Kind);
        }
        let header_len = HEADER_LEN + usize::from(b[0] & 0x3f) * 4;
        if bytes.len() < header_len {
            return Err(Error::Truncated);
        }
        Ok(Header {
            header_len,
            control: b[1] & 0x80 != 0,
            critical: b[1] & 0x40 != 0,
            protocol: EtherType(be16(b, 2)),
            vni: be32(b, 4) >> 8,
        })
    }

    /// The header's bytes without options; excess bits of `vni` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let (p, v) = (self.protocol.0.to_be_bytes(), (self.vni << 8).to_be_bytes());
        let flags = u8::from(self.control) << 7 | u8::from(self.critical) << 6;
        [0, flags, p[0], p[1], v[0], v[1], v[2], v[3]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bytes() {
        let header = Header {
            header_len: HEADER_LEN,
            control: true,
            critical: false,
            protocol: EtherType::TRANSPARENT_ETHERNET,
            vni: 0x12_3456,
        };
        let bytes = [0, 0x80, 0x65, 0x58, 0x12, 0x34, 0x56, 0];
        assert_eq!(header.emit(), bytes);
        assert_eq!(Header::parse(&bytes), Ok(header));
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&bytes[..len]), Err(Error::Truncated));
        }
    }

    #[test]
    fn options_and_versions() {
        let mut bytes = [0; 260];
        bytes[..4].copy_from_slice(&[0x3f, 0x40, 0x08, 0x00]);
        let header = Header::parse(&bytes);
        assert_eq!(
            header.map(|h| (h.header_len, h.critical, h.protocol)),
            Ok((260, true, EtherType::IPV4))
        );
        assert_eq!(Header::parse(&bytes[..259]), Err(Error::Truncated));
        bytes[0] = 0x40;
        assert_eq!(Header::parse(&bytes), Err(Error::Kind));
    }
}
