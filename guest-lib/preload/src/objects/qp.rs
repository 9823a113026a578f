//! Queue pairs.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; is taken back from the program"
)]

mod any;
mod create;
mod modify;

use std::cell::UnsafeCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use vnic_verbs::connection::Ece;
use vnic_verbs::{Gid, QueuePair, RateLimit, XrcTarget};

pub use any::AnyQp;
pub use create::{Extended, Wanted, open};
pub use modify::shown;

use super::only;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Unacknowledged};
use crate::handle::{Object, Use, Uses, end, publish, the};
use crate::sync::lock;
use crate::work::batch::Batch;

/// A queue pair; the program sees the extended one, whichever it asked for.
#[repr(C)]
pub struct Qp {
    base: UnsafeCell<ibv_qp_ex>,
    pub inner: AnyQp,
    /// State of `ibv_wr_start` and the calls that follow it.
    pub batch: Batch,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    /// What the program has set of enhanced connection establishment.
    pub ece: Mutex<Ece>,
    /// Whether sends may be built call by call.
    extended: bool,
    /// Attributes of its creation, with the capacity that it really has.
    capacity: ibv_qp_cap,
    signal_all: bool,
    /// Multicast groups of the queue pair.
    groups: Mutex<HashSet<Gid>>,
    _target: Option<Arc<QueuePair<XrcTarget>>>,
    _needs: Vec<Use>,
}

object!(Qp: ibv_qp_ex);

impl Qp {
    /// A queue pair with nothing special.
    fn new(base: ibv_qp_ex, inner: AnyQp, needs: Vec<Use>) -> Qp {
        Qp {
            base: UnsafeCell::new(base),
            inner,
            batch: Batch::default(),
            asynchronous: Unacknowledged::default(),
            uses: Uses::default(),
            ece: Mutex::default(),
            extended: false,
            capacity: zeros(),
            signal_all: false,
            groups: Mutex::default(),
            _target: None,
            _needs: needs,
        }
    }

    /// The program's pointer, unless it asked for an extended queue pair.
    pub fn plain(&self) -> *mut ibv_qp {
        self.c().cast()
    }

    /// The program's pointer, if sends may be built call by call.
    pub fn extended(&self) -> *mut ibv_qp_ex {
        if self.extended {
            self.c()
        } else {
            std::ptr::null_mut()
        }
    }

    /// Attaches the queue pair to a group.
    pub fn attach(&self, group: Gid) -> Result<(), Errno> {
        let AnyQp::Ud(qp) = &self.inner else {
            return Err(Errno::INVALID);
        };
        let mut groups = lock(&self.groups);
        // A second attach changes nothing, as with the kernel.
        if !groups.contains(&group) {
            qp.attach_multicast(group)?;
            groups.insert(group);
        }
        Ok(())
    }

    /// Detaches the queue pair from a group.
    pub fn detach(&self, group: Gid) -> Result<(), Errno> {
        let AnyQp::Ud(qp) = &self.inner else {
            return Err(Errno::INVALID);
        };
        let mut groups = lock(&self.groups);
        if !groups.contains(&group) {
            return Err(Errno::INVALID);
        }
        qp.detach_multicast(group)?;
        groups.remove(&group);
        Ok(())
    }

    /// Limits the rate of the queue pair.
    pub fn limit_rate(&self, limit: &ibv_qp_rate_limit_attr) -> Result<(), Errno> {
        only(limit.comp_mask, 0u32, Errno::INVALID)?;
        Ok(self.inner.set_rate_limit(RateLimit {
            rate: limit.rate_limit,
            max_burst: limit.max_burst_sz,
            typical_packet: limit.typical_pkt_sz,
        })?)
    }

    /// Destroys the queue pair, when all its events are acknowledged.
    ///
    /// # Safety
    /// The queue pair is ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut ibv_qp_ex) -> Result<(), Errno> {
        // SAFETY: by the caller's promise; the context outlives it.
        let (qp, context) = unsafe { (the::<Qp>(pointer), Context::of((*pointer).qp_base.context)) };
        qp.uses.none()?;
        if !lock(&qp.groups).is_empty() {
            return Err(Errno::BUSY);
        }
        context.forget(Kind::Qp, qp.inner.number(), pointer.addr(), &qp.asynchronous);
        // SAFETY: by the caller's promise, and nothing of ours has it.
        unsafe { end::<Qp>(pointer) }
    }

    /// Gives a queue pair to the program, and its events to the context's mailbox.
    fn publish(context: &Context, qp: Qp) -> *mut ibv_qp {
        let (number, asynchronous) = (qp.inner.number(), qp.asynchronous.clone());
        let pointer = publish(qp);
        context.register(Kind::Qp, number, pointer.expose_provenance(), asynchronous);
        pointer.cast()
    }
}
