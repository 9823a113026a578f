//! Memory that an AF_XDP socket shares with the kernel: frames, and four rings of their addresses
//! (`Documentation/networking/af_xdp.rst` of the kernel).

#![expect(
    unsafe_code,
    reason = "frames and rings of AF_XDP sockets are memory that the kernel shares"
)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// A mapping of the daemon.
pub struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory, which only the rings and areas below access; they say who may touch which part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps new memory.
    pub fn new(len: usize) -> io::Result<Mapping> {
        Mapping::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Maps a part of a file.
    fn of(fd: BorrowedFd<'_>, len: usize, from: u64) -> io::Result<Mapping> {
        let from = libc::off_t::try_from(from).map_err(|_| io::ErrorKind::InvalidInput)?;
        Mapping::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), from)
    }

    fn map(len: usize, flags: i32, fd: i32, from: libc::off_t) -> io::Result<Mapping> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, wherever the kernel puts it.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, fd, from) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { at, len })
    }

    /// Address of the mapping, for the kernel.
    pub fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Length of the mapping.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no reference into it outlives it. The kernel keeps pages that it still
        // uses.
        unsafe {
            libc::munmap(self.at.as_ptr().cast(), self.len);
        }
    }
}

/// A part of the frames' memory that one half of a port owns. A chunk of it is the kernel's while it is in a ring that the
/// kernel reads, and otherwise that half's.
pub struct Area {
    memory: Arc<Mapping>,
    from: usize,
    to: usize,
}

impl Area {
    /// Splits memory into two areas at `middle`.
    pub fn split(memory: Mapping, middle: usize) -> [Area; 2] {
        let memory = Arc::new(memory);
        let (middle, end) = (middle.min(memory.len()), memory.len());
        [(0, middle), (middle, end)].map(|(from, to)| Area {
            memory: memory.clone(),
            from,
            to,
        })
    }

    /// The bytes at an offset of the whole memory, if this area has them. They must not be the kernel's.
    #[inline]
    pub fn bytes(&mut self, offset: u64, len: u32) -> Option<&mut [u8]> {
        let (from, len) = (usize::try_from(offset).ok()?, len as usize);
        if from < self.from || from > self.to || len > self.to - from {
            return None;
        }
        // SAFETY: inside the mapping (checked, and `to` is), which lives as long as `self`; areas do not overlap, and
        // `self` is borrowed as long as the bytes are.
        Some(unsafe { std::slice::from_raw_parts_mut(self.memory.at.add(from).as_ptr(), len) })
    }
}

/// `struct xdp_desc`: a frame, or a piece of one.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Offset of the piece in the frames' memory.
    pub offset: u64,
    /// Bytes of the piece.
    pub len: u32,
    options: u32,
}

/// Option of a piece whose frame continues in the next one.
const XDP_PKT_CONTD: u32 = 1;

impl Piece {
    /// A piece; `goes_on`: its frame continues in the next one.
    pub fn new(offset: u64, len: u32, goes_on: bool) -> Piece {
        Piece {
            offset,
            len,
            options: if goes_on { XDP_PKT_CONTD } else { 0 },
        }
    }

    /// Whether the frame continues in the next piece.
    #[inline]
    pub fn goes_on(&self) -> bool {
        self.options & XDP_PKT_CONTD != 0
    }
}

/// Types that a ring may hold: only numbers.
pub trait Entry: sealed::Plain {}
impl Entry for u64 {}
impl Entry for Piece {}

mod sealed {
    /// Types for which any bits are valid.
    pub trait Plain: Copy {}
    impl Plain for u64 {}
    impl Plain for super::Piece {}
}

/// A ring, from the daemon's side.
struct Ring<T> {
    mapping: Mapping,
    offsets: XdpRingOffset,
    /// Number of entries, a power of two.
    size: u32,
    /// The daemon's index: that of the next entry.
    at: u32,
    /// The kernel's index at the last look.
    theirs: u32,
    entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    fn new(fd: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32, page: u64) -> io::Result<Ring<T>> {
        let end = usize::try_from(offsets.desc)
            .ok()
            .and_then(|d| d.checked_add(size as usize * size_of::<T>()))
            .ok_or(io::ErrorKind::InvalidData)?;
        let words = [Some(offsets.producer), Some(offsets.consumer), offsets.flags];
        let inside = |word: u64| word.is_multiple_of(4) && word + 4 <= offsets.desc;
        if !size.is_power_of_two()
            || !offsets.desc.is_multiple_of(8)
            || !words.into_iter().flatten().all(inside)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Ring {
            mapping: Mapping::of(fd, end, page)?,
            offsets,
            size,
            at: 0,
            theirs: 0,
            entries: PhantomData,
        })
    }

    #[inline]
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: aligned and inside (checked when the ring was made); both sides access it only by atomics.
        unsafe { self.mapping.at.add(offset as usize).cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn place(&self, index: u32) -> NonNull<T> {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: `size` entries are inside (checked when the ring was made), and `slot` is below it.
        unsafe {
            self.mapping
                .at
                .add(self.offsets.desc as usize)
                .cast::<T>()
                .add(slot)
        }
    }

    /// Whether the kernel needs a system call to go on.
    #[inline]
    fn needs_wakeup(&self) -> bool {
        let flags = self.offsets.flags.map(|at| self.word(at).load(Ordering::Relaxed));
        flags.is_some_and(|f| f & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

/// A ring that the kernel fills: receive and completion ring.
pub struct Filled<T>(Ring<T>);

impl<T: Entry> Filled<T> {
    /// Maps the ring.
    pub fn new(fd: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32, page: u64) -> io::Result<Self> {
        Ring::new(fd, offsets, size, page).map(Filled)
    }

    /// Number of entries that are there. The kernel's index is read when all known entries are taken.
    #[inline]
    pub fn ready(&mut self) -> u32 {
        let ring = &mut self.0;
        if ring.at == ring.theirs {
            ring.theirs = ring.word(ring.offsets.producer).load(Ordering::Acquire);
        }
        // The index of a producer that has run past the daemon is invalid: no entry is read twice in a round.
        ring.theirs.wrapping_sub(ring.at).min(ring.size)
    }

    /// The entry `ahead` entries behind the next one.
    #[inline]
    pub fn peek(&mut self, ahead: u32) -> Option<T> {
        let ready = self.ready();
        let ring = &mut self.0;
        if ahead >= ready {
            if ahead == 0 {
                return None;
            }
            ring.theirs = ring.word(ring.offsets.producer).load(Ordering::Acquire);
            if ahead >= ring.theirs.wrapping_sub(ring.at).min(ring.size) {
                return None;
            }
        }
        // SAFETY: the kernel has written this entry before its index, and leaves it alone until the daemon's passes it.
        Some(unsafe { ring.place(ring.at.wrapping_add(ahead)).read() })
    }

    /// Passes entries. [`Filled::release`] then tells the kernel.
    #[inline]
    pub fn pass(&mut self, count: u32) {
        self.0.at = self.0.at.wrapping_add(count.min(self.ready()));
    }

    /// Gives passed entries back to the kernel.
    #[inline]
    pub fn release(&self) {
        let ring = &self.0;
        ring.word(ring.offsets.consumer).store(ring.at, Ordering::Release);
    }

    /// Number of entries of the ring.
    pub fn size(&self) -> u32 {
        self.0.size
    }
}

/// A ring that the daemon fills: fill and transmit ring.
pub struct Given<T>(Ring<T>);

impl<T: Entry> Given<T> {
    /// Maps the ring.
    pub fn new(fd: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32, page: u64) -> io::Result<Self> {
        Ring::new(fd, offsets, size, page).map(Given)
    }

    /// Number of entries that the kernel has not taken yet.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        let ring = &mut self.0;
        ring.theirs = ring.word(ring.offsets.consumer).load(Ordering::Acquire);
        ring.at.wrapping_sub(ring.theirs).min(ring.size)
    }

    /// Adds an entry, if there is room. [`Given::publish`] then shows it to the kernel.
    #[inline]
    pub fn push(&mut self, entry: T) -> bool {
        if self.0.at.wrapping_sub(self.0.theirs) >= self.0.size && self.waiting() >= self.0.size {
            return false;
        }
        let ring = &mut self.0;
        // SAFETY: the kernel has taken this entry (its index says so) and reads it again after the daemon's index has passed
        // it.
        unsafe { ring.place(ring.at).write(entry) };
        ring.at = ring.at.wrapping_add(1);
        true
    }

    /// Shows added entries to the kernel.
    #[inline]
    pub fn publish(&self) {
        let ring = &self.0;
        ring.word(ring.offsets.producer).store(ring.at, Ordering::Release);
        // The kernel's flag is read after this.
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Whether the kernel needs a system call to go on.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.0.needs_wakeup()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_area_gives_what_is_its_own() {
        let [mut low, mut high] = Area::split(Mapping::new(8192).expect("memory"), 4096);
        assert_eq!(low.bytes(0, 4096).map(|b| b.len()), Some(4096));
        assert!(low.bytes(0, 4097).is_none());
        assert!(low.bytes(4096, 1).is_none());
        assert!(low.bytes(u64::MAX, 1).is_none());
        assert!(low.bytes(4095, u32::MAX).is_none());
        assert!(high.bytes(4095, 1).is_none());
        assert!(high.bytes(8191, 2).is_none());
        high.bytes(4096, 4096).expect("its own").fill(7);
        assert!(low.bytes(0, 4096).expect("its own").iter().all(|b| *b == 0));
    }

    #[test]
    fn a_piece_knows_whether_its_frame_goes_on() {
        assert!(Piece::new(0, 1, true).goes_on());
        assert!(!Piece::new(0, 1, false).goes_on());
        assert_eq!(size_of::<Piece>(), 16);
    }
}
