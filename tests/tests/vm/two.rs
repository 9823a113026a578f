//! Two virtual machines under stock QEMU, on one NIC.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use vnic_tests::lab::{self, Daemon, Guest, Lab, PATIENCE, Pair, Qmp, iperf, ping, wait_for};

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
mtu = 9000
queue_pairs = 2

[[adapter]]
name = "vf1"
mtu = 9000
queue_pairs = 2
"#;

#[test]
fn everything_between_two_machines() {
    lab::case("vm-two", |lab| {
        let mut daemon = Daemon::with_config(lab, CONFIG)?;
        let mut vms = Pair::boot(lab, &daemon, Guest::qemu, |n, spec| {
            spec.mtu = 9000;
            spec.queue_pairs = 2;
            spec.more = vec![Qmp::option(&lab.path(&format!("qmp{n}")))];
        })?;

        attached(lab, &daemon, &mut vms)?;
        pings(lab, &mut vms)?;
        vlan(lab, &mut vms)?;
        tcp(lab, &daemon, &mut vms)?;
        udp(lab, &mut vms)?;
        capture(lab, &daemon, &mut vms)?;
        clocks(lab, &daemon, &mut vms)?;
        sleep(lab, &daemon, &mut vms)?;

        for adapter in ["vf0", "vf1"] {
            ensure!(
                daemon.counter(adapter, "ring_faults")? == 0,
                "{adapter} had ring faults"
            );
        }
        lab.step("the daemon ends when it is told to, under running guests");
        let status = daemon.stop()?;
        ensure!(status.success(), "vnicd ended with {status}");
        ensure!(
            vms.one.running() && vms.two.running(),
            "a machine died with the daemon"
        );
        Ok(())
    });
}

fn attached(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    for adapter in ["vf0", "vf1"] {
        daemon.wait_up(adapter)?;
        let value = daemon.adapter(adapter)?;
        let features = value["feature_names"].to_string();
        // (`multiqueue` stays with QEMU: the daemon sees enabled rings.)
        for feature in ["mrg_rxbuf", "event_idx", "indirect_desc"] {
            ensure!(
                features.to_lowercase().contains(feature),
                "{adapter} runs without {feature}: {features}"
            );
        }
        wait_for("both queue pairs", PATIENCE, || {
            let pairs = daemon.adapter(adapter)?["queue_pairs_enabled"].clone();
            ensure!(pairs == 2, "{adapter} has {pairs} queue pairs enabled");
            Ok(())
        })?;
    }
    let offloads = vms.one.ok("ethtool -k eth0")?;
    for offload in [
        "tcp-segmentation-offload: on",
        "tx-checksumming: on",
        "rx-gro-hw: on",
    ] {
        ensure!(
            offloads.contains(offload),
            "the guest runs without {offload}:\n{offloads}"
        );
    }
    lab.step("attached: both adapters up, two queue pairs each, TSO on");
    Ok(())
}

fn pings(lab: &Lab, vms: &mut Pair) -> Result<()> {
    ping(&mut vms.one, "-c 20 -i 0.1 10.0.0.2")?;
    ping(&mut vms.two, "-c 5 -i 0.1 10.0.0.1")?;
    ping(&mut vms.one, "-c 5 -i 0.1 fd00::2")?;
    lab.step("ping over IPv4 and IPv6");
    ping(&mut vms.one, "-c 5 -i 0.1 -M do -s 8000 10.0.0.2")?;
    ping(&mut vms.two, "-c 5 -i 0.1 -M do -s 8972 10.0.0.1")?;
    lab.step("jumbo frames");
    Ok(())
}

fn vlan(lab: &Lab, vms: &mut Pair) -> Result<()> {
    for (n, guest) in [(1, &mut vms.one), (2, &mut vms.two)] {
        guest.ok(&format!(
            "ip link add link eth0 name eth0.5 type vlan id 5 && ip addr add 10.5.0.{n}/24 dev eth0.5 && ip link set \
             eth0.5 up"
        ))?;
    }
    ping(&mut vms.one, "-c 5 -i 0.1 10.5.0.2")?;
    iperf(&mut vms.one, "-c 10.5.0.2 -t 2")?;
    lab.step("a VLAN: ping and iperf3");
    Ok(())
}

fn tcp(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    let read =
        |what: &str| -> Result<[u64; 2]> { Ok([daemon.counter("vf0", what)?, daemon.counter("vf1", what)?]) };
    let (tx, rx, tso) = (read("tx_bytes")?, read("rx_bytes")?, read("rx_tso_passed")?);
    let report = iperf(&mut vms.one, "-c 10.0.0.2 -t 4 -P 2")?;
    lab.step(&format!("TCP: {:.0} Mb/s", report.rate / 1e6));
    let grown = read("tx_bytes")?[0] - tx[0];
    ensure!(
        grown >= report.received,
        "vf0 sent {grown} bytes, iperf3 got {}",
        report.received
    );
    let grown = read("rx_bytes")?[1] - rx[1];
    ensure!(
        grown >= report.received,
        "vf1 got {grown} bytes, iperf3 got {}",
        report.received
    );
    ensure!(
        read("rx_tso_passed")?[1] > tso[1],
        "no segmentation request went through uncut"
    );

    iperf(&mut vms.one, "-c 10.0.0.2 -t 2 -R")?;
    ensure!(read("tx_bytes")?[1] > tx[1], "vf1 sent nothing");
    lab.step("TCP the other way round");
    Ok(())
}

fn udp(lab: &Lab, vms: &mut Pair) -> Result<()> {
    let report = iperf(&mut vms.one, "-c 10.0.0.2 -u -b 20M -l 1400 -t 2")?;
    lab.step(&format!("UDP: {} datagrams arrived", report.packets.unwrap_or(0)));
    Ok(())
}

fn capture(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    let file = lab.log("ping.pcapng");
    let path = file.display().to_string();
    let arguments = [
        "capture",
        "live",
        "-w",
        &path,
        "--count",
        "40",
        "--seconds",
        Daemon::CAPTURE_SECONDS,
        "vf0",
    ];
    let mut capture = daemon.ctl_start(&arguments)?;
    wait_for("the capture's file", PATIENCE, || {
        ensure!(std::fs::metadata(&file)?.len() > 0, "the file is empty");
        Ok(())
    })?;
    ping(&mut vms.one, "-c 40 -i 0.1 10.0.0.2")?;
    let status = capture.wait(Daemon::CAPTURE_PATIENCE)?;
    ensure!(status.success(), "vnicctl capture ended with {status}");
    let frames = lab::output(
        Command::new("tshark")
            .args(["-n", "-r", &path])
            .args(["-Y", "icmp"]),
    )?;
    let frames = frames.lines().count();
    ensure!(frames >= 2, "tshark finds {frames} ICMP frames in {path}");
    lab.step(&format!("a capture: tshark finds {frames} ICMP frames"));
    Ok(())
}

/// `ptp4l` with timestamps by software: eight messages a second, so that a clock is taken over soon.
const PTP: &str = "busybox timeout 600 ptp4l -S -i eth0 -m --logSyncInterval=-3 --logMinDelayReqInterval=-3 --logAnnounceInterval=-2 --announceReceiptTimeout=2 --summary_interval=-9";

/// One machine's clock follows the other's by PTP, without the NIC as a transparent clock and with it.
fn clocks(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    for timed in [false, true] {
        for adapter in ["vf0", "vf1"] {
            let value = u8::from(timed).to_string();
            daemon.ctl(&["registry", "set", adapter, "*PtpHardwareTimestamp", &value])?;
            daemon.ctl(&["adapter", "restart", adapter])?;
            daemon.wait_up(adapter)?;
        }
        ping(&mut vms.one, "-c 3 -i 0.1 10.0.0.2")?;
        let before = daemon.total("ptp_timed")?;
        vms.one.ok(&format!(
            "{PTP} --priority1=1 >/run/ptp 2>&1 & echo $! >/run/ptp.pid"
        ))?;
        vms.two
            .ok(&format!("{PTP} -s >/run/ptp 2>&1 & echo $! >/run/ptp.pid"))?;
        let mut followed = String::new();
        // "ptp4l[12.3]: master offset   -1234 s2 freq  +567 path delay   89012": s2 is a clock that follows.
        wait_for("a clock that follows", PATIENCE, || {
            followed = vms.two.ok("grep ' s2 freq' /run/ptp || true")?;
            let seen = followed.lines().count();
            ensure!(
                seen >= 40,
                "{seen} offsets: {}",
                vms.two.ok("tail -n 5 /run/ptp")?
            );
            Ok(())
        })?;
        for guest in [&mut vms.one, &mut vms.two] {
            guest.ok("kill $(cat /run/ptp.pid)")?;
        }
        let median = |word| median_after(&followed, word).with_context(|| format!("no {word} in {followed}"));
        let (offset, delay) = (median("offset")?, median("delay")?);
        let held = daemon.total("ptp_timed")? - before;
        ensure!(
            (held > 0) == timed,
            "{held} messages were timed, with the key {timed}"
        );
        let how = if timed {
            "a transparent clock"
        } else {
            "the NIC beside it"
        };
        lab.step(&format!(
            "ptp4l between the machines, {how}: offset {offset} ns, path delay {delay} ns (medians of sizes)"
        ));
    }
    Ok(())
}

/// The median of the numbers behind a word, without their signs.
fn median_after(text: &str, word: &str) -> Option<u64> {
    let number = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|w| *w != word);
        Some(words.nth(1)?.parse::<i64>().ok()?.unsigned_abs())
    };
    let mut all: Vec<u64> = text.lines().filter_map(number).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// Each machine sleeps (ACPI S3) once, and the other one wakes it by its monitor: by a magic packet, and by asking for its address, which
/// is a pattern. (The same machine a second time is awake again at once, whoever is there to wake it: QEMU 7.2.)
fn sleep(lab: &Lab, daemon: &Daemon, vms: &mut Pair) -> Result<()> {
    // What sends any bytes to everybody is a DHCP client with an option of its own.
    let mac = daemon.mac("vf1")?.replace(':', "");
    let magic = format!("{}{}", "ff".repeat(6), mac.repeat(16));
    let magic = format!("busybox udhcpc -i eth0 -f -n -q -t 1 -T 1 -s /bin/true -x 224:{magic} || true");
    // EtherType of ARP, and 10.0.0.1 as the address that is asked for.
    let arp = format!("12+08:06{}:0a:00:00:01", ":--".repeat(24));
    let asks = "ip neigh flush dev eth0; ping -c 1 -W 1 10.0.0.1 || true";
    let Pair { one, two } = vms;
    wake(lab, daemon, (two, 2), one, (None, &magic))?;
    wake(lab, daemon, (one, 1), two, (Some(&arp), asks))
}

/// A machine, by its number, sleeps, and the other one wakes it by a command, which sends a magic packet or has a pattern.
fn wake(
    lab: &Lab,
    daemon: &Daemon,
    (sleeper, n): (&mut Guest, usize),
    other: &mut Guest,
    (pattern, command): (Option<&str>, &str),
) -> Result<()> {
    let adapter = format!("vf{}", n - 1);
    let socket = lab.path(&format!("qmp{n}"));
    let action = format!("qmp:{}", socket.display());
    daemon.ctl(&["adapter", "set", &adapter, "--wake", &action])?;
    let doze = "echo mem > /sys/power/state";
    sleeper.send(doze)?;
    wait_for("a machine that sleeps", PATIENCE, || {
        let status = Qmp::connect(&socket)?.run("query-status", &json!({}))?;
        ensure!(status["status"] == "suspended", "{status}");
        let state = daemon.adapter(&adapter)?["state"].clone();
        ensure!(state != "STATE_UP", "{adapter} is {state}");
        Ok(())
    })?;
    if let Some(pattern) = pattern {
        daemon.ctl(&["adapter", "set", &adapter, "--wake-pattern", pattern])?;
    }
    other.ok(command)?;
    let (exit, output) = sleeper.finish(doze)?;
    ensure!(exit == 0, "the machine did not sleep: {output}");
    daemon.wait_up(&adapter)?;
    ping(other, &format!("-c 5 -i 0.1 10.0.0.{n}"))?;
    let slept = "system_wakeup: the machine was suspended";
    let kind = if pattern.is_some() {
        "wake_pattern"
    } else {
        "magic_packet"
    };
    for kind in [kind, "woken"] {
        let events = daemon.ctl(&["event", "list", "--kind", kind])?["events"].clone();
        let of_it = events.as_array().into_iter().flatten().map(|e| e.to_string());
        let of_it: Vec<_> = of_it.filter(|e| e.contains(&adapter)).collect();
        let found = of_it.iter().any(|e| kind != "woken" || e.contains(slept));
        ensure!(found, "{kind}: {events}");
    }
    lab.step(&format!("a machine in S3 wakes ({kind})"));
    Ok(())
}

/// A guest without receive offloads on one side, and without event index, indirect descriptors and mergeable
/// buffers: what the other side may hand over uncut and unfinished must be cut and finished on the way.
#[test]
fn machines_with_unequal_features() {
    lab::case("vm-unequal", |lab| {
        let daemon = Daemon::with_adapters(lab, 2, &[])?;
        let mut vms = Pair::boot(lab, &daemon, Guest::qemu, |n, spec| {
            if n == 2 {
                let off = [
                    "guest_tso4",
                    "guest_tso6",
                    "guest_ecn",
                    "guest_ufo",
                    "guest_csum",
                    "mrg_rxbuf",
                ];
                let off = off.iter().chain(&["event_idx", "indirect_desc"]);
                spec.device = off.map(|feature| format!("{feature}=off")).collect();
            }
        })?;
        ping(&mut vms.one, "-c 10 -i 0.1 10.0.0.2")?;
        ping(&mut vms.two, "-c 5 -i 0.1 -s 1400 10.0.0.1")?;
        iperf(&mut vms.one, "-c 10.0.0.2 -t 2")?;
        iperf(&mut vms.one, "-c fd00::2 -t 2")?;
        iperf(&mut vms.one, "-c 10.0.0.2 -t 2 -R")?;
        iperf(&mut vms.one, "-c 10.0.0.2 -u -b 10M -t 1")?;
        let cut = daemon.counter("vf0", "tx_tso_cut")?;
        let finished = daemon.counter("vf0", "tx_checksum_finished")?;
        ensure!(
            cut > 0,
            "vf0 cut no segmentation request for a receiver that takes none"
        );
        ensure!(
            finished > 0,
            "vf0 finished no checksum for a receiver that wants them finished"
        );
        lab.step(&format!(
            "{cut} segmentation requests cut, {finished} checksums finished"
        ));
        // Wrong checksums would show as errors of the receiver.
        let errors = vms.two.ok("cat /proc/net/snmp")?;
        for protocol in ["Tcp", "Udp"] {
            let value = snmp(&errors, protocol, "InCsumErrors");
            ensure!(
                value == Some(0),
                "{protocol} InCsumErrors of the receiver: {value:?}\n{errors}"
            );
        }
        Ok(())
    });
}

/// A number of /proc/net/snmp: a line of names is followed by one of values.
fn snmp(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|l| l.starts_with(&format!("{protocol}:")));
    let at = lines.next()?.split_whitespace().position(|n| n == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}
