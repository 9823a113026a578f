//! The daemon's settings: from a TOML file or from the command line, checked in full before anything starts.

mod access;
mod command_line;
mod diagnostics;
mod environment;
mod faults;
mod file;
mod mesh;
mod reader;
mod suggest;
mod teams;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use vnic_backend::{AdapterSpec, FaultSpec, NicConfig, PortSpec};

use crate::access::{Access, TlsFiles};
use crate::check::ControlListen;
use crate::events::Keep;
use crate::macs::MacSource;
use crate::mesh::MeshSpec;
use crate::teams::TeamSpec;

pub use command_line::{Simple, Uplink};
pub(crate) use command_line::{eth_socket, rdma_socket};
pub use diagnostics::Diagnostics;
pub use environment::Environment;
pub use faults::from_text as faults_from_text;
pub use suggest::nearest;

/// Everything the daemon needs to know, complete and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The file they came from.
    pub config_file: Option<PathBuf>,
    /// Settings of the NIC.
    pub nic: NicConfig,
    /// Where adapters' sockets are.
    pub socket_dir: PathBuf,
    /// Where the daemon keeps files.
    pub state_dir: PathBuf,
    /// The control interface.
    pub control: Control,
    /// Who may do what on it.
    pub access: Access,
    /// Where metrics are served; `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// How many events are kept, and how long.
    pub events: Keep,
    /// Adapters to start with.
    pub adapters: Vec<AdapterSpec>,
    /// Uplink ports to start with.
    pub ports: Vec<PortSpec>,
    /// Meshes of those of type `mesh`, by name.
    pub meshes: BTreeMap<String, MeshSpec>,
    /// Teams to start with.
    pub teams: Vec<TeamSpec>,
    /// Fault rules to start with.
    pub faults: Vec<FaultSpec>,
    /// Makes addresses for adapters that were given none.
    pub macs: MacSource,
    /// Damaged state is put aside, and defaults are used.
    pub reset_damaged_state: bool,
}

/// Where and for whom the control interface listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// The Unix socket.
    pub unix: PathBuf,
    /// Its mode.
    pub mode: u32,
    /// Its group, by number; `None`: the daemon's.
    pub group: Option<u32>,
    /// A TCP address; it takes `tls`.
    pub tcp: Option<SocketAddr>,
    /// Certificates for TCP.
    pub tls: Option<TlsFiles>,
}

/// The mode of the control socket: its group may use it, others may not.
pub const CONTROL_MODE: u32 = 0o660;

/// What the command line says over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Where adapters' sockets are.
    pub socket_dir: Option<PathBuf>,
    /// Where the daemon keeps files.
    pub state_dir: Option<PathBuf>,
    /// The CPUs with a poll loop.
    pub data_cores: Option<Vec<usize>>,
    /// Where metrics are served; `Some(None)`: nowhere.
    pub metrics: Option<Option<SocketAddr>>,
    /// Where the control interface listens.
    pub control: Vec<ControlListen>,
    /// Damaged state is put aside, and defaults are used.
    pub reset_damaged_state: bool,
}

impl Settings {
    /// Reads, parses and checks a configuration file.
    pub fn from_file(
        path: &std::path::Path,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Diagnostics::general(path, format!("cannot read the file: {e}")))?;
        file::parse(path, &text, overrides, environment)
    }

    /// Reads a configuration file again for what may change while the daemon runs: who may do what.
    pub fn access_from_file(path: &std::path::Path) -> Result<Access, Diagnostics> {
        let text = std::fs::read_to_string(path)
            .map_err(|e| Diagnostics::general(path, format!("cannot read the file: {e}")))?;
        file::access(path, &text)
    }

    /// As [`Settings::from_file`], with the file's text.
    pub fn from_text(
        path: &std::path::Path,
        text: &str,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, Diagnostics> {
        file::parse(path, text, overrides, environment)
    }

    /// Settings without a file.
    pub fn from_command_line(
        simple: &Simple,
        overrides: &Overrides,
        environment: &Environment,
    ) -> Result<Settings, String> {
        command_line::settings(simple, overrides, environment)
    }
}

/// The address of the metrics where nothing else is said.
fn metrics_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9400))
}
