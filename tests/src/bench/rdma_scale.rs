//! The daemon's memory for many adapters and many connected queue pairs, made through the verbs library.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use vnic_verbs::{
    CompletionQueue, ConnectOptions, Context, Device, DeviceAddress, ProtectionDomain, QueuePair, Rc,
};

use super::product::{Product, Setup};
use super::report::{Outcome, Summary};
use super::{Lab, Run};

/// Queue pairs in all, and adapters.
const QPS: usize = 131_072;
const ADAPTERS: usize = 64;

/// One adapter's driver.
struct Driver {
    _device: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

fn driver(socket: &Path) -> Result<Driver> {
    let device = Device::open(&DeviceAddress::Socket(socket.to_path_buf()))?;
    let pd = device.alloc_pd()?;
    let cq = device.create_cq(256)?;
    Ok(Driver {
        _device: device,
        pd,
        cq,
    })
}

/// `rdma-scale`.
pub fn run(lab: &Lab) -> Result<Run> {
    let Some(vnicd) = &lab.vnicd else {
        return Ok(Run::Skipped(
            "it looks at a daemon's memory: none is beside this program, name one with --vnicd PATH".into(),
        ));
    };
    let dir = lab.part()?;
    let start = |adapters| {
        Product::start(&Setup {
            dir: dir.path(),
            cpu: lab.cpus[0],
            adapters,
            queue_pairs: 1,
            control_queue: false,
            anti_spoofing: true,
            mtu: 9000,
            vnicd: Some(vnicd),
            first_guest: 0,
            uplinks: &[],
        })
    };
    let empty = private(start(1)?.pid())?;
    let product = start(ADAPTERS)?;
    let pid = product.pid();
    let silent = private(pid)?;
    let drivers = (0..ADAPTERS)
        .map(|i| driver(&product.rdma_socket(i)))
        .collect::<Result<Vec<_>>>()?;
    let attached = private(pid)?;
    let mut qps: Vec<QueuePair<Rc>> = Vec::with_capacity(QPS);
    let options = ConnectOptions::default();
    let begin = Instant::now();
    for pair in drivers.chunks(2) {
        let [a, b] = pair else { bail!("an odd adapter") };
        for _ in 0..QPS / ADAPTERS {
            lab.sleep(std::time::Duration::ZERO)?;
            let make = |d: &Driver| {
                d.pd.qp::<Rc>(&d.cq, &d.cq)
                    .max_send_wr(16)
                    .max_recv_wr(16)
                    .build()
            };
            let (one, other) = (make(a)?, make(b)?);
            one.connect(&other.endpoint(1)?, &options)?;
            other.connect(&one.endpoint(1)?, &options)?;
            qps.extend([one, other]);
        }
        eprintln!("rdma-scale: {} of {QPS} queue pairs", qps.len());
    }
    let made = begin.elapsed().as_secs_f64();
    let connected = private(pid)?;
    let scrape = Instant::now();
    product.counters()?;
    let scrape = scrape.elapsed().as_secs_f64() * 1e3;
    let note = "private memory of vnicd; what guests share is theirs";
    let figures = [
        (
            "rdma-scale-adapter",
            "KiB",
            grown(empty, silent, ADAPTERS - 1) / 1024.0,
            "an adapter nobody has attached to",
        ),
        (
            "rdma-scale-driver",
            "KiB",
            grown(silent, attached, ADAPTERS) / 1024.0,
            "what comes when a driver attaches",
        ),
        (
            "rdma-scale-qp",
            "bytes",
            grown(attached, connected, QPS),
            "an idle connected RC queue pair",
        ),
        (
            "rdma-scale-connect",
            "µs",
            made * 1e6 / QPS as f64,
            "create, INIT, RTR, RTS of one queue pair",
        ),
        (
            "rdma-scale-scrape",
            "ms",
            scrape,
            "all metrics, with all of these connected",
        ),
    ];
    let outcomes = figures.map(|(name, unit, value, what)| {
        Ok(Outcome {
            name: name.into(),
            unit,
            value: Summary::of(&[value]).context("no value")?,
            peer: None,
            ratio: None,
            bare_exchange: None,
            rounds: 1,
            details: Vec::new(),
            notes: vec![
                format!("{what}; {QPS} queue pairs, {ADAPTERS} adapters"),
                note.into(),
            ],
        })
    });
    Ok(Run::Measured(outcomes.into_iter().collect::<Result<_>>()?))
}

fn grown(before: u64, after: u64, things: usize) -> f64 {
    after.saturating_sub(before) as f64 / things as f64
}

/// Resident memory of a process that is its own, in bytes.
fn private(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .context("the kernel does not tell RssAnon")?;
    Ok(kib.parse::<u64>()? * 1024)
}
