//! State of a core's round.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::clock::NicClock;
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::counters::CoreCounters;
use super::super::frame::OutFrame;
use super::concern::Inbound;
use super::lists::Lists;
use super::mirror::Mirrors;
use super::ptp::{Timed, by_kernel};
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
    /// Arrival of frames that come now, if any may have to be timed.
    #[inline]
    pub fn arrival(&self) -> Option<Instant> {
        match self.timed.is_empty() {
            true => None,
            false => Some(self.waiting.clock.now()),
        }
    }

    /// As [`Round::arrival`], of a frame that the kernel has given this time: ns since 1970, 0: none.
    #[inline]
    pub fn arrival_at(&self, stamp: u64) -> Option<Instant> {
        let now = self.arrival()?;
        Some(match stamp {
            0 => now,
            stamp => by_kernel(&self.waiting.clock, now, stamp),
        })
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
            self.see(port, Direction::Egress, f, dropped, comment);
        }
    }

    /// Offers a frame to the running captures, and to mirror sessions, which copy what is not dropped.
    #[cold]
    pub(super) fn see(
        &mut self,
        port: PortId,
        direction: Direction,
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        self.capture(port, direction, f, dropped, comment);
        if dropped.is_none() {
            self.mirrors.copy(port, direction, f, &self.counters);
        }
    }

    /// Offers a frame to the running captures.
    #[cold]
    pub(super) fn capture(
        &self,
        port: PortId,
        direction: Direction,
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        let time = Duration::from_nanos(self.clock.at(self.waiting.clock.now()));
        for sink in &self.captures {
            sink.offer(time, (port, direction), f, (dropped, comment), &self.counters);
        }
    }
}
