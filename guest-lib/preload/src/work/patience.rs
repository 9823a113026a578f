//! Programs that poll for ever, on machines with fewer CPUs than there are of them.
//!
//! A network card works while its driver burns a CPU. Ours is a program as well: on a machine with few CPUs (a container
//! of a build, say) whoever polls without end keeps from running what he waits for, until his time slice is over. So
//! after a while of finding nothing he offers the CPU now and then, which costs little where there are enough of them.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Polls in a row that may find nothing, for free.
const FREE: u32 = 256;

/// From then on the CPU is offered once in so many.
const EVERY: u32 = 16;

/// How long nothing was found. Threads that poll at once may miscount: nothing depends on it.
#[derive(Debug, Default)]
pub struct Patience(AtomicU32);

impl Patience {
    /// A poll found so many.
    #[inline]
    pub fn found(&self, count: usize) {
        let missed = self.0.load(Relaxed);
        if count > 0 {
            if missed > 0 {
                self.0.store(0, Relaxed);
            }
        } else {
            self.miss(missed);
        }
    }

    #[inline]
    fn miss(&self, missed: u32) {
        if missed < FREE + EVERY - 1 {
            self.0.store(missed + 1, Relaxed);
        } else {
            self.0.store(FREE, Relaxed);
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_after_a_while_and_begins_anew_with_success() {
        let patience = Patience::default();
        let missed = |n: u32| {
            (0..n).for_each(|_| patience.found(0));
            patience.0.load(Relaxed)
        };
        assert_eq!(missed(FREE), FREE);
        assert_eq!(missed(EVERY - 1), FREE + EVERY - 1);
        assert_eq!(missed(1), FREE, "the CPU was offered");
        patience.found(3);
        assert_eq!(missed(1), 1);
    }
}
