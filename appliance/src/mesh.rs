//! Ports of type `mesh`: daemons on several hosts joined to one Ethernet, over QUIC datagrams (RFC 9221), without
//! privileges.
//!
//! ```text
//!  switch ── rings (vnic_backend::PortEnd) ── flow ── peers: one QUIC connection each ── UDP ── other daemons
//!                                              │
//!                                              └ table: which address is behind which peer
//! ```
//!
//! Each mesh has one thread, in which all of it runs.

mod flow;
#[doc(hidden)] // for the fuzzer
pub mod frame;
mod node;
mod peers;
mod socket;
pub mod spec;
mod table;
mod tls;
mod words;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::task::LocalSet;
use vnic_backend::{Nic, NicError, PortSpec, PortStatus};

use crate::events::Tell;
use flow::Flow;
use node::Node;
use peers::Peers;
pub use spec::MeshSpec;

/// The meshes of a daemon, by name of their ports.
#[derive(Default)]
pub struct Meshes(Mutex<BTreeMap<String, Mesh>>);

/// A running mesh.
struct Mesh {
    spec: MeshSpec,
    address: SocketAddr,
    mtu: u16,
    node: Arc<Node>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

/// State of a mesh.
#[derive(Debug, Clone)]
pub struct MeshStatus {
    /// Specification of the mesh.
    pub spec: MeshSpec,
    /// Address on which it listens, with port 0 resolved.
    pub address: SocketAddr,
    /// Number of connections that were refused.
    pub refused: u64,
    /// Connected peers, and those of the list that are not connected.
    pub peers: Vec<PeerStatus>,
}

/// State of a peer.
#[derive(Debug, Clone, Default)]
pub struct PeerStatus {
    /// Peer as it is in the list; empty: it called by itself.
    pub peer: String,
    /// Why the peer is not connected, or what else is wrong; may be empty.
    pub problem: String,
    /// State of the connection, if there is one.
    pub connected: Option<Connected>,
}

/// State of a connected peer.
#[derive(Debug, Clone)]
pub struct Connected {
    /// Address of the peer.
    pub address: SocketAddr,
    /// Names of its certificate, alternative names first.
    pub names: Vec<String>,
    /// Time of the connection.
    pub since: SystemTime,
    /// MTU of its port.
    pub mtu: u16,
    /// Greatest UDP payload that the path carries, as path MTU discovery found.
    pub path_mtu: u16,
    /// Greatest payload of a datagram.
    pub max_datagram: usize,
    /// Round trip time.
    pub rtt: Duration,
    /// Number of QUIC packets to the peer that were lost.
    pub lost: u64,
    /// Frames to the peer: sent, bytes of these, dropped for want of room.
    pub tx: [u64; 3],
    /// Frames from the peer: received, bytes of these, dropped for want of room.
    pub rx: [u64; 3],
    /// Frames from the peer that lack pieces.
    pub incomplete: u64,
    /// Malformed datagrams from the peer.
    pub malformed: u64,
}

impl Meshes {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Mesh>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a port with its mesh; after an error nothing is left of them.
    pub fn add(
        &self,
        nic: &Nic,
        tell: Tell,
        port: PortSpec,
        spec: MeshSpec,
        ageing: Duration,
    ) -> Result<PortStatus, NicError> {
        let os = |what: &str| {
            let what = format!("port {}: {what}", port.name);
            move |source| NicError::Os { what, source }
        };
        let configs = tls::load(&spec.files)?;
        let mut number = [0; 16];
        tokio_rustls::rustls::crypto::ring::default_provider()
            .secure_random
            .fill(&mut number)
            .map_err(|_| os("random numbers")(std::io::ErrorKind::Other.into()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(os("starting a thread's event loop"))?;
        let inside = runtime.enter();
        let endpoint =
            node::endpoint(spec.listen, &configs, port.mtu).map_err(|source| NicError::Invalid {
                field: "mesh.listen",
                problem: format!("cannot listen on {}: {source}", spec.listen),
            })?;
        let address = endpoint.local_addr().map_err(os("its socket's address"))?;
        let (name, mtu) = (port.name.clone(), port.mtu);
        let (status, end) = nic.add_port_exchange(port.clone())?;
        let undo = |error| {
            let _ = nic.remove_port(&name);
            error
        };
        let bell = node::bell(&end).map_err(os("an eventfd")).map_err(undo)?;
        let node = Arc::new(Node {
            port: name.clone(),
            mtu,
            list: spec.peers.clone(),
            names: spec.names.clone(),
            nic: nic.clone(),
            peers: Arc::new(Peers::new(number, &spec.peers)),
            tell,
            client: RwLock::new(node::client(&configs, mtu)),
            trusted: RwLock::new(configs.trusted.clone()),
            generation: AtomicU64::new(0),
            endpoint,
            flow: Flow::new(end.tx, ageing, end.counters),
            handshakes: AtomicUsize::new(0),
            mute: AtomicBool::new(false),
        });
        drop(inside);
        let (stop, stopped) = oneshot::channel();
        let running = node.clone();
        let thread = std::thread::Builder::new()
            .name(format!("mesh-{name}"))
            .spawn(move || {
                let all = LocalSet::new();
                runtime.block_on(all.run_until(running.run(end.rx, bell, stopped)));
                drop(all);
                runtime.shutdown_background();
            })
            .map_err(os("starting a thread"))
            .map_err(undo)?;
        let mesh = Mesh {
            spec,
            address,
            mtu,
            node,
            stop,
            thread,
        };
        self.all().insert(name, mesh);
        Ok(status)
    }

    /// Removes a port with its mesh, if it has one. May block.
    pub fn remove<E>(&self, port: &str, remove: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let Some(mesh) = self.all().remove(port) else {
            return remove();
        };
        // The next port of this name shall not get link changes of this one.
        mesh.node.set_mute(true);
        let removed = remove();
        if removed.is_ok() {
            mesh.end();
        } else {
            mesh.node.set_mute(false);
            self.all().insert(port.to_owned(), mesh);
        }
        removed
    }

    /// Ends all meshes. May block.
    pub fn end(&self) {
        let all = std::mem::take(&mut *self.all());
        all.into_values().for_each(Mesh::end);
    }

    /// The mesh of a port.
    pub fn status(&self, port: &str) -> Option<MeshStatus> {
        self.all().get(port).map(Mesh::status)
    }

    /// Reads the certificates again; peers whose certificates are no longer valid lose their connections. Returns the result for each port.
    pub fn reload_certificates(&self) -> Vec<(String, Result<(), String>)> {
        let all = self.all();
        let each = all.iter().map(|(name, mesh)| (name.clone(), mesh.reload()));
        each.collect()
    }
}

/// Reads the certificates of a mesh, as its start does.
pub fn check_files(spec: &MeshSpec) -> Result<(), NicError> {
    tls::load(&spec.files).map(drop)
}

impl Mesh {
    fn end(self) {
        // An error means that the mesh has ended already.
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!(owner = self.node.port, "the thread of the mesh ended in a panic");
        }
    }

    fn reload(&self) -> Result<(), String> {
        let configs = tls::load(&self.spec.files).map_err(|e| e.to_string())?;
        let mut client = self.node.client.write().unwrap_or_else(PoisonError::into_inner);
        *client = node::client(&configs, self.mtu);
        drop(client);
        self.node
            .endpoint
            .set_server_config(Some(node::server(&configs, self.mtu)));
        self.node.trust(configs.trusted);
        Ok(())
    }

    fn status(&self) -> MeshStatus {
        let peers = &self.node.peers;
        let mut connected: Vec<PeerStatus> = peers
            .all()
            .iter()
            .map(|p| PeerStatus {
                connected: Some(connected(p)),
                ..PeerStatus::default()
            })
            .collect();
        for called in peers.called() {
            let place = connected.iter_mut().find(|p| {
                called.problem.is_empty()
                    && called.address.is_some()
                    && p.connected.as_ref().map(|c| c.address) == called.address
            });
            match place {
                Some(place) => place.peer = called.peer,
                None => connected.push(PeerStatus {
                    problem: match called.problem.as_str() {
                        "" => "not connected yet".to_owned(),
                        problem => problem.to_owned(),
                    },
                    peer: called.peer,
                    connected: None,
                }),
            }
        }
        MeshStatus {
            spec: self.spec.clone(),
            address: self.address,
            refused: peers.refused.load(Ordering::Relaxed),
            peers: connected,
        }
    }
}

fn connected(peer: &peers::Peer) -> Connected {
    let path = peer.connection.stats().path;
    let c = &peer.counters;
    let read = |all: [&AtomicU64; 3]| all.map(|n| n.load(Ordering::Relaxed));
    Connected {
        address: peer.address(),
        names: peer.names.clone(),
        since: peer.since,
        mtu: peer.mtu,
        path_mtu: path.current_mtu,
        max_datagram: peer.connection.max_datagram_size().unwrap_or(0),
        rtt: path.rtt,
        lost: path.lost_packets,
        tx: read([&c.tx_frames, &c.tx_bytes, &c.tx_dropped]),
        rx: read([&c.rx_frames, &c.rx_bytes, &c.rx_dropped]),
        incomplete: c.rx_incomplete.load(Ordering::Relaxed),
        malformed: c.rx_malformed.load(Ordering::Relaxed),
    }
}
