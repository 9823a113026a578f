//! The packed virtqueue (virtio 1.3 section 2.8), device side.
//!
//! As for the split ring: what the guest wrote is read once, the copy is checked, an invalid one is a [`Fault`] that stops only
//! this ring. Completions are in order. Used descriptors are kept in private memory until they are published, for they
//! overwrite what the guest has made available; what a restart after `kill -9` needs is in the ring ([`recovery`]).
//!
//! A place in the ring is written as vhost-user does it: the entry, and the wrap counter in bit 15.

#![expect(
    unsafe_code,
    reason = "virtqueues live in guest memory; their descriptors are atomics there"
)]

mod recovery;

use std::cell::Cell;
use std::sync::Arc;

use vnic_engine::virtio_net::feature as f;

use super::chain::{
    DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Fault, Gather, Head, MAX_CHAIN, MAX_RING, OneWay, Request,
    RingAddresses, indirect_table, words,
};
use crate::mem::{Buffers, DirtyLog, MemMap, Seg, Segs};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

const DESC_AVAIL: u16 = 1 << 7;
const DESC_USED: u16 = 1 << 15;

/// Event suppression (virtio 1.3 section 2.8.14): the place of an event, and above it one of these.
const EVENT_DISABLE: u32 = 1 << 16;
const EVENT_DESC: u32 = 2 << 16;
const EVENT_FLAGS: u32 = 0xffff << 16;

const WRAP: u16 = 1 << 15;

/// Descriptors that one look finds at most: all of a burst, and all that a frame may take.
const LOOK: u16 = 32;
const LOOK_FAR: u16 = 2048;

/// A descriptor, as read once from guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Desc {
    addr: u64,
    len: u32,
    id: u16,
    flags: u16,
}

impl Desc {
    #[inline(always)]
    fn of(addr: u64, word: u64) -> Desc {
        Desc {
            addr,
            len: word as u32,
            id: (word >> 32) as u16,
            flags: (word >> 48) as u16,
        }
    }
}

/// A used buffer that the guest does not see yet.
#[derive(Debug, Clone, Copy)]
struct Entry {
    head: Head,
    len: u32,
}

/// The device's half of one packed virtqueue.
#[derive(Debug)]
pub struct PackedRing {
    desc: *mut u8,
    driver: *mut u8,
    device: *mut u8,
    size: u16,
    /// Place of the next descriptor to take.
    next: u16,
    /// Place behind the last descriptor that was seen to be available.
    seen: u16,
    /// Place of the next used descriptor, when all that were staged are published. (A cell: entries are written while buffers
    /// are borrowed.)
    staged: Cell<u16>,
    /// Place of the next used descriptor.
    published: u16,
    event_idx: bool,
    indirect: bool,
    in_order: bool,
    /// Used buffers, by their first ring entries.
    entries: Box<[Cell<Entry>]>,
    /// Dirty log, and guest physical addresses of the descriptors and of the device event suppression structure.
    log: Option<(DirtyLog, [u64; 2])>,
    mem: Arc<MemMap>,
}

// SAFETY: the pointers lead into shared memory that `mem` keeps mapped; one thread at a time owns the ring.
unsafe impl Send for PackedRing {}

/// Whether flags say that the descriptor is available in the lap with this wrap counter.
#[inline(always)]
fn is_available(flags: u16, wrap: bool) -> bool {
    flags & (DESC_AVAIL | DESC_USED) == if wrap { DESC_AVAIL } else { DESC_USED }
}

#[inline(always)]
fn wrap(place: u16) -> bool {
    place & WRAP != 0
}

#[inline(always)]
fn slot(place: u16) -> usize {
    usize::from(place & !WRAP)
}

impl PackedRing {
    /// Takes over a ring at `base` (SET_VRING_BASE), or where its content says that it stands; `features`: those of the driver.
    pub fn new(
        mem: Arc<MemMap>,
        size: u32,
        addresses: RingAddresses,
        base: u16,
        features: u64,
        log: Option<DirtyLog>,
    ) -> Result<PackedRing, Fault> {
        let size = u16::try_from(size)
            .ok()
            .filter(|n| (1..=MAX_RING).contains(n))
            .ok_or(Fault::Size(size))?;
        let find = |user, len, align, name| mem.user_range(user, len, align).ok_or(Fault::Address(name));
        let desc = find(addresses.desc, 16 * u64::from(size), 16, "descriptor ring")?;
        let driver = find(addresses.avail, 4, 4, "driver event suppression structure")?;
        let device = find(addresses.used, 4, 4, "device event suppression structure")?;
        // Frontends differ in the address that they give for the log; the ring's own tells both pages.
        let logged = || Some([mem.gpa_at(desc)?, mem.gpa_at(device)?]);
        let log = log.filter(|_| addresses.used_log.is_some());
        let log = log.and_then(|l| Some((l, logged()?)));
        if slot(base) >= usize::from(size) {
            return Err(Fault::DescriptorIndex(base & !WRAP));
        }
        let none = Entry {
            head: Head::one(0),
            len: 0,
        };
        let mut ring = PackedRing {
            desc,
            driver,
            device,
            size,
            next: base,
            seen: base,
            staged: Cell::new(base),
            published: base,
            event_idx: features & f::RING_EVENT_IDX != 0,
            indirect: features & f::RING_INDIRECT_DESC != 0,
            in_order: features & f::IN_ORDER != 0,
            entries: vec![Cell::new(none); usize::from(size)].into(),
            log,
            mem,
        };
        ring.recover(base);
        Ok(ring)
    }

    fn go_on_at(&mut self, place: u16) {
        (self.next, self.seen, self.published) = (place, place, place);
        self.staged.set(place);
    }

    /// Number of entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The answer to GET_VRING_BASE. All taken buffers must be used by then.
    pub fn base(&self) -> u16 {
        self.next
    }

    /// The place `n` entries, at most a lap, behind this one.
    #[inline(always)]
    fn step(&self, place: u16, n: u16) -> u16 {
        let at = u32::from(place & !WRAP) + u32::from(n);
        match at.checked_sub(u32::from(self.size)) {
            None => at as u16 | place & WRAP,
            Some(at) => at as u16 | !place & WRAP,
        }
    }

    /// The place one entry behind this one.
    #[inline(always)]
    fn next_to(&self, place: u16) -> u16 {
        match slot(place) + 1 == usize::from(self.size) {
            true => !place & WRAP,
            false => place + 1,
        }
    }

    /// Entries from a place to another one, which is less than two laps further.
    #[inline]
    pub fn distance(&self, from: u16, to: u16) -> u16 {
        let size = u32::from(self.size);
        let at = |place: u16| u32::from(place & !WRAP) + if wrap(place) { 0 } else { size };
        let (from, to) = (at(from), at(to));
        let laps = if to < from { 2 * size } else { 0 };
        (laps + to - from) as u16
    }

    /// Second half of a descriptor: length, id, flags.
    #[inline(always)]
    fn word(&self, slot: usize) -> &AtomicU64 {
        debug_assert!(slot < usize::from(self.size));
        // SAFETY: `new` checked that `size` descriptors are mapped and aligned to 16; the guest writes concurrently, so the
        // access is atomic.
        unsafe { AtomicU64::from_ptr(self.desc.add(16 * slot + 8).cast()) }
    }

    /// First half of a descriptor: its address.
    #[inline(always)]
    fn addr(&self, slot: usize) -> &AtomicU64 {
        debug_assert!(slot < usize::from(self.size));
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.desc.add(16 * slot).cast()) }
    }

    #[inline(always)]
    fn desc_at(&self, slot: usize) -> Desc {
        let word = u64::from_le(self.word(slot).load(Ordering::Relaxed));
        Desc::of(u64::from_le(self.addr(slot).load(Ordering::Relaxed)), word)
    }

    /// The event suppression structure at `at`.
    fn event(&self, at: *mut u8) -> &AtomicU32 {
        // SAFETY: `new` checked that both are mapped and aligned to 4.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Place behind the available descriptors from `at` on, of which `most` are looked at.
    #[inline(never)]
    fn look(&self, mut at: u16, most: u16) -> u16 {
        // What the guest offers is no longer than the ring, with what it has not got back.
        let room = self.size.saturating_sub(self.distance(self.published, at));
        for _ in 0..most.min(room) {
            let flags = (u64::from_le(self.word(slot(at)).load(Ordering::Relaxed)) >> 48) as u16;
            if !is_available(flags, wrap(at)) {
                break;
            }
            at = self.next_to(at);
        }
        // What the descriptors hold is read after their flags.
        fence(Ordering::Acquire);
        at
    }

    /// Number of descriptors that the guest has made available and the device has not taken, as far as they were looked at.
    #[inline(never)]
    pub fn ready(&mut self) -> Result<u16, Fault> {
        if self.seen == self.next {
            self.seen = self.look(self.seen, LOOK);
        }
        Ok(self.distance(self.next, self.seen))
    }

    /// As [`PackedRing::ready`], with a new look at the ring.
    pub fn ready_now(&mut self) -> Result<u16, Fault> {
        self.seen = self.look(self.seen, LOOK_FAR);
        Ok(self.distance(self.next, self.seen))
    }

    /// Takes `n` descriptors.
    #[inline]
    pub fn advance(&mut self, n: u16) {
        // A driver may leave out the flags of a chain's later descriptors.
        if n > self.distance(self.next, self.seen) {
            self.seen = self.step(self.next, n);
        }
        self.next = self.step(self.next, n);
    }

    /// The buffer that begins `k` descriptors behind the next one, if it is one descriptor in one region. `k` must be below the
    /// result of [`PackedRing::ready`].
    #[inline(always)]
    pub fn single(&self, k: u16, write: bool) -> Option<(Head, Seg<'_>)> {
        let d = self.single_desc(k, write)?;
        Some((Head::one(d.id), self.mem.seg(d.addr, d.len)?))
    }

    /// As [`PackedRing::single`], and adds the buffer to a list.
    #[inline(always)]
    pub fn add_single<'b, const N: usize>(
        &self,
        k: u16,
        write: bool,
        out: &'b mut Buffers<N>,
    ) -> Option<Seg<'b>> {
        let d = self.single_desc(k, write)?;
        out.push(&self.mem, d.id, d.addr, d.len)
    }

    #[inline(always)]
    fn single_desc(&self, k: u16, write: bool) -> Option<Desc> {
        let d = self.desc_at(slot(self.step(self.next, k)));
        let wanted = if write { DESC_WRITE } else { 0 };
        (d.flags & (DESC_NEXT | DESC_INDIRECT | DESC_WRITE) == wanted).then_some(d)
    }

    /// Appends the memory of the buffer that begins `k` descriptors behind the next one. Returns the buffer, its length and its
    /// number of descriptors, empty ones included; `None`: there are more than `most`.
    pub fn bounded_chain(
        &self,
        k: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(Head, u64, u16)>, Fault> {
        let mut memory = OneWay::new(&self.mem, write, out);
        let whole = self.walk(k, most, &mut memory)?;
        Ok(whole.map(|(head, n)| (head, memory.total, n)))
    }

    /// Appends the memory of the next request. Returns the buffer, the bytes that are device-readable, and those that are
    /// device-writable.
    pub fn request(&self, readable: &mut Segs, writable: &mut Segs) -> Result<(Head, (u64, u64)), Fault> {
        let mut memory = Request::new(&self.mem, readable, writable);
        let whole = self.walk(0, MAX_CHAIN as u16, &mut memory)?;
        let (head, _) = whole.ok_or(Fault::ChainTooLong)?;
        Ok((head, memory.total))
    }

    /// Gathers the memory of a chain. Returns the buffer and its number of descriptors; `None`: it has more than `most`.
    fn walk(&self, k: u16, most: u16, memory: &mut impl Gather) -> Result<Option<(Head, u16)>, Fault> {
        let mut at = self.step(self.next, k);
        let mut d = self.desc_at(slot(at));
        if d.flags & DESC_INDIRECT != 0 {
            let (table, len) = indirect_table(&self.mem, self.indirect, d.flags, d.addr, d.len)?;
            for i in 0..len.min(most) {
                // SAFETY: the table is mapped for `len` descriptors. (Its order is that of the buffer, virtio 1.3
                // section 2.8.7; a flag NEXT says nothing there.)
                let (addr, word) = unsafe { words(table, i) };
                let part = Desc::of(addr, word);
                memory.add(part.flags, part.addr, part.len)?;
            }
            return Ok((len <= most).then_some((Head::one(d.id), len)));
        }
        // A chain lies in entries that the guest may write.
        let room = self.size.saturating_sub(self.distance(self.published, at));
        for n in 1..=room.min(most) {
            memory.add(d.flags, d.addr, d.len)?;
            if d.flags & DESC_NEXT == 0 {
                // The id is in the last descriptor (virtio 1.3 section 2.8.6).
                return Ok(Some((Head::new(d.id, n), n)));
            }
            at = self.step(at, 1);
            d = self.desc_at(slot(at));
        }
        if room <= most {
            Err(Fault::ChainTooLong)
        } else {
            Ok(None)
        }
    }

    /// Keeps a used buffer; the guest sees it after [`PackedRing::publish`].
    #[inline]
    pub fn stage(&self, head: Head, len: u32) {
        let at = self.staged.get();
        if let Some(entry) = self.entries.get(slot(at)) {
            entry.set(Entry { head, len });
        }
        self.staged.set(self.step(at, head.entries()));
    }

    /// Takes a buffer into which `len` bytes were written, and keeps it as a used one.
    #[inline(never)]
    pub fn fill(&mut self, head: Head, len: u32, memory: &[Seg<'_>]) {
        if let Some((log, _)) = &self.log {
            log.mark_written(&self.mem, memory, len as usize);
        }
        self.advance(head.entries());
        self.stage(head, len);
    }

    /// As [`PackedRing::fill`] of a buffer in one region, which takes one entry.
    #[inline(never)]
    pub fn fill_one(&mut self, id: u16, len: u32, memory: Seg<'_>) {
        let (head, at) = (Head::one(id), self.staged.get());
        if self.log.is_some() {
            return self.fill(head, len, &[memory]);
        }
        let next = self.next_to(self.next);
        if self.seen == self.next {
            self.seen = next;
        }
        self.next = next;
        if let Some(entry) = self.entries.get(slot(at)) {
            entry.set(Entry { head, len });
        }
        self.staged.set(self.next_to(at));
    }

    /// Place behind the staged buffers.
    #[inline]
    pub fn staged(&self) -> u16 {
        self.staged.get()
    }

    /// Place of the next used descriptor that the guest will see.
    #[inline]
    pub fn published(&self) -> u16 {
        self.published
    }

    /// Writes a used descriptor.
    #[inline(always)]
    fn write_used(&self, place: u16, id: u16, len: u32, order: Ordering) {
        // WRITE: the length counts (virtio 1.3 section 2.8.4).
        let mut flags = if wrap(place) { DESC_AVAIL | DESC_USED } else { 0 };
        flags |= if len > 0 { DESC_WRITE } else { 0 };
        let word = u64::from(len) | u64::from(id) << 32 | u64::from(flags) << 48;
        self.store(self.word(slot(place)), word, order);
        self.log_entry(place);
    }

    /// Writes half of a descriptor.
    #[inline(always)]
    fn store(&self, half: &AtomicU64, value: u64, order: Ordering) {
        #[cfg(test)]
        if tests::is_killed() {
            return;
        }
        half.store(value.to_le(), order);
    }

    #[inline(always)]
    fn log_entry(&self, place: u16) {
        if let Some((log, [desc, _])) = &self.log {
            log.mark(desc + 16 * slot(place) as u64, 16);
        }
    }

    /// Publishes all buffers before `upto`. Returns whether the guest wants an interrupt for them.
    #[inline(never)]
    pub fn publish(&mut self, upto: u16) -> bool {
        if upto == self.published {
            return false;
        }
        let old = std::mem::replace(&mut self.published, upto);
        self.show(old, upto);
        // The store must be visible before the guest's request is read (virtio 1.3 section 2.8.21.3.1).
        fence(Ordering::SeqCst);
        self.wants(old, upto)
    }

    /// Writes used descriptors from `old` to `upto`, the first one last: the guest sees all at once. Without written bytes and
    /// with IN_ORDER one descriptor tells all (virtio 1.3 section 2.8.9).
    fn show(&self, old: u16, upto: u16) {
        let entry = |place: u16| self.entries.get(slot(place)).map(Cell::get);
        let Some(first) = entry(old) else { return };
        self.seal(old, upto);
        let rest = self.step(old, first.head.entries());
        let (mut at, mut last, mut silent) = (rest, first, self.in_order && first.len == 0);
        while silent
            && at != upto
            && let Some(next) = entry(at)
        {
            (last, silent) = (next, next.len == 0);
            at = self.step(at, next.head.entries());
        }
        if silent {
            return self.write_used(old, last.head.id(), 0, Ordering::Release);
        }
        at = rest;
        while at != upto
            && let Some(next) = entry(at)
        {
            at = self.write_entry(old, at, next);
        }
        self.write_used(old, first.head.id(), first.len, Ordering::Release);
    }

    /// Writes the used descriptor of a buffer of a batch that begins at `old`. Returns the place of the next one.
    #[inline(always)]
    fn write_entry(&self, old: u16, at: u16, entry: Entry) -> u16 {
        let entries = entry.head.entries();
        if entries > 1 {
            self.mark(old, at, entries);
        }
        self.write_used(at, entry.head.id(), entry.len, Ordering::Relaxed);
        match entries {
            1 => self.next_to(at),
            n => self.step(at, n),
        }
    }

    /// Whether the guest wants an interrupt for the published buffers from `from` on. Called some time after
    /// [`PackedRing::publish`], which stored and fenced: a guest that begins to want one now looks at the ring itself.
    pub fn wants_interrupt(&self, from: u16) -> bool {
        self.wants(from, self.published)
    }

    #[inline]
    fn wants(&self, from: u16, to: u16) -> bool {
        let event = u32::from_le(self.event(self.driver).load(Ordering::Relaxed));
        match event & EVENT_FLAGS {
            EVENT_DISABLE => false,
            EVENT_DESC if self.event_idx => {
                let place = event as u16;
                slot(place) < usize::from(self.size) && self.distance(from, place) < self.distance(from, to)
            }
            _ => true,
        }
    }

    /// Place behind the available descriptors, as far as a look goes: a change shows that the guest works.
    pub fn available(&self) -> u16 {
        self.look(self.seen, LOOK)
    }

    /// Tells the guest not to kick, because the device polls.
    pub fn suppress_kicks(&self) {
        self.set_event(EVENT_DISABLE);
    }

    /// Asks the guest to kick. True: buffers came in the meantime, for which there may be no kick.
    pub fn request_kicks(&mut self) -> Result<bool, Fault> {
        self.request_at(self.next);
        self.ready_now().map(|n| n > 0)
    }

    /// Asks the guest to kick when it makes more buffers available than the last look found. True: it has done so in the
    /// meantime.
    pub fn request_more(&mut self) -> Result<bool, Fault> {
        let seen = self.seen;
        self.request_at(seen);
        self.seen = self.look(seen, LOOK_FAR);
        Ok(self.seen != seen)
    }

    fn request_at(&self, place: u16) {
        self.set_event(if self.event_idx {
            EVENT_DESC | u32::from(place)
        } else {
            0
        });
        fence(Ordering::SeqCst);
    }

    /// Place behind the available descriptors, with a new look.
    pub fn offered(&mut self) -> Result<u16, Fault> {
        self.ready_now()?;
        Ok(self.seen)
    }

    /// Place behind the available descriptors at the last look.
    pub fn seen(&self) -> u16 {
        self.seen
    }

    fn set_event(&self, value: u32) {
        self.event(self.device).store(value.to_le(), Ordering::Relaxed);
        if let Some((log, [_, device])) = &self.log {
            log.mark(*device, 4);
        }
    }

    /// The dirty log, if it is on.
    #[inline]
    pub fn log(&self) -> Option<&DirtyLog> {
        self.log.as_ref().map(|(log, _)| log)
    }

    /// Guest memory.
    pub fn mem(&self) -> &MemMap {
        &self.mem
    }
}

#[cfg(test)]
mod tests;
