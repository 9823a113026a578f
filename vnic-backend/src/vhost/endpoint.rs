//! A socket of an adapter: shared by the control plane, the socket's thread and the vhost-user device.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::rdma::Place;
use vnic_engine::settings::AdapterSettings;
use vnic_engine::virtio_net::control::Control;
use vnic_fabric::switch::PortId;
use vnic_wire::MacAddr;

use super::budget::{Budgets, Of, Share};
use super::early;
use super::voices::Voices;
use crate::call::{Call, Signals};
use crate::datapath::{AdapterCounters, ControlStart, RingStart, WorkerHandle};
use crate::hub::EventHub;
use crate::mem::Lender;
use crate::rdma::{Attachment, RdmaRings};
use crate::types::{
    AdapterSpec, AdapterStatus, AttachState, BurstStatus, Caller, DroplessStatus, NicError, NicEventKind,
    RdmaOwners, RdmaPort, SocketRole,
};

/// Function of an adapter to which a socket leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// virtio-net.
    Ethernet,
    /// RDMA.
    Rdma,
}

impl Role {
    fn bit(self) -> u8 {
        match self {
            Role::Ethernet => 1,
            Role::Rdma => 2,
        }
    }
}

/// A socket of an adapter: shared by the control plane and the socket's thread.
pub struct Endpoint {
    /// Function to which the socket leads.
    pub role: Role,
    /// Specifications of the adapter.
    specs: Arc<Mutex<Specs>>,
    /// Port of the adapter at the switch.
    pub id: PortId,
    /// Index of the adapter's data core.
    pub core: usize,
    /// Counters of the adapter.
    pub counters: Arc<AdapterCounters>,
    /// Functions of the adapter that have a driver, a bit each: the link is up while any has.
    link: Arc<Mutex<u8>>,
    /// Whether the driver of the configuration space is asked to announce the guest.
    pub announcing: Arc<AtomicBool>,
    /// Settings that act on the adapter.
    settings: Mutex<AdapterSettings>,
    workers: Arc<Vec<WorkerHandle>>,
    hub: EventHub,
    /// Which adapters speak for their addresses.
    voices: Arc<Voices>,
    /// Resources of the VMMs of both sockets.
    budgets: Arc<Budgets>,
    state: Mutex<State>,
    /// Notified when a connection has ended.
    left: Condvar,
    /// Eventfd that wakes the socket's thread when the adapter ends or is restarted.
    bell: OwnedFd,
}

/// Specifications of an adapter, for both of its sockets.
struct Specs {
    /// The one that acts.
    acting: Arc<AdapterSpec>,
    /// The one that acts after the next restart.
    wanted: Arc<AdapterSpec>,
}

struct State {
    attach: AttachState,
    since: SystemTime,
    /// Connections: one, or those of processes that share the function.
    peers: Vec<Peer>,
    /// Number of the next connection.
    next: u64,
    ending: bool,
    failed: bool,
    /// What the operator has done to the name of the socket.
    name: SocketName,
    /// What the operator makes the port say.
    port: RdmaPort,
}

/// What is behind the path of a socket, so that processes see that a device is gone, or has another number.
#[derive(Debug, Clone, Copy, Default)]
pub struct SocketName {
    /// Nobody shall find it.
    pub away: bool,
    /// Number that the device has among those of a process; `None`: that of its place.
    pub number: Option<u32>,
}

impl SocketName {
    fn of(self, path: PathBuf) -> PathBuf {
        let suffix = match (self.away, self.number) {
            (false, None) => return path,
            (true, _) => ".away".to_owned(),
            (false, Some(number)) => format!(".{number}"),
        };
        let mut path = path.into_os_string();
        path.push(suffix);
        path.into()
    }
}

/// A connection to a socket.
struct Peer {
    id: u64,
    /// `None`: it was closed by us.
    connection: Option<Arc<Lender>>,
    /// The process at the other end.
    vmm: Caller,
    /// The name of its program, if it is known.
    program: Option<String>,
    has: Has,
    features: u64,
    pairs: u16,
    memory: u64,
    /// Whether a driver has run.
    driver_ran: bool,
    /// Channel by which the VMM hears news. Kept open: User-Mode-Linux takes its end for the end of the device.
    channel: Option<UnixStream>,
}

/// What a connection has of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Has {
    /// Nothing yet: it has not said whether it shares.
    Nothing,
    /// Nothing: others have what it wanted.
    Refused,
    /// All of it.
    Whole,
    /// A place beside other processes.
    Place(Place),
}

impl State {
    fn peer(&mut self, id: u64) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.id == id)
    }

    /// What the connections come to: a driver runs on one, or there is one.
    fn attached(&self) -> AttachState {
        match self.peers.iter().map(|peer| peer.pairs).max() {
            None => AttachState::Detached,
            Some(0) => AttachState::Attached,
            Some(_) => AttachState::Up,
        }
    }
}

impl Endpoint {
    /// Makes the Ethernet endpoint of an adapter; no thread serves it yet.
    pub fn new(
        spec: AdapterSpec,
        id: PortId,
        core: usize,
        counters: Arc<AdapterCounters>,
        workers: Arc<Vec<WorkerHandle>>,
        hub: EventHub,
        voices: Arc<Voices>,
    ) -> Result<Self, NicError> {
        let state = State {
            attach: AttachState::Detached,
            since: SystemTime::now(),
            peers: Vec::new(),
            next: 0,
            ending: false,
            failed: false,
            name: SocketName::default(),
            port: RdmaPort::default(),
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Endpoint {
            role: Role::Ethernet,
            link: Arc::default(),
            settings: Mutex::default(),
            budgets: Arc::new(Budgets::new(spec.vmm)),
            specs: {
                let acting = Arc::new(spec);
                let wanted = acting.clone();
                Arc::new(Mutex::new(Specs { acting, wanted }))
            },
            id,
            core,
            counters,
            announcing: Arc::default(),
            workers,
            hub,
            voices,
            state: Mutex::new(state),
            left: Condvar::new(),
            bell: bell.map_err(NicError::os("making an eventfd"))?,
        })
    }

    /// Makes the RDMA endpoint of the adapter whose Ethernet endpoint this is.
    pub fn rdma(&self) -> Result<Endpoint, NicError> {
        let (spec, counters) = (AdapterSpec::clone(&self.spec()), self.counters.clone());
        let (workers, hub, voices) = (self.workers.clone(), self.hub.clone(), self.voices.clone());
        Ok(Endpoint {
            role: Role::Rdma,
            specs: self.specs.clone(),
            link: self.link.clone(),
            budgets: self.budgets.clone(),
            ..Endpoint::new(spec, self.id, self.core, counters, workers, hub, voices)?
        })
    }

    fn specs(&self) -> MutexGuard<'_, Specs> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The specification that acts.
    pub fn spec(&self) -> Arc<AdapterSpec> {
        self.specs().acting.clone()
    }

    /// The specification that acts after the next restart.
    pub fn wanted(&self) -> Arc<AdapterSpec> {
        self.specs().wanted.clone()
    }

    /// Sets the specification that acts, as far as it can under traffic, and the one that acts after the next restart.
    pub fn set_specs(&self, acting: AdapterSpec, wanted: AdapterSpec) {
        let (acting, wanted) = (Arc::new(acting), Arc::new(wanted));
        *self.specs() = Specs { acting, wanted };
    }

    /// The path of the socket.
    pub fn socket(&self) -> PathBuf {
        let spec = self.spec();
        match (self.role, &spec.rdma_socket) {
            (Role::Rdma, Some(socket)) => socket.clone(),
            _ => spec.eth_socket.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings that act on the adapter.
    pub fn settings(&self) -> AdapterSettings {
        self.settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Sets the settings that act on the adapter.
    pub fn set_settings(&self, settings: AdapterSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Status of the adapter, with the guest's state at this socket.
    pub fn status(&self) -> AdapterStatus {
        let s = self.state();
        AdapterStatus {
            spec: AdapterSpec::clone(&self.spec()),
            wanted: AdapterSpec::clone(&self.wanted()),
            settings: self.acting(),
            port: self.id,
            speaks: self.voices.speaks(self.id),
            state: s.attach,
            since: s.since,
            features: s.peers.first().map_or(0, |peer| peer.features),
            queue_pairs_enabled: s.peers.iter().map(|peer| peer.pairs).sum(),
            dropless: self.dropless(),
            burst: self.burst(),
            memory_bytes: s.peers.iter().map(|peer| peer.memory).sum(),
            regions: self.budgets.get(Of::Regions),
            descriptors: self.budgets.get(Of::Descriptors),
        }
    }

    /// Processes that have the function.
    pub fn owners(&self) -> RdmaOwners {
        let state = self.state();
        let owner = |peer: &Peer| match peer.has {
            Has::Nothing | Has::Refused => None,
            Has::Whole => Some((None, peer.vmm)),
            Has::Place(place) => Some((Some(place), peer.vmm)),
        };
        RdmaOwners(state.peers.iter().filter_map(owner).collect())
    }

    /// The name that the program of a connection had when it came.
    pub fn program(&self, peer: u64) -> Option<String> {
        self.state().peer(peer)?.program.clone()
    }

    /// Sets the name of a connection's program.
    pub fn set_program(&self, peer: u64, program: Option<String>) {
        if let Some(peer) = self.state().peer(peer) {
            peer.program = program;
        }
    }

    /// Settings that act: dropless mode may have ended by itself, or an OID may have begun it.
    fn acting(&self) -> AdapterSettings {
        let (mut settings, dropless) = (self.settings(), self.dropless());
        settings.delay_drop.timeout = if dropless.on { dropless.timeout } else { 0 };
        settings
    }

    /// Dropless mode of the adapter, from its data core's counters.
    pub fn dropless(&self) -> DroplessStatus {
        let (waits, queues) = (&self.counters.waits, &self.counters.queues);
        let sum = |c: Q| queues.iter().map(|q| q.get(c as usize)).sum();
        DroplessStatus {
            on: waits.on.load(Ordering::Acquire) > 0,
            timeout: waits.timeout.load(Ordering::Relaxed),
            entries: sum(Q::DroplessEntries),
            exits: sum(Q::DroplessExits),
            timeouts: sum(Q::DroplessTimeouts),
            waiting: waits.beyond.load(Ordering::Relaxed),
        }
    }

    /// The adapter's reserve for bursts, from its data core's counters.
    fn burst(&self) -> BurstStatus {
        let (waits, acting) = (&self.counters.waits, self.settings());
        BurstStatus {
            mode: acting.burst,
            reserve: acting.reserve,
            frames: waits.reserved.load(Ordering::Relaxed),
            frames_max: waits.reserved_max.load(Ordering::Relaxed),
            bytes: waits.bytes.load(Ordering::Relaxed),
            bytes_max: waits.bytes_max.load(Ordering::Relaxed),
        }
    }

    /// A new connection's share of the adapter's budgets.
    pub fn share(&self) -> Share {
        Share::new(self.budgets.clone())
    }

    /// Publishes an event of the adapter.
    pub fn event(&self, kind: NicEventKind) {
        self.hub.publish(&self.spec().name, kind);
    }

    /// Signals by which the adapter's data core interrupts guests.
    pub fn signals(&self) -> Arc<Signals> {
        self.worker().signals.clone()
    }

    /// The data core of the adapter.
    fn worker(&self) -> &WorkerHandle {
        &self.workers[self.core]
    }

    /// Hands a ring to the data core. On return it runs: what a neighbour sends from then on finds it.
    pub fn start_ring(&self, start: RingStart) {
        let id = self.id;
        self.worker().call(move |w| w.start_ring(id, start));
    }

    /// Takes a ring back from the data core. Returns the index at which it resumes.
    pub fn stop_ring(&self, index: u16) -> Option<u16> {
        let id = self.id;
        let stopped = self
            .worker()
            .start_later(move |w, done| w.stop_ring(id, index, done));
        stopped.wait().flatten()
    }

    /// Hands the control queue of the Ethernet function to the data core.
    pub fn start_control(&self, start: ControlStart) {
        let id = self.id;
        self.worker().call(move |w| w.start_control(id, start));
    }

    /// Takes the control queue from the data core. Returns the index at which it resumes.
    pub fn stop_control(&self) -> Option<u16> {
        let id = self.id;
        self.worker().call(move |w| w.stop_control(id)).flatten()
    }

    /// Sets the call eventfd of the control queue.
    pub fn set_control_call(&self, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| w.set_control_call(id, call));
    }

    /// Forgets what the driver of the Ethernet function has set: it has left.
    pub fn forget_driver(&self) {
        let id = self.id;
        self.worker().call(move |w| w.forget_driver(id));
    }

    /// What the driver of the Ethernet function has set, if it has a control queue.
    pub fn driver(&self) -> Option<Control> {
        let id = self.id;
        self.worker().ask(move |w| w.driver(id)).flatten()
    }

    /// Sets the call eventfd of a ring without stopping it.
    pub fn set_call(&self, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| w.set_call(id, index, call));
    }

    /// Gives the function's driver to the data core. On return it is served.
    pub fn attach_driver(&self, place: Option<Place>, attachment: Attachment) {
        let id = self.id;
        self.worker()
            .call(move |w| w.attach_driver((id, place), attachment));
    }

    /// Gives the data core the function's virtqueues in new memory. On return the old memory is not used any more.
    pub fn remap_driver(&self, place: Option<Place>, rings: RdmaRings) {
        let id = self.id;
        let remapped = self
            .worker()
            .start_later(move |w, done| w.functions.remap((id, place), rings, done));
        remapped.wait();
    }

    /// Takes the function's driver from the data core. Returns the ring indexes of its virtqueues.
    pub fn detach_driver(&self, place: Option<Place>) -> Vec<u16> {
        let id = self.id;
        self.worker()
            .call(move |w| w.detach_driver((id, place)))
            .unwrap_or_default()
    }

    /// Sets the call eventfd of a virtqueue of the function's driver.
    pub fn set_driver_call(&self, place: Option<Place>, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker()
            .call(move |w| w.functions.set_call((id, place), index, call));
    }

    /// Notes that the guest is about to run, or that it has stopped. On return the switch knows the addresses of the adapter, if they
    /// belong there.
    pub fn guest_runs(&self, runs: bool) {
        self.voices.guest_runs(self.id, runs);
    }

    /// Broadcasts the place of an address of the adapter (RARP).
    pub fn announce_moved(&self, mac: MacAddr) {
        self.voices.announce(self.id, mac);
        self.ask_guest_to_announce();
    }

    /// Asks a guest whose configuration space is this device's to announce itself: it knows its IP addresses.
    fn ask_guest_to_announce(&self) {
        self.announcing.store(true, Ordering::Relaxed);
        self.tell_config_change(&self.state());
    }

    /// Tells the VMM of a guest whose configuration space is this device's that the space has changed.
    fn tell_config_change(&self, state: &State) {
        if !self.spec().control_queue {
            return;
        }
        for channel in state.peers.iter().filter_map(|peer| peer.channel.as_ref()) {
            // A VMM that does not read them misses news.
            let _ = early::tell_config_change(channel);
        }
    }

    /// Records what the driver of a connection has negotiated, and updates the link.
    pub fn set_guest(&self, id: u64, features: u64, pairs: u16, memory: u64) {
        if let Some(peer) = self.state().peer(id) {
            (peer.features, peer.pairs, peer.memory) = (features, pairs, memory);
            peer.driver_ran |= pairs > 0;
        }
        self.follow();
    }

    /// Keeps the channel by which the VMM of a connection hears news.
    pub fn set_channel(&self, id: u64, channel: UnixStream) {
        if let Some(peer) = self.state().peer(id) {
            peer.channel = Some(channel);
        }
    }

    /// What the port says, if not the truth.
    pub fn port(&self) -> RdmaPort {
        self.state().port
    }

    /// Sets what the port says. A guest whose configuration space is this device's hears of it.
    pub fn set_port(&self, port: RdmaPort) {
        let mut s = self.state();
        if std::mem::replace(&mut s.port, port) != port {
            self.tell_config_change(&s);
        }
    }

    /// Gives a connection the whole function, or a place in it (`shares`): beside a guest nobody has one. `None`: others have what it
    /// wants. Who has something keeps it.
    pub fn claim(&self, id: u64, shares: bool) -> Option<Has> {
        let mut s = self.state();
        let taken: Vec<Has> = s
            .peers
            .iter()
            .filter(|peer| peer.id != id)
            .map(|peer| peer.has)
            .collect();
        let peer = s.peer(id)?;
        if peer.has != Has::Nothing {
            return Some(peer.has);
        }
        let alone = taken.iter().all(|has| matches!(has, Has::Nothing | Has::Refused));
        let mut places = (0..Place::COUNT).filter_map(Place::new).map(Has::Place);
        let wanted = match shares {
            false => alone.then_some(Has::Whole),
            true if taken.contains(&Has::Whole) => None,
            true => places.find(|place| !taken.contains(place)),
        };
        peer.has = wanted.unwrap_or(Has::Refused);
        wanted
    }

    /// What a connection has of the function.
    pub fn has(&self, id: u64) -> Has {
        self.state().peer(id).map_or(Has::Nothing, |peer| peer.has)
    }

    /// Brings state and link in line with the connections.
    fn follow(&self) {
        // Held while the cores are told, so that they hear of both sockets, and of all connections, in the right order.
        let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, was) = {
            let mut s = self.state();
            let to = if s.failed {
                AttachState::Failed
            } else {
                s.attached()
            };
            if s.attach == to {
                return;
            }
            s.since = SystemTime::now();
            (to, std::mem::replace(&mut s.attach, to))
        };
        let up = to == AttachState::Up;
        let mut told = Vec::new();
        if up || was == AttachState::Up {
            if up {
                *link |= self.role.bit();
            } else {
                *link &= !self.role.bit();
            }
            let (id, up, mac) = (self.id, *link != 0, self.spec().macs.first().copied());
            let mac = mac.filter(|_| self.voices.speaks(id));
            let tell = |w: &WorkerHandle| w.start(move |w| w.set_link(id, up, mac));
            told = self.workers.iter().map(tell).collect();
        }
        drop(link);
        for core in told {
            core.wait();
        }
        let state = self.status().state;
        self.event(match self.role {
            Role::Ethernet => NicEventKind::AdapterState(state),
            Role::Rdma => NicEventKind::RdmaState(state),
        });
    }

    /// Lets a core, and the guest, announce the adapter's addresses again, while its link is up: neighbours have to learn another port.
    pub fn announce(&self, core: usize) {
        // Held as in `set_attach`, so that the core hears nothing outdated.
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if *link == 0 {
            return;
        }
        for mac in self.spec().macs.iter().copied().chain(self.settings().macs) {
            let id = self.id;
            self.workers[core].post(move |w| w.set_link(id, true, Some(mac)));
        }
        drop(link);
        self.ask_guest_to_announce();
    }

    /// Closes the connection; the socket stays. A failed adapter works again.
    pub fn restart(&self) {
        self.hang_up(|s| s.failed = false);
        self.ring_bell();
    }

    /// Closes the connection after a bug; the adapter has failed until it is restarted.
    pub fn fail(&self) {
        self.hang_up(|s| s.failed = true);
        self.follow();
    }

    /// Ends the socket's thread.
    pub fn end(&self) {
        self.hang_up(|s| s.ending = true);
        self.ring_bell();
    }

    /// Changes the state and closes all connections.
    fn hang_up(&self, change: impl FnOnce(&mut State)) {
        let connections: Vec<_> = {
            let mut s = self.state();
            change(&mut s);
            s.peers
                .iter_mut()
                .filter_map(|peer| peer.connection.take())
                .collect()
        };
        for lender in connections {
            lender.hang_up();
        }
    }

    fn ring_bell(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Eventfd that the control plane writes, and on which the socket's thread waits.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Clears the eventfd.
    pub fn silence_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// Whether the socket's thread is to end.
    pub fn is_ending(&self) -> bool {
        self.state().ending
    }

    /// Whether a bug has hit the adapter since it was restarted.
    pub fn has_failed(&self) -> bool {
        self.state().failed
    }

    /// Whether a connection is there and was not closed by us.
    pub fn is_connected(&self, id: u64) -> bool {
        self.state()
            .peer(id)
            .is_some_and(|peer| peer.connection.is_some())
    }

    /// Records that a VMM, or a process, is connected. Returns the number of the connection; `None`: the socket's thread is to end, and
    /// serves nobody.
    pub fn connect(&self, lender: Arc<Lender>, vmm: Caller) -> Option<u64> {
        let id = {
            let mut s = self.state();
            if s.ending {
                return None;
            }
            let id = s.next;
            s.next += 1;
            s.peers.push(Peer {
                id,
                connection: Some(lender),
                vmm,
                program: None,
                has: match self.role {
                    Role::Ethernet => Has::Whole,
                    Role::Rdma => Has::Nothing,
                },
                features: 0,
                pairs: 0,
                memory: 0,
                driver_ran: false,
                channel: None,
            });
            id
        };
        self.follow();
        Some(id)
    }

    /// Whether a driver has run on a connection.
    pub fn ran(&self, id: u64) -> bool {
        self.state().peer(id).is_some_and(|peer| peer.driver_ran)
    }

    /// Records that a connection has ended.
    pub fn disconnect(&self, id: u64) {
        self.state().peers.retain(|peer| peer.id != id);
        if self.role == Role::Ethernet {
            self.guest_runs(false);
            self.forget_driver();
        }
        self.follow();
        self.left.notify_all();
    }

    /// Waits until all connections have ended.
    pub fn wait_until_left(&self) {
        let mut s = self.state();
        while !s.peers.is_empty() {
            s = self.left.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives the socket another name, if the daemon listens on it. Connections go on.
    pub fn rename_socket(&self, change: impl FnOnce(&mut SocketName)) -> Result<(), NicError> {
        let (path, mut state) = (self.socket(), self.state());
        let (before, mut name) = (state.name.of(path.clone()), state.name);
        change(&mut name);
        let now = name.of(path);
        if now != before && self.spec().socket_role == SocketRole::Listen {
            std::fs::rename(&before, &now)
                .map_err(NicError::os(format!("renaming the socket {}", before.display())))?;
        }
        state.name = name;
        Ok(())
    }

    /// Removes the socket from the file system, if the daemon listened on it.
    pub fn remove_socket(&self) {
        if self.spec().socket_role == SocketRole::Listen {
            let name = self.state().name;
            let _ = std::fs::remove_file(name.of(self.socket()));
        }
    }
}
