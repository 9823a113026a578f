//! RoCE that a guest runs in software over its Ethernet function: the congestion control of a card's own queue pairs, done on
//! the guest's behalf.
//!
//! ```text
//!  from the network ─▶ mark? ─ whose queue pair sent it? ─▶ NotificationPoint ─▶ notification to its sender
//!         │
//!         └─ notification, acknowledge ─ which flow? ─▶ Algorithm ─▶ rate
//!                                                                       │
//!  from the guest ─▶ a limited flow? ─ its frames wait here ────────────┴──▶ at its rate, all others at once
//! ```
//!
//! An algorithm that wants telemetry (HPCC) gets it behind the guest's packets, which stay as they are (`proxy/links.rs`).
//!
//! Frames are given by their first bytes. `pairs.rs` learns the facts that only the other direction shows; unknown ones are
//! counted, never guessed. Guests and their peers may send whatever they like: memory is bounded, the oldest entry is
//! forgotten, and the time of searches is bounded, too.
//!
//! `F` is what the caller keeps of a frame that waits.

mod asked;
mod flow;
mod links;
mod pairs;
mod recent;
mod seen;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::Error;
use vnic_wire::cnp;
use vnic_wire::gid::Gid;
use vnic_wire::int::Telemetry;
use vnic_wire::opcode::{Operation, Transport};
use vnic_wire::roce::{Ecn, Path, build};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};
use vnic_wire::vlan::Tci;

use super::notification::{Cnp, CnpPriority, Key, NotificationPoint};
use super::{Algorithm, Limits, Notification, Start, State, none};
use crate::rdma::Congestion;
use asked::Request;
use flow::{Flow, QueuedFrame};
use links::Links;
use pairs::{End, Pairs, Side};
use recent::Recent;
pub use seen::{SEEN, Seen};

/// Most flows that are limited at once; further ones are not limited.
pub const FLOWS: usize = 1024;
/// Memory for waiting frames of one flow: more than a connection of Soft-RoCE has in flight (128 packets of 4 KiB).
pub const FLOW_MAX: u64 = 1 << 20;
/// Memory for waiting frames of all flows of a guest.
pub const ALL_MAX: u64 = 4 << 20;
/// Most notifications that wait to be sent.
const CNPS: usize = 256;
/// Speed of a link without a configured one, in bit/s.
const LINE_RATE: u64 = 100_000_000_000;
/// Payload of a full packet of a flow that has sent none yet, and the size of that packet on the wire.
const PACKET: (u32, u32) = (1024, 1024 + 82);

/// Counts since the last call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Packets that came with a mark.
    pub marked: u32,
    /// Marked packets whose sender could not be notified: its queue pair is not known.
    pub unknown: u32,
    /// Notifications that left, the guest's own included.
    pub notified: u32,
    /// Notifications that came and slowed a flow down.
    pub handled: u32,
    /// Notifications that came and slowed nothing down.
    pub ignored: u32,
}

/// Fate of a frame of the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The frame passes.
    Passes,
    /// The frame has to wait: give it to [`Proxy::hold`].
    Waits(FlowId),
}

/// A flow that is limited, until the next call that lets time pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowId(u32);

/// Why there is no room for a frame that would have to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The flow's frames take all of the flow's memory.
    Flow,
    /// The frames of all flows take all of the memory: there will be room again.
    All,
}

/// A flow of the guest's that is limited now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowStatus {
    /// The guest's address.
    pub own: Gid,
    /// The peer's address.
    pub peer: Gid,
    /// The peer's queue pair.
    pub qp: u32,
    /// Priority of the frames.
    pub priority: u8,
    /// Limits of the flow.
    pub limits: Limits,
    /// State of the flow's algorithm.
    pub state: State,
    /// Notifications that the flow has handled.
    pub notifications: u64,
    /// Frames that wait.
    pub waiting: u32,
}

/// A notification to be sent in the guest's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notice {
    path: Path,
    qp: u32,
    period: u32,
    /// Priority of the notification.
    pub priority: u8,
}

impl Notice {
    /// Writes the frame, which replaces the content of `out`.
    pub fn build(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut headers = Headers::cnp(self.qp);
        headers.extended = Extended::Cnp(cnp::Header { period: self.period });
        build(&self.path, &headers, &[], out)
    }
}

/// Destination of a notification, and the priority of the marked packet.
#[derive(Debug, Clone, Copy)]
struct Mark {
    path: Path,
    qp: u32,
    priority: u8,
}

/// Telemetry that a request to a queue pair of the guest's brought.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    telemetry: Telemetry,
    /// When the request came.
    came: Instant,
    /// Whether an acknowledge is to give it back.
    due: bool,
    /// Whether the sender of the last request wants telemetry: responses gather some.
    wanted: bool,
}

/// Key of a flow: addresses of guest and peer, the peer's queue pair.
type FlowKey = (Gid, Gid, u32);

/// The proxy of one guest. Time never goes back between calls.
#[derive(Debug)]
pub struct Proxy<F> {
    congestion: Congestion,
    acts: bool,
    pairs: Pairs,
    point: NotificationPoint<Mark>,
    ready: VecDeque<Notice>,
    flows: Recent<FlowKey, Flow<F>>,
    /// Flows with frames that wait, by the time of their next look.
    waiting: BTreeSet<(Instant, u32)>,
    held: u64,
    counts: Counts,
    /// Telemetry that requests to the guest's queue pairs brought.
    gathered: Recent<End, Gathered>,
}

impl<F> Proxy<F> {
    /// A proxy that has seen nothing. `acts`: it notifies and limits; otherwise it only counts.
    pub fn new(congestion: Congestion, acts: bool) -> Proxy<F> {
        Proxy {
            point: NotificationPoint::new(congestion.point),
            congestion,
            acts,
            pairs: Pairs::default(),
            ready: VecDeque::new(),
            flows: Recent::new(FLOWS),
            waiting: BTreeSet::new(),
            held: 0,
            counts: Counts::default(),
            gathered: Recent::new(FLOWS),
        }
    }

    /// Changes the settings: flows begin again at the rate that they have. If the proxy does not act any more, frames that wait
    /// may go at once.
    pub fn configure(&mut self, now: Instant, congestion: Congestion, acts: bool) {
        self.point.set(congestion.point);
        self.congestion = congestion;
        self.acts = acts;
        if !acts {
            self.ready.clear();
            self.gathered = Recent::new(FLOWS);
            self.point = NotificationPoint::new(self.congestion.point);
        }
        let keys: Vec<_> = self
            .flows
            .iter()
            .map(|(key, f)| (*key, f.queue.is_empty()))
            .collect();
        for (key, empty) in keys {
            let acts = self.reacts(self.flows.get(&key).map_or(0, |f| f.priority));
            if empty && !acts {
                self.flows.remove(&key);
                continue;
            }
            let start = self.start(key);
            let (control, slack) = (&self.congestion.control, self.congestion.slack);
            let links = Links::new(acts && control.needs().telemetry);
            let Some(flow) = self.flows.get_mut(&key) else {
                continue;
            };
            flow.advance(now);
            let rate = flow.algorithm.limits().rate;
            let algorithm: Box<dyn Algorithm> = if acts {
                let rate = Some(rate.min(start.line_rate));
                control.start(now, &Start { rate, ..start })
            } else {
                Box::new(none::None)
            };
            flow.replace(now, algorithm, links, slack);
            self.list(now, key);
        }
    }

    /// Whether the proxy notifies and limits.
    pub fn acts(&self) -> bool {
        self.acts
    }

    /// Counts since the last call.
    pub fn take_counts(&mut self) -> Counts {
        core::mem::take(&mut self.counts)
    }

    /// Whether flows of this priority are slowed down.
    fn reacts(&self, priority: u8) -> bool {
        self.acts && self.congestion.reaction >> (priority & 7) & 1 != 0
    }

    /// Whether it is acknowledges that slow them down, from the first packet on.
    fn hears_acks(&self) -> bool {
        self.congestion.control.needs().from_start
    }

    fn start(&self, (own, peer, qp): FlowKey) -> Start {
        let end = End {
            own,
            peer,
            side: Side::Peer,
            qp,
        };
        let largest = self.pairs.get(&end).map(|k| k.largest);
        let (mtu, wire) = largest.filter(|l| l.0 > 0).unwrap_or(PACKET);
        let line_rate = match self.congestion.line_rate {
            0 => LINE_RATE,
            rate => rate,
        };
        Start {
            line_rate,
            mtu,
            wire,
            rate: None,
        }
    }

    /// A flow that begins to be limited.
    fn begun(&self, now: Instant, key: FlowKey, priority: u8) -> Flow<F> {
        let control = &self.congestion.control;
        let algorithm = control.start(now, &self.start(key));
        let links = Links::new(control.needs().telemetry);
        Flow::new(now, algorithm, links, priority, self.congestion.slack)
    }

    /// A frame is about to reach the guest.
    pub fn received(&mut self, now: Instant, priority: u8, seen: &Seen) {
        let (own, peer) = (seen.destination(), seen.source());
        let end = End {
            own,
            peer,
            side: Side::Own,
            qp: seen.qp(),
        };
        if seen.is_cnp() {
            match self.slow_down(now, end, seen) {
                true => self.counts.handled += 1,
                false => self.counts.ignored += 1,
            }
            return;
        }
        let marked = seen.ecn() == Ecn::Ce;
        self.counts.marked += u32::from(marked);
        if !self.acts {
            return;
        }
        self.learn(now, end, priority, seen, 0);
        if seen.is_request() {
            self.gather(now, end, seen);
        } else if seen.acknowledges() || seen.is_read_response() {
            self.answered(now, end, seen);
        }
        if marked && self.congestion.notification >> (priority & 7) & 1 != 0 && seen.is_unicast() {
            self.notify(now, end, priority, seen);
        }
    }

    /// A request for a queue pair of the guest's is about to reach it: keeps the telemetry that it brings.
    fn gather(&mut self, now: Instant, end: End, seen: &Seen) {
        match (seen.gathered(), self.gathered.get_mut(&end)) {
            (Some(telemetry), _) => {
                let gathered = Gathered {
                    telemetry,
                    came: now,
                    due: true,
                    wanted: true,
                };
                self.gathered.insert(end, gathered, |_| true);
            }
            (None, Some(before)) => before.wanted = false,
            (None, None) => {}
        }
    }

    /// An acknowledge, or a response to a READ, for a queue pair of the guest's is about to reach it: its flow hears of it. (The ICRC of a
    /// response protects its payload, which nobody here has read: who would forge one could write the ICRC, too.)
    fn answered(&mut self, now: Instant, end: End, seen: &Seen) {
        let hears_acks = self.hears_acks();
        let Some(qp) = self.pairs.get(&end).and_then(|k| k.mate) else {
            return;
        };
        let key = (end.own, end.peer, qp);
        let Some(flow) = self.flows.get_mut(&key) else {
            return;
        };
        let heard = match seen.is_read_response() {
            true if !hears_acks => None,
            true => flow
                .asked
                .responded(now, seen.psn(), seen.payload, seen.ends_message()),
            false => flow.asked.acknowledged(now, seen.psn()),
        };
        if let Some(heard) = heard {
            flow.heard(now, heard, seen.tells_mark(), seen.telemetry.as_ref());
            flow.advance(now);
            self.list(now, key);
        }
    }

    /// Learns which queue pairs talk to each other.
    fn learn(&mut self, now: Instant, end: End, priority: u8, seen: &Seen, wire: u32) {
        let Some(operation) = seen.operation() else { return };
        if seen.transport() != Transport::Ud {
            // The first packet of a READ response of several has the request's number.
            if operation.is_request() {
                self.pairs.request(end, seen.psn());
            } else if !operation.is_read_response() || operation.starts_message() {
                self.pairs.answer(now, end, seen.psn());
            }
        }
        if end.side == Side::Peer
            && let Some(known) = self.pairs.seen(end)
        {
            known.priority = priority;
            if seen.payload > known.largest.0 {
                known.largest = (seen.payload, wire);
            }
        }
    }

    /// Notifies the sender of a marked packet, if its priority is one that is notified.
    fn notify(&mut self, now: Instant, end: End, priority: u8, seen: &Seen) {
        let qp = match seen.source_qp() {
            Some(qp) => self.pairs.talks(end.own, end.peer).then_some(qp),
            None => self.pairs.get(&end).and_then(|k| k.mate),
        };
        let Some(qp) = qp else {
            self.counts.unknown += 1;
            return;
        };
        let theirs = End {
            side: Side::Peer,
            qp,
            ..end
        };
        if self.pairs.get(&theirs).is_some_and(|k| k.notified) {
            return;
        }
        let path = seen.back();
        let key = Key {
            qp,
            peer: end.peer,
            mac: path.eth.destination,
            own: end.own,
        };
        let mark = Mark { path, qp, priority };
        if let Some(cnp) = self.point.marked(now, key, mark) {
            self.send(cnp);
        }
    }

    fn send(&mut self, cnp: Cnp<Mark>) {
        if self.ready.len() >= CNPS {
            return;
        }
        let settings = self.point.settings();
        let Mark {
            mut path,
            qp,
            priority,
        } = cnp.to;
        let priority = 7 & match settings.priority {
            CnpPriority::Fixed(fixed) => fixed,
            CnpPriority::Copied => priority,
        };
        if let Some(tag) = &mut path.vlan {
            tag.tci = Tci::new(priority, false, tag.tci.vid());
        }
        path.network
            .set_traffic_class(settings.dscp << 2 | settings.ecn & 3);
        let period = cnp
            .period
            .map_or(0, |p| u32::try_from(p.as_micros()).unwrap_or(u32::MAX));
        self.ready.push_back(Notice {
            path,
            qp,
            period,
            priority,
        });
    }

    /// Handles a notification for a queue pair of the guest's. True: it has slowed its flow down.
    fn slow_down(&mut self, now: Instant, end: End, seen: &Seen) -> bool {
        if !self.acts || !seen.is_intact() {
            return false;
        }
        let Some(qp) = self.pairs.get(&end).and_then(|k| k.mate) else {
            return false;
        };
        let theirs = End {
            side: Side::Peer,
            qp,
            ..end
        };
        let Some(priority) = self.pairs.get(&theirs).map(|k| k.priority) else {
            return false;
        };
        if !self.reacts(priority) {
            return false;
        }
        let key = (end.own, end.peer, qp);
        if self.flows.touch(&key).is_none() {
            let flow = self.begun(now, key, priority);
            if !self.flows.insert(key, flow, |f| f.queue.is_empty()) {
                return false;
            }
        }
        let period = match seen.period() {
            0 => None,
            us => Some(Duration::from_micros(us.into())),
        };
        let hears_acks = self.hears_acks();
        let Some(flow) = self.flows.get_mut(&key) else {
            return false;
        };
        flow.advance(now);
        if hears_acks {
            return false;
        }
        flow.notifications += 1;
        flow.algorithm.on_notification(now, &Notification { period });
        flow.advance(now);
        if flow.algorithm.is_released() && flow.queue.is_empty() {
            self.flows.remove(&key);
            return false;
        }
        self.list(now, key);
        true
    }

    /// A frame of the guest's is about to be sent, of `wire` bytes on the wire. A second call for the same frame gives the same
    /// answer.
    pub fn sending(&mut self, now: Instant, priority: u8, seen: &Seen, wire: u32) -> Fate {
        let (own, peer, qp) = (seen.source(), seen.destination(), seen.qp());
        let end = End {
            own,
            peer,
            side: Side::Peer,
            qp,
        };
        let key = (own, peer, qp);
        if self.acts {
            if seen.is_cnp() {
                if let Some(known) = self.pairs.seen(end) {
                    known.notified = true;
                }
                return Fate::Passes;
            }
            self.learn(now, end, priority, seen, wire);
        }
        let Some(operation) = seen.operation() else {
            return Fate::Passes;
        };
        if self.hears_acks()
            && self.flows.get(&key).is_none()
            && operation.is_request()
            && seen.transport() == Transport::Rc
            && self.reacts(priority)
        {
            let flow = self.begun(now, key, priority);
            self.flows.insert(key, flow, |f| f.queue.is_empty());
        }
        let Some(flow) = self.flows.touch(&key) else {
            return Fate::Passes;
        };
        if flow.queue.is_empty() {
            flow.advance(now);
            if flow.algorithm.is_released() {
                self.flows.remove(&key);
                return Fate::Passes;
            }
            if !flow.links.limits() && !flow.links.asks() {
                return Fate::Passes;
            }
        }
        // An acknowledge is no load; but it must not overtake the answers to earlier requests.
        if operation.is_response() && !operation.is_read_response() && flow.responses == 0 {
            return Fate::Passes;
        }
        flow.priority = priority;
        match self.flows.place(&key) {
            Some(place) => Fate::Waits(FlowId(place)),
            None => Fate::Passes,
        }
    }

    /// Whether a frame of the guest's shall say that its sender reacts to marks (ECT): it does so here, and does not say so
    /// itself.
    pub fn vouches(&self, priority: u8, seen: &Seen) -> bool {
        let marks_count = !self.hears_acks() && self.reacts(priority);
        seen.ecn() == Ecn::NotEct && seen.transport() == Transport::Rc && marks_count
    }

    /// The trailer that a frame of the guest's shall have behind its packet. `flow`: the one whose turn it waits for.
    ///
    /// Requests of a flow whose algorithm wants telemetry gather some, and so do responses to READs of a peer that wants it. An acknowledge
    /// gives back what requests to its sender have gathered since the last one, and says how long the guest had the newest of them.
    pub fn trailer(&mut self, now: Instant, flow: Option<FlowId>, seen: &Seen) -> Option<Telemetry> {
        if seen.is_request() {
            let (_, flow) = self.flows.at(flow?.0)?;
            return flow.links.asks().then_some(Telemetry::EMPTY);
        }
        if self.gathered.len() == 0 {
            return None;
        }
        let end = End {
            own: seen.source(),
            peer: seen.destination(),
            side: Side::Peer,
            qp: seen.qp(),
        };
        let qp = self.pairs.get(&end)?.mate?;
        let own = End {
            side: Side::Own,
            qp,
            ..end
        };
        let gathered = self.gathered.get_mut(&own)?;
        if seen.is_read_response() {
            return gathered.wanted.then_some(Telemetry::EMPTY);
        }
        if seen.operation() != Some(Operation::Acknowledge) || !core::mem::take(&mut gathered.due) {
            return None;
        }
        let endpoint = u32::try_from(now.since(gathered.came).as_nanos()).unwrap_or(u32::MAX);
        Some(Telemetry {
            endpoint,
            ..gathered.telemetry
        })
    }

    /// Whether there is room for a frame that takes `cost` bytes of memory.
    pub fn room(&self, id: FlowId, cost: u32) -> Result<(), Full> {
        let cost = u64::from(cost);
        let Some((_, flow)) = self.flows.at(id.0) else {
            return Err(Full::Flow);
        };
        if flow.cost + cost > FLOW_MAX {
            Err(Full::Flow)
        } else if self.held + cost > ALL_MAX {
            Err(Full::All)
        } else {
            Ok(())
        }
    }

    /// After [`Full::All`]: whether there is room again, for more than one frame.
    pub fn takes_more(&self) -> bool {
        self.held <= ALL_MAX / 2
    }

    /// Makes a frame wait for its flow's turn. `cost`: memory that it takes. Without [`room`](Proxy::room) the frame comes
    /// back. Of a READ that waits already no copy is kept.
    pub fn hold(
        &mut self,
        now: Instant,
        id: FlowId,
        seen: &Seen,
        wire: u32,
        cost: u32,
        frame: F,
    ) -> Result<(), F> {
        if self.room(id, cost).is_err() {
            return Err(frame);
        }
        let Some((key, _)) = self.flows.at(id.0) else {
            return Err(frame);
        };
        let key = *key;
        // Nobody else limits the responses that it asks for. (Notifications reach their sender.)
        let reads = if self.hears_acks() { seen.reads() } else { 0 };
        let responses = match reads {
            0 => 0,
            _ => {
                let Start { mtu, wire, .. } = self.start(key);
                let headers = wire.saturating_sub(mtu);
                u64::from(reads) + u64::from(reads.div_ceil(mtu.max(1))) * u64::from(headers)
            }
        };
        let Some(flow) = self.flows.at_mut(id.0) else {
            return Err(frame);
        };
        if reads > 0 && flow.holds_read(seen.psn()) {
            return Ok(());
        }
        let payload = seen.payload.saturating_add(reads);
        flow.push(QueuedFrame {
            frame,
            wire: u64::from(wire) + responses,
            cost,
            payload,
            response: seen.operation().is_some_and(|o| o.is_response()),
            request: seen.is_request().then(|| Request {
                psn: seen.psn(),
                bytes: payload,
                asks: seen.asks(),
                read: reads > 0,
            }),
        });
        self.held += u64::from(cost);
        if flow.due.is_none() {
            self.list(now, key);
        }
        Ok(())
    }

    /// Recomputes when a flow is looked at.
    fn list(&mut self, now: Instant, key: FlowKey) {
        let Some(place) = self.flows.place(&key) else {
            return;
        };
        self.list_at(now, place);
    }

    fn list_at(&mut self, now: Instant, place: u32) {
        let Some(flow) = self.flows.at_mut(place) else {
            return;
        };
        if let Some(before) = flow.due.take() {
            self.waiting.remove(&(before, place));
        }
        if flow.queue.is_empty() {
            return;
        }
        flow.advance(now);
        let due = flow.opens(now);
        flow.due = Some(due);
        self.waiting.insert((due, place));
    }

    /// The flow whose first frame goes next, and that frame. `open`: priorities that may send, a bit each.
    pub fn front(&mut self, now: Instant, open: u8) -> Option<(FlowId, u8, &F)> {
        let mut found = None;
        let mut after = None;
        loop {
            use core::ops::Bound::{Excluded, Unbounded};
            let from = after.map_or(Unbounded, Excluded);
            let Some(&(due, place)) = self.waiting.range((from, Unbounded)).next() else {
                break;
            };
            if due > now {
                break;
            }
            after = Some((due, place));
            let Some((_, flow)) = self.flows.at(place) else {
                continue;
            };
            if open >> (flow.priority & 7) & 1 == 0 {
                continue;
            }
            // Perhaps only its rate has changed.
            self.list_at(now, place);
            let ready = |f: &Flow<F>| f.due.is_some_and(|at| at <= now);
            if self.flows.at(place).is_some_and(|(_, f)| ready(f)) {
                found = Some(place);
                break;
            }
        }
        let (_, flow) = self.flows.at(found?)?;
        let held = flow.queue.front()?;
        Some((FlowId(found?), flow.priority, &held.frame))
    }

    /// Takes the first frame of a flow, which is sent.
    pub fn take(&mut self, now: Instant, id: FlowId) -> Option<F> {
        let flow = self.flows.at_mut(id.0)?;
        let held = flow.pop(now)?;
        self.held -= u64::from(held.cost);
        self.list_at(now, id.0);
        Some(held.frame)
    }

    /// Takes a notification that is to be sent now; call it until there is none. `open`: priorities that may send, a bit each;
    /// notifications of others wait.
    pub fn poll_notice(&mut self, now: Instant, open: u8) -> Option<Notice> {
        while self.ready.len() < CNPS
            && let Some(cnp) = self.point.due(now)
        {
            self.send(cnp);
        }
        let first = self.ready.iter().position(|n| open >> n.priority & 1 != 0)?;
        let notice = self.ready.remove(first)?;
        self.counts.notified += 1;
        Some(notice)
    }

    /// Priorities with a frame or notification that waits for nothing but its priority, a bit each.
    pub fn ready(&self, now: Instant) -> u8 {
        let due = self.waiting.iter().take_while(|(at, _)| *at <= now);
        let flows = due.filter_map(|(_, place)| Some(self.flows.at(*place)?.1.priority));
        let notices = self.ready.iter().map(|n| n.priority);
        flows.chain(notices).fold(0, |all, p| all | 1 << (p & 7))
    }

    /// When the next frame or notification will be ready.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        let later = self.waiting.range((Instant(now.0.saturating_add(1)), 0)..).next();
        let flow = later.map(|(at, _)| *at);
        flow.into_iter().chain(self.point.next_time()).min()
    }

    /// Whether nothing waits: no frame, no notification, no time.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty() && self.point.next_time().is_none()
    }

    /// Queue pairs and limited flows that the proxy remembers.
    pub fn remembered(&self) -> (usize, usize) {
        (self.pairs.len(), self.flows.len())
    }

    /// Frames that wait.
    pub fn len(&self) -> usize {
        self.flows.iter().map(|(_, f)| f.queue.len()).sum()
    }

    /// Whether no frame waits.
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Flows that are limited.
    pub fn flows(&mut self, now: Instant) -> Vec<FlowStatus> {
        let keys: Vec<_> = self.flows.iter().map(|(key, _)| *key).collect();
        let mut all = Vec::new();
        for key in keys {
            let Some(flow) = self.flows.get_mut(&key) else {
                continue;
            };
            flow.advance(now);
            if flow.algorithm.is_released() && flow.queue.is_empty() {
                self.flows.remove(&key);
                continue;
            }
            let (own, peer, qp) = key;
            all.push(FlowStatus {
                own,
                peer,
                qp,
                priority: flow.priority,
                limits: flow.limits(),
                state: flow.algorithm.state(),
                notifications: flow.notifications,
                waiting: flow.queue.len() as u32,
            });
        }
        all
    }
}
