//! Shared receive queues.

use std::cell::UnsafeCell;

use vnic_verbs::SharedReceiveQueue;

use crate::abi::ibv_srq;
use crate::events::Unacknowledged;
use crate::handle::{Object, Use, Uses};

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    base: UnsafeCell<ibv_srq>,
    pub inner: SharedReceiveQueue,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    pub needs: Vec<Use>,
}

// SAFETY: `repr(C)`, and its first field is that.
unsafe impl Object for Srq {
    type C = ibv_srq;
}
