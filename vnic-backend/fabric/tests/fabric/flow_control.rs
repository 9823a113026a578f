//! The state machines of flow control: every state with every input, printed in full, and what must hold whatever happens.
//!
//! `UPDATE_EXPECT=1 cargo test -p vnic-fabric --test fabric flow_control::` writes the texts anew.

use std::fmt::{self, Write};
use std::time::Duration;

use expect_test::expect_file;
use proptest::prelude::*;
use vnic_fabric::qos::{Guard, Lifetime, Lifetimes, PauseRx, PauseSettings, PauseTx, StallGuard};
use vnic_fabric::{DropReason, Instant};
use vnic_wire::pause::Frame;

/// 512 ns a quantum.
const RATE: u64 = 1_000_000_000;

fn us(us: u64) -> Instant {
    Instant(us * 1000)
}

fn ms(ms: u64) -> Instant {
    Instant(ms * 1_000_000)
}

const OFF: PauseSettings = PauseSettings {
    global_tx: false,
    global_rx: false,
    global_waits: false,
    pfc: 0,
};
const GLOBAL: PauseSettings = PauseSettings {
    global_tx: true,
    global_rx: true,
    ..OFF
};
/// Priorities 3 and 4; the global kind is on, too, but does not count.
const PFC: PauseSettings = PauseSettings { pfc: 0x18, ..GLOBAL };

const KINDS: [(&str, PauseSettings); 5] = [
    ("off", OFF),
    ("global, both", GLOBAL),
    (
        "global, tx only",
        PauseSettings {
            global_tx: true,
            ..OFF
        },
    ),
    (
        "global, rx only",
        PauseSettings {
            global_rx: true,
            ..OFF
        },
    ),
    ("priorities 3 and 4", PFC),
];

/// Priorities that are told so many quanta.
fn told(list: &[(usize, u16)]) -> Frame {
    let (mut enabled, mut quanta) = (0, [0; 8]);
    for (p, n) in list {
        enabled |= 1 << p;
        quanta[*p] = *n;
    }
    Frame::Priorities { enabled, quanta }
}

fn text(frame: &Frame) -> String {
    match frame {
        Frame::Global(0) => "everything may go".into(),
        Frame::Global(n) => format!("everything waits {n} quanta"),
        Frame::Priorities { enabled, quanta } => {
            let of = (0..8).filter(|p| enabled & 1 << p != 0);
            let list: Vec<_> = of.map(|p| format!("{p}: {}", quanta[p])).collect();
            format!("quanta of {}", list.join(", "))
        }
    }
}

fn mask(priorities: u8) -> String {
    let list: Vec<_> = (0..8)
        .filter(|p| priorities & 1 << p != 0)
        .map(|p| p.to_string())
        .collect();
    if list.is_empty() {
        "none".into()
    } else {
        list.join(" ")
    }
}

fn when(at: Option<Instant>) -> String {
    match at {
        None => "-".into(),
        Some(Instant(0)) => "now".into(),
        Some(at) => format!("{}.{:03} us", at.0 / 1000, at.0 % 1000),
    }
}

/// The end that waits: kinds of settings × what it was told × what it is told.
fn print_rx() -> Result<String, fmt::Error> {
    let states: [(&str, &[Frame]); 4] = [
        ("told nothing", &[]),
        ("told everything to wait 100 quanta", &[Frame::Global(100)]),
        ("told 3 to wait 100 quanta", &[told(&[(3, 100)])]),
        (
            "told 0, 3 and 4 to wait 100, 200 and 300 quanta",
            &[told(&[(0, 100), (3, 200), (4, 300)])],
        ),
    ];
    let inputs: [(&str, Frame); 5] = [
        ("everything waits 400", Frame::Global(400)),
        ("everything may go", Frame::Global(0)),
        ("3 waits 400", told(&[(3, 400)])),
        ("3 may go", told(&[(3, 0)])),
        ("5 waits 400, 4 may go", told(&[(5, 400), (4, 0)])),
    ];
    let mut out = String::new();
    for (kind, settings) in KINDS {
        for (name, frames) in &states {
            writeln!(out, "# settings: {kind}; at 0 us {name}")?;
            let new = || {
                let mut rx = PauseRx::default();
                for f in *frames {
                    rx.frame(us(0), f, settings, RATE);
                }
                rx
            };
            let line = |out: &mut String, what: &str, mut rx: PauseRx, at: Instant| {
                let waits = mask(rx.paused(at));
                writeln!(
                    out,
                    "  {what:<31} waits: {waits:<16} next: {}",
                    when(rx.next_time())
                )
            };
            line(&mut out, "at 0 us", new(), us(0))?;
            line(&mut out, "at 51.2 us", new(), Instant(51_200))?;
            line(&mut out, "at 153.6 us", new(), Instant(153_600))?;
            for (what, frame) in &inputs {
                let mut rx = new();
                rx.frame(us(10), frame, settings, RATE);
                line(&mut out, &format!("at 10 us {what}"), rx, us(10))?;
            }
            for (kind, other) in KINDS {
                let mut rx = new();
                rx.configure(other);
                line(&mut out, &format!("settings: {kind}"), rx, us(10))?;
            }
        }
    }
    Ok(out)
}

/// The end that tells: kinds of settings × what it has told × what it shall tell.
fn print_tx() -> Result<String, fmt::Error> {
    let mut out = String::new();
    let poll = |out: &mut String, tx: &mut PauseTx, at: Instant, settings| {
        let mut any = false;
        while let Some(frame) = tx.poll(at, settings, RATE) {
            write!(out, "{}{}", if any { "; " } else { "" }, text(&frame))?;
            any = true;
        }
        writeln!(
            out,
            "{}; next: {}",
            if any { "" } else { "nothing" },
            when(tx.next_time())
        )
    };
    for (kind, settings) in KINDS {
        for xoff in [0, 0x08, 0x18, 0x21] {
            writeln!(out, "# settings: {kind}; at 0 us shall wait: {}", mask(xoff))?;
            let mut tx = PauseTx::default();
            tx.set(xoff);
            write!(out, "  says ")?;
            poll(&mut out, &mut tx, us(0), settings)?;
            write!(out, "  at 16776 us says ")?;
            poll(&mut out, &mut tx.clone(), us(16_776), settings)?;
            write!(out, "  at 16777 us says ")?;
            poll(&mut out, &mut tx.clone(), us(16_777), settings)?;
            for next in [0, 0x08, 0x10, 0x21] {
                let mut tx = tx.clone();
                tx.set(next);
                write!(out, "  at 10 us shall wait: {}: says ", mask(next))?;
                poll(&mut out, &mut tx, us(10), settings)?;
            }
            for (at, heard) in [(19, 0x08), (20, 0x08), (20, 0x40)] {
                let mut tx = tx.clone();
                tx.heard(us(at), heard);
                write!(out, "  at {at} us hears {}: says ", mask(heard))?;
                poll(&mut out, &mut tx, us(at), settings)?;
            }
            let mut gone = tx.clone();
            gone.set(0);
            while gone.poll(us(10), settings, RATE).is_some() {}
            write!(out, "  at 10 us none, at 110 us says ")?;
            poll(&mut out, &mut gone.clone(), us(110), settings)?;
            gone.heard(us(50), xoff);
            write!(
                out,
                "  at 10 us none, at 50 us hears {}, at 110 us says ",
                mask(xoff)
            )?;
            poll(&mut out, &mut gone, us(110), settings)?;
            for (kind, other) in KINDS {
                let mut tx = tx.clone();
                tx.configure();
                write!(out, "  at 10 us settings {kind}: says ")?;
                poll(&mut out, &mut tx, us(10), other)?;
            }
        }
    }
    Ok(out)
}

const GUARD: Guard = Guard {
    minor_ms: 80,
    critical_ms: 100,
};

/// Storm prevention: states × inputs. Priority 3 stands still; 4 is another.
fn print_stall() -> Result<String, fmt::Error> {
    type State = (&'static str, fn() -> StallGuard);
    fn at(times: &[(u64, u8, u8)]) -> StallGuard {
        let mut s = StallGuard::default();
        for (t, pausing, moved) in times {
            s.observe(ms(*t), GUARD, *pausing, *moved);
        }
        s
    }
    let states: [State; 6] = [
        ("moving", StallGuard::default),
        ("3 stands still since 0 ms", || at(&[(0, 8, 0)])),
        ("3 since 0 ms, 4 since 50 ms", || at(&[(0, 8, 0), (50, 24, 0)])),
        ("3 stands still since 0 ms, minor told", || {
            at(&[(0, 8, 0), (80, 8, 0)])
        }),
        ("tripped by 3", || at(&[(0, 8, 0), (80, 8, 0), (100, 8, 0)])),
        ("tripped by 3 and 4", || {
            at(&[(0, 24, 0), (80, 24, 0), (100, 24, 0)])
        }),
    ];
    let none = Guard {
        minor_ms: 0,
        critical_ms: 0,
    };
    let critical_only = Guard { minor_ms: 0, ..GUARD };
    let mut out = String::new();
    for (name, state) in states {
        writeln!(out, "# {name}")?;
        for (what, guard) in [
            ("80, 100 ms", GUARD),
            ("never, 100 ms", critical_only),
            ("never", none),
        ] {
            for (pausing, moved) in [
                (0, 0),
                (0, 0x18),
                (0x08, 0),
                (0x08, 0x08),
                (0x08, 0x10),
                (0x18, 0x08),
                (0x18, 0x18),
            ] {
                for t in [79, 80, 99, 100] {
                    let mut s = state();
                    let mut news = Vec::new();
                    let mut moves = moved;
                    while let Some(n) = s.observe(ms(t), guard, pausing, std::mem::take(&mut moves)) {
                        news.push(format!("{n:?}"));
                        assert!(news.len() < 4, "it goes on for ever");
                    }
                    let news = if news.is_empty() {
                        "-".into()
                    } else {
                        news.join(", ")
                    };
                    let next = s.next_time(guard);
                    let next = next.map_or("-".into(), |n| format!("{} ms", n.0 / 1_000_000));
                    let tripped = if s.is_tripped() { ", tripped" } else { "" };
                    let (pausing, moved) = (mask(pausing), mask(moved));
                    let input = format!("waiting: {pausing}, moved: {moved}");
                    writeln!(
                        out,
                        "{what:<14} {input:<26} {t:>3} ms: {news:<16} next {next}{tripped}"
                    )?;
                }
            }
        }
    }
    Ok(out)
}

/// A lifetime of 4.096 us, three drops stall.
const LIVES: Lifetimes = Lifetimes {
    limit: 0,
    stall_count: 3,
    enable: 0b1000,
};

/// Lifetimes: states × inputs.
fn print_lifetime() -> Result<String, fmt::Error> {
    type State = (&'static str, u32);
    let states: [State; 4] = [
        ("no drop", 0),
        ("one drop", 1),
        ("two drops", 2),
        ("stalled at 10 us, until 42.768 us", 3),
    ];
    let inputs: [(&str, Lifetimes, u8, u64, u64); 9] = [
        ("waits 4.095 us", LIVES, 3, 11_000, 15_095),
        ("waits 4.096 us", LIVES, 3, 11_000, 15_096),
        (
            "waits 4.096 us in a class without a limit",
            LIVES,
            2,
            11_000,
            15_096,
        ),
        (
            "waits for ever, limit 20",
            Lifetimes { limit: 20, ..LIVES },
            3,
            0,
            u64::MAX / 2,
        ),
        (
            "waits 8.191 us, limit 1",
            Lifetimes { limit: 1, ..LIVES },
            3,
            11_000,
            19_191,
        ),
        (
            "waits 8.192 us, limit 1",
            Lifetimes { limit: 1, ..LIVES },
            3,
            11_000,
            19_192,
        ),
        (
            "waits 4.096 us, never stalled",
            Lifetimes {
                stall_count: 0,
                ..LIVES
            },
            3,
            11_000,
            15_096,
        ),
        ("is new at 42.767 us", LIVES, 3, 42_767, 42_767),
        ("is new at 42.768 us", LIVES, 3, 42_768, 42_768),
    ];
    let mut out = String::new();
    for (name, drops) in states {
        writeln!(out, "# {name}")?;
        let state = || {
            let mut l = Lifetime::default();
            for _ in 0..drops {
                l.judge(us(10), LIVES, 3, us(0));
            }
            l
        };
        for (what, settings, class, since, now) in inputs {
            let mut l = state();
            let due = l
                .due(settings, class, Instant(since))
                .map_or("never".into(), |d| when(Some(d)));
            let told = l.judge(Instant(now), settings, class, Instant(since));
            let told = told.map_or("stays", DropReason::name);
            writeln!(
                out,
                "{what:<42} {told:<14} stalled: {:<5} was due: {due}",
                mask(l.stalled())
            )?;
        }
        let mut l = state();
        l.sent(3);
        writeln!(out, "something is sent: stalled: {}", mask(l.stalled()))?;
        let drops = (0..4).map(|_| l.judge(us(10), LIVES, 3, us(0)).map_or("stays", DropReason::name));
        writeln!(
            out,
            "and then the next four: {}",
            drops.collect::<Vec<_>>().join(", ")
        )?;
    }
    Ok(out)
}

#[test]
fn every_state_with_every_input() {
    expect_file!["../snapshots/pause_rx.txt"].assert_eq(&print_rx().unwrap());
    expect_file!["../snapshots/pause_tx.txt"].assert_eq(&print_tx().unwrap());
    expect_file!["../snapshots/storm_prevention.txt"].assert_eq(&print_stall().unwrap());
    expect_file!["../snapshots/head_of_queue.txt"].assert_eq(&print_lifetime().unwrap());
}

proptest! {
    /// The two ends of a link: what the one wants is what the other does, at every moment, one way's time later; even if
    /// every other frame is lost, it never goes while it was told to wait for longer.
    #[test]
    fn the_ends_agree(
        wishes in prop::collection::vec((1..40_000u64, any::<u8>()), 1..40),
        kind in 0..KINDS.len(),
    ) {
        let settings = KINDS[kind].1;
        let (mut tx, mut rx) = (PauseTx::default(), PauseRx::default());
        let (mut now, mut wish) = (us(0), 0);
        for (after, next) in wishes {
            let until = now + Duration::from_micros(after);
            // Up to then, it only repeats.
            loop {
                while let Some(frame) = tx.poll(now, settings, RATE) {
                    rx.frame(now, &frame, settings, RATE);
                }
                let want = match settings {
                    s if s.pfc != 0 => wish & s.pfc,
                    s if s.global_tx && s.global_rx && wish != 0 => 0xff,
                    _ => 0,
                };
                prop_assert_eq!(rx.paused(now), want);
                match tx.next_time() {
                    Some(at) if at <= until => now = at.max(now),
                    _ => break,
                }
            }
            now = until;
            wish = next;
            tx.set(wish);
        }
    }

    /// Frames are lost at random, and the peer sends a frame every microsecond while it may: it stops not long after it should, and goes
    /// on not long after it may. `lost` are bits of the frames that are lost, at most seven one behind the other.
    #[test]
    fn a_lost_pause_frame_is_made_up_for(
        wishes in prop::collection::vec((2_000..6_000u64, any::<bool>()), 1..20),
        lost in any::<u64>(),
        kind in 0..KINDS.len(),
    ) {
        let settings = KINDS[kind].1;
        prop_assume!(settings.pfc & 8 != 0 || settings.pfc == 0 && settings.global_tx && settings.global_rx);
        let (mut tx, mut rx) = (PauseTx::default(), PauseRx::default());
        let (mut now, mut said) = (0, 0);
        let lost = lost & 0x7f7f_7f7f_7f7f_7f7f;
        for (time, wish) in wishes {
            tx.set(if wish { 8 } else { 0 });
            let (begun, mut wrong) = (now, 0);
            while now < begun + time {
                while let Some(frame) = tx.poll(us(now), settings, RATE) {
                    if lost >> (said % 64) & 1 == 0 {
                        rx.frame(us(now), &frame, settings, RATE);
                    }
                    said += 1;
                }
                let stopped = rx.paused(us(now)) & 8 != 0;
                wrong += u64::from(stopped != wish);
                if !stopped {
                    tx.heard(us(now), 8);
                }
                now += 1;
            }
            // XOFF comes again every 20 us; XON once more, or the last one has run out.
            let most = if wish { 8 * 21 } else { time };
            prop_assert!(wrong <= most, "{} us of {}", wrong, time);
        }
    }

    /// One lost frame that lets the peer go on costs it 100 us. It is said again at growing intervals, until the peer is heard.
    #[test]
    fn a_lost_frame_that_lets_go_is_said_again(kind in 0..KINDS.len()) {
        let settings = KINDS[kind].1;
        prop_assume!(settings.pfc & 8 != 0 || settings.pfc == 0 && settings.global_tx && settings.global_rx);
        let (mut tx, mut rx) = (PauseTx::default(), PauseRx::default());
        tx.set(8);
        while let Some(frame) = tx.poll(us(0), settings, RATE) {
            rx.frame(us(0), &frame, settings, RATE);
        }
        tx.set(0);
        while tx.poll(us(50), settings, RATE).is_some() {}
        prop_assert_eq!(tx.next_time(), Some(us(150)));
        while let Some(frame) = tx.poll(us(150), settings, RATE) {
            rx.frame(us(150), &frame, settings, RATE);
        }
        prop_assert_eq!((rx.paused(us(150)), tx.next_time()), (0, Some(us(350))));
        tx.heard(us(200), 8);
        prop_assert!(tx.poll(us(350), settings, RATE).is_none());
        prop_assert_eq!(tx.next_time(), None);
    }

    /// A peer that sends pause for ever, for anything: what is not lossless here never waits, and every wait ends.
    #[test]
    fn a_peer_cannot_stop_more_than_the_settings_allow(
        frames in prop::collection::vec((0..100u64, any::<u8>(), prop::array::uniform8(any::<u16>()), any::<bool>()), 1..100),
        pfc in 1..=255u8,
    ) {
        let settings = PauseSettings { pfc, ..GLOBAL };
        let mut rx = PauseRx::default();
        let mut now = us(0);
        for (after, enabled, quanta, global) in frames {
            now = now + Duration::from_micros(after);
            let frame = if global { Frame::Global(quanta[0]) } else { Frame::Priorities { enabled, quanta } };
            rx.frame(now, &frame, settings, RATE);
            prop_assert_eq!(rx.paused(now) & !pfc, 0);
        }
        prop_assert_eq!(rx.paused(now + Duration::from_nanos(65_535 * 512)), 0);
        prop_assert_eq!(rx.next_time(), None);
    }
}
