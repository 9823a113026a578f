//! In-band network telemetry as HPCC carries it: a record of each switch on the way about the queue that the packet left by
//! (Li et al., HPCC, SIGCOMM 2019, section 4.1 and figure 7). The paper has it behind the UDP header and before the BTH:
//!
//! ```text
//!   nHop 4 │ pathID 12 │ then for each hop:  B 4 │ TS 24 │ txBytes 20 │ qLen 16
//! ```
//!
//! There only switches and adapters that know it can read the packet at all. Between adapters of this kind it is the end of the
//! payload instead, a trailer of one length, so that who does not know it (a capture, a switch) sees an ordinary packet, and no
//! switch changes its length. No standard has it; adapters keep theirs to themselves ([`Sign`]).
//!
//! ```text
//!   payload │ 5 hops, 8 bytes each │ endpoint 32 │ nHop 4 │ pathID 12 │ 0x4901 16 │ pad │ ICRC
//! ```
//!
//! A switch that writes into it changes the ICRC by what it wrote ([`roce::stamp`](crate::roce::stamp)).
//!
//! For a guest that runs RoCE in software its adapter sends the trailer behind the packet, where Ethernet has its padding, so that the
//! packet, its lengths and its ICRC stay the guest's. A receiver that does not know it stops reading where the IP packet ends.
//!
//! ```text
//!   Ethernet │ IP │ UDP │ BTH │ payload │ pad │ ICRC │ trailer
//! ```

use crate::{Error, be16, be32, be64};

/// Bytes of the header without hops.
pub const HEADER_LEN: usize = 2;

/// Bytes of a hop.
pub const HOP_LEN: usize = 8;

/// Most hops of a packet.
pub const HOPS_MAX: usize = 5;

/// Bytes of the header with all hops: the paper's 42.
pub const LEN_MAX: usize = HEADER_LEN + HOPS_MAX * HOP_LEN;

/// Bytes of the trailer. A multiple of four: the pad is that of the payload.
pub const TRAILER_LEN: usize = HOPS_MAX * HOP_LEN + 8;

/// Last bytes of the trailer.
const TRAILER_END: u16 = 0x4901;

/// Bytes that one count of [`Hop::sent`] stands for.
pub const SENT_UNIT: u64 = 128;

/// Bytes that one count of [`Hop::queue`] stands for.
pub const QUEUE_UNIT: u64 = 80;

/// ns after which [`Hop::timestamp`] is the same again.
pub const TIMESTAMP_WRAP: u64 = 1 << 24;

/// Bytes after which [`Hop::sent`] is the same again.
pub const SENT_WRAP: u64 = SENT_UNIT << 20;

/// bit/s behind each code of [`Hop::speed`]. The paper names no codes; 0 and those from 14 on are not used.
const SPEEDS: [u64; 14] = [
    0,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    20_000_000_000,
    25_000_000_000,
    40_000_000_000,
    50_000_000_000,
    56_000_000_000,
    100_000_000_000,
    200_000_000_000,
    400_000_000_000,
    800_000_000_000,
];

/// bit/s that a code of [`Hop::speed`] stands for; none for a code that is not used.
#[inline]
pub fn rate(code: u8) -> Option<u64> {
    SPEEDS.get(usize::from(code)).copied().filter(|r| *r != 0)
}

/// The code of the greatest speed that is not above `rate` in bit/s; 0 below 1 Gbit/s.
#[inline]
pub fn speed_code(rate: u64) -> u8 {
    // There are 14 entries, and the first is not above anything.
    (SPEEDS.partition_point(|s| *s <= rate) - 1) as u8
}

/// What the sender of a packet says about telemetry: bits 1 and 2 of the BTH's resv7. No standard has them: who does not know them
/// ignores them.
///
/// A requester that wants telemetry says so, and its packets have no trailer until an answer had one. A responder answers such
/// requests with a trailer, and others without. Whose requests have the trailer behind the packet gets it there: it is the adapter of a
/// guest that runs RoCE in software, and its packets' headers, which the guest makes, say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[repr(u8)]
pub enum Sign {
    /// Nothing.
    #[default]
    None = 0,
    /// It wants telemetry, and can read a trailer.
    Known = 1,
    /// The same, and this packet has a trailer behind it. Its header says [`Sign::Known`], or the guest's nothing.
    Behind = 2,
    /// The same, and this packet has a trailer.
    Carried = 3,
}

impl Sign {
    /// The sign in the low two bits.
    #[inline]
    pub const fn of(bits: u8) -> Sign {
        match bits & 3 {
            1 => Sign::Known,
            3 => Sign::Carried,
            _ => Sign::None,
        }
    }

    /// The two bits of a header.
    #[inline]
    pub const fn bits(self) -> u8 {
        match self {
            Sign::Behind => Sign::Known as u8,
            sign => sign as u8,
        }
    }

    /// Bytes of the trailer in a packet.
    #[inline]
    pub const fn trailer_len(self) -> usize {
        match self {
            Sign::Carried => TRAILER_LEN,
            Sign::None | Sign::Known | Sign::Behind => 0,
        }
    }

    /// Bytes of the trailer behind a packet.
    #[inline]
    pub const fn behind_len(self) -> usize {
        match self {
            Sign::Behind => TRAILER_LEN,
            Sign::None | Sign::Known | Sign::Carried => 0,
        }
    }
}

/// Parts a payload as it is in the frame into payload and trailer. A packet that has the sign and no trailer is a stranger's: its
/// reserved bits say nothing, and all is payload.
#[inline]
pub fn split<'a>(sign: &mut Sign, payload: &'a [u8]) -> (&'a [u8], Option<&'a [u8; TRAILER_LEN]>) {
    match sign {
        Sign::Carried => split_carried(sign, payload),
        Sign::None | Sign::Known | Sign::Behind => (payload, None),
    }
}

/// The trailer behind a packet, if the bytes that its frame has there are one.
#[cold]
pub fn behind(bytes: &[u8]) -> Option<&[u8; TRAILER_LEN]> {
    let trailer: &[u8; TRAILER_LEN] = bytes.try_into().ok()?;
    is_trailer(trailer).then_some(trailer)
}

fn is_trailer(bytes: &[u8; TRAILER_LEN]) -> bool {
    bytes.ends_with(&TRAILER_END.to_be_bytes())
}

#[cold]
fn split_carried<'a>(sign: &mut Sign, payload: &'a [u8]) -> (&'a [u8], Option<&'a [u8; TRAILER_LEN]>) {
    let parts = payload.split_last_chunk();
    match parts.filter(|(_, trailer)| is_trailer(trailer)) {
        Some((payload, trailer)) => (payload, Some(trailer)),
        None => {
            *sign = Sign::None;
            (payload, None)
        }
    }
}

/// The record of one switch, written when it sent the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hop {
    /// Time of sending, in ns; 24 bits, wraps.
    pub timestamp: u32,
    /// Bytes that the port had sent, in units of 128; 20 bits, wraps.
    pub sent: u32,
    /// Bytes that waited at the port, in units of 80; 16 bits.
    pub queue: u16,
    /// Speed of the link, a code of 4 bits: see [`rate`] and [`speed_code`].
    pub speed: u8,
}

/// Bytes at one rate, of those at another; the upper bits may be lost.
fn scaled(bytes: u64, to: u64, from: u64) -> u64 {
    (u128::from(bytes) * u128::from(to) / u128::from(from.max(1))) as u64
}

impl Hop {
    /// The record of a port: the time in ns, the bytes that it has sent ever, the bytes that wait, and bit/s of its link. Of a
    /// speed without a code bytes are those of the next lower one (1 Gbit/s at least) in the same time: the parts of the link that
    /// they are stay the same.
    #[inline]
    pub fn new(now: u64, sent: u64, queue: u64, rate: u64) -> Hop {
        let speed = speed_code(rate).max(1);
        let coded = SPEEDS[usize::from(speed)];
        let (sent, queue) = match rate {
            _ if rate == coded || rate == 0 => (sent, queue),
            _ => (scaled(sent, coded, rate), scaled(queue, coded, rate)),
        };
        Hop {
            timestamp: (now % TIMESTAMP_WRAP) as u32,
            sent: (sent % SENT_WRAP / SENT_UNIT) as u32,
            queue: u16::try_from(queue / QUEUE_UNIT).unwrap_or(u16::MAX),
            speed: if rate == 0 { 0 } else { speed },
        }
    }

    /// bit/s of the link, if its code is one that is used.
    #[inline]
    pub fn rate(&self) -> Option<u64> {
        rate(self.speed)
    }

    /// Bytes that waited.
    #[inline]
    pub fn queued(&self) -> u64 {
        u64::from(self.queue) * QUEUE_UNIT
    }

    /// ns from `earlier` to this, at most [`TIMESTAMP_WRAP`].
    #[inline]
    pub fn time_since(&self, earlier: &Hop) -> u64 {
        u64::from(self.timestamp.wrapping_sub(earlier.timestamp)) % TIMESTAMP_WRAP
    }

    /// Bytes that were sent from `earlier` to this, at most [`SENT_WRAP`].
    #[inline]
    pub fn sent_since(&self, earlier: &Hop) -> u64 {
        u64::from(self.sent.wrapping_sub(earlier.sent) & 0xf_ffff) * SENT_UNIT
    }

    fn parse(bits: u64) -> Hop {
        Hop {
            timestamp: (bits >> 36) as u32 & 0xff_ffff,
            sent: (bits >> 16) as u32 & 0xf_ffff,
            queue: bits as u16,
            speed: (bits >> 60) as u8,
        }
    }

    fn bits(&self) -> u64 {
        u64::from(self.speed & 0xf) << 60
            | u64::from(self.timestamp & 0xff_ffff) << 36
            | u64::from(self.sent & 0xf_ffff) << 16
            | u64::from(self.queue)
    }
}

/// The telemetry that a packet gathers on its way; an acknowledge carries it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Telemetry {
    /// How many of `hops` count.
    pub count: u8,
    /// Numbers of the switches, XORed; 12 bits. Another value means another path.
    pub path: u16,
    /// Records of the switches, in the order of the way.
    pub hops: [Hop; HOPS_MAX],
    /// Time in ns that the packet waited in its receiver, in Swift's acknowledges (Kumar et al., SIGCOMM 2020, section 3.2).
    /// It is not part of HPCC's header, but of the trailer.
    pub endpoint: u32,
}

impl Telemetry {
    /// No telemetry yet.
    pub const EMPTY: Telemetry = Telemetry {
        count: 0,
        path: 0,
        hops: [Hop {
            timestamp: 0,
            sent: 0,
            queue: 0,
            speed: 0,
        }; HOPS_MAX],
        endpoint: 0,
    };

    /// Adds the record of a switch. With no room left, only the path shows the switch.
    pub fn push(&mut self, switch: u16, hop: Hop) {
        self.path = (self.path ^ switch) & 0xfff;
        if let Some(place) = self.hops.get_mut(usize::from(self.count)) {
            *place = hop;
            self.count += 1;
        }
    }

    /// The records.
    pub fn hops(&self) -> &[Hop] {
        &self.hops[..usize::from(self.count).min(HOPS_MAX)]
    }

    /// Reads the header from the front of `bytes`, and says how long it is. A header of more than [`HOPS_MAX`] hops is
    /// refused: [`Error::Length`].
    pub fn parse(bytes: &[u8]) -> Result<(Telemetry, usize), Error> {
        let (head, mut rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
        let head = be16(head, 0);
        let mut telemetry = Telemetry {
            count: (head >> 12) as u8,
            path: head & 0xfff,
            ..Telemetry::EMPTY
        };
        let count = usize::from(telemetry.count);
        let places = telemetry.hops.get_mut(..count).ok_or(Error::Length)?;
        for place in places {
            let (hop, after) = rest.split_first_chunk::<HOP_LEN>().ok_or(Error::Truncated)?;
            *place = Hop::parse(be64(hop, 0));
            rest = after;
        }
        Ok((telemetry, HEADER_LEN + count * HOP_LEN))
    }

    /// The header's bytes, and how many of them count; excess bits of fields are cut off.
    pub fn emit(&self) -> ([u8; LEN_MAX], usize) {
        let mut b = [0; LEN_MAX];
        let hops = self.hops();
        b[..HEADER_LEN].copy_from_slice(&((hops.len() as u16) << 12 | self.path & 0xfff).to_be_bytes());
        for (place, hop) in b[HEADER_LEN..].chunks_exact_mut(HOP_LEN).zip(hops) {
            place.copy_from_slice(&hop.bits().to_be_bytes());
        }
        (b, HEADER_LEN + hops.len() * HOP_LEN)
    }

    /// Reads a trailer. Of more than [`HOPS_MAX`] hops the first ones count.
    pub fn parse_trailer(bytes: &[u8; TRAILER_LEN]) -> Telemetry {
        let (hops, rest) = bytes.as_chunks::<HOP_LEN>();
        debug_assert!(rest.is_empty(), "hops, and as much as one more");
        let mut telemetry = Telemetry::EMPTY;
        for (place, hop) in telemetry.hops.iter_mut().zip(hops) {
            *place = Hop::parse(u64::from_be_bytes(*hop));
        }
        let head = be16(bytes, HOPS_MAX * HOP_LEN + 4);
        telemetry.endpoint = be32(bytes, HOPS_MAX * HOP_LEN);
        telemetry.count = ((head >> 12) as u8).min(HOPS_MAX as u8);
        telemetry.path = head & 0xfff;
        telemetry
    }

    /// Reads bytes behind a packet, if they are a trailer.
    pub fn read_behind(bytes: &[u8; TRAILER_LEN]) -> Option<Telemetry> {
        behind(bytes).map(Telemetry::parse_trailer)
    }

    /// The trailer's bytes.
    pub fn emit_trailer(&self) -> [u8; TRAILER_LEN] {
        let mut b = [0; TRAILER_LEN];
        let hops = self.hops();
        for (place, hop) in b.chunks_exact_mut(HOP_LEN).zip(hops) {
            place.copy_from_slice(&hop.bits().to_be_bytes());
        }
        let end = &mut b[HOPS_MAX * HOP_LEN..];
        end[..4].copy_from_slice(&self.endpoint.to_be_bytes());
        end[4..6].copy_from_slice(&((hops.len() as u16) << 12 | self.path & 0xfff).to_be_bytes());
        end[6..].copy_from_slice(&TRAILER_END.to_be_bytes());
        b
    }
}
