//! One data core: the state of its stations and of the control plane's calls.

mod control;
mod rings;
mod stations;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;

use super::by_thread::ByThread;
use super::clock::Clock;
use super::control_queue::ControlQueues;
use super::core::Core;
use super::dpc::{BufferAlarm, Dpc};
use super::rdma::Functions;
use super::rings::Rings;
use super::sleep::{Sleeper, Source};
use super::uplinks::Uplinks;

pub use control::Side;

/// One data core. (Nothing here is more than `pub(crate)`: the compiler does not inline code into the round that it believes
/// callable from outside.)
pub struct Worker {
    /// Switch, receivers and links.
    pub(crate) core: Core,
    /// RDMA functions of the core's adapters.
    pub(crate) functions: Functions,
    /// Transmit rings of the core's guests.
    rings: Rings,
    /// Control queues of the core's guests.
    control: ControlQueues,
    /// Rings that stop when none of their buffers is in flight, and the senders of the answers.
    stopping: Vec<(PortId, u16, Sender<Option<u16>>)>,
    /// Receiving sides of the core's uplinks.
    uplinks: Uplinks,
    sleeper: Sleeper,
    /// Clock of the core.
    pub(crate) clock: Clock,
    /// Alarm that rings when a guest posts buffers for which frames wait.
    alarm: Arc<BufferAlarm>,
    /// The thread that rings the alarm, and this core's number there.
    dpc: (Arc<Dpc>, usize),
    /// The thread that interrupts guests of adapters that want it so.
    by_thread: ByThread,
}

impl Worker {
    /// A core without ports.
    pub(crate) fn new(
        core: Core,
        sleeper: Sleeper,
        clock: Clock,
        alarm: Arc<BufferAlarm>,
        dpc: (Arc<Dpc>, usize),
        by_thread: ByThread,
    ) -> Worker {
        Worker {
            core,
            functions: Functions::default(),
            rings: Rings::default(),
            control: ControlQueues::default(),
            stopping: Vec::new(),
            uplinks: Uplinks::default(),
            sleeper,
            clock,
            alarm,
            dpc,
            by_thread,
        }
    }

    /// Current time of the core's clock.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Serves everything once. Returns how much was done. Never inlined: tests count instructions from its call to its
    /// return.
    #[inline(never)]
    pub(crate) fn round(&mut self, now: Instant) -> usize {
        stations::round(self, now)
    }

    /// How long the core may sleep, if it may.
    pub(crate) fn longest_sleep(&mut self) -> Option<Duration> {
        let now = self.now();
        stations::longest_sleep(self, now)
    }

    /// Prepares for sleep: from now on kicks wake the core. True: there is work already.
    pub(crate) fn arm(&mut self) -> bool {
        stations::arm(self)
    }

    /// Ends the preparation for sleep: kicks are suppressed again.
    pub(crate) fn disarm(&mut self) {
        stations::disarm(self);
    }

    /// Sleeps until the core is woken or the time is over.
    pub(crate) fn wait(&mut self, at_most: Duration) {
        for source in self.sleeper.wait(at_most) {
            match source {
                Source::Kick(i) => self.rings.kicked(i),
                Source::Uplink(i) => self.uplinks.woken(i),
                // The round serves every function and every waiting frame anyway.
                Source::Waker | Source::Rdma(_) | Source::Buffers(_) | Source::Control => {}
            }
        }
    }

    /// Hands changed senders to the transmit rings of their adapters.
    fn police(&mut self) {
        while let Some(port) = self.core.senders.changed.pop() {
            let acts = self.core.sender(port).map(|s| s.change.clone());
            self.rings.each(port, |tx| tx.path.set_policed(acts.clone()));
        }
    }
}
