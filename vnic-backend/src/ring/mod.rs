//! Virtqueues, device side, polled.

pub mod chain;
pub mod packed;
pub mod split;

use crate::mem::{Buffers, Seg, Segs};

pub use chain::{Fault, Head, RingAddresses};
pub use packed::PackedRing;
pub use split::SplitRing;

/// What the loops over bursts need of a ring. `k` counts ring entries from the next one on.
pub trait Virtqueue {
    /// Prefetches the next `n` entries. The values read here decide nothing.
    fn prefetch(&self, n: u16);
    /// The buffer at `k`, if it is one descriptor in one region, as nearly every buffer is.
    fn single(&self, k: u16, write: bool) -> Result<Option<(Head, Seg<'_>)>, Fault>;
    /// As [`Virtqueue::single`], and adds the buffer to a list.
    fn add_single<'b, const N: usize>(
        &self,
        k: u16,
        write: bool,
        out: &'b mut Buffers<N>,
    ) -> Result<Option<Seg<'b>>, Fault>;
    /// Appends the memory of the buffer at `k`. Returns the buffer, its length and its number of descriptors, empty ones
    /// included; `None`: there are more than `most`, which were not read.
    fn chain(
        &self,
        k: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(Head, u64, u16)>, Fault>;
    /// Entries that a buffer takes.
    fn entries(head: Head) -> u16;
    /// Takes `n` entries.
    fn advance(&mut self, n: u16);
    /// Writes a used buffer, which the guest does not see yet.
    fn stage(&self, head: Head, len: u32);
}

impl Virtqueue for SplitRing {
    #[inline(always)]
    fn prefetch(&self, n: u16) {
        self.prefetch_descriptors(n);
    }

    #[inline(always)]
    fn single(&self, k: u16, write: bool) -> Result<Option<(Head, Seg<'_>)>, Fault> {
        let head = self.head(k)?;
        Ok(SplitRing::single(self, head, write).map(|seg| (Head::one(head), seg)))
    }

    #[inline(always)]
    fn add_single<'b, const N: usize>(
        &self,
        k: u16,
        write: bool,
        out: &'b mut Buffers<N>,
    ) -> Result<Option<Seg<'b>>, Fault> {
        let head = self.head(k)?;
        Ok(SplitRing::add_single(self, head, write, out))
    }

    #[inline]
    fn chain(
        &self,
        k: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(Head, u64, u16)>, Fault> {
        let head = self.head(k)?;
        let whole = self.bounded_chain(head, write, most, out)?;
        Ok(whole.map(|(len, n)| (Head::one(head), len, n)))
    }

    #[inline(always)]
    fn entries(_head: Head) -> u16 {
        1
    }

    #[inline(always)]
    fn advance(&mut self, n: u16) {
        SplitRing::advance(self, n);
    }

    #[inline(always)]
    fn stage(&self, head: Head, len: u32) {
        SplitRing::stage(self, head.id(), len);
    }
}

impl Virtqueue for PackedRing {
    #[inline(always)]
    fn prefetch(&self, _n: u16) {
        // The look that found them has read them.
    }

    #[inline(always)]
    fn single(&self, k: u16, write: bool) -> Result<Option<(Head, Seg<'_>)>, Fault> {
        Ok(PackedRing::single(self, k, write))
    }

    #[inline(always)]
    fn add_single<'b, const N: usize>(
        &self,
        k: u16,
        write: bool,
        out: &'b mut Buffers<N>,
    ) -> Result<Option<Seg<'b>>, Fault> {
        Ok(PackedRing::add_single(self, k, write, out))
    }

    fn chain(
        &self,
        k: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(Head, u64, u16)>, Fault> {
        self.bounded_chain(k, write, most, out)
    }

    #[inline(always)]
    fn entries(head: Head) -> u16 {
        head.entries()
    }

    #[inline(always)]
    fn advance(&mut self, n: u16) {
        PackedRing::advance(self, n);
    }

    #[inline(always)]
    fn stage(&self, head: Head, len: u32) {
        PackedRing::stage(self, head, len);
    }
}

/// Marks the first `written` bytes of this memory as dirty. Out of line: guests that move are rare.
#[cold]
#[inline(never)]
fn log_one(ring: &SplitRing, memory: Seg<'_>, written: u32) {
    if let Some(log) = ring.log() {
        log.mark_written(ring.mem(), &[memory], written as usize);
    }
}

/// A ring of the format that its driver has negotiated. Places in it are opaque: they are compared, and [`Ring::distance`] tells
/// how far they are apart.
#[derive(Debug)]
pub enum Ring {
    /// A split ring.
    Split(SplitRing),
    /// A packed ring (VIRTIO_F_RING_PACKED).
    Packed(PackedRing),
}

/// The same expression for a ring of either format.
macro_rules! either {
    ($ring:expr, $r:ident => $what:expr) => {
        match $ring {
            $crate::ring::Ring::Split($r) => $what,
            $crate::ring::Ring::Packed($r) => $what,
        }
    };
}
pub(crate) use either;

impl Ring {
    /// Number of entries.
    pub fn size(&self) -> u16 {
        either!(self, r => r.size())
    }

    /// Place of the next entry: the answer to GET_VRING_BASE. All taken buffers must be used by then.
    pub fn base(&self) -> u16 {
        either!(self, r => r.base())
    }

    /// Whether the ring stands where a driver begins.
    pub fn is_at_start(&self) -> bool {
        match self {
            Ring::Split(r) => r.base() == 0,
            Ring::Packed(r) => r.base() == 1 << 15,
        }
    }

    /// Entries from a place to a later one.
    pub fn distance(&self, from: u16, to: u16) -> u16 {
        match self {
            Ring::Split(_) => to.wrapping_sub(from),
            Ring::Packed(r) => r.distance(from, to),
        }
    }

    /// The place a whole ring before.
    pub fn lap_before(&self, place: u16) -> u16 {
        match self {
            Ring::Split(r) => place.wrapping_sub(r.size()),
            Ring::Packed(_) => place ^ 1 << 15,
        }
    }

    /// Number of entries that the guest has made available and the device has not taken.
    #[inline]
    pub fn ready(&mut self) -> Result<u16, Fault> {
        either!(self, r => r.ready())
    }

    /// Whether the guest has made nothing available that was not taken. False, too, where a look costs as much as
    /// [`Ring::ready`].
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        matches!(self, Ring::Split(r) if r.is_empty())
    }

    /// As [`Ring::ready`], with a new look at the ring.
    pub fn ready_now(&mut self) -> Result<u16, Fault> {
        either!(self, r => r.ready_now())
    }

    /// See [`Virtqueue::chain`].
    pub fn chain(
        &self,
        k: u16,
        write: bool,
        most: u16,
        out: &mut Segs,
    ) -> Result<Option<(Head, u64, u16)>, Fault> {
        either!(self, r => Virtqueue::chain(r, k, write, most, out))
    }

    /// Appends the memory of the next request: device-readable, then device-writable. Returns the buffer and the bytes of each.
    pub fn request(&self, readable: &mut Segs, writable: &mut Segs) -> Result<(Head, (u64, u64)), Fault> {
        match self {
            Ring::Split(r) => {
                let head = r.head(0)?;
                Ok((Head::one(head), r.request(head, readable, writable)?))
            }
            Ring::Packed(r) => r.request(readable, writable),
        }
    }

    /// Entries that a buffer takes.
    #[inline]
    pub fn entries(&self, head: Head) -> u16 {
        match self {
            Ring::Split(_) => 1,
            Ring::Packed(_) => head.entries(),
        }
    }

    /// Takes a buffer into which `len` bytes were written, and writes that it is used; the bytes are marked as dirty, if dirty
    /// logging is on. The guest sees it after [`Ring::publish`].
    #[inline(always)]
    pub fn fill(&mut self, head: Head, len: u32, memory: &[Seg<'_>]) {
        match self {
            Ring::Split(r) => {
                if let Some(log) = r.log() {
                    log.mark_written(r.mem(), memory, len as usize);
                }
                r.advance(1);
                r.stage(head.id(), len);
            }
            Ring::Packed(r) => r.fill(head, len, memory),
        }
    }

    /// As [`Ring::fill`] of a buffer in one region, which takes one ring entry.
    #[inline(always)]
    pub fn fill_one(&mut self, id: u16, len: u32, memory: Seg<'_>) {
        match self {
            Ring::Split(r) => {
                if r.log().is_some() {
                    log_one(r, memory, len);
                }
                r.advance(1);
                r.stage(id, len);
            }
            Ring::Packed(r) => r.fill_one(id, len, memory),
        }
    }

    /// Takes a buffer, and writes that it is used. The guest sees it after [`Ring::publish`].
    pub fn complete(&mut self, head: Head, len: u32) {
        self.fill(head, len, &[]);
    }

    /// Writes that a taken buffer is used. The guest sees it after [`Ring::publish`].
    #[inline]
    pub fn stage(&self, head: Head, len: u32) {
        either!(self, r => Virtqueue::stage(r, head, len));
    }

    /// Place behind the buffers that were written as used.
    #[inline]
    pub fn staged(&self) -> u16 {
        either!(self, r => r.staged())
    }

    /// Place behind the used buffers that the guest sees.
    #[inline]
    pub fn published(&self) -> u16 {
        either!(self, r => r.published())
    }

    /// Whether there are used buffers that the guest does not see yet.
    #[inline]
    pub fn unpublished(&self) -> bool {
        self.staged() != self.published()
    }

    /// Publishes all buffers before `upto`. Returns whether the guest wants an interrupt for them.
    #[inline]
    pub fn publish(&mut self, upto: u16) -> bool {
        either!(self, r => r.publish(upto))
    }

    /// Whether the guest wants an interrupt for the published buffers from `from` on, some time later.
    pub fn wants_interrupt(&self, from: u16) -> bool {
        either!(self, r => r.wants_interrupt(from))
    }

    /// Place behind the available buffers, unchecked: a change shows that the guest works.
    pub fn available(&self) -> u16 {
        either!(self, r => r.available())
    }

    /// Tells the guest not to kick, because the device polls.
    pub fn suppress_kicks(&self) {
        either!(self, r => r.suppress_kicks());
    }

    /// Asks the guest to kick. True: buffers came in the meantime, for which there may be no kick.
    pub fn request_kicks(&mut self) -> Result<bool, Fault> {
        either!(self, r => r.request_kicks())
    }

    /// Asks the guest to kick when it makes more buffers available than the last look found. True: it has done so in the
    /// meantime.
    pub fn request_more(&mut self) -> Result<bool, Fault> {
        either!(self, r => r.request_more())
    }

    /// Place behind the available buffers, with a new look.
    pub fn offered(&mut self) -> Result<u16, Fault> {
        either!(self, r => r.offered())
    }

    /// Place behind the available buffers at the last look.
    pub fn seen(&self) -> u16 {
        either!(self, r => r.seen())
    }

    /// Marks the first `written` bytes of this guest memory as dirty, if dirty logging is on.
    #[inline]
    pub fn log_written(&self, segs: &[Seg<'_>], written: usize) {
        if let (Some(log), mem) = either!(self, r => (r.log(), r.mem())) {
            log.mark_written(mem, segs, written);
        }
    }
}

/// Fault of a ring by its guest; the ring is not read any more then.
#[derive(Debug, Default)]
pub struct Broken {
    fault: Option<Fault>,
    told: bool,
}

impl Broken {
    /// Whether the ring has a fault.
    #[inline]
    pub fn is(&self) -> bool {
        self.fault.is_some()
    }

    /// Records a fault.
    pub fn set(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// The fault, reported once.
    pub fn take(&mut self) -> Option<Fault> {
        if self.told {
            return None;
        }
        self.told = self.is();
        self.fault
    }
}
