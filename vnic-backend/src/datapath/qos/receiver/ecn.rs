//! The congestion point of a port: packets of a class in which much waits are marked, or dropped.

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::qos::{MarkAt, Verdict};

use super::{FRAME_COST, Receiver, mark};

impl Receiver {
    /// What happens to a packet that comes or leaves. `own`: bytes of it that are among those that wait.
    ///
    /// What counts is the length of the frames, without what it costs us to keep them: thresholds mean the same here, in the
    /// simulator and in a switch. Packets that are not IP cannot be marked. A lossless priority loses nothing.
    pub(super) fn judge(&mut self, at: MarkAt, priority: u8, head: &[u8], own: u64) -> Verdict {
        let qos = &self.change.qos;
        let class = usize::from(qos.classes.of_priority[usize::from(priority & 7)] & 7);
        let red = &qos.ecn[class];
        if !red.enable || red.at != at {
            return Verdict::Pass;
        }
        let costs = u64::from(self.queues.frames()[class]) * u64::from(FRAME_COST);
        let waits = self.queues.bytes()[class].saturating_sub(costs + own);
        let ecn = mark::ip(head).and_then(|at| mark::ecn(head, at)).unwrap_or(0);
        match self.marker.judge(red, at, waits, ecn) {
            Verdict::Drop if self.lossless >> (priority & 7) & 1 != 0 => Verdict::Pass,
            verdict => verdict,
        }
    }

    /// Marks a packet of ours that can be marked.
    pub(super) fn mark(&self, priority: u8, bytes: &mut [u8]) {
        if let Some(at) = mark::ip(bytes)
            && mark::mark(bytes, at)
        {
            let block = &self.books.link().priorities[usize::from(priority & 7)];
            block.add(P::EcnMarked as usize, 1);
        }
    }
}
