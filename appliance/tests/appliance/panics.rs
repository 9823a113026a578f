//! Bugs of the daemon that end a thread: told, counted, and seen by probes.

use std::process::Command;

use serde_json::Value;
use vnic_appliance::panics;

use crate::common::lab::{Lab, text};

/// Tells the second run of the test from the first one.
const AGAIN: &str = "VNIC_TEST_PANICS";

/// What a panic leaves is of the whole process, so that this test runs once more, in one of its own.
#[test]
fn a_needed_thread_that_a_bug_has_ended_is_seen() {
    if std::env::var_os(AGAIN).is_some() {
        return in_this_process();
    }
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    again.args([
        "--exact",
        "panics::a_needed_thread_that_a_bug_has_ended_is_seen",
        "--nocapture",
    ]);
    let output = again.env(AGAIN, "1").output().expect("a second run");
    let told = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[tokio::main(flavor = "multi_thread")]
async fn in_this_process() {
    let mut notices = panics::watch();
    let lab = Lab::start(1).await;
    let url = lab
        .daemon
        .control()
        .endpoints
        .metrics_url
        .clone()
        .expect("metrics");
    let get = async |path: &str| {
        let url = url.replace("/metrics", path);
        let output = tokio::task::spawn_blocking(move || crate::common::get(&url));
        output.await.expect("an answer")
    };
    assert_eq!(get("/livez").await, "ok\n");
    lab.said(&["health"]).await;

    // A thread of one adapter costs that adapter; one that all need makes the daemon unwell.
    for name in ["vhost-vf0", "vnic-links"] {
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(|| panic!("a bug")).expect("a thread");
        assert!(thread.join().is_err());
        while let Ok(notice) = notices.try_recv() {
            lab.daemon.heed(notice).await;
        }
        if name == "vhost-vf0" {
            assert_eq!(get("/livez").await, "ok\n");
            lab.said(&["health"]).await;
        }
    }
    assert_eq!(get("/livez").await, "ended by a bug: vnic-links; restart vnicd\n");
    assert_eq!(
        lab.refused(1, &["health"]).await,
        "vnicctl: the daemon is not serving\n"
    );
    let page = get("/metrics").await;
    for line in [
        "vnic_panics_total 2",
        "vnic_thread_up{thread=\"vnic-links\"} 0",
        "vnic_thread_up{thread=\"vnic-news\"} 1",
    ] {
        assert!(page.lines().any(|l| l == line), "{line}");
    }
    let told = lab.json(&["event", "list", "--min-severity", "error"]).await;
    let kinds: Vec<(&str, &str)> = told["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|e| {
            let thread: &Value = &e["parameters"]["thread"];
            (
                e["kind"].as_str().expect("a kind"),
                thread.as_str().expect("a thread"),
            )
        })
        .collect();
    let all = [
        ("panic", "vhost-vf0"),
        ("panic", "vnic-links"),
        ("thread_ended", "vnic-links"),
    ];
    assert_eq!(kinds, all);
    // What does not need the thread still works.
    lab.said(&["adapter", "list"]).await;
    lab.end().await;
}
