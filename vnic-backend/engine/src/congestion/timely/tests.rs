//! What rates become of which round trips: by hand from the paper's rules, as a table, and what holds of any.

use std::prelude::v1::*;

use expect_test::expect;
use proptest::prelude::*;

use super::*;

const LINE: u64 = 10_000_000_000;

fn flow(parameters: &Parameters, rate: u64) -> Box<dyn Algorithm> {
    let timely = Timely {
        parameters: parameters.clone(),
    };
    timely.start(
        Instant(0),
        &Start {
            line_rate: LINE,
            mtu: 1024,
            wire: 1108,
            rate: Some(rate),
        },
    )
}

/// An acknowledge in us; everything that was sent is acknowledged.
fn ack(flow: &mut dyn Algorithm, at: u64, rtt: u64) -> f64 {
    let bytes = at * 1000;
    flow.on_ack(
        Instant(at * 1000),
        &Ack {
            rtt: Some(Duration::from_micros(rtt)),
            acked: bytes + 1,
            sent: bytes,
            bytes: 1024,
            hops: 0,
            marked: false,
            telemetry: None,
        },
    );
    flow.limits().rate as f64 / 1e6
}

/// Mbit/s after each round trip, one each ms.
fn rates(parameters: &Parameters, rate: u64, rtts: &[u64]) -> Vec<f64> {
    let mut flow = flow(parameters, rate);
    let one = |(i, rtt): (u64, &u64)| ack(&mut *flow, (i + 1) * 1000, *rtt);
    (0..).zip(rtts).map(one).collect()
}

#[test]
fn below_t_low_rates_grow_and_from_the_sixth_on_by_five_steps() {
    // The first one is only remembered.
    assert_eq!(
        rates(&Parameters::NS3, 1_000_000_000, &[20; 8]),
        [1000., 1010., 1020., 1030., 1040., 1050., 1060., 1070.]
    );
    // Hyper increase is of the gradient's branch: 60 us are above t_low, and do not change.
    assert_eq!(
        rates(&Parameters::NS3, 1_000_000_000, &[60; 8]),
        [1000., 1010., 1020., 1030., 1040., 1050., 1100., 1150.]
    );
}

#[test]
fn above_t_high_rates_fall_to_meet_it() {
    // 1 - 0.8 (1 - 500/1000) = 0.6; twice.
    assert_eq!(
        rates(&Parameters::NS3, 1_000_000_000, &[1000, 1000, 1000]),
        [1000., 600., 360.]
    );
}

#[test]
fn a_growing_round_trip_takes_the_gradient() {
    // d = 8 us: average 7 us, gradient 0.35, factor 1 - 0.8 * 0.35 = 0.72.
    assert_eq!(rates(&Parameters::NS3, 1_000_000_000, &[60, 68]), [1000., 720.]);
    // d = 40 us: 35 us, 1.75: 1 - 1.4 is below nothing. The least rate is left.
    assert_eq!(rates(&Parameters::NS3, 1_000_000_000, &[60, 100]), [1000., 100.]);
    let half = Parameters {
        least_left: 0.5,
        ..Parameters::NS3
    };
    assert_eq!(rates(&half, 1_000_000_000, &[60, 100]), [1000., 500.]);
    // A shrinking one is followed by an increase though it is high.
    assert_eq!(
        rates(&Parameters::NS3, 1_000_000_000, &[400, 300]),
        [1000., 1010.]
    );
}

#[test]
fn erpc_scales_by_the_time_that_has_passed() {
    let mut fast = flow(&Parameters::ERPC, 1_000_000_000);
    // A round trip is timed at 10 us, then half a min_rtt later, then long after.
    let p = Parameters {
        min_rtt: Duration::from_micros(20),
        ..Parameters::ERPC
    };
    let mut slow = flow(&p, 1_000_000_000);
    assert_eq!(ack(&mut *fast, 10, 30), 1000.);
    assert_eq!(ack(&mut *fast, 20, 30), 1040.);
    assert_eq!(ack(&mut *slow, 10, 30), 1000.);
    assert_eq!(ack(&mut *slow, 20, 30), 1020.);
    assert_eq!(ack(&mut *slow, 60, 30), 1060.);
}

#[test]
fn patched_timely_follows_the_round_trip_by_the_gradient() {
    let p = Parameters {
        patched: true,
        ewma: 1.0,
        beta: 0.1,
        min_rtt: Duration::from_micros(20),
        ..Parameters::NS3
    };
    // Steady at 100 us, twice t_low: half of the answer is a decrease of 0.1 * 0.5 * 1, half of a step is an increase.
    assert_eq!(rates(&p, 1_000_000_000, &[100, 100]), [1000., 955.]);
    // Growing by a quarter of min_rtt and more: only the decrease; falling likewise: only the step.
    assert_eq!(rates(&p, 1_000_000_000, &[95, 100]), [1000., 900.]);
    assert_eq!(rates(&p, 1_000_000_000, &[105, 100]), [1000., 1010.]);
}

#[test]
fn once_in_a_round_trip() {
    let mut flow = flow(&Parameters::NS3, 1_000_000_000);
    let mut at = |time: u64, acked: u64, sent: u64| {
        flow.on_ack(
            Instant(time),
            &Ack {
                rtt: Some(Duration::from_micros(20)),
                acked,
                sent,
                bytes: 1000,
                hops: 0,
                marked: false,
                telemetry: None,
            },
        );
        flow.limits().rate / 1_000_000
    };
    assert_eq!(at(1, 1000, 5000), 1000);
    // What was sent before the last change says nothing about it.
    assert_eq!(at(2, 5000, 9000), 1000);
    assert_eq!(at(3, 5001, 10_000), 1010);
    assert_eq!(at(4, 10_000, 20_000), 1010);
    assert_eq!(at(5, 10_001, 20_000), 1020);
}

#[test]
fn a_flow_begins_with_its_part_of_the_line() {
    let start = |start, rate| {
        let timely = Timely {
            parameters: Parameters {
                start,
                ..Parameters::NS3
            },
        };
        let flow = Start {
            line_rate: LINE,
            mtu: 1024,
            wire: 1108,
            rate,
        };
        timely.start(Instant(0), &flow).limits().rate
    };
    assert_eq!(
        (start(1.0, None), start(0.25, None), start(0.25, Some(3))),
        (LINE, LINE / 4, 100_000_000)
    );
}

#[test]
fn segments_ask_for_acknowledges_and_may_be_bursts() {
    let needs = |pacing| {
        Timely {
            parameters: Parameters {
                segment: 64_000,
                pacing,
                ..Parameters::NS3
            },
        }
        .needs()
    };
    assert_eq!(
        (needs(Pacing::Packet).ack_every, needs(Pacing::Packet).burst),
        (64_000, 0)
    );
    assert_eq!(
        (needs(Pacing::Burst).ack_every, needs(Pacing::Burst).burst),
        (64_000, 64_000)
    );
}

/// Each branch, in both sets, from 1 Gbit/s: the round trip before, this one, and what becomes of the rate; then how many of
/// the same kind it takes to hyper increase.
#[test]
fn every_branch() {
    let mut table = String::new();
    for name in Parameters::PRESETS {
        let p = Parameters::preset(name).unwrap_or_default();
        table += &format!("{name}\n");
        for before in [30, 100, 600, 1200] {
            for now in [20, 49, 50, 90, 99, 100, 101, 110, 500, 501, 1000, 1001, 5000] {
                let after = rates(&p, 1_000_000_000, &[before, now]);
                table += &format!("  {before:>4} {now:>4} -> {:>7.1}\n", after[1]);
            }
        }
        let falls: Vec<u64> = (0..9).map(|i| 200 - i).collect();
        table += &format!("  falling: {:?}\n", rates(&p, 1_000_000_000, &falls));
        table += &format!(
            "  low and falling: {:?}\n",
            rates(&p, 1_000_000_000, &[9, 8, 7, 6, 5, 4, 3, 2, 1])
        );
        table += &format!("  equal: {:?}\n", rates(&p, 1_000_000_000, &[100; 9]));
    }
    expect![[r#"
        ns3
            30   20 ->  1010.0
            30   49 ->  1010.0
            30   50 ->   300.0
            30   90 ->   100.0
            30   99 ->   100.0
            30  100 ->   100.0
            30  101 ->   100.0
            30  110 ->   100.0
            30  500 ->   100.0
            30  501 ->   998.4
            30 1000 ->   600.0
            30 1001 ->   599.6
            30 5000 ->   280.0
           100   20 ->  1010.0
           100   49 ->  1010.0
           100   50 ->  1010.0
           100   90 ->  1010.0
           100   99 ->  1010.0
           100  100 ->  1010.0
           100  101 ->   965.0
           100  110 ->   650.0
           100  500 ->   100.0
           100  501 ->   998.4
           100 1000 ->   600.0
           100 1001 ->   599.6
           100 5000 ->   280.0
           600   20 ->  1010.0
           600   49 ->  1010.0
           600   50 ->  1010.0
           600   90 ->  1010.0
           600   99 ->  1010.0
           600  100 ->  1010.0
           600  101 ->  1010.0
           600  110 ->  1010.0
           600  500 ->  1010.0
           600  501 ->   998.4
           600 1000 ->   600.0
           600 1001 ->   599.6
           600 5000 ->   280.0
          1200   20 ->  1010.0
          1200   49 ->  1010.0
          1200   50 ->  1010.0
          1200   90 ->  1010.0
          1200   99 ->  1010.0
          1200  100 ->  1010.0
          1200  101 ->  1010.0
          1200  110 ->  1010.0
          1200  500 ->  1010.0
          1200  501 ->   998.4
          1200 1000 ->   600.0
          1200 1001 ->   599.6
          1200 5000 ->   280.0
          falling: [1000.0, 1010.0, 1020.0, 1030.0, 1040.0, 1050.0, 1100.0, 1150.0, 1200.0]
          low and falling: [1000.0, 1010.0, 1020.0, 1030.0, 1040.0, 1050.0, 1060.0, 1070.0, 1080.0]
          equal: [1000.0, 1010.0, 1020.0, 1030.0, 1040.0, 1050.0, 1100.0, 1150.0, 1200.0]
        erpc
            30   20 ->  1040.0
            30   49 ->  1040.0
            30   50 ->   680.0
            30   90 ->   500.0
            30   99 ->   500.0
            30  100 ->   500.0
            30  101 ->   500.0
            30  110 ->   500.0
            30  500 ->   500.0
            30  501 ->   500.0
            30 1000 ->   500.0
            30 1001 ->   999.2
            30 5000 ->   500.0
           100   20 ->  1040.0
           100   49 ->  1040.0
           100   50 ->  1040.0
           100   90 ->  1040.0
           100   99 ->  1040.0
           100  100 ->  1040.0
           100  101 ->   984.0
           100  110 ->   840.0
           100  500 ->   500.0
           100  501 ->   500.0
           100 1000 ->   500.0
           100 1001 ->   999.2
           100 5000 ->   500.0
           600   20 ->  1040.0
           600   49 ->  1040.0
           600   50 ->  1040.0
           600   90 ->  1040.0
           600   99 ->  1040.0
           600  100 ->  1040.0
           600  101 ->  1040.0
           600  110 ->  1040.0
           600  500 ->  1040.0
           600  501 ->  1040.0
           600 1000 ->   500.0
           600 1001 ->   999.2
           600 5000 ->   500.0
          1200   20 ->  1040.0
          1200   49 ->  1040.0
          1200   50 ->  1040.0
          1200   90 ->  1040.0
          1200   99 ->  1040.0
          1200  100 ->  1040.0
          1200  101 ->  1040.0
          1200  110 ->  1040.0
          1200  500 ->  1040.0
          1200  501 ->  1040.0
          1200 1000 ->  1040.0
          1200 1001 ->   999.2
          1200 5000 ->   500.0
          falling: [1000.0, 1040.0, 1080.0, 1120.0, 1160.0, 1360.0, 1560.0, 1760.0, 1960.0]
          low and falling: [1000.0, 1040.0, 1080.0, 1120.0, 1160.0, 1200.0, 1240.0, 1280.0, 1320.0]
          equal: [1000.0, 1040.0, 1080.0, 1120.0, 1160.0, 1200.0, 1240.0, 1280.0, 1320.0]
        erpc-patched
            30   20 ->  1040.0
            30   49 ->  1040.0
            30   50 ->  1000.0
            30   90 ->   993.6
            30   99 ->   992.2
            30  100 ->   992.0
            30  101 ->   991.8
            30  110 ->   990.4
            30  500 ->   928.0
            30  501 ->   927.8
            30 1000 ->   848.0
            30 1001 ->  1000.0
            30 5000 ->   993.6
           100   20 ->  1040.0
           100   49 ->  1040.0
           100   50 ->  1040.0
           100   90 ->  1040.0
           100   99 ->  1040.0
           100  100 ->  1016.0
           100  101 ->   991.8
           100  110 ->   990.4
           100  500 ->   928.0
           100  501 ->   927.8
           100 1000 ->   848.0
           100 1001 ->  1000.0
           100 5000 ->   993.6
           600   20 ->  1040.0
           600   49 ->  1040.0
           600   50 ->  1040.0
           600   90 ->  1040.0
           600   99 ->  1040.0
           600  100 ->  1040.0
           600  101 ->  1040.0
           600  110 ->  1040.0
           600  500 ->  1040.0
           600  501 ->  1040.0
           600 1000 ->   848.0
           600 1001 ->  1000.0
           600 5000 ->   993.6
          1200   20 ->  1040.0
          1200   49 ->  1040.0
          1200   50 ->  1040.0
          1200   90 ->  1040.0
          1200   99 ->  1040.0
          1200  100 ->  1040.0
          1200  101 ->  1040.0
          1200  110 ->  1040.0
          1200  500 ->  1040.0
          1200  501 ->  1040.0
          1200 1000 ->  1040.0
          1200 1001 ->  1000.0
          1200 5000 ->   993.6
          falling: [1000.0, 1040.0, 1080.0, 1120.0, 1160.0, 1200.0, 1240.0, 1280.0, 1320.0]
          low and falling: [1000.0, 1040.0, 1080.0, 1120.0, 1160.0, 1200.0, 1240.0, 1280.0, 1320.0]
          equal: [1000.0, 1016.0, 1031.936, 1047.808256, 1063.617022, 1079.362554, 1095.045104, 1110.664924, 1126.222264]
    "#]]
    .assert_eq(&table);
}

proptest! {
    #[test]
    fn rates_stay_in_bounds(erpc: bool, rtts in prop::collection::vec((0..1u64 << 34, 0..1u64 << 40), 1..60)) {
        let p = if erpc { Parameters::ERPC } else { Parameters::NS3 };
        let mut flow = flow(&p, LINE);
        let mut now = 0;
        for (rtt, passed) in rtts {
            now += passed;
            let before = flow.limits().rate;
            flow.on_ack(Instant(now), &Ack {
                rtt: Some(Duration::from_nanos(rtt)), acked: now, sent: now, bytes: 1, hops: 0, marked: false, telemetry: None,
            });
            let rate = flow.limits().rate;
            prop_assert!((p.min_rate..=LINE).contains(&rate));
            // (A bit of rounding.)
            prop_assert!(rate + 1 >= (before as f64 * p.least_left) as u64);
            prop_assert!(rate <= before + p.step * u64::from(p.hyper) + 1);
        }
    }

    /// Above t_high it never grows, below t_low it never falls.
    #[test]
    fn thresholds_hold(erpc: bool, rate in 100_000_000..LINE, before in 1..5000u64, now in 1..5000u64) {
        let p = if erpc { Parameters::ERPC } else { Parameters::NS3 };
        let after = rates(&p, rate, &[before, now]);
        if u128::from(now) > p.t_high.as_micros() {
            prop_assert!(after[1] <= after[0]);
        } else if u128::from(now) < p.t_low.as_micros() {
            prop_assert!(after[1] >= after[0]);
        }
    }
}
