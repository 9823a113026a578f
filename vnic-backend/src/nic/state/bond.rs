//! A bond in the control plane.

use vnic_fabric::Instant;
use vnic_fabric::lag::{Bond, Member};

use super::speaker::Speaker;
use crate::types::*;

/// A bond.
pub struct BondEntry {
    /// Specification of the bond.
    pub spec: BondSpec,
    /// Port of the bond at the switch.
    pub id: PortId,
    /// Index of the core that serves the bond and its members.
    pub core: usize,
    /// Members, in the order of [`Member`].
    pub members: Vec<MemberEntry>,
    /// Whether any member may carry frames.
    pub up: bool,
    /// Number of members that were lost while they carried frames.
    pub failovers: u64,
    /// The last loss of a member.
    pub last_failover: Option<Failover>,
    /// LACP of the bond, if it is configured.
    pub lacp: Option<Speaker>,
}

/// A member of a bond.
#[derive(Clone)]
pub struct MemberEntry {
    /// The port.
    pub id: PortId,
    /// Whether the link is up.
    pub up: bool,
    /// Whether LACP lets the member send and receive.
    pub aggregated: bool,
    /// Whether the member may carry frames, as last reported.
    pub usable: bool,
}

impl BondEntry {
    /// Ports of the members.
    pub fn ids(&self) -> impl Iterator<Item = PortId> {
        self.members.iter().map(|m| m.id)
    }

    /// Status of the bond.
    pub fn status(&self) -> BondStatus {
        let members = self.spec.members.iter().zip(&self.members);
        let member = |(i, (port, m)): (u8, (&String, &MemberEntry))| BondMember {
            port: port.clone(),
            up: m.up,
            lacp: self.lacp.as_ref().and_then(|s| s.view(Member(i))),
        };
        BondStatus {
            spec: self.spec.clone(),
            port: self.id,
            up: self.up,
            members: (0..).zip(members).map(member).collect(),
            failovers: self.failovers,
            last_failover: self.last_failover.clone(),
        }
    }

    /// Copies the state of LACP to a new state machine of the data path.
    pub fn inherit(&mut self, bond: &mut Bond) {
        let Some(speaker) = &self.lacp else { return };
        for (i, m) in (0..).map(Member).zip(&mut self.members) {
            m.aggregated = speaker.is_aggregated(i);
            bond.set_lacp(Instant(0), i, m.aggregated, m.aggregated);
        }
    }

    /// Updates which members may carry frames: their link is up, and LACP, if configured, has aggregated them.
    pub fn note_usable(&mut self) {
        let speaks = self.lacp.is_some();
        for m in &mut self.members {
            m.usable = m.up && (m.aggregated || !speaks);
        }
    }
}
