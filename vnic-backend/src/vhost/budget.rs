//! Resources of the daemon that the VMMs of an adapter hold: memory regions and descriptors, on both of its sockets together.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vhost::vhost_user::{Error, Result};

use crate::types::{Budget, VmmLimits};

/// Descriptors of a connection: three of its socket, and one of the VMM's channel for requests of the device.
const CONNECTION: u32 = 4;

/// A limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Mappings of files that VMMs share.
    Regions,
    /// Files that VMMs gave and that stay open.
    Descriptors,
}

impl Of {
    /// Name of the resource.
    fn what(self) -> &'static str {
        match self {
            Of::Regions => "memory regions",
            Of::Descriptors => "descriptors",
        }
    }

    /// Key of the limit in the adapter's configuration.
    fn key(self) -> &'static str {
        match self {
            Of::Regions => "vmm_regions",
            Of::Descriptors => "vmm_descriptors",
        }
    }
}

/// Both budgets of an adapter.
#[derive(Debug)]
pub struct Budgets {
    limits: VmmLimits,
    /// Used amounts, by [`Of`].
    used: Mutex<[u32; 2]>,
}

impl Budgets {
    /// Budgets of which nothing is used.
    pub fn new(limits: VmmLimits) -> Budgets {
        Budgets {
            limits,
            used: Mutex::default(),
        }
    }

    fn used(&self) -> MutexGuard<'_, [u32; 2]> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn limit(&self, of: Of) -> u32 {
        match of {
            Of::Regions => self.limits.regions,
            Of::Descriptors => self.limits.descriptors,
        }
    }

    /// Used amount and limit.
    pub fn get(&self, of: Of) -> Budget {
        Budget {
            used: self.used()[of as usize].into(),
            limit: self.limit(of).into(),
        }
    }
}

/// A connection's share of the budgets, which ends with it.
#[derive(Debug)]
pub struct Share {
    budgets: Arc<Budgets>,
    has: [u32; 2],
}

impl Share {
    /// The share of a new connection, for which there is always room.
    pub fn new(budgets: Arc<Budgets>) -> Share {
        let has = [0, CONNECTION];
        budgets.used()[Of::Descriptors as usize] += CONNECTION;
        Share { budgets, has }
    }

    /// Replaces `old` of the share by `new`. Without room it is refused, and nothing changes.
    pub fn exchange(&mut self, of: Of, old: usize, new: usize) -> Result<()> {
        let (i, limit) = (of as usize, self.budgets.limit(of));
        let mut used = self.budgets.used();
        let old = u32::try_from(old).unwrap_or(u32::MAX).min(self.has[i]);
        let (rest, new) = (used[i] - old, u32::try_from(new).unwrap_or(u32::MAX));
        if new > old && new > limit.saturating_sub(rest) {
            let why = format!(
                "the VMMs of this adapter may have {limit} {} ({}), and would have {}",
                of.what(),
                of.key(),
                rest.saturating_add(new)
            );
            return Err(Error::ReqHandlerError(io::Error::other(why)));
        }
        used[i] = rest + new;
        self.has[i] = self.has[i] - old + new;
        Ok(())
    }

    /// Number of memory regions that a VMM is offered, out of the wanted number.
    pub fn slots(&self, wanted: usize) -> usize {
        wanted.min(self.budgets.limits.regions as usize)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for (used, has) in self.budgets.used().iter_mut().zip(self.has) {
            *used -= has;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_connections_share_what_the_adapter_has() {
        let limits = VmmLimits {
            regions: 5,
            descriptors: 9,
        };
        let budgets = Arc::new(Budgets::new(limits));
        let used = |of| budgets.get(of).used;
        let (mut one, mut two) = (Share::new(budgets.clone()), Share::new(budgets.clone()));
        assert_eq!((used(Of::Regions), used(Of::Descriptors)), (0, 8));
        one.exchange(Of::Regions, 0, 3).expect("room");
        two.exchange(Of::Regions, 0, 2).expect("room");
        let why = two.exchange(Of::Regions, 0, 1).expect_err("no room").to_string();
        assert!(
            why.contains("5 memory regions (vmm_regions), and would have 6"),
            "{why}"
        );
        assert!(one.exchange(Of::Regions, 3, 4).is_err());
        assert_eq!(used(Of::Regions), 5);
        // One region replaces another.
        one.exchange(Of::Regions, 3, 3).expect("the same");
        one.exchange(Of::Descriptors, 0, 1).expect("room");
        one.exchange(Of::Descriptors, 1, 1).expect("the same");
        let why = two
            .exchange(Of::Descriptors, 0, 1)
            .expect_err("no room")
            .to_string();
        assert!(why.contains("9 descriptors (vmm_descriptors)"), "{why}");
        assert!(two.exchange(Of::Regions, 0, usize::MAX).is_err());
        // A connection cannot give back another one's share.
        two.exchange(Of::Regions, 5, 0).expect("less");
        assert_eq!(used(Of::Regions), 3);
        drop(one);
        assert_eq!((used(Of::Regions), used(Of::Descriptors)), (0, 4));
        drop(two);
        assert_eq!((used(Of::Regions), used(Of::Descriptors)), (0, 0));
    }

    #[test]
    fn the_least_budget_has_room_for_both_connections() {
        assert!(*crate::types::VMM_DESCRIPTORS_RANGE.start() >= 2 * CONNECTION);
        let all = 2 * (CONNECTION + 2 * 16 + 3);
        assert_eq!(VmmLimits::default().descriptors, all);
    }
}
