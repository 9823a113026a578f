//! Endpoints: identifiers made in one call, whose calls wait; and the addresses that they are made of.

#![expect(unsafe_code, reason = "reads and makes lists of the C library's interface")]

use std::ffi::{CStr, c_char, c_int};
use std::net::SocketAddr;
use std::time::Duration;

use super::address::{read, storage};
use super::event::{bytes, complete, forget};
use super::id::Id;
use super::state::Data;
use super::{qp, resolve};
use crate::abi::*;
use crate::errno::Errno;
use crate::handle::{Object as _, the};
use crate::sync::lock;

// Newer than rdma-core 44.
const RDMA_CM_EVENT_ADDRINFO_RESOLVED: u32 = 16;
const RDMA_CM_EVENT_ADDRINFO_ERROR: u32 = 17;
/// A program's own event.
pub const RDMA_CM_EVENT_USER: u32 = 18;
const RAI_SA: u32 = 0x10;

/// How long an endpoint's peer is looked for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Makes an identifier of an address, with a queue pair if there are attributes for one; of a listener's address they are for its
/// requests.
///
/// # Safety
/// As `rdma_create_ep`.
pub unsafe fn create(
    of: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> Result<*mut rdma_cm_id, Errno> {
    // SAFETY: by the caller's promise; the identifier was just made.
    unsafe {
        let (space, qp_type) = (of.ai_port_space.cast_unsigned(), of.ai_qp_type.cast_unsigned());
        let pointer = Id::create(std::ptr::null_mut(), std::ptr::null_mut(), space, qp_type)?;
        match equip(the(pointer), of, pd, attributes) {
            Ok(()) => Ok(pointer),
            Err(e) => {
                destroy(pointer);
                Err(e)
            }
        }
    }
}

/// # Safety
/// As `rdma_create_ep`.
unsafe fn equip(
    id: &Id,
    of: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attributes: *mut ibv_qp_init_attr,
) -> Result<(), Errno> {
    // SAFETY: by the caller's promise.
    unsafe {
        let base = id.c();
        if of.ai_flags.cast_unsigned() & RAI_PASSIVE != 0 {
            resolve::bind(id, read(of.ai_src_addr)?)?;
            lock(&id.kept).requests = attributes.as_ref().copied();
            (*base).pd = pd;
            return Ok(());
        }
        let from = if of.ai_src_addr.is_null() {
            None
        } else {
            Some(read(of.ai_src_addr)?)
        };
        resolve::address(id, from, read(of.ai_dst_addr)?, PATIENCE)?;
        complete(id)?;
        resolve::route(id)?;
        complete(id)?;
        let connect = bytes(
            of.ai_connect,
            u8::try_from(of.ai_connect_len).map_err(|_| Errno::INVALID)?,
        );
        lock(&id.kept).connect = connect;
        if let Some(attributes) = attributes.as_mut() {
            attributes.qp_type = of.ai_qp_type.cast_unsigned();
            let mut all = extended(attributes, pd);
            qp::create(id, &mut all)?;
            attributes.cap = all.cap;
        }
        Ok(())
    }
}

/// Attributes of a queue pair as those of the extended call.
pub fn extended(of: &ibv_qp_init_attr, pd: *mut ibv_pd) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: of.qp_context,
        send_cq: of.send_cq,
        recv_cq: of.recv_cq,
        srq: of.srq,
        cap: of.cap,
        qp_type: of.qp_type,
        sq_sig_all: of.sq_sig_all,
        comp_mask: if pd.is_null() { 0 } else { IBV_QP_INIT_ATTR_PD },
        pd,
        ..zeros()
    }
}

/// Destroys an endpoint, with its queues.
///
/// # Safety
/// As `rdma_destroy_ep`.
pub unsafe fn destroy(pointer: *mut rdma_cm_id) {
    // SAFETY: by the caller's promise.
    unsafe {
        let id = the::<Id>(pointer);
        qp::destroy(id);
        if !(*pointer).srq.is_null() {
            let _ = qp::destroy_srq(id);
        }
        forget(id);
        let _ = Id::destroy(pointer);
    }
}

/// Waits for a request of a listener whose calls wait.
///
/// # Safety
/// As `rdma_get_request`.
pub unsafe fn request(listener: &Id) -> Result<*mut rdma_cm_id, Errno> {
    if !listener.is_sync() {
        return Err(Errno::INVALID);
    }
    // SAFETY: by the caller's promise; the event's identifier is a new one.
    unsafe {
        complete(listener)?;
        let base = listener.c();
        let event = (*base).event;
        if (*event).event != RDMA_CM_EVENT_CONNECT_REQUEST {
            return Err(Errno::INVALID);
        }
        let new = (*event).id;
        let wanted = lock(&listener.kept).requests;
        if let Some(wanted) = wanted {
            let mut all = extended(&wanted, (*base).pd);
            all.qp_type = (*new).qp_type;
            qp::create(the(new), &mut all)?;
        }
        (*base).event = std::ptr::null_mut();
        (*new).event = event;
        Ok(new)
    }
}

/// Addresses of a name and a service, by the C library's resolver. The error is that of `getaddrinfo`.
///
/// # Safety
/// As `rdma_getaddrinfo`.
pub unsafe fn find(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, Found> {
    // SAFETY: by the caller's promise; zeros are a value, and the list is the C library's until it is freed.
    unsafe {
        let mut wanted: libc::addrinfo = std::mem::zeroed();
        let flags = hints.map_or(0, |h| h.ai_flags.cast_unsigned());
        let has = |bit| flags & bit != 0;
        wanted.ai_flags = if has(RAI_PASSIVE) { libc::AI_PASSIVE } else { 0 }
            | if has(RAI_NUMERICHOST) {
                libc::AI_NUMERICHOST
            } else {
                0
            };
        if let (Some(hints), true) = (hints, has(RAI_FAMILY)) {
            wanted.ai_family = hints.ai_family;
        }
        let datagrams = hints.is_some_and(|h| {
            h.ai_qp_type.cast_unsigned() == IBV_QPT_UD || h.ai_port_space.cast_unsigned() == RDMA_PS_UDP
        });
        wanted.ai_socktype = if datagrams {
            libc::SOCK_DGRAM
        } else {
            libc::SOCK_STREAM
        };
        if node.is_null() && service.is_null() {
            return of_hints(hints, datagrams);
        }
        let mut list = std::ptr::null_mut();
        match libc::getaddrinfo(node, service, &raw const wanted, &raw mut list) {
            0 => {}
            libc::EAI_SYSTEM => return Err(Found::Failed(std::io::Error::last_os_error().into())),
            code => return Err(Found::NoAddress(code)),
        }
        let mut first: *mut rdma_addrinfo = std::ptr::null_mut();
        let mut last = &raw mut first;
        let mut one = list;
        while let Some(found) = one.as_ref() {
            if let Ok(address) = read(found.ai_addr) {
                let name = if found.ai_canonname.is_null() {
                    node
                } else {
                    found.ai_canonname
                };
                let ends = match has(RAI_PASSIVE) {
                    true => (Some(address), None),
                    false => (hints.and_then(|h| read(h.ai_src_addr).ok()), Some(address)),
                };
                *last = entry(ends, name, flags, hints, datagrams);
                last = &raw mut (**last).ai_next;
            }
            one = found.ai_next;
        }
        libc::freeaddrinfo(list);
        if first.is_null() {
            Err(Found::NoAddress(libc::EAI_NONAME))
        } else {
            Ok(first)
        }
    }
}

/// Why no address was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// `EAI_*`.
    NoAddress(c_int),
    Failed(Errno),
}

/// A list of [`find`] that no program has.
pub struct Resolved(*mut rdma_addrinfo);

impl Resolved {
    /// Gives it to the program.
    pub fn take(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Resolved {
    fn drop(&mut self) {
        // SAFETY: `find` made it, and nobody has it.
        unsafe { free(self.0) };
    }
}

/// Finds addresses for [`Kept::found`](super::id::Kept): ADDRINFO_RESOLVED or ADDRINFO_ERROR comes. The resolver is asked in the call.
///
/// # Safety
/// As `rdma_resolve_addrinfo`.
pub unsafe fn look_up(
    id: &Id,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), Errno> {
    if hints.is_some_and(|h| h.ai_flags.cast_unsigned() & RAI_SA != 0) {
        return Err(Errno::UNSUPPORTED.because("nobody knows InfiniBand's services"));
    }
    if lock(&id.kept).found.is_some() {
        return Err(Errno(libc::EBUSY));
    }
    // SAFETY: by the caller's promise.
    let (kind, status) = match unsafe { find(node, service, hints) } {
        Ok(list) => {
            lock(&id.kept).found = Some(Resolved(list));
            (RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
        }
        Err(Found::NoAddress(code)) => (RDMA_CM_EVENT_ADDRINFO_ERROR, code),
        Err(Found::Failed(e)) => return Err(e),
    };
    id.state.put(kind, status, Data::Nothing);
    Ok(())
}

/// Without a name and a service the addresses are those of the hints, as many as there are.
///
/// # Safety
/// As [`find`].
unsafe fn of_hints(hints: Option<&rdma_addrinfo>, datagrams: bool) -> Result<*mut rdma_addrinfo, Found> {
    let hints = hints.ok_or(Found::Failed(Errno::INVALID))?;
    let address = |at: *mut libc::sockaddr| match at.is_null() {
        true => Ok(None),
        // SAFETY: by the caller's promise.
        false => unsafe { read(at) }.map(Some).map_err(Found::Failed),
    };
    let ends = (address(hints.ai_src_addr)?, address(hints.ai_dst_addr)?);
    let flags = hints.ai_flags.cast_unsigned();
    // SAFETY: by the caller's promise.
    Ok(unsafe { entry(ends, std::ptr::null(), flags, Some(hints), datagrams) })
}

/// One entry of a list, of an own address and the peer's; a name is that of the own address in passive entries, else of the peer's.
///
/// # Safety
/// As [`find`]; the name is NULL or a text.
unsafe fn entry(
    (own, peer): (Option<SocketAddr>, Option<SocketAddr>),
    name: *const c_char,
    flags: u32,
    hints: Option<&rdma_addrinfo>,
    datagrams: bool,
) -> *mut rdma_addrinfo {
    let (qp_type, space) = if datagrams {
        (IBV_QPT_UD, RDMA_PS_UDP)
    } else {
        (IBV_QPT_RC, RDMA_PS_TCP)
    };
    let wanted = |asked: Option<c_int>, usual: u32| match asked {
        Some(n) if n != 0 => n,
        _ => usual.cast_signed(),
    };
    let mut new: rdma_addrinfo = zeros();
    new.ai_flags = flags.cast_signed();
    new.ai_family = match peer.or(own) {
        Some(SocketAddr::V4(_)) => libc::AF_INET,
        Some(SocketAddr::V6(_)) => libc::AF_INET6,
        None => hints.map_or(libc::AF_UNSPEC, |h| h.ai_family),
    };
    new.ai_qp_type = wanted(hints.map(|h| h.ai_qp_type), qp_type);
    new.ai_port_space = wanted(hints.map(|h| h.ai_port_space), space);
    // SAFETY: by the caller's promise.
    unsafe {
        let name = match name.is_null() {
            true => std::ptr::null_mut(),
            false => libc::strdup(name),
        };
        match flags & RAI_PASSIVE {
            0 => new.ai_dst_canonname = name,
            _ => new.ai_src_canonname = name,
        }
    }
    if let Some(own) = own {
        (new.ai_src_addr, new.ai_src_len) = copy(own);
    }
    if let Some(peer) = peer {
        (new.ai_dst_addr, new.ai_dst_len) = copy(peer);
    }
    Box::into_raw(Box::new(new))
}

fn copy(address: SocketAddr) -> (*mut libc::sockaddr, libc::socklen_t) {
    let (storage, len) = storage(address);
    (Box::into_raw(Box::new(storage)).cast(), len as libc::socklen_t)
}

/// Frees a list of [`find`].
///
/// # Safety
/// [`find`] made the list, and the program does not use it any more.
pub unsafe fn free(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: by the caller's promise: made by `entry`.
        unsafe {
            let one = Box::from_raw(next);
            for address in [one.ai_src_addr, one.ai_dst_addr] {
                if !address.is_null() {
                    drop(Box::from_raw(address.cast::<libc::sockaddr_storage>()));
                }
            }
            libc::free(one.ai_src_canonname.cast());
            libc::free(one.ai_dst_canonname.cast());
            next = one.ai_next;
        }
    }
}

/// Names of events (`rdma_event_str`).
pub fn event_name(event: u32) -> &'static CStr {
    match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        3 => c"RDMA_CM_EVENT_ROUTE_ERROR",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        6 => c"RDMA_CM_EVENT_CONNECT_ERROR",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        11 => c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        12 => c"RDMA_CM_EVENT_MULTICAST_JOIN",
        13 => c"RDMA_CM_EVENT_MULTICAST_ERROR",
        14 => c"RDMA_CM_EVENT_ADDR_CHANGE",
        15 => c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        16 => c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        17 => c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        18 => c"RDMA_CM_EVENT_USER",
        19 => c"RDMA_CM_EVENT_INTERNAL",
        _ => c"UNKNOWN EVENT",
    }
}
