//! Interrupt moderation in virtual time: what each method decides, printed, and that nothing owed is late or lost.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine moderation::` writes the text anew.

use std::fmt::Write;
use std::num::NonZeroU32;
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use vnic_engine::moderation::{Decision, Method, Moderation, Profile, SAFETY_NET, SPACING};
use vnic_wire::time::Instant;

/// As `ethtool -C rx-frames 40 rx-usecs 25` sets it.
const COALESCED: Method = Method::Coalesced {
    frames: NonZeroU32::new(40),
    micros: 25,
};
const METHODS: [Method; 4] = [Method::OnDemand, Method::Polling, Method::Adaptive, COALESCED];

fn at(us: u64) -> Instant {
    Instant(us * 1000)
}

/// What happens to a ring, at so many microseconds.
enum Happens {
    /// So many frames are shown; the guest asks for an interrupt, or not.
    Shown(u64, bool),
    /// The same, and much of the ring is not known to be taken.
    Behind(u64, bool),
    /// What is owed falls due: does the guest still want it, has it taken anything?
    Due(bool, bool),
    /// The ring stops.
    Stops,
}

fn scene(out: &mut String, name: &str, method: Method, happens: &[(u64, Happens)]) {
    writeln!(out, "# {name}: {method:?}").expect("text");
    let mut m = Moderation::new(method);
    let mut frames = 0;
    for (us, what) in happens {
        let now = at(*us);
        let (text, decision) = match what {
            Happens::Shown(n, wanted) | Happens::Behind(n, wanted) => {
                frames += n;
                let behind = matches!(what, Happens::Behind(..));
                let asks = if *wanted { "asks" } else { "does not ask" };
                let far = if behind { ", is behind" } else { "" };
                let text = format!("{n} shown, guest {asks}{far}");
                (text, format!("{:?}", m.shown(now, *wanted, frames, behind)))
            }
            Happens::Due(wanted, progress) => {
                let asks = if *wanted { "still asks" } else { "does not ask" };
                let took = if *progress { "took some" } else { "took nothing" };
                let text = format!("due, guest {asks}, {took}");
                (text, format!("{:?}", m.expire(now, *wanted, *progress)))
            }
            Happens::Stops => (
                "stops".to_owned(),
                if m.settle() { "Interrupt" } else { "Nothing" }.to_owned(),
            ),
        };
        let owed = m
            .due()
            .map_or(String::new(), |d| format!(", owed until {}", d.0 / 1000));
        let changed = match m.take_transitions() {
            0 => String::new(),
            _ => format!(", {:?} from now on", m.profile()),
        };
        writeln!(out, "{us:>6} us  {text:<44} {decision}{owed}{changed}").expect("text");
    }
    writeln!(out).expect("text");
}

#[test]
fn what_each_method_decides() {
    use Happens::{Behind, Due, Shown, Stops};
    let mut out = String::new();
    for method in METHODS {
        scene(
            &mut out,
            "few frames",
            method,
            &[
                (0, Shown(1, true)),
                (30, Shown(1, true)),
                (60, Shown(1, false)),
                (2000, Due(true, false)),
            ],
        );
        scene(
            &mut out,
            "many frames",
            method,
            &[
                (0, Shown(32, true)),
                (5, Shown(150, true)),
                (10, Shown(32, true)),
                (20, Shown(32, true)),
                (30, Shown(32, false)),
                (74, Due(true, true)),
                (80, Shown(32, true)),
                (90, Behind(32, false)),
                (100, Shown(32, true)),
                (110, Stops),
            ],
        );
        scene(
            &mut out,
            "many, then few",
            method,
            &[
                (0, Shown(300, true)),
                (900, Shown(300, true)),
                (1100, Shown(100, true)),
                (2200, Shown(110, true)),
                (2210, Shown(1, true)),
                (3300, Shown(50, true)),
                (3310, Shown(1, true)),
            ],
        );
        scene(
            &mut out,
            "a guest that polls",
            method,
            &[
                (0, Shown(1, true)),
                (1000, Due(true, true)),
                (2000, Due(true, true)),
                (3000, Due(true, false)),
                (3001, Shown(1, true)),
                (4001, Due(false, false)),
                (4002, Shown(1, false)),
            ],
        );
    }
    expect_file!["../snapshots/moderation.txt"].assert_eq(&out);
}

#[test]
fn what_a_driver_sets_is_a_method_or_none() {
    let method = |frames, micros| match Method::coalesced(frames, micros) {
        Some(Method::Coalesced { frames, micros }) => Some((frames.map_or(0, NonZeroU32::get), micros)),
        _ => None,
    };
    for none in [(0, 0), (1, 0), (1, 50)] {
        assert_eq!(method(none.0, none.1), None, "{none:?}");
    }
    assert_eq!(method(0, 50), Some((0, 50)));
    assert_eq!(method(64, 50), Some((64, 50)));
    assert_eq!(method(64, 0), Some((64, 1000)), "the safety net");
}

#[test]
fn profiles_change_by_the_rate_of_frames() {
    let mut m = Moderation::new(Method::Adaptive);
    let mut frames = 0;
    // A ping-pong of 20 us: each interrupt at once, however long it lasts.
    for i in 0..5000 {
        frames += 1;
        assert_eq!(m.shown(at(20 * i), true, frames, false), Decision::Interrupt);
    }
    assert_eq!((m.profile(), m.take_transitions()), (Profile::Latency, 0));
    // A frame each microsecond, over one second: at most one interrupt every 64 us.
    let mut interrupts = 0;
    for i in 0..1_000_000 {
        let now = at(200_000 + i);
        frames += 1;
        if m.due().is_some_and(|due| due <= now) {
            interrupts += u32::from(m.expire(now, true, true) == Decision::Interrupt);
        }
        interrupts += u32::from(m.shown(now, true, frames, false) == Decision::Interrupt);
    }
    assert_eq!((m.profile(), m.take_transitions()), (Profile::Bulk, 1));
    assert!((15_000..=16_000).contains(&interrupts), "{interrupts}");
}

proptest! {
    /// Whatever happens, an interrupt that a guest asked for comes within the method's limit, unless it stops asking.
    #[test]
    fn what_is_owed_comes_in_time(
        method in proptest::sample::select(&METHODS[..]),
        steps in proptest::collection::vec((0u64..300, any::<bool>(), 0u64..64, any::<bool>()), 1..200),
    ) {
        let limit = match method {
            Method::OnDemand => Duration::ZERO,
            Method::Polling => SAFETY_NET,
            Method::Adaptive => SPACING,
            Method::Coalesced { micros, .. } => Duration::from_micros(micros.into()),
        };
        let mut m = Moderation::new(method);
        let (mut now, mut frames, mut asked) = (0, 0, None);
        for (us, wanted, n, behind) in steps {
            let next = now + us;
            // The guest goes on asking and takes nothing.
            while let Some(due) = m.due().filter(|due| *due <= at(next)) {
                prop_assert_eq!(m.expire(due, true, false), Decision::Interrupt);
                prop_assert!(due.since(asked.take().expect("somebody asked")) <= limit);
            }
            now = next;
            frames += n;
            match m.shown(at(now), wanted, frames, behind) {
                Decision::Interrupt => asked = None,
                Decision::Later => {
                    asked = asked.or(Some(at(now)));
                    prop_assert!(m.due().is_some());
                }
                Decision::Nothing => prop_assert!(!wanted && asked.is_none()),
            }
        }
        prop_assert_eq!(m.settle(), asked.is_some());
        prop_assert!(!m.settle());
    }
}
