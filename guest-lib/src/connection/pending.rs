//! A connection that is asked for or accepted, until both sides are ready.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use super::established::Connection;
use super::manager::Link;
use super::{
    ConnectionAttributes, ConnectionEvent, ConnectionEventKind as Kind, ConnectionMessage, ConnectionOptions,
    Rejection,
};
use crate::{Context, Error, QpAttributes, QpMask, QpState, QueuePair, Rc};

/// READs and atomics by default.
const RD_ATOMIC: u32 = 16;
/// ACK timeout of a queue pair by default: 67 ms.
const TIMEOUT: u8 = 14;

/// READs and atomics of one end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Of the peer, to hold resources for.
    pub responder: u8,
    /// To have outstanding.
    pub initiator: u8,
}

impl Limits {
    /// What this end would have.
    pub fn own(context: &Context, options: &ConnectionOptions) -> Limits {
        // The device's limit is at most 255: the attribute has 8 bits.
        let most = context.query_device().max_rd_atomic.min(RD_ATOMIC) as u8;
        Limits {
            responder: options.responder_resources.unwrap_or(most),
            initiator: options.initiator_depth.unwrap_or(most),
        }
    }

    /// What this end has with a peer that says this.
    pub fn new(context: &Context, options: &ConnectionOptions, peer: &ConnectionMessage) -> Limits {
        let own = Limits::own(context, options);
        Limits {
            responder: own.responder.min(peer.initiator_depth),
            initiator: own.initiator.min(peer.responder_resources),
        }
    }
}

/// Brings a queue pair to RTR, with what the device knows of the connection.
pub(super) fn ready_to_receive(
    qp: &QueuePair<Rc>,
    known: &ConnectionAttributes,
    options: &ConnectionOptions,
    limits: Limits,
) -> Result<(), Error> {
    if qp.state() == QpState::Reset {
        qp.to_init(options.access)?;
    }
    let needs = QpMask::ADDRESS | QpMask::PATH_MTU | QpMask::DESTINATION_QP | QpMask::RQ_PSN;
    let mask = QpMask::STATE
        | needs
        | QpMask::MAX_DEST_RD_ATOMIC
        | QpMask::MIN_RNR_TIMER
        | (known.known & (QpMask::UDP_SOURCE_PORT | QpMask::PKEY_INDEX));
    let attributes = QpAttributes {
        state: QpState::Rtr.number(),
        max_dest_rd_atomic: limits.responder,
        min_rnr_timer: options.min_rnr_timer,
        // What the message to the peer asks for; a side that accepts has not sent it yet.
        rq_psn: qp.psn(),
        // It says in replies that there is an address; in commands it is zero.
        has_address: 0,
        ..known.attributes
    };
    qp.modify(&attributes, mask)
}

/// Brings a queue pair to RTS, with what the device knows of the connection.
fn ready_to_send(qp: &QueuePair<Rc>, known: &ConnectionAttributes, limits: Limits) -> Result<(), Error> {
    let or = |bit, value, default| if known.known.contains(bit) { value } else { default };
    let given = &known.attributes;
    let attributes = QpAttributes {
        state: QpState::Rts.number(),
        sq_psn: given.sq_psn,
        timeout: or(QpMask::TIMEOUT, given.timeout, TIMEOUT),
        retry_count: or(QpMask::RETRY_COUNT, given.retry_count, 7),
        rnr_retry: or(QpMask::RNR_RETRY, given.rnr_retry, 7),
        max_rd_atomic: limits.initiator,
        ..QpAttributes::default()
    };
    let mask = QpMask::STATE
        | QpMask::SQ_PSN
        | QpMask::TIMEOUT
        | QpMask::RETRY_COUNT
        | QpMask::RNR_RETRY
        | QpMask::MAX_RD_ATOMIC;
    qp.modify(&attributes, mask)
}

/// Which side it is.
pub(super) enum Side {
    /// Has asked.
    Active,
    /// Has accepted.
    Passive {
        /// What the peer's request said.
        private_data: Vec<u8>,
        /// What was agreed.
        limits: Limits,
    },
}

/// A connection that is not there yet. Dropped, it is not made.
pub struct Connecting(Option<Pending>);

struct Pending {
    link: Link,
    qp: QueuePair<Rc>,
    options: ConnectionOptions,
    side: Side,
    peer: SocketAddr,
    local: SocketAddr,
}

impl std::fmt::Debug for Connecting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Some(pending) => write!(f, "Connecting({:#x}, {})", pending.link.id, pending.peer),
            None => f.write_str("Connecting(finished)"),
        }
    }
}

impl Connecting {
    pub(super) fn new(
        link: Link,
        qp: &QueuePair<Rc>,
        options: &ConnectionOptions,
        side: Side,
        (peer, local): (SocketAddr, SocketAddr),
    ) -> Connecting {
        Connecting(Some(Pending {
            link,
            qp: qp.clone(),
            options: options.clone(),
            side,
            peer,
            local,
        }))
    }

    /// Waits until the connection is there, or the device gives it up. [`Error::Rejected`] has the peer's reason,
    /// [`Error::NoAnswer`] says that the peer does not answer.
    pub fn wait(mut self) -> Result<Connection, Error> {
        loop {
            if let Some(connection) = self.wait_for(None)? {
                return Ok(connection);
            }
        }
    }

    /// As [`wait`](Connecting::wait), for at most `patience`. `None`: the time is over, and the connection may still come.
    pub fn wait_for(&mut self, patience: Option<Duration>) -> Result<Option<Connection>, Error> {
        let event = self.pending()?.link.news.wait(patience)?;
        event.map_or(Ok(None), |event| self.go_on(event))
    }

    /// As [`wait`](Connecting::wait), but never blocks. `None`: try again when the [descriptor](AsFd) is readable.
    pub fn try_finish(&mut self) -> Result<Option<Connection>, Error> {
        let event = self.pending()?.link.news.take()?;
        event.map_or(Ok(None), |event| self.go_on(event))
    }

    /// A descriptor that is readable when [`try_finish`](Connecting::try_finish) has something to do, or when the device is gone.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        Ok(self.pending()?.link.news.as_fd())
    }

    fn pending(&self) -> Result<&Pending, Error> {
        let pending = self
            .0
            .as_ref()
            .ok_or_else(|| Error::Invalid("the connection was given out already".into()))?;
        pending.link.manager.check()?;
        Ok(pending)
    }

    fn go_on(&mut self, event: ConnectionEvent) -> Result<Option<Connection>, Error> {
        let Some(pending) = self.0.take() else {
            return Ok(None);
        };
        match event.kind {
            Kind::Response => pending.answered(event.message).map(Some),
            Kind::Established => pending.ready().map(Some),
            // It was there, but the word of it was lost: who gets the connection hears of its end next.
            Kind::Disconnected => {
                pending.link.news.push(event, usize::MAX);
                pending.ready().map(Some)
            }
            Kind::Rejected => Err(Error::Rejected {
                peer: pending.peer,
                rejection: Rejection {
                    reason: event.message.reason,
                    private_data: event.message.private_data,
                },
            }),
            Kind::Unreachable => Err(Error::NoAnswer(pending.peer)),
            Kind::Request | Kind::TimewaitExit => {
                self.0 = Some(pending);
                Ok(None)
            }
        }
    }
}

impl Pending {
    /// Active: the peer has accepted.
    fn answered(self, reply: ConnectionMessage) -> Result<Connection, Error> {
        let Pending {
            link, qp, options, ..
        } = &self;
        let limits = Limits::new(&link.manager.context, options, &reply);
        let ready = || {
            let known = link.connections().query(link.id)?;
            ready_to_receive(qp, &known, options, limits)?;
            ready_to_send(qp, &known, limits)
        };
        if let Err(e) = ready() {
            // (If the device is gone, there is nobody to be told.)
            let _ = reject(link, Rejection::CONSUMER, &[]);
            return Err(e);
        }
        link.connections().accept(link.id, &options.message(qp))?;
        let Pending {
            link,
            qp,
            peer,
            local,
            ..
        } = self;
        Ok(Connection::new(link, qp, (peer, local), reply.private_data))
    }

    /// Passive: the peer is ready.
    fn ready(self) -> Result<Connection, Error> {
        let Pending {
            link,
            qp,
            side,
            peer,
            local,
            ..
        } = self;
        let Side::Passive { private_data, limits } = side else {
            return Err(Error::Protocol(
                "a connection is there before it was accepted".into(),
            ));
        };
        let known = link.connections().query(link.id)?;
        ready_to_send(&qp, &known, limits)?;
        Ok(Connection::new(link, qp, (peer, local), private_data))
    }
}

/// Rejects what a peer asks for or answers.
pub(super) fn reject(link: &Link, reason: u16, private_data: &[u8]) -> Result<(), Error> {
    let message = ConnectionMessage {
        reason,
        private_data: private_data.to_vec(),
        ..ConnectionMessage::default()
    };
    link.connections().reject(link.id, &message)
}
