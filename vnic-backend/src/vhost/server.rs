//! An adapter's socket: accept or connect, serve one VMM at a time, come back for the next.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use vhost::vhost_user::{BackendReqHandler, Error as VhostError, VhostUserBackendReqHandlerMut};
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::PortId;

use super::budget::{Budgets, Of, Share};
use super::connection::{Connection, Function};
use super::eth::Ethernet;
use super::rdma::Rdma;
use super::{admit, early};
use crate::call::{Call, Signals};
use crate::confine::Filter;
use crate::datapath::{AdapterCounters, RingStart, WorkerHandle, answer};
use crate::hub::EventHub;
use crate::mem::Lender;
use crate::rdma::{Attachment, RdmaRings};
use crate::types::{AdapterSpec, AdapterStatus, AttachState, NicError, NicEventKind, SocketRole};

/// How often a connecting adapter tries, and one that cannot accept (there may be no descriptor free).
const RETRY: Duration = Duration::from_millis(50);

/// The pause after a connection on which no driver ever ran; it doubles with each further one.
const SHORT_PAUSE: Duration = Duration::from_millis(5);
/// The longest such pause.
const LONG_PAUSE: Duration = Duration::from_millis(640);

/// Which function of an adapter a socket leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// virtio-net.
    Ethernet,
    /// Verbs.
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

/// Which functions of an adapter have a driver: while any has, its link is up.
pub type Link = Arc<Mutex<u8>>;

/// One socket of an adapter, as the control plane and the socket's thread share it.
pub struct Endpoint {
    /// Which function it leads to.
    pub role: Role,
    /// What the adapter was made from.
    pub spec: AdapterSpec,
    /// Its port of the switch.
    pub id: PortId,
    /// Index of its data core.
    pub core: usize,
    /// Its counters.
    pub counters: Arc<AdapterCounters>,
    link: Link,
    /// What acts on the adapter.
    settings: Mutex<AdapterSettings>,
    workers: Arc<Vec<WorkerHandle>>,
    hub: EventHub,
    /// What the VMMs of both sockets have.
    budgets: Arc<Budgets>,
    state: Mutex<State>,
    /// Written when the adapter is to end or to be restarted.
    bell: OwnedFd,
}

struct State {
    attach: AttachState,
    since: SystemTime,
    features: u64,
    pairs: u16,
    memory: u64,
    connection: Option<Arc<Lender>>,
    ending: bool,
    failed: bool,
    /// A driver has run on the present connection.
    driver_ran: bool,
}

impl Endpoint {
    /// Not yet served.
    pub fn new(
        spec: AdapterSpec,
        id: PortId,
        core: usize,
        counters: Arc<AdapterCounters>,
        workers: Arc<Vec<WorkerHandle>>,
        hub: EventHub,
    ) -> io::Result<Self> {
        let state = State {
            attach: AttachState::Detached,
            since: SystemTime::now(),
            features: 0,
            pairs: 0,
            memory: 0,
            connection: None,
            ending: false,
            failed: false,
            driver_ran: false,
        };
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Endpoint {
            role: Role::Ethernet,
            link: Link::default(),
            settings: Mutex::default(),
            budgets: Arc::new(Budgets::new(spec.vmm)),
            spec,
            id,
            core,
            counters,
            workers,
            hub,
            state: Mutex::new(state),
            bell,
        })
    }

    /// The RDMA socket of the adapter whose Ethernet socket this is.
    pub fn rdma(&self) -> io::Result<Endpoint> {
        let (spec, counters) = (self.spec.clone(), self.counters.clone());
        let (workers, hub) = (self.workers.clone(), self.hub.clone());
        Ok(Endpoint {
            role: Role::Rdma,
            link: self.link.clone(),
            budgets: self.budgets.clone(),
            ..Endpoint::new(spec, self.id, self.core, counters, workers, hub)?
        })
    }

    /// Where it is.
    pub fn socket(&self) -> &Path {
        match (self.role, &self.spec.rdma_socket) {
            (Role::Rdma, Some(socket)) => socket,
            _ => &self.spec.eth_socket,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What acts on the adapter.
    pub fn settings(&self) -> AdapterSettings {
        self.settings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Notes what acts on the adapter.
    pub fn set_settings(&self, settings: AdapterSettings) {
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// As it is now.
    pub fn status(&self) -> AdapterStatus {
        let s = self.state();
        AdapterStatus {
            spec: self.spec.clone(),
            settings: self.acting(),
            port: self.id,
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

    /// The part of a new connection.
    pub fn share(&self) -> Share {
        Share::new(self.budgets.clone())
    }

    /// Tells subscribers.
    pub fn event(&self, kind: NicEventKind) {
        self.hub.publish(&self.spec.name, kind);
    }

    /// How its data core interrupts guests.
    pub fn signals(&self) -> Arc<Signals> {
        self.worker().signals.clone()
    }

    /// Its data core.
    fn worker(&self) -> &WorkerHandle {
        &self.workers[self.core]
    }

    /// Hands a ring to the data core.
    pub fn start_ring(&self, start: RingStart) {
        let id = self.id;
        self.worker().post(move |w| w.start_ring(id, start));
    }

    /// Takes a ring back from the data core; answers where to resume.
    pub fn stop_ring(&self, index: u16) -> Option<u16> {
        let id = self.id;
        let stopped = self
            .worker()
            .start_later(move |w, done| w.stop_ring(id, index, done));
        stopped.wait().flatten()
    }

    /// Interrupts the guest through another descriptor, without stopping the ring.
    pub fn set_call(&self, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| w.set_call(id, index, call));
    }

    /// Gives the function's driver to the data core.
    pub fn attach_driver(&self, attachment: Attachment) {
        let id = self.id;
        self.worker().post(move |w| w.attach_driver(id, attachment));
    }

    /// Gives the data core the function's virtqueues in other memory; the old one is not used any more when this returns.
    pub fn remap_driver(&self, rings: RdmaRings) {
        let id = self.id;
        let remapped = self
            .worker()
            .start_later(move |w, done| w.functions.remap(id, rings, done));
        remapped.wait();
    }

    /// Takes the function's driver from the data core; answers where its virtqueues were.
    pub fn detach_driver(&self) -> Vec<u16> {
        let id = self.id;
        self.worker()
            .call(move |w| w.detach_driver(id))
            .unwrap_or_default()
    }

    /// Interrupts the function's driver through another descriptor.
    pub fn set_driver_call(&self, index: u16, call: Option<Arc<Call>>) {
        let id = self.id;
        self.worker().call(move |w| {
            if let Some(function) = w.functions.get_mut(id) {
                function.set_call(index, call);
            }
        });
    }

    /// What the guest's driver has negotiated; the link follows.
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
            // Held while the cores are told, so that they hear of two sockets in the right order.
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            if up {
                *link |= self.role.bit();
            } else {
                *link &= !self.role.bit();
            }
            let (id, up, mac) = (self.id, *link != 0, self.spec.macs.first().copied());
            for w in self.workers.iter() {
                w.post(move |w| w.set_link(id, up, mac));
            }
        }
        let state = self.status().state;
        self.event(match self.role {
            Role::Ethernet => NicEventKind::AdapterState(state),
            Role::Rdma => NicEventKind::RdmaState(state),
        });
    }

    /// A core announces its addresses again, while its link is up: neighbours hear them by another port.
    pub fn announce(&self, core: usize) {
        // Held as in `set_attach`: the core hears nothing of the past.
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        if *link == 0 {
            return;
        }
        for mac in self.spec.macs.iter().copied().chain(self.settings().macs) {
            let id = self.id;
            self.workers[core].post(move |w| w.set_link(id, true, Some(mac)));
        }
    }

    /// Closes the connection; the socket stays. Brings a failed adapter back.
    pub fn restart(&self) {
        let connection = {
            let mut s = self.state();
            s.failed = false;
            s.connection.take()
        };
        hang_up(connection);
        self.ring_bell();
    }

    /// A bug of ours hit it: closes the connection and stays away until restarted.
    pub fn fail(&self) {
        let connection = {
            let mut s = self.state();
            s.failed = true;
            s.connection.take()
        };
        hang_up(connection);
        self.set_attach(AttachState::Failed);
    }

    /// Ends the socket's thread.
    pub fn end(&self) {
        let connection = {
            let mut s = self.state();
            s.ending = true;
            s.connection.take()
        };
        hang_up(connection);
        self.ring_bell();
    }

    fn ring_bell(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn silence_bell(&self) {
        let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
    }

    /// Takes away what the socket was in the file system.
    pub fn remove_socket(&self) {
        if self.spec.socket_role == SocketRole::Listen {
            let _ = std::fs::remove_file(self.socket());
        }
    }

    /// Serves the socket until [`Endpoint::end`].
    pub fn serve(self: &Arc<Self>, listener: Option<UnixListener>) {
        let mut pause = Duration::ZERO;
        loop {
            if self.state().ending {
                return;
            }
            let stream = self.next_connection(listener.as_ref());
            if let Some(stream) = stream.filter(|stream| self.admits(stream)) {
                let useful = self.converse(stream, listener.as_ref());
                // A VMM that cannot use the adapter and reconnects at once (QEMU asking for too many queues does)
                // shall not fill the log.
                pause = if useful {
                    Duration::ZERO
                } else {
                    (pause * 2).clamp(SHORT_PAUSE, LONG_PAUSE)
                };
                self.rest(pause);
            }
        }
    }

    /// May the process at the other end be the VMM? One that may not delays nobody who comes after it.
    fn admits(&self, stream: &UnixStream) -> bool {
        let Some(what) = admit::refusal(&self.spec.socket_access, stream) else {
            return true;
        };
        self.event(NicEventKind::ProtocolError { what });
        if self.spec.socket_role == SocketRole::Connect {
            self.rest(RETRY);
        }
        false
    }

    /// Waits, unless the bell rings.
    fn rest(&self, time: Duration) {
        if !time.is_zero() {
            wait_until(&mut [PollFd::new(&self.bell, PollFlags::IN)], time);
        }
    }

    fn next_connection(&self, listener: Option<&UnixListener>) -> Option<UnixStream> {
        let failed = self.state().failed;
        match listener {
            Some(listener) if !failed => {
                let mut fds = [
                    PollFd::new(listener, PollFlags::IN),
                    PollFd::new(&self.bell, PollFlags::IN),
                ];
                let _ = poll(&mut fds, None);
                let caller = fds[0].revents().contains(PollFlags::IN);
                self.silence_bell();
                if !caller || self.state().ending {
                    return None;
                }
                let accepted = listener.accept().ok();
                if accepted.is_none() {
                    self.rest(RETRY);
                }
                accepted.map(|(stream, _)| stream)
            }
            None if !failed => {
                let stream = UnixStream::connect(self.socket()).ok();
                if stream.is_none() {
                    self.rest(RETRY);
                    self.silence_bell();
                }
                stream
            }
            _ => {
                let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], None);
                self.silence_bell();
                None
            }
        }
    }

    /// Serves one VMM until it leaves. True if its driver ran.
    fn converse(self: &Arc<Self>, stream: UnixStream, listener: Option<&UnixListener>) -> bool {
        let clones = stream
            .set_nonblocking(false)
            .and_then(|()| Ok((stream.try_clone()?, stream.try_clone()?)));
        let Ok((for_hang_up, watched)) = clones else {
            return false;
        };
        let lender = Arc::new(Lender::new(for_hang_up));
        {
            let mut s = self.state();
            if s.ending {
                return true;
            }
            s.driver_ran = false;
            s.connection = Some(lender.clone());
        }
        self.set_attach(AttachState::Attached);
        match self.role {
            Role::Ethernet => self.speak(Ethernet::default(), &lender, stream, watched, listener),
            Role::Rdma => self.speak(Rdma::default(), &lender, stream, watched, listener),
        }
        {
            let mut s = self.state();
            s.connection = None;
            (s.features, s.pairs, s.memory) = (0, 0, 0);
        }
        self.set_attach(AttachState::Detached);
        self.state().driver_ran
    }

    /// Lets a device speak with its VMM until that leaves.
    fn speak<F: Function + Send + 'static>(
        self: &Arc<Self>,
        function: F,
        lender: &Arc<Lender>,
        stream: UnixStream,
        mut watched: UnixStream,
        listener: Option<&UnixListener>,
    ) {
        let device = Connection::new(self.clone(), lender.clone(), function);
        let device = Arc::new(Mutex::new(device));
        let mut handler = BackendReqHandler::from_stream(stream, device.clone());
        let ended = loop {
            if let Some(listener) = listener
                && !self.wait_for_message(&watched, listener)
            {
                break VhostError::Disconnected;
            }
            match self.early_message(&device, &mut watched) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(e) => break e,
            }
            if let Err(e) = handler.handle_request() {
                break e;
            }
        };
        let orderly = matches!(
            ended,
            VhostError::Disconnected | VhostError::PartialMessage | VhostError::SocketBroken(_)
        ) || self.state().connection.is_none();
        if lender.has_failed() || !orderly {
            let why = if lender.has_failed() {
                "memory of the guest is not there any more (SIGBUS): its file was cut short, or has no pages"
                    .into()
            } else {
                ended.to_string()
            };
            let what = format!("{why}; the connection was closed, the VMM may reconnect");
            self.event(NicEventKind::ProtocolError { what });
        }
        device.lock().unwrap_or_else(PoisonError::into_inner).stop_all();
    }

    /// Handles a message that the `vhost` crate would refuse; see [`early`].
    fn early_message<F: Function>(
        &self,
        device: &Mutex<Connection<F>>,
        stream: &mut UnixStream,
    ) -> Result<bool, VhostError> {
        let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = early::take_long_mem_table(stream).map_err(VhostError::SocketBroken)? {
            let result = device.set_mem_table(&table.regions, table.files, None);
            if table.need_reply {
                early::answer_mem_table(stream, result.is_ok()).map_err(VhostError::SocketBroken)?;
            }
            return result.map(|_| true);
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

    /// Waits until the VMM says something; turns away others that want the same adapter. False when the VMM is
    /// gone.
    fn wait_for_message(&self, stream: &UnixStream, listener: &UnixListener) -> bool {
        loop {
            let mut fds = [
                PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP),
                PollFd::new(listener, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                continue;
            }
            let (mine, other) = (fds[0].revents(), fds[1].revents());
            if mine.contains(PollFlags::IN) {
                return true;
            }
            if !mine.is_empty() {
                return false;
            }
            if !other.contains(PollFlags::IN) {
                continue;
            }
            if listener.accept().is_err() {
                wait_until(&mut [PollFd::new(stream, PollFlags::IN)], RETRY);
                continue;
            }
            let what = "a second VMM tried to attach while one is attached; it was turned away: give each VM \
                        an adapter of its own";
            self.event(NicEventKind::ProtocolError { what: what.into() });
        }
    }
}

/// Waits for one of these, at most so long; less than a second.
fn wait_until(fds: &mut [PollFd<'_>], at_most: Duration) {
    let at_most = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: at_most.subsec_nanos().into(),
    };
    let _ = poll(fds, Some(&at_most));
}

fn hang_up(connection: Option<Arc<Lender>>) {
    if let Some(lender) = connection {
        lender.hang_up();
    }
}

/// Listens at `path`, replacing the socket that a killed daemon left, never one that somebody listens on.
pub fn socket_listener(
    field: &'static str,
    path: &Path,
    group: Option<u32>,
) -> Result<UnixListener, NicError> {
    let os = |what: String| move |source| NicError::Os { what, source };
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            let problem = format!("{} exists and is no socket", path.display());
            return Err(NicError::Invalid { field, problem });
        }
        if UnixStream::connect(path).is_ok() {
            let problem = format!("another process listens on {}", path.display());
            return Err(NicError::Invalid { field, problem });
        }
        std::fs::remove_file(path).map_err(os(format!("removing the stale socket {}", path.display())))?;
    }
    let listener = UnixListener::bind(path)
        .and_then(|l| l.set_nonblocking(true).map(|()| l))
        .map_err(os(format!("listening on {}", path.display())))?;
    if let Some(gid) = group {
        std::os::unix::fs::chown(path, None, Some(gid)).map_err(os(format!(
            "giving {} to group {gid} (socket_group: a group of the daemon's, or the daemon needs CAP_CHOWN)",
            path.display()
        )))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
        .map_err(os(format!("setting the mode of {}", path.display())))?;
    Ok(listener)
}

/// Starts the thread that serves a socket of an adapter. It parses what a VMM says: it can be kept from system calls that it does
/// not need.
pub fn spawn(endpoint: Arc<Endpoint>, confine: bool) -> Result<std::thread::JoinHandle<()>, NicError> {
    let os = |what: &str, source| NicError::Os {
        what: what.into(),
        source,
    };
    let (field, prefix) = match endpoint.role {
        Role::Ethernet => ("eth_socket", "vhost"),
        Role::Rdma => ("rdma_socket", "rdma"),
    };
    let role = endpoint.spec.socket_role;
    let listener = match role {
        SocketRole::Listen => {
            let group = endpoint.spec.socket_access.group;
            Some(socket_listener(field, endpoint.socket(), group)?)
        }
        SocketRole::Connect => None,
    };
    let filter = confine.then(|| Filter::socket(role)).transpose();
    let filter = filter.map_err(|e| os("making a filter of system calls; see --no-sandbox", e))?;
    let (tell, told) = answer();
    let name = format!("{prefix}-{}", endpoint.spec.name);
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let confined = filter.map_or(Ok(()), |filter| filter.enter());
            let ok = confined.is_ok();
            let _ = tell.send(confined);
            if ok {
                endpoint.serve(listener);
            }
        })
        .map_err(|e| os("starting a thread", e))?;
    match told.wait() {
        Some(Err(e)) => Err(os("seccomp does not work here: see --no-sandbox", e)),
        _ => Ok(thread),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::types::VlanMode;

    fn endpoint() -> Arc<Endpoint> {
        let spec = AdapterSpec {
            name: "accept".into(),
            macs: Vec::new(),
            mtu: 1500,
            queue_pairs: 1,
            vlan: VlanMode::default(),
            anti_spoofing: false,
            data_core: None,
            eth_socket: "unused".into(),
            rdma_socket: None,
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: crate::types::RDMA_MEMORY_DEFAULT,
            vmm: Default::default(),
        };
        let counters = Arc::new(AdapterCounters::new(1));
        let made = Endpoint::new(spec, PortId(0), 0, counters, Arc::default(), EventHub::default());
        Arc::new(made.expect("an endpoint"))
    }

    /// A socket at which somebody always waits and that never accepts, as when there are no descriptors.
    fn refuses() -> (UnixListener, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"!").expect("room");
        (UnixListener::from(OwnedFd::from(ours)), theirs)
    }

    /// Does the thread that this starts ever sleep?
    fn sleeps(work: impl FnOnce() + Send + 'static) -> bool {
        let (tell, told) = answer();
        std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid());
            work();
        });
        let thread = told.wait().expect("its number").as_raw_nonzero();
        let stat = format!("/proc/self/task/{thread}/stat");
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while std::time::Instant::now() < deadline {
            // (Behind the name, in parentheses, is the state.)
            let text = std::fs::read_to_string(&stat).expect("the thread is there");
            if text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn a_socket_that_cannot_accept_is_not_asked_all_the_time() {
        let (listener, _theirs) = refuses();
        let one = endpoint();
        let same = one.clone();
        assert!(sleeps(move || same.serve(Some(listener))));
        one.end();
    }

    #[test]
    fn nor_while_a_vmm_is_served() {
        let (listener, _theirs) = refuses();
        let (vmm, watched) = UnixStream::pair().expect("a pair");
        let one = endpoint();
        assert!(sleeps(move || {
            one.wait_for_message(&watched, &listener);
        }));
        drop(vmm);
    }
}
