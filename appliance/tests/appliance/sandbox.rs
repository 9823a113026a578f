//! What the daemon has taken from itself, seen from outside.

use crate::common::process;

/// Filters of system calls of each thread, by its name.
fn filters(pid: u32) -> Vec<(String, u32)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let of = |thread: std::fs::DirEntry| {
        let status = std::fs::read_to_string(thread.path().join("status")).expect("its status");
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.map(str::trim).expect("a field").to_owned()
        };
        assert_eq!(field("NoNewPrivs:"), "1");
        let filters = field("Seccomp_filters:").parse().expect("a number");
        (field("Name:"), filters)
    };
    threads.map(|t| of(t.expect("a thread"))).collect()
}

#[test]
fn threads_make_few_calls() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "[[adapter]]\nname = \"vf0\"\n");
    // (Whoever runs this test may have filters of its own.)
    let own = std::fs::read_to_string("/proc/self/status").expect("this process");
    let own = own.lines().find_map(|l| l.strip_prefix("Seccomp_filters:"));
    let own: u32 = own.and_then(|n| n.trim().parse().ok()).expect("a number");
    let all = filters(daemon.pid());
    // Those that handle what guests and VMMs wrote have a filter more.
    let exposed = ["vnic-core", "vhost-", "rdma-"];
    for kind in exposed {
        assert!(all.iter().any(|(name, _)| name.starts_with(kind)), "{all:?}");
    }
    for (name, filters) in all {
        let more = exposed.iter().any(|kind| name.starts_with(kind));
        assert_eq!(filters, own + 1 + u32::from(more), "{name}");
    }
}
