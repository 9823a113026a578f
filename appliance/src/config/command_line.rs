//! Settings without a configuration file: adapters `vf0…` with defaults.

use std::path::{Path, PathBuf, absolute};
use std::time::Duration;

use vnic_backend::{
    ADAPTERS_MAX, AdapterSpec, NicConfig, PORTS_MAX, PkeyTable, PortKind, PortSpec, SocketRole, SwitchConfig,
    VlanMode,
};

use super::environment::Environment;
use super::settings::{CONTROL_MODE, Control, Given, Overrides, Settings, metrics_default};
use crate::access::{Access, TlsFiles};
use crate::check::{self, ControlListen};
use crate::events::Keep;
use crate::macs::MacSource;

/// Default time for which a poll loop spins without work.
pub const IDLE_SPIN_DEFAULT: Duration = Duration::from_micros(50);

/// Settings of the command line without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// Number of adapters `vf0`, `vf1`, …
    pub adapters: usize,
    /// Queue pairs of each adapter.
    pub queue_pairs: u16,
    /// Uplink ports over TAP devices.
    pub taps: Vec<Uplink>,
    /// Uplink ports over network devices of the host.
    pub packets: Vec<Uplink>,
    /// Uplink ports over AF_XDP sockets.
    pub xdps: Vec<Uplink>,
}

/// An uplink port over a device, `PORTNAME=IFNAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// The port's name.
    pub port: String,
    /// The network interface.
    pub ifname: String,
}

impl std::str::FromStr for Uplink {
    type Err = String;

    fn from_str(text: &str) -> Result<Uplink, String> {
        let (port, ifname) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not of the form PORTNAME=IFNAME"))?;
        Ok(Uplink {
            port: check::name(port)?,
            ifname: check::ifname(ifname)?,
        })
    }
}

/// Absolute paths of the socket directory and the state directory.
pub(super) fn directories(
    socket_dir: Option<&Path>,
    state_dir: Option<&Path>,
    environment: &Environment,
) -> Result<(PathBuf, PathBuf), String> {
    let full = |p: &Path| absolute(p).map_err(|e| format!("{}: {e}", p.display()));
    let socket_dir = match socket_dir {
        Some(dir) => full(dir)?,
        None => environment.socket_dir()?,
    };
    let state_dir = match state_dir {
        Some(dir) => full(dir)?,
        None => environment.state_dir(&socket_dir),
    };
    Ok((socket_dir, state_dir))
}

/// Settings of the control interface: a Unix socket, and TCP on request.
pub(super) fn control(
    listen: &[ControlListen],
    tls: Option<TlsFiles>,
    socket_dir: &Path,
) -> Result<Control, String> {
    let mut control = Control {
        unix: socket_dir.join("control.sock"),
        mode: CONTROL_MODE,
        group: None,
        tcp: None,
        tls,
        traces: None,
    };
    let (mut unix_seen, mut tcp_seen) = (false, false);
    for one in listen {
        let twice = match one {
            ControlListen::Unix(path) => {
                control.unix = path.clone();
                std::mem::replace(&mut unix_seen, true)
            }
            ControlListen::Tcp(addr) => {
                control.tcp = Some(*addr);
                std::mem::replace(&mut tcp_seen, true)
            }
        };
        if twice {
            return Err("at most one Unix socket and one TCP address are allowed".to_owned());
        }
    }
    if let (Some(addr), None) = (control.tcp, &control.tls) {
        return Err(format!(
            "tcp:{addr} takes mutual TLS: name certificate, key and client_ca in [control.tls] of the configuration \
             file, and the clients in access.certificates; or use the Unix socket, over ssh -L from another machine"
        ));
    }
    check::socket_path(&control.unix)?;
    Ok(control)
}

/// Default path of an adapter's socket.
pub(crate) fn eth_socket(socket_dir: &Path, adapter: &str) -> PathBuf {
    socket_dir.join(format!("{adapter}-eth.sock"))
}

/// Default path of the socket of an adapter's RDMA function.
pub(crate) fn rdma_socket(socket_dir: &Path, adapter: &str) -> PathBuf {
    socket_dir.join(format!("{adapter}-rdma.sock"))
}

/// Settings without a configuration file.
pub(super) fn settings(
    simple: &Simple,
    overrides: &Overrides,
    environment: &Environment,
) -> Result<Settings, String> {
    let (socket_dir, state_dir) = directories(
        overrides.socket_dir.as_deref(),
        overrides.state_dir.as_deref(),
        environment,
    )?;
    let control = control(&overrides.control, None, &socket_dir).map_err(|e| format!("--control: {e}"))?;
    let control = Control {
        traces: overrides.traces.clone().flatten(),
        ..control
    };
    let data_cores = overrides
        .data_cores
        .clone()
        .unwrap_or_else(|| environment.data_cores());
    check::data_cores(&data_cores, &environment.cpus).map_err(|e| format!("--data-cores: {e}"))?;
    if simple.adapters > ADAPTERS_MAX {
        return Err(format!(
            "--adapters: {} is out of range: 0 to {ADAPTERS_MAX}",
            simple.adapters
        ));
    }
    if simple.taps.len() + simple.packets.len() + simple.xdps.len() > PORTS_MAX {
        return Err(format!(
            "--tap, --packet, --xdp: at most {PORTS_MAX} ports are allowed"
        ));
    }

    let macs = MacSource::new(&environment.machine_id, &state_dir, &socket_dir);
    let mut taken = std::collections::BTreeSet::new();
    let mut adapters = Vec::new();
    for k in 0..simple.adapters {
        let name = format!("vf{k}");
        let mac = macs.derive(&name, &taken);
        taken.insert(mac);
        adapters.push(AdapterSpec {
            macs: vec![mac],
            mtu: check::MTU_DEFAULT,
            queue_pairs: simple.queue_pairs,
            vlan: VlanMode::default(),
            control_queue: false,
            anti_spoofing: true,
            data_core: None,
            eth_socket: check::socket_path(&eth_socket(&socket_dir, &name))
                .map_err(|e| format!("--socket-dir: {e}"))?,
            rdma_socket: Some(
                check::socket_path(&rdma_socket(&socket_dir, &name))
                    .map_err(|e| format!("--socket-dir: {e}"))?,
            ),
            socket_role: SocketRole::Listen,
            allowed_addresses: Vec::new(),
            socket_access: Default::default(),
            rdma_memory_mib: vnic_backend::RDMA_MEMORY_DEFAULT,
            rdma_flows: true,
            pkeys: PkeyTable::default(),
            wake: None,
            wake_patterns: Vec::new(),
            moving: None,
            vmm: Default::default(),
            name,
        });
    }

    let mut ports: Vec<PortSpec> = Vec::new();
    let taps = simple.taps.iter().map(|uplink| ("tap", uplink));
    let packets = simple.packets.iter().map(|uplink| ("packet", uplink));
    let xdps = simple.xdps.iter().map(|uplink| ("xdp", uplink));
    for (kind, uplink) in taps.chain(packets).chain(xdps) {
        if adapters.iter().any(|a| a.name == uplink.port) || ports.iter().any(|p| p.name == uplink.port) {
            return Err(format!("--{kind}: the name {} is taken", uplink.port));
        }
        if let Some(other) = ports.iter().find(|p| p.kind.ifname() == uplink.ifname) {
            return Err(format!(
                "--{kind}: port {} has the network device {}: a device is one port",
                other.name, uplink.ifname
            ));
        }
        let Some(kind) = PortKind::new(kind, uplink.ifname.clone()) else {
            continue;
        };
        ports.push(PortSpec {
            mtu: check::MTU_DEFAULT,
            ..PortSpec::new(uplink.port.clone(), kind)
        });
    }

    Ok(Settings {
        config_file: None,
        nic: NicConfig {
            data_cores,
            idle_spin: IDLE_SPIN_DEFAULT,
            confine: true,
            switch: SwitchConfig::default(),
        },
        socket_dir,
        state_dir,
        control,
        access: Access::default(),
        metrics: overrides.metrics.unwrap_or(Some(metrics_default())),
        events: Keep::default(),
        policy_file: None,
        subnet_groups: Vec::new(),
        adapters,
        ports,
        meshes: std::collections::BTreeMap::new(),
        teams: Vec::new(),
        faults: Vec::new(),
        verbs_faults: Vec::new(),
        macs,
        given: Given {
            overrides: overrides.clone(),
            environment: environment.clone(),
        },
    })
}
