//! Where a packed ring stands after a crash of the daemon, from its content alone.
//!
//! A VMM whose daemon was killed gives the place at which the ring began, and there is no index in memory. The address of a used
//! descriptor means nothing to drivers (virtio 1.3 section 2.8.4): the device writes marks there. A batch of used buffers is
//! published in this order: a mark in the batch's last entry, which says where the batch begins; that entry becomes used; used
//! descriptors of the other buffers; the used descriptor of the first buffer, by which the guest sees the batch. So the last
//! used entry of the current lap, by its wrap counter, is the end of the last batch. A batch whose first entry is still available
//! was cut short by the crash: its buffers are completed, with nothing written.
//!
//! A guest that has made all entries available has overwritten the mark: then only the wrap counters differ, at the place that is
//! asked for. Entries without a mark are those of another device, whose place the VMM knows.

use super::super::chain::DESC_NEXT;
use super::{DESC_AVAIL, DESC_USED, Desc, Ordering, PackedRing, WRAP, is_available, slot, wrap};

/// Upper half of a mark. No guest has memory there. Below it are the number of entries of the buffer that begins at the mark, and
/// the place at which its batch begins.
const MARK: u64 = 0x766e_6963;

/// Whether flags say that the descriptor is used, in the lap with this wrap counter.
fn is_used(flags: u16, wrap: bool) -> bool {
    flags & (DESC_AVAIL | DESC_USED) == if wrap { DESC_AVAIL | DESC_USED } else { 0 }
}

/// Where a ring stands all of whose entries are available: where their lap changes.
fn turn(ring: &[Desc]) -> u16 {
    let new = |d: &Desc| is_available(d.flags, true);
    let first = ring.first().is_some_and(new);
    let at = ring.iter().position(|d| new(d) != first);
    match at {
        Some(at) => at as u16 | if first { 0 } else { WRAP },
        None if first => WRAP,
        None => 0,
    }
}

impl PackedRing {
    /// Marks an entry of the batch that begins at `batch`. `entries`: those of the buffer that begins there.
    #[inline]
    pub(super) fn mark(&self, batch: u16, place: u16, entries: u16) {
        let mark = MARK << 32 | u64::from(entries) << 16 | u64::from(batch);
        self.store(self.addr(slot(place)), mark, Ordering::Relaxed);
        // (The store to the entry's second half follows, and is logged.)
        self.log_entry(place);
    }

    /// Marks the last entry of the batch from `batch` to `upto`, and makes it used if it is not the first.
    #[inline]
    pub(super) fn seal(&self, batch: u16, upto: u16) {
        let end = self.before(upto);
        self.mark(batch, end, 1);
        if end != batch {
            // Id and length stay: of a buffer's last descriptor the device may need the id once more.
            let word = u64::from_le(self.word(slot(end)).load(Ordering::Relaxed));
            let state = if wrap(end) { DESC_AVAIL | DESC_USED } else { 0 };
            let flags = (word >> 48) as u16 & !(DESC_AVAIL | DESC_USED) | state;
            let word = word << 16 >> 16 | u64::from(flags) << 48;
            self.store(self.word(slot(end)), word, Ordering::Release);
        }
    }

    /// The place one entry before.
    fn before(&self, place: u16) -> u16 {
        match place & !WRAP {
            0 => (self.size - 1) | !place & WRAP,
            _ => place - 1,
        }
    }

    /// Mark of an entry: where its batch begins, and the number of entries of its buffer.
    fn marked(&self, d: &Desc) -> Option<(u16, u16)> {
        let (batch, entries) = (d.addr as u16, (d.addr >> 16) as u16);
        let valid = d.addr >> 32 == MARK && slot(batch) < usize::from(self.size);
        valid.then_some((batch, entries.max(1)))
    }

    /// Goes on where the ring's content says that it stands, or else at `base`.
    pub(super) fn recover(&mut self, base: u16) {
        let ring = self.snapshot();
        let (mut lap, mut last) = (None, None);
        for (i, d) in (0..self.size).zip(&ring) {
            if is_available(d.flags, true) || is_available(d.flags, false) {
                continue;
            }
            let used = is_used(d.flags, true);
            if *lap.get_or_insert(used) == used {
                last = Some(i | if used { WRAP } else { 0 });
            }
        }
        let found = match last {
            None => Some((turn(&ring), None)),
            Some(last) => self.marked(&ring[slot(last)]).map(|(batch, _)| {
                let (end, hidden) = (
                    self.step(last, 1),
                    is_available(ring[slot(batch)].flags, wrap(batch)),
                );
                if hidden { (batch, Some(end)) } else { (end, None) }
            }),
        };
        // Frontends that know of no wrap counter say 0 (User-Mode-Linux). An entry that is next was used in the lap before, or is
        // available.
        let begins = base == 0 && ring[0].flags & DESC_USED == 0;
        let (place, end) = found.unwrap_or((if begins { WRAP } else { base }, None));
        self.go_on_at(place);
        if let Some(end) = end.or_else(|| self.cut_short(&ring, place)) {
            self.complete(place, end);
            self.go_on_at(end);
        }
    }

    /// The ring as it stood at one time: its guest may be making buffers available. It can do so for one lap only; one that
    /// does else looks after itself.
    fn snapshot(&self) -> Vec<Desc> {
        let look = || (0..usize::from(self.size)).map(|i| self.desc_at(i)).collect();
        let mut ring: Vec<Desc> = look();
        for _ in 0..16 {
            let again = look();
            if again == ring {
                break;
            }
            ring = again;
        }
        ring
    }

    /// End of a batch at `place` of which nothing but the first mark was written.
    fn cut_short(&self, ring: &[Desc], place: u16) -> Option<u16> {
        let mut at = place;
        for _ in 0..self.size {
            let d = &ring[slot(at)];
            if !is_available(d.flags, wrap(at)) {
                return None;
            }
            let next = self.step(at, 1);
            if self.marked(d).is_some_and(|(batch, _)| batch == place) {
                return Some(next);
            }
            at = next;
        }
        None
    }

    /// Completes the buffers of a batch, with nothing written; the first one last.
    fn complete(&self, batch: u16, end: u16) {
        self.seal(batch, end);
        let (mut at, mut first) = (batch, None);
        for _ in 0..self.size {
            if at == end || self.distance(at, end) > self.size {
                break;
            }
            let d = self.desc_at(slot(at));
            let (id, entries) = match is_available(d.flags, wrap(at)) {
                true => self.extent(at, end),
                false => (d.id, self.marked(&d).map_or(1, |(_, entries)| entries)),
            };
            match first {
                None => first = Some(id),
                Some(_) => self.write_used(at, id, 0, Ordering::Relaxed),
            }
            at = self.step(at, entries);
        }
        if let Some(id) = first {
            self.write_used(batch, id, 0, Ordering::Release);
        }
    }

    /// Id and number of entries of the buffer at `at`, which ends before `end`.
    fn extent(&self, at: u16, end: u16) -> (u16, u16) {
        let (mut here, mut n) = (at, 1);
        loop {
            let d = self.desc_at(slot(here));
            here = self.step(here, 1);
            if d.flags & DESC_NEXT == 0 || here == end || n == self.size {
                return (d.id, n);
            }
            n += 1;
        }
    }
}
