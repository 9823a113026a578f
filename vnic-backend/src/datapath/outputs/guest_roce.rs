//! RoCE that guests run in software over their Ethernet queues: the NIC counts marks and notifications, and if the
//! operator wants it, it notifies and slows down on the guest's behalf.
//!
//! ```text
//!  outputs ── to the guest ──▶ Proxy ── notification ──▶ switch
//!  tx ─── from the guest ──▶ Proxy: limited? ─▶ a copy waits ── its flow's turn ──▶ switch
//!                                     └─ no: sent at once
//! ```
//!
//! For an algorithm that wants telemetry, frames of the guest's get a trailer behind their packet, and frames for the guest lose theirs.
//!
//! [`Proxy`] decides; this module keeps its frames. A waiting frame is a copy and its buffer is completed, so that the
//! guest's other flows go on. The bytes of all waiting frames are bounded: beyond the bound frames stay in the ring.

use std::sync::Arc;

use vnic_engine::congestion::proxy::{Counts, FlowId, Full, Proxy, SEEN, Seen};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::rdma::Congestion;
use vnic_fabric::Instant;
use vnic_fabric::qos::Decision;
use vnic_wire::ethernet;
use vnic_wire::int::TRAILER_LEN;
use vnic_wire::vlan;

use super::super::counters::AdapterCounters;
use super::super::frame::{Metadata, OutFrame, OwnedFrame, Pool, RawFrame, on_wire};

/// A frame that waits for its flow's turn, and the decision of its adapter's rules.
pub struct WaitingRoce {
    /// The frame.
    pub frame: OwnedFrame,
    /// Decision of the rules.
    pub decision: Decision,
}

/// State of one guest's RoCE, on the core that serves its adapter.
pub struct GuestRoce {
    /// Flows and their limits.
    pub proxy: Proxy<WaitingRoce>,
    /// When this round began.
    pub now: Instant,
    /// Whether a ring waits because too much waits here.
    pub full: bool,
    /// Memory for frames that wait.
    pub pool: Pool,
    counters: Arc<AdapterCounters>,
}

/// A frame's RoCEv2 headers, if it has some.
pub fn see(f: &OutFrame<'_>) -> Option<Seen> {
    let mut bytes = [0; SEEN];
    let n = f.peek(&mut bytes);
    let mut seen = Seen::parse(&bytes[..n])?;
    let mut last = [0; TRAILER_LEN];
    if seen.behind(f.len()) == TRAILER_LEN && f.peek_last(&mut last) {
        seen.read_behind(&last);
    }
    Some(seen)
}

/// Whether a frame has room for a trailer behind its packet: nothing is there yet, no offload has to finish the frame, and an MTU of
/// so many bytes takes it.
pub fn has_room(seen: &Seen, f: &RawFrame<'_>, mtu: usize) -> bool {
    let tagged = ethernet::Header::parse(f.head).is_ok_and(|eth| eth.ethertype.is_vlan());
    let most = mtu + ethernet::HEADER_LEN + if tagged { vlan::HEADER_LEN } else { 0 };
    seen.behind(f.len) == 0 && f.hdr.is_plain() && f.len + TRAILER_LEN <= most
}

impl GuestRoce {
    /// Makes the state of a guest whose flows have no waiting frames. With `acts` the proxy limits and notifies.
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

    /// Keeps a copy of a frame until its flow's turn. `room`: it may have a trailer.
    pub fn hold(
        &mut self,
        flow: FlowId,
        seen: &Seen,
        decision: Decision,
        f: &RawFrame<'_>,
        meta: &Metadata,
        room: bool,
    ) -> Result<(), Full> {
        let trailer = match room {
            true => self.proxy.trailer(self.now, Some(flow), seen),
            false => None,
        };
        let trailer = trailer.map(|t| t.emit_trailer());
        let trailer = trailer.as_ref().map_or(&[][..], |bytes| bytes);
        let cost = (f.len + trailer.len() + OwnedFrame::COST) as u32;
        let room = self.proxy.room(flow, cost);
        self.full |= room == Err(Full::All);
        room?;
        let mut frame = self.pool.copy(&f.whole(), meta.clone()).ok_or(Full::Flow)?;
        frame.bytes.extend_from_slice(trailer);
        let wire = on_wire(f) + trailer.len() as u32;
        let held = WaitingRoce { frame, decision };
        let held = self.proxy.hold(self.now, flow, seen, wire, cost, held);
        held.map_err(|_| Full::Flow)
    }

    /// Adds the proxy's counts to the counters of a receive queue.
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
