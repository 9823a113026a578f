//! The congestion point of a port: packets of a class in which much waits are marked, or dropped.

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::qos::{MarkAt, Pick, Verdict};
use vnic_wire::roce::{Ecn, ecn, set_ce};

use super::super::super::frame::OwnedFrame;
use super::Receiver;

impl Receiver {
    /// What happens to a packet that comes, of which at least the headers are in `head`.
    pub(in super::super) fn judge(&mut self, priority: u8, head: &[u8]) -> Verdict {
        let ecn = ecn(head).unwrap_or(Ecn::NotEct);
        self.judge_at(MarkAt::Enqueue, priority, ecn, 0)
    }

    /// What happens to the packet that leaves next.
    pub(in super::super) fn judge_next(&mut self, pick: Pick) -> Verdict {
        let Some((entry, frame)) = self.queues.front(pick) else {
            return Verdict::Pass;
        };
        let ecn = ecn(&frame.bytes).unwrap_or(Ecn::NotEct);
        let own = u64::from(entry.bytes.saturating_sub(OwnedFrame::COST as u32));
        self.judge_at(MarkAt::Dequeue, entry.priority, ecn, own)
    }

    /// `own`: bytes of the packet that are among those that wait.
    ///
    /// What counts is the length of the frames, without what it costs us to keep them: thresholds mean the same here, in the
    /// simulator and in a switch. What is not IP cannot be marked. A lossless priority loses nothing.
    fn judge_at(&mut self, at: MarkAt, priority: u8, ecn: Ecn, own: u64) -> Verdict {
        let qos = &self.change.qos;
        let class = usize::from(qos.classes.of_priority[usize::from(priority & 7)] & 7);
        let waits = self.lengths()[class].saturating_sub(own);
        match self
            .congestion
            .marker
            .judge(&qos.ecn[class], at, waits, ecn as u8)
        {
            Verdict::Drop if self.lossless >> (priority & 7) & 1 != 0 => Verdict::Pass,
            verdict => verdict,
        }
    }

    /// Bytes of the frames that wait, by class.
    pub(in super::super) fn lengths(&self) -> [u64; 8] {
        let (bytes, frames) = (self.queues.bytes(), self.queues.frames());
        std::array::from_fn(|c| bytes[c].saturating_sub(u64::from(frames[c]) * OwnedFrame::COST as u64))
    }

    /// Marks a packet of ours that can be marked.
    pub(in super::super) fn mark(&self, priority: u8, bytes: &mut [u8]) {
        if set_ce(bytes) {
            let block = &self.counters.link().priorities[usize::from(priority & 7)];
            block.add(P::EcnMarked as usize, 1);
        }
    }
}
