//! Each round releases frames that wait at the ports of a core and may go, drops those that have waited too long, and stops
//! receivers that pause senders for too long. Receivers come, change and go here.

use std::sync::Arc;

use vnic_engine::counters::LinkCounter as L;
use vnic_fabric::qos::LANES;
use vnic_fabric::qos::{Away, StallNews, Verdict};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};

use super::super::super::frame::OwnedFrame;
use super::super::super::news::CoreEvent;
use super::super::super::qos::{PauseState, QosChange};
use super::super::super::rx::RxQueue;
use super::super::super::weight::{self, HEAVY};
use super::super::Outputs;
use super::super::concern::is_roce;
use super::super::receiver::{CLASSES, Counted, Receiver, classifies};
use super::super::slot::Slot;
use crate::types::QueueStatus;

/// Frames that leave one port before others get their turn.
const BURST: usize = 256;

impl Receiver {
    /// Whether the receiver has to be served each round.
    fn is_busy(&self) -> bool {
        !self.queues.is_empty()
            || self.buffers.pausing() != 0
            || self.stall.guard.is_tripped()
            || self.stall.guard.next_time(self.change.qos.guard).is_some()
    }

    /// When the receiver has to act without another event.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        let qos = &self.change.qos;
        let credit = self.queues.next_time(now, self.closed | self.blocked);
        let guard = self.stall.guard.next_time(qos.guard);
        let enabled = (0..CLASSES as u8).filter(|c| qos.lifetimes.enable >> c & 1 != 0);
        let late = enabled.filter_map(|class| {
            let (_, entry) = self.queues.oldest(class)?;
            let since = entry.since.max(self.ages.head_since[usize::from(class)]);
            self.ages.lifetime.due(qos.lifetimes, class, since)
        });
        credit.into_iter().chain(guard).chain(late).min()
    }
}

impl Outputs {
    /// Sends waiting frames that may go. Returns how many left or were dropped.
    fn serve(&mut self, r: &mut Receiver, now: Instant) -> usize {
        r.blocked = 0;
        let (mut work, mut heavy) = (0, 0);
        while work < BURST && heavy <= HEAVY {
            let Some(pick) = r.queues.next(now, r.closed | r.blocked) else {
                break;
            };
            let Some((entry, frame)) = r.queues.front(pick) else {
                break;
            };
            let priority = entry.priority;
            let lossless = r.lossless & 1 << priority != 0;
            let room = !lossless || self.has_room(r.port, &frame.whole(), frame.bytes.len(), 1);
            if !room && !r.stall.guard.is_tripped() {
                r.blocked |= 1 << priority;
                continue;
            }
            let verdict = match room && r.congestion.marks {
                true => r.judge_next(now, pick),
                false => Verdict::Pass,
            };
            // A discarded frame does not count as sent.
            let taken = if room && verdict != Verdict::Drop {
                r.queues.take(now, pick)
            } else {
                r.queues.discard(pick)
            };
            let Some((entry, mut frame)) = taken else { break };
            heavy += weight::segments(frame.bytes.len() as u64, &frame.hdr);
            r.buffers.release(entry.source, priority, entry.bytes);
            if let Some(since) = r.ages.head_since.get_mut(usize::from(pick.class)) {
                *since = now;
            }
            match verdict {
                Verdict::Pass => {}
                Verdict::Mark => r.mark(priority, &mut frame.bytes),
                Verdict::Drop => {
                    r.stall.moved |= 1 << (priority & 7);
                    self.drop_early(r, priority, frame);
                    work += 1;
                    continue;
                }
            }
            if room {
                r.stall.moved |= 1 << (priority & 7);
                r.ages.lifetime.sent(pick.class);
            }
            r.stamp(now, pick.class, &mut frame.bytes);
            self.leave(r.port, frame);
            work += 1;
        }
        work
    }

    /// Drops a frame that waited, although its receiver has room for it.
    #[cold]
    fn drop_early(&mut self, r: &Receiver, priority: u8, frame: OwnedFrame) {
        r.count_drop(priority, DropReason::Wred);
        self.round
            .offer(r.port, &frame.whole(), Some(DropReason::Wred), None);
        self.pool.give_back(frame);
    }

    /// Delivers a frame that waited.
    pub(super) fn leave(&mut self, port: PortId, mut frame: OwnedFrame) {
        let e = Egress {
            port,
            tag: TagEdit::Keep,
        };
        frame.with(|f, meta| self.give_now(e, f, meta));
        self.pool.give_back(frame);
    }

    /// Drops frames that have waited too long at the head of their class.
    fn expire(&mut self, r: &mut Receiver, now: Instant) -> usize {
        let lifetimes = r.change.qos.lifetimes;
        let mut work = 0;
        for class in (0..CLASSES as u8).filter(|c| lifetimes.enable >> c & 1 != 0) {
            while work < BURST
                && let Some((pick, entry)) = r.queues.oldest(class)
            {
                let since = entry.since.max(r.ages.head_since[usize::from(class)]);
                let Some(reason) = r.ages.lifetime.judge(now, lifetimes, class, since) else {
                    break;
                };
                let Some((entry, frame)) = r.queues.discard(pick) else {
                    break;
                };
                r.ages.head_since[usize::from(class)] = now;
                r.buffers.release(entry.source, entry.priority, entry.bytes);
                r.count_drop(entry.priority, reason);
                self.round.offer(r.port, &frame.whole(), Some(reason), None);
                self.pool.give_back(frame);
                work += 1;
            }
        }
        work
    }

    /// Drops waiting frames for which `gone` is true.
    fn drop_frames(&mut self, r: &mut Receiver, reason: DropReason, gone: impl Fn(&[u8]) -> bool) {
        let mut stays = Vec::new();
        for class in 0..LANES as u8 {
            while let Some((pick, _)) = r.queues.oldest(class) {
                let Some((entry, frame)) = r.queues.discard(pick) else {
                    break;
                };
                if !gone(&frame.bytes) {
                    stays.push((entry, frame));
                    continue;
                }
                r.buffers.release(entry.source, entry.priority, entry.bytes);
                r.counters.drop(reason, 1);
                self.round.offer(r.port, &frame.whole(), Some(reason), None);
                self.pool.give_back(frame);
            }
        }
        for (entry, frame) in stays {
            r.queues.push(entry, frame);
        }
    }

    /// Counts credit of ports' rates for a time in which the core could not look.
    pub fn was_away(&mut self, away: Away) {
        let receivers = self.slots.iter_mut().filter_map(|slot| slot.receiver()?.as_mut());
        receivers.for_each(|r| r.queues.was_away(away));
    }

    /// Serves the receivers of this core that have something to do. Returns how many frames left or were dropped.
    #[cold]
    pub fn receivers_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let mut i = 0;
        while let Some(&port) = self.queued.get(i) {
            let Some(mut r) = self.take_receiver(port) else {
                self.queued.swap_remove(i);
                continue;
            };
            work += self.receiver_round(&mut r, now);
            if r.is_busy() || (r.closed | r.blocked != 0 && !r.queues.is_empty()) {
                i += 1;
            } else {
                r.listed = false;
                self.queued.swap_remove(i);
                r.settle();
                r.signal(&mut self.signals, now);
                if !r.is_needed() {
                    self.signals.forget(port);
                    self.taken = None;
                    continue;
                }
            }
            self.put_receiver(r);
        }
        self.round.waiting.look();
        work
    }

    fn receiver_round(&mut self, r: &mut Receiver, now: Instant) -> usize {
        let mut work = 0;
        // A frame that may go is not late, however late the core looks.
        work += self.serve(r, now);
        if r.change.qos.lifetimes.enable != 0 {
            let before = r.ages.lifetime.stalled();
            work += self.expire(r, now);
            let stalled = r.ages.lifetime.stalled() & !before;
            for class in (0..CLASSES as u8).filter(|c| stalled >> c & 1 != 0) {
                self.report(CoreEvent::ClassStalled { port: r.port, class });
            }
        }
        let pausing = r.buffers.pausing();
        let guard = r.change.qos.guard;
        let mut moved = std::mem::take(&mut r.stall.moved);
        while let Some(news) = r
            .stall
            .guard
            .observe(now, guard, pausing, std::mem::take(&mut moved))
        {
            let link = &r.counters.link().link;
            match news {
                StallNews::Minor => link.add(L::TxPauseStormWarnings as usize, 1),
                StallNews::Critical => link.add(L::TxPauseStormErrors as usize, 1),
                StallNews::Recovered => {}
            }
            r.buffers.set_silent(r.stall.guard.is_tripped());
            self.report(CoreEvent::Stall { port: r.port, news });
        }
        r.signal(&mut self.signals, now);
        work
    }

    /// When a receiver has to act without a frame.
    pub fn receivers_due(&self, now: Instant) -> Option<Instant> {
        let queued = self.queued.iter();
        let times = queued.filter_map(|p| {
            match self.slots.get(usize::from(p.0)) {
                Some(Slot::Adapter(a)) => a.receiver.as_ref(),
                Some(Slot::Uplink(u)) => u.receiver.as_ref(),
                _ => None,
            }?
            .next_time(now)
        });
        times.min()
    }

    /// Asks guests to kick when they post buffers for lossless frames that wait for them. True: a guest has posted buffers
    /// already.
    pub fn request_room(&mut self) -> bool {
        let mut more = false;
        self.blocked_queues(|rx| more |= rx.request_more());
        more
    }

    /// Suppresses the kicks of [`Outputs::request_room`]: a core that is awake looks at the rings itself.
    pub fn suppress_room_kicks(&mut self) {
        self.blocked_queues(|rx| rx.suppress_kicks());
    }

    fn blocked_queues(&mut self, mut each: impl FnMut(&mut RxQueue)) {
        let Outputs { slots, queued, .. } = self;
        for port in queued.iter() {
            if let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0))
                && a.receiver.as_ref().is_some_and(|r| r.blocked != 0)
            {
                // If frames wait in the reserve, [`Outputs::request_buffers`] asks.
                let queues = a.queues.iter_mut().flatten();
                queues.filter(|rx| rx.parked().is_empty()).for_each(&mut each);
            }
        }
    }

    /// Applies the configuration of a port to its receiving side. `closed`: priorities that the peer on the wire has paused,
    /// a bit each.
    pub(in super::super) fn set_up_receiver(&mut self, port: PortId, closed: u8, now: Instant) {
        let change = self.acting(port);
        let counters = match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => Counted::Guest(a.counters.clone()),
            Some(Slot::Uplink(p)) => Counted::Wire(p.counters.clone()),
            _ => return,
        };
        let mut receiver = match self.take_receiver(port) {
            Some(mut r) => {
                r.closed = closed;
                if *r.change == *change {
                    r.settle();
                } else {
                    r.configure(change, &mut self.signals, now);
                }
                r
            }
            None => {
                let needed = closed != 0 || change.qos.queues() || classifies(&change.qos);
                if !needed {
                    return;
                }
                let mut r = Box::new(Receiver::new(port, change, counters, now));
                r.closed = closed;
                for (source, change) in self.qos.all() {
                    if let Some(queue) = &change.qos.queue {
                        r.queues.set_guarantee(source.0, &queue.guarantee);
                    }
                }
                r
            }
        };
        receiver.signal(&mut self.signals, now);
        // The next round removes the receiver if it is not needed.
        self.list(&mut receiver);
        self.put_receiver(receiver);
        self.round.waiting.look();
    }

    /// Replaces a receiver that was lost in a panic; no sender is paused for the lost one any more.
    #[cold]
    pub fn mend_receiver(&mut self, port: PortId, now: Instant) {
        self.taken = None;
        self.queued.retain(|p| *p != port);
        self.signals.forget(port);
        let closed = match self.slots.get(usize::from(port.0)) {
            Some(Slot::Uplink(p)) => p.link.paused(),
            _ => 0,
        };
        self.set_up_receiver(port, closed, now);
        self.round.waiting.look();
    }

    /// Removes the receiver of a removed port and drops its waiting frames.
    pub fn forget_receiver(&mut self, port: PortId) {
        let reason = DropReason::ReceiverDown;
        if let Some(mut r) = self.take_receiver(port) {
            self.drop_frames(&mut r, reason, |_| true);
            self.taken = None;
        }
        self.queued.retain(|p| *p != port);
        self.signals.forget(port);
        self.storm(port, PauseState::default());
        self.round.waiting.look();
        self.set_guarantees(port, None);
    }

    /// Lets an adapter pause all other ports, as in a pause storm; the default state ends that.
    pub fn storm(&mut self, port: PortId, state: PauseState) {
        self.signals.storm(port, state);
    }

    /// Drops the waiting frames of an adapter without a guest, or of a member without a link. Returns their number.
    pub fn drop_queued(&mut self, port: PortId, now: Instant) -> u64 {
        let Some(mut r) = self.take_receiver(port) else {
            return 0;
        };
        let before = r.queues.len();
        let roce = match self.slots.get(usize::from(port.0)) {
            Some(Slot::Adapter(a)) => a.takes_roce,
            _ => false,
        };
        let gone = |bytes: &[u8]| !(roce && is_roce(bytes));
        self.drop_frames(&mut r, DropReason::ReceiverDown, gone);
        // A guest that is gone has not stalled.
        r.stall.moved = 0xff;
        self.list(&mut r);
        r.signal(&mut self.signals, now);
        let gone = before - r.queues.len();
        self.put_receiver(r);
        gone as u64
    }

    /// Sets the guarantee of a source at each local receiver, or removes the source.
    fn set_guarantees(&mut self, source: PortId, guarantee: Option<&[u64; CLASSES]>) {
        for slot in &mut self.slots {
            let Some(Some(receiver)) = slot.receiver() else {
                continue;
            };
            match guarantee {
                Some(guarantee) => receiver.queues.set_guarantee(source.0, guarantee),
                None => receiver.queues.forget_source(source.0),
            }
        }
    }

    /// Configures a port, on whichever core it is.
    pub fn set_receiver(&mut self, id: PortId, change: &Arc<QosChange>, now: Instant) {
        let guarantee = change.qos.queue.as_ref().map_or([0; CLASSES], |q| q.guarantee);
        self.set_guarantees(id, Some(&guarantee));
        let closed = match self.slots.get(usize::from(id.0)) {
            Some(Slot::Uplink(p)) => p.link.paused(),
            _ => 0,
        };
        self.set_up_receiver(id, closed, now);
        self.configure_link(id, now);
    }

    /// Adds the status of the receiving side of a port.
    pub fn receiver_status(&mut self, id: PortId, status: &mut QueueStatus) {
        let slot = self.slots.get_mut(usize::from(id.0));
        if let Some(Slot::Uplink(p)) = &slot {
            status.paused |= p.link.paused();
            status.pausing |= p.link.pausing();
        }
        let Some(Some(r)) = slot.and_then(Slot::receiver) else {
            return;
        };
        status.bytes = r.lengths();
        status.frames += r.queues.len() as u64;
        status.storm = r.stall.guard.is_tripped();
        status.stalled = r.ages.lifetime.stalled();
        if !status.storm && matches!(r.counters, Counted::Guest(_)) {
            status.pausing |= r.buffers.pausing();
        }
    }
}
