//! The event log as people and programs see it.

use crate::common::lab::{Lab, fields};
use tokio_stream::StreamExt as _;
use vnic_appliance::events::Notice;
use vnic_backend::NicEventKind;
use vnic_control::v1;
use vnic_control::v1::event::Severity;

/// The kinds of the events that are kept.
async fn kinds(lab: &Lab, filter: v1::EventFilter) -> Vec<String> {
    let request = v1::ListEventsRequest {
        filter: Some(filter),
        ..v1::ListEventsRequest::default()
    };
    let list = lab
        .events()
        .list_events(request)
        .await
        .expect("a list")
        .into_inner();
    list.events.into_iter().map(|e| e.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_listed_filtered_and_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let lab = Lab::with(dir, |dir| {
        let mut settings = crate::common::settings(dir, 1);
        // Its GIDs would be events, too.
        settings.adapters[0].rdma_socket = None;
        settings
    })
    .await;
    let follow = v1::FollowEventsRequest {
        filter: None,
        after_revision: Some(0),
    };
    let mut stream = lab
        .events()
        .follow_events(follow)
        .await
        .expect("a stream")
        .into_inner();
    let mut next = async || {
        let message = stream.next().await.expect("an event").expect("no error");
        message.event.expect("an event")
    };
    let started = next().await;
    assert_eq!((started.revision, started.kind.as_str()), (1, "daemon_started"));
    let first = next().await;
    assert_eq!((first.revision, first.kind.as_str()), (2, "adapter_added"));
    assert_eq!((first.adapter.as_str(), first.id), ("adapters/vf0", 0x1100));
    assert_eq!(first.severity(), Severity::Info);
    assert!(first.time.is_some() && first.monotonic_ns > 0);
    lab.said(&["fault", "add", "f", "--drop"]).await;
    let added = next().await;
    assert_eq!((added.revision, added.kind.as_str()), (3, "fault_added"));
    assert_eq!(added.severity(), Severity::Warning);
    assert_eq!(added.parameters["action"], "drop");
    lab.said(&["fault", "remove", "f"]).await;
    let removed = next().await;
    assert_eq!((removed.revision, removed.kind.as_str()), (4, "fault_removed"));
    assert!(removed.monotonic_ns >= added.monotonic_ns);

    let any = v1::EventFilter::default;
    assert_eq!(
        kinds(&lab, any()).await,
        ["daemon_started", "adapter_added", "fault_added", "fault_removed"]
    );
    let adapter = "adapters/vf0".to_owned();
    assert_eq!(
        kinds(&lab, v1::EventFilter { adapter, ..any() }).await,
        ["adapter_added"]
    );
    let kind = "fault_removed".to_owned();
    assert_eq!(
        kinds(&lab, v1::EventFilter { kind, ..any() }).await,
        ["fault_removed"]
    );
    let min_severity = Severity::Warning.into();
    assert_eq!(
        kinds(
            &lab,
            v1::EventFilter {
                min_severity,
                ..any()
            }
        )
        .await,
        ["fault_added"]
    );
    let id = added.id;
    assert_eq!(
        kinds(&lab, v1::EventFilter { id, ..any() }).await,
        ["fault_added"]
    );
    let since = removed.time;
    assert_eq!(
        kinds(&lab, v1::EventFilter { since, ..any() }).await,
        ["fault_removed"]
    );
    let port = "ports/p0".to_owned();
    assert!(kinds(&lab, v1::EventFilter { port, ..any() }).await.is_empty());

    let mut page = v1::ListEventsRequest {
        page_size: 2,
        ..v1::ListEventsRequest::default()
    };
    let one = lab
        .events()
        .list_events(page.clone())
        .await
        .expect("a page")
        .into_inner();
    page.page_token = one.next_page_token;
    let two = lab.events().list_events(page).await.expect("a page").into_inner();
    assert_eq!((one.events.len(), two.events.len()), (2, 2));
    assert!(two.next_page_token.is_empty());

    let wrong = v1::EventFilter {
        adapter: "vf0".to_owned(),
        min_severity: 99,
        ..any()
    };
    let request = v1::ListEventsRequest {
        filter: Some(wrong),
        ..v1::ListEventsRequest::default()
    };
    let status = lab.events().list_events(request).await.expect_err("wrong");
    assert_eq!(fields(&status), ["filter.adapter", "filter.min_severity"]);

    lab.said(&["adapter", "restart", "vf0"]).await;
    let restarted = loop {
        let event = next().await;
        if event.kind == "adapter_restarted" {
            break event;
        }
    };
    assert!(restarted.parameters["by"].starts_with("uid "), "{restarted:?}");
    assert_eq!(restarted.boot_id, added.boot_id);
    assert!(!added.boot_id.is_empty());

    let lines = lab.said(&["event", "list", "--min-severity", "warning"]).await;
    assert!(
        lines.contains("fault 1 \"f\" added") && lines.lines().count() == 1,
        "{lines}"
    );
    let json = lab
        .json(&[
            "event",
            "list",
            "vf0",
            "--since",
            "1h",
            "--kind",
            "adapter_added",
            "--last",
            "1",
        ])
        .await;
    assert_eq!(json["events"][0]["kind"], "adapter_added");
    for (option, unknown) in [("--kind", "port_lnik"), ("--id", "76")] {
        let said = lab.refused(1, &["event", "list", option, unknown]).await;
        assert!(
            said.contains(unknown) && said.contains("vnicctl event kinds"),
            "{said}"
        );
    }
    assert_eq!(lab.said(&["event", "list", "--id", "75"]).await, "no events\n");
    let known = lab.said(&["event", "kinds"]).await;
    for kind in vnic_appliance::events::kinds::KINDS {
        let id = kind.id.to_string();
        let is = |l: &str| l.split_whitespace().take(2).eq([id.as_str(), kind.name]);
        assert!(known.lines().any(is), "{known}");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_woken_by_what_they_show() {
    let lab = Lab::start(0).await;
    let mut notices = lab.daemon.control().hub.watch();
    lab.said(&["fault", "add", "f", "--drop"]).await;
    lab.said(&["adapter", "add", "blue"]).await;
    // Only so that news that do not come do not hang the tests.
    let patience = std::time::Duration::from_secs(60);
    let notice = tokio::time::timeout(patience, notices.recv()).await;
    let notice = notice.expect("news").expect("news");
    let Notice::Event(event) = notice else {
        panic!("a gap");
    };
    assert_eq!(
        (&event.owner[..], &event.kind),
        ("blue", &NicEventKind::AdapterAdded)
    );
    lab.end().await;
}

#[test]
fn the_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
    let made = vnic_appliance::events::kinds::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/events.md");
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == made,
        "docs/events.md is not what the table says: UPDATE_DOCS=1 cargo test writes it"
    );
}
