//! Priorities of a real Linux: what its programs ask for by ToS is counted where it belongs, at both ends.

use anyhow::{Result, ensure};
use serde_json::Value;
use vnic_tests::lab::{self, Daemon, Guest, PATIENCE, Pair, iperf, ping, wait_for};

const CONFIG: &str = r#"
[[adapter]]
name = "vf0"
queue_pairs = 1

[[adapter]]
name = "vf1"
queue_pairs = 1
"#;

/// A counter of one priority.
fn priority(daemon: &Daemon<'_>, adapter: &str, name: &str, priority: u8) -> Result<u64> {
    let list = daemon.ctl(&["counter", "list", adapter, "--name", name])?;
    let rows = list["counters"].as_array().cloned().unwrap_or_default();
    let wanted = priority.to_string();
    let row = rows.iter().find(|r| r["labels"]["priority"] == wanted.as_str());
    // Large numbers are strings in the JSON form of protobuf.
    Ok(match row.map(|r| &r["value"]) {
        Some(Value::String(text)) => text.parse()?,
        Some(number) => number.as_u64().unwrap_or(0),
        None => 0,
    })
}

#[test]
fn a_linux_guests_tos_is_its_priority() {
    lab::case("uml-qos", |lab| {
        let mut daemon = Daemon::with_config(lab, CONFIG)?;
        let mut vms = Pair::boot(lab, &daemon, Guest::uml, |_, spec| spec.ip6 = None)?;
        for adapter in ["vf0", "vf1"] {
            daemon.ctl(&[
                "qos",
                "set",
                adapter,
                "--trust",
                "dscp",
                "--pfc",
                "0,0,0,1,0,0,0,0",
            ])?;
        }
        // DSCP 26, 46, and none: priorities 3, 5 and 0. Answers have the ToS of the question.
        for (tos, expected) in [("0x68", 3), ("0xb8", 5), ("0", 0)] {
            let before = [
                priority(&daemon, "vf0", "tx_frames", expected)?,
                priority(&daemon, "vf1", "tx_frames", expected)?,
            ];
            ping(&mut vms.one, &format!("-c 5 -i 0.1 -Q {tos} 10.0.0.2"))?;
            for (adapter, before) in ["vf0", "vf1"].into_iter().zip(before) {
                let sent = priority(&daemon, adapter, "tx_frames", expected)? - before;
                // Without a ToS there is other traffic, too: ARP for one.
                let right = sent == 5 || expected == 0 && sent > 5;
                ensure!(right, "{adapter} sent {sent} with priority {expected}");
            }
        }
        for counter in ["tx_frames", "rx_frames"] {
            for p in [1, 2, 4, 6, 7] {
                let n = priority(&daemon, "vf0", counter, p)?;
                ensure!(n == 0, "{counter} of priority {p}: {n}");
            }
        }
        lab.step("ping with a ToS lands in its priority");
        iperf(&mut vms.one, "-c 10.0.0.2 -t 2 --dscp 26")?;
        let sent = priority(&daemon, "vf0", "tx_frames", 3)?;
        ensure!(sent > 100, "iperf3 sent {sent} with priority 3");
        // Counters of one end follow those of the other a moment later; segments that were joined count as one there.
        wait_for("the same at the other end", PATIENCE, || {
            let sent = priority(&daemon, "vf0", "tx_frames", 3)?;
            let joined = daemon.counter("vf1", "rx_rsc_packets")? - daemon.counter("vf1", "rx_rsc_events")?;
            let received = priority(&daemon, "vf1", "rx_frames", 3)? + joined;
            ensure!(sent == received, "{sent} sent, {received} received");
            Ok(())
        })?;
        let lost = daemon.counter("vf1", "drops")?;
        lab.step(&format!("TCP on priority 3: {sent} frames, {lost} drops at vf1"));
        ensure!(daemon.stop()?.success(), "vnicd did not end well");
        Ok(())
    });
}
