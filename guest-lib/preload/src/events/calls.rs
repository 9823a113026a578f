//! `ibv_get_async_event`, `ibv_ack_async_event`.

#![expect(
    unsafe_code,
    reason = "follows the pointers in events to the objects that they are about"
)]

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::Kind;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::{Cq, Qp, Srq, Wq};

/// The kind of the object that an event is about, if it is about one.
fn about(event: u32) -> Option<Kind> {
    match event {
        IBV_EVENT_CQ_ERR => Some(Kind::Cq),
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => Some(Kind::Qp),
        IBV_EVENT_WQ_FATAL => Some(Kind::Wq),
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => Some(Kind::Srq),
        _ => None,
    }
}

/// The next event of a context.
pub fn get(context: &Context) -> Result<ibv_async_event, Errno> {
    let letter = context.mailbox.get()?;
    let element = match letter.about {
        // Each of these structures has the pointer as its first and only field.
        Some(subject) => ibv_async_element {
            wq: std::ptr::with_exposed_provenance_mut(subject.pointer),
        },
        None => ibv_async_element { port_num: 1 },
    };
    Ok(ibv_async_event {
        element,
        event_type: letter.kind,
    })
}

/// The context of an event; NULL for an event about no object.
///
/// # Safety
/// The event came from [`get`], or from the real library, and was not acknowledged.
pub unsafe fn context_of(event: *const ibv_async_event) -> *mut ibv_context {
    // SAFETY: an object is not destroyed before its events are acknowledged.
    unsafe {
        match about((*event).event_type) {
            Some(Kind::Cq) => (*(*event).element.cq).context,
            Some(Kind::Qp) => (*(*event).element.qp).context,
            Some(Kind::Srq) => (*(*event).element.srq).context,
            Some(Kind::Wq) => (*(*event).element.wq).context,
            None => std::ptr::null_mut(),
        }
    }
}

/// Acknowledges an event.
///
/// # Safety
/// As [`context_of`], and the context is ours.
pub unsafe fn acknowledge(event: *const ibv_async_event) {
    // SAFETY: an object is not destroyed before its events are acknowledged.
    let (counts, field) = unsafe {
        let element = &(*event).element;
        match about((*event).event_type) {
            Some(Kind::Cq) => {
                let cq = element.cq;
                (
                    &the::<Cq>(cq.cast()).asynchronous,
                    &raw mut (*cq).async_events_completed,
                )
            }
            Some(Kind::Qp) => {
                let qp = element.qp;
                (
                    &the::<Qp>(qp.cast()).asynchronous,
                    &raw mut (*qp).events_completed,
                )
            }
            Some(Kind::Srq) => {
                let srq = element.srq;
                (&the::<Srq>(srq).asynchronous, &raw mut (*srq).events_completed)
            }
            Some(Kind::Wq) => {
                let wq = element.wq;
                (&the::<Wq>(wq).asynchronous, &raw mut (*wq).events_completed)
            }
            None => return,
        }
    };
    let counts = counts.clone();
    // SAFETY: as above: it is not acknowledged yet.
    unsafe { completed(field, 1) };
    counts.acknowledge(1);
}

/// Counts events that are acknowledged in the field of an object that programs see (UCX's tests look there).
///
/// # Safety
/// The object is there, and no more than these are acknowledged of it meanwhile.
pub unsafe fn completed(field: *mut u32, count: u32) {
    // SAFETY: a field of an object that is there; it is accessed atomically by us, and read by programs.
    unsafe { AtomicU32::from_ptr(field) }.fetch_add(count, Relaxed);
}
