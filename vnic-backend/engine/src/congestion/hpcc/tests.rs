//! Algorithm 1 by hand, its ablations, the ends of counters, and what holds of any telemetry.

use std::prelude::v1::*;

use expect_test::expect;
use proptest::prelude::*;
use vnic_wire::int::Hop;

use super::*;

const LINE: u64 = 100_000_000_000;
/// Of a round trip of 8 us: 100 000 bytes.
const T: u64 = 8000;

fn parameters() -> Parameters {
    Parameters {
        base_rtt: Duration::from_nanos(T),
        ..Parameters::SIM
    }
}

/// Payload is all of a packet here, so that windows are those of the paper.
fn flow(parameters: Parameters) -> Box<dyn Algorithm> {
    let start = Start {
        line_rate: LINE,
        mtu: 1000,
        wire: 1000,
        rate: None,
    };
    Hpcc { parameters }.start(Instant(0), &start)
}

fn hop(now: u64, sent: u64, queue: u64) -> Telemetry {
    let mut t = Telemetry::EMPTY;
    t.push(7, Hop::new(now, sent, queue, LINE));
    t
}

fn tell(flow: &mut dyn Algorithm, now: u64, acked: u64, sent: u64, t: &Telemetry) -> u64 {
    let ack = Ack {
        rtt: None,
        acked,
        sent,
        bytes: 1000,
        hops: 1,
        marked: false,
        telemetry: Some(t),
    };
    flow.on_ack(Instant(now), &ack);
    // A packet more than the window, less a byte: see `Limits`.
    flow.limits().window - 999
}

#[test]
fn it_begins_with_a_full_pipe() {
    let limits = flow(parameters()).limits();
    assert_eq!((limits.window - 999, limits.rate), (100_000, LINE));
    let half = Hpcc {
        parameters: parameters(),
    }
    .start(
        Instant(0),
        &Start {
            line_rate: LINE,
            mtu: 1000,
            wire: 1250,
            rate: Some(LINE / 2),
        },
    );
    // 50 000 bytes on the wire are 40 000 of payload.
    assert_eq!(
        (half.limits().window - 999, half.limits().rate),
        (40_000, LINE / 2)
    );
}

#[test]
fn a_full_link_with_a_queue_cuts_to_eta() {
    let mut f = flow(parameters());
    assert_eq!(tell(&mut *f, T, 1000, 100_000, &hop(T, 0, 100_000)), 100_000);
    // A whole round trip at full speed (to the unit of 128 bytes: 781 of them) with 50 000 bytes waiting:
    // U = 0.5 + 0.99968 = 1.49968; W = 100 000 * 0.95 / 1.49968 + 80 = 63 426.8.
    assert_eq!(
        tell(&mut *f, 2 * T, 2000, 101_000, &hop(2 * T, 100_000, 50_000)),
        63_426
    );
    // What is acknowledged was sent before: the reference window is the old one still, and so is the answer.
    assert_eq!(
        tell(&mut *f, 3 * T, 100_000, 110_000, &hop(3 * T, 200_000, 50_000)),
        63_426
    );
    // What was sent later: the reference window is what came of it.
    let w = tell(&mut *f, 4 * T, 100_001, 120_000, &hop(4 * T, 300_000, 50_000));
    assert_eq!(w, 63_426);
    // 782 units now: 63 426.8 * 0.95 / 1.50096 + 80.
    let w = tell(&mut *f, 5 * T, 120_001, 130_000, &hop(5 * T, 400_000, 50_000));
    assert_eq!(w, 40_224);
}

/// A core that looks at its queues now and then sends many packets at one time: their bytes count in the time until the next.
#[test]
fn packets_of_one_look_count_in_the_time_to_the_next() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 100_000, &hop(T, 0, 50_000));
    for i in 1..100 {
        let w = tell(&mut *f, T, 1000, 100_000, &hop(T, 1000 * i, 50_000));
        assert_eq!(w, 100_000, "no time, no speed");
    }
    // As in one step: see `a_full_link_with_a_queue_cuts_to_eta`.
    assert_eq!(
        tell(&mut *f, 2 * T, 2000, 101_000, &hop(2 * T, 100_000, 50_000)),
        63_426
    );
}

#[test]
fn the_lower_one_of_two_queues_counts() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 100_000, &hop(T, 0, 80_000));
    // The queue was 80 000, now 0: u is the speed alone, 0.99968 + 0. W = 95 000 / 0.99968 + 80.
    assert_eq!(
        tell(&mut *f, 2 * T, 2000, 101_000, &hop(2 * T, 100_000, 0)),
        95_110
    );
}

#[test]
fn an_empty_link_is_taken_in_stages() {
    let mut f = flow(Parameters {
        initial_u: 0.0,
        max_stage: 2,
        ..parameters()
    });
    // Cut it first, so that there is room.
    tell(&mut *f, T, 1, 1, &hop(T, 0, 800_000));
    let mut now = 2 * T;
    let mut step = |sent: u64| {
        now += T;
        tell(&mut *f, now, now, now - 1, &hop(now, sent, 0))
    };
    // A jump that is the average of two round trips' worth does not count above one: tau is at most T.
    assert_eq!(step(200_000), 95_080 + 30);
    // Half speed: two additive ones, then a multiplicative one that doubles it, and more (U is about 0.5).
    assert_eq!(step(250_000), 95_190);
    assert_eq!(step(300_000), 95_270);
    assert_eq!(step(350_000), 100_000);
}

#[test]
fn samples_shorter_than_a_round_trip_weigh_less() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 100_000, &hop(T, 0, 0));
    // A quarter of T without a byte: U = 3/4 of 1 + 0. Below eta: W_AI, but never above the line.
    assert_eq!(
        tell(&mut *f, T + T / 4, 2000, 101_000, &hop(T + T / 4, 0, 0)),
        100_000
    );
    assert_eq!(f.state().alpha, Some(768));
    // Another one: 9/16.
    tell(&mut *f, T + T / 2, 3000, 102_000, &hop(T + T / 2, 0, 0));
    assert_eq!(f.state().alpha, Some(576));
}

#[test]
fn the_fullest_link_counts() {
    let mut f = flow(parameters());
    let path = |now: u64, sent: [u64; 3]| {
        let mut t = Telemetry::EMPTY;
        for (i, sent) in (1..).zip(sent) {
            t.push(i, Hop::new(now, sent, 0, LINE));
        }
        t
    };
    tell(&mut *f, T, 1000, 100_000, &path(T, [0, 0, 0]));
    // U of the second one: 0.75 of the line, to the unit.
    tell(
        &mut *f,
        2 * T,
        2000,
        101_000,
        &path(2 * T, [10_240, 75_008, 51_200]),
    );
    assert_eq!(f.state().alpha, Some((1024.0 * 75_008.0 / 100_000.0) as u32));
}

#[test]
fn counters_that_wrapped_are_no_difference() {
    let windows = |offset_time: u64, offset_sent: u64| -> Vec<u64> {
        let mut f = flow(parameters());
        (1..6u64)
            .map(|i| {
                let t = hop(offset_time + i * T, offset_sent + i * 100_096, i * 10_000);
                tell(&mut *f, i * T, i * 1000, i * 1000 - 1, &t)
            })
            .collect()
    };
    let plain = windows(0, 0);
    assert_eq!(
        plain,
        windows(int::TIMESTAMP_WRAP - 3 * T, int::SENT_WRAP - 3 * 100_096)
    );
    assert!(plain[4] < plain[0]);
}

#[test]
fn another_path_begins_anew() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 1000, &hop(T, 0, 0));
    let cut = tell(&mut *f, 2 * T, 2000, 2000, &hop(2 * T, 100_000, 100_000));
    let mut other = Telemetry::EMPTY;
    other.push(9, Hop::new(3 * T, 1 << 20, 500_000, LINE));
    // What another switch says is no difference to what this one said.
    assert_eq!(tell(&mut *f, 3 * T, 3000, 3000, &other), cut);
    assert_eq!(f.state().alpha, Some(1024));
    // Nor is a path of another length.
    other.push(9 ^ 9, Hop::default());
    assert_eq!(tell(&mut *f, 4 * T, 4000, 4000, &other), cut);
}

#[test]
fn what_was_said_long_ago_may_have_wrapped() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 1000, &hop(T, 0, 800_000));
    let late = T + int::TIMESTAMP_WRAP + 10;
    assert_eq!(tell(&mut *f, late, 2000, 2000, &hop(late, 128, 800_000)), 100_000);
    // Since then it counts.
    assert!(tell(&mut *f, late + T, 3000, 3000, &hop(late + T, 100_000, 800_000)) < 20_000);
}

#[test]
fn the_same_telemetry_twice_says_nothing_new() {
    let mut f = flow(parameters());
    tell(&mut *f, T, 1000, 1000, &hop(T, 0, 90_000));
    let t = hop(2 * T, 100_000, 90_000);
    let cut = tell(&mut *f, 2 * T, 2000, 2000, &t);
    assert_eq!(tell(&mut *f, 2 * T + 1, 3000, 3000, &t), cut);
    // A link of unknown speed does not count.
    let mut unknown = t;
    unknown.hops[0].speed = 15;
    unknown.hops[0].timestamp += 100;
    assert_eq!(tell(&mut *f, 2 * T + 2, 4000, 4000, &unknown), cut);
}

/// Ten acknowledges of one round trip see the same queue: the reference window answers it once, the window itself ten times, and
/// once in a round trip waits.
#[test]
fn ablations() {
    let mut table = String::new();
    for reaction in [Reaction::Reference, Reaction::PerAck, Reaction::PerRtt] {
        let mut f = flow(Parameters {
            reaction,
            ..parameters()
        });
        tell(&mut *f, T, 1, 10_000, &hop(T, 0, 100_000));
        table += &format!("{reaction:?}:");
        for i in 1..=22 {
            let now = T + i * T / 10;
            let acked = 9000 + i * 1000;
            table += &format!(
                " {}",
                tell(
                    &mut *f,
                    now,
                    acked,
                    acked + 10_000,
                    &hop(now, i * 10_000, 100_000)
                )
            );
        }
        table += "\n";
    }
    expect![[r#"
        Reference: 86456 79932 59845 56607 53978 51814 50009 48449 47164 46064 45118 44299 43586 23465 23168 22891 22663 22462 22283 22126 21985 21861
        PerAck: 86456 69117 51758 36683 24815 16141 10162 6229 3749 2237 1340 821 527 362 272 222 195 180 171 166 163 161
        PerRtt: 100000 79932 79932 79932 79932 79932 79932 79932 79932 79932 79932 79932 43586 43586 43586 43586 43586 43586 43586 43586 43586 43586
    "#]].assert_eq(&table);
}

proptest! {
    #[test]
    fn windows_stay_in_bounds(
        acks in prop::collection::vec((0..1u64 << 26, any::<u64>(), any::<u64>(), any::<u64>(), 0..8u16, 0..4u64), 1..80),
        min_rate in 0..2 * LINE, eta in 0.01..1.0, max_stage in 0..7u32, w_ai in 0.0..1e6, reaction in 0..3,
    ) {
        let reaction = [Reaction::Reference, Reaction::PerAck, Reaction::PerRtt][reaction as usize];
        let p = Parameters { min_rate, eta, max_stage, w_ai, reaction, ..parameters() };
        let mut f = flow(p);
        let mut now = 0;
        for (passed, sent, queue, bytes, switch, hops) in acks {
            now += passed;
            let mut t = Telemetry::EMPTY;
            for hop in 0..hops {
                t.push(switch, Hop::new(now.wrapping_add(sent), sent.rotate_left(hop as u32), queue, queue >> 20));
            }
            tell(&mut *f, now, bytes, bytes.wrapping_add(sent), &t);
            let limits = f.limits();
            prop_assert!((1..=LINE).contains(&limits.rate));
            prop_assert!(limits.rate + 1 >= min_rate.min(LINE));
            prop_assert!((1000..=101_000).contains(&limits.window));
            prop_assert!(f.state().alpha.is_some());
        }
    }
}
