//! Frames of an adapter that has something configured: classified, perhaps rewritten, and held back while they may not go, in
//! the ring or in send queues.

use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{Decision, WIRE_OVERHEAD};
use vnic_fabric::switch::Verdict;
use vnic_fabric::{DropReason, Instant};
use vnic_wire::ethernet::FRAME_MIN;

use super::super::core::Core;
use super::super::frame::{FRAME_MAX, RawFrame};
use super::super::outputs::is_roce;
use super::super::qos::Member;
use super::{Step, Sums, Taken, TxQueue, tells_address};
use crate::mem;
use crate::types::Direction;

/// Bytes of a frame on the wire.
#[inline(always)]
pub(super) fn wire(len: usize) -> u32 {
    len.max(FRAME_MIN) as u32 + WIRE_OVERHEAD
}

impl TxQueue {
    /// The next frame could not be sent: can it be now?
    #[cold]
    pub(super) fn opens(&mut self, core: &mut Core, now: Instant) -> bool {
        let Some(priority) = self.holds.closed() else {
            return true;
        };
        if core.out.guest_roce_is_full(self.port) {
            return false;
        }
        let told = core.told(self.port);
        let open = match core.sender(self.port) {
            Some(sender) => match &sender.queues {
                Some(queues) => queues.takes_more(priority),
                None => sender.may_send(told, now, Member::queue(self.pair), priority),
            },
            None => !told.global || !core.halted(self.port),
        };
        if open {
            self.holds.open();
        }
        open
    }

    /// It waits for no limit (any more).
    pub(in super::super) fn leave(&self, core: &mut Core) {
        if let Some(sender) = core.sender(self.port) {
            sender.leave(Member::queue(self.pair));
        }
    }

    /// A burst begins: may all of it go, whatever it is?
    pub(super) fn begin(&mut self, frames: &[Taken], core: &mut Core, now: Instant) {
        // Each with its virtio header: not less than it is.
        let bytes = frames
            .iter()
            .map(|t| wire(t.total.min(FRAME_MAX as u64) as usize));
        let bytes = bytes.sum();
        let sender = core.sender(self.port);
        self.ample = sender.as_ref().is_some_and(|s| s.is_ample(now, bytes));
        self.roce = sender.is_some_and(|s| s.guest_roce);
    }

    /// May a frame go without being looked at more closely?
    #[inline(always)]
    pub(super) fn goes_freely(&self, f: &RawFrame<'_>, core: &Core) -> bool {
        self.ample
            && f.hdr.gso_type == 0
            && !core.out.waiting.pressed
            && !core.pauses.any()
            && !(self.roce && is_roce(f.head))
    }

    /// What has gone of a burst that may is charged.
    pub(super) fn settle(&mut self, core: &mut Core, now: Instant) {
        self.ample = false;
        let who = self.member(core);
        let gone = std::mem::take(&mut self.gone);
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

    /// A frame of an adapter that has something configured: policies may rewrite it, or it may have to wait.
    #[inline(never)]
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts; grouping them costs a copy on the fast path"
    )]
    pub(super) fn police(
        &mut self,
        index: usize,
        buffer: u16,
        f: &RawFrame<'_>,
        len: u64,
        core: &mut Core,
        sums: &mut Sums,
        now: Instant,
    ) -> Step {
        if self.ample {
            self.settle(core, now);
        }
        let Some(sender) = core.senders.get(self.port) else {
            return Step::Wait;
        };
        let rules = &sender.change.qos.classification;
        if rules.policies.is_empty() {
            let decision = Decision {
                priority: rules.priority(f.head),
                ..Decision::default()
            };
            return self.hold(index, buffer, f, len, decision, core, sums, now);
        }
        // Policies look at all headers. What was read before counts.
        let (known, n) = (f.head.len(), f.len.min(HEAD_MAX));
        let mut whole = [0; HEAD_MAX];
        whole[..known].copy_from_slice(f.head);
        mem::gather(f.segs, f.skip + known, &mut whole[known..n]);
        let decision = rules.decide(&whole[..n], false);
        if !decision.rewrites() {
            return self.hold(index, buffer, f, len, decision, core, sums, now);
        }
        let asked = f.hdr.flags & NetHdr::NEEDS_CSUM != 0;
        let field = usize::from(f.hdr.csum_start) + usize::from(f.hdr.csum_offset);
        decision.apply(&mut whole[..n], asked.then_some(field));
        let f = RawFrame {
            head: &whole[..n],
            ..*f
        };
        self.hold(index, buffer, &f, len, decision, core, sums, now)
    }

    /// Sends a classified frame if it may go now.
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts; grouping them costs a copy on the fast path"
    )]
    fn hold(
        &mut self,
        index: usize,
        buffer: u16,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        core: &mut Core,
        sums: &mut Sums,
        now: Instant,
    ) -> Step {
        if core.senders.get(self.port).is_some_and(|s| s.guest_roce) && is_roce(f.head) {
            return self.roce(index, buffer, f, len, decision, core, sums, now);
        }
        self.let_go(index, buffer, f, len, decision, core, sums, now)
    }

    /// Sends a frame if its priority may go now.
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts; grouping them costs a copy on the fast path"
    )]
    pub(super) fn let_go(
        &mut self,
        index: usize,
        buffer: u16,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        core: &mut Core,
        sums: &mut Sums,
        now: Instant,
    ) -> Step {
        let told = core.told(self.port);
        let (who, priority) = (Member::queue(self.pair), decision.priority);
        let Some(sender) = core.senders.get(self.port) else {
            return Step::Wait;
        };
        if sender.queues.is_some() {
            return self.queue(index, buffer, f, len, decision, core, sums, now);
        }
        if !sender.may_send(told, now, who, priority) {
            self.holds.close(priority);
            return Step::Wait;
        }
        let tells = self.learns && tells_address(f.head);
        let verdict = marked(self.judge(f, len, tells, core, now), decision);
        if core.out.waiting.pressed && core.must_wait(self.port, &verdict, f.head) {
            return Step::Wait;
        }
        if tells {
            core.learn(self.port, f);
        }
        let step = self.send(index, buffer, f, verdict, core, sums);
        if !matches!(step, Step::Wait) {
            if !matches!(verdict, Verdict::Drop(_))
                && let Some(sender) = core.senders.get(self.port)
            {
                sender.charge(now, None, who, priority, f);
            }
            self.count(priority, f.head, len, sums);
        }
        step
    }

    /// The same where each priority has a send queue: a frame that may not go leaves the ring, too.
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts; grouping them costs a copy on the fast path"
    )]
    fn queue(
        &mut self,
        index: usize,
        buffer: u16,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        core: &mut Core,
        sums: &mut Sums,
        now: Instant,
    ) -> Step {
        let (port, priority) = (self.port, decision.priority);
        let tells = self.learns && tells_address(f.head);
        let verdict = marked(self.judge(f, len, tells, core, now), decision);
        let crosses = core.crosses(port, &verdict);
        let blocked = crosses && !core.links_have_room()
            || core.out.waiting.pressed && core.must_wait(port, &verdict, f.head);
        let told = core.told(port);
        let Some(sender) = core.senders.get(port) else {
            return Step::Wait;
        };
        if sender.drains() {
            // There are no send queues any more, but what is in them goes first.
            return Step::Wait;
        }
        let closed = match (blocked, verdict) {
            (_, Verdict::Drop(_)) => 0,
            (true, _) => 0xff,
            (false, _) => !sender.open(told, now) | sender.others(now, Member::SEND_QUEUES),
        };
        let lossless = sender.change.qos.pause.pfc >> priority & 1 != 0;
        let Some(queues) = sender.queues.as_deref_mut() else {
            return Step::Wait;
        };
        let at_once = matches!(verdict, Verdict::Drop(_)) || queues.passes(now, priority, f, closed);
        if !at_once {
            if !self.slots.is_empty() {
                // Used entries are in order.
                return Step::Wait;
            }
            let room = queues.has_room(priority, f.len);
            if !room && lossless {
                self.holds.close(priority);
                return Step::Wait;
            }
            // Whether the switch has a receiver is known, and counted, when it is sent.
            sums.dropped += 1;
            self.count(priority, f.head, len, sums);
            if !room || !queues.push(now, port, self.pair, decision, f) {
                let reason = DropReason::SendQueueFull;
                self.counters.drops.add(reason as usize, 1);
                core.captured(port, Direction::Ingress, f, Some(reason));
                return Step::Done;
            }
            core.senders.queued = true;
            if tells {
                core.learn(port, f);
            }
            return Step::Done;
        }
        let step = self.send(index, buffer, f, verdict, core, sums);
        if matches!(step, Step::Wait) {
            return step;
        }
        if tells {
            core.learn(port, f);
        }
        if !matches!(verdict, Verdict::Drop(_))
            && let Some(sender) = core.senders.get(port)
        {
            sender.charge(now, None, Member::SEND_QUEUES, priority, f);
        }
        self.count(priority, f.head, len, sums);
        step
    }
}

/// With the priority that a policy gives a frame where it leaves with a tag.
pub(super) fn marked(verdict: Verdict, decision: Decision) -> Verdict {
    match decision.pcp {
        Some(pcp) => verdict.with_priority(pcp),
        None => verdict,
    }
}
