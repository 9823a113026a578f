//! Congestion control of queue pairs: who is limited and notified, with an algorithm that does as a test says and writes
//! down what it hears.

mod notification;
mod reaction;
mod restart;
mod stream;
mod trailer;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use vnic_engine::congestion::zero_touch::ZeroTouch;
use vnic_engine::congestion::{
    Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Notification, Start, UNLIMITED,
};
use vnic_engine::rdma::{Congestion, Device, FlowStatus, Incoming, Outgoing, Payload, Sink};
use vnic_wire::int::Telemetry;
use vnic_wire::opcode::Transport;
use vnic_wire::roce::{Ecn, Network, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::{Extended, Headers};

use super::harness::{Packet, Pair, Side};

/// What an algorithm heard.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    Start(Start),
    Sent(u32),
    Cnp(Notification),
    Loss(Loss),
    Ack {
        rtt: Option<u64>,
        acked: u64,
        sent: u64,
        bytes: u32,
        hops: u8,
        marked: bool,
        telemetry: Option<Telemetry>,
    },
    Paused(u64),
}

/// What all flows of a test do, and what they heard.
#[derive(Debug)]
pub struct Script {
    pub limits: Limits,
    /// From then on the limits are these.
    pub later: Option<(Instant, Limits)>,
    pub released: bool,
    pub heard: Vec<Heard>,
    /// Flows that are there.
    pub alive: usize,
}

/// Shared by the test and the device's flows, which are `Send`.
#[expect(clippy::disallowed_types, reason = "a test and its device look at it in turn")]
pub type Shared = Arc<std::sync::Mutex<Script>>;

/// The control of a test.
#[derive(Debug, Clone)]
pub struct Scripted {
    pub script: Shared,
    pub needs: Needs,
}

#[derive(Debug)]
struct ScriptedFlow(Shared);

impl Drop for ScriptedFlow {
    fn drop(&mut self) {
        self.0.lock().unwrap().alive -= 1;
    }
}

impl ScriptedFlow {
    fn hear(&self, heard: Heard) {
        self.0.lock().unwrap().heard.push(heard);
    }
}

impl Algorithm for ScriptedFlow {
    fn on_sent(&mut self, _: Instant, bytes: u32) {
        self.hear(Heard::Sent(bytes));
    }

    fn on_notification(&mut self, _: Instant, cnp: &Notification) {
        self.hear(Heard::Cnp(*cnp));
    }

    fn on_ack(&mut self, _: Instant, ack: &Ack<'_>) {
        self.hear(Heard::Ack {
            rtt: ack.rtt.map(|rtt| rtt.as_nanos() as u64),
            acked: ack.acked,
            sent: ack.sent,
            bytes: ack.bytes,
            hops: ack.hops,
            marked: ack.marked,
            telemetry: ack.telemetry.copied(),
        });
    }

    fn on_loss(&mut self, _: Instant, loss: Loss) {
        self.hear(Heard::Loss(loss));
    }

    fn advance(&mut self, now: Instant, paused: bool) {
        let mut script = self.0.lock().unwrap();
        if paused {
            script.heard.push(Heard::Paused(now.0));
        }
        if let Some((_, limits)) = script.later.take_if(|(at, _)| *at <= now) {
            script.limits = limits;
        }
    }

    fn limits(&self) -> Limits {
        self.0.lock().unwrap().limits
    }

    fn next_change(&self) -> Option<Instant> {
        self.0.lock().unwrap().later.map(|(at, _)| at)
    }

    fn is_released(&self) -> bool {
        self.0.lock().unwrap().released
    }
}

impl CongestionControl for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn needs(&self) -> Needs {
        self.needs
    }

    fn start(&self, _: Instant, flow: &Start) -> Box<dyn Algorithm> {
        let mut script = self.script.lock().unwrap();
        script.alive += 1;
        script.heard.push(Heard::Start(*flow));
        drop(script);
        Box::new(ScriptedFlow(self.script.clone()))
    }
}

impl Scripted {
    pub fn new(needs: Needs) -> Scripted {
        Scripted {
            script: Shared::new(
                Script {
                    limits: Limits::NONE,
                    later: None,
                    released: false,
                    heard: Vec::new(),
                    alive: 0,
                }
                .into(),
            ),
            needs,
        }
    }

    pub fn rate(rate: u64) -> Scripted {
        let made = Scripted::new(Needs::default());
        made.set(Limits {
            rate,
            window: UNLIMITED,
        });
        made
    }

    pub fn set(&self, limits: Limits) {
        self.script.lock().unwrap().limits = limits;
    }

    pub fn alive(&self) -> usize {
        self.script.lock().unwrap().alive
    }

    pub fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut self.script.lock().unwrap().heard)
    }

    /// Settings that use it for all priorities, and answer marks of none.
    pub fn congestion(&self) -> Congestion {
        Congestion {
            control: Arc::new(self.clone()),
            reaction: 0xff,
            zero_touch: ZeroTouch::OFF,
            slack: Duration::from_nanos(1),
            ..Congestion::default()
        }
    }
}

/// A packet as the other side's QP would send it to this one, with other headers.
pub fn from_peer(pair: &Pair, to: usize, headers: Headers) -> Packet {
    let (own, peer) = (&pair.sides[to], &pair.sides[1 - to]);
    let mut path = Path {
        eth: vnic_wire::ethernet::Header {
            destination: own.mac,
            source: peer.mac,
            ethertype: vnic_wire::EtherType::IPV4,
        },
        vlan: None,
        network: Network::v2(peer.gid, own.gid),
        source_port: 0xc001,
    };
    path.network.set_traffic_class(48 << 2);
    Packet {
        path,
        headers,
        payload: Vec::new(),
        priority: 0,
        telemetry: None,
    }
}

/// A CNP for a QP of a side.
pub fn cnp(pair: &Pair, to: usize, qp: u32, period: u32) -> Packet {
    let mut headers = Headers::cnp(qp);
    headers.extended = Extended::Cnp(vnic_wire::cnp::Header { period });
    from_peer(pair, to, headers)
}

/// A packet comes to a side.
pub fn deliver(side: &mut Side, now: Instant, packet: &Packet) {
    let incoming = Incoming {
        path: packet.path,
        headers: packet.headers,
        payload: Payload::Bytes(&packet.payload),
        telemetry: packet.telemetry.as_ref(),
    };
    side.device.receive(now, &incoming, &side.ram);
}

/// The first side's QP is notified.
pub fn notify(pair: &mut Pair, now: Instant) {
    let qp = pair.sides[0].qp.0;
    let packet = cnp(pair, 0, qp, 0);
    deliver(&mut pair.sides[0], now, &packet);
}

/// Marks a packet.
pub fn mark(mut packet: Packet) -> Packet {
    let class = packet.path.network.traffic_class();
    packet.path.network.set_traffic_class(class | Ecn::Ce as u8);
    packet
}

pub fn is_cnp(packet: &Packet) -> bool {
    packet.headers.bth.opcode.transport() == Transport::Cnp
}

/// Takes packets of priorities that are open, as many as it has room for.
pub struct Outlet {
    pub open: u8,
    pub room: usize,
    pub packets: Vec<Packet>,
    /// Bytes on the wire of what was taken, CNPs apart.
    pub bytes: u64,
}

impl Outlet {
    pub fn new(open: u8, room: usize) -> Outlet {
        Outlet {
            open,
            room,
            packets: Vec::new(),
            bytes: 0,
        }
    }
}

impl Sink for Outlet {
    fn open(&mut self) -> u8 {
        if self.room > 0 { self.open } else { 0 }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        self.room -= 1;
        let mut payload = vec![0; packet.payload.len()];
        packet.payload.read(&mut payload).unwrap();
        let frame = packet.path.frame_len(&packet.headers, payload.len());
        self.bytes += frame as u64 + 24;
        self.packets.push(Packet {
            path: *packet.path,
            headers: packet.headers,
            payload,
            priority: packet.priority,
            telemetry: packet.telemetry.copied(),
        });
    }
}

/// All that a side may send now.
pub fn transmit(side: &mut Side, now: Instant) -> Vec<Packet> {
    let mut outlet = Outlet::new(0xff, usize::MAX);
    side.device.handle_timeout(now);
    side.device.transmit(now, &side.ram, &mut outlet);
    outlet.packets
}

/// Time passes until a side has waited too long for an acknowledge.
pub fn time_out(side: &mut Side, control: &Scripted) -> Instant {
    for _ in 0..10 {
        let next = side.device.next_timeout().expect("a timer");
        side.device.handle_timeout(next);
        if control.take().contains(&Heard::Loss(Loss::Timeout)) {
            return next;
        }
    }
    panic!("no timeout");
}

/// Lets a side send whenever it wants, until then; gives bytes on the wire.
pub fn run(side: &mut Side, from: u64, to: u64) -> u64 {
    let (mut now, mut bytes) = (from, 0);
    while now < to {
        let mut outlet = Outlet::new(0xff, usize::MAX);
        side.device.handle_timeout(Instant(now));
        side.device.transmit(Instant(now), &side.ram, &mut outlet);
        bytes += outlet.bytes;
        now = side.device.next_timeout().map_or(to, |at| at.0.max(now));
    }
    bytes
}

pub fn flows(device: &mut Device, now: Instant) -> Vec<FlowStatus> {
    device.flows(now).collect()
}

/// Sends everything both ways until nothing moves, a step after the other, each way taking so long.
pub fn shuttle(pair: &mut Pair, way: u64, rounds: usize) {
    let mut wires: [VecDeque<Packet>; 2] = Default::default();
    for _ in 0..rounds {
        for (from, wire) in wires.iter_mut().enumerate() {
            wire.extend(transmit(&mut pair.sides[from], pair.now));
        }
        pair.now = pair.now + Duration::from_nanos(way);
        for (from, wire) in wires.iter_mut().enumerate() {
            for packet in wire.drain(..) {
                deliver(&mut pair.sides[1 - from], pair.now, &packet);
            }
        }
    }
}
