//! Files and directories that nobody but the daemon's user reads, whatever the umask: captured frames, stored state.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Files that are made with these options are private.
pub fn file() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes a directory that is not there, and those above it.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Where the kernel is told what of a process's memory a core dump has (core(5)).
const FILTER: &str = "/proc/self/coredump_filter";
/// Shared memory: anonymous, of files, in huge pages, of DAX files.
const SHARED: u32 = 1 << 1 | 1 << 3 | 1 << 6 | 1 << 8;

/// A core dump of this process has no memory that it shares with guests.
pub fn keep_guests_out_of_core_dumps() -> io::Result<()> {
    let text = std::fs::read_to_string(FILTER)?;
    let filter = u32::from_str_radix(text.trim(), 16).map_err(io::Error::other)?;
    std::fs::write(FILTER, format!("{:#x}", filter & !SHARED))
}
