//! Queue pairs.

mod any;
mod create;
mod modify;

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vnic_verbs::{Gid, QueuePair, RateLimit, XrcTarget};

pub use any::AnyQp;
pub use create::{Extended, Wanted, open};

use super::only;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Subject, Unacknowledged};
use crate::handle::{Object, Use, Uses, publish, take_back, the};
use crate::work::batch::Batch;

/// A queue pair; the program sees the extended one, whichever it asked for.
#[repr(C)]
pub struct Qp {
    base: UnsafeCell<ibv_qp_ex>,
    pub inner: AnyQp,
    /// Where `ibv_wr_start` and what follows it are.
    pub batch: Batch,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    /// May sends be built call by call?
    extended: bool,
    /// How it was made, and with what it really has.
    capacity: ibv_qp_cap,
    signal_all: bool,
    /// Multicast groups that it receives.
    groups: Mutex<HashSet<Gid>>,
    _target: Option<Arc<QueuePair<XrcTarget>>>,
    _needs: Vec<Use>,
}

// SAFETY: `repr(C)`, and its first field is a structure that begins with that.
unsafe impl Object for Qp {
    type C = ibv_qp_ex;
}

impl Qp {
    /// As the program has it, unless it asked for more.
    pub fn plain(&self) -> *mut ibv_qp {
        self.c().cast()
    }

    /// As the program has it, if sends may be built call by call.
    pub fn extended(&self) -> *mut ibv_qp_ex {
        if self.extended {
            self.c()
        } else {
            std::ptr::null_mut()
        }
    }

    /// Receives what is sent to a group.
    pub fn attach(&self, group: Gid) -> Result<(), Errno> {
        let AnyQp::Ud(qp) = &self.inner else {
            return Err(Errno::INVALID);
        };
        let mut groups = self.groups();
        // Who says it twice has it once, as the kernel counts.
        if !groups.contains(&group) {
            qp.attach_multicast(group)?;
            groups.insert(group);
        }
        Ok(())
    }

    /// Does so no longer.
    pub fn detach(&self, group: Gid) -> Result<(), Errno> {
        let AnyQp::Ud(qp) = &self.inner else {
            return Err(Errno::INVALID);
        };
        let mut groups = self.groups();
        if !groups.contains(&group) {
            return Err(Errno::INVALID);
        }
        qp.detach_multicast(group)?;
        groups.remove(&group);
        Ok(())
    }

    fn groups(&self) -> MutexGuard<'_, HashSet<Gid>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Limits its rate.
    pub fn limit_rate(&self, limit: &ibv_qp_rate_limit_attr) -> Result<(), Errno> {
        only(limit.comp_mask.into(), 0, Errno::INVALID)?;
        Ok(self.inner.set_rate_limit(RateLimit {
            rate: limit.rate_limit,
            max_burst: limit.max_burst_sz,
            typical_packet: limit.typical_pkt_sz,
        })?)
    }

    /// Destroys it, when all its events are acknowledged.
    ///
    /// # Safety
    /// It is a queue pair of ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut ibv_qp_ex) -> Result<(), Errno> {
        // SAFETY: by the caller's promise; the context outlives it.
        let (qp, context) = unsafe { (the::<Qp>(pointer), Context::of((*pointer).qp_base.context)) };
        qp.uses.none()?;
        if !qp.groups().is_empty() {
            return Err(Errno::BUSY);
        }
        let dispatcher = &context.seat.dispatcher;
        dispatcher.forget(Kind::Qp, qp.inner.number(), pointer.addr());
        qp.asynchronous.wait();
        // SAFETY: by the caller's promise, and nothing of ours has it.
        drop(unsafe { take_back::<Qp>(pointer) });
        Ok(())
    }

    /// Gives one to the program, and its events to the context's mailbox.
    fn publish(context: &Context, qp: Qp) -> *mut ibv_qp {
        let (number, unacknowledged) = (qp.inner.number(), qp.asynchronous.clone());
        let pointer = publish(qp);
        let subject = Subject {
            pointer: pointer.expose_provenance(),
            unacknowledged,
        };
        let dispatcher = &context.seat.dispatcher;
        dispatcher.register(Kind::Qp, number, subject, &context.mailbox);
        pointer.cast()
    }
}
