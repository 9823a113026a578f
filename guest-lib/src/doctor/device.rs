//! Devices.

use super::{Finding, System};
use crate::MacAddress;
use crate::transport::identity;
use crate::transport::pci::has_our_id;
use crate::transport::pci::sysfs::{Function, Holder};

/// What gives a VM a device.
const VMM: &str = "start the VM with QEMU 11.1 or later, its memory shared, and: -chardev \
                   socket,id=rdma,path=DIR/NAME-rdma.sock -device \
                   vhost-user-test-device-pci,chardev=rdma,virtio-id=38,num_vqs=3,vq_size=128,config_size=64 (38, not \
                   42: QEMU ends itself at 42). Cloud Hypervisor: --generic-vhost-user \
                   socket=DIR/NAME-rdma.sock,virtio_id=42,queue_sizes=[128,128,128]";

/// A finding for each function that may be ours, or one that says that there is none.
pub fn devices(system: &System) -> Vec<Finding> {
    let functions = match system.machine.virtio() {
        Ok(functions) => functions,
        Err(e) => {
            return vec![Finding::problem(
                "device",
                e.to_string(),
                "mount -t sysfs sysfs /sys",
            )];
        }
    };
    let found: Vec<Finding> = functions.iter().filter_map(one).collect();
    if !found.is_empty() {
        return found;
    }
    let detail = match functions.len() {
        0 => "no RDMA function, and no other virtio device on PCI either".to_owned(),
        n => format!("no RDMA function; {n} other virtio devices on PCI"),
    };
    vec![Finding::problem("device", detail, VMM)]
}

/// A finding for a function. `None`: it is none of ours.
fn one(function: &Function) -> Option<Finding> {
    let recorded = function.recorded();
    let holder = function.holder();
    if recorded.is_none() && !has_our_id(function) {
        return None;
    }
    let what = format!("device {}", function.address);
    let id = function.virtio_id().unwrap_or_default();
    if let Holder::Kernel(driver) = &holder {
        let bus = function.driver().unwrap_or_default();
        return Some(Finding::warning(
            &what,
            format!("virtio id {id}, but the kernel's driver {driver} has it"),
            format!(
                "if it is an RDMA function of vnic: echo {} > /sys/bus/pci/drivers/{bus}/unbind",
                function.address
            ),
        ));
    }
    let bound = match holder {
        Holder::Programs => "ready",
        _ => "is made ready when it is opened",
    };
    let Some(config) = recorded else {
        return Some(Finding::ok(
            &what,
            format!(
                "virtio id {id}, {bound}; not opened since it is there, so its version is not known (vnic-guest devinfo \
                 asks it)"
            ),
        ));
    };
    let version = format!("contract {}.{}", config.abi_major, config.abi_minor);
    if let Err(e) = identity::check(&config) {
        return Some(Finding::problem(
            &what,
            format!("virtio id {id}, {version}: {e}"),
            "install vnicd on the host and this library from one release",
        ));
    }
    let mac = MacAddress(config.mac);
    Some(Finding::ok(
        &what,
        format!("virtio id {id}, {bound}; {version}, adapter {mac}"),
    ))
}
