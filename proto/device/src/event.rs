//! Events: what the device tells without being asked. One record fills one device-writable buffer of an event virtqueue.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EventKind {
    /// An armed CQ has something; `object` is its number.
    Completion = 1,
    /// A CQ overran.
    CqError = 2,
    /// A QP failed.
    QpFatal = 3,
    /// The peer sent what the QP cannot accept.
    QpRequestError = 4,
    /// The peer violated the QP's protection.
    QpAccessError = 5,
    /// First packet on a QP that was ready to receive only.
    CommunicationEstablished = 6,
    /// The send queue has drained.
    SendQueueDrained = 7,
    /// A QP in error takes no more from its SRQ.
    LastWqeReached = 8,
    /// Fewer receives than the limit are left in an SRQ.
    SrqLimitReached = 9,
    /// An SRQ failed.
    SrqError = 10,
    /// The port came up (`detail` 1) or went down (0).
    Port = 11,
    /// An entry of the GID table changed; `object` is its index.
    GidChange = 12,
    /// A memory region lost its memory: the guest shares it no more.
    MrLost = 13,
    /// `detail` events found no buffer.
    EventsLost = 14,
    /// A queue was given something that the contract does not allow; its object is in error.
    QueueFault = 15,
}

impl EventKind {
    /// The kind with a number.
    pub fn from_number(number: u32) -> Option<EventKind> {
        use EventKind as E;
        const ALL: [EventKind; 15] = [
            E::Completion,
            E::CqError,
            E::QpFatal,
            E::QpRequestError,
            E::QpAccessError,
            E::CommunicationEstablished,
            E::SendQueueDrained,
            E::LastWqeReached,
            E::SrqLimitReached,
            E::SrqError,
            E::Port,
            E::GidChange,
            E::MrLost,
            E::EventsLost,
            E::QueueFault,
        ];
        ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// An event: 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct EventRecord {
    /// [`EventKind`].
    pub kind: u32,
    /// Number of the object.
    pub object: u32,
    /// What else there is to say.
    pub detail: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

const _: () = assert!(size_of::<EventRecord>() == 32);
