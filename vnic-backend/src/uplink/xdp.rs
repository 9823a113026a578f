//! A network device of the host as uplink, through AF_XDP sockets (`Documentation/networking/af_xdp.rst` of the kernel).
//!
//! The port has a socket for each receive queue of the device, and a program that hands it the queue's frames ([`bpf`]): they
//! bypass the kernel's network stack, without an `sk_buff` if the driver can. They lie in the daemon's memory ([`memory`]),
//! which the device itself writes if it can (zero-copy); to look for them is no system call. The halves of a port share that
//! memory by parts: each chunk belongs to one of them for good. Frames leave through the first queue.
//!
//! Offload requests do not pass: the switch finishes frames that guests leave to a device. The program ends with the daemon,
//! however that ends, because a descriptor holds it (a BPF link, Linux 5.9).

mod bpf;
mod memory;
mod rx;
mod tx;
mod unfinished;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags as Bind, SocketAddrXdpWithSharedUmem, XDP_PGOFF_RX_RING,
    XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpMmapOffsets,
    XdpOptionsFlags, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::frames::any_of;
use super::link::Facts;
use super::sys;
use crate::types::{NicError, PortSpec, invalid};
use bpf::Mode;
use memory::{Area, Filled, Given, Mapping};
pub use rx::XdpRx;
pub use tx::XdpTx;

/// Largest number of receive queues of a port.
const QUEUES: u32 = 64;
/// Frames of all queues together, and the largest and smallest number of one.
const FRAMES: u32 = 4096;
const FRAMES_MOST: u32 = 2048;
const FRAMES_LEAST: u32 = 256;
/// Chunks for frames to the wire.
const SEND_FRAMES: u32 = 1024;
/// Bytes of a chunk that the kernel keeps before a received frame (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Bytes of a chunk, which is a page at most.
const CHUNKS: [usize; 2] = [2048, 4096];
/// Bytes of a frame besides its MTU: header and two tags.
const LINK: usize = 22;
/// Bytes that may be in flight in the kernel, which counts its own memory, too.
const SEND_BUFFER: usize = 16 << 20;
/// Attempts, and time between them: the kernel takes a while to free the resources of an earlier port.
const TRIES: u32 = 50;
const BETWEEN: Duration = Duration::from_millis(10);

/// Descriptors that both halves hold until the last one is dropped.
pub struct Attached {
    link: OwnedFd,
    /// Socket that keeps the device receiving frames of all addresses.
    _promiscuous: OwnedFd,
}

impl Attached {
    fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

/// Layout of a port's memory.
struct Plan {
    chunk: usize,
    /// Whether frames may take several chunks (`XDP_USE_SG`, Linux 6.6).
    pieces: bool,
    /// Chunks of each receive queue.
    frames: u32,
}

impl Plan {
    fn new(mtu: u16, queues: u32) -> Plan {
        let longest = usize::from(mtu) + LINK;
        let [small, large] = CHUNKS;
        let chunk = if longest + HEADROOM <= small { small } else { large };
        let share = (FRAMES / queues.max(1)).next_power_of_two();
        Plan {
            chunk,
            pieces: longest + HEADROOM > large,
            frames: share.clamp(FRAMES_LEAST, FRAMES_MOST),
        }
    }
}

/// Errors of an interface, with their remedies.
struct Refusals<'a> {
    port: &'a str,
    ifname: &'a str,
}

impl Refusals<'_> {
    fn because(&self, what: &str, source: io::Error, cure: &str) -> NicError {
        NicError::Os {
            what: format!("port {}: {what} of {}{cure}", self.port, self.ifname),
            source,
        }
    }

    fn os(&self, what: &str, source: io::Error) -> NicError {
        let cure = match errno(&source) {
            Some(Errno::PERM | Errno::ACCESS) => {
                " needs the capabilities CAP_NET_ADMIN, CAP_BPF and CAP_NET_RAW; run vnicd with them (a service of \
                 systemd: with ports/xdp.conf)"
            }
            Some(Errno::AFNOSUPPORT | Errno::NOSYS) => {
                ": this kernel has no AF_XDP (CONFIG_XDP_SOCKETS, CONFIG_BPF_SYSCALL); take a port of type packet (or a \
                 service of systemd lacks ports/xdp.conf)"
            }
            Some(Errno::NOBUFS | Errno::NOMEM) => {
                " needs locked memory; raise RLIMIT_MEMLOCK (LimitMEMLOCK= of the unit, ulimit -l), or run vnicd with \
                 CAP_IPC_LOCK"
            }
            _ => "",
        };
        self.because(what, source, cure)
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw_os_error)
}

/// Opens an existing interface. Returns also, as a text, how frames come and go.
pub fn open(spec: &PortSpec, ifname: &str, facts: &Facts) -> Result<(XdpRx, XdpTx, String), NicError> {
    let refused = Refusals {
        port: &spec.name,
        ifname,
    };
    let known = sys::receive_queues(ifname);
    let queues = known.unwrap_or(1);
    if queues > QUEUES {
        return invalid(
            "ifname",
            format!(
                "{ifname} has {queues} receive queues, and an xdp port serves {QUEUES}: ethtool -L {ifname} combined {QUEUES}"
            ),
        );
    }
    let driver = sys::driver(ifname).unwrap_or_default();
    // The peer is a kernel, or a program that talks to one.
    let kernel_peer = driver == "veth";
    // Frames of a veth pair keep their sender's tags, whatever this flag says.
    if !kernel_peer && sys::takes_tags(ifname) {
        return invalid(
            "ifname",
            format!(
                "{ifname} takes VLAN tags out of frames, and AF_XDP never sees them: ethtool -K {ifname} rxvlan off"
            ),
        );
    }
    let plan = Plan::new(spec.mtu, queues);
    let promiscuous =
        promiscuous(facts.index).map_err(|e| refused.os("receiving the frames of all addresses", e))?;
    let map = bpf::map(queues).map_err(|e| refused.os("making a map for the XDP program", e))?;
    let program = bpf::program(map.as_fd(), plan.pieces).map_err(|e| match errno(&e) {
        Some(Errno::INVAL) if plan.pieces => refused.because(
            "loading an XDP program for long frames",
            e,
            ": needs Linux 5.18; take an MTU of at most 3818",
        ),
        _ => refused.os("loading an XDP program", e),
    })?;
    let (link, mode, native) = attach(&refused, program.as_fd(), facts.index)?;
    let made = Sockets::make(&refused, &plan, queues, facts.index, mode)?;
    for (queue, socket) in (0..queues).zip(&made.queues) {
        bpf::serve(map.as_fd(), queue, socket.socket.as_fd())
            .map_err(|e| refused.os("giving frames to a socket", e))?;
    }
    let zero_copy = made.zero_copy;
    let port = Arc::new(Attached {
        link,
        _promiscuous: promiscuous,
    });
    let (rx, tx) = made
        .halves(&plan, spec, kernel_peer, port)
        .map_err(|e| refused.os("waiting for frames", e))?;
    let copy = if zero_copy { "zero-copy" } else { "copy" };
    let s = if queues == 1 { "" } else { "s" };
    Ok((rx, tx, format!("xdp {copy}, {native}, {queues} queue{s}")))
}

/// A socket that only keeps the device receiving frames of all addresses.
fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
    sys::receive_all(socket.as_fd(), index)?;
    Ok(socket)
}

/// Attaches the program to the driver, or else before the network stack. Returns the link, the mode, and the mode as a text.
fn attach(
    refused: &Refusals<'_>,
    program: BorrowedFd<'_>,
    index: u32,
) -> Result<(OwnedFd, Mode, String), NicError> {
    let busy = |e: &io::Error| matches!(errno(e), Some(Errno::BUSY | Errno::EXIST));
    let native = match patient(busy, || bpf::attach(program, index, Mode::Native)) {
        Ok(link) => return Ok((link, Mode::Native, "native".into())),
        Err(e) => e,
    };
    if !busy(&native)
        && errno(&native) != Some(Errno::PERM)
        && let Ok(link) = bpf::attach(program, index, Mode::Generic)
    {
        return Ok((link, Mode::Generic, format!("generic (native: {native})")));
    }
    Err(match errno(&native) {
        Some(Errno::BUSY | Errno::EXIST) => refused.because(
            "attaching an XDP program",
            native,
            &format!(
                ": it has another one, which ip link show dev {0} names; ip link set dev {0} xdp off takes it away if no \
                 process holds it",
                refused.ifname
            ),
        ),
        Some(Errno::INVAL) => refused.because(
            "attaching an XDP program",
            native,
            " needs Linux 5.9 (BPF links of XDP)",
        ),
        _ => refused.os("attaching an XDP program", native),
    })
}

/// Tries again for a while if the error is `busy`.
fn patient<T>(
    busy: impl Fn(&io::Error) -> bool,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    for _ in 1..TRIES {
        match attempt() {
            Err(e) if busy(&e) => std::thread::sleep(BETWEEN),
            answer => return answer,
        }
    }
    attempt()
}

/// A bound socket for each queue.
struct Sockets {
    queues: Vec<rx::Queue>,
    tx: Given<memory::Piece>,
    completed: Filled<u64>,
    memory: Mapping,
    zero_copy: bool,
}

impl Sockets {
    fn make(
        refused: &Refusals<'_>,
        plan: &Plan,
        queues: u32,
        index: u32,
        mode: Mode,
    ) -> Result<Sockets, NicError> {
        let chunks = plan.frames * queues + SEND_FRAMES;
        let memory = Mapping::new(chunks as usize * plan.chunk)
            .map_err(|e| refused.os("taking memory for frames", e))?;
        let mut made: Vec<rx::Queue> = Vec::new();
        let mut sending = None;
        for queue in 0..queues {
            let first = made.first().map(|q| q.socket.clone());
            let (socket, offsets) = new_socket(plan, first.is_none().then_some(&memory))
                .map_err(|e| refused.os("making an AF_XDP socket", e))?;
            let ring = |e| refused.os("mapping a ring", e);
            let fd = socket.as_fd();
            let rx = Filled::new(fd, offsets.rx, plan.frames, XDP_PGOFF_RX_RING).map_err(ring)?;
            let mut fill = Given::new(fd, offsets.fr, plan.frames, XDP_UMEM_PGOFF_FILL_RING).map_err(ring)?;
            for chunk in 0..plan.frames {
                fill.push(u64::from(queue * plan.frames + chunk) * plan.chunk as u64);
            }
            fill.publish();
            if first.is_none() {
                let page = XDP_UMEM_PGOFF_COMPLETION_RING;
                let tx = Given::new(fd, offsets.tx, SEND_FRAMES, XDP_PGOFF_TX_RING).map_err(ring)?;
                let completed = Filled::new(fd, offsets.cr, SEND_FRAMES, page).map_err(ring)?;
                sending = Some((tx, completed));
            }
            let busy = |e: &io::Error| errno(e) == Some(Errno::BUSY);
            let shared = first.as_ref().map(|f| f.as_fd());
            patient(busy, || bind(fd, index, queue, plan, mode, shared)).map_err(|e| match errno(&e) {
                Some(Errno::BUSY) => refused.because(
                    &format!("binding an AF_XDP socket to queue {queue}"),
                    e,
                    ": another program has one there; end it",
                ),
                Some(Errno::INVAL) if plan.pieces => refused.because(
                    "binding an AF_XDP socket for long frames",
                    e,
                    ": needs Linux 6.6; take an MTU of at most 3818",
                ),
                _ => refused.os("binding an AF_XDP socket", e),
            })?;
            made.push(rx::Queue {
                socket: Arc::new(socket),
                rx,
                fill,
                lost: 0,
                crowded: false,
                taken: false,
            });
        }
        let none = || refused.os("making an AF_XDP socket", io::ErrorKind::NotFound.into());
        let (tx, completed) = sending.ok_or_else(none)?;
        let options = made.first().map(|q| sockopt::xdp_options(&*q.socket));
        Ok(Sockets {
            queues: made,
            tx,
            completed,
            memory,
            zero_copy: matches!(options, Some(Ok(o)) if o.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY)),
        })
    }

    fn halves(
        self,
        plan: &Plan,
        spec: &PortSpec,
        kernel_peer: bool,
        port: Arc<Attached>,
    ) -> io::Result<(XdpRx, XdpTx)> {
        let all = any_of(self.queues.iter().map(|queue| &*queue.socket))?;
        let received = plan.frames as usize * self.queues.len();
        let [area, sent] = Area::split(self.memory, received * plan.chunk);
        let mut free = Vec::with_capacity(SEND_FRAMES as usize);
        free.extend((received..received + SEND_FRAMES as usize).map(|c| (c * plan.chunk) as u64));
        let socket = match self.queues.first() {
            Some(queue) => queue.socket.clone(),
            None => return Err(io::ErrorKind::NotFound.into()),
        };
        let rx = XdpRx {
            queues: self.queues,
            area,
            chunk: plan.chunk as u64,
            at: 0,
            given: 0,
            held: None,
            lost: 0,
            kernel_peer,
            all,
            port: port.clone(),
        };
        let tx = XdpTx {
            socket,
            tx: self.tx,
            completed: self.completed,
            area: sent,
            chunk: plan.chunk,
            free,
            longest: usize::from(spec.mtu) + LINK,
            zero_copy: self.zero_copy,
            down: false,
            _port: port,
        };
        Ok((rx, tx))
    }
}

/// Makes a socket with its rings, not bound. The first one of a port registers the memory, and sends.
fn new_socket(plan: &Plan, memory: Option<&Mapping>) -> io::Result<(OwnedFd, XdpMmapOffsets)> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
    let completed = if let Some(memory) = memory {
        // Without CAP_NET_ADMIN the size stays as the host configures it: slower, not wrong.
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        sockopt::set_xdp_umem_reg(
            &socket,
            XdpUmemReg {
                addr: memory.address(),
                len: memory.len() as u64,
                chunk_size: plan.chunk as u32,
                headroom: 0,
                flags: XdpUmemRegFlags::empty(),
                tx_metadata_len: 0,
            },
        )?;
        sockopt::set_xdp_tx_ring_size(&socket, SEND_FRAMES)?;
        SEND_FRAMES
    } else {
        // The ring is mandatory, and stays empty.
        1
    };
    sockopt::set_xdp_umem_completion_ring_size(&socket, completed)?;
    sockopt::set_xdp_umem_fill_ring_size(&socket, plan.frames)?;
    sockopt::set_xdp_rx_ring_size(&socket, plan.frames)?;
    let offsets = sockopt::xdp_mmap_offsets(&socket)?;
    Ok((socket, offsets))
}

fn bind(
    socket: BorrowedFd<'_>,
    index: u32,
    queue: u32,
    plan: &Plan,
    mode: Mode,
    shared: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    if let Some(shared_umem_fd) = shared {
        let addr = SocketAddrXdp::new(Bind::XDP_SHARED_UMEM, index, queue);
        let all = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd };
        return Ok(rustix::net::bind(socket, &all)?);
    }
    // Without a flag the kernel uses zero-copy if the driver has it, and copies otherwise.
    let mut flags = Bind::XDP_USE_NEED_WAKEUP;
    flags.set(Bind::XDP_COPY, mode == Mode::Generic);
    flags.set(Bind::XDP_USE_SG, plan.pieces);
    Ok(rustix::net::bind(
        socket,
        &SocketAddrXdp::new(flags, index, queue),
    )?)
}
