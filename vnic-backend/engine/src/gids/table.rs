//! Indices of the entries.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use super::addresses::{Address, Key};
use super::{GidError, GidSource, KINDS, usable};
use crate::rdma::{GidEntry, GidKind};

/// The first index for learned entries; the adapter's own are before it.
const FIRST: u16 = 2;

/// An entry and its origin.
type Slot = (GidEntry, GidSource);

/// The table as it is, and as the device knows it.
#[derive(Debug, Clone)]
pub(super) struct Table {
    mac: MacAddr,
    slots: Vec<Option<Slot>>,
    /// Entries that the operator and the driver have set.
    set: BTreeMap<u16, Slot>,
    /// Indices of the adapter's own entries.
    own: [Option<u16>; 2],
    told: Vec<Option<GidEntry>>,
    changed: bool,
    /// Whether each of [`KINDS`] is allowed.
    allowed: [bool; 2],
}

/// Key of an entry, by which packets find it.
fn key(e: &GidEntry) -> (Gid, GidKind, Option<u16>) {
    (e.gid, e.kind, e.vlan)
}

fn is_allowed(allowed: [bool; 2], kind: GidKind) -> bool {
    KINDS.iter().zip(allowed).any(|(k, yes)| yes && *k == kind)
}

impl Table {
    /// An empty table.
    pub fn new(mac: MacAddr, len: u16) -> Table {
        Table {
            mac,
            slots: vec![None; len.into()],
            set: BTreeMap::new(),
            own: [Some(0), Some(1)],
            told: vec![None; len.into()],
            changed: false,
            allowed: [true; 2],
        }
    }

    /// Allows entries of these kinds only. True: [`Table::place`] must follow.
    pub fn allow(&mut self, kinds: &[GidKind]) -> bool {
        let allowed = KINDS.map(|kind| kinds.contains(&kind));
        core::mem::replace(&mut self.allowed, allowed) != allowed
    }

    fn len(&self) -> u16 {
        self.slots.len() as u16
    }

    fn slot(&self, index: u16) -> Result<Option<&Slot>, GidError> {
        match self.slots.get(usize::from(index)) {
            Some(slot) => Ok(slot.as_ref()),
            None => Err(GidError::Index {
                index,
                len: self.len(),
            }),
        }
    }

    /// Puts an entry where the operator or the driver wants it; [`Table::place`] must follow.
    pub fn fill(&mut self, index: Option<u16>, mut entry: GidEntry, by: GidSource) -> Result<u16, GidError> {
        if !usable(entry.gid) {
            return Err(GidError::NotUnicast);
        }
        if let Some(vlan) = entry.vlan.filter(|v| !(1..=4094).contains(v)) {
            return Err(GidError::Vlan(vlan));
        }
        if entry.mac == MacAddr::default() {
            entry.mac = self.mac;
        }
        if entry.mac != self.mac {
            return Err(GidError::Mac(entry.mac));
        }
        if !is_allowed(self.allowed, entry.kind) {
            return Err(GidError::Kind);
        }
        if let Some(at) = index {
            self.may_change(at, by)?;
        }
        let same = self.entries().find(|(_, e, _)| key(e) == key(&entry));
        let at = match (index, same) {
            // A learned entry gives way.
            (Some(at), Some((_, _, source))) if source.is_learned() => at,
            (None, Some((there, _, source))) if source.is_learned() => there,
            (Some(at), Some((there, ..))) if at == there => at,
            (_, Some((there, ..))) => return Err(GidError::Exists(there)),
            (Some(at), None) => at,
            (None, None) => {
                // A hidden entry keeps its place.
                let free = |i: &u16| self.slots[usize::from(*i)].is_none() && !self.set.contains_key(i);
                let free = (FIRST..self.len()).find(free);
                free.ok_or(GidError::Full(self.len()))?
            }
        };
        self.set.insert(at, (entry, by));
        Ok(at)
    }

    /// Clears an entry of the operator or the driver; [`Table::place`] must follow. For a learned entry, returns
    /// the address to forget.
    pub fn clear(&mut self, index: u16, by: GidSource) -> Result<Option<Key>, GidError> {
        self.may_change(index, by)?;
        match self.slot(index)? {
            None if by == GidSource::Driver => {}
            None => return Err(GidError::Empty(index)),
            Some((_, source @ GidSource::Mac)) => {
                return Err(GidError::Held {
                    index,
                    holder: *source,
                    cure: "the adapter's own entries are always there; another GID can be set over one",
                });
            }
            Some((_, GidSource::Operator | GidSource::Driver)) => {
                self.set.remove(&index);
            }
            Some((e, _)) => return Ok(Some((e.gid, e.vlan))),
        }
        Ok(None)
    }

    fn may_change(&self, index: u16, by: GidSource) -> Result<(), GidError> {
        match self.slot(index)? {
            Some((_, source @ GidSource::Operator)) if by == GidSource::Driver => Err(GidError::Held {
                index,
                holder: *source,
                cure: "the operator can clear it",
            }),
            _ => Ok(()),
        }
    }

    /// Forgets the driver's entries. True: [`Table::place`] must follow.
    pub fn forget_driver(&mut self) -> bool {
        let before = self.set.len();
        self.set.retain(|_, (_, source)| *source != GidSource::Driver);
        self.set.len() != before
    }

    /// Gives each entry its index: entries that were set, where they were set; the adapter's own at the
    /// beginning; the others where they were, or at the lowest free index. No GID is in the table twice.
    pub fn place(&mut self, addresses: &mut [Address]) {
        let mut slots: Vec<Option<Slot>> = vec![None; self.slots.len()];
        let mut keys = BTreeSet::new();
        let allowed = self.allowed;
        for (at, slot) in self.set.iter().filter(|(_, s)| is_allowed(allowed, s.0.kind)) {
            slots[usize::from(*at)] = Some(*slot);
            keys.insert(key(&slot.0));
        }
        let entry = |gid, kind, vlan| GidEntry {
            gid,
            kind,
            vlan,
            mac: self.mac,
        };
        let mut put = |slots: &mut [Option<Slot>], at: Option<u16>, slot: Slot| -> Option<u16> {
            let at = at.filter(|_| is_allowed(allowed, slot.0.kind))?;
            let place = slots.get_mut(usize::from(at)).filter(|s| s.is_none())?;
            if !keys.insert(key(&slot.0)) {
                return None;
            }
            *place = Some(slot);
            Some(at)
        };
        let own = |i: usize| (entry(Gid::from_mac(self.mac), KINDS[i], None), GidSource::Mac);
        // At home, if that is free; otherwise they stay where they went.
        let mut next = [None; 2];
        for (i, at) in next.iter_mut().enumerate() {
            let away = self.own[i].filter(|at| *at >= FIRST);
            let home = put(&mut slots, Some(i as u16), own(i));
            *at = home.or_else(|| put(&mut slots, away, own(i)));
        }
        for a in addresses.iter_mut() {
            for (kind, at) in KINDS.into_iter().zip(&mut a.at) {
                *at = put(&mut slots, *at, (entry(a.gid, kind, a.vlan), a.source));
            }
        }
        // Entries without an index.
        let mut free = FIRST;
        let mut lowest = |slots: &[Option<Slot>]| -> Option<u16> {
            while slots.get(usize::from(free))?.is_some() {
                free += 1;
            }
            Some(free)
        };
        for (i, at) in next.iter_mut().enumerate() {
            if at.is_none() {
                let free = lowest(&slots);
                *at = put(&mut slots, free, own(i));
            }
        }
        for a in addresses {
            for (kind, at) in KINDS.into_iter().zip(&mut a.at) {
                if at.is_none() {
                    let free = lowest(&slots);
                    *at = put(&mut slots, free, (entry(a.gid, kind, a.vlan), a.source));
                }
            }
        }
        self.own = next;
        self.changed |= self.slots != slots;
        self.slots = slots;
    }

    /// Filled entries by index.
    pub fn entries(&self) -> impl Iterator<Item = (u16, GidEntry, GidSource)> {
        (0..)
            .zip(&self.slots)
            .filter_map(|(at, slot)| slot.map(|(entry, source)| (at, entry, source)))
    }

    /// Whether there may be something in [`Table::changes`].
    #[inline]
    pub fn changed(&self) -> bool {
        self.changed
    }

    /// Forgets what the device knows: its table is empty.
    pub fn retell(&mut self) {
        self.told.fill(None);
        self.changed = true;
    }

    /// Changes that the device does not know yet: first cleared entries, then filled ones.
    pub fn changes(&mut self) -> Vec<(u16, Option<GidEntry>)> {
        let mut changes = Vec::new();
        if !core::mem::take(&mut self.changed) {
            return changes;
        }
        let rows = || (0u16..).zip(self.slots.iter().map(|s| s.map(|(e, _)| e)).zip(&self.told));
        let differ = rows().filter(|(_, (is, told))| is != *told);
        changes.extend(
            differ
                .clone()
                .filter(|(_, (_, told))| told.is_some())
                .map(|(at, _)| (at, None)),
        );
        changes.extend(
            differ
                .filter(|(_, (is, _))| is.is_some())
                .map(|(at, (is, _))| (at, is)),
        );
        for (told, slot) in self.told.iter_mut().zip(&self.slots) {
            *told = slot.map(|(e, _)| e);
        }
        changes
    }
}
