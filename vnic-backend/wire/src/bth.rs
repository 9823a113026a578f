//! Base transport header (IBTA vol 1 section 9.2; FECN and BECN as in annex A17 and vol 1 release 1.4).

use crate::int::Sign;
use crate::opcode::Opcode;
use crate::pkey::DEFAULT_PKEY;
use crate::psn::Psn;
use crate::{Error, be16, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 12;

/// Offset of the byte with FECN and BECN (named resv8a before they existed), which the ICRC leaves out.
pub const CONGESTION_OFFSET: usize = 4;

/// The destination of packets to a multicast group (IBTA vol 1 section 9.2).
pub const MULTICAST_QP: u32 = 0xff_ffff;

/// A base transport header. Reserved bits are sent as 0 and ignored, but five of the seven behind AckReq, which are `selective`,
/// `telemetry`, `spread` and `scattered`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Transport and operation; says which headers follow.
    pub opcode: Opcode,
    /// Solicited event.
    pub solicited: bool,
    /// MigReq: the path migration state is "migrated".
    pub migrated: bool,
    /// Bytes that fill the payload up to a multiple of 4, 0..=3.
    pub pad: u8,
    /// Transport header version, 4 bits; 0.
    pub version: u8,
    /// Partition key.
    pub pkey: u16,
    /// Forward explicit congestion notification.
    pub fecn: bool,
    /// Backward explicit congestion notification.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub destination_qp: u32,
    /// The responder shall acknowledge.
    pub ack_request: bool,
    /// The sender knows selective repeat ([`sack`](crate::sack)). No standard has this bit (0 of resv7): who does not know it
    /// ignores it.
    pub selective: bool,
    /// In a request: it is one of several that take several ways, so that each packet of a WRITE has an RETH, which says where its
    /// own payload goes. In an answer: the responder takes such requests. No standard has this bit (3 of resv7) either, and
    /// nobody sends such requests who has not had such an answer.
    pub spread: bool,
    /// In a request of a READ: its responses may take several ways. In a response: it is one of those that do, so that requests of
    /// READs may say what has come ([`sack`](crate::sack)). No standard has this bit (4 of resv7) either.
    pub scattered: bool,
    /// What the sender says about telemetry (1 and 2 of resv7).
    pub telemetry: Sign,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Header {
    /// A header with this opcode, destination and sequence number and the values that all ordinary packets share:
    /// default partition, version 0, path migrated, no flag, no pad.
    #[inline]
    pub const fn new(opcode: Opcode, destination_qp: u32, psn: Psn) -> Header {
        Header {
            opcode,
            solicited: false,
            migrated: true,
            pad: 0,
            version: 0,
            pkey: DEFAULT_PKEY,
            fecn: false,
            becn: false,
            destination_qp,
            ack_request: false,
            selective: false,
            spread: false,
            scattered: false,
            telemetry: Sign::None,
            psn,
        }
    }

    /// Reads the header from the front of a transport packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            opcode: Opcode(b[0]),
            solicited: b[1] & 0x80 != 0,
            migrated: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            version: b[1] & 0x0f,
            pkey: be16(b, 2),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            destination_qp: be32(b, 4) & 0xff_ffff,
            ack_request: b[8] & 0x80 != 0,
            selective: b[8] & 1 != 0,
            spread: b[8] & 8 != 0,
            scattered: b[8] & 0x10 != 0,
            telemetry: Sign::of(b[8] >> 1),
            psn: Psn::new(be32(b, 8)),
        })
    }

    /// The header's bytes; excess bits of `pad`, `version` and `destination_qp` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let first = u32::from(self.opcode.0) << 24
            | u32::from(self.solicited) << 23
            | u32::from(self.migrated) << 22
            | u32::from(self.pad & 3) << 20
            | u32::from(self.version & 0x0f) << 16
            | u32::from(self.pkey);
        let second =
            u32::from(self.fecn) << 31 | u32::from(self.becn) << 30 | self.destination_qp & 0xff_ffff;
        let third = u32::from(self.ack_request) << 31
            | u32::from(self.scattered) << 28
            | u32::from(self.spread) << 27
            | u32::from(self.telemetry.bits()) << 25
            | u32::from(self.selective) << 24
            | self.psn.value();
        let (f, s, t) = (first.to_be_bytes(), second.to_be_bytes(), third.to_be_bytes());
        [
            f[0], f[1], f[2], f[3], s[0], s[1], s[2], s[3], t[0], t[1], t[2], t[3],
        ]
    }
}
