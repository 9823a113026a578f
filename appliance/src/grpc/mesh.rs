//! Conversion of meshes of ports.

use vnic_control::v1;

use crate::mesh::{MeshStatus, PeerStatus};
use crate::stored::ports;
use crate::stored::values::{duration, timestamp};

/// Message of a mesh; without a status, it is being made or removed.
pub fn mesh(status: Option<MeshStatus>) -> v1::MeshUplink {
    let Some(status) = status else {
        return v1::MeshUplink::default();
    };
    v1::MeshUplink {
        address: status.address.to_string(),
        refused: status.refused,
        connections: status.peers.into_iter().map(peer).collect(),
        ..ports::mesh(&status.spec)
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
