//! Access lists of the control plane.

/// Rules of access lists.
pub mod acl {
    pub use vnic_fabric::access_list::{Action, Match, RULES_MAX, Rule, Rules, Way};
}

/// The access list of an adapter, and its counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessListStatus {
    /// Name of the adapter.
    pub adapter: String,
    /// The rules.
    pub rules: acl::Rules,
    /// Frames that each rule decided about. A rule that stays when a list is changed keeps its count.
    pub hits: Vec<u64>,
    /// Frames to the guest, and from it, that no rule matched.
    pub unmatched: [u64; 2],
    /// Number that each change of the list makes another one.
    pub revision: u64,
}
