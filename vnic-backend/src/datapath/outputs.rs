//! Receivers of a data core: adapters towards their guests, uplinks towards the wire.

mod adapter;
mod bond;
mod coalesce;
mod concern;
mod flow_control;
mod guest_roce;
mod inject;
mod lists;
mod mirror;
mod ptp;
mod receiver;
mod round;
mod serve;
mod slot;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use vnic_engine::clock::NicClock;
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::gids::may_ask;
use vnic_engine::offload::Accepts;
use vnic_fabric::access_list::{AccessList, Action, Way};
use vnic_fabric::switch::{Egress, PortId, Verdict};
use vnic_fabric::{DropReason, Instant, TagEdit};

use super::counters::CoreCounters;
use super::frame::{Arrival, Bounce, Finished, Metadata, OutFrame, Pool, RawFrame, for_receiver};
use super::news::{CoreEvent, Reporter};
use super::qos::{PortsQos, QosChange};
use crate::capture::Sink;
use crate::types::{Direction, TraceFunction};
use crate::uplink::PortTx;
use bond::Bonds;
use coalesce::{Coalescing, Fate};
use inject::Injector;
use lists::Lists;
use mirror::Mirrors;
use ptp::Timed;
use receiver::PauseSignals;

pub use adapter::AdapterRx;
pub use bond::{BondSetup, BondSide, InBond, SlowLimit, is_lldp, is_slow};
use concern::{Concern, concerns_rdma};
pub use concern::{INBOUND_MAX, Inbound, LEARN_MAX, is_roce};
pub use flow_control::{Link, is_control};
pub use guest_roce::{GuestRoce, WaitingRoce, has_room, see};
pub use lists::{judged, vlan_behind};
pub use mirror::Mirror;
pub use receiver::Receiver;
pub use round::Round;
pub use slot::{Receivers, Slot};
pub use waiting::{Pressure, Waiting};

/// Receivers of this core, apart from the switch so that both can be borrowed at once.
// Wide: what a frame meets between the switch and its receiver.
pub struct Outputs {
    /// Receivers, by [`PortId`].
    pub slots: Vec<Slot>,
    /// State of the current round.
    pub round: Round,
    /// Channel of the core's events to the control plane.
    pub events: Reporter,
    /// Ports with a [`Receiver`] that has something to do.
    pub queued: Vec<PortId>,
    /// Quality of service of all ports.
    pub qos: PortsQos,
    /// All bonds, of this core and of others.
    pub bonds: Bonds,
    /// Pause states that the receivers of this core signal to the senders.
    signals: PauseSignals,
    /// Memory for frames that wait in queues.
    pool: Pool,
    /// Port whose [`Receiver`] is out of its place. If it is set between two rounds, a panic lost the receiver.
    pub taken: Option<PortId>,
    /// Whether an uplink of this core is paused or pauses its peer.
    links_busy: bool,
    /// Adapters whose guests' own RoCE is limited or waits.
    pub guest_roce: Vec<PortId>,
    bounce: Bounce,
    /// Segments that wait for the end of their burst; absent while some of them leave.
    coalescing: Option<Box<Coalescing>>,
    faults: Option<Box<Injector>>,
    /// Whether captures, faults, mirror sessions or access lists may need to see frames, or PTP messages are timed: frames
    /// concerned take the slow path.
    watched: bool,
    /// Index of the core among the NIC's cores.
    index: usize,
}

impl Outputs {
    /// Outputs of a core without receivers.
    pub fn new(index: usize, counters: Arc<CoreCounters>, events: Reporter, waiting: Waiting) -> Outputs {
        Outputs {
            signals: PauseSignals::new(waiting.pauses().clone(), index),
            slots: Vec::new(),
            round: Round {
                now: Instant(0),
                touched: Vec::with_capacity(64),
                inbound: VecDeque::new(),
                waiting,
                captures: Vec::new(),
                clock: NicClock::default(),
                mirrors: Mirrors::default(),
                timed: Timed::default(),
                lists: Lists::default(),
                counters,
            },
            events,
            queued: Vec::new(),
            qos: PortsQos::default(),
            bonds: Bonds::default(),
            pool: Pool::default(),
            taken: None,
            links_busy: false,
            guest_roce: Vec::new(),
            bounce: Bounce::default(),
            coalescing: Some(Box::default()),
            faults: None,
            watched: false,
            index,
        }
    }

    /// The slot of a port; made if it is missing.
    pub fn slot(&mut self, port: PortId) -> &mut Slot {
        let i = usize::from(port.0);
        if self.slots.len() <= i {
            self.slots.resize_with(i + 1, || Slot::Empty);
        }
        &mut self.slots[i]
    }

    /// The local adapter behind a port.
    pub fn adapter(&mut self, port: PortId) -> Option<&mut AdapterRx> {
        match self.slot(port) {
            Slot::Adapter(a) => Some(a),
            _ => None,
        }
    }

    /// Quality of service that acts at a port of this core, configured or not.
    pub fn acting(&self, port: PortId) -> Arc<QosChange> {
        let slot = self.slots.get(usize::from(port.0));
        self.qos.acting(port, matches!(slot, Some(Slot::Uplink(_))))
    }

    /// Reports an event to the control plane; drops the event if the control plane does not keep up.
    fn report(&self, event: CoreEvent) {
        self.events.report(event);
    }

    /// Whether captures, faults, mirror sessions or access lists need to see frames between these ports, or some are timed.
    #[inline]
    pub fn is_watched(&self, from: PortId, to: PortId) -> bool {
        self.watched && self.watches(from, to)
    }

    #[cold]
    fn watches(&self, from: PortId, to: PortId) -> bool {
        let round = &self.round;
        !round.captures.is_empty()
            || self.faults.is_some()
            || round.mirrors.concern(from, to)
            || round.timed.concern(from, to)
            || round.lists.concern(from, to)
    }

    /// Whether any capture runs.
    #[inline]
    fn captures_run(&self) -> bool {
        self.watched && !self.round.captures.is_empty()
    }

    /// Whether captures or mirror sessions want to see the frames that enter the switch.
    #[inline]
    pub fn sees(&self) -> bool {
        self.watched && !(self.round.captures.is_empty() && self.round.mirrors.is_empty())
    }

    /// Notes whether anything watches.
    fn watch(&mut self) {
        let round = &self.round;
        let taps = !round.captures.is_empty() || !round.mirrors.is_empty();
        self.watched = taps || self.faults.is_some() || !round.lists.is_empty() || !round.timed.is_empty();
    }

    /// Replaces the mirror sessions.
    pub fn set_mirrors(&mut self, sessions: Vec<Mirror>) {
        self.round.mirrors.set(sessions);
        self.watch();
    }

    /// Whether there are mirror sessions, or copies that they left.
    #[inline]
    pub fn mirrors(&self) -> bool {
        self.watched && !self.round.mirrors.is_empty()
    }

    /// Notes that all copies of mirror sessions have left.
    pub fn mirrors_left(&mut self) {
        self.watch();
    }

    /// Sets the NIC's clock, which captures have their times of.
    pub fn set_clock(&mut self, clock: NicClock) {
        self.round.clock = clock;
    }

    /// Starts a capture.
    pub fn start_capture(&mut self, sink: Arc<Sink>) {
        self.round.captures.push(sink);
        self.watch();
    }

    /// Ends a capture.
    pub fn stop_capture(&mut self, id: u64) {
        self.round.captures.retain(|s| s.id != id);
        self.watch();
    }

    /// The fault rules, if there are any or they still hold frames back or have something to report.
    pub fn faults(&mut self) -> Option<&mut Injector> {
        self.faults.as_deref_mut()
    }

    /// The fault rules; made if they are missing.
    pub fn faults_or_new(&mut self, now: Instant) -> &mut Injector {
        self.watched = true;
        let make = || Box::new(Injector::new(self.index, now, self.events.clone()));
        self.faults.get_or_insert_with(make)
    }

    /// Whether there are fault rules, or frames or reports that removed rules left.
    #[inline]
    pub fn faulty(&self) -> bool {
        self.watched && self.faults.is_some()
    }

    /// Runs a round of the fault rules and returns how many held frames left.
    #[cold]
    pub fn fault_round(&mut self) -> usize {
        let Outputs {
            slots,
            round,
            faults: Some(faults),
            ..
        } = self
        else {
            return 0;
        };
        let n = faults.round(round.now, &mut Receivers { slots, round });
        if faults.is_idle() {
            self.faults = None;
            self.watch();
        }
        n
    }

    /// Hands a frame to one local receiver.
    #[inline(always)]
    pub fn give(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        if self.is_plain(e, f, meta)
            && let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(e.port.0))
            && a.put_plain(e.port, f, meta, &mut self.round)
        {
            return;
        }
        self.give_slowly(e, f, meta);
    }

    /// Whether a frame needs no edit and nobody watches it.
    #[inline(always)]
    fn is_plain(&self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) -> bool {
        f.hdr.is_plain() && e.tag == TagEdit::Keep && !self.is_watched(meta.source, e.port)
    }

    #[inline(never)]
    fn give_slowly(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        // (Looked at again: kept from the way above it would cost each frame four instructions.)
        if self.is_plain(e, f, meta)
            && let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(e.port.0))
            && a.put_spread(e.port, f, meta, &mut self.round)
        {
            return;
        }
        if (meta.lasts.is_some() || self.coalesces()) && self.coalesce(e, f, meta) {
            return;
        }
        // What the NIC itself gives a guest, such as a mirror's copy, comes from its receiver.
        match self.access_list(e.port, Way::Rx) {
            Some(list) if meta.source != e.port => self.give_listed(&list, e, f, meta),
            _ => self.give_on(e, f, meta),
        }
    }

    /// Whether a frame waits for the end of its burst, or has waited for it.
    #[inline]
    pub fn coalesces(&self) -> bool {
        self.coalescing.as_ref().is_some_and(|c| c.is_busy())
    }

    /// Lets a frame join others, or ends the unit of its flow. True: the frame waits, or has left with others.
    fn coalesce(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) -> bool {
        let Some(mut coalescing) = self.coalescing.take() else {
            return false;
        };
        let taken = self.offer(&mut coalescing, e, f, meta);
        self.coalescing = Some(coalescing);
        taken
    }

    fn offer(&mut self, c: &mut Coalescing, e: Egress, f: &RawFrame<'_>, meta: &Metadata) -> bool {
        // Fault rules and access lists judge each frame by itself.
        let watched =
            self.watched && (self.faults.is_some() || self.round.lists.concern(meta.source, e.port));
        loop {
            let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(e.port.0)) else {
                return false;
            };
            let Some(of) = a.coalesces(e.port, meta) else {
                return false;
            };
            match c.offer(e, f, meta, of, watched) {
                Fate::Alone => return false,
                Fate::Waits => {
                    if c.slow(e.port) {
                        a.slow();
                    }
                    return true;
                }
                Fate::Leaves {
                    unit,
                    with_it,
                    aborted,
                } => {
                    if aborted {
                        a.count_abort(f.head);
                    }
                    self.send_unit(c, unit);
                    if with_it {
                        return true;
                    }
                }
            }
        }
    }

    fn send_unit(&mut self, c: &mut Coalescing, unit: usize) {
        c.leave(unit, |e, f, meta, segments| {
            if segments > 1
                && let Some(adapter) = self.adapter(e.port)
            {
                adapter.count_unit(f, segments);
            }
            self.give_on(e, f, meta);
        });
    }

    /// Gives the frames that wait for the end of their burst. The memory of all frames of the burst may be reused then.
    #[inline]
    pub fn end_burst(&mut self) {
        if self.coalesces() {
            self.leave_all();
        }
    }

    #[inline(never)]
    fn leave_all(&mut self) {
        let Some(mut c) = self.coalescing.take() else {
            return;
        };
        while let Some(unit) = c.next() {
            self.send_unit(&mut c, unit);
        }
        for port in c.slowed() {
            if let Some(adapter) = self.adapter(port) {
                adapter.choose();
            }
        }
        self.coalescing = Some(c);
    }

    /// Forgets the frames of a burst that ended in a panic.
    #[cold]
    pub fn forget_burst(&mut self) {
        self.coalescing.get_or_insert_default().forget();
        for slot in &mut self.slots {
            if let Slot::Adapter(adapter) = slot {
                adapter.choose();
            }
        }
    }

    #[cold]
    fn give_listed(&mut self, list: &AccessList, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        judged(list, Way::Rx, e.tag, f, |f, decision| {
            list.count(Way::Rx, decision);
            if decision.action == Action::Permit {
                return self.give_on(e, f, meta);
            }
            let reason = DropReason::AccessList;
            if let Some(adapter) = self.adapter(e.port) {
                adapter.counters.drops.add(reason as usize, 1);
            }
            self.round.offer(e.port, &f.whole(), Some(reason), None);
        });
    }

    /// The access list that looks at frames of this way at an adapter of this core.
    #[inline]
    pub fn access_list(&self, port: PortId, way: Way) -> Option<Arc<AccessList>> {
        if self.watched {
            self.find_list(port, way)
        } else {
            None
        }
    }

    #[cold]
    fn find_list(&self, port: PortId, way: Way) -> Option<Arc<AccessList>> {
        self.round.lists.find(port, way).cloned()
    }

    /// Sets or removes the access list of an adapter of this core.
    pub fn set_access_list(&mut self, port: PortId, list: Option<Arc<AccessList>>) {
        self.round.lists.set(port, list);
        self.watch();
    }

    /// Sets whether PTP messages from and to a port are timed.
    pub fn set_timed(&mut self, port: PortId, timed: bool) {
        self.round.timed.set(port, timed);
        self.watch();
    }

    /// Gives a frame that no access list concerns, or one permits.
    fn give_on(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        if let Some(Slot::Bond(_)) = self.slots.get(usize::from(e.port.0)) {
            return self.give_bond(e, f, meta);
        }
        self.give_port(e, f, meta);
    }

    /// Hands a frame to an adapter or an uplink, through its queues if it has some.
    fn give_port(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        match self.take_receiver(e.port) {
            Some(mut receiver) => {
                self.give_queued(&mut receiver, e, f, meta);
                self.put_receiver(receiver);
            }
            None => self.give_now(e, f, meta),
        }
    }

    /// Hands a frame to one local receiver, past its queues: it has none, or the frame's turn has come. The frame is
    /// finished as far as the receiver needs it; fault rules see the complete frame, as on a wire.
    #[inline(never)]
    fn give_now(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let Outputs {
            slots,
            round,
            bounce,
            faults,
            ..
        } = self;
        let mut to = Receivers { slots, round };
        let Some(accepts) = to.accepts(e.port, f.head) else {
            return;
        };
        let path = (meta.source, e.port);
        let finished = match faults.as_deref_mut().filter(|i| i.concerns(path.0, path.1)) {
            None => for_receiver(f, e.tag, &accepts, bounce, |out| to.put(e.port, out, meta, None)),
            Some(faults) => for_receiver(f, e.tag, &Accepts::NONE, bounce, |out| {
                faults.deliver(path, out, meta, &mut to);
            }),
        };
        if let Err(reason) = finished {
            to.count_drop(e.port, reason);
        }
        self.count_finished(meta, finished);
    }

    /// Part of a local receiver that would take a frame with this head; `None`: there is no such receiver.
    pub fn taker(&self, port: PortId, head: &[u8]) -> Option<TraceFunction> {
        match self.slots.get(usize::from(port.0))? {
            Slot::Adapter(a) if a.takes_roce && is_roce(head) || a.steers(head) => Some(TraceFunction::Rdma),
            Slot::Adapter(a) if a.active.is_empty() && a.takes_roce && may_ask(head) => {
                Some(TraceFunction::Rdma)
            }
            Slot::Adapter(a) if a.active.is_empty() => Some(TraceFunction::Nobody),
            Slot::Adapter(_) => Some(TraceFunction::Ethernet),
            Slot::Uplink(_) | Slot::Bond(_) => Some(TraceFunction::Wire),
            Slot::Remote(_) | Slot::Empty => None,
        }
    }

    /// Whether there is a local receiver that takes frames.
    fn receives(&self, port: PortId) -> bool {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => !a.active.is_empty() || a.takes_roce,
            Some(Slot::Uplink(_) | Slot::Bond(_)) => true,
            _ => false,
        }
    }

    /// Counts how a frame was finished, at the transmit queue that the frame comes from.
    fn count_finished(&self, meta: &Metadata, finished: Result<Finished, DropReason>) {
        let counter = match finished {
            Ok(Finished::Checksum) => Q::TxChecksumFinished,
            Ok(Finished::Cut) => Q::TxTsoCut,
            Ok(Finished::AsIs | Finished::Passed) | Err(_) => return,
        };
        if let Some(Slot::Adapter(a)) = self.slots.get(usize::from(meta.source.0))
            && let Some(queue) = meta
                .queue
                .and_then(|pair| a.counters.queues.get(usize::from(pair)))
        {
            queue.add(counter as usize, 1);
        }
    }

    /// Sends a frame that the NIC itself made through an uplink, past all queues.
    pub fn send_control(&mut self, port: PortId, frame: &[u8]) {
        let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        p.send_control(frame);
        if self.captures_run() {
            self.round
                .capture((port, Direction::Egress, None), &OutFrame::of(frame), None, None);
        }
    }

    /// The adapter of this core whose RDMA function takes this frame from a port at once and unchanged: nothing watches it, no
    /// edit is due, and no frame waits before it.
    #[inline]
    pub fn roce_function(&self, from: PortId, verdict: &Verdict, f: &RawFrame<'_>) -> Option<PortId> {
        let port = as_it_is(verdict)?;
        let Some(Slot::Adapter(a)) = self.slots.get(usize::from(port.0)) else {
            return None;
        };
        let at_once = a.takes_roce
            && a.receiver.is_none()
            && !self.is_watched(from, port)
            && self.round.inbound.is_empty()
            && f.hdr.is_plain()
            && concerns_rdma(f.head) == Some(Concern::Roce);
        at_once.then_some(port)
    }

    /// The uplink of this core that sends a frame of an adapter's RDMA function at once and unchanged: nothing watches it, and
    /// no frame waits before it. The uplink is flushed with the others.
    #[inline]
    pub fn uplink(&mut self, from: PortId, verdict: &Verdict) -> Option<&mut PortTx> {
        let port = as_it_is(verdict)?;
        let watched = self.is_watched(from, port);
        let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) else {
            return None;
        };
        if watched || p.receiver.is_some() {
            return None;
        }
        if !p.touched {
            p.touched = true;
            self.round.touched.push((port, 0));
        }
        Some(p)
    }

    /// State of the guest's own RoCE at an adapter, if it is counted or limited.
    pub fn guest_roce(&mut self, port: PortId) -> Option<&mut GuestRoce> {
        match self.slots.get_mut(usize::from(port.0))? {
            Slot::Adapter(a) => a.guest_roce.as_deref_mut(),
            _ => None,
        }
    }

    /// Whether the guest's ring waits because too much of its RoCE waits.
    pub fn guest_roce_is_full(&self, port: PortId) -> bool {
        !self.guest_roce.is_empty()
            && match self.slots.get(usize::from(port.0)) {
                Some(Slot::Adapter(a)) => a.guest_roce.as_ref().is_some_and(|r| r.full),
                _ => false,
            }
    }

    /// Offers a frame that enters the switch to captures and mirror sessions.
    #[cold]
    pub fn see(&mut self, port: PortId, arrived: Arrival, out: &OutFrame<'_>, dropped: Option<DropReason>) {
        let at = self.round.instant(arrived);
        self.round.see((port, Direction::Ingress, at), out, dropped, None);
    }
}

/// The port of a verdict that sends the frame to one port without an edit of its tag.
#[inline]
fn as_it_is(verdict: &Verdict) -> Option<PortId> {
    match *verdict {
        Verdict::Unicast(Egress {
            port,
            tag: TagEdit::Keep,
        }) => Some(port),
        _ => None,
    }
}
