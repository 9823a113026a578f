//! Doorbell rings (`SPEC.md`, section 7). Each thread has one, shared with few others.

use std::cell::{Cell, OnceCell};
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicUsize, fence};

use std::sync::Arc;
use std::time::Instant;

use vnic_device::command::queues::CreateDoorbells;
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::ring::{doorbell_ring_len, phase};

use super::control::ANSWER;
use super::{Shared, lock};
use crate::Error;
use crate::shared::{Memory, part_of};

/// Rings at most. The device looks at all of them in turn, so they are few.
const RINGS: usize = 8;
/// Entries of a ring.
const ENTRIES: u32 = 256;
/// Looks at a full ring between two at the transport.
const PATIENCE: u32 = 1 << 16;

/// The rings, made when they are first needed.
pub(crate) struct Doorbells {
    slots: [Slot; RINGS],
    /// Handles of all rings. Apart, for the thread of interrupts must not wait for a slot: who holds one may
    /// wait for it.
    handles: Mutex<Vec<u32>>,
    wake_virtqueue: u16,
}

/// On a line of its own.
#[repr(align(128))]
struct Slot(Mutex<Option<Ring>>);

struct Ring {
    epoch: u32,
    /// `None`: the device has no more of them; the first one is used.
    own: Option<Own>,
}

struct Own {
    memory: Memory,
    written: u32,
    taken: u32,
}

/// Which ring is this thread's.
#[inline]
fn number_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// One more than it; 0: it has none yet.
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    #[cold]
    fn choose() -> usize {
        let number = NEXT.fetch_add(1, Relaxed) % RINGS;
        let _ = NUMBER.try_with(|n| n.set(number + 1));
        number
    }
    // While a thread ends, its number may be gone already.
    match NUMBER.try_with(Cell::get) {
        Ok(0) | Err(_) => choose(),
        Ok(n) => n - 1,
    }
}

impl Doorbells {
    pub fn new(wake_virtqueue: u16) -> Doorbells {
        Doorbells {
            slots: std::array::from_fn(|_| Slot(Mutex::new(None))),
            handles: Mutex::default(),
            wake_virtqueue,
        }
    }

    /// The device has no rings any more.
    pub fn forget(&self) {
        for slot in &self.slots {
            *lock(&slot.0) = None;
        }
        lock(&self.handles).clear();
    }

    /// Is it the handle of one of the rings?
    pub fn has(&self, handle: u32) -> bool {
        lock(&self.handles).contains(&handle)
    }
}

impl Shared {
    /// Says how far a queue was written, or arms a completion queue. The queue was made in `epoch`.
    #[inline]
    pub fn ring(&self, epoch: u32, bell: Doorbell) -> Result<(), Error> {
        let number = number_of_thread();
        if self.ring_at_once(number, epoch, bell) {
            return Ok(());
        }
        self.ring_any(number, epoch, bell)
    }

    /// As nearly always: there is a ring, with room. `false`: something is special.
    #[inline(always)]
    fn ring_at_once(&self, number: usize, epoch: u32, bell: Doorbell) -> bool {
        let mut slot = lock(&self.doorbells.slots[number].0);
        match &mut *slot {
            Some(Ring {
                epoch: e,
                own: Some(own),
            }) if *e == epoch && self.is_alive(epoch) && own.has_room() => {
                own.put(bell);
                self.kick(own);
                true
            }
            _ => false,
        }
    }

    /// Wakes the device, if it wants to be woken.
    #[inline]
    fn kick(&self, ring: &Own) {
        fence(SeqCst);
        if ring.no_kick() == 0 {
            self.transport.notify(self.doorbells.wake_virtqueue);
        }
    }

    #[cold]
    fn ring_any(&self, number: usize, epoch: u32, bell: Doorbell) -> Result<(), Error> {
        if self.ring_slot(number, epoch, bell)? || self.ring_slot(0, epoch, bell)? {
            return Ok(());
        }
        Err(Error::Protocol("there is no doorbell ring".into()))
    }

    /// `false`: the slot has no ring.
    fn ring_slot(&self, number: usize, epoch: u32, bell: Doorbell) -> Result<bool, Error> {
        let mut slot = lock(&self.doorbells.slots[number].0);
        if !self.is_alive(epoch) {
            return Err(self.dead());
        }
        let ring = match &mut *slot {
            Some(ring) if ring.epoch == epoch => ring,
            empty => {
                let own = match self.make_ring(epoch) {
                    Ok(own) => Some(own),
                    Err(e) if number == 0 || e.is_gone() => return Err(e),
                    Err(_) => None,
                };
                empty.insert(Ring { epoch, own })
            }
        };
        match &mut ring.own {
            None => Ok(false),
            Some(own) => {
                let since = OnceCell::new();
                let goes_on = || {
                    if since.get_or_init(Instant::now).elapsed() > ANSWER {
                        self.die_unheard("doorbells were not taken");
                    }
                    self.is_alive(epoch) && self.check_transport()
                };
                own.write(bell, goes_on).ok_or_else(|| self.dead())?;
                self.kick(own);
                Ok(true)
            }
        }
    }

    /// Makes the first ring.
    pub(super) fn make_first_ring(&self) -> Result<(), Error> {
        let epoch = self.epoch()?;
        let own = self.make_ring(epoch)?;
        *lock(&self.doorbells.slots[0].0) = Some(Ring {
            epoch,
            own: Some(own),
        });
        Ok(())
    }

    fn make_ring(&self, epoch: u32) -> Result<Own, Error> {
        let len = doorbell_ring_len(ENTRIES);
        let pages = self.transport.allocate(len as usize)?;
        let extents = part_of(&pages.extents, 0, len);
        let memory = Memory::of_pages(Arc::new(pages));
        let made: Object = self.call_with_extents(epoch, Opcode::CreateDoorbells, &[&extents], |lists| {
            CreateDoorbells {
                entries: ENTRIES,
                wake_queue: 0,
                ring: lists[0],
            }
        })?;
        lock(&self.doorbells.handles).push(made.handle);
        Ok(Own {
            memory,
            written: 0,
            taken: 0,
        })
    }
}

impl Own {
    #[inline]
    fn tail(&self) -> usize {
        8 * ENTRIES as usize
    }

    #[inline]
    fn no_kick(&self) -> u32 {
        self.memory.u32(self.tail()).load(Relaxed)
    }

    /// Has it room, by what is known?
    #[inline]
    fn has_room(&self) -> bool {
        self.written.wrapping_sub(self.taken) < ENTRIES
    }

    /// Writes an entry. There is room.
    #[inline]
    fn put(&mut self, bell: Doorbell) {
        let bits = bell.to_bits(phase(self.written, ENTRIES));
        let position = (self.written & (ENTRIES - 1)) as usize;
        self.memory.u64(8 * position).store(bits, Release);
        self.written = self.written.wrapping_add(1);
    }

    /// Writes an entry, when there is room. `None`: `goes_on` said that there never will be.
    fn write(&mut self, bell: Doorbell, goes_on: impl Fn() -> bool) -> Option<()> {
        let mut looks = 0u32;
        while !self.has_room() {
            // Full: rare, and the device has had its kick for every entry.
            self.taken = self.memory.u32(self.tail() + 64).load(Acquire);
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(PATIENCE) && !goes_on() {
                return None;
            }
            if looks.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
        self.put(bell);
        Some(())
    }
}

/// A doorbell entry.
#[inline]
pub(crate) fn bell(kind: Kind, number: u32, index: u32) -> Doorbell {
    Doorbell { kind, number, index }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::memory;

    fn own() -> Own {
        Own {
            memory: memory(doorbell_ring_len(ENTRIES) as usize),
            written: 0,
            taken: 0,
        }
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
