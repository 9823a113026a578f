//! Buffers that other cores copy from: they are completed in the ring's order, when all of them have.

use arrayvec::ArrayVec;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::Verdict;

use super::super::MAX_CORES;
use super::super::core::Core;
use super::super::frame::{Metadata, RawFrame};
use super::{BURST, TxQueue};
use crate::mem::Seg;

/// A taken transmit buffer.
pub(super) struct Slot {
    pub(super) head: u16,
    /// Cores that still have to copy it.
    pub(super) left: u8,
    /// Frames to commit on the links when the buffer is completed.
    pub(super) commits: ArrayVec<(usize, u64), MAX_CORES>,
    /// For a flooded frame: local receivers get it when the other cores have it.
    pub(super) then_local: Option<Box<Held>>,
}

/// A flooded frame that waits for other cores.
pub(super) struct Held {
    head: ArrayVec<u8, HEAD_MAX>,
    len: usize,
    hdr: NetHdr,
    segs: Vec<Seg>,
    skip: usize,
    verdict: Verdict,
}

impl Held {
    pub(super) fn new(f: &RawFrame<'_>, verdict: Verdict) -> Held {
        let head = f.head.iter().copied().collect();
        Held {
            head,
            len: f.len,
            hdr: f.hdr,
            segs: f.segs.to_vec(),
            skip: f.skip,
            verdict,
        }
    }
}

impl TxQueue {
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

    /// Completes buffers that other cores have finished with.
    pub fn retire(&mut self, core: &mut Core) -> usize {
        let mut commits: ArrayVec<(usize, u64), { MAX_CORES * BURST as usize }> = ArrayVec::new();
        let mut n = 0;
        while let Some(s) = self.slots.front()
            && s.left == 0
            && n < usize::from(BURST)
        {
            let Some(s) = self.slots.pop_front() else { break };
            self.first_slot += 1;
            if let Some(h) = &s.then_local {
                let f = RawFrame {
                    head: &h.head,
                    len: h.len,
                    hdr: h.hdr,
                    segs: &h.segs,
                    skip: h.skip,
                };
                core.deliver(&h.verdict, &f, &Metadata::of_queue(self.port, self.pair));
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
