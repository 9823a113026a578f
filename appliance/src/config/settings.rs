//! Settings of the daemon: complete and checked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use vnic_backend::subnet::GroupSpec;
use vnic_backend::{AdapterSpec, FaultSpec, NicConfig, PortSpec, VerbsFaultSpec};

use super::environment::Environment;
use crate::access::{Access, TlsFiles};
use crate::check::ControlListen;
use crate::events::Keep;
use crate::macs::MacSource;
use crate::mesh::MeshSpec;
use crate::teams::TeamSpec;
use crate::traces::Collector;

/// Settings of the daemon: complete and checked.
// Wide: the parts of the file, each a type of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
// Wide: the tables of the configuration file, each once.
pub struct Settings {
    /// Path of the configuration file, if there is one.
    pub config_file: Option<PathBuf>,
    /// Settings of the NIC.
    pub nic: NicConfig,
    /// Directory of adapters' sockets.
    pub socket_dir: PathBuf,
    /// Directory of the daemon's files.
    pub state_dir: PathBuf,
    /// Addresses of the control interface.
    pub control: Control,
    /// Roles of clients of the control interface.
    pub access: Access,
    /// Address of metrics; `None`: no metrics.
    pub metrics: Option<SocketAddr>,
    /// Limits of the event log.
    pub events: Keep,
    /// Policy of quality of service by path to start with.
    pub policy_file: Option<PathBuf>,
    /// Multicast groups of the subnet to start with, by name.
    pub subnet_groups: Vec<(String, GroupSpec)>,
    /// Adapters to start with.
    pub adapters: Vec<AdapterSpec>,
    /// Uplink ports to start with.
    pub ports: Vec<PortSpec>,
    /// Meshes of ports of type `mesh`, by name of the port.
    pub meshes: BTreeMap<String, MeshSpec>,
    /// Teams to start with.
    pub teams: Vec<TeamSpec>,
    /// Fault rules to start with.
    pub faults: Vec<FaultSpec>,
    /// Rules for completions and commands to start with.
    pub verbs_faults: Vec<VerbsFaultSpec>,
    /// Source of addresses for adapters without one.
    pub macs: MacSource,
    /// What the settings were made with, beside the file.
    pub given: Given,
}

/// Command line and environment, which settings are made with again when the file has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Options of the command line that override the file.
    pub overrides: Overrides,
    /// Environment at the daemon's start.
    pub environment: Environment,
}

/// Addresses and access of the control interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Path of the Unix socket.
    pub unix: PathBuf,
    /// Mode of the Unix socket.
    pub mode: u32,
    /// Group of the Unix socket, by number; `None`: the daemon's.
    pub group: Option<u32>,
    /// TCP address, which needs `tls`.
    pub tcp: Option<SocketAddr>,
    /// Certificates for TCP.
    pub tls: Option<TlsFiles>,
    /// Collector of traces of requests; `None`: there are no traces.
    pub traces: Option<Collector>,
}

/// Mode of the control socket: its group may use it, others may not.
pub const CONTROL_MODE: u32 = 0o660;

/// Options of the command line that override the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Directory of adapters' sockets.
    pub socket_dir: Option<PathBuf>,
    /// Directory of the daemon's files.
    pub state_dir: Option<PathBuf>,
    /// CPUs of the data cores.
    pub data_cores: Option<Vec<usize>>,
    /// Address of metrics; `Some(None)`: no metrics.
    pub metrics: Option<Option<SocketAddr>>,
    /// Addresses of the control interface.
    pub control: Vec<ControlListen>,
    /// Collector of traces; `Some(None)`: no traces.
    pub traces: Option<Option<Collector>>,
    /// Whether damaged state is put aside, so that defaults are used.
    pub reset_damaged_state: bool,
}

/// Default address of metrics.
pub fn metrics_default() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 9400))
}
