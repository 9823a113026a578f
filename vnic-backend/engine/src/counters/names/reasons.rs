//! Why names have no value. Each is the end of a sentence that begins with the name.

use super::Source::{self, NotModelled, NotYet};

// There is no such thing here.
/// Lanes, symbols, PCS, FEC, modules.
pub const NO_PHY: Source = NotModelled("there is no physical layer");
/// FCS, CRC, jabbers, fragments.
pub const NO_FCS: Source = NotModelled("frames between guests have no FCS that could be wrong");
/// Buses.
pub const NO_PCIE: Source = NotModelled("there is no PCIe link: guest and NIC share memory");
/// Caches and pipelines of a chip.
pub const NO_CHIP: Source = NotModelled("it counts cycles, caches or credits inside a chip");
/// MTT, MPT, mapped pages.
pub const NO_TRANSLATION: Source =
    NotModelled("guest memory is used where it is: there are no translation tables");
/// Event queues.
pub const NO_EQ: Source = NotModelled("there are no event queues that could overrun");
/// NDIS, DPCs, OIDs, the mlx5 driver.
pub const DRIVER: Source = NotModelled("only the driver in the guest knows");
/// Connection managers.
pub const CM: Source = NotModelled("the guest's connection manager knows, not its adapter");
/// SMB.
pub const SMB: Source = NotModelled("the guest's SMB client knows, not its adapter");
/// Firmware.
pub const NO_FIRMWARE: Source = NotModelled("there is no firmware");
/// InfiniBand links.
pub const NO_IB_LINK: Source = NotModelled("the link layer is Ethernet");
/// Receive segment coalescing, LRO, hardware GRO.
pub const NO_RSC: Source = NotModelled("the NIC does not coalesce received frames");
/// Tunnels.
pub const NO_TUNNEL: Source = NotModelled("the NIC does not look into tunnels");
/// Representors.
pub const NO_REPRESENTOR: Source = NotModelled("there are no representors");
/// Striding receive queues, CQE compression, UMR and so on.
pub const MLX5_QUEUE: Source = NotModelled("guests have virtqueues, and these have no such thing");
/// DC transport.
pub const NO_DC: Source = NotModelled("the device does not offer the DC transport");
/// Refused work.
pub const NO_SCHEDULER: Source = NotModelled("there are no queue handles of a driver");
/// Slow path.
pub const NO_SLOW_PATH: Source = NotModelled("there is no slow path besides the data path");
/// MAC control.
pub const NO_CONTROL: Source =
    NotModelled("MAC control frames of the wire end at the uplink, and between NIC and guest there are none");
/// MAC control frames sent.
pub const SENT_CONTROL: Source = NotModelled(
    "pause is all that is sent, and it is counted by kind: see `tx_pause_ctrl_phy` and `tx_prio[p]_pause`",
);
/// MAC control frames of other kinds.
pub const OTHER_CONTROL: Source =
    NotModelled("MAC control frames are counted together, whatever their kind: see `rx_mac_control_phy`");
/// Buffers of uplinks.
pub const NO_WIRE_BUFFER: Source = NotModelled("nothing waits between an uplink's wire and the switch");
/// Priorities of queues of a driver.
pub const NO_SEND_PRIORITY: Source =
    NotModelled("each frame has its priority, the queue that it comes from has none that could change");
/// Marks by queue.
pub const MARKED: Source =
    NotModelled("marks are counted by priority, not by queue and version of IP: see `rx_marked`");
/// Multiple hosts.
pub const NO_MULTI_HOST: Source = NotModelled("there is one host");
/// Backchannel between PF and VF.
pub const NO_BACKCHANNEL: Source = NotModelled("adapters are configured by vnicctl and gRPC, not by a PF");

// It could be, and is counted elsewhere or not at all.
/// Bytes of drops.
pub const DROPPED_BYTES: Source = NotModelled("of dropped frames the number is counted, not the bytes");
/// Drops by queue.
pub const DROPS_OF_ADAPTER: Source =
    NotModelled("drops are counted by adapter and reason, not by queue: see `drops`");
/// Hash classes.
pub const HASH_CLASS: Source =
    NotModelled("frames are spread over queues by their flow; what its hash was made from is not counted");
/// Loopback.
pub const LOCAL: Source =
    NotModelled("what neighbours sent and what came over an uplink is counted together");
/// Checksum and segmentation classes.
pub const OFFLOAD: Source = NotModelled(
    "offload requests are counted natively, where software carries them out: see `tx_tso_cut`, \
                 `rx_tso_passed` and `tx_checksum_finished`",
);
/// Link changes.
pub const LINK_EVENTS: Source =
    NotModelled("a change of the link is an event, not a count: see `vnicctl event list`");
/// Sizes and kinds of frames at the uplink.
pub const NOT_AT_UPLINK: Source =
    NotModelled("an uplink counts frames and bytes, nothing by size or destination");
/// Interrupts on wrong CPUs.
pub const NO_AFFINITY: Source = NotModelled("which CPU takes an interrupt is the guest's affair");
/// Receive queues of the adapter.
pub const ADAPTERS_OWN: Source =
    NotModelled("an uplink has no receive queue: see `rx_out_of_buffer` of the adapter");
/// Copies.
pub const ALL_COPIED: Source = NotModelled("every frame is copied exactly once, from sender to receiver");
/// VLAN tags.
pub const TAGS: Source = NotModelled("tags that the switch adds or takes are not counted");
/// Dropped packets of the RDMA function.
pub const RDMA_DROPS: Source =
    NotModelled("packets that the switch drops are counted by adapter and reason: see `drops`");

// It will be.
/// Adaptive retransmission, slow restart.
pub const ZTR: Source = NotYet("it comes with zero-touch RoCE");

/// Parameters of a congestion control that can be programmed.
pub const NO_PROGRAMMABLE: Source =
    NotModelled("the algorithm does not change its own parameters: they are as they were set");
/// Rates of all flows together.
pub const RATES: Source = NotModelled("each flow has a rate of its own, and unlimited ones have none");
/// Round-trip times.
pub const RTT: Source = NotModelled("round-trip times are told to the algorithm of a flow and not kept");
/// Contexts of notifications.
pub const NO_CNP_CONTEXT: Source = NotModelled("notifications need no contexts");
