//! Send queues of an adapter, one for each priority (`SendQueuePerPrio`): a frame whose priority may not go is copied and
//! waits here, so that frames of other priorities behind it in the guest's ring go on.

use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{Classes, Decision, Egress, Entry, PortQos};
use vnic_fabric::switch::{PortId, Verdict};
use vnic_fabric::{DropReason, Instant};

use super::super::super::core::Core;
use super::super::super::frame::{OutFrame, RawFrame};
use super::super::super::outputs::Slot;
use super::super::super::weight::{self, HEAVY};
use super::super::Pool;
use super::on_wire;
use super::turns::Member;
use crate::mem::Seg;
use crate::types::Direction;

/// Bytes that wait at most, for each priority: a send queue of a card has 1024 entries by default, full frames are more than
/// that, and any segmentation request fits.
pub const QUEUE_MAX: u64 = 256 << 10;
/// What a frame takes beside its own bytes.
const FRAME_COST: usize = 128;
/// Frames sent from one adapter's queues before other work gets its turn.
const BURST: usize = 64;

/// A frame that waits: a copy of our own.
struct Queued {
    bytes: Vec<u8>,
    hdr: NetHdr,
    /// Transmit queue that it came from.
    pair: u8,
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
    (len + FRAME_COST) as u32
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
            || self.egress.pass(now, priority, wire(f), closed)
    }

    /// A frame waits. False: there is no memory for it.
    pub fn push(
        &mut self,
        now: Instant,
        port: PortId,
        pair: usize,
        decision: Decision,
        f: &RawFrame<'_>,
    ) -> bool {
        let whole = OutFrame {
            head: f.head,
            segs: f.segs,
            skip: f.skip + f.head.len(),
            tail: f.len - f.head.len(),
            hdr: f.hdr,
        };
        let Some(bytes) = self.pool.copy(&whole) else {
            return false;
        };
        let entry = entry(now, port, decision.priority, f);
        self.bytes[usize::from(entry.priority)] += u64::from(entry.bytes);
        let frame = Queued {
            bytes,
            hdr: f.hdr,
            pair: pair as u8,
            pcp: decision.pcp,
        };
        self.egress.push(entry, frame);
        true
    }
}

/// Bytes on the wire.
fn wire(f: &RawFrame<'_>) -> u32 {
    u32::try_from(on_wire(f)).unwrap_or(u32::MAX)
}

fn entry(now: Instant, port: PortId, priority: u8, f: &RawFrame<'_>) -> Entry {
    Entry {
        source: port.0,
        priority: priority & 7,
        wire: wire(f),
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
            let told = self.told(port);
            let Some(sender) = self.senders.get(port) else {
                break;
            };
            let closed = !sender.open(told, now) | stuck | sender.others(now, Member::SEND_QUEUES);
            let Some(pick) = queues.egress.next(now, closed) else {
                break;
            };
            let Some((entry, frame)) = queues.egress.front(pick) else {
                break;
            };
            let (entry, len) = (*entry, frame.bytes.len());
            let verdict = self
                .switch
                .forward(now, port, &frame.bytes[..len.min(HEAD_MAX)], len);
            let verdict = match frame.pcp {
                Some(pcp) => verdict.with_priority(pcp),
                None => verdict,
            };
            let head = &frame.bytes[..len.min(HEAD_MAX)];
            if self.out.waiting.pressed && self.must_wait(port, &verdict, head)
                || self.crosses(port, &verdict) && !self.links_have_room()
            {
                stuck |= 1 << entry.priority;
                continue;
            }
            let Some((entry, frame)) = queues.egress.take(now, pick) else {
                break;
            };
            queues.bytes[usize::from(entry.priority)] -= u64::from(entry.bytes);
            heavy += weight::segments(len as u64, &frame.hdr);
            n += 1;
            let bytes = self.send_queued(port, now, entry, frame, verdict);
            queues.pool.give_back(bytes);
        }
        let left = !stuck & queues.priorities();
        if let Some(sender) = self.senders.get(port) {
            sender.wait(now, Member::SEND_QUEUES, left);
            sender.queues = Some(queues);
        }
        n
    }

    /// Sends a frame that has waited. Answers its memory, for the next one.
    fn send_queued(
        &mut self,
        port: PortId,
        now: Instant,
        entry: Entry,
        mut frame: Queued,
        verdict: Verdict,
    ) -> Vec<u8> {
        let segs = [Seg {
            ptr: frame.bytes.as_mut_ptr(),
            len: frame.bytes.len() as u32,
        }];
        let f = RawFrame {
            head: &frame.bytes[..frame.bytes.len().min(HEAD_MAX)],
            len: frame.bytes.len(),
            hdr: frame.hdr,
            segs: &segs,
            skip: 0,
        };
        let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(port.0)) else {
            return frame.bytes;
        };
        let counters = a.counters.clone();
        let queue = counters.queues.get(usize::from(frame.pair));
        if let Verdict::Drop(reason) = verdict {
            counters.drops.add(reason as usize, 1);
            self.captured(port, Direction::Ingress, &f, Some(reason));
            if reason == DropReason::SpoofedSource {
                self.report_spoof(port, f.head);
            }
            return frame.bytes;
        }
        if let Some(sender) = self.senders.get(port) {
            sender.charge(now, Some(entry.since), Member::SEND_QUEUES, entry.priority, &f);
        }
        if self.crosses(port, &verdict) && self.send_remote(port, &verdict, &f, None).is_none() {
            // There was room a moment ago.
            counters.drops.add(DropReason::CoreExchangeFull as usize, 1);
            return frame.bytes;
        }
        self.captured(port, Direction::Ingress, &f, None);
        self.deliver(port, &verdict, &f, None, queue);
        if let Some(queue) = queue {
            queue.add(Q::TxForwarded as usize, 1);
        }
        frame.bytes
    }
}
