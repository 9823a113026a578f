//! The filter of the log, changed while the daemon runs.

use rustix::process::Signal;

use crate::common::process;

#[test]
fn what_the_daemon_logs_is_changed_until_it_ends() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = "[[adapter]]\nname = \"vf0\"\n";
    let daemon = process::start(dir.path(), config);
    let restarts = || {
        let log = std::fs::read_to_string(dir.path().join("log")).expect("its log");
        log.matches("adapter restarted by").count()
    };
    let restart = || daemon.said(&["adapter", "restart", "vf0"]);
    assert_eq!(daemon.said(&["server", "log-level"]), "info\n");
    assert_eq!(daemon.said(&["server", "log-level", "error"]), "error\n");
    restart();
    // (The log has events before their requests are answered, or soon after it, in order.)
    let wanted = "debug,h2=warn,hyper=off";
    assert_eq!(
        daemon.said(&["server", "log-level", wanted]),
        format!("{wanted}\n")
    );
    restart();
    while restarts() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(restarts(), 1);
    // What is no filter changes nothing.
    for (wrong, why) in [
        ("inof", "\"inof\" is no level"),
        ("", "\"\" is no level"),
        ("a[b]=info", "\"a[b]\" is no target"),
    ] {
        let said = daemon.refused(&["server", "log-level", wrong]);
        assert!(said.contains("filter") && said.contains(why), "{said}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&daemon.said(&["-o", "json", "server", "log-level"])).expect("JSON");
    assert_eq!(json["filter"], wanted);
    let events = daemon.events(&["--kind", "log_level_changed"]);
    let facts: Vec<_> = events.iter().map(|e| &e["parameters"]["filter"]).collect();
    assert_eq!(facts, ["error", wanted]);
    let by = events[0]["parameters"]["by"].as_str().expect("who");
    assert!(by.starts_with("uid "), "{by}");
    daemon.end(Signal::TERM);
    let daemon = process::start(dir.path(), config);
    assert_eq!(daemon.said(&["server", "log-level"]), "info\n");
}
