//! Completion queues in guest memory (`SPEC.md`, section 9).

use vnic_device::queue::{self, CompletionEntry, PHASE, completion_flags};
use vnic_device::ring;
use vnic_engine::clock::NicClock;
use vnic_engine::rdma::{Arm, Completion, NetworkHeader, Origin, Status};

use super::events::Events;
use super::shared_ring::SharedRing;

/// Ring of a completion queue, and its notification.
#[derive(Debug)]
pub struct CompletionRing {
    /// Memory of the ring.
    pub ring: SharedRing,
    entries: u32,
    /// Number of completions written so far.
    produced: u32,
    /// The driver's consumer index when it was last read.
    consumer: u32,
    /// Index behind the last completion whose cache line was prefetched.
    asked: u32,
    armed: Option<(Arm, u32)>,
    /// Index behind the newest completion that was solicited or failed, if there was one.
    solicited: Option<u32>,
    /// Event queue of the completion queue.
    pub event_queue: u16,
    /// Whether the ring's memory is gone, or the queue overran: nothing is written any more.
    pub lost: bool,
    /// Whether completions wait for the driver to make room.
    pub waiting: bool,
    /// Whether the queue's event waits for a buffer of the driver.
    pub event_waits: bool,
}

impl CompletionRing {
    /// An empty ring.
    pub fn new(ring: SharedRing, entries: u32, event_queue: u16) -> CompletionRing {
        CompletionRing {
            ring,
            entries,
            produced: 0,
            consumer: 0,
            asked: 0,
            armed: None,
            solicited: None,
            event_queue,
            lost: false,
            waiting: false,
            event_waits: false,
        }
    }

    /// Continues in another ring. Returns the number of completions in the old one so far.
    pub fn replace(&mut self, ring: SharedRing, entries: u32) -> u32 {
        let produced = self.produced;
        let event_queue = self.event_queue;
        *self = CompletionRing {
            lost: self.lost,
            waiting: self.waiting,
            event_waits: self.event_waits,
            // An armed queue stays armed; the indices become those of the new ring.
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

    /// Number of completions for which there is room.
    #[inline]
    pub fn room(&mut self) -> u32 {
        let room = self.entries - self.produced.wrapping_sub(self.consumer);
        if room > 0 {
            return room;
        }
        let tail = u64::from(self.entries) * size_of::<CompletionEntry>() as u64;
        let consumer = self.ring.load_u32(tail);
        // An index ahead of the device's, or further behind than the ring is long, counts as a full ring.
        if self.produced.wrapping_sub(consumer) <= self.entries {
            self.consumer = consumer;
        }
        self.entries - self.produced.wrapping_sub(self.consumer)
    }

    fn place(&self, index: u32) -> u64 {
        u64::from(index & (self.entries - 1)) * size_of::<CompletionEntry>() as u64
    }

    /// Prefetches the cache lines of the next completions, each once.
    #[inline]
    pub fn prefetch(&mut self, count: u32) {
        let behind = self.produced.wrapping_add(count.min(self.entries));
        if self.asked.wrapping_sub(self.produced) > self.entries {
            self.asked = self.produced;
        }
        while self.asked.wrapping_sub(self.produced) < behind.wrapping_sub(self.produced) {
            self.ring.prefetch_for_writing(self.place(self.asked));
            self.asked = self.asked.wrapping_add(1);
        }
    }

    /// Writes a completion with its time, in ns. True: the armed queue has to be notified.
    #[inline]
    pub fn write(&mut self, completion: &Completion, time: u64) -> bool {
        let index = self.produced;
        let phase = if ring::phase(index, self.entries) {
            PHASE
        } else {
            0
        };
        let plain = CompletionEntry {
            wr_id: completion.wr_id,
            qp: completion.qp.0,
            consumed: completion.tag,
            status: completion.status.number(),
            kind: completion.op.number(),
            time,
            phase,
            ..CompletionEntry::default()
        };
        self.produced = index.wrapping_add(1);
        // Cases, so that the compiler knows the zeros of the usual one.
        let words = if completion.status != Status::Success {
            self.solicited = Some(self.produced);
            failed(plain, completion.status).to_words()
        } else if carries_more(completion) {
            full(plain, completion).to_words()
        } else {
            plain.to_words()
        };
        self.ring.publish(self.place(index), words);
        if completion.solicited {
            self.solicited = Some(self.produced);
        }
        self.fires()
    }

    /// Arms the queue for a completion from `consumer` on. True: there is one already.
    pub fn arm(&mut self, arm: Arm, consumer: u32) -> bool {
        if let (Some((Arm::Next, _)), Arm::Solicited) = (self.armed, arm) {
            return false;
        }
        self.armed = Some((arm, consumer));
        self.fires()
    }

    /// Queues the completion event. A driver that arms the queue again before it has taken the event gets no second one: the
    /// first one still makes it look.
    pub fn notify(&mut self, cq: u32, events: &mut Events) {
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
        // `newest` is behind the newest completion that counts: the event is due if that completion is at or after `from`.
        let fires = newest.wrapping_sub(from) as i32 > 0;
        if fires {
            self.armed = None;
        }
        fires
    }
}

/// Whether a completion of success has more than its kind.
#[inline]
fn carries_more(c: &Completion) -> bool {
    c.byte_len != 0 || c.imm.is_some() || c.invalidated.is_some() || c.origin != Origin::Peer
}

/// Time of a completion that is written at this time: of a frame, that of its arrival.
#[inline]
pub fn time_of(c: &Completion, time: u64, clock: &NicClock) -> u64 {
    match c.origin {
        Origin::Frame { arrived, .. } => clock.at(arrived),
        Origin::Peer | Origin::Datagram(_) => time,
    }
}

/// The entry of a failed request, whose other fields mean nothing (the kind tells a receive from a send): with the syndrome of
/// ConnectX cards, where a document shows one. Programs print it, and people look for it: `status 0xd, vendor syndrome 0x87`.
#[cold]
fn failed(mut e: CompletionEntry, status: Status) -> CompletionEntry {
    e.vendor_error = match status {
        Status::RetryExceeded => 0x81,
        Status::RnrRetryExceeded => 0x87,
        Status::RemoteAccessError => 0x88,
        _ => 0,
    };
    e
}

/// The entry with all fields of a completion.
#[inline]
fn full(mut e: CompletionEntry, c: &Completion) -> CompletionEntry {
    e.byte_len = c.byte_len;
    if let Some(imm) = c.imm {
        (e.imm, e.flags) = (imm, completion_flags::IMM);
    }
    if let Some(key) = c.invalidated {
        (e.imm, e.flags) = (key, completion_flags::INVALIDATED);
    }
    if let Origin::Frame {
        checksum_ok: true, ..
    } = c.origin
    {
        e.flags |= completion_flags::CHECKSUM_OK;
    }
    if let Origin::Datagram(source) = &c.origin {
        e.flags |= completion_flags::GRH;
        e.source_qp = source.qp.0;
        e.source_mac = source.mac.0;
        e.service_level = source.service_level;
        e.network = match source.network {
            NetworkHeader::Grh => queue::NetworkHeader::Grh,
            NetworkHeader::Ipv6 => queue::NetworkHeader::Ipv6,
            NetworkHeader::Ipv4 => queue::NetworkHeader::Ipv4,
        }
        .number();
        if let Some(vlan) = source.vlan {
            e.vlan = vlan;
            e.flags |= completion_flags::VLAN;
        }
    }
    e
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_syndromes_that_are_known_of_cards() {
        let of = |status| failed(CompletionEntry::default(), status).vendor_error;
        assert_eq!(of(Status::RnrRetryExceeded), 0x87);
        assert_eq!(of(Status::RetryExceeded), 0x81);
        assert_eq!(of(Status::RemoteAccessError), 0x88);
        assert_eq!(of(Status::FlushError), 0, "no document shows one");
    }
}
