//! Environment of the daemon: systemd's directories, privileges, CPUs. It is read once, so that tests can replace it.

use std::env;
use std::path::{Path, PathBuf};

/// Environment of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// `$RUNTIME_DIRECTORY` of systemd (the first of several).
    pub runtime_directory: Option<PathBuf>,
    /// `$STATE_DIRECTORY` of systemd (the first of several).
    pub state_directory: Option<PathBuf>,
    /// `$XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// Whether the daemon runs as root.
    pub root: bool,
    /// CPUs on which this process may run, ascending.
    pub cpus: Vec<usize>,
    /// Text that identifies the machine.
    pub machine_id: String,
}

impl Environment {
    /// Environment of this process.
    pub fn current() -> Environment {
        let first = |name| {
            env::var_os(name)
                .and_then(|v| env::split_paths(&v).next())
                .filter(|p| p.is_absolute())
        };
        Environment {
            runtime_directory: first("RUNTIME_DIRECTORY"),
            state_directory: first("STATE_DIRECTORY"),
            xdg_runtime_dir: first("XDG_RUNTIME_DIR"),
            root: rustix::process::geteuid().is_root(),
            cpus: allowed_cpus(),
            machine_id: crate::macs::machine_id(),
        }
    }

    /// Default socket directory.
    pub fn socket_dir(&self) -> Result<PathBuf, String> {
        if let Some(dir) = &self.runtime_directory {
            Ok(dir.clone())
        } else if self.root {
            Ok(PathBuf::from("/run/vnic"))
        } else if let Some(dir) = &self.xdg_runtime_dir {
            Ok(dir.join("vnic"))
        } else {
            Err(
                "no directory for sockets: not root, and neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is \
                 set; give --socket-dir or nic.socket_dir"
                    .to_owned(),
            )
        }
    }

    /// Default state directory: the system's for the system's daemon, else one beside the sockets.
    pub fn state_dir(&self, socket_dir: &Path) -> PathBuf {
        if let Some(dir) = &self.state_directory {
            dir.clone()
        } else if self.root && socket_dir == Path::new("/run/vnic") {
            PathBuf::from("/var/lib/vnic")
        } else {
            socket_dir.join("state")
        }
    }

    /// Default data core: the last CPU, because the first ones serve interrupts.
    pub fn data_cores(&self) -> Vec<usize> {
        self.cpus.last().copied().into_iter().collect()
    }
}

/// CPUs on which this process may run.
fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|cpu| set.is_set(*cpu))
            .collect(),
        Err(_) => vec![0],
    }
}
