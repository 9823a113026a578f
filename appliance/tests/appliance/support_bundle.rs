//! `vnicctl support-bundle`: what an archive has, and what it must never have.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::access::{over_tcp, tcp};
use crate::common::lab::{Lab, text};
use crate::common::process::{self, Process};

/// What the second sample of counters waits for.
const QUICK: &str = "10ms";
/// A text that nobody may see.
const SECRET: &str = "hunter2";

/// Unpacks an archive by tar; returns its files.
fn unpack(archive: &Path) -> BTreeMap<String, String> {
    let to = tempfile::tempdir().expect("a directory");
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(archive).arg("-C").arg(to.path());
    let output = tar.output().expect("tar");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all = std::fs::read_dir(to.path().join("vnic-support")).expect("a directory");
    let read = all.map(|entry| {
        let entry = entry.expect("a file");
        assert_eq!(entry.metadata().expect("a file").mode() & 0o777, 0o600);
        let name = entry.file_name().into_string().expect("a name");
        (name, std::fs::read_to_string(entry.path()).expect("text"))
    });
    read.collect()
}

fn json(files: &BTreeMap<String, String>, name: &str) -> Value {
    let file = files.get(name).unwrap_or_else(|| panic!("no {name}: {files:#?}"));
    serde_json::from_str(file).expect(name)
}

/// Names of the files with this ending, without it.
fn named<'a>(files: &'a BTreeMap<String, String>, ending: &str) -> Vec<&'a str> {
    files
        .keys()
        .filter_map(|name| name.strip_suffix(ending))
        .collect()
}

/// No file has a secret.
fn is_clean(files: &BTreeMap<String, String>) {
    for (name, file) in files {
        for secret in ["-----BEGIN", "PRIVATE KEY", SECRET, "server.key"] {
            assert!(!file.contains(secret), "{secret} is in {name}");
        }
    }
}

/// Makes a bundle at `path`, which must work.
fn made(daemon: &Process, path: &Path) -> BTreeMap<String, String> {
    let path_text = path.to_str().expect("a path");
    let said = daemon.said(&["support-bundle", "--interval", QUICK, "--file", path_text]);
    assert_eq!(said, format!("{path_text}\n"));
    unpack(path)
}

#[test]
fn a_bundle_has_the_state_of_the_daemon_and_no_secret() {
    let mut tcp = tcp();
    tcp.config = format!("# The password is {SECRET}.\n{}", tcp.config);
    let daemon = process::start_with_log(tcp.dir.path(), &tcp.config, std::process::Stdio::null());
    let daemon = daemon.expect("ready");
    daemon.said(&["fault", "add", "lossy", "--to", "vf0", "--drop"]);
    daemon.said(&["registry", "set", "vf0", "VlanID", "55"]);
    let path = tcp.dir.path().join("bundle.tar.gz");
    let files = made(&daemon, &path);
    is_clean(&files);
    assert_eq!(std::fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);

    assert_eq!(named(&files, ".error"), [""; 0], "{files:#?}");
    let wanted = [
        "access-lists",
        "adapters",
        "captures",
        "clock",
        "config",
        "congestion",
        "counters-1",
        "counters-2",
        "events",
        "faults",
        "fdb",
        "flows",
        "gids",
        "health",
        "histograms",
        "log-level",
        "mirrors",
        "nvconfig",
        "outcomes",
        "ports",
        "qos",
        "queue-pairs",
        "rdma-connections",
        "rdma-resources",
        "registry",
        "scenarios",
        "server-info",
        "status",
        "subnet-groups",
        "subnet",
        "switch",
        "system",
        "teams",
        "verbs-faults",
    ];
    assert_eq!(named(&files, ".json"), wanted);
    // As vnicctl tells them.
    for (name, command) in [
        ("adapters.json", ["adapter", "list"]),
        ("faults.json", ["fault", "list"]),
        ("nvconfig.json", ["nvconfig", "query"]),
        ("switch.json", ["switch", "show"]),
    ] {
        let said = daemon.said(&[&["-o", "json"], command.as_slice()].concat());
        assert_eq!(files[name], said, "{name}");
    }
    assert_eq!(json(&files, "server-info.json")["pid"], daemon.pid());
    assert_eq!(json(&files, "health.json")["serving"], true);
    assert_eq!(json(&files, "log-level.json")["filter"], "info");
    let of = |name: &str, list: &str| json(&files, name)[list].as_array().expect("a list").len();
    assert!(of("registry.json", "entries") > 20);
    assert!(of("counters-1.json", "counters") > 20 && of("counters-2.json", "counters") > 20);
    let events = json(&files, "events.json");
    let kinds = events["events"].as_array().expect("events").iter();
    assert!(kinds.map(|e| &e["kind"]).any(|kind| kind == "fault_added"));
    let findings = &json(&files, "status.json")["findings"];
    assert!(
        findings
            .as_array()
            .expect("findings")
            .iter()
            .any(|f| f["kind"] == "fault_live")
    );
    assert!(files["metrics.txt"].contains("\n# TYPE vnic_adapters gauge\n"));
    let tls = &json(&files, "config.json")["control"]["tls"];
    assert_eq!(tls["certificate"], tcp.ca.path("server.pem"));
    assert_eq!(tls["key"], "(left out)");
    let system = json(&files, "system.json");
    assert!(system["cpus"].as_u64() > Some(0) && system["kernel"].is_string());

    // The README names each file.
    let readme = &files["README"];
    for name in files.keys().filter(|name| *name != "README") {
        assert!(readme.contains(&format!("\n  {name} ")), "{name}: {readme}");
    }
    assert!(readme.contains("Left out on purpose:"));

    // One that is there stays as it is.
    let before = std::fs::read(&path).expect("a file");
    let said = daemon.refused(&["support-bundle", "--file", path.to_str().expect("a path")]);
    assert!(said.contains("bundle.tar.gz: File exists"), "{said}");
    assert_eq!(std::fs::read(&path).expect("a file"), before);
    daemon.end(Signal::TERM);
}

#[test]
fn what_cannot_be_read_is_a_file_with_the_reason() {
    let tcp = tcp();
    tcp.ca.make("monitor", &["mon.example.com"]);
    tcp.ca.make("nobody", &["nobody.example.com"]);
    let daemon = process::start(tcp.dir.path(), &tcp.config);
    let bundle = |who: &str| {
        let path = tcp.dir.path().join(format!("{who}.tar.gz"));
        let words = [
            "support-bundle",
            "--interval",
            QUICK,
            "--file",
            path.to_str().expect("a path"),
        ];
        let output = over_tcp(&daemon, &tcp.ca.path("ca.pem"), &tcp.ca, who, &words);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("\nvnicctl: config.error ("), "{said}");
        let files = unpack(&path);
        is_clean(&files);
        files
    };
    // A viewer reads all but what is on the daemon's machine.
    let files = bundle("monitor");
    assert_eq!(named(&files, ".error"), ["config", "metrics"]);
    assert!(files["config.error"].contains("run vnicctl there"));
    assert_eq!(
        json(&files, "adapters.json")["adapters"][0]["name"],
        "adapters/vf0"
    );
    // Who may read nothing gets the reasons.
    let files = bundle("nobody");
    assert_eq!(named(&files, ".json"), ["system"]);
    let refused = &files["adapters.error"];
    assert!(
        refused.contains("PERMISSION_DENIED") && refused.contains("takes the role viewer"),
        "{refused}"
    );
    assert!(files["README"].contains("adapters.error"));
    daemon.end(Signal::TERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_is_named_by_host_and_time_and_nothing_is_left_of_a_failure() {
    let lab = Lab::start(1).await;
    let dir = tempfile::tempdir().expect("a directory");
    let socket = lab.dir.path().join("control.sock");
    let run = |endpoint: PathBuf| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vnicctl"));
        command
            .current_dir(dir.path())
            .env("VNIC_ENDPOINT", format!("unix:{}", endpoint.display()))
            .args(["-o", "json", "support-bundle", "--interval", QUICK]);
        tokio::task::spawn_blocking(move || command.output().expect("vnicctl"))
    };
    let output = run(lab.dir.path().join("nobody.sock")).await.expect("vnicctl");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).starts_with("vnicctl: cannot reach vnicd at "));
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 0);

    let output = run(socket).await.expect("vnicctl");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let name = said["file"].as_str().expect("a name");
    assert!(
        name.starts_with("vnic-support-") && name.ends_with("Z.tar.gz"),
        "{name}"
    );
    let files = unpack(&dir.path().join(name));
    // It has no configuration file.
    assert_eq!(named(&files, ".error"), ["config"]);
    assert_eq!(said["errors"], 1);
    assert_eq!(said["files"].as_array().expect("files").len(), files.len());
    lab.end().await;
}
