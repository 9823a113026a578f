//! A function's turn: its driver's requests, received packets, and completions.

use smallvec::SmallVec;
use vnic_device::event::{EventKind, FaultQueue, FaultReason, fault_detail, pages_detail};
use vnic_engine::checksums;
use vnic_engine::rdma::{COPIES_AT_ONCE, CqHandle, Event, Incoming, IncomingFrame, QpNumber, Run, SrqHandle};
use vnic_fabric::Instant;
use vnic_wire::bth::MULTICAST_QP;
use vnic_wire::opcode::{Operation, Transport};

use super::account::{EVENT, EXTENTS, LACKING, TIMER};
use super::completions::time_of;
use super::function::Function;
use super::remap::{Remap, Stage};
use super::session::QueuePair;
use crate::mem;

/// Completions whose cache lines are prefetched before the first is written.
const COMPLETIONS_AT_ONCE: u32 = 16;
/// Completions of the next turn whose cache lines are prefetched in this one.
const COMPLETIONS_AHEAD: u32 = 32;
/// Least number of timers, of full completion queues and of events that a turn handles.
const AT_LEAST: usize = 8;
/// Least number of pieces of memory that a turn checks.
const PIECES_AT_LEAST: u32 = 256;

impl Function {
    /// Looks once at everything that the driver may have done; `shared`: other adapters want to send. Returns how much was
    /// done. `None`: the turn pays the function's debt.
    #[inline(always)]
    pub fn poll(&mut self, now: Instant, shared: bool) -> Option<usize> {
        if self.attached.is_none() {
            return Some(0);
        }
        if !self.begin(shared) {
            return None;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.stamp(now);
        }
        let mut work = 0;
        if self.session.remap.is_some() {
            work += self.look_at_memory();
        }
        // Requests of earlier turns come first.
        if !self.session.starving.is_empty() || !self.session.starving_srqs.is_empty() {
            work += self.feed_starving();
        }
        work += self.take_doorbells();
        work += self.take_commands(now);
        if !self.session.full.is_empty() {
            work += self.retry_full(now);
        }
        if self.device.next_member().is_some() {
            work += self.deliver_copies(now);
        }
        if self.device.next_timeout().is_some_and(|at| at <= now) {
            work += self.take_timeouts(now);
        }
        if work > 0 {
            self.published.stale = true;
            self.published.sample.stamp(now);
            self.account.asked |= self.account.did_much();
        }
        Some(work)
    }

    /// Begins a turn. False: it pays the function's debt.
    #[inline(always)]
    fn begin(&mut self, shared: bool) -> bool {
        // Work of the engine for packets since the last turn.
        let work = self.device.take_work();
        if work > 0 {
            self.charge(work);
        }
        self.account.begin(shared)
    }

    /// Charges work of the engine.
    pub fn charge(&mut self, work: u32) {
        self.account.charge(i32::try_from(work).unwrap_or(i32::MAX));
    }

    #[inline(never)]
    fn take_timeouts(&mut self, now: Instant) -> usize {
        let most = (self.account.left() as usize / 4).max(AT_LEAST);
        let timers = self.device.handle_timeouts(now, most);
        self.account.charge(TIMER * timers as i32);
        // Retransmissions and paced sends are posted in no turn, but need the core as well.
        self.account.asked |= timers > 0;
        self.session.unlooked = self.session.starving.len();
        timers + 1
    }

    /// Ends a turn: shows the driver completions and events. Returns their number.
    #[inline(always)]
    pub fn finish(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if let Some(recorder) = &mut self.recorder {
            recorder.collect(&mut self.device, now);
        }
        while let Some(cq) = self.device.next_completed() {
            work += self.drain(cq, now);
        }
        while let Some(event) = self.device.poll_event() {
            self.queue_event(event, now);
        }
        if !self.session.events.is_empty() {
            work += self.deliver_events();
        }
        if work > 0 {
            self.published.stale = true;
            self.session.unlooked = self.session.starving.len();
        }
        work
    }

    /// Goes on with the check of references after a change of the guest's memory. Returns how much was done.
    #[cold]
    fn look_at_memory(&mut self) -> usize {
        let Some(mut remap) = self.session.remap.take() else {
            return 0;
        };
        let most = (self.account.left() * EXTENTS).max(PIECES_AT_LEAST);
        let mut looked = 0;
        while looked < most && remap.stage() != Stage::Nothing {
            looked += self.look_at_some(&mut remap, most - looked);
        }
        self.account.charge((looked / EXTENTS).cast_signed());
        if remap.stage() == Stage::Nothing {
            remap.finish();
        } else {
            self.session.remap = Some(remap);
        }
        1
    }

    /// Checks about `most` pieces of memory of one kind of objects. Returns their number.
    fn look_at_some(&mut self, remap: &mut Remap, most: u32) -> u32 {
        match remap.stage() {
            Stage::Regions => {
                let memory = &self.memory;
                let (lost, looked) = self
                    .device
                    .lose_memory_in_turns(remap.walk(), most, &|span| memory.has(span));
                for mr in lost {
                    self.session.events.push(EventKind::MrLost, mr.0, 0);
                }
                if remap.walk().is_over() {
                    remap.next(Stage::SharedReceiveQueues);
                }
                looked
            }
            Stage::SharedReceiveQueues => {
                let Some(object) = self.session.srqs.place(remap.at()) else {
                    return remap.next(Stage::CompletionQueues);
                };
                let Some((number, srq)) = object else {
                    return remap.skip();
                };
                let (lost, looked) = remap.look(&mut srq.queue.ring, &self.memory, most);
                if lost && !std::mem::replace(&mut srq.queue.faulted, true) {
                    self.device.fail_srq(SrqHandle(number));
                    let detail =
                        fault_detail(FaultQueue::SharedReceive, FaultReason::Memory, srq.queue.read());
                    self.session.events.push(EventKind::QueueFault, number, detail);
                }
                looked
            }
            Stage::CompletionQueues => {
                let Some(object) = self.session.cqs.place(remap.at()) else {
                    return remap.next(Stage::Doorbells);
                };
                let Some((number, cq)) = object else {
                    return remap.skip();
                };
                let (lost, looked) = remap.look(&mut cq.ring, &self.memory, most);
                if lost && !std::mem::replace(&mut cq.lost, true) {
                    let detail = fault_detail(FaultQueue::Completion, FaultReason::Memory, cq.produced());
                    self.session.events.push(EventKind::QueueFault, number, detail);
                    // As after an overrun: queue pairs that complete there fail.
                    self.device.fail_cq(CqHandle(number));
                }
                looked
            }
            Stage::Doorbells => {
                let Some(object) = self.session.bells.get_mut(remap.at()) else {
                    return remap.next(Stage::SendQueues);
                };
                let Some(bell) = object else { return remap.skip() };
                let at = remap.at();
                let (lost, looked) = remap.look(&mut bell.ring, &self.memory, most);
                if lost && bell.fail() {
                    let detail = fault_detail(FaultQueue::Doorbells, FaultReason::Memory, bell.taken());
                    self.session
                        .events
                        .push(EventKind::QueueFault, bell.handle, detail);
                } else if !lost && remap.at() > at {
                    bell.set_polling(true);
                }
                looked
            }
            Stage::SendQueues | Stage::ReceiveQueues => {
                let sends = remap.stage() == Stage::SendQueues;
                let (name, next) = match sends {
                    true => (FaultQueue::Send, Stage::ReceiveQueues),
                    false => (FaultQueue::Receive, Stage::Nothing),
                };
                let Some(object) = self.session.qps.place(remap.at()) else {
                    return remap.next(next);
                };
                let queue = object.and_then(|(number, QueuePair { send, receive, .. })| {
                    let (ring, faulted, posted) = if sends {
                        let queue = send.as_mut()?;
                        let posted = queue.posted();
                        (&mut queue.ring, &mut queue.faulted, posted)
                    } else {
                        let queue = receive.as_mut()?;
                        let posted = queue.posted();
                        (&mut queue.ring, &mut queue.faulted, posted)
                    };
                    Some((number, ring, faulted, posted))
                });
                let Some((number, ring, faulted, posted)) = queue else {
                    return remap.skip();
                };
                let (lost, looked) = remap.look(ring, &self.memory, most);
                if lost && !std::mem::replace(faulted, true) {
                    self.device.fail_qp(QpNumber(number));
                    self.qp_fault(number, name, FaultReason::Memory, posted);
                }
                looked
            }
            Stage::Nothing => 0,
        }
    }

    /// Takes a packet. Returns the work besides the packet itself: its sender, or this function, is charged.
    #[inline]
    pub fn receive(&mut self, now: Instant, packet: &Incoming<'_>) -> u32 {
        self.published.stale = true;
        self.session.unlooked = self.session.starving.len();
        if takes_receive(packet) {
            if self.verbs_faults.is_some() {
                return self.receive_by_rule(now, packet);
            }
            self.fetch_receives(now, packet);
        }
        self.take_packet(now, packet)
    }

    /// Reads receives for a packet that takes one, if the engine has none.
    #[inline(always)]
    pub(super) fn fetch_receives(&mut self, now: Instant, packet: &Incoming<'_>) {
        let number = packet.headers.bth.destination_qp;
        // A group's members, and the shared queue that an XRC packet names, are not checked.
        if packet.headers.bth.opcode.transport() == Transport::Xrc || self.has_no_receive(number) {
            if number == MULTICAST_QP {
                self.feed_members(packet);
            }
            self.look_for_receives(number, packet.headers.xrceth.map(|x| x.srq));
            self.published.sample.stamp(now);
        }
    }

    /// Gives a packet to the engine.
    #[inline(always)]
    pub(super) fn take_packet(&mut self, now: Instant, packet: &Incoming<'_>) -> u32 {
        let number = packet.headers.bth.destination_qp;
        self.device.receive(now, packet, &self.memory);
        if number == MULTICAST_QP {
            self.feed_members(packet);
        } else {
            self.feed_more(number);
        }
        self.device.take_work()
    }

    /// Feeds the QPs of a group that get their copies with the packet: they may have taken receives, or are about to.
    #[cold]
    fn feed_members(&mut self, packet: &Incoming<'_>) {
        let members = self.device.members(packet.path.network.destination()).iter();
        for member in SmallVec::<[QpNumber; COPIES_AT_ONCE]>::from_iter(members.copied().take(COPIES_AT_ONCE))
        {
            self.feed_more(member.0);
        }
    }

    /// Gives members of large groups their copies of datagrams, as far as this turn has work left. Returns their number.
    #[cold]
    fn deliver_copies(&mut self, now: Instant) -> usize {
        let mut copies = 0;
        while let Some(member) = self.device.next_member() {
            if copies >= AT_LEAST && self.account.is_over() {
                break;
            }
            if self.has_no_receive(member.0) {
                self.look_for_receives(member.0, None);
                self.published.sample.stamp(now);
            }
            self.device.receive_copy(now, &self.memory);
            self.feed_more(member.0);
            let work = self.device.take_work();
            self.charge(work);
            copies += 1;
        }
        copies
    }

    /// Prefetches the state of a queue pair that is needed soon: one of many is in no near cache.
    #[inline]
    pub fn fetch_qp(&self, number: QpNumber) {
        if let Some((state, len)) = self.device.qp_place(number) {
            mem::prefetch_all(state, len);
        }
    }

    /// Takes a neighbour's run. Returns how many of its packets were executed. They take no receives.
    #[inline]
    pub fn receive_run(&mut self, now: Instant, run: &Run<'_>) -> usize {
        self.published.stale = true;
        self.session.unlooked = self.session.starving.len();
        self.device.receive_run(now, run, &self.memory)
    }

    /// Feeds a QP that may have taken a receive.
    #[inline]
    fn feed_more(&mut self, number: u32) {
        if let Some(qp) = self.session.qps.get(number)
            && let Some(receive) = &qp.receive
            && receive.has_more()
        {
            let lent = self.account.lend(LACKING);
            self.feed_receives(number);
            self.account.repay(lent);
        }
    }

    /// Whether the engine has no receive for a queue pair, which need not exist.
    #[inline]
    fn has_no_receive(&self, number: u32) -> bool {
        self.session.qps.get(number).is_none_or(|qp| {
            let shared = SrqHandle(qp.created.srq);
            self.device.held(QpNumber(number)).1 == 0 && self.device.srq_held(shared) == 0
        })
    }

    /// Takes a frame that a flow gives to a raw packet queue pair, which arrived at this instant or now. Returns the work besides.
    pub fn receive_frame(
        &mut self,
        now: Instant,
        qp: QpNumber,
        arrived: Option<Instant>,
        bytes: &[u8],
    ) -> u32 {
        self.published.stale = true;
        self.session.unlooked = self.session.starving.len();
        if self.has_no_receive(qp.0) {
            self.look_for_receives(qp.0, None);
            self.published.sample.stamp(now);
        }
        let frame = IncomingFrame {
            bytes,
            checksum_ok: checksums::are_right(bytes),
            arrived: arrived.unwrap_or(now),
        };
        self.device.receive_frame(now, qp, frame, &self.memory);
        self.feed_more(qp.0);
        self.device.take_work()
    }

    /// Counts a frame with a wrong ICRC.
    pub fn count_bad_icrc(&mut self) {
        self.published.stale = true;
        self.device.count_bad_icrc();
    }

    /// Counts a frame with the headers of RoCE that is not valid.
    pub fn count_malformed(&mut self) {
        self.published.stale = true;
        self.device.count_malformed();
    }

    fn deliver_events(&mut self) -> usize {
        let Some(a) = &mut self.attached else {
            return 0;
        };
        let cqs = &mut self.session.cqs;
        let most = (self.account.left() / EVENT.cast_unsigned()) as usize;
        let (done, fault) = self
            .session
            .events
            .deliver(&mut a.events, most.max(AT_LEAST), |cq| {
                if let Some(ring) = cqs.get_mut(cq) {
                    ring.event_waits = false;
                }
            });
        self.account.charge(EVENT * done as i32);
        if let Some((queue, fault)) = fault {
            self.complain(format!("event queue {queue} was stopped: {fault}"));
        }
        done
    }

    fn queue_event(&mut self, event: Event, now: Instant) {
        let (kind, object) = match event {
            // This module keeps armed queues: a driver names its consumer index.
            Event::Completion(_) => return,
            Event::CqError(cq) => (EventKind::CqError, cq.0),
            Event::QpFatal(qp) => (EventKind::QpFatal, qp.0),
            Event::QpRequestError(qp) => (EventKind::QpRequestError, qp.0),
            Event::QpAccessError(qp) => (EventKind::QpAccessError, qp.0),
            Event::CommunicationEstablished(qp) => {
                if self.device.communication().is_some() {
                    // The peer is ready, even if its RTU is lost.
                    self.device.connections(|cm| cm.communicated_at(now, qp.0));
                }
                (EventKind::CommunicationEstablished, qp.0)
            }
            Event::Connections => (EventKind::ConnectionEvents, 0),
            Event::SendQueueDrained(qp) => (EventKind::SendQueueDrained, qp.0),
            Event::LastWqeReached(qp) => (EventKind::LastWqeReached, qp.0),
            Event::SrqLimitReached(srq) => (EventKind::SrqLimitReached, srq.0),
            Event::SrqError(srq) => (EventKind::SrqError, srq.0),
            Event::PageFault(mr) => {
                let asked = self.device.page_fault();
                let detail = asked.map_or(0, |a| pages_detail(a.first, a.pages, a.write));
                self.session.events.push(EventKind::PageFault, mr.0, detail);
                return;
            }
        };
        self.session.events.push(kind, object, 0);
    }

    /// Writes the completions of one queue, as many as there is room for.
    #[inline]
    pub(super) fn drain(&mut self, cq: CqHandle, now: Instant) -> usize {
        if self.verbs_faults.is_some() || self.recorder.is_some() {
            return self.drain_watched(cq, now);
        }
        let Some(ring) = self.session.cqs.get_mut(cq.0) else {
            return 0;
        };
        if ring.lost {
            while self.device.pop_completion(cq).is_some() {}
            return 0;
        }
        let (mut done, time) = (0, self.clock.at(now));
        loop {
            let waiting = self.device.peek_len(cq).min(COMPLETIONS_AT_ONCE);
            let most = ring.room().min(waiting);
            if most == 0 {
                break;
            }
            ring.prefetch(most);
            let (events, sample, clock) = (&mut self.session.events, &mut self.published.sample, &self.clock);
            self.device.take_completions(cq, most, |completion| {
                if ring.write(completion, time_of(completion, time, clock)) {
                    ring.notify(cq.0, events);
                }
                sample.look(completion, now);
            });
            done += most as usize;
        }
        // Lines of the next turn's completions.
        ring.prefetch(COMPLETIONS_AHEAD);
        if self.device.peek_len(cq) > 0 && !ring.waiting {
            ring.waiting = true;
            self.session.full.push_back(cq.0);
        }
        done
    }

    #[cold]
    fn retry_full(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let most = (self.account.left() as usize / 4).max(AT_LEAST);
        for _ in 0..self.session.full.len().min(most) {
            let Some(cq) = self.session.full.pop_front() else {
                break;
            };
            self.account.charge(1);
            if let Some(ring) = self.session.cqs.get_mut(cq) {
                ring.waiting = false;
                work += self.drain(CqHandle(cq), now);
            }
        }
        work
    }
}

/// Whether a packet takes a receive, or is a part of a message that does.
#[inline(always)]
fn takes_receive(packet: &Incoming<'_>) -> bool {
    use Operation::{WriteLastImm, WriteOnlyImm};
    let operation = packet.headers.bth.opcode.operation();
    operation.is_some_and(|o| o.is_send() || matches!(o, WriteLastImm | WriteOnlyImm))
}
