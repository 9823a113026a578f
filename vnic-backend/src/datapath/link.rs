//! Links between data cores: frames by reference, over bounded single-producer rings.
//!
//! Core A sends core B a reference to a frame in its guest's memory. B copies it into its own guest's buffer and counts it as
//! *copied*; A then completes the sender's buffer and counts the frame as *committed*; only then does B show it to its guest.
//! So at any instant of a `kill -9` a frame is either still to be sent, or completed: no receiver sees it twice.

#![expect(unsafe_code, reason = "cores copy from memory that another core has lent")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::{Egress, FdbUpdate, Flood};

use super::frame::{Metadata, OwnedFrame, RawFrame, SNAP};
use crate::mem::{Lasting, Seg};
use crate::sync::{AtomicBool, AtomicU64, Consumer, Ordering, Producer, RingBuffer, fence};

/// Frames in flight from one core to another.
const LINK_DEPTH: usize = 512;
/// Segments that a reference can carry; the sender copies a frame in more pieces.
pub const REMOTE_SEGS: usize = 20;

/// Receivers of a frame on the other core.
#[derive(Debug, Clone, Copy)]
pub enum RemoteDest {
    /// One port.
    One(Egress),
    /// All ports of that core in the frame's VLAN.
    Flood(Flood),
}

/// A frame in its sender's memory, until it is counted as copied.
pub struct LentFrame {
    /// Metadata of the frame.
    pub meta: Metadata,
    /// Offload request of the sender.
    pub hdr: NetHdr,
    /// The first bytes, private.
    pub snap: [u8; SNAP],
    /// Bytes of the whole frame.
    pub len: usize,
    /// Place of all bytes, after `skip` bytes.
    pub segs: ArrayVec<Seg<'static>, REMOTE_SEGS>,
    /// Bytes of `segs` before the frame.
    pub skip: usize,
}

impl LentFrame {
    /// A reference to a frame that is sent with a slot. `None`: the frame is in too many pieces.
    pub fn of(f: &RawFrame<'_>, meta: Metadata, _slot: SlotRef) -> Option<LentFrame> {
        if f.segs.len() > REMOTE_SEGS {
            return None;
        }
        let mut snap = [0u8; SNAP];
        let n = f.head.len().min(SNAP);
        snap[..n].copy_from_slice(&f.head[..n]);
        Some(LentFrame {
            meta,
            hdr: f.hdr,
            snap,
            len: f.len,
            // SAFETY: the slot's maker lends the frame until it is counted as copied. The receiver copies before it counts.
            segs: f.segs.iter().map(|seg| unsafe { seg.lent() }).collect(),
            skip: f.skip,
        })
    }
}

/// Bytes of a frame for another core.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and boxing it would allocate"
)]
pub enum Content {
    /// Reference to the sender's memory.
    Lent(LentFrame),
    /// A copy.
    Owned(OwnedFrame),
}

/// A frame on its way to another core.
pub struct RemoteFrame {
    /// Number on its link, from 1.
    pub seq: u64,
    /// Receivers of the frame.
    pub dest: RemoteDest,
    /// The frame.
    pub content: Content,
}

impl RemoteFrame {
    /// That the frame's bytes last: until it is counted as copied, or for as long as the frame exists.
    pub fn lasts(&self) -> Option<Lasting> {
        // SAFETY: the receiving core keeps the frame, and counts it as copied, after the burst in which it came.
        Some(unsafe { Lasting::new(false) })
    }

    /// Metadata, offload request and length of the frame.
    pub fn facts(&self) -> (&Metadata, &NetHdr, usize) {
        match &self.content {
            Content::Lent(f) => (&f.meta, &f.hdr, f.len),
            Content::Owned(f) => (&f.meta, &f.hdr, f.bytes.len()),
        }
    }
}

/// A message between cores.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one is the usual one, and boxing it would allocate"
)]
pub enum Remote {
    /// A frame.
    Frame(RemoteFrame),
    /// An update of the forwarding database.
    Fdb(FdbUpdate),
}

/// A counter alone on its cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicU64);

#[derive(Default)]
struct Shared {
    copied: Line,
    committed: Line,
}

/// Wakes a data core that sleeps.
pub struct Waker {
    fd: OwnedFd,
    asleep: AtomicBool,
    /// Instant from which `called` counts: that of the core's clock.
    start: Instant,
    /// When the sleeping core was woken, in nanoseconds; 0: it was not.
    called: AtomicU64,
}

impl Waker {
    /// Makes a waker of a core that is awake and whose clock began at `start`.
    pub fn new(start: Instant) -> std::io::Result<Waker> {
        Ok(Waker {
            fd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?,
            asleep: AtomicBool::new(false),
            start,
            called: AtomicU64::new(0),
        })
    }

    /// Wakes the core if it sleeps. Called after the core was given something to do.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            // The first of several who wake the core counts. Who writes at the same time has about the same time.
            if self.called.load(Ordering::Relaxed) == 0 {
                let now = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.called.store(now, Ordering::Relaxed);
            }
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// When the core was woken since the last call, by its clock. `None`: it was not, or not by this.
    pub fn take_called(&self) -> Option<vnic_fabric::Instant> {
        match self.called.load(Ordering::Relaxed) {
            0 => None,
            at => {
                self.called.store(0, Ordering::Relaxed);
                Some(vnic_fabric::Instant(at))
            }
        }
    }

    /// Sets whether the core is about to sleep; it must look for work once more afterwards.
    pub fn set_asleep(&self, asleep: bool) {
        self.asleep.store(asleep, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The eventfd on which the core waits; edge-triggered, so it need not be read.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sending end of a link.
pub struct LinkOut {
    ring: Producer<Remote>,
    shared: Arc<Shared>,
    waker: Arc<Waker>,
    sent: u64,
    /// Transmit slots of the frames that are not yet copied.
    waiting: VecDeque<Option<SlotRef>>,
    waiting_from: u64,
    /// Frames that are not yet committed: whether they may be.
    uncommitted: VecDeque<bool>,
    committed: u64,
}

/// A transmit slot: its queue, and its number in that queue. A frame that is sent with it is lent.
#[derive(Debug, Clone, Copy)]
pub struct SlotRef {
    /// Index of the transmit queue on its core.
    pub queue: usize,
    /// Number of the slot since the queue was started.
    pub slot: u64,
    _lends: (),
}

impl SlotRef {
    /// Slot `slot` of the queue with index `queue`.
    ///
    /// # Safety
    /// The memory of a frame that is sent with the slot stays mapped until the frame is counted as copied.
    pub unsafe fn new(queue: usize, slot: u64) -> SlotRef {
        SlotRef {
            queue,
            slot,
            _lends: (),
        }
    }
}

/// Receiving end of a link.
pub struct LinkIn {
    ring: Consumer<Remote>,
    shared: Arc<Shared>,
    copied: u64,
}

/// Makes the link from one core to another.
pub fn link(receiver: Arc<Waker>) -> (LinkOut, LinkIn) {
    let (producer, consumer) = RingBuffer::new(LINK_DEPTH);
    let shared = Arc::new(Shared::default());
    let out = LinkOut {
        ring: producer,
        shared: shared.clone(),
        waker: receiver,
        sent: 0,
        waiting: VecDeque::with_capacity(LINK_DEPTH),
        waiting_from: 1,
        uncommitted: VecDeque::with_capacity(LINK_DEPTH),
        committed: 0,
    };
    (
        out,
        LinkIn {
            ring: consumer,
            shared,
            copied: 0,
        },
    )
}

impl LinkOut {
    /// Whether there is room for another frame.
    pub fn has_room(&self) -> bool {
        self.ring.slots() > 0
    }

    /// Sends a frame; `slot` is the transmit slot that waits for it, if any. Returns the frame's number; `None`: the link is
    /// full.
    pub fn send(&mut self, mut frame: RemoteFrame, slot: Option<SlotRef>) -> Option<u64> {
        let seq = self.sent + 1;
        frame.seq = seq;
        self.ring.push(Remote::Frame(frame)).ok()?;
        self.sent = seq;
        self.waiting.push_back(slot);
        self.uncommitted.push_back(slot.is_none());
        self.advance_commit();
        self.waker.wake();
        Some(seq)
    }

    /// Sends an update of the forwarding database. False: the link is full.
    pub fn send_update(&mut self, update: FdbUpdate) -> bool {
        let sent = self.ring.push(Remote::Fdb(update)).is_ok();
        if sent {
            self.waker.wake();
        }
        sent
    }

    /// The next transmit slot whose frame has been copied.
    #[inline]
    pub fn poll_copied(&mut self) -> Option<SlotRef> {
        loop {
            if self.waiting.is_empty() || self.shared.copied.0.load(Ordering::Acquire) < self.waiting_from {
                return None;
            }
            self.waiting_from += 1;
            if let Some(Some(slot)) = self.waiting.pop_front() {
                return Some(slot);
            }
        }
    }

    /// Commits frame `seq`: the sender's buffer has been completed.
    pub fn commit(&mut self, seq: u64) {
        let i = (seq - self.committed - 1) as usize;
        if let Some(done) = self.uncommitted.get_mut(i) {
            *done = true;
        }
        self.advance_commit();
    }

    fn advance_commit(&mut self) {
        while self.uncommitted.front() == Some(&true) {
            self.uncommitted.pop_front();
            self.committed += 1;
        }
        self.shared.committed.0.store(self.committed, Ordering::Release);
    }

    /// Whether no frame is in flight.
    pub fn idle(&self) -> bool {
        self.waiting.is_empty() && self.uncommitted.is_empty()
    }
}

impl LinkIn {
    /// The next message.
    #[inline]
    pub fn recv(&mut self) -> Option<Remote> {
        self.ring.pop().ok()
    }

    /// Whether there is a message.
    pub fn pending(&self) -> bool {
        !self.ring.is_empty()
    }

    /// Counts frame `seq` as copied (or dropped): its memory may be reused.
    #[inline]
    pub fn copied(&mut self, seq: u64) {
        self.copied = seq;
        self.shared.copied.0.store(seq, Ordering::Release);
    }

    /// Whether the sender has committed frame `seq`.
    #[inline]
    pub fn is_committed(&self, seq: u64) -> bool {
        self.shared.committed.0.load(Ordering::Acquire) >= seq
    }
}
