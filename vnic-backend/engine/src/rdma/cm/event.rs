//! What goes in and out: datagrams, and what the driver is told.

use alloc::boxed::Box;

use vnic_wire::cm::{Mad, Message, Rej, Rep, Req, ServiceId, SidrRep, SidrReq};

use super::super::types::AddressVector;

/// A connection, or a question for the queue pair of a service: the number that messages call it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

/// A datagram to a peer's queue pair 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram {
    /// Where it goes.
    pub to: AddressVector,
    /// P_Key of the connection that it is about; 0: it is about none.
    pub pkey: u16,
    /// What it says.
    pub mad: Mad,
}

/// What the driver is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A peer asks for a connection: to be accepted or rejected.
    Request {
        /// The new connection.
        id: ConnectionId,
        /// Where the peer is.
        peer: AddressVector,
        /// The peer's request.
        request: Box<Req>,
    },
    /// The peer has accepted: to be established or rejected.
    Response {
        /// The connection.
        id: ConnectionId,
        /// The peer's reply.
        reply: Box<Rep>,
    },
    /// The peer is ready.
    Established {
        /// The connection.
        id: ConnectionId,
    },
    /// The peer has rejected the connection.
    Rejected {
        /// The connection.
        id: ConnectionId,
        /// The peer's reason, and its private data.
        reject: Box<Rej>,
    },
    /// The peer does not answer.
    Unreachable {
        /// The connection.
        id: ConnectionId,
    },
    /// The connection ends. Who did not ask for it calls [`Cm::disconnect`](super::Cm::disconnect).
    Disconnected {
        /// The connection.
        id: ConnectionId,
    },
    /// Nothing of the connection is under way any more: its queue pair may be used again.
    TimewaitExit {
        /// The connection.
        id: ConnectionId,
    },
    /// A peer asks for the queue pair of a service.
    SidrRequest {
        /// The question.
        id: ConnectionId,
        /// Where the peer is.
        peer: AddressVector,
        /// The peer's question.
        request: Box<SidrReq>,
    },
    /// The peer has answered the question.
    SidrReply {
        /// The question.
        id: ConnectionId,
        /// The peer's answer.
        reply: Box<SidrRep>,
    },
}

impl Event {
    /// The connection that the event is about.
    pub const fn id(&self) -> ConnectionId {
        match self {
            Event::Request { id, .. }
            | Event::Response { id, .. }
            | Event::Established { id }
            | Event::Rejected { id, .. }
            | Event::Unreachable { id }
            | Event::Disconnected { id }
            | Event::TimewaitExit { id }
            | Event::SidrRequest { id, .. }
            | Event::SidrReply { id, .. } => *id,
        }
    }
}

/// By which a datagram finds its device, among those that share a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heading {
    /// It asks for a service; the peer's number.
    Service(ServiceId, u32),
    /// It is about the connection of this number.
    Connection(u32),
    /// It names only the peer's number.
    Unnumbered(u32),
}

impl Heading {
    /// Reads it. `None`: no datagram of communication management.
    pub fn of(bytes: &[u8]) -> Option<Heading> {
        Some(match Mad::parse(bytes).ok()?.message {
            Message::Req(m) => Heading::Service(m.service_id, m.local_id),
            Message::SidrReq(m) => Heading::Service(m.service_id, m.request_id),
            Message::Rej(m) if m.remote_id == 0 => Heading::Unnumbered(m.local_id),
            Message::Rej(m) => Heading::Connection(m.remote_id),
            Message::Rep(m) => Heading::Connection(m.remote_id),
            Message::Rtu(m) => Heading::Connection(m.remote_id),
            Message::Dreq(m) => Heading::Connection(m.remote_id),
            Message::Drep(m) => Heading::Connection(m.remote_id),
            Message::Mra(m) => Heading::Connection(m.remote_id),
            Message::Lap(m) => Heading::Connection(m.remote_id),
            Message::Apr(m) => Heading::Connection(m.remote_id),
            Message::SidrRep(m) => Heading::Connection(m.request_id),
        })
    }
}
