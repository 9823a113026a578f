//! The sending half: what was posted to send queues, and what came of it.

use vnic_engine::rdma::{
    Access, Completion, CompletionOp, CqHandle, MwBind, PdHandle, QpNumber, QpType, SendData, SendFlags,
    SendOp, SendWr, Sge, SrqHandle, Status, UdDestination,
};

use super::bytes::{self, Bytes, Grant, Right};
use super::keys::{Allowed, Ask, Keys, Side};
use super::{Judgement, Oracle, Rule, Seq, Work};

/// Leave that a request gives, or would give if its key allowed it.
#[derive(Debug)]
pub struct Leave {
    /// The question to the keys.
    pub ask: Ask,
    /// For what.
    pub right: Right,
    /// Given.
    pub grant: Option<Grant>,
    /// The request is complete.
    pub over: bool,
}

impl Leave {
    pub(super) fn new(ask: Ask, right: Right) -> Leave {
        Leave {
            ask,
            right,
            grant: None,
            over: false,
        }
    }

    /// Takes back what a dead key gave, and gives what a new one allows.
    pub(super) fn renew(&mut self, keys: &Keys, bytes: &mut [Bytes], now: Seq) {
        let (allowed, spans) = keys.reach(&self.ask, now, now);
        match (&self.grant, allowed != Allowed::Never && !self.over) {
            (Some(_), false) => self.take_back(bytes),
            (None, true) => {
                let grant = Grant {
                    dev: self.ask.dev,
                    right: self.right,
                    spans: spans.to_vec(),
                };
                bytes[grant.dev].grant(grant.right, &grant.spans);
                self.grant = Some(grant);
            }
            _ => {}
        }
    }

    fn take_back(&mut self, bytes: &mut [Bytes]) {
        if let Some(grant) = self.grant.take() {
            bytes[grant.dev].revoke(grant.right, &grant.spans);
        }
    }

    /// Its request is complete.
    pub(super) fn end(&mut self, bytes: &mut [Bytes]) {
        self.over = true;
        self.take_back(bytes);
    }
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nothing yet.
    Open,
    /// It completed, or one behind it did.
    Done(Status),
    /// Its queue pair is gone.
    Forgotten,
}

impl Fate {
    /// A completion came. True: of a queue pair that is gone; what was in the completion queue before may still be polled.
    pub(super) fn is_over(&mut self, status: Status, what: &str) -> Judgement<bool> {
        match *self {
            Fate::Open => Ok(false),
            Fate::Forgotten => {
                *self = Fate::Done(status);
                Ok(true)
            }
            Fate::Done(before) => {
                Rule::Completion.broken(format!("{what} completed twice: {before:?}, then {status:?}"))
            }
        }
    }
}

/// A posted send request.
// Wide: the record of a request as it was posted, which the rules compare with its completion.
#[derive(Debug)]
pub struct Send {
    /// Identifier.
    pub id: u64,
    pub(super) qp: usize,
    pub(super) op: SendOp,
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) len: u64,
    pub(super) local: Vec<Sge>,
    /// What it carries, or for READ what it must bring; none: not known.
    pub(super) data: Option<Vec<u8>>,
    pub(super) posted: Seq,
    pub(super) leaves: Vec<Leave>,
    /// The receive queue that it takes a receive from.
    pub(super) queue: Option<usize>,
    /// Receives there and messages for it when this one was posted.
    pub(super) receives_before: u64,
    pub(super) messages_before: u64,
    pub(super) trouble_before: u64,
    pub(super) rnr_naks_before: u64,
    /// When it was posted, in nanoseconds.
    pub(super) time: u64,
    pub(super) srq: Option<SrqHandle>,
    pub(super) ud: Option<UdDestination>,
    pub(super) datagram: bool,
    /// Whom it is for, if that is one queue pair.
    pub(super) to: Option<usize>,
    /// The key that it shows to a target of dynamic connections.
    pub(super) access_key: u64,
    pub(super) fate: Fate,
    /// Queue pairs that have reported it.
    pub(super) delivered: Vec<usize>,
}

impl Send {
    /// Does it take a receive at the peer?
    pub(super) fn takes_receive(op: &SendOp) -> bool {
        matches!(
            op,
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) | SendOp::WriteImm { .. }
        )
    }

    /// Remote address, key and the right that is needed there.
    pub(super) fn remote(&self) -> Option<(u64, u32, Access)> {
        match self.op {
            SendOp::Write { addr, rkey } | SendOp::WriteImm { addr, rkey, .. } => {
                Some((addr, rkey, Access::REMOTE_WRITE))
            }
            SendOp::Read { addr, rkey } => Some((addr, rkey, Access::REMOTE_READ)),
            SendOp::CompareSwap { addr, rkey, .. } | SendOp::FetchAdd { addr, rkey, .. } => {
                Some((addr, rkey, Access::REMOTE_ATOMIC))
            }
            _ => None,
        }
    }

    /// Does it bring data home?
    pub(super) fn brings(&self) -> bool {
        matches!(
            self.op,
            SendOp::Read { .. } | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
        )
    }

    fn atomic(&self) -> bool {
        matches!(self.op, SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. })
    }

    /// The operation that its completion must name.
    fn completion_op(&self) -> CompletionOp {
        match self.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => CompletionOp::Send,
            SendOp::Write { .. } | SendOp::WriteImm { .. } => CompletionOp::Write,
            SendOp::Read { .. } => CompletionOp::Read,
            SendOp::CompareSwap { .. } => CompletionOp::CompareSwap,
            SendOp::FetchAdd { .. } => CompletionOp::FetchAdd,
            SendOp::BindMw(_) => CompletionOp::BindMw,
            SendOp::LocalInvalidate(_) => CompletionOp::LocalInvalidate,
        }
    }
}

impl Oracle {
    /// A send request was accepted.
    pub fn posted_send(&mut self, dev: usize, number: QpNumber, wr: &SendWr) {
        self.tick();
        let Some(qp) = self.current.get(&(dev, number)).copied() else {
            return;
        };
        let inline = match &wr.data {
            SendData::Sges(_) => None,
            SendData::Inline(bytes) => Some(bytes.to_vec()),
        };
        let mut send = self.blank(qp, wr);
        let index = self.sends.len();
        self.leaves_for(&mut send);
        let (known, remote) = self.look(&send, inline);
        send.data = known;
        if !self.qps[qp].broken {
            self.foresee(&send, remote);
        }
        self.bind_posted(&send);
        if Send::takes_receive(&send.op) {
            self.address_message(&mut send, index);
        }
        self.sends.push(send);
        self.qps[qp].sends.push_back(index);
        self.by_id.insert(wr.id, (Work::Send(index), wr.tag));
        for leave in &mut self.sends[index].leaves {
            leave.renew(&self.keys, &mut self.bytes, self.now);
        }
    }

    /// A request as it was posted, without what follows from that.
    fn blank(&self, qp: usize, wr: &SendWr) -> Send {
        let (local, inline) = match &wr.data {
            SendData::Sges(sges) => (sges.to_vec(), None),
            SendData::Inline(bytes) => (Vec::new(), Some(bytes.len() as u64)),
        };
        let sum = local.iter().map(|s| u64::from(s.len)).sum();
        let len = inline.unwrap_or(sum);
        let q = &self.qps[qp];
        let (dev, now) = (q.dev, self.now);
        let to = match q.init.qp_type {
            QpType::DcInitiator => self.target_of(qp, wr),
            _ => q.peer,
        };
        // What is held back of those before it concerns this one, too.
        let first = q.sends.front().map(|f| self.sends[*f].trouble_before);
        let now_between = to.map_or(0, |to| self.trouble_of(qp, to));
        let trouble_before = first.unwrap_or(now_between);
        Send {
            id: wr.id,
            qp,
            op: wr.op,
            signaled: q.init.signal_all || wr.flags.contains(SendFlags::SIGNALED),
            solicited: wr.flags.contains(SendFlags::SOLICITED),
            len,
            local,
            data: None,
            posted: now,
            leaves: Vec::new(),
            queue: None,
            receives_before: 0,
            messages_before: 0,
            trouble_before,
            rnr_naks_before: self.rnr_naks.get(&(dev, q.number)).copied().unwrap_or(0),
            time: self.time,
            srq: (q.init.qp_type == QpType::XrcInitiator).then_some(SrqHandle(wr.remote_srq)),
            ud: wr.ud,
            datagram: q.init.qp_type == QpType::Ud,
            to,
            access_key: wr.access_key,
            fate: Fate::Open,
            delivered: Vec::new(),
        }
    }

    /// What a request may touch.
    fn leaves_for(&self, send: &mut Send) {
        let q = &self.qps[send.qp];
        let (right, need) = if send.brings() {
            (Right::Write, Access::LOCAL_WRITE)
        } else {
            (Right::Read, Access::empty())
        };
        let Some(pd) = q.init.pd else { return };
        for sge in send.local.iter().filter(|s| s.len > 0) {
            let ask = Ask::local(q.dev, pd, q.number, sge, need);
            send.leaves.push(Leave::new(ask, right));
        }
        if let Some(ask) = self.remote_ask(send) {
            let right = match send.op {
                SendOp::Read { .. } => Right::Read,
                _ => Right::Write,
            };
            send.leaves.push(Leave::new(ask, right));
        }
    }

    /// What a request asks of its peer's keys, if it asks for any bytes there.
    pub(super) fn remote_ask(&self, send: &Send) -> Option<Ask> {
        let (addr, key, need) = send.remote()?;
        let len = if send.atomic() { 8 } else { send.len };
        let peer = &self.qps[send.to?];
        let pd = peer.init.pd.or_else(|| {
            // An extended reliable connection's target has the domain of the SRQ's.
            let srq = self.srqs.get(&(peer.dev, send.srq?))?;
            self.queues[*srq].pd
        })?;
        (len > 0).then_some(Ask {
            dev: peer.dev,
            pd,
            qp: peer.number,
            side: Side::Remote,
            key,
            addr,
            len,
            need,
        })
    }

    /// What it carries or must bring, and whether its remote side is allowed now.
    fn look(&self, send: &Send, inline: Option<Vec<u8>>) -> (Option<Vec<u8>>, Allowed) {
        let now = self.now;
        let mut remote = Allowed::Always;
        let mut bytes = inline;
        let mut local = Allowed::Always;
        if bytes.is_none() {
            let mut all = Some(Vec::new());
            for leave in &send.leaves {
                let (allowed, spans) = self.keys.ask(&leave.ask, now, now);
                let part = (allowed == Allowed::Always)
                    .then(|| self.bytes[leave.ask.dev].gather(&spans))
                    .flatten();
                let mine = match send.op {
                    SendOp::Read { .. } => leave.ask.side == Side::Remote,
                    _ => leave.ask.side == Side::Local,
                };
                match leave.ask.side {
                    Side::Local => local = local.min(allowed),
                    Side::Remote => remote = remote.min(allowed),
                }
                if mine {
                    all = all.zip(part).map(|(mut a, p)| {
                        a.extend(p);
                        a
                    });
                }
            }
            bytes = all;
        } else if let Some(ask) = self.remote_ask(send) {
            remote = self.keys.ask(&ask, now, now).0;
        }
        let carried = if send.atomic() { None } else { bytes };
        (carried.filter(|_| local == Allowed::Always), remote)
    }

    /// What memory will hold when the request has been carried out.
    fn foresee(&mut self, send: &Send, remote: Allowed) {
        let now = self.now;
        let mut from = send.data.as_deref();
        // Datagrams and unreliable writes may be lost: nobody knows.
        let q = &self.qps[send.qp];
        let served = !self.key_may_be_wrong(send) && !self.is_unreachable(send);
        let sure = remote == Allowed::Always && q.init.qp_type.reliable() && q.strict && served;
        for leave in send.leaves.iter().filter(|l| l.right == Right::Write) {
            let (allowed, spans) = self.keys.reach(&leave.ask, now, now);
            if allowed == Allowed::Never {
                continue;
            }
            let sure = sure && allowed == Allowed::Always;
            let n = leave.ask.len as usize;
            let part = from.and_then(|f| f.get(..n));
            from = from.and_then(|f| f.get(n..));
            self.bytes[leave.ask.dev].scatter(&spans, part.filter(|_| sure && !send.atomic()));
        }
    }

    fn bind_posted(&mut self, send: &Send) {
        let (dev, number) = (self.qps[send.qp].dev, self.qps[send.qp].number);
        match send.op {
            SendOp::BindMw(b) => {
                let range = (b.addr, b.len);
                self.keys
                    .bind(self.now, dev, number, b.mw, b.rkey, b.mr, range, b.access)
            }
            SendOp::LocalInvalidate(key) => self.keys.invalidate(self.now, dev, key, false),
            SendOp::SendInvalidate(key) => {
                if let Some(peer) = send.to {
                    self.keys.invalidate(self.now, self.qps[peer].dev, key, false);
                }
            }
            _ => {}
        }
    }

    /// Notes where a message goes and what awaits it there.
    fn address_message(&mut self, send: &mut Send, index: usize) {
        let qp = send.qp;
        self.qps[qp].undelivered.push_back(index);
        self.qps[qp].messages += 1;
        let queue = match (send.srq, send.to) {
            (Some(srq), Some(peer)) => self.srqs.get(&(self.qps[peer].dev, srq)).copied(),
            (None, Some(peer)) => self.qps[peer].queue,
            _ if self.qps[qp].init.qp_type == QpType::DcInitiator => None,
            _ => self.datagram_queue(send),
        };
        send.queue = queue;
        if let Some(queue) = queue {
            let q = &mut self.queues[queue];
            send.receives_before = q.posted;
            send.messages_before = q.messages;
            q.messages += 1;
        }
    }

    fn datagram_queue(&self, send: &Send) -> Option<usize> {
        let ud = send.ud?;
        let dev = self.addresses.get(&(self.qps[send.qp].dev, ud.ah))?.dev?;
        self.qps[*self.current.get(&(dev, ud.qp))?].queue
    }

    /// A completion of a send queue.
    pub(super) fn send_completed(
        &mut self,
        index: usize,
        dev: usize,
        cq: CqHandle,
        c: &Completion,
    ) -> Judgement {
        let qp = self.sends[index].qp;
        let who = self.name(qp);
        let op = self.sends[index].op;
        let what = format!("{who}: {op:?} {:#x}", c.wr_id);
        let q = &self.qps[qp];
        if q.dev != dev || q.number != c.qp || q.init.send_cq != Some(cq) {
            return Rule::Completion.broken(format!("{what} completed at dev{dev} {cq:?} for {:?}", c.qp));
        }
        if self.sends[index].fate.is_over(c.status, &what)? {
            self.ghost_came(dev, cq);
            return Ok(());
        }
        self.resume_for(index);
        // Those before it have completed without being seen.
        while let Some(first) = self.qps[qp].sends.pop_front() {
            if first == index {
                break;
            }
            let skipped = &self.sends[first];
            if skipped.signaled || self.qps[qp].broken {
                if self.qps[qp].lost {
                    self.unfulfilled(first);
                    continue;
                }
                return Rule::Completion.broken(format!(
                    "{what} completed {:?} before {:?} {:#x}",
                    c.status, skipped.op, skipped.id
                ));
            }
            self.fulfilled(first, None)?;
        }
        self.tally.seen(
            self.qps[qp].init.qp_type,
            self.sends[index].completion_op(),
            c.status,
        );
        match c.status {
            Status::Success => {
                if self.qps[qp].broken {
                    return Rule::Completion.broken(format!("{what} succeeded behind an error"));
                }
                if !self.sends[index].signaled {
                    return Rule::Completion.broken(format!("{what} was not signaled but completed"));
                }
                self.fulfilled(index, Some(c))
            }
            Status::FlushError => {
                self.qps[qp].flushed = true;
                self.failed(index, c.status);
                self.break_by(index);
                Ok(())
            }
            status => {
                if self.qps[qp].broken && self.qps[qp].strict {
                    return Rule::Completion.broken(format!(
                        "{what} completed {status:?} behind an error instead of being flushed"
                    ));
                }
                self.failed(index, status);
                self.break_by(index);
                self.qps[qp]
                    .reasons
                    .push(format!("{op:?} {:#x} completed {status:?}", c.wr_id));
                self.cause_of_send(index, status)
            }
        }
    }

    fn break_by(&mut self, index: usize) {
        let send = &self.sends[index];
        let qp = &mut self.qps[send.qp];
        qp.broken = true;
        qp.broken_by = send.posted;
    }

    /// A request that was posted after its send queue was told to go on is not concerned by errors before that.
    fn resume_for(&mut self, index: usize) {
        let posted = self.sends[index].posted;
        let qp = &mut self.qps[self.sends[index].qp];
        if qp.resumed.iter().any(|r| qp.broken_by < *r && *r <= posted) {
            qp.broken = false;
        }
    }

    /// Is it carried out without a packet?
    pub fn is_local(wr: &SendWr) -> bool {
        matches!(
            wr.op,
            SendOp::BindMw(_) | SendOp::LocalInvalidate(_) | SendOp::SendInvalidate(_)
        )
    }

    /// Would a request be allowed now? Its own side, and the peer's.
    pub fn preview(&self, dev: usize, number: QpNumber, wr: &SendWr) -> (Allowed, Allowed) {
        let Some(qp) = self.current.get(&(dev, number)).copied() else {
            return (Allowed::Never, Allowed::Never);
        };
        let mut send = self.blank(qp, wr);
        self.leaves_for(&mut send);
        let least = |side| {
            let all = send.leaves.iter().filter(|l| l.ask.side == side);
            all.map(|l| match l.right {
                Right::Write => self.keys.reach(&l.ask, self.now, self.now).0,
                Right::Read => self.keys.ask(&l.ask, self.now, self.now).0,
            })
            .min()
        };
        (
            least(Side::Local).unwrap_or(Allowed::Always),
            least(Side::Remote).unwrap_or(Allowed::Always),
        )
    }

    /// Are those elements of a receive that were changed of no use?
    pub fn forbids(&self, dev: usize, pd: PdHandle, right: &[Sge], wrong: &[Sge]) -> bool {
        let changed = wrong.iter().filter(|s| !right.contains(s) && s.len > 0);
        changed.into_iter().all(|s| {
            let ask = Ask::local(dev, pd, QpNumber(0), s, Access::LOCAL_WRITE);
            self.keys.reach(&ask, self.now, self.now).0 == Allowed::Never
        })
    }

    /// The leaves of a request end.
    fn end_leaves(&mut self, index: usize, which: impl Fn(&Leave) -> bool) {
        for leave in self.sends[index].leaves.iter_mut().filter(|l| which(l)) {
            leave.end(&mut self.bytes);
        }
    }

    /// It was carried out.
    fn fulfilled(&mut self, index: usize, c: Option<&Completion>) -> Judgement {
        let qp = self.sends[index].qp;
        let reliable = self.qps[qp].init.qp_type.reliable();
        self.sends[index].fate = Fate::Done(Status::Success);
        self.end_bind(index);
        if self.qps[qp].strict {
            let what = format!(
                "{}: {:?} {:#x}",
                self.name(qp),
                self.sends[index].op,
                self.sends[index].id
            );
            self.check_success(index, c, &what)?;
            if reliable {
                self.check_bytes(index, c, &what)?;
            }
        }
        // A peer may answer a READ again and again while its key lives; a WRITE or atomic must not be repeated. What an
        // unreliable service has sent is still on its way.
        let keep = !reliable || !self.qps[qp].strict;
        self.end_leaves(index, |l| {
            l.ask.side == Side::Local || (l.right == Right::Write && !keep)
        });
        Ok(())
    }

    fn check_success(&mut self, index: usize, c: Option<&Completion>, what: &str) -> Judgement {
        let send = &self.sends[index];
        if let Some(c) = c {
            if c.op != send.completion_op() {
                return Rule::Completion.broken(format!("{what} completed as {:?}", c.op));
            }
            self.may_be_served(send, what)?;
            let brought = if send.atomic() { 8 } else { send.len };
            if send.brings() && u64::from(c.byte_len) != brought {
                return Rule::Completion.broken(format!("{what} of {brought} bytes reports {}", c.byte_len));
            }
        }
        for leave in &send.leaves {
            // An unreliable sender never hears of the other side.
            if leave.ask.side == Side::Remote && !self.qps[send.qp].init.qp_type.reliable() {
                continue;
            }
            if self.keys.ask(&leave.ask, send.posted, self.now).0 == Allowed::Never {
                return Rule::Protection
                    .broken(format!("{what} succeeded although {:?} is forbidden", leave.ask));
            }
        }
        Ok(())
    }

    /// Bytes where a reliable request put them.
    fn check_bytes(&mut self, index: usize, c: Option<&Completion>, what: &str) -> Judgement {
        if self.sends[index].atomic() {
            return self.check_atomic(index, what);
        }
        let send = &self.sends[index];
        let Some(data) = &send.data else { return Ok(()) };
        let targets: Vec<_> = send
            .leaves
            .iter()
            .filter(|l| l.right == Right::Write)
            .filter_map(|l| l.grant.as_ref())
            .collect();
        if targets.is_empty() {
            return Ok(());
        }
        // Another request may have written there since.
        if !targets.iter().all(|g| self.bytes[g.dev].alone(&g.spans)) {
            return Ok(());
        }
        let found: Vec<u8> = targets
            .iter()
            .flat_map(|g| bytes::read(&self.memories[g.dev], &g.spans))
            .collect();
        if found.len() == data.len()
            && let Some(at) = bytes::difference(data, &found)
        {
            return Rule::Integrity.broken(format!(
                "{what}: byte {at} of {} is {:#04x} instead of {:#04x}{}",
                data.len(),
                found[at],
                data[at],
                if c.is_none() { " (unsignaled)" } else { "" }
            ));
        }
        Ok(())
    }

    /// It was not carried out, or not wholly.
    pub(super) fn failed(&mut self, index: usize, status: Status) {
        self.sends[index].fate = Fate::Done(status);
        self.unknown_targets(index);
        self.end_leaves(index, |l| l.ask.side == Side::Local);
    }

    /// Its queue pair is gone.
    pub(super) fn unfulfilled(&mut self, index: usize) {
        self.sends[index].fate = Fate::Forgotten;
        self.unknown_targets(index);
        self.end_leaves(index, |l| l.ask.side == Side::Local);
    }

    fn unknown_targets(&mut self, index: usize) {
        let send = &self.sends[index];
        for leave in send.leaves.iter().filter(|l| l.right == Right::Write) {
            // Also where the key has died since: it may have been used before.
            let (allowed, spans) = self.keys.reach(&leave.ask, send.posted, self.now);
            if allowed != Allowed::Never {
                self.bytes[leave.ask.dev].scatter(&spans, None);
            }
        }
    }

    /// A bind or an invalidation was carried out.
    fn end_bind(&mut self, index: usize) {
        let (dev, op) = (self.qps[self.sends[index].qp].dev, self.sends[index].op);
        match op {
            SendOp::BindMw(MwBind { mw, rkey, .. }) => self.keys.bound(self.now, dev, mw, rkey),
            SendOp::LocalInvalidate(key) => self.keys.invalidate(self.now, dev, key, true),
            _ => return,
        }
        self.renew_grants();
    }
}
