//! The passive side: listeners, and the requests that they take.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::header::{self, Header};
use super::manager::{Asked, Link, Manager};
use super::pending::{Limits, Side, ready_to_receive, reject};
use super::{Connecting, ConnectionManager, ConnectionMessage, ConnectionOptions, Ece, Rejection, Transport};
use crate::driver::News;
use crate::{Error, QueuePair, Rc};

/// Reason of a rejection: another type of queue pair is asked for.
const INVALID_SERVICE_TYPE: u16 = 9;
/// Reason of a rejection: the request does not say between which addresses it is.
const UNSUPPORTED: u16 = 5;

/// Takes requests for connections at a port. Requests that wait when it is dropped are rejected.
pub struct Listener {
    manager: Arc<Manager>,
    port: u16,
    news: Arc<News<Asked>>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({}, port {})", self.manager.context.name(), self.port)
    }
}

impl AsFd for Listener {
    /// The descriptor is readable while requests wait, or when the device is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.manager.check().is_err() {
            return;
        }
        self.manager.router.unlisten(header::service(self.port));
        while let Ok(Some(asked)) = self.news.take() {
            self.manager.router.destroy(asked.id);
        }
    }
}

impl Listener {
    pub(super) fn new(manager: &Arc<Manager>, port: u16, backlog: u32) -> Result<Listener, Error> {
        manager.check()?;
        Ok(Listener {
            news: manager.router.listen(header::service(port), backlog)?,
            manager: Arc::clone(manager),
            port,
        })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Takes the oldest request that waits; `None` if none waits. Never blocks.
    ///
    /// ```no_run
    /// # fn example(listener: &vnic_verbs::connection::Listener) -> Result<(), vnic_verbs::Error> {
    /// // The descriptor of the listener was readable.
    /// while let Some(request) = listener.try_next()? {
    ///     println!("{} asks", request.peer());
    ///     request.reject(b"not today")?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_next(&self) -> Result<Option<ConnectionRequest>, Error> {
        self.next(|| self.news.take())
    }

    /// Waits for a request for at most `patience`. `None`: the time is over.
    pub fn wait(&self, patience: Option<Duration>) -> Result<Option<ConnectionRequest>, Error> {
        self.next(|| self.news.wait(patience))
    }

    /// Waits for a request.
    pub fn accept(&self) -> Result<ConnectionRequest, Error> {
        loop {
            if let Some(request) = self.wait(None)? {
                return Ok(request);
            }
        }
    }

    /// The next request that is for this listener: others are rejected here.
    fn next(
        &self,
        asked: impl Fn() -> Result<Option<Asked>, Error>,
    ) -> Result<Option<ConnectionRequest>, Error> {
        self.manager.check()?;
        while let Some(Asked { id, message, news }) = asked()? {
            let link = Link {
                manager: Arc::clone(&self.manager),
                id,
                news,
            };
            let reason = match (message.transport, Header::parse(&message.private_data)) {
                (Transport::Rc, Some(header)) => {
                    return Ok(Some(ConnectionRequest {
                        link,
                        message,
                        header,
                        port: self.port,
                    }));
                }
                (Transport::Rc, None) => UNSUPPORTED,
                _ => INVALID_SERVICE_TYPE,
            };
            reject(&link, reason, &[])?;
        }
        Ok(None)
    }
}

/// A peer's request for a connection. Dropped without an answer, it is rejected.
pub struct ConnectionRequest {
    link: Link,
    message: ConnectionMessage,
    header: Header,
    port: u16,
}

impl ConnectionManager {
    /// Listens at a port, for all addresses of the device. At most `backlog` requests wait to be taken and answered; the device
    /// rejects more.
    pub fn listen(&self, port: u16, backlog: u32) -> Result<Listener, Error> {
        Listener::new(&self.0, port, backlog)
    }
}

impl std::fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectionRequest({:#x}, from {})", self.link.id, self.peer())
    }
}

impl ConnectionRequest {
    /// Address and port of the peer, as the peer says.
    pub fn peer(&self) -> SocketAddr {
        self.header.source
    }

    /// The own address and port: what the peer connects to.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.header.destination, self.port)
    }

    /// What the peer's program says, with the zeros that fill it up: 56 bytes.
    pub fn private_data(&self) -> &[u8] {
        self.message.private_data.get(header::LEN..).unwrap_or_default()
    }

    /// Enhanced connection establishment that the peer offers.
    pub fn ece(&self) -> Ece {
        self.message.ece
    }

    /// All that the peer says.
    pub fn message(&self) -> &ConnectionMessage {
        &self.message
    }

    /// Accepts the request with a queue pair, which is brought to RTR, and from RESET to INIT before. Receives that must be there when
    /// the peer begins are posted before this call. The queue pair goes to RTS when the peer is ready, which
    /// [`Connecting::wait`] waits for.
    pub fn accept(self, qp: &QueuePair<Rc>, options: &ConnectionOptions) -> Result<Connecting, Error> {
        let limits = Limits::new(&self.link.manager.context, options, &self.message);
        let known = self.link.connections().query(self.link.id)?;
        ready_to_receive(qp, &known, options, limits)?;
        let reply = ConnectionMessage {
            responder_resources: limits.responder,
            initiator_depth: limits.initiator,
            private_data: options.private_data.clone(),
            ..options.message(qp)
        };
        self.link.connections().accept(self.link.id, &reply)?;
        let (peer, local) = (self.peer(), self.local());
        let private_data = self.private_data().to_vec();
        Ok(Connecting::new(
            self.link,
            qp,
            options,
            Side::Passive { private_data, limits },
            (peer, local),
        ))
    }

    /// Rejects the request, by the reason [`Rejection::CONSUMER`] and with at most 148 bytes for the peer's program.
    pub fn reject(self, private_data: &[u8]) -> Result<(), Error> {
        reject(&self.link, Rejection::CONSUMER, private_data)
    }
}
