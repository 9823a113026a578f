//! A run: events in order, hosts that answer them, and what is written down.

use anyhow::{Context, Result, ensure};
use vnic_engine::rdma::{Incoming, Outgoing, Payload, QpNumber, Sink, multipath_port};
use vnic_wire::aeth::Syndrome;
use vnic_wire::opcode::Transport;
use vnic_wire::roce::{Ecn, Path};
use vnic_wire::time::Instant;
use vnic_wire::transport::Extended;

use super::flows::{Lane, Progress, frame_bytes, ideal};
use super::host::{CONTROL, End, Host, Nothing, Side, TTL, mtu};
use super::net::{Net, What};
use super::outcome::{Outcome, Series};
use super::packets::{Kind, NONE, Packet};
use super::routes::{Routes, mix};
use super::scenario::Scenario;

/// Bytes of a WRITE of an endless flow. Two are posted.
const ENDLESS: u32 = 16 << 20;
/// Most bytes of a WRITE.
const LARGEST: u64 = 1 << 30;
/// Payload of all packets.
static PAYLOAD: [u8; 4096] = [0; 4096];

/// See the module.
pub struct World<'a> {
    scenario: &'a Scenario,
    pub net: Net,
    routes: Routes,
    hosts: Vec<Option<Box<Host>>>,
    /// Of flow `i`: `2 i` to its receiver, `2 i + 1` back.
    lanes: Vec<Lane>,
    pub flows: Vec<Progress>,
    /// Flows that will end and have not.
    unfinished: usize,
    series: Series,
    /// Totals at the last sample: pauses, CNPs, marks, drops.
    sampled: [u64; 4],
    hash: u64,
    /// Packets that hosts have taken up.
    pub received: u64,
    from: u64,
    ports: fastrand::Rng,
}

/// What a device sends goes out here.
struct Outlet<'a> {
    net: &'a mut Net,
    lanes: &'a mut [Lane],
    flows: &'a mut [Progress],
    side: &'a Side,
    open: u8,
    sent: bool,
}

impl Sink for Outlet<'_> {
    #[inline]
    fn open(&mut self) -> u8 {
        if self.sent { 0 } else { self.open }
    }

    fn send(&mut self, packet: &Outgoing<'_>) {
        debug_assert!(
            self.open >> packet.priority & 1 == 1,
            "a host sends of a priority that is paused"
        );
        self.sent = true;
        let Some(number) = self.side.lane(packet.from).filter(|lane| *lane != u32::MAX) else {
            return;
        };
        let headers = packet.headers;
        let lane = &mut self.lanes[number as usize];
        let kind = match headers.extended {
            _ if headers.bth.opcode.transport() == Transport::Cnp => Kind::Cnp,
            Extended::Aeth(_) => Kind::Ack,
            _ => Kind::Data,
        };
        let path = &mut lane.paths[usize::from(kind == Kind::Cnp)];
        if path.is_none() {
            let mut seen = *packet.path;
            seen.network.set_hop_limit(TTL - lane.switches);
            *path = Some(Box::new(seen));
        }
        let payload = packet.payload.len();
        let mut missing = Vec::new();
        if kind == Kind::Ack && payload > 0 {
            missing.resize(payload, 0);
            // (It is no guest's memory.)
            let _ = packet.payload.read(&mut missing);
        }
        let telemetry = match packet.telemetry {
            Some(telemetry) => self.net.packets.add_telemetry(*telemetry),
            None => NONE,
        };
        let now = self.net.now;
        match kind {
            Kind::Data => {
                let bth = &headers.bth;
                self.flows[number as usize / 2].leaves(bth.psn, bth.ack_request, now);
            }
            Kind::Ack => {}
            Kind::Cnp => self.net.totals.cnps += 1,
        }
        let way = lane
            .ways
            .iter()
            .position(|(port, _)| *port == packet.path.source_port);
        let way = way.unwrap_or(0);
        let packet = Packet {
            lane: number,
            next: lane.ways[way].1,
            bytes: frame_bytes(headers.len() as u64, payload as u64) as u32,
            telemetry,
            payload: payload as u16,
            ingress: 0,
            ecn: packet.path.network.traffic_class() & 3,
            priority: packet.priority,
            kind,
            way: way as u8,
        };
        self.net.sent_packets += 1;
        let number = self.net.packets.add(packet, headers);
        if kind == Kind::Ack && payload > 0 {
            self.net.packets.set_missing(number, missing);
        }
        self.net.send(self.side.port, number);
    }
}

impl<'a> World<'a> {
    /// Before anything has happened.
    pub fn new(scenario: &'a Scenario) -> Result<World<'a>> {
        mtu(scenario.mtu)?;
        let routes = Routes::new(&scenario.topology, scenario.seed)?;
        let record = &scenario.record;
        let mut recorded = Vec::new();
        for (node, link) in &record.queues {
            let ends = scenario.topology.links.get(*link);
            let ends = ends.with_context(|| format!("a queue of link {link}, which is not there"))?;
            ensure!(
                ends.a == *node || ends.b == *node,
                "a queue of node {node} at link {link}, which is elsewhere"
            );
            recorded.push(2 * link + usize::from(ends.a != *node));
        }
        for flow in &record.flows {
            ensure!(
                *flow < scenario.flows.len(),
                "a record of flow {flow}, which is not there"
            );
        }
        if recorded.is_empty() {
            let mut ends = vec![0usize; scenario.topology.hosts];
            for flow in &scenario.flows {
                if let Some(n) = ends.get_mut(flow.to) {
                    *n += 1;
                }
            }
            let busiest = (0..ends.len()).rev().max_by_key(|host| ends[*host]);
            if let Some(host) = busiest {
                recorded.push(routes.ways[routes.of_node[host][0]].back);
            }
        }
        let mut net = Net::new(scenario, &routes, &recorded);
        for (i, flow) in scenario.flows.iter().enumerate() {
            net.at(flow.start * 1000, What::Start(i as u32));
            if let Some(stop) = flow.stop {
                net.at(stop.max(flow.start) * 1000 + 1, What::Stop(i as u32));
            }
        }
        if record.interval > 0 {
            net.at(record.interval * 1000, What::Sample);
        }
        Ok(World {
            net,
            hosts: (0..scenario.topology.hosts).map(|_| None).collect(),
            lanes: Vec::new(),
            flows: scenario.flows.iter().map(Progress::new).collect(),
            unfinished: scenario.flows.len(),
            series: Series {
                queues: vec![Vec::new(); recorded.len()],
                rates: vec![Vec::new(); record.flows.len()],
                delivered: vec![Vec::new(); record.flows.len()],
                ..Series::default()
            },
            sampled: [0; 4],
            hash: mix(scenario.seed),
            received: 0,
            from: record.from * 1000,
            ports: fastrand::Rng::with_seed(mix(scenario.seed ^ 0x706f_7274)),
            routes,
            scenario,
        })
    }

    /// Until the end.
    pub fn run(&mut self, progress: &mut dyn FnMut(f64)) -> Result<()> {
        let end = self.scenario.duration.saturating_mul(1000);
        self.make_lanes()?;
        while self.unfinished > 0 {
            let Some((time, word)) = self.net.events.take() else {
                break;
            };
            if time > end {
                self.net.now = end;
                break;
            }
            self.net.now = time;
            self.note(time ^ word.rotate_left(32));
            self.net.totals.events += 1;
            if self.net.totals.events.is_multiple_of(1 << 18) {
                progress(time as f64 / end as f64);
            }
            self.happens(What::of(word))?;
        }
        progress(1.0);
        Ok(())
    }

    /// One event.
    fn happens(&mut self, what: What) -> Result<()> {
        match what {
            What::Arrive(way, packet) => match self.net.host_at(way) {
                None => self.net.arrive(way, packet),
                Some(host) => return self.reaches(host, packet),
            },
            What::Wake(port) => {
                if self.net.woken(port) {
                    return self.serve(port);
                }
            }
            What::Pause(way, told, stop) => {
                let port = self.net.pause(way, told, stop);
                return self.serve(port);
            }
            What::Receive(host, packet) => return self.receive(host, packet),
            What::Timer(host) => return self.timer(host),
            What::Start(flow) => return self.start(flow as usize),
            What::Stop(flow) => return self.stop(flow as usize),
            What::Sample => self.sample(),
            What::From => {}
        }
        Ok(())
    }

    #[inline]
    fn note(&mut self, word: u64) {
        self.hash = (self.hash ^ word)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
    }

    /// A port does what it can: of a switch or of a host.
    fn serve(&mut self, port: u32) -> Result<()> {
        let node = self.net.ports[port as usize].node as usize;
        if node >= self.hosts.len() {
            self.net.serve(port);
            return Ok(());
        }
        self.with(node, |_, _| Ok(()))
    }

    /// Does something with a host's device, and then what the device wants.
    fn with(&mut self, at: usize, act: impl FnOnce(&mut World<'a>, &mut Host) -> Result<()>) -> Result<()> {
        let Some(mut host) = self.hosts[at].take() else {
            return Ok(());
        };
        let done = act(self, &mut host).and_then(|()| self.stirred(at, &mut host));
        self.hosts[at] = Some(host);
        done
    }

    /// A device was called: what it has completed, sends, and waits for.
    fn stirred(&mut self, at: usize, host: &mut Host) -> Result<()> {
        while let Some(cq) = host.device.next_completed() {
            while let Some(done) = host.device.pop_completion(cq) {
                self.completed(host, done.wr_id as usize)?;
            }
        }
        while host.device.poll_event().is_some() {}
        self.transmit(host);
        if let Some(next) = host.device.next_timeout() {
            // Never in the past: an engine that asked for that would stop the time.
            let time = (next.0.saturating_mul(1000)).max(self.net.now + 1);
            if host.side.timer_at == 0 || time < host.side.timer_at {
                host.side.timer_at = time;
                self.net.at(time, What::Timer(at as u32));
            }
        }
        Ok(())
    }

    /// A device sends while its link is free.
    fn transmit(&mut self, host: &mut Host) {
        let port = host.side.port;
        let now = self.net.now;
        while host.device.wants_transmit() {
            if self.net.ports[port as usize].free_at > now {
                self.net.wake_when_free(port);
                return;
            }
            // (The engine asks also when all that is ready is paused: it learns from the answer that it is.)
            let open = !self.net.ports[port as usize].paused(now);
            let mut outlet = Outlet {
                net: &mut self.net,
                lanes: &mut self.lanes,
                flows: &mut self.flows,
                side: &host.side,
                open,
                sent: false,
            };
            host.device.transmit(Instant(now / 1000), &Nothing, &mut outlet);
            if !outlet.sent && host.device.ready_priorities() & open == 0 {
                return;
            }
        }
    }

    /// A packet is at its host.
    fn reaches(&mut self, host: u32, number: u32) -> Result<()> {
        let settings = self.scenario.host;
        if settings.loss > 0 {
            let dice = mix(self.scenario.seed ^ mix(self.net.now ^ u64::from(host) << 48));
            if dice % 1_000_000 < u64::from(settings.loss) {
                self.net.drop(number);
                return Ok(());
            }
        }
        if settings.delay == 0 && settings.receive_rate == 0 {
            return self.receive(host, number);
        }
        let (kind, bytes, telemetry) = {
            let packet = self.net.packets.get(number);
            (packet.kind, packet.bytes, packet.telemetry)
        };
        let now = self.net.now;
        let mut done = now;
        if settings.receive_rate > 0
            && let Some(host) = self.hosts[host as usize].as_deref_mut()
        {
            let working = &mut host.side.working;
            while working.front().is_some_and(|t| *t <= now) {
                working.pop_front();
            }
            if settings.receive_queue > 0 && working.len() >= settings.receive_queue as usize {
                self.net.drop(number);
                return Ok(());
            }
            let mut begins = working.back().map_or(now, |t| (*t).max(now));
            let (every, length) = settings.receive_stall;
            if every > 0 {
                let stalled = begins % (every * 1000);
                begins += (length * 1000).saturating_sub(stalled);
            }
            done = begins + (u64::from(bytes) * 8_000_000_000_000).div_ceil(settings.receive_rate);
            working.push_back(done);
        }
        // What comes back from here leaves so much later, too.
        let delay = 1000 * settings.delay * if kind == Kind::Data { 2 } else { 1 };
        if kind == Kind::Data
            && let Some(telemetry) = self.net.packets.telemetry_mut(telemetry)
        {
            telemetry.endpoint = u32::try_from((done + delay - now) / 1000).unwrap_or(u32::MAX);
        }
        self.net.at(done + delay, What::Receive(host, number));
        Ok(())
    }

    /// A host takes a packet up.
    fn receive(&mut self, host: u32, number: u32) -> Result<()> {
        let packet = *self.net.packets.get(number);
        let headers = *self.net.packets.headers(number);
        let measured = self.net.now >= self.from;
        self.received += 1;
        let psn = headers.bth.psn;
        self.note(u64::from(psn.value()) << 8 | u64::from(packet.ecn));
        let selective = self.scenario.host.zero_touch.selective && packet.kind == Kind::Data;
        let flow = &mut self.flows[packet.lane as usize / 2];
        match packet.kind {
            Kind::Data => {
                self.net.totals.data_packets += 1;
                if !selective {
                    flow.arrives(psn, packet.payload, measured);
                }
            }
            Kind::Ack => {
                if let Extended::Aeth(aeth) = headers.extended
                    && matches!(aeth.syndrome, Syndrome::Ack { .. })
                {
                    flow.acknowledged(psn, self.net.now, measured);
                }
            }
            Kind::Cnp => flow.outcome.notifications += 1,
        }
        let lane = &self.lanes[packet.lane as usize];
        let path: Option<Path> = lane.paths[usize::from(packet.kind == Kind::Cnp)]
            .as_deref()
            .copied();
        let Some(mut path) = path else {
            self.net.packets.remove(number);
            return Ok(());
        };
        path.source_port = lane.ways[usize::from(packet.way)].0;
        if Ecn::of(packet.ecn) == Ecn::Ce {
            let class = path.network.traffic_class();
            path.network.set_traffic_class(class | 3);
        }
        let done = self.with(host as usize, |world, host| {
            let payload = match packet.kind {
                Kind::Ack => world.net.packets.missing(number),
                Kind::Data | Kind::Cnp => &PAYLOAD[..usize::from(packet.payload)],
            };
            let incoming = Incoming {
                path,
                headers,
                payload: Payload::Bytes(payload),
                telemetry: world.net.packets.telemetry(packet.telemetry),
            };
            let now = Instant(world.net.now / 1000);
            host.device.receive(now, &incoming, &Nothing);
            if selective && let Ok(qp) = host.device.query_qp(QpNumber(headers.bth.destination_qp)) {
                let flow = &mut world.flows[packet.lane as usize / 2];
                flow.lands(psn, packet.payload, qp.rq_psn, measured);
            }
            Ok(())
        });
        self.net.packets.remove(number);
        done
    }

    fn timer(&mut self, host: u32) -> Result<()> {
        self.with(host as usize, |world, host| {
            if host.side.timer_at == world.net.now {
                host.side.timer_at = 0;
                host.device.handle_timeout(Instant(world.net.now / 1000));
            }
            Ok(())
        })
    }

    /// Both lanes of each flow.
    fn make_lanes(&mut self) -> Result<()> {
        for (i, flow) in self.scenario.flows.iter().enumerate() {
            let port = self.ports.u16(0xc000..);
            let ports = (0..self.scenario.host.zero_touch.ways()).map(|way| multipath_port(port, way));
            let ports: Vec<u16> = ports.collect();
            let mut all = [Vec::new(), Vec::new()];
            for port in &ports {
                let there = self.routes.find(flow.from, flow.to, *port);
                all[0].push(there.with_context(|| format!("flow {i}"))?);
                all[1].push(self.routes.find(flow.to, flow.from, *port)?);
            }
            if let Some(bytes) = flow.bytes {
                let alone = ideal(self.scenario, &self.routes, &all[0][0], &all[1][0], bytes);
                self.flows[i].outcome.ideal = alone;
            }
            for routes in all {
                let switches = (routes[0].len() - 1).min(usize::from(TTL) - 1) as u8;
                let mut ways = Vec::with_capacity(ports.len());
                for (port, route) in ports.iter().zip(routes) {
                    ways.push((*port, self.net.routes.len() as u32));
                    self.net.routes.extend(&route[1..]);
                }
                self.lanes.push(Lane {
                    ways,
                    switches,
                    paths: [None, None],
                });
            }
        }
        Ok(())
    }

    /// A host that does something for the first time.
    fn wake_up(&mut self, at: usize) -> Result<()> {
        if self.hosts[at].is_none() {
            let way = self.routes.of_node[at][0];
            let rate = self.routes.ways[way].rate;
            let now = Instant(self.net.now / 1000);
            self.hosts[at] = Some(Box::new(Host::new(self.scenario, at, way as u32, rate, now)?));
        }
        Ok(())
    }

    /// A flow begins.
    fn start(&mut self, number: usize) -> Result<()> {
        if self.flows[number].over {
            return Ok(());
        }
        let flow = &self.scenario.flows[number];
        let (from, to) = (flow.from, flow.to);
        self.wake_up(from)?;
        self.wake_up(to)?;
        let now = Instant(self.net.now / 1000);
        let control_first = self.scenario.host.control_first;
        let mtu = mtu(self.scenario.mtu)?;
        let port = self.lanes[2 * number].ways[0].0;
        let host =
            |world: &mut World<'a>, at: usize| world.hosts[at].take().context("a host is called twice");
        let mut sender = host(self, from)?;
        let mut receiver = host(self, to)?;
        let ends = (
            End {
                host: from,
                qp: sender.open()?,
            },
            End {
                host: to,
                qp: receiver.open()?,
            },
        );
        let lane = 2 * number as u32;
        // Acknowledges are all that the receiver sends.
        let back = if control_first { CONTROL } else { flow.priority };
        sender.connect(ends.0.qp, ends.1, (port, flow.priority, mtu), lane, now)?;
        receiver.connect(ends.1.qp, ends.0, (port, back, mtu), lane + 1, now)?;
        let (_, key) = receiver.keys();
        self.flows[number].ends = Some(ends);
        self.flows[number].key = key;
        self.post(&mut sender, number)?;
        let stirred = self.stirred(from, &mut sender);
        self.hosts[from] = Some(sender);
        self.hosts[to] = Some(receiver);
        stirred
    }

    /// Keeps WRITEs of a flow posted.
    fn post(&mut self, sender: &mut Host, number: usize) -> Result<()> {
        let flow = &mut self.flows[number];
        let Some((own, _)) = flow.ends else { return Ok(()) };
        while flow.open < 2 {
            let len = match &mut flow.rest {
                None => ENDLESS,
                // (A flow of no bytes is one packet.)
                Some(0) if flow.posted => break,
                Some(rest) => {
                    let len = (*rest).min(LARGEST);
                    *rest -= len;
                    len as u32
                }
            };
            flow.posted = true;
            flow.open += 1;
            sender.write(own.qp, number as u64, len, flow.key)?;
        }
        Ok(())
    }

    /// A WRITE of a flow is complete.
    fn completed(&mut self, host: &mut Host, number: usize) -> Result<()> {
        let now = self.net.now / 1000;
        let flow = &mut self.flows[number];
        if flow.over {
            return Ok(());
        }
        flow.open -= 1;
        if flow.rest == Some(0) && flow.open == 0 {
            flow.over = true;
            flow.outcome.end = Some(now);
            self.unfinished -= 1;
            if let Some((own, peer)) = flow.ends.take() {
                host.device.destroy_qp(own.qp)?;
                if let Some(receiver) = self.hosts[peer.host].as_deref_mut() {
                    receiver.device.destroy_qp(peer.qp)?;
                }
            }
            return Ok(());
        }
        self.post(host, number)
    }

    /// A flow stops, wherever it is.
    fn stop(&mut self, number: usize) -> Result<()> {
        let flow = &mut self.flows[number];
        if flow.over {
            return Ok(());
        }
        flow.over = true;
        self.unfinished -= 1;
        let Some((own, _)) = flow.ends else { return Ok(()) };
        self.with(own.host, |_, host| {
            host.device.fail_qp(own.qp);
            Ok(())
        })
    }

    fn sample(&mut self) {
        let now = self.net.now;
        let interval = self.scenario.record.interval;
        self.series.time.push(now / 1000);
        for (series, record) in self.series.queues.iter_mut().zip(&self.net.records) {
            series.push(record.bytes());
        }
        for (i, number) in self.scenario.record.flows.iter().enumerate() {
            let flow = &mut self.flows[*number];
            let bits = u128::from(std::mem::take(&mut flow.sampled)) * 8_000_000_000;
            self.series.delivered[i].push((bits / u128::from(interval)) as u64);
            let mut rate = 0;
            if let Some((own, _)) = flow.ends
                && !flow.over
                && let Some(host) = self.hosts[own.host].as_deref_mut()
            {
                let line = self.net.ports[host.side.port as usize].rate;
                let status = host.device.flows(Instant(now / 1000)).find(|f| f.qp == own.qp);
                rate = status.map_or(line, |s| s.limits.rate.min(line));
            }
            self.series.rates[i].push(rate);
        }
        let totals = &self.net.totals;
        let sums = [totals.pauses, totals.cnps, totals.marks, totals.drops];
        let last = std::mem::replace(&mut self.sampled, sums);
        self.series.pauses.push(sums[0] - last[0]);
        self.series.cnps.push(sums[1] - last[1]);
        self.series.marks.push(sums[2] - last[2]);
        self.series.drops.push(sums[3] - last[3]);
        self.net.at(now + interval * 1000, What::Sample);
    }

    /// What came of it.
    pub fn finish(mut self) -> Outcome {
        let now = self.net.now;
        let records = std::mem::take(&mut self.net.records);
        let queues = records.into_iter().map(|record| {
            let rate = self.net.ports[record.way].rate;
            record.finish(now, rate)
        });
        Outcome {
            queues: queues.collect(),
            flows: self.flows.iter().map(|f| f.outcome).collect(),
            series: self.series,
            totals: self.net.totals,
            end: now / 1000,
            hash: mix(self.hash),
        }
    }
}
