//! Answers that carry data: READ responses and atomic results, and the order in which all answers leave.

use vnic_wire::aeth::{self, NakCode, Syndrome};
use vnic_wire::int::Sign;
use vnic_wire::opcode::{Opcode, Operation};
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::{atomiceth, bth, reth};

use super::super::super::marks::Mark;
use super::super::super::memory::Memory;
use super::super::super::on_demand::{self, Half, Verdict};
use super::super::super::packet::{Incoming, Outgoing, Payload, Sink, SpanList};
use super::super::super::shared::Shared;
use super::super::super::types::{Access, MESSAGE_MAX, PdHandle, QpType};
use super::super::spread;
use super::super::{Qp, notes};
use super::{Message, Refusal, Target, ahead};

/// An answer that carries data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Response {
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
    /// The rest of the READ is being answered already, so that it does not end here.
    goes_on: bool,
    what: Answer,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Answer {
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

impl Qp {
    /// Answers again, in the order of PSNs. `selective`: the peer misses that part of the answer and nothing else, so that it comes
    /// before what else is due.
    pub(super) fn replay(
        &mut self,
        shared: &mut Shared,
        psn: Psn,
        mut psns: u32,
        selective: bool,
        what: Answer,
    ) {
        let msn = self.responder.msn;
        let limit = 2 * usize::from(self.attributes.max_dest_rd_atomic.max(1));
        let responses = &mut self.responder.responses;
        let mut under_way = responses.iter_mut().find(|r| r.holds(psn));
        let mut goes_on = false;
        if selective && let Some(there) = &under_way {
            let reached = there.first.add(there.sent);
            if !psn.before(reached) {
                // It will come.
                return self.schedule(shared);
            }
            let answered = reached.distance(psn).max(0) as u32;
            (psns, goes_on) = (psns.min(answered), psns > answered);
            under_way = None;
            shared.marks.hit(Mark::ReadGapAnswered);
        }
        if let Some(there) = under_way {
            // It is being answered: begin again where the peer asks.
            if there.first != psn {
                shared.marks.hit(Mark::ReadReplayPartial);
            }
            let from = psn.distance(there.first).max(0) as u32;
            there.sent = there.sent.min(from);
        } else if responses.len() < limit {
            let at = responses
                .iter()
                .position(|r| psn.before(r.first) || (selective && !(r.replay && r.first.before(psn))))
                .unwrap_or(responses.len());
            responses.insert(
                at,
                Response {
                    first: psn,
                    psns,
                    sent: 0,
                    msn,
                    replay: true,
                    goes_on,
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

    pub(super) fn read_psns(&self, len: u32) -> u32 {
        len.div_ceil(self.attributes.path_mtu.bytes()).max(1)
    }

    pub(super) fn check_read(
        &self,
        shared: &Shared,
        pd: PdHandle,
        reth: &reth::Header,
    ) -> Result<(), NakCode> {
        if reth.len > MESSAGE_MAX {
            return Err(NakCode::InvalidRequest);
        }
        if reth.len == 0 {
            return Ok(());
        }
        if !self.attributes.access.contains(Access::REMOTE_READ) {
            return Err(NakCode::RemoteAccess);
        }
        let (number, len) = (self.number, reth.len.into());
        shared
            .regions
            .allows(pd, number, reth.rkey, reth.va, len, Access::REMOTE_READ)
    }

    fn between_messages(&self) -> Result<(), Refusal> {
        match self.responder.message {
            Message::None => Ok(()),
            _ => Err(Refusal::Nak(NakCode::InvalidRequest)),
        }
    }

    pub(super) fn read(
        &mut self,
        shared: &mut Shared,
        target: Target,
        packet: &Incoming<'_>,
    ) -> Result<(), Refusal> {
        self.between_messages()?;
        let Extended::Reth(reth) = packet.headers.extended else {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        };
        shared.counters.rx_read_requests += 1;
        self.make_room(shared)?;
        self.check_read(shared, target.pd, &reth)
            .map_err(|code| Self::refusal(shared, code))?;
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

    pub(super) fn atomic(
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
            .map_err(|code| Self::refusal(shared, code))?;
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
            goes_on: false,
            what,
        });
        if ahead::has_gaps(self) {
            ahead::closes_gaps(self, shared, psn, false);
        }
        self.schedule(shared);
    }

    /// Sends one response or acknowledge, if one is due.
    #[inline(always)]
    pub(in super::super) fn send_response(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
    ) -> bool {
        if self.trouble.is_some() && ahead::tells_first(self) {
            ahead::tell(self, shared, sink);
            return true;
        }
        if let Some(response) = self.responder.responses.front().copied() {
            let limited = self.pace.is_some() && matches!(response.what, Answer::Read { .. });
            if limited && self.response_waits(shared, now) {
                return false;
            }
            let before = shared.counters.bytes_sent();
            let sent = self.send_data(shared, response, memory, sink);
            if limited {
                self.charge_response(shared, now, response, before);
            }
            return sent;
        }
        let Some(reply) = self.responder.reply.take() else {
            return false;
        };
        let syndrome = reply.refusal.unwrap_or_else(|| self.ack());
        if syndrome == Syndrome::Nak(NakCode::SequenceError) && ahead::has_gaps(self) {
            ahead::tell(self, shared, sink);
            return true;
        }
        if matches!(syndrome, Syndrome::RnrNak { .. }) {
            shared.counters.resp_rnr_nak += 1;
        }
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

    #[inline(always)]
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
                let (operation, with_aeth) = match (response.sent == 0, last && !response.goes_on) {
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
                    if let Some(missing) = shared.regions.take_missing()
                        && shared.page_fault(self.number, Half::Responder, missing) == Verdict::Wait
                    {
                        let until = shared.now + on_demand::HELD;
                        shared.timers.arm(&mut self.timer, self.number, until);
                        return false;
                    }
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
            if shared.notes.is_some()
                && let Answer::Read { len, .. } = response.what
            {
                notes::read(self, shared, response.first, len);
            }
            self.responder.responses.pop_front();
        } else if let Some(front) = self.responder.responses.front_mut() {
            front.sent += 1;
        }
        true
    }

    /// A READ response of a flow was sent.
    fn charge_response(&mut self, shared: &Shared, now: Instant, response: Response, before: u64) {
        let Answer::Read { len, .. } = response.what else {
            return;
        };
        let mtu = self.attributes.path_mtu.bytes();
        let payload = len.saturating_sub(response.sent * mtu).min(mtu);
        let frame = shared.counters.bytes_sent() - before;
        if frame > 0 {
            self.charge_flow(now, payload, frame);
        }
    }

    pub(super) fn send_back(
        &mut self,
        shared: &mut Shared,
        operation: Operation,
        psn: Psn,
        extended: Extended,
        payload: Payload<'_>,
        sink: &mut dyn Sink,
    ) {
        let way = match &mut self.trouble {
            Some(trouble) if operation.is_read_response() => {
                let scatter = trouble.scatter.as_deref_mut();
                scatter.map(|scatter| scatter.leaves(shared, psn))
            }
            _ => None,
        };
        let Some(path) = &self.path else { return };
        let other;
        let path = match way {
            Some(way @ 1..) => {
                other = spread::by(path, way);
                &other
            }
            _ => path,
        };
        let opcode = Opcode::new(self.transport(), operation);
        let telemetry = self.responder.telemetry_of(operation, shared.now);
        let headers = Headers {
            bth: bth::Header {
                pkey: self.pkey,
                telemetry: match telemetry {
                    Some((_, sign)) if shared.trailers => sign,
                    _ => Sign::None,
                },
                pad: ((payload.len() as u32).wrapping_neg() & 3) as u8,
                selective: shared.congestion.zero_touch.selective,
                spread: shared.congestion.zero_touch.selective,
                scattered: way.is_some(),
                ..bth::Header::new(opcode, self.attributes.destination_qp.0, psn)
            },
            xrceth: None,
            dceth: None,
            extended,
        };
        sink.send(&Outgoing {
            from: self.number,
            priority: self.priority,
            path,
            headers,
            payload,
            telemetry: telemetry.map(|(telemetry, _)| telemetry),
        });
        shared.counters.sent(path, &headers, payload.len());
    }
}
