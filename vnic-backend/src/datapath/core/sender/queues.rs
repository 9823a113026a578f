//! Send queues of an adapter, one for each priority (`SendQueuePerPrio`): a frame whose priority may not go is copied and
//! waits here, so that frames of other priorities behind it in the guest's ring go on.

use vnic_engine::counters::QueueCounter as Q;
use vnic_fabric::qos::{Classes, Decision, Egress, Entry, PortQos};
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::super::super::frame::{Metadata, OwnedFrame, Pool, RawFrame, on_wire};
use super::super::super::outputs::Slot;
use super::super::super::weight::{self, HEAVY};
use super::super::Core;
use super::turns::Member;

/// Bytes that wait at most, for each priority: a send queue of a card has 1024 entries by default, full frames are more than
/// that, and any segmentation request fits.
pub const QUEUE_MAX: u64 = 256 << 10;
/// Frames sent from one adapter's queues before other work gets its turn.
const BURST: usize = 64;

/// A frame that waits.
struct Queued {
    frame: OwnedFrame,
    /// Priority that a policy gives it where it leaves with a tag.
    pcp: Option<u8>,
}

/// See the module.
pub struct SendQueues {
    egress: Egress<Queued>,
    /// By priority.
    bytes: [u64; 8],
    pool: Pool,
}

/// Scheduling only: the adapter's limits are kept by [`Limits`](super::limits::Limits), for its RDMA function as well.
fn scheduling(qos: &PortQos) -> PortQos {
    PortQos {
        rate: 0,
        classes: Classes {
            limit: [0; 8],
            ..qos.classes.clone()
        },
        ..qos.clone()
    }
}

fn cost(len: usize) -> u32 {
    (len + OwnedFrame::COST) as u32
}

impl SendQueues {
    /// Empty.
    pub fn new(qos: &PortQos, now: Instant) -> SendQueues {
        SendQueues {
            egress: Egress::new(&scheduling(qos), now),
            bytes: [0; 8],
            pool: Pool::default(),
        }
    }

    /// Other classes; what waits goes on waiting.
    pub fn configure(&mut self, qos: &PortQos, now: Instant) {
        self.egress.configure(&scheduling(qos), now);
    }

    /// Does nothing wait?
    pub fn is_empty(&self) -> bool {
        self.egress.is_empty()
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.egress.len()
    }

    /// Bytes that wait, by priority.
    pub fn bytes(&self) -> [u64; 8] {
        self.bytes
    }

    /// Priorities of which something waits, a bit each.
    pub fn priorities(&self) -> u8 {
        let waiting = (0..8u8).zip(self.bytes).filter(|(_, b)| *b > 0);
        waiting.fold(0, |all, (p, _)| all | 1 << p)
    }

    /// Is there room for a frame of so many bytes?
    pub fn has_room(&self, priority: u8, len: usize) -> bool {
        self.bytes[usize::from(priority & 7)] + u64::from(cost(len)) <= QUEUE_MAX
    }

    /// After it was full: is there room again, for more than one frame?
    pub fn takes_more(&self, priority: u8) -> bool {
        self.bytes[usize::from(priority & 7)] <= QUEUE_MAX / 2
    }

    /// May a frame go at once? `closed`: priorities that may not, a bit each.
    pub fn passes(&mut self, now: Instant, priority: u8, f: &RawFrame<'_>, closed: u8) -> bool {
        self.egress.is_empty() && closed >> priority & 1 == 0
            || self.egress.pass(now, priority, on_wire(f), closed)
    }

    /// A frame waits. False: there is no memory for it.
    pub fn push(&mut self, now: Instant, decision: Decision, f: &RawFrame<'_>, meta: &Metadata) -> bool {
        let Some(frame) = self.pool.copy(&f.whole(), meta.clone()) else {
            return false;
        };
        let entry = entry(now, meta.source, decision.priority, f);
        self.bytes[usize::from(entry.priority)] += u64::from(entry.bytes);
        let pcp = decision.pcp;
        self.egress.push(entry, Queued { frame, pcp });
        true
    }
}

fn entry(now: Instant, port: PortId, priority: u8, f: &RawFrame<'_>) -> Entry {
    Entry {
        source: port.0,
        priority: priority & 7,
        wire: on_wire(f),
        bytes: cost(f.len),
        since: now,
    }
}

impl Core {
    /// Sends what waits in an adapter's send queues and may go. Answers how many frames left them.
    pub(super) fn drain_send_queues(&mut self, port: PortId, now: Instant) -> usize {
        let Some(mut queues) = self.senders.get(port).and_then(|s| s.queues.take()) else {
            return 0;
        };
        let mut n = 0;
        // Priorities whose first frame cannot go for another reason.
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

    /// Where a frame goes that has waited, with the priority that a policy gives it where it leaves with a tag.
    pub fn switched(&mut self, port: PortId, now: Instant, frame: &OwnedFrame, pcp: Option<u8>) -> Verdict {
        let verdict = self.switch.forward(now, port, frame.head(), frame.bytes.len());
        match pcp {
            Some(pcp) => verdict.with_priority(pcp),
            None => verdict,
        }
    }

    /// Must a frame that has waited wait on: for its receivers, or for the way to them?
    pub fn is_held_up(&self, verdict: &Verdict, frame: &OwnedFrame) -> bool {
        let port = frame.meta.source;
        self.out.round.waiting.pressed && self.must_wait(port, verdict, frame.head())
            || self.crosses(port, verdict) && !self.links_have_room()
    }

    /// Sends a frame that has waited.
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

    /// A frame that has waited leaves for its receivers; the transmit queue that it comes from, if it comes from one, counts
    /// whether it was forwarded.
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
