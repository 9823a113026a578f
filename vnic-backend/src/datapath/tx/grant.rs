//! What a burst of an adapter that has something configured may do.

use super::super::core::Core;
use super::super::frame::RawFrame;
use super::super::outputs::is_roce;

/// What a burst may do without a closer look at its frames.
#[derive(Default)]
pub(super) struct Grant {
    /// All of it may go, whatever is in it.
    pub(super) whole: bool,
    /// RoCE of the guest's own wants a closer look nevertheless.
    pub(super) roce: bool,
    /// Bytes on the wire that have gone and are not charged yet, by priority.
    pub(super) gone: [u32; 8],
}

impl Grant {
    /// May a frame go without being looked at more closely?
    #[inline(always)]
    pub(super) fn covers(&self, f: &RawFrame<'_>, core: &Core) -> bool {
        self.whole
            && f.hdr.gso_type == 0
            && !core.out.round.waiting.pressed
            && !core.pauses.any()
            && !(self.roce && is_roce(f.head))
    }
}
