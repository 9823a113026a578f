//! Two User-Mode-Linux machines: another VMM, and a guest kernel at full speed.

use anyhow::ensure;
use vnic_tests::lab::{self, Daemon, Guest, Pair, iperf, ping};

use super::ethtool;

/// The first has its own configuration space and control queue, and so can have several queue pairs. The other works without both.
const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
queue_pairs = 2
control_queue = true

[[adapter]]
name = "vf1"
queue_pairs = 1
"#;

#[test]
fn everything_between_two_user_mode_machines() {
    lab::case("uml-two", |lab| {
        let mut daemon = Daemon::with_config(lab, CONFIG)?;
        let mut vms = Pair::boot(lab, &daemon, Guest::uml, |n, spec| {
            spec.ip6 = None;
            spec.queue_pairs = if n == 1 { 2 } else { 1 };
        })?;
        ping(&mut vms.one, "-c 20 -i 0.1 10.0.0.2")?;
        ping(&mut vms.two, "-c 5 -i 0.1 -s 1472 -M do 10.0.0.1")?;
        lab.step("ping");
        ethtool::settings(lab, &daemon, &mut vms.one, "vf0", "10.0.0.2")?;
        let before = daemon.counter("vf0", "tx_bytes")?;
        let report = iperf(&mut vms.one, "-c 10.0.0.2 -t 4")?;
        let grown = daemon.counter("vf0", "tx_bytes")? - before;
        ensure!(
            grown >= report.received,
            "vf0 sent {grown} bytes, iperf3 got {}",
            report.received
        );
        lab.step(&format!("TCP: {:.0} Mb/s", report.rate / 1e6));
        iperf(&mut vms.one, "-c 10.0.0.2 -t 2 -R")?;
        iperf(&mut vms.one, "-c 10.0.0.2 -t 2 --bidir")?;
        let report = iperf(&mut vms.one, "-c 10.0.0.2 -u -b 100M -t 2")?;
        lab.step(&format!("UDP: {} datagrams arrived", report.packets.unwrap_or(0)));
        for adapter in ["vf0", "vf1"] {
            ensure!(
                daemon.counter(adapter, "ring_faults")? == 0,
                "{adapter} had ring faults"
            );
        }
        ensure!(daemon.stop()?.success(), "vnicd did not end well");
        Ok(())
    });
}
