//! RDMA functions of a data core: attach and detach of drivers, turns, and reports of events.

mod wire;

use std::collections::VecDeque;

use crossbeam_channel::Sender;
use vnic_engine::counters::PriorityCounter as P;
use vnic_engine::rdma::{Incoming, Payload};
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;
use vnic_wire::roce::Frame;

use super::clock::HOUSEKEEPING;
use super::core::Core;
use super::news::CoreEvent;
use super::outputs::Inbound;
use super::sleep::{Sleeper, Source};
use crate::rdma::{Attachment, Function, RdmaRings, of_a_packet_that_leaves, of_a_turn};
use wire::{Loopback, Wire};

/// All functions of a core, by their adapters' ports.
#[derive(Default)]
pub struct Functions {
    slots: Vec<Option<Box<Function>>>,
    /// Ports with a function.
    ports: Vec<PortId>,
    /// The function that sends, out of its place, so that its neighbours can be reached. After a panic it is still here.
    sending: Option<(PortId, Box<Function>)>,
    loopback: VecDeque<Loopback>,
    /// Identification of the next frame over IPv4.
    next_id: u16,
    /// Buffer for a frame that is not built in an uplink's memory.
    frame: Vec<u8>,
    rounds: u32,
    /// Functions that have written the completion of a request whose time is taken, in the round that goes on.
    timed: Vec<PortId>,
}

impl Functions {
    /// Whether no adapter of this core has a function.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The function of an adapter.
    pub fn get_mut(&mut self, port: PortId) -> Option<&mut Function> {
        self.slots.get_mut(usize::from(port.0))?.as_deref_mut()
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Function)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(i, f)| Some((PortId(i as u16), f.as_deref_mut()?)))
    }

    fn put(&mut self, port: PortId, function: Function) {
        let i = usize::from(port.0);
        if self.slots.len() <= i {
            self.slots.resize_with(i + 1, || None);
        }
        self.slots[i] = Some(Box::new(function));
        self.ports.push(port);
    }

    fn take(&mut self, port: PortId) -> Option<Box<Function>> {
        self.ports.retain(|p| *p != port);
        let sending = self.sending.take_if(|(p, _)| *p == port);
        let place = self.slots.get_mut(usize::from(port.0))?;
        place.take().or(sending.map(|(_, function)| function))
    }

    // Functions and their drivers come and go.

    /// Adds a function to an adapter.
    pub fn add(&mut self, core: &mut Core, port: PortId, function: Function) {
        self.put(port, function);
        if let Some(adapter) = core.adapter(port) {
            adapter.has_rdma = true;
        }
        self.set_marking(core, port);
        self.news(core, port);
    }

    /// Removes the function of a removed adapter.
    pub fn remove(&mut self, core: &mut Core, sleeper: &Sleeper, port: PortId) {
        self.detach(core, sleeper, port);
        self.take(port);
    }

    /// Attaches a driver to a function.
    pub fn attach(&mut self, sleeper: &Sleeper, port: PortId, attachment: Attachment) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        for kick in function.attach(attachment) {
            let _ = sleeper.add(kick, Source::Rdma(port.0.into()));
        }
        function.suppress_kicks();
    }

    /// Replaces the driver's memory; `done` is sent when the old memory is not used any more.
    pub fn remap(&mut self, port: PortId, rings: RdmaRings, done: Sender<()>) {
        if let Some(function) = self.get_mut(port) {
            function.remap(rings, done);
            function.suppress_kicks();
        }
    }

    /// Ends all objects of the driver. Returns the ring indexes of its virtqueues.
    pub fn detach(&mut self, core: &mut Core, sleeper: &Sleeper, port: PortId) -> Vec<u16> {
        let Some(function) = self.get_mut(port) else {
            return Vec::new();
        };
        for kick in function.kicks() {
            sleeper.remove(kick);
        }
        let bases = function.detach();
        self.publish(core, port);
        self.follow(core, port);
        self.news(core, port);
        bases
    }

    /// Sets `roce_mode` and `*NetworkDirect` of an adapter.
    pub fn set_roce(&mut self, core: &mut Core, port: PortId, settings: &AdapterSettings) {
        if let Some(function) = self.get_mut(port) {
            function.set_roce(settings.roce_mode, settings.network_direct);
            self.follow(core, port);
            self.news(core, port);
        }
    }

    /// Applies the configured marking to the RDMA packets of an adapter.
    pub fn set_marking(&mut self, core: &Core, port: PortId) {
        if let Some(function) = self.get_mut(port) {
            let change = core.out.qos.get(port);
            function.set_marking(change.map(|c| c.marking.clone()).unwrap_or_default());
        }
    }

    // Rounds.

    /// Gives each function a turn. Returns how much was done.
    #[inline]
    pub fn round(&mut self, core: &mut Core, sleeper: &Sleeper, now: Instant) -> usize {
        let mut work = 0;
        while let Some((port, frame)) = core.out.round.inbound.pop_front() {
            work += 1;
            if core
                .guarded(|core| self.inbound(core, port, &frame, now))
                .is_none()
            {
                self.fail(core, sleeper, port);
            }
        }
        let shared = core.turns.shared(now);
        for i in 0..self.ports.len() {
            let Some(&port) = self.ports.get(i) else {
                break;
            };
            // A bug that one guest triggers takes down only that guest's function.
            match core.guarded(|core| self.turn(core, port, now, shared)) {
                Some(0) => {}
                Some(n) => {
                    work += n;
                    if self.follow(core, port) {
                        self.timed.push(port);
                    }
                }
                None => {
                    self.fail(core, sleeper, port);
                    work += 1;
                }
            }
        }
        self.rounds = self.rounds.wrapping_add(1);
        if self.rounds.is_multiple_of(HOUSEKEEPING) {
            self.housekeeping(core, now);
        }
        work
    }

    /// Hands a frame from the switch to a function.
    fn inbound(&mut self, core: &mut Core, port: PortId, frame: &Inbound, now: Instant) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        match frame {
            Inbound::Sent(head) => function.guest_sent(now, head),
            Inbound::Received(head) => function.guest_received(now, head),
            Inbound::Asked(head) => {
                function.answer_neighbour(head, &mut |frame| core.send_own(port, frame, now))
            }
            Inbound::Roce(bytes) => self.packet(port, bytes, now),
        }
    }

    /// Hands a packet from the wire to a function, which copies its payload to the guest's memory.
    #[inline]
    pub fn packet(&mut self, port: PortId, bytes: &[u8], now: Instant) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        match Frame::parse(bytes) {
            Ok(frame) if frame.icrc_ok() => {
                let work = function.receive(now, &Incoming::from(&frame));
                function.charge(work);
            }
            Ok(_) => function.count_bad_icrc(),
            // The frame is not RoCE after all, or is cut short.
            Err(_) => function.count_malformed(),
        }
    }

    /// Gives a function its turn; `shared`: other adapters want to send. Returns how much was done.
    #[inline]
    fn turn(&mut self, core: &mut Core, port: PortId, now: Instant, shared: bool) -> usize {
        let Some(Some(function)) = self.slots.get_mut(usize::from(port.0)) else {
            return 0;
        };
        let Some(mut work) = function.poll(now, shared) else {
            return function.finish(now);
        };
        if std::mem::take(&mut function.account.asked) {
            core.turns.asks(port, now);
        }
        if function.device().wants_transmit() || function.account.waits != 0 {
            work += self.transmit(core, port, now, shared);
        }
        match self.get_mut(port) {
            Some(function) => work + function.finish(now),
            None => work,
        }
    }

    fn transmit(&mut self, core: &mut Core, port: PortId, now: Instant, shared: bool) -> usize {
        let place = usize::from(port.0);
        let Some(function) = self.slots[place].take() else {
            return 0;
        };
        let (_, function) = self.sending.insert((port, function));
        let mac = function.device().mac();
        let mut wire = Wire {
            functions: &mut self.slots,
            loopback: &mut self.loopback,
            next_id: &mut self.next_id,
            frame: &mut self.frame,
            core,
            port,
            mac,
            now,
            left: of_a_turn(shared),
            leaving: of_a_packet_that_leaves(shared),
            taker: None,
        };
        let (device, memory) = function.sender();
        device.transmit(now, memory, &mut wire);
        let left = wire.left;
        let ready = device.ready_priorities();
        let closed = if ready == 0 {
            0
        } else {
            ready & !core.open_priorities(port, now)
        };
        if closed != function.account.waits {
            function.account.waits = closed;
            core.rdma_waits(port, closed);
        }
        function.charge((-left).max(0).unsigned_abs());
        core.flush();
        while let Some(own) = self.loopback.pop_front() {
            let packet = Incoming {
                path: own.path,
                headers: own.headers,
                payload: Payload::Bytes(&own.payload),
                telemetry: None,
            };
            let work = function.receive(now, &packet);
            function.charge(work);
        }
        self.slots[place] = self.sending.take().map(|(_, function)| function);
        (of_a_turn(shared) - left).unsigned_abs() as usize
    }

    /// Updates addresses and counters. Also called before the core sleeps, so that all news is reported.
    #[inline(never)]
    pub fn housekeeping(&mut self, core: &mut Core, now: Instant) {
        core.guarded(|core| self.poll_gids(core, now));
        for i in 0..self.ports.len() {
            let Some(&port) = self.ports.get(i) else {
                break;
            };
            if self.get_mut(port).is_some_and(|f| f.has_news()) {
                self.publish(core, port);
                self.news(core, port);
            }
        }
    }

    /// Asks guests for their addresses when it is time.
    fn poll_gids(&mut self, core: &mut Core, now: Instant) {
        for (port, function) in self.iter_mut() {
            function.poll_gids(now, &mut |frame| core.give_guest(port, frame));
        }
        core.flush();
    }

    /// Lets RoCE go to the function while it has a driver, and otherwise to the guest's Ethernet driver.
    /// Returns whether the function has taken the time of a request.
    #[inline]
    fn follow(&mut self, core: &mut Core, port: PortId) -> bool {
        let (live, timed) = self
            .get_mut(port)
            .map_or((false, false), |f| (f.is_live(), f.has_latency()));
        if let Some(adapter) = core.adapter(port) {
            adapter.takes_roce = live;
        }
        timed
    }

    /// Counts the times of requests whose completions were written in the round that is over `now`.
    #[inline]
    pub fn round_over(&mut self, now: Instant) {
        while let Some(port) = self.timed.pop() {
            if let Some(function) = self.get_mut(port) {
                function.count_latency(now);
            }
        }
    }

    /// Copies a function's counters to where any thread may read them: those of priorities before the sums from which they
    /// are subtracted.
    fn publish(&mut self, core: &mut Core, port: PortId) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        let received = function.take_received();
        if let Some(adapter) = core.adapter(port) {
            for (block, [packets, bytes]) in adapter.counters.link.priorities.iter().zip(received) {
                if packets > 0 {
                    block.add(P::RxFrames as usize, packets);
                    block.add(P::RxBytes as usize, bytes);
                }
            }
        }
        function.publish_counters(core.now);
    }

    /// Reports a function's events to the control plane.
    pub fn news(&mut self, core: &mut Core, port: PortId) {
        let now = core.now;
        let counters = core.adapter(port).map(|adapter| adapter.counters.clone());
        let Some(function) = self.get_mut(port) else {
            return;
        };
        let (faults, gids) = (function.take_faults(), function.take_gid_news(now));
        let conflict = function.take_gid_conflict(now);
        let drops = |reason| counters.as_ref().map_or(0, |all| all.drops.get(reason as usize));
        if let Some(report) = function.take_give_ups(now, drops) {
            core.report(CoreEvent::RdmaGaveUp { port, report });
        }
        if let Some(left) = function.take_remains() {
            core.report(CoreEvent::Remains(left));
        }
        for what in faults {
            core.report(CoreEvent::RdmaFault { port, what });
        }
        for (index, gid, added) in gids {
            core.report(CoreEvent::GidChanged {
                port,
                index,
                gid,
                added,
            });
        }
        if let Some(conflict) = conflict {
            core.report(CoreEvent::GidConflict { port, conflict });
        }
    }

    /// Replaces a function that panicked; the panic is already counted.
    #[cold]
    pub fn fail(&mut self, core: &mut Core, sleeper: &Sleeper, port: PortId) {
        self.loopback.clear();
        // The state that the bug left is not trusted: it is not used again, not even to end it in order. (To leak it keeps
        // the guest's memory mapped, to which nothing refers.)
        if let Some(function) = self.take(port) {
            for kick in function.kicks() {
                sleeper.remove(kick);
            }
            let fresh = function.successor();
            std::mem::forget(function);
            if let Some(fresh) = fresh {
                self.put(port, fresh);
            }
        }
        core.rdma_waits(port, 0);
        self.follow(core, port);
        core.report(CoreEvent::RdmaPanic { port });
    }

    // Sleep.

    /// When a function must be looked at again.
    pub fn due(&mut self, now: Instant) -> Option<Instant> {
        self.iter_mut().filter_map(|(_, f)| f.next_time(now)).min()
    }

    /// Asks drivers to kick. True: there is work already.
    pub fn request_kicks(&mut self, core: &mut Core, now: Instant) -> bool {
        let mut more = !core.out.round.inbound.is_empty();
        for (port, function) in self.iter_mut() {
            // The core wakes for a waiting priority when it opens.
            more |= function.request_kicks(core.open_priorities(port, now));
        }
        more
    }

    /// Suppresses the drivers' kicks: the core polls again.
    pub fn suppress_kicks(&mut self) {
        for (_, function) in self.iter_mut() {
            function.suppress_kicks();
        }
    }
}
