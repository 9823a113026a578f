//! Multicast groups of a subnet (IBTA volume 1, 10.5 and 15.2.5.17): the operator makes them, ports join them. A broadcast group of IPoIB is
//! one (RFC 4391, section 4).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use vnic_wire::gid::Gid;
use vnic_wire::pkey::{FULL_MEMBER, partition};

use super::rate::{mtu_bytes, rate_mbps};

/// Most groups of a subnet.
pub const GROUPS_MAX: usize = 1024;
/// The first LID of a group; the others follow it.
const MLID_FIRST: u16 = 0xc000;
/// Signature of IPoIB in a group's GID, of IPv4 (RFC 4391, section 4).
const IPOIB: [u8; 2] = [0x40, 0x1b];

/// A group, as its maker has described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// Its GID, a multicast address.
    pub mgid: Gid,
    /// P_Key of its partition; that of full members.
    pub pkey: u16,
    /// Queue key of its datagrams.
    pub qkey: u32,
    /// Code of its MTU, 1 to 5: its members' ports have this or a larger one.
    pub mtu: u8,
    /// Code of its rate, 2 to 24: its members' ports are not slower.
    pub rate: u8,
    /// Packet lifetime: 4.096 µs · 2^n, n 0 to 63.
    pub packet_life: u8,
    /// Service level, 0 to 15.
    pub sl: u8,
}

/// A group, and who is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What it is.
    pub spec: GroupSpec,
    /// Its LID, which RoCE does not use.
    pub mlid: u16,
    /// Members by port GUID.
    pub members: BTreeMap<u64, Member>,
}

/// A member of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// The GID of its port by which it has joined.
    pub gid: Gid,
    /// How it has joined: bits of JoinState, 1 full member, 2 non-member, 4 send-only member.
    pub join_state: u8,
}

/// Why there is no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The GID is no multicast address.
    #[error("{0} is no multicast address: a group's GID begins with ff")]
    NotMulticast(Gid),
    /// The P_Key is of no partition.
    #[error("P_Key {0:#06x} is of no partition: 0x0001 to 0x7fff, with or without 0x8000, are allowed")]
    NoPartition(u16),
    /// The queue key is one of privileged queue pairs.
    #[error("Q_Key {0:#010x} is out of range: 0 to 0x7fffffff")]
    QKey(u32),
    /// There is no such MTU.
    #[error("MTU {0} is out of range: codes 1 to 5")]
    Mtu(u8),
    /// There is no such rate.
    #[error("rate {0} is out of range: codes 2 to 24")]
    Rate(u8),
    /// There is no such lifetime.
    #[error("packet lifetime {0} is out of range: 0 to 63")]
    PacketLife(u8),
    /// There is no such service level.
    #[error("service level {0} is out of range: 0 to 15")]
    Sl(u8),
    /// Another group has the GID.
    #[error("the group {1:?} has the GID {0}")]
    Taken(Gid, String),
    /// There is a group of this name.
    #[error("there is a group {0:?}")]
    Exists(String),
    /// There are as many as there may be.
    #[error("there are {GROUPS_MAX} groups, the most that there may be")]
    Full,
}

impl GroupError {
    /// Field of [`GroupSpec`] that is wrong; `None`: it is the name, or the number of groups.
    pub const fn field(&self) -> Option<&'static str> {
        Some(match self {
            GroupError::NotMulticast(_) | GroupError::Taken(..) => "mgid",
            GroupError::NoPartition(_) => "pkey",
            GroupError::QKey(_) => "qkey",
            GroupError::Mtu(_) => "mtu",
            GroupError::Rate(_) => "rate",
            GroupError::PacketLife(_) => "packet_life",
            GroupError::Sl(_) => "sl",
            GroupError::Exists(_) | GroupError::Full => return None,
        })
    }
}

impl GroupSpec {
    /// The GID of IPoIB's broadcast group in a partition (RFC 4391, section 4): link-local scope, signature of IPv4, P_Key,
    /// 255.255.255.255.
    pub fn broadcast_gid(pkey: u16) -> Gid {
        let [upper, lower] = (pkey | FULL_MEMBER).to_be_bytes();
        let [sign, ature] = IPOIB;
        let mut gid = [0; 16];
        gid[..6].copy_from_slice(&[0xff, 0x12, sign, ature, upper, lower]);
        gid[12..].fill(0xff);
        Gid(gid)
    }

    /// Scope of its GID, 4 bits.
    pub fn scope(&self) -> u8 {
        self.mgid.0[1] & 0xf
    }

    fn check(&self) -> Result<(), GroupError> {
        if !self.mgid.is_multicast() {
            return Err(GroupError::NotMulticast(self.mgid));
        }
        if partition(self.pkey) == 0 {
            return Err(GroupError::NoPartition(self.pkey));
        }
        if self.qkey >> 31 != 0 {
            return Err(GroupError::QKey(self.qkey));
        }
        mtu_bytes(self.mtu).ok_or(GroupError::Mtu(self.mtu))?;
        rate_mbps(self.rate).ok_or(GroupError::Rate(self.rate))?;
        match (self.packet_life, self.sl) {
            (64.., _) => Err(GroupError::PacketLife(self.packet_life)),
            (_, 16..) => Err(GroupError::Sl(self.sl)),
            _ => Ok(()),
        }
    }
}

/// The groups of a subnet, by name.
#[derive(Debug, Clone, Default)]
pub struct Groups {
    all: BTreeMap<String, Group>,
}

impl Groups {
    /// Checks whether a group could be made.
    ///
    /// # Errors
    /// A field has a value out of its range, there is such a group already, or there are too many.
    pub fn check(&self, name: &str, spec: &GroupSpec) -> Result<(), GroupError> {
        spec.check()?;
        if self.all.contains_key(name) {
            return Err(GroupError::Exists(name.into()));
        }
        if let Some((other, _)) = self.all.iter().find(|(_, group)| group.spec.mgid == spec.mgid) {
            return Err(GroupError::Taken(spec.mgid, other.clone()));
        }
        match self.all.len() < GROUPS_MAX {
            true => Ok(()),
            false => Err(GroupError::Full),
        }
    }

    /// Makes a group without members.
    ///
    /// # Errors
    /// As [`Groups::check`].
    pub fn create(&mut self, name: &str, spec: GroupSpec) -> Result<(), GroupError> {
        self.check(name, &spec)?;
        let taken: Vec<u16> = self.all.values().map(|group| group.mlid).collect();
        let mlid = (MLID_FIRST..).find(|lid| !taken.contains(lid));
        let group = Group {
            spec,
            mlid: mlid.unwrap_or(MLID_FIRST),
            members: BTreeMap::new(),
        };
        self.all.insert(name.into(), group);
        Ok(())
    }

    /// Removes a group. False: there is none of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        self.all.remove(name).is_some()
    }

    /// All groups, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Group)> {
        self.all.iter().map(|(name, group)| (name.as_str(), group))
    }

    /// The group of a GID, to change its members.
    pub(super) fn by_gid(&mut self, mgid: Gid) -> Option<&mut Group> {
        self.all.values_mut().find(|group| group.spec.mgid == mgid)
    }

    /// Forgets members whose ports are gone.
    pub fn keep_members(&mut self, there: impl Fn(u64) -> bool) {
        for group in self.all.values_mut() {
            group.members.retain(|guid, _| there(*guid));
        }
    }
}
