//! Receive queues and completion queues.

use vnic_engine::rdma::{
    Arm, Completion, CqHandle, Event, PdHandle, QpNumber, QpState, QpType, SrqHandle, Status,
};

use super::{Judgement, Oracle, Rule, Seq};

/// A receive queue: of one queue pair, or shared.
#[derive(Debug, Default)]
pub struct Queue {
    pub(super) dev: usize,
    /// Where an XRC shared receive queue completes; of others, the queue pairs say it.
    pub(super) cq: Option<CqHandle>,
    pub(super) srq: Option<SrqHandle>,
    pub(super) pd: Option<PdHandle>,
    /// Posted receives that have not completed, in order.
    pub(super) open: Vec<usize>,
    /// Queue pairs that take from it.
    pub(super) users: Vec<usize>,
    /// Receives ever posted.
    pub(super) posted: u64,
    /// Messages ever sent to it.
    pub(super) messages: u64,
    /// Receives that went without a message.
    pub(super) wasted: u64,
    /// Tell when fewer than this are left, and since when.
    pub(super) limit: Option<(u32, Seq)>,
    /// It is in error: nothing is taken from it any more.
    pub(super) failed: bool,
}

impl Queue {
    pub(super) fn new(
        dev: usize,
        cq: Option<CqHandle>,
        srq: Option<SrqHandle>,
        pd: Option<PdHandle>,
    ) -> Queue {
        Queue {
            dev,
            cq,
            srq,
            pd,
            ..Queue::default()
        }
    }
}

/// A completion queue.
#[derive(Debug, Default)]
pub struct Cq {
    entries: u32,
    /// Armed, and not fired yet.
    armed: Option<Arm>,
    /// Its last event came after it was armed.
    fired: bool,
    overrun: bool,
    /// It fired for solicited completions, and none has come out since.
    owes: bool,
    /// Completions of queue pairs that are gone, which may still be in it.
    ghosts: u64,
}

impl Oracle {
    /// A completion queue was created or resized; it has room for so many.
    pub fn cq(&mut self, dev: usize, cq: CqHandle, entries: u32) {
        self.tick();
        self.cqs.entry((dev, cq)).or_default().entries = entries;
    }

    /// A completion queue was armed; it held nothing then.
    pub fn armed(&mut self, dev: usize, handle: CqHandle, arm: Arm) -> Judgement {
        self.tick();
        if let Some(cq) = self.cqs.get_mut(&(dev, handle)) {
            if cq.owes {
                return Rule::Event.broken(format!(
                    "dev{dev}: {handle:?} told of a solicited completion, and none came out"
                ));
            }
            cq.armed = Some(match (cq.armed.filter(|_| !cq.fired), arm) {
                // A request for all is stronger than one for solicited ones (IBTA 11.4.2.2).
                (Some(Arm::Next), Arm::Solicited) => Arm::Next,
                _ => arm,
            });
            cq.fired = false;
        }
        Ok(())
    }

    /// A shared receive queue was created.
    pub fn srq(&mut self, dev: usize, srq: SrqHandle, cq: Option<CqHandle>, pd: PdHandle) {
        self.tick();
        let mut queue = Queue::new(dev, cq, Some(srq), Some(pd));
        if cq.is_some() {
            // Any target of the domain may be told to take from it.
            let targets = self.qps.iter().enumerate();
            let targets =
                targets.filter(|(_, q)| q.dev == dev && q.init.qp_type == QpType::XrcTarget && !q.gone);
            queue.users = targets.map(|(i, _)| i).collect();
        }
        self.queues.push(queue);
        self.srqs.insert((dev, srq), self.queues.len() - 1);
    }

    /// It shall tell when fewer receives than this are left.
    pub fn srq_limit(&mut self, dev: usize, srq: SrqHandle, limit: u32) {
        let now = self.tick();
        if let Some(queue) = self.srqs.get(&(dev, srq)) {
            self.queues[*queue].limit = (limit > 0).then_some((limit, now));
        }
    }

    /// So many completions of a queue pair that is gone may be in a completion queue.
    pub(super) fn ghosts(&mut self, dev: usize, cq: Option<CqHandle>, n: usize) {
        if let Some(cq) = cq.and_then(|cq| self.cqs.get_mut(&(dev, cq))) {
            cq.ghosts += n as u64;
        }
    }

    /// One of these came out.
    pub(super) fn ghost_came(&mut self, dev: usize, cq: CqHandle) {
        if let Some(cq) = self.cqs.get_mut(&(dev, cq)) {
            cq.ghosts = cq.ghosts.saturating_sub(1);
        }
    }

    /// Completions that could still come to a completion queue.
    fn expected(&self, dev: usize, cq: CqHandle) -> u64 {
        let mut n = self.cqs.get(&(dev, cq)).map_or(0, |c| c.ghosts);
        let mut counted = Vec::new();
        for qp in self.qps.iter().filter(|q| q.dev == dev && !q.gone) {
            if qp.init.send_cq == Some(cq) {
                n += qp.sends.len() as u64;
            }
            if let Some(queue) = qp
                .queue
                .filter(|q| qp.init.recv_cq == Some(cq) && !counted.contains(q))
            {
                counted.push(queue);
                n += self.queues[queue].open.len() as u64;
            }
        }
        for (i, queue) in self.queues.iter().enumerate() {
            let xrc = queue.dev == dev && queue.srq.is_some() && queue.cq == Some(cq);
            if xrc && !counted.contains(&i) {
                n += queue.open.len() as u64;
            }
        }
        n
    }

    pub(super) fn cq_completed(&mut self, dev: usize, handle: CqHandle, c: &Completion) -> Judgement {
        let Some(cq) = self.cqs.get_mut(&(dev, handle)) else {
            return Rule::Completion.broken(format!(
                "dev{dev}: a completion from {handle:?}, which is not there"
            ));
        };
        if c.status != Status::Success || c.solicited {
            cq.owes = false;
        }
        // What comes out was not there when the queue was armed.
        let wakes = match cq.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => c.status != Status::Success || c.solicited,
        };
        if wakes && !cq.fired {
            return Rule::Event.broken(format!(
                "dev{dev}: {handle:?} was armed, has a completion, and told nobody"
            ));
        }
        Ok(())
    }

    /// An asynchronous or completion event.
    pub fn event(&mut self, dev: usize, event: Event) -> Judgement {
        self.tick();
        let text = format!("dev{dev}: {event:?}");
        match event {
            Event::Completion(handle) => {
                let Some(cq) = self.cqs.get_mut(&(dev, handle)) else {
                    return Ok(());
                };
                if cq.armed.is_none() || cq.fired {
                    return Rule::Event.broken(format!("{text}, but it was not armed"));
                }
                cq.fired = true;
                cq.owes = cq.armed == Some(Arm::Solicited);
                Ok(())
            }
            Event::CqError(handle) => {
                let expected = self.expected(dev, handle);
                let Some(cq) = self.cqs.get_mut(&(dev, handle)) else {
                    return Ok(());
                };
                if u64::from(cq.entries) >= expected && !cq.overrun {
                    return Rule::Event.broken(format!(
                        "{text}: {} entries, and only {expected} completions could come",
                        cq.entries
                    ));
                }
                cq.overrun = true;
                self.lose(dev, handle);
                Ok(())
            }
            Event::QpFatal(qp) => self.qp_event(dev, qp, "fatal error", &text),
            Event::QpRequestError(qp) => self.qp_event(dev, qp, "request error", &text),
            Event::QpAccessError(qp) => self.qp_event(dev, qp, "access error", &text),
            Event::SrqError(srq) => {
                let queue = self.srqs.get(&(dev, srq)).map(|q| &self.queues[*q]);
                if queue.and_then(|q| q.cq).is_some_and(|cq| self.overrun(dev, cq)) {
                    if let Some(queue) = self.srqs.get(&(dev, srq)) {
                        self.queues[*queue].failed = true;
                    }
                    return Ok(());
                }
                Rule::Event.broken(text)
            }
            // Nobody registers on demand here.
            Event::PageFault(_) | Event::Connections => Rule::Event.broken(text),
            Event::SrqLimitReached(srq) => {
                let Some(queue) = self.srqs.get(&(dev, srq)).copied() else {
                    return Ok(());
                };
                let queue = &mut self.queues[queue];
                let Some((limit, _)) = queue.limit.take() else {
                    return Rule::Event.broken(format!("{text}, but it has no limit"));
                };
                let queue = &self.queues[self.srqs[&(dev, srq)]];
                let mut users = queue.users.iter().map(|q| &self.qps[*q]);
                // Of each message it is known that it takes one receive at most, unless it comes twice or from nowhere.
                let counted = self.copies.is_empty()
                    && !self.terms.hostile
                    && users.all(|q| q.init.qp_type != QpType::Ud);
                let left = queue.posted.saturating_sub(queue.messages);
                if counted && left >= u64::from(limit) {
                    return Rule::Event.broken(format!(
                        "{text}: the limit is {limit}, but at least {left} receives are left"
                    ));
                }
                Ok(())
            }
            Event::SendQueueDrained(qp) => {
                let Some(qp) = self.current.get(&(dev, qp)) else {
                    return Ok(());
                };
                if std::mem::take(&mut self.qps[*qp].drain) {
                    Ok(())
                } else {
                    Rule::Event.broken(format!("{text}, but nobody asked"))
                }
            }
            Event::LastWqeReached(qp) => {
                let Some(qp) = self.current.get(&(dev, qp)) else {
                    return Ok(());
                };
                let q = &self.qps[*qp].init;
                if q.srq.is_none() || q.qp_type == QpType::DcTarget {
                    return Rule::Event.broken(format!(
                        "{text}, but it takes no receive from a shared queue by itself"
                    ));
                }
                let qp = &mut self.qps[*qp];
                qp.flushed = true;
                qp.last_wqe += 1;
                match qp.last_wqe {
                    1 => Ok(()),
                    _ => Rule::Event.broken(format!("{text}, and not for the first time")),
                }
            }
            Event::CommunicationEstablished(qp) => {
                let Some(qp) = self.current.get(&(dev, qp)) else {
                    return Ok(());
                };
                let qp = &mut self.qps[*qp];
                qp.established += 1;
                if qp.established > 1 || qp.attributes.state != QpState::Rtr {
                    return Rule::Event.broken(format!(
                        "{text}: time {} in {:?}",
                        qp.established, qp.attributes.state
                    ));
                }
                Ok(())
            }
        }
    }

    fn qp_event(&mut self, dev: usize, qp: QpNumber, why: &str, text: &str) -> Judgement {
        let Some(index) = self.current.get(&(dev, qp)).copied() else {
            return Ok(());
        };
        let connection = self.qps[index].init.qp_type == QpType::DcTarget && why != "fatal error";
        if !connection {
            self.qps[index].reasons.push(format!("asynchronous event: {why}"));
        }
        self.cause_of_event(index, text)
    }

    /// Completions of this queue are lost, and with them the certainty about its users.
    fn lose(&mut self, dev: usize, cq: CqHandle) {
        for qp in self.qps.iter_mut().filter(|q| q.dev == dev) {
            if qp.init.send_cq == Some(cq) || qp.init.recv_cq == Some(cq) {
                qp.lost = true;
                qp.reasons.push(format!("{cq:?} overran"));
            }
        }
        let shared: Vec<usize> = self
            .queues
            .iter()
            .filter(|q| q.dev == dev && q.cq == Some(cq) && q.srq.is_some())
            .flat_map(|q| q.users.clone())
            .collect();
        for qp in shared {
            self.qps[qp].lost = true;
            self.qps[qp].reasons.push(format!("{cq:?} overran"));
        }
    }

    /// Has any completion queue of a device overrun?
    pub fn any_overrun(&self, dev: usize) -> bool {
        self.cqs.iter().any(|((d, _), cq)| *d == dev && cq.overrun)
    }

    /// Has this completion queue overrun?
    pub fn overrun(&self, dev: usize, cq: CqHandle) -> bool {
        self.cqs.get(&(dev, cq)).is_some_and(|c| c.overrun)
    }
}
