//! Asynchronous events.

use std::ffi::c_int;

use crate::abi::*;
use crate::context::Context;
use crate::events::calls;

export! {
    /// `man 3 ibv_get_async_event`.
    "IBVERBS_1.1" fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int, of context,
        as signed {
        event.write(calls::get(Context::of(context))?);
        Ok(0)
    }

    /// `man 3 ibv_ack_async_event`. Events about no object need no acknowledge, with us and with
    /// the real library.
    "IBVERBS_1.1" fn ibv_ack_async_event(event: *mut ibv_async_event), of calls::context_of(event), as plain {
        calls::acknowledge(event);
        Ok(())
    }
}
