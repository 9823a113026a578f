//! Who may be the VMM of an adapter: one tenant's VMM shall not be able to sit on another tenant's adapter.

use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

use crate::types::SocketAccess;

/// Why the process at the other end may not be the VMM.
pub fn refusal(access: &SocketAccess, stream: &UnixStream) -> Option<String> {
    if access.users.is_empty() {
        return None;
    }
    // A peer that the kernel does not tell is nobody.
    let uid = socket_peercred(stream).map(|peer| peer.uid.as_raw());
    let who = match uid {
        Ok(uid) if access.users.contains(&uid) => return None,
        Ok(uid) => format!("uid {uid}"),
        Err(error) => format!("a process whose user is not known ({error})"),
    };
    let text = "tried to be the VMM and was turned away: socket_users of this adapter does not list it";
    Some(format!("{who} {text}"))
}
