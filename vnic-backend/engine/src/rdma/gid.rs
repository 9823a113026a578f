//! The GID table of a port (IBTA 4.1.1 and annex A17): the port's addresses, and how packets of each travel.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use super::limits::{Usage, in_range};
use super::types::{Object, VerbsError};

/// How packets of an entry travel (`ibv_gid_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GidKind {
    /// RoCEv1: a GRH behind EtherType 0x8915 (annex A16).
    RoceV1,
    /// RoCEv2: IP and UDP port 4791 (annex A17).
    RoceV2,
}

/// An entry of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GidEntry {
    /// Address.
    pub gid: Gid,
    /// How packets of the entry travel.
    pub kind: GidKind,
    /// VLAN of its interface, 1..=4094.
    pub vlan: Option<u16>,
    /// Ethernet address of its interface.
    pub mac: MacAddr,
}

/// Key of an entry, by which packets find it.
type Key = (Gid, GidKind, Option<u16>);

impl GidEntry {
    fn key(&self) -> Key {
        (self.gid, self.kind, self.vlan)
    }
}

/// The GID table. It takes memory only for the indices that were used.
#[derive(Debug)]
pub struct GidTable {
    entries: Vec<Option<GidEntry>>,
    index: BTreeMap<Key, u16>,
    len: u16,
}

impl GidTable {
    /// An empty table with room for `len` entries.
    pub fn new(len: u16) -> GidTable {
        GidTable {
            entries: Vec::new(),
            index: BTreeMap::new(),
            len,
        }
    }

    /// Fills the entry at `index`, or clears it. The same address, kind and VLAN cannot be there twice (IBTA 4.1.1:
    /// GIDs of a port are unique).
    pub fn set(&mut self, index: u16, entry: Option<GidEntry>) -> Result<(), VerbsError> {
        self.check_index(index)?;
        if let Some(entry) = &entry {
            check(entry)?;
            if self.index.get(&entry.key()).is_some_and(|at| *at != index) {
                return Err(VerbsError::Invalid("the GID is in the table already"));
            }
        }
        let at = usize::from(index);
        if self.entries.len() <= at {
            if entry.is_none() {
                return Ok(());
            }
            self.entries.resize(at + 1, None);
        }
        if let Some(old) = core::mem::replace(&mut self.entries[at], entry) {
            self.index.remove(&old.key());
        }
        if let Some(entry) = entry {
            self.index.insert(entry.key(), index);
        }
        Ok(())
    }

    /// The entry at an index.
    #[inline]
    pub fn by_index(&self, index: u16) -> Option<&GidEntry> {
        self.entries.get(usize::from(index))?.as_ref()
    }

    /// The entry at an index, or why there is none.
    pub fn get(&self, index: u16) -> Result<&GidEntry, VerbsError> {
        self.check_index(index)?;
        self.by_index(index).ok_or(VerbsError::NoSuch(Object::Gid))
    }

    /// Index of the entry for packets to this address on this VLAN. VLAN 0 is a priority tag and means none
    /// (IEEE 802.1Q clause 6.9).
    #[inline]
    pub fn find(&self, gid: Gid, kind: GidKind, vlan: Option<u16>) -> Option<u16> {
        let vlan = vlan.filter(|v| *v != 0);
        self.index.get(&(gid, kind, vlan)).copied()
    }

    /// Filled entries by index.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &GidEntry)> {
        (0..)
            .zip(&self.entries)
            .filter_map(|(at, e)| Some((at, e.as_ref()?)))
    }

    /// Filled entries, and how many there may be.
    pub fn usage(&self) -> Usage {
        Usage {
            used: self.index.len() as u32,
            limit: self.len.into(),
        }
    }

    fn check_index(&self, index: u16) -> Result<(), VerbsError> {
        in_range(
            "GID index",
            index.into(),
            0,
            u64::from(self.len).saturating_sub(1),
        )?;
        if self.len == 0 {
            return Err(VerbsError::NoSuch(Object::Gid));
        }
        Ok(())
    }
}

fn check(entry: &GidEntry) -> Result<(), VerbsError> {
    if entry.gid == Gid::UNSPECIFIED || entry.gid.is_multicast() {
        return Err(VerbsError::Invalid("a GID of a port is a unicast address"));
    }
    if entry.mac.is_multicast() {
        return Err(VerbsError::Invalid(
            "the Ethernet address of a GID is a unicast address",
        ));
    }
    match entry.vlan {
        Some(vlan) => in_range("VLAN", vlan, 1, 4094),
        None => Ok(()),
    }
}
