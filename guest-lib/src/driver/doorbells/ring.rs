//! The driver's half of one doorbell ring.

use vnic_device::doorbell::Doorbell;
use vnic_device::ring::phase;

use super::ENTRIES;
use crate::shared::Memory;
use crate::sync::{Acquire, Relaxed, Release, SeqCst, fence, spin_loop, yield_now};

/// Looks at a full ring between two looks at the transport.
const PATIENCE: u32 = 1 << 16;

/// A doorbell ring of one thread, or of few.
pub struct Ring {
    memory: Memory,
    written: u32,
    taken: u32,
}

impl Ring {
    /// A ring that the device has been given, in memory of zeros.
    pub fn new(memory: Memory) -> Ring {
        Ring {
            memory,
            written: 0,
            taken: 0,
        }
    }

    #[inline]
    fn tail(&self) -> usize {
        8 * ENTRIES as usize
    }

    /// Whether the device wants a kick for what was put.
    #[inline]
    pub fn wants_kick(&self) -> bool {
        // The device looks at the entries once more after it has said that it wants kicks.
        fence(SeqCst);
        self.memory.u32(self.tail()).load(Relaxed) == 0
    }

    /// Whether the ring has room, by what is known of the device.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.written.wrapping_sub(self.taken) < ENTRIES
    }

    /// Writes an entry. The caller has checked that there is room.
    #[inline]
    pub fn put(&mut self, bell: Doorbell) {
        let bits = bell.to_bits(phase(self.written, ENTRIES));
        let position = (self.written & (ENTRIES - 1)) as usize;
        self.memory.u64(8 * position).store(bits, Release);
        self.written = self.written.wrapping_add(1);
    }

    /// Writes an entry, when there is room. `None`: `goes_on` said that there never will be.
    pub fn write(&mut self, bell: Doorbell, goes_on: impl Fn() -> bool) -> Option<()> {
        let mut looks = 0u32;
        while !self.has_room() {
            // The ring is full, which is rare: the device has had its kick for every entry.
            self.taken = self.memory.u32(self.tail() + 64).load(Acquire);
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(PATIENCE) && !goes_on() {
                return None;
            }
            if looks.is_multiple_of(64) {
                yield_now();
            } else {
                spin_loop();
            }
        }
        self.put(bell);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use vnic_device::doorbell::Kind;
    use vnic_device::ring::doorbell_ring_len;

    use super::super::bell;
    use super::*;
    use crate::shared::tests::memory;

    fn own() -> Ring {
        Ring::new(memory(doorbell_ring_len(ENTRIES) as usize))
    }

    #[test]
    fn entries_are_as_in_the_examples() {
        let mut ring = own();
        ring.write(bell(Kind::Send, 0x102, 6), || false).expect("room");
        assert_eq!(ring.memory.u64(0).load(Relaxed), 0x8000_0102_0000_0006);
        let mut second_lap = own();
        (second_lap.written, second_lap.taken) = (ENTRIES + 2, ENTRIES);
        second_lap
            .write(bell(Kind::ArmSolicited, 9, 5), || false)
            .expect("room");
        assert_eq!(second_lap.memory.u64(16).load(Relaxed), 0x4000_0009_0000_0005);
    }

    #[test]
    fn a_full_ring_waits_for_the_device_or_its_end() {
        let mut ring = own();
        for i in 0..ENTRIES {
            ring.write(bell(Kind::Send, 1, i), || false).expect("room");
        }
        assert_eq!(ring.write(bell(Kind::Send, 1, 0), || false), None);
        let taken = ring.memory.clone();
        let device = std::thread::spawn(move || taken.u32(8 * ENTRIES as usize + 64).store(64, Release));
        assert_eq!(ring.write(bell(Kind::Send, 1, 7), || true), Some(()));
        device.join().expect("it ends");
        assert_eq!(ring.taken, 64);
        assert_eq!(ring.memory.u64(0).load(Relaxed), 0x0000_0001_0000_0007);
    }
}
