//! The transport of a process on the host. The process is the frontend of vhost-user, as a VMM is, for itself
//! alone.
//!
//! The process shares anonymous files with the daemon for new memory; memory that the program has already is
//! moved into such files where it is (`adopt.rs`). Guest-physical addresses are the addresses of these files in
//! this process. Freeing memory here while the daemon still looks at it harms nobody: the daemon has a mapping of
//! its own, and pages go only when nobody maps them.

#![expect(unsafe_code, reason = "pins memory that its caller answers for")]

pub(crate) mod adopt;
mod files;
mod generation;
mod maps;
mod memory;
mod watch;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as Protocol,
};
use vhost::vhost_user::{Error as Refused, Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VringConfigData};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vnic_device::config::{Config, PROTOCOL_SHARES};
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::{Lender, Listener, Pinned, SharedPages, Transport, Virtqueue, identity};
use crate::Error;
use crate::sync::lock;
use generation::generation;
use memory::Arenas;
use watch::Watch;

/// Features: `VIRTIO_F_VERSION_1`, and that vhost-user has features of its own.
const FEATURES: u64 = 1 << 32 | 1 << 30;
/// Features of vhost-user that are needed.
const PROTOCOL: Protocol = Protocol::MQ
    .union(Protocol::REPLY_ACK)
    .union(Protocol::CONFIG)
    .union(Protocol::CONFIGURE_MEM_SLOTS);
/// How long the daemon may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Entries of a virtqueue.
const QUEUE_SIZE: u16 = 256;

/// An adapter's RDMA socket, attached.
pub struct HostTransport {
    name: String,
    config: Config,
    frontend: Frontend,
    /// A second handle of the frontend's socket.
    stream: UnixStream,
    arenas: Arc<Arenas>,
    call: EventFd,
    kicks: OnceLock<Vec<EventFd>>,
    /// Readable on a call, and when the daemon hangs up.
    interrupt: OwnedFd,
    gone: Mutex<Option<String>>,
    /// The process that opened the transport.
    generation: u32,
}

impl HostTransport {
    /// Attaches to the socket `NAME-rdma.sock` of an adapter.
    pub fn connect(path: &Path) -> Result<HostTransport, Error> {
        let name = path.display().to_string();
        let stream = UnixStream::connect(path).map_err(|e| no_connection(path, e))?;
        let os = |what: &str| Error::os(format!("{name}: {what}"));
        for timeout in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            timeout(&stream, Some(PATIENCE)).map_err(os("setting a time limit"))?;
        }
        let clone = stream.try_clone().map_err(os("copying a descriptor"))?;
        let mut frontend = Frontend::from_stream(clone, u64::from(u16::MAX));
        // The daemon hangs up beside a virtual machine: the first question finds out.
        let offered = frontend.get_features().map_err(|e| nobody_talks(&name, &e))?;
        if offered & FEATURES != FEATURES {
            return Err(no_rdma(&name, "its features are not those of such a function"));
        }
        let asked = |what: &'static str| {
            let name = name.clone();
            move |e| Error::Setup(format!("{name}: the daemon refused {what}: {e}"))
        };
        let protocol = frontend
            .get_protocol_features()
            .map_err(asked("protocol features"))?;
        if !protocol.contains(PROTOCOL) {
            return Err(no_rdma(&name, "it has no configuration space or no memory slots"));
        }
        frontend
            .set_protocol_features(PROTOCOL | Protocol::from_bits_retain(1 << PROTOCOL_SHARES))
            .map_err(asked("protocol features"))?;
        // The daemon hangs up if a virtual machine has the adapter, or as many processes as there may be: this answer finds out.
        let config = read_config(&mut frontend).map_err(|e| nobody_talks(&name, &e))?;
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        frontend.set_owner().map_err(asked("an owner"))?;
        identity::check(&config).map_err(|e| match e {
            Error::NoDevice(why) => no_rdma(&name, &why),
            Error::Version(why) => Error::Version(format!("{name}: {why}")),
            e => e,
        })?;
        let queues = frontend.get_queue_num().map_err(asked("its number of queues"))?;
        if queues < u64::from(identity::virtqueues(&config)) {
            return Err(Error::Protocol(format!(
                "{name} has {queues} queues, its configuration space says {}",
                identity::virtqueues(&config)
            )));
        }
        let slots = frontend.get_max_mem_slots().map_err(asked("memory slots"))?;
        frontend.set_features(FEATURES).map_err(asked("features"))?;
        let call = eventfd()?;
        adopt::watch();
        let interrupt = epoll_of(&call, &stream).map_err(|e| os("making an epoll descriptor")(e.into()))?;
        Ok(HostTransport {
            arenas: Arenas::new(Mutex::new(frontend.clone()), slots),
            name,
            config,
            frontend,
            stream,
            call,
            kicks: OnceLock::new(),
            interrupt,
            gone: Mutex::new(None),
            generation: generation(),
        })
    }

    /// Whether this is a forked child of the process that opened the transport. The parent goes on with the
    /// device: the child does nothing to it.
    fn is_parents(&self) -> bool {
        self.generation != generation()
    }

    /// Does work for the device of this process. That the device is gone is the reason of all other errors.
    fn unless_gone<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        if self.is_parents() {
            return Err(Error::parents(&self.name));
        }
        work().map_err(|e| self.gone().unwrap_or(e))
    }

    fn start_queue(&self, i: usize, queue: &Virtqueue, kick: &EventFd) -> vhost::Result<()> {
        let f = &self.frontend;
        f.set_vring_num(i, queue.size)?;
        f.set_vring_base(i, 0)?;
        let addresses = VringConfigData {
            queue_max_size: queue.size,
            queue_size: queue.size,
            flags: 0,
            // Addresses of this process, which the device also gets as guest-physical ones.
            desc_table_addr: queue.descriptors,
            used_ring_addr: queue.used,
            avail_ring_addr: queue.available,
            log_addr: None,
        };
        f.set_vring_addr(i, &addresses)?;
        f.set_vring_call(i, &self.call)?;
        f.set_vring_kick(i, kick)?;
        f.clone().set_vring_enable(i, true)
    }
}

fn eventfd() -> Result<EventFd, Error> {
    EventFd::new(EFD_NONBLOCK).map_err(Error::os("making an eventfd"))
}

fn epoll_of(call: &EventFd, stream: &UnixStream) -> rustix::io::Result<OwnedFd> {
    let interrupt = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let data = epoll::EventData::new_u64;
    epoll::add(
        &interrupt,
        memory::descriptor(call),
        data(0),
        epoll::EventFlags::IN,
    )?;
    let ends = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
    epoll::add(&interrupt, stream, data(1), ends)?;
    Ok(interrupt)
}

fn read_config(frontend: &mut Frontend) -> vhost::Result<Config> {
    let empty = Config::default();
    let len = size_of::<Config>() as u32;
    let (_, bytes) = frontend.get_config(0, len, VhostUserConfigFlags::empty(), empty.as_bytes())?;
    Ok(Config::read_from_bytes(&bytes).unwrap_or_default())
}

fn no_connection(path: &Path, e: std::io::Error) -> Error {
    let shown = path.display();
    match e.kind() {
        ErrorKind::NotFound => Error::NoDevice(format!(
            "there is no socket {shown}: is vnicd running, and has it an adapter of that name? `vnicctl \
             adapter list` shows them; the socket of one is DIR/NAME-rdma.sock"
        )),
        ErrorKind::ConnectionRefused => Error::NoDevice(format!(
            "nobody listens at {shown}: the daemon that made it has ended; start vnicd again"
        )),
        ErrorKind::PermissionDenied => Error::Setup(format!(
            "{shown} may not be opened: it is for its owner and its group (`ls -l` shows them); run as a \
             member of that group, or as root"
        )),
        _ => Error::os(format!("connecting to {shown}"))(e),
    }
}

/// The error for a daemon that accepted and did not answer.
fn nobody_talks(name: &str, e: &vhost::Error) -> Error {
    match e {
        vhost::Error::VhostUserProtocol(Refused::SocketRetry(_)) => Error::Setup(format!(
            "{name}: no answer within {} s: a virtual machine or another program has this adapter for itself, or the \
             daemon hangs",
            PATIENCE.as_secs()
        )),
        vhost::Error::VhostUserProtocol(
            Refused::Disconnected
            | Refused::PartialMessage
            | Refused::SocketBroken(_)
            | Refused::SocketError(_),
        ) => Error::Setup(format!(
            "{name}: the daemon closed the connection at once: a virtual machine or another program has this adapter for \
             itself, or as many processes share it as may; end one, or take another adapter"
        )),
        e => Error::Setup(format!("{name}: the daemon refused the first question: {e}")),
    }
}

fn no_rdma(name: &str, why: &str) -> Error {
    let hint = match name.strip_suffix("-eth.sock") {
        Some(adapter) => format!("that is the Ethernet function of the adapter: use {adapter}-rdma.sock"),
        None => "use the NAME-rdma.sock of an adapter".to_owned(),
    };
    Error::NoDevice(format!("{name} is no RDMA function ({why}): {hint}"))
}

impl Transport for HostTransport {
    fn config(&self) -> &Config {
        &self.config
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn start(&self, queues: &[Virtqueue]) -> Result<(), Error> {
        let kicks = queues.iter().map(|_| eventfd()).collect::<Result<Vec<_>, _>>()?;
        let kicks = self.kicks.get_or_init(|| kicks);
        for (i, (queue, kick)) in queues.iter().zip(kicks).enumerate() {
            self.start_queue(i, queue, kick)
                .map_err(|e| Error::Setup(format!("{}: the daemon refused virtqueue {i}: {e}", self.name)))?;
        }
        Ok(())
    }

    fn stop(&self) {
        if self.is_parents() {
            return;
        }
        if self.gone().is_none() {
            // The stop of virtqueue 0 stops the device (`SPEC.md`, section 4.3).
            for i in 0..self.kicks.get().map_or(0, Vec::len) {
                if self.frontend.get_vring_base(i).is_err() {
                    break;
                }
            }
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn queue_size_max(&self, _virtqueue: u16) -> u16 {
        QUEUE_SIZE
    }

    fn notify(&self, virtqueue: u16) {
        if self.is_parents() {
            return;
        }
        if let Some(kick) = self.kicks.get().and_then(|k| k.get(usize::from(virtqueue))) {
            // The write fails only if the device has not looked 2^64 − 2 times.
            let _ = kick.write(1);
        }
    }

    fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupt.as_fd()
    }

    fn acknowledge(&self) -> Result<(), Error> {
        // Nothing to read: the look was too early, which does not matter.
        let _ = self.call.read();
        Ok(())
    }

    fn gone(&self) -> Option<Error> {
        if self.is_parents() {
            return Some(Error::parents(&self.name));
        }
        let mut gone = lock(&self.gone);
        if gone.is_none() {
            let zero = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
            if let Ok(1) = poll(&mut fds, Some(&zero)) {
                *gone = Some(format!(
                    "{}: the daemon closed the connection: it ended, or the adapter was restarted or removed",
                    self.name
                ));
            }
        }
        gone.clone().map(Error::Gone)
    }

    fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        self.unless_gone(|| self.arenas.allocate(len))
    }

    // SAFETY: the caller's promise, as the trait says.
    unsafe fn pin(&self, start: NonNull<u8>, len: usize, write: bool) -> Result<Pinned, Error> {
        self.unless_gone(|| adopt::pin(&self.arenas, start.as_ptr().addr(), len, write))
    }

    fn share(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Pinned, Error> {
        self.unless_gone(|| self.arenas.share(file, offset, len))
    }

    fn lender(&self) -> Result<&dyn Lender, Error> {
        Ok(self)
    }
}

impl Lender for HostTransport {
    fn check(&self) -> Result<(), Error> {
        Watch::get().map(drop)
    }

    fn begin(&self, listener: Weak<dyn Listener>) -> Result<u64, Error> {
        self.unless_gone(|| {
            let watch = Watch::get()?;
            watch.hear(listener);
            watch.hold(&self.arenas)
        })
    }

    fn lend(&self, start: usize, len: usize, write: bool) -> Result<Pinned, Error> {
        self.unless_gone(|| Watch::get()?.lend(&self.arenas, start, len, write))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn refusal(path: &Path) -> String {
        HostTransport::connect(path).err().expect("refused").to_string()
    }

    #[test]
    fn errors_name_the_cause_and_the_cure() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("vf0-rdma.sock");
        assert!(refusal(&path).contains("is vnicd running"), "{}", refusal(&path));
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = std::thread::spawn(move || drop(listener.accept()));
        let text = refusal(&path);
        assert!(text.contains("a virtual machine or another program"), "{text}");
        server.join().expect("it ends");
        let text = refusal(&path);
        assert!(text.contains("nobody listens"), "{text}");
        assert!(
            no_rdma("/run/vf0-eth.sock", "…")
                .to_string()
                .contains("use /run/vf0-rdma.sock")
        );
    }
}
