//! Frames of a bond in flight: each has a ticket, wherever it waits, and so have its pieces and copies.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vnic_fabric::lag::{SLOTS_MAX, SlotId};

/// Tickets of a bond. Only its core uses them; that other threads could costs little.
pub struct Tickets {
    /// Number of tickets, by slot.
    living: Box<[AtomicU32]>,
    /// Whether `gone` has new slots.
    news: AtomicBool,
    /// Slots whose last ticket was dropped.
    gone: Mutex<Vec<SlotId>>,
}

impl Tickets {
    /// Makes the state of a bond without tickets.
    pub fn new() -> Arc<Tickets> {
        Arc::new(Tickets {
            living: (0..SLOTS_MAX).map(|_| AtomicU32::new(0)).collect(),
            news: AtomicBool::new(false),
            gone: Mutex::default(),
        })
    }

    fn living(&self, slot: SlotId) -> Option<&AtomicU32> {
        self.living.get(slot.index())
    }

    /// Calls `each` for slots that have had no frames in flight since the last call.
    #[inline]
    pub fn drain(&self, mut each: impl FnMut(SlotId)) {
        if !self.news.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in gone.drain(..) {
            // The slot may have a new ticket meanwhile.
            if self.living(slot).is_some_and(|n| n.load(Ordering::Relaxed) == 0) {
                each(slot);
            }
        }
    }
}

/// Ticket of a frame: while its slot has one, the slot cannot move without reordering. With the last one the slot's frames
/// have left their port, or were dropped there.
pub struct Ticket {
    of: Arc<Tickets>,
    slot: SlotId,
}

impl Ticket {
    /// Ticket of a frame of this slot.
    pub fn new(of: &Arc<Tickets>, slot: SlotId) -> Ticket {
        if let Some(n) = of.living(slot) {
            n.fetch_add(1, Ordering::Relaxed);
        }
        Ticket { of: of.clone(), slot }
    }

    /// Slot of the frame.
    pub fn slot(&self) -> SlotId {
        self.slot
    }
}

impl Clone for Ticket {
    fn clone(&self) -> Ticket {
        Ticket::new(&self.of, self.slot)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let last = |n: &AtomicU32| n.fetch_sub(1, Ordering::Relaxed) == 1;
        if self.of.living(self.slot).is_some_and(last) {
            let mut gone = self.of.gone.lock().unwrap_or_else(PoisonError::into_inner);
            gone.push(self.slot);
            drop(gone);
            self.of.news.store(true, Ordering::Relaxed);
        }
    }
}
