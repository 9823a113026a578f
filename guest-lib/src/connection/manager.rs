//! Who gets which event: a thread takes those of the device, and hands each to the listener or the connection that it is about.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use super::path::Paths;
use super::{ConnectionEvent, ConnectionEventKind, ConnectionMessage, Connections};
use crate::driver::{News, NoFork};
use crate::sync::lock;
use crate::{Context, Error, GidEntry, GidKind};

/// First of the ports that are nobody's (RFC 6335): requests come from there on.
const FIRST_PORT: u16 = 0xc000;

/// Connections of a device's queue pairs by addresses and ports, as RDMA CM has them (IBTA volume 1 annex A11). Clones are the same.
///
/// It takes all events of the device's connections: a device has one manager, and no other user of
/// [`Context::connections`] beside it. Listeners, requests and connections each have a descriptor that is readable when there is
/// something to take, or when the device is gone.
///
/// ```no_run
/// use vnic_verbs::connection::{ConnectionManager, ConnectionOptions};
/// use vnic_verbs::{Context, Error, QueuePair, Rc};
///
/// fn serve(device: &Context, new_qp: impl Fn() -> Result<QueuePair<Rc>, Error>) -> Result<(), Error> {
///     let manager = ConnectionManager::new(device)?;
///     let listener = manager.listen(20000, 16)?;
///     loop {
///         let request = listener.accept()?;
///         println!("{} says {:?}", request.peer(), request.private_data());
///         let connection = request.accept(&new_qp()?, &ConnectionOptions::default())?.wait()?;
///         // … connection.qp() sends and receives.
///         connection.disconnect()?;
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct ConnectionManager(pub(super) Arc<Manager>);

pub(super) struct Manager {
    pub context: Context,
    pub paths: Mutex<Paths>,
    pub router: Arc<Router>,
    next_port: AtomicU16,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Manager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ConnectionManager({})", self.context.name())
    }
}

impl ConnectionManager {
    /// Begins to manage the connections of a device.
    pub fn new(context: &Context) -> Result<ConnectionManager, Error> {
        let router = Arc::new(Router {
            connections: context.connections()?,
            routes: Mutex::default(),
        });
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::os("making an eventfd"))?;
        let stop = Arc::new(stop);
        let (routing, stopping) = (Arc::clone(&router), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("vnic-connect".into())
            .spawn(move || routing.run(&stopping))
            .map_err(Error::os("starting a thread"))?;
        // Programs that start one after the other shall not begin with the same port.
        let start = FIRST_PORT | std::process::id() as u16;
        Ok(ConnectionManager(Arc::new(Manager {
            context: context.clone(),
            paths: Mutex::default(),
            router,
            next_port: AtomicU16::new(start),
            stop,
            thread: Some(thread),
        })))
    }
}

impl Manager {
    /// A port for a request.
    pub fn port(&self) -> u16 {
        FIRST_PORT | self.next_port.fetch_add(1, Relaxed)
    }

    /// The own address for a peer: that of `source`, or the one whose beginning is most like the peer's.
    pub fn source(&self, to: IpAddr, source: Option<IpAddr>) -> Result<GidEntry, Error> {
        let same = |ip: IpAddr| ip.is_ipv4() == to.is_ipv4();
        let alike = |ip: IpAddr| match (ip, to) {
            (IpAddr::V4(own), IpAddr::V4(to)) => (own.to_bits() ^ to.to_bits()).leading_zeros(),
            (IpAddr::V6(own), IpAddr::V6(to)) => (own.to_bits() ^ to.to_bits()).leading_zeros(),
            _ => 0,
        };
        let best = |gids: Vec<GidEntry>| {
            let fits = gids.into_iter().filter(|entry| {
                let ip = entry.gid.ip();
                entry.kind == GidKind::RoceV2 && same(ip) && source.is_none_or(|source| source == ip)
            });
            // The first of those that are as good.
            fits.reduce(|best, next| {
                if alike(next.gid.ip()) > alike(best.gid.ip()) {
                    next
                } else {
                    best
                }
            })
        };
        // (It may have come just now.)
        let found = match best(self.context.known_gids()?) {
            None => best(self.context.gids()?),
            found => found,
        };
        found.ok_or_else(|| {
            let wanted = source.map_or_else(|| "of its version".to_owned(), |ip| ip.to_string());
            Error::Invalid(format!(
                "the device has no address {wanted} to connect to {to} from"
            ))
        })
    }

    /// Fails in a forked child: what it has of the manager is its parent's.
    pub fn check(&self) -> Result<(), Error> {
        match self.context.core.is_parents() {
            true => Err(Error::parents(self.context.name())),
            false => Ok(()),
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if self.check().is_err() {
            // Thread and descriptor are the parent's.
            return std::mem::forget(self.thread.take());
        }
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A request as the device tells of it.
pub(super) struct Asked {
    pub id: u32,
    pub message: ConnectionMessage,
    pub news: Arc<News<ConnectionEvent>>,
}

/// What the thread works with.
pub(super) struct Router {
    pub connections: Connections,
    routes: Mutex<Routes>,
}

#[derive(Default)]
struct Routes {
    listeners: HashMap<u64, Arc<News<Asked>>>,
    connections: HashMap<u32, Arc<News<ConnectionEvent>>>,
    /// Why no more events will come.
    closed: Option<String>,
}

impl Router {
    /// Makes a connection known as it begins: no event of it comes before.
    pub fn begin(
        &self,
        begin: impl FnOnce() -> Result<u32, Error>,
    ) -> Result<(u32, Arc<News<ConnectionEvent>>), Error> {
        let news = Arc::new(News::new()?);
        let mut routes = lock(&self.routes);
        let id = begin()?;
        if let Some(why) = &routes.closed {
            news.close(why);
        }
        routes.connections.insert(id, Arc::clone(&news));
        Ok((id, news))
    }

    /// Makes a listener known as it begins.
    pub fn listen(&self, service: u64, backlog: u32) -> Result<Arc<News<Asked>>, Error> {
        let news = Arc::new(News::new()?);
        let mut routes = lock(&self.routes);
        self.connections.listen(service, backlog)?;
        if let Some(why) = &routes.closed {
            news.close(why);
        }
        routes.listeners.insert(service, Arc::clone(&news));
        Ok(news)
    }

    /// Ends a listener.
    pub fn unlisten(&self, service: u64) {
        lock(&self.routes).listeners.remove(&service);
        // (A device that is gone listens no more.)
        let _ = self.connections.unlisten(service);
    }

    /// Ends a connection. The device tells the peer what there is to tell.
    pub fn destroy(&self, id: u32) {
        lock(&self.routes).connections.remove(&id);
        let _ = self.connections.destroy(id);
    }

    /// Hands events on until `stop` is readable or the device is gone.
    fn run(&self, stop: &OwnedFd) {
        loop {
            let mut fds = [
                PollFd::new(&self.connections, PollFlags::IN),
                PollFd::new(stop, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return self.close(&format!("waiting for events: {e}")),
            }
            if fds[1].revents().contains(PollFlags::IN) {
                return;
            }
            let events = self.connections.take_events();
            // A forked child would wait for ever for what this thread has locked.
            let _no_fork = NoFork::hold();
            match events {
                Ok(events) => events.into_iter().for_each(|event| self.hand_on(event)),
                Err(Error::Gone(why)) => return self.close(&why),
                Err(e) => return self.close(&e.to_string()),
            }
        }
    }

    /// Nothing more will happen.
    fn close(&self, why: &str) {
        let mut routes = lock(&self.routes);
        routes.closed = Some(why.to_owned());
        routes.listeners.values().for_each(|news| news.close(why));
        routes.connections.values().for_each(|news| news.close(why));
    }

    fn hand_on(&self, event: ConnectionEvent) {
        let id = event.connection;
        let mut routes = lock(&self.routes);
        if event.kind != ConnectionEventKind::Request {
            // (One that has ended meanwhile hears nothing.)
            if let Some(news) = routes.connections.get(&id) {
                news.push(event, usize::MAX);
            }
            return;
        }
        let listener = routes.listeners.get(&event.message.service).cloned();
        let (Some(listener), Ok(news)) = (listener, News::new()) else {
            // Nobody listens any more, or there is no descriptor left: the device rejects it.
            drop(routes);
            return self.destroy(id);
        };
        let news = Arc::new(news);
        routes.connections.insert(id, Arc::clone(&news));
        let message = event.message;
        listener.push(Asked { id, message, news }, usize::MAX);
    }
}

/// A connection of the device, which ends with this value.
pub(super) struct Link {
    pub manager: Arc<Manager>,
    pub id: u32,
    pub news: Arc<News<ConnectionEvent>>,
}

impl Link {
    pub fn connections(&self) -> &Connections {
        &self.manager.router.connections
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.manager.check().is_ok() {
            self.manager.router.destroy(self.id);
        }
    }
}
