//! `/proc/self/pagemap`: the frame of each page (Documentation/admin-guide/mm/pagemap.rst of Linux).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use vnic_device::ring::Extent;

use crate::Error;
use crate::extents::part_of;

/// The file, for the process that reads it.
pub const PATH: &str = "/proc/self/pagemap";

/// Bit of an entry: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// Bits of the frame number.
const FRAME: u64 = (1 << 55) - 1;
/// Entries of one read.
const AT_ONCE: usize = 64 * 1024;

/// Why a page has no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFrame {
    /// The page is in memory, but the kernel does not say where.
    Hidden,
    /// The page is not in memory.
    Absent,
}

/// The frame number in an entry.
pub const fn frame(entry: u64) -> Result<u64, NoFrame> {
    if entry & PRESENT == 0 {
        Err(NoFrame::Absent)
    } else if entry & FRAME == 0 {
        // Without CAP_SYS_ADMIN the kernel writes 0. Frame 0 is never a program's.
        Err(NoFrame::Hidden)
    } else {
        Ok(entry & FRAME)
    }
}

/// The extents of memory of this process, for a device. The memory must be pinned, or be huge pages: the extents
/// are true only as long as the pages stay where they are.
pub fn extents(start: usize, len: usize) -> Result<Vec<Extent>, Error> {
    extents_by(Path::new(PATH), start, len)
}

/// As [`extents`], by a file in pagemap's format.
pub fn extents_by(path: &Path, start: usize, len: usize) -> Result<Vec<Extent>, Error> {
    // The file is opened anew each time: an open one belongs to the process that opened it, even in a forked
    // child.
    let file = File::open(path).map_err(Error::os(format!("cannot open {}", path.display())))?;
    let page = rustix::param::page_size();
    let skip = start % page;
    let pages = (skip + len).div_ceil(page);
    let mut frames = Vec::with_capacity(pages);
    let mut bytes = vec![0_u8; 8 * pages.min(AT_ONCE)];
    while frames.len() < pages {
        let count = (pages - frames.len()).min(AT_ONCE);
        let first = start / page + frames.len();
        let part = &mut bytes[..8 * count];
        file.read_exact_at(part, 8 * first as u64)
            .map_err(Error::os(format!(
                "cannot read where pages are from {}",
                path.display()
            )))?;
        for (i, entry) in part.chunks_exact(8).enumerate() {
            let entry = entry.try_into().map_or(0, u64::from_le_bytes);
            frames.push(frame(entry).map_err(|why| explain(why, (first + i) * page))?);
        }
    }
    let page = page as u64;
    let pages = frames.iter().map(|frame| Extent {
        gpa: frame * page,
        len: page,
    });
    Ok(part_of(pages, skip as u64, len as u64))
}

/// The error with its cure.
fn explain(why: NoFrame, address: usize) -> Error {
    Error::Setup(match why {
        NoFrame::Hidden => format!(
            "{PATH} does not say where memory is: the process needs the capability CAP_SYS_ADMIN in the guest's first \
             user namespace. Run it as root, outside of containers, or give it the capability: \
             setcap cap_sys_admin,cap_ipc_lock,cap_dac_override+ep PROGRAM"
        ),
        NoFrame::Absent => format!(
            "the page at {address:#x} is not in memory although it should be pinned: it was unmapped meanwhile, or is \
             not ordinary memory"
        ),
    })
}

/// Whether the kernel tells this process where its pages are.
pub fn check() -> Result<(), Error> {
    let here = Box::new(1_u8);
    // The bytes were just written, so they are there; that they might move does not matter.
    extents(std::ptr::from_ref(&*here).addr(), 1).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(entries: &[u64]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("temporary file");
        let bytes: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes()).collect();
        std::fs::write(file.path(), bytes).expect("written");
        file
    }

    #[test]
    fn entries_are_read() {
        assert_eq!(frame(PRESENT | 0x1234), Ok(0x1234));
        assert_eq!(frame(PRESENT | 1 << 61 | 1 << 55 | FRAME), Ok(FRAME));
        assert_eq!(frame(PRESENT | 1 << 61), Err(NoFrame::Hidden));
        assert_eq!(frame(0x1234), Err(NoFrame::Absent));
        assert_eq!(frame(1 << 62 | 0x1234), Err(NoFrame::Absent));
    }

    #[test]
    fn the_right_entries_are_read() {
        let page = rustix::param::page_size();
        let p = page as u64;
        let map = fake(&[0, 0, PRESENT | 7, PRESENT | 8, PRESENT | 20]);
        let found = extents_by(map.path(), 2 * page + 10, 2 * page).expect("extents");
        let found: Vec<_> = found.iter().map(|e| (e.gpa, e.len)).collect();
        assert_eq!(found, [(7 * p + 10, 2 * p - 10), (20 * p, 10)]);
    }

    #[test]
    fn what_is_missing_is_said_with_its_cure() {
        let page = rustix::param::page_size();
        let map = fake(&[PRESENT, 0, PRESENT | 3]);
        let text = |start| {
            extents_by(map.path(), start, page)
                .expect_err("refused")
                .to_string()
        };
        assert!(text(0).contains("CAP_SYS_ADMIN") && text(0).contains("setcap"));
        assert!(text(page).contains("not in memory"));
        assert!(text(2 * page + 1).contains("cannot read where pages are"));
        let none = extents_by(Path::new("/nonexistent/pagemap"), 0, 1).expect_err("refused");
        assert!(none.to_string().contains("/nonexistent/pagemap"));
    }
}
