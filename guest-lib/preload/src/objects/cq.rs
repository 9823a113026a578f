//! Completion queues and channels.

use std::cell::UnsafeCell;

use vnic_verbs::{CompletionChannel, CompletionQueue};

use crate::abi::{ibv_comp_channel, ibv_cq_ex};
use crate::events::Unacknowledged;
use crate::handle::{Object, Use, Uses};
use crate::work::poll::Cursor;

/// A completion queue; the program sees the extended one, whichever it asked for.
#[repr(C)]
pub struct Cq {
    base: UnsafeCell<ibv_cq_ex>,
    pub inner: CompletionQueue,
    /// Where `ibv_start_poll` and what follows it are.
    pub cursor: Cursor,
    /// Events of its channel that were taken and not acknowledged.
    pub completions: Unacknowledged,
    /// Asynchronous events that were.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    pub needs: Vec<Use>,
}

/// A completion channel.
#[repr(C)]
pub struct Channel {
    base: UnsafeCell<ibv_comp_channel>,
    pub inner: CompletionChannel,
    pub uses: Uses,
    pub needs: Use,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Cq {
    type C = ibv_cq_ex;
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Channel {
    type C = ibv_comp_channel;
}
