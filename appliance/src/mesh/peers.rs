//! Who is connected. One connection to each daemon survives, and both ends choose the same one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use quinn::{Connection, VarInt};
use tokio::sync::watch;

use super::spec::PEERS_MAX;

/// Number of an end: made anew whenever it starts.
pub type Node = [u8; 16];

/// Why an end closes a connection, for the other (application error codes of QUIC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bye {
    /// It ends.
    Ends = 0,
    /// There is another connection between the two.
    Duplicate = 1,
    /// It called itself.
    Myself = 2,
    /// The certificate has none of the names in the list.
    Unlisted = 3,
    /// It does not say who it is.
    NoHello = 4,
    /// There are as many peers as there can be.
    Full = 5,
    /// The other end came back as a new one.
    Replaced = 6,
    /// The certificate does not count any more.
    Untrusted = 7,
}

impl Bye {
    /// Says it.
    pub fn say(self, connection: &Connection) {
        connection.close(VarInt::from_u32(self as u32), self.words().as_bytes());
    }

    /// In words.
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

/// What is counted of a peer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames sent to it.
    pub tx_frames: AtomicU64,
    /// Their bytes.
    pub tx_bytes: AtomicU64,
    /// Frames for it that were dropped: its path has no room.
    pub tx_dropped: AtomicU64,
    /// Frames from it.
    pub rx_frames: AtomicU64,
    /// Their bytes.
    pub rx_bytes: AtomicU64,
    /// Frames from it that were dropped: the switch did not take them in time.
    pub rx_dropped: AtomicU64,
    /// Frames from it of which pieces were lost.
    pub rx_incomplete: AtomicU64,
    /// Datagrams from it that are none of ours.
    pub rx_malformed: AtomicU64,
}

/// A connected daemon.
pub struct Peer {
    /// Its number here. Another connection to the same daemon has the same.
    pub id: u32,
    /// Way to it.
    pub connection: Connection,
    /// Names of its certificate.
    pub names: Vec<String>,
    /// MTU of its port.
    pub mtu: u16,
    /// Since when.
    pub since: SystemTime,
    /// What came and went.
    pub counters: Counters,
    node: Node,
    certificate: Vec<u8>,
    we_called: bool,
}

impl Peer {
    /// Did we call?
    pub fn we_called(&self) -> bool {
        self.we_called
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        let address = self.connection.remote_address();
        SocketAddr::new(address.ip().to_canonical(), address.port())
    }

    /// Its name, for people.
    pub fn name(&self) -> &str {
        self.names.first().map_or("a certificate without a name", |n| n)
    }
}

/// A connection, when both ends have said who they are.
pub struct Candidate {
    /// It.
    pub connection: Connection,
    /// Names of the certificate.
    pub names: Vec<String>,
    /// The certificate.
    pub certificate: Vec<u8>,
    /// Number of the other end.
    pub node: Node,
    /// MTU of the other end's port.
    pub mtu: u16,
    /// Did we call?
    pub we_called: bool,
}

/// What becomes of a [`Candidate`].
pub enum Joined {
    /// It is used from now on.
    Used(Arc<Peer>),
    /// Another one is used, to this peer.
    Duplicate(Arc<Peer>),
    /// The other end uses another one.
    Elsewhere,
    /// It leads here.
    Myself,
    /// There is no room.
    Full,
}

/// A peer of the list that cannot be called, and why.
#[derive(Debug, Clone, Default)]
pub struct Called {
    /// As in the list.
    pub peer: String,
    /// Where the connection is that leads to it.
    pub address: Option<SocketAddr>,
    /// What went wrong last; empty: nothing.
    pub problem: String,
}

/// The connected daemons.
pub struct Peers {
    node: Node,
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    /// Connections of strangers.
    pub refused: AtomicU64,
}

#[derive(Default)]
struct State {
    all: Vec<Arc<Peer>>,
    next_id: u32,
    called: Vec<Called>,
}

impl Peers {
    /// Nobody yet. `node`: this end's number; `list`: whom it calls.
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

    /// This end's number.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Hears of each change.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// As if something had changed.
    pub fn again(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<Peer>> {
        self.state().all.clone()
    }

    /// Whom this end calls.
    pub fn called(&self) -> Vec<Called> {
        self.state().called.clone()
    }

    /// The connected peer at one of these addresses.
    pub fn at(&self, addresses: &[SocketAddr]) -> Option<Arc<Peer>> {
        let state = self.state();
        let mut all = state.all.iter();
        all.find(|p| addresses.contains(&p.address())).cloned()
    }

    /// Notes how calling a peer of the list went; true: that is news.
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

    /// Which connection to a daemon is used: that which the end with the lower number made; of several that the same end
    /// made, the first for the one that made them, which does not even say who it is at the others.
    pub fn join(&self, new: Candidate) -> Joined {
        if new.node == self.node {
            return Joined::Myself;
        }
        let mut state = self.state();
        let address = new.connection.remote_address();
        let same = |p: &Peer| p.node == new.node && p.certificate == new.certificate;
        // At one address is one end. It came back with another number before we missed it.
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

    /// A connection is over; true: it was in use, and nobody is at its place.
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

    /// A stranger was refused.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// How long to wait before the next try: twice as long each time, and a random half of it more or less, so that daemons that
/// were parted do not all call at once.
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
    /// The next pause. `random`: any number.
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
