//! A local adapter, towards its guest.

use std::sync::Arc;

use arrayvec::ArrayVec;
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::moderation::Method;
use vnic_engine::offload::Accepts;
use vnic_engine::offload::coalesce::BEGINS;
use vnic_engine::settings::AdapterSettings;
use vnic_engine::virtio_net::NetHdr;
use vnic_engine::virtio_net::control::Control;
use vnic_engine::virtio_net::steering::{Automatic, Tunnels};
use vnic_fabric::DropReason;
use vnic_fabric::switch::{AllowedAddresses, Claim, PortId};
use vnic_wire::MacAddr;
use vnic_wire::int::TRAILER_LEN;

use super::super::by_thread::ByThread;
use super::super::calls::Caller as _;
use super::super::counters::{AdapterCounters, BY_TAG, priority_of};
use super::super::frame::{Arrival, Metadata, OutFrame, RawFrame};
use super::super::rx::{Report, RxQueue};
use super::coalesce::{is_tcp, segments, told};
use super::concern::{Concern, asked, concerns_rdma, divert, diverted, is_roce, steered, wanted};
use super::guest_roce::{GuestRoce, see};
use super::receiver::Receiver;
use super::round::Round;
use super::waiting::Waits;
use crate::rdma::AdapterFlows;

/// Foreign addresses that are reported in one attach of an adapter.
const SPOOF_REPORTS: usize = 4;
/// Value of [`AdapterRx::direct`] for no receive queue; an adapter has at most 16.
const NO_QUEUE: u8 = u8::MAX;
/// Receiving side of a local adapter, towards its guest.
// Wide: what a frame for a guest meets on its way.
pub struct AdapterRx {
    /// Counters of the adapter.
    pub counters: Arc<AdapterCounters>,
    /// Offloads that the guest's driver accepts.
    pub accepts: Accepts,
    /// Settings that act on the adapter.
    pub settings: AdapterSettings,
    /// Receive queues by pair.
    pub queues: Vec<Option<RxQueue>>,
    /// Pairs whose receive queue runs.
    pub active: ArrayVec<u8, 16>,
    /// What the guest's driver has set by its control queue, if it has one.
    pub driver: Option<Box<Control>>,
    /// Queue pairs by which the guest sends, if it has several.
    steering: Option<Box<Automatic>>,
    /// Tunnels whose inner packets decide about the queue.
    tunnels: Tunnels,
    /// The pair that gets every frame, if it is the only one; otherwise [`NO_QUEUE`].
    direct: u8,
    /// Whether there are several such pairs, and a frame needs nothing but the choice of its own.
    spreads: bool,
    /// Whether TCP segments of IPv4 and of IPv6 are coalesced.
    coalesces: [bool; 2],
    /// Length from which a frame may be such a segment.
    segment_min: usize,
    /// Whether the adapter has an RDMA function.
    pub has_rdma: bool,
    /// Whether the function has a driver: RoCE is then for the function, not for the guest's Ethernet driver.
    pub takes_roce: bool,
    /// Flows of the function's raw packet queue pairs, if there are any.
    flows: Option<AdapterFlows>,
    /// Foreign source addresses of the guest that were reported.
    pub spoofs: ArrayVec<MacAddr, SPOOF_REPORTS>,
    /// Refused claims that were reported.
    pub claims: ArrayVec<Claim, SPOOF_REPORTS>,
    /// Addresses that the guest may claim; `None`: any.
    pub allowed: Option<Arc<AllowedAddresses>>,
    /// Frames that wait for receive buffers.
    pub waits: Waits,
    /// Quality of service of frames to the guest, if anything is configured.
    pub receiver: Option<Box<Receiver>>,
    /// State of the guest's own RoCE, if it is counted or limited.
    pub guest_roce: Option<Box<GuestRoce>>,
}

/// Whether a frame for this port is a mirror's copy, which concerns neither the guest's RDMA function nor its own RoCE.
#[inline]
fn is_copy(port: PortId, meta: &Metadata) -> bool {
    // Only such a frame, and a question of the NIC to the guest, comes from its receiver.
    meta.source == port
}

/// Whether a guest's driver does not want a frame with this head.
#[inline(always)]
fn is_unwanted(driver: Option<&Control>, head: &[u8]) -> bool {
    driver.is_some_and(|d| !d.filter.wants(head))
}

impl AdapterRx {
    /// Makes an adapter with `pairs` queue pairs, whose guest has no queues yet.
    pub fn new(counters: Arc<AdapterCounters>, pairs: usize) -> Self {
        let queues = (0..pairs).map(|_| None).collect();
        AdapterRx {
            counters,
            accepts: Accepts::NONE,
            settings: AdapterSettings::default(),
            queues,
            active: ArrayVec::new(),
            driver: None,
            steering: (pairs > 1).then(Box::default),
            tunnels: Tunnels::NONE,
            direct: NO_QUEUE,
            spreads: false,
            coalesces: [false; 2],
            segment_min: usize::MAX,
            has_rdma: false,
            takes_roce: false,
            flows: None,
            spoofs: ArrayVec::new(),
            claims: ArrayVec::new(),
            allowed: None,
            waits: Waits::default(),
            receiver: None,
            guest_roce: None,
        }
    }

    /// Recomputes which queues run, and what decides between them.
    pub fn activate(&mut self) {
        let keys = self.settings.offloads.tunnels.tunnels();
        self.tunnels = Tunnels {
            types: self.driver.as_ref().and_then(|d| d.tunnels).unwrap_or(keys.types),
            ..keys
        };
        let pairs = self.driver.as_ref().map_or(usize::MAX, |d| d.pairs.into());
        self.active = (0..self.queues.len().min(pairs))
            .filter(|&i| self.queues[i].is_some())
            .map(|i| i as u8)
            .collect();
        if self.active.is_empty() {
            self.spoofs.clear();
            self.claims.clear();
            if let Some(steering) = &mut self.steering {
                steering.forget();
            }
        }
        self.choose();
    }

    /// Follows what the driver has set.
    pub fn follow_driver(&mut self) {
        if let Some(driver) = &self.driver {
            self.accepts = Accepts::from_features(driver.offloads);
            // What a driver that knows no tunnels is told is the hash of the packet that it sees.
            let tunnels = Tunnels {
                types: driver.tunnels.unwrap_or(0),
                ..self.settings.offloads.tunnels.tunnels()
            };
            for rx in self.queues.iter_mut().flatten() {
                let hash = driver.report.clone();
                rx.report = hash.map(|hash| Report { hash, tunnels });
            }
        }
        self.activate();
    }

    /// How a ring interrupts the guest: as its driver has set, or the operator.
    pub fn method(&self, ring: u16) -> Method {
        let driver = self
            .driver
            .as_ref()
            .and_then(|d| d.coalescing.get(usize::from(ring)));
        match driver.and_then(|c| Method::coalesced(c.packets, c.usecs)) {
            Some(method) => method,
            None if ring.is_multiple_of(2) => self.settings.recv_completion.into(),
            None => self.settings.send_completion.into(),
        }
    }

    /// Sets how the receive queues interrupt the guest.
    pub fn set_receive_methods(&mut self, thread: &ByThread) {
        let by = self.settings.threaded.receive.then_some(thread);
        for pair in 0..self.queues.len() {
            let method = self.method(2 * pair as u16);
            if let Some(rx) = &mut self.queues[pair] {
                rx.follow_method(method, by);
            }
        }
    }

    /// The guest sent a frame by a queue pair: what belongs to it comes there.
    #[inline]
    pub fn sent(&mut self, f: &RawFrame<'_>, pair: usize) {
        if let Some(steering) = &mut self.steering {
            f.whole()
                .with_flow(&self.tunnels, |flow| steering.sent(f.head, flow, pair as u8));
        }
    }

    /// Sets the flows of the function's raw packet queue pairs.
    pub fn set_flows(&mut self, flows: Option<AdapterFlows>) {
        self.flows = flows;
        self.choose();
    }

    /// Whether the function has flows.
    #[inline]
    pub fn has_flows(&self) -> bool {
        self.flows.is_some()
    }

    /// Whether a flow wants a frame with this head.
    pub fn steers(&self, head: &[u8]) -> bool {
        self.flows.as_ref().is_some_and(|flows| wanted(flows, head))
    }

    /// Which TCP segments are coalesced (IPv4, IPv6), if a frame for this port may be one; `None`: none.
    pub(super) fn coalesces(&self, port: PortId, meta: &Metadata) -> Option<[bool; 2]> {
        (self.segment_min != usize::MAX && !is_copy(port, meta)).then_some(self.coalesces)
    }

    /// Makes all frames take the slow path, until [`AdapterRx::choose`].
    pub(super) fn slow(&mut self) {
        (self.direct, self.spreads) = (NO_QUEUE, false);
    }

    /// Counts a frame that was made from several segments.
    pub(super) fn count_unit(&self, f: &RawFrame<'_>, segments: u16) {
        if let Some(q) = self.queue_for(&f.whole()) {
            let queue = &self.counters.queues[usize::from(q)];
            queue.add(Q::RxRscEvents as usize, 1);
            queue.add(Q::RxRscPackets as usize, segments.into());
            queue.add(Q::RxRscBytes as usize, f.len as u64);
        }
    }

    /// Counts that segments could not be coalesced with a frame with this head.
    pub(super) fn count_abort(&self, head: &[u8]) {
        // (TCP: no tunnel's.)
        if let Some(q) = self.queue_for(&OutFrame::of(head)) {
            self.counters.queues[usize::from(q)].add(Q::RxRscAborts as usize, 1);
        }
    }

    /// Recomputes which segments are coalesced, and whether all frames go to one receive queue.
    pub fn choose(&mut self) {
        let (accepts, keys) = (&self.accepts, &self.settings.offloads);
        self.coalesces = [accepts.tso4 && keys.rsc4, accepts.tso6 && keys.rsc6];
        // Flows take frames as they were on the wire.
        self.segment_min = match self.coalesces {
            [false, false] => usize::MAX,
            _ if self.flows.is_some() => usize::MAX,
            _ => BEGINS,
        };
        let quick = self.guest_roce.is_none() && self.flows.is_none();
        self.direct = match self.active[..] {
            [q] if quick => q,
            _ => NO_QUEUE,
        };
        let mut queues = self.queues.iter().flatten();
        self.spreads = quick && self.active.len() > 1 && queues.all(|rx| rx.report.is_none());
    }

    /// Puts a plain frame into the only receive queue if the frame needs no edit and need not wait. False: the frame has to
    /// take the slow path.
    #[inline(always)]
    pub(super) fn put_plain(
        &mut self,
        port: PortId,
        f: &RawFrame<'_>,
        meta: &Metadata,
        round: &mut Round,
    ) -> bool {
        self.put_plain_in(self.direct, port, f, meta, round)
    }

    /// As [`AdapterRx::put_plain`], into the one of several receive queues that the frame is for.
    #[inline(never)]
    pub(super) fn put_spread(
        &mut self,
        port: PortId,
        f: &RawFrame<'_>,
        meta: &Metadata,
        round: &mut Round,
    ) -> bool {
        let q = self.spreads.then(|| self.queue_for(&f.plain())).flatten();
        q.is_some_and(|q| self.put_plain_in(q, port, f, meta, round))
    }

    #[inline(always)]
    fn put_plain_in(
        &mut self,
        q: u8,
        port: PortId,
        f: &RawFrame<'_>,
        meta: &Metadata,
        round: &mut Round,
    ) -> bool {
        let Some(Some(rx)) = self.queues.get_mut(usize::from(q)) else {
            return false;
        };
        if self.has_rdma
            && let Some(concern) = concerns_rdma(f.head)
            && !is_copy(port, meta)
        {
            if self.receiver.is_some() {
                return false;
            }
            if divert(concern, self.takes_roce, port, &f.plain(), &mut round.inbound) {
                return true;
            }
        }
        if is_unwanted(self.driver.as_deref(), f.head) {
            self.counters.drops.add(DropReason::Filtered as usize, 1);
            return true;
        }
        if f.len >= self.segment_min && may_join(f, meta) {
            return false;
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
            self.refused_plain((port, q), f, meta, priority, reason, round);
        }
        true
    }

    #[cold]
    #[inline(never)]
    fn refused_plain(
        &mut self,
        (port, q): (PortId, u8),
        f: &RawFrame<'_>,
        meta: &Metadata,
        priority: u8,
        reason: DropReason,
        round: &mut Round,
    ) {
        let meta = Metadata {
            priority,
            arrived: Arrival::Unknown,
            ..meta.clone()
        };
        self.refused(port, q, &f.plain(), &meta, reason, &mut round.waiting);
    }

    /// Offloads that the adapter accepts for a frame with this head: its RDMA function takes only complete frames.
    pub(super) fn accepts(&self, head: &[u8]) -> Accepts {
        match concerns_rdma(head).filter(|_| self.has_rdma) {
            Some(Concern::Roce) if self.takes_roce => Accepts::NONE,
            Some(Concern::Dhcp) => Accepts::NONE,
            _ if self.steers(head) => Accepts::NONE,
            _ => self.accepts,
        }
    }

    /// Delivers a finished frame to the RDMA function or to a receive queue. Returns the reason of a drop.
    pub(super) fn deliver(
        &mut self,
        port: PortId,
        f: &OutFrame<'_>,
        meta: &Metadata,
        round: &mut Round,
    ) -> Option<DropReason> {
        let copy = is_copy(port, meta);
        if self.has_rdma && !copy && diverted(self.takes_roce, port, f, &mut round.inbound) {
            return None;
        }
        if let Some(flows) = &self.flows
            && !copy
            && let arrived = round.instant(meta.arrived)
            && let Some(taken) = steered(flows, port, (f, arrived), &mut round.inbound)
        {
            if let Err(reason) = taken {
                self.counters.drops.add(reason as usize, 1);
            }
            return taken.err();
        }
        if is_unwanted(self.driver.as_deref(), f.head) {
            self.counters.drops.add(DropReason::Filtered as usize, 1);
            return Some(DropReason::Filtered);
        }
        let q = self.queue_for(f);
        let mut behind = 0;
        if let Some(q) = q
            && !copy
        {
            behind = self.see_roce(q, meta.priority, f);
        }
        let f = &f.without_last(behind);
        let rx = q.and_then(|q| Some((q, self.queues.get_mut(usize::from(q))?.as_mut()?)));
        let Some((q, rx)) = rx else {
            // The NIC answers for a guest that has only the driver of the function.
            if self.takes_roce && !copy && asked(port, f, &mut round.inbound) {
                return None;
            }
            self.counters.drops.add(DropReason::ReceiverDown as usize, 1);
            return Some(DropReason::ReceiverDown);
        };
        if !rx.touched {
            rx.touched = true;
            round.touched.push((port, q));
        }
        let unit = segments(&f.hdr, f.len());
        let f = &OutFrame {
            hdr: unit.map_or(f.hdr, |segments| told(f.hdr, segments, self.accepts.rsc_ext)),
            ..*f
        };
        let dropped = match rx.put(f, meta.gate, meta.priority) {
            Ok(()) => None,
            Err(reason) => self.refused(port, q, f, meta, reason, &mut round.waiting),
        };
        if dropped.is_none() && f.hdr.gso_type != NetHdr::GSO_NONE && unit.is_none() {
            self.counters.queues[usize::from(q)].add(Q::RxTsoPassed as usize, 1);
        }
        dropped
    }

    /// The receive queue that gets this frame.
    pub fn queue_for(&self, f: &OutFrame<'_>) -> Option<u8> {
        match self.active[..] {
            [q] => Some(q),
            [] => None,
            ref many => f.with_flow(&self.tunnels, |flow| {
                if let Some(rss) = self.driver.as_ref().and_then(|d| d.rss.as_ref()) {
                    let q = rss.queue(flow);
                    return Some(if many.contains(&q) { q } else { many[0] });
                }
                self.steering.as_ref()?.queue(f.head, flow, many)
            }),
        }
    }

    /// Shows a frame that reaches the guest's receive queue `q` to the guest's RoCE proxy. Returns how many bytes of the frame are
    /// behind its packet and for the proxy alone.
    #[inline]
    pub fn see_roce(&mut self, q: u8, priority: u8, f: &OutFrame<'_>) -> usize {
        match self.guest_roce.is_some() && is_roce(f.head) {
            true => self.see_frame(q, priority, f),
            false => 0,
        }
    }

    #[inline(never)]
    fn see_frame(&mut self, q: u8, priority: u8, f: &OutFrame<'_>) -> usize {
        let (Some(roce), Some(seen)) = (&mut self.guest_roce, see(f)) else {
            return 0;
        };
        let priority = priority_of(priority, f.head);
        roce.proxy.received(roce.now, priority, &seen);
        let counts = roce.proxy.take_counts();
        roce.count(q.into(), counts);
        seen.telemetry.map_or(0, |_| TRAILER_LEN)
    }
}

/// Whether a frame may be a segment that waits for others. Out of line: most frames are too short to be asked.
#[cold]
#[inline(never)]
fn may_join(f: &RawFrame<'_>, meta: &Metadata) -> bool {
    meta.lasts.is_some() && is_tcp(f.head)
}
