//! Commands about completion queues, shared receive queues and doorbell rings (`SPEC.md`, section 5.6).

use vnic_device::command::Object;
use vnic_device::command::queues::{
    CreateCq, CreateDoorbells, CreateSrq, ModifySrq, ResizeCq, ResizeCqReply, SrqReply,
};
use vnic_device::doorbell;
use vnic_device::queue::receive_stride;
use vnic_device::ring;
use vnic_device::status::CommandStatus as S;
use vnic_device::verbs::srq_mask;
use vnic_engine::rdma::{CqHandle, PdHandle, SrqHandle, SrqInit, XrcdHandle};

use crate::rdma::completions::CompletionRing;
use crate::rdma::config::WAKE_QUEUES;
use crate::rdma::doorbells::{DOORBELL_RINGS_MAX, DoorbellRing};
use crate::rdma::function::Function;
use crate::rdma::request::{Announced, Failure, Outcome, Request, fail, optional, reserved};
use crate::rdma::session::SharedReceive;
use crate::rdma::shared_ring::SharedRing;
use crate::rdma::work_queue::ReceiveQueue;

/// Waiting events whose search is about as much work as one work request.
const LOOKED_AT: u32 = 16;

/// Checks that a number is a power of two and within a limit, which need not be one.
pub(super) fn entries(what: &str, given: u32, least: u32, limit: u32) -> Outcome {
    let most = limit.next_power_of_two().min(ring::ENTRIES_MAX);
    if given < least || given > most {
        let text = format!("{given} {what}; allowed are {least} to {most}");
        return fail(S::OutOfRange, text);
    }
    if !given.is_power_of_two() {
        return fail(S::Invalid, format!("{given} {what}; it must be a power of two"));
    }
    Ok(())
}

impl Function {
    /// The ring of `len` bytes with entries of `stride` bytes in the only list of a command.
    fn only_ring(
        &mut self,
        r: &mut Request<'_>,
        list: &Announced<'_>,
        len: u64,
        stride: u32,
    ) -> Result<SharedRing, Failure> {
        r.used_up()?;
        self.read_ring(r, 0, list, len, stride)?;
        r.ring(0)
    }

    pub(super) fn create_cq(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateCq = r.body()?;
        r.room_for::<Object>()?;
        let list = r.announced(body.ring, self.free_extents())?;
        entries("entries", body.entries, 1, self.device.limits().max_cqe)?;
        let queues = self.attached.as_ref().map_or(0, |a| a.events.len()) as u32;
        if body.event_queue >= queues {
            let text = format!("event queue {}; there are {queues}", body.event_queue);
            return fail(S::OutOfRange, text);
        }
        let ring = self.only_ring(&mut r, &list, ring::completion_ring_len(body.entries), 64)?;
        let capacity = body.entries.min(self.device.limits().max_cqe);
        let cq = self.device.create_cq(capacity)?;
        self.session.ring_extents += ring.extents() as u32;
        self.session.cqs.insert(
            cq.0,
            CompletionRing::new(ring, body.entries, body.event_queue as u16),
        );
        r.reply_object(cq.0);
        Ok(())
    }

    pub(super) fn resize_cq(&mut self, mut r: Request<'_>) -> Outcome {
        let body: ResizeCq = r.body()?;
        r.room_for::<ResizeCqReply>()?;
        let list = r.announced(body.ring, self.free_extents())?;
        entries("entries", body.entries, 1, self.device.limits().max_cqe)?;
        if self.session.cqs.get(body.cq).is_none() {
            return fail(S::NoSuchObject, "no such completion queue");
        }
        let ring = self.only_ring(&mut r, &list, ring::completion_ring_len(body.entries), 64)?;
        // Completions go into the old ring while it has room; the others into the new one.
        self.finish(r.now);
        let capacity = body.entries.min(self.device.limits().max_cqe);
        self.device.resize_cq(CqHandle(body.cq), capacity)?;
        let added = ring.extents() as u32;
        let Some(cq) = self.session.cqs.get_mut(body.cq) else {
            return fail(S::NoSuchObject, "no such completion queue");
        };
        let removed = cq.ring.extents() as u32;
        let produced = cq.replace(ring, body.entries);
        self.session.ring_extents = self.session.ring_extents + added - removed;
        r.reply(&ResizeCqReply {
            produced,
            reserved: 0,
        });
        Ok(())
    }

    pub(super) fn destroy_cq(&mut self, r: Request<'_>) -> Outcome {
        let cq = r.object()?;
        self.device.destroy_cq(CqHandle(cq))?;
        self.leave_freed();
        if let Some(ring) = self.session.cqs.remove(cq) {
            let extents = ring.ring.extents();
            self.session.ring_extents -= extents as u32;
            if ring.event_waits {
                self.session.events.forget(ring.event_queue, cq);
                let looked_at = self.session.events.len() as u32 / LOOKED_AT;
                self.account.charge(looked_at.cast_signed());
            }
            self.remains.leave(extents, ring);
        }
        Ok(())
    }

    pub(super) fn create_srq(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateSrq = r.body()?;
        r.room_for::<Object>()?;
        let list = r.announced(body.ring, self.free_extents())?;
        reserved(body.reserved)?;
        let limits = *self.device.limits();
        entries("entries", body.entries, 1, limits.max_srq_wr)?;
        if body.elements > limits.max_srq_sge {
            let text = format!("{} elements; at most {}", body.elements, limits.max_srq_sge);
            return fail(S::OutOfRange, text);
        }
        let Some(stride) = receive_stride(body.elements) else {
            return fail(S::OutOfRange, format!("{} elements; at most 255", body.elements));
        };
        let len = ring::shared_receive_ring_len(body.entries, stride);
        let ring = self.only_ring(&mut r, &list, len, stride)?;
        let srq = self.device.create_srq(SrqInit {
            pd: PdHandle(body.pd),
            xrcd: optional(body.xrcd).map(XrcdHandle),
            cq: optional(body.cq).map(CqHandle),
            max_wr: body.entries.min(limits.max_srq_wr),
            max_sge: body.elements,
        })?;
        self.session.ring_extents += ring.extents() as u32;
        self.session.srqs.insert(
            srq.0,
            SharedReceive {
                queue: ReceiveQueue::new(ring, body.entries, stride, body.elements),
                starving: false,
                fault_told: false,
            },
        );
        r.reply_object(srq.0);
        Ok(())
    }

    pub(super) fn modify_srq(&mut self, r: Request<'_>) -> Outcome {
        let body: ModifySrq = r.only_body()?;
        if body.mask & !srq_mask::ALL != 0 {
            let text = format!("there are no attributes {:#x}", body.mask & !srq_mask::ALL);
            return fail(S::NotSupported, text);
        }
        let Some(srq) = self.session.srqs.get(body.srq) else {
            return fail(S::NoSuchObject, "no such shared receive queue");
        };
        let has = |bit| body.mask & bit != 0;
        let most = srq.queue.entries().min(self.device.limits().max_srq_wr);
        if has(srq_mask::MAX_WR) && body.max_wr > most {
            let text = format!("max_wr is {}; the ring has {most} entries", body.max_wr);
            return fail(S::OutOfRange, text);
        }
        let limit = has(srq_mask::LIMIT).then_some(body.limit);
        let max_wr = has(srq_mask::MAX_WR).then_some(body.max_wr);
        Ok(self.device.modify_srq(SrqHandle(body.srq), limit, max_wr)?)
    }

    pub(super) fn query_srq(&mut self, mut r: Request<'_>) -> Outcome {
        let srq = r.object()?;
        r.room_for::<SrqReply>()?;
        let (held, max_wr, limit) = self.device.query_srq(SrqHandle(srq))?;
        let unread = self
            .session
            .srqs
            .get(srq)
            .map_or(0, |s| s.queue.posted().wrapping_sub(s.queue.read()));
        r.reply(&SrqReply {
            waiting: held + unread,
            max_wr,
            limit,
            reserved: 0,
        });
        Ok(())
    }

    pub(super) fn destroy_srq(&mut self, r: Request<'_>) -> Outcome {
        let srq = r.object()?;
        self.device.destroy_srq(SrqHandle(srq))?;
        if let Some(s) = self.session.srqs.remove(srq) {
            let extents = s.queue.ring.extents();
            self.session.ring_extents -= extents as u32;
            self.remains.leave(extents, s);
        }
        Ok(())
    }

    pub(super) fn create_doorbells(&mut self, mut r: Request<'_>) -> Outcome {
        let body: CreateDoorbells = r.body()?;
        r.room_for::<Object>()?;
        let list = r.announced(body.ring, self.free_extents())?;
        let (least, most) = (*doorbell::ENTRIES.start(), *doorbell::ENTRIES.end());
        entries("entries", body.entries, least, most)?;
        if body.wake_queue >= u32::from(WAKE_QUEUES) {
            let text = format!("wake-up queue {}; there are {WAKE_QUEUES}", body.wake_queue);
            return fail(S::OutOfRange, text);
        }
        let ring = self.only_ring(&mut r, &list, ring::doorbell_ring_len(body.entries), 8)?;
        let slot = match self.session.bells.iter().position(Option::is_none) {
            Some(slot) => slot,
            None if (self.session.bells.len() as u32) < DOORBELL_RINGS_MAX => {
                self.session.bells.push(None);
                self.session.bells.len() - 1
            }
            None => {
                let text = format!("there are {DOORBELL_RINGS_MAX} doorbell rings already");
                return fail(S::LimitReached, text);
            }
        };
        let handle = self.identity.next_handle() << 8 | slot as u32;
        self.session.ring_extents += ring.extents() as u32;
        self.session.bells[slot] = Some(DoorbellRing::new(ring, handle, body.entries));
        r.reply_object(handle);
        Ok(())
    }

    pub(super) fn destroy_doorbells(&mut self, r: Request<'_>) -> Outcome {
        let handle = r.object()?;
        let slot = self
            .session
            .bells
            .iter()
            .position(|b| b.as_ref().is_some_and(|b| b.handle == handle));
        let Some(slot) = slot else {
            return fail(S::NoSuchObject, "no such doorbell ring");
        };
        // Doorbells that were written before were taken before this command.
        if let Some(ring) = self.session.bells[slot].take() {
            let extents = ring.ring.extents();
            self.session.ring_extents -= extents as u32;
            self.remains.leave(extents, ring);
        }
        Ok(())
    }
}
