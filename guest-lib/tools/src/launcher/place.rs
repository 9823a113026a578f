//! Directories.

use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::Refusal;

/// Directory of vnicd's sockets by default.
pub fn socket_dir() -> Result<PathBuf, Refusal> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    if let Some(dir) = set("RUNTIME_DIRECTORY") {
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok("/run/vnic".into());
    }
    set("XDG_RUNTIME_DIR").map(|dir| dir.join("vnic")).ok_or_else(|| {
        Refusal::new("where are the sockets of the adapters? Not root, and XDG_RUNTIME_DIR is not set: give --socket-dir")
    })
}

/// A directory that no other user can write to. It stays: programs that run from it may start
/// others.
pub fn private_dir() -> Result<PathBuf, Refusal> {
    let user = rustix::process::geteuid();
    let base = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_dir())
        .unwrap_or_else(std::env::temp_dir);
    let dir = base.join(format!("vnic-verbs-{}", user.as_raw()));
    let trouble = |e: std::io::Error| Refusal::new(format!("{}: {e}", dir.display()));
    match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(trouble(e)),
        _ => {}
    }
    check_private(&dir, user.as_raw()).map_err(trouble)??;
    Ok(dir)
}

/// Checks that no other user can write there: they could put a library of theirs into our program.
fn check_private(dir: &Path, user: u32) -> std::io::Result<Result<(), Refusal>> {
    let metadata = dir.symlink_metadata()?;
    let private = metadata.is_dir() && metadata.uid() == user && metadata.mode() & 0o022 == 0;
    Ok(if private {
        Ok(())
    } else {
        Err(Refusal::new(format!(
            "{} is not a directory of this user alone: remove it, or set XDG_RUNTIME_DIR",
            dir.display()
        )))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_others_write_to_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let check = |path: &Path| check_private(path, user).expect("it is there");
        assert!(check(dir.path()).is_ok());
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).expect("permissions");
        assert!(check(dir.path()).is_err());
        let link = tempfile::tempdir().expect("a directory");
        let path = link.path().join("link");
        std::os::unix::fs::symlink(link.path(), &path).expect("a link");
        assert!(check(&path).is_err());
        assert!(check_private(&link.path().join("none"), user).is_err());
    }
}
