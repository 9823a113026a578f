//! What was seen over many runs: a simulation that never sees an atomic succeed proves nothing about atomics.

use std::collections::BTreeMap;
use std::fmt;

use vnic_engine::rdma::{CompletionOp, QpType, Status};

/// A kind of completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Service.
    pub service: QpType,
    /// Operation.
    pub op: CompletionOp,
    /// How it ended.
    pub status: Status,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.service, self.op, self.status)
    }
}

/// How often each kind of completion came.
#[derive(Debug, Clone, Default)]
pub struct Tally(BTreeMap<String, u64>);

impl Tally {
    pub(super) fn seen(&mut self, service: QpType, op: CompletionOp, status: Status) {
        let seen = Seen { service, op, status };
        *self.0.entry(seen.to_string()).or_default() += 1;
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

    /// How often this kind came.
    pub fn count(&self, seen: Seen) -> u64 {
        self.0.get(&seen.to_string()).copied().unwrap_or(0)
    }

    /// All completions.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}
