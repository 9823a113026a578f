//! Teams: by `vnicctl` and gRPC, over veth pairs. Needs CAP_NET_ADMIN and CAP_NET_RAW.

mod common;

use std::process::Command;
use std::time::Duration;

use common::lab::{Lab, fields};
use common::{process, settings};
use prost_types::FieldMask;
use serde_json::Value;
use tonic::transport::Channel;
use tonic::{Code, Status};
use vnic_control::v1;
use vnic_control::v1::team_affinity::What;
use vnic_control::v1::team_service_client::TeamServiceClient;

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

/// Veth pairs, deleted at the end.
struct Wires(Vec<[String; 2]>);

impl Wires {
    /// None where that is not allowed; `test` is the name of the test, `mark` a letter of its own.
    fn new(test: &str, mark: char, n: usize) -> Option<Wires> {
        let mut wires = Wires(Vec::new());
        for i in 0..n {
            let pair = ["x", "y"].map(|end| format!("vt{}{mark}{i}{end}", std::process::id()));
            let [x, y] = &pair;
            if !ip(&["link", "add", x, "type", "veth", "peer", "name", y]) {
                eprintln!("SKIP {test}: no right to make a veth pair");
                return None;
            }
            assert!(ip(&["link", "set", x, "up"]) && ip(&["link", "set", y, "up"]));
            wires.0.push(pair);
        }
        Some(wires)
    }

    /// The end that is a port, and the other one.
    fn ends(&self, i: usize) -> (&str, &str) {
        (&self.0[i][0], &self.0[i][1])
    }

    /// Makes ports p0, p1, … of them.
    async fn ports(&self, lab: &Lab) {
        for i in 0..self.0.len() {
            let name = format!("p{i}");
            lab.said(&["port", "add", &name, "--packet", self.ends(i).0])
                .await;
        }
    }

    fn mac(&self, i: usize) -> String {
        let output = Command::new("ip")
            .args(["-j", "link", "show", self.ends(i).0])
            .output()
            .expect("ip");
        let links: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        links[0]["address"].as_str().expect("an address").to_owned()
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        for [end, _] in &self.0 {
            ip(&["link", "delete", end]);
        }
    }
}

fn teams(lab: &Lab) -> TeamServiceClient<Channel> {
    TeamServiceClient::new(lab.channel.clone())
}

async fn restart(lab: Lab) -> Lab {
    let Lab { daemon, channel, dir } = lab;
    drop(channel);
    daemon.shutdown().await;
    Lab::with(dir, |dir| settings(dir, 1)).await
}

async fn query(lab: &Lab, name: &str) -> Value {
    lab.json(&["team", "query", name]).await
}

/// Waits for an event: they are written down a moment after they happen.
async fn event(lab: &Lab, kind: &str, text: &str) {
    for _ in 0..2000 {
        if lab.said(&["event", "list", "--kind", kind]).await.contains(text) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{text}: {}", lab.said(&["event", "list"]).await);
}

/// Waits until a team is as it should be.
async fn wait(lab: &Lab, name: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..2000 {
        let team = query(lab, name).await;
        if done(&team) {
            return team;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: {}", query(lab, name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_of_a_team() {
    let Some(wires) = Wires::new("a_life_of_a_team", 'a', 3) else {
        return;
    };
    let lab = Lab::start(1).await;
    assert_eq!(lab.said(&["team", "showlist"]).await, "no teams\n");
    wires.ports(&lab).await;
    let text = lab.said(&["team", "create", "aggregate", "Team 0"]).await;
    assert!(text.contains("no members") && text.contains("layer3+4"), "{text}");
    let team = query(&lab, "team 0").await;
    assert_eq!(team["name"], "teams/Team 0");
    assert_eq!(
        (&team["type"], &team["bond"]),
        (&"TYPE_AGGREGATE".into(), &"team-0".into())
    );
    assert_eq!((&team["up"], &team["mac"]), (&false.into(), &"".into()));
    assert_eq!(team["lifetime"], "LIFETIME_STORED");
    let guid = team["guid"].as_str().expect("a GUID").to_owned();
    let text = lab.said(&["team", "view", "Team 0"]).await;
    assert!(text.contains("no members"), "{text}");

    lab.said(&["team", "attach", "Team 0", "p0"]).await;
    let text = lab
        .said(&["team", "attach", "Team 0", "p1", "--set-team-mac"])
        .await;
    assert!(
        text.contains("p0") && text.contains("p1") && text.contains("member"),
        "{text}"
    );
    let team = query(&lab, "Team 0").await;
    assert_eq!(team["mac"], Value::from(wires.mac(1)));
    assert_eq!(team["members"][0]["mac"], Value::from(wires.mac(0)));
    assert_eq!(
        (&team["up"], &team["members"][1]["up"]),
        (&true.into(), &true.into())
    );
    assert!(team["switch_port"].is_number());
    let text = lab.said(&["team", "showlist"]).await;
    assert!(
        text.contains("p0, p1") && text.contains("ports in no team: p2"),
        "{text}"
    );

    // Settings, one by one and several.
    let set = [
        "team",
        "set",
        "Team 0",
        "--hash",
        "five-tuple",
        "--failback-delay",
        "5s",
        "--quiet",
        "2ms",
        "--patience",
        "never",
        "--vlan",
        "100",
        "--vlan-prio",
        "3",
        "--view-flows",
        "64",
        "--access-vlan",
        "10",
    ];
    lab.said(&set).await;
    lab.said(&[
        "team",
        "set",
        "Team 0",
        "--lacp",
        "passive",
        "--lacp-slow",
        "--lacp-key",
        "9",
    ])
    .await;
    let team = query(&lab, "Team 0").await;
    assert_eq!(
        (&team["hash_policy"], &team["never_hold"]),
        (&"five-tuple".into(), &true.into())
    );
    assert_eq!(
        (&team["vlan_id"], &team["vlan_prio"], &team["flows"]),
        (&100.into(), &3.into(), &64.into())
    );
    assert_eq!(
        (&team["failback_delay"], &team["quiet"]),
        (&"5s".into(), &"0.002s".into())
    );
    assert_eq!(team["vlan"]["access"]["vlan"], 10);
    assert_eq!(
        (&team["lacp"]["mode"], &team["lacp"]["key"]),
        (&"MODE_PASSIVE".into(), &9.into())
    );
    // Without a partner LACP carries nothing.
    let team = wait(&lab, "Team 0", "LACP", |t| t["members"][0]["lacp"].is_object()).await;
    assert_eq!(team["up"], false);
    let text = lab.said(&["team", "query", "Team 0"]).await;
    assert!(
        text.contains("passive, slow") && text.contains("PARTNER"),
        "{text}"
    );
    lab.said(&["team", "set", "Team 0", "--lacp", "off", "--patience", "50ms"])
        .await;
    let team = query(&lab, "Team 0").await;
    assert_eq!((&team["up"], &team["never_hold"]), (&true.into(), &false.into()));
    assert_eq!(team["patience"], "0.050s");
    // What LACP was told is not forgotten while it is off.
    assert_eq!(team["lacp"]["mode"], "MODE_OFF");

    // What goes by a port of its own.
    let flow = "tcp,10.0.0.1:40000,10.0.0.2:5201";
    fn affinity<'a>(what: &[&'a str]) -> Vec<&'a str> {
        [&["team", "affinity", "Team 0"], what].concat()
    }
    lab.said(&affinity(&["set", "p1", "--qp", "vf0:17"])).await;
    lab.said(&affinity(&["set", "p0", "--udp-source-port", "49152"]))
        .await;
    lab.said(&affinity(&["set", "p1", "--udp-source-port", "49152"]))
        .await;
    let text = lab.said(&affinity(&["set", "p0", "--flow", flow])).await;
    assert!(
        text.contains("QP 17 of vf0") && text.contains("10.0.0.1:40000 > 10.0.0.2:5201 tcp"),
        "{text}"
    );
    let view = lab.json(&["team", "view", "Team 0"]).await;
    assert_eq!(view["affinities"].as_array().map(Vec::len), Some(3), "{view}");
    let team = query(&lab, "Team 0").await;
    assert_eq!(team["affinities"][1]["port"], "ports/p1");
    lab.said(&affinity(&["delete", "--flow", flow])).await;
    assert_eq!(
        query(&lab, "Team 0").await["affinities"].as_array().map(Vec::len),
        Some(2)
    );
    let text = lab.refused(1, &affinity(&["delete", "--flow", flow])).await;
    assert!(text.contains("NOT_FOUND"), "{text}");
    let view = lab.said(&["team", "view", "Team 0"]).await;
    assert!(view.contains("SHARE OF FLOWS") && view.contains("p0"), "{view}");

    // A link goes down and comes back.
    assert!(ip(&["link", "set", wires.ends(1).1, "down"]));
    let team = wait(&lab, "Team 0", "link down", |t| t["members"][1]["up"] != true).await;
    assert_eq!(team["up"], true);
    let team = wait(&lab, "Team 0", "failover", |t| t["last_failover"].is_object()).await;
    assert_eq!(team["last_failover"]["port"], "ports/p1");
    assert!(
        lab.said(&["team", "query", "Team 0"])
            .await
            .contains("last failover   p1 at")
    );
    assert!(ip(&["link", "set", wires.ends(1).1, "up"]));
    wait(&lab, "Team 0", "link up", |t| t["members"][1]["up"] == true).await;

    // A port of a team is not removed.
    let text = lab.refused(1, &["port", "remove", "p0"]).await;
    assert!(
        text.contains("port p0 is in team \"Team 0\": detach it first"),
        "{text}"
    );

    // After a restart the team is there; its ports were not stored, and join when they are made.
    let before = query(&lab, "Team 0").await;
    let lab = restart(lab).await;
    let team = query(&lab, "Team 0").await;
    assert_eq!(team["guid"], Value::from(guid));
    for field in [
        "mac",
        "bond",
        "hash_policy",
        "vlan_id",
        "flows",
        "patience",
        "vlan",
        "affinities",
    ] {
        assert_eq!(team[field], before[field], "{field}");
    }
    assert_eq!(team["members"][0]["missing"], true);
    assert_eq!(
        team["problem"],
        "there is no port p0, p1: it joins when it is made"
    );
    event(
        &lab,
        "settings_refused",
        "team \"Team 0\": there is no port p0; it joins",
    )
    .await;
    wires.ports(&lab).await;
    let team = query(&lab, "Team 0").await;
    assert_eq!((&team["up"], &team["problem"]), (&true.into(), &"".into()));
    let view = lab.json(&["team", "view", "Team 0"]).await;
    assert_eq!(view["affinities"].as_array().map(Vec::len), Some(2), "{view}");

    // The affinities of a member go with it; the team's address stays.
    lab.said(&["team", "detach", "Team 0", "p1"]).await;
    let team = query(&lab, "Team 0").await;
    assert_eq!(
        (&team["mac"], team["affinities"].as_array().map(Vec::len)),
        (&wires.mac(1).into(), Some(0))
    );
    lab.said(&["team", "detach", "Team 0", "p0"]).await;
    assert_eq!(query(&lab, "Team 0").await["mac"], "");
    lab.said(&["port", "remove", "p0"]).await;
    lab.said(&["team", "remove", "Team 0"]).await;
    event(&lab, "settings_changed", "port p1 is out of team \"Team 0\"").await;
    let lab = restart(lab).await;
    assert_eq!(lab.said(&["team", "showlist"]).await, "no teams\n");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_mlx5muxtool() {
    let Some(wires) = Wires::new("the_words_of_mlx5muxtool", 'm', 2) else {
        return;
    };
    let lab = Lab::start(1).await;
    wires.ports(&lab).await;
    let tool = async |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        lab.said(&[&["mlx5muxtool"], words.as_slice()].concat()).await
    };
    let text = tool("create team Failover Team0 NoFailBackToPrimary").await;
    assert!(
        text.starts_with("Adding team Team0\nTeam created with Guid = "),
        "{text}"
    );
    assert_eq!(
        tool("attach team Team0 p0 primary SetTeamMacAddress").await,
        "Attaching adapter p0 to team Team0\n"
    );
    tool("attach team Team0 {p1}").await;
    let text = tool("queryteam Team0").await;
    assert!(
        text.starts_with("Found 1 team(s)\nName               : Team0\nGUID               : {"),
        "{text}"
    );
    for line in [
        "PortType           : Ethernet\n",
        "TeamType           : Failover\n",
        "MemberCount        : 2\n",
        "Member[0]          : p0 (Primary) (packet ",
        "Member[1]          : p1 (packet ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let text = tool("showlist").await;
    assert!(
        text.contains("Team Team0 (failover)") && text.contains("p0 "),
        "{text}"
    );
    let team = query(&lab, "Team0").await;
    assert_eq!(team["no_failback_to_primary"], true);
    assert_eq!(
        (&team["members"][0]["active"], &team["members"][1]["active"]),
        (&true.into(), &false.into())
    );
    let text = lab.said(&["team", "query", "Team0"]).await;
    assert!(
        text.contains("primary, active") && text.contains("standby"),
        "{text}"
    );

    // The standby takes over, and stays.
    assert!(ip(&["link", "set", wires.ends(0).1, "down"]));
    wait(&lab, "Team0", "failover", |t| t["members"][1]["active"] == true).await;
    assert!(ip(&["link", "set", wires.ends(0).1, "up"]));
    let team = wait(&lab, "Team0", "link up", |t| t["members"][0]["up"] == true).await;
    assert_eq!(team["members"][1]["active"], true);

    let text = lab
        .refused(1, &["mlx5muxtool", "create", "team", "Failover", "T", "IPoIB"])
        .await;
    assert!(text.contains("Ethernet only"), "{text}");
    let text = lab
        .refused(2, &["mlx5muxtool", "create", "team", "Mirror", "T"])
        .await;
    assert!(text.contains("allowed: Aggregate, Failover"), "{text}");
    assert_eq!(
        tool("detach team Team0 p1").await,
        "Detaching adapter p1 from team Team0\n"
    );
    assert_eq!(
        tool("removeteam Team0").await,
        "Delete team Team0\nDeleting member p0\n"
    );
    lab.end().await;
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
    let Some(wires) = Wires::new("what_cannot_be_is_refused", 'r', 3) else {
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
        .list_teams(v1::ListTeamsRequest {})
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
    assert_eq!(list.teams[0].hash_policy, "layer3+4");

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

#[test]
fn teams_of_the_configuration() {
    let Some(wires) = Wires::new("teams_of_the_configuration", 'c', 2) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let port = |i: usize| {
        let ifname = wires.ends(i).0;
        format!("[[port]]\nname = \"p{i}\"\ntype = \"packet\"\nifname = \"{ifname}\"\n")
    };
    let team = "[[team]]\nname = \"Team0\"\ntype = \"failover\"\nmembers = [\"p0\", \"p1\"]\nprimary = \"p1\"\nteam_mac_of = \"p1\"\n";
    let config = format!("{}{}{team}", port(0), port(1));
    let daemon = process::start(dir.path(), &config);
    assert!(daemon.ready.contains("2 ports, 1 team"), "{}", daemon.ready);
    let text = daemon.said(&["team", "query", "Team0"]);
    assert!(
        text.contains("in the configuration") && text.contains("primary, active"),
        "{text}"
    );
    let guid = |text: &str| text.lines().find(|l| l.starts_with("guid")).map(str::to_owned);
    let before = guid(&text);
    assert!(
        text.contains(&format!("mac             {}", wires.mac(1))),
        "{text}"
    );
    // What is changed lives until the daemon ends; another team is stored.
    daemon.said(&["team", "set", "Team0", "--no-failback"]);
    daemon.said(&["team", "create", "aggregate", "Team1"]);
    daemon.end("-TERM");
    let daemon = process::start(dir.path(), &config);
    let text = daemon.said(&["team", "query", "team0"]);
    assert!(text.contains("fails back      yes"), "{text}");
    assert_eq!(guid(&text), before);
    assert!(daemon.said(&["team", "showlist"]).contains("Team1"));
    daemon.end("-TERM");

    // The configuration goes first: a stored team of the same name stays stored until there is room.
    let config = format!("{}{}{}", port(0), port(1), team.replace("Team0", "TEAM1"));
    let daemon = process::start(dir.path(), &config);
    let told = || daemon.said(&["event", "list", "--kind", "settings_refused"]);
    let found = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        told().contains("team \"Team1\" does not come back")
    });
    assert!(found, "{}", told());
    daemon.said(&["team", "create", "aggregate", "Other"]);
    daemon.end("-TERM");
    let daemon = process::start(dir.path(), &port(0));
    let text = daemon.said(&["team", "showlist"]);
    assert!(text.contains("Team1") && text.contains("Other"), "{text}");
    daemon.end("-TERM");
}
