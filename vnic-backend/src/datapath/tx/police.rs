//! Frames of an adapter with configured quality of service: classified, perhaps rewritten, and held back in the ring or in
//! send queues while they may not go.

use vnic_engine::congestion::proxy::{Fate, Full};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::gids;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::DropReason;
use vnic_fabric::qos::Decision;
use vnic_fabric::switch::Verdict;
use vnic_wire::roce;

use super::super::core::Core;
use super::super::frame::{FRAME_MAX, RawFrame, on_wire, plain_on_wire};
use super::super::outputs::{has_room, is_roce, see};
use super::super::sender::Member;
use super::{Step, Taken, TxPath, Visit, may_tell_address};
use crate::ring::Head;

impl TxPath {
    /// Whether the next frame, which could not be sent before, can be sent now.
    #[cold]
    pub(super) fn opens(&mut self, core: &mut Core) -> bool {
        let Some(priority) = self.holds.closed() else {
            return true;
        };
        if core.out.guest_roce_is_full(self.port) {
            return false;
        }
        let (state, now) = (core.pause_state(self.port), core.now);
        let open = match core.sender(self.port) {
            Some(sender) => match &sender.queues {
                Some(queues) => queues.takes_more(priority),
                None => sender.may_send(state, now, Member::queue(self.pair), priority),
            },
            None => !state.global || !core.halted(self.port),
        };
        if open {
            self.holds.open();
        }
        open
    }

    /// Records that the queue waits for no limit.
    pub(in super::super) fn leave(&self, core: &mut Core) {
        if let Some(sender) = core.sender(self.port) {
            sender.leave(Member::queue(self.pair));
        }
    }

    /// Begins a burst: finds out whether all of it may go, whatever its priorities.
    pub(super) fn begin(&mut self, frames: &[Taken<'_>], core: &mut Core) {
        // The virtio header is counted in, so this is not less than the bytes on the wire.
        let bytes = frames
            .iter()
            .map(|t| plain_on_wire(t.total.min(FRAME_MAX as u64) as usize));
        let (bytes, now) = (bytes.sum(), core.now);
        let sender = core.sender(self.port);
        self.grant.whole = sender.as_ref().is_some_and(|s| s.may_send_all(now, bytes));
        self.grant.roce = sender.is_some_and(|s| s.guest_roce);
    }

    /// Charges the sent frames of a burst that may go as a whole.
    pub(super) fn settle(&mut self, core: &mut Core) {
        self.grant.whole = false;
        let (who, now) = (self.member(core), core.now);
        let gone = std::mem::take(&mut self.grant.gone);
        let Some(sender) = core.sender(self.port) else {
            return;
        };
        for (wire, priority) in gone.into_iter().zip(0..) {
            if wire > 0 {
                sender.charge_bytes(now, None, who, priority, wire.into());
            }
        }
    }

    fn member(&self, core: &mut Core) -> Member {
        match core.sender(self.port) {
            Some(s) if s.queues.is_some() => Member::SEND_QUEUES,
            _ => Member::queue(self.pair),
        }
    }

    /// Applies policies to a frame and sends it, or lets it wait.
    #[inline(never)]
    pub(super) fn police(&mut self, buffer: Head, f: &RawFrame<'_>, len: u64, visit: &mut Visit<'_>) -> Step {
        if self.grant.whole {
            self.settle(visit.core);
        }
        let Some(sender) = visit.core.senders.get(self.port) else {
            return Step::Wait;
        };
        let rules = &sender.change.qos.classification;
        if rules.policies.is_empty() {
            let decision = Decision {
                priority: rules.priority(f.head),
                ..Decision::default()
            };
            return self.hold(buffer, f, len, decision, visit);
        }
        // Policies look at all headers; the bytes that were read before count.
        let mut whole = [0; HEAD_MAX];
        let n = f.peek(&mut whole);
        let decision = rules.decide(&whole[..n], false);
        if !decision.rewrites() {
            return self.hold(buffer, f, len, decision, visit);
        }
        let asked = f.hdr.flags & NetHdr::NEEDS_CSUM != 0;
        let field = usize::from(f.hdr.csum_start) + usize::from(f.hdr.csum_offset);
        decision.apply(&mut whole[..n], asked.then_some(field));
        let f = RawFrame {
            head: &whole[..n],
            ..*f
        };
        self.hold(buffer, &f, len, decision, visit)
    }

    /// Sends a classified frame if it may go now.
    fn hold(
        &mut self,
        buffer: Head,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        visit: &mut Visit<'_>,
    ) -> Step {
        let sender = visit.core.senders.get(self.port);
        if sender.is_some_and(|s| s.guest_roce) && is_roce(f.head) {
            return self.roce(buffer, f, len, decision, visit);
        }
        self.let_go(buffer, f, len, decision, visit)
    }

    /// Sends a frame that may be RoCE, of an adapter that limits its guest's RoCE, or lets it wait for its flow's turn.
    #[inline(never)]
    fn roce(
        &mut self,
        buffer: Head,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        visit: &mut Visit<'_>,
    ) -> Step {
        let now = visit.core.now;
        let (Some(seen), Some(roce)) = (see(&f.whole()), visit.core.out.guest_roce(self.port)) else {
            return self.let_go(buffer, f, len, decision, visit);
        };
        let fate = roce.proxy.sending(now, decision.priority, &seen, on_wire(f));
        let (mut edited, mut longer) = ([0; HEAD_MAX], Vec::new());
        let mut f = *f;
        if roce.proxy.vouches(decision.priority, &seen) {
            let n = f.head.len().min(HEAD_MAX);
            edited[..n].copy_from_slice(&f.head[..n]);
            if n == f.head.len() && roce::set_ect(&mut edited[..n]) {
                f.head = &edited[..n];
            }
        }
        let room = has_room(&seen, &f, self.mtu);
        let Fate::Waits(flow) = fate else {
            let trailer = match room {
                true => roce.proxy.trailer(now, None, &seen),
                false => None,
            };
            if let Some(telemetry) = trailer {
                f.whole().append_to(&mut longer);
                longer.extend_from_slice(&telemetry.emit_trailer());
                (f.head, f.len) = (&longer, longer.len());
            }
            let step = self.let_go(buffer, &f, len, decision, visit);
            if seen.is_cnp() && !matches!(step, Step::Wait) {
                self.counters.queues[self.pair].add(Q::TxCnpSent as usize, 1);
            }
            return step;
        };
        let verdict = self.judge_decided(&f, len, decision, visit.core);
        if matches!(verdict, Verdict::Drop(_)) {
            return self.let_go(buffer, &f, len, decision, visit);
        }
        if !self.slots.is_empty() {
            // Used entries are in order.
            return Step::Wait;
        }
        let Some(roce) = visit.core.out.guest_roce(self.port) else {
            return Step::Wait;
        };
        let held = roce.hold(flow, &seen, decision, &f, &visit.meta, room);
        if held == Err(Full::All) {
            self.holds.close(decision.priority);
            return Step::Wait;
        }
        // Whether the switch has a receiver is known, and counted, when the frame is sent.
        visit.sums.dropped += 1;
        self.count(decision.priority, f.head, len, &mut visit.sums);
        if held.is_ok() {
            self.counters.queues[self.pair].add(Q::TxRoceHeld as usize, 1);
        } else {
            let reason = DropReason::SendQueueFull;
            self.counters.drops.add(reason as usize, 1);
            visit.core.seen(self.port, &f, Some(reason));
        }
        Step::Done
    }

    /// Sends a frame if its priority may go now; with send queues, a frame that may not go leaves the ring, too.
    fn let_go(
        &mut self,
        buffer: Head,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        visit: &mut Visit<'_>,
    ) -> Step {
        let (port, priority) = (self.port, decision.priority);
        let (state, now) = (visit.core.pause_state(port), visit.core.now);
        let Some(sender) = visit.core.senders.get(port) else {
            return Step::Wait;
        };
        let queued = sender.queues.is_some();
        let who = match queued {
            true => Member::SEND_QUEUES,
            false => Member::queue(self.pair),
        };
        if !queued && !sender.may_send(state, now, who, priority) {
            self.holds.close(priority);
            return Step::Wait;
        }
        let tells = self.learns && may_tell_address(f.head);
        if tells && gids::is_answer(f.head) {
            return self.hear(priority, f, len, visit);
        }
        let verdict = self.judge_decided(f, len, decision, visit.core);
        let at_once = match queued {
            true => self.queue(f, len, decision, verdict, visit),
            false => {
                let pressed = visit.core.out.round.waiting.pressed;
                match pressed && visit.core.must_wait(port, &verdict, f.head) {
                    true => Err(Step::Wait),
                    false => Ok(()),
                }
            }
        };
        let step = match at_once {
            Ok(()) => self.send(buffer, f, verdict, visit),
            Err(Step::Wait) => Step::Wait,
            Err(kept) => {
                if tells {
                    visit.core.learn(port, f);
                }
                return kept;
            }
        };
        if matches!(step, Step::Wait) {
            return step;
        }
        if tells {
            visit.core.learn(port, f);
        }
        if !matches!(verdict, Verdict::Drop(_))
            && let Some(sender) = visit.core.senders.get(port)
        {
            sender.charge(now, None, who, priority, f);
        }
        self.count(priority, f.head, len, &mut visit.sums);
        step
    }

    /// Whether a frame may go at once with send queues. Otherwise it waits in its send queue or in the ring, or is dropped.
    fn queue(
        &mut self,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        verdict: Verdict,
        visit: &mut Visit<'_>,
    ) -> Result<(), Step> {
        let (port, priority, core) = (self.port, decision.priority, &mut *visit.core);
        let now = core.now;
        let blocked = core.crosses(port, &verdict) && !core.links_have_room()
            || core.out.round.waiting.pressed && core.must_wait(port, &verdict, f.head);
        let state = core.pause_state(port);
        let Some(sender) = core.senders.get(port) else {
            return Err(Step::Wait);
        };
        if sender.drains() {
            // The send queues are switched off, but their frames go first.
            return Err(Step::Wait);
        }
        let dropped = matches!(verdict, Verdict::Drop(_));
        let closed = match blocked {
            true => 0xff,
            false => !sender.open(state, now) | sender.others(now, Member::SEND_QUEUES),
        };
        let lossless = sender.change.qos.pause.pfc >> priority & 1 != 0;
        let Some(queues) = sender.queues.as_deref_mut() else {
            return Err(Step::Wait);
        };
        if dropped || queues.passes(now, priority, f, closed) {
            return Ok(());
        }
        if !self.slots.is_empty() {
            // Used entries are in order.
            return Err(Step::Wait);
        }
        let room = queues.has_room(priority, f.len);
        if !room && lossless {
            self.holds.close(priority);
            return Err(Step::Wait);
        }
        // Whether the switch has a receiver is known, and counted, when the frame is sent.
        visit.sums.dropped += 1;
        if room && queues.push(now, decision, f, &visit.meta) {
            core.senders.queued = true;
        } else {
            let reason = DropReason::SendQueueFull;
            self.counters.drops.add(reason as usize, 1);
            core.seen(port, f, Some(reason));
        }
        self.count(priority, f.head, len, &mut visit.sums);
        Err(Step::Done)
    }
}
