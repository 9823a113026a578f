//! Deadlines of queue pairs. A deadline that moves forward costs nothing: the old entry fires early, and the
//! QP puts itself in again. So acknowledged traffic touches the set once a timeout, not once a packet.

use alloc::collections::BTreeSet;
use core::num::NonZeroU64;

use vnic_wire::time::Instant;

use super::types::QpNumber;

/// An [`Instant`] of which an `Option` is as large as itself: a device has 2^17 QPs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(NonZeroU64);

impl Moment {
    /// For a point in time; the last one of all is the one before it.
    #[inline]
    pub const fn of(at: Instant) -> Moment {
        Moment(NonZeroU64::MIN.saturating_add(at.0))
    }

    /// The point in time.
    #[inline]
    pub const fn at(self) -> Instant {
        Instant(self.0.get() - 1)
    }
}

/// The entry of a QP among the [`Timers`], kept by the QP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Entry(Option<Moment>);

/// All deadlines of a device.
#[derive(Debug, Default)]
pub(super) struct Timers {
    entries: BTreeSet<(Instant, QpNumber)>,
}

impl Timers {
    /// Makes sure that `qp` is called at `at` or earlier.
    #[inline]
    pub fn arm(&mut self, entry: &mut Entry, qp: QpNumber, at: Instant) {
        if entry.0.is_none_or(|there| at < there.at()) {
            self.disarm(entry, qp);
            entry.0 = Some(Moment::of(at));
            self.entries.insert((at, qp));
        }
    }

    /// Removes the deadline of a QP.
    pub fn disarm(&mut self, entry: &mut Entry, qp: QpNumber) {
        if let Some(there) = entry.0.take() {
            self.entries.remove(&(there.at(), qp));
        }
    }

    /// When [`pop`](Timers::pop) has a QP.
    pub fn next(&self) -> Option<Instant> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Takes a QP whose entry is due. The caller calls its [`fired`](Entry::fired).
    pub fn pop(&mut self, now: Instant) -> Option<QpNumber> {
        let (at, qp) = *self.entries.first()?;
        if at > now {
            return None;
        }
        self.entries.pop_first();
        Some(qp)
    }
}

impl Entry {
    /// The entry was taken from among the timers.
    pub fn fired(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_has_one_entry_the_earliest() {
        let mut timers = Timers::default();
        let (mut a, mut b) = (Entry::default(), Entry::default());
        timers.arm(&mut a, QpNumber(1), Instant(50));
        timers.arm(&mut b, QpNumber(2), Instant(40));
        timers.arm(&mut a, QpNumber(1), Instant(60));
        timers.arm(&mut a, QpNumber(1), Instant(30));
        assert_eq!((timers.next(), timers.entries.len()), (Some(Instant(30)), 2));
        assert_eq!(
            (timers.pop(Instant(29)), timers.pop(Instant(35))),
            (None, Some(QpNumber(1)))
        );
        a.fired();
        timers.disarm(&mut b, QpNumber(2));
        assert_eq!((timers.next(), a, b), (None, Entry(None), Entry(None)));
    }
}
