//! Multicast groups. On Ethernet nobody is asked: the group's GID is its address, and the event comes at once.

use std::net::SocketAddr;

use vnic_verbs::{AddressVector, Gid};

use super::address::{self, plain};
use super::id::Id;
use super::state::Data;
use crate::abi::RDMA_CM_EVENT_MULTICAST_JOIN;
use crate::errno::Errno;
use crate::objects::Qp;
use crate::sync::lock;

/// The GID of a group. EINVAL: the address is of none.
pub fn gid(group: SocketAddr) -> Result<Gid, Errno> {
    let ip = plain(group.ip());
    ip.is_multicast().then(|| address::gid(ip)).ok_or(Errno::INVALID)
}

/// Joins a group: attaches the queue pair, if there is one and `receives`. MULTICAST_JOIN comes, with the program's `context`.
pub fn join(
    id: &Id,
    qp: Option<&Qp>,
    group: SocketAddr,
    context: usize,
    receives: bool,
) -> Result<(), Errno> {
    let gid = gid(group)?;
    id.state.device()?;
    let mut kept = lock(&id.kept);
    if kept.groups.iter().any(|(known, _)| *known == group) {
        return Err(Errno(libc::EADDRINUSE));
    }
    if let Some(qp) = qp.filter(|_| receives) {
        qp.attach(gid)?;
    }
    kept.groups.push((group, gid));
    let own = id.state.lock().way;
    let way = AddressVector {
        dgid: gid,
        dmac: None,
        hop_limit: HOPS,
        ..own
    };
    id.state
        .put(RDMA_CM_EVENT_MULTICAST_JOIN, 0, Data::Group(way, context));
    Ok(())
}

/// Leaves a group. EADDRNOTAVAIL: it is in none of this address.
pub fn leave(id: &Id, qp: Option<&Qp>, group: SocketAddr) -> Result<(), Errno> {
    let mut kept = lock(&id.kept);
    let at = kept.groups.iter().position(|(known, _)| *known == group);
    let (_, gid) = kept.groups.swap_remove(at.ok_or(Errno(libc::EADDRNOTAVAIL))?);
    if let Some(qp) = qp {
        // (Who only sends was not attached.)
        let _ = qp.detach(gid);
    }
    Ok(())
}

/// Hop limit of datagrams for a group.
const HOPS: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gid_of_a_group_is_its_address() {
        let of = |text: &str| gid(text.parse().expect("an address")).map(|gid| gid.ip().to_string());
        assert_eq!(of("239.1.2.3:0"), Ok("239.1.2.3".into()));
        assert_eq!(of("[ff0e::7]:0"), Ok("ff0e::7".into()));
        assert_eq!(of("10.0.0.1:0"), Err(Errno::INVALID));
    }
}
