//! A daemon whose log nobody reads, or whose log finds no room.

use std::fs::File;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::common::process;

/// The daemon answers, keeps its event log and ends in order whatever becomes of its standard error.
fn goes_on(log: Stdio) {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "metrics.listen = \"127.0.0.1:0\"\n[[adapter]]\nname = \"vf0\"\nrdma = false\n";
    let daemon = process::start_with_log(dir.path(), config, log).expect("it starts");
    // Each of these is told in the log.
    daemon.said(&["registry", "set", "vf0", "VlanID", "12"]);
    daemon.said(&["qos", "set", "vf0", "--rate", "1G"]);
    daemon.said(&["fault", "add", "f", "--drop"]);
    daemon.refused(&["adapter", "add", "vf0"]);
    daemon.said(&["adapter", "remove", "vf0"]);
    let kinds: Vec<String> = daemon
        .events(&[])
        .iter()
        .map(|e| e["kind"].as_str().expect("a kind").to_owned())
        .collect();
    assert_eq!(kinds.first().map(String::as_str), Some("daemon_started"));
    for kind in ["settings_changed", "fault_added", "adapter_removed"] {
        assert!(kinds.iter().any(|k| k == kind), "{kind}: {kinds:?}");
    }
    let page = daemon.page("/metrics");
    let value = |name: &str| {
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}")).to_owned()
    };
    assert_eq!(value("vnic_panics_total"), "0");
    let lost: u64 = value("vnic_log_lines_lost_total").parse().expect("a number");
    assert!(lost >= 4, "{lost}");
    assert_eq!(daemon.page("/livez"), "ok\n");
    assert_eq!(daemon.end(Signal::TERM), Some(0));
    // The end is in the log of events, too.
    let again = process::start(dir.path(), "[[adapter]]\nname = \"vf0\"\nrdma = false\n");
    let started = again.events(&["--kind", "daemon_started"]);
    assert_eq!(started[1]["parameters"]["before"], "orderly");
    again.end(Signal::TERM);
}

#[test]
fn a_log_reader_that_has_gone_disturbs_nothing() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    goes_on(writer.into());
}

#[test]
fn a_log_without_room_disturbs_nothing() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    goes_on(full.into());
}

#[test]
fn an_answer_that_nobody_reads_has_its_exit_code() {
    let dir = tempfile::tempdir().expect("a directory");
    let full = || File::options().write(true).open("/dev/full").expect("/dev/full");
    let config = dir.path().join("vnicd.toml");
    let check = |code: i32| {
        let mut vnicd = Command::new(env!("CARGO_BIN_EXE_vnicd"));
        vnicd
            .arg("--check-config")
            .arg(&config)
            .arg("--socket-dir")
            .arg(dir.path());
        let status = vnicd.stdout(full()).stderr(full()).status().expect("vnicd");
        assert_eq!(status.code(), Some(code));
    };
    check(2);
    std::fs::write(&config, "[[adapter]]\nname = \"vf0\"\n").expect("a file");
    check(0);
    let mut vnicctl = Command::new(env!("CARGO_BIN_EXE_vnicctl"));
    vnicctl.env(
        "VNIC_ENDPOINT",
        format!("unix:{}", dir.path().join("none").display()),
    );
    let status = vnicctl.arg("health").stderr(full()).status().expect("vnicctl");
    assert_eq!(status.code(), Some(1));
}
