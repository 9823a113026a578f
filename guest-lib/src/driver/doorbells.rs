//! Doorbell rings (`SPEC.md`, section 7). Each thread has one, shared with few others.

mod ring;

use std::cell::{Cell, OnceCell};
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use vnic_device::command::queues::CreateDoorbells;
use vnic_device::command::{Object, Opcode};
use vnic_device::doorbell::{Doorbell, Kind};
use vnic_device::ring::doorbell_ring_len;

use ring::Ring;

use super::commands::ANSWER;
use super::shared::Shared;
use crate::Error;
use crate::shared::Memory;
use crate::sync::lock;

/// Most rings. The device looks at all of them in turn, so there are few.
const RINGS: usize = 8;
/// Entries of a ring.
const ENTRIES: u32 = 256;

/// The doorbell rings. A ring is made when it is first needed.
pub(crate) struct Doorbells {
    slots: [Slot; RINGS],
    /// Handles of all rings. They are apart from the slots, for the thread of interrupts must not wait for a
    /// slot: whoever holds a slot may wait for that thread.
    handles: Mutex<Vec<u32>>,
    wake_virtqueue: u16,
}

/// A place for a ring, on a cache line of its own.
#[repr(align(128))]
struct Slot(Mutex<Option<Place>>);

/// A ring and the epoch that it was made in.
struct Place {
    epoch: u32,
    /// `None`: the device has no more rings; the thread uses the first one.
    ring: Option<Ring>,
}

/// Number of the ring that this thread uses.
#[inline]
fn number_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        /// The number plus 1; 0: the thread has none yet.
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

    /// Forgets all rings: the device has them no more.
    pub fn forget(&self) {
        for slot in &self.slots {
            *lock(&slot.0) = None;
        }
        lock(&self.handles).clear();
    }

    /// Whether a handle is one of a doorbell ring.
    pub fn has(&self, handle: u32) -> bool {
        lock(&self.handles).contains(&handle)
    }

    /// Tells the device how far a queue was written, or arms a completion queue. The queue was made in
    /// `epoch`.
    #[inline]
    pub fn ring(&self, shared: &Shared, epoch: u32, bell: Doorbell) -> Result<(), Error> {
        let number = number_of_thread();
        if self.ring_at_once(shared, number, epoch, bell) {
            return Ok(());
        }
        self.ring_any(shared, number, epoch, bell)
    }

    /// The usual case: there is a ring, with room. `false`: something is special.
    #[inline(always)]
    fn ring_at_once(&self, shared: &Shared, number: usize, epoch: u32, bell: Doorbell) -> bool {
        let mut slot = lock(&self.slots[number].0);
        match &mut *slot {
            Some(Place {
                epoch: e,
                ring: Some(ring),
            }) if *e == epoch && shared.is_alive(epoch) && ring.has_room() => {
                ring.put(bell);
                self.kick(shared, ring);
                true
            }
            _ => false,
        }
    }

    /// Wakes the device, if it wants to be woken.
    #[inline]
    fn kick(&self, shared: &Shared, ring: &Ring) {
        if ring.wants_kick() {
            shared.transport.notify(self.wake_virtqueue);
        }
    }

    #[cold]
    fn ring_any(&self, shared: &Shared, number: usize, epoch: u32, bell: Doorbell) -> Result<(), Error> {
        if self.ring_slot(shared, number, epoch, bell)? || self.ring_slot(shared, 0, epoch, bell)? {
            return Ok(());
        }
        Err(Error::Protocol("there is no doorbell ring".into()))
    }

    /// Writes to the ring of a slot. `false`: the slot has no ring.
    fn ring_slot(&self, shared: &Shared, number: usize, epoch: u32, bell: Doorbell) -> Result<bool, Error> {
        let mut slot = lock(&self.slots[number].0);
        if !shared.is_alive(epoch) {
            return Err(shared.dead());
        }
        let place = match &mut *slot {
            Some(place) if place.epoch == epoch => place,
            empty => {
                let ring = match self.make_ring(shared, epoch) {
                    Ok(ring) => Some(ring),
                    Err(e) if number == 0 || e.is_gone() => return Err(e),
                    Err(_) => None,
                };
                empty.insert(Place { epoch, ring })
            }
        };
        match &mut place.ring {
            None => Ok(false),
            Some(ring) => {
                let since = OnceCell::new();
                let goes_on = || {
                    if since.get_or_init(Instant::now).elapsed() > ANSWER {
                        shared.die_unheard("doorbells were not taken");
                    }
                    shared.is_alive(epoch) && shared.check_transport()
                };
                ring.write(bell, goes_on).ok_or_else(|| shared.dead())?;
                self.kick(shared, ring);
                Ok(true)
            }
        }
    }

    /// Makes the first ring.
    pub(super) fn make_first_ring(&self, shared: &Shared) -> Result<(), Error> {
        let epoch = shared.epoch()?;
        let ring = Some(self.make_ring(shared, epoch)?);
        *lock(&self.slots[0].0) = Some(Place { epoch, ring });
        Ok(())
    }

    fn make_ring(&self, shared: &Shared, epoch: u32) -> Result<Ring, Error> {
        let len = doorbell_ring_len(ENTRIES);
        let (memory, extents) = Memory::allocate(&*shared.transport, len as usize)?;
        let made: Object =
            shared.call_with_extents(epoch, Opcode::CreateDoorbells, &[&extents], |lists| {
                CreateDoorbells {
                    entries: ENTRIES,
                    wake_queue: 0,
                    ring: lists[0],
                }
            })?;
        lock(&self.handles).push(made.handle);
        Ok(Ring::new(memory))
    }
}

/// A doorbell entry.
#[inline]
pub(crate) fn bell(kind: Kind, number: u32, index: u32) -> Doorbell {
    Doorbell { kind, number, index }
}
