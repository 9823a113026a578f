//! A socket of an adapter: shared by the control plane, the socket's thread and the vhost-user device.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::PortId;
use vnic_wire::MacAddr;

use super::budget::{Budgets, Of, Share};
use super::voices::Voices;
use crate::call::{Call, Signals};
use crate::datapath::{AdapterCounters, RingStart, WorkerHandle};
use crate::hub::EventHub;
use crate::mem::Lender;
use crate::rdma::{Attachment, RdmaRings};
use crate::types::{
    AdapterSpec, AdapterStatus, AttachState, BurstStatus, Caller, DroplessStatus, NicError, NicEventKind,
    SocketRole,
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
    /// Settings that act on the adapter.
    settings: Mutex<AdapterSettings>,
    workers: Arc<Vec<WorkerHandle>>,
    hub: EventHub,
    /// Which adapters speak for their addresses.
    voices: Arc<Voices>,
    /// Resources of the VMMs of both sockets.
    budgets: Arc<Budgets>,
    state: Mutex<State>,
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
    features: u64,
    pairs: u16,
    memory: u64,
    connection: Option<Arc<Lender>>,
    /// Process at the other end of `connection`.
    vmm: Option<Caller>,
    ending: bool,
    failed: bool,
    /// Whether a driver has run on the current connection.
    driver_ran: bool,
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
            features: 0,
            pairs: 0,
            memory: 0,
            connection: None,
            vmm: None,
            ending: false,
            failed: false,
            driver_ran: false,
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
            workers,
            hub,
            voices,
            state: Mutex::new(state),
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
            features: s.features,
            queue_pairs_enabled: s.pairs,
            dropless: self.dropless(),
            burst: self.burst(),
            memory_bytes: s.memory,
            regions: self.budgets.get(Of::Regions),
            descriptors: self.budgets.get(Of::Descriptors),
        }
    }

    /// Process that is connected to the socket.
    pub fn vmm(&self) -> Option<Caller> {
        self.state().vmm
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

    /// Sets the call eventfd of a ring without stopping it.
    pub fn set_call(&self, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| w.set_call(id, index, call));
    }

    /// Gives the function's driver to the data core. On return it is served.
    pub fn attach_driver(&self, attachment: Attachment) {
        let id = self.id;
        self.worker().call(move |w| w.attach_driver(id, attachment));
    }

    /// Gives the data core the function's virtqueues in new memory. On return the old memory is not used any more.
    pub fn remap_driver(&self, rings: RdmaRings) {
        let id = self.id;
        let remapped = self
            .worker()
            .start_later(move |w, done| w.functions.remap(id, rings, done));
        remapped.wait();
    }

    /// Takes the function's driver from the data core. Returns the ring indexes of its virtqueues.
    pub fn detach_driver(&self) -> Vec<u16> {
        let id = self.id;
        self.worker()
            .call(move |w| w.detach_driver(id))
            .unwrap_or_default()
    }

    /// Sets the call eventfd of a virtqueue of the function's driver.
    pub fn set_driver_call(&self, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| {
            if let Some(function) = w.functions.get_mut(id) {
                function.set_call(index, call);
            }
        });
    }

    /// Notes that the guest is about to run, or that it has stopped. On return the switch knows the addresses of the adapter, if they
    /// belong there.
    pub fn guest_runs(&self, runs: bool) {
        self.voices.guest_runs(self.id, runs);
    }

    /// Broadcasts the place of an address of the adapter (RARP).
    pub fn announce_moved(&self, mac: MacAddr) {
        self.voices.announce(self.id, mac);
    }

    /// Records what the guest's driver has negotiated, and updates the link.
    pub fn set_guest(&self, features: u64, pairs: u16, memory: u64) {
        {
            let mut s = self.state();
            (s.features, s.pairs, s.memory) = (features, pairs, memory);
            s.driver_ran |= pairs > 0;
        }
        self.set_attach(if pairs > 0 {
            AttachState::Up
        } else {
            AttachState::Attached
        });
    }

    fn set_attach(&self, to: AttachState) {
        let was = {
            let mut s = self.state();
            let to = if s.failed { AttachState::Failed } else { to };
            if s.attach == to {
                return;
            }
            s.since = SystemTime::now();
            std::mem::replace(&mut s.attach, to)
        };
        let up = to == AttachState::Up;
        if up || was == AttachState::Up {
            // Held while the cores are told, so that they hear of both sockets in the right order.
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            if up {
                *link |= self.role.bit();
            } else {
                *link &= !self.role.bit();
            }
            let (id, up, mac) = (self.id, *link != 0, self.spec().macs.first().copied());
            let mac = mac.filter(|_| self.voices.speaks(id));
            let tell = |w: &WorkerHandle| w.start(move |w| w.set_link(id, up, mac));
            let told: Vec<_> = self.workers.iter().map(tell).collect();
            drop(link);
            for core in told {
                core.wait();
            }
        }
        let state = self.status().state;
        self.event(match self.role {
            Role::Ethernet => NicEventKind::AdapterState(state),
            Role::Rdma => NicEventKind::RdmaState(state),
        });
    }

    /// Lets a core announce the adapter's addresses again, while its link is up: neighbours have to learn another port.
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
    }

    /// Closes the connection; the socket stays. A failed adapter works again.
    pub fn restart(&self) {
        self.hang_up(|s| s.failed = false);
        self.ring_bell();
    }

    /// Closes the connection after a bug; the adapter has failed until it is restarted.
    pub fn fail(&self) {
        self.hang_up(|s| s.failed = true);
        self.set_attach(AttachState::Failed);
    }

    /// Ends the socket's thread.
    pub fn end(&self) {
        self.hang_up(|s| s.ending = true);
        self.ring_bell();
    }

    /// Changes the state and closes the connection.
    fn hang_up(&self, change: impl FnOnce(&mut State)) {
        let connection = {
            let mut s = self.state();
            change(&mut s);
            s.connection.take()
        };
        if let Some(lender) = connection {
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

    /// Whether a VMM is connected and its connection was not closed.
    pub fn is_connected(&self) -> bool {
        self.state().connection.is_some()
    }

    /// Records that a VMM is connected. False: the socket's thread is to end, and serves no VMM.
    pub fn connect(&self, lender: Arc<Lender>, vmm: Caller) -> bool {
        {
            let mut s = self.state();
            if s.ending {
                return false;
            }
            s.driver_ran = false;
            s.connection = Some(lender);
            s.vmm = Some(vmm);
        }
        self.set_attach(AttachState::Attached);
        true
    }

    /// Records that the VMM is gone. Returns whether its driver ran.
    pub fn disconnect(&self) -> bool {
        {
            let mut s = self.state();
            s.connection = None;
            s.vmm = None;
            (s.features, s.pairs, s.memory) = (0, 0, 0);
        }
        if self.role == Role::Ethernet {
            self.guest_runs(false);
        }
        self.set_attach(AttachState::Detached);
        self.state().driver_ran
    }

    /// Removes the socket from the file system, if the daemon listened on it.
    pub fn remove_socket(&self) {
        if self.spec().socket_role == SocketRole::Listen {
            let _ = std::fs::remove_file(self.socket());
        }
    }
}
