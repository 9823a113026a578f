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

mod listing;

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

/// The documents' first example: a server never hears the request. First wait 2 × packet lifetime + response timeout:
/// 2 × 1,024 + 16,384 = 18,432 ms, fifteen times.
#[test]
fn a_request_that_is_never_heard_waits_18_432_ms_fifteen_times() {
    let mut pair = Pair::new();
    let a = pair.connect(1);
    for n in 1..=15 {
        assert_eq!(pair.lose(), [(0, Attribute::Req)], "{n}");
        assert_eq!(pair.events(0), []);
        assert_eq!(pair.wait(), Some(18_432 * n));
    }
    assert_eq!(pair.now, Instant(276_480 * 1_000_000));
    assert_eq!(pair.event(0), Event::Unreachable { id: a });
    let counters = pair.cm[0].counters();
    assert_eq!(counters.cm_tx_msgs[Attribute::Req.index()], 15);
    assert_eq!(counters.cm_tx_retries[Attribute::Req.index()], 14);
    // It says so, in case the server only could not answer.
    let [rej] = &pair.sent(0)[..] else {
        panic!("no REJ")
    };
    let Message::Rej(rej) = rej.mad.message else {
        panic!("{rej:?}")
    };
    assert_eq!(
        (rej.local_id, rej.remote_id, rej.reason),
        (a.0, 0, Reason::TIMEOUT)
    );
    assert_eq!((rej.info_len, &rej.info[..8]), (8, &0x11_u64.to_be_bytes()[..]));
    pair.nothing_is_left(&[(0, a)]);
}

/// The documents' second example: the server hears, its program does not answer. From the first MRA on each wait is service
/// timeout + ACK timeout: 65,536 + 2,048 = 67,584 ms. (The document prints 67,854; its own formula, made of powers of two,
/// cannot give that.)
#[test]
fn a_program_that_does_not_answer_is_waited_for_67_584_ms_fourteen_times() {
    let mut pair = Pair::new();
    let [a, b] = pair.requested();
    assert_eq!(pair.wait(), Some(18_432));
    assert_eq!(pair.exchange(), [(0, Attribute::Req), (1, Attribute::Mra)]);
    for n in 1..14 {
        assert_eq!(
            pair.states([a, b]),
            [Some(State::MraReqReceived), Some(State::MraReqSent)]
        );
        assert_eq!(pair.wait(), Some(18_432 + 67_584 * n), "{n}");
        assert_eq!(pair.exchange(), [(0, Attribute::Req), (1, Attribute::Mra)]);
    }
    assert_eq!(pair.wait(), Some(18_432 + 67_584 * 14));
    assert_eq!(pair.event(0), Event::Unreachable { id: a });
    assert_eq!(pair.exchange(), [(0, Attribute::Rej)]);
    let Event::Rejected { id, reject } = pair.event(1) else {
        panic!("not told")
    };
    assert_eq!((id, reject.reason), (b, Reason::TIMEOUT));
    let [sent, heard] = [0, 1].map(|side| *pair.cm[side].counters());
    assert_eq!(sent.cm_rx_duplicates[Attribute::Mra.index()], 13);
    assert_eq!(heard.cm_rx_duplicates[Attribute::Req.index()], 14);
    pair.nothing_is_left(&[(0, a), (1, b)]);
}

#[test]
fn waits_are_what_the_messages_say() {
    let timing = Timing::default();
    let ms = Duration::from_millis;
    assert_eq!(timing.wait(22), ms(18_432));
    assert_eq!(timing.wait_longer(24), ms(67_584));
    // Less than 2^8 counts as 1 ms; nobody waits for more than 2^24.
    assert_eq!(timing.wait(0), ms(2_049));
    assert_eq!(timing.wait(31), ms(2_048 + 65_536));
    let mut pair = Pair::new();
    let quick = Req {
        remote_response_timeout: 12,
        max_retries: 0,
        ..request(1)
    };
    let a = pair.cm[0].connect(pair.now, address(2), quick).unwrap();
    assert_eq!(pair.wait(), Some(2_064), "once is the least");
    assert_eq!(pair.event(0), Event::Unreachable { id: a });
    pair.lose();
    pair.nothing_is_left(&[(0, a)]);
}

/// A network that repeats a REQ makes the peer send an MRA; one with a short service timeout does not make the wait shorter.
#[test]
fn an_mra_never_shortens_a_wait() {
    let mut pair = Pair::new();
    let short = Timing {
        service_timeout: 8,
        ..Timing::default()
    };
    pair.cm[1] = Cm::new(short, Limits::default(), 1000);
    pair.cm[1].listen(SERVICE, 1).unwrap();
    let a = pair.connect(1);
    let req = pair.sent(0).remove(0);
    pair.give(0, &req);
    pair.give(0, &req);
    assert_eq!(pair.exchange(), [(1, Attribute::Mra)]);
    assert_eq!(pair.cm[0].state(a), Some(State::MraReqReceived));
    assert_eq!(pair.wait(), Some(18_432));
}

#[test]
fn a_request_that_comes_again_gets_the_same_answer() {
    // A lost REP is sent again because of the REQ, not only by its own timer.
    let mut pair = Pair::new();
    let a = pair.connect(1);
    let req = pair.sent(0).remove(0);
    pair.give(0, &req);
    let Event::Request { id: b, .. } = pair.event(1) else {
        panic!("no request")
    };
    pair.cm[1].accept(pair.now, b, reply(2)).unwrap();
    let first = pair.sent(1);
    pair.give(0, &req);
    assert_eq!(pair.sent(1), first);
    assert_eq!(pair.events(1), []);
    // The other side does with one what it does with two.
    pair.give(1, &first[0]);
    assert!(matches!(pair.event(0), Event::Response { .. }));
    pair.give(1, &first[0]);
    assert_eq!(pair.exchange(), [(0, Attribute::Mra)]);
    assert_eq!(
        pair.states([a, b]),
        [Some(State::MraRepSent), Some(State::MraRepReceived)]
    );
    pair.nothing_is_left(&[(0, a), (1, b)]);

    // A lost REJ.
    let mut pair = Pair::new();
    let a = pair.connect(1);
    let req = pair.sent(0).remove(0);
    pair.give(0, &req);
    let Event::Request { id: b, .. } = pair.event(1) else {
        panic!("no request")
    };
    let reject = Rej {
        reason: Reason::CONSUMER,
        private: Private::new(b"no").unwrap(),
        ..Rej::default()
    };
    pair.cm[1].reject(pair.now, b, reject).unwrap();
    let first = pair.sent(1);
    pair.cm[1].destroy(pair.now, b).unwrap();
    assert_eq!(
        pair.wait(),
        Some(18_432),
        "the REQ is sent again, and the REJ not forgotten"
    );
    pair.give(0, &req);
    assert_eq!((pair.sent(1), pair.cm[1].connections()), (first.clone(), 1));
    pair.lose();
    pair.give(1, &first[0]);
    let Event::Rejected { id, reject } = pair.event(0) else {
        panic!("not rejected")
    };
    assert_eq!(
        (id, reject.reason, reject.about),
        (a, Reason::CONSUMER, About::Req)
    );
    assert_eq!(&reject.private.0[..2], b"no");
    pair.nothing_is_left(&[(0, a)]);
}

#[test]
fn a_lost_rtu_is_sent_again_and_data_replaces_it() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied();
    pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
    assert_eq!(pair.lose(), [(0, Attribute::Rtu)]);
    pair.wait();
    assert_eq!(pair.exchange(), [(1, Attribute::Rep), (0, Attribute::Rtu)]);
    assert_eq!(pair.event(1), Event::Established { id: b });
    pair.nothing_is_left(&[(0, a), (1, b)]);

    let [a, b] = pair.replied();
    pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
    let rtu = pair.sent(0);
    pair.cm[1].communicated(pair.now, b).unwrap();
    assert_eq!(pair.event(1), Event::Established { id: b });
    // The RTU that comes later, and the event that comes twice, are nothing new.
    pair.give(0, &rtu[0]);
    pair.cm[1].communicated(pair.now, b).unwrap();
    assert_eq!(pair.events(1), []);
    assert_eq!(pair.cm[1].counters().cm_rx_duplicates[Attribute::Rtu.index()], 1);
    pair.nothing_is_left(&[(0, a), (1, b)]);
}

/// In each state one side vanishes: the other is told, and nothing of it stays.
#[test]
fn a_peer_that_vanishes_is_given_up() {
    let silence = |pair: &mut Pair, side: usize, ids: [ConnectionId; 2]| {
        let mut told = Vec::new();
        loop {
            let at = pair.cm[side].next_timeout();
            let Some(at) = at else { break };
            pair.now = pair.now.max(at);
            let now = pair.now;
            pair.cm[side].handle_timeout(now);
            pair.sent(side);
            told.extend(pair.events(side));
        }
        pair.cm[side].destroy(pair.now, ids[side]).unwrap();
        pair.sent(side);
        while let Some(at) = pair.cm[side].next_timeout() {
            pair.cm[side].handle_timeout(at);
            pair.sent(side);
        }
        assert_eq!((pair.cm[side].connections(), pair.cm[side].under_way()), (0, 0));
        told
    };
    let mut pair = Pair::new();
    let ids = pair.requested();
    assert_eq!(silence(&mut pair, 0, ids), [Event::Unreachable { id: ids[0] }]);

    let mut pair = Pair::new();
    let ids = pair.replied();
    let over = [
        Event::Unreachable { id: ids[1] },
        Event::TimewaitExit { id: ids[1] },
    ];
    assert_eq!(silence(&mut pair, 1, ids), over);

    for side in 0..2 {
        let mut pair = Pair::new();
        let ids = pair.established();
        pair.cm[side].disconnect(pair.now, ids[side]).unwrap();
        let over = [
            Event::Disconnected { id: ids[side] },
            Event::TimewaitExit { id: ids[side] },
        ];
        assert_eq!(silence(&mut pair, side, ids), over);
        assert_eq!(count(&pair, side, TX, Attribute::Dreq), 15);
    }
}

/// A peer that has begun anew uses a queue pair again that it still has a connection with, as we see it.
#[test]
fn a_peer_that_has_forgotten_is_told_so() {
    let mut pair = Pair::new();
    let [a, b] = pair.established();
    pair.cm[0] = Cm::new(Timing::default(), Limits::default(), 5000);
    let c = pair.connect(1);
    let req = pair.sent(0).remove(0);
    pair.give(0, &req);
    let sent = pair.sent(1);
    let kinds: Vec<_> = sent.iter().map(|d| d.mad.message.attribute()).collect();
    assert_eq!(kinds, [Attribute::Dreq, Attribute::Rej]);
    sent.iter().for_each(|d| pair.give(1, d));
    let Event::Rejected { id, reject } = pair.event(0) else {
        panic!("not rejected")
    };
    assert_eq!((id, reject.reason), (c, Reason::STALE));
    // Who did not know the old connection agrees to its end.
    assert_eq!(pair.exchange(), [(0, Attribute::Drep)]);
    assert_eq!(pair.event(1), Event::Disconnected { id: b });
    // The next request is taken.
    assert_eq!(pair.cm[0].state(c), Some(State::Timewait));
    let d = pair.connect(1);
    pair.exchange();
    let Event::Request { id: e, .. } = pair.event(1) else {
        panic!("no request")
    };
    assert_eq!(pair.cm[0].state(a), None);
    pair.nothing_is_left(&[(0, c), (1, b), (0, d), (1, e)]);

    // The passive side has forgotten: its reply has a queue pair that the active side knows.
    let mut pair = Pair::new();
    let [a, _] = pair.established();
    pair.cm[1] = Cm::new(Timing::default(), Limits::default(), 9000);
    pair.cm[1].listen(SERVICE, 8).unwrap();
    let c = pair.connect(3);
    pair.exchange();
    let Event::Request { id: d, .. } = pair.event(1) else {
        panic!("no request")
    };
    pair.cm[1].accept(pair.now, d, reply(2)).unwrap();
    pair.exchange();
    for side in [0, 1] {
        let events = pair.events(side);
        let stale = |e: &Event| matches!(e, Event::Rejected { reject, .. } if reject.reason == Reason::STALE);
        assert!(events.iter().any(stale), "{events:?}");
    }
    assert_eq!(pair.cm[0].state(a), Some(State::Timewait));
    pair.nothing_is_left(&[(0, a), (0, c), (1, d)]);
}

#[test]
fn requests_are_refused_for_a_reason() {
    let mut pair = Pair::new();
    let ask = |pair: &mut Pair, req: Req| {
        let a = pair.cm[0].connect(pair.now, address(2), req).unwrap();
        pair.exchange();
        let Event::Rejected { id, reject } = pair.event(0) else {
            panic!("not rejected")
        };
        assert_eq!(id, a);
        pair.cm[0].destroy(pair.now, a).unwrap();
        reject.reason.0
    };
    let nobody = ServiceId::of_port(PortSpace::Tcp, 1);
    let cases = [
        (
            8,
            Req {
                service_id: nobody,
                ..request(1)
            },
        ),
        (
            9,
            Req {
                service: Service::Rd,
                ..request(1)
            },
        ),
        (
            9,
            Req {
                service: Service::Extended,
                extended: 2,
                ..request(1)
            },
        ),
        (26, Req { mtu: 0, ..request(1) }),
        (26, Req { mtu: 6, ..request(1) }),
    ];
    for (reason, req) in cases {
        assert_eq!(ask(&mut pair, req), reason);
    }
    assert_eq!(pair.cm[1].connections(), 0);
    // A full backlog: what is answered makes room, what is rejected too.
    let ids: Vec<_> = (0..8).map(|n| pair.connect(10 + n)).collect();
    pair.exchange();
    assert_eq!(ask(&mut pair, request(1)), 3);
    let waiting: Vec<_> = pair.events(1).iter().map(Event::id).collect();
    pair.cm[1].accept(pair.now, waiting[0], reply(2)).unwrap();
    pair.cm[1].destroy(pair.now, waiting[1]).unwrap();
    pair.exchange();
    assert_eq!(pair.cm[1].state(waiting[0]), Some(State::RepSent));
    for n in 0..2 {
        let more = pair.connect(20 + n);
        pair.exchange();
        assert_eq!(pair.cm[0].state(more), Some(State::ReqSent));
    }
    pair.events(0);
    assert_eq!(ask(&mut pair, request(1)), 3);
    assert_eq!(ids.len(), 8);
}

#[test]
fn strangers_cannot_fill_it() {
    let limits = Limits {
        connections: 5,
        under_way: 2,
        requests_per_second: 5,
    };
    let mut pair = Pair::with(limits);
    // A listener counts, too: the passive side has one.
    pair.cm[0].listen(ServiceId(1), 1).unwrap();
    for n in 0..4 {
        pair.connect(n + 1);
    }
    let full = pair.cm[0].connect(pair.now, address(2), request(9));
    assert_eq!(full, Err(CmError::Full));
    assert_eq!(pair.cm[0].listen(ServiceId(2), 1), Err(CmError::Full));
    pair.exchange();
    assert_eq!(pair.cm[1].under_way(), 2, "the others are refused");
    assert_eq!(
        (pair.events(1).len(), count(&pair, 1, TX, Attribute::Rej)),
        (2, 2)
    );
    // The fifth request of a second is the last; other sources have their own count, and a second later all is forgotten.
    let req = Mad {
        transaction: 1,
        message: request(99).into(),
    };
    let from = |pair: &mut Pair, n: u8| {
        pair.cm[1].receive(pair.now, address(n), &req.emit());
        pair.sent(1).len()
    };
    assert_eq!(
        [from(&mut pair, 1), from(&mut pair, 1), from(&mut pair, 3)],
        [1, 0, 1]
    );
    assert_eq!(pair.cm[1].counters().over_rate, 1);
    pair.now = pair.now + Duration::from_secs(1);
    assert_eq!(from(&mut pair, 1), 1);
    // Established connections are not under way, but count.
    let mut pair = Pair::with(limits);
    for qp in 0..4 {
        pair.now = pair.now + Duration::from_secs(1);
        let a = pair.connect(100 + qp);
        pair.exchange();
        let Event::Request { id: b, .. } = pair.event(1) else {
            panic!("no request")
        };
        pair.cm[1].accept(pair.now, b, reply(200 + qp)).unwrap();
        pair.exchange();
        pair.events(0);
        pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
        pair.exchange();
        pair.events(1);
    }
    assert_eq!((pair.cm[1].connections(), pair.cm[1].under_way()), (4, 0));
    assert_eq!(from(&mut pair, 3), 1, "no resources");
    assert_eq!(pair.cm[1].connections(), 4);
    // Many sources: the table of counts does not grow for ever, and those beyond it share.
    let mut cm = Cm::new(Timing::default(), limits, 0);
    for n in 0..5000_u32 {
        let source = AddressVector {
            dgid: Gid::from_ipv4(n.to_be_bytes()),
            ..address(1)
        };
        cm.receive(Instant(0), source, &req.emit());
        while cm.transmit().is_some() {}
    }
    assert_eq!(cm.counters().over_rate, 5000 - 1024 - 5);
}

#[test]
fn a_third_party_changes_nothing() {
    let mut pair = Pair::new();
    let [a, b] = pair.established();
    let (local_id, remote_id) = (a.0, b.0);
    let messages: [Message; 6] = [
        Dreq {
            local_id,
            remote_id,
            remote_qp: 2,
            ..Dreq::default()
        }
        .into(),
        Rej {
            local_id,
            remote_id,
            ..Rej::default()
        }
        .into(),
        Rej {
            local_id,
            remote_id: 0,
            ..Rej::default()
        }
        .into(),
        Rtu {
            local_id,
            remote_id,
            ..Rtu::default()
        }
        .into(),
        // The right source with a wrong number, and with a wrong queue pair.
        Rej {
            local_id: local_id + 1,
            remote_id,
            ..Rej::default()
        }
        .into(),
        Dreq {
            local_id,
            remote_id,
            remote_qp: 3,
            ..Dreq::default()
        }
        .into(),
    ];
    for (n, message) in messages.into_iter().enumerate() {
        let mad = Mad {
            transaction: 1,
            message,
        };
        let from = address(if n < 4 { 3 } else { 1 });
        pair.cm[1].receive(pair.now, from, &mad.emit());
        assert_eq!(pair.cm[1].state(b), Some(State::Established), "{message:?}");
        assert_eq!(pair.events(1), []);
    }
    assert_eq!(pair.cm[1].counters().unknown, 6);
    pair.lose();
    pair.nothing_is_left(&[(0, a), (1, b)]);
}

#[test]
fn what_is_about_no_connection_is_answered_so_that_nobody_waits() {
    let mut pair = Pair::new();
    let (local_id, remote_id) = (5, 6);
    let mut say = |message: Message| {
        let mad = Mad {
            transaction: 77,
            message,
        };
        pair.cm[1].receive(pair.now, address(1), &mad.emit());
        let answers = pair.sent(1);
        assert!(
            answers
                .iter()
                .all(|d| d.mad.transaction == 77 && d.to == address(1))
        );
        answers.first().map(|d| d.mad.message)
    };
    let dreq = Dreq {
        local_id,
        remote_id,
        ..Dreq::default()
    };
    let Some(Message::Drep(drep)) = say(dreq.into()) else {
        panic!("no DREP")
    };
    assert_eq!((drep.local_id, drep.remote_id), (6, 5));
    let rep = Rep {
        local_id,
        remote_id,
        ..Rep::default()
    };
    let Some(Message::Rej(rej)) = say(rep.into()) else {
        panic!("no REJ")
    };
    assert_eq!((rej.local_id, rej.remote_id, rej.reason.0), (6, 5, 6));
    let lap = Lap {
        local_id,
        remote_id,
        ..Lap::default()
    };
    let Some(Message::Apr(apr)) = say(lap.into()) else {
        panic!("no APR")
    };
    assert_eq!(apr.status, ApStatus::INVALID_ID);
    // Answers are not answered.
    for message in [Message::from(drep), rej.into(), apr.into(), Rtu::default().into()] {
        assert_eq!(say(message), None);
    }
    pair.cm[1].receive(pair.now, address(1), &[0; 256]);
    assert_eq!(pair.cm[1].counters().malformed, 1);
}

/// A number of the peer's that comes again with another transaction is another connection: the peer has begun anew.
#[test]
fn another_transaction_is_another_request() {
    let mut pair = Pair::new();
    let mut ask = |transaction, qp| {
        let req = Req {
            local_id: 77,
            ..request(qp)
        };
        let mad = Mad {
            transaction,
            message: req.into(),
        };
        pair.cm[1].receive(pair.now, address(1), &mad.emit());
        pair.events(1).iter().map(Event::id).collect::<Vec<_>>()
    };
    let [first, none, second] = [ask(1, 1), ask(1, 1), ask(2, 2)];
    assert_eq!((first.len(), none.len(), second.len()), (1, 0, 1));
    assert_ne!(first, second);
    pair.lose();
    pair.nothing_is_left(&[(1, first[0]), (1, second[0])]);
}

#[test]
fn what_was_destroyed_is_not_told() {
    let mut pair = Pair::new();
    let [a, b] = pair.requested();
    pair.cm[1].destroy(pair.now, b).unwrap();
    pair.exchange();
    // The REJ has come.
    assert_eq!(pair.cm[0].state(a), Some(State::Idle));
    pair.nothing_is_left(&[(0, a)]);
}

#[test]
fn an_alternate_path_is_refused() {
    let mut pair = Pair::new();
    let [a, b] = pair.established();
    let lap = Lap {
        local_id: a.0,
        remote_id: b.0,
        remote_qp: 2,
        ..Lap::default()
    };
    let mad = Mad {
        transaction: 9,
        message: lap.into(),
    };
    pair.cm[1].receive(pair.now, address(1), &mad.emit());
    let sent = pair.sent(1).remove(0);
    let Message::Apr(apr) = sent.mad.message else {
        panic!("{sent:?}")
    };
    assert_eq!(
        (apr.status, apr.remote_id, sent.mad.transaction),
        (ApStatus::UNSUPPORTED, a.0, 9)
    );
    assert_eq!(pair.states([a, b]), [Some(State::Established); 2]);
    pair.nothing_is_left(&[(0, a), (1, b)]);
}

#[test]
fn both_may_disconnect_at_once_and_answers_may_be_lost() {
    let mut pair = Pair::new();
    let ids = pair.established();
    for (side, id) in ids.into_iter().enumerate() {
        pair.cm[side].disconnect(pair.now, id).unwrap();
    }
    pair.exchange();
    for (side, id) in ids.into_iter().enumerate() {
        assert_eq!(pair.event(side), Event::Disconnected { id });
    }
    pair.nothing_is_left(&[(0, ids[0]), (1, ids[1])]);

    // A lost DREP is sent again, also by one that has forgotten the connection.
    let [a, b] = pair.established();
    pair.cm[0].disconnect(pair.now, a).unwrap();
    let dreq = pair.sent(0).remove(0);
    pair.give(0, &dreq);
    pair.cm[1].disconnect(pair.now, b).unwrap();
    let first = pair.sent(1);
    pair.give(0, &dreq);
    assert_eq!(pair.sent(1), first);
    pair.cm[1].destroy(pair.now, b).unwrap();
    while pair.cm[1].connections() > 0 {
        pair.wait();
        pair.lose();
    }
    pair.events(1);
    pair.give(0, &dreq);
    assert_eq!(pair.exchange(), [(1, Attribute::Drep)]);
    assert_eq!(pair.event(0), Event::Disconnected { id: a });
    pair.nothing_is_left(&[(0, a)]);
}

#[test]
fn destroying_in_each_state_leaves_nothing() {
    for side in 0..2 {
        for depth in 0..4 {
            let mut pair = Pair::new();
            let ids = match depth {
                0 => pair.requested(),
                1 => pair.replied(),
                2 => pair.established(),
                _ => {
                    let ids = pair.established();
                    pair.cm[1 - side].disconnect(pair.now, ids[1 - side]).unwrap();
                    pair.exchange();
                    pair.event(side);
                    ids
                }
            };
            pair.cm[side].destroy(pair.now, ids[side]).unwrap();
            pair.exchange();
            let other = 1 - side;
            let told = pair.event(other);
            match depth {
                0 | 1 => {
                    let Event::Rejected { id, reject } = told else {
                        panic!("{told:?}")
                    };
                    let timeout = depth == 0 && side == 0;
                    let reason = if timeout {
                        Reason::TIMEOUT
                    } else {
                        Reason::CONSUMER
                    };
                    assert_eq!((id, reject.reason), (ids[other], reason));
                }
                _ => assert_eq!(told, Event::Disconnected { id: ids[other] }),
            }
            pair.nothing_is_left(&[(other, ids[other])]);
        }
    }
}

#[test]
fn calls_in_the_wrong_state_change_nothing() {
    let mut pair = Pair::new();
    let a = pair.connect(1);
    let now = pair.now;
    let cm = &mut pair.cm[0];
    let wrong = Err(CmError::State(State::ReqSent));
    assert_eq!(cm.accept(now, a, reply(1)), wrong);
    assert_eq!(cm.establish(now, a, Rtu::default()), wrong);
    assert_eq!(cm.reject(now, a, Rej::default()), wrong);
    assert_eq!(cm.disconnect(now, a), wrong);
    assert_eq!(cm.communicated(now, a), wrong);
    assert_eq!(cm.answer(now, a, SidrRep::default()), wrong);
    assert_eq!(cm.disconnect(now, ConnectionId(0)), Err(CmError::Unknown));
    assert_eq!(cm.state(a), Some(State::ReqSent));
    assert_eq!(pair.cm[1].listen(SERVICE, 1), Err(CmError::InUse));
    let other = ServiceId(1);
    assert_eq!(pair.cm[1].unlisten(other), Err(CmError::Unknown));
    assert_eq!(pair.lose(), [(0, Attribute::Req)]);
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
