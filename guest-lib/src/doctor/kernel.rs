//! The machine and its kernel.

use super::{Finding, System};
use crate::transport::pci::sysfs::{DRIVERS, UIO};

/// What machine this is, and whether it is virtual.
pub fn machine(system: &System) -> Finding {
    const WHAT: &str = "machine";
    let name = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|f| system.machine.text(format!("sys/class/dmi/id/{f}")))
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    let name = if name.is_empty() { "unknown".into() } else { name };
    let cpu = system.machine.text("proc/cpuinfo").unwrap_or_default();
    let flags = cpu.lines().find(|l| l.starts_with("flags"));
    let real = flags.is_some_and(|f| !f.split_whitespace().any(|w| w == "hypervisor"));
    if real && system.sockets.is_empty() {
        return Finding::warning(
            WHAT,
            format!("{name}: no virtual machine"),
            "in a process of the host, name the adapter's socket: export VNIC_SOCKET=DIR/NAME-rdma.sock",
        );
    }
    Finding::ok(WHAT, name)
}

/// Whether the kernel keeps programs from devices.
pub fn lockdown(system: &System) -> Finding {
    const WHAT: &str = "kernel lock-down";
    let modes = system
        .machine
        .text("sys/kernel/security/lockdown")
        .unwrap_or_default();
    let mode = modes.split_whitespace().find_map(|m| m.strip_prefix('['));
    match mode.map(|m| m.trim_end_matches(']')) {
        None | Some("none") => Finding::ok(WHAT, "none"),
        Some(mode) => Finding::problem(
            WHAT,
            format!("{mode}: the kernel lets no program drive a device"),
            "turn Secure Boot off in the VM's firmware, or take lockdown= from the kernel's command line",
        ),
    }
}

/// Whether the kernel's driver for programs is there.
pub fn driver(system: &System) -> Finding {
    let what = format!("driver {UIO}");
    if system.machine.path(DRIVERS).join(UIO).exists() {
        return Finding::ok(&what, "loaded");
    }
    let release = system
        .machine
        .text("proc/sys/kernel/osrelease")
        .unwrap_or_default();
    let modules = system.machine.path("lib/modules").join(&release);
    if !modules.exists() {
        // There are no modules to look among: an image without modules, or a container.
        return Finding::problem(
            &what,
            format!("not loaded, and there are no modules of kernel {release} here"),
            format!("where the kernel's modules are: modprobe {UIO}"),
        );
    }
    let known = std::fs::read_to_string(modules.join("modules.dep")).unwrap_or_default();
    if known.contains(&format!("/{UIO}.ko")) {
        return Finding::problem(&what, "not loaded", format!("modprobe {UIO}"));
    }
    Finding::problem(
        &what,
        format!("kernel {release} does not have it (CONFIG_UIO_PCI_GENERIC)"),
        "install a kernel that has it; on Debian: apt install linux-image-$(dpkg --print-architecture)",
    )
}
