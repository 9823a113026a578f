//! Every error has a cause that the oracle knows of.

use vnic_engine::rdma::{Access, QpState, QpType, SendOp, Status};

use super::keys::{Allowed, Ask, Side};
use super::receives::GRH_LEN;
use super::sends::Send;
use super::{Judgement, Oracle, Rule, Seq};

/// "The peer does not answer": whether that is so shows at the end.
#[derive(Debug)]
pub(super) struct Claim {
    send: usize,
    at: Seq,
    time: u64,
    text: String,
}

/// What is wrong with a request.
#[derive(Debug, Default, Clone, Copy)]
struct Flaws {
    /// Its own keys.
    local: bool,
    /// The peer's keys or rights.
    remote: bool,
    /// A message that may be longer than its receive.
    long: bool,
    /// A receive at the peer whose own keys are wrong.
    receive: bool,
    /// An atomic at an odd address, more READs than the peer holds, a wrong XRC queue, too long for all.
    invalid: bool,
    /// The key to be invalidated, or the window to be bound.
    key: bool,
    /// No answer comes from where it goes.
    unreachable: bool,
    /// Its address handle was destroyed.
    no_way: bool,
}

impl Flaws {
    fn any_remote(self) -> bool {
        self.remote || self.long || self.receive || self.invalid || self.key || self.unreachable
    }
}

impl Oracle {
    fn flaws(&self, index: usize) -> Flaws {
        let s = &self.sends[index];
        let q = &self.qps[s.qp];
        // (The access key of a target is a key of the peer's, too.)
        let not_always = |ask: &Ask| self.keys.ask(ask, s.posted, self.now).0 != Allowed::Always;
        let side = |side| s.leaves.iter().any(|l| l.ask.side == side && not_always(&l.ask));
        let mut flaws = Flaws {
            local: side(Side::Local),
            remote: side(Side::Remote) || self.key_may_be_wrong(s),
            long: self.may_overflow(s),
            unreachable: self.is_unreachable(s),
            no_way: self.has_no_way(s),
            ..Flaws::default()
        };
        if let Some(queue) = s.queue {
            flaws.receive = self.queues[queue].failed
                || self.recvs.iter().any(|r| {
                    r.queue == queue
                        && r.leaves
                            .iter()
                            .any(|l| self.keys.ask(&l.ask, r.posted, self.now).0 != Allowed::Always)
                });
        }
        if let Some((addr, _, need)) = s.remote() {
            if let Some(peer) = s.to.map(|p| &self.qps[p]) {
                flaws.remote |= !peer.attributes.access.contains(need);
                flaws.invalid |= need == Access::REMOTE_ATOMIC && !addr.is_multiple_of(8);
                flaws.invalid |=
                    s.brings() && q.attributes.max_rd_atomic > peer.attributes.max_dest_rd_atomic;
            }
            flaws.remote |= s.leaves.iter().all(|l| l.ask.side != Side::Remote) && s.len > 0;
        }
        if let Some(srq) = s.srq {
            // Every request names a queue, also those that take nothing from it.
            let peer = q.peer.map(|p| self.qps[p].dev);
            let queue = peer.and_then(|dev| self.srqs.get(&(dev, srq)));
            flaws.invalid |= queue.is_none_or(|q| self.queues[*q].cq.is_none());
        }
        match s.op {
            // Whatever is to be invalidated: the key may be wrong, and only its owner knows.
            SendOp::SendInvalidate(_) | SendOp::LocalInvalidate(_) => flaws.key = true,
            SendOp::BindMw(_) => flaws.key = true,
            _ => {}
        }
        let limit = if q.init.qp_type == QpType::Ud {
            u64::from(q.attributes.path_mtu.bytes()).max(4096)
        } else {
            1 << 31
        };
        if s.len > limit || q.init.qp_type == QpType::Ud && s.len > u64::from(q.attributes.path_mtu.bytes()) {
            flaws.long = true;
        }
        flaws
    }

    /// Has a send request that ended so any right to?
    pub(super) fn cause_of_send(&mut self, index: usize, status: Status) -> Judgement {
        let s = &self.sends[index];
        let q = &self.qps[s.qp];
        if !q.strict {
            return Ok(());
        }
        let flaws = self.flaws(index);
        let text = format!(
            "{}: {:?} {:#x} of {} bytes ended {status:?}",
            self.name(s.qp),
            s.op,
            s.id,
            s.len
        );
        let allowed = match status {
            Status::LocalProtectionError => flaws.local || flaws.key,
            Status::LocalLengthError => flaws.long,
            Status::LocalQpOperationError | Status::MwBindError => flaws.key || flaws.local || flaws.no_way,
            Status::RemoteAccessError => flaws.remote || flaws.key,
            Status::RemoteInvalidRequestError => flaws.long || flaws.invalid || flaws.remote || flaws.key,
            Status::RemoteOperationError => {
                let peer = s.to.map(|p| &self.qps[p]);
                flaws.receive || flaws.key || peer.is_some_and(|p| p.lost)
            }
            Status::RnrRetryExceeded => {
                let naks = self.rnr_naks.get(&(q.dev, q.number)).copied().unwrap_or(0);
                let enough = naks - s.rnr_naks_before > u64::from(q.attributes.rnr_retry);
                let room = s.to.is_some() && self.terms.few_connections;
                (self.may_be_empty(s) || room) && q.attributes.rnr_retry < 7 && enough
            }
            Status::RetryExceeded => {
                let claim = Claim {
                    send: index,
                    at: self.now,
                    time: self.time,
                    text: text.clone(),
                };
                self.claims.push(claim);
                true
            }
            _ => false,
        };
        if allowed {
            return Ok(());
        }
        Rule::Cause.broken(format!("{text}, but nothing explains that ({flaws:?})"))
    }

    /// Could a message have found no receive?
    pub(super) fn may_be_empty(&self, s: &Send) -> bool {
        let Some(queue) = s.queue.map(|q| &self.queues[q]) else {
            return true;
        };
        if queue.failed || queue.users.iter().any(|q| !self.qps[*q].strict) {
            return true;
        }
        // Where others take receives too, those that came later may have been quicker.
        if queue.srq.is_some() || s.datagram {
            s.receives_before < queue.messages + queue.wasted
        } else {
            s.receives_before <= s.messages_before
        }
    }

    /// Retry errors, now that everything is known.
    pub(super) fn check_claims(&self) -> Judgement {
        for claim in &self.claims {
            let s = &self.sends[claim.send];
            let q = &self.qps[s.qp];
            let Some(peer) = s.to.map(|p| &self.qps[p]) else {
                continue;
            };
            let trouble = s.to.map_or(0, |to| self.trouble_of(s.qp, to)) - s.trouble_before;
            let enough = trouble > u64::from(q.attributes.retry_count);
            // A peer that became ready in between asks for what it has missed.
            let late = peer.ready.is_some_and(|r| r >= s.posted && r <= claim.at);
            let absent = peer.ready.is_none_or(|r| r > claim.at)
                || peer.gone
                || peer.lost
                || peer.broken
                || peer.flushed
                || !peer.reasons.is_empty()
                || peer.attributes.state == QpState::Err;
            // A peer that was in error with nothing to flush and no events is known by what was asked of it.
            let asked = self
                .sends
                .iter()
                .enumerate()
                .any(|(i, o)| o.qp == s.qp && self.flaws(i).any_remote());
            // Then every retry waited for the timer.
            let waited = claim.time - s.time;
            let long_enough = match q.attributes.timeout {
                0 => true,
                t => waited >= (4096 << t) * (u64::from(q.attributes.retry_count) + 1),
            };
            if !(self.terms.tight_timers || enough || late || asked || absent && (long_enough || trouble > 0))
            {
                return Rule::Cause.broken(format!(
                    "{} after {waited} ns; the peer was {}there and {trouble} packets met trouble",
                    claim.text,
                    if absent || asked { "not " } else { "" }
                ));
            }
        }
        Ok(())
    }

    /// Has a receive that ended so any right to?
    pub(super) fn cause_of_recv(&mut self, index: usize, qp: usize, status: Status, what: &str) -> Judgement {
        let (dev, number) = (self.qps[qp].dev, self.qps[qp].number);
        let lives = (0..self.qps.len()).filter(|q| self.qps[*q].dev == dev && self.qps[*q].number == number);
        if !self.qps[qp].strict || lives.into_iter().any(|q| self.may_fail(index, q, status)) {
            return Ok(());
        }
        Rule::Cause.broken(format!("{what} ended {status:?}, but nothing explains that"))
    }

    fn may_fail(&self, index: usize, qp: usize, status: Status) -> bool {
        let recv = &self.recvs[index];
        let own = recv
            .leaves
            .iter()
            .any(|l| self.keys.ask(&l.ask, recv.posted, self.now).0 != Allowed::Always);
        let flaws = self.flaws_of_peer(qp);
        match status {
            Status::LocalLengthError => flaws.long,
            Status::LocalProtectionError => own,
            Status::LocalAccessError | Status::RemoteAccessError => flaws.remote || flaws.key,
            Status::LocalQpOperationError | Status::RemoteInvalidRequestError => {
                flaws.invalid || flaws.key || flaws.remote
            }
            _ => false,
        }
    }

    /// All that is wrong with what was sent to a queue pair.
    fn flaws_of_peer(&self, qp: usize) -> Flaws {
        let mut all = Flaws::default();
        let target = &self.qps[qp];
        for (i, s) in self.sends.iter().enumerate() {
            let datagram = target.init.qp_type == QpType::Ud && self.aimed_at(i, qp);
            if datagram {
                let mut recvs = self.recvs.iter().filter(|r| Some(r.queue) == target.queue);
                all.long |= recvs.any(|r| r.capacity < s.len + GRH_LEN);
            }
            let mine = datagram || self.is_for(s, qp) && target.init.qp_type == QpType::DcTarget;
            let mine = mine || target.init.qp_type != QpType::Ud && Some(s.qp) == target.peer;
            if mine {
                let f = self.flaws(i);
                all.local |= f.local;
                all.remote |= f.remote;
                all.long |= f.long;
                all.receive |= f.receive;
                all.invalid |= f.invalid;
                all.key |= f.key;
                all.unreachable |= f.unreachable;
            }
        }
        all
    }

    /// Is anything wrong with this request that its sender never hears of?
    pub(super) fn went_wrong(&self, index: usize) -> bool {
        self.flaws(index).any_remote()
    }

    /// Has a queue pair any right to go to error by itself?
    pub(super) fn cause_of_event(&mut self, qp: usize, text: &str) -> Judgement {
        if !self.qps[qp].strict || self.qps[qp].lost {
            return Ok(());
        }
        let flaws = self.flaws_of_peer(qp);
        let own = self.qps[qp].broken || !self.qps[qp].reasons.is_empty() && self.qps[qp].reasons.len() > 1;
        if flaws.any_remote() || own {
            return Ok(());
        }
        Rule::Cause.broken(format!("{text}, but its peer did nothing wrong"))
    }
}
