//! Memory of the daemon for the objects of processes that share a function: all of them together have as much as the function,
//! and each always gets a part, however much the others take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vnic_device::status::CommandStatus as S;
use vnic_engine::rdma::{Limits, Place};

use super::config;
use super::request::{Outcome, fail};

/// One part in so many of a function's memory is kept for those who have little.
const KEPT: u64 = 4;
/// Bytes of an extent, by the account of the engine's limits.
const EXTENT: u64 = 64;

/// Memory of a function: what its processes take beyond the parts that are theirs in any case.
#[derive(Debug)]
struct Pool {
    taken: AtomicU64,
    /// Most bytes that may be taken.
    common: u64,
    /// Bytes that each process has in any case.
    own: u64,
}

/// What the objects of one process take. It is given back with the process.
#[derive(Debug)]
pub struct MemoryShare {
    pool: Arc<Pool>,
    /// Bytes taken of the pool.
    taken: u64,
}

impl MemoryShare {
    /// The share of the first process of a function with these limits.
    pub fn new(limits: &Limits) -> MemoryShare {
        let all = config::for_objects(limits);
        let kept = all / KEPT;
        MemoryShare {
            pool: Arc::new(Pool {
                taken: AtomicU64::new(0),
                common: all - kept,
                own: kept / u64::from(Place::COUNT),
            }),
            taken: 0,
        }
    }

    /// The share of another process of the same function.
    pub fn beside(&self) -> MemoryShare {
        MemoryShare {
            pool: self.pool.clone(),
            taken: 0,
        }
    }

    /// Notes that the process's objects take `used` bytes, and checks whether it may have one more with so many extents.
    pub fn room(&mut self, used: u64, extents: u32) -> Outcome {
        let Pool { taken, common, own } = &*self.pool;
        let now = used.saturating_sub(*own);
        // All processes of a function are on one data core: nobody else changes it meanwhile.
        let others = taken.load(Ordering::Relaxed) - self.taken;
        taken.store(others + now, Ordering::Relaxed);
        self.taken = now;
        let wanted = used + 1 + EXTENT * u64::from(extents);
        if wanted > *own && wanted - own > common.saturating_sub(others) {
            let text = format!(
                "the processes of this adapter have all {common} bytes that they may share, {} of them this one; each has {own} \
                 besides (rdma_memory_mib)",
                now.min(*common)
            );
            return fail(S::LimitReached, text);
        }
        Ok(())
    }

    /// The process has no objects any more.
    pub fn give_back(&mut self) {
        self.pool
            .taken
            .fetch_sub(std::mem::take(&mut self.taken), Ordering::Relaxed);
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_together_have_as_much_as_the_function_and_each_has_its_part() {
        let limits = Limits::default();
        let all = config::for_objects(&limits);
        let mut first = MemoryShare::new(&limits);
        let own = first.pool.own;
        assert_eq!(own, all / 4 / 64);
        // One that takes all it can get.
        let mut used = 0;
        while first.room(used, 0).is_ok() {
            used += 1 << 20;
        }
        assert!(used <= all - 63 * own + (1 << 20), "{used} of {all}");
        let mut others: Vec<MemoryShare> = (0..63).map(|_| first.beside()).collect();
        for other in &mut others {
            assert!(other.room(0, 0).is_ok() && other.room(own - 1, 0).is_ok());
            assert!(other.room(own, 0).is_err(), "the rest is taken");
            assert!(other.room(0, (own / 64) as u32).is_err());
        }
        // What one gives back, another gets.
        assert!(first.room(0, 0).is_ok());
        assert!(others[0].room(own, 1000).is_ok());
        assert!(others[0].room(used / 2, 0).is_ok());
        drop(others);
        assert_eq!(first.pool.taken.load(Ordering::Relaxed), 0);
        assert!(first.room(used - (2 << 20), 0).is_ok());
    }
}
