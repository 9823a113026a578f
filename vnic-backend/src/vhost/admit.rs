//! Processes that may be the VMM of an adapter: a tenant's VMM must not attach to another tenant's adapter.

use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;

use crate::types::{Caller, SocketAccess};

/// The process at the other end.
pub fn caller(stream: &UnixStream) -> Caller {
    let peer = socket_peercred(stream).ok();
    Caller {
        // A process that is not seen from this PID namespace has number 0.
        pid: peer
            .map(|peer| Pid::as_raw(Some(peer.pid)))
            .filter(|pid| *pid > 0),
        uid: peer.map(|peer| peer.uid.as_raw()),
    }
}

/// Whether a process may be the VMM. One whose user the kernel does not report may not if users are listed.
pub fn may_attach(access: &SocketAccess, caller: Caller) -> bool {
    let listed = |uid| access.owner == Some(uid) || access.users.contains(&uid);
    access.users.is_empty() || caller.uid.is_some_and(listed)
}
