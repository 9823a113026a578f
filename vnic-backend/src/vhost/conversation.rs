//! A connection of a VMM, or of a process, to a socket of an adapter, from its first message to its last.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use vhost::vhost_user::{BackendReqHandler, Error as VhostError, VhostUserBackendReqHandlerMut};
use vnic_wire::MacAddr;

use super::connection::{Connection, Function};
use super::early;
use super::endpoint::{Endpoint, Has};
use crate::mem::Lender;
use crate::types::{Caller, NicEventKind};

/// Pause of a VMM that had an address announced.
const ANNOUNCE_PAUSE: Duration = Duration::from_millis(5);

/// Handles of one connection.
pub struct Streams {
    stream: UnixStream,
    watched: UnixStream,
    lender: Arc<Lender>,
}

impl Streams {
    /// Handles of this connection.
    pub fn of(stream: UnixStream) -> io::Result<Streams> {
        stream.set_nonblocking(false)?;
        Ok(Streams {
            watched: stream.try_clone()?,
            lender: Arc::new(Lender::new(stream.try_clone()?)),
            stream,
        })
    }
}

/// A connection, as its endpoint knows it until this value is dropped.
pub struct Visit {
    endpoint: Arc<Endpoint>,
    id: u64,
    /// The process at the other end.
    pub vmm: Caller,
}

impl Visit {
    /// Records a connection. `None`: the socket's thread is to end, and serves nobody.
    pub fn begin(endpoint: &Arc<Endpoint>, streams: &Streams, vmm: Caller) -> Option<Visit> {
        let id = endpoint.connect(streams.lender.clone(), vmm)?;
        Some(Visit {
            endpoint: endpoint.clone(),
            id,
            vmm,
        })
    }

    /// Notes the name of the process's program. It reads a file.
    pub fn namer(&self) -> impl FnOnce() + Send + use<> {
        let (endpoint, id, pid) = (self.endpoint.clone(), self.id, self.vmm.pid);
        move || {
            let name = pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok());
            endpoint.set_program(id, name.map(|name| name.trim_end().to_owned()));
        }
    }

    /// What the connection has of the function.
    pub fn has(&self) -> Has {
        self.endpoint.has(self.id)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.endpoint.disconnect(self.id);
    }
}

/// A device and the VMM that it talks with.
pub struct Conversation<F: Function> {
    device: Arc<Mutex<Connection<F>>>,
    handler: BackendReqHandler<Mutex<Connection<F>>>,
    /// A second handle of the connection.
    pub watched: UnixStream,
    lender: Arc<Lender>,
    /// The connection.
    pub visit: Visit,
}

impl<F: Function> Conversation<F> {
    /// A conversation that begins.
    pub fn new(function: F, visit: Visit, streams: Streams) -> Conversation<F> {
        let Streams {
            stream,
            watched,
            lender,
        } = streams;
        let device = Connection::new(visit.endpoint.clone(), visit.id, lender.clone(), function);
        let device = Arc::new(Mutex::new(device));
        Conversation {
            handler: BackendReqHandler::from_stream(stream, device.clone()),
            device,
            watched,
            lender,
            visit,
        }
    }

    /// Handles the next message.
    pub fn message(&mut self) -> Result<(), VhostError> {
        match self.early_message()? {
            true => Ok(()),
            false => self.handler.handle_request(),
        }
    }

    /// Handles all messages until the other side leaves.
    pub fn serve(mut self) {
        let ended = loop {
            if let Err(e) = self.message() {
                break e;
            }
        };
        self.end(&ended);
    }

    /// Ends the conversation. Returns whether the driver ran.
    pub fn end(self, ended: &VhostError) -> bool {
        let (endpoint, lender) = (&self.visit.endpoint, &self.lender);
        let orderly = matches!(
            ended,
            VhostError::Disconnected | VhostError::PartialMessage | VhostError::SocketBroken(_)
        ) || !endpoint.is_connected(self.visit.id);
        if lender.has_failed() || !orderly {
            let why = if lender.has_failed() {
                "memory of the guest is not there any more (SIGBUS): its file was cut short, or has no pages"
                    .into()
            } else {
                ended.to_string()
            };
            let what = format!("{why}; the connection was closed, the VMM may reconnect");
            endpoint.event(NicEventKind::ProtocolError { what });
        }
        self.device
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stop_all();
        let ran = endpoint.ran(self.visit.id);
        // What the other side lent is given back before the next one is told that it left.
        let Conversation {
            device,
            handler,
            visit,
            ..
        } = self;
        drop((device, handler));
        drop(visit);
        ran
    }

    /// Ends the conversation with one that gets nothing. Returns the connection, which is still open.
    pub fn refuse(self) -> UnixStream {
        self.watched
    }

    /// Handles a message that the `vhost` crate would refuse, or not pass on; see [`early`].
    fn early_message(&mut self) -> Result<bool, VhostError> {
        let stream = &mut self.watched;
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = early::take_long_mem_table(stream).map_err(VhostError::SocketBroken)? {
            let result = device.set_mem_table(&table.regions, table.files, None);
            if table.need_reply {
                early::answer_mem_table(stream, result.is_ok()).map_err(VhostError::SocketBroken)?;
            }
            return result.map(|_| true);
        }
        if let Some(channel) = early::take_backend_channel(stream).map_err(VhostError::SocketBroken)? {
            self.visit.endpoint.set_channel(self.visit.id, channel);
            return Ok(true);
        }
        if device.migrates()
            && let Some(mac) = early::take_send_rarp(stream).map_err(VhostError::SocketBroken)?
        {
            drop(device);
            self.announce(mac);
            return Ok(true);
        }
        if device.speaks_protocol_features() {
            return Ok(false);
        }
        match early::take_vring_enable(stream) {
            Ok(Some((index, enable))) => device.set_vring_enable(index, enable).map(|()| true),
            Ok(None) => Ok(false),
            Err(e) => Err(VhostError::SocketBroken(e)),
        }
    }

    /// Announces the address of a guest that was moved here. A VMM that asks again and again waits: each request is a broadcast.
    fn announce(&self, mac: MacAddr) {
        self.visit.endpoint.announce_moved(mac);
        std::thread::sleep(ANNOUNCE_PAUSE);
    }
}
