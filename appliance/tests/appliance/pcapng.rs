//! Captured frames as pcapng: what tshark reads is what was captured.

use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use vnic_appliance::capture::PcapngWriter;
use vnic_backend::{CapturedFrame, Direction, DropReason, PortId};

fn frame(direction: Direction, drop: Option<DropReason>, kept: usize) -> CapturedFrame {
    // An ARP request: broadcast, from 02:00:00:00:00:01.
    let mut data = vec![0xff; 6];
    data.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    data.extend([2, 0, 0, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 192, 0, 2, 2]);
    let original_len = u32::try_from(data.len()).expect("short");
    data.truncate(kept);
    CapturedFrame {
        time: UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789),
        port: PortId(0),
        direction,
        drop,
        comment: None,
        original_len,
        data,
    }
}

#[test]
fn tshark_reads_names_times_directions_and_drop_reasons() {
    if !crate::common::installed("tshark", "tshark_reads_names_times_directions_and_drop_reasons") {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.pcapng");
    let mut writer = PcapngWriter::new(262_144).expect("header");
    writer.interface("vf0").expect("interface");
    let mut bytes = writer.take();
    for (name, f) in [
        ("vf0", frame(Direction::Ingress, None, 42)),
        ("p0", frame(Direction::Egress, Some(DropReason::PortTransmit), 42)),
        ("vf0", frame(Direction::Egress, Some(DropReason::NoRxBuffer), 21)),
    ] {
        // Every prefix that ends between two takes is a file of its own.
        writer.frame(name, &f).expect("frame");
        bytes.extend(writer.take());
    }
    std::fs::write(&file, bytes).expect("file");

    let output = Command::new("tshark")
        .args([
            "-r",
            file.to_str().expect("a path"),
            "-T",
            "fields",
            "-E",
            "separator=|",
        ])
        .args(
            [
                "frame.interface_name",
                "frame.time_epoch",
                "frame.packet_flags_direction",
                "frame.comment",
                "frame.len",
                "frame.cap_len",
                "eth.src",
                "arp.dst.proto_ipv4",
            ]
            .iter()
            .flat_map(|f| ["-e", f]),
        )
        .output()
        .expect("tshark");
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    let time = "1700000000.123456789";
    assert_eq!(
        lines,
        [
            format!("vf0|{time}|1||42|42|02:00:00:00:00:01|192.0.2.2"),
            format!("p0|{time}|2|dropped: port_transmit|42|42|02:00:00:00:00:01|192.0.2.2"),
            format!("vf0|{time}|2|dropped: no_rx_buffer|42|21|02:00:00:00:00:01|"),
        ]
        .map(|line| line
            // Depends on the version: a direction is shown as a number in decimal or hexadecimal.
            .replace(
                "|1|",
                if text.contains("0x") {
                    "|0x00000001|"
                } else {
                    "|1|"
                }
            )
            .replace(
                "|2|",
                if text.contains("0x") {
                    "|0x00000002|"
                } else {
                    "|2|"
                }
            )),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
