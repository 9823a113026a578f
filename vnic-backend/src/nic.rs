//! Handle of the control plane on the running NIC.

mod acting;
mod adapters;
mod bonds;
mod bridges;
mod clock;
mod congestion;
mod faults;
mod lldp;
mod mirrors;
mod ports;
mod qos;
mod rdma;
mod recording;
mod settings;
mod state;
mod subnet;
mod trace;
mod verbs_faults;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, bounded};
use vnic_engine::counters::{self, CoreValues, HistogramSample, Values};
use vnic_engine::dropless::ModeChange;
use vnic_fabric::Instant;
use vnic_fabric::qos::StallNews;
use vnic_fabric::switch::{Loop, PortConfig};
use vnic_wire::EtherType;

use crate::capture::Sink;
use crate::check;
use crate::datapath::{self, Answer, Clock, CoreEvent, QosChange, Side, VirtualClock, Worker, WorkerHandle};
use crate::hub::EventHub;
use crate::rdma::GidRegistry;
use crate::rehearsal;
use crate::types::*;
use crate::vhost::{Endpoint, Voices};
pub use adapters::AdapterSetup;
use clock::Times;
use state::{PortEntry, State, not_found};

/// A running NIC. Cheap to clone; the data cores stop when [`Nic::shutdown`] is called.
#[derive(Clone)]
pub struct Nic {
    inner: Arc<Inner>,
}

struct Inner {
    config: NicConfig,
    workers: Arc<Vec<WorkerHandle>>,
    hub: EventHub,
    /// Which adapters speak for their addresses.
    voices: Arc<Voices>,
    /// Registry of the adapters' GIDs.
    gids: Arc<GidRegistry>,
    state: Mutex<State>,
    /// Time of the data cores.
    time: Clock,
    /// Algorithms of congestion control that adapters may use. Taken last.
    algorithms: Mutex<AlgorithmLimits>,
    /// Whether the devices of ports are followed.
    watched: AtomicBool,
}

/// A running capture; dropping it ends the capture.
pub struct Capture {
    /// The frames, in order of capture.
    pub frames: Receiver<CapturedFrame>,
    id: u64,
    workers: Arc<Vec<WorkerHandle>>,
}

/// Waits until the data cores have left the capture: this thread frees the frames that nobody has read, and no data core.
impl Drop for Capture {
    fn drop(&mut self) {
        let (id, deadline) = (self.id, std::time::Instant::now() + LEAVE);
        let workers = self.workers.iter();
        let left: Vec<_> = workers
            .map(|w| w.start(move |w| w.core.out.stop_capture(id)))
            .collect();
        for answer in left {
            answer.wait_until(deadline);
        }
    }
}

/// Interval at which [`Nic::turning`] looks whether data cores make rounds.
const LOOK: Duration = Duration::from_millis(1);
/// Greatest time that a capture waits for the data cores at its end.
const LEAVE: Duration = Duration::from_secs(1);
/// Captured frames by which a reader may lag.
const CAPTURE_BACKLOG: usize = 8192;

impl Nic {
    /// Starts one pinned poll loop for each data core.
    pub fn start(config: NicConfig) -> Result<Nic, NicError> {
        Nic::start_at(config, &Clock::start())
    }

    /// As [`Nic::start`], with one data core whose time advances by its rounds: for tests.
    pub fn start_virtual(config: NicConfig, clock: Arc<VirtualClock>) -> Result<Nic, NicError> {
        if config.data_cores.len() != 1 {
            return invalid("data_cores", "a clock that passes by rounds needs exactly one");
        }
        Nic::start_at(config, &Clock::Virtual(clock))
    }

    fn start_at(config: NicConfig, clock: &Clock) -> Result<Nic, NicError> {
        check::cores(&config.data_cores)?;
        let (events, news) = datapath::news();
        let workers = datapath::start(
            &config.data_cores,
            config.idle_spin,
            &config.switch,
            &events,
            clock,
            config.confine,
        )?;
        let (workers, hub) = (Arc::new(workers), EventHub::default());
        let inner = Arc::new(Inner {
            config,
            voices: Arc::new(Voices::new(workers.clone(), hub.clone())),
            workers,
            hub,
            gids: Arc::default(),
            state: Mutex::default(),
            time: clock.clone(),
            algorithms: Mutex::default(),
            watched: AtomicBool::new(false),
        });
        let first = Times {
            clock: clock::first(clock),
            free_running: false,
        };
        inner.lock().times = first;
        inner.everywhere(move |w| w.set_clock(first.clock, first.of_completions()));
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new()
            .name("vnic-news".into())
            .spawn(move || {
                for event in news {
                    let Some(inner) = weak.upgrade() else { return };
                    inner.pass_on(event);
                }
            })
            .map_err(NicError::os("starting a thread"))?;
        Ok(Nic { inner })
    }

    /// The switch's forwarding database.
    pub fn fdb(&self) -> Vec<FdbEntry> {
        let (owners, names) = {
            let state = self.inner.lock();
            let adapters = state.adapters.values().map(|e| (e.adapter.id, e.adapter.core));
            let bonds = state.bonds.values().map(|b| (b.id, b.core));
            let owners: BTreeMap<_, _> = adapters
                .chain(state.ports.values().map(|p| (p.id, p.core)))
                .chain(bonds)
                .collect();
            (owners, state.names.clone())
        };
        let mut table = Vec::new();
        for (core, w) in self.inner.workers.iter().enumerate() {
            // Entries age only on the core that serves their port: it has the current ones.
            let own = w.ask(|w| w.fdb()).unwrap_or_default();
            table.extend(
                own.into_iter()
                    .filter(|(port, _)| owners.get(port) == Some(&core)),
            );
        }
        let mut table: Vec<FdbEntry> = table
            .into_iter()
            .filter_map(|(port, e)| {
                Some(FdbEntry {
                    owner: names.get(&port)?.clone(),
                    ..e
                })
            })
            .collect();
        table.sort_by_key(|e| (e.vlan, e.mac));
        table
    }

    /// What would become of a frame from an adapter or a port: the decisions of the sender's data core, in their order. Nothing is
    /// sent, learned or counted. `head`: the first bytes of a frame of `len` bytes, without its FCS.
    ///
    /// Rates, queues and fault rules with a probability decide by more than the frame; the trace names the fault rules of the path.
    pub fn trace(&self, owner: &str, head: &[u8], len: usize) -> Result<Trace, NicError> {
        trace::trace(&self.inner, owner, head, len)
    }

    /// The NIC's clock.
    pub fn clock(&self) -> ClockStatus {
        clock::status(&self.inner.lock().times.clock, self.inner.time.now())
    }

    /// Sets the clock's time; its frequency stays. On return all data cores have it.
    pub fn set_clock(&self, time: Duration) -> Result<ClockStatus, NicError> {
        let time = clock::time(time)?;
        self.change_times(|times, now| times.clock.set(now, time))
    }

    /// Moves the clock's time, and changes its frequency. On return all data cores have it.
    pub fn adjust_clock(&self, by: ClockAdjustment) -> Result<ClockStatus, NicError> {
        clock::check(&by)?;
        self.change_times(|times, now| clock::adjust(&mut times.clock, now, &by))
    }

    /// Says whether times of completions are of the NIC's clock, or of a counter of nanoseconds that begins with the NIC. On return all
    /// data cores know it.
    pub fn stamp_in_real_time(&self, real_time: bool) -> Result<(), NicError> {
        self.change_times(|times, _| times.free_running = !real_time)
            .map(drop)
    }

    /// Changes what times are of, under the lock, so that all cores get changes in the same order.
    fn change_times(&self, change: impl FnOnce(&mut Times, Instant)) -> Result<ClockStatus, NicError> {
        let mut state = self.inner.state()?;
        rehearsal::acts()?;
        change(&mut state.times, self.inner.time.now());
        let times = state.times;
        self.inner
            .everywhere(move |w| w.set_clock(times.clock, times.of_completions()));
        Ok(clock::status(&times.clock, self.inner.time.now()))
    }

    /// Adds a mirror session. On return all data cores copy frames.
    pub fn add_mirror(&self, spec: MirrorSpec) -> Result<MirrorStatus, NicError> {
        mirrors::add(&self.inner, spec, true)
    }

    /// As [`Nic::add_mirror`], for a session that was made before: while its source or destination is not there, it waits.
    pub fn restore_mirror(&self, spec: MirrorSpec) -> Result<MirrorStatus, NicError> {
        mirrors::add(&self.inner, spec, false)
    }

    /// Removes a mirror session; its destination is a part of the network again. Returns its last status.
    pub fn remove_mirror(&self, name: &str) -> Result<MirrorStatus, NicError> {
        mirrors::remove(&self.inner, name)
    }

    /// Status of a mirror session.
    pub fn mirror(&self, name: &str) -> Result<MirrorStatus, NicError> {
        self.inner.state()?.mirror(name)
    }

    /// Status of all mirror sessions, by name.
    pub fn mirrors(&self) -> Vec<MirrorStatus> {
        mirrors::list(&self.inner)
    }

    /// The name behind a switch port, while it exists.
    pub fn port_name(&self, port: PortId) -> Option<String> {
        self.inner.lock().names.get(&port).cloned()
    }

    /// Every counter of the NIC, read without stopping the data path.
    pub fn counter_values(&self) -> Values {
        let state = self.inner.lock();
        let cpus = &self.inner.config.data_cores;
        let adapters = state.adapters.iter().map(|(name, e)| {
            let rdma = e.rdma.as_ref().map(|rdma| &*rdma.counters);
            let cpu = cpus.get(e.adapter.core).copied().unwrap_or_default();
            e.adapter.counters.read(name, cpu, rdma)
        });
        let ports = state.ports.iter().map(|(name, p)| p.counters.read(name));
        let cores = self.inner.workers.iter().map(|w| CoreValues {
            cpu: w.cpu,
            values: w.counters.snapshot(),
        });
        Values {
            adapters: adapters.collect(),
            ports: ports.collect(),
            cores: cores.collect(),
        }
    }

    /// Every histogram of the NIC, read without stopping the data path. An adapter without an RDMA function has none of
    /// messages.
    pub fn histograms(&self) -> Vec<HistogramSample> {
        let mut samples = Vec::new();
        let mut add = |def, owner: String, values| samples.push(HistogramSample { def, owner, values });
        for worker in self.inner.workers.iter() {
            let cpu = worker.cpu.to_string();
            add(&counters::ROUND, cpu.clone(), worker.times.round.read());
            add(&counters::WAKE_UP, cpu, worker.times.wake_up.read());
        }
        for (name, entry) in &self.inner.lock().adapters {
            if let Some(rdma) = &entry.rdma {
                add(
                    &counters::MESSAGE_LATENCY,
                    name.clone(),
                    rdma.counters.latency.read(),
                );
            }
            add(
                &counters::TX_QUEUE_DEPTH,
                name.clone(),
                entry.adapter.counters.depth.read(),
            );
        }
        samples
    }

    /// As [`Nic::counter_values`], each value with its row of the table.
    pub fn counters(&self) -> Vec<Sample> {
        self.counter_values().samples()
    }

    /// Events from now on. A subscriber that lags by more than 4096 events is disconnected; of events that guests cause in
    /// any number it has at most 2048 waiting, and further ones are left out.
    pub fn subscribe(&self) -> Receiver<NicEvent> {
        self.inner.hub.subscribe()
    }

    /// How often an event that a guest caused was left out for a subscriber.
    pub fn events_left_out(&self) -> u64 {
        self.inner.hub.left_out()
    }

    /// Starts a capture. A reader that falls behind loses frames; the loss is counted.
    pub fn capture(&self, spec: CaptureSpec) -> Result<Capture, NicError> {
        let mut state = self.inner.state()?;
        let mut ports = Vec::new();
        for name in &spec.owners {
            match (state.id_of(name), state.bonds.get(name)) {
                (Some(id), _) => ports.push(id),
                // Frames of a bond are captured at its members.
                (None, Some(bond)) => ports.extend(bond.ids()),
                (None, None) => return Err(not_found("adapter or port", name)),
            }
        }
        rehearsal::acts()?;
        state.next_capture += 1;
        let id = state.next_capture;
        let (sender, frames) = bounded(CAPTURE_BACKLOG);
        let snaplen = spec.snaplen as usize;
        let sink = Arc::new(Sink {
            ports,
            snaplen,
            drops_only: spec.drops_only,
            frames: sender,
            id,
        });
        for w in self.inner.workers.iter() {
            let sink = sink.clone();
            w.post(|w| w.core.out.start_capture(sink));
        }
        Ok(Capture {
            frames,
            id,
            workers: self.inner.workers.clone(),
        })
    }

    /// Whether all data cores make a round within the given time, whatever commands wait there.
    pub fn turning(&self, within: Duration) -> bool {
        let deadline = std::time::Instant::now() + within;
        let before: Vec<u64> = self.inner.workers.iter().map(WorkerHandle::rounds).collect();
        let turned = |(core, before): (&WorkerHandle, u64)| loop {
            if core.rounds() != before {
                return true;
            }
            if std::time::Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        };
        self.inner.workers.iter().zip(before).all(turned)
    }

    /// Whether each data core executes all earlier orders within the given time.
    pub fn responsive(&self, within: Duration) -> bool {
        let deadline = std::time::Instant::now() + within;
        let answers = self.inner.start_everywhere(|_| ());
        answers.into_iter().all(|a| a.wait_until(deadline).is_some())
    }

    /// Closes all connections, stops the data cores, removes the sockets.
    pub fn shutdown(&self) {
        let (adapters, ports) = {
            let mut state = self.inner.lock();
            state.ended = true;
            lldp::end(&self.inner.lldp(), &mut state);
            self.inner.end_bonds(&mut state);
            (
                std::mem::take(&mut state.adapters),
                std::mem::take(&mut state.ports),
            )
        };
        for mut entry in adapters.into_values() {
            self.inner.end_adapter(&mut entry);
        }
        for port in ports.into_values() {
            self.inner.remove_from_cores(port.id);
        }
        for w in self.inner.workers.iter() {
            w.end();
        }
        for w in self.inner.workers.iter() {
            w.join();
            // The kernel takes its time; each core's signals end on a thread, and the end of the process waits for the rest.
            let signals = w.signals.clone();
            std::thread::spawn(move || signals.end());
        }
        self.inner.hub.close();
    }
}

impl Inner {
    /// What link layer discovery does its work with.
    fn lldp(&self) -> lldp::Means<'_> {
        lldp::Means {
            workers: &self.workers,
            hub: &self.hub,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, unless the NIC has ended.
    fn state(&self) -> Result<MutexGuard<'_, State>, NicError> {
        let state = self.lock();
        if state.ended {
            Err(NicError::ShuttingDown)
        } else {
            Ok(state)
        }
    }

    fn adapter(&self, name: &str) -> Result<Arc<Endpoint>, NicError> {
        self.endpoints(name).map(|(adapter, _)| adapter)
    }

    /// The Ethernet socket of an adapter, and its RDMA socket.
    fn endpoints(&self, name: &str) -> Result<(Arc<Endpoint>, Option<Arc<Endpoint>>), NicError> {
        let state = self.state()?;
        let entry = state.adapter(name)?;
        let rdma = entry.rdma.as_ref().map(|r| r.endpoint.clone());
        Ok((entry.adapter.clone(), rdma))
    }

    /// The index of the wanted CPU's core, or of the one with the least load.
    fn core_for(&self, wanted: Option<usize>, load: impl Fn(usize) -> usize) -> usize {
        let cores = &self.config.data_cores;
        let asked = wanted.and_then(|cpu| cores.iter().position(|c| *c == cpu));
        asked
            .or_else(|| (0..cores.len()).min_by_key(|c| load(*c)))
            .unwrap_or(0)
    }

    /// Runs a job on all cores. Each answer can be waited for.
    fn start_everywhere(&self, job: impl FnOnce(&mut Worker) + Clone + Send + 'static) -> Vec<Answer<()>> {
        self.workers.iter().map(|w| w.start(job.clone())).collect()
    }

    /// Runs a job on all cores and waits until all have done it.
    fn everywhere(&self, job: impl FnOnce(&mut Worker) + Clone + Send + 'static) {
        wait(self.start_everywhere(job));
    }

    fn add_to_cores(&self, id: PortId, owner: usize, config: &PortConfig, side: Side) {
        let mut side = Some(side);
        for (core, w) in self.workers.iter().enumerate() {
            let own = if core == owner { side.take() } else { None };
            let (config, side) = (config.clone(), own.unwrap_or(Side::Remote(owner)));
            w.post(move |w| w.add_port(id, config, side));
        }
    }

    /// Sends the limits of storm control of a port to its core and waits until it has them.
    fn set_storm(&self, entry: &PortEntry) {
        let (id, limits) = (entry.id, entry.spec.storm);
        self.workers[entry.core].call(move |w| w.set_storm(id, limits));
    }

    fn remove_from_cores(&self, id: PortId) {
        self.everywhere(move |w| w.remove_port(id));
    }

    /// Sends the quality of service of a port to all cores and waits until all have it.
    fn send_qos(&self, id: PortId, change: Arc<QosChange>) {
        self.everywhere(move |w| w.set_qos(id, change));
    }

    fn set_link(&self, id: PortId, up: bool) {
        for w in self.workers.iter() {
            w.post(move |w| w.set_link(id, up, None));
        }
    }

    /// Frees the number of a removed adapter or port for another one.
    fn forget(&self, id: PortId, name: &str) {
        let mut state = self.lock();
        state.names.remove(&id);
        self.bind_faults(&state, name);
        mirrors::bind(self, &state);
    }

    /// Turns an event of a data core into one of the NIC.
    fn pass_on(&self, event: CoreEvent) {
        let mut state = self.lock();
        let (port, kind) = match event {
            CoreEvent::RingFault { port, ring, fault } => (
                port,
                NicEventKind::RingFault {
                    ring,
                    what: fault.to_string(),
                },
            ),
            CoreEvent::Spoof { port, source } => (port, NicEventKind::SpoofedSource { source }),
            CoreEvent::Wake {
                port,
                source,
                by,
                pattern,
            } => {
                let by = state.names.get(&by).cloned().unwrap_or_default();
                let kind = match pattern {
                    None => NicEventKind::MagicPacket { source, by },
                    Some(n) => {
                        let mut all = state.adapters.values();
                        let of = all.find(|e| e.adapter.id == port).map(|e| e.adapter.spec());
                        let pattern = of.and_then(|spec| spec.wake_patterns.get(n).map(ToString::to_string));
                        NicEventKind::WakePattern {
                            source,
                            by,
                            pattern: pattern.unwrap_or_default(),
                        }
                    }
                };
                (port, kind)
            }
            CoreEvent::SpoofedAddress { port, claim } => (port, NicEventKind::SpoofedAddress(claim)),
            CoreEvent::SubnetQuestion {
                port,
                place,
                question,
                vlan,
            } => {
                let answer = subnet::answer(&mut state, &self.gids, port, &question.mad, vlan);
                if let Some((core, answer)) = answer {
                    let number = question.number;
                    self.workers[core].post(move |w| w.functions.answer(port, place, number, &answer));
                }
                return;
            }
            CoreEvent::Remains(left) => {
                // Nothing waits for this thread, which may take long to free it.
                drop(state);
                drop(left);
                return;
            }
            CoreEvent::Fault(report) => {
                let (owner, injection) = state.injection(*report);
                drop(state);
                self.hub.publish(&owner, NicEventKind::Fault(injection));
                return;
            }
            CoreEvent::Panic { port } | CoreEvent::RdmaPanic { port } => {
                if let Some(e) = state.adapters.values().find(|e| e.adapter.id == port) {
                    let hit = match (&event, &e.rdma) {
                        (CoreEvent::RdmaPanic { .. }, Some(rdma)) => rdma.endpoint.clone(),
                        _ => e.adapter.clone(),
                    };
                    drop(state);
                    hit.fail();
                }
                return;
            }
            CoreEvent::VerbsFaultHit { port, id, name } => (port, NicEventKind::VerbsFaultHit { id, name }),
            CoreEvent::RdmaFault { port, what } => (port, NicEventKind::RdmaFault { what }),
            CoreEvent::RdmaGaveUp { port, report } => (port, NicEventKind::RdmaGaveUp(report)),
            CoreEvent::BadPkey { port, violation } => (port, NicEventKind::BadPkey(violation)),
            CoreEvent::ProgramFault { port, faults } => (port, NicEventKind::ProgramFault(faults)),
            CoreEvent::RdmaConnections { port, report } => (port, NicEventKind::RdmaConnections(report)),
            CoreEvent::GidChanged {
                port,
                index,
                gid,
                added,
            } => (port, NicEventKind::GidChanged { index, gid, added }),
            CoreEvent::GidConflict { port, conflict } => (port, NicEventKind::GidConflict(conflict)),
            CoreEvent::Dropless { port, told } => (
                port,
                match told {
                    ModeChange::Entered => NicEventKind::DroplessEntered,
                    ModeChange::Exited => NicEventKind::DroplessExited,
                    ModeChange::Timeout { queue } => NicEventKind::DroplessTimeout { queue: queue.into() },
                },
            ),
            CoreEvent::Stall { port, news } => (
                port,
                match news {
                    StallNews::Minor => NicEventKind::PauseStormWarning,
                    StallNews::Critical => NicEventKind::PauseStorm,
                    StallNews::Recovered => NicEventKind::PauseStormOver,
                },
            ),
            CoreEvent::ClassStalled { port, class } => (port, NicEventKind::ClassStalled { class }),
            CoreEvent::Loop(Loop {
                ports: [before, port],
                vlan,
                mac,
                moves,
            }) => {
                let other = state.names.get(&before).cloned().unwrap_or_default();
                (
                    port,
                    NicEventKind::LoopSuspected {
                        other,
                        vlan,
                        mac,
                        moves,
                    },
                )
            }
            CoreEvent::PortGone { port, index } => {
                self.port_gone(&mut state, port, index);
                return;
            }
            CoreEvent::SlowFrame { port, frame } => {
                match frame.get(12..14) == Some(&EtherType::LLDP.0.to_be_bytes()) {
                    true => lldp::frame(&self.lldp(), &mut state, port, &frame),
                    false => self.slow_frame(&mut state, port, &frame),
                }
                return;
            }
            CoreEvent::BondMoved { port } => {
                self.bond_moved(&state, port);
                return;
            }
        };
        if let Some(name) = state.names.get(&port) {
            self.hub.publish(name, kind);
        }
    }
}

/// Waits for all answers. A core that has ended drops its answer, which counts as one.
fn wait(answers: Vec<Answer<()>>) {
    for answer in answers {
        answer.wait();
    }
}
