//! How connections end, and what of them is told and left.

use super::*;

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
