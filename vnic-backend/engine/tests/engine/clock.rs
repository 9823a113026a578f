//! The NIC's clock: set, stepped, slewed.

use vnic_engine::clock::{FREQUENCY_MAX, NicClock};
use vnic_wire::time::Instant;

const SECOND: u64 = 1_000_000_000;

#[test]
fn it_runs_with_the_cores_until_it_is_set_or_slewed() {
    let mut clock = NicClock::new(1_700_000_000 * SECOND);
    assert_eq!(clock.at(Instant(5)), 1_700_000_000 * SECOND + 5);
    clock.set(Instant(SECOND), 7);
    assert_eq!(
        (clock.at(Instant(SECOND)), clock.at(Instant(3 * SECOND))),
        (7, 7 + 2 * SECOND)
    );
    // A core whose round began before sees the same line.
    clock.step(Instant(2 * SECOND), -5);
    assert_eq!(clock.at(Instant(2 * SECOND - 1)), SECOND + 1);
    clock.step(Instant(2 * SECOND), i64::MIN);
    assert_eq!(clock.at(Instant(2 * SECOND)), 0, "there is no time before 0");
}

#[test]
fn its_frequency_changes_without_a_step_and_adds_up_over_years() {
    let mut clock = NicClock::default();
    clock.slew(Instant(10 * SECOND), 1_000);
    assert_eq!(clock.at(Instant(10 * SECOND)), 10 * SECOND);
    assert_eq!(clock.at(Instant(12 * SECOND)), 12 * SECOND + 2_000);
    // Ten years.
    let later = 10 * SECOND + 315_360_000 * SECOND;
    assert_eq!(clock.at(Instant(later)), later + 315_360_000_000);
    clock.slew(Instant(later), -1_000);
    assert_eq!(
        (clock.at(Instant(later + SECOND)), clock.frequency()),
        (later + 315_360_000_000 + SECOND - 1_000, -1_000)
    );
    clock.slew(Instant(later), i32::MIN);
    assert_eq!(clock.frequency(), -FREQUENCY_MAX);
    assert_eq!(
        clock.at(Instant(later + SECOND)) - clock.at(Instant(later)),
        SECOND / 10 * 9
    );
}
