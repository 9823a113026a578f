//! Metrics of the process under the names that all of Prometheus' clients give them. What cannot be read is left out.

use std::time::{Duration, SystemTime};

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::page::Page;
use super::render::since_1970;

/// What the process takes.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// CPU time, user and system, of all threads.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident: Option<u64>,
    /// Virtual memory in bytes.
    pub virtual_memory: Option<u64>,
    /// Number of threads.
    pub threads: Option<u64>,
    /// Number of open file descriptors.
    pub open_fds: Option<usize>,
    /// Limit of open file descriptors; `None`: there is none.
    pub max_fds: Option<u64>,
}

impl Process {
    /// Reads /proc/self, and asks the kernel.
    pub fn take() -> Process {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let fds = std::fs::read_dir("/proc/self/fd").ok();
        Process {
            cpu: cpu.try_into().unwrap_or_default(),
            resident: bytes(&status, "VmRSS:"),
            virtual_memory: bytes(&status, "VmSize:"),
            threads: field(&status, "Threads:").and_then(|n| n.parse().ok()),
            // The directory itself is one while it is read.
            open_fds: fds.map(|fds| fds.count().saturating_sub(1)),
            max_fds: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Value of a line of /proc/PID/status.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Value of a line of /proc/PID/status in bytes.
fn bytes(status: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(status, name)?.strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// Metrics of the process, which started at `started`.
pub fn render(page: &mut Page, process: &Process, started: Option<SystemTime>) {
    page.counter(
        "process_cpu_seconds_total",
        "CPU time, user and system, of all threads; data cores that spin take all of theirs.",
    );
    page.value(&[], process.cpu.as_secs_f64());
    let open = process.open_fds.and_then(|n| u64::try_from(n).ok());
    for (name, help, value) in [
        (
            "process_resident_memory_bytes",
            "Resident memory; memory of guests that the daemon has touched is in it.",
            process.resident,
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory; all memory of guests is in it.",
            process.virtual_memory,
        ),
        ("process_threads", "Threads.", process.threads),
        ("process_open_fds", "Open file descriptors.", open),
        (
            "process_max_fds",
            "The most open file descriptors there can be.",
            process.max_fds,
        ),
    ] {
        page.gauge(name, help);
        if let Some(value) = value {
            page.value(&[], value);
        }
    }
    if let Some(started) = started {
        page.gauge(
            "process_start_time_seconds",
            "When the process started, in seconds since 1970.",
        );
        page.value(&[], since_1970(started));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_read_by_its_units() {
        let status = "Name:\tvnicd\nVmSize:\t    1234 kB\nVmRSS:\t 18446744073709551615 kB\nThreads:\t7\n";
        assert_eq!(bytes(status, "VmSize:"), Some(1234 << 10));
        assert_eq!(bytes(status, "VmRSS:"), None);
        assert_eq!(bytes(status, "VmPeak:"), None);
        assert_eq!(field(status, "Threads:"), Some("7"));
    }
}
