//! `vnicctl top` into a pipe: pages without escape codes, and rates of real frames.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::lab::Lab;
use crate::common::wires::Wires;
use crate::status::Broadcasts;

/// Longer than anything here takes; it only keeps a test from hanging for ever.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn pages_in_a_pipe_are_plain() {
    let lab = Lab::start(3).await;
    let top = ["top", "--interval", "100ms", "--iterations", "2"];
    let text = lab.said(&top).await;
    assert!(!text.contains('\x1b'), "{text:?}");
    assert_eq!(text.matches("vnicctl top").count(), 2, "{text}");
    assert_eq!(text.matches("\nADAPTER ").count(), 2, "{text}");
    assert_eq!(text.matches("\nvf1 ").count(), 2, "{text}");
    assert_eq!(text.matches("BUSY %").count(), 2, "{text}");
    // There is none of these.
    assert!(!text.contains("\nPORT ") && !text.contains("\nDEV "), "{text}");

    let text = lab
        .said(&[&top[..], &["--section", "adapters", "--limit", "1"]].concat())
        .await;
    assert_eq!(text.matches("and 2 more").count(), 2, "{text}");
    assert!(!text.contains("BUSY %"), "{text}");
    let text = lab.said(&[&top[..], &["vf2"]].concat()).await;
    assert!(text.contains("\nvf2 ") && !text.contains("\nvf1 "), "{text}");
    assert!(!text.contains("BUSY %"), "{text}");

    let all = [&["-o", "json"], &top[..], &["--sort", "name"]].concat();
    let lines = lab.said(&all).await;
    let pages: Vec<Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).expect("JSON"))
        .collect();
    assert_eq!(pages.len(), 2);
    let names = pages[1]["adapters"].as_array().expect("adapters").iter();
    let names: Vec<_> = names.map(|a| a["name"].as_str().expect("text")).collect();
    assert_eq!(names, ["vf0", "vf1", "vf2"]);
    assert_eq!(pages[0]["cores"][0]["cpu"], crate::common::cpu());

    let said = lab.refused(1, &["top", "nobody"]).await;
    assert!(said.contains("there is no adapter nobody"), "{said}");
    let said = lab.refused(2, &["top", "--interval", "1ms"]).await;
    assert!(said.contains("100 ms to 1 hour"), "{said}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_are_those_of_the_wire() {
    let Some(wires) = Wires::new("rates_are_those_of_the_wire", 1) else {
        return;
    };
    let lab = Lab::start(1).await;
    wires.ports(&lab).await;
    let broadcasts = Broadcasts::new(wires.ends(0).1, 17);
    let top = ["-o", "json", "top", "--iterations", "1", "--section", "ports"];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let page: Value = serde_json::from_str(&lab.said(&top).await).expect("JSON");
        let port = &page["ports"][0];
        assert_eq!((&port["name"], &port["state"]), (&"p0".into(), &"up".into()));
        let (frames, bits) = (port["rx_pps"].as_u64(), port["rx_bps"].as_u64());
        // A frame has 60 bytes at least, but one of a veth pair is not filled up: 14 of Ethernet, 28 of IP and UDP.
        if frames > Some(0) {
            assert!(bits >= frames.map(|n| n * 8 * 42), "{page:#}");
            break;
        }
        assert!(Instant::now() < deadline, "{page:#}");
    }
    drop(broadcasts);
    lab.end().await;
}
