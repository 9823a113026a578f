//! Connections: communication management of the device (IBTA volume 1, chapter 12; `SPEC.md`, section 5.7).
//!
//! [`Connections`] is what the contract has: calls by the numbers of connections, and one stream of events for the device.
//! [`ConnectionManager`] is what most programs want: listeners and connections by addresses and ports, with queue pairs that are
//! brought up on the way.

mod connector;
mod established;
mod header;
mod listener;
mod manager;
mod path;
mod pending;
mod rejection;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

pub use connector::{ConnectionOptions, Connector};
pub use established::{Connection, Ending};
pub use listener::{ConnectionRequest, Listener};
pub use manager::ConnectionManager;
pub use path::{Path, PathAnswer, PathQuery, Paths};
pub use pending::Connecting;
pub use rejection::Rejection;
use vnic_device::command::connection::{self as wire, message_flags};
pub use vnic_device::command::connection::{ConnectionEventKind, ConnectionState, PRIVATE_MAX, Transport};
use vnic_device::command::device::capabilities;
use vnic_device::command::{Object, Opcode};
use vnic_device::zerocopy::FromBytes;

use crate::driver::{Core, News};
use crate::{AddressVector, CommandStatus, Error, QpAttributes, QpMask};

/// Most events that one command takes.
const EVENTS_AT_ONCE: usize = 64;

/// Vendor and options of enhanced connection establishment (`ibv_ece`); vendor 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ece {
    /// Vendor, 24 bits.
    pub vendor: u32,
    /// The vendor's options.
    pub options: u32,
}

/// What one side of a connection tells the other: of a REQ, REP, RTU, REJ, DREQ, SIDR_REQ or SIDR_REP what it has. Times are
/// exponents: 4.096 µs · 2^n.
// Wide: one field for each of the contract's Message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionMessage {
    /// Queue pair of the sender.
    pub qp: u32,
    /// Service: what is asked for, or was.
    pub service: u64,
    /// PSN that the receiver's queue pair shall send first ("starting PSN": IBTA volume 1, 12.7.31).
    pub psn: u32,
    /// Queue key of the sender's queue pair.
    pub qkey: u32,
    /// READs and atomics of the receiver that the sender holds resources for.
    pub responder_resources: u8,
    /// READs and atomics that the sender wants to have outstanding.
    pub initiator_depth: u8,
    /// Retries of the receiver's queue pair.
    pub retry_count: u8,
    /// RNR retries of the receiver's queue pair.
    pub rnr_retry: u8,
    /// Path MTU, as `ibv_mtu` has it.
    pub path_mtu: u8,
    /// What connects.
    pub transport: Transport,
    /// The sender's queue pair has end-to-end flow control.
    pub flow_control: bool,
    /// The sender's queue pair has a shared receive queue.
    pub srq: bool,
    /// ACK timeout of the path. Events of a reply: target ACK delay.
    pub ack_timeout: u8,
    /// How long the receiver may take to answer.
    pub response_timeout: u8,
    /// How often the request is sent.
    pub max_retries: u8,
    /// P_Key.
    pub pkey: u16,
    /// Why it is rejected.
    pub reason: u16,
    /// Enhanced connection establishment.
    pub ece: Ece,
    /// To connect: where to. Events: where the peer is.
    pub address: AddressVector,
    /// What the programs tell each other, [`PRIVATE_MAX`] bytes at most, and as many as the message has room for. Events: with the
    /// zeros that fill it up.
    pub private_data: Vec<u8>,
}

impl Default for ConnectionMessage {
    /// Nothing said, with the times of Linux' `rdma_cm`, the default P_Key and an MTU of 1024 bytes.
    fn default() -> ConnectionMessage {
        ConnectionMessage {
            qp: 0,
            service: 0,
            psn: 0,
            qkey: 0,
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 7,
            rnr_retry: 7,
            path_mtu: 3,
            transport: Transport::Rc,
            flow_control: false,
            srq: false,
            ack_timeout: 19,
            response_timeout: 22,
            max_retries: 15,
            pkey: 0xffff,
            reason: 0,
            ece: Ece::default(),
            address: AddressVector::default(),
            private_data: Vec::new(),
        }
    }
}

impl ConnectionMessage {
    fn of(connection: u32, message: &ConnectionMessage) -> Result<wire::Message, Error> {
        let len = message.private_data.len();
        let mut private_data = [0; PRIVATE_MAX];
        let Some(room) = private_data.get_mut(..len) else {
            return Err(Error::Invalid(format!(
                "{len} bytes of private data; there is room for {PRIVATE_MAX}"
            )));
        };
        room.copy_from_slice(&message.private_data);
        let flag = |set, bit| if set { bit } else { 0 };
        Ok(wire::Message {
            connection,
            qp: message.qp,
            service: message.service,
            psn: message.psn,
            qkey: message.qkey,
            responder_resources: message.responder_resources,
            initiator_depth: message.initiator_depth,
            retry_count: message.retry_count,
            rnr_retry: message.rnr_retry,
            path_mtu: message.path_mtu,
            transport: message.transport.number(),
            flags: flag(message.flow_control, message_flags::FLOW_CONTROL)
                | flag(message.srq, message_flags::SRQ),
            private_len: len as u8,
            ack_timeout: message.ack_timeout,
            response_timeout: message.response_timeout,
            max_retries: message.max_retries,
            reserved: 0,
            pkey: message.pkey,
            reason: message.reason,
            ece_vendor: message.ece.vendor,
            ece_options: message.ece.options,
            address: message.address.into(),
            private_data,
            reserved_end: 0,
        })
    }
}

impl From<&wire::Message> for ConnectionMessage {
    fn from(message: &wire::Message) -> ConnectionMessage {
        let private = message.private_data.get(..message.private_len.into());
        ConnectionMessage {
            qp: message.qp,
            service: message.service,
            psn: message.psn,
            qkey: message.qkey,
            responder_resources: message.responder_resources,
            initiator_depth: message.initiator_depth,
            retry_count: message.retry_count,
            rnr_retry: message.rnr_retry,
            path_mtu: message.path_mtu,
            transport: Transport::from_number(message.transport).unwrap_or(Transport::Rc),
            flow_control: message.flags & message_flags::FLOW_CONTROL != 0,
            srq: message.flags & message_flags::SRQ != 0,
            ack_timeout: message.ack_timeout,
            response_timeout: message.response_timeout,
            max_retries: message.max_retries,
            pkey: message.pkey,
            reason: message.reason,
            ece: Ece {
                vendor: message.ece_vendor,
                options: message.ece_options,
            },
            address: message.address.into(),
            private_data: private.unwrap_or_default().to_vec(),
        }
    }
}

/// What has happened to a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// What it is.
    pub kind: ConnectionEventKind,
    /// The connection; of a request, a new one.
    pub connection: u32,
    /// What the peer said: of [`Request`](ConnectionEventKind::Request), [`Response`](ConnectionEventKind::Response) and
    /// [`Rejected`](ConnectionEventKind::Rejected).
    pub message: ConnectionMessage,
}

/// What is known of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionAttributes {
    /// Its state.
    pub state: ConnectionState,
    /// Number that the peer calls it by; 0: not known yet.
    pub remote_id: u32,
    /// Enhanced connection establishment that both sides have.
    pub ece: Ece,
    /// Which of `attributes` are known.
    pub known: QpMask,
    /// Attributes for the driver's queue pair, but state, port and access.
    pub attributes: QpAttributes,
}

/// Communication management of a device. A connection goes by the number that [`connect`](Connections::connect) or a
/// [`Request`](ConnectionEventKind::Request) gives; it stays until it is [destroyed](Connections::destroy). The descriptor is readable
/// while events may wait.
#[derive(Clone)]
pub struct Connections {
    core: Arc<Core>,
    news: Arc<News<()>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connections({})", self.core.transport.name())
    }
}

impl Connections {
    /// A device that manages no connections refuses with [`CommandStatus::NotSupported`].
    pub(crate) fn new(core: &Arc<Core>) -> Result<Connections, Error> {
        if core.device().capabilities & capabilities::CONNECTIONS == 0 {
            return Err(Error::Command {
                command: Opcode::Listen,
                status: CommandStatus::NotSupported,
                text: "it manages no connections".to_owned(),
            });
        }
        Ok(Connections {
            core: Arc::clone(core),
            news: core.connection_news()?,
        })
    }

    /// Listens for a service. At most `backlog` requests wait for an answer; the device rejects more.
    pub fn listen(&self, service: u64, backlog: u32) -> Result<(), Error> {
        let body = wire::Listen {
            service,
            backlog,
            reserved: 0,
        };
        self.core.call(self.core.epoch()?, Opcode::Listen, &body)
    }

    /// Listens for a service no more. Requests that came stay until they are answered or destroyed.
    pub fn unlisten(&self, service: u64) -> Result<(), Error> {
        let body = wire::Listen {
            service,
            ..wire::Listen::default()
        };
        self.core.call(self.core.epoch()?, Opcode::Unlisten, &body)
    }

    /// Asks a peer for a connection, or with [`Transport::Ud`] for the queue pair of a service.
    pub fn connect(&self, request: &ConnectionMessage) -> Result<u32, Error> {
        let body = ConnectionMessage::of(0, request)?;
        let made: Object = self.core.call(self.core.epoch()?, Opcode::Connect, &body)?;
        Ok(made.handle)
    }

    /// Accepts a request, or the peer's reply to one: the own queue pair is ready.
    pub fn accept(&self, connection: u32, reply: &ConnectionMessage) -> Result<(), Error> {
        self.tell(Opcode::Accept, connection, reply)
    }

    /// Rejects a request, or the peer's reply to one.
    pub fn reject(&self, connection: u32, reject: &ConnectionMessage) -> Result<(), Error> {
        self.tell(Opcode::Reject, connection, reject)
    }

    /// Ends a connection, or agrees that the peer ends it.
    pub fn disconnect(&self, connection: u32, last: &ConnectionMessage) -> Result<(), Error> {
        self.tell(Opcode::Disconnect, connection, last)
    }

    fn tell(&self, opcode: Opcode, connection: u32, message: &ConnectionMessage) -> Result<(), Error> {
        let body = ConnectionMessage::of(connection, message)?;
        self.core.call(self.core.epoch()?, opcode, &body)
    }

    /// Forgets a connection. The peer is told what its state asks for; nothing of it is told any more.
    pub fn destroy(&self, connection: u32) -> Result<(), Error> {
        let epoch = self.core.epoch()?;
        self.core.about(epoch, Opcode::DestroyConnection, connection)
    }

    /// What is known of a connection, and the attributes of its queue pair (`rdma_init_qp_attr`).
    pub fn query(&self, connection: u32) -> Result<ConnectionAttributes, Error> {
        let epoch = self.core.epoch()?;
        let reply: wire::ConnectionReply = self.core.about(epoch, Opcode::QueryConnection, connection)?;
        Ok(ConnectionAttributes {
            state: ConnectionState::from_number(reply.state).unwrap_or(ConnectionState::Idle),
            remote_id: reply.remote_id,
            ece: Ece {
                vendor: reply.ece_vendor,
                options: reply.ece_options,
            },
            known: QpMask::from_bits_truncate(reply.known),
            attributes: reply.attributes,
        })
    }

    /// Takes what has happened, the oldest first; none if nothing has. Whoever takes an event is the only one who gets it.
    pub fn take_events(&self) -> Result<Vec<ConnectionEvent>, Error> {
        // Before the command: what happens behind it makes the descriptor readable again.
        self.news.take()?;
        const RECORD: usize = size_of::<wire::ConnectionEvent>();
        let epoch = self.core.epoch()?;
        let mut all = Vec::new();
        loop {
            let room = EVENTS_AT_ONCE * RECORD;
            let reply = self
                .core
                .command(Some(epoch), Opcode::TakeConnectionEvents, &[], &[], room)?;
            let taken = reply.len() / RECORD;
            for record in reply.chunks_exact(RECORD) {
                let Ok(record) = wire::ConnectionEvent::read_from_bytes(record) else {
                    continue;
                };
                // What a later version adds says nothing that is needed.
                let Some(kind) = ConnectionEventKind::from_number(record.kind) else {
                    continue;
                };
                all.push(ConnectionEvent {
                    kind,
                    connection: record.message.connection,
                    message: ConnectionMessage::from(&record.message),
                });
            }
            if taken < EVENTS_AT_ONCE {
                return Ok(all);
            }
        }
    }

    /// Waits until something has happened, and takes it. None: the time is over.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Vec<ConnectionEvent>, Error> {
        let end = patience.and_then(|p| std::time::Instant::now().checked_add(p));
        loop {
            let events = self.take_events()?;
            let left = end.map(|end| end.saturating_duration_since(std::time::Instant::now()));
            if !events.is_empty() || left.is_some_and(|left| left.is_zero()) {
                return Ok(events);
            }
            // (What wakes it is taken here, and its events by the next round.)
            self.news.wait(left)?;
        }
    }
}

impl AsFd for Connections {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_go_from_thread_to_thread() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<ConnectionManager>();
        shared::<Connector>();
        shared::<Listener>();
        shared::<ConnectionRequest>();
        shared::<Connecting>();
        shared::<Connection>();
    }
}
