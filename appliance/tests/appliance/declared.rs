//! Export, diff, apply, reload and backup: what is there as a configuration file, and back.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::lab::text;
use crate::common::process::{self, Process};
use crate::common::wires::Wires;
use rustix::process::Signal;
use vnic_appliance::config::{Environment, Overrides, Settings, written};
use vnic_appliance::store::{Batch, OnDamage, Schema, Store};

fn file(dir: &Path, name: &str, content: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, content).expect("a file");
    path.display().to_string()
}

/// What a command printed that ends with this code.
#[track_caller]
fn ends(output: &Output, code: i32) -> String {
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{all}");
    all
}

/// An export without what is in comments, which is of the daemon itself.
fn tables(daemon: &Process) -> String {
    let export = daemon.said(&["export"]);
    let lines = export.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| format!("{line}\n")).collect()
}

fn shown(daemon: &Process, adapter: &str) -> serde_json::Value {
    let output = daemon.said(&["-o", "json", "adapter", "show", adapter]);
    serde_json::from_str(&output).expect("JSON")
}

/// Gives an adapter settings that [`kept`] finds: a key of the registry, and an access list.
fn mark(daemon: &Process, adapter: &str) {
    daemon.said(&["registry", "set", adapter, "DelayDropTimeout", "50"]);
    daemon.said(&["acl", "set", adapter, "--tx", "deny"]);
}

/// Whether the settings of an adapter are those of [`mark`].
fn kept(daemon: &Process, adapter: &str) -> bool {
    let list = daemon.said(&["acl", "show", adapter]);
    let has_list = list.contains("tx: others deny");
    let all = daemon.said(&["registry", "list", adapter]);
    let row = all.lines().find(|line| line.contains("DelayDropTimeout"));
    let has_key = row.is_some_and(|row| row.split_whitespace().any(|word| word == "50"));
    assert_eq!(has_key, has_list, "all or nothing is kept");
    has_key
}

/// Starts a daemon again on the file that is there.
fn again(daemon: Process, dir: &Path, config: &str) -> Process {
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    process::start(dir, config)
}

const ALL: &str = r#"
port = [
    { name = "p0", type = "tap", ifname = "t0", queues = 4, mtu = 9000, data_core = 1, speed_mbps = 25000 },
    { name = "p1", type = "xdp", ifname = "e0", vlan = { access = 7 }, storm_broadcast_pps = 5, bridge = "p9" },
    { name = "p2", type = "packet", ifname = "e1", storm_unknown_unicast_pps = 6, lldp = "rx-and-tx", dcbx = "auto",
      dcbx_willing = ["pfc"], dcbx_applications = ["udp:4791=3", "ethertype:0x8906=4"] },
    { name = "m0", type = "mesh", listen = "[::]:4790", peers = ["a:1", "b:2"], names = ["a", "b"],
      certificate = "/c", key = "/k", ca = "/a", crl = "/l" },
    { name = "m1", type = "mesh", listen = "0.0.0.0:4791", names = ["*"], certificate = "/c", key = "/k", ca = "/a" },
]
team = [
    { name = "Team \"0\"", type = "aggregate", members = ["p0", "p1"], team_mac_of = "p1", hash = "layer2", lacp = "passive",
      lacp_slow = true, lacp_priority = 5, lacp_key = 6, failback_delay = "1.5s", quiet = "250us", patience = "never",
      view_flows = 9, vlan_id = 4, vlan_prio = 3, vlan = { trunk = [2, 3], native = 2 } },
    { name = "Team1", type = "failover", members = ["p2"], primary = "p2", no_failback = true, patience = "1h" },
]
adapter = [
    { name = "vf0", mac = "02:00:00:00:00:01", macs = ["02:00:00:00:00:02"], mtu = 9216, queue_pairs = 4,
      vlan = { trunk = [5, 6], native = 4 }, control_queue = true, rdma_flows = false, pkeys = ["0xffff", "0x0001"], anti_spoofing = false, allowed_addresses = ["10.0.0.0/24", "fd00::1"], data_core = 2,
      socket_role = "connect", socket = "/x/a.sock", rdma_socket = "/x/b.sock", rdma_memory_mib = 100, vmm_regions = 10,
      vmm_descriptors = 20, socket_owner = "7", socket_group = "8", socket_mode = "0600", socket_users = ["9", "10"],
      wake = "qmp:/x/m.sock", wake_patterns = ["01:--", "12+08:06"] },
    { name = "vf1", rdma = false },
    { name = "vf2" },
]
fault = [
    { name = "a", from = "vf0", to = "p0", destination_qp = 1, opcodes = ["RC_SEND_ONLY", 0xff], psn = "16777214-3", ethertype = 2048,
      skip = 1, probability = 0.000001, count = 2, seed = 3, roce = true, action = "drop" },
    { name = "b", psn = 7, action = "delay", delay = "1.2ms", jitter = "300us" },
    { name = "c", action = "delay", delay = "60s" },
    { name = "d", action = "reorder", frames = 3, at_most = "1ms" },
    { name = "e", action = "duplicate", copies = 2 },
    { name = "f", action = "corrupt", bits = 3, offset = 9 },
    { name = "g", action = "mark_ce" },
    { name = "h", probability = "1%", action = "corrupt" },
]
[[verbs_fault]]
name = "v0"
adapter = "vf2"
lie = "retry-exceeded"
qp = 17
kind = ["write", "read"]
process = "server"
min_bytes = 8
max_bytes = 4096
after = "10s"
for = "1.5ms"
skip = 1
probability = 0.000001
count = 2
seed = 3

[[verbs_fault]]
name = "v1"
adapter = "vf2"
fail = "remote-access-error"
process = 7

[[verbs_fault]]
name = "v2"
adapter = "vf2"
lose = true

[[verbs_fault]]
name = "v3"
adapter = "vf2"
double = true

[[verbs_fault]]
name = "v4"
adapter = "vf2"
late = "50ms"

[[verbs_fault]]
name = "v5"
adapter = "vf2"
hang = true

[[verbs_fault]]
name = "v6"
adapter = "vf2"
swap = "1ms"

[[verbs_fault]]
name = "v7"
adapter = "vf2"
length = 7

[[verbs_fault]]
name = "v8"
adapter = "vf2"
immediate = 0xbad

[[verbs_fault]]
name = "v9"
adapter = "vf2"
overrun = true

[[verbs_fault]]
name = "v10"
adapter = "vf2"
srq_limit = true

[[verbs_fault]]
name = "v11"
adapter = "vf2"
command = ["register-mr", "hello"]
status = "in-use"
delay = "200ms"

[[verbs_fault]]
name = "v12"
adapter = "vf2"
not_ready = true
qp = 3

[[verbs_fault]]
name = "v13"
adapter = "vf2"
post = "send"
errno = "ENOMEM"
operation = ["write", "send-imm"]

[[subnet.group]]
name = "all"
partition = "0xffff"

[[subnet.group]]
name = "video"
partition = "0x0001"
mgid = "ff15::1:2"
qkey = 7
mtu = 4096
rate_mbps = 40000
sl = 3
lifetime = 9
"#;

#[test]
fn every_key_is_written_as_it_is_read() {
    let overrides = Overrides {
        socket_dir: Some("/run/x".into()),
        data_cores: Some(vec![1, 2]),
        ..Overrides::default()
    };
    let environment = Environment {
        cpus: vec![0, 1, 2],
        ..Environment::current()
    };
    let read = |text: &str| {
        let read = Settings::from_text(Path::new("x.toml"), text, &overrides, &environment);
        read.unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
    };
    let settings = read(ALL);
    assert_eq!(settings.objects().len(), 34);
    let once = written(&settings, &settings.objects());
    let again = read(&once);
    assert_eq!(again.objects(), settings.objects(), "{once}");
    assert_eq!(written(&again, &again.objects()), once);
    // All keys that there are have been written.
    let example = include_str!("../../../deploy/config/vnicd.toml");
    let (_, tables) = example.split_once("\n[[adapter]]\n").expect("an adapter");
    let keys = tables
        .lines()
        .filter_map(|line| line.trim_start_matches('#').split_once(" = "));
    let keys: Vec<&str> = keys
        .map(|(key, _)| key)
        .filter(|key| !key.contains(' '))
        .collect();
    assert!(keys.len() > 60, "{keys:?}");
    for key in keys {
        assert!(once.contains(&format!("\n{key} = ")), "{key}: {once}");
    }
    // Defaults are left out.
    let vf2 = once.split("\"vf2\"\n").nth(1).expect("vf2");
    let keys: Vec<_> = vf2.lines().take_while(|line| !line.is_empty()).collect();
    assert!(keys.len() == 1 && keys[0].starts_with("mac = "), "{keys:?}");
    // Keys of the daemon are in comments, and are read without their signs.
    let all: String = once
        .lines()
        .map(|line| {
            line.strip_prefix('#')
                .filter(|l| !l.starts_with(' '))
                .unwrap_or(line)
                .to_owned()
                + "\n"
        })
        .collect();
    let with = Settings::from_text(Path::new("x.toml"), &all, &Overrides::default(), &environment);
    let with = with.unwrap_or_else(|wrong| panic!("{wrong}\n{all}"));
    assert_eq!(
        (with.socket_dir, with.control),
        (settings.socket_dir, settings.control)
    );
}

#[test]
fn what_one_daemon_exports_another_one_takes() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "[[adapter]]\nname = \"vf0\"\nvlan = { access = 7 }\n[[fault]]\nname = \"lossy\"\nto = \"vf0\"\naction = \"drop\"\n";
    let from = process::start(dir.path(), config);
    from.said(&["adapter", "add", "blue", "--mtu", "9000", "--no-anti-spoofing"]);
    from.said(&[
        "adapter",
        "add",
        "red",
        "--socket-user",
        "0",
        "--socket-user",
        "77",
    ]);
    let export = file(dir.path(), "export.toml", &from.said(&["export"]));
    assert_eq!(
        ends(&from.ctl(&["diff", "-f", &export, "--prune"]), 0),
        "nothing to change\n"
    );

    let other = tempfile::tempdir().expect("a directory");
    let to = process::start(other.path(), "");
    let diff = ends(&to.ctl(&["diff", "-f", &export]), 1);
    for line in [
        "+ adapters/blue: add\n",
        "    mtu = 9000\n",
        "+ faults/lossy: add\n    (it lives until the daemon ends)\n",
    ] {
        assert!(diff.contains(line), "{diff}");
    }
    // A dry run tells the same, and does nothing.
    assert_eq!(to.said(&["apply", "-f", &export, "--dry-run"]), diff);
    assert_eq!(to.said(&["adapter", "list"]), "no adapters\n");
    let applied = to.said(&["apply", "-f", &export]);
    assert!(applied.contains("+ adapters/red: add: done\n"), "{applied}");
    assert_eq!(
        ends(&to.ctl(&["diff", "-f", &export, "--prune"]), 0),
        "nothing to change\n"
    );
    assert_eq!(tables(&to), tables(&from));
    let etag = shown(&to, "blue")["etag"].clone();
    assert_eq!(to.said(&["apply", "-f", &export]), "nothing to change\n");
    assert_eq!(shown(&to, "blue")["etag"], etag);
    let told = to.events(&["--kind", "config_applied"]);
    assert_eq!(told.len(), 1, "what changes nothing is no event: {told:?}");
    assert_eq!(told[0]["parameters"]["changes"], "4");
    // What was made is stored, but for fault rules, and in the daemon's own directory.
    let to = again(to, other.path(), "");
    let diff = ends(&to.ctl(&["diff", "-f", &export]), 1);
    assert_eq!(
        diff.lines().filter(|line| !line.starts_with(' ')).count(),
        1,
        "{diff}"
    );
    let socket = other.path().join("blue-eth.sock").display().to_string();
    assert_eq!(shown(&to, "blue")["eth_socket"], socket);
    assert_eq!(shown(&to, "blue")["lifetime"], "LIFETIME_STORED");

    // The file is the configuration of a third one.
    let third = tempfile::tempdir().expect("a directory");
    let third_of = process::start(third.path(), &std::fs::read_to_string(&export).expect("it"));
    assert_eq!(tables(&third_of), tables(&from));
}

#[test]
fn what_the_file_does_not_have_stays_or_goes() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "adapter = [{ name = \"a\" }, { name = \"b\" }]");
    daemon.said(&["adapter", "add", "c"]);
    daemon.said(&["fault", "add", "f", "--to", "a", "--drop"]);
    let only = file(
        dir.path(),
        "only.toml",
        "adapter = [{ name = \"a\", mtu = 9000, vlan = { access = 5 } }]",
    );
    let applied = daemon.said(&["apply", "-f", &only]);
    assert!(
        applied.contains("left (--prune removes it): adapters/b, adapters/c, faults/f"),
        "{applied}"
    );
    // The VLAN acts, the MTU waits.
    assert!(applied.contains("~ adapters/a: change: done"), "{applied}");
    assert!(
        applied.contains("adapters/a: waits for `vnicctl adapter restart a`\n    mtu: 1500 -> 9000\n"),
        "{applied}"
    );
    assert!(applied.contains("it is of the configuration file"), "{applied}");
    let again_ = daemon.said(&["apply", "-f", &only]);
    assert!(
        again_.starts_with("nothing to change\n") && again_.contains("mtu: 1500 -> 9000"),
        "{again_}"
    );
    daemon.said(&["adapter", "restart", "a"]);
    assert_eq!(shown(&daemon, "a")["mtu"], 9000);
    mark(&daemon, "c");
    let applied = daemon.said(&["apply", "-f", &only, "--prune"]);
    for line in [
        "- adapters/b: remove: done",
        "- adapters/c: remove: done",
        "- faults/f: remove: done",
    ] {
        assert!(applied.contains(line), "{applied}");
    }
    // What is removed leaves no settings.
    daemon.said(&["adapter", "add", "c"]);
    assert!(!kept(&daemon, "c"));
    daemon.said(&["adapter", "remove", "c"]);
    // The configuration file wins at the next start.
    let daemon = again(
        daemon,
        dir.path(),
        "adapter = [{ name = \"a\" }, { name = \"b\" }]",
    );
    let names = daemon.said(&["adapter", "list"]);
    assert!(names.contains("\nb ") && !names.contains("\nc "), "{names}");
}

#[test]
fn multicast_groups_come_go_and_change() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "[[subnet.group]]\nname = \"all\"\npartition = \"0xffff\"\n";
    let daemon = process::start(dir.path(), config);
    let made = |daemon: &Process, name: &str, key: &str| {
        daemon.said(&["subnet", "group", "create", name, "--partition", key]);
    };
    made(&daemon, "blue", "0x8001");
    made(&daemon, "red", "0x8002");
    let export = tables(&daemon);
    let blue = "[[subnet.group]]\nname = \"blue\"\npartition = \"0x8001\"\n";
    assert!(export.contains(config) && export.contains(blue), "{export}");
    let same = file(dir.path(), "same.toml", &export);
    assert_eq!(
        ends(&daemon.ctl(&["diff", "-f", &same, "--prune"]), 0),
        "nothing to change\n"
    );
    // One changes, one comes, and has the GID of one that goes; one stays as it is.
    let wanted = format!(
        "{config}[[subnet.group]]\nname = \"blue\"\npartition = \"0x8001\"\nsl = 3\n\
         [[subnet.group]]\nname = \"crimson\"\npartition = \"0x8002\"\n"
    );
    let wanted = file(dir.path(), "wanted.toml", &wanted);
    let refused = ends(&daemon.ctl(&["apply", "-f", &wanted]), 1);
    let taken = "subnetGroups/crimson: subnetGroups/red, which is not in the file and stays, has the mgid";
    assert!(refused.contains(taken), "{refused}");
    assert_eq!(tables(&daemon), export);
    let applied = daemon.said(&["apply", "-f", &wanted, "--prune"]);
    for line in [
        "! subnetGroups/blue: remove and make anew: done\n    sl: 0 -> 3\n",
        "+ subnetGroups/crimson: add: done\n",
        "- subnetGroups/red: remove: done\n",
    ] {
        assert!(applied.contains(line), "{line}: {applied}");
    }
    let after = tables(&daemon);
    assert!(after.contains("sl = 3") && !after.contains("red"), "{after}");
    // What was made is stored, what the file has is the file's.
    let daemon = again(daemon, dir.path(), config);
    assert_eq!(tables(&daemon), after);
    // The file takes over one, and leaves another one.
    let daemon = again(
        daemon,
        dir.path(),
        "[[subnet.group]]\nname = \"blue\"\npartition = \"0x8001\"\nmtu = 256\n",
    );
    let now = tables(&daemon);
    assert!(
        now.contains("mtu = 256") && now.contains("crimson") && !now.contains("\"all\""),
        "{now}"
    );
    let said = daemon.said(&["server", "reload"]);
    assert!(said.ends_with("nothing to change\n"), "{said}");
    // Its own is not stored any more.
    let daemon = again(daemon, dir.path(), "");
    let left = tables(&daemon);
    assert!(left.contains("crimson") && !left.contains("blue"), "{left}");
}

#[test]
fn a_wrong_file_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(
        dir.path(),
        "adapter = [{ name = \"a\", mac = \"02:00:00:00:00:01\" }]",
    );
    let before = tables(&daemon);
    let wrong = file(
        dir.path(),
        "wrong.toml",
        "[[adapter]]\nname = \"b\"\n[[adapter]]\nname = \"c\"\nmtu = 5\nmac_ = 1\n",
    );
    for (code, arguments) in [(2, ["diff", "-f", &wrong]), (1, ["apply", "-f", &wrong])] {
        let text = ends(&daemon.ctl(&arguments), code);
        assert!(
            text.contains(&format!("{wrong}:5:7: adapter[1].mtu: 5 is out of range")),
            "{text}"
        );
        assert!(
            text.contains(&format!("{wrong}:6:1: adapter[1].mac_: unknown key")),
            "{text}"
        );
    }
    let taken = file(
        dir.path(),
        "taken.toml",
        "adapter = [{ name = \"b\" }, { name = \"c\", mac = \"02:00:00:00:00:01\" }]",
    );
    let text = ends(&daemon.ctl(&["apply", "-f", &taken]), 1);
    assert!(
        text.contains(
            "adapters/c: adapters/a, which is not in the file and stays, has the address 02:00:00:00:00:01"
        ),
        "{text}"
    );
    // A file that is all wrong costs little, and its refusal is short.
    let refusal = |text: &str| {
        let junk = file(dir.path(), "junk.toml", text);
        ends(&daemon.ctl(&["apply", "-f", &junk]), 1)
    };
    let keys: String = (0..30).map(|i| format!("x{i} = 1\n")).collect();
    let text = refusal(&keys);
    assert_eq!(text.matches("unknown key").count(), 20, "{text}");
    let macs = "\"x\", ".repeat(500);
    let text = refusal(&format!("[[adapter]]\nname = \"a\"\nmacs = [{macs}]\n"));
    assert!(text.ends_with("\nand 80 more lines\n"), "{text}");
    assert_eq!(tables(&daemon), before);
    // It may have what goes.
    daemon.said(&["apply", "-f", &taken, "--prune"]);
    assert_eq!(shown(&daemon, "c")["macs"][0], "02:00:00:00:00:01");
    ends(&daemon.ctl(&["diff", "-f", "/no/such/file"]), 2);
}

#[test]
fn a_step_that_is_refused_undoes_those_before_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(
        dir.path(),
        "adapter = [{ name = \"a\" }, { name = \"b\" }]\n[[fault]]\nname = \"f\"\naction = \"drop\"\n",
    );
    daemon.said(&["adapter", "add", "c"]);
    mark(&daemon, "c");
    let before = daemon.said(&["export"]);
    let bad = file(
        dir.path(),
        "bad.toml",
        "adapter = [{ name = \"a\", vlan = { access = 9 } }, { name = \"d\" }, { name = \"e\", socket = \"/no/such/directory/e.sock\" }]\n\
         fault = [{ name = \"g\", to = \"e\", action = \"drop\" }]",
    );
    let text = ends(&daemon.ctl(&["apply", "-f", &bad, "--prune"]), 1);
    for line in [
        "~ adapters/a: change: undone\n",
        "+ adapters/d: add: undone\n",
        "+ adapters/e: add: refused\n",
        "- adapters/c: remove: undone\n",
        "- faults/f: remove: undone\n",
        "+ faults/g: add: not tried\n",
        "a step was refused: adapters/e: ",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert_eq!(daemon.said(&["export"]), before);
    let told = daemon.events(&["--kind", "config_applied"]);
    assert!(
        told[0]["message"]
            .as_str()
            .is_some_and(|m| m.contains("refused: adapters/e")),
        "{told:?}"
    );
    // Settings of the adapter that came back act, and it is stored; the one that was undone is not.
    assert!(kept(&daemon, "c"));
    let daemon = again(
        daemon,
        dir.path(),
        "adapter = [{ name = \"a\" }, { name = \"b\" }]\n[[fault]]\nname = \"f\"\naction = \"drop\"\n",
    );
    let seedless = |text: &str| {
        text.lines()
            .filter(|l| !l.starts_with("seed"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(seedless(&daemon.said(&["export"])), seedless(&before));
}

#[test]
fn ports_and_teams_come_go_and_change() {
    let Some(wires) = Wires::new("ports_and_teams_come_go_and_change", 3) else {
        return;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "");
    let port = |i: usize, more: &str| {
        format!(
            "[[port]]\nname = \"p{i}\"\ntype = \"packet\"\nifname = \"{}\"\n{more}",
            wires.ends(i).0
        )
    };
    let team = |text: &str| format!("[[team]]\nname = \"T\"\n{text}\n");
    let apply = |text: &str| {
        let file = file(dir.path(), "nic.toml", text);
        let said = daemon.said(&["apply", "-f", &file, "--prune"]);
        assert_eq!(
            ends(&daemon.ctl(&["diff", "-f", &file, "--prune"]), 0),
            "nothing to change\n",
            "{said}"
        );
        said
    };
    let aggregate = "type = \"aggregate\"\nmembers = [\"p0\", \"p1\"]\n";
    let text = apply(&(port(0, "") + &port(1, "") + &team(aggregate)));
    assert!(
        text.contains("+ ports/p1: add: done") && text.contains("+ teams/t: add: done"),
        "{text}"
    );
    daemon.said(&["qos", "set", "p1", "--rate", "1G"]);
    // A port of a team is made anew, and keeps what is stored for it.
    let text = apply(
        &(port(0, "storm_broadcast_pps = 9\n")
            + &port(1, "vlan = { access = 3 }\n")
            + &port(2, "")
            + &team(aggregate)),
    );
    assert!(
        text.contains("~ ports/p0: change: done") && text.contains("! ports/p1: remove and make anew: done"),
        "{text}"
    );
    let qos = daemon.said(&["-o", "json", "qos", "show", "p1"]);
    assert!(qos.contains("1000"), "{qos}");
    let team_now = || -> serde_json::Value {
        serde_json::from_str(&daemon.said(&["-o", "json", "team", "query", "T"])).expect("JSON")
    };
    assert_eq!(team_now()["members"].as_array().map(Vec::len), Some(2));
    // A team of another type keeps its identity; a port goes from it.
    let guid = team_now()["guid"].clone();
    let failover = "type = \"failover\"\nmembers = [\"p2\", \"p0\"]\nprimary = \"p0\"\n";
    let text = apply(&(port(0, "") + &port(2, "") + &team(failover)));
    assert!(
        text.contains("- ports/p1: remove: done") && text.contains("~ teams/t: change: done"),
        "{text}"
    );
    assert_eq!(
        (&team_now()["guid"], &team_now()["type"]),
        (&guid, &"TYPE_FAILOVER".into())
    );
    let before = tables(&daemon);
    // The device of the last port is not there: all is as it was.
    let bad = file(
        dir.path(),
        "bad.toml",
        &(port(0, "mtu = 1400\n")
            + "[[port]]\nname = \"p9\"\ntype = \"packet\"\nifname = \"nosuchdevice\"\n"),
    );
    let text = ends(&daemon.ctl(&["apply", "-f", &bad, "--prune"]), 1);
    assert!(
        text.contains("- teams/t: remove: undone") && text.contains("+ ports/p9: add: refused"),
        "{text}"
    );
    let sorted = |text: &str| {
        let mut all: Vec<String> = text.split("\n\n").map(|t| t.trim().to_owned()).collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&tables(&daemon)), sorted(&before));
    let daemon = again(daemon, dir.path(), "");
    assert_eq!(sorted(&tables(&daemon)), sorted(&before));
}

/// Waits for so many events of files that were read.
fn read_again(daemon: &Process, count: usize) -> serde_json::Value {
    for _ in 0..6000 {
        if let Some(event) = daemon.events(&["--kind", "config_applied"]).get(count - 1) {
            return event.clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing was read again");
}

#[test]
fn a_signal_makes_what_the_file_says_now() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "adapter = [{ name = \"a\" }, { name = \"b\" }]");
    daemon.said(&["adapter", "add", "c"]);
    daemon.said(&["adapter", "add", "d"]);
    mark(&daemon, "b");
    let path = dir.path().join("vnicd.toml");
    let before = std::fs::read_to_string(&path).expect("the file");
    let head = before
        .lines()
        .next()
        .expect("the directory of sockets")
        .to_owned()
        + "\nmetrics.listen = \"off\"\n";
    let write = |text: &str| std::fs::write(&path, format!("{head}{text}")).expect("a file");
    // a changes, b goes, c is of the file from now on, d stays, e comes; two keys wait.
    let text = "events.days = 7\nnic.mac_ageing_s = 60\n\
                adapter = [{ name = \"a\", vlan = { access = 5 }, mtu = 9000 }, { name = \"c\" }, { name = \"e\" }]";
    write(text);
    daemon.signal(Signal::HUP);
    let event = read_again(&daemon, 1);
    assert_eq!(event["parameters"]["waits"], "nic.mac_ageing_s, events.days");
    assert_eq!(event["parameters"]["changes"], "3");
    let origin = |name: &str| shown(&daemon, name)["lifetime"].as_str().expect("one").to_owned();
    assert_eq!(
        ["a", "c", "d", "e"].map(origin),
        [
            "LIFETIME_CONFIGURED",
            "LIFETIME_CONFIGURED",
            "LIFETIME_STORED",
            "LIFETIME_CONFIGURED"
        ]
    );
    daemon.refused(&["adapter", "show", "b"]);
    // The RPC finds nothing more, and tells what waits.
    let said = daemon.said(&["server", "reload"]);
    assert!(said.contains("nothing to change\n"), "{said}");
    assert!(
        said.contains("adapters/a: waits for `vnicctl adapter restart a`\n    mtu: 1500 -> 9000\n"),
        "{said}"
    );
    assert!(
        said.contains(
            "waits for a restart of the daemon:\n    nic.mac_ageing_s: 300 -> 60\n    events.days: 30 -> 7\n"
        ),
        "{said}"
    );
    // A wrong file changes nothing.
    let tables_before = tables(&daemon);
    write("adapter = [{ name = \"f\" }, { name = \"a\", mtu = 1 }]");
    daemon.signal(Signal::HUP);
    let event = read_again(&daemon, 3);
    assert_eq!(event["severity"], "SEVERITY_WARNING", "{event}");
    assert!(
        event["parameters"]["problem"]
            .as_str()
            .is_some_and(|p| p.contains("vnicd.toml:3:48: adapter[1].mtu")),
        "{event}"
    );
    let refused = daemon.refused(&["server", "reload"]);
    assert!(refused.contains("adapter[1].mtu"), "{refused}");
    assert_eq!(tables(&daemon), tables_before);
    // An adapter that comes back has its settings; at the next start it is as after the reload.
    write(&text.replace("{ name = \"e\" }", "{ name = \"b\" }"));
    let said = daemon.said(&["server", "reload"]);
    assert!(
        said.contains("- adapters/e: remove: done") && said.contains("+ adapters/b: add: done"),
        "{said}"
    );
    assert!(kept(&daemon, "b"));
    daemon.said(&["adapter", "restart", "a"]);
    let tables_before = tables(&daemon);
    let text = text.replace("{ name = \"e\" }", "{ name = \"b\" }");
    let daemon = again(daemon, dir.path(), &text);
    assert_eq!(tables(&daemon), tables_before);
    assert!(daemon.events(&["--kind", "stored_adapter_shadowed"]).is_empty());
    assert!(
        daemon
            .said(&["server", "reload"])
            .ends_with("nothing to change\n")
    );
}

#[test]
fn a_backup_is_the_store_of_another_daemon() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "");
    daemon.said(&["adapter", "add", "blue", "--mtu", "9000"]);
    daemon.said(&["registry", "set", "blue", "DelayDropTimeout", "50"]);
    let copy = dir.path().join("copy.redb");
    let path = copy.display().to_string();
    let said = daemon.said(&["backup", &path]);
    assert!(said.starts_with(&path), "{said}");
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(&copy).expect("the copy").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What comes later is not in it; nothing is left in the state directory.
    daemon.said(&["adapter", "add", "red"]);
    let left: Vec<PathBuf> = std::fs::read_dir(dir.path().join("state"))
        .expect("it")
        .map(|e| e.expect("it").path())
        .collect();
    assert!(
        !left.iter().any(|p| p.to_string_lossy().contains("backup")),
        "{left:?}"
    );
    let other = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(other.path().join("state")).expect("a directory");
    std::fs::copy(&copy, other.path().join("state/state.redb")).expect("restored");
    let restored = process::start(other.path(), "");
    daemon.said(&["adapter", "remove", "red"]);
    let fixed = |text: String| {
        text.replace(&dir.path().display().to_string(), "")
            .replace(&other.path().display().to_string(), "")
    };
    let macless = |text: String| {
        text.lines()
            .filter(|l| !l.starts_with("mac = "))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(macless(tables(&restored)), macless(tables(&daemon)));
    assert_eq!(
        fixed(restored.said(&["registry", "export"])),
        fixed(daemon.said(&["registry", "export"]))
    );
    // Again, in place of the first.
    daemon.said(&["backup", &path]);
    daemon.refused(&["backup", "/no/such/directory/x"]);
}

#[test]
fn a_copy_has_no_batch_in_part() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = |name: &str| {
        Store::open(dir.path(), name, Schema::new(1), OnDamage::Refuse)
            .expect("a store")
            .0
    };
    let store = open("test.redb");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 1..=200_u64 {
                let mut batch = Batch::new();
                batch
                    .put("a", *b"n", n.to_be_bytes())
                    .put("b", *b"n", n.to_be_bytes());
                store.commit(batch).expect("written");
            }
        });
        let mut i = 0;
        while !writer.is_finished() || i == 0 {
            let name = format!("copy-{i}.redb");
            let mut copy = store.backup().expect("a copy");
            let mut to = std::fs::File::create(dir.path().join(&name)).expect("a file");
            std::io::copy(&mut copy, &mut to).expect("copied");
            let copy = open(&name);
            assert_eq!(copy.all("a").expect("rows"), copy.all("b").expect("rows"));
            i += 1;
        }
    });
    let mut copy = store.backup().expect("a copy");
    let mut to = std::fs::File::create(dir.path().join("last.redb")).expect("a file");
    std::io::copy(&mut copy, &mut to).expect("copied");
    assert_eq!(
        open("last.redb").all("a").expect("rows")[0].1,
        200_u64.to_be_bytes()
    );
}

/// Blocks of a page: the kind behind the fence, the lines, and where these are.
fn blocks(page: &str) -> Vec<(&str, std::ops::Range<usize>)> {
    let (mut all, mut open, mut at) = (Vec::new(), None, 0);
    for line in page.split_inclusive('\n') {
        match (line.strip_prefix("```"), open) {
            (Some(kind), None) => open = Some((kind.trim_end(), at + line.len())),
            (Some(_), Some((kind, from))) => {
                all.push((kind, from..at));
                open = None;
            }
            (None, _) => {}
        }
        at += line.len();
    }
    all
}

#[test]
fn the_commands_of_the_page_do_what_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/state.md");
    let page = std::fs::read_to_string(path).expect("docs/state.md");
    let all = blocks(&page);
    let dir = tempfile::tempdir().expect("a directory");
    // What each block says goes into a file of its own.
    let mut script = "trap 'kill $nic 2>/dev/null || true' EXIT\n".to_owned();
    for (i, (_, at)) in all.iter().enumerate().filter(|(_, (kind, _))| *kind == "sh") {
        script += &format!("{{\n{}}} >{i}.txt\n", &page[at.clone()]);
    }
    let programs = Path::new(env!("CARGO_BIN_EXE_vnicctl"))
        .parent()
        .expect("a directory");
    let path_of = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let bash = std::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(dir.path())
        .env("PATH", path_of)
        .output()
        .expect("bash");
    let log = std::fs::read_to_string(dir.path().join("nic.log")).unwrap_or_default();
    assert!(
        bash.status.success(),
        "{}{}{log}",
        text(&bash.stdout),
        text(&bash.stderr)
    );
    let mut made = page.clone();
    for (i, pair) in all.windows(2).enumerate().rev() {
        let [("sh", _), (kind, shown)] = pair else {
            continue;
        };
        let said = std::fs::read_to_string(dir.path().join(format!("{i}.txt"))).expect("what it said");
        match *kind {
            "text" => made.replace_range(shown.clone(), &said),
            _ => assert_eq!(said, "", "it says something that the page does not show"),
        }
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).expect("docs/state.md");
    }
    let page = std::fs::read_to_string(path).expect("docs/state.md");
    assert!(
        page == made,
        "docs/state.md shows something else than its commands: UPDATE_DOCS=1 cargo test writes it"
    );
}
