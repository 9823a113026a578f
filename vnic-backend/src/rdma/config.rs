//! What an RDMA function has room for, and how its engine is made.

use vnic_engine::rdma::{Beside, Device, DeviceConfig, Limits, Mtu};
use vnic_wire::MacAddr;

use super::completions::CompletionRing;
use super::device_memory::DEVICE_MEMORY_MAX;
use super::session::{QueuePair, SharedReceive};
use crate::types::Budget;

/// Event queues of the device.
pub const EVENT_QUEUES: u16 = 1;
/// Wake-up queues of the device.
pub const WAKE_QUEUES: u16 = 1;
/// Virtqueues of the device.
pub const VIRTQUEUES: u16 = 1 + EVENT_QUEUES + WAKE_QUEUES;
/// What the port says of its speed, in Mb/s.
pub const SPEED_MBPS: u32 = crate::types::LINE_RATE_MBPS;

/// Bytes of a RoCE packet that are not payload, at most: IPv6, UDP, BTH, the longest extended headers, ICRC (IBTA 9.2,
/// annex A17).
const HEADERS_MAX: u32 = 40 + 8 + 12 + 28 + 4;

/// What a function keeps besides the engine. (What a ring's memory is made of counts as extents.)
fn beside() -> Beside {
    const BOX: u64 = 3 * 16 + 16;
    let size = |bytes: usize| bytes as u64 + BOX;
    Beside {
        qp: size(size_of::<QueuePair>()) + 64,
        cq: size(size_of::<CompletionRing>()) + 64,
        srq: size(size_of::<SharedReceive>()) + 64,
        device: DEVICE_MEMORY_MAX + (4 << 20),
    }
}

/// What the driver of a function with so much memory may make. The range of the configuration has room for something.
fn limits(memory_mib: u32) -> Limits {
    Limits::within(u64::from(memory_mib) << 20, &beside()).unwrap_or_default()
}

/// What a function takes of the daemon's memory, and may take.
pub fn memory(device: &Device, ring_extents: u32) -> Budget {
    let beside = beside();
    Budget {
        used: device.memory(ring_extents, &beside),
        limit: device.limits().memory(&beside),
    }
}

/// How the engine of an adapter is made.
pub fn device_config(mac: MacAddr, ethernet_mtu: u16, memory_mib: u32) -> DeviceConfig {
    let room = u32::from(ethernet_mtu).saturating_sub(HEADERS_MAX);
    let mtu = Mtu::ALL.into_iter().rev().find(|m| m.bytes() <= room);
    DeviceConfig {
        mac,
        limits: limits(memory_mib),
        mtu: mtu.unwrap_or(Mtu::Mtu256),
        pin_source_port: false,
        // Each engine gets its own.
        seed: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{RDMA_MEMORY_DEFAULT, RDMA_MEMORY_RANGE};

    #[test]
    fn limits_follow_from_memory() {
        assert_eq!(limits(RDMA_MEMORY_DEFAULT), Limits::default());
        let least = Limits::within(u64::from(*RDMA_MEMORY_RANGE.start()) << 20, &beside()).expect("room");
        assert!(least.max_qp >= 1024 && least.max_requests >= 1024, "{least:?}");
    }

    #[test]
    fn path_mtus_fit_into_the_adapters() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let mtus = [68, 576, 1500, 2200, 9000].map(|mtu| device_config(mac, mtu, 64).mtu.bytes());
        assert_eq!(mtus, [256, 256, 1024, 2048, 4096]);
    }
}
