//! The thread of an adapter's socket: accepts or connects, serves one VMM at a time, and goes on with the next. A process that shares
//! the adapter's RDMA function gets a thread of its own.

use std::ffi::OsStr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use vhost::vhost_user::Error as VhostError;

use super::admit;
use super::connection::Function;
use super::conversation::{Conversation, Streams, Visit};
use super::endpoint::{Endpoint, Has, Role};
use super::eth::Ethernet;
use super::rdma::Rdma;
use super::refused::{LONG_PAUSE, Refused, SHORT_PAUSE};
use super::seat_threads::SeatThreads;
use crate::confine::Filter;
use crate::datapath::answer;
use crate::types::{Caller, NicError, NicEventKind, SocketAccess, SocketRole, invalid};

/// Time between attempts of an adapter that connects, or that cannot accept (there may be no free descriptor).
const RETRY: Duration = Duration::from_millis(50);
/// VMMs that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Time for which a VMM, or a process, may say nothing before it is known which of them it is, if others wait.
const UNDECIDED: Duration = Duration::from_secs(1);

/// State of a socket's thread.
struct Server {
    endpoint: Arc<Endpoint>,
    /// Listener for VMMs; `None`: the VMM listens.
    listener: Option<UnixListener>,
    /// Threads of processes that share the function, if it is one that can be shared.
    seats: Option<SeatThreads>,
}

/// Number of connections in a row, of one VMM, after which an event tells that none was used.
const UNUSED_MAX: u32 = 3;

/// Connections in a row on which no driver ran.
#[derive(Default)]
struct Unused {
    by: Caller,
    times: u32,
}

impl Unused {
    /// Notes a connection that has ended. True: an event is due.
    fn ended(&mut self, by: Caller, useful: bool) -> bool {
        if useful || by != self.by {
            *self = Unused { by, times: 0 };
        }
        self.times = self.times.saturating_add(u32::from(!useful));
        self.times == UNUSED_MAX
    }
}

impl Server {
    /// Serves the socket until [`Endpoint::end`].
    fn serve(&self) {
        let (mut pause, mut refused) = (Duration::ZERO, Refused::new(None));
        let mut unused = Unused::default();
        while !self.endpoint.is_ending() {
            let Some(stream) = self.next_connection(&mut refused) else {
                continue;
            };
            let caller = admit::caller(&stream);
            if !admit::may_attach(&self.endpoint.spec().socket_access, caller) {
                refused.set_owner(None);
                self.tell(refused.refuse(stream, caller, Instant::now()));
                continue;
            }
            let useful = self.converse(stream, caller, &mut refused);
            if unused.ended(caller, useful) {
                let queue_pairs = self.endpoint.spec().queue_pairs;
                let event = NicEventKind::VmmUnused {
                    by: caller,
                    queue_pairs,
                };
                self.endpoint.event(event);
            }
            // A VMM that cannot use the adapter and reconnects at once (as QEMU does that asks for too many queues) must
            // not fill the log.
            pause = if useful {
                Duration::ZERO
            } else {
                (pause * 2).clamp(SHORT_PAUSE, LONG_PAUSE)
            };
            self.rest(pause);
        }
        self.endpoint.wait_until_left();
    }

    fn tell(&self, event: Option<NicEventKind>) {
        if let Some(event) = event {
            self.endpoint.event(event);
        }
    }

    /// Waits, unless the eventfd wakes the thread.
    fn rest(&self, time: Duration) {
        if !time.is_zero() {
            wait_until(
                &mut [PollFd::new(self.endpoint.bell(), PollFlags::IN)],
                Some(time),
            );
        }
    }

    fn next_connection(&self, refused: &mut Refused) -> Option<UnixStream> {
        let endpoint = &self.endpoint;
        self.tell(refused.release(Instant::now()));
        let failed = endpoint.has_failed();
        match &self.listener {
            Some(listener) if !failed => {
                let mut fds = [
                    PollFd::new(endpoint.bell(), PollFlags::IN),
                    PollFd::new(listener, PollFlags::IN),
                ];
                let watched = if refused.is_full() { 1 } else { 2 };
                wait_until(&mut fds[..watched], refused.next(Instant::now()));
                let called = fds[1].revents().contains(PollFlags::IN);
                endpoint.silence_bell();
                if !called || endpoint.is_ending() {
                    return None;
                }
                let accepted = listener.accept().ok();
                if accepted.is_none() {
                    self.rest(RETRY);
                }
                accepted.map(|(stream, _)| stream)
            }
            // (A VMM that listens is not called while the connection to one that was refused is held.)
            None if !failed && !refused.holds_any() => {
                let stream = UnixStream::connect(endpoint.socket()).ok();
                if stream.is_none() {
                    self.rest(RETRY);
                    endpoint.silence_bell();
                }
                stream
            }
            _ => {
                let mut fds = [PollFd::new(endpoint.bell(), PollFlags::IN)];
                wait_until(&mut fds, refused.next(Instant::now()));
                endpoint.silence_bell();
                None
            }
        }
    }

    /// Serves one VMM until it leaves, or lets a process that shares the function have a thread of its own. Returns whether it was of
    /// use: its driver ran.
    fn converse(&self, stream: UnixStream, vmm: Caller, refused: &mut Refused) -> bool {
        let Ok(streams) = Streams::of(stream) else {
            return false;
        };
        let Some(visit) = Visit::begin(&self.endpoint, &streams, vmm) else {
            return true;
        };
        match self.endpoint.role {
            Role::Ethernet => self.speak(Conversation::new(Ethernet::default(), visit, streams), refused),
            Role::Rdma => self.speak(Conversation::new(Rdma::default(), visit, streams), refused),
        }
    }

    /// Runs a device for its VMM until the VMM leaves.
    fn speak<F: Function + Send + 'static>(&self, mut with: Conversation<F>, refused: &mut Refused) -> bool {
        let vmm = with.visit.vmm;
        let mut others = Refused::new(Some(vmm));
        let mut has = with.visit.has();
        // Others wait as long as this one says nothing.
        let _ = with
            .watched
            .set_read_timeout((has == Has::Nothing).then_some(UNDECIDED));
        let ended = loop {
            if let Some(listener) = &self.listener
                && !self.wait_for_message(&with.watched, has, listener, &mut others)
            {
                break VhostError::Disconnected;
            }
            if let Err(e) = with.message() {
                break e;
            }
            if has == Has::Nothing {
                has = with.visit.has();
                match (has, &self.seats) {
                    (Has::Place(_), Some(seats)) => {
                        let _ = with.watched.set_read_timeout(None);
                        let name = with.visit.namer();
                        seats.start(&self.endpoint, name, move || with.serve());
                        return true;
                    }
                    (Has::Nothing, _) => {}
                    _ => drop(with.watched.set_read_timeout(None)),
                }
            }
        };
        self.tell(others.sum());
        if with.visit.has() != Has::Refused {
            return with.end(&ended);
        }
        let owners = self.endpoint.owners();
        refused.set_owner(owners.all().next());
        self.tell(refused.refuse(with.refuse(), vmm, Instant::now()));
        true
    }

    /// Waits for a message of the VMM, and refuses others that want the same adapter. While it has not said what it wants, others wait
    /// a moment. False: the VMM is gone, or has said nothing for too long.
    fn wait_for_message(
        &self,
        stream: &UnixStream,
        has: Has,
        listener: &UnixListener,
        others: &mut Refused,
    ) -> bool {
        if has == Has::Nothing {
            return wait_for_decision(stream, listener);
        }
        loop {
            self.tell(others.release(Instant::now()));
            let mut fds = [
                PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP),
                PollFd::new(listener, PollFlags::IN),
            ];
            let watched = if others.is_full() { 1 } else { 2 };
            if !wait_until(&mut fds[..watched], others.next(Instant::now())) {
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
            // This VMM may have gone, and come again, after poll had looked at its stream and before it looked at the listener.
            let mut now = [PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
            if wait_until(&mut now, Some(Duration::ZERO)) && !now[0].revents().is_empty() {
                continue;
            }
            let Ok((other, _)) = listener.accept() else {
                wait_until(&mut [PollFd::new(stream, PollFlags::IN)], Some(RETRY));
                continue;
            };
            let by = admit::caller(&other);
            self.tell(others.refuse(other, by, Instant::now()));
        }
    }
}

/// Waits for a message of a VMM that has not said what it wants, as long as nobody else waits, or a moment. False: it is gone, or has said
/// nothing for too long.
fn wait_for_decision(stream: &UnixStream, listener: &UnixListener) -> bool {
    loop {
        let mut mine = [PollFd::new(stream, PollFlags::IN | PollFlags::RDHUP)];
        if wait_until(&mut mine, Some(UNDECIDED)) && !mine[0].revents().is_empty() {
            return mine[0].revents().contains(PollFlags::IN);
        }
        let mut other = [PollFd::new(listener, PollFlags::IN)];
        if wait_until(&mut other, Some(Duration::ZERO)) && !other[0].revents().is_empty() {
            return false;
        }
    }
}

/// Waits until a descriptor is ready, at most this time. False: the wait failed.
fn wait_until(fds: &mut [PollFd<'_>], at_most: Option<Duration>) -> bool {
    let at_most = at_most.map(|time| Timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    poll(fds, at_most.as_ref()).is_ok()
}

/// Listens at `path`. A socket that a killed daemon left is replaced, but never one on which a process listens. Nobody can connect before
/// the socket has its owner, group and mode.
fn socket_listener(
    field: &'static str,
    path: &Path,
    access: &SocketAccess,
) -> Result<UnixListener, NicError> {
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            let problem = format!("{} exists and is no socket", path.display());
            return invalid(field, problem);
        }
        remove_stale(field, path)?;
    }
    for other in renamed(path) {
        remove_stale(field, &other)?;
    }
    let listening = || NicError::os(format!("listening on {}", path.display()));
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(listening())?;
    let address = SocketAddrUnix::new(path).map_err(listening())?;
    bind(&socket, &address).map_err(listening())?;
    give(path, access)
        .and_then(|()| listen(&socket, BACKLOG).map_err(listening()))
        .inspect_err(|_| {
            let _ = std::fs::remove_file(path);
        })?;
    Ok(UnixListener::from(socket))
}

/// Removes a socket on which no process listens.
fn remove_stale(field: &'static str, path: &Path) -> Result<(), NicError> {
    if UnixStream::connect(path).is_ok() {
        let problem = format!("another process listens on {}", path.display());
        return invalid(field, problem);
    }
    std::fs::remove_file(path).map_err(NicError::os(format!(
        "removing the stale socket {}",
        path.display()
    )))
}

/// Sockets of this path under another name ([`SocketName`](super::endpoint::SocketName)).
fn renamed(path: &Path) -> Vec<PathBuf> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Vec::new();
    };
    let is_renamed = |other: &OsStr| {
        let suffix = other.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let suffix = suffix.and_then(|suffix| suffix.strip_prefix(b"."));
        suffix.is_some_and(|s| s == b"away" || !s.is_empty() && s.iter().all(u8::is_ascii_digit))
    };
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let others = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let others = others.filter(|entry| is_renamed(&entry.file_name()));
    others.map(|entry| entry.path()).collect()
}

/// Gives a socket its mode, owner and group. (The mode comes first: it is the owner's to set.)
fn give(path: &Path, access: &SocketAccess) -> Result<(), NicError> {
    let shown = path.display();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(access.mode))
        .map_err(NicError::os(format!("setting the mode of {shown}")))?;
    if let Some(gid) = access.group {
        std::os::unix::fs::lchown(path, None, Some(gid)).map_err(NicError::os(format!(
            "giving {shown} to group {gid} (socket_group: a group of the daemon's, or the daemon needs CAP_CHOWN)"
        )))?;
    }
    if let Some(uid) = access.owner {
        std::os::unix::fs::lchown(path, Some(uid), None).map_err(NicError::os(format!(
            "giving {shown} to user {uid} (socket_owner: the daemon needs CAP_CHOWN; socket_group does without, if the daemon is in the \
             group)"
        )))?;
    }
    Ok(())
}

/// Starts the thread that serves a socket of an adapter. It parses a VMM's messages, so it can be kept from system calls that
/// it does not need.
pub fn spawn(endpoint: Arc<Endpoint>, confine: bool) -> Result<std::thread::JoinHandle<()>, NicError> {
    let (field, prefix) = match endpoint.role {
        Role::Ethernet => ("eth_socket", "vhost"),
        Role::Rdma => ("rdma_socket", "rdma"),
    };
    let role = endpoint.spec().socket_role;
    let listener = match role {
        SocketRole::Listen => {
            let access = &endpoint.spec().socket_access;
            Some(socket_listener(field, &endpoint.socket(), access)?)
        }
        SocketRole::Connect => None,
    };
    let seats = match (endpoint.role, role) {
        (Role::Rdma, SocketRole::Listen) => Some(SeatThreads::new(confine)?),
        _ => None,
    };
    let filter = confine.then(|| Filter::socket(role)).transpose();
    let filter = filter.map_err(NicError::os("making a filter of system calls; see --no-sandbox"))?;
    let (tell, told) = answer();
    let name = format!("{prefix}-{}", endpoint.spec().name);
    let thread = std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let confined = filter.map_or(Ok(()), |filter| filter.enter());
            let ok = confined.is_ok();
            let _ = tell.send(confined);
            if ok {
                let server = Server {
                    endpoint,
                    listener,
                    seats,
                };
                server.serve();
            }
        })
        .map_err(NicError::os("starting a thread"))?;
    match told.wait() {
        Some(Err(e)) => Err(NicError::os("seccomp does not work here: see --no-sandbox")(e)),
        _ => Ok(thread),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustix::fd::OwnedFd;
    use vnic_fabric::switch::PortId;

    use super::*;
    use crate::datapath::AdapterCounters;
    use crate::hub::EventHub;
    use crate::types::{AdapterSpec, VlanMode};

    fn endpoint() -> Arc<Endpoint> {
        let spec = AdapterSpec {
            name: "accept".into(),
            macs: Vec::new(),
            mtu: 1500,
            queue_pairs: 1,
            vlan: VlanMode::default(),
            anti_spoofing: false,
            control_queue: false,
            data_core: None,
            eth_socket: "unused".into(),
            rdma_socket: None,
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: crate::types::RDMA_MEMORY_DEFAULT,
            rdma_flows: true,
            pkeys: Default::default(),
            vmm: Default::default(),
            wake: None,
            wake_patterns: Vec::new(),
            moving: None,
        };
        let counters = Arc::new(AdapterCounters::new(1));
        let made = Endpoint::new(
            spec,
            PortId(0),
            0,
            counters,
            Arc::default(),
            EventHub::default(),
            Arc::default(),
        );
        Arc::new(made.expect("an endpoint"))
    }

    /// A socket at which a VMM always waits and that never accepts, as without free descriptors.
    fn refuses() -> (UnixListener, UnixStream) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"!").expect("room");
        (UnixListener::from(OwnedFd::from(ours)), theirs)
    }

    /// Whether the thread that this starts ever sleeps.
    fn sleeps(work: impl FnOnce() + Send + 'static) -> bool {
        let (tell, told) = answer();
        std::thread::spawn(move || {
            let _ = tell.send(rustix::thread::gettid());
            work();
        });
        let thread = told.wait().expect("its number").as_raw_nonzero();
        let stat = format!("/proc/self/task/{thread}/stat");
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            // (The state is behind the name, which is in parentheses.)
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
        let endpoint = endpoint();
        let server = Server {
            endpoint: endpoint.clone(),
            listener: Some(listener),
            seats: None,
        };
        assert!(sleeps(move || server.serve()));
        endpoint.end();
    }

    #[test]
    fn nor_while_a_vmm_is_served() {
        let (listener, _theirs) = refuses();
        let (vmm, watched) = UnixStream::pair().expect("a pair");
        let server = Server {
            endpoint: endpoint(),
            listener: None,
            seats: None,
        };
        assert!(sleeps(move || {
            server.wait_for_message(&watched, Has::Whole, &listener, &mut Refused::new(None));
        }));
        drop(vmm);
    }
}
