//! A lock that one call of the program takes and a later one gives back.

#![expect(
    unsafe_code,
    reason = "keeps what is taken in one call of programs in C and given back in another"
)]

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use rustix::thread::futex;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// A thread sleeps for the latch, or will.
const WANTED: u32 = 2;

/// Looks at a taken latch before a thread goes to sleep.
const LOOKS: u32 = 100;

/// A value that one thread has at a time. It is taken in one call and given back in another, on whichever thread: there is
/// no guard that could be kept meanwhile.
#[derive(Debug, Default)]
pub struct Latch<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value belongs to who has taken the latch, one thread at a time.
unsafe impl<T: Send> Sync for Latch<T> {}

impl<T> Latch<T> {
    /// The value.
    ///
    /// # Safety
    /// The caller has taken the latch, and has no other reference to the value.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the latch is taken, so there is no other reference"
    )]
    pub unsafe fn value(&self) -> &mut T {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Waits until the latch is free, and takes it.
    #[inline]
    pub fn take(&self) {
        if self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_err() {
            self.wait();
        }
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..LOOKS {
            if self.word.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
                return;
            }
            std::hint::spin_loop();
        }
        // A thread that has slept cannot know whether it was the only one.
        while self.word.swap(WANTED, Acquire) != FREE {
            // If the word is not WANTED any more, this returns at once; in any case the loop looks again.
            let _ = futex::wait(&self.word, futex::Flags::PRIVATE, WANTED, None);
        }
    }

    /// Gives the latch back. One that is free stays free.
    #[inline]
    pub fn give_back(&self) {
        if self.word.swap(FREE, Release) == WANTED {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_has_it_at_a_time() {
        let latch = Arc::new(Latch::<u64>::default());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let latch = Arc::clone(&latch);
                std::thread::spawn(move || {
                    for i in 0..2000 {
                        latch.take();
                        // SAFETY: just taken.
                        let value = unsafe { latch.value() };
                        // Two halves that only stay together if nobody comes between.
                        let was = *value;
                        if i % 64 == 0 {
                            std::thread::yield_now();
                        }
                        *value = was + 1;
                        latch.give_back();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("it ends");
        }
        // SAFETY: no thread is left.
        assert_eq!(unsafe { *latch.value() }, 8000);
    }

    #[test]
    fn another_thread_may_give_it_back() {
        let latch = Arc::new(Latch::<()>::default());
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
