//! Polling without end, on machines with fewer CPUs than polling threads.
//!
//! A network card works while its driver burns a CPU. Our device is a program as well: on a machine with few CPUs (a
//! build container, for example) a thread that polls without end keeps the device from running, until its time slice is
//! over. So after many polls that find nothing, a thread offers the CPU now and then, which costs little on a machine
//! with many.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Polls in a row that may find nothing before the thread offers the CPU.
const FREE: u32 = 256;

/// From then on the thread offers the CPU once in so many polls.
const EVERY: u32 = 16;

/// Polls in a row that found nothing. Threads that poll at the same time may miscount: nothing depends on it.
#[derive(Debug, Default)]
pub struct Patience(AtomicU32);

impl Patience {
    /// A poll found `count` completions.
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
