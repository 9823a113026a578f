//! Rehearsals: changes that are checked as always and end where they would begin to act.
//!
//! ```text
//!  checks ─▶ acts() ── no rehearsal ──▶ the change
//!                └──── a rehearsal ───▶ Err(NicError::Rehearsed)
//! ```
//!
//! Whether it is one is a matter of the thread, so that everything below a request knows it without an argument of its own.

use std::cell::Cell;

use crate::types::NicError;

thread_local! {
    static REHEARSES: Cell<bool> = const { Cell::new(false) };
}

/// Does `work` as a rehearsal, or as it is.
pub fn rehearsed<R>(on: bool, work: impl FnOnce() -> R) -> R {
    /// Puts back what was before, also after a panic.
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            REHEARSES.set(self.0);
        }
    }
    let _before = Before(REHEARSES.replace(on));
    work()
}

/// Whether this thread rehearses.
pub fn rehearses() -> bool {
    // (A NIC may end with its thread, after the thread's own values.)
    REHEARSES.try_with(Cell::get).unwrap_or(false)
}

/// Stands between the checks of a change and its first act: in a rehearsal it is an error, [`NicError::Rehearsed`].
pub fn acts() -> Result<(), NicError> {
    match rehearses() {
        true => Err(NicError::Rehearsed),
        false => Ok(()),
    }
}
