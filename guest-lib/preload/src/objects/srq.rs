//! Shared receive queues.

#![expect(
    unsafe_code,
    reason = "begins as the structure of the header; is taken back from the program"
)]

use std::cell::UnsafeCell;
use std::ffi::c_void;

use vnic_verbs::SharedReceiveQueue;

use super::{Cq, Pd, Xrcd, only};
use crate::abi::*;
use crate::context::Context;
use crate::errno::Errno;
use crate::events::{Kind, Unacknowledged};
use crate::handle::{Object, Use, Uses, end, publish, the};

/// A shared receive queue.
#[repr(C)]
pub struct Srq {
    base: UnsafeCell<ibv_srq>,
    pub inner: SharedReceiveQueue,
    /// Asynchronous events that were taken and not acknowledged.
    pub asynchronous: Unacknowledged,
    pub uses: Uses,
    /// Most elements of a receive.
    elements: u32,
    _needs: Vec<Use>,
}

object!(Srq: ibv_srq);

impl Srq {
    /// Makes a shared receive queue, for XRC with its domain and completion queue. The capacity that
    /// it really has is written back.
    pub fn create(
        pd: &Pd,
        context: *mut c_void,
        wanted: &mut ibv_srq_attr,
        xrc: Option<(&Xrcd, &Cq)>,
    ) -> Result<*mut ibv_srq, Errno> {
        // SAFETY: the context outlives what was made in it.
        let device = unsafe { Context::of(pd.context()) };
        let limits = device.seat.device.query_device();
        if !(1..=limits.max_srq_wr).contains(&wanted.max_wr) || wanted.max_sge > limits.max_srq_sge {
            return Err(Errno::INVALID);
        }
        let elements = wanted.max_sge.max(1);
        let mut builder = pd.inner.srq().max_wr(wanted.max_wr).max_sge(elements);
        let mut needs = vec![pd.uses.one()];
        if let Some((xrcd, cq)) = xrc {
            builder = builder.xrc(xrcd.domain(), &cq.inner);
            needs.extend([xrcd.uses.one(), cq.uses.one()]);
        }
        let inner = builder.build()?;
        wanted.max_wr = inner.max_wr();
        wanted.max_sge = elements;
        let pointer = publish(Srq {
            base: UnsafeCell::new(ibv_srq {
                context: pd.context(),
                srq_context: context,
                pd: pd.c(),
                handle: inner.number(),
                ..zeros()
            }),
            inner,
            asynchronous: Unacknowledged::default(),
            uses: Uses::default(),
            elements,
            _needs: needs,
        });
        // SAFETY: just made.
        let srq = unsafe { the::<Srq>(pointer) };
        let (number, asynchronous) = (srq.inner.number(), srq.asynchronous.clone());
        device.register(Kind::Srq, number, pointer.expose_provenance(), asynchronous);
        Ok(pointer)
    }

    /// Changes the attributes that `mask` names.
    pub fn modify(&self, attributes: &ibv_srq_attr, mask: u32) -> Result<(), Errno> {
        only(mask, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT, Errno::INVALID)?;
        if mask & IBV_SRQ_MAX_WR != 0 {
            self.inner.set_max_wr(attributes.max_wr)?;
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            self.inner.set_limit(attributes.srq_limit)?;
        }
        Ok(())
    }

    /// Attributes of the queue.
    pub fn query(&self) -> Result<ibv_srq_attr, Errno> {
        let now = self.inner.query()?;
        Ok(ibv_srq_attr {
            max_wr: now.max_wr,
            max_sge: self.elements,
            srq_limit: now.limit,
        })
    }

    /// The number by which XRC peers name the queue. Others have one as well: perftest tells it its peers, as libmlx5's have one.
    pub fn number(&self) -> u32 {
        self.inner.number()
    }

    /// Destroys the queue, when all its events are acknowledged.
    ///
    /// # Safety
    /// The queue is ours, and the program does not use it any more.
    pub unsafe fn destroy(pointer: *mut ibv_srq) -> Result<(), Errno> {
        // SAFETY: by the caller's promise; the context outlives it.
        let (srq, context) = unsafe { (the::<Srq>(pointer), Context::of((*pointer).context)) };
        srq.uses.none()?;
        context.forget(Kind::Srq, srq.inner.number(), pointer.addr(), &srq.asynchronous);
        // SAFETY: by the caller's promise, and nothing of ours has it.
        unsafe { end::<Srq>(pointer) }
    }
}
