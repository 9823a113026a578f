//! Link aggregation: bonds, which the control plane calls teams.

use std::time::{Duration, SystemTime};

pub use vnic_fabric::lag::lacp::{Mux as LacpMux, PortView as LacpView, Receive as LacpReceive};
pub use vnic_fabric::lag::team::{NewMember, NewTeam, TeamMember, TeamType};
pub use vnic_fabric::lag::view::{AffinityView, MemberView};
pub use vnic_fabric::lag::{
    Affinity, BondSettings, Evenness, Flow, LagError, MEMBERS_MAX, Member, Mode, Packet, Policy, Ports, Team,
    Teams, View,
};

use super::{MacAddr, NicError, PortId, VlanMode};

/// Specification of a bond. The switch has one port for it, and none for its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BondSpec {
    /// Name, as for adapters; unique among adapters, ports and bonds.
    pub name: String,
    /// Names of the ports, 1 to 32, in the order of [`Member`]. A port is in one bond at most; the same data core serves all.
    pub members: Vec<String>,
    /// How members share the load. The mode in it has `lacp` if and only if [`BondSpec::lacp`] is set.
    pub settings: BondSettings,
    /// LACP; `None`: static aggregation.
    pub lacp: Option<LacpSpec>,
    /// Source address of the bond's own frames (system of LACP); `None`: that of the device of its first member. Two ends of
    /// a link must have different ones.
    pub mac: Option<MacAddr>,
    /// VLAN 1..=4094 and priority 0..=7: sent frames get this tag; received frames must have the VLAN and lose the tag.
    pub tag: Option<(u16, u8)>,
    /// VLAN membership of the bond's port of the switch.
    pub vlan: VlanMode,
    /// Queue pairs and flows that are assigned to a member.
    pub affinities: Vec<(Affinity, Member)>,
}

impl BondSpec {
    /// A static bond of these ports in all VLANs.
    pub fn new(name: impl Into<String>, members: Vec<String>) -> BondSpec {
        BondSpec {
            name: name.into(),
            members,
            settings: BondSettings::default(),
            lacp: None,
            mac: None,
            tag: None,
            vlan: VlanMode::default(),
            affinities: Vec::new(),
        }
    }
}

/// LACP settings of a bond (IEEE 802.1AX-2014 clause 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LacpSpec {
    /// Whether the bond sends LACP frames without a partner's (active); otherwise it is passive.
    pub active: bool,
    /// Whether partners are asked for a frame every second, not every 30 s: a silent one is noticed after 3 s, not 90.
    pub short_timeout: bool,
    /// Priority of the system; the lower value is the higher priority.
    pub system_priority: u16,
    /// Key of the ports, 1 or more.
    pub key: u16,
}

impl Default for LacpSpec {
    /// Active, with the short timeout.
    fn default() -> LacpSpec {
        LacpSpec {
            active: true,
            short_timeout: true,
            system_priority: 0x8000,
            key: 1,
        }
    }
}

/// Status of a bond.
#[derive(Debug, Clone, PartialEq)]
pub struct BondStatus {
    /// Specification.
    pub spec: BondSpec,
    /// Port of the bond at the switch.
    pub port: PortId,
    /// Whether any member may carry frames.
    pub up: bool,
    /// Members, in the order of [`Member`].
    pub members: Vec<BondMember>,
    /// Number of lost members since the bond has its current members.
    pub failovers: u64,
    /// The last loss of a member.
    pub last_failover: Option<Failover>,
}

/// A member of a bond.
#[derive(Debug, Clone, PartialEq)]
pub struct BondMember {
    /// Name of the port.
    pub port: String,
    /// Whether the port's link is up.
    pub up: bool,
    /// State of LACP, if it is configured.
    pub lacp: Option<LacpView>,
}

/// The loss of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// Name of the port.
    pub port: String,
    /// Time at which the loss was noticed.
    pub at: SystemTime,
    /// Time from the notice of the loss until the port's flows were on other members.
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
