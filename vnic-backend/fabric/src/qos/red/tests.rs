use proptest::prelude::*;

use super::*;

/// The profile of the DCQCN paper: 5 KB, 200 KB, 1 %.
const PAPER: Red = Red {
    enable: true,
    green: Curve {
        kmin: 5_000,
        kmax: 200_000,
        pmax: 10_000,
    },
    yellow: None,
    red: None,
    percent: false,
    average: 0,
    at: MarkAt::Dequeue,
    capable: Capable::Mark,
    not_capable: NotCapable::Pass,
};
const NOT_CAPABLE: Red = Red {
    not_capable: NotCapable::Drop,
    ..PAPER
};
const WRED: Red = Red {
    capable: Capable::Drop,
    ..NOT_CAPABLE
};

#[test]
fn the_line_and_the_cliff() {
    for (bytes, parts) in [
        (0, 0),
        (5_000, 0),
        (5_001, 0),
        (5_020, 1),
        (102_500, 5_000),
        (199_999, 9_999),
        (200_000, 10_000),
        (200_001, MILLION),
        (u64::MAX, MILLION),
    ] {
        assert_eq!(PAPER.green.probability(bytes), parts, "{bytes}");
    }
    // DCTCP: a step.
    let step = Curve {
        kmin: 40_000,
        kmax: 40_000,
        pmax: MILLION,
    };
    assert_eq!([40_000, 40_001].map(|b| step.probability(b)), [0, MILLION]);
    let off = Red {
        enable: false,
        ..PAPER
    };
    let verdict = Marker::new(0).judge(&off, MarkAt::Dequeue, u64::MAX, Colour::Green, 0b10);
    assert_eq!(verdict, Verdict::Pass);
}

/// As often as the line says: within five standard deviations of a million draws.
#[test]
fn as_often_as_the_line_says() {
    for bytes in [5_000, 24_500, 102_500, 200_000, 200_001] {
        let mut marker = Marker::new(7);
        let marked = (0..MILLION)
            .filter(|_| marker.judge(&PAPER, MarkAt::Dequeue, bytes, Colour::Green, 0b10) == Verdict::Mark)
            .count() as f64;
        let p = f64::from(PAPER.green.probability(bytes)) / f64::from(MILLION);
        let mean = p * f64::from(MILLION);
        let deviation = (mean * (1.0 - p)).sqrt();
        assert!((marked - mean).abs() <= 5.0 * deviation, "{bytes}: {marked}");
    }
}

/// All kinds of packets, beyond the cliff, where chance has no say.
#[test]
fn who_is_marked_and_who_is_dropped() {
    use Verdict::{Drop, Mark, Pass};
    for (red, [not_ect, ect1, ect0, ce]) in [
        (PAPER, [Pass, Mark, Mark, Pass]),
        (NOT_CAPABLE, [Drop, Mark, Mark, Pass]),
        (WRED, [Drop, Drop, Drop, Drop]),
    ] {
        let mut marker = Marker::new(0);
        let mut judge = |at, bytes| [0, 1, 2, 3].map(|ecn| marker.judge(&red, at, bytes, Colour::Green, ecn));
        assert_eq!(judge(MarkAt::Dequeue, 200_001), [not_ect, ect1, ect0, ce]);
        assert_eq!(judge(MarkAt::Enqueue, 200_001), [Pass; 4]);
        assert_eq!(judge(MarkAt::Dequeue, 5_000), [Pass; 4]);
    }
}

/// The registers' example: profile 1 for what is green, and two others.
#[test]
fn each_colour_has_its_curve() {
    let of = |kmin, kmax, pmax| Curve { kmin, kmax, pmax };
    let red = Red {
        green: of(100_000, 100_000, 0),
        yellow: Some(of(10_000, 10_000, 0)),
        red: Some(of(0, 0, 0)),
        ..WRED
    };
    let mut marker = Marker::new(0);
    let mut judge = |bytes| {
        [Colour::Green, Colour::Yellow, Colour::Red]
            .map(|colour| marker.judge(&red, MarkAt::Dequeue, bytes, colour, 0b10) == Verdict::Drop)
    };
    assert_eq!(judge(0), [false, false, false]);
    assert_eq!(judge(10_000), [false, false, true]);
    assert_eq!(judge(10_001), [false, true, true]);
    assert_eq!(judge(100_001), [true, true, true]);
    assert!(red.has_colours() && !PAPER.has_colours());
    assert_eq!(PAPER.curve(Colour::Red), PAPER.green, "one curve for all");
}

/// Mode 1 of CWTP.
#[test]
fn thresholds_in_per_cent_are_parts_of_the_buffer() {
    let red = Red {
        percent: true,
        green: Curve {
            kmin: 10,
            kmax: 60,
            pmax: 5,
        },
        yellow: Some(Curve {
            kmin: 0,
            kmax: 100,
            pmax: 6,
        }),
        ..PAPER
    };
    let bytes = red.in_bytes(1_000_000);
    assert_eq!(
        (bytes.green.kmin, bytes.green.kmax, bytes.green.pmax),
        (100_000, 600_000, 5)
    );
    assert_eq!(bytes.yellow.map(|c| (c.kmin, c.kmax)), Some((0, 1_000_000)));
    assert_eq!((bytes.red, bytes.percent), (None, false));
    assert_eq!(bytes.in_bytes(1), bytes, "bytes stay");
}

/// While nobody has written register CWTP: 0x40, 0x38c0 cells of 128 bytes, 0 %.
#[test]
fn the_profile_that_nobody_has_written() {
    let Curve { kmin, kmax, pmax } = Red::default().green;
    assert_eq!((kmin / 128, kmax / 128, pmax), (0x40, 0x38c0, 0));
}

#[test]
fn an_average_follows_slowly_and_forgets_while_nothing_waits() {
    const GBIT: u64 = 1_000_000_000;
    let mut average = Average::default();
    let at = |us: u64| Instant(us * 1000);
    assert_eq!(average.sample(at(0), 80_000, 3, GBIT), 10_000);
    assert_eq!(average.sample(at(1), 80_000, 3, GBIT), 18_750);
    for us in 2..100 {
        average.sample(at(us), 80_000, 3, GBIT);
    }
    let long = average.sample(at(100), 80_000, 3, GBIT);
    assert!((79_900..=80_000).contains(&long), "{long}");
    let lower = long - (long - 40_000) / 8;
    assert!(average.sample(at(100), 40_000, 3, GBIT).abs_diff(lower) <= 1);
    // Nothing waits for ten times as long as 84 bytes take at 1 Gb/s: (7/8)^10.
    let before = average.sample(at(100), 40_000, 3, GBIT);
    let after = average.sample(Instant(100_000 + 10 * 672), 0, 3, GBIT);
    let wanted = before as f64 * 0.875f64.powi(10);
    assert!((after as f64 - wanted).abs() < 2.0, "{after} {wanted}");
    assert_eq!(average.sample(at(10_000_000), 0, 3, GBIT), 0);
}

proptest! {
    /// An average is between the lengths that there were.
    #[test]
    fn an_average_stays_between(weight in 1..=Red::AVERAGE_MAX, samples in proptest::collection::vec((0u64..1 << 40, 0u64..1 << 28), 1..100)) {
        let (mut now, mut most, mut average) = (0, 0, Average::default());
        for (wait, bytes) in samples {
            now += wait;
            most = most.max(bytes);
            prop_assert!(average.sample(Instant(now), bytes, weight, 0) <= most);
        }
    }

    /// More that waits is never less likely to be marked.
    #[test]
    fn the_line_only_rises(kmin in 0..1u32 << 20, span in 0..1u32 << 20, pmax in 0..=MILLION, a in 0..1u64 << 22, b in 0..1u64 << 22) {
        let red = Curve { kmin, kmax: kmin + span, pmax };
        let (low, high) = (a.min(b), a.max(b));
        prop_assert!(red.probability(low) <= red.probability(high));
        prop_assert!(red.probability(high) <= MILLION);
    }

    /// The same seed: the same verdicts; what draws nothing in between changes nothing.
    #[test]
    fn the_same_seed_judges_the_same(seed: u64, bytes in proptest::collection::vec(0..300_000u64, 1..200)) {
        let judge = |noise: bool| {
            let mut marker = Marker::new(seed);
            bytes.iter().map(|b| {
                if noise {
                    for ecn in [0, 3] {
                        marker.judge(&PAPER, MarkAt::Dequeue, *b, Colour::Green, ecn);
                    }
                    marker.judge(&PAPER, MarkAt::Enqueue, *b, Colour::Green, 2);
                }
                marker.judge(&PAPER, MarkAt::Dequeue, *b, Colour::Green, 2)
            }).collect::<std::vec::Vec<_>>()
        };
        prop_assert_eq!(judge(false), judge(true));
    }
}
