//! Files of devices, as the kernel has them for its own.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vnic_verbs::sysfs::{self, Files, Place};
use vnic_verbs::{Context, Device, DeviceAddress, now_at, present};

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

/// A device that is there, and its place among the files.
fn place(number: u32, address: &DeviceAddress, names: &[String]) -> Place {
    Place {
        name: sysfs::device_name(names, number),
        number,
        pci: match address {
            DeviceAddress::Pci(address) => Some(address.clone()),
            DeviceAddress::Socket(_) => None,
        },
    }
}

/// A device and its files.
pub struct Kept {
    address: DeviceAddress,
    device: Context,
    files: Files,
}

/// Writes the files of those of these devices that are there below a directory. Returns what keeps them; a device that cannot be opened
/// has no files.
pub fn write(root: &Path, devices: &[DeviceAddress], names: &[String]) -> Vec<Result<Kept, Refusal>> {
    let present = present(devices).into_iter();
    present
        .map(|(number, address)| {
            let mut files = Files::new(root, place(number, &address, names));
            let device = Device::open(&address)
                .and_then(|device| files.keep(&device).map(|()| device))
                .map_err(|e| Refusal::new(format!("no files of {address}: {e}")))?;
            Ok(Kept {
                address,
                device,
                files,
            })
        })
        .collect()
}

/// Settings of these devices as files below a directory: of adapters of the host whose daemon `vnicctl` may ask.
pub fn settings(root: &Path, devices: &[DeviceAddress], names: &[String]) -> Result<Vec<Settings>, Refusal> {
    let mut made = Vec::new();
    for (number, address) in present(devices) {
        if let DeviceAddress::Socket(socket) = &address {
            let new = Settings::new(root, &place(number, &address, names), socket);
            made.extend(new.map_err(|e| Refusal::new(format!("no settings of {address}: {e}")))?);
        }
    }
    Ok(made)
}

/// Devices whose files are kept.
pub struct Keeper<'a> {
    /// Where the files are.
    pub root: &'a Path,
    /// The devices, and names for them.
    pub devices: &'a [DeviceAddress],
    pub names: &'a [String],
    /// Those that are there.
    pub kept: Vec<Kept>,
    /// Their settings.
    pub settings: Vec<Settings>,
}

impl Keeper<'_> {
    /// Keeps the files as the devices are and takes what is written to settings, until all devices are gone, or `parent` has ended.
    pub fn keep(mut self, parent: Option<OwnedFd>) -> std::io::Result<()> {
        let mut away = false;
        while away || !self.kept.is_empty() {
            let told: Vec<BorrowedFd<'_>> = parent
                .iter()
                .map(AsFd::as_fd)
                .chain(self.settings.iter().map(AsFd::as_fd))
                .collect();
            let mut told: Vec<PollFd<'_>> = told.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
            let every = Timespec {
                tv_sec: EVERY.as_secs().cast_signed(),
                tv_nsec: 0,
            };
            let quiet = poll(&mut told, Some(&every))? == 0;
            let over = parent.is_some() && told.first().is_some_and(|fd| !fd.revents().is_empty());
            for settings in &mut self.settings {
                settings.take()?;
            }
            if over {
                break;
            }
            if quiet {
                away = self.look(away);
            }
        }
        Ok(())
    }

    /// Writes what has changed. Files of devices that were taken away, or are others now, go, and those of devices that are back come.
    /// Returns whether any is away; `was`: whether any was.
    fn look(&mut self, was: bool) -> bool {
        let mut moved = false;
        for mut kept in std::mem::take(&mut self.kept) {
            if now_at(&kept.address).as_ref() != Some(&kept.address) {
                moved = true;
                kept.files.remove();
                continue;
            }
            match kept.files.keep(&kept.device) {
                Ok(()) => self.kept.push(kept),
                Err(e) => eprintln!("vnic-verbs: {e}"),
            }
        }
        if !moved && !was {
            return false;
        }
        for (number, address) in present(self.devices) {
            if self.kept.iter().any(|kept| kept.address == address) {
                continue;
            }
            let mut files = Files::new(self.root, place(number, &address, self.names));
            if let Ok(device) = Device::open(&address)
                && files.keep(&device).is_ok()
            {
                self.kept.push(Kept {
                    address,
                    device,
                    files,
                });
            }
        }
        self.devices.iter().any(|device| now_at(device).is_none())
    }
}

/// Starts a keeper of the files below `root`, which ends with this process, and waits until they are written. `own`: this program.
pub fn start_keeper(
    own: &Path,
    root: &Path,
    devices: &[DeviceAddress],
    names: &[String],
) -> Result<(), Refusal> {
    let trouble = |e: std::io::Error| Refusal::new(format!("the keeper of the devices' files: {e}"));
    let mut command = Command::new(own);
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
