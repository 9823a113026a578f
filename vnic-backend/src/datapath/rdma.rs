//! The RDMA functions' part of a data core's loop.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::Sender;
use vnic_engine::counters::PriorityCounter as P;
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::switch::{Egress, PortId, Verdict};
use vnic_fabric::{Instant, TagEdit};

use super::command::RdmaRings;
use super::core::CoreEvent;
use super::frame::RawFrame;
use super::outputs::{Outputs, Slot, is_roce};
use super::sleep::Source;
use super::worker::Worker;
use crate::rdma::{Attachment, Function};
use crate::uplink::PortTx;

/// Rounds between two looks at what is not urgent: addresses, counters.
pub(super) const SELDOM: u32 = 256;

/// Where a frame goes that goes to one port, with the tag that it has.
#[inline]
fn as_it_is(verdict: &Verdict) -> Option<PortId> {
    match *verdict {
        Verdict::Unicast(Egress {
            port,
            tag: TagEdit::Keep,
        }) => Some(port),
        _ => None,
    }
}

impl Outputs {
    /// The adapter of this core whose RDMA function takes this frame at once, as it is: nobody wants to see or spoil it,
    /// nothing is to be done about it, and none waits before it.
    #[inline]
    pub(super) fn roce_function(&self, verdict: &Verdict, f: &RawFrame<'_>) -> Option<PortId> {
        let port = as_it_is(verdict)?;
        let Some(Slot::Adapter(a)) = self.slots.get(usize::from(port.0)) else {
            return None;
        };
        let at_once = a.takes_roce
            && a.receiver.is_none()
            && !self.is_watched()
            && self.round.inbound.is_empty()
            && f.hdr.is_plain()
            && is_roce(f.head);
        at_once.then_some(port)
    }

    /// The uplink of this core that takes what a function sends at once, as it is: nobody wants to see or spoil it, and none
    /// waits before it. It is flushed with the others.
    #[inline]
    pub fn uplink(&mut self, verdict: &Verdict) -> Option<&mut PortTx> {
        let port = as_it_is(verdict)?;
        let watched = self.is_watched();
        let Some(Slot::Uplink(p)) = self.slots.get_mut(usize::from(port.0)) else {
            return None;
        };
        if watched || p.receiver.is_some() {
            return None;
        }
        if !p.touched {
            p.touched = true;
            self.round.touched.push((port, 0));
        }
        Some(p)
    }
}

impl Worker {
    pub(super) fn add_function(&mut self, port: PortId, function: Function) {
        self.functions.add(port, function);
        if let Some(adapter) = self.core.adapter(port) {
            adapter.has_rdma = true;
        }
        self.set_marking(port);
        self.news(port);
    }

    pub(super) fn remove_function(&mut self, port: PortId) {
        self.detach_driver(port);
        self.functions.remove(port);
    }

    pub(super) fn attach_driver(&mut self, port: PortId, attachment: Attachment) {
        let Some(function) = self.functions.get_mut(port) else {
            return;
        };
        for kick in function.attach(attachment) {
            let _ = self.sleeper.add(kick, Source::Rdma(port.0.into()));
        }
        function.suppress_kicks();
    }

    pub(super) fn remap_driver(&mut self, port: PortId, rings: RdmaRings, done: Sender<()>) {
        if let Some(function) = self.functions.get_mut(port) {
            function.remap(rings, done);
            function.suppress_kicks();
        }
    }

    /// `roce_mode` and `*NetworkDirect` of an adapter from now on.
    pub(super) fn set_roce(&mut self, port: PortId, settings: &AdapterSettings) {
        if let Some(function) = self.functions.get_mut(port) {
            function.set_roce(settings.roce_mode, settings.network_direct);
            self.follow(port);
            self.news(port);
        }
    }

    /// How the RDMA packets of an adapter are marked from now on.
    pub(super) fn set_marking(&mut self, port: PortId) {
        if let Some(function) = self.functions.get_mut(port) {
            let change = self.core.qos.get(port);
            function.set_marking(change.map(|c| c.marking.clone()).unwrap_or_default());
        }
    }

    /// Ends all that the driver has made. Answers how far its virtqueues were.
    pub(super) fn detach_driver(&mut self, port: PortId) -> Vec<u16> {
        let Some(function) = self.functions.get_mut(port) else {
            return Vec::new();
        };
        for kick in function.kicks() {
            self.sleeper.remove(kick);
        }
        let bases = function.detach();
        self.publish_function(port);
        self.follow(port);
        self.news(port);
        bases
    }

    /// One turn of each function. Answers how much there was to do.
    #[inline]
    pub(super) fn rdma_round(&mut self, now: Instant) -> usize {
        let mut work = 0;
        while let Some((port, frame)) = self.core.out.round.inbound.pop_front() {
            work += 1;
            let functions = &mut self.functions;
            if catch_unwind(AssertUnwindSafe(|| functions.inbound(port, &frame, now))).is_err() {
                self.fail_function(port);
            }
        }
        let shared = self.core.turns.shared(now);
        for i in 0..self.functions.ports().len() {
            let Some(&port) = self.functions.ports().get(i) else {
                break;
            };
            let (functions, core) = (&mut self.functions, &mut self.core);
            // A bug of ours that one guest triggers takes down that guest's function only.
            match catch_unwind(AssertUnwindSafe(|| functions.turn(port, core, now, shared))) {
                Ok(0) => {}
                Ok(n) => {
                    work += n;
                    self.follow(port);
                }
                Err(_) => {
                    self.fail_function(port);
                    work += 1;
                }
            }
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(SELDOM) {
            self.rdma_seldom(now);
        }
        work
    }

    /// Addresses and counters. Also before the core sleeps, so that nothing is left untold.
    #[inline(never)]
    pub(super) fn rdma_seldom(&mut self, now: Instant) {
        let (functions, core) = (&mut self.functions, &mut self.core);
        if catch_unwind(AssertUnwindSafe(|| functions.poll_gids(core, now))).is_err() {
            self.count_panic();
        }
        for i in 0..self.functions.ports().len() {
            let Some(&port) = self.functions.ports().get(i) else {
                break;
            };
            if self.functions.get_mut(port).is_some_and(|f| f.has_news()) {
                self.publish_function(port);
                self.news(port);
            }
        }
    }

    /// Frames go where the function is by now.
    #[inline]
    fn follow(&mut self, port: PortId) {
        let live = self.functions.get_mut(port).is_some_and(|f| f.is_live());
        if let Some(adapter) = self.core.adapter(port) {
            adapter.takes_roce = live;
        }
    }

    /// Copies a function's counters to where anyone may read them: those of priorities before their sums, from which they
    /// are subtracted.
    fn publish_function(&mut self, port: PortId) {
        let Some(function) = self.functions.get_mut(port) else {
            return;
        };
        let received = function.take_received();
        if let Some(adapter) = self.core.adapter(port) {
            for (block, [packets, bytes]) in adapter.counters.link.priorities.iter().zip(received) {
                if packets > 0 {
                    block.add(P::RxFrames as usize, packets);
                    block.add(P::RxBytes as usize, bytes);
                }
            }
        }
        function.publish_counters();
    }

    /// Tells the control plane what happened to a function.
    pub(super) fn news(&mut self, port: PortId) {
        let now = self.core.now;
        let Some(function) = self.functions.get_mut(port) else {
            return;
        };
        let (faults, gids) = (function.take_faults(), function.take_gid_news(now));
        let conflict = function.take_gid_conflict(now);
        if let Some(left) = function.take_remains() {
            self.core.report(CoreEvent::Remains(left));
        }
        for what in faults {
            self.core.report(CoreEvent::RdmaFault { port, what });
        }
        for (index, gid, added) in gids {
            self.core.report(CoreEvent::GidChanged {
                port,
                index,
                gid,
                added,
            });
        }
        if let Some(conflict) = conflict {
            self.core.report(CoreEvent::GidConflict { port, conflict });
        }
    }

    #[cold]
    pub(super) fn fail_function(&mut self, port: PortId) {
        self.count_panic();
        // What the bug left behind is not trusted: nothing of it is used again, not even to end it in order. (Leaking it
        // keeps the guest's memory mapped, to which nobody refers.)
        if let Some(function) = self.functions.remove(port) {
            for kick in function.kicks() {
                self.sleeper.remove(kick);
            }
            let fresh = function.successor();
            std::mem::forget(function);
            if let Some(fresh) = fresh {
                self.functions.add(port, fresh);
            }
        }
        self.core.rdma_waits(port, 0);
        self.follow(port);
        self.core.report(CoreEvent::RdmaPanic { port });
    }

    /// When a function must be looked at again.
    pub(super) fn rdma_due(&mut self, now: Instant) -> Option<Instant> {
        let times = self.functions.iter_mut().filter_map(|(_, f)| f.next_time(now));
        times.min()
    }

    /// Asks drivers to kick, and says whether there is something to do after all.
    pub(super) fn request_rdma_kicks(&mut self) -> bool {
        let mut more = !self.core.out.round.inbound.is_empty();
        let now = self.clock.now();
        for (port, function) in self.functions.iter_mut() {
            // What waits for its priority is woken for when that opens.
            more |= function.request_kicks(self.core.open_priorities(port, now));
        }
        more
    }

    pub(super) fn suppress_rdma_kicks(&mut self) {
        for (_, function) in self.functions.iter_mut() {
            function.suppress_kicks();
        }
    }
}
