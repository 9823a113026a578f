//! What the process may do.

use super::{Finding, System};

/// Numbers of capabilities (capabilities(7)).
const DAC_OVERRIDE: u32 = 1;
pub const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;

/// Whether the process has a capability.
pub fn has(system: &System, capability: u32) -> bool {
    let status = system.machine.text("proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok())
        .is_some_and(|set| set & 1 << capability != 0)
}

/// Whether the process is in the machine's first user namespace, where capabilities mean something.
fn in_first_namespace(system: &System) -> bool {
    let map = system.machine.text("proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether the process has the privileges that driving a device needs.
pub fn privileges(system: &System) -> Finding {
    const WHAT: &str = "privileges";
    if !in_first_namespace(system) {
        return Finding::problem(
            WHAT,
            "the process is in a user namespace of its own, as in a container without privileges",
            "run it outside of the container, or: podman/docker run --privileged --userns=host",
        );
    }
    if !has(system, SYS_ADMIN) {
        return Finding::problem(
            WHAT,
            "the process has no CAP_SYS_ADMIN, without which the kernel hides where memory is",
            "run it as root: sudo -E PROGRAM",
        );
    }
    if !has(system, DAC_OVERRIDE) {
        return Finding::warning(
            WHAT,
            "CAP_SYS_ADMIN, but not CAP_DAC_OVERRIDE: the files of the device are root's",
            "run it as root: sudo -E PROGRAM",
        );
    }
    Finding::ok(WHAT, "as root")
}
