//! All connections of a device: calls, datagrams and time in, datagrams and events out.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use vnic_wire::cm::{
    About, ApStatus, Apr, Drep, Mad, Message, Reason, Rej, Rep, Req, Rtu, Service, ServiceId, SidrRep,
    SidrReq, SidrStatus,
};
use vnic_wire::gid::Gid;
use vnic_wire::time::Instant;

use super::super::limits::Place;
use super::super::types::AddressVector;
use super::admission::Admission;
use super::connection::{Connection, Local, Patience};
use super::counters::Counters;
use super::event::{ConnectionId, Datagram, Event, Heading};
use super::state::{self, Input, Row, Send, State, Tell};
use super::terms::{Status, Terms};
use super::timing::Timing;

/// What a device may have at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections, those that are over and not gone included, and listeners.
    pub connections: usize,
    /// Connections that peers have begun and that are not established.
    pub under_way: usize,
    /// Requests a second of a source; more are dropped.
    pub requests_per_second: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 131_072,
            under_way: 16_384,
            requests_per_second: 100_000,
        }
    }
}

/// Why a call was refused. It has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CmError {
    /// There is no such connection or listener.
    #[error("there is no such connection or listener")]
    Unknown,
    /// The connection is in a state that does not allow the call.
    #[error("the connection is in the state {0}, which does not allow the call")]
    State(State),
    /// The service is listened for already.
    #[error("the service is listened for already")]
    InUse,
    /// The device has as many connections and listeners as it may have.
    #[error("the device has as many connections and listeners as it may have")]
    Full,
}

/// The upper bits of a number say whose connection it is, among the devices that share a function.
const PLACE_AT: u32 = 26;

/// Who listens for a service.
#[derive(Debug)]
struct Listener {
    number: u32,
    backlog: u32,
    /// Requests that wait for the driver's answer.
    waiting: u32,
}

/// What an input brings with it.
#[derive(Default)]
struct Brings {
    /// The driver's message.
    given: Option<Message>,
    /// The peer's message.
    heard: Option<Mad>,
}

/// Communication management of a device. After each call that takes it by `&mut`, datagrams and events may be there to take.
// Wide: the connections, and each way to find one.
#[derive(Debug)]
pub struct Cm {
    timing: Timing,
    limits: Limits,
    connections: BTreeMap<u32, Connection>,
    /// Connections by source and the peer's number.
    by_remote: BTreeMap<(Gid, u32), u32>,
    /// Connections by source and the peer's queue pair.
    by_qp: BTreeMap<(Gid, u32), u32>,
    deadlines: BTreeSet<(Instant, u32)>,
    listeners: BTreeMap<ServiceId, Listener>,
    /// The services, by their listeners' numbers.
    services: BTreeMap<u32, ServiceId>,
    /// Connections whose REP was sent and that are not established, by the own queue pair.
    by_own_qp: BTreeMap<u32, u32>,
    under_way: usize,
    /// Upper bits of all numbers, and the others.
    numbers: (u32, u32),
    /// Number of the next connection or listener.
    next: u32,
    admission: Admission,
    datagrams: VecDeque<Datagram>,
    /// Connections with something to tell, in the order in which it happened.
    untold: BTreeMap<u64, u32>,
    /// Number of the next thing that happens.
    sequence: u64,
    counters: Counters,
}

impl Cm {
    /// A device without connections. The seed says with which number they begin: a device that starts again must not take
    /// those of its last life.
    pub fn new(timing: Timing, limits: Limits, seed: u32) -> Cm {
        Cm {
            timing,
            limits,
            connections: BTreeMap::new(),
            by_remote: BTreeMap::new(),
            by_qp: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            listeners: BTreeMap::new(),
            services: BTreeMap::new(),
            by_own_qp: BTreeMap::new(),
            under_way: 0,
            numbers: (0, u32::MAX),
            next: seed,
            admission: Admission::default(),
            datagrams: VecDeque::new(),
            untold: BTreeMap::new(),
            sequence: 0,
            counters: Counters::default(),
        }
    }

    /// At a place of a function that several devices share: the upper bits of its numbers are the place's.
    #[must_use]
    pub fn at(mut self, place: Place) -> Cm {
        self.numbers = (u32::from(place.number()) << PLACE_AT, (1 << PLACE_AT) - 1);
        self
    }

    /// Whether a datagram of this heading and source is for this device, among those that share a function.
    pub fn takes(&self, source: Gid, heading: &Heading) -> bool {
        match *heading {
            Heading::Service(service, theirs) => {
                self.listeners.contains_key(&service) || self.by_remote.contains_key(&(source, theirs))
            }
            Heading::Connection(own) => self.numbers.1 != u32::MAX && own & !self.numbers.1 == self.numbers.0,
            Heading::Unnumbered(theirs) => self.by_remote.contains_key(&(source, theirs)),
        }
    }

    /// Listens for a service. At most `backlog` requests wait for the driver's answer; more are rejected.
    pub fn listen(&mut self, service: ServiceId, backlog: u32) -> Result<(), CmError> {
        if self.listeners.contains_key(&service) {
            return Err(CmError::InUse);
        }
        if self.used() >= self.limits.connections {
            return Err(CmError::Full);
        }
        let number = self.number();
        let listener = Listener {
            number,
            backlog,
            waiting: 0,
        };
        self.listeners.insert(service, listener);
        self.services.insert(number, service);
        Ok(())
    }

    /// Listens no more. Requests that came stay until they are answered or destroyed.
    pub fn unlisten(&mut self, service: ServiceId) -> Result<(), CmError> {
        let listener = self.listeners.remove(&service).ok_or(CmError::Unknown)?;
        self.services.remove(&listener.number);
        Ok(())
    }

    /// Asks for a connection. The request's own number is filled in; its response timeout and its retries say how long the
    /// reply is waited for. The caller has checked that the queue pair is the driver's own: a peer ends what it has with that number.
    pub fn connect(
        &mut self,
        now: Instant,
        to: AddressVector,
        request: Req,
    ) -> Result<ConnectionId, CmError> {
        let wait = self.timing.wait(request.remote_response_timeout);
        let patience = Patience::new(wait, request.max_retries);
        let id = self.begin(State::Idle, to, patience)?;
        if let Some(connection) = self.connections.get_mut(&id.0) {
            (connection.local.qp, connection.local.ca_guid) = (request.qp, request.ca_guid);
            connection.terms = Terms::asked(to, &request);
        }
        self.call(now, id, Input::Connect, Some(request.into()))?;
        Ok(id)
    }

    /// Accepts a request. The reply's numbers are filled in.
    pub fn accept(&mut self, now: Instant, id: ConnectionId, reply: Rep) -> Result<(), CmError> {
        self.call(now, id, Input::Accept, Some(reply.into()))?;
        if let Some(connection) = self.connections.get_mut(&id.0) {
            let xrc = connection.terms.is_xrc();
            connection.local.qp = if xrc { reply.eec } else { reply.qp };
            connection.local.ca_guid = reply.ca_guid;
            connection.terms.accept(&reply);
            self.by_own_qp.insert(connection.local.qp, id.0);
        }
        Ok(())
    }

    /// Accepts a reply: the own queue pair is ready. The numbers are filled in.
    pub fn establish(&mut self, now: Instant, id: ConnectionId, ready: Rtu) -> Result<(), CmError> {
        self.call(now, id, Input::Establish, Some(ready.into()))
    }

    /// Rejects a request or a reply. The numbers, and which message it is about, are filled in.
    pub fn reject(&mut self, now: Instant, id: ConnectionId, reject: Rej) -> Result<(), CmError> {
        self.call(now, id, Input::Reject, Some(reject.into()))
    }

    /// Ends a connection, or agrees that the peer ends it.
    pub fn disconnect(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        self.call(now, id, Input::Disconnect, None)
    }

    /// Says that data of the peer has come to the queue pair: an RTU is not needed any more.
    pub fn communicated(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        self.call(now, id, Input::Communicated, None)
    }

    /// As [`communicated`](Cm::communicated), for whatever connection waits for its peer with this queue pair.
    pub fn communicated_at(&mut self, now: Instant, qp: u32) {
        if let Some(&id) = self.by_own_qp.get(&qp) {
            let _ = self.communicated(now, ConnectionId(id));
        }
    }

    /// Asks for the queue pair of a service. The question's number is filled in.
    pub fn resolve(
        &mut self,
        now: Instant,
        to: AddressVector,
        ask: SidrReq,
    ) -> Result<ConnectionId, CmError> {
        let wait = self.timing.wait(self.timing.response_timeout);
        let id = self.begin(State::Idle, to, Patience::new(wait, self.timing.retries))?;
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.terms = Terms::datagram(to, &ask);
        }
        self.call(now, id, Input::Resolve, Some(ask.into()))?;
        Ok(id)
    }

    /// Answers a question for the queue pair of a service. Number and service are filled in.
    pub fn answer(&mut self, now: Instant, id: ConnectionId, answer: SidrRep) -> Result<(), CmError> {
        self.call(now, id, Input::Answer, Some(answer.into()))
    }

    /// Forgets a connection, and tells the peer what the state asks for. What was to be told of it is not told any more.
    pub fn destroy(&mut self, now: Instant, id: ConnectionId) -> Result<(), CmError> {
        let connection = self.owned(id)?;
        connection.orphan = true;
        for (at, _) in core::mem::take(&mut connection.told) {
            self.untold.remove(&at);
        }
        self.call_any(now, id, Input::Destroy, None)
    }

    /// Destroys the first connections of a driver that has gone, at most `most`.
    pub fn destroy_some(&mut self, now: Instant, most: usize) {
        let left = self.connections.iter().filter(|(_, c)| !c.orphan);
        let ids: Vec<_> = left.take(most).map(|(id, _)| ConnectionId(*id)).collect();
        for id in ids {
            let _ = self.destroy(now, id);
        }
    }

    /// The state of a connection that the driver has not destroyed.
    pub fn state(&self, id: ConnectionId) -> Option<State> {
        let connection = self.connections.get(&id.0).filter(|c| !c.orphan)?;
        Some(connection.state)
    }

    /// What is known of a connection that the driver has not destroyed.
    pub fn status(&self, id: ConnectionId) -> Option<Status> {
        let connection = self.connections.get(&id.0).filter(|c| !c.orphan)?;
        Some(connection.status())
    }

    /// The first connections and listeners behind a number (`None`: behind none): connections that are not over or that the driver
    /// has not destroyed.
    pub fn page(&self, behind: Option<u32>, most: usize) -> impl Iterator<Item = Status> {
        let first = behind.map_or(0, |behind| behind.saturating_add(1));
        let connections = self.connections.range(first..);
        let mut connections = connections
            .filter(|(_, c)| !c.orphan || !c.state.over())
            .map(|(_, c)| c.status())
            .peekable();
        let listeners = self.services.range(first..);
        let mut listeners = listeners
            .map(|(number, service)| Status::of_listener(*number, *service))
            .peekable();
        let next = move || match (connections.peek(), listeners.peek()) {
            (Some(c), Some(l)) if c.id < l.id => connections.next(),
            (Some(_), None) => connections.next(),
            _ => listeners.next(),
        };
        core::iter::from_fn(next).take(most)
    }

    /// Whether there is something to tell.
    pub fn has_events(&self) -> bool {
        !self.untold.is_empty()
    }

    /// How many connections there are, those that are over and not gone included.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// How many connections and listeners there are.
    pub fn used(&self) -> usize {
        self.connections.len() + self.listeners.len()
    }

    /// How many of them peers have begun and are not established.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether nothing of any connection is kept: no record, number, timer, or word to its driver.
    pub fn is_clear(&self) -> bool {
        let indices = self.by_remote.is_empty() && self.by_qp.is_empty() && self.by_own_qp.is_empty();
        let indices = indices && self.deadlines.is_empty();
        let waiting = self.listeners.values().all(|listener| listener.waiting == 0);
        self.connections.is_empty() && self.under_way == 0 && indices && waiting && self.untold.is_empty()
    }

    /// Messages by kind.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A datagram to send.
    pub fn transmit(&mut self) -> Option<Datagram> {
        self.datagrams.pop_front()
    }

    /// What there is to tell.
    pub fn poll_event(&mut self) -> Option<Event> {
        let (_, id) = self.untold.pop_first()?;
        let (_, event) = self.connections.get_mut(&id)?.told.pop_front()?;
        Some(event)
    }

    /// When [`handle_timeout`](Cm::handle_timeout) has something to do.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_timeouts(now, usize::MAX);
    }

    /// As [`handle_timeout`](Cm::handle_timeout), for at most `most` connections: if there are more,
    /// [`next_timeout`](Cm::next_timeout) is still not later than `now`.
    pub fn handle_timeouts(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(&(at, id)) = self.deadlines.first() else {
                return;
            };
            if at > now {
                return;
            }
            self.deadlines.pop_first();
            let Some(connection) = self.connections.get_mut(&id) else {
                continue;
            };
            connection.deadline = None;
            let input = match connection.state {
                State::Timewait => Input::TimewaitOver,
                _ if connection.patience.left == 0 => Input::GiveUp,
                _ => Input::Retry,
            };
            self.step(now, id, input, Brings::default());
        }
    }

    /// Takes a datagram that came to queue pair 1.
    pub fn receive(&mut self, now: Instant, from: AddressVector, bytes: &[u8]) {
        let Ok(mad) = Mad::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.cm_rx_msgs[mad.message.attribute().index()] += 1;
        // Numbers of the connection: the own, and the peer's.
        let (input, own, theirs) = match &mad.message {
            Message::Req(req) => return self.request(now, from, &mad, req),
            Message::SidrReq(ask) => return self.question(now, from, &mad, ask),
            Message::Rep(m) => (Input::Rep, m.remote_id, m.local_id),
            Message::Rtu(m) => (Input::Rtu, m.remote_id, m.local_id),
            Message::Dreq(m) => (Input::Dreq, m.remote_id, m.local_id),
            Message::Drep(m) => (Input::Drep, m.remote_id, m.local_id),
            Message::Lap(m) => (Input::Lap, m.remote_id, m.local_id),
            Message::SidrRep(m) => (Input::SidrRep, m.request_id, 0),
            Message::Mra(m) => match m.about {
                About::Req => (Input::MraReq, m.remote_id, m.local_id),
                About::Rep => (Input::MraRep, m.remote_id, m.local_id),
                About::Other | About::Reserved => return self.counters.unknown += 1,
            },
            Message::Rej(m) => {
                let stale = m.reason == Reason::STALE;
                let input = if stale { Input::RejStale } else { Input::Rej };
                // A peer that gave up before it heard the own number names only its own.
                let by_theirs = self.by_remote.get(&(from.dgid, m.local_id));
                let own = by_theirs.filter(|_| m.remote_id == 0).copied();
                (input, own.unwrap_or(m.remote_id), m.local_id)
            }
            Message::Apr(_) => return self.counters.unknown += 1,
        };
        if !self.known(own, from.dgid, theirs, &mad.message) {
            self.counters.unknown += 1;
            return self.disown(from, &mad);
        }
        if let Message::Rep(rep) = &mad.message
            && !self.learn(now, own, rep)
        {
            return;
        }
        let heard = Some(mad);
        let row = self.step(now, own, input, Brings { given: None, heard });
        let repeated = row.is_none_or(|row| matches!(row.send, Send::MraRep | Send::Again));
        self.counters.cm_rx_duplicates[mad.message.attribute().index()] += u64::from(repeated);
    }

    /// Whether these numbers are a connection's, and the message comes from its peer.
    fn known(&self, own: u32, source: Gid, theirs: u32, message: &Message) -> bool {
        let Some(c) = self.connections.get(&own) else {
            return false;
        };
        let numbers = theirs == 0 || c.remote_id == 0 || c.remote_id == theirs;
        let right = match message {
            Message::Dreq(dreq) => dreq.remote_qp == c.local.qp,
            _ => true,
        };
        c.state != State::Idle && c.peer.dgid == source && numbers && right
    }

    /// Answers a message about a connection that there is not, so that the peer need not wait.
    fn disown(&mut self, to: AddressVector, mad: &Mad) {
        let message = match &mad.message {
            Message::Dreq(dreq) => Message::from(Drep {
                local_id: dreq.remote_id,
                remote_id: dreq.local_id,
                ..Drep::default()
            }),
            Message::Rep(rep) => Message::from(Rej {
                local_id: rep.remote_id,
                remote_id: rep.local_id,
                about: About::Rep,
                reason: Reason::INVALID_ID,
                ..Rej::default()
            }),
            Message::Lap(lap) => Message::from(Apr {
                local_id: lap.remote_id,
                remote_id: lap.local_id,
                status: ApStatus::INVALID_ID,
                ..Apr::default()
            }),
            _ => return,
        };
        self.send((to, 0), mad.transaction, message);
    }

    /// Takes what a reply says of the peer. A peer's queue pair that has another connection is refused, and the other ends.
    fn learn(&mut self, now: Instant, own: u32, rep: &Rep) -> bool {
        let Some(c) = self.connections.get_mut(&own) else {
            return false;
        };
        if !matches!(c.state, State::ReqSent | State::MraReqReceived) {
            return true;
        }
        let remote_qp = if c.terms.is_xrc() { rep.eec } else { rep.qp };
        (c.remote_id, c.remote_qp) = (rep.local_id, remote_qp);
        c.terms.learn(rep);
        let (to, pkey, transaction) = (c.peer, c.terms.pkey, c.transaction);
        if self.is_stale(now, to.dgid, remote_qp) {
            let rej = Rej {
                local_id: own,
                remote_id: rep.local_id,
                about: About::Rep,
                reason: Reason::STALE,
                ..Rej::default()
            };
            self.send((to, pkey), transaction, rej.into());
            let heard = Mad {
                transaction,
                message: rej.into(),
            };
            let heard = Some(heard);
            self.step(now, own, Input::Rej, Brings { given: None, heard });
            return false;
        }
        self.by_remote.insert((to.dgid, rep.local_id), own);
        self.by_qp.insert((to.dgid, remote_qp), own);
        true
    }

    /// Whether a peer's queue pair has a connection already: then the peer has forgotten it, and it ends (12.9.8.3.1).
    fn is_stale(&mut self, now: Instant, source: Gid, qp: u32) -> bool {
        let Some(&id) = self.by_qp.get(&(source, qp)) else {
            return false;
        };
        if self.connections.get(&id).is_none_or(|c| c.state.over()) {
            return false;
        }
        self.step(now, id, Input::Stale, Brings::default());
        true
    }

    /// A REQ.
    fn request(&mut self, now: Instant, from: AddressVector, mad: &Mad, req: &Req) {
        let limit = self.limits.requests_per_second;
        if !self.admission.admits(now, from.dgid, limit) {
            self.counters.over_rate += 1;
            return;
        }
        let key = (from.dgid, req.local_id);
        if let Some(&id) = self.by_remote.get(&key) {
            let connection = self.connections.get(&id);
            if connection.is_some_and(|c| c.transaction == mad.transaction) {
                self.counters.cm_rx_duplicates[mad.message.attribute().index()] += 1;
                self.step(now, id, Input::Req, Brings::default());
                return;
            }
        }
        if let Err(reason) = self.take(now, from, mad, req) {
            let rej = Rej {
                remote_id: req.local_id,
                about: About::Req,
                reason,
                ..Rej::default()
            };
            self.send((from, req.pkey), mad.transaction, rej.into());
        }
    }

    /// Begins a connection for a REQ, or says why not.
    fn take(&mut self, now: Instant, from: AddressVector, mad: &Mad, req: &Req) -> Result<(), Reason> {
        let service = (req.service, req.extended);
        if !matches!(service, (Service::Rc | Service::Uc, _) | (Service::Extended, 1)) {
            return Err(Reason::INVALID_SERVICE_TYPE);
        }
        if !(1..=5).contains(&req.mtu) {
            return Err(Reason::INVALID_MTU);
        }
        if self.is_stale(now, from.dgid, req.qp) {
            return Err(Reason::STALE);
        }
        let wait = self.timing.wait(req.local_response_timeout);
        let patience = Patience::new(wait, req.max_retries);
        let id = self.admit(req.service_id, State::ReqReceived, from, patience)?;
        if let Some(c) = self.connections.get_mut(&id.0) {
            (c.remote_id, c.remote_qp) = (req.local_id, req.qp);
            c.transaction = mad.transaction;
            c.terms = Terms::heard(from, req);
        }
        self.by_remote.insert((from.dgid, req.local_id), id.0);
        self.by_qp.insert((from.dgid, req.qp), id.0);
        self.say(Event::Request {
            id,
            peer: from,
            request: Box::new(*req),
        });
        Ok(())
    }

    /// A SIDR_REQ. One that comes again while the driver has not answered is left alone, and later ones are asked anew.
    fn question(&mut self, now: Instant, from: AddressVector, mad: &Mad, ask: &SidrReq) {
        let limit = self.limits.requests_per_second;
        if !self.admission.admits(now, from.dgid, limit) {
            self.counters.over_rate += 1;
            return;
        }
        let key = (from.dgid, ask.request_id);
        let same = |c: &Connection| c.transaction == mad.transaction && c.state == State::SidrReqReceived;
        let waits = self.by_remote.get(&key).and_then(|id| self.connections.get(id));
        if waits.is_some_and(same) {
            self.counters.cm_rx_duplicates[mad.message.attribute().index()] += 1;
            return;
        }
        let patience = Patience::new(self.timing.ack_timeout(), 1);
        match self.admit(ask.service_id, State::SidrReqReceived, from, patience) {
            Ok(id) => {
                if let Some(c) = self.connections.get_mut(&id.0) {
                    (c.remote_id, c.transaction) = (ask.request_id, mad.transaction);
                    c.terms = Terms::datagram(from, ask);
                }
                self.by_remote.insert(key, id.0);
                self.say(Event::SidrRequest {
                    id,
                    peer: from,
                    request: Box::new(*ask),
                });
            }
            Err(reason) => {
                let unserved = reason == Reason::INVALID_SERVICE_ID;
                let answer = SidrRep {
                    request_id: ask.request_id,
                    status: if unserved {
                        SidrStatus::UNSUPPORTED
                    } else {
                        SidrStatus::REJECTED
                    },
                    service_id: ask.service_id,
                    ..SidrRep::default()
                };
                self.send((from, ask.pkey), mad.transaction, answer.into());
            }
        }
    }

    /// Makes a connection that a peer has begun, if somebody listens and there is room.
    fn admit(
        &mut self,
        service: ServiceId,
        state: State,
        peer: AddressVector,
        patience: Patience,
    ) -> Result<ConnectionId, Reason> {
        let listener = self
            .listeners
            .get_mut(&service)
            .ok_or(Reason::INVALID_SERVICE_ID)?;
        if listener.waiting >= listener.backlog || self.under_way >= self.limits.under_way {
            return Err(Reason::NO_RESOURCES);
        }
        let number = listener.number;
        let begun = self.begin(state, peer, patience);
        let id = begun.map_err(|_| Reason::NO_RESOURCES)?;
        self.under_way += 1;
        if let Some(listener) = self.listeners.get_mut(&service) {
            listener.waiting += 1;
        }
        if let Some(c) = self.connections.get_mut(&id.0) {
            c.listener = Some((service, number));
        }
        Ok(id)
    }

    /// A number that no connection and no listener has.
    fn number(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            let id = self.numbers.0 | self.next & self.numbers.1;
            if id != 0 && !self.connections.contains_key(&id) && !self.services.contains_key(&id) {
                return id;
            }
        }
    }

    /// Makes a connection with a number of its own.
    fn begin(
        &mut self,
        state: State,
        peer: AddressVector,
        patience: Patience,
    ) -> Result<ConnectionId, CmError> {
        if self.used() >= self.limits.connections {
            return Err(CmError::Full);
        }
        let id = self.number();
        let connection = Connection {
            state,
            peer,
            remote_id: 0,
            remote_qp: 0,
            terms: Terms::default(),
            local: Local {
                id,
                ..Local::default()
            },
            transaction: u64::from(id) << 32 | 1,
            last: None,
            deadline: None,
            patience,
            listener: None,
            told: VecDeque::new(),
            orphan: false,
        };
        self.connections.insert(id, connection);
        Ok(ConnectionId(id))
    }

    /// A connection that the driver has not destroyed.
    fn owned(&mut self, id: ConnectionId) -> Result<&mut Connection, CmError> {
        let connection = self.connections.get_mut(&id.0);
        connection.filter(|c| !c.orphan).ok_or(CmError::Unknown)
    }

    /// A call of the driver's.
    fn call(
        &mut self,
        now: Instant,
        id: ConnectionId,
        input: Input,
        given: Option<Message>,
    ) -> Result<(), CmError> {
        self.owned(id)?;
        self.call_any(now, id, input, given)
    }

    fn call_any(
        &mut self,
        now: Instant,
        id: ConnectionId,
        input: Input,
        given: Option<Message>,
    ) -> Result<(), CmError> {
        let state = self.connections.get(&id.0).map(|c| c.state);
        let state = state.ok_or(CmError::Unknown)?;
        let row = self.step(now, id.0, input, Brings { given, heard: None });
        row.map(|_| ()).ok_or(CmError::State(state))
    }

    /// Does what the table says.
    fn step(&mut self, now: Instant, id: u32, input: Input, brings: Brings) -> Option<Row> {
        let c = self.connections.get_mut(&id)?;
        let row = state::step(c.state, input)?;
        let (to, before) = (c.peer, c.state);
        let again = c.answers(input).filter(|_| row.send == Send::Again);
        let message = c.compose(row.send, brings.given, self.timing.service_timeout);
        let fresh = message.map(|message| Mad {
            transaction: match (row.send, &brings.heard) {
                (Send::Dreq, _) => u64::from(id) << 32 | 2,
                (Send::Drep | Send::Apr, Some(heard)) => heard.transaction,
                // A DREQ's answer that the driver gives.
                (Send::Drep, None) => c.last.as_deref().map_or(c.transaction, |mad| mad.transaction),
                _ => c.transaction,
            },
            message,
        });
        c.state = row.next;
        match input {
            Input::MraReq | Input::MraRep => {
                if let Some(Message::Mra(mra)) = brings.heard.map(|mad| mad.message) {
                    let longer = self.timing.wait_longer(mra.service_timeout);
                    c.patience.now = c.patience.first.max(longer);
                }
            }
            Input::Retry => c.patience.left -= 1,
            // Its transaction is that of the answer.
            Input::Dreq if row.next == State::DreqReceived => c.last = brings.heard.map(Box::new),
            _ => {}
        }
        if matches!(row.send, Send::Req | Send::Rep | Send::Dreq | Send::SidrReq) {
            (c.patience.now, c.patience.left) = (c.patience.first, c.patience.sends - 1);
        }
        let kept = !matches!(row.send, Send::MraReq | Send::MraRep | Send::Apr);
        if let Some(mad) = fresh.filter(|_| kept) {
            c.last = Some(Box::new(mad));
        }
        if row.next == State::Established && before != State::Established && row.send != Send::Rtu {
            c.last = None;
        }
        let refused = c
            .last
            .as_deref()
            .is_some_and(|mad| matches!(mad.message, Message::Rej(_)));
        let wait = match row.next {
            // Longer than the peer waits: its message may come once more.
            State::Timewait if refused => Some(2 * c.patience.first),
            State::Timewait => Some(self.timing.timewait(c.terms.ack_timeout)),
            next if next.waits() => Some(c.patience.now),
            _ => None,
        };
        // What repeats an answer does not put off the own message, but who rejects stays as long as it has to.
        let repeats = again.is_some() && (input == Input::Retry || row.next == State::Timewait);
        if before != row.next || repeats {
            let at = wait.map(|wait| now + wait);
            let past = core::mem::replace(&mut c.deadline, at);
            if let Some(past) = past {
                self.deadlines.remove(&(past, id));
            }
            if let Some(at) = at {
                self.deadlines.insert((at, id));
            }
        }
        let (orphan, listener, own_qp, pkey) = (c.orphan, c.listener, c.local.qp, c.terms.pkey);
        if let Some(mad) = again.or(fresh) {
            self.counters.cm_tx_retries[mad.message.attribute().index()] += u64::from(input == Input::Retry);
            self.send((to, pkey), mad.transaction, mad.message);
        }
        self.count(before, row.next, listener);
        self.tally(before, input, row.next, listener.is_some());
        if before.replied() && !row.next.replied() && self.by_own_qp.get(&own_qp) == Some(&id) {
            self.by_own_qp.remove(&own_qp);
        }
        if !orphan {
            self.tell(ConnectionId(id), row.tell, brings.heard);
        } else if row.next == State::Idle {
            self.free(id);
        }
        Some(row)
    }

    /// Counts connections: those that are made, and what becomes of them and of the attempts.
    fn tally(&mut self, before: State, input: Input, after: State, passive: bool) {
        let counters = &mut self.counters;
        // (A DREQ instead of the RTU: the peer has been connected.)
        let made = after == State::Established || before.replied() && after == State::DreqReceived;
        if made && before != State::Established {
            match passive {
                true => counters.accepted += 1,
                false => counters.initiated += 1,
            }
        }
        if (made || before == State::Established) && after != State::Established {
            counters.ended += 1;
            counters.broken += u64::from(matches!(input, Input::Rej | Input::RejStale | Input::Stale));
        }
        counters.failed += u64::from(before.connecting() && after.over());
    }

    /// Keeps the numbers of connections that are under way and of requests that wait.
    fn count(&mut self, before: State, after: State, listener: Option<(ServiceId, u32)>) {
        self.under_way -= usize::from(before.under_way() && !after.under_way());
        if !before.unanswered() || after.unanswered() {
            return;
        }
        let Some((service, number)) = listener else {
            return;
        };
        if let Some(listener) = self.listeners.get_mut(&service)
            && listener.number == number
        {
            listener.waiting -= 1;
        }
    }

    fn tell(&mut self, id: ConnectionId, tell: Tell, heard: Option<Mad>) {
        let event = match (tell, heard.map(|mad| mad.message)) {
            (Tell::Nothing, _) => return,
            (Tell::Response, Some(Message::Rep(reply))) => Event::Response {
                id,
                reply: Box::new(reply),
            },
            (Tell::SidrReply, Some(Message::SidrRep(reply))) => Event::SidrReply {
                id,
                reply: Box::new(reply),
            },
            (Tell::Rejected, Some(Message::Rej(reject))) => Event::Rejected {
                id,
                reject: Box::new(reject),
            },
            // The peer has forgotten the connection.
            (Tell::Rejected, _) => Event::Rejected {
                id,
                reject: Box::new(Rej {
                    reason: Reason::STALE,
                    ..Rej::default()
                }),
            },
            (Tell::Established, _) => Event::Established { id },
            (Tell::Unreachable, _) => Event::Unreachable { id },
            (Tell::Disconnected, _) => Event::Disconnected { id },
            (Tell::TimewaitExit, _) => Event::TimewaitExit { id },
            (Tell::Response | Tell::SidrReply, _) => return,
        };
        self.say(event);
    }

    /// Keeps an event until the driver takes it, or destroys the connection.
    fn say(&mut self, event: Event) {
        let id = event.id().0;
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.told.push_back((self.sequence, event));
            self.untold.insert(self.sequence, id);
            self.sequence += 1;
        }
    }

    /// A connection is gone.
    fn free(&mut self, id: u32) {
        let Some(c) = self.connections.remove(&id) else {
            return;
        };
        if let Some(at) = c.deadline {
            self.deadlines.remove(&(at, id));
        }
        let remote = (c.peer.dgid, c.remote_id);
        if self.by_remote.get(&remote) == Some(&id) {
            self.by_remote.remove(&remote);
        }
        let qp = (c.peer.dgid, c.remote_qp);
        if self.by_qp.get(&qp) == Some(&id) {
            self.by_qp.remove(&qp);
        }
    }

    fn send(&mut self, (to, pkey): (AddressVector, u16), transaction: u64, message: Message) {
        self.counters.cm_tx_msgs[message.attribute().index()] += 1;
        let mad = Mad { transaction, message };
        self.datagrams.push_back(Datagram { to, pkey, mad });
    }
}
