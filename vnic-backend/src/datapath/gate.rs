//! Gates of frames from other cores.

use std::num::NonZeroU64;

/// Number of a frame from another core, which may be shown to the guest once that core has committed it. One word, so that it
/// stays in a register: a copy of memory just written in parts would wait for all earlier stores to guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate(NonZeroU64);

impl Gate {
    const SEQ_BITS: u32 = 56;

    /// Frame `seq`, from 1, of the link from core `core`.
    #[inline]
    pub fn new(core: usize, seq: u64) -> Option<Gate> {
        NonZeroU64::new((core as u64) << Gate::SEQ_BITS | seq).map(Gate)
    }

    /// Index of the sending core.
    #[inline]
    pub fn core(self) -> usize {
        (self.0.get() >> Gate::SEQ_BITS) as usize
    }

    /// Number of the frame on its link.
    #[inline]
    pub fn seq(self) -> u64 {
        self.0.get() & ((1 << Gate::SEQ_BITS) - 1)
    }
}
