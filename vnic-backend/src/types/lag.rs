//! Ports that are one: bonds, which the control plane calls teams.

use std::time::{Duration, SystemTime};

pub use vnic_fabric::lag::lacp::{Mux as LacpMux, PortView as LacpView, Receive as LacpReceive};
pub use vnic_fabric::lag::team::{NewMember, NewTeam, TeamMember, TeamType};
pub use vnic_fabric::lag::view::{AffinityView, MemberView};
pub use vnic_fabric::lag::{
    Affinity, BondSettings, Evenness, Flow, LagError, MEMBERS_MAX, Member, Mode, Packet, Policy, Ports, Team,
    Teams, View,
};

use super::{MacAddr, NicError, PortId, VlanMode};

/// What a bond is made from. The switch sees it as one port; its members are none while they belong to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondSpec {
    /// Name, as for adapters; unique among adapters, ports and bonds.
    pub name: String,
    /// Names of the ports, 1 to 32, in the order of [`Member`]. A port is in one bond at most; all are served by the same
    /// data core.
    pub members: Vec<String>,
    /// How members share the work. `lacp` in it is set if and only if `lacp` below is.
    pub settings: BondSettings,
    /// Link aggregation control; none: static.
    pub lacp: Option<LacpSpec>,
    /// The address with which it speaks for itself (system of LACP); none: that of the device of its first member. Two ends
    /// of one link must have different ones.
    pub mac: Option<MacAddr>,
    /// VLAN 1..=4094 and priority 0..=7 that all it sends is tagged with, and that all it receives must have and loses.
    pub tag: Option<(u16, u8)>,
    /// VLAN membership of its port of the switch.
    pub vlan: VlanMode,
    /// What goes by a member of its own.
    pub affinities: Vec<(Affinity, Member)>,
}

/// How a bond speaks LACP (IEEE 802.1AX-2014 clause 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LacpSpec {
    /// It speaks without being spoken to; otherwise passive.
    pub active: bool,
    /// It wants to hear every second, not every 30 s: a silent partner is noticed after 3 s, not 90.
    pub short_timeout: bool,
    /// Priority of the system, the lower the stronger.
    pub system_priority: u16,
    /// Key of its ports, 1 or more.
    pub key: u16,
}

impl Default for LacpSpec {
    /// Active, fast.
    fn default() -> LacpSpec {
        LacpSpec {
            active: true,
            short_timeout: true,
            system_priority: 0x8000,
            key: 1,
        }
    }
}

/// A bond as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct BondStatus {
    /// What it was made from.
    pub spec: BondSpec,
    /// Its port of the switch.
    pub port: PortId,
    /// Some member may carry frames.
    pub up: bool,
    /// Members, in their order.
    pub members: Vec<BondMember>,
    /// How often a member was lost since the bond has its members.
    pub failovers: u64,
    /// The last time.
    pub last_failover: Option<Failover>,
}

/// A member of a bond.
#[derive(Debug, Clone, PartialEq)]
pub struct BondMember {
    /// The port.
    pub port: String,
    /// Its link is up.
    pub up: bool,
    /// What LACP knows, where it is spoken.
    pub lacp: Option<LacpView>,
}

/// A member was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// The port.
    pub port: String,
    /// When that was noticed.
    pub at: SystemTime,
    /// From being noticed until its flows were on other members.
    pub took: Duration,
    /// Frames that waited in the lost port's queues and were dropped.
    pub dropped: u64,
}

impl From<LagError> for NicError {
    fn from(error: LagError) -> NicError {
        NicError::Invalid {
            field: error.field,
            problem: error.problem,
        }
    }
}
