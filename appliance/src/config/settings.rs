//! What the daemon is told: complete and checked.

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

/// The address of the metrics where nothing else is said.
pub fn metrics_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9400))
}
