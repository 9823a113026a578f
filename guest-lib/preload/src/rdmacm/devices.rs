//! Devices that connections are on, and who hears of what.

#![expect(
    unsafe_code,
    reason = "keeps the program's pointer to an open device, and to its domain"
)]

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU16};
use std::sync::{Arc, Mutex, Once, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io;
use vnic_verbs::connection::{ConnectionEventKind, ConnectionMessage, PathAnswer, PathQuery, Paths};
use vnic_verbs::{
    AddressVector, ConnectionEvent, Connections, Error, GidEntry, NoFork, ProtectionDomain, block_signals,
};

use super::header::Header;
use crate::abi::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_context, ibv_pd, ibv_xrcd, ibv_xrcd_init_attr,
};
use crate::context::Context;
use crate::devices::Device;
use crate::errno::{Errno, complain};
use crate::handle::the;
use crate::objects::{Pd, Xrcd};
use crate::sync::lock;

/// Reasons of a REJ that are the library's (IBTA 12.6.7.2).
const INVALID_SERVICE: u16 = 8;
const RESOURCES: u16 = 3;

/// Who hears of a connection, or of a device.
pub trait Party: Send + Sync {
    /// Something has happened to its connection.
    fn told(self: Arc<Self>, event: ConnectionEvent);
    /// Somebody asks its service; the party of the new connection, if it can be had.
    fn asked(
        self: Arc<Self>,
        on: &Arc<CmDevice>,
        event: ConnectionEvent,
        header: Header,
    ) -> Option<Arc<dyn Party>>;
    /// Its device is gone.
    fn removed(self: Arc<Self>);
}

/// A device that is open for connections. It stays open: programs keep pointers to it.
pub struct CmDevice {
    place: &'static Device,
    context: Shared<ibv_context>,
    domain: Mutex<Option<Shared<ibv_pd>>>,
    xrc_domain: Mutex<Option<Shared<ibv_xrcd>>>,
    /// Management of connections, unless the device has none.
    connections: Option<Connections>,
    parties: Mutex<Parties>,
    /// Ways to peers, the numbers of the MTU there, and when they were found.
    ways: Mutex<HashMap<AddressVector, (u8, Instant)>>,
    paths: Mutex<Paths>,
    /// The port's first P_Key, which the connections of this device have.
    pkey: AtomicU16,
    gone: AtomicBool,
}

#[derive(Default)]
struct Parties {
    connections: HashMap<u32, Arc<dyn Party>>,
    services: HashMap<u64, Vec<Listener>>,
    /// Identifiers on the device, by their address.
    members: HashMap<usize, Weak<dyn Party>>,
}

/// The P_Key of full members of the default partition.
pub const DEFAULT_PKEY: u16 = 0xffff;

/// Who listens at a service.
struct Listener {
    key: usize,
    whom: Whom,
    party: Arc<dyn Party>,
}

/// Whose requests a listener takes, by the address that they are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whom {
    /// Those for one address.
    One(IpAddr),
    /// Those for any address of IPv4.
    AnyV4,
    /// Those for any address of IPv6; of IPv4, too, if `both`.
    AnyV6 {
        /// Unless RDMA_OPTION_ID_AFONLY is set.
        both: bool,
    },
}

impl Whom {
    /// How well a listener fits: the larger, the better.
    fn fits(self, destination: IpAddr) -> Option<u8> {
        match self {
            Whom::One(own) => (own == destination).then_some(2),
            Whom::AnyV4 => destination.is_ipv4().then_some(1),
            Whom::AnyV6 { both } => (both || destination.is_ipv6()).then_some(0),
        }
    }
}

/// A pointer of the program, to what every thread may use.
struct Shared<T>(*mut T);

// SAFETY: contexts and domains look after themselves, and these are never freed.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

static OPEN: Mutex<Open> = Mutex::new(Open {
    devices: Vec::new(),
    looked: None,
});

struct Open {
    devices: Vec<Arc<CmDevice>>,
    /// When it was looked for devices.
    looked: Option<Instant>,
}

/// Time between two looks for new devices, for who has found what it wants.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the way to a peer is taken for one. (Linux believes its neighbours for 15 s and more, `base_reachable_time_ms`.)
const BELIEVED: Duration = Duration::from_secs(1);
/// Ways that are known.
const WAYS: usize = 256;

/// All devices of ours that are there, open. `fresh`: it is looked for new ones now.
pub fn all(fresh: bool) -> Vec<Arc<CmDevice>> {
    let mut open = lock(&OPEN);
    let before = open.devices.len();
    // Who is gone, or is a parent's, stays with whoever still has it.
    open.devices.retain(|device| device.is_there());
    let lately = open.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY);
    if fresh || !lately || open.devices.len() < before {
        for place in crate::devices::list() {
            if open.devices.iter().all(|d| !std::ptr::eq(d.place, place)) {
                match CmDevice::open(place) {
                    Ok(device) => open.devices.push(device),
                    Err(e) => complain(&format_args!("{}: {e:?}", place.name().to_string_lossy())),
                }
            }
        }
        open.looked = Some(Instant::now());
    }
    open.devices.clone()
}

/// The device and the GID that `choose` takes of all devices' GIDs: of what is known, or else of what there is now.
pub fn chosen(
    choose: impl Fn(&[Vec<GidEntry>]) -> Option<(usize, GidEntry)>,
) -> Option<(Arc<CmDevice>, GidEntry)> {
    [false, true].into_iter().find_map(|fresh| {
        let mut devices = all(fresh);
        let gids = devices.iter().map(|d| {
            let device = d.device();
            let gids = if fresh { device.gids() } else { device.known_gids() };
            gids.unwrap_or_default()
        });
        let (at, entry) = choose(&gids.collect::<Vec<_>>())?;
        (at < devices.len()).then(|| (devices.swap_remove(at), entry))
    })
}

impl CmDevice {
    fn open(place: &'static Device) -> Result<Arc<CmDevice>, Errno> {
        let context = Context::open(place, crate::exports::operations())?;
        // SAFETY: just opened, and never closed.
        let device = &unsafe { Context::of(context) }.seat.device;
        let connections = device.connections().inspect_err(|e| complain(e)).ok();
        let device = Arc::new(CmDevice {
            place,
            context: Shared(context),
            domain: Mutex::default(),
            xrc_domain: Mutex::default(),
            connections,
            parties: Mutex::default(),
            ways: Mutex::default(),
            paths: Mutex::default(),
            pkey: AtomicU16::new(DEFAULT_PKEY),
            gone: AtomicBool::new(false),
        });
        if device.connections.is_some() {
            static AT_EXIT: Once = Once::new();
            // (Without memory for it peers hear of the end later.)
            AT_EXIT.call_once(|| {
                // SAFETY: the function stays for as long as this library.
                let _ = unsafe { libc::atexit(leave) };
            });
            let theirs = Arc::clone(&device);
            let thread = std::thread::Builder::new().name("vnic-cm".into());
            thread.spawn(move || {
                block_signals();
                theirs.run();
            })?;
        }
        Ok(device)
    }

    fn context(&self) -> &Context {
        // SAFETY: never closed.
        unsafe { Context::of(self.context.0) }
    }

    /// The device.
    pub fn device(&self) -> &vnic_verbs::Context {
        &self.context().seat.device
    }

    /// The program's pointer to the open device.
    pub fn verbs(&self) -> *mut ibv_context {
        self.context.0
    }

    fn is_there(&self) -> bool {
        !self.gone.load(Acquire) && !self.context().seat.is_of_a_parent()
    }

    /// Management of connections.
    pub fn connections(&self) -> Result<&Connections, Errno> {
        let none = || Errno::UNSUPPORTED.because("the device manages no connections");
        self.connections.as_ref().ok_or_else(none)
    }

    /// The domain for who brings none of its own.
    pub fn domain(&self) -> Result<*mut ibv_pd, Errno> {
        let mut domain = lock(&self.domain);
        if let Some(Shared(pd)) = *domain {
            return Ok(pd);
        }
        let pd = Pd::alloc(self.context())?;
        *domain = Some(Shared(pd));
        Ok(pd)
    }

    /// The XRC domain for who brings none of its own.
    pub fn xrc_domain(&self) -> Result<*mut ibv_xrcd, Errno> {
        let mut domain = lock(&self.xrc_domain);
        if let Some(Shared(xrcd)) = *domain {
            return Ok(xrcd);
        }
        let attributes = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: -1,
            oflags: libc::O_CREAT,
        };
        let xrcd = Xrcd::open(self.context(), &attributes)?;
        *domain = Some(Shared(xrcd));
        Ok(xrcd)
    }

    /// The protection domain, for the library itself.
    pub fn own_domain(&self) -> Result<ProtectionDomain, Errno> {
        let pd = self.domain()?;
        // SAFETY: never freed.
        Ok(unsafe { the::<Pd>(pd) }.inner.clone())
    }

    /// Finds the way to a peer: the number of the MTU there. EHOSTUNREACH: nobody knows the peer's Ethernet address yet.
    pub fn reach(&self, way: &AddressVector) -> Result<u8, Errno> {
        if let Some((mtu, found)) = lock(&self.ways).get(way)
            && found.elapsed() < BELIEVED
        {
            return Ok(*mtu);
        }
        let mtu = self.mtu()?;
        // (What a handle says is not needed: the device finds the address again.)
        self.own_domain()?.create_ah(way)?;
        let mut ways = lock(&self.ways);
        if ways.len() >= WAYS {
            ways.retain(|_, (_, found)| found.elapsed() < BELIEVED);
        }
        if ways.len() < WAYS {
            ways.insert(*way, (mtu, Instant::now()));
        }
        Ok(mtu)
    }

    /// What an operator's policy says of the path of a connection.
    pub fn path(&self, query: &PathQuery, patience: Duration) -> Result<PathAnswer, Errno> {
        Ok(lock(&self.paths).find(self.device(), query, patience)?)
    }

    /// The number of the port's MTU.
    pub fn mtu(&self) -> Result<u8, Errno> {
        let port = self.device().query_port()?;
        if let Some(first) = port.pkeys().first() {
            self.pkey.store(*first, Relaxed);
        }
        Ok(port.active_mtu().number())
    }

    /// The port's first P_Key, when its MTU was asked for last.
    pub fn pkey(&self) -> u16 {
        self.pkey.load(Relaxed)
    }

    /// Adds an identifier, which hears when the device goes.
    pub fn join(&self, party: &Arc<dyn Party>) {
        let mut parties = lock(&self.parties);
        parties.members.insert(key(party), Arc::downgrade(party));
    }

    /// Takes an identifier off the device.
    pub fn leave(&self, party: &Arc<dyn Party>) {
        lock(&self.parties).members.remove(&key(party));
    }

    /// Asks for a connection, of which the party hears. `begun` gets its number before any event of it comes: another thread of the
    /// program may take that before this one is back.
    pub fn connect(
        &self,
        message: &ConnectionMessage,
        party: Arc<dyn Party>,
        begun: impl FnOnce(u32),
    ) -> Result<(), Errno> {
        let connections = self.connections()?;
        // Its first event waits for the lock.
        let mut parties = lock(&self.parties);
        let number = connections.connect(message)?;
        begun(number);
        parties.connections.insert(number, party);
        Ok(())
    }

    /// Forgets a connection.
    pub fn destroy(&self, connection: u32) {
        let mut parties = lock(&self.parties);
        parties.connections.remove(&connection);
        // (The device may be gone, and its connections with it.)
        let _ = self.connections().map(|c| c.destroy(connection));
    }

    /// Listens at a service. `backlog` is that of the first listener at the service.
    pub fn listen(
        &self,
        service: u64,
        whom: Whom,
        backlog: u32,
        party: &Arc<dyn Party>,
    ) -> Result<(), Errno> {
        let connections = self.connections()?;
        let mut parties = lock(&self.parties);
        let there = parties.services.entry(service).or_default();
        if there.is_empty() {
            connections
                .listen(service, backlog)
                .map_err(|e| match Errno::from(e) {
                    // Another process that has the device listens there.
                    Errno::BUSY => Errno(libc::EADDRINUSE),
                    e => e,
                })?;
        }
        there.push(Listener {
            key: key(party),
            whom,
            party: Arc::clone(party),
        });
        Ok(())
    }

    /// Listens at a service no more.
    pub fn unlisten(&self, service: u64, party: &Arc<dyn Party>) {
        let mut parties = lock(&self.parties);
        let Some(there) = parties.services.get_mut(&service) else {
            return;
        };
        there.retain(|listener| listener.key != key(party));
        if there.is_empty() {
            parties.services.remove(&service);
            let _ = self.connections().map(|c| c.unlisten(service));
        }
    }

    /// Takes events until the device is gone.
    fn run(self: Arc<CmDevice>) {
        let Ok(connections) = self.connections() else {
            return;
        };
        loop {
            {
                // A forked child would wait for ever for what this thread has locked.
                let _no_fork = NoFork::hold();
                if let Err(e) = self.dispatch(connections) {
                    complain(&e);
                    if e.is_gone() {
                        return self.end();
                    }
                }
            }
            match poll(&mut [PollFd::new(connections, PollFlags::IN)], None) {
                Ok(_) | Err(io::Errno::INTR) => {}
                Err(_) => return self.end(),
            }
        }
    }

    fn dispatch(self: &Arc<CmDevice>, connections: &Connections) -> Result<(), Error> {
        // Events are taken under the lock: none is of a connection before with the same number.
        let mut parties = lock(&self.parties);
        for event in connections.take_events()? {
            if event.kind == ConnectionEventKind::Request {
                self.ask(&mut parties, connections, event);
            } else if let Some(party) = parties.connections.get(&event.connection) {
                Arc::clone(party).told(event);
            }
        }
        Ok(())
    }

    /// Gives a request to who listens; nobody: it is rejected.
    fn ask(self: &Arc<CmDevice>, parties: &mut Parties, connections: &Connections, event: ConnectionEvent) {
        let (connection, transport, service) =
            (event.connection, event.message.transport, event.message.service);
        let header = Header::read(&event.message.private_data);
        let listener = header.and_then(|header| {
            let there = parties.services.get(&event.message.service)?;
            let fitting = there
                .iter()
                .filter_map(|l| Some((l.whom.fits(header.destination)?, l)));
            Some((Arc::clone(&fitting.max_by_key(|(how, _)| *how)?.1.party), header))
        });
        let reason = match listener {
            Some((listener, header)) => match listener.asked(self, event, header) {
                Some(party) => {
                    parties.connections.insert(connection, party);
                    return;
                }
                None => RESOURCES,
            },
            None => {
                complain(&format_args!(
                    "nobody listens at service {service:#x} for {header:?}"
                ));
                INVALID_SERVICE
            }
        };
        let reject = ConnectionMessage {
            reason,
            transport,
            ..ConnectionMessage::default()
        };
        let rejected = connections.reject(connection, &reject);
        if let Err(e) = rejected.and_then(|()| connections.destroy(connection)) {
            complain(&e);
        }
    }

    /// The device is gone.
    fn end(&self) {
        let _no_fork = NoFork::hold();
        self.gone.store(true, Release);
        let parties = std::mem::take(&mut *lock(&self.parties));
        for party in parties.members.values().filter_map(Weak::upgrade) {
            party.removed();
        }
    }
}

/// The process ends: peers are told, as the kernel tells them for its identifiers. (Those of a process that is killed hear of it by
/// the retries of their queue pairs.)
extern "C" fn leave() {
    // Who exits within a call may hold a lock.
    let Ok(open) = OPEN.try_lock() else {
        return;
    };
    for device in open.devices.iter().filter(|device| device.is_there()) {
        let Ok(mut parties) = device.parties.try_lock() else {
            continue;
        };
        for (connection, _) in parties.connections.drain() {
            let _ = device.connections().map(|c| c.destroy(connection));
        }
    }
}

/// What a party goes by.
fn key(party: &Arc<dyn Party>) -> usize {
    Arc::as_ptr(party).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_that_fits_best_is_asked() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let own = Whom::One(ip("10.0.0.1"));
        assert!(own.fits(ip("10.0.0.1")) > Whom::AnyV4.fits(ip("10.0.0.1")));
        assert_eq!(own.fits(ip("10.0.0.2")), None);
        assert_eq!(Whom::AnyV4.fits(ip("fe80::1")), None);
        let (both, six) = (Whom::AnyV6 { both: true }, Whom::AnyV6 { both: false });
        assert!(Whom::AnyV4.fits(ip("10.0.0.1")) > both.fits(ip("10.0.0.1")));
        assert_eq!(six.fits(ip("10.0.0.1")), None);
        assert!(six.fits(ip("fe80::1")).is_some() && both.fits(ip("10.0.0.1")).is_some());
    }
}
