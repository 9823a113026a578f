//! A scenario that is played on two programs, in virtual time: one writes, reads and sends to the other all the time, and does what a
//! careful program does when something fails. What they see is noted by the time of the rig.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_appliance::comparable;
use vnic_appliance::scenarios::{Player, Scenario};
use vnic_backend::fault::Action;
use vnic_backend::{FaultSpec, RECORDED_DEFAULT, Recorded, VirtualClock};
use vnic_device::command::Opcode;
use vnic_device::command::device::PortReply;
use vnic_device::event::EventKind;
use vnic_device::queue::{CompletionEntry, CompletionKind, Operation};
use vnic_device::verbs::{CompletionStatus as Status, PortState, QpState, QpType};
use vnic_device::zerocopy::FromBytes;
use vnic_tests::driver::rdma::{Link, Qp, Side, World, Wr, link};
use vnic_tests::driver::rig::wait_for;

use super::GID;

/// Virtual time of a round of the data core.
const ROUND: Duration = Duration::from_micros(200);
/// A frame is so long on its way, so that much is under way when something fails.
const CABLE: Duration = Duration::from_millis(12);
/// Programs look at their queues so often.
const TICK: Duration = Duration::from_millis(10);
/// What was posted has so long to end when the scenario is over.
const REST: Duration = Duration::from_millis(1500);
/// A program that has lost its device, or was refused something, tries again after this time.
const AGAIN: Duration = Duration::from_millis(200);
/// Receives that are kept posted.
const RECEIVES: u64 = 8;

/// Programs: what they post, and how patient they are.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Connections.
    pub flows: usize,
    /// Requests that are posted at a time; the next ones when they have ended.
    pub batch: u64,
    /// Whether all requests are WRITEs, as of one that moves a cache; else there are SENDs and READs, too.
    pub bulk: bool,
    /// Index of the GID that the writing program uses; `None`: the first.
    pub gid: Option<u16>,
    /// ACK timeout of queue pairs, as a code.
    pub timeout: u8,
    /// After this time without a completion a program regards its queue pair as hung, and builds it anew.
    pub patience: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            flows: 2,
            batch: 4,
            bulk: false,
            gid: None,
            timeout: 14,
            patience: Duration::from_secs(2),
        }
    }
}

/// A connection, and what is under way on it.
struct Flow {
    a: Qp,
    b: Qp,
    /// Requests without a completion.
    out: BTreeSet<u64>,
    /// Receives without a completion.
    receives: u64,
    /// When a completion came last, or something was posted.
    heard: Duration,
    broken: bool,
}

/// What a program saw of its device.
#[derive(Default)]
struct View {
    port: Option<(u8, u8, u32)>,
    refused: bool,
    try_at: Duration,
}

/// A run that is over.
pub struct Run {
    /// What the scenario did, what the programs saw, and the report of the recording, a line each.
    pub log: Vec<String>,
    /// Lines of the log before the report.
    pub story: usize,
    /// Completions of the writing program by status.
    pub told: BTreeMap<String, u64>,
    /// Connections that were built, the first ones included.
    pub built: usize,
    /// Requests that were posted.
    pub posted: u64,
    /// What really happened.
    pub recorded: Recorded,
}

impl Run {
    /// Whether the log has a line that ends so.
    pub fn has(&self, end: &str) -> bool {
        self.log.iter().any(|line| line.ends_with(end))
    }

    /// Number of requests with this verdict.
    pub fn verdicts(&self, verdict: &str) -> u64 {
        self.recorded.summary.get(verdict).copied().unwrap_or_default()
    }
}

/// Two programs under a scenario.
pub struct Stage {
    plan: Plan,
    world: World,
    clock: Arc<VirtualClock>,
    begin: Duration,
    a: Option<Side>,
    b: Option<Side>,
    views: [View; 2],
    flows: Vec<Option<Flow>>,
    next: u64,
    told: BTreeMap<String, u64>,
    built: usize,
    log: Vec<String>,
}

/// Adapters of the writing program and of its peer.
const AT: [&str; 2] = ["vf0", "vf1"];

impl Stage {
    fn new(plan: Plan) -> Result<Stage> {
        let clock = VirtualClock::new(ROUND);
        let world = World::with_clock(clock.clone(), &AT)?;
        world.rig.nic.set_gid(AT[0], Some(30), Some(GID))?;
        let delay = Action::Delay {
            by: CABLE,
            jitter: Duration::ZERO,
        };
        world.rig.nic.add_fault(FaultSpec::new("cable", delay))?;
        let (a, b) = (world.side(AT[0])?, world.side(AT[1])?);
        world.rig.nic.start_recording(&[], RECORDED_DEFAULT)?;
        let flows = (0..plan.flows).map(|_| None).collect();
        Ok(Stage {
            plan,
            world,
            begin: clock.now(),
            clock,
            a: Some(a),
            b: Some(b),
            views: Default::default(),
            flows,
            next: 1,
            told: BTreeMap::new(),
            built: 0,
            log: Vec::new(),
        })
    }

    fn now(&self) -> Duration {
        self.clock.now() - self.begin
    }

    fn note(&mut self, at: usize, what: impl Display) {
        let now = self.now();
        self.log.push(format!(
            "{:>6}.{:01} ms {}: {what}",
            now.as_millis(),
            now.subsec_micros() / 100 % 10,
            AT[at]
        ));
    }

    fn side(&mut self, at: usize) -> Option<&mut Side> {
        [&mut self.a, &mut self.b][at].as_mut()
    }

    /// A program's device is gone for it, and its connections with it.
    fn close(&mut self, at: usize) {
        drop([&mut self.a, &mut self.b][at].take());
        let gone = wait_for(|| {
            self.world
                .rig
                .nic
                .rdma_owners(AT[at])
                .is_ok_and(|all| all.all().count() == 0)
        });
        assert!(
            gone && wait_for(|| self.world.objects(AT[at]).is_empty()),
            "objects are left"
        );
        self.views[at].try_at = self.now() + AGAIN;
        // (The peer hears nothing of it.)
        for flow in self.flows.iter_mut().flatten().filter(|_| at == 0) {
            flow.broken = true;
            flow.out.clear();
        }
    }

    /// What programs do without their queues: they hear events, look at their ports, and open again what they have lost.
    fn look(&mut self) -> Result<()> {
        for at in 0..AT.len() {
            let mut dead = self
                .world
                .rig
                .nic
                .rdma(AT[at])?
                .is_none_or(|status| status.off.is_some());
            let events = self
                .side(at)
                .map(|side| side.d.events.drain(..).collect::<Vec<_>>());
            for event in events.into_iter().flatten() {
                let kind = EventKind::from_number(event.kind);
                dead |= kind == Some(EventKind::DeviceFatal);
                let told = matches!(
                    kind,
                    Some(EventKind::Completion | EventKind::CommunicationEstablished)
                );
                if !told {
                    let kind = kind.map_or_else(String::new, |kind| format!("{kind:?}"));
                    self.note(at, format_args!("event {kind} {}", event.object));
                }
            }
            if dead && self.side(at).is_some() {
                self.note(at, "closes its device");
                self.close(at);
            } else if !dead && self.side(at).is_none() && self.views[at].try_at <= self.now() {
                let side = self.world.side(AT[at])?;
                *[&mut self.a, &mut self.b][at] = Some(side);
                self.views[at].port = None;
                let own = self.world.devices(&[AT[at]]).pop().map(|(_, address)| address);
                let all = self.world.devices(&AT);
                let here = all.iter().find(|(_, address)| own.as_ref() == Some(address));
                let number = here.map(|(number, _)| *number);
                let other = number.filter(|number| *number as usize != at);
                let other = other.map_or_else(String::new, |number| format!(", number {number}"));
                self.note(at, format_args!("has opened its device{other}"));
            }
            // (A look at the port is a command, which takes time of the machine.)
            let looks = self.now().as_millis() % 50 < TICK.as_millis() || self.views[at].port.is_none();
            let Some(side) = self.side(at).filter(|_| looks) else {
                continue;
            };
            let reply = side.d.command(Opcode::QueryPort, &[], &[]);
            let port = PortReply::read_from_bytes(&reply.bytes).ok().context("a port")?;
            let seen = (port.state, port.active_mtu, port.speed);
            if self.views[at]
                .port
                .replace(seen)
                .is_some_and(|before| before != seen)
            {
                let state = PortState::from_number(port.state).context("a state")?;
                self.note(
                    at,
                    format_args!(
                        "port {state:?}, MTU {}, {} Mbit/s",
                        128_u32 << port.active_mtu,
                        port.speed
                    ),
                );
            }
        }
        Ok(())
    }

    /// Builds connections that there are not, or that failed.
    fn build(&mut self) -> Result<()> {
        for n in 0..self.flows.len() {
            let now = self.now();
            if let Some(flow) = &mut self.flows[n] {
                if !flow.broken && !flow.out.is_empty() && flow.heard + self.plan.patience < now {
                    flow.broken = true;
                    let (number, hung) = (n + 1, flow.out.len());
                    self.note(0, format_args!("connection {number}: {hung} requests hang"));
                } else if !flow.broken {
                    continue;
                }
            }
            if now < self.views[0].try_at.max(self.views[1].try_at) {
                continue;
            }
            let (Some(a), Some(b)) = (&mut self.a, &mut self.b) else {
                continue;
            };
            if let Some(old) = self.flows[n].take() {
                // (Those of a device that was closed are not there any more.)
                let _ = a.d.end(Opcode::DestroyQp, old.a.number);
                let _ = b.d.end(Opcode::DestroyQp, old.b.number);
            }
            let gids = a.d.gids();
            if self
                .plan
                .gid
                .is_some_and(|index| !gids.iter().any(|gid| gid.index == index))
            {
                self.views[0].try_at = now + AGAIN;
                self.note(0, "its GID is not there");
                continue;
            }
            let (spec_a, spec_b) = (a.spec(QpType::Rc), b.spec(QpType::Rc));
            let made = (a.d.try_qp(&spec_a), b.d.try_qp(&spec_b));
            let (qa, qb) = match made {
                (Ok(a), Ok(b)) => (a, b),
                (one, other) => {
                    if let Ok(qp) = &one {
                        let _ = a.d.end(Opcode::DestroyQp, qp.number);
                    }
                    if let Ok(qp) = &other {
                        let _ = b.d.end(Opcode::DestroyQp, qp.number);
                    }
                    let at = usize::from(one.is_ok());
                    let why = one.err().or(other.err()).map(|reply| reply.to_string());
                    self.views[at].try_at = now + AGAIN;
                    if !std::mem::replace(&mut self.views[at].refused, true) {
                        self.note(
                            at,
                            format_args!("a queue pair is refused: {}", why.unwrap_or_default()),
                        );
                    }
                    continue;
                }
            };
            let (mut to_b, mut to_a) = (a.d.address_of(&mut b.d), b.d.address_of(&mut a.d));
            if let Some(index) = self.plan.gid {
                (to_b.sgid_index, to_a.dgid) = (index, GID.gid);
            }
            let patient = |link: Link| Link {
                timeout: self.plan.timeout,
                ..link
            };
            a.d.up(&qa, &patient(link(to_b, qb.number)));
            b.d.up(&qb, &patient(link(to_a, qa.number)));
            self.flows[n] = Some(Flow {
                a: qa,
                b: qb,
                out: BTreeSet::new(),
                receives: 0,
                // (Not all at once: in every moment there are requests on their way, or acknowledges.)
                heard: now + TICK * u32::try_from(n)?,
                broken: false,
            });
            self.built += 1;
            if self.built > self.flows.len() {
                self.note(0, format_args!("connection {} is built anew", n + 1));
            }
        }
        Ok(())
    }

    /// Posts what the programs have to do.
    fn post(&mut self) {
        let now = self.now();
        let (Some(a), Some(b)) = (&mut self.a, &mut self.b) else {
            return;
        };
        for flow in self.flows.iter_mut().flatten().filter(|flow| !flow.broken) {
            let sends = !self.plan.bulk;
            while sends && flow.receives < RECEIVES {
                flow.receives += 1;
                let element = b.at(64 << 10, 4096);
                b.receive(&mut flow.b, 1_000_000 + self.next, &[element]);
            }
            if !flow.out.is_empty() || now < flow.heard {
                continue;
            }
            for _ in 0..self.plan.batch {
                let id = self.next;
                self.next += 1;
                let wr = match id % 4 {
                    1 if sends => Wr::send(id, &[a.at(0, 700)]),
                    3 if sends => Wr::new(id, Operation::Read, &[a.at(32 << 10, 1500)]),
                    _ => Wr::new(id, Operation::Write, &[a.at(0, 3000)]),
                };
                let wr = if id % 4 == 1 && sends {
                    wr
                } else {
                    wr.remote(b.mr.iova, b.mr.rkey)
                };
                flow.a.sends().write(&wr);
                flow.out.insert(id);
            }
            flow.a.ring(&mut a.bells);
            flow.heard = now;
        }
    }

    /// Takes completions of both programs, and what they are told, while the core stands still.
    fn poll(&mut self) {
        for at in 0..AT.len() {
            let Some(side) = self.side(at) else { continue };
            side.d.poll_events();
            let all: Vec<CompletionEntry> = std::iter::from_fn(|| side.cq.poll()).collect();
            for entry in all {
                self.completed(at, &entry);
            }
        }
    }

    fn completed(&mut self, at: usize, entry: &CompletionEntry) {
        let now = self.now();
        let of = |flow: &&mut Flow| [&flow.a, &flow.b][at].number == entry.qp;
        let Some(flow) = self.flows.iter_mut().flatten().find(of) else {
            return;
        };
        let status = entry.status();
        if status != Status::Success {
            flow.broken = true;
        }
        if CompletionKind::is_receive(entry.kind) {
            flow.receives = flow.receives.saturating_sub(1);
        } else {
            flow.heard = now;
            let known = flow.out.remove(&entry.wr_id);
            *self.told.entry(format!("{status:?}")).or_default() += 1;
            if !known {
                self.note(at, format_args!("request {} has completed before", entry.wr_id));
            }
        }
        if !matches!(status, Status::Success | Status::FlushError) {
            self.note(at, format_args!("request {}: {status:?}", entry.wr_id));
        }
    }

    /// Plays, and ends when nothing is under way.
    fn play(mut self, scenario: &Scenario) -> Result<Run> {
        let killed = Arc::new(AtomicBool::new(false));
        let flag = killed.clone();
        let mut player =
            Player::new(self.world.rig.nic.clone(), scenario).killing(Box::new(move |_, adapter| {
                assert_eq!(adapter, AT[1]);
                flag.store(true, Ordering::Relaxed);
                Ok(())
            }));
        let (mut end, mut looked) = (None::<Duration>, 0);
        loop {
            // (Before the next step: what the last one did has been told by now.)
            self.look()?;
            let now = self.now();
            if player.next().is_some_and(|at| at <= now) {
                let played = player.play(now);
                let lines = player.log().iter().skip(looked).cloned().collect::<Vec<_>>();
                looked = player.log().len();
                self.log
                    .extend(lines.into_iter().map(|line| format!("- {}", line.trim_start())));
                played.map_err(anyhow::Error::msg)?;
            }
            if killed.swap(false, Ordering::Relaxed) {
                self.close(1);
            }
            self.build()?;
            let next = player.next();
            if next.is_none() {
                end.get_or_insert(now + REST);
            }
            if end.is_some_and(|end| end <= now) {
                break;
            }
            let held = self.clock.hold();
            if end.is_none_or(|end| end - now > REST / 2) {
                self.post();
            }
            let until = next.map_or(now + TICK, |at| at.min(now + TICK));
            let left = until
                .saturating_sub(self.now())
                .as_nanos()
                .div_ceil(ROUND.as_nanos());
            held.rounds(u64::try_from(left)?.max(1));
            self.poll();
            drop(held);
        }
        ensure!(self.world.rig.nic.faults().len() == 1 && self.world.rig.nic.verbs_faults().is_empty());
        self.finish()
    }

    /// All that was posted has ended; both programs work.
    fn finish(mut self) -> Result<Run> {
        for flow in self.flows.iter_mut() {
            let flow = flow.as_mut().context("a connection is not there")?;
            ensure!(
                !flow.broken && flow.out.is_empty(),
                "a connection does not work: {:?}\n{}",
                flow.out,
                self.log.join("\n")
            );
        }
        let (a, b) = (
            self.a.as_mut().context("no device")?,
            self.b.as_mut().context("no device")?,
        );
        for flow in self.flows.iter().flatten() {
            ensure!(a.d.state(&flow.a) == QpState::Rts && b.d.state(&flow.b) == QpState::Rts);
        }
        self.world.rig.nic.stop_recording()?;
        let recorded = self.world.rig.nic.recorded().context("a recording")?;
        let story = self.log.len();
        self.log
            .extend(comparable::report(&recorded).lines().map(str::to_owned));
        (self.a, self.b) = (None, None);
        self.world.finish()?;
        Ok(Run {
            log: self.log,
            story,
            told: self.told,
            built: self.built,
            posted: self.next - 1,
            recorded,
        })
    }
}

/// Plays a scenario once.
pub fn once(scenario: &Scenario, plan: Plan) -> Result<Run> {
    Stage::new(plan)?.play(scenario)
}
