//! `ibv_get_async_event`, `ibv_ack_async_event`.

#![expect(
    unsafe_code,
    reason = "follows the pointers in events to the objects that they are about"
)]

use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::handle::the;
use crate::objects::{Cq, Qp, Srq};

/// The object of an event.
enum About {
    Cq,
    Qp,
    Srq,
    Nothing,
}

fn about(kind: u32) -> About {
    match kind {
        IBV_EVENT_CQ_ERR => About::Cq,
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => About::Qp,
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => About::Srq,
        _ => About::Nothing,
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
            About::Cq => (*(*event).element.cq).context,
            About::Qp => (*(*event).element.qp).context,
            About::Srq => (*(*event).element.srq).context,
            About::Nothing => std::ptr::null_mut(),
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
            About::Cq => the::<Cq>((*event).element.cq.cast()).asynchronous.clone(),
            About::Qp => the::<Qp>((*event).element.qp.cast()).asynchronous.clone(),
            About::Srq => the::<Srq>((*event).element.srq).asynchronous.clone(),
            About::Nothing => return,
        }
    };
    counts.acknowledge(1);
}
