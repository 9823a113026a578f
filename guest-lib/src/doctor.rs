//! What stands in the way of RDMA on this machine, and the command that mends it.
//!
//! The doctor changes nothing, and asks the device nothing: when the daemon behind a device has gone, a mere
//! question may end the VM. What the doctor says of a device is what the last program that opened it wrote
//! down.

mod device;
mod finding;
mod kernel;
mod memory;
mod process;
mod socket;

#[cfg(test)]
mod tests;

use crate::SOCKET_VARIABLE;
use crate::pages::{pagemap, pin};
use crate::transport::host::adopt::{stop, write_protect};
use crate::transport::pci::sysfs::Machine;

use finding::System;
pub use finding::{Finding, Verdict};

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
        write_protect: write_protect::check().map_err(|e| e.to_string()),
        stop: stop::is_allowed(),
    })
}

fn examine_system(system: &System) -> Vec<Finding> {
    let mut findings = vec![kernel::machine(system)];
    if !system.sockets.is_empty() {
        // A process that shares its memory with the daemon: no device, no addresses of a guest.
        findings.extend(system.sockets.iter().map(|path| socket::socket(path)));
        findings.push(memory::sharing(system));
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
