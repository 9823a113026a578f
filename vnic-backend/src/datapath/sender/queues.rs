//! Send queues of an adapter, one for each priority (`SendQueuePerPrio`): a frame whose priority may not go is copied and
//! waits here, so that frames of other priorities behind it in the guest's ring go on.

use vnic_fabric::Instant;
use vnic_fabric::qos::{Classes, Colour, Decision, Egress, Entry, PortQos};
use vnic_fabric::switch::PortId;

use super::super::frame::{Metadata, OwnedFrame, Pool, RawFrame, on_wire};

/// Largest number of waiting bytes of a priority. A send queue of a NIC has 1024 entries by default; 1024 full frames are
/// more than this, and any segmentation request fits.
pub const QUEUE_MAX: u64 = 256 << 10;

/// A frame that waits.
pub struct Queued {
    /// The frame.
    pub frame: OwnedFrame,
    /// Priority of the tag that a policy gives the frame, if the frame leaves with a tag.
    pub pcp: Option<u8>,
}

/// Send queues of an adapter.
pub struct SendQueues {
    /// Frames, by priority.
    pub egress: Egress<Queued>,
    /// Bytes of waiting frames, by priority.
    pub bytes: [u64; 8],
    /// Memory for copies.
    pub pool: Pool,
}

/// Settings for scheduling only: [`Limits`](super::limits::Limits) keeps the adapter's limits, also for its RDMA function.
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
    /// Empty queues.
    pub fn new(qos: &PortQos, now: Instant) -> SendQueues {
        SendQueues {
            egress: Egress::new(&scheduling(qos), now),
            bytes: [0; 8],
            pool: Pool::default(),
        }
    }

    /// Changes the classes; frames go on waiting.
    pub fn configure(&mut self, qos: &PortQos, now: Instant) {
        self.egress.configure(&scheduling(qos), now);
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.egress.is_empty()
    }

    /// Number of waiting frames.
    pub fn len(&self) -> usize {
        self.egress.len()
    }

    /// Bytes of waiting frames, by priority.
    pub fn bytes(&self) -> [u64; 8] {
        self.bytes
    }

    /// Priorities of which a frame waits, a bit each.
    pub fn priorities(&self) -> u8 {
        let waiting = (0..8u8).zip(self.bytes).filter(|(_, b)| *b > 0);
        waiting.fold(0, |all, (p, _)| all | 1 << p)
    }

    /// Whether there is room for a frame of this length.
    pub fn has_room(&self, priority: u8, len: usize) -> bool {
        self.bytes[usize::from(priority & 7)] + u64::from(cost(len)) <= QUEUE_MAX
    }

    /// Whether a queue that was full has room again, for more than one frame.
    pub fn takes_more(&self, priority: u8) -> bool {
        self.bytes[usize::from(priority & 7)] <= QUEUE_MAX / 2
    }

    /// Whether a frame may go at once. `closed`: priorities that may not, a bit each.
    pub fn passes(&mut self, now: Instant, priority: u8, f: &RawFrame<'_>, closed: u8) -> bool {
        self.egress.is_empty() && closed >> priority & 1 == 0
            || self.egress.pass(now, priority, on_wire(f), closed)
    }

    /// Copies a frame into its queue. False: there is no memory for it.
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
        level: priority & 7,
        colour: Colour::Green,
        wire: on_wire(f),
        bytes: cost(f.len),
        since: now,
    }
}
