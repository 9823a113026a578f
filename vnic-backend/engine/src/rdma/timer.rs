//! Deadlines of queue pairs. A deadline that moves forward costs nothing: the entry that is there fires early,
//! and the QP puts itself in again. So acknowledged traffic touches the heap once a timeout, not once a packet.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use vnic_wire::time::Instant;

use super::types::QpNumber;

/// The entry that a QP has among the [`Timers`], kept by the QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry(Option<Instant>);

/// All deadlines of a device.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, QpNumber)>>,
}

impl Timers {
    /// Sees to it that `qp` is called at `at` or earlier.
    #[inline]
    pub fn arm(&mut self, entry: &mut Entry, qp: QpNumber, at: Instant) {
        if entry.0.is_none_or(|there| at < there) {
            entry.0 = Some(at);
            self.heap.push(Reverse((at, qp)));
        }
    }

    /// When [`pop`](Timers::pop) may have something.
    pub fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// A QP whose entry is due. It may be a late copy of an entry: see [`fired`](Timers::fired).
    pub fn pop(&mut self, now: Instant) -> Option<(Instant, QpNumber)> {
        let Reverse((at, _)) = *self.heap.peek()?;
        if at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Was it the QP's own entry? Then it has none any more.
    pub fn fired(entry: &mut Entry, at: Instant) -> bool {
        let own = entry.0 == Some(at);
        if own {
            entry.0 = None;
        }
        own
    }
}
