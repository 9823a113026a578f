//! What the daemon writes is nobody else's, whatever the umask of who starts it. The only test of its process: the umask is the
//! process's.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::common::process;
use rustix::fs::Mode;
use rustix::process::{Signal, umask};

fn mode(path: &Path) -> u32 {
    let meta = std::fs::symlink_metadata(path).expect("a file");
    meta.permissions().mode() & 0o777
}

/// All files and directories, with their modes.
fn modes(path: &Path, found: &mut Vec<(String, u32)>) {
    found.push((path.display().to_string(), mode(path)));
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("a directory") {
            modes(&entry.expect("a file").path(), found);
        }
    }
}

#[test]
fn what_the_daemon_writes_is_nobody_elses() {
    umask(Mode::empty());
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "[[adapter]]\nname = \"vf0\"\n");
    daemon.said(&["capture", "start", "vf0"]);
    daemon.said(&["adapter", "add", "blue"]);
    let mut found = Vec::new();
    modes(&dir.path().join("state"), &mut found);
    for name in [
        "state",
        "lock",
        "state.redb",
        "state.redb.mark",
        "events.redb",
        "daemon.json",
        "captures",
        ".pcapng",
    ] {
        assert!(
            found.iter().any(|(path, _)| path.ends_with(name)),
            "{name} in {found:?}"
        );
    }
    for (path, mode) in &found {
        assert_eq!(mode & 0o077, 0, "{path}: {mode:o}");
    }
    for socket in ["control.sock", "vf0-eth.sock", "vf0-rdma.sock"] {
        assert_eq!(mode(&dir.path().join(socket)), 0o660, "{socket}");
    }
    // Nor is memory of guests in a core dump: they share it.
    let filter = std::fs::read_to_string(format!("/proc/{}/coredump_filter", daemon.pid()));
    let filter = u32::from_str_radix(filter.expect("a filter").trim(), 16).expect("a number");
    assert_eq!(filter & 0b1_0100_1010, 0, "{filter:#x}");
    daemon.end(Signal::TERM);
}
