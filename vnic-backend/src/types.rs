//! Types of the control plane's requests to the data path, and of its answers.

mod access_list;
mod budget;
mod clock;
mod congestion;
mod connections;
mod dcb;
mod event;
pub mod lag;
mod lldp;
mod mirror;
mod moves;
mod owners;
mod qos;
mod rdma_port;
mod recording;
mod subnet_port;
mod trace;
mod verbs_fault;
mod wake;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use vnic_engine::counters::{self, CounterDef, Sample};
pub use vnic_engine::virtio_net::control::{self, Control as EthernetDriver};
pub use vnic_engine::virtio_net::feature;
pub use vnic_engine::virtio_net::steering::hash_type;
pub use vnic_fabric::conformance;
/// Types and limits of fault rules.
pub mod fault {
    pub use vnic_fabric::fault::{
        ALWAYS, Action, BITS_MAX, BITS24_MAX, COPIES_MAX, HOLD_MAX, Opcodes, PsnRange, REORDER_MAX,
    };

    /// The name of a BTH opcode, such as `RC SEND_ONLY` (IBTA volume 1, table 35).
    pub fn opcode_name(opcode: u8) -> String {
        vnic_wire::opcode::Opcode(opcode).to_string()
    }

    /// The BTH opcode of this name; blanks, underscores and hyphens are equal, and so are small and capital letters.
    pub fn opcode_of(name: &str) -> Option<u8> {
        let plain = |s: &str| s.to_ascii_uppercase().replace([' ', '-'], "_");
        let name = plain(name);
        (0..=u8::MAX).find(|o| plain(&opcode_name(*o)) == name)
    }
}
pub use vnic_engine::gids::GidSource;
pub use vnic_engine::oid;
pub use vnic_engine::rdma::{
    Cause, GidKind, OBSERVED_MAX, Passed, PathStatus, PkeyViolation, Place, QpErrors, QpNumber,
    QpObservation, QpPage, QpState, QpStatus, QpType, TimerStatus, WORST, WayStatus,
};
pub use vnic_engine::settings;
pub use vnic_fabric::switch::{AllowedAddresses, Claim, PortId, SwitchConfig};
pub use vnic_fabric::{DropReason, PriorityTags, VlanMode};
pub use vnic_wire::MacAddr;
pub use vnic_wire::pkey::PkeyTable;
pub use vnic_wire::prefix::Prefix;

pub use access_list::*;
pub use budget::*;
pub use clock::*;
pub use congestion::*;
pub use connections::*;
pub use dcb::*;
pub use event::*;
pub use lag::{BondMember, BondSpec, BondStatus, Failover, LacpSpec};
pub use lldp::*;
pub use mirror::*;
pub use moves::*;
pub use owners::*;
pub use qos::*;
pub use rdma_port::*;
pub use recording::*;
pub use subnet_port::*;
pub use trace::*;
pub use verbs_fault::*;
pub use vnic_fabric::wake::Pattern as WakePattern;
pub use wake::{WAKE_PATTERNS_MAX, WakeAction};

/// Settings of the whole NIC, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// CPUs of the data cores, to each of which one poll loop is pinned; at least one, no duplicates.
    pub data_cores: Vec<usize>,
    /// How long a poll loop without work polls before it sleeps until a kick.
    pub idle_spin: Duration,
    /// Settings of the embedded switch.
    pub switch: SwitchConfig,
    /// Whether data cores and threads of adapters' sockets are kept from system calls that they do not need (seccomp(2)).
    pub confine: bool,
}

/// MTUs of adapters and ports, in bytes of Ethernet payload.
pub const MTU_RANGE: std::ops::RangeInclusive<u16> = 68..=9216;
/// Speeds of a port, in Mbit/s.
pub const SPEED_RANGE: std::ops::RangeInclusive<u32> = 1..=400_000;
/// Limits of [`StormControl`], in frames a second.
pub const STORM_RANGE: std::ops::RangeInclusive<u32> = 1..=100_000_000;
/// Largest number of queues of a port's TAP device.
pub const TAP_QUEUES_MAX: u8 = 8;
/// Numbers of queue pairs of an adapter.
pub const QUEUE_PAIRS_RANGE: std::ops::RangeInclusive<u16> = 1..=16;
/// Memory of the daemon for the RDMA function of an adapter, in MiB.
pub const RDMA_MEMORY_RANGE: std::ops::RangeInclusive<u32> = 64..=65_536;
/// Default memory of the daemon for an RDMA function, in MiB: as much as the limits of a ConnectX need.
pub const RDMA_MEMORY_DEFAULT: u32 = 2216;
/// Speed that the link of an adapter reports, in Mbit/s. It is not enforced.
pub const LINE_RATE_MBPS: u32 = 100_000;
/// Largest number of adapters of a NIC.
pub const ADAPTERS_MAX: usize = 256;
/// Largest number of uplink ports of a NIC: those of two bonds of the largest size.
pub const PORTS_MAX: usize = 64;
/// Largest number of ports of a NIC's switch: each uplink can be in a bond of its own.
pub const SWITCH_PORTS_MAX: usize = ADAPTERS_MAX + 2 * PORTS_MAX;
/// Largest number of fault rules of a NIC at a time.
pub const FAULTS_MAX: usize = 64;

/// Largest number of addresses that `mac-address-list` adds to an adapter's own.
pub const MORE_MACS_MAX: usize = 128;
/// Values of `TxMaxPostSendsCoalescing`.
pub const TX_COALESCING_RANGE: std::ops::RangeInclusive<u16> = 1..=256;
/// Largest value of `TxMaxPostSendsCoalescing` while `SendCompletionMethod` is NDIS poll (WinOF-2 Ethernet Network, NDIS Poll
/// Mode).
pub const TX_COALESCING_POLL_MAX: u16 = 32;

/// Direction in which an adapter's socket is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketRole {
    /// The daemon listens; the guest's VMM connects (and reconnects).
    #[default]
    Listen,
    /// The VMM listens (`server=on`); the daemon connects, and retries until the VMM is there.
    Connect,
}

/// Specification of an adapter.
// Wide: what an operator can say of an adapter, a field each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSpec {
    /// Name, `[a-z0-9][a-z0-9_-]{0,14}`; unique in the NIC.
    pub name: String,
    /// The adapter's own addresses, at least one; the first is the one given to the guest.
    pub macs: Vec<MacAddr>,
    /// MTU, see [`MTU_RANGE`].
    pub mtu: u16,
    /// Queue pairs offered to the guest, see [`QUEUE_PAIRS_RANGE`].
    pub queue_pairs: u16,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// Whether only the adapter's own addresses are accepted as source.
    pub anti_spoofing: bool,
    /// Whether the Ethernet function has its own configuration space and control queue (virtio 1.3 section 5.1), for VMMs that leave
    /// both to it: QEMU's generic vhost-user device, User-Mode-Linux. Otherwise they are the VMM's (`-netdev vhost-user`).
    pub control_queue: bool,
    /// Addresses that the guest may claim: by ARP, neighbour discovery, sources of packets, GIDs. Empty: any.
    pub allowed_addresses: Vec<Prefix>,
    /// The CPU whose poll loop serves the adapter; one of `data_cores`. `None`: the one with the fewest adapters.
    pub data_core: Option<usize>,
    /// The vhost-user socket of the Ethernet function.
    pub eth_socket: PathBuf,
    /// The vhost-user socket of the RDMA function, `NAME-rdma.sock` by convention; `None`: the adapter has no RDMA function.
    pub rdma_socket: Option<PathBuf>,
    /// Whether the daemon listens on these sockets or connects to them.
    pub socket_role: SocketRole,
    /// Processes that may use the sockets.
    pub socket_access: SocketAccess,
    /// Memory of the daemon for the RDMA function, in MiB, see [`RDMA_MEMORY_RANGE`]: the limits of the device follow from
    /// it.
    pub rdma_memory_mib: u32,
    /// Whether programs may take frames that come for the adapter (flows of raw packet queue pairs).
    pub rdma_flows: bool,
    /// P_Keys of the port of the RDMA function.
    pub pkeys: PkeyTable,
    /// Resources of the daemon for the adapter's VMMs.
    pub vmm: VmmLimits,
    /// What a magic packet, or a frame with a pattern, does while the guest does not run; `None`: it is reported.
    pub wake: Option<WakeAction>,
    /// Patterns of frames that wake, at most [`WAKE_PATTERNS_MAX`].
    pub wake_patterns: Vec<WakePattern>,
    /// The move of a guest in which the adapter takes part.
    pub moving: Option<Moving>,
}

/// Access to the sockets of an adapter, in addition to their directory. Owner, group and mode are of sockets on which the daemon
/// listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketAccess {
    /// Owner; `None`: the daemon's user.
    pub owner: Option<u32>,
    /// Group; `None`: the daemon's own.
    pub group: Option<u32>,
    /// Mode, without the file's type.
    pub mode: u32,
    /// Users of VMMs, beside the owner; empty: any that can open the sockets.
    pub users: Vec<u32>,
}

impl Default for SocketAccess {
    fn default() -> SocketAccess {
        SocketAccess {
            owner: None,
            group: None,
            mode: 0o660,
            users: Vec::new(),
        }
    }
}

/// The process at the other end of a Unix socket, as the kernel noted it when the process connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caller {
    /// Number of the process in this PID namespace; `None`: it is in none that is seen from here.
    pub pid: Option<i32>,
    /// Number of its user; `None`: the kernel does not report it.
    pub uid: Option<u32>,
}

impl std::fmt::Display for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "pid {pid}, ")?,
            None => f.write_str("a process of another PID namespace, ")?,
        }
        match self.uid {
            Some(uid) => write!(f, "uid {uid}"),
            None => f.write_str("uid unknown"),
        }
    }
}

vnic_wire::named! {
    /// State of an adapter's guest.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttachState {
        /// No VMM is connected to the socket.
        Detached => "detached",
        /// A VMM is connected; no driver runs.
        Attached => "attached",
        /// A driver runs: at least one queue pair is enabled. The link is up.
        Up => "up",
        /// A bug ended the adapter's work; `restart` brings it back.
        Failed => "failed",
    }
}

/// Status of an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterStatus {
    /// Specification that acts; `data_core` is filled in.
    pub spec: AdapterSpec,
    /// Specification after the next restart: `spec`, unless a change waits ([`crate::Nic::update_adapter`]).
    pub wanted: AdapterSpec,
    /// Settings that act on the adapter.
    pub settings: settings::AdapterSettings,
    /// Port of the adapter at the switch.
    pub port: PortId,
    /// Whether the switch knows the adapter's addresses; not so at one of two adapters between which a guest moves.
    pub speaks: bool,
    /// State of the guest.
    pub state: AttachState,
    /// When `state` last changed.
    pub since: SystemTime,
    /// Virtio feature bits that the guest's driver accepted; 0 while detached.
    pub features: u64,
    /// Queue pairs that the guest has enabled.
    pub queue_pairs_enabled: u16,
    /// Guest memory mapped, in bytes.
    pub memory_bytes: u64,
    /// Memory regions of the VMMs.
    pub regions: Budget,
    /// Descriptors that the daemon holds for the VMMs.
    pub descriptors: Budget,
    /// Dropless mode.
    pub dropless: DroplessStatus,
    /// The reserve for bursts.
    pub burst: BurstStatus,
}

/// Status of an adapter's dropless mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroplessStatus {
    /// Whether the mode is on.
    pub on: bool,
    /// Longest wait of a frame, in 100 µs, as it was set last.
    pub timeout: u8,
    /// Number of times that the mode was entered.
    pub entries: u64,
    /// Number of times that the mode was left, by the operator or because a frame waited too long.
    pub exits: u64,
    /// Number of times that a frame waited too long.
    pub timeouts: u64,
    /// Frames that wait now, and whose senders are held back.
    pub waiting: u64,
}

/// Status of an adapter's reserve for bursts that find no receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BurstStatus {
    /// How the NIC waits for buffers; off: the reserve takes no frames.
    pub mode: settings::Burst,
    /// Largest number of frames in the reserve, all receive queues together.
    pub reserve: u32,
    /// Frames in the reserve now.
    pub frames: u64,
    /// Largest number of frames in the reserve so far.
    pub frames_max: u64,
    /// Memory of frames without a receive buffer now, in bytes, including those that wait in dropless mode.
    pub bytes: u64,
    /// Largest value of `bytes` so far.
    pub bytes_max: u64,
}

/// Status of an adapter's RDMA function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaStatus {
    /// The vhost-user socket of the function.
    pub socket: PathBuf,
    /// State of the driver; [`AttachState::Up`]: HELLO was done.
    pub state: AttachState,
    /// When `state` last changed.
    pub since: SystemTime,
    /// Memory of the driver that is mapped, in bytes.
    pub memory_bytes: u64,
    /// Memory of the daemon for the driver's objects and requests, in bytes, by the calculation from which the limits of the
    /// device follow.
    pub daemon_memory: Budget,
    /// Setting of the adapter for which the function takes no driver, if there is one.
    pub off: Option<&'static str>,
    /// Filled entries of the GID table, by index.
    pub gids: Vec<GidRow>,
    /// Objects in use, by type.
    pub resources: Vec<ResourceRow>,
    /// Queue pairs with the most errors: few, those with the most first.
    pub worst: Vec<(QpNumber, QpErrors)>,
    /// Processes that have it.
    pub owners: RdmaOwners,
}

/// Queue pairs that a data core tells of at a time.
pub const QUEUE_PAIRS_AT_ONCE: usize = 256;

/// Rates of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpRate {
    /// Number of the queue pair.
    pub qp: u32,
    /// Rate that the queue pair's user has set, in kbit/s; 0: none.
    pub rate_kbps: u32,
    /// Bytes that the queue pair may send at once; 0: the device chooses.
    pub max_burst: u32,
    /// Rate limit of the operator, in kbit/s; 0: none.
    pub ceiling_kbps: u32,
}

/// Requests of an adapter's RDMA function that were given up, since the last report of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaGaveUp {
    /// Requests that the peer did not answer (`IBV_WC_RETRY_EXC_ERR`).
    pub unanswered: u64,
    /// Requests for which the peer had no receive (`IBV_WC_RNR_RETRY_EXC_ERR`).
    pub not_ready: u64,
    /// What the adapter dropped since the last report, by reason.
    pub drops: Vec<(DropReason, u64)>,
}

/// Two adapters that claim one GID in one VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidConflict {
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// VLAN of the switch.
    pub vlan: u16,
    /// Address of the other adapter.
    pub other: MacAddr,
    /// Whether the event's adapter has the GID; otherwise the other one has it.
    pub ours: bool,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidRow {
    /// Index of the entry.
    pub index: u16,
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// Type of the GID (IBTA annex A17).
    pub kind: GidKind,
    /// VLAN of the GID's interface.
    pub vlan: Option<u16>,
    /// Ethernet address of the GID's interface.
    pub mac: MacAddr,
    /// Source of the entry.
    pub source: GidSource,
}

/// Number of an RDMA function's objects of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceRow {
    /// Name of the type, by `rdma resource` if it has one there.
    pub name: &'static str,
    /// Objects in use now.
    pub used: u32,
    /// Largest number of objects.
    pub limit: u32,
}

/// An entry that an operator puts into a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidSetting {
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// Type of the GID (IBTA annex A17).
    pub kind: GidKind,
    /// VLAN of the GID's interface, 1..=4094.
    pub vlan: Option<u16>,
}

/// Kind of an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortKind {
    /// A TAP device, created if it does not exist, attached by name if it does.
    Tap {
        /// Name of the network interface, 1..=15 bytes.
        ifname: String,
        /// Number of queues, 1..=[`TAP_QUEUES_MAX`]: a flow of the host has one of them.
        queues: u8,
    },
    /// An existing network device of the host: one end of a veth pair, a physical one. Its frames pass an AF_PACKET socket.
    Packet {
        /// Name of the network interface.
        ifname: String,
    },
    /// An existing network device of the host. Its frames pass AF_XDP sockets, without the kernel's network stack.
    Xdp {
        /// Name of the network interface.
        ifname: String,
    },
    /// The owner of the NIC exchanges its frames with other daemons (`Nic::add_port_exchange`).
    Mesh {
        /// Destination, as a text.
        label: String,
    },
}

impl PortKind {
    /// The kind with this name.
    pub fn new(name: &str, ifname: String) -> Option<PortKind> {
        match name {
            "tap" => Some(PortKind::Tap { ifname, queues: 1 }),
            "packet" => Some(PortKind::Packet { ifname }),
            "xdp" => Some(PortKind::Xdp { ifname }),
            _ => None,
        }
    }

    /// Names of all kinds but [`PortKind::Mesh`].
    pub const NAMES: [&str; 3] = ["tap", "packet", "xdp"];

    /// Name of the kind.
    pub const fn name(&self) -> &'static str {
        match self {
            PortKind::Tap { .. } => "tap",
            PortKind::Packet { .. } => "packet",
            PortKind::Xdp { .. } => "xdp",
            PortKind::Mesh { .. } => "mesh",
        }
    }

    /// Name of the network interface; empty: there is none.
    pub fn ifname(&self) -> &str {
        match self {
            PortKind::Tap { ifname, .. } | PortKind::Packet { ifname } | PortKind::Xdp { ifname } => ifname,
            PortKind::Mesh { .. } => "",
        }
    }
}

/// Specification of an uplink port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Name, as for adapters; unique among adapters and ports.
    pub name: String,
    /// Kind of the uplink.
    pub kind: PortKind,
    /// MTU, see [`MTU_RANGE`]; set on a device that the daemon creates.
    pub mtu: u16,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// The CPU whose poll loop serves the port; `None`: the first.
    pub data_core: Option<usize>,
    /// Line rate in Mbit/s, which the port reports and does not exceed. `None`: the device's own, without a limit.
    pub speed_mbps: Option<u32>,
    /// Limits of what it takes from its wire for all ports.
    pub storm: StormControl,
    /// The port to whose wire each of its frames goes as it is, and the other way around; neither is a part of the network then.
    /// It may be one that is not there yet.
    pub bridge: Option<String>,
    /// Link layer discovery.
    pub lldp: LldpMode,
    /// Data center bridging exchange.
    pub dcbx: DcbxSpec,
}

impl PortSpec {
    /// A port of the switch with MTU 1500 in all VLANs, without limits.
    pub fn new(name: impl Into<String>, kind: PortKind) -> PortSpec {
        PortSpec {
            name: name.into(),
            kind,
            mtu: 1500,
            vlan: VlanMode::default(),
            data_core: None,
            speed_mbps: None,
            storm: StormControl::default(),
            bridge: None,
            lldp: LldpMode::Disabled,
            dcbx: DcbxSpec::default(),
        }
    }
}

/// Storm control: how many frames a second a port takes from its wire that the switch floods, see [`STORM_RANGE`]; `None`: no
/// limit. Those beyond it are dropped (`storm_control`). Multicast frames have no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StormControl {
    /// Broadcast frames a second.
    pub broadcast_pps: Option<u32>,
    /// Frames a second for a unicast address that the switch does not know.
    pub unknown_unicast_pps: Option<u32>,
}

/// Status of an uplink port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStatus {
    /// Specification; `data_core` is filled in.
    pub spec: PortSpec,
    /// Port of the switch.
    pub port: PortId,
    /// Link state of the device.
    pub up: bool,
    /// Reason why the link cannot come up: the device is gone, or cannot be opened again.
    pub problem: Option<String>,
    /// How frames come and go, as a text: `xdp copy, native, 1 queue`. Empty while no device is open.
    pub mode: String,
    /// Link layer discovery, while it speaks or listens.
    pub lldp: Option<LldpStatus>,
    /// State of the device in the kernel, while it exists.
    pub device: Option<PortDevice>,
}

/// State of an uplink port's device.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortDevice {
    /// Index of the network interface.
    pub index: u32,
    /// MTU of the device; the port's may be lower.
    pub mtu: u32,
    /// Ethernet address of the device.
    pub mac: Option<MacAddr>,
    /// Speed of the device's link in Mbit/s, if it is known.
    pub speed_mbps: Option<u32>,
    /// Statistics of the kernel and the driver, with their names.
    pub statistics: Vec<(String, u64)>,
}

/// An entry of the switch's forwarding database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN.
    pub vlan: u16,
    /// Address.
    pub mac: MacAddr,
    /// Name of the adapter or port behind which the address is.
    pub owner: String,
    /// Whether the entry is configured (an adapter's own address), not learned.
    pub is_static: bool,
    /// Time since the address was last seen as a source; zero for static entries.
    pub age: Duration,
}

/// Specification of a fault rule: which frames, how often, and what happens to them. All conditions that are given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    /// Name, as for adapters; unique among fault rules.
    pub name: String,
    /// The rule matches frames from this adapter or port.
    pub from: Option<String>,
    /// The rule matches frames for this adapter or port.
    pub to: Option<String>,
    /// The rule matches RoCE packets. `destination_qp`, `opcodes` and `psn` imply this.
    pub roce: bool,
    /// The rule matches packets for this QP, 24 bits.
    pub destination_qp: Option<u32>,
    /// The rule matches packets with one of these BTH opcodes.
    pub opcodes: Option<fault::Opcodes>,
    /// The rule matches packets with a PSN in this range.
    pub psn: Option<fault::PsnRange>,
    /// The rule matches frames with this EtherType behind their VLAN tags.
    pub ethertype: Option<u16>,
    /// Number of matching frames that pass before the rule begins.
    pub skip: u64,
    /// Probability in millionths, up to [`fault::ALWAYS`].
    pub probability: u32,
    /// Number of injections after which the rule is spent; `None`: never.
    pub count: Option<u64>,
    /// Seed of the rule's random numbers; `None`: the NIC chooses, and reports it.
    pub seed: Option<u64>,
    /// Action on the frames.
    pub action: fault::Action,
}

impl FaultSpec {
    /// A rule that does this to every frame.
    pub fn new(name: &str, action: fault::Action) -> FaultSpec {
        FaultSpec {
            name: name.into(),
            from: None,
            to: None,
            roce: false,
            destination_qp: None,
            opcodes: None,
            psn: None,
            ethertype: None,
            skip: 0,
            probability: fault::ALWAYS,
            count: None,
            seed: None,
            action,
        }
    }
}

/// Status of a fault rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultStatus {
    /// Number of the rule: never given twice while the NIC runs.
    pub id: u32,
    /// Specification; `seed` is filled in.
    pub spec: FaultSpec,
    /// Frames that the rule matched.
    pub matched: u64,
    /// Frames on which the rule acted.
    pub injected: u64,
    /// Time at which the rule was added.
    pub created: SystemTime,
}

impl FaultStatus {
    /// Whether the rule will never act again.
    pub fn spent(&self) -> bool {
        self.spec.count.is_some_and(|c| self.injected >= c)
    }
}

/// Injection of a fault rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultInjection {
    /// Number of the rule.
    pub id: u32,
    /// Name of the rule.
    pub name: String,
    /// One frame, or a number of frames that are not reported one by one.
    pub what: Injected,
}

/// Frames of a [`FaultInjection`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injected {
    /// One frame.
    One {
        /// Adapter or port from which the frame came.
        from: String,
        /// Adapter or port for which the frame was.
        to: String,
        /// The effect, such as `delay 1.2 ms`.
        effect: String,
        /// Bytes of the frame.
        len: u32,
        /// BTH opcode, destination QP and PSN of a RoCE packet.
        roce: Option<(u8, u32, u32)>,
    },
    /// Number of further frames since the last report.
    More(u64),
}

/// Specification of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSpec {
    /// Names of adapters and ports; empty: all.
    pub owners: Vec<String>,
    /// Bytes kept of each frame.
    pub snaplen: u32,
    /// Whether only dropped frames are captured.
    pub drops_only: bool,
}

/// Direction of a captured frame, seen from the adapter's guest or from the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Sent by the guest (or received from the wire): enters the switch.
    Ingress,
    /// Delivered to the guest (or sent to the wire): leaves the switch.
    Egress,
}

/// A captured frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedFrame {
    /// Time of the capture, by the NIC's clock.
    pub time: SystemTime,
    /// Adapter or port at which the frame was captured.
    pub port: PortId,
    /// Direction of the frame.
    pub direction: Direction,
    /// Reason of the drop, if the frame was dropped.
    pub drop: Option<DropReason>,
    /// Effects of fault rules.
    pub comment: Option<String>,
    /// Length on the wire, in bytes (a TSO request: before it is cut).
    pub original_len: u32,
    /// First bytes of the frame.
    pub data: Vec<u8>,
}

/// Refusal of the NIC. Every variant names the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// A field of a request is out of range; nothing was changed.
    #[error("{field}: {problem}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// The problem, and what is allowed.
        problem: String,
    },
    /// The name is taken.
    #[error("{kind} {name} exists already")]
    Exists {
        /// `adapter` or `port`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// There is nothing of this kind with this name.
    #[error("no {kind} is named {name}")]
    NotFound {
        /// `adapter` or `port`.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A limit of the NIC is reached.
    #[error("limit reached: {0}")]
    Limit(String),
    /// The operating system refused something; the text names it, and the missing right.
    #[error("{what}: {source}")]
    Os {
        /// The attempted action, and the remedy if one is known.
        what: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The NIC is shutting down.
    #[error("the NIC is shutting down")]
    ShuttingDown,
    /// The change would be taken; nothing was changed, because it was only rehearsed.
    #[error("everything is in order, and nothing was changed")]
    Rehearsed,
}

impl NicError {
    /// The error of an action that the operating system refused.
    pub(crate) fn os<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> NicError {
        |source| NicError::Os {
            what: what.into(),
            source: source.into(),
        }
    }
}

/// Refuses the value of a field.
pub(crate) fn invalid<T>(field: &'static str, problem: impl Into<String>) -> Result<T, NicError> {
    let problem = problem.into();
    Err(NicError::Invalid { field, problem })
}
