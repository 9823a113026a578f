//! A lock that one call of the program takes and a later one gives back.

use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use rustix::thread::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// A thread sleeps for the latch, or will.
const WANTED: u32 = 2;

/// Looks at a taken latch before a thread goes to sleep.
const LOOKS: u32 = 100;

/// A lock that is taken in one call and given back in another, on whichever thread: there is no guard that could be
/// kept meanwhile.
#[derive(Debug, Default)]
pub struct Latch(AtomicU32);

impl Latch {
    /// Waits until the latch is free, and takes it.
    #[inline]
    pub fn take(&self) {
        if self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self.0.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
                return;
            }
            std::hint::spin_loop();
        }
        // A thread that has slept cannot know whether it was the only one.
        while self.0.swap(WANTED, Acquire) != FREE {
            // If the word is not WANTED any more, this returns at once; in any case the loop looks again.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WANTED, None);
        }
    }

    /// Gives the latch back. One that is free stays free.
    #[inline]
    pub fn give_back(&self) {
        if self.0.swap(FREE, Release) == WANTED {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn one_has_it_at_a_time() {
        let shared = Arc::new((Latch::default(), AtomicU64::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let (latch, count) = &*shared;
                    for i in 0..2000 {
                        latch.take();
                        // Two halves that only stay together if nobody comes between.
                        let was = count.load(Relaxed);
                        if i % 64 == 0 {
                            std::thread::yield_now();
                        }
                        count.store(was + 1, Relaxed);
                        latch.give_back();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
        assert_eq!(shared.1.load(Relaxed), 8000);
    }

    #[test]
    fn another_thread_may_give_it_back() {
        let latch = Arc::new(Latch::default());
        latch.take();
        let other = Arc::clone(&latch);
        let thread = std::thread::spawn(move || other.give_back());
        latch.take();
        thread.join().expect("it ends");
        latch.give_back();
        latch.give_back();
        latch.take();
    }
}
