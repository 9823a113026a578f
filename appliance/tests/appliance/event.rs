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

/// Document of the events below 4096.
const SOURCE: &str =
    "WinOF-2 User Manual, Ethernet Network, Dropless Mode: Timeout Values and Timeout Notification";

/// Events of WinOF-2 that this NIC cannot have, and why: rows of a table in Markdown.
const NOT_MODELLED: &str = "\
| 0x0002 | firmware initialisation timed out | there is no firmware |
| 0x0004 | RSS configured while the system's RSS is off | the guest's own driver decides about RSS |
| 0x0006 | largest MTU of the firmware is too small | there is no firmware; an MTU out of range is refused when it is set |
| 0x0008 | function level reset did not complete | there is no PCI function to reset |
| 0x000C | fewer MSI-X vectors than the minimum | the VMM provides the interrupts |
| 0x0042 | firmware health report | there is no firmware |
| 0x0045 | firmware lacks requirements of IPoIB | Ethernet only |
| 0x01AC, 0x01AD, 0x01AE | page limit of virtual functions | their text is not published, and there is no firmware that lends pages |
| (number not published) | periodic event with the PCI place of each physical function | adapters have no PCI place on the host |
| (number not published) | IPoIB port state changed | Ethernet only |
| (number of the vendor's choice) | RoCE frame size does not fit the jumbo packet size | the path MTU of a queue pair is checked by the verb that sets it |
| mlx4: all | events of WinOF for ConnectX-3, among them 0x57 to 0x59 for dropless mode | another driver; dropless mode is told by 75, 77 and 78 |
";

/// `docs/events.md`.
fn markdown() -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "# Events\n\nWhat can be in the event log (`vnicctl event list`). This file is made from the table in \
         `appliance/src/events/kinds.rs`; a test holds it to that.\n\nNumbers below 4096 are WinOF-2's, with its words; \
         the others are this NIC's own. `vnicctl event list --id N` and `--kind KIND` filter by them.\n\n\
         The log keeps `events.keep` events of each origin (column *of*): of operators and the daemon, of what is outside \
         (refused clients, networks), of guests with their VMMs and frames. None takes the room of another. Where there are too many \
         of one origin, the oldest goes of the adapter or port that has the most.\n\n\
         | id | kind | severity | of | meaning |\n|---|---|---|---|---|\n",
    );
    for k in vnic_appliance::events::kinds::KINDS {
        let severities: Vec<&str> = k.levels.iter().map(|l| l.name()).collect();
        let _ = writeln!(
            text,
            "| {} | `{}` | {} | {} | {} |",
            k.id,
            k.name,
            severities.join(", "),
            k.origin.name(),
            k.meaning
        );
    }
    let _ = write!(
        text,
        "\n75, 77 and 78: {SOURCE}.\n\n## Not modelled\n\nEvents that the documents of WinOF-2 name and that cannot \
         happen here.\n\n| id | event | why not |\n|---|---|---|\n"
    );
    text + NOT_MODELLED
}

#[test]
fn the_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/events.md");
    let made = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/events.md");
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == made,
        "docs/events.md is not what the table says: UPDATE_DOCS=1 cargo test writes it"
    );
}
