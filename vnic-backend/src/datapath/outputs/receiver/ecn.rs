//! Congestion point of a port: marks or drops packets of a class in which much waits.

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::qos::{MarkAt, Pick, Verdict};
use vnic_wire::roce::{Ecn, ecn, set_ce};

use super::super::super::frame::OwnedFrame;
use super::Receiver;

impl Receiver {
    /// Verdict for an arriving packet; `head` has at least its headers.
    pub(in super::super) fn judge(&mut self, priority: u8, head: &[u8]) -> Verdict {
        let ecn = ecn(head).unwrap_or(Ecn::NotEct);
        self.judge_at(MarkAt::Enqueue, priority, ecn, 0)
    }

    /// Verdict for the packet that leaves next.
    pub(in super::super) fn judge_next(&mut self, pick: Pick) -> Verdict {
        let Some((entry, frame)) = self.queues.front(pick) else {
            return Verdict::Pass;
        };
        let ecn = ecn(&frame.bytes).unwrap_or(Ecn::NotEct);
        let own = u64::from(entry.bytes.saturating_sub(OwnedFrame::COST as u32));
        self.judge_at(MarkAt::Dequeue, entry.priority, ecn, own)
    }

    /// Verdict for a packet; `own` are its bytes among those that wait.
    ///
    /// The length of the frames counts, without the cost of keeping them: thresholds mean the same here, in the simulator and
    /// in a switch. Only IP packets can be marked. Packets of a lossless priority are not dropped.
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

    /// Bytes of the waiting frames, by class.
    pub(in super::super) fn lengths(&self) -> [u64; 8] {
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
