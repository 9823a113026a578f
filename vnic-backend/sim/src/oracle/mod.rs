//! The judge of a run. It knows what was posted, what the owners of memory stored and what came back, and it has its own
//! reading of the standard; of the engine it uses nothing but the vocabulary of the verbs. What the network did it
//! knows as numbers only: how often a packet between two devices met trouble, which a status may need as its cause.
//!
//! Six kinds of rules, as in [`Rule`]. A run in which one of them is broken ends with a [`Violation`].

pub mod bytes;
pub mod keys;

mod atomics;
mod causes;
mod dynamic;
mod finish;
mod queues;
mod receives;
mod sends;
mod tally;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use vnic_engine::rdma::{
    AddressVector, AhHandle, Completion, CqHandle, MrHandle, MwHandle, MwType, PdHandle, QpAttributes,
    QpInit, QpNumber, QpState, QpType, Span, SrqHandle,
};
use vnic_wire::MacAddr;
use vnic_wire::gid::Gid;

use crate::memory::{SimMemory, Touch};
use bytes::{Bytes, Right};
use keys::{Keys, Region};

pub use finish::Finish;
pub use queues::{Cq, Queue};
pub use receives::Recv;
pub use sends::Send;
pub use tally::Tally;

/// The oracle's time: it counts what it is told.
pub type Seq = u64;

/// What must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Every posted request completes exactly once, in order, or is flushed.
    Completion,
    /// Every message of a reliable service arrives exactly once and in order, of an unreliable one at most once.
    Delivery,
    /// Bytes arrive as they were sent; atomics form a serial history.
    Integrity,
    /// Nothing is touched that no posted request and no key allows.
    Protection,
    /// Nothing is stuck.
    Progress,
    /// An error has a cause.
    Cause,
    /// Asynchronous and completion events say what happened, and are not missing.
    Event,
    /// Counters add up.
    Counter,
    /// A verb answers as it should.
    Verb,
    /// The engine does not panic.
    Panic,
}

impl Rule {
    /// A broken rule, in words.
    pub(crate) fn broken<T>(self, text: impl Into<String>) -> Judgement<T> {
        Err(Violation {
            rule: self,
            text: text.into(),
        })
    }
}

/// A rule was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub rule: Rule,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.text)
    }
}

impl Violation {
    /// The engine panicked.
    pub(crate) fn panic(panic: &(dyn Any + std::marker::Send)) -> Violation {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Violation {
            rule: Rule::Panic,
            text: text.unwrap_or_default(),
        }
    }
}

/// The answer to each thing the oracle is told, and of each part of a run.
pub type Judgement<T = ()> = Result<T, Violation>;

/// What the oracle has to know about the run as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terms {
    /// ACK timers may be shorter than a round trip: retries need no loss.
    pub tight_timers: bool,
    /// No packet is ever in trouble: even unreliable messages arrive when somebody waits for them.
    pub clean: bool,
    /// Packets that no QP sent are injected.
    pub hostile: bool,
    /// Targets know few dynamic connections at a time: others have to wait for room.
    pub few_connections: bool,
}

/// A queue pair, from `create` or `reset` to the next `reset` or `destroy`.
// Wide: a fact for each question that the rules ask about a queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub dev: usize,
    pub number: QpNumber,
    pub init: QpInit,
    /// It is judged in full. Others are attacked: they only have to be safe.
    pub strict: bool,
    pub attributes: QpAttributes,
    /// What the initiators of dynamic connections have to know.
    pub access_key: u64,
    pub peer: Option<usize>,
    /// Since when it can receive.
    pub ready: Option<Seq>,
    /// It was destroyed or reset.
    pub gone: bool,
    /// A completion queue of it overran: completions are missing.
    pub lost: bool,
    /// Why it may be in error.
    pub reasons: Vec<String>,
    /// An error completed on the send queue: the rest must be flushed.
    pub broken: bool,
    /// When the request whose error broke it was posted.
    pub broken_by: Seq,
    /// When its send queue was told to go on after an error.
    pub resumed: Vec<Seq>,
    /// Something of it was flushed: there must be a reason.
    pub flushed: bool,
    /// Posted and not completed.
    pub sends: std::collections::VecDeque<usize>,
    /// Messages that take a receive at the peer and have not been seen there yet.
    pub undelivered: std::collections::VecDeque<usize>,
    /// Where its receives are.
    pub queue: Option<usize>,
    /// Messages that take a receive which were posted to its peer.
    pub messages: u64,
    /// How often it told that it takes no more from its shared receive queue, and that its peer spoke first.
    pub last_wqe: u32,
    pub established: u32,
    /// It asked to be told when the send queue has drained, and was not yet.
    pub drain: bool,
}

/// A destination of datagrams.
#[derive(Debug, Clone, Copy)]
struct Address {
    vector: AddressVector,
    /// The device with that GID; none: a group.
    dev: Option<usize>,
    /// It was destroyed.
    gone: bool,
}

/// What a device is called.
#[derive(Debug, Default)]
struct Names {
    mac: Option<MacAddr>,
    gids: HashMap<u16, (Gid, Option<u16>)>,
}

/// See the module.
// Wide: a map for each kind of object that the oracle remembers.
#[derive(Debug, Default)]
pub struct Oracle {
    terms: Terms,
    now: Seq,
    memories: Rc<Vec<SimMemory>>,
    bytes: Vec<Bytes>,
    pub(crate) keys: Keys,
    qps: Vec<Qp>,
    current: HashMap<(usize, QpNumber), usize>,
    sends: Vec<Send>,
    recvs: Vec<Recv>,
    /// With the tag that must come back.
    by_id: HashMap<u64, (Work, u32)>,
    queues: Vec<Queue>,
    srqs: HashMap<(usize, SrqHandle), usize>,
    cqs: HashMap<(usize, CqHandle), Cq>,
    addresses: HashMap<(usize, AhHandle), Address>,
    names: Vec<Names>,
    groups: HashMap<(usize, Gid), Vec<QpNumber>>,
    cells: HashMap<(usize, u64), Vec<atomics::Step>>,
    /// Packets lost, damaged, delayed or overtaken, by path.
    trouble: HashMap<(usize, usize), u64>,
    /// Copies made by the network, by path.
    copies: HashMap<(usize, usize), u64>,
    /// RNR NAKs that came, by receiver.
    rnr_naks: HashMap<(usize, QpNumber), u64>,
    /// The world's time, in nanoseconds.
    time: u64,
    /// Retry errors whose cause shows only at the end.
    claims: Vec<causes::Claim>,
    touches: Vec<Touch>,
    /// What was seen.
    pub tally: Tally,
}

/// What a work request's identifier stands for.
#[derive(Debug, Clone, Copy)]
enum Work {
    Send(usize),
    Recv(usize),
}

/// What happened to a packet on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// Lost, damaged, delayed or overtaken.
    Trouble,
    /// So many more of it arrive.
    Copies(u32),
}

impl Oracle {
    /// A judge over devices with these memories.
    pub fn new(terms: Terms, memories: &Rc<Vec<SimMemory>>) -> Oracle {
        Oracle {
            terms,
            memories: Rc::clone(memories),
            bytes: memories.iter().map(|m| Bytes::new(m.len() as usize)).collect(),
            names: memories.iter().map(|_| Names::default()).collect(),
            ..Oracle::default()
        }
    }

    fn tick(&mut self) -> Seq {
        self.now += 1;
        self.now
    }

    // ---- names ------------------------------------------------------------------------------------------

    /// A device's Ethernet address.
    pub fn named(&mut self, dev: usize, mac: MacAddr) {
        self.names[dev].mac = Some(mac);
    }

    /// An entry of a device's GID table, and its VLAN.
    pub fn gid(&mut self, dev: usize, index: u16, gid: Gid, vlan: Option<u16>) {
        self.names[dev].gids.insert(index, (gid, vlan));
    }

    /// An address handle was made.
    pub fn address(&mut self, dev: usize, ah: AhHandle, vector: AddressVector) {
        let owner = self
            .names
            .iter()
            .position(|n| n.gids.values().any(|(g, _)| *g == vector.dgid));
        let address = Address {
            vector,
            dev: owner,
            gone: false,
        };
        self.addresses.insert((dev, ah), address);
    }

    /// A queue pair joined a group. What came before it left may be polled after that, so leaving is not told.
    pub fn joined(&mut self, dev: usize, qp: QpNumber, gid: Gid) {
        self.groups.entry((dev, gid)).or_default().push(qp);
    }

    // ---- keys -------------------------------------------------------------------------------------------

    /// A region was registered, or registered anew under the same handle.
    pub fn registered(&mut self, dev: usize, mr: MrHandle, region: Region) {
        let now = self.tick();
        self.keys.register(now, dev, mr, region);
        self.renew_grants();
    }

    /// A region is gone.
    pub fn deregistered(&mut self, dev: usize, mr: MrHandle) {
        let now = self.tick();
        self.keys.deregister(now, dev, mr);
        self.renew_grants();
    }

    /// A window was allocated.
    pub fn window(&mut self, dev: usize, mw: MwHandle, pd: PdHandle, kind: MwType) {
        self.tick();
        self.keys.add_window(dev, mw, pd, kind);
    }

    /// Takes back what dead keys gave, and gives what new ones allow.
    pub(crate) fn renew_grants(&mut self) {
        let sends = self.sends.iter_mut().flat_map(|s| &mut s.leaves);
        let recvs = self.recvs.iter_mut().flat_map(|r| &mut r.leaves);
        for leave in sends.chain(recvs) {
            leave.renew(&self.keys, &mut self.bytes, self.now);
        }
    }

    /// The owner stored bytes.
    pub fn stored(&mut self, dev: usize, spans: &[Span], bytes: &[u8]) {
        self.bytes[dev].scatter(spans, Some(bytes));
    }

    /// Nobody knows what these bytes will be (cells of atomics).
    pub fn shared(&mut self, dev: usize, spans: &[Span]) {
        self.bytes[dev].scatter(spans, None);
    }

    // ---- queue pairs ------------------------------------------------------------------------------------

    /// A queue pair was created. One that is not `strict` will be attacked.
    pub fn created(&mut self, dev: usize, number: QpNumber, init: &QpInit, strict: bool) {
        self.tick();
        let queue = match init.srq {
            Some(srq) => self.srqs.get(&(dev, srq)).copied(),
            None if matches!(
                init.qp_type,
                QpType::XrcInitiator | QpType::XrcTarget | QpType::DcInitiator
            ) =>
            {
                None
            }
            None => {
                self.queues.push(Queue::new(dev, init.recv_cq, None, init.pd));
                Some(self.queues.len() - 1)
            }
        };
        let failed = |cq: Option<CqHandle>| cq.is_some_and(|cq| self.overrun(dev, cq));
        let lost = failed(init.send_cq) || failed(init.recv_cq);
        let index = self.qps.len();
        self.qps.push(Qp {
            dev,
            number,
            init: *init,
            strict,
            attributes: QpAttributes::default(),
            access_key: 0,
            peer: None,
            ready: None,
            gone: false,
            lost,
            reasons: Vec::new(),
            broken: false,
            broken_by: 0,
            resumed: Vec::new(),
            flushed: false,
            sends: Default::default(),
            undelivered: Default::default(),
            queue,
            messages: 0,
            last_wqe: 0,
            established: 0,
            drain: false,
        });
        if let Some(queue) = queue {
            self.queues[queue].users.push(index);
        }
        if init.qp_type == QpType::XrcTarget {
            let xrc = |q: &&mut Queue| q.dev == dev && q.srq.is_some() && q.cq.is_some();
            for queue in self.queues.iter_mut().filter(xrc) {
                queue.users.push(index);
            }
        }
        self.current.insert((dev, number), index);
    }

    /// Two queue pairs are told of each other.
    pub fn connected(&mut self, a: (usize, QpNumber), b: (usize, QpNumber)) {
        if let (Some(a), Some(b)) = (self.current.get(&a).copied(), self.current.get(&b).copied()) {
            self.qps[a].peer = Some(b);
            self.qps[b].peer = Some(a);
        }
    }

    /// A queue pair's attributes and state were changed.
    pub fn modified(&mut self, dev: usize, number: QpNumber, before: QpState, attributes: &QpAttributes) {
        let now = self.tick();
        let Some(index) = self.current.get(&(dev, number)).copied() else {
            return;
        };
        if attributes.state == QpState::Reset && before != QpState::Reset {
            // What was posted is forgotten; a new life begins.
            let (init, strict, key) = {
                let q = &self.qps[index];
                (q.init, q.strict, q.access_key)
            };
            self.retire(index, "reset");
            self.created(dev, number, &init, strict);
            self.access_key(dev, number, key);
            return;
        }
        let qp = &mut self.qps[index];
        qp.attributes = *attributes;
        match attributes.state {
            QpState::Rtr => qp.ready = qp.ready.or(Some(now)),
            QpState::Err => qp.reasons.push("moved to error by its owner".into()),
            QpState::Sqd if before == QpState::Rts => qp.drain = attributes.drained_event,
            QpState::Rts if before == QpState::Sqe => qp.resumed.push(now),
            _ => {}
        }
        if matches!(attributes.state, QpState::Rts | QpState::Err) {
            qp.drain = false;
        }
    }

    /// A queue pair was destroyed.
    pub fn destroyed(&mut self, dev: usize, number: QpNumber) {
        self.tick();
        if let Some(index) = self.current.remove(&(dev, number)) {
            self.retire(index, "destroyed");
        }
    }

    fn retire(&mut self, index: usize, why: &str) {
        let qp = &mut self.qps[index];
        qp.gone = true;
        qp.reasons.push(why.into());
        let sends: Vec<usize> = qp.sends.iter().copied().collect();
        let (dev, send_cq, recv_cq) = (qp.dev, qp.init.send_cq, qp.init.recv_cq);
        self.ghosts(dev, send_cq, sends.len());
        for send in sends {
            self.unfulfilled(send);
        }
        if self.qps[index].init.qp_type == QpType::DcTarget
            && let Some(queue) = self.qps[index].queue
        {
            // What its connections had begun is flushed.
            self.ghosts(dev, recv_cq, self.queues[queue].open.len());
        }
        if let Some(queue) = self.qps[index].queue.filter(|q| self.queues[*q].srq.is_none()) {
            let open = self.queues[queue].open.clone();
            self.ghosts(dev, recv_cq, open.len());
            for recv in open {
                self.withdraw(recv);
            }
        }
    }

    // ---- the engine at work -----------------------------------------------------------------------------

    /// Looks at what the engine did to a device's memory since the last time.
    pub fn watch(&mut self, dev: usize) -> Judgement {
        let mut touches = std::mem::take(&mut self.touches);
        touches.clear();
        let outside = self.memories[dev].take(&mut touches);
        let mut judgement = Ok(());
        if outside > 0 {
            judgement = Rule::Protection.broken(format!("dev{dev}: an access outside the memory"));
        }
        for touch in &touches {
            if judgement.is_ok() {
                judgement = self.touched(dev, *touch);
            }
        }
        self.touches = touches;
        judgement
    }

    fn touched(&mut self, dev: usize, touch: Touch) -> Judgement {
        let (right, at, len) = match touch {
            Touch::Read { at, len } => (Right::Read, at, len),
            Touch::Write { at, len } => (Right::Write, at, len),
            Touch::Atomic { at, .. } => (Right::Write, at, 8),
        };
        let mut judgement = Ok(());
        if let Some(first) = self.bytes[dev].forbidden(right, at, len) {
            if !(self.terms.hostile && self.keys.open_to_peers(dev, right, at, len)) {
                judgement = Rule::Protection.broken(format!(
                    "dev{dev}: {touch:?}, but nothing allows {right:?} at {first:#x}"
                ));
            } else {
                // An attacker with the right key: what is there now is nobody's business.
                self.bytes[dev].scatter(&[Span { at, len }], None);
            }
        }
        if let Touch::Atomic { at, old, new } = touch {
            let now = self.tick();
            self.cells
                .entry((dev, at))
                .or_default()
                .push(atomics::Step::new(now, old, new));
        }
        judgement
    }

    /// The network did something to a packet.
    pub fn mishap(&mut self, from: usize, to: usize, what: Mishap) {
        match what {
            Mishap::Trouble => *self.trouble.entry((from, to)).or_default() += 1,
            Mishap::Copies(n) => *self.copies.entry((from, to)).or_default() += u64::from(n),
        }
    }

    /// An RNR NAK came to a queue pair.
    pub fn rnr_nak(&mut self, dev: usize, qp: QpNumber) {
        *self.rnr_naks.entry((dev, qp)).or_default() += 1;
    }

    /// It is so late, in nanoseconds.
    pub fn clock(&mut self, now: u64) {
        self.time = now;
    }

    /// Has the network treated all packets of a path alike?
    fn orderly(&self, from: usize, to: usize) -> bool {
        let none = |map: &HashMap<(usize, usize), u64>| map.get(&(from, to)).is_none_or(|n| *n == 0);
        none(&self.trouble) && none(&self.copies)
    }

    /// Packets in trouble between two devices, both ways.
    fn trouble_between(&self, a: usize, b: usize) -> u64 {
        let one = |p| self.trouble.get(&p).copied().unwrap_or(0);
        if a == b {
            one((a, a))
        } else {
            one((a, b)) + one((b, a))
        }
    }

    /// Packets in trouble on the ways of a request.
    fn trouble_of(&self, qp: usize, to: usize) -> u64 {
        let q = &self.qps[qp];
        if q.init.qp_type != QpType::DcInitiator {
            return self.trouble_between(q.dev, self.qps[to].dev);
        }
        // Those before it are for other targets.
        let mine = self
            .trouble
            .iter()
            .filter(|((a, b), _)| *a == q.dev || *b == q.dev);
        mine.map(|(_, n)| n).sum()
    }

    /// A completion was polled.
    pub fn completed(&mut self, dev: usize, cq: CqHandle, c: &Completion) -> Judgement {
        self.tick();
        self.cq_completed(dev, cq, c)?;
        match self.by_id.get(&c.wr_id).copied() {
            Some((_, tag)) if tag != c.tag => Rule::Completion.broken(format!(
                "dev{dev}: {:#x} has the tag {:#x}, not {tag:#x}",
                c.wr_id, c.tag
            )),
            Some((Work::Send(index), _)) => self.send_completed(index, dev, cq, c),
            Some((Work::Recv(index), _)) => self.recv_completed(index, dev, cq, c),
            None => Rule::Completion.broken(format!(
                "dev{dev}: a completion with the unknown identifier {:#x}",
                c.wr_id
            )),
        }
    }

    fn name(&self, qp: usize) -> String {
        let q = &self.qps[qp];
        format!("dev{} {:?} QP {:#x}", q.dev, q.init.qp_type, q.number.0)
    }
}
