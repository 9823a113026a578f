//! A burst: buffers that are on their way.

use std::ops::Range;

use crate::mem::Seg;

/// Frames taken from one queue at once, and before the next queue gets its turn unless the adapter's settings say
/// otherwise.
pub const BURST: u16 = 32;

/// A buffer of the burst.
pub(super) struct Taken<'m> {
    pub(super) head: u16,
    /// Its length with the virtio header.
    pub(super) total: u64,
    /// Its memory if it is in one piece; otherwise nothing.
    pub(super) one: Seg<'m>,
    /// Otherwise its range of the burst's segments.
    pub(super) many: Range<u32>,
    /// A frame without requests, whose first bytes have been read.
    pub(super) snapped: bool,
    /// It is so much work that the burst ends with it.
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
