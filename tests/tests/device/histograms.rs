//! Histograms of the data path: what they count under known work, in virtual time where time counts.

use std::time::Duration;

use anyhow::Result;
use vnic_backend::VirtualClock;
use vnic_backend::counters::HistogramValues;
use vnic_tests::driver::packets::{Number, numbered};
use vnic_tests::driver::rig::{Copies, Rig, deadline, wait_for};
use vnic_tests::driver::{NetHdr, Options};

/// Time of a round in virtual time.
const ROUND: Duration = Duration::from_micros(1);

fn of(rig: &Rig, owner: Option<&str>, name: &str) -> HistogramValues {
    let all = rig.nic.histograms();
    let mine = all
        .into_iter()
        .find(|h| h.def.name == name && owner.is_none_or(|owner| h.owner == owner));
    mine.expect("the histogram").values
}

#[test]
fn rounds_with_work_and_depths_of_rings_are_counted() -> Result<()> {
    let clock = VirtualClock::new(ROUND);
    let mut rig = Rig::with_clock(clock.clone())?;
    let (a, b) = (rig.add("a")?, rig.add("b")?);
    let mut ga = rig.attach("a", Options::default())?;
    let mut gb = rig.attach("b", Options::default())?;
    let frame = |seq| {
        let n = Number {
            sender: 0,
            stream: 0,
            seq,
        };
        numbered(b, a, n, 64)
    };
    rig.settle()?;
    let held = clock.hold();
    let (rounds, depths) = (of(&rig, None, "round"), of(&rig, Some("a"), "tx_queue_depth"));
    // Three looks that find 5, 32 and 33 frames, and one that finds what a burst has left.
    let mut seq = 0;
    for n in [5, 32, 33] {
        for _ in 0..n {
            assert!(ga.send(0, &frame(seq), NetHdr::default()));
            seq += 1;
        }
        held.rounds(1);
    }
    held.rounds(10);
    let now = of(&rig, Some("a"), "tx_queue_depth");
    let grown: Vec<u64> = now
        .buckets
        .iter()
        .zip(&depths.buckets)
        .map(|(n, b)| n - b)
        .collect();
    // Bounds are 1, 2, 4, 8, 16, 32, 64 and so on.
    assert_eq!(grown[..8], [1, 0, 0, 1, 0, 1, 1, 0]);
    assert_eq!(now.sum - depths.sum, 5 + 32 + 33 + 1);
    // (Of a round with work the next one tells that it is over.)
    let now = of(&rig, None, "round");
    let (count, sum) = (now.count() - rounds.count(), now.sum - rounds.sum);
    assert!((4..14).contains(&count), "{count}");
    assert_eq!(sum, count * ROUND.as_nanos() as u64);
    assert_eq!(now.buckets.iter().filter(|n| **n > 0).count(), 1);
    assert_eq!(now.count(), now.buckets[3], "1 µs is between 512 and 1024 ns");
    // The receiver's own ring held nothing, and nobody was ever asleep.
    assert_eq!(of(&rig, Some("b"), "tx_queue_depth").count(), 0);
    assert_eq!(of(&rig, None, "wake_up").count(), 0);
    drop(held);
    for _ in 0..seq {
        assert!(gb.recv(0, deadline()).is_some());
    }
    rig.finish(Copies::Unknown)
}

#[test]
fn a_core_that_is_woken_by_the_control_plane_says_how_long_it_took() -> Result<()> {
    let rig = Rig::with_spin(1, Duration::ZERO)?;
    let woken = wait_for(|| {
        let _ = rig.nic.fdb();
        of(&rig, None, "wake_up").count() > 3
    });
    assert!(woken, "no wake-up was counted");
    let values = of(&rig, None, "wake_up");
    let sleeps =
        rig.nic.counter_values().cores[0].values[vnic_backend::counters::CoreCounter::Sleeps as usize];
    assert!(values.count() <= sleeps);
    assert!(values.sum > 0);
    rig.finish(Copies::Unknown)
}
