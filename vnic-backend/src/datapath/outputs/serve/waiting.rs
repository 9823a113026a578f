//! Frames begin to wait for receive buffers, get them, or are dropped.

use std::sync::atomic::Ordering;

use arrayvec::ArrayVec;
use vnic_engine::counters::{PriorityCounter as P, QueueCounter as Q};
use vnic_engine::dropless::ModeChange;
use vnic_engine::settings::{Burst, DelayDrop};
use vnic_fabric::switch::PortId;
use vnic_fabric::{DropReason, Instant};

use super::super::super::counters::{AdapterCounters, priority_of};
use super::super::super::frame::{Metadata, OutFrame};
use super::super::super::news::CoreEvent;
use super::super::super::rx::{Parked, RxQueue};
use super::super::Outputs;
use super::super::adapter::AdapterRx;
use super::super::round::Round;
use super::super::slot::Slot;
use super::super::waiting::{BEYOND_MAX, BUT_ROCE, PRESSED, Waiting, Waits};

impl AdapterRx {
    /// Largest number of frames in the reserve.
    pub(in super::super) fn reserve(&self) -> usize {
        match self.settings.burst {
            Burst::Off => 0,
            Burst::Thread | Burst::Poll => self.settings.reserve as usize,
        }
    }

    /// Handles a frame that did not get into queue `q`: the frame waits, or it is dropped for the returned reason.
    #[cold]
    #[inline(never)]
    pub fn refused(
        &mut self,
        port: PortId,
        q: u8,
        f: &OutFrame<'_>,
        meta: &Metadata,
        reason: DropReason,
        waiting: &mut Waiting,
    ) -> Option<DropReason> {
        let dropped = self.retry_or_park(port, q, f, meta, reason, waiting).err();
        if let Some(reason) = dropped {
            self.counters.drops.add(reason as usize, 1);
            if reason == DropReason::NoRxBuffer {
                let priority = priority_of(meta.priority, f.head);
                self.counters.link.priorities[usize::from(priority & 7)].add(P::RxDiscards as usize, 1);
            }
        }
        dropped
    }

    fn retry_or_park(
        &mut self,
        port: PortId,
        q: u8,
        f: &OutFrame<'_>,
        meta: &Metadata,
        mut reason: DropReason,
        waiting: &mut Waiting,
    ) -> Result<(), DropReason> {
        let i = usize::from(q);
        if reason == DropReason::NoRxBuffer && self.waits.listed {
            // Buffers may have come; frames that wait already get them first.
            self.serve(i, waiting);
            self.mark(port, waiting);
            let Some(Some(rx)) = self.queues.get_mut(i) else {
                return Err(DropReason::ReceiverDown);
            };
            if rx.parked().is_empty() {
                match rx.put(f, meta.gate, meta.priority) {
                    Ok(()) => return Ok(()),
                    Err(again) => reason = again,
                }
            }
        }
        let reserve = self.reserve();
        if reason != DropReason::NoRxBuffer || (reserve == 0 && !self.waits.dropless.is_on()) {
            return Err(reason);
        }
        let beyond = self.waits.reserved >= reserve;
        if beyond && (!self.waits.dropless.is_on() || waiting.beyond >= BEYOND_MAX) {
            return Err(reason);
        }
        let now = waiting.clock.now();
        let Some(Some(rx)) = self.queues.get_mut(i) else {
            return Err(DropReason::ReceiverDown);
        };
        if !rx.park(f, meta, now) {
            return Err(reason);
        }
        let cost = rx.parked().back().map_or(0, Parked::cost);
        self.counters.waits.add(cost);
        self.counters.queues[i].add(Q::RxWaited as usize, 1);
        if beyond {
            rx.parking.over += 1;
            waiting.beyond += cost;
            self.waits.dropless.waits(q, now);
        } else {
            self.waits.reserved += 1;
        }
        if !self.waits.listed {
            self.waits.listed = true;
            waiting.ports.push(port);
        }
        self.mark(port, waiting);
        Ok(())
    }

    /// Gives new buffers of queue `q` to its waiting frames. Returns the number of frames that wait no longer.
    fn serve(&mut self, q: usize, waiting: &mut Waiting) -> usize {
        let Some(Some(rx)) = self.queues.get_mut(q) else {
            return 0;
        };
        let mut n = 0;
        while let Some((frame, beyond, outcome)) = rx.serve(&waiting.clock) {
            n += 1;
            if let Err(reason) = outcome {
                self.counters.drops.add(reason as usize, 1);
            }
            leaves(&self.counters, q, &frame, waiting, &mut self.waits, beyond);
        }
        if n > 0 {
            self.follow(Some(q), waiting);
        }
        n
    }

    /// Moves frames beyond the reserve into its free room and sets the timers of the frames that are still beyond it.
    /// `moved`: queue whose first frame has changed.
    fn follow(&mut self, moved: Option<usize>, waiting: &mut Waiting) {
        let reserve = self.reserve();
        for (q, rx) in self.queues.iter_mut().enumerate() {
            let Some(rx) = rx else { continue };
            let mut progress = moved == Some(q);
            while rx.parking.over > 0 && self.waits.reserved < reserve {
                let first = rx.parked().len() - rx.parking.over;
                waiting.beyond -= rx.parked().get(first).map_or(0, Parked::cost);
                rx.parking.over -= 1;
                self.waits.reserved += 1;
                progress = true;
            }
            if rx.parking.over == 0 {
                self.waits.dropless.served(q as u8);
            } else if progress {
                self.waits.dropless.served(q as u8);
                self.waits.dropless.waits(q as u8, waiting.clock.now());
            }
        }
    }

    /// Drops the frames that wait for queue `q`: those beyond the reserve or all.
    fn give_up(&mut self, port: PortId, q: usize, all: bool, reason: DropReason, round: &mut Round) {
        let Some(Some(rx)) = self.queues.get_mut(q) else {
            return;
        };
        let over = rx.parking.over;
        let reserved = rx.parked().len() - over;
        for (i, frame) in rx.give_up(all).enumerate() {
            self.counters.drops.add(reason as usize, 1);
            let beyond = !all || i >= reserved;
            leaves(
                &self.counters,
                q,
                &frame,
                &mut round.waiting,
                &mut self.waits,
                beyond,
            );
            round.offer(port, &frame.frame.whole(), Some(reason), None);
        }
        self.follow(Some(q), &mut round.waiting);
    }

    /// Publishes whether the adapter is pressed, and how many frames wait.
    fn mark(&mut self, port: PortId, waiting: &mut Waiting) {
        let beyond: usize = self.queues.iter().flatten().map(|rx| rx.parking.over).sum();
        let state = match (beyond, self.takes_roce) {
            (0, _) => 0,
            (_, true) => BUT_ROCE,
            (_, false) => PRESSED,
        };
        waiting.mark(port, state);
        let gauges = &self.counters.waits;
        let reserved = self.waits.reserved as u64;
        gauges.reserved.store(reserved, Ordering::Relaxed);
        gauges.reserved_max.fetch_max(reserved, Ordering::Relaxed);
        gauges.beyond.store(beyond as u64, Ordering::Relaxed);
    }

    /// Counts a change of dropless mode.
    fn count_change(&self, told: ModeChange, before: (u64, u64)) {
        let d = &self.waits.dropless;
        let first = &self.counters.queues[0];
        first.add(Q::DroplessEntries as usize, d.entries() - before.0);
        first.add(Q::DroplessExits as usize, d.exits() - before.1);
        if let ModeChange::Timeout { queue } = told
            && let Some(block) = self.counters.queues.get(usize::from(queue))
        {
            block.add(Q::DroplessTimeouts as usize, 1);
        }
        let on = if d.is_on() { d.timeout() } else { 0 };
        self.counters.waits.timeout.store(d.timeout(), Ordering::Relaxed);
        self.counters.waits.on.store(on, Ordering::Release);
    }

    /// Queues with waiting frames.
    fn waiters(&mut self) -> impl Iterator<Item = &mut RxQueue> {
        self.queues
            .iter_mut()
            .flatten()
            .filter(|rx| !rx.parked().is_empty())
    }
}

/// Counts a frame that waits no longer.
fn leaves(
    counters: &AdapterCounters,
    q: usize,
    frame: &Parked,
    waiting: &mut Waiting,
    waits: &mut Waits,
    beyond: bool,
) {
    let cost = frame.cost();
    counters.waits.remove(cost);
    let waited = waiting.clock.now().since(frame.since).as_nanos();
    counters.queues[q].add(Q::RxWaitedNs as usize, u64::try_from(waited).unwrap_or(u64::MAX));
    if beyond {
        waiting.beyond -= cost;
    } else {
        waits.reserved -= 1;
    }
}

impl Outputs {
    /// Looks for buffers of waiting frames and for frames that have waited too long. `rung`: the thread that waits for guests
    /// reports new buffers. Returns the number of frames that wait no longer.
    #[cold]
    pub fn waiting_round(&mut self, rung: bool) -> usize {
        let mut news: ArrayVec<(PortId, ModeChange), 16> = ArrayVec::new();
        let mut work = 0;
        let Outputs { slots, round, .. } = self;
        let mut i = 0;
        while let Some(&port) = round.waiting.ports.get(i) {
            let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) else {
                round.waiting.ports.swap_remove(i);
                continue;
            };
            let now = round.waiting.clock.now();
            let by_thread = a.settings.burst == Burst::Thread;
            let due = a.waits.dropless.next_time().is_some_and(|at| at <= now);
            if !by_thread || rung || due || a.waiters().any(|rx| !rx.parking.asked) {
                for q in 0..a.queues.len() {
                    let mut n = a.serve(q, &mut round.waiting);
                    if by_thread
                        && let Some(Some(rx)) = a.queues.get_mut(q)
                        && !rx.parked().is_empty()
                    {
                        // The thread reports buffers that come from now on; those that came before are looked for now and in
                        // the next round.
                        rx.parking.asked = !rx.request_more();
                        if !rx.parking.asked {
                            n += a.serve(q, &mut round.waiting);
                        }
                    }
                    work += n;
                    if n > 0
                        && let Some(Some(rx)) = a.queues.get_mut(q)
                        && !rx.touched
                    {
                        rx.touched = true;
                        round.touched.push((port, q as u8));
                    }
                }
            }
            let before = (a.waits.dropless.entries(), a.waits.dropless.exits());
            // A frame whose buffers have come is not late, however late the core looks.
            if news.remaining_capacity() > 0
                && let Some(told) = a.waits.dropless.expire(now)
            {
                a.count_change(told, before);
                news.push((port, told));
                for q in 0..a.queues.len() {
                    a.give_up(port, q, false, DropReason::NoRxBuffer, round);
                }
                work += 1;
            }
            a.mark(port, &mut round.waiting);
            for rx in a.queues.iter_mut().flatten() {
                if rx.parked().is_empty() && by_thread {
                    rx.parking.asked = false;
                    rx.suppress_kicks();
                }
            }
            if a.waiters().next().is_none() {
                a.waits.listed = false;
                round.waiting.ports.swap_remove(i);
            } else {
                i += 1;
            }
        }
        for (port, told) in news {
            self.report(CoreEvent::Dropless { port, told });
        }
        work
    }

    /// Switches an adapter's dropless mode on or off for the operator. Off: frames beyond the reserve that have no buffers
    /// yet are dropped.
    pub fn set_dropless(&mut self, port: PortId, timeout: u8) {
        let Outputs { slots, round, .. } = self;
        let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) else {
            return;
        };
        let before = (a.waits.dropless.entries(), a.waits.dropless.exits());
        let Some(told) = a.waits.dropless.set(timeout) else {
            return;
        };
        a.count_change(told, before);
        if !a.waits.dropless.is_on() {
            for q in 0..a.queues.len() {
                // Frames that have buffers by now are not lost.
                let n = a.serve(q, &mut round.waiting);
                if n > 0
                    && let Some(Some(rx)) = a.queues.get_mut(q)
                    && !rx.touched
                {
                    rx.touched = true;
                    round.touched.push((port, q as u8));
                }
                a.give_up(port, q, false, DropReason::NoRxBuffer, round);
            }
            a.mark(port, &mut round.waiting);
        }
        self.report(CoreEvent::Dropless { port, told });
    }

    /// Applies `DelayDropTimeout` of an adapter. To switch the mode off while it is off is also an act of the operator; to
    /// remove the setting, or to have none at a start, is not.
    pub fn set_delay_drop(&mut self, port: PortId, before: DelayDrop, set: DelayDrop, anew: bool) {
        let on = self.adapter(port).is_some_and(|a| a.waits.dropless.is_on());
        let act = !anew && set.act > 0;
        if (anew || set != before) && (set.timeout > 0 || act || on) {
            self.set_dropless(port, set.timeout);
        }
    }

    /// Applies changed settings of an adapter to its reserve, which may have more room.
    pub fn reserve_changed(&mut self, port: PortId) {
        let Outputs { slots, round, .. } = self;
        if let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) {
            a.follow(None, &mut round.waiting);
            a.mark(port, &mut round.waiting);
            for rx in a.waiters() {
                // The new burst mode begins with a look for buffers.
                rx.parking.asked = false;
                rx.suppress_kicks();
            }
        }
    }

    /// Drops all frames that wait for a queue whose guest is gone.
    pub fn drop_waiting(&mut self, port: PortId, pair: usize) {
        let Outputs { slots, round, .. } = self;
        if let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) {
            a.give_up(port, pair, true, DropReason::ReceiverDown, round);
            a.mark(port, &mut round.waiting);
        }
    }

    /// Drops all waiting frames of a removed adapter.
    pub fn forget_waiting(&mut self, port: PortId) {
        let queues = self.adapter(port).map_or(0, |a| a.queues.len());
        for pair in 0..queues {
            self.drop_waiting(port, pair);
        }
        self.round.waiting.ports.retain(|p| *p != port);
        self.round.waiting.mark(port, 0);
    }

    /// When a frame has waited too long.
    pub fn waiting_due(&self) -> Option<Instant> {
        let Outputs { slots, round, .. } = self;
        let times = round
            .waiting
            .ports
            .iter()
            .filter_map(|p| match slots.get(usize::from(p.0)) {
                Some(Slot::Adapter(a)) => a.waits.dropless.next_time(),
                _ => None,
            });
        times.min()
    }

    /// Asks guests for which frames wait to kick when they post buffers. True: a guest has posted buffers already.
    pub fn request_buffers(&mut self) -> bool {
        let Outputs { slots, round, .. } = self;
        let mut more = false;
        for port in &round.waiting.ports {
            let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0)) else {
                continue;
            };
            let by_thread = a.settings.burst == Burst::Thread;
            for rx in a.waiters() {
                // The thread's kicks were requested at the first look for this frame's buffers.
                more |= if by_thread {
                    !rx.parking.asked
                } else {
                    rx.request_more()
                };
            }
        }
        more
    }

    /// Suppresses the kicks of [`Outputs::request_buffers`]: a core that is awake looks at the rings itself.
    pub fn suppress_buffer_kicks(&mut self) {
        let Outputs { slots, round, .. } = self;
        for port in &round.waiting.ports {
            if let Some(Slot::Adapter(a)) = slots.get_mut(usize::from(port.0))
                && a.settings.burst != Burst::Thread
            {
                a.waiters().for_each(|rx| rx.suppress_kicks());
            }
        }
    }
}
