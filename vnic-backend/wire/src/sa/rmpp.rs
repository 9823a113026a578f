//! Header of the reliable multi-packet transaction protocol, RMPP (IBTA vol 1 section 13.6.2).

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
    /// Longest time until the sender of this packet answers another: 4.096 µs · 2^n, 5 bits; [`Rmpp::NO_TIME`]: it does not say.
    pub response_time: u8,
    /// Flags, 3 bits; without [`Rmpp::ACTIVE`] the datagram is alone.
    pub flags: u8,
    /// Status.
    pub status: u8,
    /// DATA: number of the segment, from 1 on. ACK: that of the last one that came with all before it.
    pub segment: u32,
    /// DATA: bytes behind this header, of all segments in the first one, of this one in the last, with the 20 of SM_Key,
    /// AttributeOffset and ComponentMask in each segment; in others 0. ACK: NewWindowLast, the last segment that may be sent.
    pub payload_len: u32,
}

/// Why a transfer ends early (section 13.6.2.1, table "RMPPStatus").
pub mod rmpp_status {
    /// ResX: the receiver has no room.
    pub const NO_ROOM: u8 = 1;
    /// T2L: the transfer takes too long.
    pub const TOO_LONG: u8 = 118;
    /// BadT: a type of packet that there is not.
    pub const BAD_TYPE: u8 = 121;
    /// W2S: a window that ends before what is acknowledged.
    pub const WINDOW_TOO_SMALL: u8 = 122;
    /// S2B: an acknowledgement of what was not to be sent yet.
    pub const SEGMENT_TOO_BIG: u8 = 123;
    /// A status that the type of packet does not have.
    pub const ILLEGAL_STATUS: u8 = 124;
    /// UnV: another version of the protocol.
    pub const BAD_VERSION: u8 = 125;
    /// TMR: nothing was acknowledged, however often it was sent.
    pub const TOO_MANY_RETRIES: u8 = 126;
}

impl Rmpp {
    /// Version of the protocol.
    pub const VERSION: u8 = 1;
    /// Response time of whoever says none.
    pub const NO_TIME: u8 = 0x1f;
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

    /// The header of the segment `segment` of `segments`; PayloadLength is 0.
    pub const fn data(segment: u32, segments: u32) -> Rmpp {
        let first = if segment == 1 { Rmpp::FIRST } else { 0 };
        let last = if segment == segments { Rmpp::LAST } else { 0 };
        Rmpp {
            flags: Rmpp::ACTIVE | first | last,
            segment,
            ..Rmpp::control(RmppType::DATA, 0)
        }
    }

    /// The header of an acknowledgement of all segments up to `segment`, by a receiver that takes those up to `window`.
    pub const fn ack(segment: u32, window: u32) -> Rmpp {
        Rmpp {
            segment,
            payload_len: window,
            ..Rmpp::control(RmppType::ACK, 0)
        }
    }

    /// The header of a packet with a status and without a segment.
    pub const fn control(kind: RmppType, status: u8) -> Rmpp {
        Rmpp {
            version: Rmpp::VERSION,
            kind,
            response_time: Rmpp::NO_TIME,
            flags: Rmpp::ACTIVE,
            status,
            segment: 0,
            payload_len: 0,
        }
    }

    /// Whether the protocol is used.
    pub const fn is_active(&self) -> bool {
        self.flags & Rmpp::ACTIVE != 0
    }

    /// Whether the datagram is all of its transfer.
    pub fn is_alone(&self) -> bool {
        let ends = Rmpp::FIRST | Rmpp::LAST;
        !self.is_active() || self.kind == RmppType::DATA && self.flags & ends == ends
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
