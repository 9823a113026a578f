//! Transmit queues, from the guest.

mod debt;
mod grant;
mod holds;
mod parts;
mod police;
mod rest;
mod slot;
mod slots;
mod taken;

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use arrayvec::ArrayVec;
use rustix::fd::{AsFd, BorrowedFd};
use vnic_engine::counters::QueueCounter as Q;
use vnic_engine::gids;
use vnic_engine::moderation::{Decision, Method};
use vnic_engine::offload::HEAD_MAX;
use vnic_engine::virtio_net::NetHdr;
use vnic_fabric::access_list::{self, AccessList};
use vnic_fabric::qos;
use vnic_fabric::switch::{AllowedAddresses, Claim, PortId, Verdict};
use vnic_fabric::{DropReason, TagEdit};

use super::calls::{Call, Caller, Calls};
use super::core::{Core, denied};
use super::counters::{AdapterCounters, BY_TAG, Groups, Priorities, Way};
use super::frame::{FRAME_MAX, Metadata, RawFrame, SNAP, plain_on_wire};
use super::outputs::judged;
use super::qos::QosChange;
use super::ring_start::RingStart;
use crate::mem::{self, Seg, Segs};
use crate::ring::chain::MAX_CHAIN;
use crate::ring::{Fault, Head, PackedRing, Ring, Virtqueue};
use grant::Grant;
use holds::Holds;
use slot::Slot;
use taken::Taken;

pub use taken::BURST;

/// A transmit queue of a running guest.
pub struct TxQueue {
    ring: Ring,
    kick: Option<Arc<File>>,
    calls: Calls,
    /// State of the queue's frames from ring to switch.
    pub path: TxPath,
}

/// The way of a transmit queue's frames from its ring to the switch.
// Wide: what a guest's frame meets on its way.
pub struct TxPath {
    /// The adapter of the queue.
    pub port: PortId,
    /// Index of the queue pair.
    pub pair: usize,
    /// Whether the adapter has an RDMA function, whose GIDs follow the guest's addresses.
    pub learns: bool,
    /// Whether the adapter has several queue pairs: what belongs to a sent frame is to come by the same.
    pub steers: bool,
    /// Addresses that the guest may claim; `None`: any.
    pub allowed: Option<Arc<AllowedAddresses>>,
    /// Largest number of frames that are completed together.
    pub batch: u16,
    /// Reasons not to read the ring.
    holds: Holds,
    hdr_len: usize,
    /// Whether the driver's virtio headers may have offload requests.
    asks: bool,
    mtu: usize,
    /// Quality of service that acts, if the adapter has a [`Sender`](super::sender::Sender).
    policed: Option<Arc<QosChange>>,
    grant: Grant,
    /// Frames by priority that were sent and are not counted yet.
    priorities: Priorities,
    counters: Arc<AdapterCounters>,
    /// Taken buffers that other cores have not finished copying, in ring order.
    slots: VecDeque<Slot>,
    first_slot: u64,
}

/// Working memory of one burst, kept by the data core.
pub struct Scratch {
    segs: Segs,
    snaps: Box<[[u8; SNAP]; BURST as usize]>,
    wide: [u8; HEAD_MAX],
}

impl Default for Scratch {
    fn default() -> Self {
        let burst = usize::from(BURST);
        Scratch {
            segs: Segs::with_capacity(4 * burst),
            snaps: Box::new([[0; SNAP]; BURST as usize]),
            wide: [0; HEAD_MAX],
        }
    }
}

/// Whether a frame may contain addresses of its sender: ARP, neighbour discovery (ICMPv6), DHCP to a server.
#[inline(always)]
fn may_tell_address(head: &[u8]) -> bool {
    let Some(types) = head.first_chunk::<18>() else {
        return false;
    };
    let at = if matches!(types[12..14], [0x81, 0x00]) {
        16
    } else {
        12
    };
    match types[at..at + 2] {
        [0x08, 0x06] => true,
        [0x08, 0x00] => head.get(at + 11) == Some(&17) && head.get(at + 24..at + 26) == Some(&[0, 67]),
        [0x86, 0xdd] => head.get(at + 8) == Some(&58),
        _ => false,
    }
}

impl TxQueue {
    /// Takes over a ring that the guest has enabled.
    pub fn new(port: PortId, start: RingStart, counters: Arc<AdapterCounters>) -> Self {
        start.ring.suppress_kicks();
        let path = TxPath {
            port,
            pair: usize::from(start.index / 2),
            learns: false,
            steers: false,
            allowed: None,
            batch: BURST,
            holds: Holds::default(),
            hdr_len: start.hdr_len,
            asks: start.asks,
            mtu: usize::from(start.mtu),
            policed: None,
            grant: Grant::default(),
            priorities: Priorities::default(),
            counters,
            slots: VecDeque::new(),
            first_slot: 0,
        };
        TxQueue {
            ring: start.ring,
            kick: start.kick,
            calls: Calls::new(start.call, Method::default()),
            path,
        }
    }

    /// The kick eventfd of the guest.
    pub fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick.as_ref().map(AsFd::as_fd)
    }

    /// Sets the call eventfd of the guest.
    pub fn set_call(&mut self, call: Option<Arc<Call>>) {
        self.calls.set_call(call);
    }

    /// Ring index at which the frontend may resume.
    pub fn base(&self) -> u16 {
        self.ring.base()
    }

    /// Suppresses kicks.
    pub fn suppress_kicks(&self) {
        self.ring.suppress_kicks();
    }

    /// Asks for kicks. True: there is work already.
    pub fn request_kicks(&mut self) -> bool {
        if !self.path.holds.runs() || self.path.holds.closed().is_some() {
            return false;
        }
        if self.path.holds.in_parts() {
            return true;
        }
        match self.ring.request_kicks() {
            Ok(more) => more,
            Err(fault) => {
                self.path.holds.breaks(fault);
                true
            }
        }
    }

    /// Takes up to [`TxPath::batch`] frames and sends them. Returns the number of frames; 0: there are none, or none may go.
    pub fn poll(&mut self, index: usize, core: &mut Core, scratch: &mut Scratch) -> usize {
        if self.path.holds.any()
            && let Some(work) = self.held(index, core)
        {
            return work;
        }
        if self.path.policed.is_none() && self.ring.is_empty() {
            return 0;
        }
        let mut ready = self.ring.ready();
        if matches!(ready, Ok(0)) && self.path.policed.is_none() {
            return 0;
        }
        if let Ok(depth @ 1..) = ready {
            self.path.counters.depth.add(depth.into());
        }
        let mut visit = self.path.visit(index, core);
        let mut done = 0;
        let fault = loop {
            let limit = BURST.min(self.path.batch - done);
            let burst = match ready {
                Ok(0) => break None,
                Ok(n) => match &mut self.ring {
                    Ring::Split(r) => burst(r, &mut self.path, n.min(limit), scratch, &mut visit),
                    Ring::Packed(r) => burst_packed(r, &mut self.path, n.min(limit), scratch, &mut visit),
                },
                Err(fault) => break Some(fault),
            };
            match burst {
                Ok(n) => {
                    done += n;
                    if n < limit || done == self.path.batch || self.path.holds.any() {
                        break None;
                    }
                }
                Err((n, fault)) => {
                    done += n;
                    break Some(fault);
                }
            }
            ready = self.ring.ready();
        };
        if self.path.policed.is_some() && self.path.holds.closed().is_none() && done < self.path.batch {
            self.path.leave(visit.core);
        }
        if done > 0 {
            // The sender's buffers are completed before any receiver can see the frames: no frame is delivered twice,
            // whenever the daemon is killed.
            self.publish(visit.core);
            visit.core.flush();
            self.path
                .book(u64::from(done) - visit.sums.whole, &mut visit.sums);
        }
        if let Some(fault) = fault {
            self.path.holds.breaks(fault);
            return 0;
        }
        usize::from(done)
    }

    /// Handles a reason not to read the ring. Returns the work that was done instead; `None`: the reason is gone.
    #[cold]
    fn held(&mut self, index: usize, core: &mut Core) -> Option<usize> {
        if !self.path.holds.runs() || self.path.holds.closed().is_some() && !self.path.opens(core) {
            return Some(0);
        }
        if self.path.holds.pay() {
            // The queue waits for its turn, but the core is not idle.
            let more = self.path.holds.in_parts() || self.ring.ready().is_ok_and(|n| n > 0);
            return Some(usize::from(more));
        }
        self.path
            .holds
            .in_parts()
            .then(|| self.path.send_part(&mut self.path.visit(index, core)))
    }

    #[inline]
    fn publish(&mut self, core: &mut Core) {
        if self.ring.unpublished() {
            let before = self.ring.published();
            let wanted = self.ring.publish(self.ring.staged());
            if wanted || self.calls.owes() {
                self.interrupt(core, before, wanted);
            }
        }
    }

    /// Interrupts the guest, now or later.
    fn interrupt(&mut self, core: &mut Core, before: u16, wanted: bool) {
        let c = &self.path.counters.queues[self.path.pair];
        let frames = c.get(Q::TxFrames as usize);
        match self.calls.shown(&self.ring, before, wanted, core.now, frames) {
            Decision::Interrupt => {
                c.add(Q::TxNotifications as usize, 1);
                c.add(
                    Q::TxNotificationsThreaded as usize,
                    self.calls.is_threaded().into(),
                );
                // A queue that has the core alone delays no other queue.
                if core.turns.shared(core.now) {
                    self.path.holds.owe_call();
                }
            }
            Decision::Later if wanted => c.add(Q::TxNotificationsCoalesced as usize, 1),
            Decision::Later | Decision::Nothing => {}
        }
        if let Some(due) = self.calls.due() {
            core.owed.until(due);
        }
    }
}

/// Sends up to `n` frames of a ring. Returns their number, also beside a fault.
#[inline(always)]
fn burst<R: Virtqueue>(
    ring: &mut R,
    path: &mut TxPath,
    n: u16,
    scratch: &mut Scratch,
    visit: &mut Visit<'_>,
) -> Result<u16, (u16, Fault)> {
    let Scratch { segs, snaps, wide } = scratch;
    segs.clear();
    let mut frames: ArrayVec<Taken<'_>, { BURST as usize }> = ArrayVec::new();
    let mut fault = None;
    // First and last byte that are read of each frame.
    let first = if path.asks { 0 } else { path.hdr_len };
    let last = path.hdr_len + SNAP - 1;
    ring.prefetch(n);
    let (mut k, mut end) = (0, n);
    while k < end {
        let taken = take(ring, k).and_then(|one| match one {
            Some(one) => Ok(one),
            None => path.take_chain(ring, k, segs),
        });
        match taken {
            Ok(t) => {
                k += R::entries(t.head);
                if t.ends {
                    end = k;
                }
                if t.many.is_empty() {
                    t.one.prefetch(first);
                    t.one.prefetch(last);
                }
                frames.push(t);
            }
            Err(f) => {
                fault = Some(f);
                break;
            }
        }
    }
    // Everything is read before anything is written: loads from the guest's cores would wait for earlier stores to them.
    for (t, snap) in frames.iter_mut().zip(snaps.iter_mut()) {
        t.snapped = path.snap(t, snap);
    }
    if path.policed.is_some() {
        path.begin(&frames, visit.core);
    }
    visit.meta.lasts = Some(slots::lasting());
    let mut done = 0u16;
    for (t, snap) in frames.iter().zip(snaps.iter()) {
        match path.frame(t, t.chain(segs.as_slice()), snap, wide, visit) {
            Step::Done => {
                ring.stage(t.head, 0);
                done += 1;
            }
            Step::Pending => done += 1,
            Step::Wait => break,
            Step::Last { pending } => {
                if !pending {
                    ring.stage(t.head, 0);
                }
                done += 1;
                // Frames behind it are looked at in another visit, and so is a fault.
                fault = None;
                break;
            }
            Step::Fault(f) => {
                fault = Some(f);
                break;
            }
        }
    }
    visit.core.out.end_burst();
    let entries = frames.iter().take(done.into()).map(|t| R::entries(t.head)).sum();
    drop(frames);
    // Between two bursts a queue keeps no memory of the guest but its rings.
    segs.release();
    ring.advance(entries);
    if path.grant.whole {
        path.settle(visit.core);
    }
    match fault {
        Some(f) => Err((done, f)),
        None => Ok(done),
    }
}

/// As [`burst`], beside the loop in which split rings are polled.
#[inline(never)]
fn burst_packed(
    ring: &mut PackedRing,
    path: &mut TxPath,
    n: u16,
    scratch: &mut Scratch,
    visit: &mut Visit<'_>,
) -> Result<u16, (u16, Fault)> {
    burst(ring, path, n, scratch, visit)
}

/// The ready buffer at `k`, if it has one descriptor.
#[inline(always)]
fn take<R: Virtqueue>(ring: &R, k: u16) -> Result<Option<Taken<'_>>, Fault> {
    let one = ring.single(k, false)?;
    Ok(one.map(|(head, one)| Taken {
        head,
        total: one.len() as u64,
        one,
        many: 0..0,
        snapped: false,
        ends: false,
    }))
}

impl TxPath {
    /// Sets or removes the quality of service that acts on the queue.
    pub fn set_policed(&mut self, policed: Option<Arc<QosChange>>) {
        self.policed = policed;
        self.holds.open();
    }

    /// The priority of the next frame, if that may not be sent.
    pub fn closed(&self) -> Option<u8> {
        self.holds.closed()
    }

    /// Whether no other core still copies a buffer of the queue.
    pub fn drained(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes no more buffers; those in flight are completed.
    pub fn stop(&mut self) {
        self.holds.stop();
    }

    /// The fault of the ring, reported once.
    #[inline]
    pub fn take_fault(&mut self) -> Option<Fault> {
        if !self.holds.any() {
            return None;
        }
        let fault = self.holds.take_fault()?;
        self.counters.queues[self.pair].add(Q::RingFaults as usize, 1);
        Some(fault)
    }

    /// Counts a wake-up by this queue's kick.
    pub fn count_kick(&self) {
        self.counters.queues[self.pair].add(Q::Kicks as usize, 1);
    }

    /// Adds what was sent to the counters.
    #[inline(always)]
    fn book(&mut self, frames: u64, sums: &mut Sums) {
        let c = &self.counters.queues[self.pair];
        self.priorities.flush(&self.counters.link, Way::Sent);
        c.add(Q::TxFrames as usize, frames);
        c.add(Q::TxBytes as usize, sums.bytes);
        c.add(Q::TxForwarded as usize, frames - sums.dropped);
        let groups = [
            Q::TxMulticast,
            Q::TxMulticastBytes,
            Q::TxBroadcast,
            Q::TxBroadcastBytes,
        ];
        sums.groups.flush(c, groups);
    }

    /// Takes a buffer of several descriptors. If it has many, the burst ends with it.
    #[inline(never)]
    fn take_chain<'m>(&mut self, ring: &impl Virtqueue, k: u16, segs: &mut Segs) -> Result<Taken<'m>, Fault> {
        let start = segs.len();
        let whole = ring.chain(k, false, MAX_CHAIN as u16, segs)?;
        let (head, total, descriptors) = whole.ok_or(Fault::ChainTooLong)?;
        let pieces = usize::from(descriptors).max(segs.len() - start);
        if let Some(seg) = segs.get(start) {
            seg.prefetch(self.hdr_len);
        }
        Ok(Taken {
            head,
            total,
            one: Seg::EMPTY,
            many: start as u32..segs.len() as u32,
            snapped: false,
            ends: self.holds.owe_pieces(total, pieces),
        })
    }

    /// Reads the first bytes of a frame without an offload request and with one descriptor.
    #[inline(always)]
    fn snap(&self, t: &Taken<'_>, snap: &mut [u8; SNAP]) -> bool {
        if !t.many.is_empty() || self.allowed.is_some() || self.asks && t.one.read::<2>(0) != Some([0, 0]) {
            return false;
        }
        let Some(bytes) = t.one.read(self.hdr_len) else {
            return self.snap_short(t, snap);
        };
        *snap = bytes;
        true
    }

    /// As [`TxPath::snap`], of a frame of less than [`SNAP`] bytes: in two reads that overlap.
    #[inline(always)]
    fn snap_short(&self, t: &Taken<'_>, snap: &mut [u8; SNAP]) -> bool {
        const HALF: usize = SNAP / 2;
        let Some(rest) = t.one.len().checked_sub(self.hdr_len + HALF) else {
            return false;
        };
        let (Some(first), Some(last)) = (
            t.one.read::<HALF>(self.hdr_len),
            t.one.read::<HALF>(self.hdr_len + rest),
        ) else {
            return false;
        };
        snap[..HALF].copy_from_slice(&first);
        // (Rest is below a half.)
        match snap.get_mut(rest..rest + HALF) {
            Some(place) => place.copy_from_slice(&last),
            None => return false,
        }
        true
    }

    #[inline(always)]
    fn visit<'a>(&self, index: usize, core: &'a mut Core) -> Visit<'a> {
        Visit {
            meta: Metadata {
                arrived: core.out.round.arrival(),
                ..Metadata::of_queue(self.port, self.pair)
            },
            sums: Sums::default(),
            own: false,
            index,
            core,
        }
    }

    // (Always: there are two loops over bursts.)
    #[inline(always)]
    fn frame(
        &mut self,
        taken: &Taken<'_>,
        chain: &[Seg<'_>],
        snap: &[u8; SNAP],
        wide: &mut [u8; HEAD_MAX],
        visit: &mut Visit<'_>,
    ) -> Step {
        let Some(len) = taken.total.checked_sub(self.hdr_len as u64) else {
            return Step::Fault(Fault::TooShort);
        };
        // Headers are read once: the checked bytes are the delivered ones.
        let bounded = len.min(FRAME_MAX as u64) as usize;
        let (hdr, head): (NetHdr, &[u8]) = if taken.snapped {
            (NetHdr::default(), &snap[..bounded.min(SNAP)])
        } else {
            let mut bytes = [0u8; NetHdr::LEN_LEGACY];
            if self.asks {
                mem::gather(chain, 0, &mut bytes);
            }
            let mut hdr = NetHdr::parse(&bytes);
            // What only the NIC says.
            hdr.flags &= !NetHdr::OURS;
            let wanted = if hdr.is_plain() && self.allowed.is_none() {
                SNAP
            } else {
                HEAD_MAX
            };
            let n = bounded.min(wanted);
            mem::gather(chain, self.hdr_len, &mut wide[..n]);
            let head = &wide[..n];
            if hdr.gso_type != 0 || self.allowed.is_some() {
                let f = RawFrame {
                    head,
                    len: bounded,
                    hdr,
                    segs: chain,
                    skip: self.hdr_len,
                };
                if let Some(claim) = self.allowed.as_ref().and_then(|a| a.refused(head)) {
                    return self.refuse(taken.head, &f, claim, visit);
                }
                if hdr.gso_type != 0 {
                    return self.request(taken.head, &f, len, visit);
                }
            }
            (hdr, head)
        };
        let f = RawFrame {
            head,
            len: bounded,
            hdr,
            segs: chain,
            skip: self.hdr_len,
        };
        self.pass(taken.head, &f, len, visit)
    }

    /// Sends a frame that is to be cut into segments.
    #[inline(never)]
    fn request(&mut self, buffer: Head, f: &RawFrame<'_>, len: u64, visit: &mut Visit<'_>) -> Step {
        if let Some(step) = self.take_whole(f, len, &mut visit.sums) {
            return step;
        }
        let step = self.pass(buffer, f, len, visit);
        let pending = match step {
            Step::Done => false,
            Step::Pending => true,
            other => return other,
        };
        match self.holds.owe_segments(len, &f.hdr) {
            true => Step::Last { pending },
            false => step,
        }
    }

    /// Sends a frame whose first bytes are known.
    #[inline(always)]
    fn pass(&mut self, buffer: Head, f: &RawFrame<'_>, len: u64, visit: &mut Visit<'_>) -> Step {
        let mut priority = BY_TAG;
        if let Some(change) = &self.policed {
            if !self.grant.covers(f, visit.core) {
                return self.police(buffer, f, len, visit);
            }
            priority = change.qos.classification.priority(f.head) & 7;
        }
        let tells = self.learns && may_tell_address(f.head);
        if tells && gids::is_answer(f.head) {
            return self.hear(priority, f, len, visit);
        }
        let verdict = self.judge(f, len, visit.core);
        if visit.core.out.round.waiting.pressed && self.must_wait(&verdict, f.head, visit.core) {
            // A receiver has no room, and its queue is lossless: its senders wait.
            return Step::Wait;
        }
        if tells {
            visit.core.learn(self.port, f);
        }
        let step = self.send(buffer, f, verdict, visit);
        if !matches!(step, Step::Wait) {
            if priority != BY_TAG && !matches!(verdict, Verdict::Drop(_)) {
                self.grant.gone[usize::from(priority)] += plain_on_wire(f.len);
            }
            self.count(priority, f.head, len, &mut visit.sums);
            if self.steers
                && let Some(adapter) = visit.core.adapter(self.port)
            {
                adapter.sent(f, self.pair);
            }
        }
        step
    }

    /// Takes a frame that answers a question of the NIC itself: it has arrived.
    #[cold]
    fn hear(&mut self, priority: u8, f: &RawFrame<'_>, len: u64, visit: &mut Visit<'_>) -> Step {
        visit.core.learn(self.port, f);
        visit.core.seen(self.port, f, None);
        self.counters.queues[self.pair].add(Q::TxNicAnswers as usize, 1);
        // No receiver counts it.
        visit.sums.dropped += 1;
        self.count(priority, f.head, len, &mut visit.sums);
        Step::Done
    }

    /// Drops a frame with a refused claim.
    #[cold]
    fn refuse(&mut self, buffer: Head, f: &RawFrame<'_>, claim: Claim, visit: &mut Visit<'_>) -> Step {
        let len = f.len as u64;
        let reason = match self.judge(f, len, visit.core) {
            Verdict::Drop(reason @ (DropReason::InvalidSource | DropReason::SpoofedSource)) => reason,
            _ => DropReason::SpoofedAddress,
        };
        let priority = match &self.policed {
            Some(change) => change.qos.classification.priority(f.head) & 7,
            None => BY_TAG,
        };
        let step = self.send(buffer, f, Verdict::Drop(reason), visit);
        if !matches!(step, Step::Wait) {
            if reason == DropReason::SpoofedAddress {
                visit.core.report_claim(self.port, claim);
            }
            self.count(priority, f.head, len, &mut visit.sums);
        }
        step
    }

    /// Counts a frame that was taken from the ring. `priority`: 0..=7, or [`BY_TAG`].
    #[inline(always)]
    fn count(&mut self, priority: u8, head: &[u8], len: u64, sums: &mut Sums) {
        sums.bytes += len;
        sums.groups.frame(head, len);
        self.priorities.frame(priority, head, len);
    }

    /// Verdict for a frame.
    #[inline(always)]
    fn judge(&self, f: &RawFrame<'_>, len: u64, core: &mut Core) -> Verdict {
        if len > FRAME_MAX as u64 {
            Verdict::Drop(DropReason::MtuExceeded)
        } else if let Err(reason) = f.admissible(self.mtu) {
            Verdict::Drop(reason)
        } else {
            core.switch.forward(core.now, self.port, f.head, f.len)
        }
    }

    /// Verdict for a frame with the decision of its adapter's rules.
    fn judge_decided(&self, f: &RawFrame<'_>, len: u64, decision: qos::Decision, core: &mut Core) -> Verdict {
        let verdict = self.judge(f, len, core);
        match decision.pcp {
            Some(pcp) => core.switch.assign(self.port, f.head, verdict, pcp, true),
            None => verdict,
        }
    }

    /// Whether a frame of an adapter without a sender has to wait, because the adapter is paused or a receiver is pressed.
    #[cold]
    fn must_wait(&mut self, verdict: &Verdict, head: &[u8], core: &Core) -> bool {
        if core.halted(self.port) {
            self.holds.close(0);
            return true;
        }
        core.must_wait(self.port, verdict, head)
    }

    /// Sends a frame, or drops it if that is the verdict, or the adapter's access list denies it.
    #[inline(always)]
    fn send(&mut self, buffer: Head, f: &RawFrame<'_>, verdict: Verdict, visit: &mut Visit<'_>) -> Step {
        match visit.core.out.access_list(self.port, access_list::Way::Tx) {
            Some(list) if !matches!(verdict, Verdict::Drop(_)) => {
                self.send_listed(&list, buffer, f, verdict, visit)
            }
            _ => self.send_on(buffer, f, verdict, visit),
        }
    }

    /// Sends a frame of an adapter with an access list. Another core gets a copy: what was looked at is what it delivers.
    #[cold]
    fn send_listed(
        &mut self,
        list: &AccessList,
        buffer: Head,
        f: &RawFrame<'_>,
        verdict: Verdict,
        visit: &mut Visit<'_>,
    ) -> Step {
        if !self.slots.is_empty() {
            // Used entries are in order.
            return Step::Wait;
        }
        let own = std::mem::replace(&mut visit.own, true);
        let step = judged(list, access_list::Way::Tx, TagEdit::Keep, f, |f, decision| {
            let step = self.send_on(buffer, f, denied(verdict, decision), visit);
            if !matches!(step, Step::Wait) {
                list.count(access_list::Way::Tx, decision);
            }
            step
        });
        visit.own = own;
        step
    }

    /// Sends a frame that no access list concerns, or one has judged.
    #[inline(always)]
    fn send_on(&mut self, buffer: Head, f: &RawFrame<'_>, verdict: Verdict, visit: &mut Visit<'_>) -> Step {
        let core = &mut *visit.core;
        let crosses = core.crosses(self.port, &verdict);
        if !crosses && !self.slots.is_empty() {
            // Frames that other cores still copy come first: used entries are in order.
            return Step::Wait;
        }
        if let Verdict::Drop(reason) = verdict {
            self.counters.drops.add(reason as usize, 1);
            core.seen(self.port, f, Some(reason));
            if reason == DropReason::SpoofedSource {
                core.report_spoof(self.port, f.head);
            }
            if core.switch.is_any_asleep() {
                core.deliver(&verdict, f, &visit.meta);
            }
            visit.sums.dropped += 1;
            Step::Done
        } else if crosses {
            self.send_across(buffer, f, verdict, visit)
        } else {
            core.seen(self.port, f, None);
            core.deliver(&verdict, f, &visit.meta);
            Step::Done
        }
    }
}

impl Caller for TxQueue {
    fn calls(&mut self) -> (&mut Calls, &Ring) {
        (&mut self.calls, &self.ring)
    }

    fn count_call(&self) {
        let c = &self.path.counters.queues[self.path.pair];
        c.add(Q::TxNotifications as usize, 1);
        c.add(
            Q::TxNotificationsThreaded as usize,
            self.calls.is_threaded().into(),
        );
    }
}

/// Result of a frame.
enum Step {
    /// The buffer can be completed.
    Done,
    /// Another core has a reference to the buffer.
    Pending,
    /// [`Step::Done`] or [`Step::Pending`], and the queue's turn ends with it.
    Last {
        /// Whether the result is [`Step::Pending`].
        pending: bool,
    },
    /// The frame cannot go now; the buffer stays in the ring.
    Wait,
    /// The ring is broken.
    Fault(Fault),
}

/// A visit of a core to one of its transmit queues.
struct Visit<'a> {
    core: &'a mut Core,
    /// Index of the queue among those of the core.
    index: usize,
    /// Metadata of the queue's frames.
    meta: Metadata,
    sums: Sums,
    /// Whether the frames are in memory of the NIC, so that no buffer waits for them.
    own: bool,
}

#[derive(Default)]
struct Sums {
    bytes: u64,
    groups: Groups,
    dropped: u64,
    /// Buffers that were taken whole and are sent later, in parts.
    whole: u64,
}
