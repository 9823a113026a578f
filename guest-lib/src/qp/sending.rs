//! Sends that are posted one by one.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Acquire;

use vnic_device::doorbell::Kind;
use vnic_device::verbs::{Post, QpState};

use super::Qp;
use super::send::SendRing;
use crate::PostReason;
use crate::memory::Sge;
use crate::sync::lock;
use crate::wr::{Data, Place, SendHead, SendWr};

/// A send queue, whatever the type of its queue pair.
#[derive(Clone, Copy)]
pub struct SendQueue<'a>(pub(super) &'a Qp);

impl std::fmt::Debug for SendQueue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendQueue({:#x})", self.0.number)
    }
}

impl<'a> SendQueue<'a> {
    /// Begins to post sends one by one.
    #[inline(always)]
    pub fn sending(self) -> Result<Sending<'a>, PostReason> {
        Sending::new(self.0)
    }
}

/// Sends that are posted one by one, with one doorbell for all of them. No other thread posts to the queue pair
/// meanwhile. Sends that were not [rung](Sending::ring) for are taken back.
pub struct Sending<'a> {
    qp: &'a Qp,
    ring: MutexGuard<'a, SendRing>,
    /// Index of the ring at the beginning.
    from: u32,
    /// Blocks before this one are free, as far as is known.
    consumed: u32,
}

impl std::fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let blocks = self.ring.producer().wrapping_sub(self.from);
        write!(f, "Sending({:#x}, {blocks} blocks)", self.qp.number)
    }
}

impl Drop for Sending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.take_back(self.from);
    }
}

impl<'a> Sending<'a> {
    #[inline(always)]
    pub(super) fn new(qp: &'a Qp) -> Result<Sending<'a>, PostReason> {
        let mut ring = lock(&qp.send);
        // Under the lock: a reset changes the state there.
        let state = qp.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostReason::State(state));
        }
        ring.watch(qp.core.watches(Post::Send), &qp.limits);
        Ok(Sending {
            qp,
            from: ring.producer(),
            consumed: qp.consumed.send.load(Acquire),
            ring,
        })
    }

    /// Posts a send, if it is not refused. Its data are copied, or not needed any more, when this returns.
    #[inline]
    pub fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let list = match &wr.data.0 {
            Place::One(sge) => std::slice::from_ref(sge),
            Place::Many(list) => list,
            Place::Inline(bytes) => {
                let whole = !wr.contradicts && (wr.has_destination || !self.ring.wants_destination());
                if whole && self.ring.write_inline(wr.head, bytes, self.consumed) {
                    return Ok(());
                }
                return self.post_any(wr);
            }
            _ => return self.post_any(wr),
        };
        let whole = !wr.contradicts && (wr.has_destination || !self.ring.wants_destination());
        if whole && self.ring.write_short(wr.head, list, self.consumed) {
            return Ok(());
        }
        self.post_any(wr)
    }

    /// Posts a send by its head, as the device reads it, and its elements. [`SendHead::count`] is ignored.
    #[inline(always)]
    pub fn post_list(&mut self, head: SendHead, list: &[Sge]) -> Result<(), PostReason> {
        if self.ring.write_short(head, list, self.consumed) {
            return Ok(());
        }
        self.post_long_list(head, list)
    }

    #[inline(never)]
    fn post_long_list(&mut self, head: SendHead, list: &[Sge]) -> Result<(), PostReason> {
        self.post_any(&SendWr::from_parts(head, Data::from(list)))
    }

    #[inline(never)]
    fn post_any(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        if self.ring.is_watched() {
            self.qp.ask(Post::Send, wr.head.operation, &wr.data)?;
        }
        let result = self.ring.write(wr, &self.qp.limits, self.consumed);
        if result != Err(PostReason::Full) {
            return result;
        }
        // The device may have made room since.
        self.consumed = self.qp.consumed.send.load(Acquire);
        self.ring.write(wr, &self.qp.limits, self.consumed)
    }

    /// Rings the doorbell for all that was posted so far.
    #[inline(always)]
    pub fn ring(&mut self) -> Result<(), PostReason> {
        let producer = self.ring.producer();
        let any = producer != self.from;
        // What the device was not told of is taken back at the end.
        self.qp.posted(Kind::Send, producer, any)?;
        self.from = producer;
        Ok(())
    }
}
