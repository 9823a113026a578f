//! Addresses: own ones, and the way to a peer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vnic_verbs::connection::{PathAnswer, PathQuery, Transport};
use vnic_verbs::{AddressVector, GidEntry, NoFork, block_signals};

use super::address::{any_like, gid, is_any, loopback_like, plain};
use super::choose;
use super::devices::{CmDevice, all, chosen};
use super::id::Id;
use super::ports::{PORTS, Wanted};
use super::state::{Data, Inner, Phase, State};
use crate::abi::*;
use crate::errno::{Errno, complain};

/// No device of ours has the address.
const NOT_OURS: Errno = Errno(libc::EADDRNOTAVAIL);
const NO_DEVICE: Errno = Errno(libc::ENODEV);
/// Time between two looks for a peer's Ethernet address.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Binds an identifier to an own address, and to its device unless the address names no interface.
pub fn bind(id: &Id, address: SocketAddr) -> Result<(), Errno> {
    if id.state.lock().phase != Phase::Idle {
        return Err(Errno::INVALID);
    }
    let found = if is_any(address.ip()) {
        // Devices are opened here: programs that tell their port before they listen (qperf) listen soon after.
        all(true);
        None
    } else {
        let found = chosen(|gids| choose::local(gids, address.ip()));
        if found.is_none() {
            complain(&format_args!(
                "{}: no GID of RoCEv2 of a device of ours",
                address.ip()
            ));
            return Err(NOT_OURS);
        }
        found
    };
    take_port(&mut id.state.lock(), id.state.space, address)?;
    if let Some((device, entry)) = found {
        settle(id, &device, &entry)?;
    }
    id.state.lock().phase = Phase::Bound;
    id.show_addresses();
    Ok(())
}

fn take_port(inner: &mut Inner, space: u32, address: SocketAddr) -> Result<(), Errno> {
    let lease = PORTS.take(Wanted {
        space,
        port: address.port(),
        address: Some(plain(address.ip())).filter(|ip| !is_any(*ip)),
        shared: inner.options.reuse,
    })?;
    let mut address = address;
    address.set_port(lease.port);
    inner.lease = Some(lease);
    inner.source = Some(address);
    Ok(())
}

/// The identifier is on a device from now on.
fn settle(id: &Id, device: &Arc<CmDevice>, entry: &GidEntry) -> Result<(), Errno> {
    id.show_device(device)?;
    id.state.join(device);
    let mut inner = id.state.lock();
    (inner.way.sgid_index, inner.own_gid) = (entry.index, entry.gid);
    Ok(())
}

/// Looks for the way to a peer, at most as long as `patience`: ADDR_RESOLVED or ADDR_ERROR comes.
pub fn address(id: &Id, from: Option<SocketAddr>, peer: SocketAddr, patience: Duration) -> Result<(), Errno> {
    if id.state.lock().phase == Phase::Idle
        && let Some(from) = from
    {
        bind(id, from)?;
    }
    let phase = id.state.lock().phase;
    if !matches!(phase, Phase::Idle | Phase::Bound) {
        return Err(Errno::INVALID);
    }
    let device = match id.state.device() {
        Ok(device) => device,
        Err(_) => find(id, peer)?,
    };
    let way = {
        let mut inner = id.state.lock();
        inner.phase = Phase::Resolving;
        inner.peer = Some(peer);
        inner.way.dgid = if is_any(peer.ip()) {
            inner.own_gid
        } else {
            gid(peer.ip())
        };
        inner.way.traffic_class = inner.options.traffic_class.unwrap_or(0);
        inner.way
    };
    id.show_addresses();
    if peer.ip().is_multicast() {
        resolved(&id.state, device.mtu()?);
        return Ok(());
    }
    match device.reach(&way) {
        Ok(mtu) => resolved(&id.state, mtu),
        Err(Errno(libc::EHOSTUNREACH)) => {
            let state = Arc::clone(&id.state);
            let end = Instant::now() + patience;
            let thread = std::thread::Builder::new().name("vnic-resolve".into());
            thread.spawn(move || {
                block_signals();
                look(&state, &device, &way, end);
            })?;
        }
        Err(Errno(e)) => failed(&id.state, -e),
    }
    Ok(())
}

/// Chooses the device, and the address on it.
fn find(id: &Id, peer: SocketAddr) -> Result<Arc<CmDevice>, Errno> {
    let route = choose::route(peer);
    let (device, entry) = chosen(|gids| choose::towards(gids, peer.ip(), route)).ok_or(NO_DEVICE)?;
    {
        let mut inner = id.state.lock();
        let own = own_address(peer, &entry);
        match inner.source {
            // (The port is taken already.)
            Some(bound) => inner.source = Some(SocketAddr::new(own.ip(), bound.port())),
            None => take_port(&mut inner, id.state.space, own)?,
        }
    }
    settle(id, &device, &entry)?;
    Ok(device)
}

/// The address of a GID, of the version that the peer's has; towards the device itself the loopback address.
fn own_address(peer: SocketAddr, entry: &GidEntry) -> SocketAddr {
    let ip = match (entry.gid.ip(), peer) {
        _ if is_any(peer.ip()) => loopback_like(peer),
        (IpAddr::V4(ip), SocketAddr::V6(_)) => ip.to_ipv6_mapped().into(),
        (ip, _) => ip,
    };
    let mut own = any_like(peer);
    own.set_ip(ip);
    own
}

/// Asks until somebody knows the peer's Ethernet address, or the time is over.
fn look(state: &Arc<State>, device: &CmDevice, way: &AddressVector, end: Instant) {
    loop {
        std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
        // A forked child would wait for ever for what this thread has locked.
        let _no_fork = NoFork::hold();
        match device.reach(way) {
            Ok(mtu) => return resolved(state, mtu),
            Err(Errno(libc::EHOSTUNREACH)) if Instant::now() < end => {}
            Err(Errno(libc::EHOSTUNREACH)) => return failed(state, -libc::ETIMEDOUT),
            Err(Errno(e)) => return failed(state, -e),
        }
    }
}

/// The way is found. `mtu`: the number of the MTU there.
fn resolved(state: &Arc<State>, mtu: u8) {
    {
        let mut inner = state.lock();
        (inner.phase, inner.path_mtu) = (Phase::AddressResolved, mtu);
    }
    state.put(RDMA_CM_EVENT_ADDR_RESOLVED, 0, Data::Nothing);
}

fn failed(state: &Arc<State>, status: i32) {
    state.lock().phase = Phase::Bound;
    state.put(RDMA_CM_EVENT_ADDR_ERROR, status, Data::Nothing);
}

/// Takes the way to the peer, with what an operator's policy says of it: ROUTE_RESOLVED or ROUTE_ERROR comes. Administration of the
/// subnet is waited for, at most as long as `patience`.
pub fn route(id: &Id, patience: Duration) -> Result<(), Errno> {
    let device = id.state.device()?;
    let (query, to_group) = {
        let inner = id.state.lock();
        if inner.phase != Phase::AddressResolved {
            return Err(Errno::INVALID);
        }
        let port = inner.peer.map_or(0, |peer| peer.port());
        // As Linux' `rdma_cm`: the type of service is the QoS class. (Queue pairs of datagrams have their P_Key already.)
        let query = PathQuery {
            sgid_index: inner.way.sgid_index,
            dgid: inner.way.dgid,
            service: id.state.service(port),
            qos_class: inner.options.traffic_class.unwrap_or(0).into(),
            pkey: (inner.transport == Transport::Ud).then(|| device.pkey()),
        };
        (query, inner.peer.is_some_and(|peer| peer.ip().is_multicast()))
    };
    let answer = match to_group {
        true => Ok(PathAnswer::NoPolicy),
        false => device.path(&query, patience),
    };
    let no_path = |status: i32| {
        id.state.put(RDMA_CM_EVENT_ROUTE_ERROR, -status, Data::Nothing);
        Ok(())
    };
    let path = match answer {
        Ok(PathAnswer::Path(path)) => Some(path),
        Ok(PathAnswer::NoPolicy | PathAnswer::Stranger) => None,
        Ok(PathAnswer::Silence) => return no_path(libc::ETIMEDOUT),
        Ok(PathAnswer::NoPath) => {
            let (dgid, service) = (query.dgid, query.service);
            complain(&format_args!(
                "the subnet's policy has no path to {dgid} for service {service:#x}"
            ));
            return no_path(libc::ENETUNREACH);
        }
        Err(e) => {
            complain(&format_args!(
                "the path is taken without asking for a policy: {e:?}"
            ));
            None
        }
    };
    {
        let mut inner = id.state.lock();
        inner.phase = Phase::RouteResolved;
        if let Some(class) = inner.options.traffic_class {
            inner.way.traffic_class = class;
        }
        if let Some(path) = path {
            inner.way.service_level = path.service_level;
            inner.path_mtu = inner.path_mtu.min(path.mtu);
        }
        inner.path = path;
    }
    id.show_path();
    id.state.put(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, Data::Nothing);
    Ok(())
}
