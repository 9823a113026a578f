//! RDMA between two daemons over pairs of virtual Ethernet devices, beside TCP over the same devices.

pub mod loss;

use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use vnic_verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectOptions, Context, CqBuilder, Device, DeviceAddress,
    MemoryRegion, Mtu, ProtectionDomain, QueuePair, Rc, SendWr, WorkCompletion,
};

use super::product::{Product, Setup, Uplink};
use super::rdma::Figure;
use super::{Lab, Run};
use crate::lab::{Iperf, Namespace, mesh_certificates, mesh_port, output};

/// Bytes of a message, messages under way, and how many of them are signaled: one in so many.
const MESSAGE: usize = 64 << 10;
const WINDOW: usize = 32;
const SIGNALED: usize = 4;
/// Queue pairs over several wires: one by itself uses one wire.
const SPREAD: usize = 8;
/// What is under way arrives long before this, or never.
const PATIENCE: Duration = Duration::from_secs(10);
/// MTUs without `--mtu`, and the path MTU that RoCE has room for in each.
const MTUS: [u16; 2] = [1500, 9000];

/// Two hosts and what is between them.
pub(super) struct Wires {
    hosts: [Namespace; 2],
    mtu: u16,
    /// How many there are.
    ports: u8,
}

/// Places in the tables of GIDs: the adapters' own of RoCEv2, made of their Ethernet addresses, and those that `--ipv4` makes.
const GID_V6: u16 = 1;
const GID_V4: u16 = 2;

/// Kind of ports over the kernels' own UDP.
const MESH: &str = "mesh";

/// The end of the wire at each host.
const ENDS: [&str; 2] = ["left", "right"];

impl Wires {
    /// Makes them, or says why they cannot be made here.
    pub(super) fn new(mtu: u16, ports: u8) -> Result<Result<Wires, String>> {
        let (a, b) = match (Namespace::new()?, Namespace::new()?) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        for wire in 0..ports {
            let ends = [device(0, wire), device(1, wire)];
            a.veth(&ends[0], &b, &ends[1], mtu)?;
            a.ip(&format!("addr add 10.77.{wire}.1/24 dev {}", ends[0]))?;
            b.ip(&format!("addr add 10.77.{wire}.2/24 dev {}", ends[1]))?;
        }
        Ok(Ok(Wires {
            hosts: [a, b],
            mtu,
            ports,
        }))
    }

    /// A daemon at each host, with one adapter and ports over the wires, which are up.
    pub(super) fn products(&self, lab: &Lab, keys: &Path) -> Result<[Product; 2]> {
        mesh_certificates(keys)?;
        let product = |i: usize| {
            let dir = keys.join(i.to_string());
            std::fs::create_dir(&dir)?;
            let uplink = |wire| match lab.uplink {
                MESH => Uplink {
                    kind: MESH,
                    ifname: String::new(),
                    mesh: mesh_port(i, keys, &[1, 2].map(|host| format!("10.77.{wire}.{host}:4790"))),
                },
                kind => Uplink {
                    kind,
                    ifname: device(i, wire),
                    mesh: String::new(),
                },
            };
            let uplinks: Vec<Uplink> = (0..self.ports).map(uplink).collect();
            let setup = Setup {
                dir: &dir,
                cpu: lab.cpus[1 - i],
                adapters: 1,
                queue_pairs: 1,
                control_queue: false,
                anti_spoofing: true,
                mtu: self.mtu,
                vnicd: lab.vnicd.as_deref(),
                first_guest: i,
                uplinks: &uplinks,
            };
            self.hosts[i].run(|| Product::start(&setup))
        };
        let products = [product(0)?, product(1)?];
        // Metrics are on the hosts' own loopback.
        for (host, product) in self.hosts.iter().zip(&products) {
            host.run(|| product.wait_ports(PATIENCE))?;
        }
        Ok(products)
    }

    /// Bytes a second of TCP, a stream by each wire.
    fn tcp(&self, time: Duration) -> Result<f64> {
        let streams = std::thread::scope(|s| {
            let all: Vec<_> = (0..self.ports)
                .map(|w| s.spawn(move || self.stream(w, time)))
                .collect();
            all.into_iter().map(|t| t.join()).collect::<Vec<_>>()
        });
        let mut sum = 0.0;
        for rate in streams {
            sum += rate.map_err(|_| anyhow!("a stream's thread panicked"))??;
        }
        Ok(sum)
    }

    /// Bytes a second of one TCP stream.
    fn stream(&self, wire: u8, time: Duration) -> Result<f64> {
        let [from, to] = &self.hosts;
        let address = format!("10.77.{wire}.2");
        let mut server = to.command("iperf3");
        let server = server
            .args(["-s", "-1", "--forceflush", "-B", &address])
            .stdout(Stdio::piped());
        let mut server = server.spawn().context("starting iperf3")?;
        let mut answer = || {
            let mut lines = BufReader::new(server.stdout.take().context("its output")?).lines();
            while !lines
                .next()
                .context("iperf3 says nothing")??
                .contains("listening")
            {}
            // Whole seconds are all that it takes.
            let seconds = time.as_secs_f64().ceil().to_string();
            let mut client = from.command("iperf3");
            let text = output(client.args(["-c", &address, "-t", &seconds, "-J"]))?;
            Ok(Iperf::parse(&text)?.rate / 8.0)
        };
        let rate = answer();
        let _ = server.kill();
        server.wait()?;
        rate
    }
}

/// A wire's device at a host.
fn device(host: usize, wire: u8) -> String {
    format!("{}{wire}", ENDS[host])
}

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Write,
    Read,
}

/// One adapter as this process uses it.
struct Side {
    _device: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    events: CompletionChannel,
    region: MemoryRegion,
}

/// A daemon at each host, and a queue pair between them.
struct Pair {
    sides: [Side; 2],
    qps: Vec<[QueuePair<Rc>; 2]>,
    products: [Product; 2],
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(lab: &Lab, wires: &Wires) -> Result<Pair> {
        let dir = lab.part()?;
        let products = wires.products(lab, dir.path())?;
        if lab.ipv4 {
            for (host, product) in (1..).zip(&products) {
                product.set_gid(GID_V4, Ipv4Addr::new(10, 78, 0, host))?;
            }
        }
        let gid_index = if lab.ipv4 { GID_V4 } else { GID_V6 };
        let side = |i: usize| -> Result<Side> {
            let product: &Product = &products[i];
            let device = Device::open(&DeviceAddress::Socket(product.rdma_socket(0)))?;
            let pd = device.alloc_pd()?;
            let events = device.create_completion_channel()?;
            let cq = device.create_cq_with(CqBuilder::new(2 * WINDOW as u32).channel(&events))?;
            let region = pd.allocate(WINDOW * MESSAGE, Access::REMOTE_ALL | Access::LOCAL_WRITE)?;
            Ok(Side {
                _device: device,
                pd,
                cq,
                events,
                region,
            })
        };
        let sides = [side(0)?, side(1)?];
        let count = if wires.ports > 1 { SPREAD } else { 1 };
        let each = (WINDOW / count) as u32;
        let options = ConnectOptions {
            gid_index,
            path_mtu: Some(path_mtu(wires.mtu)),
            ..ConnectOptions::default()
        };
        let qps = (0..count).map(|_| {
            let make = |s: &Side| s.pd.qp::<Rc>(&s.cq, &s.cq).max_send_wr(each).build();
            let ends = [make(&sides[0])?, make(&sides[1])?];
            ends[0].connect(&ends[1].endpoint(gid_index)?, &options)?;
            ends[1].connect(&ends[0].endpoint(gid_index)?, &options)?;
            Ok(ends)
        });
        let qps = qps.collect::<Result<Vec<_>>>()?;
        Ok(Pair {
            sides,
            qps,
            products,
            _dir: dir,
        })
    }

    /// Bytes a second that are written, or read. The thread sleeps while nothing completes: the CPUs are the daemons'.
    fn bandwidth(&self, verb: Verb, time: Duration) -> Result<f64> {
        let each = WINDOW / self.qps.len();
        let (from, to) = match verb {
            Verb::Write => (&self.sides[0], &self.sides[1]),
            Verb::Read => (&self.sides[1], &self.sides[0]),
        };
        for word in 0..WINDOW * MESSAGE / 8 {
            let pattern = (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            from.region.store(word * 8, pattern);
            to.region.store(word * 8, !pattern);
        }
        for qp in 0..self.qps.len() {
            for first in (0..each).step_by(SIGNALED) {
                self.post(verb, qp, first)?;
            }
        }
        let (mut under_way, mut completed) = (WINDOW / SIGNALED, 0);
        let (mut since, mut counted, mut ended) = (None, 0, None);
        let begin = Instant::now();
        while under_way > 0 {
            for (qp, first) in self.completions()? {
                completed += SIGNALED;
                under_way -= 1;
                if ended.is_none() {
                    self.post(verb, qp, first)?;
                    under_way += 1;
                }
            }
            let now = Instant::now();
            match since {
                None if now - begin > super::WARM_UP => (since, counted) = (Some(now), completed),
                Some(t) if ended.is_none() && now - t > time => {
                    ended = Some((completed - counted) as f64 * MESSAGE as f64 / (now - t).as_secs_f64());
                }
                _ => {}
            }
        }
        self.verify()?;
        ended.context("nothing was measured")
    }

    /// Some messages of a queue pair, of which the last is signaled.
    fn post(&self, verb: Verb, qp: usize, first: usize) -> Result<()> {
        let [near, far] = &self.sides;
        let each = WINDOW / self.qps.len();
        for i in first..first + SIGNALED {
            let at = (qp * each + i) * MESSAGE;
            let remote = far.region.addr() + at as u64;
            let (here, rkey) = (near.region.slice(at..at + MESSAGE), far.region.rkey());
            let wr = match verb {
                Verb::Write => SendWr::write(here, remote, rkey),
                Verb::Read => SendWr::read(here, remote, rkey),
            };
            let wr = wr.id((qp * each + first) as u64);
            let last = i + 1 == first + SIGNALED;
            self.qps[qp][0].post_send(&[if last { wr.signaled() } else { wr }])?;
        }
        Ok(())
    }

    /// One or more: queue pair, and the first of the messages that are done.
    fn completions(&self) -> Result<Vec<(usize, usize)>> {
        let Side { cq, events, .. } = &self.sides[0];
        let each = WINDOW / self.qps.len();
        let mut done = [WorkCompletion::default(); WINDOW];
        loop {
            let n = cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            if n > 0 {
                let places = done[..n].iter().map(|c| c.id() as usize);
                return Ok(places.map(|place| (place / each, place % each)).collect());
            }
            cq.req_notify(false)?;
            ensure!(
                events.wait_event(Some(PATIENCE))?.is_some(),
                "the traffic has stopped"
            );
        }
    }

    /// What was written is there, or what was read is here.
    fn verify(&self) -> Result<()> {
        let [near, far] = &self.sides;
        let wrong = (0..WINDOW * MESSAGE / 8).find(|i| near.region.load(i * 8) != far.region.load(i * 8));
        ensure!(wrong.is_none(), "word {wrong:?} is not what was written or read");
        Ok(())
    }
}

/// The largest that fits.
fn path_mtu(mtu: u16) -> Mtu {
    match mtu {
        0..1100 => Mtu::Mtu512,
        1100..2200 => Mtu::Mtu1024,
        2200..4200 => Mtu::Mtu2048,
        4200.. => Mtu::Mtu4096,
    }
}

/// `wire-write-bw`.
pub fn write_bw(lab: &Lab) -> Result<Run> {
    if output(std::process::Command::new("iperf3").arg("--version")).is_err() {
        return Ok(Run::Skipped("there is no iperf3 (package iperf3)".into()));
    }
    if lab.uplink == MESH && (lab.vnicd.is_none() || lab.ports > 1) {
        return Ok(Run::Skipped("a mesh is one port of a daemon (--vnicd)".into()));
    }
    let mtus = lab.mtu.map_or(MTUS.to_vec(), |mtu| vec![mtu]);
    let mut all = Vec::new();
    for mtu in mtus {
        let wires = match Wires::new(mtu, lab.ports)? {
            Ok(wires) => wires,
            Err(why) => return Ok(Run::Skipped(why)),
        };
        let note = format!(
            "64 KiB, {}, {WINDOW} under way, path MTU {}, {}, ports of kind {}, MTU {mtu}, {}",
            if lab.ports > 1 {
                format!("{SPREAD} RC queue pairs over a team of {} ports", lab.ports)
            } else {
                "one RC queue pair".into()
            },
            path_mtu(mtu).bytes(),
            if lab.ipv4 { "IPv4" } else { "IPv6" },
            lab.uplink,
            if lab.vnicd.is_some() {
                "two daemons"
            } else {
                "two NICs in this process"
            }
        );
        let several = if lab.ports > 1 { "-2ports" } else { "" };
        let version = if lab.ipv4 { "-ipv4" } else { "" };
        let name = format!("wire-write-bw-{mtu}{several}{version}");
        let peer = if lab.ports > 1 {
            "iperf3, a TCP stream each"
        } else {
            "iperf3, one TCP stream"
        };
        let mut figure = Figure::new(&name, "GB/s", 1e-9, peer, note);
        for round in 0..lab.rounds {
            figure.round(
                lab,
                round,
                // Who does not measure is not there: an idle packet socket would get the other's frames.
                || Pair::new(lab, &wires)?.bandwidth(Verb::Write, lab.window),
                || wires.tcp(lab.window),
            )?;
        }
        all.push(figure.outcome()?);
    }
    Ok(Run::Measured(all))
}
