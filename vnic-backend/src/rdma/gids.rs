//! GIDs: the table of a function, kept true by what its guest sends, and where those of other adapters are.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use vnic_device::event::EventKind;
use vnic_engine::gids::{GidError, GidSource};
use vnic_engine::rdma::GidEntry;
use vnic_fabric::Instant;
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use super::function::Function;
use crate::types::{GidRow, GidSetting, ResourceRow};

/// Where the GIDs of this NIC's adapters are. Asked by commands only, never for a packet.
#[derive(Debug, Default)]
pub struct GidRegistry {
    known: RwLock<BTreeMap<Place, Owner>>,
}

/// An address, in a VLAN.
type Place = (Gid, Option<u16>);
/// Who has it, and by how many entries.
type Owner = (MacAddr, u32);

impl GidRegistry {
    fn add(&self, entry: &GidEntry) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let (mac, count) = known.entry((entry.gid, entry.vlan)).or_insert((entry.mac, 0));
        // The newest owner of an address is its owner.
        *mac = entry.mac;
        *count += 1;
    }

    fn remove(&self, entry: &GidEntry) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let key = (entry.gid, entry.vlan);
        if let Some((_, count)) = known.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                known.remove(&key);
            }
        }
    }

    /// The Ethernet address for a GID, as far as the NIC can know it: groups have one by rule (RFC 1112, RFC 2464), its
    /// own adapters' are known, and the default GIDs of others tell theirs (RFC 4291, appendix A).
    pub fn resolve(&self, gid: Gid, vlan: Option<u16>) -> Option<MacAddr> {
        if gid.is_multicast() {
            return gid.multicast_mac();
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((mac, _)) = known.get(&(gid, vlan)) {
            return Some(*mac);
        }
        let g = gid.0;
        if g[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && g[11..13] == [0xff, 0xfe] {
            return Some(MacAddr([g[8] ^ 2, g[9], g[10], g[13], g[14], g[15]]));
        }
        None
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
        let index = self.learner.set(index, entry, by)?;
        self.apply_gids();
        Ok(index)
    }

    /// Sets or clears an entry on behalf of an operator.
    pub fn set_gid_by_operator(
        &mut self,
        index: Option<u16>,
        gid: Option<GidSetting>,
    ) -> Result<u16, GidError> {
        let entry = gid.map(|g| GidEntry {
            gid: Gid(g.gid),
            kind: g.kind,
            vlan: g.vlan,
            mac: self.identity.mac,
        });
        self.set_gid(index, entry, GidSource::Operator)
    }

    /// The guest sent this frame.
    pub fn guest_sent(&mut self, now: Instant, head: &[u8]) {
        self.learner.sent(now, head);
        self.apply_gids();
    }

    /// The guest gets this frame.
    pub fn guest_received(&mut self, now: Instant, head: &[u8]) {
        self.learner.received(now, head);
        self.apply_gids();
    }

    /// The guest's Ethernet driver is gone, and its addresses with it.
    pub fn guest_down(&mut self, now: Instant) {
        self.learner.guest_down(now);
        self.apply_gids();
    }

    /// Asks the guest for what it has, when it is time.
    pub fn poll_gids(&mut self, now: Instant, emit: &mut dyn FnMut(&[u8])) {
        if self.learner.next_time().is_some_and(|at| at <= now) {
            self.learner.poll(now, emit);
            self.apply_gids();
        }
    }

    /// Brings the engine's table in line with the learner's.
    pub(super) fn apply_gids(&mut self) {
        let changes: Vec<_> = self.learner.changes().collect();
        for (index, entry) in changes {
            if let Some(old) = self.device.gids().by_index(index) {
                self.identity.registry.remove(old);
                self.gid_news.push((index, old.gid.0, false));
            }
            if self.device.set_gid(index, entry).is_ok()
                && let Some(new) = &entry
            {
                self.identity.registry.add(new);
                self.gid_news.push((index, new.gid.0, true));
            }
            if self.hello {
                self.events.push(EventKind::GidChange, index.into(), 0);
            }
        }
    }

    /// GIDs that came or went, as far as it is time to tell of them: index, GID, did it come?
    pub fn take_gid_news(&mut self, now: Instant) -> Vec<(u16, [u8; 16], bool)> {
        self.gid_news.take(now)
    }

    /// The adapter is removed: nobody finds its GIDs any more.
    pub fn forget_gids(&mut self) {
        for (_, entry) in self.device.gids().iter() {
            self.identity.registry.remove(entry);
        }
    }

    /// The table, as people see it.
    pub fn gid_rows(&self) -> Vec<GidRow> {
        let rows = self.learner.entries().map(|(index, entry, source)| GidRow {
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
        let doorbells = self.bells.iter().flatten().count() as u32;
        rows.push(ResourceRow {
            name: "dm",
            used: self.device_memory.used(),
            limit: super::command::DeviceMemoryTable::LIMIT,
        });
        rows.push(ResourceRow {
            name: "doorbells",
            used: doorbells,
            limit: super::DOORBELL_RINGS_MAX,
        });
        rows.push(ResourceRow {
            name: "ring_extents",
            used: self.ring_extents,
            limit: resources.mr_extents.limit,
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use vnic_engine::rdma::GidKind;

    use super::*;

    #[test]
    fn addresses_are_found_where_they_can_be() {
        let registry = GidRegistry::default();
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let entry = |kind| GidEntry {
            gid: Gid::from_ipv4([10, 0, 0, 9]),
            kind,
            vlan: None,
            mac,
        };
        let find = || registry.resolve(Gid::from_ipv4([10, 0, 0, 9]), None);
        assert_eq!(find(), None);
        registry.add(&entry(GidKind::RoceV1));
        registry.add(&entry(GidKind::RoceV2));
        registry.remove(&entry(GidKind::RoceV1));
        assert_eq!(find(), Some(mac));
        assert_eq!(registry.resolve(Gid::from_ipv4([10, 0, 0, 9]), Some(5)), None);
        registry.remove(&entry(GidKind::RoceV2));
        assert_eq!(find(), None);
        let stranger = MacAddr([0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(registry.resolve(Gid::from_mac(stranger), None), Some(stranger));
        assert!(registry.resolve(Gid::from_ipv4([224, 0, 0, 1]), None).is_some());
    }
}
