//! Environment of programs.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use vnic_verbs::sysfs::NAMES_VARIABLE;
use vnic_verbs::{Device, DeviceAddress, PCI_VARIABLE, SOCKET_VARIABLE};

use crate::options::LibraryOptions;
use crate::{Refusal, devices, drop_in};

/// Newer UCX asks the kernel for routes to a peer's GID, which knows no network of an adapter in a process of the host.
pub const UCX_REACHES: &str = "UCX_IB_ROCE_REACHABILITY_MODE";

/// Variables to set, and sockets that must be there before.
#[derive(Debug, Default)]
pub struct Environment {
    /// Names and values; `None` unsets.
    pub variables: Vec<(&'static str, Option<OsString>)>,
    /// Sockets among the devices.
    pub sockets: Vec<PathBuf>,
}

impl Environment {
    /// An environment with our library before all others. In a program's own (`one_program`) it is also found under the real one's
    /// name, if there is a place for that, and the machine has no devices of its own, whose providers look for the real one by it; for
    /// a whole shell only if that is asked for.
    pub fn new(library: &Path, options: &LibraryOptions, one_program: bool) -> Result<Environment, Refusal> {
        let mut variables = Vec::new();
        let mut first = library.to_owned();
        let dir = match (options.drop_in, one_program) {
            (true, _) => Some(drop_in::private(library)?),
            (false, true) if !has_devices() => drop_in::private(library).ok(),
            (false, _) => None,
        };
        if let Some(dir) = dir {
            variables.push((
                "LD_LIBRARY_PATH",
                Some(before(dir.as_os_str(), std::env::var_os("LD_LIBRARY_PATH"))),
            ));
            // The same file by both ways, so that it is loaded once.
            first = dir.join(drop_in::REAL_NAME);
        }
        variables.push((
            "LD_PRELOAD",
            Some(before(first.as_os_str(), std::env::var_os("LD_PRELOAD"))),
        ));
        if options.debug {
            variables.push(("VNIC_IBVERBS_DEBUG", Some("1".into())));
        }
        Ok(Environment {
            variables,
            sockets: Vec::new(),
        })
    }

    /// Adds these devices; without any, the library finds them.
    pub fn devices(&mut self, chosen: &[DeviceAddress]) -> Result<(), Refusal> {
        let found = if chosen.is_empty() {
            Device::list().map_err(|e| Refusal::new(e.to_string()))?
        } else {
            chosen.to_vec()
        };
        if found.is_empty() {
            return Err(devices::no_device());
        }
        let mut functions = Vec::new();
        for address in found {
            match address {
                DeviceAddress::Socket(path) => self.sockets.push(path),
                DeviceAddress::Pci(address) => functions.push(address),
            }
        }
        if !self.sockets.is_empty() && std::env::var_os(UCX_REACHES).is_none() {
            self.variables.push((UCX_REACHES, Some("all".into())));
        }
        if !chosen.is_empty() {
            let sockets: Vec<&OsStr> = self.sockets.iter().map(|s| s.as_os_str()).collect();
            let sockets = sockets.join(OsStr::new(":"));
            self.variables
                .push((SOCKET_VARIABLE, (!sockets.is_empty()).then_some(sockets)));
            let functions = functions.join(",");
            self.variables
                .push((PCI_VARIABLE, (!functions.is_empty()).then(|| functions.into())));
        }
        Ok(())
    }

    /// Names the devices.
    pub fn names(&mut self, names: &[String]) {
        if !names.is_empty() {
            self.variables
                .push((NAMES_VARIABLE, Some(names.join(",").into())));
        }
    }

    /// The variables as lines of a shell.
    pub fn shell(&self) -> String {
        let mut lines = String::new();
        for (name, value) in &self.variables {
            let _ = match value {
                Some(value) => writeln!(lines, "export {name}={}", quoted(value)),
                None => writeln!(lines, "unset {name}"),
            };
        }
        lines
    }
}

/// Whether the kernel has RDMA devices.
fn has_devices() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband");
    devices.is_ok_and(|mut devices| devices.next().is_some())
}

/// A list of the loader with `one` at its front, once, however often this is called.
fn before(one: &OsStr, list: Option<OsString>) -> OsString {
    let list = list.unwrap_or_default();
    let rest: Vec<&OsStr> = list
        .as_bytes()
        .split(|b| *b == b':' || *b == b' ')
        .filter(|part| !part.is_empty() && *part != one.as_bytes())
        .map(OsStr::from_bytes)
        .collect();
    let mut all = vec![one];
    all.extend(rest);
    all.join(OsStr::new(":"))
}

/// A word for a shell, whatever is in it.
fn quoted(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,=+@".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_stays_behind_it() {
        let list = |old: Option<&str>| before(OsStr::new("/lib/a.so"), old.map(OsString::from));
        assert_eq!(list(None), "/lib/a.so");
        assert_eq!(list(Some("")), "/lib/a.so");
        assert_eq!(list(Some("/lib/b.so")), "/lib/a.so:/lib/b.so");
        assert_eq!(list(Some("/lib/b.so /lib/a.so:c.so")), "/lib/a.so:/lib/b.so:c.so");
    }

    #[test]
    fn a_shell_gets_its_words_whole() {
        assert_eq!(
            quoted(OsStr::new("/run/vnic/vf0-rdma.sock")),
            "/run/vnic/vf0-rdma.sock"
        );
        assert_eq!(quoted(OsStr::new("/a b")), "'/a b'");
        assert_eq!(quoted(OsStr::new("it's $(x)")), r"'it'\''s $(x)'");
        let environment = Environment {
            variables: vec![("A", Some("1".into())), ("B", None)],
            sockets: Vec::new(),
        };
        assert_eq!(environment.shell(), "export A=1\nunset B\n");
    }

    #[test]
    fn devices_are_named_in_their_variables() {
        let mut environment = Environment::default();
        environment
            .devices(&[
                DeviceAddress::Socket("/run/a.sock".into()),
                DeviceAddress::Socket("/run/b.sock".into()),
            ])
            .expect("devices");
        assert_eq!(
            environment.shell(),
            "export UCX_IB_ROCE_REACHABILITY_MODE=all\nexport VNIC_SOCKET=/run/a.sock:/run/b.sock\nunset VNIC_PCI\n"
        );
        let mut environment = Environment::default();
        environment
            .devices(&[DeviceAddress::Pci("0000:00:04.0".into())])
            .expect("devices");
        assert_eq!(
            environment.shell(),
            "unset VNIC_SOCKET\nexport VNIC_PCI=0000:00:04.0\n"
        );
    }
}
