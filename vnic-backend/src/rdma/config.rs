//! Limits of an RDMA function and configuration of its engine.

use vnic_engine::rdma::{Beside, Device, DeviceConfig, Limits, Mtu};
use vnic_wire::MacAddr;
use vnic_wire::int::TRAILER_LEN;

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
/// Speed of the port, in Mb/s.
pub const SPEED_MBPS: u32 = crate::types::LINE_RATE_MBPS;

/// Largest number of bytes of a RoCE packet that are not payload: IPv6, UDP, BTH, the longest extended headers, ICRC (IBTA
/// 9.2, annex A17).
const HEADERS_MAX: u32 = 40 + 8 + 12 + 28 + 4;

/// Memory of a function besides the engine. (The memory of a ring counts as extents.)
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

/// Limits of a driver's objects for this much memory. The configuration's range always gives some.
fn limits(memory_mib: u32) -> Limits {
    Limits::within(u64::from(memory_mib) << 20, &beside()).unwrap_or_default()
}

/// Memory of the daemon that a function with these limits uses, and may use.
pub fn memory(device: &Device, limits: &Limits, ring_extents: u32) -> Budget {
    let beside = beside();
    Budget {
        used: device.memory(ring_extents, &beside),
        limit: limits.memory(&beside),
    }
}

/// Memory of the daemon that the objects of a device take.
pub fn of_objects(device: &Device, ring_extents: u32) -> u64 {
    let beside = beside();
    device.memory(ring_extents, &beside) - Device::memory_of_none(device.limits(), &beside)
}

/// Memory of the daemon that a function with these limits may use for objects.
pub fn for_objects(limits: &Limits) -> u64 {
    let beside = beside();
    limits.memory(&beside) - Device::memory_of_none(limits, &beside)
}

/// GUID of the adapter with this address, as node and as port: its EUI-64 (RFC 4291, appendix A).
pub fn guid(mac: MacAddr) -> u64 {
    let MacAddr([a, b, c, d, e, f]) = mac;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// Configuration of an adapter's engine.
pub fn device_config(mac: MacAddr, ethernet_mtu: u16, memory_mib: u32) -> DeviceConfig {
    let room = u32::from(ethernet_mtu).saturating_sub(HEADERS_MAX);
    let mtu = Mtu::ALL.into_iter().rev().find(|m| m.bytes() <= room);
    let mtu = mtu.unwrap_or(Mtu::Mtu256);
    DeviceConfig {
        mac,
        limits: limits(memory_mib),
        mtu,
        trailers: mtu.bytes() + TRAILER_LEN as u32 <= room,
        pin_source_port: false,
        // Each engine gets its own seed.
        seed: 0,
        place: None,
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
        // With a trailer of telemetry, too, or there are none.
        let trailers = [68, 576, 1500, 4188, 4236, 9000].map(|mtu| device_config(mac, mtu, 64).trailers);
        assert_eq!(trailers, [false, true, true, false, true, true]);
    }
}
