//! `vnicctl clock` and `ClockService`: shown, set, adjusted, told.

use std::time::Duration;

use serde_json::{Value, json};
use vnic_appliance::metrics::{Snapshot, render};

use crate::common::lab::Lab;

fn offset(clock: &Value) -> i64 {
    clock["offset_ns"].as_i64().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_is_set_adjusted_and_told() {
    const HOUR: i64 = 3_600_000_000_000;
    let lab = Lab::start(1).await;
    let first = lab.json(&["clock", "show"]).await;
    assert_eq!(
        (&first["name"], &first["frequency_ppb"]),
        (&json!("clock"), &json!(0))
    );
    assert!(
        offset(&first).abs() < HOUR,
        "it begins at the system's time: {first}"
    );
    // An operator's step of a day is told from whatever the machine does meanwhile.
    let moved = lab
        .json(&[
            "clock",
            "adjust",
            "--offset",
            "86400000000000",
            "--frequency",
            "-250",
        ])
        .await;
    assert!((offset(&moved) - 24 * HOUR).abs() < HOUR, "{moved}");
    assert_eq!(moved["frequency_ppb"], json!(-250));
    let set = lab.json(&["clock", "set", "system"]).await;
    assert!(offset(&set).abs() < HOUR, "{set}");
    assert_eq!(set["frequency_ppb"], json!(-250), "only the time is set");
    let set = lab.json(&["clock", "set", "7.000000001"]).await;
    assert!(
        set["time"].as_str().expect("a time").starts_with("1970-01-01T00"),
        "{set}"
    );
    let told = lab.said(&["clock", "show"]).await;
    assert!(told.contains("-250 ppb"), "{told}");
    for (words, says) in [
        (
            &["clock", "adjust", "--frequency", "100000001"][..],
            "frequency_ppb: 100000001: -100000000 to 100000000 are allowed",
        ),
        (
            &["clock", "set", "9223372037"],
            "time: 9223372037 s: at most 9223372036 s are allowed",
        ),
        (
            &["clock", "adjust", "--offset", "0"],
            "neither this nor frequency_ppb",
        ),
    ] {
        let told = lab.refused(1, words).await;
        assert!(told.contains(says), "{told}");
    }
    lab.refused(2, &["clock", "adjust"]).await;
    lab.refused(2, &["clock", "set", "noon"]).await;
    let events = lab.said(&["event", "list", "--kind", "clock_changed"]).await;
    assert!(events.contains("has -250 ppb, changed by"), "{events}");
}

#[test]
fn metrics_have_its_offset_and_frequency() {
    let snapshot = Snapshot {
        clock: (-5_000, -250),
        ..Snapshot::default()
    };
    let page = render(&snapshot, Duration::default);
    for line in [
        "vnic_clock_offset_seconds -0.000005\n",
        "vnic_clock_frequency_ratio -0.00000025\n",
    ] {
        assert!(page.contains(line), "{line}");
    }
}
