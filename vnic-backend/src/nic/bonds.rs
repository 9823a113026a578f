//! Bonds, as the control plane sees them.

use super::Nic;
use crate::types::lag::{Affinity, Member, View};
use crate::types::*;

impl Nic {
    /// Makes a bond, or gives one of this name other members and settings: wholly, or not at all. A port that leaves it is a
    /// port of the switch again.
    pub fn set_bond(&self, spec: BondSpec) -> Result<BondStatus, NicError> {
        let _ = spec;
        Err(NicError::Invalid {
            field: "bond",
            problem: "not implemented yet".into(),
        })
    }

    /// Removes a bond; its ports are ports of the switch again.
    pub fn remove_bond(&self, name: &str) -> Result<(), NicError> {
        Err(super::not_found("bond", name))
    }

    /// One bond.
    pub fn bond(&self, name: &str) -> Result<BondStatus, NicError> {
        Err(super::not_found("bond", name))
    }

    /// All bonds, by name.
    pub fn bonds(&self) -> Vec<BondStatus> {
        Vec::new()
    }

    /// Which queue pair and flow sits on which member, and how even that is.
    pub fn bond_view(&self, name: &str) -> Result<View, NicError> {
        Err(super::not_found("bond", name))
    }

    /// Lets something go by a member of its own; or, with none, as its hash says again. It is part of the bond's
    /// [`BondSpec::affinities`] from then on.
    pub fn set_bond_affinity(
        &self,
        name: &str,
        what: Affinity,
        member: Option<Member>,
    ) -> Result<(), NicError> {
        let _ = (what, member);
        Err(super::not_found("bond", name))
    }
}
