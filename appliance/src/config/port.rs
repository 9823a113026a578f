//! `[[port]]` tables.

use std::net::SocketAddr;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;
use vnic_backend::{
    APPLICATIONS_MAX, ApplicationRow, DcbxSpec, DcbxWilling, PortKind, PortSpec, StormControl, dcbx,
};

use super::diagnostics::Sink;
use super::taken::Taken;
use super::vlan::{VlanTable, vlan};
use crate::check;
use crate::mesh::MeshSpec;
use crate::mesh::spec::{self, Files};

/// `[[port]]`.
// Wide: the keys of the table in the file.
#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PortTable {
    name: Option<Spanned<String>>,
    r#type: Option<Spanned<String>>,
    ifname: Option<Spanned<String>>,
    mtu: Option<Spanned<i64>>,
    vlan: Option<Spanned<VlanTable>>,
    data_core: Option<Spanned<i64>>,
    speed_mbps: Option<Spanned<i64>>,
    storm_broadcast_pps: Option<Spanned<i64>>,
    storm_unknown_unicast_pps: Option<Spanned<i64>>,
    bridge: Option<Spanned<String>>,
    lldp: Option<Spanned<String>>,
    dcbx: Option<Spanned<String>>,
    dcbx_willing: Option<Vec<Spanned<String>>>,
    dcbx_applications: Vec<Spanned<String>>,
    queues: Option<Spanned<i64>>,
    listen: Option<Spanned<String>>,
    certificate: Option<Spanned<String>>,
    key: Option<Spanned<String>>,
    ca: Option<Spanned<String>>,
    crl: Option<Spanned<String>>,
    peers: Vec<Spanned<String>>,
    names: Vec<Spanned<String>>,
}

/// Type of a port whose other end is in the daemon.
const MESH: &str = "mesh";

/// Keys of ports of type `mesh` only.
const OF_MESH: [&str; 7] = ["listen", "certificate", "key", "ca", "crl", "peers", "names"];

/// Reads a port, with its mesh if it has one.
pub(super) fn port(
    sink: &Sink<'_>,
    table: Spanned<PortTable>,
    cores: &[usize],
    taken: &mut Taken,
) -> (PortSpec, Option<MeshSpec>) {
    let (at, mut table) = (table.span(), table.into_inner());
    let name = taken.name(sink, &at, table.name.take());
    taken.ports.extend(name.clone());
    let kind = sink.required(&at, "type", table.r#type.take());
    let kind = sink.text(kind, |text| match PortKind::new(text, String::new()) {
        Some(_) => Ok(text.to_owned()),
        None if text == MESH => Ok(text.to_owned()),
        None => {
            let names = PortKind::NAMES.map(|name| format!("{name:?}")).join(", ");
            Err(format!("{text:?}; allowed are {names}, {MESH:?}"))
        }
    });
    let (foreign, why): (&[&str], &str) = match kind.as_deref() {
        None => (&[], ""),
        Some(MESH) => (&["ifname"], "a port of type \"mesh\" has no such key"),
        Some(_) => (&OF_MESH, "only a port of type \"mesh\" has this key"),
    };
    for key in foreign.iter().filter(|key| sink.place(&at, key).is_some()) {
        sink.wrong_key(&at, key, why);
    }
    let mesh = (kind.as_deref() == Some(MESH)).then(|| mesh(sink, &at, &mut table));
    let queues = sink.check(table.queues, |v| match kind.as_deref() {
        None | Some("tap") => check::tap_queues(v),
        _ => Err("only a port of type \"tap\" has queues".to_owned()),
    });
    let kind = match &mesh {
        Some(mesh) => PortKind::Mesh {
            label: mesh.listen.to_string(),
        },
        None => {
            let ifname = sink
                .text(sink.required(&at, "ifname", table.ifname), |text| {
                    let ifname = check::ifname(text)?;
                    taken.device(&ifname, name.as_deref().unwrap_or("before"))?;
                    Ok(ifname)
                })
                .unwrap_or_default();
            match kind.and_then(|kind| PortKind::new(&kind, ifname.clone())) {
                Some(PortKind::Tap { ifname, .. }) => PortKind::Tap {
                    ifname,
                    queues: queues.unwrap_or(1),
                },
                kind => kind.unwrap_or(PortKind::Packet { ifname }),
            }
        }
    };
    let port = PortSpec {
        name: name.unwrap_or_default(),
        kind,
        mtu: sink.check(table.mtu, check::mtu).unwrap_or(check::MTU_DEFAULT),
        vlan: vlan(sink, table.vlan),
        data_core: sink.check(table.data_core, |v| check::data_core(v, cores)),
        speed_mbps: sink.check(table.speed_mbps, check::speed),
        storm: StormControl {
            broadcast_pps: sink.check(table.storm_broadcast_pps, check::storm),
            unknown_unicast_pps: sink.check(table.storm_unknown_unicast_pps, check::storm),
        },
        bridge: sink.text(table.bridge, check::name),
        lldp: sink.text(table.lldp, check::lldp).unwrap_or_default(),
        dcbx: DcbxSpec {
            mode: sink.text(table.dcbx, check::dcbx).unwrap_or_default(),
            willing: table.dcbx_willing.map_or_else(DcbxWilling::default, |names| {
                check::willing(sink.texts(names, check::attribute))
            }),
            applications: applications(sink, table.dcbx_applications),
        },
    };
    (port, mesh)
}

/// Reads the table of applications, of which each protocol has one row.
fn applications(sink: &Sink<'_>, rows: Vec<Spanned<String>>) -> Vec<dcbx::Application> {
    let mut all: Vec<dcbx::Application> = Vec::new();
    for row in rows {
        all.extend(sink.text(Some(row), |text| {
            let new = check::application(text)?.0;
            let same =
                |row: &&dcbx::Application| (row.selector, row.protocol) == (new.selector, new.protocol);
            match all.iter().find(same) {
                Some(row) => Err(format!(
                    "the protocol has a row already, {}",
                    ApplicationRow(*row)
                )),
                None if all.len() == APPLICATIONS_MAX => {
                    Err(format!("a port has at most {APPLICATIONS_MAX} rows"))
                }
                None => Ok(new),
            }
        }));
    }
    all
}

/// Reads the specification of a mesh. The files themselves are checked when the daemon starts.
fn mesh(sink: &Sink<'_>, at: &Range<usize>, table: &mut PortTable) -> MeshSpec {
    let listen = sink.text(sink.required(at, "listen", table.listen.take()), spec::listen);
    let file = |key, text| {
        sink.text(sink.required(at, key, text), spec::file)
            .unwrap_or_default()
    };
    let files = Files {
        certificate: file("certificate", table.certificate.take()),
        key: file("key", table.key.take()),
        ca: file("ca", table.ca.take()),
        crl: sink.text(table.crl.take(), spec::file),
    };
    let mut peers = Vec::new();
    for peer in std::mem::take(&mut table.peers) {
        peers.extend(sink.text(Some(peer), |text| spec::one_more_peer(&peers, text)));
    }
    let none = table.names.is_empty();
    let names = sink.texts(std::mem::take(&mut table.names), spec::name);
    if let Err(why) = spec::names(names.clone())
        && none
    {
        sink.wrong_key(at, "names", why);
    }
    MeshSpec {
        listen: listen.unwrap_or(SocketAddr::from(([0; 4], 0))),
        peers,
        files,
        names,
    }
}
