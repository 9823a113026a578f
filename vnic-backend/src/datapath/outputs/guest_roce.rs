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

use std::sync::Arc;

use vnic_engine::congestion::proxy::{Counts, FlowId, Full, Proxy, SEEN, Seen};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::rdma::Congestion;
use vnic_fabric::Instant;
use vnic_fabric::qos::Decision;

use super::super::counters::AdapterCounters;
use super::super::frame::{Metadata, OutFrame, OwnedFrame, Pool, RawFrame, on_wire};

/// A frame that waits for its flow's turn, and what its adapter's rules say of it.
pub struct WaitingRoce {
    /// The frame.
    pub frame: OwnedFrame,
    /// The rules.
    pub decision: Decision,
}

/// What is done for one guest's RoCE, on the core that serves its adapter.
pub struct GuestRoce {
    /// What decides.
    pub proxy: Proxy<WaitingRoce>,
    /// When this round began.
    pub now: Instant,
    /// A ring waits because too much waits here.
    pub full: bool,
    /// Memory for frames that wait.
    pub pool: Pool,
    counters: Arc<AdapterCounters>,
}

/// A frame's RoCEv2 headers, if it has some.
pub fn see(f: &OutFrame<'_>) -> Option<Seen> {
    let mut bytes = [0; SEEN];
    let n = f.peek(&mut bytes);
    Seen::parse(&bytes[..n])
}

impl GuestRoce {
    /// Nothing waits. With `acts` it limits and notifies.
    pub fn new(
        congestion: Congestion,
        acts: bool,
        now: Instant,
        counters: Arc<AdapterCounters>,
    ) -> GuestRoce {
        GuestRoce {
            proxy: Proxy::new(congestion, acts),
            now,
            full: false,
            pool: Pool::default(),
            counters,
        }
    }

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
        let held = WaitingRoce { frame, decision };
        let held = self.proxy.hold(self.now, flow, seen, on_wire(f), cost, held);
        held.map_err(|_| Full::Flow)
    }

    /// Counts what was seen at a receive queue.
    pub fn count(&self, queue: usize, counts: Counts) {
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
