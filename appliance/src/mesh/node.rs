//! One end of a mesh: its thread, the peers that it calls, and those that call it.

use std::future::pending;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, MtuDiscoveryConfig,
    Runtime as _, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::lookup_host;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
use vnic_backend::{Nic, PortEnd};

use super::flow::Flow;
use super::peers::{Backoff, Bye, Candidate, Joined, Peer, Peers};
use super::socket::Bounded;
use super::spec::ANY_NAME;
use super::tls::{Configs, SERVER_NAME, Trusted};
use super::words;
use crate::access::tls;
use crate::events::{ControlEvent, Tell};

/// Idle timeout of a connection, and interval of keep-alive packets.
const IDLE: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(1);
/// Time in which a caller must complete the handshake and its hello.
const HELLO_TIME: Duration = Duration::from_secs(10);
/// Number of concurrent handshakes from which on callers must validate their address, and greatest number.
const HANDSHAKES_UNPROVEN: usize = 16;
const HANDSHAKES_MAX: usize = 64;
/// Interval of certificate checks: how long an expired certificate is accepted at most.
const LOOK: Duration = Duration::from_secs(30);
/// Bytes that may wait in a connection for the path, and for this daemon.
const SEND_BUFFER: usize = 2 << 20;
const RECEIVE_BUFFER: usize = 8 << 20;
/// Size of the socket's buffers in the kernel, if the host's limits allow it.
const SOCKET_BUFFER: usize = 4 << 20;
/// Bytes of a datagram beside the frame's payload: addresses, EtherType, two tags, mesh header, QUIC (RFC 9000 and 9221).
const OVERHEAD: u16 = 22 + 2 + 64;
/// Greatest UDP payload in the standard MTU of Ethernet, and least upper bound of path MTU discovery.
const PAYLOAD_MIN: u16 = 1472;
/// Pause before a peer of the list that is this daemon is called again.
const MYSELF_PAUSE: Duration = Duration::from_secs(60);
/// Greatest time of closing the connections.
const BYE_TIME: Duration = Duration::from_secs(1);
/// Version and length of a hello: version, number of the end, MTU.
const HELLO: u8 = 1;
const HELLO_LEN: usize = 19;
/// Greatest length of a hello of a later version.
const HELLO_MAX: usize = 256;

/// State of an end.
pub struct Node {
    /// Name of the port.
    pub port: String,
    /// MTU of the port.
    pub mtu: u16,
    /// Peers to call.
    pub list: Vec<String>,
    /// Names of which a peer's certificate must have one; [`ANY_NAME`]: any.
    pub names: Vec<String>,
    /// NIC of the port.
    pub nic: Nic,
    /// Connected peers.
    pub peers: Arc<Peers>,
    /// Sink of events.
    pub tell: Tell,
    /// TLS configuration of calls from now on.
    pub client: RwLock<ClientConfig>,
    /// Certificates that are accepted.
    pub trusted: RwLock<Trusted>,
    /// Number of changes of `trusted`.
    pub generation: AtomicU64,
    /// QUIC endpoint.
    pub endpoint: Endpoint,
    /// Frames between the switch and the peers.
    pub flow: Flow,
    /// Number of handshakes under way.
    pub handshakes: AtomicUsize,
    /// Whether the port is being removed, so that its link is not reported.
    pub mute: AtomicBool,
}

/// Transport configuration of connections.
fn transport(mtu: u16) -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(payload(mtu));
    let mut transport = TransportConfig::default();
    transport
        .max_idle_timeout(IDLE.try_into().ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(1))
        .stream_receive_window(VarInt::from_u32(4096))
        .datagram_send_buffer_size(SEND_BUFFER)
        .datagram_receive_buffer_size(Some(RECEIVE_BUFFER))
        .mtu_discovery_config(Some(discovery));
    Arc::new(transport)
}

/// UDP payload in which a frame of this MTU is whole.
fn payload(mtu: u16) -> u16 {
    mtu.saturating_add(OVERHEAD).max(PAYLOAD_MIN)
}

/// Configuration of outgoing connections.
pub fn client(configs: &Configs, mtu: u16) -> ClientConfig {
    let mut config = ClientConfig::new(configs.client.clone());
    config.transport_config(transport(mtu));
    config
}

/// Configuration of incoming connections.
pub fn server(configs: &Configs, mtu: u16) -> ServerConfig {
    let mut config = ServerConfig::with_crypto(configs.server.clone());
    config
        .transport_config(transport(mtu))
        .max_incoming(HANDSHAKES_MAX)
        .incoming_buffer_size(16 << 10)
        .incoming_buffer_size_total(1 << 20);
    config
}

/// Opens the socket. Must be called in a tokio runtime.
pub fn endpoint(listen: SocketAddr, configs: &Configs, mtu: u16) -> std::io::Result<Endpoint> {
    let socket = std::net::UdpSocket::bind(listen)?;
    use rustix::net::sockopt as set;
    for force in [false, true] {
        // Without the right to exceed the host's limits they apply: slower, not wrong.
        let _ = if force {
            set::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)
                .and_then(|()| set::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER))
        } else {
            set::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER)
                .and_then(|()| set::set_socket_send_buffer_size(&socket, SOCKET_BUFFER))
        };
    }
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(payload(mtu))
        .map_err(std::io::Error::other)?;
    let socket = Bounded::new(TokioRuntime.wrap_udp_socket(socket)?, payload(mtu));
    let server = Some(server(configs, mtu));
    Endpoint::new_with_abstract_socket(config, server, Arc::new(socket), Arc::new(TokioRuntime))
}

/// Wakes up when there are frames from the switch. Must be called in a tokio runtime.
#[allow(
    deprecated,
    reason = "the other ways are unsafe, for the sake of types that change their descriptor; an OwnedFd does not"
)]
pub fn bell(end: &PortEnd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(end.rx.fd().try_clone_to_owned()?, Interest::READABLE)
}

/// A random number.
fn random() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

impl Node {
    /// Runs until `stop`, in a [`tokio::task::LocalSet`].
    pub async fn run(
        self: Arc<Self>,
        from_switch: vnic_backend::FrameRx,
        bell: AsyncFd<OwnedFd>,
        stop: oneshot::Receiver<()>,
    ) {
        let mut tasks = tokio::task::JoinSet::new();
        for i in 0..self.list.len() {
            let node = self.clone();
            tasks.spawn_local(async move { node.call(i).await });
        }
        let node = self.clone();
        tasks.spawn_local(async move { node.accept().await });
        let node = self.clone();
        tasks.spawn_local(async move { node.link().await });
        let node = self.clone();
        tasks.spawn_local(async move {
            loop {
                sleep(LOOK).await;
                node.look(|_, chain| tls::expired(chain, UnixTime::now()));
            }
        });
        let frames = async {
            if let Err(error) = self.flow.send(from_switch, bell, &self.peers).await {
                tracing::error!(owner = self.port, "frames from the switch: {error}");
            }
            pending().await
        };
        tokio::select! {
            // An error means that the sender is gone, which is an end, too.
            _ = stop => {}
            () = frames => {}
        }
        tasks.abort_all();
        self.endpoint
            .close(VarInt::from_u32(Bye::Ends as u32), Bye::Ends.words().as_bytes());
        let _ = timeout(BYE_TIME, self.endpoint.wait_idle()).await;
    }

    /// Reports the link of the port: up while at least one peer is connected.
    async fn link(&self) {
        let mut changes = self.peers.watch();
        loop {
            changes.borrow_and_update();
            let up = !self.peers.all().is_empty();
            let problem = (!up).then(|| "no peer is connected".to_owned());
            if !self.mute.load(Ordering::Relaxed)
                && let Err(error) = self.nic.set_port_link(&self.port, up, problem)
            {
                tracing::debug!(owner = self.port, "link: {error}");
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Sets the certificates that are accepted. Peers with others lose their connections.
    pub fn trust(&self, trusted: Trusted) {
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted.clone();
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.look(|peer, chain| trusted.check(chain, peer.we_called(), UnixTime::now()));
    }

    /// Ends the connections for which `holds` returns an error.
    fn look(&self, holds: impl Fn(&Peer, &[CertificateDer<'_>]) -> Result<(), String>) {
        for peer in self.peers.all() {
            let Err(problem) = holds(&peer, &certificates(&peer.connection)) else {
                continue;
            };
            (self.tell)(ControlEvent::MeshRefused {
                port: self.port.clone(),
                by: format!("{} at {}", peer.name(), peer.address()),
                problem,
            });
            Bye::Untrusted.say(&peer.connection);
        }
    }

    /// Stops or resumes the reports of the port's link.
    pub fn set_mute(&self, mute: bool) {
        self.mute.store(mute, Ordering::Relaxed);
        self.peers.again();
    }

    async fn accept(self: &Arc<Self>) {
        while let Some(incoming) = self.endpoint.accept().await {
            let busy = self.handshakes.load(Ordering::Relaxed);
            if busy >= HANDSHAKES_MAX {
                incoming.ignore();
            } else if busy >= HANDSHAKES_UNPROVEN && !incoming.remote_address_validated() {
                // An incoming connection that cannot be retried has a validated address.
                let _ = incoming.retry();
            } else {
                self.handshakes.fetch_add(1, Ordering::Relaxed);
                let node = self.clone();
                tokio::task::spawn_local(async move { node.called(incoming).await });
            }
        }
    }

    /// Accepts an incoming connection.
    async fn called(&self, incoming: Incoming) {
        let from = incoming.remote_address();
        let generation = self.generation.load(Ordering::SeqCst);
        let joined = timeout(HELLO_TIME, async {
            let connection = incoming
                .accept()
                .map_err(|e| e.to_string())?
                .await
                .map_err(|e| words::of(&e))?;
            self.greet(connection, false, generation).await
        })
        .await;
        self.handshakes.fetch_sub(1, Ordering::Relaxed);
        match joined {
            Ok(Ok(Joined::Used(peer))) => self.serve(peer).await,
            Ok(Ok(_)) => {}
            Ok(Err(problem)) => self.refused(from, problem),
            Err(_) => self.refused(from, "it did not say who it is in time".to_owned()),
        }
    }

    fn refused(&self, from: SocketAddr, problem: String) {
        self.peers.count_refused();
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        (self.tell)(ControlEvent::MeshRefused {
            port: self.port.clone(),
            by: from.to_string(),
            problem,
        });
    }

    /// Calls a peer of the list, and again each time that it is not connected.
    async fn call(self: &Arc<Self>, i: usize) {
        let peer = self.list.get(i).cloned().unwrap_or_default();
        let mut backoff = Backoff::default();
        loop {
            let mut pause = None;
            match self.dial(i, &peer).await {
                Ok(Joined::Used(used)) => {
                    backoff = Backoff::default();
                    self.peers.note(i, Some(used.address()), "");
                    used.connection.closed().await;
                    self.peers.note(i, None, "");
                }
                Ok(Joined::Duplicate(used)) => {
                    backoff = Backoff::default();
                    let address = used.address();
                    let twice = self
                        .peers
                        .called()
                        .into_iter()
                        .enumerate()
                        .find(|(k, c)| *k != i && c.address == Some(address) && c.problem.is_empty());
                    match twice {
                        Some((_, other)) => self.trouble(
                            i,
                            Some(address),
                            format!("it is the same daemon as {}: leave one of them out", other.peer),
                        ),
                        None => {
                            self.peers.note(i, Some(address), "");
                        }
                    }
                    used.connection.closed().await;
                    self.peers.note(i, None, "");
                }
                Ok(Joined::Myself) => {
                    self.trouble(i, None, "it is this daemon itself: leave it out".to_owned());
                    pause = Some(MYSELF_PAUSE);
                }
                Ok(Joined::Elsewhere) => {
                    self.peers.note(i, None, "");
                }
                Ok(Joined::Full) => self.trouble(i, None, Bye::Full.words().to_owned()),
                Err(problem) => self.trouble(i, None, problem),
            }
            sleep(pause.unwrap_or_else(|| backoff.pause(random()))).await;
        }
    }

    /// Notes why a peer of the list is not connected, and records an event if the cause is new.
    fn trouble(&self, i: usize, address: Option<SocketAddr>, problem: String) {
        if self.peers.note(i, address, &problem) {
            (self.tell)(ControlEvent::MeshTrouble {
                port: self.port.clone(),
                peer: self.list.get(i).cloned().unwrap_or_default(),
                problem,
            });
        }
    }

    /// Calls a peer once, unless it is connected already.
    async fn dial(self: &Arc<Self>, i: usize, peer: &str) -> Result<Joined, String> {
        let found = lookup_host(peer)
            .await
            .map_err(|e| format!("looking up its address: {e}"))?;
        let ours = self.endpoint.local_addr().map_err(|e| e.to_string())?;
        let all: Vec<SocketAddr> = found
            .map(|a| SocketAddr::new(a.ip().to_canonical(), a.port()))
            .filter(|a| ours.is_ipv6() || a.is_ipv4())
            .collect();
        if all.is_empty() {
            return Err(format!("it has no address that can be reached from {ours}"));
        }
        if let Some(connected) = self.peers.at(&all) {
            return Ok(Joined::Duplicate(connected));
        }
        let mut problem = String::new();
        for address in all {
            match timeout(HELLO_TIME, self.dial_at(address)).await {
                Ok(Ok(Joined::Used(used))) => {
                    self.peers.note(i, Some(used.address()), "");
                    let (node, peer) = (self.clone(), used.clone());
                    tokio::task::spawn_local(async move { node.serve(peer).await });
                    return Ok(Joined::Used(used));
                }
                Ok(Ok(other)) => return Ok(other),
                Ok(Err(why)) => problem = why,
                Err(_) => problem = "no answer".to_owned(),
            }
        }
        Err(problem)
    }

    async fn dial_at(&self, address: SocketAddr) -> Result<Joined, String> {
        let generation = self.generation.load(Ordering::SeqCst);
        let config = self.client.read().map_err(|e| e.to_string())?.clone();
        let connecting = self
            .endpoint
            .connect_with(config, address, SERVER_NAME)
            .map_err(|e| e.to_string())?;
        let connection = connecting.await.map_err(|e| words::of(&e))?;
        self.greet(connection, true, generation).await
    }

    /// Exchanges hellos: first that of the called end, then that of the caller, if it wants to go on. Nothing is sent to a
    /// peer without an accepted name, or read from it.
    async fn greet(
        &self,
        connection: Connection,
        we_called: bool,
        generation: u64,
    ) -> Result<Joined, String> {
        let chain = certificates(&connection);
        let certificate = chain.first().ok_or("no certificate")?.to_vec();
        let (common, alternatives) = tls::names(&certificate)?;
        let listed = |name: &String| self.names.iter().any(|n| n.eq_ignore_ascii_case(name));
        let any = self.names.iter().any(|n| n == ANY_NAME);
        if !any && !alternatives.iter().any(listed) {
            Bye::Unlisted.say(&connection);
            let names = if alternatives.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", alternatives.join(", "))
            };
            return Err(format!("{}: {names}", Bye::Unlisted.words()));
        }
        if !we_called {
            self.say_hello(&connection).await.map_err(|e| words::of(&e))?;
        }
        let (node, mtu) = match hear_hello(&connection).await {
            Ok(hello) => hello,
            Err(Some(error)) => return gave_up(&error),
            Err(None) => {
                Bye::NoHello.say(&connection);
                return Err(Bye::NoHello.words().to_owned());
            }
        };
        let joined = self.peers.join(Candidate {
            connection: connection.clone(),
            names: [alternatives, common].concat(),
            certificate,
            node,
            mtu,
            we_called,
        });
        // The accepted certificates may have changed since the handshake began.
        if self.generation.load(Ordering::SeqCst) != generation {
            let trusted = self.trusted.read().map_err(|e| e.to_string())?.clone();
            if let Err(problem) = trusted.check(&chain, we_called, UnixTime::now()) {
                Bye::Untrusted.say(&connection);
                if let Joined::Used(peer) = &joined {
                    self.peers.leave(peer);
                }
                return Err(problem);
            }
        }
        match &joined {
            Joined::Used(peer) if we_called => {
                if let Err(error) = self.say_hello(&connection).await {
                    self.gone(peer, &error);
                    return Err(words::of(&error));
                }
            }
            Joined::Used(_) | Joined::Elsewhere => {}
            Joined::Duplicate(_) => Bye::Duplicate.say(&connection),
            Joined::Myself => Bye::Myself.say(&connection),
            Joined::Full => Bye::Full.say(&connection),
        }
        Ok(joined)
    }

    async fn say_hello(&self, connection: &Connection) -> Result<(), ConnectionError> {
        let mut stream = connection.open_uni().await?;
        let mut hello = vec![HELLO];
        hello.extend(self.peers.node());
        hello.extend(self.mtu.to_be_bytes());
        // An error here is one of the connection.
        if stream.write_all(&hello).await.is_err() || stream.finish().is_err() {
            return Err(connection
                .close_reason()
                .unwrap_or(ConnectionError::LocallyClosed));
        }
        Ok(())
    }

    /// Moves the frames of a peer until it is gone.
    async fn serve(&self, peer: Arc<Peer>) {
        let mtu = if peer.mtu == self.mtu {
            String::new()
        } else {
            format!(
                "; its port has MTU {}, this one {}: what is longer than the lower one is dropped",
                peer.mtu, self.mtu
            )
        };
        (self.tell)(ControlEvent::MeshPeer {
            port: self.port.clone(),
            peer: peer.name().to_owned(),
            address: peer.address().to_string(),
            lost: None,
            note: mtu,
        });
        let error = self.flow.receive(&peer).await;
        self.gone(&peer, &error);
    }

    fn gone(&self, peer: &Arc<Peer>, error: &ConnectionError) {
        if !self.peers.leave(peer) {
            return;
        }
        self.flow.forget(peer.id);
        (self.tell)(ControlEvent::MeshPeer {
            port: self.port.clone(),
            peer: peer.name().to_owned(),
            address: peer.address().to_string(),
            lost: Some(words::of(error)),
            note: String::new(),
        });
    }
}

/// Result of a connection that ended before the peer's hello: the cause may be that it is not needed.
fn gave_up(error: &ConnectionError) -> Result<Joined, String> {
    match words::bye(error) {
        Some(Bye::Myself) => Ok(Joined::Myself),
        Some(Bye::Duplicate) => Ok(Joined::Elsewhere),
        _ => Err(words::of(error)),
    }
}

/// Certificate of the other end, and those between it and its CA.
fn certificates(connection: &Connection) -> Vec<CertificateDer<'static>> {
    let chain = connection.peer_identity().map(|all| all.downcast());
    chain.and_then(Result::ok).map_or_else(Vec::new, |all| *all)
}

/// Reads the hello of the other end; an error of `None`: it is malformed.
async fn hear_hello(connection: &Connection) -> Result<([u8; 16], u16), Option<ConnectionError>> {
    let mut stream = connection.accept_uni().await.map_err(Some)?;
    let hello = stream
        .read_to_end(HELLO_MAX)
        .await
        .map_err(|_| connection.close_reason())?;
    match hello.get(..HELLO_LEN) {
        Some([HELLO, node @ .., a, b]) => {
            let node = node.try_into().map_err(|_| None)?;
            Ok((node, u16::from_be_bytes([*a, *b])))
        }
        _ => Err(None),
    }
}
