//! A burst of transmit buffers.

use std::ops::Range;

use crate::mem::Seg;
use crate::ring::Head;

/// Frames taken from one queue at once, and, unless the adapter's settings differ, before the next queue gets its turn.
pub const BURST: u16 = 32;

/// A buffer of the burst.
pub(super) struct Taken<'m> {
    pub(super) head: Head,
    /// Bytes of the buffer with the virtio header.
    pub(super) total: u64,
    /// Memory of a buffer of one segment; otherwise empty.
    pub(super) one: Seg<'m>,
    /// Range of the burst's segments, if the buffer has several; otherwise empty.
    pub(super) many: Range<u32>,
    /// Whether the frame has no offload request and its first bytes have been read.
    pub(super) snapped: bool,
    /// Whether the burst ends with this buffer, because it is so much work.
    pub(super) ends: bool,
}

impl Taken<'_> {
    /// The buffer's memory.
    #[inline(always)]
    pub(super) fn chain<'a>(&'a self, segs: &'a [Seg<'a>]) -> &'a [Seg<'a>] {
        if self.many.is_empty() {
            std::slice::from_ref(&self.one)
        } else {
            &segs[self.many.start as usize..self.many.end as usize]
        }
    }
}
