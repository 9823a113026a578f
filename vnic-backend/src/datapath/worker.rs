//! One data core's loop.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use vnic_engine::counters::CoreCounter as C;
use vnic_fabric::Instant;
use vnic_fabric::switch::{PortId, Switch, SwitchConfig, SwitchStats};

use super::MAX_CORES;
use super::calls::Signals;
use super::clock::Clock;
use super::command::{Command, Side};
use super::core::{Core, CoreEvent};
use super::counters::CoreCounters;
use super::dpc::{Bell, Dpc};
use super::frame::FRAME_MAX;
use super::idle::Idle;
use super::link::{LinkIn, LinkOut, Waker, link};
use super::news::Reporter;
use super::outputs::{AdapterRx, Slot};
use super::qos::Pauses;
use super::quota::{COMMANDS, Quota};
use super::sleep::{Sleeper, Source};
use super::tx::{Scratch, TxQueue};
use super::uplinks::UplinkRx;
use super::waiting::{Pressure, Waiting};
use crate::confine::Filter;
use crate::rdma::Functions;
use crate::types::{FdbEntry, NicError};
use crate::uplink::{Opened, PortTx};

/// The longest sleep: ageing needs the time now and then.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// A core that may send a guest's RoCE so soon does not sleep: timers of a sleeping thread come late.
const AWAKE: Duration = Duration::from_micros(200);

/// The control plane's end of a data core.
pub struct WorkerHandle {
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// Its counters.
    pub counters: Arc<CoreCounters>,
    /// How it interrupts its guests.
    pub signals: Arc<Signals>,
    commands: Sender<Command>,
    waker: Arc<Waker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl WorkerHandle {
    /// Gives a command; false when the core has ended.
    pub fn send(&self, command: Command) -> bool {
        let sent = self.commands.send(command).is_ok();
        self.waker.wake();
        sent
    }

    /// Rounds that the core has made. If it sleeps, it wakes up and makes one.
    pub fn rounds(&self) -> u64 {
        let rounds = [C::BusyRounds, C::IdleRounds].map(|c| self.counters.get(c as usize));
        self.waker.wake();
        rounds.iter().sum()
    }

    /// Waits for the core to end.
    pub fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(t) = thread {
            let _ = t.join();
        }
    }
}

/// Starts a loop on each CPU.
pub fn start(
    cpus: &[usize],
    idle_spin: Duration,
    switch: &SwitchConfig,
    events: &Reporter,
    clock: &Clock,
    confine: bool,
) -> Result<Vec<WorkerHandle>, NicError> {
    let os = |what: &str, source: std::io::Error| NicError::Os {
        what: what.into(),
        source,
    };
    let n = cpus.len();
    if n == 0 || n > MAX_CORES {
        let problem = format!("{n} data cores; allowed are 1 to {MAX_CORES}");
        return Err(NicError::Invalid {
            field: "data_cores",
            problem,
        });
    }
    let wakers = (0..n)
        .map(|_| Waker::new().map(Arc::new))
        .collect::<Result<Vec<_>, _>>();
    let wakers = wakers.map_err(|e| os("making an eventfd", e))?;
    let mut outs: Vec<Vec<Option<LinkOut>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    let mut ins: Vec<Vec<Option<LinkIn>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
    for from in 0..n {
        for to in (0..n).filter(|&to| to != from) {
            let (out, input) = link(wakers[to].clone());
            outs[from][to] = Some(out);
            ins[to][from] = Some(input);
        }
    }
    let confinement = match confine {
        true => {
            Some(Arc::new(Filter::data_core().map_err(|e| {
                os("making a filter of system calls; see --no-sandbox", e)
            })?))
        }
        false => None,
    };
    let pressure = Arc::new(Pressure::default());
    let pauses = Arc::new(Pauses::default());
    let bells: Vec<_> = wakers.iter().map(|w| Arc::new(Bell::new(w.clone()))).collect();
    let dpc = Dpc::start(bells.clone()).map_err(|e| os("starting the thread for receive buffers", e))?;
    let dpc = Arc::new(dpc);
    let mut handles: Vec<WorkerHandle> = Vec::with_capacity(n);
    let mut begun = Vec::with_capacity(n);
    for (index, ((&cpu, outs), ins)) in cpus.iter().zip(outs).zip(ins).enumerate() {
        let (commands, mailbox) = unbounded();
        let counters = Arc::new(CoreCounters::default());
        let waker = wakers[index].clone();
        let sleeper = Sleeper::new().map_err(|e| os("making an epoll set", e))?;
        sleeper
            .add(waker.fd(), Source::Waker)
            .map_err(|e| os("watching an eventfd", e))?;
        let signals = Signals::new().map(Arc::new).map_err(|e| {
            os("setting up asynchronous I/O (io_setup), by which guests are interrupted; fs.aio-max-nr may be too low", e)
        })?;
        // A random seed, so that no guest can choose addresses that crowd the table.
        let seed = RandomState::new().build_hasher().finish();
        let core = Core::new(
            index,
            Switch::with_seed(switch.clone(), seed),
            (outs, ins),
            counters.clone(),
            events.clone(),
            Waiting::new(pressure.clone(), pauses.clone(), clock.clone()),
        );
        let (pinned, was_pinned) = crossbeam_channel::bounded(1);
        let worker = Worker {
            core,
            functions: Functions::default(),
            txs: Vec::new(),
            uplinks: Vec::new(),
            stopping: Vec::new(),
            scratch: Scratch::default(),
            mailbox,
            waker: waker.clone(),
            sleeper,
            counters: counters.clone(),
            clock: clock.clone(),
            bell: bells[index].clone(),
            dpc: dpc.clone(),
            index,
            idle_spin,
            rounds: 0,
            frame: vec![0; FRAME_MAX].into_boxed_slice(),
            switch_stats: SwitchStats::default(),
        };
        let confinement = confinement.clone();
        let thread = std::thread::Builder::new()
            .name(format!("vnic-core{index}"))
            .spawn(move || {
                let result = pin(cpu).map_err(|e| ("choose CPUs this process may use", e));
                let confined = |()| match confinement {
                    None => Ok(()),
                    Some(filter) => filter
                        .enter()
                        .map_err(|e| ("seccomp does not work here: see --no-sandbox", e)),
                };
                let result = result.and_then(confined);
                let ok = result.is_ok();
                let _ = pinned.send(result);
                if ok {
                    worker.run();
                }
            })
            .map_err(|e| os("starting a thread", e))?;
        handles.push(WorkerHandle {
            cpu,
            counters,
            signals,
            commands,
            waker,
            thread: Mutex::new(Some(thread)),
        });
        begun.push((cpu, was_pinned));
    }
    for (cpu, was_pinned) in begun {
        if let Ok(Err((cure, source))) = was_pinned.recv() {
            for h in &handles {
                h.send(Command::Shutdown);
                h.join();
            }
            let what = format!("starting a data core on CPU {cpu}; {cure}");
            return Err(NicError::Os { what, source });
        }
    }
    Ok(handles)
}

fn pin(cpu: usize) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

pub(super) struct Worker {
    pub(super) core: Core,
    pub(super) functions: Functions,
    pub(super) txs: Vec<Option<TxQueue>>,
    pub(super) uplinks: Vec<Option<UplinkRx>>,
    pub(super) stopping: Vec<(PortId, u16, Sender<Option<u16>>)>,
    scratch: Scratch,
    mailbox: Receiver<Command>,
    waker: Arc<Waker>,
    pub(super) sleeper: Sleeper,
    pub(super) counters: Arc<CoreCounters>,
    pub(super) clock: Clock,
    /// Rung when a guest gives buffers for which frames wait.
    bell: Arc<Bell>,
    pub(super) dpc: Arc<Dpc>,
    pub(super) index: usize,
    idle_spin: Duration,
    /// Rounds of the RDMA functions.
    pub(super) rounds: u32,
    pub(super) frame: Box<[u8]>,
    switch_stats: SwitchStats,
}

impl Worker {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn run(mut self) {
        let mut idle = Idle::new(self.idle_spin, self.now());
        let mut quota = Quota::default();
        loop {
            let now = self.now();
            self.core.now = now;
            self.core.out.round.now = now;
            let mut open = quota.open(now);
            for _ in 0..COMMANDS {
                let waiting = if open { quota.waiting.pop_front() } else { None };
                let Some(command) = waiting.or_else(|| self.mailbox.try_recv().ok()) else {
                    break;
                };
                let asks = command.asks();
                if asks && !open {
                    quota.waiting.push_back(command);
                    continue;
                }
                self.counters.add(C::Commands as usize, 1);
                idle.worked(now);
                if !self.obey(command, now) {
                    return;
                }
                if asks {
                    open = quota.spend(now, self.now());
                }
            }
            let work = self.round(now);
            self.core.switch.tick(now);
            self.clock.round_over();
            if work > 0 {
                self.counters.add(C::BusyRounds as usize, 1);
                idle.worked(now);
                continue;
            }
            self.counters.add(C::IdleRounds as usize, 1);
            quota.idle();
            self.publish_switch_stats();
            let may_sleep = self.stopping.is_empty() && quota.waiting.is_empty() && self.clock.sleeps();
            if idle.looked(now) && may_sleep {
                self.sleep();
                idle.slept(self.now());
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// The switch counts for itself; the difference goes to the core's counters.
    fn publish_switch_stats(&mut self) {
        let stats = self.core.switch.stats();
        if stats != self.switch_stats {
            self.counters
                .add(C::Learned as usize, stats.learned - self.switch_stats.learned);
            self.counters.add(
                C::LearnRefused as usize,
                stats.refused - self.switch_stats.refused,
            );
            self.switch_stats = stats;
        }
    }

    /// One look at everything. Answers how much was done. Never inlined: instructions are counted from its call to its return.
    #[inline(never)]
    fn round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        if now >= self.core.owed.next {
            self.call_due(now);
        }
        self.core.out.round.waiting.look();
        if let Some(port) = self.core.out.taken {
            self.core.mend_receiver(port);
        }
        if !self.core.out.round.waiting.is_empty() {
            work += self.waiting_round();
        }
        if self.core.links_busy() {
            self.links_round(now);
        }
        if !self.core.bonds.local.is_empty() {
            work += self.bonds_round(now);
        }
        if !self.core.out.queued.is_empty() {
            work += self.receivers_round(now);
        }
        if self.core.out.faulty() {
            work += self.fault_round();
        }
        if self.core.out.round.waiting.pressed || self.core.senders.keeps_books() {
            self.core.pause_round(now);
        }
        if self.core.senders.queued {
            work += self.senders_round(now);
        }
        if !self.core.out.guest_roce.is_empty() {
            work += self.guest_roce_round(now);
        }
        for i in 0..self.txs.len() {
            work += self.poll_tx(i, now);
        }
        for i in 0..self.uplinks.len() {
            let caught = catch_unwind(AssertUnwindSafe(|| self.poll_uplink(i, now)));
            work += caught.unwrap_or_else(|_| self.count_panic());
        }
        if !self.functions.ports().is_empty() {
            work += self.rdma_round(now);
        }
        if self.core.links_in.len() > 1 {
            work += self.core.poll_links();
            work += self.collect_copied();
        }
        // An uplink may have been unable to take more.
        self.core.flush();
        if !self.stopping.is_empty() {
            self.finish_stopping();
        }
        work
    }

    #[cold]
    fn fault_round(&mut self) -> usize {
        let caught = catch_unwind(AssertUnwindSafe(|| self.core.fault_round()));
        caught.unwrap_or_else(|_| self.count_panic())
    }

    #[cold]
    fn waiting_round(&mut self) -> usize {
        let rung = self.bell.take();
        let caught = catch_unwind(AssertUnwindSafe(|| self.core.waiting_round(rung)));
        caught.unwrap_or_else(|_| self.count_panic())
    }

    #[cold]
    fn links_round(&mut self, now: Instant) {
        let (core, ports) = (&mut self.core, self.uplinks.iter().flatten().map(|up| up.port));
        let caught = catch_unwind(AssertUnwindSafe(|| core.links_round(ports, now)));
        if caught.is_err() {
            self.count_panic();
        }
    }

    #[cold]
    fn receivers_round(&mut self, now: Instant) -> usize {
        match catch_unwind(AssertUnwindSafe(|| self.core.receivers_round(now))) {
            Ok(work) => work,
            Err(_) => {
                if let Some(port) = self.core.out.taken {
                    self.core.report(CoreEvent::Panic { port });
                }
                self.count_panic()
            }
        }
    }

    #[inline]
    fn poll_tx(&mut self, i: usize, now: Instant) -> usize {
        let Some(tx) = &mut self.txs[i] else { return 0 };
        let (core, scratch) = (&mut self.core, &mut self.scratch);
        // A bug of ours that one guest's frames trigger takes down that guest's adapter only.
        let result = catch_unwind(AssertUnwindSafe(|| tx.poll(i, core, scratch)));
        match result {
            Ok(n) => {
                if let Some(fault) = tx.path.take_fault() {
                    self.core.report(CoreEvent::RingFault {
                        port: tx.path.port,
                        ring: tx.path.pair as u16 * 2 + 1,
                        fault,
                    });
                }
                if n > 0 {
                    self.core.turns.asks(tx.path.port, now);
                }
                n
            }
            Err(_) => {
                self.counters.add(C::Panics as usize, 1);
                if let Some(mut tx) = self.txs[i].take() {
                    let port = tx.path.port;
                    if let Some(kick) = tx.kick_fd() {
                        self.sleeper.remove(kick);
                    }
                    // Receivers on other cores shall not wait for completions that never come.
                    for (core, seq) in tx.path.abandon() {
                        self.core.commit(core, seq);
                    }
                    // Another core may still hold references into this guest's memory: keep it mapped.
                    std::mem::forget(tx);
                    self.core.report(CoreEvent::Panic { port });
                }
                1
            }
        }
    }

    pub(super) fn count_panic(&self) -> usize {
        self.counters.add(C::Panics as usize, 1);
        1
    }

    fn collect_copied(&mut self) -> usize {
        let mut work = 0;
        for c in 0..self.core.links_out.len() {
            while let Some(slot) = self.core.links_out[c].as_mut().and_then(LinkOut::poll_copied) {
                if let Some(Some(tx)) = self.txs.get_mut(slot.queue) {
                    tx.path.copied(slot.slot);
                    work += 1;
                }
            }
        }
        if work > 0 {
            for tx in self.txs.iter_mut().flatten() {
                while tx.retire(&mut self.core) > 0 {}
            }
        }
        work
    }

    /// Sleeps until a kick, unless there is something to do after all.
    fn sleep(&mut self) {
        if !self.core.settled() || self.txs.iter().flatten().any(|tx| !tx.path.drained()) {
            return;
        }
        let now = self.now();
        if self.core.owed.soon(now) || self.core.receivers_due_soon(now) {
            return;
        }
        let bonds = self.core.bonds_due(now);
        if bonds.is_some_and(|at| at.since(now) < AWAKE) {
            return;
        }
        let roce = self.core.guest_roce_due(now);
        if roce.is_some_and(|at| at.since(now) < AWAKE) {
            return;
        }
        // What fault rules hold back is due some day.
        let due = self.core.out.faults().and_then(|f| f.next_time());
        self.rdma_seldom(now);
        let owed = self.core.owed.next;
        let due = due.into_iter().chain(self.rdma_due(now)).chain([owed]);
        let due = due
            .chain(self.core.waiting_due())
            .chain(self.core.receivers_due(now));
        let rings = self.txs.iter().flatten();
        let closed = rings.filter_map(|tx| self.core.opens_at(tx.path.port, now, 1 << tx.path.closed()?));
        let due = due
            .chain(self.links_due())
            .chain(self.core.senders_due(now))
            .chain(closed)
            .chain(roce)
            .chain(bonds)
            .min();
        let longest = due.map_or(LONGEST_SLEEP, |at| at.since(now).min(LONGEST_SLEEP));
        self.waker.set_asleep(true);
        let mut more = longest.is_zero() || !self.mailbox.is_empty() || !self.core.settled();
        for tx in self.txs.iter_mut().flatten() {
            more |= tx.request_kicks();
        }
        more |= self.request_rdma_kicks();
        more |= self.request_frames();
        let waiting = !self.core.out.round.waiting.is_empty();
        if waiting {
            more |= self.core.request_buffers() | self.bell.is_rung();
        }
        let queued = !self.core.out.queued.is_empty();
        if queued {
            more |= self.core.request_room();
        }
        if !more {
            self.counters.add(C::Sleeps as usize, 1);
            for source in self.sleeper.wait(longest) {
                match source {
                    Source::Kick(i) => {
                        if let Some(Some(tx)) = self.txs.get(i as usize) {
                            tx.path.count_kick();
                        }
                    }
                    Source::Uplink(i) => {
                        if let Some(Some(up)) = self.uplinks.get_mut(i as usize) {
                            up.woken();
                        }
                    }
                    // Every function is looked at anyway, and so is everybody for whom frames wait.
                    Source::Waker | Source::Rdma(_) | Source::Buffers(_) => {}
                }
            }
        }
        self.waker.set_asleep(false);
        for tx in self.txs.iter().flatten() {
            tx.suppress_kicks();
        }
        self.suppress_rdma_kicks();
        if waiting {
            self.bell.look();
            self.core.suppress_buffer_kicks();
        }
        if queued {
            self.core.suppress_room_kicks();
        }
    }

    /// Carries out a command; false ends the loop.
    fn obey(&mut self, command: Command, now: Instant) -> bool {
        match command {
            Command::AddPort { id, config, side } => {
                self.core.switch.add_port(id, config);
                let slot = match side {
                    Side::Adapter(counters, allowed) => {
                        let mut adapter = AdapterRx::new(counters);
                        adapter.allowed = allowed.map(Arc::new);
                        Slot::Adapter(Box::new(adapter))
                    }
                    Side::Remote(core) => Slot::Remote(core),
                    Side::Uplink(opened, counters) => {
                        let Opened {
                            rx,
                            tx,
                            mtu,
                            mac,
                            index,
                            ..
                        } = *opened;
                        self.add_uplink(id, (rx, index), mtu, counters.clone());
                        Slot::Uplink(Box::new(PortTx::new(tx, mac, counters)))
                    }
                };
                *self.core.slot(id) = slot;
            }
            Command::SetPort { id, config, done } => {
                if let Some(function) = self.functions.get_mut(id) {
                    function.set_vlans(config.vlan.clone());
                    self.news(id);
                }
                self.core.switch.set_port(id, config);
                let _ = done.send(());
            }
            Command::Configure { id, settings, done } => {
                self.configure(id, &settings);
                let _ = done.send(());
            }
            Command::SetDropless { id, timeout, done } => {
                self.core.set_dropless(id, timeout);
                let _ = done.send(());
            }
            Command::Qos { id, change, done } => {
                self.set_qos(id, change);
                let _ = done.send(());
            }
            Command::QosQuery { id, reply } => {
                let _ = reply.send(self.qos_status(id));
            }
            Command::Congestion { id, change, done } => {
                self.set_congestion(id, change, now);
                let _ = done.send(());
            }
            Command::CongestionFlows { id, reply } => {
                if let Some(flows) = self.flows(id, now) {
                    let _ = reply.send(flows);
                }
            }
            Command::GuestFlows { id, reply } => {
                let _ = reply.send(self.guest_flows(id));
            }
            Command::RemovePort { id, done } => {
                self.forget_qos(id);
                self.forget_guest_roce(id);
                self.remove_function(id);
                self.core.forget_waiting(id);
                self.core.forget_bond(id);
                self.core.switch.remove_port(id);
                *self.core.slot(id) = Slot::Empty;
                if let Some(faults) = self.core.out.faults() {
                    let orphans = faults.forget_port(id);
                    self.counters.add(C::Orphans as usize, orphans);
                }
                for up in &mut self.uplinks {
                    if let Some(u) = up.take_if(|u| u.port == id) {
                        self.sleeper.remove(u.device.fd());
                    }
                }
                let _ = done.send(());
            }
            Command::SetLink { id, up, announce } => {
                self.core.switch.set_link(id, up);
                if !up && matches!(self.core.slot(id), Slot::Uplink(_) | Slot::Bond(_)) {
                    self.core.switch.flush_port(id);
                }
                if let (true, Some(mac)) = (up, announce) {
                    self.core.announce(id, mac, now);
                }
            }
            Command::SetBond {
                id,
                config,
                members,
                side,
                done,
            } => {
                self.set_bond(id, config, members, side, now);
                let _ = done.send(());
            }
            Command::Unbond { id, members, done } => {
                self.unbond(id, members, now);
                let _ = done.send(());
            }
            Command::BondLink { id, member, up, done } => {
                let _ = done.send(self.core.bond_link(id, member, up, now));
            }
            Command::BondLacp {
                id,
                member,
                collecting,
                distributing,
            } => self.core.bond_lacp(id, member, collecting, distributing, now),
            Command::BondAffinity {
                id,
                what,
                member,
                reply,
            } => {
                let _ = reply.send(self.core.bond_affinity(id, what, member, now));
            }
            Command::BondView { id, reply } => {
                // Without a bond the answer is dropped, and the asker knows.
                if let Some(view) = self.core.bond_view(id, now) {
                    let _ = reply.send(view);
                }
            }
            Command::SendControl { id, frame } => self.core.send_control(id, &frame),
            Command::Reopened { id, rx, index, tx } => self.reopen_uplink(id, (rx, index), *tx),
            Command::StartRing { id, start } => self.start_ring(id, *start),
            Command::StopRing { id, index, done } => {
                self.stopping.push((id, index, done));
                self.finish_stopping();
            }
            Command::SetCall {
                id,
                index,
                call,
                done,
            } => {
                self.set_call(id, index, call);
                let _ = done.send(());
            }
            Command::Fdb { reply } => {
                let entries = self.core.switch.entries(now);
                let entries = entries.map(|(vlan, mac, port, is_static, age)| {
                    (
                        port,
                        FdbEntry {
                            vlan,
                            mac,
                            owner: String::new(),
                            is_static,
                            age,
                        },
                    )
                });
                let _ = reply.send(entries.collect());
            }
            Command::CaptureStart(sink) => self.core.out.start_capture(sink),
            Command::CaptureStop(id) => self.core.out.stop_capture(id),
            Command::FaultAdd { rule, tally, done } => {
                self.core.faults(now).add(*rule, tally);
                let _ = done.send(());
            }
            Command::FaultPorts { id, from, to } => {
                if let Some(faults) = self.core.out.faults() {
                    faults.set_ports(id, from, to);
                }
            }
            Command::FaultRemove { id, done } => {
                if let Some(faults) = self.core.out.faults() {
                    faults.remove(id);
                }
                let _ = done.send(());
            }
            Command::RdmaAdd { id, function } => self.add_function(id, *function),
            Command::RdmaAttach { id, attachment } => self.attach_driver(id, *attachment),
            Command::RdmaRemap { id, rings, done } => self.remap_driver(id, *rings, done),
            Command::RdmaDetach { id, done } => {
                let _ = done.send(self.detach_driver(id));
            }
            Command::RdmaCall {
                id,
                index,
                call,
                done,
            } => {
                if let Some(function) = self.functions.get_mut(id) {
                    function.set_call(index, call);
                }
                let _ = done.send(());
            }
            Command::RdmaQuery { id, reply } => {
                // Without a function the answer is dropped, and the asker knows.
                if let Some(function) = self.functions.get_mut(id) {
                    let _ = reply.send(function.snapshot());
                }
            }
            Command::RdmaSetGid {
                id,
                index,
                gid,
                reply,
            } => {
                if let Some(function) = self.functions.get_mut(id) {
                    let _ = reply.send(function.set_gid_by_operator(index, gid));
                }
            }
            Command::RdmaSetRate { id, qp, kbps, reply } => {
                if let Some(function) = self.functions.get_mut(id) {
                    let _ = reply.send(function.set_ceiling(qp, kbps, now));
                }
            }
            Command::RdmaRates { id, reply } => {
                if let Some(function) = self.functions.get_mut(id) {
                    let _ = reply.send(function.rates());
                }
            }
            Command::Ping { reply } => {
                let _ = reply.send(());
            }
            Command::Shutdown => return false,
        }
        true
    }

    fn links_due(&self) -> Option<Instant> {
        self.core
            .links_due(self.uplinks.iter().flatten().map(|up| up.port))
    }
}

/// The first free place.
pub(super) fn free_index<T>(places: &mut Vec<Option<T>>) -> usize {
    match places.iter().position(Option::is_none) {
        Some(i) => i,
        None => {
            places.push(None);
            places.len() - 1
        }
    }
}
