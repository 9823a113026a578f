mod simulation;

use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use expect_test::expect;
use proptest::prelude::*;
use vnic_wire::MacAddr;

use super::*;
use crate::lag::MEMBERS_MAX;
use crate::lag::hash::tests::udp;
use crate::lag::{Evenness, Packet};

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Instant {
    Instant(ms * MS)
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Layer3+4; 1 s until a member counts again, 1 ms of quiet, 100 ms of patience.
fn aggregate(members: usize) -> Bond {
    Bond::new(members, BondSettings::default()).unwrap()
}

fn all_up(mut bond: Bond) -> Bond {
    for m in 0..bond.members.len() as u8 {
        bond.set_link(ms(0), Member(m), true);
    }
    bond
}

/// A flow whose hash is the number: of ports that differ in their lowest byte only.
fn flow(number: u8) -> Flow {
    let flow = udp(u16::from_be_bytes([number << 1, 0]), 0);
    let base = Policy::Layer34.hash(&udp(0, 0));
    assert_eq!(Policy::Layer34.hash(&flow) ^ base, u32::from(number & 0x7f));
    flow
}

/// Sends a frame that leaves the port at once.
fn send(bond: &mut Bond, now: Instant, flow: &Flow) -> Option<u8> {
    match bond.transmit(now, flow, 100) {
        Choice::Send { member, slot } => {
            bond.departed(now, slot);
            Some(member.0)
        }
        _ => None,
    }
}

fn loads(bond: &Bond) -> Vec<usize> {
    bond.view(ms(0)).members.iter().map(|m| m.buckets).collect()
}

#[test]
fn all_members_up_is_hash_modulo_members() {
    for members in 1..=MEMBERS_MAX {
        let bond = all_up(aggregate(members));
        for source in (0..u16::MAX).step_by(97) {
            let flow = udp(source, 4791);
            let member = Policy::FiveTuple.hash(&flow) as usize % members;
            assert_eq!(bond.member_of(&flow), Some(Member(member as u8)));
        }
    }
}

/// How many buckets each member has while these are down.
#[test]
fn what_a_dead_member_had_is_spread_over_all() {
    let mut table = String::new();
    for (members, down) in [
        (2, &[][..]),
        (2, &[0]),
        (3, &[1]),
        (4, &[2]),
        (4, &[2, 3]),
        (4, &[0, 1, 2]),
        (8, &[0]),
        (8, &[0, 4, 5]),
        (32, &[7]),
        (32, &[0, 1, 2, 3]),
    ] {
        let mut bond = all_up(aggregate(members));
        for m in down {
            bond.set_link(ms(1), Member(*m), false);
        }
        let (of, loads) = (bond.buckets().len(), loads(&bond));
        table += &format!("{members} members, {of} buckets, down {down:?}: {loads:?}\n");
    }
    expect![[r#"
        2 members, 256 buckets, down []: [128, 128]
        2 members, 256 buckets, down [0]: [0, 256]
        3 members, 255 buckets, down [1]: [127, 0, 128]
        4 members, 256 buckets, down [2]: [85, 85, 0, 86]
        4 members, 256 buckets, down [2, 3]: [131, 125, 0, 0]
        4 members, 256 buckets, down [0, 1, 2]: [0, 0, 0, 256]
        8 members, 256 buckets, down [0]: [0, 37, 37, 37, 37, 36, 36, 36]
        8 members, 256 buckets, down [0, 4, 5]: [0, 50, 47, 49, 0, 0, 54, 56]
        32 members, 256 buckets, down [7]: [8, 8, 8, 9, 8, 8, 8, 0, 9, 8, 8, 9, 8, 8, 8, 9, 8, 8, 8, 9, 8, 8, 8, 9, 8, 8, 8, 9, 8, 8, 8, 9]
        32 members, 256 buckets, down [0, 1, 2, 3]: [0, 0, 0, 0, 11, 9, 9, 9, 9, 9, 9, 9, 9, 9, 10, 9, 9, 9, 9, 9, 9, 9, 9, 9, 10, 9, 9, 9, 9, 9, 9, 9]
    "#]].assert_eq(&table);
}

#[test]
fn nobody_is_up() {
    let mut bond = aggregate(2);
    assert_eq!(bond.transmit(ms(0), &flow(0), 1), Choice::Nowhere);
    bond.set_link(ms(1), Member(1), true);
    assert_eq!(send(&mut bond, ms(1), &flow(0)), Some(1));
    bond.set_link(ms(2), Member(1), false);
    assert_eq!(bond.transmit(ms(2), &flow(0), 1), Choice::Nowhere);
    assert_eq!(bond.next_time(), None);
    // Nobody else is up: it counts at once.
    bond.set_link(ms(3), Member(1), true);
    assert_eq!(send(&mut bond, ms(3), &flow(0)), Some(1));
}

/// What happens to a flow of member 0 and one of member 1 when 0 fails and comes back.
#[test]
fn failover_is_at_once_and_failback_waits() {
    let mut bond = all_up(aggregate(2));
    let (a, b) = (flow(1), flow(0));
    let both = |bond: &mut Bond, now| (send(bond, now, &a), send(bond, now, &b));
    assert_eq!(both(&mut bond, ms(0)), (Some(0), Some(1)));
    bond.set_link(ms(10), Member(0), false);
    assert_eq!(both(&mut bond, ms(10)), (Some(1), Some(1)));
    bond.set_link(ms(20), Member(0), true);
    assert_eq!(bond.next_time(), Some(ms(1020)));
    for t in (20..1020).step_by(10) {
        assert_eq!(both(&mut bond, ms(t)), (Some(1), Some(1)), "at {t} ms");
    }
    // 10 ms after its last frame: it pauses often enough.
    assert_eq!(both(&mut bond, ms(1020)), (Some(0), Some(1)));
    // It flaps: the delay begins anew.
    bond.set_link(ms(1030), Member(0), false);
    bond.set_link(ms(1040), Member(0), true);
    bond.set_link(ms(2030), Member(0), false);
    bond.set_link(ms(2035), Member(0), true);
    assert_eq!(both(&mut bond, ms(3034)), (Some(1), Some(1)));
    assert_eq!(both(&mut bond, ms(3035)), (Some(0), Some(1)));
    let view = bond.view(ms(3035));
    assert_eq!((view.members[0].flows, view.members[1].flows), (1, 1));
}

/// A flow with a frame every 0.5 ms never pauses for 1 ms: after 100 ms it is held, for 1 ms.
#[test]
fn a_flow_that_never_pauses_is_held() {
    let mut bond = all_up(aggregate(2));
    let a = flow(1);
    bond.set_link(ms(10), Member(0), false);
    bond.set_link(ms(20), Member(0), true);
    let half = MS / 2;
    let mut t = ms(1000).0;
    while t < ms(1120).0 {
        assert_eq!(send(&mut bond, Instant(t), &a), Some(1), "at {t} ns");
        t += half;
    }
    // The last one left at 1119.5 ms.
    let now = ms(1120);
    let Choice::Wait { until, slot } = bond.transmit(now, &a, 100) else {
        panic!("it goes on");
    };
    assert_eq!(until, Instant(ms(1120).0 + half));
    // Those behind it wait for it, even when it may go.
    let Choice::Wait { .. } = bond.transmit(until, &a, 100) else {
        panic!("it overtakes");
    };
    let wanted = Choice::Send {
        member: Member(0),
        slot,
    };
    assert_eq!(bond.retry(until, slot, &a, 100), wanted);
    assert!(matches!(bond.transmit(until, &a, 100), Choice::Wait { .. }));
    assert_eq!(bond.retry(until, slot, &a, 100), wanted);
    bond.give_up(until, slot);
    assert_eq!(bond.transmit(until, &a, 100), wanted, "nobody waits any more");
}

/// A port that does not send (paused by its peer, say) keeps what it was given.
#[test]
fn what_waits_in_a_port_keeps_its_flow_there() {
    let mut bond = all_up(aggregate(2));
    let a = flow(1);
    bond.set_link(ms(1), Member(0), false);
    let Choice::Send { member, slot } = bond.transmit(ms(1), &a, 100) else {
        panic!("it waits");
    };
    assert_eq!(member, Member(1));
    bond.set_link(ms(2), Member(0), true);
    bond.tick(ms(1002));
    assert_eq!(bond.member_of(&a), Some(Member(1)), "its frame is still there");
    let Choice::Wait { until, .. } = bond.transmit(ms(5000), &a, 100) else {
        panic!("it overtakes");
    };
    assert_eq!(until, ms(5001));
    bond.departed(ms(6000), slot);
    assert!(matches!(bond.retry(ms(6000), slot, &a, 100), Choice::Wait { until, .. } if until == ms(6001)));
    let Choice::Send { member, .. } = bond.retry(ms(6001), slot, &a, 100) else {
        panic!("it is clear");
    };
    assert_eq!(member, Member(0));
}

#[test]
fn without_patience_a_flow_stays_until_it_pauses() {
    let settings = BondSettings {
        patience: None,
        ..BondSettings::default()
    };
    let mut bond = all_up(Bond::new(2, settings).unwrap());
    let a = flow(1);
    bond.set_link(ms(0), Member(0), false);
    bond.set_link(ms(0), Member(0), true);
    let mut t = 0;
    while t < 10_000 * MS {
        assert_eq!(send(&mut bond, Instant(t), &a), Some(1));
        t += MS / 2;
    }
    assert_eq!(send(&mut bond, Instant(t + MS / 2), &a), Some(0));
}

#[test]
fn quiet_flows_move_without_a_frame() {
    let mut bond = all_up(aggregate(2));
    assert_eq!(send(&mut bond, ms(0), &flow(1)), Some(0));
    bond.set_link(ms(0), Member(0), false);
    bond.set_link(ms(5), Member(0), true);
    bond.tick(ms(1004));
    assert_eq!(loads(&bond), [0, 256]);
    let at = bond.next_time().unwrap();
    assert_eq!(at, ms(1005));
    bond.tick(at);
    assert_eq!((loads(&bond), bond.next_time()), (vec![128, 128], None));
}

#[test]
fn lacp_decides_where_the_mode_asks_for_it() {
    let lacp = BondSettings {
        mode: Mode::Aggregate {
            policy: Policy::Layer34,
            lacp: true,
        },
        ..BondSettings::default()
    };
    let mut bond = all_up(Bond::new(2, lacp).unwrap());
    assert_eq!(bond.transmit(ms(0), &flow(0), 1), Choice::Nowhere);
    assert!(!bond.receives(Member(0)));
    bond.set_lacp(ms(0), Member(0), true, false);
    assert!(bond.receives(Member(0)) && !bond.receives(Member(1)));
    assert_eq!(bond.transmit(ms(0), &flow(0), 1), Choice::Nowhere);
    bond.set_lacp(ms(0), Member(0), true, true);
    assert_eq!(send(&mut bond, ms(0), &flow(0)), Some(0));
    bond.set_link(ms(1), Member(0), false);
    assert!(!bond.receives(Member(0)));
    assert_eq!(bond.transmit(ms(1), &flow(0), 1), Choice::Nowhere);
    let mut fixed = all_up(aggregate(2));
    fixed.set_lacp(ms(0), Member(0), false, false);
    assert!(fixed.receives(Member(0)), "a static one does not ask");
    assert_eq!(send(&mut fixed, ms(0), &flow(1)), Some(0));
}

fn active_backup(primary: Option<u8>, failback: bool) -> Bond {
    let settings = BondSettings {
        mode: Mode::ActiveBackup {
            primary: primary.map(Member),
            failback,
        },
        ..BondSettings::default()
    };
    Bond::new(3, settings).unwrap()
}

/// The active member after each event: a link of a member, at a time in ms.
#[test]
fn active_backup_as_a_table() {
    let up = |at: u64, m: u8| (at, m, true);
    let down = |at: u64, m: u8| (at, m, false);
    let events = [
        up(0, 0),
        up(1, 1),
        up(2, 2),
        down(100, 1),
        up(200, 1),
        down(2000, 0),
        up(2100, 0),
        down(4000, 0),
        down(4001, 1),
        down(4002, 2),
        up(4003, 2),
        up(4004, 1),
        up(4005, 0),
    ];
    let mut table = String::new();
    for (name, primary, failback) in [
        ("no primary", None, true),
        ("primary 1", Some(1), true),
        ("primary 1, NoFailBackToPrimary", Some(1), false),
    ] {
        let mut bond = active_backup(primary, failback);
        table += &format!("{name}\n");
        for (at, m, link) in events {
            bond.tick(ms(at));
            bond.set_link(ms(at), Member(m), link);
            let after = |bond: &mut Bond, at: u64| {
                bond.tick(ms(at));
                bond.active().map_or("-".to_string(), |m| m.0.to_string())
            };
            let now = after(&mut bond, at);
            // As long as nothing else happens.
            let later = after(&mut bond.clone(), at + 1500);
            let word = if link { "up" } else { "down" };
            table += &format!("  {at:4} ms {m} {word:4} active {now}, 1.5 s later {later}\n");
        }
    }
    expect![[r#"
        no primary
             0 ms 0 up   active 0, 1.5 s later 0
             1 ms 1 up   active 0, 1.5 s later 0
             2 ms 2 up   active 0, 1.5 s later 0
           100 ms 1 down active 0, 1.5 s later 0
           200 ms 1 up   active 0, 1.5 s later 0
          2000 ms 0 down active 1, 1.5 s later 1
          2100 ms 0 up   active 1, 1.5 s later 1
          4000 ms 0 down active 1, 1.5 s later 1
          4001 ms 1 down active 2, 1.5 s later 2
          4002 ms 2 down active -, 1.5 s later -
          4003 ms 2 up   active 2, 1.5 s later 2
          4004 ms 1 up   active 2, 1.5 s later 2
          4005 ms 0 up   active 2, 1.5 s later 2
        primary 1
             0 ms 0 up   active 0, 1.5 s later 0
             1 ms 1 up   active 1, 1.5 s later 1
             2 ms 2 up   active 1, 1.5 s later 1
           100 ms 1 down active 0, 1.5 s later 0
           200 ms 1 up   active 0, 1.5 s later 1
          2000 ms 0 down active 1, 1.5 s later 1
          2100 ms 0 up   active 1, 1.5 s later 1
          4000 ms 0 down active 1, 1.5 s later 1
          4001 ms 1 down active 2, 1.5 s later 2
          4002 ms 2 down active -, 1.5 s later -
          4003 ms 2 up   active 2, 1.5 s later 2
          4004 ms 1 up   active 2, 1.5 s later 1
          4005 ms 0 up   active 2, 1.5 s later 1
        primary 1, NoFailBackToPrimary
             0 ms 0 up   active 0, 1.5 s later 0
             1 ms 1 up   active 1, 1.5 s later 1
             2 ms 2 up   active 1, 1.5 s later 1
           100 ms 1 down active 0, 1.5 s later 0
           200 ms 1 up   active 0, 1.5 s later 0
          2000 ms 0 down active 1, 1.5 s later 1
          2100 ms 0 up   active 1, 1.5 s later 1
          4000 ms 0 down active 1, 1.5 s later 1
          4001 ms 1 down active 2, 1.5 s later 2
          4002 ms 2 down active -, 1.5 s later -
          4003 ms 2 up   active 2, 1.5 s later 2
          4004 ms 1 up   active 2, 1.5 s later 2
          4005 ms 0 up   active 2, 1.5 s later 2
    "#]]
    .assert_eq(&table);
}

#[test]
fn active_backup_moves_all_at_once() {
    let mut bond = active_backup(Some(0), true);
    for m in 0..3 {
        bond.set_link(ms(0), Member(m), true);
    }
    bond.set_link(ms(1), Member(0), false);
    let moves = bond.moves();
    bond.set_link(ms(2), Member(0), true);
    for t in 2..1102 {
        for n in [0, 1, 2] {
            assert_eq!(send(&mut bond, ms(t), &flow(n)), Some(1), "at {t} ms");
            bond.transmit(ms(t), &flow(n), 1);
        }
        assert!(bond.receives(Member(1)) && !bond.receives(Member(0)));
    }
    assert_eq!(bond.moves(), moves);
    // What was never said to have left may have to wait for ever: here it is given up.
    assert!(matches!(
        bond.transmit(ms(1102), &flow(1), 1),
        Choice::Wait { .. }
    ));
    for _ in 0..1100 * 3 {
        bond.departed(ms(1103), SlotId(0));
    }
    bond.tick(ms(1104));
    assert_eq!((bond.active(), bond.moves()), (Some(Member(0)), moves + 1));
    let what = Affinity::UdpSourcePort(1);
    let error = bond.set_affinity(ms(1104), what, Member(0)).unwrap_err();
    assert_eq!(error.field, "affinity");
}

fn rocev2(source_port: u16, qp: u32) -> Flow {
    Flow {
        qp: Some(qp),
        local_qp: Some(qp + 0x100),
        ..udp(source_port, 4791)
    }
}

/// 64 queue pairs that all have UDP source port 49152 (Linux, `IB_ROCE_UDP_ENCAP_VALID_PORT_MIN`) are on one member. With a
/// port each, or with an affinity each, they are spread.
#[test]
fn the_single_source_port() {
    let mut bond = all_up(aggregate(2));
    for qp in 0..64 {
        send(&mut bond, ms(0), &rocev2(49152, qp));
    }
    let even = |bond: &Bond, at: u64| bond.view(ms(at)).by_qps.map(|e| e.to_string());
    assert_eq!(
        even(&bond, 0).as_deref(),
        Some("largest share 100.0 %, Jain's index 0.500")
    );
    let mut cured = all_up(aggregate(2));
    for qp in 0..64u32 {
        send(&mut cured, ms(0), &rocev2(49152 + qp as u16 * 2, qp));
    }
    assert_eq!(
        even(&cured, 0).as_deref(),
        Some("largest share 50.0 %, Jain's index 1.000")
    );
    for qp in 0..64 {
        let flow = rocev2(49152, qp);
        let what = Affinity::Qp {
            source: flow.source,
            qp: qp + 0x100,
        };
        bond.set_affinity(ms(10), what, Member((qp % 2) as u8)).unwrap();
    }
    for qp in 0..64 {
        send(&mut bond, ms(20), &rocev2(49152, qp));
    }
    assert_eq!(
        even(&bond, 20).as_deref(),
        Some("largest share 50.0 %, Jain's index 1.000")
    );
    assert_eq!(bond.view(ms(20)).affinities.len(), 64);
}

#[test]
fn a_view() {
    let mut bond = all_up(aggregate(2));
    bond.set_link(ms(0), Member(0), false);
    bond.set_link(ms(1), Member(0), true);
    let what = Affinity::UdpSourcePort(49153);
    bond.set_affinity(ms(1), what, Member(0)).unwrap();
    for t in [500, 1000] {
        send(&mut bond, ms(t), &flow(1));
        send(&mut bond, ms(t), &rocev2(49153, 7));
    }
    send(&mut bond, ms(1000), &udp(1, 2));
    let view = bond.view(ms(1000));
    let mut text = String::new();
    for m in &view.members {
        text += &format!("{m:?}\n");
    }
    for s in &view.flows {
        text += &format!(
            "{} on {}: {} frames, {} bytes\n",
            s.flow, s.member.0, s.packets, s.bytes
        );
    }
    for a in &view.affinities {
        text += &format!("{a:?}\n");
    }
    let even = |e: Option<Evenness>| e.map_or("-".to_string(), |e| e.to_string());
    text += &format!("flows: {}\n", even(view.by_flows));
    text += &format!("QPs: {}\n", even(view.by_qps));
    text += &format!("bytes: {}\n", even(view.by_bytes));
    expect![[r#"
        MemberView { member: Member(0), link: true, collecting: false, distributing: false, usable: true, ready_in: Some(1ms), buckets: 0, leaving: 0, flows: 0, qps: 0, packets: 0, bytes: 0 }
        MemberView { member: Member(1), link: true, collecting: false, distributing: false, usable: true, ready_in: None, buckets: 256, leaving: 0, flows: 3, qps: 1, packets: 5, bytes: 500 }
        10.0.0.1:512 > 10.0.0.2:0 udp on 1: 2 frames, 200 bytes
        10.0.0.1:49153 > 10.0.0.2:4791 udp to QP 0x7 from QP 0x107 on 1: 2 frames, 200 bytes
        10.0.0.1:1 > 10.0.0.2:2 udp on 1: 1 frames, 100 bytes
        AffinityView { what: UdpSourcePort(49153), member: Member(0), current: Some(Member(1)), leaves: false }
        flows: largest share 100.0 %, Jain's index 0.500
        QPs: largest share 100.0 %, Jain's index 0.500
        bytes: largest share 100.0 %, Jain's index 0.500
    "#]].assert_eq(&text);
}

#[test]
fn affinities_hold_and_let_go_in_order() {
    let mut bond = all_up(aggregate(2));
    let f = rocev2(0xc000, 1);
    let home = bond.member_of(&f).unwrap();
    let other = Member(1 - home.0);
    let what = Affinity::Flow(f.packet.unwrap());
    assert_eq!(send(&mut bond, ms(0), &f), Some(home.0));
    bond.set_affinity(ms(1), what, other).unwrap();
    let Choice::Wait { until, slot } = bond.transmit(ms(1), &f, 1) else {
        panic!("it overtakes");
    };
    assert_eq!((until, bond.next_time()), (ms(2), Some(ms(2))));
    let Choice::Send { member, slot } = bond.retry(until, slot, &f, 1) else {
        panic!("it is clear");
    };
    assert_eq!(member, other);
    // The member it names fails, and comes back.
    bond.set_link(ms(3), other, false);
    assert_eq!(send(&mut bond, ms(3), &f), Some(home.0));
    bond.departed(ms(3), slot);
    bond.set_link(ms(4), other, true);
    assert_eq!(send(&mut bond, ms(1003), &f), Some(home.0));
    assert_eq!(send(&mut bond, ms(1004), &f), Some(other.0));
    // Removed while it is busy: it waits, then goes home; those behind it stay behind it.
    assert!(bond.remove_affinity(ms(1004), what));
    assert!(!bond.remove_affinity(ms(1004), what), "it is leaving");
    let Choice::Wait { until, slot } = bond.transmit(ms(1004), &f, 1) else {
        panic!("it overtakes");
    };
    assert!(matches!(bond.transmit(ms(1004), &f, 1), Choice::Wait { .. }));
    assert_eq!(until, ms(1005));
    for _ in 0..2 {
        let Choice::Send { member, slot: bucket } = bond.retry(until, slot, &f, 1) else {
            panic!("it is clear");
        };
        assert_eq!(member, home);
        assert_ne!(bucket, slot);
        bond.departed(until, bucket);
    }
    assert!(bond.affinities.is_empty());
    // Set, removed, set again before it has gone.
    bond.set_affinity(ms(2000), what, other).unwrap();
    assert!(bond.remove_affinity(ms(2000), what));
    bond.set_affinity(ms(2000), what, other).unwrap();
    bond.tick(ms(2001));
    assert_eq!(send(&mut bond, ms(2001), &f), Some(other.0));
    assert!(bond.remove_affinity(ms(2001), what));
    bond.tick(ms(2002));
    assert!(bond.affinities.is_empty(), "it goes without a frame");
    assert!(!bond.remove_affinity(ms(2002), what));
}

#[test]
fn the_narrower_affinity_wins() {
    let mut bond = all_up(aggregate(4));
    let f = rocev2(0xc000, 1);
    let (source, qp) = (f.source, 0x101);
    let by_port = Affinity::UdpSourcePort(0xc000);
    let by_flow = Affinity::Flow(f.packet.unwrap());
    let by_qp = Affinity::Qp { source, qp };
    for (n, what) in (1..).zip([by_port, by_flow, by_qp]) {
        bond.set_affinity(ms(0), what, Member(n)).unwrap();
        assert_eq!(bond.member_of(&f), Some(Member(n)), "{what:?}");
    }
    let others = [
        Flow {
            source: MacAddr([9; 6]),
            ..f
        },
        Flow { local_qp: None, ..f },
    ];
    for flow in others {
        assert_eq!(bond.member_of(&flow), Some(Member(2)), "another adapter's QP");
    }
    let tcp = Flow {
        packet: f.packet.map(|p| Packet { protocol: 6, ..p }),
        local_qp: None,
        ..f
    };
    let hash = Policy::FiveTuple.hash(&tcp) % 4;
    assert_eq!(bond.member_of(&tcp), Some(Member(hash as u8)), "not RoCE");
}

#[test]
fn what_cannot_be() {
    let settings = BondSettings::default();
    let primary = BondSettings {
        mode: Mode::ActiveBackup {
            primary: Some(Member(2)),
            failback: true,
        },
        ..settings
    };
    let delay = BondSettings {
        failback_delay: Duration::from_secs(3601),
        ..settings
    };
    let quiet = BondSettings {
        quiet: millis(1001),
        ..settings
    };
    let patience = BondSettings {
        patience: Some(Duration::from_secs(4000)),
        ..settings
    };
    let flows = BondSettings {
        flows: 65537,
        ..settings
    };
    let mut text = String::new();
    for (members, settings) in [
        (0, settings),
        (33, settings),
        (2, primary),
        (2, delay),
        (2, quiet),
        (2, patience),
        (2, flows),
    ] {
        text += &format!("{}\n", Bond::new(members, settings).unwrap_err());
    }
    let mut bond = aggregate(2);
    let what = Affinity::UdpSourcePort(1);
    text += &format!("{}\n", bond.set_affinity(ms(0), what, Member(2)).unwrap_err());
    for port in 0..AFFINITIES_MAX as u16 {
        bond.set_affinity(ms(0), Affinity::UdpSourcePort(port), Member(0))
            .unwrap();
    }
    let what = Affinity::UdpSourcePort(AFFINITIES_MAX as u16);
    text += &format!("{}\n", bond.set_affinity(ms(0), what, Member(0)).unwrap_err());
    expect![[r#"
        members: 0; allowed: 1 to 32
        members: 33; allowed: 1 to 32
        primary: 2; allowed: 0 to 1
        failback_delay: 3601s; allowed: at most 3600s
        quiet: 1.001s; allowed: at most 1s
        patience: 4000s; allowed: at most 3600s
        flows: 65537; allowed: at most 65536
        member: 2; allowed: 0 to 1
        affinity: there are 1024; allowed: no more
    "#]]
    .assert_eq(&text);
    // Members and slots that there are not change nothing.
    bond.set_link(ms(0), Member(200), true);
    bond.set_lacp(ms(0), Member(200), true, true);
    bond.departed(ms(0), SlotId(9999));
    bond.give_up(ms(0), SlotId(9999));
    assert_eq!(bond.retry(ms(0), SlotId(9999), &flow(0), 1), Choice::Nowhere);
    assert!(!bond.receives(Member(200)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Only what was on a member that fails moves, and only what is at home on one that comes back, or moved on for want of it;
    /// nothing is ever on one that is down, and the loads stay within reason.
    #[test]
    fn nobody_moves_who_need_not(members in 1usize..=32, events in prop::collection::vec(any::<(u8, bool)>(), 1..40)) {
        let settings = BondSettings { failback_delay: Duration::ZERO, ..BondSettings::default() };
        let mut bond = all_up(Bond::new(members, settings).unwrap());
        let places = |bond: &Bond| -> Vec<Option<Member>> { bond.buckets().iter().map(Slot::member).collect() };
        for (i, (m, up)) in events.into_iter().enumerate() {
            let now = ms(10 * (i as u64 + 1));
            let member = Member(m % members as u8);
            let before = (places(&bond), bond.alive);
            bond.set_link(now, member, up);
            bond.tick(now);
            let after = places(&bond);
            for (was, is) in before.0.iter().zip(&after) {
                if was != is {
                    // Away from the one that failed, or to the one that came back.
                    let reason = if up { is } else { was };
                    prop_assert!(*reason == Some(member) || before.1 == 0 || bond.alive == 0);
                }
                prop_assert_eq!(is.is_some(), bond.alive != 0);
                prop_assert!(is.is_none_or(|m| bond.alive & 1 << m.0 != 0));
            }
            let alive = bond.alive.count_ones() as usize;
            if alive * 2 >= members {
                let fair = bond.buckets().len() as f64 / alive as f64;
                let most = loads(&bond).into_iter().max().unwrap_or(0) as f64;
                prop_assert!(most <= 2.0 * fair + 2.0, "{most} of {fair}");
            }
        }
    }
}
