//! What an adapter may send: the priority of its frames, its limits, and pause that it obeys.

mod limits;

use std::sync::Arc;

use vnic_engine::counters::PriorityCounter as P;
use vnic_fabric::Instant;
use vnic_fabric::qos::PauseSettings;
use vnic_fabric::switch::PortId;

use super::super::core::Core;
use super::super::counters::AdapterCounters;
use super::super::outputs::Slot;
use super::super::worker::Worker;
use super::QosChange;
use super::pauses::Told;
use crate::types::QueueStatus;
use limits::Limits;

/// The sending side of an adapter that has something configured, on the core that serves it; Ethernet queues and the RDMA
/// function share it.
pub struct Sender {
    /// What acts.
    pub change: Arc<QosChange>,
    counters: Arc<AdapterCounters>,
    limits: Limits,
    /// Priorities that wait because a receiver says so, a bit each.
    paused: u8,
}

impl Sender {
    fn new(change: Arc<QosChange>, counters: Arc<AdapterCounters>) -> Sender {
        Sender {
            limits: Limits::new(&change.qos),
            change,
            counters,
            paused: 0,
        }
    }

    fn configure(&mut self, change: &Arc<QosChange>) {
        self.limits.configure(&change.qos);
        self.change = change.clone();
    }

    /// Priorities that may send now, a bit each: neither paused nor over a limit.
    pub fn open(&mut self, now: Instant) -> u8 {
        self.limits.open(now) & !self.paused
    }

    /// Frames of this priority were sent: bytes without preamble, FCS and gap.
    #[inline]
    pub fn sent(&mut self, now: Instant, priority: u8, frames: u32, bytes: u64) {
        self.limits.charge(now, priority, wire_bytes(frames, bytes));
        if priority != 0 {
            count(&self.counters, priority, frames, bytes);
        }
    }

    /// When a priority opens that is closed by a limit.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        self.limits.next_time(now)
    }
}

/// Bytes of so many frames on the wire.
#[inline]
fn wire_bytes(frames: u32, bytes: u64) -> u64 {
    bytes + u64::from(frames) * u64::from(vnic_fabric::qos::WIRE_OVERHEAD)
}

/// What was sent with a priority other than 0: that one's is what is left of the totals, and is computed when it is read.
#[inline]
fn count(counters: &AdapterCounters, priority: u8, frames: u32, bytes: u64) {
    let block = &counters.link.priorities[usize::from(priority & 7)];
    block.add(P::TxFrames as usize, frames.into());
    block.add(P::TxBytes as usize, bytes);
}

/// Priorities that wait, of one who is told this and obeys so.
fn obeyed(told: Told, pause: PauseSettings) -> u8 {
    match pause.pfc {
        0 if told.global && pause.global_rx => 0xff,
        0 => 0,
        pfc => told.priorities & pfc,
    }
}

/// Senders of this core's adapters.
#[derive(Default)]
pub struct Senders {
    /// By [`PortId`].
    by_port: Vec<Option<Box<Sender>>>,
}

impl Senders {
    /// Of one adapter, if it has something configured.
    #[inline]
    pub fn get(&mut self, port: PortId) -> Option<&mut Sender> {
        self.by_port.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    fn all(&self) -> impl Iterator<Item = &Sender> {
        self.by_port.iter().flatten().map(|s| &**s)
    }
}

impl Core {
    /// The sending side of an adapter of this core, if it has something configured.
    #[inline]
    pub fn sender(&mut self, port: PortId) -> Option<&mut Sender> {
        self.senders.get(port)
    }

    /// Priorities that an adapter may send now, a bit each: neither paused nor over a limit.
    #[inline]
    pub fn open_priorities(&mut self, port: PortId, now: Instant) -> u8 {
        let told = self.pauses.any();
        if let Some(sender) = self.senders.get(port) {
            if told || sender.paused != 0 {
                sender.paused = obeyed(self.pauses.of(port), sender.change.qos.pause);
            }
            return sender.open(now);
        }
        if told && self.halted(port) { 0 } else { 0xff }
    }

    /// Is an adapter that has no [`Sender`] told to wait, and obeys?
    #[cold]
    #[inline(never)]
    pub fn halted(&self, port: PortId) -> bool {
        // *FlowControl says both directions where nobody has said anything.
        let obeys = self.qos.get(port).is_none_or(|c| c.qos.pause.global_rx);
        obeys && self.pauses.of(port).global
    }

    /// An adapter has sent frames of this priority: bytes without preamble, FCS and gap. Charges its limits and counts.
    #[inline]
    pub fn sent(&mut self, port: PortId, now: Instant, priority: u8, frames: u32, bytes: u64) {
        if let Some(sender) = self.senders.get(port) {
            sender.sent(now, priority, frames, bytes);
        } else if priority != 0
            && let Some(Slot::Adapter(a)) = self.out.slots.get(usize::from(port.0))
        {
            count(&a.counters, priority, frames, bytes);
        }
    }

    /// The RDMA function of an adapter has something to send of these priorities, a bit each, that were closed; 0: nothing
    /// any more. From then on it gets its turn beside the Ethernet queues, and the core wakes when one opens.
    pub fn rdma_waits(&mut self, _port: PortId, _priorities: u8) {}

    /// When an adapter of this core may send again what a limit keeps from being sent now.
    pub fn senders_due(&self, now: Instant) -> Option<Instant> {
        self.senders.all().filter_map(|s| s.next_time(now)).min()
    }
}

impl Worker {
    pub(super) fn set_sender(&mut self, id: PortId, change: &Arc<QosChange>) {
        let Some(Slot::Adapter(adapter)) = self.core.out.slots.get(usize::from(id.0)) else {
            return;
        };
        let i = usize::from(id.0);
        let places = &mut self.core.senders.by_port;
        if places.len() <= i {
            places.resize_with(i + 1, || None);
        }
        match &mut places[i] {
            place if !change.qos.polices() => *place = None,
            Some(sender) => sender.configure(change),
            place => *place = Some(Box::new(Sender::new(change.clone(), adapter.counters.clone()))),
        }
    }

    pub(super) fn forget_sender(&mut self, id: PortId) {
        if let Some(place) = self.core.senders.by_port.get_mut(usize::from(id.0)) {
            *place = None;
        }
    }

    pub(super) fn sender_status(&mut self, id: PortId, status: &mut QueueStatus) {
        if let Some(sender) = self.core.senders.get(id) {
            status.paused = sender.paused;
        }
    }
}
