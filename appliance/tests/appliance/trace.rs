//! `vnicctl trace` and `TraceFrame`: what people and programs see.

use serde_json::json;

use crate::common::lab::Lab;

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_is_traced_step_by_step() {
    let lab = Lab::start(2).await;
    // No guest is there: its address is known, and nobody takes it.
    let text = lab.said(&["trace", "vf0", "--to", "vf1"]).await;
    for part in [
        "vf0 sends up to 1514",
        "VLAN 1\n",
        "behind vf1 (its own address)",
        "DROPPED",
        "receiver_down",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let vf0 = lab.json(&["adapter", "show", "vf0"]).await;
    let mac = vf0["macs"][0].as_str().expect("an address").to_owned();
    for (words, reason) in [
        (&["--to", mac.as_str()][..], "own_address"),
        (
            &["--to", "vf1", "--source", "02:00:00:00:00:77"],
            "spoofed_source",
        ),
        (&["--to", "vf1", "--length", "1515"], "mtu_exceeded"),
        (
            &["--to", "vf1", "--vlan", "9", "--length", "1519"],
            "mtu_exceeded",
        ),
        (&["--to", "broadcast", "--protocol", "pause"], "mac_control"),
        (&["--to", "broadcast", "--protocol", "arp"], "no_destination"),
        (&["--frame", "ffffffffffff 030000000001 0800"], "invalid_source"),
    ] {
        let all = [&["trace", "vf0"], words].concat();
        assert_eq!(lab.json(&all).await["dropped"], json!(reason), "{words:?}");
    }
    // Members of an access VLAN send no tags.
    lab.said(&["adapter", "set", "vf0", "--access-vlan", "20"]).await;
    let all = lab.json(&["trace", "vf0", "--to", "vf1", "--vlan", "9"]).await;
    assert_eq!(all["dropped"], json!("vlan_not_allowed"));
    assert_eq!(all["steps"][1]["name"], json!("admission"));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_frame_is_refused() {
    let lab = Lab::start(1).await;
    for (words, part) in [
        (
            &[
                "trace",
                "nobody",
                "--to",
                "broadcast",
                "--source",
                "02:00:00:00:00:01",
            ][..],
            "nobody",
        ),
        (&["trace", "vf0", "--to", "nobody"], "nobody"),
        (
            &["trace", "vf0", "--frame", "0102"],
            "head: 2 bytes; allowed are 14 to 512",
        ),
        (
            &["trace", "vf0", "--to", "broadcast", "--length", "20"],
            "length: 20; allowed are",
        ),
    ] {
        let text = lab.refused(1, words).await;
        assert!(text.contains(part), "{text}");
    }
    for words in [
        &["trace", "vf0"][..],
        &["trace", "vf0", "--to", "broadcast", "--frame", "00"],
        &["trace", "vf0", "--to", "broadcast", "--vlan", "4095"],
        &["trace", "vf0", "--frame", "xyz"],
    ] {
        lab.refused(2, words).await;
    }
    lab.end().await;
}
