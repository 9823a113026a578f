//! `vnicctl status`: what is odd is found and named with what to do about it.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::lab::{Lab, text};
use crate::common::wires::{Wires, ip};

/// Longer than anything here takes; it only keeps a test from hanging for ever.
const PATIENCE: Duration = Duration::from_secs(60);
/// What looks at a daemon that does not change.
const QUICK: &[&str] = &["status", "--interval", "10ms"];

/// Kinds and objects of findings.
fn found(status: &Value) -> Vec<(String, String)> {
    let word = |f: &Value, key: &str| f[key].as_str().expect("text").to_owned();
    let all = status["findings"].as_array().expect("findings").iter();
    all.map(|f| (word(f, "kind"), word(f, "about"))).collect()
}

fn pair(kind: &str, about: &str) -> (String, String) {
    (kind.to_owned(), about.to_owned())
}

/// Broadcast frames on a network device, until it is dropped.
pub struct Broadcasts(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Broadcasts {
    /// Gives the device an address of a network for documentation (RFC 5737).
    pub fn new(ifname: &str, net: u8) -> Broadcasts {
        let address = format!("198.51.100.{net}/28");
        assert!(ip(&["addr", "add", &address, "broadcast", "+", "dev", ifname]));
        let socket = UdpSocket::bind(format!("198.51.100.{net}:0")).expect("a socket");
        socket.set_broadcast(true).expect("broadcasts");
        let to = format!("198.51.100.{}:9", net | 15);
        let end = Arc::new(AtomicBool::new(false));
        let until = end.clone();
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                // A link that is down for a moment loses some.
                let _ = socket.send_to(b"hello", &to);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Broadcasts(end, Some(thread))
    }
}

impl Drop for Broadcasts {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fresh_daemon_has_nothing_odd() {
    let lab = Lab::start(2).await;
    let page = lab.said(&["status", "--interval", "10ms", "--check"]).await;
    assert!(page.ends_with("\nNothing is odd.\n"), "{page}");
    let pid = format!(", pid {}, ", std::process::id());
    assert!(page.starts_with("vnicd ") && page.contains(&pid), "{page}");
    assert!(
        page.contains("\nadapters  2 detached; RDMA functions: 2 detached\nports     none\n"),
        "{page}"
    );
    assert!(
        page.contains("\nevents    no warning and no error in the last 1 h 0 min\n"),
        "{page}"
    );

    let status = lab.json(QUICK).await;
    assert_eq!(status["findings"], serde_json::json!([]));
    assert_eq!(status["daemon"]["pid"], std::process::id());
    assert_eq!(status["daemon"]["serving"], true);
    assert_eq!(status["cores"][0]["cpu"], crate::common::cpu());
    assert_eq!(status["adapters"][1]["name"], "vf1");
    assert_eq!(status["adapters"][1]["rdma"], "detached");
    for list in [
        "ports",
        "teams",
        "drops",
        "rdma_errors",
        "events",
        "pending",
        "nv_pending",
        "faults",
        "verbs_faults",
    ] {
        assert_eq!(status[list], serde_json::json!([]), "{list}");
    }
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_and_settings_that_wait_are_found_with_the_command_that_ends_them() {
    let lab = Lab::start(2).await;
    lab.said(&["fault", "add", "lossy", "--to", "vf1", "--drop"])
        .await;
    let liar = ["fault", "verbs", "add", "liar", "--adapter", "vf1", "--lose"];
    lab.said(&liar).await;
    lab.said(&["registry", "set", "vf0", "VlanID", "55"]).await;
    lab.said(&["nvconfig", "set", "ROCE_CONTROL=1", "--yes"]).await;

    // Only --check makes what is odd a failure.
    let page = lab.said(QUICK).await;
    for line in [
        " ! fault rule lossy is live: drop (0 hit)\n",
        "     $ vnicctl fault remove lossy\n",
        " ! fault rule liar of verbs of vf1 is active: lose (0 hit)\n",
        "     $ vnicctl fault verbs remove liar\n",
        "liar: lose, completions: any of vf1, 0 hit, active\n",
        " ! settings of vf0 wait for its restart: VlanID\n",
        "     $ vnicctl adapter restart vf0\n",
        " ! NV parameters wait for a reset of the device: ROCE_CONTROL\n",
        "     $ vnicctl nvconfig device-reset\n",
    ] {
        assert!(page.contains(line), "{line}{page}");
    }
    let checked = lab.ctl(&["status", "--interval", "10ms", "--check"]).await;
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stdout).contains("fault rule lossy"));
    assert_eq!(text(&checked.stderr), "vnicctl: findings: 4\n");

    let status = lab.json(QUICK).await;
    assert_eq!(status["pending"][0]["key"], "VlanID");
    assert_eq!(status["faults"][0]["to"], "vf1");
    // The rules are events, too; they are found once.
    assert_eq!(status["verbs_faults"][0]["state"], "active");
    assert_eq!(status["events"][0]["kind"], "verbs_fault_added");
    assert_eq!(status["events"][1]["kind"], "fault_added");
    let wanted = [
        pair("settings_pending", "vf0"),
        pair("nv_pending", ""),
        pair("fault_live", "lossy"),
        pair("verbs_fault_live", "liar"),
    ];
    assert_eq!(found(&status), wanted);

    // The commands end what they were named for.
    for finding in status["findings"].as_array().expect("findings") {
        let command = finding["command"].as_str().expect("a command");
        let mut words: Vec<&str> = command.split(' ').skip(1).collect();
        if words[0] == "nvconfig" {
            words.push("--yes");
        }
        lab.said(&words).await;
    }
    assert_eq!(found(&lab.json(QUICK).await), []);
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_down_and_drops_that_grow_are_found() {
    let Some(wires) = Wires::new("a_port_that_is_down_and_drops_that_grow_are_found", 2) else {
        return;
    };
    let lab = Lab::start(1).await;
    // Broadcasts of p0 are flooded to p1.
    wires.ports(&lab).await;
    lab.said(&["port", "set", "p0", "--storm-broadcast", "1"]).await;
    let (_, wire) = wires.ends(0);
    let broadcasts = Broadcasts::new(wire, 1);
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        let status = lab.json(&["status", "--interval", "200ms"]).await;
        if found(&status).contains(&pair("drops", "p0")) {
            break status;
        }
        assert!(Instant::now() < deadline, "{status:#}");
    };
    drop(broadcasts);
    let finding = &status["findings"][0];
    let what = finding["what"].as_str().expect("text");
    assert!(
        what.starts_with("frames of p0 are dropped: storm_control ("),
        "{what}"
    );
    assert_eq!(finding["level"], "warning");
    assert_eq!(finding["command"], "vnicctl port show p0");
    let drops = &status["drops"][0];
    assert_eq!(
        (&drops["owner"], &drops["what"]),
        (&"p0".into(), &"storm_control".into())
    );
    assert!(drops["grew"].as_u64() > Some(0) && drops["total"].as_u64() >= drops["grew"].as_u64());

    assert!(ip(&["link", "set", wire, "down"]));
    while found(&lab.json(QUICK).await).first() != Some(&pair("port_down", "p0")) {
        assert!(Instant::now() < deadline, "the port is not down");
    }
    let page = lab.said(QUICK).await;
    assert!(
        page.contains("\nports     1 down, 1 up\n          p0 is down"),
        "{page}"
    );
    assert!(page.contains("\n!! the link of port p0 is down"), "{page}");
    assert!(page.contains(" warning port_link p0, last "), "{page}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_without_a_member_that_can_carry_frames_is_found() {
    let Some(wires) = Wires::new("a_team_without_a_member_that_can_carry_frames_is_found", 2) else {
        return;
    };
    let lab = Lab::start(1).await;
    wires.ports(&lab).await;
    lab.said(&["team", "create", "aggregate", "Team 0"]).await;
    lab.said(&["team", "attach", "Team 0", "p0"]).await;
    lab.said(&["team", "attach", "Team 0", "p1"]).await;
    let deadline = Instant::now() + PATIENCE;
    for i in 0..2 {
        assert!(ip(&["link", "set", wires.ends(i).1, "down"]));
    }
    let wanted = [
        pair("port_down", "p0"),
        pair("port_down", "p1"),
        pair("team_down", "Team 0"),
        pair("team_member_down", "Team 0"),
    ];
    while found(&lab.json(QUICK).await) != wanted {
        assert!(Instant::now() < deadline, "{:#}", lab.json(QUICK).await);
    }
    let page = lab.said(QUICK).await;
    assert!(
        page.contains("\nteams     Team 0 is down: 0 of 2 members up\n"),
        "{page}"
    );
    assert!(page.contains("$ vnicctl team view 'Team 0'\n"), "{page}");
    lab.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_cannot_be_reached_is_a_failure() {
    let lab = Lab::start(1).await;
    let socket = lab.dir.path().join("nobody.sock");
    let endpoint = format!("unix:{}", socket.display());
    for command in ["status", "top"] {
        let said = lab.refused(1, &[command, "--endpoint", &endpoint]).await;
        assert!(said.starts_with("vnicctl: cannot reach vnicd at "), "{said}");
    }
    lab.end().await;
}
