//! Work queues and completion queues: rings in guest memory.
//!
//! A send queue is a ring of 64-byte blocks; a work request takes one block and as many more as its elements or inline
//! bytes need, over the ring's end as well. A receive queue is a ring of entries of one size. A completion queue is a ring
//! of 64-byte entries that the device writes; the last byte's lowest bit is the phase, as with doorbells.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of a block of a send queue.
pub const BLOCK_LEN: usize = 64;

/// A scatter/gather element: 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Element {
    /// Address in the region that `lkey` names.
    pub addr: u64,
    /// Bytes.
    pub len: u32,
    /// Local key.
    pub lkey: u32,
}

const _: () = assert!(size_of::<Element>() == 16);

/// What a send work request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// SEND.
    Send = 0,
    /// SEND with immediate data.
    SendImm = 1,
    /// SEND with invalidate.
    SendInvalidate = 2,
    /// RDMA WRITE.
    Write = 3,
    /// RDMA WRITE with immediate data.
    WriteImm = 4,
    /// RDMA READ.
    Read = 5,
    /// Compare and swap; the second element's place holds the compare and the swap value.
    CompareSwap = 6,
    /// Fetch and add; the second element's place holds the addend and zero.
    FetchAdd = 7,
    /// Bind a window; [`Bind`] stands in place of the elements.
    BindMw = 8,
    /// Invalidate a local key.
    LocalInvalidate = 9,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 10] = [
        Operation::Send,
        Operation::SendImm,
        Operation::SendInvalidate,
        Operation::Write,
        Operation::WriteImm,
        Operation::Read,
        Operation::CompareSwap,
        Operation::FetchAdd,
        Operation::BindMw,
        Operation::LocalInvalidate,
    ];

    /// The operation with a number.
    pub fn from_number(number: u8) -> Option<Operation> {
        Operation::ALL.get(usize::from(number)).copied()
    }
}

/// Bits of [`SendHead::flags`].
pub mod send_flags {
    /// Waits for the READs and atomics before it.
    pub const FENCE: u8 = 1 << 0;
    /// Completes visibly also when it succeeds.
    pub const SIGNALED: u8 = 1 << 1;
    /// Asks the receiver for an event.
    pub const SOLICITED: u8 = 1 << 2;
    /// Bytes follow instead of elements.
    pub const INLINE: u8 = 1 << 3;
    /// Every flag there is.
    pub const ALL: u8 = FENCE | SIGNALED | SOLICITED | INLINE;
}

/// The first 32 bytes of a send work request. Elements, or inline bytes, follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SendHead {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// [`Operation`].
    pub operation: u8,
    /// [`send_flags`].
    pub flags: u8,
    /// Elements, or with `INLINE` bytes.
    pub count: u16,
    /// Immediate data, or the key to invalidate.
    pub imm: u32,
    /// WRITE, READ, atomics: remote address. UD: address handle (low half) and remote QP (high half).
    pub remote: u64,
    /// WRITE, READ, atomics: remote key. UD: queue key.
    pub rkey: u32,
    /// XRC: number of the remote SRQ.
    pub remote_srq: u32,
}

const _: () = assert!(size_of::<SendHead>() == 32);

/// Blocks that a work request takes: its head is 32 bytes, an element 16, [`Bind`] 40.
pub const fn send_blocks(operation: Operation, flags: u8, count: u16) -> u32 {
    let behind = match operation {
        Operation::BindMw => size_of::<Bind>(),
        Operation::CompareSwap | Operation::FetchAdd => 2 * size_of::<Element>(),
        _ if flags & send_flags::INLINE != 0 => count as usize,
        _ => count as usize * size_of::<Element>(),
    };
    (size_of::<SendHead>() + behind).div_ceil(BLOCK_LEN) as u32
}

/// What a [`Operation::BindMw`] has in place of its elements: 40 bytes, two blocks in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Bind {
    /// The window.
    pub mw: u32,
    /// Its new key.
    pub rkey: u32,
    /// The region.
    pub mr: u32,
    /// Rights: bits as in `command::access`.
    pub access: u32,
    /// First address.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// Zero.
    pub reserved: u64,
}

const _: () = assert!(size_of::<Bind>() == 40);

/// The first 16 bytes of a receive. Its elements follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ReceiveHead {
    /// Comes back in the completion.
    pub wr_id: u64,
    /// Elements.
    pub elements: u32,
    /// Zero.
    pub reserved: u32,
}

const _: () = assert!(size_of::<ReceiveHead>() == 16);

/// Bytes of a receive queue's entry with room for so many elements: a power of two.
pub const fn receive_stride(elements: u32) -> u32 {
    (16 + 16 * elements).next_power_of_two()
}

/// What a completion is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CompletionKind {
    /// SEND.
    Send = 0,
    /// RDMA WRITE.
    Write = 1,
    /// RDMA READ.
    Read = 2,
    /// Compare and swap.
    CompareSwap = 3,
    /// Fetch and add.
    FetchAdd = 4,
    /// Window bound.
    BindMw = 5,
    /// Key invalidated.
    LocalInvalidate = 6,
    /// SEND received.
    Recv = 128,
    /// WRITE with immediate data received.
    RecvWriteImm = 129,
}

/// Bits of [`CompletionEntry::flags`].
pub mod completion_flags {
    /// `imm` holds immediate data.
    pub const IMM: u8 = 1 << 0;
    /// `imm` holds the key that was invalidated.
    pub const INVALIDATED: u8 = 1 << 1;
    /// The first 40 bytes of the buffer are the GRH's.
    pub const GRH: u8 = 1 << 2;
    /// `vlan` and `service_level` are the tag's.
    pub const VLAN: u8 = 1 << 3;
}

/// A completion: 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CompletionEntry {
    /// Of the work request.
    pub wr_id: u64,
    /// QP it was posted to, or that took it from an SRQ.
    pub qp: u32,
    /// Bytes received, READ or fetched.
    pub byte_len: u32,
    /// Immediate data or invalidated key.
    pub imm: u32,
    /// How it ended: numbers of `ibv_wc_status`.
    pub status: u8,
    /// [`CompletionKind`].
    pub kind: u8,
    /// [`completion_flags`].
    pub flags: u8,
    /// Zero.
    pub reserved: u8,
    /// UD: QP of the sender.
    pub source_qp: u32,
    /// UD: VLAN it came on.
    pub vlan: u16,
    /// UD: service level.
    pub service_level: u8,
    /// Zero.
    pub reserved_level: u8,
    /// UD: Ethernet address of the sender.
    pub source_mac: [u8; 6],
    /// Zero.
    pub reserved_mac: [u8; 2],
    /// Blocks or entries of the work queue that are free again up to and with this work request; wraps at 2^32.
    pub consumed: u32,
    /// Zero.
    pub reserved_consumed: u32,
    /// When it was written, in ns of the device's clock.
    pub time: u64,
    /// Zero, and in the last byte the phase (bit 0).
    pub tail: [u8; 8],
}

const _: () = assert!(size_of::<CompletionEntry>() == 64);

/// What stands in front of the entries of a completion queue: 64 bytes, written by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CompletionHead {
    /// Completions that the driver has taken; wraps at 2^32. The device reads it when the ring may be full.
    pub consumer: u32,
    /// Zero.
    pub reserved: [u32; 15],
}

const _: () = assert!(size_of::<CompletionHead>() == 64);
