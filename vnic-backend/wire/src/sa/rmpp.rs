//! Header of the reliable multi-packet transaction protocol (IBTA vol 1 section 13.6.2).

use super::put;
use crate::{be32, mad};

/// Type of a packet of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RmppType(pub u8);

impl RmppType {
    /// Data.
    pub const DATA: RmppType = RmppType(1);
    /// Acknowledgement of data.
    pub const ACK: RmppType = RmppType(2);
    /// Orderly end of a transfer.
    pub const STOP: RmppType = RmppType(3);
    /// End of a transfer because of an error.
    pub const ABORT: RmppType = RmppType(4);
}

/// The header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rmpp {
    /// Version of the protocol: 1.
    pub version: u8,
    /// Type.
    pub kind: RmppType,
    /// Response time, 5 bits.
    pub response_time: u8,
    /// Flags, 3 bits; without [`Rmpp::ACTIVE`] the datagram is alone.
    pub flags: u8,
    /// Status.
    pub status: u8,
    /// Number of the segment, from 1 on.
    pub segment: u32,
    /// Bytes of this segment, if it is the last one, or of all: those behind this header count, with 20 of SM_Key, AttributeOffset and
    /// ComponentMask for each segment.
    pub payload_len: u32,
}

impl Rmpp {
    /// Flag: the protocol is used.
    pub const ACTIVE: u8 = 1;
    /// Flag: the first segment.
    pub const FIRST: u8 = 2;
    /// Flag: the last segment.
    pub const LAST: u8 = 4;

    /// The header of a datagram without the protocol.
    pub const NONE: Rmpp = Rmpp {
        version: 0,
        kind: RmppType(0),
        response_time: 0,
        flags: 0,
        status: 0,
        segment: 0,
        payload_len: 0,
    };

    /// The header of a transfer's only segment, of so many bytes behind this header.
    pub const fn only_segment(payload_len: u32) -> Rmpp {
        Rmpp {
            version: 1,
            kind: RmppType::DATA,
            response_time: 0x1f,
            flags: Rmpp::ACTIVE | Rmpp::FIRST | Rmpp::LAST,
            status: 0,
            segment: 1,
            payload_len,
        }
    }

    /// Whether the datagram is all of its transfer.
    pub fn is_alone(&self) -> bool {
        let ends = Rmpp::FIRST | Rmpp::LAST;
        self.flags & Rmpp::ACTIVE == 0 || self.kind == RmppType::DATA && self.flags & ends == ends
    }

    pub(super) fn read(b: &[u8; mad::LEN]) -> Rmpp {
        Rmpp {
            version: b[24],
            kind: RmppType(b[25]),
            response_time: b[26] >> 3,
            flags: b[26] & 7,
            status: b[27],
            segment: be32(b, 28),
            payload_len: be32(b, 32),
        }
    }

    /// Writes the header; excess bits of a value are cut off.
    pub(super) fn write(&self, b: &mut [u8; mad::LEN]) {
        let times = self.response_time << 3 | self.flags & 7;
        put(b, 24, &[self.version, self.kind.0, times, self.status]);
        put(b, 28, &self.segment.to_be_bytes());
        put(b, 32, &self.payload_len.to_be_bytes());
    }
}
