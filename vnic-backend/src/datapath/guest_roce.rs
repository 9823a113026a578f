//! RoCE that guests run in software over their Ethernet queues: marks and notifications are counted, and where the operator
//! wants it the NIC notifies and slows down on the guest's behalf.
//!
//! ```text
//!  outputs ── to the guest ──▶ Proxy ── notification ──▶ switch
//!  tx ─── from the guest ──▶ Proxy: limited? ─▶ a copy waits ── its flow's turn ──▶ switch
//!                                     └─ no: as without all this
//! ```
//!
//! What is decided is [`Proxy`]'s; here are its frames. A frame that waits is a copy of our own and its buffer is completed,
//! so that the guest's other flows go on. What all flows together may keep is bounded: beyond that frames stay in the ring.

mod serve;

use std::sync::Arc;

use vnic_engine::congestion::proxy::{Counts, FlowId, FlowStatus, Full, Proxy, SEEN, Seen};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::rdma::Congestion;
use vnic_fabric::Instant;
use vnic_fabric::qos::Decision;
use vnic_fabric::switch::PortId;

use super::counters::{AdapterCounters, priority_of};
use super::frame::{Metadata, OutFrame, OwnedFrame, RawFrame};
use super::outputs::{AdapterRx, Outputs, Slot, is_roce};
use super::qos::{Pool, wire};
use super::worker::Worker;

/// A frame that waits for its flow's turn, and what its adapter's rules say of it.
pub struct Held {
    frame: OwnedFrame,
    decision: Decision,
}

/// What is done for one guest's RoCE, on the core that serves its adapter.
pub struct GuestRoce {
    /// What decides.
    pub proxy: Proxy<Held>,
    /// When this round began.
    now: Instant,
    /// A ring waits because too much waits here.
    full: bool,
    pool: Pool,
    counters: Arc<AdapterCounters>,
}

/// A frame's RoCEv2 headers, if it has some.
pub fn see(f: &OutFrame<'_>) -> Option<Seen> {
    let mut bytes = [0; SEEN];
    let n = f.peek(&mut bytes);
    Seen::parse(&bytes[..n])
}

impl GuestRoce {
    /// A frame waits for its flow's turn.
    pub fn hold(
        &mut self,
        flow: FlowId,
        seen: &Seen,
        decision: Decision,
        f: &RawFrame<'_>,
        meta: &Metadata,
    ) -> Result<(), Full> {
        let cost = (f.len + OwnedFrame::COST) as u32;
        let room = self.proxy.room(flow, cost);
        self.full |= room == Err(Full::All);
        room?;
        let frame = self.pool.copy(&f.whole(), meta.clone()).ok_or(Full::Flow)?;
        let held = Held { frame, decision };
        let held = self.proxy.hold(self.now, flow, seen, wire(f), cost, held);
        held.map_err(|_| Full::Flow)
    }

    /// Counts what was seen at a receive queue.
    fn count(&self, queue: usize, counts: Counts) {
        let Some(block) = self.counters.queues.get(queue) else {
            return;
        };
        for (counter, n) in [
            (Q::RxRoceMarked, counts.marked),
            (Q::RxCnpHandled, counts.handled),
            (Q::RxCnpIgnored, counts.ignored),
            (Q::TxCnpUnknown, counts.unknown),
            (Q::TxCnpSent, counts.notified),
        ] {
            if n > 0 {
                block.add(counter as usize, n.into());
            }
        }
    }
}

impl AdapterRx {
    /// A frame reaches the guest's receive queue `q`.
    #[inline]
    pub fn see_roce(&mut self, q: u8, priority: u8, f: &OutFrame<'_>) {
        if self.guest_roce.is_some() && is_roce(f.head) {
            self.see_frame(q, priority, f);
        }
    }

    #[inline(never)]
    fn see_frame(&mut self, q: u8, priority: u8, f: &OutFrame<'_>) {
        let Some(roce) = &mut self.guest_roce else { return };
        if let Some(seen) = see(f) {
            let priority = priority_of(priority, f.head);
            roce.proxy.received(roce.now, priority, &seen);
            let counts = roce.proxy.take_counts();
            roce.count(q.into(), counts);
        }
    }
}

impl Outputs {
    /// What is done for the RoCE of an adapter's guest, if anything.
    pub fn guest_roce(&mut self, port: PortId) -> Option<&mut GuestRoce> {
        match self.slots.get_mut(usize::from(port.0))? {
            Slot::Adapter(a) => a.guest_roce.as_deref_mut(),
            _ => None,
        }
    }

    /// Does the guest's ring wait because too much of its RoCE does?
    pub fn guest_roce_is_full(&self, port: PortId) -> bool {
        !self.guest_roce.is_empty()
            && match self.slots.get(usize::from(port.0)) {
                Some(Slot::Adapter(a)) => a.guest_roce.as_ref().is_some_and(|r| r.full),
                _ => false,
            }
    }
}

impl Worker {
    /// Congestion control of an adapter is this from now on. With `acts` it is also that of the guest's own RoCE; without,
    /// that is only seen, and only if there is any.
    pub(super) fn set_guest_roce(&mut self, id: PortId, congestion: &Congestion, acts: bool) {
        let now = self.core.now;
        let sees = congestion.reaction | congestion.notification != 0;
        let acts = acts && sees;
        let Some(adapter) = self.core.adapter(id) else {
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
                *place = Some(Box::new(GuestRoce {
                    proxy: Proxy::new(congestion.clone(), acts),
                    now,
                    full: false,
                    pool: Pool::default(),
                    counters: adapter.counters.clone(),
                }));
            }
        }
        self.list_guest_roce(id);
    }

    /// It is looked at each round while it acts or something waits.
    fn list_guest_roce(&mut self, id: PortId) {
        let Some(adapter) = self.core.adapter(id) else {
            return;
        };
        adapter.choose();
        let roce = adapter.guest_roce.as_ref();
        let busy = roce.is_some_and(|r| r.proxy.acts() || !r.proxy.is_empty());
        let listed = self.core.out.guest_roce.iter().position(|p| *p == id);
        match listed {
            Some(i) if !busy => drop(self.core.out.guest_roce.swap_remove(i)),
            None if busy => self.core.out.guest_roce.push(id),
            _ => return,
        }
        let mut change = self.core.qos.acting(id, &self.core.out);
        if self.core.qos.get(id).is_none() {
            // *FlowControl says both directions where nobody has said anything.
            Arc::make_mut(&mut change).qos.pause.global_rx = true;
        }
        self.set_sender(id, &change);
    }

    /// An adapter is removed: what waits is gone with it.
    pub(super) fn forget_guest_roce(&mut self, id: PortId) {
        self.core.out.guest_roce.retain(|p| *p != id);
        let roce = self.core.adapter(id).and_then(|a| a.guest_roce.take());
        let lost = roce.map_or(0, |r| r.proxy.len());
        self.counters
            .add(vnic_engine::counters::CoreCounter::Orphans as usize, lost as u64);
    }

    /// Flows of a guest's own RoCE that are limited now.
    pub(super) fn guest_flows(&mut self, id: PortId) -> Vec<FlowStatus> {
        let now = self.core.now;
        let roce = self.core.out.guest_roce(id);
        roce.map_or_else(Vec::new, |r| r.proxy.flows(now))
    }
}
