//! Runs that are sent: many packets for which everything is looked at once.

use vnic_wire::reth;
use vnic_wire::time::Instant;

use super::super::super::marks::Mark;
use super::super::super::memory::Memory;
use super::super::super::packet::Sink;
use super::super::super::region::OneRegion;
use super::super::super::run::{Carried, RUN_MAX, Run, WritePacket};
use super::super::super::shared::Shared;
use super::super::super::types::{MESSAGE_MAX, QpState, QpType, SendData, SendFlags, SendOp, Span};
use super::super::Qp;
use super::{ACK_EVERY, PSN_SPAN, SendWqe, Stage};

impl Qp {
    /// Offers the sink what is next as a run of at most `most` packets, if that are WRITEs that nothing has to wait for,
    /// sent for the first time. Answers how many it took; the next one is for [`send_request`](Qp::send_request).
    #[inline]
    pub(in super::super) fn send_run(
        &mut self,
        shared: &mut Shared,
        now: Instant,
        memory: &dyn Memory,
        sink: &mut dyn Sink,
        most: usize,
    ) -> usize {
        let requester = &self.requester;
        let plain = self.init.qp_type == QpType::Rc
            && self.attributes.state == QpState::Rts
            && self.pace.is_none()
            && requester.rnr_until.is_none()
            && requester.next == requester.end
            && self.trouble.as_ref().is_none_or(|trouble| trouble.is_plain())
            && shared.notes.is_none();
        let (true, Some(path), Some(pd)) = (plain, &self.path, self.init.pd) else {
            return 0;
        };
        let in_flight = requester.in_flight();
        let most = most.min(requester.window.saturating_sub(in_flight) as usize);
        if most == 0 || path.eth.destination.is_multicast() || !starts_run(shared, requester.cursor) {
            return 0;
        }
        let most = most
            .min(sink.run_room(path, self.attributes.destination_qp))
            .min(RUN_MAX);
        let mtu = self.attributes.path_mtu.bytes();
        let asks_always = requester.credit_limit.is_some();
        let mut region = OneRegion::default();
        let (mut packets, mut count) = ([WritePacket::NONE; RUN_MAX], 0);
        let (mut slot, mut psn) = (requester.cursor, requester.next);
        'requests: while count < most {
            let Some(wqe) = shared.sends.get(slot) else { break };
            let SendOp::Write { addr, rkey } = wqe.wr.op else {
                break;
            };
            let (first, psns) = match wqe.stage {
                Stage::Posted => {
                    let waits = wqe.wr.flags.contains(SendFlags::FENCE) && requester.responses_due > 0;
                    let psns = psns_of(wqe, mtu);
                    let used = psn.distance(requester.oldest).max(0) as u32;
                    if waits || wqe.len > MESSAGE_MAX.into() || used + psns > PSN_SPAN {
                        break;
                    }
                    (psn, psns)
                }
                Stage::Started => (wqe.first, wqe.psns),
                Stage::Doomed(_) | Stage::Ended(_) => break,
            };
            let mut index = psn.distance(first).max(0) as u32;
            while index < psns && count < most {
                let offset = index * mtu;
                let rest = wqe.len as u32 - offset;
                let bytes = rest.min(mtu);
                let carried = match &wqe.wr.data {
                    SendData::Inline(inline) => {
                        let (from, to) = (offset as usize, (offset + bytes) as usize);
                        Carried::Bytes(inline.get(from..to).unwrap_or(&[]))
                    }
                    SendData::Sges(sges) => match sges.as_slice() {
                        [one] => match region.local(&shared.regions, pd, one, offset, bytes) {
                            Some(at) => Carried::Span(Span {
                                at,
                                len: bytes.into(),
                            }),
                            None => break 'requests,
                        },
                        _ => break 'requests,
                    },
                };
                let ends = index + 1 == psns;
                packets[count] = WritePacket {
                    begins: index == 0,
                    ends,
                    asks: ends
                        || asks_always
                        || index % ACK_EVERY == ACK_EVERY - 1
                        || in_flight + count as u32 + 1 >= requester.window,
                    reth: reth::Header {
                        va: addr.wrapping_add(offset.into()),
                        rkey,
                        len: rest,
                    },
                    len: bytes,
                    carried,
                };
                count += 1;
                psn = psn.next();
                index += 1;
            }
            slot = shared.sends.next(slot);
        }
        if count == 0 {
            return 0;
        }
        let run = Run {
            from: self.number,
            priority: self.priority,
            path,
            to: self.attributes.destination_qp,
            pkey: self.pkey,
            psn: requester.next,
            selective: shared.congestion.zero_touch.selective,
            memory,
            packets: &packets[..count],
        };
        let taken = sink.send_run(&run);
        let bytes = run.frame_bytes(taken);
        if taken > 0 {
            shared.counters.tx_vport_rdma_unicast_packets += taken as u64;
            shared.counters.tx_vport_rdma_unicast_bytes += bytes;
            self.run_sent(shared, now, taken as u32, mtu);
        }
        taken
    }

    /// So many packets of a run are out.
    fn run_sent(&mut self, shared: &mut Shared, now: Instant, taken: u32, mtu: u32) {
        let requester = &mut self.requester;
        let first = requester.next;
        let end = first.add(taken);
        if end.value() < requester.next.value() {
            shared.marks.hit(Mark::PsnWrap);
        }
        let mut at = first;
        while at != end {
            let slot = requester.cursor;
            let next_slot = shared.sends.next(slot);
            let Some(wqe) = shared.sends.get_mut(slot) else {
                break;
            };
            if wqe.stage == Stage::Posted {
                let psns = psns_of(wqe, mtu);
                requester.number(wqe, at, psns);
            }
            // As far as the run reaches, or to its own end.
            let behind = wqe.first.add(wqe.psns);
            let reached = if end.before(behind) { end } else { behind };
            if reached == behind {
                requester.cursor = next_slot;
            }
            at = reached;
        }
        (requester.next, requester.end) = (end, end);
        if requester.unwatched {
            self.watch(shared, now, first, true);
        }
    }
}

/// Is there something at the cursor that a run may begin with?
#[inline]
fn starts_run(shared: &Shared, cursor: u32) -> bool {
    let next = shared.sends.get(cursor);
    next.is_some_and(|wqe| matches!(wqe.wr.op, SendOp::Write { .. }))
}

/// PSNs of a WRITE.
#[inline]
fn psns_of(wqe: &SendWqe, mtu: u32) -> u32 {
    if wqe.len <= mtu.into() {
        1
    } else {
        wqe.len.div_ceil(mtu.into()) as u32
    }
}
