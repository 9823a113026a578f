//! Ports of type `mesh`.

use clap::Args;
use vnic_control::v1;

use super::text::{self, Facts};
use crate::mesh::spec;

/// What a mesh is made from.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --mesh")]
pub struct MeshArgs {
    /// A daemon to call; again for further ones
    #[arg(id = "mesh_peer", long = "peer", value_name = "HOST:PORT", requires = "mesh", value_parser = spec::peer)]
    pub peers: Vec<String>,
    /// The daemon's certificate: path on its host
    #[arg(id = "mesh_cert", long = "cert", value_name = "PATH", requires = "mesh")]
    pub certificate: Option<String>,
    /// The private key of the certificate: path on its host
    #[arg(id = "mesh_key", long = "key", value_name = "PATH", requires = "mesh")]
    pub key: Option<String>,
    /// The CA whose daemons may be peers: path on the daemon's host
    #[arg(id = "mesh_ca", long = "ca", value_name = "PATH", requires = "mesh")]
    pub ca: Option<String>,
    /// Lists of revoked certificates, one of each CA: path on the daemon's host
    #[arg(id = "mesh_crl", long = "crl", value_name = "PATH", requires = "mesh")]
    pub crl: Option<String>,
    /// An alternative name that certificates of peers may have; again for further ones; "*": all that the CA signed
    #[arg(id = "mesh_name", long = "peer-name", value_name = "NAME", requires = "mesh", value_parser = spec::name)]
    pub names: Vec<String>,
}

/// Message of the options.
pub fn uplink(listen: &str, args: &MeshArgs) -> v1::MeshUplink {
    v1::MeshUplink {
        listen: listen.to_owned(),
        peers: args.peers.clone(),
        certificate: args.certificate.clone().unwrap_or_default(),
        key: args.key.clone().unwrap_or_default(),
        ca: args.ca.clone().unwrap_or_default(),
        crl: args.crl.clone().unwrap_or_default(),
        names: args.names.clone(),
        ..v1::MeshUplink::default()
    }
}

/// Address on which the mesh listens.
pub fn address(mesh: &v1::MeshUplink) -> &str {
    text::or(&mesh.address, &mesh.listen)
}

/// Adds configuration and state of a mesh.
pub fn facts(mesh: &v1::MeshUplink, facts: &mut Facts) {
    facts
        .add("certificate", mesh.certificate.clone())
        .add("key", mesh.key.clone())
        .add("ca", mesh.ca.clone())
        .add("crl", mesh.crl.clone())
        .add("names", mesh.names.join(", "))
        .add("refused calls", mesh.refused.to_string());
}

/// Table of the peers.
pub fn peers(mesh: &v1::MeshUplink) -> String {
    text::table! { p in &mesh.connections, "no peers";
        let when = |text: String| if p.connected { text } else { "-".to_owned() };
        let lost = p.lost_packets + p.tx_dropped + p.rx_dropped + p.rx_incomplete;
        "PEER": if p.peer.is_empty() { "-" } else { &p.peer },
        "ADDRESS": when(p.address.clone()),
        "CERTIFICATE": when(p.names.first().cloned().unwrap_or_default()),
        "SINCE": when(text::time(p.since)),
        ">PATH MTU": when(p.path_mtu.to_string()),
        ">DATAGRAM": when(p.max_datagram.to_string()),
        ">RTT": when(text::span(p.rtt)),
        ">RX FRAMES": when(text::count(p.rx_frames)),
        ">TX FRAMES": when(text::count(p.tx_frames)),
        ">LOST": when(text::count(lost)),
        "PROBLEM": p.problem,
    }
}
