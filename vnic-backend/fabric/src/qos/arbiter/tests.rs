use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::super::{Colour, Egress, Entry, PortQos};
use super::*;
use crate::Instant;

const GBIT: u64 = 1_000_000_000;

fn tables(high: &[(u8, u8)], low: &[(u8, u8)], high_limit: u8) -> VlArbitration {
    VlArbitration {
        high: high.into(),
        low: low.into(),
        high_limit,
    }
}

/// A port of 10 Gbit/s. Priority n is lane n.
fn port(arbitration: VlArbitration) -> PortQos {
    let mut qos = PortQos {
        rate: 10 * GBIT,
        ..PortQos::default()
    };
    qos.classes.of_priority = core::array::from_fn(|i| i as u8);
    qos.classes.arbitration = Some(arbitration);
    qos
}

fn entry(lane: u8, wire: u32, since: Instant) -> Entry {
    Entry {
        source: 0,
        priority: lane & 7,
        level: lane,
        colour: Colour::Green,
        wire,
        bytes: wire,
        since,
    }
}

/// Lanes in the order in which they send `count` frames of `wire` bytes, when these lanes are always full.
fn order(qos: &PortQos, full: &[u8], wire: u32, count: usize) -> String {
    let mut now = Instant(0);
    let mut egress: Egress<()> = Egress::new(qos, now);
    for lane in full {
        egress.push(entry(*lane, wire, now), ());
    }
    let mut sent = String::new();
    while sent.len() < count {
        let Some(pick) = egress.next(now, 0) else {
            now = egress.next_time(now, 0).expect("frames wait");
            continue;
        };
        let (e, ()) = egress.take(now, pick).expect("a frame");
        sent.push((b'0' + e.level) as char);
        egress.push(entry(e.level, wire, now), ());
    }
    sent
}

#[test]
fn turns_follow_the_tables() {
    let cases: &[(VlArbitration, &[u8], u32, &str)] = &[
        // Weights are in 64 bytes; a frame that begins within them is sent whole.
        (tables(&[], &[(0, 2), (1, 1)], 0), &[0, 1], 64, "001001001001"),
        (tables(&[], &[(0, 2), (1, 1)], 0), &[0, 1], 65, "001001001001"),
        (tables(&[], &[(0, 4), (1, 1)], 0), &[0, 1], 100, "000100010001"),
        // An entry more is a turn more; one of weight 0 is none.
        (
            tables(&[], &[(0, 1), (1, 1), (0, 1), (2, 0), (2, 1)], 0),
            &[0, 1, 2],
            64,
            "010201020102",
        ),
        // Who has nothing to send is passed over.
        (
            tables(&[], &[(0, 1), (1, 9), (2, 1)], 0),
            &[0, 2],
            64,
            "020202020202",
        ),
        // Without a limit, high priority has all of it; with 0, a packet at a time; with 1, packets that begin within 4096 bytes.
        (
            tables(&[(7, 255)], &[(0, 1)], UNLIMITED),
            &[0, 7],
            64,
            "777777777777",
        ),
        (tables(&[(7, 255)], &[(0, 1)], 0), &[0, 7], 64, "707070707070"),
        (tables(&[(7, 255)], &[(0, 1)], 1), &[0, 7], 1500, "777077707770"),
        (
            tables(&[(7, 255)], &[(0, 1), (1, 1)], 1),
            &[0, 1, 7],
            1500,
            "777077717770",
        ),
        // Low priority may have nothing to send.
        (
            tables(&[(7, 1), (6, 1)], &[(0, 1)], 0),
            &[6, 7],
            64,
            "767676767676",
        ),
        // A lane of both tables.
        (
            tables(&[(7, 1)], &[(7, 1), (0, 1)], 0),
            &[0, 7],
            64,
            "777077707770",
        ),
    ];
    for (arbitration, full, wire, expected) in cases {
        let qos = port(arbitration.clone());
        assert_eq!(
            order(&qos, full, *wire, 12),
            *expected,
            "{arbitration:?} {full:?} {wire}"
        );
    }
}

#[test]
fn tables_that_cannot_be_obeyed_are_refused() {
    let each: Vec<(u8, u8)> = (0..8).map(|lane| (lane, 1)).collect();
    let refused = |arbitration: VlArbitration| {
        port(arbitration)
            .check()
            .map_err(|error| alloc::format!("{error}"))
    };
    assert_eq!(refused(tables(&each[..4], &each[4..], 255)), Ok(()));
    for (arbitration, expected) in [
        (
            tables(&[(15, 1)], &each, 0),
            "vl_arbitration: high: virtual lane 15 is out of range: 0 to 14",
        ),
        (
            tables(&each, &[(0, 1); 65], 0),
            "vl_arbitration: low has 65 entries: 0 to 64 are allowed",
        ),
        (
            tables(&[(3, 0)], &[&each[..3], &each[4..]].concat(), 0),
            "vl_arbitration: virtual lane 3, which service level 3 has, has no weight in either table: its frames would never be sent",
        ),
    ] {
        assert_eq!(refused(arbitration), Err(expected.into()));
    }
}

#[test]
fn other_tables_act_at_once_and_the_same_ones_change_nothing() {
    let first = port(tables(&[], &[(0, 1), (1, 3)], 0));
    let mut egress: Egress<()> = Egress::new(&first, Instant(0));
    let mut now = Instant(0);
    let mut next = |egress: &mut Egress<()>| loop {
        match egress.next(now, 0) {
            None => now = egress.next_time(now, 0).expect("frames wait"),
            Some(pick) => return egress.take(now, pick).expect("a frame").0.priority,
        }
    };
    for lane in [0, 1] {
        (0..20).for_each(|_| egress.push(entry(lane, 64, Instant(0)), ()));
    }
    let sent: Vec<u8> = (0..2).map(|_| next(&mut egress)).collect();
    egress.configure(&first, Instant(0));
    let same: Vec<u8> = (0..3).map(|_| next(&mut egress)).collect();
    assert_eq!(
        (sent, same),
        ([0, 1].into(), [1, 1, 0].into()),
        "the turn goes on"
    );
    egress.configure(&port(tables(&[(1, 1)], &[(0, 1)], UNLIMITED)), Instant(0));
    let other: Vec<u8> = (0..3).map(|_| next(&mut egress)).collect();
    assert_eq!(other, [1, 1, 1]);
}

proptest! {
    /// Shares of lanes that are always full, in virtual time: by weight, and of both tables by the limit of high priority.
    #[test]
    fn shares_are_those_of_the_weights(weights in prop::collection::vec(1u8.., 15), high in 0usize..15, limit in 1u8..UNLIMITED, wire in 64u32..4096) {
        let entries: Vec<(u8, u8)> = (0..).zip(weights).collect();
        let mut qos = port(tables(&entries[..high], &entries[high..], limit));
        qos.classes.of_upper = Some([8, 9, 10, 11, 12, 13, 14, 0]);
        let sent = order(&qos, &core::array::from_fn::<u8, 15, _>(|lane| lane as u8), wire, 40_000);
        let count = |lane: u8| sent.bytes().filter(|c| *c == b'0' + lane).count() as f64;
        // A turn has as many frames as begin within the weight.
        let turn = |(_, weight): (u8, u8)| (f64::from(weight) * 64.0 / f64::from(wire)).ceil();
        for table in [&entries[..high], &entries[high..]] {
            let turns: f64 = table.iter().map(|e| turn(*e)).sum();
            let all: f64 = table.iter().map(|e| count(e.0)).sum();
            for e in table {
                // Up to a round is cut off at the end.
                let exact = all * turn(*e) / turns;
                prop_assert!((count(e.0) - exact).abs() <= turns, "lane {}: {} of {all}, and not {exact}", e.0, count(e.0));
            }
        }
        let of_low: f64 = entries[high..].iter().map(|e| count(e.0)).sum();
        let run = match high {
            0 => 0.0,
            _ => (f64::from(limit) * 4096.0 / f64::from(wire)).ceil(),
        };
        prop_assert!((of_low - 40_000.0 / (run + 1.0)).abs() <= 1.0, "{of_low} frames of low priority, {run} of high before each");
    }
}
