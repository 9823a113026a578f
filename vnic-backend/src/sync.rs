//! Atomics and rings of the lock-free modules. `tests/models` builds the same modules with loom's instead.

pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

pub use rtrb::{Consumer, Producer, RingBuffer};
