//! Frames of a guest's own RoCE: those of a flow that is slowed down wait for its rate, and hold nothing else up.

use vnic_engine::congestion::proxy::{Fate, Full};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::offload::HEAD_MAX;
use vnic_fabric::DropReason;
use vnic_fabric::qos::Decision;
use vnic_fabric::switch::Verdict;
use vnic_wire::roce;

use super::super::frame::RawFrame;
use super::super::guest_roce::see;
use super::super::qos::wire;
use super::police::marked;
use super::{Step, TxQueue, Visit};
use crate::types::Direction;

impl TxQueue {
    /// A frame that says that it is RoCE, of an adapter that limits its guest's.
    #[inline(never)]
    pub(super) fn roce(
        &mut self,
        buffer: u16,
        f: &RawFrame<'_>,
        len: u64,
        decision: Decision,
        visit: &mut Visit<'_>,
    ) -> Step {
        let now = visit.core.now;
        let (Some(seen), Some(roce)) = (see(&f.whole()), visit.core.out.guest_roce(self.port)) else {
            return self.let_go(buffer, f, len, decision, visit);
        };
        let fate = roce.proxy.sending(now, decision.priority, &seen, wire(f));
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
            let step = self.let_go(buffer, &f, len, decision, visit);
            if seen.is_cnp() && !matches!(step, Step::Wait) {
                self.counters.queues[self.pair].add(Q::TxCnpSent as usize, 1);
            }
            return step;
        };
        let verdict = marked(self.judge(&f, len, false, visit.core), decision);
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
        let held = roce.hold(flow, &seen, decision, &f, &visit.meta);
        if held == Err(Full::All) {
            self.holds.close(decision.priority);
            return Step::Wait;
        }
        // Whether the switch has a receiver is known, and counted, when it is sent.
        visit.sums.dropped += 1;
        self.count(decision.priority, f.head, len, &mut visit.sums);
        if held.is_ok() {
            self.counters.queues[self.pair].add(Q::TxRoceHeld as usize, 1);
        } else {
            let reason = DropReason::SendQueueFull;
            self.counters.drops.add(reason as usize, 1);
            visit
                .core
                .captured(self.port, Direction::Ingress, &f, Some(reason));
        }
        Step::Done
    }
}
