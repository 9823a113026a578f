//! Rules for completions and commands in the control plane.

use std::sync::Arc;
use std::time::SystemTime;

use crate::rdma::VerbsRule;
use crate::types::*;

/// The rules in the order in which they were added, and match.
#[derive(Default)]
pub struct VerbsFaultTable {
    /// The rules.
    pub rules: Vec<VerbsFaultEntry>,
    /// Number of rules added so far.
    pub made: u32,
}

/// A rule for completions or commands.
pub struct VerbsFaultEntry {
    /// The rule in force; the seed is filled in.
    pub rule: Arc<VerbsRule>,
    /// Time at which the rule was added.
    pub created: SystemTime,
}

impl VerbsFaultTable {
    /// The rules of an adapter, in the order of matching.
    pub fn of(&self, adapter: &str) -> impl Iterator<Item = Arc<VerbsRule>> {
        let rules = self.rules.iter().map(|entry| &entry.rule);
        rules.filter(move |rule| rule.spec.adapter == adapter).cloned()
    }
}

impl VerbsFaultEntry {
    /// Status of the rule.
    pub fn status(&self) -> VerbsFaultStatus {
        VerbsFaultStatus {
            id: self.rule.id,
            spec: self.rule.spec.clone(),
            matched: self.rule.tally.matched(),
            injected: self.rule.tally.injected(),
            created: self.created,
        }
    }
}
