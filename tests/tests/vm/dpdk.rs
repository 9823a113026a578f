//! DPDK's virtio_user as the guest of a real daemon. Asserts on frames moved and accounted for, never on rates.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use vnic_tests::bench::hugepages::HugePages;
use vnic_tests::bench::product::{Counters, Product, Setup};
use vnic_tests::bench::testpmd::{self, MEMORY_BYTES, Spec, Testpmd};
use vnic_tests::lab::{self, Lab, PATIENCE, wait_for};

/// Frames that must have gone through before a case believes in them.
const ENOUGH: u64 = 50_000;

/// Runs a case, unless DPDK's program or its huge pages are not to be had.
fn case(name: &'static str, body: impl FnOnce(&Lab) -> Result<()>) {
    lab::case(name, |lab| {
        if !Testpmd::present(Path::new(PROGRAM)) {
            lab::skip(name, "dpdk-testpmd cannot be run (Debian: package dpdk-dev)");
            return Ok(());
        }
        if !rustix::process::geteuid().is_root() {
            lab::skip(name, "DPDK's huge pages need root");
            return Ok(());
        }
        // For this case's processes, and for those of a case that runs beside it.
        let _pages = HugePages::reserve(4 * MEMORY_BYTES)?;
        body(lab)
    });
}

const PROGRAM: &str = "dpdk-testpmd";

fn nic(lab: &Lab, queue_pairs: u16) -> Result<Product> {
    let vnicd = lab.program("vnicd");
    Product::start(&Setup {
        dir: lab.dir(),
        cpu: cpus()?.0,
        adapters: 2,
        queue_pairs,
        control_queue: false,
        anti_spoofing: true,
        mtu: 1500,
        vnicd: Some(&vnicd),
        first_guest: 0,
        uplinks: &[],
    })
}

/// Forward what comes from one adapter into the other, beginning with a few frames of every queue.
const IO: (&str, &str) = ("io", "start tx_first 4");
/// Send without end.
const TXONLY: (&str, &str) = ("txonly", "");

/// testpmd as the guest behind both adapters.
fn guest(lab: &Lab, nic: &Product, queues: u16, (mode, start): (&str, &str)) -> Result<Testpmd> {
    let vdevs = (0..2)
        .map(|i| testpmd::guest(i, &nic.socket(i), queues))
        .collect();
    let mut args = vec![
        format!("--forward-mode={mode}"),
        // To the other guest's address, from many UDP ports, so that flows spread over queues.
        format!("--eth-peer=0,{}", testpmd::guest_mac(1)),
        format!("--eth-peer=1,{}", testpmd::guest_mac(0)),
        "--txonly-multi-flow".into(),
    ];
    if queues > 1 {
        args.extend([format!("--rxq={queues}"), format!("--txq={queues}")]);
    }
    let cpu = cpus()?.1;
    let mut guest = Testpmd::start(
        lab.dir(),
        &Spec {
            program: PROGRAM.into(),
            cpu,
            vdevs,
            args,
        },
    )?;
    nic.wait_up(2, PATIENCE)?;
    guest.go(start)?;
    Ok(guest)
}

/// A CPU for the data core and one for the guest: the same one where there is only one.
fn cpus() -> Result<(usize, usize)> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|c| allowed.is_set(*c))
        .collect();
    match cpus[..] {
        [first, .., last] => Ok((first, last)),
        [only] => Ok((only, only)),
        [] => anyhow::bail!("no CPU may be used"),
    }
}

/// Waits until this many frames have come through both adapters since `before`.
fn wait_moved(nic: &Product, before: &Counters) -> Result<()> {
    wait_for("frames from both adapters", PATIENCE, || {
        let now = nic.counters()?;
        for adapter in ADAPTERS {
            let moved = |name| now.of(adapter, name).saturating_sub(before.of(adapter, name));
            let (tx, rx) = (moved("tx_frames"), moved("rx_frames"));
            ensure!(
                tx >= ENOUGH && rx >= ENOUGH,
                "{adapter}: {tx} sent, {rx} received"
            );
        }
        Ok(())
    })
}

const ADAPTERS: [&str; 2] = ["vf0", "vf1"];

/// With the guests gone, every frame sent is delivered or in the list of the dropped, once.
fn accounted(nic: &Product) -> Result<()> {
    wait_for("the adapters' guests to be gone", PATIENCE, || {
        ensure!(nic.up()? == 0, "still up");
        Ok(())
    })?;
    let c = nic.counters()?;
    let (sent, delivered) = (c.total("tx_frames"), c.total("rx_frames"));
    let dropped = c.total("drops");
    ensure!(
        sent == delivered + dropped,
        "{sent} frames sent, {delivered} delivered, {dropped} dropped"
    );
    let expected = c.drops("no_rx_buffer") + c.drops("receiver_down") + c.drops("no_destination");
    ensure!(
        dropped == expected,
        "drops for reasons that have no place here: {:?}",
        c.0
    );
    ensure!(c.total("ring_faults") == 0, "ring faults");
    Ok(())
}

#[test]
fn frames_of_txonly_arrive_at_the_other_adapter() {
    case("dpdk-txonly", |lab| {
        let nic = nic(lab, 1)?;
        let mut guest = guest(lab, &nic, 1, TXONLY)?;
        // txonly never takes what it receives: when its rings are full, the rest is dropped, and counted.
        wait_for("frames to be counted", PATIENCE, || {
            let c = nic.counters()?;
            let (sent, delivered) = (c.of("vf0", "tx_frames"), c.of("vf1", "rx_frames"));
            ensure!(
                sent >= ENOUGH && delivered > 0,
                "{sent} sent, {delivered} delivered"
            );
            Ok(())
        })?;
        ensure!(guest.stats(0)?.sent >= ENOUGH, "the guest counts its frames too");
        guest.quit()?;
        accounted(&nic)
    });
}

#[test]
fn frames_go_both_ways_through_two_queue_pairs() {
    case("dpdk-queues", |lab| {
        let nic = nic(lab, 2)?;
        let before = nic.counters()?;
        let guest = guest(lab, &nic, 2, IO)?;
        wait_moved(&nic, &before)?;
        let c = nic.counters()?;
        for adapter in ADAPTERS {
            for queue in ["0", "1"] {
                for name in ["tx_frames", "rx_frames"] {
                    let n: u64 =
                        c.0.iter()
                            .filter(|v| v.adapter == adapter && v.name == name && v.detail == queue)
                            .map(|v| v.value)
                            .sum();
                    ensure!(n > 0, "{adapter} queue {queue}: no {name}");
                }
            }
        }
        guest.quit()?;
        accounted(&nic)
    });
}

#[test]
fn traffic_comes_back_when_testpmd_does() {
    case("dpdk-reconnect", |lab| {
        let nic = nic(lab, 1)?;
        for orderly in [true, false, true] {
            let before = nic.counters()?;
            let guest = guest(lab, &nic, 1, IO)?;
            wait_moved(&nic, &before)?;
            if orderly {
                guest.quit()?;
            } else {
                // As a crash would: no goodbye, rings in whatever state they are.
                drop(guest);
            }
            accounted(&nic)?;
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    });
}
