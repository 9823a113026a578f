//! The receiving half: what was posted to receive queues, and which message came into it.

use vnic_engine::rdma::{
    Access, Completion, CompletionOp, CqHandle, Origin, QpNumber, QpType, RecvWr, SendOp, Span, SrqHandle,
    Status,
};

use super::bytes::{self, Right};
use super::keys::{Allowed, Ask, Side};
use super::sends::{Fate, Leave, Send};
use super::{Judgement, Oracle, Rule, Seq, Work};

/// Bytes in front of a datagram (IBTA 11.4.2.1).
pub(super) const GRH_LEN: u64 = 40;

/// A posted receive request.
#[derive(Debug)]
pub struct Recv {
    /// Identifier.
    pub id: u64,
    pub(super) queue: usize,
    pub(super) capacity: u64,
    pub(super) posted: Seq,
    pub(super) leaves: Vec<Leave>,
    pub(super) fate: Fate,
}

impl Oracle {
    /// A receive request was accepted by a queue pair.
    pub fn posted_recv(&mut self, dev: usize, number: QpNumber, wr: &RecvWr) {
        if let Some(queue) = self.current.get(&(dev, number)).and_then(|q| self.qps[*q].queue) {
            self.posted_to(queue, number, wr);
        }
    }

    /// A receive request was accepted by a shared receive queue.
    pub fn posted_srq_recv(&mut self, dev: usize, srq: SrqHandle, wr: &RecvWr) {
        if let Some(queue) = self.srqs.get(&(dev, srq)).copied() {
            self.posted_to(queue, QpNumber(0), wr);
        }
    }

    fn posted_to(&mut self, queue: usize, number: QpNumber, wr: &RecvWr) {
        let now = self.tick();
        let q = &self.queues[queue];
        let mut recv = Recv {
            id: wr.id,
            queue,
            capacity: wr.sges.iter().map(|s| u64::from(s.len)).sum(),
            posted: now,
            leaves: Vec::new(),
            fate: Fate::Open,
        };
        if let Some(pd) = q.pd {
            let elements = wr.sges.iter().filter(|s| s.len > 0);
            let asks = elements.map(|s| Ask::local(q.dev, pd, number, s, Access::LOCAL_WRITE));
            recv.leaves = asks.map(|ask| Leave::new(ask, Right::Write)).collect();
        }
        let index = self.recvs.len();
        self.by_id.insert(wr.id, (Work::Recv(index), wr.tag));
        self.queues[queue].open.push(index);
        self.queues[queue].posted += 1;
        for leave in &mut recv.leaves {
            let (allowed, spans) = self.keys.reach(&leave.ask, now, now);
            if allowed != Allowed::Never {
                // What is there until a message comes is of no interest.
                self.bytes[leave.ask.dev].scatter(&spans, None);
            }
        }
        self.recvs.push(recv);
        self.renew_grants();
    }

    /// A receive that will not complete any more, or has: its buffer is the owner's again.
    pub(super) fn withdraw(&mut self, index: usize) {
        let recv = &mut self.recvs[index];
        if recv.fate == Fate::Open {
            recv.fate = Fate::Forgotten;
        }
        for leave in &mut recv.leaves {
            leave.end(&mut self.bytes);
        }
    }

    /// The bytes of a receive's buffer, in order.
    fn buffer(&self, index: usize) -> Vec<Span> {
        let recv = &self.recvs[index];
        recv.leaves
            .iter()
            .flat_map(|l| self.keys.ask(&l.ask, recv.posted, self.now).1)
            .collect()
    }

    /// A completion of a receive.
    pub(super) fn recv_completed(
        &mut self,
        index: usize,
        dev: usize,
        cq: CqHandle,
        c: &Completion,
    ) -> Judgement {
        let queue = self.recvs[index].queue;
        let shared = self.queues[queue].srq.is_some();
        let what = format!("dev{dev} QP {:#x}: receive {:#x}", c.qp.0, c.wr_id);
        if self.recvs[index].fate.is_over(c.status, &what)? {
            self.ghost_came(dev, cq);
            return Ok(());
        }
        let Some(qp) = self.taker(index, queue, c) else {
            return Rule::Completion.broken(format!(
                "{what} completed for a queue pair that does not use this queue"
            ));
        };
        if self.queues[queue].cq.or(self.qps[qp].init.recv_cq) != Some(cq) {
            return Rule::Completion.broken(format!("{what} completed at {cq:?}"));
        }
        let place = self.queues[queue].open.iter().position(|r| *r == index);
        if place != Some(0) && !shared {
            if !self.qps[qp].lost {
                return Rule::Completion.broken(format!(
                    "{what} completed before receives that were posted earlier"
                ));
            }
            let lost: Vec<_> = self.queues[queue].open.drain(..place.unwrap_or(0)).collect();
            for lost in lost {
                self.withdraw(lost);
            }
        }
        self.queues[queue].open.retain(|r| *r != index);
        self.recvs[index].fate = Fate::Done(c.status);
        let op = match c.op {
            CompletionOp::RecvWriteImm => CompletionOp::RecvWriteImm,
            _ => CompletionOp::Recv,
        };
        self.tally.seen(self.qps[qp].init.qp_type, op, c.status);
        let judgement = match c.status {
            Status::Success => self.received(index, qp, c, &what),
            Status::FlushError => {
                self.queues[queue].wasted += 1;
                self.qps[qp].flushed = true;
                Ok(())
            }
            status => {
                self.queues[queue].wasted += 1;
                let judgement = self.cause_of_recv(index, qp, status, &what);
                self.qps[qp]
                    .reasons
                    .push(format!("receive {:#x} completed {status:?}", c.wr_id));
                judgement
            }
        };
        self.withdraw(index);
        judgement
    }

    /// The queue pair that took a receive: there may be several lives of that number, and the first completions to come
    /// are those of the first.
    fn taker(&self, recv: usize, queue: usize, c: &Completion) -> Option<usize> {
        let users = self.queues[queue].users.iter().copied();
        let lives: Vec<usize> = users.filter(|q| self.qps[*q].number == c.qp).collect();
        let fits = |qp: &usize| {
            let due = self.due(recv, *qp);
            due.iter().any(|s| self.compare(*s, recv, c).is_none())
        };
        let fit = lives
            .iter()
            .copied()
            .find(|q| c.status == Status::Success && fits(q));
        fit.or(lives.last().copied())
    }

    /// The messages of its peer that may be in a receive of a connected queue pair now.
    fn due(&self, recv: usize, qp: usize) -> Vec<usize> {
        if self.qps[qp].init.qp_type == QpType::DcTarget {
            // Of each initiator, or of each of its lives.
            let initiators = self.qps.iter();
            return initiators
                .filter_map(|i| i.undelivered.iter().find(|s| self.is_for(&self.sends[**s], qp)))
                .copied()
                .collect();
        }
        let Some(peer) = self.qps[qp].peer else {
            return Vec::new();
        };
        let srq = self.queues[self.recvs[recv].queue].srq;
        let (from, to) = (self.qps[peer].dev, self.qps[qp].dev);
        let undelivered = self.qps[peer].undelivered.iter().copied();
        match self.qps[peer].init.qp_type {
            QpType::Uc if self.orderly(from, to) => undelivered.collect(),
            QpType::Uc => {
                let copies = self.copies.get(&(from, to)).copied().unwrap_or(0);
                (0..self.sends.len())
                    .filter(|s| self.sends[*s].qp == peer && Send::takes_receive(&self.sends[*s].op))
                    .filter(|s| self.sends[*s].delivered.len() as u64 <= copies)
                    .collect()
            }
            QpType::XrcInitiator => undelivered
                .filter(|s| self.sends[*s].srq == srq)
                .take(1)
                .collect(),
            _ => undelivered.take(1).collect(),
        }
    }

    /// A message came.
    fn received(&mut self, index: usize, qp: usize, c: &Completion, what: &str) -> Judgement {
        if !self.qps[qp].strict {
            return Ok(());
        }
        match self.qps[qp].init.qp_type {
            QpType::Rc
            | QpType::XrcTarget
            | QpType::XrcInitiator
            | QpType::DcTarget
            | QpType::DcInitiator => {
                let Some(send) = self.next_message(index, qp, c) else {
                    return Rule::Delivery.broken(format!("{what} {}", self.not_due(index, qp, c)));
                };
                self.delivered(send, index, qp, what)
            }
            QpType::Uc => self.received_unreliable(index, qp, c, what),
            QpType::Ud => self.received_datagram(index, qp, c, what),
            // (No world has any.)
            QpType::RawPacket => Ok(()),
        }
    }

    pub(super) fn describe(&self, send: usize) -> String {
        let s = &self.sends[send];
        format!(
            "{:?} {:#x} of {} bytes from {}",
            s.op,
            s.id,
            s.len,
            self.name(s.qp)
        )
    }

    /// The message of a reliable peer that is in this receive: the next that it has for it, or of several peers one that fits. It is
    /// taken off its list.
    fn next_message(&mut self, recv: usize, qp: usize, c: &Completion) -> Option<usize> {
        let due = self.due(recv, qp);
        let fit = due.iter().filter(|s| self.compare(**s, recv, c).is_none());
        // (What is known of a message tells more.)
        let next = fit.min_by_key(|s| self.sends[**s].data.is_none()).copied()?;
        let from = self.sends[next].qp;
        self.qps[from].undelivered.retain(|s| *s != next);
        Some(next)
    }

    /// Why none of the messages that may be in a receive is.
    fn not_due(&self, recv: usize, qp: usize, c: &Completion) -> String {
        let due = self.due(recv, qp).into_iter();
        let why = due.filter_map(|s| Some(format!("{}: {}", self.describe(s), self.compare(s, recv, c)?)));
        let why: Vec<String> = why.collect();
        match why.is_empty() {
            true => "got a message that nobody sent".into(),
            false => format!("should have got {}", why.join("; or ")),
        }
    }

    /// A message of an unreliable connection. Those before it may be lost. A responder takes up again at any first packet
    /// (IBTA 9.8.2.2), so what the network repeats or holds back comes again or late; else messages are in order.
    fn received_unreliable(&mut self, index: usize, qp: usize, c: &Completion, what: &str) -> Judgement {
        let Some(peer) = self.qps[qp].peer else {
            return Rule::Delivery.broken(format!("{what} got a message without a peer"));
        };
        let orderly = self.orderly(self.qps[peer].dev, self.qps[qp].dev);
        let mut why = String::new();
        let candidates = self.due(index, qp);
        for send in candidates {
            match self.compare(send, index, c) {
                None => {
                    if orderly {
                        let place = self.qps[peer].undelivered.iter().position(|s| *s == send);
                        self.qps[peer].undelivered.drain(..=place.unwrap_or(0));
                    }
                    return self.delivered(send, index, qp, what);
                }
                Some(difference) if why.is_empty() => {
                    why = format!("; not {}: {difference}", self.describe(send));
                }
                Some(_) => {}
            }
        }
        Rule::Delivery.broken(format!(
            "{what} got a message that its peer did not send, or not then{why}"
        ))
    }

    fn received_datagram(&mut self, index: usize, qp: usize, c: &Completion, what: &str) -> Judgement {
        let Origin::Datagram(source) = c.origin else {
            return Rule::Delivery.broken(format!("{what}: a datagram without a source"));
        };
        let to = self.qps[qp].dev;
        let mut why = String::new();
        let mut fits = None;
        for send in 0..self.sends.len() {
            let s = &self.sends[send];
            let q = &self.qps[s.qp];
            if q.number != source.qp || self.names[q.dev].mac != Some(source.mac) || !s.datagram {
                continue;
            }
            if !self.aimed_at(send, qp) {
                continue;
            }
            let from = q.dev;
            let copies = self.copies.get(&(from, to)).copied().unwrap_or(0);
            if s.delivered.iter().filter(|q| **q == qp).count() as u64 > copies {
                continue;
            }
            if q.init.qp_type != QpType::Ud {
                continue;
            }
            let difference = self
                .compare(send, index, c)
                .or_else(|| self.wrong_source(send, index, c));
            match difference {
                // (What is known of a message tells more.)
                None if self.sends[send].data.is_some() => return self.delivered(send, index, qp, what),
                None => fits = fits.or(Some(send)),
                Some(difference) => why = format!("; not {}: {difference}", self.describe(send)),
            }
        }
        if let Some(send) = fits {
            return self.delivered(send, index, qp, what);
        }
        Rule::Delivery.broken(format!(
            "{what} got a datagram of {} bytes from {source:?} that was not sent, or again{why}",
            c.byte_len
        ))
    }

    /// Is this datagram meant for this queue pair?
    pub(super) fn aimed_at(&self, send: usize, qp: usize) -> bool {
        let s = &self.sends[send];
        let target = &self.qps[qp];
        let Some(ud) = s.ud else { return false };
        let Some(address) = self.addresses.get(&(self.qps[s.qp].dev, ud.ah)) else {
            return false;
        };
        // With the top bit set, the sender's own key counts (IBTA 10.2.5).
        let own = self.qps[s.qp].attributes.qkey;
        let qkey = if ud.qkey >> 31 == 1 { own } else { ud.qkey };
        let mut lives = self
            .qps
            .iter()
            .filter(|q| (q.dev, q.number) == (target.dev, target.number));
        if !lives.any(|q| q.attributes.qkey == qkey) {
            return false;
        }
        match address.dev {
            Some(dev) => dev == target.dev && ud.qp == target.number,
            None => self
                .groups
                .get(&(target.dev, address.vector.dgid))
                .is_some_and(|g| g.contains(&target.number)),
        }
    }

    /// What the completion and the 40 bytes in front say of the sender, if it is wrong.
    fn wrong_source(&mut self, send: usize, recv: usize, c: &Completion) -> Option<String> {
        let s = &self.sends[send];
        let from = self.qps[s.qp].dev;
        let vector = self.addresses.get(&(from, s.ud?.ah))?.vector;
        let (gid, vlan) = self.names[from].gids.get(&vector.sgid_index).copied()?;
        let Origin::Datagram(source) = c.origin else {
            return None;
        };
        if source.vlan != vlan || vlan.is_some() && source.service_level != vector.service_level {
            return Some(format!("source {source:?}, but VLAN {vlan:?} {vector:?}"));
        }
        let dev = self.qps[self.queues[self.recvs[recv].queue].users[0]].dev;
        let grh = bytes::read(
            &self.memories[dev],
            &super::keys::slice(&self.buffer(recv), 0, GRH_LEN),
        );
        let (from_at, to_at) = match (gid.to_ipv4(), vector.dgid.to_ipv4()) {
            (Some(source), Some(destination)) => (
                grh.get(32..36) == Some(&source),
                grh.get(36..40) == Some(&destination),
            ),
            _ => (
                grh.get(8..24) == Some(&gid.0),
                grh.get(24..40) == Some(&vector.dgid.0),
            ),
        };
        if !(from_at && to_at) {
            return Some(format!("GRH {grh:02x?} instead of {gid} to {}", vector.dgid));
        }
        None
    }

    /// How a completion and its buffer differ from a message, if they do.
    fn compare(&self, send: usize, recv: usize, c: &Completion) -> Option<String> {
        let s = &self.sends[send];
        let (op, imm, invalidated) = match s.op {
            SendOp::Send => (CompletionOp::Recv, None, None),
            SendOp::SendImm(imm) => (CompletionOp::Recv, Some(imm), None),
            SendOp::SendInvalidate(key) => (CompletionOp::Recv, None, Some(key)),
            SendOp::WriteImm { imm, .. } => (CompletionOp::RecvWriteImm, Some(imm), None),
            _ => return Some("takes no receive".into()),
        };
        let front = if s.datagram { GRH_LEN } else { 0 };
        let found = (c.op, c.imm, c.invalidated, u64::from(c.byte_len), c.solicited);
        let expected = (op, imm, invalidated, s.len + front, s.solicited);
        if found != expected {
            return Some(format!(
                "(operation, immediate, invalidated, length, solicited) {found:?} instead of {expected:?}"
            ));
        }
        if s.len + front > self.recvs[recv].capacity && op == CompletionOp::Recv {
            return Some(format!("the buffer has {} bytes only", self.recvs[recv].capacity));
        }
        let data = s.data.as_ref()?;
        let (dev, spans) = match op {
            CompletionOp::Recv => {
                let spans = self.buffer(recv);
                (self.queues[self.recvs[recv].queue].dev, spans)
            }
            _ => {
                let target = s.leaves.iter().find(|l| l.ask.side == Side::Remote)?;
                let spans = self.keys.ask(&target.ask, s.posted, self.now).1;
                // The sender may have used the place again since it heard that it was done.
                if s.fate != Fate::Open || !self.bytes[target.ask.dev].alone(&spans) {
                    return None;
                }
                (target.ask.dev, spans.to_vec())
            }
        };
        let found = bytes::read(&self.memories[dev], &super::keys::slice(&spans, front, s.len));
        bytes::difference(data, &found).map(|at| {
            format!(
                "byte {at} of {} is {:#04x?} instead of {:#04x?}",
                data.len(),
                found.get(at),
                data.get(at)
            )
        })
    }

    /// This message is in this buffer.
    fn delivered(&mut self, send: usize, recv: usize, qp: usize, what: &str) -> Judgement {
        self.sends[send].delivered.push(qp);
        if self.sends[send].posted > self.now {
            return Rule::Delivery.broken(format!("{what} got a message of the future"));
        }
        let s = &self.sends[send];
        let front = if s.datagram { GRH_LEN } else { 0 };
        let dev = self.queues[self.recvs[recv].queue].dev;
        if !matches!(s.op, SendOp::WriteImm { .. }) {
            let all = self.buffer(recv);
            let message = super::keys::slice(&all, front, s.len);
            let data = s.data.clone();
            // Behind the message, nothing was written; what the GRH leaves undefined may be anything.
            self.bytes[dev].scatter(&message, data.as_deref());
        } else if !self.qps[s.qp].init.qp_type.reliable()
            && let Some(target) = s.leaves.iter().find(|l| l.ask.side == Side::Remote)
        {
            let (allowed, spans) = self.keys.ask(&target.ask, s.posted, self.now);
            if allowed != Allowed::Never {
                let data = s.data.clone();
                self.bytes[target.ask.dev].scatter(&spans, data.as_deref());
            }
        }
        if let SendOp::SendInvalidate(key) = self.sends[send].op {
            self.keys.invalidate(self.now, dev, key, true);
            self.renew_grants();
        }
        Ok(())
    }

    /// Could this message go wrong at its receiver for want of room?
    pub(super) fn may_overflow(&self, send: &Send) -> bool {
        let front = if send.datagram { GRH_LEN } else { 0 };
        let Some(queue) = send.queue else { return false };
        if matches!(send.op, SendOp::WriteImm { .. }) {
            return false;
        }
        // Receives that may have been there when it came.
        self.recvs
            .iter()
            .any(|r| r.queue == queue && r.capacity < send.len + front)
    }
}
