//! Instructions, one by one and together.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use vnic_wire::time::Instant;

use super::{START, running};
use crate::congestion::CongestionControl;

/// What an expression of type i64 gives. It is kept in the flow's window, so that any value can be seen.
fn value(expression: &str, more: &str) -> u64 {
    let running = running(&format!(
        "{more} (func (export \"on_sent\") (local $i i32) (local $l i64) (i64.store (i32.const 520) {expression}))"
    ));
    let mut flow = running.start(Instant(0), &START);
    flow.on_sent(Instant(0), 5);
    assert_eq!(running.faults().last, None, "{expression}");
    flow.limits().window
}

#[test]
fn arithmetic_is_that_of_the_specification() {
    let (min32, min64) = (i32::MIN, i64::MIN);
    for (expression, expected) in [
        ("i64.add -1 1", 0),
        ("i64.sub 0 1", u64::MAX),
        ("i64.mul 4294967296 4294967297", 4_294_967_296),
        ("i64.div_s -7 2", -3i64 as u64),
        ("i64.div_u -7 2", (-7i64 as u64) / 2),
        ("i64.rem_s -7 2", -1i64 as u64),
        (&format!("i64.rem_s {min64} -1"), 0),
        ("i64.rem_u -7 4", (-7i64 as u64) % 4),
        ("i64.and 12 10", 8),
        ("i64.or 12 10", 14),
        ("i64.xor 12 10", 6),
        ("i64.shl 1 65", 2),
        ("i64.shr_s -8 1", -4i64 as u64),
        ("i64.shr_u -8 1", (-8i64 as u64) >> 1),
        ("i64.rotl -2 1", (-2i64 as u64).rotate_left(1)),
        ("i64.rotr 1 1", 1 << 63),
        ("i64.clz 1", 63),
        ("i64.ctz 8", 3),
        ("i64.popcnt -1", 64),
        ("i64.extend8_s 255", u64::MAX),
        ("i64.extend16_s 32768", -32768i64 as u64),
        ("i64.extend32_s 2147483648", -2147483648i64 as u64),
        ("i32.add -1 1", 0),
        ("i32.sub 0 1", 0xffff_ffff),
        ("i32.mul 65536 65537", 65536),
        ("i32.div_s -7 2", u64::from(-3i32 as u32)),
        ("i32.div_u -7 2", ((-7i32 as u32) / 2).into()),
        ("i32.rem_s -7 2", 0xffff_ffff),
        (&format!("i32.rem_s {min32} -1"), 0),
        ("i32.rem_u -7 4", ((-7i32 as u32) % 4).into()),
        ("i32.shl 1 33", 2),
        ("i32.shr_s -8 1", 0xffff_fffc),
        ("i32.shr_u -8 1", 0x7fff_fffc),
        ("i32.rotl -2 1", 0xffff_fffd),
        ("i32.rotr 1 1", 0x8000_0000),
        ("i32.clz 1", 31),
        ("i32.ctz 0", 32),
        ("i32.popcnt -1", 32),
        ("i32.extend8_s 128", 0xffff_ff80),
        ("i32.extend16_s 32768", 0xffff_8000),
        ("i32.eqz 0", 1),
        ("i64.eqz 4294967296", 0),
    ] {
        assert_eq!(value(&call(expression), ""), expected, "{expression}");
    }
    // Comparisons: of (-1, 1), of (1, 1), of (1, -1); signed and not.
    for (name, expected) in [
        ("eq", [0, 1, 0]),
        ("ne", [1, 0, 1]),
        ("lt_s", [1, 0, 0]),
        ("lt_u", [0, 0, 1]),
        ("gt_s", [0, 0, 1]),
        ("gt_u", [1, 0, 0]),
        ("le_s", [1, 1, 0]),
        ("le_u", [0, 1, 1]),
        ("ge_s", [0, 1, 1]),
        ("ge_u", [1, 1, 0]),
    ] {
        for (pair, expected) in ["-1 1", "1 1", "1 -1"].iter().zip(expected) {
            for ty in ["i32", "i64"] {
                let expression = format!("{ty}.{name} {pair}");
                assert_eq!(value(&call(&expression), ""), expected, "{expression}");
            }
        }
    }
}

/// `i64.add 1 2` as an expression of type i64, with operands that are read from locals or are constants.
fn call(text: &str) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let ty = &words[0][..3];
    let operands: String = words[1..].iter().map(|w| format!("({ty}.const {w}) ")).collect();
    let narrow = ty == "i32" || ["eq", "ne", "lt", "gt", "le", "ge"].contains(&&words[0][4..6]);
    match narrow {
        true => format!("(i64.extend_i32_u ({} {operands}))", words[0]),
        false => format!("({} {operands})", words[0]),
    }
}

#[test]
fn memory_is_little_endian_and_of_all_widths() {
    let bytes = r#"(data (i32.const 1024) "\81\82\83\84\85\86\87\88")"#;
    for (load, expected) in [
        ("i64.load", 0x8887_8685_8483_8281),
        ("i64.load32_u", 0x8483_8281),
        ("i64.load32_s", 0xffff_ffff_8483_8281),
        ("i64.load16_u", 0x8281),
        ("i64.load16_s", 0xffff_ffff_ffff_8281),
        ("i64.load8_u", 0x81),
        ("i64.load8_s", 0xffff_ffff_ffff_ff81),
    ] {
        assert_eq!(
            value(&format!("({load} (i32.const 1024))"), bytes),
            expected,
            "{load}"
        );
    }
    for (load, expected) in [
        ("i32.load", 0x8483_8281),
        ("i32.load16_u", 0x8281),
        ("i32.load16_s", 0xffff_8281),
        ("i32.load8_u", 0x81),
        ("i32.load8_s", 0xffff_ff81),
    ] {
        let expression = format!("(i64.extend_i32_u ({load} offset=1000 (i32.const 24)))");
        assert_eq!(value(&expression, bytes), expected, "{load}");
    }
    for (store, expected) in [
        ("(i64.store (i32.const 1024) (i64.const -1))", u64::MAX),
        (
            "(i64.store32 (i32.const 1024) (i64.const -1))",
            0x8887_8685_ffff_ffff,
        ),
        (
            "(i64.store16 (i32.const 1024) (i64.const -1))",
            0x8887_8685_8483_ffff,
        ),
        (
            "(i64.store8 (i32.const 1024) (i64.const -1))",
            0x8887_8685_8483_82ff,
        ),
        (
            "(i32.store (i32.const 1024) (i32.const 0))",
            0x8887_8685_0000_0000,
        ),
        (
            "(i32.store16 (i32.const 1026) (i32.const 0))",
            0x8887_8685_0000_8281,
        ),
        (
            "(i32.store8 (i32.const 1031) (i32.const 0))",
            0x0087_8685_8483_8281,
        ),
        (
            "(memory.fill (i32.const 1025) (i32.const 7) (i32.const 2))",
            0x8887_8685_8407_0781,
        ),
        (
            "(memory.copy (i32.const 1025) (i32.const 1024) (i32.const 7))",
            0x8786_8584_8382_8181,
        ),
    ] {
        let expression = format!("(block (result i64) {store} (i64.load (i32.const 1024)))");
        assert_eq!(value(&expression, bytes), expected, "{store}");
    }
    assert_eq!(value("(i64.extend_i32_u (memory.size))", ""), 1);
    assert_eq!(
        value("(i64.extend_i32_u (memory.grow (i32.const 1)))", ""),
        0xffff_ffff
    );
}

/// Values that are only named when they are pushed are read as they were then.
#[test]
fn a_local_that_changes_later_was_read_before() {
    let set = "(local.set $l (i64.const 7))";
    for (expression, expected) in [
        (format!("local.get $l {set} local.get $l i64.sub"), -7i64 as u64),
        (format!("local.get $l {set} {set} local.get $l i64.add"), 7),
        ("local.get $l i64.const 9 local.tee $l local.get $l i64.add i64.add".to_owned(), 18),
        // In one way only.
        (
            format!("local.get $l (if (i32.const 1) (then {set})) local.get $l i64.sub"),
            -7i64 as u64,
        ),
        (
            format!("local.get $l (block (br_if 0 (i32.const 0)) {set}) local.get $l i64.sub"),
            -7i64 as u64,
        ),
        // A result that goes to a local at once, with what jumps to behind it.
        (
            "(block (result i64) (br_if 0 (i64.const 3) (i32.const 1)) (drop) (i64.add (i64.const 1) (i64.const 1))) \
             local.set $l local.get $l"
                .to_owned(),
            3,
        ),
        (
            "(select (i64.const 1) (i64.const 2) (i32.const 0)) (select (i64.const 4) (i64.const 8) (i32.const 1)) i64.add"
                .to_owned(),
            6,
        ),
        (
            "(select (result i64) (i64.add (i64.const 1) (i64.const 2)) (i64.add (i64.const 3) (i64.const 4)) \
             (i32.add (i32.const 1) (i32.const -1)))"
                .to_owned(),
            7,
        ),
    ] {
        let body = format!("(block (result i64) {expression})");
        assert_eq!(value(&body, ""), expected, "{expression}");
    }
}

#[test]
fn calls_loops_and_tables() {
    let functions = r#"
        (func $factorial (param i64) (result i64)
          (if (result i64) (i64.eqz (local.get 0)) (then (i64.const 1))
            (else (i64.mul (local.get 0) (call $factorial (i64.sub (local.get 0) (i64.const 1)))))))
        (func $sum (param $n i64) (result i64) (local $s i64)
          (block (loop
            (br_if 1 (i64.eqz (local.get $n)))
            (local.set $s (i64.add (local.get $s) (local.get $n)))
            (local.set $n (i64.sub (local.get $n) (i64.const 1)))
            (br 0)))
          (local.get $s))
        (func $pick (param i32) (result i64)
          (block (block (block (br_table 0 1 2 (local.get 0)) ) (return (i64.const 10))) (return (i64.const 11)))
          (i64.const 12))
        (func $minus (param i64 i64) (result i64) (i64.sub (local.get 0) (local.get 1)))
        (func $early (param i64) (result i64) (local $zero i64)
          (block (br_if 1 (i64.const 5) (i64.eqz (local.get 0))) drop)
          (i64.add (local.get $zero) (i64.const 6)))"#;
    for (expression, expected) in [
        ("(call $factorial (i64.const 10))", 3_628_800),
        ("(call $sum (i64.const 100))", 5050),
        ("(call $pick (i32.const 0))", 10),
        ("(call $pick (i32.const 1))", 11),
        ("(call $pick (i32.const 2))", 12),
        ("(call $pick (i32.const -1))", 12),
        (
            "(call $minus (call $minus (i64.const 1) (i64.const 2)) (call $sum (i64.const 4)))",
            -11i64 as u64,
        ),
        ("(call $early (i64.const 0))", 5),
        ("(call $early (i64.const 1))", 6),
    ] {
        assert_eq!(value(expression, functions), expected, "{expression}");
    }
}
