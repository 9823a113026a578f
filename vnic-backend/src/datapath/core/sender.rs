//! What an adapter may send: the priority of its frames, its limits, and pause that it obeys.
//!
//! A frame whose priority may not go waits in its guest's ring, and so does all behind it; or, where each priority has a send
//! queue of its own, there. Everybody who sends for the adapter asks here and says what was sent: its transmit queues, its
//! send queues, its RDMA function.

mod limits;
mod paused;
mod queues;
#[cfg(test)]
mod tests;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::Instant;
use vnic_fabric::qos::{PauseSettings, WIRE_OVERHEAD};
use vnic_fabric::switch::PortId;

use super::super::counters::AdapterCounters;
use super::super::frame::{RawFrame, on_wire};
use super::super::news::CoreEvent;
use super::super::outputs::Slot;
use super::super::qos::{PauseState, QosChange};
use super::Core;
use crate::types::QueueStatus;
use limits::Limits;
use paused::PausedAdapter;
pub use queues::SendQueues;
pub use turns::Member;
use turns::Turns;

/// Nobody wakes a core whose adapters are told to go on: it looks this often.
const PAUSE_LOOK: Duration = Duration::from_micros(50);

/// The sending side of an adapter that has something configured, on the core that serves it; Ethernet queues and the RDMA
/// function share it.
pub struct Sender {
    /// What acts.
    pub change: Arc<QosChange>,
    /// Send queues by priority, if it has them.
    pub queues: Option<Box<SendQueues>>,
    /// Flows of the guest's own RoCE may be limited.
    pub guest_roce: bool,
    limits: Limits,
    turns: Turns,
}

impl Sender {
    fn new(change: Arc<QosChange>, now: Instant) -> Sender {
        let qos = &change.qos;
        let queues = qos
            .sending
            .queue_per_priority
            .then(|| Box::new(SendQueues::new(qos, now)));
        Sender {
            limits: Limits::new(qos),
            turns: Turns::default(),
            queues,
            guest_roce: false,
            change,
        }
    }

    /// Acts otherwise from now on. What waits in send queues is sent before anything else, if there are none any more.
    fn configure(&mut self, change: &Arc<QosChange>, now: Instant) {
        let qos = &change.qos;
        self.limits.configure(qos);
        // Nobody is sure to come back for what he waited for.
        self.turns = Turns::default();
        match &mut self.queues {
            Some(queues) if qos.sending.queue_per_priority || !queues.is_empty() => {
                queues.configure(qos, now)
            }
            queues if qos.sending.queue_per_priority => *queues = Some(Box::new(SendQueues::new(qos, now))),
            queues => *queues = None,
        }
        self.change = change.clone();
    }

    /// Its send queues have been switched off and are still to be drained.
    pub fn drains(&self) -> bool {
        self.queues.is_some() && !self.change.qos.sending.queue_per_priority
    }

    /// Priorities that wait because they are told so, a bit each.
    #[inline]
    pub fn paused(&self, state: PauseState) -> u8 {
        obeyed(state, self.change.qos.pause)
    }

    /// Priorities that may send now, a bit each: neither paused nor over a limit.
    pub fn open(&self, state: PauseState, now: Instant) -> u8 {
        self.limits.open(now) & !self.paused(state)
    }

    /// Priorities whose limits are another's to use next, a bit each.
    pub fn others(&mut self, now: Instant, who: Member) -> u8 {
        if !self.limits.any() {
            return 0;
        }
        let (turns, limits) = (&mut self.turns, &self.limits);
        let others = |p: &u8| turns.is_others(now, who, *p, limits);
        (0..8).filter(others).fold(0, |all, p| all | 1 << p)
    }

    /// May `who` send a frame of this priority now? If not, it waits.
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

    /// May so many bytes on the wire go, of whatever priorities, without asking for each frame, as far as limits, turns, send
    /// queues and policies are concerned?
    #[inline]
    pub fn may_send_all(&self, now: Instant, bytes: u32) -> bool {
        self.turns.is_empty()
            && self.change.qos.classification.policies.is_empty()
            && self.queues.as_ref().is_none_or(|q| q.is_empty())
            && !self.drains()
            && self.limits.may_send_all(now, bytes)
    }

    /// `who` has something to send of these priorities, a bit each, that are not paused; 0: nothing, or it cannot go for
    /// another reason.
    pub fn wait(&mut self, now: Instant, who: Member, priorities: u8) {
        if priorities == 0 || !self.limits.any() {
            self.turns.leave(who);
        } else {
            self.turns.wait(now, who, priorities);
        }
    }

    /// `who` waits for no limit any more.
    pub fn leave(&mut self, who: Member) {
        self.turns.leave(who);
    }

    /// A frame was sent. `since`: when it was there to be sent, if not just now.
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

    /// The same with the frame's bytes on the wire.
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
            self.turns.served(who, wire);
        }
    }

    /// When a frame of one of these priorities, a bit each, may go; without any, nothing is due.
    pub fn due(&self, state: PauseState, now: Instant, priorities: u8) -> Option<Instant> {
        let paused = priorities & self.paused(state);
        let look = (paused != 0).then(|| now + PAUSE_LOOK);
        let open = (priorities & !paused != 0).then(|| self.limits.first(priorities & !paused));
        look.into_iter()
            .chain(open.map(|at| at.unwrap_or(now).max(now)))
            .min()
    }
}

/// What was sent with a priority other than 0: that one's is what is left of the totals, and is computed when it is read.
#[inline]
fn count(counters: &AdapterCounters, priority: u8, frames: u32, bytes: u64) {
    let block = &counters.link.priorities[usize::from(priority & 7)];
    block.add(P::TxFrames as usize, frames.into());
    block.add(P::TxBytes as usize, bytes);
}

/// Priorities that wait, of one who is told this and obeys so.
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
    /// By [`PortId`].
    by_port: Vec<Option<Box<Sender>>>,
    /// Ports whose RDMA function has packets of priorities that are closed, and those.
    rdma: Vec<(PortId, u8)>,
    /// Something waits in send queues.
    pub queued: bool,
    /// Adapters that are told to wait.
    paused: Vec<PausedAdapter>,
    /// Adapters whose transmit rings have not heard yet what acts now.
    pub changed: Vec<PortId>,
}

impl Senders {
    /// Of one adapter, if it has something configured.
    #[inline]
    pub fn get(&mut self, port: PortId) -> Option<&mut Sender> {
        self.by_port.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    /// Was anybody told to wait when somebody last looked?
    #[inline]
    pub fn any_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    fn look(&self, port: PortId) -> Option<&Sender> {
        self.by_port.get(usize::from(port.0))?.as_deref()
    }

    fn all(&self) -> impl Iterator<Item = (PortId, &Sender)> {
        let ports = (0..).map(PortId).zip(&self.by_port);
        ports.filter_map(|(port, s)| Some((port, s.as_deref()?)))
    }
}

impl Core {
    /// The sending side of an adapter of this core, if it has something configured.
    #[inline]
    pub fn sender(&mut self, port: PortId) -> Option<&mut Sender> {
        self.senders.get(port)
    }

    /// What an adapter is told.
    #[inline]
    pub fn pause_state(&self, port: PortId) -> PauseState {
        if self.pauses.any() {
            self.pauses.of(port)
        } else {
            PauseState::default()
        }
    }

    /// Priorities that an adapter's RDMA function may send now, a bit each: neither paused nor over a limit.
    #[inline]
    pub fn open_priorities(&mut self, port: PortId, now: Instant) -> u8 {
        let state = self.pause_state(port);
        if let Some(sender) = self.senders.get(port) {
            return sender.open(state, now) & !sender.others(now, Member::RDMA);
        }
        if state.global && self.halted(port) {
            0
        } else {
            0xff
        }
    }

    /// Is an adapter that has no [`Sender`] told to wait, and obeys?
    #[cold]
    #[inline(never)]
    pub fn halted(&self, port: PortId) -> bool {
        // *FlowControl says both directions where nobody has said anything.
        let obeys = self.out.qos.get(port).is_none_or(|c| c.qos.pause.global_rx);
        obeys && self.pauses.of(port).global
    }

    /// Do limits or turns hold what an adapter sends?
    #[inline]
    pub fn is_limited(&mut self, port: PortId) -> bool {
        self.senders.get(port).is_some()
    }

    /// An adapter's RDMA function has sent frames of this priority: bytes without preamble, FCS and gap. Charges its limits
    /// and counts.
    #[inline]
    pub fn sent(&mut self, port: PortId, now: Instant, priority: u8, frames: u32, bytes: u64) {
        if let Some(sender) = self.senders.get(port) {
            let wire = bytes + u64::from(frames) * u64::from(WIRE_OVERHEAD);
            sender.charge_bytes(now, None, Member::RDMA, priority, wire);
        }
        if priority != 0
            && let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(port.0))
        {
            count(&a.counters, priority, frames, bytes);
        }
    }

    /// The RDMA function of an adapter has something to send of these priorities, a bit each, that were closed; 0: nothing
    /// any more. From then on it gets its turn beside the Ethernet queues, and the core wakes when one opens.
    pub fn rdma_waits(&mut self, port: PortId, priorities: u8) {
        let (state, now) = (self.pause_state(port), self.now);
        if let Some(sender) = self.senders.get(port) {
            sender.wait(now, Member::RDMA, priorities & !sender.paused(state));
        }
        let known = self.senders.rdma.iter().position(|(p, _)| *p == port);
        match known {
            Some(i) if priorities == 0 => drop(self.senders.rdma.swap_remove(i)),
            Some(i) => self.senders.rdma[i].1 = priorities,
            None if priorities == 0 => {}
            None => self.senders.rdma.push((port, priorities)),
        }
    }

    /// When a frame of one of these priorities, a bit each, that may not be sent now may be.
    pub fn opens_at(&self, port: PortId, now: Instant, priorities: u8) -> Option<Instant> {
        if self.out.guest_roce_is_full(port) {
            // First that has to leave.
            return None;
        }
        self.sender_due(port, now, priorities)
    }

    /// The same as far as limits and pause are concerned.
    pub fn sender_due(&self, port: PortId, now: Instant, priorities: u8) -> Option<Instant> {
        match self.senders.look(port) {
            Some(sender) => sender.due(self.pause_state(port), now, priorities),
            None if priorities != 0 => Some(now + PAUSE_LOOK),
            None => None,
        }
    }

    /// When something may go that waits in send queues or in RDMA functions.
    pub fn senders_due(&self, now: Instant) -> Option<Instant> {
        let rdma = self.senders.rdma.iter().copied();
        let queued = self.senders.all().filter_map(|(port, s)| {
            let queues = s.queues.as_deref()?;
            (!queues.is_empty()).then(|| (port, queues.priorities()))
        });
        let waiting = rdma.chain(queued.filter(|_| self.senders.queued));
        waiting.filter_map(|(port, p)| self.opens_at(port, now, p)).min()
    }

    /// Sends what waits in send queues and may go. Answers how many frames left them.
    #[cold]
    pub fn senders_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let mut queued = false;
        for i in 0..self.senders.by_port.len() {
            let port = PortId(i as u16);
            let Some(sender) = self.senders.get(port) else {
                continue;
            };
            if sender.queues.as_deref().is_some_and(|q| !q.is_empty()) {
                work += self.drain(port, now);
            }
            let Some(sender) = self.senders.get(port) else {
                continue;
            };
            let empty = sender.queues.as_deref().is_none_or(SendQueues::is_empty);
            queued |= !empty;
            if empty && sender.drains() {
                sender.queues = None;
                let change = sender.change.clone();
                self.set_sender(port, &change);
            }
        }
        self.senders.queued = queued;
        if work > 0 {
            self.flush();
        }
        work
    }

    /// An adapter of this core sends as this says from now on.
    pub fn set_sender(&mut self, id: PortId, change: &Arc<QosChange>) {
        let Some(Slot::Adapter(_)) = self.out.slots.get(usize::from(id.0)) else {
            return;
        };
        let (i, now) = (usize::from(id.0), self.now);
        let places = &mut self.senders.by_port;
        if places.len() <= i {
            places.resize_with(i + 1, || None);
        }
        let place = &mut places[i];
        match place {
            Some(sender) => sender.configure(change, now),
            None => *place = Some(Box::new(Sender::new(change.clone(), now))),
        }
        let roce = self.out.guest_roce.contains(&id);
        if !change.qos.polices() && !roce && place.as_ref().is_some_and(|s| s.queues.is_none()) {
            *place = None;
        }
        if let Some(sender) = place {
            sender.guest_roce = roce;
        }
        self.senders.changed.push(id);
    }

    /// A port is removed: what waits in send queues is gone with it.
    pub fn forget_sender(&mut self, id: PortId) {
        self.senders.rdma.retain(|(port, _)| *port != id);
        self.senders.paused.retain(|adapter| adapter.port != id);
        let Some(place) = self.senders.by_port.get_mut(usize::from(id.0)) else {
            return;
        };
        let lost = place.take().and_then(|s| s.queues).map_or(0, |q| q.len());
        self.out
            .round
            .counters
            .add(vnic_engine::counters::CoreCounter::Orphans as usize, lost as u64);
    }

    /// How the sending side of an adapter stands.
    pub fn sender_status(&mut self, id: PortId, status: &mut QueueStatus) {
        let state = self.pause_state(id);
        let halted = state.global && self.halted(id);
        match self.senders.get(id) {
            Some(sender) => {
                status.paused |= sender.paused(state);
                status.send_queues = sender.queues.as_deref().map_or([0; 8], SendQueues::bytes);
            }
            None if halted => status.paused = 0xff,
            None => {}
        }
    }

    fn drain(&mut self, port: PortId, now: Instant) -> usize {
        // As for a guest's ring: a bug of ours takes down the adapter whose frames trigger it.
        let drained = self.guarded(|core| core.drain_send_queues(port, now));
        drained.unwrap_or_else(|| {
            self.report(CoreEvent::Panic { port });
            1
        })
    }
}
