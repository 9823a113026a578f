//! Registry of the GIDs of a NIC's adapters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use crate::types::GidConflict;

/// Registry of the GIDs of this NIC's adapters. Only commands look GIDs up, never packets.
///
/// The first claimant of an address has it until it gives the address back; then the next claimant has it. A trusted claim
/// (see [`Claim::trusted`]) comes before those of all guests.
#[derive(Debug, Default)]
pub struct GidRegistry {
    known: RwLock<BTreeMap<Place, Vec<Owner>>>,
}

/// An address in a VLAN of the switch.
pub type Place = (Gid, u16);

/// Claim of an entry of a function's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub place: Place,
    /// Whether the claim does not come from a guest: the operator has set it, or it is made of the adapter's Ethernet
    /// address.
    pub trusted: bool,
}

/// A function that claims addresses.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// Ethernet address of its adapter.
    pub mac: MacAddr,
    /// Whether another function claims an address of this one.
    pub doubted: Arc<AtomicBool>,
}

impl Claimant {
    /// Whether this is the same function, or its successor. (Two adapters between which a guest moves have one Ethernet address.)
    fn is(&self, other: &Claimant) -> bool {
        Arc::ptr_eq(&self.doubted, &other.doubted)
    }
}

/// An adapter with claims of an address: it has the address, or would have it without the others.
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
    /// Replaces the claims `before` of a function by `now`. Returns conflicts of new claims with those of others.
    pub fn update<'a>(
        &self,
        who: &Claimant,
        before: impl Iterator<Item = &'a Claim>,
        now: impl Iterator<Item = &'a Claim>,
    ) -> Vec<GidConflict> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut conflicts = Vec::new();
        // New claims come first, so that a claim in both lists keeps its place.
        for claim in now {
            let owners = known.entry(claim.place).or_default();
            let own = owners.iter().position(|o| o.who.is(who));
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
            if let Some(own) = owners.iter_mut().find(|o| o.who.is(who)) {
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

    /// Removes all claims of a function.
    pub fn leave(&self, who: &Claimant) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, owners| {
            owners.retain(|o| !o.who.is(who));
            !owners.is_empty()
        });
    }

    /// The Ethernet address of a GID, as far as the NIC knows it: that of a group follows from its GID (RFC 1112, RFC 2464),
    /// the NIC's own adapters in this VLAN of the switch are in the registry, and other nodes' default GIDs contain theirs
    /// (RFC 4291, appendix A). Without a VLAN only groups are found.
    pub fn resolve(&self, gid: Gid, vlan: Option<u16>) -> Option<MacAddr> {
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
        /// Number of addresses with claims.
        pub fn len(&self) -> usize {
            self.known.read().expect("nobody panicked").len()
        }

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
        // One entry for RoCEv1, one for RoCEv2.
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
        // A second entry does not report the conflict again.
        assert_eq!(registry.add(&b, claim(10)), []);
        assert_eq!(registry.add(&c, claim(10)), [conflict]);
        assert_eq!(find(), Some(a.mac));
        // A claim that is withdrawn leaves nothing behind.
        registry.remove(&b, claim(10));
        registry.remove(&b, claim(10));
        assert_eq!(find(), Some(a.mac));
        registry.remove(&a, claim(10));
        assert_eq!(find(), Some(c.mac));
        registry.leave(&c);
        assert_eq!(find(), None);
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn two_functions_with_one_ethernet_address_are_in_no_conflict_and_one_that_ends_takes_only_its_own_claims()
     {
        let (registry, source, target) = (GidRegistry::default(), guest(1), guest(1));
        assert_eq!(registry.add(&source, claim(10)), []);
        assert_eq!(registry.add(&target, claim(10)), []);
        registry.leave(&source);
        assert_eq!(registry.resolve(ADDRESS, HERE), Some(target.mac));
        registry.leave(&target);
        assert_eq!(registry.len(), 0);
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
        // The claim becomes a guest's, and that guest came later.
        registry.update(&b, [trusted].iter(), [claim(10)].iter());
        assert_eq!(registry.resolve(ADDRESS, HERE), Some(a.mac));
    }
}
