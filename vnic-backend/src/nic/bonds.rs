//! Bonds of the control plane.
//!
//! A bond is added, changed and removed under the lock of the state, and everything is checked first: a refused call has no
//! effect. [`links`] follows the links of the members, [`lacp`] runs LACP.

mod check;
mod lacp;
mod links;

use vnic_fabric::lag::Bond;
use vnic_fabric::switch::PortConfig;
use vnic_wire::vlan::Tci;

use super::state::{BondEntry, PortEntry, State, not_found};
use super::{Inner, Nic, mirrors, wait};
use crate::datapath::{BondSetup, BondSide};
use crate::rehearsal::acts;
use crate::types::lag::{Affinity, Member, View};
use crate::types::*;

impl Nic {
    /// Adds a bond, or gives the bond of this name other members and settings: completely, or not at all. A port that leaves
    /// the bond is a port of the switch again. With the same members and the same LACP settings, partners notice nothing.
    pub fn set_bond(&self, spec: BondSpec) -> Result<BondStatus, NicError> {
        let mut state = self.inner.state()?;
        let plan = check::plan(&spec, &state)?;
        acts()?;
        if spec.lacp.is_some() {
            self.inner.set_alarm(&mut state)?;
        }
        let name = spec.name.clone();
        let before = state.bonds.remove(&name);
        let was_up = before.as_ref().map(|b| b.up);
        let id = before.as_ref().map_or_else(|| state.free_id(), |b| b.id);
        let members: Vec<PortId> = plan.members.iter().map(|m| m.id).collect();
        // Ports that become ports of the switch again.
        let mut left = Vec::new();
        let mut speaker = None;
        let (mut failovers, mut last_failover) = (0, None);
        if let Some(mut before) = before {
            let same = before.core == plan.core && before.ids().eq(members.iter().copied());
            if !same {
                self.inner.unbond(&state, &before);
                left.extend(before.ids().filter(|id| !members.contains(id)));
            }
            speaker = before.lacp.take_if(|s| same && s.adopt(&spec));
            if same {
                (failovers, last_failover) = (before.failovers, before.last_failover);
            }
        }
        let mut bond = plan.bond;
        let mut entry = BondEntry {
            id,
            core: plan.core,
            members: plan.members,
            up: false,
            failovers,
            last_failover,
            lacp: speaker.or(plan.speaker),
            spec,
        };
        entry.inherit(&mut bond);
        self.inner.bond(&entry, &members, bond);
        state.names.insert(id, name.clone());
        state.bonds.insert(name.clone(), entry);
        for port in left {
            self.inner.set_link(port, state.port_is_up(port));
        }
        if was_up.is_none() {
            self.inner.hub.publish(&name, NicEventKind::BondAdded);
        }
        self.inner.bond_begins(&mut state, &name, was_up);
        self.inner.silence(&mut state);
        mirrors::bind(&self.inner, &state);
        Ok(state.bond(&name)?.status())
    }

    /// Removes a bond; its ports are ports of the switch again.
    pub fn remove_bond(&self, name: &str) -> Result<(), NicError> {
        let entry = {
            let mut state = self.inner.state()?;
            state.bond(name)?;
            acts()?;
            let entry = state.bonds.remove(name).ok_or_else(|| not_found("bond", name))?;
            self.inner.end_bond(&state, &entry);
            for port in entry.ids() {
                self.inner.set_link(port, state.port_is_up(port));
            }
            self.inner.silence(&mut state);
            entry
        };
        self.inner.forget(entry.id, name);
        self.inner.hub.publish(name, NicEventKind::BondRemoved);
        Ok(())
    }

    /// Status of a bond.
    pub fn bond(&self, name: &str) -> Result<BondStatus, NicError> {
        Ok(self.inner.state()?.bond(name)?.status())
    }

    /// Status of all bonds, by name.
    pub fn bonds(&self) -> Vec<BondStatus> {
        let state = self.inner.lock();
        state.bonds.values().map(BondEntry::status).collect()
    }

    /// Members of a bond with their queue pairs and flows, and how even the load is.
    pub fn bond_view(&self, name: &str) -> Result<View, NicError> {
        let view = {
            let state = self.inner.state()?;
            let entry = state.bond(name)?;
            let id = entry.id;
            self.inner.workers[entry.core].start_ask(move |w| w.core.out.bond_view(id, w.core.now))
        };
        // Without an answer the bond was removed meanwhile.
        view.wait().flatten().ok_or_else(|| not_found("bond", name))
    }

    /// Assigns a queue pair or flow to a member; without a member its hash assigns it again. The affinity becomes part of the
    /// bond's [`BondSpec::affinities`].
    pub fn set_bond_affinity(
        &self,
        name: &str,
        what: Affinity,
        member: Option<Member>,
    ) -> Result<(), NicError> {
        let mut state = self.inner.state()?;
        let entry = state.bonds.get_mut(name).ok_or_else(|| not_found("bond", name))?;
        let at = entry.spec.affinities.iter().position(|(w, _)| *w == what);
        if member.is_none() && at.is_none() {
            let problem = "there is none for this; the view of the bond shows those there are";
            return invalid("affinity", problem);
        }
        acts()?;
        let id = entry.id;
        let set = self.inner.workers[entry.core]
            .call(move |w| w.core.out.bond_affinity(id, what, member, w.core.now));
        set.ok_or(NicError::ShuttingDown)??;
        let all = &mut entry.spec.affinities;
        match (member, at) {
            (Some(member), Some(i)) => all[i].1 = member,
            (Some(member), None) => all.push((what, member)),
            (None, Some(i)) => drop(all.remove(i)),
            (None, None) => {}
        }
        Ok(())
    }
}

impl Inner {
    /// Sends a bond to the cores and waits until they have it.
    fn bond(&self, entry: &BondEntry, members: &[PortId], bond: Bond) {
        let up = (0..).map(Member).zip(&entry.members).filter(|(_, m)| m.up);
        let mut setup = Some(Box::new(BondSetup {
            bond,
            members: members.to_vec(),
            tag: entry.spec.tag.map(|(vid, pcp)| Tci::new(pcp, false, vid)),
            up: up.map(|(i, _)| i).collect(),
        }));
        let mut answers = Vec::new();
        for (core, w) in self.workers.iter().enumerate() {
            let own = if core == entry.core { setup.take() } else { None };
            let config = PortConfig {
                vlan: entry.spec.vlan.clone(),
                learning: true,
                ..PortConfig::default()
            };
            let side = own.map_or(BondSide::Remote(entry.core), BondSide::Local);
            let (id, members) = (entry.id, members.to_vec());
            answers.push(w.start(move |w| w.set_bond(id, config, members, side)));
        }
        wait(answers);
    }

    /// Makes the members ports of the switch again; their links are down there.
    fn unbond(&self, state: &State, entry: &BondEntry) {
        let config = |id| {
            let port = state.ports.values().find(|p| p.id == id);
            (id, port.map(PortEntry::config).unwrap_or_default())
        };
        let members: Vec<_> = entry.ids().map(config).collect();
        let id = entry.id;
        self.everywhere(move |w| w.unbond(id, members));
    }

    /// Removes a bond from the cores.
    fn end_bond(&self, state: &State, entry: &BondEntry) {
        self.unbond(state, entry);
        self.remove_from_cores(entry.id);
    }

    /// Removes all bonds at the end of the NIC.
    pub(super) fn end_bonds(&self, state: &mut State) {
        for entry in std::mem::take(&mut state.bonds).into_values() {
            self.end_bond(state, &entry);
        }
        self.silence(state);
    }
}

impl State {
    fn port_is_up(&self, port: PortId) -> bool {
        self.ports.values().any(|p| p.id == port && p.up)
    }
}
