//! Peers that have forgotten, that ask for what there is not, that come again, and that are no peers.

use super::*;

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
