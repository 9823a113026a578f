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

/// The restricted daemon reads about itself what others can read about it.
#[test]
fn what_the_process_takes_is_in_the_metrics() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = std::fs::File::create(dir.path().join("log")).expect("a file");
    let config = "metrics.listen = \"127.0.0.1:0\"\n[[adapter]]\nname = \"vf0\"\n";
    let daemon = process::start_with_log(dir.path(), config, log).expect("it starts");
    let page = daemon.page("/metrics");
    let value = |name: &str| -> f64 {
        let line = page.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        let line = line.unwrap_or_else(|| panic!("{name} in\n{page}"));
        line.parse().expect("a number")
    };
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).expect("its limits");
    let files = limits.lines().find_map(|l| l.strip_prefix("Max open files"));
    let files = files.and_then(|l| l.split_whitespace().next()).expect("a limit");
    assert_eq!(value("process_max_fds"), files.parse::<f64>().expect("a number"));
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("threads");
    // (Threads for blocking calls come and go.)
    assert!(value("process_threads") > 4.0 && threads.count() > 4);
    assert!(value("process_open_fds") > 10.0);
    assert!(value("process_cpu_seconds_total") > 0.0);
    assert!(value("process_resident_memory_bytes") > 1e6);
    assert!(value("process_virtual_memory_bytes") > value("process_resident_memory_bytes"));
    let started = value("process_start_time_seconds");
    assert_eq!(started, value("vnic_start_time_seconds"));
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
