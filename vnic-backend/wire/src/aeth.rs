//! ACK extended transport header (IBTA vol 1 sections 9.3 and 9.7.5) and the tables of its syndrome.

use core::time::Duration;

use crate::{Error, be32};

/// Bytes of the header.
pub const HEADER_LEN: usize = 4;

/// The credit code that means "no end-to-end flow control" (section 9.7.7.2).
pub const CREDITS_INVALID: u8 = 31;

/// An acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// ACK or NAK, and its value.
    pub syndrome: Syndrome,
    /// Message sequence number: messages that the responder has completed, 24 bits.
    pub msn: u32,
}

/// What an acknowledgement says (section 9.7.5.2, table "AETH syndrome field").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Positive, with end-to-end credits.
    Ack {
        /// Credit code for [`credits`], 0..=31; 31: no flow control.
        credits: u8,
    },
    /// Receiver not ready: try again later.
    RnrNak {
        /// Timer code for [`rnr_timer`], 0..=31.
        timer: u8,
    },
    /// Negative.
    Nak(NakCode),
    /// A reserved syndrome: the byte as it is.
    Reserved(u8),
}

/// Why a request was refused (section 9.7.5.2, table "NAK codes").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// 0: PSN sequence error.
    SequenceError,
    /// 1: invalid request.
    InvalidRequest,
    /// 2: remote access error.
    RemoteAccess,
    /// 3: remote operational error.
    RemoteOperational,
    /// 4: invalid RD request.
    InvalidRd,
    /// Reserved code, 5..=31.
    Reserved(u8),
}

impl NakCode {
    /// The code in the low five bits of `code`.
    #[inline]
    pub const fn from_code(code: u8) -> NakCode {
        match code & 0x1f {
            0 => NakCode::SequenceError,
            1 => NakCode::InvalidRequest,
            2 => NakCode::RemoteAccess,
            3 => NakCode::RemoteOperational,
            4 => NakCode::InvalidRd,
            code => NakCode::Reserved(code),
        }
    }

    /// The number, 0..=31.
    #[inline]
    pub const fn code(self) -> u8 {
        match self {
            NakCode::SequenceError => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRd => 4,
            NakCode::Reserved(code) => code & 0x1f,
        }
    }
}

impl Syndrome {
    /// What a syndrome byte says.
    #[inline]
    pub const fn from_byte(byte: u8) -> Syndrome {
        let value = byte & 0x1f;
        match byte >> 5 {
            0b000 => Syndrome::Ack { credits: value },
            0b001 => Syndrome::RnrNak { timer: value },
            0b011 => Syndrome::Nak(NakCode::from_code(value)),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The byte; excess bits of a value are cut off.
    #[inline]
    pub const fn byte(self) -> u8 {
        match self {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::RnrNak { timer } => 0b001 << 5 | timer & 0x1f,
            Syndrome::Nak(code) => 0b011 << 5 | code.code(),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

impl Header {
    /// Reads the header from the front of `bytes`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let b: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
        Ok(Header {
            syndrome: Syndrome::from_byte(b[0]),
            msn: be32(b, 0) & 0xff_ffff,
        })
    }

    /// The header's bytes; excess bits of `msn` are cut off.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        (u32::from(self.syndrome.byte()) << 24 | self.msn & 0xff_ffff).to_be_bytes()
    }
}

/// Credits behind each code (section 9.7.7.2, table "end-to-end flow control credit encoding").
const CREDITS: [u32; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// Receive WQEs that a credit code stands for; none for 31 (no flow control) and above.
#[inline]
pub fn credits(code: u8) -> Option<u32> {
    CREDITS.get(usize::from(code)).copied()
}

/// The code that grants the most without granting more than `available` receive WQEs, 0..=30.
#[inline]
pub fn credit_code(available: u32) -> u8 {
    // There are 31 entries.
    (CREDITS.partition_point(|c| *c <= available) - 1) as u8
}

/// Waiting time behind each RNR timer code, in microseconds (section 9.7.5.2, table "RNR NAK timer field").
const RNR_TIMER_US: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840, 5_120,
    7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680,
    491_520,
];

/// How long a requester waits at least before it repeats a request that got an RNR NAK with this timer code
/// (low five bits).
#[inline]
pub const fn rnr_timer(code: u8) -> Duration {
    Duration::from_micros(RNR_TIMER_US[(code & 0x1f) as usize] as u64)
}
