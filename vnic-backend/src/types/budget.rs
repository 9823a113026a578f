//! What an adapter may have of the daemon.

use std::ops::RangeInclusive;

/// Memory regions that the VMMs of an adapter may have, all together.
pub const VMM_REGIONS_RANGE: RangeInclusive<u32> = 1..=1534;
/// Descriptors that the daemon may hold for the VMMs of an adapter, all together: their connections need the least.
pub const VMM_DESCRIPTORS_RANGE: RangeInclusive<u32> = 8..=78;

/// What the VMMs of an adapter may have of the daemon: that of the Ethernet function and that of the RDMA function together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmmLimits {
    /// Memory regions, see [`VMM_REGIONS_RANGE`]; a dirty log counts as one.
    pub regions: u32,
    /// Descriptors, see [`VMM_DESCRIPTORS_RANGE`].
    pub descriptors: u32,
}

impl Default for VmmLimits {
    /// As much as any VMM can use. Regions: 64 for each of 16 queue pairs, as QEMU before 8.2 adds them, 509 for the RDMA
    /// function, a dirty log. Descriptors: a kick and a call for each ring of 16 queue pairs and for each of the three of the
    /// RDMA function, and two connections.
    fn default() -> VmmLimits {
        VmmLimits {
            regions: *VMM_REGIONS_RANGE.end(),
            descriptors: *VMM_DESCRIPTORS_RANGE.end(),
        }
    }
}

/// How much of something is in use, and how much may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// In use now.
    pub used: u64,
    /// The most there can be.
    pub limit: u64,
}
