//! Memory that the program already shares with others: `MAP_SHARED` mappings of files. The daemon gets the same
//! file, so that all who share it see the same bytes.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, read_dir};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;

use super::maps::{FileId, Mapping};
use crate::Error;

/// A file of the program's, mapped once more: the addresses of that mapping are the guest-physical ones, and they
/// stay ours whatever the program does with its own mapping.
pub(super) struct Outside {
    file: File,
    id: FileId,
    offset: u64,
    map: MmapRaw,
}

impl Outside {
    /// Opens the file of a mapping, all of it. `name`: what the kernel calls the file.
    pub fn open(mapping: &Mapping, name: &[u8]) -> Result<Outside, Error> {
        let file = reach(mapping, name)?;
        let size = file
            .metadata()
            .map_err(Error::os("looking at a mapped file"))?
            .len();
        let page = rustix::param::page_size() as u64;
        // There is nothing behind the last page of the file, though it is mapped.
        let there = size
            .checked_next_multiple_of(page)
            .unwrap_or(u64::MAX)
            .saturating_sub(mapping.offset);
        let len = mapping.len().min(usize::try_from(there).unwrap_or(usize::MAX));
        let map = MmapOptions::new().offset(mapping.offset).len(len).map_raw(&file);
        let map = map.map_err(Error::os(format!("mapping {} once more", shown(name))))?;
        Ok(Outside {
            file,
            id: mapping.file,
            offset: mapping.offset,
            map,
        })
    }

    /// All of a file that is open here for reading and writing.
    pub fn whole(file: BorrowedFd<'_>, id: FileId) -> Result<Outside, Error> {
        let os = |what| Error::os(what);
        let file = File::from(file.try_clone_to_owned().map_err(os("copying a descriptor"))?);
        let size = file.metadata().map_err(os("looking at a file"))?.len();
        let page = rustix::param::page_size() as u64;
        let len = size
            .checked_next_multiple_of(page)
            .and_then(|len| usize::try_from(len).ok());
        let map = MmapOptions::new().len(len.unwrap_or(usize::MAX)).map_raw(&file);
        Ok(Outside {
            map: map.map_err(os("mapping a file"))?,
            file,
            id,
            offset: 0,
        })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Offset in the file of the first byte.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Address of the first byte.
    pub fn start(&self) -> usize {
        self.map.as_ptr().addr()
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether `len` bytes of a file from `offset` are in it.
    pub fn covers(&self, id: FileId, offset: u64, len: usize) -> bool {
        self.id == id
            && offset
                .checked_sub(self.offset)
                .and_then(|skip| skip.checked_add(len as u64))
                .is_some_and(|end| end <= self.len() as u64)
    }
}

/// Opens the file of a mapping once more.
fn reach(mapping: &Mapping, name: &[u8]) -> Result<File, Error> {
    let refused = |why: &str| {
        Error::os(format!(
            "{} at {:#x} is shared with other processes and cannot be shared with the daemon: {why}. Use \
             memory of malloc or mmap(MAP_PRIVATE), or of a file in /dev/shm (shm_open) or of memfd_create",
            shown(name),
            mapping.start
        ))(Errno::OPNOTSUPP)
    };
    let mut why = "it has no file that this process could open again (that of shmget, and of \
                   MAP_SHARED with MAP_ANONYMOUS, opens only for CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE)";
    for path in candidates(mapping, name) {
        // Never a device: opening one may do anything.
        if !path.metadata().is_ok_and(|m| m.is_file()) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else {
            why = "its file may not be opened for writing";
            continue;
        };
        if FileId::of(&file).is_ok_and(|id| id == mapping.file) {
            return Ok(file);
        }
    }
    Err(refused(why))
}

/// Paths where the file of a mapping may be.
fn candidates(mapping: &Mapping, name: &[u8]) -> Vec<PathBuf> {
    let itself = format!("/proc/self/map_files/{:x}-{:x}", mapping.start, mapping.end);
    let mut paths = vec![PathBuf::from(itself)];
    let open = read_dir("/proc/self/fd").into_iter().flatten().flatten();
    paths.extend(open.map(|entry| entry.path()).filter(|path| {
        let same = |file: File| FileId::of(file).is_ok_and(|id| id == mapping.file);
        path.metadata().is_ok_and(|m| m.is_file()) && File::open(path).is_ok_and(same)
    }));
    let path = Path::new(OsStr::from_bytes(name));
    if path.is_absolute() && !name.ends_with(b" (deleted)") {
        paths.push(path.to_owned());
    }
    paths
}

fn shown(name: &[u8]) -> String {
    if name.is_empty() {
        return "a mapping".to_owned();
    }
    format!("the mapping of {}", String::from_utf8_lossy(name))
}
