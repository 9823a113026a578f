//! Guest memory: mappings, address translation and the copies between guests.
//!
//! Guest memory is shared with a running guest, so there is no Rust reference into it: everything here works on raw pointers
//! and copies bytes. A [`Seg`] comes from the translation of a range inside one mapping of a [`MemMap`], or from the daemon's
//! own bytes that nothing else can access meanwhile; it cannot outlive either. [`Segs`] is a list that keeps its map.
//!
//! Assumption: guests write during copies. In Rust's memory model that is a data race, as in each VMM; on the supported
//! machines a racing copy gives some bytes, old or new, and has no other effect. So any bytes of guests are valid, checks use
//! a private copy that was read once, and nothing is read again after its check. Ring indexes, which order other accesses,
//! are atomics.

#![expect(
    unsafe_code,
    reason = "guest memory: mapped by the guest's leave, read and written while the guest runs"
)]

mod mapping;
mod sigbus;

use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_wire::checksum;

use mapping::Mapping;
#[cfg(test)]
pub use mapping::executable;
pub use sigbus::Lender;

/// A piece of memory with bytes of a frame: a guest's, or the daemon's own. Its holder may read and write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seg<'m> {
    ptr: *mut u8,
    len: u32,
    of: PhantomData<&'m [u8]>,
}

// SAFETY: an address and a length; memory may be copied from and to by any thread.
unsafe impl Send for Seg<'_> {}

impl<'m> Seg<'m> {
    /// No bytes.
    pub const EMPTY: Seg<'static> = Seg {
        ptr: std::ptr::dangling_mut(),
        len: 0,
        of: PhantomData,
    };

    /// A segment of the daemon's own memory, at most its first 4 GiB.
    #[inline]
    pub fn of(bytes: &'m mut [u8]) -> Seg<'m> {
        Seg {
            ptr: bytes.as_mut_ptr(),
            len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            of: PhantomData,
        }
    }

    /// `len` bytes from `from` on, as far as the segment has them.
    #[inline]
    pub fn part(&self, from: usize, len: usize) -> Seg<'m> {
        let from = from.min(self.len());
        Seg {
            // SAFETY: at most the segment's end.
            ptr: unsafe { self.ptr.add(from) },
            len: len.min(self.len() - from) as u32,
            of: PhantomData,
        }
    }

    /// The segment, for longer than the compiler knows its memory to exist.
    ///
    /// # Safety
    /// The memory is mapped, and there is no reference into it, for as long as any copy of the result is used.
    #[inline]
    pub unsafe fn lent(self) -> Seg<'static> {
        Seg {
            ptr: self.ptr,
            len: self.len,
            of: PhantomData,
        }
    }

    /// Bytes of the segment.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "empty segments are hardly ever made")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Prefetches the cache line of the byte at `at`.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        prefetch(self.ptr.wrapping_add(at));
    }

    /// Prefetches the cache line of the byte at `at` for writing.
    #[inline(always)]
    pub fn prefetch_for_writing(&self, at: usize) {
        prefetch_for_writing(self.ptr.wrapping_add(at));
    }

    /// Reads `N` bytes at `at`, if the segment has them.
    #[inline(always)]
    pub fn read<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at + N > self.len as usize {
            return None;
        }
        // SAFETY: the bytes lie inside the segment; whatever the guest writes meanwhile, any bytes are valid.
        Some(unsafe { self.ptr.add(at).cast::<[u8; N]>().read_unaligned() })
    }

    /// Writes `N` bytes at `at`; does nothing if the segment has no room.
    #[inline(always)]
    pub fn write<const N: usize>(&self, at: usize, bytes: &[u8; N]) {
        if at + N <= self.len as usize {
            // SAFETY: the bytes lie inside the segment.
            unsafe { self.ptr.add(at).cast::<[u8; N]>().write_unaligned(*bytes) }
        }
    }

    /// Writes `bytes` at `at`; does nothing if the segment has no room.
    #[inline]
    pub fn write_slice(&self, at: usize, bytes: &[u8]) {
        if at + bytes.len() <= self.len as usize {
            // SAFETY: the bytes lie inside the segment, and `bytes` is private memory.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.ptr.add(at), bytes.len()) }
        }
    }

    /// Copies `len` bytes at `from` of `src` to `at`; does nothing if either has too few.
    #[inline]
    pub fn copy_from(&self, at: usize, src: &Seg<'_>, from: usize, len: usize) {
        if at + len <= self.len as usize && from + len <= src.len as usize {
            // SAFETY: both ranges lie inside their segments; an overlap is harmless to `copy`.
            unsafe { std::ptr::copy(src.ptr.add(from), self.ptr.add(at), len) }
        }
    }
}

/// The memory of a frame stays as it is until the burst that brought the frame ends.
#[derive(Debug, Clone, Copy)]
pub struct Lasting {
    /// Whether the sender's device has verified the checksum.
    pub verified: bool,
    _lasts: (),
}

impl Lasting {
    /// Says so of a frame.
    ///
    /// # Safety
    /// The memory of the frame stays mapped, and there is no reference into it while anything else is done with it, until the
    /// data core that delivers the frame has ended its burst (`Outputs::end_burst`).
    pub unsafe fn new(verified: bool) -> Lasting {
        Lasting { verified, _lasts: () }
    }
}

/// Segments of one guest's memory, which stays mapped for as long as the list has any.
#[derive(Debug, Default)]
pub struct Segs {
    segs: Vec<Seg<'static>>,
    map: Option<Arc<MemMap>>,
}

impl Segs {
    /// An empty list with capacity.
    pub fn with_capacity(n: usize) -> Segs {
        Segs {
            segs: Vec::with_capacity(n),
            map: None,
        }
    }

    /// The segments.
    #[inline(always)]
    pub fn as_slice<'s>(&'s self) -> &'s [Seg<'s>] {
        &self.segs
    }

    /// The segment at `i`.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<Seg<'_>> {
        self.segs.get(i).copied()
    }

    /// Number of segments.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.segs.len()
    }

    /// Removes all segments; the memory stays mapped.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.segs.clear();
    }

    /// Removes all segments, and does not keep the memory mapped any more.
    pub fn release(&mut self) {
        self.segs.clear();
        self.map = None;
    }

    /// Selects the memory of later segments. Segments of another memory are removed.
    #[inline]
    pub fn of(&mut self, map: &Arc<MemMap>) {
        if !self.map.as_ref().is_some_and(|own| Arc::ptr_eq(own, map)) {
            self.segs.clear();
            self.map = Some(map.clone());
        }
    }

    /// Adds a guest physical range; more than one segment if it crosses adjacent regions. False: a byte is outside guest
    /// memory. A length of zero adds nothing.
    #[inline]
    pub fn translate(&mut self, mut gpa: u64, mut len: u32) -> bool {
        let Some(map) = &self.map else { return false };
        while len > 0 {
            let Some((ptr, room)) = map.lookup(gpa) else {
                return false;
            };
            let take = room.min(u64::from(len)) as u32;
            let of = PhantomData;
            self.segs.push(Seg { ptr, len: take, of });
            len -= take;
            gpa = gpa.wrapping_add(u64::from(take));
        }
        true
    }
}

/// Up to `N` buffers of a ring, by the indexes of their descriptors, each contiguous. Their memory stays mapped for as long
/// as there are any.
#[derive(Default)]
pub struct Buffers<const N: usize> {
    list: ArrayVec<(u16, Seg<'static>), N>,
    map: Option<Arc<MemMap>>,
}

impl<const N: usize> Buffers<N> {
    /// The buffer at `i`: its index and its memory.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<(u16, Seg<'_>)> {
        self.list.get(i).copied()
    }

    /// Number of buffers.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Removes all buffers; the memory stays mapped.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Adds the buffer `head`, a guest physical range of this memory; buffers of another memory are removed. Returns its
    /// memory; `None`: it is not in one region, or there is no room.
    #[inline(always)]
    pub fn push(&mut self, map: &Arc<MemMap>, head: u16, gpa: u64, len: u32) -> Option<Seg<'_>> {
        if !self.map.as_ref().is_some_and(|own| Arc::ptr_eq(own, map)) {
            self.list.clear();
            self.map = Some(map.clone());
        }
        // SAFETY: of the list's own map, which it keeps while it has segments; it returns them for no longer than it is
        // borrowed.
        let seg = unsafe { map.seg(gpa, len)?.lent() };
        self.list.try_push((head, seg)).ok()?;
        Some(seg)
    }
}

/// One region of guest memory, as the frontend describes it (vhost-user, "Memory region description").
#[derive(Debug, Clone)]
pub struct Region {
    /// Guest physical address of the first byte.
    pub gpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// Address of the first byte in the frontend's address space; ring addresses are given in these.
    pub user: u64,
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps `len` bytes of `file` from `offset`. Neither addresses nor offsets may wrap, and the file must have the bytes.
    /// `dma_bufs`: whether the file may be memory of a driver.
    pub fn map(
        gpa: u64,
        len: u64,
        user: u64,
        (file, offset): (File, u64),
        lender: &Arc<Lender>,
        dma_bufs: bool,
    ) -> io::Result<Region> {
        if [gpa, user].iter().any(|at| at.checked_add(len).is_none()) {
            let what =
                format!("a memory region of {len:#x} bytes at {gpa:#x} ({user:#x}) is beyond all addresses");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(Region {
            gpa,
            len,
            user,
            mapping: Arc::new(Mapping::new(file, offset, len, lender, dma_bufs)?),
        })
    }

    /// Memory of zeros between two inaccessible pages, for fuzzing: an access one byte beside it faults. Its frontend
    /// addresses are the daemon's.
    #[cfg(feature = "fuzzing")]
    pub fn guarded(gpa: u64, pages: usize) -> io::Result<Region> {
        let mapping = Arc::new(Mapping::guarded(pages)?);
        Ok(Region {
            gpa,
            len: mapping.len() as u64,
            user: mapping.first() as u64,
            mapping,
        })
    }

    fn host(&self) -> *mut u8 {
        self.mapping.first()
    }

    fn host_at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset <= self.len);
        // SAFETY: callers checked `offset` against `len`, and the mapping is that long.
        unsafe { self.host().add(offset as usize) }
    }
}

/// All memory of one guest.
#[derive(Debug, Default, Clone)]
pub struct MemMap {
    regions: Vec<Region>,
    /// Pieces by guest physical address, sorted, without overlap.
    pieces: Vec<Piece>,
}

/// A part of a region that no newer one hides.
#[derive(Debug, Clone, Copy)]
struct Piece {
    gpa: u64,
    len: u64,
    host: *mut u8,
}

// SAFETY: `host` points into a region that the same MemMap holds; all access is by raw copies.
unsafe impl Send for Piece {}
// SAFETY: as above.
unsafe impl Sync for Piece {}

/// Number of pieces up to which a linear search is used.
const FEW: usize = 4;

impl MemMap {
    /// A map of regions, given in the order in which they were added. Where they overlap (as they do for a moment while QEMU
    /// exchanges them) the newest counts.
    pub fn new(regions: &[Region]) -> MemMap {
        let mut newest: Vec<Region> = Vec::new();
        for r in regions.iter().rev() {
            if !newest
                .iter()
                .any(|n| (n.gpa, n.len, n.user) == (r.gpa, r.len, r.user))
            {
                newest.push(r.clone());
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for r in &newest {
            // The parts that newer regions leave free, from the front.
            let (mut at, end) = (r.gpa, r.gpa.saturating_add(r.len));
            let mut free = Vec::new();
            for p in &pieces {
                let p_end = p.gpa + p.len;
                if p_end <= at || p.gpa >= end {
                    continue;
                }
                if p.gpa > at {
                    free.push((at, p.gpa - at));
                }
                at = p_end;
            }
            if at < end {
                free.push((at, end - at));
            }
            pieces.extend(free.into_iter().map(|(gpa, len)| Piece {
                gpa,
                len,
                host: r.host_at(gpa - r.gpa),
            }));
            pieces.sort_by_key(|p| p.gpa);
        }
        MemMap {
            regions: newest,
            pieces,
        }
    }

    /// Number of mapped bytes.
    pub fn bytes(&self) -> u64 {
        self.regions.iter().map(|r| r.len).sum()
    }

    /// The host address of guest physical `gpa`, and the number of contiguous bytes from there.
    #[inline]
    pub fn lookup(&self, gpa: u64) -> Option<(*mut u8, u64)> {
        let found = if self.pieces.len() <= FEW {
            self.pieces.iter().find(|p| gpa.wrapping_sub(p.gpa) < p.len)?
        } else {
            let behind = self.pieces.partition_point(|p| p.gpa <= gpa);
            self.pieces.get(behind.wrapping_sub(1))?
        };
        let offset = gpa.wrapping_sub(found.gpa);
        if offset >= found.len {
            return None;
        }
        // SAFETY: the piece's bytes are mapped, and `offset` is inside.
        Some((unsafe { found.host.add(offset as usize) }, found.len - offset))
    }

    /// The segment of a guest physical range in one region.
    #[inline(always)]
    pub fn seg(&self, gpa: u64, len: u32) -> Option<Seg<'_>> {
        let (ptr, room) = self.lookup(gpa)?;
        let of = PhantomData;
        (u64::from(len) <= room).then_some(Seg { ptr, len, of })
    }

    /// The host address of `len` contiguous bytes at a frontend address, aligned to `align`.
    pub fn user_range(&self, user: u64, len: u64, align: u64) -> Option<*mut u8> {
        let r = self.regions.iter().find(|r| user.wrapping_sub(r.user) < r.len)?;
        let offset = user - r.user;
        (offset.checked_add(len)? <= r.len && (r.host() as u64 + offset).is_multiple_of(align))
            .then(|| r.host_at(offset))
    }

    /// The guest physical address of a segment of this memory.
    pub fn gpa_of(&self, seg: &Seg<'_>) -> Option<u64> {
        self.gpa_at(seg.ptr)
    }

    /// The guest physical address of a byte of this memory.
    pub fn gpa_at(&self, ptr: *const u8) -> Option<u64> {
        let at = ptr as u64;
        let r = self
            .regions
            .iter()
            .find(|r| at.wrapping_sub(r.host() as u64) < r.len)?;
        Some(r.gpa + (at - r.host() as u64))
    }
}

/// The dirty bitmap of a migration (vhost-user, "Migration"): one bit for each 4 KiB page.
#[derive(Debug, Clone)]
pub struct DirtyLog {
    mapping: Arc<Mapping>,
}

impl DirtyLog {
    const PAGE: u64 = 4096;

    /// Maps the log that the frontend gave.
    pub fn map(file: File, size: u64, offset: u64, lender: &Arc<Lender>) -> io::Result<DirtyLog> {
        let mapping = Arc::new(Mapping::new(file, offset, size, lender, false)?);
        Ok(DirtyLog { mapping })
    }

    /// Marks the pages of a guest physical range as written.
    pub fn mark(&self, gpa: u64, len: u64) {
        if len == 0 {
            return;
        }
        for page in gpa / Self::PAGE..=(gpa.saturating_add(len - 1)) / Self::PAGE {
            let byte = (page / 8) as usize;
            if byte >= self.mapping.len() {
                return;
            }
            // SAFETY: the mapping has this byte; frontend and daemon access it concurrently by atomic operations.
            let cell = unsafe { std::sync::atomic::AtomicU8::from_ptr(self.mapping.first().add(byte)) };
            cell.fetch_or(1 << (page % 8), std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Marks the pages of the first `written` bytes of this guest memory.
    pub fn mark_written(&self, mem: &MemMap, segs: &[Seg<'_>], written: usize) {
        let mut left = written as u64;
        for s in segs {
            let part = left.min(s.len() as u64);
            if let Some(gpa) = mem.gpa_of(s) {
                self.mark(gpa, part);
            }
            left -= part;
        }
    }
}

/// Prefetches the cache line at `ptr`.
#[inline(always)]
pub fn prefetch(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(ptr.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Prefetches all cache lines of `len` bytes.
#[inline(always)]
pub fn prefetch_all(ptr: *const u8, len: usize) {
    let first = (ptr as usize) & 63;
    for at in (0..first + len).step_by(64) {
        prefetch(ptr.wrapping_sub(first).wrapping_add(at));
    }
}

/// Prefetches the cache line at `ptr` for writing.
#[inline(always)]
pub fn prefetch_for_writing(ptr: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults, whatever the address. (The intrinsic means the same, but for the oldest x86-64 it
    // becomes a prefetch for reading. CPUs that do not know the instruction ignore it.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) ptr, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = ptr;
}

/// Copies the first `out.len()` bytes that follow `skip` bytes of `segs`. Returns how many there were.
#[inline]
pub fn gather(segs: &[Seg<'_>], mut skip: usize, out: &mut [u8]) -> usize {
    let mut done = 0;
    for seg in segs {
        let len = seg.len as usize;
        if skip >= len {
            skip -= len;
            continue;
        }
        let take = (len - skip).min(out.len() - done);
        // SAFETY: `skip + take <= seg.len` and `done + take <= out.len()`; a Seg is a guest's memory or bytes that are
        // borrowed for it alone, so it does not overlap `out`. A guest may write at the same time: the copy has some bytes,
        // all valid.
        unsafe { std::ptr::copy_nonoverlapping(seg.ptr.add(skip), out.as_mut_ptr().add(done), take) };
        done += take;
        skip = 0;
        if done == out.len() {
            break;
        }
    }
    done
}

/// The ones-complement sum of `len` bytes that follow `skip` bytes of `segs` (RFC 1071), folded.
pub fn sum(segs: &[Seg<'_>], skip: usize, len: usize) -> u32 {
    /// Bytes that are read at a time.
    const STEP: usize = 512;
    let (mut total, mut at) = (0, 0);
    let (mut skip, mut left) = (skip, len);
    for seg in segs {
        let from = skip.min(seg.len());
        skip -= from;
        let take = (seg.len() - from).min(left);
        left -= take;
        let mut rest = seg.part(from, take);
        while rest.len() > 0 {
            let mut private = [0; STEP];
            let n = gather(&[rest], 0, &mut private);
            total = checksum::combine(total, checksum::sum(&private[..n]), at);
            rest = rest.part(n, rest.len() - n);
            at += n;
        }
    }
    total
}

/// A position in a list of segments, moving forward as bytes are written.
pub struct Writer<'a> {
    segs: &'a [Seg<'a>],
    at: usize,
}

impl<'a> Writer<'a> {
    /// Starts at the first byte of `segs`, all of which must be writable.
    #[inline]
    pub fn new(segs: &'a [Seg<'a>]) -> Self {
        Writer { segs, at: 0 }
    }

    /// Starts `at` bytes into the first of `segs`.
    #[inline]
    pub fn at(segs: &'a [Seg<'a>], at: usize) -> Self {
        Writer { segs, at }
    }

    /// Writes as much of `len` bytes at `src` as there is room for.
    ///
    /// # Safety
    /// `src` must be readable for `len` bytes.
    #[inline]
    unsafe fn write_raw(&mut self, mut src: *const u8, mut len: usize) {
        while len > 0 {
            let Some(seg) = self.segs.first() else { return };
            let room = seg.len as usize - self.at;
            let take = room.min(len);
            // SAFETY: `at + take <= seg.len`; the caller vouches for `src`. An overlap is harmless to `copy`.
            unsafe {
                std::ptr::copy(src, seg.ptr.add(self.at), take);
                src = src.add(take);
            }
            len -= take;
            self.at += take;
            if self.at == seg.len as usize {
                self.segs = &self.segs[1..];
                self.at = 0;
            }
        }
    }

    /// Writes private bytes.
    #[inline]
    pub fn bytes(&mut self, src: &[u8]) {
        // SAFETY: `src` is a reference, so all of it can be read.
        unsafe { self.write_raw(src.as_ptr(), src.len()) }
    }

    /// Writes `len` bytes of `src`, starting `skip` bytes into it: the one copy between two guests.
    #[inline]
    pub fn segs(&mut self, src: &[Seg<'_>], mut skip: usize, mut len: usize) {
        for seg in src {
            let have = seg.len as usize;
            if skip >= have {
                skip -= have;
                continue;
            }
            let take = (have - skip).min(len);
            // SAFETY: `skip + take <= seg.len`, so the source is readable.
            unsafe { self.write_raw(seg.ptr.add(skip), take) };
            len -= take;
            skip = 0;
            if len == 0 {
                return;
            }
        }
    }
}
