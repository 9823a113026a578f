//! Fault rules as people and programs see them: gRPC and the command line.

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use crate::common::lab::{Lab, fields, text};
use tokio_stream::StreamExt as _;
use tonic::Code;
use vnic_appliance::config::{Environment, Overrides, Settings};
use vnic_control::v1;

fn create(id: &str, fault: v1::Fault) -> v1::CreateFaultRequest {
    v1::CreateFaultRequest {
        fault_id: id.to_owned(),
        fault: Some(fault),
    }
}

fn drop_all() -> v1::Fault {
    v1::Fault {
        action: Some(v1::fault::Action::Drop(v1::DropFault {})),
        ..v1::Fault::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_come_and_go() {
    let lab = Lab::start(2).await;
    let mut service = lab.faults();
    let wish = v1::Fault {
        r#match: Some(v1::FaultMatch {
            from: "adapters/vf0".to_owned(),
            to: "adapters/vf1".to_owned(),
            roce: true,
            destination_qp: Some(17),
            opcodes: vec![4, 6],
            psn: Some(v1::PsnRange { first: 5, last: 1 }),
            ethertype: Some(0x0800),
        }),
        skip: 1,
        probability: Some(0.25),
        count: Some(9),
        seed: Some(77),
        action: Some(v1::fault::Action::Delay(v1::DelayFault {
            delay: Some(prost_types::Duration {
                seconds: 0,
                nanos: 1_200_000,
            }),
            jitter: None,
        })),
        ..v1::Fault::default()
    };
    let made = service
        .create_fault(create("slow", wish.clone()))
        .await
        .expect("create")
        .into_inner();
    assert_eq!((made.name.as_str(), made.id), ("faults/slow", 1));
    assert_eq!(made.r#match, wish.r#match);
    assert_eq!(
        (made.probability, made.skip, made.count, made.seed),
        (Some(0.25), 1, Some(9), Some(77))
    );
    assert_eq!((made.matched, made.injected, made.spent), (0, 0, false));
    assert_eq!(made.lifetime(), v1::Lifetime::UntilDaemonEnds);
    assert!(made.create_time.is_some());
    let get = |name: &str| v1::GetFaultRequest {
        name: name.to_owned(),
    };
    let got = service.get_fault(get("faults/slow")).await.expect("get");
    assert_eq!(got.into_inner(), made);

    // Without a seed the daemon chooses one and tells it.
    let other = service
        .create_fault(create("lossy", drop_all()))
        .await
        .expect("create");
    assert!(other.into_inner().seed.is_some());
    let names: Vec<String> = lab.list().await.into_iter().map(|f| f.name).collect();
    assert_eq!(names, ["faults/slow", "faults/lossy"]);

    // An adapter that a rule is about may go and come back.
    let gone = lab.ctl(&["adapter", "remove", "vf1"]).await;
    assert!(gone.status.success());
    assert_eq!(lab.list().await.len(), 2);

    for name in ["slow", "lossy"] {
        let name = format!("faults/{name}");
        let last = service
            .delete_fault(v1::DeleteFaultRequest { name: name.clone() })
            .await;
        assert_eq!(last.expect("delete").into_inner().name, name);
    }
    let gone = service.get_fault(get("faults/slow")).await.expect_err("gone");
    assert_eq!(gone.code(), Code::NotFound);
    assert!(lab.list().await.is_empty());
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_name_every_field() {
    let lab = Lab::start(1).await;
    let mut service = lab.faults();
    let mut refused = async |fault: v1::Fault| {
        service
            .create_fault(create("f", fault))
            .await
            .expect_err("refused")
    };
    let wrong = v1::Fault {
        r#match: Some(v1::FaultMatch {
            from: "adapters/nobody".to_owned(),
            to: "vf0".to_owned(),
            destination_qp: Some(1 << 24),
            opcodes: vec![4, 256],
            psn: Some(v1::PsnRange {
                first: 0,
                last: 1 << 24,
            }),
            ethertype: Some(65_536),
            roce: false,
        }),
        probability: Some(1.5),
        action: Some(v1::fault::Action::Corrupt(v1::CorruptFault {
            bits: 9,
            offset: Some(65_536),
        })),
        ..v1::Fault::default()
    };
    let status = refused(wrong).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert_eq!(
        fields(&status),
        [
            "fault.match.from",
            "fault.match.to",
            "fault.match.destination_qp",
            "fault.match.opcodes[1]",
            "fault.match.psn.last",
            "fault.match.ethertype",
            "fault.probability",
            "fault.corrupt.offset",
            "fault.corrupt.bits",
        ]
    );
    assert!(
        status.message().contains("adapters/nobody does not exist"),
        "{status:?}"
    );
    assert_eq!(fields(&refused(v1::Fault::default()).await), ["fault.action"]);
    let never = v1::Fault {
        action: Some(v1::fault::Action::Delay(v1::DelayFault::default())),
        ..v1::Fault::default()
    };
    assert_eq!(fields(&refused(never).await), ["fault.delay.delay"]);

    let mut service = lab.faults();
    let no_name = service
        .create_fault(create("A b", drop_all()))
        .await
        .expect_err("no name");
    assert_eq!(fields(&no_name), ["fault_id"]);
    service
        .create_fault(create("f", drop_all()))
        .await
        .expect("create");
    let again = service
        .create_fault(create("f", drop_all()))
        .await
        .expect_err("taken");
    assert_eq!(again.code(), Code::AlreadyExists);
    let odd = v1::GetFaultRequest { name: "f".to_owned() };
    let odd = service.get_fault(odd).await.expect_err("no resource name");
    assert_eq!(fields(&odd), ["name"]);

    // All or nothing.
    let batch = |requests| v1::BatchCreateFaultsRequest { requests };
    let bad = v1::Fault {
        probability: Some(-1.0),
        ..drop_all()
    };
    let both = vec![create("x", drop_all()), create("y", bad)];
    let status = service.batch_create_faults(batch(both)).await.expect_err("wrong");
    assert_eq!(fields(&status), ["requests[1].fault.probability"]);
    let both = vec![create("x", drop_all()), create("f", drop_all())];
    let status = service.batch_create_faults(batch(both)).await.expect_err("taken");
    assert_eq!(status.code(), Code::AlreadyExists);
    assert_eq!(lab.list().await.len(), 1);
    let many = (0..65).map(|i| create(&format!("m{i}"), drop_all())).collect();
    let status = service
        .batch_create_faults(batch(many))
        .await
        .expect_err("too many");
    assert_eq!(fields(&status), ["requests"]);
    let many = (0..64).map(|i| create(&format!("m{i}"), drop_all())).collect();
    let status = service
        .batch_create_faults(batch(many))
        .await
        .expect_err("one too many");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let good = vec![create("x", drop_all()), create("y", drop_all())];
    service.batch_create_faults(batch(good)).await.expect("both");
    assert_eq!(lab.list().await.len(), 3);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_makes_shows_and_removes_rules() {
    let lab = Lab::start(2).await;
    assert_eq!(lab.said(&["fault", "list"]).await, "no faults\n");
    let add = [
        "fault",
        "add",
        "slow",
        "--from",
        "vf0",
        "--to",
        "vf1",
        "--delay",
        "1.2ms",
        "--jitter",
        "300us",
        "--probability",
        "12.5%",
        "--qp",
        "0x11",
        "--opcode",
        "rc_send_only",
        "--opcode",
        "6",
        "--psn",
        "10-20",
        "--skip",
        "1",
        "--count",
        "5",
        "--seed",
        "9",
    ];
    let shown = lab.said(&add).await;
    for part in [
        "delay 1.2ms +0..300µs",
        "vf0",
        "QP 17, RC SEND_ONLY or RC RDMA_WRITE_FIRST, PSN 10-20",
        "12.5 %",
        "until the daemon ends",
    ] {
        assert!(shown.contains(part), "{part} in:\n{shown}");
    }
    for (name, action, words) in [
        ("a", &["--drop"][..], "drop"),
        (
            "b",
            &["--reorder", "3", "--at-most", "5ms"],
            "reorder by 3, at most 5ms",
        ),
        ("c", &["--duplicate", "2"], "duplicate 2"),
        ("d", &["--corrupt", "1"], "corrupt 1 bit"),
        (
            "e",
            &["--corrupt", "8", "--offset", "60"],
            "corrupt 8 bits in byte 60",
        ),
        ("f", &["--mark-ce", "--roce", "--ethertype", "0x86dd"], "mark CE"),
    ] {
        let shown = lab.said(&[&["fault", "add", name], action].concat()).await;
        assert!(shown.contains(words), "{words} in:\n{shown}");
    }
    let table = lab.said(&["fault", "list"]).await;
    assert_eq!(table.lines().count(), 8, "{table}");
    assert!(table.starts_with("ID  NAME"), "{table}");
    let json = lab.json(&["fault", "show", "slow"]).await;
    assert_eq!(json["name"], "faults/slow");
    assert_eq!(
        (&json["match"]["from"], &json["seed"]),
        (&"adapters/vf0".into(), &9.into())
    );
    assert_eq!(json["delay"]["delay"], "0.001200s");

    lab.said(&["fault", "remove", "a", "b"]).await;
    assert_eq!(lab.list().await.len(), 5);
    lab.said(&["fault", "remove", "--all"]).await;
    assert!(lab.list().await.is_empty());

    for (code, wrong, words) in [
        (2, &["fault", "add", "x"][..], "--drop"),
        (
            2,
            &["fault", "add", "x", "--drop", "--mark-ce"],
            "cannot be used with",
        ),
        (
            2,
            &["fault", "add", "x", "--drop", "--jitter", "1ms"],
            "cannot be used with",
        ),
        (
            2,
            &["fault", "add", "x", "--drop", "--probability", "2"],
            "0 to 1",
        ),
        (
            2,
            &["fault", "add", "x", "--drop", "--qp", "16777216"],
            "0 to 16777215",
        ),
        (2, &["fault", "add", "x", "--delay", "5"], "such as 1.2ms"),
        (2, &["fault", "add", "x", "--delay", "61s"], "at most 60s"),
        (2, &["fault", "add", "x", "--duplicate", "17"], "1 to 16"),
        (2, &["fault", "remove"], "NAME"),
        (
            1,
            &["fault", "add", "x", "--drop", "--to", "nobody"],
            "adapters/nobody does not exist",
        ),
        (1, &["fault", "remove", "x"], "NOT_FOUND"),
    ] {
        let said = lab.refused(code, wrong).await;
        assert!(said.contains(words), "{words} in:\n{said}");
    }
    let help = lab.said(&["fault", "add", "--help"]).await;
    assert!(help.contains("Examples:") && help.contains("--mark-ce"), "{help}");
    let completions = lab.said(&["completions", "bash"]).await;
    assert!(completions.contains("--at-most") && completions.contains("min-severity"));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_rules_is_loaded_whole_or_not_at_all() {
    let lab = Lab::start(2).await;
    let file = lab.dir.path().join("bad-day.toml");
    let path = file.to_str().expect("a path").to_owned();
    let write = |text: &str| std::fs::write(&file, text).expect("written");
    let two = "[[fault]]\nname = \"one\"\nfrom = \"vf0\"\naction = \"drop\"\n\
               [[fault]]\nname = \"two\"\nto = \"vf1\"\nprobability = 0.5\naction = \"duplicate\"\n";
    write(&two.replace("0.5", "5"));
    let said = lab.refused(2, &["fault", "load", &path]).await;
    assert!(said.contains("bad-day.toml:8:15: fault[1].probability"), "{said}");
    write(&two.replace("vf1", "vf9"));
    let said = lab.refused(1, &["fault", "load", &path]).await;
    assert!(said.contains("requests[1].fault.match.to"), "{said}");
    assert!(lab.list().await.is_empty());
    write(two);
    let table = lab.said(&["fault", "load", &path]).await;
    assert_eq!(table.lines().count(), 3, "{table}");
    let said = lab.refused(1, &["fault", "load", &path]).await;
    assert!(said.contains("ALREADY_EXISTS"), "{said}");
    lab.refused(2, &["fault", "load", "/nowhere/at/all"]).await;
    assert_eq!(lab.list().await.len(), 2);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_configuration_are_in_force_at_the_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "[metrics]\nlisten = \"127.0.0.1:0\"\n[[adapter]]\nname = \"a\"\n\
                  [[fault]]\nname = \"f\"\nto = \"a\"\naction = \"drop\"\n";
    let lab = Lab::with(dir, |dir| {
        let overrides = Overrides {
            socket_dir: Some(dir.to_owned()),
            ..Overrides::default()
        };
        Settings::from_text(Path::new("x.toml"), config, &overrides, &Environment::current()).expect("valid")
    })
    .await;
    assert!(lab.daemon.ready_line().contains("1 fault"));
    let all = lab.list().await;
    assert_eq!(all[0].lifetime(), v1::Lifetime::Configured);
    lab.said(&["fault", "remove", "f"]).await;
    lab.said(&["fault", "add", "f", "--drop"]).await;
    assert_eq!(lab.list().await[0].lifetime(), v1::Lifetime::UntilDaemonEnds);
    lab.end().await;
}

fn ip(arguments: &[&str]) -> bool {
    let done = Command::new("ip").args(arguments).output();
    done.is_ok_and(|o| o.status.success())
}

/// Frames of the host between two TAP ports. Needs CAP_NET_ADMIN.
#[tokio::test(flavor = "multi_thread")]
async fn injections_are_in_counters_events_and_captures() {
    const TEST: &str = "injections_are_in_counters_events_and_captures";
    let name = |k: u8| format!("vnf{}{k}", std::process::id());
    let (tap, other) = (name(0), name(1));
    if !ip(&["tuntap", "add", "dev", &tap, "mode", "tap"]) {
        eprintln!("SKIP {TEST}: no right to make a TAP device");
        return;
    }
    assert!(ip(&["tuntap", "del", "dev", &tap, "mode", "tap"]));
    let lab = Lab::start(1).await;
    for (port, ifname) in [("p0", &tap), ("p1", &other)] {
        lab.said(&["port", "add", port, "--tap", ifname]).await;
    }
    lab.said(&["capture", "start", "--name", "c", "p1"]).await;
    let add = [
        "fault",
        "add",
        "lossy",
        "--from",
        "p0",
        "--to",
        "p1",
        "--ethertype",
        "0x0806",
        "--drop",
    ];
    lab.said(&add).await;
    // An address of a network for documentation (RFC 5737); asking for a neighbour makes a broadcast.
    assert!(ip(&["addr", "add", "198.51.100.1/24", "dev", &tap]));
    assert!(ip(&["link", "set", &other, "up"]) && ip(&["link", "set", &tap, "up"]));
    let socket = UdpSocket::bind("198.51.100.1:0").expect("a socket");
    socket.send_to(b"hello", "198.51.100.2:9").expect("sent");

    let follow = v1::FollowEventsRequest {
        filter: Some(v1::EventFilter {
            kind: "fault_injected".to_owned(),
            port: "ports/p1".to_owned(),
            ..v1::EventFilter::default()
        }),
        after_revision: Some(0),
    };
    let mut stream = lab
        .events()
        .follow_events(follow)
        .await
        .expect("a stream")
        .into_inner();
    let event = stream.next().await.expect("an event").expect("no error");
    let event = event.event.expect("an event");
    assert_eq!(event.parameters["fault"], "lossy");
    assert_eq!(
        (
            event.parameters["from"].as_str(),
            event.parameters["effect"].as_str()
        ),
        ("p0", "drop")
    );
    let fault = &lab.list().await[0];
    assert!(fault.matched >= 1 && fault.injected == fault.matched);
    let drops = lab
        .json(&["counter", "list", "p1", "--name", "drops", "--nonzero"])
        .await;
    assert!(drops.to_string().contains("fault_injected"), "{drops}");

    if crate::common::installed("tshark", TEST) {
        let path = lab.json(&["capture", "stop", "c"]).await["path"].clone();
        let output = Command::new("tshark")
            .args([
                "-r",
                path.as_str().expect("a path"),
                "-Y",
                "arp",
                "-T",
                "fields",
                "-e",
                "frame.comment",
            ])
            .output()
            .expect("tshark");
        let said = text(&output.stdout);
        assert!(said.contains("fault 1 \"lossy\": drop"), "{said}");
        assert!(said.contains("dropped: fault_injected"), "{said}");
    }
    lab.end().await;
}

/// What an honest program sees of recordings is in `tests/tests/rdma`; here is what the API says without one.
#[tokio::test(flavor = "multi_thread")]
async fn recordings_begin_and_end() {
    let lab = Lab::start(2).await;
    let mut service = lab.faults();
    let outcomes = v1::ListOutcomesRequest::default();
    let none = service.list_outcomes(outcomes.clone()).await.expect("a list");
    assert_eq!(none.into_inner(), v1::ListOutcomesResponse::default());
    let stopped = service.stop_recording(v1::StopRecordingRequest {}).await;
    assert_eq!(stopped.expect_err("none runs").code(), Code::NotFound);
    let start = |adapters: &[&str], limit| v1::StartRecordingRequest {
        adapters: adapters.iter().map(|&name| name.to_owned()).collect(),
        limit,
    };
    for (request, code, field) in [
        (start(&["vf0"], 0), Code::InvalidArgument, "adapters[0]"),
        (start(&[], (1 << 20) + 1), Code::InvalidArgument, "limit"),
    ] {
        let status = service.start_recording(request).await.expect_err("wrong");
        assert_eq!((status.code(), fields(&status)), (code, vec![field.to_owned()]));
    }
    let unknown = service.start_recording(start(&["adapters/nobody"], 0)).await;
    assert_eq!(unknown.expect_err("unknown").code(), Code::NotFound);
    let began = service
        .start_recording(start(&[], 0))
        .await
        .expect("it begins")
        .into_inner();
    assert_eq!(began.adapters, ["adapters/vf0", "adapters/vf1"]);
    assert!(began.running && began.limit == 65_536 && began.start_time.is_some());
    let second = service.start_recording(start(&[], 0)).await;
    assert_eq!(second.expect_err("one runs").code(), Code::AlreadyExists);
    let runs = service
        .list_outcomes(outcomes.clone())
        .await
        .expect("a list")
        .into_inner();
    assert_eq!((runs.outcomes.len(), runs.recording), (0, Some(began.clone())));
    let ended = service
        .stop_recording(v1::StopRecordingRequest {})
        .await
        .expect("it ends");
    let ended = ended.into_inner();
    assert_eq!(
        (ended.running, ended.requests, ended.start_time),
        (false, 0, began.start_time)
    );
    let wrong = v1::ListOutcomesRequest {
        filter: 9,
        ..outcomes
    };
    let wrong = service.list_outcomes(wrong).await.expect_err("no filter");
    assert_eq!(fields(&wrong), ["filter"]);

    // A rehearsal begins none.
    lab.said(&["--validate-only", "fault", "record", "start"]).await;
    let report = lab.said(&["fault", "report"]).await;
    assert!(report.starts_with("no such requests\n"), "{report}");
    lab.said(&["fault", "record", "start", "--adapter", "vf1"]).await;
    lab.said(&["--validate-only", "fault", "record", "stop"]).await;
    let report = lab.refused(1, &["fault", "report"]).await;
    assert!(report.contains("still runs"), "{report}");
    let shown = lab.said(&["fault", "record", "stop"]).await;
    assert!(
        shown.contains("adapters  vf1\n") && shown.contains("ended"),
        "{shown}"
    );
    lab.end().await;
}
