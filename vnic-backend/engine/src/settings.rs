//! Settings of an adapter by the names that WinOF-2 users know: declared once, in [`KEYS`]; the registry, its command
//! line, `.reg` files, documentation and tests read this table.
//!
//! ```text
//!  text or number ── KeyDef::check ──▶ Checked ── stored ──▶ AdapterSettings::effective ──▶ the data path
//! ```

mod table;

use alloc::string::String;
use alloc::vec::Vec;

use vnic_wire::MacAddr;

pub use table::KEYS;

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

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyDef {
    /// As documented, with its `*` where it has one.
    pub name: &'static str,
    /// What its values look like.
    pub kind: Kind,
    /// What an illegal value falls back to where [`Illegal::Default`] says so, and what the documents call the default.
    pub default: Option<u32>,
    /// What acts while nothing is stored. It differs from `default` where a feature must be switched on first.
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
    /// One line for people: what it changes.
    pub help: &'static str,
    /// Which document asks for it, with its section.
    pub source: &'static str,
}

/// Bursts that find no receive buffer (`AsyncReceiveIndicate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Burst {
    /// They are dropped (0).
    #[default]
    Off,
    /// They wait in the reserve; a thread waits for buffers (1).
    Thread,
    /// They wait in the reserve; the poll loop looks for buffers (2).
    Poll,
}

/// How a guest hears of received frames (`RecvCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecvCompletion {
    /// The guest polls; interrupts are a safety net (0).
    Polling,
    /// Interrupts, fewer the more there is to do (1).
    #[default]
    Adaptive,
    /// An interrupt whenever the guest asks for one (4, NDIS poll).
    NdisPoll,
}

/// How a guest hears of sent frames (`SendCompletionMethod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SendCompletion {
    /// The guest polls; interrupts are a safety net (0).
    Polling,
    /// Interrupts (1).
    #[default]
    Interrupt,
    /// An interrupt whenever the guest asks for one (2, NDIS poll).
    NdisPoll,
}

/// Protocol of RoCE packets (`roce_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RoceMode {
    /// RoCEv1 only (0).
    V1,
    /// RoCEv2 (2).
    #[default]
    V2,
    /// No RoCE (4).
    Off,
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
    /// `TxUntagPriorityTag`: untagged frames of the guest get a priority tag (VLAN 0).
    pub tx_untag_priority_tag: bool,
    /// `mac-address-list`: further addresses whose frames the guest gets.
    pub macs: Vec<MacAddr>,
    /// `roce_mode`.
    pub roce_mode: RoceMode,
    /// `*NetworkDirect`: the adapter has an RDMA function.
    pub network_direct: bool,
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
            macs: Vec::new(),
            roce_mode: RoceMode::default(),
            network_direct: true,
        }
    }
}

/// The row of a key, whatever the case of its letters (registry value names do not distinguish them).
pub fn key(name: &str) -> Option<&'static KeyDef> {
    KEYS.iter().find(|k| k.name.eq_ignore_ascii_case(name))
}
