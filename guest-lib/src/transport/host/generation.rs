//! How many forks lie between this process and the one that loaded the library: by it a forked child knows what is its parent's.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of this process.
pub(super) fn generation() -> u32 {
    GENERATION.load(Relaxed)
}

/// Makes this process, which has just been forked, one more.
pub(super) fn forked() {
    GENERATION.fetch_add(1, AcqRel);
}
