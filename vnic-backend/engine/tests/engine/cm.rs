//! Communication management: the table of states printed in full, and what two devices, or one and a stranger, make of it.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine cm::` writes the text of the table anew.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fmt::Write;
use std::time::Duration;

use expect_test::expect_file;
use vnic_engine::rdma::AddressVector;
use vnic_engine::rdma::cm::state::{Input, Send, State, Tell, step};
use vnic_engine::rdma::cm::{Cm, CmError, ConnectionId, Counters, Datagram, Event, Limits, Timing};
use vnic_wire::MacAddr;
use vnic_wire::cm::{
    About, ApStatus, Attribute, Dreq, Lap, Mad, Message, PortSpace, Private, Reason, Rej, Rep, Req, Rtu,
    Service, ServiceId, SidrRep, SidrReq, SidrStatus,
};
use vnic_wire::gid::Gid;
use vnic_wire::psn::Psn;
use vnic_wire::time::Instant;

mod ends;
mod listing;
mod strangers;
mod waits;

const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7471);

fn address(n: u8) -> AddressVector {
    AddressVector {
        dgid: Gid::from_ipv4([10, 0, 0, n]),
        dmac: MacAddr([2, 0, 0, 0, 0, n]),
        sgid_index: 0,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        service_level: 0,
    }
}

fn request(qp: u32) -> Req {
    Req {
        service_id: SERVICE,
        ca_guid: 0x11,
        qp,
        psn: Psn::new(100),
        mtu: 3,
        pkey: 0xffff,
        remote_response_timeout: 22,
        local_response_timeout: 22,
        max_retries: 15,
        private: Private::new(b"ask").unwrap(),
        ..Req::default()
    }
}

fn reply(qp: u32) -> Rep {
    Rep {
        ca_guid: 0x22,
        qp,
        psn: Psn::new(200),
        private: Private::new(b"answer").unwrap(),
        ..Rep::default()
    }
}

/// Devices 1 and 2, and the datagrams between them.
struct Pair {
    now: Instant,
    cm: [Cm; 2],
}

impl Pair {
    fn new() -> Pair {
        Pair::with(Limits::default())
    }

    fn with(limits: Limits) -> Pair {
        let cm = [7, 1000].map(|seed| Cm::new(Timing::default(), limits, seed));
        let mut pair = Pair { now: Instant(0), cm };
        pair.cm[1].listen(SERVICE, 8).unwrap();
        pair
    }

    /// What a side has sent.
    fn sent(&mut self, side: usize) -> Vec<Datagram> {
        std::iter::from_fn(|| self.cm[side].transmit()).collect()
    }

    /// Hands a datagram of one side to the other.
    fn give(&mut self, from: usize, datagram: &Datagram) {
        let source = address(from as u8 + 1);
        self.cm[1 - from].receive(self.now, source, &datagram.mad.emit());
    }

    /// Hands over all that is and will be sent at this time. Returns the messages in order, with their senders.
    fn exchange(&mut self) -> Vec<(usize, Attribute)> {
        let mut log = Vec::new();
        loop {
            let before = log.len();
            for side in 0..2 {
                for datagram in self.sent(side) {
                    log.push((side, datagram.mad.message.attribute()));
                    self.give(side, &datagram);
                }
            }
            if log.len() == before {
                return log;
            }
        }
    }

    /// Loses what is sent. Returns which messages these were.
    fn lose(&mut self) -> Vec<(usize, Attribute)> {
        let lost = |side: usize, pair: &mut Pair| -> Vec<_> {
            let all = pair.sent(side);
            all.iter().map(|d| (side, d.mad.message.attribute())).collect()
        };
        let mut log = lost(0, self);
        log.extend(lost(1, self));
        log
    }

    /// Waits until a timer of one of the two has fired. Returns the time since the start, in ms.
    fn wait(&mut self) -> Option<u64> {
        let next = self.cm.iter().filter_map(Cm::next_timeout).min()?;
        self.now = self.now.max(next);
        for cm in &mut self.cm {
            cm.handle_timeout(self.now);
        }
        Some(self.now.0 / 1_000_000)
    }

    fn events(&mut self, side: usize) -> Vec<Event> {
        std::iter::from_fn(|| self.cm[side].poll_event()).collect()
    }

    fn event(&mut self, side: usize) -> Event {
        let mut events = self.events(side);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    fn connect(&mut self, qp: u32) -> ConnectionId {
        self.cm[0].connect(self.now, address(2), request(qp)).unwrap()
    }

    /// Connects up to a state of the passive side's, with queue pairs 1 and 2.
    fn requested(&mut self) -> [ConnectionId; 2] {
        let a = self.connect(1);
        self.exchange();
        let Event::Request { id: b, .. } = self.event(1) else {
            panic!("no request");
        };
        [a, b]
    }

    fn replied(&mut self) -> [ConnectionId; 2] {
        let [a, b] = self.requested();
        self.cm[1].accept(self.now, b, reply(2)).unwrap();
        self.exchange();
        assert!(matches!(self.event(0), Event::Response { .. }));
        [a, b]
    }

    fn established(&mut self) -> [ConnectionId; 2] {
        let [a, b] = self.replied();
        self.cm[0].establish(self.now, a, Rtu::default()).unwrap();
        self.exchange();
        assert_eq!(self.event(1), Event::Established { id: b });
        assert_eq!(self.states([a, b]), [Some(State::Established); 2]);
        [a, b]
    }

    fn states(&self, [a, b]: [ConnectionId; 2]) -> [Option<State>; 2] {
        [self.cm[0].state(a), self.cm[1].state(b)]
    }

    /// Destroys what there is, lets all timers fire and messages pass: nothing is left.
    fn nothing_is_left(&mut self, ids: &[(usize, ConnectionId)]) {
        for (side, id) in ids {
            self.cm[*side].destroy(self.now, *id).unwrap();
            assert_eq!(self.cm[*side].state(*id), None);
            let again = self.cm[*side].destroy(self.now, *id);
            assert_eq!(again, Err(CmError::Unknown));
        }
        self.exchange();
        while self.wait().is_some() {
            self.exchange();
        }
        for cm in &self.cm {
            assert!(cm.is_clear(), "{cm:?}");
            let Counters {
                accepted,
                initiated,
                ended,
                ..
            } = cm.counters();
            assert_eq!(accepted + initiated, *ended, "{cm:?}");
        }
    }
}

const TX: usize = 0;
const RX: usize = 1;

/// Messages of a kind that a side has sent or taken.
fn count(pair: &Pair, side: usize, way: usize, attribute: Attribute) -> u64 {
    let counters = pair.cm[side].counters();
    [counters.cm_tx_msgs, counters.cm_rx_msgs][way][attribute.index()]
}

#[test]
fn the_whole_table() {
    let mut out = String::new();
    for state in State::ALL {
        writeln!(out, "# {state}").unwrap();
        for input in Input::ALL {
            let Some(row) = step(state, input) else { continue };
            write!(out, "{:<18} -> {:<18}", input.name(), row.next.name()).unwrap();
            if row.send != Send::Nothing {
                write!(out, " sends {:?}", row.send).unwrap();
            }
            if row.tell != Tell::Nothing {
                write!(out, " tells {:?}", row.tell).unwrap();
            }
            out.truncate(out.trim_end().len());
            writeln!(out).unwrap();
        }
        writeln!(out).unwrap();
    }
    expect_file!["../snapshots/cm_states.txt"].assert_eq(&out);
}

#[test]
fn the_table_has_no_dead_end() {
    // (Nobody is connected in Listen: `unlisten` ends it.)
    for state in State::ALL.into_iter().filter(|state| *state != State::Listen) {
        let destroyed = step(state, Input::Destroy);
        assert!(destroyed.is_some(), "{state} cannot be destroyed");
        // Who waits gives up at last; what nobody waits for is over, or the driver's turn.
        assert_eq!(step(state, Input::Retry).is_some(), state.waits(), "{state}");
        assert_eq!(step(state, Input::GiveUp).is_some(), state.waits(), "{state}");
        assert_eq!(
            step(state, Input::TimewaitOver).is_some(),
            state == State::Timewait
        );
        for input in Input::ALL {
            let Some(row) = step(state, input) else { continue };
            // A connection that was begun by a peer does not come back to where it was unanswered.
            assert!(!row.next.unanswered() || state.unanswered(), "{state} {input}");
            assert!(!row.next.under_way() || state.under_way(), "{state} {input}");
        }
    }
}

#[test]
fn two_connect_and_disconnect() {
    let mut pair = Pair::new();
    let a = pair.connect(1);
    assert_eq!(pair.exchange(), [(0, Attribute::Req)]);
    let Event::Request {
        id: b,
        peer,
        request: req,
    } = pair.event(1)
    else {
        panic!("no request");
    };
    assert_eq!((peer, req.qp, req.psn.value()), (address(1), 1, 100));
    assert_eq!(&req.private.0[..3], b"ask");
    assert_eq!(
        pair.states([a, b]),
        [Some(State::ReqSent), Some(State::ReqReceived)]
    );
    assert_eq!(pair.cm[1].under_way(), 1);

    pair.cm[1].accept(pair.now, b, reply(2)).unwrap();
    assert_eq!(pair.exchange(), [(1, Attribute::Rep)]);
    let Event::Response { id, reply: rep } = pair.event(0) else {
        panic!("no response");
    };
    assert_eq!((id, rep.qp, &rep.private.0[..6]), (a, 2, &b"answer"[..]));
    assert_eq!((rep.local_id, rep.remote_id), (b.0, a.0));

    pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
    assert_eq!(pair.exchange(), [(0, Attribute::Rtu)]);
    assert_eq!(pair.event(1), Event::Established { id: b });
    assert_eq!((pair.events(0), pair.cm[1].under_way()), (vec![], 0));
    // Nothing of an established connection is due.
    assert_eq!(pair.cm.each_ref().map(Cm::next_timeout), [None; 2]);

    pair.cm[0].disconnect(pair.now, a).unwrap();
    assert_eq!(pair.exchange(), [(0, Attribute::Dreq)]);
    assert_eq!(pair.event(1), Event::Disconnected { id: b });
    pair.cm[1].disconnect(pair.now, b).unwrap();
    assert_eq!(pair.exchange(), [(1, Attribute::Drep)]);
    assert_eq!(pair.event(0), Event::Disconnected { id: a });
    assert_eq!(pair.states([a, b]), [Some(State::Timewait); 2]);
    // The ACK timeout of the path.
    assert_eq!(pair.wait(), Some(2048));
    assert_eq!(pair.event(0), Event::TimewaitExit { id: a });
    assert_eq!(pair.event(1), Event::TimewaitExit { id: b });
    for (side, way, other) in [(0, TX, 1), (1, TX, 0)] {
        for attribute in Attribute::ALL {
            let sent = count(&pair, side, way, attribute);
            assert_eq!(sent, count(&pair, other, RX, attribute));
            let wanted = match side {
                0 => [Attribute::Req, Attribute::Rtu, Attribute::Dreq].contains(&attribute),
                _ => [Attribute::Rep, Attribute::Drep].contains(&attribute),
            };
            assert_eq!(sent, u64::from(wanted), "{side} {attribute}");
        }
    }
    pair.nothing_is_left(&[(0, a), (1, b)]);
}

#[test]
fn services_of_datagrams_are_resolved() {
    let service = ServiceId::of_port(PortSpace::Udp, 7);
    let ask = SidrReq {
        pkey: 0xffff,
        service_id: service,
        private: Private::new(b"who").unwrap(),
        ..SidrReq::default()
    };
    let mut pair = Pair::new();
    pair.cm[1].listen(service, 1).unwrap();
    let a = pair.cm[0].resolve(pair.now, address(2), ask).unwrap();
    let sent = pair.sent(0).remove(0);
    pair.give(0, &sent);
    pair.give(0, &sent);
    let Event::SidrRequest { id: b, request, .. } = pair.event(1) else {
        panic!("no question")
    };
    assert_eq!(&request.private.0[..3], b"who");
    let answer = SidrRep {
        qp: 0x123,
        qkey: 0x456,
        ..SidrRep::default()
    };
    pair.cm[1].answer(pair.now, b, answer).unwrap();
    pair.exchange();
    let Event::SidrReply { id, reply } = pair.event(0) else {
        panic!("no answer")
    };
    assert_eq!(
        (id, reply.qp, reply.qkey, reply.service_id),
        (a, 0x123, 0x456, service)
    );
    pair.nothing_is_left(&[(0, a), (1, b)]);

    // Nobody serves it; who serves it goes; nobody answers.
    let other = SidrReq {
        service_id: ServiceId(1),
        ..ask
    };
    let status = |pair: &mut Pair| match pair.event(0) {
        Event::SidrReply { reply, .. } => reply.status,
        other => panic!("{other:?}"),
    };
    let a = pair.cm[0].resolve(pair.now, address(2), other).unwrap();
    pair.exchange();
    assert_eq!(status(&mut pair), SidrStatus::UNSUPPORTED);
    let c = pair.cm[0].resolve(pair.now, address(2), ask).unwrap();
    pair.exchange();
    let b = pair.event(1).id();
    let d = pair.cm[0].resolve(pair.now, address(2), ask).unwrap();
    pair.exchange();
    assert_eq!(status(&mut pair), SidrStatus::REJECTED, "the backlog is full");
    pair.cm[1].destroy(pair.now, b).unwrap();
    pair.exchange();
    assert_eq!(status(&mut pair), SidrStatus::REJECTED);
    let e = pair.cm[0].resolve(pair.now, address(2), ask).unwrap();
    for _ in 0..15 {
        assert_eq!(pair.lose(), [(0, Attribute::SidrReq)]);
        pair.wait();
    }
    assert_eq!(pair.event(0), Event::Unreachable { id: e });
    pair.nothing_is_left(&[(0, a), (0, c), (0, d), (0, e)]);
}
