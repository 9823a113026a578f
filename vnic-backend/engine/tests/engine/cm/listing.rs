//! What a device says of its connections and listeners: the list, and their numbers.

use super::*;

/// Numbers and states behind a number.
fn page(cm: &Cm, behind: Option<u32>, most: usize) -> Vec<(u32, State)> {
    cm.page(behind, most).map(|one| (one.id, one.state)).collect()
}

#[test]
fn listeners_stand_among_the_connections() {
    let mut pair = Pair::new();
    let [_, b] = pair.established();
    let other = ServiceId::of_port(PortSpace::Udp, 9);
    pair.cm[1].listen(other, 1).unwrap();
    let all = page(&pair.cm[1], None, 9);
    let states: Vec<_> = all.iter().map(|(_, state)| *state).collect();
    assert_eq!(states, [State::Listen, State::Established, State::Listen]);
    assert_eq!(all[1].0, b.0);
    // Page by page, nothing is twice or missing.
    let mut paged = Vec::new();
    while let Some(row) = page(&pair.cm[1], paged.last().map(|(id, _)| *id), 1).pop() {
        paged.push(row);
    }
    assert_eq!(paged, all);
    let last = pair.cm[1].page(Some(b.0), 9).last().unwrap();
    assert_eq!((last.terms.service_id, last.passive), (other, true));
    pair.cm[1].unlisten(SERVICE).unwrap();
    assert_eq!(page(&pair.cm[1], None, 9), all[1..]);
}

/// At side 0, which asks, and at side 1: accepted, initiated, failed, ended, broken.
fn numbers(pair: &Pair) -> [[u64; 5]; 2] {
    [0, 1].map(|side| {
        let c = pair.cm[side].counters();
        [c.accepted, c.initiated, c.failed, c.ended, c.broken]
    })
}

#[test]
fn connections_are_counted_by_what_becomes_of_them() {
    let mut pair = Pair::new();
    let [a, b] = pair.replied();
    assert_eq!(numbers(&pair), [[0; 5]; 2], "nobody is connected yet");
    pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
    pair.exchange();
    assert_eq!(numbers(&pair), [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]]);
    pair.cm[1].destroy(pair.now, b).unwrap();
    pair.exchange();
    assert_eq!(numbers(&pair), [[0, 1, 0, 1, 0], [1, 0, 0, 1, 0]]);
    // An attempt that is rejected has failed for both.
    pair.events(1);
    pair.connect(5);
    pair.exchange();
    let Event::Request { id: b, .. } = pair.event(1) else {
        panic!("no request");
    };
    pair.cm[1].reject(pair.now, b, Rej::default()).unwrap();
    pair.exchange();
    assert_eq!(numbers(&pair), [[0, 1, 1, 1, 0], [1, 0, 1, 1, 0]]);
    // A service that nobody listens for: one end knows of it.
    pair.cm[1].unlisten(SERVICE).unwrap();
    pair.connect(9);
    pair.exchange();
    assert_eq!(numbers(&pair), [[0, 1, 2, 1, 0], [1, 0, 1, 1, 0]]);
}

/// The active side ends what the passive side has not heard of yet: it has been a connection for both.
#[test]
fn an_end_before_the_rtu_is_one_of_a_connection() {
    let mut pair = Pair::new();
    let [a, _] = pair.replied();
    pair.cm[0].establish(pair.now, a, Rtu::default()).unwrap();
    pair.lose();
    pair.cm[0].destroy(pair.now, a).unwrap();
    pair.exchange();
    assert_eq!(numbers(&pair), [[0, 1, 0, 1, 0], [1, 0, 0, 1, 0]]);
}

/// A peer that has forgotten its connection rejects what is about it.
#[test]
fn a_forgotten_connection_is_broken() {
    let mut pair = Pair::new();
    let [_, b] = pair.established();
    pair.cm[0] = Cm::new(Timing::default(), Limits::default(), 4000);
    // It connects anew with the same queue pair: the old connection is stale.
    pair.connect(1);
    pair.exchange();
    assert_eq!(numbers(&pair)[1], [1, 0, 0, 1, 1]);
    assert_ne!(pair.cm[1].state(b), Some(State::Established));
}
