//! A buffer of the burst that is on its way.

use std::ops::Range;

use crate::mem::Seg;

/// A buffer of the burst.
pub(super) struct Taken {
    pub(super) head: u16,
    /// Its length with the virtio header.
    pub(super) total: u64,
    /// Its memory when it is in one piece,
    pub(super) one: Seg,
    /// and otherwise its range of the burst's segments.
    pub(super) many: Range<u32>,
    /// A frame without requests, whose first bytes have been read.
    pub(super) snapped: bool,
}

impl Taken {
    /// The buffer's memory.
    #[inline(always)]
    pub(super) fn chain<'a>(&'a self, segs: &'a [Seg]) -> &'a [Seg] {
        if self.many.is_empty() {
            std::slice::from_ref(&self.one)
        } else {
            &segs[self.many.start as usize..self.many.end as usize]
        }
    }
}
