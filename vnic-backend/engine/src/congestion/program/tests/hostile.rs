//! What is refused, and what a broken program costs.

use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use vnic_wire::time::Instant;

use super::{AIMD, DESCRIPTION, START, binary, program, refused, running, text};
use crate::congestion::program::{FAULTS_MAX, LoadError, MODULE_MAX, Program, Trap};
use crate::congestion::{Ack, CongestionControl, Loss, Notification, Start};

#[test]
fn what_no_program_may_have_is_refused_with_its_place() {
    let start = "(func (export \"on_start\"))";
    let refused_with = |more: &str| refused(&text(&format!("{start} {more}")));
    let says = |more: &str, what: &str| {
        let said = refused_with(more);
        assert!(
            said.starts_with("at byte ") && said.ends_with(what),
            "{more}: {said}"
        );
    };
    let float = "floating point is not accepted: its results are not the same everywhere";
    says("(func (drop (f64.const 1)))", float);
    says("(func (param f32))", float);
    says("(func (local f64))", float);
    says("(func unreachable (drop (f32.sqrt (f32.const 1))))", float);
    says("(func (drop (i32.trunc_sat_f64_u (f64.const 1))))", float);
    says(
        "(func (call $s)) (func $s) (start $s)",
        "on_start is called for each flow",
    );
    says(
        "(data \"x\")",
        "data that is not placed when the module begins is not accepted",
    );
    says(
        "(data (i32.const 65536) \"x\")",
        "data is beyond the end of memory",
    );
    says(
        "(table 1 funcref) (func (call_indirect (i32.const 0)))",
        "calls by a table are not accepted",
    );
    says(
        "(func (result i32 i32) i32.const 1 i32.const 2)",
        "2 results of a function; at most 1 are accepted",
    );
    let locals = format!("(func (local {}))", "i64 ".repeat(257));
    says(&locals, "257 more locals of a function; at most 256 are accepted");
    let deep = format!(
        "(func {} {})",
        "i32.const 1 i32.load ".repeat(300),
        "drop ".repeat(300)
    );
    says(
        &deep,
        "a function has more than 256 locals, constants and values under way",
    );
    let import = text(start).replacen("(module", "(module (import \"env\" \"f\" (func))", 1);
    assert!(refused(&import).ends_with("imports are not accepted: a program calls nobody"));
    let pages = text(start).replace("\"memory\") 1", "\"memory\") 33");
    assert!(refused(&pages).ends_with("33 pages of memory; at most 32 are accepted"));
}

#[test]
fn what_every_program_has_is_missed_by_name() {
    let whole = text("(func (export \"on_start\"))");
    let without = |part: &str| refused(&whole.replace(part, ""));
    let address = "a global with the address of data is missing";
    assert_eq!(
        without("(export \"program\")"),
        format!("export \"program\": {address}")
    );
    assert_eq!(
        without("(export \"event\")"),
        format!("export \"event\": {address}")
    );
    assert_eq!(
        without("(export \"flow\")"),
        format!("export \"flow\": {address}")
    );
    assert_eq!(
        without("(export \"memory\")"),
        "export \"memory\": the memory is missing"
    );
    assert_eq!(
        without("(export \"on_start\")"),
        "export \"on_start\": it is missing"
    );
    assert_eq!(
        refused(&whole.replace("i32.const 512", "i32.const 65500")),
        "export \"flow\": 96 bytes at 65500 are beyond the end of memory"
    );
    assert_eq!(
        refused(&text("(func (export \"on_start\") (param i32))")),
        "export \"on_start\": it is not a function that takes and gives nothing"
    );
    let parameter = |name: &str, data: &str| {
        let more = format!(
            "(func (export \"on_start\")) (global (export \"{name}\") i32 (i32.const 1024)) (data (i32.const 1024) \"{data}\")"
        );
        refused(&text(&more))
    };
    assert_eq!(
        parameter("param_a", r"\05\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\04"),
        "export \"param_a\": value 5, least 0, most 4: they are in order, and below 2^53"
    );
    assert_eq!(
        parameter("param_A", ""),
        "export \"param_A\": a name of 1 to 32 of a-z, 0-9 and _ behind param_ is accepted"
    );
    let telemetry = DESCRIPTION.replace("\\01\\00\\00\\00\")", "\\04\\00\\00\\00\")");
    assert_eq!(
        refused(&whole.replace(DESCRIPTION, &telemetry)),
        format!("export \"hops\": {address}")
    );
    assert_eq!(
        refused(&text("(func (export \"on_start\") unreachable)")),
        "on_start, tried once: `unreachable` was reached"
    );
    assert_eq!(
        Program::load(&vec![0; MODULE_MAX + 1]).unwrap_err(),
        LoadError::Size { len: MODULE_MAX + 1 }
    );
    for bytes in [&b""[..], b"(module)", b"\0asm\x02\0\0\0"] {
        assert_eq!(
            Program::load(bytes).unwrap_err().to_string(),
            "at byte 0: not a WebAssembly module of version 1 in binary form"
        );
    }
}

/// Each way in which an event can fail: it is counted, and the flow is as before it.
#[test]
fn a_fault_leaves_the_flow_as_it_was() {
    for (body, trap) in [
        ("unreachable", Trap::Unreachable),
        (
            "(drop (i64.div_u (i64.const 1) (i64.load (i32.const 2048))))",
            Trap::DivisionByZero,
        ),
        (
            "(drop (i32.rem_s (i32.const 1) (i32.load (i32.const 2048))))",
            Trap::DivisionByZero,
        ),
        (
            "(drop (i64.div_s (i64.const 0x8000000000000000) (i64.const -1)))",
            Trap::Overflow,
        ),
        (
            "(drop (i32.div_s (i32.const 0x80000000) (i32.const -1)))",
            Trap::Overflow,
        ),
        ("(drop (i64.load (i32.const 65529)))", Trap::Memory),
        ("(i32.store16 (i32.const 65535) (i32.const 1))", Trap::Memory),
        (
            "(drop (i32.load8_u offset=4294967295 (i32.const -1)))",
            Trap::Memory,
        ),
        (
            "(memory.fill (i32.const 65535) (i32.const 1) (i32.const 2))",
            Trap::Memory,
        ),
        (
            "(memory.copy (i32.const 0) (i32.const 65535) (i32.const 2))",
            Trap::Memory,
        ),
        (
            "(memory.fill (i32.const 1024) (i32.const 1) (i32.const 16640))",
            Trap::Written,
        ),
        (
            "(memory.fill (i32.const 0) (i32.const 1) (i32.const -1))",
            Trap::Fuel,
        ),
        ("(call $deep)", Trap::Depth),
        ("(loop (br 0))", Trap::Fuel),
        ("(loop (br_if 0 (i32.const 1)))", Trap::Fuel),
    ] {
        let running = running(&format!(
            "(func $deep (call $deep))
             (func (export \"on_sent\")
               (i64.store (i32.const 512) (i64.const 5000000)) (i64.store (i32.const 600) (i64.const 9)) {body})
             (func (export \"on_ack\") (i64.store (i32.const 512)
               (i64.add (i64.const 1000000000) (i64.add (i64.load (i32.const 600)) (i64.load (i32.const 1024))))))"
        ));
        let mut flow = running.start(Instant(0), &START);
        flow.on_ack(Instant(0), &ack(1));
        let before = flow.limits();
        flow.on_sent(Instant(1), 1);
        assert_eq!(flow.limits(), before, "{body}");
        let faults = running.faults();
        assert_eq!((faults.count, faults.stopped), (1, false), "{body}");
        assert_eq!(faults.last, Some(format!("on_sent: {trap}")), "{body}");
        // The next event finds memory as it was, and everything works.
        flow.on_ack(Instant(2), &ack(1));
        assert_eq!(flow.limits().rate, 1_000_000_000, "{body}");
    }
}

fn ack(sent: u64) -> Ack<'static> {
    Ack {
        rtt: Some(Duration::from_micros(10)),
        acked: sent,
        sent: sent + 1,
        bytes: 1,
        hops: 0,
        marked: false,
        telemetry: None,
    }
}

/// After many faults DCQCN takes over, from the rate that a flow has.
#[test]
fn dcqcn_takes_over_from_a_program_that_fails_again_and_again() {
    let running = running(
        "(func (export \"on_ack\") (i64.store (i32.const 512) (i64.const 2000000000)))
         (func (export \"on_sent\") (i64.store (i32.const 512) (i64.const 1)) (loop (br 0)))",
    );
    let mut flows = [
        running.start(Instant(0), &START),
        running.start(Instant(0), &START),
    ];
    flows[0].on_ack(Instant(0), &ack(1));
    for i in 0..FAULTS_MAX {
        assert!(!running.faults().stopped);
        flows[0].on_sent(Instant(i), 1);
        assert_eq!(flows[0].limits().rate, 2_000_000_000);
    }
    assert!(running.faults().stopped);
    for flow in &mut flows {
        flow.on_sent(Instant(100), 1);
        flow.advance(Instant(200), false);
    }
    assert_eq!(running.faults().count, FAULTS_MAX, "it runs no more");
    // DCQCN hears notifications.
    let before = flows[0].limits().rate;
    assert_eq!(before, 2_000_000_000);
    flows[0].on_notification(Instant(1_000_000), &Notification::default());
    assert!(flows[0].limits().rate < before, "{:?}", flows[0].limits());
    // And brings the flow back to its line rate in time.
    for ms in 2..2000 {
        flows[0].advance(Instant(ms * 1_000_000), false);
    }
    assert!(flows[0].is_released());
    // Flows that begin now are DCQCN's from the start.
    let mut late = running.start(Instant(0), &START);
    late.on_notification(Instant(1), &Notification::default());
    assert!(late.state().alpha.is_some());
    assert_eq!(running.faults().count, FAULTS_MAX);
}

/// A life of a flow; its limits on the way.
fn life(program: &Program, seed: u64) -> Vec<(u64, u64)> {
    let running = program.running();
    let start = Start {
        rate: Some(3_000_000_000),
        ..START
    };
    let mut flow = running.start(Instant(0), &start);
    let mut random = Random(seed);
    let mut limits = Vec::new();
    for i in 1..200u64 {
        let now = Instant(i * 5_000);
        match random.below(8) {
            0 => flow.on_loss(now, Loss::OutOfSequence),
            1 => flow.on_notification(now, &Notification::default()),
            2 => flow.on_sent(now, random.below(4096) as u32),
            3 => flow.advance(now, random.below(2) == 0),
            _ => flow.on_ack(
                now,
                &Ack {
                    rtt: Some(Duration::from_nanos(1000 + random.below(200_000))),
                    ..ack(i)
                },
            ),
        }
        limits.push((flow.limits().rate, flow.limits().window));
    }
    limits
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }
}

#[test]
fn a_seed_is_a_run() {
    let aimd = Program::load(&binary(AIMD)).unwrap();
    assert_eq!(life(&aimd, 7), life(&aimd, 7));
    assert_ne!(life(&aimd, 7), life(&aimd, 8));
}

/// Modules with bytes changed, left out, doubled: refused, or programs like any other. Nothing panics, nothing hangs.
#[test]
fn broken_modules_cost_nothing_but_an_error() {
    let rich = text(
        r#"(global $g (mut i32) (i32.const 5))
           (func $f (param i32 i64) (result i64)
             (block (block (block (br_table 0 1 2 (local.get 0)))
               (return (i64.const 1))) (local.set 1 (i64.rotl (local.get 1) (i64.const 3))))
             (if (result i64) (local.get 0) (then (local.get 1)) (else (i64.load8_s (local.get 0)))))
           (func (export "on_start") (local i64)
             (loop (br_if 0 (i64.lt_u (local.tee 0 (i64.add (local.get 0) (i64.const 1))) (i64.const 20))))
             (global.set $g (i32.wrap_i64 (call $f (global.get $g) (local.get 0)))))
           (func (export "on_ack")
             (memory.copy (i32.const 544) (i32.const 256) (i32.const 32))
             (i64.store (i32.const 512) (call $f (i32.const 2) (i64.load (i32.const 288)))))"#,
    );
    let (mut loaded, mut refused) = (0, 0);
    for (number, whole) in [binary(AIMD), binary(&rich)].into_iter().enumerate() {
        life(&Program::load(&whole).unwrap(), 1);
        for cut in 0..whole.len() {
            drop(Program::load(&whole[..cut]));
        }
        for seed in 1..20_000u64 {
            let mut random = Random(seed * 2 + number as u64);
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len() as u64) as usize;
                match random.below(5) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, random.below(256) as u8),
                    2 => bytes[at] ^= 1 << random.below(8),
                    3 => {
                        bytes[at] = [0xff, 0x7f, 0x80, 0x00, 0x0b, 0x05, 0x04, 0x0d][random.below(8) as usize]
                    }
                    _ => bytes[at] = random.below(256) as u8,
                }
            }
            match Program::load(&bytes) {
                Ok(program) => {
                    loaded += 1;
                    if loaded % 8 == 0 {
                        assert_eq!(life(&program, seed), life(&program, seed), "seed {seed}");
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(
        loaded > 100 && refused > 1000,
        "{loaded} loaded, {refused} refused"
    );
}

/// What cannot be reached is read all the same, and code goes on behind it.
#[test]
fn code_that_cannot_be_reached_is_left_out() {
    let program = program(
        r#"(func $f (param i32) (result i32)
             (block (br_if 0 (local.get 0)) (return (i32.const 3)) (drop (i32.const 7))
               (block (loop (br 1))) (if (i32.const 1) (then unreachable) (else nop)))
             (i32.const 4))
           (func (export "on_sent") (i64.store (i32.const 512) (i64.add (i64.const 1000000000)
             (i64.extend_i32_u (call $f (i32.load (i32.const 312)))))))"#,
    );
    let running = program.running();
    let mut flow = running.start(Instant(0), &START);
    for (bytes, rate) in [(0, 1_000_000_003), (1, 1_000_000_004)] {
        flow.on_sent(Instant(0), bytes);
        assert_eq!(flow.limits().rate, rate);
    }
}
