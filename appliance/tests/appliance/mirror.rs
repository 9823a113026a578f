//! `vnicctl mirror` and `MirrorService`: made, listed, ended, stored, told.

use serde_json::json;

use crate::common::lab::Lab;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_made_listed_and_ended() {
    let lab = Lab::start(4).await;
    assert!(lab.said(&["mirror", "list"]).await.contains("no mirror sessions"));
    let made = lab
        .json(&[
            "mirror",
            "create",
            "ids",
            "--source",
            "vf0",
            "--destination",
            "vf1",
        ])
        .await;
    assert_eq!(made["name"], json!("mirrors/ids"));
    assert_eq!(
        (&made["source"], &made["destination"]),
        (&json!("adapters/vf0"), &json!("adapters/vf1"))
    );
    assert_eq!(
        (&made["direction"], &made["lifetime"]),
        (&json!("DIRECTION_BOTH"), &json!("LIFETIME_STORED"))
    );
    let more = [
        "mirror",
        "create",
        "sent",
        "--source",
        "vf2",
        "--direction",
        "tx",
        "--destination",
        "vf1",
    ];
    lab.said(&more).await;
    let table = lab.said(&["mirror", "list"]).await;
    for part in ["ids   runs   vf0", "sent  runs   vf2     tx"] {
        assert!(table.contains(part), "{table}");
    }
    for (words, part) in [
        (
            &["again", "--source", "vf1", "--destination", "vf3"][..],
            "mirror.source: vf1 is the destination of mirror ids",
        ),
        (
            &["again", "--source", "vf3", "--destination", "vf0"],
            "mirror.destination: vf0 is the source of mirror ids",
        ),
        (
            &["again", "--source", "vf3", "--destination", "vf3"],
            "mirror.destination: the source cannot be",
        ),
        (
            &["again", "--source", "vf3", "--destination", "p9"],
            "mirror.destination: no adapter or port is named p9",
        ),
        (
            &["ids", "--source", "vf3", "--destination", "vf1"],
            "ALREADY_EXISTS",
        ),
    ] {
        let told = lab.refused(1, &[&["mirror", "create"], words].concat()).await;
        assert!(told.contains(part), "{part}: {told}");
    }
    let told = lab.refused(1, &["mirror", "show", "none"]).await;
    assert!(told.contains("NOT_FOUND"), "{told}");
    // A trace knows it, and status says nothing against it.
    let trace = lab.json(&["trace", "vf1", "--to", "broadcast"]).await;
    assert_eq!(trace["dropped"], json!("mirror_destination"));
    let shown = lab.said(&["mirror", "show", "ids"]).await;
    assert!(shown.contains("adapters/vf1"), "{shown}");
    lab.said(&["mirror", "remove", "ids", "sent"]).await;
    assert!(lab.said(&["mirror", "list"]).await.contains("no mirror sessions"));
    let events = lab.said(&["event", "list", "--kind", "mirror_added"]).await;
    assert!(
        events.contains("mirror ids copies frames of vf0 (both) to vf1, made by"),
        "{events}"
    );
    let events = lab.said(&["event", "list", "--kind", "mirror_removed"]).await;
    assert!(
        events.contains("mirror sent from vf2 to vf1 ended after 0 copies by"),
        "{events}"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_come_back_and_wait_for_what_is_not_there() {
    let lab = Lab::start(2).await;
    lab.said(&["adapter", "add", "probe"]).await;
    lab.said(&[
        "mirror",
        "create",
        "a",
        "--source",
        "vf0",
        "--direction",
        "rx",
        "--destination",
        "probe",
    ])
    .await;
    lab.said(&[
        "mirror",
        "create",
        "b",
        "--source",
        "vf1",
        "--destination",
        "probe",
    ])
    .await;
    lab.said(&[
        "mirror",
        "create",
        "c",
        "--source",
        "vf1",
        "--destination",
        "probe",
    ])
    .await;
    lab.said(&["mirror", "remove", "c"]).await;
    // vf1 is not in the configuration any more.
    let lab = lab.restart(1).await;
    let all = lab.json(&["mirror", "list"]).await;
    let all = all["mirrors"].as_array().expect("sessions");
    let names: Vec<_> = all.iter().map(|m| m["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["mirrors/a", "mirrors/b"]);
    assert_eq!(
        (&all[0]["direction"], &all[0]["problem"]),
        (&json!("DIRECTION_RX"), &json!(""))
    );
    assert_eq!(all[1]["problem"], json!("no adapter or port is named vf1"));
    let trace = lab.json(&["trace", "probe", "--to", "broadcast"]).await;
    assert_eq!(trace["dropped"], json!("mirror_destination"));
    lab.said(&["adapter", "add", "vf1"]).await;
    let back = lab.json(&["mirror", "show", "b"]).await;
    assert_eq!(back["problem"], json!(""));
    lab.end().await;
}
