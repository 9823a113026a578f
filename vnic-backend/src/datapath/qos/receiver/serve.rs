//! Each round: what waits at the ports of a core and may go now, goes; what has waited too long is dropped; who tells senders
//! to wait for too long stops.

use vnic_engine::counters::LinkCounter as L;
use vnic_fabric::qos::{StallNews, Verdict};
use vnic_fabric::switch::{Egress, PortId};
use vnic_fabric::{DropReason, Instant, TagEdit};

use super::super::super::core::Core;
use super::super::super::frame::OwnedFrame;
use super::super::super::news::CoreEvent;
use super::super::super::outputs::{Outputs, Slot};
use super::super::super::weight::{self, HEAVY};
use super::{CLASSES, Receiver};

/// Frames that leave one port before others get their turn.
const BURST: usize = 256;

impl Receiver {
    /// Has it something to do each round?
    fn is_busy(&self) -> bool {
        !self.queues.is_empty()
            || self.buffers.pausing() != 0
            || self.guard.is_tripped()
            || self.guard.next_time(self.change.qos.guard).is_some()
    }

    /// When it has something to do that nobody else brings about.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        let qos = &self.change.qos;
        let credit = self.queues.next_time(now, self.closed | self.blocked);
        let guard = self.guard.next_time(qos.guard);
        let enabled = (0..CLASSES as u8).filter(|c| qos.lifetimes.enable >> c & 1 != 0);
        let late = enabled.filter_map(|class| {
            let (_, entry) = self.queues.oldest(class)?;
            let since = entry.since.max(self.head_since[usize::from(class)]);
            self.lifetime.due(qos.lifetimes, class, since)
        });
        credit.into_iter().chain(guard).chain(late).min()
    }
}

impl Outputs {
    /// Lets go what may go now. Answers how much there was to do.
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
            let room = !lossless || self.has_room(r.port, frame.head(), frame.bytes.len(), 1);
            if !room && !r.guard.is_tripped() {
                r.blocked |= 1 << priority;
                continue;
            }
            let verdict = match room && r.marks {
                true => r.judge_next(pick),
                false => Verdict::Pass,
            };
            // What is only taken out of the way does not count as sent.
            let taken = if room && verdict != Verdict::Drop {
                r.queues.take(now, pick)
            } else {
                r.queues.discard(pick)
            };
            let Some((entry, mut frame)) = taken else { break };
            heavy += weight::segments(frame.bytes.len() as u64, &frame.hdr);
            r.buffers.release(entry.source, priority, entry.bytes);
            let class = usize::from(pick.class) % CLASSES;
            r.head_since[class] = now;
            match verdict {
                Verdict::Pass => {}
                Verdict::Mark => r.mark(priority, &mut frame.bytes),
                Verdict::Drop => {
                    r.moved |= 1 << (priority & 7);
                    self.drop_early(r, priority, frame);
                    work += 1;
                    continue;
                }
            }
            if room {
                r.moved |= 1 << (priority & 7);
                r.lifetime.sent(pick.class);
            }
            self.leave(r.port, frame);
            work += 1;
        }
        work
    }

    /// Drops a frame that waited, although there is room for it.
    #[cold]
    fn drop_early(&mut self, r: &Receiver, priority: u8, frame: OwnedFrame) {
        r.count_drop(priority, DropReason::Wred);
        self.round
            .offer(r.port, &frame.whole(), Some(DropReason::Wred), None);
        self.pool.give_back(frame);
    }

    /// Delivers a frame that waited.
    fn leave(&mut self, port: PortId, mut frame: OwnedFrame) {
        let e = Egress {
            port,
            tag: TagEdit::Keep,
        };
        frame.with(|f, meta| self.give_now(e, f, meta));
        self.pool.give_back(frame);
    }

    /// Drops what has waited too long at the head of its class.
    fn expire(&mut self, r: &mut Receiver, now: Instant) -> usize {
        let lifetimes = r.change.qos.lifetimes;
        let mut work = 0;
        for class in (0..CLASSES as u8).filter(|c| lifetimes.enable >> c & 1 != 0) {
            while work < BURST
                && let Some((pick, entry)) = r.queues.oldest(class)
            {
                let since = entry.since.max(r.head_since[usize::from(class)]);
                let Some(reason) = r.lifetime.judge(now, lifetimes, class, since) else {
                    break;
                };
                let Some((entry, frame)) = r.queues.discard(pick) else {
                    break;
                };
                r.head_since[usize::from(class)] = now;
                r.buffers.release(entry.source, entry.priority, entry.bytes);
                r.count_drop(entry.priority, reason);
                self.round.offer(r.port, &frame.whole(), Some(reason), None);
                self.pool.give_back(frame);
                work += 1;
            }
        }
        work
    }

    /// Drops what waits and `gone` says so.
    pub(super) fn drop_queued(&mut self, r: &mut Receiver, reason: DropReason, gone: impl Fn(&[u8]) -> bool) {
        let mut stays = Vec::new();
        for class in 0..CLASSES as u8 {
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
}

impl Core {
    /// Lets go what waits at the ports of this core and may go. Answers how much there was to do.
    #[cold]
    pub fn receivers_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        let mut i = 0;
        while let Some(&port) = self.out.queued.get(i) {
            let Some(mut r) = self.out.take_receiver(port) else {
                self.out.queued.swap_remove(i);
                continue;
            };
            work += self.receiver_round(&mut r, now);
            if r.is_busy() || (r.closed | r.blocked != 0 && !r.queues.is_empty()) {
                i += 1;
            } else {
                r.listed = false;
                self.out.queued.swap_remove(i);
                r.settle();
                r.tell(&mut self.out.signals, now);
                if !r.is_needed() {
                    self.out.signals.forget(port);
                    self.out.taken = None;
                    continue;
                }
            }
            self.out.put_receiver(r);
        }
        self.out.round.waiting.look();
        self.flush();
        work
    }

    fn receiver_round(&mut self, r: &mut Receiver, now: Instant) -> usize {
        let mut work = 0;
        // What may go is not late, however late we look.
        work += self.out.serve(r, now);
        if r.change.qos.lifetimes.enable != 0 {
            let before = r.lifetime.stalled();
            work += self.out.expire(r, now);
            let stalled = r.lifetime.stalled() & !before;
            for class in (0..CLASSES as u8).filter(|c| stalled >> c & 1 != 0) {
                self.report(CoreEvent::ClassStalled { port: r.port, class });
            }
        }
        let pausing = r.buffers.pausing();
        let guard = r.change.qos.guard;
        let mut moved = std::mem::take(&mut r.moved);
        while let Some(news) = r.guard.observe(now, guard, pausing, std::mem::take(&mut moved)) {
            let link = &r.counters.link().link;
            match news {
                StallNews::Minor => link.add(L::TxPauseStormWarnings as usize, 1),
                StallNews::Critical => link.add(L::TxPauseStormErrors as usize, 1),
                StallNews::Recovered => {}
            }
            r.buffers.set_silent(r.guard.is_tripped());
            self.report(CoreEvent::Stall { port: r.port, news });
        }
        r.tell(&mut self.out.signals, now);
        work
    }

    /// When a receiver has something to do that no frame brings about.
    pub fn receivers_due(&self, now: Instant) -> Option<Instant> {
        let queued = self.out.queued.iter();
        let times = queued.filter_map(|p| {
            match self.out.slots.get(usize::from(p.0)) {
                Some(Slot::Adapter(a)) => a.receiver.as_ref(),
                Some(Slot::Uplink(u)) => u.receiver.as_ref(),
                _ => None,
            }?
            .next_time(now)
        });
        times.min()
    }

    /// Asks guests to kick when they give buffers for lossless frames that wait for them; says whether they have given some
    /// after all.
    pub fn request_room(&mut self) -> bool {
        let mut more = false;
        self.blocked_queues(|rx| more |= rx.request_more());
        more
    }

    /// Awake again, the core looks by itself.
    pub fn suppress_room_kicks(&mut self) {
        self.blocked_queues(|rx| rx.suppress_kicks());
    }

    fn blocked_queues(&mut self, mut each: impl FnMut(&mut super::super::super::rx::RxQueue)) {
        let Outputs { slots, queued, .. } = &mut self.out;
        for port in queued.iter() {
            if let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0))
                && a.receiver.as_ref().is_some_and(|r| r.blocked != 0)
            {
                // Where frames wait in the reserve, those that wait there ask.
                let queues = a.queues.iter_mut().flatten();
                queues.filter(|rx| rx.parked().is_empty()).for_each(&mut each);
            }
        }
    }
}
