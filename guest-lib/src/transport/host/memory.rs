//! Memory that this process shares with the daemon: few large anonymous files, of which parts are given out.

#![expect(unsafe_code, reason = "maps memory that is shared with the daemon")]

use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
};
use vhost::VhostUserMemoryRegionInfo;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vmm_sys_util::eventfd::EventFd;
use vnic_device::ring::Extent;

use super::files::Outside;
use super::generation::generation;
use super::maps::{FileId, Mapping};
use crate::Error;
use crate::free::Free;
use crate::sync::lock;
use crate::transport::{Pinned, SharedPages};

/// Bytes of the first arena. Each further one has twice as many, so that few memory slots are enough.
pub(super) const FIRST: usize = 32 << 20;
/// Bytes of the largest arena, except for single buffers that are larger.
pub(super) const LARGEST: usize = 1 << 30;
/// Sizes of arenas are multiples of this.
pub(super) const HUGE: usize = 2 << 20;
/// A part of so many bytes is given back to the system when it is free.
const WORTH_IT: usize = 256 << 10;

/// The descriptor of an eventfd.
pub(super) fn descriptor(event: &EventFd) -> BorrowedFd<'_> {
    // SAFETY: it stays open while it is borrowed.
    unsafe { BorrowedFd::borrow_raw(event.as_raw_fd()) }
}

/// The daemon's side of memory: adds and removes regions.
pub(super) trait Daemon: Send + Sync {
    fn add(&self, region: &VhostUserMemoryRegionInfo) -> vhost::Result<()>;
    fn remove(&self, region: &VhostUserMemoryRegionInfo) -> vhost::Result<()>;
}

impl Daemon for Mutex<Frontend> {
    fn add(&self, region: &VhostUserMemoryRegionInfo) -> vhost::Result<()> {
        lock(self).add_mem_region(region).map(|_| ())
    }

    fn remove(&self, region: &VhostUserMemoryRegionInfo) -> vhost::Result<()> {
        lock(self).remove_mem_region(region)
    }
}

/// All memory that the daemon knows.
pub(super) struct Arenas {
    daemon: Box<dyn Daemon>,
    /// Memory slots that the daemon has.
    slots: u64,
    told: Mutex<Announced>,
}

#[derive(Default)]
struct Announced {
    /// Arenas that parts are given out from.
    own: Vec<Arc<Arena>>,
    /// Arenas of other devices of this process.
    others: Vec<Arc<Arena>>,
    /// Files of the program's.
    files: Vec<Arc<Outside>>,
}

impl Announced {
    fn len(&self) -> usize {
        self.own.len() + self.others.len() + self.files.len()
    }
}

/// An anonymous file, mapped.
pub(super) struct Arena {
    file: OwnedFd,
    id: FileId,
    map: MmapRaw,
    huge: bool,
    free: Mutex<Free>,
    /// The process that made it.
    generation: u32,
}

/// All arenas of this process, of all devices: by them the library knows memory that is in one of them.
static ARENAS: Mutex<Vec<Weak<Arena>>> = Mutex::new(Vec::new());

/// A part that was given out; it is free again when it is dropped.
pub(super) struct Part {
    arena: Arc<Arena>,
    at: usize,
    len: usize,
}

impl Part {
    /// First byte in the arena.
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Cuts the part in two.
    ///
    /// # Panics
    /// If one of the two would be empty.
    pub fn split(mut self, first: usize) -> (Part, Part) {
        assert!(0 < first && first < self.len, "{first} of {}", self.len);
        let second = Part {
            arena: Arc::clone(&self.arena),
            at: self.at + first,
            len: self.len - first,
        };
        self.len = first;
        (self, second)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.arena.generation != generation() {
            // The parent of this process still has it.
            return;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Old kernels give only whole huge pages back, and leave in the others what was there.
        let unit = if self.arena.huge { HUGE } else { 1 };
        let whole = self.at.is_multiple_of(unit) && self.len.is_multiple_of(unit);
        let zero = whole
            && self.len >= WORTH_IT
            && fallocate(&self.arena.file, punch, self.at as u64, self.len as u64).is_ok();
        lock(&self.arena.free).give_back(self.at, self.len, zero);
    }
}

impl Arena {
    fn new(len: usize) -> Result<Arc<Arena>, Error> {
        Arena::of_pages(len, true).or_else(|_| Arena::of_normal_pages(len))
    }

    /// An arena of normal pages, of which each may be mapped elsewhere, too.
    pub fn of_normal_pages(len: usize) -> Result<Arc<Arena>, Error> {
        Arena::of_pages(len, false).map_err(Error::os(format!("cannot get {len} bytes of shared memory")))
    }

    /// The arena that a file belongs to.
    pub fn of_file(id: FileId) -> Option<Arc<Arena>> {
        let mut arenas = lock(&ARENAS);
        arenas.retain(|a| a.strong_count() > 0);
        arenas.iter().filter_map(Weak::upgrade).find(|a| a.id == id)
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// Address of the mapping as a whole.
    pub fn start(&self) -> usize {
        self.map.as_ptr().addr()
    }

    /// Whether a mapping shows the whole arena. Such mappings are ours, and the daemon's if it is in this process.
    /// A mapping in place of memory of the program's is always smaller: see [`next_size`].
    pub fn is_all_in(&self, mapping: &Mapping) -> bool {
        mapping.offset == 0 && mapping.len() == self.map.len()
    }

    fn of_pages(len: usize, huge: bool) -> std::io::Result<Arc<Arena>> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if huge {
            flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        }
        let file = memfd_create("vnic-verbs", flags)?;
        ftruncate(&file, len as u64)?;
        // The daemon may rely on the seal: what it maps stays there.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        // Of huge pages the kernel sets aside what is mapped, or refuses.
        let map = MmapOptions::new().len(len).map_raw(&file)?;
        let id = FileId::of(&file)?;
        let arena = Arc::new(Arena {
            file,
            id,
            map,
            huge,
            free: Mutex::new(Free::new(len)),
            generation: generation(),
        });
        lock(&ARENAS).push(Arc::downgrade(&arena));
        Ok(arena)
    }

    /// Takes a part with any content.
    pub fn take_part(self: &Arc<Arena>, len: usize) -> Option<Part> {
        let (at, _) = lock(&self.free).take(len)?;
        Some(Part {
            arena: Arc::clone(self),
            at,
            len,
        })
    }

    /// Takes a part of zeros.
    pub fn take(self: &Arc<Arena>, len: usize) -> Option<SharedPages> {
        let (at, dirty) = lock(&self.free).take(len)?;
        let part = Part {
            arena: Arc::clone(self),
            at,
            len,
        };
        // SAFETY: within the mapping.
        let byte = |at| unsafe { self.map.as_mut_ptr().add(at) };
        for (from, len) in dirty {
            // SAFETY: within the mapping, and free: nobody else in this process uses it.
            unsafe { byte(from).write_bytes(0, len) };
        }
        let start = NonNull::new(byte(at))?;
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

/// Keeps arenas from coming and from being looked for.
pub(super) fn lock_arenas() -> MutexGuard<'static, Vec<Weak<Arena>>> {
    lock(&ARENAS)
}

/// Bytes of the next arena, if it can give out `len` bytes: always some more than that.
pub(super) fn next_size(arenas: usize, len: usize) -> Option<usize> {
    let usual = FIRST
        .checked_shl(arenas as u32)
        .unwrap_or(LARGEST)
        .clamp(FIRST, LARGEST);
    len.checked_add(1)?.max(usual).checked_next_multiple_of(HUGE)
}

impl Arenas {
    pub fn new(daemon: impl Daemon + 'static, slots: u64) -> Arc<Arenas> {
        Arc::new(Arenas {
            daemon: Box::new(daemon),
            slots,
            told: Mutex::default(),
        })
    }

    /// Allocates zeros, in whole pages.
    pub fn allocate(&self, len: usize) -> Result<SharedPages, Error> {
        let too_much = || Error::Invalid(format!("there is no memory of {len} bytes"));
        let len = len
            .max(1)
            .checked_next_multiple_of(rustix::param::page_size())
            .ok_or_else(too_much)?;
        let mut told = lock(&self.told);
        if let Some(pages) = told.own.iter().find_map(|arena| arena.take(len)) {
            return Ok(pages);
        }
        let size = next_size(told.own.len(), len).ok_or_else(too_much)?;
        self.make_room(&mut told)?;
        let arena = Arena::new(size)?;
        self.tell(arena.start(), arena.map.len(), arena.file(), 0)?;
        let pages = arena.take(len).ok_or_else(too_much)?;
        told.own.push(arena);
        Ok(pages)
    }

    /// Makes sure that the daemon knows an arena, whoever made it.
    pub fn know(&self, arena: &Arc<Arena>) -> Result<(), Error> {
        let mut told = lock(&self.told);
        if told.own.iter().chain(&told.others).any(|a| Arc::ptr_eq(a, arena)) {
            return Ok(());
        }
        self.make_room(&mut told)?;
        self.tell(arena.start(), arena.map.len(), arena.file(), 0)?;
        told.others.push(Arc::clone(arena));
        Ok(())
    }

    /// A file's pages, which the daemon knows while the result lives. `open` is called if it does not know them
    /// yet.
    pub fn know_file(
        &self,
        id: FileId,
        offset: u64,
        len: usize,
        open: impl FnOnce() -> Result<Outside, Error>,
    ) -> Result<Arc<Outside>, Error> {
        let mut told = lock(&self.told);
        if let Some(known) = told.files.iter().find(|f| f.covers(id, offset, len)) {
            return Ok(Arc::clone(known));
        }
        // A file that is not registered any more is kept no longer than until here: it may be large.
        self.forget_files(&mut told)?;
        self.make_room(&mut told)?;
        let file = Arc::new(open()?);
        self.tell(file.start(), file.len(), file.file(), file.offset())?;
        told.files.push(Arc::clone(&file));
        Ok(file)
    }

    /// Makes bytes of a file known, which need not be mapped here.
    pub fn share(&self, file: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Pinned, Error> {
        let id = FileId::of(file).map_err(Error::os("looking at a file"))?;
        let file = self.know_file(id, offset, len, || Outside::whole(file, id))?;
        let gpa = file.start() as u64 + (offset - file.offset());
        Ok(Pinned {
            extents: vec![Extent { gpa, len: len as u64 }],
            owner: Box::new(file),
        })
    }

    /// Makes sure that a memory slot is free.
    fn make_room(&self, told: &mut Announced) -> Result<(), Error> {
        if (told.len() as u64) < self.slots {
            return Ok(());
        }
        self.forget_files(told)?;
        if (told.len() as u64) < self.slots {
            return Ok(());
        }
        Err(Error::Setup(format!(
            "the device takes memory in {} pieces, and all are in use: allocate fewer, larger buffers",
            self.slots
        )))
    }

    /// Takes files back from the daemon of which nothing is registered any more.
    fn forget_files(&self, told: &mut Announced) -> Result<(), Error> {
        while let Some(i) = told.files.iter().position(|f| Arc::strong_count(f) == 1) {
            let file = told.files.swap_remove(i);
            let region = region(file.start(), file.len(), file.file(), file.offset());
            self.daemon
                .remove(&region)
                .map_err(|e| Error::Setup(format!("the daemon does not give memory back: {e}")))?;
        }
        Ok(())
    }

    /// Tells the daemon of memory.
    fn tell(&self, at: usize, len: usize, file: BorrowedFd<'_>, offset: u64) -> Result<(), Error> {
        self.daemon
            .add(&region(at, len, file, offset))
            .map_err(|e| Error::Setup(format!("the daemon refused {len} bytes of memory: {e}")))
    }
}

fn region(at: usize, len: usize, file: BorrowedFd<'_>, offset: u64) -> VhostUserMemoryRegionInfo {
    VhostUserMemoryRegionInfo {
        guest_phys_addr: at as u64,
        memory_size: len as u64,
        userspace_addr: at as u64,
        mmap_offset: offset,
        mmap_handle: file.as_raw_fd(),
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
        let arena = Arena::new(HUGE).expect("memory");
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
        let arena = Arena::new(HUGE).expect("memory");
        let pages = arena.take(4096).expect("room");
        drop(arena);
        words(&pages).fill(0, 4096, 7);
    }
}
