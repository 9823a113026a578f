//! Memory that a device takes of the daemon.

use super::address_handle::AddressHandle;
use super::cm;
use super::completion_queue::CompletionQueue;
use super::limits::Limits;
use super::qp::{PooledSend, Qp};
use super::region::Entry;
use super::shared_receive_queue::SharedReceiveQueue;
use super::types::{Completion, RecvWr, Sge};

/// Bytes that the caller keeps for each object, beside the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Beside {
    /// For a QP.
    pub qp: u64,
    /// For a CQ.
    pub cq: u64,
    /// For an SRQ.
    pub srq: u64,
    /// For a device without objects.
    pub device: u64,
}

/// Bytes of a table for each object: its slot, which is there twice while the table grows and has room for another, and the
/// allocator's share.
const PLACE: u64 = 3 * 16 + 16;
/// Bytes of a QP when its peer and congestion control make it do the most: 16 READs and atomics to answer and to repeat,
/// telemetry, a flow with its algorithm, timers.
const QP_AT_WORK: u64 = 4096;
/// Bytes of an entry of the translation table: two numbers, once more while a command brings them.
const EXTENT: u64 = 2 * 16;
/// Bytes of a member of a multicast group, with its row of those that are in groups.
const MEMBER: u64 = 2 * 4 + 32;
const GROUP: u64 = 128;
/// Bytes for completions that come next, counters, losses that are being repaired (512 maps of at most 18 KiB), and all else that
/// each device has.
const DEVICE: u64 = 16 << 20;

fn size<T>() -> u64 {
    size_of::<T>() as u64
}

impl Limits {
    /// Most bytes of memory that a device takes, with as many objects as there may be.
    pub fn memory(&self, beside: &Beside) -> u64 {
        let each = |count: u32, bytes: u64| u64::from(count) * bytes;
        // A request is in one of the pools, which keep their places; what does not fit there comes on top. Each pool can
        // have been full, and have room for another time as much.
        let spilled = u64::from(self.max_inline).max(u64::from(self.max_sge) * size::<Sge>());
        let request = 2 * (size::<PooledSend>() + size::<RecvWr>() + 2 * 16) + spilled + 16;
        let waiting = 2 * size::<RecvWr>() + 2 * size::<Completion>();
        let group = GROUP + u64::from(self.max_mcast_qp_per_group) * MEMBER;
        DEVICE
            + beside.device
            + each(self.max_qp, size::<Qp>() + QP_AT_WORK + PLACE + beside.qp)
            // Each has a responder.
            + each(self.max_dc_connections, size::<Qp>() + QP_AT_WORK + 4 * PLACE)
            + each(self.max_cq, size::<CompletionQueue>() + PLACE + beside.cq)
            + each(self.max_srq, size::<SharedReceiveQueue>() + PLACE + beside.srq)
            + each(self.max_mr, size::<Entry>() + PLACE)
            + each(self.max_mw, size::<Entry>() + PLACE)
            // Rings may have as many extents as regions.
            + each(self.max_mr_extents, 2 * EXTENT)
            + each(self.max_ah, size::<AddressHandle>() + 2 * PLACE)
            + each(self.max_pd, PLACE + 16)
            + each(self.max_xrcd, PLACE + 16)
            + each(self.max_cm_id, cm::CONNECTION)
            + each(self.max_mcast_groups, group)
            + each(self.max_requests, request + waiting)
    }

    /// The default limits, or lower ones with which a device takes no more than `memory` bytes. `None`: there is no room for
    /// one object of each kind.
    pub fn within(memory: u64, beside: &Beside) -> Option<Limits> {
        const PARTS: u32 = 1 << 12;
        let part = |of: u32| {
            let all = Limits::default();
            let less = |limit: u32| (u64::from(limit) * u64::from(of)).div_ceil(PARTS.into()) as u32;
            Limits {
                max_qp: less(all.max_qp),
                max_cq: less(all.max_cq),
                max_mr: less(all.max_mr),
                max_mr_extents: less(all.max_mr_extents),
                max_mw: less(all.max_mw),
                max_pd: less(all.max_pd),
                max_srq: less(all.max_srq),
                max_ah: less(all.max_ah),
                max_xrcd: less(all.max_xrcd),
                max_cm_id: less(all.max_cm_id),
                max_mcast_groups: less(all.max_mcast_groups),
                max_requests: less(all.max_requests),
                ..all
            }
        };
        let fits = |of: &u32| part(*of).memory(beside) <= memory;
        let (mut least, mut most) = (0, PARTS);
        while least < most {
            let middle = (least + most).div_ceil(2);
            match fits(&middle) {
                true => least = middle,
                false => most = middle - 1,
            }
        }
        (least > 0).then(|| part(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_memory() {
        let beside = Beside::default();
        let all = Limits::default();
        let most = all.memory(&beside);
        assert_eq!(Limits::within(most, &beside), Some(all));
        assert_eq!(Limits::within(u64::MAX, &beside), Some(all));
        assert_eq!(Limits::within(1 << 20, &beside), None);
        let mut last = 0;
        for memory in [32, 64, 100, 256, 512, 1024].map(|mib: u64| mib << 20) {
            let limits = Limits::within(memory, &beside).expect("room");
            assert_eq!(limits.check(), Ok(()));
            let taken = limits.memory(&beside);
            assert!(
                taken <= memory && taken + (1 << 20) > memory,
                "{taken} of {memory}"
            );
            assert!(limits.max_qp > last && limits.max_qp < all.max_qp);
            last = limits.max_qp;
        }
    }
}
