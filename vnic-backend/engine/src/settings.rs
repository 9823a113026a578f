//! Settings of an adapter by the names that WinOF-2 users know: declared once, in [`KEYS`]; the registry, its command
//! line, `.reg` files, documentation and tests read this table.
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

use vnic_wire::MacAddr;
pub use vnic_wire::qos::{
    Guard, HintAction, HintMode, HintSettings, Lifetimes, MarkRules, PriorityRules, SendRules, Trust,
};

pub use apply::{Origin, effective};
pub use check::{Checked, Refusal};
pub use congestion::{
    Chosen, CongestionKeys, PARAMETERS, Parameter, Point, Points, Preset, is_rate, parameter,
};
pub use document::markdown;
pub use field::Field;
pub use qos::{FlowControl, QosKeys};
pub use table::KEYS;
pub use together::{Conflict, check_change, check_together};

/// Where the values of one adapter are in a Windows registry: below a subkey that is the adapter's index, four decimal
/// digits (WinOF-2 Ethernet Network, Dropless Mode: Enabling/Disabling the Feature).
pub const CLASS_PATH: &str =
    r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Control\Class\{4d36e972-e325-11ce-bfc1-08002be10318}";
/// Where the values of the whole driver are in a Windows registry (WinOF-2 Ethernet Network, Configuring the RoCE Mode).
pub const DRIVER_PATH: &str = r"HKEY_LOCAL_MACHINE\SYSTEM\CurrentControlSet\Services\mlx5\Parameters\Roce";

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number in this range, both ends included.
    Dword {
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A number up to the adapter's line rate, in Mbit/s.
    Rate {
        /// The least.
        min: u32,
    },
    /// One of these numbers, each with the word for it.
    Enum(&'static [(u32, &'static str)]),
    /// 0 or 1.
    Bool,
    /// Ethernet addresses, at most this many.
    MacList {
        /// The most.
        max: usize,
    },
    /// Text of at most this many bytes.
    Text {
        /// The most.
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

/// The type a value has in a `.reg` file that we write. When reading, a number is taken as `REG_DWORD` and as `REG_SZ`
/// alike: the manual asks for `REG_SZ` throughout, its tables say `DWORD`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegType {
    /// `REG_DWORD`.
    Dword,
    /// `REG_SZ`.
    Sz,
    /// `REG_MULTI_SZ`.
    MultiSz,
}

/// What WinOF-2 users change it with. Here all of them are values of one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The registry: [`CLASS_PATH`], and [`DRIVER_PATH`] for the driver.
    Registry,
    /// `mlx5cmd`; the text is its verb.
    Tool(&'static str),
}

/// What a key depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// While this key is one of `values`, the key `other` must be from `min` to `max`.
    While {
        /// Values of this key.
        values: &'static [u32],
        /// Name of the other key.
        other: &'static str,
        /// Its least value.
        min: u32,
        /// Its greatest value.
        max: u32,
    },
    /// This key may be changed only while the key `other` is `value`.
    ChangeOnlyWhile {
        /// Name of the other key.
        other: &'static str,
        /// The value it must have.
        value: u32,
    },
}

/// When a stored value begins to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// At once.
    Dynamic,
    /// When the adapter restarts.
    Restart,
}

/// What becomes of a value that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Illegal {
    /// The default is stored instead, and the answer says so: documented so for this key.
    Default,
    /// It is refused with what is allowed; nothing changes.
    Reject,
    /// A rate above the line rate is refused, and the line rate is stored: documented so for this key.
    LineRate,
}

/// Does a key change what the NIC does?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Built {
    /// It does.
    Yes,
    /// Not in this version: writing it is answered with `not implemented`. The text says what it waits for.
    No(&'static str),
}

bitflags::bitflags! {
    /// Where a key may be stored. What is stored for an adapter wins over what is stored for the driver.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Scopes: u8 {
        /// For all adapters.
        const DRIVER = 1;
        /// For one adapter.
        const ADAPTER = 2;
        /// For a team of adapters.
        const TEAM = 4;
        /// For a port.
        const PORT = 8;
    }
}

/// One row of the table. Rows are the same if their names are.
// Wide: one row of the table of keys, a field for each column.
#[derive(Debug, Clone, Copy)]
pub struct KeyDef {
    /// As documented, with its `*` where it has one.
    pub name: &'static str,
    /// Other spellings that documents use for the same key.
    pub aliases: &'static [&'static str],
    /// What its values look like.
    pub kind: Kind,
    /// What an illegal value falls back to where [`Illegal::Default`] says so, and what the documents call the default.
    pub default: Option<u32>,
    /// What acts while nothing is stored. It differs from `default` where a feature must be switched on first. None where
    /// nothing acts: the key is not built, it is not a number, or another key counts then.
    pub unset: Option<u32>,
    /// Unit of a number, or empty.
    pub unit: &'static str,
    /// Where it may be stored.
    pub scopes: Scopes,
    /// When it begins to act.
    pub apply: Apply,
    /// What becomes of an illegal value.
    pub illegal: Illegal,
    /// Does it change anything?
    pub built: Built,
    /// Where its value goes, if it is built.
    pub field: Option<Field>,
    /// What it depends on.
    pub rules: &'static [Rule],
    /// Its type in `.reg` files that we write.
    pub reg: RegType,
    /// What WinOF-2 users change it with.
    pub place: Place,
    /// One line for people: what it changes.
    pub help: &'static str,
    /// What else one must know: what was decided where documents are silent or contradict each other. May be empty.
    pub note: &'static str,
    /// Which document asks for it, with its section.
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

/// Bursts that find no receive buffer (`AsyncReceiveIndicate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Burst {
    /// They are dropped.
    #[default]
    Off = 0,
    /// They wait in the reserve; a thread waits for buffers.
    Thread = 1,
    /// They wait in the reserve; the poll loop looks for buffers.
    Poll = 2,
}

/// How a guest hears of received frames (`RecvCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecvCompletion {
    /// The guest polls; interrupts are a safety net.
    Polling = 0,
    /// Interrupts, fewer the more there is to do.
    #[default]
    Adaptive = 1,
    /// An interrupt whenever the guest asks for one (NDIS poll).
    NdisPoll = 4,
}

/// How a guest hears of sent frames (`SendCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendCompletion {
    /// The guest polls; interrupts are a safety net.
    Polling = 0,
    /// Interrupts.
    #[default]
    Interrupt = 1,
    /// An interrupt whenever the guest asks for one (NDIS poll).
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

/// Dropless mode, as the operator set it last (`DelayDropTimeout`). A frame that waits too long ends the mode; setting it
/// again, to the same time too, begins it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DelayDrop {
    /// How long a frame may wait for a receive buffer, in 100 us, at most [`TIMEOUT_MAX`](crate::dropless::TIMEOUT_MAX);
    /// 0: the mode is off.
    pub timeout: u8,
    /// Which act of the operator's this was: another number is another act. 0: none, and it is what acts while nothing is set.
    pub act: u64,
}

/// What acts on an adapter. The default is what acts while nothing is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSettings {
    /// `AsyncReceiveIndicate`.
    pub burst: Burst,
    /// `RfdReservationFactor`: packets that wait at most, all receive queues together.
    pub reserve: u32,
    /// `RecvCompletionMethod`.
    pub recv_completion: RecvCompletion,
    /// `SendCompletionMethod`.
    pub send_completion: SendCompletion,
    /// `TxMaxPostSendsCoalescing`: sent frames that are completed together at most.
    pub tx_coalescing: u16,
    /// `VlanID`: VLAN with which all frames of the guest are tagged; 0: none.
    pub vlan_id: u16,
    /// `VlanPrio`: priority in these tags.
    pub vlan_prio: u8,
    /// `TxUntagPriorityTag`: frames that have a priority but no VLAN leave without a tag.
    pub tx_untag_priority_tag: bool,
    /// `DelayDropTimeout`.
    pub delay_drop: DelayDrop,
    /// `mac-address-list`: further addresses whose frames the guest gets.
    pub macs: Vec<MacAddr>,
    /// `roce_mode`.
    pub roce_mode: RoceMode,
    /// `*NetworkDirect`: the adapter has an RDMA function.
    pub network_direct: bool,
    /// Quality of service and flow control.
    pub qos: QosKeys,
    /// Congestion control.
    pub congestion: CongestionKeys,
}

impl Default for AdapterSettings {
    fn default() -> Self {
        AdapterSettings {
            burst: Burst::default(),
            reserve: 150,
            recv_completion: RecvCompletion::default(),
            send_completion: SendCompletion::default(),
            tx_coalescing: 32,
            vlan_id: 0,
            vlan_prio: 0,
            tx_untag_priority_tag: false,
            delay_drop: DelayDrop::default(),
            macs: Vec::new(),
            roce_mode: RoceMode::default(),
            network_direct: true,
            qos: QosKeys::default(),
            congestion: CongestionKeys::default(),
        }
    }
}

/// The row of a key by its name or one of its other spellings, whatever the case of its letters (registry value names do
/// not distinguish them).
pub fn key(name: &str) -> Option<&'static KeyDef> {
    let is = |known: &&str| known.eq_ignore_ascii_case(name);
    // As the table writes it, most of the time: settings of all adapters are read by name at each change.
    let exact = KEYS.iter().find(|k| k.name == name);
    exact.or_else(|| KEYS.iter().find(|k| is(&k.name) || k.aliases.iter().any(is)))
}
