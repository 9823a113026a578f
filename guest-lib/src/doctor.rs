//! What stands in the way of RDMA on this machine, and the command that mends it.
//!
//! The doctor changes nothing, and asks the device nothing: when the daemon behind a device has gone, a mere
//! question may end the VM. What the doctor says of a device is what the last program that opened it wrote
//! down.

mod device;
mod kernel;
mod memory;
mod process;
mod socket;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use crate::SOCKET_VARIABLE;
use crate::pages::{pagemap, pin};
use crate::transport::pci::sysfs::Machine;

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// What was looked at is as it should be.
    Ok,
    /// Something will not work, or not well.
    Warning,
    /// Nothing will work.
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Problem => "problem",
        })
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What it means.
    pub verdict: Verdict,
    /// What was found.
    pub detail: String,
    /// What to do about it, as a command where one does it.
    pub cure: Option<String>,
}

impl Finding {
    fn ok(what: &str, detail: impl Into<String>) -> Finding {
        Finding {
            what: what.into(),
            verdict: Verdict::Ok,
            detail: detail.into(),
            cure: None,
        }
    }

    fn bad(verdict: Verdict, what: &str, detail: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding {
            verdict,
            cure: Some(cure.into()),
            ..Finding::ok(what, detail)
        }
    }

    fn problem(what: &str, detail: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding::bad(Verdict::Problem, what, detail, cure)
    }

    fn warning(what: &str, detail: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding::bad(Verdict::Warning, what, detail, cure)
    }
}

/// What the doctor looks at.
struct System {
    /// The machine's files.
    machine: Machine,
    /// The sockets that [`SOCKET_VARIABLE`] names.
    sockets: Vec<PathBuf>,
    /// Whether the kernel says where memory is, or why not.
    pagemap: Result<(), String>,
    /// Whether memory can be pinned, or why not.
    pin: Result<(), String>,
}

/// Looks at this machine and this process.
///
/// ```no_run
/// # fn example() -> Result<(), vnic_verbs::Error> {
/// for finding in vnic_verbs::doctor::examine() {
///     println!("{}: {}", finding.what, finding.detail);
/// }
/// # Ok(())
/// # }
/// ```
pub fn examine() -> Vec<Finding> {
    examine_system(&System {
        machine: Machine::here(),
        sockets: crate::device::named_sockets(),
        pagemap: pagemap::check().map_err(|e| e.to_string()),
        pin: pin::check().map_err(|e| e.to_string()),
    })
}

fn examine_system(system: &System) -> Vec<Finding> {
    let mut findings = vec![kernel::machine(system)];
    if !system.sockets.is_empty() {
        // A process that shares its memory with the daemon: no device, no addresses of a guest.
        findings.extend(system.sockets.iter().map(|path| socket::socket(path)));
        return findings;
    }
    findings.push(Finding::ok(
        SOCKET_VARIABLE,
        "not set: devices of PCI are used, as in a VM. In a process of the host, set it to the adapter's NAME-rdma.sock",
    ));
    findings.push(process::privileges(system));
    findings.push(kernel::lockdown(system));
    findings.push(kernel::driver(system));
    findings.extend(device::devices(system));
    findings.extend(memory::memory(system));
    findings
}
