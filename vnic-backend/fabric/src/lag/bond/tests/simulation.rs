//! A bond between a sender and a receiver in virtual time: ports with queues that stall, ways of different delay, links that
//! fail and come back, affinities that come and go. Within a flow nothing may be overtaken, but by what a failure sent
//! another way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;
use crate::fault::random::SplitMix64;
use crate::lag::tests::for_seeds;

const US: u64 = 1000;
/// Less than `quiet`, so the difference of two is, too.
const DELAY_MAX: u64 = 900 * US;
/// Links fail and come back until then; affinities change until then.
const TROUBLE: u64 = 120 * MS;
/// Then everything has to find its place.
const END: u64 = 250 * MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A flow sends a frame.
    Frame(usize),
    /// A port sends the first of its queue.
    Service(usize),
    Arrival(Frame),
    /// A link changes.
    Link(usize),
    /// Frames that wait are asked for.
    Retry,
    Affinity,
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Frame {
    flow: usize,
    number: u64,
    /// Failures of members that the flow was on.
    failures: u32,
}

struct Source {
    flow: Flow,
    /// Time between frames is up to this.
    gap: u64,
    next: u64,
    failures: u32,
    on: Option<usize>,
    /// The last frame that arrived.
    arrived: Option<Frame>,
}

#[derive(Default)]
struct Port {
    up: bool,
    /// It sends, or stalls.
    busy: bool,
    queue: VecDeque<(Frame, SlotId)>,
    delay: u64,
    /// The last arrival: a wire keeps the order.
    last: u64,
}

struct Sim {
    random: SplitMix64,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    bond: Bond,
    /// Ports send at once: then affinities keep the order, too.
    is_direct: bool,
    sources: Vec<Source>,
    ports: Vec<Port>,
    held: VecDeque<(u64, SlotId, Frame)>,
    /// When they are asked for.
    retry_at: Option<u64>,
    sent: u64,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let mut random = SplitMix64::of(seed, 0);
        let members = 1 + random.below(5) as usize;
        let settings = BondSettings {
            mode: if random.below(4) == 0 {
                Mode::ActiveBackup {
                    primary: Some(Member(0)),
                    failback: random.below(2) == 0,
                }
            } else {
                Mode::Aggregate {
                    policy: Policy::Layer34,
                    lacp: false,
                }
            },
            failback_delay: millis(random.below(30)),
            quiet: millis(1),
            patience: Some(millis(random.below(20))),
            flows: 256,
        };
        let gaps = [100 * US, 500 * US, 5 * MS];
        let sources = (0..1 + random.below(20)).map(|i| (i, gaps[random.below(3) as usize], random.next()));
        let sources: Vec<_> = sources.collect();
        let sources = sources.into_iter().map(|(i, gap, port)| Source {
            flow: Flow {
                local_qp: Some(i as u32),
                ..udp(0xc000 | port as u16, 4791)
            },
            gap,
            next: 0,
            failures: 0,
            on: None,
            arrived: None,
        });
        let sources: Vec<Source> = sources.collect();
        let ports = (0..members).map(|_| Port {
            delay: random.below(DELAY_MAX),
            ..Port::default()
        });
        let ports: Vec<Port> = ports.collect();
        let mut sim = Sim {
            is_direct: random.below(2) == 0,
            now: 0,
            events: BinaryHeap::new(),
            order: 0,
            bond: Bond::new(members, settings).unwrap(),
            sources,
            ports,
            held: VecDeque::new(),
            retry_at: None,
            sent: 0,
            random,
        };
        for i in 0..sim.sources.len() {
            sim.at(sim.now, Event::Frame(i));
        }
        for m in 0..members {
            sim.at(0, Event::Link(m));
        }
        sim.at(MS, Event::Affinity);
        sim.at(MS, Event::Tick);
        sim
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn run(mut self) -> Result<(), String> {
        while let Some(Reverse((time, _, event))) = self.events.pop() {
            self.now = time;
            if time > END {
                break;
            }
            self.step(event)?;
        }
        let now = Instant(self.now);
        for s in &self.sources {
            let (is, slot) = (self.bond.member_of(&s.flow), s.flow.local_qp);
            let home = match self.bond.settings().mode {
                Mode::Aggregate { .. } => Policy::Layer34.hash(&s.flow) as usize % self.ports.len(),
                Mode::ActiveBackup { failback: true, .. } => 0,
                Mode::ActiveBackup { .. } => continue,
            };
            if is != Some(Member(home as u8)) {
                let view = self.bond.view(now);
                return Err(format!(
                    "flow {slot:?} is on {is:?}, not at home on {home}: {view:?}"
                ));
            }
        }
        let view = self.bond.view(now);
        let counted: u64 = view.members.iter().map(|m| m.packets).sum();
        if counted != self.sent {
            return Err(format!("{} frames were sent, {counted} counted", self.sent));
        }
        if view.members.iter().any(|m| m.leaving > 0) {
            return Err(format!("something is still moving: {view:?}"));
        }
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        let now = Instant(self.now);
        match event {
            Event::Frame(i) => {
                let s = &mut self.sources[i];
                let frame = Frame {
                    flow: i,
                    number: s.next,
                    failures: 0,
                };
                s.next += 1;
                let choice = self.bond.transmit(now, &s.flow, 100);
                self.place(self.now, frame, choice)?;
                let gap = 1 + self.random.below(self.sources[i].gap);
                self.at(self.now + gap, Event::Frame(i));
            }
            Event::Service(m) => {
                if let Some((frame, slot)) = self.ports[m].queue.pop_front() {
                    self.leave(m, frame, slot);
                }
                self.ports[m].busy = false;
                self.serve(m);
            }
            Event::Arrival(frame) => {
                let s = &mut self.sources[frame.flow];
                if let Some(last) = s.arrived
                    && last.failures == frame.failures
                    && last.number >= frame.number
                {
                    return Err(format!("at {} ns {frame:?} arrives behind {last:?}", self.now));
                }
                s.arrived = Some(frame);
            }
            Event::Link(m) => self.link(m),
            Event::Retry if self.retry_at != Some(self.now) => {}
            Event::Retry => {
                self.retry_at = None;
                let mut blocked = Vec::new();
                for (since, slot, frame) in core::mem::take(&mut self.held) {
                    if blocked.contains(&slot) {
                        self.held.push_back((since, slot, frame));
                    } else if self.random.below(50) == 0 {
                        self.bond.give_up(now, slot);
                    } else {
                        let flow = self.sources[frame.flow].flow;
                        let choice = self.bond.retry(now, slot, &flow, 100);
                        if matches!(choice, Choice::Wait { .. }) {
                            blocked.push(slot);
                        }
                        self.place(since, frame, choice)?;
                    }
                }
            }
            Event::Affinity => {
                let qp = self.random.below(self.sources.len() as u64) as u32;
                let source = self.sources[0].flow.source;
                let what = Affinity::Qp { source, qp };
                let over = self.now > TROUBLE;
                if over {
                    for qp in 0..self.sources.len() as u32 {
                        self.bond.remove_affinity(now, Affinity::Qp { source, qp });
                    }
                } else if self.is_direct && self.random.below(2) == 0 {
                    let member = Member(self.random.below(self.ports.len() as u64) as u8);
                    // Active-backup refuses.
                    let _ = self.bond.set_affinity(now, what, member);
                } else {
                    self.bond.remove_affinity(now, what);
                }
                if !over {
                    let gap = self.random.below(20 * MS);
                    self.at(self.now + gap, Event::Affinity);
                }
            }
            Event::Tick => {
                if self.bond.next_time().is_some_and(|at| at <= now) {
                    self.bond.tick(now);
                }
                self.at(self.now + MS, Event::Tick);
            }
        }
        Ok(())
    }

    fn link(&mut self, m: usize) {
        let now = Instant(self.now);
        let up = !self.ports[m].up;
        self.ports[m].up = up;
        self.bond.set_link(now, Member(m as u8), up);
        if !up {
            for (_, slot) in core::mem::take(&mut self.ports[m].queue) {
                self.bond.departed(now, slot);
            }
            for s in self.sources.iter_mut().filter(|s| s.on == Some(m)) {
                s.failures += 1;
                s.on = None;
            }
        }
        // In the end it is up.
        let gap = self.random.below(60 * MS);
        if !up || self.now + gap < TROUBLE {
            self.at(self.now + gap, Event::Link(m));
        }
    }

    fn place(&mut self, since: u64, mut frame: Frame, choice: Choice) -> Result<(), String> {
        match choice {
            Choice::Send { member, slot } => {
                let m = usize::from(member.0);
                if !self.ports[m].up {
                    return Err(format!("{frame:?} goes to {m}, which is down"));
                }
                // A stalled port has to send what it was given, then comes what is under way.
                if self.now - since > 30 * MS {
                    return Err(format!("{frame:?} waited since {since} ns"));
                }
                let s = &mut self.sources[frame.flow];
                frame.failures = s.failures;
                s.on = Some(m);
                self.sent += 1;
                if self.is_direct {
                    self.leave(m, frame, slot);
                } else {
                    self.ports[m].queue.push_back((frame, slot));
                    self.serve(m);
                }
            }
            Choice::Wait { until, slot } => {
                self.held.push_back((since, slot, frame));
                let until = until.0.max(self.now + 1);
                if self.retry_at.is_none_or(|at| until < at) {
                    self.retry_at = Some(until);
                    self.at(until, Event::Retry);
                }
            }
            Choice::Nowhere => {
                if self.ports.iter().any(|p| p.up) {
                    return Err(format!("{frame:?} goes nowhere"));
                }
            }
        }
        Ok(())
    }

    /// The next of a port's queue leaves soon; now and then it stalls for longer than `quiet`.
    fn serve(&mut self, m: usize) {
        if self.ports[m].busy || self.ports[m].queue.is_empty() {
            return;
        }
        self.ports[m].busy = true;
        let took = if self.random.below(10_000) == 0 {
            5 * MS
        } else {
            US / 2
        };
        self.at(self.now + took, Event::Service(m));
    }

    fn leave(&mut self, m: usize, frame: Frame, slot: SlotId) {
        self.bond.departed(Instant(self.now), slot);
        let port = &mut self.ports[m];
        port.last = port.last.max(self.now + port.delay);
        let arrives = port.last;
        self.at(arrives, Event::Arrival(frame));
    }
}

#[test]
fn nothing_is_overtaken_but_when_a_member_fails() {
    let run = |seed| Sim::new(seed).run();
    for_seeds("VNIC_LAG_SEED", 30, "nothing_is_overtaken", run);
}
