//! Pins: memory that stays where it is, by Linux's leave and without a driver of our own.
//!
//! Memory that is registered as a fixed buffer of an io_uring is faulted in for writing and pinned for a long time
//! (`FOLL_LONGTERM`): it is neither moved nor swapped nor merged until the registration ends, whatever happens to
//! the mapping. No I/O is ever done through these rings. Each ring has a table of buffers, all empty in the
//! beginning, which Linux 5.13 and later allow.

#![expect(unsafe_code, reason = "tells the kernel of memory by its address, to pin it")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_rsrc_update2, iovec};

use crate::Error;
use crate::sync::lock;

/// Buffers of one table. Linux allows 16384; each costs the kernel 16 bytes.
const SLOTS: u32 = 1024;
/// Most bytes of one buffer that Linux allows.
const BUFFER_MAX: usize = 1 << 30;

/// Pins of a process. Only the kernel bounds them.
#[derive(Debug, Default)]
pub struct Pins {
    tables: Mutex<Vec<Arc<Table>>>,
    abandoned: Arc<AtomicBool>,
}

/// Memory that stays where it is for as long as this value lives.
#[derive(Debug)]
pub struct Pin {
    slots: Vec<Slot>,
}

/// A table of fixed buffers.
#[derive(Debug)]
struct Table {
    ring: OwnedFd,
    free: Mutex<Vec<u32>>,
}

/// A place in a table, which is free again when it is dropped.
#[derive(Debug)]
struct Slot {
    table: Arc<Table>,
    index: u32,
    abandoned: Arc<AtomicBool>,
}

impl Pins {
    /// No pins yet.
    pub fn new() -> Pins {
        Pins::default()
    }

    /// Keeps all pins until the process ends: a device that does not stop may still write there.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Whether [`abandon`](Pins::abandon) was called.
    pub fn are_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Pins the pages that hold these bytes. They must be mapped, and writable.
    pub fn pin(&self, start: usize, len: usize) -> Result<Pin, Error> {
        self.pin_in(start, len, BUFFER_MAX)
    }

    /// As [`pin`](Pins::pin), with buffers of `buffer_max` bytes, whole pages.
    fn pin_in(&self, start: usize, len: usize, buffer_max: usize) -> Result<Pin, Error> {
        let page = rustix::param::page_size();
        let first = start - start % page;
        let end = start
            .checked_add(len.max(1))
            .and_then(|e| e.checked_next_multiple_of(page))
            .ok_or_else(|| explain(Errno::FAULT, start, len))?;
        let mut pin = Pin { slots: Vec::new() };
        let mut at = first;
        while at < end {
            let piece = (end - at).min(buffer_max);
            let slot = self.slot()?;
            slot.table
                .set(slot.index, at, piece)
                .map_err(|e| explain(e, start, len))?;
            pin.slots.push(slot);
            at += piece;
        }
        Ok(pin)
    }

    /// A free place, in a new table if all are full.
    fn slot(&self) -> Result<Slot, Error> {
        let mut tables = lock(&self.tables);
        let slot = |table: &Arc<Table>, index| Slot {
            table: Arc::clone(table),
            index,
            abandoned: Arc::clone(&self.abandoned),
        };
        let free = tables.iter().find_map(|t| Some(slot(t, t.free().pop()?)));
        if let Some(found) = free {
            return Ok(found);
        }
        let table = Arc::new(Table::new()?);
        let index = table.free().pop().unwrap_or_default();
        let found = slot(&table, index);
        tables.push(table);
        Ok(found)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.abandoned.load(Ordering::Acquire) {
            // The ring stays open, and so does the pin.
            std::mem::forget(Arc::clone(&self.table));
            return;
        }
        // Emptying a place has no reason to fail. If it does, the place is not used again, and the pin ends with
        // the ring.
        if self.table.set(self.index, 0, 0).is_ok() {
            self.table.free().push(self.index);
        }
    }
}

impl Table {
    fn new() -> Result<Table, Error> {
        let ring = ring()?;
        let empty = vec![buffer(0, 0); SLOTS as usize];
        // SAFETY: the kernel reads `SLOTS` iovecs there, and they name no memory.
        unsafe {
            io_uring_register(
                ring.as_fd(),
                IoringRegisterOp::RegisterBuffers,
                empty.as_ptr().cast(),
                SLOTS,
            )
        }
        .map_err(|e| match e {
            Errno::FAULT => Error::Setup(
                "memory cannot be pinned: this needs Linux 5.13 or later in the guest, which allows io_uring tables with \
                 empty places"
                    .into(),
            ),
            e => Error::os("io_uring: cannot make a table of buffers")(e),
        })?;
        Ok(Table {
            ring,
            free: Mutex::new((0..SLOTS).rev().collect()),
        })
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        lock(&self.free)
    }

    /// Puts memory in a place, or nothing if `len` is 0.
    fn set(&self, index: u32, start: usize, len: usize) -> rustix::io::Result<()> {
        let buffer = buffer(start, len);
        let mut update = io_uring_rsrc_update2::default();
        update.offset = index;
        update.data.ptr = std::ptr::from_ref(&buffer).cast_mut().cast();
        update.nr = 1;
        // SAFETY: the kernel reads the structure and the one iovec that it points to. It takes references to the
        // pages behind the range, or refuses; it neither reads nor writes them, as no request ever uses the ring.
        unsafe {
            io_uring_register(
                self.ring.as_fd(),
                IoringRegisterOp::RegisterBuffersUpdate,
                std::ptr::from_ref(&update).cast(),
                size_of::<io_uring_rsrc_update2>() as u32,
            )
        }
        .map(drop)
    }
}

fn buffer(start: usize, len: usize) -> iovec {
    iovec {
        iov_base: std::ptr::without_provenance_mut(start),
        iov_len: len,
    }
}

/// A ring that nobody submits to.
fn ring() -> Result<OwnedFd, Error> {
    let mut params = io_uring_params::default();
    // SAFETY: no flag is set, so no descriptor is named; the parameters are ours.
    unsafe { rustix::io_uring::io_uring_setup(1, &mut params) }.map_err(|e| unavailable(e, &disabled()))
}

/// Whether memory can be pinned at all.
pub fn check() -> Result<(), Error> {
    Table::new().map(drop)
}

/// Who may use io_uring (Documentation/admin-guide/sysctl/kernel.rst of Linux).
fn disabled() -> String {
    std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The error for a ring that could not be made.
fn unavailable(error: Errno, disabled: &str) -> Error {
    let why = match (error, disabled) {
        (Errno::PERM, "1" | "2") => format!(
            "kernel.io_uring_disabled is {disabled}. Allow it, in the guest: sysctl -w kernel.io_uring_disabled=0"
        ),
        (Errno::PERM, _) => {
            "a filter of system calls forbids it (seccomp, as in containers). Allow io_uring_setup and \
                             io_uring_register there, or run the program outside"
                .to_owned()
        }
        (Errno::NOSYS, _) => {
            "this kernel has no io_uring (CONFIG_IO_URING), or a filter of system calls hides it \
                              (seccomp)"
                .to_owned()
        }
        (Errno::MFILE, _) => "too many files are open. Allow more: ulimit -n 65536".to_owned(),
        (e, _) => e.to_string(),
    };
    Error::Setup(format!(
        "memory cannot be pinned, because io_uring is not available: {why}"
    ))
}

/// The error for memory that was refused.
fn explain(error: Errno, start: usize, len: usize) -> Error {
    let what = format!("cannot pin {len} bytes at {start:#x}");
    match error {
        Errno::NOMEM => Error::Setup(format!(
            "{what}: over the limit of locked memory, or there is not enough memory. Raise the limit: ulimit -l \
             unlimited (or LimitMEMLOCK=infinity in a service), or give the program the capability CAP_IPC_LOCK"
        )),
        Errno::FAULT | Errno::OPNOTSUPP => Error::Setup(format!(
            "{what}: not all of it is mapped and writable memory, or it is a mapping of a file on a disk. Use memory \
             of the heap, of mmap with MAP_ANONYMOUS, or of files on tmpfs or hugetlbfs"
        )),
        e => Error::os(what)(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{HUGE, Kind, Mapping};
    use super::super::pagemap;
    use super::*;

    /// Whether this machine lets memory be pinned. If not, the refusal has said why, which is asserted here.
    fn pinnable() -> bool {
        match check() {
            Ok(()) => true,
            Err(e) => {
                let text = e.to_string();
                assert!(text.contains("memory cannot be pinned"), "{text}");
                eprintln!("SKIP pins: {text}");
                false
            }
        }
    }

    /// Whether all pages are in memory. Without CAP_SYS_ADMIN the kernel says that, too, but not where.
    fn present(start: usize, len: usize) -> Result<(), String> {
        match pagemap::extents(start, len) {
            Err(e) if e.to_string().contains("CAP_SYS_ADMIN") => Ok(()),
            other => other.map(drop).map_err(|e| e.to_string()),
        }
    }

    #[test]
    fn a_pin_brings_memory_in_and_outlives_it() {
        if !pinnable() {
            return;
        }
        let pins = Pins::new();
        let memory = Mapping::new(Kind::Normal, 2 * HUGE).expect("memory");
        let start = memory.start().as_ptr().addr() + 100;
        assert!(present(start, HUGE).is_err(), "nothing has touched it yet");
        let pin = pins.pin(start, HUGE).expect("pinned");
        present(start, HUGE).expect("in memory");
        drop(memory);
        drop(pin);
    }

    #[test]
    fn places_are_used_again() {
        if !pinnable() {
            return;
        }
        let pins = Pins::new();
        let memory = Mapping::new(Kind::Normal, 1 << 16).expect("memory");
        let start = memory.start().as_ptr().addr();
        let some: Vec<Pin> = (0..SLOTS)
            .map(|i| pins.pin(start + i as usize, 1).expect("pinned"))
            .collect();
        assert_eq!(pins.tables.lock().expect("lock").len(), 1);
        let more = pins.pin(start, 1 << 16).expect("pinned by a second table");
        assert_eq!(pins.tables.lock().expect("lock").len(), 2);
        drop(some);
        for _ in 0..2 * SLOTS {
            pins.pin(start, 1).expect("pinned");
        }
        assert_eq!(pins.tables.lock().expect("lock").len(), 2);
        drop(more);
    }

    #[test]
    fn large_memory_takes_several_places() {
        if !pinnable() {
            return;
        }
        let pins = Pins::new();
        let memory = Mapping::new(Kind::Normal, 10 << 16).expect("memory");
        let start = memory.start().as_ptr().addr();
        let pin = pins.pin_in(start + 5, (2 << 16) - 5, 1 << 16).expect("pinned");
        assert_eq!(pin.slots.len(), 2);
        let pin = pins.pin_in(start + 5, 2 << 16, 1 << 16).expect("pinned");
        assert_eq!(pin.slots.len(), 3);
        present(start, (2 << 16) + 6).expect("in memory");
        // The mapping ends in the middle: nothing is kept.
        let used = || SLOTS as usize - pins.tables.lock().expect("lock")[0].free().len();
        let before = used();
        assert!(pins.pin_in(start, BUFFER_MAX, 1 << 16).is_err());
        assert_eq!(used(), before);
    }

    #[test]
    fn what_cannot_be_pinned_is_said() {
        if !pinnable() {
            return;
        }
        let pins = Pins::new();
        let text = |start, len| pins.pin(start, len).expect_err("refused").to_string();
        assert!(text(1 << 20, 4096).contains("not all of it is mapped"));
        assert!(text(usize::MAX - 5, 4).contains("not all of it is mapped"));
        // Memory that is there, but cannot be written.
        assert!(
            text(explain as fn(Errno, usize, usize) -> Error as usize, 1).contains("not all of it is mapped")
        );
        let tables = pins.tables.lock().expect("lock");
        assert_eq!(tables[0].free().len(), SLOTS as usize);
    }

    #[test]
    fn refusals_name_the_cure() {
        let text = |e, disabled| unavailable(e, disabled).to_string();
        assert!(text(Errno::PERM, "2").contains("sysctl -w kernel.io_uring_disabled=0"));
        assert!(text(Errno::PERM, "0").contains("seccomp"));
        assert!(text(Errno::NOSYS, "").contains("CONFIG_IO_URING"));
        assert!(explain(Errno::NOMEM, 0, 1).to_string().contains("ulimit -l"));
    }
}
