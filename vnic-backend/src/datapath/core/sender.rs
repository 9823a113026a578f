//! Sending side of adapters: transmit queues, send queues and RDMA function ask here and report what they sent.

use std::sync::Arc;

use vnic_engine::counters::{CoreCounter, PriorityCounter as P, QueueCounter as Q};
use vnic_fabric::qos::{Away, Entry, PauseSettings, WIRE_OVERHEAD};
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::super::counters::AdapterCounters;
use super::super::frame::{Metadata, OwnedFrame, RawFrame};
use super::super::news::CoreEvent;
use super::super::outputs::Slot;
use super::super::qos::{PauseState, QosChange};
use super::super::sender::{Member, PAUSE_LOOK, PausedAdapter, Queued, SendQueues, Sender};
use super::super::weight::{self, HEAVY};
use super::Core;
use crate::types::QueueStatus;

/// Frames sent from one adapter's send queues before other work gets its turn.
const BURST: usize = 64;

/// Counts frames of a priority other than 0; priority 0 is the rest of the totals, computed when it is read.
#[inline]
fn count(counters: &AdapterCounters, priority: u8, frames: u32, bytes: u64) {
    let block = &counters.link.priorities[usize::from(priority & 7)];
    block.add(P::TxFrames as usize, frames.into());
    block.add(P::TxBytes as usize, bytes);
}

impl Core {
    /// The sending side of an adapter of this core, if anything is configured.
    #[inline]
    pub fn sender(&mut self, port: PortId) -> Option<&mut Sender> {
        self.senders.get(port)
    }

    /// Pause state of an adapter.
    #[inline]
    pub fn pause_state(&self, port: PortId) -> PauseState {
        if self.pauses.any() {
            self.pauses.of(port)
        } else {
            PauseState::default()
        }
    }

    /// Priorities that an adapter's RDMA function may send now, a bit each: neither paused nor over a limit.
    #[inline]
    pub fn open_priorities(&mut self, port: PortId, now: Instant) -> u8 {
        let state = self.pause_state(port);
        if let Some(sender) = self.senders.get(port) {
            return sender.open(state, now) & !sender.others(now, Member::RDMA);
        }
        if state.global && self.halted(port) {
            0
        } else {
            0xff
        }
    }

    /// Whether an adapter without a [`Sender`] is paused, and obeys.
    #[cold]
    #[inline(never)]
    pub fn halted(&self, port: PortId) -> bool {
        // Without a setting `*FlowControl` is on in both directions.
        let obeys = self.out.qos.get(port).is_none_or(|c| c.qos.pause.global_rx);
        obeys && self.pauses.of(port).global
    }

    /// Whether limits or turns apply to what an adapter sends.
    #[inline]
    pub fn is_limited(&mut self, port: PortId) -> bool {
        self.senders.get(port).is_some()
    }

    /// Charges an adapter's limits with frames of its RDMA function and counts them; `bytes` are without preamble, FCS and
    /// gap.
    #[inline]
    pub fn sent(&mut self, port: PortId, now: Instant, priority: u8, frames: u32, bytes: u64) {
        if let Some(sender) = self.senders.get(port) {
            let wire = bytes + u64::from(frames) * u64::from(WIRE_OVERHEAD);
            sender.charge_bytes(now, None, Member::RDMA, priority, wire);
        }
        if priority != 0
            && let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(port.0))
        {
            count(&a.counters, priority, frames, bytes);
        }
    }

    /// The RDMA function of an adapter has something to send of these closed priorities, a bit each; 0: nothing any more.
    /// While it waits it gets its turn beside the Ethernet queues, and the core wakes when a priority opens.
    pub fn rdma_waits(&mut self, port: PortId, priorities: u8) {
        let (state, now) = (self.pause_state(port), self.now);
        if let Some(sender) = self.senders.get(port) {
            sender.wait(now, Member::RDMA, priorities & !sender.paused(state));
        }
        let known = self.senders.rdma.iter().position(|(p, _)| *p == port);
        match known {
            Some(i) if priorities == 0 => drop(self.senders.rdma.swap_remove(i)),
            Some(i) => self.senders.rdma[i].1 = priorities,
            None if priorities == 0 => {}
            None => self.senders.rdma.push((port, priorities)),
        }
    }

    /// When a frame of one of these priorities, a bit each, may be sent that may not be sent now.
    pub fn opens_at(&self, port: PortId, now: Instant, priorities: u8) -> Option<Instant> {
        if self.out.guest_roce_is_full(port) {
            // The guest's waiting RoCE has to leave first.
            return None;
        }
        self.sender_due(port, now, priorities)
    }

    /// As [`Core::opens_at`], as far as limits and pause are concerned.
    pub fn sender_due(&self, port: PortId, now: Instant, priorities: u8) -> Option<Instant> {
        match self.senders.look(port) {
            Some(sender) => sender.due(self.pause_state(port), now, priorities),
            None if priorities != 0 => Some(now + PAUSE_LOOK),
            None => None,
        }
    }

    /// When a frame may leave that waits in a send queue or in an RDMA function.
    pub fn senders_due(&self, now: Instant) -> Option<Instant> {
        let rdma = self.senders.rdma.iter().copied();
        let queued = self.senders.all().filter_map(|(port, s)| {
            let queues = s.queues.as_deref()?;
            (!queues.is_empty()).then(|| (port, queues.priorities()))
        });
        let waiting = rdma.chain(queued.filter(|_| self.senders.queued));
        waiting.filter_map(|(port, p)| self.opens_at(port, now, p)).min()
    }

    /// Counts credit of all rates for a time in which the core could not look.
    #[cold]
    pub fn was_away(&mut self, away: Away) {
        let senders = self.senders.by_port.iter_mut().flatten();
        senders.for_each(|sender| sender.was_away(away));
        self.out.was_away(away);
    }

    /// Sends frames of send queues that may leave. Returns their number.
    #[cold]
    pub fn senders_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let mut queued = false;
        for i in 0..self.senders.by_port.len() {
            let port = PortId(i as u16);
            let Some(sender) = self.senders.get(port) else {
                continue;
            };
            if sender.queues.as_deref().is_some_and(|q| !q.is_empty()) {
                work += self.drain(port, now);
            }
            let Some(sender) = self.senders.get(port) else {
                continue;
            };
            let empty = sender.queues.as_deref().is_none_or(SendQueues::is_empty);
            queued |= !empty;
            if empty && sender.drains() {
                sender.queues = None;
                let change = sender.change.clone();
                self.set_sender(port, &change);
            }
        }
        self.senders.queued = queued;
        if work > 0 {
            self.flush();
        }
        work
    }

    /// Configures the sending side of an adapter of this core.
    pub fn set_sender(&mut self, id: PortId, change: &Arc<QosChange>) {
        let Some(Slot::Adapter(_)) = self.out.slots.get(usize::from(id.0)) else {
            return;
        };
        let (i, now) = (usize::from(id.0), self.now);
        let places = &mut self.senders.by_port;
        if places.len() <= i {
            places.resize_with(i + 1, || None);
        }
        let place = &mut places[i];
        match place {
            Some(sender) => sender.configure(change, now),
            None => *place = Some(Box::new(Sender::new(change.clone(), now))),
        }
        let roce = self.out.guest_roce.contains(&id);
        if !change.qos.polices() && !roce && place.as_ref().is_some_and(|s| s.queues.is_none()) {
            *place = None;
        }
        if let Some(sender) = place {
            sender.guest_roce = roce;
        }
        self.senders.changed.push(id);
    }

    /// Drops the sending side of a removed port with its waiting frames.
    pub fn forget_sender(&mut self, id: PortId) {
        self.senders.rdma.retain(|(port, _)| *port != id);
        self.senders.paused.retain(|adapter| adapter.port != id);
        let Some(place) = self.senders.by_port.get_mut(usize::from(id.0)) else {
            return;
        };
        let lost = place.take().and_then(|s| s.queues).map_or(0, |q| q.len());
        self.out
            .round
            .counters
            .add(CoreCounter::Orphans as usize, lost as u64);
    }

    /// Adds the status of the sending side of an adapter.
    pub fn sender_status(&mut self, id: PortId, status: &mut QueueStatus) {
        let state = self.pause_state(id);
        let halted = state.global && self.halted(id);
        match self.senders.get(id) {
            Some(sender) => {
                status.paused |= sender.paused(state);
                status.send_queues = sender.queues.as_deref().map_or([0; 8], SendQueues::bytes);
            }
            None if halted => status.paused = 0xff,
            None => {}
        }
    }

    fn drain(&mut self, port: PortId, now: Instant) -> usize {
        // As for a guest's ring, a bug takes down only the adapter whose frames trigger it.
        let drained = self.guarded(|core| core.drain_send_queues(port, now));
        drained.unwrap_or_else(|| {
            self.report(CoreEvent::Panic { port });
            1
        })
    }

    /// Counts how long adapters are paused; called while any sender is paused, and once more afterwards.
    #[cold]
    pub fn pause_round(&mut self, now: Instant) {
        if self.pauses.any() {
            for (i, slot) in self.out.slots.iter().enumerate() {
                let port = PortId(i as u16);
                if let Slot::Adapter(a) = slot
                    && self.pauses.of(port) != PauseState::default()
                    && !self.senders.paused.iter().any(|b| b.port == port)
                {
                    self.senders
                        .paused
                        .push(PausedAdapter::new(port, a.counters.clone()));
                }
            }
        }
        let (pauses, qos) = (&self.pauses, &self.out.qos);
        self.senders.paused.retain_mut(|adapter| {
            let state = pauses.of(adapter.port);
            // Without a setting `*FlowControl` is on in both directions.
            let pause = qos.get(adapter.port).map_or(
                PauseSettings {
                    global_rx: true,
                    ..PauseSettings::default()
                },
                |c| c.qos.pause,
            );
            adapter.follow(now, state, pause);
            state != PauseState::default()
        });
    }

    /// Sends frames of an adapter's send queues that may leave. Returns their number.
    pub(super) fn drain_send_queues(&mut self, port: PortId, now: Instant) -> usize {
        let Some(mut queues) = self.senders.get(port).and_then(|s| s.queues.take()) else {
            return 0;
        };
        let mut n = 0;
        // Priorities whose first frame is held up by its receivers or by a link to another core.
        let (mut stuck, mut heavy) = (0, 0);
        while n < BURST && heavy <= HEAVY {
            let state = self.pause_state(port);
            let Some(sender) = self.senders.get(port) else {
                break;
            };
            let closed = !sender.open(state, now) | stuck | sender.others(now, Member::SEND_QUEUES);
            let Some(pick) = queues.egress.next(now, closed) else {
                break;
            };
            let Some((entry, frame)) = queues.egress.front(pick) else {
                break;
            };
            let entry = *entry;
            let verdict = self.switched(port, now, &frame.frame, frame.pcp);
            if self.is_held_up(&verdict, &frame.frame) {
                stuck |= 1 << entry.priority;
                continue;
            }
            let Some((entry, Queued { mut frame, .. })) = queues.egress.take(now, pick) else {
                break;
            };
            queues.bytes[usize::from(entry.priority)] -= u64::from(entry.bytes);
            heavy += weight::segments(frame.bytes.len() as u64, &frame.hdr);
            n += 1;
            frame.with(|f, meta| self.send_waited(now, &entry, &verdict, f, meta));
            queues.pool.give_back(frame);
        }
        let left = !stuck & queues.priorities();
        if let Some(sender) = self.senders.get(port) {
            sender.wait(now, Member::SEND_QUEUES, left);
            sender.queues = Some(queues);
        }
        n
    }

    /// Verdict for a frame that has waited, with the tag's priority that a policy gives it.
    pub fn switched(&mut self, port: PortId, now: Instant, frame: &OwnedFrame, pcp: Option<u8>) -> Verdict {
        let verdict = self.switch.forward(now, port, frame.head(), frame.bytes.len());
        match pcp {
            Some(pcp) => self.switch.assign(port, frame.head(), verdict, pcp, true),
            None => verdict,
        }
    }

    /// Whether a frame that has waited is held up by its receivers, or by a link to another core.
    pub fn is_held_up(&self, verdict: &Verdict, frame: &OwnedFrame) -> bool {
        let port = frame.meta.source;
        self.out.round.waiting.pressed && self.must_wait(port, verdict, frame.head())
            || self.crosses(port, verdict) && !self.links_have_room()
    }

    /// Sends a frame from a send queue.
    fn send_waited(
        &mut self,
        now: Instant,
        entry: &Entry,
        verdict: &Verdict,
        f: &RawFrame<'_>,
        meta: &Metadata,
    ) {
        if let (false, Some(sender)) = (matches!(verdict, Verdict::Drop(_)), self.senders.get(meta.source)) {
            sender.charge(now, Some(entry.since), Member::SEND_QUEUES, entry.priority, f);
        }
        self.leave(verdict, f, meta);
    }

    /// Sends a frame that has waited to its receivers. The transmit queue that it comes from, if any, counts whether it was
    /// forwarded.
    pub fn leave(&mut self, verdict: &Verdict, f: &RawFrame<'_>, meta: &Metadata) {
        let dropped = self.dispatch(verdict, f, meta);
        let Some(pair) = meta.queue else { return };
        let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(meta.source.0)) else {
            return;
        };
        match (dropped, a.counters.queues.get(usize::from(pair))) {
            (None, Some(queue)) => queue.add(Q::TxForwarded as usize, 1),
            (None, None) => {}
            (Some(reason), _) => a.counters.drops.add(reason as usize, 1),
        }
        if dropped == Some(DropReason::SpoofedSource) {
            self.report_spoof(meta.source, f.head);
        }
    }
}
