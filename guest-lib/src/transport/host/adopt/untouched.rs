//! Pages of private memory that nobody has ever touched. They are zeros, and need no copy.
//!
//! While userfaultfd protects a range, an untouched page of it is a mark in the page table. The kernel shows such marks as it
//! shows pages that it has swapped out (`/proc/self/pagemap`), so they count only while it has swapped out none of this process.
//! Nothing here allocates.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pread, read};

/// Bits of an entry (Documentation/admin-guide/mm/pagemap.rst): in memory; swapped out; protected by userfaultfd.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const PROTECTED: u64 = 1 << 57;
/// Entries of one read.
const AT_ONCE: usize = 512;

/// What the kernel says of this process's pages.
pub(super) struct Pages {
    pagemap: OwnedFd,
    page: usize,
}

impl Pages {
    pub fn open() -> Result<Pages, Errno> {
        Ok(Pages {
            pagemap: file(c"/proc/self/pagemap")?,
            page: rustix::param::page_size(),
        })
    }

    /// Shows a protected range of whole pages of private anonymous memory in runs: offset, bytes, and whether they were
    /// ever touched, as far as can be said.
    pub fn runs<E: From<Errno>>(
        &self,
        start: usize,
        len: usize,
        mut show: impl FnMut(usize, usize, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut from, mut touched) = (0, true);
        for first in (0..len).step_by(AT_ONCE * self.page) {
            let count = AT_ONCE.min((len - first) / self.page);
            let marks = self.marks(start + first, count)?;
            for (i, mark) in marks[..count].iter().enumerate() {
                let at = first + i * self.page;
                if *mark == touched {
                    if at > from {
                        show(from, at - from, touched)?;
                    }
                    (from, touched) = (at, !*mark);
                }
            }
        }
        if len > from {
            show(from, len - from, touched)?;
        }
        Ok(())
    }

    /// Which of these pages are marks. A page that is swapped out looks like one, but not before and after a moment at which
    /// none is swapped out.
    fn marks(&self, start: usize, count: usize) -> Result<[bool; AT_ONCE], Errno> {
        let (mut before, mut after) = ([0; AT_ONCE], [0; AT_ONCE]);
        self.entries(start, &mut before[..count])?;
        if !nothing_is_swapped()? {
            return Ok([false; AT_ONCE]);
        }
        self.entries(start, &mut after[..count])?;
        let is_mark = |entry: u64| entry & (PRESENT | SWAPPED | PROTECTED) == SWAPPED | PROTECTED;
        Ok(std::array::from_fn(|i| is_mark(before[i]) && is_mark(after[i])))
    }

    fn entries(&self, start: usize, into: &mut [u64]) -> Result<(), Errno> {
        let mut bytes = [0; 8 * AT_ONCE];
        let wanted = &mut bytes[..8 * into.len()];
        let at = 8 * (start / self.page) as u64;
        if pread(&self.pagemap, &mut *wanted, at)? != wanted.len() {
            return Err(Errno::IO);
        }
        for (entry, bytes) in into.iter_mut().zip(wanted.chunks_exact(8)) {
            *entry = u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        }
        Ok(())
    }
}

fn file(path: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Whether the kernel has swapped out nothing of this process (`VmSwap` of proc(5)).
fn nothing_is_swapped() -> Result<bool, Errno> {
    let status = file(c"/proc/self/status")?;
    let mut text = [0; 8192];
    let mut filled = 0;
    loop {
        match read(status.as_fd(), &mut text[filled..]) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    let mut lines = text[..filled].split(|b| *b == b'\n');
    let swapped = lines.find_map(|line| line.strip_prefix(b"VmSwap:"));
    Ok(swapped.is_some_and(|rest| rest.trim_ascii() == b"0 kB"))
}

#[cfg(test)]
mod tests {
    use super::super::write_protect::{Catches, during};
    use super::*;

    #[test]
    fn pages_that_were_written_are_told_from_those_that_were_not() {
        let page = rustix::param::page_size();
        let len = 3 * AT_ONCE * page;
        let map = memmap2::MmapOptions::new().len(len).map_anon().expect("memory");
        let start = map.as_ptr().addr();
        let written = [0, 5, 6, AT_ONCE, 2 * AT_ONCE - 1, 2 * AT_ONCE, 3 * AT_ONCE - 1];
        let mut map = map;
        for at in written {
            map[at * page] = 1;
        }
        let pages = Pages::open().expect("a file of the kernel's");
        let mut runs = [(0, 0, false); 32];
        let mut count = 0;
        let shown = during(Catches::Program, start, len, || {
            pages.runs(start, len, |from, len, touched| {
                runs[count] = (from / page, len / page, touched);
                count += 1;
                Ok::<(), Errno>(())
            })
        });
        let Ok(shown) = shown else {
            eprintln!("SKIP untouched pages: no userfaultfd here");
            return;
        };
        shown.expect("readable");
        let runs = &runs[..count];
        let mut next = 0;
        for (from, len, _) in runs {
            assert_eq!(*from, next, "{runs:?}");
            next += len;
        }
        assert_eq!(next, 3 * AT_ONCE);
        for at in written {
            let run = runs.iter().find(|r| (r.0..r.0 + r.1).contains(&at));
            assert!(run.is_some_and(|r| r.2), "page {at}: {runs:?}");
        }
        if nothing_is_swapped().expect("readable") && super::super::write_protect::marks_untouched() {
            let touched: usize = runs.iter().filter(|r| r.2).map(|r| r.1).sum();
            assert!(touched < AT_ONCE, "{runs:?}");
        }
    }
}
