//! The split virtqueue (virtio 1.3 section 2.7), device side.
//!
//! The ring is in memory that a hostile guest writes at any time. So each index, descriptor and header is read exactly once,
//! the copy is checked, and an invalid one is a [`Fault`] that stops only this ring. Completions are in order: no buffer is
//! ever left behind `used.idx`, so that a restart after `kill -9` is possible (the frontend resumes from `used.idx`).

#![expect(
    unsafe_code,
    reason = "virtqueues live in guest memory; their indices are atomics there"
)]

use std::cell::Cell;
use std::sync::Arc;

use super::chain::{
    DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Fault, Gather, MAX_CHAIN, MAX_RING, OneWay, Request, RingAddresses,
    indirect_table, words,
};
use crate::mem::{Buffers, DirtyLog, MemMap, Seg, Segs, prefetch};
use crate::sync::{AtomicU16, Ordering, fence};

const AVAIL_NO_INTERRUPT: u16 = 1;
const USED_NO_NOTIFY: u16 = 1;

/// A descriptor, as read once from guest memory.
#[derive(Debug, Clone, Copy)]
struct Desc {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// The device's half of one split virtqueue.
#[derive(Debug)]
pub struct SplitRing {
    desc: *const u8,
    avail: *mut u8,
    used: *mut u8,
    size: u16,
    mask: u16,
    /// Next entry of the available ring to take.
    next_avail: u16,
    /// `avail.idx` when last read.
    avail_seen: u16,
    /// Used entries written (staged), published or not. (A cell: entries are written while buffers are borrowed.)
    staged: Cell<u16>,
    /// `used.idx` as the guest sees it.
    published: u16,
    event_idx: bool,
    indirect: bool,
    log: Option<(DirtyLog, u64)>,
    mem: Arc<MemMap>,
}

// SAFETY: the pointers lead into shared memory that `mem` keeps mapped; one thread at a time owns the ring.
unsafe impl Send for SplitRing {}

impl SplitRing {
    /// Takes over a ring at `base` (SET_VRING_BASE).
    pub fn new(
        mem: Arc<MemMap>,
        size: u32,
        addresses: RingAddresses,
        base: u16,
        event_idx: bool,
        indirect: bool,
        log: Option<DirtyLog>,
    ) -> Result<SplitRing, Fault> {
        if size == 0 || size > u32::from(MAX_RING) || !size.is_power_of_two() {
            return Err(Fault::Size(size));
        }
        let n = u64::from(size);
        let find = |user, len, align, name| mem.user_range(user, len, align).ok_or(Fault::Address(name));
        let desc = find(addresses.desc, 16 * n, 16, "descriptor table")?;
        let avail = find(addresses.avail, 6 + 2 * n, 2, "available ring")?;
        let used = find(addresses.used, 6 + 8 * n, 4, "used ring")?;
        let log = log.and_then(|l| Some((l, addresses.used_log?)));
        let size = size as u16;
        let mut ring = SplitRing {
            desc,
            avail,
            used,
            size,
            mask: size - 1,
            next_avail: base,
            avail_seen: base,
            staged: Cell::new(base),
            published: base,
            event_idx,
            indirect,
            log,
            mem,
        };
        // After a crash of the daemon the guest's memory has the progress: everything before used.idx is done, everything
        // after it was never completed.
        let used_idx = ring.used_u16(2).load(Ordering::Acquire);
        if used_idx != base {
            ring.go_on_at(used_idx);
        }
        Ok(ring)
    }

    /// Continues at the index of `before`, which is the same ring at another address. `before` may have published entries
    /// since this ring read used.idx.
    pub fn go_on_from(&mut self, before: &SplitRing) {
        self.go_on_at(before.published);
    }

    fn go_on_at(&mut self, shown: u16) {
        (self.next_avail, self.avail_seen, self.published) = (shown, shown, shown);
        self.staged.set(shown);
    }

    /// Number of entries.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The answer to GET_VRING_BASE. All taken buffers must be used by then.
    pub fn base(&self) -> u16 {
        self.next_avail
    }

    #[inline(always)]
    fn avail_u16(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= 6 + 2 * self.size as usize);
        // SAFETY: `new` checked that 6 + 2·size bytes are mapped and aligned to 2; the guest writes concurrently,
        // so the access is atomic.
        unsafe { AtomicU16::from_ptr(self.avail.add(offset).cast()) }
    }

    #[inline(always)]
    fn used_u16(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset + 2 <= 6 + 8 * self.size as usize);
        // SAFETY: `new` checked that 6 + 8·size bytes are mapped and aligned to 4.
        unsafe { AtomicU16::from_ptr(self.used.add(offset).cast()) }
    }

    /// Number of buffers that the guest has made available and the device has not taken.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, Fault> {
        if self.avail_seen == self.next_avail {
            self.refresh()?;
        }
        Ok(self.avail_seen.wrapping_sub(self.next_avail))
    }

    /// Whether the guest has made nothing available that was not taken.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.avail_seen == self.next_avail && self.avail_u16(2).load(Ordering::Acquire) == self.next_avail
    }

    /// As [`SplitRing::ready`], with a new read of the guest's index.
    pub fn ready_now(&mut self) -> Result<u16, Fault> {
        self.refresh()?;
        Ok(self.avail_seen.wrapping_sub(self.next_avail))
    }

    #[inline]
    fn refresh(&mut self) -> Result<(), Fault> {
        let idx = self.avail_u16(2).load(Ordering::Acquire);
        if idx.wrapping_sub(self.next_avail) > self.size {
            return Err(Fault::AvailIndex {
                idx,
                next: self.next_avail,
                size: self.size,
            });
        }
        self.avail_seen = idx;
        Ok(())
    }

    /// The head of the `k`-th available buffer; `k` must be below the result of [`SplitRing::ready`].
    #[inline]
    pub fn head(&self, k: u16) -> Result<u16, Fault> {
        let slot = self.next_avail.wrapping_add(k) & self.mask;
        let head = self.avail_u16(4 + 2 * slot as usize).load(Ordering::Relaxed);
        if head < self.size {
            Ok(head)
        } else {
            Err(Fault::DescriptorIndex(head))
        }
    }

    /// Prefetches the descriptors of the next `n` buffers together: one by one, each cache line that the guest's core has
    /// written would be waited for. The values read here decide nothing.
    #[inline]
    pub fn prefetch_descriptors(&self, n: u16) {
        for k in 0..n {
            let slot = self.next_avail.wrapping_add(k) & self.mask;
            let head = self.avail_u16(4 + 2 * slot as usize).load(Ordering::Relaxed) & self.mask;
            prefetch(self.desc.wrapping_add(16 * head as usize));
        }
    }

    /// Takes `n` buffers.
    #[inline]
    pub fn advance(&mut self, n: u16) {
        self.next_avail = self.next_avail.wrapping_add(n);
    }

    #[inline(always)]
    fn desc_at(table: *const u8, i: u16) -> Desc {
        // SAFETY: the caller checked `i` against the length of the table, which is mapped and readable.
        let (addr, b) = unsafe { words(table, i) };
        Desc {
            addr,
            len: b as u32,
            flags: (b >> 32) as u16,
            next: (b >> 48) as u16,
        }
    }

    /// The buffer, if it is one descriptor in one region, as nearly every buffer is.
    #[inline(always)]
    pub fn single(&self, head: u16, write: bool) -> Option<Seg<'_>> {
        let d = self.single_desc(head, write)?;
        self.mem.seg(d.addr, d.len)
    }

    /// As [`SplitRing::single`], and adds the buffer to a list.
    #[inline(always)]
    pub fn add_single<'b, const N: usize>(
        &self,
        head: u16,
        write: bool,
        out: &'b mut Buffers<N>,
    ) -> Option<Seg<'b>> {
        let d = self.single_desc(head, write)?;
        out.push(&self.mem, head, d.addr, d.len)
    }

    #[inline(always)]
    fn single_desc(&self, head: u16, write: bool) -> Option<Desc> {
        let d = Self::desc_at(self.desc, head);
        let wanted = if write { DESC_WRITE } else { 0 };
        (d.flags & (DESC_NEXT | DESC_INDIRECT | DESC_WRITE) == wanted).then_some(d)
    }

    /// Appends the buffer's memory to `out`; returns its length. `write`: the buffer must be device-writable (receive), else
    /// device-readable (transmit).
    #[inline]
    pub fn chain(&self, head: u16, write: bool, out: &mut Segs) -> Result<u64, Fault> {
        Ok(self.counted_chain(head, write, out)?.0)
    }

    /// As [`SplitRing::chain`]; returns the length and the number of descriptors, including empty ones.
    pub fn counted_chain(&self, head: u16, write: bool, out: &mut Segs) -> Result<(u64, u16), Fault> {
        let whole = self.bounded_chain(head, write, MAX_CHAIN as u16, out)?;
        whole.ok_or(Fault::ChainTooLong)
    }

    /// As [`SplitRing::counted_chain`], for at most `most` descriptors. `None`: the chain has more, which were not read.
    pub fn bounded_chain(
        &self,
        head: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(u64, u16)>, Fault> {
        let mut memory = OneWay::new(&self.mem, write, out);
        let n = self.walk(head, most, &mut memory)?;
        Ok(n.map(|n| (memory.total, n)))
    }

    /// Gathers the memory of a chain. Returns its number of descriptors; `None`: it has more than `most`.
    fn walk(&self, head: u16, most: u16, memory: &mut impl Gather) -> Result<Option<u16>, Fault> {
        let mut d = Self::desc_at(self.desc, head);
        let (mut table, mut len) = (self.desc, self.size);
        if d.flags & DESC_INDIRECT != 0 {
            (table, len) = indirect_table(&self.mem, self.indirect, d.flags, d.addr, d.len)?;
            d = Self::desc_at(table, 0);
        }
        for n in 1..=len.min(most) {
            memory.add(d.flags, d.addr, d.len)?;
            if d.flags & DESC_NEXT == 0 {
                return Ok(Some(n));
            }
            if d.next >= len {
                return Err(Fault::DescriptorIndex(d.next));
            }
            d = Self::desc_at(table, d.next);
        }
        // A chain that continues after all descriptors is a loop.
        if len <= most {
            Err(Fault::ChainTooLong)
        } else {
            Ok(None)
        }
    }

    /// Appends a request's memory. Returns the bytes that are device-readable, and those that are device-writable.
    pub fn request(&self, head: u16, readable: &mut Segs, writable: &mut Segs) -> Result<(u64, u64), Fault> {
        let mut memory = Request::new(&self.mem, readable, writable);
        let whole = self.walk(head, MAX_CHAIN as u16, &mut memory)?;
        whole.map(|_| memory.total).ok_or(Fault::ChainTooLong)
    }

    /// Writes a used entry; the guest sees it after [`SplitRing::publish`].
    #[inline]
    pub fn stage(&self, head: u16, len: u32) {
        let slot = (self.staged.get() & self.mask) as usize;
        let entry = u64::from(head) | u64::from(len) << 32;
        // SAFETY: `slot < size`, so the entry lies inside the used ring that `new` checked; it is only 4-aligned.
        unsafe {
            self.used
                .add(4 + 8 * slot)
                .cast::<u64>()
                .write_unaligned(entry.to_le())
        };
        if let Some((log, used_gpa)) = &self.log {
            log.mark(used_gpa + 4 + 8 * slot as u64, 8);
        }
        self.staged.set(self.staged.get().wrapping_add(1));
    }

    /// Used entries written so far, as a ring index.
    #[inline]
    pub fn staged(&self) -> u16 {
        self.staged.get()
    }

    /// `used.idx` as the guest sees it.
    #[inline]
    pub fn published(&self) -> u16 {
        self.published
    }

    /// Whether there are staged entries that the guest does not see yet.
    #[inline]
    pub fn unpublished(&self) -> bool {
        self.staged.get() != self.published
    }

    /// Publishes all entries before `upto`. Returns whether the guest wants an interrupt for them.
    #[inline]
    pub fn publish(&mut self, upto: u16) -> bool {
        if upto == self.published {
            return false;
        }
        let old = std::mem::replace(&mut self.published, upto);
        self.used_u16(2).store(upto, Ordering::Release);
        if let Some((log, used_gpa)) = &self.log {
            log.mark(*used_gpa, 4);
        }
        // The store must be visible before the guest's request is read (virtio 1.3 section 2.7.7.2).
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.avail_u16(4 + 2 * self.size as usize).load(Ordering::Relaxed);
            upto.wrapping_sub(event).wrapping_sub(1) < upto.wrapping_sub(old)
        } else {
            self.avail_u16(0).load(Ordering::Relaxed) & AVAIL_NO_INTERRUPT == 0
        }
    }

    /// Whether the guest wants an interrupt for the published entries from `from` on. Called some time after
    /// [`SplitRing::publish`], which stored and fenced: a guest that begins to want one now looks at the entries itself.
    pub fn wants_interrupt(&self, from: u16) -> bool {
        if self.event_idx {
            let event = self.avail_u16(4 + 2 * self.size as usize).load(Ordering::Relaxed);
            let shown = self.published.wrapping_sub(from);
            self.published.wrapping_sub(event).wrapping_sub(1) < shown
        } else {
            self.avail_u16(0).load(Ordering::Relaxed) & AVAIL_NO_INTERRUPT == 0
        }
    }

    /// The guest's available index, unchecked: a change shows that the guest works.
    pub fn available(&self) -> u16 {
        self.avail_u16(2).load(Ordering::Relaxed)
    }

    /// Tells the guest not to kick, because the device polls. With event idx one kick in 65536 still comes.
    pub fn suppress_kicks(&self) {
        if self.event_idx {
            self.set_avail_event(self.next_avail.wrapping_sub(1));
        } else {
            self.used_u16(0).store(USED_NO_NOTIFY, Ordering::Relaxed);
        }
    }

    /// Asks the guest to kick. True: buffers came in the meantime, for which there may be no kick.
    pub fn request_kicks(&mut self) -> Result<bool, Fault> {
        if self.event_idx {
            self.set_avail_event(self.next_avail);
        } else {
            self.used_u16(0).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.refresh()?;
        Ok(self.avail_seen != self.next_avail)
    }

    /// Asks the guest to kick when it makes more buffers available than at the last read of its index. True: it has done so
    /// in the meantime.
    pub fn request_more(&mut self) -> Result<bool, Fault> {
        let seen = self.avail_seen;
        if self.event_idx {
            self.set_avail_event(seen);
        } else {
            self.used_u16(0).store(0, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        self.refresh()?;
        Ok(self.avail_seen != seen)
    }

    /// `avail.idx`, with a new read.
    pub fn offered(&mut self) -> Result<u16, Fault> {
        self.refresh()?;
        Ok(self.avail_seen)
    }

    /// `avail.idx` at the last read.
    pub fn seen(&self) -> u16 {
        self.avail_seen
    }

    fn set_avail_event(&self, value: u16) {
        self.used_u16(4 + 8 * self.size as usize)
            .store(value, Ordering::Relaxed);
        if let Some((log, used_gpa)) = &self.log {
            log.mark(used_gpa + 4 + 8 * u64::from(self.size), 2);
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
