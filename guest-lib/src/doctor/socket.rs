//! The socket of an adapter, for processes of the host.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{Finding, SOCKET_VARIABLE};

/// Whether a daemon answers at a socket.
pub fn socket(path: &Path) -> Finding {
    let shown = path.display();
    let list = format!(
        "ls -l {}/*-rdma.sock",
        path.parent().unwrap_or(Path::new("/")).display()
    );
    let metadata = match std::fs::metadata(path) {
        Ok(m) => m,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Finding::problem(
                SOCKET_VARIABLE,
                format!("there is no {shown}"),
                format!("start vnicd, or name a socket that is there: {list}"),
            );
        }
        Err(e) => {
            return Finding::problem(
                SOCKET_VARIABLE,
                format!("{shown}: {e}"),
                "run it as root, or as a member of the group that owns the directory",
            );
        }
    };
    if !metadata.file_type().is_socket() {
        return Finding::problem(
            SOCKET_VARIABLE,
            format!("{shown} is no socket"),
            format!("export {SOCKET_VARIABLE}=DIR/NAME-rdma.sock; candidates: {list}"),
        );
    }
    if path.to_string_lossy().ends_with("-eth.sock") {
        let rdma = path.to_string_lossy().replace("-eth.sock", "-rdma.sock");
        return Finding::problem(
            SOCKET_VARIABLE,
            format!("{shown} is the Ethernet function of the adapter"),
            format!("export {SOCKET_VARIABLE}={rdma}"),
        );
    }
    match UnixStream::connect(path) {
        Ok(_) => Finding::ok(SOCKET_VARIABLE, format!("{shown} answers")),
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Finding::problem(
            SOCKET_VARIABLE,
            format!("{shown}: {e}"),
            format!("run it as root, or as a member of its group: {list}"),
        ),
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Finding::problem(
            SOCKET_VARIABLE,
            format!("nobody listens at {shown}: the daemon that made it has ended"),
            "start vnicd: systemctl restart vnicd",
        ),
        Err(e) => Finding::problem(SOCKET_VARIABLE, format!("{shown}: {e}"), list),
    }
}
