//! A device with its objects, as their owner knows them.

use std::collections::VecDeque;

use vnic_engine::rdma::{
    Access, AhHandle, CqHandle, Device, MrHandle, MwHandle, MwType, PdHandle, QpAttributes, QpInit, QpNumber,
    QpState, QpType, Span, SrqHandle, XrcdHandle,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use super::arena::Arena;

/// A region of memory.
#[derive(Debug)]
pub struct RegionSlot {
    pub mr: MrHandle,
    /// Local and remote key: one number.
    pub key: u32,
    pub pd: usize,
    /// First address, as work requests name it.
    pub base: u64,
    pub len: u64,
    pub access: Access,
    pub spans: Vec<Span>,
    pub arena: Arena,
    /// It can be used.
    pub alive: bool,
    /// It is not registered any more.
    pub deregistered: bool,
}

/// A memory window.
#[derive(Debug)]
pub struct WindowSlot {
    pub mw: MwHandle,
    pub key: u32,
    pub pd: usize,
    pub kind: MwType,
    /// What it shows, if it is bound.
    pub bound: Option<Binding>,
    /// A request is under way that changes it.
    pub busy: bool,
}

/// What a window shows.
#[derive(Debug)]
pub struct Binding {
    /// Its key then.
    pub key: u32,
    /// Queue pair of a type 2 window.
    pub slot: usize,
    pub access: Access,
    pub arena: Arena,
    pub region: usize,
    /// First byte, in the region's addresses.
    pub at: u64,
    /// First byte, in the window's addresses.
    pub base: u64,
    pub len: u64,
}

/// A completion queue.
#[derive(Debug)]
pub struct CqSlot {
    pub handle: CqHandle,
    pub entries: u32,
    /// When it is polled next.
    pub poll: Option<u64>,
    /// At most so many at a time.
    pub max: usize,
    /// It is armed when it is empty.
    pub arms: bool,
}

/// When receives are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Before messages come.
    Early,
    /// A while after the first, again and again, every so many nanoseconds.
    Late(u64),
    /// A few, and then no more.
    Never,
}

/// A receive queue, of a queue pair or shared.
#[derive(Debug)]
pub struct ReceiveSlot {
    pub dev: usize,
    pub srq: Option<SrqHandle>,
    /// The queue pair, if it is not shared.
    pub slot: Option<usize>,
    pub pd: usize,
    pub policy: Policy,
    /// Receives to be kept posted.
    pub depth: u32,
    pub open: u32,
    /// Bytes of a message that fit.
    pub size: u64,
    /// In front of a message.
    pub front: u64,
    pub max_sge: u32,
    /// When more are posted.
    pub refill: Option<u64>,
    /// So often yet.
    pub refills: u32,
    pub alive: bool,
    /// It is for extended reliable connections.
    pub is_xrc: bool,
}

impl ReceiveSlot {
    /// One for so many receives of so many elements, of `size` bytes behind `front`. It is a queue pair's own and not for extended
    /// reliable connections.
    pub fn new(
        dev: usize,
        pd: usize,
        policy: Policy,
        (depth, max_sge): (u32, u32),
        front: u64,
        size: u64,
    ) -> Self {
        ReceiveSlot {
            dev,
            srq: None,
            slot: None,
            pd,
            policy,
            depth,
            open: 0,
            size,
            front,
            max_sge,
            refill: None,
            refills: 0,
            alive: true,
            is_xrc: false,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub struct QpSlot {
    pub dev: usize,
    pub number: QpNumber,
    pub kind: QpType,
    pub init: QpInit,
    pub attributes: QpAttributes,
    pub pd: usize,
    /// The other end, by number of slot; of a DC initiator, the target that it was given work for last.
    pub peer: Option<usize>,
    /// Its receive queue, by number.
    pub receives: Option<usize>,
    /// XRC initiator: receive queues that it may name.
    pub targets: Vec<usize>,
    /// DC target: what initiators have to know.
    pub access_key: u64,
    /// Posted and not known to be complete.
    pub open: VecDeque<u64>,
    pub strict: bool,
    pub alive: bool,
    /// When it is connected, if later.
    pub connect: Option<u64>,
    /// It was connected at the start.
    pub connected_at_once: bool,
}

impl QpSlot {
    pub fn state(&self) -> QpState {
        self.attributes.state
    }
}

/// A destination of datagrams.
#[derive(Debug, Clone, Copy)]
pub struct AhSlot {
    pub ah: AhHandle,
    pub pd: usize,
    /// Device there; none: a group.
    pub dev: Option<usize>,
    /// For dynamic connections: entry of the GID table.
    pub index: Option<u16>,
}

/// A device with its objects.
#[derive(Debug)]
pub struct Node {
    /// None while it is sending: it cannot receive then.
    pub device: Option<Box<Device>>,
    pub mac: MacAddr,
    pub pds: Vec<PdHandle>,
    pub regions: Vec<RegionSlot>,
    pub windows: Vec<WindowSlot>,
    pub cqs: Vec<CqSlot>,
    pub ahs: Vec<AhSlot>,
    pub xrcd: Option<XrcdHandle>,
    pub groups: Vec<(usize, Gid)>,
    /// When it sends next.
    pub transmit: Option<u64>,
}

/// Addresses of a device's GID table: RoCEv1 and v2 over IPv6, v2 over IPv4, both tagged.
pub const GID_COUNT: u16 = 5;

impl Node {
    /// The device.
    pub fn device(&mut self) -> &mut Device {
        self.device.as_mut().expect("it is not sending")
    }
}

/// A piece of somebody's memory that a request uses.
#[derive(Debug, Clone, Copy)]
pub struct Piece {
    pub dev: usize,
    pub holder: Holder,
    pub at: u64,
    pub len: u64,
}

/// Out of what it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    Region(usize),
    Window(usize),
}

/// What the owner notes of a request.
#[derive(Debug, Default)]
pub struct Book {
    /// Queue pair, by number of slot.
    pub slot: Option<usize>,
    /// Receive queue.
    pub receives: Option<usize>,
    /// Free when it has completed.
    pub local: Vec<Piece>,
    /// Free when it has surely been carried out.
    pub remote: Vec<Piece>,
    /// Window that it binds (`true`) or unbinds.
    pub window: Option<(usize, usize, bool)>,
    /// Region whose key it ends.
    pub region: Option<(usize, usize)>,
}

impl Book {
    /// Of a request that uses memory of its own and of its peer's.
    pub fn of(local: Vec<Piece>, remote: Vec<Piece>) -> Book {
        Book {
            local,
            remote,
            ..Book::default()
        }
    }
}
