//! ClassPortInfo (IBTA vol 1 section 13.4.8.1), as subnet administration answers it: it redirects nobody and sends no traps.

use super::put;
use crate::{Error, be16, be32};

/// What subnet administration can do (section 15.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ClassPortInfo {
    /// Version of datagrams' format.
    pub base_version: u8,
    /// Version of the class.
    pub class_version: u8,
    /// Capabilities.
    pub capabilities: u16,
    /// Further capabilities, 27 bits.
    pub capabilities2: u32,
    /// Longest time until an answer: 4.096 µs · 2^n, 5 bits.
    pub response_time: u8,
}

impl ClassPortInfo {
    /// Bytes of the attribute.
    pub const LEN: usize = 72;
    /// Capability: multicast groups of datagrams.
    pub const UD_MULTICAST: u16 = 1 << 9;
    /// Capability: MultiPathRecord.
    pub const MULTI_PATH: u16 = 1 << 10;
    /// Further capability: quality of service, Service-ID and QoS class of a PathRecord.
    pub const QOS: u32 = 1 << 1;

    /// Reads the attribute from the front of `bytes`; where it redirects to and sends traps is ignored.
    ///
    /// # Errors
    /// [`Error::Truncated`]: fewer bytes than the attribute has.
    pub fn parse(bytes: &[u8]) -> Result<ClassPortInfo, Error> {
        let b: &[u8; ClassPortInfo::LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        let further = be32(b, 4);
        Ok(ClassPortInfo {
            base_version: b[0],
            class_version: b[1],
            capabilities: be16(b, 2),
            capabilities2: further >> 5,
            response_time: b[7] & 0x1f,
        })
    }

    /// The attribute's bytes; excess bits of a value are cut off.
    pub fn emit(&self) -> [u8; ClassPortInfo::LEN] {
        let mut b = [0; ClassPortInfo::LEN];
        put(&mut b, 0, &[self.base_version, self.class_version]);
        put(&mut b, 2, &self.capabilities.to_be_bytes());
        let further = self.capabilities2 << 5 | u32::from(self.response_time & 0x1f);
        put(&mut b, 4, &further.to_be_bytes());
        b
    }
}
