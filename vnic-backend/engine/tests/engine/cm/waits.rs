//! How long a side waits for an answer, how often it asks again, and when it gives up.

use super::*;

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
