//! What a daemon costs that has nothing to do: all that can be attached to it is attached, connected and silent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use vnic_verbs::{ConnectOptions, Context, Device, DeviceAddress, QueuePair, Rc};

use super::machine::CpuTime;
use super::product::{Product, Setup, Uplink};
use super::report::{Outcome, Summary};
use super::{Lab, Run};
use crate::driver::{Guest, Options};
use crate::lab::Namespace;

/// What is there.
struct Idle {
    name: &'static str,
    adapters: usize,
    /// Each adapter has an RDMA driver, too, with connected queue pairs.
    rdma: bool,
    /// A team of so many ports over virtual wires.
    ports: usize,
}

const ALL: [Idle; 3] = [
    Idle {
        name: "idle-2",
        adapters: 2,
        rdma: false,
        ports: 0,
    },
    Idle {
        name: "idle-64",
        adapters: 64,
        rdma: false,
        ports: 0,
    },
    Idle {
        name: "idle-64-rdma-team",
        adapters: 64,
        rdma: true,
        ports: 2,
    },
];

/// Connected queue pairs of an RDMA driver.
const QUEUE_PAIRS: usize = 16;
/// Loops have long gone to sleep by then, and the kernel's own frames at new devices have passed.
const SETTLE: Duration = Duration::from_secs(3);
/// The least time over which sleeping is judged: sleepers wake up once a second.
const WATCH_MIN: Duration = Duration::from_secs(4);
/// Rounds are long, and differ little.
const ROUNDS_MAX: usize = 3;
const MTU: u16 = 1500;

/// `idle`.
pub fn run(lab: &Lab) -> Result<Run> {
    if lab.vnicd.is_none() {
        return Ok(Run::Skipped(
            "it looks at all threads of a daemon: none is beside this program, name one with --vnicd PATH"
                .into(),
        ));
    }
    let mut figures = Vec::with_capacity(ALL.len());
    for idle in &ALL {
        let host = match host(idle)? {
            Ok(host) => host,
            Err(why) => return Ok(Run::Skipped(why)),
        };
        figures.push(host.run(|| measure(lab, idle))?);
    }
    Ok(Run::Measured(figures))
}

/// A network namespace with the wires that are wanted, each in one piece.
fn host(idle: &Idle) -> Result<Result<Namespace, String>> {
    let host = match Namespace::new()? {
        Ok(host) => host,
        Err(why) => return Ok(Err(why)),
    };
    for wire in 0..idle.ports {
        host.veth(&device(wire), &host, &format!("far{wire}"), MTU)?;
    }
    Ok(Ok(host))
}

fn device(wire: usize) -> String {
    format!("near{wire}")
}

fn measure(lab: &Lab, idle: &Idle) -> Result<Outcome> {
    let dir = lab.part()?;
    let uplink = |wire| Uplink {
        kind: "packet",
        ifname: device(wire),
        mesh: String::new(),
    };
    let uplinks: Vec<Uplink> = (0..idle.ports).map(uplink).collect();
    let product = Product::start(&Setup {
        mtu: MTU,
        uplinks: &uplinks,
        ..lab.setup(dir.path(), idle.adapters)
    })?;
    let attach = |i| Guest::attach(product.socket(i), Options::default());
    let _guests = (0..idle.adapters).map(attach).collect::<Result<Vec<_>>>()?;
    product.wait_up(idle.adapters, Duration::from_secs(20))?;
    let _rdma = match idle.rdma {
        true => connected(&product, idle.adapters)?,
        false => Vec::new(),
    };
    lab.sleep(SETTLE)?;
    let rounds = lab.rounds.min(ROUNDS_MAX);
    let (mut shares, mut threads) = (Vec::with_capacity(rounds), BTreeMap::<String, f64>::new());
    for round in 0..rounds {
        let (start, before) = (Instant::now(), CpuTime::by_thread(product.pid()));
        lab.sleep(lab.window.max(WATCH_MIN))?;
        let (after, elapsed) = (CpuTime::by_thread(product.pid()), start.elapsed().as_secs_f64());
        let mut all = 0.0;
        for (name, time) in after {
            let ran = time.since(before.get(&name).copied().unwrap_or_default()).ran;
            let share = Duration::from_nanos(ran).as_secs_f64() / elapsed * 100.0;
            all += share;
            *threads.entry(name).or_default() += share / rounds as f64;
        }
        eprintln!("{} round {}/{rounds}: {all:.4} % of a core", idle.name, round + 1);
        shares.push(all);
    }
    let mut busiest: Vec<(String, f64)> = threads.into_iter().filter(|(_, share)| *share > 0.0).collect();
    busiest.sort_by(|a, b| b.1.total_cmp(&a.1));
    let busiest: Vec<String> = busiest
        .iter()
        .map(|(name, share)| format!("{name} {share:.4} %"))
        .collect();
    let rdma = match idle.rdma {
        true => format!(", each with an RDMA driver and {QUEUE_PAIRS} connected queue pairs"),
        false => String::new(),
    };
    let ports = match idle.ports {
        0 => String::new(),
        ports => format!("; a team of {ports} ports"),
    };
    Ok(Outcome {
        name: idle.name.into(),
        unit: "% of a core",
        value: Summary::of(&shares).context("no rounds")?,
        peer: None,
        ratio: None,
        bare_exchange: None,
        rounds,
        details: Vec::new(),
        notes: vec![
            format!(
                "{} adapters, all with a running and silent driver{rdma}{ports}",
                idle.adapters
            ),
            format!("threads that ran: {}", busiest.join(", ")),
        ],
    })
}

/// An RDMA driver.
type Driver = (Context, Vec<QueuePair<Rc>>);

/// Drivers at all adapters, connected in pairs.
fn connected(product: &Product, adapters: usize) -> Result<Vec<Driver>> {
    let driver = |i| -> Result<Driver> {
        let device = Device::open(&DeviceAddress::Socket(product.rdma_socket(i)))?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(64)?);
        let make = |_| pd.qp::<Rc>(&cq, &cq).max_send_wr(16).max_recv_wr(16).build();
        let qps = (0..QUEUE_PAIRS).map(make).collect::<Result<Vec<_>, _>>()?;
        Ok((device, qps))
    };
    let drivers = (0..adapters).map(driver).collect::<Result<Vec<_>>>()?;
    let options = ConnectOptions {
        gid_index: 1,
        ..ConnectOptions::default()
    };
    for pair in drivers.chunks_exact(2) {
        for (one, other) in pair[0].1.iter().zip(&pair[1].1) {
            one.connect(&other.endpoint(1)?, &options)?;
            other.connect(&one.endpoint(1)?, &options)?;
        }
    }
    Ok(drivers)
}
