//! A plan in virtual time: devices, their drivers, the network.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use vnic_engine::rdma::AddressVector;
use vnic_engine::rdma::cm::{Cm, CmError, ConnectionId, Event, Limits};
use vnic_fabric::fault::Facts;
use vnic_fabric::{Network, PortId};
use vnic_wire::cm::{
    Attribute, Mad, PortSpace, Private, Rej, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;
use vnic_wire::{EtherType, MacAddr, mad};

use super::oracle::{Key, Oracle, Phase};
use super::plan::{Does, Plan};
use super::{Mark, Outcome};
use crate::oracle::{Judgement, Rule};

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);
const DATAGRAMS: ServiceId = ServiceId::of_port(PortSpace::Udp, 7471);
const UNSERVED: ServiceId = ServiceId::of_port(PortSpace::Tcp, 1);

/// What a driver does at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Act {
    /// Asks for a connection.
    Ask(usize),
    /// Does with a request or a reply what its manner is.
    Answer(Key),
    /// Hears from its queue pair that data came.
    Data(Key),
    /// Ends a connection, or agrees that it ends.
    End(Key),
    /// Destroys a connection.
    Destroy(Key),
    /// A device begins anew.
    Crash(usize),
}

struct Node {
    cm: Cm,
    /// How often it has begun.
    life: u32,
    /// The last queue pair that its driver made in this life.
    qp: u32,
}

/// See the module.
pub struct World<'a> {
    plan: &'a Plan,
    nodes: Vec<Node>,
    network: Network<[u8; mad::LEN]>,
    acts: BinaryHeap<Reverse<(Instant, u64, Act)>>,
    numbers: u64,
    now: Instant,
    oracle: Oracle<'a>,
    outcome: Outcome,
    /// Copies that the network made.
    copies: u64,
    /// Messages that devices sent and heard, by their counters.
    counted: [u64; 2],
    verbose: bool,
}

fn address(node: usize) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ipv4([10, 0, 0, node as u8 + 1]),
        dmac: MacAddr([2, 0, 0, 0, 0, node as u8 + 1]),
        sgid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
    }
}

impl<'a> World<'a> {
    pub fn new(plan: &'a Plan, verbose: bool) -> World<'a> {
        let mut world = World {
            plan,
            nodes: Vec::new(),
            network: Network::new(plan.faults()),
            acts: BinaryHeap::new(),
            numbers: 0,
            now: Instant(0),
            oracle: Oracle::new(plan),
            outcome: Outcome::default(),
            copies: 0,
            counted: [0; 2],
            verbose,
        };
        for node in 0..plan.nodes {
            let node = world.boot(node, 0);
            world.nodes.push(node);
        }
        for (n, attempt) in plan.attempts.iter().enumerate() {
            world.at(attempt.at, Act::Ask(n));
        }
        for (at, node) in &plan.crashes {
            world.at(*at, Act::Crash(*node));
        }
        world
    }

    fn boot(&self, node: usize, life: u32) -> Node {
        let seed = (node as u32) << 24 | life << 16;
        let mut cm = Cm::new(self.plan.timing, Limits::default(), seed);
        for service in [SERVICE, DATAGRAMS] {
            // Nobody listens yet.
            let _ = cm.listen(service, self.plan.backlog);
        }
        Node { cm, life, qp: 0 }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Outcome {
        if let Err(v) = self.run_judged() {
            self.outcome.violation = Some(v);
        }
        self.outcome.time = self.now;
        self.outcome
    }

    fn run_judged(&mut self) -> Judgement {
        self.until_quiet()?;
        self.oracle.judge(&mut self.outcome)?;
        let left: Vec<Key> = self
            .oracle
            .sides
            .iter()
            .filter(|(_, s)| !s.destroyed)
            .map(|(k, _)| *k)
            .collect();
        for key in left {
            self.act(Act::Destroy(key))?;
        }
        self.until_quiet()?;
        for n in 0..self.nodes.len() {
            let cm = &self.nodes[n].cm;
            if !cm.is_clear() {
                return Rule::Progress.broken(format!("device {n} has something left: {cm:?}"));
            }
            self.count(n);
        }
        let carried = self.outcome.sent - self.outcome.lost + self.copies;
        let wanted = ([self.outcome.sent, self.outcome.arrived], self.outcome.arrived);
        if (self.counted, carried) != wanted {
            let text = format!(
                "{:?} messages counted, {carried} carried: {wanted:?}",
                self.counted
            );
            return Rule::Counter.broken(text);
        }
        Ok(())
    }

    /// Adds what a device has counted in a life of its.
    fn count(&mut self, node: usize) {
        let c = *self.nodes[node].cm.counters();
        let sum = |group: &[u64]| group.iter().sum::<u64>();
        self.counted[0] += sum(&c.cm_tx_msgs);
        self.counted[1] += sum(&c.cm_rx_msgs);
        let receipts = c.cm_tx_msgs[Attribute::Mra.index()];
        self.outcome.mark(Mark::Receipt, receipts);
        self.outcome.mark(Mark::Duplicate, sum(&c.cm_rx_duplicates));
        self.outcome.mark(Mark::Retry, sum(&c.cm_tx_retries));
    }

    fn at(&mut self, at: Instant, act: Act) {
        self.numbers += 1;
        self.acts.push(Reverse((at, self.numbers, act)));
    }

    fn later(&mut self, after: Duration, act: Act) {
        self.at(self.now + after, act);
    }

    /// Goes on until nothing is to be done any more.
    fn until_quiet(&mut self) -> Judgement {
        loop {
            self.settle()?;
            let act = self.acts.peek().map(|Reverse((at, ..))| *at);
            let timers = self.nodes.iter().filter_map(|n| n.cm.next_timeout()).min();
            let times = [act, timers, self.network.next_time()];
            let Some(next) = times.into_iter().flatten().min() else {
                return Ok(());
            };
            self.now = self.now.max(next);
            while let Some(arrival) = self.network.pop(self.now) {
                let (from, to) = (usize::from(arrival.from.0), usize::from(arrival.to.0));
                self.outcome.arrived += 1;
                self.nodes[to].cm.receive(self.now, address(from), &arrival.item);
            }
            for node in &mut self.nodes {
                node.cm.handle_timeout(self.now);
            }
            while let Some(Reverse((at, _, act))) = self.acts.peek().copied() {
                if at > self.now {
                    break;
                }
                self.acts.pop();
                self.act(act)?;
            }
        }
    }

    /// Sends what there is to send, and tells drivers what there is to tell.
    fn settle(&mut self) -> Judgement {
        for from in 0..self.nodes.len() {
            while let Some(datagram) = self.nodes[from].cm.transmit() {
                let to = usize::from(datagram.to.dgid.0[15] - 1);
                let facts = Facts {
                    from: PortId(from as u16),
                    to: PortId(to as u16),
                    len: mad::LEN as u32,
                    ethertype: EtherType::IPV4,
                    header: 0,
                    ecn: None,
                    roce: None,
                };
                let verdict = self.network.send(self.now, facts, datagram.mad.emit());
                self.outcome.sent += 1;
                self.outcome.lost += u64::from(verdict.dropped().is_some());
                self.copies += u64::from(verdict.copies());
                self.say(|| {
                    let lost = if verdict.dropped().is_some() {
                        " (lost)"
                    } else {
                        ""
                    };
                    format!("dev{from} -> dev{to} {:?}{lost}", shortly(&datagram.mad))
                });
            }
            while let Some(event) = self.nodes[from].cm.poll_event() {
                self.say(|| format!("dev{from} hears {event:?}"));
                self.hear(from, event)?;
            }
        }
        Ok(())
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>14.6} {}", self.now.0 as f64 / 1e6, text());
        }
    }

    fn hear(&mut self, node: usize, event: Event) -> Judgement {
        let key = (node, self.nodes[node].life, event.id());
        match &event {
            Event::Request { request, .. } => {
                let attempt = request.psn.value() as usize;
                self.oracle.begin(key, attempt, false, self.now)?;
                self.later(self.plan.attempts[attempt].passive.after, Act::Answer(key));
                return Ok(());
            }
            Event::SidrRequest { request, .. } => {
                let attempt = usize::from(request.private.0[0]);
                self.oracle.begin(key, attempt, false, self.now)?;
                self.later(self.plan.attempts[attempt].passive.after, Act::Answer(key));
                return Ok(());
            }
            _ => {}
        }
        let now = self.now;
        self.oracle.hears(key, &event, now, &mut self.outcome)?;
        let Some(side) = self.oracle.sides.get(&key) else {
            return Ok(());
        };
        let attempt = &self.plan.attempts[side.attempt];
        let notice = attempt.notice;
        match event {
            Event::Response { .. } => self.later(attempt.active.after, Act::Answer(key)),
            Event::Established { .. } => {
                if let Some(keep) = attempt.keep[1] {
                    self.later(keep, Act::End(key));
                }
            }
            Event::Disconnected { .. } => self.later(notice, Act::End(key)),
            Event::SidrReply { reply, .. } => {
                let found = reply.status == SidrStatus::VALID;
                self.outcome.mark(Mark::Resolved, u64::from(found));
                self.later(notice, Act::Destroy(key));
            }
            _ => self.later(notice, Act::Destroy(key)),
        }
        Ok(())
    }

    /// What a call that may come too late has to answer.
    fn answered(&self, key: Key, result: Result<(), CmError>, in_time: bool) -> Judgement<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(CmError::State(_)) if !in_time => Ok(false),
            Err(error) => Rule::Verb.broken(format!("{key:?}: {error}")),
        }
    }

    fn act(&mut self, act: Act) -> Judgement {
        let now = self.now;
        self.say(|| format!("{act:?}"));
        match act {
            Act::Ask(n) => self.ask(n),
            Act::Crash(node) => {
                self.count(node);
                let life = self.nodes[node].life + 1;
                self.outcome.mark(Mark::Crash, 1);
                self.nodes[node] = self.boot(node, life);
                for ((n, _, _), side) in &mut self.oracle.sides {
                    side.destroyed |= *n == node;
                }
                Ok(())
            }
            Act::Answer(key) | Act::Data(key) | Act::End(key) | Act::Destroy(key) => {
                let Some(side) = self.oracle.sides.get(&key).filter(|s| !s.destroyed) else {
                    return Ok(());
                };
                let (phase, id) = (side.phase, key.2);
                // A peer that has forgotten the connection may have ended it.
                let own = !side.disconnects && self.plan.crashes.is_empty();
                match act {
                    Act::Answer(_) => return self.answer(key),
                    Act::Data(_) => {
                        let open = matches!(phase, Phase::Answered | Phase::Connected) && own;
                        let result = self.nodes[key.0].cm.communicated(now, id);
                        if self.answered(key, result, open)? && phase == Phase::Answered {
                            self.outcome.mark(Mark::Data, 1);
                        }
                    }
                    Act::End(_) => {
                        let open = phase == Phase::Connected && own;
                        let result = self.nodes[key.0].cm.disconnect(now, id);
                        let done = self.answered(key, result, open)?;
                        if let Some(side) = self.oracle.sides.get_mut(&key) {
                            side.disconnects |= done;
                        }
                    }
                    _ => {
                        let result = self.nodes[key.0].cm.destroy(now, id);
                        self.answered(key, result, true)?;
                        if let Some(side) = self.oracle.sides.get_mut(&key) {
                            side.destroyed = true;
                            side.refused |= matches!(phase, Phase::Begun | Phase::Answered);
                            side.gave_up |= side.active && phase == Phase::Begun;
                        }
                    }
                }
                Ok(())
            }
        }
    }

    fn ask(&mut self, n: usize) -> Judgement {
        let attempt = &self.plan.attempts[n];
        let now = self.now;
        let node = &mut self.nodes[attempt.from];
        let to = address(attempt.to);
        let result = if attempt.datagram {
            let ask = SidrReq {
                service_id: if attempt.served { DATAGRAMS } else { UNSERVED },
                private: Private::new(&[n as u8]).unwrap_or_default(),
                ..SidrReq::default()
            };
            node.cm.resolve(now, to, ask)
        } else {
            node.qp += 1;
            let request = Req {
                service_id: if attempt.served { SERVICE } else { UNSERVED },
                ca_guid: attempt.from as u64 + 1,
                qp: node.qp,
                psn: Psn::new(n as u32),
                mtu: 3,
                remote_response_timeout: self.plan.timing.response_timeout,
                local_response_timeout: self.plan.timing.response_timeout,
                max_retries: self.plan.timing.retries,
                ..Req::default()
            };
            node.cm.connect(now, to, request)
        };
        match result {
            Ok(id) => self.oracle.begin((attempt.from, node.life, id), n, true, now),
            Err(error) => Rule::Verb.broken(format!("attempt {n}: {error}")),
        }
    }

    /// A driver does with a request or a reply what its manner is.
    fn answer(&mut self, key: Key) -> Judgement {
        let Some(side) = self.oracle.sides.get(&key) else {
            return Ok(());
        };
        let (n, active, phase) = (side.attempt, side.active, side.phase);
        let attempt = &self.plan.attempts[n];
        let manner = if active { attempt.active } else { attempt.passive };
        let waits = if active { Phase::Answered } else { Phase::Begun };
        if phase != waits || manner.does == Does::Ignore {
            return Ok(());
        }
        if manner.does == Does::Destroy {
            return self.act(Act::Destroy(key));
        }
        let (now, id): (_, ConnectionId) = (self.now, key.2);
        let node = &mut self.nodes[key.0];
        if attempt.datagram {
            let refuse = manner.does == Does::Reject;
            let status = if refuse {
                SidrStatus::REJECTED
            } else {
                SidrStatus::VALID
            };
            let answer = SidrRep {
                status,
                ..SidrRep::default()
            };
            let result = node.cm.answer(now, id, answer);
            self.answered(key, result, true)?;
            if let Some(side) = self.oracle.sides.get_mut(&key) {
                side.phase = Phase::Exited;
            }
            self.later(attempt.notice, Act::Destroy(key));
            return Ok(());
        }
        let result = match (manner.does, active) {
            (Does::Reject, _) => node.cm.reject(
                now,
                id,
                Rej {
                    reason: vnic_wire::cm::Reason::CONSUMER,
                    ..Rej::default()
                },
            ),
            (_, true) => node.cm.establish(now, id, Rtu::default()),
            (_, false) => {
                node.qp += 1;
                let reply = Rep {
                    ca_guid: key.0 as u64 + 1,
                    qp: node.qp,
                    ..Rep::default()
                };
                node.cm.accept(now, id, reply)
            }
        };
        self.answered(key, result, true)?;
        let rejects = manner.does == Does::Reject;
        if let Some(side) = self.oracle.sides.get_mut(&key) {
            side.since = now;
            side.phase = match (rejects, active) {
                (true, _) => Phase::Failed,
                (false, true) => Phase::Connected,
                (false, false) => Phase::Answered,
            };
            side.refused |= rejects;
            side.connected |= !rejects && active;
        }
        if rejects {
            self.later(attempt.notice, Act::Destroy(key));
        } else if active {
            if let Some(keep) = attempt.keep[0] {
                self.later(keep, Act::End(key));
            }
            let peer = self.oracle.sides.get(&key).and_then(|s| s.peer);
            if let (Some(after), Some(peer)) = (attempt.data, peer) {
                let life = self.nodes[attempt.to].life;
                let passive = (attempt.to, life, ConnectionId(peer));
                self.later(after, Act::Data(passive));
            }
        }
        Ok(())
    }
}

/// A message in a line.
fn shortly(mad: &Mad) -> String {
    format!("{} {:x}", mad.message.attribute(), mad.transaction)
}
