//! Connected peers. One connection to each daemon is kept, and both ends choose the same one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use quinn::{Connection, VarInt};
use tokio::sync::watch;

use super::spec::PEERS_MAX;

/// Number of an end, random at each start.
pub type Node = [u8; 16];

/// Cause of a close, as application error code of QUIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bye {
    /// The end stops.
    Ends = 0,
    /// There is another connection between the two ends.
    Duplicate = 1,
    /// The end called itself.
    Myself = 2,
    /// The peer's certificate has none of the names in the list.
    Unlisted = 3,
    /// The peer sent no valid hello.
    NoHello = 4,
    /// The greatest number of peers is connected.
    Full = 5,
    /// The peer came back as a new end.
    Replaced = 6,
    /// The peer's certificate is no longer accepted.
    Untrusted = 7,
}

impl Bye {
    /// Closes a connection with this cause.
    pub fn say(self, connection: &Connection) {
        connection.close(VarInt::from_u32(self as u32), self.words().as_bytes());
    }

    /// Cause in words.
    pub const fn words(self) -> &'static str {
        match self {
            Bye::Ends => "the port is removed, or its daemon ends",
            Bye::Duplicate => "another connection between the two is used",
            Bye::Myself => "it is this daemon itself",
            Bye::Unlisted => "its certificate has none of the listed names",
            Bye::NoHello => "it does not say who it is",
            Bye::Full => "there are as many peers as there can be",
            Bye::Replaced => "it came back as a new one",
            Bye::Untrusted => "its certificate expired, was revoked, or is of a CA that counts no longer",
        }
    }
}

/// Counters of a peer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames sent to the peer.
    pub tx_frames: AtomicU64,
    /// Bytes of frames sent to the peer.
    pub tx_bytes: AtomicU64,
    /// Frames for the peer that were dropped because its path has no room.
    pub tx_dropped: AtomicU64,
    /// Frames from the peer.
    pub rx_frames: AtomicU64,
    /// Bytes of frames from the peer.
    pub rx_bytes: AtomicU64,
    /// Frames from the peer that were dropped because the switch did not take them in time.
    pub rx_dropped: AtomicU64,
    /// Frames from the peer that lack pieces.
    pub rx_incomplete: AtomicU64,
    /// Malformed datagrams from the peer.
    pub rx_malformed: AtomicU64,
}

/// A connected peer.
pub struct Peer {
    /// Number of the peer in this end. Another connection to the same daemon has the same number.
    pub id: u32,
    /// QUIC connection.
    pub connection: Connection,
    /// Names of the peer's certificate.
    pub names: Vec<String>,
    /// MTU of the peer's port.
    pub mtu: u16,
    /// Time of the connection.
    pub since: SystemTime,
    /// Counters of the peer.
    pub counters: Counters,
    node: Node,
    certificate: Vec<u8>,
    we_called: bool,
}

impl Peer {
    /// Whether this end called.
    pub fn we_called(&self) -> bool {
        self.we_called
    }

    /// Address of the peer.
    pub fn address(&self) -> SocketAddr {
        let address = self.connection.remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// First name of the peer's certificate.
    pub fn name(&self) -> &str {
        self.names.first().map_or("a certificate without a name", |n| n)
    }
}

/// A connection after the exchange of hellos.
pub struct Candidate {
    /// QUIC connection.
    pub connection: Connection,
    /// Names of the peer's certificate.
    pub names: Vec<String>,
    /// Certificate of the peer.
    pub certificate: Vec<u8>,
    /// Number of the other end.
    pub node: Node,
    /// MTU of the other end's port.
    pub mtu: u16,
    /// Whether this end called.
    pub we_called: bool,
}

/// Result of [`Peers::join`].
pub enum Joined {
    /// The connection is used from now on.
    Used(Arc<Peer>),
    /// Another connection to this peer is used.
    Duplicate(Arc<Peer>),
    /// The other end uses another connection.
    Elsewhere,
    /// The connection leads to this end.
    Myself,
    /// The greatest number of peers is connected.
    Full,
}

/// A peer of the list, and why it cannot be called.
#[derive(Debug, Clone, Default)]
pub struct Called {
    /// Peer as it is in the list.
    pub peer: String,
    /// Address of the connection that leads to it.
    pub address: Option<SocketAddr>,
    /// Last problem; empty: none.
    pub problem: String,
}

/// All connected peers.
pub struct Peers {
    node: Node,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    /// Number of refused connections.
    pub refused: AtomicU64,
}

#[derive(Default)]
struct State {
    all: Vec<Arc<Peer>>,
    next_id: u32,
    called: Vec<Called>,
}

impl Peers {
    /// Starts without peers. `node` is this end's number, `list` the peers that it calls.
    pub fn new(node: Node, list: &[String]) -> Peers {
        let called = list.iter().map(|peer| Called {
            peer: peer.clone(),
            ..Called::default()
        });
        Peers {
            node,
            state: Mutex::new(State {
                called: called.collect(),
                ..State::default()
            }),
            changed: watch::Sender::new(0),
            refused: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of this end.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Subscribes to changes.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Notifies subscribers without a change.
    pub fn again(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// Connected peers.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.state().all.clone()
    }

    /// Peers of the list.
    pub fn called(&self) -> Vec<Called> {
        self.state().called.clone()
    }

    /// The connected peer at one of these addresses.
    pub fn at(&self, addresses: &[SocketAddr]) -> Option<Arc<Peer>> {
        let state = self.state();
        let mut all = state.all.iter();
        all.find(|p| addresses.contains(&p.address())).cloned()
    }

    /// Notes the result of a call to a peer of the list; returns whether the problem is new.
    pub fn note(&self, list_index: usize, address: Option<SocketAddr>, problem: &str) -> bool {
        let mut state = self.state();
        let Some(called) = state.called.get_mut(list_index) else {
            return false;
        };
        let news = called.problem != problem;
        called.address = address;
        problem.clone_into(&mut called.problem);
        news
    }

    /// Chooses the connection to a daemon: the one that the end with the lower number made. If one end made several, that
    /// end keeps the first, and sends no hello on the others.
    pub fn join(&self, new: Candidate) -> Joined {
        if new.node == self.node {
            return Joined::Myself;
        }
        let mut state = self.state();
        let address = new.connection.remote_address();
        let same = |p: &Peer| p.node == new.node && p.certificate == new.certificate;
        // One end has one address: if its number is another one, it has restarted before the old connection timed out.
        let before = |p: &Peer| p.connection.remote_address() == address && p.certificate == new.certificate;
        let place = state.all.iter().position(|p| same(p));
        let place = place.or_else(|| state.all.iter().position(|p| before(p)));
        let mut id = state.next_id;
        let mut bye = Bye::Duplicate;
        if let Some(old) = place.and_then(|i| state.all.get(i)) {
            let we_win = self.node < new.node;
            let keep = old.node == new.node
                && match (old.we_called, new.we_called) {
                    (true, true) => true,
                    (false, false) => false,
                    (old_is_ours, _) => old_is_ours == we_win,
                };
            if keep && old.connection.close_reason().is_none() {
                return Joined::Duplicate(old.clone());
            }
            if old.node != new.node {
                bye = Bye::Replaced;
            }
            id = old.id;
        } else if state.all.len() >= PEERS_MAX {
            return Joined::Full;
        } else {
            state.next_id = state.next_id.wrapping_add(1);
        }
        let Candidate {
            connection,
            names,
            certificate,
            node,
            mtu,
            we_called,
        } = new;
        let peer = Arc::new(Peer {
            id,
            connection,
            names,
            mtu,
            since: SystemTime::now(),
            counters: Counters::default(),
            node,
            certificate,
            we_called,
        });
        match place.and_then(|i| state.all.get_mut(i)) {
            Some(old) => {
                bye.say(&old.connection);
                *old = peer.clone();
            }
            None => state.all.push(peer.clone()),
        }
        drop(state);
        self.changed.send_modify(|n| *n += 1);
        Joined::Used(peer)
    }

    /// Removes a peer after the end of its connection; returns whether the connection was in use.
    pub fn leave(&self, peer: &Arc<Peer>) -> bool {
        let mut state = self.state();
        let before = state.all.len();
        state.all.retain(|p| !Arc::ptr_eq(p, peer));
        let left = state.all.len() < before;
        drop(state);
        if left {
            self.changed.send_modify(|n| *n += 1);
        }
        left
    }

    /// Counts a refused connection.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Pauses between calls: each is twice as long as the one before, times a random factor between a half and one and a half,
/// so that daemons do not call in step.
pub struct Backoff {
    next: Duration,
}

const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next: BACKOFF_MIN }
    }
}

impl Backoff {
    /// The next pause. `random` is any number.
    pub fn pause(&mut self, random: u64) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(BACKOFF_MAX);
        pause / 2 + pause * (random % 1024) as u32 / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_vary() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..10).map(|_| backoff.pause(512)).collect();
        assert_eq!(pauses[0], BACKOFF_MIN);
        assert_eq!(pauses[1], BACKOFF_MIN * 2);
        assert_eq!(pauses[9], BACKOFF_MAX);
        assert_eq!(backoff.pause(0), BACKOFF_MAX / 2);
        assert!(backoff.pause(u64::MAX) < BACKOFF_MAX * 3 / 2);
    }
}
