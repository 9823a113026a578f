//! A device as the kernel shows RDMA devices in files: `/sys/class/infiniband`, `/sys/class/infiniband_verbs`,
//! `/dev/infiniband`, and its function on PCI (kernel, `Documentation/ABI/stable/sysfs-class-infiniband`). Programs look there for
//! what verbs do not say, and take a device without files for none.
//!
//! Paths are relative to a root, below which [`keep`](Files::keep) writes them; who shows them where programs look is the launcher
//! `vnic-verbs`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::{Context, Counter, DeviceAttributes, Error, GidEntry, GidKind, PortAttributes, PortState};

mod counters;
mod pci;

pub use pci::address;

/// The environment variable with the root of the files that a program sees.
pub const SYSFS_VARIABLE: &str = "VNIC_SYSFS";
/// The environment variable with names of devices in their order, with commas; without it they are `vnic0`, `vnic1`, …
pub const NAMES_VARIABLE: &str = "VNIC_NAMES";
/// Directory of the devices, below the root.
pub const DEVICES: &str = "class/infiniband";
/// Directory of what `/dev/infiniband` has for them, below the root.
pub const VERBS: &str = "class/infiniband_verbs";

/// Directory of what debugfs has of the devices' drivers, below the root.
pub const DEBUG: &str = "debug/mlx5";

/// Name and place of a device among the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its name: `vnic0`.
    pub name: String,
    /// Which one of the devices it is.
    pub number: u32,
    /// Its address on PCI: in a virtual machine the real one; a process of the host gets one that no bus has.
    pub pci: Option<String>,
}

/// The files of a device.
#[derive(Debug)]
pub struct Files {
    root: PathBuf,
    place: Place,
    /// What was written.
    written: BTreeMap<String, Vec<u8>>,
}

impl Files {
    /// No files yet of the device of this place below `root`.
    pub fn new(root: &Path, place: Place) -> Files {
        Files {
            root: root.to_owned(),
            place,
            written: BTreeMap::new(),
        }
    }

    /// Writes the files as the device is now. What has not changed is not touched; who reads a file while it changes reads the old
    /// one or the new one.
    pub fn keep(&mut self, device: &Context) -> Result<(), Error> {
        let (port, gids, counters) = (device.query_port()?, device.gids()?, device.counters()?);
        let mut now = BTreeMap::new();
        describe(&self.place, &device.query_device(), &mut now);
        describe_port(&self.place, &port, &gids, &mut now);
        pci::describe_interface(&self.place, &gids, &mut now);
        counters::describe(&ports(&self.place), &counters, &mut now);
        self.write(now).map_err(Error::os(format!(
            "files of the device in {}",
            self.root.display()
        )))
    }

    /// Takes the files of the device away.
    pub fn remove(self) {
        let Files { root, place, .. } = self;
        let _ = std::fs::remove_dir_all(root.join(DEVICES).join(&place.name));
        let _ = std::fs::remove_dir_all(root.join(VERBS).join(node(&place)));
        pci::unlink(&root, &place);
    }

    fn write(&mut self, now: BTreeMap<String, Vec<u8>>) -> std::io::Result<()> {
        if self.written.is_empty() {
            pci::link(&self.root, &self.place)?;
        }
        for (path, bytes) in &now {
            if self.written.get(path) != Some(bytes) {
                replace(&self.root, path, bytes)?;
            }
        }
        for path in self.written.keys().filter(|path| !now.contains_key(*path)) {
            std::fs::remove_file(self.root.join(path))?;
            pci::forget_interface(&self.root, path);
        }
        self.written = now;
        Ok(())
    }
}

/// Name of the device of a number: that of a list, or the last one counted on, if it ends in its own number (`mlx5_0`, `mlx5_1`); else
/// `vnicN`.
pub fn device_name<S: AsRef<str>>(names: &[S], number: u32) -> String {
    let at = |n: usize| names.get(n).map(AsRef::as_ref).filter(|name| !name.is_empty());
    if let Some(name) = at(number as usize) {
        return name.to_owned();
    }
    let last = names.len().wrapping_sub(1);
    let stem = at(last).and_then(|name| name.strip_suffix(&last.to_string()));
    let stem = stem.filter(|stem| stem.ends_with('_'));
    format!("{}{number}", stem.unwrap_or("vnic"))
}

/// Files that this process has written.
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// Writes a file, whole or not at all; other devices' threads and processes may write theirs.
pub fn replace(root: &Path, path: impl AsRef<Path>, bytes: &[u8]) -> std::io::Result<()> {
    let file = root.join(path);
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // Beside the directories that programs list.
    let (process, number) = (std::process::id(), WRITTEN.fetch_add(1, Relaxed));
    let new = root.join(format!(".new.{process}.{number}"));
    std::fs::File::create(&new)?.write_all(bytes)?;
    std::fs::rename(new, file)
}

type Now = BTreeMap<String, Vec<u8>>;

fn put(now: &mut Now, path: String, text: &str) {
    now.insert(path, format!("{text}\n").into_bytes());
}

fn ports(place: &Place) -> String {
    format!("{DEVICES}/{}/ports/1", place.name)
}

/// Name of the character device.
fn node(place: &Place) -> String {
    character_device(place.number)
}

/// Name of the character device of a number, in `/dev/infiniband` and in `/sys/class/infiniband_verbs`. (`uverbs0` and so on are the
/// kernel's.)
pub fn character_device(number: u32) -> String {
    format!("uverbs_vnic{number}")
}

fn describe(place: &Place, device: &DeviceAttributes, now: &mut Now) {
    let guid: Vec<String> = device
        .node_guid
        .chunks_exact(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect();
    let guid = guid.join(":");
    let dir = format!("{DEVICES}/{}", place.name);
    for (name, text) in [
        ("node_guid", guid.as_str()),
        ("sys_image_guid", &guid),
        ("node_type", "1: CA"),
        ("node_desc", &place.name),
        ("fw_ver", &device.firmware()),
        ("hw_rev", &format!("{:#x}", device.hardware_version)),
        ("hca_type", "vnic"),
        ("board_id", &format!("VNIC{:010}", device.vendor_part_id)),
    ] {
        put(now, format!("{dir}/{name}"), text);
    }
    let verbs = format!("{VERBS}/{}", node(place));
    put(now, format!("{verbs}/ibdev"), &place.name);
    put(now, format!("{verbs}/abi_version"), "1");
    put(now, format!("{VERBS}/abi_version"), "6");
    if place.pci.is_none() {
        pci::describe(place, device, now);
    }
}

/// `PortPhysicalState` (IBTA volume 1), in the kernel's words.
const LINK_UP: &str = "5: LinkUp";
const LINK_DISABLED: &str = "3: Disabled";
/// Capabilities of the port: its GIDs are IP addresses (`IBV_PORT_IP_BASED_GIDS`), and it has a connection manager for nobody.
const CAPABILITIES: &str = "0x04000000";

fn describe_port(place: &Place, port: &PortAttributes, gids: &[GidEntry], now: &mut Now) {
    let dir = ports(place);
    let up = port.state() == PortState::Active;
    for (name, text) in [
        ("state", if up { "4: ACTIVE" } else { "1: DOWN" }),
        ("phys_state", if up { LINK_UP } else { LINK_DISABLED }),
        ("rate", rate(port).as_str()),
        ("link_layer", "Ethernet"),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", CAPABILITIES),
        ("has_smi", "0"),
    ] {
        put(now, format!("{dir}/{name}"), text);
    }
    for (index, pkey) in port.pkeys().iter().enumerate() {
        put(now, format!("{dir}/pkeys/{index}"), &format!("{pkey:#06x}"));
    }
    // (Most entries are of one address.)
    let mut interfaces = BTreeMap::new();
    for index in 0..port.gid_table_len {
        let entry = gids.iter().find(|e| e.index == index && e.kind != GidKind::None);
        let gid = entry.map(|e| e.gid).unwrap_or_default();
        put(now, format!("{dir}/gids/{index}"), &gid.to_string());
        // (The kernel's files of an empty entry are there, and cannot be read.)
        if let Some(entry) = entry {
            let kind = if entry.kind == GidKind::RoceV2 {
                "RoCE v2"
            } else {
                "IB/RoCE v1"
            };
            put(now, format!("{dir}/gid_attrs/types/{index}"), kind);
            let (_, interface) = interfaces.entry(entry.mac).or_insert_with(|| entry.interface());
            put(now, format!("{dir}/gid_attrs/ndevs/{index}"), interface);
        }
    }
}

/// The speed as the kernel writes it (`rate_show`).
fn rate(port: &PortAttributes) -> String {
    let (width, speed) = port.lanes();
    let width = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        _ => 12,
    };
    let (tenths, name) = match speed {
        1 => (25, ""),
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        _ => (1000, " NDR"),
    };
    let rate = width * tenths;
    let half = if rate % 10 == 5 { ".5" } else { "" };
    format!("{}{half} Gb/sec ({width}X{name})", rate / 10)
}

/// A counter's value by its name; 0 if the device has none of that name.
fn value(counters: &[Counter], name: &str) -> u64 {
    counters.iter().find(|c| c.name == name).map_or(0, |c| c.value)
}
