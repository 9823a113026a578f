//! The configuration file: every key, what it may be, and what it is when it is not there. The commented
//! example is `deploy/config/vnicd.toml`; a test holds it to this file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeTable;
use vnic_backend::{
    ADAPTERS_MAX, AdapterSpec, MacAddr, NicConfig, PORTS_MAX, PortKind, PortSpec, RDMA_MEMORY_DEFAULT,
    SocketAccess, SocketRole, SwitchConfig, VlanMode, VmmLimits,
};

use super::command_line::{self, IDLE_SPIN_DEFAULT};
use super::diagnostics::{Diagnostics, Sink};
use super::environment::Environment;
use super::faults;
use super::mesh;
use super::reader::{At, Section};
use super::settings::{CONTROL_MODE, Control, Overrides, Settings, metrics_default};
use super::{access, teams};
use crate::access::{Access, group_id, user_id};
use crate::check;
use crate::events::Keep;
use crate::macs::MacSource;
use crate::mesh::MeshSpec;

/// Parses and checks the text of a configuration file.
pub(super) fn parse(
    path: &Path,
    text: &str,
    overrides: &Overrides,
    environment: &Environment,
) -> Result<Settings, Diagnostics> {
    let sink = Sink::new(path, text);
    let tree = tree(text, &sink);
    // The tree of a broken file is a guess: what is missing in it would be reported as wrong.
    if sink.failed() {
        return sink.finish(None);
    }
    let root = Section::root(&tree, &sink);
    let settings = Context {
        sink: &sink,
        overrides,
        environment,
    }
    .settings(path, &root);
    root.finish();
    sink.finish(settings)
}

/// Parses and checks `[access]` in the text of a configuration file, and nothing else.
pub(super) fn access(path: &Path, text: &str) -> Result<Access, Diagnostics> {
    let sink = Sink::new(path, text);
    let tree = tree(text, &sink);
    if sink.failed() {
        return sink.finish(None);
    }
    let access = access::access(&Section::root(&tree, &sink), &sink);
    sink.finish(access)
}

/// A value of the wrong type is noted in the sink and read as if it were not there: the sink refuses the whole
/// in the end, and until then the other keys are checked.
struct Context<'a> {
    sink: &'a Sink<'a>,
    overrides: &'a Overrides,
    environment: &'a Environment,
}

/// The type of port whose other end is the daemon's own.
const MESH: &str = "mesh";

/// `[nic]`, checked.
struct NicSection {
    config: NicConfig,
    socket_dir: PathBuf,
    state_dir: PathBuf,
}

/// Names and addresses that are in use, with the line where.
#[derive(Default)]
struct Taken {
    names: BTreeMap<String, usize>,
    macs: BTreeMap<MacAddr, (String, usize)>,
    sockets: BTreeMap<PathBuf, String>,
    /// Names of ports among them, also of ports that are wrong otherwise.
    ports: Vec<String>,
}

impl<'a> Context<'a> {
    fn settings(&self, path: &Path, root: &Section<'a>) -> Option<Settings> {
        let nic = self.nic(root);
        let socket_dir = nic.as_ref().map(|n| n.socket_dir.clone()).unwrap_or_default();
        let cores = nic
            .as_ref()
            .map(|n| n.config.data_cores.clone())
            .unwrap_or_else(|| self.environment.cpus.clone());
        let control = self.control(root, &socket_dir);
        let access = access::access(root, self.sink);
        let metrics = self.metrics(root);
        let events = self.events(root);

        let mut taken = Taken::default();
        let adapter_sections = root.tables("adapter");
        let port_sections = root.tables("port");
        limit(self.sink, &adapter_sections, ADAPTERS_MAX, "adapters");
        limit(self.sink, &port_sections, PORTS_MAX, "ports");
        let adapters: Vec<_> = adapter_sections
            .into_iter()
            .map(|s| self.adapter(s, &socket_dir, &cores, &mut taken))
            .collect();
        let ports: Vec<_> = port_sections
            .into_iter()
            .map(|s| self.port(s, &cores, &mut taken))
            .collect();
        let teams = teams::tables(root, self.sink, &taken.ports, |section| self.vlan(section));
        let faults = faults::tables(root, self.sink, Some(&taken.names));

        let nic = nic?;
        let macs = MacSource::new(&self.environment.machine_id, &nic.state_dir, &nic.socket_dir);
        let mut adapters: Vec<AdapterSpec> = adapters.into_iter().collect::<Option<_>>()?;
        let mut used: BTreeSet<MacAddr> = taken.macs.into_keys().collect();
        for adapter in &mut adapters {
            if adapter.macs.is_empty() {
                let mac = macs.derive(&adapter.name, &used);
                used.insert(mac);
                adapter.macs.push(mac);
            }
        }
        let ports: Vec<_> = ports.into_iter().collect::<Option<_>>()?;
        let meshes = ports
            .iter()
            .filter_map(|(port, mesh)| Some((port.name.clone(), mesh.clone()?)))
            .collect();
        let ports = ports.into_iter().map(|(port, _)| port).collect();
        Some(Settings {
            config_file: Some(path.to_owned()),
            nic: nic.config,
            socket_dir: nic.socket_dir,
            state_dir: nic.state_dir,
            control: control?,
            access: access?,
            metrics: metrics?,
            events: events?,
            adapters,
            ports,
            meshes,
            teams: teams?,
            faults: faults?,
            macs,
            reset_damaged_state: self.overrides.reset_damaged_state,
        })
    }

    fn duration(
        &self,
        at: Option<At<i64>>,
        default: Duration,
        range: std::ops::RangeInclusive<i64>,
        unit: &str,
        make: fn(u64) -> Duration,
    ) -> Option<Duration> {
        let Some(at) = at else { return Some(default) };
        at.check(self.sink, |v| {
            u64::try_from(v)
                .ok()
                .filter(|_| range.contains(&v))
                .map(make)
                .ok_or_else(|| format!("{v} is out of range: {} to {} {unit}", range.start(), range.end()))
        })
        .map(|at| at.value)
    }

    fn nic(&self, root: &Section<'a>) -> Option<NicSection> {
        let section = root.table("nic");
        let keys = section.as_ref();
        let idle_spin = self.duration(
            keys.and_then(|s| s.integer("idle_spin_us")),
            IDLE_SPIN_DEFAULT,
            0..=1_000_000,
            "microseconds",
            Duration::from_micros,
        );
        let switch = SwitchConfig::default();
        let ageing = self.duration(
            keys.and_then(|s| s.integer("mac_ageing_s")),
            switch.ageing,
            10..=1_000_000,
            "seconds",
            Duration::from_secs,
        );
        let data_cores = self.data_cores(keys);
        let directory = |key| match keys.and_then(|s| s.string(key)) {
            None => Some(None),
            Some(at) => at
                .check(self.sink, |text| {
                    let path = Path::new(text);
                    path.is_absolute()
                        .then(|| path.to_owned())
                        .ok_or_else(|| format!("{text:?} is not an absolute path"))
                })
                .map(|at| Some(at.value)),
        };
        let (socket_dir, state_dir) = (directory("socket_dir"), directory("state_dir"));
        if let Some(section) = section {
            section.finish();
        }
        let (socket_dir, state_dir) = (
            self.overrides.socket_dir.clone().or(socket_dir?),
            self.overrides.state_dir.clone().or(state_dir?),
        );
        let directories =
            command_line::directories(socket_dir.as_deref(), state_dir.as_deref(), self.environment);
        let (socket_dir, state_dir) = match directories {
            Ok(directories) => directories,
            Err(message) => {
                self.sink.error(0..0, "nic.socket_dir", message);
                return None;
            }
        };
        Some(NicSection {
            config: NicConfig {
                data_cores: data_cores?,
                idle_spin: idle_spin?,
                confine: true,
                switch: SwitchConfig {
                    ageing: ageing?,
                    ..switch
                },
            },
            socket_dir,
            state_dir,
        })
    }

    fn data_cores(&self, section: Option<&Section<'a>>) -> Option<Vec<usize>> {
        let given = section.filter(|s| s.has("data_cores")).map(|section| {
            if section.is_string("data_cores") {
                section.string("data_cores")?.check(self.sink, check::cpu_list)
            } else {
                let list = section.integers("data_cores")?;
                let span = list.span.clone();
                let key = list.key.clone();
                let cores: Vec<Option<usize>> = list
                    .value
                    .into_iter()
                    .map(|at| {
                        at.check(self.sink, |v| {
                            usize::try_from(v).map_err(|_| format!("{v} is not the number of a CPU"))
                        })
                        .map(|at| at.value)
                    })
                    .collect();
                let value = cores.into_iter().collect::<Option<Vec<_>>>()?;
                Some(At { value, span, key })
            }
        });
        if let Some(cores) = &self.overrides.data_cores {
            if let Err(message) = check::data_cores(cores, &self.environment.cpus) {
                self.sink.error(0..0, "--data-cores", message);
                return None;
            }
            return Some(cores.clone());
        }
        match given {
            None => Some(self.environment.data_cores()),
            Some(at) => at?
                .check(self.sink, |cores| {
                    check::data_cores(&cores, &self.environment.cpus).map(|()| cores)
                })
                .map(|at| at.value),
        }
    }

    fn control(&self, root: &Section<'a>, socket_dir: &Path) -> Option<Control> {
        let mut listen = Vec::new();
        let (mut mode, mut group) = (Some(CONTROL_MODE), Some(None));
        let (mut span, mut tls) = (0..0, Some(None));
        if let Some(section) = root.table("control") {
            if let Some(at) = section.string_or_strings("listen") {
                span = at.span;
                for one in at.value {
                    listen.push(one.check(self.sink, check::control_listen).map(|at| at.value));
                }
            }
            if let Some(at) = section.string("mode") {
                mode = at.check(self.sink, octal_mode).map(|at| at.value);
            }
            if let Some(at) = section.string("group") {
                group = at.check(self.sink, group_id).map(|at| Some(at.value));
            }
            tls = access::tls(&section, self.sink);
            section.finish();
        }
        let mut listen = listen.into_iter().collect::<Option<Vec<_>>>()?;
        if !self.overrides.control.is_empty() {
            listen.clone_from(&self.overrides.control);
        }
        match command_line::control(&listen, tls?, socket_dir) {
            Ok(control) => Some(Control {
                mode: mode?,
                group: group?,
                ..control
            }),
            // Without a socket directory the path cannot be judged; that was reported already.
            Err(_) if socket_dir.as_os_str().is_empty() => None,
            Err(message) => {
                self.sink.error(span, "control.listen", message);
                None
            }
        }
    }

    fn metrics(&self, root: &Section<'a>) -> Option<Option<std::net::SocketAddr>> {
        let mut listen = Some(Some(metrics_default()));
        if let Some(section) = root.table("metrics") {
            if let Some(at) = section.string("listen") {
                listen = at.check(self.sink, check::metrics_listen).map(|at| at.value);
            }
            section.finish();
        }
        self.overrides.metrics.map_or(listen, Some)
    }

    fn events(&self, root: &Section<'a>) -> Option<Keep> {
        let Some(section) = root.table("events") else {
            return Some(Keep::default());
        };
        let events = self.number(
            section.integer("keep"),
            Keep::default().events,
            check::events_kept,
        );
        let age = self.duration(
            section.integer("days"),
            Keep::default().age,
            1..=3650,
            "days",
            |days| Duration::from_secs(days * 86_400),
        );
        section.finish();
        Some(Keep {
            events: events?,
            age: age?,
        })
    }

    fn name(&self, section: &Section<'a>, taken: &mut Taken) -> Option<String> {
        let at = section.required_string("name")?.check(self.sink, check::name)?;
        let line = self.sink.line(at.span.start);
        if let Some(first) = taken.names.get(&at.value) {
            self.sink.error(
                at.span,
                at.key,
                format!(
                    "the name {} is taken by line {first}; names are unique among adapters and ports",
                    at.value
                ),
            );
            return None;
        }
        taken.names.insert(at.value.clone(), line);
        Some(at.value)
    }

    fn macs(&self, section: &Section<'a>, owner: &str, taken: &mut Taken) -> Option<Vec<MacAddr>> {
        let mut texts: Vec<At<&str>> = section.string("mac").into_iter().collect();
        let mut wrong = false;
        texts.extend(section.strings("macs").into_iter().flat_map(|list| list.value));
        if let Some(extra) = texts.get(check::MACS_MAX) {
            self.sink.error(
                extra.span.clone(),
                extra.key.clone(),
                format!("an adapter has at most {} addresses", check::MACS_MAX),
            );
            wrong = true;
        }
        let mut macs = Vec::new();
        for text in texts {
            let Some(at) = text.check(self.sink, check::mac) else {
                wrong = true;
                continue;
            };
            if let Some((other, line)) = taken.macs.get(&at.value) {
                self.sink.error(
                    at.span,
                    at.key,
                    format!(
                        "{} belongs to adapter {other} (line {line}); each address belongs to one adapter",
                        at.value
                    ),
                );
                wrong = true;
                continue;
            }
            taken
                .macs
                .insert(at.value, (owner.to_owned(), self.sink.line(at.span.start)));
            macs.push(at.value);
        }
        (!wrong).then_some(macs)
    }

    fn number<T>(
        &self,
        at: Option<At<i64>>,
        default: T,
        check: impl FnOnce(i64) -> check::Checked<T>,
    ) -> Option<T> {
        match at {
            None => Some(default),
            Some(at) => at.check(self.sink, check).map(|at| at.value),
        }
    }

    fn vlan(&self, section: &Section<'a>) -> Option<VlanMode> {
        if !section.has("vlan") {
            return Some(VlanMode::default());
        }
        let vlan = section.table("vlan")?;
        let access = vlan
            .integer("access")
            .map(|at| at.check(self.sink, check::vlan_id));
        let has_access = vlan.has("access");
        let native = self.number(vlan.integer("native"), 1, check::vlan_id);
        let mut allowed = Some(None);
        if vlan.is_string("trunk") {
            if let Some(at) = vlan.string("trunk") {
                allowed = at
                    .check(self.sink, |text| {
                        if text == "all" {
                            Ok(None)
                        } else {
                            Err(format!("{text:?}: \"all\" or a list of VLANs is allowed"))
                        }
                    })
                    .map(|at| at.value);
            }
        } else if vlan.has("trunk") {
            allowed = vlan.integers("trunk").and_then(|list| {
                let ids: Vec<Option<u16>> = list
                    .value
                    .into_iter()
                    .map(|at| at.check(self.sink, check::vlan_id).map(|at| at.value))
                    .collect();
                ids.into_iter().collect::<Option<BTreeSet<u16>>>().map(Some)
            });
        }
        if has_access && (vlan.has("trunk") || vlan.has("native")) {
            self.sink.error(
                vlan.span.clone(),
                section.path("vlan"),
                "either access = VLAN, or trunk = [VLAN, …] or \"all\" with native = VLAN is allowed, not both",
            );
            vlan.finish();
            return None;
        }
        vlan.finish();
        if has_access {
            return Some(VlanMode::Access(access??.value));
        }
        Some(VlanMode::Trunk {
            native: native?,
            allowed: allowed?,
        })
    }

    fn core(&self, section: &Section<'a>, cores: &[usize]) -> Option<Option<usize>> {
        match section.integer("data_core") {
            None => Some(None),
            Some(at) => at
                .check(self.sink, |v| check::data_core(v, cores))
                .map(|at| Some(at.value)),
        }
    }

    /// The path of an adapter's socket; `default` where the key is not there.
    fn socket(
        &self,
        section: &Section<'a>,
        key: &'static str,
        default: Option<PathBuf>,
        adapter: &str,
        taken: &mut Taken,
    ) -> Option<PathBuf> {
        let at = match section.string(key) {
            None if section.has(key) => None,
            None => At {
                value: default?,
                span: section.span.clone(),
                key: section.path(key),
            }
            .check(self.sink, |p| {
                // A socket directory that could not be read was reported already.
                if p.parent() == Some(Path::new("")) {
                    Ok(p)
                } else {
                    check::socket_path(&p)
                }
            }),
            Some(at) => at.check(self.sink, |text| check::socket_path(Path::new(text))),
        }?;
        if let Some(other) = taken.sockets.get(&at.value) {
            self.sink.error(
                at.span.clone(),
                at.key.clone(),
                format!("{} is the socket of adapter {other}", at.value.display()),
            );
        } else {
            taken.sockets.insert(at.value.clone(), adapter.to_owned());
        }
        Some(at.value)
    }

    fn adapter(
        &self,
        section: Section<'a>,
        socket_dir: &Path,
        cores: &[usize],
        taken: &mut Taken,
    ) -> Option<AdapterSpec> {
        let name = self.name(&section, taken);
        let shown = name.clone().unwrap_or_else(|| "without a name".to_owned());
        let macs = self.macs(&section, &shown, taken);
        let mtu = self.number(section.integer("mtu"), check::MTU_DEFAULT, check::mtu);
        let queue_pairs = self.number(
            section.integer("queue_pairs"),
            check::QUEUE_PAIRS_DEFAULT,
            check::queue_pairs,
        );
        let rdma_memory_mib = self.number(
            section.integer("rdma_memory_mib"),
            RDMA_MEMORY_DEFAULT,
            check::rdma_memory,
        );
        let regions = self.number(
            section.integer("vmm_regions"),
            VmmLimits::default().regions,
            check::vmm_regions,
        );
        let descriptors = self.number(
            section.integer("vmm_descriptors"),
            VmmLimits::default().descriptors,
            check::vmm_descriptors,
        );
        let vlan = self.vlan(&section);
        let anti_spoofing = section.boolean("anti_spoofing").is_none_or(|at| at.value);
        let allowed_addresses = section
            .strings("allowed_addresses")
            .map_or(Some(Vec::new()), |list| {
                let list = list.check(self.sink, |list| {
                    check::allowed_addresses(list.len()).map(|()| list)
                })?;
                let list = list.value.into_iter();
                let list: Vec<_> = list
                    .map(|at| at.check(self.sink, check::allowed_address))
                    .collect();
                list.into_iter().map(|at| Some(at?.value)).collect()
            });
        let data_core = self.core(&section, cores);
        let socket_role = match section.string("socket_role") {
            None => Some(SocketRole::Listen),
            Some(at) => at
                .check(self.sink, |text| match text {
                    "listen" => Ok(SocketRole::Listen),
                    "connect" => Ok(SocketRole::Connect),
                    _ => Err(format!("{text:?}: \"listen\" or \"connect\" is allowed")),
                })
                .map(|at| at.value),
        };
        let group = match section.string("socket_group") {
            None => Some(None),
            Some(at) => at.check(self.sink, group_id).map(|at| Some(at.value)),
        };
        let users = section.strings("socket_users").map_or(Some(Vec::new()), |list| {
            let users = list.value.into_iter();
            let users: Vec<_> = users.map(|at| at.check(self.sink, user_id)).collect();
            users.into_iter().map(|at| Some(at?.value)).collect()
        });
        let default = |of: fn(&Path, &str) -> PathBuf| name.as_deref().map(|name| of(socket_dir, name));
        let socket = self.socket(
            &section,
            "socket",
            default(command_line::eth_socket),
            &shown,
            taken,
        );
        let has_rdma = section.boolean("rdma").is_none_or(|at| at.value);
        let rdma_socket = if has_rdma {
            let default = default(command_line::rdma_socket);
            self.socket(&section, "rdma_socket", default, &shown, taken)
                .map(Some)
        } else {
            if section.has("rdma_socket") {
                self.sink.error(
                    section.span.clone(),
                    section.path("rdma_socket"),
                    "an adapter with rdma = false has no such socket: leave out one of the two",
                );
            }
            Some(None)
        };
        section.finish();
        Some(AdapterSpec {
            name: name?,
            macs: macs?,
            mtu: mtu?,
            queue_pairs: queue_pairs?,
            vlan: vlan?,
            anti_spoofing,
            allowed_addresses: allowed_addresses?,
            data_core: data_core?,
            eth_socket: socket?,
            rdma_socket: rdma_socket?,
            socket_role: socket_role?,
            socket_access: SocketAccess {
                group: group?,
                users: users?,
            },
            rdma_memory_mib: rdma_memory_mib?,
            vmm: VmmLimits {
                regions: regions?,
                descriptors: descriptors?,
            },
        })
    }

    fn port(
        &self,
        section: Section<'a>,
        cores: &[usize],
        taken: &mut Taken,
    ) -> Option<(PortSpec, Option<MeshSpec>)> {
        let name = self.name(&section, taken);
        taken.ports.extend(name.clone());
        let kind = section.required_string("type").and_then(|at| {
            at.check(self.sink, |text| match PortKind::new(text, String::new()) {
                Some(_) => Ok(text.to_owned()),
                None if text == MESH => Ok(text.to_owned()),
                None => {
                    let names = PortKind::NAMES.map(|name| format!("{name:?}")).join(", ");
                    Err(format!("{text:?}; allowed are {names}, {MESH:?}"))
                }
            })
        });
        let tap = kind.as_ref().is_none_or(|kind| kind.value == "tap");
        let (kind, mesh) = match kind.as_ref().map(|at| at.value.as_str()) {
            Some(MESH) => {
                let mesh = mesh::mesh(&section, self.sink);
                let label = mesh.as_ref().map(|m| m.listen.to_string());
                (label.map(|label| PortKind::Mesh { label }), mesh)
            }
            kind => {
                let ifname = section
                    .required_string("ifname")
                    .and_then(|at| at.check(self.sink, check::ifname));
                (
                    kind.zip(ifname)
                        .and_then(|(kind, at)| PortKind::new(kind, at.value)),
                    None,
                )
            }
        };
        let mtu = self.number(section.integer("mtu"), check::MTU_DEFAULT, check::mtu);
        let vlan = self.vlan(&section);
        let data_core = self.core(&section, cores);
        let speed = self.number(section.integer("speed_mbps"), None, |v| check::speed(v).map(Some));
        let queues = self.number(section.integer("queues"), 1, |v| match tap {
            true => check::tap_queues(v),
            false => Err("only a port of type \"tap\" has queues".to_owned()),
        });
        section.finish();
        let mut kind = kind?;
        if let PortKind::Tap { queues: of, .. } = &mut kind {
            *of = queues?;
        }
        let port = PortSpec {
            name: name?,
            kind,
            mtu: mtu?,
            vlan: vlan?,
            data_core: data_core?,
            speed_mbps: speed?,
        };
        Some((port, mesh))
    }
}

/// Notes that there are more tables of a kind than may be.
pub(super) fn limit(sink: &Sink<'_>, sections: &[Section<'_>], most: usize, what: &str) {
    if let Some(first_too_many) = sections.get(most) {
        sink.error(
            first_too_many.span.clone(),
            first_too_many.own_path(),
            format!("at most {most} {what} are allowed"),
        );
    }
}

/// Parses a text; what is no TOML is noted.
pub(super) fn tree<'t>(text: &'t str, sink: &Sink<'_>) -> Spanned<DeTable<'t>> {
    let (tree, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        sink.error(error.span().unwrap_or(0..0), "", error.message().to_owned());
    }
    tree
}

fn octal_mode(text: &str) -> check::Checked<u32> {
    u32::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o777)
        .ok_or_else(|| format!("{text:?} is not a mode: three or four octal digits such as \"0660\""))
}
