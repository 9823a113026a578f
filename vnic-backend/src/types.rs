//! What the control plane says to the data path and hears from it.

mod budget;
mod congestion;
pub mod lag;
mod qos;

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use vnic_engine::counters::{self, CounterDef, Sample};
pub use vnic_engine::virtio_net::feature;
/// Fault rules: what they can be about and do, and their limits.
pub mod fault {
    pub use vnic_fabric::fault::{
        ALWAYS, Action, BITS_MAX, BITS24_MAX, COPIES_MAX, HOLD_MAX, Opcodes, PsnRange, REORDER_MAX,
    };

    /// The name of a BTH opcode, such as `RC SEND_ONLY` (IBTA volume 1, table 35).
    pub fn opcode_name(opcode: u8) -> String {
        vnic_wire::opcode::Opcode(opcode).to_string()
    }

    /// The BTH opcode of this name; blanks, underscores and hyphens are the same, and so are small and capital letters.
    pub fn opcode_of(name: &str) -> Option<u8> {
        let plain = |s: &str| s.to_ascii_uppercase().replace([' ', '-'], "_");
        let name = plain(name);
        (0..=u8::MAX).find(|o| plain(&opcode_name(*o)) == name)
    }
}
pub use vnic_engine::gids::GidSource;
pub use vnic_engine::oid;
pub use vnic_engine::rdma::GidKind;
pub use vnic_engine::settings;
pub use vnic_fabric::switch::{AllowedAddresses, Claim, PortId, SwitchConfig};
pub use vnic_fabric::{DropReason, PriorityTags, VlanMode};
pub use vnic_wire::MacAddr;
pub use vnic_wire::prefix::Prefix;

pub use budget::*;
pub use congestion::*;
pub use lag::{BondMember, BondSpec, BondStatus, Failover, LacpSpec};
pub use qos::*;

/// Settings of the whole NIC, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// One poll loop is pinned to each of these CPUs; at least one, no duplicates.
    pub data_cores: Vec<usize>,
    /// How long a poll loop without work keeps spinning before it sleeps until a kick.
    pub idle_spin: Duration,
    /// Settings of the embedded switch.
    pub switch: SwitchConfig,
    /// Data cores and threads of adapters' sockets make no system call that they do not need (seccomp(2)).
    pub confine: bool,
}

/// The lowest and highest MTU of adapters and ports, in bytes of Ethernet payload.
pub const MTU_RANGE: std::ops::RangeInclusive<u16> = 68..=9216;
/// Speeds that a port can be given, in Mbit/s.
pub const SPEED_RANGE: std::ops::RangeInclusive<u32> = 1..=400_000;
/// The most queues that a TAP device of a port can have.
pub const TAP_QUEUES_MAX: u8 = 8;
/// Queue pairs an adapter can have.
pub const QUEUE_PAIRS_RANGE: std::ops::RangeInclusive<u16> = 1..=16;
/// Memory that the RDMA function of an adapter may have in the daemon, in MiB.
pub const RDMA_MEMORY_RANGE: std::ops::RangeInclusive<u32> = 64..=65_536;
/// As much of it as the limits of a ConnectX need.
pub const RDMA_MEMORY_DEFAULT: u32 = 2200;
/// What the link of an adapter says of its speed, in Mbit/s. Nothing holds it to that yet.
pub const LINE_RATE_MBPS: u32 = 100_000;
/// Adapters a NIC can have, and ports a NIC can have.
pub const ADAPTERS_MAX: usize = 256;
/// Uplink ports a NIC can have: two bonds of the largest size.
pub const PORTS_MAX: usize = 64;
/// Ports that the switch of a NIC can have: each uplink can be in a bond of its own.
pub const SWITCH_PORTS_MAX: usize = ADAPTERS_MAX + 2 * PORTS_MAX;
/// Fault rules a NIC can have at a time.
pub const FAULTS_MAX: usize = 64;

/// Addresses that `mac-address-list` can add to an adapter's own.
pub const MORE_MACS_MAX: usize = 128;
/// Values of `TxMaxPostSendsCoalescing`.
pub const TX_COALESCING_RANGE: std::ops::RangeInclusive<u16> = 1..=256;
/// The most while `SendCompletionMethod` is NDIS poll (WinOF-2 Ethernet Network, NDIS Poll Mode).
pub const TX_COALESCING_POLL_MAX: u16 = 32;

/// Who listens and who connects on an adapter's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SocketRole {
    /// We listen; the guest's VMM connects (and reconnects).
    #[default]
    Listen,
    /// The VMM listens (`server=on`); we connect and retry until it is there.
    Connect,
}

/// What an adapter is made from.
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
    /// Accept only own addresses as source.
    pub anti_spoofing: bool,
    /// Addresses that its guest may claim: by ARP, neighbour discovery, sources of packets, GIDs. Empty: any.
    pub allowed_addresses: Vec<Prefix>,
    /// The CPU whose poll loop serves it; one of `data_cores`. `None`: the one with the fewest adapters.
    pub data_core: Option<usize>,
    /// The vhost-user socket of the Ethernet function.
    pub eth_socket: PathBuf,
    /// The vhost-user socket of the RDMA function, `NAME-rdma.sock` by convention; `None`: the adapter has no such
    /// function.
    pub rdma_socket: Option<PathBuf>,
    /// Who listens on these sockets.
    pub socket_role: SocketRole,
    /// Who may use them.
    pub socket_access: SocketAccess,
    /// Memory that the RDMA function may have in the daemon, in MiB, see [`RDMA_MEMORY_RANGE`]: the limits of the device follow
    /// from it.
    pub rdma_memory_mib: u32,
    /// What its VMMs may have of the daemon.
    pub vmm: VmmLimits,
}

/// Who may use the sockets of an adapter, beyond what their directory and mode (0660) say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketAccess {
    /// Group of sockets on which the daemon listens; `None`: the daemon's own.
    pub group: Option<u32>,
    /// Users as whom VMMs may run; empty: everybody who can open the sockets.
    pub users: Vec<u32>,
}

vnic_wire::named! {
    /// How far an adapter's guest has come.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AttachState {
        /// Nobody is connected to the socket.
        Detached => "detached",
        /// A VMM is connected; no driver runs.
        Attached => "attached",
        /// A driver runs: at least one queue pair is enabled. The link is up.
        Up => "up",
        /// A bug of ours took the adapter down; `restart` brings it back.
        Failed => "failed",
    }
}

/// An adapter as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterStatus {
    /// What it was made from; `data_core` is filled in.
    pub spec: AdapterSpec,
    /// Settings that act on it.
    pub settings: settings::AdapterSettings,
    /// Its port of the switch.
    pub port: PortId,
    /// How far its guest has come.
    pub state: AttachState,
    /// When `state` last changed.
    pub since: SystemTime,
    /// Virtio feature bits that the guest's driver accepted; 0 while detached.
    pub features: u64,
    /// Queue pairs that the guest has enabled.
    pub queue_pairs_enabled: u16,
    /// Guest memory mapped, in bytes.
    pub memory_bytes: u64,
    /// Memory regions of its VMMs.
    pub regions: Budget,
    /// Descriptors that the daemon holds for its VMMs.
    pub descriptors: Budget,
    /// Dropless mode.
    pub dropless: DroplessStatus,
    /// The reserve for bursts.
    pub burst: BurstStatus,
}

/// Dropless mode of an adapter as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroplessStatus {
    /// Is it on?
    pub on: bool,
    /// How long a frame may wait, in 100 µs; the last one that was set.
    pub timeout: u8,
    /// Times that it was entered.
    pub entries: u64,
    /// Times that it was left, by the operator or because a frame waited too long.
    pub exits: u64,
    /// Times that a frame waited too long.
    pub timeouts: u64,
    /// Frames that wait now and push their senders back.
    pub waiting: u64,
}

/// The reserve of an adapter for bursts that find no receive buffer, as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BurstStatus {
    /// Who waits for buffers; off: the reserve takes nothing.
    pub mode: settings::Burst,
    /// Frames that it holds at most, all receive queues together.
    pub reserve: u32,
    /// Frames in it now.
    pub frames: u64,
    /// The most there have been.
    pub frames_max: u64,
    /// Memory that frames without a receive buffer take now, in bytes; with those that wait in dropless mode.
    pub bytes: u64,
    /// The most they have taken.
    pub bytes_max: u64,
}

/// The RDMA function of an adapter as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaStatus {
    /// Its vhost-user socket.
    pub socket: PathBuf,
    /// How far its driver has come; [`AttachState::Up`]: HELLO was said.
    pub state: AttachState,
    /// When `state` last changed.
    pub since: SystemTime,
    /// Memory of the driver that is mapped, in bytes.
    pub memory_bytes: u64,
    /// Memory of the daemon for what the driver has made and posted, in bytes, by the account from which the limits of the
    /// device follow.
    pub daemon_memory: Budget,
    /// Why it takes no driver: a setting of the adapter.
    pub off: Option<&'static str>,
    /// Filled entries of the GID table, by index.
    pub gids: Vec<GidRow>,
    /// Objects in use, by type.
    pub resources: Vec<ResourceRow>,
}

/// The rate of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpRate {
    /// Its number.
    pub qp: u32,
    /// Rate that its user has set, in kbit/s; 0: none.
    pub rate_kbps: u32,
    /// Bytes that it may send at once; 0: the device chooses.
    pub max_burst: u32,
    /// Rate that the operator allows at most, in kbit/s; 0: any.
    pub ceiling_kbps: u32,
}

/// Two adapters claim one GID in one VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidConflict {
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// VLAN of the switch.
    pub vlan: u16,
    /// Address of the other adapter.
    pub other: MacAddr,
    /// The adapter that the event is of has the GID; otherwise the other one has it.
    pub ours: bool,
}

/// An entry of a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidRow {
    /// Its place in the table.
    pub index: u16,
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// How its packets travel.
    pub kind: GidKind,
    /// VLAN of its interface.
    pub vlan: Option<u16>,
    /// Ethernet address of its interface.
    pub mac: MacAddr,
    /// Where it comes from.
    pub source: GidSource,
}

/// How many objects of a type an RDMA function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceRow {
    /// The type, by the name that `rdma resource` gives it where it has one.
    pub name: &'static str,
    /// In use now.
    pub used: u32,
    /// The most there can be.
    pub limit: u32,
}

/// What an operator puts into a GID table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GidSetting {
    /// The GID, in network order.
    pub gid: [u8; 16],
    /// How its packets travel.
    pub kind: GidKind,
    /// VLAN of its interface, 1..=4094.
    pub vlan: Option<u16>,
}

/// What kind of uplink a port is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortKind {
    /// A TAP device, created when it does not exist, attached by name when it does.
    Tap {
        /// Name of the network interface, 1..=15 bytes.
        ifname: String,
        /// Its queues, 1..=[`TAP_QUEUES_MAX`]: a flow of the host has one of them.
        queues: u8,
    },
    /// A network device of the host that is there: one end of a veth pair, a physical one. Its frames come and go through
    /// an AF_PACKET socket.
    Packet {
        /// Its name.
        ifname: String,
    },
    /// The same, through AF_XDP sockets: past the kernel's network stack.
    Xdp {
        /// Its name.
        ifname: String,
    },
    /// The owner of the NIC takes its frames to other daemons, and brings theirs (`Nic::add_port_exchange`).
    Mesh {
        /// Where to, for people.
        label: String,
    },
}

impl PortKind {
    /// The kind of this name.
    pub fn new(name: &str, ifname: String) -> Option<PortKind> {
        match name {
            "tap" => Some(PortKind::Tap { ifname, queues: 1 }),
            "packet" => Some(PortKind::Packet { ifname }),
            "xdp" => Some(PortKind::Xdp { ifname }),
            _ => None,
        }
    }

    /// The names of all kinds.
    pub const NAMES: [&str; 3] = ["tap", "packet", "xdp"];

    /// The name for people and scripts.
    pub const fn name(&self) -> &'static str {
        match self {
            PortKind::Tap { .. } => "tap",
            PortKind::Packet { .. } => "packet",
            PortKind::Xdp { .. } => "xdp",
            PortKind::Mesh { .. } => "mesh",
        }
    }

    /// The network interface; empty: there is none.
    pub fn ifname(&self) -> &str {
        match self {
            PortKind::Tap { ifname, .. } | PortKind::Packet { ifname } | PortKind::Xdp { ifname } => ifname,
            PortKind::Mesh { .. } => "",
        }
    }
}

/// What an uplink port is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// Name, as for adapters; unique among adapters and ports.
    pub name: String,
    /// What is behind it.
    pub kind: PortKind,
    /// MTU, see [`MTU_RANGE`]; set on a device that we create.
    pub mtu: u16,
    /// VLAN membership.
    pub vlan: VlanMode,
    /// The CPU whose poll loop serves it; `None`: the first.
    pub data_core: Option<usize>,
    /// Line rate in Mbit/s: what it reports, and the most it sends. None: the device's own, and no limit.
    pub speed_mbps: Option<u32>,
}

/// An uplink port as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortStatus {
    /// What it was made from; `data_core` is filled in.
    pub spec: PortSpec,
    /// Its port of the switch.
    pub port: PortId,
    /// Link state of the device.
    pub up: bool,
    /// Why the link cannot come up: the device is gone, or cannot be opened again.
    pub problem: Option<String>,
    /// How its frames come and go, in words: `xdp copy, native, 1 queue`. Empty while no device is open.
    pub mode: String,
    /// The device as the kernel knows it, while it is there.
    pub device: Option<PortDevice>,
}

/// The device of an uplink port as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PortDevice {
    /// Index of the network interface.
    pub index: u32,
    /// Its MTU; the port's may be lower.
    pub mtu: u32,
    /// Its address.
    pub mac: Option<MacAddr>,
    /// Speed of its link in Mbit/s, if it knows one.
    pub speed_mbps: Option<u32>,
    /// What the kernel and the driver count at it, with their names.
    pub statistics: Vec<(String, u64)>,
}

/// One entry of the switch's address table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdbEntry {
    /// VLAN.
    pub vlan: u16,
    /// Address.
    pub mac: MacAddr,
    /// Name of the adapter or port behind which it is.
    pub owner: String,
    /// Configured (an adapter's own address), not learned.
    pub is_static: bool,
    /// Time since it was last seen as a source; zero for static entries.
    pub age: Duration,
}

/// What a fault rule is made from: which frames, how often, what happens to them. Of those given, all conditions must
/// hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultSpec {
    /// Name, as for adapters; unique among fault rules.
    pub name: String,
    /// Frames that come from this adapter or port.
    pub from: Option<String>,
    /// Frames for this adapter or port.
    pub to: Option<String>,
    /// RoCE packets. The three below imply it.
    pub roce: bool,
    /// Packets for this QP, 24 bits.
    pub destination_qp: Option<u32>,
    /// Packets with one of these BTH opcodes.
    pub opcodes: Option<fault::Opcodes>,
    /// Packets with a PSN in this range.
    pub psn: Option<fault::PsnRange>,
    /// Frames with this EtherType behind their VLAN tags.
    pub ethertype: Option<u16>,
    /// So many matching frames are let go before the rule begins.
    pub skip: u64,
    /// Probability in millionths, up to [`fault::ALWAYS`].
    pub probability: u32,
    /// After so many injections the rule is spent; `None`: never.
    pub count: Option<u64>,
    /// Where its random numbers begin; `None`: the NIC chooses, and says what it chose.
    pub seed: Option<u64>,
    /// What happens to frames that are hit.
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

/// A fault rule as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultStatus {
    /// Its number: never given twice while the NIC runs.
    pub id: u32,
    /// What it was made from; `seed` is filled in.
    pub spec: FaultSpec,
    /// Frames that it was about.
    pub matched: u64,
    /// Frames that it hit.
    pub injected: u64,
    /// When it was made.
    pub created: SystemTime,
}

impl FaultStatus {
    /// Will it never hit a frame again?
    pub fn spent(&self) -> bool {
        self.spec.count.is_some_and(|c| self.injected >= c)
    }
}

/// What a fault rule did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultInjection {
    /// The rule's number.
    pub id: u32,
    /// The rule's name.
    pub name: String,
    /// One frame, or several that are not told one by one.
    pub what: Injected,
}

/// See [`FaultInjection`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injected {
    /// One frame.
    One {
        /// Where it came from.
        from: String,
        /// For whom it was.
        to: String,
        /// What happened to it, such as `delay 1.2 ms`.
        effect: String,
        /// Its bytes.
        len: u32,
        /// BTH opcode, destination QP and PSN of a RoCE packet.
        roce: Option<(u8, u32, u32)>,
    },
    /// So many more frames since the last report.
    More(u64),
}

/// Something that happened, for logs, event streams and watchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicEvent {
    /// When.
    pub time: SystemTime,
    /// Name of the adapter, port or bond; empty when it is about none.
    pub owner: String,
    /// What.
    pub kind: NicEventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NicEventKind {
    /// An adapter was added.
    AdapterAdded,
    /// An adapter was removed.
    AdapterRemoved,
    /// An adapter's attach state changed.
    AdapterState(AttachState),
    /// The attach state of an adapter's RDMA function changed.
    RdmaState(AttachState),
    /// An entry of an adapter's GID table came or went.
    GidChanged {
        /// Its place in the table.
        index: u16,
        /// The GID, in network order.
        gid: [u8; 16],
        /// It came; otherwise it went.
        added: bool,
    },
    /// An adapter claims a GID that another one claims, too.
    GidConflict(GidConflict),
    /// The driver of an RDMA function did something illegal with a queue; what stops is in the text.
    RdmaFault {
        /// What was illegal.
        what: String,
    },
    /// A guest wrote something illegal into a ring; the queue is stopped until the guest resets it.
    RingFault {
        /// vhost-user ring index (2·pair for receive, 2·pair+1 for transmit).
        ring: u16,
        /// What was illegal.
        what: String,
    },
    /// A guest sent a frame from an address that is not its own (reported once per address and attach).
    SpoofedSource {
        /// The address it used.
        source: MacAddr,
    },
    /// A guest claims what its adapter's `allowed_addresses` do not allow (reported once per claim and attach).
    SpoofedAddress(Claim),
    /// A VMM said something the device must refuse.
    ProtocolError {
        /// What, and what to do about it.
        what: String,
    },
    /// The operator switched dropless mode on.
    DroplessEntered,
    /// The operator switched dropless mode off.
    DroplessExited,
    /// A frame waited too long for a receive buffer: it was dropped, and dropless mode is off.
    DroplessTimeout {
        /// The receive queue.
        queue: u16,
    },
    /// The receive path of an adapter or a port stands still, and senders were told to wait for longer than the minor
    /// watermark.
    PauseStormWarning,
    /// For longer than the critical watermark: nobody is told to wait any more, on any priority, until it moves.
    PauseStorm,
    /// It moves again: flow control is as configured.
    PauseStormOver,
    /// Too many frames of a traffic class waited too long at its head: what waits in it is dropped.
    ClassStalled {
        /// The traffic class.
        class: u8,
    },
    /// An uplink port was added.
    PortAdded,
    /// An uplink port was removed.
    PortRemoved,
    /// An uplink port's link changed.
    PortLink {
        /// Up or down.
        up: bool,
    },
    /// A bond was made.
    BondAdded,
    /// A bond was removed; its ports are ports of the switch again.
    BondRemoved,
    /// A bond's link changed: some member may carry frames, or none.
    BondLink {
        /// Up or down.
        up: bool,
    },
    /// A port that is a member of a bond may not carry frames any more: its link went down, or its LACP partner is gone.
    BondMemberLost {
        /// The bond.
        bond: String,
        /// From being noticed until its flows were on other members.
        took: Duration,
        /// Frames that waited in the port's queues and were dropped.
        dropped: u64,
    },
    /// A port that is a member of a bond may carry frames again. Flows come back to it after the bond's failback delay.
    BondMemberBack {
        /// The bond.
        bond: String,
    },
    /// A port that is a member of a bond hears an LACP partner.
    LacpPartnerFound {
        /// The bond.
        bond: String,
        /// The partner's system.
        partner: MacAddr,
    },
    /// A port that is a member of a bond does not hear its LACP partner any more.
    LacpPartnerLost {
        /// The bond.
        bond: String,
    },
    /// Frames suffer from a fault rule from now on.
    FaultAdded {
        /// The rule's number.
        id: u32,
        /// The rule's name.
        name: String,
        /// What it does, in a word.
        action: &'static str,
    },
    /// A fault rule is gone.
    FaultRemoved {
        /// The rule's number.
        id: u32,
        /// The rule's name.
        name: String,
        /// Frames that it hit.
        injected: u64,
    },
    /// A fault rule hit a frame for this adapter or port; about several frames there is no owner.
    Fault(FaultInjection),
}

/// Which frames a capture wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureSpec {
    /// Names of adapters and ports; empty means all.
    pub owners: Vec<String>,
    /// Bytes kept of each frame.
    pub snaplen: u32,
    /// Only frames that were dropped.
    pub drops_only: bool,
}

/// Which way a captured frame went, seen from the adapter's guest or from the port.
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
    /// When.
    pub time: SystemTime,
    /// Adapter or port at which it was seen.
    pub port: PortId,
    /// Which way.
    pub direction: Direction,
    /// Why it was dropped, if it was.
    pub drop: Option<DropReason>,
    /// What fault rules did to it.
    pub comment: Option<String>,
    /// Length on the wire, in bytes (a TSO request: before it is cut).
    pub original_len: u32,
    /// The first bytes.
    pub data: Vec<u8>,
}

/// Why the NIC refused. Every variant names the cause and the cure.
#[derive(Debug, thiserror::Error)]
pub enum NicError {
    /// A field of a request is out of range; nothing was changed.
    #[error("{field}: {problem}")]
    Invalid {
        /// The field's name.
        field: &'static str,
        /// What is wrong and what is allowed.
        problem: String,
    },
    /// The name is taken.
    #[error("{kind} {name} exists already")]
    Exists {
        /// `adapter` or `port`.
        kind: &'static str,
        /// Which.
        name: String,
    },
    /// No such thing.
    #[error("no {kind} is named {name}")]
    NotFound {
        /// `adapter` or `port`.
        kind: &'static str,
        /// Which.
        name: String,
    },
    /// A limit of the NIC is reached.
    #[error("limit reached: {0}")]
    Limit(String),
    /// The operating system refused something; the text names what, and the right that is missing.
    #[error("{what}: {source}")]
    Os {
        /// What was tried, and the cure where one is known.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The NIC is shutting down.
    #[error("the NIC is shutting down")]
    ShuttingDown,
}

impl NicError {
    /// Makes the error of something that was tried and that the operating system refused.
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
