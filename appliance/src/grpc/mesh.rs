//! Conversion of meshes of ports.

use vnic_control::v1;

use crate::check::Violations;
use crate::mesh::spec::{self, Files};
use crate::mesh::{MeshSpec, MeshStatus, PeerStatus};
use crate::stored::values::{duration, timestamp};

/// Reads the specification of a mesh.
pub fn mesh_spec(mesh: &v1::MeshUplink, wrong: &mut Violations) -> Option<MeshSpec> {
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

/// Message of a mesh; without a status, it is being made or removed.
pub fn mesh(status: Option<MeshStatus>) -> v1::MeshUplink {
    let Some(status) = status else {
        return v1::MeshUplink::default();
    };
    let MeshSpec {
        listen,
        peers,
        files,
        names,
    } = status.spec;
    v1::MeshUplink {
        listen: listen.to_string(),
        peers,
        certificate: files.certificate.display().to_string(),
        key: files.key.display().to_string(),
        ca: files.ca.display().to_string(),
        crl: files
            .crl
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        names,
        address: status.address.to_string(),
        refused: status.refused,
        connections: status.peers.into_iter().map(peer).collect(),
    }
}

fn peer(peer: PeerStatus) -> v1::MeshPeer {
    let row = v1::MeshPeer {
        peer: peer.peer,
        problem: peer.problem,
        ..v1::MeshPeer::default()
    };
    let Some(c) = peer.connected else {
        return row;
    };
    let ([tx_frames, tx_bytes, tx_dropped], [rx_frames, rx_bytes, rx_dropped]) = (c.tx, c.rx);
    v1::MeshPeer {
        connected: true,
        address: c.address.to_string(),
        names: c.names,
        since: Some(timestamp(c.since)),
        mtu: u32::from(c.mtu),
        path_mtu: u32::from(c.path_mtu),
        max_datagram: u32::try_from(c.max_datagram).unwrap_or(u32::MAX),
        rtt: Some(duration(c.rtt)),
        lost_packets: c.lost,
        tx_frames,
        tx_bytes,
        tx_dropped,
        rx_frames,
        rx_bytes,
        rx_dropped,
        rx_incomplete: c.incomplete,
        rx_malformed: c.malformed,
        ..row
    }
}
