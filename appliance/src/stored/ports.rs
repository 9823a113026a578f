//! Ports as `vnic.v1.Port`: the values of a request, without those that the daemon fills in.

use prost::Message as _;
use vnic_backend::{DcbxMode, DcbxSpec, DcbxWilling, LldpMode, PortKind, PortSpec, StormControl, dcbx};
use vnic_control::v1;

use super::values;
use crate::check::{self, Violations};
use crate::mesh::MeshSpec;
use crate::mesh::spec::{self, Files};
use crate::names;

/// A port, and its mesh if it has one.
pub type NewPort = (PortSpec, Option<MeshSpec>);

/// Reads a message, for a daemon with these data cores. `None`: a value is wrong, and was noted.
pub fn read(id: &str, port: &v1::Port, data_cores: &[usize], wrong: &mut Violations) -> Option<NewPort> {
    let mesh = match &port.uplink {
        Some(v1::port::Uplink::Mesh(mesh)) => read_mesh(mesh, wrong).map(Some),
        _ => Some(None),
    };
    read_spec(id, port, data_cores, wrong).zip(mesh)
}

fn mtu(value: u32, field: &str, wrong: &mut Violations) -> Option<u16> {
    match value {
        0 => Some(check::MTU_DEFAULT),
        v => wrong.check(field, check::mtu(i64::from(v))),
    }
}

fn read_spec(id: &str, port: &v1::Port, data_cores: &[usize], wrong: &mut Violations) -> Option<PortSpec> {
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
    let vlan = values::vlan_mode(port.vlan.as_ref(), "port.vlan", wrong);
    let core = |core| check::data_core(i64::from(core), data_cores);
    let core = wrong.check("port.data_core", port.data_core.map(core).transpose());
    let speed = speed(port.speed_mbps, "port.speed_mbps", wrong);
    let broadcast = storm(port.storm_broadcast_pps, "port.storm_broadcast_pps", wrong);
    let unknown = storm(
        port.storm_unknown_unicast_pps,
        "port.storm_unknown_unicast_pps",
        wrong,
    );
    let bridge = bridge(port.bridge.as_deref(), "port.bridge", wrong);
    Some(PortSpec {
        name: name?,
        kind: kind?,
        mtu: mtu?,
        vlan: vlan?,
        data_core: core?,
        speed_mbps: speed?,
        storm: StormControl {
            broadcast_pps: broadcast?,
            unknown_unicast_pps: unknown?,
        },
        bridge: bridge?,
        lldp: lldp(port.lldp, "port.lldp", wrong)?,
        dcbx: match &port.dcbx {
            None => DcbxSpec::default(),
            Some(wanted) => dcbx(wanted, "port.dcbx", wrong)?,
        },
    })
}

/// Reads settings of data center bridging exchange. The NIC checks rows of applications.
pub fn dcbx(wanted: &v1::DcbxSettings, field: &str, wrong: &mut Violations) -> Option<DcbxSpec> {
    let mode = v1::DcbxMode::try_from(wanted.mode)
        .map_err(|_| format!("{} is no mode; allowed are 0 to 2", wanted.mode));
    let mode = wrong.check(format!("{field}.mode"), mode);
    let applications = wanted.applications.iter().enumerate().map(|(i, row)| {
        let read = || {
            Some(dcbx::Application {
                selector: row.selector.try_into().ok()?,
                protocol: row.protocol.try_into().ok()?,
                priority: row.priority.try_into().ok()?,
            })
        };
        let limits = "out of range: selector 1 to 5, protocol 0 to 65535, priority 0 to 7";
        wrong.check(
            format!("{field}.applications[{i}]"),
            read().ok_or(limits.to_owned()),
        )
    });
    let applications = applications.collect::<Option<Vec<_>>>();
    Some(DcbxSpec {
        mode: match mode? {
            v1::DcbxMode::Unspecified | v1::DcbxMode::Off => DcbxMode::Off,
            v1::DcbxMode::Ieee => DcbxMode::Ieee,
            v1::DcbxMode::Cee => DcbxMode::Cee,
            v1::DcbxMode::Auto => DcbxMode::Auto,
        },
        willing: DcbxWilling {
            ets: wanted.ets_willing.unwrap_or(true),
            pfc: wanted.pfc_willing.unwrap_or(true),
            applications: wanted.applications_willing.unwrap_or(true),
        },
        applications: applications?,
    })
}

/// Settings of data center bridging exchange in messages.
pub fn dcbx_message(spec: &DcbxSpec) -> v1::DcbxSettings {
    v1::DcbxSettings {
        mode: dcbx_mode(spec.mode).into(),
        ets_willing: Some(spec.willing.ets),
        pfc_willing: Some(spec.willing.pfc),
        applications_willing: Some(spec.willing.applications),
        applications: spec.applications.iter().map(application).collect(),
    }
}

/// The version of data center bridging exchange in messages.
pub fn dcbx_mode(mode: DcbxMode) -> v1::DcbxMode {
    match mode {
        DcbxMode::Off => v1::DcbxMode::Off,
        DcbxMode::Ieee => v1::DcbxMode::Ieee,
        DcbxMode::Cee => v1::DcbxMode::Cee,
        DcbxMode::Auto => v1::DcbxMode::Auto,
    }
}

/// A row of a table of applications in messages.
pub fn application(row: &dcbx::Application) -> v1::dcbx_exchange::Application {
    v1::dcbx_exchange::Application {
        selector: row.selector.into(),
        protocol: row.protocol.into(),
        priority: row.priority.into(),
    }
}

/// Reads the mode of link layer discovery.
pub fn lldp(mode: i32, field: &str, wrong: &mut Violations) -> Option<LldpMode> {
    wrong
        .check(
            field,
            v1::LldpMode::try_from(mode).map_err(|_| format!("{mode} is no mode; allowed are 0 to 4")),
        )
        .map(|mode| match mode {
            v1::LldpMode::Unspecified | v1::LldpMode::Disabled => LldpMode::Disabled,
            v1::LldpMode::TxOnly => LldpMode::TxOnly,
            v1::LldpMode::RxOnly => LldpMode::RxOnly,
            v1::LldpMode::RxAndTx => LldpMode::RxAndTx,
        })
}

/// The mode of link layer discovery in messages.
pub fn lldp_message(mode: LldpMode) -> v1::LldpMode {
    match mode {
        LldpMode::Disabled => v1::LldpMode::Disabled,
        LldpMode::TxOnly => v1::LldpMode::TxOnly,
        LldpMode::RxOnly => v1::LldpMode::RxOnly,
        LldpMode::RxAndTx => v1::LldpMode::RxAndTx,
    }
}

/// Checks the speed of a port, if there is one.
pub fn speed(mbps: Option<u32>, field: &str, wrong: &mut Violations) -> Option<Option<u32>> {
    wrong.optional(field, mbps, |mbps| check::speed(i64::from(mbps)))
}

/// Checks a limit of storm control, if there is one.
pub fn storm(pps: Option<u32>, field: &str, wrong: &mut Violations) -> Option<Option<u32>> {
    wrong.optional(field, pps, |pps| check::storm(i64::from(pps)))
}

/// Reads the resource name of the port that a port is joined to; empty: none.
pub fn bridge(name: Option<&str>, field: &str, wrong: &mut Violations) -> Option<Option<String>> {
    let name = name.filter(|name| !name.is_empty());
    wrong.optional(field, name, |name| {
        let id = names::id(names::PORTS, name);
        check::name(id.ok_or_else(|| format!("{name:?} is not of the form ports/{{port}}"))?)
    })
}

fn read_mesh(mesh: &v1::MeshUplink, wrong: &mut Violations) -> Option<MeshSpec> {
    let listen = wrong.check("port.mesh.listen", spec::listen(&mesh.listen));
    let mut peers = Vec::new();
    for (i, peer) in mesh.peers.iter().enumerate() {
        let one = wrong.check(format!("port.mesh.peers[{i}]"), spec::one_more_peer(&peers, peer));
        peers.extend(one);
    }
    let certificate = wrong.check("port.mesh.certificate", spec::file(&mesh.certificate));
    let key = wrong.check("port.mesh.key", spec::file(&mesh.key));
    let ca = wrong.check("port.mesh.ca", spec::file(&mesh.ca));
    let crl = match mesh.crl.as_str() {
        "" => Some(None),
        path => wrong.check("port.mesh.crl", spec::file(path)).map(Some),
    };
    let mut names = Vec::new();
    for (i, name) in mesh.names.iter().enumerate() {
        names.extend(wrong.check(format!("port.mesh.names[{i}]"), spec::name(name)));
    }
    let names = wrong.check("port.mesh.names", spec::names(names));
    Some(MeshSpec {
        listen: listen?,
        peers,
        files: Files {
            certificate: certificate?,
            key: key?,
            ca: ca?,
            crl: crl?,
        },
        names: names?,
    })
}

/// What is behind a port; `mesh`: its mesh, if it is one.
pub fn uplink(kind: &PortKind, mesh: impl FnOnce() -> v1::MeshUplink) -> v1::port::Uplink {
    let ifname = kind.ifname().to_owned();
    match kind {
        PortKind::Tap { queues, .. } => v1::port::Uplink::Tap(v1::TapUplink {
            ifname,
            queues: u32::from(*queues),
        }),
        PortKind::Packet { .. } => v1::port::Uplink::Packet(v1::PacketUplink { ifname }),
        PortKind::Xdp { .. } => v1::port::Uplink::Xdp(v1::XdpUplink { ifname }),
        PortKind::Mesh { .. } => v1::port::Uplink::Mesh(mesh()),
    }
}

/// Message of a mesh, without its state.
pub fn mesh(spec: &MeshSpec) -> v1::MeshUplink {
    let path = |path: &std::path::PathBuf| path.display().to_string();
    v1::MeshUplink {
        listen: spec.listen.to_string(),
        peers: spec.peers.clone(),
        certificate: path(&spec.files.certificate),
        key: path(&spec.files.key),
        ca: path(&spec.files.ca),
        crl: spec.files.crl.as_ref().map(path).unwrap_or_default(),
        names: spec.names.clone(),
        ..v1::MeshUplink::default()
    }
}

/// Encodes a port for the store.
pub fn encode(port: &PortSpec, mesh: Option<&MeshSpec>) -> Vec<u8> {
    let message = v1::Port {
        uplink: Some(uplink(&port.kind, || mesh.map(self::mesh).unwrap_or_default())),
        mtu: u32::from(port.mtu),
        vlan: Some(values::vlan(&port.vlan)),
        data_core: port.data_core.and_then(|core| u32::try_from(core).ok()),
        speed_mbps: port.speed_mbps,
        storm_broadcast_pps: port.storm.broadcast_pps,
        storm_unknown_unicast_pps: port.storm.unknown_unicast_pps,
        bridge: port.bridge.as_deref().map(|other| names::of(names::PORTS, other)),
        // What is not enabled is not said, as by older versions.
        lldp: match port.lldp {
            LldpMode::Disabled => 0,
            mode => lldp_message(mode).into(),
        },
        dcbx: (port.dcbx != DcbxSpec::default()).then(|| dcbx_message(&port.dcbx)),
        ..v1::Port::default()
    };
    message.encode_to_vec()
}

/// Decodes a row of the store, for a daemon with these data cores.
pub fn decode(name: &str, bytes: &[u8], data_cores: &[usize]) -> Result<NewPort, String> {
    let message = v1::Port::decode(bytes).map_err(|e| format!("what is stored is unreadable: {e}"))?;
    let mut wrong = Violations::default();
    let new = read(name, &message, data_cores, &mut wrong);
    wrong.finish(new).map_err(|wrong| wrong.to_string())
}

#[cfg(test)]
mod tests {
    use vnic_backend::{ApplicationRow, VlanMode};

    use super::*;

    #[test]
    fn ports_are_stored_with_all_that_they_were_made_with() {
        let port = |kind| PortSpec {
            name: "p0".to_owned(),
            kind,
            mtu: 9000,
            vlan: VlanMode::Access(7),
            data_core: Some(1),
            speed_mbps: Some(25_000),
            storm: StormControl {
                broadcast_pps: Some(100),
                unknown_unicast_pps: Some(7),
            },
            bridge: Some("p1".to_owned()),
            lldp: LldpMode::RxOnly,
            dcbx: DcbxSpec {
                mode: DcbxMode::Ieee,
                willing: DcbxWilling {
                    pfc: false,
                    ..DcbxWilling::default()
                },
                applications: vec!["udp:4791=3".parse::<ApplicationRow>().expect("a row").0],
            },
        };
        let ifname = || "eth0".to_owned();
        let tap = PortKind::Tap {
            ifname: ifname(),
            queues: 4,
        };
        for kind in [
            tap,
            PortKind::Packet { ifname: ifname() },
            PortKind::Xdp { ifname: ifname() },
        ] {
            let port = port(kind);
            assert_eq!(decode("p0", &encode(&port, None), &[0, 1]), Ok((port, None)));
        }
        let mesh = MeshSpec {
            listen: "[::]:4790".parse().expect("an address"),
            peers: vec!["node2:4790".to_owned()],
            files: Files {
                certificate: "/etc/a.crt".into(),
                key: "/etc/a.key".into(),
                ca: "/etc/ca.crt".into(),
                crl: Some("/etc/ca.crl".into()),
            },
            names: vec!["node2".to_owned()],
        };
        let port = port(PortKind::Mesh {
            label: mesh.listen.to_string(),
        });
        let bytes = encode(&port, Some(&mesh));
        assert_eq!(decode("p0", &bytes, &[0, 1]), Ok((port, Some(mesh))));
        // A CPU that is no data core any more.
        let error = decode("p0", &bytes, &[0]).expect_err("refused");
        assert!(error.contains("CPU 1 is not a data core"), "{error}");
        assert!(
            decode("p0", &[0xff], &[])
                .expect_err("no message")
                .contains("unreadable")
        );
    }
}
