//! Transmit rings of a data core.

use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::calls::Caller as _;
use super::core::Core;
use super::link::LinkOut;
use super::news::CoreEvent;
use super::sleep::{Sleeper, Source};
use super::tx::{Scratch, TxQueue};

/// Transmit rings by the index of their kicks. A stopped ring leaves its place free.
#[derive(Default)]
pub struct Rings {
    queues: Vec<Option<TxQueue>>,
    scratch: Scratch,
}

impl Rings {
    /// Calls `what` for the rings of an adapter. (To return an iterator would make rings, and all that they use, public for
    /// the compiler, which then does not inline them into the round.)
    pub fn each(&mut self, port: PortId, what: impl FnMut(&mut TxQueue)) {
        let rings = self.queues.iter_mut().flatten();
        rings.filter(|tx| tx.path.port == port).for_each(what);
    }

    /// Adds a ring.
    pub fn add(&mut self, sleeper: &Sleeper, tx: TxQueue) {
        let i = free_index(&mut self.queues);
        if let Some(kick) = tx.kick_fd() {
            let _ = sleeper.add(kick, Source::Kick(i as u32));
        }
        self.queues[i] = Some(tx);
    }

    /// Stops a ring. Returns the index at which it resumes, `Some(None)` if there is no such ring; `None`: one of its buffers
    /// is still in flight.
    pub fn stop(
        &mut self,
        core: &mut Core,
        sleeper: &Sleeper,
        port: PortId,
        pair: usize,
    ) -> Option<Option<u16>> {
        let mut places = self.queues.iter_mut();
        let Some(place) = places.find(|t| matches!(t, Some(t) if t.path.port == port && t.path.pair == pair))
        else {
            return Some(None);
        };
        let tx = place.as_mut()?;
        tx.path.stop();
        if !tx.path.drained() {
            return None;
        }
        let mut tx = place.take()?;
        tx.path.leave(core);
        tx.settle_calls();
        if let Some(kick) = tx.kick_fd() {
            sleeper.remove(kick);
        }
        Some(Some(tx.base()))
    }

    /// Takes a burst of each ring. Adds the number of frames to `work`.
    #[inline(always)]
    pub fn round(&mut self, core: &mut Core, sleeper: &Sleeper, now: Instant, work: &mut usize) {
        for i in 0..self.queues.len() {
            *work += self.poll(i, core, sleeper, now);
        }
    }

    #[inline]
    fn poll(&mut self, i: usize, core: &mut Core, sleeper: &Sleeper, now: Instant) -> usize {
        let Some(tx) = &mut self.queues[i] else { return 0 };
        let scratch = &mut self.scratch;
        // A bug that one guest's frames trigger takes down only that guest's adapter.
        let Some(n) = core.guarded(|core| tx.poll(i, core, scratch)) else {
            self.fail(i, core, sleeper);
            return 1;
        };
        if let Some(fault) = tx.path.take_fault() {
            core.report(CoreEvent::RingFault {
                port: tx.path.port,
                ring: tx.path.pair as u16 * 2 + 1,
                fault,
            });
        }
        if n > 0 {
            core.turns.asks(tx.path.port, now);
        }
        n
    }

    #[cold]
    fn fail(&mut self, i: usize, core: &mut Core, sleeper: &Sleeper) {
        let Some(mut tx) = self.queues[i].take() else {
            return;
        };
        let port = tx.path.port;
        if let Some(kick) = tx.kick_fd() {
            sleeper.remove(kick);
        }
        // Receivers on other cores must not wait for completions that never come.
        for (c, seq) in tx.path.abandon() {
            core.commit(c, seq);
        }
        // Another core may still have references into this guest's memory: it stays mapped.
        std::mem::forget(tx);
        core.report(CoreEvent::Panic { port });
    }

    /// Completes buffers that other cores have copied.
    pub fn collect_copied(&mut self, core: &mut Core) -> usize {
        let mut work = 0;
        for c in 0..core.links_out.len() {
            while let Some(slot) = core.links_out[c].as_mut().and_then(LinkOut::poll_copied) {
                if let Some(Some(tx)) = self.queues.get_mut(slot.queue) {
                    tx.path.copied(slot.slot);
                    work += 1;
                }
            }
        }
        if work > 0 {
            for tx in self.queues.iter_mut().flatten() {
                while tx.retire(core) > 0 {}
            }
        }
        work
    }

    /// Sends due interrupts.
    pub fn call_due(&mut self, core: &mut Core, now: Instant) {
        for tx in self.queues.iter_mut().flatten() {
            if let Some(due) = tx.call_due(now) {
                core.owed.until(due);
            }
        }
    }

    /// When a ring must be looked at again: at once if one of its buffers is in flight, or when its priority may send.
    pub fn due(&self, core: &Core, now: Instant) -> Option<Instant> {
        let rings = self.queues.iter().flatten();
        let times = rings.filter_map(|tx| match tx.path.drained() {
            true => core.opens_at(tx.path.port, now, 1 << tx.path.closed()?),
            false => Some(now),
        });
        times.min()
    }

    /// Asks guests to kick. True: there are frames already.
    pub fn request_kicks(&mut self) -> bool {
        let rings = self.queues.iter_mut().flatten();
        rings.fold(false, |more, tx| more | tx.request_kicks())
    }

    /// Suppresses the guests' kicks: the core polls again.
    pub fn suppress_kicks(&self) {
        for tx in self.queues.iter().flatten() {
            tx.suppress_kicks();
        }
    }

    /// Counts a guest's kick.
    pub fn kicked(&self, i: u32) {
        if let Some(Some(tx)) = self.queues.get(i as usize) {
            tx.path.count_kick();
        }
    }
}

/// Index of the first free place.
pub fn free_index<T>(places: &mut Vec<Option<T>>) -> usize {
    match places.iter().position(Option::is_none) {
        Some(i) => i,
        None => {
            places.push(None);
            places.len() - 1
        }
    }
}
