//! The 16 reserved bytes behind the BTH of a congestion notification packet (IBTA vol 1 annex A17.9).

use crate::{Error, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 16;

/// The reserved bytes. The standard sends 0 and ignores them. DCQCN+ (Gao et al., ICNP 2018) carries there how often
/// its flows are notified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Header {
    /// Time between two notifications of one flow, in us; 0: not given. The first four bytes.
    pub period: u32,
}

impl Header {
    /// Checks that the bytes are there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let period = be32(b, 0);
        Ok(Header { period })
    }

    /// The header's bytes.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut b = [0; HEADER_LEN];
        b[..4].copy_from_slice(&self.period.to_be_bytes());
        b
    }
}
