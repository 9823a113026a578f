//! Devices for programs, and the wait until they are there.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use vnic_verbs::sysfs::device_name;
use vnic_verbs::{Device, DeviceAddress, now_at, present};

use crate::Refusal;
use crate::options::DeviceOptions;
use crate::place;

/// Time between two looks for a socket.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The devices that the options name; none: the library finds devices by itself.
pub fn choose(options: &DeviceOptions) -> Result<Vec<DeviceAddress>, Refusal> {
    if !options.pci.is_empty() {
        return options.pci.iter().map(|text| pci(text)).collect();
    }
    let mut sockets = options.socket.clone();
    if !options.adapter.is_empty() {
        let dir = match &options.socket_dir {
            Some(dir) => dir.clone(),
            None => place::socket_dir()?,
        };
        sockets.extend(
            options
                .adapter
                .iter()
                .map(|name| dir.join(format!("{name}-rdma.sock"))),
        );
    }
    sockets.into_iter().map(absolute).collect()
}

/// The devices that the options name, or else those that the library finds.
pub fn found(options: &DeviceOptions) -> Result<Vec<DeviceAddress>, Refusal> {
    let chosen = choose(options)?;
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let found = Device::list().map_err(|e| Refusal::new(e.to_string()))?;
    if found.is_empty() {
        Err(no_device())
    } else {
        Ok(found)
    }
}

fn pci(text: &str) -> Result<DeviceAddress, Refusal> {
    match text.parse() {
        Ok(address @ DeviceAddress::Pci(_)) => Ok(address),
        _ => Err(Refusal::new(format!(
            "{text:?} is no PCI address: it is written as 0000:00:04.0 (lspci -D lists them)"
        ))),
    }
}

/// The absolute path of a socket: the program may change its directory before it opens the device.
fn absolute(path: PathBuf) -> Result<DeviceAddress, Refusal> {
    let path = std::path::absolute(&path).map_err(|e| Refusal::new(format!("{}: {e}", path.display())))?;
    if path.as_os_str().as_encoded_bytes().contains(&b':') {
        return Err(Refusal::new(format!(
            "{}: there is a colon in this path, which stands between sockets in VNIC_SOCKET; give the socket another name (a \
             link will do)",
            path.display()
        )));
    }
    Ok(DeviceAddress::Socket(path))
}

/// The devices that a program would see, a line each.
pub fn list(options: &DeviceOptions) -> Result<String, Refusal> {
    let all = found(options)?;
    let mut lines = String::new();
    for (number, address) in present(&all) {
        let state = match &address {
            DeviceAddress::Pci(_) => String::new(),
            DeviceAddress::Socket(path) => match look(path) {
                Ok(()) => String::new(),
                Err(Missing::Not(why)) | Err(Missing::Never(why)) => format!("  ({why})"),
            },
        };
        let name = device_name(&options.name, number);
        let _ = writeln!(lines, "{name}  {address}{state}");
    }
    Ok(lines)
}

/// The refusal without any device.
pub fn no_device() -> Refusal {
    Refusal::new(
        "there is no device: in a virtual machine, was it started with an RDMA function (`vnic-guest doctor` tells more)? On \
         the host, name an adapter of vnicd: --adapter vf0, or --socket DIR/vf0-rdma.sock",
    )
}

/// Waits until a daemon listens at each of these sockets.
pub fn wait(sockets: &[PathBuf], patience: Duration) -> Result<(), Refusal> {
    let end = Instant::now() + patience;
    for socket in sockets {
        loop {
            match there(socket) {
                Ok(()) => break,
                Err(Missing::Never(why)) => return Err(Refusal::new(why)),
                Err(Missing::Not(why)) if Instant::now() >= end => {
                    return Err(Refusal::new(format!("{why} (waited {} s)", patience.as_secs())));
                }
                Err(Missing::Not(_)) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }
    Ok(())
}

/// Why no daemon is at a socket.
#[derive(Debug)]
enum Missing {
    /// There is none yet, maybe.
    Not(String),
    /// There will be none: waiting does not help.
    Never(String),
}

/// Checks whether a daemon listens at a socket, wherever that is now.
fn there(socket: &Path) -> Result<(), Missing> {
    match now_at(&DeviceAddress::Socket(socket.to_owned())) {
        Some(DeviceAddress::Socket(path)) => look(&path),
        _ => Err(Missing::Not(format!(
            "{}: the operator has taken the device away (vnicctl fault play)",
            socket.display()
        ))),
    }
}

/// Checks whether a daemon listens at a socket. Whoever connects takes a place at the device: so this
/// connects with a type of socket that does not fit, and the kernel's error shows whether there is a listener.
fn look(path: &Path) -> Result<(), Missing> {
    let shown = path.display();
    let refused = match UnixDatagram::unbound().and_then(|socket| socket.connect(path)) {
        Ok(()) => return Err(Missing::Never(format!("{shown} is not the socket of an adapter"))),
        Err(e) => e,
    };
    if refused.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) {
        return if path.to_string_lossy().ends_with("-eth.sock") {
            Err(Missing::Never(format!(
                "{shown} is the Ethernet function of the adapter; its RDMA function is {}",
                path.to_string_lossy().replace("-eth.sock", "-rdma.sock")
            )))
        } else {
            Ok(())
        };
    }
    match refused.kind() {
        ErrorKind::NotFound => Err(Missing::Not(format!(
            "there is no {shown}: is vnicd running, and has it this adapter? `vnicctl adapter list` shows them"
        ))),
        ErrorKind::ConnectionRefused if path.metadata().is_ok_and(|m| !m.is_dir() && !is_socket(&m)) => {
            Err(Missing::Never(format!("{shown} is no socket")))
        }
        ErrorKind::ConnectionRefused => Err(Missing::Not(format!(
            "nobody listens at {shown}: the daemon that made it has ended; start vnicd"
        ))),
        ErrorKind::PermissionDenied => Err(Missing::Never(format!(
            "{shown}: {refused}; run it as root, or as a member of the socket's group"
        ))),
        _ => Err(Missing::Never(format!("{shown}: {refused}"))),
    }
}

fn is_socket(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    metadata.file_type().is_socket()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn why(missing: Result<(), Missing>) -> String {
        match missing {
            Ok(()) => "somebody listens".into(),
            Err(Missing::Not(why)) => format!("not yet: {why}"),
            Err(Missing::Never(why)) => format!("never: {why}"),
        }
    }

    #[test]
    fn who_listens_is_found_and_not_disturbed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("vf0-rdma.sock");
        assert!(why(look(&path)).starts_with("not yet: there is no"));
        let listener = UnixListener::bind(&path).expect("a socket");
        assert_eq!(why(look(&path)), "somebody listens");
        listener.set_nonblocking(true).expect("a socket");
        assert!(listener.accept().is_err(), "nobody has come");
        drop(listener);
        assert!(why(look(&path)).starts_with("not yet: nobody listens"));
    }

    #[test]
    fn what_is_no_socket_of_ours_is_refused_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("a file");
        assert!(why(look(&file)).starts_with("never: "), "{}", why(look(&file)));
        let ethernet = dir.path().join("vf0-eth.sock");
        let _listener = UnixListener::bind(&ethernet).expect("a socket");
        assert!(why(look(&ethernet)).contains("vf0-rdma.sock"));
    }

    #[test]
    fn adapters_are_sockets_of_a_directory() {
        let options = DeviceOptions {
            adapter: vec!["vf0".into(), "vf1".into()],
            socket_dir: Some("/run/vnic".into()),
            ..DeviceOptions::default()
        };
        let shown: Vec<String> = choose(&options)
            .expect("adapters")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(shown, ["/run/vnic/vf0-rdma.sock", "/run/vnic/vf1-rdma.sock"]);
        let colon = DeviceOptions {
            socket: vec!["/run/a:b.sock".into()],
            ..DeviceOptions::default()
        };
        assert!(choose(&colon).is_err());
    }

    #[test]
    fn patience_ends_with_the_cause() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("vf0-rdma.sock");
        let refused = wait(&[path], Duration::ZERO).expect_err("nobody is there");
        assert!(refused.to_string().contains("vnicctl adapter list"), "{refused}");
    }
}
