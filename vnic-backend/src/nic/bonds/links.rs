//! Links of bonds and of their members.

use std::time::{Duration, Instant as Moment, SystemTime};

use vnic_fabric::lag::Member;

use crate::nic::Inner;
use crate::nic::state::{BondEntry, State};
use crate::types::*;

impl Inner {
    /// Handles a change of a port's link that was noticed at this time. False: the port is in no bond.
    pub(in crate::nic) fn member_link(
        &self,
        state: &mut State,
        port: PortId,
        up: bool,
        noticed: Moment,
    ) -> bool {
        let Some((name, bond, member)) = state.membership(port) else {
            return false;
        };
        if let Some(m) = bond.members.get_mut(usize::from(member.0)) {
            m.up = up;
        }
        let id = bond.id;
        let dropped = self.workers[bond.core].call(move |w| w.core.out.bond_link(id, member, up, w.core.now));
        let dropped = dropped.unwrap_or_default();
        let took = noticed.elapsed();
        if let Some(speaker) = &mut bond.lacp {
            speaker.set_link(member, up);
            self.speak(name, bond);
        }
        self.settle(name, bond, noticed, Some((took, dropped)));
        state.ring_alarm();
        true
    }

    /// Sets the link of a bond that was added or changed, after the cores have it; `before`: whether the bond was up before.
    pub(super) fn bond_begins(&self, state: &mut State, name: &str, before: Option<bool>) {
        let Some((name, bond)) = state.bonds.iter_mut().find(|(n, _)| *n == name) else {
            return;
        };
        let links: Vec<bool> = bond.members.iter().map(|m| m.up).collect();
        if let Some(speaker) = &mut bond.lacp {
            for (i, up) in (0..).zip(links) {
                speaker.set_link(Member(i), up);
            }
        }
        self.speak(name, bond);
        bond.note_usable();
        bond.up = bond.members.iter().any(|m| m.usable);
        self.set_link(bond.id, bond.up);
        if before.is_some_and(|up| up != bond.up) {
            self.hub.publish(name, NicEventKind::BondLink { up: bond.up });
        }
        state.ring_alarm();
    }

    /// Reports changes of members that may carry frames, and of the bond's own link. `lost`: time to move flows, and dropped
    /// frames, if these are known.
    pub(super) fn settle(
        &self,
        name: &str,
        bond: &mut BondEntry,
        noticed: Moment,
        mut lost: Option<(Duration, u64)>,
    ) {
        let before: Vec<bool> = bond.members.iter().map(|m| m.usable).collect();
        bond.note_usable();
        for (i, was) in before.into_iter().enumerate() {
            let (Some(m), Some(port)) = (bond.members.get(i), bond.spec.members.get(i)) else {
                continue;
            };
            if m.usable == was {
                continue;
            }
            let kind = if m.usable {
                NicEventKind::BondMemberBack { bond: name.into() }
            } else {
                let (took, dropped) = *lost.get_or_insert_with(|| (self.done_by(bond.core, noticed), 0));
                bond.failovers += 1;
                bond.last_failover = Some(Failover {
                    port: port.clone(),
                    at: SystemTime::now(),
                    took,
                    dropped,
                });
                NicEventKind::BondMemberLost {
                    bond: name.into(),
                    took,
                    dropped,
                }
            };
            self.hub.publish(port, kind);
        }
        let up = bond.members.iter().any(|m| m.usable);
        if up != bond.up {
            bond.up = up;
            self.set_link(bond.id, up);
            self.hub.publish(name, NicEventKind::BondLink { up });
        }
    }

    /// Time from this moment until a core has executed all earlier orders.
    fn done_by(&self, core: usize, since: Moment) -> Duration {
        // A core that has ended has no orders left.
        self.workers[core].call(|_| ());
        since.elapsed()
    }

    /// Announces the adapters' addresses after frames of a bond moved to another member.
    pub(in crate::nic) fn bond_moved(&self, state: &State, id: PortId) {
        let Some(bond) = state.bonds.values().find(|b| b.id == id) else {
            return;
        };
        for entry in state.adapters.values() {
            entry.adapter.announce(bond.core);
        }
    }
}
