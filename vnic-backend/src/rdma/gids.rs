//! GID table of a function, kept in line with its guest's frames.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vnic_device::event::EventKind;
use vnic_engine::gids::{GidError, GidSource};
use vnic_engine::rdma::steering::{FLOWS_MAX, HASH_QPS_MAX};
use vnic_engine::rdma::{GidEntry, Incoming, Question};
use vnic_fabric::{Instant, VlanMode};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;
use vnic_wire::sa::SaMad;

use super::device_memory::DeviceMemoryTable;
use super::doorbells::DOORBELL_RINGS_MAX;
use super::function::Function;
use super::registry::Claim;
use crate::types::{GidConflict, GidRow, GidSetting, ResourceRow};

/// Least time between two reports of conflicts of a function, and between two times that its guest is asked because of them.
const CONFLICTS_EVERY: Duration = Duration::from_secs(1);

impl Drop for Function {
    /// Removes the function's GIDs from the registry.
    fn drop(&mut self) {
        self.forget_gids();
    }
}

impl Function {
    /// Sets or clears an entry of the GID table on behalf of `by`.
    pub fn set_gid(
        &mut self,
        index: Option<u16>,
        entry: Option<GidEntry>,
        by: GidSource,
    ) -> Result<u16, GidError> {
        let index = self.gids.learner.set(index, entry, by)?;
        self.apply_gids();
        // The entry may be the same, but have another source.
        self.claim_gids();
        Ok(index)
    }

    /// Sets or clears an entry on behalf of an operator.
    pub fn set_gid_by_operator(
        &mut self,
        index: Option<u16>,
        gid: Option<GidSetting>,
    ) -> Result<u16, GidError> {
        self.set_gid(index, gid.map(|gid| self.entry(gid)), GidSource::Operator)
    }

    /// What [`Function::set_gid_by_operator`] would return; nothing changes.
    pub fn may_set_gid(&self, index: Option<u16>, gid: Option<GidSetting>) -> Result<u16, GidError> {
        let entry = gid.map(|gid| self.entry(gid));
        self.gids.learner.clone().set(index, entry, GidSource::Operator)
    }

    fn entry(&self, gid: GidSetting) -> GidEntry {
        GidEntry {
            gid: Gid(gid.gid),
            kind: gid.kind,
            vlan: gid.vlan,
            mac: self.identity.claimant.mac,
        }
    }

    /// Learns from a frame that the guest has sent.
    pub fn guest_sent(&mut self, now: Instant, head: &[u8]) {
        self.gids.learner.sent(now, head);
        self.apply_gids();
    }

    /// Learns from a frame that the guest receives.
    pub fn guest_received(&mut self, now: Instant, head: &[u8]) {
        self.gids.learner.received(now, head);
        self.apply_gids();
    }

    /// Answers a frame that asks for the Ethernet address of one of the function's addresses.
    pub fn answer_neighbour(&self, head: &[u8], emit: &mut dyn FnMut(&[u8])) {
        let gids = self.device.gids();
        let has = |gid, vlan| {
            gids.iter()
                .any(|(_, entry)| entry.gid == gid && entry.vlan == vlan)
        };
        vnic_engine::gids::answer(head, self.identity.claimant.mac, has, emit);
    }

    /// Removes the addresses of a guest whose Ethernet driver is gone.
    pub fn guest_down(&mut self, now: Instant) {
        self.gids.learner.guest_down(now);
        self.apply_gids();
    }

    /// Asks the guest for its addresses when it is time.
    pub fn poll_gids(&mut self, now: Instant, emit: &mut dyn FnMut(&[u8])) {
        let doubted = &self.identity.claimant.doubted;
        if doubted.load(Ordering::Relaxed) && self.gids.doubted_until <= now {
            doubted.store(false, Ordering::Relaxed);
            self.gids.doubted_until = now + CONFLICTS_EVERY;
            self.gids.learner.doubt(now);
        }
        if self.gids.learner.next_time().is_some_and(|at| at <= now) {
            self.gids.learner.poll(now, emit);
            self.apply_gids();
        }
    }

    /// Brings the engine's table in line with the learner's.
    pub(super) fn apply_gids(&mut self) {
        let changes: Vec<_> = self.gids.learner.changes().collect();
        if changes.is_empty() {
            return;
        }
        self.gids.version += 1;
        for (index, entry) in changes {
            if let Some(old) = self.device.gids().by_index(index) {
                self.gids.news.push((index, old.gid.0, false));
            }
            if self.device.set_gid(index, entry).is_ok()
                && let Some(new) = &entry
            {
                self.gids.news.push((index, new.gid.0, true));
            }
            if self.session.hello {
                self.session.events.push(EventKind::GidChange, index.into(), 0);
            }
        }
        self.claim_gids();
    }

    /// How often the table has changed.
    pub fn gid_version(&self) -> u64 {
        self.gids.version
    }

    /// Brings the table of a seat in line with that of its function, and tells the driver.
    pub fn follow_gids(&mut self, function: &Function) {
        let differ =
            |index: &u16| function.device.gids().by_index(*index) != self.device.gids().by_index(*index);
        let changed: Vec<u16> = (0..self.config.limits.gid_table_len).filter(differ).collect();
        // An address may have moved to another index.
        for index in &changed {
            let _ = self.device.set_gid(*index, None);
        }
        for index in changed {
            let entry = function.device.gids().by_index(index).copied();
            let _ = self.device.set_gid(index, entry);
            if self.session.hello {
                self.session.events.push(EventKind::GidChange, index.into(), 0);
            }
        }
    }

    /// Updates the registry's claims of the table. Addresses in VLANs that the adapter is not in are not claimed.
    fn claim_gids(&mut self) {
        let vlans = &self.identity.vlans;
        let claims = self.gids.learner.entries().filter_map(|(index, entry, source)| {
            let claim = Claim {
                place: (entry.gid, vlans.classify(entry.vlan)?),
                trusted: source == GidSource::Operator || entry.gid == Gid::from_mac(entry.mac),
            };
            Some((index, claim))
        });
        let now: BTreeMap<u16, Claim> = claims.collect();
        let before = std::mem::replace(&mut self.gids.claims, now);
        let now = &self.gids.claims;
        let gone = before.iter().filter(|(i, claim)| now.get(i) != Some(claim));
        let new = now.iter().filter(|(i, claim)| before.get(i) != Some(claim));
        let (mut gone, mut new) = (gone.map(|(_, c)| c).peekable(), new.map(|(_, c)| c).peekable());
        if gone.peek().is_some() || new.peek().is_some() {
            let (registry, who) = (&self.identity.registry, &self.identity.claimant);
            let conflicts = registry.update(who, gone, new);
            // Of several conflicts at once only the first is reported.
            self.gids.conflict = self.gids.conflict.or(conflicts.first().copied());
        }
    }

    /// Sets the VLANs of the adapter.
    pub fn set_vlans(&mut self, vlans: VlanMode) {
        self.identity.vlans = vlans;
        self.claim_gids();
    }

    /// The Ethernet address of a GID, in the VLAN of an entry of the function's table.
    pub(super) fn resolve(&self, gid: Gid, sgid_index: u16) -> Option<MacAddr> {
        self.identity.registry.resolve(gid, self.vlan_of(sgid_index))
    }

    /// The VLAN of the switch that an entry of the function's table is in.
    fn vlan_of(&self, sgid_index: u16) -> Option<u16> {
        let tag = self.device.gids().by_index(sgid_index).and_then(|e| e.vlan);
        self.identity.vlans.classify(tag)
    }

    /// Takes a packet of the function to its own queue pair 1 that may be a question to subnet administration: the question, and
    /// the VLAN of the switch in which it was asked.
    pub fn ask_administration(
        &mut self,
        now: Instant,
        packet: &Incoming<'_>,
    ) -> Option<(Question, Option<u16>)> {
        self.published.stale = true;
        let question = self.device.ask(now, packet)?;
        let vlan = self.vlan_of(question.sgid_index);
        Some((question, vlan))
    }

    /// Answers a question by a datagram, or by the segments of a transfer; none: nobody does.
    pub fn hear_administration(&mut self, question: u32, answer: &[SaMad]) {
        self.published.stale = true;
        self.device.answer(question, answer);
    }

    /// A conflict about a GID that was not reported yet, when a report is due.
    pub fn take_gid_conflict(&mut self, now: Instant) -> Option<GidConflict> {
        if self.gids.conflict.is_none() || now < self.gids.conflicts_after {
            return None;
        }
        self.gids.conflicts_after = now + CONFLICTS_EVERY;
        self.gids.conflict.take()
    }

    /// Added and removed GIDs, as far as a report is due: index, GID, and whether it was added.
    pub fn take_gid_news(&mut self, now: Instant) -> Vec<(u16, [u8; 16], bool)> {
        self.gids.news.take(now)
    }

    /// Removes the function's GIDs from the registry.
    pub(super) fn forget_gids(&self) {
        self.identity.registry.leave(&self.identity.claimant);
    }

    /// Entries of the table for the control plane.
    pub fn gid_rows(&self) -> Vec<GidRow> {
        let rows = self.gids.learner.entries().map(|(index, entry, source)| GidRow {
            index,
            gid: entry.gid.0,
            kind: entry.kind,
            vlan: entry.vlan,
            mac: entry.mac,
            source,
        });
        rows.collect()
    }

    /// Objects in use, by type.
    pub fn resource_rows(&self) -> Vec<ResourceRow> {
        let resources = self.device.resources();
        let mut rows: Vec<ResourceRow> = resources
            .iter()
            .map(|(name, usage)| ResourceRow {
                name,
                used: usage.used,
                limit: usage.limit,
            })
            .collect();
        rows.push(ResourceRow {
            name: "flow",
            used: self.flows.len() as u32,
            limit: FLOWS_MAX as u32,
        });
        rows.push(ResourceRow {
            name: "hash_qp",
            used: self.flows.hash_qps() as u32,
            limit: HASH_QPS_MAX as u32,
        });
        let doorbells = self.session.bells.iter().flatten().count() as u32;
        rows.push(ResourceRow {
            name: "dm",
            used: self.device_memory.used(),
            limit: DeviceMemoryTable::LIMIT,
        });
        rows.push(ResourceRow {
            name: "doorbells",
            used: doorbells,
            limit: DOORBELL_RINGS_MAX,
        });
        rows.push(ResourceRow {
            name: "ring_extents",
            used: self.session.ring_extents,
            limit: resources.mr_extents.limit,
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::rdma::{GidRegistry, Identity, device_config};

    #[test]
    fn nothing_is_left_of_a_function_that_ended_or_was_replaced() {
        let address = Gid::from_ipv4([10, 0, 0, 9]);
        let registry = Arc::new(GidRegistry::default());
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let made = |n| {
            let identity = Identity::new(mac(n), VlanMode::default(), registry.clone());
            let config = device_config(mac(n), 1500, 64);
            Function::new(config, identity, Arc::default()).expect("limits that fit")
        };
        let (mut a, mut b) = (made(1), made(2));
        for function in [&mut a, &mut b] {
            let entry = GidEntry {
                gid: address,
                kind: vnic_engine::rdma::GidKind::RoceV2,
                vlan: None,
                mac: function.device().mac(),
            };
            function
                .set_gid(Some(40), Some(entry), GidSource::Driver)
                .expect("a free entry");
        }
        let native = Some(1);
        assert_eq!(registry.resolve(address, native), Some(mac(1)));
        // A function that a bug hit is not used again, not even to end it.
        let fresh = a.successor().expect("limits that fit");
        std::mem::forget(a);
        assert_eq!(registry.resolve(address, native), Some(mac(2)));
        assert_eq!(registry.len(), 3);
        drop((fresh, b));
        assert_eq!(registry.len(), 0);
    }
}
