//! Uplinks over network devices, by `vnicctl port`. Needs CAP_NET_ADMIN for a veth pair.

use std::process::Command;
use std::time::Duration;

use crate::common::lab::Lab;
use serde_json::Value;

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip")
        .args(arguments)
        .output()
        .is_ok_and(|o| o.status.success())
}

/// A veth pair, deleted at the end.
struct Veth([String; 2]);

impl Veth {
    /// `mark`: a letter of the test's own.
    fn new(mark: char) -> Option<Veth> {
        let names = ["x", "y"].map(|end| format!("vnp{}{mark}{end}", std::process::id()));
        let veth = Veth(names);
        veth.make().then_some(veth)
    }

    fn make(&self) -> bool {
        let [x, y] = &self.0;
        ip(&["link", "add", x, "type", "veth", "peer", "name", y]) && self.set("up")
    }

    fn set(&self, state: &str) -> bool {
        self.0.iter().all(|end| ip(&["link", "set", end, state]))
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&["link", "delete", &self.0[0]]);
    }
}

async fn shown(lab: &Lab) -> Value {
    let text = lab.said(&["-o", "json", "port", "show", "p0"]).await;
    serde_json::from_str(&text).expect("JSON")
}

async fn wait(lab: &Lab, what: &str, done: impl Fn(&Value) -> bool) {
    for _ in 0..2000 {
        if done(&shown(lab).await) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: {}", shown(lab).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_over_a_network_device() {
    let Some(veth) = Veth::new('a') else {
        eprintln!("SKIP a_port_over_a_network_device: no right to make a veth pair");
        return;
    };
    let lab = Lab::start(1).await;
    let [end, peer] = &veth.0;

    // What cannot be is refused with the reason, and nothing is left of it.
    let text = lab
        .refused(1, &["port", "add", "p0", "--packet", "nowhere"])
        .await;
    assert!(text.contains("there is no network device nowhere"), "{text}");
    let text = lab
        .refused(1, &["port", "add", "p0", "--packet", end, "--mtu", "9000"])
        .await;
    assert!(text.contains("9000 is more than the MTU of"), "{text}");
    lab.refused(2, &["port", "add", "p0"]).await;
    lab.refused(2, &["port", "add", "p0", "--packet", end, "--tap", "tap0"])
        .await;
    assert_eq!(lab.said(&["port", "list"]).await, "no ports\n");

    let text = lab.said(&["port", "add", "p0", "--packet", end]).await;
    assert!(text.contains(&format!("packet {end}")), "{text}");
    assert!(text.contains("10000 Mbit/s"), "{text}");
    let port = shown(&lab).await;
    assert_eq!(
        (&port["up"], &port["device"]["mtu"]),
        (&true.into(), &1500.into())
    );
    assert_eq!(port["packet"]["ifname"], Value::from(end.as_str()));
    let statistics = port["device"]["statistics"].as_array().expect("an array");
    for name in ["rx_packets", "tx_dropped", "peer_ifindex"] {
        assert!(
            statistics.iter().any(|s| s["name"] == name),
            "{name}: {statistics:?}"
        );
    }

    // Its speed is set and taken back while it is there.
    let text = lab.said(&["port", "set", "p0", "--speed", "2500"]).await;
    assert!(text.contains("2500 Mbit/s, as set"), "{text}");
    assert_eq!(shown(&lab).await["speed_mbps"], 2500);
    assert_eq!(shown(&lab).await["device"]["speed_mbps"], 10_000);
    let text = lab.refused(1, &["port", "set", "p0", "--speed", "400001"]).await;
    assert!(
        text.contains("400001 is out of range: 1 to 400000 Mbit/s"),
        "{text}"
    );
    assert_eq!(shown(&lab).await["speed_mbps"], 2500);
    lab.said(&["port", "set", "p0", "--speed", "0"]).await;
    assert!(shown(&lab).await["speed_mbps"].is_null());
    lab.refused(1, &["port", "set", "p9", "--speed", "100"]).await;
    lab.refused(2, &["port", "set", "p0"]).await;

    // So is its storm control, each limit on its own.
    let set = ["port", "set", "p0", "--storm-broadcast"];
    let text = lab.said(&[&set[..], &["1000"]].concat()).await;
    assert!(text.contains("1000 broadcast frames a second"), "{text}");
    let text = lab
        .said(&["port", "set", "p0", "--storm-unknown-unicast", "7"])
        .await;
    assert!(
        text.contains("1000 broadcast, 7 unknown unicast frames a second"),
        "{text}"
    );
    let text = lab.refused(1, &[&set[..], &["100000001"]].concat()).await;
    assert!(
        text.contains("storm_broadcast_pps: 100000001 is out of range: 1 to 100000000 frames a second"),
        "{text}"
    );
    lab.said(&[&set[..], &["0"]].concat()).await;
    let port = shown(&lab).await;
    assert!(port["storm_broadcast_pps"].is_null(), "{port}");
    assert_eq!(port["storm_unknown_unicast_pps"], 7);

    assert!(ip(&["link", "set", peer, "down"]));
    wait(&lab, "link down", |p| p["up"] != true).await;
    assert!(ip(&["link", "set", peer, "up"]));
    wait(&lab, "link up", |p| p["up"] == true).await;
    assert!(ip(&["link", "delete", peer]));
    wait(&lab, "no device", |p| p["device"].is_null() && p["up"] != true).await;
    let text = lab.said(&["port", "show", "p0"]).await;
    assert!(
        text.contains(&format!("there is no network device {end} any more")),
        "{text}"
    );
    assert!(veth.make());
    wait(&lab, "link up again", |p| p["up"] == true).await;
    let text = lab.said(&["event", "list", "--kind", "port_link"]).await;
    assert_eq!(
        (text.matches("link up").count(), text.matches("link down").count()),
        (2, 2),
        "{text}"
    );
    lab.said(&["port", "remove", "p0"]).await;

    // A TAP device with queues, and a speed from the beginning.
    let tap = format!("vnq{}", std::process::id());
    let add = ["port", "add", "p1", "--tap", &tap, "--queues"];
    let text = lab.refused(1, &[&add[..], &["9"]].concat()).await;
    assert!(text.contains("9 is out of range: 1 to 8"), "{text}");
    lab.refused(2, &["port", "add", "p1", "--packet", end, "--queues", "2"])
        .await;
    let text = lab.said(&[&add[..], &["3", "--speed", "100"]].concat()).await;
    assert!(text.contains(&format!("tap {tap}, 3 queues")), "{text}");
    assert!(text.contains("100 Mbit/s, as set"), "{text}");
    lab.said(&["port", "remove", "p1"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_made_at_run_time_comes_back() {
    let Some(veth) = Veth::new('b') else {
        eprintln!("SKIP a_port_made_at_run_time_comes_back: no right to make a veth pair");
        return;
    };
    let lab = Lab::start(1).await;
    let [end, _] = &veth.0;
    let add = ["port", "add", "p0", "--packet", end, "--access-vlan", "7"];
    lab.said(&add).await;
    lab.said(&["port", "set", "p0", "--speed", "2500", "--storm-broadcast", "100"])
        .await;
    lab.said(&["team", "create", "aggregate", "Team0"]).await;
    lab.said(&["team", "attach", "Team0", "p0"]).await;
    let made = shown(&lab).await;
    assert_eq!(made["lifetime"], "LIFETIME_STORED");
    assert!(lab.said(&["port", "list"]).await.contains("stored"));

    let lab = lab.restart(1).await;
    let back = shown(&lab).await;
    assert_eq!(back["storm_broadcast_pps"], 100);
    for field in [
        "packet",
        "mtu",
        "vlan",
        "speed_mbps",
        "storm_broadcast_pps",
        "lifetime",
    ] {
        assert_eq!(back[field], made[field], "{field}: {back}");
    }
    let team = lab.json(&["team", "query", "Team0"]).await;
    assert!(team["up"] == true && team.to_string().contains("p0"), "{team}");

    // A port whose device is gone stays stored, and says so; it can be made anew, or removed.
    assert!(ip(&["link", "delete", end]));
    let lab = lab.restart(1).await;
    assert_eq!(lab.said(&["port", "list"]).await, "no ports\n");
    let events = lab
        .json(&["event", "list", "--kind", "stored_port_shadowed"])
        .await;
    assert_eq!(events["events"][0]["port"], "ports/p0", "{events}");
    let missing = "there is no port p0: it joins when it is made";
    let team = lab.json(&["team", "query", "Team0"]).await;
    assert_eq!(
        (&team["members"][0]["missing"], &team["problem"]),
        (&true.into(), &missing.into())
    );
    assert!(veth.make());
    lab.said(&add).await;
    let team = lab.json(&["team", "query", "Team0"]).await;
    assert_eq!(
        (&team["up"], &team["problem"]),
        (&true.into(), &"".into()),
        "{team}"
    );
    assert!(ip(&["link", "delete", end]));
    let lab = lab.restart(1).await;
    lab.said(&["team", "remove", "Team0"]).await;
    lab.said(&["port", "remove", "p0"]).await;
    lab.refused(1, &["port", "remove", "p0"]).await;
    assert!(veth.make());
    let lab = lab.restart(1).await;
    assert_eq!(lab.said(&["port", "list"]).await, "no ports\n");
    lab.end().await;
}

/// Two ports are joined by a command, come back so, are in the file of `export`, and are parted.
#[tokio::test(flavor = "multi_thread")]
async fn two_ports_are_a_bump_in_the_wire() {
    let (Some(one), Some(two)) = (Veth::new('f'), Veth::new('g')) else {
        eprintln!("skipped: no veth pairs");
        return;
    };
    let lab = Lab::start(1).await;
    for (port, veth) in [("p0", &one), ("p1", &two)] {
        lab.said(&["port", "add", port, "--packet", &veth.0[0]]).await;
    }
    assert_eq!(lab.said(&["bridge", "list"]).await, "no bridges\n");
    let text = lab.refused(1, &["bridge", "add", "p0", "p0"]).await;
    assert!(text.contains("bridge: p0 is the port itself"), "{text}");
    let text = lab.refused(1, &["bridge", "add", "p0", "P 1"]).await;
    assert!(text.contains("bridge: \"P 1\""), "{text}");
    lab.said(&["bridge", "add", "p0", "p1"]).await;
    let text = lab.refused(1, &["bridge", "add", "p1", "p2"]).await;
    assert!(text.contains("bridge: p1 is bridged with p0 already"), "{text}");

    let lab = lab.restart(1).await;
    let list = lab.said(&["bridge", "list"]).await;
    let row: Vec<&str> = list.lines().last().expect("a row").split_whitespace().collect();
    assert_eq!(row[..3], ["p0", "p1", "up"], "{list}");
    assert_eq!(shown(&lab).await["bridge"], "ports/p1");
    let text = lab
        .said(&[
            "trace",
            "p1",
            "--to",
            "02:00:5e:00:00:09",
            "--source",
            "02:00:5e:00:00:08",
        ])
        .await;
    assert!(text.contains("p1 and p0 are one wire"), "{text}");
    let text = lab.said(&["export"]).await;
    assert!(text.contains("bridge = \"p1\""), "{text}");

    lab.said(&["bridge", "remove", "p1"]).await;
    assert_eq!(lab.said(&["bridge", "list"]).await, "no bridges\n");
    let text = lab.refused(2, &["bridge", "remove", "p1"]).await;
    assert!(text.contains("p1 is in no bridge"), "{text}");
}
