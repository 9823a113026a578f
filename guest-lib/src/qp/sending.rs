//! Sends that are posted one by one.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Acquire;

use vnic_device::doorbell::Kind;
use vnic_device::verbs::QpState;

use super::Qp;
use super::send::SendRing;
use crate::PostReason;
use crate::driver::lock;
use crate::wr::SendWr;

/// Sends that are posted one by one, with one doorbell for all of them. No other thread posts to the queue pair
/// meanwhile. What was not [rung](Sending::ring) for is taken back.
pub struct Sending<'a> {
    qp: &'a Qp,
    ring: MutexGuard<'a, SendRing>,
    /// Where the ring was when it began.
    from: u32,
    /// Blocks before this one are free, as far as is known.
    consumed: u32,
}

impl std::fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let blocks = self.ring.producer().wrapping_sub(self.from);
        write!(f, "Sending({:#x}, {blocks} blocks)", self.qp.number)
    }
}

impl Drop for Sending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.take_back(self.from);
    }
}

impl<'a> Sending<'a> {
    #[inline]
    pub(super) fn new(qp: &'a Qp) -> Result<Sending<'a>, PostReason> {
        let ring = lock(&qp.send);
        // Under the lock: a reset changes it there.
        let state = qp.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostReason::State(state));
        }
        Ok(Sending {
            qp,
            from: ring.producer(),
            consumed: qp.consumed.send.load(Acquire),
            ring,
        })
    }

    /// Posts one, if it is not refused. Its data are copied out or not needed any more when this is back.
    #[inline]
    pub fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        let result = self.ring.write(wr, &self.qp.limits, self.consumed);
        if result == Err(PostReason::Full) {
            self.consumed = self.qp.consumed.send.load(Acquire);
            return self.ring.write(wr, &self.qp.limits, self.consumed);
        }
        result
    }

    /// Tells the device of all that was posted.
    #[inline]
    pub fn ring(mut self) -> Result<(), PostReason> {
        let producer = self.ring.producer();
        let any = producer != self.from;
        self.from = producer;
        self.qp.posted(Kind::Send, producer, any)
    }
}
