//! The responder: carries out what the peer asks and answers (IBTA 9.7.4, 9.7.5.1; UC: 9.8.2).
//!
//! Requests are carried out when they arrive. Answers leave in the order of their PSNs: READ responses and atomic
//! results first, the acknowledge or NAK behind them; acknowledges that wait become one.

pub(super) mod ahead;
mod answers;
mod intake;
mod run;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use vnic_wire::aeth::{NakCode, Syndrome};
use vnic_wire::int::{Sign, Telemetry};
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::on_demand::{self, Half, Missing, Verdict};
use super::super::packet::Incoming;
use super::super::pool::{Item, Queue};
use super::super::shared::Shared;
use super::super::types::{
    Completion, CompletionOp, CqHandle, Event, PdHandle, QpInit, QpType, RecvWr, SgList, SrqHandle, Status,
};
use super::{Qp, notes, scatter, state};
use answers::{Answer, Response};
pub(super) use intake::place;

/// The message that is being received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    /// None: the next packet begins one.
    None,
    /// A SEND, with the bytes that have come.
    Send { received: u32 },
    /// A WRITE: where the next packet goes, and what is left.
    Write {
        rkey: u32,
        addr: u64,
        left: u32,
        total: u32,
    },
}

/// The acknowledge that is due.
#[derive(Debug, Clone, Copy)]
struct Reply {
    psn: Psn,
    /// `None`: an ACK with the credits of the moment it leaves.
    refusal: Option<Syndrome>,
}

impl Item for RecvWr {
    #[inline]
    fn release(&mut self) {
        if self.sges.spilled() {
            self.sges = SgList::new();
        }
    }
}

/// Telemetry for the next answer. It is kept when it was sent: the next request brings some again.
#[derive(Debug)]
struct Echo {
    telemetry: Telemetry,
    /// Whether it came with its trailer behind it: the answer has its own there.
    behind: bool,
    /// When the request came.
    came: Instant,
    due: bool,
}

/// The receiving half of a QP.
#[derive(Debug)]
pub(super) struct Responder {
    /// Receives that wait.
    queue: Queue,
    /// The receive that the message in progress takes; one or none.
    current: Queue,
    /// Where it completes.
    current_cq: Option<CqHandle>,
    expected: Psn,
    /// Messages completed (IBTA 9.7.7.1).
    msn: u32,
    /// The first packet was seen.
    pub established: bool,
    /// The peer was told to go back to `expected` (or to wait): nothing more is said until that packet comes.
    told: bool,
    message: Message,
    reply: Option<Reply>,
    responses: VecDeque<Response>,
    /// Results of the last atomics, for peers that ask again.
    atomics: VecDeque<(Psn, u64)>,
    /// Last PSN of the last READ or atomic.
    last_response: Option<Psn>,
    /// What the newest request gathered on its way, until an answer carries it back.
    telemetry: Option<Box<Echo>>,
}

impl Default for Responder {
    fn default() -> Responder {
        Responder {
            queue: Queue::default(),
            current: Queue::default(),
            current_cq: None,
            expected: Psn::new(0),
            msn: 0,
            established: false,
            told: false,
            message: Message::None,
            reply: None,
            responses: VecDeque::new(),
            atomics: VecDeque::new(),
            last_response: None,
            telemetry: None,
        }
    }
}

impl Responder {
    /// Begins at a PSN.
    pub fn start(&mut self, psn: Psn) {
        self.expected = psn;
    }

    /// Is there anything to say?
    pub fn has_answers(&self) -> bool {
        self.reply.is_some() || !self.responses.is_empty()
    }

    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Receives that are posted and not complete.
    pub fn queued(&self) -> u32 {
        self.queue.len() + self.current.len()
    }

    pub fn push(&mut self, shared: &mut Shared, wr: RecvWr) {
        shared.receives.push(&mut self.queue, wr);
    }

    /// Takes a receive off, the one in use first, with the queue that hears of it.
    pub fn take_any(&mut self, shared: &mut Shared, init: &QpInit) -> Option<(RecvWr, CqHandle)> {
        if let Some(wr) = shared.receives.pop(&mut self.current) {
            return Some((wr, self.current_cq.or(init.recv_cq)?));
        }
        let wr = shared.receives.pop(&mut self.queue)?;
        Some((wr, init.recv_cq?))
    }

    /// Takes the oldest receive that waits.
    pub fn take_waiting(&mut self, shared: &mut Shared) -> Option<RecvWr> {
        if shared.withheld() {
            return None;
        }
        shared.receives.pop(&mut self.queue)
    }

    /// The newest request, which came at `now`, gathered this; `None`: its sender wants no telemetry any more.
    #[cold]
    fn keep(&mut self, packet: &Incoming<'_>, now: Instant) {
        let Some(telemetry) = packet.telemetry else {
            self.telemetry = None;
            return;
        };
        let echo = Echo {
            telemetry: *telemetry,
            behind: packet.headers.bth.telemetry == Sign::Behind,
            came: now,
            due: true,
        };
        match &mut self.telemetry {
            Some(kept) => **kept = echo,
            none => *none = Some(Box::new(echo)),
        }
    }

    /// Telemetry for an answer that leaves at `now`, and how it is carried: an acknowledge carries back what the newest request
    /// gathered, and how long it was here; data gathers some itself.
    fn telemetry_of(&mut self, operation: Operation, now: Instant) -> Option<(&Telemetry, Sign)> {
        let echo = self.telemetry.as_deref_mut()?;
        let sign = if echo.behind { Sign::Behind } else { Sign::Carried };
        if operation.is_read_response() {
            return Some((&Telemetry::EMPTY, sign));
        }
        if !core::mem::take(&mut echo.due) {
            return None;
        }
        let waited = u32::try_from(now.since(echo.came).as_nanos()).unwrap_or(u32::MAX);
        echo.telemetry.endpoint = echo.telemetry.endpoint.saturating_add(waited);
        Some((&echo.telemetry, sign))
    }

    /// Forgets all that was to be answered.
    pub fn silence(&mut self) {
        self.reply = None;
        self.responses = VecDeque::new();
    }
}

/// Why a request is not carried out.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The peer did wrong.
    Nak(NakCode),
    /// The receive that it needed failed, and this is how.
    Receive(Status, NakCode),
    /// A page is missing that it needs; of the receive, if so.
    Page(Missing, bool),
}

/// The receive queue that a packet means, and whose keys count.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// Domain of the keys that the peer names.
    pd: PdHandle,
    /// Domain of the keys of the receives.
    receive_pd: PdHandle,
    srq: Option<SrqHandle>,
    cq: CqHandle,
}

impl Qp {
    /// A request came for a connected QP.
    pub(super) fn respond(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) {
        let target = match self.target(shared, packet) {
            Ok(target) => target,
            Err(code) => {
                let psn = packet.headers.bth.psn;
                if psn == self.responder.expected {
                    self.refuse(shared, psn, code);
                }
                return;
            }
        };
        if self.init.qp_type == QpType::Uc {
            return self.respond_unreliably(shared, operation, target, packet, memory);
        }
        let psn = packet.headers.bth.psn;
        if operation == Operation::ReadRequest && (packet.headers.bth.scattered || self.trouble.is_some()) {
            scatter::heard(self, shared, packet);
        }
        match psn.distance(self.responder.expected) {
            0 => {}
            d if d < 0 => return self.duplicate(shared, operation, target, packet),
            _ if packet.headers.bth.selective && self.is_selective(shared) => {
                return ahead::come(self, shared, operation, target, packet, memory);
            }
            _ => return self.out_of_sequence(shared, packet),
        }
        if packet.telemetry.is_some() || self.responder.telemetry.is_some() {
            self.responder.keep(packet, shared.now);
        }
        self.carry_out(shared, operation, target, packet, memory);
        if self.trouble.is_some() {
            ahead::carry_out_kept(self, shared, memory);
        }
    }

    /// Carries out the request whose turn it is.
    fn carry_out(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        target: Target,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) {
        let psn = packet.headers.bth.psn;
        let closes_gap = core::mem::take(&mut self.responder.told);
        // What was to be said about this PSN is out of date.
        if self.responder.reply.is_some_and(|r| r.refusal.is_some()) {
            self.responder.reply = None;
        }
        let outcome = match operation {
            Operation::ReadRequest => self.read(shared, target, packet),
            Operation::CompareSwap | Operation::FetchAdd => {
                self.atomic(shared, operation, target, packet, memory)
            }
            _ => self
                .take_in(shared, operation, target, packet, memory)
                .map(|()| self.accepted(shared, packet, closes_gap)),
        };
        match outcome {
            Ok(()) if operation == Operation::ReadRequest => {}
            Ok(()) if shared.notes.is_none() => {}
            Ok(()) => notes::landed(self, shared, operation, packet, self.attributes.destination_qp),
            Err(Refusal::NotReady) => {
                shared.marks.hit(Mark::RnrNakSent);
                shared.counters.out_of_buffer += 1;
                self.went_wrong(shared, |errors| &mut errors.out_of_buffer);
                self.responder.told = true;
                self.reply(
                    shared,
                    psn,
                    Some(Syndrome::RnrNak {
                        timer: self.attributes.min_rnr_timer,
                    }),
                );
            }
            Err(Refusal::Nak(code)) => self.refuse(shared, psn, code),
            Err(Refusal::Receive(status, code)) => {
                self.fail_receive(shared, status);
                self.refuse(shared, psn, code);
            }
            Err(Refusal::Page(missing, of_receive)) => self.page_is_missing(shared, psn, missing, of_receive),
        }
    }

    /// The request needs a page that is missing: the peer tries again later.
    #[cold]
    fn page_is_missing(&mut self, shared: &mut Shared, psn: Psn, missing: Missing, of_receive: bool) {
        match shared.page_fault(self.number, Half::Responder, missing) {
            Verdict::Wait => {
                let timer = on_demand::rnr_timer(self.attributes.min_rnr_timer);
                self.responder.told = true;
                self.reply(shared, psn, Some(Syndrome::RnrNak { timer }));
            }
            Verdict::Refused if of_receive => {
                self.fail_receive(shared, Status::LocalProtectionError);
                self.refuse(shared, psn, NakCode::RemoteOperational);
            }
            Verdict::Refused => self.refuse(shared, psn, NakCode::RemoteAccess),
        }
    }

    /// Why a key is refused.
    fn refusal(shared: &Shared, code: NakCode) -> Refusal {
        match shared.regions.take_missing() {
            Some(missing) => Refusal::Page(missing, false),
            None => Refusal::Nak(code),
        }
    }

    /// Which receive queue and protection domain count for a packet. An XRC packet may name an SRQ that is not there or
    /// of another domain (annex A14), or one that has failed.
    fn target(&self, shared: &Shared, packet: &Incoming<'_>) -> Result<Target, NakCode> {
        let target = if self.init.qp_type == QpType::XrcTarget {
            let named = packet.headers.xrceth.map(|x| SrqHandle(x.srq));
            named.and_then(|srq| {
                let queue = shared.srqs.get(srq.0)?;
                (queue.xrcd == self.init.xrcd).then_some((queue.pd, queue.pd, Some(srq), queue.cq?))
            })
        } else {
            return self.own_target(shared);
        };
        Self::usable(shared, target)
    }

    /// The same for a packet that names none: what the QP was made with.
    fn own_target(&self, shared: &Shared) -> Result<Target, NakCode> {
        let (init, receive_pd) = (&self.init, self.receive_pd(shared));
        let target = init
            .pd
            .and_then(|pd| Some((pd, receive_pd?, init.srq, init.recv_cq?)));
        Self::usable(shared, target)
    }

    fn usable(
        shared: &Shared,
        target: Option<(PdHandle, PdHandle, Option<SrqHandle>, CqHandle)>,
    ) -> Result<Target, NakCode> {
        let (pd, receive_pd, srq, cq) = target.ok_or(NakCode::InvalidRequest)?;
        let failed = srq
            .and_then(|srq| shared.srqs.get(srq.0))
            .is_some_and(|queue| queue.error);
        if failed {
            return Err(NakCode::RemoteOperational);
        }
        Ok(Target {
            pd,
            receive_pd,
            srq,
            cq,
        })
    }

    /// Domain of the keys of its receives: the SRQ's, if it has one (IBTA 10.2.9.1).
    pub(super) fn receive_pd(&self, shared: &Shared) -> Option<PdHandle> {
        match self.init.srq {
            Some(srq) => Some(shared.srqs.get(srq.0)?.pd),
            None => self.init.pd,
        }
    }

    /// The request was carried out: step on, and acknowledge when asked, or when it is the one that was missing: there
    /// are requesters (Linux rxe) that hear no second NAK before an acknowledge.
    fn accepted(&mut self, shared: &mut Shared, packet: &Incoming<'_>, closes_gap: bool) {
        let psn = packet.headers.bth.psn;
        self.responder.expected = psn.next();
        if packet.headers.bth.spread {
            ahead::came_in_order(self, packet);
        }
        if ahead::has_gaps(self) {
            ahead::closes_gaps(self, shared, psn, packet.headers.bth.ack_request);
        } else if packet.headers.bth.ack_request || closes_gap {
            self.reply(shared, psn, None);
        }
    }

    /// Says `refusal`, or yes, about `psn` when the answers before it are out.
    fn reply(&mut self, shared: &mut Shared, psn: Psn, refusal: Option<Syndrome>) {
        if !self.responder.responses.is_empty() {
            shared.marks.hit(Mark::AckBehindRead);
        } else if self.responder.reply.is_some() && refusal.is_none() {
            shared.marks.hit(Mark::AckHeldBack);
        }
        self.responder.reply = Some(Reply { psn, refusal });
        self.schedule(shared);
    }

    /// A request that is beyond the next: tell the peer once (IBTA 9.7.4.1.1, 9.7.5.1.1).
    fn out_of_sequence(&mut self, shared: &mut Shared, packet: &Incoming<'_>) {
        shared.counters.out_of_sequence += 1;
        self.went_wrong(shared, |errors| &mut errors.out_of_sequence);
        if self.responder.told {
            shared.marks.hit(Mark::SequenceNakHeld);
            return;
        }
        self.responder.told = true;
        shared.marks.hit(Mark::SequenceNakSent);
        self.notify_gap(shared, packet);
        let expected = self.responder.expected;
        self.reply(shared, expected, Some(Syndrome::Nak(NakCode::SequenceError)));
    }

    /// Refuses for good: the peer hears why, this QP is in error (IBTA 9.9.3, classes A, C and D).
    fn refuse(&mut self, shared: &mut Shared, psn: Psn, code: NakCode) {
        let (mark, event) = match code {
            NakCode::RemoteAccess => (Mark::RemoteAccessNak, Event::QpAccessError(self.number)),
            NakCode::InvalidRequest => (Mark::InvalidRequestNak, Event::QpRequestError(self.number)),
            _ => (Mark::RemoteOperationalNak, Event::QpFatal(self.number)),
        };
        shared.marks.hit(mark);
        match code {
            NakCode::RemoteAccess => shared.counters.resp_remote_access_errors += 1,
            _ => shared.counters.resp_remote_invalid_request += 1,
        }
        shared.event(event);
        self.responder.told = true;
        self.reply(shared, psn, Some(Syndrome::Nak(code)));
        self.fail(shared, state::Trigger::ReceiveError);
    }

    /// The receive in use ends in error.
    fn fail_receive(&mut self, shared: &mut Shared, status: Status) {
        if status == Status::LocalLengthError {
            shared.marks.hit(Mark::ReceiveTooShort);
        }
        if !self.current_is_empty()
            && let Some((wr, cq)) = self.responder.take_any(shared, &self.init)
        {
            shared.counters.responder_error(status);
            shared.complete(
                cq,
                Completion::new(wr.id, wr.tag, self.number, CompletionOp::Recv, status),
            );
        }
    }

    fn current_is_empty(&self) -> bool {
        self.responder.current.len() == 0
    }

    /// A request that was carried out before (IBTA 9.7.5.1.3).
    fn duplicate(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        target: Target,
        packet: &Incoming<'_>,
    ) {
        shared.counters.duplicate_request += 1;
        self.went_wrong(shared, |errors| &mut errors.duplicate_request);
        let psn = packet.headers.bth.psn;
        match (operation, packet.headers.extended) {
            (Operation::ReadRequest, Extended::Reth(reth)) => {
                shared.marks.hit(Mark::DuplicateRead);
                let psns = self.read_psns(reth.len);
                let allowed = self
                    .check_read(shared, target.pd, &reth)
                    .is_ok_and(|()| psn.add(psns - 1).before(self.responder.expected));
                if let Some(missing) = shared.regions.take_missing() {
                    // It is asked for again when the peer does.
                    shared.page_fault(self.number, Half::Responder, missing);
                }
                if allowed {
                    let selective = packet.headers.bth.selective && self.is_selective(shared);
                    self.replay(
                        shared,
                        psn,
                        psns,
                        selective,
                        Answer::Read {
                            pd: target.pd,
                            rkey: reth.rkey,
                            addr: reth.va,
                            len: reth.len,
                        },
                    );
                }
            }
            (Operation::CompareSwap | Operation::FetchAdd, _) => {
                let known = self.responder.atomics.iter().find(|(p, _)| *p == psn);
                match known.copied() {
                    Some((_, original)) => {
                        shared.marks.hit(Mark::AtomicReplay);
                        self.replay(shared, psn, 1, false, Answer::Atomic { original });
                    }
                    None => shared.marks.hit(Mark::DuplicateForgotten),
                }
            }
            _ => {
                shared.marks.hit(if operation.is_write() {
                    Mark::DuplicateWrite
                } else {
                    Mark::DuplicateSend
                });
                if ahead::has_gaps(self) {
                    return ahead::duplicate(self, shared, packet);
                }
                // What was said about the next PSN stays true.
                if self.responder.reply.is_some_and(|r| r.refusal.is_some()) {
                    return;
                }
                // Acknowledging beyond a READ whose response was lost would look like one that is missing.
                let answered_since = self.responder.last_response.is_some_and(|r| psn.before(r));
                let up_to = if answered_since {
                    psn
                } else {
                    self.responder.expected.sub(1)
                };
                let further = self.responder.reply.is_none_or(|r| r.psn.before(up_to));
                if packet.headers.bth.ack_request && further {
                    self.reply(shared, up_to, None);
                }
            }
        }
    }
}
