//! Raw packet queue pairs: a work request is a whole frame (`ibv_create_qp(3)`, `IBV_QPT_RAW_PACKET`).

use core::ops::RangeInclusive;

use vnic_wire::time::Instant;

use super::super::memory::Memory;
use super::super::packet::{IncomingFrame, OutgoingFrame, Payload, Sink, SpanList};
use super::super::shared::Shared;
use super::super::types::{Access, Completion, CompletionOp, Origin, SendData, SendFlags, Status};
use super::requester::Turn;
use super::{Qp, notes, responder, state};

/// Bytes of a frame: an Ethernet header at least, and at most 64 KiB of IP behind a header with two tags.
const LEN: RangeInclusive<u64> = 14..=65_535 + 22;

/// Sends the frame at the cursor.
pub(super) fn send(
    of: &mut Qp,
    shared: &mut Shared,
    slot: u32,
    memory: &dyn Memory,
    now: Instant,
    sink: &mut dyn Sink,
) -> Turn {
    let (Some(wqe), Some(pd)) = (shared.sends.get(slot), of.init.pd) else {
        return Turn::Blocked;
    };
    let len = wqe.len;
    let segment = wqe.wr.segment().map(u16::try_from).transpose();
    let (true, Ok(segment)) = (LEN.contains(&len), segment) else {
        of.end_request(shared, slot, Status::LocalLengthError);
        return Turn::Next;
    };
    let mut spans = SpanList::new();
    let bytes = match &wqe.wr.data {
        SendData::Inline(bytes) => Payload::Bytes(bytes),
        SendData::Sges(sges) => {
            let found = shared
                .regions
                .local(pd, sges, 0, len, Access::empty(), &mut spans);
            if let Err(status) = found {
                let _ = shared.regions.take_missing();
                of.end_request(shared, slot, status);
                return Turn::Next;
            }
            Payload::Spans {
                memory,
                spans: &spans,
            }
        }
    };
    let sent = sink.send_frame(&OutgoingFrame {
        from: of.number,
        bytes,
        checksum: wqe.wr.flags.contains(SendFlags::CHECKSUM),
        segment,
    });
    if let Err(priority) = sent {
        of.priority = priority & 7;
        return Turn::Aside;
    }
    shared.counters.raw_tx_packets += 1;
    shared.counters.raw_tx_bytes += len;
    if let Some(pace) = &mut of.pace {
        pace.payload = len as u32;
    }
    of.datagram_sent(shared, slot, now);
    Turn::Sent
}

/// A frame came.
pub(super) fn receive(of: &mut Qp, shared: &mut Shared, frame: IncomingFrame<'_>, memory: &dyn Memory) {
    if !of.permissions().receive {
        shared.counters.drop_wrong_state += 1;
        return;
    }
    let (Some(pd), Some(cq)) = (of.receive_pd(shared), of.init.recv_cq) else {
        return;
    };
    let wr = match of.init.srq {
        Some(srq) => shared.take_shared_receive(srq),
        None => of.responder.take_waiting(shared),
    };
    let Some(wr) = wr else {
        shared.counters.out_of_buffer += 1;
        of.went_wrong(shared, |errors| &mut errors.out_of_buffer);
        return;
    };
    let landed = responder::place(shared, pd, &wr.sges, 0, &Payload::Bytes(frame.bytes), memory);
    let mut completion = Completion::new(wr.id, wr.tag, of.number, CompletionOp::Recv, Status::Success);
    if let Err(status) = landed {
        let _ = shared.regions.take_missing();
        shared.counters.responder_error(status);
        completion.status = status;
        shared.complete(cq, completion);
        return of.fail(shared, state::Trigger::ReceiveError);
    }
    completion.byte_len = frame.bytes.len() as u32;
    completion.origin = Origin::Frame {
        checksum_ok: frame.checksum_ok,
        arrived: frame.arrived,
    };
    shared.counters.raw_rx_packets += 1;
    shared.counters.raw_rx_bytes += frame.bytes.len() as u64;
    if shared.notes.is_some() {
        notes::receive(of, shared, wr.id);
    }
    shared.complete(cq, completion);
}
