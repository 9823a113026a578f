//! The same by a DPDK guest: each port of its sends as fast as it can, and takes all it is given.
//!
//! testpmd's `flowgen` does both (`txonly` does not receive); the addresses in its frames are fixed. So the adapter that
//! receives has the address that they are for, and each sender has a VLAN of its own, in which the switch knows it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use vnic_backend::counters::{AdapterValues, PriorityCounter};
use vnic_backend::settings::Trust;
use vnic_backend::{AdapterSpec, MacAddr, Nic, VlanMode};

use super::super::Lab;
use super::super::product::Product;
use super::super::testpmd::{self, Testpmd};
use super::series::{Series, WINDOW};
use super::traffic::WIRE;
use super::{Threads, WARM_UP};

/// Where flowgen sends to.
const DESTINATION: MacAddr = MacAddr([0, 1, 2, 3, 4, 1]);
/// Bytes of its frames, and on the wire without the tag that the switch adds for the receiver.
const FRAME: u64 = 1514;
/// VLAN of the first sender.
const VLAN: u16 = 5;

/// A house whose last adapter receives from all others; all trust the PCP.
pub fn house(lab: &Lab, dir: &tempfile::TempDir, adapters: usize) -> Result<(Product, Nic)> {
    let (product, nic) = super::house(lab, dir, adapters)?;
    for i in 0..adapters {
        let name = format!("vf{i}");
        let mut spec = AdapterSpec {
            anti_spoofing: false,
            ..nic.adapter(&name)?.spec
        };
        if i + 1 == adapters {
            spec.macs = vec![DESTINATION];
        } else {
            spec.vlan = VlanMode::Access(VLAN + i as u16);
        }
        nic.remove_adapter(&name)?;
        nic.add_adapter(spec)?;
        super::trust(&nic, i, |keys| keys.priorities.trust = Trust::Pcp)?;
    }
    Ok((product, nic))
}

/// An untagged frame of this adapter's has this priority, and so has the tag that it gets.
pub fn mark(nic: &Nic, adapter: usize, priority: u8) -> Result<()> {
    let name = format!("vf{adapter}");
    let mut settings = nic.adapter_settings(&name)?;
    (settings.vlan_prio, settings.qos.priorities.default_priority) = (priority, priority);
    nic.configure_adapter(&name, &settings)?;
    nic.restart_adapter(&name)?;
    Ok(())
}

fn guest(lab: &Lab, dir: &Path, product: &Product, ports: usize) -> Result<Testpmd> {
    let vdevs = (0..ports).map(|i| testpmd::guest(i, &product.socket(i), 1));
    let spec = testpmd::Spec {
        program: lab.testpmd.clone(),
        cpu: lab.cpus[1],
        vdevs: vdevs.collect(),
        args: vec![
            "--forward-mode=flowgen".to_owned(),
            "--port-topology=loop".to_owned(),
            format!("--txpkts={FRAME}"),
        ],
    };
    let mut guest = Testpmd::start(dir, &spec)?;
    product.wait_up(ports, Duration::from_secs(20))?;
    guest.go("")?;
    Ok(guest)
}

/// All rounds: what the last adapter receives, of these priorities or (`None`) of all.
pub fn rounds(
    lab: &Lab,
    dir: &Path,
    product: &Product,
    ports: usize,
    streams: &[Option<usize>],
) -> Result<Vec<Series>> {
    let nic = product.nic().context("a NIC in this process")?;
    let guest = guest(lab, dir, product, ports)?;
    let sink = format!("vf{}", ports - 1);
    lab.sleep(WARM_UP)?;
    let mut all = Vec::new();
    for _ in 0..super::rounds(lab) {
        let before = Threads::now(guest.cpu_time());
        let mut series = watch(lab, nic, &sink, streams)?;
        series.share = before.share(&Threads::now(guest.cpu_time()));
        all.push(series);
    }
    guest.quit()?;
    Ok(all)
}

/// Watches the NIC's counters.
fn watch(lab: &Lab, nic: &Nic, sink: &str, streams: &[Option<usize>]) -> Result<Series> {
    let mut series = Series::default();
    let end = Instant::now() + super::time(lab);
    loop {
        let now = Instant::now();
        let adapters = nic.counter_values().adapters;
        let values = adapters.iter().find(|a| a.name == sink).context("no sink")?;
        series.push(now, streams.iter().map(|s| wire_bytes(values, *s)).collect());
        if now >= end {
            return Ok(series);
        }
        lab.sleep(WINDOW.saturating_sub(now.elapsed()))?;
    }
}

fn wire_bytes(values: &AdapterValues, priority: Option<usize>) -> u64 {
    let frames = |p: &[u64; PriorityCounter::COUNT]| p[PriorityCounter::RxFrames as usize];
    let priorities = &values.link.priorities;
    let frames = match priority {
        Some(priority) => frames(&priorities[priority]),
        None => priorities.iter().map(frames).sum(),
    };
    (FRAME + WIRE) * frames
}
