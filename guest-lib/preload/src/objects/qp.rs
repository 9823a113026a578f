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
pub use create::{Dynamic, Extended, Wanted, open};
pub use modify::shown;

use super::only;
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Unacknowledged};
use crate::handle::{Object, Use, Uses, end, publish_boxed, the};
use crate::sync::lock;
use crate::work::batch::Batch;
use crate::work::segments::Headers;
use crate::work::wr;

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
    /// Of an initiator of dynamic connections whose sends are: what libmlx5 adds to it.
    mlx5: Option<Box<OfMlx5>>,
    /// Attributes of its creation, with the capacity that it really has.
    capacity: ibv_qp_cap,
    signal_all: bool,
    /// Headers of frames that the device cuts, if the program wants such.
    pub headers: Option<Headers>,
    /// Multicast groups of the queue pair.
    groups: Mutex<HashSet<Gid>>,
    _target: Option<Arc<QueuePair<XrcTarget>>>,
    _needs: Vec<Use>,
}

object!(Qp: ibv_qp_ex);

/// What libmlx5 adds to a queue pair, and the queue pair.
#[repr(C)]
struct OfMlx5 {
    base: UnsafeCell<mlx5dv_qp_ex>,
    qp: *mut ibv_qp_ex,
}

object!(OfMlx5: mlx5dv_qp_ex);

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
            mlx5: None,
            capacity: zeros(),
            signal_all: false,
            headers: None,
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

    /// The program's pointer to what libmlx5 adds.
    pub fn of_mlx5(&self) -> *mut mlx5dv_qp_ex {
        self.mlx5.as_deref().map_or(std::ptr::null_mut(), Object::c)
    }

    /// The program's pointer to the queue pair that has this.
    ///
    /// # Safety
    /// [`of_mlx5`](Qp::of_mlx5) gave the pointer, and the queue pair is there.
    pub unsafe fn with_mlx5(pointer: *mut mlx5dv_qp_ex) -> *mut ibv_qp_ex {
        // SAFETY: by the caller's promise.
        unsafe { the::<OfMlx5>(pointer) }.qp
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
    fn publish(context: &Context, mut qp: Qp) -> *mut ibv_qp {
        let (number, asynchronous) = (qp.inner.number(), qp.asynchronous.clone());
        if qp.extended && matches!(qp.inner, AnyQp::DcInitiator(_)) {
            let base = mlx5dv_qp_ex {
                wr_set_dc_addr: Some(wr::wr_set_dc_addr),
                wr_set_dc_addr_stream: Some(wr::wr_set_dc_addr_stream),
                ..zeros()
            };
            qp.mlx5 = Some(Box::new(OfMlx5 {
                base: UnsafeCell::new(base),
                qp: std::ptr::null_mut(),
            }));
        }
        let mut qp = Box::new(qp);
        let pointer = qp.c();
        if let Some(mlx5) = &mut qp.mlx5 {
            mlx5.qp = pointer;
        }
        let pointer = publish_boxed(qp);
        context.register(Kind::Qp, number, pointer.expose_provenance(), asynchronous);
        pointer.cast()
    }
}
