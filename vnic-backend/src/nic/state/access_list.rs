//! Access lists in the control plane.

use std::sync::Arc;

use vnic_fabric::access_list::{AccessList, Decision};

use super::State;
use crate::types::AccessListStatus;
use crate::types::acl::Way;

/// The access list of an adapter.
pub struct ListEntry {
    /// The list, which the data core shares.
    pub list: Arc<AccessList>,
    /// Number of the change that made it.
    pub revision: u64,
}

impl State {
    /// The list of an adapter, if it looks at any frame.
    pub fn in_force(&self, adapter: &str) -> Option<Arc<AccessList>> {
        let list = &self.lists.get(adapter)?.list;
        let looks = |way: &Way| list.rules().concern(*way);
        Way::ALL.iter().any(looks).then(|| list.clone())
    }

    /// The list of an adapter; one that was never set has no rules.
    pub fn access_list(&self, adapter: &str) -> AccessListStatus {
        let entry = self.lists.get(adapter);
        let list = entry.map(|e| &*e.list);
        let unmatched = |way| list.map_or(0, |l| l.unmatched(way));
        AccessListStatus {
            adapter: adapter.to_owned(),
            rules: list.map(|l| l.rules().clone()).unwrap_or_default(),
            hits: list.map(|l| l.hits().collect()).unwrap_or_default(),
            unmatched: [unmatched(Way::Rx), unmatched(Way::Tx)],
            revision: entry.map_or(0, |e| e.revision),
        }
    }

    /// What the list of an adapter decides about a frame, in words; `None`: no list looks at it.
    pub fn listed(&self, adapter: &str, way: Way, vlan: u16, head: &[u8]) -> Option<(Decision, String)> {
        let list = self.in_force(adapter)?;
        if !list.rules().concern(way) {
            return None;
        }
        let decision = list.explain(way, vlan, head);
        let (name, way) = (decision.action.name(), way.name());
        let text = match decision.rule {
            Some(at) => format!("rule {} of {adapter} ({way}) says {name}", at + 1),
            None => format!("no rule of {adapter} ({way}) matches, and its default is {name}"),
        };
        Some((decision, text))
    }
}
