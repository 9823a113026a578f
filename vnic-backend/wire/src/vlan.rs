//! VLAN tag (IEEE 802.1Q clause 9), from behind its TPID: TCI and the EtherType of the payload.

use crate::{Error, EtherType, be16};

/// Bytes of a tag. The TPID stands in the place of the EtherType before it; the payload's EtherType ends the tag.
pub const HEADER_LEN: usize = 4;

/// Tag control information (IEEE 802.1Q clause 9.6): priority, drop eligibility, VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tci(pub u16);

impl Tci {
    /// Puts a TCI together; excess bits of `pcp` and `vid` are cut off.
    #[inline]
    pub const fn new(pcp: u8, dei: bool, vid: u16) -> Tci {
        Tci((pcp as u16) << 13 | (dei as u16) << 12 | vid & 0x0fff)
    }

    /// Priority code point, 0..=7.
    #[inline]
    pub const fn pcp(self) -> u8 {
        (self.0 >> 13) as u8
    }

    /// Drop eligible indicator.
    #[inline]
    pub const fn dei(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// Service level of an RDMA packet with this tag, 0..=15: the priority code point, and 8 more if it is drop eligible.
    #[inline]
    pub const fn service_level(self) -> u8 {
        self.pcp() | (self.dei() as u8) << 3
    }

    /// VLAN identifier; 0: only a priority, 4095: reserved.
    #[inline]
    pub const fn vid(self) -> u16 {
        self.0 & 0x0fff
    }
}

/// A tag, from behind its TPID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Priority and VLAN.
    pub tci: Tci,
    /// EtherType of the payload.
    pub ethertype: EtherType,
}

impl Header {
    /// Reads the tag that begins behind a TPID.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            tci: Tci(be16(b, 0)),
            ethertype: EtherType(be16(b, 2)),
        })
    }

    /// The tag's bytes behind the TPID.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let (t, e) = (self.tci.0.to_be_bytes(), self.ethertype.0.to_be_bytes());
        [t[0], t[1], e[0], e[1]]
    }
}
