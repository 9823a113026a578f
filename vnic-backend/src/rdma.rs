//! The RDMA function of an adapter: verbs for a guest, by the contract of `proto/device`.
//!
//! ```text
//!  guest memory                         this module                              engine
//!  doorbell rings ─────▶ doorbells ──▶ function ──▶ work_queue ──▶ post_send, post_recv ─▶ Device
//!  completion rings ◀── completions ◀──┘   │                                                 │
//!  virtqueue 0 ────────▶ command ──────────┘                          transmit ─▶ Sink ◀─────┘
//!  virtqueue 1 … ◀────── events                                                    │
//!                                              `datapath::rdma`: a neighbour's function, or the switch as a frame
//! ```
//!
//! A function belongs to the data core of its adapter. It is there as long as the adapter; a driver comes and goes.

mod account;
mod command;
mod completions;
mod doorbells;
mod events;
mod feed;
mod function;
mod gid_news;
mod gids;
mod memory;
mod remains;
mod remap;
mod shared_ring;
mod slots;
mod turn;
mod work_queue;

use std::sync::Arc;

use vnic_engine::counters::Block;
use vnic_engine::rdma::{Beside, Counters, Device, DeviceConfig, Limits, Mtu};
use vnic_fabric::VlanMode;
use vnic_wire::MacAddr;
use vnic_wire::prefix::Prefix;

use crate::types::Budget;
pub use account::{PACKET, RUN_PACKET, of_a_packet_that_leaves, of_a_turn};
pub use events::EventQueue;
pub use function::{Attachment, Function, RdmaRings, RdmaSnapshot};
pub use gids::GidRegistry;

/// Counters of an adapter's RDMA function, in the order of [`Counters::NAMES`].
pub type RdmaCounters = Block<{ Counters::COUNT }>;

/// Event queues of the device.
pub const EVENT_QUEUES: u16 = 1;
/// Wake-up queues of the device.
pub const WAKE_QUEUES: u16 = 1;
/// Virtqueues of the device.
pub const VIRTQUEUES: u16 = 1 + EVENT_QUEUES + WAKE_QUEUES;
/// Doorbell rings of a device. Each is looked at in every round.
const DOORBELL_RINGS_MAX: u32 = 64;
/// Bytes of device memory of an adapter: what a ConnectX-5 has, as `ibv_devinfo -v` shows it.
const DEVICE_MEMORY_MAX: u64 = 128 << 10;
/// What the port says of its speed, in Mb/s.
pub const SPEED_MBPS: u32 = crate::types::LINE_RATE_MBPS;

/// Bytes of a RoCE packet that are not payload, at most: IPv6, UDP, BTH, the longest extended headers, ICRC (IBTA 9.2,
/// annex A17).
const HEADERS_MAX: u32 = 40 + 8 + 12 + 28 + 4;

/// What tells one function from another.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Who it is among those with GIDs.
    claimant: gids::Claimant,
    /// Who knows where GIDs are.
    registry: Arc<GidRegistry>,
    /// VLANs of the adapter.
    vlans: VlanMode,
    /// What its guest may claim; empty: anything.
    allowed: Arc<[Prefix]>,
    handles: u32,
}

impl Identity {
    /// Of an adapter with that address, in these VLANs.
    pub fn new(mac: MacAddr, vlans: VlanMode, registry: Arc<GidRegistry>) -> Identity {
        Identity {
            claimant: gids::Claimant {
                mac,
                doubted: Arc::default(),
            },
            registry,
            vlans,
            allowed: Arc::default(),
            handles: 0,
        }
    }

    /// The same, whose guest may claim these addresses only; none given: any.
    pub fn allowing(self, allowed: &[Prefix]) -> Identity {
        Identity {
            allowed: allowed.into(),
            ..self
        }
    }

    fn wake_queues(&self) -> u32 {
        WAKE_QUEUES.into()
    }

    /// A number of 24 bits that was not given for long, and is never the last one: `ffffffff` names no object.
    fn next_handle(&mut self) -> u32 {
        self.handles = (self.handles + 1) % 0xff_ffff;
        self.handles
    }
}

/// What a function keeps besides the engine. (What a ring's memory is made of counts as extents.)
fn beside() -> Beside {
    const BOX: u64 = 3 * 16 + 16;
    let size = |bytes: usize| bytes as u64 + BOX;
    Beside {
        qp: size(size_of::<function::QueuePair>()) + 64,
        cq: size(size_of::<completions::CompletionRing>()) + 64,
        srq: size(size_of::<function::SharedReceive>()) + 64,
        device: DEVICE_MEMORY_MAX + (4 << 20),
    }
}

/// What the driver of a function with so much memory may make. The range of the configuration has room for something.
fn limits(memory_mib: u32) -> Limits {
    Limits::within(u64::from(memory_mib) << 20, &beside()).unwrap_or_default()
}

/// What a function takes of the daemon's memory, and may take.
fn memory(device: &Device, ring_extents: u32) -> Budget {
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
    fn handles_do_not_come_back_soon_and_never_name_nothing() {
        let mut identity = Identity::new(MacAddr([2, 0, 0, 0, 0, 1]), VlanMode::default(), Arc::default());
        let first = identity.next_handle();
        assert!((0..10_000).all(|_| identity.next_handle() != first));
        identity.handles = 0xff_fffd;
        assert_eq!([identity.next_handle(), identity.next_handle()], [0xff_fffe, 0]);
    }

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
