//! Endpoints: identifiers made in one call, whose calls wait.

#![expect(unsafe_code, reason = "reads and makes lists of the C library's interface")]

use std::ffi::{CStr, c_char};
use std::time::Duration;

use super::address::read;
use super::addrinfo::{Found, find};
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
        resolve::route(id, PATIENCE)?;
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
            lock(&id.kept).found = Some(list);
            (RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
        }
        Err(Found::NoAddress(code)) => (RDMA_CM_EVENT_ADDRINFO_ERROR, code),
        Err(Found::Failed(e)) => return Err(e),
    };
    id.state.put(kind, status, Data::Nothing);
    Ok(())
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
