//! Resources of the daemon for an adapter.

use std::ops::RangeInclusive;

/// Largest numbers of memory regions of an adapter's VMMs together.
pub const VMM_REGIONS_RANGE: RangeInclusive<u32> = 1..=1534;
/// Largest numbers of descriptors that the daemon holds for an adapter's VMMs together; their connections need the least one.
pub const VMM_DESCRIPTORS_RANGE: RangeInclusive<u32> = 8..=80;

/// Resources of the daemon for the VMMs of an adapter: that of the Ethernet function and that of the RDMA function together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VmmLimits {
    /// Memory regions, see [`VMM_REGIONS_RANGE`]; a dirty log counts as one.
    pub regions: u32,
    /// Descriptors, see [`VMM_DESCRIPTORS_RANGE`].
    pub descriptors: u32,
}

impl Default for VmmLimits {
    /// As much as any VMM can use. Regions: 64 for each of 16 queue pairs, as QEMU before 8.2 adds them, 509 for the RDMA
    /// function, a dirty log. Descriptors: a kick and a call for each ring of 16 queue pairs, for the control queue and for
    /// each of the three of the RDMA function, and two connections.
    fn default() -> VmmLimits {
        VmmLimits {
            regions: *VMM_REGIONS_RANGE.end(),
            descriptors: *VMM_DESCRIPTORS_RANGE.end(),
        }
    }
}

/// Used amount of a resource, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    /// Used amount.
    pub used: u64,
    /// Largest amount.
    pub limit: u64,
}
