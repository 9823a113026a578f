//! Sample of a function's messages: one request at a time is followed from its ring to its completion. To follow all of them
//! would cost each some instructions; this costs a comparison for each completion.

use std::time::Duration;
use vnic_device::queue::CompletionKind;
use vnic_engine::counters::TimeHistogram;
use vnic_engine::rdma::{Completion, QpNumber, Status};
use vnic_fabric::Instant;

/// No queue pair.
const NONE: u32 = u32::MAX;
/// Time after which a request is not followed any more: it may have gone with its queue pair.
const FORGOTTEN: Duration = Duration::from_secs(10);

/// The request that is followed.
#[derive(Debug)]
pub struct Sample {
    /// Queue pair of the request, or [`NONE`].
    qp: u32,
    /// Tag of the request.
    tag: u32,
    /// When the request was taken from its ring; `None`: in the turn that goes on.
    taken: Option<Instant>,
    /// When a request was taken whose completion was written in the round that goes on.
    ended: Option<Instant>,
}

impl Default for Sample {
    fn default() -> Sample {
        Sample {
            qp: NONE,
            tag: 0,
            taken: None,
            ended: None,
        }
    }
}

impl Sample {
    /// Whether no request is followed.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.qp == NONE
    }

    /// Follows a request that was taken in this turn.
    pub fn follow(&mut self, qp: QpNumber, tag: u32) {
        (self.qp, self.tag, self.taken) = (qp.0, tag, None);
    }

    /// Notes the time of the turn.
    #[inline]
    pub fn stamp(&mut self, now: Instant) {
        self.taken.get_or_insert(now);
    }

    /// Looks at a completion that was written.
    #[inline]
    pub fn look(&mut self, completion: &Completion, now: Instant) {
        if completion.tag == self.tag && completion.qp.0 == self.qp {
            self.completed(completion, now);
        }
    }

    #[inline(never)]
    fn completed(&mut self, completion: &Completion, now: Instant) {
        // (Tags of receives count apart.)
        if CompletionKind::is_receive(completion.op.number()) {
            return;
        }
        self.qp = NONE;
        if completion.status == Status::Success {
            self.ended.get_or_insert(self.taken.unwrap_or(now));
        }
    }

    /// Stops following a request of a queue pair that begins anew or is destroyed.
    pub fn forget(&mut self, qp: u32) {
        if self.qp == qp {
            self.qp = NONE;
        }
    }

    /// Stops following a request that has not come to an end for long.
    pub fn forget_old(&mut self, now: Instant) {
        if self.taken.is_some_and(|at| now.since(at) > FORGOTTEN) {
            self.qp = NONE;
        }
    }

    /// Whether the completion of a followed request was written in this round.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Counts a request whose completion was written in the round that is over `now`.
    pub fn count(&mut self, to: &TimeHistogram, now: Instant) {
        if let Some(taken) = self.ended.take() {
            to.add(u64::try_from(now.since(taken).as_nanos()).unwrap_or(u64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vnic_engine::rdma::CompletionOp;

    fn completion(qp: u32, tag: u32, op: CompletionOp, status: Status) -> Completion {
        Completion::new(0, tag, QpNumber(qp), op, status)
    }

    /// Number of counted requests, and the sum of their times.
    fn counted(sample: &mut Sample, now: u64) -> (u64, u64) {
        let to = TimeHistogram::default();
        sample.count(&to, Instant(now));
        (to.read().count(), to.read().sum)
    }

    #[test]
    fn a_request_is_followed_to_its_own_completion() {
        let mut sample = Sample::default();
        let sent = |qp, tag| completion(qp, tag, CompletionOp::Send, Status::Success);
        sample.follow(QpNumber(7), 3);
        assert!(!sample.is_free());
        sample.stamp(Instant(100));
        sample.stamp(Instant(200));
        for other in [
            sent(7, 2),
            sent(8, 3),
            completion(7, 3, CompletionOp::Recv, Status::Success),
        ] {
            sample.look(&other, Instant(300));
            assert!(!sample.is_free() && !sample.has_ended(), "{other:?}");
        }
        sample.look(&sent(7, 3), Instant(300));
        assert!(sample.is_free() && sample.has_ended());
        // (It is counted when the round is over.)
        assert_eq!(counted(&mut sample, 450), (1, 350));
        assert_eq!(counted(&mut sample, 500), (0, 0));
    }

    #[test]
    fn a_request_that_completes_in_the_turn_that_took_it_counts_from_its_round() {
        let mut sample = Sample::default();
        sample.follow(QpNumber(7), 3);
        sample.look(
            &completion(7, 3, CompletionOp::Write, Status::Success),
            Instant(40),
        );
        assert_eq!(counted(&mut sample, 90), (1, 50));
    }

    #[test]
    fn requests_that_fail_or_are_gone_are_not_counted() {
        let mut sample = Sample::default();
        sample.follow(QpNumber(7), 3);
        sample.look(
            &completion(7, 3, CompletionOp::Send, Status::FlushError),
            Instant(1),
        );
        assert!(sample.is_free() && !sample.has_ended());
        sample.follow(QpNumber(7), 4);
        sample.forget(8);
        assert!(!sample.is_free());
        sample.forget(7);
        assert!(sample.is_free());
        sample.follow(QpNumber(7), 5);
        sample.stamp(Instant(0));
        sample.forget_old(Instant(FORGOTTEN.as_nanos() as u64));
        assert!(!sample.is_free());
        sample.forget_old(Instant(FORGOTTEN.as_nanos() as u64 + 1));
        assert!(sample.is_free());
    }
}
