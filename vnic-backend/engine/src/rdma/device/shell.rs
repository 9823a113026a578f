//! What a shell needs that keeps queues of its own before and behind the engine's: the rings of a guest (proto/device,
//! sections 8, 9 and 11.3).
//!
//! Such a shell takes completions by [`next_completed`](Device::next_completed) and
//! [`take_completions`](Device::take_completions) and does not arm the engine's queues; it knows by
//! [`held`](Device::held) how much it has given in.

use alloc::boxed::Box;
use alloc::vec::Vec;

use vnic_wire::gid::Gid;
use vnic_wire::sa::SaMad;
use vnic_wire::time::Instant;

use super::super::budget::Beside;
use super::super::cm::{self, Cm};
use super::super::completion_queue::CompletionQueue;
use super::super::gsi::Gsi;
use super::super::limits::Limits;
use super::super::notes::{Note, Notes};
use super::super::on_demand::{Hold, PageFault};
use super::super::packet::Incoming;
use super::super::qp::Qp;
use super::super::questions::Question;
use super::super::region::{Extents, Registration, Translation};
use super::super::shared::{Shared, Watch};
use super::super::types::{
    Access, Completion, CqHandle, MrHandle, Object, PdHandle, QpNumber, SendWr, SrqHandle, Status, VerbsError,
};
use super::Device;

/// What so many pieces of memory take that bytes come from, or go to, in work requests that are read: two thirds each.
#[inline]
pub fn work_of_pieces(pieces: u32) -> u32 {
    pieces - pieces / 3
}

/// Memory that an object has left ([`Device::take_freed`]): to drop it may take a while.
#[derive(Debug)]
pub struct Freed(What);

#[derive(Debug)]
enum What {
    Extents(Extents),
    Completions(CompletionQueue),
}

impl Freed {
    /// Entries that it has.
    pub fn entries(&self) -> usize {
        match &self.0 {
            What::Extents(extents) => extents.count() as usize,
            What::Completions(queue) => queue.len() as usize,
        }
    }
}

impl From<Extents> for Freed {
    fn from(extents: Extents) -> Freed {
        Freed(What::Extents(extents))
    }
}

impl From<CompletionQueue> for Freed {
    fn from(queue: CompletionQueue) -> Freed {
        Freed(What::Completions(queue))
    }
}

/// What becomes of bytes of a region on demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// They are there.
    Memory {
        /// The memory, of as many bytes.
        memory: Translation,
        /// Whether it may be written.
        write: bool,
        /// Nobody had asked for it.
        prefetched: bool,
    },
    /// They are missing (again).
    Taken,
    /// They are missing, and whoever waits for them is refused.
    Refused,
}

impl Device {
    /// Registers `len` bytes of addresses from `iova` (or 0 when zero-based), whose pages are given when they are asked for.
    pub fn register_on_demand(
        &mut self,
        pd: PdHandle,
        (iova, len): (u64, u64),
        access: Access,
        hold: Hold,
    ) -> Result<Registration, VerbsError> {
        if self.pds.get(pd.0).is_none() {
            return Err(VerbsError::NoSuch(Object::Pd));
        }
        let regions = &mut self.shared.regions;
        let registration = regions.register_on_demand(pd, (iova, len), access, hold)?;
        self.use_pd(pd);
        Ok(registration)
    }

    /// What the oldest event [`PageFault`](super::super::types::Event::PageFault) is about that was taken and not asked for yet.
    pub fn page_fault(&mut self) -> Option<PageFault> {
        self.shared.faults.told.pop_front()
    }

    /// Checks whether so many pieces of memory could be given to `len` bytes from `start` of a region. Returns how many entries
    /// of tables that would look at.
    pub fn check_pages(&self, mr: MrHandle, start: u64, len: u64, pieces: u32) -> Result<u32, VerbsError> {
        let there = self.shared.regions.check_pages(mr, start, len, pieces)?;
        Ok(there.saturating_add(self.shared.faults.len() as u32))
    }

    /// Gives memory to `len` bytes from `start` of a region on demand, or takes what they have.
    pub fn set_pages(
        &mut self,
        mr: MrHandle,
        (start, len): (u64, u64),
        given: Given,
    ) -> Result<(), VerbsError> {
        let refused = given == Given::Refused;
        let counters = &mut self.shared.counters;
        let (memory, write) = match given {
            Given::Memory {
                memory,
                write,
                prefetched,
            } => {
                counters.page_prefetch += u64::from(prefetched);
                (memory, write)
            }
            Given::Taken => {
                counters.page_invalidations += 1;
                let nothing = Translation::default();
                return self.shared.regions.set_pages(mr, (start, len), nothing, false);
            }
            Given::Refused => (Translation::default(), false),
        };
        self.shared.regions.set_pages(mr, (start, len), memory, write)?;
        for (qp, half) in self.shared.faults.answered(mr, start, start + len, refused) {
            if let Some(qp) = self.qps.get_mut(qp.0) {
                qp.pages_came(&mut self.shared, half);
            }
        }
        Ok(())
    }

    /// Replaces communication management, for whoever wants other times or limits. Connections that there are end without a word.
    pub fn manage_connections(&mut self, cm: Cm) {
        if let Some(before) = self.gsi.replace(Box::new(Gsi::new(cm, self.seed))) {
            before.end(&mut self.shared);
        }
    }

    /// Queue pair 1. A device has it from the first call or datagram on.
    pub(super) fn gsi(&mut self) -> (&mut Gsi, &mut Shared) {
        let (shared, place, seed) = (&mut self.shared, self.place, self.seed);
        let gsi = self.gsi.get_or_insert_with(|| {
            let limits = cm::Limits {
                connections: shared.limits.max_cm_id as usize,
                ..cm::Limits::default()
            };
            let mut cm = Cm::new(cm::Timing::default(), limits, seed);
            if let Some(place) = place {
                cm = cm.at(place);
            }
            Box::new(Gsi::new(cm, seed))
        });
        (gsi, shared)
    }

    /// Calls communication management; what it sends is ready then.
    pub fn connections<R>(&mut self, call: impl FnOnce(&mut Cm) -> R) -> R {
        let (gsi, shared) = self.gsi();
        let answer = call(&mut gsi.cm);
        gsi.take(shared);
        answer
    }

    /// Takes a packet that this adapter has sent to its own queue pair 1, for subnet administration: only this adapter can be who
    /// asks. Whoever gets the question answers it. `None`: there is nothing to answer; an acknowledgement of an answer has been heard.
    pub fn ask(&mut self, now: Instant, packet: &Incoming<'_>) -> Option<Question> {
        self.shared.now = now;
        self.shared.counters.received(packet);
        let (gsi, shared) = self.gsi();
        gsi.ask(shared, packet)
    }

    /// Answers a question by a datagram, or by the segments of a transfer in order; none: nobody does, and it is counted. What is no
    /// question of this device's life is left out.
    pub fn answer(&mut self, question: u32, answer: &[SaMad]) {
        if let Some(gsi) = &mut self.gsi {
            gsi.answer(&mut self.shared, question, answer);
        }
    }

    /// What is known of connections, if there ever was one.
    pub fn communication(&self) -> Option<&Cm> {
        self.gsi.as_ref().map(|gsi| &gsi.cm)
    }

    /// Whether a packet to queue pair 1 is for this device, among those that share a function.
    pub fn takes_datagram(&self, source: Gid, heading: &cm::Heading) -> bool {
        self.gsi.as_ref().is_some_and(|gsi| gsi.cm.takes(source, heading))
    }

    /// Bytes of memory of the current objects, by the account of [`Limits::memory`]; the caller's rings have `ring_extents`
    /// extents.
    pub fn memory(&self, ring_extents: u32, beside: &Beside) -> u64 {
        let (all, used) = (self.limits(), self.resources());
        let there = Limits {
            max_qp: used.qp.used,
            max_cq: used.cq.used,
            max_srq: used.srq.used,
            max_mr: used.mr.used,
            max_mw: used.mw.used,
            // (Counted twice: once for those of rings.)
            max_mr_extents: used.mr_extents.used.saturating_add(ring_extents).div_ceil(2),
            max_ah: used.ah.used,
            max_pd: used.pd.used,
            max_xrcd: used.xrcd.used,
            max_cm_id: used.cm_id.used,
            max_mcast_groups: used.mcast_group.used,
            max_requests: all.max_requests - self.room_for_requests(),
            ..*all
        };
        there.memory(beside)
    }

    /// Bytes of memory of a device with these limits and without objects, by the account of [`Limits::memory`].
    pub fn memory_of_none(limits: &Limits, beside: &Beside) -> u64 {
        let none = Limits {
            max_qp: 0,
            max_cq: 0,
            max_srq: 0,
            max_mr: 0,
            max_mw: 0,
            max_mr_extents: 0,
            max_ah: 0,
            max_pd: 0,
            max_xrcd: 0,
            max_cm_id: 0,
            max_mcast_groups: 0,
            max_requests: 0,
            ..*limits
        };
        none.memory(beside)
    }

    /// A completion queue that got completions since it was last named. Each is on the list once; whoever does not take
    /// all of its completions has to remember that. They may have been taken meanwhile.
    #[inline]
    pub fn next_completed(&mut self) -> Option<CqHandle> {
        self.shared.next_completed()
    }

    /// Takes the oldest completion of a queue.
    #[inline]
    pub fn pop_completion(&mut self, cq: CqHandle) -> Option<Completion> {
        let mut oldest = None;
        self.take_completions(cq, 1, |completion| oldest = Some(*completion));
        oldest
    }

    /// Takes the oldest completions of a queue, at most so many, and answers how many there were.
    #[inline]
    pub fn take_completions(&mut self, cq: CqHandle, most: u32, each: impl FnMut(&Completion)) -> u32 {
        let shared = &mut self.shared;
        let Some(queue) = shared.cqs.get_mut(cq.0) else {
            return 0;
        };
        let taken = queue.take(most, each);
        queue.give_back(&mut shared.spares);
        shared.waiting -= u64::from(taken);
        taken
    }

    /// Takes up to `max` completions and says how many.
    pub fn poll_cq(
        &mut self,
        cq: CqHandle,
        out: &mut Vec<Completion>,
        max: usize,
    ) -> Result<usize, VerbsError> {
        self.shared.cqs.get(cq.0).ok_or(VerbsError::NoSuch(Object::Cq))?;
        let before = out.len();
        let most = u32::try_from(max).unwrap_or(u32::MAX);
        self.take_completions(cq, most, |completion| out.push(*completion));
        Ok(out.len() - before)
    }

    /// What was done since the last call, besides what its caller can count: requests that were flushed, members of queues that
    /// overran and of multicast groups, and pieces of memory (but for each access the first). About as many times what it takes
    /// to read a work request.
    #[inline]
    pub fn take_work(&mut self) -> u32 {
        if self.shared.work == 0 && !self.shared.regions.has_pieces() {
            return 0;
        }
        let pieces = self.shared.regions.take_pieces();
        core::mem::take(&mut self.shared.work).saturating_add(work_of_pieces(pieces))
    }

    /// What the region or completion queue has left that was the last to end, to be dropped where nobody waits for it.
    pub fn take_freed(&mut self) -> Option<Freed> {
        self.freed.take()
    }

    /// Begins or ends to take notes for a recording; those that wait are dropped.
    pub fn set_noting(&mut self, on: bool) {
        self.shared.notes = on.then(Box::default);
    }

    /// Takes the notes since the last call, in the order in which things happened, and says for how many there was no room.
    pub fn take_notes(&mut self) -> (Vec<Note>, u64) {
        let notes = self.shared.notes.as_deref_mut();
        notes.map(Notes::take).unwrap_or_default()
    }

    /// Could [`register`](Device::register) make a region with these rights, of whatever memory?
    pub fn check_register(&self, pd: PdHandle, access: Access) -> Result<(), VerbsError> {
        self.check_pd(pd)?;
        self.shared.regions.check_register(access)
    }

    /// Could [`reregister`](Device::reregister) do this, with whatever memory?
    pub fn check_reregister(
        &self,
        mr: MrHandle,
        pd: Option<PdHandle>,
        access: Option<Access>,
    ) -> Result<(), VerbsError> {
        if let Some(pd) = pd {
            self.check_pd(pd)?;
        }
        self.shared.regions.check_reregister(mr, access)
    }

    fn check_pd(&self, pd: PdHandle) -> Result<(), VerbsError> {
        self.pds
            .get(pd.0)
            .map(|_| ())
            .ok_or(VerbsError::NoSuch(Object::Pd))
    }

    /// Completions that wait in a queue.
    #[inline]
    pub fn peek_len(&self, cq: CqHandle) -> u32 {
        self.shared.cqs.get(cq.0).map_or(0, |queue| queue.len())
    }

    /// Send and receive work requests of a QP that have not completed. A receive of a shared queue counts here from when
    /// it is taken for a message until that is complete.
    #[inline]
    pub fn held(&self, qp: QpNumber) -> (u32, u32) {
        self.qps.get(qp.0).map_or((0, 0), |qp| qp.held())
    }

    /// Whether a QP has anything to send back to its peer: acknowledges, and answers that carry data.
    pub fn has_answers(&self, qp: QpNumber) -> bool {
        self.qps.get(qp.0).is_some_and(|qp| qp.has_answers())
    }

    /// Tag of the newest send of a QP that has not completed, if its completion will say when the peer had it.
    #[inline(never)]
    pub fn newest_reliable(&self, qp: QpNumber) -> Option<u32> {
        self.qps.get(qp.0)?.newest_reliable(&self.shared)
    }

    /// Receives that wait in a shared receive queue.
    #[inline]
    pub fn srq_held(&self, srq: SrqHandle) -> u32 {
        self.shared.srqs.get(srq.0).map_or(0, |queue| queue.len())
    }

    /// Work requests of all queues that have not completed.
    #[inline]
    pub fn held_in_all(&self) -> u64 {
        let shared = &self.shared;
        u64::from(shared.sends.len()) + u64::from(shared.receives.len()) + shared.shared_receives
    }

    /// How many requests more the device may be given (`max_requests` of its limits, which count completions that nobody has
    /// taken as well).
    #[inline]
    pub fn room_for_requests(&self) -> u32 {
        let all = u64::from(self.shared.limits.max_requests);
        all.saturating_sub(self.held_in_all() + self.shared.waiting) as u32
    }

    /// Posts work requests, one after the other and at most `most`: what `write` makes of each, of which anything may be there
    /// before, until it says `false`. Answers how many; an error of `write` ends it as well. They are posted as by
    /// [`post_send`](Device::post_send), but nothing is moved; what that would refuse fails as by
    /// [`post_failed_send`](Device::post_failed_send). `write` is not called if there is no such QP.
    #[inline(always)]
    pub fn post_sends<E>(
        &mut self,
        qp: QpNumber,
        most: u32,
        write: impl FnMut(&mut SendWr) -> Result<bool, E>,
    ) -> Result<u32, E> {
        let Some(found) = self.qps.get_mut(qp.0) else {
            return Ok(0);
        };
        let posted = found.post_sends(&mut self.shared, most, write);
        self.fail_overrun();
        posted
    }

    /// Where the state of a QP lies, for whoever wants the processor to fetch it before it is needed.
    #[inline]
    pub fn qp_place(&self, qp: QpNumber) -> Option<(*const u8, usize)> {
        let found: *const Qp = self.qps.get(qp.0)?;
        Some((found.cast(), size_of::<Qp>()))
    }

    /// Posts a send that cannot be expressed as a [`SendWr`](super::super::SendWr), for instance because its address
    /// handle does not exist. It takes a place in the queue and is not sent. When its turn comes and those before it are
    /// complete, it completes with `status`, also unsignaled, and the QP goes to ERR or SQE, as after any error of a
    /// send. Refused as [`post_send`](Device::post_send) is, and if `status` is no error.
    pub fn post_failed_send(
        &mut self,
        qp: QpNumber,
        id: u64,
        tag: u32,
        status: Status,
    ) -> Result<(), VerbsError> {
        let found = self.qps.get_mut(qp.0).ok_or(VerbsError::NoSuch(Object::Qp))?;
        found.post_failed_send(&mut self.shared, id, tag, status)?;
        self.fail_overrun();
        Ok(())
    }

    /// A send that was found broken ends its QP: that goes to ERR at once, what was posted is flushed, and behind it
    /// this request completes with `LocalQpOperationError`. No event. Of a QP in ERR only the request completes. Where
    /// no send can be posted (RESET, INIT, RTR, no such QP) nothing happens.
    pub fn fault_send(&mut self, qp: QpNumber, id: u64, tag: u32) {
        if let Some(found) = self.qps.get_mut(qp.0) {
            found.fault_send(&mut self.shared, id, tag);
            self.fail_overrun();
        }
    }

    /// The same for a receive of the QP's own queue. It can be posted, and found broken, in INIT and RTR as well.
    pub fn fault_receive(&mut self, qp: QpNumber, id: u64, tag: u32) {
        if let Some(found) = self.qps.get_mut(qp.0) {
            found.fault_receive(&mut self.shared, id, tag);
            self.fail_overrun();
        }
    }

    /// Takes a QP to ERR, which flushes it. No event but `LastWqeReached`; nothing in RESET.
    pub fn fail_qp(&mut self, qp: QpNumber) {
        if let Some(found) = self.qps.get_mut(qp.0) {
            found.shut(&mut self.shared);
            self.fail_overrun();
        }
    }

    /// A completion queue takes no more, because its memory is gone: as after an overrun, but without `CqError`.
    pub fn fail_cq(&mut self, cq: CqHandle) {
        if let Some(queue) = self.shared.cqs.get_mut(cq.0)
            && queue.fail()
        {
            self.shared.overrun.push(cq);
            self.fail_overrun();
        }
    }

    /// A completion queue overruns: it takes no more, and its queue pairs go to ERR.
    pub fn overrun_cq(&mut self, cq: CqHandle) {
        if let Some(queue) = self.shared.cqs.get_mut(cq.0)
            && queue.fail()
        {
            self.shared.overran(cq);
            self.fail_overrun();
        }
    }

    /// Watches whether the packets that come next ask for a receive; with `withhold` they find none.
    pub fn watch_receives(&mut self, withhold: bool) {
        self.shared.watch = Watch {
            on: true,
            withhold,
            asked: false,
        };
    }

    /// Ends the watch. Returns whether a receive was asked for.
    pub fn end_watch(&mut self) -> bool {
        core::mem::take(&mut self.shared.watch).asked
    }

    /// Ends a shared receive queue's work: what waits there is forgotten, nothing can be posted, its QPs find it empty.
    /// No event. It still has to be destroyed.
    pub fn fail_srq(&mut self, srq: SrqHandle) {
        if let Some(queue) = self.shared.srqs.get_mut(srq.0) {
            self.shared.shared_receives -= u64::from(queue.close());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::limits::Limits;
    use super::super::super::types::{CompletionOp, Mtu, Status};
    use super::super::DeviceConfig;
    use super::*;

    #[test]
    fn a_list_that_nobody_reads_stays_short() {
        let mut device = Device::new(DeviceConfig {
            mac: vnic_wire::MacAddr([2, 0, 0, 0, 0, 1]),
            limits: Limits::default(),
            mtu: Mtu::Mtu1024,
            trailers: false,
            pin_source_port: false,
            seed: 0,
            place: None,
        })
        .expect("limits that fit");
        let done = Completion::new(0, 0, QpNumber(2), CompletionOp::Recv, Status::Success);
        let keep = device.create_cq(4).expect("room");
        device.shared.complete(keep, done);
        for _ in 0..10_000 {
            let cq = device.create_cq(4).expect("room");
            device.shared.complete(cq, done);
            device.destroy_cq(cq).expect("nobody uses it");
        }
        assert!(device.shared.completed.len() < 100);
        assert_eq!(
            (device.next_completed(), device.next_completed()),
            (Some(keep), None)
        );
    }
}
