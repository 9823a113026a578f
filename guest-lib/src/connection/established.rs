//! Connections that are there, and their end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::manager::Link;
use super::{ConnectionAttributes, ConnectionEvent, ConnectionEventKind, ConnectionMessage};
use crate::{CommandStatus, Error, QueuePair, Rc};

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It ends; by whom does not matter. The queue pair is in ERR.
    Disconnected,
    /// Nothing of it is under way any more: its queue pair may be used again.
    Over,
}

/// A connection of a queue pair. Dropped, it ends: the peer is told.
pub struct Connection {
    link: Link,
    qp: QueuePair<Rc>,
    peer: SocketAddr,
    local: SocketAddr,
    private_data: Vec<u8>,
    /// Whether this end has said that it ends.
    told: AtomicBool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({:#x}, {}, {:?})", self.link.id, self.peer, self.qp)
    }
}

impl AsFd for Connection {
    /// The descriptor is readable when the connection ends, or when the device is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.news.as_fd()
    }
}

impl Connection {
    pub(super) fn new(
        link: Link,
        qp: QueuePair<Rc>,
        (peer, local): (SocketAddr, SocketAddr),
        private_data: Vec<u8>,
    ) -> Connection {
        Connection {
            link,
            qp,
            peer,
            local,
            private_data,
            told: AtomicBool::new(false),
        }
    }

    /// The queue pair.
    pub fn qp(&self) -> &QueuePair<Rc> {
        &self.qp
    }

    /// Address and port of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The own address and port.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// What the peer's program has said, with the zeros that fill it up: 196 bytes of who has accepted, 56 of who has connected.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// What the device knows of the connection.
    pub fn query(&self) -> Result<ConnectionAttributes, Error> {
        self.link.connections().query(self.link.id)
    }

    /// Ends the connection: the queue pair goes to ERR, its work requests are flushed, and the peer is told. [`Ending::Disconnected`]
    /// comes when the peer has answered or does not. A connection that ends already is left alone.
    ///
    /// ```no_run
    /// # fn example(connection: &vnic_verbs::connection::Connection) -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::connection::Ending;
    ///
    /// connection.disconnect()?;
    /// assert_eq!(connection.wait(None)?, Some(Ending::Disconnected));
    /// # Ok(())
    /// # }
    /// ```
    pub fn disconnect(&self) -> Result<(), Error> {
        self.link.manager.check()?;
        if self.told.swap(true, SeqCst) {
            return Ok(());
        }
        self.qp.to_error()?;
        let last = ConnectionMessage::default();
        match self.link.connections().disconnect(self.link.id, &last) {
            // It has ended by itself.
            Err(e) if e.status() == Some(CommandStatus::WrongState) => Ok(()),
            other => other,
        }
    }

    /// Takes how the connection ends; `None` if it does not. Never blocks. When the peer ends it, the queue pair goes to ERR here, and
    /// the peer gets its answer.
    pub fn try_next(&self) -> Result<Option<Ending>, Error> {
        self.next(|| self.link.news.take())
    }

    /// Waits for the connection's end for at most `patience`. `None`: the time is over.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<Ending>, Error> {
        self.next(|| self.link.news.wait(patience))
    }

    fn next(
        &self,
        event: impl FnOnce() -> Result<Option<ConnectionEvent>, Error>,
    ) -> Result<Option<Ending>, Error> {
        self.link.manager.check()?;
        match event()? {
            None => Ok(None),
            Some(event) if event.kind == ConnectionEventKind::TimewaitExit => Ok(Some(Ending::Over)),
            Some(_) => {
                self.disconnect()?;
                Ok(Some(Ending::Disconnected))
            }
        }
    }
}
