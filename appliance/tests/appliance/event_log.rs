//! The event log over the lives of daemons.

use crate::common::process;
use rustix::process::Signal;
use serde_json::Value;

const CONFIG: &str = "[[adapter]]\nname = \"vf0\"\nrdma = false\n";

fn numbers(events: &[Value]) -> Vec<u64> {
    events
        .iter()
        .map(|e| e["revision"].as_u64().expect("a number"))
        .collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|e| e["kind"].as_str().expect("a kind"))
        .collect()
}

/// Waits until an event that is made now would be stored: the log stores at least every second, and at once what
/// comes when a batch is full.
fn stored(daemon: &process::Process, dir: &std::path::Path) {
    let file = dir.join("state/events.redb");
    let before = std::fs::metadata(&file)
        .and_then(|m| m.modified())
        .expect("the log");
    daemon.said(&["fault", "add", "last", "--drop"]);
    // Only so that a log that stores nothing does not hang the tests.
    for _ in 0..6000 {
        let now = std::fs::metadata(&file)
            .and_then(|m| m.modified())
            .expect("the log");
        if now > before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("nothing was stored");
}

#[test]
fn events_outlive_daemons_that_end_and_daemons_that_are_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let first = process::start(dir.path(), CONFIG);
    first.said(&["fault", "add", "f", "--drop"]);
    let before = first.events(&[]);
    assert_eq!(kinds(&before), ["daemon_started", "adapter_added", "fault_added"]);
    assert_eq!(before[0]["parameters"]["before"], "none");
    first.end(Signal::TERM);

    let second = process::start(dir.path(), CONFIG);
    let all = second.events(&[]);
    assert_eq!(all[..3], before[..]);
    let count = u64::try_from(all.len()).expect("a number");
    assert_eq!(numbers(&all), (1..=count).collect::<Vec<_>>());
    assert!(kinds(&all).contains(&"daemon_stopped"));
    let started = second.events(&["--kind", "daemon_started"]);
    assert_eq!(started.len(), 2);
    assert_eq!(started[1]["parameters"]["before"], "orderly");
    assert_eq!(started[1]["boot_id"], started[0]["boot_id"]);
    stored(&second, dir.path());
    let before = second.events(&[]);
    second.end(Signal::KILL);

    let third = process::start(dir.path(), CONFIG);
    let all = third.events(&[]);
    // What came behind the last batch may be lost, and nothing else.
    let same = all.iter().zip(&before).take_while(|(a, b)| a == b).count();
    assert!(same + 1 >= before.len(), "{same} of {}", before.len());
    assert_eq!(all[same]["kind"], "daemon_started");
    assert_eq!(all[same]["parameters"]["before"], "killed");
    assert_eq!(all[same]["severity"], "SEVERITY_WARNING");
    let numbers = numbers(&all);
    assert!(numbers.windows(2).all(|w| w[0] < w[1]), "{numbers:?}");
    // No number that anybody can have seen is given again.
    assert!(numbers[same] > before[before.len() - 1]["revision"].as_u64().expect("a number"));
    third.end(Signal::TERM);
}

/// The events that `vnicctl event follow` says, as far as `until`.
fn followed(daemon: &process::Process, after: u64, until: u64) -> Vec<Value> {
    use std::io::BufRead as _;
    let mut child = daemon
        .vnicctl()
        .args(["-o", "json", "event", "follow", "--after", &after.to_string()])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("vnicctl");
    let lines = std::io::BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut events = Vec::new();
    for line in lines {
        let event: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        let revision = event["revision"].as_u64();
        events.push(event);
        if revision == Some(until) {
            break;
        }
    }
    child.kill().expect("the end of vnicctl");
    child.wait().expect("the end of vnicctl");
    events
}

#[test]
fn who_follows_goes_on_behind_a_restart() {
    for signal in [Signal::TERM, Signal::KILL] {
        let dir = tempfile::tempdir().expect("a directory");
        let first = process::start(dir.path(), CONFIG);
        first.said(&["fault", "add", "f", "--drop"]);
        let seen = followed(&first, 0, 3);
        assert_eq!(numbers(&seen), [1, 2, 3]);
        first.end(signal);

        let second = process::start(dir.path(), CONFIG);
        second.said(&["fault", "add", "g", "--drop"]);
        let all = second.events(&[]);
        let last = *numbers(&all).last().expect("events");
        let more = followed(&second, 3, last);
        let behind: Vec<&Value> = all.iter().filter(|e| e["revision"].as_u64() > Some(3)).collect();
        assert_eq!(more.iter().collect::<Vec<_>>(), behind);
        assert!(kinds(&more).ends_with(&["daemon_started", "adapter_added", "fault_added"]));

        let text = second.refused(&["event", "follow", "--after", &(last + 1000).to_string()]);
        assert!(
            text.contains("OUT_OF_RANGE") && text.contains(&last.to_string()),
            "{text}"
        );
        second.end(Signal::TERM);
    }
}

#[test]
fn the_configuration_says_how_much_is_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!("events = {{ keep = 100, days = 2 }}\n{CONFIG}");
    let first = process::start(dir.path(), &config);
    for i in 0..3 {
        let mut command = first.vnicctl();
        // One call makes many events.
        let mut rules = String::new();
        for k in 0..30 {
            rules += &format!("[[fault]]\nname = \"r{i}-{k}\"\naction = \"drop\"\n");
        }
        let file = dir.path().join("faults.toml");
        std::fs::write(&file, rules).expect("a file");
        let output = command
            .args(["fault", "load"])
            .arg(&file)
            .output()
            .expect("vnicctl");
        assert!(
            output.status.success(),
            "{}",
            crate::common::lab::text(&output.stderr)
        );
        first.said(&["fault", "remove", "--all"]);
    }
    first.end(Signal::TERM);
    let second = process::start(dir.path(), &config);
    let all = second.events(&[]);
    assert!(all.len() >= 60 && all.len() <= 104, "{}", all.len());
    second.end(Signal::TERM);

    let text = process::try_start(dir.path(), "events = { keep = 5, days = 0, week = 1 }\n")
        .err()
        .expect("refused");
    for part in [
        "events.keep: 5 is out of range: 100 to 1000000",
        "events.days: 0 is out of range: 1 to 3650",
        "events.week",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn a_damaged_log_is_put_aside_and_the_daemon_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    process::start(dir.path(), CONFIG).end(Signal::TERM);
    let file = dir.path().join("state/events.redb");
    let whole = std::fs::read(&file).expect("the log");
    for (n, damage) in [
        (0, Vec::new()),
        (1, b"not a log at all".to_vec()),
        (2, whole[..whole.len() / 2].to_vec()),
        (3, whole.iter().map(|b| b ^ 0x55).collect()),
    ] {
        std::fs::write(&file, damage).expect("damage");
        let daemon = process::start(dir.path(), CONFIG);
        let all = daemon.events(&[]);
        assert_eq!(all[0]["kind"], "state_reset", "damage {n}: {all:?}");
        assert_eq!(all[0]["severity"], "SEVERITY_ERROR");
        let kept = all[0]["parameters"]["kept_as"].as_str().expect("a path");
        assert!(std::path::Path::new(kept).exists(), "{kept}");
        assert_eq!(all[1]["kind"], "daemon_started");
        daemon.end(Signal::TERM);
    }
}
