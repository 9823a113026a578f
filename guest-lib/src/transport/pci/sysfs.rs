//! A PCI function as Linux shows it: its files in `/sys`, its driver, its configuration space.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use vnic_device::config::Config;
use vnic_device::zerocopy::{FromBytes, IntoBytes};

use super::address::PciAddress;
use super::capability::BARS;
use super::capability::Layout;
use super::registers::Bars;
use crate::Error;

/// Vendor of virtio devices.
const VIRTIO: u32 = 0x1af4;
/// Base of the device ids of modern devices, which the virtio id is added to (virtio 1.3, section 4.1.2.1).
const MODERN: u32 = 0x1040;
/// The driver that gives a function's interrupt to a program.
pub const UIO: &str = "uio_pci_generic";
/// Folder of the kernel's drivers for PCI.
pub const DRIVERS: &str = "sys/bus/pci/drivers";
/// The driver that makes a device of the virtio bus of a function, for other drivers.
const VIRTIO_PCI: &str = "virtio-pci";
/// Folder with the configurations of opened devices.
const RECORDS: &str = "run/vnic-verbs";

/// PCI configuration space: the command register, and its bits.
const COMMAND: u64 = 4;
const MEMORY: u16 = 1 << 1;
const MASTER: u16 = 1 << 2;
const INTX_DISABLE: u16 = 1 << 10;
/// Bytes of the configuration space that are looked at.
const SPACE: usize = 256;

/// Descriptors from here on are seldom in use, and allowed by the usual limit of 1024.
const ABOVE: i32 = 768;

/// Times that a device node is looked for, and the wait between two: a program may have to make nodes.
const NODE_TRIES: u32 = 250;
const NODE_WAIT: Duration = Duration::from_millis(20);

/// A machine by its file system; for tests any directory.
#[derive(Debug, Clone)]
pub struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        Machine::at("/")
    }

    /// A machine whose `/sys`, `/proc`, `/dev` and `/run` are in a directory.
    pub fn at(root: impl Into<PathBuf>) -> Machine {
        Machine { root: root.into() }
    }

    /// A path of the machine.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A file's text without white space around it, if it can be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let text = std::fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Modern virtio functions, in the order of their addresses.
    pub fn virtio(&self) -> Result<Vec<Function>, Error> {
        let dir = self.path("sys/bus/pci/devices");
        let entries = match std::fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(Error::os(format!("cannot list {}", dir.display()))(e)),
        };
        let mut found: Vec<Function> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .map(|address| self.function(address))
            .filter(|f| f.virtio_id().is_some())
            .collect();
        found.sort_by_key(|f| f.address);
        Ok(found)
    }

    /// The function at an address, which may not exist.
    pub fn function(&self, address: PciAddress) -> Function {
        Function {
            machine: self.clone(),
            address,
        }
    }
}

/// Who has a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// No driver.
    Nobody,
    /// The driver for programs.
    Programs,
    /// The driver for virtio's PCI functions, without a driver for the device that it has made.
    Bus,
    /// A driver of the kernel, which uses the function.
    Kernel(String),
}

/// A PCI function.
#[derive(Debug, Clone)]
pub struct Function {
    machine: Machine,
    /// Address of the function.
    pub address: PciAddress,
}

impl Function {
    fn dir(&self) -> PathBuf {
        PathBuf::from("sys/bus/pci/devices").join(self.address.to_string())
    }

    /// A file of the function.
    fn file(&self, name: &str) -> PathBuf {
        self.machine.path(self.dir().join(name))
    }

    /// Whether the function exists.
    pub fn exists(&self) -> bool {
        self.file("vendor").exists()
    }

    /// The number in a file of the function.
    fn number(&self, name: &str) -> Option<u32> {
        let text = self.machine.text(self.dir().join(name))?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }

    /// Virtio id of the function, if it is a modern virtio device.
    pub fn virtio_id(&self) -> Option<u16> {
        let ids = MODERN..MODERN + 0x40;
        let device = self.number("device").filter(|d| ids.contains(d))?;
        (self.number("vendor")? == VIRTIO).then_some((device - MODERN) as u16)
    }

    /// The kernel's driver of the function.
    pub fn driver(&self) -> Option<String> {
        driver_in(&self.file(""))
    }

    /// Who has the function.
    pub fn holder(&self) -> Holder {
        match self.driver() {
            None => Holder::Nobody,
            Some(d) if d == UIO => Holder::Programs,
            Some(d) if d == VIRTIO_PCI => match self.virtio_driver() {
                None => Holder::Bus,
                Some(driver) => Holder::Kernel(driver),
            },
            Some(d) => Holder::Kernel(d),
        }
    }

    /// The driver of the virtio device that `virtio-pci` has made of the function.
    fn virtio_driver(&self) -> Option<String> {
        let entries = std::fs::read_dir(self.file("")).ok()?;
        entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|name| name.starts_with("virtio"))
            .find_map(|name| driver_in(&self.file(&name)))
    }

    /// Gives the function to the driver for programs, if no driver uses it.
    pub fn bind(&self) -> Result<(), Error> {
        let address = self.address;
        let holder = self.holder();
        match &holder {
            Holder::Programs => return Ok(()),
            Holder::Nobody | Holder::Bus => {}
            Holder::Kernel(driver) => {
                let bus = self.driver().unwrap_or_default();
                return Err(Error::Setup(format!(
                    "{address} is in use by the kernel's driver {driver}. If it really is an RDMA function of vnic, \
                     free it: echo {address} > /sys/bus/pci/drivers/{bus}/unbind"
                )));
            }
        }
        if !self.machine.path(DRIVERS).join(UIO).exists() {
            return Err(Error::Setup(format!(
                "the kernel's driver {UIO} is not loaded: modprobe {UIO}"
            )));
        }
        let own = self.file("driver_override");
        let probe = self.machine.path("sys/bus/pci/drivers_probe");
        let address = address.to_string();
        write(&own, UIO)?;
        if holder == Holder::Bus {
            write(&self.file("driver/unbind"), &address)?;
        }
        let probed = write(&probe, &address);
        if self.holder() == Holder::Programs {
            return Ok(());
        }
        // That driver did not take it: back to the one that had it.
        let _ = write(&own, "\n").and_then(|()| write(&probe, &address));
        probed?;
        Err(Error::Setup(format!(
            "the kernel does not bind {address} to {UIO}; the reason is in dmesg"
        )))
    }

    /// Opens the file by which the function's interrupts come. [`open_space`](Function::open_space) has locked
    /// the function: if two had this file open, closing one would take bus mastering from the other.
    pub fn open_uio(&self) -> Result<File, Error> {
        let path = self.machine.path(self.node()?);
        let mut tries = 0;
        loop {
            let opened = OpenOptions::new()
                .read(true)
                .custom_flags(OFlags::NONBLOCK.bits() as i32)
                .open(&path);
            match opened {
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < NODE_TRIES => {
                    tries += 1;
                    std::thread::sleep(NODE_WAIT);
                }
                other => return other.map(above_others).map_err(|e| denied(&path, e)),
            }
        }
    }

    /// The function's device node, `/dev/uioN`.
    fn node(&self) -> Result<PathBuf, Error> {
        let dir = self.file("uio");
        let entries = std::fs::read_dir(&dir).map_err(Error::os(format!("cannot list {}", dir.display())))?;
        entries
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .find(|name| name.starts_with("uio"))
            .map(|name| Path::new("dev").join(name))
            .ok_or_else(|| Error::Setup(format!("{} has no device node", self.address)))
    }

    /// Opens the function's PCI configuration space, and locks it against all others who do so.
    pub fn open_space(&self) -> Result<Space, Error> {
        let path = self.file("config");
        let file = open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
            Errno::WOULDBLOCK => Error::Setup(format!(
                "{} is in use by another program, and only one can have it. Which one: fuser -v {}",
                self.address,
                path.display()
            )),
            e => Error::os(format!("cannot lock {}", path.display()))(e),
        })?;
        Ok(Space { file })
    }

    /// Maps the memory in which the function's registers are.
    pub fn map(&self, layout: &Layout) -> Result<Bars, Error> {
        let mut bars = Bars::default();
        for region in layout.regions() {
            if bars.len(region.bar) == 0 {
                let path = self.file(&format!("resource{}", region.bar));
                bars.map(region.bar, &open(&path)?)
                    .map_err(|e| denied(&path, e))?;
            }
            if u64::from(region.offset) + u64::from(region.len) > bars.len(region.bar) {
                return Err(Error::NoDevice(format!(
                    "{} names registers beyond the end of its BAR {}",
                    self.address, region.bar
                )));
            }
        }
        debug_assert!(layout.regions().iter().all(|r| usize::from(r.bar) < BARS));
        Ok(bars)
    }

    /// Writes down the configuration of the device, for others who must not ask the device. The number of the
    /// function's directory tells it from one that is plugged in later at the same place.
    pub fn record(&self, config: &Config) -> io::Result<()> {
        let place = std::fs::metadata(self.machine.path(self.dir()))?.ino();
        let records = self.machine.path(RECORDS);
        std::fs::create_dir_all(&records)?;
        let mut bytes = place.to_le_bytes().to_vec();
        bytes.extend(config.as_bytes());
        std::fs::write(records.join(self.address.to_string()), bytes)
    }

    /// The configuration that was written down when the device was opened last.
    pub fn recorded(&self) -> Option<Config> {
        let place = std::fs::metadata(self.machine.path(self.dir())).ok()?.ino();
        let path = Path::new(RECORDS).join(self.address.to_string());
        let bytes = std::fs::read(self.machine.path(path)).ok()?;
        let config = bytes.strip_prefix(&place.to_le_bytes())?;
        Config::read_from_bytes(config).ok()
    }
}

/// A PCI configuration space.
#[derive(Debug)]
pub struct Space {
    file: File,
}

impl Space {
    /// Where the registers are.
    pub fn layout(&self) -> Result<Layout, Error> {
        let mut bytes = [0; SPACE];
        self.file.read_exact_at(&mut bytes, 0).map_err(|_| {
            Error::Setup(
                "its PCI configuration space cannot be read: the process needs the capability CAP_SYS_ADMIN in the \
                 guest's first user namespace"
                    .into(),
            )
        })?;
        Layout::parse(&bytes)
    }

    /// Reads the command register.
    fn command(&self) -> io::Result<u16> {
        let mut bytes = [0; 2];
        self.file.read_exact_at(&mut bytes, COMMAND)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Writes the command register.
    pub fn set_command(&self, command: u16) -> io::Result<()> {
        self.file.write_all_at(&command.to_le_bytes(), COMMAND)
    }

    /// First four bytes of the device's own configuration, read without mapping its registers, whoever drives it.
    pub fn peek(&self, layout: &Layout) -> io::Result<[u8; 4]> {
        let window = layout.window.ok_or(io::ErrorKind::Unsupported)?;
        let window = u64::from(window);
        self.file.write_all_at(&[layout.device.bar], window + 4)?;
        self.file
            .write_all_at(&layout.device.offset.to_le_bytes(), window + 8)?;
        self.file.write_all_at(&4_u32.to_le_bytes(), window + 12)?;
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, window + 16)?;
        Ok(bytes)
    }

    /// Lets the device use the guest's memory, and interrupt. Returns the new command register.
    pub fn enable(&self) -> io::Result<u16> {
        let enabled = (self.command()? | MEMORY | MASTER) & !INTX_DISABLE;
        self.set_command(enabled)?;
        Ok(enabled)
    }
}

/// Gives a file a descriptor above those that io_uring gets later.
///
/// When a program is killed, Linux closes its files in the order of their numbers, the highest first (it puts
/// them on a list that it works off from the end). So closing this file stops the device first, and then the pins
/// of its memory end. If the number cannot be had, the order is the other one, and for some microseconds the
/// device may write to memory that is not the program's any more.
fn above_others(file: File) -> File {
    match rustix::io::fcntl_dupfd_cloexec(&file, ABOVE) {
        Ok(above) => above.into(),
        Err(_) => file,
    }
}

/// The driver of a device, by its folder.
fn driver_in(folder: &Path) -> Option<String> {
    let link = std::fs::read_link(folder.join("driver")).ok()?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Opens a file for reading and writing.
fn open(path: &Path) -> Result<File, Error> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    opened.map_err(|e| denied(path, e))
}

/// Writes to a file of sysfs.
fn write(path: &Path, text: &str) -> Result<(), Error> {
    let file = OpenOptions::new().write(true).open(path);
    file.and_then(|f| f.write_all_at(text.as_bytes(), 0))
        .map_err(|e| denied(path, e))
}

/// The error with its cure.
fn denied(path: &Path, error: io::Error) -> Error {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Setup(format!(
            "{path}: {error}. Run the program as root in the guest. If it is root: in a container, give it the device; \
             with a kernel that is locked down (Secure Boot), programs cannot drive devices: turn Secure Boot off"
        )),
        _ => Error::os(path.to_string())(error),
    }
}
