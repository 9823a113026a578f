//! From doorbells to work requests: reads requests from the driver's rings and gives them to the engine.

use vnic_device::command::qp::create_flags;
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::event::{EventKind, FaultQueue, FaultReason, fault_detail};
use vnic_engine::rdma::{Arm, Device, QpNumber, QpState, SrqHandle};
use vnic_fabric::Instant;

use super::account::LACKING;
use super::doorbells::{DoorbellRing, Found};
use super::function::Function;
use super::journal::Recorder;
use super::session::QueuePair;
use super::work_queue::{Malformed, ReceiveQueue, SendQueue};
use crate::mem;

/// Largest number of a send queue's work requests in the engine; the others wait in their ring.
const SEND_WINDOW: u32 = 128;
/// Largest number of a QP's receives in the engine.
const RECEIVE_WINDOW: u32 = 64;
/// Doorbells taken from one ring before other rings get their turn.
const BELLS_A_TURN: usize = 64;
/// Requests that the engine gets before their work is charged.
const AT_ONCE: u32 = 32;
/// Requests of a QP in ERR that the engine gets before their work is charged: each is flushed and makes a completion.
const FLUSHED_AT_ONCE: u32 = 8;
/// Queues with waiting requests that a turn looks at.
const STARVING_A_TURN: usize = 256;

/// For whom room for a request is asked, of the room that a device has for all of its queues (`max_requests`). Receives that
/// are posted ahead take at most half, and with sends seven eighths: a device full of receives still sends, and one full of
/// sends still takes the messages that let its peers answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoomFor {
    /// A receive for a packet to come.
    ReceiveAhead,
    /// A send.
    Send,
    /// A receive for a packet that is there, or a request that is flushed at once.
    Now,
}

impl RoomFor {
    /// How many requests more the device may be given.
    #[inline]
    fn left(self, device: &Device) -> u32 {
        let all = device.limits().max_requests;
        let kept = match self {
            RoomFor::ReceiveAhead => all / 2,
            RoomFor::Send => all / 8,
            RoomFor::Now => 0,
        };
        device.room_for_requests().saturating_sub(kept)
    }
}

impl Function {
    // Doorbells.

    #[inline]
    pub(super) fn take_doorbells(&mut self) -> usize {
        let mut work = 0;
        let rings = self.session.bells.len();
        let mut next = self.session.first_bell;
        for _ in 0..rings {
            let i = if next < rings { next } else { 0 };
            next = i + 1;
            for turn in 0.. {
                let Some(ring) = &mut self.session.bells[i] else {
                    break;
                };
                if turn == BELLS_A_TURN || self.account.is_over() {
                    ring.show_taken();
                    break;
                }
                match ring.next() {
                    Found::Nothing => break,
                    Found::Bell(bell) => {
                        work += 1;
                        self.account.charge(1);
                        let coming = [ring.peek_bell(0), ring.peek_bell(1)];
                        self.fetch_ahead(bell.number, coming);
                        self.answer(bell);
                    }
                    Found::Fault(index) => {
                        let handle = ring.handle;
                        let detail = fault_detail(FaultQueue::Doorbells, FaultReason::Reserved, index);
                        self.session.events.push(EventKind::QueueFault, handle, detail);
                        break;
                    }
                }
            }
            if self.account.is_over() {
                // The next turn begins with the other rings.
                self.session.first_bell = next;
                break;
            }
        }
        work
    }

    /// Takes all doorbells that were written before now, on which a command relies (`SPEC.md`, section 5.1). False: this turn
    /// has too little work left, and the command waits.
    pub(super) fn take_doorbells_before_command(&mut self) -> bool {
        if self.session.before_command.is_empty() {
            // Bounded, in case the driver keeps writing meanwhile.
            let entries = |ring: &Option<DoorbellRing>| ring.as_ref().map_or(0, DoorbellRing::entries);
            self.session
                .before_command
                .extend(self.session.bells.iter().map(entries));
        }
        for i in 0..self.session.bells.len().min(self.session.before_command.len()) {
            while self.session.before_command[i] > 0 {
                if self.account.is_over() {
                    return false;
                }
                self.session.before_command[i] -= 1;
                let found = self.session.bells[i]
                    .as_mut()
                    .map_or(Found::Nothing, DoorbellRing::next);
                match found {
                    Found::Bell(bell) => {
                        self.account.charge(1);
                        self.answer(bell);
                    }
                    Found::Fault(index) => {
                        let handle = self.session.bells[i].as_ref().map_or(0, |r| r.handle);
                        let detail = fault_detail(FaultQueue::Doorbells, FaultReason::Reserved, index);
                        self.session.events.push(EventKind::QueueFault, handle, detail);
                        break;
                    }
                    Found::Nothing => break,
                }
            }
            self.session.before_command[i] = 0;
        }
        self.session.before_command.clear();
        true
    }

    /// Looks for receives, because a packet came that needs one. A driver that posted a receive and then let its peer send
    /// wrote the doorbell before the packet was posted; this function's turn may only come later, and the packet must not
    /// overtake the receive. `named`: the shared receive queue that the packet names.
    #[inline]
    pub(super) fn look_for_receives(&mut self, number: u32, named: Option<u32>) {
        let lent = self.account.lend(LACKING);
        let shared = self.session.qps.get(number).map(|qp| qp.created.srq);
        self.feed_receives(number);
        if let Some(srq) = named.or(shared) {
            self.feed_shared(srq);
        }
        self.take_doorbells();
        self.feed_one_receive(number, named.or(shared));
        self.account.repay(lent);
    }

    /// Gives the engine a receive for the packet that is there, if the room for receives that are posted ahead is used up.
    #[cold]
    fn feed_one_receive(&mut self, number: u32, srq: Option<u32>) {
        if RoomFor::ReceiveAhead.left(&self.device) > 0 {
            return;
        }
        if self.device.held(QpNumber(number)).1 == 0 {
            self.feed_receives_up_to(number, 1, RoomFor::Now);
        }
        if let Some(srq) = srq
            && self.device.srq_held(SrqHandle(srq)) == 0
        {
            self.feed_shared_up_to(srq, 1, RoomFor::Now);
        }
    }

    /// Prefetches state for the next doorbells while the doorbell of queue pair `now` is handled: with many queue pairs it is
    /// in no near cache. The requests of a queue pair are found by the state that the call before has prefetched.
    #[inline]
    fn fetch_ahead(&self, now: u32, coming: [Option<Doorbell>; 2]) {
        for (i, bell) in coming.into_iter().enumerate() {
            let Some(bell) = bell else { return };
            if bell.kind != Kind::Send || bell.number == now {
                continue;
            }
            self.fetch_qp(QpNumber(bell.number));
            let Some(queues) = self.session.qps.get(bell.number) else {
                continue;
            };
            mem::prefetch_all(std::ptr::from_ref(queues).cast(), size_of::<QueuePair>());
            if i == 0
                && let Some(send) = &queues.send
            {
                send.prefetch(bell.index);
            }
        }
    }

    #[inline]
    fn answer(&mut self, bell: Doorbell) {
        match bell.kind {
            Kind::Send => self.posted_sends(bell.number, bell.index),
            Kind::Receive => self.posted_receives(bell.number, bell.index),
            Kind::SharedReceive => self.posted_shared(bell.number, bell.index),
            Kind::ArmNext => self.arm(bell.number, Arm::Next, bell.index),
            Kind::ArmSolicited => self.arm(bell.number, Arm::Solicited, bell.index),
        }
    }

    fn arm(&mut self, number: u32, arm: Arm, consumer: u32) {
        if let Some(cq) = self.session.cqs.get_mut(number)
            && cq.arm(arm, consumer)
        {
            cq.notify(number, &mut self.session.events);
        }
    }

    #[inline]
    fn posted_sends(&mut self, number: u32, index: u32) {
        use QpState as S;
        self.account.asked = true;
        if !matches!(
            self.device.qp_state(QpNumber(number)),
            Some(S::Rts | S::Sqd | S::Sqe | S::Err)
        ) {
            return;
        }
        let Some(QueuePair { send: Some(send), .. }) = self.session.qps.get_mut(number) else {
            return;
        };
        if send.faulted {
            return;
        }
        let before = send.posted();
        if !send.advance(index) {
            self.index_fault(number, FaultQueue::Send, before);
        }
        self.feed_sends(number);
    }

    #[inline]
    fn posted_receives(&mut self, number: u32, index: u32) {
        match self.device.qp_state(QpNumber(number)) {
            None | Some(QpState::Reset) => return,
            Some(_) => {}
        }
        let Some(QueuePair {
            receive: Some(receive),
            ..
        }) = self.session.qps.get_mut(number)
        else {
            return;
        };
        if receive.faulted {
            return;
        }
        let before = receive.posted();
        if !receive.advance(index) {
            self.index_fault(number, FaultQueue::Receive, before);
        }
        self.feed_receives(number);
    }

    fn posted_shared(&mut self, number: u32, index: u32) {
        let Some(srq) = self.session.srqs.get_mut(number) else {
            return;
        };
        if srq.queue.faulted {
            return;
        }
        if !srq.queue.advance(index) {
            let at = srq.queue.posted();
            self.srq_fault(number, FaultReason::Index, at);
            return;
        }
        self.feed_shared(number);
    }

    #[cold]
    fn index_fault(&mut self, number: u32, queue: FaultQueue, index: u32) {
        self.device.fail_qp(QpNumber(number));
        self.qp_fault(number, queue, FaultReason::Index, index);
    }

    /// Reports a fault of a QP, once.
    #[cold]
    pub(super) fn qp_fault(&mut self, number: u32, queue: FaultQueue, reason: FaultReason, index: u32) {
        let Some(qp) = self.session.qps.get_mut(number) else {
            return;
        };
        if !std::mem::replace(&mut qp.fault_told, true) {
            self.session
                .events
                .push(EventKind::QueueFault, number, fault_detail(queue, reason, index));
            self.complain(format!(
                "the {queue:?} queue of QP {number:#x} has a fault at index {index}: {reason:?}"
            ));
        }
    }

    #[cold]
    fn srq_fault(&mut self, number: u32, reason: FaultReason, index: u32) {
        self.device.fail_srq(SrqHandle(number));
        let Some(srq) = self.session.srqs.get_mut(number) else {
            return;
        };
        srq.queue.faulted = true;
        if !std::mem::replace(&mut srq.fault_told, true) {
            let detail = fault_detail(FaultQueue::SharedReceive, reason, index);
            self.session.events.push(EventKind::QueueFault, number, detail);
            self.complain(format!(
                "SRQ {number:#x} has a fault at index {index}: {reason:?}"
            ));
        }
    }

    // Work requests, from the rings into the engine.

    /// Gives the engine the requests of a send queue, up to its window.
    #[inline]
    pub(super) fn feed_sends(&mut self, number: u32) {
        self.feed_sends_up_to(number, SEND_WINDOW);
    }

    fn feed_sends_up_to(&mut self, number: u32, window: u32) {
        let qpn = QpNumber(number);
        let (at_once, purpose) = match self.device.qp_state(qpn) {
            Some(QpState::Err) => (FLUSHED_AT_ONCE, RoomFor::Now),
            _ => (AT_ONCE, RoomFor::Send),
        };
        let Some(qp) = self.session.qps.get_mut(number) else {
            return;
        };
        let Some(send) = &mut qp.send else { return };
        send.prefetch(send.posted());
        while send.has_more() {
            let all = purpose.left(&self.device).min(window);
            let room = window.saturating_sub(self.device.held(qpn).0).min(all);
            let room = room.min(self.account.left()).min(at_once);
            if room == 0 {
                if !std::mem::replace(&mut qp.starving, true) {
                    self.session.starving.push_back(number);
                }
                return;
            }
            // An immediate error of verbs becomes a failed completion: the ring has no other way to report it.
            let posted = match &mut self.recorder {
                None => self.device.post_sends(qpn, room, |wr| {
                    let more = send.has_more();
                    if more {
                        send.take(wr)?;
                    }
                    Ok(more)
                }),
                Some(recorder) => {
                    let all = qp.created.flags & create_flags::SIGNAL_ALL != 0;
                    record_sends(&mut self.device, (qpn, room, all), send, recorder)
                }
            };
            match posted {
                Ok(0) => return,
                // (A queue pair in error flushes them at once.)
                Ok(n) => {
                    let work = n.saturating_add(self.device.take_work());
                    self.account.charge(i32::try_from(work).unwrap_or(i32::MAX));
                    if self.published.sample.is_free()
                        && let Some(tag) = self.device.newest_reliable(qpn)
                    {
                        self.published.sample.follow(qpn, tag);
                    }
                }
                Err(Malformed { wr_id, reason, index }) => {
                    send.faulted = true;
                    let behind = send.posted();
                    self.device.fault_send(qpn, wr_id, behind);
                    self.qp_fault(number, FaultQueue::Send, reason, index);
                    return;
                }
            }
        }
    }

    pub(super) fn feed_receives(&mut self, number: u32) {
        self.feed_receives_up_to(number, RECEIVE_WINDOW, RoomFor::ReceiveAhead);
    }

    fn feed_receives_up_to(&mut self, number: u32, window: u32, purpose: RoomFor) {
        let qpn = QpNumber(number);
        loop {
            let Some(qp) = self.session.qps.get_mut(number) else {
                return;
            };
            let Some(receive) = &mut qp.receive else { return };
            if !receive.has_more() {
                return;
            }
            let over = self.account.is_over();
            let full = |device: &Device| {
                let error = device.qp_state(qpn) == Some(QpState::Err);
                purpose.left(device) == 0 && !(error && RoomFor::Now.left(device) > 0)
            };
            if over || self.device.held(qpn).1 >= window || full(&self.device) {
                // A used receive makes room in the window; only a queue that waits for the device or for a turn is listed.
                if (over || self.device.held(qpn).1 == 0) && !std::mem::replace(&mut qp.starving, true) {
                    self.session.starving.push_back(number);
                }
                return;
            }
            self.account.charge(1);
            match receive.take() {
                Ok(wr) => {
                    let (id, tag) = (wr.id, wr.tag);
                    if self.device.post_recv(qpn, wr).is_err() {
                        self.device.fault_receive(qpn, id, tag);
                    }
                }
                Err(m) => {
                    let tag = receive.read();
                    self.device.fault_receive(qpn, m.wr_id, tag);
                    self.qp_fault(number, FaultQueue::Receive, m.reason, m.index);
                }
            }
        }
    }

    fn feed_shared(&mut self, number: u32) {
        self.feed_shared_up_to(number, u32::MAX, RoomFor::ReceiveAhead);
    }

    fn feed_shared_up_to(&mut self, number: u32, window: u32, purpose: RoomFor) {
        let Some(srq) = self.session.srqs.get_mut(number) else {
            return;
        };
        let handle = SrqHandle(number);
        let before = srq.queue.read();
        let mut fault = None;
        while srq.queue.has_more() {
            let full = match self.device.query_srq(handle) {
                Ok((waiting, max_wr, _)) => waiting >= max_wr.min(window),
                Err(_) => return,
            };
            if full || self.account.is_over() || purpose.left(&self.device) == 0 {
                if !std::mem::replace(&mut srq.starving, true) {
                    self.session.starving_srqs.push_back(number);
                }
                break;
            }
            self.account.charge(1);
            match srq.queue.take() {
                Ok(mut wr) => {
                    // Completions cannot report free entries here; the ring's tail does.
                    wr.tag = 0;
                    if self.device.post_srq_recv(handle, wr).is_err() {
                        fault = Some((FaultReason::Length, srq.queue.read().wrapping_sub(1)));
                        break;
                    }
                }
                Err(m) => {
                    fault = Some((m.reason, m.index));
                    break;
                }
            }
        }
        let read = srq.queue.read();
        let unread = srq.queue.posted().wrapping_sub(read);
        self.device.set_srq_unread(handle, unread);
        // (Before any completion: the driver may post as many receives as it has seen complete.)
        if read != before {
            let at = ring_tail(&srq.queue);
            srq.queue.ring.store_u32(at, read);
        }
        if let Some((reason, index)) = fault {
            self.srq_fault(number, reason, index);
        }
    }

    /// Gives the engine requests for which it had no room. Returns the work that this was.
    pub(super) fn feed_starving(&mut self) -> usize {
        // Half of the turn is kept for new requests.
        let kept = self.account.left().cast_signed() / 2;
        self.account.charge(kept);
        let mut fed = 0;
        for _ in 0..self.session.starving.len().min(STARVING_A_TURN) {
            let Some(number) = self.session.starving.pop_front() else {
                break;
            };
            self.session.unlooked = self.session.unlooked.saturating_sub(1);
            self.account.charge(1);
            let left = self.account.left();
            if let Some(qp) = self.session.qps.get_mut(number) {
                qp.starving = false;
                // A window is refilled when half empty: one request at a time would cost a look each.
                if self.device.held(QpNumber(number)).0 > SEND_WINDOW / 2 {
                    qp.starving = true;
                    self.session.starving.push_back(number);
                } else {
                    self.feed_sends(number);
                    self.feed_receives(number);
                }
            }
            fed += left - self.account.left();
            if self.account.is_over() {
                break;
            }
        }
        for _ in 0..self.session.starving_srqs.len().min(STARVING_A_TURN) {
            if self.account.is_over() {
                break;
            }
            let Some(number) = self.session.starving_srqs.pop_front() else {
                break;
            };
            self.account.charge(1);
            let left = self.account.left();
            if let Some(srq) = self.session.srqs.get_mut(number) {
                srq.starving = false;
                self.feed_shared(number);
            }
            fed += left - self.account.left();
        }
        self.account.charge(-kept);
        fed as usize
    }

    /// Gives the engine the requests of a QP in error, as far as this turn has work left: they are flushed, and their
    /// completions are written. False: there are more.
    pub(super) fn flush_all(&mut self, number: u32, now: Instant) -> bool {
        if let Some(recorder) = &mut self.recorder {
            recorder.collect(&mut self.device, now);
        }
        self.feed_sends_up_to(number, u32::MAX);
        self.feed_receives_up_to(number, u32::MAX, RoomFor::Now);
        while let Some(cq) = self.device.next_completed() {
            self.drain(cq, now);
        }
        let unread = |qp: &QueuePair| {
            qp.send.as_ref().is_some_and(|q| q.has_more())
                || qp.receive.as_ref().is_some_and(|q| q.has_more())
        };
        // Requests without room, because the driver does not take completions, are not waited for.
        !self.account.is_over() || !self.session.qps.get(number).is_some_and(unread)
    }
}

/// Posts requests, and notes them in a journal; `all`: the queue pair signals all.
#[cold]
#[inline(never)]
fn record_sends(
    device: &mut Device,
    (qp, room, all): (QpNumber, u32, bool),
    send: &mut SendQueue,
    recorder: &mut Recorder,
) -> Result<u32, Malformed> {
    device.post_sends(qp, room, |wr| {
        let more = send.has_more();
        if more {
            send.take(wr)?;
            recorder.posted(qp.0, wr, all);
        }
        Ok(more)
    })
}

/// Offset of the tail of a shared receive queue.
fn ring_tail(queue: &ReceiveQueue) -> u64 {
    vnic_device::ring::shared_receive_tail(queue.entries(), queue.stride())
}
