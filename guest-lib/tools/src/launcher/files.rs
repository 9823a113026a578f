//! Files of devices, as the kernel has them for its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vnic_verbs::sysfs::{Files, Place};
use vnic_verbs::{Context, Device, DeviceAddress};

use crate::Refusal;
use crate::settings::Settings;

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

/// Settings of these devices as files below a directory: of adapters of the host whose daemon `vnicctl` may ask.
pub fn settings(root: &Path, devices: &[DeviceAddress], names: &[String]) -> Result<Vec<Settings>, Refusal> {
    let mut made = Vec::new();
    for (address, place) in devices.iter().zip(places(devices, names)) {
        if let DeviceAddress::Socket(socket) = address {
            let new = Settings::new(root, &place, socket);
            made.extend(new.map_err(|e| Refusal::new(format!("no settings of {address}: {e}")))?);
        }
    }
    Ok(made)
}

/// Keeps the files as the devices are and takes what is written to settings, until all devices are gone, or `parent` has ended.
pub fn keep(
    mut kept: Vec<(Context, Files)>,
    mut settings: Vec<Settings>,
    parent: Option<OwnedFd>,
) -> std::io::Result<()> {
    while !kept.is_empty() {
        let told: Vec<BorrowedFd<'_>> = parent
            .iter()
            .map(AsFd::as_fd)
            .chain(settings.iter().map(AsFd::as_fd))
            .collect();
        let mut told: Vec<PollFd<'_>> = told.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let every = Timespec {
            tv_sec: EVERY.as_secs().cast_signed(),
            tv_nsec: 0,
        };
        let quiet = poll(&mut told, Some(&every))? == 0;
        let over = parent.is_some() && told.first().is_some_and(|fd| !fd.revents().is_empty());
        for settings in &mut settings {
            settings.take()?;
        }
        if over {
            break;
        }
        if quiet {
            kept.retain_mut(|(device, files)| match files.keep(device) {
                Ok(()) => true,
                Err(e) => {
                    eprintln!("vnic-verbs: {e}");
                    false
                }
            });
        }
    }
    Ok(())
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
