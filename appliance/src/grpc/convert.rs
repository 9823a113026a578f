//! Between the types of the NIC and the messages of the control interface.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use vnic_backend::counters::Scope;
use vnic_backend::settings::Burst;
use vnic_backend::{
    AdapterSpec, AdapterStatus, AttachState, Budget, BurstStatus, DroplessStatus, GidKind, GidRow,
    GidSetting, GidSource, PortKind, PortSpec, PortStatus, RDMA_MEMORY_DEFAULT, RdmaStatus, ResourceRow,
    Sample, SocketAccess, SocketRole, VlanMode, VmmLimits, feature,
};
use vnic_control::v1;

use super::errors::Violations;
use super::mesh;
use crate::check;
use crate::config::{eth_socket, rdma_socket};
use crate::daemon::Context;
use crate::names;

/// A point in time.
pub fn timestamp(time: SystemTime) -> prost_types::Timestamp {
    time.into()
}

/// A span of time; one that is too long to be said is the longest that can be.
pub fn duration(d: Duration) -> prost_types::Duration {
    d.try_into().unwrap_or(prost_types::Duration {
        seconds: 315_576_000_000,
        nanos: 0,
    })
}

/// VLAN membership.
pub fn vlan(mode: &VlanMode) -> v1::Vlan {
    let mode = match mode {
        VlanMode::Access(vlan) => v1::vlan::Mode::Access(v1::AccessVlan {
            vlan: u32::from(*vlan),
        }),
        VlanMode::Trunk { native, allowed } => v1::vlan::Mode::Trunk(v1::TrunkVlan {
            native: u32::from(*native),
            allowed: allowed.as_ref().map(|set| v1::VlanSet {
                vlans: set.iter().map(|v| u32::from(*v)).collect(),
            }),
        }),
    };
    v1::Vlan { mode: Some(mode) }
}

/// VLAN membership of a request; `field` is its path.
pub fn vlan_mode(vlan: Option<&v1::Vlan>, field: &str, wrong: &mut Violations) -> Option<VlanMode> {
    match vlan.and_then(|v| v.mode.as_ref()) {
        None => Some(VlanMode::default()),
        Some(v1::vlan::Mode::Access(access)) => wrong
            .check(
                format!("{field}.access.vlan"),
                check::vlan_id(i64::from(access.vlan)),
            )
            .map(VlanMode::Access),
        Some(v1::vlan::Mode::Trunk(trunk)) => {
            let native = match trunk.native {
                0 => Some(default_native_vlan()),
                v => wrong.check(format!("{field}.trunk.native"), check::vlan_id(i64::from(v))),
            };
            let allowed = match &trunk.allowed {
                None => Some(None),
                Some(set) => {
                    let checked: Vec<Option<u16>> = set
                        .vlans
                        .iter()
                        .enumerate()
                        .map(|(i, v)| {
                            wrong.check(
                                format!("{field}.trunk.allowed.vlans[{i}]"),
                                check::vlan_id(i64::from(*v)),
                            )
                        })
                        .collect();
                    checked.into_iter().collect::<Option<BTreeSet<u16>>>().map(Some)
                }
            };
            Some(VlanMode::Trunk {
                native: native?,
                allowed: allowed?,
            })
        }
    }
}

/// The native VLAN where none is given.
fn default_native_vlan() -> u16 {
    match VlanMode::default() {
        VlanMode::Trunk { native, .. } => native,
        VlanMode::Access(vlan) => vlan,
    }
}

fn lifetime(context: &Context, name: &str) -> i32 {
    let lifetime = if context.is_configured(name) {
        v1::Lifetime::Configured
    } else if context.is_stored(name) {
        v1::Lifetime::Stored
    } else {
        v1::Lifetime::UntilDaemonEnds
    };
    lifetime.into()
}

fn attach_state(state: AttachState) -> v1::adapter::State {
    match state {
        AttachState::Detached => v1::adapter::State::Detached,
        AttachState::Attached => v1::adapter::State::Attached,
        AttachState::Up => v1::adapter::State::Up,
        AttachState::Failed => v1::adapter::State::Failed,
    }
}

/// An adapter, without its traffic.
pub fn adapter(context: &Context, status: &AdapterStatus) -> v1::Adapter {
    let spec = &status.spec;
    let role = match spec.socket_role {
        SocketRole::Listen => v1::adapter::SocketRole::Listen,
        SocketRole::Connect => v1::adapter::SocketRole::Connect,
    };
    v1::Adapter {
        name: names::of(names::ADAPTERS, &spec.name),
        macs: spec.macs.iter().map(ToString::to_string).collect(),
        additional_macs: status.settings.macs.iter().map(ToString::to_string).collect(),
        mtu: u32::from(spec.mtu),
        queue_pairs: u32::from(spec.queue_pairs),
        vlan: Some(vlan(&spec.vlan)),
        anti_spoofing: Some(spec.anti_spoofing),
        allowed_addresses: spec.allowed_addresses.iter().map(ToString::to_string).collect(),
        data_core: spec.data_core.and_then(|c| u32::try_from(c).ok()),
        socket_role: role.into(),
        socket_group: spec.socket_access.group,
        socket_users: spec.socket_access.users.clone(),
        rdma_memory_mib: spec.rdma_memory_mib,
        vmm_regions: spec.vmm.regions,
        vmm_descriptors: spec.vmm.descriptors,
        eth_socket: spec.eth_socket.display().to_string(),
        rdma_enabled: Some(spec.rdma_socket.is_some()),
        rdma_socket: spec
            .rdma_socket
            .as_ref()
            .map(|p| p.display().to_string())
            .unwrap_or_default(),
        state: attach_state(status.state).into(),
        state_time: Some(timestamp(status.since)),
        features: status.features,
        feature_names: feature::names(status.features).map(str::to_owned).collect(),
        queue_pairs_enabled: u32::from(status.queue_pairs_enabled),
        memory_bytes: status.memory_bytes,
        switch_port: u32::from(status.port.0),
        lifetime: lifetime(context, &spec.name),
        traffic: None,
        rdma: None,
        dropless: Some(dropless(&status.dropless)),
        reserve: Some(reserve(&status.burst)),
        regions: Some(budget(status.regions)),
        descriptors: Some(budget(status.descriptors)),
    }
}

fn budget(Budget { used, limit }: Budget) -> v1::Budget {
    v1::Budget { used, limit }
}

fn dropless(status: &DroplessStatus) -> v1::DroplessMode {
    v1::DroplessMode {
        on: status.on,
        timeout: u32::from(status.timeout),
        entries: status.entries,
        exits: status.exits,
        timeouts: status.timeouts,
        waiting: status.waiting,
    }
}

fn reserve(status: &BurstStatus) -> v1::BurstReserve {
    v1::BurstReserve {
        on: status.mode != Burst::Off,
        limit: status.reserve,
        frames: status.frames,
        frames_max: status.frames_max,
        bytes: status.bytes,
        bytes_max: status.bytes_max,
    }
}

/// The RDMA function of an adapter.
pub fn rdma_function(adapter: &str, status: &RdmaStatus) -> v1::RdmaFunction {
    let state = match status.state {
        AttachState::Detached => v1::rdma_function::State::Detached,
        AttachState::Attached => v1::rdma_function::State::Attached,
        AttachState::Up => v1::rdma_function::State::Up,
        AttachState::Failed => v1::rdma_function::State::Failed,
    };
    v1::RdmaFunction {
        socket: status.socket.display().to_string(),
        state: state.into(),
        state_time: Some(timestamp(status.since)),
        memory_bytes: status.memory_bytes,
        daemon_memory: Some(budget(status.daemon_memory)),
        off: status.off.unwrap_or_default().to_owned(),
        gids: status.gids.iter().map(|row| gid(adapter, row)).collect(),
        resources: status
            .resources
            .iter()
            .map(|row| rdma_resource(adapter, row))
            .collect(),
    }
}

/// An entry of the GID table of an adapter.
pub fn gid(adapter: &str, row: &GidRow) -> v1::Gid {
    let version = match row.kind {
        GidKind::RoceV1 => v1::gid::Version::RoceV1,
        GidKind::RoceV2 => v1::gid::Version::RoceV2,
    };
    let source = match row.source {
        GidSource::Mac => v1::gid::Source::Mac,
        GidSource::Arp => v1::gid::Source::Arp,
        GidSource::Nd => v1::gid::Source::Nd,
        GidSource::Dhcp => v1::gid::Source::Dhcp,
        GidSource::Operator => v1::gid::Source::Operator,
        GidSource::Driver => v1::gid::Source::Driver,
    };
    let address = Ipv6Addr::from(row.gid);
    let groups = address.segments().map(|group| format!("{group:04x}"));
    v1::Gid {
        name: names::gid(adapter, row.index),
        gid: groups.join(":"),
        version: version.into(),
        vlan: row.vlan.map_or(0, u32::from),
        index: u32::from(row.index),
        ipv4: address
            .to_ipv4_mapped()
            .map(|a| a.to_string())
            .unwrap_or_default(),
        mac: row.mac.to_string(),
        source: source.into(),
    }
}

/// How many objects of a type an adapter has.
pub fn rdma_resource(adapter: &str, row: &ResourceRow) -> v1::RdmaResource {
    v1::RdmaResource {
        adapter: names::of(names::ADAPTERS, adapter),
        r#type: row.name.to_owned(),
        used: row.used,
        limit: row.limit,
    }
}

/// What a request puts into a GID table.
pub fn gid_setting(gid: &v1::Gid, wrong: &mut Violations) -> Option<GidSetting> {
    let address = match gid.gid.as_str() {
        "" => {
            wrong.add(
                "gid.gid",
                "required: an IPv6 address such as 2001:db8::1, or an IPv4 address",
            );
            None
        }
        text => wrong.check("gid.gid", check::gid(text)),
    };
    let kind = match v1::gid::Version::try_from(gid.version) {
        Ok(v1::gid::Version::Unspecified | v1::gid::Version::RoceV2) => Some(GidKind::RoceV2),
        Ok(v1::gid::Version::RoceV1) => Some(GidKind::RoceV1),
        Err(_) => {
            wrong.add(
                "gid.version",
                format!("{} is unknown: VERSION_ROCE_V1 or VERSION_ROCE_V2", gid.version),
            );
            None
        }
    };
    let vlan = match gid.vlan {
        0 => Some(None),
        vlan => wrong.check("gid.vlan", check::vlan_id(i64::from(vlan))).map(Some),
    };
    Some(GidSetting {
        gid: address?,
        kind: kind?,
        vlan: vlan?,
    })
}

/// A port, without its traffic.
pub fn port(context: &Context, status: &PortStatus) -> v1::Port {
    let spec = &status.spec;
    let ifname = spec.kind.ifname().to_owned();
    v1::Port {
        name: names::of(names::PORTS, &spec.name),
        uplink: Some(match &spec.kind {
            PortKind::Tap { queues, .. } => v1::port::Uplink::Tap(v1::TapUplink {
                ifname,
                queues: u32::from(*queues),
            }),
            PortKind::Packet { .. } => v1::port::Uplink::Packet(v1::PacketUplink { ifname }),
            PortKind::Xdp { .. } => v1::port::Uplink::Xdp(v1::XdpUplink { ifname }),
            PortKind::Mesh { .. } => v1::port::Uplink::Mesh(mesh::mesh(context.meshes.status(&spec.name))),
        }),
        mtu: u32::from(spec.mtu),
        vlan: Some(vlan(&spec.vlan)),
        data_core: spec.data_core.and_then(|c| u32::try_from(c).ok()),
        speed_mbps: spec.speed_mbps,
        up: status.up,
        switch_port: u32::from(status.port.0),
        lifetime: lifetime(context, &spec.name),
        traffic: None,
        problem: status.problem.clone().unwrap_or_default(),
        mode: status.mode.clone(),
        device: status.device.as_ref().map(|d| v1::PortDevice {
            index: d.index,
            mtu: d.mtu,
            speed_mbps: d.speed_mbps,
            statistics: Vec::new(),
        }),
    }
}

/// What is counted at the device of a port.
pub fn port_statistics(status: &PortStatus) -> Vec<v1::PortStatistic> {
    let all = status.device.iter().flat_map(|d| &d.statistics);
    all.map(|(name, value)| v1::PortStatistic {
        name: name.clone(),
        value: *value,
    })
    .collect()
}

fn mtu(value: u32, field: &str, wrong: &mut Violations) -> Option<u16> {
    match value {
        0 => Some(check::MTU_DEFAULT),
        v => wrong.check(field, check::mtu(i64::from(v))),
    }
}

fn data_core(
    context: &Context,
    value: Option<u32>,
    field: &str,
    wrong: &mut Violations,
) -> Option<Option<usize>> {
    match value {
        None => Some(None),
        Some(core) => wrong
            .check(
                field,
                check::data_core(i64::from(core), &context.settings.nic.data_cores),
            )
            .map(Some),
    }
}

/// The path of a socket of adapter `id`; `default` makes one where none is given.
fn socket(
    context: &Context,
    id: &str,
    field: &str,
    path: &str,
    default: fn(&Path, &str) -> PathBuf,
    others: &[AdapterStatus],
    wrong: &mut Violations,
) -> Option<PathBuf> {
    let path = if path.is_empty() {
        // What is wrong with the name is told where names are checked.
        check::name(id).ok()?;
        wrong.check(
            "adapter_id",
            check::socket_path(&default(&context.settings.socket_dir, id)),
        )
    } else {
        wrong.check(format!("adapter.{field}"), check::socket_path(path.as_ref()))
    }?;
    let uses = |a: &&AdapterStatus| a.spec.eth_socket == path || a.spec.rdma_socket.as_ref() == Some(&path);
    // One with the same name is refused for that.
    if let Some(other) = others.iter().filter(|a| a.spec.name != id).find(uses) {
        wrong.add(
            format!("adapter.{field}"),
            format!("{} is the socket of adapter {}", path.display(), other.spec.name),
        );
    }
    Some(path)
}

/// What an adapter is made from. `others` are the adapters that exist: addresses are not used twice.
pub fn adapter_spec(
    context: &Context,
    id: &str,
    adapter: &v1::Adapter,
    others: &[AdapterStatus],
    wrong: &mut Violations,
) -> Option<AdapterSpec> {
    let name = wrong.check("adapter_id", check::name(id));
    let taken: BTreeMap<_, _> = others
        .iter()
        .flat_map(|a| {
            let all = a.spec.macs.iter().chain(&a.settings.macs);
            all.map(|mac| (*mac, a.spec.name.as_str()))
        })
        .collect();

    if adapter.macs.len() > check::MACS_MAX {
        wrong.add(
            "adapter.macs",
            format!("an adapter has at most {} addresses", check::MACS_MAX),
        );
    }
    let mut macs = Vec::new();
    for (i, text) in adapter.macs.iter().enumerate() {
        let field = format!("adapter.macs[{i}]");
        let Some(mac) = wrong.check(field.clone(), check::mac(text)) else {
            continue;
        };
        if let Some(owner) = taken.get(&mac) {
            wrong.add(
                field,
                format!("{mac} belongs to adapter {owner}; each address belongs to one adapter"),
            );
        } else if macs.contains(&mac) {
            wrong.add(field, format!("{mac} is named twice"));
        } else {
            macs.push(mac);
        }
    }
    if let (true, Some(name)) = (adapter.macs.is_empty(), &name) {
        macs.push(
            context
                .settings
                .macs
                .derive(name, &taken.keys().copied().collect()),
        );
    }

    let mtu = mtu(adapter.mtu, "adapter.mtu", wrong);
    let rdma_memory_mib = match adapter.rdma_memory_mib {
        0 => Some(RDMA_MEMORY_DEFAULT),
        n => wrong.check("adapter.rdma_memory_mib", check::rdma_memory(i64::from(n))),
    };
    let regions = match adapter.vmm_regions {
        0 => Some(VmmLimits::default().regions),
        n => wrong.check("adapter.vmm_regions", check::vmm_regions(i64::from(n))),
    };
    let descriptors = match adapter.vmm_descriptors {
        0 => Some(VmmLimits::default().descriptors),
        n => wrong.check("adapter.vmm_descriptors", check::vmm_descriptors(i64::from(n))),
    };
    let queue_pairs = match adapter.queue_pairs {
        0 => Some(check::QUEUE_PAIRS_DEFAULT),
        n => wrong.check("adapter.queue_pairs", check::queue_pairs(i64::from(n))),
    };
    let vlan = vlan_mode(adapter.vlan.as_ref(), "adapter.vlan", wrong);
    wrong.check(
        "adapter.allowed_addresses",
        check::allowed_addresses(adapter.allowed_addresses.len()),
    );
    let allowed_addresses = adapter
        .allowed_addresses
        .iter()
        .enumerate()
        .filter_map(|(i, text)| {
            let field = format!("adapter.allowed_addresses[{i}]");
            wrong.check(field, check::allowed_address(text))
        });
    let allowed_addresses = allowed_addresses.collect();
    let core = data_core(context, adapter.data_core, "adapter.data_core", wrong);
    let role = match v1::adapter::SocketRole::try_from(adapter.socket_role) {
        Ok(v1::adapter::SocketRole::Unspecified | v1::adapter::SocketRole::Listen) => {
            Some(SocketRole::Listen)
        }
        Ok(v1::adapter::SocketRole::Connect) => Some(SocketRole::Connect),
        Err(_) => {
            wrong.add(
                "adapter.socket_role",
                format!(
                    "{} is unknown: SOCKET_ROLE_LISTEN or SOCKET_ROLE_CONNECT",
                    adapter.socket_role
                ),
            );
            None
        }
    };
    let eth = socket(
        context,
        id,
        "eth_socket",
        &adapter.eth_socket,
        eth_socket,
        others,
        wrong,
    );
    let rdma = if adapter.rdma_enabled.unwrap_or(true) {
        let path = adapter.rdma_socket.as_str();
        socket(context, id, "rdma_socket", path, rdma_socket, others, wrong).map(Some)
    } else {
        if !adapter.rdma_socket.is_empty() {
            wrong.add(
                "adapter.rdma_socket",
                "an adapter without an RDMA function has no such socket: leave it out, or set rdma_enabled",
            );
        }
        Some(None)
    };
    if let (Some(eth), Some(Some(rdma))) = (&eth, &rdma)
        && eth == rdma
    {
        wrong.add(
            "adapter.rdma_socket",
            format!("{} is the socket of the Ethernet function", rdma.display()),
        );
    }
    Some(AdapterSpec {
        name: name?,
        macs,
        mtu: mtu?,
        queue_pairs: queue_pairs?,
        vlan: vlan?,
        anti_spoofing: adapter.anti_spoofing.unwrap_or(true),
        allowed_addresses,
        data_core: core?,
        eth_socket: eth?,
        rdma_socket: rdma?,
        socket_role: role?,
        socket_access: SocketAccess {
            group: adapter.socket_group,
            users: adapter.socket_users.clone(),
        },
        rdma_memory_mib: rdma_memory_mib?,
        vmm: VmmLimits {
            regions: regions?,
            descriptors: descriptors?,
        },
    })
}

/// What a port is made from.
pub fn port_spec(context: &Context, id: &str, port: &v1::Port, wrong: &mut Violations) -> Option<PortSpec> {
    let name = wrong.check("port_id", check::name(id));
    let kind = match &port.uplink {
        Some(v1::port::Uplink::Tap(tap)) => {
            let ifname = wrong.check("port.tap.ifname", check::ifname(&tap.ifname));
            let queues = match tap.queues {
                0 => Some(1),
                n => wrong.check("port.tap.queues", check::tap_queues(i64::from(n))),
            };
            ifname
                .zip(queues)
                .map(|(ifname, queues)| PortKind::Tap { ifname, queues })
        }
        Some(v1::port::Uplink::Packet(packet)) => wrong
            .check("port.packet.ifname", check::ifname(&packet.ifname))
            .map(|ifname| PortKind::Packet { ifname }),
        Some(v1::port::Uplink::Xdp(xdp)) => wrong
            .check("port.xdp.ifname", check::ifname(&xdp.ifname))
            .map(|ifname| PortKind::Xdp { ifname }),
        Some(v1::port::Uplink::Mesh(mesh)) => Some(PortKind::Mesh {
            label: mesh.listen.clone(),
        }),
        None => {
            wrong.add(
                "port.uplink",
                "required: what is behind the port; `tap`, `packet`, `xdp` and `mesh` are allowed",
            );
            None
        }
    };
    let mtu = mtu(port.mtu, "port.mtu", wrong);
    let vlan = vlan_mode(port.vlan.as_ref(), "port.vlan", wrong);
    let core = data_core(context, port.data_core, "port.data_core", wrong);
    let speed = speed(port.speed_mbps, "port.speed_mbps", wrong);
    Some(PortSpec {
        name: name?,
        kind: kind?,
        mtu: mtu?,
        vlan: vlan?,
        data_core: core?,
        speed_mbps: speed?,
    })
}

/// Speed of a port, if one is given.
pub fn speed(mbps: Option<u32>, field: &str, wrong: &mut Violations) -> Option<Option<u32>> {
    match mbps {
        None => Some(None),
        Some(mbps) => wrong.check(field, check::speed(i64::from(mbps))).map(Some),
    }
}

/// Sums of the counters of each adapter, by name.
pub fn adapter_traffic(samples: &[Sample]) -> BTreeMap<&str, v1::AdapterTraffic> {
    let mut all: BTreeMap<&str, v1::AdapterTraffic> = BTreeMap::new();
    for sample in samples {
        if !matches!(sample.def.scope, Scope::AdapterQueue | Scope::AdapterDrop) {
            continue;
        }
        let traffic = all.entry(&sample.owner).or_default();
        let sum = match (sample.def.scope, sample.def.name) {
            (Scope::AdapterDrop, _) => &mut traffic.drops,
            (_, "rx_frames") => &mut traffic.rx_frames,
            (_, "rx_bytes") => &mut traffic.rx_bytes,
            (_, "tx_frames") => &mut traffic.tx_frames,
            (_, "tx_bytes") => &mut traffic.tx_bytes,
            _ => continue,
        };
        *sum = sum.wrapping_add(sample.value);
    }
    all
}

/// Sums of the counters of each port, by name.
pub fn port_traffic(samples: &[Sample]) -> BTreeMap<&str, v1::PortTraffic> {
    let mut all: BTreeMap<&str, v1::PortTraffic> = BTreeMap::new();
    for sample in samples {
        if !matches!(sample.def.scope, Scope::Port | Scope::PortDrop) {
            continue;
        }
        let traffic = all.entry(&sample.owner).or_default();
        let sum = match (sample.def.scope, sample.def.name) {
            (Scope::PortDrop, _) => &mut traffic.drops,
            (_, "rx_frames") => &mut traffic.rx_frames,
            (_, "rx_bytes") => &mut traffic.rx_bytes,
            (_, "tx_frames") => &mut traffic.tx_frames,
            (_, "tx_bytes") => &mut traffic.tx_bytes,
            _ => continue,
        };
        *sum = sum.wrapping_add(sample.value);
    }
    all
}
