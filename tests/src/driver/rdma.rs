//! A driver of the RDMA function, written out by hand from `proto/device/SPEC.md`: a second reader of the contract, for
//! tests of the device and for everything that no driver should do.
//!
//! ```no_run
//! use vnic_device::command::Opcode;
//! use vnic_tests::driver::rdma::{Driver, Options};
//!
//! let mut driver = Driver::attach("/run/vnic/vf0-rdma.sock", Options::default())?;
//! driver.hello();
//! let pd: vnic_device::command::Object = driver.ask(Opcode::AllocPd, &[0u8; 0], &[])?;
//! println!("{}", pd.handle);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod area;
mod chain;
mod connections;
mod objects;
mod queues;
mod side;
pub mod spec;
mod verbs;

use std::collections::{BTreeSet, VecDeque};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vhost::VhostBackend;
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures as P};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};
use vnic_device::command::device::{Hello, HelloReply};
use vnic_device::command::{Opcode, ReplyHead};
use vnic_device::config::{ABI_MINOR, Config, PROTOCOL_SHARES};
use vnic_device::event::{EventKind, EventRecord};
use vnic_device::ring::Extent;
use vnic_device::status::CommandStatus;
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::feature;
use super::guest::pause;
use super::memory::GuestMem;
use super::rig::deadline;
use super::ring::{Desc, Ring, WRITE};

pub use area::Area;
pub use chain::{Pieces, Reply};
pub use objects::{FULL, Link, Mr, QpSpec, extents, list_of};
pub use queues::{Bells, Cq, Qp, ReceiveRing, SendRing, Srq};
pub use side::{Side, World};
pub use verbs::{Wr, connect, fill, link};

/// Virtqueues, commands and event buffers are here.
pub const RINGS_AT: u64 = 0x10_0000;
/// Everything that is allocated is here.
pub const HEAP_AT: u64 = 1 << 32;
/// Bytes of a command's arena.
const ARENA: u64 = 4 << 20;

/// What kind of driver it is.
#[derive(Debug, Clone)]
pub struct Options {
    /// Feature bits the driver accepts.
    pub features: u64,
    /// Entries of the virtqueues.
    pub queue_size: u16,
    /// Event buffers that it keeps posted.
    pub events: u16,
    /// Bytes of memory to allocate from.
    pub memory: u64,
    /// Whether it is a process that shares the function with others.
    pub shares: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            features: feature::VERSION_1 | feature::PROTOCOL_FEATURES,
            queue_size: 128,
            events: 64,
            memory: 16 << 20,
            shares: false,
        }
    }
}

/// A driver and its memory. See the module.
pub struct Driver {
    /// What it was made with.
    pub options: Options,
    /// Its memory.
    pub mem: GuestMem,
    frontend: Option<Frontend>,
    /// Virtqueue 0.
    pub control: Ring,
    /// Virtqueue 1.
    pub event_ring: Ring,
    /// The kick of virtqueue 2.
    pub wake: EventFd,
    wake_call: EventFd,
    arena: u64,
    buffers: u64,
    next: u64,
    /// How commands are cut into descriptors.
    pub pieces: Pieces,
    /// Every command and its end, by number.
    pub seen: BTreeSet<(u16, u32)>,
    cookie: u64,
    /// Events that came and were not asked for yet.
    pub events: VecDeque<EventRecord>,
}

/// The next free piece of memory in a region of `mem`.
fn layout(queue_size: u16, events: u16) -> (u64, u64, u64, u64) {
    let event_ring = RINGS_AT + Ring::footprint(queue_size);
    let buffers = event_ring + Ring::footprint(queue_size);
    let arena = (buffers + 64 * u64::from(events.max(queue_size))).next_multiple_of(4096);
    (event_ring, buffers, arena, arena + ARENA - RINGS_AT)
}

impl Driver {
    /// A driver that is not attached.
    pub fn new(options: Options) -> Result<Driver> {
        let (event_ring, buffers, arena, len) = layout(options.queue_size, options.events);
        let mut mem = GuestMem::new();
        mem.add(RINGS_AT, len)?;
        mem.add(HEAP_AT, options.memory)?;
        let ring = |at| -> Result<Ring> {
            let mut ring = Ring::new(&mem, at, options.queue_size)?;
            ring.event_idx = options.features & feature::RING_EVENT_IDX != 0;
            Ok(ring)
        };
        let eventfd = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC);
        let (control, event_ring) = (ring(RINGS_AT)?, ring(event_ring)?);
        Ok(Driver {
            control,
            event_ring,
            wake: eventfd()?,
            wake_call: eventfd()?,
            mem,
            options,
            frontend: None,
            arena,
            buffers,
            next: HEAP_AT,
            pieces: Pieces::default(),
            seen: BTreeSet::new(),
            cookie: 0x1000,
            events: VecDeque::new(),
        })
    }

    /// A driver that is attached; HELLO is not said.
    pub fn attach(socket: impl AsRef<Path>, options: Options) -> Result<Driver> {
        let mut driver = Driver::new(options)?;
        driver.connect(socket)?;
        Ok(driver)
    }

    /// A driver that is attached and has said HELLO.
    pub fn start(socket: impl AsRef<Path>, options: Options) -> Result<Driver> {
        let mut driver = Driver::attach(socket, options)?;
        driver.hello();
        Ok(driver)
    }

    /// Connects, shares the memory and starts all virtqueues anew.
    pub fn connect(&mut self, socket: impl AsRef<Path>) -> Result<()> {
        let f = Self::negotiate(socket.as_ref(), self.options.features, self.options.shares)?;
        f.set_mem_table(&self.mem.regions())?;
        self.frontend = Some(f);
        self.control.reset()?;
        self.event_ring.reset()?;
        self.events.clear();
        self.start_rings()
    }

    /// Connects to the socket, waiting for it, and agrees on features.
    pub fn negotiate(socket: &Path, features: u64, shares: bool) -> Result<Frontend> {
        let deadline = deadline();
        let stream = loop {
            match UnixStream::connect(socket) {
                Ok(s) => break s,
                Err(e) if Instant::now() > deadline => bail!("connecting to {}: {e}", socket.display()),
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(1)),
            }
        };
        let mut f = Frontend::from_stream(stream, 3);
        f.set_owner()?;
        let offered = f.get_features()?;
        ensure!(
            features & !offered == 0,
            "not offered: {:#x}",
            features & !offered
        );
        let ours = P::MQ | P::REPLY_ACK | P::RESET_DEVICE | P::CONFIG | P::CONFIGURE_MEM_SLOTS;
        let offered = f.get_protocol_features()?;
        ensure!(offered.contains(ours), "protocol features {offered:?}");
        let shares = if shares { 1 << PROTOCOL_SHARES } else { 0 };
        f.set_protocol_features(ours | P::from_bits_retain(shares))?;
        f.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        f.set_features(features)?;
        Ok(f)
    }

    /// Starts all three virtqueues where their used index stands, and posts event buffers.
    pub fn start_rings(&mut self) -> Result<()> {
        self.start_ring(0)?;
        self.start_ring(1)?;
        self.start_ring(2)?;
        self.post_events();
        Ok(())
    }

    /// Starts one virtqueue where its used index stands. Virtqueue 2 never has a buffer, and so no addresses.
    pub fn start_ring(&mut self, i: usize) -> Result<()> {
        let f = self.frontend.as_mut().context("not attached")?;
        let ring = match i {
            0 => &self.control,
            1 => &self.event_ring,
            _ => {
                f.set_vring_call(2, &self.wake_call)?;
                f.set_vring_kick(2, &self.wake)?;
                f.set_vring_enable(2, true)?;
                return Ok(());
            }
        };
        f.set_vring_num(i, ring.size())?;
        f.set_vring_base(i, ring.used_idx())?;
        f.set_vring_addr(i, &ring.config(false))?;
        f.set_vring_call(i, &ring.call)?;
        f.set_vring_kick(i, &ring.kick)?;
        f.set_vring_enable(i, true)?;
        Ok(())
    }

    /// Stops virtqueue 0, which ends everything, and the others; answers how far they were.
    pub fn stop_rings(&mut self) -> Result<[u16; 3]> {
        let f = self.frontend()?;
        let mut bases = [0; 3];
        for (i, base) in bases.iter_mut().enumerate() {
            *base = f.get_vring_base(i)? as u16;
        }
        Ok(bases)
    }

    /// Closes the connection without a word, as a process that is killed.
    pub fn hang_up(&mut self) {
        self.frontend = None;
    }

    /// The VMM's half of vhost-user.
    pub fn frontend(&mut self) -> Result<&mut Frontend> {
        self.frontend.as_mut().context("not attached")
    }

    /// The configuration space.
    pub fn config(&mut self) -> Result<Config> {
        let len = size_of::<Config>() as u32;
        let empty = vec![0; len as usize];
        let (_, bytes) = self
            .frontend()?
            .get_config(0, len, VhostUserConfigFlags::empty(), &empty)?;
        Config::read_from_bytes(&bytes)
            .ok()
            .context("a configuration of another size")
    }

    /// Adds memory and tells the device (ADD_MEM_REG).
    pub fn plug(&mut self, gpa: u64, len: u64) -> Result<()> {
        self.mem.add(gpa, len)?;
        let region = self.mem.region(gpa)?;
        self.frontend()?.add_mem_region(&region)?;
        Ok(())
    }

    /// Takes memory away (REM_MEM_REG).
    pub fn unplug(&mut self, gpa: u64) -> Result<()> {
        let region = self.mem.region(gpa)?;
        self.frontend()?.remove_mem_region(&region)?;
        self.mem.remove(gpa)
    }

    /// Tells all memory again (SET_MEM_TABLE): the device maps it at other places of its own.
    pub fn set_mem_table(&mut self) -> Result<()> {
        let regions = self.mem.regions();
        self.frontend()?.set_mem_table(&regions)?;
        Ok(())
    }

    // Memory.

    /// Memory of zeros, in one piece.
    pub fn area(&mut self, len: u64) -> Area {
        self.area_in(&[len])
    }

    /// Memory of zeros in pieces of these lengths, each at a multiple of 64, none beside the next.
    ///
    /// # Panics
    /// When there is not so much.
    pub fn area_in(&mut self, pieces: &[u64]) -> Area {
        let mut extents = Vec::new();
        for len in pieces {
            let gpa = self.next;
            self.next += len.next_multiple_of(64) + 64;
            assert!(
                self.next <= HEAP_AT + self.options.memory,
                "the driver has no more memory"
            );
            extents.push(Extent { gpa, len: *len });
        }
        let area = Area::new(&self.mem, extents);
        area.write(0, &vec![0; area.len() as usize]);
        area
    }

    /// How much was allocated: [`Driver::release`] goes back to there.
    pub fn mark(&self) -> u64 {
        self.next
    }

    /// Everything allocated since is free again.
    pub fn release(&mut self, mark: u64) {
        self.next = mark;
    }

    // Events.

    fn post_events(&mut self) {
        for i in 0..self.options.events.min(self.event_ring.size()) {
            self.offer_event_buffer(i, 32);
        }
        self.event_ring.publish();
    }

    /// Offers event buffer `i` with `len` bytes; the device sees it after `event_ring.publish()`.
    pub fn offer_event_buffer(&mut self, i: u16, len: u32) {
        let desc = Desc {
            addr: self.buffers + 64 * u64::from(i),
            len,
            flags: WRITE,
            next: 0,
        };
        self.event_ring.set_desc(i, desc);
        self.event_ring.offer(i);
    }

    /// Takes the next event out of its buffer, which is posted again with `repost`. Length 0 is `None`.
    ///
    /// # Panics
    /// When the device gives back another length than 32 or 0.
    pub fn take_event(&mut self, repost: bool) -> Option<Option<EventRecord>> {
        let (head, len) = self.event_ring.take()?;
        let mut record = EventRecord::default();
        if len > 0 {
            assert_eq!(len, 32, "an event of another length");
            let at = self.buffers + 64 * u64::from(head);
            self.mem.read(at, record.as_mut_bytes()).expect("an event buffer");
            assert_eq!(record.reserved, [0; 2]);
        }
        if repost {
            self.offer_event_buffer(head as u16, 32);
            self.event_ring.publish();
        }
        Some((len > 0).then_some(record))
    }

    /// Collects all events there are.
    pub fn poll_events(&mut self) -> usize {
        while let Some(event) = self.take_event(true) {
            self.events.extend(event);
        }
        self.events.len()
    }

    /// Waits for an event of a kind; others stay in `events`.
    ///
    /// # Panics
    /// When none comes.
    pub fn event(&mut self, kind: EventKind) -> EventRecord {
        let deadline = deadline();
        for tries in 0.. {
            self.poll_events();
            if let Some(i) = self.events.iter().position(|e| e.kind == kind.number()) {
                return self.events.remove(i).expect("it is there");
            }
            assert!(
                Instant::now() < deadline,
                "no event {kind:?} came; there are {:?}",
                self.events
            );
            pause(tries);
        }
        unreachable!("the deadline ends it")
    }

    /// Events of a kind that are there by now; they are taken. A command has gone by since, so that everything that
    /// was due before it is there.
    pub fn count_events(&mut self, kind: EventKind) -> usize {
        self.sync();
        self.poll_events();
        let before = self.events.len();
        self.events.retain(|e| e.kind != kind.number());
        before - self.events.len()
    }

    /// A command goes by, and one more: the device has seen everything before, and has finished that turn.
    pub fn sync(&mut self) {
        for _ in 0..2 {
            self.command(Opcode::QueryClock, &[], &[]);
        }
    }

    /// Says HELLO, in the newest version that this driver speaks.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn hello(&mut self) -> HelloReply {
        self.hello_up_to(ABI_MINOR)
    }

    /// Says HELLO as a driver of that minor version, or an older one.
    ///
    /// # Panics
    /// When the device refuses.
    pub fn hello_up_to(&mut self, minor_max: u16) -> HelloReply {
        let hello = Hello {
            abi_major: 1,
            minor_max,
            ..Hello::default()
        };
        self.ask(Opcode::Hello, &hello, &[]).expect("HELLO")
    }

    fn record(&mut self, opcode: u16, head: &ReplyHead) -> CommandStatus {
        self.seen.insert((opcode, head.status));
        CommandStatus::from_number(head.status).expect("a status of the contract")
    }
}
