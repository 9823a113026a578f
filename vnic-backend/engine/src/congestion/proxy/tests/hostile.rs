//! Frames that nobody well-meaning sends.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Call {
    Received(Vec<u8>, u8),
    Sent(Vec<u8>, u8),
    Time(u64),
    Serve(u8),
    Configure(u64, bool),
}

fn hostile() -> impl Strategy<Value = Call> {
    let kinds = prop_oneof![
        Just(Operation::SendOnly),
        Just(Operation::Acknowledge),
        Just(Operation::ReadRequest),
        Just(Operation::ReadResponseFirst),
        Just(Operation::ReadResponseMiddle),
    ];
    let damage = prop::collection::vec((0..120usize, any::<u8>()), 0..3);
    let frame = (kinds, 0..6u32, 0..40u32, any::<bool>(), any::<bool>(), damage);
    let frame = frame.prop_map(|(operation, qp, psn, marked, notifies, damage)| {
        (operation, qp, psn, marked, notifies, damage)
    });
    let bytes = |from, to| {
        move |(operation, qp, psn, marked, notifies, damage): (
            Operation,
            u32,
            u32,
            bool,
            bool,
            Vec<(usize, u8)>,
        )| {
            let mut p = packet(from, to, qp, psn, operation);
            if marked {
                p = p.marked();
            }
            if notifies && psn % 4 == 0 {
                p = cnp(from, to, qp, psn);
            }
            let mut bytes = p.frame();
            for (at, byte) in damage {
                if let Some(b) = bytes.get_mut(at) {
                    *b = byte;
                }
            }
            bytes
        }
    };
    prop_oneof![
        4 => (frame.clone().prop_map(bytes(PEER, GUEST)), 2..5u8).prop_map(|(b, p)| Call::Received(b, p)),
        4 => (frame.prop_map(bytes(GUEST, PEER)), 2..5u8).prop_map(|(b, p)| Call::Sent(b, p)),
        1 => (0..100_000u64).prop_map(Call::Time),
        1 => any::<u8>().prop_map(Call::Serve),
        1 => (1..10_000_000_000u64, any::<bool>()).prop_map(|(r, acts)| Call::Configure(r, acts)),
    ]
}

proptest! {
    /// Whatever comes: bounded, no frame is lost, and those of one queue pair that wait leave in their order.
    #[test]
    fn hostile_frames(calls in prop::collection::vec(hostile(), 0..100)) {
        let mut p = Proxy::new(congestion(1_000_000), true);
        let (mut now, mut number) = (0, 0u32);
        let mut waiting: HashMap<(Gid, Gid, u32), VecDeque<u32>> = HashMap::new();
        let mut of = HashMap::new();
        for call in calls {
            match call {
                Call::Received(bytes, priority) => {
                    if let Some(seen) = Seen::parse(&bytes[..bytes.len().min(SEEN)]) {
                        p.received(Instant(now), priority, &seen);
                    }
                }
                Call::Sent(bytes, priority) => {
                    if let Some(seen) = Seen::parse(&bytes[..bytes.len().min(SEEN)])
                        && let Fate::Waits(flow) = p.sending(Instant(now), priority, &seen, 1106)
                        && p.hold(Instant(now), flow, &seen, 1106, 1200, number).is_ok()
                    {
                        let key = (seen.source(), seen.destination(), seen.qp());
                        waiting.entry(key).or_default().push_back(number);
                        of.insert(number, key);
                        number += 1;
                    }
                }
                Call::Time(ns) => now += ns,
                Call::Serve(open) => {
                    while let Some((flow, priority, _)) = p.front(Instant(now), open) {
                        prop_assert!(open >> priority & 1 != 0);
                        let n = p.take(Instant(now), flow).expect("it was there");
                        let first = waiting.get_mut(&of[&n]).and_then(VecDeque::pop_front);
                        prop_assert_eq!(first, Some(n));
                    }
                    while let Some(notice) = p.poll_notice(Instant(now), open) {
                        let mut bytes = vec![];
                        notice.build(&mut bytes).expect("a frame");
                        prop_assert!(Frame::parse(&bytes).expect("RoCE").icrc_ok());
                    }
                }
                Call::Configure(rate, acts) => p.configure(Instant(now), congestion(rate), acts),
            }
            prop_assert_eq!(p.len(), waiting.values().map(VecDeque::len).sum::<usize>());
            prop_assert_eq!(p.is_empty(), waiting.values().all(VecDeque::is_empty));
            let (pairs, flows) = p.remembered();
            prop_assert!(pairs <= pairs::KNOWN && flows <= FLOWS);
        }
        p.configure(Instant(now), congestion(1), false);
        prop_assert_eq!(run(&mut p, now, now).len(), waiting.values().map(VecDeque::len).sum::<usize>());
    }

    /// Bytes of any kind.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..SEEN)) {
        let _ = Seen::parse(&bytes);
    }
}
