//! GIDs: the table of a function, kept true by what its guest sends, and where those of other adapters are.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use vnic_device::event::EventKind;
use vnic_engine::gids::{GidError, GidSource};
use vnic_engine::rdma::GidEntry;
use vnic_fabric::{Instant, VlanMode};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use super::function::Function;
use crate::types::{GidConflict, GidRow, GidSetting, ResourceRow};

/// Least time between two conflicts that one function tells of, and between two times that its guest is asked because of
/// them.
const CONFLICTS_EVERY: Duration = Duration::from_secs(1);

/// Where the GIDs of this NIC's adapters are. Asked by commands only, never for a packet.
///
/// Whoever was first has an address, until it gives it back; then the next one has it. Before all guests comes whoever has
/// it without a guest's word (see [`Claim::trusted`]).
#[derive(Debug, Default)]
pub struct GidRegistry {
    known: RwLock<BTreeMap<Place, Vec<Owner>>>,
}

/// An address, in a VLAN of the switch.
type Place = (Gid, u16);

/// An entry of a function's table, as the registry knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    place: Place,
    /// It is no guest's word: the operator has set it, or it is made of the adapter's Ethernet address.
    trusted: bool,
}

/// A function, as the registry knows it.
#[derive(Debug, Clone)]
pub(super) struct Claimant {
    pub mac: MacAddr,
    /// Another function says that it has an address of this one.
    pub doubted: Arc<AtomicBool>,
}

/// An adapter that has an address, or would have it if there were no other, and by how many entries.
#[derive(Debug)]
struct Owner {
    who: Claimant,
    entries: u32,
    trusted: u32,
}

fn holder(owners: &[Owner]) -> Option<&Claimant> {
    let trusted = owners.iter().find(|o| o.trusted > 0);
    trusted.or(owners.first()).map(|o| &o.who)
}

impl GidRegistry {
    /// A function has the claims `now` instead of those `before`. Answers which of them are others' as well.
    fn update<'a>(
        &self,
        who: &Claimant,
        before: impl Iterator<Item = &'a Claim>,
        now: impl Iterator<Item = &'a Claim>,
    ) -> Vec<GidConflict> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut conflicts = Vec::new();
        // New ones first: what is in both keeps its place.
        for claim in now {
            let owners = known.entry(claim.place).or_default();
            let own = owners.iter().position(|o| o.who.mac == who.mac);
            let at = own.unwrap_or(owners.len());
            if own.is_none() {
                owners.push(Owner {
                    who: who.clone(),
                    entries: 0,
                    trusted: 0,
                });
            }
            owners[at].entries += 1;
            owners[at].trusted += u32::from(claim.trusted);
            if own.is_some() || owners.len() == 1 {
                continue;
            }
            let ours = holder(owners).is_some_and(|h| h.mac == who.mac);
            let others = || owners.iter().map(|o| &o.who).filter(|w| w.mac != who.mac);
            let other = if ours { others().next() } else { holder(owners) };
            if let Some(other) = other {
                other.doubted.store(true, Ordering::Relaxed);
                conflicts.push(GidConflict {
                    gid: claim.place.0.0,
                    vlan: claim.place.1,
                    other: other.mac,
                    ours,
                });
            }
        }
        for claim in before {
            let Some(owners) = known.get_mut(&claim.place) else {
                continue;
            };
            if let Some(own) = owners.iter_mut().find(|o| o.who.mac == who.mac) {
                own.entries = own.entries.saturating_sub(1);
                own.trusted = own.trusted.saturating_sub(claim.trusted.into());
            }
            owners.retain(|o| o.entries > 0);
            if owners.is_empty() {
                known.remove(&claim.place);
            }
        }
        conflicts
    }

    /// An adapter has no addresses any more.
    fn leave(&self, mac: MacAddr) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, owners| {
            owners.retain(|o| o.who.mac != mac);
            !owners.is_empty()
        });
    }

    /// The Ethernet address for a GID, as far as the NIC can know it: groups have one by rule (RFC 1112, RFC 2464), its
    /// own adapters' in this VLAN of the switch are known, and the default GIDs of others tell theirs (RFC 4291, appendix
    /// A). In no VLAN there are groups only.
    fn resolve(&self, gid: Gid, vlan: Option<u16>) -> Option<MacAddr> {
        if gid.is_multicast() {
            return gid.multicast_mac();
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = known.get(&(gid, vlan?)).and_then(|owners| holder(owners)) {
            return Some(owner.mac);
        }
        let g = gid.0;
        if g[..8] == [0xfe, 0x80, 0, 0, 0, 0, 0, 0] && g[11..13] == [0xff, 0xfe] {
            return Some(MacAddr([g[8] ^ 2, g[9], g[10], g[13], g[14], g[15]]));
        }
        None
    }
}

impl Drop for Function {
    /// Nobody finds its GIDs any more.
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
        // The entry may be the same, and whose word it is another.
        self.claim_gids();
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
            mac: self.identity.claimant.mac,
        });
        self.set_gid(index, entry, GidSource::Operator)
    }

    /// The guest sent this frame.
    pub fn guest_sent(&mut self, now: Instant, head: &[u8]) {
        self.gids.learner.sent(now, head);
        self.apply_gids();
    }

    /// The guest gets this frame.
    pub fn guest_received(&mut self, now: Instant, head: &[u8]) {
        self.gids.learner.received(now, head);
        self.apply_gids();
    }

    /// The guest's Ethernet driver is gone, and its addresses with it.
    pub fn guest_down(&mut self, now: Instant) {
        self.gids.learner.guest_down(now);
        self.apply_gids();
    }

    /// Asks the guest for what it has, when it is time.
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

    /// Tells the registry what the table says. Addresses in VLANs that the adapter is not in are nobody's.
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
            // Who claims many addresses is told of once.
            self.gids.conflict = self.gids.conflict.or(conflicts.first().copied());
        }
    }

    /// The adapter is in these VLANs from now on.
    pub fn set_vlans(&mut self, vlans: VlanMode) {
        self.identity.vlans = vlans;
        self.claim_gids();
    }

    /// The Ethernet address for a GID, seen from an entry of the own table.
    pub(super) fn resolve(&self, gid: Gid, sgid_index: u16) -> Option<MacAddr> {
        let tag = self.device.gids().by_index(sgid_index).and_then(|e| e.vlan);
        let vlan = self.identity.vlans.classify(tag);
        self.identity.registry.resolve(gid, vlan)
    }

    /// A conflict about a GID that was not told yet, when it is time to tell one.
    pub fn take_gid_conflict(&mut self, now: Instant) -> Option<GidConflict> {
        if self.gids.conflict.is_none() || now < self.gids.conflicts_after {
            return None;
        }
        self.gids.conflicts_after = now + CONFLICTS_EVERY;
        self.gids.conflict.take()
    }

    /// GIDs that came or went, as far as it is time to tell of them: index, GID, did it come?
    pub fn take_gid_news(&mut self, now: Instant) -> Vec<(u16, [u8; 16], bool)> {
        self.gids.news.take(now)
    }

    /// Nobody finds its GIDs any more.
    pub(super) fn forget_gids(&self) {
        self.identity.registry.leave(self.identity.claimant.mac);
    }

    /// The table, as people see it.
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
        let doorbells = self.session.bells.iter().flatten().count() as u32;
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
            used: self.session.ring_extents,
            limit: resources.mr_extents.limit,
        });
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<u16> = Some(10);
    const ADDRESS: Gid = Gid([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9]);

    fn guest(n: u8) -> Claimant {
        Claimant {
            mac: MacAddr([2, 0, 0, 0, 0, n]),
            doubted: Arc::default(),
        }
    }

    fn claim(vlan: u16) -> Claim {
        Claim {
            place: (ADDRESS, vlan),
            trusted: false,
        }
    }

    impl GidRegistry {
        fn add(&self, who: &Claimant, claim: Claim) -> Vec<GidConflict> {
            self.update(who, [].iter(), [claim].iter())
        }

        fn remove(&self, who: &Claimant, claim: Claim) {
            self.update(who, [claim].iter(), [].iter());
        }
    }

    #[test]
    fn addresses_are_found_where_they_can_be() {
        let (registry, a) = (GidRegistry::default(), guest(9));
        let find = || registry.resolve(ADDRESS, HERE);
        assert_eq!(find(), None);
        // RoCEv1 and RoCEv2.
        assert_eq!(registry.add(&a, claim(10)), []);
        assert_eq!(registry.add(&a, claim(10)), []);
        registry.remove(&a, claim(10));
        assert_eq!(find(), Some(a.mac));
        assert_eq!(registry.resolve(ADDRESS, Some(5)), None);
        assert_eq!(registry.resolve(ADDRESS, None), None);
        registry.remove(&a, claim(10));
        assert_eq!(find(), None);
        let stranger = MacAddr([0x52, 0x54, 0, 1, 2, 3]);
        assert_eq!(registry.resolve(Gid::from_mac(stranger), HERE), Some(stranger));
        assert!(registry.resolve(Gid::from_ipv4([224, 0, 0, 1]), None).is_some());
    }

    #[test]
    fn the_first_keeps_an_address_until_it_gives_it_back() {
        let (registry, a, b, c) = (GidRegistry::default(), guest(1), guest(2), guest(3));
        let find = || registry.resolve(ADDRESS, HERE);
        assert_eq!(registry.add(&a, claim(10)), []);
        let conflict = GidConflict {
            gid: ADDRESS.0,
            vlan: 10,
            other: a.mac,
            ours: false,
        };
        assert_eq!(registry.add(&b, claim(10)), [conflict]);
        assert!(a.doubted.load(Ordering::Relaxed) && !b.doubted.load(Ordering::Relaxed));
        // By a second entry, that is told already.
        assert_eq!(registry.add(&b, claim(10)), []);
        assert_eq!(registry.add(&c, claim(10)), [conflict]);
        assert_eq!(find(), Some(a.mac));
        // A claim that is withdrawn leaves nothing behind.
        registry.remove(&b, claim(10));
        registry.remove(&b, claim(10));
        assert_eq!(find(), Some(a.mac));
        registry.remove(&a, claim(10));
        assert_eq!(find(), Some(c.mac));
        registry.leave(c.mac);
        assert_eq!(find(), None);
        assert!(registry.known.read().expect("nobody panicked").is_empty());
    }

    #[test]
    fn other_vlans_are_other_networks() {
        let (registry, a, b) = (GidRegistry::default(), guest(1), guest(2));
        assert_eq!(registry.add(&a, claim(10)), []);
        assert_eq!(registry.add(&b, claim(20)), []);
        assert_eq!(registry.resolve(ADDRESS, HERE), Some(a.mac));
        assert_eq!(registry.resolve(ADDRESS, Some(20)), Some(b.mac));
    }

    #[test]
    fn a_trusted_claim_comes_before_all_guests() {
        let (registry, a, b) = (GidRegistry::default(), guest(1), guest(2));
        registry.add(&a, claim(10));
        let trusted = Claim {
            trusted: true,
            ..claim(10)
        };
        let conflicts = registry.add(&b, trusted);
        assert_eq!((conflicts[0].other, conflicts[0].ours), (a.mac, true));
        assert_eq!(registry.resolve(ADDRESS, HERE), Some(b.mac));
        // It becomes a guest's word, and that guest came later.
        registry.update(&b, [trusted].iter(), [claim(10)].iter());
        assert_eq!(registry.resolve(ADDRESS, HERE), Some(a.mac));
    }

    #[test]
    fn nothing_is_left_of_a_function_that_ended_or_was_replaced() {
        let registry = Arc::new(GidRegistry::default());
        let made = |n| {
            let mac = guest(n).mac;
            let identity = super::super::Identity::new(mac, VlanMode::default(), registry.clone());
            let config = super::super::device_config(mac, 1500, 64);
            Function::new(config, identity, Arc::default()).expect("limits that fit")
        };
        let (mut a, mut b) = (made(1), made(2));
        for function in [&mut a, &mut b] {
            let entry = GidEntry {
                gid: ADDRESS,
                kind: vnic_engine::rdma::GidKind::RoceV2,
                vlan: None,
                mac: function.device().mac(),
            };
            function
                .set_gid(Some(40), Some(entry), GidSource::Driver)
                .expect("a free entry");
        }
        let native = Some(1);
        assert_eq!(registry.resolve(ADDRESS, native), Some(guest(1).mac));
        // A bug hit it: nothing of it is used again, not even to end it.
        let fresh = a.successor().expect("limits that fit");
        std::mem::forget(a);
        assert_eq!(registry.resolve(ADDRESS, native), Some(guest(2).mac));
        let known = || registry.known.read().expect("nobody panicked").len();
        assert_eq!(known(), 3);
        drop((fresh, b));
        assert_eq!(known(), 0);
    }
}
