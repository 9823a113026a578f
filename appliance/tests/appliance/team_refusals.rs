//! Teams: what is refused, with the field and the reason. Needs CAP_NET_ADMIN and CAP_NET_RAW.

use crate::common::lab::{Lab, fields};
use crate::common::wires::Wires;
use prost_types::FieldMask;
use tonic::transport::Channel;
use tonic::{Code, Status};
use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_service_client::TeamServiceClient;

fn teams(lab: &Lab) -> TeamServiceClient<Channel> {
    TeamServiceClient::new(lab.channel.clone())
}

async fn create(lab: &Lab, id: &str, team: v1::Team) -> Result<v1::Team, Status> {
    let request = v1::CreateTeamRequest {
        team_id: id.to_owned(),
        team: Some(team),
    };
    teams(lab).create_team(request).await.map(|r| r.into_inner())
}

fn of(kind: v1::team::Type) -> v1::Team {
    let mut team = v1::Team::default();
    team.set_type(kind);
    team
}

async fn attach(lab: &Lab, team: &str, port: &str, primary: bool) -> Result<v1::Team, Status> {
    let request = v1::AttachTeamMemberRequest {
        name: format!("teams/{team}"),
        port: format!("ports/{port}"),
        primary,
        set_team_mac_address: false,
    };
    teams(lab)
        .attach_team_member(request)
        .await
        .map(|r| r.into_inner())
}

async fn update(lab: &Lab, team: v1::Team, paths: &[&str]) -> Result<v1::Team, Status> {
    let request = v1::UpdateTeamRequest {
        team: Some(team),
        update_mask: Some(FieldMask {
            paths: paths.iter().map(|p| (*p).to_owned()).collect(),
        }),
    };
    teams(lab).update_team(request).await.map(|r| r.into_inner())
}

async fn direct(lab: &Lab, team: &str, what: Option<What>, port: &str) -> Result<v1::Team, Status> {
    let request = v1::SetTeamAffinityRequest {
        name: format!("teams/{team}"),
        affinity: Some(v1::TeamAffinity {
            what,
            port: format!("ports/{port}"),
        }),
    };
    teams(lab)
        .set_team_affinity(request)
        .await
        .map(|r| r.into_inner())
}

#[track_caller]
fn wrong(result: Result<v1::Team, Status>, code: Code, field: &str, text: &str) {
    let status = result.expect_err("refused");
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(text), "{text}: {status}");
    if !field.is_empty() {
        assert_eq!(fields(&status), [field], "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_refused() {
    use v1::team::Type::{Aggregate, Failover, Unspecified};
    let Some(wires) = Wires::new("what_cannot_be_is_refused", 3) else {
        return;
    };
    let lab = Lab::start(1).await;
    wires.ports(&lab).await;
    let bad = Code::InvalidArgument;

    // Making one.
    wrong(
        create(&lab, "a", of(Unspecified)).await,
        bad,
        "team.type",
        "required",
    );
    for name in ["", " a", "a\n", &"x".repeat(65)] {
        wrong(create(&lab, name, of(Aggregate)).await, bad, "team_id", "allowed");
    }
    let ipoib = v1::Team {
        ipoib: true,
        ..of(Failover)
    };
    wrong(create(&lab, "a", ipoib).await, bad, "team.ipoib", "Ethernet only");
    let stays = v1::Team {
        no_failback_to_primary: true,
        ..of(Aggregate)
    };
    wrong(
        create(&lab, "a", stays).await,
        bad,
        "team.no_failback_to_primary",
        "with Failover",
    );
    let hash = |text: &str, kind| v1::Team {
        hash_policy: text.to_owned(),
        ..of(kind)
    };
    wrong(
        create(&lab, "a", hash("layer4", Aggregate)).await,
        bad,
        "team.hash_policy",
        "allowed: layer2, layer2+3",
    );
    wrong(
        create(&lab, "a", hash("layer2", Failover)).await,
        bad,
        "team.hash_policy",
        "carries all frames",
    );
    let many = v1::Team {
        vlan_id: 4095,
        vlan_prio: 8,
        flows: 70_000,
        ..hash("layer4", Aggregate)
    };
    let status = create(&lab, "a", many).await.expect_err("refused");
    assert_eq!(
        fields(&status),
        ["team.hash_policy", "team.vlan_id", "team.vlan_prio", "team.flows"],
        "{status}"
    );
    create(&lab, "Agg", of(Aggregate)).await.expect("made");
    create(&lab, "Fail", of(Failover)).await.expect("made");
    wrong(
        create(&lab, "AGG", of(Failover)).await,
        Code::AlreadyExists,
        "",
        "there is a team \"Agg\"",
    );

    // Members.
    wrong(
        attach(&lab, "none", "p0", false).await,
        Code::NotFound,
        "",
        "no team \"none\"",
    );
    wrong(attach(&lab, "Agg", "p9", false).await, Code::NotFound, "", "p9");
    wrong(attach(&lab, "Agg", "vf0", false).await, Code::NotFound, "", "vf0");
    wrong(attach(&lab, "Agg", "", false).await, bad, "port", "ports/{port}");
    wrong(
        attach(&lab, "Agg", "p0", true).await,
        bad,
        "primary",
        "with Failover",
    );
    attach(&lab, "Agg", "p0", false).await.expect("attached");
    for team in ["Fail", "Agg"] {
        wrong(
            attach(&lab, team, "p0", false).await,
            Code::FailedPrecondition,
            "",
            "port p0 is in team \"Agg\"",
        );
    }
    attach(&lab, "Fail", "p1", true).await.expect("attached");
    wrong(
        attach(&lab, "Fail", "p2", true).await,
        bad,
        "primary",
        "p1 is the primary",
    );
    let detach = v1::DetachTeamMemberRequest {
        name: "teams/Agg".to_owned(),
        port: "ports/p1".to_owned(),
    };
    let detached = teams(&lab)
        .detach_team_member(detach)
        .await
        .map(|r| r.into_inner());
    wrong(detached, bad, "port", "p1 is not in team \"Agg\"");

    // Settings.
    let named = |name: &str| v1::Team {
        name: format!("teams/{name}"),
        ..v1::Team::default()
    };
    wrong(
        update(&lab, named("Agg"), &[]).await,
        bad,
        "update_mask",
        "are missing",
    );
    wrong(
        update(&lab, named("Agg"), &["hash"]).await,
        bad,
        "update_mask",
        "no field that can be written",
    );
    wrong(
        update(&lab, named("Agg"), &["type"]).await,
        bad,
        "update_mask",
        "no field",
    );
    wrong(
        update(&lab, named("none"), &["quiet"]).await,
        Code::NotFound,
        "",
        "none",
    );
    wrong(
        update(&lab, v1::Team::default(), &["quiet"]).await,
        bad,
        "team.name",
        "teams/{team}",
    );
    let long = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    for (field, seconds) in [
        ("quiet", 2),
        ("failback_delay", 3601),
        ("patience", 3601),
        ("quiet", -1),
    ] {
        let team = v1::Team {
            quiet: long(seconds),
            failback_delay: long(seconds),
            patience: long(seconds),
            ..named("Agg")
        };
        let field_path = format!("team.{field}");
        wrong(update(&lab, team, &[field]).await, bad, &field_path, field);
    }
    let speaks = v1::Team {
        lacp: Some(v1::TeamLacp {
            mode: v1::team_lacp::Mode::Active.into(),
            ..v1::TeamLacp::default()
        }),
        ..named("Fail")
    };
    wrong(
        update(&lab, speaks, &["lacp"]).await,
        bad,
        "team.lacp.mode",
        "failover",
    );
    let key = v1::Team {
        lacp: Some(v1::TeamLacp {
            key: 65_536,
            ..v1::TeamLacp::default()
        }),
        ..named("Agg")
    };
    wrong(
        update(&lab, key, &["lacp.key"]).await,
        bad,
        "team.lacp.key",
        "1 to 65535",
    );

    // Affinities.
    let pair = |adapter: &str, qp| {
        Some(What::QueuePair(v1::TeamQueuePair {
            adapter: adapter.to_owned(),
            qp,
            mac: String::new(),
        }))
    };
    let vf0 = "adapters/vf0";
    wrong(
        direct(&lab, "Agg", None, "p0").await,
        bad,
        "affinity.what",
        "required",
    );
    wrong(
        direct(&lab, "Agg", pair(vf0, 17), "p1").await,
        bad,
        "affinity.port",
        "p1 is not in team",
    );
    wrong(
        direct(&lab, "Agg", pair("adapters/vf9", 17), "p0").await,
        bad,
        "affinity.queue_pair.adapter",
        "vf9 does not exist",
    );
    wrong(
        direct(&lab, "Agg", pair("vf0", 17), "p0").await,
        bad,
        "affinity.queue_pair.adapter",
        "adapters/{adapter}",
    );
    wrong(
        direct(&lab, "Agg", pair(vf0, 1 << 24), "p0").await,
        bad,
        "affinity.queue_pair.qp",
        "0 to 16777215",
    );
    wrong(
        direct(&lab, "Agg", Some(What::UdpSourcePort(65_536)), "p0").await,
        bad,
        "affinity.udp_source_port",
        "0 to 65535",
    );
    wrong(
        direct(&lab, "Fail", pair(vf0, 17), "p1").await,
        bad,
        "affinity",
        "carries all frames",
    );
    let flow = |from: &str, to: &str, protocol, ports: [Option<u32>; 2]| {
        Some(What::Flow(v1::TeamFiveTuple {
            source: from.to_owned(),
            destination: to.to_owned(),
            protocol,
            source_port: ports[0],
            destination_port: ports[1],
        }))
    };
    for (what, field) in [
        (flow("10.0.0.1", "::1", 6, [Some(1), Some(2)]), "destination"),
        (flow("x", "10.0.0.2", 6, [Some(1), Some(2)]), "source"),
        (flow("10.0.0.1", "10.0.0.2", 256, [None; 2]), "protocol"),
        (flow("10.0.0.1", "10.0.0.2", 1, [Some(1), Some(2)]), "source_port"),
        (
            flow("10.0.0.1", "10.0.0.2", 6, [Some(1), None]),
            "destination_port",
        ),
        (
            flow("10.0.0.1", "10.0.0.2", 17, [Some(1), Some(65_536)]),
            "destination_port",
        ),
    ] {
        let field = format!("affinity.flow.{field}");
        wrong(direct(&lab, "Agg", what, "p0").await, bad, &field, "");
    }

    // Nothing of all that was half done.
    let list = teams(&lab)
        .list_teams(v1::ListTeamsRequest::default())
        .await
        .expect("a list")
        .into_inner();
    let names: Vec<&str> = list.teams.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["teams/Agg", "teams/Fail"]);
    assert_eq!(list.free_ports, ["ports/p2"]);
    assert!(
        list.teams
            .iter()
            .all(|t| t.members.len() == 1 && t.affinities.is_empty())
    );
    assert_eq!(list.teams[0].hash_policy, "five-tuple");

    // Usage errors of the command line.
    for line in [
        &["team", "create", "mirror", "T"][..],
        &["team", "set", "Agg"],
        &["team", "set", "Agg", "--hash", "layer5"],
        &["team", "set", "Agg", "--lacp", "on"],
        &["team", "affinity", "Agg", "set", "p0"],
        &["team", "affinity", "Agg", "set", "p0", "--qp", "17"],
        &["team", "affinity", "Agg", "set", "p0", "--flow", "tcp,10.0.0.1"],
    ] {
        lab.refused(2, line).await;
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn teams_have_pages_in_the_order_in_which_they_were_made() {
    let mut lab = Lab::start(0).await;
    for name in ["c", "a", "b", "gone", "d"] {
        lab.said(&["team", "create", "failover", name]).await;
    }
    lab.said(&["team", "remove", "gone"]).await;
    for restarted in [false, true] {
        if restarted {
            lab = lab.restart(0).await;
        }
        let mut teams = TeamServiceClient::new(lab.channel.clone());
        let (mut names, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = v1::ListTeamsRequest {
                page_size: 3,
                page_token,
            };
            let page = teams.list_teams(request).await.expect("a page").into_inner();
            names.extend(page.teams.into_iter().map(|team| team.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
            assert_eq!(names.len(), 3);
        }
        assert_eq!(names, ["teams/c", "teams/a", "teams/b", "teams/d"]);
    }
    let foreign = v1::ListTeamsRequest {
        page_token: "ListPorts:p0".to_owned(),
        ..v1::ListTeamsRequest::default()
    };
    let mut teams = TeamServiceClient::new(lab.channel.clone());
    let refused = teams
        .list_teams(foreign)
        .await
        .expect_err("a token of another list");
    assert_eq!(refused.code(), Code::InvalidArgument);
    lab.end().await;
}
