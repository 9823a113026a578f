//! The end of requests that have not completed when the device is gone.

use std::sync::{Mutex, MutexGuard, TryLockError};

use vnic_device::queue::CompletionKind;

use super::Qp;
use crate::CompletionQueue;
use crate::cq::{Flushed, Outstanding, flushed};

impl Outstanding for Qp {
    fn flush(&self, cq: u32) -> Flushed {
        let completes_in = |queue: &Option<CompletionQueue>| queue.as_ref().is_some_and(|q| q.number() == cq);
        if completes_in(&self.send_cq) {
            let Some(ring) = lock_at_once(&self.send) else {
                return Flushed::Busy;
            };
            if let Some(wr_id) = ring.flush(&self.consumed.send, &self.limits) {
                return flushed(self.number, CompletionKind::Send, wr_id);
            }
        }
        // Receives of a shared queue have no queue pair yet that they could complete for.
        if completes_in(&self.receive_cq) {
            let Some(ring) = lock_at_once(&self.receive) else {
                return Flushed::Busy;
            };
            if let Some(wr_id) = ring.flush(&self.consumed.receive) {
                return flushed(self.number, CompletionKind::Recv, wr_id);
            }
        }
        Flushed::Nothing
    }
}

/// Locks a ring, unless somebody has it: that may be this very thread, which posts one by one and polls meanwhile.
fn lock_at_once<T>(ring: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match ring.try_lock() {
        Ok(ring) => Some(ring),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
