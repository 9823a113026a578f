//! What is mapped in this process, as the kernel says (`/proc/self/maps`, proc(5)).
//!
//! Nothing here allocates: the list is also read while stopped threads may hold the allocator's lock, and in a child that
//! has just been forked.

use std::ops::ControlFlow;

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, fstat, major, minor, open};
use rustix::io::{Errno, read};
use rustix::mm::ProtFlags;

/// A mapping. Its name is given besides, as not every caller keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mapping {
    /// First byte.
    pub start: usize,
    /// The byte behind the last one.
    pub end: usize,
    /// What the program may do there.
    pub rights: Rights,
    /// `MAP_SHARED`.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// The file; all zeros if there is none.
    pub file: FileId,
}

/// A file, by its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub(super) struct FileId {
    pub major: u32,
    pub minor: u32,
    pub inode: u64,
}

impl FileId {
    /// The device and the inode of an open file, as they are in `/proc/self/maps`.
    pub fn of(file: impl AsFd) -> Result<FileId, Errno> {
        let stat = fstat(file)?;
        Ok(FileId {
            major: major(stat.st_dev),
            minor: minor(stat.st_dev),
            inode: stat.st_ino,
        })
    }
}

/// `PROT_READ`, `PROT_WRITE`, `PROT_EXEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rights {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Rights {
    /// The rights as mmap wants them.
    pub fn flags(self) -> ProtFlags {
        let mut flags = ProtFlags::empty();
        flags.set(ProtFlags::READ, self.read);
        flags.set(ProtFlags::WRITE, self.write);
        flags.set(ProtFlags::EXEC, self.execute);
        flags
    }
}

impl Mapping {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// The part of the mapping within a range, if there is one.
    pub fn within(&self, start: usize, end: usize) -> Option<Mapping> {
        let (from, to) = (self.start.max(start), self.end.min(end));
        (from < to).then(|| Mapping {
            start: from,
            end: to,
            offset: self.offset + (from - self.start) as u64,
            ..*self
        })
    }
}

/// Bytes of one read. A longer line loses the end of its name.
const BUFFER: usize = 8 << 10;

/// Shows all mappings and their names, lowest first, until `show` says stop.
///
/// Nothing is shown twice: if a mapping grows downwards or joins its neighbour between two reads, the kernel gives it from
/// its new start (proc(5) promises only what one read gives). The part that has been shown is cut off.
pub(super) fn each(show: impl FnMut(&Mapping, &[u8]) -> ControlFlow<()>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file: OwnedFd = open(c"/proc/self/maps", flags, Mode::empty())?;
    lines(|buffer| read(&file, buffer), show)
}

/// As [`each`], of the lines that `read` gives.
fn lines(
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
    mut show: impl FnMut(&Mapping, &[u8]) -> ControlFlow<()>,
) -> Result<(), Errno> {
    // Address behind the last mapping that was shown.
    let mut shown = 0;
    let mut show = |line: &[u8]| {
        let (mapping, name) = parse(line).ok_or(Errno::PROTO)?;
        let Some(rest) = mapping.within(shown, usize::MAX) else {
            return Ok(ControlFlow::Continue(()));
        };
        shown = rest.end;
        Ok::<_, Errno>(show(&rest, name))
    };
    let mut buffer = [0u8; BUFFER];
    let mut filled = 0;
    // Whether the rest of a line that was too long is to be skipped.
    let mut skipping = false;
    loop {
        let got = match read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(got) => got,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e),
        };
        filled += got;
        let mut done = 0;
        while let Some(len) = buffer[done..filled].iter().position(|b| *b == b'\n') {
            let line = &buffer[done..done + len];
            done += len + 1;
            if std::mem::take(&mut skipping) {
                continue;
            }
            if show(line)?.is_break() {
                return Ok(());
            }
        }
        if done == 0 && filled == BUFFER {
            if !skipping && show(&buffer)?.is_break() {
                return Ok(());
            }
            skipping = true;
            done = filled;
        }
        buffer.copy_within(done..filled, 0);
        filled -= done;
    }
}

/// Parses a line: `START-END rwxp OFFSET MAJOR:MINOR INODE    NAME`.
fn parse(line: &[u8]) -> Option<(Mapping, &[u8])> {
    let (start, rest) = number(line, 16)?;
    let (end, rest) = number(rest.strip_prefix(b"-")?, 16)?;
    let [b' ', r, w, x, sharing, b' ', rest @ ..] = rest else {
        return None;
    };
    let (offset, rest) = number(rest, 16)?;
    let (major, rest) = number(rest.strip_prefix(b" ")?, 16)?;
    let (minor, rest) = number(rest.strip_prefix(b":")?, 16)?;
    let (inode, rest) = number(rest.strip_prefix(b" ")?, 10)?;
    let mapping = Mapping {
        start: usize::try_from(start).ok()?,
        end: usize::try_from(end).ok()?,
        rights: Rights {
            read: *r == b'r',
            write: *w == b'w',
            execute: *x == b'x',
        },
        shared: *sharing == b's',
        offset,
        file: FileId {
            major: major as u32,
            minor: minor as u32,
            inode,
        },
    };
    (start < end).then_some((mapping, rest.trim_ascii_start()))
}

/// The number at the beginning, and what follows it.
fn number(text: &[u8], radix: u32) -> Option<(u64, &[u8])> {
    let digit = |b: &u8| char::from(*b).to_digit(radix);
    let len = text.iter().take_while(|b| digit(b).is_some()).count();
    let mut value = 0u64;
    for b in &text[..len] {
        value = value
            .checked_mul(u64::from(radix))?
            .checked_add(u64::from(digit(b)?))?;
    }
    (len > 0).then_some((value, &text[len..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let (m, name) =
            parse(b"7f0010000000-7f0010021000 rw-s 00003000 00:1f 77                       /dev/shm/a b")
                .expect("a mapping");
        assert_eq!((m.start, m.len()), (0x7f00_1000_0000, 0x21000));
        assert!(m.rights.read && m.rights.write && !m.rights.execute && m.shared);
        assert_eq!(m.offset, 0x3000);
        assert_eq!((m.file.major, m.file.minor, m.file.inode), (0, 0x1f, 77));
        assert_eq!(name, b"/dev/shm/a b");
        let (m, name) =
            parse(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 ").expect("a mapping");
        assert!(!m.rights.read && !m.shared && name.is_empty());
        for wrong in [&b""[..], b"12", b"12-10 rw-p 0 0:0 0", b"1-2 rw", b"1-2 rw-p x"] {
            assert!(parse(wrong).is_none());
        }
    }

    #[test]
    fn parts_keep_their_place_in_the_file() {
        let (m, _) = parse(b"1000-5000 rw-s 00003000 00:1f 77 /x").expect("a mapping");
        let part = m.within(0x2000, 0x9000).expect("some of it");
        assert_eq!((part.start, part.end, part.offset), (0x2000, 0x5000, 0x4000));
        assert!(m.within(0x5000, 0x6000).is_none());
    }

    #[test]
    fn what_changes_between_two_reads_is_not_shown_twice() {
        // The second mapping has grown both ways since it was shown; the next one is a part of it by now.
        let mut reads = [
            "1000-2000 rw-p 00000000 00:00 0\n4000-5000 r",
            "w-s 00001000 00:1f 77 /x\n",
            "3000-6000 rw-s 00000000 00:1f 77 /x\n5000-6000 rw-p 00000000 00:00 0\n",
            "6000-7000 ---p 00000000 00:00 0\n",
        ]
        .into_iter();
        let read = |buffer: &mut [u8]| {
            let bytes = reads.next().unwrap_or_default().as_bytes();
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        };
        let mut seen = Vec::new();
        lines(read, |m, name| {
            seen.push((m.start, m.end, m.offset, name.len()));
            ControlFlow::Continue(())
        })
        .expect("lines");
        let expected = [
            (0x1000, 0x2000, 0, 0),
            (0x4000, 0x5000, 0x1000, 2),
            (0x5000, 0x6000, 0x2000, 2),
            (0x6000, 0x7000, 0, 0),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn this_process_is_seen_whole() {
        // More than is read at once.
        let mut seen = 0;
        let (mut last, mut mine) = (0, false);
        let here = &raw const seen as usize;
        each(|m, _| {
            assert!(m.start >= last, "in order");
            last = m.end;
            seen += 1;
            mine |= (m.start..m.end).contains(&here);
            ControlFlow::Continue(())
        })
        .expect("readable");
        assert!(mine && seen > 10);
    }
}
