//! Programs: the contract, what is refused, what a broken one costs.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod contract;
mod hostile;
mod instructions;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::{Program, Running};
use crate::congestion::Start;

/// The example that people begin with.
const AIMD: &str = include_str!("../../../examples/aimd.wat");

const START: Start = Start {
    line_rate: 10_000_000_000,
    mtu: 1024,
    wire: 1110,
    rate: None,
};

/// Description of a program that keeps 64 bytes and limits from the first packet on.
const DESCRIPTION: &str = r#"(data (i32.const 0) "\01\00\00\00\40\00\00\00\01\00\00\00")"#;

fn binary(text: &str) -> Vec<u8> {
    wat::parse_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// A module with the exports that every program has, and more. The event is at 256, the flow at 512.
fn text(more: &str) -> String {
    format!(
        r#"(module
            (memory (export "memory") 1)
            (global (export "program") i32 (i32.const 0)) {DESCRIPTION}
            (global (export "event") i32 (i32.const 256))
            (global (export "flow") i32 (i32.const 512))
            {more})"#
    )
}

/// A program whose flows begin without doing anything.
fn program(more: &str) -> Program {
    Program::load(&binary(&text(&format!("(func (export \"on_start\")) {more}"))))
        .unwrap_or_else(|e| panic!("{e}\n{more}"))
}

fn running(more: &str) -> Arc<Running> {
    program(more).running()
}

fn refused(module: &str) -> String {
    let error = Program::load(&binary(module));
    error.expect_err("it is refused").to_string()
}
