//! Live connections. Each ends when it is no longer valid: its certificate has expired, was revoked, or is of a CA that is
//! no longer accepted; or its role has changed.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::Context;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

use super::places::{Place, Places};
use super::{Access, Peer, Role, Tls, people, tls};
use crate::events::{ControlEvent, Tell};

/// Interval of expiry checks: how long an expired certificate is accepted at most.
const LOOK: Duration = Duration::from_secs(30);

/// Identity of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A user of this machine.
    User {
        /// User ID.
        uid: u32,
        /// Primary group of the process.
        gid: u32,
    },
    /// A certificate, followed by those between it and its CA.
    Certificates(Vec<CertificateDer<'static>>),
}

/// Live connections, and the present roles.
pub struct Live {
    access: RwLock<Access>,
    /// User ID of the daemon.
    own: u32,
    tell: Tell,
    /// Number of changes of roles or certificates.
    generation: AtomicU64,
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Entry>>,
}

struct Entry {
    peer: Arc<Peer>,
    identity: Identity,
    /// Place of the connection among those of its kind. It is free as soon as the connection is told to end.
    place: Place,
    end: oneshot::Sender<()>,
}

/// Registration of a connection. It tells when the connection must end; dropping it removes the connection.
pub struct Alive {
    live: Arc<Live>,
    number: u64,
    ended: oneshot::Receiver<()>,
    over: bool,
}

impl Live {
    /// Starts without connections.
    pub fn new(access: Access, tell: Tell) -> Arc<Live> {
        Arc::new(Live {
            access: RwLock::new(access),
            own: rustix::process::geteuid().as_raw(),
            tell,
            generation: AtomicU64::new(0),
            next: AtomicU64::new(0),
            all: Mutex::default(),
        })
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of changes of roles or certificates: a connection that was checked before a change is checked again.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Present role of a client.
    pub fn role(&self, identity: &Identity) -> Option<Role> {
        let access = self.access.read().unwrap_or_else(PoisonError::into_inner);
        match identity {
            Identity::User { uid, gid } => {
                let groups = people::groups_of(people::user_name(*uid).as_deref(), *gid);
                access.of_user(*uid, self.own, &groups)
            }
            Identity::Certificates(chain) => {
                let (common, alternatives) = tls::names(chain.first()?).ok()?;
                access.of_certificate(alternatives.iter().chain(&common))
            }
        }
    }

    /// Registers a connection.
    pub fn enter(self: &Arc<Live>, peer: Arc<Peer>, identity: Identity, place: Place) -> Alive {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (end, ended) = oneshot::channel();
        let entry = Entry {
            peer,
            identity,
            place,
            end,
        };
        self.all().insert(number, entry);
        Alive {
            live: self.clone(),
            number,
            ended,
            over: false,
        }
    }

    /// Ends the connection of a peer that has been idle for the longest time, so that its place is free; `false`: none is idle.
    pub fn make_room(&self, places: &Arc<Places>, peer: &str, limit: &str) -> bool {
        let idlest = {
            let all = self.all();
            let own = all.iter().filter(|(_, entry)| entry.place.is_of(places, peer));
            let idle = own.filter_map(|(number, entry)| Some((entry.peer.usage.idle_since()?, *number)));
            idle.min()
        };
        let Some((_, number)) = idlest else {
            return false;
        };
        let why = format!("{limit} are allowed, and a new one took the place of this one, which was idle");
        self.end(number, why);
        true
    }

    /// Records that a connection was refused.
    pub fn refused(&self, by: String, problem: String) {
        (self.tell)(ControlEvent::ConnectionRefused { by, problem });
    }

    /// Sets new roles, if they are given, and ends connections that are no longer valid. The caller has read the certificates again.
    pub fn changed(&self, access: Option<Access>, tls: Option<&Tls>) {
        if let Some(access) = access {
            *self.access.write().unwrap_or_else(PoisonError::into_inner) = access;
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
        let now = UnixTime::now();
        self.look(|entry| self.holds(entry, tls, now));
    }

    /// Checks a connection that was just registered, if something changed since `generation`.
    pub fn look_again(&self, alive: &Alive, generation: u64, tls: Option<&Tls>) {
        if self.generation() != generation {
            let now = UnixTime::now();
            let all = self.all();
            let why = all.get(&alive.number).and_then(|e| self.holds(e, tls, now).err());
            drop(all);
            if let Some(why) = why {
                self.end(alive.number, why);
            }
        }
    }

    /// Ends connections whose certificates have expired.
    pub fn expire(&self, now: UnixTime) {
        self.look(|entry| match &entry.identity {
            Identity::User { .. } => Ok(()),
            Identity::Certificates(chain) => tls::expired(chain, now),
        });
    }

    /// Checks for expired certificates at intervals, for ever.
    pub async fn watch(self: Arc<Live>) {
        loop {
            tokio::time::sleep(LOOK).await;
            self.expire(UnixTime::now());
        }
    }

    fn holds(&self, entry: &Entry, tls: Option<&Tls>, now: UnixTime) -> Result<(), String> {
        if let (Identity::Certificates(chain), Some(tls)) = (&entry.identity, tls) {
            tls.check(chain, now)?;
        }
        let (was, is) = (entry.peer.role, self.role(&entry.identity));
        let name = |role: Option<Role>| role.map_or("no role", Role::name);
        if was == is {
            Ok(())
        } else {
            Err(format!("it has {} now, and had {}", name(is), name(was)))
        }
    }

    fn look(&self, holds: impl Fn(&Entry) -> Result<(), String>) {
        let ending: Vec<(u64, String)> = {
            let all = self.all();
            let each = all
                .iter()
                .filter_map(|(number, entry)| Some((*number, holds(entry).err()?)));
            each.collect()
        };
        for (number, why) in ending {
            self.end(number, why);
        }
    }

    fn end(&self, number: u64, problem: String) {
        let Some(entry) = self.all().remove(&number) else {
            return;
        };
        // The connection may have ended by itself.
        let _ = entry.end.send(());
        (self.tell)(ControlEvent::ConnectionEnded {
            by: entry.peer.who.clone(),
            problem,
        });
    }
}

impl Alive {
    /// Ends the connection, and records why.
    pub fn end(&mut self, problem: String) {
        self.live.end(self.number, problem);
    }

    /// Returns an error if the connection must end; else the task is woken when it must.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.over && Pin::new(&mut self.ended).poll(cx).is_pending() {
            return Ok(());
        }
        self.over = true;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.live.all().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::places::Limits;
    use super::super::usage::InProgress;
    use super::*;

    fn certificate(name: &str, until: i32) -> Identity {
        let mut parameters = rcgen::CertificateParams::new([name.to_owned()]).expect("parameters");
        parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = parameters.self_signed(&key).expect("a certificate");
        Identity::Certificates(vec![made.der().clone()])
    }

    /// Approximate: an average year.
    fn begin_of(year: u64) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_556_952))
    }

    fn place(peer: &str) -> Place {
        let limits = Limits { total: 1, peer: 1 };
        Places::new("connections", limits).take(peer).expect("a place")
    }

    struct Bench {
        live: Arc<Live>,
        told: Arc<Mutex<Vec<ControlEvent>>>,
    }

    fn access(names: &[(&str, Role)]) -> Access {
        Access {
            certificates: names
                .iter()
                .map(|(name, role)| ((*name).to_owned(), *role))
                .collect(),
            users: [(4_000_000_001, Role::Operator)].into(),
            ..Access::default()
        }
    }

    impl Bench {
        fn new(names: &[(&str, Role)]) -> Bench {
            let told = Arc::new(Mutex::new(Vec::new()));
            let events = told.clone();
            let tell: Tell = Arc::new(move |event| events.lock().expect("events").push(event));
            Bench {
                live: Live::new(access(names), tell),
                told,
            }
        }

        fn enter(&self, who: &str, identity: Identity) -> Alive {
            self.enter_at(who, identity, place("somebody"))
        }

        fn enter_at(&self, who: &str, identity: Identity, place: Place) -> Alive {
            let peer = Peer::new(who.to_owned(), self.live.role(&identity), None);
            self.live.enter(Arc::new(peer), identity, place)
        }

        /// Clients and causes of ended connections.
        fn told(&self) -> Vec<(String, String)> {
            let events = std::mem::take(&mut *self.told.lock().expect("events"));
            let words = |event| match event {
                ControlEvent::ConnectionEnded { by, problem } => (by, problem),
                other => panic!("{other:?}"),
            };
            events.into_iter().map(words).collect()
        }
    }

    fn over(alive: &mut Alive) -> bool {
        alive.poll_over(&mut Context::from_waker(Waker::noop())).is_err()
    }

    #[test]
    fn a_connection_ends_when_its_certificate_expires() {
        let bench = Bench::new(&[("a", Role::Viewer), ("b", Role::Viewer)]);
        let mut first = bench.enter("a", certificate("a", 2030));
        let mut second = bench.enter("b", certificate("b", 2040));
        let user = Identity::User {
            uid: 4_000_000_001,
            gid: 4_000_000_001,
        };
        let mut third = bench.enter("user", user);
        bench.live.expire(begin_of(2029));
        assert!(![&mut first, &mut second, &mut third].into_iter().any(over));
        bench.live.expire(begin_of(2031));
        assert!(over(&mut first) && over(&mut first) && !over(&mut second) && !over(&mut third));
        let told = bench.told();
        assert_eq!((told.len(), told[0].0.as_str()), (1, "a"));
        assert!(told[0].1.contains("expired"), "{told:?}");
        bench.live.expire(begin_of(2041));
        assert!(over(&mut second) && !over(&mut third));
        drop((first, second, third));
        assert!(bench.live.all().is_empty());
    }

    #[test]
    fn the_idlest_connection_of_a_peer_makes_room() {
        let bench = Bench::new(&[]);
        let limits = Limits { total: 8, peer: 3 };
        let places = Places::new("connections", limits);
        let user = Identity::User { uid: 7, gid: 7 };
        let enter = |peer: &str| {
            let place = places.take(peer).expect("a place");
            bench.enter_at(peer, user.clone(), place)
        };
        let client = |alive: &Alive| bench.live.all()[&alive.number].peer.clone();
        let mut other = enter("uid 8");
        let [mut used, mut idle, mut busy] = ["uid 7"; 3].map(enter);
        let stream = InProgress::begin(client(&busy));
        drop(InProgress::begin(client(&used)));
        assert!(places.take("uid 7").is_err());
        let make_room = || bench.live.make_room(&places, "uid 7", "3 connections from uid 7");
        // Its place is free at once.
        assert!(make_room() && places.take("uid 7").is_ok());
        assert!(over(&mut idle) && ![&mut used, &mut busy, &mut other].into_iter().any(over));
        assert!(make_room() && over(&mut used));
        assert!(!make_room() && !over(&mut busy));
        drop(stream);
        assert!(make_room() && over(&mut busy) && !over(&mut other));
        let why =
            "3 connections from uid 7 are allowed, and a new one took the place of this one, which was idle";
        let told = bench.told();
        assert_eq!(told, vec![("uid 7".to_owned(), why.to_owned()); 3]);
    }

    #[test]
    fn a_connection_ends_when_its_role_is_another() {
        let bench = Bench::new(&[("a", Role::Admin), ("b", Role::Viewer)]);
        let mut first = bench.enter("a", certificate("a", 4000));
        let mut second = bench.enter("b", certificate("b", 4000));
        let user = Identity::User {
            uid: 4_000_000_001,
            gid: 4_000_000_001,
        };
        let mut third = bench.enter("user", user);
        let generation = bench.live.generation();
        bench
            .live
            .changed(Some(access(&[("a", Role::Admin), ("b", Role::Viewer)])), None);
        assert!(![&mut first, &mut second, &mut third].into_iter().any(over));
        bench
            .live
            .changed(Some(access(&[("a", Role::Viewer), ("b", Role::Viewer)])), None);
        assert!(over(&mut first) && !over(&mut second) && !over(&mut third));
        let why = "it has viewer now, and had admin".to_owned();
        assert_eq!(bench.told(), [("a".to_owned(), why)]);
        // A client that was accepted before the change and registers after it.
        let identity = certificate("b", 4000);
        let peer = Peer::new("late".to_owned(), Some(Role::Admin), None);
        let mut late = bench.live.enter(Arc::new(peer), identity, place("late"));
        bench.live.look_again(&late, generation, None);
        assert!(over(&mut late));
        bench.live.changed(Some(Access::default()), None);
        assert!(over(&mut second) && over(&mut third));
    }
}
