//! A queue pair: what `modify` set, and the two machines that carry it out.

mod completer;
mod connect;
mod datagram;
mod dynamic;
mod flow;
mod notes;
mod outlet;
mod raw;
mod requester;
mod responder;
mod scatter;
mod selective;
mod spread;
pub mod state;

use alloc::boxed::Box;

use vnic_wire::opcode::Transport;
use vnic_wire::pkey::{self, DEFAULT_PKEY, FULL_MEMBER};
use vnic_wire::psn::Psn;
use vnic_wire::roce::Path;
use vnic_wire::time::Instant;

pub(super) use connect::path;
pub use connect::{flow_label, flow_label_port, udp_source_port};
pub use spread::multipath_port;

use super::marks::Mark;
use super::memory::Memory;
use super::observation::Whereabouts;
use super::pacing::Pace;
use super::packet::{Incoming, IncomingFrame, Sink};
use super::pool::NONE;
use super::shared::Shared;
use super::status::{PathStatus, QpErrors, QpStatus, SendStatus};
use super::timer::Entry;
use super::types::{
    Completion, CompletionOp, Event, QpAttributes, QpInit, QpNumber, QpState, QpType, RecvWr, SendFlags,
    SendWr, Status, VerbsError,
};
use dynamic::Dynamic;
use requester::{Finished, Requester, Stage, Turn};
use responder::Responder;
pub(super) use selective::Seats;
use selective::Trouble;

pub(super) use requester::SendWqe as PooledSend;

/// Steps of a QP, packets or requests that need none, before the next one has its turn.
const QUANTUM: u32 = 16;

/// A request that is flushed, with its completion, as [`Device::take_work`](super::Device::take_work) counts it.
const FLUSH: u32 = 3;

/// How a QP's turn ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turned {
    /// It sent something.
    pub sent: bool,
    /// It wants another turn.
    pub more: bool,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub number: QpNumber,
    pub init: QpInit,
    pub attributes: QpAttributes,
    /// The way to the peer, when it is connected.
    path: Option<Path>,
    requester: Requester,
    responder: Responder,
    /// Waits in the device's list of QPs of its priority that may have something to send.
    scheduled: bool,
    /// Priority of what it sends; of datagrams: of the next one.
    priority: u8,
    /// Port that its connection is for, for policies; 0: none that is known.
    service_port: u16,
    /// Its P_Key; 0, which is for nobody, where the port has none at its index.
    pub pkey: u16,
    /// Its rate, if it has one.
    pace: Option<Box<Pace>>,
    timer: Entry,
    /// Its errors and losses, if there were any.
    trouble: Option<Box<Trouble>>,
    /// What only ends of dynamic connections have.
    dynamic: Option<Box<Dynamic>>,
}

impl Qp {
    pub fn new(number: QpNumber, init: QpInit) -> Qp {
        Qp {
            number,
            init,
            attributes: QpAttributes::default(),
            path: None,
            requester: Requester::default(),
            responder: Responder::default(),
            scheduled: false,
            priority: 0,
            service_port: 0,
            pkey: DEFAULT_PKEY,
            pace: None,
            timer: Entry::default(),
            trouble: None,
            dynamic: Dynamic::of(init.qp_type).map(Box::new),
        }
    }

    pub fn state(&self) -> QpState {
        self.attributes.state
    }

    /// Send and receive work requests that have not completed.
    pub fn held(&self) -> (u32, u32) {
        (self.requester.queued(), self.responder.queued())
    }

    /// Tag of the newest send that has not completed, if its completion will say when the peer had it.
    pub fn newest_reliable(&self, shared: &Shared) -> Option<u32> {
        let wr = &shared.sends.get(self.requester.tail())?.wr;
        let signaled = self.init.signal_all || wr.flags.contains(SendFlags::SIGNALED);
        (signaled && self.init.qp_type.reliable()).then_some(wr.tag)
    }

    /// What it may do. (Inlined, so that only what is asked for is worked out.)
    #[inline(always)]
    fn permissions(&self) -> state::Permissions {
        state::allows(self.init.qp_type, self.state())
    }

    /// Transport bits of the opcodes it sends.
    fn transport(&self) -> Transport {
        match self.init.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            // (Raw packets have none: no packet is for such a QP.)
            QpType::Ud | QpType::RawPacket => Transport::Ud,
            QpType::XrcInitiator | QpType::XrcTarget => Transport::Xrc,
            QpType::DcInitiator | QpType::DcTarget => Transport::Dc,
        }
    }

    /// Posts what is in the spare slot of the pool to the send queue.
    #[inline]
    pub fn post_spare(&mut self, shared: &mut Shared) -> Result<(), VerbsError> {
        if !self.permissions().post_send {
            return Err(VerbsError::State(self.state()));
        }
        let wr = &shared.sends.spare().wr;
        self.check_send(&shared.ahs, wr)?;
        self.queue_send(shared, Stage::Posted)
    }

    /// Posts what `write` makes, again and again; see [`Device::post_sends`](super::Device::post_sends).
    #[inline]
    pub fn post_sends<E>(
        &mut self,
        shared: &mut Shared,
        most: u32,
        mut write: impl FnMut(&mut SendWr) -> Result<bool, E>,
    ) -> Result<u32, E> {
        let state::Permissions {
            post_send: allowed,
            flush_send: flushed,
            ..
        } = self.permissions();
        let mut count = 0;
        let ended = loop {
            if count == most {
                break Ok(count);
            }
            let spare = shared.sends.spare();
            match write(&mut spare.wr) {
                Ok(true) => count += 1,
                Ok(false) => break Ok(count),
                Err(error) => break Err(error),
            }
            if !allowed || self.requester.queued() >= self.init.max_send_wr {
                continue;
            }
            if self.check_send(&shared.ahs, &spare.wr).is_err() {
                let (id, tag) = (spare.wr.id, spare.wr.tag);
                let _ = self.post_failed_send(shared, id, tag, Status::LocalQpOperationError);
                continue;
            }
            spare.begin(Stage::Posted);
            self.requester.append(&mut shared.sends);
            if flushed {
                self.flush_sends(shared);
            }
        };
        if count > 0 && !flushed {
            self.schedule(shared);
        }
        ended
    }

    /// Queues what is in the spare slot of the pool.
    #[inline]
    fn queue_send(&mut self, shared: &mut Shared, stage: Stage) -> Result<(), VerbsError> {
        if self.requester.queued() >= self.init.max_send_wr {
            return Err(VerbsError::QueueFull);
        }
        shared.sends.spare().begin(stage);
        self.requester.append(&mut shared.sends);
        if self.permissions().flush_send {
            self.flush_sends(shared);
        } else {
            self.schedule(shared);
        }
        Ok(())
    }

    /// Posts to the own receive queue.
    pub fn post_recv(&mut self, shared: &mut Shared, wr: RecvWr) -> Result<(), VerbsError> {
        if self.init.srq.is_some() || self.init.recv_cq.is_none() {
            return Err(VerbsError::Invalid(
                "this queue pair has no receive queue of its own",
            ));
        }
        if !self.permissions().post_recv {
            return Err(VerbsError::State(self.state()));
        }
        if wr.sges.len() as u64 > u64::from(self.init.max_recv_sge) {
            return Err(VerbsError::OutOfRange {
                what: "elements of a receive",
                value: wr.sges.len() as u64,
                min: 0,
                max: self.init.max_recv_sge.into(),
            });
        }
        if self.responder.queued() >= self.init.max_recv_wr {
            return Err(VerbsError::QueueFull);
        }
        self.responder.push(shared, wr);
        if self.permissions().flush_recv {
            self.flush_receives(shared);
        }
        Ok(())
    }

    // Work requests that whoever posts them could not read or express, and a QP that it has to end (proto/device, section 8.4).

    /// Posts a send that fails with `status` when its turn comes.
    pub fn post_failed_send(
        &mut self,
        shared: &mut Shared,
        id: u64,
        tag: u32,
        status: Status,
    ) -> Result<(), VerbsError> {
        if !self.permissions().post_send {
            return Err(VerbsError::State(self.state()));
        }
        if status == Status::Success {
            return Err(VerbsError::Invalid("a request that fails needs an error"));
        }
        shared.sends.spare().wr = SendWr {
            id,
            tag,
            ..SendWr::default()
        };
        self.queue_send(shared, Stage::Doomed(status))
    }

    /// The next request of the send queue is broken, and so is the QP. Nothing where none could be posted.
    pub fn fault_send(&mut self, shared: &mut Shared, id: u64, tag: u32) {
        let (true, Some(cq)) = (self.permissions().post_send, self.init.send_cq) else {
            return;
        };
        self.shut(shared);
        let status = Status::LocalQpOperationError;
        shared.counters.requester_error(status);
        let completion = Completion::new(id, tag, self.number, CompletionOp::Send, status);
        shared.complete(cq, completion);
    }

    /// The next request of its own receive queue is broken, and so is the QP. Nothing where none could be posted.
    pub fn fault_receive(&mut self, shared: &mut Shared, id: u64, tag: u32) {
        let own = self.permissions().post_recv && self.init.srq.is_none();
        let (true, Some(cq)) = (own, self.init.recv_cq) else {
            return;
        };
        self.shut(shared);
        let status = Status::LocalQpOperationError;
        shared.counters.responder_error(status);
        let completion = Completion::new(id, tag, self.number, CompletionOp::Recv, status);
        shared.complete(cq, completion);
    }

    /// Goes to the error state, from any but RESET; nobody is told.
    pub fn shut(&mut self, shared: &mut Shared) {
        self.fail(shared, state::Trigger::Fatal);
    }

    /// Whether packets with a P_Key are for it (IBTA 10.9.3). Those of full members of its partition are.
    #[inline(always)]
    pub fn takes(&self, pkey: u16) -> bool {
        pkey == self.pkey | FULL_MEMBER && pkey != FULL_MEMBER || pkey::admits(pkey, self.pkey)
    }

    /// Looks its P_Key up in the port's table.
    pub fn look_up_pkey(&mut self, shared: &Shared) {
        self.pkey = shared.partitions.table.get(self.attributes.pkey_index);
    }

    /// A packet came for this QP.
    pub fn receive(&mut self, shared: &mut Shared, now: Instant, packet: &Incoming<'_>, memory: &dyn Memory) {
        if !self.takes(packet.headers.bth.pkey) {
            return shared.wrong_partition(self.pkey, packet);
        }
        let raw = self.init.qp_type == QpType::RawPacket;
        if raw || packet.headers.bth.opcode.transport() != self.transport() {
            shared.counters.drop_wrong_transport += 1;
            return;
        }
        let Some(operation) = packet.headers.bth.opcode.operation() else {
            shared.counters.drop_malformed += 1;
            return;
        };
        if self.init.qp_type == QpType::Ud {
            self.receive_datagram(shared, packet, memory);
        } else if self.init.qp_type == QpType::DcTarget {
            if operation.is_request() && self.permissions().receive {
                dynamic::receive(self, shared, now, operation, packet, memory);
            } else {
                shared.counters.drop_wrong_state += 1;
            }
        } else if !self.is_peers(&packet.path) {
            shared.counters.drop_bad_gid += 1;
            shared.marks.hit(Mark::WrongPeer);
        } else if operation.is_response() {
            if self.permissions().receive_responses {
                let before = self.requester.oldest;
                self.complete(shared, now, operation, packet, memory);
                let controlled =
                    self.pace.is_some() || packet.headers.bth.becn || self.requester.timed.is_some();
                if controlled && self.requester.oldest != before {
                    self.heard(shared, now, packet);
                }
            } else {
                shared.counters.drop_wrong_state += 1;
            }
        } else if !self.permissions().receive {
            shared.counters.drop_wrong_state += 1;
        } else {
            if self.state() == QpState::Rtr && !self.responder.established {
                self.responder.established = true;
                shared.marks.hit(Mark::Established);
                shared.event(Event::CommunicationEstablished(self.number));
            }
            self.respond(shared, operation, packet, memory);
        }
    }

    /// A frame came for this QP.
    pub fn receive_frame(&mut self, shared: &mut Shared, frame: IncomingFrame<'_>, memory: &dyn Memory) {
        raw::receive(self, shared, frame, memory);
    }

    /// Sends until nothing may be sent or the turn is over.
    pub fn transmit(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> Turned {
        // What is done here must not put it on the list: the caller does.
        self.scheduled = true;
        let mut turned = Turned {
            sent: false,
            more: true,
        };
        let datagrams = self.init.qp_type == QpType::Ud;
        let mut steps = 0;
        while steps < QUANTUM {
            steps += 1;
            if datagrams && self.turns_aside(shared) {
                break;
            }
            if sink.open() >> self.priority & 1 == 0 {
                break;
            }
            let answered = match self.dynamic {
                None => self.send_response(shared, now, memory, sink),
                Some(_) => dynamic::answer(self, shared, now, memory, sink),
            };
            if answered {
                turned.sent = true;
                turned.more = self.has_answers() || self.has_requests(shared);
                if turned.more {
                    continue;
                }
                break;
            }
            let taken = self.send_run(shared, now, memory, sink, (QUANTUM - steps + 1) as usize);
            if taken > 0 {
                steps += taken as u32 - 1;
                turned.sent = true;
                if !self.has_requests(shared) && !self.has_answers() {
                    turned.more = false;
                    break;
                }
                continue;
            }
            match self.send_request(shared, now, memory, sink) {
                Turn::Sent => {
                    turned.sent = true;
                    if self.pace.is_some() {
                        self.charge(shared, now);
                    }
                    // Whoever has nothing more, or has to wait, is not asked again before: its timer is set now.
                    if !self.has_answers() && (!self.has_requests(shared) || self.must_wait(shared, now)) {
                        turned.more = false;
                        break;
                    }
                }
                Turn::Next => {}
                Turn::Aside => break,
                Turn::Blocked => {
                    turned.more = false;
                    break;
                }
            }
        }
        self.scheduled = turned.more;
        turned
    }

    /// Has it anything to send back?
    pub fn has_answers(&self) -> bool {
        self.responder.has_answers() || self.dynamic.is_some() && dynamic::has_answers(self)
    }

    /// Has it anything to send, or to send again?
    #[inline]
    fn has_requests(&self, shared: &Shared) -> bool {
        self.requester.cursor() != NONE || (self.trouble.is_some() && self.repeats(shared))
    }

    /// Puts it on the list of those that may have something to send.
    fn schedule(&mut self, shared: &mut Shared) {
        if self.init.qp_type == QpType::Ud {
            self.follow_datagram(shared);
        }
        if !self.scheduled {
            self.scheduled = true;
            shared.ready.push(self.priority, self.number);
        }
    }

    /// Its entry among the timers fired.
    pub fn handle_timeout(&mut self, shared: &mut Shared, now: Instant) {
        self.timer.fired();
        self.check_deadlines(shared, now);
        if self.dynamic.is_some() {
            dynamic::timeout(self, shared, now);
        }
    }

    /// Leaves for the error state: all that was posted is flushed (IBTA 10.3.1).
    fn fail(&mut self, shared: &mut Shared, trigger: state::Trigger) {
        let Some(next) = state::triggered(self.init.qp_type, self.state(), trigger) else {
            return;
        };
        self.enter(shared, next);
    }

    /// The device's own reasons to fail it.
    pub fn fatal(&mut self, shared: &mut Shared) {
        if self.state() != QpState::Reset && self.state() != QpState::Err {
            shared.event(Event::QpFatal(self.number));
            self.fail(shared, state::Trigger::CqOverrun);
        }
    }

    /// Goes to a state, with what that does to the queues.
    fn enter(&mut self, shared: &mut Shared, next: QpState) {
        let was = self.state();
        self.attributes.state = next;
        if next == QpState::Sqe {
            shared.marks.hit(Mark::SendQueueError);
        }
        if next == QpState::Err {
            self.end_flow(shared);
            self.forget_losses();
            shared.faults.forget(self.number);
            dynamic::end(self, shared);
        }
        let may = self.permissions();
        if may.flush_send {
            self.flush_sends(shared);
        }
        if may.flush_recv {
            self.flush_receives(shared);
            if was != QpState::Err && self.init.srq.is_some() {
                shared.marks.hit(Mark::LastWqe);
                shared.event(Event::LastWqeReached(self.number));
            }
        }
    }

    /// Flushes and forgets all that is posted: the QP is about to be destroyed.
    pub fn flush(&mut self, shared: &mut Shared) {
        dynamic::end(self, shared);
        self.flush_sends(shared);
        self.flush_receives(shared);
        shared.faults.forget(self.number);
        shared.timers.disarm(&mut self.timer, self.number);
        self.end_pace(shared);
        if self.scheduled {
            shared.ready.remove(self.priority, self.number);
        }
    }

    fn flush_receives(&mut self, shared: &mut Shared) {
        while let Some((wr, cq)) = self.responder.take_any(shared, &self.init) {
            shared.work = shared.work.saturating_add(FLUSH);
            shared.counters.responder_error(Status::FlushError);
            shared.complete(
                cq,
                Completion::new(wr.id, wr.tag, self.number, CompletionOp::Recv, Status::FlushError),
            );
        }
    }

    fn flush_sends(&mut self, shared: &mut Shared) {
        while let Some(finished) = self.requester.take(&mut shared.sends, |_| true) {
            shared.work = shared.work.saturating_add(FLUSH);
            shared.marks.hit(Mark::Flushed);
            self.complete_failed(shared, &finished, Status::FlushError);
        }
        self.requester.stop();
        self.forget_repair();
    }

    /// The completion of a send work request that failed.
    fn complete_failed(&mut self, shared: &mut Shared, finished: &Finished, status: Status) {
        shared.counters.requester_error(status);
        if let Some(cq) = self.init.send_cq {
            shared.complete(cq, finished.completion(self.number, status));
        }
    }

    /// Something went wrong: counts it.
    #[cold]
    #[inline(never)]
    fn went_wrong(&mut self, shared: &mut Shared, count: impl FnOnce(&mut QpErrors) -> &mut u32) {
        let errors = &mut self.trouble.get_or_insert_default().errors;
        let value = count(errors);
        *value = value.saturating_add(1);
        shared.worst.note(self.number, *errors);
    }

    /// The key that initiators of dynamic connections have to know, of a target.
    pub fn access_key(&self) -> Option<u64> {
        match self.dynamic.as_deref() {
            Some(Dynamic::Target(target)) => Some(target.access_key()),
            _ => None,
        }
    }

    /// Sets that key.
    pub fn set_access_key(&mut self, key: u64) -> Result<(), VerbsError> {
        match self.dynamic.as_deref_mut() {
            Some(Dynamic::Target(target)) if self.attributes.state == QpState::Reset => {
                *target = dynamic::Target::with_key(key);
                Ok(())
            }
            Some(Dynamic::Target(_)) => Err(VerbsError::State(self.state())),
            _ => Err(VerbsError::Invalid("only a DC target has an access key")),
        }
    }

    /// What people see of it.
    pub fn status(&mut self, shared: &Shared, now: Instant) -> QpStatus {
        let flow = self.flow_status(shared, self.number, now);
        let (posted, receives) = self.held();
        let requester = &self.requester;
        QpStatus {
            number: self.number,
            init: self.init,
            attributes: QpAttributes {
                rq_psn: self.expected_psn(),
                sq_psn: self.next_psn(),
                ..self.attributes
            },
            sends: SendStatus {
                posted,
                oldest: requester.oldest,
                end: requester.end,
                in_flight: requester.in_flight(),
                window: requester.window,
                retries_left: requester.retries_left,
                rnr_retries_left: requester.rnr_retries_left,
                waits_for_receiver: requester.rnr_until.is_some(),
                credits: requester.credits(),
                timers: self.timers(now),
            },
            receives,
            pkey: (self.init.qp_type != QpType::RawPacket).then_some(self.pkey),
            priority: self.priority(),
            rate: self.rate(),
            ceiling: self.ceiling(),
            flow,
            errors: self
                .trouble
                .as_ref()
                .map(|trouble| trouble.errors)
                .unwrap_or_default(),
            path: self.path.as_ref().map(PathStatus::from),
            ways: spread::ways(self, now),
            response_ways: scatter::ways(self, now),
        }
    }

    /// Where its observation begins.
    pub fn whereabouts(&self) -> Whereabouts {
        Whereabouts {
            end: self.requester.end,
            mtu: self.attributes.path_mtu,
        }
    }

    /// PSN it expects, for `query`.
    pub fn expected_psn(&self) -> Psn {
        self.responder.expected_psn()
    }

    /// PSN it sends next, for `query`.
    pub fn next_psn(&self) -> Psn {
        self.requester.next_psn()
    }
}
