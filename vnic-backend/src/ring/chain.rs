//! Chains of descriptors: limits, faults, and memory of a chain, for both formats of virtqueues.

#![expect(unsafe_code, reason = "descriptors are in guest memory")]

use std::sync::Arc;

use crate::mem::{MemMap, Segs};

/// The longest ring (virtio 1.3 sections 2.7 and 2.8).
pub const MAX_RING: u16 = 32768;
/// The most descriptors of one buffer. Guests use at most about 20; virtio allows the ring's size.
pub const MAX_CHAIN: usize = 1024;

/// The chain goes on.
pub const DESC_NEXT: u16 = 1;
/// The device writes this memory.
pub const DESC_WRITE: u16 = 2;
/// The memory is a table of descriptors.
pub const DESC_INDIRECT: u16 = 4;

/// Invalid content of a ring. The ring is stopped until the guest resets it; other rings go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The size is zero, no power of two (of a split ring) or above `MAX_RING`.
    #[error("ring size {0} is not in 1..=32768, or not a power of two (split rings)")]
    Size(u32),
    /// A ring part is outside guest memory or misaligned.
    #[error("the {0} is outside guest memory or misaligned")]
    Address(&'static str),
    /// `avail.idx` moved further than the ring is long.
    #[error("avail.idx {idx} is more than {size} ahead of {next}")]
    AvailIndex {
        /// Index that the guest wrote.
        idx: u16,
        /// The device's index.
        next: u16,
        /// Ring size.
        size: u16,
    },
    /// A descriptor index is not below the table's length.
    #[error("descriptor index {0} is outside the table")]
    DescriptorIndex(u16),
    /// A chain is longer than allowed, or a loop.
    #[error("descriptor chain is longer than {MAX_CHAIN} or loops")]
    ChainTooLong,
    /// A buffer is outside guest memory.
    #[error("buffer at {addr:#x}, length {len}, is outside guest memory")]
    BufferAddress {
        /// Guest physical address.
        addr: u64,
        /// Length.
        len: u32,
    },
    /// A device-writable buffer in a transmit chain, or a device-readable one in a receive chain.
    #[error("a buffer of the wrong direction")]
    Direction,
    /// A malformed indirect table (length, nesting, or not negotiated).
    #[error("malformed indirect descriptor table")]
    Indirect,
    /// A transmit chain, or a mergeable receive buffer, is shorter than the frame header.
    #[error("a buffer shorter than the frame header")]
    TooShort,
}

/// Addresses of a ring, in the frontend's address space (SET_VRING_ADDR).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RingAddresses {
    /// Descriptor table; of a packed ring, its descriptors.
    pub desc: u64,
    /// Available ring; of a packed ring, the driver event suppression structure.
    pub avail: u64,
    /// Used ring; of a packed ring, the device event suppression structure.
    pub used: u64,
    /// Guest physical address of the used ring for dirty logging, if requested.
    pub used_log: Option<u64>,
}

/// A buffer of a ring: its id, and in a packed ring the number of ring entries that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head(u32);

impl Head {
    /// The buffer `id`, which takes this many ring entries.
    #[inline(always)]
    pub fn new(id: u16, entries: u16) -> Head {
        Head(u32::from(id) | u32::from(entries) << 16)
    }

    /// A buffer of one entry.
    #[inline(always)]
    pub fn one(id: u16) -> Head {
        Head::new(id, 1)
    }

    /// Id of the buffer: in a split ring, the index of its first descriptor.
    #[inline(always)]
    pub fn id(self) -> u16 {
        self.0 as u16
    }

    /// Number of ring entries.
    #[inline(always)]
    pub fn entries(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// The two halves of the descriptor at `i`, each read once. Whatever the guest writes meanwhile, the copy is to be checked.
///
/// # Safety
/// `table` must be mapped for more than `i` descriptors.
#[inline(always)]
pub unsafe fn words(table: *const u8, i: u16) -> (u64, u64) {
    // SAFETY: the caller vouches for the table.
    let (a, b) = unsafe {
        let p = table.add(16 * i as usize).cast::<u64>();
        (p.read_unaligned(), p.add(1).read_unaligned())
    };
    (u64::from_le(a), u64::from_le(b))
}

/// The table of an indirect descriptor: without NEXT, and a whole number of descriptors (virtio 1.3 sections 2.7.5.3 and
/// 2.8.7). `negotiated`: whether the driver may have any.
pub fn indirect_table(
    mem: &MemMap,
    negotiated: bool,
    flags: u16,
    addr: u64,
    len: u32,
) -> Result<(*const u8, u16), Fault> {
    let count = len / 16;
    if !negotiated
        || flags & DESC_NEXT != 0
        || !len.is_multiple_of(16)
        || count == 0
        || count as usize > MAX_CHAIN
    {
        return Err(Fault::Indirect);
    }
    let bad = Fault::BufferAddress { addr, len };
    let (table, room) = mem.lookup(addr).ok_or(bad)?;
    if room < u64::from(len) {
        return Err(bad);
    }
    Ok((table, count as u16))
}

/// A chain's memory, in order.
pub trait Gather {
    /// Adds a descriptor's memory.
    fn add(&mut self, flags: u16, addr: u64, len: u32) -> Result<(), Fault>;
}

fn translate(out: &mut Segs, addr: u64, len: u32) -> Result<(), Fault> {
    match out.translate(addr, len) {
        true => Ok(()),
        false => Err(Fault::BufferAddress { addr, len }),
    }
}

/// Memory of a chain of one direction.
pub struct OneWay<'a> {
    out: &'a mut Segs,
    write: bool,
    /// Bytes.
    pub total: u64,
}

impl<'a> OneWay<'a> {
    /// Appends to `out`. `write`: the memory must be device-writable (receive), else device-readable (transmit).
    pub fn new(mem: &Arc<MemMap>, write: bool, out: &'a mut Segs) -> Self {
        out.of(mem);
        OneWay { out, write, total: 0 }
    }
}

impl Gather for OneWay<'_> {
    fn add(&mut self, flags: u16, addr: u64, len: u32) -> Result<(), Fault> {
        if flags & DESC_INDIRECT != 0 {
            return Err(Fault::Indirect);
        }
        if (flags & DESC_WRITE != 0) != self.write {
            return Err(Fault::Direction);
        }
        translate(self.out, addr, len)?;
        self.total += u64::from(len);
        Ok(())
    }
}

/// Memory of a request: device-readable, then device-writable (virtio 1.3 sections 2.7.4.2 and 2.8.17).
pub struct Request<'a> {
    readable: &'a mut Segs,
    writable: &'a mut Segs,
    /// Bytes of each direction.
    pub total: (u64, u64),
}

impl<'a> Request<'a> {
    /// Appends to these lists.
    pub fn new(mem: &Arc<MemMap>, readable: &'a mut Segs, writable: &'a mut Segs) -> Self {
        readable.of(mem);
        writable.of(mem);
        Request {
            readable,
            writable,
            total: (0, 0),
        }
    }
}

impl Gather for Request<'_> {
    fn add(&mut self, flags: u16, addr: u64, len: u32) -> Result<(), Fault> {
        if flags & DESC_INDIRECT != 0 {
            return Err(Fault::Indirect);
        }
        let write = flags & DESC_WRITE != 0;
        if !write && self.total.1 > 0 {
            return Err(Fault::Direction);
        }
        let (out, sum) = match write {
            true => (&mut *self.writable, &mut self.total.1),
            false => (&mut *self.readable, &mut self.total.0),
        };
        translate(out, addr, len)?;
        *sum += u64::from(len);
        Ok(())
    }
}
