//! Link layer discovery of uplink ports.

use std::time::SystemTime;

pub use vnic_fabric::lldp::{Counters as LldpCounters, Lost as LldpLost};
pub use vnic_wire::dcbx;
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
    /// What a station says of priorities that contradicts the port.
    pub problem: Option<String>,
}
