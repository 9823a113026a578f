//! Doorbell rings (`SPEC.md`, section 7).

use vnic_device::doorbell::{Doorbell, DoorbellTail, ENTRY_LEN};
use vnic_device::ring;

use super::shared_ring::SharedRing;

/// Largest number of doorbell rings of a device. Each round looks at each ring.
pub const DOORBELL_RINGS_MAX: u32 = 64;

/// Result of a look at the next entry of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The entry is not new.
    Nothing,
    /// A doorbell.
    Bell(Doorbell),
    /// The entry at this index is not valid.
    Fault(u32),
}

/// Doorbell ring of one thread of the driver.
#[derive(Debug)]
pub struct DoorbellRing {
    /// Memory of the ring.
    pub ring: SharedRing,
    /// Handle of the ring.
    pub handle: u32,
    entries: u32,
    taken: u32,
    told: u32,
    faulted: bool,
}

impl DoorbellRing {
    /// Makes an empty ring that is polled.
    pub fn new(ring: SharedRing, handle: u32, entries: u32) -> DoorbellRing {
        let made = DoorbellRing {
            ring,
            handle,
            entries,
            taken: 0,
            told: 0,
            faulted: false,
        };
        made.set_polling(true);
        made
    }

    fn tail(&self) -> u64 {
        u64::from(self.entries) * ENTRY_LEN as u64
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Takes the next entry.
    #[inline]
    pub fn next(&mut self) -> Found {
        if self.faulted {
            return Found::Nothing;
        }
        let bits = self.peek();
        if Doorbell::phase(bits) != ring::phase(self.taken, self.entries) {
            if self.told != self.taken {
                self.show_taken();
            }
            return Found::Nothing;
        }
        let Some(bell) = Doorbell::from_bits(bits) else {
            self.faulted = true;
            return Found::Fault(self.taken);
        };
        self.taken = self.taken.wrapping_add(1);
        if self.taken.wrapping_sub(self.told) >= self.entries / 4 {
            self.show_taken();
        }
        Found::Bell(bell)
    }

    /// The entry `ahead` entries behind the next one, if it was written. It is not taken.
    #[inline]
    pub fn peek_bell(&self, ahead: u32) -> Option<Doorbell> {
        let index = self.taken.wrapping_add(ahead);
        let bits = self.at(index);
        if Doorbell::phase(bits) != ring::phase(index, self.entries) {
            return None;
        }
        Doorbell::from_bits(bits)
    }

    #[inline]
    fn peek(&self) -> u64 {
        self.at(self.taken)
    }

    #[inline]
    fn at(&self, index: u32) -> u64 {
        self.ring
            .load_u64(u64::from(index & (self.entries - 1)) * ENTRY_LEN as u64)
    }

    /// Publishes how many entries were taken. Also called when the device leaves a ring that is not empty.
    #[inline]
    pub fn show_taken(&mut self) {
        let at = self.tail() + core::mem::offset_of!(DoorbellTail, taken) as u64;
        self.ring.store_u32(at, self.taken);
        self.told = self.taken;
    }

    /// Whether there is no new entry.
    pub fn is_empty(&self) -> bool {
        self.faulted || Doorbell::phase(self.peek()) != ring::phase(self.taken, self.entries)
    }

    /// Sets whether the device polls; otherwise the driver must kick. The caller makes a full fence before it looks once
    /// more.
    pub fn set_polling(&self, polls: bool) {
        let at = self.tail() + core::mem::offset_of!(DoorbellTail, no_kick) as u64;
        self.ring.store_u32(at, polls.into());
    }

    /// Number of entries taken so far.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Stops the ring because its memory is gone. False: it had a fault before.
    pub fn fail(&mut self) -> bool {
        !std::mem::replace(&mut self.faulted, true)
    }
}
