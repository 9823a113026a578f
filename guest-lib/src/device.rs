//! Finding and opening a device.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::transport::Transport;
use crate::transport::host::HostTransport;
use crate::transport::pci::{self, PciAddress, PciTransport};
use crate::{Context, Error};

/// Environment variable with the socket of an adapter's RDMA function, for a process of the host; or with
/// several sockets, `:` between them; or with a directory that has such sockets.
pub const SOCKET_VARIABLE: &str = "VNIC_SOCKET";

/// Environment variable with the RDMA functions on PCI that a program sees, `,` between them; without it a
/// program sees all.
pub const PCI_VARIABLE: &str = "VNIC_PCI";

/// Where a device is.
///
/// ```
/// use vnic_verbs::DeviceAddress;
///
/// let socket: DeviceAddress = "/run/vnic/vf0-rdma.sock".parse()?;
/// assert_eq!(socket, DeviceAddress::Socket("/run/vnic/vf0-rdma.sock".into()));
/// let function: DeviceAddress = "00:04.0".parse()?;
/// assert_eq!(function.to_string(), "0000:00:04.0");
/// # Ok::<(), vnic_verbs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceAddress {
    /// For a process of the host: the socket `NAME-rdma.sock` of an adapter.
    Socket(PathBuf),
    /// In a virtual machine: a PCI address as `0000:00:04.0`.
    Pci(String),
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceAddress::Socket(path) => write!(f, "{}", path.display()),
            DeviceAddress::Pci(address) => f.write_str(address),
        }
    }
}

impl FromStr for DeviceAddress {
    type Err = Error;

    /// Reads a PCI address (`0000:00:04.0`, `00:04.0`), or else a path.
    fn from_str(s: &str) -> Result<DeviceAddress, Error> {
        match s.parse::<PciAddress>() {
            Ok(address) => Ok(DeviceAddress::Pci(address.to_string())),
            Err(_) if s.is_empty() => Err(Error::Invalid("an empty device address".into())),
            Err(_) => Ok(DeviceAddress::Socket(s.into())),
        }
    }
}

/// Finds and opens devices.
#[derive(Debug)]
pub struct Device(());

impl Device {
    /// Devices that this program can see: the sockets of `VNIC_SOCKET`, or else the functions on PCI that
    /// `VNIC_PCI` names, or else all functions on PCI.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), vnic_verbs::Error> {
    /// for address in vnic_verbs::Device::list()? {
    ///     println!("{address}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn list() -> Result<Vec<DeviceAddress>, Error> {
        Ok(Device::numbered()?
            .into_iter()
            .map(|(_, address)| address)
            .collect())
    }

    /// The same with their numbers: places in the order of those that are named, but for devices that the daemon has given another one.
    pub fn numbered() -> Result<Vec<(u32, DeviceAddress)>, Error> {
        Ok(present(&Device::named()?))
    }

    /// Devices that are named, whether they are there or not.
    fn named() -> Result<Vec<DeviceAddress>, Error> {
        let named = named_sockets();
        if !named.is_empty() {
            return Ok(named.into_iter().map(DeviceAddress::Socket).collect());
        }
        if let Some(named) = std::env::var_os(PCI_VARIABLE).filter(|v| !v.is_empty()) {
            return functions(&named.to_string_lossy());
        }
        Ok(pci::find()?
            .into_iter()
            .map(|a| DeviceAddress::Pci(a.to_string()))
            .collect())
    }

    /// Opens a device.
    ///
    /// ```no_run
    /// # fn example() -> Result<(), vnic_verbs::Error> {
    /// use vnic_verbs::Device;
    ///
    /// let device = Device::open(&"/run/vnic/vf0-rdma.sock".parse()?)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn open(address: &DeviceAddress) -> Result<Context, Error> {
        match address {
            DeviceAddress::Socket(path) => {
                match now_at(address) {
                    Some(there) if there == *address => {}
                    Some(there) => {
                        return Err(Error::NoDevice(format!(
                            "{address}: the operator has made it {there}"
                        )));
                    }
                    None => {
                        let text =
                            format!("{address}: the operator has taken the device away (vnicctl fault play)");
                        return Err(Error::NoDevice(text));
                    }
                }
                Device::with_transport(Arc::new(HostTransport::connect(path)?))
            }
            DeviceAddress::Pci(address) => Device::with_transport(Arc::new(PciTransport::open(address)?)),
        }
    }

    /// Opens the first device of [`list`](Device::list).
    ///
    /// ```no_run
    /// # fn example() -> Result<(), vnic_verbs::Error> {
    /// let device = vnic_verbs::Device::open_default()?;
    /// println!("{}", device.name());
    /// # Ok(())
    /// # }
    /// ```
    pub fn open_default() -> Result<Context, Error> {
        match Device::list()?.first() {
            Some(address) => Device::open(address),
            None => Err(Error::NoDevice(format!(
                "no RDMA function on PCI. In a virtual machine: was it started with one? On the host: set \
                 {SOCKET_VARIABLE} to the NAME-rdma.sock of an adapter"
            ))),
        }
    }

    /// Opens a device over a transport of the program's own.
    pub fn with_transport(transport: Arc<dyn Transport>) -> Result<Context, Error> {
        Context::start(transport)
    }
}

/// The sockets that `VNIC_SOCKET` names.
pub(crate) fn named_sockets() -> Vec<PathBuf> {
    sockets(&std::env::var_os(SOCKET_VARIABLE).unwrap_or_default())
}

/// The sockets of a list, each once; of a directory, those of its adapters' RDMA functions.
fn sockets(list: &OsStr) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in list.as_bytes().split(|b| *b == b':').filter(|p| !p.is_empty()) {
        let path = PathBuf::from(OsStr::from_bytes(path));
        let paths = if path.is_dir() {
            sockets_in(&path)
        } else {
            vec![path]
        };
        for path in paths {
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

/// The sockets `NAME-rdma.sock` in a directory, `vf2` before `vf10`; of devices that are away or have another number, too.
pub fn sockets_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<OsString> = entries
        .map(|entry| base(Path::new(&entry.file_name())).into_os_string())
        .filter(|name| name.as_bytes().ends_with(SOCKET_END.as_bytes()))
        .collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names.dedup();
    names.into_iter().map(|name| dir.join(name)).collect()
}

/// End of the name of a socket.
const SOCKET_END: &str = "-rdma.sock";
/// What the daemon puts behind it while the device is away.
const AWAY: &str = "away";

/// The number behind the name of a socket.
fn number_of(socket: &Path) -> Option<u32> {
    socket.extension()?.to_str()?.parse().ok()
}

/// The path of a socket without what the daemon has put behind its name (`.sock`): that of a device that is away, or has another number.
fn base(socket: &Path) -> PathBuf {
    let renamed = socket.extension().is_some_and(|end| end == AWAY) || number_of(socket).is_some();
    let own = socket.with_extension("");
    match renamed && own.extension().is_some_and(|end| end == "sock") {
        true => own,
        false => socket.to_owned(),
    }
}

/// Where the device of a socket is now, with its number if it has got another one; `None`: it is away. A socket that is nowhere is
/// where it should be: who opens it is told why it is not there.
fn whereabouts(socket: &Path) -> Option<(Option<u32>, PathBuf)> {
    let own = base(socket);
    let here = Some((None, own.clone()));
    if own.symlink_metadata().is_ok() {
        return here;
    }
    let beside = own.parent().and_then(|dir| std::fs::read_dir(dir).ok());
    let beside = beside.into_iter().flatten().flatten().map(|entry| entry.path());
    let others: Vec<PathBuf> = beside.filter(|path| *path != own && base(path) == own).collect();
    match others.iter().find(|path| number_of(path).is_some()) {
        Some(there) => Some((number_of(there), there.clone())),
        None if others.is_empty() => here,
        None => None,
    }
}

/// Those of some devices that are there, with their numbers: their places, but for those to which the daemon has given other ones. No
/// two have the same.
pub fn present(named: &[DeviceAddress]) -> Vec<(u32, DeviceAddress)> {
    let mut moved = Vec::new();
    let mut all = Vec::new();
    for (place, address) in (0..).zip(named) {
        let DeviceAddress::Socket(socket) = address else {
            all.push((place, address.clone()));
            continue;
        };
        match whereabouts(socket) {
            Some((None, path)) => all.push((place, DeviceAddress::Socket(path))),
            Some((Some(number), path)) => moved.push((number, DeviceAddress::Socket(path))),
            None => {}
        }
    }
    for (wanted, address) in moved {
        let free = |number: &u32| all.iter().all(|(other, _)| other != number);
        let number = (wanted..).find(free).unwrap_or(wanted);
        all.push((number, address));
    }
    all.sort_by_key(|(number, _)| *number);
    all
}

/// Where a device that was found before is now; `None`: it is away.
pub fn now_at(address: &DeviceAddress) -> Option<DeviceAddress> {
    let there = present(std::slice::from_ref(address)).pop();
    there.map(|(_, address)| address)
}

/// The PCI addresses of a list.
fn functions(list: &str) -> Result<Vec<DeviceAddress>, Error> {
    let parts = list.split(',').map(str::trim).filter(|p| !p.is_empty());
    parts
        .map(|part| match part.parse()? {
            address @ DeviceAddress::Pci(_) => Ok(address),
            DeviceAddress::Socket(_) => Err(Error::Invalid(format!(
                "{PCI_VARIABLE} names {part:?}, which is no PCI address as 0000:00:04.0"
            ))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_may_be_named() {
        let two = functions("0000:00:04.0, 00:05.0,").expect("addresses");
        let shown: Vec<String> = two.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["0000:00:04.0", "0000:00:05.0"]);
        assert!(functions("/run/a.sock").is_err());
    }

    #[test]
    fn several_sockets_may_be_named() {
        let paths = |list: &str| -> Vec<String> {
            let found = sockets(OsStr::new(list));
            found.iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(paths("/run/a.sock"), ["/run/a.sock"]);
        assert_eq!(paths("/run/a.sock:b.sock"), ["/run/a.sock", "b.sock"]);
        assert_eq!(paths(":/a::/b:/a:"), ["/a", "/b"], "gaps and repetitions");
        assert!(paths("").is_empty(), "as if it were not set");
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["vf10-rdma.sock", "vf2-rdma.sock", "vf2-eth.sock", "control.sock"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let at = dir.path().display().to_string();
        assert_eq!(
            paths(&at),
            [format!("{at}/vf2-rdma.sock"), format!("{at}/vf10-rdma.sock")]
        );
    }

    /// A device that the daemon has taken away is not listed, and comes back under its number.
    #[test]
    fn devices_go_and_come_back_with_another_number() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["vf0-rdma.sock", "vf1-rdma.sock"] {
            std::fs::write(at(name), "").expect("a file");
        }
        let named: Vec<_> = ["vf0-rdma.sock", "vf1-rdma.sock", "vf9-rdma.sock"]
            .map(|name| DeviceAddress::Socket(at(name)))
            .into();
        let seen = || -> Vec<(u32, String)> {
            let name = |address: DeviceAddress| match address {
                DeviceAddress::Socket(path) => {
                    path.file_name().expect("a name").to_string_lossy().into_owned()
                }
                DeviceAddress::Pci(address) => address,
            };
            present(&named).into_iter().map(|(n, a)| (n, name(a))).collect()
        };
        let is = |expected: &[(u32, &str)]| {
            let expected: Vec<_> = expected
                .iter()
                .map(|(n, name)| (*n, (*name).to_owned()))
                .collect();
            assert_eq!(seen(), expected);
            let inside: Vec<_> = sockets_in(dir.path())
                .iter()
                .map(|p| p.display().to_string())
                .collect();
            let both = ["vf0-rdma.sock", "vf1-rdma.sock"].map(|name| at(name).display().to_string());
            assert_eq!(inside, both);
        };
        let rename = |from: &str, to: &str| std::fs::rename(at(from), at(to)).expect("renamed");
        is(&[(0, "vf0-rdma.sock"), (1, "vf1-rdma.sock"), (2, "vf9-rdma.sock")]);
        rename("vf0-rdma.sock", "vf0-rdma.sock.away");
        is(&[(1, "vf1-rdma.sock"), (2, "vf9-rdma.sock")]);
        assert_eq!(now_at(&named[0]), None);
        rename("vf0-rdma.sock.away", "vf0-rdma.sock.7");
        is(&[(1, "vf1-rdma.sock"), (2, "vf9-rdma.sock"), (7, "vf0-rdma.sock.7")]);
        let there = DeviceAddress::Socket(at("vf0-rdma.sock.7"));
        assert_eq!(now_at(&named[0]), Some(there.clone()));
        assert_eq!(now_at(&there), Some(there.clone()));
        // Who has the number already keeps it.
        rename("vf0-rdma.sock.7", "vf0-rdma.sock.1");
        is(&[(1, "vf1-rdma.sock"), (2, "vf9-rdma.sock"), (3, "vf0-rdma.sock.1")]);
        rename("vf0-rdma.sock.1", "vf0-rdma.sock");
        assert_eq!(now_at(&there), Some(named[0].clone()));
    }

    #[test]
    fn addresses_are_told_apart() {
        let parse = |s: &str| s.parse::<DeviceAddress>().expect("an address");
        assert_eq!(parse("0000:00:04.0"), DeviceAddress::Pci("0000:00:04.0".into()));
        assert_eq!(parse("00:04.0"), DeviceAddress::Pci("0000:00:04.0".into()));
        assert_eq!(
            parse("/run/vnic/vf0-rdma.sock"),
            DeviceAddress::Socket("/run/vnic/vf0-rdma.sock".into())
        );
        assert_eq!(
            parse("vf0-rdma.sock"),
            DeviceAddress::Socket("vf0-rdma.sock".into())
        );
        assert!("".parse::<DeviceAddress>().is_err());
    }
}
