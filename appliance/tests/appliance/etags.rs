//! ETags: what is only changed or removed if it is what the client has seen.

use tonic::Code;
use vnic_control::v1;
use vnic_control::v1::adapter_service_client::AdapterServiceClient;
use vnic_control::v1::port_service_client::PortServiceClient;
use vnic_control::v1::team_service_client::TeamServiceClient;

use crate::common::lab::Lab;
use crate::common::wires::Wires;

#[tokio::test(flavor = "multi_thread")]
async fn teams_and_adapters_are_changed_and_removed_only_as_they_were_seen() {
    let lab = Lab::start(0).await;
    let mut teams = TeamServiceClient::new(lab.channel.clone());
    lab.said(&["team", "create", "failover", "t0"]).await;
    let name = || "teams/t0".to_owned();
    let get = v1::GetTeamRequest { name: name() };
    let before = teams.get_team(get).await.expect("a team").into_inner();
    let update = |etag: &str, no_failback_to_primary| v1::UpdateTeamRequest {
        team: Some(v1::Team {
            name: name(),
            no_failback_to_primary,
            etag: etag.to_owned(),
            ..v1::Team::default()
        }),
        update_mask: Some(prost_types::FieldMask {
            paths: vec!["no_failback_to_primary".to_owned()],
        }),
    };
    let changed = teams
        .update_team(update(&before.etag, true))
        .await
        .expect("changed")
        .into_inner();
    assert_ne!(changed.etag, before.etag);
    let late = teams
        .update_team(update(&before.etag, false))
        .await
        .expect_err("another etag");
    assert_eq!(late.code(), Code::Aborted);
    let back = teams
        .update_team(update(&changed.etag, false))
        .await
        .expect("changed")
        .into_inner();
    assert_eq!(back.etag, before.etag, "equal settings have equal etags");
    let delete = |etag: &str| v1::DeleteTeamRequest {
        name: name(),
        etag: etag.to_owned(),
    };
    let late = teams
        .delete_team(delete(&changed.etag))
        .await
        .expect_err("another etag");
    assert_eq!(late.code(), Code::Aborted);
    teams.delete_team(delete(&back.etag)).await.expect("removed");

    let mut adapters = AdapterServiceClient::new(lab.channel.clone());
    lab.said(&["adapter", "add", "blue"]).await;
    let name = || "adapters/blue".to_owned();
    let get = v1::GetAdapterRequest { name: name() };
    let seen = adapters
        .get_adapter(get)
        .await
        .expect("an adapter")
        .into_inner()
        .etag;
    lab.said(&["adapter", "set", "blue", "--access-vlan", "7"]).await;
    let delete = |etag: String| v1::DeleteAdapterRequest { name: name(), etag };
    let late = adapters
        .delete_adapter(delete(seen))
        .await
        .expect_err("another etag");
    assert_eq!(late.code(), Code::Aborted);
    adapters
        .delete_adapter(delete(String::new()))
        .await
        .expect("removed");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_are_changed_and_removed_only_as_they_were_seen() {
    let Some(wires) = Wires::new("ports_are_changed_and_removed_only_as_they_were_seen", 1) else {
        return;
    };
    let lab = Lab::start(0).await;
    wires.ports(&lab).await;
    let mut ports = PortServiceClient::new(lab.channel.clone());
    let all = ports
        .list_ports(v1::ListPortsRequest::default())
        .await
        .expect("a list")
        .into_inner()
        .ports;
    let (name, seen) = (all[0].name.clone(), all[0].etag.clone());
    let update = |etag: &str, mbps| v1::UpdatePortRequest {
        name: name.clone(),
        speed_mbps: Some(mbps),
        etag: etag.to_owned(),
        ..v1::UpdatePortRequest::default()
    };
    let changed = ports
        .update_port(update(&seen, 1000))
        .await
        .expect("changed")
        .into_inner();
    assert_ne!(changed.etag, seen);
    let late = ports
        .update_port(update(&seen, 100))
        .await
        .expect_err("another etag");
    assert_eq!(late.code(), Code::Aborted);
    let delete = |etag: String| v1::DeletePortRequest {
        name: name.clone(),
        etag,
    };
    let late = ports
        .delete_port(delete(seen.clone()))
        .await
        .expect_err("another etag");
    assert_eq!(late.code(), Code::Aborted);
    ports.delete_port(delete(changed.etag)).await.expect("removed");
    lab.end().await;
}
