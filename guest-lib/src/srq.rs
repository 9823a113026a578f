//! Shared receive queues (`SPEC.md`, section 8.3).

use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, Mutex};

use vnic_device::command::device::JudgePost;
use vnic_device::command::queues::{CreateSrq, ModifySrq};
use vnic_device::command::{NONE, Object, Opcode};
use vnic_device::doorbell::Kind;
use vnic_device::queue::receive_stride;
use vnic_device::ring::{shared_receive_ring_len, shared_receive_tail};
use vnic_device::verbs::{Post, srq_mask};

pub use vnic_device::command::queues::SrqReply as SrqAttributes;

use crate::cq::ring_entries;
use crate::driver::doorbells::bell;
use crate::pd::numbered;
use crate::qp::receive::ReceiveRing;
use crate::shared::Memory;
use crate::sync::lock;
use crate::wr::RecvWr;
use crate::{CompletionQueue, Error, PostError, PostReason, ProtectionDomain, XrcDomain};

/// Settings of a shared receive queue that is to be made.
#[derive(Debug, Clone)]
pub struct SrqBuilder {
    pd: ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
    xrc: Option<(XrcDomain, CompletionQueue)>,
}

impl SrqBuilder {
    /// Sets how many receives the queue has room for. Default: 256.
    pub fn max_wr(mut self, max_wr: u32) -> SrqBuilder {
        self.max_wr = max_wr;
        self
    }

    /// Sets how many elements a receive may have, at most 255. Default: 1.
    pub fn max_sge(mut self, max_sge: u32) -> SrqBuilder {
        self.max_sge = max_sge;
        self
    }

    /// Makes the queue one for XRC, of this domain, with completions at `cq`.
    pub fn xrc(mut self, domain: &XrcDomain, cq: &CompletionQueue) -> SrqBuilder {
        self.xrc = Some((domain.clone(), cq.clone()));
        self
    }

    /// Makes the queue.
    pub fn build(self) -> Result<SharedReceiveQueue, Error> {
        let pd = Arc::clone(&self.pd.0);
        let entries = ring_entries(self.max_wr)?;
        let stride = receive_stride(self.max_sge)
            .ok_or_else(|| Error::Invalid(format!("{} elements in a receive: at most 255", self.max_sge)))?;
        let len = shared_receive_ring_len(entries, stride);
        let (memory, extents) = Memory::allocate(&*pd.core.transport, len as usize)?;
        let (xrcd, cq) = self
            .xrc
            .as_ref()
            .map_or((NONE, NONE), |(domain, cq)| (domain.number(), cq.number()));
        let made: Object = pd
            .core
            .call_with_extents(pd.epoch, Opcode::CreateSrq, &[&extents], |lists| CreateSrq {
                pd: pd.handle,
                entries,
                elements: self.max_sge,
                xrcd,
                cq,
                reserved: 0,
                ring: lists[0],
            })
            .inspect_err(|e| pd.core.bury_if_unknown(e, &memory))?;
        Ok(SharedReceiveQueue(Arc::new(Srq {
            handle: made.handle,
            pd: self.pd,
            _xrc: self.xrc,
            tail: memory.part(shared_receive_tail(entries, stride) as usize, 64),
            state: Mutex::new(State {
                ring: ReceiveRing::new(memory, entries, stride, self.max_sge),
                taken: 0,
            }),
        })))
    }
}

/// A receive queue that several queue pairs share. Clones are the same queue; it is destroyed with the last clone
/// and the last queue pair that receives from it.
#[derive(Clone)]
pub struct SharedReceiveQueue(pub(crate) Arc<Srq>);

pub(crate) struct Srq {
    handle: u32,
    pd: ProtectionDomain,
    _xrc: Option<(XrcDomain, CompletionQueue)>,
    tail: Memory,
    state: Mutex<State>,
}

struct State {
    ring: ReceiveRing,
    /// Up to where the device has taken receives, as far as is known.
    taken: u32,
}

impl Drop for Srq {
    fn drop(&mut self) {
        let pd = &self.pd.0;
        pd.core.end(
            pd.epoch,
            Opcode::DestroySrq,
            self.handle,
            Box::new(self.tail.clone()),
        );
    }
}

numbered! { SharedReceiveQueue }

impl ProtectionDomain {
    /// Begins to make a shared receive queue.
    ///
    /// ```no_run
    /// # fn example(device: &vnic_verbs::Context, pd: &vnic_verbs::ProtectionDomain, cq: &vnic_verbs::CompletionQueue) -> Result<(), Box<dyn std::error::Error>> {
    /// use vnic_verbs::{Access, Rc, RecvWr};
    ///
    /// let srq = pd.srq().max_wr(512).build()?;
    /// let qp = pd.qp::<Rc>(cq, cq).srq(&srq).build()?;
    /// let region = pd.allocate(4096, Access::LOCAL_WRITE)?;
    /// srq.post(&[RecvWr::new(region.slice(..))])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn srq(&self) -> SrqBuilder {
        SrqBuilder {
            pd: self.clone(),
            max_wr: 256,
            max_sge: 1,
            xrc: None,
        }
    }
}

impl SharedReceiveQueue {
    /// Number of the queue. XRC peers name the queue by it.
    pub fn number(&self) -> u32 {
        self.0.handle
    }

    /// Receives that the queue has room for.
    pub fn max_wr(&self) -> u32 {
        lock(&self.0.state).ring.entries()
    }

    /// Posts receives: all, or those before the first that is refused.
    #[inline]
    pub fn post(&self, wrs: &[RecvWr<'_>]) -> Result<usize, PostError> {
        self.post_from(wrs.iter().copied())
    }

    /// As [`post`](SharedReceiveQueue::post), but takes the work requests from an iterator, which must not use the
    /// queue.
    #[inline]
    pub fn post_from<'a>(&self, wrs: impl IntoIterator<Item = RecvWr<'a>>) -> Result<usize, PostError> {
        let pd = &self.0.pd.0;
        let mut state = lock(&self.0.state);
        let State { ring, taken } = &mut *state;
        let mut posted = 0;
        let mut refused = None;
        let watched = pd.core.watches(Post::SharedReceive);
        for wr in wrs {
            if watched && let Err(reason) = self.ask(&wr) {
                refused = Some(reason);
                break;
            }
            if ring.is_full(*taken) {
                *taken = self.0.tail.u32(0).load(Acquire);
            }
            match ring.write(&wr, *taken) {
                Ok(()) => posted += 1,
                Err(reason) => {
                    refused = Some(reason);
                    break;
                }
            }
        }
        let gone = PostError {
            posted: 0,
            reason: PostReason::Gone,
        };
        if posted > 0 {
            let bell = bell(Kind::SharedReceive, self.0.handle, ring.producer());
            pd.core.ring(pd.epoch, bell).map_err(|_| gone)?;
        } else if !pd.core.is_alive(pd.epoch) {
            return Err(gone);
        }
        match refused {
            None => Ok(posted),
            Some(reason) => Err(PostError { posted, reason }),
        }
    }

    #[cold]
    fn ask(&self, wr: &RecvWr<'_>) -> Result<(), PostReason> {
        let pd = &self.0.pd.0;
        let request = JudgePost {
            post: Post::SharedReceive.number(),
            queue: self.0.handle,
            bytes: wr.data.bytes(),
            ..JudgePost::default()
        };
        pd.core.ask(pd.epoch, request)
    }

    /// Arms the limit: [`SrqLimitReached`](crate::AsyncEvent::SrqLimitReached) is raised once, when fewer than
    /// `limit` receives are left. 0 disarms it.
    ///
    /// ```no_run
    /// # fn example(srq: &vnic_verbs::SharedReceiveQueue) -> Result<(), vnic_verbs::Error> {
    /// srq.set_limit(16)?; // an event when fewer than 16 receives are left
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_limit(&self, limit: u32) -> Result<(), Error> {
        self.modify(srq_mask::LIMIT, limit, 0)
    }

    /// Sets how many receives may wait: at most what the queue has room for.
    pub fn set_max_wr(&self, max_wr: u32) -> Result<(), Error> {
        self.modify(srq_mask::MAX_WR, 0, max_wr)
    }

    fn modify(&self, mask: u32, limit: u32, max_wr: u32) -> Result<(), Error> {
        let body = ModifySrq {
            srq: self.0.handle,
            mask,
            limit,
            max_wr,
        };
        let pd = &self.0.pd.0;
        pd.core.call(pd.epoch, Opcode::ModifySrq, &body)
    }

    /// Asks the device for the queue's attributes.
    pub fn query(&self) -> Result<SrqAttributes, Error> {
        let pd = &self.0.pd.0;
        pd.core.about(pd.epoch, Opcode::QuerySrq, self.number())
    }
}
