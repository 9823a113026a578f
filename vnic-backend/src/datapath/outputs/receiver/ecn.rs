//! Congestion point of a port: marks or drops packets of a class in which much waits.

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::qos::LANES;
use vnic_fabric::qos::{Colour, Entry, MarkAt, Pick, Verdict};
use vnic_fabric::{Instant, TagEdit};
use vnic_wire::roce::{Ecn, ecn, set_ce};

use super::super::super::frame::OwnedFrame;
use super::{Receiver, with_tag};

impl Receiver {
    /// Colour of a frame that is about to be received; green where no class asks for it.
    pub(in super::super) fn colour(&self, head: &[u8], tag: TagEdit) -> Colour {
        if !self.congestion.colours {
            return Colour::Green;
        }
        let c = &self.change.qos.classification;
        match tag {
            TagEdit::Keep | TagEdit::Pop => c.colour(head),
            TagEdit::Push(tci) => with_tag(head, 12, tci, |head| c.colour(head)),
            TagEdit::Replace(tci) => with_tag(head, 16, tci, |head| c.colour(head)),
        }
    }

    /// Verdict for an arriving packet; `head` has at least its headers.
    pub(in super::super) fn judge(&mut self, entry: &Entry, head: &[u8]) -> Verdict {
        let ecn = ecn(head).unwrap_or(Ecn::NotEct);
        self.judge_at(entry.since, MarkAt::Enqueue, entry, ecn, 0)
    }

    /// Verdict for the packet that leaves next.
    pub(in super::super) fn judge_next(&mut self, now: Instant, pick: Pick) -> Verdict {
        let Some((entry, frame)) = self.queues.front(pick) else {
            return Verdict::Pass;
        };
        let (entry, ecn) = (*entry, ecn(&frame.bytes).unwrap_or(Ecn::NotEct));
        let own = u64::from(entry.bytes.saturating_sub(OwnedFrame::COST as u32));
        self.judge_at(now, MarkAt::Dequeue, &entry, ecn, own)
    }

    /// Verdict for a packet; `own` are its bytes among those that wait.
    ///
    /// The length of the frames counts, without the cost of keeping them: thresholds mean the same here, in the simulator and
    /// in a switch. Only IP packets can be marked. Packets of a lossless priority are not dropped.
    fn judge_at(&mut self, now: Instant, at: MarkAt, entry: &Entry, ecn: Ecn, own: u64) -> Verdict {
        let qos = &self.change.qos;
        let class = usize::from(self.queues.class(entry.source, entry.level));
        // (Virtual lanes above the traffic classes have no profile.)
        let Some(red) = qos.ecn.get(class) else {
            return Verdict::Pass;
        };
        if !red.enable || at != red.at {
            return Verdict::Pass;
        }
        let mut waits = self.lengths()[class].saturating_sub(own);
        if red.average != 0 {
            waits = self.congestion.averages[class].sample(now, waits, red.average, qos.rate);
        }
        match self
            .congestion
            .marker
            .judge(red, at, waits, entry.colour, ecn as u8)
        {
            Verdict::Drop if self.lossless >> (entry.priority & 7) & 1 != 0 => Verdict::Pass,
            verdict => verdict,
        }
    }

    /// Bytes of the waiting frames, by class and lane.
    pub(in super::super) fn lengths(&self) -> [u64; LANES] {
        let (bytes, frames) = (self.queues.bytes(), self.queues.frames());
        std::array::from_fn(|c| bytes[c].saturating_sub(u64::from(frames[c]) * OwnedFrame::COST as u64))
    }

    /// Marks a packet that can be marked, and counts it.
    pub(in super::super) fn mark(&self, priority: u8, bytes: &mut [u8]) {
        if set_ce(bytes) {
            let block = &self.counters.link().priorities[usize::from(priority & 7)];
            block.add(P::EcnMarked as usize, 1);
        }
    }
}
