//! The same by a DPDK guest: each port of its sends as fast as it can, and takes all it is given.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use vnic_backend::Nic;
use vnic_backend::counters::{AdapterValues, PriorityCounter};

use super::super::Lab;
use super::super::product::Product;
use super::super::testpmd::{self, Testpmd, guest_mac};
use super::series::{Series, WINDOW};
use super::traffic::WIRE;

/// Starts it with a port for each of the first `ports` adapters; port i sends to the guest behind `to[i]`.
pub fn guest(lab: &Lab, dir: &Path, product: &Product, to: &[usize]) -> Result<Testpmd> {
    let sockets: Vec<PathBuf> = (0..to.len()).map(|i| product.socket(i)).collect();
    let mut args = vec![
        // Takes what comes, and sends packets of its own making (`txonly` does not receive).
        "--forward-mode=flowgen".to_owned(),
        "--port-topology=loop".to_owned(),
        "--txpkts=1514".to_owned(),
    ];
    for (port, to) in to.iter().enumerate() {
        args.push(format!("--eth-peer={port},{}", guest_mac(*to)));
    }
    let vdevs = sockets
        .iter()
        .enumerate()
        .map(|(i, s)| testpmd::guest(i, s, 1))
        .collect();
    let spec = testpmd::Spec {
        program: lab.testpmd.clone(),
        cpu: lab.cpus[1],
        vdevs,
        args,
    };
    let mut guest = Testpmd::start(dir, &spec)?;
    product.wait_up(to.len(), Duration::from_secs(20))?;
    guest.go("")?;
    Ok(guest)
}

/// What is counted: frames that an adapter received, of one priority or of all.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// `vf<adapter>`.
    pub adapter: usize,
    /// `None`: all.
    pub priority: Option<usize>,
}

impl Received {
    fn wire_bytes(self, adapters: &[AdapterValues]) -> Result<u64> {
        let name = format!("vf{}", self.adapter);
        let values = adapters.iter().find(|a| a.name == name).context(name)?;
        let of = |p: &[u64; PriorityCounter::COUNT]| {
            p[PriorityCounter::RxBytes as usize] + WIRE * p[PriorityCounter::RxFrames as usize]
        };
        let priorities = &values.link.priorities;
        Ok(match self.priority {
            Some(priority) => of(&priorities[priority]),
            None => priorities.iter().map(of).sum(),
        })
    }
}

/// Watches the NIC's counters for so long.
pub fn watch(lab: &Lab, nic: &Nic, streams: &[Received], time: Duration) -> Result<Series> {
    let mut series = Series::default();
    let end = Instant::now() + time;
    loop {
        let now = Instant::now();
        let adapters = nic.counter_values().adapters;
        let bytes = streams.iter().map(|s| s.wire_bytes(&adapters));
        series.push(now, bytes.collect::<Result<_>>()?);
        if now >= end {
            return Ok(series);
        }
        lab.sleep(WINDOW.saturating_sub(now.elapsed()))?;
    }
}
