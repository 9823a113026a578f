//! VXLAN header (RFC 7348 section 5): an Ethernet frame follows.
//!
//! ```text
//!  0  flags: 0x08 (I), the rest 0    4  VNI, 24 bits
//!  1  reserved, 24 bits              7  reserved
//! ```

use crate::{Error, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

/// UDP destination port (IANA).
pub const UDP_PORT: u16 = 4789;

/// Flag: there is a VNI.
const VNI_VALID: u8 = 0x08;

/// A VXLAN header. Reserved bits are sent as 0 and ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// VXLAN network identifier, 24 bits.
    pub vni: u32,
}

impl Header {
    /// Reads the header from the front of a UDP payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if b[0] & VNI_VALID == 0 {
            return Err(Error::Kind);
        }
        Ok(Header { vni: be32(b, 4) >> 8 })
    }

    /// The header's bytes; excess bits of `vni` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let v = (self.vni << 8).to_be_bytes();
        [VNI_VALID, 0, 0, 0, v[0], v[1], v[2], v[3]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_bytes() {
        let bytes = [8, 0, 0, 0, 0x12, 0x34, 0x56, 0];
        assert_eq!(Header { vni: 0xff12_3456 }.emit(), bytes);
        assert_eq!(Header::parse(&bytes), Ok(Header { vni: 0x12_3456 }));
        for len in 0..HEADER_LEN {
            assert_eq!(Header::parse(&bytes[..len]), Err(Error::Truncated));
        }
        assert_eq!(Header::parse(&[0; 8]), Err(Error::Kind));
    }
}
