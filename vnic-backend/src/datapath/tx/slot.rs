//! A transmit buffer from which other cores copy.

#![expect(
    unsafe_code,
    reason = "a flooded frame that waits for other cores keeps where it is, as long as its slot is there"
)]

use arrayvec::ArrayVec;
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::Verdict;

use super::super::MAX_CORES;
use super::super::frame::{Arrival, RawFrame};
use crate::mem::Seg;
use crate::ring::Head;

/// A taken transmit buffer.
pub(super) struct Slot {
    pub(super) head: Head,
    /// Number of cores that still have to copy the buffer.
    pub(super) left: u8,
    /// Frames to commit on the links when the buffer is completed.
    pub(super) commits: ArrayVec<(usize, u64), MAX_CORES>,
    /// The flooded frame, which local receivers get when the other cores have copied it.
    pub(super) then_local: Option<Box<Flooded>>,
}

/// A flooded frame that waits for other cores' copies.
pub(super) struct Flooded {
    head: ArrayVec<u8, HEAD_MAX>,
    len: usize,
    hdr: NetHdr,
    segs: Vec<Seg<'static>>,
    skip: usize,
    pub(super) verdict: Verdict,
    /// As [`Metadata::arrived`](super::super::frame::Metadata::arrived).
    pub(super) arrived: Arrival,
}

impl Flooded {
    /// # Safety
    /// The frame's memory stays mapped for as long as this value exists.
    pub(super) unsafe fn new(f: &RawFrame<'_>, verdict: Verdict, arrived: Arrival) -> Flooded {
        let head = f.head.iter().copied().collect();
        Flooded {
            head,
            len: f.len,
            hdr: f.hdr,
            // SAFETY: the caller keeps the memory mapped.
            segs: f.segs.iter().map(|seg| unsafe { seg.lent() }).collect(),
            skip: f.skip,
            verdict,
            arrived,
        }
    }

    pub(super) fn frame(&self) -> RawFrame<'_> {
        RawFrame {
            head: &self.head,
            len: self.len,
            hdr: self.hdr,
            segs: &self.segs,
            skip: self.skip,
        }
    }
}
