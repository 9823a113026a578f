//! What an identifier is, behind the program's structure.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use vnic_verbs::connection::{ConnectionEventKind, ConnectionMessage, Ece, Path, Transport};
use vnic_verbs::{AddressVector, ConnectionEvent, Gid};

use super::devices::{CmDevice, Party};
use super::header::Header;
use super::ports::Lease;
use super::queue::Queue;
use crate::abi::*;
use crate::errno::Errno;
use crate::events::Unacknowledged;
use crate::sync::lock;

/// What waits for the program in an event channel.
pub struct Letter {
    /// `RDMA_CM_EVENT_*`.
    pub kind: u32,
    pub status: c_int,
    /// The identifier; of a request, a new one.
    pub on: Arc<State>,
    /// Of a request: who listens.
    pub listener: Option<Arc<State>>,
    pub data: Data,
}

/// What an event has besides.
pub enum Data {
    Nothing,
    Message(Box<ConnectionMessage>),
    /// A multicast group: its address, and what the program gave with it.
    Group(AddressVector, usize),
    /// A program's own event.
    Argument(u64),
}

impl Letter {
    /// Whose event it is: who waits for its acknowledgement.
    pub fn owner(&self) -> &Arc<State> {
        self.listener.as_ref().unwrap_or(&self.on)
    }
}

/// How far an identifier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Idle,
    Bound,
    /// Looks for the peer's Ethernet address.
    Resolving,
    AddressResolved,
    RouteResolved,
    Listening,
    /// Has a connection, or asks for one.
    Connecting,
}

/// `RDMA_OPTION_ID_*`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub traffic_class: Option<u8>,
    pub reuse: bool,
    pub only_family: bool,
    pub ack_timeout: Option<u8>,
}

/// An identifier.
pub struct State {
    /// Port space.
    pub space: u32,
    /// Events that the program has and has not acknowledged.
    pub unacknowledged: Unacknowledged,
    inner: Mutex<Inner>,
}

/// What changes of an identifier.
// Wide: what `rdma_cm_id` and its event channel keep of an identifier, under one lock.
pub struct Inner {
    /// The program's pointer; 0: of a request that it has not taken.
    pub pointer: usize,
    /// Where its events go.
    pub queue: Arc<Queue<Letter>>,
    pub phase: Phase,
    pub options: Options,
    pub device: Option<Arc<CmDevice>>,
    /// Devices on which it listens.
    pub listens: Vec<Arc<CmDevice>>,
    pub lease: Option<Lease>,
    pub source: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    /// The GID of its own address.
    pub own_gid: Gid,
    /// The way to the peer.
    pub way: AddressVector,
    pub path_mtu: u8,
    /// What a policy says of the way.
    pub path: Option<Path>,
    pub connection: Option<u32>,
    /// PSN that the own queue pair expects first.
    pub psn: u32,
    pub transport: Transport,
    /// READs and atomics that the peer may have outstanding here, and those that it allows here: of a request.
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub own_ece: Ece,
    pub peer_ece: Ece,
    /// Nothing is told any more.
    ended: bool,
}

impl Inner {
    /// The packet lifetime of its path, 4.096 µs · 2^n. A subnet's usual one says nothing about Ethernet.
    pub fn packet_life(&self) -> u8 {
        let told = self.path.map(|path| path.packet_life);
        told.filter(|life| *life != SUBNET_PACKET_LIFE)
            .unwrap_or(PACKET_LIFE)
    }

    /// The ACK timeout of its path, 4.096 µs · 2^n: twice the packet lifetime, and what the program names before all.
    pub fn ack_timeout(&self) -> u8 {
        let timeout = || self.packet_life().max(PACKET_LIFE) + 1;
        self.options.ack_timeout.unwrap_or_else(timeout).min(31)
    }
}

impl State {
    /// A new identifier.
    pub fn new(space: u32, transport: Transport, queue: Arc<Queue<Letter>>) -> Arc<State> {
        Arc::new(State {
            space,
            unacknowledged: Unacknowledged::default(),
            inner: Mutex::new(Inner {
                pointer: 0,
                queue,
                phase: Phase::Idle,
                options: Options::default(),
                device: None,
                listens: Vec::new(),
                lease: None,
                source: None,
                peer: None,
                own_gid: Gid::default(),
                way: AddressVector::default(),
                path_mtu: 0,
                path: None,
                connection: None,
                psn: random() & PSN,
                transport,
                responder_resources: 0,
                initiator_depth: 0,
                own_ece: Ece::default(),
                peer_ece: Ece::default(),
                ended: false,
            }),
        })
    }

    /// What changes of it. No device is asked anything meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    /// As a party of a device.
    pub fn party(self: &Arc<State>) -> Arc<dyn Party> {
        Arc::<State>::clone(self)
    }

    /// Puts an event into its queue, unless it has ended.
    pub fn put(self: &Arc<State>, kind: u32, status: c_int, data: Data) {
        let inner = self.lock();
        if !inner.ended {
            inner.queue.put(Letter {
                kind,
                status,
                on: Arc::clone(self),
                listener: None,
                data,
            });
        }
    }

    /// The number of its service.
    pub fn service(&self, port: u16) -> u64 {
        u64::from(self.space) << 16 | u64::from(port)
    }

    /// Its connection, and the device that has it. EINVAL: there is none.
    pub fn connected(&self) -> Result<(Arc<CmDevice>, u32), Errno> {
        let inner = self.lock();
        match (&inner.device, inner.connection) {
            (Some(device), Some(connection)) => Ok((Arc::clone(device), connection)),
            _ => Err(Errno::INVALID),
        }
    }

    /// Its device. EINVAL: it is bound to none.
    pub fn device(&self) -> Result<Arc<CmDevice>, Errno> {
        self.lock().device.clone().ok_or(Errno::INVALID)
    }

    /// Binds it to a device.
    pub fn join(self: &Arc<State>, device: &Arc<CmDevice>) {
        device.join(&self.party());
        self.lock().device = Some(Arc::clone(device));
    }

    /// Ends it: nothing is told any more, its connection and its services end, and so do requests that the program has not taken.
    pub fn end(self: &Arc<State>) {
        let (device, connection, queue, listens, port) = {
            let mut inner = self.lock();
            inner.ended = true;
            let port = inner.lease.as_ref().map_or(0, |l| l.port);
            let listens = std::mem::take(&mut inner.listens);
            (
                inner.device.clone(),
                inner.connection.take(),
                Arc::clone(&inner.queue),
                listens,
                port,
            )
        };
        let party = self.party();
        for on in listens {
            on.unlisten(self.service(port), &party);
        }
        if let Some(device) = &device {
            device.leave(&party);
            if let Some(connection) = connection {
                device.destroy(connection);
            }
        }
        let untaken = queue.take_unless(|letter| !Arc::ptr_eq(letter.owner(), self));
        for request in untaken.into_iter().filter(|letter| letter.listener.is_some()) {
            request.on.end();
        }
        self.lock().lease = None;
    }

    /// Moves it to another channel, with the events that wait.
    pub fn migrate(self: &Arc<State>, to: Arc<Queue<Letter>>) {
        let mut inner = self.lock();
        let from = std::mem::replace(&mut inner.queue, Arc::clone(&to));
        drop(inner);
        for letter in from.take_unless(|letter| !Arc::ptr_eq(letter.owner(), self)) {
            let request = letter.listener.is_some().then(|| Arc::clone(&letter.on));
            to.put(letter);
            if let Some(request) = request {
                request.migrate(Arc::clone(&to));
            }
        }
    }

    /// A new identifier for a request.
    fn request(&self, on: &Arc<CmDevice>, event: ConnectionEvent, header: Header) -> Arc<State> {
        let (queue, options) = {
            let inner = self.lock();
            (Arc::clone(&inner.queue), inner.options)
        };
        let message = event.message;
        let new = State::new(self.space, message.transport, queue);
        let mut inner = new.lock();
        inner.phase = Phase::Connecting;
        inner.connection = Some(event.connection);
        inner.device = Some(Arc::clone(on));
        inner.options = options;
        inner.source = Some(SocketAddr::new(header.destination, message.service as u16));
        inner.peer = Some(header.source);
        inner.way = message.address;
        inner.path_mtu = message.path_mtu;
        inner.responder_resources = message.initiator_depth;
        inner.initiator_depth = message.responder_resources;
        inner.peer_ece = message.ece;
        drop(inner);
        new
    }
}

impl Party for State {
    fn told(self: Arc<State>, event: ConnectionEvent) {
        use ConnectionEventKind as K;
        let (reason, ece) = (event.message.reason, event.message.ece);
        let message = Data::Message(Box::new(event.message));
        match event.kind {
            // A new connection is a listener's.
            K::Request => {}
            K::Response => {
                self.lock().peer_ece = ece;
                self.put(RDMA_CM_EVENT_CONNECT_RESPONSE, 0, message);
            }
            K::Established => self.put(RDMA_CM_EVENT_ESTABLISHED, 0, Data::Nothing),
            K::Rejected => self.put(RDMA_CM_EVENT_REJECTED, reason.into(), message),
            K::Unreachable => self.put(RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT, Data::Nothing),
            K::Disconnected => self.put(RDMA_CM_EVENT_DISCONNECTED, 0, Data::Nothing),
            K::TimewaitExit => self.put(RDMA_CM_EVENT_TIMEWAIT_EXIT, 0, Data::Nothing),
        }
    }

    fn asked(
        self: Arc<State>,
        on: &Arc<CmDevice>,
        event: ConnectionEvent,
        header: Header,
    ) -> Option<Arc<dyn Party>> {
        let message = Box::new(event.message.clone());
        let new = self.request(on, event, header);
        let inner = self.lock();
        if inner.ended {
            return None;
        }
        inner.queue.put(Letter {
            kind: RDMA_CM_EVENT_CONNECT_REQUEST,
            status: 0,
            on: Arc::clone(&new),
            listener: Some(Arc::clone(&self)),
            data: Data::Message(message),
        });
        Some(new)
    }

    fn removed(self: Arc<State>) {
        self.put(RDMA_CM_EVENT_DEVICE_REMOVAL, 0, Data::Nothing);
    }
}

/// Packet lifetime on Ethernet, as Linux' `rdma_cm` has it.
const PACKET_LIFE: u8 = 16;
/// Packet lifetime of a path whose QoS level names none.
const SUBNET_PACKET_LIFE: u8 = 18;
/// PSNs have 24 bits.
const PSN: u32 = 0xff_ffff;

/// A number that nobody can tell before.
fn random() -> u32 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0u8) as u32
}
