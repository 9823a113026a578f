//! A plan in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use fastrand::Rng;
use vnic_fabric::fault::{Facts, Faults};
use vnic_fabric::network::{Link, Network};
use vnic_fabric::qos::{Colour, Entry, Lifetimes, StallNews, WIRE_OVERHEAD};
use vnic_fabric::{DropReason, Instant, PortId};
use vnic_wire::MacAddr;
use vnic_wire::pause::{self, FRAME_LEN};

use super::oracle::Oracle;
use super::plan::{Control, Flow, GUEST, Kind, Plan, WIRE, time};
use super::port::{Frame, Port};
use super::{Mark, Outcome};
use crate::oracle::{Judgement, Rule};

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A guest sends.
    Send(usize),
    /// A port has something to do.
    Wake(usize),
    /// A port obeys a pause frame that came before.
    Obey(usize, [u8; FRAME_LEN]),
    /// The attacker sends pause.
    Attack(usize),
}

/// What a link carries.
#[derive(Debug, Clone)]
enum Item {
    Frame(Frame),
    Pause([u8; FRAME_LEN]),
}

/// See the module.
pub struct World<'a> {
    plan: &'a Plan,
    ports: Vec<Port>,
    /// First port of each node.
    first: Vec<usize>,
    network: Network<Item>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    numbers: u64,
    now: Instant,
    /// Frames that each flow has sent; all, for those that are left out.
    sent: Vec<u32>,
    /// Flows whose guest is told to wait.
    waiting: Vec<bool>,
    oracle: Oracle,
    outcome: Outcome,
    /// When something was delivered or dropped last.
    moved: Instant,
    /// Longest time without that while something was under way.
    longest: Duration,
    verbose: bool,
    /// Which pause frames are lost.
    rng: Rng,
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, without: &BTreeSet<usize>, verbose: bool) -> World<'a> {
        let mut first = Vec::new();
        let mut count = 0;
        for node in &plan.nodes {
            first.push(count);
            count += node.len();
        }
        let mut network = Network::new(Faults::new(plan.seed));
        let mut ports = Vec::new();
        for (node, list) in plan.nodes.iter().enumerate() {
            for peer in list {
                let rate = if peer.is_none() { plan.takes[node] } else { 0 };
                let peer = peer.map(|(n, p)| first[n] + p);
                if let Some(peer) = peer {
                    let link = Link {
                        latency: plan.latency,
                        bits_per_second: Some(plan.rate),
                    };
                    network.set_link(id(ports.len()), id(peer), link);
                }
                ports.push(Port::new(node, peer, plan.port_qos(rate), list.len()));
            }
        }
        let mut world = World {
            plan,
            ports,
            first,
            network,
            events: BinaryHeap::new(),
            numbers: 0,
            now: Instant(0),
            sent: plan.flows.iter().map(|_| 0).collect(),
            waiting: vec![false; plan.flows.len()],
            oracle: Oracle::new(plan),
            outcome: Outcome::default(),
            moved: Instant(0),
            longest: Duration::ZERO,
            verbose,
            rng: Rng::with_seed(plan.seed),
        };
        for (i, flow) in plan.flows.iter().enumerate() {
            if without.contains(&i) {
                world.sent[i] = flow.frames;
            } else {
                world.at(flow.start, Event::Send(i));
            }
        }
        for stall in &plan.stalls {
            let port = world.first[stall.host] + GUEST;
            world.at(stall.from, Event::Wake(port));
            world.at(stall.until, Event::Wake(port));
        }
        if let Some(host) = plan.attacker {
            world.at(Instant(500_000), Event::Attack(host));
        }
        world
    }

    /// Runs it to its end.
    pub fn run(&mut self) -> Outcome {
        if let Err(v) = self.run_judged() {
            self.outcome.violation = Some(v);
        }
        self.outcome.time = self.now;
        self.outcome.clone()
    }

    /// When all frames of a flow had arrived or were dropped; `None`: not yet.
    pub fn done_at(&self, flow: usize) -> Option<Instant> {
        let done = self.sent[flow] == self.plan.flows[flow].frames && self.oracle.under_way(flow) == 0;
        done.then(|| self.oracle.last(flow))
    }

    fn run_judged(&mut self) -> Judgement {
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let Some(next) = [event, self.network.next_time()].into_iter().flatten().min() else {
                break;
            };
            if next > self.plan.horizon || self.is_done() {
                break;
            }
            self.now = next;
            while let Some(arrival) = self.network.pop(self.now) {
                let port = usize::from(arrival.to.0);
                match arrival.item {
                    Item::Frame(frame) => self.enters(port, frame)?,
                    Item::Pause(bytes) => self.at(self.now + self.plan.response, Event::Obey(port, bytes)),
                }
            }
            while let Some(Reverse((at, _, event))) = self.events.peek().copied() {
                if at > self.now {
                    break;
                }
                self.events.pop();
                self.happens(event)?;
            }
        }
        self.judge_end()
    }

    /// Has everything been sent and found its end?
    fn is_done(&self) -> bool {
        (0..self.sent.len()).all(|f| self.done_at(f).is_some())
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((at, self.numbers, event)));
    }

    fn happens(&mut self, event: Event) -> Judgement {
        match event {
            Event::Send(flow) => self.send(flow),
            Event::Wake(port) => {
                if self.ports[port].wakes_at == Some(self.now) {
                    self.ports[port].wakes_at = None;
                }
                self.serve(port)
            }
            Event::Obey(at, bytes) => {
                let port = &mut self.ports[at];
                // What cannot be read is not obeyed; an attacker sends such, too.
                if let Ok(frame) = pause::Frame::parse(&bytes) {
                    port.obeys.frame(self.now, &frame, port.qos.pause, self.plan.rate);
                }
                self.serve(at)
            }
            Event::Attack(host) => {
                self.attack(host);
                Ok(())
            }
        }
    }

    /// A guest sends its next frame, unless it is told to wait.
    fn send(&mut self, flow: usize) -> Judgement {
        let f = &self.plan.flows[flow];
        let guest = self.first[f.from] + GUEST;
        if self.sent[flow] == f.frames {
            return Ok(());
        }
        if self.ports[guest].stops() & 1 << f.priority != 0 {
            self.waiting[flow] = true;
            self.outcome.mark(Mark::GuestWaits);
            return Ok(());
        }
        let number = self.sent[flow];
        self.sent[flow] += 1;
        self.outcome.sent += 1;
        self.oracle.sent(flow);
        self.at(self.now + f.gap(), Event::Send(flow));
        let frame = Frame { flow, number, hop: 0 };
        self.enters(guest, frame)
    }

    /// Pause of all kinds, for everything, for ever.
    fn attack(&mut self, host: usize) {
        let wire = self.first[host] + WIRE;
        let all = pause::Frame::Priorities {
            enabled: 0xff,
            quanta: [0xffff; 8],
        };
        let some = pause::Frame::Priorities {
            enabled: 1 << (self.numbers % 8),
            // Longer than to the next frame: a peer that lets one through now and then is slow, not stalled.
            quanta: [64; 8],
        };
        for frame in [all, pause::Frame::Global(0xffff), some, all] {
            self.put(wire, Item::Pause(frame.emit(mac(wire))), FRAME_LEN as u32);
        }
        let quantum = time(64, self.plan.rate);
        self.at(self.now + quantum * 0x4000, Event::Attack(host));
    }

    /// A frame came into a node by this port.
    fn enters(&mut self, source: usize, mut frame: Frame) -> Judgement {
        let flow = &self.plan.flows[frame.flow];
        let node = self.ports[source].node;
        let tells = &mut self.ports[source].tells;
        tells.heard(self.now, 1 << flow.priority);
        if tells.next_time() == Some(self.now) {
            self.at(self.now, Event::Wake(source));
        }
        let out = self.first[node] + flow.path[frame.hop];
        frame.hop += 1;
        let entry = Entry {
            source: source as u16,
            priority: flow.priority,
            level: flow.priority,
            colour: Colour::Green,
            wire: flow.wire(),
            bytes: flow.len,
            since: self.now,
        };
        let closed = self.closed(out);
        let port = &mut self.ports[out];
        if port.busy_until <= self.now
            && port.tells.next_time().is_none_or(|t| t > self.now)
            && !self.stands_still(out)
            && self.ports[out]
                .egress
                .pass(self.now, entry.priority, entry.wire, closed)
        {
            return self.leaves(out, frame, flow);
        }
        let port = &mut self.ports[out];
        match port.buffers.admit(entry.source, entry.priority, entry.bytes) {
            Ok(()) => port.egress.push(entry, frame),
            Err(reason) => self.drops(out, frame, reason)?,
        }
        let port = &self.ports[out];
        let waits: u64 = port.egress.bytes().iter().sum();
        if port.buffers.used() != waits || waits > port.most() {
            return Rule::Counter.broken(format!(
                "port {out}: {waits} bytes wait, {} counted, at most {}",
                port.buffers.used(),
                port.most()
            ));
        }
        self.serve(out)
    }

    /// Priorities that may not leave by a port, a bit each.
    fn closed(&mut self, port: usize) -> u8 {
        if self.stands_still(port) {
            return self.plan.lossless();
        }
        self.ports[port].obeys.paused(self.now)
    }

    /// Does the guest behind this port take nothing?
    fn stands_still(&self, port: usize) -> bool {
        let p = &self.ports[port];
        let stalls = self
            .plan
            .stalls
            .iter()
            .filter(|s| s.host == p.node && s.from <= self.now && self.now < s.until);
        p.peer.is_none() && stalls.count() != 0
    }

    /// Whatever a port can do now.
    fn serve(&mut self, at: usize) -> Judgement {
        self.expire(at)?;
        loop {
            let closed = self.closed(at);
            let still = self.stands_still(at);
            let (now, rate) = (self.now, self.plan.rate);
            let port = &mut self.ports[at];
            if port.busy_until > now {
                break;
            }
            if port.peer.is_some()
                && let Some(frame) = port.tells.poll(now, port.qos.pause, rate)
            {
                self.says(at, &frame);
                continue;
            }
            let Some(pick) = port.egress.next(now, closed) else {
                break;
            };
            let Some((entry, frame)) = port.egress.take(now, pick) else {
                break;
            };
            port.buffers.release(entry.source, entry.priority, entry.bytes);
            if still {
                self.drops(at, frame, DropReason::NoRxBuffer)?;
            } else {
                self.leaves(at, frame, &self.plan.flows[frame.flow])?;
            }
        }
        self.guard(at);
        while let Some(change) = self.ports[at].buffers.poll_change() {
            self.tell(at, usize::from(change.source), change.xoff);
        }
        let closed = self.closed(at);
        let port = &mut self.ports[at];
        if let Some(next) = port.next_time(self.now, closed)
            && port.wakes_at.is_none_or(|t| next < t)
        {
            port.wakes_at = Some(next);
            self.at(next, Event::Wake(at));
        }
        Ok(())
    }

    /// What has waited too long is dropped.
    fn expire(&mut self, at: usize) -> Judgement {
        let lives: Lifetimes = self.ports[at].qos.lifetimes;
        for class in (0..8).filter(|c| lives.enable & 1 << c != 0) {
            loop {
                let port = &mut self.ports[at];
                let Some((pick, entry)) = port.egress.oldest(class) else {
                    break;
                };
                let Some(reason) = port.lifetime.judge(self.now, lives, class, entry.since) else {
                    break;
                };
                let Some((entry, frame)) = port.egress.discard(pick) else {
                    break;
                };
                port.buffers.release(entry.source, entry.priority, entry.bytes);
                self.drops(at, frame, reason)?;
            }
        }
        Ok(())
    }

    /// Storm prevention looks.
    fn guard(&mut self, at: usize) {
        let port = &mut self.ports[at];
        let mut moved = std::mem::take(&mut port.moved);
        while let Some(news) = port.guard.observe(
            self.now,
            port.qos.guard,
            port.buffers.pausing(),
            std::mem::take(&mut moved),
        ) {
            port.buffers.set_silent(port.guard.is_tripped());
            port.tripped |= port.guard.is_tripped();
            self.outcome.mark(match news {
                StallNews::Minor => Mark::Minor,
                StallNews::Critical => Mark::Critical,
                StallNews::Recovered => Mark::Recovered,
            });
            if self.verbose {
                println!("{:>12} port {at}: {news:?}", self.now.0);
            }
        }
    }

    /// Port `out` tells what comes in by `source` to wait or to go on.
    fn tell(&mut self, out: usize, source: usize, xoff: u8) {
        let now = self.now;
        let port = &mut self.ports[source];
        let before = port.stops();
        port.told.insert(out, xoff);
        let after = port.stops();
        if before == after {
            return;
        }
        if before & !after != 0 {
            self.outcome.mark(Mark::Xon);
        }
        if self.verbose {
            println!(
                "{:>12} port {source} is told {after:#04x} instead of {before:#04x}",
                now.0
            );
        }
        if port.peer.is_some() {
            port.tells.set(after);
            self.at(now, Event::Wake(source));
            return;
        }
        let node = port.node;
        for flow in 0..self.plan.flows.len() {
            let f = &self.plan.flows[flow];
            if f.from == node && self.waiting[flow] && after & 1 << f.priority == 0 {
                self.waiting[flow] = false;
                self.at(now, Event::Send(flow));
            }
        }
    }

    /// A pause frame goes out.
    fn says(&mut self, at: usize, frame: &pause::Frame) {
        self.outcome.pauses += 1;
        self.outcome.mark(match frame {
            pause::Frame::Global(_) => Mark::GlobalPause,
            pause::Frame::Priorities { .. } => Mark::PriorityPause,
        });
        if self.verbose {
            println!("{:>12} port {at} says {frame:?}", self.now.0);
        }
        self.ports[at].busy_until = self.now + time(FRAME_LEN as u32 + WIRE_OVERHEAD, self.plan.rate);
        if self.rng.u32(..10_000) < self.plan.pauses_lost {
            self.outcome.mark(Mark::LostPause);
            return;
        }
        self.put(at, Item::Pause(frame.emit(mac(at))), FRAME_LEN as u32);
    }

    /// A frame leaves by a port: to a guest, or onto the link.
    fn leaves(&mut self, at: usize, frame: Frame, flow: &Flow) -> Judgement {
        let port = &mut self.ports[at];
        port.moved |= 1 << flow.priority;
        let class = port.qos.classes.of_priority[usize::from(flow.priority)];
        port.lifetime.sent(class);
        if port.peer.is_some() {
            port.busy_until = self.now + time(flow.wire(), self.plan.rate);
            let next = port.busy_until;
            if port.wakes_at.is_none_or(|t| next < t) {
                port.wakes_at = Some(next);
                self.at(next, Event::Wake(at));
            }
            self.put(at, Item::Frame(frame), flow.len);
            return Ok(());
        }
        self.outcome.delivered += 1;
        self.notes(frame, 1);
        self.oracle.delivered(self.now, frame.flow, frame.number)
    }

    fn drops(&mut self, at: usize, frame: Frame, reason: DropReason) -> Judgement {
        let priority = self.plan.flows[frame.flow].priority;
        self.outcome.dropped += 1;
        self.notes(frame, 2);
        if self.verbose {
            println!("{:>12} port {at} drops {frame:?}: {}", self.now.0, reason.name());
        }
        if self.plan.lossless() & 1 << priority != 0 {
            self.outcome.lossless_dropped += 1;
        }
        match reason {
            DropReason::EgressFull => self.outcome.mark(Mark::LossyDrop),
            DropReason::LosslessOverflow => self.outcome.mark(Mark::OverflowAfterCritical),
            DropReason::HeadOfQueue => self.outcome.mark(Mark::HeadOfQueue),
            DropReason::ClassStalled => self.outcome.mark(Mark::ClassStalled),
            _ => {}
        }
        let (tripped, still) = (self.ports[at].tripped, self.stands_still(at));
        let what = (frame.flow, frame.number, priority);
        self.oracle.dropped(self.now, what, reason, tripped, still)
    }

    /// A frame has found its end.
    fn notes(&mut self, frame: Frame, how: u64) {
        self.longest = self.longest.max(self.now.since(self.moved));
        self.moved = self.now;
        let digest = &mut self.outcome.digest;
        for n in [self.now.0, frame.flow as u64, u64::from(frame.number), how] {
            *digest = (*digest ^ n).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
        }
    }

    fn put(&mut self, from: usize, item: Item, len: u32) {
        let Some(to) = self.ports[from].peer else { return };
        let facts = Facts::of_head(id(from), id(to), &[0; 14], (len + WIRE_OVERHEAD) as usize);
        self.network.send(self.now, facts, item);
    }

    /// What must be true at the end.
    fn judge_end(&mut self) -> Judgement {
        let plan = self.plan;
        let done = self.is_done();
        let quiet = self.now.since(self.moved).max(self.longest);
        let (guarded, limited) = (plan.qos.guard.critical_ms != 0, plan.qos.lifetimes.enable != 0);
        let ring = plan.kind == Kind::Ring && plan.control != Control::Off;
        let trouble = plan.attacker.is_some() || plan.stalls.iter().any(|s| s.until > plan.horizon);
        for (i, flow) in plan.flows.iter().enumerate() {
            let lossless = plan.lossless() & 1 << flow.priority != 0;
            let sent = self.sent[i] == flow.frames;
            // Storm prevention ends what stands in the way, but not what waits for the dead; what waits for itself may do so
            // again. What lifetimes end goes on step by step.
            let (must_send, must_end) = match (lossless, ring, trouble) {
                (false, ..) | (true, false, false) => (true, true),
                (true, false, true) if !limited => (guarded, false),
                (true, ..) => (false, false),
            };
            if (must_send && !sent) || (must_end && self.oracle.under_way(i) != 0) {
                return Rule::Progress.broken(format!(
                        "flow {i} has sent {} of {} frames, {} are under way at {} us; nothing moved for {quiet:?}",
                        self.sent[i],
                        flow.frames,
                        self.oracle.under_way(i),
                        self.now.0 / 1000
                    ));
            }
        }
        let ends = [
            guarded.then(|| Duration::from_millis(u64::from(plan.qos.guard.critical_ms))),
            limited.then(|| Duration::from_nanos(4096 << plan.qos.lifetimes.limit)),
        ];
        if !done
            && (ring || limited)
            && let Some(end) = ends.into_iter().flatten().min()
            && quiet > end * 3 + Duration::from_millis(50)
        {
            return Rule::Progress.broken(format!("nothing moved for {quiet:?}"));
        }
        if ring && !done && !guarded && !limited {
            self.outcome.mark(Mark::Deadlock);
        }
        let stood = |mark: Mark| self.outcome.marks[mark as usize] != 0;
        let (critical, expired) = (stood(Mark::Critical), stood(Mark::HeadOfQueue));
        if ring && critical && !expired {
            self.outcome.mark(Mark::DeadlockEndedByGuard);
        }
        if ring && expired && !critical {
            self.outcome.mark(Mark::DeadlockEndedByLifetime);
        }
        if plan.kind == Kind::Incast && self.outcome.lossless_dropped == 0 && self.outcome.pauses > 0 {
            self.outcome.mark(Mark::Incast);
            self.judge_use()?;
        }
        if plan.attacker.is_some() {
            self.outcome.mark(Mark::EndlessPause);
        }
        Ok(())
    }

    /// Many to one: the one link to it is always used.
    fn judge_use(&self) -> Judgement {
        let bytes: u64 = self
            .plan
            .flows
            .iter()
            .map(|f| u64::from(f.wire()) * u64::from(f.frames))
            .sum();
        let alone = bytes * 8_000_000_000 / self.plan.rate;
        let flows = || self.plan.flows.iter();
        let start = flows().map(|f| f.start.0).max().unwrap_or(0);
        // No flow is faster than its guest.
        let slowest = flows().map(|f| f.alone().0).max().unwrap_or(0);
        // A lost frame that lets a port go on costs the link until it is said again.
        let lost = self.outcome.marks[Mark::LostPause as usize];
        let most = slowest.max(start + alone) + alone / 20 + 100_000 + 200_000 * lost;
        if self.now.0 > most {
            return Rule::Progress.broken(format!(
                "{} us for what a full link does in {} us",
                self.now.0 / 1000,
                most / 1000
            ));
        }
        Ok(())
    }
}

fn id(port: usize) -> PortId {
    PortId(port as u16)
}

fn mac(port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, (port >> 8) as u8, port as u8])
}
