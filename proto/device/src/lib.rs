//! The contract between a driver (guest) and the RDMA function of an adapter (device). `SPEC.md` beside this crate is
//! the normative text; these structs are its layouts. `tests/spec.rs` compares the two: numbers, sizes, offsets and
//! the examples in hexadecimal.
//!
//! All numbers are little-endian. All fields are naturally aligned, sizes are multiples of 8, reserved bytes are zero.
//! Where verbs have a number for something (`ibv_*`, libibverbs' `verbs.h`), the contract uses that number.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(target_endian = "big")]
compile_error!("the layouts are little-endian, and no big-endian driver or device was ever tried");

#[macro_use]
mod layout;
#[macro_use]
mod number;

pub mod command;
pub mod config;
pub mod doorbell;
pub mod event;
pub mod queue;
pub mod ring;
pub mod status;
pub mod verbs;

pub use layout::{Field, Layout};
pub use zerocopy;

/// Layouts of all structs, module by module.
pub const LAYOUTS: &[&[Layout]] = &[
    config::LAYOUTS,
    command::LAYOUTS,
    command::device::LAYOUTS,
    command::memory::LAYOUTS,
    command::queues::LAYOUTS,
    command::qp::LAYOUTS,
    command::connection::LAYOUTS,
    command::flow::LAYOUTS,
    ring::LAYOUTS,
    doorbell::LAYOUTS,
    queue::LAYOUTS,
    event::LAYOUTS,
];
