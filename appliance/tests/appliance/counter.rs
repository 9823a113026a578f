//! Counters by the names that users know: by gRPC and by `vnicctl`, without traffic. What values they have under traffic
//! is in `tests/tests/device/counters.rs`, which needs guests.

use crate::common::lab::{Lab, fields};
use tonic::Code;
use tonic::transport::Channel;
use vnic_backend::counters::names::SETS;
use vnic_control::v1;
use vnic_control::v1::CounterAvailability as A;
use vnic_control::v1::counter_service_client::CounterServiceClient;

fn counters(lab: &Lab) -> CounterServiceClient<Channel> {
    CounterServiceClient::new(lab.channel.clone())
}

fn read(owner: &str, set: &str, baseline: &[u8]) -> v1::ReadCounterSetsRequest {
    v1::ReadCounterSetsRequest {
        owner: owner.to_owned(),
        counter_set: set.to_owned(),
        baseline: baseline.to_vec(),
        ..v1::ReadCounterSetsRequest::default()
    }
}

/// The core of the tests' daemons: its counters move without traffic.
fn core() -> String {
    format!("cores/{}", crate::common::cpu())
}

/// Commands that the core has carried out.
async fn commands(lab: &Lab, baseline: &[u8]) -> u64 {
    let answer = counters(lab)
        .read_counter_sets(read(&core(), "native", baseline))
        .await;
    let sets = answer.expect("values").into_inner().sets;
    let value = sets[0].values.iter().find(|v| v.name == "commands");
    value.and_then(|v| v.value).expect("a value")
}

async fn snapshot(lab: &Lab, owner: &str) -> Vec<u8> {
    let owner = owner.to_owned();
    let request = v1::SnapshotCountersRequest { owner };
    let answer = counters(lab).snapshot_counters(request).await;
    answer.expect("a baseline").into_inner().baseline
}

async fn listed(lab: &Lab) -> u64 {
    let request = v1::ListCountersRequest {
        owner: core(),
        counter_name: "commands".to_owned(),
        ..v1::ListCountersRequest::default()
    };
    let list = counters(lab).list_counters(request).await.expect("a list");
    list.into_inner().counters[0].value
}

#[tokio::test(flavor = "multi_thread")]
async fn every_set_is_listed_and_every_value_is_there_or_has_a_reason() {
    let lab = Lab::start(1).await;
    let request = v1::ListCounterSetsRequest {
        with_counters: true,
        ..v1::ListCounterSetsRequest::default()
    };
    let sets = counters(&lab).list_counter_sets(request).await;
    let sets = sets.expect("sets").into_inner().counter_sets;
    assert_eq!(sets.len(), SETS.len() + 1);
    assert_eq!(sets[0].name, "counterSets/native");
    let mut seen = 0;
    for set in &sets[1..] {
        if set.instance() == v1::counter_set::Instance::Port {
            continue;
        }
        // By resource name, by title.
        for wanted in [&set.name, &set.title] {
            let answer = counters(&lab)
                .read_counter_sets(read("adapters/vf0", wanted, b""))
                .await;
            let answer = answer.expect("values").into_inner();
            let values = &answer.sets[0].values;
            // Each priority has its own of those that have values.
            let readable = |c: &&v1::CounterName| matches!(c.availability(), A::Available | A::Rate);
            let more = match set.instance() {
                v1::counter_set::Instance::Priority => 7 * set.counters.iter().filter(readable).count(),
                _ => 0,
            };
            assert_eq!(values.len(), set.counters.len() + more, "{wanted}");
            for value in values {
                match value.availability() {
                    A::Available | A::Rate => assert!(value.value.is_some(), "{}", value.name),
                    _ => assert!(value.value.is_none() && !value.why.is_empty(), "{}", value.name),
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 1000);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_is_a_view_and_two_views_do_not_disturb_each_other() {
    let lab = Lab::start(1).await;
    let core = core();
    let first = snapshot(&lab, &core).await;
    assert_eq!(commands(&lab, &first).await, 0);
    let total = listed(&lab).await;
    assert!(total > 0);
    lab.said(&["fault", "add", "f", "--drop"]).await;
    let one = commands(&lab, &first).await;
    assert!(one > 0);
    let second = snapshot(&lab, &core).await;
    assert_eq!(commands(&lab, &second).await, 0);
    lab.said(&["fault", "remove", "f"]).await;
    let rest = commands(&lab, &second).await;
    assert!(rest > 0);
    assert_eq!(commands(&lab, &first).await, one + rest);
    assert_eq!(listed(&lab).await, total + one + rest);

    // What another run of the daemon made, and what belongs to an owner that is gone.
    let request = read("adapters/vf0", "native", &first);
    let answer = counters(&lab).read_counter_sets(request).await.expect("values");
    assert!(answer.into_inner().baseline_outdated);
    let other = Lab::start(1).await;
    let request = read(&core, "native", &first);
    let answer = counters(&other).read_counter_sets(request).await.expect("values");
    let answer = answer.into_inner();
    assert!(answer.baseline_outdated && answer.since.is_none());
    other.end().await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_that_is_new_has_no_part_in_the_view_of_the_old_one() {
    let lab = Lab::start(1).await;
    lab.said(&["counter", "reset", "vf0"]).await;
    let output = lab.ctl(&["counter", "show", "vf0", "--nonzero"]).await;
    let stderr = crate::common::lab::text(&output.stderr);
    assert!(
        stderr.contains("values since") && stderr.contains("--total"),
        "{stderr}"
    );
    lab.said(&["adapter", "remove", "vf0"]).await;
    lab.said(&["adapter", "add", "vf0"]).await;
    let output = lab.ctl(&["counter", "show", "vf0"]).await;
    assert!(output.status.success());
    let stderr = crate::common::lab::text(&output.stderr);
    assert!(stderr.contains("new since the reset"), "{stderr}");
    assert!(
        lab.said(&["counter", "reset", "vf0", "--undo"])
            .await
            .contains("from when it was made")
    );
    assert!(
        lab.said(&["counter", "reset", "vf0", "--undo"])
            .await
            .contains("were not reset")
    );
    let output = lab.ctl(&["counter", "show", "vf0"]).await;
    assert_eq!(crate::common::lab::text(&output.stderr), "");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_name_their_field() {
    let lab = Lab::start(1).await;
    let short = prost_types::Duration {
        seconds: 0,
        nanos: 99_000_000,
    };
    let too_short = v1::ReadCounterSetsRequest {
        sampling_period: Some(short),
        ..read("adapters/vf0", "", b"")
    };
    for (request, code, field) in [
        (read("vf0", "", b""), Code::InvalidArgument, "owner"),
        (read("cores/x", "", b""), Code::InvalidArgument, "owner"),
        (
            read("adapters/vf0", "no such set", b""),
            Code::InvalidArgument,
            "counter_set",
        ),
        (
            read("adapters/vf0", "Linux ethtool physical port (mlx5)", b""),
            Code::InvalidArgument,
            "counter_set",
        ),
        (
            read(&core(), "WinOF-2 Port Traffic", b""),
            Code::InvalidArgument,
            "counter_set",
        ),
        (
            read("adapters/vf0", "", b"nonsense"),
            Code::InvalidArgument,
            "baseline",
        ),
        (too_short, Code::InvalidArgument, "sampling_period"),
        (read("adapters/vf9", "", b""), Code::NotFound, ""),
        (read("cores/4095", "", b""), Code::NotFound, ""),
    ] {
        let status = counters(&lab).read_counter_sets(request).await.expect_err(field);
        assert_eq!(status.code(), code, "{status:?}");
        if !field.is_empty() {
            assert_eq!(fields(&status), [field]);
        }
    }
    let watch = v1::WatchCountersRequest {
        owner: "adapters/vf0".to_owned(),
        ..v1::WatchCountersRequest::default()
    };
    for (request, code, field) in [
        (
            v1::WatchCountersRequest {
                interval: Some(short),
                ..watch.clone()
            },
            Code::InvalidArgument,
            "interval",
        ),
        (
            v1::WatchCountersRequest {
                counter_names: vec!["rx_nothing".to_owned()],
                ..watch.clone()
            },
            Code::InvalidArgument,
            "counter_names",
        ),
        (
            v1::WatchCountersRequest {
                owner: "adapters/vf9".to_owned(),
                ..watch.clone()
            },
            Code::NotFound,
            "",
        ),
    ] {
        let status = counters(&lab).watch_counters(request).await.expect_err(field);
        assert_eq!(status.code(), code, "{status:?}");
        if !field.is_empty() {
            assert_eq!(fields(&status), [field]);
        }
    }
    lab.refused(2, &["counter", "show", "vf0", "--set", "x", "--names", "mlx5"])
        .await;
    lab.refused(1, &["counter", "show", "vf0", "--view", "/nonexistent/view"])
        .await;
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_tells_what_changed_and_ends_with_its_owner() {
    let lab = Lab::start(1).await;
    let request = v1::WatchCountersRequest {
        owner: core(),
        counter_names: vec!["commands".to_owned()],
        interval: Some(prost_types::Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
        on_change: true,
        baseline: snapshot(&lab, &core()).await,
        ..v1::WatchCountersRequest::default()
    };
    let mut stream = counters(&lab)
        .watch_counters(request)
        .await
        .expect("a stream")
        .into_inner();
    let first = stream.message().await.expect("a message").expect("no end");
    assert!(first.elapsed.is_none() && first.sample_time.is_some());
    assert_eq!((first.values.len(), first.values[0].value), (1, Some(0)));
    assert_eq!(first.values[0].rate, None);
    lab.said(&["fault", "add", "f", "--drop"]).await;
    let next = stream.message().await.expect("a message").expect("no end");
    assert!(next.elapsed.is_some());
    assert!(next.values[0].value > Some(0) && next.values[0].rate > Some(0.0));
    drop(stream);

    let request = v1::WatchCountersRequest {
        owner: "adapters/vf0".to_owned(),
        counter_set: "WinOF-2 Port Traffic".to_owned(),
        ..v1::WatchCountersRequest::default()
    };
    let stream = counters(&lab).watch_counters(request).await;
    let mut stream = stream.expect("a stream").into_inner();
    let first = stream.message().await.expect("a message").expect("no end");
    assert!(
        first
            .values
            .iter()
            .any(|v| v.name == "BytesReceived" && v.value == Some(0))
    );
    // What has no value is not in a stream.
    assert!(
        first
            .values
            .iter()
            .all(|v| v.value.is_some() && v.name != "ControlPackets")
    );
    lab.said(&["adapter", "remove", "vf0"]).await;
    loop {
        match stream.message().await {
            Ok(message) => assert!(message.is_some(), "an end without a word"),
            Err(status) => {
                assert_eq!(status.code(), Code::NotFound);
                break;
            }
        }
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_watches_is_bounded() {
    let lab = Lab::start(1).await;
    let request = || v1::WatchCountersRequest {
        owner: "adapters/vf0".to_owned(),
        ..v1::WatchCountersRequest::default()
    };
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(counters(&lab).watch_counters(request()).await.expect("a stream"));
    }
    let status = counters(&lab).watch_counters(request()).await;
    assert_eq!(status.expect_err("one too many").code(), Code::ResourceExhausted);
    open.clear();
    // The daemon hears of it in its own time.
    for _ in 0..600 {
        if counters(&lab).watch_counters(request()).await.is_ok() {
            lab.end().await;
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("streams that ended still count");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_shows_the_shapes_that_people_know() {
    let lab = Lab::start(1).await;
    let sets = lab.said(&["counter", "sets"]).await;
    assert!(sets.contains("winof-2-port-traffic") && sets.contains("WinOF-2 Port Traffic"));
    let names = lab.said(&["counter", "sets", "WinOF-2 Port Traffic"]).await;
    assert!(
        names.contains("not modelled: there is no physical layer"),
        "{names}"
    );
    let shown = lab
        .said(&["counter", "show", "vf0", "--set", "WinOF-2 Port Traffic"])
        .await;
    let line = |name: &str| shown.lines().find(|l| l.starts_with(name)).unwrap_or_default();
    assert!(line("PacketsReceivedSymbolError").contains("not modelled"));
    assert!(line("PacketsReceivedPerSec").contains("--sample"));
    let cells: Vec<&str> = line("BytesReceived ").split_whitespace().collect();
    assert_eq!(cells, ["BytesReceived", "0", "bytes"]);
    let qos = lab
        .said(&["counter", "show", "vf0", "--set", "winof-2-port-qos"])
        .await;
    for priority in 0..8 {
        let row = |l: &str| {
            l.split_whitespace().take(4).collect::<Vec<_>>()
                == ["RcvPauseDuration", "priority", &priority.to_string(), "0"]
        };
        assert!(qos.lines().any(row), "{qos}");
    }

    let ethtool = lab.said(&["counter", "show", "vf0", "--names", "ethtool"]).await;
    assert_eq!(ethtool, include_str!("../data/ethtool_s.txt"));
    let rdma = lab.said(&["counter", "show", "vf0", "--names", "mlx5"]).await;
    assert_eq!(rdma, include_str!("../data/rdma_statistic.txt"));
    let json = lab
        .json(&[
            "counter",
            "show",
            "vf0",
            "--set",
            "WinOF-2 Port Traffic",
            "--sample",
            "100ms",
        ])
        .await;
    let values = json["sets"][0]["values"].as_array().expect("values");
    let rate = values.iter().find(|v| v["name"] == "PacketsReceivedPerSec");
    assert_eq!(rate.expect("a rate")["rate"], 0.0);
    let core = core();
    let watched = lab
        .said(&[
            "counter",
            "watch",
            &core,
            "--name",
            "commands",
            "--count",
            "2",
            "--interval",
            "100ms",
        ])
        .await;
    assert_eq!(watched.lines().filter(|l| l.starts_with("commands")).count(), 2);
    lab.end().await;
}

#[test]
fn the_document_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/counters.md");
    let made = vnic_backend::counters::names::markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/counters.md");
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == made,
        "docs/counters.md is not what the table says: UPDATE_DOCS=1 cargo test writes it"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_no_counter_has_is_refused() {
    let lab = Lab::start(1).await;
    lab.said(&["counter", "list", "vf0", "--name", "rx_frames"]).await;
    let said = lab
        .refused(1, &["counter", "list", "vf0", "--name", "rx_frmaes"])
        .await;
    assert!(said.contains("no counter has the name \"rx_frmaes\""), "{said}");
    lab.end().await;
}
