//! Transmit buffers from which other cores copy: they are completed in ring order, when all cores have copied.

#![expect(
    unsafe_code,
    reason = "lends guests' buffers to other cores, until they are copied"
)]

use arrayvec::ArrayVec;
use vnic_fabric::switch::Verdict;

use super::super::MAX_CORES;
use super::super::core::Core;
use super::super::frame::{Metadata, RawFrame};
use super::super::link::SlotRef;
use super::slot::{Flooded, Slot};
use super::{BURST, Step, TxPath, TxQueue, Visit};
use crate::mem::Lasting;
use crate::ring::Head;

/// That the frames of a burst last until its end.
#[inline(always)]
pub(super) fn lasting() -> Lasting {
    // SAFETY: the guest completes no buffer of a burst, and its memory stays mapped, until the queue ends the burst.
    unsafe { Lasting::new(false) }
}

impl TxPath {
    /// Sends a frame of which another core is a receiver.
    pub(super) fn send_across(
        &mut self,
        buffer: Head,
        f: &RawFrame<'_>,
        verdict: Verdict,
        visit: &mut Visit<'_>,
    ) -> Step {
        let slot = self.first_slot + self.slots.len() as u64;
        // SAFETY: a queue keeps its ring, and so the guest's memory, until its slots are copied; one that is lost in a panic
        // is never freed. The NIC's own memory is copied.
        let slot = (!visit.own).then(|| unsafe { SlotRef::new(visit.index, slot) });
        let core = &mut *visit.core;
        let Some(commits) = core.send_remote(&verdict, f, &visit.meta, slot) else {
            return Step::Wait;
        };
        core.seen(self.port, f, None);
        if visit.own {
            core.deliver(&verdict, f, &visit.meta);
            return Step::Done;
        }
        let then_local = matches!(verdict, Verdict::Flood(_)).then(|| {
            // SAFETY: the frame is in one of the queue's slots, and the queue keeps its ring until they are empty.
            Box::new(unsafe { Flooded::new(f, verdict, visit.meta.arrived) })
        });
        self.slots.push_back(Slot {
            head: buffer,
            left: commits.len() as u8,
            commits,
            then_local,
        });
        Step::Pending
    }

    /// Another core has copied the frame in `slot`.
    pub fn copied(&mut self, slot: u64) {
        let i = (slot - self.first_slot) as usize;
        if let Some(s) = self.slots.get_mut(i) {
            s.left = s.left.saturating_sub(1);
        }
    }

    /// Drops all buffers in flight. Returns the frames to commit on the links.
    pub fn abandon(&mut self) -> Vec<(usize, u64)> {
        self.slots.drain(..).flat_map(|s| s.commits).collect()
    }
}

impl TxQueue {
    /// Completes buffers that other cores have copied.
    pub fn retire(&mut self, core: &mut Core) -> usize {
        let mut commits: ArrayVec<(usize, u64), { MAX_CORES * BURST as usize }> = ArrayVec::new();
        let mut n = 0;
        while let Some(s) = self.path.slots.front()
            && s.left == 0
            && n < usize::from(BURST)
        {
            let Some(s) = self.path.slots.pop_front() else {
                break;
            };
            self.path.first_slot += 1;
            if let Some(h) = &s.then_local {
                let meta = Metadata {
                    arrived: h.arrived,
                    ..Metadata::of_queue(self.path.port, self.path.pair)
                };
                core.deliver(&h.verdict, &h.frame(), &meta);
            }
            self.ring.stage(s.head, 0);
            commits.extend(s.commits);
            n += 1;
        }
        if n > 0 {
            self.publish(core);
            for (link, seq) in commits {
                core.commit(link, seq);
            }
            core.flush();
        }
        n
    }
}
