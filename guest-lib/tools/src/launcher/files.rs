//! Files of devices, as the kernel has them for its own.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use vnic_verbs::sysfs::{Files, Place};
use vnic_verbs::{Context, Device, DeviceAddress};

use crate::Refusal;

/// Time between two looks at a device that changes.
const EVERY: Duration = Duration::from_secs(1);

/// What a program finds of our devices in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Shown {
    /// Files where the machine allows it
    #[default]
    Auto,
    /// Nothing
    Never,
    /// Files and no library: for programs that look and do not open (node_exporter, ibstat, lstopo), static ones, too. The device is
    /// the launcher's meanwhile
    Only,
}

/// Names of devices: those that were asked for, and `vnicN` for the rest.
pub fn places(devices: &[DeviceAddress], names: &[String]) -> Vec<Place> {
    devices
        .iter()
        .enumerate()
        .map(|(n, address)| Place {
            name: names.get(n).cloned().unwrap_or_else(|| format!("vnic{n}")),
            number: n as u32,
            pci: match address {
                DeviceAddress::Pci(address) => Some(address.clone()),
                DeviceAddress::Socket(_) => None,
            },
        })
        .collect()
}

/// Writes the files of these devices below a directory. Returns what keeps them; a device that cannot be opened has no files.
pub fn write(
    root: &Path,
    devices: &[DeviceAddress],
    names: &[String],
) -> Vec<Result<(Context, Files), Refusal>> {
    let places = places(devices, names);
    devices
        .iter()
        .zip(places)
        .map(|(address, place)| {
            let mut files = Files::new(root, place);
            let device = Device::open(address)
                .and_then(|device| files.keep(&device).map(|()| device))
                .map_err(|e| Refusal::new(format!("no files of {address}: {e}")))?;
            Ok((device, files))
        })
        .collect()
}

/// Keeps the files as the devices are, until all of them are gone.
pub fn keep(mut kept: Vec<(Context, Files)>) {
    while !kept.is_empty() {
        std::thread::sleep(EVERY);
        kept.retain_mut(|(device, files)| match files.keep(device) {
            Ok(()) => true,
            Err(e) => {
                eprintln!("vnic-verbs: {e}");
                false
            }
        });
    }
}

/// Starts a keeper of the files below `root`, which ends with this process, and waits until they are written.
pub fn start_keeper(root: &Path, devices: &[DeviceAddress], names: &[String]) -> Result<(), Refusal> {
    let trouble = |e: std::io::Error| Refusal::new(format!("the keeper of the devices' files: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(trouble)?);
    command.arg("files").arg(root).arg("--with-parent");
    for address in devices {
        match address {
            DeviceAddress::Socket(path) => command.arg("--socket").arg(path),
            DeviceAddress::Pci(address) => command.arg("--pci").arg(address),
        };
    }
    for name in names {
        command.arg("--name").arg(name);
    }
    let mut keeper = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(trouble)?;
    // It says where they are when they are.
    let mut line = String::new();
    let out = keeper.stdout.take().map(std::io::BufReader::new);
    if let Some(mut out) = out {
        std::io::BufRead::read_line(&mut out, &mut line).map_err(trouble)?;
    }
    if line.is_empty() {
        return Err(Refusal::new("the devices' files could not be made"));
    }
    Ok(())
}
