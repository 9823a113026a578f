//! The receivers of a data core: adapters towards their guests, uplinks towards the wire.

mod bond;
mod flow_control;
mod guest_roce;
mod inject;
mod receiver;
mod waiting;

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_engine::counters::{CoreCounter, QueueCounter as Q};
use vnic_engine::offload::Accepts;
use vnic_engine::settings::AdapterSettings;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::switch::{AllowedAddresses, Claim, Egress, PortId, Verdict};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::MacAddr;

use super::counters::{AdapterCounters, BY_TAG, CoreCounters};
use super::frame::{Bounce, Finished, Metadata, OutFrame, Pool, RawFrame, for_receiver};
use super::news::{CoreEvent, Reporter};
use super::qos::{PortsQos, QosChange};
use super::rx::RxQueue;
use crate::capture::Sink;
use crate::types::Direction;
use crate::uplink::PortTx;
use bond::{BondPort, Bonds};
use inject::Injector;
use receiver::PauseSignals;
use waiting::Waits;

pub use bond::{BondSetup, BondSide, InBond, SlowLimit, is_slow};
pub use flow_control::{Link, is_control};
pub use guest_roce::{GuestRoce, WaitingRoce, see};
pub use receiver::Receiver;
pub use waiting::{Pressure, Waiting};

/// Foreign addresses reported for one attach of an adapter.
const SPOOF_REPORTS: usize = 4;

/// Frames for RDMA functions that wait for their turn; what comes on top is lost, as on a wire.
pub const INBOUND_MAX: usize = 1024;
/// No receive queue: an adapter has at most 16.
const NO_QUEUE: u8 = u8::MAX;
/// Bytes of a frame from which a guest's addresses are learned: DHCP options begin at 282.
pub const LEARN_MAX: usize = 512;

/// A frame that concerns the RDMA function of an adapter.
#[derive(Debug)]
pub enum Inbound {
    /// RoCE, for the function.
    Roce(Box<[u8]>),
    /// The front of a frame that the guest has sent and that may tell its addresses.
    Sent(Box<[u8]>),
    /// The front of a frame that the guest gets and that may.
    Received(Box<[u8]>),
}

/// A local adapter, towards its guest.
pub struct AdapterRx {
    /// Its counters.
    pub counters: Arc<AdapterCounters>,
    /// What its driver accepts unfinished.
    pub accepts: Accepts,
    /// What acts on it.
    pub settings: AdapterSettings,
    /// Receive queues by pair.
    pub queues: Vec<Option<RxQueue>>,
    /// Pairs whose receive queue runs.
    pub active: ArrayVec<u8, 16>,
    /// The pair that gets every frame: the only one; otherwise [`NO_QUEUE`].
    direct: u8,
    /// It has an RDMA function.
    pub has_rdma: bool,
    /// The function has a driver: RoCE is for it, not for the guest's Ethernet driver.
    pub takes_roce: bool,
    /// Foreign source addresses of its guest that were reported.
    pub spoofs: ArrayVec<MacAddr, SPOOF_REPORTS>,
    /// Claims that were refused and are reported already.
    pub claims: ArrayVec<Claim, SPOOF_REPORTS>,
    /// What its guest may claim; `None`: anything.
    pub allowed: Option<Arc<AllowedAddresses>>,
    /// Frames that wait for receive buffers.
    pub waits: Waits,
    /// Quality of service of what it is given, if anything is configured.
    pub receiver: Option<Box<Receiver>>,
    /// What is done for RoCE of the guest's own, if anything.
    pub guest_roce: Option<Box<GuestRoce>>,
}

impl AdapterRx {
    /// An adapter whose guest has no queues yet.
    pub fn new(counters: Arc<AdapterCounters>) -> Self {
        let queues = counters.queues.iter().map(|_| None).collect();
        AdapterRx {
            counters,
            accepts: Accepts::NONE,
            settings: AdapterSettings::default(),
            queues,
            active: ArrayVec::new(),
            direct: NO_QUEUE,
            has_rdma: false,
            takes_roce: false,
            spoofs: ArrayVec::new(),
            claims: ArrayVec::new(),
            allowed: None,
            waits: Waits::default(),
            receiver: None,
            guest_roce: None,
        }
    }

    /// Recomputes which queues run.
    pub fn activate(&mut self) {
        self.active = (0..self.queues.len())
            .filter(|&i| self.queues[i].is_some())
            .map(|i| i as u8)
            .collect();
        if self.active.is_empty() {
            self.spoofs.clear();
            self.claims.clear();
        }
        self.choose();
    }

    /// Recomputes whether frames have only one way.
    pub fn choose(&mut self) {
        self.direct = match self.active[..] {
            [q] if self.guest_roce.is_none() => q,
            _ => NO_QUEUE,
        };
    }

    /// Gives a plain frame to the only receive queue, if nothing has to be done to it and it has to wait for nothing. False:
    /// it has to go the long way.
    #[inline(always)]
    fn put_plain(&mut self, port: PortId, f: &RawFrame<'_>, meta: &Metadata, round: &mut Round) -> bool {
        let q = self.direct;
        let Some(Some(rx)) = self.queues.get_mut(usize::from(q)) else {
            return false;
        };
        if self.has_rdma
            && let Some(concern) = concerns_rdma(f.head)
        {
            if self.receiver.is_some() {
                return false;
            }
            if divert(concern, self.takes_roce, port, &f.plain(), &mut round.inbound) {
                return true;
            }
        }
        let mut priority = BY_TAG;
        if let Some(receiver) = &mut self.receiver {
            let Some(own) = receiver.pass(round.now, f, rx) else {
                return false;
            };
            priority = own;
        }
        let placed = rx.put_plain(f, meta.gate, priority);
        if !rx.touched {
            rx.touched = true;
            round.touched.push((port, q));
        }
        if let Err(reason) = placed {
            self.refused_plain(port, f, meta, priority, reason, round);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn refused_plain(
        &mut self,
        port: PortId,
        f: &RawFrame<'_>,
        meta: &Metadata,
        priority: u8,
        reason: DropReason,
        round: &mut Round,
    ) {
        let meta = Metadata {
            priority,
            ..meta.clone()
        };
        self.refused(port, self.direct, &f.plain(), &meta, reason, &mut round.waiting);
    }

    /// What it accepts unfinished of a frame that begins so: its RDMA function takes only what is complete.
    fn accepts(&self, head: &[u8]) -> Accepts {
        match concerns_rdma(head).filter(|_| self.has_rdma) {
            Some(Concern::Roce) if self.takes_roce => Accepts::NONE,
            Some(Concern::Dhcp) => Accepts::NONE,
            _ => self.accepts,
        }
    }

    /// Delivers a frame that is finished, to the RDMA function or to a receive queue. Answers why it was dropped, if it was.
    fn deliver(
        &mut self,
        port: PortId,
        f: &OutFrame<'_>,
        meta: &Metadata,
        round: &mut Round,
    ) -> Option<DropReason> {
        if self.has_rdma && diverted(self.takes_roce, port, f, &mut round.inbound) {
            return None;
        }
        let q = self.queue_for(f.head);
        if let Some(q) = q {
            self.see_roce(q, meta.priority, f);
        }
        let rx = q.and_then(|q| Some((q, self.queues.get_mut(usize::from(q))?.as_mut()?)));
        let Some((q, rx)) = rx else {
            self.counters.drops.add(DropReason::ReceiverDown as usize, 1);
            return Some(DropReason::ReceiverDown);
        };
        if !rx.touched {
            rx.touched = true;
            round.touched.push((port, q));
        }
        let dropped = match rx.put(f, meta.gate, meta.priority) {
            Ok(()) => None,
            Err(reason) => self.refused(port, q, f, meta, reason, &mut round.waiting),
        };
        if dropped.is_none() && f.hdr.gso_type != NetHdr::GSO_NONE {
            self.counters.queues[usize::from(q)].add(Q::RxTsoPassed as usize, 1);
        }
        dropped
    }
}

/// What is behind a switch port.
pub enum Slot {
    /// Nothing.
    Empty,
    /// Something that another core owns.
    Remote(usize),
    /// An adapter of this core.
    Adapter(Box<AdapterRx>),
    /// An uplink of this core.
    Uplink(Box<PortTx>),
    /// A bond of uplinks of this core.
    Bond(Box<BondPort>),
}

/// What a round of a core gathers while frames are delivered.
pub struct Round {
    /// When it began.
    pub now: Instant,
    /// Queues and uplinks that were given something since the last flush.
    pub touched: Vec<(PortId, u8)>,
    /// Frames that concern RDMA functions.
    pub inbound: VecDeque<(PortId, Inbound)>,
    /// Receivers for whom frames wait.
    pub waiting: Waiting,
    captures: Vec<Arc<Sink>>,
    /// Counters of the core.
    pub counters: Arc<CoreCounters>,
}

impl Round {
    /// Offers a frame for a receiver to the running captures; `comment` is for them.
    #[inline]
    pub fn offer(&self, port: PortId, f: &OutFrame<'_>, dropped: Option<DropReason>, comment: Option<&str>) {
        if !self.captures.is_empty() {
            self.capture(port, Direction::Egress, f, dropped, comment);
        }
    }

    /// Offers a frame to the running captures.
    #[cold]
    fn capture(
        &self,
        port: PortId,
        direction: Direction,
        f: &OutFrame<'_>,
        dropped: Option<DropReason>,
        comment: Option<&str>,
    ) {
        for sink in &self.captures {
            sink.offer(port, direction, f, dropped, comment, &self.counters);
        }
    }
}

/// Receivers of this core, apart from the switch so that both can be borrowed at once.
pub struct Outputs {
    /// By [`PortId`].
    pub slots: Vec<Slot>,
    /// Of this round.
    pub round: Round,
    /// Where the control plane is told what has become of its ports.
    pub events: Reporter,
    /// Ports with a [`Receiver`] that has something to do.
    pub queued: Vec<PortId>,
    /// Quality of service of all ports.
    pub qos: PortsQos,
    /// Bonds, whoever serves them.
    pub bonds: Bonds,
    /// What the receivers of this core tell the senders.
    signals: PauseSignals,
    /// Memory for frames that wait in queues.
    pool: Pool,
    /// The port whose [`Receiver`] is out of its place. Between two rounds: it was lost in a panic.
    pub taken: Option<PortId>,
    /// Some uplink of this core waits, or tells its peer to wait.
    links_busy: bool,
    /// Adapters that do something for their guests' own RoCE.
    pub guest_roce: Vec<PortId>,
    bounce: Bounce,
    faults: Option<Box<Injector>>,
    /// There are captures or faults: frames take the long way.
    watched: bool,
    /// The core's place among the NIC's cores.
    index: usize,
}

impl Outputs {
    /// Nobody there yet.
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
            faults: None,
            watched: false,
            index,
        }
    }

    /// The slot of a port, made when needed.
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

    /// What acts at a port of this core, configured or not.
    pub fn acting(&self, port: PortId) -> Arc<QosChange> {
        let slot = self.slots.get(usize::from(port.0));
        self.qos.acting(port, matches!(slot, Some(Slot::Uplink(_))))
    }

    /// Tells the control plane; drops the news when it does not listen.
    fn report(&self, event: CoreEvent) {
        self.events.report(event);
    }

    /// Does anybody want to see or spoil frames?
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Is any capture running?
    #[inline]
    pub fn captures_run(&self) -> bool {
        self.watched && !self.round.captures.is_empty()
    }

    /// Starts a capture.
    pub fn start_capture(&mut self, sink: Arc<Sink>) {
        self.round.captures.push(sink);
        self.watched = true;
    }

    /// Ends a capture.
    pub fn stop_capture(&mut self, id: u64) {
        self.round.captures.retain(|s| s.id != id);
        self.watched = !self.round.captures.is_empty() || self.faults.is_some();
    }

    /// The fault rules, if there are any or something of them is left.
    pub fn faults(&mut self) -> Option<&mut Injector> {
        self.faults.as_deref_mut()
    }

    /// The fault rules; made when needed.
    pub fn faults_or_new(&mut self, now: Instant) -> &mut Injector {
        self.watched = true;
        let make = || Box::new(Injector::new(self.index, now, self.events.clone()));
        self.faults.get_or_insert_with(make)
    }

    /// Are there fault rules, or is something of them left?
    #[inline]
    pub fn faulty(&self) -> bool {
        self.watched && self.faults.is_some()
    }

    /// A round of the fault rules. Answers how many frames were let go.
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
            self.watched = !self.round.captures.is_empty();
        }
        n
    }

    /// Hands a frame to one local receiver.
    #[inline(always)]
    pub fn give(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        let plain = f.hdr.is_plain() && e.tag == TagEdit::Keep && !self.watched;
        if plain
            && let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(e.port.0))
            && a.put_plain(e.port, f, meta, &mut self.round)
        {
            return;
        }
        self.give_slowly(e, f, meta);
    }

    #[inline(never)]
    fn give_slowly(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        if let Some(Slot::Bond(_)) = self.slots.get(usize::from(e.port.0)) {
            return self.give_bond(e, f, meta);
        }
        self.give_port(e, f, meta);
    }

    /// Hands a frame to an adapter or an uplink, by its queues if it has some.
    fn give_port(&mut self, e: Egress, f: &RawFrame<'_>, meta: &Metadata) {
        match self.take_receiver(e.port) {
            Some(mut receiver) => {
                self.give_queued(&mut receiver, e, f, meta);
                self.put_receiver(receiver);
            }
            None => self.give_now(e, f, meta),
        }
    }

    /// Hands a frame to one local receiver, past its queues: there are none, or its turn has come. It is finished as far as the
    /// receiver needs it; fault rules see what a wire would carry.
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

    /// Is there a local receiver that takes frames?
    fn receives(&self, port: PortId) -> bool {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => !a.active.is_empty() || a.takes_roce,
            Some(Slot::Uplink(_) | Slot::Bond(_)) => true,
            _ => false,
        }
    }

    /// Counts, for the transmit queue that a frame comes from, how it was finished.
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

    /// Sends a frame of the NIC's own by an uplink, past all queues.
    pub fn send_control(&mut self, port: PortId, frame: &[u8]) {
        let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        p.send_control(frame);
        if self.captures_run() {
            self.capture(port, Direction::Egress, &OutFrame::of(frame), None);
        }
    }

    /// The adapter of this core whose RDMA function takes this frame at once, as it is: nobody wants to see or spoil it,
    /// nothing is to be done about it, and none waits before it.
    #[inline]
    pub fn roce_function(&self, verdict: &Verdict, f: &RawFrame<'_>) -> Option<PortId> {
        let port = as_it_is(verdict)?;
        let Some(Slot::Adapter(a)) = self.slots.get(usize::from(port.0)) else {
            return None;
        };
        let at_once = a.takes_roce
            && a.receiver.is_none()
            && !self.is_watched()
            && self.round.inbound.is_empty()
            && f.hdr.is_plain()
            && is_roce(f.head);
        at_once.then_some(port)
    }

    /// The uplink of this core that takes what a function sends at once, as it is: nobody wants to see or spoil it, and none
    /// waits before it. It is flushed with the others.
    #[inline]
    pub fn uplink(&mut self, verdict: &Verdict) -> Option<&mut PortTx> {
        let port = as_it_is(verdict)?;
        let watched = self.is_watched();
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

    /// What is done for the RoCE of an adapter's guest, if anything.
    pub fn guest_roce(&mut self, port: PortId) -> Option<&mut GuestRoce> {
        match self.slots.get_mut(usize::from(port.0))? {
            Slot::Adapter(a) => a.guest_roce.as_deref_mut(),
            _ => None,
        }
    }

    /// Does the guest's ring wait because too much of its RoCE does?
    pub fn guest_roce_is_full(&self, port: PortId) -> bool {
        !self.guest_roce.is_empty()
            && match self.slots.get(usize::from(port.0)) {
                Some(Slot::Adapter(a)) => a.guest_roce.as_ref().is_some_and(|r| r.full),
                _ => false,
            }
    }

    /// Offers a frame to the running captures.
    #[cold]
    pub fn capture(&self, port: PortId, direction: Direction, out: &OutFrame<'_>, drop: Option<DropReason>) {
        self.round.capture(port, direction, out, drop, None);
    }
}

/// Where a frame goes that goes to one port, with the tag that it has.
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

/// The receivers of a core, for whoever has complete frames for them.
pub struct Receivers<'a> {
    slots: &'a mut [Slot],
    /// Of this round.
    pub round: &'a mut Round,
}

impl Receivers<'_> {
    /// What a receiver accepts unfinished of a frame that begins so; nothing if there is none, which is counted.
    fn accepts(&self, port: PortId, head: &[u8]) -> Option<Accepts> {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) if a.active.is_empty() && !a.takes_roce => {
                a.counters.drops.add(DropReason::ReceiverDown as usize, 1);
                None
            }
            Some(Slot::Adapter(a)) => Some(a.accepts(head)),
            Some(Slot::Uplink(p)) => Some(p.accepts),
            // Its own core delivers it.
            Some(Slot::Remote(_)) => None,
            // A bond gives its frames to its members.
            Some(Slot::Empty | Slot::Bond(_)) | None => {
                self.round.counters.add(CoreCounter::Orphans as usize, 1);
                None
            }
        }
    }

    /// Hands over a complete frame; `comment` is for the captures.
    pub fn put(&mut self, port: PortId, f: &OutFrame<'_>, meta: &Metadata, comment: Option<&str>) {
        let round = &mut *self.round;
        let dropped = match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.deliver(port, f, meta, round),
            Some(Slot::Uplink(p)) => {
                if !p.touched {
                    p.touched = true;
                    round.touched.push((port, 0));
                }
                p.put(f, meta).err()
            }
            Some(Slot::Remote(_) | Slot::Empty | Slot::Bond(_)) | None => {
                round.counters.add(CoreCounter::Orphans as usize, 1);
                return;
            }
        };
        round.offer(port, f, dropped, comment);
    }

    /// Drops a frame that was for this port.
    pub fn drop(&self, port: PortId, f: &OutFrame<'_>, reason: DropReason, comment: &str) {
        self.count_drop(port, reason);
        self.round.offer(port, f, Some(reason), Some(comment));
    }

    /// Counts a frame that did not get to its receiver.
    fn count_drop(&self, port: PortId, reason: DropReason) {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.counters.drops.add(reason as usize, 1),
            Some(Slot::Uplink(p)) => p.count_drop(reason),
            _ => self.round.counters.add(CoreCounter::Orphans as usize, 1),
        }
    }
}

/// What a frame is to an RDMA function, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Concern {
    Roce,
    Dhcp,
}

/// RoCEv1 by its EtherType, RoCEv2 by its UDP port (IBTA annexes A16, A17), DHCP to a client by its (RFC 2131).
#[inline(always)]
fn concerns_rdma(head: &[u8]) -> Option<Concern> {
    let tagged = matches!(head.get(12..14)?, [0x81, 0x00] | [0x88, 0xa8]);
    let at = if tagged { 16 } else { 12 };
    let ports = match head.get(at..at + 2)? {
        [0x89, 0x15] => return Some(Concern::Roce),
        // Without options, as all RoCE is; the protocol is UDP.
        [0x08, 0x00] if head.get(at + 2) == Some(&0x45) && head.get(at + 11) == Some(&17) => at + 22,
        [0x86, 0xdd] if head.get(at + 8) == Some(&17) => at + 42,
        _ => return None,
    };
    match head.get(ports + 2..ports + 4)? {
        [0x12, 0xb7] => Some(Concern::Roce),
        [0, 68] => Some(Concern::Dhcp),
        _ => None,
    }
}

/// Gives a frame to the adapter's RDMA function if it is for it. True: it is not for the guest's Ethernet driver.
#[inline]
fn diverted(
    takes_roce: bool,
    port: PortId,
    f: &OutFrame<'_>,
    inbound: &mut VecDeque<(PortId, Inbound)>,
) -> bool {
    match concerns_rdma(f.head) {
        None => false,
        Some(concern) => divert(concern, takes_roce, port, f, inbound),
    }
}

#[inline(never)]
fn divert(
    concern: Concern,
    takes_roce: bool,
    port: PortId,
    f: &OutFrame<'_>,
    inbound: &mut VecDeque<(PortId, Inbound)>,
) -> bool {
    let roce = concern == Concern::Roce;
    if roce && !takes_roce {
        return false;
    }
    let len = if roce { f.len() } else { f.len().min(LEARN_MAX) };
    if inbound.len() < INBOUND_MAX {
        let mut bytes = vec![0; len].into_boxed_slice();
        f.peek(&mut bytes);
        let what = if roce {
            Inbound::Roce(bytes)
        } else {
            Inbound::Received(bytes)
        };
        inbound.push_back((port, what));
    }
    roce
}

/// Is it RoCE?
pub fn is_roce(head: &[u8]) -> bool {
    concerns_rdma(head) == Some(Concern::Roce)
}
