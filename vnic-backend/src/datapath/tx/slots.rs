//! Buffers that other cores copy from: they are completed in the ring's order, when all of them have.

use arrayvec::ArrayVec;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::Verdict;

use super::super::MAX_CORES;
use super::super::core::Core;
use super::super::frame::{Metadata, RawFrame};
use super::super::link::SlotRef;
use super::{BURST, Step, TxPath, TxQueue, Visit};
use crate::mem::Seg;
use crate::types::Direction;

/// A taken transmit buffer.
pub(super) struct Slot {
    pub(super) head: u16,
    /// Cores that still have to copy it.
    pub(super) left: u8,
    /// Frames to commit on the links when the buffer is completed.
    pub(super) commits: ArrayVec<(usize, u64), MAX_CORES>,
    /// For a flooded frame: local receivers get it when the other cores have it.
    pub(super) then_local: Option<Box<Flooded>>,
}

/// A flooded frame that waits for other cores.
pub(super) struct Flooded {
    head: ArrayVec<u8, HEAD_MAX>,
    len: usize,
    hdr: NetHdr,
    segs: Vec<Seg<'static>>,
    skip: usize,
    verdict: Verdict,
}

impl Flooded {
    /// # Safety
    /// The frame's memory stays mapped for as long as this is there.
    pub(super) unsafe fn new(f: &RawFrame<'_>, verdict: Verdict) -> Flooded {
        let head = f.head.iter().copied().collect();
        Flooded {
            head,
            len: f.len,
            hdr: f.hdr,
            // SAFETY: as the caller says.
            segs: f.segs.iter().map(|seg| unsafe { seg.lent() }).collect(),
            skip: f.skip,
            verdict,
        }
    }
}

impl TxPath {
    /// Sends a frame of which another core is a receiver.
    pub(super) fn send_across(
        &mut self,
        buffer: u16,
        f: &RawFrame<'_>,
        verdict: Verdict,
        visit: &mut Visit<'_>,
    ) -> Step {
        let slot = self.first_slot + self.slots.len() as u64;
        // SAFETY: a queue keeps its ring, and so the guest's memory, until its slots are copied; one that is lost in a panic is
        // never freed. What is our own is copied.
        let slot = (!visit.own).then(|| unsafe { SlotRef::new(visit.index, slot) });
        let core = &mut *visit.core;
        let Some(commits) = core.send_remote(&verdict, f, &visit.meta, slot) else {
            return Step::Wait;
        };
        core.captured(self.port, Direction::Ingress, f, None);
        if visit.own {
            core.deliver(&verdict, f, &visit.meta);
            return Step::Done;
        }
        let then_local = matches!(verdict, Verdict::Flood(_)).then(|| {
            // SAFETY: it is in one of the queue's slots, and the queue keeps its ring until they are empty.
            Box::new(unsafe { Flooded::new(f, verdict) })
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

    /// Gives up all buffers under way; answers the frames to commit on the links.
    pub fn abandon(&mut self) -> Vec<(usize, u64)> {
        self.slots.drain(..).flat_map(|s| s.commits).collect()
    }
}

impl TxQueue {
    /// Completes buffers that other cores have finished with.
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
                let f = RawFrame {
                    head: &h.head,
                    len: h.len,
                    hdr: h.hdr,
                    segs: &h.segs,
                    skip: h.skip,
                };
                core.deliver(
                    &h.verdict,
                    &f,
                    &Metadata::of_queue(self.path.port, self.path.pair),
                );
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
