//! What waits at a port for its guest or its wire.
//!
//! ```text
//!  Outputs::give ─ class ─ nothing waits, and there is credit ──────────────▶ delivered, as without all this
//!                    │                                                             ▲
//!                    └─▶ Buffers ─▶ a copy in Egress ─ its turn, room ─────────────┘   (each round, `serve`)
//!                           │ full                        │ waited too long
//!                           ▼                             ▼
//!                        XOFF, or dropped              dropped
//! ```
//!
//! A frame that waits is finished: its tag edited, and cut if its receiver does not take it whole. It is a copy of our own, so
//! its sender's buffer is completed; its gate stays with it. Captures, fault rules, and what RDMA functions take away see it
//! when it leaves.

mod ecn;
mod mark;
mod serve;
mod signals;

use std::sync::Arc;

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_engine::offload::{self, Accepts, HEAD_MAX, Request};
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::qos::{
    Buffers, Classification, Egress as Queues, Entry, Hint, HintAction, Lifetime, Marker, PauseSettings,
    PortQos, PriorityRules, StallGuard, Trust, Verdict, WIRE_OVERHEAD,
};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};

use super::super::counters::{AdapterCounters, LinkCounters, PortCounters};
use super::super::frame::{Metadata, OwnedFrame, RawFrame, flow_hash, for_receiver};
use super::super::qos::{PauseSpans, PauseState, QosChange};
use super::super::rx::RxQueue;
use super::{AdapterRx, INBOUND_MAX, Outputs, Slot, is_roce};

pub use signals::PauseSignals;

/// Traffic classes.
const CLASSES: usize = 8;

/// Where a port's frames are counted.
enum Counted {
    Guest(Arc<AdapterCounters>),
    Wire(Arc<PortCounters>),
}

impl Counted {
    fn link(&self) -> &LinkCounters {
        match self {
            Counted::Guest(c) => &c.link,
            Counted::Wire(c) => &c.link,
        }
    }

    fn drop(&self, reason: DropReason, frames: u64) {
        match self {
            Counted::Guest(c) => c.drops.add(reason as usize, frames),
            Counted::Wire(c) => c.drops.add(reason as usize, frames),
        }
    }
}

/// Does a port tell senders to wait for too long?
struct Stall {
    guard: StallGuard,
    /// Priorities of which something has left since the guard was asked last, a bit each.
    moved: u8,
}

/// How long frames wait.
struct Ages {
    lifetime: Lifetime,
    /// Since when the head of each class is there.
    head_since: [Instant; CLASSES],
}

/// What is marked or dropped before the buffer is full.
struct Congestion {
    hint: Hint,
    /// A class marks or drops.
    marks: bool,
    marker: Marker,
}

/// The receiving side of a port that has something configured, on the core that serves it.
pub struct Receiver {
    /// The port.
    pub port: PortId,
    /// What acts.
    pub change: Arc<QosChange>,
    /// It can make a frame wait.
    configured: bool,
    /// Priorities with priority flow control, a bit each: their frames also wait for the guest's receive buffers. Global pause,
    /// which is on by default, does not make a guest that stands still hold up all who send to it.
    lossless: u8,
    /// Priorities of which a frame may go at once only after a closer look, a bit each.
    careful: u8,
    /// Priorities that the wire's other end has stopped, a bit each.
    closed: u8,
    /// Priorities whose first frames found no room at the guest, a bit each.
    blocked: u8,
    queues: Queues<OwnedFrame>,
    buffers: Buffers,
    stall: Stall,
    ages: Ages,
    congestion: Congestion,
    /// It is among the ports that have something to do.
    listed: bool,
    /// Priorities of which senders are told to wait.
    telling: PauseSpans,
    counters: Counted,
}

impl Receiver {
    fn new(port: PortId, change: Arc<QosChange>, counters: Counted, now: Instant) -> Receiver {
        let qos = &change.qos;
        Receiver {
            port,
            configured: qos.queues(),
            lossless: qos.pause.pfc,
            careful: careful(qos, qos.pause.pfc),
            closed: 0,
            blocked: 0,
            queues: Queues::new(qos, now),
            buffers: Buffers::new(qos),
            stall: Stall {
                guard: StallGuard::default(),
                moved: 0,
            },
            ages: Ages {
                lifetime: Lifetime::default(),
                head_since: [now; CLASSES],
            },
            congestion: Congestion {
                hint: Hint::new(u64::from(port.0) + 1),
                marks: qos.marks(),
                marker: Marker::new(u64::from(port.0) + 1),
            },
            listed: false,
            telling: PauseSpans::default(),
            counters,
            change,
        }
    }

    /// Another configuration. What waits goes on waiting; if nothing has to any more, it leaves as it came in.
    fn configure(&mut self, change: Arc<QosChange>, signals: &mut PauseSignals, now: Instant) {
        let pause = self.change.qos.pause != change.qos.pause;
        if pause {
            // What was told in the old way is taken back in the old way.
            self.buffers.set_silent(true);
            self.signal(signals, now);
        }
        self.queues.configure(&change.qos, now);
        self.configured = change.qos.queues();
        self.congestion.marks = change.qos.marks();
        self.change = change;
        self.settle();
        if pause {
            self.buffers.set_silent(self.stall.guard.is_tripped());
        }
    }

    /// Room and flow control are those of what is configured, unless something waits that came in under others and only has
    /// to leave.
    fn settle(&mut self) {
        if self.is_active() || self.queues.is_empty() {
            self.buffers.configure(&self.change.qos);
            self.lossless = self.change.qos.pause.pfc;
        }
        self.careful = careful(&self.change.qos, self.lossless);
    }

    /// May a frame have to wait?
    fn is_active(&self) -> bool {
        self.closed != 0 || self.configured
    }

    /// May a frame have to wait, or does one wait that came when it might?
    fn queues_frames(&self) -> bool {
        self.is_active() || !self.queues.is_empty()
    }

    /// Is it needed, and be it only to know the priorities of frames?
    fn is_needed(&self) -> bool {
        self.queues_frames() || classifies(&self.change.qos)
    }

    /// The priority of a frame that is about to be received.
    #[inline(always)]
    pub fn priority(&self, head: &[u8], tag: TagEdit) -> u8 {
        let c = &self.change.qos.classification;
        let priority = match tag {
            TagEdit::Keep | TagEdit::Pop if !c.priorities.untagged_to_lossless => c.priority(head),
            _ => self.unusual_priority(head, tag),
        };
        priority & 7
    }

    #[inline(never)]
    fn unusual_priority(&self, head: &[u8], tag: TagEdit) -> u8 {
        let c = &self.change.qos.classification;
        match tag {
            TagEdit::Keep | TagEdit::Pop => self.with_untagged(c, head),
            TagEdit::Push(tci) => with_tag(c, head, 12, tci),
            TagEdit::Replace(tci) => with_tag(c, head, 16, tci),
        }
    }

    /// May a plain frame for a guest's receive queue `rx` go at once? Then it counts as sent, and this is its priority.
    #[inline(always)]
    pub fn pass(&mut self, now: Instant, f: &RawFrame<'_>, rx: &mut RxQueue) -> Option<u8> {
        let priority = self.priority(f.head, TagEdit::Keep);
        let bit = 1u8 << priority;
        let careful = self.careful & bit != 0;
        if careful && !self.may_pass(priority, f.len, rx) {
            return None;
        }
        let wire = f.len as u32 + WIRE_OVERHEAD;
        if !self.queues.pass(now, priority, wire, self.closed | self.blocked) {
            return None;
        }
        self.stall.moved |= bit;
        if careful {
            self.passed(priority);
        }
        Some(priority)
    }

    /// May it, as far as more than turn and credit counts?
    #[inline(never)]
    fn may_pass(&self, priority: u8, len: usize, rx: &mut RxQueue) -> bool {
        !self.change.qos.hint.enable && (self.lossless >> priority & 1 == 0 || rx.has_room(len, 1))
    }

    /// A frame of this priority has gone without waiting.
    fn passed(&mut self, priority: u8) {
        self.stall.moved |= 1 << priority;
        self.ages
            .lifetime
            .sent(self.change.qos.classes.of_priority[usize::from(priority)]);
    }

    /// Frames without a tag are lossless (`RxUntaggedMapToLossless`).
    fn with_untagged(&self, c: &Classification, head: &[u8]) -> u8 {
        let tagged = matches!(head.get(12..14), Some([0x81, 0x00]));
        if tagged || c.priorities.trust != Trust::Pcp || self.lossless == 0 {
            return c.priority(head);
        }
        self.lossless.trailing_zeros() as u8
    }

    /// Tells the senders what has changed for them.
    fn signal(&mut self, signals: &mut PauseSignals, now: Instant) {
        while let Some(change) = self.buffers.poll_change() {
            let state = pause_state(self.change.qos.pause, change.xoff);
            let before = signals.set(self.port, PortId(change.source), state);
            if let Counted::Guest(counters) = &self.counters {
                for (p, block) in counters.link.priorities.iter().enumerate() {
                    if (before.priorities ^ state.priorities) >> p & 1 != 0 {
                        block.add(P::TxPause as usize, 1);
                    }
                }
                counters
                    .link
                    .link
                    .add(L::TxPause as usize, u64::from(before.global != state.global));
            }
        }
        self.count_telling(now);
    }

    /// How long senders were told to wait by now. An uplink's own frames to its wire say so, not what its queue tells.
    fn count_telling(&mut self, now: Instant) {
        let Counted::Guest(counters) = &self.counters else {
            return;
        };
        let pause = self.change.qos.pause;
        let state = match self.stall.guard.is_tripped() {
            true => PauseState::default(),
            false => pause_state(pause, self.buffers.pausing()),
        };
        let mask = if state.global { 0xff } else { state.priorities };
        let link = &counters.link;
        self.telling.set(now, mask, |p, us, _| match pause.pfc {
            0 if p == 0 => link.link.add(L::TxPauseUs as usize, us),
            0 => {}
            _ => link.priorities[p].add(P::TxPauseUs as usize, us),
        });
    }

    /// A frame was dropped for want of room, or because it waited too long.
    fn count_drop(&self, priority: u8, reason: DropReason) {
        self.count_drops(priority, reason, 1);
    }

    fn count_drops(&self, priority: u8, reason: DropReason, frames: u64) {
        self.counters.drop(reason, frames);
        let counter = match reason {
            DropReason::HeadOfQueue => P::LifetimeDiscards,
            DropReason::ClassStalled => P::StalledDiscards,
            DropReason::CongestionHint => P::RxCongestionDiscards,
            DropReason::Wred => P::WredDiscards,
            _ if matches!(self.counters, Counted::Guest(_)) => P::RxDiscards,
            _ => return,
        };
        self.counters.link().priorities[usize::from(priority)].add(counter as usize, frames);
    }

    fn push(&mut self, entry: Entry, frame: OwnedFrame) {
        let class = self.change.qos.classes.of_priority[usize::from(entry.priority)] & 7;
        if self.change.qos.lifetimes.enable != 0 && self.queues.oldest(class).is_none() {
            self.ages.head_since[usize::from(class)] = entry.since;
        }
        self.queues.push(entry, frame);
    }
}

/// What a source is told whose priorities shall wait.
fn pause_state(pause: PauseSettings, xoff: u8) -> PauseState {
    match pause.pfc {
        0 => PauseState {
            priorities: 0,
            global: pause.global_tx && xoff != 0,
        },
        pfc => PauseState {
            priorities: xoff & pfc,
            global: false,
        },
    }
}

/// Priorities that a hint, a lifetime, or a guest without buffers may keep from going at once, a bit each.
fn careful(qos: &PortQos, lossless: u8) -> u8 {
    match qos.hint.enable || qos.lifetimes.enable != 0 {
        true => 0xff,
        false => lossless,
    }
}

/// Are the priorities of frames others than where nothing is configured?
fn classifies(qos: &PortQos) -> bool {
    qos.classification.priorities != PriorityRules::default()
}

/// The priority of a frame that gets this tag in place of its bytes 12 to `from`.
fn with_tag(c: &Classification, head: &[u8], from: usize, tci: u16) -> u8 {
    let mut edited = [0; 64];
    let rest = head.get(from..).unwrap_or_default();
    let n = rest.len().min(edited.len() - 16);
    edited[12..14].copy_from_slice(&[0x81, 0x00]);
    edited[14..16].copy_from_slice(&tci.to_be_bytes());
    edited[16..16 + n].copy_from_slice(&rest[..n]);
    c.priority(&edited[..16 + n])
}

/// What a frame needs.
struct Needs {
    /// Bytes on the wire.
    wire: u32,
    /// Frames that the receiver gets.
    frames: usize,
    /// Bytes of the longest of them.
    longest: usize,
}

/// `None`: its request is no good.
#[inline]
fn measure(f: &RawFrame<'_>, tag: TagEdit, accepts: &Accepts) -> Option<Needs> {
    let shift = match tag {
        TagEdit::Push(_) => 4,
        TagEdit::Pop => -4,
        TagEdit::Keep | TagEdit::Replace(_) => 0,
    };
    let len = f.len.saturating_add_signed(shift);
    let one = Needs {
        wire: len as u32 + WIRE_OVERHEAD,
        frames: 1,
        longest: len,
    };
    if f.hdr.gso_type == NetHdr::GSO_NONE {
        return Some(one);
    }
    let head = &f.head[..f.head.len().min(HEAD_MAX)];
    let request = offload::check(&f.hdr, head, f.len).ok()?;
    let Request::Tso(tso) = request else {
        return Some(one);
    };
    let headers = tso.head_len.saturating_add_signed(shift);
    let payload = f.len.saturating_sub(tso.head_len);
    let frames = payload.div_ceil(tso.gso_size.max(1)).max(1);
    let wire = payload + frames * (headers + WIRE_OVERHEAD as usize);
    let whole = request.accepted_by(accepts);
    Some(Needs {
        wire: wire as u32,
        frames: if whole { 1 } else { frames },
        longest: if whole {
            len
        } else {
            headers + tso.gso_size.min(payload)
        },
    })
}

impl Slot {
    fn receiver(&mut self) -> Option<&mut Option<Box<Receiver>>> {
        match self {
            Slot::Adapter(a) => Some(&mut a.receiver),
            Slot::Uplink(p) => Some(&mut p.receiver),
            Slot::Empty | Slot::Remote(_) | Slot::Bond(_) => None,
        }
    }
}

impl AdapterRx {
    /// The receive queue that gets this frame.
    pub fn queue_for(&self, head: &[u8]) -> Option<u8> {
        match self.active[..] {
            [q] => Some(q),
            [] => None,
            ref many => many.get(flow_hash(head) as usize % many.len()).copied(),
        }
    }
}

impl Outputs {
    /// The receiving side of a port, out of its place, so that it and its port can be used at once.
    #[inline]
    pub fn take_receiver(&mut self, port: PortId) -> Option<Box<Receiver>> {
        let receiver = self.slots.get_mut(usize::from(port.0))?.receiver()?.take()?;
        self.taken = Some(port);
        Some(receiver)
    }

    /// Back in its place.
    #[inline]
    pub fn put_receiver(&mut self, receiver: Box<Receiver>) {
        if let Some(place) = self
            .slots
            .get_mut(usize::from(receiver.port.0))
            .and_then(Slot::receiver)
        {
            *place = Some(receiver);
        }
        self.taken = None;
    }

    /// May a frame have to wait at a local adapter? Then nothing may go past [`Outputs::give`].
    #[inline]
    pub fn queues_at(&self, port: PortId) -> bool {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.receiver.as_ref().is_some_and(|r| r.queues_frames()),
            _ => false,
        }
    }

    /// It has something to do each round from now on.
    fn list(&mut self, receiver: &mut Receiver) {
        if !receiver.listed {
            receiver.listed = true;
            self.queued.push(receiver.port);
        }
    }

    /// Can the receiver take so many frames of `len` bytes each?
    #[inline]
    fn has_room(&mut self, port: PortId, head: &[u8], len: usize, frames: usize) -> bool {
        let inbound = self.round.inbound.len();
        match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => {
                if a.takes_roce && is_roce(head) {
                    return inbound < INBOUND_MAX;
                }
                match a.queue_for(head) {
                    Some(q) => match a.queues.get_mut(usize::from(q)) {
                        Some(Some(rx)) => rx.has_room(len, frames),
                        _ => true,
                    },
                    None => true,
                }
            }
            Some(Slot::Uplink(p)) => p.has_room(frames),
            _ => true,
        }
    }

    /// How full the way to the guest is, in thousandths: what waits for its turn, or buffers that the guest takes long to give
    /// back, and what waits for them.
    fn fill(&mut self, r: &Receiver, head: &[u8]) -> u32 {
        let thousandths = |part: u64, all: u64| {
            let fill = part.saturating_mul(1000).checked_div(all).unwrap_or(0);
            u32::try_from(fill.min(1000)).unwrap_or(1000)
        };
        let waits = thousandths(r.buffers.used(), r.change.qos.buffer.size.into());
        let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(r.port.0)) else {
            return waits;
        };
        let reserve = a.reserve();
        let Some(Some(rx)) = a.queue_for(head).and_then(|q| a.queues.get_mut(usize::from(q))) else {
            return waits;
        };
        let (behind, most) = rx.behind();
        let guest = thousandths((behind + rx.parked().len()) as u64, (most + reserve) as u64);
        waits.max(guest)
    }

    /// A frame for a port that has something configured: it goes, or it waits, or it is dropped.
    pub fn give_queued(&mut self, r: &mut Receiver, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let priority = r.priority(f.head, e.tag);
        let meta = &Metadata {
            priority,
            ..meta.clone()
        };
        let accepts = match self.slots.get(usize::from(e.port.0)) {
            Some(Slot::Adapter(a)) => a.accepts,
            _ => Accepts::NONE,
        };
        let needs = if r.queues_frames() && self.receives(e.port) {
            measure(f, e.tag, &accepts)
        } else {
            None
        };
        // What does not wait anyway, what nobody takes, and what is no good: as without all this.
        let Some(needs) = needs else {
            return self.give_now(e, f, meta);
        };
        let now = self.round.now;
        let bit = 1u8 << priority;
        let lossless = r.lossless & bit != 0;
        let mut edited;
        let mut f = *f;
        if r.change.qos.hint.enable
            && !lossless
            && let Some(at) = mark::tcp(f.head)
        {
            let fill = self.fill(r, f.head);
            match r.congestion.hint.judge(r.change.qos.hint, fill) {
                HintAction::Off => {}
                HintAction::Mark => {
                    edited = [0; HEAD_MAX];
                    let n = f.head.len().min(HEAD_MAX);
                    edited[..n].copy_from_slice(&f.head[..n]);
                    if !mark::mark(&mut edited[..n], at) {
                        return self.refuse(r, priority, &f, needs.frames, DropReason::CongestionHint);
                    }
                    f.head = &edited[..n];
                    let block = &r.counters.link().priorities[usize::from(priority)];
                    block.add(P::RxMarked as usize, 1);
                }
                HintAction::Drop => {
                    return self.refuse(r, priority, &f, needs.frames, DropReason::CongestionHint);
                }
            }
        }
        let mut entry = Entry {
            source: meta.source.0,
            priority,
            wire: needs.wire,
            bytes: 0,
            since: now,
        };
        let room = !lossless || self.has_room(e.port, f.head, needs.longest, needs.frames);
        if room && r.queues.pass(now, priority, needs.wire, r.closed | r.blocked) {
            r.passed(priority);
            return self.give_now(e, &f, meta);
        }
        let Outputs {
            bounce, round, pool, ..
        } = self;
        let finished = for_receiver(&f, e.tag, &accepts, bounce, |out| {
            entry.bytes = (out.len() + OwnedFrame::COST) as u32;
            if out.hdr.gso_type == NetHdr::GSO_NONE {
                entry.wire = out.len() as u32 + WIRE_OVERHEAD;
            }
            let verdict = match r.congestion.marks {
                true => r.judge(priority, out.head),
                false => Verdict::Pass,
            };
            let admitted = match verdict {
                Verdict::Drop => Err(DropReason::Wred),
                _ => r.buffers.admit(entry.source, priority, entry.bytes),
            };
            let copy = admitted.and_then(|()| {
                pool.copy(out, meta.counted()).ok_or_else(|| {
                    r.buffers.release(entry.source, priority, entry.bytes);
                    DropReason::EgressFull
                })
            });
            match copy {
                Ok(mut frame) => {
                    if verdict == Verdict::Mark {
                        r.mark(priority, &mut frame.bytes);
                    }
                    r.push(entry, frame);
                }
                Err(reason) => {
                    r.count_drop(priority, reason);
                    round.offer(e.port, out, Some(reason), None);
                }
            }
        });
        self.count_finished(meta, finished);
        if let Err(reason) = finished {
            r.counters.drop(reason, 1);
        }
        if !room {
            r.blocked |= bit;
        }
        self.list(r);
        r.signal(&mut self.signals, now);
        self.round.waiting.look();
    }

    /// Drops a frame, or a request that would be so many, before it waits.
    fn refuse(&mut self, r: &Receiver, priority: u8, f: &RawFrame<'_>, frames: usize, reason: DropReason) {
        r.count_drops(priority, reason, frames as u64);
        self.round.offer(r.port, &f.whole(), Some(reason), None);
    }
}
