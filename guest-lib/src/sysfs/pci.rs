//! The function on PCI that a device is.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::{DEVICES, Now, Place, VERBS, node, put};
use crate::{DeviceAttributes, GidEntry};

/// The domain of devices that are on no bus of this machine; firmware gives such numbers to none ("vn").
const DOMAIN: &str = "766e";
/// Class of a function that is a network controller for Ethernet (PCI Code and ID Assignment, 02h 00h).
const CLASS: [u8; 3] = [0, 0, 2];
/// ID of virtio devices on PCI: this and the number of the type (virtio 1.3, 4.1.2).
const VIRTIO: u32 = 0x1040;
/// Lines of `resource`: six BARs, a ROM, and four windows of a bridge, of nothing.
const RESOURCES: usize = 11;

/// Where the function of a device is, below `/sys/devices`.
fn path(place: &Place) -> String {
    let real = place.pci.as_ref().and_then(|address| {
        let link = Path::new("/sys/bus/pci/devices").join(address);
        let path = link.canonicalize().ok()?;
        Some(path.strip_prefix("/sys/devices").ok()?.to_str()?.to_owned())
    });
    real.unwrap_or_else(|| format!("pci{DOMAIN}:00/{}", address(place)))
}

/// The address of a device on PCI; of one that is on no bus: slots and functions, as of cards with many functions.
pub fn address(place: &Place) -> String {
    if let Some(address) = &place.pci {
        return address.clone();
    }
    format!("{DOMAIN}:00:{:02x}.{:x}", place.number / 8 % 32, place.number % 8)
}

/// The links from the device to its function, and what stands for its character device.
pub(super) fn link(root: &Path, place: &Place) -> std::io::Result<()> {
    let function = path(place);
    let to = format!("../../../devices/{function}");
    let mut links = vec![
        (format!("{DEVICES}/{}/device", place.name), to.clone()),
        (format!("{VERBS}/{}/device", node(place)), to),
        // Programs look whether it is a character device that they may open (UCX), and then leave it to verbs.
        (format!("dev/{}", node(place)), "/dev/null".into()),
    ];
    if place.pci.is_none() {
        let bus = format!("bus/pci/devices/{}", address(place));
        links.push((bus, format!("../../../devices/{function}")));
        links.push((
            format!("devices/{function}/infiniband/{}", place.name),
            format!("../../../../{DEVICES}/{}", place.name),
        ));
    }
    for (from, to) in links {
        let from = root.join(from);
        if let Some(dir) = from.parent() {
            std::fs::create_dir_all(dir)?;
        }
        match symlink(to, from) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Takes away what [`link`] has made, and the function of a device that is on no bus.
pub(super) fn unlink(root: &Path, place: &Place) {
    let _ = std::fs::remove_file(root.join(format!("dev/{}", node(place))));
    if place.pci.is_none() {
        let _ = std::fs::remove_file(root.join(format!("bus/pci/devices/{}", address(place))));
        let _ = std::fs::remove_dir_all(root.join(format!("devices/{}", path(place))));
    }
}

/// The function of a device that is on no bus.
pub(super) fn describe(place: &Place, device: &DeviceAttributes, now: &mut Now) {
    let dir = format!("devices/{}", path(place));
    let (vendor, id) = (device.vendor_id, VIRTIO + device.vendor_part_id);
    let class = format!("{:02x}{:02x}{:02x}", CLASS[2], CLASS[1], CLASS[0]);
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let uevent = format!(
        "PCI_CLASS={}\nPCI_ID={vendor:04X}:{id:04X}\nPCI_SUBSYS_ID={vendor:04X}:{id:04X}\nPCI_SLOT_NAME={}",
        class.trim_start_matches('0'),
        address(place)
    );
    for (name, text) in [
        ("vendor", format!("{vendor:#06x}")),
        ("device", format!("{id:#06x}")),
        ("subsystem_vendor", format!("{vendor:#06x}")),
        ("subsystem_device", format!("{id:#06x}")),
        ("class", format!("0x{class}")),
        ("revision", "0x01".into()),
        ("irq", "0".into()),
        // The daemon's threads may be anywhere.
        ("numa_node", "-1".into()),
        ("local_cpulist", online.trim().into()),
        ("uevent", uevent),
        (
            "resource",
            vec![format!("{:#018x} {:#018x} {:#018x}", 0, 0, 0); RESOURCES].join("\n"),
        ),
    ] {
        put(now, format!("{dir}/{name}"), &text);
    }
    now.insert(format!("{dir}/config"), config(vendor as u16, id as u16));
}

/// Files of a network interface that say which one it is, and which port of its function.
const INTERFACE: [&str; 4] = ["address", "ifindex", "dev_id", "dev_port"];

/// The interface of the machine that has the Ethernet address of a device that is on no bus, if there is one.
pub(super) fn describe_interface(place: &Place, gids: &[GidEntry], now: &mut Now) {
    if place.pci.is_some() {
        return;
    }
    if let Some((_, name)) = GidEntry::port_interface(gids) {
        for file in INTERFACE {
            if let Ok(text) = std::fs::read_to_string(format!("/sys/class/net/{name}/{file}")) {
                put(
                    now,
                    format!("devices/{}/net/{name}/{file}", path(place)),
                    text.trim_end(),
                );
            }
        }
    }
}

/// Takes an interface's directory away when `file`, which is gone, was the last in it: programs list these directories.
pub(super) fn forget_interface(root: &Path, file: &str) {
    let dir = Path::new(file).parent();
    if let Some(dir) = dir.filter(|dir| dir.parent().is_some_and(|above| above.ends_with("net"))) {
        // (There may be others in it.)
        let _ = std::fs::remove_dir(root.join(dir));
    }
}

/// The header of the configuration space (PCI 3.0, 6.1), of what is in it here.
fn config(vendor: u16, id: u16) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    for at in [0, 0x2c] {
        bytes[at..at + 2].copy_from_slice(&vendor.to_le_bytes());
        bytes[at + 2..at + 4].copy_from_slice(&id.to_le_bytes());
    }
    bytes[8] = 1;
    bytes[9..12].copy_from_slice(&CLASS);
    bytes
}
