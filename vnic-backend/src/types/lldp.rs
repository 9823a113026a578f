//! Link layer discovery of uplink ports.

use std::time::SystemTime;

use super::{DcbxMode, DcbxStatus};

pub use vnic_fabric::lldp::{Counters as LldpCounters, Lost as LldpLost};
pub use vnic_wire::lldp::capability as lldp_capability;

vnic_wire::named! {
    /// Whether a port speaks and listens (IEEE 802.1AB-2016 clause 9.2.5.1, adminStatus).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum LldpMode {
        /// Neither.
        #[default]
        Disabled => "disabled",
        /// It speaks.
        TxOnly => "tx-only",
        /// It listens.
        RxOnly => "rx-only",
        /// Both.
        RxAndTx => "rx-and-tx",
    }
}

impl LldpMode {
    /// The mode of this name.
    pub fn of(name: &str) -> Option<LldpMode> {
        LldpMode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Whether the port speaks.
    pub fn transmits(self) -> bool {
        matches!(self, LldpMode::TxOnly | LldpMode::RxAndTx)
    }

    /// Whether the port listens.
    pub fn receives(self) -> bool {
        matches!(self, LldpMode::RxOnly | LldpMode::RxAndTx)
    }
}

/// How much a port tells or reads by link layer discovery (NV parameters `LLDP_NB_TX_MODE` and `LLDP_NB_RX_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LldpExtent {
    /// Nothing.
    #[default]
    Off,
    /// What a message must have.
    Mandatory,
    /// All.
    All,
}

/// What the device's NV configuration wants of a port whose own link layer discovery is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortPreset {
    /// What it reads.
    pub receive: LldpExtent,
    /// What it tells.
    pub transmit: LldpExtent,
    /// Version of data center bridging exchange. That acts while both extents are [`LldpExtent::All`], and the key `DcbxMode` of an
    /// adapter lets it.
    pub dcbx: DcbxMode,
    /// Whether it takes what the peer has.
    pub willing: bool,
}

impl PortPreset {
    /// Whether the port speaks and listens.
    pub fn mode(self) -> LldpMode {
        match (self.transmit != LldpExtent::Off, self.receive != LldpExtent::Off) {
            (false, false) => LldpMode::Disabled,
            (true, false) => LldpMode::TxOnly,
            (false, true) => LldpMode::RxOnly,
            (true, true) => LldpMode::RxAndTx,
        }
    }
}

/// Ports that have a preset: the first ones by name.
pub const PRESETS: usize = 2;

/// A station that a port hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LldpNeighbour {
    /// What it says of itself.
    pub said: vnic_fabric::lldp::Neighbour,
    /// When it was heard first.
    pub since: SystemTime,
    /// When its last message ceases to hold.
    pub until: SystemTime,
}

/// Link layer discovery of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LldpStatus {
    /// Stations that it hears.
    pub neighbours: Vec<LldpNeighbour>,
    /// Its counters.
    pub counters: LldpCounters,
    /// Data center bridging exchange, while it acts.
    pub dcbx: Option<DcbxStatus>,
    /// What a station says of priorities that contradicts the port.
    pub problem: Option<String>,
}
