//! A ring of a driver in guest memory (`SPEC.md`, section 6): its extents are translated once.

#![expect(
    unsafe_code,
    reason = "rings of the RDMA function live in guest memory; phases and indices are atomics there"
)]

use std::sync::Arc;

use vnic_device::ring::{self, Extent};

use super::memory::FunctionMemory;
use crate::mem::{self, MemMap};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bytes that are contiguous in the daemon's address space.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Offset in the ring of the first byte.
    at: u64,
    len: u64,
    host: *mut u8,
}

// SAFETY: the address leads into shared memory that the ring's `map` keeps mapped; all access is by copies and atomics.
unsafe impl Send for Piece {}

/// The memory of a ring. Offsets are multiples of the accessed size; no piece ends inside a cache line or an entry.
#[derive(Debug)]
pub struct SharedRing {
    /// Pieces of the memory, nearly always one.
    pieces: Pieces,
    extents: Box<[Extent]>,
    len: u64,
    stride: u32,
    map: Arc<MemMap>,
}

#[derive(Debug)]
enum Pieces {
    None,
    One(Piece),
    Many(Box<[Piece]>),
}

/// Pieces of a ring's memory that were found so far.
#[derive(Debug, Default)]
pub struct Found {
    extents: usize,
    /// Bytes of the extents found so far.
    at: u64,
    pieces: Vec<Piece>,
}

/// A ring whose extents are added one by one.
#[derive(Debug)]
pub struct RingMaker {
    extents: Vec<Extent>,
    pieces: Vec<Piece>,
    /// Bytes of the extents.
    room: u64,
    len: u64,
    stride: u32,
    map: Arc<MemMap>,
}

impl RingMaker {
    /// A ring of `len` bytes with entries of `stride` bytes, in `extents` extents of this memory.
    pub fn new(map: Arc<MemMap>, extents: usize, len: u64, stride: u32) -> RingMaker {
        RingMaker {
            extents: Vec::with_capacity(extents),
            pieces: Vec::new(),
            room: 0,
            len,
            stride,
            map,
        }
    }

    /// Bytes of the ring, and of an entry.
    pub fn wanted(&self) -> (u64, u32) {
        (self.len, self.stride)
    }

    /// Adds the next extent. Returns the number of the guest's memory regions that it spans. `None`: it is not shared or not
    /// aligned.
    pub fn push(&mut self, memory: &FunctionMemory, extent: Extent, last: bool) -> Option<u32> {
        if !ring::is_sound(&extent, last, self.stride) {
            return None;
        }
        let room = self.room.checked_add(extent.len)?;
        let regions = memory.shared_regions(extent.gpa, extent.len)?;
        find(
            &self.map,
            &mut self.pieces,
            &extent,
            self.room,
            self.len,
            self.stride,
        )?;
        self.extents.push(extent);
        self.room = room;
        Some(regions)
    }

    /// The ring. `None`: its extents are too small.
    pub fn finish(self) -> Option<SharedRing> {
        let made = SharedRing {
            pieces: Pieces::of(self.pieces),
            extents: self.extents.into(),
            len: self.len,
            stride: self.stride,
            map: self.map,
        };
        (self.room >= self.len).then_some(made)
    }
}

impl Pieces {
    fn of(pieces: Vec<Piece>) -> Pieces {
        match pieces[..] {
            [one] => Pieces::One(one),
            _ => Pieces::Many(pieces.into()),
        }
    }
}

/// Adds the pieces of a shared extent that begins at byte `at` of a ring of `len` bytes. `None`: a cache line or an entry
/// would be divided.
fn find(
    map: &MemMap,
    pieces: &mut Vec<Piece>,
    extent: &Extent,
    at: u64,
    len: u64,
    stride: u32,
) -> Option<()> {
    let mut at = at.min(len);
    let (mut gpa, mut left) = (extent.gpa, extent.len.min(len - at));
    while left > 0 {
        let (host, room) = map.lookup(gpa)?;
        let step = room.min(left);
        // A cache line or an entry in two of the guest's memory regions could not be accessed at once.
        if step < left && !step.is_multiple_of(u64::from(stride).max(ring::ALIGNMENT))
            || !(host as u64).is_multiple_of(8)
        {
            return None;
        }
        match pieces.last_mut() {
            Some(last) if last.host.wrapping_add(last.len as usize) == host => last.len += step,
            _ => pieces.push(Piece { at, len: step, host }),
        }
        at += step;
        gpa += step;
        left -= step;
    }
    Some(())
}

impl SharedRing {
    /// Whether the ring's memory is mapped: it was at first, and may be gone.
    pub fn is_there(&self) -> bool {
        !matches!(self.pieces, Pieces::None)
    }

    /// Number of extents of the ring.
    pub fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Finds the ring's memory again, `most` extents at a time; until all are found the ring keeps its old memory. `None`:
    /// there are more. False: the memory is gone; the ring must not be used then, and reads as zeros.
    pub fn remap(&mut self, memory: &FunctionMemory, found: &mut Found, most: usize) -> Option<bool> {
        // A ring that was made since is right. (Pieces that were found of a ring that is gone meanwhile are dropped.)
        if Arc::ptr_eq(&self.map, memory.map()) {
            *found = Found::default();
            return Some(self.is_there());
        }
        let extents = self.extents.get(found.extents..).unwrap_or_default();
        let more = extents.len() > most;
        let there = extents.iter().take(most).all(|extent| {
            let at = found.at;
            found.at = at.saturating_add(extent.len);
            memory.is_shared(extent.gpa, extent.len)
                && find(memory.map(), &mut found.pieces, extent, at, self.len, self.stride).is_some()
        });
        found.extents += most;
        if there && more {
            return None;
        }
        let found = std::mem::take(found);
        self.map = memory.map().clone();
        self.pieces = if there {
            Pieces::of(found.pieces)
        } else {
            Pieces::None
        };
        Some(there)
    }

    /// The host address of `len` bytes at an offset, all in one piece.
    #[inline]
    fn place(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let piece = match &self.pieces {
            Pieces::One(piece) => piece,
            Pieces::Many(pieces) => {
                let behind = pieces.partition_point(|p| p.at <= offset);
                pieces.get(behind.wrapping_sub(1))?
            }
            Pieces::None => return None,
        };
        let inside = offset - piece.at;
        if inside.checked_add(len)? > piece.len {
            return None;
        }
        // SAFETY: `inside` was checked against the piece, whose bytes `map` keeps mapped.
        Some(unsafe { piece.host.add(inside as usize) })
    }

    /// Reads an entry or a part of one.
    #[inline]
    pub fn read<const N: usize>(&self, offset: u64) -> [u8; N] {
        match self.place(offset, N as u64) {
            // SAFETY: N mapped bytes; whatever the guest writes meanwhile, any bytes are valid.
            Some(from) => unsafe { from.cast::<[u8; N]>().read_unaligned() },
            None => [0; N],
        }
    }

    /// Loads 64 bits, with acquire ordering.
    #[inline]
    pub fn load_u64(&self, offset: u64) -> u64 {
        match self.place(offset, 8) {
            // SAFETY: eight mapped bytes, aligned because pieces and offsets are; both sides access them atomically.
            Some(at) => unsafe { AtomicU64::from_ptr(at.cast()) }.load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Loads 32 bits, with acquire ordering.
    #[inline]
    pub fn load_u32(&self, offset: u64) -> u32 {
        match self.place(offset, 4) {
            // SAFETY: four mapped, aligned bytes; both sides access them atomically.
            Some(at) => unsafe { AtomicU32::from_ptr(at.cast()) }.load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Stores 32 bits, with release ordering.
    #[inline]
    pub fn store_u32(&self, offset: u64, value: u32) {
        if let Some(at) = self.place(offset, 4) {
            // SAFETY: as in `load_u32`.
            unsafe { AtomicU32::from_ptr(at.cast()) }.store(value, Ordering::Release);
        }
    }

    /// Writes a cache line whose last word, written last, publishes the others.
    #[inline]
    pub fn publish(&self, offset: u64, words: [u64; 8]) {
        if let Some(at) = self.place(offset, 64) {
            let at = at.cast::<u64>();
            for (i, word) in words[..7].iter().enumerate() {
                // SAFETY: 64 mapped bytes, aligned because pieces and offsets are.
                unsafe { at.add(i).write(*word) }
            }
            // SAFETY: as above; both sides access the last word atomically.
            unsafe { AtomicU64::from_ptr(at.add(7)) }.store(words[7], Ordering::Release);
        }
    }

    /// Prefetches a cache line for writing.
    #[inline]
    pub fn prefetch_for_writing(&self, offset: u64) {
        if let Some(at) = self.place(offset, 1) {
            mem::prefetch_for_writing(at);
        }
    }

    /// Prefetches a cache line.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        if let Some(at) = self.place(offset, 1) {
            mem::prefetch(at);
        }
    }
}
