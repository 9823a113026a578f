//! Resources of the daemon that the VMMs of an adapter hold: memory regions and descriptors, on both of its sockets together.
//! Processes that share its RDMA function have the same limits, each for itself, and a limit together.

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
    /// Memory regions of processes, beyond the [`part`](Budgets::part) of each.
    processes: Mutex<u32>,
}

impl Budgets {
    /// Budgets of which nothing is used.
    pub fn new(limits: VmmLimits) -> Budgets {
        Budgets {
            limits,
            used: Mutex::default(),
            processes: Mutex::default(),
        }
    }

    /// Memory regions that each process gets, however many the others have: a 32nd of the limit. Those beyond are at most twice
    /// the limit for all processes.
    fn part(&self) -> u32 {
        (self.limits.regions / 32).max(1)
    }

    /// Replaces a process's number of memory regions. Without room nothing changes.
    fn exchange_process(&self, old: u32, new: u32) -> Result<()> {
        let beyond = |regions: u32| regions.saturating_sub(self.part());
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        let (rest, most) = (*processes - beyond(old), 2 * self.limits.regions);
        if new > old && beyond(new) > 0 && beyond(new) > most.saturating_sub(rest) {
            return refused(&format!(
                "the processes of this adapter may have {most} memory regions (twice vmm_regions) beyond {} of each, and would have {}",
                self.part(),
                rest.saturating_add(beyond(new))
            ));
        }
        *processes = rest + beyond(new);
        Ok(())
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

fn refused(why: &str) -> Result<()> {
    Err(Error::ReqHandlerError(io::Error::other(why)))
}

/// A connection's share of the budgets, which ends with it.
#[derive(Debug)]
pub struct Share {
    budgets: Arc<Budgets>,
    has: [u32; 2],
    /// Whether it is that of a process that shares the function.
    process: bool,
}

impl Share {
    /// The share of a new connection, for which there is always room.
    pub fn new(budgets: Arc<Budgets>) -> Share {
        let has = [0, CONNECTION];
        budgets.used()[Of::Descriptors as usize] += CONNECTION;
        Share {
            budgets,
            has,
            process: false,
        }
    }

    /// Makes this the share of a process. It has nothing but its connection yet.
    pub fn of_process(&mut self) {
        self.process = true;
        for (used, has) in self.budgets.used().iter_mut().zip(self.has) {
            *used -= has;
        }
    }

    /// Replaces `old` of the share by `new`. Without room it is refused, and nothing changes.
    pub fn exchange(&mut self, of: Of, old: usize, new: usize) -> Result<()> {
        let (i, limit) = (of as usize, self.budgets.limit(of));
        let old = u32::try_from(old).unwrap_or(u32::MAX).min(self.has[i]);
        let new = u32::try_from(new).unwrap_or(u32::MAX);
        if self.process {
            let all = (self.has[i] - old).saturating_add(new);
            if new > old && all > limit {
                return refused(&format!(
                    "a process may have {limit} {} ({}), and would have {all}",
                    of.what(),
                    of.key()
                ));
            }
            if of == Of::Regions {
                self.budgets.exchange_process(self.has[i], all)?;
            }
            self.has[i] = all;
            return Ok(());
        }
        let mut used = self.budgets.used();
        let rest = used[i] - old;
        if new > old && new > limit.saturating_sub(rest) {
            let why = format!(
                "the VMMs of this adapter may have {limit} {} ({}), and would have {}",
                of.what(),
                of.key(),
                rest.saturating_add(new)
            );
            return refused(&why);
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
        if self.process {
            let _ = self.budgets.exchange_process(self.has[Of::Regions as usize], 0);
            return;
        }
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
    fn processes_have_limits_of_their_own_and_one_together() {
        let limits = VmmLimits {
            regions: 64,
            descriptors: 12,
        };
        let budgets = Arc::new(Budgets::new(limits));
        let vmm = Share::new(budgets.clone());
        let mut all: Vec<Share> = (0..64).map(|_| Share::new(budgets.clone())).collect();
        all.iter_mut().for_each(Share::of_process);
        assert_eq!(budgets.get(Of::Descriptors).used, 4, "the VMM's connection");
        for share in &mut all {
            share.exchange(Of::Descriptors, 0, 8).expect("room");
            assert!(share.exchange(Of::Descriptors, 0, 1).is_err());
        }
        // Two have all that they may, and one some of it: then all is gone but what is each one's own.
        for share in &mut all[..2] {
            share.exchange(Of::Regions, 0, 64).expect("room");
            let why = share
                .exchange(Of::Regions, 0, 1)
                .expect_err("no room")
                .to_string();
            assert!(
                why.contains("64 memory regions (vmm_regions), and would have 65"),
                "{why}"
            );
        }
        all[2].exchange(Of::Regions, 0, 6).expect("room");
        let why = all[2]
            .exchange(Of::Regions, 0, 1)
            .expect_err("no room")
            .to_string();
        assert!(
            why.contains("128 memory regions (twice vmm_regions) beyond 2 of each"),
            "{why}"
        );
        for share in &mut all[3..] {
            share.exchange(Of::Regions, 0, 2).expect("its own");
            assert!(share.exchange(Of::Regions, 0, 1).is_err());
        }
        // What a process leaves, others get.
        all.remove(0);
        all[5].exchange(Of::Regions, 2, 64).expect("room");
        drop((all, vmm));
        assert_eq!(
            (
                *budgets.processes.lock().expect("there"),
                budgets.get(Of::Descriptors).used
            ),
            (0, 0)
        );
    }

    #[test]
    fn the_least_budget_has_room_for_both_connections() {
        assert!(*crate::types::VMM_DESCRIPTORS_RANGE.start() >= 2 * CONNECTION);
        let all = 2 * (CONNECTION + 2 * 16 + 1 + 3);
        assert_eq!(VmmLimits::default().descriptors, all);
    }
}
