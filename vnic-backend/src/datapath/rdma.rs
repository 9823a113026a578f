//! RDMA functions of a data core: attach and detach of drivers, turns, and reports of events.

mod raw;
mod seats;
mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use vnic_engine::clock::NicClock;
use vnic_engine::counters::PriorityCounter as P;
use vnic_engine::rdma::{
    FlowStatus, Incoming, Object, Payload, Place, QpObservation, QpPage, QpStatus, VerbsError, WORST,
};
use vnic_engine::settings::AdapterSettings;
use vnic_fabric::Instant;
use vnic_fabric::switch::PortId;
use vnic_wire::int::{Sign, Telemetry};
use vnic_wire::mad::GSI_QP;
use vnic_wire::roce::Frame;
use vnic_wire::sa::{self, SaMad};

use super::clock::HOUSEKEEPING;
use super::core::Core;
use super::news::CoreEvent;
use super::outputs::Inbound;
use super::sleep::{Sleeper, Source};
use crate::call::Call;
use crate::rdma::{
    Attachment, Function, RdmaRings, RdmaSnapshot, of_a_packet_that_leaves, of_a_turn, of_bytes,
};
use crate::types::{ConnectionPage, QpRate};
use seats::Seats;
use wire::{Loopback, Wire, routed};

/// A driver's place at the function of an adapter; `None`: it has the whole function.
pub type Seat = (PortId, Option<Place>);

/// Passes a question of a function's driver to subnet administration on to the control plane. (What it says of an answer that comes
/// segment by segment is for the function itself.)
#[cold]
fn ask(
    core: &mut Core,
    (port, place): (PortId, Place),
    from: &mut Function,
    now: Instant,
    packet: &Incoming<'_>,
) {
    let Some((question, vlan)) = from.ask_administration(now, packet) else {
        return;
    };
    let number = question.number;
    let event = CoreEvent::SubnetQuestion {
        port,
        place,
        question,
        vlan,
    };
    if !core.out.events.report(event) {
        from.hear_administration(number, &[]);
    }
}

/// All functions of a core, by their adapters' ports.
#[derive(Default)]
pub struct Functions {
    slots: Vec<Option<Box<Function>>>,
    /// Of functions that processes share, what all but the first have.
    seats: Seats,
    /// Ports with a function.
    ports: Vec<PortId>,
    /// The NIC's clock.
    clock: NicClock,
    /// The function that sends, out of its place, so that its neighbours can be reached. After a panic it is still here.
    sending: Option<(PortId, Place, Box<Function>)>,
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

    /// What a driver has of a function.
    #[inline]
    fn seat_mut(&mut self, (port, place): Seat) -> Option<&mut Function> {
        match place.filter(|place| *place != Place::default()) {
            None => self.get_mut(port),
            Some(place) => self.seats.get_mut(port, place),
        }
    }

    /// The function of an adapter, and the seats beside it.
    pub fn each(&mut self, port: PortId) -> impl Iterator<Item = &mut Function> {
        let function = self.slots.get_mut(usize::from(port.0)).into_iter();
        function
            .filter_map(Option::as_deref_mut)
            .chain(self.seats.of_mut(port))
    }

    /// What has the queue pair of this number, if it exists.
    fn holder(&mut self, port: PortId, qp: u32) -> Option<&mut Function> {
        match self.seats.any(port) {
            true => self.seat_mut((port, Some(Place::of(qp)))),
            false => self.get_mut(port),
        }
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
        let sending = self.sending.take_if(|(p, ..)| *p == port);
        let place = self.slots.get_mut(usize::from(port.0))?;
        place.take().or(sending.map(|(.., function)| function))
    }

    // Functions and their drivers come and go.

    /// Adds a function to an adapter.
    pub fn add(&mut self, core: &mut Core, port: PortId, mut function: Function) {
        function.set_clock(self.clock);
        self.put(port, function);
        if let Some(adapter) = core.adapter(port) {
            adapter.has_rdma = true;
        }
        self.set_marking(core, port);
        self.news(core, port);
    }

    /// Sets the NIC's clock.
    pub fn set_clock(&mut self, clock: NicClock) {
        self.clock = clock;
        let functions = self.slots.iter_mut().filter_map(Option::as_deref_mut);
        for function in functions.chain(self.seats.all_mut().map(|(_, seat)| seat)) {
            function.set_clock(clock);
        }
    }

    /// Removes the function of a removed adapter.
    pub fn remove(&mut self, core: &mut Core, sleeper: &Sleeper, port: PortId) {
        for seat in (0..Place::COUNT).map(Place::new) {
            self.detach(core, sleeper, (port, seat));
        }
        self.take(port);
    }

    /// Attaches a driver to a function.
    pub fn attach(&mut self, sleeper: &Sleeper, seat: Seat, attachment: Attachment) {
        let (port, place) = seat;
        if let Some(place) = place.filter(|place| *place != Place::default()) {
            let function = self.get_mut(port);
            let Some((made, gids)) = function.and_then(|f| Some((f.seat(place)?, f.gid_version()))) else {
                return;
            };
            self.seats.put(port, place, made, gids);
        }
        let Some(function) = self.seat_mut(seat) else {
            return;
        };
        for kick in function.attach(attachment, place) {
            let _ = sleeper.add(kick, Source::Rdma(port.0.into()));
        }
        function.suppress_kicks();
    }

    /// Replaces the driver's memory; `done` is sent when the old memory is not used any more.
    pub fn remap(&mut self, seat: Seat, rings: RdmaRings, done: Sender<()>) {
        if let Some(function) = self.seat_mut(seat) {
            function.remap(rings, done);
            function.suppress_kicks();
        }
    }

    /// Sets the call eventfd of a virtqueue.
    pub fn set_call(&mut self, seat: Seat, index: u16, call: Option<Arc<Call>>) {
        if let Some(function) = self.seat_mut(seat) {
            function.set_call(index, call);
        }
    }

    /// Ends all objects of the driver. Returns the ring indexes of its virtqueues.
    pub fn detach(&mut self, core: &mut Core, sleeper: &Sleeper, seat: Seat) -> Vec<u16> {
        let (port, place) = seat;
        let Some(function) = self.seat_mut(seat) else {
            return Vec::new();
        };
        for kick in function.kicks() {
            sleeper.remove(kick);
        }
        let now = core.now;
        for _ in 0..function.part(now) {
            self.transmit(core, (port, place.unwrap_or_default()), now, false);
            if !self.seat_mut(seat).is_some_and(|f| f.device().has_messages()) {
                break;
            }
        }
        let bases = self.seat_mut(seat).map_or_else(Vec::new, Function::detach);
        if let Some(place) = place.filter(|place| *place != Place::default())
            && let Some(mut gone) = self.seats.take(port, place)
        {
            if let Some(function) = self.get_mut(port) {
                function.gather(&mut gone, true);
            }
            if let Some(left) = gone.take_remains() {
                core.report(CoreEvent::Remains(left));
            }
            self.waits(core, port);
        }
        self.publish(core, port);
        self.follow(core, port);
        self.news(core, port);
        bases
    }

    /// Sets `roce_mode`, `*NetworkDirect` and `EceSupportEnabled` of an adapter.
    pub fn set_roce(&mut self, core: &mut Core, port: PortId, settings: &AdapterSettings) {
        if self.get_mut(port).is_some() {
            for function in self.each(port) {
                function.set_roce(settings.roce_mode, settings.network_direct);
                function.set_ece(settings.ece);
                function
                    .flows
                    .set_vxlan_port(settings.offloads.tunnels.vxlan_port);
            }
            self.follow(core, port);
            self.news(core, port);
        }
    }

    /// Changes a function and the seats beside it. False: there is none.
    pub fn change(&mut self, core: &mut Core, port: PortId, change: impl Fn(&mut Function)) -> bool {
        if self.get_mut(port).is_none() {
            return false;
        }
        self.each(port).for_each(change);
        self.follow(core, port);
        self.news(core, port);
        true
    }

    /// Applies the configured marking to the RDMA packets of an adapter.
    pub fn set_marking(&mut self, core: &Core, port: PortId) {
        let change = core.out.qos.get(port);
        for function in self.each(port) {
            function.set_marking(change.map(|c| c.marking.clone()).unwrap_or_default());
        }
    }

    // Questions of the control plane.

    /// State of a function, with that of all its seats. `None`: there is none.
    pub fn snapshot(&mut self, port: PortId) -> Option<RdmaSnapshot> {
        let function = self.slots.get(usize::from(port.0))?.as_deref()?;
        let mut snapshot = function.snapshot(self.seats.of(port));
        snapshot
            .worst
            .sort_by_key(|(_, errors)| std::cmp::Reverse(errors.sum()));
        snapshot.worst.truncate(WORST);
        Some(snapshot)
    }

    /// Queue pairs of a function that congestion control limits now.
    pub fn flows(&mut self, port: PortId, now: Instant) -> Option<Vec<FlowStatus>> {
        self.get_mut(port)?;
        Some(self.each(port).flat_map(|function| function.flows(now)).collect())
    }

    /// Queue pairs of a function with a rate limit.
    pub fn rates(&mut self, port: PortId) -> Option<Vec<QpRate>> {
        self.get_mut(port)?;
        Some(self.each(port).flat_map(Function::rates).collect())
    }

    /// Queue pairs of a function behind a place, at most `most`. (The upper bits of a place are those of the seat.)
    pub fn queue_pairs(
        &mut self,
        port: PortId,
        behind: Option<u32>,
        most: usize,
        now: Instant,
    ) -> Option<QpPage> {
        const SEAT: u32 = 20;
        self.get_mut(port)?;
        let first = behind.map_or(0, |behind| behind >> SEAT);
        for seat in first..u32::from(Place::COUNT) {
            let place = u8::try_from(seat).ok().and_then(Place::new);
            let Some(function) = self.seat_mut((port, place)) else {
                continue;
            };
            let behind = behind
                .filter(|_| seat == first)
                .map(|behind| behind & ((1 << SEAT) - 1));
            let mut page = function.queue_pairs(behind, most, now);
            page.next = page.next.map(|next| next | seat << SEAT);
            if page.next.is_some() || !page.rows.is_empty() || !self.seats.any(port) {
                // Behind the last one of this seat there may be another seat.
                let last = (1 << SEAT) - 1;
                let more = self.seats.any(port) && seat + 1 < u32::from(Place::COUNT);
                page.next = page.next.or_else(|| more.then_some(seat << SEAT | last));
                return Some(page);
            }
        }
        Some(QpPage::default())
    }

    /// Connections of a function behind a place, at most `most`. (The upper half of a place is that of the seat.)
    pub fn connections(&mut self, port: PortId, behind: Option<u64>, most: usize) -> Option<ConnectionPage> {
        self.get_mut(port)?;
        let first = behind.map_or(0, |behind| (behind >> 32) as u32);
        let mut page = ConnectionPage::default();
        for seat in first..u32::from(Place::COUNT) {
            let place = u8::try_from(seat).ok().and_then(Place::new);
            let Some(function) = self.seat_mut((port, place)) else {
                continue;
            };
            let behind = behind.filter(|_| seat == first).map(|behind| behind as u32);
            page.rows
                .extend(function.connections(behind, most - page.rows.len()));
            if page.rows.len() >= most {
                let last = page.rows.last().map_or(0, |row| row.of.id);
                page.next = Some(u64::from(seat) << 32 | u64::from(last));
                break;
            }
            if !self.seats.any(port) {
                break;
            }
        }
        Some(page)
    }

    /// A queue pair of a function, with what was counted of it while somebody looks.
    pub fn queue_pair(
        &mut self,
        port: PortId,
        qp: u32,
        keep: Option<Duration>,
        now: Instant,
    ) -> Option<Result<(QpStatus, Option<QpObservation>), VerbsError>> {
        self.get_mut(port)?;
        let none = Err(VerbsError::NoSuch(Object::Qp));
        Some(
            self.holder(port, qp)
                .map_or(none, |function| function.queue_pair(qp, keep, now)),
        )
    }

    /// Sets the operator's limit of a queue pair, in kbit/s; 0: none.
    pub fn set_ceiling(
        &mut self,
        port: PortId,
        qp: u32,
        kbps: u32,
        now: Instant,
    ) -> Option<Result<(), VerbsError>> {
        self.get_mut(port)?;
        let none = Err(VerbsError::NoSuch(Object::Qp));
        Some(
            self.holder(port, qp)
                .map_or(none, |function| function.set_ceiling(qp, kbps, now)),
        )
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
        let seats = !self.seats.is_empty();
        for i in 0..self.ports.len() {
            let Some(&port) = self.ports.get(i) else {
                break;
            };
            // A bug that one guest triggers takes down only that guest's function.
            let turn = match seats && self.seats.any(port) {
                false => core.guarded(|core| self.turn(core, (port, Place::default()), now, shared)),
                true => core.guarded(|core| self.turns(core, port, now)),
            };
            match turn {
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
        if let Inbound::Frame(qp, arrived, bytes) = frame {
            if let Some(function) = self.holder(port, qp.0) {
                let work = function.receive_frame(now, *qp, *arrived, bytes);
                function.charge(work.saturating_add(of_bytes(bytes.len())));
            }
            return;
        }
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
            Inbound::Frame(..) => {}
        }
    }

    /// Hands a packet from the wire to a function, which copies its payload to the guest's memory.
    #[inline]
    pub fn packet(&mut self, port: PortId, bytes: &[u8], now: Instant) {
        let Some(Some(function)) = self.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        match Frame::parse(bytes) {
            Ok(frame) if frame.icrc_ok() => {
                let gathered;
                let mut packet = Incoming::from(&frame);
                if frame.headers.bth.telemetry != Sign::None {
                    gathered = frame.trailer.map_or(Telemetry::EMPTY, Telemetry::parse_trailer);
                    packet.telemetry = Some(&gathered);
                }
                if !routed(&packet) || !self.seats.any(port) {
                    let work = function.receive(now, &packet);
                    return function.charge(work);
                }
                self.deliver(port, &packet, now);
            }
            Ok(_) => function.count_bad_icrc(),
            // The frame is not RoCE after all, or is cut short.
            Err(_) => function.count_malformed(),
        }
    }

    /// Hands a packet to those of a function's seats that it is for.
    #[cold]
    fn deliver(&mut self, port: PortId, packet: &Incoming<'_>, now: Instant) {
        let (functions, seats) = (&mut self.slots, &mut self.seats);
        wire::to_seats(functions, seats, port, packet, |seat, _| {
            let work = seat.receive(now, packet);
            seat.charge(work);
        });
    }

    /// Gives the seats of a function their turns, one after the other: in a round as much as one adapter may do, and the next
    /// round goes on with the next seat. Returns how much was done.
    #[inline(never)]
    fn turns(&mut self, core: &mut Core, port: PortId, now: Instant) -> usize {
        if let Some(Some(function)) = self.slots.get(usize::from(port.0)) {
            self.seats.follow_gids(port, function);
        }
        let mut work = 0;
        for _ in 0..=self.seats.len(port) {
            let place = self.seats.next_turn(port);
            work += self.turn(core, (port, place), now, true);
            if work >= of_a_turn(true).unsigned_abs() as usize {
                break;
            }
        }
        work
    }

    /// Tells the core which priorities of a function wait for the adapter's limits, of any seat.
    fn waits(&mut self, core: &mut Core, port: PortId) {
        let waits = self
            .each(port)
            .fold(0, |all, function| all | function.account.waits);
        core.rdma_waits(port, waits);
    }

    /// Gives a function, or one of its seats, its turn; `shared`: others want to send. Returns how much was done.
    #[inline(always)]
    fn turn(&mut self, core: &mut Core, (port, place): (PortId, Place), now: Instant, shared: bool) -> usize {
        let Some(function) = self.seat_mut((port, Some(place))) else {
            return 0;
        };
        let Some(mut work) = function.poll(now, shared) else {
            return function.finish(now);
        };
        if std::mem::take(&mut function.account.asked) {
            core.turns.asks(port, now);
        }
        if function.device().wants_transmit() || function.account.waits != 0 {
            work += self.transmit(core, (port, place), now, shared);
        }
        match self.seat_mut((port, Some(place))) {
            Some(function) => work + function.finish(now),
            None => work,
        }
    }

    fn transmit(
        &mut self,
        core: &mut Core,
        (port, place): (PortId, Place),
        now: Instant,
        shared: bool,
    ) -> usize {
        let first = place == Place::default();
        let lifted = match first {
            true => self.slots[usize::from(port.0)].take(),
            false => self.seats.lift(port, place),
        };
        let Some(function) = lifted else {
            return 0;
        };
        let (.., function) = self.sending.insert((port, place, function));
        let (mac, mtu) = (function.device().mac(), function.mtu());
        let mut wire = Wire {
            functions: &mut self.slots,
            seats: &mut self.seats,
            loopback: &mut self.loopback,
            next_id: &mut self.next_id,
            frame: &mut self.frame,
            core,
            port,
            place,
            mac,
            mtu: mtu.into(),
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
        let told = closed != function.account.waits;
        function.account.waits = closed;
        function.charge((-left).max(0).unsigned_abs());
        core.flush();
        while let Some(own) = self.loopback.pop_front() {
            let packet = Incoming {
                path: own.path,
                headers: own.headers,
                payload: Payload::Bytes(&own.payload),
                telemetry: None,
            };
            if own.headers.bth.destination_qp == GSI_QP && own.payload.get(1) == Some(&sa::CLASS) {
                ask(core, (port, place), function, now, &packet);
                continue;
            }
            let work = function.receive(now, &packet);
            function.charge(work);
        }
        let function = self.sending.take().map(|(.., function)| function);
        match first {
            true => self.slots[usize::from(port.0)] = function,
            false => self.seats.put_back(port, place, function),
        }
        if told {
            self.waits(core, port);
        }
        (of_a_turn(shared) - left).unsigned_abs() as usize
    }

    /// Gives a function the answer to a question of its driver's to subnet administration; none: nobody answers.
    pub fn answer(&mut self, port: PortId, place: Place, question: u32, answer: &[SaMad]) {
        if let Some(function) = self.seat_mut((port, Some(place))) {
            function.hear_administration(question, answer);
        }
    }

    /// Updates addresses and counters. Also called before the core sleeps, so that all news is reported.
    #[inline(never)]
    pub fn housekeeping(&mut self, core: &mut Core, now: Instant) {
        core.guarded(|core| self.poll_gids(core, now));
        for i in 0..self.ports.len() {
            let Some(&port) = self.ports.get(i) else {
                break;
            };
            let news = self.get_mut(port).is_some_and(|f| f.has_news());
            if news || self.seats.any(port) && self.seats.of(port).any(Function::has_news) {
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
        let (mut live, mut timed) = (false, false);
        let mut flows = None;
        if let Some(function) = self.get_mut(port) {
            (live, timed) = (function.is_live(), function.has_latency());
            flows = function.flows.of_all();
        }
        if self.seats.any(port) {
            for seat in self.seats.of(port) {
                live |= seat.is_live();
                timed |= seat.has_latency();
            }
        }
        if let Some(adapter) = core.adapter(port) {
            adapter.takes_roce = live;
            if flows.is_some() != adapter.has_flows() {
                adapter.set_flows(flows);
            }
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
            if self.seats.any(port) {
                for seat in self.seats.of_mut(port) {
                    seat.count_latency(now);
                }
            }
        }
    }

    /// Copies a function's counters to where any thread may read them: those of priorities before the sums from which they
    /// are subtracted.
    fn publish(&mut self, core: &mut Core, port: PortId) {
        let Some(function) = self.get_mut(port) else {
            return;
        };
        let mut received = function.take_received();
        for seat in self.seats.of_mut(port) {
            for (sum, new) in received.iter_mut().zip(seat.take_received()) {
                sum[0] += new[0];
                sum[1] += new[1];
            }
        }
        if let Some(adapter) = core.adapter(port) {
            for (block, [packets, bytes]) in adapter.counters.link.priorities.iter().zip(received) {
                if packets > 0 {
                    block.add(P::RxFrames as usize, packets);
                    block.add(P::RxBytes as usize, bytes);
                }
            }
        }
        if let Some(Some(function)) = self.slots.get_mut(usize::from(port.0)) {
            function.publish_counters(core.now, self.seats.of_mut(port));
        }
    }

    /// Reports a function's events to the control plane.
    pub fn news(&mut self, core: &mut Core, port: PortId) {
        let now = core.now;
        let counters = core.adapter(port).map(|adapter| adapter.counters.clone());
        let Some(Some(function)) = self.slots.get_mut(usize::from(port.0)) else {
            return;
        };
        for seat in self.seats.of_mut(port) {
            function.gather(seat, false);
            if let Some(left) = seat.take_remains() {
                core.report(CoreEvent::Remains(left));
            }
        }
        let (faults, gids) = (function.take_faults(), function.take_gid_news(now));
        let (conflict, hits) = (function.take_gid_conflict(now), function.take_first_hits());
        let drops = |reason| counters.as_ref().map_or(0, |all| all.drops.get(reason as usize));
        if let Some(report) = function.take_give_ups(now, drops) {
            core.report(CoreEvent::RdmaGaveUp { port, report });
        }
        if let Some(violation) = function.take_pkey_violation(now) {
            core.report(CoreEvent::BadPkey { port, violation });
        }
        if let Some(faults) = function.take_program_faults() {
            core.report(CoreEvent::ProgramFault { port, faults });
        }
        for report in function.take_connection_news(now) {
            core.report(CoreEvent::RdmaConnections { port, report });
        }
        if let Some(left) = function.take_remains() {
            core.report(CoreEvent::Remains(left));
        }
        for (id, name) in hits {
            core.report(CoreEvent::VerbsFaultHit { port, id, name });
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
        // A seat that was sending is out of its place; a function that was is found by `take`.
        let sending = self
            .sending
            .take_if(|(p, place, _)| *p == port && *place != Place::default());
        let mut seats = self.seats.take_all(port);
        seats.extend(sending.map(|(.., seat)| seat));
        // The state that the bug left is not trusted: it is not used again, not even to end it in order. (To leak it keeps
        // the guest's memory mapped, to which nothing refers.)
        if let Some(mut function) = self.take(port) {
            for seat in &mut seats {
                function.gather(seat, true);
            }
            for kick in seats.iter().flat_map(|seat| seat.kicks()).chain(function.kicks()) {
                sleeper.remove(kick);
            }
            let fresh = function.successor();
            std::mem::forget((function, seats));
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
        let functions = self.iter_mut().filter_map(|(_, f)| f.next_time(now)).min();
        let seats = self.seats.all_mut().filter_map(|(_, f)| f.next_time(now)).min();
        functions.into_iter().chain(seats).min()
    }

    /// Asks drivers to kick. True: there is work already.
    pub fn request_kicks(&mut self, core: &mut Core, now: Instant) -> bool {
        let mut more = !core.out.round.inbound.is_empty();
        for (port, function) in self.iter_mut() {
            // The core wakes for a waiting priority when it opens.
            more |= function.request_kicks(core.open_priorities(port, now));
        }
        for (port, seat) in self.seats.all_mut() {
            more |= seat.request_kicks(core.open_priorities(port, now));
        }
        more
    }

    /// Suppresses the drivers' kicks: the core polls again.
    pub fn suppress_kicks(&mut self) {
        for (_, function) in self.iter_mut() {
            function.suppress_kicks();
        }
        for (_, seat) in self.seats.all_mut() {
            seat.suppress_kicks();
        }
    }
}
