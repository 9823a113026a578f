//! An uplink whose hardware stamps PTP messages: a daemon in a machine of QEMU's, on the machine's 82576 (igb). QEMU 11's stamps one
//! message: it waits for a register to be read that Linux' driver does not read.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use vnic_tests::lab::{self, Daemon, Guest, GuestSpec, Lab, PATIENCE, wait_for};

const OUTER: &str = r#"
[[adapter]]
name = "vf0"
"#;

/// Configuration of the daemon in the machine, as the words of `printf`.
const INNER: &str = r#"'[[port]]\nname = "p0"\ntype = "packet"\nifname = "eth1"\n'"#;
const START: &str =
    "vnicd --config /tmp/vnicd.toml --state-dir /tmp/state >/tmp/vnicd.log 2>&1 & echo $! >/tmp/vnicd.pid";
/// How long the daemon in the machine stands still while a frame arrives, and how often that is tried.
const WAIT: Duration = Duration::from_secs(2);
const ATTEMPTS: usize = 5;
/// What the device's clock says: no time of today's.
const SOMETIME: u64 = 1_000_000;

/// EtherTypes: PTP, and two for experiments (IEEE 802).
const PTP: u16 = 0x88f7;
const PROBE: u16 = 0x88b5;
const OTHER: u16 = 0x88b6;

/// A Sync message of PTP over Ethernet to the group of event messages, or the same bytes under another EtherType.
fn message(ethertype: u16) -> Vec<u8> {
    let mut frame = vec![0x01, 0x1b, 0x19, 0, 0, 0, 2, 0, 0, 0, 0, 9];
    frame.extend(ethertype.to_be_bytes());
    frame.extend([0, 2, 0, 44, 0, 0, 2, 0]);
    frame.resize(60, 0);
    frame
}

#[test]
fn times_of_a_devices_hardware_come_with_its_frames() {
    lab::case("vm-hwstamp", |lab| {
        let mut daemon = Daemon::with_config(lab, OUTER)?;
        let (ours, theirs) = (lab.path("wire0"), lab.path("wire1"));
        let wire = UnixDatagram::bind(&ours).with_context(|| ours.display().to_string())?;
        let mac = daemon.mac("vf0")?;
        let mut spec = GuestSpec::new("vm1", &lab.path("vf0-eth.sock"), &mac, "10.0.0.1/24");
        spec.newest = true;
        spec.programs = &["vnicd", "vnicctl"];
        spec.more = vec![
            format!(
                "-netdev dgram,id=wire,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                theirs.display(),
                ours.display()
            ),
            "-device igb,netdev=wire,mac=02:00:00:00:00:08,romfile=".to_owned(),
        ];
        let mut guest = Guest::qemu(lab, &spec)?;
        guest.wait_ready()?;
        guest.ok("modprobe igb && ip link set eth1 up")?;
        wait_for("the 82576's link", PATIENCE, || {
            guest.ok("grep -q 1 /sys/class/net/eth1/carrier").map(drop)
        })?;
        let can = guest.ok("ethtool -T eth1")?;
        ensure!(can.contains("ptpv2-event"), "{can}");
        guest.ok(&format!("phc_ctl eth1 set {SOMETIME}"))?;
        ensure!(filter(&mut guest)? == 0, "the device stamps already");
        lab.step("a machine with an 82576, whose clock is of 1970");

        guest.ok(&format!("printf {INNER} >/tmp/vnicd.toml; {START}"))?;
        wait_for("a daemon in the machine", PATIENCE, || {
            guest
                .ok("vnicctl port list")
                .with_context(|| guest.ok("cat /tmp/vnicd.log").unwrap_or_default())
                .map(drop)
        })?;
        let shown = guest.ok("vnicctl port show p0")?;
        ensure!(shown.contains("hardware timestamps"), "{shown}");
        ensure!(filter(&mut guest)? != 0, "the device stamps nothing");
        stamped(lab, &mut guest, &wire)?;

        guest.ok("kill $(cat /tmp/vnicd.pid)")?;
        wait_for("the device as it was", PATIENCE, || {
            let left = filter(&mut guest)?;
            ensure!(left == 0, "the device's filter is {left}");
            Ok(())
        })?;
        lab.step("without the daemon the device stamps what it did before");
        drop(guest);
        ensure!(daemon.stop()?.success(), "vnicd did not end well");
        Ok(())
    });
}

/// The filter of what the device stamps on receive, by its number.
fn filter(guest: &mut Guest) -> Result<u32> {
    let text = guest.ok("hwstamp_ctl -i eth1")?;
    let number = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("rx_filter "))
        .next_back();
    let number = number.with_context(|| format!("no filter in {text}"))?;
    Ok(number.trim().parse()?)
}

/// A counter of the machine's port.
fn counter(guest: &mut Guest, name: &str) -> Result<u64> {
    let text = guest.ok(&format!("vnicctl -o json counter list ports/p0 --name {name}"))?;
    let all: serde_json::Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let values = all["counters"].as_array().into_iter().flatten();
    let value = values.map(|row| row["value"].as_u64()).next().flatten();
    value.with_context(|| format!("no {name} in {text}"))
}

/// A message is stamped and another frame is not; what the stamp says is in the system's time, and captures have when a frame arrived.
fn stamped(lab: &Lab, guest: &mut Guest, wire: &UnixDatagram) -> Result<()> {
    guest.ok("vnicctl capture live p0 --seconds 1000 >/tmp/capture 2>&1 & echo $! >/tmp/capture.pid")?;
    wait_for("a capture", PATIENCE, || {
        wire.send_to(&message(PROBE), lab.path("wire1"))?;
        ensure!(captured(guest, PROBE)? > 0, "{}", guest.ok("cat /tmp/capture")?);
        Ok(())
    })?;
    late(lab, guest, wire, OTHER)?;
    ensure!(counter(guest, "rx_hwtstamp")? == 0, "another frame is stamped");

    let began = late(lab, guest, wire, PTP)?;
    let (frames, wait) = (
        counter(guest, "rx_hwtstamp")?,
        counter(guest, "rx_hwtstamp_wait_ns")?,
    );
    ensure!(frames == 1, "{frames} frames are stamped");
    // It lay there while the daemon stood still, and not since 1970.
    let most = began.elapsed() + WAIT;
    ensure!(
        (WAIT.as_nanos() - WAIT.as_nanos() / 20..most.as_nanos()).contains(&wait.into()),
        "{wait} ns from the arrival to the data core, of {most:?}"
    );
    lab.step(&format!(
        "stamped by hardware: {} ms before the data core had it",
        wait / 1_000_000
    ));
    guest.ok("kill $(cat /tmp/capture.pid)").map(drop)
}

/// Sends a frame while the machine's daemon stands still, so that it takes the frame later than it arrives, as a capture says: a busy
/// machine may take another attempt, for what is old does not count. Returns when it began.
fn late(lab: &Lab, guest: &mut Guest, wire: &UnixDatagram, ethertype: u16) -> Result<Instant> {
    let received = "cat /sys/class/net/eth1/statistics/rx_packets";
    let began = Instant::now();
    for _ in 0..ATTEMPTS {
        let before = (guest.ok(received)?, captured(guest, ethertype)?);
        guest.ok("kill -STOP $(cat /tmp/vnicd.pid)")?;
        wire.send_to(&message(ethertype), lab.path("wire1"))?;
        wait_for("the frame at the device", PATIENCE, || {
            ensure!(guest.ok(received)? != before.0, "nothing came");
            Ok(())
        })?;
        let woken = format!(
            "sleep {}; date -u +%Y-%m-%dT%H:%M:%S; kill -CONT $(cat /tmp/vnicd.pid)",
            WAIT.as_secs()
        );
        let woken = guest.ok(&woken)?;
        wait_for("the frame in the capture", PATIENCE, || {
            ensure!(captured(guest, ethertype)? > before.1, "nothing came");
            Ok(())
        })?;
        let line = guest.ok(&format!("grep {ethertype:#x} /tmp/capture | tail -n 1"))?;
        // (Times of this form are in order as texts.)
        if line.as_str() < woken.trim() {
            return Ok(began);
        }
    }
    anyhow::bail!("captures have when a data core took a frame, not when it arrived")
}

/// Frames of an EtherType that the capture has.
fn captured(guest: &mut Guest, ethertype: u16) -> Result<u64> {
    let text = guest.ok(&format!("grep -c {ethertype:#x} /tmp/capture || true"))?;
    Ok(text.trim().parse()?)
}
