//! Events on their way to the driver (`SPEC.md`, section 10.1).

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_device::event::{EventKind, EventRecord};
use vnic_device::zerocopy::IntoBytes;

use crate::datapath::{Call, notify};
use crate::mem::{Seg, Writer};
use crate::ring::{Fault, SplitRing};

/// Events that wait for a buffer, those of armed CQs not counted.
const PENDING_MAX: usize = 4096;

/// An event queue of the driver.
#[derive(Debug)]
pub struct EventQueue {
    /// Its virtqueue; `None` after a fault.
    pub ring: Option<SplitRing>,
    /// The driver's interrupt.
    pub call: Option<Arc<Call>>,
}

/// Events that wait for a buffer, by event queue.
#[derive(Debug, Default)]
pub struct Events {
    waiting: VecDeque<(u16, EventRecord)>,
    /// Of these, so many may be lost.
    common: usize,
}

impl Events {
    /// A completion for somebody who armed a CQ. Never lost: [`CompletionRing::tell`](super::completions) sees to it
    /// that a CQ has at most one waiting.
    pub fn completion(&mut self, event_queue: u16, cq: u32, produced: u32) {
        let record = EventRecord {
            kind: EventKind::Completion.number(),
            object: cq,
            detail: produced.into(),
            ..EventRecord::default()
        };
        self.waiting.push_back((event_queue, record));
    }

    /// Any other event.
    pub fn push(&mut self, kind: EventKind, object: u32, detail: u64) {
        let mut record = EventRecord {
            kind: kind.number(),
            object,
            detail,
            ..EventRecord::default()
        };
        if self.common >= PENDING_MAX {
            // The newest that may be lost says how many are.
            let lost = EventKind::EventsLost.number();
            if let Some((_, last)) = self.waiting.iter_mut().rev().find(|(_, r)| r.kind == lost) {
                last.detail += 1;
                return;
            }
            (record.kind, record.object, record.detail) = (lost, 0, 1);
        }
        self.common += 1;
        self.waiting.push_back((0, record));
    }

    /// A CQ is gone, and whoever armed it.
    pub fn forget(&mut self, cq: u32) {
        let completion = EventKind::Completion.number();
        self.waiting
            .retain(|(_, r)| r.kind != completion || r.object != cq);
    }

    /// Nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes what there are buffers for; `told` hears of the CQs whose events were written. Answers how much was written,
    /// and the fault that stopped a queue.
    pub fn deliver(
        &mut self,
        queues: &mut [EventQueue],
        mut told: impl FnMut(u32),
    ) -> (usize, Option<(u16, Fault)>) {
        let mut fault = None;
        let mut done = 0;
        // Queues are few, and each is in order: what finds no buffer keeps its place.
        let mut kept = VecDeque::new();
        let mut blocked = 0u64;
        while let Some((number, record)) = self.waiting.pop_front() {
            let counts = record.kind != EventKind::Completion.number();
            let queue = queues.get_mut(usize::from(number));
            let bit = 1u64 << (number & 63);
            let written = match queue {
                Some(queue) if blocked & bit == 0 => write(queue, &record),
                Some(_) => Ok(false),
                // There is no such queue: nobody would hear of it.
                None => Ok(true),
            };
            match written {
                Ok(true) => {
                    done += 1;
                    self.common -= usize::from(counts);
                    if !counts {
                        told(record.object);
                    }
                }
                Ok(false) => {
                    blocked |= bit;
                    kept.push_back((number, record));
                    if blocked.count_ones() as usize >= queues.len() {
                        break;
                    }
                }
                Err(broken) => {
                    if let Some(queue) = queues.get_mut(usize::from(number)) {
                        queue.ring = None;
                    }
                    fault = Some((number, broken));
                    kept.push_back((number, record));
                    blocked |= bit;
                }
            }
        }
        while let Some(last) = kept.pop_back() {
            self.waiting.push_front(last);
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

/// Puts a record into the next buffer. False: there is none.
fn write(queue: &mut EventQueue, record: &EventRecord) -> Result<bool, Fault> {
    let Some(ring) = &mut queue.ring else {
        return Ok(false);
    };
    // (A driver that goes on offering buffers too small is not waited for.)
    for _ in 0..ring.ready()? {
        let head = ring.head(0)?;
        let mut segs: Vec<Seg> = Vec::with_capacity(1);
        let room = ring.chain(head, true, &mut segs)?;
        ring.advance(1);
        if room < size_of::<EventRecord>() as u64 {
            ring.stage(head, 0);
            continue;
        }
        Writer::new(&segs).bytes(record.as_bytes());
        ring.stage(head, size_of::<EventRecord>() as u32);
        return Ok(true);
    }
    Ok(false)
}
