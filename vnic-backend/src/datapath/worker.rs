//! One data core: what its stations, and what the control plane has it do, work on.

mod control;
mod rings;
mod stations;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::clock::Clock;
use super::core::Core;
use super::dpc::{BufferAlarm, Dpc};
use super::rdma::Functions;
use super::rings::Rings;
use super::sleep::{Sleeper, Source};
use super::uplinks::Uplinks;

pub use control::Side;

/// One data core. (Nothing of it is more than `pub(crate)`: what the compiler takes for something that somebody outside may call
/// does not become a part of the round.)
pub struct Worker {
    /// What its frames pass.
    pub(crate) core: Core,
    /// RDMA functions of its adapters.
    pub(crate) functions: Functions,
    /// Transmit rings of its guests.
    rings: Rings,
    /// Rings that are to stop when nothing of them is under way any more, and who waits for that.
    stopping: Vec<(PortId, u16, Sender<Option<u16>>)>,
    /// Its uplinks, from the wire.
    uplinks: Uplinks,
    sleeper: Sleeper,
    /// Its time.
    pub(crate) clock: Clock,
    /// Rung when a guest gives buffers for which frames wait.
    alarm: Arc<BufferAlarm>,
    /// Who rings it, and this core's number there.
    dpc: (Arc<Dpc>, usize),
}

impl Worker {
    /// With nobody on it.
    pub(crate) fn new(
        core: Core,
        sleeper: Sleeper,
        clock: Clock,
        alarm: Arc<BufferAlarm>,
        dpc: (Arc<Dpc>, usize),
    ) -> Worker {
        Worker {
            core,
            functions: Functions::default(),
            rings: Rings::default(),
            stopping: Vec::new(),
            uplinks: Uplinks::default(),
            sleeper,
            clock,
            alarm,
            dpc,
        }
    }

    /// The time.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// One look at everything. Answers how much was done. Never inlined: instructions are counted from its call to its return.
    #[inline(never)]
    pub(crate) fn round(&mut self, now: Instant) -> usize {
        stations::round(self, now)
    }

    /// How long the core may sleep, if it may.
    pub(crate) fn longest_sleep(&mut self) -> Option<Duration> {
        let now = self.now();
        stations::longest_sleep(self, now)
    }

    /// The core is about to sleep: from now on kicks wake it. True: there is something to do after all.
    pub(crate) fn arm(&mut self) -> bool {
        stations::arm(self)
    }

    /// The core looks by itself again.
    pub(crate) fn disarm(&mut self) {
        stations::disarm(self);
    }

    /// Sleeps until somebody wakes the core or the time is over.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        for source in self.sleeper.wait(at_most) {
            match source {
                Source::Kick(i) => self.rings.kicked(i),
                Source::Uplink(i) => self.uplinks.woken(i),
                // Every function is looked at anyway, and so is everybody for whom frames wait.
                Source::Waker | Source::Rdma(_) | Source::Buffers(_) => {}
            }
        }
    }

    /// What adapters may send has changed: their rings hear of it.
    fn police(&mut self) {
        while let Some(port) = self.core.senders.changed.pop() {
            let acts = self.core.sender(port).map(|s| s.change.clone());
            self.rings.each(port, |tx| tx.path.set_policed(acts.clone()));
        }
    }
}
