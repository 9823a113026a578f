//! Teams: by `vnicctl` and gRPC, over veth pairs. Needs CAP_NET_ADMIN and CAP_NET_RAW.

use std::time::Duration;

use crate::common::lab::Lab;
use crate::common::process;
use crate::common::wires::{Wires, ip};
use rustix::process::Signal;
use serde_json::Value;

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
    let Some(wires) = Wires::new("a_life_of_a_team", 3) else {
        return;
    };
    let lab = Lab::start(1).await;
    assert_eq!(lab.said(&["team", "showlist"]).await, "no teams\n");
    wires.ports(&lab).await;
    let text = lab.said(&["team", "create", "aggregate", "Team 0"]).await;
    assert!(
        text.contains("no members") && text.contains("five-tuple"),
        "{text}"
    );
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

    // After a restart the team is there, with its ports.
    let before = query(&lab, "Team 0").await;
    let lab = lab.restart(1).await;
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
    let team = wait(&lab, "Team 0", "up", |t| t["up"] == true).await;
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
    let lab = lab.restart(1).await;
    assert_eq!(
        lab.said(&["team", "showlist"]).await,
        "no teams\n\nports in no team: p1, p2\n"
    );
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_mlx5muxtool() {
    let Some(wires) = Wires::new("the_words_of_mlx5muxtool", 2) else {
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

#[test]
fn teams_of_the_configuration() {
    let Some(wires) = Wires::new("teams_of_the_configuration", 2) else {
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
    daemon.end(Signal::TERM);
    let daemon = process::start(dir.path(), &config);
    let text = daemon.said(&["team", "query", "team0"]);
    assert!(text.contains("fails back      yes"), "{text}");
    assert_eq!(guid(&text), before);
    assert!(daemon.said(&["team", "showlist"]).contains("Team1"));
    daemon.end(Signal::TERM);

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
    daemon.end(Signal::TERM);
    let daemon = process::start(dir.path(), &port(0));
    let text = daemon.said(&["team", "showlist"]);
    assert!(text.contains("Team1") && text.contains("Other"), "{text}");
    daemon.end(Signal::TERM);
}
