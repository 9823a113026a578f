//! How many requests a second a source may send. Time is cut into seconds; a source has its count in each.

use alloc::collections::BTreeMap;
use core::time::Duration;

use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

/// Sources with a count of their own; all others share one.
const SOURCES_MAX: usize = 1024;

/// The counts of a second.
#[derive(Debug, Default)]
pub(super) struct Admission {
    began: Instant,
    counts: BTreeMap<Gid, u32>,
}

impl Admission {
    /// Whether a source may send one more request.
    pub fn admits(&mut self, now: Instant, source: Gid, limit: u32) -> bool {
        if now.since(self.began) >= Duration::from_secs(1) {
            self.began = now;
            self.counts.clear();
        }
        let known = self.counts.len() < SOURCES_MAX || self.counts.contains_key(&source);
        let key = if known { source } else { Gid::UNSPECIFIED };
        let count = self.counts.entry(key).or_default();
        *count = count.saturating_add(1);
        *count <= limit
    }
}
