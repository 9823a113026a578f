//! State of a core's round.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::clock::NicClock;
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::counters::CoreCounters;
use super::super::frame::{Arrival, OutFrame};
use super::concern::Inbound;
use super::lists::Lists;
use super::mirror::Mirrors;
use super::ptp::{Timed, instant_of};
use super::waiting::Waiting;
use crate::capture::Sink;
use crate::types::Direction;

/// State that a core gathers in a round while it delivers frames.
pub struct Round {
    /// When the round began.
    pub now: Instant,
    /// Queues and uplinks that got something since the last flush.
    pub touched: Vec<(PortId, u8)>,
    /// Frames that concern RDMA functions.
    pub inbound: VecDeque<(PortId, Inbound)>,
    /// Receivers for which frames wait.
    pub waiting: Waiting,
    pub(super) captures: Vec<Arc<Sink>>,
    /// The NIC's clock.
    pub(super) clock: NicClock,
    /// Ports whose PTP messages are timed.
    pub timed: Timed,
    /// Access lists of the core's adapters.
    pub lists: Lists,
    /// Mirror sessions, and copies that wait for the end of the round.
    pub mirrors: Mirrors,
    /// Counters of the core.
    pub counters: Arc<CoreCounters>,
}

impl Round {
    /// Arrival of frames that come now: known if any may have to be timed.
    #[inline]
    pub fn arrival(&self) -> Arrival {
        match self.timed.is_empty() {
            true => Arrival::Unknown,
            false => Arrival::At(self.waiting.clock.now()),
        }
    }

    /// As [`Round::arrival`], of a frame that the kernel or hardware has given this time: ns since 1970, 0: none.
    #[inline]
    pub fn arrival_at(&self, stamp: u64) -> Arrival {
        match stamp {
            0 => self.arrival(),
            stamp if self.timed.is_empty() => Arrival::Stamped(stamp),
            stamp => Arrival::At(instant_of(&self.waiting.clock, stamp)),
        }
    }

    /// The instant of an arrival, if it is known.
    #[cold]
    pub(super) fn instant(&self, arrival: Arrival) -> Option<Instant> {
        match arrival {
            Arrival::Unknown => None,
            Arrival::Stamped(stamp) => Some(instant_of(&self.waiting.clock, stamp)),
            Arrival::At(at) | Arrival::Timed(at) => Some(at),
        }
    }

    /// Offers a frame for a receiver to captures, with a comment for them, and to mirror sessions.
    #[inline]
    pub fn offer(
        &mut self,
        port: PortId,
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        if !self.captures.is_empty() || !self.mirrors.is_empty() {
            self.see((port, Direction::Egress, None), f, dropped, comment);
        }
    }

    /// Offers a frame to the running captures, and to mirror sessions, which copy what is not dropped. It is seen now, or was at the
    /// given time.
    #[cold]
    pub(super) fn see(
        &mut self,
        (port, direction, at): (PortId, Direction, Option<Instant>),
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        self.capture((port, direction, at), f, dropped, comment);
        if dropped.is_none() {
            self.mirrors.copy(port, direction, f, &self.counters);
        }
    }

    /// Offers a frame to the running captures.
    #[cold]
    pub(super) fn capture(
        &self,
        (port, direction, at): (PortId, Direction, Option<Instant>),
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        let at = at.unwrap_or_else(|| self.waiting.clock.now());
        let time = Duration::from_nanos(self.clock.at(at));
        for sink in &self.captures {
            sink.offer(time, (port, direction), f, (dropped, comment), &self.counters);
        }
    }
}
