use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use vnic_wire::EtherType;

use super::*;
use crate::Instant;
use crate::network::{Link, Network};

const A: PortId = PortId(1);
const B: PortId = PortId(2);

/// A RoCEv2 frame over IPv4 with `payload` bytes behind the BTH and a made-up ICRC.
fn roce_v4(opcode: u8, qp: u32, psn: u32, payload: usize, padding: usize) -> Vec<u8> {
    let udp = 8 + 12 + payload + 4;
    let ip = vnic_wire::ipv4::Header {
        header_len: 20,
        dscp_ecn: 0x02,
        total_len: (20 + udp) as u16,
        id: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: 17,
        checksum: 0,
        source: [10, 0, 0, 1],
        destination: [10, 0, 0, 2],
    };
    let mut f = ethernet(EtherType::IPV4);
    f.extend(ip.emit());
    f.extend(rest(udp, opcode, qp, psn, payload));
    f.resize(f.len() + padding, 0);
    f
}

fn roce_v6(opcode: u8, qp: u32, psn: u32, payload: usize) -> Vec<u8> {
    let udp = 8 + 12 + payload + 4;
    let ip = vnic_wire::ipv6::Header {
        traffic_class: 0x01,
        flow_label: 0,
        payload_len: udp as u16,
        next_header: 17,
        hop_limit: 64,
        source: [1; 16],
        destination: [2; 16],
    };
    let mut f = ethernet(EtherType::IPV6);
    f.extend(ip.emit());
    f.extend(rest(udp, opcode, qp, psn, payload));
    f
}

fn ethernet(ethertype: EtherType) -> Vec<u8> {
    let mut f = vec![2; 12];
    f.extend(ethertype.0.to_be_bytes());
    f
}

fn rest(udp: usize, opcode: u8, qp: u32, psn: u32, payload: usize) -> Vec<u8> {
    let header = vnic_wire::udp::Header {
        source_port: 0xc000,
        destination_port: 4791,
        len: udp as u16,
        checksum: 0,
    };
    let mut f = header.emit().to_vec();
    f.extend([opcode, 0, 0xff, 0xff]);
    f.extend(qp.to_be_bytes());
    f.extend(psn.to_be_bytes());
    f.resize(f.len() + payload + 4, 0x5a);
    f
}

fn facts(psn: u32) -> Facts {
    Facts::of(A, B, &roce_v4(4, 0x11, psn, 64, 0))
}

fn with(rule: Rule) -> Faults {
    let mut faults = Faults::new(1);
    faults.add(rule).expect("a sound rule");
    faults
}

fn always(action: Action) -> Rule {
    Rule::new(RuleId(1), action)
}

fn reorder(by: u32) -> Action {
    Action::Reorder {
        by,
        at_most: Duration::from_millis(10),
    }
}

#[test]
fn facts_of_both_ip_versions_and_of_roce_v1() {
    let mut tagged = roce_v4(10, 7, 0xff_fffe, 3, 0);
    tagged.splice(12..12, [0x81, 0x00, 0x00, 0x05]);
    let mut v1 = ethernet(EtherType::ROCE);
    let v6 = roce_v6(10, 7, 0xff_fffe, 3);
    v1.extend(&v6[14..54]);
    v1[14 + 5] -= 8;
    v1[14 + 6] = vnic_wire::grh::NEXT_HEADER_IBA;
    v1.extend(&v6[62..]);
    for (frame, bth) in [
        (roce_v4(10, 7, 0xff_fffe, 3, 0), 42),
        (tagged, 46),
        (v6, 62),
        (v1, 54),
    ] {
        let f = Facts::of(A, B, &frame);
        let r = f.roce.clone().expect("RoCE");
        assert_eq!((r.opcode, r.destination_qp, r.psn), (10, 7, 0xff_fffe));
        assert_eq!(r.packet, bth..frame.len() as u32);
        let head = &frame[..frame.len().min(Facts::HEAD)];
        assert_eq!(Facts::of_head(A, B, head, frame.len()), f);
    }
    let padded = Facts::of(A, B, &roce_v4(10, 7, 1, 0, 9));
    assert_eq!(padded.roce.expect("RoCE").packet, 42..58);
}

#[test]
fn facts_of_what_is_no_roce() {
    let mut other_port = roce_v4(4, 1, 1, 8, 0);
    other_port[14 + 20 + 3] ^= 1;
    let mut fragment = roce_v4(4, 1, 1, 8, 0);
    fragment[14 + 6] |= 0x20;
    let cut = &roce_v4(4, 1, 1, 8, 0)[..50];
    for frame in [&other_port[..], &fragment, cut, &[], &[1; 13], &[0xff; 64]] {
        assert_eq!(Facts::of(A, B, frame).roce, None);
    }
}

#[test]
fn a_match_means_what_it_says() {
    let set = |o: &[u8]| Some(o.iter().copied().collect::<Opcodes>());
    let range = |first, last| Some(PsnRange { first, last });
    let m = Match::default;
    let frame = facts(1);
    let arp = Facts::of(A, B, &ethernet(EtherType::ARP));
    for (means, other, this) in [
        (true, true, m()),
        (true, true, Match { from: Some(A), ..m() }),
        (false, false, Match { to: Some(A), ..m() }),
        (true, false, Match { roce: true, ..m() }),
        (
            true,
            false,
            Match {
                destination_qp: Some(0x11),
                ..m()
            },
        ),
        (
            false,
            false,
            Match {
                destination_qp: Some(0x12),
                ..m()
            },
        ),
        (
            true,
            false,
            Match {
                opcodes: set(&[0, 4, 255]),
                ..m()
            },
        ),
        (
            false,
            false,
            Match {
                opcodes: set(&[3, 5, 68]),
                ..m()
            },
        ),
        (
            true,
            false,
            Match {
                psn: range(1, 1),
                ..m()
            },
        ),
        (
            true,
            false,
            Match {
                psn: range(0xff_fffe, 1),
                ..m()
            },
        ),
        (
            false,
            false,
            Match {
                psn: range(2, 0),
                ..m()
            },
        ),
        (
            false,
            true,
            Match {
                ethertype: Some(EtherType::ARP),
                ..m()
            },
        ),
    ] {
        assert_eq!(this.covers(&frame), means, "{this:?}");
        assert_eq!(this.covers(&arp), other, "{this:?}");
    }
    assert!(PsnRange { first: 5, last: 4 }.contains(0), "all of them");
}

#[test]
fn limits_are_enforced() {
    let ns = Duration::from_nanos;
    let good = always(Action::Drop);
    let act = |action| Rule {
        action,
        ..good.clone()
    };
    let matching = |matches| Rule {
        matches,
        ..good.clone()
    };
    for bad in [
        Rule {
            probability: ALWAYS + 1,
            ..good.clone()
        },
        matching(Match {
            destination_qp: Some(1 << 24),
            ..Match::default()
        }),
        matching(Match {
            psn: Some(PsnRange {
                first: 1 << 24,
                last: 0,
            }),
            ..Match::default()
        }),
        matching(Match {
            opcodes: Some(Opcodes::default()),
            ..Match::default()
        }),
        act(Action::Delay {
            by: ns(0),
            jitter: ns(0),
        }),
        act(Action::Delay {
            by: HOLD_MAX,
            jitter: ns(1),
        }),
        act(Action::Delay {
            by: Duration::MAX,
            jitter: Duration::MAX,
        }),
        act(reorder(0)),
        act(reorder(REORDER_MAX + 1)),
        act(Action::Reorder {
            by: 1,
            at_most: ns(0),
        }),
        act(Action::Duplicate { copies: 0 }),
        act(Action::Duplicate {
            copies: COPIES_MAX + 1,
        }),
        act(Action::Corrupt {
            bits: 0,
            offset: None,
        }),
        act(Action::Corrupt {
            bits: BITS_MAX + 1,
            offset: None,
        }),
        act(Action::Corrupt {
            bits: 9,
            offset: Some(1),
        }),
    ] {
        assert!(Faults::new(0).add(bad.clone()).is_err(), "{bad:?}");
    }
}

#[test]
fn skip_and_count_are_exact_and_shared() {
    let rule = Rule {
        skip: 3,
        count: Some(5),
        ..always(Action::Drop)
    };
    let mut one = with(rule.clone());
    let hit: Vec<u32> = (0..20)
        .filter(|p| one.judge(&facts(*p)).dropped().is_some())
        .collect();
    assert_eq!(hit, [3, 4, 5, 6, 7]);

    let tally = Arc::new(Tally::default());
    let mut two = [Faults::new(0), Faults::new(1)];
    for f in &mut two {
        f.add_shared(rule.clone(), tally.clone()).expect("a sound rule");
    }
    let hits = (0..20)
        .filter(|p| two[*p as usize % 2].judge(&facts(*p)).dropped().is_some())
        .count();
    assert_eq!((hits, tally.matched(), tally.injected()), (5, 20, 5));
}

#[test]
fn the_probability_is_kept() {
    // 100,000 frames at 1 %: 1000 expected, standard deviation 31; five of them.
    for seed in 0..5 {
        let mut faults = Faults::new(seed);
        let tally = faults
            .add(Rule {
                probability: 10_000,
                ..always(Action::Drop)
            })
            .expect("a sound rule");
        for p in 0..100_000 {
            faults.judge(&facts(p));
        }
        assert!((843..=1157).contains(&tally.injected()), "{}", tally.injected());
    }
    for (probability, expected) in [(0, 0), (ALWAYS, 100)] {
        let mut faults = with(Rule {
            probability,
            ..always(Action::Drop)
        });
        (0..100).for_each(|p| drop(faults.judge(&facts(p))));
        assert_eq!(faults.list().map(|(_, t)| t.injected()).sum::<u64>(), expected);
    }
}

#[test]
fn effects_add_up_until_a_drop() {
    let mut faults = Faults::new(0);
    let ms = Duration::from_millis(1);
    for (id, action) in [
        (
            1,
            Action::Delay {
                by: ms,
                jitter: Duration::ZERO,
            },
        ),
        (2, Action::Duplicate { copies: 2 }),
        (3, Action::MarkCe),
        (
            4,
            Action::Corrupt {
                bits: 3,
                offset: Some(60),
            },
        ),
        (
            5,
            Action::Delay {
                by: ms,
                jitter: Duration::ZERO,
            },
        ),
    ] {
        faults.add(Rule::new(RuleId(id), action)).expect("a sound rule");
    }
    let v = faults.judge(&facts(1));
    assert_eq!(v.injections.len(), 5);
    let hold = v.hold().expect("held");
    assert_eq!(
        (hold.delay, hold.by, v.copies(), v.marks_ce()),
        (2 * ms, 0, 2, true)
    );
    assert_eq!(
        v.flips().map(|b| b / 8).collect::<Vec<_>>(),
        [60; 3],
        "in the given byte"
    );
    assert_eq!(v.flips().collect::<BTreeSet<_>>().len(), 3, "different bits");
    faults
        .add(Rule::new(RuleId(6), Action::Drop))
        .expect("a sound rule");
    faults
        .add(Rule::new(RuleId(7), Action::MarkCe))
        .expect("a sound rule");
    let v = faults.judge(&facts(1));
    assert_eq!(v.dropped(), Some(RuleId(6)));
    assert_eq!(v.injections.len(), 6, "behind a drop nobody is asked");
    faults.remove(RuleId(6)).expect("there");
    assert_eq!(faults.judge(&facts(1)).injections.len(), 6);
    assert_eq!(faults.list().len(), 6);
}

#[test]
fn rules_do_not_disturb_each_other() {
    let rule = Rule {
        probability: 300_000,
        ..always(Action::MarkCe)
    };
    let run =
        |mut faults: Faults| -> Vec<bool> { (0..200).map(|p| faults.judge(&facts(p)).marks_ce()).collect() };
    let alone = run(with(rule.clone()));
    let mut both = with(rule);
    let other = Rule {
        probability: 500_000,
        ..Rule::new(RuleId(2), Action::Duplicate { copies: 1 })
    };
    both.add(other).expect("a sound rule");
    assert_eq!(run(both), alone);
}

#[test]
fn corruption_hits_what_the_icrc_covers() {
    let frame = roce_v4(4, 1, 1, 0, 10);
    let f = Facts::of(A, B, &frame);
    let mut faults = with(always(Action::Corrupt {
        bits: 1,
        offset: None,
    }));
    let hit: BTreeSet<u32> = (0..5000)
        .flat_map(|_| faults.judge(&f).flips().collect::<Vec<_>>())
        .map(|b| b / 8)
        .collect();
    // BTH without its variant byte, ICRC; no header before and no padding behind.
    let expected: BTreeSet<u32> = (42..58).filter(|b| *b != 46).collect();
    assert_eq!(hit, expected);

    let tiny = Facts::of(A, B, &ethernet(EtherType::ARP));
    assert!(faults.judge(&tiny).is_untouched(), "nothing there to corrupt");
    let one = Facts::of(A, B, &[ethernet(EtherType::ARP), vec![0]].concat());
    let mut many = with(always(Action::Corrupt {
        bits: 64,
        offset: None,
    }));
    assert_eq!(many.judge(&one).flips().count(), 8, "no more than there are");
    let mut far = with(always(Action::Corrupt {
        bits: 1,
        offset: Some(14),
    }));
    assert!(far.judge(&tiny).is_untouched());
    assert_eq!(far.judge(&one).flips().map(|b| b / 8).collect::<Vec<_>>(), [14]);
}

#[test]
fn marks_are_for_those_who_react_to_them() {
    let mut faults = with(always(Action::MarkCe));
    for (frame, byte, shift) in [(roce_v4(4, 1, 1, 8, 0), 15, 0), (roce_v6(4, 1, 1, 8), 15, 4)] {
        let mut marked = frame.clone();
        let v = faults.judge(&Facts::of(A, B, &frame));
        v.apply(&mut marked);
        assert!(v.marks_ce());
        assert_eq!(marked[byte] >> shift & 3, 3);
        let mut deaf = frame.clone();
        deaf[byte] &= !(3 << shift);
        assert!(faults.judge(&Facts::of(A, B, &deaf)).is_untouched());
    }
    assert!(
        faults
            .judge(&Facts::of(A, B, &ethernet(EtherType::ARP)))
            .is_untouched()
    );
}

#[test]
fn effects_for_people() {
    let texts: Vec<_> = [
        Effect::Drop,
        Effect::Delay(Duration::from_micros(1200)),
        Effect::Reorder {
            by: 3,
            at_most: Duration::from_millis(10),
        },
        Effect::Duplicate(1),
        Effect::Corrupt(vec![42 * 8 + 3, 57 * 8]),
        Effect::MarkCe,
    ]
    .iter()
    .map(|e| std::format!("{e}"))
    .collect();
    assert_eq!(
        texts,
        [
            "drop",
            "delay 1.2 ms",
            "reorder by 3, at most 10 ms",
            "duplicate 1",
            "corrupt byte 42 bit 3, byte 57 bit 0",
            "mark CE"
        ]
    );
}

/// Sends PSNs 0.. a microsecond apart from A to B and answers in which order, when and with what they arrive.
fn run(faults: Faults, link: Link, frames: u32) -> Vec<(u64, u32, Verdict)> {
    let mut net: Network<u32> = Network::new(faults);
    net.set_default(link);
    let mut out = Vec::new();
    let mut collect = |net: &mut Network<u32>, until: u64| {
        while let Some(t) = net.next_time().filter(|t| t.0 <= until) {
            while let Some(a) = net.pop(t) {
                assert_eq!(a.at, t, "called in time");
                out.push((a.at.0, a.item, a.verdict));
            }
        }
    };
    for p in 0..frames {
        let now = u64::from(p) * 1000;
        collect(&mut net, now);
        net.send(Instant(now), facts(p), p);
    }
    collect(&mut net, u64::MAX);
    assert!(net.is_empty());
    out
}

fn order(arrivals: &[(u64, u32, Verdict)]) -> Vec<u32> {
    arrivals.iter().map(|(_, p, _)| *p).collect()
}

#[test]
fn reordering_reorders() {
    let link = Link::default();
    assert_eq!(
        order(&run(with(always(reorder(1))), link, 6)),
        [1, 0, 3, 2, 5, 4],
        "pairs are swapped"
    );
    assert_eq!(order(&run(with(always(reorder(2))), link, 6)), [1, 2, 0, 4, 5, 3]);
    let once = Rule {
        count: Some(1),
        skip: 1,
        ..always(reorder(3))
    };
    assert_eq!(order(&run(with(once), link, 6)), [0, 2, 3, 4, 1, 5]);
    let nobody_follows = run(with(always(reorder(5))), link, 1);
    assert_eq!(nobody_follows[0].0, 10_000_000, "the longest time");
}

#[test]
fn another_path_does_not_count_as_passing() {
    let mut net: Network<u32> = Network::new(with(Rule {
        count: Some(1),
        ..always(reorder(1))
    }));
    net.send(Instant(0), facts(0), 0);
    let back = Facts {
        from: B,
        to: A,
        ..facts(1)
    };
    net.send(Instant(5), back, 1);
    assert_eq!(net.pop(Instant(5)).map(|a| a.item), Some(1));
    assert_eq!(net.pop(Instant(5)), None);
    net.send(Instant(6), facts(2), 2);
    let items: Vec<_> = std::iter::from_fn(|| net.pop(Instant(6)))
        .map(|a| a.item)
        .collect();
    assert_eq!(items, [2, 0]);
}

#[test]
fn links_have_latency_and_rate() {
    let mut net: Network<u32> = Network::new(Faults::new(0));
    net.set_link(
        A,
        B,
        Link {
            latency: Duration::from_nanos(500),
            bits_per_second: Some(1_000_000_000),
        },
    );
    let len = u64::from(facts(0).len);
    for p in 0..3 {
        net.send(Instant(100), facts(p), p);
    }
    net.send(
        Instant(100),
        Facts {
            from: B,
            to: A,
            ..facts(9)
        },
        9,
    );
    let times: Vec<_> = std::iter::from_fn(|| net.pop(Instant(100_000)))
        .map(|a| (a.at.0, a.item))
        .collect();
    let at = |n: u64| 100 + n * len * 8 + 500;
    assert_eq!(times, [(100, 9), (at(1), 0), (at(2), 1), (at(3), 2)]);
}

#[test]
fn a_duplicate_follows_its_frame() {
    let mut net: Network<u32> = Network::new(with(always(Action::Duplicate { copies: 2 })));
    net.send(Instant(0), facts(0), 0);
    net.send(Instant(0), facts(1), 1);
    let got: Vec<_> = std::iter::from_fn(|| net.pop(Instant(0)))
        .map(|a| (a.item, a.copy))
        .collect();
    assert_eq!(got, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn held_frames_can_be_let_go_and_taken_out() {
    let mut held: Holding<u32> = Holding::default();
    let hold = |by| Hold {
        delay: Duration::from_secs(1),
        by,
        at_most: Duration::from_secs(1),
    };
    for (n, by) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
        held.hold(Instant(0), (A, B), &hold(by), n);
    }
    assert_eq!(held.take_out(|_, n| *n == 2), [2]);
    held.let_go(Instant(7), |n| *n != 3);
    let out: Vec<_> = std::iter::from_fn(|| held.pop(Instant(7))).collect();
    assert_eq!(out, [(Instant(7), (A, B), 0), (Instant(7), (A, B), 1)]);
    held.passed(Instant(8), (A, B));
    assert_eq!((held.len(), held.next_time()), (1, Some(Instant(1_000_000_000))));
}

#[test]
fn the_delay_is_kept_before_anybody_may_pass() {
    let mut held: Holding<u32> = Holding::default();
    let hold = Hold {
        delay: Duration::from_nanos(10),
        by: 1,
        at_most: Duration::from_nanos(100),
    };
    held.hold(Instant(0), (A, B), &hold, 1);
    held.passed(Instant(5), (A, B));
    assert_eq!(held.next_time(), Some(Instant(10)));
}

fn any_action() -> impl Strategy<Value = Action> {
    let ns = |n: std::ops::Range<u64>| n.prop_map(Duration::from_nanos);
    prop_oneof![
        Just(Action::Drop),
        (ns(1..50_000), ns(0..50_000)).prop_map(|(by, jitter)| Action::Delay { by, jitter }),
        (1..8u32, ns(1..50_000)).prop_map(|(by, at_most)| Action::Reorder { by, at_most }),
        (1..4u32).prop_map(|copies| Action::Duplicate { copies }),
        (1..=8u32, proptest::option::of(0..200u16))
            .prop_map(|(bits, offset)| Action::Corrupt { bits, offset }),
        Just(Action::MarkCe),
    ]
}

fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (
        any_action(),
        0..=ALWAYS,
        0..5u64,
        proptest::option::of(0..10u64),
        proptest::option::of(any::<u64>()),
    )
        .prop_map(|(action, probability, skip, count, seed)| Rule {
            probability,
            skip,
            count,
            seed,
            ..Rule::new(RuleId(0), action)
        });
    proptest::collection::vec(rule, 0..5).prop_map(|mut rules| {
        for (i, r) in rules.iter_mut().enumerate() {
            r.id = RuleId(i as u32);
        }
        rules
    })
}

fn faults_of(seed: u64, rules: &[Rule]) -> Faults {
    let mut faults = Faults::new(seed);
    for r in rules {
        faults.add(r.clone()).expect("a sound rule");
    }
    faults
}

proptest! {
    #[test]
    fn the_same_seed_says_the_same_and_nothing_gets_lost(seed: u64, rules in any_rules(), frames in 1..60u32, rate in proptest::option::of(1_000_000..1_000_000_000u64)) {
        let link = Link { latency: Duration::from_nanos(700), bits_per_second: rate };
        let first = run(faults_of(seed, &rules), link, frames);
        prop_assert_eq!(&first, &run(faults_of(seed, &rules), link, frames));

        // What the faults say about the same frames without a network is what must come of them.
        let mut faults = faults_of(seed, &rules);
        let mut expected = Vec::new();
        for p in 0..frames {
            let v = faults.judge(&facts(p));
            if v.dropped().is_none() {
                expected.extend((0..=v.copies()).map(|_| p));
            }
        }
        let mut arrived = order(&first);
        arrived.sort_unstable();
        prop_assert_eq!(arrived, expected);
        for (rule, tally) in faults.list() {
            prop_assert!(tally.matched() <= u64::from(frames));
            prop_assert!(rule.count.is_none_or(|c| tally.injected() <= c));
            prop_assert!(tally.injected() <= tally.matched().saturating_sub(rule.skip));
        }
    }

    #[test]
    fn nobody_is_held_longer_than_said(seed: u64, rules in any_rules(), frames in 1..60u32) {
        for (at, p, v) in run(faults_of(seed, &rules), Link::default(), frames) {
            let sent = u64::from(p) * 1000;
            let longest = v.hold().map_or(0, |h| (h.delay + h.at_most).as_nanos() as u64);
            prop_assert!(at <= sent + longest);
            let shortest = v.hold().map_or(0, |h| h.delay.as_nanos() as u64);
            prop_assert!(at >= sent + shortest);
        }
    }

    #[test]
    fn any_bytes_have_facts(bytes in proptest::collection::vec(any::<u8>(), 0..120), opcode: u8, at in 0..120usize, new: u8) {
        let mut almost = roce_v4(opcode, 1, 1, 10, 0);
        if let Some(b) = almost.get_mut(at) { *b = new; }
        for frame in [&bytes, &almost] {
            let f = Facts::of(A, B, frame);
            let mut faults = with(always(Action::Corrupt { bits: 64, offset: None }));
            let v = faults.judge(&f);
            let mut copy = frame.clone();
            v.apply(&mut copy);
            prop_assert!(v.flips().all(|b| (b / 8) < f.len));
            prop_assert_eq!(v.is_untouched(), copy == *frame);
        }
    }
}
