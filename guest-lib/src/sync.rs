//! Atomics of the rings. `tests/models` builds the same files with loom's atomics.

pub use std::hint::spin_loop;
pub use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
pub use std::sync::atomic::fence;
pub use std::thread::yield_now;
