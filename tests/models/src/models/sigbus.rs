//! The table of mappings, which the handler of SIGBUS reads while a thread changes it.

use std::ptr::null_mut;
use std::sync::Arc;

use loom::thread;

use super::check;
use crate::sigbus::slot::Slot;
use crate::sync::{AtomicPtr, AtomicUsize};

/// What is found is one mapping, never halves of two.
///
/// Fails without either fence, with `Relaxed` in the last store of `set` or the first load of `find`, and if `find` does not look at
/// the version again.
pub fn a_mapping_is_found_whole() {
    check(3, || {
        let slot = Arc::new(Slot {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            size: AtomicUsize::new(0),
            lender: AtomicPtr::new(null_mut()),
        });
        let lender = |n: usize| std::ptr::without_provenance_mut(n);
        slot.set(100, 10, lender(1));
        let reader = thread::spawn({
            let slot = slot.clone();
            move || slot.find(105)
        });
        slot.set(0, 0, null_mut());
        slot.set(104, 20, lender(2));
        if let Some((start, size, who)) = reader.join().expect("the reader") {
            let found = (start, size, who.addr());
            assert!([(100, 10, 1), (104, 20, 2)].contains(&found), "{found:?}");
        }
    });
}
