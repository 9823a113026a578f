//! Completion queues in guest memory (`SPEC.md`, section 9).

use vnic_device::queue::{CompletionEntry, PHASE, completion_flags};
use vnic_device::ring;
use vnic_engine::rdma::{Arm, Completion, Status};

use super::events::Events;
use super::shared_ring::SharedRing;

/// A completion queue's ring, and who waits for it.
#[derive(Debug)]
pub struct CompletionRing {
    /// Its memory.
    pub ring: SharedRing,
    entries: u32,
    /// Completions written.
    produced: u32,
    /// The driver's consumer index when it was last read.
    consumer: u32,
    armed: Option<(Arm, u32)>,
    /// Behind the newest completion that was solicited or failed, and whether there was one.
    solicited: Option<u32>,
    /// Event queue that hears of it.
    pub event_queue: u16,
    /// Its memory is gone: nothing is written any more.
    pub lost: bool,
    /// It waits for the driver to make room.
    pub waiting: bool,
    /// Its event waits for a buffer of the driver's.
    pub event_waits: bool,
}

impl CompletionRing {
    /// Empty.
    pub fn new(ring: SharedRing, entries: u32, event_queue: u16) -> CompletionRing {
        CompletionRing {
            ring,
            entries,
            produced: 0,
            consumer: 0,
            armed: None,
            solicited: None,
            event_queue,
            lost: false,
            waiting: false,
            event_waits: false,
        }
    }

    /// Goes on in another ring. Answers how many completions the old one ever had.
    pub fn replace(&mut self, ring: SharedRing, entries: u32) -> u32 {
        let produced = self.produced;
        let event_queue = self.event_queue;
        *self = CompletionRing {
            lost: self.lost,
            waiting: self.waiting,
            event_waits: self.event_waits,
            // Whoever waits for an event waits on; the indices are those of the new ring.
            armed: self.armed.map(|(arm, from)| (arm, from.wrapping_sub(produced))),
            solicited: self.solicited.map(|behind| behind.wrapping_sub(produced)),
            ..CompletionRing::new(ring, entries, event_queue)
        };
        produced
    }

    /// Completions written so far.
    pub fn produced(&self) -> u32 {
        self.produced
    }

    /// Is there room for one more?
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.produced.wrapping_sub(self.consumer) < self.entries {
            return true;
        }
        let tail = u64::from(self.entries) * size_of::<CompletionEntry>() as u64;
        let consumer = self.ring.load_u32(tail);
        // An index that is ahead of ours, or further behind than the ring is long, is a full ring.
        if self.produced.wrapping_sub(consumer) <= self.entries {
            self.consumer = consumer;
        }
        self.produced.wrapping_sub(self.consumer) < self.entries
    }

    /// Writes a completion. True: whoever armed the queue is to be told.
    #[inline]
    pub fn write(&mut self, completion: &Completion, now: u64) -> bool {
        let index = self.produced;
        let mut entry = entry(completion);
        entry.time = now;
        entry.phase = if ring::phase(index, self.entries) {
            PHASE
        } else {
            0
        };
        let at = u64::from(index & (self.entries - 1)) * size_of::<CompletionEntry>() as u64;
        let words = entry.to_words();
        let mut front = [0u8; 56];
        for (to, word) in front.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        self.ring.write(at, &front);
        self.ring.store_u64(at + 56, words[7]);
        self.produced = index.wrapping_add(1);
        if completion.solicited || completion.status != Status::Success {
            self.solicited = Some(self.produced);
        }
        self.fires()
    }

    /// The driver wants an event for a completion from `consumer` on. True: there is one already.
    pub fn arm(&mut self, arm: Arm, consumer: u32) -> bool {
        if let (Some((Arm::Next, _)), Arm::Solicited) = (self.armed, arm) {
            return false;
        }
        self.armed = Some((arm, consumer));
        self.fires()
    }

    /// Tells whoever armed the queue. A driver that arms it again before it has taken the event gets no second one: the
    /// first still tells it to look.
    pub fn tell(&mut self, cq: u32, events: &mut Events) {
        if !std::mem::replace(&mut self.event_waits, true) {
            events.completion(self.event_queue, cq, self.produced);
        }
    }

    #[inline]
    fn fires(&mut self) -> bool {
        let Some((arm, from)) = self.armed else {
            return false;
        };
        let newest = match arm {
            Arm::Next => self.produced,
            Arm::Solicited => match self.solicited {
                Some(behind) => behind,
                None => return false,
            },
        };
        // `newest` is behind the newest completion that counts: is that at or after `from`?
        let fires = newest.wrapping_sub(from) as i32 > 0;
        if fires {
            self.armed = None;
        }
        fires
    }
}

#[inline]
fn entry(c: &Completion) -> CompletionEntry {
    let mut e = CompletionEntry {
        wr_id: c.wr_id,
        qp: c.qp.0,
        consumed: c.tag,
        status: c.status.number(),
        kind: c.op.number(),
        ..CompletionEntry::default()
    };
    if c.status != Status::Success {
        // Only these mean something then; the kind tells a receive from a send.
        return e;
    }
    e.byte_len = c.byte_len;
    if let Some(imm) = c.imm {
        (e.imm, e.flags) = (imm, completion_flags::IMM);
    }
    if let Some(key) = c.invalidated {
        (e.imm, e.flags) = (key, completion_flags::INVALIDATED);
    }
    if let Some(source) = &c.source {
        e.flags |= completion_flags::GRH;
        e.source_qp = source.qp.0;
        e.source_mac = source.mac.0;
        e.service_level = source.service_level;
        if let Some(vlan) = source.vlan {
            e.vlan = vlan;
            e.flags |= completion_flags::VLAN;
        }
    }
    e
}
