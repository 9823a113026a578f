//! Algorithms 1 and 2 by hand, targets, losses, and what holds of any delays.

use std::prelude::v1::*;

use expect_test::expect;
use proptest::prelude::*;
use vnic_wire::int::Telemetry;

use super::*;

const MTU: u32 = 1000;
const US: u64 = 1000;

/// Targets are 25 us, and nothing more; a step is a packet.
fn plain() -> Parameters {
    Parameters {
        ai: 1.0,
        hop_scaling: false,
        flow_scaling: false,
        split: false,
        ..Parameters::PAPER
    }
}

fn flow(parameters: Parameters) -> Box<dyn Algorithm> {
    let start = Start {
        line_rate: 50_000_000_000,
        mtu: MTU,
        wire: 1250,
        rate: None,
    };
    Swift { parameters }.start(Instant(0), &start)
}

fn tell(flow: &mut dyn Algorithm, now: u64, rtt: u64, hops: u8, endpoint: Option<u64>) {
    let telemetry = endpoint.map(|us| Telemetry {
        endpoint: (us * US) as u32,
        ..Telemetry::EMPTY
    });
    flow.on_ack(
        Instant(now * US),
        &Ack {
            rtt: Some(Duration::from_micros(rtt)),
            acked: 0,
            sent: 0,
            bytes: MTU,
            hops,
            marked: false,
            telemetry: telemetry.as_ref(),
        },
    );
}

/// Window in bytes after an acknowledge, in us.
fn ack(flow: &mut dyn Algorithm, now: u64, rtt: u64) -> u64 {
    tell(flow, now, rtt, 0, None);
    flow.limits().window
}

#[test]
fn below_target_a_window_grows_by_one_in_a_round_trip() {
    let mut f = flow(plain());
    assert_eq!(
        f.limits(),
        Limits {
            rate: UNLIMITED,
            window: 10_000
        }
    );
    // 10 + 1/10, then + 1/10.1.
    assert_eq!((ack(&mut *f, 1, 24), ack(&mut *f, 2, 24)), (10_100, 10_199));
    for i in 3..=10 {
        ack(&mut *f, i, 24);
    }
    assert!((10_950..11_000).contains(&f.limits().window));
}

#[test]
fn above_target_it_falls_once_in_a_round_trip() {
    let mut f = flow(plain());
    // 1 - 0.8 (40 - 25) / 40 = 0.7, but not within the first round trip.
    assert_eq!((ack(&mut *f, 39, 40), ack(&mut *f, 40, 40)), (10_000, 7000));
    // (0.49 is a little less in binary.)
    assert_eq!((ack(&mut *f, 79, 40), ack(&mut *f, 80, 40)), (7000, 4899));
    // At most half.
    assert_eq!(ack(&mut *f, 1000, 900), 2449);
    // An acknowledge on target and too early changes nothing, and puts the next decrease off by nothing.
    assert_eq!((ack(&mut *f, 1030, 40), ack(&mut *f, 1040, 40)), (2449, 1714));
}

#[test]
fn below_one_packet_it_is_paced() {
    let p = Parameters {
        initial_cwnd: 0.5,
        ..plain()
    };
    let mut f = flow(p.clone());
    // A packet of 1250 bytes each two round trips of the target, before any is known.
    assert_eq!(
        f.limits(),
        Limits {
            rate: 200_000_000,
            window: 1000
        }
    );
    // ai a packet.
    tell(&mut *f, 100, 20, 0, None);
    assert_eq!(f.limits().window, 1500);
    let mut f = flow(p.clone());
    tell(&mut *f, 100, 50, 0, None);
    // 0.5 * 0.6 = 0.3 of a packet in 50 us.
    assert_eq!(f.limits().rate, 60_000_000);
    let mut whole = flow(Parameters {
        below_one: false,
        ..p
    });
    assert_eq!(ack(&mut *whole, 1000, 500), 1000);
    assert_eq!(whole.limits().rate, UNLIMITED);
}

/// Of windows and switches: 25 us, 2 us a switch, and 125 us shared out by windows of 0.1 to 100.
#[test]
fn targets() {
    let p = Parameters::PAPER;
    let mut table = String::new();
    for cwnd in [0.001, 0.1, 0.11, 0.5, 1.0, 4.0, 25.0, 99.0, 100.0, 1000.0] {
        let at = |hops| p.target(cwnd, hops) / 1e3;
        table += &format!("{cwnd}: {:.3} {:.3} {:.3}\n", at(0), at(1), at(5));
    }
    expect![[r#"
        0.001: 150.000 152.000 160.000
        0.1: 150.000 152.000 160.000
        0.11: 143.993 145.993 153.993
        0.5: 78.645 80.645 88.645
        1: 61.737 63.737 71.737
        4: 41.328 43.328 51.328
        25: 29.082 31.082 39.082
        99: 25.021 27.021 35.021
        100: 25.000 27.000 35.000
        1000: 25.000 27.000 35.000
    "#]]
    .assert_eq(&table);
    // By hand: a = 125 / (sqrt(10) - 0.1) = 40.8196, b = -4.08196; of a window of 4: 20.4098 - 4.08196.
    assert!((p.target(4.0, 0) / 1e3 - 41.3278).abs() < 1e-3);
    assert_eq!(plain().target(0.1, 9), 25e3);
}

#[test]
fn the_receivers_delay_has_its_own_window() {
    let p = Parameters {
        split: true,
        endpoint_ewma: 1.0,
        ..plain()
    };
    // 20 us in the network and 80 in the receiver are both below target.
    let mut f = flow(p.clone());
    tell(&mut *f, 1000, 100, 0, Some(80));
    assert_eq!(f.limits().window, 10_100);
    // 200 us there: 1 - 0.8 (200 - 100) / 200 = 0.6.
    tell(&mut *f, 2000, 220, 0, Some(200));
    assert_eq!(f.limits().window, 6060);
    // Without the split, all of it is the network's.
    let mut f = flow(plain());
    tell(&mut *f, 1000, 100, 0, Some(80));
    assert_eq!(f.limits().window, 5000);
    // A moving average comes slowly; a receiver that says more than the round trip is not believed.
    let mut f = flow(Parameters {
        endpoint_ewma: 0.125,
        ..p
    });
    tell(&mut *f, 1000, 20, 0, Some(0));
    tell(&mut *f, 2000, 500, 0, Some(10_000));
    assert_eq!(f.limits().window, 10_199);
}

#[test]
fn losses() {
    let mut f = flow(plain());
    f.on_loss(Instant(0), Loss::Timeout);
    assert_eq!(f.limits().window, 10_000);
    f.on_loss(Instant(1000 * US), Loss::NotReady);
    assert_eq!(f.limits().window, 10_000);
    f.on_loss(Instant(1000 * US), Loss::OutOfSequence);
    assert_eq!(f.limits().window, 5000);
    // Once in a round trip; but the fourth timeout in a row counts always.
    for window in [5000, 5000, 5000] {
        f.on_loss(Instant(1000 * US), Loss::Timeout);
        assert_eq!(f.limits().window, window);
    }
    f.on_loss(Instant(1000 * US), Loss::Timeout);
    // 0.001 of a packet of 10 000 bits in 25 us.
    assert_eq!(
        f.limits(),
        Limits {
            rate: 400_000,
            window: 1000
        }
    );
    assert_eq!(f.state().cuts, 2);
}

/// Flows of other windows come to the same one, sooner with flow-based scaling: the ratio of two after a hundred round trips.
#[test]
fn flow_scaling_makes_shares_equal() {
    let ratio = |flow_scaling| {
        let p = |initial_cwnd| Parameters {
            flow_scaling,
            initial_cwnd,
            ..plain()
        };
        let (mut small, mut large) = (flow(p(2.0)), flow(p(40.0)));
        for i in 1..=100u64 {
            // A link of a packet each us, and 10 us of way: what is above that waits.
            let windows = (small.limits().window + large.limits().window) / 1000;
            let rtt = windows.max(10);
            for f in [&mut small, &mut large] {
                for _ in 0..(f.limits().window / 1000).max(1) {
                    tell(&mut **f, i * 200, rtt, 0, None);
                }
            }
        }
        large.limits().window as f64 / small.limits().window as f64
    };
    let (with, without) = (ratio(true), ratio(false));
    assert!(with < 1.3 && with < without, "{with} {without}");
}

proptest! {
    #[test]
    fn windows_stay_in_bounds(
        events in prop::collection::vec((0..1u64 << 40, 0..1u64 << 40, any::<u32>(), any::<u8>(), 0..6), 1..80),
        fs_min in 1e-6..1e6, fs_max in 1e-6..1e6, min_cwnd in 1e-6..1e6, max_cwnd in 1e-6..1e6, ai in 0.0..1e3, max_mdf in 0.0..1.0,
        below_one: bool, split: bool,
    ) {
        let p = Parameters { fs_min, fs_max, min_cwnd, max_cwnd, ai, max_mdf, below_one, split, ..Parameters::PAPER };
        let least = if below_one { min_cwnd } else { 1.0 };
        let mut f = flow(p);
        let mut now = 0;
        for (passed, rtt, endpoint, hops, what) in events {
            now += passed;
            let t = Telemetry { endpoint, ..Telemetry::EMPTY };
            match what {
                0 => f.on_loss(Instant(now), Loss::Timeout),
                1 => f.on_loss(Instant(now), Loss::OutOfSequence),
                _ => f.on_ack(Instant(now), &Ack {
                    rtt: Some(Duration::from_nanos(rtt)), acked: 0, sent: 0, bytes: 1000, hops, marked: false, telemetry: Some(&t),
                }),
            }
            let limits = f.limits();
            prop_assert!(limits.rate >= 1 && limits.window >= u64::from(MTU));
            prop_assert!(limits.rate == UNLIMITED || limits.window == u64::from(MTU));
            let most = max_cwnd.max(least) * f64::from(MTU);
            prop_assert!(limits.window as f64 <= most.max(f64::from(MTU)));
        }
    }
}
