//! Atomics of the rings, and locks. `tests/models` builds the files of rings with loom's atomics.

pub use std::hint::spin_loop;
pub use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
pub use std::sync::atomic::fence;
use std::sync::{Mutex, MutexGuard, PoisonError};
pub use std::thread::yield_now;

/// Locks a mutex. A panic of another thread while it held the lock does not matter to what our locks guard.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
