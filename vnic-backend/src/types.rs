//! What the control plane says to the data path and hears from it.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

pub use vnic_engine::counters::{self, CounterDef, Sample};
pub use vnic_engine::virtio_net::feature;
pub use vnic_fabric::switch::{PortId, SwitchConfig};
pub use vnic_fabric::{DropReason, VlanMode};
pub use vnic_wire::MacAddr;

/// Settings of the whole NIC, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicConfig {
    /// One poll loop is pinned to each of these CPUs; at least one, no duplicates.
    pub data_cores: Vec<usize>,
    /// How long a poll loop without work keeps spinning before it sleeps until a kick.
    pub idle_spin: Duration,
    /// Settings of the embedded switch.
    pub switch: SwitchConfig,
}

/// The lowest and highest MTU of adapters and ports, in bytes of Ethernet payload.
pub const MTU_RANGE: std::ops::RangeInclusive<u16> = 68..=9216;
/// Queue pairs an adapter can have.
pub const QUEUE_PAIRS_RANGE: std::ops::RangeInclusive<u16> = 1..=16;
/// Adapters a NIC can have, and ports a NIC can have.
pub const ADAPTERS_MAX: usize = 256;
/// Uplink ports a NIC can have.
pub const PORTS_MAX: usize = 8;

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
    /// The CPU whose poll loop serves it; one of `data_cores`. `None`: the one with the fewest adapters.
    pub data_core: Option<usize>,
    /// The vhost-user socket of the Ethernet function.
    pub eth_socket: PathBuf,
    /// Who listens on it.
    pub socket_role: SocketRole,
}

/// How far an adapter's guest has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachState {
    /// Nobody is connected to the socket.
    Detached,
    /// A VMM is connected; no driver runs.
    Attached,
    /// A driver runs: at least one queue pair is enabled. The link is up.
    Up,
    /// A bug of ours took the adapter down; `restart` brings it back.
    Failed,
}

impl AttachState {
    /// The name for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            AttachState::Detached => "detached",
            AttachState::Attached => "attached",
            AttachState::Up => "up",
            AttachState::Failed => "failed",
        }
    }
}

/// An adapter as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterStatus {
    /// What it was made from; `data_core` is filled in.
    pub spec: AdapterSpec,
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
}

/// What kind of uplink a port is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortKind {
    /// A TAP device, created when it does not exist, attached by name when it does.
    Tap {
        /// Name of the network interface, 1..=15 bytes.
        ifname: String,
    },
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

/// Something that happened, for logs, event streams and watchers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NicEvent {
    /// When.
    pub time: SystemTime,
    /// Name of the adapter or port.
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
    /// A VMM said something the device must refuse.
    ProtocolError {
        /// What, and what to do about it.
        what: String,
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
