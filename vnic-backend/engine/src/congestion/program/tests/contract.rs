//! What programs see and what they may say.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::int::{Hop, Telemetry};
use vnic_wire::time::Instant;

use super::{AIMD, DESCRIPTION, START, binary, program, refused, running, text};
use crate::congestion::named::{Error, Named};
use crate::congestion::program::Program;
use crate::congestion::{
    Ack, Algorithm, CongestionControl, Limits, Loss, Needs, Notification, Start, UNLIMITED,
};

fn ack(rtt: Option<u64>) -> Ack<'static> {
    Ack {
        rtt: rtt.map(Duration::from_nanos),
        acked: 5000,
        sent: 9000,
        bytes: 1024,
        hops: 3,
        marked: true,
        telemetry: None,
    }
}

/// Each field of each event is where the contract has it: a program copies the event into its flow, a word at a time, and the test
/// reads it there as a rate.
#[test]
fn each_field_of_an_event_is_at_its_place() {
    let start = Start {
        rate: Some(123_000_000),
        ..START
    };
    let now = Instant(77_000_000);
    let telemetry = {
        let mut telemetry = Telemetry::default();
        telemetry.push(1, Hop::new(5000, 1 << 20, 8000, 100_000_000_000));
        telemetry
    };
    type Do = fn(&mut dyn Algorithm, Instant, &Telemetry);
    let events: [(&str, Do); 6] = [
        ("on_start", |_, _, _| {}),
        ("on_sent", |flow, now, _| flow.on_sent(now, 1000)),
        ("on_notification", |flow, now, _| {
            let period = Some(Duration::from_micros(50));
            flow.on_notification(now, &Notification { period });
        }),
        ("on_ack", |flow, now, telemetry| {
            let ack = Ack {
                telemetry: Some(telemetry),
                ..ack(Some(12_345))
            };
            flow.on_ack(now, &ack);
        }),
        ("on_loss", |flow, now, _| flow.on_loss(now, Loss::Timeout)),
        ("on_time", |flow, now, _| flow.advance(now, true)),
    ];
    // (offset, bytes, event: all if empty, value, in units that a rate can show: the rate is value + 10^9).
    let fields: &[(u32, u32, &str, u64)] = &[
        (0, 8, "", now.0),
        (8, 8, "", START.line_rate),
        (16, 4, "", 1024),
        (20, 4, "", 1110),
        (24, 8, "on_start", 123_000_000),
        (24, 8, "on_ack", 0),
        (32, 8, "on_ack", 12_345),
        (40, 8, "on_ack", 5000),
        (48, 8, "on_ack", 9000),
        (56, 4, "on_ack", 1024),
        (56, 4, "on_sent", 1000),
        (60, 4, "on_ack", 1),
        (64, 4, "on_ack", 3),
        (68, 4, "on_loss", 2),
        (72, 8, "on_notification", 50_000),
        (80, 4, "on_time", 1),
        (84, 4, "on_ack", 1),
        (88, 8, "", 0),
        // The first record of a switch, which the test has at 1024.
        (768, 8, "on_ack", 100_000_000_000),
        (776, 8, "on_ack", 8000),
        (784, 8, "on_ack", 1 << 20),
        (792, 8, "on_ack", 5000),
    ];
    for (offset, bytes, of, value) in fields {
        let load = if *bytes == 8 { "i64.load" } else { "i64.load32_u" };
        for (event, act) in events.iter().filter(|(event, _)| of.is_empty() || of == event) {
            let functions: String = events
                .iter()
                .map(|(name, _)| {
                    let show = format!(
                        "(i64.store (i32.const 512) (i64.add (i64.const 1000000000) ({load} (i32.const {}))))",
                        256 + offset
                    );
                    let due = "(i64.store (i32.const 528) (i64.load (i32.const 256)))";
                    let body = if name == event { &show } else { "" };
                    let due = if *name == "on_start" { due } else { "" };
                    format!("(func (export \"{name}\") {body} {due})")
                })
                .collect();
            let module = text(&format!(
                "{functions} (global (export \"hops\") i32 (i32.const 1024))"
            ))
            .replace(
                DESCRIPTION,
                &DESCRIPTION.replace("\\01\\00\\00\\00\")", "\\05\\00\\00\\00\")"),
            );
            let running = Program::load(&binary(&module)).unwrap().running();
            let began = if *event == "on_start" {
                now
            } else {
                Instant(now.0 - 1_000_000)
            };
            let mut flow = running.start(began, &start);
            act(&mut *flow, now, &telemetry);
            assert_eq!(
                flow.limits().rate,
                value + 1_000_000_000,
                "{event}, offset {offset}"
            );
            assert_eq!(running.faults().count, 0, "{event}, offset {offset}");
        }
    }
}

/// What is not known is all ones.
#[test]
fn what_is_not_known_is_all_ones() {
    let shows = |offset: u32| {
        format!(
            "(i64.store (i32.const 512) (i64.add (i64.const 1000000000) (i64.extend_i32_u (i64.eq (i64.const -1) (i64.load (i32.const {offset}))))))"
        )
    };
    let running = running(&format!(
        "(func (export \"on_ack\") {}) (func (export \"on_notification\") {})",
        shows(256 + 32),
        shows(256 + 72)
    ));
    let mut flow = running.start(Instant(0), &START);
    flow.on_ack(Instant(1), &ack(None));
    assert_eq!(flow.limits().rate, 1_000_000_001);
    flow.on_ack(Instant(2), &ack(Some(7)));
    assert_eq!(flow.limits().rate, 1_000_000_000);
    flow.on_notification(Instant(3), &Notification::default());
    assert_eq!(flow.limits().rate, 1_000_000_001);
}

/// A flow keeps its own bytes from event to event; nothing else stays: memory, globals, what other flows did.
#[test]
fn only_the_flows_own_bytes_stay() {
    let running = running(
        r#"(global $g (mut i64) (i64.const 0))
           (func (export "on_sent")
             ;; Its own counter, and one in memory and one in a global that would be shared.
             (i64.store (i32.const 544) (i64.add (i64.load (i32.const 544)) (i64.const 1)))
             (i64.store (i32.const 4096) (i64.add (i64.load (i32.const 4096)) (i64.const 1)))
             (global.set $g (i64.add (global.get $g) (i64.const 1)))
             (i64.store (i32.const 512) (i64.add (i64.const 1000000000)
               (i64.add (i64.mul (i64.const 100) (i64.load (i32.const 544)))
                 (i64.add (i64.load (i32.const 4096)) (global.get $g))))))"#,
    );
    let mut flows = [
        running.start(Instant(0), &START),
        running.start(Instant(0), &START),
    ];
    for round in 1..=3 {
        for flow in &mut flows {
            flow.on_sent(Instant(round), 1);
            assert_eq!(flow.limits().rate, 1_000_000_002 + 100 * round);
        }
    }
}

#[test]
fn limits_are_what_the_program_says_within_reason() {
    let says = |rate: i64, window: i64, time: i64| {
        running(&format!(
            "(func (export \"on_sent\") (i64.store (i32.const 512) (i64.const {rate}))
               (i64.store (i32.const 520) (i64.const {window})) (i64.store (i32.const 528) (i64.const {time})))
             (func (export \"on_time\") (i64.store (i32.const 512) (i64.const 7000000)))"
        ))
        .start(Instant(1000), &START)
    };
    let mut flow = says(5_000_000, 3000, -1);
    // Nothing was said: no limit.
    assert_eq!(flow.limits(), Limits::NONE);
    flow.on_sent(Instant(1000), 1);
    let limits = Limits {
        rate: 5_000_000,
        window: 3000,
    };
    assert_eq!((flow.limits(), flow.next_change()), (limits, None));
    // A flow always goes on, and a timer leaves time for other things.
    let mut flow = says(0, -1, 0);
    flow.on_sent(Instant(1000), 1);
    let limits = Limits {
        rate: 1_000_000,
        window: UNLIMITED,
    };
    assert_eq!((flow.limits(), flow.next_change()), (limits, Some(Instant(2000))));
    flow.advance(Instant(1999), false);
    assert_eq!(flow.limits(), limits);
    flow.advance(Instant(2000), false);
    assert_eq!((flow.limits().rate, flow.next_change()), (7_000_000, None));
}

#[test]
fn needs_are_those_of_the_description() {
    let described = |bytes: &str| {
        let module = text("(func (export \"on_start\")) (global (export \"hops\") i32 (i32.const 1024))");
        let module = module.replace(DESCRIPTION, &format!("(data (i32.const 0) \"{bytes}\")"));
        (Program::load(&binary(&module)), module)
    };
    let (program, _) = described(r"\01\00\00\00\e0\00\00\00\06\00\00\00\00\10\00\00\00\20\00\00");
    let program = program.unwrap();
    let needs = Needs {
        from_start: false,
        loss: true,
        telemetry: true,
        endpoint: false,
        ack_every: 4096,
        burst: 8192,
    };
    assert_eq!((program.running().needs(), program.flow_bytes()), (needs, 256));
    for (bytes, says) in [
        (
            r"\02",
            "export \"program\": version 2 of the contract: 1 is known",
        ),
        (
            r"\01\00\00\00\e1",
            "export \"program\": 225 bytes of a flow: 0 to 224 are accepted",
        ),
        (
            r"\01\00\00\00\00\00\00\00\08",
            "export \"program\": flags 0x8: bits 0 to 2 are known",
        ),
        (
            r"\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\01",
            "export \"program\": bytes 20 to 31 are not zero",
        ),
    ] {
        assert_eq!(refused(&described(bytes).1), says);
    }
}

#[test]
fn parameters_have_units_and_ranges() {
    let mut named = Named::Program(Program::load(&binary(AIMD)).unwrap());
    let shown: Vec<String> = named
        .parameters()
        .iter()
        .map(|p| format!("{} = {} ({})", p.name, p.value, p.accepted))
        .collect();
    assert_eq!(
        shown,
        [
            "beta = 819 (0 to 1024)",
            "cut = 128 (0 to 1024)",
            "hold_ns = 50us (0 to 1s (with ns, us, ms or s))",
            "step_bps = 10M (1M to 100G bit/s)",
            "target_ns = 50us (1us to 1s (with ns, us, ms or s))",
        ]
    );
    named.set("step_bps", "40M").unwrap();
    named.set("target_ns", "20us").unwrap();
    // Without a unit it is the one that the name has.
    named.set("hold_ns", "1500").unwrap();
    assert_eq!(named.get("hold_ns").as_deref(), Some("1500ns"));
    assert_eq!(named.get("step_bps").as_deref(), Some("40M"));
    let unknown = named.set("ai_rate", "1").unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "program has no parameter \"ai_rate\": it has beta, cut, hold_ns, step_bps, target_ns"
    );
    for (key, value) in [
        ("beta", "1025"),
        ("beta", "-1"),
        ("beta", "1.5"),
        ("target_ns", "5"),
    ] {
        assert!(
            matches!(named.set(key, value), Err(Error::Value { .. })),
            "{key}={value}"
        );
    }
    // It acts: a short round trip adds a step.
    let mut flow = named.build().start(
        Instant(0),
        &Start {
            rate: Some(1_000_000_000),
            ..START
        },
    );
    flow.on_ack(Instant(1), &ack(Some(19_000)));
    assert_eq!(flow.limits().rate, 1_040_000_000);
}

#[test]
fn the_example_raises_and_lowers_rates() {
    let running = Program::load(&binary(AIMD)).unwrap().running();
    let mut flow = running.start(Instant(0), &START);
    assert_eq!(flow.limits().rate, START.line_rate);
    let mut acked = Ack {
        acked: 1,
        sent: 2,
        ..ack(Some(100_000))
    };
    // Twice the target: half of beta (819 / 1024), once in a round trip.
    for _ in 0..2 {
        flow.on_ack(Instant(1000), &acked);
        assert_eq!(flow.limits().rate, START.line_rate - START.line_rate / 1024 * 409);
    }
    let before = flow.limits().rate;
    (acked.acked, acked.sent, acked.rtt) = (3, 4, Some(Duration::from_micros(10)));
    flow.on_ack(Instant(2000), &acked);
    assert_eq!(flow.limits().rate, before + 10_000_000);
    let before = flow.limits().rate;
    flow.on_notification(Instant(10_000), &Notification::default());
    assert_eq!(flow.limits().rate, before, "held");
    flow.on_notification(Instant(51_000), &Notification::default());
    assert_eq!(flow.limits().rate, before - before / 1024 * 128);
    let before = flow.limits().rate;
    flow.on_loss(Instant(60_000), Loss::OutOfSequence);
    assert_eq!(flow.limits().rate, before - before / 1024 * 512);
    assert_eq!(flow.state().cuts, 3);
    assert_eq!(running.faults().count, 0);
    assert!(!flow.is_released(), "it limits from the first packet on");
}

#[test]
fn events_are_those_that_are_exported() {
    assert_eq!(
        program("(func (export \"on_loss\"))").events(),
        ["on_start", "on_loss"]
    );
}
