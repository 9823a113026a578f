//! Links and switches: what lies between hosts.
//!
//! A packet takes one event a hop: the one at which its last bit is at the other end of the link. A port that has more to
//! send than its link takes is woken when the link is free; one that has not costs nothing.

use vnic_fabric::Instant;
use vnic_fabric::qos::red::CE;
use vnic_fabric::qos::{
    Colour, Curve, MarkAt, Marker, PauseRx, PauseSettings, PauseTx, Red, SharedBuffer, SharedSettings,
    Strict, Threshold, Verdict,
};
use vnic_wire::int::Hop;
use vnic_wire::pause::{FRAME_LEN, Frame};

use super::events::Events;
use super::outcome::Totals;
use super::packets::{FCS, GAP, Kind, NONE, Packets};
use super::routes::{Routes, mix};
use super::scenario::{Pfc, Scenario};
use super::stats::QueueRecord;

/// What happens: the kind in the upper bits, who in the middle, what in the lower 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The link of a port is free, or it has to repeat itself.
    Wake(u32),
    /// A packet is there, at the end of a way.
    Arrive(u32, u32),
    /// A pause frame is there: priorities that are told something, and those that are to stop.
    Pause(u32, u8, u8),
    /// A host takes a packet up.
    Receive(u32, u32),
    /// A host's device wants to be called.
    Timer(u32),
    /// A flow begins.
    Start(u32),
    /// A flow is stopped.
    Stop(u32),
    /// A sample is taken.
    Sample,
    /// Statistics begin to count.
    From,
}

impl What {
    /// As a word.
    #[inline]
    pub fn word(self) -> u64 {
        let pack = |kind: u64, who: u32, what: u32| kind << 60 | u64::from(who) << 32 | u64::from(what);
        match self {
            What::Wake(port) => pack(0, port, 0),
            What::Arrive(way, packet) => pack(1, way, packet),
            What::Pause(way, told, stop) => pack(2, way, u32::from(told) << 8 | u32::from(stop)),
            What::Receive(host, packet) => pack(3, host, packet),
            What::Timer(host) => pack(4, host, 0),
            What::Start(flow) => pack(5, flow, 0),
            What::Stop(flow) => pack(6, flow, 0),
            What::Sample => pack(7, 0, 0),
            What::From => pack(8, 0, 0),
        }
    }

    /// Of a word.
    #[inline]
    pub fn of(word: u64) -> What {
        let (who, what) = ((word >> 32) as u32 & 0xfff_ffff, word as u32);
        match word >> 60 {
            0 => What::Wake(who),
            1 => What::Arrive(who, what),
            2 => What::Pause(who, (what >> 8) as u8, what as u8),
            3 => What::Receive(who, what),
            4 => What::Timer(who),
            5 => What::Start(who),
            6 => What::Stop(who),
            7 => What::Sample,
            _ => What::From,
        }
    }
}

/// A port: the beginning of a way.
#[derive(Debug)]
pub struct Port {
    /// Its node.
    pub node: u32,
    /// The port at the other end.
    peer: u32,
    /// Number among those of its node.
    number: u16,
    /// Speed of the link.
    pub rate: u64,
    /// ps of a byte, where that is a whole number; otherwise 0.
    byte: u64,
    /// ps.
    delay: u64,
    /// The link is busy until then, in ps.
    pub free_at: u64,
    /// When it is woken, in ps; 0: it is not.
    wakes_at: u64,
    queue: Strict<u32>,
    obeys: PauseRx,
    tells: PauseTx,
    /// Thresholds of this link.
    red: Red,
    marker: Marker,
    /// Bytes on the wire that have left.
    pub sent: u64,
    /// Its place among the records, or [`NONE`].
    record: u32,
}

impl Port {
    /// ps of so many bytes on the wire, rounded up: no link is faster than it is.
    #[inline]
    pub fn time(&self, wire: u64) -> u64 {
        if self.byte != 0 {
            wire * self.byte
        } else {
            (u128::from(wire) * 8_000_000_000_000).div_ceil(self.rate.into()) as u64
        }
    }

    /// Priorities that are told to wait, a bit each.
    #[inline]
    pub fn paused(&mut self, now: u64) -> u8 {
        self.obeys.paused(Instant(now / 1000))
    }
}

/// Pause frames are said and obeyed of all priorities.
const ALL: PauseSettings = PauseSettings {
    global_tx: false,
    global_rx: false,
    global_waits: false,
    pfc: 0xff,
};

/// Bytes of a pause frame on the wire.
const PAUSE_WIRE: u64 = FRAME_LEN as u64 + (FCS + GAP) as u64;

/// Links and switches.
pub struct Net {
    /// What comes.
    pub events: Events,
    /// In ps.
    pub now: u64,
    /// What is under way.
    pub packets: Packets,
    /// By way.
    pub ports: Vec<Port>,
    /// By switch.
    pub buffers: Vec<SharedBuffer>,
    /// Routes of all lanes, one behind the other.
    pub routes: Vec<u32>,
    /// Recorded queues.
    pub records: Vec<QueueRecord>,
    /// Sums.
    pub totals: Totals,
    /// Packets that hosts have sent.
    pub sent_packets: u64,
    hosts: u32,
    /// Ports by node.
    of_node: Vec<Vec<u32>>,
    telemetry: bool,
    /// When the record begins, in ps.
    from: u64,
}

impl Net {
    /// Of a scenario.
    pub fn new(scenario: &Scenario, routes: &Routes, records: &[usize]) -> Net {
        let settings = &scenario.switch;
        let hosts = scenario.topology.hosts;
        let mut ports = Vec::with_capacity(routes.ways.len());
        let mut per_us = 0.0;
        for (i, way) in routes.ways.iter().enumerate() {
            let bits = u64::from(scenario.mtu) * 8;
            per_us += way.rate as f64 / bits as f64 / 1e6;
            let scaled = |bytes: u32| match settings.red_scale {
                0 => bytes,
                of => u32::try_from(u128::from(bytes) * u128::from(way.rate) / u128::from(of))
                    .unwrap_or(u32::MAX),
            };
            ports.push(Port {
                node: way.node as u32,
                peer: way.back as u32,
                number: way.number as u16,
                rate: way.rate,
                byte: if 8_000_000_000_000 % way.rate == 0 {
                    8_000_000_000_000 / way.rate
                } else {
                    0
                },
                delay: way.delay * 1000,
                free_at: 0,
                wakes_at: 0,
                queue: Strict::default(),
                obeys: PauseRx::default(),
                tells: PauseTx::default(),
                red: Red {
                    green: Curve {
                        kmin: scaled(settings.red.green.kmin),
                        kmax: scaled(settings.red.green.kmax),
                        ..settings.red.green
                    },
                    ..settings.red
                },
                marker: Marker::new(mix(scenario.seed ^ mix(i as u64))),
                sent: 0,
                record: NONE,
            });
        }
        let from = scenario.record.from * 1000;
        let records: Vec<QueueRecord> = records.iter().map(|way| QueueRecord::new(*way, from)).collect();
        for (i, record) in records.iter().enumerate() {
            ports[record.way].record = i as u32;
        }
        let mut net = Net {
            // Each packet and its acknowledge, at links that are all busy at about a third.
            events: Events::new(per_us * 0.7),
            now: 0,
            packets: Packets::default(),
            ports,
            buffers: Vec::new(),
            routes: Vec::new(),
            records,
            totals: Totals::default(),
            sent_packets: 0,
            hosts: hosts as u32,
            of_node: routes
                .of_node
                .iter()
                .map(|own| own.iter().map(|way| *way as u32).collect())
                .collect(),
            telemetry: settings.telemetry,
            from,
        };
        let mut used = 0u8;
        for flow in &scenario.flows {
            used |= 1 << (flow.priority & 7);
        }
        let priorities = u64::from(used.count_ones().max(1));
        net.buffers = (hosts..hosts + scenario.topology.switches)
            .map(|node| {
                let own = &routes.of_node[node];
                let under_way: u64 = own.iter().map(|way| net.under_way(*way, scenario.mtu)).sum();
                let threshold = match settings.pfc {
                    Pfc::Off => Threshold::Off,
                    Pfc::Static(bytes) => Threshold::Static(bytes),
                    Pfc::Dynamic(factor) | Pfc::ByRate { factor, .. } => Threshold::Dynamic(factor),
                };
                let shared = SharedSettings {
                    size: settings.buffer,
                    reserve: (under_way * priorities).min(settings.buffer / 2),
                    threshold,
                    xon_offset: settings.xon_offset,
                };
                let mut buffer = SharedBuffer::new(shared, own.len());
                if let Pfc::ByRate { rate, .. } = settings.pfc {
                    for (number, way) in own.iter().enumerate() {
                        buffer.set_weight(number, net.ports[*way].rate as f64 / rate.max(1) as f64);
                    }
                }
                buffer
            })
            .collect();
        net
    }

    /// Bytes that still come by a link when its other end was told to stop: a packet that is being sent at each end, the
    /// pause frame, and what is in the cable both ways (`t_flight` of DCQCN, section 4).
    fn under_way(&self, way: usize, mtu: u16) -> u64 {
        let port = &self.ports[way];
        let packet = u64::from(mtu) + 100;
        let cable = u128::from(port.rate) * u128::from(2 * port.delay) / 8_000_000_000_000;
        2 * packet + PAUSE_WIRE + cable as u64
    }

    /// Something happens at a time in ps.
    #[inline]
    pub fn at(&mut self, time: u64, what: What) {
        self.events.put(time, what.word());
    }

    /// A port is looked at again at a time.
    fn wake(&mut self, port: u32, time: u64) {
        let p = &mut self.ports[port as usize];
        if p.wakes_at == 0 || time < p.wakes_at {
            p.wakes_at = time;
            self.events.put(time, What::Wake(port).word());
        }
    }

    /// A port is woken. False: it was for something that is over.
    pub fn woken(&mut self, port: u32) -> bool {
        let p = &mut self.ports[port as usize];
        if p.wakes_at != self.now {
            return false;
        }
        p.wakes_at = 0;
        true
    }

    /// Wants a host's port to be woken when its link is free.
    #[inline]
    pub fn wake_when_free(&mut self, port: u32) {
        let time = self.ports[port as usize].free_at;
        self.wake(port, time);
    }

    /// A packet begins to leave by a port whose link is free.
    #[inline]
    pub fn send(&mut self, port: u32, packet: u32) {
        let bytes = self.packets.get(packet).bytes;
        let p = &mut self.ports[port as usize];
        let wire = u64::from(bytes + GAP);
        let done = self.now + p.time(wire);
        p.free_at = done;
        p.sent += wire;
        let there = done + p.delay;
        if p.record != NONE {
            self.records[p.record as usize].leaves(self.now, wire);
        }
        self.totals.packet_hops += 1;
        self.events.put(there, What::Arrive(port, packet).word());
    }

    /// The node at the end of a way, if it is a host.
    #[inline]
    pub fn host_at(&self, way: u32) -> Option<u32> {
        let end = self.ports[way as usize].peer;
        let node = self.ports[end as usize].node;
        (node < self.hosts).then_some(node)
    }

    /// A packet is at the end of a way, where a switch is.
    pub fn arrive(&mut self, way: u32, number: u32) {
        let end = self.ports[way as usize].peer;
        let ingress = self.ports[end as usize].number;
        let packet = self.packets.get_mut(number);
        let out = self.routes[packet.next as usize];
        packet.next += 1;
        packet.ingress = ingress;
        let (priority, bytes, ecn) = (packet.priority, packet.bytes, packet.ecn);
        let switch = (self.ports[end as usize].node - self.hosts) as usize;
        let port = &mut self.ports[out as usize];
        let waiting = port.queue.bytes(priority);
        match port
            .marker
            .judge(&port.red, MarkAt::Enqueue, waiting, Colour::Green, ecn)
        {
            Verdict::Pass => {}
            Verdict::Mark => self.mark(number),
            Verdict::Drop => return self.drop(number),
        }
        match self.buffers[switch].admit(ingress.into(), priority, bytes) {
            Err(_) => return self.drop(number),
            Ok(true) => self.tell(end, switch),
            Ok(false) => {}
        }
        let port = &mut self.ports[out as usize];
        port.queue.push(priority, bytes, number);
        if port.record != NONE {
            self.records[port.record as usize].change(self.now, port.queue.total());
        }
        if port.free_at <= self.now {
            self.serve(out);
        } else if port.wakes_at == 0 {
            let time = port.free_at;
            self.wake(out, time);
        }
    }

    /// A port of a switch does what it can.
    pub fn serve(&mut self, out: u32) {
        loop {
            let port = &mut self.ports[out as usize];
            if port.free_at > self.now {
                let more = port.queue.filled() != 0 || port.tells.next_time() == Some(Instant(0));
                let time = port.free_at;
                if more {
                    self.wake(out, time);
                }
                break;
            }
            if port.tells.next_time().is_some() && self.say(out) {
                continue;
            }
            let port = &mut self.ports[out as usize];
            let closed = port.obeys.paused(Instant(self.now / 1000));
            let Some((priority, bytes, number)) = port.queue.pop(closed) else {
                break;
            };
            if port.record != NONE {
                self.records[port.record as usize].change(self.now, port.queue.total());
            }
            self.leave(out, priority, bytes, number);
        }
        // What was said is repeated in time.
        if let Some(time) = self.ports[out as usize].tells.next_time()
            && time > Instant(0)
        {
            self.wake(out, (time.0 * 1000).max(self.now + 1));
        }
    }

    /// A packet was taken off a port's queue.
    #[inline]
    fn leave(&mut self, out: u32, priority: u8, bytes: u32, number: u32) {
        let port = &mut self.ports[out as usize];
        let node = port.node;
        let switch = (node - self.hosts) as usize;
        let packet = self.packets.get(number);
        let (ingress, ecn, kind, telemetry) = (packet.ingress, packet.ecn, packet.kind, packet.telemetry);
        if self.buffers[switch].release(ingress.into(), priority, bytes) {
            let back = self.port_of(node, ingress);
            self.tell(back, switch);
        }
        let port = &mut self.ports[out as usize];
        let waiting = port.queue.bytes(priority);
        match port
            .marker
            .judge(&port.red, MarkAt::Dequeue, waiting, Colour::Green, ecn)
        {
            Verdict::Pass => {}
            Verdict::Mark => self.mark(number),
            Verdict::Drop => return self.drop(number),
        }
        if self.telemetry && telemetry != NONE && kind == Kind::Data {
            let port = &self.ports[out as usize];
            let hop = Hop::new(self.now / 1000, port.sent, port.queue.total(), port.rate);
            if let Some(telemetry) = self.packets.telemetry_mut(telemetry) {
                telemetry.push(switch as u16 + 1, hop);
            }
        }
        self.send(out, number);
    }

    fn port_of(&self, node: u32, number: u16) -> u32 {
        self.of_node[node as usize][usize::from(number)]
    }

    fn mark(&mut self, number: u32) {
        self.packets.get_mut(number).ecn = CE;
        self.totals.marks += 1;
        self.totals.first_mark.get_or_insert(self.now / 1000);
    }

    /// A packet is dropped.
    pub fn drop(&mut self, number: u32) {
        self.totals.drops += 1;
        self.packets.remove(number);
    }

    /// The peer of a port is told to stop, or to go on.
    fn tell(&mut self, port: u32, switch: usize) {
        let number = self.ports[port as usize].number;
        let stops = self.buffers[switch].stops(number.into());
        let p = &mut self.ports[port as usize];
        p.tells.set(stops);
        if p.free_at <= self.now {
            self.wake(port, self.now);
        } else {
            let time = p.free_at;
            self.wake(port, time);
        }
    }

    /// A pause frame leaves, if one is due.
    fn say(&mut self, out: u32) -> bool {
        let now = self.now;
        let port = &mut self.ports[out as usize];
        let Some(frame) = port.tells.poll(Instant(now / 1000), ALL, port.rate) else {
            return false;
        };
        let Frame::Priorities { enabled, quanta } = frame else {
            return false;
        };
        let stop = (0..8).filter(|p| quanta[*p] != 0).fold(0, |all, p| all | 1 << p);
        port.free_at = now + port.time(PAUSE_WIRE);
        port.sent += PAUSE_WIRE;
        let there = port.free_at + port.delay;
        if stop != 0 {
            self.totals.pauses += 1;
            self.totals.last_pause = now / 1000;
            self.totals.first_pause.get_or_insert(now / 1000);
            if now >= self.from {
                self.totals.pauses_measured += 1;
            }
        }
        self.at(there, What::Pause(out, enabled, stop));
        true
    }

    /// A pause frame is at the end of a way: the port there that obeys it.
    pub fn pause(&mut self, way: u32, told: u8, stop: u8) -> u32 {
        let end = self.ports[way as usize].peer;
        let port = &mut self.ports[end as usize];
        let frame = Frame::Priorities {
            enabled: told,
            quanta: core::array::from_fn(|p| if stop & 1 << p != 0 { 0xffff } else { 0 }),
        };
        port.obeys.frame(Instant(self.now / 1000), &frame, ALL, port.rate);
        end
    }
}
