//! One adapter's RDMA function: the engine, driven by rings in guest memory.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use crossbeam_channel::Sender;
use rustix::fd::BorrowedFd;
use vnic_device::event::EventKind;
use vnic_engine::clock::NicClock;
use vnic_engine::counters::{Block, TimeHistogram};
use vnic_engine::gids::GidLearner;
use vnic_engine::rdma::counters::ReceivedByPriority;
use vnic_engine::rdma::{
    Completion, Congestion, Counters, Device, DeviceConfig, FlowStatus, GidKind, Marking, PkeyViolation,
    Place, QpErrors, QpNumber, QpObservation, QpPage, QpStatus, VerbsError,
};
use vnic_engine::settings::RoceMode;
use vnic_fabric::{DropReason, Instant};
use vnic_wire::pkey::PkeyTable;

use super::account::{Account, PACKET, of_a_turn};
use super::config;
use super::connection_news::ConnectionNews;
use super::device_memory::DeviceMemoryTable;
use super::events::EventQueue;
use super::flows::Flows;
use super::gid_news::GidNews;
use super::identity::Identity;
use super::journal::{Journal, Recorder};
use super::memory::FunctionMemory;
use super::memory_share::MemoryShare;
use super::outage::Outage;
use super::partitions::Partitions;
use super::registry::Claim;
use super::remains::Remains;
use super::remap::Remap;
use super::request::Scratch;
use super::sample::Sample;
use super::services::Services;
use super::session::Session;
use super::verbs_rules::{FirstHit, VerbsFaults};
use crate::call::Call;
use crate::mem::MemMap;
use crate::ring::{Fault, SplitRing};
use crate::types::{
    Budget, Caller, ConnectionReport, ConnectionStatus, GidConflict, GidRow, QpRate, RdmaPort, ResourceRow,
};
use crate::types::{Faults, RdmaGaveUp};

/// Largest number of a driver's faults that are reported.
const COMPLAINTS: u32 = 16;
/// Places of queue pairs, with or without one, that are looked at for one question.
const PLACES_AT_ONCE: u32 = 4096;
/// Entries of a list that take as long to free as an object.
const ENTRIES_OF_AN_OBJECT: usize = 64;
/// Connections whose peers hear that a driver has gone. Those of the others find out by their queue pairs' retries.
const PARTED: usize = 256;
/// Time after which a full completion ring is looked at again, if the core would sleep.
const FULL_RING_PAUSE: Duration = Duration::from_millis(1);

/// A driver's virtqueues, eventfds and memory.
#[derive(Debug)]
pub struct Attachment {
    /// Control virtqueue; `None` after a fault.
    pub control: Option<SplitRing>,
    /// The driver's call eventfd for commands.
    pub control_call: Option<Arc<Call>>,
    /// Event queues.
    pub events: Vec<EventQueue>,
    /// The driver's kick eventfds: of commands, event buffers and doorbells.
    pub kicks: Vec<Arc<File>>,
    /// The guest's memory.
    pub map: Arc<MemMap>,
    /// The driver's process.
    pub owner: Option<Caller>,
    /// The name that its program had when it came, if it shares the function.
    pub program: Option<String>,
}

/// State of an RDMA function for the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaSnapshot {
    /// Reason why the function takes no driver, if there is one.
    pub off: Option<&'static str>,
    /// Filled entries of the GID table, by index.
    pub gids: Vec<GidRow>,
    /// Objects in use, by type.
    pub resources: Vec<ResourceRow>,
    /// Queue pairs with the most errors.
    pub worst: Vec<(QpNumber, QpErrors)>,
    /// Memory of the daemon for the objects.
    pub memory: Budget,
}

/// Virtqueues of an RDMA function in new memory.
pub struct RdmaRings {
    /// Control virtqueue.
    pub control: Option<SplitRing>,
    /// Event virtqueues, by event queue.
    pub events: Vec<Option<SplitRing>>,
    /// The guest's memory with the virtqueues.
    pub map: Arc<MemMap>,
}

/// What the event log is told of drivers.
#[derive(Debug, Default)]
struct Complaints {
    /// Faults.
    untold: Vec<String>,
    /// Number of this driver's faults, reported or not.
    of_this_driver: u32,
    give_ups: GiveUps,
    /// What has become of connections.
    connections: ConnectionNews,
    /// Whether the program of congestion control has failed, and is stopped: as far as it was reported.
    program: (bool, bool),
}

/// Reports of requests that were given up.
#[derive(Debug)]
struct GiveUps {
    /// Requests of the device that were noted: for want of answers, and of receivers that were ready.
    noted: [u64; 2],
    /// Noted requests that were not reported yet.
    untold: [u64; 2],
    /// No report before this time.
    after: Instant,
    /// The adapter's drops by reason at the last report.
    drops: [u64; DropReason::ALL.len()],
}

impl Default for GiveUps {
    fn default() -> GiveUps {
        GiveUps {
            noted: [0; 2],
            untold: [0; 2],
            after: Instant::default(),
            drops: [0; DropReason::ALL.len()],
        }
    }
}

/// Time between two reports of requests that were given up.
const GIVE_UPS_EVERY: Duration = Duration::from_secs(1);

/// GID table of an adapter: its sources and its reports.
pub(super) struct GidState {
    /// Keeps the GID table in line with the guest's addresses.
    pub(super) learner: GidLearner,
    pub(super) news: GidNews,
    /// Claims of the table's entries in the registry, by index.
    pub(super) claims: BTreeMap<u16, Claim>,
    /// A GID conflict to be reported, if there is one; `conflicts_after`: not before this time.
    pub(super) conflict: Option<GidConflict>,
    pub(super) conflicts_after: Instant,
    /// The guest is not asked again before this time because another adapter claims its addresses.
    pub(super) doubted_until: Instant,
    /// How often the table has changed.
    pub version: u64,
}

/// Counts of devices before the last reset.
struct Earlier {
    counters: [u64; Counters::COUNT],
    /// Received packets, by priority.
    received: ReceivedByPriority,
}

/// Counters of an adapter's RDMA function.
#[derive(Default)]
pub struct RdmaCounters {
    /// Counts, in the order of [`Counters::NAMES`].
    pub counts: Block<{ Counters::COUNT }>,
    /// Time of a sample of the requests of reliable queue pairs.
    pub latency: TimeHistogram,
}

/// The counters that any thread may read.
pub(super) struct Published {
    counters: Arc<RdmaCounters>,
    /// Whether the counters are older than the function's state.
    pub(super) stale: bool,
    /// The request whose time is taken.
    pub(super) sample: Sample,
}

/// Settings of the adapter's RoCE.
struct RoceSettings {
    /// `roce_mode`.
    mode: RoceMode,
    /// `*NetworkDirect`.
    network_direct: bool,
    /// `EceSupportEnabled`.
    ece: bool,
    /// Marking of packets.
    marking: Marking,
}

/// The RDMA function of one adapter, which exists as long as the adapter, with or without a driver; or what a further process has
/// of a function that processes share ([`Function::seat`]).
// Wide: what a driver has of its own, and what the function has, each by its file.
pub struct Function {
    pub(super) device: Device,
    pub(super) config: DeviceConfig,
    pub(super) memory: FunctionMemory,
    pub(super) device_memory: DeviceMemoryTable,
    pub(super) session: Session,
    /// Memory of the daemon that the driver's objects take, if it shares the function.
    pub(super) share: MemoryShare,
    /// Services for which the driver listens.
    pub(super) services: Services,
    /// Frames that the driver's raw packet queue pairs have.
    pub flows: Flows,
    pub(super) gids: GidState,
    pub(super) attached: Option<Attachment>,
    /// Work that this turn may still do, or debt from earlier turns.
    pub account: Account,
    pub(super) scratch: Scratch,
    pub(super) identity: Identity,
    earlier: Earlier,
    pub(super) published: Published,
    pub(super) remains: Remains,
    /// Its part in a recording, while one runs.
    pub(super) recorder: Option<Box<Recorder>>,
    complaints: Complaints,
    settings: RoceSettings,
    pub(super) outage: Outage,
    partitions: Partitions,
    /// The NIC's clock, of which the times of completions are.
    pub(super) clock: NicClock,
    /// Rules of an operator for completions and commands, and what they hold back; `None` without rules.
    pub(super) verbs_faults: Option<Box<VerbsFaults>>,
    /// Rules that hit something for the first time, for the event log.
    pub(super) first_hits: Vec<FirstHit>,
}

/// Makes an engine for the next driver. Its random seed hides the numbers of earlier drivers, and is unknown to others.
fn device(config: &DeviceConfig) -> Result<Device, VerbsError> {
    Device::new(DeviceConfig {
        seed: RandomState::new().build_hasher().finish(),
        ..config.clone()
    })
}

impl Function {
    /// Makes a function without a driver. The limits of `config` are valid; its counters go on from what is published.
    pub fn new(
        config: DeviceConfig,
        identity: Identity,
        published: Arc<RdmaCounters>,
    ) -> Result<Function, VerbsError> {
        let mut learner = GidLearner::new(config.mac, config.limits.gid_table_len);
        learner.restrict(&identity.allowed);
        let mut function = Function {
            device: device(&config)?,
            session: Session::new(config.place),
            share: MemoryShare::new(&config.limits),
            services: Services::default(),
            flows: Flows::default(),
            config,
            memory: FunctionMemory::default(),
            device_memory: Default::default(),
            gids: GidState {
                learner,
                news: GidNews::default(),
                claims: BTreeMap::new(),
                conflict: None,
                conflicts_after: Instant(0),
                doubted_until: Instant(0),
                version: 0,
            },
            attached: None,
            account: Account::default(),
            scratch: Default::default(),
            identity,
            earlier: Earlier {
                counters: published.counts.snapshot(),
                received: ReceivedByPriority::default(),
            },
            published: Published {
                counters: published,
                stale: false,
                sample: Sample::default(),
            },
            remains: Remains::default(),
            recorder: None,
            complaints: Complaints::default(),
            settings: RoceSettings {
                mode: RoceMode::default(),
                network_direct: true,
                ece: true,
                marking: Marking::default(),
            },
            outage: Outage::default(),
            partitions: Partitions::default(),
            clock: NicClock::default(),
            verbs_faults: None,
            first_hits: Vec::new(),
        };
        function.apply_gids();
        // The adapter's own GIDs are always there, and are not reported.
        function.gids.news.clear();
        Ok(function)
    }

    // Drivers attach and detach.

    /// Attaches a driver: to its place in a function that it shares, or to the whole function. Returns its kick eventfds.
    pub fn attach(
        &mut self,
        attachment: Attachment,
        place: Option<Place>,
    ) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.config.place = place;
        self.reset();
        self.complaints.of_this_driver = 0;
        if let Some(recorder) = &mut self.recorder {
            recorder.next(attachment.owner);
        }
        self.memory.set_map(attachment.map.clone());
        self.attached = Some(attachment);
        self.kicks()
    }

    /// Tells the peers of connections that their driver has gone, as a kernel does for a program that was killed: once, for nobody is
    /// left to repeat it. Returns in how many turns all of it is sent, if nobody holds it up.
    pub fn part(&mut self, now: Instant) -> usize {
        let connections = self.device.communication().map_or(0, |cm| cm.connections());
        if connections == 0 {
            return 0;
        }
        self.device.connections(|cm| cm.destroy_some(now, PARTED));
        let messages_of_a_turn = (of_a_turn(false) / PACKET).unsigned_abs() as usize;
        connections.min(PARTED) / messages_of_a_turn + 1
    }

    /// Detaches the driver and ends all its objects. Returns the ring indexes of its virtqueues: control, then events.
    pub fn detach(&mut self) -> Vec<u16> {
        self.reset();
        self.memory.set_map(Arc::default());
        let Some(a) = self.attached.take() else {
            return Vec::new();
        };
        let base = |ring: &Option<SplitRing>| ring.as_ref().map_or(0, SplitRing::base);
        let mut bases = vec![base(&a.control)];
        bases.extend(a.events.iter().map(|q| base(&q.ring)));
        bases
    }

    /// What a further process has of this function: a device of its own, with the function's addresses, settings and published
    /// counters, but no part in learning addresses.
    pub fn seat(&self, place: Place) -> Option<Function> {
        let config = DeviceConfig {
            place: Some(place),
            ..self.config.clone()
        };
        let published = self.published.counters.clone();
        let mut seat = Function::new(config, self.identity.seat(), published).ok()?;
        seat.earlier.counters = [0; Counters::COUNT];
        seat.share = self.share.beside();
        seat.services = self.services.beside();
        seat.flows = self.flows.beside();
        seat.gids.learner.allow(&[]);
        seat.apply_gids();
        seat.gids.news.clear();
        seat.follow_gids(self);
        seat.outage = self.outage;
        seat.set_pkeys(self.partitions.table());
        seat.clock = self.clock;
        seat.settings.mode = self.settings.mode;
        seat.settings.network_direct = self.settings.network_direct;
        seat.settings.ece = self.settings.ece;
        seat.set_marking(self.settings.marking.clone());
        seat.set_congestion(self.device.congestion().clone(), Instant(0));
        seat.record_with(self.recorder.as_deref().map(Recorder::beside));
        seat.verbs_faults = self.verbs_faults.as_ref().and_then(|faults| faults.anew());
        Some(seat)
    }

    /// Takes from a seat of this function what is told of the function as a whole: faults and requests that were given up; with
    /// `all`, its counters, too: it has ended.
    pub fn gather(&mut self, seat: &mut Function, all: bool) {
        seat.note_give_ups();
        self.partitions.gather(&mut seat.device);
        self.complaints
            .connections
            .gather(&mut seat.complaints.connections);
        let given_up = std::mem::take(&mut seat.complaints.give_ups.untold);
        for (sum, more) in self.complaints.give_ups.untold.iter_mut().zip(given_up) {
            *sum += more;
        }
        self.complaints.untold.append(&mut seat.complaints.untold);
        self.first_hits.append(&mut seat.first_hits);
        if all {
            if let (Some(recorder), Some(gone)) = (&mut self.recorder, seat.recorder.take()) {
                recorder.inherit(*gone);
            }
            for (sum, value) in self.earlier.counters.iter_mut().zip(seat.counter_values()) {
                *sum += value;
            }
            for (sum, new) in self.earlier.received.iter_mut().zip(seat.take_received()) {
                sum[0] += new[0];
                sum[1] += new[1];
            }
            self.published.stale = true;
        }
    }

    /// Sets the call eventfd of a virtqueue.
    pub fn set_call(&mut self, index: u16, call: Option<Arc<Call>>) {
        let Some(a) = &mut self.attached else { return };
        match index.checked_sub(1) {
            None => a.control_call = call,
            Some(queue) => {
                if let Some(queue) = a.events.get_mut(usize::from(queue)) {
                    queue.call = call;
                }
            }
        }
    }

    /// Begins a recording with room for so many requests, or ends the one that runs. Returns what that has noted.
    pub fn record(&mut self, limit: Option<usize>, now: Instant) -> Vec<Journal> {
        if let Some(recorder) = &mut self.recorder {
            recorder.collect(&mut self.device, now);
        }
        let owner = self.attached.as_ref().and_then(|a| a.owner);
        let before = self.record_with(limit.map(|limit| Recorder::new(limit, owner, now)));
        before
            .map(|recorder| recorder.into_journals())
            .unwrap_or_default()
    }

    /// Takes part in a recording, or not any more. Returns its part in the one before.
    fn record_with(&mut self, recorder: Option<Recorder>) -> Option<Box<Recorder>> {
        self.device.set_noting(recorder.is_some());
        std::mem::replace(&mut self.recorder, recorder.map(Box::new))
    }

    /// Forgets what is followed of a queue pair that begins anew or is destroyed.
    pub(super) fn forget_qp(&mut self, qp: u32, now: Instant) {
        if self.recorder.is_some() {
            // What it has to tell is told first.
            self.finish(now);
        }
        self.published.sample.forget(qp);
        if let Some(recorder) = &mut self.recorder {
            recorder.ended(qp);
        }
    }

    /// A new function for the same adapter, after a bug hit this one.
    pub fn successor(&self) -> Option<Function> {
        self.forget_gids();
        let published = self.published.counters.clone();
        let mut fresh = Function::new(self.config.clone(), self.identity.clone(), published).ok()?;
        fresh.earlier.counters = self.counter_values();
        fresh.outage = self.outage;
        fresh.set_pkeys(self.partitions.table());
        fresh.complaints.give_ups.drops = self.complaints.give_ups.drops;
        fresh.complaints.give_ups.after = self.complaints.give_ups.after;
        fresh.settings.ece = self.settings.ece;
        fresh.flows.set_vxlan_port(self.flows.vxlan_port());
        fresh.set_roce(self.settings.mode, self.settings.network_direct);
        fresh.set_marking(self.settings.marking.clone());
        fresh.set_congestion(self.device.congestion().clone(), Instant(0));
        fresh.record_with(self.recorder.as_deref().map(Recorder::beside));
        fresh.verbs_faults = self.verbs_faults.as_ref().and_then(|faults| faults.anew());
        Some(fresh)
    }

    /// Sets `roce_mode` and `*NetworkDirect` of the adapter. If they allow no driver any more, the driver's objects are
    /// ended.
    pub fn set_roce(&mut self, mode: RoceMode, network_direct: bool) {
        self.settings.mode = mode;
        self.settings.network_direct = network_direct;
        self.gids.learner.allow(match self.off() {
            Some(_) => &[],
            None if mode == RoceMode::V1 => &[GidKind::RoceV1],
            None => &[GidKind::RoceV1, GidKind::RoceV2],
        });
        if self.off().is_some() && self.session.hello {
            self.reset();
        }
        self.apply_gids();
    }

    /// Sets `EceSupportEnabled` of the adapter, for connections from now on.
    pub fn set_ece(&mut self, enabled: bool) {
        self.settings.ece = enabled;
    }

    /// Whether connections have enhanced establishment.
    pub(super) fn ece(&self) -> bool {
        self.settings.ece
    }

    /// Sets the NIC's clock.
    pub fn set_clock(&mut self, clock: NicClock) {
        self.clock = clock;
    }

    /// Sets what the port says of itself. The driver hears of a port that came up or went down.
    pub fn set_port(&mut self, port: RdmaPort) {
        self.outage.set_port(port, &mut self.session);
    }

    /// Fails as a whole: all objects end, and the driver hears of it. Only a reset helps.
    pub fn fail(&mut self) {
        if self.session.hello {
            self.reset();
            self.session.failed = true;
            self.session.events.push(EventKind::DeviceFatal, 0, 0);
        }
    }

    /// Tells the driver of an event that has not happened.
    pub fn tell(&mut self, kind: EventKind, object: u32) {
        if self.session.hello {
            self.session.events.push(kind, object, 0);
        }
    }

    /// Takes the device away, so that all objects end, or gives it back.
    pub fn set_away(&mut self, away: bool) {
        if away && self.session.hello {
            self.reset();
        }
        self.outage.away = away;
    }

    /// Sets the P_Keys of the port, under traffic.
    pub fn set_pkeys(&mut self, table: PkeyTable) {
        self.partitions.set(table, &mut self.device, &mut self.session);
    }

    /// Packets with a wrong P_Key since the last report, when one is due.
    pub fn take_pkey_violation(&mut self, now: Instant) -> Option<PkeyViolation> {
        self.partitions.take(now, &mut self.device)
    }

    /// Sets the marking of packets.
    pub fn set_marking(&mut self, marking: Marking) {
        self.device.set_marking(marking.clone());
        self.settings.marking = marking;
    }

    /// Sets congestion control: rates of queue pairs, and answers to marked packets.
    pub fn set_congestion(&mut self, congestion: Congestion, now: Instant) {
        self.device.set_congestion(congestion, now);
    }

    /// Sets whether queue pairs that are connected later send from one UDP port, or each from its own.
    pub fn pin_source_port(&mut self, pin: bool) {
        self.config.pin_source_port = pin;
        self.device.pin_source_port(pin);
    }

    /// Queue pairs that congestion control limits now.
    pub fn flows(&mut self, now: Instant) -> Vec<FlowStatus> {
        self.device.flows(now).collect()
    }

    /// Queue pairs behind a place, at most `most`.
    pub fn queue_pairs(&mut self, behind: Option<u32>, most: usize, now: Instant) -> QpPage {
        self.device.qp_page(behind, most, PLACES_AT_ONCE, now)
    }

    /// Connections behind a number, at most `most`.
    pub fn connections(&self, behind: Option<u32>, most: usize) -> impl Iterator<Item = ConnectionStatus> {
        let cm = self.device.communication().into_iter();
        let place = self.config.place.unwrap_or_default();
        cm.flat_map(move |cm| cm.page(behind, most))
            .map(move |of| ConnectionStatus { place, of })
    }

    /// A queue pair, with what was counted of it while somebody looks ([`Device::observe_qp`]).
    pub fn queue_pair(
        &mut self,
        qp: u32,
        keep: Option<Duration>,
        now: Instant,
    ) -> Result<(QpStatus, Option<QpObservation>), VerbsError> {
        let status = self.device.qp_status(QpNumber(qp), now)?;
        Ok((status, self.device.observe_qp(QpNumber(qp), keep, now)?))
    }

    /// Sets the operator's limit of a queue pair, in kbit/s; 0: none.
    pub fn set_ceiling(&mut self, qp: u32, kbps: u32, now: Instant) -> Result<(), VerbsError> {
        self.device.set_qp_ceiling(QpNumber(qp), kbps, now)
    }

    /// Queue pairs with a rate limit.
    pub fn rates(&mut self) -> Vec<QpRate> {
        let rates = self.device.paced_qps().map(|(qp, limit, ceiling)| QpRate {
            qp: qp.0,
            rate_kbps: limit.rate,
            max_burst: limit.max_burst,
            ceiling_kbps: ceiling,
        });
        rates.collect()
    }

    /// Packets received since the last call, by priority.
    pub fn take_received(&mut self) -> ReceivedByPriority {
        let mut all = std::mem::take(&mut self.earlier.received);
        for (sum, new) in all.iter_mut().zip(self.device.take_received()) {
            sum[0] += new[0];
            sum[1] += new[1];
        }
        all
    }

    /// Reason why the function takes no driver, if there is one.
    pub fn off(&self) -> Option<&'static str> {
        match (self.settings.mode, self.settings.network_direct) {
            _ if self.outage.away => Some("a scenario has taken the device away"),
            (_, false) => Some("*NetworkDirect is 0: the adapter has no RDMA"),
            (RoceMode::Off, true) => Some("roce_mode is 4: the adapter has no RoCE"),
            _ => None,
        }
    }

    /// Replaces the guest's memory; its virtqueues were set up again in the new one. Objects stay; those whose memory is gone
    /// fail. `done` is sent when nothing uses the old memory any more.
    pub fn remap(&mut self, rings: RdmaRings, done: Sender<()>) {
        let go_on = |ring: &mut Option<SplitRing>, before: Option<&SplitRing>| {
            if let (Some(ring), Some(before)) = (ring, before) {
                ring.go_on_from(before);
            }
        };
        let RdmaRings {
            map,
            mut control,
            events,
        } = rings;
        self.memory.set_map(map.clone());
        // The memory of the command's lists that was checked may be gone.
        self.scratch.begun = None;
        if let Some(a) = &mut self.attached {
            a.map = map;
            go_on(&mut control, a.control.as_ref());
            a.control = control;
            for (queue, mut ring) in a.events.iter_mut().zip(events) {
                go_on(&mut ring, queue.ring.as_ref());
                queue.ring = ring;
            }
        }
        self.session.remap = Some(Remap::new(done));
    }

    /// Ends all objects. Peers are not told.
    pub fn reset(&mut self) {
        self.gids.learner.driver_down();
        self.apply_gids();
        for (sum, value) in self
            .earlier
            .counters
            .iter_mut()
            .zip(self.device.counters().clone().at_end().values())
        {
            *sum += value;
        }
        let gids: Vec<_> = self
            .device
            .gids()
            .iter()
            .map(|(index, entry)| (index, *entry))
            .collect();
        self.earlier.received = self.take_received();
        self.note_give_ups();
        self.partitions.gather(&mut self.device);
        if let Some(recorder) = &mut self.recorder {
            recorder.ended_all(&mut self.device);
        }
        let mut before = None;
        if let Ok(mut fresh) = device(&self.config) {
            fresh.set_noting(self.recorder.is_some());
            fresh.set_marking(self.settings.marking.clone());
            self.partitions.begin(&mut fresh);
            fresh.set_congestion(self.device.congestion().clone(), Instant(0));
            before = Some(std::mem::replace(&mut self.device, fresh));
            self.complaints.give_ups.noted = [0, 0];
        }
        for (index, entry) in gids {
            let _ = self.device.set_gid(index, Some(entry));
        }
        let entries = |device: &Device| {
            let used = device
                .resources()
                .iter()
                .map(|(_, usage)| usage.used as usize)
                .sum::<usize>();
            used * ENTRIES_OF_AN_OBJECT
        };
        let left = std::mem::replace(&mut self.session, Session::new(self.config.place));
        self.share.give_back();
        self.services.give_all();
        self.flows.end_all();
        let entries = before.as_ref().map_or(0, entries) + left.ring_extents as usize;
        self.remains
            .leave(entries, (before, left.qps, left.srqs, left.cqs));
        self.device_memory.clear(&mut self.memory);
        self.scratch.begun = None;
        self.verbs_faults = self.verbs_faults.as_ref().and_then(|faults| faults.anew());
        self.published.sample = Sample::default();
    }

    /// Whether there is a driver, which takes packets.
    #[inline]
    pub fn is_live(&self) -> bool {
        self.session.hello
    }

    /// Objects that drivers have left, to be freed on another thread.
    pub fn take_remains(&mut self) -> Option<Box<dyn Any + Send>> {
        self.remains.take()
    }

    /// Adds memory that the engine has freed to the function's [`Remains`].
    pub(super) fn leave_freed(&mut self) {
        if let Some(freed) = self.device.take_freed() {
            self.remains.leave(freed.entries(), freed);
        }
    }

    /// Faults for the event log.
    pub fn take_faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.complaints.untold)
    }

    fn note_give_ups(&mut self) {
        let counters = self.device.counters();
        let now = [
            counters.req_transport_retries_exceeded,
            counters.req_rnr_retries_exceeded,
        ];
        let GiveUps { noted, untold, .. } = &mut self.complaints.give_ups;
        for ((untold, noted), now) in untold.iter_mut().zip(noted).zip(now) {
            *untold += now - *noted;
            *noted = now;
        }
    }

    /// Requests that were given up since the last report, when one is due. `drops`: the adapter's drops for a reason.
    pub fn take_give_ups(&mut self, now: Instant, drops: impl Fn(DropReason) -> u64) -> Option<RdmaGaveUp> {
        let give_ups = &mut self.complaints.give_ups;
        if give_ups.untold == [0, 0] || now < give_ups.after {
            return None;
        }
        give_ups.after = now + GIVE_UPS_EVERY;
        let [unanswered, not_ready] = std::mem::take(&mut give_ups.untold);
        let mut grown = Vec::new();
        for (reason, before) in DropReason::ALL.into_iter().zip(&mut give_ups.drops) {
            let count = drops(reason);
            if count > *before {
                grown.push((reason, count - *before));
            }
            *before = count;
        }
        Some(RdmaGaveUp {
            unanswered,
            not_ready,
            drops: grown,
        })
    }

    /// Failures of the program of congestion control, the first time and when another algorithm takes over.
    pub fn take_program_faults(&mut self) -> Option<Faults> {
        let faults = self.device.congestion().control.faults();
        let now = (faults.count > 0, faults.stopped);
        let before = std::mem::replace(&mut self.complaints.program, now);
        (now > before).then_some(faults)
    }

    /// What has become of the driver's connections.
    pub(super) fn connection_news(&mut self) -> &mut ConnectionNews {
        &mut self.complaints.connections
    }

    /// Reports of connections that are due.
    pub fn take_connection_news(&mut self, now: Instant) -> Vec<ConnectionReport> {
        self.complaints.connections.take(now)
    }

    /// The engine.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Longest frame of the adapter, in bytes behind the Ethernet header.
    pub fn mtu(&self) -> u16 {
        self.identity.mtu
    }

    /// The engine and its memory, for sending.
    #[inline]
    pub fn sender(&mut self) -> (&mut Device, &FunctionMemory) {
        (&mut self.device, &self.memory)
    }

    /// Counters since the adapter was made, in the order of [`Counters::NAMES`].
    pub fn counter_values(&self) -> [u64; Counters::COUNT] {
        let mut values = self.device.counters().values();
        for (value, before) in values.iter_mut().zip(self.earlier.counters) {
            *value += before;
        }
        values
    }

    /// Copies the counters to where any thread may read them, with those of seats beside this one.
    pub fn publish_counters<'a>(&mut self, now: Instant, others: impl Iterator<Item = &'a mut Function>) {
        self.published.stale = false;
        self.published.sample.forget_old(now);
        self.note_give_ups();
        let mut values = self.counter_values();
        for seat in others {
            seat.published.stale = false;
            seat.published.sample.forget_old(now);
            for (sum, value) in values.iter_mut().zip(seat.counter_values()) {
                *sum += value;
            }
        }
        for (i, value) in values.into_iter().enumerate() {
            self.published.counters.counts.set(i, value);
        }
    }

    /// Whether the completion of a request whose time is taken was written in this round.
    #[inline]
    pub fn has_latency(&self) -> bool {
        self.published.sample.has_ended()
    }

    /// Counts the time of a request whose completion was written in the round that is over `now`.
    pub fn count_latency(&mut self, now: Instant) {
        let Published { counters, sample, .. } = &mut self.published;
        sample.count(&counters.latency, now);
    }

    /// Whether there is anything to publish or report.
    pub fn has_news(&self) -> bool {
        self.published.stale
            || self.remains.any()
            || !self.complaints.untold.is_empty()
            || !self.first_hits.is_empty()
            || self.complaints.give_ups.untold != [0, 0]
            || self.complaints.connections.is_waiting()
            || self.gids.news.due().is_some()
            || self.gids.conflict.is_some()
            || self.partitions.is_waiting(&self.device)
    }

    /// State for the control plane, of all seats together.
    pub fn snapshot<'a>(&self, others: impl Iterator<Item = &'a Function>) -> RdmaSnapshot {
        let mut snapshot = RdmaSnapshot {
            off: self.off(),
            gids: self.gid_rows(),
            resources: self.resource_rows(),
            worst: self.device.worst_qps(),
            memory: config::memory(&self.device, &self.config.limits, self.session.ring_extents),
        };
        for seat in others {
            // GIDs are the function's, and counted there.
            let rows = snapshot.resources.iter_mut().zip(seat.resource_rows());
            for (sum, row) in rows.filter(|(sum, _)| sum.name != "gid") {
                sum.used += row.used;
            }
            snapshot.worst.extend(seat.device.worst_qps());
            snapshot.memory.used += config::of_objects(&seat.device, seat.session.ring_extents);
        }
        snapshot
    }

    // Sleep.

    /// The driver's kick eventfds.
    pub fn kicks(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.attached.iter().flat_map(|a| a.kicks.iter().map(AsFd::as_fd))
    }

    /// Asks the driver to kick. True: there is work already. `open`: priorities that may send.
    pub fn request_kicks(&mut self, open: u8) -> bool {
        let command_waits = self
            .verbs_faults
            .as_ref()
            .is_some_and(|faults| faults.command.is_some());
        let Some(a) = &mut self.attached else { return false };
        // (Queues that wait for room in the engine get it by a packet, a timer or a command: a round with work, after which
        // the next round looks at them.)
        let mut more = self.device.ready_priorities() & open != 0;
        more |= self.account.is_over() || self.session.unlooked > 0 && !self.session.starving.is_empty();
        more |= self.device.next_member().is_some();
        // A command that a rule makes slow goes on by its time.
        if let Some(control) = a.control.as_mut().filter(|_| !command_waits) {
            more |= control.request_kicks().unwrap_or(true);
        }
        for queue in &mut a.events {
            if let Some(ring) = &mut queue.ring {
                // Buffers matter only while events wait for them.
                more |= ring.request_kicks().unwrap_or(false) && !self.session.events.is_empty();
            }
        }
        for bell in self.session.bells.iter().flatten() {
            bell.set_polling(false);
        }
        fence(Ordering::SeqCst);
        more | self.session.bells.iter().flatten().any(|bell| !bell.is_empty())
    }

    /// Suppresses the driver's kicks: the device polls again.
    pub fn suppress_kicks(&self) {
        let Some(a) = &self.attached else { return };
        for ring in a
            .control
            .iter()
            .chain(a.events.iter().filter_map(|q| q.ring.as_ref()))
        {
            ring.suppress_kicks();
        }
        for bell in self.session.bells.iter().flatten() {
            bell.set_polling(true);
        }
    }

    /// When the function must be looked at again without any event.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        let timer = self.device.next_timeout();
        let full = (!self.session.full.is_empty()).then(|| now + FULL_RING_PAUSE);
        let conflict = self.gids.conflict.map(|_| self.gids.conflicts_after);
        let pkeys = self.partitions.due(&self.device);
        let gids = self
            .gids
            .learner
            .next_time()
            .into_iter()
            .chain(self.gids.news.due())
            .chain(conflict)
            .chain(pkeys);
        let command = self
            .verbs_faults
            .as_ref()
            .and_then(|faults| faults.command_waits());
        timer.into_iter().chain(full).chain(gids).chain(command).min()
    }

    /// Reports a fault of the driver, up to a limit for each driver.
    #[cold]
    pub(super) fn complain(&mut self, what: String) {
        let Complaints {
            untold,
            of_this_driver,
            ..
        } = &mut self.complaints;
        *of_this_driver += 1;
        match *of_this_driver {
            ..COMPLAINTS => untold.push(what),
            COMPLAINTS => untold.push(format!("{what}; no more is told of this driver")),
            _ => {}
        }
    }

    /// Stops the control queue, which broke the rules of virtio.
    pub(super) fn control_fault(&mut self, fault: Fault) {
        if let Some(a) = &mut self.attached {
            a.control = None;
        }
        self.scratch.begun = None;
        self.complain(format!("the control queue was stopped: {fault}"));
    }
}

// A completion must stay cheap to move: it is copied twice on its way to the driver.
const _: () = assert!(size_of::<Completion>() <= 96);
