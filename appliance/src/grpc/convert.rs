//! Conversion between the types of the NIC and the messages of the control interface.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use vnic_backend::counters::Scope;
use vnic_backend::settings::Burst;
use vnic_backend::{
    AdapterStatus, AttachState, Budget, BurstStatus, Caller, DcbxParameters, DcbxSource, DcbxStatus,
    DcbxVersion, DroplessStatus, EthernetDriver, GidKind, GidRow, GidSource, LldpNeighbour, MacAddr,
    PortStatus, RdmaStatus, ResourceRow, Sample, dcbx, feature, hash_type,
};
use vnic_control::v1;

use super::mesh;
use crate::control::{Adapters, Control, Ports};
use crate::same::same;
use crate::stored::adapters::NewAdapter;
use crate::stored::values::{timestamp, vlan};
use crate::stored::{self, ports};
use crate::{json, names};

fn lifetime(control: &Control, name: &str) -> i32 {
    let lifetime = if control.origins.is_configured(name) {
        v1::Lifetime::Configured
    } else if control.origins.is_stored(name) {
        v1::Lifetime::Stored
    } else {
        v1::Lifetime::UntilDaemonEnds
    };
    lifetime.into()
}

same! { fn attach_state(AttachState) -> v1::adapter::State { Detached, Attached, Up, Failed } }

same! { fn function_state(AttachState) -> v1::rdma_function::State { Detached, Attached, Up, Failed } }

/// Message of an adapter, without its traffic.
pub fn adapter(control: &Control, status: &AdapterStatus) -> v1::Adapter {
    let (acts, wanted) = (NewAdapter::from(&status.spec), NewAdapter::from(&status.wanted));
    let name = status.spec.name.as_str();
    v1::Adapter {
        name: names::of(names::ADAPTERS, name),
        additional_macs: status.settings.macs.iter().map(ToString::to_string).collect(),
        pending: pending(&wanted, &acts),
        etag: Adapters::etag(&status.wanted),
        state: attach_state(status.state).into(),
        state_time: Some(timestamp(status.since)),
        features: status.features,
        feature_names: feature::names(status.features).map(str::to_owned).collect(),
        queue_pairs_enabled: u32::from(status.queue_pairs_enabled),
        memory_bytes: status.memory_bytes,
        switch_port: u32::from(status.port.0),
        lifetime: lifetime(control, name),
        traffic: None,
        rdma: None,
        driver: None,
        dropless: Some(dropless(&status.dropless)),
        reserve: Some(reserve(&status.burst)),
        regions: Some(budget(status.regions)),
        descriptors: Some(budget(status.descriptors)),
        migration: status
            .wanted
            .moving
            .as_ref()
            .map(|m| stored::moves::part(m, status.speaks)),
        ..settable(&acts)
    }
}

/// Fields of an adapter that will be other ones after a restart.
fn pending(wanted: &NewAdapter, acts: &NewAdapter) -> Vec<v1::PendingField> {
    let fields = wanted.differs(acts);
    if fields.is_empty() {
        return Vec::new();
    }
    let values = json::of("Adapter", &settable(wanted)).unwrap_or_default();
    let pending = |field: &str| v1::PendingField {
        field: field.to_owned(),
        value: values[field].to_string(),
    };
    fields.into_iter().map(pending).collect()
}

/// Fields of an adapter that a request can set.
fn settable(adapter: &NewAdapter) -> v1::Adapter {
    v1::Adapter {
        vlan: Some(vlan(&adapter.vlan)),
        ..stored::adapters::message(adapter)
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

/// Message of what the driver of an Ethernet function has set.
pub fn ethernet_driver(driver: &EthernetDriver) -> v1::EthernetDriver {
    let filter = &driver.filter;
    let [unicast, multicast] = filter.addresses();
    let words = |table: Option<&[MacAddr]>| {
        table
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let modes = filter.modes().map(str::to_owned);
    let all = [(unicast, "all_unicast"), (multicast, "all_multicast")];
    let too_many = all
        .iter()
        .filter(|(table, _)| table.is_none())
        .map(|(_, mode)| (*mode).to_owned());
    let rss = driver.rss.as_ref();
    let types = |types: u32| hash_type::names(types).map(str::to_owned).collect();
    let coalescing = driver
        .coalescing
        .iter()
        .enumerate()
        .filter(|(_, c)| c.packets | c.usecs != 0);
    v1::EthernetDriver {
        receive_modes: modes.chain(too_many).collect(),
        mac: filter.mac.to_string(),
        unicast: words(unicast),
        multicast: words(multicast),
        vlans: filter.vlans().into_iter().flatten().map(u32::from).collect(),
        all_vlans: filter.vlans().is_none(),
        queue_pairs: driver.pairs.into(),
        rss_table: rss
            .map(|rss| rss.table().iter().map(|pair| u32::from(*pair)).collect())
            .unwrap_or_default(),
        rss_hash_types: rss.map(|rss| types(rss.hash.types())).unwrap_or_default(),
        reported_hash_types: driver
            .report
            .as_ref()
            .map(|report| types(report.types()))
            .unwrap_or_default(),
        offloads: feature::names(driver.offloads).map(str::to_owned).collect(),
        coalescing: coalescing
            .map(|(ring, c)| v1::QueueCoalescing {
                queue: format!("{}{}", ["rx", "tx"][ring % 2], ring / 2),
                frames: c.packets,
                micros: c.usecs,
            })
            .collect(),
        commands: driver.commands[0],
        refused: driver.commands[0] - driver.commands[1],
    }
}

/// Message of the RDMA function of an adapter.
pub fn rdma_function(adapter: &str, status: &RdmaStatus) -> v1::RdmaFunction {
    v1::RdmaFunction {
        socket: status.socket.display().to_string(),
        state: function_state(status.state).into(),
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
        owners: status.owners.all().map(|caller| process(caller, None)).collect(),
    }
}

/// Message of a process and its name.
pub fn process(caller: Caller, command: Option<&str>) -> v1::Process {
    v1::Process {
        pid: caller.pid.unwrap_or_default(),
        uid: caller.uid,
        command: command.unwrap_or_default().to_owned(),
    }
}

/// A GID in full, and its IPv4 address or nothing.
pub fn gid_text(gid: [u8; 16]) -> (String, String) {
    let address = Ipv6Addr::from(gid);
    let groups = address.segments().map(|group| format!("{group:04x}"));
    let ipv4 = address.to_ipv4_mapped().map(|a| a.to_string());
    (groups.join(":"), ipv4.unwrap_or_default())
}

/// Message of an entry of an adapter's GID table.
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
    let (gid, ipv4) = gid_text(row.gid);
    v1::Gid {
        name: names::gid(adapter, row.index),
        gid,
        version: version.into(),
        vlan: row.vlan.map_or(0, u32::from),
        index: u32::from(row.index),
        ipv4,
        mac: row.mac.to_string(),
        source: source.into(),
    }
}

/// Message of the number of an adapter's objects of a type.
pub fn rdma_resource(adapter: &str, row: &ResourceRow) -> v1::RdmaResource {
    v1::RdmaResource {
        adapter: names::of(names::ADAPTERS, adapter),
        r#type: row.name.to_owned(),
        used: row.used,
        limit: row.limit,
    }
}

/// Message of a port, without its traffic.
pub fn port(control: &Control, status: &PortStatus) -> v1::Port {
    let spec = &status.spec;
    v1::Port {
        name: names::of(names::PORTS, &spec.name),
        uplink: Some(ports::uplink(&spec.kind, || {
            mesh::mesh(control.meshes.status(&spec.name))
        })),
        mtu: u32::from(spec.mtu),
        vlan: Some(vlan(&spec.vlan)),
        data_core: spec.data_core.and_then(|c| u32::try_from(c).ok()),
        speed_mbps: spec.speed_mbps,
        storm_broadcast_pps: spec.storm.broadcast_pps,
        storm_unknown_unicast_pps: spec.storm.unknown_unicast_pps,
        bridge: spec.bridge.as_deref().map(|other| names::of(names::PORTS, other)),
        up: status.up,
        switch_port: u32::from(status.port.0),
        lifetime: lifetime(control, &spec.name),
        traffic: None,
        problem: status.problem.clone().unwrap_or_default(),
        mode: status.mode.clone(),
        device: status.device.as_ref().map(|d| v1::PortDevice {
            index: d.index,
            mtu: d.mtu,
            speed_mbps: d.speed_mbps,
            statistics: Vec::new(),
        }),
        etag: Ports::etag(control, spec),
        lldp: ports::lldp_message(spec.lldp).into(),
        lldp_neighbors: Vec::new(),
        lldp_counters: None,
        lldp_problem: String::new(),
        dcbx: Some(ports::dcbx_message(&spec.dcbx)),
        dcbx_state: None,
    }
}

/// Message of what data center bridging exchange came to.
pub fn dcbx_state(status: &DcbxStatus) -> v1::DcbxState {
    let values = |p: &DcbxParameters| {
        dcbx(&dcbx::Exchange {
            ets: Some(dcbx::Ets {
                willing: status.willing.ets,
                classes_max: 8,
                classes: p.classes,
            }),
            recommendation: None,
            pfc: Some(dcbx::Pfc {
                willing: status.willing.pfc,
                capability: 8,
                priorities: p.pfc,
            }),
            applications: p.applications.clone(),
        })
    };
    let (outcome, counters) = (&status.outcome, status.counters);
    let peers = |source| source == DcbxSource::Peer;
    v1::DcbxState {
        administrative: values(&status.administrative),
        operational: values(&outcome.operational),
        peer: status.peer.as_ref().and_then(dcbx),
        ets_from_peer: peers(outcome.sources.ets),
        pfc_from_peer: peers(outcome.sources.pfc),
        applications_from_peer: peers(outcome.sources.applications),
        peers: u32::try_from(outcome.peers).unwrap_or(u32::MAX),
        problem: outcome.problem.unwrap_or_default().to_owned(),
        sent: counters.sent,
        received: counters.received,
        changes: counters.changes,
        version: match outcome.version {
            DcbxVersion::Ieee => v1::DcbxMode::Ieee,
            DcbxVersion::Cee => v1::DcbxMode::Cee,
        }
        .into(),
        errors: counters.errors,
    }
}

/// Message of a station that a port hears.
pub fn lldp_neighbor(n: &LldpNeighbour) -> v1::LldpNeighbor {
    let said = &n.said;
    v1::LldpNeighbor {
        chassis: said.chassis.clone(),
        port: said.port.clone(),
        port_description: said.port_description.clone(),
        system_name: said.system_name.clone(),
        system_description: said.system_description.clone(),
        capabilities: capabilities(said.capabilities).map(str::to_owned).collect(),
        management_address: said.management.clone(),
        source: said.source.to_string(),
        ttl_s: said.ttl.into(),
        since: Some(n.since.into()),
        until: Some(n.until.into()),
        dcbx: dcbx(&said.priorities()),
    }
}

/// Message of what a station says of priorities; nothing if it says nothing.
fn dcbx(said: &dcbx::Exchange) -> Option<v1::DcbxExchange> {
    let classes = |c: dcbx::Classes| v1::dcbx_exchange::Classes {
        priority_class: c.of_priority.map(u32::from).to_vec(),
        class_share: c.share.map(u32::from).to_vec(),
        class_algorithm: c.algorithm.map(|a| a.name().to_owned()).to_vec(),
    };
    let pfc = said.pfc.unwrap_or_default();
    let applications = said.applications.iter().map(ports::application);
    (*said != dcbx::Exchange::default()).then(|| v1::DcbxExchange {
        ets: said.ets.map(|ets| classes(ets.classes)),
        ets_willing: said.ets.is_some_and(|ets| ets.willing),
        recommendation: said.recommendation.map(classes),
        has_pfc: said.pfc.is_some(),
        pfc_priorities: (0..8).filter(|p| pfc.priorities & 1 << p != 0).collect(),
        pfc_willing: pfc.willing,
        applications: applications.collect(),
    })
}

/// Names of what a system does, by the bits of IEEE 802.1AB-2016 table 8-4.
fn capabilities(on: u16) -> impl Iterator<Item = &'static str> {
    const NAMES: [&str; 11] = [
        "other",
        "repeater",
        "bridge",
        "wlan",
        "router",
        "telephone",
        "docsis",
        "station",
        "c-vlan",
        "s-vlan",
        "tpmr",
    ];
    let all = NAMES.into_iter().enumerate();
    all.filter(move |(bit, _)| on & 1 << bit != 0)
        .map(|(_, name)| name)
}

/// Statistics of the device of a port.
pub fn port_statistics(status: &PortStatus) -> Vec<v1::PortStatistic> {
    let all = status.device.iter().flat_map(|d| &d.statistics);
    all.map(|(name, value)| v1::PortStatistic {
        name: name.clone(),
        value: *value,
    })
    .collect()
}

/// Sums of the counters of each adapter, by the adapter's name.
pub fn adapter_traffic(samples: &[Sample]) -> BTreeMap<&str, v1::AdapterTraffic> {
    let mut all: BTreeMap<&str, v1::AdapterTraffic> = BTreeMap::new();
    for sample in samples {
        if !matches!(
            sample.def.scope,
            Scope::AdapterQueue | Scope::AdapterDrop | Scope::Rdma
        ) {
            continue;
        }
        let traffic = all.entry(&sample.owner).or_default();
        let sum = match (sample.def.scope, sample.def.name) {
            (Scope::AdapterDrop, _) => &mut traffic.drops,
            (Scope::AdapterQueue, "rx_frames") => &mut traffic.rx_frames,
            (Scope::AdapterQueue, "rx_bytes") => &mut traffic.rx_bytes,
            (Scope::AdapterQueue, "tx_frames") => &mut traffic.tx_frames,
            (Scope::AdapterQueue, "tx_bytes") => &mut traffic.tx_bytes,
            (Scope::Rdma, "rx_vport_rdma_unicast_packets" | "rx_vport_rdma_multicast_packets") => {
                &mut traffic.rdma_rx_packets
            }
            (Scope::Rdma, "rx_vport_rdma_unicast_bytes" | "rx_vport_rdma_multicast_bytes") => {
                &mut traffic.rdma_rx_bytes
            }
            (Scope::Rdma, "tx_vport_rdma_unicast_packets" | "tx_vport_rdma_multicast_packets") => {
                &mut traffic.rdma_tx_packets
            }
            (Scope::Rdma, "tx_vport_rdma_unicast_bytes" | "tx_vport_rdma_multicast_bytes") => {
                &mut traffic.rdma_tx_bytes
            }
            _ => continue,
        };
        *sum = sum.wrapping_add(sample.value);
    }
    all
}

/// Sums of the counters of each port, by the port's name.
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
