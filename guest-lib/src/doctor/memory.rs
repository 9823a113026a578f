//! Whether memory can be given to the device.

use super::process::{IPC_LOCK, has};
use super::{Finding, System};
use crate::transport::host::adopt::{stop, write_protect};

/// A limit below this is in the way of ordinary programs.
const ENOUGH: u64 = 64 << 20;
/// The command that sets huge pages aside.
const HUGE_PAGES: &str = "sysctl -w vm.nr_hugepages=64";

/// Where memory is, whether it stays there, and how much.
pub fn memory(system: &System) -> Vec<Finding> {
    vec![
        pagemap(system),
        pinning(system),
        huge_pages(system),
        locked_memory(system),
    ]
}

/// How other threads are kept from memory while a process of the host comes to share it with the daemon.
pub fn sharing(system: &System) -> Finding {
    const WHAT: &str = "sharing of memory (userfaultfd)";
    match (&system.write_protect, system.stop) {
        (Ok(()), _) => Finding::ok(WHAT, "threads that write there meanwhile wait"),
        (Err(why), true) => Finding::ok(
            WHAT,
            format!(
                "{why}: other threads are stopped by a signal for a moment when memory is registered, so a poll or nanosleep \
                 of theirs may end with EINTR. Without that: {}",
                write_protect::CURE
            ),
        ),
        (Err(why), false) => Finding::warning(
            WHAT,
            format!(
                "{why}, and {}=0 forbids to stop threads: memory that this library did not allocate may be refused",
                stop::VARIABLE
            ),
            format!("{}; or unset {}", write_protect::CURE, stop::VARIABLE),
        ),
    }
}

fn pagemap(system: &System) -> Finding {
    const WHAT: &str = "addresses of memory (pagemap)";
    match &system.pagemap {
        Ok(()) => Finding::ok(WHAT, "can be read"),
        Err(why) => Finding::problem(
            WHAT,
            why,
            "run it as root, outside of containers: sudo -E PROGRAM",
        ),
    }
}

fn pinning(system: &System) -> Finding {
    const WHAT: &str = "pinning of memory (io_uring)";
    let Err(why) = &system.pin else {
        return Finding::ok(WHAT, "works");
    };
    let cure = match system
        .machine
        .text("proc/sys/kernel/io_uring_disabled")
        .as_deref()
    {
        Some("1" | "2") => "sysctl -w kernel.io_uring_disabled=0",
        _ => {
            "run it outside of the container, or allow io_uring_setup and io_uring_register in its seccomp profile: \
             docker run --security-opt seccomp=unconfined"
        }
    };
    if free_huge_pages(system) > 0 {
        Finding::warning(
            WHAT,
            format!("{why}. Only memory that the library itself allocates can be used, in huge pages"),
            cure,
        )
    } else {
        Finding::problem(
            WHAT,
            why,
            format!("{cure} (or, for memory of the library only: {HUGE_PAGES})"),
        )
    }
}

/// Free huge pages of 2 MiB.
fn free_huge_pages(system: &System) -> u64 {
    number(system, "free_hugepages")
}

fn number(system: &System, file: &str) -> u64 {
    let text = system
        .machine
        .text(format!("sys/kernel/mm/hugepages/hugepages-2048kB/{file}"));
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

fn huge_pages(system: &System) -> Finding {
    const WHAT: &str = "huge pages";
    let (free, all) = (free_huge_pages(system), number(system, "nr_hugepages"));
    let count = format!("{free} of {all} are free, of 2 MiB each");
    if free > 0 {
        Finding::ok(WHAT, count)
    } else if system.pin.is_ok() {
        Finding::ok(WHAT, format!("{count}: normal pages get pinned instead"))
    } else {
        Finding::problem(
            WHAT,
            format!("{count}, and normal pages cannot be pinned"),
            HUGE_PAGES,
        )
    }
}

fn locked_memory(system: &System) -> Finding {
    const WHAT: &str = "limit of locked memory";
    if has(system, IPC_LOCK) {
        return Finding::ok(WHAT, "does not matter with CAP_IPC_LOCK");
    }
    let limits = system.machine.text("proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"));
    let soft = line
        .and_then(|l| l.split_whitespace().next())
        .unwrap_or("unknown");
    match soft.parse::<u64>() {
        Ok(bytes) if bytes < ENOUGH => Finding::warning(
            WHAT,
            format!("{} KiB: registering more will fail", bytes / 1024),
            "ulimit -l unlimited (a service: LimitMEMLOCK=infinity)",
        ),
        Ok(bytes) => Finding::ok(WHAT, format!("{} MiB", bytes >> 20)),
        Err(_) => Finding::ok(WHAT, soft),
    }
}
