//! Sending side of an adapter: the priority of its frames, its limits, and the pause that it obeys.
//!
//! A frame whose priority may not go waits in its guest's ring, and so do all frames behind it; or, if each priority has a
//! send queue, in that queue. Transmit queues, send queues and the RDMA function of the adapter ask here and report what they
//! sent.

mod limits;
mod paused;
mod queues;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use vnic_fabric::Instant;
use vnic_fabric::qos::{Away, PauseSettings};
use vnic_fabric::switch::PortId;

use super::frame::{RawFrame, on_wire};
use super::qos::{PauseState, QosChange};
use limits::Limits;
pub use paused::PausedAdapter;
pub use queues::{Queued, SendQueues};
pub use turns::Member;
use turns::Turns;

/// Interval at which a core looks at paused adapters: nothing wakes it when they may send again.
pub const PAUSE_LOOK: Duration = Duration::from_micros(50);

/// The sending side of an adapter with configured quality of service, on the core that serves the adapter; Ethernet queues
/// and the RDMA function share it.
pub struct Sender {
    /// Quality of service that acts.
    pub change: Arc<QosChange>,
    /// Send queues by priority, if the adapter has them.
    pub queues: Option<Box<SendQueues>>,
    /// Whether flows of the guest's own RoCE may be limited.
    pub guest_roce: bool,
    limits: Limits,
    turns: Turns,
}

impl Sender {
    pub fn new(change: Arc<QosChange>, now: Instant) -> Sender {
        let qos = &change.qos;
        let queues = qos
            .sending
            .queue_per_priority
            .then(|| Box::new(SendQueues::new(qos, now)));
        Sender {
            limits: Limits::new(qos),
            turns: Turns::new(&qos.classes),
            queues,
            guest_roce: false,
            change,
        }
    }

    /// Changes the configuration. If send queues are switched off, their frames are sent first.
    pub fn configure(&mut self, change: &Arc<QosChange>, now: Instant) {
        let qos = &change.qos;
        self.limits.configure(qos);
        // A member may not come back for the priorities that it waited for.
        self.turns = Turns::new(&qos.classes);
        match &mut self.queues {
            Some(queues) if qos.sending.queue_per_priority || !queues.is_empty() => {
                queues.configure(qos, now)
            }
            queues if qos.sending.queue_per_priority => *queues = Some(Box::new(SendQueues::new(qos, now))),
            queues => *queues = None,
        }
        self.change = change.clone();
    }

    /// Whether the send queues have been switched off and still hold frames.
    pub fn drains(&self) -> bool {
        self.queues.is_some() && !self.change.qos.sending.queue_per_priority
    }

    /// Priorities that are paused, a bit each.
    #[inline]
    pub fn paused(&self, state: PauseState) -> u8 {
        obeyed(state, self.change.qos.pause)
    }

    /// Priorities that may send now, a bit each: neither paused nor over a limit.
    pub fn open(&self, state: PauseState, now: Instant) -> u8 {
        self.limits.open(now) & !self.paused(state)
    }

    /// Priorities whose limits another member uses next, a bit each.
    pub fn others(&mut self, now: Instant, who: Member) -> u8 {
        if !self.limits.any() {
            return 0;
        }
        let (turns, limits) = (&mut self.turns, &self.limits);
        let others = |p: &u8| turns.is_others(now, who, *p, limits);
        (0..8).filter(others).fold(0, |all, p| all | 1 << p)
    }

    /// Whether `who` may send a frame of this priority now. If not, `who` waits for its turn.
    #[inline]
    pub fn may_send(&mut self, state: PauseState, now: Instant, who: Member, priority: u8) -> bool {
        if self.paused(state) >> priority & 1 != 0 {
            self.turns.leave(who);
            return false;
        }
        if self.limits.is_open(now, priority) && !self.turns.is_others(now, who, priority, &self.limits) {
            return true;
        }
        self.turns.wait(now, who, 1 << priority);
        false
    }

    /// Whether this many bytes on the wire may go, of any priority, without a question for each frame, as far as limits,
    /// turns, send queues and policies are concerned.
    #[inline]
    pub fn may_send_all(&self, now: Instant, bytes: u32) -> bool {
        self.turns.is_empty()
            && self.change.qos.classification.policies.is_empty()
            && self.queues.as_ref().is_none_or(|q| q.is_empty())
            && !self.drains()
            && self.limits.may_send_all(now, bytes)
    }

    /// Records that `who` has something to send of these priorities, a bit each, that are not paused; 0: it has nothing, or
    /// cannot send for another reason.
    pub fn wait(&mut self, now: Instant, who: Member, priorities: u8) {
        if priorities == 0 || !self.limits.any() {
            self.turns.leave(who);
        } else {
            self.turns.wait(now, who, priorities);
        }
    }

    /// Records that `who` waits for no limit any more.
    pub fn leave(&mut self, who: Member) {
        self.turns.leave(who);
    }

    /// Charges the limits with a sent frame. `since`: when the frame could first have been sent, if not just now.
    #[inline]
    pub fn charge(
        &mut self,
        now: Instant,
        since: Option<Instant>,
        who: Member,
        priority: u8,
        f: &RawFrame<'_>,
    ) {
        if self.limits.any() {
            self.charge_bytes(now, since, who, priority, on_wire(f).into());
        }
    }

    /// As [`Sender::charge`], with the frame's bytes on the wire.
    pub fn charge_bytes(
        &mut self,
        now: Instant,
        since: Option<Instant>,
        who: Member,
        priority: u8,
        wire: u64,
    ) {
        if self.limits.any() {
            let since = since.or(self.turns.since(who));
            self.limits.charge(now, since, priority, wire);
            self.turns.served(who, self.limits.tc(priority), wire);
        }
    }

    /// Counts credit for a time in which the core could not look.
    pub fn was_away(&mut self, away: Away) {
        self.limits.away = away;
    }

    /// When a frame of one of these priorities, a bit each, may go; `None`: none of them is given.
    pub fn due(&self, state: PauseState, now: Instant, priorities: u8) -> Option<Instant> {
        let paused = priorities & self.paused(state);
        let look = (paused != 0).then(|| now + PAUSE_LOOK);
        let open = (priorities & !paused != 0).then(|| self.limits.first(priorities & !paused));
        look.into_iter()
            .chain(open.map(|at| at.unwrap_or(now).max(now)))
            .min()
    }
}

/// Paused priorities under these pause settings.
#[inline]
fn obeyed(state: PauseState, pause: PauseSettings) -> u8 {
    match pause.pfc {
        0 if state.global && pause.global_rx => 0xff,
        0 => 0,
        pfc => state.priorities & pfc,
    }
}

/// Senders of this core's adapters.
#[derive(Default)]
pub struct Senders {
    /// Sending sides, by [`PortId`].
    pub by_port: Vec<Option<Box<Sender>>>,
    /// Ports whose RDMA function has packets of closed priorities, and these priorities.
    pub rdma: Vec<(PortId, u8)>,
    /// Whether frames wait in send queues.
    pub queued: bool,
    /// Adapters that are paused.
    pub paused: Vec<PausedAdapter>,
    /// Adapters whose transmit rings do not know their changed sender yet.
    pub changed: Vec<PortId>,
}

impl Senders {
    /// The sending side of an adapter, if anything is configured.
    #[inline]
    pub fn get(&mut self, port: PortId) -> Option<&mut Sender> {
        self.by_port.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    /// Whether any adapter was paused at the last look.
    #[inline]
    pub fn any_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    pub fn look(&self, port: PortId) -> Option<&Sender> {
        self.by_port.get(usize::from(port.0))?.as_deref()
    }

    pub fn all(&self) -> impl Iterator<Item = (PortId, &Sender)> {
        let ports = (0..).map(PortId).zip(&self.by_port);
        ports.filter_map(|(port, s)| Some((port, s.as_deref()?)))
    }
}
