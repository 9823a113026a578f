//! Taking in SENDs and WRITEs: the checks of a packet, and where its payload lands (IBTA 9.7.4.1).

use vnic_wire::aeth::NakCode;
use vnic_wire::opcode::Operation;
use vnic_wire::psn::Psn;
use vnic_wire::reth;
use vnic_wire::transport::Extended;

use super::super::super::marks::Mark;
use super::super::super::memory::Memory;
use super::super::super::packet::{Incoming, Payload, SpanList};
use super::super::super::shared::Shared;
use super::super::super::types::{Access, Completion, CompletionOp, MESSAGE_MAX, PdHandle, Sge, Status};
use super::super::{Qp, notes, state};
use super::{Message, Refusal, Target, ahead};

impl Qp {
    /// Takes in a packet of a SEND or WRITE. Nothing has changed for the next packet when it is refused.
    pub(super) fn take_in(
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
        if shared.notes.is_some() {
            notes::receive(self, shared, wr.id);
        }
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
                ..Completion::new(wr.id, wr.tag, self.number, op, Status::Success)
            },
        );
    }

    pub(super) fn check_write(
        &self,
        shared: &Shared,
        pd: PdHandle,
        reth: &reth::Header,
    ) -> Result<(), Refusal> {
        if reth.len > MESSAGE_MAX {
            return Err(Refusal::Nak(NakCode::InvalidRequest));
        }
        if reth.len == 0 {
            return Ok(());
        }
        if !self.attributes.access.contains(Access::REMOTE_WRITE) {
            return Err(Refusal::Nak(NakCode::RemoteAccess));
        }
        let (number, len) = (self.number, reth.len.into());
        shared
            .regions
            .allows(pd, number, reth.rkey, reth.va, len, Access::REMOTE_WRITE)
            .map_err(|code| Self::refusal(shared, code))
    }

    fn land_at_key(
        &self,
        shared: &mut Shared,
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
            .map_err(|code| Self::refusal(shared, code))?;
        let psn = packet.headers.bth.psn;
        ahead::land_below(self, shared, psn, &packet.payload, &spans, memory)
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
            if let Some(missing) = shared.regions.take_missing() {
                return Refusal::Page(missing, true);
            }
            let code = match status {
                Status::LocalLengthError => NakCode::InvalidRequest,
                _ => NakCode::RemoteOperational,
            };
            Refusal::Receive(status, code)
        })
    }

    /// UC: what does not fit is dropped with its message, nobody is told (IBTA 9.8.2.2).
    pub(super) fn respond_unreliably(
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
            self.went_wrong(shared, |errors| &mut errors.out_of_sequence);
        }
        if self.responder.message == Message::None && !operation.starts_message() {
            shared.marks.hit(Mark::UcMessageDropped);
            shared.counters.drop_out_of_sequence += 1;
            return;
        }
        match self.take_in(shared, operation, target, packet, memory) {
            Ok(()) => {
                if shared.notes.is_some() {
                    notes::landed(self, shared, operation, packet, self.attributes.destination_qp);
                }
                return;
            }
            Err(Refusal::NotReady) => {
                shared.marks.hit(Mark::UcNoReceive);
                shared.counters.out_of_buffer += 1;
                self.went_wrong(shared, |errors| &mut errors.out_of_buffer);
            }
            // (Pages on demand are for reliable services.)
            Err(Refusal::Page(_, true)) => {
                self.fail_receive(shared, Status::LocalProtectionError);
                self.fail(shared, state::Trigger::ReceiveError);
            }
            Err(Refusal::Nak(_) | Refusal::Page(..)) => {
                shared.marks.hit(Mark::UcAccessDropped);
                shared.counters.drop_access += 1;
            }
            Err(Refusal::Receive(status, _)) => {
                self.fail_receive(shared, status);
                self.fail(shared, state::Trigger::ReceiveError);
            }
        }
        self.responder.message = Message::None;
    }
}

/// Puts payload into the elements of a receive, `offset` bytes behind their start.
pub(in super::super) fn place(
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
