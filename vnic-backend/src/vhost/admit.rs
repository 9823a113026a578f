//! Processes that may be the VMM of an adapter: a tenant's VMM must not attach to another tenant's adapter.

use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

use crate::types::SocketAccess;

/// Reason why the process at the other end may not be the VMM.
pub fn refusal(access: &SocketAccess, stream: &UnixStream) -> Option<String> {
    if access.users.is_empty() {
        return None;
    }
    // A peer whose user the kernel does not report is refused.
    let uid = socket_peercred(stream).map(|peer| peer.uid.as_raw());
    let who = match uid {
        Ok(uid) if access.users.contains(&uid) => return None,
        Ok(uid) => format!("uid {uid}"),
        Err(error) => format!("a process whose user is not known ({error})"),
    };
    let text = "tried to be the VMM and was turned away: socket_users of this adapter does not list it";
    Some(format!("{who} {text}"))
}
