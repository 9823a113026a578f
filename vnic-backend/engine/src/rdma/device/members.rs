//! Users of a completion queue, and their failure when it overruns.

use super::super::completion_queue::Member;
use super::super::types::{CqHandle, Event};
use super::Device;

/// Most QPs and SRQs of queues that overran, and requests posted there, that go into error between two
/// calls of [`Device::handle_timeouts`]; the last of them may have more.
pub(super) const FAILURES: u32 = 256;

impl Device {
    pub(super) fn use_cq(&mut self, cq: Option<CqHandle>, member: Member) {
        if let Some(queue) = cq.and_then(|cq| self.shared.cqs.get_mut(cq.0)) {
            queue.users += 1;
            queue.members.insert(member);
        }
    }

    pub(super) fn leave_cq(&mut self, cq: Option<CqHandle>, member: Member) {
        if let Some(queue) = cq.and_then(|cq| self.shared.cqs.get_mut(cq.0)) {
            queue.users = queue.users.saturating_sub(1);
            queue.members.remove(&member);
        }
    }

    /// Puts QPs and SRQs of a completion queue that overran into error (IBTA 10.2.6.2).
    #[inline]
    pub(super) fn fail_overrun(&mut self) {
        if !self.shared.overrun.is_empty() {
            self.fail_overrun_now();
        }
    }

    /// As many of them as the limit allows: [`next_timeout`](Device::next_timeout) says when to go on.
    #[cold]
    fn fail_overrun_now(&mut self) {
        while self.shared.failures > 0 {
            let Some(&cq) = self.shared.overrun.last() else {
                break;
            };
            let queue = self.shared.cqs.get_mut(cq.0);
            let Some(member) = queue.and_then(|queue| queue.members.pop_first()) else {
                self.shared.overrun.pop();
                continue;
            };
            let before = self.shared.work;
            self.shared.work = before.saturating_add(1);
            match member {
                Member::Qp(number) => {
                    if let Some(qp) = self.qps.get_mut(number.0) {
                        qp.fatal(&mut self.shared);
                    }
                }
                Member::Srq(srq) => {
                    if let Some(queue) = self.shared.srqs.get_mut(srq.0) {
                        queue.error = true;
                        self.shared.events.push_back(Event::SrqError(srq));
                    }
                }
            }
            let done = self.shared.work - before;
            self.shared.failures = self.shared.failures.saturating_sub(done);
        }
    }
}
