//! `ibv_get_async_event`, `ibv_ack_async_event`.

#![expect(
    unsafe_code,
    reason = "follows the pointers in events to the objects that they are about"
)]

use super::Kind;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::{Cq, Qp, Srq};

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
    let counts = unsafe {
        match about((*event).event_type) {
            Some(Kind::Cq) => the::<Cq>((*event).element.cq.cast()).asynchronous.clone(),
            Some(Kind::Qp) => the::<Qp>((*event).element.qp.cast()).asynchronous.clone(),
            Some(Kind::Srq) => the::<Srq>((*event).element.srq).asynchronous.clone(),
            None => return,
        }
    };
    counts.acknowledge(1);
}
