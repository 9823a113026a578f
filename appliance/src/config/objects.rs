//! What a configuration file can have several of, as its tables say it: ports, teams, adapters, multicast groups and
//! rules of faults.

use std::path::Path;

use toml::Value;
use vnic_backend::fault::{ALWAYS, Action, Opcodes, opcode_name};
use vnic_backend::lag::TeamType;
use vnic_backend::subnet::GroupSpec;
use vnic_backend::{
    AdapterSpec, ApplicationRow, DcbxSpec, FaultSpec, LldpMode, PkeyTable, PortKind, PortSpec,
    RDMA_MEMORY_DEFAULT, SocketAccess, SocketRole, VerbsFaultSpec, VlanMode, VmmLimits,
};

use super::command_line::{eth_socket, rdma_socket};
use super::keys::{Keys, list, number, path, text};
use super::settings::Settings;
use super::subnet_groups;
use super::verbs_faults;
use crate::check::{self, fault as limits};
use crate::mesh::MeshSpec;
use crate::names;
use crate::teams::{TeamSettings, TeamSpec};

/// A port, team, adapter, multicast group or rule of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    /// A port, with its mesh if it has one.
    Port(PortSpec, Option<MeshSpec>),
    /// A team.
    Team(TeamSpec),
    /// An adapter.
    Adapter(AdapterSpec),
    /// A multicast group of the subnet, with its name.
    SubnetGroup(String, GroupSpec),
    /// A fault rule.
    Fault(FaultSpec),
    /// A rule for completions or commands.
    VerbsFault(VerbsFaultSpec),
}

impl Settings {
    /// Ports, teams, adapters, multicast groups and rules of faults, in the order in which they are made.
    pub fn objects(&self) -> Vec<Object> {
        let port = |port: &PortSpec| Object::Port(port.clone(), self.meshes.get(&port.name).cloned());
        let ports = self.ports.iter().map(port);
        let teams = self.teams.iter().cloned().map(Object::Team);
        let adapters = self.adapters.iter().cloned().map(Object::Adapter);
        let groups = self.subnet_groups.iter().cloned();
        let groups = groups.map(|(name, spec)| Object::SubnetGroup(name, spec));
        let faults = self.faults.iter().cloned().map(Object::Fault);
        let verbs_faults = self.verbs_faults.iter().cloned().map(Object::VerbsFault);
        let owners = ports.chain(teams).chain(adapters).chain(groups);
        owners.chain(faults).chain(verbs_faults).collect()
    }
}

impl Object {
    /// Name in its table.
    pub fn name(&self) -> &str {
        match self {
            Object::Port(port, _) => &port.name,
            Object::Team(team) => &team.name,
            Object::Adapter(adapter) => &adapter.name,
            Object::SubnetGroup(name, _) => name,
            Object::Fault(fault) => &fault.name,
            Object::VerbsFault(fault) => &fault.name,
        }
    }

    /// Resource name. Of teams that differ by case alone it is one.
    pub fn resource(&self) -> String {
        match self {
            Object::Port(port, _) => names::of(names::PORTS, &port.name),
            Object::Team(team) => names::of(names::TEAMS, &team.name.to_lowercase()),
            Object::Adapter(adapter) => names::of(names::ADAPTERS, &adapter.name),
            Object::SubnetGroup(name, _) => names::of(names::SUBNET_GROUPS, name),
            Object::Fault(fault) => names::of(names::FAULTS, &fault.name),
            Object::VerbsFault(fault) => names::of(names::VERBS_FAULTS, &fault.name),
        }
    }

    /// Header of its table.
    fn header(&self) -> &'static str {
        match self {
            Object::Port(..) => "[[port]]",
            Object::Team(_) => "[[team]]",
            Object::Adapter(_) => "[[adapter]]",
            Object::SubnetGroup(..) => "[[subnet.group]]",
            Object::Fault(_) => "[[fault]]",
            Object::VerbsFault(_) => "[[verbs_fault]]",
        }
    }

    /// Keys of its table, for a daemon with this directory of sockets.
    pub fn keys(&self, socket_dir: &Path) -> Keys {
        match self {
            Object::Port(spec, mesh) => port(spec, mesh.as_ref()),
            Object::Team(spec) => team(spec),
            Object::Adapter(spec) => adapter(spec, socket_dir),
            Object::SubnetGroup(name, spec) => subnet_groups::keys(name, spec),
            Object::Fault(spec) => fault(spec),
            Object::VerbsFault(spec) => verbs_faults::keys(spec),
        }
    }

    /// Its table, without keys that have their default.
    pub fn table(&self, socket_dir: &Path) -> String {
        format!("{}\n{}", self.header(), self.keys(socket_dir).said().lines())
    }
}

fn vlan(mode: &VlanMode) -> Value {
    let mut table = toml::Table::new();
    match mode {
        VlanMode::Access(id) => {
            table.insert("access".to_owned(), number(*id));
        }
        VlanMode::Trunk { native, allowed } => {
            let trunk = match allowed {
                None => text("all"),
                Some(ids) => list(ids.iter().map(|id| number(*id))),
            };
            table.insert("native".to_owned(), number(*native));
            table.insert("trunk".to_owned(), trunk);
        }
    }
    Value::Table(table)
}

fn adapter(spec: &AdapterSpec, socket_dir: &Path) -> Keys {
    let mut keys = Keys::default();
    let (access, vmm) = (&spec.socket_access, VmmLimits::default());
    let mut macs = spec.macs.iter().map(text);
    let role = |role| match role {
        SocketRole::Listen => "listen",
        SocketRole::Connect => "connect",
    };
    keys.must("name", text(&spec.name));
    keys.optional("mac", macs.next());
    keys.several("macs", macs);
    keys.plain("mtu", number(spec.mtu), number(check::MTU_DEFAULT));
    let pairs = number(check::QUEUE_PAIRS_DEFAULT);
    keys.plain("queue_pairs", number(spec.queue_pairs), pairs);
    keys.plain("vlan", vlan(&spec.vlan), vlan(&VlanMode::default()));
    keys.plain("control_queue", spec.control_queue, false);
    keys.plain("anti_spoofing", spec.anti_spoofing, true);
    keys.several("allowed_addresses", spec.allowed_addresses.iter().map(text));
    keys.optional("data_core", spec.data_core.map(number));
    keys.plain("socket_role", role(spec.socket_role), role(SocketRole::Listen));
    let default = eth_socket(socket_dir, &spec.name);
    keys.plain("socket", path(&spec.eth_socket), path(&default));
    keys.plain("rdma", spec.rdma_socket.is_some(), true);
    if let Some(socket) = &spec.rdma_socket {
        let default = rdma_socket(socket_dir, &spec.name);
        keys.plain("rdma_socket", path(socket), path(&default));
    }
    let memory = number(RDMA_MEMORY_DEFAULT);
    keys.plain("rdma_memory_mib", number(spec.rdma_memory_mib), memory);
    keys.plain("rdma_flows", spec.rdma_flows, true);
    let pkeys = |table: &PkeyTable| list(table.as_slice().iter().map(|key| text(format!("{key:#06x}"))));
    keys.plain("pkeys", pkeys(&spec.pkeys), pkeys(&PkeyTable::default()));
    keys.plain("vmm_regions", number(spec.vmm.regions), number(vmm.regions));
    let descriptors = number(vmm.descriptors);
    keys.plain("vmm_descriptors", number(spec.vmm.descriptors), descriptors);
    keys.optional("wake", spec.wake.as_ref().map(text));
    keys.plain(
        "wake_patterns",
        list(spec.wake_patterns.iter().map(text)),
        list(std::iter::empty()),
    );
    keys.optional("socket_owner", access.owner.map(text));
    keys.optional("socket_group", access.group.map(text));
    let mode = |mode| text(format!("{mode:04o}"));
    keys.plain(
        "socket_mode",
        mode(access.mode),
        mode(SocketAccess::default().mode),
    );
    keys.several("socket_users", access.users.iter().map(text));
    keys
}

fn port(spec: &PortSpec, mesh: Option<&MeshSpec>) -> Keys {
    let mut keys = Keys::default();
    keys.must("name", text(&spec.name));
    keys.must("type", text(spec.kind.name()));
    match (mesh, &spec.kind) {
        (Some(mesh), _) => {
            keys.must("listen", text(mesh.listen));
            keys.several("peers", mesh.peers.iter().map(text));
            keys.must("certificate", path(&mesh.files.certificate));
            keys.must("key", path(&mesh.files.key));
            keys.must("ca", path(&mesh.files.ca));
            keys.optional("crl", mesh.files.crl.as_deref().map(path));
            keys.several("names", mesh.names.iter().map(text));
        }
        (None, kind) => keys.must("ifname", text(kind.ifname())),
    }
    if let PortKind::Tap { queues, .. } = spec.kind {
        keys.plain("queues", number(queues), number(1));
    }
    keys.plain("mtu", number(spec.mtu), number(check::MTU_DEFAULT));
    keys.plain("vlan", vlan(&spec.vlan), vlan(&VlanMode::default()));
    keys.optional("data_core", spec.data_core.map(number));
    keys.optional("speed_mbps", spec.speed_mbps.map(number));
    let storm = &spec.storm;
    keys.optional("storm_broadcast_pps", storm.broadcast_pps.map(number));
    keys.optional("storm_unknown_unicast_pps", storm.unknown_unicast_pps.map(number));
    keys.optional("bridge", spec.bridge.as_ref().map(text));
    keys.plain("lldp", text(spec.lldp), text(LldpMode::default()));
    let (dcbx, plain) = (&spec.dcbx, DcbxSpec::default());
    keys.plain("dcbx", text(dcbx.mode), text(plain.mode));
    let willing = |to| list(check::willing_names(to).into_iter().map(text));
    keys.plain("dcbx_willing", willing(dcbx.willing), willing(plain.willing));
    let rows = dcbx.applications.iter().map(|row| text(ApplicationRow(*row)));
    keys.several("dcbx_applications", rows);
    keys
}

fn team(spec: &TeamSpec) -> Keys {
    let mut keys = Keys::default();
    let (is, plain) = (&spec.settings, TeamSettings::default());
    let (lacp, none) = (is.lacp.unwrap_or_default(), vnic_backend::LacpSpec::default());
    let span = |span| text(format!("{span:?}"));
    keys.must("name", text(&spec.name));
    keys.must("type", text(spec.kind.name().to_lowercase()));
    keys.must("members", list(spec.members.iter().map(text)));
    keys.optional("primary", spec.primary.as_ref().map(text));
    // The first member's is the default.
    let other = |port: &&String| spec.members.first() != Some(*port);
    keys.optional("team_mac_of", spec.mac_of.as_ref().filter(other).map(text));
    if spec.kind == TeamType::Failover {
        keys.plain("no_failback", spec.no_failback, false);
    } else {
        keys.plain("hash", text(is.hash.name()), text(plain.hash.name()));
        let speaks = match is.lacp {
            None => "off",
            Some(lacp) if lacp.active => "active",
            Some(_) => "passive",
        };
        keys.plain("lacp", speaks, "off");
        keys.plain("lacp_slow", !lacp.short_timeout, !none.short_timeout);
        let priority = number(none.system_priority);
        keys.plain("lacp_priority", number(lacp.system_priority), priority);
        keys.plain("lacp_key", number(lacp.key), number(none.key));
    }
    let delay = span(plain.bond.failback_delay);
    keys.plain("failback_delay", span(is.bond.failback_delay), delay);
    keys.plain("quiet", span(is.bond.quiet), span(plain.bond.quiet));
    let patience = is.bond.patience.map_or_else(|| text("never"), span);
    keys.plain("patience", patience, span(plain.patience));
    keys.plain("view_flows", number(is.bond.flows), number(plain.bond.flows));
    keys.plain("vlan_id", number(spec.vlan_id), number(0));
    keys.plain("vlan_prio", number(spec.vlan_prio), number(0));
    keys.plain("vlan", vlan(&is.vlan), vlan(&VlanMode::default()));
    keys
}

fn opcode(opcode: u8) -> Value {
    let name = opcode_name(opcode);
    match limits::opcode_text(&name) {
        Ok(read) if read == opcode => text(name),
        _ => number(opcode),
    }
}

fn fault(spec: &FaultSpec) -> Keys {
    let mut keys = Keys::default();
    let span = |span| text(format!("{span:?}"));
    keys.must("name", text(&spec.name));
    keys.optional("from", spec.from.as_ref().map(text));
    keys.optional("to", spec.to.as_ref().map(text));
    keys.plain("roce", spec.roce, false);
    keys.optional("destination_qp", spec.destination_qp.map(number));
    let opcodes = spec.opcodes.iter().flat_map(Opcodes::iter);
    keys.several("opcodes", opcodes.map(opcode));
    let psn = |r: vnic_backend::fault::PsnRange| match r.first == r.last {
        true => number(r.first),
        false => text(format!("{}-{}", r.first, r.last)),
    };
    keys.optional("psn", spec.psn.map(psn));
    keys.optional("ethertype", spec.ethertype.map(number));
    keys.plain("skip", number(spec.skip), number(0));
    let probability = f64::from(spec.probability) / f64::from(ALWAYS);
    keys.plain("probability", probability, 1.0);
    keys.optional("count", spec.count.map(number));
    keys.optional("seed", spec.seed.map(number));
    let named = |keys: &mut Keys, name: &str| keys.must("action", text(name));
    match spec.action {
        Action::Drop => named(&mut keys, "drop"),
        Action::MarkCe => named(&mut keys, "mark_ce"),
        Action::Delay { by, jitter } => {
            named(&mut keys, "delay");
            keys.must("delay", span(by));
            keys.plain("jitter", span(jitter), span(Default::default()));
        }
        Action::Reorder { by, at_most } => {
            named(&mut keys, "reorder");
            keys.plain("frames", number(by), number(1));
            keys.plain("at_most", span(at_most), span(limits::AT_MOST_DEFAULT));
        }
        Action::Duplicate { copies } => {
            named(&mut keys, "duplicate");
            keys.plain("copies", number(copies), number(1));
        }
        Action::Corrupt { bits, offset } => {
            named(&mut keys, "corrupt");
            keys.plain("bits", number(bits), number(1));
            keys.optional("offset", offset.map(number));
        }
    }
    keys
}
