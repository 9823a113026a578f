//! Live migration: a machine moves from one adapter to another, under TCP and UDP load, of one daemon and between two daemons that a
//! mesh joins. A daemon is killed meanwhile.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use vnic_tests::lab::hosts::two_cpus;
use vnic_tests::lab::{
    self, Daemon, Guest, GuestSpec, Host, Lab, MESH_ENDS as NAMES, Namespace, PATIENCE, Pair, Ping, Qmp,
    mesh_certificates, mesh_port, ping, wait_for,
};

/// Address of the machine that moves.
const MAC: &str = "02:00:00:00:0e:01";
/// Address of the machine that stays.
const OTHER: &str = "02:00:00:00:0e:02";

/// The two machines: one is on `from`, the other stays on `other`. Both have adapters that the configuration protects.
fn boot(lab: &Lab, from: &Path, other: &Path, newest: bool) -> Result<(Pair, GuestSpec)> {
    let spec = |n: u8, socket: &Path, mac: &str| {
        let mut spec = GuestSpec::new(&format!("vm{n}"), socket, mac, &format!("10.0.0.{n}/24"));
        spec.more = vec![Qmp::option(&lab.path(&format!("qmp{n}")))];
        spec.newest = newest;
        spec
    };
    let (one, two) = (spec(1, from, MAC), spec(2, other, OTHER));
    let mut pair = Pair::start(lab, &[one.clone(), two], Guest::qemu)?;
    ping(&mut pair.one, "-c 3 -i 0.1 10.0.0.2")?;
    Ok((pair, one))
}

/// Starts load in the machine that moves, and fills its memory. Returns the checksum of that.
fn load(vms: &mut Pair) -> Result<String> {
    vms.two.ok("iperf3 -s -p 5202 -D >/dev/null 2>&1")?;
    vms.one
        .ok("dd if=/dev/urandom of=/dev/shm/blob bs=1M count=16 2>/dev/null")?;
    let sum = vms.one.ok("sha256sum /dev/shm/blob")?;
    vms.one
        .ok("ping -D -i 0.05 10.0.0.2 >/tmp/ping 2>&1 & echo $! >/tmp/ping.pid")?;
    vms.one
        .ok("iperf3 -c 10.0.0.2 -t 600 -b 8M -i 1 --forceflush >/tmp/tcp 2>&1 & echo $! >/tmp/tcp.pid")?;
    vms.one.ok(
        "iperf3 -c 10.0.0.2 -p 5202 -u -t 600 -b 2M -i 1 --forceflush >/tmp/udp 2>&1 & echo $! >/tmp/udp.pid",
    )?;
    Ok(sum)
}

/// Lines in which a load has reported that something went: one a second.
fn reports(guest: &mut Guest, load: &str) -> Result<usize> {
    let text = guest.ok(&format!(
        "grep bits/sec /tmp/{load} | grep -vc ' 0.00 bits/sec' || true"
    ))?;
    text.trim().parse().with_context(|| format!("{load}: {text:?}"))
}

/// The loads go on: each reports twice more.
fn goes_on(guest: &mut Guest) -> Result<()> {
    for load in ["tcp", "udp"] {
        let before = reports(guest, load)?;
        wait_for(load, PATIENCE, || {
            let now = reports(guest, load)?;
            ensure!(now >= before + 2, "{load}: {now} reports after {before}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Moves the machine to the adapter behind a socket; `meanwhile` runs while its memory goes.
fn migrate(lab: &Lab, one: &GuestSpec, to: &Path, meanwhile: impl FnOnce() -> Result<()>) -> Result<Guest> {
    let channel = lab.path("migration");
    let mut target = one.clone();
    target.name = "vm1-target".to_owned();
    target.socket = to.to_owned();
    let monitor = Qmp::option(&lab.path("qmp-target"));
    target.more = vec![monitor, format!("-incoming unix:{}", channel.display())];
    let moved = Guest::qemu(lab, &target)?;
    let mut there = Qmp::connect(&lab.path("qmp-target"))?;
    let mut here = Qmp::connect(&lab.path("qmp1"))?;
    // So slow that it is under way while something else happens.
    here.run("migrate-set-parameters", &json!({"max-bandwidth": 4_000_000}))?;
    here.run("migrate", &json!({"uri": format!("unix:{}", channel.display())}))?;
    // (A QEMU whose device is gone when it turns dirty logging on ends itself.)
    wait_for("memory on its way", PATIENCE, || {
        let info = here.run("query-migrate", &json!({}))?;
        ensure!(info["ram"]["transferred"].as_u64().unwrap_or(0) > 0, "{info}");
        Ok(())
    })?;
    meanwhile()?;
    here.run("migrate-set-parameters", &json!({"max-bandwidth": 1_000_000_000}))?;
    let info = here.wait_migrated()?;
    ensure!(info["status"] == "completed", "{info}");
    wait_for("the machine", PATIENCE, || {
        let status = there.run("query-status", &json!({}))?;
        ensure!(status["status"] == "running", "{status}");
        Ok(())
    })?;
    lab.step(&format!(
        "the machine has moved: {} ms of downtime",
        info["downtime"]
    ));
    Ok(moved)
}

/// Memory, connections and addresses are as before.
fn whole(lab: &Lab, one: &mut Guest, two: &mut Guest, sum: &str) -> Result<()> {
    ensure!(
        one.ok("sha256sum /dev/shm/blob")? == sum,
        "the machine's memory has changed"
    );
    goes_on(one)?;
    one.ok(
        "kill -INT $(cat /tmp/ping.pid); while kill -0 $(cat /tmp/ping.pid) 2>/dev/null; do sleep 0.1; done",
    )?;
    let text = one.ok("cat /tmp/ping")?;
    let seen = Ping::parse(&text)?;
    ensure!(seen.duplicates == 0 && seen.in_order(), "{text}");
    lab.step(&format!(
        "memory is whole, TCP and UDP go on, {} of {} pings answered, longest gap {:.0} ms",
        seen.received,
        seen.sent,
        seen.longest_gap() * 1e3
    ));
    one.ok("kill $(cat /tmp/tcp.pid) $(cat /tmp/udp.pid)")?;
    ping(one, "-c 5 -i 0.1 10.0.0.2")?;
    ping(two, "-c 5 -i 0.1 10.0.0.1")
}

fn one_daemon(lab: &Lab, newest: bool) -> Result<()> {
    let config = format!(
        "[[adapter]]\nname = \"vf0\"\nmac = \"{MAC}\"\n[[adapter]]\nname = \"vf1\"\nmac = \"02:00:00:00:0e:03\"\n\
         [[adapter]]\nname = \"vf2\"\nmac = \"{OTHER}\"\n"
    );
    let mut daemon = Daemon::with_config(lab, &config)?;
    let socket = |adapter: &str| lab.path(&format!("{adapter}-eth.sock"));
    let (mut vms, one) = boot(lab, &socket("vf0"), &socket("vf2"), newest)?;
    let features = daemon.adapter("vf0")?["feature_names"].to_string();
    ensure!(features.contains("guest_announce"), "{features}");
    let sum = load(&mut vms)?;
    goes_on(&mut vms.one)?;
    daemon.ctl(&["adapter", "prepare-migration", "vf0", "--to", "vf1"])?;
    let mut moved = migrate(lab, &one, &socket("vf1"), || {
        daemon.kill()?;
        daemon.restart()?;
        daemon.wait_up("vf0")?;
        daemon.wait_up("vf2")?;
        lab.step("the daemon was killed and is back");
        Ok(())
    })?;
    whole(lab, &mut moved, &mut vms.two, &sum)?;
    daemon.ctl(&["adapter", "hand-over", "vf1"])?;
    ensure!(daemon.mac("vf1")? == MAC && daemon.mac("vf0")? != MAC);
    for adapter in ["vf0", "vf1"] {
        let drops = daemon.drops(adapter)?.to_string();
        ensure!(!drops.contains("spoofed_source"), "{adapter}: {drops}");
    }
    ping(&mut moved, "-c 5 -i 0.1 10.0.0.2")
}

#[test]
fn between_adapters_of_a_daemon_that_is_killed_meanwhile() {
    lab::case("vm-moving", |lab| one_daemon(lab, false));
}

#[test]
fn between_adapters_of_a_daemon_under_qemu_11() {
    lab::case("vm-moving-newest", |lab| one_daemon(lab, true));
}

/// What joins two daemons.
#[derive(Clone, Copy)]
enum Joined {
    /// Ports of type `packet` on the two ends of a wire.
    Wire,
    /// Ports of type `mesh` over such a wire.
    Mesh,
}

fn two_daemons(lab: &Lab, joined: Joined, newest: bool) -> Result<()> {
    let (Ok(a), Ok(b)) = (Namespace::new()?, Namespace::new()?) else {
        lab::skip(lab.name(), "no network namespaces");
        return Ok(());
    };
    a.veth("wire", &b, "wire", 1500)?;
    let addresses = ["10.77.0.1", "10.77.0.2"];
    for (net, address) in [&a, &b].into_iter().zip(addresses) {
        net.ip(&format!("addr add {address}/24 dev wire"))?;
    }
    let dir = tempfile::tempdir()?;
    mesh_certificates(dir.path())?;
    let config = |end: usize, macs: [&str; 2]| {
        let port = match joined {
            Joined::Wire => "type = \"packet\"\nifname = \"wire\"\n".to_owned(),
            Joined::Mesh => mesh_port(
                end,
                dir.path(),
                &addresses.map(|address| format!("{address}:4792")),
            ),
        };
        format!(
            "[[adapter]]\nname = \"vf0\"\nmac = \"{}\"\n[[adapter]]\nname = \"vf1\"\nmac = \"{}\"\n\
             [[port]]\nname = \"m0\"\n{port}",
            macs[0], macs[1]
        )
    };
    let cpus = two_cpus()?;
    let a = Host::start(NAMES[0], a, cpus[0], &config(0, [MAC, OTHER]))?;
    let own = ["02:00:00:00:0e:03", "02:00:00:00:0e:04"];
    let mut b = Host::start(NAMES[1], b, cpus[1], &config(1, own))?;
    let (mut vms, one) = boot(lab, &a.eth_socket("vf0"), &a.eth_socket("vf1"), newest)?;
    let sum = load(&mut vms)?;
    goes_on(&mut vms.one)?;
    let file = lab.path("vf0.json");
    std::fs::write(&file, a.ctl(&["adapter", "export-migration", "vf0"])?.to_string())?;
    b.ctl(&[
        "adapter",
        "prepare-migration",
        "vf0",
        "--file",
        &file.display().to_string(),
    ])?;
    let to = b.eth_socket("vf0");
    let mut moved = migrate(lab, &one, &to, || {
        b.kill_and_restart()?;
        // (QEMU 7.2 forgets what the guest has negotiated if it has no daemon when the machine arrives.)
        wait_for("the target's QEMU", PATIENCE, || {
            let state = b.ctl(&["adapter", "show", "vf0"])?["state"].to_string();
            ensure!(state.contains("ATTACHED"), "{state}");
            Ok(())
        })
    })?;
    whole(lab, &mut moved, &mut vms.two, &sum)?;
    for host in [&a, &b] {
        host.ctl(&["adapter", "hand-over", "vf0"])?;
    }
    ping(&mut moved, "-c 5 -i 0.1 10.0.0.2")
}

#[test]
fn between_daemons_that_a_wire_joins() {
    lab::case("vm-moving-wire", |lab| two_daemons(lab, Joined::Wire, false));
}

#[test]
fn between_daemons_that_a_mesh_joins_under_qemu_11() {
    lab::case("vm-moving-mesh", |lab| two_daemons(lab, Joined::Mesh, true));
}
