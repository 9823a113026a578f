//! Link aggregation control: LACPDU (IEEE 802.1AX-2014 clause 6.4.2) and marker PDU (clause 6.5.3), the two slow protocols
//! (IEEE 802.3 annex 57A) that ends of a link aggregation group speak.
//!
//! Offsets from the start of the frame; all numbers are big-endian, all reserved bytes are sent as 0 and ignored:
//!
//! ```text
//!   0  destination 01-80-C2-00-00-02      12  EtherType 0x8809
//!   6  source: the port's own address     14  subtype: 1 LACP, 2 marker     15  version: 1
//!
//!  LACPDU                                                  marker PDU
//!  16  1: actor,   17  length 20                           16  1: marker, 2: response,  17  length 16
//!      18  system priority    28  port priority            18  requester's port
//!      20  system             30  port                     20  requester's system
//!      26  key                32  state, 33 reserved       26  requester's transaction
//!  36  2: partner, 37  length 20, the same fields          30  pad
//!  56  3: collector, 57  length 16                         32  0: terminator, 33  length 0
//!      58  maximum delay, in tens of µs; 60 reserved       34  reserved
//!  72  0: terminator, 73  length 0
//!  74  reserved                                           124  end
//! ```
//!
//! A later version has more fields behind those of version 1; the parser stops where version 1 ends (clause 6.4.2.4: a
//! receiver takes every version that it does not know for its own).

use core::fmt;

use crate::ethernet::HEADER_LEN;
use crate::{Error, EtherType, MacAddr, be16, be32};

/// Destination of both: the slow protocols' address, which no bridge forwards.
pub const DESTINATION: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x02]);
/// Bytes of a frame without its FCS.
pub const FRAME_LEN: usize = 124;
/// The version that is sent.
pub const VERSION: u8 = 1;

/// Subtypes of slow protocols (IEEE 802.3 table 57A-3).
mod subtype {
    pub(super) const LACP: u8 = 1;
    pub(super) const MARKER: u8 = 2;
}

/// Bytes of an LACPDU's frame up to its terminator.
const LACPDU_LEN: usize = 72;
/// Bytes of a marker PDU's frame up to its terminator.
const MARKER_LEN: usize = 32;

/// State of a participant (clause 6.4.2.3, Actor_State), a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct State(pub u8);

impl State {
    /// LACP_Activity: the participant speaks without being spoken to.
    pub const ACTIVITY: State = State(0x01);
    /// LACP_Timeout: the participant wants to hear often (short timeout).
    pub const TIMEOUT: State = State(0x02);
    /// Aggregation: the link may be in a group with others.
    pub const AGGREGATION: State = State(0x04);
    /// Synchronization: the link is in the right group.
    pub const SYNCHRONIZATION: State = State(0x08);
    /// Collecting: received frames are taken.
    pub const COLLECTING: State = State(0x10);
    /// Distributing: frames are sent.
    pub const DISTRIBUTING: State = State(0x20);
    /// Defaulted: the participant's view of its partner is configured, not heard.
    pub const DEFAULTED: State = State(0x40);
    /// Expired: the participant has not heard its partner for too long.
    pub const EXPIRED: State = State(0x80);

    /// Names in the order of the bits, for people.
    const NAMES: [&str; 8] = [
        "activity",
        "timeout",
        "aggregation",
        "synchronization",
        "collecting",
        "distributing",
        "defaulted",
        "expired",
    ];

    /// Whether all of these bits are set.
    #[inline]
    pub const fn has(self, of: State) -> bool {
        self.0 & of.0 == of.0
    }

    /// The state with these bits set, or cleared.
    #[inline]
    pub const fn with(self, of: State, on: bool) -> State {
        State(if on { self.0 | of.0 } else { self.0 & !of.0 })
    }

    /// The state with only these bits.
    #[inline]
    pub const fn only(self, of: State) -> State {
        State(self.0 & of.0)
    }
}

impl core::ops::BitOr for State {
    type Output = State;

    fn bitor(self, other: State) -> State {
        State(self.0 | other.0)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut set = (0..8).filter(|bit| self.0 & 1 << bit != 0);
        let Some(first) = set.next() else {
            return f.write_str("none");
        };
        f.write_str(State::NAMES[first])?;
        set.try_for_each(|bit| write!(f, " {}", State::NAMES[bit]))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who aggregates: a system identifier (clause 6.3.2). The smaller one has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct System {
    /// Priority; smaller is better.
    pub priority: u16,
    /// Address; all zeros: no system.
    pub address: MacAddr,
}

/// A port of a system (clause 6.3.4). The smaller one has precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Port {
    /// Priority; smaller is better.
    pub priority: u16,
    /// Number, 1 or more; 0: none.
    pub number: u16,
}

/// One end of a link, as the LACPDU describes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Participant {
    /// System of the participant.
    pub system: System,
    /// Key: ports of one system with the same key may be aggregated (clause 6.3.5).
    pub key: u16,
    /// Port of the participant.
    pub port: Port,
    /// State of the participant.
    pub state: State,
}

impl Participant {
    /// Reads a participant from the front of its fields.
    fn parse(b: &[u8; 15]) -> Participant {
        Participant {
            system: System {
                priority: be16(b, 0),
                address: MacAddr([b[2], b[3], b[4], b[5], b[6], b[7]]),
            },
            key: be16(b, 8),
            port: Port {
                priority: be16(b, 10),
                number: be16(b, 12),
            },
            state: State(b[14]),
        }
    }

    fn emit(&self) -> [u8; 15] {
        let mut b = [0; 15];
        b[..2].copy_from_slice(&self.system.priority.to_be_bytes());
        b[2..8].copy_from_slice(&self.system.address.0);
        b[8..10].copy_from_slice(&self.key.to_be_bytes());
        b[10..12].copy_from_slice(&self.port.priority.to_be_bytes());
        b[12..14].copy_from_slice(&self.port.number.to_be_bytes());
        b[14] = self.state.0;
        b
    }
}

/// A system's state on a link, and what it has understood of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lacpdu {
    /// The sender.
    pub actor: Participant,
    /// The partner, as the sender sees it.
    pub partner: Participant,
    /// How long the sender's collector may keep a frame, in tens of microseconds.
    pub max_delay: u16,
}

/// A marker behind the frames of a conversation on a link. Its response says that all frames before it have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Marker {
    /// Whether it is a response.
    pub response: bool,
    /// Port that asked.
    pub port: u16,
    /// System that asked.
    pub system: MacAddr,
    /// Number that the asker gave the marker.
    pub transaction: u32,
}

impl Marker {
    /// The response to the marker (clause 6.5.4.2); none to a response.
    pub const fn answer(self) -> Option<Marker> {
        if self.response {
            return None;
        }
        Some(Marker {
            response: true,
            ..self
        })
    }
}

/// Content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Link aggregation control.
    Lacpdu(Lacpdu),
    /// Marker or its response.
    Marker(Marker),
}

impl Frame {
    /// Reads a whole Ethernet frame.
    pub fn parse(bytes: &[u8]) -> Result<Frame, Error> {
        let front: &[u8; 16] = bytes.first_chunk().ok_or(Error::Truncated)?;
        if EtherType(be16(front, 12)) != EtherType::SLOW_PROTOCOLS || front[15] == 0 {
            return Err(Error::Kind);
        }
        match front[14] {
            subtype::LACP => Ok(Frame::Lacpdu(lacpdu(bytes)?)),
            subtype::MARKER => Ok(Frame::Marker(marker(bytes)?)),
            _ => Err(Error::Kind),
        }
    }

    /// The frame's bytes, from this address.
    pub fn emit(&self, source: MacAddr) -> [u8; FRAME_LEN] {
        let mut b = [0; FRAME_LEN];
        b[..6].copy_from_slice(&DESTINATION.0);
        b[6..12].copy_from_slice(&source.0);
        b[12..HEADER_LEN].copy_from_slice(&EtherType::SLOW_PROTOCOLS.0.to_be_bytes());
        b[15] = VERSION;
        match self {
            Frame::Lacpdu(pdu) => {
                b[14] = subtype::LACP;
                b[16..18].copy_from_slice(&[1, 20]);
                b[18..33].copy_from_slice(&pdu.actor.emit());
                b[36..38].copy_from_slice(&[2, 20]);
                b[38..53].copy_from_slice(&pdu.partner.emit());
                b[56..58].copy_from_slice(&[3, 16]);
                b[58..60].copy_from_slice(&pdu.max_delay.to_be_bytes());
            }
            Frame::Marker(marker) => {
                b[14] = subtype::MARKER;
                b[16..18].copy_from_slice(&[if marker.response { 2 } else { 1 }, 16]);
                b[18..20].copy_from_slice(&marker.port.to_be_bytes());
                b[20..26].copy_from_slice(&marker.system.0);
                b[26..30].copy_from_slice(&marker.transaction.to_be_bytes());
            }
        }
        b
    }
}

/// Checks type and length of a part.
fn part(b: &[u8], kind: u8, len: u8) -> Result<(), Error> {
    match b {
        [k, l] if *k == kind && *l == len => Ok(()),
        [k, _] if *k == kind => Err(Error::Length),
        _ => Err(Error::Kind),
    }
}

fn lacpdu(bytes: &[u8]) -> Result<Lacpdu, Error> {
    let b: &[u8; LACPDU_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
    part(&b[16..18], 1, 20)?;
    part(&b[36..38], 2, 20)?;
    part(&b[56..58], 3, 16)?;
    let fields = |at: usize| core::array::from_fn(|i| b[at + i]);
    Ok(Lacpdu {
        actor: Participant::parse(&fields(18)),
        partner: Participant::parse(&fields(38)),
        max_delay: be16(b, 58),
    })
}

fn marker(bytes: &[u8]) -> Result<Marker, Error> {
    let b: &[u8; MARKER_LEN] = bytes.first_chunk().ok_or(Error::Truncated)?;
    let response = b[16] == 2;
    part(&b[16..18], if response { 2 } else { 1 }, 16)?;
    Ok(Marker {
        response,
        port: be16(b, 18),
        system: MacAddr([b[20], b[21], b[22], b[23], b[24], b[25]]),
        transaction: be32(b, 26),
    })
}
