//! Anonymous memory, mapped.

#![expect(unsafe_code, reason = "hands out and clears memory for the device")]

use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

/// Bytes of a huge page of the size that is asked for.
pub const HUGE: usize = 2 << 20;

/// Kinds of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Huge pages that the administrator has set aside. They stay where they are even without a pin, except
    /// with kernels that give memory back to the host.
    Huge,
    /// Normal pages, transparent huge pages if the kernel can.
    Normal,
}

/// A mapping of zeros.
#[derive(Debug)]
pub struct Mapping {
    map: MmapRaw,
    /// Offset of the first byte that is used.
    skip: usize,
    len: usize,
    /// The file without a name that huge pages belong to. When the program is killed, the pages go when the
    /// file is closed, which is after the device was stopped; without the file they would go earlier, with the
    /// address space.
    _file: Option<OwnedFd>,
}

impl Mapping {
    /// Maps at least `len` bytes, at a multiple of [`HUGE`].
    pub fn new(kind: Kind, len: usize) -> std::io::Result<Mapping> {
        let unit = match kind {
            Kind::Huge => HUGE,
            Kind::Normal => rustix::param::page_size(),
        };
        let len = len.max(1).checked_next_multiple_of(unit).ok_or(Errno::NOMEM)?;
        let (map, file) = match kind {
            // Shared: after a fork a write must not put a copy in the place of the page that the device knows.
            Kind::Huge => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
                let file = memfd_create("vnic-verbs", flags)?;
                ftruncate(&file, len as u64)?;
                (MmapOptions::new().len(len).map_raw(&file)?, Some(file))
            }
            // Private, because transparent huge pages are seldom allowed for shared memory. These pages get
            // pinned, and a fork copies pinned pages for the child, at once (Linux 5.10).
            Kind::Normal => {
                let size = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
                (MmapOptions::new().len(size).map_anon()?.into(), None)
            }
        };
        let skip = map.as_ptr().align_offset(HUGE).min(map.len() - len);
        if kind == Kind::Normal {
            // Only an advice: without it there are more extents.
            let _ = map.advise_range(Advice::HugePage, skip, len);
        }
        Ok(Mapping {
            map,
            skip,
            len,
            _file: file,
        })
    }

    /// First byte.
    pub fn start(&self) -> NonNull<u8> {
        self.at(0)
    }

    /// The byte at an offset, the last byte at most.
    pub fn at(&self, skip: usize) -> NonNull<u8> {
        // SAFETY: the offset stays inside the mapping, which is nowhere at 0.
        unsafe { NonNull::new_unchecked(self.map.as_mut_ptr().add(self.skip + skip.min(self.len - 1))) }
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Writes zeros, which also brings the pages into memory. Nobody else, device or program, may use this
    /// part.
    pub fn clear(&self, skip: usize, len: usize) {
        let len = len.min(self.len.saturating_sub(skip));
        if len > 0 {
            // SAFETY: the range is inside the mapping, which is writable; by contract nobody else uses it.
            unsafe { self.at(skip).write_bytes(0, len) }
        }
    }
}

/// Access for tests to memory that they own.
#[cfg(test)]
pub mod testing {
    use std::ptr::NonNull;

    /// Writes one value to all bytes.
    pub fn fill(start: NonNull<u8>, len: usize, value: u8) {
        // SAFETY: tests call it for memory that they have just allocated with this length.
        unsafe { start.write_bytes(value, len) }
    }

    /// A copy of the bytes.
    pub fn read(start: NonNull<u8>, len: usize) -> Vec<u8> {
        // SAFETY: as above; nobody else writes there.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_pages_are_aligned_zero_and_writable() {
        let m = Mapping::new(Kind::Normal, 3 * HUGE / 2).expect("memory");
        assert_eq!(m.start().as_ptr().align_offset(HUGE), 0);
        assert_eq!(m.len(), 3 * HUGE / 2);
        // SAFETY: the mapping's first and last bytes, which nobody else has.
        unsafe {
            let last = m.start().add(m.len() - 1);
            assert_eq!((m.start().read(), last.read()), (0, 0));
            last.write(9);
            m.start().write(8);
            m.clear(0, m.len() - 1);
            assert_eq!((m.start().read(), last.read()), (0, 9));
            m.clear(m.len() - 1, 100);
            assert_eq!(last.read(), 0);
        }
    }

    #[test]
    fn too_much_is_refused() {
        assert!(Mapping::new(Kind::Normal, usize::MAX).is_err());
        assert!(Mapping::new(Kind::Normal, usize::MAX - HUGE).is_err());
        assert!(Mapping::new(Kind::Huge, 1 << 46).is_err());
    }
}
