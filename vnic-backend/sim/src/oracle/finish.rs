//! The end of a run: nothing is stuck, nothing is missing, and every byte is what it should be.

use vnic_engine::rdma::{QpNumber, QpState, QpType, Status};

use super::receives::Recv;
use super::sends::{Fate, Send};
use super::{Judgement, Oracle, Qp, Rule};

/// What a run has checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finish {
    /// Bytes that were compared at the end.
    pub bytes: u64,
    /// Work requests that were posted.
    pub posted: u64,
}

impl Oracle {
    /// The world is quiet: whatever could happen has happened, and no queue pair was moved to error for the end.
    pub fn quiet(&self) -> Judgement {
        self.nothing_stuck()?;
        self.all_delivered()?;
        self.check_claims()?;
        self.flushes_have_reasons()?;
        self.limits_were_told()
    }

    /// A shared receive queue that has fallen below its limit has told so.
    fn limits_were_told(&self) -> Judgement {
        for queue in self.queues.iter().filter(|q| !q.failed) {
            let Some((limit, since)) = queue.limit else {
                continue;
            };
            // One that was posted after the limit was set has surely been taken after that, too.
            let taken = |r: &Recv| r.posted > since && r.fate == Fate::Done(Status::Success);
            let mut recvs = self
                .recvs
                .iter()
                .filter(|r| self.queues[r.queue].srq == queue.srq);
            let taken = recvs.any(|r| self.queues[r.queue].dev == queue.dev && taken(r));
            if taken && (queue.open.len() as u64) < u64::from(limit) {
                return Rule::Event.broken(format!(
                    "dev{} {:?} has {} receives left, its limit is {limit}, and it told nobody",
                    queue.dev,
                    queue.srq,
                    queue.open.len()
                ));
            }
        }
        Ok(())
    }

    /// Send queues that were stopped have drained by now, and told whoever asked.
    pub fn drained(&self) -> Judgement {
        for qp in self
            .qps
            .iter()
            .filter(|q| q.drain && q.strict && !q.lost && !q.gone)
        {
            let paused = qp.attributes.state == QpState::Sqd;
            if paused && qp.reasons.is_empty() && qp.attributes.rnr_retry != 7 && qp.attributes.timeout > 0 {
                return Rule::Event.broken(format!(
                    "dev{} QP {:#x} drained and told nobody",
                    qp.dev, qp.number.0
                ));
            }
        }
        Ok(())
    }

    fn nothing_stuck(&self) -> Judgement {
        for (index, qp) in self.qps.iter().enumerate() {
            let Some(first) = qp.sends.front() else { continue };
            if qp.gone || qp.lost || !qp.strict {
                continue;
            }
            let s = &self.sends[*first];
            let peer = s.to.map(|p| &self.qps[p]);
            let waits_for_ever = qp.attributes.timeout == 0
                && peer.is_none_or(|p| {
                    self.trouble_between(qp.dev, p.dev) > s.trouble_before
                        || p.gone
                        || !p.reasons.is_empty()
                        || p.ready.is_none_or(|r| r > s.posted)
                });
            let never_ready = self.waits_for_ever(qp);
            let paused = !matches!(qp.attributes.state, QpState::Rts | QpState::Sqe | QpState::Err);
            let unsignaled = qp.sends.iter().all(|i| !self.sends[*i].signaled && !qp.broken);
            if waits_for_ever || never_ready || paused || unsignaled {
                continue;
            }
            return Rule::Progress.broken(format!(
                "{} is stuck in {:?} with {} requests, the first is {:?} {:#x} of {} bytes",
                self.name(index),
                qp.attributes.state,
                qp.sends.len(),
                s.op,
                s.id,
                s.len
            ));
        }
        Ok(())
    }

    /// Does a queue pair wait for a receiver that may never be ready?
    fn waits_for_ever(&self, qp: &Qp) -> bool {
        qp.attributes.rnr_retry == 7
            && qp.sends.iter().any(|i| {
                let s = &self.sends[*i];
                Send::takes_receive(&s.op) && self.may_be_empty(s)
            })
    }

    /// Which do?
    pub fn waiting_for_ever(&self) -> Vec<(usize, QpNumber)> {
        let waiting = self.qps.iter().filter(|qp| !qp.gone && self.waits_for_ever(qp));
        waiting.map(|qp| (qp.dev, qp.number)).collect()
    }

    /// All queue pairs were moved to error and all completion queues polled.
    pub fn finish(&mut self) -> Judgement<Finish> {
        // What a queue that overran did not tell may have been done or not.
        let lost = self.qps.iter().filter(|q| q.lost);
        for send in lost.flat_map(|q| q.sends.clone()).collect::<Vec<_>>() {
            self.unfulfilled(send);
        }
        self.nothing_missing()?;
        self.check_cells()?;
        let mut finish = Finish {
            posted: (self.sends.len() + self.recvs.len()) as u64,
            ..Finish::default()
        };
        for (dev, memory) in self.memories.iter().enumerate() {
            if let Some((at, expected, found)) = self.bytes[dev].differs(memory) {
                return Rule::Integrity.broken(format!(
                    "dev{dev}: at the end, byte {at:#x} is {found:#04x} instead of {expected:#04x}"
                ));
            }
            finish.bytes += self.bytes[dev].known() as u64;
        }
        Ok(finish)
    }

    fn nothing_missing(&self) -> Judgement {
        for (index, qp) in self.qps.iter().enumerate() {
            if qp.gone || qp.lost {
                continue;
            }
            // Unsignaled requests that succeeded say nothing; at the latest those that did not are flushed.
            let unseen = qp.sends.iter().find(|i| {
                let s = &self.sends[**i];
                s.signaled || qp.broken
            });
            if let Some(send) = unseen {
                return Rule::Completion.broken(format!(
                    "{}: {} never completed",
                    self.name(index),
                    self.describe(*send)
                ));
            }
            if qp.init.srq.is_some() && qp.last_wqe == 0 && qp.init.qp_type != QpType::DcTarget {
                return Rule::Event.broken(format!(
                    "{} is in error and told nobody that it takes no more receives",
                    self.name(index)
                ));
            }
            let Some(queue) = qp.queue.map(|q| &self.queues[q]) else {
                continue;
            };
            if queue.srq.is_none()
                && let Some(recv) = queue.open.first()
            {
                return Rule::Completion.broken(format!(
                    "{}: receive {:#x} was never flushed",
                    self.name(index),
                    self.recvs[*recv].id
                ));
            }
        }
        Ok(())
    }

    fn all_delivered(&self) -> Judgement {
        for (index, s) in self.sends.iter().enumerate() {
            let qp = &self.qps[s.qp];
            if !Send::takes_receive(&s.op) || s.fate != Fate::Done(Status::Success) || !qp.strict {
                continue;
            }
            let receiver = self.receiver(s);
            let Some(receiver) = receiver.map(|r| &self.qps[r]) else {
                continue;
            };
            if receiver.lost || receiver.gone || !receiver.strict {
                continue;
            }
            let certain = if qp.init.qp_type.reliable() {
                true
            } else {
                // Short ones may be taken for one another.
                self.terms.clean
                    && s.len >= 16
                    && !self.may_be_empty(s)
                    && !self.may_overflow(s)
                    && receiver.reasons.is_empty()
                    && receiver.ready.is_some_and(|r| r < s.posted)
                    && !self.in_group(receiver.dev, receiver.number)
                    && !self.went_wrong(index)
            };
            if certain && s.delivered.len() != 1 {
                return Rule::Delivery.broken(format!(
                    "{} succeeded and was received {} times",
                    self.describe(index),
                    s.delivered.len()
                ));
            }
        }
        Ok(())
    }

    /// Messages to groups take receives that nobody has counted.
    fn in_group(&self, dev: usize, number: QpNumber) -> bool {
        let mut groups = self.groups.iter();
        groups.any(|((d, _), members)| *d == dev && members.contains(&number))
    }

    /// Who should have received a message.
    fn receiver(&self, s: &Send) -> Option<usize> {
        let qp = &self.qps[s.qp];
        match qp.init.qp_type {
            QpType::Ud => {
                let ud = s.ud?;
                let dev = self.addresses.get(&(qp.dev, ud.ah))?.dev?;
                let receiver = *self.current.get(&(dev, ud.qp))?;
                let to = &self.qps[receiver];
                let qkey = if ud.qkey >> 31 == 1 {
                    qp.attributes.qkey
                } else {
                    ud.qkey
                };
                (to.init.qp_type == QpType::Ud && qkey == to.attributes.qkey).then_some(receiver)
            }
            _ => s.to,
        }
    }

    fn flushes_have_reasons(&self) -> Judgement {
        for (index, qp) in self.qps.iter().enumerate() {
            let excused = !qp.strict || qp.lost || !qp.reasons.is_empty();
            let disturbed = || qp.init.qp_type == QpType::DcTarget && self.is_disturbed(index);
            if qp.flushed && !excused && !disturbed() {
                return Rule::Cause.broken(format!(
                    "{} was flushed, and nothing explains that",
                    self.name(index)
                ));
            }
        }
        Ok(())
    }
}
