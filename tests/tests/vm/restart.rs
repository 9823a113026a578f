//! The daemon dies under traffic and comes back: guests carry on.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vnic_tests::lab::{self, Daemon, Guest, GuestSpec, Lab, PATIENCE, Pair, Ping, iperf, ping, wait_for};

/// How often a case kills the daemon.
const KILLS: u32 = 3;

/// The daemon connects to the machines' sockets: it comes back to them as soon as it runs.
const CONNECT: &str = r#"
[[adapter]]
name = "vf0"
socket_role = "connect"

[[adapter]]
name = "vf1"
socket_role = "connect"
"#;

#[test]
fn kill_and_restart_under_traffic() {
    lab::case("vm-restart", |lab| {
        let mut daemon = Daemon::with_adapters(lab, 2, &[])?;
        let mut vms = Pair::boot(lab, &daemon, Guest::qemu, packed)?;
        live_through_kills(lab, &mut daemon, &mut vms)
    });
}

#[test]
fn kill_and_restart_where_machines_listen() {
    lab::case("vm-restart-connect", |lab| {
        let mut daemon = Daemon::with_config(lab, CONNECT)?;
        let mut vms = Pair::boot(lab, &daemon, Guest::qemu, |n, spec| {
            spec.listens = true;
            packed(n, spec);
        })?;
        // A guest forgets its neighbours when its link goes down, and asks again only after a second if the first
        // question is lost. Here the gap shall be the link's own.
        for (guest, peer, adapter) in [(&mut vms.one, 2, "vf1"), (&mut vms.two, 1, "vf0")] {
            let mac = daemon.mac(adapter)?;
            guest.ok(&format!(
                "ip neigh replace 10.0.0.{peer} lladdr {mac} dev eth0 nud permanent"
            ))?;
        }
        live_through_kills(lab, &mut daemon, &mut vms)
    });
}

/// The second machine has packed rings.
fn packed(n: u8, spec: &mut GuestSpec) {
    if n == 2 {
        spec.device.push("packed=on".to_owned());
    }
}

fn live_through_kills(lab: &Lab, daemon: &mut Daemon, vms: &mut Pair) -> Result<()> {
    ping(&mut vms.one, "-c 3 -i 0.1 10.0.0.2")?;
    // VIRTIO_F_RING_PACKED is bit 34.
    for (guest, packed) in [(&mut vms.one, '0'), (&mut vms.two, '1')] {
        let features = guest.ok("cat /sys/class/net/eth0/device/features")?;
        ensure!(features.chars().nth(34) == Some(packed), "features {features}");
    }
    let boots = vms.boot_ids()?;
    let macs = [daemon.mac("vf0")?, daemon.mac("vf1")?];

    for kill in 1..=KILLS {
        under_ping(lab, daemon, vms, kill)?;
    }
    under_tcp(lab, daemon, vms)?;

    vms.not_rebooted(&boots)?;
    ensure!(
        macs == [daemon.mac("vf0")?, daemon.mac("vf1")?],
        "the adapters' addresses have changed"
    );
    ping(&mut vms.one, "-c 10 -i 0.1 10.0.0.2")?;
    ping(&mut vms.two, "-c 10 -i 0.1 10.0.0.1")
}

/// `ping` sees answers, then the daemon dies and comes back, then `ping` sees answers again: each once, in order.
fn under_ping(lab: &Lab, daemon: &mut Daemon, vms: &mut Pair, kill: u32) -> Result<()> {
    vms.one
        .ok("ping -D -i 0.02 10.0.0.2 >/tmp/ping 2>&1 & echo $! >/tmp/ping.pid")?;
    wait_answers(vms, 5)?;
    daemon.kill()?;
    let before = answers(vms)?;
    daemon.restart()?;
    // More than can have been on its way before the kill.
    wait_answers(vms, before + 50)?;
    vms.one.ok(
        "kill -INT $(cat /tmp/ping.pid); while kill -0 $(cat /tmp/ping.pid) 2>/dev/null; do sleep 0.1; done",
    )?;
    let text = vms.one.ok("cat /tmp/ping")?;
    let seen = Ping::parse(&text)?;
    ensure!(
        seen.duplicates == 0 && !text.contains("DUP!"),
        "answers came twice:\n{text}"
    );
    ensure!(seen.in_order(), "answers came out of order:\n{text}");
    lab.step(&format!(
        "kill {kill}: ping went on, {} of {} answered, longest gap {:.0} ms",
        seen.received,
        seen.sent,
        seen.longest_gap() * 1e3
    ));
    Ok(())
}

/// A TCP connection lives through a kill of the daemon.
fn under_tcp(lab: &Lab, daemon: &mut Daemon, vms: &mut Pair) -> Result<()> {
    let sent = daemon.counter("vf0", "tx_bytes")?;
    vms.one
        .ok("iperf3 -c 10.0.0.2 -t 20 -i 1 -J >/tmp/iperf 2>&1 & echo $! >/tmp/iperf.pid")?;
    wait_for("traffic before the kill", PATIENCE, || {
        let now = daemon.counter("vf0", "tx_bytes")?;
        ensure!(now > sent + 1_000_000, "{} bytes so far", now - sent);
        Ok(())
    })?;
    daemon.kill()?;
    daemon.restart()?;
    // A new daemon counts from zero.
    wait_for("traffic after the restart", PATIENCE, || {
        let now = daemon.counter("vf0", "tx_bytes")?;
        ensure!(now > 1_000_000, "{now} bytes so far");
        Ok(())
    })?;
    vms.one
        .ok("while kill -0 $(cat /tmp/iperf.pid) 2>/dev/null; do sleep 0.2; done")?;
    let text = vms.one.ok("cat /tmp/iperf")?;
    let report = lab::Iperf::parse(&text).context("iperf3 under a kill")?;
    ensure!(report.received > 0, "iperf3 moved nothing: {text}");
    lab.step(&format!(
        "a TCP connection went through a kill, {:.0} Mb/s all in all",
        report.rate / 1e6
    ));
    // And a new one can be made.
    iperf(&mut vms.one, "-c 10.0.0.2 -t 1")?;
    Ok(())
}

fn answers(vms: &mut Pair) -> Result<usize> {
    let text = vms.one.ok("grep -c 'bytes from' /tmp/ping || true")?;
    text.trim()
        .parse()
        .with_context(|| format!("not a number: {text:?}"))
}

fn wait_answers(vms: &mut Pair, wanted: usize) -> Result<()> {
    wait_for("answers to ping", Duration::from_secs(300), || {
        let seen = answers(vms)?;
        ensure!(seen >= wanted, "{seen} of {wanted}");
        Ok(())
    })
}
