//! Receive queues, towards the guest.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::moderation::{Decision, Method};
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::steering::{Toeplitz, Tunnels};
use vnic_fabric::{DropReason, Instant};

use super::calls::{Call, Caller, Calls};
use super::clock::Clock;
use super::counters::{AdapterCounters, BY_TAG, Groups, Priorities, Way};
use super::frame::{Arrival, Metadata, OutFrame, OwnedFrame, RawFrame, SNAP};
use super::gate::Gate;
use super::ring_start::RingStart;
use crate::mem::{Buffers, Seg, Segs, Writer};
use crate::ring::chain::MAX_CHAIN;
use crate::ring::{Broken, Fault, Head, Ring, Virtqueue, either};

/// Most descriptors of all buffers of a frame: this many, and one for each [`PIECE`] bytes more. A frame that needs more is
/// dropped, because its sender's core would pay for walking them. (Drivers use 19 at most; those that merge buffers, one for
/// a KiB or more.)
const PIECES: usize = 64;
const PIECE: usize = 64;

/// Buffers read ahead at once: many loads in flight together cost little more than one.
const AHEAD: usize = 32;
/// Longest frame that is placed into a buffer read ahead: a longer one takes long to copy and may need several buffers.
const AHEAD_LEN: usize = 2048;

/// A frame that waits for a receive buffer.
pub struct Parked {
    /// The frame.
    pub frame: OwnedFrame,
    /// When the frame began to wait.
    pub since: Instant,
}

impl Parked {
    /// Bytes of memory that the frame takes.
    pub fn cost(&self) -> u64 {
        (self.frame.bytes.len() + size_of::<Parked>()) as u64
    }
}

/// Frames that wait for buffers of a queue. While there are any, nothing is read ahead: a new frame finds no buffer and
/// queues behind them.
#[derive(Default)]
pub struct Parking {
    /// The frames, longest waiting first.
    frames: VecDeque<Parked>,
    /// Number of frames beyond the reserve, which are the last of `frames`.
    pub over: usize,
    /// Index up to which the guest had offered buffers when they were not enough for the first frame.
    not_enough: Option<u16>,
    /// Whether the guest was asked to kick when it offers more.
    pub asked: bool,
}

/// Results of looks at the buffers of a queue, so that they are not repeated.
#[derive(Default)]
struct Found {
    /// Frames that have no room while the guest offers no more than this: `avail.idx`, number of buffers, bytes of each
    /// frame, frames. (The index alone comes again after 65,536 buffers.)
    no_room: Option<(u16, u16, usize, usize)>,
    /// Largest number of buffers that the guest has offered at a time.
    most: u16,
    /// Ring index of a buffer that, with those behind it, has too many descriptors for a frame of this length or less. (The
    /// guest must not change available buffers; the next look is after the buffer was used.)
    scattered: Option<(u16, usize)>,
}

/// Frames that a queue was given since the last flush.
#[derive(Default)]
struct Given {
    frames: u64,
    bytes: u64,
    groups: Groups,
    priorities: Priorities,
}

/// The next buffers of a ring, read ahead, as far as they have one descriptor each.
#[derive(Default)]
struct Ahead {
    buffers: Buffers<AHEAD>,
    /// Number of used buffers.
    used: usize,
}

/// Format of received frames that a driver has negotiated.
struct Format {
    /// Bytes of the virtio header.
    hdr_len: usize,
    /// Whether the driver merges buffers (VIRTIO_NET_F_MRG_RXBUF).
    mergeable: bool,
    /// Bytes of the longest frame for the adapter's MTU, a tag included.
    longest: usize,
}

/// Hash that a driver wants with each frame.
pub struct Report {
    /// The hash.
    pub hash: Arc<Toeplitz>,
    /// Tunnels whose inner packets are hashed.
    pub tunnels: Tunnels,
}

/// A receive queue of a running guest.
pub struct RxQueue {
    ring: Ring,
    calls: Calls,
    kick: Option<Arc<File>>,
    pair: usize,
    format: Format,
    counters: Arc<AdapterCounters>,
    broken: Broken,
    /// Hash that the driver wants with each frame (VIRTIO_NET_F_HASH_REPORT).
    pub report: Option<Report>,
    /// Whether the queue is in the list of queues to be flushed.
    pub touched: bool,
    /// Gates of frames that another core sent and has not committed yet, and their ring indexes: nothing from there on may be
    /// published.
    gates: VecDeque<(Gate, u16)>,
    /// Working memory for a frame that needs a chain or several.
    chains: Chains,
    ahead: Ahead,
    /// Frames that wait for buffers.
    pub parking: Parking,
    found: Found,
    given: Given,
}

/// Chains of one frame, kept so that no frame needs an allocation.
#[derive(Default)]
struct Chains {
    segs: Segs,
    /// Heads of the chains, and the bytes of each.
    used: Vec<(Head, u64)>,
}

/// Writes the first bytes of a frame, which are all of it if they are fewer than [`SNAP`]: such in two writes that overlap.
#[inline(always)]
fn write_short(seg: Seg<'_>, at: usize, head: &[u8]) {
    const HALF: usize = SNAP / 2;
    match (head.first_chunk::<HALF>(), head.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if head.len() < SNAP => {
            seg.write(at, first);
            seg.write(at + head.len() - HALF, last);
        }
        _ => seg.write_slice(at, head),
    }
}

impl RxQueue {
    /// Takes over a ring that the guest has enabled.
    pub fn new(start: RingStart, counters: Arc<AdapterCounters>) -> Self {
        start.ring.suppress_kicks();
        RxQueue {
            pair: usize::from(start.index / 2),
            ring: start.ring,
            calls: Calls::new(start.call, Method::default()),
            kick: start.kick,
            format: Format {
                hdr_len: start.hdr_len,
                mergeable: start.mergeable,
                longest: usize::from(start.mtu) + 18,
            },
            counters,
            broken: Broken::default(),
            report: None,
            touched: false,
            gates: VecDeque::new(),
            chains: Chains::default(),
            ahead: Ahead::default(),
            parking: Parking::default(),
            found: Found::default(),
            given: Given::default(),
        }
    }

    /// Copies a frame into the next buffers; `priority` is the receiver's, or [`BY_TAG`]. The guest sees the frame after
    /// [`RxQueue::flush`].
    #[inline]
    pub fn put(&mut self, f: &OutFrame<'_>, gate: Option<Gate>, priority: u8) -> Result<(), DropReason> {
        if self.broken.is() {
            return Err(DropReason::RxRingBroken);
        }
        // A segmentation request may be longer; its segments fit the sender's MTU.
        if f.len() > self.format.longest && f.hdr.gso_type == NetHdr::GSO_NONE {
            return Err(DropReason::ReceiverMtu);
        }
        let gate = self.gate(gate);
        match self.place(f) {
            Ok(Ok(())) => {
                self.account(f.head, f.len(), gate, priority);
                Ok(())
            }
            Ok(Err(reason)) => Err(reason),
            Err(fault) => {
                self.broken.set(fault);
                Err(DropReason::RxRingBroken)
            }
        }
    }

    /// As [`RxQueue::put`], for a frame without an edit and without an offload request. No [`OutFrame`] is made in memory: it
    /// could be read again only after all earlier stores to guests.
    #[inline]
    pub fn put_plain(
        &mut self,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        priority: u8,
    ) -> Result<(), DropReason> {
        if gate.is_some() {
            return self.put_gated(f, gate, priority);
        }
        if self.place_plain(f) {
            self.account(f.head, f.len, None, priority);
            return Ok(());
        }
        self.put(&f.plain(), None, priority)
    }

    /// As [`RxQueue::put_plain`] for a frame of another core: what is kept of its gate costs those of this core nothing.
    #[inline(never)]
    fn put_gated(&mut self, f: &RawFrame<'_>, gate: Option<Gate>, priority: u8) -> Result<(), DropReason> {
        let held = self.gate(gate);
        if self.place_plain(f) {
            self.account(f.head, f.len, held, priority);
            return Ok(());
        }
        self.put(&f.plain(), gate, priority)
    }

    /// Puts a plain frame into the next buffer that was read ahead. False: the frame needs more looks.
    #[inline(always)]
    fn place_plain(&mut self, f: &RawFrame<'_>) -> bool {
        let from = f.skip + f.head.len();
        let tail = f.len - f.head.len();
        !self.broken.is()
            && f.len <= self.format.longest
            && self.place_ahead(f.head, f.segs, from, tail, NetHdr::default())
    }

    /// The gate of a frame that is about to be placed, and where in the ring it is.
    #[inline(always)]
    fn gate(&self, gate: Option<Gate>) -> Option<(Gate, u16)> {
        gate.map(|gate| (gate, self.ring.staged()))
    }

    /// Counts a placed frame.
    #[inline(always)]
    fn account(&mut self, head: &[u8], len: usize, gate: Option<(Gate, u16)>, priority: u8) {
        if let Some(gate) = gate {
            self.gates.push_back(gate);
        }
        self.given.frames += 1;
        self.given.bytes += len as u64;
        if priority != BY_TAG {
            self.given.groups.frame(head, len as u64);
            self.given.priorities.frame(priority, head, len as u64);
            return;
        }
        // Multicast and tagged frames are rare: one branch for both.
        let rare = match head.first_chunk::<14>() {
            Some(h) => h[0] & 1 | u8::from(h[12..14] == [0x81, 0x00]),
            None => 1,
        };
        if rare != 0 {
            self.account_rare(head, len);
        }
    }

    #[inline(never)]
    fn account_rare(&mut self, head: &[u8], len: usize) {
        self.given.groups.frame(head, len as u64);
        self.given.priorities.frame(BY_TAG, head, len as u64);
    }

    #[inline]
    fn place(&mut self, f: &OutFrame<'_>) -> Result<Result<(), DropReason>, Fault> {
        let need = self.format.hdr_len + f.len();
        if self.ahead.used == self.ahead.buffers.len() && need <= AHEAD_LEN {
            self.look_ahead()?;
        }
        if self.place_ahead(f.head, f.segs, f.skip, f.tail, f.hdr) {
            return Ok(Ok(()));
        }
        self.place_chain(f, need)
    }

    /// Puts a frame into a buffer read ahead: `head`, then `tail` bytes of `segs` after `skip`. False: no such buffer has
    /// room.
    #[inline(always)]
    fn place_ahead(&mut self, head: &[u8], segs: &[Seg<'_>], skip: usize, tail: usize, hdr: NetHdr) -> bool {
        let need = self.format.hdr_len + head.len() + tail;
        let Some((buffer, seg)) = self.ahead.buffers.get(self.ahead.used) else {
            return false;
        };
        if seg.len() < need {
            return false;
        }
        self.ahead.used += 1;
        let of_frame = hdr;
        let hdr = hdr.emit(1);
        match self.format.hdr_len {
            // A driver that forwards buffers leaves the header in them. Not to write equal bytes leaves the cache line
            // shared.
            NetHdr::LEN if seg.read(0) == Some(hdr) => {}
            NetHdr::LEN => seg.write(0, &hdr),
            NetHdr::LEN_HASH => {
                let f = OutFrame {
                    head,
                    segs,
                    skip,
                    tail,
                    hdr: of_frame,
                };
                seg.write(0, &hashed(self.report.as_ref(), &f, 1));
            }
            n => seg.write_slice(0, &hdr[..n]),
        }
        match head.try_into() {
            Ok(snap) => seg.write::<SNAP>(self.format.hdr_len, snap),
            Err(_) => write_short(seg, self.format.hdr_len, head),
        }
        if tail > 0 {
            let at = self.format.hdr_len + head.len();
            match segs {
                [one] => seg.copy_from(at, one, skip, tail),
                many => Writer::at(&[seg], at).segs(many, skip, tail),
            }
        }
        self.ring.fill_one(buffer, need as u32, seg);
        true
    }

    /// Reads the next buffers ahead.
    fn look_ahead(&mut self) -> Result<(), Fault> {
        self.ahead.buffers.clear();
        self.ahead.used = 0;
        if !self.parking.frames.is_empty() {
            return Ok(());
        }
        let n = self.ring.ready()?.min(AHEAD as u16);
        let (hdr_len, buffers) = (self.format.hdr_len, &mut self.ahead.buffers);
        either!(&self.ring, r => read_ahead(r, n, hdr_len, buffers));
        Ok(())
    }

    /// Puts a frame into a buffer of several descriptors, or into several buffers.
    fn place_chain(&mut self, f: &OutFrame<'_>, need: usize) -> Result<Result<(), DropReason>, Fault> {
        self.ahead.buffers.clear();
        self.ahead.used = 0;
        if !self.parking.frames.is_empty() {
            return Ok(Err(DropReason::NoRxBuffer));
        }
        self.place_next(f, need)
    }

    /// As [`RxQueue::place_chain`], even if frames wait.
    fn place_next(&mut self, f: &OutFrame<'_>, need: usize) -> Result<Result<(), DropReason>, Fault> {
        if self.ring.ready()? == 0 {
            return Ok(Err(DropReason::NoRxBuffer));
        }
        if self.is_scattered(need) {
            return Ok(Err(DropReason::RxBufferTooSmall));
        }
        self.chains.segs.clear();
        let most = pieces(need);
        let Some((head, room, taken)) = self.ring.chain(0, true, most, &mut self.chains.segs)? else {
            return self.scatters(0, need);
        };
        if room < need as u64 {
            return self.place_merged(f, head, room, need, most - taken);
        }
        let header = hashed(self.report.as_ref(), f, 1);
        let mut w = Writer::new(self.chains.segs.as_slice());
        w.bytes(&header[..self.format.hdr_len]);
        w.bytes(f.head);
        if f.tail > 0 {
            w.segs(f.segs, f.skip, f.tail);
        }
        self.found.scattered = None;
        self.ring.fill(head, need as u32, self.chains.segs.as_slice());
        Ok(Ok(()))
    }

    /// Whether the next buffers are known to have too many descriptors for a frame of this length.
    fn is_scattered(&self, need: usize) -> bool {
        self.found
            .scattered
            .is_some_and(|(at, len)| at == self.ring.base() && need <= len)
    }

    /// Records that the buffer at `k` has too many descriptors. Its chain is walked to the end once, because it may be a
    /// loop.
    #[cold]
    fn scatters(&mut self, k: u16, need: usize) -> Result<Result<(), DropReason>, Fault> {
        self.chains.segs.clear();
        let whole = self
            .ring
            .chain(k, true, MAX_CHAIN as u16, &mut self.chains.segs)?;
        whole.ok_or(Fault::ChainTooLong)?;
        self.found.scattered = Some((self.ring.base(), need));
        Ok(Err(DropReason::RxBufferTooSmall))
    }

    /// Puts a frame into several buffers (virtio 1.3 section 5.1.6.4).
    fn place_merged(
        &mut self,
        f: &OutFrame<'_>,
        first: Head,
        first_room: u64,
        need: usize,
        mut left: u16,
    ) -> Result<Result<(), DropReason>, Fault> {
        if !self.format.mergeable {
            return Ok(Err(DropReason::RxBufferTooSmall));
        }
        let ready = self.ring.ready_now()?;
        self.chains.used.clear();
        self.chains.used.push((first, first_room));
        let (mut room, mut k) = (first_room, self.ring.entries(first));
        while room < need as u64 {
            // Each buffer holds at least the header (virtio 1.3 section 5.1.6.3.1): this bounds the search.
            if self
                .chains
                .used
                .last()
                .is_some_and(|&(_, len)| len < self.format.hdr_len as u64)
            {
                return Err(Fault::TooShort);
            }
            if k >= ready {
                // A full ring that is still too small never suffices.
                let full = k >= self.ring.size();
                return Ok(Err(if full {
                    DropReason::RxBufferTooSmall
                } else {
                    DropReason::NoRxBuffer
                }));
            }
            let Some((head, len, taken)) = self.ring.chain(k, true, left, &mut self.chains.segs)? else {
                return self.scatters(k, need);
            };
            self.chains.used.push((head, len));
            k += self.ring.entries(head);
            room += len;
            left -= taken;
        }
        let header = hashed(self.report.as_ref(), f, self.chains.used.len() as u16);
        let mut w = Writer::new(self.chains.segs.as_slice());
        w.bytes(&header[..self.format.hdr_len]);
        w.bytes(f.head);
        w.segs(f.segs, f.skip, f.tail);
        self.ring.log_written(self.chains.segs.as_slice(), need);
        self.found.scattered = None;
        let mut left = need as u64;
        for &(head, len) in &self.chains.used {
            let part = len.min(left);
            self.ring.complete(head, part as u32);
            left -= part;
        }
        Ok(Ok(()))
    }

    /// Shows the guest its new frames, as far as `open` says that the senders' cores have committed them, and interrupts it
    /// if it asked for that. False: frames are held back.
    pub fn flush(&mut self, now: Instant, open: impl Fn(Gate) -> bool) -> bool {
        while let Some((gate, _)) = self.gates.front() {
            if !open(*gate) {
                break;
            }
            self.gates.pop_front();
        }
        let upto = self
            .gates
            .front()
            .map_or(self.ring.staged(), |(_, before)| *before);
        let c = &self.counters.queues[self.pair];
        if self.given.frames > 0 {
            self.given.priorities.flush(&self.counters.link, Way::Received);
            c.add(Q::RxFrames as usize, std::mem::take(&mut self.given.frames));
            c.add(Q::RxBytes as usize, std::mem::take(&mut self.given.bytes));
            let groups = [
                Q::RxMulticast,
                Q::RxMulticastBytes,
                Q::RxBroadcast,
                Q::RxBroadcastBytes,
            ];
            self.given.groups.flush(c, groups);
        }
        let before = self.ring.published();
        if upto != before {
            let wanted = self.ring.publish(upto);
            if wanted || self.calls.owes() {
                self.interrupt(before, wanted, now);
            } else {
                c.add(Q::RxNotificationsSuppressed as usize, 1);
            }
        }
        self.gates.is_empty()
    }

    /// Interrupts the guest, now or later.
    fn interrupt(&mut self, before: u16, wanted: bool, now: Instant) {
        let c = &self.counters.queues[self.pair];
        let frames = c.get(Q::RxFrames as usize);
        let counter = match self.calls.shown(&self.ring, before, wanted, now, frames) {
            Decision::Interrupt => {
                c.add(
                    Q::RxNotificationsThreaded as usize,
                    self.calls.is_threaded().into(),
                );
                Q::RxNotifications
            }
            Decision::Later if wanted => Q::RxNotificationsCoalesced,
            Decision::Later | Decision::Nothing => Q::RxNotificationsSuppressed,
        };
        c.add(counter as usize, 1);
        match self.calls.take_transitions() {
            0 => {}
            n => c.add(Q::RxProfileTransitions as usize, n),
        }
    }

    /// When a coalesced interrupt is due.
    #[inline]
    pub fn call_is_due(&self) -> Option<Instant> {
        self.calls.due()
    }

    /// Whether the guest has buffers for `frames` frames of `len` bytes each. Also true if it never will have: `put` then
    /// finds the reason.
    #[inline]
    pub fn has_room(&mut self, len: usize, frames: usize) -> bool {
        let need = self.format.hdr_len + len;
        if self.broken.is() {
            return true;
        }
        if frames == 1 {
            if self.ahead.used == self.ahead.buffers.len() && need <= AHEAD_LEN && self.look_ahead().is_err()
            {
                return true;
            }
            if let Some((_, seg)) = self.ahead.buffers.get(self.ahead.used)
                && seg.len() >= need
            {
                return true;
            }
        }
        self.parking.frames.is_empty() && self.look_for_room(need, frames).unwrap_or(true)
    }

    fn look_for_room(&mut self, need: usize, frames: usize) -> Result<bool, Fault> {
        let ready = self.ring.ready_now()?;
        let offered = self.ring.seen();
        // While nothing has changed, one comparison is enough: a guest could offer many buffers that are too small.
        if let Some((idx, buffers, len, n)) = self.found.no_room
            && (idx == offered && buffers == ready && len <= need && n <= frames)
        {
            return Ok(false);
        }
        if self.is_scattered(need) {
            return Ok(true);
        }
        let mut k = 0;
        for frame in 0..frames {
            let (mut room, mut left) = (0, pieces(need));
            while room < need as u64 {
                if k >= ready {
                    // A full ring that is too small for one frame never suffices. Several frames come one by one.
                    let full = frame == 0 && k >= self.ring.size();
                    self.found.no_room = (!full).then_some((offered, ready, need, frames));
                    return Ok(full);
                }
                self.chains.segs.clear();
                let Some((head, len, taken)) = self.ring.chain(k, true, left, &mut self.chains.segs)? else {
                    return Ok(true);
                };
                left -= taken;
                k += self.ring.entries(head);
                room += len;
                let hopeless = !self.format.mergeable || len < self.format.hdr_len as u64;
                if room < need as u64 && hopeless {
                    return Ok(true);
                }
            }
        }
        Ok(true)
    }

    /// Number of buffers that the guest has not given back: those that it does not offer now, and the most that it has
    /// offered at a time.
    pub fn behind(&mut self) -> (usize, usize) {
        let ready = self.ring.ready_now().unwrap_or(0);
        self.found.most = self.found.most.max(ready);
        (usize::from(self.found.most - ready), usize::from(self.found.most))
    }

    /// Keeps a copy of a frame until there are buffers for it. False: there is no memory for it.
    pub fn park(&mut self, f: &OutFrame<'_>, meta: &Metadata, since: Instant) -> bool {
        let frame = OwnedFrame::copy(f, meta.clone()).filter(|_| self.parking.frames.try_reserve(1).is_ok());
        let Some(frame) = frame else { return false };
        if self.parking.frames.is_empty() {
            // The buffers that were there were not enough for it.
            self.parking.not_enough = None;
        }
        self.parking.frames.push_back(Parked { frame, since });
        true
    }

    /// Waiting frames.
    pub fn parked(&self) -> &VecDeque<Parked> {
        &self.parking.frames
    }

    /// Puts the longest waiting frame into new buffers. `None`: no frame waits, or it waits on. Otherwise the frame, whether
    /// it was beyond the reserve, and the result.
    pub fn serve(&mut self, clock: &Clock) -> Option<(Parked, bool, Result<(), DropReason>)> {
        let beyond = self.parking.over == self.parking.frames.len();
        if !self.broken.is() && !self.parking.frames.is_empty() {
            // While nothing has changed, one comparison is enough: a guest could offer many buffers that are too small.
            match self.ring.offered() {
                Ok(idx) if self.parking.not_enough == Some(idx) => return None,
                Ok(_) => {}
                Err(fault) => self.broken.set(fault),
            }
        }
        let mut first = self.parking.frames.pop_front()?;
        if let Arrival::Timed(_) = first.frame.meta.arrived {
            first.frame.time(clock.now());
        }
        let gate = self.gate(first.frame.meta.gate);
        let outcome = if self.broken.is() {
            Err(DropReason::RxRingBroken)
        } else {
            let f = first.frame.whole();
            match self.place_next(&f, self.format.hdr_len + f.len()) {
                Ok(Err(DropReason::NoRxBuffer)) => {
                    self.parking.not_enough = Some(self.ring.seen());
                    self.parking.frames.push_front(first);
                    return None;
                }
                Ok(outcome) => outcome,
                Err(fault) => {
                    self.broken.set(fault);
                    Err(DropReason::RxRingBroken)
                }
            }
        };
        // The index comes again after 65,536 buffers.
        self.parking.not_enough = None;
        if outcome.is_ok() {
            let OwnedFrame { bytes, meta, .. } = &first.frame;
            self.account(bytes, bytes.len(), gate, meta.priority);
        }
        self.parking.over -= usize::from(beyond);
        Some((first, beyond, outcome))
    }

    /// Removes waiting frames: those beyond the reserve, or all.
    pub fn give_up(&mut self, all: bool) -> impl Iterator<Item = Parked> {
        let n = if all {
            self.parking.frames.len()
        } else {
            self.parking.over
        };
        self.parking.over = 0;
        let keep = self.parking.frames.len() - n;
        self.parking.frames.drain(keep..)
    }

    /// The kick eventfd by which the guest reports available buffers.
    pub fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }

    /// Asks for a kick when there are more buffers than the last look found. True: there are already.
    pub fn request_more(&mut self) -> bool {
        if self.broken.is() {
            return false;
        }
        match self.ring.request_more() {
            Ok(more) => more,
            Err(fault) => {
                self.broken.set(fault);
                true
            }
        }
    }

    /// Suppresses kicks.
    pub fn suppress_kicks(&self) {
        self.ring.suppress_kicks();
    }

    /// Sets the call eventfd of the guest.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.calls.set_call(call);
    }

    /// The fault of the ring, reported once.
    pub fn take_fault(&mut self) -> Option<Fault> {
        self.broken.take()
    }

    /// Whether no frame is held back.
    pub fn drained(&self) -> bool {
        self.gates.is_empty() && !self.ring.unpublished()
    }

    /// Ring index at which the frontend may resume.
    pub fn base(&self) -> u16 {
        self.ring.base()
    }
}

/// Reads up to `n` buffers of a ring into a list, until one that is faulty or has several descriptors: that one is handled when
/// its turn comes.
#[inline(always)]
fn read_ahead<const N: usize>(ring: &impl Virtqueue, n: u16, hdr_len: usize, out: &mut Buffers<N>) {
    ring.prefetch(n);
    for k in 0..n {
        let Ok(Some(seg)) = ring.add_single(k, true, out) else {
            break;
        };
        // The header is read, and is mostly right already: its cache line can stay shared.
        seg.prefetch(0);
        seg.prefetch_for_writing(hdr_len);
        seg.prefetch_for_writing(64);
    }
}

/// Virtio header of a frame, with its hash behind if the driver wants it (virtio 1.3 section 5.1.6.4.3).
fn hashed(report: Option<&Report>, f: &OutFrame<'_>, buffers: u16) -> [u8; NetHdr::LEN_HASH] {
    let mut out = [0; NetHdr::LEN_HASH];
    out[..NetHdr::LEN].copy_from_slice(&f.hdr.emit(buffers));
    if let Some(report) = report {
        let hashed = f.with_flow(&report.tunnels, |flow| report.hash.hash(flow));
        out[12..16].copy_from_slice(&hashed.value.to_le_bytes());
        out[16..18].copy_from_slice(&hashed.report.to_le_bytes());
    }
    out
}

/// Descriptors that a frame of this length, its header included, may take.
fn pieces(need: usize) -> u16 {
    u16::try_from(PIECES + need / PIECE).unwrap_or(u16::MAX)
}

impl Caller for RxQueue {
    fn calls(&mut self) -> (&mut Calls, &Ring) {
        (&mut self.calls, &self.ring)
    }

    fn count_call(&self) {
        let c = &self.counters.queues[self.pair];
        c.add(Q::RxNotifications as usize, 1);
        c.add(
            Q::RxNotificationsThreaded as usize,
            self.calls.is_threaded().into(),
        );
    }
}
