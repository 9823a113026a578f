//! Affinities: the member of a queue pair or flow, as an operator named it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::ipv4::PROTOCOL_UDP;
use vnic_wire::roce;

use crate::lag::{Flow, LagError, Member, Packet, refuse};

/// Most affinities of a bond.
pub const AFFINITIES_MAX: usize = 1024;

/// Frames with a member of their own. If several match a frame, the first in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Affinity {
    /// A queue pair of the adapter with this address, by its own number.
    Qp {
        /// The adapter's address.
        source: MacAddr,
        /// The queue pair's number.
        qp: u32,
    },
    /// The flow of this packet; of a tunnel the inner one.
    Flow(Packet),
    /// RoCEv2 with this UDP source port.
    UdpSourcePort(u16),
}

/// An affinity with its member and slot.
#[derive(Debug, Clone, Copy)]
struct Entry {
    what: Affinity,
    member: Member,
}

/// All affinities of a bond.
#[derive(Debug, Clone, Default)]
pub(in crate::lag) struct Affinities {
    /// Index in `entries` by affinity.
    slots: BTreeMap<Affinity, usize>,
    entries: Vec<Option<Entry>>,
    /// Slots in front of the first affinity's.
    buckets: usize,
}

impl Affinities {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The slot of a flow.
    pub(super) fn find(&self, flow: &Flow) -> Option<usize> {
        let slot = |what: Affinity| self.slots.get(&what).copied();
        let source = flow.source;
        let by_qp = flow.local_qp.and_then(|qp| slot(Affinity::Qp { source, qp }));
        let packet = flow.innermost();
        let by_flow = || slot(Affinity::Flow(*packet?));
        let by_port = || {
            let packet = packet.filter(|p| p.protocol == PROTOCOL_UDP)?;
            let ports = packet.ports.filter(|p| p.destination == roce::UDP_PORT)?;
            slot(Affinity::UdpSourcePort(ports.source))
        };
        by_qp.or_else(by_flow).or_else(by_port)
    }

    /// Sets an affinity; returns its slot, and whether that is a new one.
    pub(super) fn set(
        &mut self,
        buckets: usize,
        what: Affinity,
        member: Member,
    ) -> Result<(usize, bool), LagError> {
        self.buckets = buckets;
        let entry = Some(Entry { what, member });
        if let Some(&i) = self.slots.get(&what) {
            self.entries[i - buckets] = entry;
            return Ok((i, false));
        }
        if self.slots.len() >= AFFINITIES_MAX {
            return refuse(
                "affinity",
                format!("there are {AFFINITIES_MAX}; allowed: no more"),
            );
        }
        let i = match self.entries.iter().position(Option::is_none) {
            Some(i) => {
                self.entries[i] = entry;
                i
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        self.slots.insert(what, buckets + i);
        Ok((buckets + i, true))
    }

    /// The slot of an affinity.
    pub(super) fn slot(&self, what: Affinity) -> Option<usize> {
        self.slots.get(&what).copied()
    }

    fn of(&self, slot: usize) -> Option<&Entry> {
        self.entries.get(slot.checked_sub(self.buckets)?)?.as_ref()
    }

    /// Removes the affinity of a slot.
    pub(super) fn remove(&mut self, slot: usize) {
        let entry = slot
            .checked_sub(self.buckets)
            .and_then(|i| self.entries.get_mut(i));
        if let Some(entry) = entry.and_then(Option::take) {
            self.slots.remove(&entry.what);
        }
    }

    /// The member that affinity number `i` names.
    pub(super) fn member(&self, i: usize) -> Option<Member> {
        Some(self.entries.get(i)?.as_ref()?.member)
    }

    /// The affinities, with member and slot.
    pub(in crate::lag) fn iter(&self) -> impl Iterator<Item = (Affinity, Member, usize)> {
        let slots = self.slots.iter();
        slots.filter_map(|(what, i)| Some((*what, self.of(*i)?.member, *i)))
    }
}
