use proptest::prelude::*;

use super::*;

/// The profile of the DCQCN paper: 5 KB, 200 KB, 1 %.
const PAPER: Red = Red {
    enable: true,
    kmin: 5_000,
    kmax: 200_000,
    pmax: 10_000,
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
        assert_eq!(PAPER.probability(bytes), parts, "{bytes}");
    }
    // DCTCP: a step.
    let step = Red {
        kmin: 40_000,
        kmax: 40_000,
        pmax: MILLION,
        ..PAPER
    };
    assert_eq!([40_000, 40_001].map(|b| step.probability(b)), [0, MILLION]);
    let off = Red {
        enable: false,
        ..PAPER
    };
    assert_eq!(off.probability(u64::MAX), 0);
}

/// As often as the line says: within five standard deviations of a million draws.
#[test]
fn as_often_as_the_line_says() {
    for bytes in [5_000, 24_500, 102_500, 200_000, 200_001] {
        let mut marker = Marker::new(7);
        let marked = (0..MILLION)
            .filter(|_| marker.judge(&PAPER, MarkAt::Dequeue, bytes, 0b10) == Verdict::Mark)
            .count() as f64;
        let p = f64::from(PAPER.probability(bytes)) / f64::from(MILLION);
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
        let mut judge = |at, bytes| [0, 1, 2, 3].map(|ecn| marker.judge(&red, at, bytes, ecn));
        assert_eq!(judge(MarkAt::Dequeue, 200_001), [not_ect, ect1, ect0, ce]);
        assert_eq!(judge(MarkAt::Enqueue, 200_001), [Pass; 4]);
        assert_eq!(judge(MarkAt::Dequeue, 5_000), [Pass; 4]);
    }
}

proptest! {
    /// More that waits is never less likely to be marked.
    #[test]
    fn the_line_only_rises(kmin in 0..1u32 << 20, span in 0..1u32 << 20, pmax in 0..=MILLION, a in 0..1u64 << 22, b in 0..1u64 << 22) {
        let red = Red { kmin, kmax: kmin + span, pmax, ..PAPER };
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
                        marker.judge(&PAPER, MarkAt::Dequeue, *b, ecn);
                    }
                    marker.judge(&PAPER, MarkAt::Enqueue, *b, 2);
                }
                marker.judge(&PAPER, MarkAt::Dequeue, *b, 2)
            }).collect::<std::vec::Vec<_>>()
        };
        prop_assert_eq!(judge(false), judge(true));
    }
}
