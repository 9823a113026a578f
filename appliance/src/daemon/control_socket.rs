//! Unix socket of the control interface: never accessible to more users than configured; it replaces a socket that a killed daemon left.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

use super::{StartError, os};
use crate::config::Control;

/// Path of the socket; dropping this removes the file.
pub struct ControlSocket(PathBuf);

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // An error means that the file is gone already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on the control socket.
pub fn bind(control: &Control) -> Result<(ControlSocket, UnixListener), StartError> {
    let path = &control.unix;
    let what = || format!("cannot listen on unix:{} (control)", path.display());
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(os(what())(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there; stop it or give this daemon another --socket-dir",
        )));
    }
    if let Ok(meta) = std::fs::symlink_metadata(path) {
        use std::os::unix::fs::FileTypeExt as _;
        if !meta.file_type().is_socket() {
            return Err(os(what())(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file that is not a socket",
            )));
        }
    }
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(os(format!("cannot make {}", parent.display())))?;
    }
    // The socket has a temporary name until its mode is set; then it is renamed, which replaces a stale one.
    let new = temporary_name(path);
    let _ = std::fs::remove_file(&new);
    let listener = UnixListener::bind(&new).map_err(os(what()))?;
    let set_up = || -> io::Result<()> {
        if let Some(gid) = control.group {
            std::os::unix::fs::chown(&new, None, Some(gid))?;
        }
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(control.mode))?;
        std::fs::rename(&new, path)
    };
    set_up().map_err(|e| {
        let _ = std::fs::remove_file(&new);
        os(what())(e)
    })?;
    Ok((ControlSocket(path.clone()), listener))
}

/// Path beside `path` that is not longer, because the length of socket paths is limited.
fn temporary_name(path: &Path) -> PathBuf {
    let name = format!(".{}", std::process::id());
    path.with_file_name(name)
}
