//! Which frames of a bond are under way: each has a ticket, wherever it waits, and so have its pieces and copies.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use vnic_fabric::lag::{SLOTS_MAX, SlotId};

/// Those of a bond. All are used by its core alone; that they could be used by others costs little.
pub struct Tickets {
    /// By slot.
    living: Box<[AtomicU32]>,
    /// Some slot's last one is gone.
    news: AtomicBool,
    /// These slots'.
    gone: Mutex<Vec<SlotId>>,
}

impl Tickets {
    /// None are out.
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

    /// Slots that have nothing under way any more, since this was asked last.
    #[inline]
    pub fn drain(&self, mut each: impl FnMut(SlotId)) {
        if !self.news.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        for slot in gone.drain(..) {
            // Another one may have been given out meanwhile.
            if self.living(slot).is_some_and(|n| n.load(Ordering::Relaxed) == 0) {
                each(slot);
            }
        }
    }
}

/// See the module: while there is one, its slot does not move in peace. With the last one the slot's frames have left their
/// port, or were dropped there.
pub struct Ticket {
    of: Arc<Tickets>,
    slot: SlotId,
}

impl Ticket {
    /// Of a frame of this slot.
    pub fn new(of: &Arc<Tickets>, slot: SlotId) -> Ticket {
        if let Some(n) = of.living(slot) {
            n.fetch_add(1, Ordering::Relaxed);
        }
        Ticket { of: of.clone(), slot }
    }

    /// Whose it is.
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
