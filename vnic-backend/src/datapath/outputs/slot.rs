//! Receivers behind the switch's ports.

use vnic_engine::counters::CoreCounter;
use vnic_engine::offload::Accepts;
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::frame::{Arrival, Metadata, OutFrame};
use super::adapter::AdapterRx;
use super::bond::BondPort;
use super::ptp::timed;
use super::receiver::Receiver;
use super::round::Round;
use crate::uplink::PortTx;

/// The receiver behind a switch port.
pub enum Slot {
    /// No receiver.
    Empty,
    /// Receiver of another core.
    Remote(usize),
    /// An adapter of this core.
    Adapter(Box<AdapterRx>),
    /// An uplink of this core.
    Uplink(Box<PortTx>),
    /// A bond of uplinks of this core.
    Bond(Box<BondPort>),
}

impl Slot {
    /// Place of the port's receiving side, if the port can have one.
    pub(super) fn receiver(&mut self) -> Option<&mut Option<Box<Receiver>>> {
        match self {
            Slot::Adapter(a) => Some(&mut a.receiver),
            Slot::Uplink(p) => Some(&mut p.receiver),
            Slot::Empty | Slot::Remote(_) | Slot::Bond(_) => None,
        }
    }
}

/// The receivers of a core, for callers with complete frames.
pub struct Receivers<'a> {
    pub(super) slots: &'a mut [Slot],
    /// State of the current round.
    pub round: &'a mut Round,
}

impl Receivers<'_> {
    /// Offloads that a receiver accepts for a frame with this head. `None`: there is no receiver here, and the drop is
    /// counted.
    pub(super) fn accepts(&self, port: PortId, head: &[u8]) -> Option<Accepts> {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) if a.active.is_empty() && !a.takes_roce => {
                a.counters.drops.add(DropReason::ReceiverDown as usize, 1);
                None
            }
            Some(Slot::Adapter(a)) => Some(a.accepts(head)),
            Some(Slot::Uplink(p)) => Some(p.accepts),
            // The port's own core delivers the frame.
            Some(Slot::Remote(_)) => None,
            // A bond gives its frames to its members.
            Some(Slot::Empty | Slot::Bond(_)) | None => {
                self.round.counters.add(CoreCounter::Orphans as usize, 1);
                None
            }
        }
    }

    /// Hands a complete frame to a receiver; `comment` is for the captures.
    pub fn put(&mut self, port: PortId, f: &OutFrame<'_>, meta: &Metadata, comment: Option<&str>) {
        match meta.arrived {
            Arrival::Unknown | Arrival::Stamped(_) => self.put_on(port, f, meta, comment),
            Arrival::At(arrived) | Arrival::Timed(arrived) => self.put_timed(arrived, port, f, meta, comment),
        }
    }

    /// Hands a complete frame that arrived at this time to a receiver: timed, if it is a PTP message of a timed port.
    #[cold]
    fn put_timed(
        &mut self,
        arrived: Instant,
        port: PortId,
        f: &OutFrame<'_>,
        meta: &Metadata,
        comment: Option<&str>,
    ) {
        let now = self.round.waiting.clock.now();
        let concerned = self.round.timed.concern(meta.source, port);
        let of = |arrived| Metadata {
            arrived,
            ..meta.clone()
        };
        let is_timed = concerned
            && timed(f, now.since(arrived), |f| {
                self.round.counters.add(CoreCounter::PtpTimed as usize, 1);
                self.put_on(port, f, &of(Arrival::Timed(now)), comment);
            });
        if !is_timed {
            self.put_on(port, f, &of(Arrival::At(arrived)), comment);
        }
    }

    /// Hands a complete frame to a receiver as it is.
    #[inline]
    fn put_on(&mut self, port: PortId, f: &OutFrame<'_>, meta: &Metadata, comment: Option<&str>) {
        let round = &mut *self.round;
        let dropped = match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.deliver(port, f, meta, round),
            Some(Slot::Uplink(p)) => {
                if !p.touched {
                    p.touched = true;
                    round.touched.push((port, 0));
                }
                p.put(f, meta).err()
            }
            Some(Slot::Remote(_) | Slot::Empty | Slot::Bond(_)) | None => {
                round.counters.add(CoreCounter::Orphans as usize, 1);
                return;
            }
        };
        round.offer(port, f, dropped, comment);
    }

    /// Drops a frame that was for this port.
    pub fn drop(&mut self, port: PortId, f: &OutFrame<'_>, reason: DropReason, comment: &str) {
        self.count_drop(port, reason);
        self.round.offer(port, f, Some(reason), Some(comment));
    }

    /// Counts a frame that did not get to its receiver.
    pub(super) fn count_drop(&self, port: PortId, reason: DropReason) {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.counters.drops.add(reason as usize, 1),
            Some(Slot::Uplink(p)) => p.count_drop(reason),
            _ => self.round.counters.add(CoreCounter::Orphans as usize, 1),
        }
    }
}
