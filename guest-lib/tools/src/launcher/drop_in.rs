//! Our library in the place of the real ones: `libibverbs.so.1` in a directory of its own, with the real ones' versions, and
//! `librdmacm.so.1`, which is the same file.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::{Refusal, place, versions};

/// Name that programs look for which load the library by themselves.
pub const REAL_NAME: &str = "libibverbs.so.1";
/// The other name.
const CONNECTIONS_NAME: &str = "librdmacm.so.1";
/// Directories where distributions have the real library.
const DIRECTORIES: &[&str] = &[
    #[cfg(target_arch = "x86_64")]
    "/usr/lib/x86_64-linux-gnu",
    #[cfg(target_arch = "aarch64")]
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];

/// Puts our library into a directory of this user, once for each build of it.
pub fn private(library: &Path) -> Result<PathBuf, Refusal> {
    let trouble = |e: std::io::Error| Refusal::new(format!("{}: {e}", library.display()));
    let metadata = library.metadata().map_err(trouble)?;
    let mut build = DefaultHasher::new();
    library.hash(&mut build);
    metadata.len().hash(&mut build);
    metadata.modified().map_err(trouble)?.hash(&mut build);
    let dir = place::private_dir()?.join(format!("{:016x}", build.finish()));
    if !dir.join(REAL_NAME).exists() {
        put(library, &dir)?;
    }
    Ok(dir)
}

/// Puts our library into a directory, which is made if need be. Returns the file.
pub fn put(library: &Path, dir: &Path) -> Result<PathBuf, Refusal> {
    let trouble = |path: &Path, e: std::io::Error| Refusal::new(format!("{}: {e}", path.display()));
    let original = std::fs::read(library).map_err(|e| trouble(library, e))?;
    // Without versions it serves all programs but those that ask the loader for one.
    let bytes = versions::with_versions(&original, &real_versions()).unwrap_or(original);
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
        .map_err(|e| trouble(dir, e))?;
    let (file, new) = (
        dir.join(REAL_NAME),
        dir.join(format!("{REAL_NAME}.{}", std::process::id())),
    );
    // Whole or not at all: other programs may be starting, and may have the old file open.
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o755);
    let written = options
        .open(&new)
        .and_then(|mut f| std::io::Write::write_all(&mut f, &bytes))
        .and_then(|()| std::fs::rename(&new, &file))
        .and_then(|()| link(dir));
    written.map_err(|e| trouble(&file, e))?;
    Ok(file)
}

/// The other name leads to the same file, which is so loaded once.
fn link(dir: &Path) -> std::io::Result<()> {
    match std::os::unix::fs::symlink(REAL_NAME, dir.join(CONNECTIONS_NAME)) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        done => done,
    }
}

/// Versions of the real libraries of this machine, which may be newer than those in our table.
fn real_versions() -> Vec<String> {
    let of = |name: &str| {
        let mut files = DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        let bytes = files.find_map(|file| std::fs::read(file).ok())?;
        versions::names(&bytes)
    };
    let all = [REAL_NAME, CONNECTIONS_NAME];
    all.into_iter().filter_map(of).flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_library_that_is_not_made_as_ours_is_taken_as_it_is() {
        let dir = tempfile::tempdir().expect("a directory");
        let library = dir.path().join("library.so");
        std::fs::write(&library, "no library at all").expect("a file");
        let file = put(&library, &dir.path().join("a/b")).expect("a copy");
        assert_eq!(std::fs::read(&file).expect("a file"), b"no library at all");
        assert_eq!(
            file.metadata().expect("a file").permissions().mode() & 0o777,
            0o755
        );
        std::fs::write(&library, "another").expect("a file");
        assert_eq!(put(&library, &dir.path().join("a/b")).expect("once more"), file);
        assert_eq!(std::fs::read(&file).expect("a file"), b"another");
        assert_eq!(
            std::fs::read_dir(dir.path().join("a/b"))
                .expect("a directory")
                .count(),
            2,
            "nothing is left over"
        );
    }
}
