//! Multicast groups (IBTA 10.5; `ibv_attach_mcast`): which QPs get a copy of a datagram.

use alloc::collections::BTreeMap;

use smallvec::SmallVec;
use vnic_wire::gid::Gid;

use super::limits::{Limits, Usage};
use super::types::{Object, QpNumber, VerbsError};

/// The groups that QPs of this device are attached to.
#[derive(Debug)]
pub struct MulticastGroups {
    groups: BTreeMap<Gid, SmallVec<[QpNumber; 4]>>,
    /// Number of groups of each QP that is in one.
    users: BTreeMap<QpNumber, u32>,
    max_groups: u32,
    max_per_group: u32,
}

impl MulticastGroups {
    /// No groups yet.
    pub fn new(limits: &Limits) -> MulticastGroups {
        MulticastGroups {
            groups: BTreeMap::new(),
            users: BTreeMap::new(),
            max_groups: limits.max_mcast_groups,
            max_per_group: limits.max_mcast_qp_per_group,
        }
    }

    /// Attaches a QP to a group. If it is attached already, nothing changes.
    pub fn attach(&mut self, qp: QpNumber, gid: Gid) -> Result<(), VerbsError> {
        if !gid.is_multicast() {
            return Err(VerbsError::Invalid(
                "a multicast group's GID is a multicast address",
            ));
        }
        let refused = |limit| {
            Err(VerbsError::LimitReached {
                object: Object::Multicast,
                limit,
            })
        };
        let groups = self.groups.len() as u64;
        match self.groups.get_mut(&gid) {
            Some(members) if members.contains(&qp) => return Ok(()),
            Some(members) if members.len() as u64 >= u64::from(self.max_per_group) => {
                return refused(self.max_per_group);
            }
            Some(members) => members.push(qp),
            None if groups >= u64::from(self.max_groups) => return refused(self.max_groups),
            None if self.max_per_group == 0 => return refused(0),
            None => {
                self.groups.insert(gid, SmallVec::from_slice(&[qp]));
            }
        }
        *self.users.entry(qp).or_default() += 1;
        Ok(())
    }

    /// Detaches a QP from a group.
    pub fn detach(&mut self, qp: QpNumber, gid: Gid) -> Result<(), VerbsError> {
        let none = VerbsError::NoSuch(Object::Multicast);
        let members = self.groups.get_mut(&gid).ok_or(none)?;
        let at = members.iter().position(|m| *m == qp).ok_or(none)?;
        // The other members keep their order: copies are delivered in the order of attachment.
        members.remove(at);
        if members.is_empty() {
            self.groups.remove(&gid);
        }
        if let Some(count) = self.users.get_mut(&qp) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(&qp);
            }
        }
        Ok(())
    }

    /// The QPs of a group, in the order in which they were attached.
    #[inline]
    pub fn lookup(&self, gid: Gid) -> &[QpNumber] {
        self.groups.get(&gid).map_or(&[], |members| members)
    }

    /// Number of groups of a QP.
    pub fn users(&self, qp: QpNumber) -> u32 {
        self.users.get(&qp).copied().unwrap_or(0)
    }

    /// Groups in use.
    pub fn usage(&self) -> Usage {
        Usage {
            used: self.groups.len() as u32,
            limit: self.max_groups,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(last: u8) -> Gid {
        Gid::from_ipv4([239, 0, 0, last])
    }

    fn groups(max_mcast_groups: u32, max_mcast_qp_per_group: u32) -> MulticastGroups {
        MulticastGroups::new(&Limits {
            max_mcast_groups,
            max_mcast_qp_per_group,
            ..Limits::default()
        })
    }

    #[test]
    fn members_in_the_order_of_attachment() {
        let mut groups = groups(10, 10);
        for qp in [5, 3, 9, 3] {
            groups.attach(QpNumber(qp), group(1)).expect("there is room");
        }
        groups.attach(QpNumber(3), group(2)).expect("there is room");
        assert_eq!(groups.lookup(group(1)), [QpNumber(5), QpNumber(3), QpNumber(9)]);
        assert_eq!((groups.users(QpNumber(3)), groups.users(QpNumber(4))), (2, 0));
        groups.detach(QpNumber(5), group(1)).expect("it is a member");
        assert_eq!(groups.lookup(group(1)), [QpNumber(3), QpNumber(9)]);
        let none = Err(VerbsError::NoSuch(Object::Multicast));
        assert_eq!(groups.detach(QpNumber(5), group(1)), none);
        assert_eq!(groups.detach(QpNumber(5), group(3)), none);
        groups.detach(QpNumber(3), group(2)).expect("it is a member");
        assert_eq!(groups.usage().used, 1);
        assert_eq!(groups.users(QpNumber(3)), 1);
        assert!(groups.lookup(group(2)).is_empty());
    }

    #[test]
    fn groups_and_members_have_limits() {
        let limit = |limit| {
            Err(VerbsError::LimitReached {
                object: Object::Multicast,
                limit,
            })
        };
        let mut groups = groups(2, 1);
        assert_eq!(groups.attach(QpNumber(2), group(1)), Ok(()));
        assert_eq!(groups.attach(QpNumber(3), group(1)), limit(1));
        assert_eq!(groups.attach(QpNumber(2), group(1)), Ok(()));
        assert_eq!(groups.attach(QpNumber(2), group(2)), Ok(()));
        assert_eq!(groups.attach(QpNumber(2), group(3)), limit(2));
        assert_eq!((groups.users(QpNumber(2)), groups.users(QpNumber(3))), (2, 0));
    }

    #[test]
    fn a_group_has_a_multicast_address() {
        let unicast = Gid::from_ipv4([10, 0, 0, 1]);
        assert!(matches!(
            groups(1, 1).attach(QpNumber(2), unicast),
            Err(VerbsError::Invalid(_))
        ));
    }
}
