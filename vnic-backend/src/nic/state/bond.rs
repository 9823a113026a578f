//! A bond, as the control plane knows it.

use vnic_fabric::Instant;
use vnic_fabric::lag::{Bond, Member};

use super::speaker::Speaker;
use crate::types::*;

/// A bond.
pub struct BondEntry {
    /// What it was made from.
    pub spec: BondSpec,
    /// Its port of the switch.
    pub id: PortId,
    /// The core that serves its members, and it.
    pub core: usize,
    /// In the order of [`Member`].
    pub members: Vec<MemberEntry>,
    /// Some member may carry frames.
    pub up: bool,
    /// How often a member that carried frames was lost.
    pub failovers: u64,
    /// The last time.
    pub last_failover: Option<Failover>,
    /// What speaks LACP for it, if that is wanted.
    pub lacp: Option<Speaker>,
}

/// A member of a bond.
#[derive(Clone)]
pub struct MemberEntry {
    /// The port.
    pub id: PortId,
    /// Its link is up.
    pub up: bool,
    /// Link aggregation control lets it send and receive.
    pub aggregated: bool,
    /// It may carry frames, as far as was told.
    pub usable: bool,
}

impl BondEntry {
    /// The ports that are its members.
    pub fn ids(&self) -> impl Iterator<Item = PortId> {
        self.members.iter().map(|m| m.id)
    }

    /// The bond as it is now.
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

    /// Tells a new machine of the data path what link aggregation control has found out before.
    pub fn inherit(&mut self, bond: &mut Bond) {
        let Some(speaker) = &self.lacp else { return };
        for (i, m) in (0..).map(Member).zip(&mut self.members) {
            m.aggregated = speaker.is_aggregated(i);
            bond.set_lacp(Instant(0), i, m.aggregated, m.aggregated);
        }
    }

    /// Notes which members may carry frames: their link is up, and they are aggregated where that is asked for.
    pub fn note_usable(&mut self) {
        let speaks = self.lacp.is_some();
        for m in &mut self.members {
            m.usable = m.up && (m.aggregated || !speaks);
        }
    }
}
