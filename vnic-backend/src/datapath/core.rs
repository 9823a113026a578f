//! A data core's switch, its local receivers and its links to other cores.

mod guest_roce;
mod sender;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use vnic_engine::counters::{CoreCounter, QueueCounter as Q};
use vnic_engine::offload::HEAD_MAX;
use vnic_fabric::access_list::{Action, Decision, Way};
use vnic_fabric::switch::{Claim, Egress, PortConfig, PortId, Switch, Verdict};
use vnic_fabric::wake::magic;
use vnic_fabric::{DropReason, Instant, TagEdit};
use vnic_wire::MacAddr;

use super::MAX_CORES;
use super::calls::{Caller as _, Owed};
use super::frame::{Arrival, Metadata, OutFrame, OwnedFrame, RawFrame, SNAP};
use super::gate::Gate;
use super::link::{
    Content, LentFrame, LinkIn, LinkOut, REMOTE_SEGS, Remote, RemoteDest, RemoteFrame, SlotRef,
};
use super::news::CoreEvent;
use super::outputs::{AdapterRx, BondSide, INBOUND_MAX, Inbound, LEARN_MAX, Outputs, Slot, is_roce, judged};
use super::qos::Pauses;
use super::sender::Senders;
use super::turns::Turns;
use super::weight::{self, HEAVY};
use crate::mem;

/// Messages taken from one link before other work gets its turn.
const LINK_BURST: usize = 64;

/// Switch, receivers and links of a data core.
pub struct Core {
    /// This core's copy of the switch.
    pub switch: Switch,
    /// Local receivers.
    pub out: Outputs,
    /// Links to the other cores, by the core's number.
    pub links_out: Vec<Option<LinkOut>>,
    /// Links from the other cores, by the core's number.
    pub links_in: Vec<Option<LinkIn>>,
    /// Interrupts that are due at guests of this core.
    pub owed: Owed,
    /// Pause states of all senders.
    pub pauses: Arc<Pauses>,
    /// Sending sides of the core's adapters.
    pub senders: Senders,
    /// Turns of the adapters that want to send.
    pub turns: Turns,
    /// When the current round began.
    pub now: Instant,
    /// Adapters for which a frame that wakes was reported, and when.
    woken: Vec<(PortId, Instant)>,
    /// Frames of another core that may wait for the end of their burst.
    kept: Vec<RemoteFrame>,
    many: bool,
}

/// The verdict for a frame about which an access list has decided.
pub fn denied(verdict: Verdict, decision: Decision) -> Verdict {
    match decision.action {
        Action::Permit => verdict,
        Action::Deny => Verdict::Drop(DropReason::AccessList),
    }
}

impl Core {
    /// A core with only its receivers; `links` are those to and from the other cores.
    pub fn new(out: Outputs, switch: Switch, links: (Vec<Option<LinkOut>>, Vec<Option<LinkIn>>)) -> Core {
        let (links_out, links_in) = links;
        let pauses = out.round.waiting.pauses().clone();
        let many = links_out.iter().any(Option::is_some);
        Core {
            switch,
            out,
            links_out,
            links_in,
            owed: Owed::default(),
            pauses,
            senders: Senders::default(),
            turns: Turns::default(),
            now: Instant(0),
            woken: Vec::new(),
            kept: Vec::with_capacity(if many { LINK_BURST } else { 0 }),
            many,
        }
    }

    /// The local adapter behind a port.
    pub fn adapter(&mut self, port: PortId) -> Option<&mut AdapterRx> {
        self.out.adapter(port)
    }

    /// Reports an event to the control plane; drops the event if the control plane does not keep up.
    pub fn report(&self, event: CoreEvent) {
        self.out.events.report(event);
    }

    /// Runs code in which a bug must not end the core. `None`: it panicked, and the panic is counted.
    #[inline(always)]
    pub fn guarded<R>(&mut self, what: impl FnOnce(&mut Core) -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| what(self))) {
            Ok(done) => Some(done),
            Err(_) => {
                self.out.round.counters.add(CoreCounter::Panics as usize, 1);
                self.out.forget_burst();
                None
            }
        }
    }

    /// Runs code of the receivers, guarded as by [`Core::guarded`], and shows their guests the new frames.
    #[inline(never)]
    pub fn served(&mut self, what: impl FnOnce(&mut Outputs) -> usize) -> Option<usize> {
        self.guarded(|core| {
            let work = what(&mut core.out);
            core.flush();
            work
        })
    }

    /// Whether any receiver is on another core.
    #[inline]
    pub fn crosses(&self, ingress: PortId, verdict: &Verdict) -> bool {
        if !self.many {
            return false;
        }
        let remote = |p: PortId| matches!(self.out.slots.get(usize::from(p.0)), Some(Slot::Remote(_)));
        match *verdict {
            Verdict::Unicast(e) => remote(e.port),
            Verdict::Flood(flood) => self.switch.flood_targets(ingress, flood).any(|e| remote(e.port)),
            Verdict::Drop(_) => false,
        }
    }

    /// Hands a frame to the receivers of this core. Their guests see it at the next [`Core::flush`].
    #[inline]
    pub fn deliver(&mut self, verdict: &Verdict, f: &RawFrame<'_>, meta: &Metadata) {
        match *verdict {
            Verdict::Unicast(e) => self.out.give(e, f, meta),
            Verdict::Flood(ref flood) => {
                if self.switch.is_any_asleep() {
                    self.wake(f, meta);
                }
                for &port in self.switch.up_ports() {
                    if let Some(tag) = self.switch.flood_to(port, meta.ingress, flood) {
                        self.out.give(Egress { port, tag }, f, meta);
                    }
                }
            }
            Verdict::Drop(DropReason::ReceiverDown | DropReason::NoDestination)
                if self.switch.is_any_asleep() =>
            {
                self.wake(f, meta);
            }
            Verdict::Drop(_) => {}
        }
    }

    /// Reports frames that wake an adapter whose guest does not run, at most once a second for each.
    #[cold]
    fn wake(&mut self, f: &RawFrame<'_>, meta: &Metadata) {
        const PAUSE: Duration = Duration::from_secs(1);
        /// Where a magic packet and patterns are looked for: all of a frame without offloads.
        const LOOK: usize = 1522;
        if matches!(
            self.out.slots.get(usize::from(meta.source.0)),
            Some(Slot::Remote(_))
        ) {
            // The core that it came from has looked.
            return;
        }
        let mut bytes = [0; LOOK];
        let known = f.whole().peek(&mut bytes);
        let bytes = &bytes[..known];
        let of_magic = magic(bytes).and_then(|mac| self.switch.wakes(meta.ingress, f.head, mac));
        let mut all: Vec<(PortId, Option<usize>)> = of_magic.into_iter().map(|port| (port, None)).collect();
        let patterns = self.switch.woken(meta.ingress, bytes);
        all.extend(patterns.map(|(port, pattern)| (port, Some(pattern))));
        let now = self.now;
        self.woken.retain(|(_, at)| now.since(*at) < PAUSE);
        let source = f
            .head
            .get(6..12)
            .and_then(|s| s.try_into().ok())
            .map_or(MacAddr([0; 6]), MacAddr);
        let by = meta.source;
        for (port, pattern) in all {
            if self.woken.iter().any(|(woken, _)| *woken == port) {
                continue;
            }
            self.woken.push((port, now));
            self.report(CoreEvent::Wake {
                port,
                source,
                by,
                pattern,
            });
        }
    }

    /// Sends a frame whose bytes the core owns as the verdict says: as a copy to other cores, and to the receivers of this
    /// one. Returns the reason of a drop, which the caller counts.
    pub fn dispatch(&mut self, verdict: &Verdict, f: &RawFrame<'_>, meta: &Metadata) -> Option<DropReason> {
        match self.out.access_list(meta.source, Way::Tx) {
            Some(list) if !matches!(verdict, Verdict::Drop(_)) => {
                judged(&list, Way::Tx, TagEdit::Keep, f, |f, decision| {
                    list.count(Way::Tx, decision);
                    self.dispatch_on(&denied(*verdict, decision), f, meta)
                })
            }
            _ => self.dispatch_on(verdict, f, meta),
        }
    }

    /// Sends a frame that no access list concerns, or one has judged.
    fn dispatch_on(&mut self, verdict: &Verdict, f: &RawFrame<'_>, meta: &Metadata) -> Option<DropReason> {
        let dropped = match *verdict {
            Verdict::Drop(reason) => Some(reason),
            _ if self.crosses(meta.ingress, verdict)
                && self.send_remote(verdict, f, meta, None).is_none() =>
            {
                Some(DropReason::CoreExchangeFull)
            }
            _ => None,
        };
        if self.out.sees() {
            self.out.see(meta.source, meta.arrived, &f.whole(), dropped);
        }
        self.deliver(verdict, f, meta);
        dropped
    }

    /// Sends references to the other cores that have receivers. `None`: a link is full, and nothing was sent.
    pub fn send_remote(
        &mut self,
        verdict: &Verdict,
        f: &RawFrame<'_>,
        meta: &Metadata,
        slot: Option<SlotRef>,
    ) -> Option<ArrayVec<(usize, u64), MAX_CORES>> {
        let ingress = meta.ingress;
        let mut cores: ArrayVec<usize, MAX_CORES> = ArrayVec::new();
        let mut add = |p: PortId| {
            if let Some(Slot::Remote(c)) = self.out.slots.get(usize::from(p.0))
                && !cores.contains(c)
            {
                cores.push(*c);
            }
        };
        let dest = match *verdict {
            Verdict::Unicast(e) => {
                add(e.port);
                RemoteDest::One(e)
            }
            Verdict::Flood(flood) => {
                self.switch
                    .flood_targets(ingress, flood)
                    .for_each(|e| add(e.port));
                RemoteDest::Flood(flood)
            }
            Verdict::Drop(_) => return Some(ArrayVec::new()),
        };
        let has_room = |c: &usize| matches!(&self.links_out[*c], Some(l) if l.has_room());
        if !cores.iter().all(has_room) {
            return None;
        }
        // Frames that are not lent are copied for all cores before the first core has one.
        let lent = |slot: SlotRef| LentFrame::of(f, meta.counted(), slot);
        let mut copies: ArrayVec<OwnedFrame, MAX_CORES> = ArrayVec::new();
        let mut sent = ArrayVec::new();
        if slot.is_none() || f.segs.len() > REMOTE_SEGS {
            for _ in &cores {
                copies.push(OwnedFrame::copy(&f.whole(), meta.counted())?);
            }
        }
        for c in cores {
            let content = match copies.pop() {
                Some(copy) => Content::Owned(copy),
                None => Content::Lent(slot.and_then(lent)?),
            };
            let frame = RemoteFrame {
                seq: 0,
                dest,
                content,
            };
            let seq = self.links_out[c].as_mut()?.send(frame, slot)?;
            sent.push((c, seq));
        }
        Some(sent)
    }

    /// Commits frame `seq` on the link to core `c`: the sender's buffer has been completed.
    pub fn commit(&mut self, c: usize, seq: u64) {
        if let Some(l) = &mut self.links_out[c] {
            l.commit(seq);
        }
    }

    /// Takes messages of other cores. Returns their number.
    pub fn poll_links(&mut self) -> usize {
        let mut work = 0;
        for c in 0..self.links_in.len() {
            let mut heavy = 0;
            let mut last = None;
            for _ in 0..LINK_BURST {
                if self.out.round.waiting.stops_links() || heavy > HEAVY {
                    break;
                }
                let Some(message) = self.links_in[c].as_mut().and_then(LinkIn::recv) else {
                    break;
                };
                work += 1;
                match message {
                    Remote::Fdb(update) => self.switch.apply_update(update),
                    Remote::Frame(mut rf) => {
                        let (meta, hdr, len) = rf.facts();
                        heavy += weight::segments(len as u64, hdr);
                        let port = meta.source;
                        // A bug that a sender's frame triggers takes down that sender, not this core.
                        if self.guarded(|core| core.receive_remote(c, &mut rf)).is_none() {
                            self.report(CoreEvent::Panic { port });
                        }
                        last = Some(rf.seq);
                        if self.out.coalesces() {
                            // The frame may wait, and those behind it are counted after it.
                            self.kept.push(rf);
                        } else {
                            self.copied(c, &mut last);
                        }
                    }
                }
            }
            if last.is_some() {
                self.out.end_burst();
                self.kept.clear();
                self.copied(c, &mut last);
            }
        }
        if work > 0 {
            self.flush();
        }
        while self.switch.has_updates() && self.links_out.iter().flatten().all(LinkOut::has_room) {
            let Some(update) = self.switch.poll_update() else {
                break;
            };
            for l in self.links_out.iter_mut().flatten() {
                l.send_update(update);
            }
        }
        work
    }

    /// Counts the frames of a link up to `last` as copied.
    fn copied(&mut self, c: usize, last: &mut Option<u64>) {
        if let (Some(seq), Some(l)) = (last.take(), &mut self.links_in[c]) {
            l.copied(seq);
        }
    }

    fn receive_remote(&mut self, from: usize, rf: &mut RemoteFrame) {
        let lasts = rf.lasts();
        let verdict = match rf.dest {
            RemoteDest::One(e) => Verdict::Unicast(e),
            RemoteDest::Flood(flood) => Verdict::Flood(flood),
        };
        let gate = Gate::new(from, rf.seq);
        let lent = match &mut rf.content {
            Content::Lent(lent) => lent,
            Content::Owned(frame) => {
                frame.meta.gate = gate;
                frame.meta.lasts = lasts;
                return frame.with(|f, meta| self.deliver(&verdict, f, meta));
            }
        };
        // The sender's core read the first bytes once, and these copies count.
        let mut wide = [0u8; HEAD_MAX];
        let snapped = lent.len.min(SNAP);
        wide[..snapped].copy_from_slice(&lent.snap[..snapped]);
        let mut head_len = snapped;
        if !lent.hdr.is_plain() {
            head_len = lent.len.min(HEAD_MAX);
            mem::gather(&lent.segs, lent.skip + snapped, &mut wide[snapped..head_len]);
        }
        let f = RawFrame {
            head: &wide[..head_len],
            len: lent.len,
            hdr: lent.hdr,
            segs: &lent.segs,
            skip: lent.skip,
        };
        lent.meta.gate = gate;
        lent.meta.lasts = lasts;
        self.deliver(&verdict, &f, &lent.meta);
    }

    /// Shows guests their new frames, as far as the senders' buffers are completed.
    #[inline]
    pub fn flush(&mut self) {
        if self.out.round.touched.is_empty() {
            return;
        }
        let links = &self.links_in;
        let open = |g: Gate| links[g.core()].as_ref().is_none_or(|l| l.is_committed(g.seq()));
        let Outputs {
            slots, round, events, ..
        } = &mut self.out;
        let (events, owed, now) = (&*events, &mut self.owed, self.now);
        round
            .touched
            .retain(|&(port, q)| match slots.get_mut(usize::from(port.0)) {
                Some(Slot::Adapter(a)) => {
                    let Some(Some(rx)) = a.queues.get_mut(usize::from(q)) else {
                        return false;
                    };
                    let done = rx.flush(now, open);
                    rx.touched = !done;
                    if let Some(due) = rx.call_is_due() {
                        owed.by(port, q, due);
                    }
                    if let Some(fault) = rx.take_fault() {
                        a.counters.queues[usize::from(q)].add(Q::RingFaults as usize, 1);
                        events.report(CoreEvent::RingFault {
                            port,
                            ring: u16::from(q) * 2,
                            fault,
                        });
                    }
                    !done
                }
                Some(Slot::Uplink(p)) => {
                    let done = p.flush(open);
                    p.touched = !done;
                    !done
                }
                _ => false,
            });
    }

    /// Shows a guest the frames of one queue, even if the queue is not in `touched` (it may not be after a caught panic).
    pub fn flush_queue(&mut self, port: PortId, pair: usize) {
        self.flush();
        let links = &self.links_in;
        let open = |g: Gate| links[g.core()].as_ref().is_none_or(|l| l.is_committed(g.seq()));
        if let Some(Slot::Adapter(a)) = self.out.slots.get_mut(usize::from(port.0))
            && let Some(Some(rx)) = a.queues.get_mut(pair)
        {
            rx.flush(self.now, open);
        }
    }

    /// Whether nothing waits for another core.
    pub fn settled(&self) -> bool {
        self.out.round.touched.is_empty()
            && self.links_out.iter().flatten().all(LinkOut::idle)
            && !self.links_in.iter().flatten().any(LinkIn::pending)
            && !(self.many && self.switch.has_updates())
    }

    /// Whether every link to another core has room.
    #[inline]
    pub fn links_have_room(&self) -> bool {
        !self.many || self.links_out.iter().flatten().all(LinkOut::has_room)
    }

    /// Counts a dropped frame of an adapter.
    pub fn count_drop(&mut self, port: PortId, reason: DropReason) {
        if let Some(a) = self.adapter(port) {
            a.counters.drops.add(reason as usize, 1);
        }
    }

    /// Sends a frame that the NIC itself made in the name of an adapter's guest.
    pub fn send_own(&mut self, port: PortId, frame: &[u8], now: Instant) {
        let f = RawFrame {
            head: frame,
            len: frame.len(),
            hdr: Default::default(),
            segs: &[],
            skip: 0,
        };
        let verdict = self.switch.forward(now, port, f.head, f.len);
        if let Some(reason) = self.dispatch(&verdict, &f, &Metadata::of(port)) {
            self.count_drop(port, reason);
        }
        self.flush();
    }

    /// Gives an adapter's guest a frame that the NIC itself made.
    pub fn give_guest(&mut self, port: PortId, frame: &[u8]) {
        let Some(mut frame) = OwnedFrame::copy(&OutFrame::of(frame), Metadata::of(port)) else {
            return;
        };
        let tag = TagEdit::Keep;
        frame.with(|f, meta| self.out.give(Egress { port, tag }, f, meta));
    }

    /// Keeps the front of a guest's frame that may contain the guest's addresses, for the RDMA function.
    #[inline(never)]
    pub fn learn(&mut self, port: PortId, f: &RawFrame<'_>) {
        if self.out.round.inbound.len() >= INBOUND_MAX {
            return;
        }
        let mut bytes = vec![0; f.len.min(LEARN_MAX)].into_boxed_slice();
        f.peek(&mut bytes);
        self.out.round.inbound.push_back((port, Inbound::Sent(bytes)));
    }

    /// Reports a foreign source address, each once and a limited number.
    #[cold]
    pub fn report_spoof(&mut self, port: PortId, head: &[u8]) {
        let Some(Ok(source)) = head.get(6..12).map(TryInto::try_into) else {
            return;
        };
        let source = MacAddr(source);
        let Some(a) = self.adapter(port) else { return };
        if !a.spoofs.contains(&source) && a.spoofs.try_push(source).is_ok() {
            self.report(CoreEvent::Spoof { port, source });
        }
    }

    /// Reports a refused claim of a guest, each once and a limited number.
    #[cold]
    pub fn report_claim(&mut self, port: PortId, claim: Claim) {
        let Some(a) = self.adapter(port) else { return };
        if !a.claims.contains(&claim) && a.claims.try_push(claim).is_ok() {
            self.report(CoreEvent::SpoofedAddress { port, claim });
        }
    }

    /// Offers a frame that enters the switch to captures and mirror sessions.
    #[inline]
    pub fn seen(&mut self, port: PortId, f: &RawFrame<'_>, dropped: Option<DropReason>) {
        if self.out.sees() {
            self.out.see(port, Arrival::Unknown, &f.whole(), dropped);
        }
    }

    /// Sends the copies of mirror sessions to their destinations, past the switch. Returns their number.
    #[cold]
    pub fn mirror_round(&mut self) -> usize {
        let mut work = 0;
        while let Some(mut copy) = self.out.round.mirrors.next() {
            let to = copy.destination;
            let sent = copy.frame.with(|f, meta| self.send_copy(to, f, meta));
            copy.count(sent, &self.out.round.counters);
            work += 1;
        }
        self.out.mirrors_left();
        work
    }

    /// Sends a copy of a frame. False: no sender is held up for a copy, so it is lost.
    fn send_copy(&mut self, to: PortId, f: &RawFrame<'_>, meta: &Metadata) -> bool {
        let verdict = Verdict::Unicast(Egress {
            port: to,
            tag: TagEdit::Keep,
        });
        if self.out.round.waiting.pressed && self.must_wait(to, &verdict, f.head) {
            return false;
        }
        if self.crosses(to, &verdict) {
            return self.send_remote(&verdict, f, meta, None).is_some();
        }
        self.deliver(&verdict, f, meta);
        true
    }

    /// Sends due interrupts of receive queues.
    pub fn call_due(&mut self, now: Instant) {
        let slots = &mut self.out.slots;
        self.owed
            .settle(|port, q| match slots.get_mut(usize::from(port.0)) {
                Some(Slot::Adapter(a)) => a.queues.get_mut(usize::from(q))?.as_mut()?.call_due(now),
                _ => None,
            });
    }

    /// Announces an adapter that came up to the local uplinks, so that switches behind them learn its place.
    pub fn announce(&mut self, port: PortId, mac: MacAddr) {
        let frame = vnic_wire::arp::rarp_announce(mac);
        let f = RawFrame {
            head: &frame,
            len: frame.len(),
            hdr: Default::default(),
            segs: &[],
            skip: 0,
        };
        self.flood_here(port, &f, |slot| matches!(slot, Slot::Uplink(_) | Slot::Bond(_)));
    }

    /// Announces an adapter's address to everything of this core that can hear it, in the VLANs with these tags.
    pub fn broadcast(&mut self, port: PortId, mac: MacAddr, tags: &[Option<u16>]) {
        let plain = vnic_wire::arp::rarp_announce(mac);
        for tag in tags {
            let (addresses, rest) = plain.split_at(2 * size_of::<MacAddr>());
            let tag = tag.map(|vlan| {
                let [hi, lo] = vlan.to_be_bytes();
                [0x81, 0, hi, lo]
            });
            let frame = [addresses, tag.as_ref().map_or(&[], |tag| &tag[..]), rest].concat();
            let f = RawFrame {
                head: &frame,
                len: frame.len(),
                hdr: Default::default(),
                segs: &[],
                skip: 0,
            };
            self.flood_here(port, &f, |slot| {
                matches!(slot, Slot::Uplink(_) | Slot::Bond(_) | Slot::Adapter(_))
            });
        }
    }

    /// Gives a frame of a port to the wanted ones of this core's ports, without learning from it.
    fn flood_here(&mut self, port: PortId, f: &RawFrame<'_>, wanted: fn(&Slot) -> bool) {
        let Verdict::Flood(flood) = self.switch.explain(port, f.head, f.len).verdict else {
            return;
        };
        for e in self.switch.flood_targets(port, flood) {
            if self.out.slots.get(usize::from(e.port.0)).is_some_and(wanted) {
                self.out.give(e, f, &Metadata::of(port));
            }
        }
        self.flush();
    }

    /// Whether a frame has to wait because a frame for one of its receivers waits.
    #[cold]
    #[inline(never)]
    pub fn must_wait(&self, ingress: PortId, verdict: &Verdict, head: &[u8]) -> bool {
        let roce = is_roce(head);
        let waiting = &self.out.round.waiting;
        match *verdict {
            Verdict::Unicast(e) => waiting.holds_up(e.port, roce),
            Verdict::Flood(flood) => self
                .switch
                .flood_targets(ingress, flood)
                .any(|e| waiting.holds_up(e.port, roce)),
            Verdict::Drop(_) => false,
        }
    }

    /// Whether a packet of an RDMA function has to be dropped, because it would have to wait and too many bytes wait.
    #[cold]
    pub fn too_many_wait(&self, ingress: PortId, verdict: &Verdict, head: &[u8]) -> bool {
        self.out.round.waiting.is_crowded() && self.must_wait(ingress, verdict, head)
    }

    /// Adds or replaces a bond.
    pub fn set_bond(&mut self, id: PortId, config: PortConfig, members: Vec<PortId>, side: BondSide) {
        if self.out.bonds.members(id).is_some() {
            self.switch.set_port(id, config);
        } else {
            self.switch.add_port(id, config);
        }
        for member in self.out.set_bond(id, members, side, self.now) {
            self.switch.remove_port(member);
        }
        self.flush();
    }

    /// Makes members of a bond ports of the switch again. A bond without members is removed.
    pub fn unbond(&mut self, id: PortId, members: Vec<(PortId, PortConfig)>) {
        let now = self.now;
        for (port, config) in members {
            self.out.leave_bond(id, port, now);
            self.switch.add_port(port, config);
        }
        if self.out.bonds.members(id).is_some_and(Vec::is_empty) {
            // The waiting frames have no member to go to and are dropped.
            while self.out.bonds_round(now) > 0 {
                self.flush();
            }
            self.out.bonds.forget(id);
            self.switch.remove_port(id);
            *self.out.slot(id) = Slot::Empty;
        }
    }
}
