//! Virtqueues, device side, polled.

mod split;

pub use split::{Fault, RingAddresses, SplitRing};
