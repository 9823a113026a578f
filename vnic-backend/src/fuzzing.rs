//! For fuzzing only (feature `fuzzing`): rings and guest memory without a NIC around them.

pub use crate::mem::{MemMap, Region, Segs, Writer, gather};
pub use crate::ring::{Fault, Head, PackedRing, RingAddresses, SplitRing};
