//! Fault rules in the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use vnic_fabric::fault::Tally;

use crate::types::*;

/// The rules by number: in the order in which they were added, and match.
#[derive(Default)]
pub struct FaultTable {
    /// The rules.
    pub rules: BTreeMap<u32, FaultEntry>,
    /// Number of rules added so far.
    pub made: u32,
}

/// A fault rule.
pub struct FaultEntry {
    /// Specification of the rule; the seed is filled in.
    pub spec: FaultSpec,
    /// Counts of the data cores.
    pub tally: Arc<Tally>,
    /// Time at which the rule was added.
    pub created: SystemTime,
}

impl FaultEntry {
    /// Status of the rule.
    pub fn status(&self, id: u32) -> FaultStatus {
        FaultStatus {
            id,
            spec: self.spec.clone(),
            matched: self.tally.matched(),
            injected: self.tally.injected(),
            created: self.created,
        }
    }
}

impl FaultTable {
    /// The rule of this name, and its number.
    pub fn named(&self, name: &str) -> Option<(u32, &FaultEntry)> {
        let mut all = self.rules.iter();
        all.find(|(_, e)| e.spec.name == name).map(|(id, e)| (*id, e))
    }
}
