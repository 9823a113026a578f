//! Frames of a guest's own RoCE: those of a flow that is slowed down wait for its rate, and hold nothing else up.

use vnic_engine::congestion::proxy::{Fate, Full};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::offload::HEAD_MAX;
use vnic_fabric::qos::Decision;
use vnic_fabric::switch::Verdict;
use vnic_fabric::{DropReason, Instant};
use vnic_wire::roce;

use super::super::core::Core;
use super::super::frame::RawFrame;
use super::super::guest_roce::see;
use super::super::qos::on_wire;
use super::police::marked;
use super::{Step, Sums, TxQueue};
use crate::types::Direction;

impl TxQueue {
    /// A frame that says that it is RoCE, of an adapter that limits its guest's.
    #[inline(never)]
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts; grouping them costs a copy on the fast path"
    )]
    pub(super) fn roce(
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
        let wire = u32::try_from(on_wire(f)).unwrap_or(u32::MAX);
        let (Some(seen), Some(roce)) = (see(&f.whole()), core.out.guest_roce(self.port)) else {
            return self.let_go(index, buffer, f, len, decision, core, sums, now);
        };
        let fate = roce.proxy.sending(now, decision.priority, &seen, wire);
        let mut edited = [0; HEAD_MAX];
        let mut f = *f;
        if roce.proxy.vouches(decision.priority, &seen) {
            let n = f.head.len().min(HEAD_MAX);
            edited[..n].copy_from_slice(&f.head[..n]);
            if n == f.head.len() && roce::set_ect(&mut edited[..n]) {
                f.head = &edited[..n];
            }
        }
        let Fate::Waits(flow) = fate else {
            let step = self.let_go(index, buffer, &f, len, decision, core, sums, now);
            if seen.is_cnp() && !matches!(step, Step::Wait) {
                self.counters.queues[self.pair].add(Q::TxCnpSent as usize, 1);
            }
            return step;
        };
        let verdict = marked(self.judge(&f, len, false, core, now), decision);
        if matches!(verdict, Verdict::Drop(_)) {
            return self.let_go(index, buffer, &f, len, decision, core, sums, now);
        }
        if !self.slots.is_empty() {
            // Used entries are in order.
            return Step::Wait;
        }
        let Some(roce) = core.out.guest_roce(self.port) else {
            return Step::Wait;
        };
        let held = roce.hold(now, flow, &seen, wire, self.pair, decision, &f.whole());
        if held == Err(Full::All) {
            self.holds.close(decision.priority);
            return Step::Wait;
        }
        // Whether the switch has a receiver is known, and counted, when it is sent.
        sums.dropped += 1;
        self.count(decision.priority, f.head, len, sums);
        if held.is_ok() {
            self.counters.queues[self.pair].add(Q::TxRoceHeld as usize, 1);
        } else {
            let reason = DropReason::SendQueueFull;
            self.counters.drops.add(reason as usize, 1);
            core.captured(self.port, Direction::Ingress, &f, Some(reason));
        }
        Step::Done
    }
}
