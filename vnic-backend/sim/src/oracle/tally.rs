//! What was seen over many runs: a simulation that never sees an atomic succeed proves nothing about atomics.

use std::collections::BTreeMap;

use vnic_engine::rdma::{CompletionOp, QpType, Status};

/// How often each kind of completion came.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(super) fn seen(&mut self, service: QpType, op: CompletionOp, status: Status) {
        let kind = format!("{service:?} {op:?} {status:?}");
        *self.0.entry(kind).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        for (k, n) in &other.0 {
            *self.0.entry(k.clone()).or_default() += n;
        }
    }

    /// All kinds, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(k, n)| (k.as_str(), *n))
    }

    /// All completions.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
