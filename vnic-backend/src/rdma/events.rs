//! Events that wait for the driver's buffers (`SPEC.md`, section 10.1).

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_device::event::{EventKind, EventRecord};
use vnic_device::zerocopy::IntoBytes;

use crate::call::{Call, notify};
use crate::mem::{Segs, Writer};
use crate::ring::{Fault, SplitRing};

/// Largest number of events that wait for a buffer, without those of armed CQs.
const PENDING_MAX: usize = 4096;

/// An event queue of the driver.
#[derive(Debug)]
pub struct EventQueue {
    /// Virtqueue of the event queue; `None` after a fault.
    pub ring: Option<SplitRing>,
    /// The driver's call eventfd.
    pub call: Option<Arc<Call>>,
}

/// Events that wait for a buffer, by event queue.
#[derive(Debug, Default)]
pub struct Events {
    waiting: Vec<VecDeque<EventRecord>>,
    /// Number of events in all queues.
    count: usize,
    /// Number of events that may be lost.
    common: usize,
    /// The queue that is served first.
    first: usize,
}

impl Events {
    /// Queues the completion event of an armed CQ. It is never lost:
    /// [`CompletionRing::notify`](super::completions::CompletionRing::notify) lets a CQ have at most one waiting.
    pub fn completion(&mut self, event_queue: u16, cq: u32, produced: u32) {
        let record = EventRecord {
            kind: EventKind::Completion.number(),
            object: cq,
            detail: produced.into(),
            ..EventRecord::default()
        };
        self.add(event_queue.into(), record);
    }

    /// Queues any other event.
    pub fn push(&mut self, kind: EventKind, object: u32, detail: u64) {
        let mut record = EventRecord {
            kind: kind.number(),
            object,
            detail,
            ..EventRecord::default()
        };
        if self.common >= PENDING_MAX {
            // The newest event that may be lost becomes one that counts the lost ones.
            let lost = EventKind::EventsLost.number();
            let mut common = self.waiting.first_mut().into_iter().flatten().rev();
            if let Some(last) = common.find(|r| r.kind == lost) {
                last.detail += 1;
                return;
            }
            (record.kind, record.object, record.detail) = (lost, 0, 1);
        }
        self.common += 1;
        self.add(0, record);
    }

    fn add(&mut self, queue: usize, record: EventRecord) {
        if self.waiting.len() <= queue {
            self.waiting.resize_with(queue + 1, VecDeque::new);
        }
        self.waiting[queue].push_back(record);
        self.count += 1;
    }

    /// Removes the event of a destroyed CQ.
    pub fn forget(&mut self, event_queue: u16, cq: u32) {
        let completion = EventKind::Completion.number();
        if let Some(waiting) = self.waiting.get_mut(usize::from(event_queue)) {
            let before = waiting.len();
            waiting.retain(|r| r.kind != completion || r.object != cq);
            self.count -= before - waiting.len();
        }
    }

    /// Whether no event waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of waiting events.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Writes up to `most` events for which there are buffers, and calls `told` with the CQs whose events were written.
    /// Returns the number of events, and the fault that stopped a queue.
    pub fn deliver(
        &mut self,
        queues: &mut [EventQueue],
        most: usize,
        mut told: impl FnMut(u32),
    ) -> (usize, Option<(u16, Fault)>) {
        let (mut fault, mut done) = (None, 0);
        let lists = self.waiting.len();
        let first = self.first;
        for number in (first..lists).chain(0..first.min(lists)) {
            let queue = queues.get_mut(number);
            // Without such a queue the driver could not get the events.
            let Some(queue) = queue else {
                let none = std::mem::take(&mut self.waiting[number]);
                self.count -= none.len();
                let completion = EventKind::Completion.number();
                self.common -= none.iter().filter(|r| r.kind != completion).count();
                continue;
            };
            while let Some(record) = self.waiting[number].front() {
                if done == most {
                    // The next turn begins with the other queues.
                    self.first = number + 1;
                    break;
                }
                match write(queue, record) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(broken) => {
                        queue.ring = None;
                        fault = Some((number as u16, broken));
                        break;
                    }
                }
                done += 1;
                self.count -= 1;
                if record.kind == EventKind::Completion.number() {
                    told(record.object);
                } else {
                    self.common -= 1;
                }
                self.waiting[number].pop_front();
            }
        }
        for queue in queues {
            if let Some(ring) = &mut queue.ring
                && ring.unpublished()
                && ring.publish(ring.staged())
            {
                notify(queue.call.as_deref());
            }
        }
        (done, fault)
    }
}

/// Writes a record into the next buffer. False: there is none.
fn write(queue: &mut EventQueue, record: &EventRecord) -> Result<bool, Fault> {
    let Some(ring) = &mut queue.ring else {
        return Ok(false);
    };
    // (Bounded, in case the driver keeps offering buffers that are too small.)
    for _ in 0..ring.ready()? {
        let head = ring.head(0)?;
        let mut segs = Segs::with_capacity(1);
        let room = ring.chain(head, true, &mut segs)?;
        ring.advance(1);
        if room < size_of::<EventRecord>() as u64 {
            ring.stage(head, 0);
            continue;
        }
        Writer::new(segs.as_slice()).bytes(record.as_bytes());
        ring.stage(head, size_of::<EventRecord>() as u32);
        return Ok(true);
    }
    Ok(false)
}
