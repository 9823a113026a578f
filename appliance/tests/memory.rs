//! What the daemon's memory does not depend on: how much has happened, and how many threads it has. (A program of its own: its
//! allocator counts.)

#[allow(dead_code, reason = "the rest is for the other tests")]
#[path = "appliance/common/mod.rs"]
mod common;

use std::time::Duration;

use common::process;
use peak_alloc::PeakAlloc;
use vnic_appliance::events::{EventLog, Keep, Owner, Record, kinds, told};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// As many events as are never summed up, of adapters that each have a name of their own.
fn happen(log: &EventLog, adapters: std::ops::Range<usize>) {
    for adapter in adapters {
        for n in 0..20 {
            let owner = Owner::Adapter(format!("vf{adapter}"));
            let text = format!("event {n}, told with as many words as events usually have, and a few more");
            log.append(Record::now(told(&kinds::ADAPTER_ADDED, text), owner));
        }
        if adapter % 10 == 9 {
            log.flush();
        }
    }
}

/// The other test of this file is of another process.
#[test]
fn a_full_log_takes_no_more_memory_than_a_short_one() {
    let dir = tempfile::tempdir().expect("a directory");
    let keep = Keep {
        events: 12_000,
        age: Duration::from_secs(86_400),
    };
    let log = EventLog::open(Some(dir.path()), keep).expect("a log");
    happen(&log, 0..100);
    let short = ALLOCATOR.current_usage();
    happen(&log, 100..700);
    let grown = ALLOCATOR.current_usage().saturating_sub(short);
    let file = std::fs::metadata(dir.path().join("events.redb"))
        .expect("the log")
        .len();
    assert!(file > 2 << 20, "{file} B stored");
    // The rates of as many adapters are remembered for a second or two, on a busy machine for more events.
    assert!(grown < 1 << 20, "{grown} B more for 12,000 events");
}

/// Mappings that are arenas of a thread: glibc reserves 64 MiB for each, at a multiple of that.
#[cfg(target_env = "gnu")]
fn arenas(pid: u32) -> Vec<String> {
    const ARENA: u64 = 64 << 20;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps");
    let range = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some((number(from)?, number(to)?))
    };
    let lines: Vec<&str> = maps.lines().collect();
    let pairs = lines.windows(2).filter(|pair| {
        let (Some(used), Some(reserved)) = (range(pair[0]), range(pair[1])) else {
            return false;
        };
        let adjoin = used.1 == reserved.0 && reserved.1 == used.0 + ARENA;
        adjoin && used.0 % ARENA == 0 && pair[1].contains(" ---p ")
    });
    pairs.map(|pair| pair.join("\n")).collect()
}

#[cfg(target_env = "gnu")]
#[test]
fn the_daemons_threads_share_a_heap() {
    let dir = tempfile::tempdir().expect("a directory");
    let daemon = process::start(dir.path(), "[[adapter]]\nname = \"vf0\"\n");
    daemon.said(&["adapter", "list"]);
    daemon.events(&[]);
    assert_eq!(arenas(daemon.pid()), [""; 0]);
}
