//! Puts pages of a file in the place of private ones while the program runs.
//!
//! Between the copy and the change of the mapping nobody may write there, or the write is lost. Two ways keep other
//! threads from it:
//!
//! * *Write protection* with userfaultfd: a thread that writes waits, and then writes to the new pages. Other
//!   threads do not notice. It is not used where threads may sleep that wait for the end of a thread
//!   ([`copy_protected`](Swap::copy_protected)). It needs to catch writes by the kernel, too (a `read` into a
//!   neighbour's buffer), which takes CAP_SYS_PTRACE, `vm.unprivileged_userfaultfd` = 1, or the right to open
//!   `/dev/userfaultfd`; and it works for anonymous memory only.
//! * *All other threads are stopped* for the time of the copy, where write protection is not to be had and the
//!   environment does not forbid it ([`stop`]). System calls that signal(7) does not let go on after a signal (poll,
//!   nanosleep, …) end with EINTR.
//!
//! If neither can be had, write protection for the program alone is left for anonymous memory: then a system call of
//! another thread that writes there at that very moment fails with EFAULT.
//!
//! A thread that is made for it does the work. It has a stack that nobody has registered, so that the stack of the
//! caller may be replaced; and while others wait it allocates nothing and writes nowhere else.

#![expect(unsafe_code, reason = "puts shared pages in the place of private ones")]

use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::without_provenance_mut;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, pread};
use rustix::mm::{MapFlags, mmap};
use vnic_device::zerocopy::IntoBytes as _;

use super::super::maps::{self, FileId, Mapping, Rights};
use super::stop;
use super::threads::{self, Threads};
use super::untouched::Pages;
use super::write_protect::{self, Catches};
use crate::Error;

/// How other threads are kept from writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// By write protection.
    Protect(Catches),
    /// By stopping them.
    Stop,
}

/// A range whose pages are replaced.
pub(super) struct Swap<'a> {
    /// First byte.
    pub start: usize,
    /// Length in bytes, whole pages.
    pub len: usize,
    /// Rights of the range.
    pub rights: Rights,
    /// Whether no file is behind the range.
    pub anonymous: bool,
    /// What must still be there, if other threads may change it: they are stopped then.
    pub expected: Option<&'a Mapping>,
    /// The file that is mapped in its place.
    pub file: BorrowedFd<'a>,
    /// Offset in the file.
    pub offset: u64,
}

/// Why the pages were not replaced. Nothing has changed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// This way is not possible here.
    Way(Errno),
    /// Something else is mapped there by now.
    Changed,
    /// A thread of this library is using it as its stack.
    Busy,
    /// The content could not be copied.
    Copy(Errno),
    /// The mapping could not be made.
    Map(Errno),
}

impl From<Errno> for Refused {
    fn from(e: Errno) -> Refused {
        Refused::Way(e)
    }
}

/// Bytes that are copied at once: what was copied is looked at while it is near.
const CHUNK: usize = 64 << 10;
/// Bytes of the stack of the thread that does the work.
pub(super) const STACK: usize = 256 << 10;

impl Swap<'_> {
    /// Replaces the pages, by the way given or by the best that works, which is returned.
    pub fn carry_out(&self, how: Option<How>) -> Result<How, Error> {
        let protect = [
            How::Protect(Catches::All),
            How::Stop,
            How::Protect(Catches::Program),
        ];
        let ways: &[How] = match &how {
            _ if self.expected.is_some() => &[How::Stop],
            Some(how) => std::slice::from_ref(how),
            None if self.anonymous => &protect,
            None => &[How::Stop],
        };
        let done = std::thread::scope(|s| {
            std::thread::Builder::new()
                .name("vnic-adopt".into())
                .stack_size(STACK)
                .spawn_scoped(s, || self.try_ways(ways))
                .map(|thread| thread.join())
        });
        match done {
            Err(e) => Err(Error::os("starting a thread")(e)),
            Ok(Err(_)) => Err(Error::Setup("moving memory failed".into())),
            Ok(Ok(result)) => result.map_err(|refused| self.explain(refused)),
        }
    }

    /// Replaces the pages by the first way that is possible. The thread has a stack that nobody has registered.
    pub fn try_ways(&self, ways: &[How]) -> Result<How, Refused> {
        let mut last = Refused::Way(Errno::NOSYS);
        for way in ways {
            let done = match way {
                How::Protect(catches) => write_protect::during(*catches, self.start, self.len, || {
                    self.copy_protected()?;
                    self.put()
                }),
                How::Stop => {
                    let mine = self.expected.map(|_| threads::stack());
                    stop::during(|| {
                        self.check(mine)?;
                        self.copy(0, self.len, None)?;
                        self.put()
                    })
                }
            };
            match done.unwrap_or_else(|e| Err(Refused::Way(e))) {
                Err(refused @ Refused::Way(_)) => last = refused,
                other => return other.map(|()| *way),
            }
        }
        Err(last)
    }

    /// Copies the pages that may have content while the range is protected. Nobody may be waiting for a thread whose number is
    /// there: the C library keeps it at the top of the thread's stack, and who waits for the thread's end (pthread_join) sleeps in
    /// the kernel at that word *of the old page* (futex(2): the wait is for shared memory), and would never wake. A thread that is
    /// stopped by a signal sleeps anew afterwards.
    fn copy_protected(&self) -> Result<(), Refused> {
        let threads = Threads::list().map_err(Refused::Way)?;
        let copy = |from, len, touched| {
            if touched || self.clear(from, len).is_err() {
                self.copy(from, len, Some(&threads))
            } else {
                Ok(())
            }
        };
        match Pages::open() {
            Ok(pages) => pages.runs(self.start, self.len, copy),
            Err(_) => copy(0, self.len, true),
        }
    }

    /// Makes bytes of the file zeros that take no memory.
    fn clear(&self, from: usize, len: usize) -> Result<(), Errno> {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(self.file, punch, self.offset + from as u64, len as u64)
    }

    /// Copies bytes of the range. None of them may be the number of one of `threads`.
    fn copy(&self, from: usize, len: usize, threads: Option<&Threads>) -> Result<(), Refused> {
        let mut words = [0u32; CHUNK / 4];
        let mut done = from;
        while done < from + len {
            let at = without_provenance_mut::<libc::c_void>(self.start + done);
            let offset = self.offset + done as u64;
            // The kernel copies: it refuses what cannot be read, where we would be ended by a signal.
            // SAFETY: the kernel checks the addresses, and only reads there.
            let copied = unsafe {
                libc::pwrite(
                    self.file.as_raw_fd(),
                    at,
                    CHUNK.min(from + len - done),
                    offset as libc::off_t,
                )
            };
            let copied = match usize::try_from(copied) {
                Ok(0) => return Err(Refused::Copy(Errno::IO)),
                Ok(copied) => copied,
                Err(_) => match std::io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    e => return Err(Refused::Copy(Errno::from_raw_os_error(e.unwrap_or(libc::EIO)))),
                },
            };
            done += copied;
            if let Some(threads) = threads {
                let bytes = &mut words.as_mut_bytes()[..copied];
                let read = pread(self.file, bytes, offset).map_err(Refused::Way)?;
                if read < copied || threads.are_in(&words[..copied / 4]) {
                    return Err(Refused::Way(Errno::BUSY));
                }
            }
        }
        // A write to the old pages would be lost now.
        #[cfg(test)]
        std::thread::sleep(std::time::Duration::from_micros(300));
        Ok(())
    }

    /// Whether what was expected is still there, and is nothing that is in use now: neither the stack of this thread, `mine`, nor that
    /// of the one that is never stopped. (Where the program chooses the range, it does not choose these.)
    fn check(&self, mine: Option<(usize, usize)>) -> Result<(), Refused> {
        let (Some(expected), Some(mine)) = (self.expected, mine) else {
            return Ok(());
        };
        let end = self.start + self.len;
        let in_use = [mine, stop::spared_stack()];
        if in_use.iter().any(|(from, to)| *from < end && self.start < *to) {
            return Err(Refused::Busy);
        }
        // Offsets mean something in files only: mappings without one grow and shrink beside the range.
        let range = |m: &Mapping| {
            let part = m.within(self.start, self.start + self.len)?;
            let offset = if m.file == FileId::default() {
                0
            } else {
                part.offset
            };
            Some(Mapping { offset, ..part })
        };
        let (wanted, mut same) = (range(expected), false);
        maps::each(|m, _| {
            if m.end <= self.start {
                return ControlFlow::Continue(());
            }
            same = range(m) == wanted;
            ControlFlow::Break(())
        })
        .map_err(Refused::Way)?;
        if same { Ok(()) } else { Err(Refused::Changed) }
    }

    /// Changes the mapping.
    fn put(&self) -> Result<(), Refused> {
        // SAFETY: what was there has just been copied into what is put there, with the same rights, and nobody has
        // written meanwhile: for the program nothing changes.
        let put = unsafe {
            mmap(
                without_provenance_mut(self.start),
                self.len,
                self.rights.flags(),
                MapFlags::SHARED | MapFlags::FIXED,
                self.file,
                self.offset,
            )
        };
        put.map(|_| ()).map_err(Refused::Map)
    }

    /// Why no way is possible, and what to do about it.
    fn no_way(&self) -> String {
        let mut cures = Vec::new();
        let stop = if stop::is_allowed() {
            "a thread of this program blocks the signals by which it would be stopped for a moment".to_owned()
        } else {
            cures.push(format!("unset {}", stop::VARIABLE));
            format!("{}=0 forbids to stop threads for a moment", stop::VARIABLE)
        };
        if self.anonymous && write_protect::check().is_err() {
            cures.push(write_protect::CURE.to_owned());
        }
        cures.push("allocate the memory with this library".to_owned());
        let cures = cures.join("; or ");
        format!("{stop}, and write protection (userfaultfd) is not to be had there: {cures}")
    }

    fn explain(&self, refused: Refused) -> Error {
        let (start, len) = (self.start, self.len);
        let what = format!("{len} bytes at {start:#x} cannot be shared with the daemon");
        match refused {
            Refused::Way(e) => Error::os(format!("{what}: {}", self.no_way()))(e),
            Refused::Copy(Errno::FAULT) => {
                Error::os(format!("{what}: not all of it can be read"))(Errno::FAULT)
            }
            Refused::Copy(e) => Error::os(format!(
                "{what}: there is not enough shared memory for a copy (a limit of a container, or of the machine)"
            ))(e),
            Refused::Map(Errno::NOMEM) => Error::os(format!(
                "{what}: this process has too many mappings. Raise the limit: sysctl -w vm.max_map_count=1048576; \
                 or register fewer, larger buffers"
            ))(Errno::NOMEM),
            Refused::Map(e) => Error::os(what)(e),
            Refused::Busy => {
                Error::os(format!("{what}: a thread of this library has its stack there"))(Errno::BUSY)
            }
            Refused::Changed => {
                Error::os(format!("{what}: something else is mapped there by now"))(Errno::AGAIN)
            }
        }
    }
}
