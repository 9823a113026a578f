//! Mapped files that VMMs share with the daemon: guest memory, dirty logs.

#![expect(unsafe_code, reason = "maps files that VMMs share")]

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::fstatfs;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

use super::sigbus::{Guard, Lender};

/// FUSE_SUPER_MAGIC (statfs(2)).
const FUSE: u64 = 0x6573_5546;
/// DMA_BUF_MAGIC (`linux/magic.h`).
const DMA_BUF: u64 = 0x444d_4142;
/// Most bytes of one dma-buf that are mapped (WinOF-2 Ethernet Network, GPUDirect).
const DMA_BUF_MOST: u64 = 4 << 30;

/// A part of a file, mapped for reading and writing.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    size: usize,
    /// Bytes before the part, because mappings begin with a page.
    lead: usize,
    len: usize,
    guard: Option<Guard>,
}

// SAFETY: an address range that only this value unmaps; users of the memory are responsible for their accesses.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Checks whether `len` bytes of a file on a file system of this kind may be mapped. `regular`: whether it is a regular file;
/// `dma_bufs`: whether memory of drivers may be mapped, too.
fn check(magic: u64, regular: bool, len: u64, dma_bufs: bool) -> io::Result<()> {
    match magic {
        // The driver says how long an access may take.
        DMA_BUF if !dma_bufs => Err(refused(
            "a dma-buf, and EnableGpuDirect of the adapter is 0".into(),
        )),
        DMA_BUF if len > DMA_BUF_MOST => Err(refused(format!("a dma-buf of {len:#x} bytes; at most 4 GiB"))),
        DMA_BUF => Ok(()),
        // (Otherwise the length is unknown, or a process may delay an access to a page for ever.)
        _ if !regular || magic == FUSE => Err(refused(
            "memory is shared as a file of memfd_create, tmpfs, hugetlbfs or a disk".into(),
        )),
        _ => Ok(()),
    }
}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`, all of which the file must have, and closes it: a mapping needs no
    /// descriptor. `dma_bufs`: whether the file may be memory of a driver.
    pub fn new(
        file: File,
        offset: u64,
        len: u64,
        lender: &Arc<Lender>,
        dma_bufs: bool,
    ) -> io::Result<Mapping> {
        let meta = file.metadata()?;
        check(fstatfs(&file)?.f_type as u64, meta.is_file(), len, dma_bufs)?;
        // The bytes behind the end, on the file's last page, can be accessed as well.
        let page = page_size() as u64;
        let there = meta.size().checked_next_multiple_of(page).unwrap_or(u64::MAX);
        let outside = || {
            refused(format!(
                "a file of {:#x} bytes does not have {len:#x} bytes at {offset:#x}",
                meta.size()
            ))
        };
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > there) {
            return Err(outside());
        }
        // hugetlbfs wants offsets and lengths in units of its page size, which it reports as block size.
        let align = meta.blksize().max(page);
        let lead = offset % align;
        let size = lead
            .checked_add(len)
            .and_then(|n| n.checked_next_multiple_of(align));
        let size = size.filter(|n| isize::try_from(*n).is_ok()).ok_or_else(outside)?;
        let fit = |n: u64| usize::try_from(n).map_err(|_| outside());
        let (size, lead, len) = (fit(size)?, fit(lead)?, fit(len)?);
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                size,
                rights,
                flags,
                &file,
                offset - lead as u64,
            )?
        };
        Mapping::made(at.cast(), size, lead, len, |m| {
            Guard::new(m.base, size, lender.clone()).map(Some)
        })
    }

    /// Memory of zeros between two inaccessible pages, for fuzzing: an access one byte beside it faults.
    #[cfg(feature = "fuzzing")]
    pub fn guarded(pages: usize) -> io::Result<Mapping> {
        use rustix::mm::{MprotectFlags, mmap_anonymous, mprotect};
        let (page, len) = (page_size(), pages * page_size());
        let (size, rights) = (len + 2 * page, ProtFlags::empty());
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), size, rights, MapFlags::SHARED)? };
        let mapping = Mapping::made(at.cast(), size, page, len, |_| Ok(None))?;
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the pages are this mapping's own, and nothing has accessed them yet.
        unsafe { mprotect(mapping.first().cast(), len, flags)? };
        Ok(mapping)
    }

    fn made(
        at: *mut u8,
        size: usize,
        lead: usize,
        len: usize,
        guard: impl FnOnce(&Mapping) -> io::Result<Option<Guard>>,
    ) -> io::Result<Mapping> {
        let mut mapping = Mapping {
            base: NonNull::new(at).ok_or(io::ErrorKind::OutOfMemory)?,
            size,
            lead,
            len,
            guard: None,
        };
        // A core dump of the daemon must not contain guests' memory.
        // SAFETY: the whole of this mapping; its content is unchanged.
        unsafe { madvise(mapping.base.as_ptr().cast(), size, Advice::LinuxDontDump)? };
        mapping.guard = guard(&mapping)?;
        Ok(mapping)
    }

    /// Address of the first byte.
    pub fn first(&self) -> *mut u8 {
        // SAFETY: the mapping is at least `lead + len` bytes long.
        unsafe { self.base.as_ptr().add(self.lead) }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Removed first: after the unmapping the addresses may be in other use.
        self.guard = None;
        // SAFETY: mapped above with this length, and no reference into it was ever given out.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// Maps executable memory and unmaps it.
#[cfg(test)]
pub fn executable() -> io::Result<()> {
    let rights = ProtFlags::READ | ProtFlags::EXEC;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
    let at =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), page_size(), rights, MapFlags::PRIVATE)? };
    // SAFETY: it was mapped above, and has no other user.
    unsafe { munmap(at, page_size())? };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TMPFS: u64 = 0x0102_1994;

    #[test]
    fn drivers_memory_is_mapped_only_where_the_adapter_allows_it() {
        let why = |magic, regular, len, dma_bufs| match check(magic, regular, len, dma_bufs) {
            Ok(()) => String::new(),
            Err(e) => e.to_string(),
        };
        assert!(why(DMA_BUF, false, 4096, false).contains("EnableGpuDirect"));
        for regular in [false, true] {
            assert_eq!(why(DMA_BUF, regular, DMA_BUF_MOST, true), "");
        }
        assert!(why(DMA_BUF, false, DMA_BUF_MOST + 1, true).contains("4 GiB"));
        for dma_bufs in [false, true] {
            assert_eq!(why(TMPFS, true, u64::MAX, dma_bufs), "");
            assert!(why(TMPFS, false, 1, dma_bufs).contains("memfd_create"));
            assert!(why(FUSE, true, 1, dma_bufs).contains("memfd_create"));
        }
    }
}
