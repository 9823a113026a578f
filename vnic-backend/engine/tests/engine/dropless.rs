//! Dropless mode: every state with every input, printed in full, and what must hold whatever happens.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-engine --test engine dropless::` writes the text anew.

use std::fmt::{self, Write};
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use vnic_engine::dropless::{Cause, Dropless, ModeChange, QUEUES_MAX, TABLE, TIMEOUT_MAX, UNIT};
use vnic_wire::time::Instant;

fn at(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

/// An input, by the name it has in the text.
type Input = (&'static str, fn(&mut Dropless) -> Option<ModeChange>);

const INPUTS: [Input; 9] = [
    ("on, 50 x 100 us", |d| d.set(50)),
    ("on, 1 x 100 us", |d| d.set(1)),
    ("off", |d| d.set(0)),
    ("a frame waits for queue 0 at 3 ms", |d| {
        d.waits(0, at(3));
        None
    }),
    ("a frame waits for queue 1 at 3 ms", |d| {
        d.waits(1, at(3));
        None
    }),
    ("queue 0 is served", |d| {
        d.served(0);
        None
    }),
    ("queue 1 is served", |d| {
        d.served(1);
        None
    }),
    ("it is 4 ms", |d| d.expire(at(4))),
    ("it is 6 ms", |d| d.expire(at(6))),
];

/// A state, by the name it has in the text.
type State = (&'static str, fn() -> Dropless);

const STATES: [State; 6] = [
    ("never on", Dropless::default),
    ("on", || {
        let mut d = Dropless::default();
        d.set(50);
        d
    }),
    ("on, queue 0 waits since 0 ms", || {
        let mut d = Dropless::default();
        d.set(50);
        d.waits(0, at(0));
        d
    }),
    ("on, queue 0 waits since 1 ms, queue 1 since 0 ms", || {
        let mut d = Dropless::default();
        d.set(50);
        d.waits(0, at(1));
        d.waits(1, at(0));
        d
    }),
    ("switched off", || {
        let mut d = Dropless::default();
        d.set(50);
        d.set(0);
        d
    }),
    ("off by a frame that waited too long", || {
        let mut d = Dropless::default();
        d.set(50);
        d.waits(0, at(0));
        d.expire(at(5));
        d
    }),
];

fn describe(d: &Dropless, out: &mut String) -> fmt::Result {
    write!(out, "{}", if d.is_on() { "on" } else { "off" })?;
    for q in 0..2 {
        if let Some(since) = d.waiting(q) {
            write!(out, ", queue {q} waits since {} ms", since.0 / 1_000_000)?;
        }
    }
    if let Some(next) = d.next_time() {
        write!(out, ", expires at {} us", next.0 / 1000)?;
    }
    write!(
        out,
        "; entries {} exits {} timeouts {}",
        d.entries(),
        d.exits(),
        d.timeouts()
    )
}

fn print() -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(out, "# The table\n")?;
    for r in TABLE {
        let (from, to) = (if r.on { "on" } else { "off" }, if r.next { "on" } else { "off" });
        let told = if r.told { "told" } else { "-" };
        writeln!(
            out,
            "{from:<3} {:<8} -> {to:<3} timers {:<8} {told}",
            format!("{:?}", r.cause),
            format!("{:?}", r.timers)
        )?;
    }
    for (name, state) in STATES {
        write!(out, "\n# {name}\n\nis:   ")?;
        describe(&state(), &mut out)?;
        writeln!(out)?;
        for (what, input) in INPUTS {
            let mut d = state();
            let told = input(&mut d);
            write!(out, "{what}\n      ")?;
            describe(&d, &mut out)?;
            match told {
                Some(told) => writeln!(out, "; tells {told:?}")?,
                None => writeln!(out)?,
            }
        }
    }
    Ok(out)
}

#[test]
fn every_state_with_every_input() {
    expect_file!["../snapshots/dropless.txt"].assert_eq(&print().unwrap());
}

#[test]
fn the_table_has_each_case_once() {
    for on in [false, true] {
        for cause in Cause::ALL {
            let rows = TABLE.iter().filter(|r| (r.on, r.cause) == (on, cause));
            assert_eq!(rows.count(), 1, "{on} {cause:?}");
        }
    }
}

/// The documents' example: with the default of 5 ms, who is late by less than that loses nothing.
#[test]
fn four_milliseconds_are_waited_for_and_six_are_not() {
    let mut d = Dropless::default();
    assert_eq!(d.set(50), Some(ModeChange::Entered));
    assert!(d.waits(3, at(10)));
    assert_eq!(d.expire(at(14)), None);
    d.served(3);
    assert!(d.is_on() && d.next_time().is_none());

    assert!(d.waits(3, at(20)));
    // Not before its time, at its time.
    assert_eq!(d.expire(Instant(at(25).0 - 1)), None);
    assert_eq!(d.next_time(), Some(at(25)));
    assert_eq!(d.expire(at(26)), Some(ModeChange::Timeout { queue: 3 }));
    assert!(!d.is_on());
    // Off for all queues.
    assert!(!d.waits(0, at(27)));
    assert_eq!((d.entries(), d.exits(), d.timeouts()), (1, 1, 1));
}

#[derive(Debug, Clone)]
enum Op {
    Set(u8),
    Waits(u8),
    Served(u8),
    Pass(u32),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let queue = || 0..QUEUES_MAX as u8;
    let op = prop_oneof![
        1 => prop_oneof![Just(0), Just(1), Just(50), any::<u8>()].prop_map(Op::Set),
        3 => queue().prop_map(Op::Waits),
        2 => queue().prop_map(Op::Served),
        3 => (0u32..4000).prop_map(Op::Pass),
    ];
    prop::collection::vec(op, 0..120)
}

proptest! {
    /// Against the plainest model: since when each queue waits.
    #[test]
    fn whatever_happens(ops in ops()) {
        let mut d = Dropless::default();
        let mut now = Instant(0);
        let mut on = false;
        let mut limit = Duration::ZERO;
        let mut since = [None::<Instant>; QUEUES_MAX];
        let (mut entered, mut exited, mut timed_out) = (0u64, 0u64, 0u64);
        for op in ops {
            match op {
                Op::Set(0) => {
                    prop_assert_eq!(d.set(0), Some(ModeChange::Exited));
                    exited += u64::from(on);
                    on = false;
                    since = Default::default();
                }
                Op::Set(n) => {
                    prop_assert_eq!(d.set(n), Some(ModeChange::Entered));
                    entered += u64::from(!on);
                    on = true;
                    limit = UNIT * u32::from(n.min(TIMEOUT_MAX));
                }
                Op::Waits(q) => {
                    prop_assert_eq!(d.waits(q, now), on);
                    if on {
                        since[usize::from(q)].get_or_insert(now);
                    }
                }
                Op::Served(q) => {
                    d.served(q);
                    since[usize::from(q)] = None;
                }
                Op::Pass(us) => {
                    now = now + Duration::from_micros(us.into());
                    let late = |t: &Option<Instant>| t.is_some_and(|t| t + limit <= now);
                    match d.expire(now) {
                        Some(ModeChange::Timeout { queue }) => {
                            let first = since.iter().flatten().min().copied();
                            prop_assert!(late(&since[usize::from(queue)]));
                            prop_assert_eq!(since[usize::from(queue)], first, "the one that waited longest");
                            on = false;
                            timed_out += 1;
                            since = Default::default();
                        }
                        None => prop_assert!(!since.iter().any(late)),
                        told => prop_assert!(false, "{:?}", told),
                    }
                }
            }
            prop_assert_eq!(d.is_on(), on);
            prop_assert_eq!(d.next_time(), since.iter().flatten().min().map(|t| *t + limit));
            for (q, since) in (0u8..).zip(&since) {
                prop_assert_eq!(d.waiting(q), *since);
            }
            prop_assert_eq!((d.entries(), d.exits(), d.timeouts()), (entered, exited + timed_out, timed_out));
            prop_assert_eq!(d.entries() - d.exits(), u64::from(on));
        }
    }
}
