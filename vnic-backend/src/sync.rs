//! What the parts without locks are made of. `tests/models` builds the same files with loom's in the place of these.

pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

pub use rtrb::{Consumer, Producer, RingBuffer};
