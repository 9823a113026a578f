//! Fault rules, as the control plane knows them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use vnic_fabric::fault::Tally;

use crate::types::*;

/// The rules by number: in the order in which they were made, and are asked.
#[derive(Default)]
pub struct FaultTable {
    /// The rules.
    pub rules: BTreeMap<u32, FaultEntry>,
    /// How many were made.
    pub made: u32,
}

/// A fault rule.
pub struct FaultEntry {
    /// What it was made from; the seed is filled in.
    pub spec: FaultSpec,
    /// What the data cores count of it.
    pub tally: Arc<Tally>,
    /// When it was made.
    pub created: SystemTime,
}

impl FaultEntry {
    /// The rule as it is now.
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
