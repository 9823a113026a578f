use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::qos::{Classes, Tsa, VlArbitration};

const GBIT: u64 = 1_000_000_000;

/// Of this service level.
fn entry(source: u16, level: u8, wire: u32, since: Instant) -> Entry {
    Entry {
        source,
        priority: level & 7,
        level,
        colour: Colour::Green,
        wire,
        bytes: wire - 24,
        since,
    }
}

/// Priority n is class n.
fn qos(rate: u64, tsa: [Tsa; 8], share: [u8; 8]) -> PortQos {
    PortQos {
        rate,
        classes: Classes {
            of_priority: core::array::from_fn(|i| i as u8),
            of_upper: None,
            by_source: Vec::new(),
            tsa,
            share,
            limit: [0; 8],
            arbitration: None,
        },
        ..PortQos::default()
    }
}

fn ets(rate: u64, shares: &[(usize, u8)]) -> PortQos {
    let mut share = [0; 8];
    for (c, s) in shares {
        share[*c] = *s;
    }
    qos(rate, [Tsa::Ets; 8], share)
}

/// Bytes on the wire by (source, priority) when these are always full, each with frames of its own length, in this time.
fn run(egress: &mut Egress<u64>, flows: &[(u16, u8, u32)], ns: u64, closed: u8) -> Vec<u64> {
    let mut sent = std::vec![0; flows.len()];
    let mut now = Instant(0);
    let mut numbers = std::vec![(0, 0); flows.len()];
    for (i, (source, p, len)) in flows.iter().enumerate() {
        for _ in 0..4 {
            egress.push(entry(*source, *p, *len, now), numbers[i].0);
            numbers[i].0 += 1;
        }
    }
    while now.0 < ns {
        while let Some(pick) = egress.next(now, closed) {
            let (e, number) = egress.take(now, pick).unwrap();
            let i = flows
                .iter()
                .position(|f| (f.0, f.1) == (e.source, e.priority))
                .unwrap();
            assert_eq!(number, numbers[i].1, "in order");
            numbers[i].1 += 1;
            sent[i] += u64::from(e.wire);
            egress.push(entry(e.source, e.priority, flows[i].2, now), numbers[i].0);
            numbers[i].0 += 1;
        }
        let Some(next) = egress.next_time(now, closed) else {
            break;
        };
        assert!(next > now, "time passes");
        now = next;
    }
    sent
}

/// Shares of what was sent, in thousandths.
fn shares(sent: &[u64]) -> Vec<u64> {
    let all: u64 = sent.iter().sum();
    sent.iter().map(|s| (s * 1000 + all / 2) / all).collect()
}

#[test]
fn ets_shares_are_exact_with_frames_of_any_length() {
    for (a, b, len_a, len_b) in [
        (50, 50, 88, 65_559),
        (16, 80, 65_559, 88),
        (16, 80, 1538, 1538),
        (1, 99, 9000, 88),
    ] {
        let mut e = Egress::new(&ets(10 * GBIT, &[(3, a), (5, b)]), Instant(0));
        let sent = run(&mut e, &[(1, 3, len_a), (2, 5, len_b)], 200_000_000, 0);
        let (a, b) = (u64::from(a), u64::from(b));
        let want = 1000 * a / (a + b);
        assert!(shares(&sent)[0].abs_diff(want) <= 3, "{a}:{b}: {sent:?}");
        let all: u64 = sent.iter().sum();
        assert!(all.abs_diff(250_000_000) < 1_000_000, "the link is full: {all}");
    }
}

#[test]
fn what_one_class_leaves_the_others_take() {
    let mut e = Egress::new(&ets(10 * GBIT, &[(0, 10), (1, 30), (2, 60)]), Instant(0));
    let flows = [(1, 0, 1538), (1, 1, 1538), (1, 2, 1538)];
    assert_eq!(shares(&run(&mut e, &flows, 100_000_000, 0)), [100, 300, 600]);
    let mut e = Egress::new(&ets(10 * GBIT, &[(0, 10), (1, 30), (2, 60)]), Instant(0));
    assert_eq!(shares(&run(&mut e, &flows[..2], 100_000_000, 0)), [250, 750]);
    let mut e = Egress::new(&ets(10 * GBIT, &[(0, 10), (1, 30), (2, 60)]), Instant(0));
    assert_eq!(shares(&run(&mut e, &flows, 100_000_000, 0b010)), [143, 0, 857]);
}

#[test]
fn vendor_before_strict_before_ets_before_ets_without_share() {
    use Tsa::{Ets, Strict, Vendor};
    let q = qos(
        10 * GBIT,
        [Ets, Ets, Strict, Strict, Vendor, Vendor, Ets, Ets],
        [50, 50, 0, 0, 0, 0, 0, 0],
    );
    let all: Vec<_> = (0..8).map(|p| (1, p, 1000)).collect();
    for (closed, want) in [
        (0, [0, 0, 0, 0, 500, 500, 0, 0]),
        (0b0011_0000, [0, 0, 0, 1000, 0, 0, 0, 0]),
        (0b0011_1000, [0, 0, 1000, 0, 0, 0, 0, 0]),
        (0b0011_1100, [500, 500, 0, 0, 0, 0, 0, 0]),
        (0b0011_1111, [0, 0, 0, 0, 0, 0, 500, 500]),
    ] {
        let mut e = Egress::new(&q, Instant(0));
        assert_eq!(
            shares(&run(&mut e, &all, 20_000_000, closed)),
            want,
            "{closed:#b}"
        );
    }
}

#[test]
fn a_limit_is_kept_and_the_rest_goes_to_others() {
    let mut q = qos(10 * GBIT, [Tsa::Strict; 8], [0; 8]);
    q.classes.limit[7] = GBIT;
    let mut e = Egress::new(&q, Instant(0));
    let sent = run(&mut e, &[(1, 7, 1538), (2, 0, 9000)], 100_000_000, 0);
    // The slack comes once.
    assert!(sent[0].abs_diff(12_500_000) < 30_000, "{sent:?}");
    assert!(sent[1].abs_diff(112_500_000) < 200_000, "{sent:?}");
}

#[test]
fn sources_take_turns_by_bytes_and_what_they_are_sure_of_comes_first() {
    let q = qos(10 * GBIT, [Tsa::Vendor; 8], [0; 8]);
    let flows: Vec<_> = (0..64)
        .map(|s| (s, 2, [88, 1538, 9042, 65_559][usize::from(s) % 4]))
        .collect();
    let mut e = Egress::new(&q, Instant(0));
    let equal = run(&mut e, &flows, 1_000_000_000, 0);
    for sent in &equal {
        assert!(sent.abs_diff(1_250_000_000 / 64) < 2 * 65_559, "{equal:?}");
    }
    let mut e = Egress::new(&q, Instant(0));
    let guarantee = |rate| core::array::from_fn(|c| if c == 2 { rate } else { 0 });
    e.set_guarantee(5, &guarantee(4 * GBIT));
    e.set_guarantee(7, &guarantee(3 * GBIT));
    let sent = run(&mut e, &flows, 1_000_000_000, 0);
    // 3 Gbit/s are left for all 64.
    let rest = 3 * GBIT / 8 / 64;
    assert!(sent[5].abs_diff(GBIT / 2 + rest) < 4_000_000, "{sent:?}");
    assert!(sent[7].abs_diff(3 * GBIT / 8 + rest) < 4_000_000, "{sent:?}");
    assert!(sent[0].abs_diff(rest) < 200_000, "{sent:?}");
}

#[test]
fn what_is_closed_does_not_hold_up_others_and_does_not_catch_up() {
    // Priorities 0 and 1 in one class, many sources.
    let mut q = qos(10 * GBIT, [Tsa::Vendor; 8], [0; 8]);
    q.classes.of_priority = [0; 8];
    let flows: Vec<_> = (0..32).map(|s| (s, (s % 2) as u8, 1538)).collect();
    let mut e = Egress::new(&q, Instant(0));
    let sent = run(&mut e, &flows, 10_000_000, 0b10);
    for (i, s) in sent.iter().enumerate() {
        let want = if i % 2 == 0 { 12_500_000 / 16 } else { 0 };
        assert!(s.abs_diff(want) < 30_000, "{sent:?}");
    }
    // Opened: all take equal turns from now on.
    let mut sent = [0u64; 32];
    for _ in 0..320 {
        let pick = e.next(Instant(u64::MAX / 2), 0);
        let Some(pick) = pick else { break };
        let (entry, _) = e.take(Instant(u64::MAX / 2), pick).unwrap();
        sent[usize::from(entry.source)] += 1;
        e.push(entry, 0);
    }
    let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
    assert!(most - least <= 2, "{sent:?}");
}

#[test]
fn passing_by_is_for_those_who_would_be_next_anyway() {
    let mut q = qos(8 * GBIT, [Tsa::Strict; 8], [0; 8]);
    q.classes.limit[2] = GBIT;
    let mut e = Egress::new(&q, Instant(0));
    let now = Instant(1_000_000);
    assert!(e.pass(now, 3, 1000, 0));
    assert!(!e.pass(now, 3, 1000, 0b1000), "closed");
    e.push(entry(1, 3, 1000, now), 1);
    assert!(!e.pass(now, 7, 1000, 0), "something waits that may go");
    assert!(e.pass(now, 7, 1000, 0b1000), "what waits may not");
    assert!(!e.pass(now, 3, 1000, 0b100), "behind what waits in its class");
    let pick = e.next(now, 0).unwrap();
    e.take(now, pick).unwrap();
    // The class's limit: its slack is 100 us at 1 Gbit/s.
    let mut passed = 0;
    while e.pass(now, 2, 1000, 0) {
        passed += 1;
    }
    assert_eq!(passed, 13);
    assert!(e.pass(now, 1, 1000, 0), "other classes still go");
}

/// A sender whose ring holds 300 us, at 12 Gbit/s, before a port and a class of 10 Gbit/s; the core is away 4 ms of 20.
#[test]
fn a_core_that_was_away_catches_up_with_a_short_ring() {
    const STEP: u64 = 10_000;
    let sent_in = |limits: bool, told: bool, away: u64| {
        let mut qos = qos(10 * GBIT, [Tsa::Ets; 8], [12; 8]);
        if limits {
            qos.rate = 0;
            qos.classes.limit[3] = 10 * GBIT;
        }
        let mut egress = Egress::new(&qos, Instant(0));
        let (mut sent, mut now, mut last) = (0, Instant(STEP), Instant(0));
        while now.0 < GBIT / 5 {
            if told && now.0 - last.0 > STEP {
                egress.was_away(Away::new(last, now));
            }
            last = now;
            // What the CPUs can do in a step, and after a pause what the ring held.
            let room = 15_000.max(u64::from(now.0 % 20_000_000 == away) * 375_000) / 1538;
            for _ in 0..room {
                if egress.is_empty() && egress.pass(now, 3, 1538, 0) {
                    sent += 1538;
                } else if egress.len() < 3 {
                    egress.push(entry(1, 3, 1538, now), 0);
                }
                while let Some(pick) = egress.next(now, 0) {
                    sent += u64::from(egress.take(now, pick).unwrap().0.wire);
                }
            }
            // Away at the beginning of each 20 ms.
            let next = now.0 + STEP;
            now = Instant(if next.is_multiple_of(20_000_000) {
                next + away
            } else {
                next
            });
        }
        sent as f64 / (GBIT as f64 / 4.0)
    };
    for limits in [false, true] {
        let (kept, lost) = (
            sent_in(limits, true, 2_000_000),
            sent_in(limits, false, 2_000_000),
        );
        assert!((0.99..1.0001).contains(&kept), "{limits}: {kept}");
        assert!(lost < 0.95, "{limits}: {lost}");
        // 5 ms of 12 are all that counts.
        let bounded = sent_in(limits, true, 12_000_000);
        assert!(bounded < 0.75, "{limits}: {bounded}");
    }
}

#[test]
fn a_late_look_loses_nothing_and_silence_gathers_little() {
    let q = qos(8 * GBIT, [Tsa::Vendor; 8], [0; 8]);
    let count = |since: Instant, now: Instant| {
        let mut e = Egress::new(&q, Instant(0));
        for _ in 0..10_000 {
            e.push(entry(1, 0, 1000, since), 0);
        }
        let mut sent = 0;
        while let Some(pick) = e.next(now, 0) {
            e.take(now, pick).unwrap();
            sent += 1;
        }
        sent
    };
    let ms = |n: u64| Instant(n * 1_000_000);
    assert_eq!(
        count(ms(10), ms(13)),
        3101,
        "3 ms late: 3 ms of frames, and the slack"
    );
    assert_eq!(count(ms(13), ms(13)), 101, "silence: the slack");
    assert_eq!(count(ms(10), ms(100)), 5001, "very late: no more than so much");
}

#[test]
fn other_classes_and_a_source_that_goes_keep_what_waits_in_order() {
    let mut q = qos(0, [Tsa::Strict; 8], [0; 8]);
    let mut e = Egress::new(&q, Instant(0));
    e.set_guarantee(4, &[GBIT; 8]);
    for n in 0..100u64 {
        e.push(entry((n % 5) as u16, (n % 8) as u8, 100, Instant(n)), n);
    }
    assert_eq!(e.oldest(3).map(|(_, e)| e.since), Some(Instant(3)));
    e.forget_source(4);
    q.classes.of_priority = [3; 8];
    e.configure(&q, Instant(100));
    assert_eq!(e.len(), 100);
    assert_eq!(e.bytes()[..8], [0, 0, 0, 7600, 0, 0, 0, 0]);
    let mut last = [None; 5];
    while let Some(pick) = e.next(Instant(100), 0) {
        let (entry, n) = e.take(Instant(100), pick).unwrap();
        let last = &mut last[usize::from(entry.source)];
        assert!(last.is_none_or(|l| l < n), "{last:?} {n}");
        *last = Some(n);
    }
    assert_eq!((e.len(), e.bytes()), (0, [0; LANES]));
    assert_eq!(e.place(4, 3), NONE, "its place is free again");
    assert!(e.next(Instant(100), 0).is_none() && e.next_time(Instant(100), 0).is_none());
}

#[test]
fn a_flood_leaves_no_memory_behind() {
    let mut e = Egress::new(&PortQos::default(), Instant(0));
    for round in 0..3u64 {
        for n in 0..20_000u64 {
            e.push(entry((n % 300) as u16, (n % 8) as u8, 100, Instant(n)), n);
        }
        let mut left = 20_000;
        while let Some(pick) = e.next(Instant(round), 0) {
            e.take(Instant(round), pick).unwrap();
            left -= 1;
        }
        assert_eq!(left, 0);
        assert!(e.nodes.places() <= 4096);
    }
}

/// What an arbitrary run does.
#[derive(Debug, Clone)]
enum Op {
    Push(u16, u8, u32),
    Pass(u16, u8, u32),
    Take,
    Discard,
    DropOldest(u8),
    Wait(u64),
    Close(u8),
    Forget(u16),
    Guarantee(u16, u8, u64),
    Classes([u8; 8]),
    Upper(Option<[u8; 8]>),
    Sources(Vec<(u16, [u8; 16])>),
}

fn op() -> impl Strategy<Value = Op> {
    let push = (0..6u16, 0..16u8, 64..66_000u32);
    prop_oneof![
        6 => push.clone().prop_map(|(s, p, l)| Op::Push(s, p, l)),
        2 => push.prop_map(|(s, p, l)| Op::Pass(s, p, l)),
        8 => Just(Op::Take),
        1 => Just(Op::Discard),
        1 => (0..15u8).prop_map(Op::DropOldest),
        4 => (1..100_000u64).prop_map(Op::Wait),
        1 => any::<u8>().prop_map(Op::Close),
        1 => (0..6u16).prop_map(Op::Forget),
        1 => (0..6u16, 0..8u8, 0..20u64).prop_map(|(s, c, g)| Op::Guarantee(s, c, g * GBIT / 4)),
        1 => prop::array::uniform8(0..15u8).prop_map(Op::Classes),
        1 => prop::option::of(prop::array::uniform8(0..15u8)).prop_map(Op::Upper),
        1 => prop::collection::vec((0..6u16, prop::array::uniform16(0..15u8)), 0..3).prop_map(Op::Sources),
    ]
}

fn tsa() -> impl Strategy<Value = Tsa> {
    prop_oneof![Just(Tsa::Vendor), Just(Tsa::Strict), Just(Tsa::Ets)]
}

/// Class of what a source sends with a service level.
fn class(q: &PortQos, source: u16, level: u8) -> u8 {
    let mut own = q.classes.by_source.iter();
    let place = usize::from(level);
    match (own.find(|(of, _)| *of == source), q.classes.of_upper) {
        (Some((_, table)), _) => table[place],
        (None, Some(upper)) if level >= 8 => upper[place - 8],
        (None, _) => q.classes.of_priority[place % 8],
    }
}

/// Two sources send with one service level: each gets the class that the port has for it, and the strict one goes first.
#[test]
fn one_priority_has_a_class_by_its_source() {
    let mut q = qos(GBIT, [Tsa::Strict; 8], [0; 8]);
    q.classes.by_source = std::vec![(1, [5; 16]), (2, [6; 16])];
    let mut e = Egress::new(&q, Instant(0));
    assert_eq!([1, 2, 3].map(|source| e.class(source, 3)), [5, 6, 3]);
    for (number, source) in [(0, 3), (1, 1), (2, 2), (3, 1), (4, 2)] {
        e.push(entry(source, 3, 1000, Instant(0)), number);
    }
    assert_eq!(e.frames()[..8], [0, 0, 0, 1, 0, 2, 2, 0]);
    let order = |e: &mut Egress<u64>, closed| {
        let now = Instant(e.next_time(Instant(0), closed)?.0);
        let pick = e.next(now, closed)?;
        Some((pick.class, e.take(now, pick)?.1))
    };
    assert_eq!(
        order(&mut e, 1 << 3),
        None,
        "the priority is closed, whatever its class"
    );
    assert_eq!(order(&mut e, 0), Some((6, 2)));
    assert_eq!(order(&mut e, 0), Some((6, 4)));
    assert_eq!(order(&mut e, 0), Some((5, 1)));
    // The same class for all, while some wait: they keep the order in which they came.
    q.classes.by_source.clear();
    e.configure(&q, Instant(0));
    assert_eq!(e.frames()[..8], [0, 0, 0, 2, 0, 0, 0, 0]);
    assert!(
        !e.pass_from(Instant(u64::MAX / 2), (1, 3), 1000, 0),
        "others wait in the class"
    );
}

/// An arbitrary configuration.
fn any_qos() -> impl Strategy<Value = PortQos> {
    let limit = prop_oneof![4 => Just(0), 1 => (1..40u64).prop_map(|g| g * GBIT / 4)];
    (
        prop::array::uniform8(tsa()),
        prop::array::uniform8(0..30u8),
        prop::array::uniform8(limit.clone()),
        limit,
        any::<bool>(),
    )
        .prop_map(|(tsa, share, limit, rate, lanes)| {
            let mut q = qos(rate, tsa, share);
            q.classes.limit = limit;
            q.classes.arbitration = lanes.then(|| VlArbitration {
                high: (0..7).map(|lane| (lane, 100)).collect(),
                low: (7..15).map(|lane| (lane, 3)).collect(),
                high_limit: 1,
            });
            q
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens: nothing is lost or doubled, order is kept by source and class, closed priorities stay, what may
    /// go goes (work conservation), and the rate is kept.
    #[test]
    fn an_arbitrary_life(mut q in any_qos(), ops in prop::collection::vec(op(), 1..300)) {
        let mut e = Egress::new(&q, Instant(0));
        let mut waiting: Vec<(Entry, u64)> = Vec::new();
        let (mut now, mut closed, mut number) = (Instant(1_000_000), 0u8, 0u64);
        let mut sent = 0u64;
        let lanes = if q.classes.arbitration.is_some() { 15 } else { 8 };
        for op in ops {
            match op {
                Op::Push(s, p, l) => {
                    e.push(entry(s, p, l, now), number);
                    waiting.push((entry(s, p, l, now), number));
                    number += 1;
                }
                Op::Pass(s, p, l) => {
                    let passed = e.pass_from(now, (s, p), l, closed);
                    if passed {
                        prop_assert_eq!(closed & 1 << (p & 7), 0);
                        prop_assert!(waiting.iter().all(|(w, _)| class(&q, w.source, w.level) != class(&q, s, p)));
                        prop_assert!(e.next(now, closed).is_none(), "nothing may go that waits");
                        sent += u64::from(l);
                    }
                }
                Op::Take | Op::Discard => {
                    let pick = e.next(now, closed);
                    prop_assert_eq!(pick, e.next(now, closed), "asking changes nothing");
                    let Some(pick) = pick else { continue };
                    let front = e.front(pick).map(|(e, n)| (*e, *n)).unwrap();
                    let taken = if matches!(op, Op::Take) { e.take(now, pick) } else { e.discard(pick) }.unwrap();
                    prop_assert_eq!(front, taken);
                    prop_assert_eq!(taken.0.priority & 7, taken.0.priority);
                    prop_assert_eq!(closed & 1 << taken.0.priority, 0);
                    let same = |w: &Entry| w.source == taken.0.source
                        && class(&q, w.source, w.level) == pick.class;
                    let first = waiting.iter().position(|(w, _)| same(w)).unwrap();
                    prop_assert_eq!(waiting.remove(first), taken);
                    if matches!(op, Op::Take) {
                        sent += u64::from(taken.0.wire);
                    }
                }
                Op::DropOldest(class) => {
                    let Some((pick, first)) = e.oldest(class).map(|(p, e)| (p, *e)) else { continue };
                    let in_class = |w: &Entry| self::class(&q, w.source, w.level) == class;
                    let earlier = waiting.iter().any(|(w, _)| in_class(w) && w.since < first.since);
                    prop_assert!(!earlier);

                    let (dropped, n) = e.discard(pick).unwrap();
                    prop_assert_eq!(dropped, first);
                    waiting.retain(|w| w.1 != n);
                }
                Op::Wait(ns) => now = Instant(now.0 + ns),
                Op::Close(mask) => closed = mask,
                Op::Forget(s) => e.forget_source(s),
                Op::Guarantee(s, c, rate) => {
                    let mut g = [0; 8];
                    g[usize::from(c)] = rate;
                    e.set_guarantee(s, &g);
                }
                Op::Classes(of_priority) => {
                    q.classes.of_priority = of_priority.map(|class| class % lanes);
                    e.configure(&q, now);
                    waiting.sort_by_key(|(_, n)| *n);
                }
                Op::Upper(of_upper) => {
                    q.classes.of_upper = of_upper.map(|table| table.map(|class| class % lanes));
                    e.configure(&q, now);
                    waiting.sort_by_key(|(_, n)| *n);
                }
                Op::Sources(by_source) => {
                    let within = |(source, table): (u16, [u8; 16])| (source, table.map(|class| class % lanes));
                    q.classes.by_source = by_source.into_iter().map(within).collect();
                    e.configure(&q, now);
                    waiting.sort_by_key(|(_, n)| *n);
                }
            }
            prop_assert_eq!(e.len(), waiting.len());
            let bytes: u64 = waiting.iter().map(|(w, _)| u64::from(w.bytes)).sum();
            prop_assert_eq!(e.bytes().iter().sum::<u64>(), bytes);
            // Work conservation: what waits, is open and has credit is offered.
            let may = waiting.iter().any(|(w, n)| {
                let same = |o: &Entry| o.source == w.source
                    && class(&q, o.source, o.level) == class(&q, w.source, w.level);
                let first = waiting.iter().find(|(o, _)| same(o)).map(|(_, m)| m) == Some(n);
                first && closed & 1 << w.priority == 0
            });
            match e.next_time(now, closed) {
                None => prop_assert!(!may),
                Some(at) => {
                    prop_assert!(may);
                    prop_assert_eq!(e.next(now, closed).is_some(), at <= now);
                }
            }
            if q.rate != 0 {
                let most = (now.0 + SLACK.as_nanos() as u64) * q.rate / 8 / GBIT + 66_000;
                prop_assert!(sent <= most, "{} of {}", sent, most);
            }
        }
    }

    /// What is granted ahead is what would have been granted frame by frame, and costs the same.
    #[test]
    fn passing_ahead_is_passing_one_by_one(q in any_qos(), ops in prop::collection::vec(op(), 1..400)) {
        let (mut ahead, mut single) = (Egress::new(&q, Instant(0)), Egress::new(&q, Instant(0)));
        let (mut now, mut closed) = (Instant(1_000_000), 0);
        for op in ops {
            match op {
                Op::Push(s, p, l) => {
                    ahead.push(entry(s, p, l, now), 0);
                    single.push(entry(s, p, l, now), 0);
                }
                Op::Pass(_, p, l) => for _ in 0..20 {
                    single.settle();
                    prop_assert_eq!(ahead.pass(now, p, l, closed), single.pass(now, p, l, closed));
                }
                Op::Take => {
                    let pick = ahead.next(now, closed);
                    prop_assert_eq!(pick, single.next(now, closed));
                    if let Some(pick) = pick {
                        prop_assert_eq!(ahead.take(now, pick), single.take(now, pick));
                    }
                }
                Op::Wait(ns) => now = Instant(now.0 + ns / 50),
                Op::Close(mask) => closed = mask,
                _ => {}
            }
            prop_assert_eq!(ahead.next_time(now, closed), single.next_time(now, closed));
        }
        ahead.settle();
        single.settle();
        prop_assert_eq!((ahead.port, ahead.limits), (single.port, single.limits));
    }

    /// Shares of arbitrary weights and lengths are exact to 1 % of the link, limits are kept, turns are equal.
    #[test]
    fn arbitrary_shares(
        weights in prop::array::uniform4(1..25u8),
        lengths in prop::array::uniform8(prop_oneof![Just(88u32), 88..2000u32, 88..65_600u32]),
        rate in 1..100u64,
    ) {
        let q = ets(rate * GBIT, &[(0, weights[0]), (1, weights[1]), (2, weights[2]), (3, weights[3])]);
        let mut e = Egress::new(&q, Instant(0));
        let flows: Vec<_> = (0..8).map(|i| (i as u16, (i % 4) as u8, lengths[i])).collect();
        // So long that a frame is little.
        let ns = 8 * 10_000_000 / rate;
        let sent = run(&mut e, &flows, ns, 0);
        let all: u64 = sent.iter().sum();
        let sum: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        for i in 0..8 {
            let want = all * u64::from(weights[i % 4]) / sum / 2;
            prop_assert!(sent[i].abs_diff(want) <= all / 100, "{:?} {:?}", sent, weights);
        }
        let full = ns * rate / 8;
        prop_assert!(all.abs_diff(full) <= rate * 12_500 + 66_000, "{} {}", all, full);
    }
}
