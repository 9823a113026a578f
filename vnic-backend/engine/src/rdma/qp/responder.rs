//! The responder: carries out what the peer asks and answers (IBTA 9.7.4, 9.7.5.1; UC: 9.8.2).
//!
//! Requests are carried out when they arrive. Answers leave in the order of their PSNs: READ responses and atomic
//! results first, the acknowledge or NAK behind them; acknowledges that wait become one.

use alloc::collections::VecDeque;

use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::opcode::{Opcode, Operation};
use vnic_wire::psn::Psn;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{atomiceth, bth, reth};

use super::super::marks::Mark;
use super::super::memory::Memory;
use super::super::packet::{Incoming, Outgoing, Payload, Sink, SpanList};
use super::super::pool::Queue;
use super::super::shared::Shared;
use super::super::types::{
    Access, Completion, CompletionOp, CqHandle, Event, MESSAGE_MAX, PdHandle, QpInit, QpType, RecvWr, Sge,
    SrqHandle, Status,
};
use super::{Qp, state};

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

/// An answer that carries data.
#[derive(Debug, Clone, Copy)]
struct Response {
    /// PSN of its first packet.
    first: Psn,
    /// Packets.
    psns: u32,
    /// Packets that were sent.
    sent: u32,
    /// MSN that it reports.
    msn: u32,
    /// It was answered before.
    replay: bool,
    what: Answer,
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Read {
        pd: PdHandle,
        rkey: u32,
        addr: u64,
        len: u32,
    },
    Atomic {
        original: u64,
    },
}

impl Response {
    fn holds(&self, psn: Psn) -> bool {
        u32::try_from(psn.distance(self.first)).is_ok_and(|d| d < self.psns)
    }
}

/// The acknowledge that is due.
#[derive(Debug, Clone, Copy)]
struct Reply {
    psn: Psn,
    /// `None`: an ACK with the credits of the moment it leaves.
    refusal: Option<Syndrome>,
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
        }
    }
}

impl Responder {
    /// Begins at a PSN.
    pub fn start(&mut self, psn: Psn) {
        self.expected = psn;
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
        shared.receives.pop(&mut self.queue)
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
        let Some(target) = self.target(shared, packet) else {
            // An XRC packet for an SRQ that is not there, or of another domain (annex A14).
            let psn = packet.headers.bth.psn;
            if psn == self.responder.expected {
                self.refuse(shared, psn, NakCode::InvalidRequest);
            }
            return;
        };
        if self.init.qp_type == QpType::Uc {
            return self.respond_unreliably(shared, operation, target, packet, memory);
        }
        let psn = packet.headers.bth.psn;
        match psn.distance(self.responder.expected) {
            0 => {}
            d if d < 0 => return self.duplicate(shared, operation, target, packet),
            _ => return self.out_of_sequence(shared),
        }
        self.responder.told = false;
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
                .map(|()| self.accepted(shared, packet)),
        };
        match outcome {
            Ok(()) => {}
            Err(Refusal::NotReady) => {
                shared.marks.hit(Mark::RnrNakSent);
                shared.counters.out_of_buffer += 1;
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
        }
    }

    /// Which receive queue and protection domain count for a packet.
    fn target(&self, shared: &Shared, packet: &Incoming<'_>) -> Option<Target> {
        if self.init.qp_type == QpType::XrcTarget {
            let srq = SrqHandle(packet.headers.xrceth?.srq);
            let queue = shared.srqs.get(srq.0)?;
            return (queue.xrcd == self.init.xrcd).then_some(Target {
                pd: queue.pd,
                receive_pd: queue.pd,
                srq: Some(srq),
                cq: queue.cq?,
            });
        }
        Some(Target {
            pd: self.init.pd?,
            receive_pd: self.receive_pd(shared)?,
            srq: self.init.srq,
            cq: self.init.recv_cq?,
        })
    }

    /// Domain of the keys of its receives: the SRQ's, if it has one (IBTA 10.2.9.1).
    pub(super) fn receive_pd(&self, shared: &Shared) -> Option<PdHandle> {
        match self.init.srq {
            Some(srq) => Some(shared.srqs.get(srq.0)?.pd),
            None => self.init.pd,
        }
    }

    /// The request was carried out: step on, and acknowledge when asked.
    fn accepted(&mut self, shared: &mut Shared, packet: &Incoming<'_>) {
        let psn = packet.headers.bth.psn;
        self.responder.expected = psn.next();
        if packet.headers.bth.ack_request {
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
    fn out_of_sequence(&mut self, shared: &mut Shared) {
        shared.counters.out_of_sequence += 1;
        if self.responder.told {
            shared.marks.hit(Mark::SequenceNakHeld);
            return;
        }
        self.responder.told = true;
        shared.marks.hit(Mark::SequenceNakSent);
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
                Completion::new(wr.id, self.number, CompletionOp::Recv, status),
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
        let psn = packet.headers.bth.psn;
        match (operation, packet.headers.extended) {
            (Operation::ReadRequest, Extended::Reth(reth)) => {
                shared.marks.hit(Mark::DuplicateRead);
                let psns = self.read_psns(reth.len);
                let allowed = self
                    .check_read(shared, target.pd, &reth)
                    .is_ok_and(|()| psn.add(psns - 1).before(self.responder.expected));
                if allowed {
                    self.replay(
                        shared,
                        psn,
                        psns,
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
                        self.replay(shared, psn, 1, Answer::Atomic { original });
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

    /// Answers again, in the order of PSNs.
    fn replay(&mut self, shared: &mut Shared, psn: Psn, psns: u32, what: Answer) {
        let msn = self.responder.msn;
        let limit = 2 * usize::from(self.attributes.max_dest_rd_atomic.max(1));
        let responses = &mut self.responder.responses;
        if let Some(there) = responses.iter_mut().find(|r| r.holds(psn)) {
            // It is being answered: begin again where the peer asks.
            if there.first != psn {
                shared.marks.hit(Mark::ReadReplayPartial);
            }
            let from = psn.distance(there.first).max(0) as u32;
            there.sent = there.sent.min(from);
        } else if responses.len() < limit {
            let at = responses
                .iter()
                .position(|r| psn.before(r.first))
                .unwrap_or(responses.len());
            responses.insert(
                at,
                Response {
                    first: psn,
                    psns,
                    sent: 0,
                    msn,
                    replay: true,
                    what,
                },
            );
        }
        self.schedule(shared);
    }

    /// Room for one more READ or atomic? Those that are answered again make room.
    fn make_room(&mut self, shared: &mut Shared) -> Result<(), Refusal> {
        let limit = usize::from(self.attributes.max_dest_rd_atomic);
        let responses = &mut self.responder.responses;
        if responses.iter().filter(|r| !r.replay).count() >= limit {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if responses.len() >= 2 * limit
            && let Some(at) = responses.iter().position(|r| r.replay)
        {
            shared.marks.hit(Mark::ReadResponseAborted);
            responses.remove(at);
        }
        Ok(())
    }

    fn read_psns(&self, len: u32) -> u32 {
        len.div_ceil(self.attributes.path_mtu.bytes()).max(1)
    }

    fn check_read(&self, shared: &Shared, pd: PdHandle, reth: &reth::Header) -> Result<(), NakCode> {
        if reth.len > MESSAGE_MAX {
            return Err(NakCode::InvalidRequest);
        }
        if reth.len == 0 {
            return Ok(());
        }
        if !self.attributes.access.contains(Access::REMOTE_READ) {
            return Err(NakCode::RemoteAccess);
        }
        let mut spans = SpanList::new();
        shared.regions.remote(
            pd,
            self.number,
            reth.rkey,
            reth.va,
            reth.len.into(),
            Access::REMOTE_READ,
            &mut spans,
        )
    }

    fn between_messages(&self) -> Result<(), Refusal> {
        match self.responder.message {
            Message::None => Ok(()),
            _ => Err(Refusal::Nak(NakCode::InvalidRequest)),
        }
    }

    fn read(&mut self, shared: &mut Shared, target: Target, packet: &Incoming<'_>) -> Result<(), Refusal> {
        self.between_messages()?;
        let Extended::Reth(reth) = packet.headers.extended else {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        };
        shared.counters.rx_read_requests += 1;
        self.make_room(shared)?;
        self.check_read(shared, target.pd, &reth).map_err(Refusal::Nak)?;
        let psns = self.read_psns(reth.len);
        let answer = Answer::Read {
            pd: target.pd,
            rkey: reth.rkey,
            addr: reth.va,
            len: reth.len,
        };
        self.answer(shared, packet.headers.bth.psn, psns, answer);
        Ok(())
    }

    fn atomic(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        target: Target,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) -> Result<(), Refusal> {
        self.between_messages()?;
        let Extended::Atomic(atomiceth::Header {
            va,
            rkey,
            swap_or_add,
            compare,
        }) = packet.headers.extended
        else {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        };
        shared.counters.rx_atomic_requests += 1;
        self.make_room(shared)?;
        // IBTA 9.4.5: the address is a multiple of 8.
        if va % 8 != 0 {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if !self.attributes.access.contains(Access::REMOTE_ATOMIC) {
            return Err(Refusal::Nak(NakCode::RemoteAccess));
        }
        let mut spans = SpanList::new();
        shared
            .regions
            .remote(
                target.pd,
                self.number,
                rkey,
                va,
                8,
                Access::REMOTE_ATOMIC,
                &mut spans,
            )
            .map_err(Refusal::Nak)?;
        let operational = Refusal::Nak(NakCode::RemoteOperational);
        // Pages that are cut elsewhere than at multiples of 8 have no atomics.
        let [span] = spans.as_slice() else {
            return Err(operational);
        };
        if span.at % 8 != 0 {
            return Err(operational);
        }
        let change: &dyn Fn(u64) -> u64 = if operation == Operation::FetchAdd {
            &|old| old.wrapping_add(swap_or_add)
        } else {
            &|old| if old == compare { swap_or_add } else { old }
        };
        let original = memory.atomic(span.at, change).map_err(|_| operational)?;
        let psn = packet.headers.bth.psn;
        let kept = usize::from(self.attributes.max_dest_rd_atomic);
        while self.responder.atomics.len() >= kept {
            self.responder.atomics.pop_front();
        }
        self.responder.atomics.push_back((psn, original));
        self.answer(shared, psn, 1, Answer::Atomic { original });
        Ok(())
    }

    /// A READ or atomic will be answered.
    fn answer(&mut self, shared: &mut Shared, psn: Psn, psns: u32, what: Answer) {
        let responder = &mut self.responder;
        responder.msn = Psn::new(responder.msn).next().value();
        responder.expected = psn.add(psns);
        responder.last_response = Some(psn.add(psns - 1));
        // The response acknowledges what was before it.
        responder.reply = None;
        responder.responses.push_back(Response {
            first: psn,
            psns,
            sent: 0,
            msn: responder.msn,
            replay: false,
            what,
        });
        self.schedule(shared);
    }

    /// Takes in a packet of a SEND or WRITE. Nothing has changed for the next packet when it is refused.
    fn take_in(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        target: Target,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) -> Result<(), Refusal> {
        const INVALID: Refusal = Refusal::Nak(NakCode::InvalidRequest);
        let bytes = packet.payload.len() as u32;
        let mtu = self.attributes.path_mtu.bytes();
        // IBTA 9.7.4.1.2 and 9.7.4.1.6: the order of opcodes, and the lengths that go with them.
        let begins = operation.starts_message();
        let ends = operation.ends_message();
        let fits = match (begins, ends) {
            (true, true) => bytes <= mtu,
            (false, true) => (1..=mtu).contains(&bytes),
            (_, false) => bytes == mtu,
        };
        let follows = match self.responder.message {
            Message::None => begins,
            Message::Send { .. } => !begins && operation.is_send(),
            Message::Write { .. } => !begins && operation.is_write(),
        };
        if !fits || !follows {
            return Err(INVALID);
        }
        let message = match (operation.is_write(), begins, packet.headers.extended) {
            (true, true, Extended::Reth(reth) | Extended::RethImm(reth, _)) => {
                shared.counters.rx_write_requests += 1;
                self.check_write(shared, target.pd, &reth)?;
                Message::Write {
                    rkey: reth.rkey,
                    addr: reth.va,
                    left: reth.len,
                    total: reth.len,
                }
            }
            (true, true, _) => return Err(INVALID),
            (false, true, _) => Message::Send { received: 0 },
            (_, false, _) => self.responder.message,
        };
        let takes_receive = operation.is_send() || (ends && operation.has_imm());
        if takes_receive && !self.take_receive(shared, target) {
            return Err(Refusal::NotReady);
        }
        let (next, total) = match message {
            Message::Send { received } => {
                self.land_in_receive(shared, target, received, packet, memory)?;
                let received = received.saturating_add(bytes);
                (Message::Send { received }, received)
            }
            Message::Write {
                rkey,
                addr,
                left,
                total,
            } => {
                if bytes > left || (ends && bytes != left) {
                    return Err(INVALID);
                }
                self.land_at_key(shared, target.pd, rkey, addr, packet, memory)?;
                let next = Message::Write {
                    rkey,
                    addr: addr.wrapping_add(bytes.into()),
                    left: left - bytes,
                    total,
                };
                (next, total)
            }
            Message::None => return Err(INVALID),
        };
        let mut invalidated = None;
        if let Extended::Ieth(key) = packet.headers.extended {
            match shared.regions.invalidate_remote(target.pd, self.number, key) {
                Ok(()) => {
                    shared.marks.hit(Mark::InvalidateRemote);
                    invalidated = Some(key);
                }
                Err(code) => {
                    shared.marks.hit(Mark::InvalidateRefused);
                    return Err(Refusal::Receive(Status::LocalAccessError, code));
                }
            }
        }
        if !ends {
            self.responder.message = next;
            return Ok(());
        }
        self.responder.message = Message::None;
        self.responder.msn = Psn::new(self.responder.msn).next().value();
        if takes_receive {
            let op = match next {
                Message::Write { .. } => CompletionOp::RecvWriteImm,
                _ => CompletionOp::Recv,
            };
            self.complete_receive(shared, packet, op, total, invalidated);
        }
        Ok(())
    }

    fn complete_receive(
        &mut self,
        shared: &mut Shared,
        packet: &Incoming<'_>,
        op: CompletionOp,
        byte_len: u32,
        invalidated: Option<u32>,
    ) {
        let Some((wr, cq)) = self.responder.take_any(shared, &self.init) else {
            return;
        };
        let imm = match packet.headers.extended {
            Extended::Imm(imm) | Extended::RethImm(_, imm) => Some(imm),
            _ => None,
        };
        shared.complete(
            cq,
            Completion {
                byte_len,
                imm,
                invalidated,
                solicited: packet.headers.bth.solicited,
                ..Completion::new(wr.id, self.number, op, Status::Success)
            },
        );
    }

    fn check_write(&self, shared: &Shared, pd: PdHandle, reth: &reth::Header) -> Result<(), Refusal> {
        if reth.len > MESSAGE_MAX {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if reth.len == 0 {
            return Ok(());
        }
        if !self.attributes.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Nak(NakCode::RemoteAccess));
        }
        let mut spans = SpanList::new();
        shared
            .regions
            .remote(
                pd,
                self.number,
                reth.rkey,
                reth.va,
                reth.len.into(),
                Access::REMOTE_WRITE,
                &mut spans,
            )
            .map_err(Refusal::Nak)
    }

    fn land_at_key(
        &self,
        shared: &Shared,
        pd: PdHandle,
        rkey: u32,
        addr: u64,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) -> Result<(), Refusal> {
        let len = packet.payload.len() as u64;
        if len == 0 {
            return Ok(());
        }
        let mut spans = SpanList::new();
        shared
            .regions
            .remote(pd, self.number, rkey, addr, len, Access::REMOTE_WRITE, &mut spans)
            .map_err(Refusal::Nak)?;
        packet
            .payload
            .land(memory, &spans)
            .map_err(|_| Refusal::Nak(NakCode::RemoteOperational))
    }

    /// Sees to it that there is a receive in use.
    fn take_receive(&mut self, shared: &mut Shared, target: Target) -> bool {
        if !self.current_is_empty() {
            return true;
        }
        let wr = match target.srq {
            Some(srq) => shared.take_shared_receive(srq),
            None => self.responder.take_waiting(shared),
        };
        let Some(wr) = wr else { return false };
        shared.receives.push(&mut self.responder.current, wr);
        self.responder.current_cq = Some(target.cq);
        true
    }

    /// Puts payload into the receive in use, `offset` bytes behind its start.
    fn land_in_receive(
        &self,
        shared: &Shared,
        target: Target,
        offset: u32,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) -> Result<(), Refusal> {
        let payload = &packet.payload;
        let Some(wr) = shared.receives.get(self.responder.current.head()) else {
            return Err(Refusal::NotReady);
        };
        place(
            shared,
            target.receive_pd,
            &wr.sges,
            offset.into(),
            payload,
            memory,
        )
        .map_err(|status| {
            let code = match status {
                Status::LocalLengthError => NakCode::InvalidRequest,
                _ => NakCode::RemoteOperational,
            };
            Refusal::Receive(status, code)
        })
    }

    /// UC: what does not fit is dropped with its message, nobody is told (IBTA 9.8.2.2).
    fn respond_unreliably(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        target: Target,
        packet: &Incoming<'_>,
        memory: &dyn Memory,
    ) {
        let psn = packet.headers.bth.psn;
        let gap = psn != self.responder.expected;
        self.responder.expected = psn.next();
        let broken = self.responder.message != Message::None && (gap || operation.starts_message());
        if broken {
            self.responder.message = Message::None;
        }
        if gap {
            shared.counters.out_of_sequence += 1;
        }
        if self.responder.message == Message::None && !operation.starts_message() {
            shared.marks.hit(Mark::UcMessageDropped);
            return;
        }
        match self.take_in(shared, operation, target, packet, memory) {
            Ok(()) => return,
            Err(Refusal::NotReady) => {
                shared.marks.hit(Mark::UcNoReceive);
                shared.counters.out_of_buffer += 1;
            }
            Err(Refusal::Nak(_)) => shared.marks.hit(Mark::UcAccessDropped),
            Err(Refusal::Receive(status, _)) => {
                self.fail_receive(shared, status);
                self.fail(shared, state::Trigger::ReceiveError);
            }
        }
        self.responder.message = Message::None;
    }

    /// Sends one response or acknowledge, if one is due.
    pub(super) fn send_response(
        &mut self,
        shared: &mut Shared,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> bool {
        if let Some(response) = self.responder.responses.front().copied() {
            return self.send_data(shared, response, memory, sink);
        }
        let Some(reply) = self.responder.reply.take() else {
            return false;
        };
        let syndrome = reply.refusal.unwrap_or_else(|| self.ack());
        let aeth = aeth::Header {
            syndrome,
            msn: self.responder.msn,
        };
        self.send_back(
            shared,
            Operation::Acknowledge,
            reply.psn,
            Extended::Aeth(aeth),
            Payload::NONE,
            sink,
        );
        true
    }

    /// ACK with the receives that are posted, if they are this QP's alone (IBTA 9.7.7.2).
    fn ack(&self) -> Syndrome {
        let credits = match self.init.srq {
            None if self.init.qp_type == QpType::Rc => aeth::credit_code(self.responder.queued()),
            _ => aeth::CREDITS_INVALID,
        };
        Syndrome::Ack { credits }
    }

    fn send_data(
        &mut self,
        shared: &mut Shared,
        response: Response,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> bool {
        let aeth = aeth::Header {
            syndrome: self.ack(),
            msn: response.msn,
        };
        let psn = response.first.add(response.sent);
        let last = response.sent + 1 >= response.psns;
        let mut spans = SpanList::new();
        let (operation, extended, payload) = match response.what {
            Answer::Atomic { original } => (
                Operation::AtomicAcknowledge,
                Extended::AtomicAck(aeth, original),
                Payload::NONE,
            ),
            Answer::Read { pd, rkey, addr, len } => {
                let mtu = self.attributes.path_mtu.bytes();
                let offset = response.sent * mtu;
                let bytes = (len - offset.min(len)).min(mtu);
                let (operation, with_aeth) = match (response.sent == 0, last) {
                    (true, true) => (Operation::ReadResponseOnly, true),
                    (true, false) => (Operation::ReadResponseFirst, true),
                    (false, false) => (Operation::ReadResponseMiddle, false),
                    (false, true) => (Operation::ReadResponseLast, true),
                };
                let found = match bytes {
                    0 => Ok(()),
                    _ => shared.regions.remote(
                        pd,
                        self.number,
                        rkey,
                        addr.wrapping_add(offset.into()),
                        bytes.into(),
                        Access::REMOTE_READ,
                        &mut spans,
                    ),
                };
                if let Err(code) = found {
                    // The key was withdrawn while it was being read.
                    self.responder.responses.clear();
                    shared.marks.hit(Mark::ReadResponseAborted);
                    self.refuse(shared, psn, code);
                    return true;
                }
                (
                    operation,
                    if with_aeth {
                        Extended::Aeth(aeth)
                    } else {
                        Extended::None
                    },
                    Payload::Spans {
                        memory,
                        spans: &spans,
                    },
                )
            }
        };
        self.send_back(shared, operation, psn, extended, payload, sink);
        if last {
            self.responder.responses.pop_front();
        } else if let Some(front) = self.responder.responses.front_mut() {
            front.sent += 1;
        }
        true
    }

    fn send_back(
        &self,
        shared: &mut Shared,
        operation: Operation,
        psn: Psn,
        extended: Extended,
        payload: Payload<'_>,
        sink: &mut dyn Sink,
    ) {
        let Some(path) = &self.path else { return };
        let headers = Headers {
            bth: bth::Header {
                opcode: Opcode::new(self.transport(), operation),
                solicited: false,
                migrated: true,
                pad: ((payload.len() as u32).wrapping_neg() & 3) as u8,
                version: 0,
                pkey: shared.pkey(self.attributes.pkey_index),
                fecn: false,
                becn: false,
                destination_qp: self.attributes.destination_qp.0,
                ack_request: false,
                psn,
            },
            xrceth: None,
            extended,
        };
        sink.send(&Outgoing {
            from: self.number,
            path,
            headers,
            payload,
        });
        shared.counters.sent(path, &headers, payload.len());
    }
}

/// Puts payload into the elements of a receive, `offset` bytes behind their start.
pub(super) fn place(
    shared: &Shared,
    pd: PdHandle,
    sges: &[Sge],
    offset: u64,
    payload: &Payload<'_>,
    memory: &dyn Memory,
) -> Result<(), Status> {
    let len = payload.len() as u64;
    if len == 0 {
        return Ok(());
    }
    let mut spans = SpanList::new();
    shared
        .regions
        .local(pd, sges, offset, len, Access::LOCAL_WRITE, &mut spans)?;
    payload
        .land(memory, &spans)
        .map_err(|_| Status::LocalProtectionError)
}
