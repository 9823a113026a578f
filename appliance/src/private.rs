//! Files and directories that only the daemon's user can read, whatever the umask: captured frames, stored state.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Options that create private files.
pub fn file() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

/// Makes a private directory and its parents, unless they exist.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Filter of the kinds of memory in a core dump (core(5)).
const FILTER: &str = "/proc/self/coredump_filter";
/// Kinds of shared memory: anonymous, of files, in huge pages, of DAX files.
const SHARED: u32 = 1 << 1 | 1 << 3 | 1 << 6 | 1 << 8;

/// Leaves memory that is shared with guests out of core dumps of this process.
pub fn keep_guests_out_of_core_dumps() -> io::Result<()> {
    let text = std::fs::read_to_string(FILTER)?;
    let filter = u32::from_str_radix(text.trim(), 16).map_err(io::Error::other)?;
    std::fs::write(FILTER, format!("{:#x}", filter & !SHARED))
}
