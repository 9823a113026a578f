//! A Linux guest whose Ethernet function has its own control queue: what `ethtool` and `ip` set, the daemon has.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use vnic_tests::lab::{Daemon, Guest, Lab, PATIENCE, ping, wait_for};

/// What the driver of an adapter has set.
fn driver(daemon: &Daemon, adapter: &str) -> Result<Value> {
    let value = daemon.adapter(adapter)?["driver"].clone();
    ensure!(value.is_object(), "{adapter} has no driver with a control queue");
    Ok(value)
}

/// Waits until a field of the driver's state is so. (Linux sets receive modes some time after a command.)
fn becomes(daemon: &Daemon, adapter: &str, field: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
    wait_for(field, PATIENCE, || {
        let driver = driver(daemon, adapter)?;
        ensure!(holds(&driver[field]), "{field} is {}", driver[field]);
        Ok(())
    })
}

fn has(list: &Value, what: &str) -> bool {
    list.as_array()
        .is_some_and(|all| all.iter().any(|one| one == what))
}

/// A line of a command's output that begins with this.
fn line<'t>(text: &'t str, begins: &str) -> Result<&'t str> {
    let mut lines = text.lines().map(str::trim);
    lines
        .find(|line| line.starts_with(begins))
        .with_context(|| format!("no {begins:?} in:\n{text}"))
}

/// Drives all of `ethtool`'s settings of a guest's `eth0` with two queue pairs; its neighbour has the address `peer`.
pub fn settings(lab: &Lab, daemon: &Daemon, guest: &mut Guest, adapter: &str, peer: &str) -> Result<()> {
    let pings = |guest: &mut Guest| ping(guest, &format!("-c 3 -i 0.1 {peer}"));
    // -l, -L: queue pairs.
    let channels = guest.ok("ethtool -l eth0")?;
    ensure!(line(&channels, "Combined:")?.ends_with('2'), "{channels}");
    for pairs in [1, 2] {
        guest.ok(&format!("ethtool -L eth0 combined {pairs}"))?;
        becomes(daemon, adapter, "queue_pairs", |n| *n == pairs)?;
        pings(guest)?;
    }
    // -x, -X: RSS.
    let table = guest.ok("ethtool -x eth0")?;
    ensure!(line(&table, "toeplitz:")?.ends_with("on"), "{table}");
    guest.ok("ethtool -X eth0 weight 0 1")?;
    becomes(daemon, adapter, "rss_table", |table| {
        table
            .as_array()
            .is_some_and(|all| all.len() == 128 && all.iter().all(|pair| *pair == 1))
    })?;
    let before = daemon.counter(adapter, "rx_frames")?;
    pings(guest)?;
    ensure!(daemon.counter(adapter, "rx_frames")? > before, "no frame came");
    guest.ok("ethtool -X eth0 equal 2")?;
    becomes(daemon, adapter, "rss_table", |table| table[0] != table[1])?;
    // -n, -N: what is hashed. (Linux tells the device only while it takes the hash.)
    guest.ok("ethtool -K eth0 rxhash on")?;
    let hashed = guest.ok("ethtool -n eth0 rx-flow-hash udp4")?;
    ensure!(hashed.contains("L4 bytes"), "{hashed}");
    guest.ok("ethtool -N eth0 rx-flow-hash udp4 sd")?;
    becomes(daemon, adapter, "rss_hash_types", |types| {
        !has(types, "udpv4") && has(types, "tcpv4")
    })?;
    guest.ok("ethtool -N eth0 rx-flow-hash udp4 sdfn")?;
    becomes(daemon, adapter, "rss_hash_types", |types| has(types, "udpv4"))?;
    // -k, -K: offloads that the guest accepts.
    let offloads = guest.ok("ethtool -k eth0")?;
    ensure!(line(&offloads, "rx-gro-hw:")?.ends_with("on"), "{offloads}");
    guest.ok("ethtool -K eth0 rx-gro-hw off")?;
    becomes(daemon, adapter, "offloads", |all| !has(all, "guest_tso4"))?;
    pings(guest)?;
    guest.ok("ethtool -K eth0 rx-gro-hw on")?;
    becomes(daemon, adapter, "offloads", |all| has(all, "guest_tso4"))?;
    // -c, -C: coalescing.
    // (Linux 6.1 wants tx-frames, or takes it for a wish to change how it polls.)
    guest.ok("ethtool -C eth0 rx-usecs 40 rx-frames 16 tx-usecs 60 tx-frames 8")?;
    let coalescing = guest.ok("ethtool -c eth0")?;
    ensure!(line(&coalescing, "rx-usecs:")?.ends_with("40"), "{coalescing}");
    becomes(daemon, adapter, "coalescing", |all| {
        let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
        let rx = all.iter().find(|one| one["queue"] == "rx1");
        rx.is_some_and(|rx| rx["micros"] == 40 && rx["frames"] == 16)
    })?;
    pings(guest)?;
    guest.ok("ethtool -C eth0 rx-usecs 0 rx-frames 1 tx-usecs 0 tx-frames 1")?;
    becomes(daemon, adapter, "coalescing", |all| {
        all.as_array()
            .is_none_or(|all| all.iter().all(|one| one["micros"] == 0))
    })?;
    // -S: the driver's statistics.
    let statistics = guest.ok("ethtool -S eth0")?;
    line(&statistics, "rx_queue_1_packets:")?;
    lab.step(&format!("{adapter}: ethtool -l -L -x -X -n -N -k -K -c -C -S"));
    receive_modes(daemon, guest, adapter)?;
    carrier(lab, daemon, guest, adapter)?;
    pings(guest)?;
    let refused = driver(daemon, adapter)?["refused"].clone();
    ensure!(refused == 0, "{refused} commands were refused");
    lab.step(&format!("{adapter}: receive modes, addresses, VLANs"));
    Ok(())
}

/// A port that a scenario takes down: the guest has no carrier until it is over.
fn carrier(lab: &Lab, daemon: &Daemon, guest: &mut Guest, adapter: &str) -> Result<()> {
    let scenario = format!(
        "name = \"no-carrier\"\n[[step]]\nat = \"0 ms\"\naction = \"port_down\"\nadapter = {adapter:?}\nfor = \"600 s\"\n"
    );
    let file = lab.path("no-carrier.toml");
    std::fs::write(&file, scenario)?;
    let path = file.to_str().context("a path of other characters")?;
    let mut has_carrier = |wanted: &str| -> Result<()> {
        wait_for(&format!("carrier {wanted}"), PATIENCE, || {
            let is = guest.ok("cat /sys/class/net/eth0/carrier")?;
            ensure!(is.trim() == wanted, "it is {is}");
            Ok(())
        })
    };
    has_carrier("1")?;
    daemon.ctl(&["fault", "play", path])?;
    has_carrier("0")?;
    daemon.ctl(&["fault", "stop", "no-carrier"])?;
    has_carrier("1")?;
    lab.step(&format!("{adapter}: the carrier follows a scenario's port_down"));
    Ok(())
}

fn receive_modes(daemon: &Daemon, guest: &mut Guest, adapter: &str) -> Result<()> {
    for (word, mode) in [("promisc", "promiscuous"), ("allmulticast", "all_multicast")] {
        for on in [true, false] {
            guest.ok(&format!(
                "ip link set eth0 {word} {}",
                if on { "on" } else { "off" }
            ))?;
            becomes(daemon, adapter, "receive_modes", |modes| has(modes, mode) == on)?;
        }
    }
    guest.ok("ip maddr add 33:33:00:00:12:34 dev eth0")?;
    becomes(daemon, adapter, "multicast", |all| has(all, "33:33:00:00:12:34"))?;
    guest.ok("ip link add link eth0 name eth0.7 type vlan id 7 && ip link set eth0.7 up")?;
    becomes(daemon, adapter, "vlans", |all| {
        all.as_array().is_some_and(|all| all.iter().any(|id| *id == 7))
    })?;
    guest.ok("ip link del eth0.7")?;
    becomes(daemon, adapter, "vlans", |all| {
        all.as_array().is_none_or(|all| all.iter().all(|id| *id != 7))
    })
}
