//! RDMA between two daemons over pairs of virtual Ethernet devices, beside TCP over the same devices.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vnic_verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectOptions, Context, CqBuilder, Device, DeviceAddress,
    MemoryRegion, Mtu, ProtectionDomain, QueuePair, Rc, SendWr, WorkCompletion,
};

use super::product::{Product, Setup, Uplink};
use super::rdma::Figure;
use super::{Lab, Run};
use crate::lab::{Iperf, Namespace, output};

/// Bytes of a message, messages under way, and how many of them are signaled: one in so many.
const MESSAGE: usize = 64 << 10;
const WINDOW: usize = 32;
const SIGNALED: usize = 4;
/// What is under way arrives long before this, or never.
const PATIENCE: Duration = Duration::from_secs(10);
/// MTUs without `--mtu`, and the path MTU that RoCE has room for in each.
const MTUS: [u16; 2] = [1500, 9000];

/// Two hosts and what is between them.
struct Wires {
    hosts: [Namespace; 2],
    mtu: u16,
}

/// The end of the wire at each host.
const ENDS: [&str; 2] = ["left", "right"];

impl Wires {
    fn new(mtu: u16) -> Result<Result<Wires, String>> {
        let (a, b) = match (Namespace::new()?, Namespace::new()?) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(why), _) | (_, Err(why)) => return Ok(Err(why)),
        };
        a.veth(ENDS[0], &b, ENDS[1], mtu)?;
        a.ip(&format!("addr add 10.77.0.1/24 dev {}", ENDS[0]))?;
        b.ip(&format!("addr add 10.77.0.2/24 dev {}", ENDS[1]))?;
        Ok(Ok(Wires { hosts: [a, b], mtu }))
    }

    /// Bytes a second of one TCP stream.
    fn tcp(&self, time: Duration) -> Result<f64> {
        let [from, to] = &self.hosts;
        let mut server = to.command("iperf3");
        let server = server.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
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
            let text = output(client.args(["-c", "10.77.0.2", "-t", &seconds, "-J"]))?;
            Ok(Iperf::parse(&text)?.rate / 8.0)
        };
        let rate = answer();
        let _ = server.kill();
        server.wait()?;
        rate
    }
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
    qps: [QueuePair<Rc>; 2],
    _products: [Product; 2],
    _dir: tempfile::TempDir,
}

impl Pair {
    fn new(lab: &Lab, wires: &Wires) -> Result<Pair> {
        let dir = lab.part()?;
        let product = |i: usize| {
            let dir = dir.path().join(i.to_string());
            std::fs::create_dir(&dir)?;
            let uplinks = [Uplink {
                kind: lab.uplink,
                ifname: ENDS[i].into(),
            }];
            let setup = Setup {
                dir: &dir,
                cpu: lab.cpus[1 - i],
                adapters: 1,
                queue_pairs: 1,
                anti_spoofing: true,
                mtu: wires.mtu,
                vnicd: lab.vnicd.as_deref(),
                first_guest: i,
                uplinks: &uplinks,
            };
            wires.hosts[i].run(|| Product::start(&setup))
        };
        let products = [product(0)?, product(1)?];
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
        let make = |s: &Side| s.pd.qp::<Rc>(&s.cq, &s.cq).max_send_wr(WINDOW as u32).build();
        let qps = [make(&sides[0])?, make(&sides[1])?];
        let options = ConnectOptions {
            gid_index: 1,
            path_mtu: Some(path_mtu(wires.mtu)),
            ..ConnectOptions::default()
        };
        qps[0].connect(&qps[1].endpoint(1)?, &options)?;
        qps[1].connect(&qps[0].endpoint(1)?, &options)?;
        for word in 0..WINDOW * MESSAGE / 8 {
            sides[0]
                .region
                .store(word * 8, (word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        Ok(Pair {
            sides,
            qps,
            _products: products,
            _dir: dir,
        })
    }

    /// Bytes a second. The thread sleeps while nothing completes: the CPUs are the daemons'.
    fn bandwidth(&self, time: Duration) -> Result<f64> {
        let [near, far] = &self.sides;
        let (mut posted, mut completed) = (0usize, 0usize);
        let (mut since, mut counted) = (None, 0);
        let begin = Instant::now();
        loop {
            while posted - completed + SIGNALED <= WINDOW {
                for i in 0..SIGNALED {
                    let at = posted % WINDOW * MESSAGE;
                    let remote = far.region.addr() + at as u64;
                    let write = SendWr::write(near.region.slice(at..at + MESSAGE), remote, far.region.rkey());
                    let last = i + 1 == SIGNALED;
                    self.qps[0].post_send(&[if last { write.signaled() } else { write }])?;
                    posted += 1;
                }
            }
            completed += SIGNALED * self.completions()?;
            let now = Instant::now();
            match since {
                None if now - begin > super::WARM_UP => (since, counted) = (Some(now), completed),
                Some(t) if now - t > time => {
                    let rate = (completed - counted) as f64 * MESSAGE as f64 / (now - t).as_secs_f64();
                    while completed < posted {
                        completed += SIGNALED * self.completions()?;
                    }
                    self.verify()?;
                    return Ok(rate);
                }
                _ => {}
            }
        }
    }

    /// One or more.
    fn completions(&self) -> Result<usize> {
        let Side { cq, events, .. } = &self.sides[0];
        let mut done = [WorkCompletion::default(); WINDOW];
        loop {
            let n = cq.poll(&mut done)?;
            for c in &done[..n] {
                c.ok()?;
            }
            if n > 0 {
                return Ok(n);
            }
            cq.req_notify(false)?;
            ensure!(
                events.wait_event(Some(PATIENCE))?.is_some(),
                "the traffic has stopped"
            );
        }
    }

    /// What was written is there.
    fn verify(&self) -> Result<()> {
        let [near, far] = &self.sides;
        let wrong = (0..WINDOW * MESSAGE / 8).find(|i| near.region.load(i * 8) != far.region.load(i * 8));
        ensure!(wrong.is_none(), "word {wrong:?} is not what was written");
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
    let mtus = lab.mtu.map_or(MTUS.to_vec(), |mtu| vec![mtu]);
    let mut all = Vec::new();
    for mtu in mtus {
        let wires = match Wires::new(mtu)? {
            Ok(wires) => wires,
            Err(why) => return Ok(Run::Skipped(why)),
        };
        let note = format!(
            "64 KiB, one RC queue pair, {WINDOW} under way, path MTU {}, ports of kind {}, MTU {mtu}, {}",
            path_mtu(mtu).bytes(),
            lab.uplink,
            if lab.vnicd.is_some() {
                "two daemons"
            } else {
                "two NICs in this process"
            }
        );
        let name = format!("wire-write-bw-{mtu}");
        let mut figure = Figure::new(&name, "GB/s", 1e-9, "iperf3, one TCP stream", note);
        for round in 0..lab.rounds {
            figure.round(
                lab,
                round,
                // Who does not measure is not there: an idle packet socket would get the other's frames.
                || Pair::new(lab, &wires)?.bandwidth(lab.window),
                || wires.tcp(lab.window),
            )?;
        }
        all.push(figure.outcome()?);
    }
    Ok(Run::Measured(all))
}
