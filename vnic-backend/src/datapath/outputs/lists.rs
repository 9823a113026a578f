//! Access lists of a core's adapters. A list is asked for a frame from the guest when the switch has a receiver for it, and for
//! a frame to the guest before all queues.

use std::collections::BTreeMap;
use std::sync::Arc;

use vnic_engine::offload::HEAD_MAX;
use vnic_fabric::TagEdit;
use vnic_fabric::access_list::{AccessList, Decision, Way};
use vnic_fabric::switch::PortId;

use super::super::frame::RawFrame;

/// The lists by their adapters' ports.
#[derive(Default)]
pub struct Lists(BTreeMap<PortId, Arc<AccessList>>);

impl Lists {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a list looks at frames between these ports.
    pub fn concern(&self, from: PortId, to: PortId) -> bool {
        self.find(from, Way::Tx).is_some() || self.find(to, Way::Rx).is_some()
    }

    /// The list that looks at frames of this way at an adapter.
    pub fn find(&self, port: PortId, way: Way) -> Option<&Arc<AccessList>> {
        self.0.get(&port).filter(|list| list.rules().concern(way))
    }

    /// Sets or removes the list of an adapter.
    pub fn set(&mut self, port: PortId, list: Option<Arc<AccessList>>) {
        match list {
            Some(list) => self.0.insert(port, list),
            None => self.0.remove(&port),
        };
    }
}

/// VLAN of a frame's outer tag; 0: it has none.
fn vlan(head: &[u8]) -> u16 {
    match head.get(12..16) {
        Some(&[0x81, 0x00, a, b]) => u16::from_be_bytes([a, b]) & 0x0fff,
        _ => 0,
    }
}

/// VLAN of a frame's outer tag behind an edit.
pub fn vlan_behind(tag: TagEdit, head: &[u8]) -> u16 {
    match tag {
        TagEdit::Keep => vlan(head),
        TagEdit::Pop => 0,
        TagEdit::Push(tci) | TagEdit::Replace(tci) => tci & 0x0fff,
    }
}

/// Calls `go` with the frame and what a list decides about it. All that the list looked at is in the frame's private front.
pub fn judged<R>(
    list: &AccessList,
    way: Way,
    tag: TagEdit,
    f: &RawFrame<'_>,
    go: impl FnOnce(&RawFrame<'_>, Decision) -> R,
) -> R {
    let mut wide = [0; HEAD_MAX];
    let known = f.peek(&mut wide);
    let f = RawFrame {
        head: &wide[..known],
        ..*f
    };
    let decision = list.explain(way, vlan_behind(tag, f.head), f.head);
    go(&f, decision)
}
