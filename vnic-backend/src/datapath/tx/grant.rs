//! Permission for a burst of an adapter with configured quality of service.

use super::super::core::Core;
use super::super::frame::RawFrame;
use super::super::outputs::is_roce;

/// Permission for a burst to go without a closer look at its frames.
#[derive(Default)]
pub(super) struct Grant {
    /// Whether the whole burst may go, whatever its priorities.
    pub(super) whole: bool,
    /// Whether the guest's own RoCE needs a closer look nevertheless.
    pub(super) roce: bool,
    /// Bytes on the wire that were sent and are not charged yet, by priority.
    pub(super) gone: [u32; 8],
}

impl Grant {
    /// Whether a frame may go without a closer look.
    #[inline(always)]
    pub(super) fn covers(&self, f: &RawFrame<'_>, core: &Core) -> bool {
        self.whole
            && f.hdr.gso_type == 0
            && !core.out.round.waiting.pressed
            && !core.pauses.any()
            && !(self.roce && is_roce(f.head))
    }
}
