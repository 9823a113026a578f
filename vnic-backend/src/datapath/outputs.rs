//! The receivers of a data core: adapters towards their guests, uplinks towards the wire.

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_engine::counters::{Block, CoreCounter, QueueCounter as Q};
use vnic_engine::offload::Accepts;
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::{AllowedAddresses, Claim, Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::MacAddr;

use super::bond::{BondPort, Ticket};
use super::counters::{AdapterCounters, CoreCounters};
use super::frame::{Bounce, Finished, OutFrame, RawFrame, flow_hash, for_receiver};
use super::guest_roce::GuestRoce;
use super::inject::Injector;
use super::link::Gate;
use super::qos::{Pool, Receiver, Teller};
use super::rx::RxQueue;
use super::waiting::{Waiting, Waits};
use crate::capture::Sink;
use crate::mem;
use crate::types::Direction;
use crate::uplink::{FrameBuf, PortTx};

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
    #[allow(
        clippy::too_many_arguments,
        reason = "one frame's facts, and the parts of the core's outputs"
    )]
    fn put_plain(
        &mut self,
        port: PortId,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        now: Instant,
        inbound: &mut VecDeque<(PortId, Inbound)>,
        touched: &mut Vec<(PortId, u8)>,
        waiting: &mut Waiting,
    ) -> bool {
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
            if divert(concern, self.takes_roce, port, &f.plain(), inbound) {
                return true;
            }
        }
        if let Some(receiver) = &mut self.receiver {
            let Some(priority) = receiver.pass(now, f, rx) else {
                return false;
            };
            rx.priority = priority;
        }
        let placed = rx.put_plain(f, gate);
        if !rx.touched {
            rx.touched = true;
            touched.push((port, q));
        }
        if let Err(reason) = placed {
            self.refused(port, q, &f.plain(), gate, reason, waiting);
        }
        true
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

/// Receivers of this core, apart from the switch so that both can be borrowed at once.
pub struct Outputs {
    /// By [`PortId`].
    pub slots: Vec<Slot>,
    /// Queues and uplinks that were given something since the last flush.
    pub touched: Vec<(PortId, u8)>,
    /// Frames that concern RDMA functions.
    pub inbound: VecDeque<(PortId, Inbound)>,
    /// Receivers for whom frames wait.
    pub waiting: Waiting,
    /// Ports with a [`Receiver`] that has something to do.
    pub(super) queued: Vec<PortId>,
    /// What the receivers of this core tell the senders.
    pub(super) teller: Teller,
    /// Memory for frames that wait in queues.
    pub(super) pool: Pool,
    /// The port whose [`Receiver`] is out of its place. Between two rounds: it was lost in a panic.
    pub taken: Option<PortId>,
    /// Some uplink of this core waits, or tells its peer to wait.
    pub(super) links_busy: bool,
    /// Adapters that do something for their guests' own RoCE.
    pub(super) guest_roce: Vec<PortId>,
    /// The queue pair that sends the frame which is given, where its RDMA function says so.
    pub local_qp: Option<u32>,
    /// When this round began.
    pub now: Instant,
    pub(super) bounce: Bounce,
    /// A frame of an RDMA function, while it is given: an uplink takes it as it is.
    pub built: FrameBuf,
    pub(super) captures: Vec<Arc<Sink>>,
    faults: Option<Box<Injector>>,
    /// There are captures or faults: frames take the long way.
    watched: bool,
    /// Counters of the core.
    pub counters: Arc<CoreCounters>,
}

impl Outputs {
    /// Nobody there yet.
    pub fn new(counters: Arc<CoreCounters>, waiting: Waiting, teller: Teller) -> Outputs {
        Outputs {
            waiting,
            queued: Vec::new(),
            teller,
            pool: Pool::default(),
            taken: None,
            links_busy: false,
            guest_roce: Vec::new(),
            local_qp: None,
            now: Instant(0),
            slots: Vec::new(),
            touched: Vec::with_capacity(64),
            inbound: VecDeque::new(),
            bounce: Bounce::default(),
            built: FrameBuf::default(),
            captures: Vec::new(),
            faults: None,
            watched: false,
            counters,
        }
    }

    /// Does anybody want to see or spoil frames?
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// Is any capture running?
    #[inline]
    pub fn captures_run(&self) -> bool {
        self.watched && !self.captures.is_empty()
    }

    /// Starts a capture.
    pub fn start_capture(&mut self, sink: Arc<Sink>) {
        self.captures.push(sink);
        self.watched = true;
    }

    /// Ends a capture.
    pub fn stop_capture(&mut self, id: u64) {
        self.captures.retain(|s| s.id != id);
        self.watched = !self.captures.is_empty() || self.faults.is_some();
    }

    /// The fault rules, if there are any or something of them is left.
    pub fn faults(&mut self) -> Option<&mut Injector> {
        self.faults.as_deref_mut()
    }

    /// The fault rules; made when needed.
    pub fn faults_or(&mut self, make: impl FnOnce() -> Injector) -> &mut Injector {
        self.watched = true;
        self.faults.get_or_insert_with(|| Box::new(make()))
    }

    /// Are there fault rules, or is something of them left?
    #[inline]
    pub fn faulty(&self) -> bool {
        self.watched && self.faults.is_some()
    }

    /// A round of the fault rules. Answers how many frames were let go.
    #[cold]
    pub fn fault_round(&mut self, now: Instant) -> usize {
        let (Some(faults), mut receivers) = split(
            &mut self.faults,
            &mut self.slots,
            &mut self.touched,
            &mut self.inbound,
            &self.captures,
            &self.counters,
            &mut self.waiting,
        ) else {
            return 0;
        };
        let n = faults.round(now, &mut receivers);
        if faults.is_idle() {
            self.faults = None;
            self.watched = !self.captures.is_empty();
        }
        n
    }

    /// Hands a frame to one local receiver.
    #[inline(always)]
    pub fn give(
        &mut self,
        ingress: PortId,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        sender: Option<&Block<{ Q::COUNT }>>,
    ) {
        let plain = f.hdr.flags | f.hdr.gso_type == 0 && e.tag == TagEdit::Keep && !self.watched;
        if plain
            && let Some(Slot::Adapter(a)) = self.slots.get_mut(usize::from(e.port.0))
            && a.put_plain(
                e.port,
                f,
                gate,
                self.now,
                &mut self.inbound,
                &mut self.touched,
                &mut self.waiting,
            )
        {
            return;
        }
        self.give_slowly(ingress, e, f, gate, sender);
    }

    #[inline(never)]
    fn give_slowly(
        &mut self,
        ingress: PortId,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        sender: Option<&Block<{ Q::COUNT }>>,
    ) {
        if let Some(Slot::Bond(_)) = self.slots.get(usize::from(e.port.0)) {
            return self.give_bond(ingress, e, f, gate, sender);
        }
        self.give_port(ingress, e, f, gate, sender);
    }

    /// Hands a frame to an adapter or an uplink, by its queues if it has some.
    pub(super) fn give_port(
        &mut self,
        ingress: PortId,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        sender: Option<&Block<{ Q::COUNT }>>,
    ) {
        match self.take_receiver(e.port) {
            Some(mut receiver) => {
                self.give_queued(&mut receiver, (ingress, e), f, gate, sender);
                self.put_receiver(receiver);
            }
            None => self.give_now(ingress, e, f, gate, sender),
        }
    }

    /// Hands a frame to one local receiver, past its queues: there are none, or its turn has come.
    #[inline(never)]
    pub(super) fn give_now(
        &mut self,
        ingress: PortId,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
        sender: Option<&Block<{ Q::COUNT }>>,
    ) {
        let judged = self.faults.as_ref().is_some_and(|i| i.concerns(ingress, e.port));
        let finished = if judged && self.receives(e.port) {
            Some(self.judge(ingress, e, f, gate))
        } else {
            self.put_finished(e, f, gate)
        };
        count_finished(sender, finished);
    }

    /// Is there a local receiver that takes frames?
    pub(super) fn receives(&self, port: PortId) -> bool {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => !a.active.is_empty() || a.takes_roce,
            Some(Slot::Uplink(_) | Slot::Bond(_)) => true,
            _ => false,
        }
    }

    /// Delivers as far as the fault rules let it, frame by frame: what the sender asked for is done first.
    #[cold]
    fn judge(
        &mut self,
        ingress: PortId,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
    ) -> Result<Finished, DropReason> {
        let (Some(faults), mut receivers) = split(
            &mut self.faults,
            &mut self.slots,
            &mut self.touched,
            &mut self.inbound,
            &self.captures,
            &self.counters,
            &mut self.waiting,
        ) else {
            return Ok(Finished::AsIs);
        };
        let finished = for_receiver(f, e.tag, &Accepts::NONE, &mut self.bounce, |out| {
            faults.deliver((ingress, e.port), out, gate, &mut receivers);
        });
        if let Err(reason) = finished {
            receivers.count_drop(e.port, reason);
        }
        finished
    }

    /// Delivers without faults, finished as far as the receiver needs it; nothing if it could not even be tried.
    fn put_finished(
        &mut self,
        e: Egress,
        f: &RawFrame<'_>,
        gate: Option<Gate>,
    ) -> Option<Result<Finished, DropReason>> {
        let Outputs {
            slots,
            touched,
            inbound,
            bounce,
            captures,
            counters,
            waiting,
            built,
            ..
        } = self;
        let finished = match slots.get_mut(usize::from(e.port.0)) {
            Some(Slot::Adapter(a)) => {
                if a.has_rdma && concerns_rdma(f.head).is_some() {
                    let mut taken = false;
                    let r = for_receiver(f, e.tag, &Accepts::NONE, bounce, |out| {
                        taken = diverted(a.takes_roce, e.port, out, inbound);
                        if taken && !captures.is_empty() {
                            offer(captures, counters, e.port, out, None);
                        }
                    });
                    if taken {
                        return Some(r);
                    }
                }
                let q = match a.active.len() {
                    1 => a.active[0],
                    0 => {
                        a.counters.drops.add(DropReason::ReceiverDown as usize, 1);
                        return None;
                    }
                    n => a.active[flow_hash(f.head) as usize % n],
                };
                let accepts = a.accepts;
                let mut given = false;
                let r = for_receiver(f, e.tag, &accepts, bounce, |out| {
                    a.see_roce(q, out);
                    let Some(Some(rx)) = a.queues.get_mut(usize::from(q)) else {
                        return;
                    };
                    let mut dropped = rx.put(out, gate).err();
                    if let Some(reason) = dropped {
                        dropped = a.refused(e.port, q, out, gate, reason, waiting);
                    }
                    given = dropped.is_none();
                    if !captures.is_empty() {
                        offer(captures, counters, e.port, out, dropped);
                    }
                });
                if let Some(Some(rx)) = a.queues.get_mut(usize::from(q))
                    && !rx.touched
                {
                    rx.touched = true;
                    touched.push((e.port, q));
                }
                if r == Ok(Finished::Passed) && given {
                    a.counters.queues[usize::from(q)].add(Q::TsoPassed as usize, 1);
                }
                if let Err(reason) = r {
                    a.counters.drops.add(reason as usize, 1);
                }
                r
            }
            Some(Slot::Uplink(p)) => {
                let accepts = p.accepts;
                let r = for_receiver(f, e.tag, &accepts, bounce, |out| {
                    let dropped = p.put(out, gate, built).err();
                    if !captures.is_empty() {
                        offer(captures, counters, e.port, out, dropped);
                    }
                });
                if !p.touched {
                    p.touched = true;
                    touched.push((e.port, 0));
                }
                if let Err(reason) = r {
                    p.count_drop(reason);
                }
                r
            }
            Some(Slot::Remote(_)) => return None,
            // A bond gives its frames to its members.
            Some(Slot::Empty | Slot::Bond(_)) | None => {
                counters.add(CoreCounter::Orphans as usize, 1);
                return None;
            }
        };
        Some(finished)
    }

    /// Offers a frame to the running captures.
    #[cold]
    pub fn capture(&self, port: PortId, direction: Direction, out: &OutFrame<'_>, drop: Option<DropReason>) {
        for sink in &self.captures {
            sink.offer(port, direction, out, drop, None, &self.counters);
        }
    }
}

/// Counts, for its sender, how a frame was finished.
pub(super) fn count_finished(
    sender: Option<&Block<{ Q::COUNT }>>,
    finished: Option<Result<Finished, DropReason>>,
) {
    if let (Some(c), Some(Ok(how))) = (sender, finished) {
        match how {
            Finished::Checksum => c.add(Q::ChecksumFinished as usize, 1),
            Finished::Cut => c.add(Q::TsoCut as usize, 1),
            Finished::AsIs | Finished::Passed => {}
        }
    }
}

/// The receivers of a core, for whoever has complete frames for them.
pub struct Receivers<'a> {
    slots: &'a mut [Slot],
    touched: &'a mut Vec<(PortId, u8)>,
    inbound: &'a mut VecDeque<(PortId, Inbound)>,
    captures: &'a [Arc<Sink>],
    /// Counters of the core.
    pub counters: &'a CoreCounters,
    waiting: &'a mut Waiting,
}

/// The parts of [`Outputs`] that faults need, and those in which they are.
fn split<'a>(
    faults: &'a mut Option<Box<Injector>>,
    slots: &'a mut [Slot],
    touched: &'a mut Vec<(PortId, u8)>,
    inbound: &'a mut VecDeque<(PortId, Inbound)>,
    captures: &'a [Arc<Sink>],
    counters: &'a CoreCounters,
    waiting: &'a mut Waiting,
) -> (Option<&'a mut Injector>, Receivers<'a>) {
    let receivers = Receivers {
        slots,
        touched,
        inbound,
        captures,
        counters,
        waiting,
    };
    (faults.as_deref_mut(), receivers)
}

impl Receivers<'_> {
    /// Hands over a complete frame; `comment` is for the captures.
    pub fn put(&mut self, port: PortId, f: &OutFrame<'_>, gate: Option<Gate>, comment: Option<&str>) {
        let (touched, captures, counters) = (&mut *self.touched, self.captures, self.counters);
        if let Some(slot) = self.slots.get_mut(usize::from(port.0)) {
            slot.classify(f.head);
        }
        let dropped = match self.slots.get_mut(usize::from(port.0)) {
            Some(Slot::Adapter(a)) if a.has_rdma && diverted(a.takes_roce, port, f, self.inbound) => None,
            Some(Slot::Adapter(a)) => {
                let n = a.active.len();
                let q = a.active.get(flow_hash(f.head) as usize % n.max(1)).copied();
                q.inspect(|q| a.see_roce(*q, f));
                let rx = q.and_then(|q| Some((q, a.queues.get_mut(usize::from(q))?.as_mut()?)));
                match rx {
                    None => {
                        a.counters.drops.add(DropReason::ReceiverDown as usize, 1);
                        Some(DropReason::ReceiverDown)
                    }
                    Some((q, rx)) => {
                        if !rx.touched {
                            rx.touched = true;
                            touched.push((port, q));
                        }
                        match rx.put(f, gate) {
                            Ok(()) => None,
                            Err(reason) => a.refused(port, q, f, gate, reason, self.waiting),
                        }
                    }
                }
            }
            Some(Slot::Uplink(p)) => {
                if !p.touched {
                    p.touched = true;
                    touched.push((port, 0));
                }
                p.put(f, gate, &mut FrameBuf::default()).err()
            }
            Some(Slot::Remote(_) | Slot::Empty | Slot::Bond(_)) | None => {
                counters.add(CoreCounter::Orphans as usize, 1);
                return;
            }
        };
        for sink in captures {
            sink.offer(port, Direction::Egress, f, dropped, comment, counters);
        }
    }

    /// The frame that an uplink is given next has this ticket. Answers the one before.
    pub fn set_ticket(&mut self, port: PortId, ticket: Option<Ticket>) -> Option<Ticket> {
        self.slots.get_mut(usize::from(port.0))?.set_ticket(ticket)
    }

    /// The ticket of the frame that is on its way to an uplink.
    pub fn ticket(&self, port: PortId) -> Option<Ticket> {
        self.slots.get(usize::from(port.0))?.ticket()
    }

    /// Drops a frame that was for this port.
    pub fn drop(&self, port: PortId, f: &OutFrame<'_>, reason: DropReason, comment: &str) {
        self.count_drop(port, reason);
        for sink in self.captures {
            sink.offer(
                port,
                Direction::Egress,
                f,
                Some(reason),
                Some(comment),
                self.counters,
            );
        }
    }

    /// Counts a frame that did not get to its receiver.
    fn count_drop(&self, port: PortId, reason: DropReason) {
        match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.counters.drops.add(reason as usize, 1),
            Some(Slot::Uplink(p)) => p.count_drop(reason),
            _ => self.counters.add(CoreCounter::Orphans as usize, 1),
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
        let known = f.head.len().min(len);
        bytes[..known].copy_from_slice(&f.head[..known]);
        mem::gather(f.segs, f.skip, &mut bytes[known..]);
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

/// Offers a frame for a receiver to the running captures.
#[cold]
pub fn offer(
    captures: &[Arc<Sink>],
    counters: &CoreCounters,
    port: PortId,
    out: &OutFrame<'_>,
    drop: Option<DropReason>,
) {
    for sink in captures {
        sink.offer(port, Direction::Egress, out, drop, None, counters);
    }
}
