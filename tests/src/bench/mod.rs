//! `vnic-bench`: the product against its peer or physical limit, alternating, in one run.

mod cli;
mod cm;
mod costs;
mod ethernet;
pub mod exchange;
mod fairness;
mod goals;
mod hostile;
pub mod hugepages;
mod idle;
mod latency;
pub mod machine;
pub mod product;
mod qos;
mod rdma;
mod rdma_scale;
pub mod report;
mod restart;
mod rings;
mod rsc;
mod scale;
mod scrape;
mod sim;
mod soak;
mod strides;
pub mod testpmd;
mod torture;
mod uml_ping;
mod vm;
mod wire;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use cli::main;
use product::{Product, Setup};
use report::Outcome;

/// One bench.
pub struct Bench {
    /// Its name on the command line; its figures are named after it.
    pub name: &'static str,
    /// One line for the list.
    pub summary: &'static str,
    run: fn(&Lab) -> Result<Run>,
}

/// All benches.
pub static BENCHES: &[Bench] = &[
    // First: what it measures is how much memory the process grows by.
    Bench {
        name: "scale",
        summary: "memory of 131,072 connected QPs on 64 adapters, idle and after use",
        run: scale::run,
    },
    Bench {
        name: "eth-drain",
        summary: "64 B frames from one guest, taken, classified and dropped; peer: testpmd vhost rxonly",
        run: ethernet::drain,
    },
    Bench {
        name: "eth-loop",
        summary: "64 B frames between two guests, both directions added; peer: testpmd vhost io",
        run: ethernet::turn,
    },
    Bench {
        name: "eth-drain-packed",
        summary: "eth-drain with packed rings, without and with IN_ORDER; the peer has them, too",
        run: ethernet::drain_packed,
    },
    Bench {
        name: "eth-loop-packed",
        summary: "eth-loop with packed rings, without and with IN_ORDER; the peer has them, too",
        run: ethernet::turn_packed,
    },
    Bench {
        name: "eth-qos",
        summary: "eth-loop with trust DSCP, ETS and two rate limits at each adapter; peer: testpmd vhost io",
        run: ethernet::qos,
    },
    Bench {
        name: "qos",
        summary: "known mixes through limited ports: ETS, strict, limits, guarantees, incast; what each stream gets",
        run: qos::run,
    },
    Bench {
        name: "eth-latency",
        summary: "a 64 B frame from guest to guest, one way: with the NIC awake, and asleep",
        run: latency::run,
    },
    Bench {
        name: "eth-rsc",
        summary: "TCP from a wire (AF_PACKET) to a guest, segments coalesced; peer: the same, not coalesced",
        run: rsc::run,
    },
    Bench {
        name: "eth-strides",
        summary: "64 B frames to a guest with few large receive buffers; peer: the same memory as many strides",
        run: strides::run,
    },
    Bench {
        name: "idle",
        summary: "CPU use of a daemon that has nothing to do: 2 and 64 adapters, with RDMA drivers and a team",
        run: idle::run,
    },
    Bench {
        name: "rdma-write-bw",
        summary: "64 KiB RDMA WRITE between two adapters, one queue pair; peer: memcpy",
        run: rdma::write_bw,
    },
    Bench {
        name: "rdma-read-bw",
        summary: "64 KiB RDMA READ between two adapters, one queue pair; peer: memcpy",
        run: rdma::read_bw,
    },
    Bench {
        name: "rdma-send-bw",
        summary: "64 KiB SEND between two adapters, one queue pair; peer: memcpy",
        run: rdma::send_bw,
    },
    Bench {
        name: "rdma-msg-rate",
        summary: "8 B RDMA WRITE in batches of 32, 1 and 1024 queue pairs; peer: the rings without RDMA",
        run: rdma::rate,
    },
    Bench {
        name: "rdma-write-lat",
        summary: "8 B RDMA WRITE from guest to guest, one way; peer: the rings without RDMA",
        run: rdma::write_lat,
    },
    Bench {
        name: "wire-write-bw",
        summary: "64 KiB RDMA WRITE between two daemons over a veth pair; peer: iperf3 TCP over the same pair",
        run: wire::write_bw,
    },
    Bench {
        name: "wire-loss",
        summary: "WRITE and READ while packets are lost: go-back-N, selective repeat, 4 and 16 ways; peer: nothing lost",
        run: wire::loss::run,
    },
    Bench {
        name: "rdma-scale",
        summary: "memory of the daemon: 131,072 connected RC queue pairs on 64 adapters",
        run: rdma_scale::run,
    },
    Bench {
        name: "cm",
        summary: "connections by RDMA CM: how many a second, how long one takes, 10,000 at once; two adapters, two daemons",
        run: cm::run,
    },
    Bench {
        name: "sim",
        summary: "data packets a second of the network simulator: 8:1 star, and a fat tree of 320 hosts",
        run: sim::run,
    },
    Bench {
        name: "scrape",
        summary: "a scrape of 64 adapters, and what eth-loop loses by one a second",
        run: scrape::run,
    },
    Bench {
        name: "restart",
        summary: "kill -9 of the daemon under traffic until frames arrive again",
        run: restart::run,
    },
    Bench {
        name: "fairness",
        summary: "latency and share of an adapter beside others at full blast; peer: the same adapter alone",
        run: fairness::run,
    },
    Bench {
        name: "hostile",
        summary: "rate and latency of an honest pair beside attacks; peer: beside an honest neighbour at full blast",
        run: hostile::run,
    },
    Bench {
        name: "uml-ping",
        summary: "ping between two User-Mode-Linux guests: NIC awake, and asleep; peer: testpmd vhost io",
        run: uml_ping::run,
    },
    Bench {
        name: "vm",
        summary: "perftest in a QEMU VM: 64 KiB RDMA WRITE, and 8 B one way; peer: Soft-RoCE in the same VM",
        run: vm::run,
    },
    Bench {
        name: "soak",
        summary: "growth of the daemon's memory while everything comes and goes (--minutes)",
        run: soak::run,
    },
    Bench {
        name: "costs",
        summary: "instructions of a packet and of a work request, beside those that are recorded",
        run: costs::run,
    },
];

/// Benches of the daemon itself: without --vnicd they measure the one beside this program.
const OF_DAEMON: &[&str] = &[
    "idle",
    "wire-write-bw",
    "wire-loss",
    "rdma-scale",
    "cm",
    "scrape",
    "restart",
    "vm",
    "soak",
];

/// How a bench ended, if it did not fail.
pub enum Run {
    /// Figures.
    Measured(Vec<Outcome>),
    /// It cannot be measured here, and why.
    Skipped(String),
}

/// What every bench gets: the wishes of the command line, and a place for files.
pub struct Lab {
    /// Length of one measurement.
    pub window: Duration,
    /// Measurements of each side.
    pub rounds: usize,
    /// The receiving side's CPU and the sending side's.
    pub cpus: [usize; 2],
    /// The daemon to measure instead of a NIC in this process.
    pub vnicd: Option<PathBuf>,
    /// The peer's program.
    pub testpmd: PathBuf,
    /// Guests of `eth-loop` address each other instead of unknown stations.
    pub unicast: bool,
    /// Give the polling threads real-time priority while measuring.
    pub realtime: bool,
    /// Only rows of `qos` or `wire-loss` with this in their name, or this attack of `hostile`.
    pub only: Option<String>,
    /// Kind of the ports of `wire-write-bw` and `wire-loss`.
    pub uplink: &'static str,
    /// The one MTU that they measure with.
    pub mtu: Option<u16>,
    /// How many ports each of its hosts has: several are a team.
    pub ports: u8,
    /// How long `soak` runs, and `hostile` at most.
    pub minutes: Option<u16>,
    /// How often a second it does a bit of everything.
    pub pace: u16,
    /// Where benches leave files that are to be kept.
    pub out: Option<PathBuf>,
    /// `wire-write-bw`: its packets travel over IPv4.
    pub ipv4: bool,
    /// How many connections `cm` makes at once.
    pub connections: usize,
    /// The file of recorded costs.
    pub costs: PathBuf,
    /// Write it.
    pub record: bool,
    /// Set by a signal.
    pub interrupted: Arc<AtomicBool>,
    dir: tempfile::TempDir,
}

/// Time before a measurement, for caches and backlogs.
const WARM_UP: Duration = Duration::from_millis(100);
/// Length of a measurement of the bare exchange.
const EXCHANGE_TIME: Duration = Duration::from_millis(30);

impl Lab {
    /// An empty directory of its own for each part of a bench.
    fn part(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::Builder::new().prefix("r").tempdir_in(self.dir.path())?)
    }

    /// Starts the product with `adapters` adapters on the receiving side's CPU.
    fn product(&self, dir: &Path, adapters: usize, anti_spoofing: bool) -> Result<Product> {
        Product::start(&Setup {
            anti_spoofing,
            ..self.setup(dir, adapters)
        })
    }

    /// A usual product.
    fn setup<'a>(&'a self, dir: &'a Path, adapters: usize) -> Setup<'a> {
        Setup {
            dir,
            cpu: self.cpus[0],
            adapters,
            queue_pairs: 1,
            control_queue: false,
            anti_spoofing: true,
            mtu: 1500,
            vnicd: self.vnicd.as_deref(),
            first_guest: 0,
            uplinks: &[],
        }
    }

    /// Has a signal asked us to end?
    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Sleeps, unless a signal comes.
    fn sleep(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            if self.interrupted() {
                bail!("interrupted");
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    /// The bare ring exchange between the two CPUs, now.
    fn exchange(&self) -> Result<f64> {
        exchange::measure(self.cpus, EXCHANGE_TIME)
    }
}
