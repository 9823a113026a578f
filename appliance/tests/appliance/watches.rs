//! Watches that look again and again: a snapshot, a mark, then changes.

use std::fmt::Debug;

use prost_types::Duration;
use tonic::{Code, Streaming};
use vnic_control::v1;
use vnic_control::v1::Change;
use vnic_control::v1::capture_service_client::CaptureServiceClient;
use vnic_control::v1::congestion_service_client::CongestionServiceClient;
use vnic_control::v1::fault_service_client::FaultServiceClient;
use vnic_control::v1::qos_service_client::QosServiceClient;
use vnic_control::v1::rdma_service_client::RdmaServiceClient;
use vnic_control::v1::team_service_client::TeamServiceClient;

use crate::common::lab::Lab;

fn of(name: &str) -> v1::WatchRequest {
    v1::WatchRequest {
        name: name.to_owned(),
        interval: Some(Duration {
            seconds: 0,
            nanos: 100_000_000,
        }),
    }
}

/// The next message of a stream: what it tells, and the name of its resource.
macro_rules! told {
    ($stream:expr, $field:ident) => {{
        let message = next(&mut $stream).await;
        let name = message
            .$field
            .as_ref()
            .map_or_else(String::new, |r| r.name.clone());
        (message.change(), name, message.$field)
    }};
}

async fn next<M: Debug>(stream: &mut Streaming<M>) -> M {
    let message = tokio::time::timeout(std::time::Duration::from_secs(60), stream.message()).await;
    message.expect("in time").expect("no error").expect("a message")
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_teams_captures_and_gids_come_change_and_go() {
    let lab = Lab::start(1).await;
    lab.said(&["fault", "add", "first", "--drop"]).await;
    let mut faults = FaultServiceClient::new(lab.channel.clone());
    let mut stream = faults.watch_faults(of("")).await.expect("a stream").into_inner();
    assert_eq!(told!(stream, fault).1, "faults/first");
    assert_eq!(told!(stream, fault).0, Change::Synced);
    lab.said(&["fault", "add", "second", "--drop"]).await;
    let (change, name, _) = told!(stream, fault);
    assert_eq!((change, name.as_str()), (Change::Added, "faults/second"));
    lab.said(&["fault", "remove", "first"]).await;
    let (change, name, fault) = told!(stream, fault);
    assert_eq!((change, name.as_str()), (Change::Removed, "faults/first"));
    assert_eq!(fault.expect("a rule").action, None);

    let mut teams = TeamServiceClient::new(lab.channel.clone());
    let mut stream = teams.watch_teams(of("")).await.expect("a stream").into_inner();
    assert_eq!(told!(stream, team).0, Change::Synced);
    lab.said(&["team", "create", "failover", "t0"]).await;
    assert_eq!(told!(stream, team).0, Change::Added);
    lab.said(&["team", "set", "t0", "--no-failback"]).await;
    let (change, _, team) = told!(stream, team);
    assert_eq!(change, Change::Updated);
    assert!(team.expect("a team").no_failback_to_primary);
    lab.said(&["team", "remove", "t0"]).await;
    assert_eq!(told!(stream, team).0, Change::Removed);

    let mut captures = CaptureServiceClient::new(lab.channel.clone());
    let mut stream = captures
        .watch_captures(of(""))
        .await
        .expect("a stream")
        .into_inner();
    assert_eq!(told!(stream, capture).0, Change::Synced);
    lab.said(&["capture", "start", "vf0", "--name", "c0"]).await;
    let (change, _, capture) = told!(stream, capture);
    assert_eq!(change, Change::Added);
    assert_eq!(capture.expect("a capture").state(), v1::capture::State::Running);
    lab.said(&["capture", "stop", "c0"]).await;
    let (change, _, capture) = told!(stream, capture);
    assert_eq!(change, Change::Updated);
    assert_eq!(capture.expect("a capture").state(), v1::capture::State::Stopped);

    lab.said(&["adapter", "add", "blue"]).await;
    let mut rdma = RdmaServiceClient::new(lab.channel.clone());
    let mut stream = rdma.watch_gids(of("")).await.expect("a stream").into_inner();
    while told!(stream, gid).0 == Change::Existing {}
    lab.said(&["gid", "set", "blue", "--gid", "10.0.0.7", "--index", "9"])
        .await;
    let (change, name, _) = told!(stream, gid);
    assert_eq!((change, name.as_str()), (Change::Added, "adapters/blue/gids/9"));
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_one_adapter_are_watched_without_the_others() {
    let lab = Lab::start(2).await;
    let mut qos = QosServiceClient::new(lab.channel.clone());
    let mut stream = qos
        .watch_qos(of("adapters/vf1/qos"))
        .await
        .expect("a stream")
        .into_inner();
    let (change, name, qos_now) = told!(stream, qos);
    assert_eq!((change, name.as_str()), (Change::Existing, "adapters/vf1/qos"));
    assert_eq!(qos_now.expect("settings").state, None);
    assert_eq!(told!(stream, qos).0, Change::Synced);
    for adapter in ["vf0", "vf1"] {
        lab.said(&["qos", "set", adapter, "--pfc", "0,0,0,1,0,0,0,0"])
            .await;
    }
    let (change, name, now) = told!(stream, qos);
    assert_eq!((change, name.as_str()), (Change::Updated, "adapters/vf1/qos"));
    assert!(now.expect("settings").pfc[3]);

    let mut congestion = CongestionServiceClient::new(lab.channel.clone());
    let mut stream = congestion
        .watch_congestion(of(""))
        .await
        .expect("a stream")
        .into_inner();
    while told!(stream, congestion).0 == Change::Existing {}
    lab.said(&["cc", "enable", "vf0", "3"]).await;
    let (change, name, _) = told!(stream, congestion);
    assert_eq!(
        (change, name.as_str()),
        (Change::Updated, "adapters/vf0/congestion")
    );

    let unknown = qos
        .watch_qos(of("adapters/vf9/qos"))
        .await
        .expect_err("no such adapter");
    assert_eq!(unknown.code(), Code::NotFound);
    let mut wrong = of("adapters/vf1/qos");
    wrong.interval = Some(Duration { seconds: 0, nanos: 1 });
    for request in [of("vf1"), wrong] {
        let refused = qos.watch_qos(request).await.expect_err("wrong");
        assert_eq!(refused.code(), Code::InvalidArgument);
    }
    lab.end().await;
}
