//! Settings of an adapter by the registry keys of WinOF-2, declared in [`KEYS`]; the registry, its command line, `.reg`
//! files, documentation and tests read this table.
//!
//! ```text
//!  text ── KeyDef::parse ──▶ Value ── KeyDef::check ──▶ Checked ── check_together ──▶ stored
//!  stored ── effective (the adapter's own value wins over the driver's) ──▶ AdapterSettings::from_values ──▶ the data path
//! ```

mod apply;
mod check;
mod congestion;
mod define;
mod document;
mod field;
mod qos;
mod table;
mod together;

use alloc::string::String;
use alloc::vec::Vec;

pub use vnic_wire::qos::{
    Guard, HintAction, HintMode, HintSettings, Lifetimes, MarkRules, PriorityRules, SendRules, Trust,
};
use vnic_wire::{MacAddr, vxlan};

pub use apply::{Origin, effective};
pub use check::{Checked, Refusal};
pub use congestion::{Chosen, CongestionKeys, PARAMETERS, Parameter, Point, Points, Preset, parameter};
pub use document::markdown;
pub use field::Field;
pub use qos::{FlowControl, QosKeys};
pub use table::KEYS;
pub use together::{Conflict, check_change, check_together};

use crate::virtio_net::feature;
use crate::virtio_net::steering::{Tunnels, tunnel_type};

/// Path of adapters' values in a Windows registry: each adapter has a subkey, its index in four decimal digits (WinOF-2
/// Ethernet Network, Dropless Mode: Enabling/Disabling the Feature).
pub const CLASS_PATH: &str =
    r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}";
/// Path of the driver's values in a Windows registry (WinOF-2 Ethernet Network, Configuring the RoCE Mode).
pub const DRIVER_PATH: &str = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\mlx5\Parameters\Roce";

/// Type of a key's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number in this range, both ends included.
    Dword {
        /// Least value.
        min: u32,
        /// Greatest value.
        max: u32,
    },
    /// A rate in Mbit/s up to the adapter's line rate.
    Rate {
        /// Least value.
        min: u32,
    },
    /// One of these numbers, each with its word.
    Enum(&'static [(u32, &'static str)]),
    /// 0 or 1.
    Bool,
    /// Ethernet addresses.
    MacList {
        /// Greatest number of addresses.
        max: usize,
    },
    /// Text.
    Text {
        /// Greatest length in bytes.
        max: usize,
    },
}

/// A value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `REG_DWORD`, or a decimal `REG_SZ`.
    Dword(u32),
    /// `REG_SZ`.
    Text(String),
    /// `REG_MULTI_SZ` of addresses.
    Macs(Vec<MacAddr>),
}

/// Type of a value in `.reg` files that are written here. In files that are read, a number may be `REG_DWORD` or `REG_SZ`:
/// the manual requires `REG_SZ` throughout, its tables have `DWORD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegType {
    /// `REG_DWORD`.
    Dword,
    /// `REG_SZ`.
    Sz,
    /// `REG_MULTI_SZ`.
    MultiSz,
}

/// Tool with which WinOF-2 users change a key. Here all keys are in one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The registry: [`CLASS_PATH`], and [`DRIVER_PATH`] for the driver.
    Registry,
    /// `mlx5cmd`; the text is its verb.
    Tool(&'static str),
}

/// Dependence of a key on another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// While this key is one of `values`, the key `other` must be from `min` to `max`.
    While {
        /// Values of this key.
        values: &'static [u32],
        /// Name of the other key.
        other: &'static str,
        /// Least value of the other key.
        min: u32,
        /// Greatest value of the other key.
        max: u32,
    },
    /// This key may be changed only while the key `other` is `value`.
    ChangeOnlyWhile {
        /// Name of the other key.
        other: &'static str,
        /// Required value of the other key.
        value: u32,
    },
}

/// Time at which a stored value begins to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// At once.
    Dynamic,
    /// When the adapter restarts.
    Restart,
}

/// Treatment of an illegal value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Illegal {
    /// The default is stored instead, with a warning, as documented for this key.
    Default,
    /// The value is refused; nothing changes.
    Reject,
    /// A rate above the line rate is refused, and the line rate is stored, as documented for this key.
    LineRate,
}

/// Whether a key changes what the NIC does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// The key is built.
    Yes,
    /// The key is not built: a write is refused as not implemented. The text has what the key waits for.
    No(&'static str),
}

bitflags::bitflags! {
    /// Scopes in which a key may be stored. An adapter's value overrides the driver's.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Scopes: u8 {
        /// All adapters.
        const DRIVER = 1;
        /// One adapter.
        const ADAPTER = 2;
        /// A team of adapters.
        const TEAM = 4;
        /// A port.
        const PORT = 8;
    }
}

/// Row of the table of keys. Rows are equal if their names are.
// Wide: one row of the table of keys, a field for each column.
#[derive(Debug, Clone, Copy)]
pub struct KeyDef {
    /// Name in the documents, with its `*` if it has one.
    pub name: &'static str,
    /// Other spellings of the documents for the same key.
    pub aliases: &'static [&'static str],
    /// Type of the values.
    pub kind: Kind,
    /// Default of the documents, which replaces an illegal value with [`Illegal::Default`].
    pub default: Option<u32>,
    /// Value that acts while nothing is stored. It differs from `default` if the feature must be enabled first. `None` if
    /// nothing acts: the key is not built, it is not a number, or another key counts then.
    pub unset: Option<u32>,
    /// Unit of a number; may be empty.
    pub unit: &'static str,
    /// Scopes in which the key may be stored.
    pub scopes: Scopes,
    /// Time at which a stored value begins to act.
    pub apply: Apply,
    /// Treatment of an illegal value.
    pub illegal: Illegal,
    /// Whether the key changes what the NIC does.
    pub built: Built,
    /// Field of the value; `None`: the key is not built.
    pub field: Option<Field>,
    /// Dependences on other keys.
    pub rules: &'static [Rule],
    /// Type in `.reg` files that are written here.
    pub reg: RegType,
    /// Tool with which WinOF-2 users change the key.
    pub place: Place,
    /// Effect of the key in one line.
    pub help: &'static str,
    /// Decisions where documents are silent or contradict each other, and other remarks; may be empty.
    pub note: &'static str,
    /// Document that has the key, with its section.
    pub source: &'static str,
}

impl PartialEq for KeyDef {
    fn eq(&self, other: &KeyDef) -> bool {
        self.name == other.name
    }
}

impl Eq for KeyDef {}

field::words! {
    Burst { Off, Thread, Poll }
    RecvCompletion { Polling, Adaptive, NdisPoll }
    SendCompletion { Polling, Interrupt, NdisPoll }
    RoceMode { V1, V2, Off }
    FlowControl { Off, Transmit, Receive, Both, Negotiated }
    Trust { Port, Pcp, Dscp, Both }
    HintAction { Off, Drop, Mark }
    HintMode { Aggressive, Dynamic }
}

/// Treatment of bursts that find no receive buffer (`AsyncReceiveIndicate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Burst {
    /// Frames are dropped.
    #[default]
    Off = 0,
    /// Frames wait in the reserve; a thread waits for buffers.
    Thread = 1,
    /// Frames wait in the reserve; the poll loop looks for buffers.
    Poll = 2,
}

/// Notification of a guest about received frames (`RecvCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecvCompletion {
    /// The guest polls; interrupts are a safety net.
    Polling = 0,
    /// Interrupts, which become fewer under load.
    #[default]
    Adaptive = 1,
    /// An interrupt each time that the guest asks for one (NDIS poll).
    NdisPoll = 4,
}

/// Notification of a guest about sent frames (`SendCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendCompletion {
    /// The guest polls; interrupts are a safety net.
    Polling = 0,
    /// Interrupts.
    #[default]
    Interrupt = 1,
    /// An interrupt each time that the guest asks for one (NDIS poll).
    NdisPoll = 2,
}

/// Protocol of RoCE packets (`roce_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoceMode {
    /// RoCEv1 only.
    V1 = 0,
    /// RoCEv2.
    #[default]
    V2 = 2,
    /// No RoCE.
    Off = 4,
}

/// Dropless mode as the operator set it last (`DelayDropTimeout`). A frame that waits too long ends the mode; another
/// write of the key, even with the same value, begins it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelayDrop {
    /// Greatest time for which a frame waits for a receive buffer, in 100 us, at most
    /// [`TIMEOUT_MAX`](crate::dropless::TIMEOUT_MAX); 0: the mode is off.
    pub timeout: u8,
    /// Number of the operator's write: another number is another write. 0: none, the value is the one that acts while nothing is stored.
    pub act: u64,
}

/// Settings that act on an adapter. The default is what acts while nothing is stored.
// Wide: one field for each key of an adapter that acts in the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSettings {
    /// `AsyncReceiveIndicate`.
    pub burst: Burst,
    /// `RfdReservationFactor`: greatest number of packets that wait, over all receive queues.
    pub reserve: u32,
    /// `RecvCompletionMethod`.
    pub recv_completion: RecvCompletion,
    /// `SendCompletionMethod`.
    pub send_completion: SendCompletion,
    /// Whether a thread beside the data core interrupts the guest.
    pub threaded: Threaded,
    /// `TxMaxPostSendsCoalescing`: greatest number of sent frames that are completed together.
    pub tx_coalescing: u16,
    /// `VlanID`: VLAN of the tag that all frames of the guest get; 0: no tag.
    pub vlan_id: u16,
    /// `VlanPrio`: priority in the tag of `VlanID`.
    pub vlan_prio: u8,
    /// `TxUntagPriorityTag`: whether frames with a priority-only tag leave without it.
    pub tx_untag_priority_tag: bool,
    /// `DelayDropTimeout`.
    pub delay_drop: DelayDrop,
    /// `mac-address-list`: further addresses whose frames the guest gets.
    pub macs: Vec<MacAddr>,
    /// `roce_mode`.
    pub roce_mode: RoceMode,
    /// `*NetworkDirect`: whether the adapter has an RDMA function.
    pub network_direct: bool,
    /// Whether connections have enhanced establishment (`EceSupportEnabled`).
    pub ece: bool,
    /// `EnableGpuDirect`: whether memory of drivers (dma-bufs) may be registered.
    pub gpu_direct: bool,
    /// Offloads that the guest's driver is offered.
    pub offloads: OffloadKeys,
    /// `*PtpHardwareTimestamp`: whether the time for which the NIC holds PTP messages from and to the adapter is added to them.
    pub ptp: bool,
    /// `*WakeOnMagicPacket` and NV parameter `WOL_MAGIC_EN`: whether magic packets for a guest that does not run are of interest.
    pub wake_on_magic: bool,
    /// `*WakeOnPattern`: whether patterns are.
    pub wake_on_pattern: bool,
    /// `DcbxMode`: 2: the driver lets the device run data center bridging exchange.
    pub dcbx: Option<u8>,
    /// Quality of service and flow control.
    pub qos: QosKeys,
    /// Congestion control.
    pub congestion: CongestionKeys,
}

/// Whether a thread beside the data core interrupts the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Threaded {
    /// `ThreadedDpcEnable`: for received frames.
    pub receive: bool,
    /// `TxThreadedDpcEnable`: for sent frames.
    pub send: bool,
}

/// Keys of offloads. Checksums: 1 when sent, 2 when received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffloadKeys {
    /// `*TCPChecksumOffloadIPv4`.
    pub tcp4: u8,
    /// `*TCPChecksumOffloadIPv6`.
    pub tcp6: u8,
    /// `*UDPChecksumOffloadIPv4`.
    pub udp4: u8,
    /// `*UDPChecksumOffloadIPv6`.
    pub udp6: u8,
    /// `*LsoV2IPv4`.
    pub lso4: bool,
    /// `*LsoV2IPv6`.
    pub lso6: bool,
    /// `*UsoIPv4`.
    pub uso4: bool,
    /// `*UsoIPv6`.
    pub uso6: bool,
    /// `*RscIPv4`.
    pub rsc4: bool,
    /// `*RscIPv6`.
    pub rsc6: bool,
    /// `*RSS`.
    pub rss: bool,
    /// `*NumRSSQueues`.
    pub rss_queues: u8,
    /// Keys of tunnels.
    pub tunnels: TunnelKeys,
}

/// Keys of offloads for what tunnels carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunnelKeys {
    /// `*EncapsulatedPacketTaskOffload`: of any tunnel.
    pub any: bool,
    /// `*EncapsulatedPacketTaskOffloadVxlan`.
    pub vxlan: bool,
    /// `*EncapsulatedPacketTaskOffloadNvgre`.
    pub nvgre: bool,
    /// `*VxlanUDPPortNumber`.
    pub vxlan_port: u16,
}

impl Default for TunnelKeys {
    fn default() -> TunnelKeys {
        TunnelKeys {
            any: true,
            vxlan: true,
            nvgre: true,
            vxlan_port: vxlan::UDP_PORT,
        }
    }
}

impl TunnelKeys {
    /// Tunnels whose inner packets may decide about queues.
    pub fn tunnels(&self) -> Tunnels {
        let keys = [
            (self.any, tunnel_type::ALL),
            (self.vxlan, tunnel_type::VXLAN),
            (self.nvgre, tunnel_type::NVGRE),
        ];
        let off = keys.iter().filter(|(on, _)| !on);
        Tunnels {
            types: off.fold(tunnel_type::ALL, |types, (_, of_key)| types & !of_key),
            vxlan_port: self.vxlan_port,
        }
    }
}

impl Default for OffloadKeys {
    fn default() -> OffloadKeys {
        OffloadKeys {
            tcp4: 3,
            tcp6: 3,
            udp4: 3,
            udp6: 3,
            lso4: true,
            lso6: true,
            uso4: true,
            uso6: true,
            rsc4: true,
            rsc6: true,
            rss: true,
            rss_queues: 16,
            tunnels: TunnelKeys::default(),
        }
    }
}

impl OffloadKeys {
    /// Virtio features that the driver is not offered.
    pub fn withheld(&self) -> u64 {
        let [sent, received] = [1, 2].map(|way| self.tcp4 & self.tcp6 & self.udp4 & self.udp6 & way != 0);
        let segments = feature::HOST_TSO4 | feature::HOST_TSO6 | feature::HOST_ECN | feature::HOST_USO;
        let joined = feature::GUEST_TSO4
            | feature::GUEST_TSO6
            | feature::GUEST_ECN
            | feature::GUEST_USO4
            | feature::GUEST_USO6;
        let keys = [
            (sent, feature::CSUM | segments | feature::RSC_EXT),
            (received, feature::GUEST_CSUM | feature::RSC_EXT | joined),
            (self.lso4, feature::HOST_TSO4),
            (self.lso6, feature::HOST_TSO6),
            // RSC_EXT is only for drivers that segment (virtio 1.3 section 5.1.3.1).
            (self.lso4 || self.lso6, feature::HOST_ECN | feature::RSC_EXT),
            (self.uso4 && self.uso6, feature::HOST_USO),
            (self.rsc4, feature::GUEST_TSO4),
            (self.rsc6, feature::GUEST_TSO6),
            (self.rsc4 || self.rsc6, feature::GUEST_ECN | feature::RSC_EXT),
            (self.rss, feature::RSS),
            (self.tunnels.any, feature::HASH_TUNNEL),
        ];
        let off = keys.iter().filter(|(on, _)| !on);
        off.fold(0, |features, (_, of_key)| features | of_key)
    }
}

impl Default for AdapterSettings {
    fn default() -> Self {
        AdapterSettings {
            burst: Burst::default(),
            reserve: 150,
            recv_completion: RecvCompletion::default(),
            send_completion: SendCompletion::default(),
            threaded: Threaded::default(),
            tx_coalescing: 32,
            vlan_id: 0,
            vlan_prio: 0,
            tx_untag_priority_tag: false,
            ptp: false,
            dcbx: None,
            wake_on_magic: true,
            wake_on_pattern: true,
            delay_drop: DelayDrop::default(),
            macs: Vec::new(),
            roce_mode: RoceMode::default(),
            network_direct: true,
            ece: true,
            gpu_direct: false,
            offloads: OffloadKeys::default(),
            qos: QosKeys::default(),
            congestion: CongestionKeys::default(),
        }
    }
}

/// Row of a key by its name or one of its other spellings; case does not matter, as in registry value names.
pub fn key(name: &str) -> Option<&'static KeyDef> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    // The exact name is tried first, because it is the usual case: settings of all adapters are read by name at each change.
    let exact = KEYS.iter().find(|k| k.name == name);
    exact.or_else(|| KEYS.iter().find(|k| is(&k.name) || k.aliases.iter().any(is)))
}
