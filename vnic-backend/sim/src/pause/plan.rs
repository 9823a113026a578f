//! What a seed says.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use vnic_fabric::Instant;
use vnic_fabric::qos::pause::HEARD;
use vnic_fabric::qos::{Buffer, Classes, Guard, PauseSettings, PortQos, Tsa, WIRE_OVERHEAD};

/// Port of a host to its guest.
pub const GUEST: usize = 0;
/// Port of a host to its switch.
pub const WIRE: usize = 1;

/// Kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any topology without a cycle, any flows.
    Open,
    /// Many hosts to one, as fast as they can.
    Incast,
    /// Switches in a ring, flows over two hops or more, all the same way round.
    Ring,
    /// As open, but a receiver stands still for some time or for ever.
    Stall,
    /// As open, but a host sends pause for ever.
    Attack,
    /// A slow receiver, and a flow to another one over the same trunk.
    Victim,
}

/// Flow control of all links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// None: everything may be dropped.
    Off,
    /// Global pause.
    Global,
    /// Priority flow control of these, a bit each.
    Priorities(u8),
}

/// Frames from one guest to another.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Hosts.
    pub from: usize,
    pub to: usize,
    pub priority: u8,
    /// Bytes of a frame, without FCS.
    pub len: u32,
    pub frames: u32,
    pub start: Instant,
    /// bit/s on the wire that its guest tries.
    pub rate: u64,
    /// Port out of each node on its way, beginning with the first host's.
    pub path: Vec<usize>,
}

impl Flow {
    /// Bytes on the wire of a frame.
    pub fn wire(&self) -> u32 {
        self.len + WIRE_OVERHEAD
    }

    /// From one frame to the next.
    pub fn gap(&self) -> Duration {
        time(self.wire(), self.rate)
    }

    /// When it is done with nothing in its way.
    pub fn alone(&self) -> Instant {
        self.start + self.gap() * self.frames
    }
}

/// A guest that takes nothing.
#[derive(Debug, Clone, Copy)]
pub struct Stall {
    pub host: usize,
    pub from: Instant,
    pub until: Instant,
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its seed.
    pub seed: u64,
    /// Its kind.
    pub kind: Kind,
    /// Flow control.
    pub control: Control,
    /// bit/s of all links.
    pub rate: u64,
    /// From end to end.
    pub latency: Duration,
    /// What a receiver of pause takes to obey.
    pub response: Duration,
    /// Hosts: the first nodes.
    pub hosts: usize,
    /// Ports of each node: the node and the port at the other end; nothing behind a guest's.
    pub nodes: Vec<Vec<Option<(usize, usize)>>>,
    /// Of all ports, but flow control.
    pub qos: PortQos,
    /// bit/s that a guest takes, by host; 0: any.
    pub takes: Vec<u64>,
    /// Traffic.
    pub flows: Vec<Flow>,
    /// Trouble.
    pub stalls: Vec<Stall>,
    /// More of it.
    pub attacker: Option<usize>,
    /// Pause frames that are lost, of 10,000.
    pub pauses_lost: u32,
    /// It ends then at the latest.
    pub horizon: Instant,
}

/// Time of bytes at a rate.
pub fn time(bytes: u32, rate: u64) -> Duration {
    Duration::from_nanos((u64::from(bytes) * 8_000_000_000).div_ceil(rate.max(1)))
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

impl Plan {
    /// The run of a seed.
    pub fn new(seed: u64) -> Plan {
        let mut rng = Rng::with_seed(seed ^ 0x7061_7573_655f_7631);
        let rng = &mut rng;
        let kind = match rng.u32(0..12) {
            0..=1 => Kind::Open,
            2..=3 => Kind::Incast,
            4..=7 => Kind::Ring,
            8..=9 => Kind::Stall,
            10 => Kind::Attack,
            _ => Kind::Victim,
        };
        let control = match (kind, rng.u32(0..10)) {
            (Kind::Incast | Kind::Attack | Kind::Victim, _) | (_, 0..=6) => {
                Control::Priorities(1 << 3 | rng.u8(..) & 0b0011_0000)
            }
            (_, 7..=8) => Control::Global,
            _ => Control::Off,
        };
        let rate = [1_000_000_000, 10_000_000_000][rng.usize(0..2)];
        let mtu: u16 = [1500, 4096, 9000][rng.usize(0..3)];
        let cable = rng.u8(1..=100);
        let mut plan = Plan {
            seed,
            kind,
            control,
            rate,
            latency: Duration::from_nanos(5 * u64::from(cable)),
            // At most what the standard allows: 60 quanta.
            response: Duration::from_nanos(rng.u64(0..=60 * 512 * 1_000_000_000 / rate)),
            hosts: 0,
            nodes: Vec::new(),
            qos: settings(rng, kind, rate, mtu, cable),
            takes: Vec::new(),
            flows: Vec::new(),
            stalls: Vec::new(),
            attacker: None,
            pauses_lost: 0,
            horizon: ms(3000),
        };
        plan.topology(rng);
        plan.traffic(rng, u32::from(mtu) + 14);
        plan.trouble(rng);
        plan.losses(rng);
        plan
    }

    /// What acts at all ports: the settings of the plan, with its flow control.
    pub fn port_qos(&self, rate: u64) -> PortQos {
        let pause = match self.control {
            Control::Off => PauseSettings::default(),
            Control::Global => PauseSettings {
                global_tx: true,
                global_rx: true,
                ..PauseSettings::default()
            },
            Control::Priorities(pfc) => PauseSettings {
                global_tx: true,
                global_rx: true,
                pfc,
                ..PauseSettings::default()
            },
        };
        PortQos {
            rate,
            pause,
            ..self.qos.clone()
        }
    }

    /// Priorities that lose nothing, a bit each.
    pub fn lossless(&self) -> u8 {
        match self.control {
            Control::Off => 0,
            Control::Global => 0xff,
            Control::Priorities(p) => p,
        }
    }

    fn connect(&mut self, a: usize, b: usize) {
        let (at_a, at_b) = (self.nodes[a].len(), self.nodes[b].len());
        self.nodes[a].push(Some((b, at_b)));
        self.nodes[b].push(Some((a, at_a)));
    }

    fn topology(&mut self, rng: &mut Rng) {
        let (hosts, switches) = match self.kind {
            Kind::Incast => (rng.usize(3..=17), 1),
            Kind::Victim => (4, 2),
            Kind::Ring => {
                let n = rng.usize(3..=4);
                (n, n)
            }
            Kind::Open | Kind::Stall | Kind::Attack => (rng.usize(3..=8), rng.usize(1..=3)),
        };
        self.hosts = hosts;
        self.nodes = vec![Vec::new(); hosts + switches];
        for host in 0..hosts {
            self.nodes[host].push(None);
            let switch = match self.kind {
                Kind::Victim => host / 2,
                Kind::Ring => host,
                _ => rng.usize(0..switches),
            };
            self.connect(host, hosts + switch);
        }
        for i in 1..switches {
            let to = if self.kind == Kind::Ring {
                i - 1
            } else {
                rng.usize(0..i)
            };
            self.connect(hosts + to, hosts + i);
        }
        if self.kind == Kind::Ring {
            self.connect(hosts + switches - 1, hosts);
        }
        self.takes = vec![0; hosts];
    }

    fn traffic(&mut self, rng: &mut Rng, longest: u32) {
        let lossless: Vec<u8> = (0..8).filter(|p| self.lossless() & 1 << p != 0).collect();
        let any = |rng: &mut Rng| rng.u8(0..8);
        let (rate, hosts) = (self.rate, self.hosts);
        let mut flows = Vec::new();
        let mut add = |from: usize, to: usize, priority, len: u32, frames, start, rate| {
            let path = self.path(from, to);
            flows.push(Flow {
                from,
                to,
                priority,
                len,
                frames,
                start: Instant(start),
                rate,
                path,
            });
        };
        let start = |rng: &mut Rng| rng.u64(0..2_000_000);
        match self.kind {
            Kind::Incast => {
                let (len, frames) = (rng.u32(64..=longest), rng.u32(50..400));
                for from in 1..hosts {
                    add(from, 0, lossless[0], len, frames, start(rng), rate);
                }
                add(1, 0, 0, longest, 100, start(rng), rate / 2);
            }
            Kind::Victim => {
                // Host 2 takes a tenth; host 3 is the other one behind the trunk.
                let len = rng.u32(longest / 2..=longest);
                let frames = rng.u32(400..800);
                add(0, 2, lossless[0], len, frames, 0, rate);
                add(1, 3, 0, len, frames, 2_000_000, rate / 10 * 8);
            }
            Kind::Ring => {
                let priority = lossless.first().copied().unwrap_or(3);
                for from in 0..hosts {
                    let len = rng.u32(longest / 2..=longest);
                    let far = rng.usize(2..hosts);
                    add(
                        from,
                        (from + far) % hosts,
                        priority,
                        len,
                        rng.u32(200..500),
                        start(rng),
                        rate,
                    );
                }
                for _ in 0..rng.u32(1..4) {
                    let from = rng.usize(0..hosts);
                    let to = (from + rng.usize(1..hosts)) % hosts;
                    add(
                        from,
                        to,
                        any(rng),
                        rng.u32(64..=longest),
                        rng.u32(50..200),
                        start(rng),
                        rate / 4,
                    );
                }
            }
            Kind::Open | Kind::Stall | Kind::Attack => {
                for _ in 0..rng.u32(2..12) {
                    let from = rng.usize(0..hosts);
                    let to = (from + rng.usize(1..hosts)) % hosts;
                    let priority = match lossless.is_empty() || rng.bool() {
                        true => any(rng),
                        false => lossless[rng.usize(0..lossless.len())],
                    };
                    let (len, frames) = (rng.u32(64..=longest), rng.u32(20..600));
                    add(from, to, priority, len, frames, start(rng), rate / rng.u64(1..5));
                }
            }
        }
        self.flows = flows;
    }

    fn trouble(&mut self, rng: &mut Rng) {
        match self.kind {
            Kind::Victim => self.takes[2] = self.rate / 10,
            Kind::Stall => {
                let host = self.flows[0].to;
                let from = Instant(rng.u64(0..3_000_000));
                let until = match rng.u32(0..3) {
                    0 => from + Duration::from_millis(rng.u64(1..60)),
                    1 => from + Duration::from_millis(rng.u64(60..600)),
                    _ => Instant(u64::MAX),
                };
                self.stalls.push(Stall { host, from, until });
            }
            Kind::Attack => self.attacker = Some(self.flows[0].to),
            Kind::Open if rng.bool() => {
                let host = rng.usize(0..self.hosts);
                self.takes[host] = self.rate / rng.u64(1..20);
            }
            _ => {}
        }
    }

    /// One pause frame of a hundred is lost in half of all incasts. The headroom is for what comes until it has been said twice more.
    fn losses(&mut self, rng: &mut Rng) {
        if self.kind == Kind::Incast && rng.bool() {
            self.pauses_lost = 100;
            let buffer = &mut self.qos.buffer;
            let unheard = self.rate / 8_000 * HEARD.as_nanos() as u64 / 1_000_000;
            buffer.headroom = 3 * (buffer.headroom + unheard as u32);
        }
    }

    /// Ports out of the nodes from one host to another: the shortest way, in a ring always onwards.
    fn path(&self, from: usize, to: usize) -> Vec<usize> {
        if self.kind == Kind::Ring {
            // At a switch: port 0 its host; then the links in the order in which they were made.
            let hops = (to + self.hosts - from) % self.hosts;
            let onwards = |i: usize| {
                let (here, next) = (self.hosts + i % self.hosts, self.hosts + (i + 1) % self.hosts);
                let at = self.nodes[here]
                    .iter()
                    .position(|p| p.is_some_and(|(n, _)| n == next));
                at.unwrap_or_default()
            };
            let mut path = vec![WIRE];
            path.extend((0..hops).map(|i| onwards(from + i)));
            path.extend([0, GUEST]);
            return path;
        }
        let mut came = vec![None; self.nodes.len()];
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            for (port, peer) in self.nodes[node].iter().enumerate() {
                if let Some((next, _)) = peer
                    && *next != from
                    && came[*next].is_none()
                {
                    came[*next] = Some((node, port));
                    queue.push_back(*next);
                }
            }
        }
        let mut path = vec![GUEST];
        let mut at = to;
        while let Some((node, port)) = came[at] {
            path.push(port);
            at = node;
        }
        path.reverse();
        path
    }
}

fn settings(rng: &mut Rng, kind: Kind, rate: u64, mtu: u16, cable: u8) -> PortQos {
    let frame = u32::from(mtu) + 14;
    let xoff = rng.u32(2 * frame..8 * frame);
    let size = match kind {
        // Everybody as much as xoff says: a ring of them may wait for itself.
        Kind::Ring => 16 * xoff,
        _ => xoff * rng.u32(1..8),
    };
    let protected = rng.u32(0..4);
    let (guard, lifetime) = match kind {
        Kind::Incast | Kind::Victim => (false, false),
        _ => (protected & 1 != 0, protected & 2 != 0),
    };
    let mut classes = Classes::default();
    match rng.u32(0..3) {
        // Otherwise the shares decide who suffers how much.
        _ if kind == Kind::Victim => {}
        0 => {}
        1 => classes.tsa = [Tsa::Strict; 8],
        _ => {
            classes.tsa = [Tsa::Ets; 8];
            classes.share = core::array::from_fn(|_| rng.u8(0..13));
        }
    }
    let mut qos = PortQos {
        classes,
        buffer: Buffer {
            size,
            xoff,
            xon: xoff / 4 * rng.u32(1..4),
            headroom: Buffer::headroom_for(rate, cable, mtu),
            cable_len: cable,
            ..Buffer::default()
        },
        guard: Guard {
            minor_ms: if guard { 80 } else { 0 },
            critical_ms: if guard { rng.u32(80..200) } else { 0 },
        },
        ..PortQos::default()
    };
    // 4 to 67 ms.
    qos.lifetimes.limit = rng.u8(10..15);
    qos.lifetimes.stall_count = rng.u8(0..8);
    qos.lifetimes.enable = if lifetime { 0xff } else { 0 };
    qos
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}: {:?}, {:?}, {} hosts, {} switches, {} Gbit/s, {:?} + {:?}",
            self.seed,
            self.kind,
            self.control,
            self.hosts,
            self.nodes.len() - self.hosts,
            self.rate / 1_000_000_000,
            self.latency,
            self.response,
        )?;
        let q = &self.qos;
        writeln!(f, "  {:?}, {:?}, {:?}", q.buffer, q.guard, q.lifetimes)?;
        for (i, flow) in self.flows.iter().enumerate() {
            writeln!(
                f,
                "  flow {i}: {} to {}, priority {}, {} x {} bytes from {} us, {} Mbit/s, over {:?}",
                flow.from,
                flow.to,
                flow.priority,
                flow.frames,
                flow.len,
                flow.start.0 / 1000,
                flow.rate / 1_000_000,
                flow.path
            )?;
        }
        if self.pauses_lost != 0 {
            writeln!(f, "  {} of 10,000 pause frames are lost", self.pauses_lost)?;
        }
        for s in &self.stalls {
            writeln!(
                f,
                "  guest {} stands still {} to {} us",
                s.host,
                s.from.0 / 1000,
                s.until.0 / 1000
            )?;
        }
        for (host, rate) in self.takes.iter().enumerate().filter(|(_, r)| **r != 0) {
            writeln!(f, "  guest {host} takes {} Mbit/s", rate / 1_000_000)?;
        }
        if let Some(host) = self.attacker {
            writeln!(f, "  host {host} sends pause for ever")?;
        }
        Ok(())
    }
}
