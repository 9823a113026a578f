//! The driver's half of a packed virtqueue (virtio 1.3 section 2.8), written by hand: what [`Ring`](super::Ring) does when
//! VIRTIO_F_RING_PACKED was negotiated.
//!
//! Descriptors are written into a private table, as into that of a split ring; to offer a buffer copies its chain into the ring. A
//! buffer's id is its first index in the table, and is told in its last descriptor only, as the standard has it.

#![expect(
    unsafe_code,
    reason = "the test driver's half of a ring is shared with the device under test"
)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::ring::{Desc, NEXT};

/// Descriptor flag: the driver's wrap counter.
pub const AVAIL: u16 = 1 << 7;
/// Descriptor flag: the device's wrap counter.
pub const USED: u16 = 1 << 15;
const WRAP: u16 = 1 << 15;
const DISABLE: u32 = 1 << 16;
const DESC: u32 = 2 << 16;

/// Id in descriptors whose id does not count.
const NO_ID: u16 = 0xdead;

/// A descriptor of an indirect table. Nothing but its direction counts of its flags, and its id is any.
pub(super) fn bytes(d: Desc, id: u16) -> [u8; 16] {
    let mut b = d.bytes();
    b[12..14].copy_from_slice(&id.to_le_bytes());
    b[14..].copy_from_slice(&d.flags.to_le_bytes());
    b
}

/// State of the driver. Places are entries with the wrap counter in bit 15.
pub struct Packed {
    desc: *mut u8,
    driver: *mut u8,
    device: *mut u8,
    size: u16,
    table: RefCell<Vec<Desc>>,
    /// Where the next descriptor goes.
    next: u16,
    /// Where the device uses next.
    used: u16,
    /// Buffers that the device has: id and entries.
    there: VecDeque<(u16, u16)>,
    /// Used buffers, as far as one descriptor told of several: how many.
    told: usize,
    /// First descriptor of what was offered and not published: its place and second half.
    held: Option<(u16, u64)>,
    /// The last place that the device was told by the VMM, or told the VMM.
    pub base: Cell<u16>,
    /// Used descriptors that told of several buffers.
    pub batches: u64,
}

impl Packed {
    /// A driver for a ring of zeros, in memory that the caller keeps.
    pub(super) fn new(desc: *mut u8, driver: *mut u8, device: *mut u8, size: u16) -> Packed {
        Packed {
            desc,
            driver,
            device,
            size,
            table: RefCell::new(vec![Desc::default(); usize::from(size)]),
            next: WRAP,
            used: WRAP,
            there: VecDeque::new(),
            told: 0,
            held: None,
            base: Cell::new(WRAP),
            batches: 0,
        }
    }

    fn step(&self, place: u16, n: u16) -> u16 {
        let at = u32::from(place & !WRAP) + u32::from(n);
        match at.checked_sub(self.size.into()) {
            None => at as u16 | place & WRAP,
            Some(at) => at as u16 | !place & WRAP,
        }
    }

    /// Second half of an entry: length, id, flags.
    pub fn word(&self, place: u16) -> &AtomicU64 {
        let at = 16 * usize::from((place & !WRAP) % self.size) + 8;
        // SAFETY: inside the ring, aligned to 8; the caller of `new` keeps its memory.
        unsafe { AtomicU64::from_ptr(self.desc.add(at).cast()) }
    }

    /// Address of an entry.
    pub fn address(&self, place: u16) -> &AtomicU64 {
        let at = 16 * usize::from((place & !WRAP) % self.size);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.desc.add(at).cast()) }
    }

    fn event(&self, at: *mut u8) -> &AtomicU32 {
        // SAFETY: inside the event suppression structures, aligned to 4.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Begins at this place, as if the ring had been in use before.
    pub(super) fn start_at(&mut self, idx: u16) {
        let lap = idx / self.size % 2;
        let at = idx % self.size;
        for slot in 0..self.size {
            // Behind the place are entries of the lap before.
            let wrap = (lap == 0) == (slot < at);
            let flags = if wrap { AVAIL | USED } else { 0 };
            self.word(slot)
                .store((u64::from(flags) << 48).to_le(), Ordering::Relaxed);
        }
        let place = at | if lap == 0 { WRAP } else { 0 };
        (self.next, self.used) = (place, place);
        self.base.set(place);
    }

    pub(super) fn set_desc(&self, i: u16, d: Desc) {
        self.table.borrow_mut()[usize::from(i)] = d;
    }

    /// Where the driver offers next.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Writes an entry, available in the lap of its place.
    pub fn put(&self, place: u16, d: Desc, id: u16) -> u64 {
        let state = if place & WRAP != 0 { AVAIL } else { USED };
        let word = u64::from(d.len) | u64::from(id) << 32 | u64::from(d.flags | state) << 48;
        self.address(place).store(d.addr.to_le(), Ordering::Relaxed);
        word
    }

    pub(super) fn offer(&mut self, head: u16) {
        let (mut i, mut entries, begin) = (head, 0, self.next);
        let mut first = None;
        loop {
            let d = self.table.borrow()[usize::from(i)];
            let last = d.flags & NEXT == 0;
            let word = self.put(self.next, d, if last { head } else { NO_ID });
            match first {
                None => first = Some(word),
                Some(_) => self.word(self.next).store(word.to_le(), Ordering::Relaxed),
            }
            (self.next, entries) = (self.step(self.next, 1), entries + 1);
            if last {
                break;
            }
            i = d.next;
        }
        let word = first.unwrap_or_default();
        match self.held {
            None => self.held = Some((begin, word)),
            Some(_) => self.word(begin).store(word.to_le(), Ordering::Relaxed),
        }
        self.there.push_back((head, entries));
    }

    /// Lets the device see what was offered. Returns the first new place.
    pub(super) fn publish(&mut self) -> Option<u16> {
        let (place, word) = self.held.take()?;
        self.word(place).store(word.to_le(), Ordering::Release);
        Some(place)
    }

    /// Whether the device wants a kick for what was offered from `first` on.
    pub(super) fn wants_kick(&self, first: u16, event_idx: bool) -> bool {
        let event = u32::from_le(self.event(self.device).load(Ordering::Relaxed));
        match event & 0xffff_0000 {
            0 => true,
            DESC if event_idx => {
                let mut at = first;
                while at != self.next {
                    if at == event as u16 {
                        return true;
                    }
                    at = self.step(at, 1);
                }
                false
            }
            _ => false,
        }
    }

    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        let mut len = 0;
        if self.told == 0 {
            let word = u64::from_le(self.word(self.used).load(Ordering::Acquire));
            let (id, flags) = ((word >> 32) as u16, (word >> 48) as u16);
            let state = if self.used & WRAP != 0 { AVAIL | USED } else { 0 };
            if flags & (AVAIL | USED) != state {
                return None;
            }
            if flags & super::ring::WRITE != 0 {
                len = word as u32;
            }
            let at = self.there.iter().position(|(head, _)| *head == id);
            let at = at.unwrap_or_else(|| panic!("used id {id:#x} at {:#x} was not available", self.used));
            self.batches += u64::from(at > 0);
            self.told = at + 1;
        }
        let (head, entries) = self.there.pop_front()?;
        self.told -= 1;
        self.used = self.step(self.used, entries);
        Some((head.into(), len))
    }

    pub(super) fn want_calls(&self, want: bool, event_idx: bool) {
        let value = match (want, event_idx) {
            (false, _) => DISABLE,
            (true, false) => 0,
            (true, true) => DESC | u32::from(self.used),
        };
        self.event(self.driver).store(value.to_le(), Ordering::Relaxed);
    }
}
