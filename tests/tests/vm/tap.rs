//! An uplink: a guest and the host talk through a TAP port, and through its team's other one when that fails.

use anyhow::{Result, ensure};
use vnic_tests::lab::{self, Daemon, Guest, GuestSpec, Lab, PATIENCE, Ping, iperf, ping, wait_for};

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
queue_pairs = 1
control_queue = true

[[port]]
name = "p0"
type = "tap"
ifname = "lab0"

[[port]]
name = "p1"
type = "tap"
ifname = "lab1"

[[team]]
name = "Team0"
type = "failover"
members = ["p0", "p1"]
primary = "p0"
"#;

#[test]
fn host_and_guest_through_a_tap_port() {
    lab::case("vm-tap", |lab| {
        // In a namespace of its own: the name is free, and nobody sees the interface.
        let Some(daemon) = Daemon::in_namespace(lab, CONFIG)? else {
            lab::skip(lab.name(), "this machine gives us no network namespace");
            return Ok(());
        };
        daemon.host(&["ip", "addr", "add", "10.0.0.100/24", "dev", "lab0"])?;
        daemon.host(&["ip", "link", "set", "lab0", "up"])?;
        daemon.host(&["ip", "link", "set", "lab1", "up"])?;
        // Here the host learns whoever announces himself.
        daemon.host(&["sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/lab1/arp_accept"])?;
        let mac = daemon.mac("vf0")?;
        let spec = GuestSpec::new("vm1", &lab.path("vf0-eth.sock"), &mac, "10.0.0.1/24");
        let mut guest = Guest::uml(lab, &spec)?;
        guest.wait_ready()?;
        guest.has_network()?;
        daemon.wait_up("vf0")?;
        lab.step("the guest is up");

        let text = daemon.host(&["ping", "-c", "10", "-i", "0.2", "10.0.0.1"])?;
        ensure!(
            Ping::parse(&text)?.is_perfect(),
            "the host pings the guest: {text}"
        );
        ping(&mut guest, "-c 10 -i 0.2 10.0.0.100")?;
        lab.step("ping both ways");

        // A guest's segmentation requests and partial checksums must be good frames on the host's side.
        let mut server = daemon.host_start(&["iperf3", "-s", "-1"])?;
        wait_for("iperf3's server", PATIENCE, || {
            daemon.host(&["sh", "-c", "ss -Hltn | grep -q :5201"]).map(|_| ())
        })?;
        let report = iperf(&mut guest, "-c 10.0.0.100 -t 3")?;
        server.wait(PATIENCE)?;
        lab.step(&format!("TCP to the host: {:.0} Mb/s", report.rate / 1e6));
        let text = daemon.host(&["iperf3", "-c", "10.0.0.1", "-t", "3", "-i", "0", "-J"])?;
        let report = lab::Iperf::parse(&text)?;
        ensure!(report.received > 0, "the guest got nothing: {text}");
        lab.step(&format!("TCP from the host: {:.0} Mb/s", report.rate / 1e6));

        for counter in ["rx_frames", "tx_frames", "rx_bytes", "tx_bytes"] {
            ensure!(
                daemon.counter("ports/p0", counter)? > 20,
                "the port's {counter} did not grow"
            );
        }
        announced(lab, &daemon, &mac)
    });
}

/// The team's other member takes over: the guest, whose driver is asked to, announces its IP address there.
fn announced(lab: &Lab, daemon: &Daemon, mac: &str) -> Result<()> {
    let known = || daemon.host(&["ip", "neighbor", "show", "dev", "lab1"]);
    ensure!(
        !known()?.contains("10.0.0.1 "),
        "announced too early: {}",
        known()?
    );
    daemon.host(&["ip", "link", "set", "lab0", "down"])?;
    wait_for("the guest's announcement", PATIENCE, || {
        let known = known()?;
        ensure!(
            known.contains(&format!("10.0.0.1 lladdr {mac}")),
            "known: {known:?}"
        );
        Ok(())
    })?;
    lab.step("the guest has announced itself at the other member of the team");
    Ok(())
}
