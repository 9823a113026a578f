//! Open devices, as a program sees them.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::Arc;

use crate::abi::{ibv_context, verbs_context};
use crate::devices::Seat;
use crate::events::Mailbox;
use crate::handle::{Object, Uses};
use crate::work;

/// What `ibv_open_device` makes. A process may open a device any number of times; all of them share its [`Seat`].
#[repr(C)]
pub struct Context {
    base: UnsafeCell<verbs_context>,
    /// The device, open in this process.
    pub seat: Arc<Seat>,
    /// Asynchronous events of objects that were made here.
    pub mailbox: Arc<Mailbox>,
    pub uses: Uses,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Context {
    type C = verbs_context;
}

impl Context {
    /// The context behind a pointer of the program: the last field of the structure that we made.
    ///
    /// # Safety
    /// [`is_ours`], and it was not closed.
    pub unsafe fn of<'a>(context: *mut ibv_context) -> &'a Context {
        // SAFETY: it is the field at this offset of what `publish` made.
        unsafe {
            let base = context.byte_sub(offset_of!(verbs_context, context));
            crate::handle::the(base.cast())
        }
    }

    /// The pointer that the program has.
    pub fn pointer(&self) -> *mut ibv_context {
        // SAFETY: within the structure.
        unsafe { &raw mut (*self.c()).context }
    }
}

/// Is a context of ours? A question that must be answered before anything else is done with it.
///
/// # Safety
/// It is NULL, or a context, of ours or of the real library.
pub unsafe fn is_ours(context: *const ibv_context) -> bool {
    // SAFETY: by the caller's promise.
    !context.is_null()
        && unsafe { (*context).ops.poll_cq }
            .is_some_and(|poll| std::ptr::fn_addr_eq(poll, work::poll::POLL_CQ))
}
