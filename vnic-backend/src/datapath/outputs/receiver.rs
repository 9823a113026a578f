//! Queues of a port towards its guest or its wire.
//!
//! ```text
//!  Outputs::give ─ class ─ nothing waits, and there is credit ──────────────▶ delivered
//!                    │                                                             ▲
//!                    └─▶ Buffers ─▶ a copy in Egress ─ its turn, room ─────────────┘   (each round, `serve`)
//!                           │ full                        │ waited too long
//!                           ▼                             ▼
//!                        XOFF, or dropped              dropped
//! ```
//!
//! A waiting frame is finished: its tag is edited, and it is cut if its receiver does not take it whole. It is a copy, so
//! that its sender's buffer is completed; its gate stays with it. Captures, fault rules and RDMA functions see the frame when
//! it leaves.

mod ecn;
pub(super) mod mark;
mod signals;
mod stamp;

use std::sync::Arc;

use vnic_engine::counters::{LinkCounter as L, PriorityCounter as P};
use vnic_fabric::qos::{
    Average, Buffers, Classification, Egress as Queues, Entry, Hint, Lifetime, Marker, PauseSettings,
    PortQos, StallGuard, Trust, WIRE_OVERHEAD,
};
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant, TagEdit};

use super::super::counters::{AdapterCounters, LinkCounters, PortCounters};
use super::super::frame::{OwnedFrame, RawFrame};
use super::super::qos::{PauseSpans, PauseState, QosChange};
use super::super::rx::RxQueue;

pub use signals::PauseSignals;

/// Traffic classes.
pub(super) const CLASSES: usize = 8;

/// Counters of a port.
pub(super) enum Counted {
    Guest(Arc<AdapterCounters>),
    Wire(Arc<PortCounters>),
}

impl Counted {
    pub(super) fn link(&self) -> &LinkCounters {
        match self {
            Counted::Guest(c) => &c.link,
            Counted::Wire(c) => &c.link,
        }
    }

    pub(super) fn drop(&self, reason: DropReason, frames: u64) {
        match self {
            Counted::Guest(c) => c.drops.add(reason as usize, frames),
            Counted::Wire(c) => c.drops.add(reason as usize, frames),
        }
    }
}

/// Guard against a port that pauses senders for too long.
pub(super) struct Stall {
    pub(super) guard: StallGuard,
    /// Priorities of which a frame has left since the guard was last asked, a bit each.
    pub(super) moved: u8,
}

/// Waiting times of frames.
pub(super) struct Ages {
    pub(super) lifetime: Lifetime,
    /// When the head of each class became the head.
    pub(super) head_since: [Instant; CLASSES],
}

/// Marking and dropping before the buffer is full.
pub(super) struct Congestion {
    pub(super) hint: Hint,
    /// Whether a class marks or drops.
    pub(super) marks: bool,
    /// Whether a class looks at colours.
    colours: bool,
    marker: Marker,
    /// Average lengths, by class.
    averages: [Average; CLASSES],
}

/// The receiving side of a port with configured quality of service, on the core that serves the port.
pub struct Receiver {
    /// The port.
    pub port: PortId,
    /// Quality of service that acts.
    pub change: Arc<QosChange>,
    /// Whether the configuration can make a frame wait.
    configured: bool,
    /// Priorities whose frames also wait for the guest's receive buffers, a bit each: those with priority flow control, and all with
    /// global pause if it was asked for by name (`*FlowControl` 4). On by default it does not make them wait: a guest that posts no
    /// buffers must not stop all its senders.
    pub(super) lossless: u8,
    /// Priorities whose frames need [`Receiver::may_pass`] before they go at once, a bit each.
    careful: u8,
    /// Priorities that the peer on the wire has paused, a bit each.
    pub(super) closed: u8,
    /// Priorities whose first frames found no room at the guest, a bit each.
    pub(super) blocked: u8,
    pub(super) queues: Queues<OwnedFrame>,
    pub(super) buffers: Buffers,
    pub(super) stall: Stall,
    pub(super) ages: Ages,
    pub(super) congestion: Congestion,
    /// Whether the port is in [`Outputs::queued`](super::Outputs::queued).
    pub(super) listed: bool,
    /// Times for which senders are paused, by priority.
    telling: PauseSpans,
    pub(super) counters: Counted,
}

impl Receiver {
    pub(super) fn new(port: PortId, change: Arc<QosChange>, counters: Counted, now: Instant) -> Receiver {
        let qos = &change.qos;
        Receiver {
            port,
            configured: qos.queues(),
            lossless: qos.pause.waiting(),
            careful: careful(qos, qos.pause.waiting()),
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
                colours: qos.has_colours(),
                marker: Marker::new(u64::from(port.0) + 1),
                averages: [Average::default(); CLASSES],
            },
            listed: false,
            telling: PauseSpans::default(),
            counters,
            change,
        }
    }

    /// Changes the configuration. Waiting frames stay; if none has to wait any more, they leave in the order of arrival.
    pub(super) fn configure(&mut self, change: Arc<QosChange>, signals: &mut PauseSignals, now: Instant) {
        let pause = self.change.qos.pause != change.qos.pause;
        if pause {
            // Signals under the old settings are taken back under the old settings.
            self.buffers.set_silent(true);
            self.signal(signals, now);
        }
        self.queues.configure(&change.qos, now);
        self.configured = change.qos.queues();
        self.congestion.marks = change.qos.marks();
        self.congestion.colours = change.qos.has_colours();
        self.change = change;
        self.settle();
        if pause {
            self.buffers.set_silent(self.stall.guard.is_tripped());
        }
    }

    /// Applies the configured room and flow control, unless frames that came under other settings still have to leave.
    pub(super) fn settle(&mut self) {
        if self.is_active() || self.queues.is_empty() {
            self.buffers.configure(&self.change.qos);
            self.lossless = self.change.qos.pause.waiting();
        }
        self.careful = careful(&self.change.qos, self.lossless);
    }

    /// Whether a frame may have to wait.
    fn is_active(&self) -> bool {
        self.closed != 0 || self.configured
    }

    /// Whether a frame may have to wait, or frames still wait that came when they had to.
    pub(super) fn queues_frames(&self) -> bool {
        self.is_active() || !self.queues.is_empty()
    }

    /// Whether the receiver is needed, if only for the priorities of frames.
    pub(super) fn is_needed(&self) -> bool {
        self.queues_frames() || classifies(&self.change.qos)
    }

    /// Priority of a frame that is about to be received.
    #[inline(always)]
    pub fn priority(&self, head: &[u8], tag: TagEdit) -> u8 {
        let c = &self.change.qos.classification;
        let priority = match tag {
            TagEdit::Keep | TagEdit::Pop if !c.priorities.untagged_to_lossless => c.priority(head),
            _ => self.unusual_priority(head, tag),
        };
        priority & 7
    }

    /// Service level of a frame of this priority that is about to be received. Where the drop eligible indicator of its tag names no
    /// class, it is the priority.
    #[inline(always)]
    pub fn level(&self, head: &[u8], tag: TagEdit, priority: u8) -> u8 {
        match self.queues.has_upper() {
            true => priority | self.upper(head, tag),
            false => priority,
        }
    }

    #[inline(never)]
    fn upper(&self, head: &[u8], tag: TagEdit) -> u8 {
        const DEI: u8 = 0x10;
        let tci = match (tag, head.get(12..15)) {
            (TagEdit::Push(tci) | TagEdit::Replace(tci), _) => (tci >> 8) as u8,
            (_, Some([0x81, 0x00, tci])) => *tci,
            _ => 0,
        };
        let by_tag = self.change.qos.classification.priorities.trust == Trust::Pcp;
        if by_tag && tci & DEI != 0 { 8 } else { 0 }
    }

    #[inline(never)]
    fn unusual_priority(&self, head: &[u8], tag: TagEdit) -> u8 {
        let c = &self.change.qos.classification;
        match tag {
            TagEdit::Keep | TagEdit::Pop => self.with_untagged(c, head),
            TagEdit::Push(tci) => with_tag(head, 12, tci, |head| c.priority(head)),
            TagEdit::Replace(tci) => with_tag(head, 16, tci, |head| c.priority(head)),
        }
    }

    /// The priority of a plain frame for a guest's receive queue `rx`, if it may go at once. It then counts as sent.
    #[inline(always)]
    pub fn pass(&mut self, now: Instant, f: &RawFrame<'_>, rx: &mut RxQueue) -> Option<u8> {
        let priority = self.priority(f.head, TagEdit::Keep);
        let bit = 1u8 << priority;
        let careful = self.careful & bit != 0;
        if careful && !self.may_pass(priority, f.len, rx) {
            return None;
        }
        let wire = f.len as u32 + WIRE_OVERHEAD;
        let closed = self.closed | self.blocked;
        let passed = match self.queues.has_upper() {
            false => self.queues.pass(now, priority, wire, closed),
            true => self.pass_upper(now, (f.head, priority), wire, closed),
        };
        if !passed {
            return None;
        }
        self.stall.moved |= bit;
        if careful {
            self.pass_carefully(f.head, priority);
        }
        Some(priority)
    }

    /// As [`Egress::pass`](vnic_fabric::qos::Egress::pass), where service levels have classes of their own. (The receiver is an adapter's,
    /// which has no classes by source.)
    #[inline(never)]
    fn pass_upper(&mut self, now: Instant, (head, priority): (&[u8], u8), wire: u32, closed: u8) -> bool {
        let level = self.level(head, TagEdit::Keep, priority);
        self.queues.pass_from(now, (0, level), wire, closed)
    }

    #[inline(never)]
    fn pass_carefully(&mut self, head: &[u8], priority: u8) {
        let level = self.level(head, TagEdit::Keep, priority);
        self.passed(priority, self.queues.class(0, level));
    }

    /// Whether a frame may go at once as far as congestion hint and receive buffers are concerned.
    #[inline(never)]
    fn may_pass(&self, priority: u8, len: usize, rx: &mut RxQueue) -> bool {
        !self.change.qos.hint.enable && (self.lossless >> priority & 1 == 0 || rx.has_room(len, 1))
    }

    /// Counts that a frame of this priority and class has gone without waiting.
    pub(super) fn passed(&mut self, priority: u8, class: u8) {
        self.stall.moved |= 1 << priority;
        self.ages.lifetime.sent(class);
    }

    /// Priority of a frame if frames without a tag are lossless (`RxUntaggedMapToLossless`).
    fn with_untagged(&self, c: &Classification, head: &[u8]) -> u8 {
        let tagged = matches!(head.get(12..14), Some([0x81, 0x00]));
        let lossless = match self.change.qos.pause.pfc {
            // With global pause all are, and none has to change.
            0 => 0,
            _ => self.lossless,
        };
        if tagged || c.priorities.trust != Trust::Pcp || lossless == 0 {
            return c.priority(head);
        }
        lossless.trailing_zeros() as u8
    }

    /// Signals changed pause states to the senders.
    pub(super) fn signal(&mut self, signals: &mut PauseSignals, now: Instant) {
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

    /// Counts how long senders have been paused. An uplink counts its pause frames to the wire instead.
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

    /// Counts a frame that was dropped because there was no room or it waited too long.
    pub(super) fn count_drop(&self, priority: u8, reason: DropReason) {
        self.count_drops(priority, reason, 1);
    }

    pub(super) fn count_drops(&self, priority: u8, reason: DropReason, frames: u64) {
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

    pub(super) fn push(&mut self, entry: Entry, frame: OwnedFrame) {
        let class = self.queues.class(entry.source, entry.level);
        if self.change.qos.lifetimes.enable != 0
            && self.queues.oldest(class).is_none()
            && let Some(since) = self.ages.head_since.get_mut(usize::from(class))
        {
            *since = entry.since;
        }
        self.queues.push(entry, frame);
    }
}

/// Pause state of a source whose priorities are in `xoff`.
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

/// Whether the priorities of frames differ from those without a configuration.
pub(super) fn classifies(qos: &PortQos) -> bool {
    !qos.classification.is_plain()
}

/// What is found in a frame that gets this tag in place of its bytes 12 to `from`.
fn with_tag<T>(head: &[u8], from: usize, tci: u16, find: impl FnOnce(&[u8]) -> T) -> T {
    let mut edited = [0; 64];
    let rest = head.get(from..).unwrap_or_default();
    let n = rest.len().min(edited.len() - 16);
    edited[12..14].copy_from_slice(&[0x81, 0x00]);
    edited[14..16].copy_from_slice(&tci.to_be_bytes());
    edited[16..16 + n].copy_from_slice(&rest[..n]);
    find(&edited[..16 + n])
}
