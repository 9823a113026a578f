//! State of a core's round.

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::counters::CoreCounters;
use super::super::frame::OutFrame;
use super::concern::Inbound;
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
    /// Counters of the core.
    pub counters: Arc<CoreCounters>,
}

impl Round {
    /// Offers a frame for a receiver to the running captures, with a comment for them.
    #[inline]
    pub fn offer(&self, port: PortId, f: &OutFrame<'_>, dropped: Option<DropReason>, comment: Option<&str>) {
        if !self.captures.is_empty() {
            self.capture(port, Direction::Egress, f, dropped, comment);
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
        for sink in &self.captures {
            sink.offer(port, direction, f, dropped, comment, &self.counters);
        }
    }
}
