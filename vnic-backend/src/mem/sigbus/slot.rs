//! A slot of the handler's table: written by one thread at a time, read at any time by a handler without waiting.

use super::Lender;
use crate::sync::{AtomicPtr, AtomicUsize, Ordering, fence};

/// A mapping in the handler's table.
pub struct Slot {
    /// Version of the other fields; odd while they change.
    pub version: AtomicUsize,
    pub start: AtomicUsize,
    /// Bytes of the mapping; 0: the slot is free.
    pub size: AtomicUsize,
    pub lender: AtomicPtr<Lender>,
}

impl Slot {
    /// Sets the mapping. Only the slot's owner may.
    pub fn set(&self, start: usize, size: usize, lender: *mut Lender) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        self.lender.store(lender, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The mapping with this address, if the slot has it. (A mapping that is being accessed does not change meanwhile.)
    pub fn find(&self, at: usize) -> Option<(usize, usize, *mut Lender)> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let size = self.size.load(Ordering::Relaxed);
        let lender = self.lender.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed);
        (whole && at.wrapping_sub(start) < size).then_some((start, size, lender))
    }
}
