//! Each round sends notifications and frames of guests' own RoCE that are due.

use std::sync::Arc;

use vnic_engine::congestion::proxy::{FlowStatus, Notice};
use vnic_engine::counters::CoreCounter;
use vnic_engine::rdma::Congestion;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{Decision, WIRE_OVERHEAD};
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::super::frame::{Metadata, OwnedFrame, RawFrame};
use super::super::news::CoreEvent;
use super::super::outputs::{GuestRoce, Slot, WaitingRoce};
use super::super::sender::Member;
use super::Core;

/// Frames of one adapter that are sent before other work gets its turn.
const BURST: usize = 64;

impl Core {
    /// When a frame or notification of guests' own RoCE may leave that may not leave now.
    pub fn guest_roce_due(&self, now: Instant) -> Option<Instant> {
        let times = self.out.guest_roce.iter().filter_map(|&port| {
            let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(port.0)) else {
                return None;
            };
            let proxy = &a.guest_roce.as_ref()?.proxy;
            let ready = match proxy.ready(now) {
                0 => None,
                priorities => self.sender_due(port, now, priorities),
            };
            ready.into_iter().chain(proxy.next_time(now)).min()
        });
        times.min()
    }

    /// Sends what may leave. Returns how much left.
    fn serve_guest_roce(&mut self, port: PortId, roce: &mut GuestRoce, now: Instant) -> usize {
        let mut n = 0;
        // Priorities whose first frame is held up by its receivers or by a link to another core.
        let mut stuck = 0;
        while n < BURST {
            let open = self.open_to(port, now) & !stuck;
            if let Some(notice) = roce.proxy.poll_notice(now, open) {
                self.send_notice(port, now, &notice);
                n += 1;
                continue;
            }
            let Some((flow, priority, held)) = roce.proxy.front(now, open) else {
                break;
            };
            let verdict = self.switched(port, now, &held.frame, held.decision.pcp);
            if self.is_held_up(&verdict, &held.frame) {
                stuck |= 1 << (priority & 7);
                continue;
            }
            let Some(WaitingRoce { mut frame, decision }) = roce.proxy.take(now, flow) else {
                break;
            };
            n += 1;
            frame.with(|f, meta| self.send_held(now, decision, verdict, f, meta));
            roce.pool.give_back(frame);
        }
        let counts = roce.proxy.take_counts();
        roce.count(0, counts);
        roce.full &= !roce.proxy.takes_more();
        let state = self.pause_state(port);
        if let Some(sender) = self.senders.get(port) {
            let waits = roce.proxy.ready(now) & !stuck & !sender.paused(state);
            sender.wait(now, Member::GUEST_ROCE, waits);
        }
        n
    }

    /// Priorities that an adapter's waiting RoCE may send now, a bit each.
    fn open_to(&mut self, port: PortId, now: Instant) -> u8 {
        let state = self.pause_state(port);
        match self.senders.get(port) {
            Some(sender) => sender.open(state, now) & !sender.others(now, Member::GUEST_ROCE),
            None => 0xff,
        }
    }

    /// Sends a notification on behalf of the guest.
    fn send_notice(&mut self, port: PortId, now: Instant, notice: &Notice) {
        let mut bytes = Vec::new();
        if notice.build(&mut bytes).is_err() {
            return;
        }
        let wire = bytes.len() as u64 + u64::from(WIRE_OVERHEAD);
        let mut frame = OwnedFrame {
            bytes,
            hdr: NetHdr::default(),
            meta: Metadata::of(port),
        };
        let verdict = self.switched(port, now, &frame, None);
        frame.with(|f, meta| self.leave(&verdict, f, meta));
        if let Some(sender) = self.senders.get(port) {
            sender.charge_bytes(now, None, Member::GUEST_ROCE, notice.priority, wire);
        }
    }

    /// Sends a frame that has waited.
    fn send_held(
        &mut self,
        now: Instant,
        decision: Decision,
        verdict: Verdict,
        f: &RawFrame<'_>,
        meta: &Metadata,
    ) {
        let port = meta.source;
        let closed = !self.open_to(port, now);
        if let (false, Some(sender)) = (matches!(verdict, Verdict::Drop(_)), self.senders.get(port)) {
            let priority = decision.priority;
            if let Some(queues) = sender.queues.as_deref_mut()
                && !queues.passes(now, priority, f, closed)
            {
                // Frames of its priority wait in the send queue: this one goes behind them.
                if queues.has_room(priority, f.len) && queues.push(now, decision, f, meta) {
                    self.senders.queued = true;
                } else {
                    self.leave(&Verdict::Drop(DropReason::SendQueueFull), f, meta);
                }
                return;
            }
            sender.charge(now, None, Member::GUEST_ROCE, priority, f);
        }
        self.leave(&verdict, f, meta);
    }

    /// Sends guests' own RoCE that may leave. Returns how much left.
    #[cold]
    pub fn guest_roce_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let mut i = 0;
        while let Some(&port) = self.out.guest_roce.get(i) {
            i += 1;
            let Some(mut roce) = self.adapter(port).and_then(|a| a.guest_roce.take()) else {
                // The state was lost in a panic.
                self.list_guest_roce(port);
                continue;
            };
            roce.now = now;
            // As for a guest's ring, a bug takes down only the adapter whose frames trigger it.
            let Some(n) = self.guarded(|core| core.serve_guest_roce(port, &mut roce, now)) else {
                self.out
                    .round
                    .counters
                    .add(CoreCounter::Orphans as usize, roce.proxy.len() as u64);
                self.report(CoreEvent::Panic { port });
                work += 1;
                continue;
            };
            work += n;
            let done = !roce.proxy.acts() && roce.proxy.is_empty();
            if let Some(adapter) = self.adapter(port) {
                adapter.guest_roce = Some(roce);
            }
            if done {
                self.list_guest_roce(port);
            }
        }
        if work > 0 {
            self.flush();
        }
        work
    }

    /// Sets congestion control of an adapter. With `acts` it also acts on the guest's own RoCE; otherwise that RoCE is only
    /// counted, and only if congestion control is on.
    pub fn set_guest_roce(&mut self, id: PortId, congestion: &Congestion, acts: bool) {
        let now = self.now;
        let sees = congestion.reaction | congestion.notification != 0;
        let acts = acts && sees;
        let Some(adapter) = self.adapter(id) else {
            return;
        };
        match &mut adapter.guest_roce {
            Some(roce) => {
                roce.now = now;
                roce.proxy.configure(now, congestion.clone(), acts);
                if !sees && roce.proxy.is_empty() {
                    adapter.guest_roce = None;
                }
            }
            None if !sees => return,
            place => {
                let roce = GuestRoce::new(congestion.clone(), acts, now, adapter.counters.clone());
                *place = Some(Box::new(roce));
            }
        }
        self.list_guest_roce(id);
    }

    /// Lists an adapter that is to be served each round: while its proxy acts or frames wait.
    fn list_guest_roce(&mut self, id: PortId) {
        let Some(adapter) = self.adapter(id) else {
            return;
        };
        adapter.choose();
        let roce = adapter.guest_roce.as_ref();
        let busy = roce.is_some_and(|r| r.proxy.acts() || !r.proxy.is_empty());
        let listed = self.out.guest_roce.iter().position(|p| *p == id);
        match listed {
            Some(i) if !busy => drop(self.out.guest_roce.swap_remove(i)),
            None if busy => self.out.guest_roce.push(id),
            _ => return,
        }
        let mut change = self.out.acting(id);
        if self.out.qos.get(id).is_none() {
            // Without a setting `*FlowControl` is on in both directions.
            Arc::make_mut(&mut change).qos.pause.global_rx = true;
        }
        self.set_sender(id, &change);
    }

    /// Drops the waiting RoCE of a removed adapter.
    pub fn forget_guest_roce(&mut self, id: PortId) {
        self.out.guest_roce.retain(|p| *p != id);
        let roce = self.adapter(id).and_then(|a| a.guest_roce.take());
        let lost = roce.map_or(0, |r| r.proxy.len());
        self.out
            .round
            .counters
            .add(CoreCounter::Orphans as usize, lost as u64);
    }

    /// Flows of a guest's own RoCE that are limited now.
    pub fn guest_flows(&mut self, id: PortId) -> Vec<FlowStatus> {
        let now = self.now;
        let roce = self.out.guest_roce(id);
        roce.map_or_else(Vec::new, |r| r.proxy.flows(now))
    }
}
