//! Memory that this process shares with the daemon: few large anonymous files, of which parts are given out.

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vmm_sys_util::eventfd::EventFd;
use vnic_device::ring::Extent;

use super::free::Free;
use crate::Error;
use crate::driver::lock;
use crate::transport::SharedPages;

/// Bytes of the first arena. Each further one has twice as many, so that few slots are enough.
const FIRST: usize = 32 << 20;
/// Bytes of the largest arena, but for single buffers that are larger.
const LARGEST: usize = 1 << 30;
/// Sizes of arenas are multiples of this.
const HUGE: usize = 2 << 20;
/// A part of so many bytes is given back to the system when it is free.
const WORTH_IT: usize = 256 << 10;

/// The descriptor of an eventfd.
pub(super) fn descriptor(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: it stays open while it is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// All memory that the daemon was told of.
pub(super) struct Arenas {
    frontend: Mutex<Frontend>,
    /// Memory slots that the daemon has.
    slots: u64,
    arenas: Mutex<Vec<Arc<Arena>>>,
}

struct Arena {
    file: OwnedFd,
    start: NonNull<u8>,
    len: usize,
    huge: bool,
    free: Mutex<Free>,
}

// SAFETY: an address range that this value alone unmaps.
unsafe impl Send for Arena {}
// SAFETY: as above; what is in the range is the business of those it was given to.
unsafe impl Sync for Arena {}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length; whoever has a part of it holds the arena.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// A part that was given out.
struct Part {
    arena: Arc<Arena>,
    at: usize,
    len: usize,
}

impl Drop for Part {
    fn drop(&mut self) {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Of huge pages old kernels give only whole ones back, and leave in the others what was there.
        let unit = if self.arena.huge { HUGE } else { 1 };
        let whole = self.at.is_multiple_of(unit) && self.len.is_multiple_of(unit);
        let zero = whole
            && self.len >= WORTH_IT
            && fallocate(&self.arena.file, punch, self.at as u64, self.len as u64).is_ok();
        lock(&self.arena.free).give_back(self.at, self.len, zero);
    }
}

impl Arena {
    fn new(len: usize) -> Result<Arena, Error> {
        Arena::of_pages(len, true).or_else(|_| {
            Arena::of_pages(len, false)
                .map_err(|e| Error::os(format!("cannot get {len} bytes of shared memory"))(e.into()))
        })
    }

    fn of_pages(len: usize, huge: bool) -> rustix::io::Result<Arena> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let file = memfd_create("vnic-verbs", flags)?;
        ftruncate(&file, len as u64)?;
        // The daemon may rely on it: what it maps stays there.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Of huge pages the kernel sets aside what is mapped, or refuses.
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory that is in use.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(at.cast::<u8>()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Arena {
            file,
            start,
            len,
            huge,
            free: Mutex::new(Free::new(len)),
        })
    }

    /// Takes a part of zeros.
    fn take(self: &Arc<Arena>, len: usize) -> Option<SharedPages> {
        let (at, dirty) = lock(&self.free).take(len)?;
        let part = Part {
            arena: Arc::clone(self),
            at,
            len,
        };
        for (from, len) in dirty {
            // SAFETY: within the mapping, and free: nobody else in this process uses it.
            unsafe { self.start.add(from).write_bytes(0, len) };
        }
        // SAFETY: within the mapping.
        let start = unsafe { self.start.add(at) };
        Some(SharedPages {
            start,
            len,
            extents: vec![Extent {
                gpa: start.as_ptr() as u64,
                len: len as u64,
            }],
            owner: Box::new(part),
        })
    }
}

impl Arenas {
    pub fn new(frontend: Frontend, slots: u64) -> Arc<Arenas> {
        Arc::new(Arenas {
            frontend: Mutex::new(frontend),
            slots,
            arenas: Mutex::new(Vec::new()),
        })
    }

    /// Zeros, in whole pages.
    pub fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        let too_much = || Error::Invalid(format!("there is no memory of {len} bytes"));
        let len = len
            .max(1)
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(too_much)?;
        let mut arenas = lock(&self.arenas);
        if let Some(pages) = arenas.iter().find_map(|arena| arena.take(len)) {
            return Ok(pages);
        }
        let usual = FIRST
            .checked_shl(arenas.len() as u32)
            .unwrap_or(LARGEST)
            .clamp(FIRST, LARGEST);
        let size = len
            .max(usual)
            .checked_next_multiple_of(HUGE)
            .ok_or_else(too_much)?;
        if arenas.len() as u64 >= self.slots {
            return Err(Error::Setup(format!(
                "the device takes memory in {} pieces, and all are in use: allocate fewer, larger buffers",
                self.slots
            )));
        }
        let arena = Arc::new(Arena::new(size)?);
        self.tell(&arena)?;
        let pages = arena.take(len).ok_or_else(too_much)?;
        arenas.push(arena);
        Ok(pages)
    }

    /// Tells the daemon of an arena.
    fn tell(&self, arena: &Arena) -> Result<(), Error> {
        let at = arena.start.as_ptr() as u64;
        let region = VhostUserMemoryRegionInfo {
            guest_phys_addr: at,
            memory_size: arena.len as u64,
            userspace_addr: at,
            mmap_offset: 0,
            mmap_handle: arena.file.as_raw_fd(),
        };
        match lock(&self.frontend).add_mem_region(&region) {
            Ok(_) => Ok(()),
            Err(e) => Err(Error::Setup(format!(
                "the daemon refused {} bytes of memory: {e}",
                arena.len
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pages: &SharedPages) -> crate::shared::Memory {
        // SAFETY: the pages live as long as the test uses the memory.
        unsafe { crate::shared::Memory::foreign(pages.start, pages.len, Arc::new(())) }
    }

    #[test]
    fn parts_are_zero_whenever_they_are_given_out() {
        let arena = Arc::new(Arena::new(HUGE).expect("memory"));
        let page = rustix::param::page_size();
        for len in [page, 4 * page, WORTH_IT, HUGE] {
            for _ in 0..3 {
                let pages = arena.take(len).expect("room");
                let memory = words(&pages);
                let mut bytes = vec![1; len];
                memory.read(0, &mut bytes);
                assert!(bytes.iter().all(|b| *b == 0), "{len}");
                memory.fill(0, len, 0xff);
                assert_eq!(pages.extents[0].gpa, pages.start.as_ptr() as u64);
            }
        }
        let all = arena.take(HUGE).expect("all came back");
        assert!(arena.take(1).is_none());
        drop(all);
    }

    #[test]
    fn a_part_keeps_its_arena() {
        let arena = Arc::new(Arena::new(HUGE).expect("memory"));
        let pages = arena.take(4096).expect("room");
        drop(arena);
        words(&pages).fill(0, 4096, 7);
    }
}
