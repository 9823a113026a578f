//! When a frame of another core may be shown.

use std::num::NonZeroU64;

/// A frame of the link from some core: may be shown to the guest once that core has committed it. One word, so that it
/// travels in a register: a copy of memory just written in parts would wait for all stores to guests before it.
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

    /// Which frame of its link.
    #[inline]
    pub fn seq(self) -> u64 {
        self.0.get() & ((1 << Gate::SEQ_BITS) - 1)
    }
}
