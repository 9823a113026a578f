//! Doorbell rings (`SPEC.md`, section 7).

use vnic_device::doorbell::{Doorbell, DoorbellTail, ENTRY_LEN};
use vnic_device::ring;

use super::shared_ring::SharedRing;

/// Doorbell rings of a device. Each is looked at in every round.
pub const DOORBELL_RINGS_MAX: u32 = 64;

/// What was found at the next place of a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Nothing new.
    Nothing,
    /// A doorbell.
    Bell(Doorbell),
    /// Something that the contract does not have, at this index.
    Fault(u32),
}

/// One thread's ring.
#[derive(Debug)]
pub struct DoorbellRing {
    /// Its memory.
    pub ring: SharedRing,
    /// Its handle.
    pub handle: u32,
    entries: u32,
    taken: u32,
    told: u32,
    faulted: bool,
}

impl DoorbellRing {
    /// Empty, and polled from now on.
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

    /// Entries.
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

    /// The entry so many behind the next one, if it is there: it stays.
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

    /// Says how far it was taken. Also called when the device leaves a ring that is not empty.
    #[inline]
    pub fn show_taken(&mut self) {
        let at = self.tail() + core::mem::offset_of!(DoorbellTail, taken) as u64;
        self.ring.store_u32(at, self.taken);
        self.told = self.taken;
    }

    /// Is there something new?
    pub fn is_empty(&self) -> bool {
        self.faulted || Doorbell::phase(self.peek()) != ring::phase(self.taken, self.entries)
    }

    /// Tells the driver whether it must kick. The caller makes a full fence before it looks once more.
    pub fn set_polling(&self, polls: bool) {
        let at = self.tail() + core::mem::offset_of!(DoorbellTail, no_kick) as u64;
        self.ring.store_u32(at, polls.into());
    }

    /// Entries taken so far.
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Its memory is gone. False: it had a fault before.
    pub fn fail(&mut self) -> bool {
        !std::mem::replace(&mut self.faulted, true)
    }
}
